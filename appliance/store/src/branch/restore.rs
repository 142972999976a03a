//! Bringing the files of a branch to a commit: back to one of its own, or on to what main is.

use nas_types::failpoint;
use nas_types::fs::FsError;
use nas_types::object::{Change, Entry, EntryKind, Oid};

use super::{Branch, CommitReason, Restored, State};
use crate::apply::apply;
use crate::error::StoreError;

/// Main's changes that are being put in place: from which commit of the branch, to which of main.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Following {
    from: Oid,
    to: Oid,
}

impl Branch {
    /// Brings the files exactly to commit `to` of this branch's history: files that did not exist then are gone.
    /// What is there now is committed first, and so is the result. Nothing happens unless every change is `allowed`, asked
    /// while nobody can write: what is checked is what is done.
    pub fn restore(&self, to: Oid, allowed: &dyn Fn(&Change) -> bool) -> Result<Restored, StoreError> {
        let _one = self.committing.lock();
        let Some(journal) = self.live.journal() else { return Err(self.files(FsError::ReadOnly)) };
        let stopped = loop {
            self.commit_one(CommitReason::Restore(to))?;
            let stopped = self.live.stop_changes();
            if !journal.is_dirty() {
                break stopped;
            }
        };
        let before = self.tip();
        let changes =
            self.core.history.diff_with_times(before, to).map_err(StoreError::history("comparing commits"))?;
        if let Some(refused) = changes.iter().find(|change| !allowed(change)) {
            return Err(StoreError::NotAllowed(refused.path.clone()));
        }
        if changes.is_empty() {
            return Ok(Restored { before, commit: before, changed: 0 });
        }
        let bytes = changes.iter().filter_map(|change| change.new).map(|new| new.size).sum();
        self.core.shared.space.admit(bytes).map_err(|e| self.files(e))?;
        journal.before_change().map_err(|e| self.files(e))?;
        let applied = apply(self.live.path(), &self.core.history, &changes);
        // Also after a failure: some of them happened.
        journal.changed(changes.iter().map(|change| change.path.clone()));
        self.live.forget_nodes(&stopped);
        drop(stopped);
        applied?;
        self.recount()?;
        self.commit_one(CommitReason::Restore(to))?;
        Ok(Restored { before, commit: self.tip(), changed: changes.len() })
    }

    /// Brings the files to what `main` is, when the branch holds nothing that main has not taken: the number of entries
    /// changed, or `None` when it does. From then on its changes are those from `main`; its own line of commits goes on.
    ///
    /// Until all of it is in place and on disk, the branch is what it was: what stopped half way, by an error or a crash, is
    /// taken back before anything of the branch is proposed ([`unfollow`](Self::unfollow)).
    pub fn follow(&self, main: Oid) -> Result<Option<usize>, StoreError> {
        let _one = self.committing.lock();
        let Some(journal) = self.live.journal() else { return Err(self.files(FsError::ReadOnly)) };
        self.unfollow()?;
        let stopped = self.live.stop_changes();
        let failed = || StoreError::history("comparing commits");
        let history = &self.core.history;
        let (base, before) = (self.proposal_base(), self.tip());
        if journal.is_dirty() || !history.diff(Some(base), before).map_err(failed())?.is_empty() {
            return Ok(None);
        }
        // A file that was only touched keeps its time: that is no change of main's.
        let changes = history.diff(Some(before), main).map_err(failed())?;
        if changes.is_empty() {
            return Ok(Some(0));
        }
        let bytes = changes.iter().filter_map(|change| change.new).map(|new| new.size).sum();
        self.core.shared.space.admit(bytes).map_err(|e| self.files(e))?;
        journal.before_change().map_err(|e| self.files(e))?;
        self.change_state(|state| state.following = Some(Following { from: before, to: main }))?;
        let applied = apply(self.live.path(), history, &changes).and_then(|()| self.followed(main));
        // Also after a failure: some of them happened.
        journal.changed(changes.iter().map(|change| change.path.clone()));
        self.live.forget_nodes(&stopped);
        drop(stopped);
        if let Err(error) = applied {
            self.unfollow()?;
            return Err(error);
        }
        #[cfg(test)]
        tests::followed();
        let committed = self.commit_one(CommitReason::Follow(main))?.unwrap_or(before);
        // Unless someone wrote between the two, there is nothing left that counts against the quota.
        if history.diff(Some(main), committed).map_err(failed())?.is_empty() {
            self.change_state(|state| (state.base, state.object_bytes) = (committed, 0))?;
            self.live.usage().clear();
            self.recount()?;
        }
        Ok(Some(changes.len()))
    }

    /// All of main is in place, and nobody wrote since: first on disk, then so noted.
    fn followed(&self, main: Oid) -> Result<(), StoreError> {
        self.live.sync_namespace().map_err(|e| self.files(e))?;
        failpoint::hit("store.follow.applied");
        self.change_state(|state| {
            (state.merged, state.following) = (Some(main), None);
            state.pins.clear();
        })?;
        failpoint::hit("store.follow.state");
        Ok(())
    }

    /// Takes back what a follow put in place before it stopped. A path that is as main has it goes back to what the branch had;
    /// one that was written to since is left, and so is a directory that would take what is in it along.
    pub(super) fn unfollow(&self) -> Result<(), StoreError> {
        let following = self.state.lock().following;
        let (Some(Following { from, to }), Some(journal)) = (following, self.live.journal()) else { return Ok(()) };
        let stopped = loop {
            self.commit_one(CommitReason::Follow(to))?;
            let stopped = self.live.stop_changes();
            if !journal.is_dirty() {
                break stopped;
            }
        };
        let failed = || StoreError::history("comparing commits");
        let (history, tip) = (&self.core.history, self.tip());
        let mut back = Vec::new();
        for change in history.diff(Some(from), to).map_err(failed())? {
            let now = history.entry_at(tip, &change.path).map_err(failed())?;
            let is_dir = |entry: Option<Entry>| entry.is_some_and(|entry| entry.kind == EntryKind::Dir);
            if same(now, change.new) && (is_dir(change.old) || !is_dir(now)) {
                back.push(Change { path: change.path, old: now, new: change.old });
            }
        }
        journal.before_change().map_err(|e| self.files(e))?;
        let applied = apply(self.live.path(), history, &back);
        journal.changed(back.iter().map(|change| change.path.clone()));
        self.live.forget_nodes(&stopped);
        applied?;
        self.live.sync_namespace().map_err(|e| self.files(e))?;
        self.change_state(|state| state.following = None)?;
        drop(stopped);
        tracing::info!(branch = %self.name, paths = back.len(), "following main was taken back");
        self.commit_one(CommitReason::Follow(from)).map(drop)
    }

    /// Changes the state on disk, and then in memory.
    fn change_state(&self, change: impl FnOnce(&mut State)) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let mut changed = state.clone();
        change(&mut changed);
        self.save(&changed, true)?;
        *state = changed;
        Ok(())
    }
}

/// The same content and mode, times aside.
fn same(left: Option<Entry>, right: Option<Entry>) -> bool {
    let timeless = |entry: Option<Entry>| entry.map(|entry| Entry { mtime: None, ..entry });
    timeless(left) == timeless(right)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use std::sync::Arc;

    use nas_types::id::{GateId, RunId};
    use nas_types::lease::BranchName;
    use nas_types::path::TreePath;

    use super::*;
    use crate::apply::Import;
    use crate::branch::Pinned;
    use crate::generation::Prepared;
    use crate::space::{Limits, Reserve};
    use crate::store::{Options, Store};

    thread_local! {
        static FOLLOWED: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    /// Runs what a test wants to happen after main's changes were put in place and before they are committed.
    pub(super) fn followed() {
        if let Some(act) = FOLLOWED.take() {
            act();
        }
    }

    fn put(branch: &Branch, path: &str, text: &str) {
        let path = TreePath::parse(path).unwrap();
        branch.import_entry(&path, Import::File(&mut text.as_bytes()), 0o644, None).unwrap();
    }

    fn merge(store: &Store, branch: &Branch) {
        let gate = GateId::random();
        let Pinned::Commit(pinned) = branch.pin(gate, "test").unwrap() else { return };
        let Prepared::Clean(prepared) = store.prepare_merge(pinned).unwrap() else { unreachable!("a conflict") };
        let staged = store.stage(&prepared, &branch.provenance(), "test").unwrap();
        store.publish(staged).unwrap();
        branch.merged(pinned).unwrap();
    }

    fn open(pool: &tempfile::TempDir) -> Store {
        let reserve = Reserve { percent: 0, bytes_min: 1 << 20 };
        let quiet = Duration::from_secs(3600);
        Store::open(pool.path(), None, Options { reserve, quiet, ..Options::default() }).unwrap()
    }

    fn fork(store: &Store, role: &str) -> Arc<Branch> {
        let name = BranchName { role: role.parse().unwrap(), run: RunId::random() };
        store.fork(&name, &store.core.options.founder, Limits::NONE, None).unwrap()
    }

    fn on_main(store: &Store, path: &str) -> Option<String> {
        let commit = store.main().pointer().commit;
        let entry = store.history().entry_at(commit, &TreePath::parse(path).unwrap()).unwrap()?;
        Some(String::from_utf8(store.history().read_blob(entry.oid.unwrap(), 100).unwrap()).unwrap())
    }

    /// Goal: an edit that comes while the branch follows main does not make main's changes its own, so it never takes back
    /// what main does next.
    #[test]
    fn an_edit_while_following_owns_nothing_of_main() {
        let pool = tempfile::TempDir::new().unwrap();
        let store = open(&pool);
        let (seed, run) = (fork(&store, "cleo"), fork(&store, "cleo"));
        put(&seed, "/shared/f", "before");
        merge(&store, &seed);
        let mine = fork(&store, "owner");
        put(&run, "/shared/g", "of the run");
        put(&seed, "/shared/f", "changed");
        merge(&store, &seed);
        merge(&store, &run);
        let writer = Arc::clone(&mine);
        FOLLOWED.set(Some(Box::new(move || put(&writer, "/shared/mine", "mine"))));
        assert!(mine.follow(store.main().pointer().commit).unwrap().is_some());
        // Main goes back to what it was when the branch began.
        put(&seed, "/shared/f", "before");
        merge(&store, &seed);
        merge(&store, &mine);
        assert_eq!(on_main(&store, "/shared/f").as_deref(), Some("before"));
        assert_eq!(on_main(&store, "/shared/mine").as_deref(), Some("mine"));
    }

    /// Goal: a follow that something stands in the way of changes nothing in the end: what it put in place is taken back, the
    /// person's own edits stay, and main's changes are never proposed as theirs. With the way free it goes on.
    #[test]
    fn a_follow_that_fails_owns_nothing_of_main() {
        let pool = tempfile::TempDir::new().unwrap();
        let store = open(&pool);
        let seed = fork(&store, "cleo");
        put(&seed, "/shared/a", "one");
        put(&seed, "/shared/gone", "there");
        merge(&store, &seed);
        let mine = fork(&store, "owner");
        let in_the_way = mine.live().path().join("shared/box");
        rustix::fs::mknodat(rustix::fs::CWD, &in_the_way, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .unwrap();
        put(&seed, "/shared/a", "RUN");
        put(&seed, "/shared/box/in", "in");
        std::fs::remove_file(seed.live().path().join("shared/gone")).unwrap();
        let journal = seed.live().journal().unwrap();
        journal.before_change().unwrap();
        journal.changed([TreePath::parse("/shared/gone").unwrap()]);
        merge(&store, &seed);
        assert!(mine.follow(store.main().pointer().commit).is_err());
        let text = |path: &str| std::fs::read_to_string(mine.live().path().join(path)).unwrap();
        assert_eq!((text("shared/a").as_str(), text("shared/gone").as_str()), ("one", "there"));
        // Main goes back, and the branch has an edit of its own.
        put(&seed, "/shared/a", "one");
        merge(&store, &seed);
        put(&mine, "/shared/mine", "mine");
        merge(&store, &mine);
        let found = ["/shared/a", "/shared/mine", "/shared/gone"].map(|path| on_main(&store, path));
        assert_eq!(found, [Some("one".to_owned()), Some("mine".to_owned()), None]);
        std::fs::remove_file(&in_the_way).unwrap();
        assert!(mine.follow(store.main().pointer().commit).unwrap().is_some_and(|changed| changed > 0));
        assert_eq!(text("shared/box/in"), "in");
    }

    /// Goal: a crash between a merge and its note makes nothing of it the branch's own once more.
    #[test]
    fn a_merge_that_was_not_noted_is_found() {
        let pool = tempfile::TempDir::new().unwrap();
        let store = open(&pool);
        let (seed, mine) = (fork(&store, "cleo"), fork(&store, "owner"));
        put(&mine, "/shared/a", "mine");
        let gate = GateId::random();
        let Pinned::Commit(pinned) = mine.pin(gate, "test").unwrap() else { unreachable!("it changed") };
        let Prepared::Clean(prepared) = store.prepare_merge(pinned).unwrap() else { unreachable!("a conflict") };
        store.publish(store.stage(&prepared, &mine.provenance(), "test").unwrap()).unwrap();
        // Here the box stopped. Then main takes it back.
        seed.follow(store.main().pointer().commit).unwrap();
        put(&seed, "/shared/a", "of the run");
        merge(&store, &seed);
        mine.note_taken(store.main().pointer().commit).unwrap();
        assert_eq!(mine.pin(GateId::random(), "test").unwrap(), Pinned::Unchanged);
        merge(&store, &mine);
        assert_eq!(on_main(&store, "/shared/a").as_deref(), Some("of the run"));
    }
}
