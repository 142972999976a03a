//! The crash sweep: a child process is killed at every failpoint of the Store; then the store opens, main is the old or the new
//! generation and complete, every branch commits what is on its disk, and work goes on.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nas_store::{Branch, CommitReason, FAILPOINTS, Import, Limits, Options, Pinned, Pointer, Prepared, Reserve, Store};
use nas_types::fs::{CreateHow, SetAttr, Stability};
use nas_types::id::{GateId, LeaseId, RunId};
use nas_types::lease::BranchName;
use nas_types::object::{EntryKind, Provenance};
use nas_types::path::{Name, TreePath};

mod pools;
use pools::{Kind, TestPool};

const POOL: &str = "NAS_TEST_CRASH_POOL";

fn p(text: &str) -> TreePath {
    TreePath::parse(text).unwrap()
}

fn options() -> Options {
    Options {
        reserve: Reserve { percent: 0, bytes_min: 1 << 20 },
        quiet: Duration::from_secs(3600),
        generation_grace: Duration::ZERO,
        ..Options::default()
    }
}

/// The ledger of this test: one file with the pointer.
fn read_pointer(pool: &Path) -> Option<Pointer> {
    let text = fs::read_to_string(pool.join("../pointer")).ok()?;
    let (number, commit) = text.split_once(' ')?;
    Some(Pointer { number: number.parse().unwrap(), commit: commit.parse().unwrap() })
}

fn write_pointer(pool: &Path, pointer: Pointer) {
    let part = pool.join("../pointer.part");
    fs::write(&part, format!("{} {}", pointer.number, pointer.commit)).unwrap();
    fs::rename(part, pool.join("../pointer")).unwrap();
}

fn open(pool: &Path) -> Store {
    let store = Store::open(pool, read_pointer(pool), options()).unwrap();
    write_pointer(pool, store.main().pointer());
    store
}

/// One run from fork to merge and recycling, beside a branch that follows main.
fn one_run(pool: &Path) {
    let store = open(pool);
    let name = BranchName { role: "cleo".parse().unwrap(), run: RunId::random() };
    let who = Provenance {
        principal: "agent:cleo".into(),
        on_behalf_of: None,
        run: name.run,
        lease: LeaseId::random(),
        purpose: None,
        read_manifest: None,
    };
    let follower = BranchName { role: "owner".parse().unwrap(), run: RunId::random() };
    let following = store.fork(&follower, &who, Limits::NONE, None).unwrap();
    let branch = store.fork(&name, &who, Limits::NONE, None).unwrap();
    let dir = branch.live().locate_path(&p("/shared")).unwrap();
    let file = Name::new(b"file").unwrap();
    let how = CreateHow::Unchecked(SetAttr { size: Some(0), ..SetAttr::default() });
    let made = branch.live().create(&dir, file, how).unwrap().made.node.node;
    let at = branch.live().locate(made).unwrap();
    branch.live().write(&at, 0, name.run.to_string().as_bytes(), Stability::FileSync).unwrap();
    let extra = p(&format!("/shared/{}/x", name.run));
    branch.import_entry(&extra, Import::File(&mut b"x".as_slice()), 0o444, None).unwrap();
    branch.commit(CommitReason::Explicit("first".into())).unwrap();
    let gate = GateId::random();
    let Pinned::Commit(pinned) = branch.pin(gate, "proposed").unwrap() else { panic!("nothing pinned") };
    let Prepared::Clean(prepared) = store.prepare_merge(pinned).unwrap() else { panic!("conflict") };
    let staged = store.stage(&prepared, &who, "merge").unwrap();
    write_pointer(pool, staged.pointer());
    store.publish(staged).unwrap();
    store.unpin(gate).unwrap();
    assert!(following.follow(store.main().pointer().commit).unwrap().is_some_and(|changed| changed > 0));
    assert_eq!(files_on_disk(following.live().path()), files_on_disk(store.main().live().path()));
    drop((branch, following));
    store.recycle(&name).unwrap();
    store.recycle(&follower).unwrap();
}

/// Not a test of its own: what the child process runs.
#[test]
fn child() {
    if let Some(pool) = std::env::var_os(POOL) {
        one_run(Path::new(&pool));
    }
}

fn files_on_disk(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(at) = todo.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else {
                let below = path.strip_prefix(dir).unwrap().to_str().unwrap();
                found.push((format!("/{below}"), fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn files_committed(store: &Store, commit: nas_types::object::Oid) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    store
        .history()
        .walk::<nas_history::HistoryError>(commit, &mut |path, entry| {
            if let (EntryKind::File, Some(oid)) = (entry.kind, entry.oid) {
                found.push((path.to_string(), store.history().read_blob(oid, 1 << 20)?));
            }
            Ok(())
        })
        .unwrap();
    found.sort();
    found
}

/// What must hold after any crash.
fn check(pool: &Path, failpoint: &str) {
    let store = open(pool);
    store.flush_reaper();
    let main = store.main();
    assert_eq!(files_on_disk(main.live().path()), files_committed(&store, main.pointer().commit), "{failpoint}: main");
    assert_eq!(store.history().get_ref("refs/heads/main").unwrap(), Some(main.pointer().commit), "{failpoint}");
    assert_eq!(fs::read_dir(pool.join("gen")).unwrap().count(), 1, "{failpoint}: generations");
    assert_eq!(fs::read_dir(pool.join("tmp")).unwrap().count(), 0, "{failpoint}: snapshots");
    assert_eq!(fs::read_dir(pool.join("branch")).unwrap().count(), store.branches().len(), "{failpoint}: branches");
    for branch in store.branches() {
        branch.commit(CommitReason::Explicit("after a crash".into())).unwrap();
        let same = |branch: &Branch| files_on_disk(branch.live().path()) == files_committed(&store, branch.tip());
        assert!(same(&branch), "{failpoint}: {}", branch.name());
        let name = branch.name().clone();
        drop(branch);
        store.recycle(&name).unwrap();
    }
    for pin in store.history().list_refs("refs/nas/pin/").unwrap().into_keys() {
        store.unpin(pin.rsplit('/').next().unwrap().parse().unwrap()).unwrap();
    }
}

fn sweep(kind: Kind) {
    let Some(TestPool { pool, .. }) = &pools::pool(kind) else { return };
    for failpoint in FAILPOINTS {
        // Points of the very first start need a fresh store.
        if failpoint.starts_with("store.first.") {
            let Some(fresh) = pools::pool(kind) else { return };
            kill_at(&fresh.pool.path, failpoint);
            continue;
        }
        kill_at(&pool.path, failpoint);
    }
}

fn kill_at(pool: &Path, failpoint: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "child", "--nocapture"]).env(POOL, pool).env("NAS_FAILPOINT", failpoint);
    let out = child.output().unwrap();
    assert_eq!(out.status.signal(), Some(9), "{failpoint} was not reached: {}", String::from_utf8_lossy(&out.stderr));
    check(pool, failpoint);
    one_run(pool);
    check(pool, failpoint);
}

/// Goal: on btrfs.
#[test]
fn btrfs() {
    sweep(Kind::Btrfs);
}

/// Goal: on the copy engine.
#[test]
fn copy() {
    sweep(Kind::Copy);
}
