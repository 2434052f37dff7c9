//! The factorial of loss-aware MPTCP (seed 003) in the simulator.
//!
//! One link is Wi-Fi (10 ms, jitter range 0 to 5 ms), the other LTE (75 ms, 0 to 35 ms). One of the
//! two loses packets. Each bandwidth of one link is combined with each of the other (5 x 5), with
//! each loss (6) on each link (2): 300 cells, and the 25 pairs of bandwidths without loss. Each
//! cell is repeated with random jitter of each link: a quarter of a value from its range is the
//! standard deviation, and packets stay in order. All random choices follow from the number of the
//! cell.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mpip_core::{CongestionControlKind, LossPolicy, SchedulerKind};
use mpip_link::{LinkConfig, Loss, QueueLimit};
use mpip_sim::measure::{LossRule, Scenario, Subject, limit, measure};
use mpip_sim::spec::TcpControl;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::columns;
use crate::progress::Work;
use crate::statistics::median;

const FACTORS: &str = include_str!("../data/loss_aware.csv");
/// Default duration of each run, in seconds of virtual time.
pub(crate) const SECONDS: u64 = 10;
const SECOND: u64 = 1_000_000_000;
/// Runs of TCP on each path alone.
const TCP_RUNS: u64 = 3;
/// The file of the results in their directory.
pub(crate) const FILE: &str = "factorial.jsonl";
/// The file of the results with balia.
const BALIA_FILE: &str = "factorial-balia.jsonl";
/// The seed's thresholds (IV.C), parts per million: 0.01 % for Wi-Fi, 1 % for LTE.
const THRESHOLDS: &[u32] = &[100, 10_000];

/// A network of the design.
#[derive(Debug, Clone)]
struct Network {
    name: String,
    delay_ms: f64,
    jitter_range_ms: f64,
    bandwidths_mbps: Vec<f64>,
    losses_percent: Vec<f64>,
}

fn networks() -> Vec<Network> {
    let list = |text: &str| -> Vec<f64> {
        text.split(' ').filter_map(|number| number.parse().ok()).collect()
    };
    let network = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let [name, delay, jitter, bandwidths, losses] = fields.as_slice() else { return None };
        Some(Network {
            name: (*name).to_owned(),
            delay_ms: delay.parse().ok()?,
            jitter_range_ms: jitter.split('-').next_back()?.parse().ok()?,
            bandwidths_mbps: list(bandwidths),
            losses_percent: list(losses),
        })
    };
    FACTORS.lines().skip(1).filter_map(network).collect()
}

/// One cell of the design.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// The network that loses packets; empty for cells without loss.
    pub(crate) lossy: String,
    /// Loss on it.
    pub(crate) loss_percent: f64,
    /// Bandwidth of Wi-Fi and LTE.
    pub(crate) bandwidths_mbps: [f64; 2],
}

/// The result of one repetition of a cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CellResult {
    /// Its number, counted over cells and repetitions.
    pub(crate) number: usize,
    pub(crate) cell: Cell,
    /// Duration in seconds of virtual time.
    pub(crate) seconds: f64,
    pub(crate) goodput_bps: f64,
    pub(crate) limit_bps: f64,
    /// What each path alone could carry.
    pub(crate) alone_bps: [f64; 2],
    /// The most that TCP reached on each path alone, in the same time.
    pub(crate) tcp_bps: [f64; 2],
    pub(crate) longest_pause_ms: f64,
    /// Violated invariants; empty if the run counts.
    pub(crate) violations: Vec<String>,
}

impl CellResult {
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

/// Balia with and without the loss-aware rule in a cell, over the same links (seed 003, IV.C).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BaliaResult {
    /// As in [`CellResult`].
    pub(crate) number: usize,
    pub(crate) cell: Cell,
    pub(crate) seconds: f64,
    /// Goodput of balia: all paths, always.
    pub(crate) balia_bps: f64,
    /// The same with the rule and the seed's thresholds.
    pub(crate) balia_la_bps: f64,
    pub(crate) violations: Vec<String>,
}

impl BaliaResult {
    /// What the rule gains, percent.
    pub(crate) fn gain(&self) -> f64 {
        (self.balia_la_bps / self.balia_bps.max(1.0) - 1.0) * 100.0
    }
}

/// All cells in order.
pub(crate) fn cells() -> Vec<Cell> {
    let networks = networks();
    let [first, second] = networks.as_slice() else { return Vec::new() };
    let mut cells = Vec::new();
    for a in &first.bandwidths_mbps {
        for b in &second.bandwidths_mbps {
            let bandwidths_mbps = [*a, *b];
            cells.push(Cell { lossy: String::new(), loss_percent: 0.0, bandwidths_mbps });
            for network in [first, second] {
                for loss in &network.losses_percent {
                    let (lossy, loss_percent) = (network.name.clone(), *loss);
                    cells.push(Cell { lossy, loss_percent, bandwidths_mbps });
                }
            }
        }
    }
    cells
}

/// A number of 0..1 that follows from the arguments (SplitMix64).
fn share(number: usize, purpose: u64) -> f64 {
    let mut z = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(purpose << 7);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

fn links(cell: &Cell, number: usize) -> Vec<(LinkConfig, LinkConfig)> {
    let networks = networks();
    let of = |(index, network): (usize, &Network)| {
        let range = share(number, index as u64) * network.jitter_range_ms;
        let lossy = network.name == cell.lossy;
        let config = LinkConfig {
            rate: Some((cell.bandwidths_mbps[index] * 1e6) as u64),
            queue: QueueLimit::Packets(100),
            delay: Duration::from_secs_f64(network.delay_ms / 1e3),
            jitter: Duration::from_secs_f64(range / 4.0 / 1e3),
            in_order: true,
            loss: if lossy { Loss::Random(cell.loss_percent / 100.0) } else { Loss::None },
            ..LinkConfig::default()
        };
        (config.clone(), config)
    };
    networks.iter().enumerate().map(of).collect()
}

fn run_balia_cell(cell: &Cell, number: usize, seconds: u64) -> BaliaResult {
    let from = 3 * SECOND;
    let scenario = Scenario {
        paths: links(cell, number),
        sender: TcpControl::CUBIC.into(),
        duration: from + seconds * SECOND,
        from,
        seed: number as u64,
    };
    let run = |policy| {
        let loss = LossRule { policy, thresholds: THRESHOLDS };
        let (scheduler, congestion_control) =
            (SchedulerKind::default(), CongestionControlKind::Balia);
        measure(&scenario, Subject::Mpip { scheduler, congestion_control, loss })
    };
    let (without, with) = (run(LossPolicy::Off), run(LossPolicy::Threshold));
    BaliaResult {
        number,
        cell: cell.clone(),
        seconds: seconds as f64,
        balia_bps: without.goodput,
        balia_la_bps: with.goodput,
        violations: without.violations.into_iter().chain(with.violations).collect(),
    }
}

fn run_cell(cell: &Cell, number: usize, seconds: u64) -> CellResult {
    let paths = links(cell, number);
    let alone = |index: usize| limit(&paths[index..=index]).unwrap_or(0.0);
    let (limit_bps, alone_bps) = (limit(&paths).unwrap_or(0.0), [alone(0), alone(1)]);
    let from = 3 * SECOND;
    let duration = from + seconds * SECOND;
    let scenario =
        Scenario { paths, sender: TcpControl::CUBIC.into(), duration, from, seed: number as u64 };
    let found = measure(&scenario, Subject::MPIP);
    let tcp = |path: usize| {
        let runs = (0..TCP_RUNS).map(|run| {
            let seed = number as u64 + (run << 32);
            measure(&Scenario { seed, ..scenario.clone() }, Subject::Path(path)).goodput
        });
        runs.fold(0.0, f64::max)
    };
    CellResult {
        number,
        cell: cell.clone(),
        seconds: seconds as f64,
        goodput_bps: found.goodput,
        limit_bps,
        alone_bps,
        tcp_bps: [tcp(0), tcp(1)],
        longest_pause_ms: found.longest_pause.as_secs_f64() * 1e3,
        violations: found.violations,
    }
}

fn read_file<R: DeserializeOwned>(path: &Path) -> io::Result<Vec<R>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let lines = BufReader::new(File::open(path)?).lines();
    // An interrupted run may leave an incomplete line.
    Ok(lines.map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok()).collect())
}

/// The results in a directory; none where there is no file.
pub(crate) fn read(directory: &Path) -> io::Result<Vec<CellResult>> {
    read_file(&directory.join(FILE))
}

/// The results with balia in a directory; none where there is no file.
pub(crate) fn read_balia(directory: &Path) -> io::Result<Vec<BaliaResult>> {
    read_file(&directory.join(BALIA_FILE))
}

/// Runs balia with and without the loss-aware rule in all cells in which a link loses packets, as
/// far as there is no result yet.
pub(crate) fn run_balia(directory: &Path, repetitions: usize, seconds: u64) -> io::Result<()> {
    let cells = cells();
    let done: BTreeSet<usize> = read_balia(directory)?.iter().map(|it| it.number).collect();
    let all = (0..cells.len() * repetitions).filter(|number| !done.contains(number));
    let todo: Vec<usize> =
        all.filter(|number| !cells[number % cells.len()].lossy.is_empty()).collect();
    run_all(directory, BALIA_FILE, &todo, |number| {
        run_balia_cell(&cells[number % cells.len()], number, seconds)
    })
}

/// A line for each loss: how much balia carries with the rule and without it.
pub(crate) fn balia_table(results: &[BaliaResult]) -> String {
    let mut rows = vec![
        ["lossy", "loss", "cells", "balia Mbit/s", "balia-la Mbit/s", "gain, median", "better"]
            .map(str::to_owned),
    ];
    let mut seen: Vec<(&str, f64)> = Vec::new();
    for result in results {
        let of = (result.cell.lossy.as_str(), result.cell.loss_percent);
        if seen.contains(&of) {
            continue;
        }
        seen.push(of);
    }
    seen.sort_by(|a, b| a.0.cmp(b.0).then(a.1.total_cmp(&b.1)));
    for (lossy, loss) in seen {
        let of = |it: &&BaliaResult| it.cell.lossy == lossy && it.cell.loss_percent == loss;
        let valid = |it: &&BaliaResult| of(it) && it.violations.is_empty();
        let cells: Vec<&BaliaResult> = results.iter().filter(valid).collect();
        let mean = |value: fn(&BaliaResult) -> f64| {
            let sum: f64 = cells.iter().map(|it| value(it)).sum();
            format!("{:.2}", sum / cells.len().max(1) as f64 / 1e6)
        };
        let gains: Vec<f64> = cells.iter().map(|it| it.gain()).collect();
        let better = gains.iter().filter(|gain| **gain > 0.0).count();
        rows.push([
            lossy.to_owned(),
            format!("{loss} %"),
            cells.len().to_string(),
            mean(|it| it.balia_bps),
            mean(|it| it.balia_la_bps),
            format!("{:+.1} %", if gains.is_empty() { 0.0 } else { median(&gains) }),
            better.to_string(),
        ]);
    }
    columns::aligned(&rows)
}

/// Runs the repetitions of all cells that have no result yet, on all processors.
pub(crate) fn run(directory: &Path, repetitions: usize, seconds: u64) -> io::Result<()> {
    let all: Vec<usize> = (0..cells().len() * repetitions).collect();
    run_numbers(directory, &all, seconds)
}

/// The numbers of `count` cells, spread evenly over bandwidths and losses.
pub(crate) fn sample(count: usize) -> Vec<usize> {
    let cells = cells().len();
    let count = count.min(cells);
    (0..count).map(|index| index * cells / count.max(1)).collect()
}

/// Estimated processor time of a run.
const COST: Duration = Duration::from_millis(2_400);

fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Estimated time for the runs with these numbers that have no result yet.
pub(crate) fn expected(directory: &Path, numbers: &[usize]) -> io::Result<Duration> {
    let done: BTreeSet<usize> = read(directory)?.iter().map(|result| result.number).collect();
    let left = numbers.iter().filter(|number| !done.contains(number)).count();
    Ok(COST * left as u32 / workers() as u32)
}

/// Runs the repetitions of cells with these numbers that have no result yet.
pub(crate) fn run_numbers(directory: &Path, numbers: &[usize], seconds: u64) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let done: BTreeSet<usize> = read(directory)?.iter().map(|result| result.number).collect();
    let cells = cells();
    let todo: Vec<usize> =
        numbers.iter().copied().filter(|number| !done.contains(number)).collect();
    eprintln!("factorial of {} cells: {} runs, {} to do", cells.len(), numbers.len(), todo.len());
    run_all(directory, FILE, &todo, |number| {
        run_cell(&cells[number % cells.len()], number, seconds)
    })
}

/// Runs `one` for each number on all processors, and appends what it returns to a file.
fn run_all<R: Serialize>(
    directory: &Path,
    file: &str,
    todo: &[usize],
    one: impl Fn(usize) -> R + Sync,
) -> io::Result<()> {
    if todo.is_empty() {
        return Ok(());
    }
    std::fs::create_dir_all(directory)?;
    let file = OpenOptions::new().create(true).append(true).open(directory.join(file))?;
    let file = Mutex::new(file);
    let next = AtomicUsize::new(0);
    let workers = workers();
    let work = Work::new("factorial", todo.len());
    std::thread::scope(|scope| {
        let worker = || -> io::Result<()> {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(number) = todo.get(index).copied() else { return Ok(()) };
                let mut line = serde_json::to_string(&one(number))?;
                line.push('\n');
                let mut file = file.lock().map_err(|_| io::Error::other("a worker panicked"))?;
                file.write_all(line.as_bytes())?;
                work.one();
            }
        };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            worker.join().map_err(|_| io::Error::other("a worker panicked"))??;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_design_has_every_combination_once() {
        let cells = cells();
        assert_eq!(cells.len(), 25 * (2 * 6 + 1));
        let wifi = |cell: &&Cell| cell.lossy == "wifi" && cell.loss_percent == 0.01;
        assert_eq!(cells.iter().filter(wifi).count(), 25);
        for (index, cell) in cells.iter().enumerate() {
            assert!(!cells[..index].contains(cell), "{cell:?} twice");
        }
    }

    #[test]
    fn the_benefit_is_that_of_the_seed() {
        assert_eq!(benefit(20.0, &[10.0, 10.0]), 1.0);
        assert_eq!(benefit(10.0, &[10.0, 10.0]), 0.0);
        assert_eq!(benefit(5.0, &[10.0, 10.0]), -0.5);
        assert_eq!(benefit(14.0, &[10.0, 8.0]), 0.5);
        assert_eq!(benefit(0.0, &[0.0, 0.0]), 0.0);
    }

    #[test]
    fn a_sample_has_every_loss_on_either_link() {
        let cells = cells();
        let sample = sample(65);
        assert_eq!(sample.len(), 65);
        for network in ["wifi", "lte"] {
            let mut losses: Vec<f64> = sample
                .iter()
                .map(|number| &cells[*number])
                .filter(|cell| cell.lossy == network)
                .map(|cell| cell.loss_percent)
                .collect();
            losses.sort_by(f64::total_cmp);
            losses.dedup();
            assert_eq!(losses.len(), 6, "{network}");
        }
    }

    #[test]
    fn only_the_lossy_link_loses_and_jitter_is_drawn_for_each_run() {
        let cell =
            Cell { lossy: "lte".to_owned(), loss_percent: 1.0, bandwidths_mbps: [10.0, 50.0] };
        let (a, b) = (links(&cell, 1), links(&cell, 2));
        assert_eq!((a[0].0.loss, a[1].0.loss), (Loss::None, Loss::Random(0.01)));
        assert_eq!((a[0].0.rate, a[1].0.rate), (Some(10_000_000), Some(50_000_000)));
        assert_ne!(a[1].0.jitter, b[1].0.jitter);
        assert!(a[1].0.jitter <= Duration::from_micros(8_750));
        assert_eq!(a, links(&cell, 1));
    }

    #[test]
    fn the_rule_of_the_seed_gains_nothing_or_something_and_is_summed_up_by_loss() {
        let result = |number, lossy: &str, loss_percent, balia_bps, balia_la_bps| BaliaResult {
            number,
            cell: Cell { lossy: lossy.to_owned(), loss_percent, bandwidths_mbps: [10.0, 10.0] },
            seconds: 10.0,
            balia_bps,
            balia_la_bps,
            violations: Vec::new(),
        };
        let results = [
            result(1, "wifi", 10.0, 10e6, 12e6),
            result(2, "wifi", 1.0, 20e6, 10e6),
            result(3, "wifi", 10.0, 20e6, 20e6),
        ];
        assert!((results[0].gain() - 20.0).abs() < 1e-9);
        let table = balia_table(&results);
        let rows: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["wifi", "1", "%", "1", "20.00", "10.00", "-50.0", "%", "0"]);
        assert_eq!(rows[2], ["wifi", "10", "%", "2", "15.00", "16.00", "+10.0", "%", "1"]);
    }

    #[test]
    fn a_cell_runs_with_balia_and_the_rule_of_the_seed() {
        let cell =
            Cell { lossy: "wifi".to_owned(), loss_percent: 10.0, bandwidths_mbps: [10.0, 10.0] };
        let result = run_balia_cell(&cell, 7, 2);
        assert!(result.violations.is_empty(), "{result:?}");
        assert!(result.balia_bps > 1e6 && result.balia_la_bps > 1e6, "{result:?}");
    }

    #[test]
    fn a_cell_runs_and_repeats() {
        let cell =
            Cell { lossy: "wifi".to_owned(), loss_percent: 0.1, bandwidths_mbps: [10.0, 10.0] };
        let first = run_cell(&cell, 7, 2);
        // Packets held for reordering at the start of the count may be delivered within it.
        assert!(first.goodput_bps > 0.0 && first.goodput_bps <= first.limit_bps * 1.1, "{first:?}");
        assert!(first.tcp_bps.iter().all(|tcp| *tcp > 0.0), "{first:?}");
        assert!(first.benefit() >= first.strict_benefit().min(1.0), "{first:?}");
        assert_eq!(first.goodput_bps, run_cell(&cell, 7, 2).goodput_bps);
    }
}
