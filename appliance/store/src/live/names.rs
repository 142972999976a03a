//! LOOKUP, and the operations that make or remove one name: CREATE, MKDIR, SYMLINK, MKNOD, LINK, REMOVE, RMDIR.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nas_types::fs::{CreateHow, FileKind, FsError, Made, Node, SetAttr, Special, Wcc};
use nas_types::path::{Name, TreePath};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use super::resolve::{Found, OPEN_FILE};
use super::{LiveDir, Located};
use crate::disk::TEMP_PREFIX;
use crate::error::fs_error;
use crate::live::attr::{VERIFIER_XATTR, check_mode};

/// What CREATE did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// The file and its directory.
    pub made: Made,
    /// It was made now: not opened, and not a retransmission.
    pub new: bool,
}

/// What REMOVE or RMDIR did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// What the name led to.
    pub node: Node,
    /// Attributes of the directory around it.
    pub dir: Wcc,
}

/// Bytes of metadata that a new name may take, for the reserve.
const NAME_COST: u64 = 4096;

impl LiveDir {
    /// The entry `name` of a directory.
    pub fn lookup(&self, at: &Located, name: Name<'_>) -> Result<Node, FsError> {
        let _names = self.tree.read();
        let (dir, fd) = self.still_dir(at)?;
        if is_hidden(at, name.as_bytes()) {
            return Err(FsError::NotFound);
        }
        let child = self.child(&fd, dir.id.ino, name)?;
        Ok(Node { node: child.node(), attr: self.attr(&child)? })
    }

    /// Makes or opens a regular file (RFC 1813 §3.3.8).
    pub fn create(&self, at: &Located, name: Name<'_>, how: CreateHow) -> Result<Created, FsError> {
        let (names, _) = self.change()?;
        let (dir, fd) = self.still_dir(at)?;
        let path = child_path(at, name)?;
        let (set, verifier) = match how {
            CreateHow::Unchecked(set) | CreateHow::Guarded(set) => (set, None),
            CreateHow::Exclusive(verifier) => (SetAttr::default(), Some(verifier)),
        };
        let mode = set.mode.map_or(Ok(0o644), check_mode)?;
        if self.stat_child(&fd, name.as_bytes())?.is_some() {
            return self.create_existing(&dir, &fd, name, path, how);
        }
        self.usage.check_file()?;
        self.shared.space.admit(NAME_COST)?;
        let flags = OPEN_FILE | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let file = match self
            .shared
            .fds
            .retrying(|| rustix::fs::openat(&*fd, name.as_bytes(), flags, Mode::from_raw_mode(0o600)))
        {
            Err(FsError::Exists) => return self.create_existing(&dir, &fd, name, path, how),
            other => other?,
        };
        if let Some(verifier) = verifier
            && let Err(e) = rustix::fs::fsetxattr(&file, VERIFIER_XATTR, &verifier, XattrFlags::empty())
        {
            let _ = rustix::fs::unlinkat(&*fd, name.as_bytes(), AtFlags::empty());
            return Err(fs_error(e));
        }
        let child = self.made(&dir, &fd, name, path, &SetAttr { mode: Some(mode), ..set })?;
        let file = self.shared.fds.put((self.id, child.id), file);
        let made = Made { node: self.node_now(&child)?, dir: self.wcc(&dir)? };
        drop(names);
        if verifier.is_some() || set.size.is_some() {
            self.sync_fd(&file)?;
        }
        self.sync_names([&fd])?;
        Ok(Created { made, new: true })
    }

    /// CREATE of a name that is there.
    fn create_existing(
        &self,
        dir: &Found,
        fd: &Arc<OwnedFd>,
        name: Name<'_>,
        path: TreePath,
        how: CreateHow,
    ) -> Result<Created, FsError> {
        let journal = self.journal.as_ref().ok_or(FsError::ReadOnly)?;
        let child = self.child(fd, dir.id.ino, name)?;
        match how {
            CreateHow::Guarded(_) => return Err(FsError::Exists),
            CreateHow::Unchecked(set) => match child.kind {
                FileKind::File => {
                    // Only the length: the other attributes are those of a file made anew.
                    let set = SetAttr { size: set.size, ..SetAttr::default() };
                    if set.size.is_some() {
                        journal.changed(self.reached(&child, &path)?);
                    }
                    self.apply(&child, &set)?;
                }
                FileKind::Dir => return Err(FsError::IsDir),
                _ => return Err(FsError::Exists),
            },
            CreateHow::Exclusive(verifier) => {
                let mut stored = [0; 8];
                let same = child.kind == FileKind::File
                    && rustix::fs::fgetxattr(&*self.file_fd(&child)?, VERIFIER_XATTR, &mut stored)
                        .is_ok_and(|n| n == 8)
                    && stored == verifier;
                if !same {
                    return Err(FsError::Exists);
                }
            }
        }
        Ok(Created { made: Made { node: self.node_now(&child)?, dir: self.wcc(dir)? }, new: false })
    }

    /// Makes a directory.
    pub fn mkdir(&self, at: &Located, name: Name<'_>, set: &SetAttr) -> Result<Made, FsError> {
        let mode = set.mode.map_or(Ok(0o755), check_mode)?;
        let set = SetAttr { mode: Some(mode), size: None, ..*set };
        self.make(at, name, &set, |dir, name| rustix::fs::mkdirat(dir, name, Mode::RWXU))
    }

    /// Makes a symbolic link. The target is stored as it is, and never followed by the server.
    pub fn symlink(&self, at: &Located, name: Name<'_>, target: &[u8], set: &SetAttr) -> Result<Made, FsError> {
        if target.is_empty() || target.contains(&0) {
            return Err(FsError::Invalid);
        }
        if target.len() >= nas_types::path::PATH_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        let set = SetAttr { mode: None, size: None, ..*set };
        self.make(at, name, &set, |dir, name| rustix::fs::symlinkat(target, dir, name))
    }

    /// Makes a FIFO or a socket. It is never opened by the server and not kept in history.
    pub fn mknod(&self, at: &Located, name: Name<'_>, special: Special, set: &SetAttr) -> Result<Made, FsError> {
        let mode = set.mode.map_or(Ok(0o644), check_mode)?;
        let kind = match special {
            Special::Fifo => FileType::Fifo,
            Special::Socket => FileType::Socket,
        };
        let set = SetAttr { mode: Some(mode), size: None, ..*set };
        self.make(at, name, &set, |dir, name| rustix::fs::mknodat(dir, name, kind, Mode::from_raw_mode(mode), 0))
    }

    fn make(
        &self,
        at: &Located,
        name: Name<'_>,
        set: &SetAttr,
        act: impl Fn(&OwnedFd, &[u8]) -> Result<(), Errno>,
    ) -> Result<Made, FsError> {
        let (names, _) = self.change()?;
        let (dir, fd) = self.still_dir(at)?;
        let path = child_path(at, name)?;
        if self.stat_child(&fd, name.as_bytes())?.is_some() {
            return Err(FsError::Exists);
        }
        self.usage.check_file()?;
        self.shared.space.admit(NAME_COST)?;
        act(&fd, name.as_bytes()).map_err(fs_error)?;
        let child = self.made(&dir, &fd, name, path, set)?;
        let made = Made { node: self.node_now(&child)?, dir: self.wcc(&dir)? };
        drop(names);
        self.sync_names([&fd])?;
        Ok(made)
    }

    /// Counts, notes and dresses a file made just now. What the quota refuses is removed again.
    fn made(
        &self,
        dir: &Found,
        fd: &Arc<OwnedFd>,
        name: Name<'_>,
        path: TreePath,
        set: &SetAttr,
    ) -> Result<Found, FsError> {
        let journal = self.journal.as_ref().ok_or(FsError::ReadOnly)?;
        journal.changed([path]);
        let child = self.child(fd, dir.id.ino, name)?;
        let dressed = self.usage.charge(child.id.ino, child.stat.stx_size).and_then(|()| self.apply(&child, set));
        if let Err(e) = dressed {
            let flags = if child.kind == FileKind::Dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            if rustix::fs::unlinkat(&**fd, name.as_bytes(), flags).is_ok() {
                self.forget_name(&child, true);
            }
            return Err(e);
        }
        Ok(child)
    }

    /// A found file with its attributes of now.
    fn node_now(&self, found: &Found) -> Result<Node, FsError> {
        Ok(Node { node: found.node(), attr: self.wcc(found)?.after })
    }

    fn forget_name(&self, found: &Found, last: bool) {
        self.moves.fetch_add(1, Ordering::AcqRel);
        self.nodes.lock().remove_name(found.id.ino, found.dir_ino, &found.name);
        if last {
            self.shared.fds.forget(&(self.id, found.id));
            self.usage.release(found.id.ino);
        }
    }

    /// Gives a file one more name (LINK). Who calls has checked both ends; a name that came since then is one more to check.
    pub fn link(&self, file: &Located, at: &Located, name: Name<'_>) -> Result<(Wcc, Wcc), FsError> {
        // Alone: no name comes between an act on a file and the check that it has no more than were decided about.
        let (names, journal) = self.change_alone()?;
        let found = self.still_at(file)?;
        let (dir, fd) = self.still_dir(at)?;
        if found.kind == FileKind::Dir {
            return Err(FsError::IsDir);
        }
        let path = child_path(at, name)?;
        self.shared.space.admit(NAME_COST)?;
        rustix::fs::linkat(&*found.dir, &*found.name, &*fd, name.as_bytes(), AtFlags::empty()).map_err(fs_error)?;
        journal.changed([path]);
        // Both names are known from now on.
        self.remember(found.id, found.kind, found.stat.stx_nlink + 1, found.dir_ino, &found.name);
        // Another client may have taken the new name away again by now; the link was made all the same.
        match self.child(&fd, dir.id.ino, name) {
            Ok(_) | Err(FsError::NotFound) => {}
            Err(e) => return Err(e),
        }
        let both = (self.wcc(&found)?, self.wcc(&dir)?);
        drop(names);
        self.sync_names([&fd])?;
        Ok(both)
    }

    /// Removes a name that is not a directory's (REMOVE).
    pub fn remove(&self, at: &Located, name: Name<'_>) -> Result<Removed, FsError> {
        let (names, journal) = self.change()?;
        let (dir, fd) = self.still_dir(at)?;
        let child = self.child(&fd, dir.id.ino, name)?;
        if child.kind == FileKind::Dir {
            return Err(FsError::IsDir);
        }
        let node = Node { node: child.node(), attr: self.attr(&child)? };
        let path = child_path(at, name)?;
        self.unlink(&fd, name, &child)?;
        self.forget_name(&child, child.stat.stx_nlink <= 1);
        journal.changed([path]);
        let removed = Removed { node, dir: self.wcc(&dir)? };
        drop(names);
        self.sync_names([&fd])?;
        Ok(removed)
    }

    /// Unlinks, also on a full file system, where it may need space first (FINDINGS §1).
    pub(super) fn unlink(&self, dir: &OwnedFd, name: Name<'_>, child: &Found) -> Result<(), FsError> {
        match rustix::fs::unlinkat(dir, name.as_bytes(), AtFlags::empty()) {
            Err(Errno::NOSPC) => {}
            other => return other.map_err(fs_error),
        }
        if child.kind == FileKind::File && child.stat.stx_nlink <= 1 {
            // Its last name is going anyway: its bytes go first, in place.
            rustix::fs::ftruncate(&*self.file_fd(child)?, 0).map_err(fs_error)?;
        }
        self.shared.space.settle();
        rustix::fs::unlinkat(dir, name.as_bytes(), AtFlags::empty()).map_err(fs_error)
    }

    /// Removes an empty directory (RMDIR).
    pub fn rmdir(&self, at: &Located, name: Name<'_>) -> Result<Removed, FsError> {
        let (names, journal) = self.change_alone()?;
        let (dir, fd) = self.still_dir(at)?;
        let child = self.child(&fd, dir.id.ino, name)?;
        if child.kind != FileKind::Dir {
            return Err(FsError::NotDir);
        }
        let node = Node { node: child.node(), attr: self.attr(&child)? };
        let path = child_path(at, name)?;
        match rustix::fs::unlinkat(&*fd, name.as_bytes(), AtFlags::REMOVEDIR) {
            Err(Errno::NOSPC) => {
                self.shared.space.settle();
                rustix::fs::unlinkat(&*fd, name.as_bytes(), AtFlags::REMOVEDIR).map_err(fs_error)?;
            }
            other => other.map_err(fs_error)?,
        }
        self.forget_name(&child, true);
        journal.changed([path]);
        let removed = Removed { node, dir: self.wcc(&dir)? };
        drop(names);
        self.sync_names([&fd])?;
        Ok(removed)
    }
}

/// A name in the root that is ours: a file being received.
pub(super) fn is_incoming(name: &[u8]) -> bool {
    name.starts_with(TEMP_PREFIX.as_bytes())
}

/// Is this child of a located directory a file being received? To a client it is not there.
pub(super) fn is_hidden(at: &Located, name: &[u8]) -> bool {
    at.path.is_root() && is_incoming(name)
}

/// Path of a child of a located directory, for a change of it.
pub(super) fn child_path(at: &Located, name: Name<'_>) -> Result<TreePath, FsError> {
    if is_hidden(at, name.as_bytes()) {
        return Err(FsError::Access);
    }
    at.path.join(name).map_err(|_| FsError::NameTooLong)
}
