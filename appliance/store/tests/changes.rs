//! What a commit must hold after changes that reach more than one path, or fail half way, on every engine.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::sync::Arc;
use std::time::Duration;

use nas_store::{Branch, CommitReason, Import, Store};
use nas_types::fs::{CreateHow, FsError, SetAttr, Stability};
use nas_types::object::Oid;
use nas_types::path::{Name, TreePath};
use nas_types::time::FileTime;

mod pools;
use pools::{TestPool, fork, open, put};

on_every_engine!(
    every_name_of_a_file_is_committed,
    half_a_setattr_is_noted,
    a_slow_import_stops_nobody,
    names_of_incoming_files_are_ours,
    a_mode_that_comes_is_of_one_name,
);

fn p(text: &str) -> TreePath {
    TreePath::parse(text).unwrap()
}

fn n(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
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
    put(&branch, "/shared/one", b"first").unwrap();
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
    put(&branch, "/shared/f", b"long").unwrap();
    commit(&branch);
    // Marked on disk already, and open already.
    put(&branch, "/shared/g", b"x").unwrap();
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

/// Reads "slow", after everything else was done that must not wait for it.
struct Slow<'a> {
    branch: &'a Arc<Branch>,
    left: &'static [u8],
}

impl std::io::Read for Slow<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.left.len() == 4 {
            let (branch, done) = (Arc::clone(self.branch), std::sync::mpsc::channel());
            std::thread::spawn(move || {
                put(&branch, "/shared/quick", b"q").unwrap();
                commit(&branch);
                let root = branch.live().locate(branch.live().root()).unwrap();
                let listed = branch.live().readdir(&root, 0, 100, false, &mut |_| true).unwrap();
                done.0.send(listed.entries.len()).unwrap();
            });
            let listed = done.1.recv_timeout(Duration::from_secs(60)).expect("a commit waits for an import");
            assert_eq!(listed, 3, "what comes in is not shown");
        }
        let got = self.left.len().min(into.len()).min(1);
        into[..got].copy_from_slice(&self.left[..got]);
        self.left = &self.left[got..];
        Ok(got)
    }
}

/// Goal: while an import is received, changes and commits go on; a crash meanwhile is found by its mark.
fn a_slow_import_stops_nobody(pool: &TestPool) {
    let store = open(pool);
    let branch = fork(&store);
    let mark = branch.live().path().with_file_name("dirty");
    let mut slow = Slow { branch: &branch, left: b"slow" };
    branch
        .import_entry(&p("/shared/d/slow"), Import::File(&mut slow), 0o644, Some(FileTime { secs: 5, nanos: 0 }))
        .unwrap();
    assert!(mark.exists());
    let tip = commit(&branch);
    assert!(!mark.exists());
    assert_eq!((text(&store, tip, "/shared/d/slow"), text(&store, tip, "/shared/quick")), ("slow".into(), "q".into()));
    // One that fails leaves nothing.
    let failing = &mut std::io::Read::chain(&b"some"[..], Failing);
    branch.import_entry(&p("/shared/none"), Import::File(failing), 0o644, None).unwrap_err();
    assert_eq!(fs::read_dir(branch.live().path()).unwrap().count(), 3);
}

struct Failing;

impl std::io::Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other("the sender went away"))
    }
}

/// Goal: no file of a user has a name that is removed after a crash; below the root such a name is as good as any.
fn names_of_incoming_files_are_ours(pool: &TestPool) {
    const OURS: &str = ".nas-incoming-1";
    let store = open(pool);
    let branch = fork(&store);
    let live = branch.live();
    let root = live.locate(live.root()).unwrap();
    let plain = SetAttr::default();
    assert_eq!(live.create(&root, n(OURS), CreateHow::Guarded(plain)).unwrap_err(), FsError::Access);
    assert_eq!(live.mkdir(&root, n(OURS), &plain).unwrap_err(), FsError::Access);
    assert_eq!(live.symlink(&root, n(OURS), b"x", &plain).unwrap_err(), FsError::Access);
    assert_eq!(live.rename(&root, n("shared"), &root, n(OURS)).unwrap_err(), FsError::Access);
    put(&branch, "/shared/f", b"x").unwrap();
    let file = live.locate_path(&p("/shared/f")).unwrap();
    assert_eq!(live.link(&file, &root, n(OURS)).unwrap_err(), FsError::Access);
    assert_eq!(live.lookup(&root, n(OURS)).unwrap_err(), FsError::NotFound);
    assert!(branch.import_entry(&p(&format!("/{OURS}")), Import::Dir, 0o755, None).is_err());
    assert!(branch.import_entry(&p(&format!("/{OURS}/x")), Import::Dir, 0o755, None).is_err());
    put(&branch, &format!("/shared/{OURS}"), b"x").unwrap();
}

/// Goal: a restore that changes the mode of one name of a file leaves that of its other names.
fn a_mode_that_comes_is_of_one_name(pool: &TestPool) {
    let store = open(pool);
    let branch = fork(&store);
    put(&branch, "/shared/one", b"same").unwrap();
    put(&branch, "/shared/two", b"same").unwrap();
    let at = |path: &str| branch.live().locate_path(&p(path)).unwrap();
    let executable = SetAttr { mode: Some(0o755), ..SetAttr::default() };
    branch.live().setattr(&at("/shared/one"), &executable, None).unwrap();
    let before = commit(&branch);
    branch.live().remove(&at("/shared"), n("two")).unwrap();
    let plain = SetAttr { mode: Some(0o644), ..SetAttr::default() };
    branch.live().setattr(&at("/shared/one"), &plain, None).unwrap();
    branch.live().link(&at("/shared/one"), &at("/shared"), n("two")).unwrap();
    commit(&branch);
    branch.restore(before, &|_| true).unwrap();
    let modes = ["/shared/one", "/shared/two"].map(|path| at(path).attr.mode);
    assert_eq!(modes, [0o755, 0o644]);
}
