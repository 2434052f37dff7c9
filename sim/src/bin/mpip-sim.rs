//! Runs random worlds: `mpip-sim --seeds COUNT [--first SEED] [--threads N]`, one of them with its
//! trace: `mpip-sim --seed SEED`, or seed 003's factorial: `mpip-sim --factorial REPETITIONS`.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the command says how long it took; the worlds have their own time"
)]

use std::cell::Cell;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use mpip_sim::clock::SECOND;
use mpip_sim::factorial::{self, benefit};
use mpip_sim::measure::{Subject, limit, measure};
use mpip_sim::run::{failure_text, run_seed};

const USAGE: &str = "usage: mpip-sim --seeds COUNT [--first SEED] [--threads N] [--keep-going]
       mpip-sim --seed SEED [--quiet]
       mpip-sim --factorial REPETITIONS [--seconds N] [--threads N]";

thread_local! {
    /// The seed that runs on this thread, for the message of a panic.
    static SEED: Cell<u64> = const { Cell::new(0) };
}

#[derive(Debug, Default)]
struct Arguments {
    seed: Option<u64>,
    seeds: Option<u64>,
    factorial: Option<u64>,
    seconds: Option<u64>,
    first: u64,
    threads: Option<u64>,
    quiet: bool,
    keep_going: bool,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut parsed = Arguments::default();
    while let Some(name) = arguments.next() {
        let mut number = || {
            let value = arguments.next().ok_or(format!("{name} needs a number"))?;
            value.parse().map_err(|_| format!("{name} needs a number, found `{value}`"))
        };
        match name.as_str() {
            "--seed" => parsed.seed = Some(number()?),
            "--seeds" => parsed.seeds = Some(number()?),
            "--factorial" => parsed.factorial = Some(number()?),
            "--seconds" => parsed.seconds = Some(number()?),
            "--first" => parsed.first = number()?,
            "--threads" => parsed.threads = Some(number()?),
            "--quiet" => parsed.quiet = true,
            "--keep-going" => parsed.keep_going = true,
            _ => return Err(format!("unknown argument `{name}`")),
        }
    }
    let tasks = [parsed.seed, parsed.seeds, parsed.factorial];
    if tasks.iter().flatten().count() != 1 {
        return Err("expected one of --seed, --seeds and --factorial".to_owned());
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("mpip-sim: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        eprintln!("world {} panicked; see it with --seed {}", SEED.get(), SEED.get());
        usual(info);
    }));
    let failed = match (arguments.seed, arguments.factorial) {
        (Some(seed), _) => one(seed, !arguments.quiet),
        (None, Some(repetitions)) => factorial(&arguments, repetitions.max(1)),
        (None, None) => many(&arguments),
    };
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn one(seed: u64, trace: bool) -> bool {
    SEED.set(seed);
    let started = Instant::now();
    let outcome = run_seed(seed, trace);
    eprintln!(
        "world {seed}: {} packets sent, {} delivered, {:.1} virtual seconds in {:?}",
        outcome.sent,
        outcome.delivered,
        outcome.end as f64 / 1e9,
        started.elapsed()
    );
    if outcome.violations.is_empty() {
        return false;
    }
    eprintln!("{}", failure_text(seed, &outcome));
    true
}

impl Arguments {
    fn threads(&self) -> u64 {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        self.threads.unwrap_or(cores).clamp(1, 256)
    }
}

/// The goodput of every cell, median over its repetitions, and the aggregation benefit against the
/// physical limits of the paths: what each can carry at most, not what some TCP reaches on it.
fn factorial(arguments: &Arguments, repetitions: u64) -> bool {
    let duration = arguments.seconds.unwrap_or(20).max(1) * SECOND;
    let cells = factorial::cells();
    let next = AtomicUsize::new(0);
    let started = Instant::now();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads() {
            let (cells, next, sender) = (&cells, &next, sender.clone());
            scope.spawn(move || {
                while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let runs = (0..repetitions).map(|repetition| {
                        let scenario = cell.scenario(repetition, duration);
                        measure(&scenario, Subject::MPIP).goodput
                    });
                    let mut goodputs: Vec<f64> = runs.collect();
                    goodputs.sort_by(f64::total_cmp);
                    let scenario = cell.scenario(0, duration);
                    let limits = [0, 1].map(|path| {
                        limit(&scenario.paths[path..=path]).expect("the links have a rate")
                    });
                    let goodput = goodputs[goodputs.len() / 2];
                    // The receiver goes only when all threads have ended.
                    let _ = sender.send((*cell, goodput, benefit(goodput, &limits)));
                }
            });
        }
        drop(sender);
        println!("lossy  wifi  lte  loss_percent  goodput_mbps  benefit");
        let mut benefits = Vec::new();
        for (cell, goodput, benefit) in receiver {
            let factorial::Cell { lossy, bandwidths: [wifi, lte], loss } = cell;
            let (name, mbps) = (format!("{lossy:?}").to_lowercase(), goodput / 1e6);
            println!("{name:5} {wifi:5} {lte:4}  {loss:12}  {mbps:12.2}  {benefit:7.3}");
            benefits.push(benefit);
        }
        let mean = benefits.iter().sum::<f64>() / benefits.len() as f64;
        let least = benefits.iter().copied().fold(f64::INFINITY, f64::min);
        let positive = benefits.iter().filter(|benefit| **benefit > 0.0).count();
        println!(
            "{} cells, {repetitions} repetitions: benefit {mean:.3} in the mean, {least:.3} at \
             least, above 0 in {positive}; {:.0?}",
            benefits.len(),
            started.elapsed()
        );
    });
    false
}

fn many(arguments: &Arguments) -> bool {
    let count = arguments.seeds.unwrap_or(0);
    let threads = arguments.threads();
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let seed = arguments.first + index;
                    SEED.set(seed);
                    let outcome = run_seed(seed, false);
                    if !outcome.violations.is_empty() {
                        failed.fetch_add(1, Ordering::Relaxed);
                        println!("{}", failure_text(seed, &outcome));
                        if !arguments.keep_going {
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                    if (index + 1).is_multiple_of(1_000) {
                        eprintln!("{} worlds in {:.0?}", index + 1, started.elapsed());
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    let run = next.into_inner().min(count);
    println!("{run} worlds, {failed} broken, {:.1?}", started.elapsed());
    failed > 0
}
