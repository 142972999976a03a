//! What a client was told while a disk was recorded, in the words that go into the log and to the checker.

use nas_types::lease::BranchName;
use nas_types::object::Oid;
use nas_types::path::TreePath;
use nas_types::verb::Head;
use serde::{Deserialize, Serialize};

/// One marker of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Promise {
    /// An operation on these paths of the branch begins: what was promised about them ends.
    Changing(BranchName, Vec<TreePath>),
    /// COMMIT or a FILE_SYNC write of this file was answered: it holds this.
    Holds(BranchName, TreePath, String),
    /// REMOVE or RENAME was answered: the name is gone.
    Gone(BranchName, TreePath),
    /// The ledger's head was answered.
    Recorded(Head),
    /// A merge was answered: main is this commit and holds these files, or it is a later one.
    Merged(Oid, Vec<(TreePath, String)>),
}

impl Promise {
    /// How a line begins that ends promises.
    pub const CHANGING: &str = "{\"changing\":";

    /// As a marker carries it.
    #[must_use]
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("because a promise is plain data")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: lines that end promises are told by how they begin.
    #[test]
    fn changing_lines_are_told() {
        let branch: BranchName = "cleo/run_cykqp4ynnrex".parse().unwrap();
        assert!(Promise::Changing(branch.clone(), Vec::new()).to_line().starts_with(Promise::CHANGING));
        let file = TreePath::parse("/a").unwrap();
        assert!(!Promise::Gone(branch, file).to_line().starts_with(Promise::CHANGING));
    }
}
