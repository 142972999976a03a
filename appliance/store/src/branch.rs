//! A branch: the live directory of one run, and its line of commits (SPEC BRANCH).
//!
//! On disk: `branch/<role>.<run>/` with `live` (the files), `state.json` (what does not change by writing files) and, while
//! there are changes that no commit holds, `dirty` (the durable mark). The tip is the ref, nothing else.

mod restore;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nas_history::{Expect, refs};
use nas_types::failpoint;
use nas_types::fs::{FileKind, FsError};
use nas_types::id::{GateId, LeaseId, RunId};
use nas_types::lease::BranchName;
use nas_types::object::{Oid, Provenance};
use nas_types::path::TreePath;
use nas_types::time::{FileTime, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::apply::Import;
use crate::disk::changed_since;
use crate::error::StoreError;
use crate::live::LiveDir;
use crate::live::journal::read_mark;
use crate::schedule::Hook;
use crate::space::Limits;
use crate::store::Core;

/// How much earlier than the mark a ctime may be and still count as "since": the kernel's clock is coarse, and a
/// corrected wall clock may have gone back meanwhile.
const MARK_SLACK_MS: i64 = 3_600_000;

/// Why a commit is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitReason {
    /// Nothing was written for a while (SPEC MOUNT-2).
    Quiet,
    /// A client asked for durability (SPEC MOUNT-2).
    Durability,
    /// Someone asked for a commit, with this message.
    Explicit(String),
    /// A named checkpoint (SPEC BRANCH-7).
    Checkpoint(String),
    /// The branch is proposed for merging.
    Propose,
    /// Files are brought back to a commit.
    Restore(Oid),
    /// Files were imported.
    Import(String),
    /// Files are brought to what main is.
    Follow(Oid),
}

impl CommitReason {
    /// The commit's message.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Quiet => "Automatic commit after quiet".into(),
            Self::Durability => "Automatic commit after a sync".into(),
            Self::Explicit(message) => message.clone(),
            Self::Checkpoint(name) => format!("Checkpoint {name}"),
            Self::Propose => "Commit before a proposal".into(),
            Self::Restore(to) => format!("Restore {}", to.short()),
            Self::Import(what) => format!("Import {what}"),
            Self::Follow(main) => format!("Follow main to {}", main.short()),
        }
    }
}

/// A commit that was made, for whoever records it.
#[derive(Debug, Clone)]
pub struct Committed {
    /// On which branch.
    pub branch: BranchName,
    /// The commit.
    pub commit: Oid,
    /// The one before it.
    pub parent: Oid,
    /// Why.
    pub reason: CommitReason,
    /// Paths looked at.
    pub paths: usize,
    /// Objects it added.
    pub objects: usize,
    /// Bytes it added to the history.
    pub bytes: u64,
    /// FIFOs and sockets among them: they live on the branch only.
    pub not_kept: Vec<TreePath>,
}

/// Told of each commit, after its ref is durable. Called on the committing thread: it must not call the branch.
pub trait CommitSink: Send + Sync {
    /// Records a commit.
    fn committed(&self, commit: &Committed);
}

/// What [`Branch::pin`] pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinned {
    /// One commit on the branch's [`proposal_base`](Branch::proposal_base) that holds all of the branch.
    Commit(Oid),
    /// The branch holds what main took of it already: there is nothing to propose.
    Unchanged,
}

/// What [`Branch::restore`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// The commit that holds what was there before: with it a restore can be undone.
    pub before: Oid,
    /// The commit of what is there now.
    pub commit: Oid,
    /// Entries that were changed.
    pub changed: usize,
}

/// Pinned commits remembered for their order.
const PINS_MAX: usize = 256;

/// A branch.
#[derive(Debug)]
pub struct Branch {
    name: BranchName,
    dir: PathBuf,
    core: Arc<Core>,
    live: LiveDir,
    state: Mutex<State>,
    tip: Mutex<Oid>,
    not_kept: Mutex<Vec<TreePath>>,
    committing: Mutex<()>,
    /// It is recycled: nothing of it is written any more.
    gone: AtomicBool,
    hook: Arc<Hook>,
}

/// What `state.json` holds. Version 1.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    pub(crate) version: u32,
    pub(crate) name: BranchName,
    pub(crate) base: Oid,
    /// What of it main has: the last pinned commit that was merged.
    #[serde(default)]
    pub(crate) merged: Option<Oid>,
    /// Files are being brought from one commit to another that main is; see [`restore`](self::restore).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) following: Option<restore::Following>,
    /// What was pinned, oldest first, from what was merged on.
    #[serde(default)]
    pub(crate) pins: Vec<Oid>,
    pub(crate) created_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) bytes_max: u64,
    pub(crate) files_max: u64,
    pub(crate) object_bytes: u64,
    pub(crate) provenance: StoredProvenance,
}

/// [`Provenance`] as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredProvenance {
    principal: String,
    on_behalf_of: Option<String>,
    run: RunId,
    lease: LeaseId,
    purpose: Option<String>,
    read_manifest: Option<String>,
}

impl From<Provenance> for StoredProvenance {
    fn from(p: Provenance) -> Self {
        let Provenance { principal, on_behalf_of, run, lease, purpose, read_manifest } = p;
        Self { principal, on_behalf_of, run, lease, purpose, read_manifest }
    }
}

impl From<StoredProvenance> for Provenance {
    fn from(p: StoredProvenance) -> Self {
        let StoredProvenance { principal, on_behalf_of, run, lease, purpose, read_manifest } = p;
        Self { principal, on_behalf_of, run, lease, purpose, read_manifest }
    }
}

impl State {
    /// Replaces `state.json`; durably when `durable` is set. Otherwise a power cut may leave the old one, but never half of one:
    /// a name must not reach the disk before the bytes it stands for.
    pub(crate) fn save(&self, dir: &Path, durable: bool) -> Result<(), StoreError> {
        let (path, part) = (dir.join("state.json"), dir.join("state.part"));
        let text = serde_json::to_vec(self)
            .map_err(|e| StoreError::Damaged { path: path.display().to_string(), why: e.to_string() })?;
        let written = fs::File::create(&part).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()
        });
        written.and_then(|()| fs::rename(&part, &path)).map_err(StoreError::io("writing", &path))?;
        if durable {
            fs::File::open(dir).and_then(|d| d.sync_all()).map_err(StoreError::io("syncing", dir))?;
        }
        Ok(())
    }

    /// `None`: the directory holds no finished branch.
    pub(crate) fn load(dir: &Path) -> Result<Option<Self>, StoreError> {
        let path = dir.join("state.json");
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(StoreError::io("reading", &path)(e)),
        };
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|e| StoreError::Damaged { path: path.display().to_string(), why: e.to_string() })
    }
}

impl Branch {
    /// Opens a branch that is complete on disk. What a crash left dirty is found by its mark.
    pub(crate) fn open(core: &Arc<Core>, dir: PathBuf, state: State) -> Result<Arc<Self>, StoreError> {
        let name = state.name.clone();
        let files = |source| StoreError::Files { branch: name.to_string(), source };
        let tip = core.history.get_ref(&refs::branch(&name)).map_err(StoreError::history("reading a branch ref"))?;
        let tip = match tip {
            Some(tip) => tip,
            // A crash between the last two steps of a fork.
            None => {
                core.history
                    .set_ref(&refs::branch(&name), Some(state.base), Expect::Absent)
                    .map_err(StoreError::history("setting a branch ref"))?;
                state.base
            }
        };
        let mark = dir.join("dirty");
        let since = read_mark(&mark).map_err(StoreError::io("reading", &mark))?;
        let limits = Limits { bytes_max: state.bytes_max, files_max: state.files_max };
        let live = LiveDir::open(&dir.join("live"), core.shared.clone(), Some(mark), limits).map_err(files)?;
        live.usage().add_objects(state.object_bytes);
        if let (Some(since), Some(journal)) = (since, live.journal()) {
            let set = changed_since(live.path(), &core.history, tip, since.saturating_sub(MARK_SLACK_MS))?;
            tracing::info!(branch = %name, paths = set.paths.len(), "found after a crash");
            journal.put_back(set);
            journal.committed().map_err(StoreError::io("clearing the mark of", &dir))?;
        }
        let options = &core.options;
        let hook =
            Arc::new(Hook::new(Arc::clone(&core.scheduler), name.clone(), options.quiet, options.commit_interval_min));
        let branch = Arc::new(Self {
            name,
            dir,
            core: Arc::clone(core),
            live,
            state: Mutex::new(state),
            tip: Mutex::new(tip),
            not_kept: Mutex::new(Vec::new()),
            committing: Mutex::new(()),
            gone: AtomicBool::new(false),
            hook: Arc::clone(&hook),
        });
        branch.recount()?;
        if let Some(journal) = branch.live.journal() {
            journal.listen(Arc::clone(&hook) as Arc<_>);
        }
        hook.attach(&branch);
        Ok(branch)
    }

    /// Counts what the branch changed since its base against the quota.
    fn recount(&self) -> Result<(), StoreError> {
        let changes =
            self.core.history.diff(Some(self.base()), self.tip()).map_err(StoreError::history("comparing commits"))?;
        let committed = changes.into_iter().filter(|change| change.new.is_some()).map(|change| change.path);
        let dirty = self.live.journal().map(|j| j.dirty_paths()).unwrap_or_default();
        for path in committed.chain(dirty) {
            match self.live.locate_path(&path) {
                Ok(at) if at.attr.kind == FileKind::Dir => self.live.usage().settle(at.node.id.ino, 0),
                Ok(at) => self.live.usage().settle(at.node.id.ino, at.attr.size),
                Err(FsError::NotFound | FsError::NotDir) => {}
                Err(source) => return Err(self.files(source)),
            }
        }
        Ok(())
    }

    fn files(&self, source: FsError) -> StoreError {
        StoreError::Files { branch: self.name.to_string(), source }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &BranchName {
        &self.name
    }

    /// Its files.
    #[must_use]
    pub fn live(&self) -> &LiveDir {
        &self.live
    }

    /// The commit of main it was forked from.
    #[must_use]
    pub fn base(&self) -> Oid {
        self.state.lock().base
    }

    /// What a proposal is compared with: what main took of this branch last, or the commit it was forked from.
    #[must_use]
    pub fn proposal_base(&self) -> Oid {
        let state = self.state.lock();
        state.merged.unwrap_or(state.base)
    }

    /// Notes that `pinned` was merged into main: what is proposed from now on are the changes after it. Without it, changing
    /// again what was merged once would conflict with itself. It only goes forward: an older pin that is merged after a newer one
    /// is in that one already.
    pub fn merged(&self, pinned: Oid) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let at = |oid| state.pins.iter().position(|pin| *pin == oid);
        // `None`, a pin that is not remembered, is older than all that are.
        if state.merged.is_some_and(|merged| at(merged) > at(pinned)) {
            return Ok(());
        }
        if let Some(at) = at(pinned) {
            state.pins.drain(..at);
        }
        state.merged = Some(pinned);
        self.save(&state, true)
    }

    /// Notes that main took the newest pin, if it did: between a merge and [`merged`](Self::merged) there may have been a crash.
    pub fn note_taken(&self, main: Oid) -> Result<(), StoreError> {
        let newest = self.state.lock().pins.last().copied();
        let Some(pin) = newest.filter(|pin| *pin != self.proposal_base()) else { return Ok(()) };
        let taken = self.core.history.is_ancestor(pin, main).map_err(StoreError::history("looking for a merge"))?;
        if taken { self.merged(pin) } else { Ok(()) }
    }

    /// Nothing, once the branch is recycled: its directory is about to go.
    fn save(&self, state: &State, durable: bool) -> Result<(), StoreError> {
        if self.gone.load(Ordering::Acquire) { Ok(()) } else { state.save(&self.dir, durable) }
    }

    /// The first step of recycling: once this returns nothing is committed, and what is left is a leftover that the next
    /// start removes. Waits for a commit at work.
    pub(crate) fn retire(&self) -> Result<(), StoreError> {
        let _one = self.committing.lock();
        let _state = self.state.lock();
        if self.gone.load(Ordering::Acquire) {
            return Err(StoreError::NoBranch(self.name.clone()));
        }
        let path = self.dir.join("state.json");
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(StoreError::io("removing", &path)(e)),
            _ => {}
        }
        self.gone.store(true, Ordering::Release);
        Ok(())
    }

    /// Its newest commit.
    #[must_use]
    pub fn tip(&self) -> Oid {
        *self.tip.lock()
    }

    /// When it was forked.
    #[must_use]
    pub fn created_at(&self) -> Timestamp {
        self.state.lock().created_at
    }

    /// When it may be recycled (SPEC BRANCH-6). Who recycles decides whether the clock can be trusted.
    #[must_use]
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.state.lock().expires_at
    }

    /// Sets when it may be recycled.
    pub fn set_expires_at(&self, at: Option<Timestamp>) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        state.expires_at = at;
        self.save(&state, true)
    }

    /// Who its commits are by.
    #[must_use]
    pub fn provenance(&self) -> Provenance {
        self.state.lock().provenance.clone().into()
    }

    /// Sets who later commits are by: a new lease of the same run, or a longer read manifest.
    pub fn set_provenance(&self, provenance: Provenance) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        state.provenance = provenance.into();
        self.save(&state, true)
    }

    /// Number of paths changed since the newest commit.
    #[must_use]
    pub fn dirty_paths(&self) -> usize {
        self.live.journal().map_or(0, |journal| journal.dirty_paths().len())
    }

    /// FIFOs and sockets met by the commits of this process: they are on the branch only.
    #[must_use]
    pub fn not_kept(&self) -> Vec<TreePath> {
        self.not_kept.lock().clone()
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn hook(&self) -> &Hook {
        &self.hook
    }

    pub(crate) fn last_change(&self) -> Instant {
        self.live.journal().map_or_else(Instant::now, |journal| journal.last_change())
    }

    /// Commits what changed since the last commit; `None` when nothing did. The commit is one point in time.
    pub fn commit(&self, reason: CommitReason) -> Result<Option<Oid>, StoreError> {
        let _one = self.committing.lock();
        self.commit_one(reason)
    }

    fn commit_one(&self, reason: CommitReason) -> Result<Option<Oid>, StoreError> {
        if self.gone.load(Ordering::Acquire) {
            return Err(StoreError::NoBranch(self.name.clone()));
        }
        let done = crate::commit::commit(&self.core, &self.name, &self.live, self.tip(), &self.provenance(), &reason)
            .inspect_err(|_| self.read_tip())?;
        self.hook.committed();
        let Some(done) = done else { return Ok(None) };
        // Told before it is shown: whoever sees the new tip finds it in the records.
        if let Some(sink) = self.core.sink.read().clone() {
            sink.committed(&done);
        }
        *self.tip.lock() = done.commit;
        self.live.usage().add_objects(done.bytes);
        {
            let mut not_kept = self.not_kept.lock();
            not_kept.extend(done.not_kept.iter().cloned());
            not_kept.sort();
            not_kept.dedup();
        }
        {
            let mut state = self.state.lock();
            state.object_bytes = self.live.usage().object_bytes();
            // Not durable yet: after a power cut the count is a little low, never wrong for files.
            if let Err(e) = self.save(&state, false) {
                tracing::warn!(branch = %self.name, error = &e as &dyn std::error::Error, "the object count was not saved");
            }
        }
        Ok(Some(done.commit))
    }

    /// After a failure: the ref may have moved and only its sync failed. The tip is the ref, nothing else.
    fn read_tip(&self) {
        if let Ok(Some(tip)) = self.core.history.get_ref(&refs::branch(&self.name)) {
            *self.tip.lock() = tip;
        }
    }

    /// Commits what is there, squashes the branch to one commit on its [`proposal_base`](Self::proposal_base) (its auto-commits are left out of history, DESIGN §3),
    /// and pins that for a gate. Pinning again for the same gate replaces the pin.
    pub fn pin(&self, gate: GateId, message: &str) -> Result<Pinned, StoreError> {
        let _one = self.committing.lock();
        // What a follow left half done is main's, not this branch's to propose.
        self.unfollow()?;
        self.commit_one(CommitReason::Propose)?;
        let (base, tip, history) = (self.proposal_base(), self.tip(), &self.core.history);
        // Files that were only touched are nothing to propose.
        if history.diff(Some(base), tip).map_err(StoreError::history("comparing commits"))?.is_empty() {
            return Ok(Pinned::Unchanged);
        }
        let mut writer = history.writer().map_err(StoreError::history("starting a pack"))?;
        let squashed = writer
            .squash(base, tip, &self.provenance(), message, (self.core.options.now)())
            .map_err(StoreError::history("squashing a branch"))?;
        let hold = writer.finish().map_err(StoreError::history("writing a pack"))?;
        failpoint::hit("store.pin.durable");
        {
            let mut state = self.state.lock();
            state.pins.retain(|pin| *pin != squashed);
            state.pins.push(squashed);
            let beyond = state.pins.len().saturating_sub(PINS_MAX);
            state.pins.drain(..beyond);
            self.save(&state, true)?;
        }
        history.set_ref(&refs::pin(gate), Some(squashed), Expect::Any).map_err(StoreError::history("pinning"))?;
        failpoint::hit("store.pin.pinned");
        history
            .set_ref(&refs::branch(&self.name), Some(squashed), Expect::At(tip))
            .inspect_err(|_| self.read_tip())
            .map_err(StoreError::history("moving a branch ref"))?;
        drop(hold);
        self.core.chores.wrote();
        self.core.chores.garbage();
        *self.tip.lock() = squashed;
        failpoint::hit("store.pin.squashed");
        Ok(Pinned::Commit(squashed))
    }

    /// Commits what is there and gives it a name.
    pub fn checkpoint(&self, name: &str) -> Result<Oid, StoreError> {
        let _one = self.committing.lock();
        self.commit_one(CommitReason::Checkpoint(name.to_owned()))?;
        let tip = self.tip();
        self.core
            .history
            .set_ref(&refs::checkpoint(&self.name, name), Some(tip), Expect::Any)
            .map_err(StoreError::history("setting a checkpoint"))?;
        Ok(tip)
    }

    /// Checkpoints by name.
    pub fn checkpoints(&self) -> Result<Vec<(String, Oid)>, StoreError> {
        let prefix = refs::checkpoint(&self.name, "");
        let found = self.core.history.list_refs(&prefix).map_err(StoreError::history("listing checkpoints"))?;
        Ok(found.into_iter().filter_map(|(name, oid)| Some((name.strip_prefix(&prefix)?.to_owned(), oid))).collect())
    }

    /// How long nothing was written.
    #[must_use]
    pub fn quiet_for(&self) -> std::time::Duration {
        self.last_change().elapsed()
    }

    /// Puts one entry of an import in place, making the directories above it. Durable with the next commit.
    pub fn import_entry(
        &self,
        path: &TreePath,
        what: Import<'_>,
        mode: u32,
        mtime: Option<FileTime>,
    ) -> Result<u64, StoreError> {
        self.live.import_entry(path, what, mode, mtime).map_err(|source| self.files(source))
    }
}
