//! Who gets a worker: a cap for each run, and a part of all workers that only the owner gets.
//!
//! Full means later (429), never a queue. Who calls is known only once a worker looked up the token, so every call takes
//! a worker first and then asks for its share; one that gets none is over at once. Holding a lease, however many calls
//! are made with it, therefore never keeps the owner from revoking it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use nas_door::DoorError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::control::Share;
use crate::error::ApiError;
use crate::limits::{BUSY_RETRY_SECONDS, Options};

/// All workers.
pub(crate) struct Workers {
    all: Arc<Semaphore>,
    /// Those that others than the owner may hold.
    others_max: usize,
    per_run_max: usize,
    others: Mutex<Others>,
}

/// What others than the owner hold. Never more entries than workers.
#[derive(Default)]
struct Others {
    held: usize,
    by: HashMap<Share, usize>,
}

/// A part of the workers that a call holds; given back when dropped.
pub(crate) struct Held {
    workers: Arc<Workers>,
    share: Share,
}

impl Workers {
    pub(crate) fn new(options: &Options) -> Arc<Self> {
        Arc::new(Self {
            all: Arc::new(Semaphore::new(options.calls_max)),
            // Somebody has to be able to do something on the smallest box too.
            others_max: options.calls_max.saturating_sub(options.calls_owner_share).max(1),
            per_run_max: options.calls_per_run_max.max(1),
            others: Mutex::default(),
        })
    }

    /// A worker for a call of nobody knows whom.
    pub(crate) fn take(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.all).try_acquire_owned().map_err(|_| ApiError::busy())
    }

    /// May `share` keep the worker it is on? The owner always may.
    pub(crate) fn keep(self: &Arc<Self>, share: Share) -> Result<Held, DoorError> {
        if share != Share::Owner {
            let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
            let own = others.by.get(&share).copied().unwrap_or(0);
            if others.held >= self.others_max || own >= self.per_run_max {
                return Err(DoorError::Busy { retry_after_seconds: BUSY_RETRY_SECONDS });
            }
            others.held += 1;
            others.by.insert(share, own + 1);
        }
        Ok(Held { workers: Arc::clone(self), share })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.share == Share::Owner {
            return;
        }
        let mut others = self.workers.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.held = others.held.saturating_sub(1);
        let left = others.by.get(&self.share).map_or(0, |own| own.saturating_sub(1));
        if left == 0 {
            others.by.remove(&self.share);
        } else {
            others.by.insert(self.share, left);
        }
    }
}
