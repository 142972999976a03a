//! `gate/…` (SPEC GATE, BRANCH-8): propose, look, decide.

use std::sync::Arc;

use nas_ledger::{GateRow, LedgerError, NewRecord};
use nas_policy::{Act, Decision, Effect, PolicyRequest, Subject, Target};
use nas_store::{Pinned, Prepared, PreparedMerge};
use nas_trust_core::degradation::VerbClass;
use nas_trust_core::gate::{self, Gate, GateDigest, GateEvent, GateState, LeaseStanding, Ruling, VoidReason};
use nas_types::id::GateId;
use nas_types::lease::Action;
use nas_types::object::{Change, Conflict, Oid};
use nas_types::path::TreePath;
use nas_types::verb::{
    GateAction, GateApprove, GateCard, GateDecided, GateDecision, GateDeny, GateList, GateRisk, GateShow, GateSummary,
    Gates, Propose, Proposed, ReadSummary,
};

use super::page;
use crate::authority::{TakenManifest, descends};
use crate::caller::Who;
use crate::inner::Inner;
use crate::lease::Lease;
use crate::merge::{Merge, MergeEnd};
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
struct Question {
    id: GateId,
    pin: Oid,
    base: Oid,
    not_kept: Vec<TreePath>,
    why: Option<String>,
    /// The void gate whose place it takes.
    replaces: Option<GateId>,
}

/// A merge into main as policy is asked about it.
fn merge_request<'a>(lease: &'a Lease, changes: &[Change], approved: bool) -> PolicyRequest<'a> {
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

/// What the ledger keeps of a card beside the columns of its row.
#[derive(serde::Serialize, serde::Deserialize)]
struct StoredCard {
    changes: Vec<Change>,
    risk: GateRisk,
    read: Vec<ReadSummary>,
    read_more: u64,
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
    fn ask(&self, lease: &Lease, question: Question) -> Result<Proposed, DoorError> {
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
            let pending: Vec<_> =
                tx.gates_of_run(row.run)?.into_iter().filter(|gate| gate.state == GateState::Pending).collect();
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
            tx.append(&crate::inner::Inner::by_rule(record.clone(), &decision))?;
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

    /// Did this lease, or one narrowed from it, ask for the gate?
    pub(super) fn asked_below(&self, lease: &Lease, row: &GateRow) -> bool {
        let leases = self.inner.leases.read();
        leases.get(&row.lease).is_some_and(|asked| descends(&leases, asked, lease.id))
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

    /// A gate by id: any for the owner; for a bearer those that its own lease or one narrowed from it asked for.
    fn gate_known_to(&self, caller: &Caller, id: GateId) -> Result<GateRow, DoorError> {
        let row = self.inner.ledger.read(|reader| reader.get::<GateRow>(&id)).map_err(DoorError::Ledger)?;
        let known = row.filter(|row| match &caller.0 {
            Who::Owner { .. } => true,
            Who::Lease(lease) => self.asked_below(lease, row),
            Who::Anonymous { .. } => false,
        });
        known.ok_or_else(|| self.not_known_to(caller, "gate", id.to_string()))
    }
}

/// A line of a read manifest as the API shows it.
pub(super) fn read_line(entry: nas_trust_core::read_manifest::ManifestEntry) -> ReadSummary {
    use nas_trust_core::read_manifest::Ranges;
    ReadSummary {
        path: entry.path,
        commit: entry.version.commit,
        content: entry.version.content,
        ranges: match entry.ranges {
            Ranges::Whole => vec![(0, u64::MAX)],
            Ranges::Parts(parts) => parts,
        },
    }
}

impl DoorVerb for GateList {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, caller: &Caller) -> Result<Gates, DoorError> {
        let state = (!self.all).then_some(GateState::Pending);
        let rows = door.inner.ledger.read(|reader| reader.gates(state, u32::MAX)).map_err(DoorError::Ledger)?;
        let mine = rows.into_iter().filter(|row| match &caller.0 {
            Who::Owner { .. } => true,
            Who::Lease(lease) => door.asked_below(lease, row),
            Who::Anonymous { .. } => false,
        });
        let summaries = mine.map(|row| {
            let summary = GateSummary {
                gate: row.id,
                state: row.state.as_str().to_owned(),
                branch: row.branch,
                into: row.target,
                files_changed: row.changes,
                why: row.why,
                created_at: row.created_at,
                expires_at: row.expires_at,
            };
            (row.id.to_string(), summary)
        });
        let (gates, cursor) = page(summaries, self.cursor.as_deref(), self.limit)?;
        Ok(Gates { gates, cursor })
    }
}

impl DoorVerb for GateShow {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, caller: &Caller) -> Result<GateCard, DoorError> {
        let row = door.gate_known_to(caller, self.gate)?;
        let lease = door.inner.gate_lease(&row)?;
        let stored: StoredCard = serde_json::from_value(row.card)
            .map_err(|error| DoorError::Store { doing: "reading a gate card", source: error.into() })?;
        let mut read = stored.read;
        let diff = match &caller.0 {
            // What siblings read and the text of what one may not read stay out of a bearer's card.
            Who::Lease(own) if !own.actions.contains(Action::Read) => "(the lease does not allow 'read')\n".to_owned(),
            _ => card::diff_text(door.inner.store.history(), &stored.changes)?,
        };
        if let Who::Lease(own) = &caller.0 {
            read.retain(|line| own.paths.allows(&line.path));
        }
        let decision = row.decided_at.map(|at| GateDecision {
            by: row.decided_by.clone().unwrap_or_else(|| "svc:door".to_owned()),
            at,
            reason: row.reason.clone(),
            commit: row.merge_commit,
        });
        let open = row.state == GateState::Pending;
        Ok(GateCard {
            gate: row.id,
            state: row.state.as_str().to_owned(),
            run: row.run,
            lease: row.lease,
            principal: lease.run.principal.clone(),
            on_behalf_of: lease.run.on_behalf_of.clone(),
            action: GateAction {
                op: "merge".to_owned(),
                from: row.branch,
                commit: row.pin,
                into: row.target,
                files_changed: row.changes,
                digest: row.digest.to_string(),
            },
            why: row.why,
            risk: stored.risk,
            read,
            read_more: stored.read_more,
            changes: stored.changes,
            diff,
            options: if open { vec!["approve".to_owned(), "deny".to_owned()] } else { Vec::new() },
            default: "deny".to_owned(),
            created_at: row.created_at,
            expires_at: row.expires_at,
            decision,
            successor: row.successor,
            head: door.inner.head().map_err(DoorError::Ledger)?,
        })
    }
}

impl DoorVerb for GateApprove {
    const CLASS: VerbClass = VerbClass::Approve;

    fn run(self, door: &Door, caller: &Caller) -> Result<GateDecided, DoorError> {
        let owner = caller.owner()?;
        let seen: GateDigest = self.digest.parse().map_err(|_| DoorError::Invalid {
            field: "digest",
            reason: "it is on the gate card: 64 hexadecimal digits".to_owned(),
        })?;
        door.check_passphrase(&self.passphrase)?;
        let approver = Subject::owner(owner).with_passphrase();
        let may = door.inner.policy.evaluate(&PolicyRequest::new(approver, Act::DecideGate, Target::Box));
        if may.effect != Effect::Allow {
            return Err(crate::denied(&may));
        }
        // From here on main stands still: what is recomputed now is what will be merged.
        let _one_at_a_time = door.inner.merging.lock();
        let row = door.gate_known_to(caller, self.gate)?;
        if row.state == GateState::Approved && row.digest == seen {
            return Ok(GateDecided { already_there: true, commit: row.merge_commit, ..decided(&row, 0) });
        }
        let lease = door.inner.gate_lease(&row)?;
        let prepared = match door.prepare(row.pin)? {
            Prepared::Clean(prepared) => Ok(prepared),
            Prepared::Conflicts(conflicts) => Err(conflicts),
        };
        let now = door.inner.now();
        let event = GateEvent::Approve {
            seen,
            recomputed: prepared.as_ref().ok().map(|prepared| gate::digest(&row.target, row.lease, prepared.changes())),
            lease: if lease.is_revoked() { LeaseStanding::Revoked } else { LeaseStanding::LiveOrExpired },
        };
        let core = Gate { state: row.state, digest: row.digest, expires_at: row.expires_at };
        match (gate::decide(&core, now.wall, now.trusted, event), prepared) {
            (Ruling::Approve, Ok(prepared)) => door.approve(row, &lease, prepared, owner, self.reason),
            (Ruling::Void(reason), prepared) => {
                door.void(row, &lease, reason, owner, prepared.err().unwrap_or_default())
            }
            (ruling, _) => door.inner.end_gate(row, &lease, ruling, owner, self.reason),
        }
    }
}

impl DoorVerb for GateDeny {
    const CLASS: VerbClass = VerbClass::Narrow;

    fn run(self, door: &Door, caller: &Caller) -> Result<GateDecided, DoorError> {
        let owner = caller.owner()?;
        door.check_passphrase(&self.passphrase)?;
        let row = door.gate_known_to(caller, self.gate)?;
        if row.state == GateState::Denied {
            return Ok(GateDecided { already_there: true, ..decided(&row, 0) });
        }
        let lease = door.inner.gate_lease(&row)?;
        let now = door.inner.now();
        let core = Gate { state: row.state, digest: row.digest, expires_at: row.expires_at };
        let ruling = gate::decide(&core, now.wall, now.trusted, GateEvent::Deny);
        door.inner.end_gate(row, &lease, ruling, owner, self.reason)
    }
}

fn decided(row: &GateRow, record: u64) -> GateDecided {
    GateDecided {
        gate: row.id,
        state: row.state.as_str().to_owned(),
        commit: None,
        record,
        because: row.reason.clone(),
        successor: row.successor,
        conflicts: Vec::new(),
        already_there: false,
    }
}

impl Door {
    fn approve(
        &self,
        row: GateRow,
        lease: &Lease,
        prepared: PreparedMerge,
        owner: &str,
        reason: Option<String>,
    ) -> Result<GateDecided, DoorError> {
        let request = merge_request(lease, prepared.changes(), true);
        let decision = self.inner.policy.evaluate(&request);
        if decision.effect != Effect::Allow {
            return Err(crate::denied(&decision));
        }
        let now = self.inner.now().wall;
        let manifest = lease.run.manifest.lock().digest();
        let mut provenance = lease.provenance();
        provenance.read_manifest = Some(blake3::Hash::from_bytes(manifest).to_hex().to_string());
        let merge = Merge {
            by: "gate",
            approver: owner,
            decision: &decision,
            provenance,
            lease: row.lease,
            message: format!("Merge {} into {}\n\n{}", row.branch, row.target, row.why.as_deref().unwrap_or("")),
            detail: serde_json::json!({ "gate": row.id, "digest": row.digest.to_string(), "changes": row.changes }),
            read_manifest: Some(manifest),
        };
        let gate = GateRow {
            state: GateState::Approved,
            decided_at: Some(now),
            decided_by: Some(owner.to_owned()),
            reason,
            ..row.clone()
        };
        match self.inner.merge(&prepared, merge, Some(&gate))? {
            MergeEnd::Merged { commit, record } => {
                self.note_merged(&row);
                self.inner.unpin(row.id);
                Ok(GateDecided { commit: Some(commit), ..decided(&gate, record.seq) })
            }
            MergeEnd::TooLate => self.void(row, lease, VoidReason::LeaseRevoked, owner, Vec::new()),
        }
    }

    /// The branch goes on from what was merged. Should that not be noted, what it changes again conflicts with itself,
    /// which a person will see: nothing is lost.
    fn note_merged(&self, row: &GateRow) {
        let Some(branch) = self.inner.store.branch(&row.branch) else { return };
        if let Err(error) = branch.merged(row.pin) {
            tracing::error!(%error, branch = %row.branch, "the branch could not note what was merged");
        }
    }

    /// Voids a gate; where asking again makes sense, a fresh card takes its place.
    fn void(
        &self,
        row: GateRow,
        lease: &Lease,
        reason: VoidReason,
        owner: &str,
        conflicts: Vec<Conflict>,
    ) -> Result<GateDecided, DoorError> {
        let mut void = self.inner.end_gate(row.clone(), lease, Ruling::Void(reason), owner, None)?;
        void.conflicts = conflicts;
        if reason.asks_again() {
            let fresh = GateId::random();
            let question = Question {
                id: fresh,
                pin: row.pin,
                base: row.base,
                not_kept: Vec::new(),
                why: row.why,
                replaces: Some(row.id),
            };
            let asked = self
                .inner
                .store
                .pin_for(fresh, row.pin)
                .map_err(|error| crate::store_error("pinning the commit again", error))
                .and_then(|()| self.ask(lease, question));
            match asked {
                Ok(asked) => {
                    if asked.gate != fresh {
                        // The very same was asked already.
                        self.inner.unpin(fresh);
                    }
                    void.successor = Some(asked.gate);
                }
                Err(error) => {
                    self.inner.unpin(fresh);
                    tracing::info!(%error, gate = %row.id, "no fresh card");
                    void.because = Some(format!("{}; {error}", void.because.unwrap_or_default()));
                }
            }
        }
        self.inner.unpin(row.id);
        Ok(void)
    }
}

impl Inner {
    fn gate_record(&self, kind: &str, row: &GateRow, lease: &Lease) -> NewRecord {
        let detail = serde_json::json!({
            "gate": row.id, "into": row.target, "digest": row.digest.to_string(), "changes": row.changes, "why": row.why,
        });
        let read_manifest = Some(lease.run.manifest.lock().digest());
        let record =
            NewRecord { commit: Some(row.pin), detail, read_manifest, ..NewRecord::event(kind, self.now().wall) };
        self.by_lease(record, lease)
    }

    pub(crate) fn unpin(&self, gate: GateId) {
        if let Err(error) = self.store.unpin(gate) {
            tracing::error!(%error, %gate, "a pin could not be removed");
        }
    }

    fn gate_lease(&self, row: &GateRow) -> Result<Arc<Lease>, DoorError> {
        let lease = self.leases.read().get(&row.lease).cloned();
        lease.ok_or_else(|| DoorError::NotFound { what: "lease", name: row.lease.to_string() })
    }
    /// Ends a gate other than by a merge.
    fn end_gate(
        &self,
        row: GateRow,
        lease: &Lease,
        ruling: Ruling,
        by: &str,
        reason: Option<String>,
    ) -> Result<GateDecided, DoorError> {
        let (state, because) = match ruling {
            Ruling::Deny => (GateState::Denied, reason),
            Ruling::Expire => (GateState::Expired, Some("nobody answered in time, so the answer is no".to_owned())),
            Ruling::Void(reason) => (GateState::Void, Some(reason.as_sentence().to_owned())),
            Ruling::WrongCard => {
                return Err(DoorError::State("the digest is not that of this gate: look at the card again".to_owned()));
            }
            Ruling::Decided(state) => {
                return Err(DoorError::State(format!("the gate was decided before: {}", state.as_str())));
            }
            Ruling::Stay | Ruling::Approve => {
                return Err(DoorError::State("the gate still waits for a decision".to_owned()));
            }
        };
        let now = self.now().wall;
        let ended = GateRow { state, decided_at: Some(now), decided_by: Some(by.to_owned()), reason: because, ..row };
        let mut record = self.gate_record("gate.decide", &ended, lease);
        record.detail["state"] = state.as_str().into();
        record.detail["by"] = by.into();
        record.detail["because"] = ended.reason.clone().into();
        let written = self.ledger.write_essential(|tx| {
            if tx.decide_gate(&ended)? { tx.append(&record).map(|head| Some(head.seq)) } else { Ok(None) }
        });
        let Some(seq) = written.map_err(DoorError::Ledger)? else {
            return Err(DoorError::State("somebody else decided the gate just now: look at it again".to_owned()));
        };
        self.push_anchor();
        if state != GateState::Void {
            self.unpin(ended.id);
        }
        Ok(decided(&ended, seq))
    }

    /// Ends gates that nobody answered (SPEC GATE-3). Nothing ends by age while the clock is in doubt.
    pub(crate) fn expire_gates(&self) -> Result<(), DoorError> {
        let pending = self.ledger.read(|reader| reader.gates(Some(GateState::Pending), u32::MAX));
        let now = self.now();
        for row in pending.map_err(DoorError::Ledger)? {
            let core = Gate { state: row.state, digest: row.digest, expires_at: row.expires_at };
            let ruling = gate::decide(&core, now.wall, now.trusted, GateEvent::Tick);
            if ruling == Ruling::Expire {
                let lease = self.gate_lease(&row)?;
                self.end_gate(row, &lease, ruling, "svc:door", None)?;
            }
        }
        Ok(())
    }
}
