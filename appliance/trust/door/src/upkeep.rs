//! What happens with time: lease time is persisted, gates and branches end, the head is anchored, the clock, the space and
//! the ledger are looked at.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use nas_ledger::{BranchRow, BranchState, GateRow, LedgerError, NewRecord, RefusalCount};
use nas_trust_core::clock::{Doubt, Event};
use nas_trust_core::degradation::{Cause, Level, LoweredBy};
use nas_trust_core::gate::GateState;
use nas_trust_core::refusals::Source;

use crate::inner::Inner;
use crate::{Door, DoorError};

/// How often the cheap looks are taken.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often things are persisted and ended by age.
const PERSIST_EVERY: Duration = Duration::from_secs(60);

/// Starts the thread.
pub(crate) fn start(inner: &Arc<Inner>, stopped: Receiver<()>) -> Result<JoinHandle<()>, DoorError> {
    let inner = Arc::downgrade(inner);
    std::thread::Builder::new()
        .name("door-upkeep".to_owned())
        .spawn(move || run(&inner, &stopped))
        .map_err(|source| DoorError::Store { doing: "starting a thread", source: source.into() })
}

fn run(inner: &Weak<Inner>, stopped: &Receiver<()>) {
    let mut persisted = Instant::now();
    while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        let Some(inner) = inner.upgrade() else { return };
        inner.look_at_clock();
        inner.look_at_space();
        if persisted.elapsed() < PERSIST_EVERY {
            continue;
        }
        persisted = Instant::now();
        if let Err(error) = inner.persist_time_and_reads().and_then(|()| inner.persist_refusals()) {
            tracing::error!(%error, "lease times, reads and refusals could not be persisted");
        }
        let ended = inner
            .expire_gates()
            .and_then(|()| inner.forget_answers())
            .and_then(|()| inner.expire_branches())
            .and_then(|()| inner.expire_trees())
            .and_then(|()| inner.drop_views());
        if let Err(error) = ended {
            tracing::error!(%error, "gates, branches and trees could not be ended by age");
        }
        inner.push_anchor();
    }
}

impl Inner {
    /// Reads the clocks; when trust in the wall clock changes, suspended leases go on, or the box degrades.
    pub(crate) fn look_at_clock(&self) {
        let mut trust = self.clock_trust.lock();
        let event = Event::Reading {
            wall: self.clocks.wall(),
            boottime_ms: self.clocks.boottime_ms(),
            synced: self.clocks.synchronised(),
        };
        trust.step(event);
        let doubt = trust.doubt();
        let trusted = doubt.is_none();
        drop(trust);
        if self.clock_trusted.swap(trusted, Ordering::AcqRel) != trusted {
            tracing::info!(trusted, "trust in the wall clock");
            self.persist_trust();
        }
        // A clock nobody has confirmed is what a box without internet has; one that is known to be wrong is worse.
        let wrong = matches!(doubt, Some(Doubt::BehindLedger { .. } | Doubt::Jumped { .. }));
        self.observe(Cause::Clock, if wrong { Level::NoNewRuns } else { Level::None });
    }

    /// A pool down to its reserve takes no new runs; the store itself stops ordinary writes.
    pub(crate) fn look_at_space(&self) {
        let level = if self.store.space().has_room() { Level::None } else { Level::NoNewRuns };
        self.observe(Cause::Space, level);
        let ballast = self.ledger.has_ballast() || self.ledger.restore_ballast().is_ok_and(|held| held);
        let room = ballast && self.ledger.has_room();
        self.observe(Cause::Ledger, if room { Level::None } else { Level::NoNewRuns });
    }

    /// At start: a chain that does not hold its own anchor seals the box (SPEC REC-3).
    pub(crate) fn look_at_ledger(&self) {
        match self.holds_anchor() {
            Ok(true) => {}
            Ok(false) => self.seal(),
            Err(error) => {
                tracing::error!(%error, "the ledger could not be compared with its anchor");
                self.seal();
            }
        }
    }

    /// Does the ledger hold the record that was anchored last, with the same hash?
    pub(crate) fn holds_anchor(&self) -> Result<bool, LedgerError> {
        let Some(anchored) = self.anchor.lock().last() else { return Ok(true) };
        self.ledger.read(|reader| {
            let kept = reader.record(anchored.seq)?;
            Ok::<_, LedgerError>(kept.is_some_and(|record| record.hash == anchored.hash))
        })
    }

    /// What the box believes may be wrong: only the owner can go on from here.
    pub(crate) fn seal(&self) {
        tracing::error!("the ledger does not hold the record that was anchored: the box is sealed");
        let mut degradation = self.degradation.lock();
        degradation.raise(Cause::Ledger, Level::Sealed);
        self.level_changed(&degradation);
    }

    /// Raises or lowers what one cause says by observation.
    fn observe(&self, cause: Cause, level: Level) {
        let mut degradation = self.degradation.lock();
        let changed = degradation.raise(cause, level)
            | degradation.lower(cause, level, LoweredBy::Observation).is_ok_and(|changed| changed);
        if changed {
            self.level_changed(&degradation);
        }
    }

    /// Intents that a crash left without outcome come to nothing: had they come to something, the same transaction would
    /// have said so (SPEC REC-1).
    pub(crate) fn finish_intents(&self) -> Result<(), LedgerError> {
        let open = self.ledger.read(|reader| reader.open_intents())?;
        for intent in open.into_iter().filter(|intent| intent.fields.kind != "branch.recycle") {
            self.aborted(&intent.fields.kind, intent.seq, "the box stopped before it was done");
        }
        Ok(())
    }

    fn persist_refusals(&self) -> Result<(), LedgerError> {
        let counted = self.refusals.lock().drain(self.clocks.wall());
        if counted.is_empty() {
            return Ok(());
        }
        self.ledger.write(|tx| {
            for one in &counted {
                let (source, rule, prefix) = match &one.key {
                    Some(key) => {
                        let source = match &key.source {
                            Source::Known(run) => run.clone(),
                            Source::Unauthenticated => "unauthenticated".to_owned(),
                        };
                        (source, key.rule.clone(), String::from_utf8_lossy(&key.prefix).into_owned())
                    }
                    None => ("many".to_owned(), "many".to_owned(), String::new()),
                };
                tx.add_refusals(&RefusalCount { minute: one.minute, source, rule, prefix, count: one.count })?;
            }
            Ok(())
        })
    }
}

impl Door {
    /// Branches whose recycling was recorded and not finished, or that the ledger never heard of: they go now.
    pub(crate) fn finish_recycling(&self) -> Result<(), DoorError> {
        let inner = &self.inner;
        for branch in inner.store.branches() {
            let row = inner.ledger.read(|reader| reader.get::<BranchRow>(branch.name())).map_err(DoorError::Ledger)?;
            if row.is_none_or(|row| row.state == BranchState::Recycled) {
                inner.store.recycle(branch.name()).map_err(|error| crate::store_error("recycling a branch", error))?;
            }
        }
        // Pins that a crash left between a decision and their removal.
        for gate in inner.store.pins().map_err(|error| crate::store_error("listing pins", error))? {
            let row = inner.ledger.read(|reader| reader.get::<GateRow>(&gate)).map_err(DoorError::Ledger)?;
            if row.is_none_or(|row| row.state != GateState::Pending) {
                inner.unpin(gate);
            }
        }
        let open = inner.ledger.read(|reader| reader.open_intents()).map_err(DoorError::Ledger)?;
        for intent in open.into_iter().filter(|intent| intent.fields.kind == "branch.recycle") {
            let outcome = NewRecord {
                run: intent.fields.run,
                principal: intent.fields.principal,
                ..NewRecord::outcome("branch.recycle", inner.clocks.wall(), intent.seq)
            };
            inner.ledger.write_essential(|tx| tx.append(&outcome)).map_err(DoorError::Ledger)?;
        }
        Ok(())
    }
}
