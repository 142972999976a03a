//! The other side: git as it is installed, on the same file system.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::files;
use crate::measure::timed;

/// A repository with a work tree.
#[derive(Debug)]
pub(crate) struct Repository {
    dir: PathBuf,
}

impl Repository {
    /// A work tree of these files, committed.
    pub(crate) fn make(dir: &Path, files: Range<usize>) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let repository = Self { dir: dir.to_owned() };
        for n in files {
            if n % 100 == 0 {
                std::fs::create_dir_all(dir.join(files::dir(n)))?;
            }
            repository.write(n, 0)?;
        }
        repository.git(&["init", "--quiet", "--initial-branch=main"])?;
        // Without it git repacks in the background after a large commit, and would be slower still.
        for (key, value) in [("gc.auto", "0"), ("user.name", "Bench"), ("user.email", "bench@localhost")] {
            repository.git(&["config", key, value])?;
        }
        repository.commit_all()?;
        Ok(repository)
    }

    /// Writes one file.
    pub(crate) fn write(&self, n: usize, version: usize) -> anyhow::Result<()> {
        let path = self.dir.join(files::path(n));
        std::fs::write(&path, files::content(n, version)).with_context(|| format!("writing {}", path.display()))
    }

    /// `git add -A && git commit`: how long it took.
    pub(crate) fn commit_all(&self) -> anyhow::Result<Duration> {
        let (took, ()) = timed(|| {
            self.git(&["add", "-A"])?;
            self.git(&["commit", "--quiet", "--message", "bench"])
        })?;
        Ok(took)
    }

    /// `git worktree add`: how long it took. The work tree is removed afterwards.
    pub(crate) fn worktree_add(&self, to: &Path) -> anyhow::Result<Duration> {
        let target = to.to_str().context("the path of the work tree is text")?;
        let (took, ()) = timed(|| self.git(&["worktree", "add", "--quiet", "--detach", target]))?;
        self.git(&["worktree", "remove", "--force", target])?;
        Ok(took)
    }

    fn git(&self, args: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new("git");
        // Nobody's own configuration takes part.
        command.args(args).current_dir(&self.dir).env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", &self.dir);
        let out = command.output().context("git is not installed")?;
        ensure!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        Ok(())
    }
}
