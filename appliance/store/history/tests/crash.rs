//! A process killed between any two durable effects: what was acknowledged is there, what is there is whole.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use nas_history::{Expect, History, HistoryError};
use nas_types::object::Oid;
use support::*;

const DIR: &str = "NAS_HISTORY_CRASH_DIR";
const BRANCH: &str = "refs/heads/cleo/run_23456789abcd";

/// Every failpoint of this crate.
const POINTS: [&str; 14] = [
    "history.pack.written",
    "history.pack.synced",
    "history.pack.renamed",
    "history.idx.renamed",
    "history.pack.durable",
    "history.ref.synced",
    "history.ref.renamed",
    "history.ref.durable",
    "history.ref.removed",
    "history.consolidate.written",
    "history.prune.written",
    "history.pack.removed",
    "history.open.config",
    "history.open.head",
];

/// The content of main after each step.
fn content(step: usize) -> BTreeMap<Vec<u8>, Vec<u8>> {
    (0..=step).map(|n| (format!("d/f{n}").into_bytes(), format!("content {n}\n").into_bytes())).collect()
}

/// What the killed process does: commits to main, a branch that comes and goes, upkeep.
#[test]
#[ignore = "started by the sweep in a process of its own"]
fn child() {
    let dir = std::env::var_os(DIR).unwrap();
    let history = History::open(Path::new(&dir)).unwrap();
    for step in 0..4 {
        let oid = commit_main(&history, vec![file_mode(format!("d/f{step}"), format!("content {step}\n"), 0o600)]);
        println!("acknowledged {step} {oid}");
        let side = commit(&history, Some(oid), vec![file("side", format!("side {step}\n"))]);
        history.set_ref(BRANCH, Some(side), Expect::Absent).unwrap();
        if step > 0 {
            history.consolidate().unwrap();
        }
        history.set_ref(BRANCH, None, Expect::At(side)).unwrap();
        history.prune().unwrap();
    }
    println!("finished");
}

fn run_child(dir: &Path, failpoint: &str) -> (bool, Vec<(usize, Oid)>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--ignored", "--nocapture"]);
    command.env(DIR, dir).env("NAS_FAILPOINT", failpoint).stderr(Stdio::null());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words = text.lines().filter_map(|line| line.split_once("acknowledged ")?.1.split_once(' '));
    let acknowledged = words.map(|(step, oid)| (step.parse().unwrap(), oid.parse().unwrap())).collect();
    let finished = text.lines().any(|line| line.ends_with("finished"));
    assert_eq!(output.status.success(), finished, "it either finishes or is killed: {text}");
    (finished, acknowledged)
}

fn check(dir: &Path, acknowledged: &[(usize, Oid)], context: &str) {
    let history = History::open(dir).unwrap();
    let tip = history.get_ref(MAIN).unwrap();
    let last = acknowledged.last();
    let step = match (tip, last) {
        (None, last) => {
            assert_eq!(last, None, "{context}: an acknowledged commit is lost");
            return fsck(&history);
        }
        (Some(tip), Some((step, oid))) if tip == *oid => *step,
        // The ref moved, and the process died before it could say so.
        (Some(tip), last) => {
            assert_eq!(history.commit_info(tip).unwrap().parents.first(), last.map(|(_, oid)| oid), "{context}");
            last.map_or(0, |(step, _)| step + 1)
        }
    };
    let mut found = BTreeMap::new();
    let mut visit = |path: &nas_types::path::TreePath, entry: &nas_types::object::Entry| {
        if let Some(oid) = entry.oid {
            assert_eq!(entry.mode, 0o600, "{context}: meta is there");
            found.insert(path.as_bytes().to_vec(), history.read_blob(oid, 1 << 20)?);
        }
        Ok::<(), HistoryError>(())
    };
    history.walk(tip.unwrap(), &mut visit).unwrap();
    assert_eq!(found, content(step), "{context}");
    if let Some(side) = history.get_ref(BRANCH).unwrap() {
        assert!(history.entry_at(side, &path("side")).unwrap().is_some(), "{context}");
    }
    fsck(&history);
    // Nothing half done is left, and work goes on.
    let left = std::fs::read_dir(dir.join("objects/pack")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.filter(|name| name.as_encoded_bytes().starts_with(b"tmp_")).count(), 0, "{context}");
    commit_main(&history, vec![file("after", "x")]);
    history.consolidate().unwrap();
    history.prune().unwrap();
    fsck(&history);
}

/// Goal: for each failpoint and each passage through it.
#[test]
fn sweep() {
    for point in POINTS {
        let mut passages = 0;
        for count in 1.. {
            let tmp = tempfile::tempdir().unwrap();
            let dir = tmp.path().join("repo");
            let (finished, acknowledged) = run_child(&dir, &format!("{point}:{count}"));
            check(&dir, &acknowledged, &format!("killed at {point}:{count}"));
            if finished {
                break;
            }
            passages += 1;
        }
        assert!(passages > 0, "{point} is never passed");
    }
}
