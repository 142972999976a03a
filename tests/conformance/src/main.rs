//! `nas-conformance`: the conformance suite as a program; `nas conformance` runs it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use nas_conformance::{Address, Subject};

/// Checks an implementation of the specification, black-box.
#[derive(Debug, Parser)]
#[command(name = "nas-conformance", bin_name = "nas conformance", version)]
struct Arguments {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the acceptance tests L0 and L1 against a box; they write below /shared/conformance-<random>
    Run(RunArgs),
}

/// Which box, and where the result goes.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Address of the box's HTTP API.
    #[arg(long, env = "NAS_URL", default_value = "http://127.0.0.1:8480")]
    url: String,
    /// Address of NFS and MOUNT, host:port.
    #[arg(long)]
    nfs: String,
    /// File with the owner's token.
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// File with the owner's passphrase: the suite decides gates of its own runs.
    #[arg(long, value_name = "FILE")]
    passphrase_file: PathBuf,
    /// Only these tests, e.g. L0.1,L1.7.
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    only: Vec<String>,
    /// Write conformance.json here.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print conformance.json instead of the table.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let Verb::Run(arguments) = Arguments::parse().command;
    match run(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("nas conformance: {message}");
            ExitCode::from(2)
        }
    }
}

/// True when nothing failed.
fn run(arguments: RunArgs) -> Result<bool, String> {
    let at = Address {
        url: arguments.url.trim_end_matches('/').to_owned(),
        nfs: arguments.nfs,
        token: secret(&arguments.token_file)?,
        passphrase: secret(&arguments.passphrase_file)?,
    };
    let subject = Subject::new(at)?;
    eprintln!("writing below {}, which stays in main", subject.place());
    let report = nas_conformance::run(&subject, &arguments.only)?;
    if let Some(out) = &arguments.out {
        std::fs::write(out, report.to_json()).map_err(|error| format!("cannot write {}: {error}", out.display()))?;
    }
    print!("{}", if arguments.json { report.to_json() } else { report.to_table() });
    Ok(!report.failed())
}

/// The first line of a file.
fn secret(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
