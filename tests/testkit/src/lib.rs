//! What the tests of every crate share: places to work in, disks that can be filled, processes that die with their test.
//!
//! Read in this order: [`scratch`] (a directory that goes away), [`disk`] (loop-mounted file systems, also very small
//! ones), [`process`] (a child that is killed when its guard is dropped), [`wait`] (conditions instead of sleeps),
//! [`real_tree`] (a directory of real files nobody wrote for a test).
//!
//! A test that needs root asks for a disk and gets [`Unavailable`] when it cannot have one; [`or_skip`] turns that into
//! a visible skip on a developer's machine and into a failure where `NAS_TEST_REQUIRE=1` (CI) says that everything must run.
//!
//! Not here: the kernel NFS client (`nas-guest`) and power cuts (`nas-powerloss`).

pub mod disk;
pub mod process;
pub mod real_tree;
pub mod scratch;
pub mod wait;

pub use disk::{LoopBtrfs, LoopDevice, Mounted, SmallDisk};
pub use process::Process;
pub use real_tree::real_tree;
pub use scratch::Scratch;
pub use wait::{free_port, wait_until};

/// Why a resource that a test asked for cannot be had on this machine.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// Loop devices and mounts need root.
    #[error("needs root")]
    NotRoot,
    /// A program is not installed.
    #[error("the program `{0}` is not installed; `cargo xtask setup` installs it")]
    NoProgram(String),
    /// A program ran and failed.
    #[error("`{command}` failed ({status}): {stderr}")]
    Failed {
        /// The command line that was run.
        command: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it said.
        stderr: String,
    },
    /// The operating system refused.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// True when this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// True when nothing may be skipped: CI sets `NAS_TEST_REQUIRE=1`.
pub fn everything_required() -> bool {
    std::env::var_os("NAS_TEST_REQUIRE").is_some_and(|v| v != "0" && !v.is_empty())
}

/// The resource, or `None` after saying why the test is skipped.
///
/// # Panics
/// Where `NAS_TEST_REQUIRE=1` says that everything must run: a skipped test proves nothing.
pub fn or_skip<T, E: std::fmt::Display>(resource: Result<T, E>) -> Option<T> {
    match resource {
        Ok(resource) => Some(resource),
        Err(reason) => {
            assert!(!everything_required(), "NAS_TEST_REQUIRE is set and a resource is missing: {reason}");
            eprintln!("skipped: {reason}");
            None
        }
    }
}
