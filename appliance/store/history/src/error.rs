//! How an operation on the history fails.

use std::io;
use std::path::{Path, PathBuf};

use nas_types::object::Oid;
use nas_types::path::TreePath;

/// Result of an operation on the history.
pub type Result<T, E = HistoryError> = std::result::Result<T, E>;

/// Why an operation on the history failed. Nothing was changed that a ref reaches.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The file system refused.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// No pack and no loose file holds this object.
    #[error("object {0} is not in the history")]
    Missing(Oid),
    /// An object does not parse, or holds what our trees never hold.
    #[error("object {oid} cannot be used: {why}")]
    Corrupt {
        /// Which object.
        oid: Oid,
        /// What is wrong with it.
        why: String,
    },
    /// Content under keys that this version does not have.
    #[error("this content is in key domain '{domain}', which this version cannot open: update the box")]
    KeyDomain {
        /// Name of the domain.
        domain: String,
    },
    /// An object of another kind was expected.
    #[error("object {oid} is a {found}, not a {expected}")]
    WrongKind {
        /// Which object.
        oid: Oid,
        /// What it is.
        found: &'static str,
        /// What was needed.
        expected: &'static str,
    },
    /// The caller's content source failed. Retry with a fresh source.
    #[error("the content of {path} could not be read")]
    Source {
        /// Which file.
        path: TreePath,
        /// What the source answered.
        source: io::Error,
    },
    /// A content source gave another number of bytes than it announced: the file changed while it was read.
    #[error("the content of {path} ended after {found} bytes, {expected} were announced")]
    SourceSize {
        /// Which file.
        path: TreePath,
        /// Bytes announced.
        expected: u64,
        /// Bytes read, counting at most one beyond the announced ones.
        found: u64,
    },
    /// An edit that no tree can hold.
    #[error("edit of {path}: {why}")]
    Edit {
        /// Where.
        path: TreePath,
        /// Why not.
        why: &'static str,
    },
    /// A text that is no legal ref name.
    #[error("'{0}' is not a ref name")]
    RefName(String),
    /// A ref is not where the caller expected it.
    #[error("ref {name} was expected {expected}, it is {found}")]
    RefMoved {
        /// Which ref.
        name: String,
        /// What the caller expected.
        expected: String,
        /// What was there.
        found: String,
    },
    /// Someone else is moving the ref, or a ref is in the way of its directory.
    #[error("ref {name} is being changed by someone else")]
    RefLocked {
        /// Which ref.
        name: String,
    },
    /// A limit was met.
    #[error("{what}: {found} exceeds the limit of {max}")]
    TooLarge {
        /// What is limited, with its unit.
        what: &'static str,
        /// How much was asked.
        found: u64,
        /// How much is allowed.
        max: u64,
    },
    /// Two pieces of content with one SHA-1: an attack.
    #[error("SHA-1 collision attack detected while hashing")]
    Collision,
}

impl HistoryError {
    /// Wraps an I/O error with what was tried.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Io { what, path, source }
    }

    /// An object that does not parse.
    pub(crate) fn corrupt(oid: Oid, why: impl ToString) -> Self {
        Self::Corrupt { oid, why: why.to_string() }
    }

    /// Did the file system run out of space?
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        let kind = match self {
            Self::Io { source, .. } | Self::Source { source, .. } => source.kind(),
            _ => return false,
        };
        matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}
