//! `cargo xtask`: what a person, or CI, does with this workspace. One file per subcommand.
//!
//! [`setup`] brings the machine into shape, [`test`] runs everything that CI runs, [`demo`] plays the overnight run,
//! [`bench`] prints the ratios. `schemathesis` tests the HTTP API from its own description, [`conformance`] the box from
//! the specification; both are stages of [`test`]. [`program`] runs other programs and says which one failed.

mod bench;
mod conformance;
mod demo;
mod program;
mod schemathesis;
mod setup;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Set up, test and show Agent NAS.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install what building and testing need (as root), or say how.
    Setup,
    /// Run everything that CI runs, stage by stage.
    Test(test::TestArgs),
    /// Build, start nasd and play the overnight run on it.
    Demo(demo::DemoArgs),
    /// Print one JSON line per measure.
    Bench(bench::BenchArgs),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Task::Setup => setup::run(),
        Task::Test(arguments) => test::run(&arguments),
        Task::Demo(arguments) => demo::run(&arguments),
        Task::Bench(arguments) => bench::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Causes, but never a backtrace: what failed is another program or the machine, not this one.
            eprintln!("\nxtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
