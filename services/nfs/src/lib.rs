//! NFSv3 and MOUNTv3 (RFC 1813) over ONC RPC (RFC 5531), our own protocol layer (DESIGN §5).
//!
//! It projects a mount of the Door onto the wire and decides nothing: what is allowed is the Door's, and no state lives
//! here that a restart would miss. Read in this order:
//! - `wire`: XDR, record marks, RPC headers, arguments, statuses. All parsers of outside bytes are there.
//! - `handle`: what a client holds instead of a path.
//! - `proc` and `mount`: one file per procedure.
//! - `replay`: the duplicate-request cache.
//! - `gateway`: what happens to one record.
//! - `flow`: connections, budgets, the fair queue, the workers. Knows nothing of NFS.
//! - `server`: accepting connections. [`NfsServer`] is the public face.
//! - `limits`: every bound, and the check of their product.
//!
//! Not here: authorisation, leases, hidden paths, what a stale reference is (the Door); TLS (streams are generic for it).
//!
//! Everything that may block runs on worker threads. The reactor's threads only move bytes, parse headers and answer NULL.

mod flow;
mod gateway;
mod handle;
mod limits;
mod mount;
mod proc;
mod replay;
mod server;
mod wire;

pub use server::{NfsServer, Options};
