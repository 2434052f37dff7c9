//! The factorial of loss-aware MPTCP (seed 003) in the simulator.
//!
//! One link is Wi-Fi (10 ms, jitter range 0 to 5 ms), the other LTE (75 ms, 0 to 35 ms). One of the
//! two loses packets. Each bandwidth of one link is combined with each of the other (5 x 5), with
//! each loss (6) on each link (2): 300 cells, and the 25 pairs of bandwidths without loss. Each
//! run has random jitter of each link: a quarter of a value from its range is the standard
//! deviation, and packets stay in order. All random choices follow from the number of the run. A
//! run lasts until 20 losses are expected, within bounds ([`Cell`]).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mpip_sim::measure::{Scenario, Subject, limit, measure};
use mpip_sim::spec::TcpControl;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock::unix_time;
use crate::environment::Environment;
use crate::lines::{self, Lines};
use crate::progress::Work;
use crate::side_by_side;

pub(crate) mod balia;
mod design;

pub(crate) use design::{Cell, LONGEST, PUBLISHED_LONGEST, cells, numbers, sample};
use design::{SHORTEST, links};

const SECOND: u64 = 1_000_000_000;
/// Time before a run counts: slow start.
const START: u64 = 3 * SECOND;
/// Runs of TCP on each path alone. Together they count as long as the run of mpip where the path
/// loses packets, but at least [`SHORTEST`] each.
const TCP_RUNS: u64 = 3;
/// Estimated processor time for a Mbit that a link could have carried in a run.
const COST: Duration = Duration::from_micros(1_100);
/// The file of the results in their directory.
pub(crate) const FILE: &str = "factorial.jsonl";

/// One repetition of a cell, and what was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run<M> {
    /// Its number, counted over cells and repetitions.
    pub(crate) number: usize,
    pub(crate) cell: Cell,
    /// Duration in seconds of virtual time.
    pub(crate) seconds: f64,
    #[serde(flatten)]
    pub(crate) measured: M,
    /// Violated invariants; empty if the run counts.
    pub(crate) violations: Vec<String>,
    #[serde(default)]
    pub(crate) origin: Origin,
}

/// What mpip and TCP reach in a cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Rates {
    pub(crate) goodput_bps: f64,
    pub(crate) limit_bps: f64,
    /// What each path alone could carry.
    pub(crate) alone_bps: [f64; 2],
    /// The most that TCP reached on each path alone.
    pub(crate) tcp_bps: [f64; 2],
    pub(crate) longest_pause_ms: f64,
}

/// A run with mpip.
pub(crate) type CellResult = Run<Rates>;

/// What made a result, and when.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub(crate) commit: String,
    /// Seconds since 1970.
    pub(crate) time: u64,
}

impl Rates {
    /// The aggregation benefit as seed 003 defines it (section III): the capacity of a path is what
    /// TCP reaches on it. At most 1, so that no cell counts more than others in a mean.
    pub(crate) fn benefit(&self) -> f64 {
        benefit(self.goodput_bps, &self.tcp_bps).min(1.0)
    }

    /// The aggregation benefit with what each path could carry as its capacity.
    pub(crate) fn strict_benefit(&self) -> f64 {
        benefit(self.goodput_bps, &self.alone_bps)
    }
}

/// Aggregation benefit (seed 003) of a goodput over paths that carry `alone` each: 1 for the sum of
/// all, 0 for as much as the best of them, below 0 for less.
pub(crate) fn benefit(goodput: f64, alone: &[f64]) -> f64 {
    let best = alone.iter().copied().fold(0.0, f64::max);
    let sum: f64 = alone.iter().sum();
    if best <= 0.0 {
        return 0.0;
    }
    let more = goodput - best;
    if more >= 0.0 { if sum > best { more / (sum - best) } else { 0.0 } } else { more / best }
}

/// The scenario of a cell: `seconds` count.
fn scenario(cell: &Cell, number: usize, seconds: u64) -> Scenario {
    Scenario {
        paths: links(cell, number),
        sender: TcpControl::CUBIC.into(),
        duration: START + seconds * SECOND,
        from: START,
        seed: number as u64,
    }
}

/// What is measured in a run of a cell, and the invariants that it violates.
fn run_cell(cell: &Cell, number: usize, seconds: u64) -> (Rates, Vec<String>) {
    let scenario = scenario(cell, number, seconds);
    let paths = &scenario.paths;
    let alone = |index: usize| limit(&paths[index..=index]).unwrap_or(0.0);
    let (limit_bps, alone_bps) = (limit(paths).unwrap_or(0.0), [alone(0), alone(1)]);
    let found = measure(&scenario, Subject::MPIP);
    let tcp = |path: usize| {
        let counted = match cell.lossy_link() {
            Some(lossy) if lossy == path => seconds.div_ceil(TCP_RUNS).max(SHORTEST),
            // Without loss, TCP is as fast at any time.
            _ => SHORTEST,
        };
        let duration = START + counted * SECOND;
        let runs = (0..TCP_RUNS).map(|run| {
            let seed = number as u64 + (run << 32);
            let scenario = Scenario { seed, duration, ..scenario.clone() };
            measure(&scenario, Subject::Path(path)).goodput
        });
        runs.fold(0.0, f64::max)
    };
    let rates = Rates {
        goodput_bps: found.goodput,
        limit_bps,
        alone_bps,
        tcp_bps: [tcp(0), tcp(1)],
        longest_pause_ms: found.longest_pause.as_secs_f64() * 1e3,
    };
    (rates, found.violations)
}

/// The results in a file, the latest of each number; none where there is no file.
fn read_file<M: DeserializeOwned>(directory: &Path, file: &str) -> io::Result<Vec<Run<M>>> {
    let runs: Vec<Run<M>> = lines::read(directory, file)?;
    let latest: BTreeMap<usize, Run<M>> = runs.into_iter().map(|run| (run.number, run)).collect();
    Ok(latest.into_values().collect())
}

/// The results in a directory; none where there is no file.
pub(crate) fn read(directory: &Path) -> io::Result<Vec<CellResult>> {
    read_file(directory, FILE)
}

/// What to run: cells and their repetitions by number, each for at most `longest` seconds.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) numbers: Vec<usize>,
    pub(crate) longest: u64,
}

impl Plan {
    /// The numbers without a result of the same duration, with their cells and durations.
    fn left<M>(&self, results: &[Run<M>]) -> Vec<(usize, Cell, u64)> {
        let cells = cells();
        let done: BTreeMap<usize, f64> = results.iter().map(|r| (r.number, r.seconds)).collect();
        let with_cell = self.numbers.iter().map(|number| {
            let cell = cells[number % cells.len()].clone();
            let seconds = cell.seconds(self.longest);
            (*number, cell, seconds)
        });
        with_cell
            .filter(|(number, _, seconds)| done.get(number) != Some(&(*seconds as f64)))
            .collect()
    }

    /// Estimated time for the runs that have no result yet.
    pub(crate) fn expected(&self, directory: &Path) -> io::Result<Duration> {
        let cost = |(_, cell, seconds): (usize, Cell, u64)| {
            let both: f64 = cell.bandwidths_mbps.iter().sum();
            let lossy = cell.lossy_link().map_or(0.0, |link| cell.bandwidths_mbps[link]);
            let start = (START / SECOND) as f64;
            let tcp = TCP_RUNS as f64 * (SHORTEST as f64 + start) * both + seconds as f64 * lossy;
            COST.mul_f64((seconds as f64 + start) * both + tcp / 2.0)
        };
        let total: Duration = self.left(&read(directory)?).into_iter().map(cost).sum();
        Ok(total / side_by_side::threads(None))
    }

    /// Runs what has no result yet, on all processors.
    pub(crate) fn run(&self, directory: &Path) -> io::Result<()> {
        let left = self.left(&read(directory)?);
        let (all, minutes) = (self.numbers.len(), self.expected(directory)?.as_secs().div_ceil(60));
        eprintln!("factorial: {all} runs, {} to do, about {minutes} min", left.len());
        run_all(directory, FILE, &left, run_cell)
    }
}

/// Runs `one` for each number on all processors, and appends what it returns to a file.
fn run_all<M: Serialize>(
    directory: &Path,
    file: &str,
    todo: &[(usize, Cell, u64)],
    one: impl Fn(&Cell, usize, u64) -> (M, Vec<String>) + Sync,
) -> io::Result<()> {
    if todo.is_empty() {
        return Ok(());
    }
    let lines = Mutex::new(Lines::open(directory, file)?);
    let commit = Environment::here().commit;
    let work = Work::new("factorial", todo.len());
    side_by_side::each(todo, side_by_side::threads(None), |(number, cell, seconds)| {
        let (measured, violations) = one(cell, *number, *seconds);
        let run = Run {
            number: *number,
            cell: cell.clone(),
            seconds: *seconds as f64,
            measured,
            violations,
            origin: Origin { commit: commit.clone(), time: unix_time() },
        };
        lines.lock().unwrap_or_else(PoisonError::into_inner).add(&run)?;
        work.one();
        Ok(())
    })
}

#[cfg(test)]
pub(crate) mod tests;
