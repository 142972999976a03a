//! Random operations on a branch against a model; then every commit equals the live directory, and a restart in the
//! middle changes nothing.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nas_store::{Branch, CommitReason, Limits, Options, Reserve, Store};
use nas_types::fs::{CreateHow, FsError, SetAttr, Stability};
use nas_types::id::{LeaseId, RunId};
use nas_types::lease::BranchName;
use nas_types::object::{EntryKind, Provenance};
use nas_types::path::TreePath;
use proptest::prelude::*;

mod pools;
use pools::{Kind, TestPool};

#[derive(Debug, Clone)]
enum Op {
    Put(String, Vec<u8>, u32),
    Mkdir(String),
    Remove(String),
    Rmdir(String),
    Rename(String, String),
    Commit,
    Crash,
}

/// What the branch should hold: path → (kind, mode, content).
type Model = BTreeMap<String, (EntryKind, u32, Vec<u8>)>;

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "a-x"]), 1..4)
        .prop_map(|parts| format!("/{}", parts.join("/")))
}

fn op() -> impl Strategy<Value = Op> {
    let mode = prop::sample::select(vec![0o644, 0o755, 0o444, 0o600]);
    prop_oneof![
        5 => (path(), prop::collection::vec(any::<u8>(), 0..20), mode).prop_map(|(p, b, m)| Op::Put(p, b, m)),
        3 => path().prop_map(Op::Mkdir),
        2 => path().prop_map(Op::Remove),
        1 => path().prop_map(Op::Rmdir),
        4 => (path(), path()).prop_map(|(a, b)| Op::Rename(a, b)),
        1 => Just(Op::Commit),
        1 => Just(Op::Crash),
    ]
}

fn p(text: &str) -> TreePath {
    TreePath::parse(text).unwrap()
}

fn parent(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(at) => &path[..at],
    }
}

fn is_dir(model: &Model, path: &str) -> bool {
    path == "/" || model.get(path).is_some_and(|e| e.0 == EntryKind::Dir)
}

fn below<'a>(model: &'a Model, dir: &'a str) -> impl Iterator<Item = String> + 'a {
    model.keys().filter(move |k| k.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))).cloned()
}

/// What the operation does to the model; `None` when it must fail.
fn on_model(model: &Model, op: &Op) -> Option<Model> {
    let mut next = model.clone();
    match op {
        Op::Put(path, bytes, mode) => {
            (is_dir(model, parent(path)) && !is_dir(model, path)).then_some(())?;
            // An existing file keeps its mode: CREATE UNCHECKED sets the length only.
            let mode = model.get(path).map_or(*mode, |e| e.1);
            next.insert(path.clone(), (EntryKind::File, mode, bytes.clone()));
        }
        Op::Mkdir(path) => {
            (is_dir(model, parent(path)) && !model.contains_key(path)).then_some(())?;
            next.insert(path.clone(), (EntryKind::Dir, 0o755, Vec::new()));
        }
        Op::Remove(path) => {
            (model.get(path)?.0 == EntryKind::File).then_some(())?;
            next.remove(path);
        }
        Op::Rmdir(path) => {
            (model.get(path)?.0 == EntryKind::Dir && below(model, path).next().is_none()).then_some(())?;
            next.remove(path);
        }
        Op::Rename(from, to) => {
            let moved = model.get(from)?;
            is_dir(model, parent(to)).then_some(())?;
            if from == to {
                return Some(next);
            }
            (!to.starts_with(&format!("{from}/"))).then_some(())?;
            if let Some(there) = model.get(to) {
                (there.0 == moved.0 && below(model, to).next().is_none()).then_some(())?;
            }
            next.remove(to);
            for old in below(model, from).chain([from.clone()]) {
                let entry = next.remove(&old)?;
                next.insert(format!("{to}{}", &old[from.len()..]), entry);
            }
        }
        Op::Commit | Op::Crash => {}
    }
    Some(next)
}

fn on_branch(branch: &Branch, op: &Op) -> Result<(), FsError> {
    let live = branch.live();
    let split = |path: &str| p(path).split_last().map(|(above, name)| (above, name.as_bytes().to_vec())).unwrap();
    let name = |bytes: &[u8]| nas_types::path::Name::new(Box::leak(bytes.to_vec().into_boxed_slice())).unwrap();
    match op {
        Op::Put(path, bytes, mode) => {
            let (above, last) = split(path);
            let set = SetAttr { size: Some(0), mode: Some(*mode), ..SetAttr::default() };
            let made = live.create(&live.locate_path(&above)?, name(&last), CreateHow::Unchecked(set))?;
            live.write(&live.locate(made.made.node.node)?, 0, bytes, Stability::Unstable)?;
        }
        Op::Mkdir(path) => {
            let (above, last) = split(path);
            live.mkdir(&live.locate_path(&above)?, name(&last), &SetAttr::default())?;
        }
        Op::Remove(path) => {
            let (above, last) = split(path);
            live.remove(&live.locate_path(&above)?, name(&last))?;
        }
        Op::Rmdir(path) => {
            let (above, last) = split(path);
            live.rmdir(&live.locate_path(&above)?, name(&last))?;
        }
        Op::Rename(from, to) => {
            let ((from, from_name), (to, to_name)) = (split(from), split(to));
            live.rename(&live.locate_path(&from)?, name(&from_name), &live.locate_path(&to)?, name(&to_name))?;
        }
        Op::Commit | Op::Crash => {}
    }
    Ok(())
}

fn options() -> Options {
    Options {
        reserve: Reserve { percent: 0, bytes_min: 1 << 20 },
        quiet: Duration::from_secs(3600),
        durability: nas_store::Durability::Deferred,
        ..Options::default()
    }
}

/// The tree of the branch's tip below `/w`.
fn committed(store: &Store, branch: &Branch) -> Model {
    let mut tree = Model::new();
    store
        .history()
        .walk::<nas_history::HistoryError>(branch.tip(), &mut |path, entry| {
            if let Some(below) = path.to_string().strip_prefix("/w/") {
                let bytes = entry.oid.map_or(Ok(Vec::new()), |oid| store.history().read_blob(oid, 1 << 20))?;
                tree.insert(format!("/{below}"), (entry.kind, entry.mode, bytes));
            }
            Ok(())
        })
        .unwrap();
    tree
}

fn run(pool: &TestPool, ops: &[Op]) {
    let mut store = Store::open(&pool.pool.path, None, options()).unwrap();
    let pointer = store.main().pointer();
    let name = BranchName { role: "cleo".parse().unwrap(), run: RunId::random() };
    let who = Provenance {
        principal: "agent:cleo".into(),
        on_behalf_of: None,
        run: name.run,
        lease: LeaseId::random(),
        purpose: None,
        read_manifest: None,
    };
    let mut branch: Arc<Branch> = store.fork(&name, &who, Limits::NONE, None).unwrap();
    on_branch(&branch, &Op::Mkdir("/w".into())).unwrap();
    let mut model = Model::new();
    let below_w = |path: &str| format!("/w{path}");
    for op in ops.iter().chain([&Op::Commit]) {
        let real = match op.clone() {
            Op::Put(path, bytes, mode) => Op::Put(below_w(&path), bytes, mode),
            Op::Mkdir(path) => Op::Mkdir(below_w(&path)),
            Op::Remove(path) => Op::Remove(below_w(&path)),
            Op::Rmdir(path) => Op::Rmdir(below_w(&path)),
            Op::Rename(from, to) => Op::Rename(below_w(&from), below_w(&to)),
            other => other,
        };
        let done = on_branch(&branch, &real);
        match on_model(&model, op) {
            Some(next) => {
                assert_eq!(done, Ok(()), "{op:?} on {model:?}");
                model = next;
            }
            None => assert!(done.is_err(), "{op:?} on {model:?}"),
        }
        match op {
            Op::Commit => {
                branch.commit(CommitReason::Explicit("model".into())).unwrap();
                assert_eq!(committed(&store, &branch), model);
            }
            Op::Crash => {
                drop((branch, store));
                store = Store::open(&pool.pool.path, Some(pointer), options()).unwrap();
                branch = store.branch(&name).unwrap();
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Goal: on the copy engine.
    #[test]
    fn copy(ops in prop::collection::vec(op(), 1..40)) {
        run(&pools::pool(Kind::Copy).unwrap(), &ops);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    /// Goal: on btrfs.
    #[test]
    fn btrfs(ops in prop::collection::vec(op(), 1..40)) {
        if let Some(pool) = pools::pool(Kind::Btrfs) {
            run(&pool, &ops);
        }
    }
}
