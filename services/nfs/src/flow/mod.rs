//! How bytes flow: connections, budgets, fair queues, workers. Knows nothing of NFS; what a record means is the
//! [`Service`]'s business.
//!
//! ```text
//! socket → RecordReader → admit (on the reactor, never blocks) → budget → FairQueue → worker → ReplyTo → writer → socket
//! ```
//!
//! Every request carries a part of its connection's budget until its reply is in the socket. When the budget is spent the
//! socket is not read: a client that asks too much, or does not take its replies, holds up nobody but itself.

pub(crate) mod buffers;
pub(crate) mod connection;
pub(crate) mod pool;
pub(crate) mod queue;
pub(crate) mod reply;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use nas_types::id::{LeaseId, MountId};

use reply::ReplyTo;

/// Whose turn it is: requests of one lane share one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// All mounts of one lease.
    Lease(LeaseId),
    /// A mount whose lease was not looked up yet.
    Mount(MountId),
    /// No mount (yet): MNT, forged handles.
    Peer(IpAddr),
}

/// What to do with a record, decided without blocking.
#[derive(Debug)]
pub(crate) enum Admission {
    /// Answer with this reply at once.
    Answer(Vec<u8>),
    /// Let a worker serve it.
    Queue {
        /// Whose turn.
        lane: Lane,
        /// The reply will not be longer, in bytes.
        reply_bytes_max: usize,
    },
    /// This is not our protocol: close the connection.
    Close,
}

/// A record on its way through the pool.
#[derive(Debug)]
pub(crate) struct Request {
    /// The whole record.
    pub(crate) record: Vec<u8>,
    /// Who sent it.
    pub(crate) peer: IpAddr,
    /// Where the reply goes.
    pub(crate) reply_to: ReplyTo,
}

/// Gives records a meaning.
pub(crate) trait Service: Send + Sync + 'static {
    /// Looks at a record on the reactor's thread. Must not block.
    fn admit(&self, record: &[u8], peer: IpAddr) -> Admission;
    /// Serves a request on a worker's thread. May block.
    fn serve(&self, request: Request);
}
