//! Our side: the Store as nasd opens it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nas_store::engine::Engine as _;
use nas_store::engine::btrfs::Btrfs;
use nas_store::{Branch, CommitReason, Import, Limits, Options, Pinned, Pointer, Prepared, Store};
use nas_types::fs::Stability;
use nas_types::id::{GateId, LeaseId, RunId};
use nas_types::lease::BranchName;
use nas_types::object::Provenance;
use nas_types::path::TreePath;

use crate::files;
use crate::measure::timed;

/// A store whose main holds a tree.
pub(crate) struct Ours {
    pub(crate) store: Store,
    pool: PathBuf,
}

fn options() -> Options {
    // No commit that the benchmark did not ask for; everything else as nasd has it.
    Options { quiet: Duration::from_secs(24 * 3600), ..Options::default() }
}

fn provenance() -> Provenance {
    Provenance {
        principal: "agent:bench".into(),
        on_behalf_of: None,
        run: RunId::random(),
        lease: LeaseId::random(),
        purpose: None,
        read_manifest: None,
    }
}

fn tree_path(n: usize) -> anyhow::Result<TreePath> {
    TreePath::parse(&format!("/shared/{}", files::path(n))).map_err(|e| anyhow::anyhow!("{e}"))
}

impl Ours {
    /// A store whose main holds these files, imported on a branch and merged.
    pub(crate) fn with_history(pool: &Path, files: Range<usize>) -> anyhow::Result<Self> {
        let ours = Self::open(pool, None)?;
        let (_, branch) = ours.fork()?;
        let count = files.len();
        for n in files {
            let bytes = files::content(n, 0);
            branch.import_entry(&tree_path(n)?, Import::File(&mut bytes.as_slice()), 0o644, None)?;
        }
        branch.commit(CommitReason::Import("the tree".into()))?;
        let Pinned::Commit(pinned) = branch.pin(GateId::random(), "the tree")? else {
            anyhow::bail!("the import changed nothing")
        };
        let Prepared::Clean(prepared) = ours.store.prepare_merge(pinned)? else {
            anyhow::bail!("merging into an empty main conflicts")
        };
        ensure!(prepared.changes().len() >= count, "only {} files arrived", prepared.changes().len());
        let staged = ours.store.stage(&prepared, &provenance(), "the tree")?;
        ours.store.publish(staged)?;
        ours.give_up(&branch)?;
        Ok(ours)
    }

    /// A store whose first generation holds `count` empty files that its history does not know: enough to fork, quick
    /// to make. Forking reads no file and no tree of the history, so it cannot tell the difference.
    pub(crate) fn without_history(pool: &Path, count: usize) -> anyhow::Result<Self> {
        let made = Self::open(pool, None)?;
        let (pointer, dir) = (made.store.main().pointer(), made.store.main().live().path().to_owned());
        drop(made);
        Btrfs.set_read_only(&dir, false)?;
        for n in 0..count {
            if n % 100 == 0 {
                std::fs::create_dir_all(dir.join("shared").join(files::dir(n)))?;
            }
            std::fs::File::create(dir.join("shared").join(files::path(n)))?;
        }
        Btrfs.set_read_only(&dir, true)?;
        Btrfs.sync(&dir)?;
        Self::open(pool, Some(pointer))
    }

    fn open(pool: &Path, pointer: Option<Pointer>) -> anyhow::Result<Self> {
        std::fs::create_dir_all(pool)?;
        let store = Store::open(pool, pointer, options()).context("opening the store")?;
        ensure!(store.engine_name() == "btrfs", "the pool is not on btrfs");
        Ok(Self { store, pool: pool.to_owned() })
    }

    /// Forks main: how long it took.
    pub(crate) fn fork(&self) -> anyhow::Result<(Duration, Arc<Branch>)> {
        let name = BranchName { role: "bench".parse()?, run: RunId::random() };
        timed(|| Ok(self.store.fork(&name, &provenance(), Limits::NONE, None)?))
    }

    /// Recycles a branch and waits until its files are gone.
    pub(crate) fn give_up(&self, branch: &Branch) -> anyhow::Result<()> {
        self.store.recycle(branch.name())?;
        self.store.flush_reaper();
        self.settle()
    }

    /// Writes one file the way the NFS gateway does: located, then written.
    pub(crate) fn write(&self, branch: &Branch, n: usize, version: usize) -> anyhow::Result<()> {
        let at = branch.live().locate_path(&tree_path(n)?)?;
        let bytes = files::content(n, version);
        // Cut first, as a program does that opens the file to write it anew.
        let cut = nas_types::fs::SetAttr { size: Some(0), ..nas_types::fs::SetAttr::default() };
        branch.live().setattr(&at, &cut, None)?;
        let written = branch.live().write(&at, 0, &bytes, Stability::Unstable)?;
        ensure!(written.count as usize == bytes.len(), "a short write");
        Ok(())
    }

    /// Commits a branch: how long it took until it was durable.
    pub(crate) fn commit(&self, branch: &Branch) -> anyhow::Result<Duration> {
        let (took, made) = timed(|| Ok(branch.commit(CommitReason::Explicit("bench".into()))?))?;
        ensure!(made.is_some(), "there was nothing to commit");
        self.store.flush_reaper();
        Ok(took)
    }

    /// Waits until the file system has written what it holds, so that the next measure does not pay for it.
    pub(crate) fn settle(&self) -> anyhow::Result<()> {
        Ok(Btrfs.sync(&self.pool)?)
    }
}
