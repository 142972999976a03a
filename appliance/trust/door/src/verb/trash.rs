//! `trash/…` (SPEC BRANCH-4): deletions from main, restorable by the owner. Nothing is kept twice: what a merge removed is in the
//! history, and the trash is a view of it.

use nas_ledger::PrincipalKind;
use nas_policy::{Act, Effect, PolicyRequest, Subject, Target};
use nas_trust_core::degradation::VerbClass;
use nas_trust_core::lease_time::LeaseClock;
use nas_trust_core::{ActionSet, PathSet};
use nas_types::lease::RoleName;
use nas_types::object::{EntryKind, Oid};
use nas_types::verb::{Trash, TrashList, TrashRestore, TrashRestored, Trashed};

use super::page;
use crate::authority::{Grant, NewRun};
use crate::merge::{Merge, MergeEnd};
use crate::{Caller, Door, DoorError, DoorVerb, card};

/// Merges that are looked through for one list.
const MERGES_MAX: usize = 10_000;
const DAY_MS: i64 = 86_400_000;

impl DoorVerb for TrashList {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, _caller: &Caller) -> Result<Trash, DoorError> {
        let window_ms = door.inner.options.trash_ms;
        let since = door.inner.now().wall.plus_ms(-window_ms);
        let history = door.inner.store.history();
        let failed = || card::history_error("looking through the history of main");
        let main = door.inner.store.main().pointer().commit;
        let mut rows = Vec::new();
        let mut at = Some(main);
        for _ in 0..MERGES_MAX {
            let Some(oid) = at else { break };
            let commit = history.commit_info(oid).map_err(failed())?;
            at = commit.parents.first().copied();
            if commit.time < since {
                break;
            }
            let Some(parent) = at else { break };
            let run = commit.trailer("Run").and_then(|run| run.parse().ok());
            for change in history.diff(Some(parent), oid).map_err(failed())? {
                let (Some(entry), None) = (change.old, change.new) else { continue };
                if history.entry_at(main, &change.path).map_err(failed())?.is_none() {
                    let row = Trashed { path: change.path, entry, deleted_at: commit.time, commit: oid, run };
                    rows.push((format!("{oid}:{}", row.path), row));
                }
            }
        }
        let (entries, cursor) = page(rows.into_iter(), self.cursor.as_deref(), self.limit)?;
        Ok(Trash { entries, days: u32::try_from(window_ms / DAY_MS).unwrap_or(u32::MAX), cursor })
    }
}

impl DoorVerb for TrashRestore {
    const CLASS: VerbClass = VerbClass::OpenRun;

    fn run(self, door: &Door, caller: &Caller) -> Result<TrashRestored, DoorError> {
        let owner = caller.owner()?;
        door.check_passphrase(&self.passphrase)?;
        let subject = Subject::owner(owner).with_passphrase();
        let decision = door.inner.policy.evaluate(&PolicyRequest::new(subject, Act::Recover, Target::Protected));
        if decision.effect != Effect::Allow {
            return Err(crate::denied(&decision));
        }
        let deletion = door.commit_named(&self.commit)?;
        let before = door.before_deletion(&self, deletion)?;
        let lease = door.restoring_lease(&self, owner, &decision)?;
        let restored = door.restore(&self, before, &lease, owner, &decision);
        if let Err(error) = door.inner.recycle(&lease.run, "svc:door") {
            tracing::error!(%error, branch = %lease.run.branch, "the branch of a restore could not be recycled");
        }
        restored
    }
}

impl Door {
    /// The state of main just before the merge that deleted the path.
    fn before_deletion(&self, request: &TrashRestore, deletion: Oid) -> Result<Oid, DoorError> {
        let history = self.inner.store.history();
        let failed = || card::history_error("looking through the history of main");
        let unknown =
            || DoorError::NotFound { what: "deletion", name: format!("{} in {}", request.path, request.commit) };
        let main = self.inner.store.main().pointer().commit;
        let known = history.commit_info(deletion).map_err(|_| unknown())?;
        let parent = known.parents.first().copied().ok_or_else(unknown)?;
        let on_main = history.is_ancestor(deletion, main).map_err(failed())?;
        let was = history.entry_at(parent, &request.path).map_err(failed())?;
        let is = history.entry_at(deletion, &request.path).map_err(failed())?;
        if !on_main || was.is_none() || is.is_some() {
            return Err(unknown());
        }
        match history.entry_at(main, &request.path).map_err(failed())? {
            Some(entry) if entry.kind != EntryKind::Dir => Err(DoorError::State(format!(
                "main has something at {} now: a restore replaces nothing, move that away first",
                request.path
            ))),
            _ => Ok(parent),
        }
    }

    /// A run of its own, so that the restore has provenance like every change of main.
    fn restoring_lease(
        &self,
        request: &TrashRestore,
        owner: &str,
        decision: &nas_policy::Decision,
    ) -> Result<std::sync::Arc<crate::lease::Lease>, DoorError> {
        let invalid = |reason: String| DoorError::Invalid { field: "path", reason };
        let paths =
            PathSet::from_globs(&[super::import::glob_below(&request.path)]).map_err(|e| invalid(e.to_string()))?;
        let clock = LeaseClock::issue(None, &self.inner.now()).map_err(|error| invalid(error.to_string()))?;
        let run = NewRun {
            role: "restore".parse::<RoleName>().expect("because it is a legal role name"),
            principal: owner.to_owned(),
            kind: PrincipalKind::Human,
            on_behalf_of: None,
            tree: None,
            quota_bytes: u64::MAX,
            grant: Grant { paths, actions: ActionSet::ALL, clock, purpose: Some(format!("Restore {}", request.path)) },
        };
        Ok(self.inner.open_run(run, decision)?.0)
    }

    fn restore(
        &self,
        request: &TrashRestore,
        before: Oid,
        lease: &crate::lease::Lease,
        owner: &str,
        decision: &nas_policy::Decision,
    ) -> Result<TrashRestored, DoorError> {
        let _one_at_a_time = self.inner.merging.lock();
        let prepared = self.inner.store.prepare_restore(before);
        let mut prepared = prepared.map_err(|error| crate::store_error("computing the restore", error))?;
        prepared.retain(|change| change.old.is_none() && change.new.is_some() && change.path.is_within(&request.path));
        let restored = prepared.changes().len() as u64;
        if restored == 0 {
            return Err(DoorError::State(format!("there is nothing to bring back at {}", request.path)));
        }
        let merge = Merge {
            by: "trash",
            approver: owner,
            decision,
            provenance: lease.provenance(),
            lease: lease.id,
            message: format!("Restore {} from the trash", request.path),
            detail: serde_json::json!({ "path": request.path, "deleted_by": request.commit, "restored": restored }),
            read_manifest: None,
        };
        match self.inner.merge(&prepared, merge, None)? {
            MergeEnd::Merged { commit, record } => Ok(TrashRestored { commit, record: record.seq, restored }),
            MergeEnd::TooLate => Err(DoorError::LeaseOver("the lease of the restore was revoked")),
        }
    }
}
