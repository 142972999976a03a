//! Attributes, and how a client's narrow mode is kept.
//!
//! On disk a file always keeps `u+rw` and a directory `u+rwx`, so that the server, which has no capability, can
//! always serve it. A client's mode that is narrower, or that has the sticky bit, is kept in the extended attribute
//! [`MODE_XATTR`], and the *disk* mode then carries the sticky bit as a marker: so the usual file costs no
//! getxattr. Sticky is the one special bit that an owner may set and that no write clears.

use std::os::fd::{AsFd, BorrowedFd};

use nas_types::fs::{Attr, FileKind, FsError};
use nas_types::time::FileTime;
use rustix::fs::{FileType, Mode, Statx, StatxTimestamp, XattrFlags};
use rustix::io::Errno;

use crate::error::fs_error;

/// Holds the client's mode in octal, when the disk cannot.
pub(crate) const MODE_XATTR: &str = "user.nas.mode";
/// Holds the verifier of an exclusive CREATE until the first SETATTR (RFC 1813 §3.3.8).
pub(crate) const VERIFIER_XATTR: &str = "user.nas.excl";
const STICKY: u32 = 0o1000;

pub(crate) fn kind_of(stat: &Statx) -> Option<FileKind> {
    match FileType::from_raw_mode(u32::from(stat.stx_mode)) {
        FileType::RegularFile => Some(FileKind::File),
        FileType::Directory => Some(FileKind::Dir),
        FileType::Symlink => Some(FileKind::Symlink),
        FileType::Fifo => Some(FileKind::Fifo),
        FileType::Socket => Some(FileKind::Socket),
        _ => None,
    }
}

pub(crate) fn file_time(t: StatxTimestamp) -> FileTime {
    FileTime { secs: t.tv_sec, nanos: t.tv_nsec }
}

/// Attributes with the mode still as on disk.
fn attr_on_disk(stat: &Statx, kind: FileKind) -> Attr {
    Attr {
        kind,
        mode: u32::from(stat.stx_mode) & 0o1777,
        nlink: stat.stx_nlink,
        size: stat.stx_size,
        used: stat.stx_blocks.saturating_mul(512),
        fileid: stat.stx_ino,
        atime: file_time(stat.stx_atime),
        mtime: file_time(stat.stx_mtime),
        ctime: file_time(stat.stx_ctime),
    }
}

/// Attributes as a client sees them. `open` is only called for a file whose mode is in the xattr.
pub(crate) fn attr_of<F: AsFd>(stat: &Statx, open: impl FnOnce() -> Result<F, FsError>) -> Result<Attr, FsError> {
    // A device node made behind our back is not there.
    let kind = kind_of(stat).ok_or(FsError::NotFound)?;
    let mut attr = attr_on_disk(stat, kind);
    if attr.mode & STICKY != 0 && matches!(kind, FileKind::File | FileKind::Dir) {
        attr.mode = stored_mode(open()?.as_fd())?.unwrap_or(attr.mode & !STICKY);
    }
    Ok(attr)
}

fn stored_mode(fd: BorrowedFd<'_>) -> Result<Option<u32>, FsError> {
    let mut text = [0u8; 8];
    match rustix::fs::fgetxattr(fd, MODE_XATTR, &mut text) {
        Ok(len) => Ok(std::str::from_utf8(&text[..len])
            .ok()
            .and_then(|text| u32::from_str_radix(text, 8).ok())
            .map(|mode| mode & 0o1777)),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(None),
        Err(e) => Err(fs_error(e)),
    }
}

/// What a client's `mode` becomes on disk.
pub(crate) fn disk_mode(kind: FileKind, mode: u32) -> u32 {
    let always = match kind {
        FileKind::Dir => 0o700,
        FileKind::File => 0o600,
        _ => 0,
    };
    let marker = if mode & STICKY != 0 || mode & always != always { STICKY } else { 0 };
    (mode & 0o777) | always | marker
}

/// setuid and setgid do not exist here (DESIGN §3).
pub(crate) fn check_mode(mode: u32) -> Result<u32, FsError> {
    if mode & 0o6000 != 0 { Err(FsError::NotPermitted) } else { Ok(mode & 0o1777) }
}

/// Gives an open file or directory the client's `mode`. The xattr goes first: a crash between shows the old mode.
pub(crate) fn set_mode(fd: BorrowedFd<'_>, kind: FileKind, mode: u32) -> Result<(), Errno> {
    let disk = disk_mode(kind, mode);
    if disk & STICKY != 0 {
        let text = format!("{mode:o}");
        rustix::fs::fsetxattr(fd, MODE_XATTR, text.as_bytes(), XattrFlags::empty())?;
    }
    rustix::fs::fchmod(fd, Mode::from_raw_mode(disk))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whatever a client asks for, the owner can open it; only narrow and sticky modes need the xattr.
    #[test]
    fn disk_modes() {
        assert_eq!(disk_mode(FileKind::File, 0o644), 0o644);
        assert_eq!(disk_mode(FileKind::File, 0o444), 0o1644);
        assert_eq!(disk_mode(FileKind::File, 0), 0o1600);
        assert_eq!(disk_mode(FileKind::Dir, 0o755), 0o755);
        assert_eq!(disk_mode(FileKind::Dir, 0o1777), 0o1777);
        assert_eq!(disk_mode(FileKind::Dir, 0o555), 0o1755);
        assert_eq!(check_mode(0o4755), Err(FsError::NotPermitted));
        assert_eq!(check_mode(0o1755), Ok(0o1755));
    }
}
