//! Pools for tests, one for each engine: btrfs in a loop image (root only), copy in a plain directory.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its own part")]

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nas_store::embed::{Pool, PoolOptions};
use nas_store::engine::{self, Engine};
use nas_store::live::{Durability, FdCache, LiveDir, Shared};
use nas_store::space::{Limits, Reserve, SpaceGuard};
use nas_store::{Branch, Options, Store};
use nas_types::fs::{CreateHow, FsError, SetAttr, Stability};
use nas_types::id::{LeaseId, RunId};
use nas_types::lease::BranchName;
use nas_types::object::Provenance;
use nas_types::path::TreePath;
use tempfile::TempDir;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Btrfs,
    Copy,
}

/// A pool that is unmounted and removed at the end, also when the test fails.
pub(crate) struct TestPool {
    pub(crate) pool: Pool,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) dir: TempDir,
}

/// `None`, with the reason printed, when this machine cannot have such a pool.
pub(crate) fn pool(kind: Kind) -> Option<TestPool> {
    let dir = TempDir::new().unwrap();
    let direct = engine::btrfs::is_btrfs(dir.path()).unwrap();
    if kind == Kind::Btrfs && !direct && !rustix::process::geteuid().is_root() {
        println!("skipped: a btrfs pool needs root to mount a loop image, or TMPDIR on btrfs");
        return None;
    }
    if kind == Kind::Copy && direct {
        println!("skipped: TMPDIR is on btrfs");
        return None;
    }
    let options = PoolOptions { loop_image: kind == Kind::Btrfs, image_bytes: 2 << 30 };
    let pool = Pool::open(dir.path(), options).unwrap();
    let engine = engine::detect(&pool.path).unwrap();
    assert_eq!(engine.name(), if kind == Kind::Btrfs { "btrfs" } else { "copy" });
    Some(TestPool { pool, engine, dir })
}

pub(crate) const SMALL_RESERVE: Reserve = Reserve { percent: 0, bytes_min: 1 << 20 };

impl TestPool {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.pool.path.join(name)
    }

    pub(crate) fn shared(&self) -> Shared {
        self.shared_with(512)
    }

    pub(crate) fn shared_with(&self, fds_max: usize) -> Shared {
        Shared {
            engine: Arc::clone(&self.engine),
            fds: Arc::new(FdCache::new(NonZeroUsize::new(fds_max).unwrap())),
            space: Arc::new(SpaceGuard::new(&self.pool.path, SMALL_RESERVE).unwrap()),
            durability: Durability::Deferred,
        }
    }

    /// A fresh writable live directory `name`.
    pub(crate) fn live(&self, name: &str) -> LiveDir {
        let path = self.path(name);
        self.engine.create(&path).unwrap();
        self.reopen(name)
    }

    /// As after a restart.
    pub(crate) fn reopen(&self, name: &str) -> LiveDir {
        self.reopen_with(name, Limits::NONE)
    }

    pub(crate) fn reopen_with(&self, name: &str, limits: Limits) -> LiveDir {
        LiveDir::open(&self.path(name), self.shared(), Some(self.path(&format!("{name}.dirty"))), limits).unwrap()
    }
}

/// Makes one test for each engine of every function named.
#[macro_export]
macro_rules! on_every_engine {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        mod btrfs {
            $($(#[$doc])* #[test] fn $name() {
                if let Some(pool) = super::pools::pool(super::pools::Kind::Btrfs) { super::$name(&pool) }
            })*
        }
        mod copy {
            $($(#[$doc])* #[test] fn $name() {
                if let Some(pool) = super::pools::pool(super::pools::Kind::Copy) { super::$name(&pool) }
            })*
        }
    };
}

/// A store in the pool that commits only when asked to.
pub(crate) fn open(pool: &TestPool) -> Store {
    let options = Options {
        reserve: SMALL_RESERVE,
        quiet: Duration::from_secs(3600),
        durability: Durability::Deferred,
        ..Options::default()
    };
    Store::open(&pool.pool.path, None, options).unwrap()
}

/// A branch of a run of its own.
pub(crate) fn fork(store: &Store) -> Arc<Branch> {
    let name = BranchName { role: "cleo".parse().unwrap(), run: RunId::random() };
    let who = Provenance {
        principal: "agent:cleo".into(),
        on_behalf_of: None,
        run: name.run,
        lease: LeaseId::random(),
        purpose: None,
        read_manifest: None,
    };
    store.fork(&name, &who, Limits::NONE, None).unwrap()
}

/// Writes a whole file as a client does.
pub(crate) fn put(branch: &Branch, path: &str, bytes: &[u8]) -> Result<(), FsError> {
    let path = TreePath::parse(path).unwrap();
    let (above, name) = path.split_last().unwrap();
    let dir = branch.live().locate_path(&above)?;
    let how = CreateHow::Unchecked(SetAttr { size: Some(0), ..SetAttr::default() });
    let made = branch.live().create(&dir, name, how)?;
    let at = branch.live().locate(made.made.node.node)?;
    branch.live().write(&at, 0, bytes, Stability::Unstable).map(drop)
}
