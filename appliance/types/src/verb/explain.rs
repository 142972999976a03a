//! The verb that answers "why is this here?" (SPEC REC-4).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CommitInfo, GateDecision, LeaseInfo, ReadSummary, RecordInfo, RunInfo};
use crate::id::GateId;
use crate::object::{Change, Oid};

/// Explains a commit of main or of a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainCommit {
    /// A commit id, or at least 7 of its first digits.
    pub commit: String,
}

/// How a commit came to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The commit.
    pub commit: CommitInfo,
    /// Why something is missing below, for a person: the files of a squashed or recycled commit are not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Commits on the branch that went into it, oldest first.
    pub from: Vec<Oid>,
    /// The run.
    pub run: Option<RunInfo>,
    /// The lease.
    pub lease: Option<LeaseInfo>,
    /// The gate and its decision.
    pub gate: Option<GateExplained>,
    /// What the run read.
    pub read: Vec<ReadSummary>,
    /// What it changed.
    pub changes: Vec<Change>,
    /// Records that name the commit.
    pub records: Vec<RecordInfo>,
}

/// The gate in an explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateExplained {
    /// Its id.
    pub gate: GateId,
    /// Digest that was approved.
    pub digest: String,
    /// The run's own words.
    pub why: Option<String>,
    /// The decision.
    pub decision: GateDecision,
}
