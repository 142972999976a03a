//! Verbs of mounts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{LeaseId, MountId};
use crate::lease::{TreeName, View};
use crate::object::Oid;
use crate::path::TreePath;
use crate::secret::Secret;
use crate::time::Timestamp;

/// Asks for a mount ticket: single use, 60 s (DESIGN §5).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MountTicket {
    /// What the run works on (its branch, or its unprotected tree), or main (read-only).
    #[serde(default)]
    pub view: View,
    /// Refuse every change through this mount.
    #[serde(default)]
    pub read_only: bool,
    /// Show this commit of main or of the run's branch, read-only and unchanging (DESIGN §3): its id, or at least the first 7
    /// digits of it.
    #[serde(default)]
    pub commit: Option<String>,
}

/// How to mount.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MountTicketAnswer {
    /// The ticket: first component of the export path.
    pub ticket: Secret,
    /// Port of NFS and MOUNT on the host that was asked.
    pub port: u16,
    /// The deepest directory that holds all paths of the lease.
    pub root: TreePath,
    /// When the ticket stops working.
    pub expires_at: Timestamp,
    /// Length of the window, in seconds.
    pub seconds: u64,
}

/// Lists mounts: the caller's own, or all for the owner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MountList {}

/// Mounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mounts {
    /// The mounts.
    pub mounts: Vec<MountInfo>,
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MountInfo {
    /// Its id.
    pub mount: MountId,
    /// Its lease.
    pub lease: LeaseId,
    /// The tree that its files are of.
    pub tree: TreeName,
    /// Which files of it: on an unprotected tree there is one view, `branch`.
    pub view: View,
    /// The commit that it shows, instead of what is there now.
    pub commit: Option<Oid>,
    /// Directory that is its root.
    pub root: TreePath,
    /// Address that may use it.
    pub peer: String,
    /// Refuses every change.
    pub read_only: bool,
    /// When it was made.
    pub created_at: Timestamp,
}
