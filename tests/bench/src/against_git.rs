//! Forks and commits against git, in the same tree with the same changes.

use std::ops::Range;
use std::path::Path;

use crate::Scale;
use crate::files;
use crate::git::Repository;
use crate::measure::{Goal, Report};
use crate::ours::Ours;

const FORK: Goal = Goal {
    name: "fork_100k_vs_git_worktree_add",
    ratio_max: 0.01,
    ours: "fork of main",
    theirs: "git worktree add --detach",
};
const COMMIT_MANY: Goal = Goal {
    name: "commit_10k_changed_vs_git",
    ratio_max: 0.5,
    ours: "commit of the branch, durable",
    theirs: "git add -A && git commit",
};
const COMMIT_ONE: Goal = Goal {
    name: "commit_1_changed_in_100k_vs_git",
    ratio_max: 0.1,
    ours: "commit of the branch, durable",
    theirs: "git add -A && git commit",
};
const COMMIT_FLAT: Goal = Goal {
    name: "commit_1_changed_in_flat_10k_vs_git",
    ratio_max: 1.0,
    ours: "commit of the branch, durable",
    theirs: "git add -A && git commit",
};

pub(crate) fn run(disk: &Path, scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if ![FORK, COMMIT_MANY, COMMIT_ONE].into_iter().any(|goal| report.wants(goal)) {
        return Ok(());
    }
    eprintln!("making a tree of {} files twice", scale.files);
    let ours = Ours::with_history(&disk.join("pool"), 0..scale.files)?;
    let git = Repository::make(&disk.join("git"), 0..scale.files)?;
    ours.settle()?;
    if report.wants(FORK) {
        fork(disk, scale, report, &ours, &git)?;
    }
    for (goal, changed, pairs) in [(COMMIT_MANY, scale.changed, scale.pairs), (COMMIT_ONE, 1, scale.pairs_fast)] {
        if report.wants(goal) {
            commit(goal, changed, pairs, 0..scale.files, report, &ours, &git)?;
        }
    }
    Ok(())
}

/// One directory of many files: its tree and its meta are written anew with each commit, by both sides as far as they have it.
pub(crate) fn run_flat(disk: &Path, scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if !report.wants(COMMIT_FLAT) {
        return Ok(());
    }
    let files = files::FLAT..files::FLAT + scale.flat;
    let ours = Ours::with_history(&disk.join("flat-pool"), files.clone())?;
    let git = Repository::make(&disk.join("flat-git"), files.clone())?;
    ours.settle()?;
    commit(COMMIT_FLAT, 1, scale.pairs_fast, files, report, &ours, &git)
}

fn fork(disk: &Path, scale: Scale, report: &mut Report, ours: &Ours, git: &Repository) -> anyhow::Result<()> {
    let our_fork = |_| {
        let (took, branch) = ours.fork()?;
        ours.give_up(&branch)?;
        Ok(took)
    };
    let their_fork = |_| {
        let took = git.worktree_add(&disk.join("worktree"))?;
        ours.settle()?;
        Ok(took)
    };
    report.pairs(FORK, scale.pairs, our_fork, their_fork)
}

/// The changes are written before the clock starts and are not synced: both sides find them in the page cache.
fn commit(
    goal: Goal,
    changed: usize,
    pairs: usize,
    tree: Range<usize>,
    report: &mut Report,
    ours: &Ours,
    git: &Repository,
) -> anyhow::Result<()> {
    let (_, branch) = ours.fork()?;
    ours.settle()?;
    let our_commit = |round: usize| {
        for n in files::spread(tree.clone(), changed) {
            ours.write(&branch, n, round + 1 + changed)?;
        }
        let took = ours.commit(&branch)?;
        ours.settle()?;
        Ok(took)
    };
    let their_commit = |round: usize| {
        for n in files::spread(tree.clone(), changed) {
            git.write(n, round + 1 + changed)?;
        }
        let took = git.commit_all()?;
        ours.settle()?;
        Ok(took)
    };
    report.pairs(goal, pairs, our_commit, their_commit)?;
    ours.give_up(&branch)
}
