//! `gate/approve` and `gate/deny` (SPEC GATE): a person decides, and what follows from it.

use nas_ledger::{GateRow, LedgerError, Record};
use nas_policy::{Act, Effect, PolicyRequest, Subject, Target};
use nas_store::{Prepared, PreparedMerge};
use nas_trust_core::degradation::VerbClass;
use nas_trust_core::gate::{self, Gate, GateDigest, GateEvent, GateState, LeaseStanding, Ruling, VoidReason};
use nas_types::id::GateId;
use nas_types::object::Conflict;
use nas_types::verb::{GateApprove, GateDecided, GateDeny};

use super::propose::{Question, merge_request};
use crate::inner::Inner;
use crate::lease::Lease;
use crate::merge::{Merge, MergeEnd};
use crate::{Caller, Door, DoorError, DoorVerb};

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
            return Ok(GateDecided {
                already_there: true,
                commit: row.merge_commit,
                ..decided(&row, door.decided_before(&row)?)
            });
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
            return Ok(GateDecided { already_there: true, ..decided(&row, door.decided_before(&row)?) });
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
    /// The record of the decision of a gate that was decided before.
    fn decided_before(&self, row: &GateRow) -> Result<u64, DoorError> {
        let found = self.inner.ledger.read(|reader| match row.merge_commit {
            Some(commit) => {
                let records = reader.records_of_commit(commit)?;
                Ok(records
                    .iter()
                    .find(|record| record.fields.kind == "merge" && record.fields.intent.is_some())
                    .map(|record| record.seq))
            }
            None => {
                let id = row.id.to_string();
                let records = reader.records_before(None, Some(row.run), Some("gate.decide"), u32::MAX)?;
                let of_gate =
                    |record: &&Record| record.fields.detail.get("gate").and_then(|gate| gate.as_str()) == Some(&id);
                Ok::<_, LedgerError>(records.iter().find(of_gate).map(|record| record.seq))
            }
        });
        Ok(found.map_err(DoorError::Ledger)?.unwrap_or(0))
    }

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
        let waiting = self.ledger.read(|reader| reader.gates_waiting()).map_err(DoorError::Ledger)?;
        let now = self.now();
        for (id, _) in waiting {
            let row = self.ledger.read(|reader| reader.need::<GateRow>(&id)).map_err(DoorError::Ledger)?;
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
