//! `nas`: the command line of Agent NAS. Every control verb is `nas <noun> <verb>`, one to one with the HTTP
//! API; a few short forms and the verbs that act on this machine (`mount`, `unmount`) come on top.
//!
//! Read in this order:
//! - `cli`: the command tree, with all help texts; `value` parses what is given there.
//! - `run`: from a parsed command to a call, and what is done with the answer.
//! - `client`: the call itself; `failure`: how it fails, and the exit codes.
//! - `state`: what is kept between calls: tokens, the last head of the ledger, mounts.
//! - `passphrase`: asking the owner; `pack`: a directory as a tar stream; `mount`: the kernel's NFS client.
//! - `show`, `card`, `text`: answers as text for people; whatever a run wrote is printed with its control and
//!   invisible characters made visible.
//!
//! Not here: any decision. The box decides, this program asks.

mod card;
mod cli;
mod client;
mod failure;
mod mount;
mod pack;
mod passphrase;
mod run;
mod show;
mod state;
mod text;
mod value;

#[cfg(test)]
mod tests;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    // Usage errors leave here, with exit code 2.
    let cli = cli::Cli::parse();
    let json = cli.global.json;
    match run::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report(json);
            ExitCode::from(failure.exit_code())
        }
    }
}
