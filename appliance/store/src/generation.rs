//! Main: a chain of immutable generations (SPEC BRANCH-1, DESIGN §3).
//!
//! Generation n+1 is a snapshot of n with the changes of one merge applied in it, never a snapshot of a branch: the first
//! files made in two forks get the same inode number and birth tick, so a branch's files would collide with main's.
//! It is complete, read-only and synced before anyone is told of it. Which one is current is decided by the
//! [`Pointer`] that the caller keeps in its ledger; a crash leaves n or n+1, and the other one is cleaned at open.
//!
//! On disk: `gen/<number>-<first 12 digits of the commit>`: two attempts at n+1 never share a directory.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use nas_history::{CommitSpec, Edit, Expect, Hold, Merge, Merged, Put, refs};
use nas_types::failpoint;
use nas_types::id::GateId;
use nas_types::object::{Change, Conflict, Oid, Provenance};
use nas_types::path::TreePath;
use parking_lot::{Mutex, RwLock};

use crate::apply::{apply, put_dir};
use crate::disk::open_root;
use crate::error::StoreError;
use crate::live::LiveDir;
use crate::reaper::Reap;
use crate::space::Limits;
use crate::store::Core;

/// Top level directories of the default tree.
const TOP: [&str; 3] = ["agents", "shared", "humans"];

/// Which generation is main. Kept in the ledger by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    /// Number of the generation, from 1.
    pub number: u64,
    /// Commit whose files it holds.
    pub commit: Oid,
}

/// One generation, read-only.
#[derive(Debug)]
pub struct Generation {
    pointer: Pointer,
    live: LiveDir,
}

impl Generation {
    fn open(core: &Core, pointer: Pointer) -> Result<Self, StoreError> {
        let dir = path_of(core, pointer);
        let live = LiveDir::open(&dir, core.shared.clone(), None, Limits::NONE)
            .map_err(|source| StoreError::Files { branch: format!("generation {} of main", pointer.number), source })?;
        Ok(Self { pointer, live })
    }

    /// Which one.
    #[must_use]
    pub fn pointer(&self) -> Pointer {
        self.pointer
    }

    /// Its files. References stay good in the next generation where the engine keeps inodes; a file that a merge replaced is
    /// a new file, as in any file system.
    #[must_use]
    pub fn live(&self) -> &LiveDir {
        &self.live
    }

    pub(crate) fn dir(&self) -> &Path {
        self.live.path()
    }
}

fn path_of(core: &Core, pointer: Pointer) -> PathBuf {
    core.pool.join("gen").join(format!("{}-{}", pointer.number, &pointer.commit.to_string()[..12]))
}

/// A merge that is known to be clean, on the generation it was prepared for.
#[derive(Debug)]
pub struct PreparedMerge {
    on: Pointer,
    pinned: Option<Oid>,
    merged: Merged,
}

impl PreparedMerge {
    /// Leaves out the changes that `keep` does not want: what is merged is a part of it.
    pub fn retain(&mut self, keep: impl FnMut(&Change) -> bool) {
        self.merged.changes.retain(keep);
    }

    /// What it changes on main, sorted by path.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.merged.changes
    }

    /// The generation it was prepared on.
    #[must_use]
    pub fn on(&self) -> Pointer {
        self.on
    }

    /// Content that merging by line made and that is not in the history before [`stage`](crate::Store::stage).
    #[must_use]
    pub fn merged_blob(&self, oid: Oid) -> Option<&[u8]> {
        self.merged.blobs.get(&oid).map(Vec::as_slice)
    }
}

/// How preparing a merge ended.
#[derive(Debug)]
pub enum Prepared {
    /// The result is known.
    Clean(PreparedMerge),
    /// It is not (SPEC BRANCH-5).
    Conflicts(Vec<Conflict>),
}

/// A generation that is complete and durable, and not yet main. Publish or abandon it.
#[must_use = "a staged generation is published or abandoned"]
pub struct Staged {
    pointer: Pointer,
    on: Pointer,
    dir: PathBuf,
    /// Open already: once the ledger has decided, publishing must not fail for want of a descriptor.
    next: Arc<Generation>,
    /// Keeps its objects from being pruned until main's ref reaches them.
    hold: Hold,
}

impl std::fmt::Debug for Staged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Staged").field("pointer", &self.pointer).field("on", &self.on).finish_non_exhaustive()
    }
}

impl Staged {
    /// What the ledger's pointer becomes.
    #[must_use]
    pub fn pointer(&self) -> Pointer {
        self.pointer
    }

    /// What the ledger's pointer must be.
    #[must_use]
    pub fn on(&self) -> Pointer {
        self.on
    }
}

/// Main.
#[derive(Debug)]
pub(crate) struct Main {
    current: RwLock<Arc<Generation>>,
    /// Directories of generations being staged.
    staging: Mutex<HashSet<PathBuf>>,
}

impl Main {
    /// Opens main where `pointer` says, or makes the first generation. What a crash left staged is removed. A pointer behind
    /// main's ref is refused, with everything left as it is.
    pub(crate) fn open(core: &Core, pointer: Option<Pointer>) -> Result<Self, StoreError> {
        let pointer = match pointer {
            Some(pointer) => pointer,
            None => first(core)?,
        };
        refuse_old_ledger(core, pointer)?;
        let keep = path_of(core, pointer);
        let gens = core.pool.join("gen");
        for entry in std::fs::read_dir(&gens).map_err(StoreError::io("reading", &gens))? {
            let path = entry.map_err(StoreError::io("reading", &gens))?.path();
            if path != keep {
                core.reap(Reap::Now(path));
            }
        }
        let current = Generation::open(core, pointer)?;
        roll_forward(core, pointer.commit)?;
        Ok(Self { current: RwLock::new(Arc::new(current)), staging: Mutex::default() })
    }

    pub(crate) fn current(&self) -> Arc<Generation> {
        Arc::clone(&self.current.read())
    }

    pub(crate) fn prepare_merge(&self, core: &Core, pinned: Oid) -> Result<Prepared, StoreError> {
        let on = self.current().pointer;
        let base = core
            .history
            .commit_info(pinned)
            .map_err(StoreError::history("reading what was pinned"))?
            .parents
            .first()
            .copied();
        let base = base.ok_or_else(|| StoreError::Damaged {
            path: pinned.to_string(),
            why: "a pinned commit has no base".into(),
        })?;
        let merge = core.history.merge(base, on.commit, pinned).map_err(StoreError::history("merging"))?;
        Ok(match merge {
            Merge::Clean(merged) => Prepared::Clean(PreparedMerge { on, pinned: Some(pinned), merged }),
            Merge::Conflicts(conflicts) => Prepared::Conflicts(conflicts),
        })
    }

    /// What would bring main to the files of an older commit: a change like any other, on top of what is there.
    pub(crate) fn prepare_restore(&self, core: &Core, to: Oid) -> Result<PreparedMerge, StoreError> {
        let on = self.current().pointer;
        let changes = core.history.diff_with_times(on.commit, to).map_err(StoreError::history("comparing commits"))?;
        Ok(PreparedMerge { on, pinned: None, merged: Merged { changes, blobs: Default::default() } })
    }

    /// As a commit of the result: only then is what merging by line made reachable.
    pub(crate) fn keep_merged(&self, core: &Core, gate: GateId, prepared: &PreparedMerge) -> Result<(), StoreError> {
        if prepared.merged.blobs.is_empty() {
            return Ok(());
        }
        let failed = || StoreError::history("storing merged content");
        let mut writer = core.history.writer().map_err(failed())?;
        let trees = writer.apply_merge(prepared.on.commit, &prepared.merged).map_err(failed())?;
        let spec = CommitSpec {
            parents: &[prepared.on.commit],
            trees,
            provenance: &core.options.founder,
            message: "What a gate would merge",
            time: (core.options.now)(),
        };
        let commit = writer.commit(&spec).map_err(failed())?;
        let hold = writer.finish().map_err(failed())?;
        core.history.set_ref(&refs::merged(gate), Some(commit), Expect::Any).map_err(failed())?;
        drop(hold);
        core.chores.wrote();
        Ok(())
    }

    pub(crate) fn stage(
        &self,
        core: &Core,
        prepared: &PreparedMerge,
        provenance: &Provenance,
        message: &str,
    ) -> Result<Staged, StoreError> {
        let current = self.current();
        let on = prepared.on;
        if current.pointer != on {
            return Err(StoreError::MainMoved { now: current.pointer.number, prepared: on.number });
        }
        let bytes: u64 = prepared.changes().iter().filter_map(|change| change.new).map(|new| new.size).sum();
        core.shared.space.admit(bytes).map_err(|_| StoreError::NoSpace)?;
        let history = &core.history;
        let mut writer = history.writer().map_err(StoreError::history("starting a pack"))?;
        let trees = writer.apply_merge(on.commit, &prepared.merged).map_err(StoreError::history("merging"))?;
        let parents: Vec<Oid> = [on.commit].into_iter().chain(prepared.pinned).collect();
        let spec = CommitSpec { parents: &parents, trees, provenance, message, time: (core.options.now)() };
        let commit = writer.commit(&spec).map_err(StoreError::history("writing a commit"))?;
        failpoint::hit("store.stage.written");
        let hold = writer.finish().map_err(StoreError::history("writing a pack"))?;
        core.chores.wrote();
        failpoint::hit("store.stage.durable");
        let pointer = Pointer { number: on.number + 1, commit };
        let dir = path_of(core, pointer);
        if !self.staging.lock().insert(dir.clone()) {
            return Err(StoreError::StagedAlready);
        }
        let built = build(core, current.dir(), &dir, prepared.changes()).and_then(|()| Generation::open(core, pointer));
        match built {
            Ok(next) => Ok(Staged { pointer, on, dir, next: Arc::new(next), hold }),
            Err(e) => {
                self.unstage(core, &dir);
                Err(e)
            }
        }
    }

    fn unstage(&self, core: &Core, dir: &Path) {
        // Deleted here, not later: the same merge may be staged again at once.
        if let Err(e) = core.shared.engine.delete(dir) {
            tracing::warn!(dir = %dir.display(), error = %e, "an abandoned generation is left; the next start cleans it");
        }
        self.staging.lock().remove(dir);
    }

    pub(crate) fn abandon(&self, core: &Core, staged: Staged) {
        self.unstage(core, &staged.dir);
        core.chores.garbage();
    }

    pub(crate) fn publish(&self, core: &Core, staged: Staged) -> Result<Arc<Generation>, StoreError> {
        let next = Arc::clone(&staged.next);
        {
            let mut current = self.current.write();
            if current.pointer != staged.on {
                let now = current.pointer.number;
                drop(current);
                // Not removed, and nothing is pruned: the ledger names it. The next start makes it main.
                core.chores.main_ref_behind();
                return Err(StoreError::MainMoved { now, prepared: staged.on.number });
            }
            if core.shared.engine.keeps_inodes() {
                next.live.adopt_nodes(&current.live);
            }
            let former = std::mem::replace(&mut *current, Arc::clone(&next));
            former.live.close_files();
            core.reap(Reap::Generation { generation: former, after: Instant::now() + core.options.generation_grace });
        }
        self.staging.lock().remove(&staged.dir);
        failpoint::hit("store.publish.flipped");
        // The ledger has decided: a ref that cannot move now is moved at the next start.
        if let Err(e) = roll_forward(core, staged.pointer.commit) {
            tracing::error!(error = &e as &dyn std::error::Error, "the ref of main is behind; the next start moves it");
            core.chores.main_ref_behind();
        }
        drop(staged.hold);
        failpoint::hit("store.publish.ref");
        Ok(next)
    }
}

/// Before anything is removed or moved. The ledger moves first, so main's ref is never ahead of it, unless the ledger was rolled back.
fn refuse_old_ledger(core: &Core, pointer: Pointer) -> Result<(), StoreError> {
    let history = &core.history;
    let main = history.get_ref(refs::MAIN).map_err(StoreError::history("reading the ref of main"))?;
    let Some(main) = main.filter(|main| *main != pointer.commit) else { return Ok(()) };
    let failed = || StoreError::history("comparing main with the ledger");
    // The usual case first, it is one step: the ledger moved, and a crash came before the ref did.
    if !history.is_ancestor(main, pointer.commit).map_err(failed())?
        && history.is_ancestor(pointer.commit, main).map_err(failed())?
    {
        return Err(StoreError::OldLedger { ledger: pointer.number });
    }
    Ok(())
}

fn roll_forward(core: &Core, commit: Oid) -> Result<(), StoreError> {
    let now = core.history.get_ref(refs::MAIN).map_err(StoreError::history("reading the ref of main"))?;
    if now == Some(commit) {
        return Ok(());
    }
    core.history.set_ref(refs::MAIN, Some(commit), Expect::Any).map_err(StoreError::history("moving the ref of main"))
}

/// Makes a complete, durable, read-only generation at `dir`.
pub(crate) fn build(core: &Core, from: &Path, dir: &Path, changes: &[Change]) -> Result<(), StoreError> {
    let engine = &core.shared.engine;
    // Left by an attempt that was neither published nor abandoned before a crash.
    engine.delete(dir).map_err(StoreError::io("removing", dir))?;
    engine.fork(from, dir).map_err(StoreError::io("forking main to", dir))?;
    failpoint::hit("store.stage.forked");
    apply(dir, &core.history, changes)?;
    failpoint::hit("store.stage.applied");
    engine.set_read_only(dir, true).map_err(StoreError::io("closing", dir))?;
    engine.sync(dir).map_err(StoreError::io("syncing", dir))?;
    failpoint::hit("store.stage.synced");
    Ok(())
}

/// Makes generation 1: the empty top level directories.
fn first(core: &Core) -> Result<Pointer, StoreError> {
    let main = core.history.get_ref(refs::MAIN).map_err(StoreError::history("reading the ref of main"))?;
    if let Some(main) = main {
        let parents = core.history.commit_info(main).map_err(StoreError::history("reading main"))?.parents;
        if !parents.is_empty() {
            return Err(StoreError::Damaged {
                path: core.pool.display().to_string(),
                why: "it holds a history of main, but the ledger knows of none: wrong ledger, or a lost one".into(),
            });
        }
    }
    let mut edits = Vec::new();
    for name in TOP {
        let path = TreePath::from_relative(name.as_bytes()).expect("because it is a legal name");
        edits.push(Edit::Put { path, put: Put::Dir { mode: 0o755 } });
    }
    let mut writer = core.history.writer().map_err(StoreError::history("starting a pack"))?;
    let trees = writer.apply(None, edits).map_err(StoreError::history("writing the first tree"))?;
    let provenance = core.options.founder.clone();
    let time = (core.options.now)();
    let spec = CommitSpec { parents: &[], trees, provenance: &provenance, message: "The tree is made", time };
    let commit = writer.commit(&spec).map_err(StoreError::history("writing the first commit"))?;
    let hold = writer.finish().map_err(StoreError::history("writing a pack"))?;
    failpoint::hit("store.first.durable");
    let pointer = Pointer { number: 1, commit };
    let dir = path_of(core, pointer);
    let engine = &core.shared.engine;
    engine.delete(&dir).map_err(StoreError::io("removing", &dir))?;
    engine.create(&dir).map_err(StoreError::io("making", &dir))?;
    let root = open_root(&dir).map_err(StoreError::io("opening", &dir))?;
    for name in TOP {
        put_dir(&root, name.as_bytes(), 0o755).map_err(|e| StoreError::io("making", &dir)(e.into()))?;
    }
    engine.set_read_only(&dir, true).map_err(StoreError::io("closing", &dir))?;
    engine.sync(&dir).map_err(StoreError::io("syncing", &dir))?;
    failpoint::hit("store.first.synced");
    roll_forward(core, commit)?;
    drop(hold);
    Ok(pointer)
}
