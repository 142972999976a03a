//! Every bound of the gateway in one place, and the check that their product fits the memory it may use.

use std::time::Duration;

/// Largest READ, in bytes (FSINFO `rtmax`).
pub(crate) const READ_BYTES_MAX: u32 = 1 << 20;
/// Largest WRITE, in bytes (FSINFO `wtmax`).
pub(crate) const WRITE_BYTES_MAX: u32 = 1 << 20;
/// READ and WRITE size we ask clients to use. Large enough to hide a round trip, small enough that a connection's
/// bound holds a useful number of them at once.
pub(crate) const TRANSFER_BYTES_PREFERRED: u32 = 256 << 10;
/// Largest READDIR or READDIRPLUS reply, in bytes.
pub(crate) const READDIR_BYTES_MAX: u32 = 256 << 10;
/// READDIR size we ask clients to use, in bytes.
pub(crate) const READDIR_BYTES_PREFERRED: u32 = 64 << 10;
/// Everything of a call but the bytes of a WRITE: RPC header, credentials, two handles, two names or a path.
const CALL_OVERHEAD_BYTES: usize = 8 << 10;
/// Everything of a reply but the bytes of a READ or the entries of a READDIR, also a symlink's target of 4096 bytes.
pub(crate) const REPLY_OVERHEAD_BYTES: usize = 8 << 10;
/// Largest RPC record, in bytes. A longer one closes the connection.
pub(crate) const RECORD_BYTES_MAX: usize = WRITE_BYTES_MAX as usize + CALL_OVERHEAD_BYTES;
/// Fragments of one record. Real clients send one; this many empty ones are an attack.
pub(crate) const FRAGMENTS_MAX: u32 = 4096;
/// Socket read buffer of a connection, in bytes.
pub(crate) const READ_AHEAD_BYTES: usize = 64 << 10;

/// Unit of a connection's budget, in bytes.
pub(crate) const BUDGET_UNIT_BYTES: usize = 1 << 10;
/// Requests and replies in flight on one connection, in bytes. When they are spent, the socket is not read.
pub(crate) const IN_FLIGHT_BYTES_MAX: usize = 6 << 20;
/// The least that one request counts, in bytes: bounds their number too.
pub(crate) const REQUEST_BYTES_MIN: usize = 16 << 10;
/// Requests in flight on one connection that follows from both.
pub(crate) const REQUESTS_IN_FLIGHT_MAX: usize = IN_FLIGHT_BYTES_MAX / REQUEST_BYTES_MIN;

/// Connections at once. More wait in the listen queue.
pub(crate) const CONNECTIONS_MAX: usize = 128;
/// Connections at once from one address. More are closed.
pub(crate) const CONNECTIONS_PER_PEER_MAX: usize = 64;
/// Bytes kept in free buffers between requests.
pub(crate) const FREE_BUFFER_BYTES_MAX: usize = 32 << 20;

/// Sources (mounts, or addresses before a mount) whose replies are remembered.
pub(crate) const REPLAY_SOURCES_MAX: usize = 128;
/// Replies remembered for one source. Twice what can be in flight on a connection.
pub(crate) const REPLAY_ENTRIES_MAX: usize = 2 * REQUESTS_IN_FLIGHT_MAX;
/// Largest reply that is remembered, in bytes. Every reply that needs it is smaller.
pub(crate) const REPLAY_REPLY_BYTES_MAX: usize = 512;
/// How long a reply is remembered. Linux retransmits after 60 s, three times.
pub(crate) const REPLAY_TTL: Duration = Duration::from_secs(300);
/// Retransmissions that wait for the end of their original at once.
pub(crate) const REPLAY_WAITERS_MAX: usize = 2;

/// Memory this gateway may use for clients, in bytes.
const MEMORY_BYTES_MAX: usize = 1 << 30;

/// Time for the first call of a new connection.
pub(crate) const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time without any call. Linux clients close after 5 minutes by themselves and reconnect on demand.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Time for the rest of a record that has begun.
pub(crate) const RECORD_TIMEOUT: Duration = Duration::from_secs(60);
/// Time in which a client must take at least one byte of its replies.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

const _: () = {
    let connection = IN_FLIGHT_BYTES_MAX + RECORD_BYTES_MAX + READ_AHEAD_BYTES;
    let replay = REPLAY_SOURCES_MAX * REPLAY_ENTRIES_MAX * (REPLAY_REPLY_BYTES_MAX + 128);
    assert!(CONNECTIONS_MAX * connection + FREE_BUFFER_BYTES_MAX + replay <= MEMORY_BYTES_MAX);
    // The largest request must fit a connection's budget, or it would wait for ever.
    let reply = READ_BYTES_MAX as usize + REPLY_OVERHEAD_BYTES;
    assert!(RECORD_BYTES_MAX + reply <= IN_FLIGHT_BYTES_MAX);
    assert!(READDIR_BYTES_MAX <= READ_BYTES_MAX);
    assert!(IN_FLIGHT_BYTES_MAX.is_multiple_of(BUDGET_UNIT_BYTES));
};
