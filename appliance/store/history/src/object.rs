//! Objects: kinds, ids, hashing, compressing, reading through gix.

use std::io::Write as _;
use std::sync::Arc;

use gix::objs::Find as _;
use nas_types::object::Oid;

use crate::error::{HistoryError, Result};

/// Kind of a Git object; the value is the type number of a pack entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Commit = 1,
    Tree = 2,
    Blob = 3,
    Tag = 4,
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Tree => "tree",
            Self::Blob => "blob",
            Self::Tag => "tag",
        }
    }
}

impl From<gix::objs::Kind> for Kind {
    fn from(kind: gix::objs::Kind) -> Self {
        match kind {
            gix::objs::Kind::Commit => Self::Commit,
            gix::objs::Kind::Tree => Self::Tree,
            gix::objs::Kind::Blob => Self::Blob,
            gix::objs::Kind::Tag => Self::Tag,
        }
    }
}

/// The id of the empty tree, which every history with an empty root needs.
pub(crate) const EMPTY_TREE: Oid = Oid([
    0x4b, 0x82, 0x5d, 0xc6, 0x42, 0xcb, 0x6e, 0xb9, 0xa0, 0x60, 0xe5, 0x4b, 0xf8, 0xd6, 0x92, 0x88, 0xfb, 0xee, 0x49,
    0x04,
]);

/// Our id as gix wants it.
pub(crate) fn to_gix(oid: Oid) -> gix::ObjectId {
    gix::ObjectId::from(oid.0)
}

/// A gix id as ours. Histories here are SHA-1 only.
pub(crate) fn from_gix(oid: &gix::oid) -> Oid {
    let mut out = [0; 20];
    out.copy_from_slice(&oid.as_bytes()[..20]);
    Oid(out)
}

/// A running SHA-1 that detects collision attacks.
pub(crate) struct Hasher(gix::hash::Hasher);

impl Hasher {
    /// For raw bytes, such as a pack.
    pub(crate) fn raw() -> Self {
        Self(gix::hash::hasher(gix::hash::Kind::Sha1))
    }

    /// For an object of `size` bytes.
    pub(crate) fn object(kind: Kind, size: u64) -> Self {
        let mut hasher = Self::raw();
        hasher.update(format!("{} {size}\0", kind.as_str()).as_bytes());
        hasher
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Result<Oid> {
        let id = self.0.try_finalize().map_err(|_| HistoryError::Collision)?;
        Ok(from_gix(&id))
    }
}

/// The id `bytes` have as an object.
pub(crate) fn hash(kind: Kind, bytes: &[u8]) -> Result<Oid> {
    let mut hasher = Hasher::object(kind, bytes.len() as u64);
    hasher.update(bytes);
    hasher.finish()
}

/// The id of a blob with this content, without storing it.
pub fn blob_id(bytes: &[u8]) -> Result<Oid> {
    hash(Kind::Blob, bytes)
}

/// The head of a pack entry: type and inflated size.
pub(crate) fn entry_head(kind: Kind, size: u64, out: &mut Vec<u8>) {
    let mut rest = size >> 4;
    let mut byte = ((kind as u8) << 4) | (size & 0x0f) as u8;
    while rest != 0 {
        out.push(byte | 0x80);
        byte = (rest & 0x7f) as u8;
        rest >>= 7;
    }
    out.push(byte);
}

/// Level 1: a commit waits for this, and what is old is repacked by nobody.
pub(crate) fn compression() -> flate2::Compression {
    flate2::Compression::fast()
}

/// A whole pack entry in memory.
pub(crate) fn entry_bytes(kind: Kind, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() / 2 + 32);
    entry_head(kind, bytes.len() as u64, &mut out);
    let mut zlib = flate2::write::ZlibEncoder::new(out, compression());
    zlib.write_all(bytes).and_then(|()| zlib.finish()).expect("because writing to a Vec cannot fail")
}

/// Where objects are read from: the database, or a writer that also sees what it has not finished yet.
pub(crate) trait Objects {
    /// The whole object.
    fn load(&self, oid: Oid) -> Result<(Kind, Vec<u8>)>;
    /// Kind and size without the content.
    fn header(&self, oid: Oid) -> Result<(Kind, u64)>;

    /// The whole object, which must be of this kind.
    fn load_kind(&self, oid: Oid, expected: Kind) -> Result<Vec<u8>> {
        let (found, bytes) = self.load(oid)?;
        if found == expected {
            Ok(bytes)
        } else {
            Err(HistoryError::WrongKind { oid, found: found.as_str(), expected: expected.as_str() })
        }
    }
}

/// One thread's view of the object database.
pub(crate) struct Reader(gix::odb::HandleArc);

impl Reader {
    pub(crate) fn new(store: &Arc<gix::odb::Store>) -> Self {
        Self(store.to_cache_arc())
    }

    /// Is it there, as far as known without listing the pack directory again? A miss costs one redundant write.
    pub(crate) fn has_known(&self, oid: Oid) -> bool {
        self.0.exists_without_refresh(&to_gix(oid))
    }

    /// Is it there?
    pub(crate) fn has(&self, oid: Oid) -> bool {
        gix::objs::Exists::exists(&self.0, &to_gix(oid))
    }
}

impl Objects for Reader {
    fn load(&self, oid: Oid) -> Result<(Kind, Vec<u8>)> {
        let mut bytes = Vec::new();
        let found = self.0.try_find(&to_gix(oid), &mut bytes).map_err(|err| HistoryError::corrupt(oid, err))?;
        let kind = found.ok_or(HistoryError::Missing(oid))?.kind.into();
        Ok((kind, bytes))
    }

    fn header(&self, oid: Oid) -> Result<(Kind, u64)> {
        let found =
            gix::objs::FindHeader::try_header(&self.0, &to_gix(oid)).map_err(|err| HistoryError::corrupt(oid, err))?;
        let header = found.ok_or(HistoryError::Missing(oid))?;
        Ok((header.kind.into(), header.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: ids are those of Git.
    #[test]
    fn known_ids() {
        assert_eq!(hash(Kind::Tree, b"").unwrap(), EMPTY_TREE);
        assert_eq!(blob_id(b"hello\n").unwrap().to_string(), "ce013625030ba8dba906f756967f9e9ca394464a");
    }

    /// Goal: sizes around the 4- and 7-bit steps of the entry head.
    #[test]
    fn entry_heads() {
        let head = |size| {
            let mut out = Vec::new();
            entry_head(Kind::Blob, size, &mut out);
            out
        };
        assert_eq!(head(0), [0x30]);
        assert_eq!(head(15), [0x3f]);
        assert_eq!(head(16), [0xb0, 0x01]);
        assert_eq!(head(2047), [0xbf, 0x7f]);
        assert_eq!(head(2048), [0xb0, 0x80, 0x01]);
    }
}
