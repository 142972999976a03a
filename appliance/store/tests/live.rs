//! Operations on live files, on every engine; the cases of FINDINGS §5 at this level.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::sync::Arc;

use nas_store::live::{LiveDir, Located};
use nas_store::space::Limits;
use nas_types::fs::{CreateHow, FileKind, FsError, NodeRef, SetAttr, SetTime, Special, Stability};
use nas_types::path::{Name, TreePath};
use nas_types::time::FileTime;

mod pools;
use pools::TestPool;

on_every_engine!(
    read_then_write_in_place,
    truncating_save,
    narrow_modes,
    hard_links,
    links_found_after_restart,
    rename_of_current_directory,
    handle_survives_restart_and_renames,
    listing_of_2500,
    symlinks_are_never_followed,
    odd_names,
    exclusive_create,
    refused_kinds_and_modes,
    guard_and_times,
    rename_rules,
    stale_after_remove,
    moved_between_decision_and_act,
    replaced_or_linked_between_decision_and_act,
    quota_holds_under_threads,
    few_descriptors,
    read_only_view,
    reserve_stops_writes_not_deletes,
    fifo_is_never_opened,
    dirty_mark_is_there_first,
);

fn n(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn p(text: &str) -> TreePath {
    TreePath::parse(text).unwrap()
}

fn root(live: &LiveDir) -> Located {
    live.locate(live.root()).unwrap()
}

const PLAIN: CreateHow =
    CreateHow::Guarded(SetAttr { mode: Some(0o644), size: None, atime: SetTime::Keep, mtime: SetTime::Keep });

fn create(live: &LiveDir, dir: &Located, name: &str) -> NodeRef {
    live.create(dir, n(name), PLAIN).unwrap().made.node.node
}

fn mkdir(live: &LiveDir, dir: &Located, name: &str) -> Located {
    let made = live.mkdir(dir, n(name), &SetAttr::default()).unwrap();
    live.locate(made.node.node).unwrap()
}

fn write(live: &LiveDir, node: NodeRef, offset: u64, bytes: &[u8]) -> Result<(), FsError> {
    let at = live.locate(node)?;
    let written = live.write(&at, offset, bytes, Stability::Unstable)?;
    assert_eq!(written.count as usize, bytes.len());
    Ok(())
}

fn read(live: &LiveDir, node: NodeRef) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 16];
    let got = live.read(&live.locate(node).unwrap(), 0, &mut buffer).unwrap();
    assert!(got.eof);
    buffer.truncate(got.count as usize);
    buffer
}

/// Goal: bytes around an in-place write stay (hf-mount 178), and COMMIT keeps them.
fn read_then_write_in_place(pool: &TestPool) {
    let live = pool.live("a");
    let f = create(&live, &root(&live), "f");
    write(&live, f, 0, b"0123456789").unwrap();
    assert_eq!(read(&live, f), b"0123456789");
    let at = live.locate(f).unwrap();
    let written = live.write(&at, 3, b"XY", Stability::FileSync).unwrap();
    assert_eq!((written.stability, written.file.before.size, written.file.after.size), (Stability::FileSync, 10, 10));
    live.commit(&live.locate(f).unwrap()).unwrap();
    assert_eq!(read(&live, f), b"012XY56789");
    let mut two = [0; 2];
    let part = live.read(&live.locate(f).unwrap(), 3, &mut two).unwrap();
    assert_eq!((part.count, part.eof, &two), (2, false, b"XY"));
}

/// Goal: an O_TRUNC save keeps the handle good (hf-mount 185).
fn truncating_save(pool: &TestPool) {
    let live = pool.live("a");
    let f = create(&live, &root(&live), "f");
    write(&live, f, 0, b"a long first version").unwrap();
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    live.setattr(&live.locate(f).unwrap(), &set, None).unwrap();
    write(&live, f, 0, b"new").unwrap();
    assert_eq!(read(&live, f), b"new");
    // CREATE UNCHECKED with size 0 is how open(O_CREAT|O_TRUNC) arrives.
    let again = live.create(&root(&live), n("f"), CreateHow::Unchecked(set)).unwrap();
    assert!(!again.new);
    assert_eq!((again.made.node.node.id, again.made.node.attr.size), (f.id, 0));
}

/// Goal: a file just created 0444 can be written (agentfs 333); the client sees its mode, the disk keeps u+rw.
fn narrow_modes(pool: &TestPool) {
    let live = pool.live("a");
    for (name, mode) in [("ro", 0o444), ("none", 0), ("sticky", 0o1755), ("x", 0o755), ("wide", 0o666)] {
        let how = CreateHow::Guarded(SetAttr { mode: Some(mode), ..SetAttr::default() });
        let made = live.create(&root(&live), n(name), how).unwrap().made;
        assert_eq!(made.node.attr.mode, mode, "{name}");
        write(&live, made.node.node, 0, b"git object").unwrap();
        live.close_files();
        assert_eq!(read(&live, made.node.node), b"git object");
        assert_eq!(live.locate(made.node.node).unwrap().attr.mode, mode);
        assert_eq!(fs::metadata(live.path().join(name)).unwrap().mode() & 0o600, 0o600);
    }
    let set = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    let dir = live.mkdir(&root(&live), n("d"), &set(0o555)).unwrap();
    assert_eq!(dir.node.attr.mode, 0o555);
    let at = live.locate(dir.node.node).unwrap();
    create(&live, &at, "inside");
    live.setattr(&live.locate(dir.node.node).unwrap(), &set(0o1777), None).unwrap();
    assert_eq!(live.locate(dir.node.node).unwrap().attr.mode, 0o1777);
    live.setattr(&live.locate(dir.node.node).unwrap(), &set(0o700), None).unwrap();
    assert_eq!(live.locate(dir.node.node).unwrap().attr.mode, 0o700);
}

/// Goal: a file with several names tells them all, and keeps living when one goes.
fn hard_links(pool: &TestPool) {
    let live = pool.live("a");
    let f = create(&live, &root(&live), "f");
    let d = mkdir(&live, &root(&live), "d");
    let (file, _) = live.link(&live.locate(f).unwrap(), &d, n("g")).unwrap();
    assert_eq!(file.after.nlink, 2);
    let names: BTreeSet<_> = live.names_of(f).unwrap().into_iter().collect();
    assert_eq!(names, [p("/d/g"), p("/f")].into());
    live.remove(&root(&live), n("f")).unwrap();
    assert_eq!(live.names_of(f).unwrap(), [p("/d/g")]);
    write(&live, f, 0, b"still").unwrap();
    assert_eq!(live.link(&d, &root(&live), n("dirlink")), Err(FsError::IsDir));
    assert_eq!(live.link(&live.locate(f).unwrap(), &d, n("g")), Err(FsError::Exists));
}

/// Goal: after a restart all names of a file are found, though only one was looked up.
fn links_found_after_restart(pool: &TestPool) {
    let live = pool.live("a");
    let f = create(&live, &root(&live), "f");
    let d = mkdir(&live, &root(&live), "d");
    live.link(&live.locate(f).unwrap(), &d, n("hidden")).unwrap();
    drop(live);
    let live = pool.reopen("a");
    let names: BTreeSet<_> = live.names_of(f).unwrap().into_iter().collect();
    assert_eq!(names, [p("/d/hidden"), p("/f")].into());
}

/// Goal: a renamed directory stays usable through its handle (rclone 9924).
fn rename_of_current_directory(pool: &TestPool) {
    let live = pool.live("a");
    let cwd = mkdir(&live, &root(&live), "cwd");
    let inner = mkdir(&live, &cwd, "inner");
    let f = create(&live, &inner, "f");
    live.rename(&root(&live), n("cwd"), &root(&live), n("moved")).unwrap();
    assert_eq!(live.path_of(f).unwrap(), p("/moved/inner/f"));
    write(&live, f, 0, b"x").unwrap();
    let again = live.locate(cwd.node).unwrap();
    assert_eq!(again.path, p("/moved"));
    create(&live, &again, "new");
    assert_eq!(live.parent(&again).unwrap().node.id, live.root().id);
    assert!(live.path().join("moved/new").exists());
}

/// Goal: restart, and renames of the parent before and after it: an old reference still reaches its file (hf-mount 177).
fn handle_survives_restart_and_renames(pool: &TestPool) {
    let live = pool.live("a");
    let d = mkdir(&live, &root(&live), "d");
    let sub = mkdir(&live, &d, "sub");
    let (f, g) = (create(&live, &sub, "f"), create(&live, &sub, "g"));
    live.rename(&sub, n("g"), &root(&live), n("g2")).unwrap();
    live.rename(&root(&live), n("d"), &root(&live), n("e")).unwrap();
    drop(live);
    let live = pool.reopen("a");
    write(&live, f, 0, b"after restart").unwrap();
    assert_eq!(live.path_of(f).unwrap(), p("/e/sub/f"));
    assert_eq!(fs::read(live.path().join("e/sub/f")).unwrap(), b"after restart");
    // Its hint names the directory it left before the restart.
    assert_eq!(live.path_of(g).unwrap(), p("/g2"));
    let nobody = NodeRef { id: nas_types::fs::NodeId { ino: f.id.ino, generation: f.id.generation + 1 }, ..f };
    assert_eq!(live.locate(nobody), Err(FsError::Stale));
}

/// Goal: 2,500 entries, each once, also while a client removes what it has seen (nfsserve 50, agentfs 130).
fn listing_of_2500(pool: &TestPool) {
    let live = pool.live("a");
    for i in 0..2500 {
        fs::write(live.path().join(format!("file-{i:05}")), b"").unwrap();
    }
    for removing in [false, true] {
        let (mut cookie, mut seen) = (0, BTreeSet::new());
        loop {
            let part = live.readdir(&root(&live), cookie, 97, removing, &mut |name| name != b"file-00007").unwrap();
            assert!(part.entries.len() <= 97);
            for entry in &part.entries {
                assert!(entry.cookie > 2);
                assert!(seen.insert(entry.name.clone()), "twice: {:?}", String::from_utf8_lossy(&entry.name));
                assert_eq!(entry.node.is_some(), removing);
                if removing {
                    assert_eq!(entry.node.unwrap().node.id.ino, entry.fileid);
                    live.remove(&root(&live), Name::new(&entry.name).unwrap()).unwrap();
                }
                cookie = entry.cookie;
            }
            if part.eof {
                break;
            }
        }
        assert_eq!(seen.len(), 2499);
        assert!(!seen.contains(b"file-00007".as_slice()));
    }
    assert_eq!(fs::read_dir(live.path()).unwrap().count(), 1);
}

/// Goal: a symlink leads nowhere, neither as a file nor as a parent, made through us or behind our back.
fn symlinks_are_never_followed(pool: &TestPool) {
    let live = pool.live("a");
    let s = live.symlink(&root(&live), n("s"), b"/etc/passwd", &SetAttr::default()).unwrap();
    let at = live.locate(s.node.node).unwrap();
    assert_eq!(live.readlink(&at).unwrap().0, b"/etc/passwd");
    assert_eq!(live.read(&at, 0, &mut [0; 8]), Err(FsError::Invalid));
    assert_eq!(live.write(&at, 0, b"x", Stability::Unstable).unwrap_err(), FsError::Invalid);
    live.setattr(&at, &SetAttr { mtime: SetTime::To(FileTime { secs: 5, nanos: 0 }), ..SetAttr::default() }, None)
        .unwrap();
    assert_eq!(live.locate(s.node.node).unwrap().attr.mtime.secs, 5);
    let how = CreateHow::Unchecked(SetAttr { size: Some(0), ..SetAttr::default() });
    assert_eq!(live.create(&root(&live), n("s"), how).unwrap_err(), FsError::Exists);
    // A directory replaced by a symlink after it was located.
    let d = mkdir(&live, &root(&live), "d");
    let outside = pool.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::rename(live.path().join("d"), live.path().join("d2")).unwrap();
    symlink(&outside, live.path().join("d")).unwrap();
    live.close_files();
    assert!(live.create(&d, n("f"), PLAIN).is_err());
    assert_eq!(live.locate_path(&p("/d/f")), Err(FsError::NotDir));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

/// Goal: names are bytes: non-UTF-8, newline, NFC and NFD, case pairs, 255 bytes.
fn odd_names(pool: &TestPool) {
    let live = pool.live("a");
    let long = [b'x'; 255];
    let names: [&[u8]; 7] = [b"\xff\xfe", b"a\nb", b"caf\xc3\xa9", b"cafe\xcc\x81", b"README.md", b"readme.md", &long];
    for name in names {
        let name = Name::new(name).unwrap();
        let made = live.create(&root(&live), name, PLAIN).unwrap().made;
        write(&live, made.node.node, 0, name.as_bytes()).unwrap();
    }
    for name in names {
        let node = live.lookup(&root(&live), Name::new(name).unwrap()).unwrap();
        assert_eq!(read(&live, node.node), name);
    }
    assert_eq!(live.lookup(&root(&live), n("ReadMe.md")), Err(FsError::NotFound));
    // A path longer than any client may name is refused, not cut.
    let mut at = root(&live);
    let mut failed = None;
    for _ in 0..20 {
        match live.mkdir(&at, Name::new(&long).unwrap(), &SetAttr::default()) {
            Ok(made) => at = live.locate(made.node.node).unwrap(),
            Err(e) => {
                failed = Some(e);
                break;
            }
        }
        if at.path.components().count() == 1 {
            assert_eq!(failed, None);
        }
    }
    assert!(matches!(failed, Some(FsError::NameTooLong | FsError::Exists)));
}

/// Goal: a retransmitted exclusive CREATE is recognised, also after a restart; another client's is not (chimera 72).
fn exclusive_create(pool: &TestPool) {
    let live = pool.live("a");
    let how = CreateHow::Exclusive(*b"verifier");
    let first = live.create(&root(&live), n("lock"), how).unwrap();
    assert!(first.new);
    drop(live);
    let live = pool.reopen("a");
    let again = live.create(&root(&live), n("lock"), how).unwrap();
    assert_eq!((again.new, again.made.node.node.id), (false, first.made.node.node.id));
    assert_eq!(live.create(&root(&live), n("lock"), CreateHow::Exclusive(*b"another1")).unwrap_err(), FsError::Exists);
    live.setattr(
        &live.locate(first.made.node.node).unwrap(),
        &SetAttr { mode: Some(0o600), ..SetAttr::default() },
        None,
    )
    .unwrap();
    assert_eq!(live.create(&root(&live), n("lock"), how).unwrap_err(), FsError::Exists);
}

/// Goal: setuid and setgid are refused everywhere; wrong kinds give the right error.
fn refused_kinds_and_modes(pool: &TestPool) {
    let live = pool.live("a");
    let set = SetAttr { mode: Some(0o4755), ..SetAttr::default() };
    assert_eq!(live.create(&root(&live), n("f"), CreateHow::Guarded(set)).unwrap_err(), FsError::NotPermitted);
    assert_eq!(
        live.mkdir(&root(&live), n("d"), &SetAttr { mode: Some(0o2755), ..set }).unwrap_err(),
        FsError::NotPermitted
    );
    let f = create(&live, &root(&live), "f");
    let at = live.locate(f).unwrap();
    assert_eq!(live.setattr(&at, &set, None).unwrap_err(), FsError::NotPermitted);
    assert_eq!(live.lookup(&at, n("x")).unwrap_err(), FsError::NotDir);
    assert_eq!(live.rmdir(&root(&live), n("f")).unwrap_err(), FsError::NotDir);
    mkdir(&live, &root(&live), "d");
    assert_eq!(live.remove(&root(&live), n("d")).unwrap_err(), FsError::IsDir);
    let d = live.locate_path(&p("/d")).unwrap();
    assert_eq!(live.read(&d, 0, &mut [0; 1]).unwrap_err(), FsError::IsDir);
    assert_eq!(live.write(&at, u64::MAX, b"x", Stability::Unstable).unwrap_err(), FsError::TooLarge);
    assert_eq!(
        live.create(&root(&live), n("d"), CreateHow::Unchecked(SetAttr::default())).unwrap_err(),
        FsError::IsDir
    );
    create(&live, &d, "x");
    assert_eq!(live.rmdir(&root(&live), n("d")).unwrap_err(), FsError::NotEmpty);
}

/// Goal: the ctime guard of SETATTR, and client-given times.
fn guard_and_times(pool: &TestPool) {
    let live = pool.live("a");
    let f = create(&live, &root(&live), "f");
    let at = live.locate(f).unwrap();
    let set = SetAttr { mtime: SetTime::To(FileTime { secs: 1234, nanos: 567 }), ..SetAttr::default() };
    let wrong = FileTime { secs: 1, nanos: 1 };
    assert_eq!(live.setattr(&at, &set, Some(wrong)).unwrap_err(), FsError::NotSync);
    let wcc = live.setattr(&at, &set, Some(at.attr.ctime)).unwrap();
    assert_eq!(wcc.after.mtime, FileTime { secs: 1234, nanos: 567 });
    assert_eq!(wcc.before.mtime, at.attr.mtime);
}

/// Goal: what RENAME may replace, and a directory never goes into itself.
fn rename_rules(pool: &TestPool) {
    let live = pool.live("a");
    let r = root(&live);
    let (d, e) = (mkdir(&live, &r, "d"), mkdir(&live, &r, "e"));
    let f = create(&live, &r, "f");
    let inner = mkdir(&live, &d, "inner");
    assert_eq!(live.rename(&r, n("d"), &inner, n("x")).unwrap_err(), FsError::Invalid);
    assert_eq!(live.rename(&r, n("f"), &r, n("e")).unwrap_err(), FsError::IsDir);
    assert_eq!(live.rename(&r, n("e"), &r, n("f")).unwrap_err(), FsError::NotDir);
    assert_eq!(live.rename(&r, n("e"), &r, n("d")).unwrap_err(), FsError::NotEmpty);
    assert_eq!(live.rename(&r, n("none"), &r, n("x")).unwrap_err(), FsError::NotFound);
    let g = create(&live, &e, "g");
    let done = live.rename(&r, n("f"), &e, n("g")).unwrap();
    assert_eq!(done.replaced.unwrap().node.id, g.id);
    assert_eq!(live.locate(g), Err(FsError::Stale));
    assert_eq!(live.path_of(f).unwrap(), p("/e/g"));
    assert_eq!(done.node.node.parent_hint, e.node.id.ino);
}

/// Goal: a removed file's reference is stale, also when its name is taken again.
fn stale_after_remove(pool: &TestPool) {
    let live = pool.live("a");
    for _ in 0..50 {
        let f = create(&live, &root(&live), "f");
        write(&live, f, 0, b"old").unwrap();
        let at = live.locate(f).unwrap();
        live.remove(&root(&live), n("f")).unwrap();
        let g = create(&live, &root(&live), "f");
        assert_ne!(f.id, g.id);
        assert_eq!(live.locate(f), Err(FsError::Stale));
        assert_eq!(live.write(&at, 0, b"x", Stability::Unstable).unwrap_err(), FsError::Stale);
        assert_eq!(read(&live, g), b"");
        live.remove(&root(&live), n("f")).unwrap();
    }
}

/// Goal: what was decided for one path is not done at another.
fn moved_between_decision_and_act(pool: &TestPool) {
    let live = pool.live("a");
    let d = mkdir(&live, &root(&live), "d");
    let f = create(&live, &d, "f");
    let decided = live.locate(f).unwrap();
    live.rename(&root(&live), n("d"), &root(&live), n("secret")).unwrap();
    assert_eq!(live.write(&decided, 0, b"x", Stability::Unstable).unwrap_err(), FsError::Later);
    assert_eq!(live.create(&d, n("new"), PLAIN).unwrap_err(), FsError::Later);
    assert_eq!(live.readdir(&d, 0, 10, false, &mut |_| true).unwrap_err(), FsError::Later);
    let again = live.locate(f).unwrap();
    live.write(&again, 0, b"x", Stability::Unstable).unwrap();
    // An unrelated rename is no reason to refuse.
    create(&live, &root(&live), "u");
    let decided = live.locate(f).unwrap();
    live.rename(&root(&live), n("u"), &root(&live), n("v")).unwrap();
    live.write(&decided, 0, b"y", Stability::Unstable).unwrap();
}

/// Goal: what was decided for one file under its known names is not done to another file, or under a name nobody looked at.
fn replaced_or_linked_between_decision_and_act(pool: &TestPool) {
    let live = pool.live("a");
    let r = root(&live);
    let f = create(&live, &r, "f");
    let decided = live.lookup(&r, n("f")).unwrap().node.id;
    live.remove(&r, n("f")).unwrap();
    mkdir(&live, &r, "f");
    assert_eq!(live.rename_known(&r, n("f"), decided, &r, n("g")).unwrap_err(), FsError::Later);
    assert_eq!(live.locate(f), Err(FsError::Stale));
    let now = live.lookup(&r, n("f")).unwrap().node.id;
    live.rename_known(&r, n("f"), now, &r, n("g")).unwrap();
    let h = create(&live, &r, "h");
    let decided = live.locate(h).unwrap();
    live.link(&decided, &r, n("elsewhere")).unwrap();
    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
    assert_eq!(live.write(&decided, 0, b"x", Stability::Unstable).unwrap_err(), FsError::Later);
    assert_eq!(live.setattr(&decided, &cut, None).unwrap_err(), FsError::Later);
    assert_eq!(live.link(&decided, &r, n("third")).unwrap_err(), FsError::Later);
    let again = live.locate_path(&p("/h")).unwrap();
    live.write(&again, 0, b"x", Stability::Unstable).unwrap();
    // One name less is no reason to refuse.
    live.remove(&r, n("elsewhere")).unwrap();
    live.write(&again, 0, b"y", Stability::Unstable).unwrap();
}

/// Goal: no overshoot of the quota, however many threads write and create (ganesha 42).
fn quota_holds_under_threads(pool: &TestPool) {
    pool.engine.create(&pool.path("a")).unwrap();
    let limits = Limits { bytes_max: 1_000_000, files_max: 40 };
    let live = Arc::new(pool.reopen_with("a", limits));
    std::thread::scope(|s| {
        for t in 0..8 {
            let live = Arc::clone(&live);
            s.spawn(move || {
                for i in 0..20 {
                    let made = match live.create(&root(&live), n(&format!("f-{t}-{i}")), PLAIN) {
                        Ok(made) => made.made.node.node,
                        Err(FsError::Quota) => continue,
                        Err(e) => panic!("{e}"),
                    };
                    for block in 0..10 {
                        match write(&live, made, block * 10_000, &[7; 10_000]) {
                            Ok(()) | Err(FsError::Quota) => {}
                            Err(e) => panic!("{e}"),
                        }
                    }
                }
            });
        }
    });
    let entries: Vec<_> = fs::read_dir(live.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).collect();
    let bytes: u64 = entries.iter().sum();
    assert!(entries.len() <= 40 && bytes <= 1_000_000, "{} files, {bytes} bytes", entries.len());
    assert_eq!((live.usage().bytes(), live.usage().files()), (bytes, entries.len() as u64));
    assert!(bytes > 900_000);
    assert!(live.space().unwrap().free_bytes < 100_000);
    // Deleting makes room.
    let name = fs::read_dir(live.path()).unwrap().next().unwrap().unwrap().file_name();
    live.remove(&root(&live), n(name.to_str().unwrap())).unwrap();
    create(&live, &root(&live), "after");
}

/// Goal: more files than descriptors (ganesha 712): nothing fails, nothing is mixed up.
fn few_descriptors(pool: &TestPool) {
    pool.engine.create(&pool.path("a")).unwrap();
    let shared = pool.shared_with(3);
    let live = LiveDir::open(&pool.path("a"), shared.clone(), Some(pool.path("a.dirty")), Limits::NONE).unwrap();
    let nodes: Vec<_> = (0..30).map(|i| create(&live, &root(&live), &format!("f{i}"))).collect();
    for (i, node) in nodes.iter().enumerate() {
        write(&live, *node, 0, format!("content {i}").as_bytes()).unwrap();
    }
    for (i, node) in nodes.iter().enumerate() {
        assert_eq!(read(&live, *node), format!("content {i}").as_bytes());
    }
    assert!(shared.fds.len() <= 3);
}

/// Goal: a view without a journal changes nothing.
fn read_only_view(pool: &TestPool) {
    let live = pool.live("a");
    let f = create(&live, &root(&live), "f");
    write(&live, f, 0, b"x").unwrap();
    drop(live);
    let live = LiveDir::open(&pool.path("a"), pool.shared(), None, Limits::NONE).unwrap();
    assert_eq!(read(&live, f), b"x");
    let at = live.locate(f).unwrap();
    assert_eq!(live.write(&at, 0, b"y", Stability::Unstable).unwrap_err(), FsError::ReadOnly);
    assert_eq!(live.remove(&root(&live), n("f")).unwrap_err(), FsError::ReadOnly);
    assert_eq!(live.create(&root(&live), n("g"), PLAIN).unwrap_err(), FsError::ReadOnly);
}

/// Goal: at the reserve writes stop with a clear error, truncations and deletions go on.
fn reserve_stops_writes_not_deletes(pool: &TestPool) {
    use nas_store::live::{Durability, FdCache, Shared};
    use nas_store::space::{Reserve, SpaceGuard};
    let live = pool.live("a");
    let (f, g) = (create(&live, &root(&live), "f"), create(&live, &root(&live), "g"));
    write(&live, f, 0, &[1; 100_000]).unwrap();
    write(&live, g, 0, &[1; 100_000]).unwrap();
    drop(live);
    let all = Reserve { percent: 100, bytes_min: 0 };
    let shared = Shared {
        engine: Arc::clone(&pool.engine),
        fds: Arc::new(FdCache::new(FdCache::default_budget())),
        space: Arc::new(SpaceGuard::new(&pool.pool.path, all).unwrap()),
        durability: Durability::Strict,
    };
    let live = LiveDir::open(&pool.path("a"), shared, Some(pool.path("a.dirty")), Limits::NONE).unwrap();
    assert_eq!(write(&live, f, 0, b"x").unwrap_err(), FsError::NoSpace);
    assert_eq!(live.create(&root(&live), n("h"), PLAIN).unwrap_err(), FsError::NoSpace);
    assert_eq!(live.space().unwrap().free_bytes, 0);
    let set = SetAttr { size: Some(10), ..SetAttr::default() };
    live.setattr(&live.locate(f).unwrap(), &set, None).unwrap();
    live.remove(&root(&live), n("g")).unwrap();
    assert_eq!(read(&live, f), [1; 10]);
}

/// Goal: a FIFO without a reader blocks nobody.
fn fifo_is_never_opened(pool: &TestPool) {
    let live = pool.live("a");
    let made = live
        .mknod(&root(&live), n("pipe"), Special::Fifo, &SetAttr { mode: Some(0o600), ..SetAttr::default() })
        .unwrap();
    assert_eq!(made.node.attr.kind, FileKind::Fifo);
    let at = live.locate(made.node.node).unwrap();
    assert_eq!(live.read(&at, 0, &mut [0; 1]).unwrap_err(), FsError::Invalid);
    assert_eq!(live.write(&at, 0, b"x", Stability::Unstable).unwrap_err(), FsError::Invalid);
    live.setattr(&at, &SetAttr { mode: Some(0o644), ..SetAttr::default() }, None).unwrap();
    let socket = live.mknod(&root(&live), n("sock"), Special::Socket, &SetAttr::default()).unwrap();
    assert_eq!(socket.node.attr.kind, FileKind::Socket);
    let listed = live.readdir(&root(&live), 0, 10, true, &mut |_| true).unwrap();
    assert_eq!((listed.entries.len(), listed.eof), (2, true));
}

/// Goal: the durable mark is on disk before the first change is.
fn dirty_mark_is_there_first(pool: &TestPool) {
    let live = pool.live("a");
    assert!(!pool.path("a.dirty").exists() && !live.is_dirty());
    assert_eq!(live.remove(&root(&live), n("none")).unwrap_err(), FsError::NotFound);
    assert!(pool.path("a.dirty").exists());
    assert!(!live.is_dirty());
    create(&live, &root(&live), "f");
    assert!(live.is_dirty());
}
