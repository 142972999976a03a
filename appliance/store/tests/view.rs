//! Views of single commits, on every engine.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use nas_store::{CommitReason, LiveDir, Options, Store};
use nas_types::fs::FsError;
use nas_types::path::{Name, TreePath};

mod pools;
use pools::{TestPool, fork, open, put};

on_every_engine!(
    /// Goal: a view shows its commit whatever comes later, refuses changes, keeps its inodes over a reopening, and goes when
    /// nobody wants it.
    one_unchanging_state,
);

fn text(live: &LiveDir, path: &str) -> Result<String, FsError> {
    let at = live.locate_path(&TreePath::parse(path).unwrap())?;
    let mut bytes = [0; 64];
    let read = live.read(&at, 0, &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..read.count as usize]).into_owned())
}

fn one_unchanging_state(pool: &TestPool) {
    let store = open(pool);
    let main = store.main().pointer();
    let branch = fork(&store);
    put(&branch, "/shared/a", b"one").unwrap();
    put(&branch, "/shared/gone", b"there").unwrap();
    let first = branch.commit(CommitReason::Explicit("test".into())).unwrap().unwrap();
    put(&branch, "/shared/a", b"two").unwrap();
    let dir = branch.live().locate_path(&TreePath::parse("/shared").unwrap()).unwrap();
    branch.live().remove(&dir, Name::new(b"gone").unwrap()).unwrap();
    let second = branch.commit(CommitReason::Explicit("test".into())).unwrap().unwrap();

    let view = store.view(first).unwrap();
    assert_eq!((text(&view, "/shared/a").unwrap().as_str(), text(&view, "/shared/gone").is_ok()), ("one", true));
    assert_eq!(text(&store.view(second).unwrap(), "/shared/a").unwrap(), "two");
    assert_eq!(text(&store.view(second).unwrap(), "/shared/gone"), Err(FsError::NotFound));
    let shared = view.locate_path(&TreePath::parse("/shared").unwrap()).unwrap();
    assert_eq!(view.remove(&shared, Name::new(b"a").unwrap()).map(|_| ()), Err(FsError::ReadOnly));
    let node = view.locate_path(&TreePath::parse("/shared/a").unwrap()).unwrap().node;
    drop((view, branch, store));

    let store = Store::open(&pool.pool.path, Some(main), Options::default()).unwrap();
    let again = store.view(first).unwrap();
    assert_eq!(again.locate(node).unwrap().path.to_string(), "/shared/a");
    store.drop_views(|commit| commit == second).unwrap();
    store.flush_reaper();
    let left: Vec<_> =
        std::fs::read_dir(pool.pool.path.join("view")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, [std::ffi::OsString::from(second.to_string())]);
    assert_eq!(text(&store.view(first).unwrap(), "/shared/a").unwrap(), "one");
}
