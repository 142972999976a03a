//! How a control verb fails. Every interface maps these exhaustively; the text says what to do next.

use std::borrow::Cow;

use nas_types::object::Conflict;

/// Failure of a control verb. Failures of file operations are [`nas_types::fs::FsError`].
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// No token, or one that is not known (any more).
    #[error("{0}")]
    Unauthenticated(Cow<'static, str>),
    /// The passphrase is wrong; after several tries the next one has to wait.
    #[error("the passphrase is wrong")]
    WrongPassphrase,
    /// Known, but this is not allowed. Recorded.
    #[error("{reason} (rule {rule})")]
    Denied {
        /// Rule that decided.
        rule: Cow<'static, str>,
        /// A reason that a person understands.
        reason: String,
    },
    /// The lease behind the token is over.
    #[error("{0}")]
    LeaseOver(&'static str),
    /// What was named does not exist, or the caller may not know that it does.
    #[error("there is no {what} '{name}'")]
    NotFound {
        /// Kind of thing.
        what: &'static str,
        /// As it was named.
        name: String,
    },
    /// A field of the request makes no sense.
    #[error("{field}: {reason}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// The request makes sense, but not in the present state of things.
    #[error("{0}")]
    State(String),
    /// An idempotency key that cannot be used for this call.
    #[error("idempotency_key: {0}")]
    Key(&'static str),
    /// The call was made before under this idempotency key, and its answer held a secret that was shown once.
    #[error(
        "this was done before under this idempotency key, and the secret in its answer was shown only then: look at the \
         details, and make a new call under a new key if you need another one"
    )]
    DoneBefore {
        /// The answer without its secret.
        answer: serde_json::Value,
    },
    /// Merging would need a decision that a program must not take (SPEC BRANCH-5).
    #[error("main and the branch changed the same things: {} conflict(s), the first at {}", .0.len(), first_path(.0))]
    Conflicts(Vec<Conflict>),
    /// The box is degraded (DESIGN §4).
    #[error("the box is in level '{level}': {causes}")]
    Degraded {
        /// The level.
        level: &'static str,
        /// Why.
        causes: String,
    },
    /// Quota of the branch is spent.
    #[error("the branch has used its quota: delete files or ask the owner for a larger one")]
    Quota,
    /// The pool is down to its reserve.
    #[error("no space left: the pool is down to its reserve; delete files or recycle branches")]
    NoSpace,
    /// Too much at once; nothing was done.
    #[error("busy: try again in {retry_after_seconds} s")]
    Busy {
        /// When to come back.
        retry_after_seconds: u64,
    },
    /// The ledger could not be written: the act did not happen (SPEC REC-1).
    #[error("{}, so nothing was done", ledger_sentence(.0))]
    Ledger(#[source] nas_ledger::LedgerError),
    /// The store failed.
    #[error("the store failed while {doing}")]
    Store {
        /// What was being done.
        doing: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

fn first_path(conflicts: &[Conflict]) -> String {
    conflicts.first().map_or_else(String::new, |c| c.path.to_string())
}

/// A full disk is the one failure of the ledger that a caller can do something about.
fn ledger_sentence(error: &nas_ledger::LedgerError) -> &'static str {
    if error.is_full() {
        "the ledger's disk is full (free some space on it and try again)"
    } else {
        "the ledger could not be written"
    }
}

impl DoorError {
    /// Stable word for programs, part of the API.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unauthenticated(_) => "unauthenticated",
            Self::WrongPassphrase => "wrong_passphrase",
            Self::Denied { .. } => "denied",
            Self::LeaseOver(_) => "lease_over",
            Self::NotFound { .. } => "not_found",
            Self::Invalid { .. } => "invalid",
            Self::State(_) => "state",
            Self::Key(_) => "idempotency_key",
            Self::DoneBefore { .. } => "done_before",
            Self::Conflicts(_) => "conflicts",
            Self::Degraded { .. } => "degraded",
            Self::Quota => "quota",
            Self::NoSpace => "no_space",
            Self::Busy { .. } => "busy",
            Self::Ledger(_) => "ledger",
            Self::Store { .. } => "store",
        }
    }

    /// Can the same call succeed later without a change?
    #[must_use]
    pub fn retryable(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::NoSpace | Self::Ledger(_) | Self::Degraded { .. })
    }
}
