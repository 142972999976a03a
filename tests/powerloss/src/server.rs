//! The file system that plays the disk: `disk.img`, whose writes and flushes are logged, and `mark`, where a test
//! writes what it wants to see in the same order.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, Session, TimeOrNow, WriteFlags,
};

use crate::record::{Kind, Writer};

/// The name of the disk inside the mount.
pub const DISK: &str = "disk.img";

/// The name of the file that takes markers.
pub const MARK: &str = "mark";

const DISK_INODE: INodeNo = INodeNo(2);
const MARK_INODE: INodeNo = INodeNo(3);

/// Nothing changes behind the kernel's back.
const TTL: Duration = Duration::from_secs(3600);

// Linux, fallocate(2).
const FALLOC_FL_KEEP_SIZE: i32 = 1;
const FALLOC_FL_PUNCH_HOLE: i32 = 2;
const FALLOC_FL_ZERO_RANGE: i32 = 16;

struct Disk {
    backing: File,
    size: u64,
    // Held over "apply to the backing file, then log": the log's order is the disk's order.
    log: Mutex<Writer>,
}

/// Mounts the disk on `dir`, calls `ready`, and serves until it is unmounted.
///
/// # Errors
/// When FUSE refuses, or a file cannot be used.
pub fn serve(dir: &Path, backing: File, log: File, ready: impl FnOnce()) -> io::Result<()> {
    let size = backing.metadata()?.len();
    let disk = Disk { backing, size, log: Mutex::new(Writer::new(log)?) };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("nas-powerloss".to_owned()), MountOption::NoAtime];
    let session = Session::new(disk, dir, &config)?;
    ready();
    session.run()
}

impl Disk {
    fn log(&self) -> MutexGuard<'_, Writer> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o700, 0),
            DISK_INODE => (FileType::RegularFile, 0o600, self.size),
            MARK_INODE => (FileType::RegularFile, 0o600, 0),
            _ => return None,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 4096,
        })
    }

    fn write_at(&self, inode: INodeNo, offset: u64, data: &[u8]) -> io::Result<u32> {
        let length = u32::try_from(data.len()).map_err(io::Error::other)?;
        let mut log = self.log();
        match inode {
            MARK_INODE => log.append(Kind::Marker, 0, length.into(), data)?,
            DISK_INODE if offset.saturating_add(length.into()) <= self.size => {
                self.backing.write_all_at(data, offset)?;
                log.append(Kind::Write, offset, length.into(), data)?;
            }
            // The loop device never writes beyond the size it was told.
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
        Ok(length)
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let length = length.min(self.size.saturating_sub(offset));
        let mut log = self.log();
        zero(&self.backing, offset, length)?;
        log.append(Kind::Discard, offset, length, &[])
    }
}

/// Writes zeros where there are none yet. Holes stay holes.
pub(crate) fn zero(file: &File, offset: u64, length: u64) -> io::Result<()> {
    const CHUNK: usize = 64 << 10;
    let (mut buffer, zeros) = (vec![0; CHUNK], vec![0; CHUNK]);
    let (mut at, end) = (offset, offset.saturating_add(length));
    while at < end {
        let step = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
        file.read_exact_at(&mut buffer[..step], at)?;
        if buffer[..step] != zeros[..step] {
            file.write_all_at(&zeros[..step], at)?;
        }
        at += step as u64;
    }
    Ok(())
}

impl Filesystem for Disk {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let inode = match name.to_str() {
            Some(DISK) if parent == INodeNo::ROOT => DISK_INODE,
            Some(MARK) if parent == INodeNo::ROOT => MARK_INODE,
            _ => return reply.error(Errno::ENOENT),
        };
        match self.attributes(inode) {
            Some(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // A shell truncates the marker file before it writes; a disk keeps its size.
        match size {
            Some(size) if inode == DISK_INODE && size != self.size => reply.error(Errno::EINVAL),
            _ => self.getattr(request, inode, handle, reply),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // No page cache in between: what the caller wrote must be in the log when the call returns.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if inode != DISK_INODE {
            return reply.data(&[]);
        }
        let length = self.size.saturating_sub(offset).min(size.into());
        let mut buffer = vec![0; usize::try_from(length).unwrap_or(0)];
        match self.backing.read_exact_at(&mut buffer, offset) {
            Ok(()) => reply.data(&buffer),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_at(inode, offset, data) {
            Ok(written) => reply.written(written),
            Err(error) => reply.error(error.into()),
        }
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if inode != DISK_INODE {
            return reply.ok();
        }
        // The backing file itself need not be durable: only the simulated machine loses power.
        match self.log().append(Kind::Flush, 0, 0, &[]) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let discards = mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) != 0 && mode & FALLOC_FL_KEEP_SIZE != 0;
        if inode != DISK_INODE || !discards {
            return reply.error(Errno::EOPNOTSUPP);
        }
        match self.discard(offset, length) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // close(2), which promises nothing.
        reply.ok();
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if inode != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (DISK_INODE, FileType::RegularFile, DISK),
            (MARK_INODE, FileType::RegularFile, MARK),
        ];
        for (index, (inode, kind, name)) in entries.into_iter().enumerate() {
            if index as u64 >= offset && reply.add(inode, index as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
