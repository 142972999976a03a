//! Differences of two commits. Subtrees with equal ids are never looked into.
//!
//! What is listed for directories: a mode that changed; every directory that is gone (removing what was in it
//! would leave it there, empty); a new one only when it is empty or has a mode of its own (what is in it implies
//! the rest, and who merges next to it should not see a difference). A path that changes kind is always listed.
//!
//! A file's time alone is no change, for people and for a merge; only who puts files back exactly asks for it ([`Times`]).

use nas_types::object::{Change, Oid};
use nas_types::path::TreePath;

use crate::commit;
use crate::error::Result;
use crate::object::Objects;
use crate::read::{entry, join};
use crate::repo::History;
use crate::tree::{self, DIR_MODE, DirRef, Listing, Slot};

impl History {
    /// What changes from commit `old` (`None`: nothing) to commit `new`, sorted by path. A legal list of edits
    /// through [`crate::Edit::from_change`]: a directory comes before what is in it.
    pub fn diff(&self, old: Option<Oid>, new: Oid) -> Result<Vec<Change>> {
        let reader = self.reader();
        let old = old.map(|old| commit::read(&reader, old)).transpose()?.map(|info| info.trees).unwrap_or_default();
        let new = commit::read(&reader, new)?.trees;
        trees(&reader, old.into(), new.into(), Times::Ignored)
    }

    /// Like [`diff`](Self::diff), and lists files of which only the time differs as well.
    pub fn diff_with_times(&self, old: Oid, new: Oid) -> Result<Vec<Change>> {
        let reader = self.reader();
        let (old, new) = (commit::read(&reader, old)?.trees, commit::read(&reader, new)?.trees);
        trees(&reader, old.into(), new.into(), Times::Compared)
    }

    /// Like [`diff`](Self::diff), of trees.
    pub fn diff_trees(&self, old: crate::Trees, new: crate::Trees) -> Result<Vec<Change>> {
        trees(&self.reader(), old.into(), new.into(), Times::Ignored)
    }
}

/// Does the time of a file count as a part of it?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    Ignored,
    Compared,
}

pub(crate) fn trees(objects: &dyn Objects, old: DirRef, new: DirRef, times: Times) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    dirs_by(times, objects, &TreePath::root(), old, new, &mut changes)?;
    changes.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(changes)
}

/// The changes from one directory to another at `path`, times aside.
pub(crate) fn dirs(
    objects: &dyn Objects,
    path: &TreePath,
    old: DirRef,
    new: DirRef,
    out: &mut Vec<Change>,
) -> Result<()> {
    dirs_by(Times::Ignored, objects, path, old, new, out)
}

/// The changes from one slot to another at `path`, times aside.
pub(crate) fn slots(
    objects: &dyn Objects,
    path: &TreePath,
    old: Option<&Slot>,
    new: Option<&Slot>,
    out: &mut Vec<Change>,
) -> Result<()> {
    slots_by(Times::Ignored, objects, path, old, new, out)
}

fn dirs_by(
    times: Times,
    objects: &dyn Objects,
    path: &TreePath,
    old: DirRef,
    new: DirRef,
    out: &mut Vec<Change>,
) -> Result<()> {
    if old == new {
        return Ok(());
    }
    let old_listing = tree::read(objects, old)?;
    let new_listing = tree::read(objects, new)?;
    for name in names(&[&old_listing, &new_listing]) {
        let (old, new) = (old_listing.get(name), new_listing.get(name));
        if old != new {
            slots_by(times, objects, &join(path, name, None)?, old, new, out)?;
        }
    }
    Ok(())
}

/// The names of several listings, each once, sorted.
pub(crate) fn names<'a>(listings: &[&'a Listing]) -> std::collections::BTreeSet<&'a [u8]> {
    listings.iter().flat_map(|listing| listing.keys().map(Vec::as_slice)).collect()
}

fn slots_by(
    times: Times,
    objects: &dyn Objects,
    path: &TreePath,
    old: Option<&Slot>,
    new: Option<&Slot>,
    out: &mut Vec<Change>,
) -> Result<()> {
    if times == Times::Ignored && tree::alike(old, new) {
        return Ok(());
    }
    let old_dir = old.and_then(Slot::as_dir);
    let new_dir = new.and_then(Slot::as_dir);
    let implied = match (old, new, new_dir) {
        (None, Some(slot), Some(dir)) => slot.mode() == DIR_MODE && dir != DirRef::default(),
        (Some(old), Some(new), Some(_)) if old_dir.is_some() => old.mode() == new.mode(),
        _ => false,
    };
    if !implied {
        let old = old.map(|slot| entry(objects, slot)).transpose()?;
        let new = new.map(|slot| entry(objects, slot)).transpose()?;
        out.push(Change { path: path.clone(), old, new });
    }
    // The missing side of a directory that appears or goes is an empty one.
    if old_dir.is_some() || new_dir.is_some() {
        dirs_by(times, objects, path, old_dir.unwrap_or_default(), new_dir.unwrap_or_default(), out)?;
    }
    Ok(())
}
