//! LOOKUP and READDIR.

use nas_trust_core::Visibility;
use nas_types::fs::{Attr, DirEntry, FileKind, FsError, Listing, Node, NodeRef};
use nas_types::lease::Action;

use super::{Mounted, legal};

impl Mounted {
    /// LOOKUP. `..` at the root of the mount is the root itself.
    pub fn lookup(&self, dir: NodeRef, name: &[u8]) -> Result<Node, FsError> {
        self.reading(Action::List)?;
        if self.is_virtual(dir) {
            return self.virtual_lookup(dir, name);
        }
        self.with_at(dir, |live, at, _| {
            if at.attr.kind != FileKind::Dir {
                return Err(FsError::NotDir);
            }
            match name {
                b"." => return Ok(Node { node: at.node, attr: self.shown(at.attr, &at.path) }),
                b".." if dir.id == self.root.id => {
                    return Ok(Node { node: at.node, attr: self.shown(at.attr, &at.path) });
                }
                b".." => {
                    let parent = live.parent(at)?;
                    let path = at.path.split_last().map(|(path, _)| path).unwrap_or_default();
                    return Ok(Node { attr: self.shown(parent.attr, &path), ..parent });
                }
                _ => {}
            }
            // Nothing has a name that none may have.
            match legal(name) {
                Err(FsError::Invalid) => return Err(FsError::NotFound),
                other => drop(other?),
            }
            if let Some(node) = self.overlaid(live, at, name)? {
                return Ok(node);
            }
            let path = Self::child(at, name)?;
            let found = live.lookup(at, legal(name)?);
            if self.lease.paths.visibility(&path) == Visibility::Hidden {
                if found.is_ok() {
                    self.refuse("lease-path", &path);
                }
                return Err(FsError::NotFound);
            }
            found.map(|node| Node { attr: self.shown(node.attr, &path), ..node })
        })
    }

    /// READDIR and READDIRPLUS from after `cookie` (0: the start), at most `entries_max` entries, with nodes when `plus`.
    /// Names outside the lease are not in it (SPEC MOUNT-3).
    pub fn readdir(
        &self,
        dir: NodeRef,
        cookie: u64,
        entries_max: usize,
        plus: bool,
    ) -> Result<(Listing, Attr), FsError> {
        self.reading(Action::List)?;
        if self.is_virtual(dir) {
            return self.virtual_readdir(dir, cookie, plus);
        }
        self.with_at(dir, |live, at, _| {
            let all = self.lease.paths.covers(&at.path);
            let mut visible = |name: &[u8]| all || self.lease.paths.child_visible(at.path.as_bytes(), name);
            let mut listing = live.readdir(at, cookie, entries_max, plus, &mut visible)?;
            if !all {
                listing.entries.iter_mut().for_each(|entry| self.show_entry(at, entry));
            }
            Ok((listing, self.shown(at.attr, &at.path)))
        })
    }

    fn show_entry(&self, at: &nas_store::Located, entry: &mut DirEntry) {
        if let (Some(node), Ok(path)) = (&mut entry.node, Self::child(at, &entry.name)) {
            node.attr = self.shown(node.attr, &path);
        }
    }

    /// `fileid` of the parent for the `..` entry (the root's is its own).
    pub fn parent_fileid(&self, dir: NodeRef) -> Result<u64, FsError> {
        if dir.id == self.root.id || self.is_virtual(dir) {
            return Ok(self.root.id.ino);
        }
        self.with_at(dir, |live, at, _| Ok(live.parent(at)?.attr.fileid))
    }
}
