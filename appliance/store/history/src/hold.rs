//! Keeps [`crate::History::prune`] and unfinished writers apart.
//!
//! A writer reuses objects that may be reachable from no ref at that moment (the content of a recycled branch).
//! Until a ref points at what it made, removing such an object would damage the new commit. So each writer takes
//! a share when it starts, and whoever keeps results beyond the writer (until the ref is set) keeps the share.
//! Prune does its long work (marking, copying) beside writers, and takes the exclusive side only for the last
//! step, in which it looks again at the refs and then deletes.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

#[derive(Default)]
struct State {
    shares: usize,
    exclusive: bool,
}

/// The gate itself.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<State>, Condvar)>);

/// While this lives, no object is pruned. Keep it from before the first object is written or relied on until
/// a ref reaches the result.
#[must_use]
pub struct Hold(Gate);

/// While this lives, no writer exists.
pub(crate) struct Exclusive(Gate);

impl Gate {
    pub(crate) fn share(&self) -> Hold {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.exclusive {
            state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.shares += 1;
        Hold(self.clone())
    }

    /// The exclusive side, unless a writer is at work now.
    pub(crate) fn try_exclusive(&self) -> Option<Exclusive> {
        let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.shares > 0 || state.exclusive {
            return None;
        }
        state.exclusive = true;
        Some(Exclusive(self.clone()))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.0.0.lock().unwrap_or_else(PoisonError::into_inner).shares -= 1;
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        let (state, changed) = &*self.0.0;
        state.lock().unwrap_or_else(PoisonError::into_inner).exclusive = false;
        changed.notify_all();
    }
}
