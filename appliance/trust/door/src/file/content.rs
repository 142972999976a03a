//! READ, WRITE, COMMIT, READLINK.

use std::sync::atomic::Ordering;

use nas_store::Located;
use nas_trust_core::read_manifest::Version;
use nas_types::fs::{Attr, FileKind, FsError, NodeRef, ReadOut, Stability, Wcc, Written};
use nas_types::lease::Action;

use super::{Mounted, Place};

impl Mounted {
    /// READ into `buf`. What was read goes into the run's manifest (SPEC REC-2).
    pub fn read(&self, node: NodeRef, offset: u64, buf: &mut [u8]) -> Result<ReadOut, FsError> {
        self.reading(Action::Read)?;
        if self.is_virtual(node) {
            return self.virtual_read(node, offset, buf);
        }
        self.with_at(node, |live, at, _| {
            let read = live.read(at, offset, buf)?;
            let version = self.version_of(at);
            self.lease.run.manifest.lock().note(&at.path, version, offset, u64::from(read.count));
            self.lease.run.manifest_dirty.store(true, Ordering::Release);
            Ok(read)
        })
    }

    /// READLINK. The server never follows the target.
    pub fn readlink(&self, node: NodeRef) -> Result<(Vec<u8>, Attr), FsError> {
        self.reading(Action::List)?;
        if self.is_virtual(node) {
            return Err(FsError::Invalid);
        }
        self.with_at(node, |live, at, _| live.readlink(at))
    }

    /// WRITE. The answer says how durable the bytes really are.
    pub fn write(&self, node: NodeRef, offset: u64, data: &[u8], stability: Stability) -> Result<Written, FsError> {
        self.changing(node)?;
        if self.is_virtual(node) {
            return Err(FsError::Access);
        }
        self.with_at(node, |live, at, _| {
            if at.attr.kind != FileKind::File {
                return Err(if at.attr.kind == FileKind::Dir { FsError::IsDir } else { FsError::Invalid });
            }
            self.may_change_file(live, at)?;
            live.write(at, offset, data, stability)
        })
    }

    /// COMMIT: makes everything written to the file durable, then schedules a commit of the branch (SPEC MOUNT-2).
    pub fn commit(&self, node: NodeRef) -> Result<Wcc, FsError> {
        self.reading(Action::List)?;
        if self.is_virtual(node) {
            return Err(FsError::Invalid);
        }
        self.with_at(node, |live, at, _| live.commit(at))
    }

    /// Which committed version of the file the reader sees: that of the base commit while nothing newer was committed,
    /// none while the branch holds changes of it that are not in a commit.
    fn version_of(&self, at: &Located) -> Version {
        let (base, tip) = match &self.place {
            // It has no commits.
            Place::Tree(_) => return Version { commit: None, content: None },
            Place::Branch(branch) if branch.live().is_path_dirty(&at.path) => {
                return Version { commit: None, content: None };
            }
            Place::Branch(branch) => (branch.base(), branch.tip()),
            Place::Commit(commit, _) => (*commit, *commit),
            Place::Main => {
                let commit = self.inner.store.main().pointer().commit;
                (commit, commit)
            }
        };
        if let Some((known, version)) = self.versions.lock().get(&at.node.id)
            && *known == tip
        {
            return *version;
        }
        let history = self.inner.store.history();
        let content = |commit| history.entry_at(commit, &at.path).ok().flatten().and_then(|entry| entry.oid);
        let (old, new) = (content(base), content(tip));
        let version = Version { commit: Some(if old == new { base } else { tip }), content: new };
        self.versions.lock().put(at.node.id, (tip, version));
        version
    }
}
