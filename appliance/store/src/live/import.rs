//! Bulk import into a branch: whole entries by path, without a reply to each that must be durable.

use std::sync::atomic::{AtomicU64, Ordering};

use nas_types::fs::{FileKind, FsError};
use nas_types::path::TreePath;
use nas_types::time::FileTime;

use super::LiveDir;
use super::attr::check_mode;
use super::names::is_incoming;
use crate::apply::{Import, ImportError, place, receive};
use crate::error::fs_error;

/// Counts a file under a number that no inode has, until it has its own.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl LiveDir {
    /// Puts one entry in place, replacing a file or symlink of that name, and returns its length in bytes.
    /// Directories above it are made. Durable with the next commit. While it is received everything else goes on.
    pub fn import_entry(
        &self,
        path: &TreePath,
        what: Import<'_>,
        mode: u32,
        mtime: Option<FileTime>,
    ) -> Result<u64, FsError> {
        let mode = check_mode(mode)?;
        if path.components().next().is_some_and(is_incoming) {
            return Err(FsError::Access);
        }
        // What comes in lies beside the tree, and commits do not wait for it; only the mark must outlive them.
        let _incoming = self.journal.as_ref().ok_or(FsError::ReadOnly)?.incoming()?;
        self.usage.check_file()?;
        self.shared.space.admit(4096)?;
        let stand_in = u64::MAX - NEXT.fetch_add(1, Ordering::Relaxed);
        let done = self.import_as(stand_in, path, what, mode, mtime);
        self.usage.release(stand_in);
        done.map_err(|e| match e {
            ImportError::Refused(e) => e,
            ImportError::Io(e) => rustix::io::Errno::from_io_error(&e).map_or_else(
                || {
                    tracing::error!(error = %e, "an import could not be read");
                    FsError::Io
                },
                fs_error,
            ),
        })
    }

    fn import_as(
        &self,
        stand_in: u64,
        path: &TreePath,
        what: Import<'_>,
        mode: u32,
        mtime: Option<FileTime>,
    ) -> Result<u64, ImportError> {
        let mut seen = 0;
        let mut admit = |size: u64| {
            self.shared.space.admit(size - seen)?;
            seen = size;
            self.usage.charge(stand_in, size)
        };
        let received = receive(&self.root, what, mode, &mut admit)?;
        let replaced = match self.locate_path(path) {
            Ok(at) => Some(at),
            Err(FsError::NotFound | FsError::NotDir) => None,
            Err(e) => return Err(ImportError::Refused(e)),
        };
        let (_names, journal) = self.change().map_err(ImportError::Refused)?;
        // Noted before it happens: a part of it may stay when it fails.
        let parents = (1..path.components().count()).scan(path.clone(), |at, _| {
            *at = at.split_last()?.0;
            Some(at.clone())
        });
        journal.changed(parents.chain([path.clone()]));
        let (ino, size) = place(&self.root, path, received, mode, mtime)?;
        if let Some(old) = replaced.filter(|old| old.attr.kind != FileKind::Dir && old.node.id.ino != ino) {
            self.moves.fetch_add(1, Ordering::AcqRel);
            self.shared.fds.forget(&(self.id, old.node.id));
            if old.attr.nlink <= 1 {
                self.usage.release(old.node.id.ino);
            }
        }
        self.usage.settle(ino, size);
        Ok(size)
    }
}
