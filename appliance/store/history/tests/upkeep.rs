//! Joining packs and pruning, beside readers and writers.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};

use nas_history::{Expect, History, HistoryError, Pruned};
use support::*;

fn packs(history: &History) -> usize {
    let entries = std::fs::read_dir(history.dir().join("objects/pack")).unwrap();
    entries.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|ext| ext == "pack")).count()
}

/// Goal: many small packs become few while a reader works, and every object stays readable.
#[test]
fn consolidate_beside_a_reader() {
    let tmp = tempfile::tempdir().unwrap();
    let history = History::open(tmp.path()).unwrap();
    let mut commits = Vec::new();
    for n in 0..30 {
        commits.push(commit_main(&history, vec![file(format!("d{}/f{n}", n % 3), format!("{n}\n"))]));
    }
    assert_eq!(packs(&history), 30);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut rounds = 0;
            while !done.load(Ordering::Relaxed) || rounds == 0 {
                for (n, commit) in commits.iter().enumerate() {
                    let entry = history.entry_at(*commit, &path(format!("d{}/f{n}", n % 3))).unwrap().unwrap();
                    assert_eq!(history.read_blob(entry.oid.unwrap(), 100).unwrap(), format!("{n}\n").into_bytes());
                }
                rounds += 1;
            }
        });
        let result = history.consolidate();
        done.store(true, Ordering::Relaxed);
        let result = result.unwrap();
        assert_eq!(result.packs_before, 30);
        assert_eq!(result.packs_after, packs(&history));
        reading.join().unwrap();
    });
    assert!(packs(&history) <= 5, "{}", packs(&history));
    fsck(&history);
    assert_eq!(history.log(commits[29], 100).unwrap().len(), 30);
    let again = History::open(tmp.path()).unwrap();
    assert_eq!(again.diff(None, commits[29]).unwrap().len(), 30);
}

/// Goal: packs made by stock git, with deltas, are joined too.
#[test]
fn packs_with_deltas() {
    let tmp = tempfile::tempdir().unwrap();
    let history = History::open(tmp.path()).unwrap();
    let text: String = (0..2000).map(|n| format!("line {n}\n")).collect();
    for n in 0..5 {
        commit_main(&history, vec![file("a", format!("{text}{n}\n"))]);
    }
    git(history.dir(), &["-c", "pack.writeReverseIndex=true", "repack", "-a", "-d", "-q"]);
    let tip = commit_main(&history, vec![file("b", "b")]);
    for n in 0..20 {
        commit(&history, Some(tip), vec![file(format!("x{n}"), format!("{n}"))]);
    }
    history.consolidate().unwrap();
    assert_eq!(packs(&history), 1);
    fsck(&history);
    let entry = history.entry_at(tip, &path("a")).unwrap().unwrap();
    assert_eq!(history.read_blob(entry.oid.unwrap(), 1 << 20).unwrap(), format!("{text}4\n").into_bytes());
}

/// Goal: what only a recycled branch held goes, what anything reaches stays, meta included.
#[test]
fn prune_drops_only_what_nothing_reaches() {
    let tmp = tempfile::tempdir().unwrap();
    let history = History::open(tmp.path()).unwrap();
    let branch = "refs/heads/cleo/run_23456789abcd";
    let main =
        commit_main(&history, vec![file_mode("kept", "kept", 0o600), dir("empty", 0o700), file("r/.git/HEAD", "h")]);
    let side = commit(&history, Some(main), vec![file("gone", "only here"), file("kept2", "kept")]);
    history.set_ref(branch, Some(side), Expect::Absent).unwrap();
    assert_eq!(history.prune().unwrap(), Pruned::Done { objects: 0 });
    history.set_ref(branch, None, Expect::At(side)).unwrap();
    let gone = nas_history::blob_id(b"only here").unwrap();
    {
        // A writer that starts now may rely on the object, so nothing goes.
        let mut writer = history.writer().unwrap();
        assert_eq!(writer.put_blob(b"only here").unwrap(), gone);
        assert_eq!(writer.objects(), 0);
        assert_eq!(history.prune().unwrap(), Pruned::Busy);
        let hold = writer.finish().unwrap();
        assert_eq!(history.prune().unwrap(), Pruned::Busy);
        drop(hold);
    }
    // Its blob, its root tree, its commit and its meta commit; the meta tree is also main's.
    assert_eq!(history.prune().unwrap(), Pruned::Done { objects: 4 });
    assert!(matches!(history.read_blob(gone, 100), Err(HistoryError::Missing(_))));
    assert!(matches!(history.commit_info(side), Err(HistoryError::Missing(_))));
    assert_eq!(history.diff(None, main).unwrap().len(), 3);
    assert_eq!(history.entry_at(main, &path("kept")).unwrap().unwrap().mode, 0o600);
    fsck(&history);
    // What is gone can come again.
    let back = commit_main(&history, vec![file("gone", "only here")]);
    assert_eq!(history.entry_at(back, &path("gone")).unwrap().unwrap().oid, Some(gone));
    fsck(&history);
}

/// Goal: a squash has one parent, the tip's trees, and leaves the way there to be pruned.
#[test]
fn squash_keeps_the_result_only() {
    let tmp = tempfile::tempdir().unwrap();
    let history = History::open(tmp.path()).unwrap();
    let base = commit_main(&history, vec![file("a", "1")]);
    let middle = commit(&history, Some(base), vec![file("a", "2"), file("tmp", "scratch")]);
    let tip = commit(&history, Some(middle), vec![file_mode("a", "3", 0o640), remove("tmp")]);
    let mut writer = history.writer().unwrap();
    let squashed = writer.squash(base, tip, &provenance(), "one", nas_types::time::Timestamp(1)).unwrap();
    let hold = writer.finish().unwrap();
    history.set_ref("refs/heads/cleo/run_23456789abcd", Some(squashed), Expect::Absent).unwrap();
    drop(hold);
    let info = history.commit_info(squashed).unwrap();
    assert_eq!((info.parents, info.trees), (vec![base], history.commit_info(tip).unwrap().trees));
    assert!(matches!(history.prune().unwrap(), Pruned::Done { .. }));
    assert!(history.commit_info(middle).is_err() && history.commit_info(tip).is_err());
    assert_eq!(history.diff(Some(base), squashed).unwrap().len(), 1);
    fsck(&history);
}

/// Goal: when not all joined packs can be removed, readers go on.
#[test]
fn a_pack_that_cannot_be_removed() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, for a file that cannot be removed");
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let history = History::open(tmp.path()).unwrap();
    let commits: Vec<_> =
        (0..12).map(|n| commit_main(&history, vec![file(format!("f{n}"), format!("{n}\n"))])).collect();
    drop(history);
    // It knows the packs, and has opened none that it will need.
    let history = History::open(tmp.path()).unwrap();
    history.commit_info(commits[0]).unwrap();
    let dir = history.dir().join("objects/pack");
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let last = entries
        .filter(|path| path.extension().is_some_and(|ext| ext == "pack"))
        .max_by_key(|path| path.metadata().unwrap().len())
        .unwrap();
    rustix::mount::mount_bind(&last, &last).unwrap();
    let joined = history.consolidate();
    let read: Vec<_> = commits.iter().map(|commit| history.diff(None, *commit).map(|changes| changes.len())).collect();
    rustix::mount::unmount(&last, rustix::mount::UnmountFlags::DETACH).unwrap();
    joined.unwrap_err();
    for (n, found) in read.into_iter().enumerate() {
        assert_eq!(found.unwrap(), n + 1);
    }
    fsck(&history);
}
