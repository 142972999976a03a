//! Upkeep when idle: joining packs, pruning what no ref reaches.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use gix::odb::pack::index;
use nas_types::failpoint;
use nas_types::object::Oid;

use crate::commit;
use crate::error::{HistoryError, Result};
use crate::object::{self, EMPTY_TREE, Kind, Objects, Reader, from_gix};
use crate::pack::{self, PackWriter};
use crate::repo::History;

/// What joining packs did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consolidated {
    /// Packs before.
    pub packs_before: usize,
    /// Packs after.
    pub packs_after: usize,
}

/// What pruning did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pruned {
    /// Objects that nothing reached are gone.
    Done {
        /// How many.
        objects: usize,
    },
    /// A writer is at work: nothing was removed, try again when idle.
    Busy,
}

struct Pack {
    idx: PathBuf,
    index: index::File,
}

impl Pack {
    fn ids(&self) -> impl Iterator<Item = Oid> + '_ {
        (0..self.index.num_objects()).map(|at| from_gix(self.index.oid_at_index(at)))
    }
}

impl History {
    fn packs(&self) -> Result<Vec<Pack>> {
        let mut found = Vec::new();
        for idx in self.indexes()? {
            // A `.keep` file is git's way to say: leave this pack alone.
            if idx.with_extension("keep").exists() {
                continue;
            }
            let index = index::File::at(&idx, gix::hash::Kind::Sha1)
                .map_err(|err| HistoryError::io("read", &idx)(std::io::Error::other(err.to_string())))?;
            found.push(Pack { idx, index });
        }
        Ok(found)
    }

    /// How many packs there are.
    pub fn pack_count(&self) -> Result<usize> {
        Ok(self.indexes()?.len())
    }

    /// Joins small packs into one so that the sizes of all packs form a geometric row with factor 2: each object is
    /// copied O(log n) times in its life and lookups look into O(log n) packs. Readers and writers go on meanwhile.
    pub fn consolidate(&self) -> Result<Consolidated> {
        let _one_at_a_time = self.maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        let mut packs = self.packs()?;
        packs.sort_by_key(|pack| pack.index.num_objects());
        let packs_before = packs.len();
        // The longest tail in which each pack has at least twice the objects of all before it stays.
        let mut joined = 0;
        let mut sum = 0u64;
        for (at, pack) in packs.iter().enumerate() {
            let objects = u64::from(pack.index.num_objects());
            if at > 0 && objects < 2 * sum {
                joined = at + 1;
            }
            sum += objects;
        }
        if joined < 2 {
            return Ok(Consolidated { packs_before, packs_after: packs_before });
        }
        packs.truncate(joined);
        let mut writer = PackWriter::create(&self.pack_dir())?;
        for pack in &packs {
            self.copy_pack(pack, &mut writer, &|_| true)?;
        }
        let new = writer.finish()?;
        failpoint::hit("history.consolidate.written");
        self.remove_packs(&packs, new.as_deref())?;
        Ok(Consolidated { packs_before, packs_after: packs_before - joined + 1 })
    }

    /// Copies entries byte by byte; only deltas, which we never write, are rebuilt.
    fn copy_pack(&self, pack: &Pack, writer: &mut PackWriter, wanted: &dyn Fn(Oid) -> bool) -> Result<()> {
        let path = pack.idx.with_extension("pack");
        let file = File::open(&path).map_err(HistoryError::io("open", &path))?;
        let length = file.metadata().map_err(HistoryError::io("stat", &path))?.len();
        let mut entries: Vec<_> =
            (0..pack.index.num_objects()).map(|at| (pack.index.pack_offset_at_index(at), at)).collect();
        entries.sort_unstable();
        let ends: Vec<u64> =
            entries.iter().skip(1).map(|(offset, _)| *offset).chain([length.saturating_sub(20)]).collect();
        let reader = self.reader();
        let mut bytes = Vec::new();
        for ((offset, at), end) in entries.into_iter().zip(ends) {
            let oid = from_gix(pack.index.oid_at_index(at));
            if !wanted(oid) || writer.contains(oid) {
                continue;
            }
            let size = end.checked_sub(offset).ok_or_else(|| HistoryError::corrupt(oid, "its pack ends before it"))?;
            bytes.resize(usize::try_from(size).map_err(|err| HistoryError::corrupt(oid, err))?, 0);
            file.read_exact_at(&mut bytes, offset).map_err(HistoryError::io("read", &path))?;
            let mut crc = flate2::Crc::new();
            crc.update(&bytes);
            if pack.index.crc32_at_index(at).is_some_and(|stored| stored != crc.sum()) {
                return Err(HistoryError::corrupt(oid, "its bytes in the pack differ from their checksum"));
            }
            let (number, _) =
                pack::read_entry_head(&mut bytes.as_slice()).map_err(|err| HistoryError::corrupt(oid, err))?;
            if pack::whole_kind(number).is_some() {
                writer.add(oid, &bytes)?;
            } else {
                let (kind, content) = reader.load(oid)?;
                writer.add(oid, &object::entry_bytes(kind, &content))?;
            }
        }
        Ok(())
    }

    /// Removes packs whose objects are elsewhere or unreachable, except `new`, which may have the name of one of them.
    /// Readers look at the packs again afterwards, also when only some could be removed.
    fn remove_packs(&self, packs: &[Pack], new: Option<&Path>) -> Result<()> {
        let removed = self.remove_each(packs, new);
        self.reader().has(Oid([0; 20]));
        removed
    }

    fn remove_each(&self, packs: &[Pack], new: Option<&Path>) -> Result<()> {
        for pack in packs {
            let path = pack.idx.with_extension("pack");
            if new == Some(path.as_path()) {
                continue;
            }
            // The index first: a reader that finds an index must find its pack.
            for file in [&pack.idx, &path] {
                std::fs::remove_file(file).map_err(HistoryError::io("remove", file))?;
                failpoint::hit("history.pack.removed");
            }
            for extra in ["rev", "bitmap", "mtimes"] {
                let _ = std::fs::remove_file(path.with_extension(extra));
            }
        }
        pack::sync_dir(&self.pack_dir())
    }

    /// Drops objects that no ref reaches (recycled branches, squashed commits). Marking and copying run beside
    /// readers and writers; only the last step needs that no writer is at work (see [`crate::History::hold`]), looks at
    /// the refs again, and removes packs only if nothing they alone hold has become reachable.
    pub fn prune(&self) -> Result<Pruned> {
        let _one_at_a_time = self.maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        if self.gate.try_exclusive().is_none() {
            return Ok(Pruned::Busy);
        }
        let packs = self.packs()?;
        let mut live = HashSet::from([EMPTY_TREE]);
        self.mark(&mut live)?;
        let with_garbage: Vec<Pack> =
            packs.into_iter().filter(|pack| pack.ids().any(|oid| !live.contains(&oid))).collect();
        let dead: HashSet<Oid> = with_garbage.iter().flat_map(Pack::ids).filter(|oid| !live.contains(oid)).collect();
        if dead.is_empty() {
            return Ok(Pruned::Done { objects: 0 });
        }
        let mut writer = PackWriter::create(&self.pack_dir())?;
        for pack in &with_garbage {
            self.copy_pack(pack, &mut writer, &|oid| live.contains(&oid))?;
        }
        let new = writer.finish()?;
        failpoint::hit("history.prune.written");

        let Some(_no_writer) = self.gate.try_exclusive() else { return Ok(Pruned::Busy) };
        self.mark(&mut live)?;
        if dead.iter().any(|oid| live.contains(oid)) {
            // A ref came to reach what was about to go: rare, and the next attempt copies it.
            return Ok(Pruned::Busy);
        }
        self.remove_packs(&with_garbage, new.as_deref())?;
        Ok(Pruned::Done { objects: dead.len() })
    }

    /// Adds everything the refs reach to `live`; what is in it already is not looked into again.
    fn mark(&self, live: &mut HashSet<Oid>) -> Result<()> {
        let reader = self.reader();
        let mut todo: Vec<Oid> = self.list_refs("refs/")?.into_values().collect();
        while let Some(oid) = todo.pop() {
            if live.insert(oid) {
                mark_one(&reader, oid, live, &mut todo)?;
            }
        }
        Ok(())
    }
}

/// Marks blobs of a tree at once and queues what has to be looked into.
fn mark_one(reader: &Reader, oid: Oid, live: &mut HashSet<Oid>, todo: &mut Vec<Oid>) -> Result<()> {
    let (kind, bytes) = reader.load(oid)?;
    match kind {
        Kind::Blob => {}
        Kind::Commit => {
            let info = commit::parse(oid, &bytes)?;
            todo.extend(info.parents);
            todo.extend(info.trees.content);
            // A pushed commit may name a meta commit that never was.
            todo.extend(info.meta_commit.filter(|meta| reader.has(*meta)));
        }
        Kind::Tree => {
            for entry in gix::objs::TreeRefIter::from_bytes(&bytes, gix::hash::Kind::Sha1) {
                let entry = entry.map_err(|err| HistoryError::corrupt(oid, err))?;
                let id = from_gix(entry.oid);
                if entry.mode.is_tree() {
                    todo.push(id);
                } else {
                    live.insert(id);
                }
            }
        }
        Kind::Tag => {
            let tag = gix::objs::TagRefIter::from_bytes(&bytes, gix::hash::Kind::Sha1);
            todo.push(from_gix(&tag.target_id().map_err(|err| HistoryError::corrupt(oid, err))?));
        }
    }
    Ok(())
}
