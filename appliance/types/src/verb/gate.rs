//! Verbs of gates (SPEC GATE, BRANCH-8).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Head;
use crate::id::{GateId, LeaseId, RunId};
use crate::lease::BranchName;
use crate::object::{Change, Conflict, Oid};
use crate::path::TreePath;
use crate::secret::Secret;
use crate::time::Timestamp;

/// Asks for a merge of the caller's branch. What is on it now is committed and pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Propose {
    /// Target; `main` is the only protected branch.
    pub into: String,
    /// Why, in the run's own words. Shown beside the diff, never instead of it.
    #[serde(default)]
    pub why: Option<String>,
}

/// What came of a proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Proposed {
    /// The gate that waits for a person.
    pub gate: GateId,
    /// The branch.
    pub branch: BranchName,
    /// Target.
    pub into: String,
    /// Files that the merge would change.
    pub files_changed: u64,
    /// The pinned commit.
    pub commit: Oid,
    /// The very same proposal was waiting already.
    pub already_there: bool,
    /// When the answer becomes "no" (SPEC GATE-3).
    pub expires_at: Timestamp,
}

/// Gates, newest first: the caller's own, or all for the owner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GateList {
    /// Also those that are decided.
    #[serde(default)]
    pub all: bool,
    /// Where to go on, from an earlier answer.
    #[serde(default)]
    pub cursor: Option<String>,
    /// At most this many (1 to 1000, 200 by default).
    #[serde(default)]
    pub limit: Option<u32>,
}

/// Gates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gates {
    /// The gates.
    pub gates: Vec<GateSummary>,
    /// Present when more follow.
    pub cursor: Option<String>,
}

/// A gate in a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateSummary {
    /// Its id.
    pub gate: GateId,
    /// `pending`, `approved`, `denied`, `expired` or `void`.
    pub state: String,
    /// The branch.
    pub branch: BranchName,
    /// Target.
    pub into: String,
    /// Files changed.
    pub files_changed: u64,
    /// Why, as stated.
    pub why: Option<String>,
    /// When it was asked.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// Shows a Gate Card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GateShow {
    /// Which.
    pub gate: GateId,
}

/// The Gate Card (SPEC GATE-1): everything on it is computed by the NAS; `why` alone is the run's own word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateCard {
    /// Its id.
    pub gate: GateId,
    /// `pending`, `approved`, `denied`, `expired` or `void`.
    pub state: String,
    /// The run that asks.
    pub run: RunId,
    /// Its lease.
    pub lease: LeaseId,
    /// Who acts.
    pub principal: String,
    /// For whom.
    pub on_behalf_of: Option<String>,
    /// The act to decide on.
    pub action: GateAction,
    /// The run's own words.
    pub why: Option<String>,
    /// Facts that matter for the decision.
    pub risk: GateRisk,
    /// What the run read.
    pub read: Vec<ReadSummary>,
    /// Reads beyond those listed.
    pub read_more: u64,
    /// Every change, sorted by path.
    pub changes: Vec<Change>,
    /// The true diff, whole: text files line by line, others by size and hash.
    pub diff: String,
    /// What one may answer.
    pub options: Vec<String>,
    /// What happens when nobody answers: always `deny`.
    pub default: String,
    /// When it was asked.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// The decision, once made.
    pub decision: Option<GateDecision>,
    /// The gate that took this one's place when it became void.
    pub successor: Option<GateId>,
    /// Head of the ledger when the card was made: keep it and compare later (SPEC REC-3).
    pub head: Head,
}

/// The act a gate asks about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateAction {
    /// `merge`.
    pub op: String,
    /// From this branch.
    pub from: BranchName,
    /// The pinned commit.
    pub commit: Oid,
    /// Into this branch.
    pub into: String,
    /// Files changed.
    pub files_changed: u64,
    /// Digest that an approval is bound to (SPEC GATE-2), hexadecimal. It covers target, lease and every change.
    pub digest: String,
}

/// Facts computed from the changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateRisk {
    /// What the session read from outside: `unknown` until labels exist.
    pub session_taint: String,
    /// Paths that would be deleted.
    pub deletions: Vec<TreePath>,
    /// Paths that become executable or change their mode.
    pub mode_changes: Vec<TreePath>,
    /// Symbolic links that are added or changed.
    pub symlinks: Vec<TreePath>,
    /// Files that are not text.
    pub binaries: Vec<TreePath>,
    /// Files whose name or new text holds bidirectional or zero-width characters.
    pub invisible: Vec<TreePath>,
    /// Paths whose names look like code that runs by itself (CI, hooks).
    pub runs_by_itself: Vec<TreePath>,
    /// What lives on the branch but cannot be kept (pipes, sockets).
    pub not_kept: Vec<TreePath>,
}

/// One line of the read manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadSummary {
    /// What was read.
    pub path: TreePath,
    /// As of this commit.
    pub commit: Option<Oid>,
    /// Content id at that commit.
    pub content: Option<Oid>,
    /// Byte ranges, end exclusive.
    pub ranges: Vec<(u64, u64)>,
}

/// How a gate was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateDecision {
    /// Who.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// Why, as stated.
    pub reason: Option<String>,
    /// The merge commit on main, when approved.
    pub commit: Option<Oid>,
}

/// Approves a gate.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GateApprove {
    /// Which.
    pub gate: GateId,
    /// The digest that was looked at: the approval holds for these bytes and no others (SPEC GATE-2).
    pub digest: String,
    /// The owner's passphrase.
    pub passphrase: Secret,
    /// Why, for the record.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Denies a gate.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GateDeny {
    /// Which.
    pub gate: GateId,
    /// The owner's passphrase.
    pub passphrase: Secret,
    /// Why, for the run and for the record.
    #[serde(default)]
    pub reason: Option<String>,
}

/// What a decision did. A merge that is not possible any more is an answer of its own: see `state`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateDecided {
    /// The gate.
    pub gate: GateId,
    /// `approved`, `denied` or `void`.
    pub state: String,
    /// The merge commit on main.
    pub commit: Option<Oid>,
    /// The record of the outcome.
    pub record: u64,
    /// Why it became void, a sentence.
    pub because: Option<String>,
    /// The fresh card to look at, when void because the result would differ.
    pub successor: Option<GateId>,
    /// Where the two sides clash, when void because of conflicts.
    pub conflicts: Vec<Conflict>,
    /// The gate had been decided in just this way before.
    pub already_there: bool,
}
