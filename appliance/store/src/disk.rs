//! A live directory read as a tree: entries for a commit, and the comparison with one after a crash.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use nas_history::{Edit, History, Put, Source};
use nas_types::fs::FileKind;
use nas_types::object::{Entry, EntryKind, Oid};
use nas_types::path::{Name, TreePath};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::live::DirtySet;
use crate::live::attr::{attr_of, file_time, kind_of};

pub(crate) const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
pub(crate) const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
pub(crate) const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const LINK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Names of files half written by [`crate::apply`], in the root of the directory. Removed when met after a crash;
/// clients can neither see nor make them.
pub(crate) const TEMP_PREFIX: &str = ".nas-incoming-";

/// Largest file that is hashed in memory while scanning.
const REHASH_BYTES_MAX: u64 = 64 << 20;

/// Opens a live directory for reading it as a tree.
pub(crate) fn open_root(dir: &Path) -> io::Result<Arc<OwnedFd>> {
    Ok(Arc::new(rustix::fs::openat(CWD, dir, DIR, Mode::empty())?))
}

pub(crate) fn open_below(root: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    loop {
        match rustix::fs::openat2(root, path, flags, Mode::empty(), BENEATH) {
            Err(Errno::INTR | Errno::AGAIN) => {}
            other => return other,
        }
    }
}

fn stat(fd: &OwnedFd) -> Result<Statx, Errno> {
    rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
}

/// How an entry on disk becomes an edit.
pub(crate) enum OnDisk {
    /// Put it, or remove it from the tree because it is gone.
    Edit(Edit),
    /// A FIFO or socket: lives on the branch only. The edit removes what was there before.
    NotKept(Edit),
}

/// The edit that brings the tree's entry at `path` to what is on disk. With `recheck`, reading fails when the file changes
/// meanwhile (no torn file enters history, DESIGN §3).
pub(crate) fn edit_of(root: &Arc<OwnedFd>, path: &TreePath, recheck: bool) -> Result<OnDisk, Errno> {
    let gone = || Edit::Remove { path: path.clone() };
    let fd = match open_below(root, path.as_bytes(), LINK) {
        Ok(fd) => fd,
        // Also when a directory above it became a file or a symlink.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(OnDisk::Edit(gone())),
        Err(e) => return Err(e),
    };
    let seen = stat(&fd)?;
    let Some(kind) = kind_of(&seen) else { return Ok(OnDisk::NotKept(gone())) };
    let mtime = Some(file_time(seen.stx_mtime));
    let put = match kind {
        FileKind::Fifo | FileKind::Socket => return Ok(OnDisk::NotKept(gone())),
        FileKind::Symlink => {
            let target = rustix::fs::readlinkat(&fd, "", Vec::new())?;
            Put::Symlink { mtime, source: Source::Bytes(target.into_bytes()) }
        }
        FileKind::Dir => Put::Dir { mode: client_mode(root, path, &seen)? },
        FileKind::File => {
            let mode = client_mode(root, path, &seen)?;
            let (root, below) = (Arc::clone(root), path.clone());
            let open = Box::new(move || open_content(&root, &below, recheck));
            Put::File { mode, mtime, source: Source::Open { size_hint: seen.stx_size, open } }
        }
    };
    Ok(OnDisk::Edit(Edit::Put { path: path.clone(), put }))
}

/// The mode as the client set it.
pub(crate) fn client_mode(root: &OwnedFd, path: &TreePath, seen: &Statx) -> Result<u32, Errno> {
    let mut failed = Errno::IO;
    let opened = attr_of(seen, || {
        let flags = if kind_of(seen) == Some(FileKind::Dir) { DIR } else { FILE };
        open_below(root, path.as_bytes(), flags).map_err(|e| {
            failed = e;
            crate::error::fs_error(e)
        })
    });
    opened.map(|attr| attr.mode).map_err(|_| failed)
}

fn open_content(root: &OwnedFd, path: &TreePath, recheck: bool) -> io::Result<(Box<dyn Read + Send>, u64)> {
    let fd = open_below(root, path.as_bytes(), FILE)?;
    let seen = stat(&fd)?;
    if kind_of(&seen) != Some(FileKind::File) {
        return Err(io::Error::other("it is no regular file any more"));
    }
    let file = File::from(fd);
    if recheck {
        Ok((Box::new(Rechecked { file, seen, done: false }), seen.stx_size))
    } else {
        Ok((Box::new(file), seen.stx_size))
    }
}

/// Reads a file that others may write to, and fails at its end if they did.
struct Rechecked {
    file: File,
    seen: Statx,
    done: bool,
}

impl Read for Rechecked {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read(into)?;
        if got == 0 && !into.is_empty() && !self.done {
            let now = rustix::fs::statx(&self.file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
            let key = |s: &Statx| {
                (s.stx_size, s.stx_mtime.tv_sec, s.stx_mtime.tv_nsec, s.stx_ctime.tv_sec, s.stx_ctime.tv_nsec)
            };
            if key(&now) != key(&self.seen) {
                return Err(io::Error::other("the file changed while it was read"));
            }
            self.done = true;
        }
        Ok(got)
    }
}

/// Compares a live directory with a commit by stat, after a crash: what differs in kind, size or mode, what is
/// missing on either side; a file whose ctime is not older than `since_ms`, or that is below such a directory, is read and
/// hashed. A directory that took another's place brings files along whose own ctime is old.
pub(crate) fn changed_since(dir: &Path, history: &History, commit: Oid, since_ms: i64) -> Result<DirtySet, StoreError> {
    let root = open_root(dir).map_err(StoreError::io("scanning", dir))?;
    let mut set = DirtySet::default();
    // The root itself is never moved: its ctime says nothing about what is below.
    let mut todo = vec![(TreePath::root(), false)];
    while let Some((path, moved)) = todo.pop() {
        let committed = history.list_dir(commit, &path).map_err(StoreError::history("reading a commit"))?;
        let committed: HashMap<Vec<u8>, Entry> = committed.unwrap_or_default().into_iter().collect();
        let below = scan_dir(&root, &path, committed, if moved { i64::MIN } else { since_ms }, &mut set);
        todo.extend(below.map_err(|e| StoreError::io("scanning", dir)(e.into()))?);
    }
    Ok(set)
}

fn scan_dir(
    root: &OwnedFd,
    path: &TreePath,
    mut committed: HashMap<Vec<u8>, Entry>,
    since_ms: i64,
    set: &mut DirtySet,
) -> Result<Vec<(TreePath, bool)>, Errno> {
    let fd = open_below(root, path.as_bytes(), DIR)?;
    let mut dirs = Vec::new();
    for entry in rustix::fs::Dir::read_from(&fd)? {
        let entry = entry?;
        let bytes = entry.file_name().to_bytes();
        let Ok(name) = Name::new(bytes) else { continue };
        if path.is_root() && bytes.starts_with(TEMP_PREFIX.as_bytes()) {
            let _ = rustix::fs::unlinkat(&fd, bytes, AtFlags::empty());
            continue;
        }
        let Ok(child) = path.join(name) else { continue };
        let seen = rustix::fs::statx(&fd, bytes, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
        let Some(kind) = kind_of(&seen) else { continue };
        if kind == FileKind::Dir {
            dirs.push((child.clone(), ctime_ms(&seen) >= since_ms));
        }
        let old = committed.remove(bytes);
        if differs(root, &child, kind, &seen, old, since_ms)? {
            set.paths.insert(child);
        }
    }
    // Missing on disk.
    for name in committed.keys() {
        if let Some(child) = Name::new(name).ok().and_then(|name| path.join(name).ok()) {
            set.paths.insert(child);
        }
    }
    Ok(dirs)
}

fn differs(
    root: &OwnedFd,
    path: &TreePath,
    kind: FileKind,
    seen: &Statx,
    old: Option<Entry>,
    since_ms: i64,
) -> Result<bool, Errno> {
    let Some(old) = old else { return Ok(!matches!(kind, FileKind::Fifo | FileKind::Socket)) };
    let recent = ctime_ms(seen) >= since_ms;
    Ok(match (kind, old.kind) {
        (FileKind::File, EntryKind::File) => {
            seen.stx_size != old.size
                || client_mode(root, path, seen)? != old.mode
                || (recent && !holds(root, path, seen.stx_size, old)?)
        }
        (FileKind::Symlink, EntryKind::Symlink) => recent || seen.stx_size != old.size,
        (FileKind::Dir, EntryKind::Dir) => client_mode(root, path, seen)? != old.mode,
        _ => true,
    })
}

fn ctime_ms(seen: &Statx) -> i64 {
    seen.stx_ctime.tv_sec.saturating_mul(1000).saturating_add(i64::from(seen.stx_ctime.tv_nsec / 1_000_000))
}

/// Does the file hold the committed content? Above [`REHASH_BYTES_MAX`] nobody looks: the next commit does.
fn holds(root: &OwnedFd, path: &TreePath, size: u64, old: Entry) -> Result<bool, Errno> {
    if size > REHASH_BYTES_MAX {
        return Ok(false);
    }
    let mut bytes = Vec::new();
    let read = File::from(open_below(root, path.as_bytes(), FILE)?).read_to_end(&mut bytes);
    read.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    Ok(nas_history::blob_id(&bytes).is_ok_and(|oid| Some(oid) == old.oid))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nas_history::CommitSpec;
    use nas_types::id::{LeaseId, RunId};
    use nas_types::object::Provenance;
    use nas_types::time::Timestamp;

    use super::*;

    fn p(text: &str) -> TreePath {
        TreePath::parse(text).unwrap()
    }

    /// Goal: two directories that changed places are found after a crash, though no file in them was touched.
    #[test]
    fn swapped_directories_are_found() {
        let temp = tempfile::TempDir::new().unwrap();
        let live = temp.path().join("live");
        let paths = ["/a", "/a/f", "/b", "/b/f"].map(p);
        for (dir, text) in [("a", "1"), ("b", "2")] {
            fs::create_dir_all(live.join(dir)).unwrap();
            fs::write(live.join(dir).join("f"), text).unwrap();
        }
        let history = History::open(&temp.path().join("history.git")).unwrap();
        let root = open_root(&live).unwrap();
        let edits = paths.iter().map(|path| match edit_of(&root, path, false).unwrap() {
            OnDisk::Edit(edit) | OnDisk::NotKept(edit) => edit,
        });
        let mut writer = history.writer().unwrap();
        let trees = writer.apply(None, edits.collect::<Vec<_>>()).unwrap();
        let provenance = Provenance {
            principal: "svc:store".into(),
            on_behalf_of: None,
            run: RunId::random(),
            lease: LeaseId::random(),
            purpose: None,
            read_manifest: None,
        };
        let spec = CommitSpec { parents: &[], trees, provenance: &provenance, message: "both", time: Timestamp(1_000) };
        let commit = writer.commit(&spec).unwrap();
        drop(writer.finish().unwrap());
        let ctime = |path: &Path| {
            let seen = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS).unwrap();
            ctime_ms(&seen)
        };
        let old = ["a", "a/f", "b", "b/f"].map(|path| ctime(&live.join(path))).into_iter().max().unwrap();
        // Until the clock of the file system has gone on.
        let since = loop {
            fs::write(temp.path().join("tick"), "").unwrap();
            let now = ctime(&temp.path().join("tick"));
            if now > old {
                break now;
            }
        };
        assert_eq!(changed_since(&live, &history, commit, since).unwrap(), DirtySet::default());
        fs::rename(live.join("a"), live.join("t")).unwrap();
        fs::rename(live.join("b"), live.join("a")).unwrap();
        fs::rename(live.join("t"), live.join("b")).unwrap();
        let found = changed_since(&live, &history, commit, since).unwrap();
        assert_eq!(found.paths, [p("/a/f"), p("/b/f")].into());
    }
}
