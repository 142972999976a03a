//! The history is kept small in the background, beside whoever works.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::sync::Arc;
use std::time::Duration;

use nas_store::{Branch, CommitReason, Import, Limits, Options, Pinned, Pointer, Prepared, Reserve, Store, Upkeep};
use nas_testkit::wait_until;
use nas_types::id::{GateId, LeaseId, RunId};
use nas_types::lease::BranchName;
use nas_types::object::{Oid, Provenance};
use nas_types::path::TreePath;

mod pools;
use pools::TestPool;

on_every_engine!(
    packs_are_joined_while_a_branch_is_worked_on,
    what_is_given_up_goes_and_what_is_pinned_stays,
    merged_lines_stay_while_the_gate_waits,
    a_start_cleans_up_after_the_one_before,
);

/// Far more than any of it takes.
const PATIENCE: Duration = Duration::from_secs(60);
const EAGER: Upkeep = Upkeep { packs_max: 6, quiet: Duration::ZERO, interval_min: Duration::from_millis(1) };

fn options(upkeep: Upkeep) -> Options {
    Options {
        reserve: Reserve { percent: 0, bytes_min: 1 << 20 },
        quiet: Duration::from_secs(3600),
        durability: nas_store::Durability::Deferred,
        generation_grace: Duration::ZERO,
        upkeep,
        ..Options::default()
    }
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

fn open(pool: &TestPool, pointer: Option<Pointer>, upkeep: Upkeep) -> Store {
    Store::open(&pool.pool.path, pointer, options(upkeep)).unwrap()
}

fn fork(store: &Store) -> Arc<Branch> {
    let name = BranchName { role: "cleo".parse().unwrap(), run: RunId::random() };
    store.fork(&name, &provenance(), Limits::NONE, None).unwrap()
}

fn put(branch: &Branch, path: &str, text: &str) -> Oid {
    let path = TreePath::parse(path).unwrap();
    branch.import_entry(&path, Import::File(&mut text.as_bytes()), 0o644, None).unwrap();
    branch.commit(CommitReason::Explicit("test".into())).unwrap().unwrap()
}

fn pin(branch: &Branch, gate: GateId) -> Oid {
    match branch.pin(gate, "proposed").unwrap() {
        Pinned::Commit(oid) => oid,
        Pinned::Unchanged => panic!("nothing to propose"),
    }
}

fn merge(store: &Store, branch: &Branch) {
    let Prepared::Clean(prepared) = store.prepare_merge(pin(branch, GateId::random())).unwrap() else {
        panic!("a conflict");
    };
    let staged = store.stage(&prepared, &provenance(), "merge").unwrap();
    store.publish(staged).unwrap();
}

fn has(store: &Store, commit: Oid) -> bool {
    store.history().commit_info(commit).is_ok()
}

fn has_text(store: &Store, text: &str) -> bool {
    let blob = nas_history::blob_id(text.as_bytes()).unwrap();
    store.history().read_blob(blob, 1 << 20).is_ok()
}

/// Goal: however many commits are made, there are few packs, and every commit can still be read.
fn packs_are_joined_while_a_branch_is_worked_on(pool: &TestPool) {
    let store = open(pool, None, EAGER);
    let branch = fork(&store);
    let commits: Vec<_> = (0..40).map(|n| put(&branch, &format!("/shared/f{n}"), &format!("{n}\n"))).collect();
    assert!(wait_until(PATIENCE, || store.history().pack_count().unwrap() <= EAGER.packs_max));
    for (n, commit) in commits.iter().enumerate() {
        let path = TreePath::parse(&format!("/shared/f{n}")).unwrap();
        let entry = store.history().entry_at(*commit, &path).unwrap().unwrap();
        assert_eq!(store.history().read_blob(entry.oid.unwrap(), 100).unwrap(), format!("{n}\n").into_bytes());
    }
    assert_eq!(branch.tip(), commits[39]);
}

/// Goal (DESIGN §3, history stays bounded): squashed auto-commits and recycled branches go; what main, a live branch or a
/// pending gate reaches stays. Not while a writer is at work, but soon after.
fn what_is_given_up_goes_and_what_is_pinned_stays(pool: &TestPool) {
    let store = open(pool, None, EAGER);
    let (given_up, kept, gated) = (fork(&store), fork(&store), fork(&store));
    let auto = put(&gated, "/shared/g", "on the way\n");
    put(&gated, "/shared/g", "proposed\n");
    let gone = put(&given_up, "/shared/a", "only here\n");
    let stays = put(&kept, "/shared/b", "kept\n");
    let gate = GateId::random();
    let pinned = pin(&gated, gate);
    assert!(wait_until(PATIENCE, || !has(&store, auto)), "a squashed commit stays");
    assert!(!has_text(&store, "on the way\n"));

    let writer = store.history().hold();
    store.recycle(given_up.name()).unwrap();
    store.recycle(gated.name()).unwrap();
    store.flush_reaper();
    assert!(has(&store, gone), "pruned beside a writer");
    drop(writer);
    assert!(wait_until(PATIENCE, || !has(&store, gone)), "a recycled branch stays");
    assert!(!has_text(&store, "only here\n"));
    assert!(has(&store, stays) && has_text(&store, "kept\n"));
    assert!(has(&store, pinned) && has_text(&store, "proposed\n"));
    assert_eq!(store.pins().unwrap(), [gate]);

    store.unpin(gate).unwrap();
    assert!(wait_until(PATIENCE, || !has(&store, pinned)), "what no gate needs stays");
    assert_eq!(store.pins().unwrap(), []);
    // The live branch goes on as if nothing had happened.
    put(&kept, "/shared/b", "only here\n");
    assert!(has_text(&store, "only here\n"));
}

/// Goal (GATE-1): the text that a merge by line made is there for as long as a person may want to look at it, though no
/// branch holds it.
fn merged_lines_stay_while_the_gate_waits(pool: &TestPool) {
    let store = open(pool, None, EAGER);
    let lines = |first: &str, last: &str| format!("{first}\n2\n3\n4\n5\n6\n7\n{last}\n");
    let before = fork(&store);
    put(&before, "/shared/f", &lines("1", "8"));
    merge(&store, &before);
    let (ours, theirs, other) = (fork(&store), fork(&store), fork(&store));
    put(&theirs, "/shared/f", &lines("one", "8"));
    merge(&store, &theirs);
    put(&ours, "/shared/f", &lines("1", "eight"));
    let gate = GateId::random();
    let Prepared::Clean(prepared) = store.prepare_merge(pin(&ours, gate)).unwrap() else { panic!("a conflict") };
    store.keep_merged(gate, &prepared).unwrap();

    // One thing that is seen to go shows that the other one was looked at.
    let gone = put(&other, "/shared/x", "x\n");
    store.recycle(other.name()).unwrap();
    assert!(wait_until(PATIENCE, || !has(&store, gone)));
    assert!(has_text(&store, &lines("one", "eight")));

    store.unpin(gate).unwrap();
    assert!(wait_until(PATIENCE, || !has_text(&store, &lines("one", "eight"))));
    assert!(has_text(&store, &lines("one", "8")) && has_text(&store, &lines("1", "eight")));
}

/// Goal: what a run of the program left behind is cleaned by the next one, without anybody asking.
fn a_start_cleans_up_after_the_one_before(pool: &TestPool) {
    const NEVER: Upkeep = Upkeep { packs_max: 6, quiet: Duration::ZERO, interval_min: Duration::from_secs(3600) };
    let store = open(pool, None, NEVER);
    let branch = fork(&store);
    for n in 0..20 {
        put(&branch, "/shared/f", &format!("{n}\n"));
    }
    merge(&store, &branch);
    let commits: Vec<_> = (20..25).map(|n| put(&branch, "/shared/f", &format!("{n}\n"))).collect();
    store.recycle(branch.name()).unwrap();
    let pointer = store.main().pointer();
    assert!(store.history().pack_count().unwrap() > 20 && has(&store, commits[0]));
    drop((branch, store));

    let store = open(pool, Some(pointer), EAGER);
    let clean = || store.history().pack_count().unwrap() <= EAGER.packs_max && commits.iter().all(|c| !has(&store, *c));
    assert!(wait_until(PATIENCE, clean));
    assert!(has(&store, pointer.commit) && has_text(&store, "19\n") && !has_text(&store, "24\n"));
}
