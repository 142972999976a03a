//! Open files, kept within a budget: an LRU of descriptors shared by all live directories.

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use lru::LruCache;
use nas_types::fs::{FsError, NodeId};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::error::fs_error;

/// Which file of which live directory.
pub(crate) type FdKey = (u64, NodeId);

/// The cache.
#[derive(Debug)]
pub struct FdCache {
    open: Mutex<LruCache<FdKey, Arc<OwnedFd>>>,
}

impl FdCache {
    /// A cache that keeps at most `fds_max` descriptors open.
    #[must_use]
    pub fn new(fds_max: NonZeroUsize) -> Self {
        Self { open: Mutex::new(LruCache::new(fds_max)) }
    }

    /// Half of what the process may open, 4,096 at most: the rest is for sockets and short-lived opens.
    #[must_use]
    pub fn default_budget() -> NonZeroUsize {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(8192);
        let half = usize::try_from(limit / 2).unwrap_or(4096).clamp(16, 4096);
        NonZeroUsize::new(half).expect("because it was clamped to at least 16")
    }

    pub(crate) fn get(&self, key: &FdKey) -> Option<Arc<OwnedFd>> {
        self.open.lock().get(key).cloned()
    }

    pub(crate) fn put(&self, key: FdKey, fd: OwnedFd) -> Arc<OwnedFd> {
        let fd = Arc::new(fd);
        // What falls out is closed after the lock is released.
        let evicted = self.open.lock().push(key, Arc::clone(&fd));
        drop(evicted);
        fd
    }

    pub(crate) fn forget(&self, key: &FdKey) {
        let gone = self.open.lock().pop(key);
        drop(gone);
    }

    /// Closes every descriptor of live directory `live`.
    pub(crate) fn forget_all(&self, live: u64) {
        let mut open = self.open.lock();
        let keys: Vec<FdKey> = open.iter().filter(|(key, _)| key.0 == live).map(|(key, _)| *key).collect();
        let gone: Vec<_> = keys.iter().filter_map(|key| open.pop(key)).collect();
        drop(open);
        drop(gone);
    }

    /// Number of descriptors kept open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.lock().len()
    }

    /// Is nothing kept open?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs `open`; when the process is out of descriptors, gives half of the kept ones back and tries again.
    /// So EMFILE never reaches a client.
    pub(crate) fn retrying<T>(&self, mut open: impl FnMut() -> Result<T, Errno>) -> Result<T, FsError> {
        loop {
            match open() {
                Err(Errno::INTR) => {}
                Err(Errno::MFILE | Errno::NFILE) => {
                    let mut kept = self.open.lock();
                    if kept.is_empty() {
                        return Err(FsError::Later);
                    }
                    let half = kept.len().div_ceil(2);
                    let gone: Vec<_> = (0..half).filter_map(|_| kept.pop_lru()).collect();
                    drop(kept);
                    drop(gone);
                }
                other => return other.map_err(fs_error),
            }
        }
    }
}
