//! Leases and runs as the ledger keeps them and as [`crate::lease`] holds them in memory: opening a run, narrowing,
//! revoking, and reading everything back at start.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nas_ledger::{
    BranchRow, BranchState, GateRow, LeaseRow, LeaseState, LedgerError, NewRecord, PrincipalKind, PrincipalRow, RunRow,
    RunState, Tx,
};
use nas_trust_core::clock::Now;
use nas_trust_core::gate::{GateEvent, GateState, Ruling};
use nas_trust_core::lease_time::LeaseClock;
use nas_trust_core::{ActionSet, PathSet, ReadManifest};
use nas_types::id::{LeaseId, RunId};
use nas_types::lease::{BranchName, RoleName};
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
    pub(crate) quota_bytes: u64,
    pub(crate) grant: Grant,
}

impl Inner {
    /// Opens a run: its branch is forked from main, its root lease issued. Intent first (SPEC REC-1).
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
        };
        let live = Arc::new(Run {
            id: run,
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
        let expires_at = now.wall.plus_ms(self.options.branch_ttl_ms);
        let fork_generation = self.store.main().pointer().number;
        let forked = match self.store.fork(&branch, &lease.provenance(), self.limits(new.quota_bytes), Some(expires_at))
        {
            Ok(forked) => forked,
            Err(error) => {
                self.aborted("lease.issue", intent.seq, &error.to_string());
                return Err(crate::store_error("forking a branch", error));
            }
        };
        let branch_row = BranchRow {
            name: branch.clone(),
            run,
            base: forked.base(),
            fork_generation,
            created_at: now.wall,
            expires_at,
            quota_bytes: Some(new.quota_bytes),
            state: BranchState::Live,
        };
        let written = self.ledger.write(|tx| {
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
            tx.insert(&branch_row)?;
            tx.insert(&lease_row)?;
            let detail = serde_json::json!({
                "paths": lease_row.paths, "actions": lease_row.actions, "expires_at": lease_row.expires_at,
                "branch": branch, "base": branch_row.base,
            });
            tx.append(&NewRecord { detail, ..record(NewRecord::outcome("lease.issue", now.wall, intent.seq)) })
        });
        if let Err(error) = written {
            // Nobody has the token: the branch can go again.
            if let Err(error) = self.store.recycle(&branch) {
                tracing::error!(%error, %branch, "a branch without a lease could not be recycled");
            }
            self.aborted("lease.issue", intent.seq, &error.to_string());
            return Err(DoorError::Ledger(error));
        }
        self.runs.write().insert(run, live);
        self.remember(&lease_row, &lease);
        Ok((lease, token))
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
            if tx.need::<LeaseRow>(&parent.id)?.state == LeaseState::Revoked {
                return Ok(false);
            }
            tx.insert(&row)?;
            let detail = serde_json::json!({ "parent": parent.id, "paths": row.paths, "actions": row.actions, "expires_at": row.expires_at });
            let record = self.by_lease(NewRecord { detail, ..NewRecord::event("lease.issue", now.wall) }, &lease);
            tx.append(&Self::by_rule(record, decision))?;
            Ok::<_, LedgerError>(true)
        });
        if !written.map_err(DoorError::Ledger)? {
            return Err(DoorError::LeaseOver("the lease was revoked"));
        }
        self.remember(&row, &lease);
        Ok((lease, token))
    }

    /// Revokes a lease with all its descendants (SPEC LEASE-3) and voids what they proposed. Returns them and the record.
    pub(crate) fn revoke(&self, lease: LeaseId, by: &str, why: Option<&str>) -> Result<(Vec<LeaseId>, u64), DoorError> {
        let now = self.now();
        // In memory first: from here on no operation under it begins. Should the ledger fail, it comes back below.
        let leases = self.leases.read();
        let held: Vec<_> = leases.values().filter(|held| descends(&leases, held, lease)).cloned().collect();
        drop(leases);
        let newly: Vec<_> = held.into_iter().filter(|held| !held.is_revoked()).collect();
        newly.iter().for_each(|held| held.revoke());
        let written = self.ledger.write_essential(|tx| {
            let row = tx.need::<LeaseRow>(&lease)?;
            let revoked = tx.revoke_lease(lease, now.wall)?;
            for gate in tx.gates(Some(GateState::Pending), u32::MAX)? {
                if revoked.contains(&gate.lease) {
                    void_by_revocation(tx, gate, &now)?;
                }
            }
            let detail = serde_json::json!({ "revoked": revoked, "why": why });
            let head = tx.append(&NewRecord {
                principal: Some(by.to_owned()),
                run: Some(row.run),
                lease: Some(lease),
                detail,
                ..NewRecord::event("lease.revoke", now.wall)
            })?;
            Ok::<_, LedgerError>((revoked, head.seq))
        });
        match written {
            Ok(done) => {
                self.push_anchor();
                Ok(done)
            }
            Err(error) => {
                newly.iter().for_each(|held| held.unrevoke());
                Err(DoorError::Ledger(error))
            }
        }
    }

    /// Writes that an intent came to nothing. When even that fails, the next start does it.
    pub(crate) fn aborted(&self, kind: &str, intent: u64, why: &str) {
        let detail = serde_json::json!({ "outcome": "aborted", "why": why });
        let record =
            NewRecord { detail, ..NewRecord::outcome(&format!("{kind}.aborted"), crate::clock::wall(), intent) };
        if let Err(error) = self.ledger.write(|tx| tx.append(&record)) {
            tracing::error!(%error, intent, "an aborted intent could not be recorded");
        }
    }

    fn remember(&self, row: &LeaseRow, lease: &Arc<Lease>) {
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
                .map(|run| Ok((reader.read_entries(run.id)?, run)))
                .collect::<Result<Vec<_>, LedgerError>>()?;
            Ok::<_, LedgerError>((manifests, leases))
        })?;
        for (entries, row) in runs {
            let mut manifest = ReadManifest::default();
            entries.into_iter().for_each(|entry| manifest.restore(entry));
            let run = Run {
                id: row.id,
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
        Ok(())
    }

    /// Persists how much time each usable lease has left, and what was read (each minute, and at the end).
    pub(crate) fn persist_time_and_reads(&self) -> Result<(), LedgerError> {
        let now = self.now();
        let leases: Vec<_> = self
            .leases
            .read()
            .values()
            .filter(|lease| !lease.is_revoked() && lease.clock().remaining_ms > 0)
            .cloned()
            .collect();
        let runs: Vec<_> =
            self.runs.read().values().filter(|run| run.manifest_dirty.load(Ordering::Acquire)).cloned().collect();
        if leases.is_empty() && runs.is_empty() {
            return Ok(());
        }
        self.ledger.write(|tx| {
            for lease in &leases {
                tx.store_lease_time(lease.id, &lease.refresh(&now))?;
            }
            runs.iter().try_for_each(|run| store_manifest(tx, run, now.wall))
        })
    }

    pub(crate) fn limits(&self, quota_bytes: u64) -> nas_store::Limits {
        nas_store::Limits { bytes_max: quota_bytes, files_max: self.options.branch_files_max }
    }
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

/// Writes the lines of a run's read manifest.
pub(crate) fn store_manifest(tx: &mut Tx<'_>, run: &Run, now: Timestamp) -> Result<(), LedgerError> {
    run.manifest_dirty.store(false, Ordering::Release);
    let manifest = run.manifest.lock();
    let totals = nas_ledger::ReadManifestRow {
        run: run.id,
        digest: manifest.digest(),
        entries: manifest.len() as u64,
        unlisted: manifest.unlisted(),
        updated_at: now,
    };
    let entries: Vec<_> = manifest.entries().collect();
    drop(manifest);
    tx.put_read_manifest(&totals, &entries).inspect_err(|_| run.manifest_dirty.store(true, Ordering::Release))
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

fn make_lease(run: &Arc<Run>, parent: Option<LeaseId>, grant: Grant, now: &Now) -> (LeaseRow, Arc<Lease>, Secret) {
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
