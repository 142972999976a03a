//! Attributes in results: `fattr3`, `post_op_attr`, `wcc_data` (RFC 1813 §2.5, §2.6).

use nas_types::fs::{Attr, Before, FileKind, Stability, Wcc};
use nas_types::time::FileTime;

use super::status::{MountStatus, Status};
use super::xdr::Writer;

/// Encoded length of `fattr3`.
pub(crate) const FATTR_BYTES: usize = 84;

/// What every file of a mount has in common on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) fsid: u64,
}

fn file_type(kind: FileKind) -> u32 {
    match kind {
        FileKind::File => 1,
        FileKind::Dir => 2,
        FileKind::Symlink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    }
}

impl Writer<'_> {
    pub(crate) fn status(&mut self, status: Status) {
        self.u32(status as u32);
    }

    pub(crate) fn mount_status(&mut self, status: MountStatus) {
        self.u32(status as u32);
    }

    /// `nfstime3` counts from 1970 in 32 bits without a sign: what lies outside is clamped.
    pub(crate) fn time(&mut self, time: FileTime) {
        match u32::try_from(time.secs) {
            Ok(secs) => {
                self.u32(secs);
                self.u32(time.nanos);
            }
            Err(_) => {
                self.u32(if time.secs < 0 { 0 } else { u32::MAX });
                self.u32(0);
            }
        }
    }

    pub(crate) fn fattr(&mut self, attr: &Attr, look: Look) {
        self.u32(file_type(attr.kind));
        self.u32(attr.mode);
        self.u32(attr.nlink);
        self.u32(look.uid);
        self.u32(look.gid);
        self.u64(attr.size);
        self.u64(attr.used);
        self.u64(0); // rdev: device nodes never exist
        self.u64(look.fsid);
        self.u64(attr.fileid);
        self.time(attr.atime);
        self.time(attr.mtime);
        self.time(attr.ctime);
    }

    /// `post_op_attr` with attributes.
    pub(crate) fn attr(&mut self, attr: &Attr, look: Look) {
        self.bool(true);
        self.fattr(attr, look);
    }

    /// `post_op_attr` without.
    pub(crate) fn no_attr(&mut self) {
        self.bool(false);
    }

    fn before(&mut self, before: &Before) {
        self.bool(true);
        self.u64(before.size);
        self.time(before.mtime);
        self.time(before.ctime);
    }

    /// `wcc_data`.
    pub(crate) fn wcc(&mut self, wcc: &Wcc, look: Look) {
        self.before(&wcc.before);
        self.attr(&wcc.after, look);
    }

    /// `wcc_data` that tells nothing, as on most failures: the client then asks itself.
    pub(crate) fn no_wcc(&mut self) {
        self.bool(false);
        self.bool(false);
    }

    /// `post_op_fh3` with a handle.
    pub(crate) fn handle(&mut self, handle: &[u8]) {
        self.bool(true);
        self.opaque(handle);
    }

    pub(crate) fn stability(&mut self, stability: Stability) {
        self.u32(match stability {
            Stability::Unstable => 0,
            Stability::DataSync => 1,
            Stability::FileSync => 2,
        });
    }
}
