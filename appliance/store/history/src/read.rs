//! Reading: entries, listings, walks, content.

use std::fs::File;
use std::io::{BufReader, Write};

use nas_types::object::{Entry, EntryKind, KeyDomain, Oid};
use nas_types::path::{Name, TreePath};

use crate::commit;
use crate::error::{HistoryError, Result};
use crate::object::{Kind, Objects};
use crate::pack::{self, ReadAt};
use crate::repo::History;
use crate::tree::{self, DirRef, Slot};

/// Content above this many bytes is streamed by [`History::copy_blob`] where its pack allows it.
const STREAM_BYTES_MIN: u64 = 4 << 20;

/// Names of a directory with what they name, sorted by name.
pub type NamedEntries = Vec<(Vec<u8>, Entry)>;

/// A slot as the rest of the system sees it.
pub(crate) fn entry(objects: &dyn Objects, slot: &Slot) -> Result<Entry> {
    Ok(match *slot {
        Slot::Dir { mode, .. } => dir_entry(mode),
        Slot::Leaf { kind, mode, oid, key_domain, mtime } => {
            Entry { kind, mode, oid: Some(oid), size: objects.header(oid)?.1, mtime, key_domain }
        }
    })
}

/// A directory as the rest of the system sees it.
pub(crate) fn dir_entry(mode: u32) -> Entry {
    Entry { kind: EntryKind::Dir, mode, oid: None, size: 0, mtime: None, key_domain: KeyDomain::default() }
}

pub(crate) fn join(dir: &TreePath, name: &[u8], tree: Option<Oid>) -> Result<TreePath> {
    let joined = Name::new(name).and_then(|name| dir.join(name));
    joined.map_err(|err| HistoryError::corrupt(tree.unwrap_or(crate::object::EMPTY_TREE), err))
}

impl History {
    /// What is at `path` in a commit. Every directory is found, also one that is only implied by its content.
    pub fn entry_at(&self, commit: Oid, path: &TreePath) -> Result<Option<Entry>> {
        let reader = self.reader();
        let root = commit::read(&reader, commit)?.trees.into();
        tree::lookup(&reader, root, path)?.map(|slot| entry(&reader, &slot)).transpose()
    }

    /// Names and entries of a directory in a commit, sorted by name; `None` when `path` is no directory there.
    pub fn list_dir(&self, commit: Oid, path: &TreePath) -> Result<Option<NamedEntries>> {
        let reader = self.reader();
        let root = commit::read(&reader, commit)?.trees.into();
        let Some(dir) = tree::lookup(&reader, root, path)?.and_then(|slot| slot.as_dir()) else { return Ok(None) };
        let listed = tree::read(&reader, dir)?.into_iter().map(|(name, slot)| Ok((name, entry(&reader, &slot)?)));
        listed.collect::<Result<_>>().map(Some)
    }

    /// Calls `visit` for everything in a commit, each directory before what is in it; the root itself is left out.
    pub fn walk<E: From<HistoryError>>(
        &self,
        commit: Oid,
        visit: &mut dyn FnMut(&TreePath, &Entry) -> Result<(), E>,
    ) -> Result<(), E> {
        let reader = self.reader();
        let root: DirRef = commit::read(&reader, commit)?.trees.into();
        let mut todo = vec![(TreePath::root(), root)];
        while let Some((path, dir)) = todo.pop() {
            for (name, slot) in tree::read(&reader, dir)? {
                let path = join(&path, &name, dir.content)?;
                visit(&path, &entry(&reader, &slot)?)?;
                if let Some(dir) = slot.as_dir() {
                    todo.push((path, dir));
                }
            }
        }
        Ok(())
    }

    /// Size of a blob in bytes.
    pub fn blob_size(&self, oid: Oid) -> Result<u64> {
        match self.reader().header(oid)? {
            (Kind::Blob, size) => Ok(size),
            (found, _) => Err(HistoryError::WrongKind { oid, found: found.as_str(), expected: "blob" }),
        }
    }

    /// A whole blob in memory, refused when it has more than `bytes_max` bytes.
    pub fn read_blob(&self, oid: Oid, bytes_max: u64) -> Result<Vec<u8>> {
        let found = self.blob_size(oid)?;
        if found > bytes_max {
            return Err(HistoryError::TooLarge { what: "bytes of a blob to read at once", found, max: bytes_max });
        }
        self.reader().load_kind(oid, Kind::Blob)
    }

    /// Copies a blob to `out` and returns its size. Large ones are streamed out of the pack.
    pub fn copy_blob(&self, oid: Oid, out: &mut dyn Write) -> Result<u64> {
        let size = self.blob_size(oid)?;
        let write = HistoryError::io("write content of", std::path::Path::new("the receiver"));
        if size >= STREAM_BYTES_MIN
            && let Some((file, offset)) = self.find_whole(oid)?
        {
            let mut zlib =
                flate2::read::ZlibDecoder::new(BufReader::with_capacity(64 << 10, ReadAt { file: &file, at: offset }));
            let copied = std::io::copy(&mut zlib, out).map_err(write)?;
            if copied != size {
                return Err(HistoryError::corrupt(oid, "its size differs from its head"));
            }
            return Ok(size);
        }
        let bytes = self.reader().load_kind(oid, Kind::Blob)?;
        out.write_all(&bytes).map_err(write)?;
        Ok(size)
    }

    /// The pack that holds this object whole (not as a delta), and the offset of its compressed bytes.
    fn find_whole(&self, oid: Oid) -> Result<Option<(File, u64)>> {
        for idx in self.indexes()? {
            let Ok(index) = gix::odb::pack::index::File::at(&idx, gix::hash::Kind::Sha1) else { continue };
            let Some(at) = index.lookup(crate::object::to_gix(oid)) else { continue };
            // Gone since it was listed: consolidated, so another index has it.
            let Ok(file) = File::open(idx.with_extension("pack")) else { continue };
            let mut head = ReadAt { file: &file, at: index.pack_offset_at_index(at) };
            let (number, _) = pack::read_entry_head(&mut head).map_err(|err| HistoryError::corrupt(oid, err))?;
            let offset = head.at;
            if pack::whole_kind(number).is_some() {
                return Ok(Some((file, offset)));
            }
        }
        Ok(None)
    }

    /// Paths of all pack indexes.
    pub(crate) fn indexes(&self) -> Result<Vec<std::path::PathBuf>> {
        let dir = self.pack_dir();
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&dir).map_err(HistoryError::io("list", &dir))? {
            let path = entry.map_err(HistoryError::io("list", &dir))?.path();
            let ours = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"pack-"));
            if ours && path.extension().is_some_and(|ext| ext == "idx") {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }
}
