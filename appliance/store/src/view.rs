//! Views of single commits (DESIGN §3): who needs one unchanging state over many requests mounts a commit. Each is a read-only
//! fork of main with the difference put in place, `view/<commit>` in the pool: its cost is what differs, and its files keep
//! their inode numbers across a restart.

use std::fs;
use std::sync::Arc;

use nas_types::object::Oid;

use crate::error::StoreError;
use crate::generation::build;
use crate::live::LiveDir;
use crate::reaper::Reap;
use crate::space::Limits;
use crate::store::{Store, sync_dir};

/// Commits shown at a time.
const VIEWS_MAX: usize = 64;

impl Store {
    /// The files of a commit, read-only. Made when nobody looked at it before.
    pub fn view(&self, commit: Oid) -> Result<Arc<LiveDir>, StoreError> {
        // One at a time: two mounts of one commit make it once.
        let mut views = self.views.lock();
        if let Some(view) = views.get(&commit) {
            return Ok(Arc::clone(view));
        }
        let all = self.core.pool.join("view");
        let dir = all.join(commit.to_string());
        if !dir.try_exists().map_err(StoreError::io("looking for", &dir))? {
            if self.views_on_disk()?.len() >= VIEWS_MAX {
                return Err(StoreError::TooManyViews(VIEWS_MAX));
            }
            let main = self.main();
            let changes = self.core.history.diff_with_times(main.pointer().commit, commit);
            let changes = changes.map_err(StoreError::history("comparing commits"))?;
            let bytes = changes.iter().filter_map(|change| change.new).map(|new| new.size).sum();
            self.core.shared.space.admit(bytes).map_err(|_| StoreError::NoSpace)?;
            let part = all.join(format!("{commit}.part"));
            build(&self.core, main.dir(), &part, &changes).inspect_err(|_| self.core.reap(Reap::Now(part.clone())))?;
            fs::rename(&part, &dir).map_err(StoreError::io("putting in place", &dir))?;
            sync_dir(&all)?;
        }
        let live = LiveDir::open(&dir, self.core.shared.clone(), None, Limits::NONE);
        let live = Arc::new(live.map_err(|source| StoreError::Files { branch: commit.to_string(), source })?);
        views.insert(commit, Arc::clone(&live));
        Ok(live)
    }

    /// Gives up every view but those that `wanted` wants, and what a crash left of making one.
    pub fn drop_views(&self, wanted: impl Fn(Oid) -> bool) -> Result<(), StoreError> {
        let mut views = self.views.lock();
        for (commit, dir) in self.views_on_disk()? {
            if commit.is_some_and(&wanted) {
                continue;
            }
            if let Some(live) = commit.and_then(|commit| views.remove(&commit)) {
                live.close_files();
            }
            // Renamed first: the same commit may be wanted again at once.
            let gone = self.core.pool.join("view").join(format!("{}.gone", self.core.next_number()));
            fs::rename(&dir, &gone).map_err(StoreError::io("removing", &dir))?;
            self.core.reap(Reap::Now(gone));
        }
        Ok(())
    }

    /// What is in `view/`; `None` stands for what is no whole view.
    fn views_on_disk(&self) -> Result<Vec<(Option<Oid>, std::path::PathBuf)>, StoreError> {
        let all = self.core.pool.join("view");
        let mut found = Vec::new();
        for entry in fs::read_dir(&all).map_err(StoreError::io("reading", &all))? {
            let entry = entry.map_err(StoreError::io("reading", &all))?;
            found.push((entry.file_name().to_str().and_then(|name| name.parse().ok()), entry.path()));
        }
        Ok(found)
    }
}
