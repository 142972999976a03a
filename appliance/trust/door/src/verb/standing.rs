//! `standing/open`, `standing/show`, `standing/close`. What happens by itself is in [`crate::standing`].

use nas_policy::{Act, Effect, PolicyRequest, Subject, Target};
use nas_trust_core::PathSet;
use nas_trust_core::degradation::VerbClass;
use nas_types::verb::{StandingClose, StandingInfo, StandingOpen, StandingOpened, StandingShow};

use crate::{Caller, Door, DoorError, DoorVerb};

impl DoorVerb for StandingOpen {
    const CLASS: VerbClass = VerbClass::OpenRun;

    fn run(self, door: &Door, caller: &Caller) -> Result<StandingOpened, DoorError> {
        let owner = caller.owner()?;
        door.check_passphrase(&self.passphrase)?;
        let subject = Subject::owner(owner).with_passphrase();
        let decision = door.inner.policy.evaluate(&PolicyRequest::new(subject, Act::OpenRun, Target::Box));
        if decision.effect != Effect::Allow {
            return Err(crate::denied(&decision));
        }
        let paths = self.paths.map(|globs| PathSet::from_globs(&globs)).transpose();
        let paths = paths.map_err(|error| DoorError::Invalid { field: "paths", reason: error.to_string() })?;
        let (lease, token) = door.inner.open_standing(owner, paths, &decision)?;
        let standing = door.inner.standing_info(owner)?;
        Ok(StandingOpened { standing, lease: door.inner.lease_info(&lease), token })
    }
}

impl DoorVerb for StandingShow {
    const CLASS: VerbClass = VerbClass::Read;

    fn run(self, door: &Door, caller: &Caller) -> Result<StandingInfo, DoorError> {
        door.inner.standing_info(caller.owner()?)
    }
}

impl DoorVerb for StandingClose {
    const CLASS: VerbClass = VerbClass::Narrow;

    fn run(self, door: &Door, caller: &Caller) -> Result<StandingInfo, DoorError> {
        let owner = caller.owner()?;
        door.check_passphrase(&self.passphrase)?;
        door.inner.close_standing(owner)
    }
}
