//! Upkeep of the history: small packs are joined, what nothing refers to any more is dropped. One thread, off every hot
//! path, at most one part in [`REST_FACTOR`] of the time.
//!
//! Joining is safe beside readers and writers, and happens whenever there are too many packs: a box that is never idle
//! must not run out of them. Pruning needs a moment without a writer; it is tried after a time of quiet, and again later
//! when a writer was there. Neither ever fails anything else: an error is logged and tried again later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nas_history::{HistoryError, Pruned};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::store::Core;

/// The thread rests this many times as long as it worked.
const REST_FACTOR: u32 = 20;

/// When the history is looked after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upkeep {
    /// More packs than this are joined. A commit makes one.
    pub packs_max: usize,
    /// Pruning waits until nothing was written for this long.
    pub quiet: Duration,
    /// Two looks are at least this far apart; also the time from a start to the first look.
    pub interval_min: Duration,
}

impl Default for Upkeep {
    fn default() -> Self {
        Self { packs_max: 64, quiet: Duration::from_secs(5), interval_min: Duration::from_secs(5) }
    }
}

/// What there is to do. Told by the operations of the store, cheaply.
#[derive(Debug)]
pub(crate) struct Chores {
    state: Mutex<State>,
    wake: Condvar,
    /// The ref of main is behind the ledger: main's own commits would look like garbage.
    main_ref_behind: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// Packs written since they were last counted.
    packs: usize,
    /// Something may be reachable from no ref.
    garbage: bool,
    last_write: Instant,
    not_before: Instant,
    stop: bool,
}

impl Chores {
    /// At start there may be packs and garbage of before.
    pub(crate) fn new(options: &Upkeep) -> Self {
        let now = Instant::now();
        let not_before = now + options.interval_min;
        Self {
            state: Mutex::new(State { packs: usize::MAX, garbage: true, last_write: now, not_before, stop: false }),
            wake: Condvar::new(),
            main_ref_behind: AtomicBool::new(false),
        }
    }

    /// A pack was written.
    pub(crate) fn wrote(&self) {
        let mut state = self.state.lock();
        state.packs = state.packs.saturating_add(1);
        state.last_write = Instant::now();
        self.wake.notify_one();
    }

    /// Something became unreachable: a recycled branch, a squashed commit, a pin that is gone.
    pub(crate) fn garbage(&self) {
        self.state.lock().garbage = true;
        self.wake.notify_one();
    }

    /// Main's ref did not follow the ledger; until the next start nothing is pruned.
    pub(crate) fn main_ref_behind(&self) {
        self.main_ref_behind.store(true, Ordering::Release);
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_one();
    }

    /// The thread's body.
    pub(crate) fn run(&self, core: &Arc<Core>) {
        let options = core.options.upkeep;
        let mut state = self.state.lock();
        while !state.stop {
            let join = state.packs > options.packs_max;
            let quiet_at = state.last_write + options.quiet;
            let due = match (join, state.garbage) {
                (false, false) => None,
                (true, _) => Some(state.not_before),
                (false, true) => Some(state.not_before.max(quiet_at)),
            };
            match due {
                None => self.wake.wait(&mut state),
                Some(at) if at > Instant::now() => {
                    self.wake.wait_until(&mut state, at);
                }
                Some(_) => self.round(core, &mut state, join, quiet_at),
            }
        }
    }

    fn round(&self, core: &Core, state: &mut MutexGuard<'_, State>, join: bool, quiet_at: Instant) {
        let started = Instant::now();
        let prune = state.garbage && quiet_at <= started;
        // What comes to be garbage from now on may be missed by this round, so it asks for another.
        state.garbage &= !prune;
        state.packs = if join { 0 } else { state.packs };
        let (packs, pruned) = MutexGuard::unlocked(state, || {
            let packs = if join { look_at_packs(core) } else { 0 };
            (packs, !prune || self.prune(core))
        });
        state.packs = state.packs.saturating_add(packs);
        state.garbage |= !pruned;
        let rest = (started.elapsed() * REST_FACTOR).max(core.options.upkeep.interval_min);
        state.not_before = Instant::now() + rest;
    }

    /// True when there is nothing left to prune.
    fn prune(&self, core: &Core) -> bool {
        if self.main_ref_behind.load(Ordering::Acquire) {
            tracing::warn!("nothing is pruned: the ref of main is behind; the next start moves it");
            return true;
        }
        match core.history.prune() {
            Ok(Pruned::Done { objects }) => {
                if objects > 0 {
                    tracing::info!(objects, "pruned the history");
                }
                true
            }
            // A writer was there.
            Ok(Pruned::Busy) => false,
            Err(error) => later("pruned", &error),
        }
    }
}

/// Joins packs when there are too many; how many there are then, as far as one can know.
fn look_at_packs(core: &Core) -> usize {
    let counted = core.history.pack_count().and_then(|packs| {
        if packs <= core.options.upkeep.packs_max {
            return Ok(packs);
        }
        let done = core.history.consolidate()?;
        tracing::info!(before = done.packs_before, after = done.packs_after, "joined packs of the history");
        Ok(done.packs_after)
    });
    counted.unwrap_or_else(|error| {
        later("joined", &error);
        usize::MAX
    })
}

fn later(what: &'static str, error: &HistoryError) -> bool {
    tracing::error!(error = error as &dyn std::error::Error, what, "the history could not be; it is tried again later");
    false
}
