//! `cargo xtask test`: everything that CI runs, in stages, the cheap ones first. The first red stage ends the run.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use crate::program::{cargo, run as run_program, succeeds, target_dir};
use crate::{conformance, demo, schemathesis, setup};

/// Arguments of `cargo xtask test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Run only these stages (comma-separated).
    #[arg(long, value_delimiter = ',', value_name = "STAGE")]
    only: Vec<Stage>,
    /// Leave these stages out.
    #[arg(long, value_delimiter = ',', value_name = "STAGE", conflicts_with = "only")]
    skip: Vec<Stage>,
}

/// A stage of the run, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Stage {
    /// System packages and the guest's kernel.
    Setup,
    /// The formatter has nothing to change.
    Fmt,
    /// No warning.
    Clippy,
    /// Licences and sources of the dependencies.
    Deny,
    /// Everything builds.
    Build,
    /// Unit, contract, property and layer tests.
    Unit,
    /// The examples in the documentation.
    Doc,
    /// The guest harness boots and talks.
    Guest,
    /// The power-loss harness finds what is lost.
    Powerloss,
    /// The whole box with real clients.
    E2e,
    /// Requests made from the OpenAPI document find no 5xx and no answer that is not in it.
    Api,
    /// The conformance suite against the built box; its result is the committed one.
    Conformance,
    /// The overnight run, once.
    Demo,
}

/// Packages whose tests are a stage of their own.
const GUEST: &str = "nas-guest";
const POWERLOSS: &str = "nas-powerloss";
const E2E: &str = "nas-e2e";

/// Runs the chosen stages.
pub(crate) fn run(arguments: &TestArgs) -> anyhow::Result<()> {
    let chosen = |stage: &Stage| match arguments.only.as_slice() {
        [] => !arguments.skip.contains(stage),
        only => only.contains(stage),
    };
    let mut done: Vec<(&'static str, Duration)> = Vec::new();
    for stage in Stage::value_variants().iter().filter(|stage| chosen(stage)) {
        let name = stage.name();
        println!("\n=== {name}");
        let started = Instant::now();
        let result = stage.run();
        let took = started.elapsed();
        println!("=== {name}: {} after {:.1} s", if result.is_ok() { "ok" } else { "FAILED" }, took.as_secs_f64());
        if result.is_err() {
            summary(&done);
        }
        result.with_context(|| format!("stage `{name}` failed; `cargo xtask test --only {name}` runs it alone"))?;
        done.push((name, took));
    }
    summary(&done);
    Ok(())
}

fn summary(done: &[(&'static str, Duration)]) {
    println!("\n{:<12} {:>8}", "stage", "seconds");
    for (name, took) in done {
        println!("{name:<12} {:>8.1}", took.as_secs_f64());
    }
    let total: Duration = done.iter().map(|(_, took)| *took).sum();
    println!("{:<12} {:>8.1}", "total", total.as_secs_f64());
}

impl Stage {
    const fn name(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Fmt => "fmt",
            Self::Clippy => "clippy",
            Self::Deny => "deny",
            Self::Build => "build",
            Self::Unit => "unit",
            Self::Doc => "doc",
            Self::Guest => "guest",
            Self::Powerloss => "powerloss",
            Self::E2e => "e2e",
            Self::Api => "api",
            Self::Conformance => "conformance",
            Self::Demo => "demo",
        }
    }

    fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Setup => setup::run(),
            Self::Fmt => run_program(&mut cargo(["fmt", "--all", "--check"])),
            Self::Clippy => {
                run_program(&mut cargo(["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))
            }
            Self::Deny => deny(),
            Self::Build => run_program(&mut cargo(["build", "--workspace", "--all-targets", "--locked"])),
            Self::Unit => {
                let rest = ["--workspace", "--exclude", GUEST, "--exclude", POWERLOSS, "--exclude", E2E];
                run_tests(&rest)
            }
            Self::Doc => run_program(&mut cargo(["test", "--workspace", "--doc", "--locked"])),
            Self::Guest => run_tests(&["--package", GUEST]),
            Self::Powerloss => run_tests(&["--package", POWERLOSS]),
            Self::E2e => run_tests(&["--package", E2E]),
            Self::Api => schemathesis::check(),
            Self::Conformance => conformance::run(),
            Self::Demo => demo_once(),
        }
    }
}

/// With nextest where it is (each test a process of its own, groups from .config/nextest.toml), else with cargo test.
fn run_tests(packages: &[&str]) -> anyhow::Result<()> {
    if succeeds(&mut cargo(["nextest", "--version"])) {
        return run_program(cargo(["nextest", "run", "--locked"]).args(packages));
    }
    run_program(cargo(["test", "--locked", "--all-targets"]).args(packages))
}

/// Bans, licences and sources; why no advisories: see deny.toml.
fn deny() -> anyhow::Result<()> {
    if !succeeds(&mut cargo(["deny", "--version"])) {
        println!("cargo-deny is missing; installing it");
        run_program(&mut cargo(["install", "--locked", "cargo-deny"])).context("installing cargo-deny")?;
    }
    run_program(&mut cargo(["deny", "--log-level", "error", "check", "bans", "licenses", "sources"]))
}

/// The demo on a store that is thrown away.
fn demo_once() -> anyhow::Result<()> {
    let parent = target_dir();
    std::fs::create_dir_all(&parent).context("creating the target directory")?;
    let dir = tempfile::Builder::new().prefix("demo-").tempdir_in(&parent).context("making a place for the demo")?;
    let result = demo::run(&demo::DemoArgs { once: true, data: dir.path().join("nas-data") });
    result.map_err(|error| error.context(format!("the demo's data is kept in {}", dir.keep().display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the name that is printed is the name that `--only` takes.
    #[test]
    fn names_are_accepted() {
        for stage in Stage::value_variants() {
            assert_eq!(Stage::from_str(stage.name(), false).unwrap(), *stage);
        }
    }
}
