//! Three-way merge of two commits. It either knows the result or stops with every conflict it found
//! (SPEC BRANCH-5); there is no tree that holds a guess.
//!
//! - Path by path, on kind, content and mode. Equal subtrees are never looked into. There are no renames: one is
//!   a deletion and an addition, so a file that the other side changed under its old name is a conflict, and so is
//!   one that both moved, but not to the same place ([`crate::renames`]).
//! - Content that both changed is merged by line if it is text and the changes are apart ([`crate::text`]).
//!   Structured data is not: its lines are not its parts.
//! - A directory that one side removed while the other put or changed something in it is a conflict.
//! - A file's time follows the side whose content is taken; a file that was only touched was not changed.
//! - Two names that differ only in case or Unicode form may exist on one side, but do not newly meet by a merge.

use std::collections::{BTreeMap, HashMap};

use nas_types::object::{Change, Conflict, ConflictKind, Entry, EntryKind, KeyDomain, Oid};
use nas_types::path::TreePath;
use unicode_normalization::UnicodeNormalization as _;

use crate::commit::{self, Trees};
use crate::diff;
use crate::edit::Edit;
use crate::error::{HistoryError, Result};
use crate::object::{self, Kind, Objects};
use crate::read::{dir_entry, join};
use crate::renames::Renames;
use crate::repo::History;
use crate::text;
use crate::tree::{self, DirRef, Listing, Slot};
use crate::writer::Writer;

/// Most bytes of content that one merge makes itself (files merged by line), all held in memory.
pub const MERGED_BYTES_MAX: u64 = 128 << 20;
/// File name extensions of structured data: merged by a registered tool, later, or by a person.
const STRUCTURED: [&[u8]; 4] = [b"json", b"yaml", b"yml", b"toml"];

/// How a merge ended.
#[derive(Debug)]
pub enum Merge {
    /// It is known what the result is.
    Clean(Merged),
    /// It is not. Sorted by path.
    Conflicts(Vec<Conflict>),
}

/// The result of a clean merge, as the way from `ours` to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// Changes from `ours` to the result, sorted by path. Their content is in the history, or in `blobs`.
    pub changes: Vec<Change>,
    /// Content made by merging lines, not yet stored.
    pub blobs: BTreeMap<Oid, Vec<u8>>,
}

impl Writer<'_> {
    /// Stores the result of a merge, given the commit that was `ours`, and returns its trees for a commit.
    pub fn apply_merge(&mut self, ours: Oid, merged: &Merged) -> Result<Trees> {
        for bytes in merged.blobs.values() {
            self.put_blob(bytes)?;
        }
        self.apply(Some(ours), merged.changes.iter().map(Edit::from_change))
    }
}

impl History {
    /// Merges what `theirs` changed since `base` into `ours`. Writes nothing.
    pub fn merge(&self, base: Oid, ours: Oid, theirs: Oid) -> Result<Merge> {
        let reader = self.reader();
        let root = |oid| commit::read(&reader, oid).map(|info| DirRef::from(info.trees));
        let (base, ours, theirs) = (root(base)?, root(ours)?, root(theirs)?);
        let mut run = Run {
            objects: &reader,
            changes: Vec::new(),
            conflicts: Vec::new(),
            blobs: BTreeMap::new(),
            blob_bytes: 0,
            both_removed: Vec::new(),
            emptied: Vec::new(),
        };
        run.dirs(&TreePath::root(), base, ours, theirs)?;
        run.ambiguous_renames(base, ours, theirs)?;
        if run.conflicts.is_empty() {
            run.changes.sort_unstable_by(|a, b| a.path.cmp(&b.path));
            run.changes.iter_mut().for_each(keep_time);
            Ok(Merge::Clean(Merged { changes: run.changes, blobs: run.blobs }))
        } else {
            run.conflicts.sort_by(|a, b| a.path.cmp(&b.path));
            run.conflicts.dedup();
            Ok(Merge::Conflicts(run.conflicts))
        }
    }
}

/// A reference to content.
type Blob = (Oid, KeyDomain);

/// Of a file whose content stays, the time stays.
fn keep_time(change: &mut Change) {
    if let (Some(old), Some(new)) = (&change.old, &mut change.new)
        && (old.kind, old.oid, old.key_domain) == (new.kind, new.oid, new.key_domain)
    {
        new.mtime = old.mtime;
    }
}

struct Run<'a> {
    objects: &'a dyn Objects,
    changes: Vec<Change>,
    conflicts: Vec<Conflict>,
    blobs: BTreeMap<Oid, Vec<u8>>,
    blob_bytes: u64,
    /// Files that both sides removed: where, and their content in the base.
    both_removed: Vec<(TreePath, Oid)>,
    emptied: Vec<Emptied>,
}

/// A directory in which one side left no file while the other added some.
struct Emptied {
    side: usize,
    removed: Vec<Oid>,
    added: Vec<TreePath>,
}

impl Run<'_> {
    fn conflict(&mut self, path: &TreePath, kind: ConflictKind) {
        self.conflicts.push(Conflict { path: path.clone(), kind });
    }

    fn dirs(&mut self, path: &TreePath, base: DirRef, ours: DirRef, theirs: DirRef) -> Result<()> {
        if ours == theirs {
            let mut alike = Vec::new();
            diff::dirs(self.objects, path, base, ours, &mut alike)?;
            self.note_both_removed(alike);
            return Ok(());
        }
        if theirs == base {
            return Ok(());
        }
        if ours == base {
            return diff::dirs(self.objects, path, ours, theirs, &mut self.changes);
        }
        let [base, ours, theirs] = [base, ours, theirs].map(|dir| tree::read(self.objects, dir));
        let (base, ours, theirs) = (base?, ours?, theirs?);
        let mut added = Vec::new();
        for name in diff::names(&[&base, &ours, &theirs]) {
            let below = join(path, name, None)?;
            let (base, ours, theirs) = (base.get(name), ours.get(name), theirs.get(name));
            self.slots(&below, base, ours, theirs)?;
            if ours.is_none() && theirs.is_some() && base != theirs {
                added.push(name);
            }
        }
        self.collisions(path, &ours, &theirs, &base, &added)
    }

    fn slots(
        &mut self,
        path: &TreePath,
        base: Option<&Slot>,
        ours: Option<&Slot>,
        theirs: Option<&Slot>,
    ) -> Result<()> {
        if tree::alike(ours, theirs) {
            let mut alike = Vec::new();
            diff::slots(self.objects, path, base, ours, &mut alike)?;
            self.note_both_removed(alike);
            return Ok(());
        }
        if tree::alike(theirs, base) {
            return Ok(());
        }
        if tree::alike(ours, base) {
            // A directory they removed or replaced is theirs to remove: nothing of ours is in it.
            return diff::slots(self.objects, path, ours, theirs, &mut self.changes);
        }
        match (ours, theirs) {
            (Some(Slot::Dir { mode: our_mode, dir: ours }), Some(Slot::Dir { mode: their_mode, dir: theirs })) => {
                let base_mode = base.filter(|slot| slot.as_dir().is_some()).map(Slot::mode);
                self.dir_mode(path, base_mode, *our_mode, *their_mode);
                if let Some(Slot::Leaf { oid, .. }) = base {
                    self.both_removed.push((path.clone(), *oid));
                }
                let base = base.and_then(Slot::as_dir).unwrap_or_default();
                self.note_emptied(path, base, *ours, *theirs)?;
                self.dirs(path, base, *ours, *theirs)
            }
            (Some(ours @ Slot::Leaf { .. }), Some(theirs @ Slot::Leaf { .. })) => self.leaves(path, base, ours, theirs),
            (Some(_), Some(_)) => {
                self.conflict(path, ConflictKind::Kinds);
                Ok(())
            }
            (Some(left), None) | (None, Some(left)) => self.one_side_removed(path, base, left, ours.is_some()),
            (None, None) => unreachable!("equal sides were handled first"),
        }
    }

    /// Of changes that both sides made alike: the files that are gone, which each may have moved elsewhere.
    fn note_both_removed(&mut self, alike: Vec<Change>) {
        let gone = alike.into_iter().filter(|change| change.new.is_none_or(|new| new.oid.is_none()));
        self.both_removed.extend(gone.filter_map(|change| Some((change.path, change.old?.oid?))));
    }

    /// Notes a directory that one side emptied of files and the other added files to.
    fn note_emptied(&mut self, path: &TreePath, base: DirRef, ours: DirRef, theirs: DirRef) -> Result<()> {
        let (side, other) = match (ours.content, theirs.content) {
            (None, Some(_)) => (0, theirs),
            (Some(_), None) => (1, ours),
            _ => return Ok(()),
        };
        if base.content.is_none() {
            return Ok(());
        }
        let mut gone = Vec::new();
        diff::dirs(self.objects, path, base, DirRef::default(), &mut gone)?;
        let mut changed = Vec::new();
        diff::dirs(self.objects, path, base, other, &mut changed)?;
        let removed = gone.into_iter().filter_map(|change| change.old?.oid).collect();
        let added = changed.into_iter().filter(|change| change.old.is_none()).map(|change| change.path).collect();
        self.emptied.push(Emptied { side, removed, added });
        Ok(())
    }

    fn ambiguous_renames(&mut self, base: DirRef, ours: DirRef, theirs: DirRef) -> Result<()> {
        if self.both_removed.is_empty() && self.emptied.is_empty() {
            return Ok(());
        }
        let mut renames = Renames::new(self.objects, base, ours, theirs)?;
        for (path, oid) in std::mem::take(&mut self.both_removed) {
            if renames.is_ambiguous(oid)? {
                self.conflict(&path, ConflictKind::ChangedAndDeleted);
            }
        }
        for Emptied { side, removed, added } in std::mem::take(&mut self.emptied) {
            let mut moved = false;
            for oid in removed {
                moved = moved || renames.is_moved(side, oid)?;
            }
            for path in added.iter().filter(|_| moved) {
                self.conflict(path, ConflictKind::ChangedAndDeleted);
            }
        }
        Ok(())
    }

    fn dir_mode(&mut self, path: &TreePath, base: Option<u32>, ours: u32, theirs: u32) {
        match three_way(base, ours, theirs) {
            None => self.conflict(path, ConflictKind::Mode),
            Some(mode) if mode != ours => {
                let (old, new) = (dir_entry(ours), dir_entry(mode));
                self.changes.push(Change { path: path.clone(), old: Some(old), new: Some(new) });
            }
            Some(_) => {}
        }
    }

    /// One side removed what the other changed. Removing on both sides, the one less than the other, is no conflict.
    fn one_side_removed(&mut self, path: &TreePath, base: Option<&Slot>, left: &Slot, ours_left: bool) -> Result<()> {
        let mut since_base = Vec::new();
        diff::slots(self.objects, path, base, Some(left), &mut since_base)?;
        let both_dirs = base.and_then(Slot::as_dir).is_some() && left.as_dir().is_some();
        let only_removals = both_dirs && since_base.iter().all(|change| change.new.is_none());
        if only_removals {
            self.note_both_removed(since_base);
            if ours_left {
                diff::slots(self.objects, path, Some(left), None, &mut self.changes)?;
            }
            return Ok(());
        }
        for change in since_base.iter().filter(|change| change.new.is_some()) {
            self.conflict(&change.path, ConflictKind::ChangedAndDeleted);
        }
        // Never leave without one: a change that shows no path of its own is still a change.
        if !since_base.iter().any(|change| change.new.is_some()) {
            self.conflict(path, ConflictKind::ChangedAndDeleted);
        }
        Ok(())
    }

    fn leaves(&mut self, path: &TreePath, base: Option<&Slot>, ours: &Slot, theirs: &Slot) -> Result<()> {
        if ours.kind() != theirs.kind() {
            self.conflict(path, ConflictKind::Kinds);
            return Ok(());
        }
        let base = base.filter(|slot| slot.kind() == ours.kind());
        let blob = |slot: &Slot| match slot {
            Slot::Leaf { oid, key_domain, .. } => (*oid, *key_domain),
            Slot::Dir { .. } => unreachable!("only leaves come here"),
        };
        let mode = three_way(base.map(Slot::mode), ours.mode(), theirs.mode());
        let content = match three_way(base.map(blob), blob(ours), blob(theirs)) {
            Some(content) => Some(content),
            None => match base {
                Some(base) => self.merge_lines(path, ours.kind(), blob(base), blob(ours), blob(theirs))?,
                None => {
                    self.conflict(path, ConflictKind::BothAdded);
                    None
                }
            },
        };
        if mode.is_none() {
            self.conflict(path, ConflictKind::Mode);
        }
        let (Some(mode), Some((oid, key_domain))) = (mode, content) else { return Ok(()) };
        let old = crate::read::entry(self.objects, ours)?;
        let mtime = match (oid, key_domain) {
            content if content == blob(ours) => ours.mtime(),
            content if content == blob(theirs) => theirs.mtime(),
            // Made of both.
            _ => ours.mtime().max(theirs.mtime()),
        };
        let size = match self.blobs.get(&oid) {
            Some(bytes) => bytes.len() as u64,
            None => self.objects.header(oid)?.1,
        };
        let new = Entry { kind: ours.kind(), mode, oid: Some(oid), size, mtime, key_domain };
        if new != old {
            self.changes.push(Change { path: path.clone(), old: Some(old), new: Some(new) });
        }
        Ok(())
    }

    /// The merged content, or `None` and a conflict.
    fn merge_lines(
        &mut self,
        path: &TreePath,
        kind: EntryKind,
        (base, _): Blob,
        (ours, domain): Blob,
        (theirs, their_domain): Blob,
    ) -> Result<Option<Blob>> {
        let name = path.split_last().map(|(_, name)| name.as_bytes().to_ascii_lowercase()).unwrap_or_default();
        let extension = name.rsplit(|b| *b == b'.').next().unwrap_or_default();
        let by_line = kind == EntryKind::File && domain == their_domain && !STRUCTURED.contains(&extension);
        let mut merged = None;
        if by_line && self.small_enough(&[base, ours, theirs])? {
            let [base, ours, theirs] = [base, ours, theirs].map(|oid| self.objects.load_kind(oid, Kind::Blob));
            let (base, ours, theirs) = (base?, ours?, theirs?);
            if [&base, &ours, &theirs].iter().all(|bytes| text::is_text(bytes)) {
                merged = text::merge(&base, &ours, &theirs);
            }
        }
        let Some(bytes) = merged else {
            self.conflict(path, ConflictKind::Content);
            return Ok(None);
        };
        let oid = object::hash(Kind::Blob, &bytes)?;
        self.blob_bytes += bytes.len() as u64;
        if self.blob_bytes > MERGED_BYTES_MAX {
            let what = "bytes of files merged by line in one merge";
            return Err(HistoryError::TooLarge { what, found: self.blob_bytes, max: MERGED_BYTES_MAX });
        }
        self.blobs.insert(oid, bytes);
        Ok(Some((oid, domain)))
    }

    fn small_enough(&self, oids: &[Oid]) -> Result<bool> {
        for oid in oids {
            if self.objects.header(*oid)?.1 > text::MERGE_TEXT_BYTES_MAX {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Names that they added to this directory and that look like another name which stays in it.
    fn collisions(
        &mut self,
        path: &TreePath,
        ours: &Listing,
        theirs: &Listing,
        base: &Listing,
        added: &[&[u8]],
    ) -> Result<()> {
        if added.is_empty() {
            return Ok(());
        }
        let mut kept: HashMap<Vec<u8>, Vec<&[u8]>> = HashMap::new();
        // What they removed goes, unless we changed it: that is a conflict of its own already.
        for name in ours.keys().filter(|name| theirs.contains_key(*name) || !base.contains_key(*name)) {
            kept.entry(look(name)).or_default().push(name);
        }
        for name in added {
            for other in kept.get(&look(name)).into_iter().flatten() {
                // Both are theirs: they stood side by side before the merge.
                if !theirs.contains_key(*other) {
                    self.conflict(&join(path, name, None)?, ConflictKind::NameCollision);
                    self.conflict(&join(path, other, None)?, ConflictKind::NameCollision);
                }
            }
        }
        Ok(())
    }
}

/// The side that changed, or both when they agree. Without a base both sides must agree.
fn three_way<T: PartialEq + Copy>(base: Option<T>, ours: T, theirs: T) -> Option<T> {
    if ours == theirs || base == Some(theirs) {
        Some(ours)
    } else if base == Some(ours) {
        Some(theirs)
    } else {
        None
    }
}

/// What a name looks like on a system that ignores case and Unicode form.
fn look(name: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(name) {
        Ok(text) => text.nfd().flat_map(char::to_lowercase).nfc().collect::<String>().into_bytes(),
        Err(_) => name.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks() {
        assert_eq!(look("Caf\u{e9}".as_bytes()), look("cafe\u{301}".as_bytes()));
        assert_eq!(look(b"README"), look(b"readme"));
        assert_ne!(look(b"a"), look(b"b"));
        assert_eq!(look(b"A\xff"), look(b"a\xff"));
    }
}
