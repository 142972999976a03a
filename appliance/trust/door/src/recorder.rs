//! What is recorded beside the verbs: commits the store makes by itself, and refusals.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use crossbeam_channel::Receiver;
use nas_ledger::{LedgerError, NewRecord, RingEntry};
use nas_store::{CommitSink, Committed};

use crate::DoorError;
use crate::inner::{Inner, Refusal};

/// Refusals written with one transaction.
const BATCH_MAX: usize = 64;

/// Records each commit of a branch (SPEC REC: commits).
pub(crate) struct Commits(Weak<Inner>);

impl Commits {
    pub(crate) fn new(inner: &Arc<Inner>) -> Self {
        Self(Arc::downgrade(inner))
    }
}

impl CommitSink for Commits {
    fn committed(&self, commit: &Committed) {
        let Some(inner) = self.0.upgrade() else { return };
        let Some(run) = inner.runs.read().get(&commit.branch.run).cloned() else { return };
        let record = NewRecord {
            run: Some(run.id),
            principal: Some(run.principal.clone()),
            on_behalf_of: run.on_behalf_of.clone(),
            purpose: run.purpose.clone(),
            commit: Some(commit.commit),
            read_manifest: Some(run.manifest.lock().digest()),
            detail: serde_json::json!({
                "branch": commit.branch, "parent": commit.parent, "paths": commit.paths, "bytes": commit.bytes,
                "reason": commit.reason.message(), "not_kept": commit.not_kept,
            }),
            ..NewRecord::event("commit", inner.clocks.wall())
        };
        // A commit on a branch has no consequence outside it; it is in the history whether this can be written or not.
        if let Err(error) = inner.ledger.write(|tx| tx.append(&record)) {
            tracing::error!(%error, commit = %commit.commit, "a commit could not be recorded");
        }
    }
}

/// Writes refusals, off the data path.
pub(crate) fn start(inner: &Arc<Inner>, queue: Receiver<Refusal>) -> Result<JoinHandle<()>, DoorError> {
    let inner = Arc::downgrade(inner);
    std::thread::Builder::new()
        .name("door-recorder".to_owned())
        .spawn(move || run(&inner, &queue))
        .map_err(|source| DoorError::Store { doing: "starting a thread", source: source.into() })
}

fn run(inner: &Weak<Inner>, queue: &Receiver<Refusal>) {
    loop {
        let next = queue.recv_timeout(std::time::Duration::from_millis(200));
        let Some(inner) = inner.upgrade() else { return };
        match next {
            Ok(refusal) => {
                // Those that wait already share its transaction.
                let batch: Vec<Refusal> = std::iter::once(refusal).chain(queue.try_iter().take(BATCH_MAX)).collect();
                if let Err(error) = write(&inner, &batch) {
                    tracing::error!(%error, "refusals could not be recorded");
                }
            }
            Err(_) if inner.closing.load(std::sync::atomic::Ordering::Acquire) => return,
            Err(_) => {}
        }
    }
}

fn write(inner: &Inner, refusals: &[Refusal]) -> Result<(), LedgerError> {
    inner.ledger.write(|tx| {
        for refusal in refusals {
            if let Some(slot) = refusal.ring_slot {
                tx.put_ring(&RingEntry {
                    slot,
                    time: refusal.record.time,
                    source: refusal.source.clone(),
                    rule: refusal.record.rule.clone().unwrap_or_default(),
                    path: refusal.record.path.as_ref().map(ToString::to_string),
                })?;
            }
            if refusal.recorded {
                tx.append(&refusal.record)?;
            }
        }
        Ok(())
    })
}
