//! `mpip-lab bench-cores`: what one node's sending side carries with one thread, two, and so on.

mod peer;
mod sending;

use std::io;
use std::time::Duration;

use clap::Args;

use crate::netns::{self, Namespace};
use crate::statistics::median;
use sending::{FAR_END, INTERFACE, LOCAL, Measured, Node, REMOTE};

/// Most threads that are measured unless more are asked for.
const MOST: usize = 4;

/// How long and with how many threads.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Most threads; without it as many as there are processors, and 4 at most.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=64))]
    threads: Option<u64>,
    /// Repetitions of each run.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Seconds of each run.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

/// Medians of the runs with one number of threads; costs in processor seconds per Gbit.
#[derive(Clone, Copy)]
struct Row {
    threads: usize,
    gbit_per_s: f64,
    engine: f64,
    crew: f64,
}

impl Row {
    fn of(threads: usize, runs: &[Measured]) -> Self {
        let median_of =
            |value: &dyn Fn(&Measured) -> f64| median(&runs.iter().map(value).collect::<Vec<_>>());
        let gbit = |run: &Measured| run.bits / 1e9;
        Self {
            threads,
            gbit_per_s: median_of(&|run| gbit(run) / run.seconds),
            engine: median_of(&|run| run.engine / gbit(run)),
            crew: median_of(&|run| run.crew / gbit(run)),
        }
    }

    fn print(&self, first: &Self) {
        println!(
            "{:>7}  {:>6.2}  {:>5.2}  {:>10.3}  {:>6.3}  {:>4.3}",
            self.threads,
            self.gbit_per_s,
            self.gbit_per_s / first.gbit_per_s,
            self.engine + self.crew,
            self.engine,
            self.crew,
        );
    }
}

/// Measures and prints a table.
pub(crate) fn run(options: &Options) -> io::Result<()> {
    netns::clean_stale()?;
    let _guard = netns::Guard::start()?;
    let processors = std::thread::available_parallelism()?.get();
    let most = options.threads.map_or(processors.min(MOST), |most| most as usize);
    let namespace = Namespace::create("cores")?;
    set_up(&namespace)?;
    let time = Duration::from_secs(options.seconds);
    let mut runs = vec![Vec::new(); most];
    // One after the other, so that a slow minute of the machine meets all of them.
    for _ in 0..options.repetitions {
        for (index, runs) in runs.iter_mut().enumerate() {
            runs.push(namespace.enter(|| Node::new(index + 1)?.run(time))?);
        }
    }
    let rows: Vec<_> =
        runs.iter().enumerate().map(|(index, runs)| Row::of(index + 1, runs)).collect();
    println!("processors: {processors}");
    println!("threads  Gbit/s  ratio  CPU s/Gbit  engine  crew");
    rows.iter().for_each(|row| row.print(&rows[0]));
    Ok(())
}

/// A pair of interfaces whose far end drops what arrives: it is for another host.
fn set_up(namespace: &Namespace) -> io::Result<()> {
    let address = format!("{LOCAL}/24");
    for arguments in [
        &["link", "add", INTERFACE, "type", "veth", "peer", "name", FAR_END][..],
        &["address", "add", &address, "dev", INTERFACE],
        &["link", "set", FAR_END, "up"],
        &["link", "set", INTERFACE, "up"],
        &["neighbour", "add", REMOTE, "lladdr", "02:00:00:00:00:99", "dev", INTERFACE],
    ] {
        namespace.ip(arguments)?;
    }
    Ok(())
}
