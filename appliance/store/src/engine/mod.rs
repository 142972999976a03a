//! Engines: what the Store asks of a file system, as a contract every engine passes the same tests for.
//!
//! - [`btrfs`]: subvolumes and snapshots through a few ioctls of our own; works for an owner without any
//!   capability when the pool is mounted `user_subvol_rm_allowed`.
//! - [`copy`]: plain directories, cloned file by file (reflink where the file system has it).
//!
//! **Generation number of an inode** ([`Engine::generation_of`]). A reference that outlives its file must never
//! reach the next file with the same number.
//! On btrfs numbers only grow while the pool is mounted; after a mount they continue from the highest number in
//! use, so the highest one can come back once, much later: the birth time in nanoseconds tells the two apart, needs
//! no open, and is the same in every snapshot. Elsewhere (ext4) a number is reused at once and birth times have the
//! granularity of a tick, so the file system's own generation (`FS_IOC_GETVERSION`) is folded in wherever the
//! file can be opened (regular files and directories). File systems without that ioctl (tmpfs) do not reuse numbers.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Statx, StatxFlags};

pub mod btrfs;
pub mod copy;

/// What [`Engine::freeze`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frozen {
    /// A read-only image of the directory as it was at one point in time.
    Snapshot(PathBuf),
    /// This engine has no cheap point in time: read the live directory and check that nothing moved.
    Unsupported,
}

/// A file system as the Store uses it.
///
/// # Contract
///
/// All paths are absolute, their parent directories exist, and callers never run two operations on the same
/// directory at once (different directories at once are fine).
///
/// 1. [`create`](Self::create) makes an empty, writable directory. It fails with `AlreadyExists` when the name is taken.
/// 2. [`fork`](Self::fork) makes `to` a writable directory with exactly what `from` held: names, kinds, contents, modes,
///    mtimes, extended attributes of the `user.` kind, symlink targets. Later changes of one are never seen in
///    the other. `from` may be read-only. `to` must not exist; on failure nothing is left at `to`.
/// 3. [`freeze`](Self::freeze) makes an image that cannot be written through any path and that does not change, as of one
///    instant: two files written one after the other are never seen with only the second one. Or it says
///    `Unsupported` and does nothing.
/// 4. [`set_read_only`](Self::set_read_only) turns writing off or on for the whole directory where the engine can.
/// 5. [`delete`](Self::delete) removes the directory and all in it, also when it is read-only or holds directories without
///    permission bits. Symlinks in it are removed, never followed. A directory that is not there is no error.
/// 6. [`sync`](Self::sync) returns when all that was done in `dir` before the call survives a power cut.
/// 7. [`keeps_inodes`](Self::keeps_inodes): does a fork keep inode numbers and generations of the files it was forked from?
/// 8. [`generation_of`](Self::generation_of) with the inode number names one file for ever within its directory: it stays the
///    same while the file lives (writes, renames and restarts included).
/// 9. [`fork_is_durable`](Self::fork_is_durable): does a fork survive a power cut once it returned, without a sync?
pub trait Engine: Send + Sync + fmt::Debug {
    /// Short name for logs and the format file.
    fn name(&self) -> &'static str;
    /// Contract 1.
    fn create(&self, dir: &Path) -> io::Result<()>;
    /// Contract 2.
    fn fork(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Contract 3.
    fn freeze(&self, from: &Path, to: &Path) -> io::Result<Frozen>;
    /// Contract 4.
    fn set_read_only(&self, dir: &Path, on: bool) -> io::Result<()>;
    /// Contract 5.
    fn delete(&self, dir: &Path) -> io::Result<()>;
    /// Contract 6.
    fn sync(&self, dir: &Path) -> io::Result<()>;
    /// Contract 9.
    fn fork_is_durable(&self) -> bool;
    /// Contract 7.
    fn keeps_inodes(&self) -> bool;
    /// Contract 8. `parent` and `name` lead to the file `stat` was taken of; an empty `name` means `parent` itself.
    fn generation_of(&self, parent: BorrowedFd<'_>, name: &[u8], stat: &Statx) -> u64;
}

/// The engine for files under `dir`: btrfs when it is on btrfs, else copy.
pub fn detect(dir: &Path) -> io::Result<Arc<dyn Engine>> {
    if btrfs::is_btrfs(dir)? { Ok(Arc::new(btrfs::Btrfs)) } else { Ok(Arc::new(copy::Copy::for_dir(dir)?)) }
}

/// Birth time in nanoseconds since 1970, wrapping: only compared for equality.
pub(crate) fn birth_ns(stat: &Statx) -> u64 {
    if stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return 0;
    }
    stat.stx_btime.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(u64::from(stat.stx_btime.tv_nsec))
}
