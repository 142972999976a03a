//! What this gateway needs of the Door. A trait, so that everything in front of the Door can be
//! tested without one; the only other implementation is in the tests.

use std::io::Read;
use std::net::IpAddr;

use nas_door::{Caller, Door, DoorError, DoorVerb};
use nas_types::verb::{TreeImport, TreeImported};

/// The blocking calls of the Door that HTTP makes.
pub(crate) trait Control: Send + Sync + 'static {
    /// Who calls.
    type Caller: Send;
    /// See [`Door::authenticate`].
    fn authenticate(&self, bearer: Option<&str>, peer: IpAddr) -> Result<Self::Caller, DoorError>;
    /// See [`Door::call`].
    fn call<V: DoorVerb>(&self, caller: &Self::Caller, verb: V) -> Result<V::Answer, DoorError>;
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

    fn call<V: DoorVerb>(&self, caller: &Caller, verb: V) -> Result<V::Answer, DoorError> {
        Self::call(self, caller, verb)
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
