//! READ and READLINK.

use nas_types::fs::{Attr, FileKind, FsError, ReadOut};
use rustix::fs::{AtFlags, Statx};
use rustix::io::Errno;

use super::{LiveDir, Located, STATX};
use crate::error::fs_error;
use crate::live::attr::attr_of;

/// Most bytes one READ or WRITE moves, so that a count always fits the wire's 32 bits.
pub(super) const IO_BYTES_MAX: usize = 1 << 30;

impl LiveDir {
    /// Reads from `offset` until `into` is full or the file ends.
    ///
    /// The lock is released before the bytes are read: a read that is overtaken by a rename happened before it.
    pub fn read(&self, at: &Located, offset: u64, into: &mut [u8]) -> Result<ReadOut, FsError> {
        // No byte lies beyond the largest offset, and the kernel refuses a range that ends there.
        let room = (i64::MAX as u64).saturating_sub(offset);
        let len = into.len().min(IO_BYTES_MAX).min(usize::try_from(room).unwrap_or(usize::MAX));
        let into = &mut into[..len];
        let fd = {
            let _names = self.tree.read();
            let found = self.still_at(at)?;
            self.file_fd(&found)?
        };
        let mut count = 0;
        while count < into.len() {
            let from = offset.saturating_add(count as u64);
            match rustix::io::pread(&*fd, &mut into[count..], from) {
                Ok(0) => break,
                Ok(got) => count += got,
                Err(Errno::INTR) => {}
                Err(e) => return Err(fs_error(e)),
            }
        }
        let stat: Statx = rustix::fs::statx(&*fd, "", AtFlags::EMPTY_PATH, STATX).map_err(fs_error)?;
        let attr = attr_of(&stat, || Ok(fd))?;
        let eof = offset.saturating_add(count as u64) >= attr.size;
        Ok(ReadOut { count: u32::try_from(count).unwrap_or(u32::MAX), eof, attr })
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, at: &Located) -> Result<(Vec<u8>, Attr), FsError> {
        let _names = self.tree.read();
        let found = self.still_at(at)?;
        if found.kind != FileKind::Symlink {
            return Err(FsError::Invalid);
        }
        let target = rustix::fs::readlinkat(&*found.dir, &*found.name, Vec::new()).map_err(fs_error)?;
        Ok((target.into_bytes(), self.attr(&found)?))
    }
}
