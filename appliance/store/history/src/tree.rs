//! One directory as people see it, read from and written to its two halves: the content tree (plain Git) and
//! the meta tree ([`crate::meta`]).

use std::collections::BTreeMap;

use nas_types::object::{EntryKind, KeyDomain, Oid};
use nas_types::path::Name;
use nas_types::time::FileTime;

use crate::error::{HistoryError, Result};
use crate::meta::{self, Line, Part};
use crate::object::{Kind, Objects};

/// Mode of a directory unless meta says otherwise.
pub(crate) const DIR_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
const EXEC_MODE: u32 = 0o755;
const SYMLINK_MODE: u32 = 0o777;

/// The two halves of a stored directory. `None` is the empty content tree, and meta that is all defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct DirRef {
    pub(crate) content: Option<Oid>,
    pub(crate) meta: Option<Oid>,
}

/// A stored entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// File or symlink.
    Leaf { kind: EntryKind, mode: u32, oid: Oid, key_domain: KeyDomain, mtime: Option<FileTime> },
    /// Directory.
    Dir { mode: u32, dir: DirRef },
}

impl Slot {
    pub(crate) fn kind(&self) -> EntryKind {
        match self {
            Self::Leaf { kind, .. } => *kind,
            Self::Dir { .. } => EntryKind::Dir,
        }
    }

    pub(crate) fn mode(&self) -> u32 {
        match self {
            Self::Leaf { mode, .. } | Self::Dir { mode, .. } => *mode,
        }
    }

    /// When its content last changed, if it has any and that is known.
    pub(crate) fn mtime(&self) -> Option<FileTime> {
        match self {
            Self::Leaf { mtime, .. } => *mtime,
            Self::Dir { .. } => None,
        }
    }

    /// The same, times aside: touching a file does not change it.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (*self, *other) {
            (
                Self::Leaf { kind, mode, oid, key_domain, mtime: _ },
                Self::Leaf { kind: kind2, mode: mode2, oid: oid2, key_domain: key_domain2, mtime: _ },
            ) => (kind, mode, oid, key_domain) == (kind2, mode2, oid2, key_domain2),
            (left, right) => left == right,
        }
    }

    /// Its two halves if it is a directory.
    pub(crate) fn as_dir(&self) -> Option<DirRef> {
        match self {
            Self::Dir { dir, .. } => Some(*dir),
            Self::Leaf { .. } => None,
        }
    }
}

/// Entries of one directory by name.
pub(crate) type Listing = BTreeMap<Vec<u8>, Slot>;

struct RawEntry {
    name: Vec<u8>,
    mode: u32,
    oid: Oid,
}

const GIT_TREE: u32 = 0o040_000;
const GIT_FILE: u32 = 0o100_644;
const GIT_EXEC: u32 = 0o100_755;
const GIT_LINK: u32 = 0o120_000;

fn parse_tree(objects: &dyn Objects, oid: Oid) -> Result<Vec<RawEntry>> {
    let bytes = objects.load_kind(oid, Kind::Tree)?;
    let entries = gix::objs::TreeRefIter::from_bytes(&bytes, gix::hash::Kind::Sha1);
    let parsed = entries.map(|entry| {
        let entry = entry.map_err(|err| HistoryError::corrupt(oid, err))?;
        let name = entry.filename.to_vec();
        Ok(RawEntry { name, mode: u32::from(entry.mode.value()), oid: crate::object::from_gix(entry.oid) })
    });
    parsed.collect()
}

/// Are the two the same, times aside?
pub(crate) fn alike(left: Option<&Slot>, right: Option<&Slot>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => left.is_like(right),
        (left, right) => left.is_none() && right.is_none(),
    }
}

fn leaf(oid: Oid, git_mode: u32, tree: Oid) -> Result<Slot> {
    let (kind, mode) = match git_mode & 0o170_000 {
        0o100_000 if git_mode & 0o100 != 0 => (EntryKind::File, EXEC_MODE),
        0o100_000 => (EntryKind::File, FILE_MODE),
        0o120_000 => (EntryKind::Symlink, SYMLINK_MODE),
        _ => {
            return Err(HistoryError::corrupt(
                tree,
                format!("it holds an entry of mode {git_mode:o}, which no tree here has"),
            ));
        }
    };
    Ok(Slot::Leaf { kind, mode, oid, key_domain: KeyDomain::default(), mtime: None })
}

/// Reads a directory.
pub(crate) fn read(objects: &dyn Objects, dir: DirRef) -> Result<Listing> {
    let mut listing = Listing::new();
    if let Some(tree) = dir.content {
        for entry in parse_tree(objects, tree)? {
            Name::new(&entry.name).map_err(|err| HistoryError::corrupt(tree, err))?;
            let slot = if entry.mode & 0o170_000 == GIT_TREE {
                Slot::Dir { mode: DIR_MODE, dir: DirRef { content: Some(entry.oid), meta: None } }
            } else {
                leaf(entry.oid, entry.mode, tree)?
            };
            listing.insert(entry.name, slot);
        }
    }
    if let Some(tree) = dir.meta {
        read_meta(objects, tree, &mut listing)?;
    }
    Ok(listing)
}

fn read_meta(objects: &dyn Objects, tree: Oid, listing: &mut Listing) -> Result<()> {
    let mut lines = Vec::new();
    let mut subs = Vec::new();
    for entry in parse_tree(objects, tree)? {
        if entry.name == meta::LINES {
            lines = meta::decode(entry.oid, &objects.load_kind(entry.oid, Kind::Blob)?)?;
            continue;
        }
        let (part, name) = Part::parse(&entry.name)
            .ok_or_else(|| HistoryError::corrupt(tree, "an entry of meta has no known name"))?;
        Name::new(&name).map_err(|err| HistoryError::corrupt(tree, err))?;
        match part {
            Part::Leaf => drop(listing.insert(name, leaf(entry.oid, entry.mode, tree)?)),
            Part::Tree => {
                let dir = DirRef { content: Some(entry.oid), meta: None };
                listing.insert(name, Slot::Dir { mode: DIR_MODE, dir });
            }
            Part::Sub => subs.push((name, entry.oid)),
        }
    }
    for line in lines {
        let name = line.name().filter(|name| Name::new(name).is_ok());
        let name = name.ok_or_else(|| HistoryError::corrupt(tree, "a line of meta names no file"))?;
        if line.kind == EntryKind::Dir && !listing.contains_key(&name) {
            listing.insert(name.clone(), Slot::Dir { mode: DIR_MODE, dir: DirRef::default() });
        }
        // A line about what is no longer there (stock git rewrote the content tree) says nothing.
        let Some(slot) = listing.get_mut(&name).filter(|slot| slot.kind() == line.kind) else { continue };
        if let (Slot::Leaf { mode, .. } | Slot::Dir { mode, .. }, Some(new)) = (&mut *slot, line.mode()) {
            *mode = new;
        }
        if let Slot::Leaf { key_domain, mtime, .. } = slot {
            *key_domain = line.key_domain().ok_or_else(|| HistoryError::KeyDomain { domain: line.domain_text() })?;
            *mtime = line.mtime;
        }
    }
    for (name, sub) in subs {
        if let Some(Slot::Dir { dir, .. }) = listing.get_mut(&name) {
            dir.meta = Some(sub);
        }
    }
    Ok(())
}

/// Stores one object and returns its id.
pub(crate) type Store<'a> = dyn FnMut(Kind, &[u8]) -> Result<Oid> + 'a;

/// Writes a directory. An empty one becomes `DirRef::default()`.
pub(crate) fn write(store: &mut Store<'_>, listing: &Listing) -> Result<DirRef> {
    let mut content = Vec::with_capacity(listing.len());
    let mut beside = Vec::new();
    let mut lines = Vec::new();
    for (name, slot) in listing {
        let hidden = meta::is_hidden(name, slot.kind());
        match *slot {
            Slot::Leaf { kind, mode, oid, key_domain, mtime } => {
                let git_mode = git_mode(kind, mode);
                let place = if hidden { &mut beside } else { &mut content };
                let name_there = if hidden { Part::Leaf.entry_name(name) } else { name.clone() };
                place.push(RawEntry { name: name_there, mode: git_mode, oid });
                let default = if git_mode == GIT_EXEC { EXEC_MODE } else { FILE_MODE };
                let own_mode = (kind == EntryKind::File && mode != default).then_some(mode);
                if own_mode.is_some() || mtime.is_some() || !key_domain.is_default() {
                    lines.push(Line::new(name, kind, own_mode).of_content(key_domain, mtime));
                }
            }
            Slot::Dir { mode, dir } => {
                if let Some(oid) = dir.content {
                    let place = if hidden { &mut beside } else { &mut content };
                    let name_there = if hidden { Part::Tree.entry_name(name) } else { name.clone() };
                    place.push(RawEntry { name: name_there, mode: GIT_TREE, oid });
                }
                if let Some(oid) = dir.meta {
                    beside.push(RawEntry { name: Part::Sub.entry_name(name), mode: GIT_TREE, oid });
                }
                if mode != DIR_MODE || dir.content.is_none() {
                    lines.push(Line::new(name, EntryKind::Dir, (mode != DIR_MODE).then_some(mode)));
                }
            }
        }
    }
    if !lines.is_empty() {
        let oid = store(Kind::Blob, &meta::encode(&lines))?;
        beside.push(RawEntry { name: meta::LINES.to_vec(), mode: GIT_FILE, oid });
    }
    Ok(DirRef { content: write_tree(store, content)?, meta: write_tree(store, beside)? })
}

fn git_mode(kind: EntryKind, mode: u32) -> u32 {
    match kind {
        EntryKind::Symlink => GIT_LINK,
        _ if mode & 0o100 != 0 => GIT_EXEC,
        _ => GIT_FILE,
    }
}

fn write_tree(store: &mut Store<'_>, mut entries: Vec<RawEntry>) -> Result<Option<Oid>> {
    if entries.is_empty() {
        return Ok(None);
    }
    // Git sorts a directory as if its name ended in '/'.
    let key = |entry: &RawEntry| {
        let slash = (entry.mode == GIT_TREE).then_some(b'/');
        entry.name.iter().copied().chain(slash).collect::<Vec<u8>>()
    };
    entries.sort_by_cached_key(key);
    let mut bytes = Vec::with_capacity(entries.len() * 48);
    for entry in entries {
        bytes.extend_from_slice(format!("{:o} ", entry.mode).as_bytes());
        bytes.extend_from_slice(&entry.name);
        bytes.push(0);
        bytes.extend_from_slice(&entry.oid.0);
    }
    store(Kind::Tree, &bytes).map(Some)
}

/// The slot at `path` below `root`; the root itself is a directory of default mode.
pub(crate) fn lookup(objects: &dyn Objects, root: DirRef, path: &nas_types::path::TreePath) -> Result<Option<Slot>> {
    let mut at = Slot::Dir { mode: DIR_MODE, dir: root };
    for name in path.components() {
        let Some(dir) = at.as_dir() else { return Ok(None) };
        match read(objects, dir)?.get(name) {
            Some(slot) => at = *slot,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[derive(Default)]
    struct Memory(HashMap<Oid, (Kind, Vec<u8>)>);

    impl Memory {
        fn put(&mut self, kind: Kind, bytes: &[u8]) -> Oid {
            let oid = crate::object::hash(kind, bytes).unwrap();
            self.0.insert(oid, (kind, bytes.to_vec()));
            oid
        }
    }

    impl Objects for Memory {
        fn load(&self, oid: Oid) -> Result<(Kind, Vec<u8>)> {
            Ok(self.0[&oid].clone())
        }

        fn header(&self, oid: Oid) -> Result<(Kind, u64)> {
            self.load(oid).map(|(kind, bytes)| (kind, bytes.len() as u64))
        }
    }

    /// Goal: content in a key domain that is not known is never read as plain content.
    #[test]
    fn unknown_key_domain() {
        let mut memory = Memory::default();
        let oid = memory.put(Kind::Blob, b"sealed");
        let mut read_with = |line: &str| {
            let lines = memory.put(Kind::Blob, format!("{{\"format\":2}}\n{line}\n").as_bytes());
            let raw = |name: &[u8], oid| vec![RawEntry { name: name.to_vec(), mode: GIT_FILE, oid }];
            let mut store = |kind, bytes: &[u8]| Ok(memory.put(kind, bytes));
            let content = write_tree(&mut store, raw(b"a", oid)).unwrap();
            let meta = write_tree(&mut store, raw(meta::LINES, lines)).unwrap();
            read(&memory, DirRef { content, meta })
        };
        let mtime = Some(FileTime { secs: 5, nanos: 1 });
        let plain = read_with(r#"{"name":"a","kind":"file","mtime":"5.000000001"}"#).unwrap();
        assert_eq!(plain.get(&b"a"[..]).map(Slot::mtime), Some(mtime));
        let sealed = read_with(r#"{"name":"a","kind":"file","key_domain":"k1"}"#);
        assert!(matches!(sealed, Err(HistoryError::KeyDomain { domain }) if domain == "k1"));
    }
}
