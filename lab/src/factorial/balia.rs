//! Balia with and without the loss-aware rule of seed 003 (IV.C, figure 3), in the cells with loss.

use std::io;
use std::path::Path;

use mpip_core::{CongestionControlKind, LossPolicy, SchedulerKind};
use mpip_sim::measure::{LossRule, Subject, measure};
use serde::{Deserialize, Serialize};

use super::{Cell, Plan, Run, read_file, run_all, scenario};
use crate::columns;
use crate::statistics::{mean, median};

/// The file of the results in their directory.
const FILE: &str = "factorial-balia.jsonl";
/// The seed's thresholds (IV.C), parts per million: 0.01 % for Wi-Fi, 1 % for LTE.
const THRESHOLDS: &[u32] = &[100, 10_000];

/// What balia carries in a cell with and without the loss-aware rule, over the same links.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Rates {
    /// Goodput of balia: all paths, always.
    pub(crate) balia_bps: f64,
    /// The same with the rule and the seed's thresholds.
    pub(crate) balia_la_bps: f64,
}

/// A run with balia.
pub(crate) type BaliaResult = Run<Rates>;

impl Rates {
    /// What the rule gains, percent.
    pub(crate) fn gain(&self) -> f64 {
        (self.balia_la_bps / self.balia_bps.max(1.0) - 1.0) * 100.0
    }
}

fn run_cell(cell: &Cell, number: usize, seconds: u64) -> (Rates, Vec<String>) {
    let scenario = scenario(cell, number, seconds);
    let run = |policy| {
        let loss = LossRule { policy, thresholds: THRESHOLDS };
        let (scheduler, congestion_control) =
            (SchedulerKind::default(), CongestionControlKind::Balia);
        measure(&scenario, Subject::Mpip { scheduler, congestion_control, loss })
    };
    let (without, with) = (run(LossPolicy::Off), run(LossPolicy::Threshold));
    let rates = Rates { balia_bps: without.goodput, balia_la_bps: with.goodput };
    (rates, without.violations.into_iter().chain(with.violations).collect())
}

/// The results in a directory; none where there is no file.
pub(crate) fn read(directory: &Path) -> io::Result<Vec<BaliaResult>> {
    read_file(directory, FILE)
}

/// Runs those cells of the plan in which a link loses packets, as far as there is no result yet.
pub(crate) fn run(directory: &Path, plan: &Plan) -> io::Result<()> {
    let mut left = plan.left(&read(directory)?);
    left.retain(|(_, cell, _)| cell.lossy_link().is_some());
    run_all(directory, FILE, &left, run_cell)
}

/// A line for each loss: how much balia carries with the rule and without it.
pub(crate) fn table(results: &[BaliaResult]) -> String {
    let mut rows = vec![
        ["lossy", "loss", "cells", "balia Mbit/s", "balia-la Mbit/s", "gain, median", "better"]
            .map(str::to_owned),
    ];
    let mut seen: Vec<(&str, f64)> = Vec::new();
    for result in results {
        let of = (result.cell.lossy.as_str(), result.cell.loss_percent);
        if !seen.contains(&of) {
            seen.push(of);
        }
    }
    seen.sort_by(|a, b| a.0.cmp(b.0).then(a.1.total_cmp(&b.1)));
    for (lossy, loss) in seen {
        let of = |it: &&BaliaResult| it.cell.lossy == lossy && it.cell.loss_percent == loss;
        let valid = |it: &&BaliaResult| of(it) && it.violations.is_empty();
        let cells: Vec<&BaliaResult> = results.iter().filter(valid).collect();
        let mbits = |value: fn(&Rates) -> f64| {
            let values: Vec<f64> = cells.iter().map(|it| value(&it.measured)).collect();
            format!("{:.2}", mean(&values) / 1e6)
        };
        let gains: Vec<f64> = cells.iter().map(|it| it.measured.gain()).collect();
        let better = gains.iter().filter(|gain| **gain > 0.0).count();
        rows.push([
            lossy.to_owned(),
            format!("{loss} %"),
            cells.len().to_string(),
            mbits(|it| it.balia_bps),
            mbits(|it| it.balia_la_bps),
            format!("{:+.1} %", median(&gains)),
            better.to_string(),
        ]);
    }
    columns::aligned(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_of_the_seed_gains_nothing_or_something_and_is_summed_up_by_loss() {
        let result = |number, lossy: &str, loss_percent, balia_bps, balia_la_bps| BaliaResult {
            number,
            cell: Cell { lossy: lossy.to_owned(), loss_percent, bandwidths_mbps: [10.0, 10.0] },
            seconds: 10.0,
            measured: Rates { balia_bps, balia_la_bps },
            violations: Vec::new(),
            origin: Default::default(),
        };
        let results = [
            result(1, "wifi", 10.0, 10e6, 12e6),
            result(2, "wifi", 1.0, 20e6, 10e6),
            result(3, "wifi", 10.0, 20e6, 20e6),
        ];
        assert!((results[0].measured.gain() - 20.0).abs() < 1e-9);
        let table = table(&results);
        let rows: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["wifi", "1", "%", "1", "20.00", "10.00", "-50.0", "%", "0"]);
        assert_eq!(rows[2], ["wifi", "10", "%", "2", "15.00", "16.00", "+10.0", "%", "1"]);
    }

    #[test]
    fn a_cell_runs_with_balia_and_the_rule_of_the_seed() {
        let cell =
            Cell { lossy: "wifi".to_owned(), loss_percent: 10.0, bandwidths_mbps: [10.0, 10.0] };
        let (result, violations) = run_cell(&cell, 7, 2);
        assert!(violations.is_empty(), "{violations:?}");
        assert!(result.balia_bps > 1e6 && result.balia_la_bps > 1e6, "{result:?}");
    }
}
