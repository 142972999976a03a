//! Power cuts, replayed: what would be on the disk if the machine had lost power at any moment of a test?
//!
//! ```text
//!  program under test → btrfs → loop device → a file served over FUSE by `nas-powerloss-server` → log of writes and flushes
//! ```
//!
//! While a test works on [`Recorder::mount_dir`], every write and every flush that reaches the "disk" is logged in order.
//! The test adds [`Recorder::marker`]s where a client was promised something ("COMMIT of x answered"). Afterwards
//! [`Log::sweep`] rebuilds, for every flush, the images that a power cut between it and the next one can leave: everything
//! up to the flush, and any part of what came later. Each image is mounted, one at a time, and a checker of the test
//! looks whether something promised is gone.
//!
//! Read in this order: [`record`] (the log's format), [`server`] (the FUSE file system, a process of its own so that no
//! test can deadlock with its own disk), [`recorder`], [`replay`] (images from a log), [`sweep`] (mount and check).
//!
//! The model of the disk: a flush makes every write answered before it durable; other writes may be there, missing, or
//! there up to some 4 KiB sector, each on its own. What it cannot show: writes reordered *across* a flush (a lying disk),
//! and firmware that tears a 4 KiB sector. FINDINGS §1 tells why not dm-log-writes: kernels without device-mapper.
//!
//! Not here: what a promise means. That is the checker's part.

pub mod record;
pub mod recorder;
pub mod replay;
pub mod server;
pub mod sweep;

use std::io;
use std::path::PathBuf;

pub use recorder::Recorder;
pub use replay::{CrashPoint, FlushPoint, Log, Marker, Replayer, Subset};
pub use sweep::{Crash, Report, Sweep, check};

/// Why a recording or a replay did not work. A lost promise is no error: see [`Report`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Root, FUSE, loop devices or btrfs are missing here.
    #[error("cannot simulate a disk here: {0}")]
    Unavailable(#[from] nas_testkit::Unavailable),
    /// A file could not be read or written.
    #[error("{what} {path}: {source}")]
    File {
        /// What was being done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The server did not start or did not end.
    #[error("the disk server: {0}")]
    Server(String),
    /// The log is not one of this version.
    #[error("the log is damaged or of another version: {0}")]
    Log(String),
    /// Somebody still uses the recorded file system.
    #[error("the recorded file system is still in use, so the recording cannot end: {0}")]
    Busy(nas_testkit::Unavailable),
}

impl Error {
    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }
}
