//! A blocking NFSv3 client in user space, for tests and for the demo where the kernel has no NFS client.
//!
//! Read in this order:
//! - [`wire`]: one connection that sends calls and raw bytes and reads replies. Nothing is hidden: xids can be chosen, so
//!   a call can be sent again on another connection.
//! - [`client`]: [`Client`], a mount with one method for each procedure. A status other than OK is [`Error::Nfs`].
//! - [`path`]: the same by path: [`Client::write_file`], [`Client::read_file`], [`Client::walk`].
//!
//! The encoding is `nfs3_types`, an implementation other than the server's, so both check each other.
//!
//! Not here: caching, retries, locking. Every call is one round trip.

pub mod client;
pub mod path;
pub mod wire;

pub use client::{Client, Found, Handle};
pub use nfs3_types::nfs3;
pub use nfs3_types::nfs3::nfsstat3 as Status;
pub use path::Walked;
pub use wire::{Connection, Credential};

/// How a call fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection failed or ended.
    #[error("the connection to the NFS server failed")]
    Io(#[from] std::io::Error),
    /// The server answered with this status.
    #[error("the NFS server answered {0}")]
    Nfs(Status),
    /// MNT was answered with this status.
    #[error("the NFS server refused the mount: {0}")]
    Mount(nfs3_types::mount::mountstat3),
    /// The server refused the call itself.
    #[error("the NFS server refused the call: {0}")]
    Rpc(String),
    /// The reply cannot be decoded.
    #[error("the reply of the NFS server cannot be decoded: {0}")]
    Reply(String),
}

impl Error {
    /// The status, when the server answered with one.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Nfs(status) => Some(*status),
            Self::Io(_) | Self::Mount(_) | Self::Rpc(_) | Self::Reply(_) => None,
        }
    }
}

impl From<nfs3_types::xdr_codec::Error> for Error {
    fn from(error: nfs3_types::xdr_codec::Error) -> Self {
        Self::Reply(error.to_string())
    }
}

/// Result of a call.
pub type Result<T> = std::result::Result<T, Error>;
