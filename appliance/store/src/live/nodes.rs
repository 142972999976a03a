//! Where files are: inode → (parent, name).
//!
//! Directories are all kept once seen. Files keep their parent's inode for as long as the live directory is open (about 50
//! bytes a file, bounded by the branch's file quota; in an unprotected tree by the files that were seen) and their name in
//! an LRU. Only [`super::LiveDir`] changes a branch, so what is here is right until it says otherwise; every use is still
//! checked by statx. In an unprotected tree others change things too: there it is only a guess.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroUsize;

use lru::LruCache;
use nas_types::fs::NodeId;
use nas_types::path::{Name, TreePath};

/// Names of files kept for each live directory.
const FILE_NAMES_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("because it is not zero");
/// Deeper than any legal path: a cycle in the table ends here.
const DEPTH_MAX: usize = 4096;

/// One name: the directory's inode and the name in it.
pub(super) type At = (u64, Box<[u8]>);

#[derive(Debug, Clone)]
struct Slot {
    generation: u64,
    at: At,
}

#[derive(Debug, Clone)]
pub(super) struct NodeTable {
    root: NodeId,
    dirs: HashMap<u64, Slot>,
    files: LruCache<u64, Slot>,
    /// Parent of every file seen, also of those whose name fell out of `files`.
    parents: HashMap<u64, u64>,
    /// Known names of files with more than one.
    links: HashMap<u64, BTreeSet<At>>,
    /// All directories were walked since the live directory was opened.
    pub(super) walked: bool,
}

impl NodeTable {
    pub(super) fn new(root: NodeId) -> Self {
        Self {
            root,
            dirs: HashMap::new(),
            files: LruCache::new(FILE_NAMES_MAX),
            parents: HashMap::new(),
            links: HashMap::new(),
            walked: false,
        }
    }

    /// The name of a node, if it is known under that generation.
    pub(super) fn find(&mut self, id: NodeId) -> Option<At> {
        let slot = match self.dirs.get(&id.ino) {
            Some(slot) => slot,
            None => self.files.get(&id.ino)?,
        };
        (slot.generation == id.generation).then(|| slot.at.clone())
    }

    /// Generation of a known directory.
    pub(super) fn dir_generation(&self, ino: u64) -> Option<u64> {
        if ino == self.root.ino { Some(self.root.generation) } else { self.dirs.get(&ino).map(|slot| slot.generation) }
    }

    /// The directory a file was last seen in.
    pub(super) fn parent_of_file(&self, ino: u64) -> Option<u64> {
        self.parents.get(&ino).copied()
    }

    /// A walk saw file `ino` in directory `parent`.
    pub(super) fn note_parent(&mut self, ino: u64, parent: u64) {
        self.parents.entry(ino).or_insert(parent);
    }

    pub(super) fn put_dir(&mut self, id: NodeId, parent: u64, name: &[u8]) {
        if id != self.root {
            self.dirs.insert(id.ino, Slot { generation: id.generation, at: (parent, name.into()) });
        }
    }

    pub(super) fn put_file(&mut self, id: NodeId, nlink: u32, parent: u64, name: &[u8]) {
        self.parents.insert(id.ino, parent);
        if nlink > 1 {
            self.links.entry(id.ino).or_default().insert((parent, name.into()));
        } else {
            self.links.remove(&id.ino);
        }
        match self.files.get_mut(&id.ino) {
            // A listing repeats what is known: spare the allocation.
            Some(slot) if slot.generation == id.generation && slot.at.0 == parent && *slot.at.1 == *name => {}
            _ => {
                self.files.put(id.ino, Slot { generation: id.generation, at: (parent, name.into()) });
            }
        }
    }

    /// Forgets one name of a file, and the file when it was the last known one.
    pub(super) fn remove_name(&mut self, ino: u64, parent: u64, name: &[u8]) {
        self.dirs.remove(&ino);
        let other = self.links.get_mut(&ino).and_then(|known| {
            known.remove(&(parent, Box::from(name)));
            known.first().cloned()
        });
        match (other, self.files.get_mut(&ino)) {
            (Some(at), Some(slot)) => {
                self.parents.insert(ino, at.0);
                slot.at = at;
            }
            (Some(at), None) => {
                self.parents.insert(ino, at.0);
            }
            (None, _) => {
                self.files.pop(&ino);
                self.parents.remove(&ino);
                self.links.remove(&ino);
            }
        }
    }

    /// Forgets what was believed about a node, because it turned out wrong.
    pub(super) fn distrust(&mut self, id: NodeId) {
        self.dirs.remove(&id.ino);
        self.files.pop(&id.ino);
    }

    /// Known names of a file with more than one.
    pub(super) fn links_of(&self, ino: u64) -> Vec<At> {
        self.links.get(&ino).map(|known| known.iter().cloned().collect()).unwrap_or_default()
    }

    /// Path of the directory `ino`; `None` when a parent is not known.
    pub(super) fn dir_path(&self, ino: u64) -> Option<TreePath> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut at = ino;
        while at != self.root.ino {
            let slot = self.dirs.get(&at)?;
            names.push(&slot.at.1);
            at = slot.at.0;
            if names.len() > DEPTH_MAX {
                return None;
            }
        }
        let mut bytes = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
        for name in names.iter().rev() {
            if !bytes.is_empty() {
                bytes.push(b'/');
            }
            bytes.extend_from_slice(name);
        }
        TreePath::from_relative(&bytes).ok()
    }

    /// Is directory `ino` equal to `above` or below it?
    pub(super) fn is_below(&self, ino: u64, above: u64) -> bool {
        let mut at = ino;
        for _ in 0..DEPTH_MAX {
            if at == above {
                return true;
            }
            match self.dirs.get(&at) {
                Some(slot) => at = slot.at.0,
                None => return false,
            }
        }
        false
    }

    /// Path of the entry `name` in directory `parent`.
    pub(super) fn entry_path(&self, parent: u64, name: &[u8]) -> Option<TreePath> {
        self.dir_path(parent)?.join(Name::new(name).ok()?).ok()
    }
}
