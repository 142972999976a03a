//! `run/…`.

use nas_ledger::{LedgerError, NewRecord, RunRow, RunState};
use nas_store::CommitReason;
use nas_trust_core::degradation::VerbClass;
use nas_types::lease::{BranchName, TreeName};
use nas_types::verb::{RunEnd, RunInfo, RunList, RunShow, Runs};

use super::ledger_page;
use crate::{Caller, Door, DoorError, DoorVerb};

impl DoorVerb for RunList {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, _caller: &Caller) -> Result<Runs, DoorError> {
        let list = |after, limit| door.inner.ledger.read(|reader| reader.runs(self.role.as_ref(), after, limit));
        let (runs, cursor) = ledger_page(self.cursor.as_deref(), self.limit, list, |row| Some(info(row)))?;
        Ok(Runs { runs, cursor })
    }
}

impl DoorVerb for RunShow {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, caller: &Caller) -> Result<RunInfo, DoorError> {
        let run = door.run_of(caller, self.run)?;
        door.run_info(run.id)
    }
}

impl DoorVerb for RunEnd {
    const CLASS: VerbClass = VerbClass::Narrow;

    fn run(self, door: &Door, caller: &Caller) -> Result<RunInfo, DoorError> {
        let run = door.run_of(caller, self.run)?;
        door.may_end(caller, nas_policy::Act::DiscardBranch)?;
        let by = caller.name();
        // What it did is committed and stays on the branch; what it proposed stays to be decided.
        if let Some(branch) = door.inner.store.branch(&run.branch) {
            branch
                .commit(CommitReason::Explicit("End of the run".to_owned()))
                .map_err(|error| crate::store_error("committing the branch", error))?;
        }
        let now = door.inner.clocks.wall();
        let clocks = door.inner.now();
        let leases: Vec<_> = {
            let leases = door.inner.leases.read();
            leases.values().filter(|lease| lease.run.id == run.id).cloned().collect()
        };
        let manifest = crate::authority::TakenManifest::take(&run);
        let written = door.inner.ledger.write_essential(|tx| {
            manifest.store(tx, now)?;
            for lease in &leases {
                tx.store_lease_time(lease.id, &lease.expire(&clocks))?;
            }
            let row = tx.need::<RunRow>(&run.id)?;
            tx.update(&RunRow { state: RunState::Ended, ended_at: Some(now), ..row })?;
            tx.append(&NewRecord {
                run: Some(run.id),
                principal: Some(by.clone()),
                detail: run.in_detail(serde_json::Value::Null),
                ..NewRecord::event("run.end", now)
            })?;
            Ok::<_, LedgerError>(())
        });
        written.map_err(DoorError::Ledger)?;
        manifest.stored();
        door.run_info(run.id)
    }
}

impl Door {
    /// A run as the API shows it.
    pub(crate) fn run_info(&self, run: nas_types::id::RunId) -> Result<RunInfo, DoorError> {
        self.inner.ledger.read(|reader| reader.need::<RunRow>(&run)).map(info).map_err(DoorError::Ledger)
    }

    /// A run as a commit names it; none when no such run is known, as in the first commit of main.
    pub(crate) fn run_info_if_known(&self, run: nas_types::id::RunId) -> Result<Option<RunInfo>, DoorError> {
        let row = self.inner.ledger.read(|reader| reader.get::<RunRow>(&run)).map_err(DoorError::Ledger)?;
        Ok(row.map(info))
    }
}

fn info(row: RunRow) -> RunInfo {
    RunInfo {
        run: row.id,
        branch: row.tree.is_none().then(|| BranchName { role: row.role.clone(), run: row.id }),
        tree: row.tree.unwrap_or_else(TreeName::protected),
        role: row.role,
        principal: row.principal,
        on_behalf_of: row.on_behalf_of,
        purpose: row.purpose,
        state: row.state.as_str().to_owned(),
        started_at: row.started_at,
        ended_at: row.ended_at,
    }
}
