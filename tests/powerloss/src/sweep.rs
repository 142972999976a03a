//! Mounts rebuilt images, one at a time, and lets a test look into them.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use nas_testkit::Scratch;
use nas_testkit::disk::{LoopDevice, Mounted, run};

use crate::Error;
use crate::replay::{CrashPoint, Log, Marker, Subset};

/// How the appliance mounts its pool (DESIGN §2).
pub(crate) const MOUNT_OPTIONS: &str = "user_subvol_rm_allowed,nosuid,nodev";

/// All images of one log carry the same file-system id, and the kernel knows only one device for an id.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Which power cuts are tried.
#[derive(Debug, Clone, Copy)]
pub struct Sweep {
    /// Random subsets for each flush after which there is more to choose from than nothing and everything.
    pub random_subsets: u64,
    /// Where the random subsets come from; printed with every loss.
    pub seed: u64,
    /// Look only at every n-th flush (the first and the last are always looked at). 1 means all.
    pub stride: usize,
    /// Look only at power cuts after at least so many flushes.
    pub first: usize,
    /// Stop at the first loss.
    pub stop_at_first: bool,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { random_subsets: 1, seed: 1, stride: 1, first: 0, stop_at_first: false }
    }
}

/// One power cut, mounted.
#[derive(Debug)]
pub struct Crash<'a> {
    /// When it happened.
    pub point: CrashPoint,
    /// The mounted file system as the next start of the machine finds it. It may be written to.
    pub dir: &'a Path,
    /// Everything that had been promised by then.
    pub promised: &'a [Marker],
}

/// A promise that a power cut broke, or a file system that it destroyed.
#[derive(Debug, Clone)]
pub struct Loss {
    /// When the power went.
    pub point: CrashPoint,
    /// What the checker said.
    pub message: String,
}

/// What a sweep found.
#[derive(Debug, Default)]
pub struct Report {
    /// How many images were mounted and checked.
    pub checked: usize,
    /// What was lost. Empty is good.
    pub losses: Vec<Loss>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} power cuts tried, {} lost something", self.checked, self.losses.len())?;
        for loss in self.losses.iter().take(10) {
            write!(f, "\n  {} flushes, then {:?}: {}", loss.point.flushes, loss.point.subset, loss.message)?;
        }
        Ok(())
    }
}

impl Log {
    /// Tries power cuts as `plan` says: after each flush with nothing of what came later, and with random parts of it.
    /// `checker` gets each one mounted and answers with an error when something that
    /// was promised is not there.
    ///
    /// # Errors
    /// When images cannot be made here. A loss is part of the [`Report`]; so is an image that cannot be mounted.
    pub fn sweep<E: fmt::Display>(
        &self,
        plan: &Sweep,
        mut checker: impl FnMut(&Crash<'_>) -> Result<(), E>,
    ) -> Result<Report, Error> {
        let mut replayer = self.replayer()?;
        let out = replayer.dir().join("crash");
        let last = self.flush_points().len();
        let mut report = Report::default();
        for flushes in (plan.first..=last).filter(|n| n % plan.stride.max(1) == 0 || *n == last) {
            let random = if self.has_subsets(flushes) { plan.random_subsets } else { 0 };
            let random = (0..random).map(|n| Subset::Random(plan.seed.wrapping_add(n)));
            // "Everything" is what the next flush finds, which is looked at next.
            let everything = (plan.stride > 1 || flushes == last).then_some(Subset::Everything);
            for subset in [Subset::Nothing].into_iter().chain(everything).chain(random) {
                let point = CrashPoint { flushes, subset };
                replayer.image(point, &out)?;
                let promised = self.promised(flushes);
                report.checked += 1;
                let message = match check(&out, |dir| checker(&Crash { point, dir, promised })) {
                    Ok(Ok(())) => continue,
                    Ok(Err(error)) => error.to_string(),
                    // mount(8) answered: the file system itself did not survive. Anything else is our trouble.
                    Err(Error::Unavailable(nas_testkit::Unavailable::Failed { command, stderr, .. }))
                        if command.starts_with("\"mount\"") =>
                    {
                        format!("the file system does not mount: {stderr}")
                    }
                    Err(error) => return Err(error),
                };
                report.losses.push(Loss { point, message });
                if plan.stop_at_first {
                    return Ok(report);
                }
            }
        }
        Ok(report)
    }
}

/// Mounts an image, runs `look` on the mounted directory and unmounts it. One image at a time in this process.
///
/// # Errors
/// When it cannot be mounted or unmounted.
pub fn check<T>(image: &Path, look: impl FnOnce(&Path) -> T) -> Result<T, Error> {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = Scratch::new("crash");
    let device = LoopDevice::attach(image, false)?;
    let mounted = Mounted::mount(device.device(), scratch.path(), "btrfs", MOUNT_OPTIONS)?;
    let seen = look(mounted.dir());
    mounted.unmount().map_err(Error::Busy)?;
    // The kernel remembers the generation it saw under this id and would refuse an older image as stale.
    // Where it remembers nothing this fails, and that is fine.
    let _ = run(Command::new("btrfs").args(["device", "scan", "--forget"]).arg(device.device()));
    Ok(seen)
}
