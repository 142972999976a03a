//! Space: the reserve of the pool, and the counted quota of a branch.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nas_types::fs::{FsError, Space};
use parking_lot::Mutex;

/// How much of the pool ordinary writes may not use (DESIGN §3: space is a safety state).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserve {
    /// Part of the pool, in percent.
    pub percent: u8,
    /// At least this many bytes.
    pub bytes_min: u64,
}

impl Reserve {
    /// The reserve of a pool of `total` bytes.
    fn of(self, total: u64) -> u64 {
        (total / 100).saturating_mul(u64::from(self.percent)).max(self.bytes_min)
    }
}

impl Default for Reserve {
    fn default() -> Self {
        Self { percent: 5, bytes_min: 1 << 30 }
    }
}

/// What a branch may add to the pool (SPEC BRANCH-6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of files changed since the fork, plus bytes of the objects its commits added.
    pub bytes_max: u64,
    /// Files, directories and links changed since the fork.
    pub files_max: u64,
}

impl Limits {
    /// No limit of its own: the pool's reserve still holds.
    pub const NONE: Self = Self { bytes_max: u64::MAX, files_max: u64::MAX };
}

/// How long a reading of the file system's free space is believed.
const BELIEVED: Duration = Duration::from_secs(1);

/// Watches the pool's free space.
#[derive(Debug)]
pub struct SpaceGuard {
    pool: OwnedFd,
    reserve: Reserve,
    seen: Mutex<Seen>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    at: Instant,
    /// Bytes above the reserve, less what was admitted since.
    free: u64,
    total: u64,
    free_files: u64,
    total_files: u64,
}

impl SpaceGuard {
    /// Watches the file system that holds `pool`.
    pub fn new(pool: &Path, reserve: Reserve) -> std::io::Result<Self> {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        let pool = rustix::fs::openat(rustix::fs::CWD, pool, flags, rustix::fs::Mode::empty())?;
        let seen = Mutex::new(read(&pool, reserve)?);
        Ok(Self { pool, reserve, seen })
    }

    /// Admits an operation that may use `bytes` more, or says that the reserve is reached.
    pub(crate) fn admit(&self, bytes: u64) -> Result<(), FsError> {
        if bytes == 0 {
            return Ok(());
        }
        let mut seen = self.seen.lock();
        // A refusal is only given on a fresh reading: space may have been freed a moment ago.
        if seen.at.elapsed() > BELIEVED || seen.free < bytes {
            *seen = read(&self.pool, self.reserve).map_err(crate::error::fs_error)?;
        }
        seen.free = seen.free.checked_sub(bytes).ok_or(FsError::NoSpace)?;
        Ok(())
    }

    /// Is the pool above its reserve?
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.admit(1).is_ok()
    }

    /// What is kept back, in bytes.
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve.of(self.seen.lock().total)
    }

    /// The pool as a whole, the reserve taken off.
    pub fn pool_space(&self) -> Result<Space, FsError> {
        let mut seen = self.seen.lock();
        if seen.at.elapsed() > BELIEVED {
            *seen = read(&self.pool, self.reserve).map_err(crate::error::fs_error)?;
        }
        Ok(Space {
            total_bytes: seen.total,
            free_bytes: seen.free,
            total_files: seen.total_files,
            free_files: seen.free_files,
        })
    }

    /// Waits until deletions are on disk, so that a full file system has its space back
    /// (FINDINGS §1: an append right after deleting a large file fails until then).
    pub(crate) fn settle(&self) {
        if let Err(e) = rustix::fs::syncfs(&self.pool) {
            tracing::error!(errno = %e, "sync of the pool failed");
        }
    }
}

fn read(pool: &OwnedFd, reserve: Reserve) -> Result<Seen, rustix::io::Errno> {
    let fs = rustix::fs::fstatvfs(pool)?;
    let total = fs.f_blocks.saturating_mul(fs.f_frsize);
    let kept = reserve.of(total);
    // btrfs has no file slots and says zero.
    let (total_files, free_files) =
        if fs.f_files == 0 { (u64::from(u32::MAX), u64::from(u32::MAX)) } else { (fs.f_files, fs.f_favail) };
    let free = fs.f_bavail.saturating_mul(fs.f_frsize).saturating_sub(kept);
    Ok(Seen { at: Instant::now(), free, total, free_files, total_files })
}

/// What a branch uses of its [`Limits`].
///
/// A file counts with its whole length from the first change after the fork: on a copy-on-write file system
/// overwriting what main holds uses space too. A deletion gives back what the file counted.
#[derive(Debug)]
pub struct Usage {
    limits: Mutex<Limits>,
    /// `false`: nothing is counted, so that what is remembered does not grow with every file that was ever written.
    counted: bool,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    /// Inode → bytes counted for it.
    files: HashMap<u64, u64>,
    live_bytes: u64,
    object_bytes: u64,
}

impl Usage {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits: Mutex::new(limits), counted: true, used: Mutex::new(Used::default()) }
    }

    /// Of a directory without a quota of its own (an unprotected tree): only the reserve of the pool holds there.
    pub(crate) fn uncounted() -> Self {
        Self { limits: Mutex::new(Limits::NONE), counted: false, used: Mutex::new(Used::default()) }
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        *self.limits.lock()
    }

    /// Sets new limits.
    pub fn set_limits(&self, limits: Limits) {
        *self.limits.lock() = limits;
    }

    /// Bytes counted: live and objects.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let used = self.used.lock();
        used.live_bytes.saturating_add(used.object_bytes)
    }

    /// Files counted.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.used.lock().files.len() as u64
    }

    /// Counts `ino` with `bytes`, or refuses when that grows beyond the limit. Checked and counted under one lock: there is
    /// no overshoot, however many threads write.
    pub(crate) fn charge(&self, ino: u64, bytes: u64) -> Result<(), FsError> {
        self.charge_as(ino, bytes, false)
    }

    fn charge_as(&self, ino: u64, bytes: u64, at_least: bool) -> Result<(), FsError> {
        if !self.counted {
            return Ok(());
        }
        let limits = self.limits();
        let mut used = self.used.lock();
        let old = used.files.get(&ino).copied();
        if at_least && old.is_some_and(|old| old >= bytes) {
            return Ok(());
        }
        let live = used.live_bytes - old.unwrap_or(0);
        let live = live.checked_add(bytes).ok_or(FsError::Quota)?;
        let grows = bytes > old.unwrap_or(0);
        if grows && live.saturating_add(used.object_bytes) > limits.bytes_max {
            return Err(FsError::Quota);
        }
        if old.is_none() && used.files.len() as u64 >= limits.files_max {
            return Err(FsError::Quota);
        }
        used.files.insert(ino, bytes);
        used.live_bytes = live;
        Ok(())
    }

    /// Makes sure that one more file may be made.
    pub(crate) fn check_file(&self) -> Result<(), FsError> {
        let limits = self.limits();
        let used = self.used.lock();
        let full = used.files.len() as u64 >= limits.files_max
            || used.live_bytes.saturating_add(used.object_bytes) > limits.bytes_max;
        if full { Err(FsError::Quota) } else { Ok(()) }
    }

    /// Counts at least `bytes` for `ino`, keeping more if it counts more already: looked at and counted under one lock, so that of
    /// two writers the longer write counts.
    pub(crate) fn charge_at_least(&self, ino: u64, bytes: u64) -> Result<(), FsError> {
        self.charge_as(ino, bytes, true)
    }

    /// Counts a file that exists whatever the limit says (after a restart, or a truncation).
    pub(crate) fn settle(&self, ino: u64, bytes: u64) {
        if !self.counted {
            return;
        }
        let mut used = self.used.lock();
        let old = used.files.insert(ino, bytes).unwrap_or(0);
        used.live_bytes = (used.live_bytes - old).saturating_add(bytes);
    }

    /// A file is gone.
    pub(crate) fn release(&self, ino: u64) {
        let mut used = self.used.lock();
        if let Some(old) = used.files.remove(&ino) {
            used.live_bytes -= old;
        }
    }

    /// Starts counting anew: what was counted is main's now.
    pub(crate) fn clear(&self) {
        *self.used.lock() = Used::default();
    }

    /// Objects a commit added.
    pub(crate) fn add_objects(&self, bytes: u64) {
        let mut used = self.used.lock();
        used.object_bytes = used.object_bytes.saturating_add(bytes);
    }

    /// Bytes the commits of the branch added.
    #[must_use]
    pub fn object_bytes(&self) -> u64 {
        self.used.lock().object_bytes
    }

    /// What the run may still use, within what the pool has.
    pub(crate) fn space(&self, pool: Space) -> Space {
        let limits = self.limits();
        let (bytes, files) = (self.bytes(), self.files());
        Space {
            total_bytes: pool.total_bytes.min(limits.bytes_max),
            free_bytes: pool.free_bytes.min(limits.bytes_max.saturating_sub(bytes)),
            total_files: pool.total_files.min(limits.files_max),
            free_files: pool.free_files.min(limits.files_max.saturating_sub(files)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the quota is exact, gives back what is deleted, and lets a file shrink when it is exceeded.
    #[test]
    fn counted_quota() {
        let usage = Usage::new(Limits { bytes_max: 100, files_max: 2 });
        usage.charge(1, 60).unwrap();
        assert_eq!(usage.charge(2, 41), Err(FsError::Quota));
        usage.charge(2, 40).unwrap();
        assert_eq!(usage.charge(3, 0), Err(FsError::Quota));
        usage.add_objects(50);
        usage.charge(1, 10).unwrap();
        assert_eq!(usage.charge(1, 11), Err(FsError::Quota));
        usage.release(2);
        usage.charge(3, 40).unwrap();
        assert_eq!((usage.bytes(), usage.files()), (100, 2));
    }

    /// Goal: of two writes side by side the longer one counts, whichever comes first.
    #[test]
    fn the_longer_of_two_writes_counts() {
        const INODES: u64 = 100_000;
        let (usage, start) = (Usage::new(Limits::NONE), std::sync::Barrier::new(4));
        std::thread::scope(|s| {
            for bytes in [10, 20, 10, 20] {
                let (usage, start) = (&usage, &start);
                s.spawn(move || {
                    start.wait();
                    (0..INODES).for_each(|ino| usage.charge_at_least(ino, bytes).unwrap());
                });
            }
        });
        assert_eq!(usage.bytes(), 20 * INODES);
    }
}
