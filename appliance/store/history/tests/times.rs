//! Times of files in history: kept to the nanosecond, no change by themselves, and merged with the content they belong to.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure in a helper is a failed test")]

mod support;

use nas_history::{Edit, History, Merge, Put, Source};
use nas_types::object::Oid;
use nas_types::time::FileTime;
use support::*;

fn at(secs: i64) -> Option<FileTime> {
    Some(FileTime { secs, nanos: 123_456_789 })
}

fn timed(name: &str, content: &str, secs: i64) -> Edit {
    let source = Source::Bytes(content.as_bytes().to_vec());
    Edit::Put { path: path(name), put: Put::File { mode: 0o644, mtime: at(secs), source } }
}

fn mtime(history: &History, commit: Oid, name: &str) -> Option<FileTime> {
    history.entry_at(commit, &path(name)).unwrap().unwrap().mtime
}

/// Merges and commits the result.
fn merged(history: &History, base: Oid, ours: Oid, theirs: Oid) -> Oid {
    let Merge::Clean(merged) = history.merge(base, ours, theirs).unwrap() else { panic!("a conflict") };
    let mut writer = history.writer().unwrap();
    let trees = writer.apply_merge(ours, &merged).unwrap();
    let oid = commit_trees(&mut writer, &[ours, theirs], trees);
    drop(writer.finish().unwrap());
    oid
}

/// Goal: times of files and symlinks come back as they were, next to files without one, and stock git sees a sound repository.
#[test]
fn kept_to_the_nanosecond() {
    let dir = tempfile::tempdir().unwrap();
    let history = History::open(dir.path()).unwrap();
    let link =
        Edit::Put { path: path("d/l"), put: Put::Symlink { mtime: at(-7), source: Source::Bytes(b"f".to_vec()) } };
    let commit = commit_main(&history, vec![timed("d/f", "f\n", 5), link, file("d/plain", "p\n")]);
    assert_eq!(mtime(&history, commit, "d/f"), at(5));
    assert_eq!(mtime(&history, commit, "d/l"), at(-7));
    assert_eq!(mtime(&history, commit, "d/plain"), None);
    // What is not rewritten keeps its time, also where it is moved.
    let later = commit_main(&history, vec![timed("d/g", "g\n", 9), rename("d/f", "e/f")]);
    assert_eq!((mtime(&history, later, "e/f"), mtime(&history, later, "d/g")), (at(5), at(9)));
    fsck(&history);
}

/// Goal: touching a file is no change to people or to a merge, and is one to who puts files back exactly.
#[test]
fn a_touch_is_no_change() {
    let dir = tempfile::tempdir().unwrap();
    let history = History::open(dir.path()).unwrap();
    let base = commit_main(&history, vec![timed("a", "a\n", 1), timed("d/b", "b\n", 1)]);
    let touched = commit(&history, Some(base), vec![timed("a", "a\n", 2), timed("d/b", "b\n", 2)]);
    assert_ne!(base, touched);
    assert_eq!(history.diff(Some(base), touched).unwrap(), []);
    let exact = history.diff_with_times(base, touched).unwrap();
    assert_eq!(exact.iter().map(|change| change.new.unwrap().mtime).collect::<Vec<_>>(), [at(2), at(2)]);
    // Main changed beside it, and even removed what was only touched: no conflict either way.
    let removed = commit(&history, Some(base), vec![remove("a"), remove("d"), timed("n", "n\n", 3)]);
    for (ours, theirs, changes) in [(removed, touched, 0), (touched, removed, 4), (base, touched, 0)] {
        let Merge::Clean(merged) = history.merge(base, ours, theirs).unwrap() else { panic!("a conflict") };
        assert_eq!(merged.changes.len(), changes, "{:?}", merged.changes);
    }
}

/// Goal: the time follows the side whose content is taken; lines of both get the later one.
#[test]
fn merged_with_the_content() {
    let lines = |first: &str, last: &str| format!("{first}\n2\n3\n4\n5\n{last}\n");
    let dir = tempfile::tempdir().unwrap();
    let history = History::open(dir.path()).unwrap();
    let all =
        |a: &str, b: &str, both: &str, secs| vec![timed("a", a, secs), timed("b", b, secs), timed("c", both, secs)];
    let base = commit_main(&history, all("a\n", "b\n", &lines("1", "6"), 1));
    let ours = commit(&history, Some(base), all("ours\n", "b\n", &lines("one", "6"), 3));
    let theirs = commit(&history, Some(base), all("a\n", "theirs\n", &lines("1", "six"), 2));
    let result = merged(&history, base, ours, theirs);
    assert_eq!(mtime(&history, result, "a"), at(3));
    assert_eq!(mtime(&history, result, "b"), at(2));
    assert_eq!(mtime(&history, result, "c"), at(3));
    // A change of mode alone keeps the time of the content, whatever the side that made it says.
    let put = Put::File { mode: 0o755, mtime: at(9), source: Source::Bytes(b"a\n".to_vec()) };
    let executable = commit(&history, Some(base), vec![Edit::Put { path: path("a"), put }]);
    let result = merged(&history, base, base, executable);
    let entry = history.entry_at(result, &path("a")).unwrap().unwrap();
    assert_eq!((entry.mode, entry.mtime), (0o755, at(1)));
}
