//! What can go wrong with a guest, told so that a person knows what to do next.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a guest could not be made, booted or talked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program is not installed.
    #[error("the program `{program}` is not installed; `cargo xtask setup` installs it")]
    NoProgram {
        /// Its name.
        program: String,
    },
    /// A program ran and failed.
    #[error("`{command}` failed: {stderr}")]
    Command {
        /// The command line.
        command: String,
        /// What it said.
        stderr: String,
    },
    /// No package with a suitable kernel is known to apt.
    #[error("apt knows no kernel package of {candidates:?}; `cargo xtask setup` fetches the package lists")]
    NoKernelPackage {
        /// The packages that were looked for.
        candidates: Vec<String>,
    },
    /// The kernel package lacks a module.
    #[error("kernel {kernel} has no module `{module}`")]
    NoModule {
        /// The kernel's version.
        kernel: String,
        /// The module's name.
        module: String,
    },
    /// A file could not be read or written.
    #[error("{what} {path}")]
    File {
        /// What was being done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The machine did not report itself ready.
    #[error("the guest was not ready after {patience:?}; its console ends with:\n{console}")]
    NotReady {
        /// How long was waited.
        patience: Duration,
        /// The last lines of its console.
        console: String,
    },
    /// The machine is gone: it panicked, was powered off or was killed.
    #[error("the guest is gone; its console ends with:\n{console}")]
    Gone {
        /// The last lines of its console.
        console: String,
    },
    /// A command did not end in time. It goes on inside the guest.
    #[error("no reply after {patience:?} to `{command}`; the guest's console ends with:\n{console}")]
    TimedOut {
        /// How long was waited.
        patience: Duration,
        /// What had been asked.
        command: String,
        /// The last lines of its console.
        console: String,
    },
    /// A command that had to succeed did not.
    #[error("`{command}` ended with status {status}: {output}")]
    Status {
        /// What had been asked.
        command: String,
        /// Its exit status.
        status: i32,
        /// What it printed.
        output: String,
    },
}

impl Error {
    /// For `map_err`: the path and the act belong to the message.
    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }
}
