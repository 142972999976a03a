//! Who calls a control verb.

use std::net::IpAddr;
use std::sync::Arc;

use nas_ledger::{TokenKind, TokenRow};
use nas_trust_core::degradation::VerbClass;
use nas_types::id::RunId;
use nas_types::time::Timestamp;
use nas_types::verb::{Audience, Verb};

use crate::lease::{Lease, Run, Standing};
use crate::{Door, DoorError};

/// An authenticated (or anonymous) caller. Opaque to gateways.
pub struct Caller(pub(crate) Who);

/// Who it is.
pub(crate) enum Who {
    /// Nobody that proved anything.
    Anonymous {
        /// Where the call came from.
        peer: IpAddr,
    },
    /// The bearer of an owner token.
    Owner {
        /// Principal, `human:owner`.
        principal: String,
        /// Hash of the token, for logout.
        token_hash: [u8; 32],
    },
    /// The bearer of a lease token.
    Lease(Arc<Lease>),
}

/// A verb the Door can run. Implemented in [`crate::verb`] for every [`Verb`].
pub trait DoorVerb: Verb {
    /// What kind of act it is: the degradation of the box decides by it.
    const CLASS: VerbClass;
    /// Authorises and acts. The audience and the degradation were checked.
    fn run(self, door: &Door, caller: &Caller) -> Result<Self::Answer, DoorError>;
}

impl Door {
    /// Who calls? `bearer` is the token of the request, if any. No token gives an anonymous caller; one that is
    /// unknown or over is an error. Refusals are recorded (SPEC L1.1).
    pub fn authenticate(&self, bearer: Option<&str>, peer: IpAddr) -> Result<Caller, DoorError> {
        let Some(bearer) = bearer else { return Ok(Caller(Who::Anonymous { peer })) };
        // Tokens have 256 random bits and only their hashes are kept and compared: timing tells nothing about them.
        let hash = *blake3::hash(bearer.as_bytes()).as_bytes();
        let known = self.inner.lease_tokens.read().get(&hash).copied();
        if let Some(lease) = known.and_then(|id| self.inner.leases.read().get(&id).cloned()) {
            return Ok(Caller(Who::Lease(lease)));
        }
        let token = self.inner.ledger.read(|reader| reader.get::<TokenRow>(&hash)).map_err(DoorError::Ledger)?;
        match token {
            Some(token) if usable(&token, self.inner.clocks.wall()) => {
                Ok(Caller(Who::Owner { principal: token.principal, token_hash: hash }))
            }
            _ => {
                self.inner.refused_unauthenticated("http", "unknown-token", &peer.to_string());
                Err(DoorError::Unauthenticated(
                    "the token is not known, or is over: sign in again with 'nas owner login', or ask for a new lease"
                        .into(),
                ))
            }
        }
    }

    /// Checks the audience of a verb, then whether the box is fit for it. Refusals are recorded, on a degraded box too.
    pub(crate) fn admit<V: DoorVerb>(&self, caller: &Caller) -> Result<(), DoorError> {
        self.check_audience(caller, V::AUDIENCE, V::NAME)?;
        self.inner.admits(V::CLASS)
    }

    /// The owner's principal; anyone else is refused, and the refusal recorded.
    pub(crate) fn owner_only<'a>(&self, caller: &'a Caller) -> Result<&'a str, DoorError> {
        self.check_audience(caller, Audience::Owner, "tree/import")?;
        caller.owner()
    }

    pub(crate) fn check_audience(
        &self,
        caller: &Caller,
        audience: Audience,
        verb: &'static str,
    ) -> Result<(), DoorError> {
        match (&caller.0, audience) {
            (_, Audience::Anyone) | (Who::Owner { .. }, Audience::Owner | Audience::LeaseOrOwner) => Ok(()),
            (Who::Lease(lease), Audience::Lease | Audience::LeaseOrOwner) => {
                live(lease, verb, self.inner.clocks.boottime_ms())
                    .inspect_err(|_| self.inner.refused(lease, "lease-over", &nas_types::path::TreePath::root()))
            }
            (Who::Anonymous { peer }, Audience::Owner | Audience::Lease | Audience::LeaseOrOwner) => {
                self.inner.refused_unauthenticated("http", "no-token", &peer.to_string());
                Err(DoorError::Unauthenticated(
                    "this needs a token: a lease's, or the owner's ('nas owner login')".into(),
                ))
            }
            (Who::Lease(lease), Audience::Owner) => {
                self.inner.refused(lease, "owner-only", &nas_types::path::TreePath::root());
                Err(DoorError::Denied { rule: "owner-only".into(), reason: "only the owner may do this".to_owned() })
            }
            (Who::Owner { .. }, Audience::Lease) => Err(DoorError::Denied {
                rule: "lease-only".into(),
                reason: "this acts on the branch of a run: use the token of its lease".to_owned(),
            }),
        }
    }

    /// What a caller named is not its own, or is nothing at all: it learns no more than that, and that it asked is recorded.
    pub(crate) fn not_known_to(&self, caller: &Caller, what: &'static str, name: String) -> DoorError {
        if let Who::Lease(lease) = &caller.0 {
            self.inner.refused(lease, "not-its-own", &nas_types::path::TreePath::root());
        }
        DoorError::NotFound { what, name }
    }

    /// The run a verb is about: the caller's own, or for the owner the one that was named.
    pub(crate) fn run_of(&self, caller: &Caller, named: Option<RunId>) -> Result<Arc<Run>, DoorError> {
        let run = match (&caller.0, named) {
            (Who::Lease(lease), None) => return Ok(Arc::clone(&lease.run)),
            (Who::Lease(lease), Some(run)) if run == lease.run.id => return Ok(Arc::clone(&lease.run)),
            // Another run's id tells a bearer nothing, not even that it exists.
            (Who::Lease(_) | Who::Anonymous { .. }, named) => {
                let name = named.map_or_else(String::new, |run| run.to_string());
                return Err(self.not_known_to(caller, "run", name));
            }
            (Who::Owner { .. }, Some(run)) => run,
            (Who::Owner { .. }, None) => {
                return Err(DoorError::Invalid {
                    field: "run",
                    reason: "name the run, for example run_7qk3m2x4abcd".to_owned(),
                });
            }
        };
        let found = self.inner.runs.read().get(&run).cloned();
        found.ok_or_else(|| DoorError::NotFound { what: "run", name: run.to_string() })
    }
}

impl Caller {
    /// The run that the bearer of a lease works for.
    #[must_use]
    pub fn run(&self) -> Option<RunId> {
        match &self.0 {
            Who::Lease(lease) => Some(lease.run.id),
            Who::Owner { .. } | Who::Anonymous { .. } => None,
        }
    }

    /// Did the owner's token come with the call?
    #[must_use]
    pub fn is_owner(&self) -> bool {
        matches!(self.0, Who::Owner { .. })
    }

    /// The lease, for verbs whose audience is its bearer.
    pub(crate) fn lease(&self) -> Result<&Arc<Lease>, DoorError> {
        match &self.0 {
            Who::Lease(lease) => Ok(lease),
            Who::Owner { .. } | Who::Anonymous { .. } => {
                Err(DoorError::Unauthenticated("this needs the token of a lease".into()))
            }
        }
    }

    /// The principal, as records name it.
    pub(crate) fn name(&self) -> String {
        match &self.0 {
            Who::Owner { principal, .. } => principal.clone(),
            Who::Lease(lease) => lease.run.principal.clone(),
            Who::Anonymous { .. } => "nobody".to_owned(),
        }
    }

    /// The owner's principal, for verbs whose audience is the owner.
    pub(crate) fn owner(&self) -> Result<&str, DoorError> {
        match &self.0 {
            Who::Owner { principal, .. } => Ok(principal),
            Who::Lease(_) | Who::Anonymous { .. } => {
                Err(DoorError::Unauthenticated("this needs the owner's token".into()))
            }
        }
    }
}

fn usable(token: &TokenRow, now: Timestamp) -> bool {
    token.kind == TokenKind::Owner
        && token.revoked_at.is_none()
        && token.expires_at.is_none_or(|expires_at| now < expires_at)
}

/// A lease that is over may still be looked at by its bearer; nothing else is left of it.
fn live(lease: &Lease, verb: &'static str, boottime_ms: i64) -> Result<(), DoorError> {
    if verb == "lease/show" {
        return Ok(());
    }
    match lease.standing(boottime_ms) {
        Standing::Live => Ok(()),
        Standing::Suspended => Err(DoorError::LeaseOver(
            "the lease is suspended: the box was restarted and its clock is not trusted yet; the owner can confirm it with 'nas box trust-clock'",
        )),
        Standing::Over { .. } => Err(DoorError::LeaseOver("the lease is over: ask for a new one")),
        Standing::Revoked => Err(DoorError::LeaseOver("the lease was revoked")),
    }
}
