//! `gate/propose` (SPEC BRANCH-8): a run asks for a merge, and a card is made of it.

use nas_ledger::{GateRow, LedgerError};
use nas_policy::{Act, Decision, Effect, PolicyRequest, Subject, Target};
use nas_store::{Pinned, Prepared};
use nas_trust_core::degradation::VerbClass;
use nas_trust_core::gate::{self, GateState};
use nas_types::id::GateId;
use nas_types::lease::Action;
use nas_types::object::{Change, Oid};
use nas_types::path::TreePath;
use nas_types::verb::{Propose, Proposed, ReadSummary};

use super::gate::{StoredCard, read_line};
use crate::authority::TakenManifest;
use crate::inner::Inner;
use crate::lease::Lease;
use crate::{Caller, Door, DoorError, DoorVerb, card};

/// The protected branch.
const MAIN: &str = "main";
/// Longest "why", in bytes.
const WHY_BYTES_MAX: usize = 4000;
/// Paths that one proposal may change: a person has to look at them.
const CHANGES_MAX: usize = 100_000;
/// Gates of one run that may wait at a time: nobody is flooded with questions.
const PENDING_PER_RUN_MAX: usize = 32;
/// Lines of the read manifest on a card.
const READ_LINES_MAX: usize = 200;

/// What a person is to be asked.
pub(super) struct Question {
    pub(super) id: GateId,
    pub(super) pin: Oid,
    pub(super) base: Oid,
    pub(super) not_kept: Vec<TreePath>,
    pub(super) why: Option<String>,
    /// The void gate whose place it takes.
    pub(super) replaces: Option<GateId>,
}

/// A merge into main as policy is asked about it.
pub(super) fn merge_request<'a>(lease: &'a Lease, changes: &[Change], approved: bool) -> PolicyRequest<'a> {
    let subject = Subject::agent(&lease.run.principal);
    PolicyRequest {
        approved,
        deletes: changes.iter().any(|change| change.new.is_none()),
        touches_nas: changes.iter().any(|change| change.path.components().any(|part| part == b".nas")),
        ..PolicyRequest::new(subject, Act::Merge, Target::Protected)
    }
}

fn nothing_to_merge() -> DoorError {
    DoorError::State("there is nothing to merge: main has everything that is on the branch".to_owned())
}

impl DoorVerb for Propose {
    const CLASS: VerbClass = VerbClass::Write;

    fn run(self, door: &Door, caller: &Caller) -> Result<Proposed, DoorError> {
        let lease = caller.lease()?;
        if self.into != MAIN {
            return Err(DoorError::Invalid {
                field: "into",
                reason: format!("'{}' is no protected branch: write 'main'", self.into),
            });
        }
        if self.why.as_ref().is_some_and(|why| why.len() > WHY_BYTES_MAX) {
            return Err(DoorError::Invalid { field: "why", reason: format!("at most {WHY_BYTES_MAX} bytes") });
        }
        door.may_propose(lease)?;
        let id = GateId::random();
        let branch = door.branch(&lease.run)?;
        let message = self.why.as_deref().unwrap_or("Propose");
        let pinned = branch.pin(id, message).map_err(|error| crate::store_error("committing the branch", error))?;
        let Pinned::Commit(pin) = pinned else { return Err(nothing_to_merge()) };
        let question = Question {
            id,
            pin,
            base: branch.proposal_base(),
            not_kept: branch.not_kept(),
            why: self.why,
            replaces: None,
        };
        let proposed = door.ask(lease, question);
        if !matches!(&proposed, Ok(proposed) if proposed.gate == id) {
            door.inner.unpin(id);
        }
        proposed
    }
}

impl Door {
    /// May this lease ask for a merge at all?
    fn may_propose(&self, lease: &Lease) -> Result<(), DoorError> {
        if !lease.actions.contains(Action::Propose) {
            self.inner.refused(lease, "lease-action", &TreePath::root());
            return Err(DoorError::Denied {
                rule: "lease-action".into(),
                reason: "the lease does not allow 'propose'".to_owned(),
            });
        }
        let subject = Subject::agent(&lease.run.principal);
        let decision = self.inner.policy.evaluate(&PolicyRequest::new(subject, Act::Propose, Target::OwnBranch));
        if decision.effect == Effect::Allow {
            return Ok(());
        }
        self.inner.refused(lease, "policy", &TreePath::root());
        Err(crate::denied(&decision))
    }

    /// Does policy offer a gate for a merge of these changes?
    fn may_ask(&self, lease: &Lease, changes: &[Change]) -> Result<Decision, DoorError> {
        let request = merge_request(lease, changes, false);
        let decision = self.inner.policy.evaluate(&request);
        match decision.effect {
            Effect::Gate => Ok(decision),
            // An automatic merge needs checks and labels; until they exist, policy only ever gates or denies one.
            Effect::Allow | Effect::Deny => {
                self.inner.refused(lease, "policy", &TreePath::root());
                Err(crate::denied(&decision))
            }
        }
    }

    /// Makes a gate for a pinned commit.
    pub(super) fn ask(&self, lease: &Lease, question: Question) -> Result<Proposed, DoorError> {
        let Question { id, pin, base, not_kept, why, replaces } = question;
        let prepared = match self.prepare(pin)? {
            Prepared::Clean(prepared) => prepared,
            // Where the sides clash is told to those only who may know of these paths.
            Prepared::Conflicts(conflicts) => {
                let known = conflicts.iter().all(|conflict| lease.paths.allows(&conflict.path));
                return Err(if known { DoorError::Conflicts(conflicts) } else { self.outside_lease(lease) });
            }
        };
        let changes = prepared.changes();
        if changes.len() > CHANGES_MAX {
            return Err(DoorError::State(format!(
                "the branch changes {} paths, more than {CHANGES_MAX} that one proposal may hold: propose a part of them",
                changes.len()
            )));
        }
        if changes.is_empty() {
            return Err(nothing_to_merge());
        }
        if changes.iter().any(|change| !lease.paths.allows(&change.path)) {
            return Err(self.outside_lease(lease));
        }
        let decision = self.may_ask(lease, changes)?;
        self.inner
            .store
            .keep_merged(id, &prepared)
            .map_err(|error| crate::store_error("storing merged content", error))?;
        let now = self.inner.now();
        let digest = gate::digest(MAIN, lease.id, changes);
        let (read, read_more) = self.read_summary(lease);
        let stored = StoredCard {
            changes: changes.to_vec(),
            risk: card::risk(self.inner.store.history(), changes, not_kept)?,
            read,
            read_more,
        };
        let row = GateRow {
            id,
            run: lease.run.id,
            lease: lease.id,
            branch: lease.run.branch.clone(),
            target: MAIN.to_owned(),
            base,
            pin,
            digest,
            changes: changes.len() as u64,
            why: why.clone(),
            card: serde_json::to_value(&stored)
                .map_err(|error| DoorError::Store { doing: "writing a gate card", source: error.into() })?,
            state: GateState::Pending,
            created_at: now.wall,
            expires_at: now.wall.plus_ms(self.inner.options.gate_ttl_ms),
            decided_at: None,
            decided_by: None,
            reason: None,
            merge_commit: None,
            successor: None,
        };
        let record = self.inner.gate_record("gate.ask", &row, lease);
        let manifest = TakenManifest::take(&lease.run);
        let asked = self.inner.ledger.write(|tx| {
            let pending = tx.pending_gates_of_run(row.run)?;
            // Asking the very same again is a success that says so.
            if let Some(same) = pending.iter().find(|gate| gate.digest == digest) {
                return Ok(Some(same.clone()));
            }
            if pending.len() >= PENDING_PER_RUN_MAX {
                return Ok(None);
            }
            manifest.store(tx, now.wall)?;
            tx.insert(&row)?;
            if let Some(replaced) = replaces {
                tx.set_successor(replaced, id)?;
            }
            tx.append(&Inner::by_rule(record.clone(), &decision))?;
            Ok::<_, LedgerError>(Some(row.clone()))
        });
        let asked = asked.map_err(DoorError::Ledger)?;
        if asked.as_ref().is_some_and(|gate| gate.id == id) {
            manifest.stored();
        }
        let Some(gate) = asked else {
            return Err(DoorError::State(format!(
                "{PENDING_PER_RUN_MAX} proposals of this run are waiting: let them be decided first"
            )));
        };
        self.inner.push_anchor();
        Ok(Proposed {
            gate: gate.id,
            branch: gate.branch,
            into: gate.target,
            files_changed: gate.changes,
            commit: gate.pin,
            already_there: gate.id != id,
            expires_at: gate.expires_at,
        })
    }

    fn read_summary(&self, lease: &Lease) -> (Vec<ReadSummary>, u64) {
        let manifest = lease.run.manifest.lock();
        let lines = manifest.entries().take(READ_LINES_MAX).map(read_line).collect();
        let more = (manifest.len() as u64).saturating_sub(READ_LINES_MAX as u64) + manifest.unlisted();
        (lines, more)
    }

    pub(super) fn prepare(&self, pin: Oid) -> Result<Prepared, DoorError> {
        self.inner.store.prepare_merge(pin).map_err(|error| crate::store_error("computing the merge", error))
    }

    /// Refuses without naming what lies outside.
    fn outside_lease(&self, lease: &Lease) -> DoorError {
        self.inner.refused(lease, "lease-path", &TreePath::root());
        DoorError::Denied {
            rule: "lease-path".into(),
            reason: "the branch holds changes of paths that this lease does not hold: propose with the lease that does"
                .to_owned(),
        }
    }
}
