//! Measures what the design promises about speed: each figure is a ratio to something everybody has, taken in the same run.
//!
//! One JSON line a measure: `name`, `ratio`, `goal` (the largest ratio that meets it), `ours` and `theirs` with unit, `met`.
//! Pairs are interleaved after a warm-up and medians are compared, so that a busy neighbour disturbs both sides. Everything
//! happens on one btrfs in a loop image, which needs root.
//!
//! Read in this order: [`measure`] (pairs, medians, the line), [`files`] (what the trees hold), [`ours`] (the Store),
//! [`git`] (the other side), `against_git` and `fork_size` (the measures).

mod against_git;
mod files;
mod fork_size;
mod git;
mod measure;
mod ours;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use nas_testkit::LoopBtrfs;

/// Size of the sparse image, in bytes: the millions of inodes of a whole run need about 8 GiB of it.
const DISK_BYTES: u64 = 48 << 30;

/// Benchmarks of the Store.
#[derive(Debug, Parser)]
#[command(name = "nas-bench")]
struct Args {
    /// Small trees and few rounds: shows that the measures work, in less than a minute. The goals are those of the full
    /// size, so `met` says nothing then.
    #[arg(long)]
    quick: bool,
    /// Exit with 1 when a goal is missed.
    #[arg(long)]
    check: bool,
    /// Run only measures whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

/// How large everything is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// Files of the tree compared with git.
    pub(crate) files: usize,
    /// Files changed by the large commit.
    pub(crate) changed: usize,
    /// Files of the tree that is one directory.
    pub(crate) flat: usize,
    /// Pairs of slow measures.
    pub(crate) pairs: usize,
    /// Pairs of fast measures.
    pub(crate) pairs_fast: usize,
    /// Files of the two trees that only forks are compared on.
    pub(crate) small_and_large: (usize, usize),
}

const FULL: Scale = Scale {
    files: 100_000,
    changed: 10_000,
    flat: 10_000,
    pairs: 3,
    pairs_fast: 9,
    small_and_large: (10_000, 1_000_000),
};
const QUICK: Scale =
    Scale { files: 5_000, changed: 500, flat: 1_000, pairs: 3, pairs_fast: 3, small_and_large: (1_000, 20_000) };

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let scale = if args.quick { QUICK } else { FULL };
    if args.quick {
        eprintln!(
            "--quick: trees of {} files instead of {}, forks of {:?}",
            QUICK.files, FULL.files, QUICK.small_and_large
        );
    }
    let disk = LoopBtrfs::new(DISK_BYTES).context("the measures run on a btrfs of their own")?;
    let mut report = measure::Report::new(args.only);
    against_git::run(disk.path(), scale, &mut report)?;
    against_git::run_flat(disk.path(), scale, &mut report)?;
    fork_size::run(disk.path(), scale, &mut report)?;
    drop(disk);
    Ok(if args.check && report.missed() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
