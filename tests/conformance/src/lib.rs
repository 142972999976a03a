//! The conformance suite: SPEC L0 and L1, black-box, against any implementation.
//!
//! Read in this order:
//! - [`subject`]: the box under test, as its HTTP API and its NFS mount show it.
//! - [`report`]: what came out, and `conformance.json`.
//! - `l0_1` to `l1_7`: one file for each acceptance test of the specification, each a plain script.
//! - [`chain`]: the published rule of the record chain, recomputed (docs/record-chain.md).
//!
//! It speaks `POST /v1/…` and NFSv3 only and shares no type with any implementation. Everything it writes is below
//! `/shared/conformance-<random>`, which stays in main: history cannot be taken back, that is the point of it.

pub mod chain;
mod l0_1;
mod l0_2;
mod l0_3;
mod l0_4;
mod l0_5;
mod l1_1;
mod l1_2;
mod l1_3;
mod l1_4;
mod l1_5;
mod l1_6;
mod l1_7;
pub mod report;
pub mod subject;

pub use report::{Miss, Report, Verdict};
pub use subject::{Address, Subject};

/// One acceptance test.
pub struct Test {
    /// Its id in the specification, e.g. `L0.1`.
    pub id: &'static str,
    /// What it asserts, one line.
    pub what: &'static str,
    run: fn(&Subject) -> Verdict,
}

/// All tests, in the specification's order.
pub const TESTS: [Test; 12] = [
    Test { id: "L0.1", what: "editing in a run branch leaves protected main unchanged", run: l0_1::run },
    Test { id: "L0.2", what: "a direct write to a protected tree is refused", run: l0_2::run },
    Test { id: "L0.3", what: "a deleted file comes back from the trash", run: l0_3::run },
    Test { id: "L0.4", what: "export then import gives the same tree and history", run: l0_4::run },
    Test { id: "L0.5", what: "at least two standard views", run: l0_5::run },
    Test { id: "L1.1", what: "a request without a lease is refused and recorded", run: l1_1::run },
    Test { id: "L1.2", what: "a child wider than its parent is refused", run: l1_2::run },
    Test { id: "L1.3", what: "expiry makes the mount read-only; revocation takes effect in time", run: l1_3::run },
    Test { id: "L1.4", what: "no lease can delete a snapshot", run: l1_4::run },
    Test { id: "L1.5", what: "any commit can be explained", run: l1_5::run },
    Test { id: "L1.6", what: "the record chain verifies, and fails after tampering", run: l1_6::run },
    Test { id: "L1.7", what: "the diff is the NAS's own; an approval is bound to its digest", run: l1_7::run },
];

/// Runs the tests of `only` (all when empty) in order and reports.
///
/// # Errors
/// The box cannot be reached or does not say which version it is; no test was run.
pub fn run(subject: &Subject, only: &[String]) -> Result<Report, String> {
    let mut report = Report::of(subject)?;
    for test in TESTS.iter().filter(|test| only.is_empty() || only.iter().any(|id| id == test.id)) {
        report.add(test, (test.run)(subject));
    }
    report.rate();
    Ok(report)
}
