//! What a commit must hold after changes that reach more than one path, or fail half way, on every engine.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::sync::Arc;
use std::time::Duration;

use nas_store::{Branch, CommitReason, Limits, Options, Reserve, Store};
use nas_types::fs::{CreateHow, FsError, SetAttr, Stability};
use nas_types::id::{LeaseId, RunId};
use nas_types::lease::BranchName;
use nas_types::object::{Oid, Provenance};
use nas_types::path::{Name, TreePath};

mod pools;
use pools::TestPool;

on_every_engine!(every_name_of_a_file_is_committed, half_a_setattr_is_noted);

fn p(text: &str) -> TreePath {
    TreePath::parse(text).unwrap()
}

fn n(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn open(pool: &TestPool) -> Store {
    let options = Options {
        reserve: Reserve { percent: 0, bytes_min: 1 << 20 },
        quiet: Duration::from_secs(3600),
        durability: nas_store::Durability::Deferred,
        ..Options::default()
    };
    Store::open(&pool.pool.path, None, options).unwrap()
}

fn fork(store: &Store) -> Arc<Branch> {
    let name = BranchName { role: "cleo".parse().unwrap(), run: RunId::random() };
    let who = Provenance {
        principal: "agent:cleo".into(),
        on_behalf_of: None,
        run: name.run,
        lease: LeaseId::random(),
        purpose: None,
        read_manifest: None,
    };
    store.fork(&name, &who, Limits::NONE, None).unwrap()
}

fn put(branch: &Branch, path: &str, bytes: &[u8]) {
    let path = p(path);
    let (above, name) = path.split_last().unwrap();
    let dir = branch.live().locate_path(&above).unwrap();
    let how = CreateHow::Unchecked(SetAttr { size: Some(0), ..SetAttr::default() });
    branch.live().create(&dir, name, how).unwrap();
    let at = branch.live().locate_path(&path).unwrap();
    branch.live().write(&at, 0, bytes, Stability::Unstable).unwrap();
}

fn commit(branch: &Branch) -> Oid {
    branch.commit(CommitReason::Explicit("test".into())).unwrap().unwrap()
}

fn text(store: &Store, commit: Oid, path: &str) -> String {
    let entry = store.history().entry_at(commit, &p(path)).unwrap().unwrap();
    String::from_utf8(store.history().read_blob(entry.oid.unwrap(), 1 << 20).unwrap()).unwrap()
}

/// Goal: a change through one name of a file is in the history under each of its names: WRITE, SETATTR, and CREATE that cuts.
fn every_name_of_a_file_is_committed(pool: &TestPool) {
    let store = open(pool);
    let branch = fork(&store);
    let live = branch.live();
    put(&branch, "/shared/one", b"first");
    let shared = live.locate_path(&p("/shared")).unwrap();
    live.link(&live.locate_path(&p("/shared/one")).unwrap(), &shared, n("two")).unwrap();
    let tip = commit(&branch);
    assert_eq!(text(&store, tip, "/shared/two"), "first");
    let both = |expected: &str| {
        for name in ["/shared/one", "/shared/two"] {
            assert!(live.is_path_dirty(&p(name)), "{name} before {expected}");
        }
        let tip = commit(&branch);
        for name in ["/shared/one", "/shared/two"] {
            assert_eq!(text(&store, tip, name), expected, "{name}");
        }
    };
    live.write(&live.locate_path(&p("/shared/one")).unwrap(), 0, b"again", Stability::Unstable).unwrap();
    both("again");
    let cut = SetAttr { size: Some(2), ..SetAttr::default() };
    live.setattr(&live.locate_path(&p("/shared/two")).unwrap(), &cut, None).unwrap();
    both("ag");
    let cut = SetAttr { size: Some(1), ..SetAttr::default() };
    live.create(&shared, n("one"), CreateHow::Unchecked(cut)).unwrap();
    both("a");
}

/// Goal: a SETATTR that cut the file and then failed is looked at by the next commit.
fn half_a_setattr_is_noted(pool: &TestPool) {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, to give a file away");
        return;
    }
    let store = open(pool);
    let branch = fork(&store);
    let live = branch.live();
    put(&branch, "/shared/f", b"long");
    commit(&branch);
    // Marked on disk already, and open already.
    put(&branch, "/shared/g", b"x");
    let at = live.locate_path(&p("/shared/f")).unwrap();
    live.write(&at, 0, b"", Stability::Unstable).unwrap();
    for dir in [live.path().to_owned(), live.path().join("shared")] {
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let file = live.path().join("shared/f");
    chown(&file, Some(0), Some(0)).unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            // This thread alone: it may use what is open, and change no mode of a file that is root's.
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65_534)).unwrap();
            let set = SetAttr { size: Some(1), mode: Some(0o640), ..SetAttr::default() };
            assert_eq!(live.setattr(&at, &set, None).unwrap_err(), FsError::NotPermitted);
        });
    });
    assert_eq!(fs::read(&file).unwrap(), b"l", "the first half happened");
    let tip = commit(&branch);
    assert_eq!(text(&store, tip, "/shared/f"), "l");
}
