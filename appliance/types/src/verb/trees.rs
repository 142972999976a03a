//! Verbs of the trees themselves: making, showing and removing them (DESIGN §3). What is in one is in [`super::tree`](super).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lease::TreeName;
use crate::secret::Secret;
use crate::time::Timestamp;

/// Makes an unprotected tree: plain NAS space, without branches, gates or history.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TreeCreate {
    /// Its name, for example `media`.
    pub tree: TreeName,
    /// The owner's passphrase.
    pub passphrase: Secret,
}

/// Shows one tree, or all that the caller may know of: for a bearer the protected one and that of its lease.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TreeShow {
    /// Which.
    #[serde(default)]
    pub tree: Option<TreeName>,
}

/// Removes an unprotected tree. Its files are kept for the days of the trash; until then it can be restored.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TreeRemove {
    /// Which.
    pub tree: TreeName,
    /// The owner's passphrase.
    pub passphrase: Secret,
}

/// Brings a removed tree back.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TreeRestore {
    /// Which.
    pub tree: TreeName,
    /// The owner's passphrase.
    pub passphrase: Secret,
}

/// Trees, the protected one first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trees {
    /// The trees.
    pub trees: Vec<TreeInfo>,
}

/// What a tree is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TreeInfo {
    /// Its name.
    pub tree: TreeName,
    /// It changes only by merges, and has a history.
    pub protected: bool,
    /// Which engine keeps it: `btrfs` or `copy`.
    pub engine: String,
    /// `live`, `removed`, or `missing` when its directory is not in the pool.
    pub state: String,
    /// When it was made. Absent for the protected one: that is as old as the box.
    pub created_at: Option<Timestamp>,
    /// When a removed one is gone for good.
    pub gone_at: Option<Timestamp>,
}
