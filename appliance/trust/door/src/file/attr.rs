//! GETATTR, SETATTR, ACCESS, FSSTAT.

use nas_trust_core::Visibility;
use nas_types::fs::{Attr, FileKind, FsError, NodeRef, SetAttr, Space, Wcc};
use nas_types::lease::{Action, View};
use nas_types::path::TreePath;
use nas_types::time::FileTime;

use super::Mounted;

/// Bits of ACCESS (RFC 1813 §3.3.4).
mod bit {
    pub(super) const READ: u32 = 0x01;
    pub(super) const LOOKUP: u32 = 0x02;
    pub(super) const MODIFY: u32 = 0x04;
    pub(super) const EXTEND: u32 = 0x08;
    pub(super) const DELETE: u32 = 0x10;
    pub(super) const EXECUTE: u32 = 0x20;
}

impl Mounted {
    /// GETATTR.
    pub fn getattr(&self, node: NodeRef) -> Result<Attr, FsError> {
        self.reading(Action::List)?;
        if self.is_virtual(node) {
            return self.virtual_attr(node);
        }
        self.with_at(node, |_, at, _| Ok(self.shown(at.attr, &at.path)))
    }

    /// SETATTR; `guard` is the ctime the client expects.
    pub fn setattr(&self, node: NodeRef, set: SetAttr, guard: Option<FileTime>) -> Result<Wcc, FsError> {
        self.changing(node)?;
        if self.is_virtual(node) {
            return Err(FsError::Access);
        }
        self.with_at(node, |live, at, _| {
            self.may_change_file(live, at)?;
            live.setattr(at, &set, guard)
        })
    }

    /// ACCESS: the subset of the bits in `wanted` that is allowed.
    ///
    /// The client's mode counts as it would for the file's owner, so that tools which look before they write get the
    /// answer they expect; for uid 0 it does not count, as on a local disk.
    pub fn access(&self, node: NodeRef, wanted: u32) -> Result<(u32, Attr), FsError> {
        self.reading(Action::List)?;
        if self.is_virtual(node) {
            return Ok((wanted & (bit::READ | bit::LOOKUP), self.virtual_attr(node)?));
        }
        self.with_at(node, |_, at, visible| {
            let attr = self.shown(at.attr, &at.path);
            let root = self.facts.owner.0 == 0;
            let mode = |bits: u32| root || attr.mode & bits != 0;
            let dir = attr.kind == FileKind::Dir;
            let mut granted = 0;
            if mode(0o400) && (dir || self.lease.actions.contains(Action::Read)) {
                granted |= bit::READ;
            }
            if dir && mode(0o100) {
                granted |= bit::LOOKUP;
            }
            if !dir && attr.mode & 0o111 != 0 && mode(0o100) && self.lease.actions.contains(Action::Read) {
                granted |= bit::EXECUTE;
            }
            let changes = self.facts.view == View::Branch
                && !self.facts.read_only
                && self.lease.actions.contains(Action::Write)
                && (visible == Visibility::Full || dir);
            if changes && mode(0o200) {
                granted |= bit::MODIFY | bit::EXTEND;
                if dir {
                    granted |= bit::DELETE;
                }
            }
            Ok((granted & wanted, attr))
        })
    }

    /// FSSTAT, as the run may use it: the quota of the branch counts.
    pub fn space(&self, node: NodeRef) -> Result<Space, FsError> {
        self.reading(Action::List)?;
        let files = self.files();
        if !self.is_virtual(node) {
            self.at(files.live(), node)?;
        }
        files.live().space()
    }

    /// Attributes as this lease may see them: those of a partly visible directory are synthetic (DESIGN §5), its size
    /// and link count would tell how much is hidden in it. Times stay: clients need them to notice changes of the
    /// names that they do see.
    pub(super) fn shown(&self, attr: Attr, path: &TreePath) -> Attr {
        if attr.kind != FileKind::Dir || self.lease.paths.covers(path) {
            return attr;
        }
        Attr { mode: 0o755, nlink: 2, size: 4096, used: 4096, ..attr }
    }

    /// The same for the attributes around an operation.
    pub(super) fn shown_wcc(&self, wcc: Wcc, path: &TreePath) -> Wcc {
        let after = self.shown(wcc.after, path);
        let mut before = wcc.before;
        if after != wcc.after {
            before.size = after.size;
        }
        Wcc { before, after }
    }
}
