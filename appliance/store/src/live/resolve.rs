//! From a reference to a file, checked.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nas_types::fs::{Attr, Before, FileKind, FsError, Node, NodeId, NodeRef, Wcc};
use nas_types::path::{Name, TreePath};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx};
use rustix::io::Errno;

use super::nodes::At;
use super::{LiveDir, Located, STATX};
use crate::error::fs_error;
use crate::live::attr::{attr_of, kind_of};

pub(super) const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
pub(super) const OPEN_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
pub(super) const OPEN_FILE: OFlags =
    OFlags::NONBLOCK.union(OFlags::NOFOLLOW).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A file as found just now: an open directory, the name in it, and its statx.
pub(super) struct Found {
    pub(super) dir: Arc<OwnedFd>,
    pub(super) dir_ino: u64,
    /// Empty for the root.
    pub(super) name: Box<[u8]>,
    pub(super) stat: Statx,
    pub(super) id: NodeId,
    pub(super) kind: FileKind,
}

impl Found {
    pub(super) fn node(&self) -> NodeRef {
        NodeRef { id: self.id, parent_hint: self.dir_ino }
    }
}

impl LiveDir {
    /// Finds a file by reference.
    pub fn locate(&self, node: NodeRef) -> Result<Located, FsError> {
        let _names = self.tree.read();
        self.locate_held(node)
    }

    fn locate_held(&self, node: NodeRef) -> Result<Located, FsError> {
        let seen = self.moves.load(Ordering::Acquire);
        let found = self.find(node)?;
        let path = self.path_held(&found)?;
        Ok(Located { node: found.node(), path, attr: self.attr(&found)?, seen })
    }

    /// Finds a file by path. No symlink is followed.
    pub fn locate_path(&self, path: &TreePath) -> Result<Located, FsError> {
        let _names = self.tree.read();
        let mut at = self.locate_held(self.root())?;
        for part in path.components() {
            if at.attr.kind != FileKind::Dir {
                return Err(FsError::NotDir);
            }
            let name = Name::new(part).map_err(|_| FsError::Invalid)?;
            let dir = self.dir_fd(at.node.id)?;
            let child = self.child(&dir, at.node.id.ino, name)?;
            let path = at.path.join(name).map_err(|_| FsError::NameTooLong)?;
            at = Located { node: child.node(), path, attr: self.attr(&child)?, seen: at.seen };
        }
        Ok(at)
    }

    /// Present path of a node (one of them, when it has several names).
    pub fn path_of(&self, node: NodeRef) -> Result<TreePath, FsError> {
        let _names = self.tree.read();
        let found = self.find(node)?;
        self.path_held(&found)
    }

    /// All names of a file: its own path, or every one of them when it has several (then the branch may be walked).
    pub fn names_of(&self, node: NodeRef) -> Result<Vec<TreePath>, FsError> {
        let _names = self.tree.read();
        let found = self.find(node)?;
        if found.kind == FileKind::Dir || found.stat.stx_nlink <= 1 {
            return Ok(vec![self.path_held(&found)?]);
        }
        self.names_held(&found)
    }

    /// The paths that a change of what was found reaches: `path`, and its other names when it has several.
    pub(super) fn reached(&self, found: &Found, path: &TreePath) -> Result<Vec<TreePath>, FsError> {
        if found.kind == FileKind::Dir || found.stat.stx_nlink <= 1 {
            return Ok(vec![path.clone()]);
        }
        self.names_held(found)
    }

    /// All names of a file that has several, under the branch's lock.
    fn names_held(&self, found: &Found) -> Result<Vec<TreePath>, FsError> {
        let known = self.nodes.lock().links_of(found.id.ino);
        let mut names = self.verified_names(found.id, known)?;
        if (names.len() as u64) < u64::from(found.stat.stx_nlink) {
            let mut all = BTreeSet::new();
            self.walk(&mut |dir, name, ino| {
                if ino == found.id.ino {
                    all.insert((dir, Box::from(name)));
                }
            })?;
            names = self.verified_names(found.id, all.into_iter().collect())?;
            // Another name came or went meanwhile: the caller must not decide on a part of them.
            if names.len() as u64 != u64::from(self.find(found.node())?.stat.stx_nlink) {
                return Err(FsError::Later);
            }
        }
        Ok(names)
    }

    fn verified_names(&self, id: NodeId, names: Vec<At>) -> Result<Vec<TreePath>, FsError> {
        let mut paths = Vec::with_capacity(names.len());
        for (parent, name) in names {
            let Some(generation) = self.nodes.lock().dir_generation(parent) else { continue };
            let Ok(dir) = self.dir_fd(NodeId { ino: parent, generation }) else { continue };
            let legal = Name::new(&name).map_err(|_| FsError::Io)?;
            match self.child(&dir, parent, legal) {
                Ok(child) if child.id == id => {}
                Ok(_) | Err(FsError::NotFound) => continue,
                Err(e) => return Err(e),
            }
            if let Some(path) = self.nodes.lock().entry_path(parent, &name) {
                paths.push(path);
            }
        }
        Ok(paths)
    }

    /// The parent directory (LOOKUP of `..`); the root's is the root.
    pub fn parent(&self, at: &Located) -> Result<Node, FsError> {
        let _names = self.tree.read();
        let found = self.still_at(at)?;
        let generation = self.nodes.lock().dir_generation(found.dir_ino).ok_or(FsError::Stale)?;
        let parent = NodeRef { id: NodeId { ino: found.dir_ino, generation }, parent_hint: self.root_id.ino };
        let parent = self.find(parent)?;
        Ok(Node { node: parent.node(), attr: self.attr(&parent)? })
    }

    /// Finds `at` again and makes sure that it is where the caller decided about it, under no more names than it had then.
    /// Under the branch's lock.
    pub(super) fn still_at(&self, at: &Located) -> Result<Found, FsError> {
        let found = self.find(at.node)?;
        if found.kind != FileKind::Dir && found.stat.stx_nlink > at.attr.nlink {
            // It has a name that nobody decided about.
            return Err(FsError::Later);
        }
        if self.moves.load(Ordering::Acquire) != at.seen && self.path_held(&found)? != at.path {
            // It has another name now. If the old one is gone, decide again; a hard link's other name is as good.
            let same = self.nodes.lock().links_of(found.id.ino);
            if !self.verified_names(found.id, same)?.contains(&at.path) {
                return Err(FsError::Later);
            }
        }
        Ok(found)
    }

    pub(super) fn still_dir(&self, at: &Located) -> Result<(Found, Arc<OwnedFd>), FsError> {
        let found = self.still_at(at)?;
        if found.kind != FileKind::Dir {
            return Err(FsError::NotDir);
        }
        let fd = self.dir_fd(found.id)?;
        Ok((found, fd))
    }

    fn path_held(&self, found: &Found) -> Result<TreePath, FsError> {
        if found.id == self.root_id {
            return Ok(TreePath::root());
        }
        self.nodes.lock().entry_path(found.dir_ino, &found.name).ok_or(FsError::Stale)
    }

    /// Attributes of what was found.
    pub(super) fn attr(&self, found: &Found) -> Result<Attr, FsError> {
        attr_of(&found.stat, || self.open_any(found))
    }

    /// Attributes of what was found, taken anew, with what they were.
    pub(super) fn wcc(&self, found: &Found) -> Result<Wcc, FsError> {
        let before = Before {
            size: found.stat.stx_size,
            mtime: nas_types::time::FileTime { secs: found.stat.stx_mtime.tv_sec, nanos: found.stat.stx_mtime.tv_nsec },
            ctime: nas_types::time::FileTime { secs: found.stat.stx_ctime.tv_sec, nanos: found.stat.stx_ctime.tv_nsec },
        };
        let stat = if found.kind == FileKind::Dir {
            rustix::fs::statx(&*self.dir_fd(found.id)?, "", AtFlags::EMPTY_PATH, STATX).map_err(fs_error)?
        } else {
            rustix::fs::statx(&*found.dir, &*found.name, AtFlags::SYMLINK_NOFOLLOW, STATX).map_err(fs_error)?
        };
        let after = attr_of(&stat, || self.open_any(found))?;
        Ok(Wcc { before, after })
    }

    /// Opens a file or directory for reading its attributes.
    pub(super) fn open_any(&self, found: &Found) -> Result<Arc<OwnedFd>, FsError> {
        match found.kind {
            FileKind::Dir => self.dir_fd(found.id),
            FileKind::File => self.file_fd(found),
            _ => Err(FsError::Invalid),
        }
    }

    /// The open file, from the cache or opened by name and compared. Read-write when the directory is writable.
    pub(super) fn file_fd(&self, found: &Found) -> Result<Arc<OwnedFd>, FsError> {
        match found.kind {
            FileKind::File => {}
            FileKind::Dir => return Err(FsError::IsDir),
            _ => return Err(FsError::Invalid),
        }
        let key = (self.id, found.id);
        if let Some(fd) = self.shared.fds.get(&key) {
            return Ok(fd);
        }
        let access = if self.is_writable() { OFlags::RDWR } else { OFlags::RDONLY };
        let fd = self
            .shared
            .fds
            .retrying(|| rustix::fs::openat(&*found.dir, &*found.name, OPEN_FILE | access, Mode::empty()))?;
        let stat = rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, STATX).map_err(fs_error)?;
        // The name may have been replaced since it was looked up.
        let same = kind_of(&stat) == Some(FileKind::File)
            && stat.stx_ino == found.id.ino
            && self.shared.engine.generation_of(found.dir.as_fd(), &found.name, &stat) == found.id.generation;
        if same { Ok(self.shared.fds.put(key, fd)) } else { Err(FsError::Later) }
    }

    /// The open directory `id`, from the cache or opened from the root by its remembered path and compared. Where others write
    /// too it is opened in any case: one kept open could have been moved since, and its path is what leases are about.
    pub(super) fn dir_fd(&self, id: NodeId) -> Result<Arc<OwnedFd>, FsError> {
        if id == self.root_id {
            return Ok(Arc::clone(&self.root));
        }
        let key = (self.id, id);
        let may_have_moved = self.has_other_writers();
        if !may_have_moved && let Some(fd) = self.shared.fds.get(&key) {
            return Ok(fd);
        }
        let path = {
            let nodes = self.nodes.lock();
            if nodes.dir_generation(id.ino) != Some(id.generation) {
                return Err(FsError::Stale);
            }
            nodes.dir_path(id.ino).ok_or(FsError::Stale)?
        };
        let fd = self
            .shared
            .fds
            .retrying(|| rustix::fs::openat2(&*self.root, path.as_bytes(), OPEN_DIR, Mode::empty(), BENEATH))
            .map_err(|_| FsError::Stale)?;
        let stat = rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, STATX).map_err(fs_error)?;
        let generation = self.shared.engine.generation_of(fd.as_fd(), b"", &stat);
        if (NodeId { ino: stat.stx_ino, generation }) != id {
            return Err(FsError::Stale);
        }
        Ok(if may_have_moved { Arc::new(fd) } else { self.shared.fds.put(key, fd) })
    }

    /// The entry `name` of an open directory; remembered.
    pub(super) fn child(&self, dir: &Arc<OwnedFd>, dir_ino: u64, name: Name<'_>) -> Result<Found, FsError> {
        let name = name.as_bytes();
        let stat = rustix::fs::statx(&**dir, name, AtFlags::SYMLINK_NOFOLLOW, STATX).map_err(fs_error)?;
        let kind = kind_of(&stat).ok_or(FsError::NotFound)?;
        let generation = self.shared.engine.generation_of(dir.as_fd(), name, &stat);
        let id = NodeId { ino: stat.stx_ino, generation };
        self.remember(id, kind, stat.stx_nlink, dir_ino, name);
        Ok(Found { dir: Arc::clone(dir), dir_ino, name: name.into(), stat, id, kind })
    }

    pub(super) fn remember(&self, id: NodeId, kind: FileKind, nlink: u32, parent: u64, name: &[u8]) {
        let mut nodes = self.nodes.lock();
        if kind == FileKind::Dir {
            nodes.put_dir(id, parent, name);
        } else {
            nodes.put_file(id, nlink, parent, name);
        }
    }

    /// Finds a node by what is remembered, by its hint, by its last known parent, or by one walk.
    pub(super) fn find(&self, node: NodeRef) -> Result<Found, FsError> {
        if node.id == self.root_id {
            let stat = rustix::fs::statx(&*self.root, "", AtFlags::EMPTY_PATH, STATX).map_err(fs_error)?;
            return Ok(Found {
                dir: Arc::clone(&self.root),
                dir_ino: self.root_id.ino,
                name: Box::default(),
                stat,
                id: self.root_id,
                kind: FileKind::Dir,
            });
        }
        let remembered = self.nodes.lock().find(node.id);
        if let Some(at) = remembered {
            if let Some(found) = self.find_at(node.id, &at)? {
                return Ok(found);
            }
            self.nodes.lock().distrust(node.id);
            // It is not where we believed: whatever was decided about its path is to be looked at again.
            self.moves.fetch_add(1, Ordering::AcqRel);
        }
        let last_parent = self.nodes.lock().parent_of_file(node.id.ino);
        for parent in [last_parent, Some(node.parent_hint)].into_iter().flatten() {
            if let Some(found) = self.find_in(node.id, parent)? {
                return Ok(found);
            }
        }
        if !self.nodes.lock().walked {
            self.walk(&mut |_, _, _| {})?;
            self.nodes.lock().walked = true;
            let (remembered, parent) = {
                let mut nodes = self.nodes.lock();
                (nodes.find(node.id), nodes.parent_of_file(node.id.ino))
            };
            if let Some(at) = remembered
                && let Some(found) = self.find_at(node.id, &at)?
            {
                return Ok(found);
            }
            if let Some(parent) = parent
                && let Some(found) = self.find_in(node.id, parent)?
            {
                return Ok(found);
            }
        }
        Err(FsError::Stale)
    }

    /// Is `id` at this name?
    fn find_at(&self, id: NodeId, at: &At) -> Result<Option<Found>, FsError> {
        let Some(generation) = self.nodes.lock().dir_generation(at.0) else { return Ok(None) };
        let dir = match self.dir_fd(NodeId { ino: at.0, generation }) {
            Ok(dir) => dir,
            Err(FsError::Stale) => return Ok(None),
            Err(e) => return Err(e),
        };
        let name = Name::new(&at.1).map_err(|_| FsError::Io)?;
        match self.child(&dir, at.0, name) {
            Ok(found) if found.id == id => Ok(Some(found)),
            Ok(_) | Err(FsError::NotFound) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Searches one directory for `id`.
    fn find_in(&self, id: NodeId, dir_ino: u64) -> Result<Option<Found>, FsError> {
        let Some(generation) = self.nodes.lock().dir_generation(dir_ino) else { return Ok(None) };
        let dir = match self.dir_fd(NodeId { ino: dir_ino, generation }) {
            Ok(dir) => dir,
            Err(FsError::Stale) => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut names = Vec::new();
        self.scan(&dir, 0, &mut |entry| {
            if entry.ino == id.ino {
                names.push(Box::<[u8]>::from(entry.name));
            }
            true
        })?;
        for name in names {
            if let Some(found) = self.find_at(id, &(dir_ino, name))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Visits every entry below the root as (directory inode, name, inode), and remembers all directories.
    fn walk(&self, visit: &mut dyn FnMut(u64, &[u8], u64)) -> Result<(), FsError> {
        let mut todo = vec![self.root_id];
        while let Some(dir_id) = todo.pop() {
            let dir = match self.dir_fd(dir_id) {
                Ok(dir) => dir,
                // Removed while walking.
                Err(FsError::Stale | FsError::NotFound) => continue,
                Err(e) => return Err(e),
            };
            let mut dirs = Vec::new();
            self.scan(&dir, 0, &mut |entry| {
                visit(dir_id.ino, entry.name, entry.ino);
                if entry.is_dir {
                    dirs.push(Box::<[u8]>::from(entry.name));
                } else {
                    self.nodes.lock().note_parent(entry.ino, dir_id.ino);
                }
                true
            })?;
            for name in dirs {
                let name = Name::new(&name).map_err(|_| FsError::Io)?;
                match self.child(&dir, dir_id.ino, name) {
                    Ok(child) if child.kind == FileKind::Dir => todo.push(child.id),
                    Ok(_) | Err(FsError::NotFound) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }

    /// A statx by open directory and name, without remembering.
    pub(super) fn stat_child(&self, dir: &OwnedFd, name: &[u8]) -> Result<Option<Statx>, FsError> {
        match rustix::fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, STATX) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(fs_error(e)),
        }
    }
}
