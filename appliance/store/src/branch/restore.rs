//! Bringing the files of a branch to a commit: back to one of its own, or on to what main is.

use nas_types::failpoint;
use nas_types::fs::FsError;
use nas_types::object::{Change, Oid};

use super::{Branch, CommitReason, Restored};
use crate::apply::apply;
use crate::error::StoreError;

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
    pub fn follow(&self, main: Oid) -> Result<Option<usize>, StoreError> {
        let _one = self.committing.lock();
        let Some(journal) = self.live.journal() else { return Err(self.files(FsError::ReadOnly)) };
        let stopped = self.live.stop_changes();
        let failed = || StoreError::history("comparing commits");
        let history = &self.core.history;
        let (base, before) = (self.proposal_base(), self.tip());
        if journal.is_dirty() || !history.diff(Some(base), before).map_err(failed())?.is_empty() {
            return Ok(None);
        }
        let changes = history.diff_with_times(before, main).map_err(failed())?;
        if changes.is_empty() {
            return Ok(Some(0));
        }
        let bytes = changes.iter().filter_map(|change| change.new).map(|new| new.size).sum();
        self.core.shared.space.admit(bytes).map_err(|e| self.files(e))?;
        journal.before_change().map_err(|e| self.files(e))?;
        let applied = apply(self.live.path(), history, &changes);
        // Also after a failure: some of them happened. What is the same as in main conflicts with nothing.
        journal.changed(changes.iter().map(|change| change.path.clone()));
        self.live.forget_nodes(&stopped);
        drop(stopped);
        applied?;
        failpoint::hit("store.follow.applied");
        #[cfg(test)]
        tests::followed();
        let committed = self.commit_one(CommitReason::Follow(main))?.unwrap_or(before);
        // Someone may have written between the two: then the commit holds that too. What is proposed next is what differs from
        // main in either case.
        let clean = history.diff(Some(main), committed).map_err(failed())?.is_empty();
        let mut state = self.state.lock();
        state.merged = Some(main);
        state.pins.clear();
        if clean {
            (state.base, state.object_bytes) = (committed, 0);
        }
        self.save(&state, true)?;
        drop(state);
        failpoint::hit("store.follow.state");
        if !clean {
            return Ok(Some(changes.len()));
        }
        self.live.usage().clear();
        self.recount()?;
        Ok(Some(changes.len()))
    }
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

    /// Goal: an edit that comes while the branch follows main does not make main's changes its own, so it never takes back
    /// what main does next.
    #[test]
    fn an_edit_while_following_owns_nothing_of_main() {
        let pool = tempfile::TempDir::new().unwrap();
        let reserve = Reserve { percent: 0, bytes_min: 1 << 20 };
        let quiet = Duration::from_secs(3600);
        let store = Store::open(pool.path(), None, Options { reserve, quiet, ..Options::default() }).unwrap();
        let fork = |role: &str| {
            let name = BranchName { role: role.parse().unwrap(), run: RunId::random() };
            store.fork(&name, &store.core.options.founder, Limits::NONE, None).unwrap()
        };
        let (seed, run) = (fork("cleo"), fork("cleo"));
        put(&seed, "/shared/f", "before");
        merge(&store, &seed);
        let mine = fork("owner");
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
        let commit = store.main().pointer().commit;
        let text = |path: &str| {
            let entry = store.history().entry_at(commit, &TreePath::parse(path).unwrap()).unwrap().unwrap();
            String::from_utf8(store.history().read_blob(entry.oid.unwrap(), 100).unwrap()).unwrap()
        };
        assert_eq!((text("/shared/f").as_str(), text("/shared/mine").as_str()), ("before", "mine"));
    }
}
