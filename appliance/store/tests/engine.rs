//! The contract of [`nas_store::engine::Engine`], run on every engine. Numbers are those of its text.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use nas_store::engine::Frozen;

mod pools;
use pools::TestPool;

on_every_engine!(
    create_is_exclusive,
    fork_is_whole_and_apart,
    freeze_is_fixed,
    delete_is_robust,
    fork_leaves_nothing,
    inodes_as_promised
);

fn fill(dir: &Path) {
    fs::create_dir(dir.join("d")).unwrap();
    fs::write(dir.join("d/f"), b"content").unwrap();
    fs::set_permissions(dir.join("d/f"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(dir.join("d/f"), dir.join("link")).unwrap();
    symlink("/etc/passwd", dir.join("s")).unwrap();
    let file = fs::File::options().write(true).open(dir.join("d/f")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000)).unwrap();
    rustix::fs::fsetxattr(&file, "user.k", b"v", rustix::fs::XattrFlags::empty()).unwrap();
}

/// Goal (1).
fn create_is_exclusive(pool: &TestPool) {
    let dir = pool.path("a");
    pool.engine.create(&dir).unwrap();
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    assert_eq!(pool.engine.create(&dir).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
}

/// Goal (2).
fn fork_is_whole_and_apart(pool: &TestPool) {
    let (a, b) = (pool.path("a"), pool.path("b"));
    pool.engine.create(&a).unwrap();
    fill(&a);
    pool.engine.set_read_only(&a, true).unwrap();
    pool.engine.fork(&a, &b).unwrap();
    let file = fs::metadata(b.join("d/f")).unwrap();
    assert_eq!((file.mode() & 0o7777, file.mtime(), file.nlink()), (0o640, 1_000_000, 2));
    assert_eq!(fs::read_link(b.join("s")).unwrap(), Path::new("/etc/passwd"));
    let open = fs::File::open(b.join("d/f")).unwrap();
    let mut value = [0; 4];
    assert_eq!(rustix::fs::fgetxattr(&open, "user.k", &mut value).unwrap(), 1);
    fs::write(b.join("link"), b"changed").unwrap();
    fs::remove_file(b.join("s")).unwrap();
    assert_eq!(fs::read(a.join("d/f")).unwrap(), b"content");
    assert!(a.join("s").is_symlink());
    assert_eq!(fs::read(b.join("d/f")).unwrap(), b"changed");
}

/// Goal (2): a fork that fails leaves nothing.
fn fork_leaves_nothing(pool: &TestPool) {
    assert!(pool.engine.fork(&pool.path("missing"), &pool.path("b")).is_err());
    assert!(!pool.path("b").exists());
    pool.engine.create(&pool.path("a")).unwrap();
    fs::write(pool.path("taken"), b"x").unwrap();
    assert!(pool.engine.fork(&pool.path("a"), &pool.path("taken")).is_err());
    assert_eq!(fs::read(pool.path("taken")).unwrap(), b"x");
}

/// Goal (3): what is frozen cannot be written and does not follow the source.
fn freeze_is_fixed(pool: &TestPool) {
    let (a, b) = (pool.path("a"), pool.path("b"));
    pool.engine.create(&a).unwrap();
    fill(&a);
    match pool.engine.freeze(&a, &b).unwrap() {
        Frozen::Unsupported => assert!(!b.exists()),
        Frozen::Snapshot(at) => {
            fs::write(a.join("d/f"), b"later").unwrap();
            assert_eq!(fs::read(at.join("d/f")).unwrap(), b"content");
            assert!(fs::write(at.join("d/f"), b"x").is_err());
        }
    }
}

/// Goal (5): read-only, permission-less and missing directories are all removed; symlinks are not followed.
fn delete_is_robust(pool: &TestPool) {
    let outside = pool.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("keep"), b"x").unwrap();
    let a = pool.path("a");
    pool.engine.create(&a).unwrap();
    fill(&a);
    symlink(&outside, a.join("d/out")).unwrap();
    fs::set_permissions(a.join("d"), fs::Permissions::from_mode(0o000)).unwrap();
    pool.engine.set_read_only(&a, true).unwrap();
    pool.engine.delete(&a).unwrap();
    assert!(!a.exists());
    assert!(outside.join("keep").exists());
    pool.engine.delete(&a).unwrap();
    // A plain directory left where a live one would be.
    fs::create_dir_all(pool.path("plain/x")).unwrap();
    pool.engine.delete(&pool.path("plain")).unwrap();
    assert!(!pool.path("plain").exists());
}

/// Goal (6, 7, 8): identity of a file survives sync, and survives a fork exactly where promised.
fn inodes_as_promised(pool: &TestPool) {
    use std::os::fd::AsFd as _;
    let (a, b) = (pool.path("a"), pool.path("b"));
    pool.engine.create(&a).unwrap();
    fill(&a);
    pool.engine.sync(&a).unwrap();
    let id = |dir: &Path| {
        let parent = fs::File::open(dir.join("d")).unwrap();
        let flags = rustix::fs::StatxFlags::BASIC_STATS | rustix::fs::StatxFlags::BTIME;
        let stat = rustix::fs::statx(&parent, "f", rustix::fs::AtFlags::SYMLINK_NOFOLLOW, flags).unwrap();
        (stat.stx_ino, pool.engine.generation_of(parent.as_fd(), b"f", &stat))
    };
    let before = id(&a);
    fs::write(a.join("d/f"), b"longer than it was").unwrap();
    assert_eq!(id(&a), before);
    pool.engine.fork(&a, &b).unwrap();
    assert_eq!(id(&b) == before, pool.engine.keeps_inodes());
    fs::write(a.join("new"), b"").unwrap();
    fs::rename(a.join("new"), a.join("d/f")).unwrap();
    assert_ne!(id(&a), before);
}
