//! WRITE, SETATTR and COMMIT.

use std::os::fd::{AsFd, OwnedFd};

use nas_types::fs::{FileKind, FsError, SetAttr, SetTime, Stability, Wcc, Written};
use nas_types::time::FileTime;
use rustix::fs::{AtFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;

use super::read::IO_BYTES_MAX;
use super::resolve::Found;
use super::{LiveDir, Located};
use crate::error::fs_error;
use crate::live::attr::{VERIFIER_XATTR, check_mode, set_mode};

/// Largest offset of a file, in bytes.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;

impl LiveDir {
    /// Writes `bytes` at `offset`. What a client's narrow mode says does not matter here: who may write is
    /// decided by the lease, and a program that made a 0444 file still writes through its own descriptor.
    pub fn write(&self, at: &Located, offset: u64, bytes: &[u8], how: Stability) -> Result<Written, FsError> {
        let bytes = &bytes[..bytes.len().min(IO_BYTES_MAX)];
        let end =
            offset.checked_add(bytes.len() as u64).filter(|end| *end <= FILE_BYTES_MAX).ok_or(FsError::TooLarge)?;
        let (names, journal) = self.change()?;
        let found = self.still_at(at)?;
        let fd = self.file_fd(&found)?;
        self.usage.charge_at_least(found.id.ino, found.stat.stx_size.max(if bytes.is_empty() { 0 } else { end }))?;
        self.shared.space.admit(bytes.len() as u64)?;
        if !bytes.is_empty() {
            // Noted before it happens, under every name the file has: each is another path in the history.
            journal.changed(self.reached(&found, &at.path)?);
        }
        let count = self.write_all(&fd, offset, bytes)?;
        let file = self.wcc(&found)?;
        drop(names);
        match how {
            Stability::Unstable => {}
            Stability::DataSync => rustix::fs::fdatasync(&*fd).map_err(|e| self.sync_failed(e))?,
            Stability::FileSync => self.sync_fd(&fd)?,
        }
        if how != Stability::Unstable {
            journal.wants_commit();
        }
        Ok(Written { count: u32::try_from(count).unwrap_or(u32::MAX), stability: how, file })
    }

    /// Writes as much as goes in; an error after some bytes is left for the next call to find again.
    fn write_all(&self, fd: &OwnedFd, offset: u64, bytes: &[u8]) -> Result<usize, FsError> {
        let mut done = 0;
        let mut settled = false;
        while done < bytes.len() {
            match rustix::io::pwrite(fd, &bytes[done..], offset + done as u64) {
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                // The reserve says there is room: what was deleted just now is not free on disk yet.
                Err(Errno::NOSPC) if !settled => {
                    self.shared.space.settle();
                    settled = true;
                }
                Err(_) if done > 0 => break,
                Err(e) => return Err(fs_error(e)),
            }
        }
        Ok(done)
    }

    /// Changes attributes. With `ctime_guard`, only if the file's ctime is still that (RFC 1813 §3.3.2).
    pub fn setattr(&self, at: &Located, set: &SetAttr, ctime_guard: Option<FileTime>) -> Result<Wcc, FsError> {
        set.mode.map_or(Ok(0), check_mode)?;
        if set.size.is_some_and(|size| size > FILE_BYTES_MAX) {
            return Err(FsError::TooLarge);
        }
        let (names, journal) = self.change()?;
        let found = self.still_at(at)?;
        let ctime = found.stat.stx_ctime;
        if ctime_guard.is_some_and(|guard| guard != FileTime { secs: ctime.tv_sec, nanos: ctime.tv_nsec }) {
            return Err(FsError::NotSync);
        }
        if set.mode.is_some() || set.size.is_some() || set.mtime != SetTime::Keep {
            // Noted before it happens: a part of it may stay when it fails.
            journal.changed(self.reached(&found, &at.path)?);
        }
        self.apply(&found, set)?;
        if found.kind == FileKind::File {
            // The client has seen its exclusive CREATE succeed: the verifier has done its work.
            match rustix::fs::fremovexattr(&*self.file_fd(&found)?, VERIFIER_XATTR) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(e) => return Err(fs_error(e)),
            }
        }
        let wcc = self.wcc(&found)?;
        drop(names);
        if self.shared.durability == super::Durability::Strict && matches!(found.kind, FileKind::File | FileKind::Dir) {
            self.sync_fd(&*self.open_any(&found)?)?;
        }
        Ok(wcc)
    }

    /// Applies attributes in the order size, mode, times: setting a size changes the mtime.
    pub(super) fn apply(&self, found: &Found, set: &SetAttr) -> Result<(), FsError> {
        if let Some(size) = set.size {
            self.set_size(found, size)?;
        }
        if let Some(mode) = set.mode {
            let mode = check_mode(mode)?;
            match found.kind {
                FileKind::File | FileKind::Dir => {
                    set_mode(self.open_any(found)?.as_fd(), found.kind, mode).map_err(fs_error)?;
                }
                FileKind::Fifo | FileKind::Socket => {
                    let mode = rustix::fs::Mode::from_raw_mode(mode);
                    rustix::fs::chmodat(&*found.dir, &*found.name, mode, AtFlags::empty()).map_err(fs_error)?;
                }
                // A symlink has no mode of its own on Linux; setting it is no error.
                FileKind::Symlink => {}
            }
        }
        if set.atime != SetTime::Keep || set.mtime != SetTime::Keep {
            let times = Timestamps { last_access: spec(set.atime), last_modification: spec(set.mtime) };
            if found.name.is_empty() {
                rustix::fs::futimens(&*self.root, &times)
            } else {
                rustix::fs::utimensat(&*found.dir, &*found.name, &times, AtFlags::SYMLINK_NOFOLLOW)
            }
            .map_err(fs_error)?;
        }
        Ok(())
    }

    fn set_size(&self, found: &Found, size: u64) -> Result<(), FsError> {
        let fd = self.file_fd(found)?;
        let (ino, old) = (found.id.ino, found.stat.stx_size);
        if size > old {
            self.usage.charge_at_least(ino, size)?;
            self.shared.space.admit(1)?;
        }
        match rustix::fs::ftruncate(&*fd, size) {
            // On a full btrfs even a truncation may have to wait for space to come back.
            Err(Errno::NOSPC) if size <= old => {
                self.shared.space.settle();
                rustix::fs::ftruncate(&*fd, size).map_err(fs_error)?;
            }
            other => other.map_err(fs_error)?,
        }
        if size <= old {
            // Truncations down are always admitted, also when they put the file on the list.
            self.usage.settle(ino, size);
        }
        Ok(())
    }

    /// Makes what was written to a file durable (COMMIT, fsync), and schedules a commit of the branch (SPEC MOUNT-2).
    /// The error of the device is given once and counted in [`write_verifier_epoch`](Self::write_verifier_epoch).
    pub fn commit(&self, at: &Located) -> Result<Wcc, FsError> {
        let (found, fd) = {
            let _names = self.tree.read();
            let found = self.still_at(at)?;
            let fd = self.file_fd(&found)?;
            (found, fd)
        };
        if !nas_types::failpoint::skip("live.commit.fsync") {
            self.sync_fd(&fd)?;
        }
        if let Some(journal) = &self.journal {
            journal.wants_commit();
        }
        self.wcc(&found)
    }
}

fn spec(time: SetTime) -> Timespec {
    match time {
        SetTime::Keep => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        SetTime::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        SetTime::To(t) => Timespec { tv_sec: t.secs, tv_nsec: i64::from(t.nanos.min(999_999_999)) },
    }
}
