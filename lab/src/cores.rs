//! `mpip-lab bench-cores`: what one node's sending side carries with one thread, two, and so on.

mod peer;
mod sending;

use std::io;
use std::time::Duration;

use clap::Args;
use mpip_crypto::{Aead, SealKey};

use crate::netns::{self, Namespace};
use crate::statistics::median;
use sending::{FAR_END, INTERFACE, LOCAL, Measured, Node, REMOTE, times};

/// Most threads that are measured unless more are asked for, and that the model speaks of.
const MOST: usize = 4;
/// Bytes of a sealed datagram with a full segment.
const DATAGRAM: usize = 1_434;

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

/// Measures, and prints a table and what the model says.
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
    let seal = seal_cost();
    println!("sealing alone: {seal:.3} CPU s/Gbit");
    if let Some(shared) = rows.get(1) {
        print_model(&rows[0], shared, seal);
    }
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

/// Seconds that it takes to seal a Gbit of full datagrams.
fn seal_cost() -> f64 {
    const ROUNDS: u64 = 200_000;
    let key = SealKey::new(Aead::preferred(mpip_crypto::cpu_has_aes()), &[1; 32]);
    let body = [0; DATAGRAM - 48];
    let mut out = [0; DATAGRAM];
    let (start, _) = times();
    for number in 0..ROUNDS {
        let (clear, sealed) = out.split_at_mut(9);
        key.seal_into(0, number, clear, &body, sealed);
    }
    (times().0 - start) * 1e9 / (ROUNDS as f64 * DATAGRAM as f64 * 8.0)
}

fn print_model(one: &Row, shared: &Row, seal: f64) {
    let send = (shared.crew - seal).max(0.0);
    println!("model, costs of stages in CPU s/Gbit:");
    println!("  engine {:.3}, seal {seal:.3}, send {send:.3}", shared.engine);
    println!("  1 thread:  {:.2} Gbit/s", 1.0 / (one.engine + one.crew));
    for threads in 2..=MOST {
        let rate = predicted(threads, shared.engine, shared.crew, send);
        println!("  {threads} threads: {rate:.2} Gbit/s");
    }
}

/// Gbit/s with `threads`, two or more, by costs in s/Gbit. The slowest of three stages limits: the
/// engine's thread, the others together, and the system call to send, which one thread at a time
/// makes for a socket.
fn predicted(threads: usize, engine: f64, crew: f64, send: f64) -> f64 {
    let stages = [engine, crew / (threads - 1) as f64, send];
    1.0 / stages.into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_stage_limits() {
        assert_eq!(predicted(2, 0.1, 0.4, 0.2), 2.5);
        assert_eq!(predicted(3, 0.1, 0.4, 0.2), 5.0);
        // The system calls of one socket follow one another.
        assert_eq!(predicted(4, 0.1, 0.4, 0.2), 5.0);
        assert_eq!(predicted(4, 0.25, 0.4, 0.2), 4.0);
    }
}
