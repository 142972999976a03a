//! Virtual entries of `/.nas/` at the root of a mount (DESIGN §5): `lease.json`, `budget.json` and `pending` tell a program
//! inside the sandbox what it may do, without another protocol. They are laid over what is really there, are not
//! in listings (a copy of the directory does not take them along), cannot be changed, and are never committed.

use nas_store::{LiveDir, Located};
use nas_types::fs::{Attr, DirEntry, FileKind, FsError, Listing, Node, NodeId, NodeRef, ReadOut};
use nas_types::time::FileTime;

use super::{Mounted, Place};

/// Name of the directory.
const DIR_NAME: &[u8] = b".nas";
/// Inode number of the directory where no real one exists. No file system here gives such numbers out.
const DIR_INO: u64 = u64::MAX - 1;
/// Inode number of the first virtual file; the others follow downwards.
const FILE_INO: u64 = u64::MAX - 2;

/// The virtual files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VirtualFile {
    Lease,
    Budget,
    Pending,
}

impl VirtualFile {
    const ALL: [Self; 3] = [Self::Lease, Self::Budget, Self::Pending];

    fn name(self) -> &'static [u8] {
        match self {
            Self::Lease => b"lease.json",
            Self::Budget => b"budget.json",
            Self::Pending => b"pending",
        }
    }

    fn ino(self) -> u64 {
        FILE_INO - self as u64
    }

    fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|file| file.name() == name)
    }

    fn of(node: NodeRef) -> Option<Self> {
        Self::ALL.into_iter().find(|file| file.ino() == node.id.ino)
    }
}

impl Mounted {
    pub(super) fn is_virtual(&self, node: NodeRef) -> bool {
        node.id.generation == 0 && (node.id.ino == DIR_INO || VirtualFile::of(node).is_some())
    }

    /// The virtual entry `name` of the real directory `at`, if it is one.
    pub(super) fn overlaid(&self, live: &LiveDir, at: &Located, name: &[u8]) -> Result<Option<Node>, FsError> {
        if at.node.id == self.root().id && name == DIR_NAME {
            let real = live.lookup(at, super::legal(name)?).is_ok();
            let known = self.lease.paths.child_visible(at.path.as_bytes(), name);
            return Ok((!real || !known).then(|| self.virtual_node(DIR_INO)));
        }
        Ok(VirtualFile::named(name).filter(|_| self.is_overlay_dir(at)).map(|file| self.virtual_node(file.ino())))
    }

    /// Refuses to make, replace or remove what is laid over.
    pub(super) fn not_reserved(&self, at: &Located, name: &[u8]) -> Result<(), FsError> {
        let reserved = VirtualFile::named(name).is_some() && self.is_overlay_dir(at);
        if reserved { Err(FsError::Access) } else { Ok(()) }
    }

    fn is_overlay_dir(&self, at: &Located) -> bool {
        at.path.split_last().is_some_and(|(dir, name)| name.as_bytes() == DIR_NAME && dir == self.facts.root_path)
    }

    pub(super) fn virtual_lookup(&self, dir: NodeRef, name: &[u8]) -> Result<Node, FsError> {
        if dir.id.ino != DIR_INO {
            return Err(FsError::NotDir);
        }
        match name {
            b"." => Ok(self.virtual_node(DIR_INO)),
            b".." => Ok(Node { node: self.root(), attr: self.getattr(self.root())? }),
            _ => VirtualFile::named(name).map(|file| self.virtual_node(file.ino())).ok_or(FsError::NotFound),
        }
    }

    pub(super) fn virtual_readdir(&self, dir: NodeRef, cookie: u64, plus: bool) -> Result<(Listing, Attr), FsError> {
        if dir.id.ino != DIR_INO {
            return Err(FsError::NotDir);
        }
        let numbered = VirtualFile::ALL.into_iter().zip(3u64..);
        let entries = numbered.filter(|(_, number)| *number > cookie).map(|(file, number)| DirEntry {
            name: file.name().to_vec(),
            fileid: file.ino(),
            cookie: number,
            node: plus.then(|| self.virtual_node(file.ino())),
        });
        Ok((Listing { entries: entries.collect(), eof: true }, self.virtual_attr(dir)?))
    }

    pub(super) fn virtual_attr(&self, node: NodeRef) -> Result<Attr, FsError> {
        Ok(self.virtual_node(node.id.ino).attr)
    }

    pub(super) fn virtual_read(&self, node: NodeRef, offset: u64, buf: &mut [u8]) -> Result<ReadOut, FsError> {
        let Some(file) = VirtualFile::of(node) else { return Err(FsError::IsDir) };
        let text = self.virtual_text(file);
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
        let count = buf.len().min(text.len() - from);
        buf[..count].copy_from_slice(&text.as_bytes()[from..from + count]);
        let eof = from + count == text.len();
        let attr = self.virtual_attr(node)?;
        Ok(ReadOut { count: u32::try_from(count).unwrap_or(u32::MAX), eof, attr })
    }

    fn virtual_node(&self, ino: u64) -> Node {
        let file = VirtualFile::ALL.into_iter().find(|file| file.ino() == ino);
        let size = file.map_or(4096, |file| self.virtual_text(file).len() as u64);
        // The text changes with time: a fresh ctime makes clients read it again.
        let now = self.inner.clocks.wall().0;
        let nanos = u32::try_from(now.rem_euclid(1000) * 1_000_000).unwrap_or(0);
        let time = FileTime { secs: now.div_euclid(1000), nanos };
        let attr = Attr {
            kind: if file.is_some() { FileKind::File } else { FileKind::Dir },
            mode: if file.is_some() { 0o444 } else { 0o555 },
            nlink: if file.is_some() { 1 } else { 2 },
            size,
            used: size,
            fileid: ino,
            atime: time,
            mtime: time,
            ctime: time,
        };
        let id = NodeId { ino, generation: 0 };
        Node { node: NodeRef { id, parent_hint: self.root().id.ino }, attr }
    }

    fn virtual_text(&self, file: VirtualFile) -> String {
        let json = |value: serde_json::Value| format!("{value:#}\n");
        match file {
            VirtualFile::Lease => {
                let info = self.inner.lease_info(&self.lease);
                json(serde_json::to_value(info).unwrap_or_default())
            }
            VirtualFile::Budget => {
                let usage = match &self.place {
                    Place::Branch(branch) => {
                        let usage = branch.live().usage();
                        Some(serde_json::json!({
                            "quota_bytes": usage.limits().bytes_max,
                            "used_bytes": usage.bytes(),
                            "used_files": usage.files(),
                        }))
                    }
                    Place::Tree(_) | Place::Commit(..) | Place::Main => None,
                };
                json(serde_json::json!({
                    "remaining_seconds": self.inner.remaining_seconds(&self.lease),
                    "branch": usage,
                }))
            }
            VirtualFile::Pending => self.inner.pending_text(self.lease.run.id),
        }
    }
}
