//! Every limit, with its unit in its name.

use std::time::Duration;

/// Largest JSON body of a verb.
pub(crate) const JSON_BYTES_MAX: usize = 256 * 1024;
/// Longest first line of a streamed body.
pub(crate) const IMPORT_LINE_BYTES_MAX: usize = 64 * 1024;
/// Pieces of a streamed body that wait for the Door; a piece is at most one read of the socket.
pub(crate) const IMPORT_PIECES_MAX: usize = 8;
/// Headers of one request.
pub(crate) const HEADERS_MAX: usize = 64;
/// Bytes that a connection may buffer for a request's head.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Time for a request's head, and for a kept connection to say something.
pub(crate) const HEAD_TIME_MAX: Duration = Duration::from_secs(20);
/// Time for a whole JSON body.
pub(crate) const JSON_TIME_MAX: Duration = Duration::from_secs(30);
/// Time between two pieces of a streamed body.
pub(crate) const IMPORT_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Of an upload whose answer is known already, this much is read and thrown away, so that the client
/// gets to read the answer instead of a reset connection.
pub(crate) const DRAIN_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;
/// Time for that.
pub(crate) const DRAIN_TIME_MAX: Duration = Duration::from_secs(60);
/// Time that open requests get when the server shuts down.
pub(crate) const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(10);
/// What a client is told to wait when all workers are busy.
pub(crate) const BUSY_RETRY_SECONDS: u64 = 1;

/// Buckets of calls that are remembered at the same time.
pub(crate) const RATE_BUCKETS_MAX: usize = 4096;
/// Longest request id of a client that is logged and given back.
pub(crate) const CLIENT_REQUEST_ID_BYTES_MAX: usize = 64;

/// How many calls one may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Calls per second in the long run.
    pub per_second: u32,
    /// Calls at once after a rest.
    pub burst: u32,
}

/// What the operator chooses.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names besides IP addresses and `localhost` under which the box is reached, e.g. `nas.local`. A
    /// request that names another host is refused: a foreign page could have made a browser send it.
    pub names: Vec<String>,
    /// Open connections; more wait in the listen queue.
    pub connections_max: usize,
    /// Verbs that run at the same time; more are told to come back (429).
    pub calls_max: usize,
    /// Of these, kept for the owner: whoever holds leases cannot keep the owner from revoking them.
    pub calls_owner_share: usize,
    /// Verbs of one run, or of all callers without a token, that run at the same time.
    pub calls_per_run_max: usize,
    /// Calls of the owner. Far above what a person needs: it stops a program that went wild.
    pub rate_owner: Rate,
    /// Calls of one run.
    pub rate_per_run: Rate,
    /// Calls without a token, or with a wrong one, from one address.
    pub rate_per_address: Rate,
    /// Imports that run at the same time.
    pub imports_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            connections_max: 512,
            calls_max: 32,
            calls_owner_share: 8,
            calls_per_run_max: 8,
            rate_owner: Rate { per_second: 2000, burst: 10_000 },
            rate_per_run: Rate { per_second: 200, burst: 2000 },
            rate_per_address: Rate { per_second: 50, burst: 1000 },
            imports_max: 2,
        }
    }
}
