//! Verbs of the flight recorder (SPEC REC).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{LeaseId, RunId};
use crate::object::Oid;
use crate::path::TreePath;
use crate::secret::Secret;
use crate::time::Timestamp;

/// Records, newest first unless `after` is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordList {
    /// Only this run.
    #[serde(default)]
    pub run: Option<RunId>,
    /// Only this kind.
    #[serde(default)]
    pub kind: Option<String>,
    /// Where to go on, from an earlier answer.
    #[serde(default)]
    pub cursor: Option<String>,
    /// At most this many (1 to 1000, 200 by default).
    #[serde(default)]
    pub limit: Option<u32>,
}

/// Records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Records {
    /// The records.
    pub records: Vec<RecordInfo>,
    /// Present when more follow.
    pub cursor: Option<String>,
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordInfo {
    /// Its number, from 1 without a gap.
    pub seq: u64,
    /// When.
    pub time: Timestamp,
    /// What, e.g. `merge.intent`.
    pub kind: String,
    /// Run.
    pub run: Option<RunId>,
    /// Who.
    pub principal: Option<String>,
    /// For whom.
    pub on_behalf_of: Option<String>,
    /// Lease.
    pub lease: Option<LeaseId>,
    /// Purpose as stated.
    pub purpose: Option<String>,
    /// Path it is about.
    pub path: Option<TreePath>,
    /// Commit it is about.
    pub commit: Option<Oid>,
    /// Digest of the read manifest.
    pub read_manifest: Option<String>,
    /// `allow`, `gate` or `deny`.
    pub effect: Option<String>,
    /// Rule that decided.
    pub rule: Option<String>,
    /// Facts beside these.
    #[serde(default)]
    pub detail: serde_json::Value,
    /// The intent this is the outcome of.
    pub intent: Option<u64>,
    /// Was anything external read? `unknown` until labels exist.
    #[serde(default)]
    pub taint_external: String,
    /// Highest sensitivity read. `unknown` until labels exist.
    #[serde(default)]
    pub taint_sensitivity: String,
    /// Number of the rule by which the hash is computed (docs/record-chain.md).
    #[serde(default)]
    pub format: u32,
    /// Day of the chain, counted from 1970-01-01.
    #[serde(default)]
    pub day: i64,
    /// Hash of the record before, hexadecimal.
    #[serde(default)]
    pub prev_hash: String,
    /// Hash of this record, hexadecimal; it covers the one before.
    pub hash: String,
}

/// Asks for the head of the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordHead {}

/// Count and hash of the newest record: keep it outside the box, and a cut tail is found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Head {
    /// Number of records.
    pub seq: u64,
    /// Hash of the newest, hexadecimal.
    pub hash: String,
}

/// Recomputes the whole chain (SPEC REC-3).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordVerify {
    /// A head kept from earlier: the chain must contain it.
    #[serde(default)]
    pub anchor: Option<Head>,
}

/// Result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordVerified {
    /// Everything fits: every hash, every day, the box's own anchor and the one that was given.
    pub ok: bool,
    /// Head of the chain.
    pub head: Head,
    /// Days with records.
    pub days: u64,
    /// Number of the first record that does not fit.
    pub first_bad: Option<u64>,
    /// What does not fit, a sentence.
    pub because: Option<String>,
    /// The anchored head it was compared with.
    pub anchor: Option<Head>,
    /// Losses that the owner accepted, oldest first: what was recorded there is gone, however well the rest fits.
    #[serde(default)]
    pub losses: Vec<LossAccepted>,
}

/// Accepts that records are lost: the ledger does not hold what was anchored and will not come back. Leases that are in
/// force in what is left end, since their revocation may be among what was lost. `box/resume` works again after it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordAcceptLoss {
    /// The owner's passphrase.
    pub passphrase: Secret,
    /// Why, for the record.
    #[serde(default)]
    pub why: Option<String>,
}

/// A loss of records that the owner accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LossAccepted {
    /// When.
    pub time: Timestamp,
    /// The newest anchored head that was still there: what follows it may be lost.
    pub kept: Head,
    /// The anchored head that was not there: up to here records are lost.
    pub lost: Head,
    /// The record that tells of it: the chain is anchored by it from then on.
    pub record: Head,
}
