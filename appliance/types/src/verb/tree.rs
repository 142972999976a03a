//! Verbs of trees and their history.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lease::View;
use crate::object::{EntryKind, Oid};
use crate::path::TreePath;
use crate::time::Timestamp;

/// First line of the body of `tree/import`, as JSON; after its newline the body is a tar stream of what to
/// put below `into`. So nothing of it, the passphrase least of all, is in a URL.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TreeImport {
    /// Directory in main that receives the files. It is made when absent; files in it that the
    /// stream does not name stay.
    pub into: TreePath,
    /// Why, for the record.
    #[serde(default)]
    pub why: Option<String>,
    /// The owner's passphrase: an import changes main.
    pub passphrase: crate::secret::Secret,
}

/// What an import did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TreeImported {
    /// The merge commit on main.
    pub commit: Oid,
    /// Its record.
    pub record: u64,
    /// Files, symlinks and directories that were read.
    pub entries: u64,
    /// Bytes of file content.
    pub bytes: u64,
    /// What the tree cannot hold (device nodes, sockets, …), one sentence each, at most 100.
    pub skipped: Vec<String>,
}

/// Lists a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TreeList {
    /// Directory to list.
    pub path: TreePath,
    /// `main`, or the caller's branch.
    #[serde(default)]
    pub view: View,
    /// List the directory as it was in this commit: its id or at least the first 7 digits.
    #[serde(default)]
    pub commit: Option<String>,
    /// Where to go on, from an earlier answer.
    #[serde(default)]
    pub cursor: Option<String>,
    /// At most this many entries (1 to 1000, 200 by default).
    #[serde(default)]
    pub limit: Option<u32>,
}

/// A directory's entries, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TreeListing {
    /// The entries.
    pub entries: Vec<TreeEntry>,
    /// Present when more follow.
    pub cursor: Option<String>,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TreeEntry {
    /// Full path.
    pub path: TreePath,
    /// Kind.
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u32,
    /// Length in bytes.
    pub size: u64,
}

/// History of main, or of the caller's branch, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TreeLog {
    /// `main`, or the caller's branch.
    #[serde(default)]
    pub view: View,
    /// Where to go on, from an earlier answer.
    #[serde(default)]
    pub cursor: Option<String>,
    /// At most this many commits (1 to 1000, 50 by default).
    #[serde(default)]
    pub limit: Option<u32>,
}

/// Commits, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TreeLogAnswer {
    /// The commits.
    pub commits: Vec<CommitInfo>,
    /// Present when more follow.
    pub cursor: Option<String>,
}

/// One commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommitInfo {
    /// Its id.
    pub commit: Oid,
    /// First line of its message.
    pub summary: String,
    /// When it was made.
    pub time: Timestamp,
    /// Its parents.
    pub parents: Vec<Oid>,
    /// Trailers of SPEC GIT-1: `Run`, `Lease`, `Principal`, …
    pub trailers: Vec<(String, String)>,
}
