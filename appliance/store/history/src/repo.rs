//! The repository itself: opening, refs, a reader for each caller.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nas_types::object::Oid;

use crate::commit::CommitInfo;
use crate::error::{HistoryError, Result};
use crate::hold::{Gate, Hold};
use crate::object::{Kind, Objects as _, Reader};
use crate::refs::{self, Expect};
use crate::writer::Writer;
use crate::{commit, pack};

/// Packs gix can know of at one time; consolidation keeps us far below.
const PACK_SLOTS: u16 = 4096;
/// `gc.auto=0`: stock git must never repack beside us. The rest makes stock git read names as we do.
const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n\tprecomposeUnicode = false\n\tquotePath = true\n\
[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[receive]\n\tautogc = false\n\tfsckObjects = true\n";

/// A bare Git object database in a directory. One process opens it; its threads share it.
pub struct History {
    pub(crate) dir: PathBuf,
    pub(crate) store: Arc<gix::odb::Store>,
    pub(crate) gate: Gate,
    refs: Mutex<()>,
    pub(crate) maintenance: Mutex<()>,
}

impl History {
    /// Opens the repository in `dir`, making it when absent, and removes what a crash left half done.
    pub fn open(dir: &Path) -> Result<Self> {
        let objects = dir.join("objects");
        let packs = objects.join("pack");
        for part in [&packs, &objects.join("info"), &dir.join("refs/heads"), &dir.join("refs/nas")] {
            std::fs::create_dir_all(part).map_err(HistoryError::io("create", part))?;
        }
        if !dir.join("HEAD").exists() {
            create_file(dir, "config", CONFIG)?;
            nas_types::failpoint::hit("history.open.config");
            for part in [dir.join("refs"), objects.clone(), packs.clone()] {
                pack::sync_dir(&part)?;
            }
            // Last: a directory without it is made anew.
            create_file(dir, "HEAD", &format!("ref: {}\n", refs::MAIN))?;
            nas_types::failpoint::hit("history.open.head");
            pack::sync_dir(dir)?;
            if let Some(above) = dir.parent().filter(|above| !above.as_os_str().is_empty()) {
                pack::sync_dir(above)?;
            }
        }
        pack::clean(&packs)?;
        refs::clean(dir)?;
        let options = gix::odb::store::init::Options {
            slots: gix::odb::store::init::Slots::Given(PACK_SLOTS),
            ..Default::default()
        };
        let store = gix::odb::Store::at_opts(objects.clone(), gix::hash::Kind::Sha1, &mut std::iter::empty(), options)
            .map_err(HistoryError::io("open", &objects))?;
        Ok(Self {
            dir: dir.to_path_buf(),
            store: Arc::new(store),
            gate: Gate::default(),
            refs: Mutex::new(()),
            maintenance: Mutex::new(()),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn pack_dir(&self) -> PathBuf {
        self.dir.join("objects/pack")
    }

    pub(crate) fn reader(&self) -> Reader {
        Reader::new(&self.store)
    }

    /// Starts collecting new objects into one pack.
    pub fn writer(&self) -> Result<Writer<'_>> {
        Writer::new(self)
    }

    /// Keeps objects that no ref reaches from being pruned while this lives.
    pub fn hold(&self) -> Hold {
        self.gate.share()
    }

    /// Where a ref points.
    pub fn get_ref(&self, name: &str) -> Result<Option<Oid>> {
        refs::get(&self.dir, name)
    }

    /// All refs whose name starts with `prefix`.
    pub fn list_refs(&self, prefix: &str) -> Result<BTreeMap<String, Oid>> {
        refs::list(&self.dir, prefix)
    }

    /// Moves (`Some`) or deletes (`None`) a ref, durably, if it holds what is expected. The commit must be
    /// durable ([`Writer::finish`]). Its meta ref goes with it.
    pub fn set_ref(&self, name: &str, new: Option<Oid>, expect: Expect) -> Result<()> {
        let _one_at_a_time = self.refs.lock().unwrap_or_else(PoisonError::into_inner);
        let meta_name = refs::meta_of(name);
        let Some(new) = new else {
            refs::delete(&self.dir, name, expect)?;
            return meta_name.map_or(Ok(()), |meta| refs::delete(&self.dir, &meta, Expect::Any));
        };
        // Never a ref to something that is not there.
        let reader = self.reader();
        let meta = match reader.header(new)?.0 {
            Kind::Commit => commit::read(&reader, new)?.meta_commit,
            _ => None,
        };
        let mut moves = vec![(name, new, expect)];
        if let (Some(meta_name), Some(meta)) = (&meta_name, meta) {
            moves.insert(0, (meta_name, meta, Expect::Any));
        }
        refs::set(&self.dir, &moves)
    }

    /// A commit, parsed.
    pub fn commit_info(&self, oid: Oid) -> Result<CommitInfo> {
        commit::read(&self.reader(), oid)
    }

    /// Commits reachable from `tip`, newest first (a child always before its parents on one line), `limit` at most.
    pub fn log(&self, tip: Oid, limit: usize) -> Result<Vec<CommitInfo>> {
        let reader = self.reader();
        let mut seen = std::collections::HashSet::from([tip]);
        let mut heap = std::collections::BinaryHeap::new();
        let mut found = Vec::new();
        let mut infos = std::collections::HashMap::new();
        let mut order = usize::MAX;
        let mut push =
            |oid: Oid, heap: &mut std::collections::BinaryHeap<_>, infos: &mut std::collections::HashMap<_, _>| {
                let info = commit::read(&reader, oid)?;
                order -= 1;
                heap.push((info.time, order, oid));
                infos.insert(oid, info);
                Ok::<(), HistoryError>(())
            };
        push(tip, &mut heap, &mut infos)?;
        while found.len() < limit
            && let Some((_, _, oid)) = heap.pop()
        {
            let info = infos.remove(&oid).expect("because each id in the heap has its commit");
            for parent in &info.parents {
                if seen.insert(*parent) {
                    push(*parent, &mut heap, &mut infos)?;
                }
            }
            found.push(info);
        }
        Ok(found)
    }

    /// Is `ancestor` equal to `tip` or reachable from it?
    pub fn is_ancestor(&self, ancestor: Oid, tip: Oid) -> Result<bool> {
        let reader = self.reader();
        let mut seen = std::collections::HashSet::from([tip]);
        let mut todo = vec![tip];
        while let Some(oid) = todo.pop() {
            if oid == ancestor {
                return Ok(true);
            }
            let parents = commit::parse(oid, &reader.load_kind(oid, Kind::Commit)?)?.parents;
            todo.extend(parents.into_iter().filter(|parent| seen.insert(*parent)));
        }
        Ok(false)
    }
}

fn create_file(dir: &Path, name: &str, text: &str) -> Result<()> {
    let path = dir.join(name);
    let tmp = dir.join(format!("{name}.tmp"));
    let written =
        File::create(&tmp).and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.and_then(|()| std::fs::rename(&tmp, &path)).map_err(HistoryError::io("write", &path))
}
