//! Changes put in place in a live directory: those of a commit (a new generation, a restore), and imported entries.
//!
//! A replaced file is always a new file, written beside it and then renamed: whoever has the old one open goes on
//! reading it, and a reference to it never shows half of the new content.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use nas_history::History;
use nas_types::fs::{FileKind, FsError};
use nas_types::object::{Change, Entry, EntryKind, Oid};
use nas_types::path::TreePath;
use nas_types::time::FileTime;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::disk::{DIR, FILE, TEMP_PREFIX, open_below, open_root};
use crate::engine::copy::empty_dir;
use crate::error::StoreError;
use crate::live::attr::set_mode;

/// Puts `changes` in place: removals first, from below; then what is new, from above.
///
/// The caller makes it durable, and lets nobody else change the directory meanwhile.
pub(crate) fn apply(dir: &Path, history: &History, changes: &[Change]) -> Result<(), StoreError> {
    let root = open_root(dir).map_err(StoreError::io("changing", dir))?;
    let failed = |e: Errno| StoreError::io("changing", dir)(e.into());
    let kind = |entry: Option<Entry>| entry.map(|entry| entry.kind);
    for change in changes.iter().rev() {
        if change.old.is_some() && kind(change.old) != kind(change.new) {
            remove(&root, &change.path).map_err(failed)?;
        }
    }
    for change in changes {
        let Some(new) = change.new else { continue };
        let (parent, name) = make_parents(&root, &change.path).map_err(failed)?;
        match (new.kind, new.oid) {
            (EntryKind::Dir, _) => put_dir(&parent, &name, new.mode).map_err(failed)?,
            (EntryKind::Symlink, Some(oid)) => {
                let target = history
                    .read_blob(oid, nas_types::path::PATH_BYTES_MAX as u64)
                    .map_err(StoreError::history("reading a symlink"))?;
                put_symlink(&root, &parent, &name, &target).map_err(failed)?;
                if let Some(mtime) = new.mtime {
                    let times = times(mtime);
                    rustix::fs::utimensat(&parent, &*name, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
                }
            }
            (EntryKind::File, Some(oid)) => {
                let same_content = change.old.is_some_and(|old| old.kind == EntryKind::File && old.oid == Some(oid));
                let opened = match same_content {
                    true => Some(rustix::fs::openat(&parent, &*name, FILE, Mode::empty()).map_err(failed)?),
                    false => None,
                };
                // A mode is of all names of a file: the one that gets another mode becomes a file of its own.
                let shared = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| stat.st_nlink > 1).map_err(failed);
                let other_mode = change.old.is_some_and(|old| old.mode != new.mode);
                if let Some(fd) = opened
                    && !(other_mode && shared(&fd)?)
                {
                    set_mode(fd.as_fd(), FileKind::File, new.mode).map_err(failed)?;
                    if let Some(mtime) = new.mtime {
                        rustix::fs::futimens(&fd, &times(mtime)).map_err(failed)?;
                    }
                } else {
                    put_blob(&root, dir, &parent, &name, history, &new, oid)?;
                }
            }
            (EntryKind::File | EntryKind::Symlink, None) => {
                return Err(StoreError::Damaged { path: change.path.to_string(), why: "it has no content id".into() });
            }
        }
    }
    Ok(())
}

/// Sets the time of the last change and leaves that of the last access.
fn times(mtime: FileTime) -> rustix::fs::Timestamps {
    let omit = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let time = rustix::fs::Timespec { tv_sec: mtime.secs, tv_nsec: mtime.nanos.into() };
    rustix::fs::Timestamps { last_access: omit, last_modification: time }
}

fn remove(root: &OwnedFd, path: &TreePath) -> Result<(), Errno> {
    let Some((above, name)) = path.split_last() else { return Ok(()) };
    let parent = match open_below(root, above.as_bytes(), DIR) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        other => other?,
    };
    match rustix::fs::unlinkat(&parent, name.as_bytes(), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(e) => return Err(e),
    }
    match rustix::fs::unlinkat(&parent, name.as_bytes(), AtFlags::REMOVEDIR) {
        // What history does not know is in it: FIFOs and sockets go with their directory.
        Err(Errno::NOTEMPTY) => {
            let child = rustix::fs::openat(&parent, name.as_bytes(), DIR, Mode::empty())?;
            empty_dir(child.as_fd()).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
            rustix::fs::unlinkat(&parent, name.as_bytes(), AtFlags::REMOVEDIR)
        }
        other => other,
    }
}

/// Opens the directory that holds `path`, making what is missing.
fn make_parents(root: &OwnedFd, path: &TreePath) -> Result<(OwnedFd, Vec<u8>), Errno> {
    let (above, name) = path.split_last().ok_or(Errno::INVAL)?;
    let parent = match open_below(root, above.as_bytes(), DIR) {
        Err(Errno::NOENT) => {
            let (grand, last) = make_parents(root, &above)?;
            put_dir(&grand, &last, 0o755)?;
            rustix::fs::openat(&grand, &*last, DIR, Mode::empty())?
        }
        other => other?,
    };
    Ok((parent, name.as_bytes().to_vec()))
}

pub(crate) fn put_dir(parent: &OwnedFd, name: &[u8], mode: u32) -> Result<(), Errno> {
    match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e),
    }
    let fd = rustix::fs::openat(parent, name, DIR, Mode::empty())?;
    set_mode(fd.as_fd(), FileKind::Dir, mode)
}

/// A name in the root that nothing has.
fn temp_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{TEMP_PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn put_symlink(root: &OwnedFd, parent: &OwnedFd, name: &[u8], target: &[u8]) -> Result<(), Errno> {
    let temp = temp_name();
    rustix::fs::symlinkat(target, root, &*temp)?;
    rename_in(root, &temp, parent, name)
}

fn rename_in(root: &OwnedFd, temp: &str, parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    rustix::fs::renameat(root, temp, parent, name).inspect_err(|_| {
        let _ = rustix::fs::unlinkat(root, temp, AtFlags::empty());
    })
}

/// A complete file under a temporary name; removed unless it is put in place.
struct TempFile<'a> {
    root: &'a OwnedFd,
    name: Option<String>,
}

impl TempFile<'_> {
    fn place(mut self, parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        self.name.take().map_or(Ok(()), |temp| rename_in(self.root, &temp, parent, name))
    }
}

impl Drop for TempFile<'_> {
    fn drop(&mut self) {
        if let Some(temp) = &self.name {
            let _ = rustix::fs::unlinkat(self.root, &**temp, AtFlags::empty());
        }
    }
}

/// Makes a file under a temporary name and lets `fill` write it.
fn fill_file<E: From<io::Error>>(
    root: &OwnedFd,
    mode: u32,
    mtime: Option<FileTime>,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
) -> Result<TempFile<'_>, E> {
    let name = temp_name();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(root, &*name, flags, Mode::RUSR | Mode::WUSR).map_err(io::Error::from)?;
    let temp = TempFile { root, name: Some(name) };
    let mut out = BufWriter::with_capacity(128 * 1024, File::from(fd));
    fill(&mut out)?;
    out.flush()?;
    set_mode(out.get_ref().as_fd(), FileKind::File, mode).map_err(io::Error::from)?;
    if let Some(mtime) = mtime {
        rustix::fs::futimens(out.get_ref(), &times(mtime)).map_err(io::Error::from)?;
    }
    Ok(temp)
}

/// An error of writing or of reading history; the first needs its path put on.
enum BlobError {
    Io(io::Error),
    History(nas_history::HistoryError),
}

impl From<io::Error> for BlobError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

fn put_blob(
    root: &OwnedFd,
    dir: &Path,
    parent: &OwnedFd,
    name: &[u8],
    history: &History,
    new: &Entry,
    oid: Oid,
) -> Result<(), StoreError> {
    let fill = |out: &mut BufWriter<File>| history.copy_blob(oid, out).map(|_| ()).map_err(BlobError::History);
    let temp = fill_file(root, new.mode, new.mtime, fill).map_err(|e| match e {
        BlobError::Io(e) => StoreError::io("writing", dir)(e),
        BlobError::History(e) => StoreError::history("reading content")(e),
    })?;
    temp.place(parent, name).map_err(|e| StoreError::io("writing", dir)(e.into()))
}

/// What an import puts at a path.
pub enum Import<'a> {
    /// A regular file, read to its end.
    File(&'a mut dyn Read),
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
    /// A directory.
    Dir,
}

/// An import stopped: at the file system, or at a limit.
#[derive(Debug)]
pub(crate) enum ImportError {
    Io(io::Error),
    Refused(FsError),
}

impl From<io::Error> for ImportError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// An import of which only the last step is left.
pub(crate) struct Received<'a>(Ready<'a>);

enum Ready<'a> {
    File(TempFile<'a>),
    Symlink(Vec<u8>),
    Dir,
}

/// Takes in what is imported, beside the tree: this may take as long as its sender likes. `admit` is asked with the length so far.
pub(crate) fn receive<'a>(
    root: &'a OwnedFd,
    what: Import<'_>,
    mode: u32,
    admit: &mut dyn FnMut(u64) -> Result<(), FsError>,
) -> Result<Received<'a>, ImportError> {
    Ok(Received(match what {
        Import::Dir => Ready::Dir,
        Import::Symlink(target) => Ready::Symlink(target.to_vec()),
        Import::File(reader) => Ready::File(fill_file(root, mode, None, |out| {
            let mut buffer = vec![0; 128 * 1024];
            let mut size = 0u64;
            loop {
                let got = match reader.read(&mut buffer) {
                    Ok(0) => return Ok(()),
                    Ok(got) => got,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    Err(e) => return Err(ImportError::Io(e)),
                };
                size += got as u64;
                admit(size).map_err(ImportError::Refused)?;
                out.write_all(&buffer[..got])?;
            }
        })?),
    }))
}

/// Puts what was received in place and returns its inode and length.
pub(crate) fn place(
    root: &OwnedFd,
    path: &TreePath,
    received: Received<'_>,
    mode: u32,
    mtime: Option<FileTime>,
) -> io::Result<(u64, u64)> {
    let (parent, name) = make_parents(root, path)?;
    match received.0 {
        Ready::Dir => put_dir(&parent, &name, mode)?,
        Ready::Symlink(target) => put_symlink(root, &parent, &name, &target)?,
        Ready::File(temp) => temp.place(&parent, &name)?,
    }
    if let Some(mtime) = mtime {
        rustix::fs::utimensat(&parent, &*name, &times(mtime), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    let seen = rustix::fs::statx(&parent, &*name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
    Ok((seen.stx_ino, seen.stx_size))
}
