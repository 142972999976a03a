//! `box/…`: the box itself.

use nas_ledger::{LedgerError, NewRecord};
use nas_trust_core::clock::Event;
use nas_trust_core::degradation::{Cause, Level, LoweredBy, VerbClass};
use nas_types::verb::{BoxDetails, BoxResume, BoxStatus, BoxStatusAnswer, BoxTrustClock};

use super::owner::OWNER;
use crate::caller::Who;
use crate::{Caller, Door, DoorError, DoorVerb};

impl DoorVerb for BoxStatus {
    const CLASS: VerbClass = VerbClass::Status;

    fn run(self, door: &Door, caller: &Caller) -> Result<BoxStatusAnswer, DoorError> {
        let details = match &caller.0 {
            Who::Anonymous { .. } => None,
            Who::Owner { .. } | Who::Lease(_) => Some(door.details()?),
        };
        Ok(door.status(details))
    }
}

impl DoorVerb for BoxTrustClock {
    const CLASS: VerbClass = VerbClass::Recover;

    fn run(self, door: &Door, caller: &Caller) -> Result<BoxStatusAnswer, DoorError> {
        let owner = caller.owner()?;
        door.check_passphrase(&self.passphrase)?;
        let record = NewRecord {
            principal: Some(owner.to_owned()),
            ..NewRecord::event("clock.trust", door.inner.clocks.wall())
        };
        door.inner.ledger.write_essential(|tx| tx.append(&record)).map_err(DoorError::Ledger)?;
        door.inner.clock_trust.lock().step(Event::OwnerConfirmed);
        door.inner.look_at_clock();
        if let Some(doubt) = door.inner.clock_trust.lock().doubt() {
            return Err(DoorError::State(format!("{doubt}: set the time of the box first")));
        }
        Ok(door.status(Some(door.details()?)))
    }
}

impl DoorVerb for BoxResume {
    const CLASS: VerbClass = VerbClass::Recover;

    fn run(self, door: &Door, caller: &Caller) -> Result<BoxStatusAnswer, DoorError> {
        let owner = caller.owner()?;
        door.check_passphrase(&self.passphrase)?;
        let report = door.inner.ledger.verify(door.inner.anchor.lock().last()).map_err(DoorError::Ledger)?;
        if let Some((seq, fault)) = report.fault {
            return Err(DoorError::State(format!(
                "the ledger does not verify at record {seq}: {fault}; restore it, or, when its end is lost for good, \
                 'nas record accept-loss'"
            )));
        }
        let record =
            NewRecord { principal: Some(owner.to_owned()), ..NewRecord::event("box.resume", door.inner.clocks.wall()) };
        door.inner.ledger.write_essential(|tx| tx.append(&record)).map_err(DoorError::Ledger)?;
        {
            let mut degradation = door.inner.degradation.lock();
            for cause in [Cause::Ledger, Cause::Owner] {
                degradation
                    .lower(cause, Level::None, LoweredBy::Owner)
                    .map_err(|error| DoorError::State(error.to_string()))?;
            }
            door.inner.level_changed(&degradation);
        }
        Ok(door.status(Some(door.details()?)))
    }
}

impl Door {
    fn status(&self, details: Option<BoxDetails>) -> BoxStatusAnswer {
        let degradation = self.inner.degradation.lock();
        BoxStatusAnswer {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            level: degradation.level().as_str().to_owned(),
            causes: degradation.sentences().map(str::to_owned).collect(),
            details,
        }
    }

    fn details(&self) -> Result<BoxDetails, DoorError> {
        let inner = &self.inner;
        let (pending, owner_ready) = inner
            .ledger
            .read(|reader| {
                let pending = reader.gates_waiting_count()?;
                let owner = reader.get::<nas_ledger::PrincipalRow>(&OWNER.to_owned())?;
                Ok::<_, LedgerError>((pending, owner.is_some_and(|owner| owner.passphrase_hash.is_some())))
            })
            .map_err(DoorError::Ledger)?;
        let space = inner
            .store
            .space()
            .pool_space()
            .map_err(|source| DoorError::Store { doing: "measuring the pool", source: Box::new(source) })?;
        let main = inner.store.main().pointer();
        Ok(BoxDetails {
            engine: inner.store.engine_name().to_owned(),
            generation: main.number,
            commit: main.commit.to_string(),
            nfs: inner.options.nfs.to_string(),
            pool_bytes: space.total_bytes,
            free_bytes: space.free_bytes,
            reserve_bytes: inner.store.space().reserve_bytes(),
            branches: inner.store.branches().len() as u64,
            gates_pending: pending,
            clock_trusted: inner.now().trusted,
            time: self.inner.clocks.wall(),
            head: inner.head().map_err(DoorError::Ledger)?,
            owner_ready,
        })
    }
}
