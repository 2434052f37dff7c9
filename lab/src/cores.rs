//! `mpip-lab bench-cores`: what one node's sending and receiving sides carry with one thread, two,
//! and so on.

mod common;
mod peer;
mod receiving;
mod sending;

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::netns::{self, Namespace};
use crate::statistics::median;
use common::{FAR_END, INNER, INTERFACE, LOCAL, Measured, REMOTE};
use receiving::Pair;
use sending::Node;

/// Most threads that are measured unless more are asked for.
const MOST: usize = 4;

/// The interface by which the receiving node forwards, and its other end.
const OUT: &str = "mpip-b2";
const OUT_FAR_END: &str = "mpip-b3";

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Side {
    Sending,
    Receiving,
}

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
    /// Only this side; without it both.
    #[arg(long, value_enum)]
    side: Option<Side>,
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

/// Measures both sides and prints a table of each.
pub(crate) fn run(options: &Options) -> io::Result<()> {
    netns::clean_stale()?;
    let _guard = netns::Guard::start()?;
    let processors = std::thread::available_parallelism()?.get();
    let most = options.threads.map_or(processors.min(MOST), |most| most as usize);
    println!("processors: {processors}");
    if options.side != Some(Side::Receiving) {
        let namespace = Namespace::create("sending")?;
        set_up_sending(&namespace)?;
        measure("sending", options, most, |threads, time| {
            namespace.enter(|| Node::new(threads)?.run(time))
        })?;
    }
    if options.side != Some(Side::Sending) {
        let ends = [Namespace::create("sender")?, Namespace::create("receiver")?];
        set_up_receiving(&ends)?;
        measure("receiving", options, most, |threads, time| {
            Pair::new([&ends[0], &ends[1]], threads)?.run(time)
        })?;
    }
    Ok(())
}

fn measure(
    side: &str,
    options: &Options,
    most: usize,
    run: impl Fn(usize, Duration) -> io::Result<Measured>,
) -> io::Result<()> {
    let time = Duration::from_secs(options.seconds);
    let mut runs = vec![Vec::new(); most];
    // One after the other, so that a slow minute of the machine meets all of them.
    for _ in 0..options.repetitions {
        for (index, runs) in runs.iter_mut().enumerate() {
            runs.push(run(index + 1, time)?);
        }
    }
    let rows: Vec<_> =
        runs.iter().enumerate().map(|(index, runs)| Row::of(index + 1, runs)).collect();
    println!("{side}");
    println!("threads  Gbit/s  ratio  CPU s/Gbit  engine   crew");
    rows.iter().for_each(|row| row.print(&rows[0]));
    Ok(())
}

/// A pair of interfaces whose far end drops what arrives: it is for another host.
fn set_up_sending(namespace: &Namespace) -> io::Result<()> {
    let address = format!("{LOCAL}/24");
    let pair = ["link", "add", INTERFACE, "type", "veth", "peer", "name", FAR_END];
    namespace.ip(&pair)?;
    namespace.ip(&["address", "add", &address, "dev", INTERFACE])?;
    namespace.ip(&["link", "set", FAR_END, "up"])?;
    namespace.ip(&["link", "set", INTERFACE, "up"])?;
    namespace.ip(&neighbour(REMOTE, INTERFACE))?;
    Ok(())
}

/// A pair of interfaces between the two, and another one at the second whose far end drops what
/// the second forwards.
fn set_up_receiving([sender, receiver]: &[Namespace; 2]) -> io::Result<()> {
    let [local, remote] = [LOCAL, REMOTE].map(|address| format!("{address}/24"));
    let pair = ["link", "add", INTERFACE, "type", "veth", "peer", "name", FAR_END];
    sender.ip(&[&pair[..], &["netns", receiver.name()]].concat())?;
    sender.ip(&["address", "add", &local, "dev", INTERFACE])?;
    receiver.ip(&["address", "add", &remote, "dev", FAR_END])?;
    receiver.ip(&["link", "add", OUT, "type", "veth", "peer", "name", OUT_FAR_END])?;
    for (namespace, interface) in
        [(sender, INTERFACE), (receiver, FAR_END), (receiver, OUT), (receiver, OUT_FAR_END)]
    {
        namespace.ip(&["link", "set", interface, "up"])?;
    }
    receiver.sysctl(&[
        ("net.ipv4.ip_forward", "1"),
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
    ])?;
    let inner = IpAddr::from(INNER[1]).to_string();
    receiver.ip(&neighbour(&inner, OUT))?;
    receiver.ip(&["route", "add", &inner, "dev", OUT])?;
    Ok(())
}

fn neighbour<'a>(address: &'a str, interface: &'a str) -> [&'a str; 7] {
    ["neighbour", "add", address, "lladdr", "02:00:00:00:00:99", "dev", interface]
}
