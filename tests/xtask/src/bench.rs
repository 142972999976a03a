//! `cargo xtask bench`: the release build of `nas-bench`, which prints one JSON line per measure.

use clap::Args;

use crate::program::{self, cargo};

/// Arguments of `cargo xtask bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Passed on to nas-bench.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds and runs it.
pub(crate) fn run(arguments: &BenchArgs) -> anyhow::Result<()> {
    program::run(cargo(["run", "--quiet", "--release", "--package", "nas-bench", "--"]).args(&arguments.arguments))
}
