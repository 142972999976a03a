//! Decisions of Trust, pure: no I/O, no clock. The caller owns clocks, files and sockets and passes `now` in.
//!
//! Read in this order:
//! - [`path_set`]: the paths of a lease, compiled from globs; what is allowed, visible, hidden.
//! - [`action_set`]: the actions of a lease.
//! - [`clock`]: whether the wall clock can be trusted.
//! - [`lease_time`]: how much time a lease has left, across reboots.
//! - [`gate`]: the digest a gate binds, and what an event does to a gate.
//! - [`degradation`]: `None < NoNewRuns < ReadOnly < Sealed`, and what each level admits.
//! - [`quota`]: meters that overshoot by one operation at most.
//! - [`refusals`]: which refusals are recorded and which are only counted.
//! - [`read_manifest`]: what a run has read.
//!
//! Not here: whether policy agrees (`nas-policy`), keeping anything (`nas-ledger`), acting (`nas-door`).

pub mod action_set;
pub mod clock;
pub mod degradation;
pub mod gate;
pub mod lease_time;
pub mod path_set;
pub mod quota;
pub mod read_manifest;
pub mod refusals;

pub use action_set::ActionSet;
pub use path_set::{PathSet, Visibility};
pub use read_manifest::ReadManifest;
