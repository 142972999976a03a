//! Does the size of a tree show in the time of its fork?

use std::path::Path;

use crate::Scale;
use crate::measure::{Goal, Report};
use crate::ours::Ours;

const SIZE: Goal = Goal {
    name: "fork_1m_vs_fork_10k",
    ratio_max: 2.0,
    ours: "fork of the large tree",
    theirs: "fork of the small tree",
};

pub(crate) fn run(disk: &Path, scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if !report.wants(SIZE) {
        return Ok(());
    }
    let (few, many) = scale.small_and_large;
    eprintln!("making trees of {few} and of {many} files");
    let small = Ours::without_history(&disk.join("small"), few)?;
    let large = Ours::without_history(&disk.join("large"), many)?;
    large.settle()?;
    let fork = |ours: &Ours| {
        let (took, branch) = ours.fork()?;
        ours.give_up(&branch)?;
        Ok(took)
    };
    report.pairs(SIZE, scale.pairs_fast, |_| fork(&large), |_| fork(&small))
}
