//! A branch that follows main while someone writes to it, on every engine.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::sync::atomic::{AtomicBool, Ordering};

use nas_store::{Branch, Pinned, Prepared, Store};
use nas_types::id::GateId;
use nas_types::path::TreePath;

mod pools;
use pools::{TestPool, fork, open, put};

on_every_engine!(
    /// Goal: whatever is written while main is followed reaches main, and takes nothing of main back.
    written_meanwhile,
);

/// Merges what is on the branch.
fn merge(store: &Store, branch: &Branch) {
    let gate = GateId::random();
    if let Pinned::Commit(pinned) = branch.pin(gate, "test").unwrap() {
        match store.prepare_merge(pinned).unwrap() {
            Prepared::Clean(prepared) => {
                if !prepared.changes().is_empty() {
                    let staged = store.stage(&prepared, &branch.provenance(), "test").unwrap();
                    store.publish(staged).unwrap();
                }
                branch.merged(pinned).unwrap();
            }
            Prepared::Conflicts(conflicts) => panic!("{conflicts:?}"),
        }
    }
    store.unpin(gate).unwrap();
}

fn on_main(store: &Store, path: &str) -> String {
    let path = TreePath::parse(path).unwrap();
    let entry = store.history().entry_at(store.main().pointer().commit, &path).unwrap().unwrap();
    String::from_utf8(store.history().read_blob(entry.oid.unwrap(), 1 << 20).unwrap()).unwrap()
}

fn written_meanwhile(pool: &TestPool) {
    const ROUNDS: usize = 10;
    let store = open(pool);
    let (mine, run) = (fork(&store), fork(&store));
    put(&run, "/shared/theirs", b"0").unwrap();
    merge(&store, &run);
    let stop = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut last = 0;
            while !stop.load(Ordering::Relaxed) {
                last += 1;
                // A directory that is being replaced is looked for again.
                while put(&mine, "/shared/mine", last.to_string().as_bytes()).is_err() {}
            }
            last
        });
        for round in 1..=ROUNDS {
            // Back and forth: what is taken back by mistake would look like a change of ours.
            put(&run, "/shared/theirs", if round % 2 == 0 { b"0" } else { b"1" }).unwrap();
            merge(&store, &run);
            merge(&store, &mine);
            mine.follow(store.main().pointer().commit).unwrap();
            assert_eq!(on_main(&store, "/shared/theirs"), if round % 2 == 0 { "0" } else { "1" }, "round {round}");
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    merge(&store, &mine);
    assert_eq!(on_main(&store, "/shared/mine"), written.to_string());
    assert_eq!(on_main(&store, "/shared/theirs"), "0");
    assert!(mine.follow(store.main().pointer().commit).unwrap().is_some());
}
