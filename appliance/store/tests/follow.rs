//! A branch that follows main while someone writes to it, on every engine.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nas_store::{Branch, Limits, Options, Pinned, Prepared, Reserve, Store};
use nas_types::fs::{CreateHow, SetAttr, Stability};
use nas_types::id::{GateId, LeaseId, RunId};
use nas_types::lease::BranchName;
use nas_types::object::Provenance;
use nas_types::path::TreePath;

mod pools;
use pools::TestPool;

on_every_engine!(
    /// Goal: whatever is written while main is followed reaches main, and takes nothing of main back.
    written_meanwhile,
);

fn who(run: RunId) -> Provenance {
    Provenance {
        principal: "human:owner".into(),
        on_behalf_of: None,
        run,
        lease: LeaseId::random(),
        purpose: None,
        read_manifest: None,
    }
}

fn fork(store: &Store) -> Arc<Branch> {
    let name = BranchName { role: "owner".parse().unwrap(), run: RunId::random() };
    store.fork(&name, &who(name.run), Limits::NONE, None).unwrap()
}

fn put(branch: &Branch, path: &str, text: &str) {
    let path = TreePath::parse(path).unwrap();
    let (above, name) = path.split_last().unwrap();
    loop {
        // A directory that is being replaced is looked for again.
        let Ok(dir) = branch.live().locate_path(&above) else { continue };
        let how = CreateHow::Unchecked(SetAttr { size: Some(0), ..SetAttr::default() });
        let Ok(made) = branch.live().create(&dir, name, how) else { continue };
        let Ok(at) = branch.live().locate(made.made.node.node) else { continue };
        if branch.live().write(&at, 0, text.as_bytes(), Stability::Unstable).is_ok() {
            return;
        }
    }
}

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
    let options = Options {
        reserve: Reserve { percent: 0, bytes_min: 1 << 20 },
        quiet: Duration::from_secs(3600),
        durability: nas_store::Durability::Deferred,
        ..Options::default()
    };
    let store = Store::open(&pool.pool.path, None, options).unwrap();
    let (mine, run) = (fork(&store), fork(&store));
    put(&run, "/shared/theirs", "0");
    merge(&store, &run);
    let stop = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut last = 0;
            while !stop.load(Ordering::Relaxed) {
                last += 1;
                put(&mine, "/shared/mine", &last.to_string());
            }
            last
        });
        for round in 1..=ROUNDS {
            // Back and forth: what is taken back by mistake would look like a change of ours.
            put(&run, "/shared/theirs", if round % 2 == 0 { "0" } else { "1" });
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
