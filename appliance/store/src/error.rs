//! How the kernel's errors become ours.

use nas_types::fs::FsError;
use rustix::io::Errno;

/// Maps an errno of an operation on live files. Unknown ones are logged and become [`FsError::Io`].
pub(crate) fn fs_error(errno: Errno) -> FsError {
    match errno {
        Errno::NOENT => FsError::NotFound,
        Errno::EXIST => FsError::Exists,
        Errno::NOTDIR => FsError::NotDir,
        Errno::ISDIR => FsError::IsDir,
        Errno::NOTEMPTY => FsError::NotEmpty,
        Errno::NAMETOOLONG => FsError::NameTooLong,
        Errno::INVAL | Errno::LOOP | Errno::NXIO => FsError::Invalid,
        Errno::ACCESS | Errno::PERM => FsError::NotPermitted,
        Errno::ROFS => FsError::ReadOnly,
        Errno::STALE => FsError::Stale,
        Errno::DQUOT => FsError::Quota,
        Errno::NOSPC => FsError::NoSpace,
        Errno::FBIG | Errno::OVERFLOW => FsError::TooLarge,
        Errno::MLINK => FsError::TooManyLinks,
        Errno::XDEV => FsError::CrossBranch,
        Errno::OPNOTSUPP | Errno::NOSYS => FsError::NotSupported,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::BUSY => FsError::Later,
        other => {
            tracing::error!(errno = %other, "a file operation failed");
            FsError::Io
        }
    }
}

/// Why a verb of the Store (not an operation on one file) failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system refused.
    #[error("{what} '{path}' failed")]
    Io {
        /// What was being done.
        what: &'static str,
        /// To which file or directory of the pool.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// An operation on live files failed.
    #[error("an operation on the files of {branch} failed")]
    Files {
        /// Where.
        branch: String,
        /// Why.
        source: FsError,
    },
    /// History refused.
    #[error("history: {what}")]
    History {
        /// What was being done.
        what: &'static str,
        /// Why.
        source: nas_history::HistoryError,
    },
    /// A file of the Store's own does not hold what it must.
    #[error("'{path}' is damaged: {why}")]
    Damaged {
        /// Which file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// No such branch.
    #[error("there is no branch {0}")]
    NoBranch(nas_types::lease::BranchName),
    /// The branch exists already.
    #[error("branch {0} exists already")]
    BranchExists(nas_types::lease::BranchName),
    /// As many commits are shown as may be at a time.
    #[error("{0} commits are mounted, as many as this box shows at a time: unmount one, and try again in a minute")]
    TooManyViews(usize),
    /// The files of an unprotected tree could not be opened.
    #[error("the tree {name} cannot be opened")]
    Tree {
        /// Which.
        name: nas_types::lease::TreeName,
        /// Why.
        source: FsError,
    },
    /// The ledger says that main is at an older commit than it was: a ledger that was brought back from a copy. Opening
    /// the store with it would remove what main became since.
    #[error(
        "the ledger is older than the store: it says main is generation {ledger}, but the history of main goes on after it; \
         nothing was changed; bring back the newest ledger"
    )]
    OldLedger {
        /// Generation that the ledger names.
        ledger: u64,
    },
    /// A restore would change this path, and the caller does not allow it.
    #[error("the restore would change '{0}', which is not allowed")]
    NotAllowed(nas_types::path::TreePath),
    /// Main moved since this was prepared.
    #[error("main is at generation {now}, this was prepared on {prepared}")]
    MainMoved {
        /// Current generation.
        now: u64,
        /// The one it was prepared on.
        prepared: u64,
    },
    /// A writer kept changing the file while it was being committed (copy engine only).
    #[error("'{0}' kept changing while it was read for a commit; it is tried again after a pause")]
    Busy(nas_types::path::TreePath),
    /// Another stage of the same merge is at work, or was not published.
    #[error("the same merge is being prepared already; try again when it is decided")]
    StagedAlready,
    /// Opening an embedded store needs a program that failed.
    #[error("'{program}' failed: {why}")]
    Program {
        /// Which.
        program: &'static str,
        /// Its own words.
        why: String,
    },
    /// The pool reached its reserve.
    #[error("no space left: the pool reached its reserve; delete files or branches first")]
    NoSpace,
    /// The store was written by a newer version.
    #[error("the store has format {found}, this version knows up to {known}: update first")]
    Format {
        /// In the folder.
        found: u32,
        /// Known here.
        known: u32,
    },
}

impl StoreError {
    /// Did it fail because the pool or the quota is full?
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::Io { source, .. } => matches!(source.kind(), std::io::ErrorKind::StorageFull),
            Self::Files { source, .. } => matches!(source, FsError::NoSpace | FsError::Quota),
            Self::History { source, .. } => source.is_no_space(),
            Self::NoSpace => true,
            _ => false,
        }
    }

    pub(crate) fn history(what: &'static str) -> impl FnOnce(nas_history::HistoryError) -> Self {
        move |source| Self::History { what, source }
    }

    pub(crate) fn io(what: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Io { what, path, source }
    }
}
