//! Ambiguous renames in a merge. We follow none, but where both sides removed a file and they differ in where its
//! content went, what they meant is not known: the merge stops (SPEC BRANCH-5). The same holds for a directory
//! that one side moved elsewhere file by file while the other put something new into it.

use std::collections::{BTreeSet, HashMap};

use nas_types::object::{EntryKind, Oid};
use nas_types::path::TreePath;

use crate::diff;
use crate::error::Result;
use crate::object::{Kind, Objects};
use crate::tree::DirRef;

/// Share of content in common, in percent, from which one file may be another one moved. Git says 50.
const SIMILAR_PERCENT: u64 = 40;
/// Larger files are compared by id only, in bytes.
const SIMILAR_BYTES_MAX: u64 = 1 << 20;
/// Comparisons of content in one merge; beyond, everything counts as similar, so the merge stops.
const COMPARISONS_MAX: usize = 100_000;
/// Content is compared in lines, or in pieces of this many bytes.
const PIECE_BYTES: usize = 64;

type Pieces = HashMap<u64, u64>;

/// The files each side added, found when first needed.
pub(crate) struct Renames<'a> {
    objects: &'a dyn Objects,
    sides: [Vec<(TreePath, Oid, u64)>; 2],
    pieces: HashMap<Oid, Pieces>,
    comparisons: usize,
}

impl<'a> Renames<'a> {
    pub(crate) fn new(objects: &'a dyn Objects, base: DirRef, ours: DirRef, theirs: DirRef) -> Result<Self> {
        let added = |side| -> Result<Vec<_>> {
            let changes = diff::trees(objects, base, side, diff::Times::Ignored)?;
            let leaf = |kind: Option<EntryKind>| matches!(kind, Some(EntryKind::File | EntryKind::Symlink));
            let added = changes.into_iter().filter(|change| !leaf(change.old.map(|entry| entry.kind)));
            let files = added.filter_map(|change| {
                let new = change.new?;
                Some((change.path, new.oid?, new.size))
            });
            Ok(files.collect())
        };
        Ok(Self { objects, sides: [added(ours)?, added(theirs)?], pieces: HashMap::new(), comparisons: 0 })
    }

    /// Do the sides differ in where the content of a file that both removed went?
    pub(crate) fn is_ambiguous(&mut self, removed: Oid) -> Result<bool> {
        Ok(self.went_to(0, removed)? != self.went_to(1, removed)?)
    }

    /// Did a side (0: ours, 1: theirs) keep the content of a removed file under another name?
    pub(crate) fn is_moved(&mut self, side: usize, removed: Oid) -> Result<bool> {
        Ok(!self.went_to(side, removed)?.is_empty())
    }

    fn went_to(&mut self, side: usize, removed: Oid) -> Result<BTreeSet<TreePath>> {
        let size = self.objects.header(removed)?.1;
        let mut found = BTreeSet::new();
        if size == 0 {
            return Ok(found);
        }
        for at in 0..self.sides[side].len() {
            let (oid, other) = (self.sides[side][at].1, self.sides[side][at].2);
            if oid == removed || self.is_similar(removed, size, oid, other)? {
                found.insert(self.sides[side][at].0.clone());
            }
        }
        Ok(found)
    }

    fn is_similar(&mut self, a: Oid, a_size: u64, b: Oid, b_size: u64) -> Result<bool> {
        let (small, large) = (a_size.min(b_size), a_size.max(b_size));
        if large > SIMILAR_BYTES_MAX || small * 100 < large * SIMILAR_PERCENT {
            return Ok(false);
        }
        self.comparisons += 1;
        if self.comparisons > COMPARISONS_MAX {
            return Ok(true);
        }
        for oid in [a, b] {
            if !self.pieces.contains_key(&oid) {
                let cut = pieces(&self.objects.load_kind(oid, Kind::Blob)?);
                self.pieces.insert(oid, cut);
            }
        }
        let (a, b) = (&self.pieces[&a], &self.pieces[&b]);
        let common: u64 = a.iter().map(|(piece, bytes)| b.get(piece).map_or(0, |other| *bytes.min(other))).sum();
        Ok(common * 100 >= large * SIMILAR_PERCENT)
    }
}

/// Bytes of content by piece.
fn pieces(bytes: &[u8]) -> Pieces {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut found = Pieces::new();
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        for piece in line.chunks(PIECE_BYTES) {
            let mut hasher = DefaultHasher::new();
            piece.hash(&mut hasher);
            *found.entry(hasher.finish()).or_default() += piece.len() as u64;
        }
    }
    found
}
