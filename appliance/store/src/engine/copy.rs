//! The copy engine: a live directory is a plain directory, a fork is a copy (reflinked where possible).
//! Fork is O(files), and there is no point in time: commits check again after reading.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use rustix::ioctl::{Getter, opcode};

use super::{Engine, Frozen, birth_ns};

/// `FS_IOC_GETVERSION` of linux/fs.h.
const GETVERSION: u32 = opcode::read::<std::ffi::c_long>(b'v', 1);
const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Largest extended attribute that is carried over, in bytes (the kernel's own limit).
const XATTR_BYTES_MAX: usize = 65_536;

/// The engine.
#[derive(Debug, Clone, Copy)]
pub struct Copy {
    /// Does this file system answer `FS_IOC_GETVERSION`? Asked once, so that a lookup on one that
    /// does not is spared an open.
    has_version: bool,
}

#[allow(unsafe_code, reason = "FS_IOC_GETVERSION has no safe wrapper")]
fn version(fd: BorrowedFd<'_>) -> Option<u32> {
    // SAFETY: its opcode says long for historical reasons, but the kernel writes exactly one 32-bit integer.
    unsafe { rustix::ioctl::ioctl(fd, Getter::<GETVERSION, u32>::new()) }.ok()
}

impl Copy {
    /// The engine for files under `dir`.
    pub fn for_dir(dir: &Path) -> io::Result<Self> {
        let fd = rustix::fs::openat(CWD, dir, DIR, Mode::empty())?;
        Ok(Self { has_version: version(fd.as_fd()).is_some() })
    }
}

impl Engine for Copy {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn create(&self, dir: &Path) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(CWD, dir, Mode::RWXU)?)
    }

    fn fork(&self, from: &Path, to: &Path) -> io::Result<()> {
        let source = rustix::fs::openat(CWD, from, DIR, Mode::empty())?;
        rustix::fs::mkdirat(CWD, to, Mode::RWXU)?;
        let target = rustix::fs::openat(CWD, to, DIR, Mode::empty())?;
        let done = Copier { links: HashMap::new() }.dir(source.as_fd(), target.as_fd());
        if done.is_err() {
            let _ = remove_tree(to);
        }
        done
    }

    fn freeze(&self, _from: &Path, _to: &Path) -> io::Result<Frozen> {
        Ok(Frozen::Unsupported)
    }

    fn set_read_only(&self, _dir: &Path, _on: bool) -> io::Result<()> {
        Ok(())
    }

    fn delete(&self, dir: &Path) -> io::Result<()> {
        remove_tree(dir)
    }

    fn sync(&self, dir: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(rustix::fs::openat(CWD, dir, DIR, Mode::empty())?)?)
    }

    fn fork_is_durable(&self) -> bool {
        false
    }

    fn keeps_inodes(&self) -> bool {
        false
    }

    fn generation_of(&self, parent: BorrowedFd<'_>, name: &[u8], stat: &Statx) -> u64 {
        let birth = birth_ns(stat);
        let kind = FileType::from_raw_mode(u32::from(stat.stx_mode));
        if !self.has_version || !matches!(kind, FileType::RegularFile | FileType::Directory) {
            return birth;
        }
        let number = if name.is_empty() {
            version(parent)
        } else {
            rustix::fs::openat(parent, name, FILE, Mode::empty()).ok().and_then(|fd| version(fd.as_fd()))
        };
        // Spread the 32 bits over the word, so that neither value hides the other.
        birth ^ u64::from(number.unwrap_or(0)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

struct Copier {
    /// Source inode → an open copy of it, for files with more than one name.
    links: HashMap<u64, OwnedFd>,
}

impl Copier {
    fn dir(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
        for entry in rustix::fs::Dir::read_from(from)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let stat = rustix::fs::statx(from, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
            let mode = Mode::from_raw_mode(u32::from(stat.stx_mode) & 0o1777);
            match FileType::from_raw_mode(u32::from(stat.stx_mode)) {
                FileType::Directory => {
                    rustix::fs::mkdirat(to, name, Mode::RWXU)?;
                    let source = rustix::fs::openat(from, name, DIR, Mode::empty())?;
                    let target = rustix::fs::openat(to, name, DIR, Mode::empty())?;
                    self.dir(source.as_fd(), target.as_fd())?;
                }
                FileType::RegularFile => self.file(from, to, name, &stat, mode)?,
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(from, name, Vec::new())?;
                    rustix::fs::symlinkat(&*target, to, name)?;
                    rustix::fs::utimensat(to, name, &times(&stat), AtFlags::SYMLINK_NOFOLLOW)?;
                }
                kind @ (FileType::Fifo | FileType::Socket) => rustix::fs::mknodat(to, name, kind, mode, 0)?,
                // Device nodes never exist in a tree; one made behind our back is not carried on.
                _ => {}
            }
        }
        let stat = rustix::fs::statx(from, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
        copy_xattrs(from, to)?;
        rustix::fs::fchmod(to, Mode::from_raw_mode(u32::from(stat.stx_mode) & 0o1777))?;
        Ok(rustix::fs::futimens(to, &times(&stat))?)
    }

    fn file(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &std::ffi::CStr,
        stat: &Statx,
        mode: Mode,
    ) -> io::Result<()> {
        if let Some(first) = self.links.get(&stat.stx_ino) {
            use std::os::fd::AsRawFd;
            let path = format!("/proc/self/fd/{}", first.as_raw_fd());
            return Ok(rustix::fs::linkat(CWD, path, to, name, AtFlags::SYMLINK_FOLLOW)?);
        }
        let source = rustix::fs::openat(from, name, FILE, Mode::empty())?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = rustix::fs::openat(to, name, flags, Mode::RUSR | Mode::WUSR)?;
        clone_or_copy(source.as_fd(), target.as_fd())?;
        copy_xattrs(source.as_fd(), target.as_fd())?;
        rustix::fs::fchmod(&target, mode)?;
        rustix::fs::futimens(&target, &times(stat))?;
        if stat.stx_nlink > 1 {
            self.links.insert(stat.stx_ino, target);
        }
        Ok(())
    }
}

fn times(stat: &Statx) -> Timestamps {
    let spec = |t: rustix::fs::StatxTimestamp| Timespec { tv_sec: t.tv_sec, tv_nsec: i64::from(t.tv_nsec) };
    Timestamps { last_access: spec(stat.stx_atime), last_modification: spec(stat.stx_mtime) }
}

/// Copies all content of `from` into the empty file `to`: by reference when the file system can, else by bytes.
pub(crate) fn clone_or_copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    if rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    loop {
        match rustix::fs::copy_file_range(from, None, to, None, 1 << 30) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => break,
            Err(e) => return Err(e.into()),
        }
    }
    let mut buffer = vec![0; 128 * 1024];
    loop {
        let got = rustix::io::read(from, &mut *buffer)?;
        if got == 0 {
            return Ok(());
        }
        let mut done = 0;
        while done < got {
            done += rustix::io::write(to, &buffer[done..got])?;
        }
    }
}

/// Carries `user.` attributes over. Others (security, trusted, ACLs) belong to the machine, not to the tree.
fn copy_xattrs(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let got = match rustix::fs::flistxattr(from, &mut *names) {
        Ok(got) => got,
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    let mut value = Vec::new();
    for name in names[..got].split(|b| *b == 0).filter(|name| name.starts_with(b"user.")) {
        value.resize(XATTR_BYTES_MAX, 0);
        match rustix::fs::fgetxattr(from, name, &mut *value) {
            Ok(len) => rustix::fs::fsetxattr(to, name, &value[..len], XattrFlags::empty())?,
            Err(Errno::NODATA) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Removes `dir` and all in it, descriptor-relative, following no symlink. A missing `dir` is no error.
pub(crate) fn remove_tree(dir: &Path) -> io::Result<()> {
    let fd = match rustix::fs::openat(CWD, dir, DIR, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(rustix::fs::unlinkat(CWD, dir, AtFlags::empty())?),
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(CWD, dir, Mode::RWXU, AtFlags::empty())?;
            rustix::fs::openat(CWD, dir, DIR, Mode::empty())?
        }
        Err(e) => return Err(e.into()),
    };
    empty_dir(fd.as_fd())?;
    Ok(rustix::fs::unlinkat(CWD, dir, AtFlags::REMOVEDIR)?)
}

/// Removes everything inside an open directory.
pub(crate) fn empty_dir(dir: BorrowedFd<'_>) -> io::Result<()> {
    // Without these bits its owner could not unlink in it.
    rustix::fs::fchmod(dir, Mode::RWXU)?;
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(e) => return Err(e.into()),
        }
        let child = match rustix::fs::openat(dir, name, DIR, Mode::empty()) {
            Err(Errno::ACCESS) => {
                rustix::fs::chmodat(dir, name, Mode::RWXU, AtFlags::empty())?;
                rustix::fs::openat(dir, name, DIR, Mode::empty())?
            }
            other => other?,
        };
        empty_dir(child.as_fd())?;
        rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}
