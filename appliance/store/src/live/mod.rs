//! Operations on one live directory: a branch, or one generation of main (read-only). NFS-shaped, by
//! [`NodeRef`]; sync; any number of threads.
//!
//! **Two steps.** Who authorises by path calls [`LiveDir::locate`] first, decides on [`Located::path`], and hands the same
//! `Located` to the act. The act checks under the branch's lock that the file is still at that path; when a rename came
//! between, or the file got another name, it does nothing and answers [`FsError::Later`]: locate again.
//!
//! **Locks.** `tree` is the branch's lock: ordinary operations hold it for reading, renames, RMDIR, LINK and
//! the commit barrier for writing. The node table and the fd cache have short locks of their own, never held over I/O.
//!
//! **Finding a file.** [`nodes`] remembers inode → (parent, name). A directory is opened from the root of the branch with
//! `openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)` and kept in the fd cache; a file is one name
//! below an open directory, taken with `O_NOFOLLOW`; then inode and generation are compared. So no symlink is ever
//! followed and a wrong guess costs a retry, never another file. After a restart the parent hint of the
//! reference is tried, then all directories are walked once. In an unprotected tree others rename beside us, so there an open
//! directory is not enough: each use opens it by its path again. What a lease may do is decided about the path where it is.
//!
//! **Durability of names** ([`Durability`]). RFC 1813 §4.8 wants CREATE, REMOVE, RENAME and the like on stable storage before the
//! reply. `Strict`, the default, fsyncs the changed directories after the lock is released; on btrfs concurrent fsyncs of
//! one subvolume share one log commit, so callers are group-committed by the kernel. `Deferred` leaves names to
//! the next COMMIT or transaction. It cannot be the default: fsync of a *file* makes its own name durable on btrfs, but an
//! application that renames and then fsyncs the *directory* is told nothing by an NFS client (its fsync of a directory
//! is a no-op), and would lose the rename in a power cut.
//!
//! Read [`attr`] (modes), [`nodes`], [`resolve`](self) (finding), then the operations: `read`, `write`, `names`,
//! `rename`, `list`; then [`journal`] (what a commit must look at).

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nas_types::fs::{Attr, FsError, NodeId, NodeRef};
use nas_types::path::TreePath;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};

use crate::engine::Engine;
use crate::space::{Limits, SpaceGuard, Usage};

pub(crate) mod attr;
pub(crate) mod fds;
mod import;
pub(crate) mod journal;
mod list;
mod names;
mod nodes;
mod read;
mod rename;
mod resolve;
mod write;

pub use fds::FdCache;
pub use journal::DirtySet;
pub use names::{Created, Removed};
pub use rename::Renamed;

use journal::Journal;
use nodes::NodeTable;

/// When a change of names is durable. See the module text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Before the reply (RFC 1813 §4.8).
    #[default]
    Strict,
    /// With the next COMMIT, commit or transaction of the file system. For imports and scratch data.
    Deferred,
}

/// A file found by reference: where it is now and what it looks like. The acts take it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The reference, with a fresh parent hint.
    pub node: NodeRef,
    /// Its path. A file with several names has others too: see [`LiveDir::names_of`].
    pub path: TreePath,
    /// Attributes at the time of the call.
    pub attr: Attr,
    /// Number of renames and removals seen when it was located.
    seen: u64,
}

/// What a live directory shares with others of its pool.
#[derive(Debug, Clone)]
pub struct Shared {
    /// The engine of the pool.
    pub engine: Arc<dyn Engine>,
    /// Open files of all live directories.
    pub fds: Arc<FdCache>,
    /// Free space of the pool.
    pub space: Arc<SpaceGuard>,
    /// When names are durable.
    pub durability: Durability,
}

/// One live directory.
#[derive(Debug)]
pub struct LiveDir {
    id: u64,
    path: PathBuf,
    root: Arc<OwnedFd>,
    root_id: NodeId,
    shared: Shared,
    /// `None`: read-only.
    journal: Option<Journal>,
    tree: RwLock<()>,
    moves: AtomicU64,
    nodes: Mutex<NodeTable>,
    usage: Usage,
    verifier_epoch: AtomicU64,
}

const STATX: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl LiveDir {
    /// Opens the live directory at `path`. With a `mark`, the place of its durable dirty mark, it is writable.
    pub fn open(path: &Path, shared: Shared, mark: Option<PathBuf>, limits: Limits) -> Result<Self, FsError> {
        Self::open_with(path, shared, mark.map(Journal::new), Usage::new(limits))
    }

    /// Opens a writable live directory that no commit ever looks at: an unprotected tree.
    pub(crate) fn open_without_history(path: &Path, shared: Shared) -> Result<Self, FsError> {
        Self::open_with(path, shared, Some(Journal::without_history()), Usage::uncounted())
    }

    fn open_with(path: &Path, shared: Shared, journal: Option<Journal>, usage: Usage) -> Result<Self, FsError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = shared.fds.retrying(|| rustix::fs::openat(CWD, path, flags, Mode::empty()))?;
        let stat = rustix::fs::statx(&root, "", AtFlags::EMPTY_PATH, STATX).map_err(crate::error::fs_error)?;
        let generation = shared.engine.generation_of(std::os::fd::AsFd::as_fd(&root), b"", &stat);
        let root_id = NodeId { ino: stat.stx_ino, generation };
        Ok(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            path: path.to_owned(),
            root: Arc::new(root),
            root_id,
            shared,
            journal,
            tree: RwLock::new(()),
            moves: AtomicU64::new(0),
            nodes: Mutex::new(NodeTable::new(root_id)),
            usage,
            verifier_epoch: AtomicU64::new(0),
        })
    }

    /// Where it is on disk.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reference to its root.
    #[must_use]
    pub fn root(&self) -> NodeRef {
        NodeRef { id: self.root_id, parent_hint: self.root_id.ino }
    }

    /// May it be written to?
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.journal.is_some()
    }

    /// Do others than this value change it, beside it (an unprotected tree, which Samba may export too)?
    fn has_other_writers(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::keeps_nothing)
    }

    /// What is counted against the quota.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Counts failed fsyncs: part of the write verifier, so that clients send unstable data again (RFC 1813 §3.3.21).
    #[must_use]
    pub fn write_verifier_epoch(&self) -> u64 {
        self.verifier_epoch.load(Ordering::Acquire)
    }

    /// Has anything changed since the last commit?
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::is_dirty)
    }

    /// Does it hold changes of this very path that no commit has?
    #[must_use]
    pub fn is_path_dirty(&self, path: &TreePath) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.holds(path))
    }

    /// Closes every open file of this directory.
    pub fn close_files(&self) {
        self.shared.fds.forget_all(self.id);
    }

    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Stops every change until the guard is dropped: the barrier of a commit.
    pub(crate) fn stop_changes(&self) -> RwLockWriteGuard<'_, ()> {
        self.tree.write()
    }

    /// Forgets where files are, because they were changed other than through this value.
    pub(crate) fn forget_nodes(&self, _stopped: &RwLockWriteGuard<'_, ()>) {
        *self.nodes.lock() = NodeTable::new(self.root_id);
        self.moves.fetch_add(1, Ordering::AcqRel);
        self.close_files();
    }

    /// Takes over where files are from the generation before, whose inode numbers are the same. Every use is checked by statx.
    /// The former one keeps what it knows: operations that began on it end on it.
    pub(crate) fn adopt_nodes(&self, former: &Self) {
        if former.root_id == self.root_id {
            let mut known = former.nodes.lock().clone();
            // What the changes of this generation made is not in it.
            known.walked = false;
            *self.nodes.lock() = known;
        }
    }

    /// Starts a change: writable, marked dirty on disk. Ordinary changes hold the lock for reading.
    fn change(&self) -> Result<(RwLockReadGuard<'_, ()>, &Journal), FsError> {
        let journal = self.journal.as_ref().ok_or(FsError::ReadOnly)?;
        let guard = self.tree.read();
        journal.before_change()?;
        Ok((guard, journal))
    }

    /// Starts a change that moves directories or removes them.
    fn change_alone(&self) -> Result<(RwLockWriteGuard<'_, ()>, &Journal), FsError> {
        let journal = self.journal.as_ref().ok_or(FsError::ReadOnly)?;
        let guard = self.tree.write();
        journal.before_change()?;
        Ok((guard, journal))
    }

    /// Makes changed names durable before the reply. Called after the branch's lock is released.
    fn sync_names<const N: usize>(&self, dirs: [&Arc<OwnedFd>; N]) -> Result<(), FsError> {
        if self.shared.durability == Durability::Deferred {
            return Ok(());
        }
        dirs.into_iter().try_for_each(|dir| self.sync_fd(dir))
    }

    fn sync_fd(&self, fd: &OwnedFd) -> Result<(), FsError> {
        rustix::fs::fsync(fd).map_err(|e| self.sync_failed(e))
    }

    /// The kernel reports a failed fsync once and then forgets: the epoch tells clients to send again.
    fn sync_failed(&self, errno: rustix::io::Errno) -> FsError {
        self.verifier_epoch.fetch_add(1, Ordering::AcqRel);
        tracing::error!(errno = %errno, live = %self.path.display(), "fsync failed");
        match crate::error::fs_error(errno) {
            full @ (FsError::NoSpace | FsError::Quota) => full,
            _ => FsError::Io,
        }
    }

    /// Makes everything done so far in this directory durable.
    pub fn sync_namespace(&self) -> Result<(), FsError> {
        self.shared
            .engine
            .sync(&self.path)
            .map_err(|e| self.sync_failed(rustix::io::Errno::from_io_error(&e).unwrap_or(rustix::io::Errno::IO)))
    }

    /// Space of this view: the pool's, within the quota.
    pub fn space(&self) -> Result<nas_types::fs::Space, FsError> {
        Ok(self.usage.space(self.shared.space.pool_space()?))
    }
}

impl Drop for LiveDir {
    fn drop(&mut self) {
        self.close_files();
    }
}
