//! Verbs that make, remove and move names. A change needs the lease at every path it touches.

use nas_store::{LiveDir, Located};
use nas_trust_core::Visibility;
use nas_types::fs::{Attr, CreateHow, FileKind, FsError, Made, NodeRef, SetAttr, Special, Wcc};
use nas_types::path::{Name, TreePath};

use super::{Mounted, legal};

impl Mounted {
    /// CREATE.
    pub fn create(&self, dir: NodeRef, name: &[u8], how: CreateHow) -> Result<Made, FsError> {
        self.make(dir, name, |live, at, legal_name| {
            // An existing file is opened, perhaps cut: then its other names count too.
            if let (CreateHow::Unchecked(_), Ok(node)) = (how, live.lookup(at, legal_name))
                && node.attr.kind == FileKind::File
                && node.attr.nlink > 1
            {
                self.may_change_file(live, &live.locate(node.node)?)?;
            }
            live.create(at, legal_name, how).map(|created| created.made)
        })
    }

    /// MKDIR.
    pub fn mkdir(&self, dir: NodeRef, name: &[u8], set: SetAttr) -> Result<Made, FsError> {
        self.make(dir, name, |live, at, name| live.mkdir(at, name, &set))
    }

    /// SYMLINK. The target is stored as it is.
    pub fn symlink(&self, dir: NodeRef, name: &[u8], target: &[u8], set: SetAttr) -> Result<Made, FsError> {
        self.make(dir, name, |live, at, name| live.symlink(at, name, target, &set))
    }

    /// MKNOD of a pipe or socket. They live on the branch only.
    pub fn mknod(&self, dir: NodeRef, name: &[u8], special: Special, set: SetAttr) -> Result<Made, FsError> {
        self.make(dir, name, |live, at, name| live.mknod(at, name, special, &set))
    }

    fn make(
        &self,
        dir: NodeRef,
        name: &[u8],
        act: impl Fn(&LiveDir, &Located, Name<'_>) -> Result<Made, FsError>,
    ) -> Result<Made, FsError> {
        self.changing(dir)?;
        if self.is_virtual(dir) {
            return Err(FsError::Access);
        }
        self.with_at(dir, |live, at, _| {
            let path = Self::child(at, name)?;
            self.not_reserved(at, name)?;
            self.may_make(live, at, name, &path)?;
            let made = act(live, at, legal(name)?)?;
            Ok(Made { node: made.node, dir: self.shown_wcc(made.dir, &at.path) })
        })
    }

    /// A visible directory on the way exists already; anything else outside the lease is refused and recorded, whether
    /// the name is taken by something hidden or not (DESIGN §5).
    fn may_make(&self, live: &LiveDir, at: &Located, name: &[u8], path: &TreePath) -> Result<(), FsError> {
        if self.lease.paths.visibility(path) == Visibility::Ancestor && live.lookup(at, legal(name)?).is_ok() {
            return Err(FsError::Exists);
        }
        self.may_change(path)
    }

    /// REMOVE.
    pub fn remove(&self, dir: NodeRef, name: &[u8]) -> Result<Wcc, FsError> {
        self.unmake(dir, name, |live, at, name| live.remove(at, name))
    }

    /// RMDIR.
    pub fn rmdir(&self, dir: NodeRef, name: &[u8]) -> Result<Wcc, FsError> {
        self.unmake(dir, name, |live, at, name| live.rmdir(at, name))
    }

    fn unmake(
        &self,
        dir: NodeRef,
        name: &[u8],
        act: impl Fn(&LiveDir, &Located, Name<'_>) -> Result<nas_store::Removed, FsError>,
    ) -> Result<Wcc, FsError> {
        self.changing(dir)?;
        if self.is_virtual(dir) {
            return Err(FsError::Access);
        }
        self.with_at(dir, |live, at, _| {
            let path = Self::child(at, name)?;
            self.not_reserved(at, name)?;
            self.may_take(&path)?;
            let removed = act(live, at, legal(name)?)?;
            Ok(self.shown_wcc(removed.dir, &at.path))
        })
    }

    /// What is hidden does not exist; what is visible and outside the lease is refused.
    fn may_take(&self, path: &TreePath) -> Result<(), FsError> {
        if self.lease.paths.visibility(path) == Visibility::Hidden {
            self.refuse("lease-path", path);
            return Err(FsError::NotFound);
        }
        self.may_change(path)
    }

    /// RENAME: what it did to the two directories. A directory moves with all that is in it, so the lease must hold
    /// everything below both of its paths.
    pub fn rename(&self, from: NodeRef, name: &[u8], to: NodeRef, to_name: &[u8]) -> Result<(Wcc, Wcc), FsError> {
        self.changing(from)?;
        if self.is_virtual(from) || self.is_virtual(to) {
            return Err(FsError::Access);
        }
        self.with_at(from, |live, at, _| {
            let (to_at, _) = self.at(live, to)?;
            let (path, to_path) = (Self::child(at, name)?, Self::child(&to_at, to_name)?);
            self.not_reserved(at, name)?;
            self.not_reserved(&to_at, to_name)?;
            self.may_take(&path)?;
            self.may_change(&to_path)?;
            let moved = live.lookup(at, legal(name)?)?;
            if moved.attr.kind == FileKind::Dir {
                for end in [&path, &to_path] {
                    if !self.lease.paths.covers(end) {
                        return Err(self.refuse("lease-path", end));
                    }
                }
            }
            let renamed = live.rename_known(at, legal(name)?, moved.node.id, &to_at, legal(to_name)?)?;
            Ok((self.shown_wcc(renamed.from_dir, &at.path), self.shown_wcc(renamed.to_dir, &to_at.path)))
        })
    }

    /// LINK: the file after it, and the directory. Needs the lease at every name the file has and at the new one.
    pub fn link(&self, node: NodeRef, dir: NodeRef, name: &[u8]) -> Result<(Attr, Wcc), FsError> {
        self.changing(node)?;
        if self.is_virtual(node) || self.is_virtual(dir) {
            return Err(FsError::Access);
        }
        self.with_at(node, |live, at, _| {
            let (dir_at, _) = self.at(live, dir)?;
            let path = Self::child(&dir_at, name)?;
            self.not_reserved(&dir_at, name)?;
            self.may_change_file(live, at)?;
            self.may_make(live, &dir_at, name, &path)?;
            let (file, dir) = live.link(at, &dir_at, legal(name)?)?;
            Ok((file.after, self.shown_wcc(dir, &dir_at.path)))
        })
    }
}
