//! Pairs, medians, and the line that is printed.

use std::time::{Duration, Instant};

use serde::Serialize;

/// One side of a measure.
#[derive(Debug, Serialize)]
struct Side {
    what: &'static str,
    /// Median over the rounds.
    value: f64,
    unit: &'static str,
    /// Every round, in order.
    all: Vec<f64>,
}

/// One line of the output.
#[derive(Debug, Serialize)]
struct Line {
    name: String,
    ratio: f64,
    goal: f64,
    ours: Side,
    theirs: Side,
    met: bool,
}

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal {
    /// Name of the measure.
    pub(crate) name: &'static str,
    /// Largest ratio ours / theirs that meets it.
    pub(crate) ratio_max: f64,
    /// What is timed on our side, for a reader of the line.
    pub(crate) ours: &'static str,
    /// What is timed on the other side.
    pub(crate) theirs: &'static str,
}

/// All measures of a run.
#[derive(Debug)]
pub(crate) struct Report {
    only: String,
    missed: usize,
}

impl Report {
    pub(crate) fn new(only: String) -> Self {
        Self { only, missed: 0 }
    }

    /// Is this measure asked for?
    pub(crate) fn wants(&self, goal: Goal) -> bool {
        goal.name.contains(&self.only)
    }

    /// Goals that were not met.
    pub(crate) fn missed(&self) -> usize {
        self.missed
    }

    /// Takes `pairs` pairs after one that is not counted, and prints the line. Each closure prepares untimed and
    /// returns what it timed.
    pub(crate) fn pairs(
        &mut self,
        goal: Goal,
        pairs: usize,
        mut ours: impl FnMut(usize) -> anyhow::Result<Duration>,
        mut theirs: impl FnMut(usize) -> anyhow::Result<Duration>,
    ) -> anyhow::Result<()> {
        let (mut our, mut their) = (Vec::new(), Vec::new());
        for round in 0..=pairs {
            let (a, b) = (ours(round)?, theirs(round)?);
            if round > 0 {
                our.push(a.as_secs_f64() * 1000.0);
                their.push(b.as_secs_f64() * 1000.0);
            }
        }
        let side = |what, all: Vec<f64>| Side { what, value: median(&all), unit: "ms", all };
        let (ours, theirs) = (side(goal.ours, our), side(goal.theirs, their));
        let ratio = ours.value / theirs.value;
        let met = ratio <= goal.ratio_max;
        self.missed += usize::from(!met);
        let line = Line { name: goal.name.to_owned(), ratio, goal: goal.ratio_max, ours, theirs, met };
        println!("{}", serde_json::to_string(&line)?);
        Ok(())
    }
}

/// How long something took.
pub(crate) fn timed<T>(act: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(Duration, T)> {
    let started = Instant::now();
    let done = act()?;
    Ok((started.elapsed(), done))
}

fn median(all: &[f64]) -> f64 {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the middle value, whatever the order; between two for an even count.
    #[test]
    fn medians() {
        assert_eq!(median(&[9.0, 1.0, 2.0]).total_cmp(&2.0), std::cmp::Ordering::Equal);
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]).total_cmp(&3.0), std::cmp::Ordering::Equal);
        assert!(median(&[]).is_nan());
    }

    /// Goal: the first pair does not count, and a missed goal is counted.
    #[test]
    fn warm_up_and_missed_goals() {
        let goal = Goal { name: "x", ratio_max: 0.5, ours: "a", theirs: "b" };
        let mut report = Report::new(String::new());
        let ms = |n: u64| Ok(Duration::from_millis(n));
        report.pairs(goal, 3, |round| ms(if round == 0 { 900 } else { 1 }), |_| ms(10)).unwrap();
        assert_eq!(report.missed(), 0);
        report.pairs(goal, 3, |_| ms(6), |_| ms(10)).unwrap();
        assert_eq!(report.missed(), 1);
        assert!(!Report::new("fork".into()).wants(goal));
    }
}
