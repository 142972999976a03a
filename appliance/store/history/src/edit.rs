//! Edits and the overlay they are applied to: the stored tree, opened only along the changed paths.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};

use nas_types::object::{Change, EntryKind, KeyDomain, Oid};
use nas_types::path::TreePath;
use nas_types::time::FileTime;

use crate::error::{HistoryError, Result};
use crate::object::Objects;
use crate::tree::{self, DIR_MODE, DirRef, Slot, Store};

/// A reader and the number of bytes it gives.
pub type Opened = (Box<dyn Read + Send>, u64);

/// Where content comes from.
pub enum Source {
    /// Bytes in memory.
    Bytes(Vec<u8>),
    /// A file from its current position; it must give exactly `size` bytes.
    File {
        /// The open file.
        file: File,
        /// Its length in bytes.
        size: u64,
    },
    /// Opened when its turn comes, on one of the worker threads, so that a long list of edits holds few open files.
    /// The reader may fail at its end to say that the file changed meanwhile.
    Open {
        /// About how many bytes; only decides how the work is batched.
        size_hint: u64,
        /// Opens it.
        open: Box<dyn FnOnce() -> io::Result<Opened> + Send>,
    },
    /// A blob the history holds already.
    Existing(Oid),
}

impl Source {
    pub(crate) fn size_hint(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { size, .. } => *size,
            Self::Open { size_hint, .. } => *size_hint,
            Self::Existing(_) => 0,
        }
    }
}

/// What to put at a path.
pub enum Put {
    /// A regular file with these permission bits (`0o1777` at most).
    File {
        /// Permission bits.
        mode: u32,
        /// When its content last changed, if that is known.
        mtime: Option<FileTime>,
        /// Content.
        source: Source,
    },
    /// A symbolic link; the content is its target.
    Symlink {
        /// When it was made, if that is known.
        mtime: Option<FileTime>,
        /// Target.
        source: Source,
    },
    /// A directory: made empty when absent (or a file), else only its mode is set.
    Dir {
        /// Permission bits.
        mode: u32,
    },
}

/// One operation on a tree. The cost is O(depth of the path), never the size of the tree or of what is moved.
pub enum Edit {
    /// Puts an entry. Missing directories above it are made; a file above it becomes a directory; a directory
    /// that a file or symlink takes the place of goes with all that is in it.
    Put {
        /// Where.
        path: TreePath,
        /// What.
        put: Put,
    },
    /// Removes a file or a whole directory. Absent is fine. The directory above stays, even when it becomes empty.
    Remove {
        /// Where. The root: everything.
        path: TreePath,
    },
    /// Moves a file or a whole directory, in place of what is at `to`. An absent `from` just removes `to`.
    Move {
        /// From where.
        from: TreePath,
        /// To where.
        to: TreePath,
    },
}

impl Edit {
    /// The edit that makes a change, content taken from what the history (or the same writer) holds.
    /// A sorted list of changes is a legal list of edits.
    #[must_use]
    pub fn from_change(change: &Change) -> Self {
        let path = change.path.clone();
        let Some(new) = change.new else { return Self::Remove { path } };
        let (mode, mtime) = (new.mode, new.mtime);
        let put = match (new.kind, new.oid) {
            (EntryKind::File, Some(oid)) => Put::File { mode, mtime, source: Source::Existing(oid) },
            (EntryKind::Symlink, Some(oid)) => Put::Symlink { mtime, source: Source::Existing(oid) },
            _ => Put::Dir { mode },
        };
        Self::Put { path, put }
    }
}

/// Content of a leaf in the overlay: stored, or still with the workers.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    Known(Oid),
    Pending(usize),
}

pub(crate) enum Node {
    Leaf(Leaf),
    Dir { mode: u32, body: Body },
}

/// A file or symlink of the overlay.
#[derive(Clone, Copy)]
pub(crate) struct Leaf {
    pub(crate) kind: EntryKind,
    pub(crate) mode: u32,
    pub(crate) mtime: Option<FileTime>,
    pub(crate) content: Content,
    pub(crate) key_domain: KeyDomain,
}

pub(crate) enum Body {
    /// As stored, not looked into.
    Stored(DirRef),
    /// Opened; `stored` while it is known to be unchanged.
    Open { children: BTreeMap<Vec<u8>, Node>, stored: Option<DirRef> },
}

impl From<Slot> for Node {
    fn from(slot: Slot) -> Self {
        match slot {
            Slot::Leaf { kind, mode, oid, key_domain, mtime } => {
                Self::Leaf(Leaf { kind, mode, mtime, content: Content::Known(oid), key_domain })
            }
            Slot::Dir { mode, dir } => Self::Dir { mode, body: Body::Stored(dir) },
        }
    }
}

fn empty() -> Body {
    Body::Open { children: BTreeMap::new(), stored: None }
}

type Children = BTreeMap<Vec<u8>, Node>;

impl Body {
    /// The children, read when needed. `touch` says that they are about to change.
    fn open(&mut self, objects: &dyn Objects, touch: bool) -> Result<&mut Children> {
        if let Self::Stored(dir) = *self {
            let children = tree::read(objects, dir)?.into_iter().map(|(name, slot)| (name, slot.into())).collect();
            *self = Self::Open { children, stored: Some(dir) };
        }
        match self {
            Self::Open { children, stored } => {
                if touch {
                    *stored = None;
                }
                Ok(children)
            }
            Self::Stored(_) => unreachable!("it was opened above"),
        }
    }
}

/// The tree being edited.
pub(crate) struct Overlay {
    root: Body,
}

impl Overlay {
    pub(crate) fn new(root: DirRef) -> Self {
        Self { root: Body::Stored(root) }
    }

    /// Children of the directory that holds `path`, about to change. `None` when it is absent and `make` is not set.
    fn parent<'a>(
        &'a mut self,
        objects: &dyn Objects,
        path: &TreePath,
        make: bool,
    ) -> Result<Option<&'a mut Children>> {
        let depth = path.components().count();
        if !make && !self.exists(objects, path)? {
            return Ok(None);
        }
        let mut at = self.root.open(objects, true)?;
        for name in path.components().take(depth.saturating_sub(1)) {
            let node = at.entry(name.to_vec()).or_insert_with(|| Node::Dir { mode: DIR_MODE, body: empty() });
            if let Node::Leaf(_) = node {
                *node = Node::Dir { mode: DIR_MODE, body: empty() };
            }
            let Node::Dir { body, .. } = node else { unreachable!("it was made a directory above") };
            at = body.open(objects, true)?;
        }
        Ok(Some(at))
    }

    fn exists(&mut self, objects: &dyn Objects, path: &TreePath) -> Result<bool> {
        let mut body = &mut self.root;
        let mut names = path.components().peekable();
        while let Some(name) = names.next() {
            match body.open(objects, false)?.get_mut(name) {
                None => return Ok(false),
                Some(Node::Leaf(_)) => return Ok(names.peek().is_none()),
                Some(Node::Dir { body: below, .. }) => body = below,
            }
        }
        Ok(true)
    }

    pub(crate) fn put_leaf(&mut self, objects: &dyn Objects, path: &TreePath, leaf: Leaf) -> Result<()> {
        let name = last_name(path, "the root is a directory")?;
        let parent = self.parent(objects, path, true)?.expect("because the parent is made");
        parent.insert(name, Node::Leaf(leaf));
        Ok(())
    }

    pub(crate) fn put_dir(&mut self, objects: &dyn Objects, path: &TreePath, new_mode: u32) -> Result<()> {
        let name = last_name(path, "attributes of the root are not kept in history")?;
        let parent = self.parent(objects, path, true)?.expect("because the parent is made");
        match parent.get_mut(&name) {
            Some(Node::Dir { mode, .. }) => *mode = new_mode,
            _ => drop(parent.insert(name, Node::Dir { mode: new_mode, body: empty() })),
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, objects: &dyn Objects, path: &TreePath) -> Result<Option<Node>> {
        let Some((_, name)) = path.split_last() else {
            self.root = empty();
            return Ok(None);
        };
        let name = name.as_bytes().to_vec();
        Ok(self.parent(objects, path, false)?.and_then(|parent| parent.remove(&name)))
    }

    pub(crate) fn rename(&mut self, objects: &dyn Objects, from: &TreePath, to: &TreePath) -> Result<()> {
        if from == to {
            return Ok(());
        }
        let refuse = |path: &TreePath, why| Err(HistoryError::Edit { path: path.clone(), why });
        if from.is_root() || to.is_root() {
            return refuse(from, "the root cannot be moved or replaced");
        }
        if to.is_within(from) {
            return refuse(to, "a directory cannot be moved into itself");
        }
        if from.is_within(to) {
            return refuse(to, "a directory cannot be replaced by what is in it");
        }
        match self.remove(objects, from)? {
            None => drop(self.remove(objects, to)?),
            Some(node) => {
                let name = last_name(to, "the root cannot be replaced")?;
                self.parent(objects, to, true)?.expect("because the parent is made").insert(name, node);
            }
        }
        Ok(())
    }

    /// Writes what changed and returns the new root.
    pub(crate) fn write(self, store: &mut Store<'_>, pending: &[Oid]) -> Result<DirRef> {
        write_body(store, self.root, pending)
    }
}

fn last_name(path: &TreePath, why: &'static str) -> Result<Vec<u8>> {
    match path.split_last() {
        Some((_, name)) => Ok(name.as_bytes().to_vec()),
        None => Err(HistoryError::Edit { path: path.clone(), why }),
    }
}

fn write_body(store: &mut Store<'_>, body: Body, pending: &[Oid]) -> Result<DirRef> {
    let children = match body {
        Body::Stored(dir) | Body::Open { stored: Some(dir), .. } => return Ok(dir),
        Body::Open { children, stored: None } => children,
    };
    let mut listing = tree::Listing::new();
    for (name, node) in children {
        let slot = match node {
            Node::Leaf(Leaf { kind, mode, mtime, content, key_domain }) => {
                let oid = match content {
                    Content::Known(oid) => oid,
                    Content::Pending(at) => pending[at],
                };
                Slot::Leaf { kind, mode, oid, key_domain, mtime }
            }
            Node::Dir { mode, body } => Slot::Dir { mode, dir: write_body(store, body, pending)? },
        };
        listing.insert(name, slot);
    }
    tree::write(store, &listing)
}
