//! The Store: live directories, generations of main, branches, and their history (DESIGN §3). It decides nothing
//! about authority, and knows no lease.
//!
//! Read in this order:
//! - [`engine`]: what is asked of a file system; btrfs and copy.
//! - [`live`]: operations on the files of one live directory, shaped like NFS.
//! - [`space`]: the reserve of the pool and the counted quota of a branch.
//! - [`embed`]: a store in a folder.

pub mod embed;
pub mod engine;
mod error;
pub mod live;
pub mod space;

pub use error::StoreError;
