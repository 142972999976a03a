//! Verbs of a person's standing branch (DESIGN §3): their own edits are merged by themselves after a time of quiet.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::RunId;
use crate::lease::BranchName;
use crate::object::Oid;
use crate::path::TreePath;
use crate::secret::Secret;
use crate::time::Timestamp;
use crate::verb::LeaseInfo;

/// Opens the caller's standing branch, or issues a fresh lease on the one that is open. What is written there goes into main
/// without a gate for each change: that is why it takes the passphrase.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StandingOpen {
    /// What the branch may change, as the paths of a lease; everything, or what it is open for, when left out.
    #[serde(default)]
    pub paths: Option<Vec<String>>,
    /// The owner's passphrase.
    pub passphrase: Secret,
}

/// The standing branch with a fresh lease on it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct StandingOpened {
    /// The branch.
    pub standing: StandingInfo,
    /// The lease: for mounting. It is replaced by another one before it ends, as long as the branch stands and is mounted.
    pub lease: LeaseInfo,
    /// Its token. Shown once; only its hash is kept.
    pub token: Secret,
}

/// Shows the caller's standing branch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StandingShow {}

/// Merges what is on the standing branch and ends it: its leases end, its files stay as long as any branch does.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StandingClose {
    /// The owner's passphrase.
    pub passphrase: Secret,
}

/// A standing branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StandingInfo {
    /// Its run.
    pub run: RunId,
    /// The branch.
    pub branch: BranchName,
    /// Whose it is.
    pub principal: String,
    /// What it may change.
    pub paths: Vec<String>,
    /// `open`, `closed`, or `over` when its run was ended or a lease of it revoked: nothing of it is merged any more.
    pub state: String,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// Paths changed that main does not have yet.
    pub waiting: u64,
    /// What main took of it last.
    pub merged: Option<Oid>,
    /// Why nothing is merged now, if so.
    pub stuck: Option<StandingStuck>,
}

/// Why edits on a standing branch are not merged. They are tried again when the branch changes or main moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StandingStuck {
    /// A sentence that says what to do.
    pub because: String,
    /// The paths it is about, at most 100.
    pub paths: Vec<TreePath>,
}
