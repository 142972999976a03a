//! One commit of a live directory: barrier, freeze, edits from the dirty set, pack, ref.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nas_history::{CommitSpec, Edit, Expect, HistoryError, refs};
use nas_types::failpoint;
use nas_types::lease::BranchName;
use nas_types::object::{Oid, Provenance};
use nas_types::path::TreePath;
use rustix::io::Errno;

use crate::branch::{CommitReason, Committed};
use crate::disk::{OnDisk, edit_of, open_root};
use crate::engine::Frozen;
use crate::error::StoreError;
use crate::live::{DirtySet, LiveDir};
use crate::store::Core;

/// How often a commit without a snapshot is tried while writers go on; the last try stops them.
const TRIES: u32 = 3;

/// Commits `live` on `tip`; `None` when the tree is the same. On failure everything is dirty again.
pub(crate) fn commit(
    core: &Arc<Core>,
    name: &BranchName,
    live: &LiveDir,
    tip: Oid,
    provenance: &Provenance,
    reason: &CommitReason,
) -> Result<Option<Committed>, StoreError> {
    let Some(journal) = live.journal() else { return Ok(None) };
    for attempt in 1..=TRIES {
        let stopped = live.stop_changes();
        if !journal.is_dirty() {
            drop(stopped);
            clear_mark(live);
            return Ok(None);
        }
        let set = journal.take();
        let (from, snapshot) = match freeze(core, live.path()) {
            Ok(frozen) => frozen,
            Err(e) => {
                journal.put_back(set);
                return Err(e);
            }
        };
        // With a snapshot writers go on at once; without one the last try keeps them out.
        let keep_out = (snapshot.is_none() && attempt == TRIES).then_some(stopped);
        failpoint::hit("store.commit.frozen");
        #[cfg(test)]
        tests::frozen();
        let job = Job { core, name, live, tip, provenance, reason, set: &set };
        let done = job.write(&from, snapshot.is_none() && keep_out.is_none());
        drop(keep_out);
        if let Some(snapshot) = snapshot {
            core.reap(crate::reaper::Reap::Now(snapshot));
        }
        match done {
            Ok(done) => {
                clear_mark(live);
                failpoint::hit("store.commit.clean");
                return Ok(done);
            }
            Err(Failed::Moved) if attempt < TRIES => journal.put_back(set),
            Err(Failed::Moved) => {
                let path = set.paths.first().cloned().unwrap_or_default();
                journal.put_back(set);
                return Err(StoreError::Busy(path));
            }
            Err(Failed::Store(e)) => {
                journal.put_back(set);
                return Err(e);
            }
        }
    }
    Ok(None)
}

fn clear_mark(live: &LiveDir) {
    if let Some(journal) = live.journal()
        && let Err(e) = journal.committed()
    {
        // It costs a scan at the next start, nothing more.
        tracing::warn!(live = %live.path().display(), error = %e, "the dirty mark could not be removed");
    }
}

/// Where to read from, and the snapshot to delete afterwards.
fn freeze(core: &Core, live: &Path) -> Result<(PathBuf, Option<PathBuf>), StoreError> {
    let to = core.temp_path("commit");
    match core.shared.engine.freeze(live, &to).map_err(StoreError::io("taking a snapshot of", live))? {
        Frozen::Snapshot(path) => Ok((path.clone(), Some(path))),
        Frozen::Unsupported => Ok((live.to_owned(), None)),
    }
}

enum Failed {
    /// A file changed while it was read.
    Moved,
    Store(StoreError),
}

impl From<StoreError> for Failed {
    fn from(e: StoreError) -> Self {
        Self::Store(e)
    }
}

struct Job<'a> {
    core: &'a Core,
    name: &'a BranchName,
    live: &'a LiveDir,
    tip: Oid,
    provenance: &'a Provenance,
    reason: &'a CommitReason,
    set: &'a DirtySet,
}

impl Job<'_> {
    fn write(&self, from: &Path, recheck: bool) -> Result<Option<Committed>, Failed> {
        let history = &self.core.history;
        let (edits, not_kept) = self.edits(from, recheck)?;
        let mut writer = history.writer().map_err(StoreError::history("starting a pack"))?;
        let trees = writer.apply(Some(self.tip), edits).map_err(|e| match e {
            HistoryError::Source { .. } | HistoryError::SourceSize { .. } if recheck => Failed::Moved,
            e => StoreError::history("reading the changed files")(e).into(),
        })?;
        if recheck && self.renamed() {
            return Err(Failed::Moved);
        }
        let before = history.commit_info(self.tip).map_err(StoreError::history("reading the last commit"))?;
        if before.trees == trees {
            return Ok(None);
        }
        let message = self.reason.message();
        let spec = CommitSpec {
            parents: &[self.tip],
            trees,
            provenance: self.provenance,
            message: &message,
            time: (self.core.options.now)(),
        };
        let commit = writer.commit(&spec).map_err(StoreError::history("writing a commit"))?;
        let (objects, bytes) = (writer.objects(), writer.bytes());
        failpoint::hit("store.commit.written");
        let hold = writer.finish().map_err(StoreError::history("writing a pack"))?;
        failpoint::hit("store.commit.durable");
        history
            .set_ref(&refs::branch(self.name), Some(commit), Expect::At(self.tip))
            .map_err(StoreError::history("moving a branch ref"))?;
        drop(hold);
        self.core.chores.wrote();
        failpoint::hit("store.commit.ref");
        Ok(Some(Committed {
            branch: self.name.clone(),
            commit,
            parent: self.tip,
            reason: self.reason.clone(),
            paths: self.set.paths.len(),
            objects,
            bytes,
            not_kept,
        }))
    }

    /// Was anything renamed since the set was taken? Then what was not found may only be elsewhere, and the next
    /// commit, which starts from this one, would look for it in vain.
    fn renamed(&self) -> bool {
        // No rename is between its act and its note.
        let _names = self.live.stop_changes();
        self.live.journal().is_some_and(|journal| journal.has_moves())
    }

    /// Moves in order, then every dirty path as it is on disk.
    fn edits(&self, from: &Path, recheck: bool) -> Result<(Vec<Edit>, Vec<TreePath>), Failed> {
        let root = open_root(from).map_err(StoreError::io("opening", from))?;
        let moves = self.set.moves.iter().map(|(from, to)| Edit::Move { from: from.clone(), to: to.clone() });
        let mut edits: Vec<Edit> = moves.collect();
        let mut not_kept = Vec::new();
        for path in self.set.paths.iter().filter(|path| !path.is_root()) {
            match edit_of(&root, path, recheck) {
                Ok(OnDisk::Edit(edit)) => edits.push(edit),
                Ok(OnDisk::NotKept(edit)) => {
                    not_kept.push(path.clone());
                    edits.push(edit);
                }
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if recheck => return Err(Failed::Moved),
                Err(e) => return Err(StoreError::io("reading", from)(e.into()).into()),
            }
        }
        Ok((edits, not_kept))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use nas_types::fs::{CreateHow, SetAttr, Stability};
    use nas_types::id::{LeaseId, RunId};
    use nas_types::path::Name;

    use super::*;
    use crate::space::{Limits, Reserve};
    use crate::store::{Options, Store};

    thread_local! {
        static FROZEN: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    /// Runs what a test wants to happen after the set was taken and before it is read.
    pub(super) fn frozen() {
        if let Some(act) = FROZEN.take() {
            act();
        }
    }

    /// Goal: a file that is renamed while it is being committed is in that commit or in the next one (without snapshots).
    #[test]
    fn a_rename_during_a_commit_loses_nothing() {
        let pool = tempfile::TempDir::new().unwrap();
        let reserve = Reserve { percent: 0, bytes_min: 1 << 20 };
        let quiet = std::time::Duration::from_secs(3600);
        let store = Store::open(pool.path(), None, Options { reserve, quiet, ..Options::default() }).unwrap();
        let name = BranchName { role: "cleo".parse().unwrap(), run: RunId::random() };
        let who = Provenance {
            principal: "agent:cleo".into(),
            on_behalf_of: None,
            run: name.run,
            lease: LeaseId::random(),
            purpose: None,
            read_manifest: None,
        };
        let branch = store.fork(&name, &who, Limits::NONE, None).unwrap();
        let live = branch.live();
        let path = |text: &str| TreePath::parse(text).unwrap();
        let dir = live.locate_path(&path("/shared")).unwrap();
        let (a, b) = (Name::new(b"a").unwrap(), Name::new(b"b").unwrap());
        let made = live.create(&dir, a, CreateHow::Guarded(SetAttr::default())).unwrap();
        live.write(&live.locate(made.made.node.node).unwrap(), 0, b"kept", Stability::Unstable).unwrap();
        let renamer = Arc::clone(&branch);
        let act = move || {
            renamer.live().rename(&dir, a, &dir, b).unwrap();
        };
        FROZEN.set(Some(Box::new(act)));
        branch.commit(CommitReason::Quiet).unwrap();
        branch.commit(CommitReason::Quiet).unwrap();
        let entry = |text: &str| store.history().entry_at(branch.tip(), &path(text)).unwrap();
        assert!(entry("/shared/b").is_some_and(|b| b.size == 4));
        assert_eq!(entry("/shared/a"), None);
    }
}
