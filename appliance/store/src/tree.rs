//! Unprotected trees (DESIGN §3): plain NAS space beside main. Each is one live directory, `tree/<name>` in the pool, served like
//! a branch and without history: whoever else writes there (Samba) is never missed, because nothing is noted.
//!
//! Which trees there are is the ledger's word. Here every directory is opened; the Door stops serving what it has removed.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use nas_types::lease::TreeName;

use crate::error::StoreError;
use crate::live::LiveDir;
use crate::reaper::Reap;
use crate::store::{Core, Store, sync_dir};

/// Opens the directories of all trees. One that cannot be opened is left as it is and not served.
pub(crate) fn open_all(core: &Core) -> Result<HashMap<TreeName, Arc<LiveDir>>, StoreError> {
    let dir = core.pool.join("tree");
    let mut trees = HashMap::new();
    for entry in fs::read_dir(&dir).map_err(StoreError::io("reading", &dir))? {
        let entry = entry.map_err(StoreError::io("reading", &dir))?;
        let Some(name) = entry.file_name().to_str().and_then(|name| name.parse::<TreeName>().ok()) else {
            tracing::warn!(path = %entry.path().display(), "this is the directory of no tree: it is left as it is");
            continue;
        };
        match open(core, &name) {
            Ok(live) => drop(trees.insert(name, live)),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, %name, "a tree cannot be opened: it is left as it is, and not served");
            }
        }
    }
    Ok(trees)
}

fn path(core: &Core, name: &TreeName) -> PathBuf {
    core.pool.join("tree").join(name.as_str())
}

fn open(core: &Core, name: &TreeName) -> Result<Arc<LiveDir>, StoreError> {
    LiveDir::open_without_history(&path(core, name), core.shared.clone())
        .map(Arc::new)
        .map_err(|source| StoreError::Tree { name: name.clone(), source })
}

impl Store {
    /// Makes an unprotected tree, durably.
    pub fn create_tree(&self, name: &TreeName) -> Result<Arc<LiveDir>, StoreError> {
        if !self.core.shared.space.has_room() {
            return Err(StoreError::NoSpace);
        }
        let path = path(&self.core, name);
        self.core.shared.engine.create(&path).map_err(StoreError::io("making", &path))?;
        sync_dir(&self.core.pool.join("tree"))?;
        self.open_tree(name)
    }

    /// An unprotected tree that is served.
    #[must_use]
    pub fn tree(&self, name: &TreeName) -> Option<Arc<LiveDir>> {
        self.trees.lock().get(name).cloned()
    }

    /// The unprotected trees that are served, sorted.
    #[must_use]
    pub fn trees(&self) -> Vec<TreeName> {
        let mut names: Vec<_> = self.trees.lock().keys().cloned().collect();
        names.sort();
        names
    }

    /// Stops serving a tree; its files stay.
    pub fn close_tree(&self, name: &TreeName) {
        if let Some(live) = self.trees.lock().remove(name) {
            live.close_files();
        }
    }

    /// Serves a tree (again).
    pub fn open_tree(&self, name: &TreeName) -> Result<Arc<LiveDir>, StoreError> {
        let live = open(&self.core, name)?;
        Ok(Arc::clone(self.trees.lock().entry(name.clone()).or_insert(live)))
    }

    /// Deletes a tree and all that is in it, in the background. One that is not there is fine.
    pub fn delete_tree(&self, name: &TreeName) -> Result<(), StoreError> {
        self.close_tree(name);
        let path = path(&self.core, name);
        if path.try_exists().map_err(StoreError::io("looking for", &path))? {
            // Under a name that no tree can have: a new one of this name may be made at once.
            let gone = self.core.temp_path("tree");
            fs::rename(&path, &gone).map_err(StoreError::io("removing", &path))?;
            // A power cut must not bring it back under a name that is free again.
            sync_dir(&self.core.pool.join("tree"))?;
            self.core.reap(Reap::Now(gone));
        }
        Ok(())
    }

    /// Removes the directory of a tree if nothing is in it: one whose making a crash cut short. `false`: something is.
    pub fn discard_empty_tree(&self, name: &TreeName) -> Result<bool, StoreError> {
        let path = path(&self.core, name);
        let empty = fs::read_dir(&path).map_err(StoreError::io("reading", &path))?.next().is_none();
        if empty {
            self.delete_tree(name)?;
        }
        Ok(empty)
    }
}
