//! Leases and runs as the ledger keeps them and as [`crate::lease`] holds them in memory: opening a run, narrowing,
//! revoking, and reading everything back at start.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nas_ledger::{
    BranchRow, BranchState, GateRow, LeaseRow, LeaseState, LedgerError, NewRecord, PrincipalKind, PrincipalRow,
    ReadManifestRow, Reader, RunRow, RunState, TreeRow, Tx,
};
use nas_trust_core::clock::Now;
use nas_trust_core::gate::{GateEvent, GateState, Ruling};
use nas_trust_core::lease_time::LeaseClock;
use nas_trust_core::read_manifest::ManifestEntry;
use nas_trust_core::{ActionSet, PathSet, ReadManifest};
use nas_types::id::{LeaseId, RunId};
use nas_types::lease::{BranchName, RoleName, TreeName};
use nas_types::secret::Secret;
use nas_types::time::Timestamp;
use parking_lot::Mutex;

use crate::DoorError;
use crate::inner::Inner;
use crate::lease::{Lease, Run};

/// What a lease allows, checked.
pub(crate) struct Grant {
    pub(crate) paths: PathSet,
    pub(crate) actions: ActionSet,
    pub(crate) clock: LeaseClock,
    pub(crate) purpose: Option<String>,
}

/// A run to open with its root lease.
pub(crate) struct NewRun {
    pub(crate) role: RoleName,
    pub(crate) principal: String,
    pub(crate) kind: PrincipalKind,
    pub(crate) on_behalf_of: Option<String>,
    /// An unprotected tree to work on, instead of a branch.
    pub(crate) tree: Option<TreeName>,
    pub(crate) quota_bytes: u64,
    pub(crate) grant: Grant,
}

impl Inner {
    /// Opens a run: its branch is forked from main (unless it works on an unprotected tree), its root lease issued. Intent
    /// first (SPEC REC-1).
    pub(crate) fn open_run(
        self: &Arc<Self>,
        new: NewRun,
        decision: &nas_policy::Decision,
    ) -> Result<(Arc<Lease>, Secret), DoorError> {
        let now = self.now();
        let run = RunId::random();
        let branch = BranchName { role: new.role.clone(), run };
        let row = RunRow {
            id: run,
            role: new.role.clone(),
            principal: new.principal.clone(),
            on_behalf_of: new.on_behalf_of.clone(),
            purpose: new.grant.purpose.clone(),
            started_at: now.wall,
            ended_at: None,
            state: RunState::Active,
            tree: new.tree.clone(),
        };
        let live = Arc::new(Run {
            id: run,
            tree: new.tree.clone(),
            branch: branch.clone(),
            principal: new.principal.clone(),
            on_behalf_of: new.on_behalf_of.clone(),
            purpose: new.grant.purpose.clone(),
            manifest: Mutex::new(ReadManifest::default()),
            manifest_dirty: AtomicBool::new(false),
        });
        let (lease_row, lease, token) = make_lease(&live, None, new.grant, &now);
        let record = |phase: NewRecord| Self::by_rule(self.by_lease(phase, &lease), decision);
        let intent = self
            .ledger
            .write(|tx| tx.append(&record(NewRecord::intent("lease.issue", now.wall))))
            .map_err(DoorError::Ledger)?;
        let branch_row = match new.tree {
            Some(_) => None,
            None => match self.fork_for(&lease, &now, new.quota_bytes) {
                Ok(row) => Some(row),
                Err(error) => {
                    self.aborted("lease.issue", intent.seq, &error.to_string());
                    return Err(crate::store_error("forking a branch", error));
                }
            },
        };
        let written = self.ledger.write(|tx| {
            // A tree that was removed meanwhile takes no runs.
            if new.tree.is_some() && !place_is_live(tx, new.tree.as_ref(), &branch)? {
                return Ok(None);
            }
            if tx.get::<PrincipalRow>(&new.principal)?.is_none() {
                tx.insert(&PrincipalRow {
                    id: new.principal.clone(),
                    kind: new.kind,
                    created_at: now.wall,
                    passphrase_hash: None,
                    disabled_at: None,
                })?;
            }
            tx.insert(&row)?;
            branch_row.iter().try_for_each(|row| tx.insert(row))?;
            tx.insert(&lease_row)?;
            let detail = serde_json::json!({
                "paths": lease_row.paths, "actions": lease_row.actions, "expires_at": lease_row.expires_at,
                "tree": lease.run.tree_name(), "branch": lease.run.branch_name(),
                "base": branch_row.as_ref().map(|row| row.base),
            });
            tx.append(&NewRecord { detail, ..record(NewRecord::outcome("lease.issue", now.wall, intent.seq)) })
                .map(Some)
        });
        let failed = match written {
            Ok(Some(_)) => None,
            Ok(None) => Some(DoorError::NotFound { what: "tree", name: live.tree_name().to_string() }),
            Err(error) => Some(DoorError::Ledger(error)),
        };
        if let Some(error) = failed {
            // Nobody has the token: the branch can go again.
            if branch_row.is_some()
                && let Err(error) = self.store.recycle(&branch)
            {
                tracing::error!(%error, %branch, "a branch without a lease could not be recycled");
            }
            self.aborted("lease.issue", intent.seq, &error.to_string());
            return Err(error);
        }
        self.runs.write().insert(run, live);
        self.remember(&lease_row, &lease);
        Ok((lease, token))
    }

    /// Forks main for a new run.
    fn fork_for(&self, lease: &Lease, now: &Now, quota_bytes: u64) -> Result<BranchRow, nas_store::StoreError> {
        let expires_at = now.wall.plus_ms(self.options.branch_ttl_ms);
        let fork_generation = self.store.main().pointer().number;
        let (name, limits) = (&lease.run.branch, self.limits(quota_bytes));
        let forked = self.store.fork(name, &lease.provenance(), limits, Some(expires_at))?;
        Ok(BranchRow {
            name: name.clone(),
            run: lease.run.id,
            base: forked.base(),
            fork_generation,
            created_at: now.wall,
            expires_at,
            quota_bytes: Some(quota_bytes),
            state: BranchState::Live,
        })
    }

    /// Issues a lease within `parent` (SPEC LEASE-2; the subset was checked).
    pub(crate) fn narrow(
        &self,
        parent: &Arc<Lease>,
        grant: Grant,
        decision: &nas_policy::Decision,
    ) -> Result<(Arc<Lease>, Secret), DoorError> {
        let now = self.now();
        let (row, lease, token) = make_lease(&parent.run, Some(parent.id), grant, &now);
        let written = self.ledger.write(|tx| {
            // A parent that was revoked meanwhile has no children.
            if !may_have_children(tx, parent)? {
                return Ok(false);
            }
            tx.insert(&row)?;
            let detail = serde_json::json!({ "parent": parent.id, "paths": row.paths, "actions": row.actions, "expires_at": row.expires_at });
            let record = self.by_lease(NewRecord { detail, ..NewRecord::event("lease.issue", now.wall) }, &lease);
            tx.append(&Self::by_rule(record, decision))?;
            Ok::<_, LedgerError>(true)
        });
        if !written.map_err(DoorError::Ledger)? {
            return Err(DoorError::LeaseOver("the lease was revoked, or its run ended"));
        }
        self.remember(&row, &lease);
        // A revocation or an end that looked at the memory just before, and at the ledger just after, has this child in the
        // ledger only: what it wrote there holds here too.
        let still = self.ledger.read(|reader| may_have_children(reader, parent));
        if !matches!(still, Ok(true)) {
            lease.revoke();
            return Err(DoorError::LeaseOver("the lease was revoked, or its run ended"));
        }
        Ok((lease, token))
    }

    /// Revokes a lease with all its descendants (SPEC LEASE-3) and voids what they proposed. Returns them and the record.
    pub(crate) fn revoke(&self, lease: LeaseId, by: &str, why: Option<&str>) -> Result<(Vec<LeaseId>, u64), DoorError> {
        let now = self.now();
        // In memory first: from here on no operation under it begins. Should the ledger fail, it comes back below.
        let leases = self.leases.read();
        let held: Vec<_> = leases.values().filter(|held| descends(&leases, held, lease)).cloned().collect();
        drop(leases);
        let in_detail = held.first().map(|held| Arc::clone(&held.run));
        let newly: Vec<_> = held.into_iter().filter(|held| !held.is_revoked()).collect();
        newly.iter().for_each(|held| held.revoke());
        let written = self.ledger.write_essential(|tx| {
            let row = tx.need::<LeaseRow>(&lease)?;
            let revoked = tx.revoke_lease(lease, now.wall)?;
            let mut voided = Vec::new();
            for (gate, lease) in tx.gates_waiting()? {
                if revoked.contains(&lease) {
                    voided.push(gate);
                    let row = tx.need::<GateRow>(&gate)?;
                    void_by_revocation(tx, row, &now)?;
                }
            }
            let detail = serde_json::json!({ "revoked": revoked, "why": why });
            let detail = in_detail.as_ref().map_or_else(|| detail.clone(), |run| run.in_detail(detail.clone()));
            let head = tx.append(&NewRecord {
                principal: Some(by.to_owned()),
                run: Some(row.run),
                lease: Some(lease),
                detail,
                ..NewRecord::event("lease.revoke", now.wall)
            })?;
            Ok::<_, LedgerError>((revoked, voided, head.seq))
        });
        match written {
            Ok((revoked, voided, record)) => {
                // Also a child that was issued between the look at the memory and the transaction.
                let leases = self.leases.read();
                revoked.iter().filter_map(|id| leases.get(id)).for_each(|held| held.revoke());
                drop(leases);
                voided.into_iter().for_each(|gate| self.unpin(gate));
                self.push_anchor();
                Ok((revoked, record))
            }
            Err(error) => {
                // Not recorded, so it did not happen; unless another revocation of the same lease was.
                for held in newly {
                    let row = self.ledger.read(|reader| reader.need::<LeaseRow>(&held.id));
                    if row.is_ok_and(|row| row.state == LeaseState::Active) {
                        held.unrevoke();
                    }
                }
                Err(DoorError::Ledger(error))
            }
        }
    }

    /// Writes that an intent came to nothing. When even that fails, the next start does it.
    pub(crate) fn aborted(&self, kind: &str, intent: u64, why: &str) {
        let detail = serde_json::json!({ "outcome": "aborted", "why": why });
        let record = NewRecord { detail, ..NewRecord::outcome(&format!("{kind}.aborted"), self.clocks.wall(), intent) };
        if let Err(error) = self.ledger.write(|tx| tx.append(&record)) {
            tracing::error!(%error, intent, "an aborted intent could not be recorded");
        }
    }

    pub(crate) fn remember(&self, row: &LeaseRow, lease: &Arc<Lease>) {
        self.leases.write().insert(lease.id, Arc::clone(lease));
        self.lease_tokens.write().insert(row.token_hash, lease.id);
    }

    /// Takes the stored runs and leases back in, at start.
    pub(crate) fn restore_authority(&self) -> Result<(), LedgerError> {
        let now = self.now();
        let (runs, leases) = self.ledger.read(|reader| {
            let runs = reader.all::<RunRow>()?;
            let leases = reader.all::<LeaseRow>()?;
            let manifests = runs
                .into_iter()
                .map(|run| {
                    // A run without a place to work reads nothing more: what it read stays in the ledger.
                    let branch = BranchName { role: run.role.clone(), run: run.id };
                    let live = place_is_live(reader, run.tree.as_ref(), &branch)?;
                    if !live {
                        return Ok((Vec::new(), 0, run));
                    }
                    let unlisted = reader.get::<ReadManifestRow>(&run.id)?.map_or(0, |totals| totals.unlisted);
                    Ok((reader.read_entries(run.id)?, unlisted, run))
                })
                .collect::<Result<Vec<_>, LedgerError>>()?;
            Ok::<_, LedgerError>((manifests, leases))
        })?;
        for (entries, unlisted, row) in runs {
            let mut manifest = ReadManifest::default();
            entries.into_iter().for_each(|entry| manifest.restore(entry));
            manifest.restore_unlisted(unlisted);
            let run = Run {
                id: row.id,
                tree: row.tree,
                branch: BranchName { role: row.role, run: row.id },
                principal: row.principal,
                on_behalf_of: row.on_behalf_of,
                purpose: row.purpose,
                manifest: Mutex::new(manifest),
                manifest_dirty: AtomicBool::new(false),
            };
            self.runs.write().insert(row.id, Arc::new(run));
        }
        for row in leases {
            let Some(run) = self.runs.read().get(&row.run).cloned() else { continue };
            let Ok(paths) = PathSet::from_globs(&row.paths) else {
                tracing::error!(lease = %row.id, "the stored paths of a lease are not legal; it gives no authority");
                continue;
            };
            let lease = Lease::new(
                row.id,
                run,
                row.parent,
                (paths, row.actions),
                row.created_at,
                row.purpose.clone(),
                row.clock(),
                row.state == LeaseState::Revoked,
                &now,
            );
            self.remember(&row, &Arc::new(lease));
        }
        self.persist_trust();
        Ok(())
    }

    /// Persists how much time each usable lease has left, what was read, and what is known about the clock (each minute, and
    /// at the end).
    pub(crate) fn persist_time_and_reads(&self) -> Result<(), LedgerError> {
        let now = self.now();
        // Also once those that are over and that the ledger does not know to be over.
        let usable = |lease: &&Arc<Lease>| !lease.is_revoked() && lease.stored().remaining_ms > 0;
        let leases: Vec<_> = self.leases.read().values().filter(usable).cloned().collect();
        let read = |run: &&Arc<Run>| run.manifest_dirty.load(Ordering::Acquire);
        let manifests: Vec<_> = self.runs.read().values().filter(read).map(TakenManifest::take).collect();
        if leases.is_empty() && manifests.is_empty() {
            return Ok(());
        }
        let times: Vec<_> = leases.into_iter().map(|lease| (lease.refresh(&now), lease)).collect();
        self.ledger.write(|tx| {
            store_times(tx, &times)?;
            self.store_trust(tx)?;
            manifests.iter().try_for_each(|manifest| manifest.store(tx, now.wall))
        })?;
        times.into_iter().for_each(|(clock, lease)| lease.was_stored(clock));
        manifests.into_iter().for_each(TakenManifest::stored);
        Ok(())
    }

    /// Persists at once what a change of trust did: leases that were suspended go on, and from now on it is
    /// CLOCK_BOOTTIME that counts for them, whatever happens to the wall clock (DESIGN §4, time).
    pub(crate) fn persist_trust(&self) {
        let now = self.now();
        let leases: Vec<_> = self.leases.read().values().filter(|lease| !lease.is_revoked()).cloned().collect();
        let times: Vec<_> = leases.into_iter().map(|lease| (lease.refresh(&now), lease)).collect();
        let resumed: Vec<_> =
            times.into_iter().filter(|(clock, lease)| clock.boot_id != lease.stored().boot_id).collect();
        let written = self.ledger.write(|tx| {
            store_times(tx, &resumed)?;
            self.store_trust(tx)
        });
        match written {
            Ok(()) => resumed.into_iter().for_each(|(clock, lease)| lease.was_stored(clock)),
            Err(error) => {
                tracing::error!(%error, "trust in the clock could not be persisted; it is tried again within a minute");
            }
        }
    }

    fn store_trust(&self, tx: &mut Tx<'_>) -> Result<(), LedgerError> {
        let snapshot = self.clock_trust.lock().snapshot(self.clocks.boot_id());
        // A snapshot is plain data: writing it as JSON cannot fail.
        let json = snapshot.and_then(|snapshot| serde_json::to_vec(&snapshot).ok());
        json.map_or(Ok(()), |json| tx.put_kv(crate::clock::TRUST_KEY, &json))
    }

    pub(crate) fn limits(&self, quota_bytes: u64) -> nas_store::Limits {
        nas_store::Limits { bytes_max: quota_bytes, files_max: self.options.branch_files_max }
    }
}

/// Is what a run works on, its branch or its tree, still there?
fn place_is_live(reader: &Reader<'_>, tree: Option<&TreeName>, branch: &BranchName) -> Result<bool, LedgerError> {
    Ok(match tree {
        Some(tree) => reader.get::<TreeRow>(tree)?.is_some_and(|row| row.removed_at.is_none()),
        None => reader.get::<BranchRow>(branch)?.is_some_and(|row| row.state == BranchState::Live),
    })
}

/// Is the lease not revoked, its run not ended, its branch still there?
fn may_have_children(reader: &Reader<'_>, parent: &Lease) -> Result<bool, LedgerError> {
    let active = reader.need::<LeaseRow>(&parent.id)?.state == LeaseState::Active;
    let runs = reader.need::<RunRow>(&parent.run.id)?.state == RunState::Active;
    let place = place_is_live(reader, parent.run.tree.as_ref(), &parent.run.branch)?;
    Ok(active && runs && place)
}

/// Is `lease` the lease `ancestor`, or one of its descendants?
pub(crate) fn descends(leases: &HashMap<LeaseId, Arc<Lease>>, lease: &Lease, ancestor: LeaseId) -> bool {
    let mut at = Some(lease.id);
    // A chain is as long as leases were narrowed; a cycle cannot be made, a parent exists before its child.
    while let Some(id) = at {
        if id == ancestor {
            return true;
        }
        at = leases.get(&id).and_then(|lease| lease.parent);
    }
    false
}

fn store_times(tx: &mut Tx<'_>, times: &[(LeaseClock, Arc<Lease>)]) -> Result<(), LedgerError> {
    times.iter().try_for_each(|(clock, lease)| tx.store_lease_time(lease.id, clock))
}

/// The lines of a run's read manifest that the ledger does not have. Not stored, they go back.
pub(crate) struct TakenManifest {
    run: Arc<Run>,
    lines: Vec<ManifestEntry>,
}

impl TakenManifest {
    pub(crate) fn take(run: &Arc<Run>) -> Self {
        run.manifest_dirty.store(false, Ordering::Release);
        let lines = run.manifest.lock().take_changed();
        Self { run: Arc::clone(run), lines }
    }

    /// Writes them; call [`stored`](Self::stored) when the transaction is durable.
    pub(crate) fn store(&self, tx: &mut Tx<'_>, now: Timestamp) -> Result<(), LedgerError> {
        let manifest = self.run.manifest.lock();
        let totals = ReadManifestRow {
            run: self.run.id,
            digest: manifest.digest(),
            entries: manifest.len() as u64,
            unlisted: manifest.unlisted(),
            updated_at: now,
        };
        drop(manifest);
        tx.put_read_manifest(&totals, &self.lines)
    }

    pub(crate) fn stored(mut self) {
        self.lines.clear();
    }
}

impl Drop for TakenManifest {
    fn drop(&mut self) {
        if !self.lines.is_empty() {
            self.run.manifest.lock().untake(std::mem::take(&mut self.lines));
            self.run.manifest_dirty.store(true, Ordering::Release);
        }
    }
}

fn void_by_revocation(tx: &mut Tx<'_>, gate: GateRow, now: &Now) -> Result<(), LedgerError> {
    let core = nas_trust_core::gate::Gate { state: gate.state, digest: gate.digest, expires_at: gate.expires_at };
    let ruling = nas_trust_core::gate::decide(&core, now.wall, now.trusted, GateEvent::LeaseRevoked);
    let (state, reason) = match ruling {
        Ruling::Void(reason) => (GateState::Void, reason.as_sentence()),
        Ruling::Expire => (GateState::Expired, "nobody answered in time"),
        _ => return Ok(()),
    };
    let record = NewRecord {
        run: Some(gate.run),
        lease: Some(gate.lease),
        detail: serde_json::json!({ "gate": gate.id, "state": state, "because": reason }),
        ..NewRecord::event("gate.decide", now.wall)
    };
    tx.decide_gate(&GateRow { state, decided_at: Some(now.wall), reason: Some(reason.to_owned()), ..gate })?;
    tx.append(&record).map(drop)
}

pub(crate) fn make_lease(
    run: &Arc<Run>,
    parent: Option<LeaseId>,
    grant: Grant,
    now: &Now,
) -> (LeaseRow, Arc<Lease>, Secret) {
    let token = Secret::random("nas_lease_");
    let id = LeaseId::random();
    let row = LeaseRow {
        id,
        token_hash: *blake3::hash(token.reveal().as_bytes()).as_bytes(),
        run: run.id,
        principal: run.principal.clone(),
        on_behalf_of: run.on_behalf_of.clone(),
        parent,
        purpose: grant.purpose.clone(),
        paths: grant.paths.to_globs(),
        actions: grant.actions,
        branch: run.branch.clone(),
        read_only: !grant.actions.contains(nas_types::lease::Action::Write),
        created_at: now.wall,
        expires_at: grant.clock.expires_at,
        remaining_ms: grant.clock.remaining_ms,
        boot_id: grant.clock.boot_id,
        boottime_ms: grant.clock.boottime_ms,
        state: LeaseState::Active,
        revoked_at: None,
    };
    let lease = Lease::new(
        id,
        Arc::clone(run),
        parent,
        (grant.paths, grant.actions),
        now.wall,
        grant.purpose,
        grant.clock,
        false,
        now,
    );
    (row, Arc::new(lease), token)
}
