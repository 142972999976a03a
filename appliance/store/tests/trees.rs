//! Unprotected trees, on every engine: there after a reopening, without history, within the reserve of the pool, gone when
//! deleted.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use nas_store::{LiveDir, Options, Reserve, Store};
use nas_types::fs::{CreateHow, FsError, SetAttr, Stability};
use nas_types::lease::TreeName;
use nas_types::path::{Name, TreePath};

mod pools;
use pools::TestPool;

on_every_engine!(
    /// Goal: files survive a reopening, and nothing of them is in the history.
    there_after_a_reopening,
    /// Goal: at the reserve nothing grows, and removing still works.
    within_the_reserve,
    /// Goal: a deleted tree is gone with its files; one that is not empty is never discarded as a leftover.
    deleted,
);

fn open(pool: &TestPool, bytes_min: u64) -> Store {
    let reserve = Reserve { percent: 0, bytes_min };
    Store::open(&pool.pool.path, None, Options { reserve, ..Options::default() }).unwrap()
}

fn media() -> TreeName {
    "media".parse().unwrap()
}

fn write(live: &LiveDir, name: &str, bytes: &[u8]) -> Result<(), FsError> {
    let root = live.locate(live.root())?;
    let name = Name::new(name.as_bytes()).unwrap();
    let made = live.create(&root, name, CreateHow::Unchecked(SetAttr::default()))?;
    live.write(&live.locate(made.made.node.node)?, 0, bytes, Stability::FileSync).map(drop)
}

fn there_after_a_reopening(pool: &TestPool) {
    let store = open(pool, 1 << 20);
    let commit = store.main().pointer().commit;
    let live = store.create_tree(&media()).unwrap();
    write(&live, "a", b"one").unwrap();
    assert!(!live.is_dirty());
    let node = live.locate_path(&TreePath::parse("/a").unwrap()).unwrap().node;
    drop((live, store));

    let store = Store::open(&pool.pool.path, Some(nas_store::Pointer { number: 1, commit }), Options::default());
    let store = store.unwrap();
    assert_eq!(store.trees(), [media()]);
    let live = store.tree(&media()).unwrap();
    let mut bytes = [0; 8];
    let read = live.read(&live.locate(node).unwrap(), 0, &mut bytes).unwrap();
    assert_eq!(&bytes[..read.count as usize], b"one");
    assert_eq!(store.main().pointer().commit, commit);
}

fn within_the_reserve(pool: &TestPool) {
    let store = open(pool, 1 << 20);
    let live = store.create_tree(&media()).unwrap();
    write(&live, "before", b"x").unwrap();
    drop((live, store));
    // More is kept back than there is.
    let commit = Store::open(&pool.pool.path, None, Options::default()).unwrap().main().pointer();
    let reserve = Reserve { percent: 0, bytes_min: u64::MAX };
    let store = Store::open(&pool.pool.path, Some(commit), Options { reserve, ..Options::default() }).unwrap();
    let live = store.tree(&media()).unwrap();
    assert_eq!(write(&live, "after", b"x"), Err(FsError::NoSpace));
    let root = live.locate(live.root()).unwrap();
    live.remove(&root, Name::new(b"before").unwrap()).unwrap();
}

fn deleted(pool: &TestPool) {
    let store = open(pool, 1 << 20);
    let live = store.create_tree(&media()).unwrap();
    assert!(store.create_tree(&media()).is_err());
    write(&live, "a", b"one").unwrap();
    assert!(!store.discard_empty_tree(&media()).unwrap());
    store.delete_tree(&media()).unwrap();
    store.flush_reaper();
    assert!(store.tree(&media()).is_none());
    let again = store.create_tree(&media()).unwrap();
    assert!(again.locate_path(&TreePath::parse("/a").unwrap()).is_err());
    assert!(store.discard_empty_tree(&media()).unwrap());
}
