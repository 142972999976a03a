//! Verbs about the box itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Head;
use crate::time::Timestamp;

/// How is the box? Without an owner or lease token the answer holds only `version` and `level`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BoxStatus {}

/// State of the box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BoxStatusAnswer {
    /// Version of nasd.
    pub version: String,
    /// `none`, `no_new_runs`, `read_only` or `sealed` (DESIGN §4, degradation).
    pub level: String,
    /// Why the level is not `none`, one sentence each.
    pub causes: Vec<String>,
    /// What the caller may know beyond that.
    pub details: Option<BoxDetails>,
}

/// More about the box, for callers with a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BoxDetails {
    /// `btrfs` or `copy`.
    pub engine: String,
    /// Number of the current generation of main.
    pub generation: u64,
    /// Commit of the current generation.
    pub commit: String,
    /// Where NFS listens, `address:port`.
    pub nfs: String,
    /// Bytes of the pool.
    pub pool_bytes: u64,
    /// Bytes that ordinary writes may still use.
    pub free_bytes: u64,
    /// Bytes kept back so that deleting always works.
    pub reserve_bytes: u64,
    /// Live branches.
    pub branches: u64,
    /// Gates that wait for a decision.
    pub gates_pending: u64,
    /// Is the wall clock trusted?
    pub clock_trusted: bool,
    /// The box's time.
    pub time: Timestamp,
    /// Head of the ledger.
    pub head: Head,
    /// Has an owner been set up?
    pub owner_ready: bool,
}

/// The owner confirms that the wall clock is right: suspended leases go on.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BoxTrustClock {
    /// The owner's passphrase.
    pub passphrase: crate::secret::Secret,
}

/// The owner lowers a degradation whose cause is gone.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BoxResume {
    /// The owner's passphrase.
    pub passphrase: crate::secret::Secret,
}
