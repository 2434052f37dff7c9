//! Runs random worlds: `worlds --seeds COUNT [--first SEED] [--threads N]`, or one of them with its
//! trace: `worlds --seed SEED`.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the command says how long it took; the worlds have their own time"
)]

use core::fmt;
use core::time::Duration;
use std::cell::Cell;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use mpip_core::trace::qlog::Writer;
use mpip_sim::run::{failure_text, run_seed, run_seed_prepared};
use mpip_sim::world::World;

const USAGE: &str = "usage: worlds --seeds COUNT [--first SEED] [--threads N] [--keep-going]
       worlds --seed SEED [--quiet] [--qlog DIRECTORY]";

thread_local! {
    /// The seed that this thread runs, for the message of a panic.
    static SEED: Cell<u64> = const { Cell::new(0) };
}

#[derive(Debug, Default)]
struct Arguments {
    seed: Option<u64>,
    seeds: Option<u64>,
    first: u64,
    threads: Option<u64>,
    quiet: bool,
    keep_going: bool,
    qlog: Option<PathBuf>,
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
            "--first" => parsed.first = number()?,
            "--threads" => parsed.threads = Some(number()?),
            "--quiet" => parsed.quiet = true,
            "--qlog" => {
                let directory = arguments.next().ok_or("--qlog needs a directory")?;
                parsed.qlog = Some(directory.into());
            }
            "--keep-going" => parsed.keep_going = true,
            _ => return Err(format!("unknown argument `{name}`")),
        }
    }
    if parsed.seed.is_some() == parsed.seeds.is_some() {
        return Err("expected either --seed or --seeds".to_owned());
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("worlds: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        eprintln!("world {} panicked; see it with --seed {}", SEED.get(), SEED.get());
        usual(info);
    }));
    let failed = match arguments.seed {
        Some(seed) => one(seed, !arguments.quiet, arguments.qlog.as_deref()),
        None => many(&arguments),
    };
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// A trace file of an engine.
#[derive(Debug)]
struct TraceFile(BufWriter<File>);

impl fmt::Write for TraceFile {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_all(text.as_bytes()).map_err(|_| fmt::Error)
    }
}

/// Traces every host's association with every other in files of their own.
fn trace_all(world: &mut World, directory: &Path) {
    let names: Vec<String> = world.host_names().map(str::to_owned).collect();
    for host in 0..names.len() {
        for peer in (0..names.len()).filter(|peer| *peer != host) {
            let title = format!("{}-{}", names[host], names[peer]);
            let path = directory.join(format!("{title}.sqlog"));
            let file = File::create(&path).unwrap_or_else(|error| {
                eprintln!("worlds: cannot write {}: {error}", path.display());
                std::process::exit(2);
            });
            let out = TraceFile(BufWriter::new(file));
            let writer = Writer::new(out, &title, Duration::ZERO, u64::MAX);
            let writer = writer.expect("the header is shorter than the buffer");
            world.trace_peer(host, peer, Box::new(writer));
        }
    }
}

fn one(seed: u64, trace: bool, qlog: Option<&Path>) -> bool {
    SEED.set(seed);
    let started = Instant::now();
    let outcome = run_seed_prepared(seed, trace, |world| {
        if let Some(directory) = qlog {
            trace_all(world, directory);
        }
    });
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

fn many(arguments: &Arguments) -> bool {
    let count = arguments.seeds.unwrap_or(0);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let threads = arguments.threads.unwrap_or(cores).clamp(1, 256);
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
