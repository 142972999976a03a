//! The ledger: what Trust keeps, in one SQLite file (DESIGN §4 "Ledger"). Records are append-only and hash chained (SPEC REC).
//!
//! Read in this order:
//! - [`record`]: one record, its canonical bytes, its hash.
//! - [`rows`]: the other rows (principals, runs, leases, gates, …) as plain structs.
//! - [`Ledger`]: open, [`Ledger::write`] (durable when it returns, group-committed), [`Ledger::read`].
//! - [`Tx`] and [`Reader`]: the typed methods inside these two; `listing`: those that give pages.
//! - [`verify`]: recomputing the chain from the stored bytes.
//! - [`anchor`]: the head kept outside the database, so that a cut tail is found.
//! - [`ballast`]: space set aside so that denying and recovery can be written on a full disk.
//! - `schema`: tables, triggers, and how formats change.
//!
//! Not here: what may happen (`nas-trust-core`, `nas-policy`), files and history (`nas-store`), signing (the anchor service).

pub mod anchor;
pub mod ballast;
mod column;
mod error;
mod ledger;
mod listing;
pub mod record;
pub mod rows;
mod schema;
mod tx;
pub mod verify;

pub use anchor::{Anchor, Loss};
pub use error::LedgerError;
pub use ledger::{Ledger, Options, Stats};
pub use listing::GateFilter;
pub use record::{Appended, Head, NewRecord, Phase, Record};
pub use rows::*;
pub use tx::{Advanced, LIST_ROWS_MAX, Reader, Tx};
pub use verify::{Report, verify_file};
