//! `lease/…` (SPEC LEASE).

use std::sync::Arc;

use nas_ledger::{LeaseRow, LeaseState, LedgerError, PrincipalKind, Record};
use nas_policy::{Act, Effect, PolicyRequest, Subject, Target};
use nas_trust_core::degradation::VerbClass;
use nas_trust_core::lease_time::LeaseClock;
use nas_trust_core::{ActionSet, PathSet};
use nas_types::lease::{Action, TreeName};
use nas_types::secret::Secret;
use nas_types::time::Timestamp;
use nas_types::verb::{LeaseCreate, LeaseCreated, LeaseInfo, LeaseList, LeaseRevoke, LeaseRevoked, LeaseShow, Leases};

use super::ledger_page;
use crate::authority::{Grant, NewRun, descends};
use crate::caller::Who;
use crate::lease::Lease;
use crate::{Caller, Door, DoorError, DoorVerb};

/// Longest purpose, in bytes.
const PURPOSE_BYTES_MAX: usize = 1000;
/// Leases that one run may have had, so that a run cannot fill the ledger with children.
const LEASES_PER_RUN_MAX: usize = 1000;

impl DoorVerb for LeaseCreate {
    const CLASS: VerbClass = VerbClass::OpenRun;

    fn run(self, door: &Door, caller: &Caller) -> Result<LeaseCreated, DoorError> {
        let paths = PathSet::from_globs(&self.paths)
            .map_err(|error| DoorError::Invalid { field: "paths", reason: error.to_string() })?;
        let actions: ActionSet = self.actions.iter().copied().collect();
        if actions.is_empty() {
            return Err(DoorError::Invalid {
                field: "actions",
                reason: "name at least one of list, read, write, propose".to_owned(),
            });
        }
        if self.purpose.as_ref().is_some_and(|purpose| purpose.len() > PURPOSE_BYTES_MAX) {
            return Err(DoorError::Invalid { field: "purpose", reason: format!("at most {PURPOSE_BYTES_MAX} bytes") });
        }
        let grant = (paths, actions);
        let (lease, token) = match &caller.0 {
            Who::Owner { principal, .. } => open_run(&self, door, principal, grant)?,
            Who::Lease(_) | Who::Anonymous { .. } => narrow(&self, door, caller.lease()?, grant)?,
        };
        Ok(LeaseCreated { lease: door.inner.lease_info(&lease), token })
    }
}

/// The owner starts a run.
fn open_run(
    request: &LeaseCreate,
    door: &Door,
    owner: &str,
    (paths, actions): (PathSet, ActionSet),
) -> Result<(Arc<Lease>, Secret), DoorError> {
    let Some(role) = request.role.clone() else {
        return Err(DoorError::Invalid {
            field: "role",
            reason: "name the role that the run works for, for example 'cleo'".to_owned(),
        });
    };
    let clock = LeaseClock::issue(ttl_ms(request), &door.inner.now())
        .map_err(|error| DoorError::Invalid { field: "ttl_seconds", reason: error.to_string() })?;
    let decision = door.inner.policy.evaluate(&PolicyRequest::new(Subject::owner(owner), Act::OpenRun, Target::Box));
    if decision.effect != Effect::Allow {
        return Err(crate::denied(&decision));
    }
    let tree = request.tree.clone().filter(|tree| !tree.is_protected());
    if let Some(tree) = &tree {
        door.may_work_on(tree, &format!("agent:{role}"), request.quota_bytes, actions)?;
    }
    let live = door.inner.store.branches().len();
    if tree.is_none() && live >= door.inner.options.branches_max {
        return Err(DoorError::State(format!(
            "there are {live} live branches, as many as this box keeps: recycle some ('nas branch list', 'nas branch recycle')"
        )));
    }
    let new = NewRun {
        principal: format!("agent:{role}"),
        role,
        kind: PrincipalKind::Agent,
        on_behalf_of: Some(owner.to_owned()),
        tree,
        quota_bytes: request.quota_bytes.unwrap_or(door.inner.options.branch_quota_bytes),
        grant: Grant { paths, actions, clock, purpose: request.purpose.clone() },
    };
    door.inner.open_run(new, &decision)
}

/// A child only narrows: paths, actions and time are compared as sets with the parent's (SPEC LEASE-2).
fn narrow(
    request: &LeaseCreate,
    door: &Door,
    parent: &Arc<Lease>,
    (paths, actions): (PathSet, ActionSet),
) -> Result<(Arc<Lease>, Secret), DoorError> {
    if request.role.as_ref().is_some_and(|role| *role != parent.run.branch.role) {
        return Err(DoorError::Invalid {
            field: "role",
            reason: "a child lease keeps the role of its parent: leave it out".to_owned(),
        });
    }
    if request.tree.as_ref().is_some_and(|tree| *tree != parent.run.tree_name()) {
        return Err(DoorError::Invalid {
            field: "tree",
            reason: "a child lease works on the tree of its parent: leave it out".to_owned(),
        });
    }
    if door.inner.stands(parent.run.id) {
        door.inner.refused(parent, "standing-is-personal", &nas_types::path::TreePath::root());
        return Err(DoorError::Denied {
            rule: "standing-is-personal".into(),
            reason:
                "what is written on a standing branch is merged as the person's own edits, so its lease is not handed \
                     on: start a run for whom you want to let in"
                    .to_owned(),
        });
    }
    if request.quota_bytes.is_some() {
        return Err(DoorError::Invalid {
            field: "quota_bytes",
            reason: "a child lease shares the branch of its parent, and so its quota".to_owned(),
        });
    }
    let narrower = paths.is_subset_of(&parent.paths) && actions.is_subset_of(parent.actions);
    let act = if narrower { Act::NarrowLease } else { Act::WidenLease };
    let subject = Subject::agent(&parent.run.principal);
    let decision = door.inner.policy.evaluate(&PolicyRequest::new(subject, act, Target::Box));
    if !narrower || decision.effect != Effect::Allow {
        door.inner.refused(parent, "lease-subset", &nas_types::path::TreePath::root());
        return Err(DoorError::Denied {
            rule: "lease-subset".into(),
            reason: "a child lease must lie within its parent: fewer paths, fewer actions".to_owned(),
        });
    }
    let family = door.inner.leases.read().values().filter(|lease| lease.run.id == parent.run.id).count();
    if family >= LEASES_PER_RUN_MAX {
        return Err(DoorError::State(format!("the run has had {family} leases, as many as one run gets")));
    }
    let clock = parent
        .clock()
        .issue_child(ttl_ms(request), &door.inner.now())
        .map_err(|error| DoorError::Invalid { field: "ttl_seconds", reason: error.to_string() })?
        .ok_or(DoorError::LeaseOver("the lease is over: ask for a new one"))?;
    door.inner.narrow(parent, Grant { paths, actions, clock, purpose: request.purpose.clone() }, &decision)
}

impl Door {
    /// May a run work on this unprotected tree in this way?
    fn may_work_on(
        &self,
        tree: &TreeName,
        principal: &str,
        quota_bytes: Option<u64>,
        actions: ActionSet,
    ) -> Result<(), DoorError> {
        if self.inner.store.tree(tree).is_none() {
            return Err(DoorError::NotFound { what: "tree", name: tree.to_string() });
        }
        if actions.contains(Action::Propose) {
            return Err(DoorError::Invalid {
                field: "actions",
                reason: format!("nothing is proposed on the tree {tree}: what is written there is there at once"),
            });
        }
        if quota_bytes.is_some() {
            return Err(DoorError::Invalid {
                field: "quota_bytes",
                reason: format!("the tree {tree} has no quota, only the reserve of the pool"),
            });
        }
        // No merge is asked about later: what the lease allows there is decided here.
        for action in actions.iter() {
            let act = match action {
                Action::List => Act::List,
                Action::Read => Act::Read,
                Action::Write => Act::Write,
                Action::Propose => Act::Propose,
            };
            let request = PolicyRequest::new(Subject::agent(principal), act, Target::Unprotected);
            let decision = self.inner.policy.evaluate(&request);
            if decision.effect != Effect::Allow {
                return Err(crate::denied(&decision));
            }
        }
        Ok(())
    }
}

fn ttl_ms(request: &LeaseCreate) -> Option<i64> {
    request.ttl_seconds.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000))
}

impl DoorVerb for LeaseList {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, _caller: &Caller) -> Result<Leases, DoorError> {
        // What the ledger holds of their time is some seconds old: those that are over by now are passed over here.
        let list = |after, limit| door.inner.ledger.read(|reader| reader.leases(!self.all, after, limit));
        let (leases, cursor) = ledger_page(self.cursor.as_deref(), self.limit, list, |row: LeaseRow| {
            let lease = door.inner.leases.read().get(&row.id).cloned()?;
            let info = door.inner.lease_info(&lease);
            (self.all || info.state == "active" || info.state == "suspended").then_some(info)
        })?;
        Ok(Leases { leases, cursor })
    }
}

impl DoorVerb for LeaseShow {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, caller: &Caller) -> Result<LeaseInfo, DoorError> {
        let lease = match (&caller.0, self.lease) {
            (Who::Lease(own), None) => Arc::clone(own),
            (_, Some(id)) => door.lease_known_to(caller, id)?,
            (_, None) => return Err(DoorError::Invalid { field: "lease", reason: "name the lease".to_owned() }),
        };
        Ok(door.inner.lease_info(&lease))
    }
}

impl DoorVerb for LeaseRevoke {
    const CLASS: VerbClass = VerbClass::Narrow;

    fn run(self, door: &Door, caller: &Caller) -> Result<LeaseRevoked, DoorError> {
        let lease = door.lease_known_to(caller, self.lease)?;
        if let Some((revoked_at, record)) = door.revoked_before(&lease)? {
            return Ok(LeaseRevoked { revoked: Vec::new(), record, revoked_at, already_there: true });
        }
        let (mut revoked, record) = door.inner.revoke(lease.id, &caller.name(), self.why.as_deref())?;
        // Leases of a standing branch follow one another: who revokes one means the branch.
        for other in door.inner.standing_leases(&lease) {
            revoked.extend(door.inner.revoke(other, &caller.name(), self.why.as_deref())?.0);
        }
        let (revoked_at, _) = door.revoked_before(&lease)?.unwrap_or((door.inner.clocks.wall(), record));
        Ok(LeaseRevoked { revoked, record, revoked_at, already_there: false })
    }
}

impl Door {
    /// When a lease was revoked, and the record that names it: its own or an ancestor's.
    fn revoked_before(&self, lease: &Lease) -> Result<Option<(Timestamp, u64)>, DoorError> {
        let found = self.inner.ledger.read(|reader| {
            let row = reader.need::<LeaseRow>(&lease.id)?;
            let Some(at) = row.revoked_at.filter(|_| row.state == LeaseState::Revoked) else { return Ok(None) };
            let id = lease.id.to_string();
            let names = |record: &Record| {
                let revoked = record.fields.detail.get("revoked").and_then(|revoked| revoked.as_array());
                revoked.is_some_and(|revoked| revoked.iter().any(|one| one.as_str() == Some(&id)))
            };
            let ends = reader.records_before(None, Some(row.run), Some("lease.revoke"), u32::MAX)?;
            if let Some(record) = ends.iter().find(|record| names(record)) {
                return Ok(Some((at, record.seq)));
            }
            Ok::<_, LedgerError>(Some((at, 0)))
        });
        found.map_err(DoorError::Ledger)
    }

    /// A lease by id: any for the owner, one's own or a descendant's for a bearer.
    pub(crate) fn lease_known_to(&self, caller: &Caller, id: nas_types::id::LeaseId) -> Result<Arc<Lease>, DoorError> {
        let found = self.inner.leases.read().get(&id).cloned();
        let known = found.filter(|lease| match &caller.0 {
            Who::Owner { .. } => true,
            Who::Lease(own) => descends(&self.inner.leases.read(), lease, own.id),
            Who::Anonymous { .. } => false,
        });
        known.ok_or_else(|| self.not_known_to(caller, "lease", id.to_string()))
    }
}
