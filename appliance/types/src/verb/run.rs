//! Verbs of runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::RunId;
use crate::lease::{BranchName, RoleName, TreeName};
use crate::time::Timestamp;

/// All runs, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunList {
    /// Only this role.
    #[serde(default)]
    pub role: Option<RoleName>,
    /// Where to go on, from an earlier answer.
    #[serde(default)]
    pub cursor: Option<String>,
    /// At most this many (1 to 1000, 200 by default).
    #[serde(default)]
    pub limit: Option<u32>,
}

/// Runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Runs {
    /// The runs.
    pub runs: Vec<RunInfo>,
    /// Present when more follow.
    pub cursor: Option<String>,
}

/// One run: the caller's own when left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunShow {
    /// Which.
    #[serde(default)]
    pub run: Option<RunId>,
}

/// Ends a run: its leases end now, as time would end them; its branch and its proposals stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunEnd {
    /// Which; the caller's own when left out.
    #[serde(default)]
    pub run: Option<RunId>,
}

/// What a run is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunInfo {
    /// Its id.
    pub run: RunId,
    /// Role it works for.
    pub role: RoleName,
    /// Who acts.
    pub principal: String,
    /// For whom.
    pub on_behalf_of: Option<String>,
    /// Purpose as stated.
    pub purpose: Option<String>,
    /// The tree it works on.
    pub tree: TreeName,
    /// Its branch; none on an unprotected tree.
    pub branch: Option<BranchName>,
    /// `active` or `ended`.
    pub state: String,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}
