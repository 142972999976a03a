//! Times of files through a commit, a restore, a merge and a fork, on every engine.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use nas_store::{Branch, CommitReason, Pinned, Prepared};
use nas_types::fs::{SetAttr, SetTime};
use nas_types::id::GateId;
use nas_types::object::Oid;
use nas_types::path::TreePath;
use nas_types::time::FileTime;

mod pools;
use pools::{TestPool, fork, open, put};

on_every_engine!(times_travel_with_content);

const OLD: FileTime = FileTime { secs: 981_173_106, nanos: 123_456_789 };
const NEW: FileTime = FileTime { secs: 1_764_541_380, nanos: 7 };

fn p(text: &str) -> TreePath {
    TreePath::parse(text).unwrap()
}

fn touch(branch: &Branch, path: &str, mtime: FileTime) {
    let at = branch.live().locate_path(&p(path)).unwrap();
    let set = SetAttr { mtime: SetTime::To(mtime), ..SetAttr::default() };
    branch.live().setattr(&at, &set, None).unwrap();
}

fn put_at(branch: &Branch, path: &str, bytes: &[u8], mtime: FileTime) {
    put(branch, path, bytes).unwrap();
    touch(branch, path, mtime);
}

fn mtime(branch: &Branch, path: &str) -> FileTime {
    branch.live().locate_path(&p(path)).unwrap().attr.mtime
}

fn commit(branch: &Branch) -> Oid {
    branch.commit(CommitReason::Explicit("test".into())).unwrap().unwrap()
}

/// Goal: what a client set as the time of a file is there after a restore, on main after a merge, and in the next fork of it.
fn times_travel_with_content(pool: &TestPool) {
    let store = open(pool);
    let branch = fork(&store);
    put_at(&branch, "/shared/a", b"one", OLD);
    put_at(&branch, "/shared/b", b"same", OLD);
    let first = commit(&branch);
    put_at(&branch, "/shared/a", b"two", NEW);
    touch(&branch, "/shared/b", NEW);
    commit(&branch);
    // A restore puts back the time of what has the same content, too.
    branch.restore(first, &|_| true).unwrap();
    assert_eq!((mtime(&branch, "/shared/a"), mtime(&branch, "/shared/b")), (OLD, OLD));

    let gate = GateId::random();
    let Pinned::Commit(pinned) = branch.pin(gate, "test").unwrap() else { panic!("nothing to pin") };
    let Prepared::Clean(prepared) = store.prepare_merge(pinned).unwrap() else { panic!("a conflict") };
    let staged = store.stage(&prepared, &branch.provenance(), "test").unwrap();
    store.publish(staged).unwrap();
    let next = fork(&store);
    assert_eq!((mtime(&next, "/shared/a"), mtime(&next, "/shared/b")), (OLD, OLD));
}
