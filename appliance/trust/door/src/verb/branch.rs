//! `branch/…` and `checkpoint/…` (SPEC BRANCH).

use std::sync::Arc;

use nas_ledger::{BranchRow, BranchState, LedgerError, NewRecord, RunRow, RunState};
use nas_policy::{Act, Effect, PolicyRequest, Subject, Target};
use nas_store::{Branch, CommitReason, StoreError};
use nas_trust_core::degradation::VerbClass;
use nas_types::lease::Action;
use nas_types::object::Oid;
use nas_types::verb::{
    BranchCommit, BranchCommitted, BranchDiff, BranchDiffAnswer, BranchInfo, BranchList, BranchRecycle, BranchRestore,
    BranchRestored, BranchShow, Branches, CheckpointCreate, CheckpointInfo, CheckpointList, Checkpoints,
};

use crate::authority::TakenManifest;
use crate::caller::Who;
use crate::inner::Inner;
use crate::lease::{Lease, Run};
use crate::{Caller, Door, DoorError, DoorVerb, card};

/// Longest message of a commit, in bytes.
const MESSAGE_BYTES_MAX: usize = 1000;

impl DoorVerb for BranchList {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, caller: &Caller) -> Result<Branches, DoorError> {
        let rows = door.inner.ledger.read(|reader| reader.branches_kept()).map_err(DoorError::Ledger)?;
        let mine = rows.into_iter().filter(|row| match &caller.0 {
            Who::Owner { .. } => true,
            Who::Lease(lease) => row.run == lease.run.id,
            Who::Anonymous { .. } => false,
        });
        Ok(Branches { branches: mine.map(|row| door.inner.branch_info(row)).collect() })
    }
}

impl DoorVerb for BranchShow {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, caller: &Caller) -> Result<BranchInfo, DoorError> {
        let run = door.run_of(caller, self.run)?;
        run_has_branch(&run)?;
        let row = door.inner.ledger.read(|reader| reader.need::<BranchRow>(&run.branch)).map_err(DoorError::Ledger)?;
        Ok(door.inner.branch_info(row))
    }
}

impl DoorVerb for BranchDiff {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, caller: &Caller) -> Result<BranchDiffAnswer, DoorError> {
        let run = door.run_of(caller, self.run)?;
        let branch = door.branch(&run)?;
        let reads = match &caller.0 {
            Who::Lease(lease) => lease.actions.contains(Action::Read),
            Who::Owner { .. } | Who::Anonymous { .. } => true,
        };
        if self.text && !reads {
            return Err(DoorError::Denied {
                rule: "lease-action".into(),
                reason: "the lease does not allow 'read': it sees which paths changed, and no text".to_owned(),
            });
        }
        branch.commit(CommitReason::Explicit("Commit before a comparison".to_owned())).map_err(committing)?;
        let (from, to) = (branch.proposal_base(), branch.tip());
        let history = door.inner.store.history();
        let mut changes = history.diff(Some(from), to).map_err(card::history_error("comparing commits"))?;
        if let Who::Lease(lease) = &caller.0 {
            changes.retain(|change| lease.paths.allows(&change.path));
            if self.text {
                lease.run.read_whole(changes.iter().filter_map(|change| Some((&change.path, from, change.old?.oid?))));
            }
        }
        let text = self.text.then(|| card::diff_text(history, &changes)).transpose()?;
        Ok(BranchDiffAnswer { from, to, changes, text })
    }
}

impl DoorVerb for BranchCommit {
    const CLASS: VerbClass = VerbClass::Write;

    fn run(self, door: &Door, caller: &Caller) -> Result<BranchCommitted, DoorError> {
        let lease = may_write(door, caller)?;
        let message = self.message.unwrap_or_else(|| "Commit".to_owned());
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(DoorError::Invalid { field: "message", reason: format!("at most {MESSAGE_BYTES_MAX} bytes") });
        }
        let branch = door.branch(&lease.run)?;
        let made = branch.commit(CommitReason::Explicit(message)).map_err(committing)?;
        Ok(BranchCommitted { commit: made.unwrap_or_else(|| branch.tip()), made: made.is_some() })
    }
}

impl DoorVerb for BranchRecycle {
    const CLASS: VerbClass = VerbClass::FreeSpace;

    fn run(self, door: &Door, caller: &Caller) -> Result<BranchInfo, DoorError> {
        let run = door.run_of(caller, self.run)?;
        door.may_end(caller, Act::DiscardBranch)?;
        door.inner.recycle(&run, &caller.name())
    }
}

impl DoorVerb for BranchRestore {
    const CLASS: VerbClass = VerbClass::Write;

    fn run(self, door: &Door, caller: &Caller) -> Result<BranchRestored, DoorError> {
        let lease = may_write(door, caller)?;
        let branch = door.branch(&lease.run)?;
        let named = branch.checkpoints().map_err(|error| crate::store_error("listing checkpoints", error))?;
        let to = match named.into_iter().find(|(name, _)| *name == self.to) {
            Some((_, commit)) => commit,
            None => door.commit_on(&branch, &self.to)?,
        };
        // What is there now is committed first: a restore can be undone.
        branch.commit(CommitReason::Explicit(format!("Before a restore to {}", self.to))).map_err(committing)?;
        let restored = branch.restore(to, &|change| lease.paths.allows(&change.path)).map_err(|error| match error {
            StoreError::NotAllowed(outside) => {
                door.inner.refused(lease, "lease-path", &outside);
                DoorError::Denied {
                    rule: "lease-path".into(),
                    reason: format!("the restore would change {outside}, which this lease does not hold"),
                }
            }
            error => crate::store_error("restoring", error),
        })?;
        Ok(BranchRestored { before: restored.before, commit: restored.commit, changed: restored.changed as u64 })
    }
}

impl DoorVerb for CheckpointCreate {
    const CLASS: VerbClass = VerbClass::Write;

    fn run(self, door: &Door, caller: &Caller) -> Result<CheckpointInfo, DoorError> {
        let lease = may_write(door, caller)?;
        let legal = (1..=64).contains(&self.name.len())
            && !self.name.starts_with(['.', '-'])
            && !self.name.contains("..")
            && !self.name.ends_with(['.'])
            && !self.name.ends_with(".lock")
            && self.name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if !legal {
            return Err(DoorError::Invalid {
                field: "name",
                reason: "1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-', not starting with '.' or '-', without '..'"
                    .to_owned(),
            });
        }
        let branch = door.branch(&lease.run)?;
        let commit = branch.checkpoint(&self.name).map_err(|error| crate::store_error("making a checkpoint", error))?;
        let record = NewRecord {
            commit: Some(commit),
            detail: serde_json::json!({ "name": self.name }),
            ..door.inner.by_lease(NewRecord::event("checkpoint", door.inner.clocks.wall()), lease)
        };
        door.inner.ledger.write(|tx| tx.append(&record)).map_err(DoorError::Ledger)?;
        Ok(CheckpointInfo { name: self.name, commit })
    }
}

impl DoorVerb for CheckpointList {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, caller: &Caller) -> Result<Checkpoints, DoorError> {
        let run = door.run_of(caller, self.run)?;
        let named =
            door.branch(&run)?.checkpoints().map_err(|error| crate::store_error("listing checkpoints", error))?;
        Ok(Checkpoints {
            checkpoints: named.into_iter().map(|(name, commit)| CheckpointInfo { name, commit }).collect(),
        })
    }
}

fn committing(error: nas_store::StoreError) -> DoorError {
    crate::store_error("committing the branch", error)
}

fn may_write<'a>(door: &Door, caller: &'a Caller) -> Result<&'a Arc<Lease>, DoorError> {
    let lease = caller.lease()?;
    if lease.actions.contains(nas_types::lease::Action::Write) {
        return Ok(lease);
    }
    door.inner.refused(lease, "lease-action", &nas_types::path::TreePath::root());
    Err(DoorError::Denied { rule: "lease-action".into(), reason: "the lease does not allow 'write'".to_owned() })
}

impl Door {
    /// May the caller end a run or give its branch up? The owner; and of the run's leases the root alone, with `write`: one that
    /// was handed a part must not take the whole away.
    pub(crate) fn may_end(&self, caller: &Caller, act: Act) -> Result<(), DoorError> {
        let subject = match &caller.0 {
            Who::Owner { principal, .. } => Subject::owner(principal),
            Who::Lease(lease) => {
                if lease.parent.is_some() || !lease.actions.contains(Action::Write) {
                    self.inner.refused(lease, "root-lease-only", &nas_types::path::TreePath::root());
                    return Err(DoorError::Denied {
                        rule: "root-lease-only".into(),
                        reason: "only the owner, or the root lease of the run with 'write', may do this".to_owned(),
                    });
                }
                Subject::agent(&lease.run.principal)
            }
            Who::Anonymous { .. } => Subject::nobody(),
        };
        let decision = self.inner.policy.evaluate(&PolicyRequest::new(subject, act, Target::OwnBranch));
        if decision.effect == Effect::Allow { Ok(()) } else { Err(crate::denied(&decision)) }
    }

    /// The live branch of a run.
    pub(crate) fn branch(&self, run: &Run) -> Result<Arc<Branch>, DoorError> {
        run_has_branch(run)?;
        self.inner.store.branch(&run.branch).ok_or_else(|| {
            DoorError::State(format!("branch {} was recycled: ask for a new lease to start a new run", run.branch))
        })
    }

    /// A commit of this branch by its full id; others are not to be reached from it.
    fn commit_on(&self, branch: &Branch, text: &str) -> Result<Oid, DoorError> {
        let unknown = || DoorError::NotFound {
            what: "checkpoint or commit of this branch",
            name: text.chars().take(64).collect(),
        };
        let wanted: Oid = text.parse().map_err(|_| unknown())?;
        let history = self.inner.store.history();
        let is_ancestor = |a, b| history.is_ancestor(a, b).map_err(card::history_error("looking for a commit"));
        let known = history.commit_info(wanted).is_ok();
        if known && is_ancestor(wanted, branch.tip())? && is_ancestor(branch.base(), wanted)? {
            Ok(wanted)
        } else {
            Err(unknown())
        }
    }
}

/// On an unprotected tree there is nothing to commit, compare or propose.
pub(crate) fn run_has_branch(run: &Run) -> Result<(), DoorError> {
    match &run.tree {
        None => Ok(()),
        Some(tree) => Err(DoorError::State(format!(
            "the run works on the tree {tree}: what is written there is there at once, and it keeps no history"
        ))),
    }
}

impl Inner {
    fn branch_info(&self, row: BranchRow) -> BranchInfo {
        let live = self.store.branch(&row.name);
        let usage = live.as_ref().map(|branch| branch.live().usage());
        BranchInfo {
            base: row.base,
            tip: live.as_ref().map_or(row.base, |branch| branch.tip()),
            dirty_paths: live.as_ref().map_or(0, |branch| branch.dirty_paths() as u64),
            used_bytes: usage.map_or(0, |usage| usage.bytes()),
            quota_bytes: row.quota_bytes.unwrap_or(u64::MAX),
            state: row.state.as_str().to_owned(),
            created_at: row.created_at,
            expires_at: row.expires_at,
            branch: row.name,
        }
    }

    /// Gives a branch up. Refused while a gate pins it.
    pub(crate) fn recycle(&self, run: &Arc<Run>, by: &str) -> Result<BranchInfo, DoorError> {
        run_has_branch(run)?;
        let now = self.now();
        let intent = NewRecord {
            run: Some(run.id),
            principal: Some(by.to_owned()),
            detail: serde_json::json!({ "branch": run.branch }),
            ..NewRecord::intent("branch.recycle", now.wall)
        };
        let leases: Vec<_> = {
            let leases = self.leases.read();
            leases.values().filter(|lease| lease.run.id == run.id).cloned().collect()
        };
        let manifest = TakenManifest::take(run);
        let written = self.ledger.write_essential(|tx| {
            let pinned = !tx.pending_gates_of_run(run.id)?.is_empty();
            let row = tx.need::<BranchRow>(&run.branch)?;
            if pinned || row.state == BranchState::Recycled {
                return Ok(Err(pinned));
            }
            let row = BranchRow { state: BranchState::Recycled, ..row };
            tx.update(&row)?;
            // Without its branch the run is over.
            let over = tx.need::<RunRow>(&run.id)?;
            if over.state == RunState::Active {
                tx.update(&RunRow { state: RunState::Ended, ended_at: Some(now.wall), ..over })?;
            }
            manifest.store(tx, now.wall)?;
            for lease in &leases {
                tx.store_lease_time(lease.id, &lease.expire(&now))?;
            }
            Ok::<_, LedgerError>(Ok((tx.append(&intent)?.seq, row)))
        });
        let (intent, row) = written.map_err(DoorError::Ledger)?.map_err(|pinned| {
            DoorError::State(if pinned {
                "a gate waits for a decision on this branch: deny it first".to_owned()
            } else {
                "the branch was recycled before".to_owned()
            })
        })?;
        manifest.stored();
        self.mounts.write().retain(|_, mount| {
            let keep = mount.lease.run.id != run.id;
            if !keep {
                mount.end();
            }
            keep
        });
        // From here on a restart finishes it: the row says recycled, and what it names is removed at start.
        self.store.recycle(&run.branch).map_err(|error| crate::store_error("recycling the branch", error))?;
        let outcome = NewRecord {
            run: Some(run.id),
            principal: Some(by.to_owned()),
            ..NewRecord::outcome("branch.recycle", now.wall, intent)
        };
        self.ledger.write_essential(|tx| tx.append(&outcome)).map_err(DoorError::Ledger)?;
        Ok(self.branch_info(row))
    }

    /// Recycles branches whose time is over (SPEC BRANCH-6). Nothing is deleted by age while the clock is in doubt.
    pub(crate) fn expire_branches(&self) -> Result<(), DoorError> {
        let now = self.now();
        if !now.trusted {
            return Ok(());
        }
        let rows = self.ledger.read(|reader| reader.branches_kept()).map_err(DoorError::Ledger)?;
        for row in rows.into_iter().filter(|row| row.expires_at <= now.wall && !self.stands(row.run)) {
            let Some(run) = self.runs.read().get(&row.run).cloned() else { continue };
            match self.recycle(&run, "svc:door") {
                // A pending gate pins its branch.
                Ok(_) | Err(DoorError::State(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
