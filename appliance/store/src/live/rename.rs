//! RENAME.

use std::sync::atomic::Ordering;

use nas_types::fs::{FileKind, FsError, Node, NodeId, Wcc};
use nas_types::path::Name;
use rustix::io::Errno;

use super::names::child_path;
use super::{LiveDir, Located};
use crate::error::fs_error;

/// What RENAME did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renamed {
    /// The file that was moved, with its attributes.
    pub node: Node,
    /// The file that was replaced, if any.
    pub replaced: Option<Node>,
    /// Attributes of the directory it left.
    pub from_dir: Wcc,
    /// Attributes of the directory it came to.
    pub to_dir: Wcc,
}

impl LiveDir {
    /// Moves `from_name` of one directory to `to_name` of another (or the same), replacing what is there
    /// as RFC 1813 §3.3.14 allows: a file by a file, an empty directory by a directory.
    pub fn rename(
        &self,
        from: &Located,
        from_name: Name<'_>,
        to: &Located,
        to_name: Name<'_>,
    ) -> Result<Renamed, FsError> {
        self.rename_any(from, from_name, None, to, to_name)
    }

    /// Like [`rename`](Self::rename), for who decided about the file `known`: when another has its name by now, nothing happens,
    /// and the answer is [`FsError::Later`].
    pub fn rename_known(
        &self,
        from: &Located,
        from_name: Name<'_>,
        known: NodeId,
        to: &Located,
        to_name: Name<'_>,
    ) -> Result<Renamed, FsError> {
        self.rename_any(from, from_name, Some(known), to, to_name)
    }

    fn rename_any(
        &self,
        from: &Located,
        from_name: Name<'_>,
        known: Option<NodeId>,
        to: &Located,
        to_name: Name<'_>,
    ) -> Result<Renamed, FsError> {
        let (names, journal) = self.change_alone()?;
        let (from_dir, from_fd) = self.still_dir(from)?;
        let (to_dir, to_fd) = self.still_dir(to)?;
        let moved = self.child(&from_fd, from_dir.id.ino, from_name)?;
        if known.is_some_and(|known| known != moved.id) {
            return Err(FsError::Later);
        }
        let replaced = match self.child(&to_fd, to_dir.id.ino, to_name) {
            Ok(found) => Some(found),
            Err(FsError::NotFound) => None,
            Err(e) => return Err(e),
        };
        let mut node = Node { node: moved.node(), attr: self.attr(&moved)? };
        let replaced_node = match &replaced {
            Some(found) => Some(Node { node: found.node(), attr: self.attr(found)? }),
            None => None,
        };
        let (from_path, to_path) = (child_path(from, from_name)?, child_path(to, to_name)?);
        let same_file = replaced.as_ref().is_some_and(|r| r.id == moved.id);
        if same_file {
            // Two names of one file: nothing happens (RFC 1813 §3.3.14).
            let (from_dir, to_dir) = (self.wcc(&from_dir)?, self.wcc(&to_dir)?);
            return Ok(Renamed { node, replaced: None, from_dir, to_dir });
        }
        if moved.kind == FileKind::Dir && self.nodes.lock().is_below(to_dir.id.ino, moved.id.ino) {
            return Err(FsError::Invalid);
        }
        match (moved.kind == FileKind::Dir, replaced.as_ref().map(|r| r.kind == FileKind::Dir)) {
            (true, Some(false)) => return Err(FsError::NotDir),
            (false, Some(true)) => return Err(FsError::IsDir),
            _ => {}
        }
        self.shared.space.admit(1)?;
        let act = || rustix::fs::renameat(&*from_fd, from_name.as_bytes(), &*to_fd, to_name.as_bytes());
        match act() {
            Err(Errno::NOSPC) => {
                self.shared.space.settle();
                act().map_err(fs_error)?;
            }
            other => other.map_err(fs_error)?,
        }
        self.moves.fetch_add(1, Ordering::AcqRel);
        if let Some(gone) = &replaced {
            self.nodes.lock().remove_name(gone.id.ino, gone.dir_ino, &gone.name);
            if gone.kind == FileKind::Dir || gone.stat.stx_nlink <= 1 {
                self.shared.fds.forget(&(self.id, gone.id));
                self.usage.release(gone.id.ino);
            }
        }
        {
            let mut nodes = self.nodes.lock();
            if moved.kind != FileKind::Dir {
                nodes.remove_name(moved.id.ino, moved.dir_ino, &moved.name);
            }
        }
        self.remember(moved.id, moved.kind, moved.stat.stx_nlink, to_dir.id.ino, to_name.as_bytes());
        node.node.parent_hint = to_dir.id.ino;
        journal.renamed(&from_path, &to_path);
        let renamed =
            Renamed { node, replaced: replaced_node, from_dir: self.wcc(&from_dir)?, to_dir: self.wcc(&to_dir)? };
        drop(names);
        if from_dir.id == to_dir.id {
            self.sync_names([&to_fd])?
        } else {
            self.sync_names([&to_fd, &from_fd])?
        }
        Ok(renamed)
    }
}
