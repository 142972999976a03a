//! Verbs of leases (SPEC LEASE).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{LeaseId, RunId};
use crate::lease::{Action, BranchName, RoleName, TreeName};
use crate::secret::Secret;
use crate::time::Timestamp;

/// Issues a lease. The owner starts a run with it (and so a branch); the bearer of a lease gets a
/// child lease of the same run, which can only be narrower (SPEC LEASE-2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseCreate {
    /// Role of the agent, e.g. `cleo`. Left out for a child lease: it is the parent's.
    #[serde(default)]
    pub role: Option<RoleName>,
    /// The tree to work on; the protected one when left out, and always for a child.
    #[serde(default)]
    pub tree: Option<TreeName>,
    /// `/dir/**` (a directory and all below it) or `/file` (one path). At least one.
    pub paths: Vec<String>,
    /// What it allows.
    pub actions: Vec<Action>,
    /// Life time in seconds; 4 h by default, 24 h at most (SPEC LEASE-1).
    #[serde(default)]
    pub ttl_seconds: Option<u64>,
    /// What the run is for. Recorded, not enforced (SPEC LEASE-9).
    #[serde(default)]
    pub purpose: Option<String>,
    /// Bytes that the run's branch may hold: live files and the objects its commits add (SPEC BRANCH-6).
    #[serde(default)]
    pub quota_bytes: Option<u64>,
}

/// A lease and, once only, its token.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LeaseCreated {
    /// The lease.
    pub lease: LeaseInfo,
    /// Shown once; only its hash is kept.
    pub token: Secret,
}

/// What a lease is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseInfo {
    /// Its id.
    pub lease: LeaseId,
    /// The run it belongs to.
    pub run: RunId,
    /// The tree it works on.
    pub tree: TreeName,
    /// The run's branch; none on an unprotected tree, where what is written is there at once.
    pub branch: Option<BranchName>,
    /// Who acts, e.g. `agent:cleo`.
    pub principal: String,
    /// For whom, e.g. `human:owner`.
    pub on_behalf_of: Option<String>,
    /// The lease it was derived from.
    pub parent: Option<LeaseId>,
    /// Purpose as stated.
    pub purpose: Option<String>,
    /// Paths, as given.
    pub paths: Vec<String>,
    /// Actions.
    pub actions: Vec<Action>,
    /// `active`, `suspended`, `expired` or `revoked`.
    pub state: String,
    /// When it was issued.
    pub created_at: Timestamp,
    /// When it ends at the latest.
    pub expires_at: Timestamp,
    /// Seconds of life left (0 when over).
    pub remaining_seconds: u64,
}

/// All leases, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseList {
    /// Also those that are over.
    #[serde(default)]
    pub all: bool,
    /// Where to go on, from an earlier answer.
    #[serde(default)]
    pub cursor: Option<String>,
    /// At most this many (1 to 1000, 200 by default).
    #[serde(default)]
    pub limit: Option<u32>,
}

/// Leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Leases {
    /// The leases.
    pub leases: Vec<LeaseInfo>,
    /// Present when more follow.
    pub cursor: Option<String>,
}

/// One lease: the caller's own when left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseShow {
    /// Which.
    #[serde(default)]
    pub lease: Option<LeaseId>,
}

/// Ends a lease and all its descendants at once (SPEC LEASE-3). A bearer may revoke its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRevoke {
    /// Which.
    pub lease: LeaseId,
    /// Why, for the record.
    #[serde(default)]
    pub why: Option<String>,
}

/// What a revocation ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseRevoked {
    /// The lease and its descendants, as far as they were not revoked before.
    pub revoked: Vec<LeaseId>,
    /// The record of the revocation; of the first one when it was revoked already.
    pub record: u64,
    /// When it was revoked.
    pub revoked_at: Timestamp,
    /// It was revoked already, and nothing changed.
    #[serde(default)]
    pub already_there: bool,
}
