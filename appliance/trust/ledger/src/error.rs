//! How the ledger fails.

use std::path::PathBuf;

/// What went wrong, to what, and what to do next. After any of these the ledger stays usable, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// No space. Nothing of this write is kept.
    #[error("the ledger's disk is full, nothing was recorded: free some space and try again")]
    Full,
    /// The transaction could not be made durable. Nothing of this write is kept.
    #[error("the ledger could not be written, nothing was recorded: {why}")]
    NotWritten {
        /// What SQLite or the system said.
        why: String,
    },
    /// Another process (or this one, twice) has it open.
    #[error("the ledger {} is in use by another process: stop it first", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Too many callers wait.
    #[error("too many callers wait for the ledger: try again later")]
    Busy,
    /// `write` or `read` was called inside another one.
    #[error("the ledger was called from within itself")]
    Nested,
    /// The closure given to `write` or `read` panicked; what it did is undone.
    #[error("an operation on the ledger panicked and was undone: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// Not one of ours.
    #[error("{} is not a ledger", path.display())]
    NotALedger {
        /// The file.
        path: PathBuf,
    },
    /// Written by a version that this one cannot read.
    #[error(
        "the ledger has format {format}, which needs at least format {needs}; this program knows up to {known}: use a newer program"
    )]
    TooNew {
        /// Its format.
        format: i64,
        /// The oldest program format that can open it.
        needs: i64,
        /// Ours.
        known: i64,
    },
    /// A stored value is not what this column can hold.
    #[error("the ledger holds an illegal value in {table}.{column}: verify it and restore a backup")]
    Corrupt {
        /// Table.
        table: &'static str,
        /// Column.
        column: &'static str,
    },
    /// The key or a unique value exists already.
    #[error("{table} holds such a row already")]
    Exists {
        /// Table.
        table: &'static str,
    },
    /// A row to change is not there.
    #[error("{table} holds no such row")]
    Missing {
        /// Table.
        table: &'static str,
    },
    /// A row refers to one that is not there.
    #[error("a row of {table} refers to one that does not exist")]
    Dangling {
        /// Table.
        table: &'static str,
    },
    /// An anchor must never fall behind what it said before.
    #[error("the anchored count {last} would fall to {count}: the ledger lost records, do not write to it")]
    AnchorFalls {
        /// What was anchored.
        last: u64,
        /// What came now.
        count: u64,
    },
    /// The same count, another hash.
    #[error("record {seq} has another hash than the anchored one: the ledger was changed")]
    AnchorForks {
        /// Record number.
        seq: u64,
    },
    /// SQLite refused.
    #[error("the ledger failed at {doing}")]
    Sql {
        /// What was being done.
        doing: &'static str,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// A file beside the database failed.
    #[error("{doing} {} failed", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl LedgerError {
    /// Would releasing the ballast help?
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full)
    }

    /// Could it be that there is no space? btrfs cannot even create the WAL then, which SQLite reports as a file it cannot open.
    pub(crate) fn may_be_full(&self) -> bool {
        use rusqlite::ErrorCode::{CannotOpen, SystemIoFailure};
        match self {
            Self::Full => true,
            Self::Sql { source, .. } => {
                matches!(source.sqlite_error_code(), Some(CannotOpen | SystemIoFailure))
            }
            _ => false,
        }
    }

    /// An SQLite error while `doing` something. No space is told apart.
    pub(crate) fn sql(doing: &'static str) -> impl FnOnce(rusqlite::Error) -> Self {
        move |source| if is_full(&source) { Self::Full } else { Self::Sql { doing, source } }
    }

    /// An SQLite error while changing `table`.
    pub(crate) fn row(table: &'static str) -> impl FnOnce(rusqlite::Error) -> Self {
        use rusqlite::ffi;
        move |source| match source.sqlite_error().map(|e| e.extended_code) {
            Some(ffi::SQLITE_CONSTRAINT_PRIMARYKEY | ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_ROWID) => {
                Self::Exists { table }
            }
            Some(ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => Self::Dangling { table },
            _ => Self::sql(table)(source),
        }
    }

    /// The same failure told to everyone whose write was in the transaction.
    pub(crate) fn shared(source: &rusqlite::Error) -> Self {
        if is_full(source) { Self::Full } else { Self::NotWritten { why: source.to_string() } }
    }
}

pub(crate) fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
}
