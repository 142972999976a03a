//! READDIR and READDIRPLUS.
//!
//! The cookie is the file system's own position plus [`COOKIE_BASE`]: on btrfs the index of the entry, which never changes
//! while the entry lives, on ext4 the hash of its name. So a client may remove entries between two calls (`rm -rf`) and
//! still sees each remaining one exactly once, and a cookie is good after a restart.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nas_types::fs::{DirEntry, FsError, Listing, Node};
use nas_types::path::Name;
use rustix::fs::{FileType, Mode, RawDir, SeekFrom};
use rustix::io::Errno;

use super::names::is_hidden;
use super::resolve::OPEN_DIR;
use super::{LiveDir, Located};
use crate::error::fs_error;

/// Positions are moved up by this, so that 0, 1 and 2 stay free for the start, `.` and `..`.
const COOKIE_BASE: u64 = 3;
const BUFFER_BYTES: usize = 32 * 1024;

/// An entry as the directory holds it.
pub(super) struct RawEntry<'a> {
    pub(super) name: &'a [u8],
    pub(super) ino: u64,
    pub(super) is_dir: bool,
    pub(super) cookie: u64,
}

impl LiveDir {
    /// Up to `entries_max` entries after `cookie` (0: from the start), without `.` and `..`. Names that `visible` refuses are
    /// left out. Attributes are taken by statx, nothing is opened.
    pub fn readdir(
        &self,
        at: &Located,
        cookie: u64,
        entries_max: usize,
        with_attrs: bool,
        visible: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Listing, FsError> {
        let _names = self.tree.read();
        let (dir, fd) = self.still_dir(at)?;
        let mut entries = Vec::new();
        let mut failed = None;
        let eof = self.scan(&fd, cookie, &mut |raw| {
            if entries.len() >= entries_max {
                return false;
            }
            if !is_hidden(at, raw.name) && visible(raw.name) {
                match self.list_one(&fd, dir.id.ino, &raw, with_attrs) {
                    Ok(Some(entry)) => entries.push(entry),
                    Ok(None) => {}
                    Err(e) => {
                        failed = Some(e);
                        return false;
                    }
                }
            }
            true
        })?;
        match failed {
            Some(e) => Err(e),
            None => Ok(Listing { entries, eof }),
        }
    }

    fn list_one(
        &self,
        dir: &Arc<OwnedFd>,
        dir_ino: u64,
        raw: &RawEntry<'_>,
        attrs: bool,
    ) -> Result<Option<DirEntry>, FsError> {
        let mut entry = DirEntry { name: raw.name.to_vec(), fileid: raw.ino, cookie: raw.cookie, node: None };
        if attrs {
            let name = Name::new(raw.name).map_err(|_| FsError::Io)?;
            let found = self.child(dir, dir_ino, name);
            match found.and_then(|child| Ok(Node { node: child.node(), attr: self.attr(&child)? })) {
                Ok(node) => entry.node = Some(node),
                // Removed since, or a device node made behind our back.
                Err(FsError::NotFound) => return Ok(None),
                // Another file has the name by now: the client looks it up.
                Err(FsError::Stale) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Some(entry))
    }

    /// Visits entries after `cookie` until `visit` says stop; true when the end was reached.
    pub(super) fn scan(
        &self,
        dir: &Arc<OwnedFd>,
        cookie: u64,
        visit: &mut dyn FnMut(RawEntry<'_>) -> bool,
    ) -> Result<bool, FsError> {
        // A descriptor of its own: the position belongs to the open file, and the cached one is shared.
        let fd = self.shared.fds.retrying(|| rustix::fs::openat(dir.as_fd(), c".", OPEN_DIR, Mode::empty()))?;
        if let Some(position) = cookie.checked_sub(COOKIE_BASE) {
            rustix::fs::seek(&fd, SeekFrom::Start(position)).map_err(|_| FsError::BadCookie)?;
        }
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        let mut raw = RawDir::new(&fd, buffer.spare_capacity_mut());
        loop {
            let entry = match raw.next() {
                None => return Ok(true),
                Some(Ok(entry)) => entry,
                Some(Err(Errno::INVAL)) if cookie != 0 => return Err(FsError::BadCookie),
                Some(Err(e)) => return Err(fs_error(e)),
            };
            let name = entry.file_name().to_bytes();
            let kind = entry.file_type();
            if matches!(name, b"." | b"..") || matches!(kind, FileType::BlockDevice | FileType::CharacterDevice) {
                continue;
            }
            let cookie = entry.next_entry_cookie().saturating_add(COOKIE_BASE);
            let is_dir = match kind {
                FileType::Unknown => self
                    .stat_child(dir, name)?
                    .is_some_and(|stat| FileType::from_raw_mode(u32::from(stat.stx_mode)) == FileType::Directory),
                kind => kind == FileType::Directory,
            };
            if !visit(RawEntry { name, ino: entry.ino(), is_dir, cookie }) {
                return Ok(false);
            }
        }
    }
}
