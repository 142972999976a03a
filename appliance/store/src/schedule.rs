//! When branches are committed by themselves (SPEC MOUNT-2): after a time of quiet, and soon after a client asked for
//! durability. One thread, one deadline a branch: ten thousand closes are one commit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use nas_types::lease::BranchName;
use parking_lot::{Condvar, Mutex};

use crate::branch::{Branch, CommitReason};
use crate::error::StoreError;
use crate::live::journal::OnChange;

/// How long after a failed commit it is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// Deadlines of dirty branches.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    due: HashMap<BranchName, (Instant, Weak<Branch>)>,
    stop: bool,
}

impl Scheduler {
    /// Looks at `branch` at `at`, or earlier when that was asked for before.
    fn arm(&self, name: &BranchName, branch: Weak<Branch>, at: Instant) {
        let mut state = self.state.lock();
        let due = state.due.entry(name.clone()).or_insert((at, branch));
        due.0 = due.0.min(at);
        self.wake.notify_one();
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_one();
    }

    /// The thread's body.
    pub(crate) fn run(&self) {
        let mut state = self.state.lock();
        while !state.stop {
            let first = state.due.iter().min_by_key(|(_, due)| due.0).map(|(name, due)| (name.clone(), due.0));
            match first {
                None => self.wake.wait(&mut state),
                Some((_, at)) if at > Instant::now() => {
                    self.wake.wait_until(&mut state, at);
                }
                Some((name, _)) => {
                    let branch = state.due.remove(&name).and_then(|due| due.1.upgrade());
                    parking_lot::MutexGuard::unlocked(&mut state, || {
                        if let Some(branch) = branch {
                            self.look_at(&name, &branch);
                        }
                    });
                }
            }
        }
    }

    fn look_at(&self, name: &BranchName, branch: &Arc<Branch>) {
        let hook = branch.hook();
        let quiet_at = branch.last_change() + hook.quiet;
        // First the time, then the flag: who asks from now on waits for the next interval.
        let before = hook.started();
        let asked = hook.asked.swap(false, Ordering::AcqRel);
        let now = Instant::now();
        if !branch.live().is_dirty() {
            hook.not_started(before);
            return;
        }
        if !asked && quiet_at > now {
            hook.not_started(before);
            self.arm(name, Arc::downgrade(branch), quiet_at);
            return;
        }
        let reason = if asked { CommitReason::Durability } else { CommitReason::Quiet };
        let done = branch.commit(reason);
        if matches!(done, Err(StoreError::NoBranch(_))) {
            // Recycled meanwhile.
            return;
        }
        if let Err(e) = done {
            tracing::error!(branch = %name, error = &e as &dyn std::error::Error, "an automatic commit failed; it is tried again");
            self.arm(name, Arc::downgrade(branch), now + RETRY);
        } else if branch.live().is_dirty() {
            // Changed while it was committed: the next one waits for quiet again.
            self.arm(name, Arc::downgrade(branch), now + hook.quiet);
        }
    }
}

/// What a branch's journal tells the scheduler.
pub(crate) struct Hook {
    scheduler: Arc<Scheduler>,
    name: BranchName,
    branch: OnceLock<Weak<Branch>>,
    pub(crate) asked: AtomicBool,
    last_commit: Mutex<Option<Instant>>,
    pub(crate) quiet: Duration,
    interval_min: Duration,
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hook").field("name", &self.name).field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Hook {
    pub(crate) fn new(scheduler: Arc<Scheduler>, name: BranchName, quiet: Duration, interval_min: Duration) -> Self {
        Self {
            scheduler,
            name,
            branch: OnceLock::new(),
            asked: AtomicBool::new(false),
            last_commit: Mutex::new(None),
            quiet,
            interval_min,
        }
    }

    pub(crate) fn attach(&self, branch: &Arc<Branch>) {
        let _ = self.branch.set(Arc::downgrade(branch));
        if branch.live().is_dirty() {
            self.became_dirty();
        }
    }

    pub(crate) fn committed(&self) {
        *self.last_commit.lock() = Some(Instant::now());
    }

    fn started(&self) -> Option<Instant> {
        self.last_commit.lock().replace(Instant::now())
    }

    fn not_started(&self, before: Option<Instant>) {
        *self.last_commit.lock() = before;
    }

    fn arm(&self, at: Instant) {
        if let Some(branch) = self.branch.get() {
            self.scheduler.arm(&self.name, Weak::clone(branch), at);
        }
    }
}

impl OnChange for Hook {
    fn became_dirty(&self) {
        self.arm(Instant::now() + self.quiet);
    }

    fn wants_commit(&self) {
        // The first request arms; those that follow before the commit share it.
        if !self.asked.swap(true, Ordering::AcqRel) {
            let now = Instant::now();
            let at = self.last_commit.lock().map_or(now, |last| (last + self.interval_min).max(now));
            self.arm(at);
        }
    }
}
