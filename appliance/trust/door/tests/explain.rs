//! `explain/commit` of commits that no run made.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod world;

use nas_types::lease::View;
use nas_types::verb::{ExplainCommit, TreeLog};
use world::World;

/// Goal: every commit of main is explained, the first one too, though no run that is known made it.
#[test]
fn every_commit_of_main() {
    let world = World::new(&[("a/x", "x\n")]);
    let log = world.as_owner(TreeLog { view: View::Main, cursor: None, limit: None }).unwrap();
    assert!(log.commits.len() > 1);
    for commit in log.commits {
        let explained = world.as_owner(ExplainCommit { commit: commit.commit.to_string() }).unwrap();
        assert_eq!(explained.commit, commit);
    }
}
