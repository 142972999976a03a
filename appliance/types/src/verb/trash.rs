//! Verbs of the trash (SPEC BRANCH-4, L0.3): what merges removed from main, for a window of time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::RunId;
use crate::object::{Entry, Oid};
use crate::path::TreePath;
use crate::secret::Secret;
use crate::time::Timestamp;

/// Lists what merges removed and main does not have again, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrashList {
    /// Where to go on, from an earlier answer.
    #[serde(default)]
    pub cursor: Option<String>,
    /// At most this many (1 to 1000, 200 by default).
    #[serde(default)]
    pub limit: Option<u32>,
}

/// What is in the trash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trash {
    /// The entries.
    pub entries: Vec<Trashed>,
    /// Days that a deletion stays restorable here.
    pub days: u32,
    /// Present when more follow.
    pub cursor: Option<String>,
}

/// One deleted path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trashed {
    /// Where it was.
    pub path: TreePath,
    /// What was there.
    pub entry: Entry,
    /// When it was deleted.
    pub deleted_at: Timestamp,
    /// The merge that deleted it.
    pub commit: Oid,
    /// The run that asked for it.
    pub run: Option<RunId>,
}

/// Brings a deleted path back, with all below it, as it was before the merge that deleted it. The restore is a merge
/// of its own; nothing that main has now is replaced.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrashRestore {
    /// Where it was.
    pub path: TreePath,
    /// The merge that deleted it, as the list says: its id or at least the first 7 digits.
    pub commit: String,
    /// The owner's passphrase.
    pub passphrase: Secret,
}

/// What a restore from the trash did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrashRestored {
    /// The commit on main.
    pub commit: Oid,
    /// Its record.
    pub record: u64,
    /// Paths that are there again.
    pub restored: u64,
}
