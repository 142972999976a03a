//! The btrfs engine: a live directory is a flat subvolume (never nested), a fork is a snapshot.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, Statx};
use rustix::ioctl::{Getter, NoArg, Setter, opcode};

use super::{Engine, Frozen, birth_ns};

/// `BTRFS_SUPER_MAGIC` of linux/magic.h.
const BTRFS_MAGIC: u64 = 0x9123_683E;
/// `BTRFS_IOCTL_MAGIC` of linux/btrfs.h.
const GROUP: u8 = 0x94;
/// `BTRFS_SUBVOL_RDONLY` of linux/btrfs.h.
const READ_ONLY: u64 = 1 << 1;
const NAME_V1: usize = 4088;
const NAME_V2: usize = 4040;

/// `struct btrfs_ioctl_vol_args`.
#[repr(C)]
struct VolArgs {
    fd: i64,
    name: [u8; NAME_V1],
}

/// `struct btrfs_ioctl_vol_args_v2`, the part without a quota inheritance.
#[repr(C)]
struct VolArgsV2 {
    fd: i64,
    transid: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; NAME_V2],
}

const _: () = assert!(size_of::<VolArgs>() == 4096 && size_of::<VolArgsV2>() == 4096);

const SNAP_DESTROY: u32 = opcode::write::<VolArgs>(GROUP, 15);
const SNAP_CREATE_V2: u32 = opcode::write::<VolArgsV2>(GROUP, 23);
const SUBVOL_CREATE_V2: u32 = opcode::write::<VolArgsV2>(GROUP, 24);
const SUBVOL_GETFLAGS: u32 = opcode::read::<u64>(GROUP, 25);
const SUBVOL_SETFLAGS: u32 = opcode::write::<u64>(GROUP, 26);
const SYNC: u32 = opcode::none(GROUP, 8);

/// The engine. It keeps no state: everything is in the file system.
#[derive(Debug, Clone, Copy)]
pub struct Btrfs;

/// Is `dir` on btrfs?
pub fn is_btrfs(dir: &Path) -> io::Result<bool> {
    Ok(u64::try_from(rustix::fs::statfs(dir)?.f_type).is_ok_and(|magic| magic == BTRFS_MAGIC))
}

fn open_dir(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, dir, flags, Mode::empty())?)
}

/// Opens the parent of `dir` and copies its last name into a zeroed ioctl name field.
fn parent_and_name<const N: usize>(dir: &Path) -> io::Result<(OwnedFd, [u8; N])> {
    let (Some(parent), Some(last)) = (dir.parent(), dir.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let last = last.as_bytes();
    let mut name = [0; N];
    // One byte stays zero: the kernel wants the name terminated.
    if last.len() > 255 || last.len() >= N {
        return Err(io::Error::from(io::ErrorKind::InvalidFilename));
    }
    name[..last.len()].copy_from_slice(last);
    Ok((open_dir(parent)?, name))
}

#[allow(unsafe_code, reason = "the btrfs ioctls have no safe wrapper")]
fn set<const OP: u32, T>(fd: BorrowedFd<'_>, args: T) -> io::Result<()> {
    // SAFETY: every caller passes one of the constants above with exactly the struct it was computed from;
    // the kernel only reads it, during the call.
    unsafe { rustix::ioctl::ioctl(fd, Setter::<OP, T>::new(args)) }.map_err(Into::into)
}

#[allow(unsafe_code, reason = "the btrfs ioctls have no safe wrapper")]
fn get_flags(fd: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: SUBVOL_GETFLAGS writes exactly one u64.
    unsafe { rustix::ioctl::ioctl(fd, Getter::<SUBVOL_GETFLAGS, u64>::new()) }.map_err(Into::into)
}

#[allow(unsafe_code, reason = "the btrfs ioctls have no safe wrapper")]
fn sync_transaction(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: SYNC takes no argument.
    unsafe { rustix::ioctl::ioctl(fd, NoArg::<SYNC>::new()) }.map_err(Into::into)
}

fn snapshot(from: &Path, to: &Path, flags: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let source = open_dir(from)?;
    let (parent, name) = parent_and_name::<NAME_V2>(to)?;
    let args = VolArgsV2 { fd: i64::from(source.as_raw_fd()), transid: 0, flags, unused: [0; 4], name };
    set::<SNAP_CREATE_V2, _>(parent.as_fd(), args)
}

impl Engine for Btrfs {
    fn name(&self) -> &'static str {
        "btrfs"
    }

    fn create(&self, dir: &Path) -> io::Result<()> {
        let (parent, name) = parent_and_name::<NAME_V2>(dir)?;
        set::<SUBVOL_CREATE_V2, _>(parent.as_fd(), VolArgsV2 { fd: 0, transid: 0, flags: 0, unused: [0; 4], name })
    }

    fn fork(&self, from: &Path, to: &Path) -> io::Result<()> {
        snapshot(from, to, 0)
    }

    fn freeze(&self, from: &Path, to: &Path) -> io::Result<Frozen> {
        snapshot(from, to, READ_ONLY)?;
        Ok(Frozen::Snapshot(PathBuf::from(to)))
    }

    fn set_read_only(&self, dir: &Path, on: bool) -> io::Result<()> {
        let fd = open_dir(dir)?;
        let now = get_flags(fd.as_fd())?;
        let wanted = if on { now | READ_ONLY } else { now & !READ_ONLY };
        if wanted == now { Ok(()) } else { set::<SUBVOL_SETFLAGS, u64>(fd.as_fd(), wanted) }
    }

    fn delete(&self, dir: &Path) -> io::Result<()> {
        match self.set_read_only(dir, false) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            // A plain directory, left by a crash or another engine: not a subvolume, so no flags.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => return super::copy::remove_tree(dir),
            Err(e) => return Err(e),
        }
        let (parent, name) = parent_and_name::<NAME_V1>(dir)?;
        set::<SNAP_DESTROY, _>(parent.as_fd(), VolArgs { fd: 0, name })
    }

    fn sync(&self, dir: &Path) -> io::Result<()> {
        let fd = open_dir(dir)?;
        // syncfs starts and waits for delayed allocation of every subvolume, the ioctl commits the transaction.
        rustix::fs::syncfs(&fd)?;
        sync_transaction(fd.as_fd())
    }

    fn fork_is_durable(&self) -> bool {
        // Making a snapshot commits the transaction, with what was written to the source before.
        true
    }

    fn keeps_inodes(&self) -> bool {
        true
    }

    fn generation_of(&self, _parent: BorrowedFd<'_>, _name: &[u8], stat: &Statx) -> u64 {
        birth_ns(stat)
    }
}
