//! Plain types every layer shares. No I/O, no clock, no decision is made here.
//!
//! Read in this order:
//! - [`id`]: printed ids (`run_…`, `lse_…`, `gt_…`), one macro.
//! - [`path`]: [`path::TreePath`] and [`path::Name`], bytes that are legal by construction.
//! - [`fs`]: what a live file looks like ([`fs::Attr`], [`fs::NodeRef`]) and [`fs::FsError`].
//! - [`object`]: what history holds ([`object::Oid`], [`object::Entry`], [`object::Change`]).
//! - [`lease`]: actions of a lease, branch names, views.
//! - `schema`: JSON schemas of those of them that are one text in JSON.
//! - [`verb`]: one request and one response for each control verb; the HTTP API, the CLI and
//!   the Door use the same structs under the same names.
//!
//! Not here: deciding ([`nas-trust-core`]), storing ([`nas-store`]), wire formats (the gateways).

pub mod failpoint;
pub mod fs;
pub mod id;
pub mod lease;
pub mod object;
pub mod path;
mod schema;
pub mod secret;
pub mod time;
pub mod verb;
