//! Verbs of branches and checkpoints (SPEC BRANCH).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::RunId;
use crate::lease::BranchName;
use crate::object::{Change, Oid};
use crate::time::Timestamp;

/// Live branches: the caller's own, or all for the owner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchList {}

/// Branches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Branches {
    /// The branches.
    pub branches: Vec<BranchInfo>,
}

/// One branch: the caller's own when left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchShow {
    /// The run that owns it.
    #[serde(default)]
    pub run: Option<RunId>,
}

/// What a branch is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BranchInfo {
    /// Its name.
    pub branch: BranchName,
    /// Commit of main it was forked from.
    pub base: Oid,
    /// Its newest commit.
    pub tip: Oid,
    /// Paths changed since the newest commit.
    pub dirty_paths: u64,
    /// Bytes that count against the quota.
    pub used_bytes: u64,
    /// The quota (SPEC BRANCH-6).
    pub quota_bytes: u64,
    /// `live` or `recycled`.
    pub state: String,
    /// When it was forked.
    pub created_at: Timestamp,
    /// When it is recycled, unless a gate pins it.
    pub expires_at: Timestamp,
}

/// What a branch changed against the commit it was forked from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchDiff {
    /// The run that owns it; the caller's own when left out.
    #[serde(default)]
    pub run: Option<RunId>,
    /// Also the text of the changes.
    #[serde(default)]
    pub text: bool,
}

/// Changes of a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BranchDiffAnswer {
    /// Compared from.
    pub from: Oid,
    /// Compared to.
    pub to: Oid,
    /// Sorted by path.
    pub changes: Vec<Change>,
    /// Unified diff, when asked for.
    pub text: Option<String>,
}

/// Commits what is on the caller's branch now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchCommit {
    /// First line of the commit's message.
    #[serde(default)]
    pub message: Option<String>,
}

/// The newest commit of the branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BranchCommitted {
    /// The commit.
    pub commit: Oid,
    /// False: nothing had changed since it.
    pub made: bool,
}

/// Gives a branch up: its files are gone, its leases are revoked. Refused while a gate pins it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchRecycle {
    /// The run that owns it; the caller's own when left out.
    #[serde(default)]
    pub run: Option<RunId>,
}

/// Brings the caller's branch back to a checkpoint or commit, exactly: files that did not exist then are
/// gone. What is there now is committed first, so a restore can be undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchRestore {
    /// Name of a checkpoint, or a commit id.
    pub to: String,
}

/// What a restore did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BranchRestored {
    /// Commit that holds what was there before.
    pub before: Oid,
    /// Commit after the restore.
    pub commit: Oid,
    /// Paths that changed.
    pub changed: u64,
}

/// Names the present state of the caller's branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointCreate {
    /// 1 to 64 of `a-z A-Z 0-9 . _ -`, not starting with `.` or `-`.
    pub name: String,
}

/// A named state of a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointInfo {
    /// Its name.
    pub name: String,
    /// Its commit.
    pub commit: Oid,
}

/// Checkpoints of a branch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointList {
    /// The run that owns the branch; the caller's own when left out.
    #[serde(default)]
    pub run: Option<RunId>,
}

/// Checkpoints, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoints {
    /// The checkpoints.
    pub checkpoints: Vec<CheckpointInfo>,
}
