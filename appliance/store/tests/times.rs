//! Times of files through a commit, a restore, a merge and a fork, on every engine.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::sync::Arc;
use std::time::Duration;

use nas_store::{Branch, CommitReason, Limits, Options, Pinned, Prepared, Reserve, Store};
use nas_types::fs::{CreateHow, SetAttr, SetTime, Stability};
use nas_types::id::{GateId, LeaseId, RunId};
use nas_types::lease::BranchName;
use nas_types::object::{Oid, Provenance};
use nas_types::path::TreePath;
use nas_types::time::FileTime;

mod pools;
use pools::TestPool;

on_every_engine!(times_travel_with_content);

const OLD: FileTime = FileTime { secs: 981_173_106, nanos: 123_456_789 };
const NEW: FileTime = FileTime { secs: 1_764_541_380, nanos: 7 };

fn p(text: &str) -> TreePath {
    TreePath::parse(text).unwrap()
}

fn who(name: &BranchName) -> Provenance {
    Provenance {
        principal: "agent:cleo".into(),
        on_behalf_of: None,
        run: name.run,
        lease: LeaseId::random(),
        purpose: None,
        read_manifest: None,
    }
}

fn fork(store: &Store) -> Arc<Branch> {
    let name = BranchName { role: "cleo".parse().unwrap(), run: RunId::random() };
    store.fork(&name, &who(&name), Limits::NONE, None).unwrap()
}

fn touch(branch: &Branch, path: &str, mtime: FileTime) {
    let at = branch.live().locate_path(&p(path)).unwrap();
    let set = SetAttr { mtime: SetTime::To(mtime), ..SetAttr::default() };
    branch.live().setattr(&at, &set, None).unwrap();
}

fn put(branch: &Branch, path: &str, bytes: &[u8], mtime: FileTime) {
    let full = p(path);
    let (above, name) = full.split_last().unwrap();
    let dir = branch.live().locate_path(&above).unwrap();
    let how = CreateHow::Unchecked(SetAttr { size: Some(0), ..SetAttr::default() });
    branch.live().create(&dir, name, how).unwrap();
    let at = branch.live().locate_path(&full).unwrap();
    branch.live().write(&at, 0, bytes, Stability::Unstable).unwrap();
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
    let options = Options {
        reserve: Reserve { percent: 0, bytes_min: 1 << 20 },
        quiet: Duration::from_secs(3600),
        durability: nas_store::Durability::Deferred,
        ..Options::default()
    };
    let store = Store::open(&pool.pool.path, None, options).unwrap();
    let branch = fork(&store);
    put(&branch, "/shared/a", b"one", OLD);
    put(&branch, "/shared/b", b"same", OLD);
    let first = commit(&branch);
    put(&branch, "/shared/a", b"two", NEW);
    touch(&branch, "/shared/b", NEW);
    commit(&branch);
    // A restore puts back the time of what has the same content, too.
    branch.restore(first, &|_| true).unwrap();
    assert_eq!((mtime(&branch, "/shared/a"), mtime(&branch, "/shared/b")), (OLD, OLD));

    let gate = GateId::random();
    let Pinned::Commit(pinned) = branch.pin(gate, "test").unwrap() else { panic!("nothing to pin") };
    let Prepared::Clean(prepared) = store.prepare_merge(pinned).unwrap() else { panic!("a conflict") };
    let staged = store.stage(&prepared, &who(branch.name()), "test").unwrap();
    store.publish(staged).unwrap();
    let next = fork(&store);
    assert_eq!((mtime(&next, "/shared/a"), mtime(&next, "/shared/b")), (OLD, OLD));
}
