//! What this gateway needs of the Door. A trait, so that everything in front of the Door can be
//! tested without one; the only other implementation is in the tests.

use std::io::Read;
use std::net::IpAddr;

use nas_door::{Answered, Caller, Door, DoorError, DoorVerb, Once};
use nas_types::id::RunId;
use nas_types::verb::{TreeImport, TreeImported};

/// Who takes a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Share {
    /// The owner.
    Owner,
    /// All leases of a run together: a bearer can make itself as many child leases as it likes.
    Run(RunId),
    /// Everybody without a token together.
    Nobody,
}

/// The blocking calls of the Door that HTTP makes.
pub(crate) trait Control: Send + Sync + 'static {
    /// Who calls.
    type Caller: Send;
    /// See [`Door::authenticate`].
    fn authenticate(&self, bearer: Option<&str>, peer: IpAddr) -> Result<Self::Caller, DoorError>;
    /// Whose share of the workers a call takes.
    fn share(&self, caller: &Self::Caller) -> Share;
    /// See [`Door::call`].
    fn call<V: DoorVerb>(&self, caller: &Self::Caller, verb: V) -> Result<V::Answer, DoorError>;
    /// See [`Door::call_once`].
    fn call_once<V: DoorVerb>(
        &self,
        caller: &Self::Caller,
        verb: V,
        once: &Once,
    ) -> Result<Answered<V::Answer>, DoorError>;
    /// See [`Door::tree_import`].
    fn tree_import(
        &self,
        caller: &Self::Caller,
        request: TreeImport,
        body: &mut dyn Read,
    ) -> Result<TreeImported, DoorError>;
}

impl Control for Door {
    type Caller = Caller;

    fn authenticate(&self, bearer: Option<&str>, peer: IpAddr) -> Result<Caller, DoorError> {
        Self::authenticate(self, bearer, peer)
    }

    fn share(&self, caller: &Caller) -> Share {
        match caller.run() {
            Some(run) => Share::Run(run),
            None if caller.is_owner() => Share::Owner,
            None => Share::Nobody,
        }
    }

    fn call<V: DoorVerb>(&self, caller: &Caller, verb: V) -> Result<V::Answer, DoorError> {
        Self::call(self, caller, verb)
    }

    fn call_once<V: DoorVerb>(&self, caller: &Caller, verb: V, once: &Once) -> Result<Answered<V::Answer>, DoorError> {
        Self::call_once(self, caller, verb, once)
    }

    fn tree_import(
        &self,
        caller: &Caller,
        request: TreeImport,
        body: &mut dyn Read,
    ) -> Result<TreeImported, DoorError> {
        Self::tree_import(self, caller, request, body)
    }
}
