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
    /// Goal: what others move beside us is found where it is now, or not at all: never under the path it had.
    others_move_it,
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
    // Nor is anything counted: what is remembered does not grow with what was ever written.
    assert_eq!((live.usage().bytes(), live.usage().files()), (0, 0));
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

fn others_move_it(pool: &TestPool) {
    let store = open(pool, 1 << 20);
    let live = store.create_tree(&media()).unwrap();
    let path = |text: &str| TreePath::parse(text).unwrap();
    for dir in ["a", "b"] {
        let root = live.locate(live.root()).unwrap();
        live.mkdir(&root, Name::new(dir.as_bytes()).unwrap(), &SetAttr::default()).unwrap();
    }
    let a = live.locate_path(&path("/a")).unwrap();
    live.mkdir(&a, Name::new(b"dir").unwrap(), &SetAttr::default()).unwrap();
    let dir = live.locate_path(&path("/a/dir")).unwrap();
    let made = live.create(&dir, Name::new(b"file").unwrap(), CreateHow::Unchecked(SetAttr::default())).unwrap();
    let file = made.made.node.node;
    let at = live.locate(file).unwrap();
    live.write(&at, 0, b"one", Stability::FileSync).unwrap();

    std::fs::rename(live.path().join("a/dir"), live.path().join("b/dir")).unwrap();
    // Decided about before, done after: not on the strength of a directory that is still open.
    assert!(live.write(&at, 0, b"two", Stability::FileSync).is_err());
    assert!(live.read(&at, 0, &mut [0; 8]).is_err());
    for node in [file, dir.node] {
        let now = live.locate(node).map(|at| at.path);
        assert!(now.as_ref().is_err() || now.as_ref().is_ok_and(|now| now.is_within(&path("/b"))), "{now:?}");
    }
    let found = live.locate_path(&path("/b/dir/file")).unwrap();
    assert_eq!(found.node.id, file.id);
    let mut bytes = [0; 8];
    assert_eq!(live.read(&found, 0, &mut bytes).unwrap().count, 3);
    assert_eq!(&bytes[..3], b"one");
    // And what others made is there.
    std::fs::write(live.path().join("a/made"), b"made").unwrap();
    assert_eq!(live.locate_path(&path("/a/made")).unwrap().attr.size, 4);
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
