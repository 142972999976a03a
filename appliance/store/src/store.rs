//! The store of one pool: main, branches, history, and the threads that look after them.
//!
//! On disk, in the pool: `format` (version), `gen/` (main), `branch/` (one directory each), `tree/` (the
//! same), `view/` (commits to look at), `history.git`, `tmp/`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crossbeam_channel::Sender;
use nas_history::{Expect, History, refs};
use nas_types::failpoint;
use nas_types::id::{GateId, LeaseId, RunId};
use nas_types::lease::{BranchName, TreeName};
use nas_types::object::{Oid, Provenance};
use nas_types::time::Timestamp;
use parking_lot::{Mutex, RwLock};

use crate::branch::{Branch, CommitSink, State};
use crate::engine::Engine;
use crate::error::StoreError;
use crate::generation::{Generation, Main, Pointer, Prepared, PreparedMerge, Staged};
use crate::live::journal::make_room;
use crate::live::{Durability, FdCache, LiveDir, Shared};
use crate::reaper::{self, Reap};
use crate::schedule::Scheduler;
use crate::space::{Limits, Reserve, SpaceGuard};
use crate::upkeep::{Chores, Upkeep};

/// Version of the layout of a pool.
const FORMAT: u32 = 1;

/// How a store behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// When changes of names are durable.
    pub durability: Durability,
    /// What ordinary writes may not use.
    pub reserve: Reserve,
    /// A branch is committed after this time without a change (SPEC MOUNT-2).
    pub quiet: Duration,
    /// Commits asked for by clients' syncs are at least this far apart on one branch.
    pub commit_interval_min: Duration,
    /// A former generation of main is kept this long.
    pub generation_grace: Duration,
    /// When the history is looked after.
    pub upkeep: Upkeep,
    /// Most open files kept, in descriptors.
    pub fds_max: std::num::NonZeroUsize,
    /// The wall clock, for commits.
    pub now: fn() -> Timestamp,
    /// Who the first commit of a new tree is by.
    pub founder: Provenance,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            reserve: Reserve::default(),
            quiet: Duration::from_secs(5),
            commit_interval_min: Duration::from_secs(1),
            generation_grace: Duration::from_secs(60),
            upkeep: Upkeep::default(),
            fds_max: FdCache::default_budget(),
            now: wall_clock,
            founder: Provenance {
                principal: "svc:store".into(),
                on_behalf_of: None,
                run: RunId::random(),
                lease: LeaseId::random(),
                purpose: None,
                read_manifest: None,
            },
        }
    }
}

fn wall_clock() -> Timestamp {
    let ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
    Timestamp(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// What main, branches and threads share.
pub(crate) struct Core {
    pub(crate) pool: PathBuf,
    pub(crate) shared: Shared,
    pub(crate) history: History,
    pub(crate) options: Options,
    pub(crate) sink: RwLock<Option<Arc<dyn CommitSink>>>,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) chores: Arc<Chores>,
    reaper: Sender<Reap>,
    next_temp: AtomicU64,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("pool", &self.pool).field("options", &self.options).finish_non_exhaustive()
    }
}

impl Core {
    /// A path in `tmp/` that nothing has.
    pub(crate) fn temp_path(&self, what: &str) -> PathBuf {
        self.pool.join("tmp").join(format!("{what}-{}", self.next_number()))
    }

    /// Another number each time, in this process.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_temp.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn reap(&self, what: Reap) {
        if let Err(left) = self.reaper.send(what) {
            tracing::warn!(what = ?left.0, "left for the next start: the store is closing");
        }
    }
}

/// The store of one pool. Open it once; share it between threads.
#[derive(Debug)]
pub struct Store {
    pub(crate) core: Arc<Core>,
    main: Main,
    pub(crate) trees: Mutex<HashMap<TreeName, Arc<LiveDir>>>,
    pub(crate) views: Mutex<HashMap<Oid, Arc<LiveDir>>>,
    branches: Mutex<HashMap<BranchName, Arc<Branch>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Store {
    /// Opens the store in the directory `pool`, making it when it is empty. `pointer` is what the ledger says main is; `None`
    /// only before the first start has written one. What a crash left half done is finished or removed. A branch that cannot be
    /// opened is left on disk as it is, with its refs, and is not among [`branches`](Self::branches).
    pub fn open(pool: &Path, pointer: Option<Pointer>, options: Options) -> Result<Self, StoreError> {
        let engine = crate::engine::detect(pool).map_err(StoreError::io("opening", pool))?;
        Self::open_on(engine, pool, pointer, options)
    }

    fn open_on(
        engine: Arc<dyn Engine>,
        pool: &Path,
        pointer: Option<Pointer>,
        options: Options,
    ) -> Result<Self, StoreError> {
        check_format(pool)?;
        for part in ["gen", "branch", "tree", "view", "tmp"] {
            let path = pool.join(part);
            fs::create_dir_all(&path).map_err(StoreError::io("making", &path))?;
        }
        sync_dir(pool)?;
        let history = History::open(&pool.join("history.git")).map_err(StoreError::history("opening the history"))?;
        let (reaper, inbox) = crossbeam_channel::unbounded();
        let space = SpaceGuard::new(pool, options.reserve).map_err(StoreError::io("opening", pool))?;
        let shared = Shared {
            engine: Arc::clone(&engine),
            fds: Arc::new(FdCache::new(options.fds_max)),
            space: Arc::new(space),
            durability: options.durability,
        };
        let chores = Arc::new(Chores::new(&options.upkeep));
        let core = Arc::new(Core {
            pool: pool.to_owned(),
            shared,
            history,
            options,
            sink: RwLock::new(None),
            scheduler: Arc::new(Scheduler::default()),
            chores: Arc::clone(&chores),
            reaper,
            next_temp: AtomicU64::new(0),
        });
        clean_temp(&core)?;
        let main = Main::open(&core, pointer)?;
        let branches = open_branches(&core)?;
        let trees = crate::tree::open_all(&core)?;
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.into())
                .spawn(body)
                .map_err(StoreError::io("starting a thread for", pool))
        };
        let scheduler = Arc::clone(&core.scheduler);
        let history_of = Arc::clone(&core);
        let threads = vec![
            spawn("store-reaper", Box::new(move || reaper::run(&*engine, &inbox)))?,
            spawn("store-commit", Box::new(move || scheduler.run()))?,
            spawn("store-upkeep", Box::new(move || chores.run(&history_of)))?,
        ];
        Ok(Self {
            core,
            main,
            trees: Mutex::new(trees),
            views: Mutex::default(),
            branches: Mutex::new(branches),
            threads,
        })
    }

    /// Who is told of commits.
    pub fn set_commit_sink(&self, sink: Arc<dyn CommitSink>) {
        *self.core.sink.write() = Some(sink);
    }

    /// The history: commits, diffs, content.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.core.history
    }

    /// Short name of the engine.
    #[must_use]
    pub fn engine_name(&self) -> &'static str {
        self.core.shared.engine.name()
    }

    /// Free space of the pool, for degradation (SPEC: space is a safety state).
    #[must_use]
    pub fn space(&self) -> &SpaceGuard {
        &self.core.shared.space
    }

    /// The current generation of main. Hold it for one operation: it stays readable while held.
    #[must_use]
    pub fn main(&self) -> Arc<Generation> {
        self.main.current()
    }

    /// Forks main as a new branch.
    pub fn fork(
        &self,
        name: &BranchName,
        provenance: &Provenance,
        limits: Limits,
        expires_at: Option<Timestamp>,
    ) -> Result<Arc<Branch>, StoreError> {
        if !self.core.shared.space.has_room() {
            return Err(StoreError::NoSpace);
        }
        let from = self.main();
        let dir = branch_dir(&self.core, name);
        match fs::create_dir(&dir) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(StoreError::BranchExists(name.clone()));
            }
            other => other.map_err(StoreError::io("making", &dir))?,
        }
        let made = self.fork_into(&dir, &from, name, provenance, limits, expires_at);
        match made {
            Ok(branch) => {
                self.branches.lock().insert(name.clone(), Arc::clone(&branch));
                Ok(branch)
            }
            Err(e) => {
                let _ = fs::remove_file(dir.join("state.json"));
                self.core.reap(Reap::Branch(dir));
                Err(e)
            }
        }
    }

    fn fork_into(
        &self,
        dir: &Path,
        from: &Generation,
        name: &BranchName,
        provenance: &Provenance,
        limits: Limits,
        expires_at: Option<Timestamp>,
    ) -> Result<Arc<Branch>, StoreError> {
        failpoint::hit("store.fork.made");
        let live = dir.join("live");
        self.core.shared.engine.fork(from.dir(), &live).map_err(StoreError::io("forking main to", &live))?;
        if !self.core.shared.engine.fork_is_durable() {
            // Before its state says that it is there.
            self.core.shared.engine.sync(&live).map_err(StoreError::io("syncing", &live))?;
        }
        failpoint::hit("store.fork.forked");
        let state = State {
            version: FORMAT,
            name: name.clone(),
            base: from.pointer().commit,
            merged: None,
            following: None,
            pins: Vec::new(),
            created_at: (self.core.options.now)(),
            expires_at,
            bytes_max: limits.bytes_max,
            files_max: limits.files_max,
            object_bytes: 0,
            provenance: provenance.clone().into(),
        };
        make_room(&dir.join("dirty"));
        state.save(dir, true)?;
        sync_dir(&self.core.pool.join("branch"))?;
        failpoint::hit("store.fork.state");
        let history = &self.core.history;
        // A ref that a former branch of this name left is not this one's.
        history
            .set_ref(&refs::branch(name), Some(state.base), Expect::Any)
            .map_err(StoreError::history("setting a branch ref"))?;
        failpoint::hit("store.fork.ref");
        Branch::open(&self.core, dir.to_owned(), state)
    }

    /// A branch by name.
    #[must_use]
    pub fn branch(&self, name: &BranchName) -> Option<Arc<Branch>> {
        self.branches.lock().get(name).cloned()
    }

    /// All branches, sorted by name.
    #[must_use]
    pub fn branches(&self) -> Vec<Arc<Branch>> {
        let mut all: Vec<_> = self.branches.lock().values().cloned().collect();
        all.sort_by(|a, b| a.name().cmp(b.name()));
        all
    }

    /// Gives a branch up: its files and its commits go. What a gate pinned stays until [`unpin`](Self::unpin).
    pub fn recycle(&self, name: &BranchName) -> Result<(), StoreError> {
        let branch = self.branch(name).ok_or_else(|| StoreError::NoBranch(name.clone()))?;
        let dir = branch.dir().to_owned();
        branch.retire()?;
        self.branches.lock().remove(name);
        sync_dir(&dir)?;
        failpoint::hit("store.recycle.state");
        let history = &self.core.history;
        for (checkpoint, _) in branch.checkpoints()? {
            history
                .set_ref(&refs::checkpoint(name, &checkpoint), None, Expect::Any)
                .map_err(StoreError::history("removing a checkpoint"))?;
        }
        history
            .set_ref(&refs::branch(name), None, Expect::Any)
            .map_err(StoreError::history("removing a branch ref"))?;
        failpoint::hit("store.recycle.ref");
        self.core.chores.garbage();
        branch.live().close_files();
        self.core.reap(Reap::Branch(dir));
        Ok(())
    }

    /// Releases what was kept for a gate that is decided.
    pub fn unpin(&self, gate: GateId) -> Result<(), StoreError> {
        let history = &self.core.history;
        for name in [refs::pin(gate), refs::merged(gate)] {
            history.set_ref(&name, None, Expect::Any).map_err(StoreError::history("unpinning"))?;
        }
        self.core.chores.garbage();
        Ok(())
    }

    /// The gates that something is kept for.
    pub fn pins(&self) -> Result<Vec<GateId>, StoreError> {
        let mut gates = Vec::new();
        for prefix in [refs::PINS, refs::MERGED] {
            let found = self.core.history.list_refs(prefix).map_err(StoreError::history("listing pins"))?;
            gates.extend(found.keys().filter_map(|name| name.strip_prefix(prefix)?.parse::<GateId>().ok()));
        }
        gates.sort_unstable();
        gates.dedup();
        Ok(gates)
    }

    /// Pins a commit that is pinned already for another gate too: the fresh card of a void one.
    pub fn pin_for(&self, gate: GateId, commit: Oid) -> Result<(), StoreError> {
        self.core
            .history
            .set_ref(&refs::pin(gate), Some(commit), Expect::Absent)
            .map_err(StoreError::history("pinning"))
    }

    /// Stores content that merging by line made, so that it can be shown before it is decided on. It stays until
    /// [`unpin`](Self::unpin).
    pub fn keep_merged(&self, gate: GateId, prepared: &PreparedMerge) -> Result<(), StoreError> {
        self.main.keep_merged(&self.core, gate, prepared)
    }

    /// What is pinned for a gate.
    pub fn pinned(&self, gate: GateId) -> Result<Option<Oid>, StoreError> {
        self.core.history.get_ref(&refs::pin(gate)).map_err(StoreError::history("reading a pin"))
    }

    /// Merges a pinned commit into current main, without writing anything.
    pub fn prepare_merge(&self, pinned: Oid) -> Result<Prepared, StoreError> {
        self.main.prepare_merge(&self.core, pinned)
    }

    /// What brings main to the files of an older commit.
    pub fn prepare_restore(&self, to: Oid) -> Result<PreparedMerge, StoreError> {
        self.main.prepare_restore(&self.core, to)
    }

    /// Builds the next generation and its commit, durably, beside the current one. Then move the ledger's pointer from
    /// [`Staged::on`] to [`Staged::pointer`], and [`publish`](Self::publish); or [`abandon`](Self::abandon).
    pub fn stage(
        &self,
        prepared: &PreparedMerge,
        provenance: &Provenance,
        message: &str,
    ) -> Result<Staged, StoreError> {
        self.main.stage(&self.core, prepared, provenance, message)
    }

    /// Makes a staged generation main, after the ledger said so. When main is not what it was staged on, it stays on disk for
    /// the next start, which goes by the ledger.
    pub fn publish(&self, staged: Staged) -> Result<Arc<Generation>, StoreError> {
        self.main.publish(&self.core, staged)
    }

    /// Removes a staged generation that the ledger did not accept.
    pub fn abandon(&self, staged: Staged) {
        self.main.abandon(&self.core, staged);
    }

    /// Waits until what was given to the background for deletion so far is deleted.
    pub fn flush_reaper(&self) {
        let (done, wait) = crossbeam_channel::bounded(1);
        self.core.reap(Reap::Flush(done));
        let _ = wait.recv();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.core.scheduler.stop();
        self.core.chores.stop();
        self.core.reap(Reap::Stop);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn branch_dir(core: &Core, name: &BranchName) -> PathBuf {
    core.pool.join("branch").join(format!("{}.{}", name.role, name.run))
}

pub(crate) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    fs::File::open(dir).and_then(|d| d.sync_all()).map_err(StoreError::io("syncing", dir))
}

fn check_format(pool: &Path) -> Result<(), StoreError> {
    let path = pool.join("format");
    match fs::read_to_string(&path) {
        Ok(text) => {
            let found = text.trim().strip_prefix("nas-store ").and_then(|n| n.parse().ok());
            let found: u32 = found.ok_or_else(|| StoreError::Damaged {
                path: path.display().to_string(),
                why: "it does not name a format".into(),
            })?;
            if found > FORMAT { Err(StoreError::Format { found, known: FORMAT }) } else { Ok(()) }
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let part = pool.join("format.part");
            fs::write(&part, format!("nas-store {FORMAT}\n"))
                .and_then(|()| fs::File::open(&part)?.sync_all())
                .and_then(|()| fs::rename(&part, &path))
                .map_err(StoreError::io("writing", &path))
        }
        Err(e) => Err(StoreError::io("reading", &path)(e)),
    }
}

fn clean_temp(core: &Core) -> Result<(), StoreError> {
    let tmp = core.pool.join("tmp");
    for entry in fs::read_dir(&tmp).map_err(StoreError::io("reading", &tmp))? {
        let path = entry.map_err(StoreError::io("reading", &tmp))?.path();
        // Now, not later: new snapshots take names here at once.
        core.shared.engine.delete(&path).map_err(StoreError::io("removing", &path))?;
    }
    Ok(())
}

fn open_branches(core: &Arc<Core>) -> Result<HashMap<BranchName, Arc<Branch>>, StoreError> {
    let dir = core.pool.join("branch");
    let mut branches = HashMap::new();
    let mut set_aside = Vec::new();
    for entry in fs::read_dir(&dir).map_err(StoreError::io("reading", &dir))? {
        let path = entry.map_err(StoreError::io("reading", &dir))?.path();
        match open_branch(core, &path) {
            // Half forked, or half recycled.
            Ok(None) => remove_leftover(core, &path)?,
            Ok(Some(branch)) => {
                branches.insert(branch.name().clone(), branch);
            }
            Err(e) => {
                let error = &e as &dyn std::error::Error;
                tracing::error!(error, dir = %path.display(), "a branch is damaged: it is left as it is, and not opened");
                set_aside.push(path);
            }
        }
    }
    // Refs of branches that are gone.
    let history = &core.history;
    let heads = history.list_refs("refs/heads/").map_err(StoreError::history("listing branches"))?;
    for name in heads.keys() {
        let short = name.strip_prefix("refs/heads/").unwrap_or(name);
        let is_gone = short
            .parse::<BranchName>()
            .is_ok_and(|branch| !branches.contains_key(&branch) && !set_aside.contains(&branch_dir(core, &branch)));
        if is_gone {
            history.set_ref(name, None, Expect::Any).map_err(StoreError::history("removing a branch ref"))?;
        }
    }
    Ok(branches)
}

/// `None`: what is there is no branch, or none any more.
fn open_branch(core: &Arc<Core>, dir: &Path) -> Result<Option<Arc<Branch>>, StoreError> {
    let live = dir.join("live");
    let Some(state) = State::load(dir)? else { return Ok(None) };
    if !live.try_exists().map_err(StoreError::io("opening", &live))? {
        return Ok(None);
    }
    Branch::open(core, dir.to_owned(), state).map(Some)
}

fn remove_leftover(core: &Core, dir: &Path) -> Result<(), StoreError> {
    core.shared.engine.delete(&dir.join("live")).map_err(StoreError::io("removing", dir))?;
    fs::remove_dir_all(dir).map_err(StoreError::io("removing", dir))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::fd::BorrowedFd;

    use rustix::fs::Statx;

    use super::*;
    use crate::engine::Frozen;

    /// The engine of the pool, noting in which state it was asked to sync.
    #[derive(Debug)]
    struct Noting {
        inner: Arc<dyn Engine>,
        /// What was synced, and whether the state of the branch was there already.
        synced: Mutex<Vec<(PathBuf, bool)>>,
    }

    impl Engine for Noting {
        fn name(&self) -> &'static str {
            self.inner.name()
        }
        fn create(&self, dir: &Path) -> io::Result<()> {
            self.inner.create(dir)
        }
        fn fork(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.inner.fork(from, to)
        }
        fn freeze(&self, from: &Path, to: &Path) -> io::Result<Frozen> {
            self.inner.freeze(from, to)
        }
        fn set_read_only(&self, dir: &Path, on: bool) -> io::Result<()> {
            self.inner.set_read_only(dir, on)
        }
        fn delete(&self, dir: &Path) -> io::Result<()> {
            self.inner.delete(dir)
        }
        fn sync(&self, dir: &Path) -> io::Result<()> {
            self.synced.lock().push((dir.to_owned(), dir.with_file_name("state.json").exists()));
            self.inner.sync(dir)
        }
        fn fork_is_durable(&self) -> bool {
            self.inner.fork_is_durable()
        }
        fn keeps_inodes(&self) -> bool {
            self.inner.keeps_inodes()
        }
        fn generation_of(&self, parent: BorrowedFd<'_>, name: &[u8], stat: &Statx) -> u64 {
            self.inner.generation_of(parent, name, stat)
        }
    }

    /// Goal: where a fork is not durable by itself, its files are on disk before the state that says they are there.
    #[test]
    fn a_copied_branch_is_durable_before_its_state() {
        let pool = tempfile::TempDir::new().unwrap();
        let inner: Arc<dyn Engine> = Arc::new(crate::engine::copy::Copy::for_dir(pool.path()).unwrap());
        let engine = Arc::new(Noting { inner, synced: Mutex::default() });
        let options = Options { reserve: Reserve { percent: 0, bytes_min: 1 << 20 }, ..Options::default() };
        let store = Store::open_on(Arc::clone(&engine) as Arc<_>, pool.path(), None, options).unwrap();
        let name = BranchName { role: "cleo".parse().unwrap(), run: RunId::random() };
        engine.synced.lock().clear();
        let branch = store.fork(&name, &store.core.options.founder, Limits::NONE, None).unwrap();
        assert_eq!(*engine.synced.lock(), [(branch.live().path().to_owned(), false)]);
    }
}
