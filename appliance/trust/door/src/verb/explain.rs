//! `explain/commit` (SPEC REC-4): from a commit to run, lease, gate decision and reads.

use nas_ledger::GateRow;
use nas_trust_core::degradation::VerbClass;
use nas_types::object::Oid;
use nas_types::verb::{ExplainCommit, Explanation, GateDecision, GateExplained};

use super::gate::read_line;
use super::tree;
use crate::caller::Who;
use crate::{Caller, Door, DoorError, DoorVerb, card};

/// Fewest digits that name a commit.
const PREFIX_DIGITS_MIN: usize = 7;
/// Commits of a branch that are named as the source of a merge.
const FROM_MAX: usize = 1000;

impl DoorVerb for ExplainCommit {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, caller: &Caller) -> Result<Explanation, DoorError> {
        let oid = door.commit_named(&self.commit)?;
        let history = door.inner.store.history();
        let unknown = || DoorError::NotFound { what: "commit", name: self.commit.clone() };
        let commit = history.commit_info(oid).map_err(card::history_error("reading a commit"))?;
        let run = commit.trailer("Run").and_then(|run| run.parse().ok());
        let lease = commit.trailer("Lease").and_then(|lease| lease.parse().ok());
        // A bearer learns of its own run's commits; others do not exist for it.
        if matches!(&caller.0, Who::Lease(own) if Some(own.run.id) != run) {
            return Err(unknown());
        }
        let records = door.records_of(oid)?;
        let gate = door.inner.ledger.read(|reader| reader.gate_of_merge(oid)).map_err(DoorError::Ledger)?;
        let read = match run {
            Some(run) => door.inner.ledger.read(|reader| reader.read_entries(run)).map_err(DoorError::Ledger)?,
            None => Vec::new(),
        };
        let parent = commit.parents.first().copied();
        let changes = history.diff(parent, oid).map_err(card::history_error("comparing commits"))?;
        let from = match commit.parents.get(1) {
            Some(merged) => door.commits_from(*merged, gate.as_ref().map(|gate| gate.base))?,
            None => Vec::new(),
        };
        let lease = lease.and_then(|lease| door.inner.leases.read().get(&lease).cloned());
        Ok(Explanation {
            run: run.map(|run| door.run_info(run)).transpose()?,
            lease: lease.map(|lease| door.inner.lease_info(&lease)),
            gate: gate.map(explained),
            read: read.into_iter().map(read_line).collect(),
            changes,
            records,
            from,
            commit: tree::info(commit),
        })
    }
}

fn explained(row: GateRow) -> GateExplained {
    GateExplained {
        gate: row.id,
        digest: row.digest.to_string(),
        why: row.why,
        decision: GateDecision {
            by: row.decided_by.unwrap_or_default(),
            at: row.decided_at.unwrap_or(row.created_at),
            reason: row.reason,
            commit: row.merge_commit,
        },
    }
}

impl Door {
    /// A commit by its id or the beginning of it.
    fn commit_named(&self, text: &str) -> Result<Oid, DoorError> {
        let legal = (PREFIX_DIGITS_MIN..=40).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
        if !legal {
            return Err(DoorError::Invalid {
                field: "commit",
                reason: format!(
                    "a commit id is 40 hexadecimal digits, or at least the first {PREFIX_DIGITS_MIN} of them"
                ),
            });
        }
        let found = self.inner.ledger.read(|reader| reader.commits_named(text, 3)).map_err(DoorError::Ledger)?;
        match found.as_slice() {
            [one] => Ok(*one),
            [] => Err(DoorError::NotFound { what: "commit", name: text.to_owned() }),
            many => Err(DoorError::Invalid {
                field: "commit",
                reason: format!("{} commits begin so: give more digits", many.len()),
            }),
        }
    }

    /// The commits of a branch that went into a merge, oldest first.
    fn commits_from(&self, tip: Oid, base: Option<Oid>) -> Result<Vec<Oid>, DoorError> {
        let log = self.inner.store.history().log(tip, FROM_MAX).map_err(card::history_error("reading the log"))?;
        let mut from: Vec<_> = log.into_iter().map(|commit| commit.oid).take_while(|oid| Some(*oid) != base).collect();
        from.reverse();
        Ok(from)
    }
}
