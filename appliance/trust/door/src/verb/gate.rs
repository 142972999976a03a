//! `gate/list` and `gate/show`: the questions that wait, and the card of one (SPEC GATE-1). Asking is in
//! [`super::propose`], deciding in [`super::decide`].

use std::sync::Arc;

use nas_ledger::{GateFilter, GateRow, NewRecord};
use nas_trust_core::degradation::VerbClass;
use nas_trust_core::gate::GateState;
use nas_types::id::GateId;
use nas_types::lease::Action;
use nas_types::object::Change;
use nas_types::verb::{
    GateAction, GateCard, GateDecision, GateList, GateRisk, GateShow, GateSummary, Gates, ReadSummary,
};

use super::ledger_page;
use crate::authority::descends;
use crate::caller::Who;
use crate::inner::Inner;
use crate::lease::Lease;
use crate::{Caller, Door, DoorError, DoorVerb, card};

/// What the ledger keeps of a card beside the columns of its row.
#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct StoredCard {
    pub(super) changes: Vec<Change>,
    pub(super) risk: GateRisk,
    pub(super) read: Vec<ReadSummary>,
    pub(super) read_more: u64,
}

impl DoorVerb for GateList {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, caller: &Caller) -> Result<Gates, DoorError> {
        let run = match &caller.0 {
            Who::Lease(lease) => Some(lease.run.id),
            Who::Owner { .. } | Who::Anonymous { .. } => None,
        };
        let wanted = GateFilter { state: (!self.all).then_some(GateState::Pending), run };
        let list = |after, limit| door.inner.ledger.read(|reader| reader.gates(wanted, after, limit));
        let (gates, cursor) = ledger_page(self.cursor.as_deref(), self.limit, list, |row: GateRow| {
            let mine = match &caller.0 {
                Who::Owner { .. } => true,
                Who::Lease(lease) => door.asked_below(lease, &row),
                Who::Anonymous { .. } => false,
            };
            mine.then(|| GateSummary {
                gate: row.id,
                state: row.state.as_str().to_owned(),
                branch: row.branch,
                into: row.target,
                files_changed: row.changes,
                why: row.why,
                created_at: row.created_at,
                expires_at: row.expires_at,
            })
        })?;
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

/// What the run had read when it asked for the gate, as far as its card says.
pub(super) fn read_before(row: &GateRow) -> Option<Vec<ReadSummary>> {
    let stored: StoredCard = serde_json::from_value(row.card.clone()).ok()?;
    (stored.read_more == 0).then_some(stored.read)
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

impl Door {
    /// Did this lease, or one narrowed from it, ask for the gate?
    pub(super) fn asked_below(&self, lease: &Lease, row: &GateRow) -> bool {
        let leases = self.inner.leases.read();
        leases.get(&row.lease).is_some_and(|asked| descends(&leases, asked, lease.id))
    }

    /// A gate by id: any for the owner; for a bearer those that its own lease or one narrowed from it asked for.
    pub(super) fn gate_known_to(&self, caller: &Caller, id: GateId) -> Result<GateRow, DoorError> {
        let row = self.inner.ledger.read(|reader| reader.get::<GateRow>(&id)).map_err(DoorError::Ledger)?;
        let known = row.filter(|row| match &caller.0 {
            Who::Owner { .. } => true,
            Who::Lease(lease) => self.asked_below(lease, row),
            Who::Anonymous { .. } => false,
        });
        known.ok_or_else(|| self.not_known_to(caller, "gate", id.to_string()))
    }
}

impl Inner {
    pub(super) fn gate_record(&self, kind: &str, row: &GateRow, lease: &Lease) -> NewRecord {
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

    pub(super) fn gate_lease(&self, row: &GateRow) -> Result<Arc<Lease>, DoorError> {
        let lease = self.leases.read().get(&row.lease).cloned();
        lease.ok_or_else(|| DoorError::NotFound { what: "lease", name: row.lease.to_string() })
    }
}
