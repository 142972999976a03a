//! `cargo xtask demo`: the overnight run, played on a real tree, step by step.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

/// Arguments of `cargo xtask demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Stop when the run is over; exit with 0 if every step held.
    #[arg(long)]
    pub(crate) once: bool,
    /// Where the embedded store lives.
    #[arg(long, value_name = "DIR", default_value = "nas-data")]
    pub(crate) data: PathBuf,
}

/// Plays it.
pub(crate) fn run(arguments: &DemoArgs) -> anyhow::Result<()> {
    bail!("the demo (once: {}, data: {}) is not written yet", arguments.once, arguments.data.display())
}
