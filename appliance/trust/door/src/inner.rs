//! What all verbs share: the store, the ledger, and the hot state that is rebuilt from the ledger at start.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crossbeam_channel::{Sender, TrySendError};
use nas_ledger::{Anchor, Ledger, LedgerError, NewRecord};
use nas_policy::{Decision, Policy};
use nas_store::Store;
use nas_trust_core::clock::{Now, Trust};
use nas_trust_core::degradation::{Cause, Degradation, Level, VerbClass};
use nas_trust_core::refusals::{Refusals, Source};
use nas_types::fs::FsError;
use nas_types::id::{LeaseId, MountId, RunId};
use nas_types::path::TreePath;
use nas_types::verb::{Head, LeaseInfo};
use parking_lot::{Mutex, RwLock};

use crate::clock::Clocks;
use crate::file::Mounted;
use crate::lease::{Lease, Run};
use crate::passphrase::Guard;
use crate::ticket::Tickets;
use crate::{DoorError, DoorOptions};

/// Refusals waiting to be recorded. Beyond, they are only counted.
pub(crate) const REFUSALS_QUEUED_MAX: usize = 256;

/// A refusal on its way to the ledger.
pub(crate) struct Refusal {
    pub(crate) record: NewRecord,
    /// Appended to the chain, and not only noted in the ring.
    pub(crate) recorded: bool,
    pub(crate) ring_slot: Option<u16>,
    pub(crate) source: String,
}

/// Shared state of the Door.
pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) ledger: Ledger,
    pub(crate) anchor: Mutex<Anchor>,
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) options: DoorOptions,
    pub(crate) clocks: Arc<dyn Clocks>,
    pub(crate) clock_trust: Mutex<Trust>,
    pub(crate) clock_trusted: AtomicBool,
    pub(crate) degradation: Mutex<Degradation>,
    /// Copy of the level for the data path.
    pub(crate) level: AtomicU8,
    pub(crate) leases: RwLock<HashMap<LeaseId, Arc<Lease>>>,
    pub(crate) lease_tokens: RwLock<HashMap<[u8; 32], LeaseId>>,
    pub(crate) runs: RwLock<HashMap<RunId, Arc<Run>>>,
    pub(crate) mounts: RwLock<HashMap<MountId, Arc<Mounted>>>,
    pub(crate) tickets: Mutex<Tickets>,
    /// Which mount a ticket became, by the ticket's hash: UMNT names nothing else.
    pub(crate) mounts_by_ticket: Mutex<lru::LruCache<[u8; 32], MountId>>,
    /// Slows down guessing by those who hold an owner token.
    pub(crate) passphrase: Mutex<Guard>,
    /// Slows down guessing at the sign-in.
    pub(crate) login: Mutex<Guard>,
    pub(crate) refusals: Mutex<Refusals>,
    pub(crate) refusal_queue: Sender<Refusal>,
    /// Calls with an idempotency key that are under way.
    pub(crate) once: Mutex<std::collections::HashSet<[u8; 32]>>,
    /// One merge at a time: the result of the one before is what the next one is computed on.
    pub(crate) merging: Mutex<()>,
    /// A commit that is being mounted is not given up before its mount is known.
    pub(crate) mounting_commit: Mutex<()>,
    pub(crate) standing: Mutex<crate::standing::Standing>,
    /// One change of which trees there are at a time.
    pub(crate) trees: Mutex<()>,
    pub(crate) handle_key: [u8; 32],
    /// The Door is being dropped: threads that wait go home.
    pub(crate) closing: AtomicBool,
    /// Differs from start to start: the base of the write verifier.
    pub(crate) instance: u64,
}

impl Inner {
    /// The clocks, with what is known about them.
    pub(crate) fn now(&self) -> Now {
        Now {
            wall: self.clocks.wall(),
            boottime_ms: self.clocks.boottime_ms(),
            boot_id: self.clocks.boot_id(),
            trusted: self.clock_trusted.load(Ordering::Acquire),
        }
    }

    /// Sets the level that the data path looks at. Called with the degradation locked.
    pub(crate) fn level_changed(&self, degradation: &Degradation) {
        let level = degradation.level();
        self.level.store(level as u8, Ordering::Release);
        tracing::warn!(level = level.as_str(), "degradation level");
    }

    /// Does the level admit verbs of this class?
    pub(crate) fn admits(&self, class: VerbClass) -> Result<(), DoorError> {
        let degradation = self.degradation.lock();
        degradation.admits(class).map_err(|degraded| {
            let causes: Vec<_> = degradation.sentences().collect();
            DoorError::Degraded { level: degraded.level.as_str(), causes: causes.join("; ") }
        })
    }

    /// The same for reads of the data path: one atomic load.
    pub(crate) fn admits_reading(&self) -> Result<(), FsError> {
        if self.level.load(Ordering::Acquire) < Level::Sealed as u8 { Ok(()) } else { Err(FsError::Later) }
    }

    /// The same for changes of the data path. A full pool is the store's business: it still lets one delete.
    pub(crate) fn admits_writing(&self) -> Result<(), FsError> {
        if self.level.load(Ordering::Acquire) < Level::ReadOnly as u8 { Ok(()) } else { Err(FsError::ReadOnly) }
    }

    /// Notes a refusal under a lease; the first of its kind in a minute is recorded, the others are counted.
    pub(crate) fn refused(&self, lease: &Lease, rule: &'static str, path: &TreePath) {
        let now = self.clocks.wall();
        let source = lease.run.id.to_string();
        let noted = self.refusals.lock().note(now, Source::Known(source.clone()), rule, path.as_bytes());
        if noted.record {
            let record = NewRecord {
                effect: Some("deny".to_owned()),
                rule: Some(rule.to_owned()),
                path: Some(path.clone()),
                ..self.by_lease(NewRecord::event("refusal", now), lease)
            };
            self.queue(Refusal { record, recorded: true, ring_slot: noted.ring_slot, source });
        }
    }

    /// Notes a call without any authority (SPEC L1.1).
    pub(crate) fn refused_unauthenticated(&self, interface: &str, rule: &str, peer: &str) {
        let now = self.clocks.wall();
        let noted = self.refusals.lock().note(now, Source::Unauthenticated, rule, b"");
        if noted.record || noted.ring_slot.is_some() {
            let record = NewRecord {
                effect: Some("deny".to_owned()),
                rule: Some(rule.to_owned()),
                detail: serde_json::json!({ "interface": interface, "peer": peer }),
                ..NewRecord::event("refusal", now)
            };
            let (recorded, ring_slot) = (noted.record, noted.ring_slot);
            self.queue(Refusal { record, recorded, ring_slot, source: peer.to_owned() });
        }
    }

    fn queue(&self, refusal: Refusal) {
        // The ring forgets anyway: what only goes there leaves half of the queue to what must be recorded.
        if !refusal.recorded && self.refusal_queue.len() >= REFUSALS_QUEUED_MAX / 2 {
            return;
        }
        match self.refusal_queue.try_send(refusal) {
            Ok(()) => {}
            // Counted all the same; the flood shows in the counters.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                tracing::warn!("a refusal was counted and not recorded: the recorder is busy");
            }
        }
    }

    /// Fills in who acts under a lease.
    pub(crate) fn by_lease(&self, record: NewRecord, lease: &Lease) -> NewRecord {
        NewRecord {
            run: Some(lease.run.id),
            principal: Some(lease.run.principal.clone()),
            on_behalf_of: lease.run.on_behalf_of.clone(),
            lease: Some(lease.id),
            purpose: lease.purpose.clone().or_else(|| lease.run.purpose.clone()),
            detail: lease.run.in_detail(record.detail),
            ..record
        }
    }

    /// Fills in what policy said.
    pub(crate) fn by_rule(record: NewRecord, decision: &Decision) -> NewRecord {
        NewRecord {
            effect: Some(decision.effect.as_str().to_owned()),
            rule: Some(decision.rule.as_str().to_owned()),
            ..record
        }
    }

    /// Head of the ledger as the API shows it.
    pub(crate) fn head(&self) -> Result<Head, LedgerError> {
        let head = self.ledger.head()?;
        Ok(Head { seq: head.seq, hash: head.hash_hex() })
    }

    /// Keeps the head outside the ledger, so that a cut tail is found (SPEC REC-3). The decision that was just made
    /// stands whatever becomes of this; a failure is logged and tried again within a minute.
    ///
    /// A sealed box anchors nothing: a chain whose end was cut off would grow past its anchor and look whole again.
    pub(crate) fn push_anchor(&self) {
        if self.level.load(Ordering::Acquire) >= Level::Sealed as u8 {
            return;
        }
        // A ledger that does not hold what was anchored must never be anchored anew: the witness would be lost.
        if self.degradation.lock().of(Cause::Ledger) == Level::Sealed {
            return;
        }
        if matches!(self.holds_anchor(), Ok(false)) {
            self.seal();
            return;
        }
        let pushed = self.ledger.head().and_then(|head| self.anchor.lock().push(self.clocks.wall(), head));
        if let Err(error) = pushed {
            tracing::error!(%error, "the head of the ledger could not be anchored");
        }
    }

    /// A lease as the API shows it.
    pub(crate) fn lease_info(&self, lease: &Lease) -> LeaseInfo {
        let now = self.now();
        LeaseInfo {
            lease: lease.id,
            run: lease.run.id,
            tree: lease.run.tree_name(),
            branch: lease.run.branch_name(),
            principal: lease.run.principal.clone(),
            on_behalf_of: lease.run.on_behalf_of.clone(),
            parent: lease.parent,
            purpose: lease.purpose.clone(),
            paths: lease.paths.to_globs(),
            actions: lease.actions.iter().collect(),
            state: lease.state(now.boottime_ms).to_owned(),
            created_at: lease.created_at,
            expires_at: lease.clock().expires_at,
            remaining_seconds: u64::try_from(lease.remaining_ms(&now)).unwrap_or(0) / 1000,
        }
    }

    /// Seconds of life left.
    pub(crate) fn remaining_seconds(&self, lease: &Lease) -> u64 {
        u64::try_from(lease.remaining_ms(&self.now())).unwrap_or(0) / 1000
    }

    /// `/.nas/pending`: which of the run's proposals wait, in words (SPEC MOUNT-5).
    pub(crate) fn pending_text(&self, run: RunId) -> String {
        let gates = match self.ledger.read(|reader| reader.gates_of_run(run)) {
            Ok(gates) => gates,
            Err(error) => return format!("not available now: {error}\n"),
        };
        let mut text = String::new();
        for gate in gates {
            use nas_trust_core::gate::GateState;
            use std::fmt::Write as _;
            let answered = match gate.state {
                GateState::Pending => {
                    format!("waits for a person; without an answer it is denied at {}", gate.expires_at)
                }
                state => state.as_str().to_owned(),
            };
            writeln!(text, "{} merge into {} ({} changes): {answered}", gate.id, gate.target, gate.changes)
                .expect("because writing to a String cannot fail");
        }
        if text.is_empty() { "nothing was proposed\n".to_owned() } else { text }
    }
}
