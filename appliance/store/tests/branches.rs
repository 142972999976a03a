//! Branches that are damaged, recycled, or merged out of order; a ledger that does not fit. On every engine.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nas_history::Expect;
use nas_store::{
    Branch, CommitReason, Limits, Options, Pinned, Pointer, Prepared, PreparedMerge, Reserve, Store, StoreError,
};
use nas_types::fs::{CreateHow, SetAttr, Stability};
use nas_types::id::{GateId, LeaseId, RunId};
use nas_types::lease::BranchName;
use nas_types::object::{Oid, Provenance};
use nas_types::path::TreePath;

mod pools;
use pools::TestPool;

on_every_engine!(
    a_damaged_branch_is_set_aside,
    a_branch_without_files_is_a_leftover,
    nothing_comes_back_after_recycling,
    a_ref_that_moved_is_followed,
    merged_pins_go_forward_only,
    an_old_ledger_is_refused,
    a_late_stage_stays_for_the_next_start,
    recycled_branch_is_gone,
    wrong_ledger_is_refused,
);

fn options() -> Options {
    Options {
        reserve: Reserve { percent: 0, bytes_min: 1 << 20 },
        quiet: Duration::from_secs(3600),
        durability: nas_store::Durability::Deferred,
        generation_grace: Duration::ZERO,
        ..Options::default()
    }
}

fn open(pool: &TestPool, pointer: Option<Pointer>) -> Store {
    Store::open(&pool.pool.path, pointer, options()).unwrap()
}

fn provenance() -> Provenance {
    Provenance {
        principal: "agent:cleo".into(),
        on_behalf_of: None,
        run: RunId::random(),
        lease: LeaseId::random(),
        purpose: None,
        read_manifest: None,
    }
}

fn fork(store: &Store) -> Arc<Branch> {
    let name = BranchName { role: "cleo".parse().unwrap(), run: RunId::random() };
    store.fork(&name, &provenance(), Limits::NONE, None).unwrap()
}

fn put(branch: &Branch, path: &str, bytes: &[u8]) {
    let path = TreePath::parse(path).unwrap();
    let (above, name) = path.split_last().unwrap();
    let dir = branch.live().locate_path(&above).unwrap();
    let how = CreateHow::Unchecked(SetAttr { size: Some(0), ..SetAttr::default() });
    branch.live().create(&dir, name, how).unwrap();
    let at = branch.live().locate_path(&path).unwrap();
    branch.live().write(&at, 0, bytes, Stability::Unstable).unwrap();
}

fn commit(branch: &Branch) -> Result<Option<Oid>, StoreError> {
    branch.commit(CommitReason::Explicit("test".into()))
}

fn pin(branch: &Branch) -> Oid {
    let Pinned::Commit(pinned) = branch.pin(GateId::random(), "proposed").unwrap() else {
        panic!("nothing to propose")
    };
    pinned
}

fn clean(prepared: Prepared) -> PreparedMerge {
    let Prepared::Clean(merge) = prepared else { panic!("conflicts") };
    merge
}

fn merge(store: &Store, pinned: Oid) -> Pointer {
    let prepared = clean(store.prepare_merge(pinned).unwrap());
    let staged = store.stage(&prepared, &provenance(), "merge").unwrap();
    store.publish(staged).unwrap().pointer()
}

fn dir_of(pool: &TestPool, name: &BranchName) -> PathBuf {
    pool.path(&format!("branch/{}.{}", name.role, name.run))
}

/// Goal: one damaged branch keeps nobody else from starting, and nothing of it is removed.
fn a_damaged_branch_is_set_aside(pool: &TestPool) {
    let store = open(pool, None);
    let pointer = store.main().pointer();
    let (damaged, good) = (fork(&store), fork(&store));
    put(&damaged, "/shared/f", b"precious");
    let tip = commit(&damaged).unwrap().unwrap();
    let (name, good) = (damaged.name().clone(), good.name().clone());
    drop((damaged, store));
    fs::write(dir_of(pool, &name).join("state.json"), "").unwrap();
    let store = open(pool, Some(pointer));
    assert!(store.branch(&name).is_none() && store.branch(&good).is_some());
    assert_eq!(fs::read(dir_of(pool, &name).join("live/shared/f")).unwrap(), b"precious");
    assert_eq!(store.history().get_ref(&format!("refs/heads/{name}")).unwrap(), Some(tip));
}

/// Goal: a state without files, as an interrupted recycling may leave it, is removed at the next start.
fn a_branch_without_files_is_a_leftover(pool: &TestPool) {
    let store = open(pool, None);
    let pointer = store.main().pointer();
    let name = fork(&store).name().clone();
    drop(store);
    pool.engine.delete(&dir_of(pool, &name).join("live")).unwrap();
    let store = open(pool, Some(pointer));
    assert!(store.branch(&name).is_none() && !dir_of(pool, &name).exists());
    assert_eq!(store.history().get_ref(&format!("refs/heads/{name}")).unwrap(), None);
}

/// Goal: who still holds a recycled branch brings nothing of it back.
fn nothing_comes_back_after_recycling(pool: &TestPool) {
    let store = open(pool, None);
    let branch = fork(&store);
    put(&branch, "/shared/f", b"x");
    store.recycle(branch.name()).unwrap();
    store.flush_reaper();
    // A save would need the directory; made again, it shows that nothing is saved.
    let dir = dir_of(pool, branch.name());
    fs::create_dir(&dir).unwrap();
    branch.set_expires_at(None).unwrap();
    branch.set_provenance(provenance()).unwrap();
    assert!(matches!(commit(&branch), Err(StoreError::NoBranch(_))));
    assert!(matches!(branch.pin(GateId::random(), "late"), Err(StoreError::NoBranch(_))));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    assert_eq!(store.history().get_ref(&format!("refs/heads/{}", branch.name())).unwrap(), None);
}

/// Goal: after a move of the ref whose end was not seen (its sync failed) the branch goes on from the ref.
fn a_ref_that_moved_is_followed(pool: &TestPool) {
    let store = open(pool, None);
    let branch = fork(&store);
    put(&branch, "/shared/f", b"one");
    let one = commit(&branch).unwrap().unwrap();
    put(&branch, "/shared/f", b"two");
    commit(&branch).unwrap().unwrap();
    store.history().set_ref(&format!("refs/heads/{}", branch.name()), Some(one), Expect::Any).unwrap();
    put(&branch, "/shared/f", b"three");
    assert!(matches!(commit(&branch), Err(StoreError::History { .. })));
    let three = commit(&branch).unwrap().unwrap();
    assert_eq!(store.history().commit_info(three).unwrap().parents, [one]);
    assert_eq!(commit(&branch).unwrap(), None);
}

/// Goal: gates decided in the other order leave the branch at the newer merge, also after a restart.
fn merged_pins_go_forward_only(pool: &TestPool) {
    let store = open(pool, None);
    let branch = fork(&store);
    put(&branch, "/shared/f", b"a");
    let older = pin(&branch);
    put(&branch, "/shared/f", b"b");
    let newer = pin(&branch);
    let pointer = merge(&store, newer);
    branch.merged(newer).unwrap();
    branch.merged(older).unwrap();
    assert_eq!(branch.proposal_base(), newer);
    let name = branch.name().clone();
    drop((branch, store));
    let store = open(pool, Some(pointer));
    let branch = store.branch(&name).unwrap();
    branch.merged(older).unwrap();
    assert_eq!(branch.proposal_base(), newer);
    put(&branch, "/shared/f", b"c");
    let newest = pin(&branch);
    branch.merged(newest).unwrap();
    assert_eq!(branch.proposal_base(), newest);
}

/// Goal: with a ledger that was rolled back the store does not start, and what main became since stays.
fn an_old_ledger_is_refused(pool: &TestPool) {
    let store = open(pool, None);
    let old = store.main().pointer();
    let branch = fork(&store);
    put(&branch, "/shared/f", b"x");
    let now = merge(&store, pin(&branch));
    drop((branch, store));
    let error = Store::open(&pool.pool.path, Some(old), options()).unwrap_err();
    assert!(matches!(error, StoreError::OldLedger { ledger: 1 }), "{error}");
    let store = open(pool, Some(now));
    assert_eq!(fs::read(store.main().live().path().join("shared/f")).unwrap(), b"x");
    assert_eq!(store.history().get_ref("refs/heads/main").unwrap(), Some(now.commit));
}

/// Goal: a generation that the ledger may name already is not removed when it cannot be published.
fn a_late_stage_stays_for_the_next_start(pool: &TestPool) {
    let store = open(pool, None);
    let (one, two) = (fork(&store), fork(&store));
    put(&one, "/shared/one", b"1");
    put(&two, "/shared/two", b"2");
    let prepare = |branch: &Branch| clean(store.prepare_merge(pin(branch)).unwrap());
    let (first, second) = (prepare(&one), prepare(&two));
    let first = store.stage(&first, &provenance(), "one").unwrap();
    let late = store.stage(&second, &provenance(), "two").unwrap();
    let decided = late.pointer();
    store.publish(first).unwrap();
    assert!(matches!(store.publish(late), Err(StoreError::MainMoved { .. })));
    drop((one, two, store));
    let store = open(pool, Some(decided));
    assert_eq!(store.main().pointer(), decided);
    assert_eq!(fs::read(store.main().live().path().join("shared/two")).unwrap(), b"2");
}

/// Goal: recycling removes files, refs and checkpoints; a pin stays until it is released.
fn recycled_branch_is_gone(pool: &TestPool) {
    let store = open(pool, None);
    let branch = fork(&store);
    let name = branch.name().clone();
    assert!(matches!(store.fork(&name, &provenance(), Limits::NONE, None), Err(StoreError::BranchExists(_))));
    put(&branch, "/shared/f", b"x");
    branch.checkpoint("c").unwrap();
    let gate = GateId::random();
    let Pinned::Commit(pinned) = branch.pin(gate, "m").unwrap() else { panic!("nothing pinned") };
    drop(branch);
    store.recycle(&name).unwrap();
    store.flush_reaper();
    assert!(store.branch(&name).is_none());
    assert_eq!(fs::read_dir(pool.path("branch")).unwrap().count(), 0);
    assert_eq!(store.history().list_refs(&format!("refs/heads/{name}")).unwrap().len(), 0);
    assert_eq!(store.history().list_refs("refs/nas/checkpoint/").unwrap().len(), 0);
    assert_eq!(store.pinned(gate).unwrap(), Some(pinned));
    // Next morning: the branch is recycled, its pin still merges.
    let prepared = clean(store.prepare_merge(pinned).unwrap());
    let staged = store.stage(&prepared, &provenance(), "late").unwrap();
    store.publish(staged).unwrap();
    store.unpin(gate).unwrap();
    assert!(matches!(store.recycle(&name), Err(StoreError::NoBranch(_))));
}

/// Goal: a store whose ledger was lost is not overwritten with an empty main.
fn wrong_ledger_is_refused(pool: &TestPool) {
    let store = open(pool, None);
    drop(store);
    // Before anything was merged the same start may be tried again.
    let store = open(pool, None);
    let branch = fork(&store);
    put(&branch, "/shared/f", b"x");
    merge(&store, pin(&branch));
    drop((branch, store));
    assert!(matches!(Store::open(&pool.pool.path, None, options()), Err(StoreError::Damaged { .. })));
    assert!(fs::read_dir(pool.path("gen")).unwrap().count() >= 1);
}
