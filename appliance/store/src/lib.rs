//! The Store: live directories, generations of main, branches, and their history (DESIGN §3). It decides nothing
//! about authority, and knows no lease.
//!
//! Read in this order:
//! - [`engine`]: what is asked of a file system; btrfs and copy.
//! - [`live`]: operations on the files of one live directory, shaped like NFS; what changed since the last commit.
//! - [`space`]: the reserve of the pool and the counted quota of a branch.
//! - [`branch`]: the live directory of a run and its commits; `commit` makes one, `schedule` says when, `disk` reads
//!   the files, `apply` puts files in place.
//! - [`generation`]: main, a chain of immutable generations; merges are prepared, staged, published.
//! - `tree`: unprotected trees, plain space beside main.
//! - `view`: single commits to look at.
//! - [`Store`]: the pool as a whole, opening it after a crash; `reaper` deletes in the background,
//!   `upkeep` keeps the history small.
//! - [`embed`]: where the pool of a store in a folder is.
//!
//! Not here: who may do what (`nas-trust-core`), the object database (`nas-history`), the pointer to the current
//! generation (the ledger keeps it), owner snapshots (a root service that this process cannot reach).

mod apply;
pub mod branch;
mod commit;
mod disk;
pub mod embed;
pub mod engine;
mod error;
pub mod generation;
pub mod live;
mod reaper;
mod schedule;
pub mod space;
mod store;
mod tree;
mod upkeep;
mod view;

pub use apply::Import;
pub use branch::{Branch, CommitReason, CommitSink, Committed, Pinned, Restored};
pub use error::StoreError;
pub use generation::{Generation, Pointer, Prepared, PreparedMerge, Staged};
pub use live::{Created, Durability, LiveDir, Located, Removed, Renamed};
pub use nas_types::fs::Made;
pub use space::{Limits, Reserve, SpaceGuard, Usage};
pub use store::{Options, Store};
pub use upkeep::Upkeep;

/// Every failpoint between two durable effects of the Store, for the crash sweep (STYLE).
pub const FAILPOINTS: [&str; 26] = [
    "store.first.durable",
    "store.first.synced",
    "store.mark.written",
    "store.fork.made",
    "store.fork.forked",
    "store.fork.state",
    "store.fork.ref",
    "store.commit.frozen",
    "store.commit.written",
    "store.commit.durable",
    "store.commit.ref",
    "store.commit.clean",
    "store.pin.durable",
    "store.pin.pinned",
    "store.pin.squashed",
    "store.stage.written",
    "store.stage.durable",
    "store.stage.forked",
    "store.stage.applied",
    "store.stage.synced",
    "store.publish.flipped",
    "store.publish.ref",
    "store.follow.applied",
    "store.follow.state",
    "store.recycle.state",
    "store.recycle.ref",
];
