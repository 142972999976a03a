//! Standing branches (DESIGN §3): a person's own edits, merged by themselves after a time of quiet, under a rule of their own.
//!
//! A person opens theirs with the passphrase. That is the *envelope* (SPEC LEASE-4): as long as it stands, leases on
//! the branch are issued within it, each as short as any other, and mounts go on under the newest one. A thread looks
//! at each branch: what nobody wrote to for the time of quiet is pinned and merged as every merge is, with the person as the
//! approver of these very bytes; what clashes stays on the branch and says so. Then the branch follows main.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use nas_ledger::{
    BranchRow, LeaseRow, LeaseState, LedgerError, MountRow, NewRecord, PrincipalKind, RunRow, RunState, Tx,
};
use nas_policy::{Act, Decision, Effect, PolicyRequest, Subject, Target};
use nas_store::{Branch, Pinned, Prepared, PreparedMerge};
use nas_trust_core::degradation::VerbClass;
use nas_trust_core::lease_time::LeaseClock;
use nas_trust_core::{ActionSet, PathSet};
use nas_types::id::{GateId, LeaseId, RunId};
use nas_types::lease::{Action, RoleName};
use nas_types::object::Oid;
use nas_types::path::TreePath;
use nas_types::secret::Secret;
use nas_types::time::Timestamp;
use nas_types::verb::{StandingInfo, StandingStuck};

use crate::DoorError;
use crate::authority::{Grant, NewRun};
use crate::file::{MountFacts, Mounted};
use crate::inner::Inner;
use crate::lease::Lease;
use crate::lease::Standing::Over;
use crate::merge::{Merge, MergeEnd};

/// How often the branches are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A lease with less than this left is followed by another one.
const REISSUE_BELOW_MS: i64 = 30 * 60_000;
/// How long after a failure (a full disk, say) a branch is looked at again.
const RETRY_AFTER: Duration = Duration::from_secs(30);
/// A lease that is over for this long has no mount that could go on: the upkeep looked at it many times.
const FORGOTTEN_MS: i64 = 30 * 24 * 3_600_000;
/// How often the last merge is made while operations that were under way still end.
const MERGES_LAST_MAX: u32 = 4;
/// Paths named when edits are stuck.
const PATHS_NAMED_MAX: usize = 100;
/// Under which name the ledger keeps the open envelopes.
const KEY: &str = "standing";
/// Where such a value goes that this version cannot read.
const KEY_UNREADABLE: &str = "standing-unreadable";

/// An envelope that is open, as the ledger keeps it.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
struct Envelope {
    run: RunId,
    principal: String,
    paths: Vec<String>,
    opened_at: Timestamp,
    merged: Option<Oid>,
    stuck: Option<StandingStuck>,
}

/// The open envelopes of the box by their run, and what was tried last: tip of the branch and generation of main.
#[derive(Debug, Default)]
pub(crate) struct Standing(HashMap<RunId, (Envelope, Option<(Oid, u64)>)>);

impl Standing {
    fn of(&self, principal: &str) -> Option<Envelope> {
        self.0.values().map(|(envelope, _)| envelope).find(|envelope| envelope.principal == principal).cloned()
    }

    fn envelopes(&self) -> Vec<Envelope> {
        self.0.values().map(|(envelope, _)| envelope.clone()).collect()
    }
}

/// Starts the thread.
pub(crate) fn start(inner: &Arc<Inner>, stopped: Receiver<()>) -> Result<JoinHandle<()>, DoorError> {
    let inner = Arc::downgrade(inner);
    std::thread::Builder::new()
        .name("door-standing".to_owned())
        .spawn(move || run(&inner, &stopped))
        .map_err(|source| DoorError::Store { doing: "starting a thread", source: source.into() })
}

fn run(inner: &Weak<Inner>, stopped: &Receiver<()>) {
    let mut failed: HashMap<RunId, Instant> = HashMap::new();
    while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        let Some(inner) = inner.upgrade() else { return };
        let envelopes = inner.standing.lock().envelopes();
        for envelope in envelopes {
            if failed.get(&envelope.run).is_some_and(|at| at.elapsed() < RETRY_AFTER) {
                continue;
            }
            failed.remove(&envelope.run);
            let tended = inner.reissue(&envelope).and_then(|()| inner.tend(&envelope));
            if let Err(error) = tended {
                tracing::warn!(%error, run = %envelope.run, "the standing branch is tried again in half a minute");
                failed.insert(envelope.run, Instant::now());
            }
        }
    }
}

impl Inner {
    /// Takes the open envelopes back in, at start.
    pub(crate) fn restore_standing(&self) -> Result<(), LedgerError> {
        let Some(json) = self.ledger.read(|reader| reader.kv(KEY))? else { return Ok(()) };
        let envelopes: Vec<Envelope> = match serde_json::from_slice(&json) {
            Ok(envelopes) => envelopes,
            Err(error) => {
                tracing::error!(%error, "the envelopes of standing branches cannot be read: none is open");
                // What comes next must not write over them.
                return self.ledger.write(|tx| tx.put_kv(KEY_UNREADABLE, &json));
            }
        };
        self.standing.lock().0 = envelopes.into_iter().map(|envelope| (envelope.run, (envelope, None))).collect();
        Ok(())
    }

    /// Is the branch of this run kept whatever its age?
    pub(crate) fn stands(&self, run: RunId) -> bool {
        self.standing.lock().0.contains_key(&run)
    }

    /// The other leases of the envelope that `lease` is within and that still give something.
    pub(crate) fn standing_leases(&self, lease: &Lease) -> Vec<LeaseId> {
        if !self.stands(lease.run.id) {
            return Vec::new();
        }
        let leases = self.leases.read();
        let others = leases.values().filter(|held| held.run.id == lease.run.id && held.id != lease.id);
        others.filter(|held| !held.is_revoked() && held.parent.is_none()).map(|held| held.id).collect()
    }

    /// Opens the person's standing branch, or issues a lease on the one that is open. One whose lease was revoked is over: what
    /// was written under it stays on its branch and is not merged, and a new one is opened.
    pub(crate) fn open_standing(
        self: &Arc<Self>,
        principal: &str,
        paths: Option<PathSet>,
        decision: &Decision,
    ) -> Result<(Arc<Lease>, Secret), DoorError> {
        // One at a time: a person has one.
        let _one_at_a_time = self.merging.lock();
        let known = self.standing.lock().of(principal);
        if let Some(envelope) = known {
            if self.is_going_on(&envelope)? {
                if let Some(other) = paths.filter(|paths| paths.to_globs() != envelope.paths) {
                    return Err(DoorError::State(format!(
                        "the standing branch is open for {}, not for {}: close it first ('nas standing close'), or leave \
                         the paths out",
                        envelope.paths.join(", "),
                        other.to_globs().join(", ")
                    )));
                }
                return self.issue_within(&envelope, "standing.open");
            }
            self.forget_standing(&envelope)?;
        }
        let paths = paths.unwrap_or_else(PathSet::everything);
        let role = principal.rsplit(':').next().and_then(|name| name.parse::<RoleName>().ok());
        let role = role.unwrap_or_else(|| "person".parse().expect("because it is a legal role name"));
        let globs = paths.to_globs();
        let run = NewRun {
            role,
            principal: principal.to_owned(),
            kind: PrincipalKind::Human,
            on_behalf_of: None,
            tree: None,
            quota_bytes: self.options.branch_quota_bytes,
            grant: self.grant_within(paths)?,
        };
        let (lease, token) = self.open_run(run, decision)?;
        let envelope = Envelope {
            run: lease.run.id,
            principal: principal.to_owned(),
            paths: globs,
            opened_at: self.clocks.wall(),
            merged: None,
            stuck: None,
        };
        let detail = serde_json::json!({ "paths": envelope.paths });
        let record = NewRecord { detail, ..NewRecord::event("standing.open", envelope.opened_at) };
        let record = Self::by_rule(self.by_lease(record, &lease), decision);
        self.keep_standing(|standing| drop(standing.0.insert(envelope.run, (envelope.clone(), None))), &record)?;
        Ok((lease, token))
    }

    /// Does its run go on, and was no lease of it revoked?
    fn is_going_on(&self, envelope: &Envelope) -> Result<bool, DoorError> {
        let run = self.ledger.read(|reader| reader.need::<RunRow>(&envelope.run)).map_err(DoorError::Ledger)?;
        let revoked = self.newest_lease(envelope.run).is_none_or(|lease| lease.is_revoked());
        Ok(run.state == RunState::Active && !revoked)
    }

    fn grant_within(&self, paths: PathSet) -> Result<Grant, DoorError> {
        let clock = LeaseClock::issue(None, &self.now())
            .map_err(|error| DoorError::Invalid { field: "ttl", reason: error.to_string() })?;
        let actions: ActionSet = [Action::List, Action::Read, Action::Write].into_iter().collect();
        Ok(Grant { paths, actions, clock, purpose: Some("Own edits".to_owned()) })
    }

    /// A fresh lease of the run, within the envelope. Live mounts of the run go on under it.
    fn issue_within(self: &Arc<Self>, envelope: &Envelope, kind: &str) -> Result<(Arc<Lease>, Secret), DoorError> {
        let run = self.runs.read().get(&envelope.run).cloned();
        let run = run.ok_or_else(|| DoorError::NotFound { what: "run", name: envelope.run.to_string() })?;
        let paths = PathSet::from_globs(&envelope.paths)
            .map_err(|error| DoorError::Invalid { field: "paths", reason: error.to_string() })?;
        let now = self.now();
        let (row, lease, token) = crate::authority::make_lease(&run, None, self.grant_within(paths)?, &now);
        let detail = serde_json::json!({ "envelope": envelope.run, "paths": row.paths, "expires_at": row.expires_at });
        let record = self.by_lease(NewRecord { detail, ..NewRecord::event(kind, now.wall) }, &lease);
        // Their mounts go on. Those that ended long ago have none.
        let own: Vec<_> = {
            let (leases, boottime_ms) = (self.leases.read(), now.boottime_ms);
            let recent =
                |held: &Lease| !matches!(held.standing(boottime_ms), Over { since_ms } if since_ms > FORGOTTEN_MS);
            let own = leases.values().filter(|held| held.run.id == run.id && held.parent.is_none() && recent(held));
            own.map(|held| held.id).collect()
        };
        let moved = self.ledger.write(|tx| {
            // A revocation means the branch: none is issued after one.
            for lease in &own {
                if tx.need::<LeaseRow>(lease)?.state == LeaseState::Revoked {
                    return Ok(None);
                }
            }
            let mounts = tx.mounts_live()?.into_iter().filter(|mount| own.contains(&mount.lease));
            let moved: Vec<_> = mounts.map(|mount| MountRow { lease: row.id, ..mount }).collect();
            tx.insert(&row)?;
            moved.iter().try_for_each(|mount| tx.update(mount))?;
            tx.append(&record)?;
            Ok::<_, LedgerError>(Some(moved))
        });
        let over = DoorError::LeaseOver("a lease of the standing branch was revoked");
        let Some(moved) = moved.map_err(DoorError::Ledger)? else { return Err(over) };
        self.remember(&row, &lease);
        // A revocation between the transaction and this did not know of it.
        if own.iter().any(|id| self.leases.read().get(id).is_some_and(|held| held.is_revoked())) {
            self.revoke(lease.id, "svc:door", Some("another lease of the standing branch was revoked"))?;
            return Err(over);
        }
        for mount in moved {
            self.move_mount(&mount, &lease);
        }
        Ok((lease, token))
    }

    /// Handles name the mount: from here on its operations are checked against the new lease.
    fn move_mount(self: &Arc<Self>, row: &MountRow, lease: &Arc<Lease>) {
        let Some(old) = self.mounts.read().get(&row.id).cloned() else { return };
        let facts: MountFacts = old.facts.clone();
        match Mounted::open(Arc::clone(self), Arc::clone(lease), facts) {
            Ok(new) => drop(self.mounts.write().insert(row.id, new)),
            // Its root is gone; it ends with the lease it has.
            Err(error) => tracing::info!(?error, mount = %row.id, "a mount does not follow to the new lease"),
        }
    }

    /// Issues the next lease when the newest one is about to end, or has ended, and the branch is mounted.
    fn reissue(self: &Arc<Self>, envelope: &Envelope) -> Result<(), DoorError> {
        let now = self.now();
        if !now.trusted || self.admits(VerbClass::OpenRun).is_err() {
            return Ok(());
        }
        let newest = self.newest_lease(envelope.run);
        let Some(newest) = newest.filter(|lease| !lease.is_revoked() && lease.remaining_ms(&now) < REISSUE_BELOW_MS)
        else {
            return Ok(());
        };
        let live = self.ledger.read(|reader| reader.mounts_of_lease(newest.id)).map_err(DoorError::Ledger)?;
        let running = self.ledger.read(|reader| reader.need::<RunRow>(&envelope.run)).map_err(DoorError::Ledger)?;
        if running.state != RunState::Active || live.iter().all(|mount| mount.ended_at.is_some()) {
            return Ok(());
        }
        self.issue_within(envelope, "lease.reissue").map(drop)
    }

    fn newest_lease(&self, run: RunId) -> Option<Arc<Lease>> {
        let leases = self.leases.read();
        let of_run = leases.values().filter(|lease| lease.run.id == run && lease.parent.is_none());
        of_run.max_by_key(|lease| (lease.created_at, lease.id)).cloned()
    }

    /// Merges what is quiet and follows main.
    fn tend(&self, envelope: &Envelope) -> Result<(), DoorError> {
        if self.admits(VerbClass::Write).is_err() {
            return Ok(());
        }
        let Some((branch, lease)) = self.branch_and_lease(envelope.run) else { return Ok(()) };
        if branch.quiet_for() < self.options.standing_quiet || lease.is_revoked() {
            return Ok(());
        }
        let at = |branch: &Branch| (branch.tip(), self.store.main().pointer().number);
        let tried = self.standing.lock().0.get(&envelope.run).and_then(|(_, tried)| *tried);
        if !branch.live().is_dirty() && tried == Some(at(&branch)) {
            return Ok(());
        }
        // Ended another way: what is there stays on the branch.
        if !self.is_going_on(envelope)? {
            return Ok(());
        }
        // Read before: should main move meanwhile, it is looked at again.
        let number = self.store.main().pointer().number;
        let held_back = self.merge_own(envelope, &branch, &lease)?;
        let main = self.store.main().pointer().commit;
        let followed = branch.follow(main);
        // What clashes is told before what is in the way.
        let in_the_way = followed.as_ref().err().map(|error| {
            let because =
                format!("the branch cannot follow main ({error}): move away what is in the way, or make room");
            stuck(&because, std::iter::empty())
        });
        self.note(envelope, &lease, held_back.or(in_the_way))?;
        followed.map_err(|error| crate::store_error("bringing the standing branch to main", error))?;
        let now_at = (branch.tip(), number);
        if let Some((_, tried)) = self.standing.lock().0.get_mut(&envelope.run) {
            *tried = Some(now_at);
        }
        Ok(())
    }

    fn branch_and_lease(&self, run: RunId) -> Option<(Arc<Branch>, Arc<Lease>)> {
        let name = self.runs.read().get(&run)?.branch.clone();
        Some((self.store.branch(&name)?, self.newest_lease(run)?))
    }

    /// Pins what is on the branch and merges it, or says why not.
    fn merge_own(
        &self,
        envelope: &Envelope,
        branch: &Branch,
        lease: &Lease,
    ) -> Result<Option<StandingStuck>, DoorError> {
        let noted = |error| crate::store_error("noting what was merged", error);
        branch.note_taken(self.store.main().pointer().commit).map_err(noted)?;
        let pin = GateId::random();
        let pinned =
            branch.pin(pin, "Own edits").map_err(|error| crate::store_error("committing the branch", error))?;
        let Pinned::Commit(pinned) = pinned else { return Ok(None) };
        let _one_at_a_time = self.merging.lock();
        let merged = self.merge_pinned(envelope, branch, lease, pinned);
        self.unpin(pin);
        merged
    }

    fn merge_pinned(
        &self,
        envelope: &Envelope,
        branch: &Branch,
        lease: &Lease,
        pinned: Oid,
    ) -> Result<Option<StandingStuck>, DoorError> {
        let noted = |error| crate::store_error("noting what was merged", error);
        let prepared = self.store.prepare_merge(pinned);
        let prepared = match prepared.map_err(|error| crate::store_error("computing the merge", error))? {
            Prepared::Clean(prepared) if prepared.changes().is_empty() => {
                return branch.merged(pinned).map(|()| None).map_err(noted);
            }
            Prepared::Clean(prepared) => prepared,
            Prepared::Conflicts(conflicts) => {
                let because = "main changed the same files: bring them together on the branch, or put yours elsewhere";
                let paths = conflicts.into_iter().map(|conflict| conflict.path);
                return Ok(Some(stuck(because, paths)));
            }
        };
        let changes = prepared.changes();
        let nas = |path: &TreePath| path.components().any(|part| part == b".nas");
        let subject = Subject { lease: true, ..Subject::owner(&envelope.principal) };
        let request = PolicyRequest {
            deletes: changes.iter().any(|change| change.new.is_none()),
            touches_nas: changes.iter().any(|change| nas(&change.path)),
            ..PolicyRequest::new(subject, Act::OwnEdits, Target::Protected)
        };
        let decision = self.policy.evaluate(&request);
        if decision.effect != Effect::Allow {
            let about =
                changes.iter().map(|change| change.path.clone()).filter(|path| !request.touches_nas || nas(path));
            return Ok(Some(stuck(&decision.reason, about)));
        }
        match self.merge(&prepared, own_merge(envelope, lease, &decision, &prepared), None)? {
            MergeEnd::Merged { commit, .. } => {
                branch.merged(pinned).map_err(noted)?;
                self.change_standing(envelope.run, |envelope| envelope.merged = Some(commit))?;
                Ok(None)
            }
            // The lease was revoked just now.
            MergeEnd::TooLate => Ok(None),
        }
    }

    /// Notes why nothing is merged, once for each reason.
    fn note(&self, envelope: &Envelope, lease: &Lease, stuck: Option<StandingStuck>) -> Result<(), DoorError> {
        let before = self.standing.lock().0.get(&envelope.run).and_then(|(envelope, _)| envelope.stuck.clone());
        if before == stuck {
            return Ok(());
        }
        let Some(stuck) = stuck else { return self.change_standing(envelope.run, |envelope| envelope.stuck = None) };
        let detail = serde_json::json!({ "because": stuck.because, "paths": stuck.paths });
        let record = NewRecord { detail, ..NewRecord::event("standing.stuck", self.clocks.wall()) };
        let record = self.by_lease(record, lease);
        self.keep_standing(
            |standing| {
                if let Some((envelope, _)) = standing.0.get_mut(&envelope.run) {
                    envelope.stuck = Some(stuck);
                }
            },
            &record,
        )
    }

    /// Ends the envelope: first nobody writes any more, then what is there is merged. What could not be stays on the branch,
    /// and the answer says why.
    pub(crate) fn close_standing(&self, principal: &str) -> Result<StandingInfo, DoorError> {
        let envelope = self.standing.lock().of(principal).ok_or_else(none_open)?;
        let going_on = self.is_going_on(&envelope)?;
        let now = self.now();
        for lease in self.leases_of(envelope.run) {
            lease.expire(&now);
        }
        for mount in self.mounts.read().values().filter(|mount| mount.lease.run.id == envelope.run) {
            mount.end();
        }
        let held_back = match (self.admits(VerbClass::Write), self.branch_and_lease(envelope.run)) {
            (Err(error), _) => Some(stuck(&format!("{error}; what is on the branch stays there"), std::iter::empty())),
            (Ok(()), Some((branch, lease))) if going_on => self.merge_last(&envelope, &branch, &lease),
            (Ok(()), _) => None,
        };
        let info = self.standing_info(principal)?;
        self.forget_standing(&envelope)?;
        Ok(StandingInfo { state: "closed".to_owned(), stuck: held_back, ..info })
    }

    /// The last merge. An operation that was under way when the mounts ended may have written once more: then again.
    fn merge_last(&self, envelope: &Envelope, branch: &Branch, lease: &Lease) -> Option<StandingStuck> {
        for _ in 0..MERGES_LAST_MAX {
            let merged = self.merge_own(envelope, branch, lease);
            match merged {
                Ok(None) if branch.live().is_dirty() => {}
                Ok(held_back) => return held_back,
                Err(error) => {
                    return Some(stuck(&format!("{error}; what is on the branch stays there"), std::iter::empty()));
                }
            }
        }
        None
    }

    fn leases_of(&self, run: RunId) -> Vec<Arc<Lease>> {
        self.leases.read().values().filter(|lease| lease.run.id == run).cloned().collect()
    }

    /// Ends an envelope with its leases. The branch stays for the life of a branch from now on.
    fn forget_standing(&self, envelope: &Envelope) -> Result<(), DoorError> {
        let now = self.now();
        let leases = self.leases_of(envelope.run);
        let mut open = self.standing.lock();
        let left: Vec<_> = open.envelopes().into_iter().filter(|other| other.run != envelope.run).collect();
        let record = NewRecord {
            run: Some(envelope.run),
            principal: Some(envelope.principal.clone()),
            ..NewRecord::event("standing.close", now.wall)
        };
        let name = self.runs.read().get(&envelope.run).map(|run| run.branch.clone());
        let written = self.ledger.write_essential(|tx| {
            for lease in &leases {
                tx.store_lease_time(lease.id, &lease.expire(&now))?;
            }
            let row = tx.need::<RunRow>(&envelope.run)?;
            if row.state == RunState::Active {
                tx.update(&RunRow { state: RunState::Ended, ended_at: Some(now.wall), ..row })?;
            }
            if let Some(row) = name.as_ref().map(|name| tx.get::<BranchRow>(name)).transpose()?.flatten() {
                tx.update(&BranchRow { expires_at: now.wall.plus_ms(self.options.branch_ttl_ms), ..row })?;
            }
            store(tx, &left)?;
            tx.append(&record)
        });
        written.map_err(DoorError::Ledger)?;
        open.0.remove(&envelope.run);
        Ok(())
    }

    /// Changes what is kept of the envelopes, with its record, in the ledger and then in memory.
    fn keep_standing(&self, change: impl FnOnce(&mut Standing), record: &NewRecord) -> Result<(), DoorError> {
        let mut standing = self.standing.lock();
        let mut changed = Standing(standing.0.clone());
        change(&mut changed);
        let envelopes = changed.envelopes();
        let written = self.ledger.write(|tx| {
            store(tx, &envelopes)?;
            tx.append(record)
        });
        written.map_err(DoorError::Ledger)?;
        *standing = changed;
        Ok(())
    }

    /// Changes one envelope without a record of its own: the merge has one.
    fn change_standing(&self, run: RunId, change: impl FnOnce(&mut Envelope)) -> Result<(), DoorError> {
        let mut standing = self.standing.lock();
        let mut changed = Standing(standing.0.clone());
        let Some((envelope, _)) = changed.0.get_mut(&run) else { return Ok(()) };
        change(envelope);
        let envelopes = changed.envelopes();
        self.ledger.write(|tx| store(tx, &envelopes)).map_err(DoorError::Ledger)?;
        *standing = changed;
        Ok(())
    }

    /// The person's standing branch as the API shows it.
    pub(crate) fn standing_info(&self, principal: &str) -> Result<StandingInfo, DoorError> {
        let envelope = self.standing.lock().of(principal).ok_or_else(none_open)?;
        let run = self.runs.read().get(&envelope.run).cloned();
        let run = run.ok_or_else(|| DoorError::NotFound { what: "run", name: envelope.run.to_string() })?;
        let waiting = match self.store.branch(&run.branch) {
            None => 0,
            Some(branch) => {
                let committed = self.store.history().diff(Some(branch.proposal_base()), branch.tip());
                let committed = committed.map_err(crate::card::history_error("comparing commits"))?.len();
                (committed + branch.dirty_paths()) as u64
            }
        };
        let state = if self.is_going_on(&envelope)? { "open" } else { "over" };
        Ok(StandingInfo {
            run: envelope.run,
            branch: run.branch.clone(),
            principal: envelope.principal,
            paths: envelope.paths,
            state: state.to_owned(),
            opened_at: envelope.opened_at,
            waiting,
            merged: envelope.merged,
            stuck: envelope.stuck,
        })
    }
}

fn own_merge<'a>(envelope: &'a Envelope, lease: &Lease, decision: &'a Decision, prepared: &PreparedMerge) -> Merge<'a> {
    let manifest = lease.run.manifest.lock().digest();
    let mut provenance = lease.provenance();
    provenance.read_manifest = Some(blake3::Hash::from_bytes(manifest).to_hex().to_string());
    Merge {
        by: "standing",
        approver: &envelope.principal,
        decision,
        provenance,
        lease: lease.id,
        message: format!("Own edits of {}", envelope.principal),
        detail: serde_json::json!({ "changes": prepared.changes().len() }),
        read_manifest: Some(manifest),
    }
}

fn stuck(because: &str, paths: impl Iterator<Item = TreePath>) -> StandingStuck {
    StandingStuck { because: because.to_owned(), paths: paths.take(PATHS_NAMED_MAX).collect() }
}

fn store(tx: &mut Tx<'_>, envelopes: &[Envelope]) -> Result<(), LedgerError> {
    let json = serde_json::to_vec(envelopes).expect("because an envelope is plain data");
    tx.put_kv(KEY, &json)
}

fn none_open() -> DoorError {
    DoorError::State("no standing branch is open: 'nas standing open' opens one".to_owned())
}
