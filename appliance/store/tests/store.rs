//! Branches, commits and generations of main, on every engine.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nas_store::{
    Branch, CommitReason, CommitSink, Committed, Import, Limits, Options, Pinned, Prepared, Reserve, Store, StoreError,
};
use nas_types::fs::{CreateHow, FsError, SetAttr, Special, Stability};
use nas_types::id::{GateId, LeaseId, RunId};
use nas_types::lease::BranchName;
use nas_types::object::{ConflictKind, EntryKind, Oid, Provenance};
use nas_types::path::{Name, TreePath};
use nas_types::time::FileTime;

mod pools;
use pools::TestPool;

on_every_engine!(
    branch_leaves_main_alone_until_merged,
    merge_keeps_references,
    conflicts_stop,
    commit_is_one_point_in_time,
    directory_rename_is_a_move,
    checkpoint_and_restore,
    narrow_modes_and_odd_kinds_in_history,
    auto_commit_after_quiet_and_sync,
    crash_before_commit_is_found,
    crash_leftovers_are_cleaned,
    two_merges_prepared_on_one_generation,
    abandoned_stage_leaves_nothing,
    quota_counts_after_restart,
    import_and_merge,
    next_generation_is_made_by_snapshot,
);

fn p(text: &str) -> TreePath {
    TreePath::parse(text).unwrap()
}

fn options() -> Options {
    Options {
        reserve: Reserve { percent: 0, bytes_min: 1 << 20 },
        quiet: Duration::from_secs(3600),
        durability: nas_store::Durability::Deferred,
        generation_grace: Duration::ZERO,
        ..Options::default()
    }
}

fn provenance() -> Provenance {
    Provenance {
        principal: "agent:cleo".into(),
        on_behalf_of: Some("human:owner".into()),
        run: RunId::random(),
        lease: LeaseId::random(),
        purpose: None,
        read_manifest: None,
    }
}

fn open(pool: &TestPool) -> Store {
    Store::open(&pool.pool.path, None, options()).unwrap()
}

fn fork(store: &Store) -> Arc<Branch> {
    let name = BranchName { role: "cleo".parse().unwrap(), run: RunId::random() };
    store.fork(&name, &provenance(), Limits::NONE, None).unwrap()
}

/// Puts a file as a client does: create or truncate, then write.
fn put(branch: &Branch, path: &str, bytes: &[u8]) {
    let path = p(path);
    let (above, name) = path.split_last().unwrap();
    mkdirs(branch, &above);
    let live = branch.live();
    let set = SetAttr { size: Some(0), mode: Some(0o644), ..SetAttr::default() };
    let dir = live.locate_path(&above).unwrap();
    let made = live.create(&dir, name, CreateHow::Unchecked(set)).unwrap();
    let at = live.locate(made.made.node.node).unwrap();
    live.write(&at, 0, bytes, Stability::Unstable).unwrap();
}

fn mkdirs(branch: &Branch, path: &TreePath) {
    let Some((above, name)) = path.split_last() else { return };
    mkdirs(branch, &above);
    let dir = branch.live().locate_path(&above).unwrap();
    match branch.live().mkdir(&dir, name, &SetAttr::default()) {
        Ok(_) | Err(FsError::Exists) => {}
        Err(e) => panic!("{e}"),
    }
}

fn remove(branch: &Branch, path: &str) {
    let path = p(path);
    let (above, name) = path.split_last().unwrap();
    let dir = branch.live().locate_path(&above).unwrap();
    branch.live().remove(&dir, name).unwrap();
}

fn rename(branch: &Branch, from: &str, to: &str) {
    let (from, to) = (p(from), p(to));
    let ((from_dir, from_name), (to_dir, to_name)) = (from.split_last().unwrap(), to.split_last().unwrap());
    let live = branch.live();
    let (from_dir, to_dir) = (live.locate_path(&from_dir).unwrap(), live.locate_path(&to_dir).unwrap());
    live.rename(&from_dir, from_name, &to_dir, to_name).unwrap();
}

fn commit(branch: &Branch) -> Option<Oid> {
    branch.commit(CommitReason::Explicit("test".into())).unwrap()
}

/// A tree as (path → kind, mode, content).
type Tree = BTreeMap<String, (EntryKind, u32, Vec<u8>)>;

fn committed(store: &Store, commit: Oid) -> Tree {
    let mut tree = Tree::new();
    let history = store.history();
    history
        .walk::<nas_history::HistoryError>(commit, &mut |path, entry| {
            let bytes = entry.oid.map_or(Ok(Vec::new()), |oid| history.read_blob(oid, 1 << 20))?;
            let mode = if entry.kind == EntryKind::Symlink { 0 } else { entry.mode };
            tree.insert(path.to_string(), (entry.kind, mode, bytes));
            Ok(())
        })
        .unwrap();
    tree
}

/// What is on disk, read behind the Store's back (modes as on disk).
fn on_disk(dir: &Path) -> Tree {
    fn walk(dir: &Path, prefix: &str, tree: &mut Tree) {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{prefix}/{}", entry.file_name().to_str().unwrap());
            let meta = entry.path().symlink_metadata().unwrap();
            let mode = meta.permissions().mode() & 0o777;
            if meta.is_symlink() {
                use std::os::unix::ffi::OsStrExt as _;
                let target = fs::read_link(entry.path()).unwrap();
                tree.insert(path, (EntryKind::Symlink, 0, target.as_os_str().as_bytes().to_vec()));
            } else if meta.is_dir() {
                walk(&entry.path(), &path, tree);
                tree.insert(path, (EntryKind::Dir, mode, Vec::new()));
            } else if meta.is_file() {
                tree.insert(path, (EntryKind::File, mode, fs::read(entry.path()).unwrap()));
            }
        }
    }
    let mut tree = Tree::new();
    walk(dir, "", &mut tree);
    tree
}

fn pin(branch: &Branch) -> Oid {
    match branch.pin(GateId::random(), "proposed").unwrap() {
        Pinned::Commit(oid) => oid,
        Pinned::Unchanged => panic!("nothing to propose"),
    }
}

fn clean(prepared: Prepared) -> nas_store::PreparedMerge {
    match prepared {
        Prepared::Clean(merge) => merge,
        Prepared::Conflicts(conflicts) => panic!("{conflicts:?}"),
    }
}

fn merge(store: &Store, branch: &Branch) {
    let prepared = clean(store.prepare_merge(pin(branch)).unwrap());
    let staged = store.stage(&prepared, &provenance(), "merge").unwrap();
    store.publish(staged).unwrap();
}

/// Goal (L0.1, BRANCH-1, BRANCH-2): main changes by the merge only, then holds exactly the branch's tree.
fn branch_leaves_main_alone_until_merged(pool: &TestPool) {
    let store = open(pool);
    let before = store.main();
    assert_eq!(on_disk(before.live().path()).into_keys().collect::<Vec<_>>(), ["/agents", "/humans", "/shared"]);
    let branch = fork(&store);
    put(&branch, "/shared/a/f", b"one");
    put(&branch, "/shared/g", b"two");
    commit(&branch).unwrap();
    put(&branch, "/shared/g", b"three");
    remove(&branch, "/shared/a/f");
    let live = on_disk(branch.live().path());
    assert_eq!(store.main().pointer(), before.pointer());
    assert!(!before.live().path().join("shared/g").exists());
    merge(&store, &branch);
    let main = store.main();
    assert_eq!(main.pointer().number, 2);
    assert_eq!(on_disk(main.live().path()), live);
    assert_eq!(committed(&store, main.pointer().commit), live);
    assert_eq!(store.history().get_ref("refs/heads/main").unwrap(), Some(main.pointer().commit));
    let info = store.history().commit_info(main.pointer().commit).unwrap();
    assert_eq!(info.parents[0], before.pointer().commit);
    assert!(info.trailer("Lease").is_some());
    // The auto-commits between are squashed.
    assert_eq!(store.history().commit_info(info.parents[1]).unwrap().parents, [branch.base()]);
    assert_eq!(branch.pin(GateId::random(), "again").unwrap(), Pinned::Commit(branch.tip()));
}

/// Goal: on an engine that keeps inodes a reference into main survives merges; a replaced file is a new one.
fn merge_keeps_references(pool: &TestPool) {
    let store = open(pool);
    let branch = fork(&store);
    put(&branch, "/shared/keep", b"keep");
    put(&branch, "/shared/replace", b"old");
    merge(&store, &branch);
    let main = store.main();
    let keep = main.live().locate_path(&p("/shared/keep")).unwrap().node;
    let replace = main.live().locate_path(&p("/shared/replace")).unwrap().node;
    let root = main.live().root();
    drop(main);
    let branch = fork(&store);
    put(&branch, "/shared/replace", b"new");
    merge(&store, &branch);
    let main = store.main();
    assert_eq!(fs::read(main.live().path().join("shared/replace")).unwrap(), b"new");
    if pool.engine.keeps_inodes() {
        assert_eq!(main.live().path_of(keep).unwrap(), p("/shared/keep"));
        assert_eq!(main.live().locate(replace), Err(FsError::Stale));
        assert_eq!(main.live().root(), root);
    }
}

/// Goal (BRANCH-5): two sides that change one line stop the merge.
fn conflicts_stop(pool: &TestPool) {
    let store = open(pool);
    let (one, two) = (fork(&store), fork(&store));
    put(&one, "/shared/f", b"one");
    put(&two, "/shared/f", b"two");
    merge(&store, &one);
    match store.prepare_merge(pin(&two)).unwrap() {
        Prepared::Conflicts(conflicts) => {
            assert_eq!((conflicts[0].path.clone(), conflicts[0].kind), (p("/shared/f"), ConflictKind::BothAdded));
        }
        Prepared::Clean(_) => panic!("a conflict was settled in silence"),
    }
}

/// Goal: while a writer appends to two files in order, no commit holds the second write without the first, and none holds a torn file.
fn commit_is_one_point_in_time(pool: &TestPool) {
    let store = open(pool);
    let branch = fork(&store);
    put(&branch, "/shared/a", b"0000");
    put(&branch, "/shared/b", b"0000");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let tips = std::thread::scope(|s| {
        s.spawn(|| {
            let mut n = 0u32;
            while !stop.load(std::sync::atomic::Ordering::Acquire) {
                n += 1;
                for name in ["/shared/a", "/shared/b"] {
                    let at = branch.live().locate_path(&p(name)).unwrap();
                    branch.live().write(&at, 0, &n.to_be_bytes(), Stability::Unstable).unwrap();
                }
            }
        });
        let tips: Vec<_> = (0..10).filter_map(|_| commit(&branch)).collect();
        stop.store(true, std::sync::atomic::Ordering::Release);
        tips
    });
    assert!(!tips.is_empty());
    if pool.engine.name() == "btrfs" {
        let number = |tree: &Tree, name: &str| u32::from_be_bytes(tree[name].2.clone().try_into().unwrap());
        for tip in tips {
            let tree = committed(&store, tip);
            let (a, b) = (number(&tree, "/shared/a"), number(&tree, "/shared/b"));
            if a < 1 << 24 && b < 1 << 24 {
                assert!(a == b || a == b + 1, "{a} {b}");
            }
        }
    }
    commit(&branch);
    assert_eq!(committed(&store, branch.tip()), on_disk(branch.live().path()));
}

/// Goal: moving a directory commits without its content being read, dirty files below it follow.
fn directory_rename_is_a_move(pool: &TestPool) {
    let store = open(pool);
    let branch = fork(&store);
    for i in 0..20 {
        put(&branch, &format!("/shared/d/f{i}"), format!("content {i}").as_bytes());
    }
    commit(&branch).unwrap();
    put(&branch, "/shared/d/f3", b"changed");
    rename(&branch, "/shared/d", "/shared/e");
    put(&branch, "/shared/d", b"now a file");
    remove(&branch, "/shared/e/f4");
    assert!(branch.dirty_paths() <= 4, "{} paths", branch.dirty_paths());
    let tip = commit(&branch).unwrap();
    assert_eq!(committed(&store, tip), on_disk(branch.live().path()));
}

/// Goal (BRANCH-7): restore brings files exactly to a checkpoint; what came later is gone; nothing is lost on the way.
fn checkpoint_and_restore(pool: &TestPool) {
    let store = open(pool);
    let branch = fork(&store);
    put(&branch, "/shared/f", b"first");
    put(&branch, "/shared/gone/x", b"x");
    let good = branch.checkpoint("good").unwrap();
    assert_eq!(branch.checkpoints().unwrap(), [("good".to_owned(), good)]);
    let then = on_disk(branch.live().path());
    let handle = branch.live().locate_path(&p("/shared")).unwrap().node;
    put(&branch, "/shared/f", b"second");
    put(&branch, "/shared/later/y", b"y");
    remove(&branch, "/shared/gone/x");
    let now = on_disk(branch.live().path());
    // What is not allowed is not done, also when no commit holds it yet.
    assert!(matches!(
        branch.restore(good, &|change| change.path != p("/shared/later/y")),
        Err(StoreError::NotAllowed(path)) if path == p("/shared/later/y")
    ));
    assert_eq!(on_disk(branch.live().path()), now);
    let restored = branch.restore(good, &|_| true).unwrap();
    let tip = restored.commit;
    assert_eq!((restored.changed, committed(&store, restored.before)), (4, now.clone()));
    assert_eq!(on_disk(branch.live().path()), then);
    assert_eq!(committed(&store, tip), then);
    // What was there before is its parent.
    let parent = store.history().commit_info(tip).unwrap().parents[0];
    assert_eq!(committed(&store, parent), now);
    // Handles of directories that stayed are good.
    assert_eq!(branch.live().path_of(handle).unwrap(), p("/shared"));
    put(&branch, "/shared/f", b"third");
    branch.restore(parent, &|_| true).unwrap();
    assert_eq!(on_disk(branch.live().path()), now);
}

/// Goal: history holds the client's modes; FIFOs and sockets are on the branch only and said so.
fn narrow_modes_and_odd_kinds_in_history(pool: &TestPool) {
    let store = open(pool);
    let branch = fork(&store);
    let live = branch.live();
    let dir = live.locate_path(&p("/shared")).unwrap();
    let n = |name: &'static [u8]| Name::new(name).unwrap();
    let set = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    live.create(&dir, n(b"ro"), CreateHow::Guarded(set(0o444))).unwrap();
    live.mkdir(&dir, n(b"closed"), &set(0o500)).unwrap();
    live.symlink(&dir, n(b"link"), b"/etc/passwd", &SetAttr::default()).unwrap();
    live.mknod(&dir, n(b"pipe"), Special::Fifo, &SetAttr::default()).unwrap();
    live.create(&dir, n(b"\xff\xfe"), CreateHow::Guarded(set(0o755))).unwrap();
    let tip = commit(&branch).unwrap();
    let tree = committed(&store, tip);
    assert_eq!(tree["/shared/ro"].1, 0o444);
    assert_eq!((tree["/shared/closed"].0, tree["/shared/closed"].1), (EntryKind::Dir, 0o500));
    assert_eq!(tree["/shared/link"].2, b"/etc/passwd");
    assert_eq!(tree["/shared/%FF%FE"].1, 0o755);
    assert!(!tree.contains_key("/shared/pipe"));
    assert_eq!(branch.not_kept(), [p("/shared/pipe")]);
    merge(&store, &branch);
    let main = store.main();
    assert_eq!(main.live().locate_path(&p("/shared/ro")).unwrap().attr.mode, 0o444);
    assert_eq!(main.live().locate_path(&p("/shared/closed")).unwrap().attr.mode, 0o500);
    assert_eq!(main.live().locate_path(&p("/shared/pipe")), Err(FsError::NotFound));
}

#[derive(Default)]
struct Seen(parking_lot::Mutex<Vec<Committed>>, parking_lot::Condvar);

impl CommitSink for Seen {
    fn committed(&self, commit: &Committed) {
        self.0.lock().push(commit.clone());
        self.1.notify_all();
    }
}

impl Seen {
    fn wait_for(&self, count: usize) -> Vec<Committed> {
        let mut seen = self.0.lock();
        let until = Instant::now() + Duration::from_secs(60);
        while seen.len() < count {
            assert!(!self.1.wait_until(&mut seen, until).timed_out(), "no commit came");
        }
        seen.clone()
    }
}

/// Goal (MOUNT-2): a commit comes by itself after quiet, and after a sync; many syncs share few commits.
fn auto_commit_after_quiet_and_sync(pool: &TestPool) {
    let options = Options { quiet: Duration::from_millis(50), ..options() };
    let store = Store::open(&pool.pool.path, None, options).unwrap();
    let seen = Arc::new(Seen::default());
    store.set_commit_sink(Arc::clone(&seen) as Arc<_>);
    let branch = fork(&store);
    put(&branch, "/shared/f", b"x");
    let first = &seen.wait_for(1)[0];
    assert_eq!(first.reason, CommitReason::Quiet);
    // Told before it is shown.
    while branch.tip() != first.commit {
        std::thread::yield_now();
    }
    drop(store);

    let options = Options { commit_interval_min: Duration::from_secs(3600), ..self::options() };
    let pool_path = &pool.pool.path;
    let pointer = pointer_on_disk(pool_path);
    let store = Store::open(pool_path, Some(pointer), options).unwrap();
    let seen = Arc::new(Seen::default());
    store.set_commit_sink(Arc::clone(&seen) as Arc<_>);
    let branch = fork(&store);
    for i in 0..50 {
        put(&branch, &format!("/shared/g{i}"), b"x");
        let at = branch.live().locate_path(&p(&format!("/shared/g{i}"))).unwrap();
        branch.live().commit(&at).unwrap();
    }
    let commits = seen.wait_for(1);
    assert_eq!(commits[0].reason, CommitReason::Durability);
    assert_eq!(seen.0.lock().len(), 1, "one now, the next an hour later");
}

fn pointer_on_disk(pool: &Path) -> nas_store::Pointer {
    let history = nas_history::History::open(&pool.join("history.git")).unwrap();
    let commit = history.get_ref("refs/heads/main").unwrap().unwrap();
    let name = format!("-{}", &commit.to_string()[..12]);
    let found = fs::read_dir(pool.join("gen")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let number = found.into_iter().find_map(|dir| dir.strip_suffix(&name)?.parse().ok()).unwrap();
    nas_store::Pointer { number, commit }
}

/// Goal: what was written and not committed before a crash is in the next commit, though the dirty set is gone:
/// new, changed in place with the same size, removed, renamed.
fn crash_before_commit_is_found(pool: &TestPool) {
    let store = open(pool);
    let pointer = store.main().pointer();
    let branch = fork(&store);
    for name in ["same-size", "removed", "untouched", "moved/x"] {
        put(&branch, &format!("/shared/{name}"), b"12345");
    }
    commit(&branch).unwrap();
    let name = branch.name().clone();
    assert!(!pool.path(&format!("branch/{}.{}/dirty", name.role, name.run)).exists());
    put(&branch, "/shared/same-size", b"abcde");
    put(&branch, "/shared/new/y", b"y");
    remove(&branch, "/shared/removed");
    rename(&branch, "/shared/moved", "/shared/renamed");
    let expected = on_disk(branch.live().path());
    // As after kill -9: nothing is told to the store.
    drop(branch);
    drop(store);
    assert!(pool.path(&format!("branch/{}.{}/dirty", name.role, name.run)).exists());
    let store = Store::open(&pool.pool.path, Some(pointer), options()).unwrap();
    let branch = store.branch(&name).unwrap();
    assert!(branch.live().is_dirty());
    let tip = commit(&branch).unwrap();
    assert_eq!(committed(&store, tip), expected);
    assert!(!pool.path(&format!("branch/{}.{}/dirty", name.role, name.run)).exists());
    assert_eq!(commit(&branch), None);
}

/// Goal: staged generations, half-made branches and snapshots that a crash left are gone after open; main is what the ledger says.
fn crash_leftovers_are_cleaned(pool: &TestPool) {
    let store = open(pool);
    let branch = fork(&store);
    put(&branch, "/shared/f", b"x");
    let prepared = clean(store.prepare_merge(pin(&branch)).unwrap());
    let pointer = store.main().pointer();
    let staged = store.stage(&prepared, &provenance(), "never decided").unwrap();
    let next = staged.pointer();
    std::mem::forget(staged);
    let main_dir = store.main().live().path().to_owned();
    fs::create_dir(pool.path("branch/cleo.run_222222222222")).unwrap();
    pool.engine.fork(&main_dir, &pool.path("branch/cleo.run_222222222222/live")).unwrap();
    pool.engine.fork(&main_dir, &pool.path("tmp/commit-7")).unwrap();
    drop(store);
    let store = Store::open(&pool.pool.path, Some(pointer), options()).unwrap();
    store.flush_reaper();
    assert_eq!(store.main().pointer(), pointer);
    assert_eq!(fs::read_dir(pool.path("gen")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(pool.path("branch")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(pool.path("tmp")).unwrap().count(), 0);
    // The ledger moved, the process died before publish: the new generation is main, and its ref follows.
    let prepared = clean(store.prepare_merge(branch.tip()).unwrap());
    let staged = store.stage(&prepared, &provenance(), "decided").unwrap();
    let decided = staged.pointer();
    assert_eq!(decided.number, next.number);
    std::mem::forget(staged);
    drop(store);
    let store = Store::open(&pool.pool.path, Some(decided), options()).unwrap();
    assert_eq!(store.main().pointer(), decided);
    assert_eq!(store.history().get_ref("refs/heads/main").unwrap(), Some(decided.commit));
    assert_eq!(fs::read(store.main().live().path().join("shared/f")).unwrap(), b"x");
    store.flush_reaper();
    assert_eq!(fs::read_dir(pool.path("gen")).unwrap().count(), 1);
}

/// Goal: of two merges prepared on one generation the second does not overwrite the first.
fn two_merges_prepared_on_one_generation(pool: &TestPool) {
    let store = open(pool);
    let (one, two) = (fork(&store), fork(&store));
    put(&one, "/shared/one", b"1");
    put(&two, "/shared/two", b"2");
    let (first, second) =
        (clean(store.prepare_merge(pin(&one)).unwrap()), clean(store.prepare_merge(pin(&two)).unwrap()));
    let first = store.stage(&first, &provenance(), "one").unwrap();
    let late = store.stage(&second, &provenance(), "two").unwrap();
    store.publish(first).unwrap();
    assert!(matches!(store.publish(late), Err(StoreError::MainMoved { now: 2, prepared: 1 })));
    assert!(matches!(store.stage(&second, &provenance(), "two"), Err(StoreError::MainMoved { .. })));
    let again = clean(store.prepare_merge(two.tip()).unwrap());
    assert_eq!(again.changes(), second.changes());
    let staged = store.stage(&again, &provenance(), "two").unwrap();
    store.publish(staged).unwrap();
    let main = on_disk(store.main().live().path());
    assert!(main.contains_key("/shared/one") && main.contains_key("/shared/two"));
}

/// Goal: an abandoned generation is gone and the same merge can be staged again.
fn abandoned_stage_leaves_nothing(pool: &TestPool) {
    let store = open(pool);
    let branch = fork(&store);
    put(&branch, "/shared/f", b"x");
    let prepared = clean(store.prepare_merge(pin(&branch)).unwrap());
    let who = provenance();
    for _ in 0..2 {
        let staged = store.stage(&prepared, &who, "merge").unwrap();
        assert_eq!(fs::read_dir(pool.path("gen")).unwrap().count(), 2);
        store.abandon(staged);
        assert_eq!(fs::read_dir(pool.path("gen")).unwrap().count(), 1);
    }
    assert_eq!(store.main().pointer().number, 1);
}

/// Goal (BRANCH-6): the quota holds over a restart, counts main's files only when changed, and counts objects.
fn quota_counts_after_restart(pool: &TestPool) {
    let store = open(pool);
    let first = fork(&store);
    put(&first, "/shared/big", &[7; 100_000]);
    merge(&store, &first);
    let pointer = store.main().pointer();
    let name = BranchName { role: "cleo".parse().unwrap(), run: RunId::random() };
    let limits = Limits { bytes_max: 150_000, files_max: 100 };
    let branch = store.fork(&name, &provenance(), limits, None).unwrap();
    assert_eq!(branch.live().usage().bytes(), 0);
    put(&branch, "/shared/mine", &[1; 10_000]);
    commit(&branch).unwrap();
    put(&branch, "/shared/dirty", &[1; 5_000]);
    let counted = branch.live().usage().bytes();
    assert!(counted > 15_000 && counted < 20_000, "{counted}");
    drop((branch, first));
    drop(store);
    let store = Store::open(&pool.pool.path, Some(pointer), options()).unwrap();
    let branch = store.branch(&name).unwrap();
    assert_eq!(branch.live().usage().bytes(), counted);
    let at = branch.live().locate_path(&p("/shared/big")).unwrap();
    branch.live().write(&at, 0, b"x", Stability::Unstable).unwrap();
    assert!(branch.live().usage().bytes() > 115_000);
    assert_eq!(branch.live().write(&at, 100_000, &[1; 40_000], Stability::Unstable).unwrap_err(), FsError::Quota);
}

/// Goal: an import of many entries arrives as it was, and merges.
fn import_and_merge(pool: &TestPool) {
    const TIME: FileTime = FileTime { secs: 1_700_000_000, nanos: 123_456_789 };
    let store = open(pool);
    let branch = fork(&store);
    for i in 0..200 {
        let content = format!("file {i}\n");
        let mode = if i % 2 == 0 { 0o644 } else { 0o755 };
        let path = p(&format!("/shared/launch/d{}/f{i}", i % 7));
        branch.import_entry(&path, Import::File(&mut content.as_bytes()), mode, Some(TIME)).unwrap();
    }
    branch.import_entry(&p("/shared/launch/s"), Import::Symlink(b"d0/f0"), 0o777, None).unwrap();
    branch.import_entry(&p("/shared/launch/empty"), Import::Dir, 0o700, None).unwrap();
    assert!(branch.import_entry(&p("/shared/x"), Import::Dir, 0o4755, None).is_err());
    let f0 = branch.live().locate_path(&p("/shared/launch/d0/f0")).unwrap();
    assert_eq!(f0.attr.mtime, TIME);
    branch.import_entry(&p("/shared/launch/d0/f0"), Import::File(&mut b"again".as_slice()), 0o600, None).unwrap();
    assert_eq!(branch.live().locate(f0.node), Err(FsError::Stale));
    branch.commit(CommitReason::Import("launch".into())).unwrap().unwrap();
    let live = on_disk(branch.live().path());
    assert_eq!(live.len(), 3 + 1 + 7 + 200 + 2);
    merge(&store, &branch);
    assert_eq!(on_disk(store.main().live().path()), live);
    assert_eq!(store.main().live().locate_path(&p("/shared/launch/d1/f1")).unwrap().attr.mtime, TIME);
}

/// Goal: generation n+1 keeps the inodes of n (never those of the branch), so a branch's file cannot be taken for main's.
fn next_generation_is_made_by_snapshot(pool: &TestPool) {
    let store = open(pool);
    let (one, two) = (fork(&store), fork(&store));
    put(&one, "/shared/one", b"1");
    put(&two, "/shared/two", b"2");
    merge(&store, &one);
    merge(&store, &two);
    let main = store.main();
    let root = main.live().root();
    let seen: Vec<_> = ["/shared/one", "/shared/two"].map(|f| main.live().locate_path(&p(f)).unwrap().node.id).into();
    assert_ne!(seen[0].ino, seen[1].ino);
    assert!(fs::write(main.live().path().join("shared/x"), b"").is_err() || pool.engine.name() == "copy");
    assert_eq!(main.live().root(), root);
}
