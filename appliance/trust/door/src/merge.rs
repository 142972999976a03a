//! The one way main changes (SPEC BRANCH-1): a pinned commit of a branch is merged, under a decision.
//!
//! Intent → the next generation is built and made durable beside the current one → one short transaction moves the
//! pointer, the gate and the outcome together (DESIGN §4) → Git refs roll forward from it. A crash before the
//! transaction leaves the old generation and an aborted intent; after it, the new one.

use nas_ledger::{Advanced, GateRow, GenerationRow, Head, LeaseRow, LeaseState, LedgerError, NewRecord, Tx};
use nas_policy::Decision;
use nas_store::PreparedMerge;
use nas_types::failpoint;
use nas_types::id::LeaseId;
use nas_types::object::{Oid, Provenance};

use crate::DoorError;
use crate::inner::Inner;

/// A merge that may be done.
pub(crate) struct Merge<'a> {
    /// `gate` or `import`: where the decision came from.
    pub(crate) by: &'a str,
    /// Who decided.
    pub(crate) approver: &'a str,
    /// What policy said.
    pub(crate) decision: &'a Decision,
    /// The run's authorship.
    pub(crate) provenance: Provenance,
    pub(crate) lease: LeaseId,
    pub(crate) message: String,
    /// Facts for the record.
    pub(crate) detail: serde_json::Value,
    pub(crate) read_manifest: Option<[u8; 32]>,
}

/// What came of it.
pub(crate) enum MergeEnd {
    /// Main moved.
    Merged { commit: Oid, record: Head },
    /// The lease was revoked, or the gate decided, while the merge was prepared: nothing changed.
    TooLate,
}

impl Inner {
    /// Merges. The caller holds `merging`, so main does not move meanwhile; `gate` is the gate row as it will be once this
    /// succeeds, its merge commit left out.
    pub(crate) fn merge(
        &self,
        prepared: &PreparedMerge,
        merge: Merge<'_>,
        gate: Option<&GateRow>,
    ) -> Result<MergeEnd, DoorError> {
        let now = self.now().wall;
        let record = |phase: NewRecord| {
            let record = NewRecord {
                run: Some(merge.provenance.run),
                principal: Some(merge.provenance.principal.clone()),
                on_behalf_of: merge.provenance.on_behalf_of.clone(),
                lease: Some(merge.lease),
                purpose: merge.provenance.purpose.clone(),
                read_manifest: merge.read_manifest,
                ..phase
            };
            Self::by_rule(record, merge.decision)
        };
        let detail = serde_json::json!({ "by": merge.by, "approver": merge.approver, "facts": merge.detail });
        let intent = self
            .ledger
            .write(|tx| tx.append(&NewRecord { detail: detail.clone(), ..record(NewRecord::intent("merge", now)) }));
        let intent = intent.map_err(DoorError::Ledger)?;
        failpoint::hit("door.merge.intent");
        let staged = self.store.stage(prepared, &merge.provenance, &merge.message).map_err(|error| {
            self.aborted("merge", intent.seq, &error.to_string());
            crate::store_error("building the next generation of main", error)
        })?;
        failpoint::hit("door.merge.staged");
        let (before, after) = (staged.on(), staged.pointer());
        let commit = after.commit;
        let row = GenerationRow { number: after.number, commit_oid: commit, made_at: now, retired_at: None };
        let outcome =
            NewRecord { commit: Some(commit), detail, ..record(NewRecord::outcome("merge", now, intent.seq)) };
        let moved = self.ledger.write(|tx| self.compare_and_swap(tx, &merge, before.number, &row, gate, &outcome));
        failpoint::hit("door.merge.pointer");
        match moved {
            Ok(Some(head)) => {
                self.store
                    .publish(staged)
                    .map_err(|error| crate::store_error("publishing the new generation", error))?;
                failpoint::hit("door.merge.published");
                self.push_anchor();
                Ok(MergeEnd::Merged { commit, record: head })
            }
            Ok(None) => {
                self.store.abandon(staged);
                self.aborted("merge", intent.seq, "the lease was revoked or the gate was decided meanwhile");
                Ok(MergeEnd::TooLate)
            }
            Err(error) => {
                // Only when it is certain that nothing was written may the generation go now. A transaction whose fate is
                // not known can still turn up at the next start, which keeps what the pointer names and removes the rest.
                if error.is_full() {
                    self.store.abandon(staged);
                } else {
                    drop(staged);
                }
                self.aborted("merge", intent.seq, &error.to_string());
                Err(DoorError::Ledger(error))
            }
        }
    }

    fn compare_and_swap(
        &self,
        tx: &mut Tx<'_>,
        merge: &Merge<'_>,
        before: u64,
        row: &GenerationRow,
        gate: Option<&GateRow>,
        outcome: &NewRecord,
    ) -> Result<Option<Head>, LedgerError> {
        // Every check before every change: a refusal leaves nothing behind in the transaction.
        if tx.need::<LeaseRow>(&merge.lease)?.state == LeaseState::Revoked {
            return Ok(None);
        }
        if let Some(gate) = gate {
            let decided = GateRow { merge_commit: Some(row.commit_oid), ..gate.clone() };
            if !tx.decide_gate(&decided)? {
                return Ok(None);
            }
        }
        if tx.advance_generation(Some(before), row)? != Advanced::Moved {
            // Another process moved main: the gate above must not stay decided, so the whole closure fails.
            return Err(LedgerError::Exists { table: "generations" });
        }
        tx.append(outcome).map(Some)
    }
}
