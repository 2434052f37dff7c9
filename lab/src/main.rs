//! `mpip-lab`: measures systems side by side on emulated links. `docs/experiments.md` describes its
//! use.
//!
//! This file parses the command line. The modules, those that need none of the others first:
//!
//! - tools: `command`, `go`, `netns`, `clock`, `pcap`, `progress`, `statistics`, `work_directory`,
//!   `columns`, `document`
//! - what is measured: `scenarios`, `sender`, `subject`
//! - results: `links` (of links), `flow` (of traffic), `calibration`, `environment`, `results`,
//!   `summary`, `published`, `measured`
//! - processes in a testbed: `emulator` and `netem` (links), `generator`, `stream`, `quic`,
//!   `web` and `probe` (traffic); `worker` starts them
//! - a testbed: `testbed` (namespaces and links of a scenario), `traffic`, `systems`
//! - commands: `run`, `simulated`, `factorial`, `calibrate`, `cores`, `shell`, `demo`,
//!   `kill_matrix`, `parameters`, `sweep`, `ablate`
//! - commands that use these: `bench`, `figures`, `papers`, `report`, `reproduce`

use std::io::Write;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

mod ablate;
mod bench;
mod calibrate;
mod calibration;
mod clock;
mod columns;
mod command;
mod cores;
mod demo;
mod document;
mod emulator;
mod environment;
mod estimates;
mod factorial;
mod figures;
mod floor;
mod flow;
mod generator;
mod go;
mod kill_matrix;
mod limit;
mod lines;
mod links;
mod measured;
mod netem;
mod netns;
mod papers;
mod parameters;
mod pcap;
mod probe;
mod progress;
mod published;
mod quic;
mod report;
mod reproduce;
mod results;
mod run;
mod scenario;
mod scenarios;
mod sender;
mod shell;
mod side_by_side;
mod simulated;
mod statistics;
mod stream;
mod subject;
mod summary;
mod sweep;
mod systems;
mod testbed;
mod thinning;
mod traffic;
mod units;
mod web;
mod work_directory;
mod worker;

/// Measures plain TCP, kernel MPTCP, mpip and others side by side on emulated links.
#[derive(Parser)]
#[command(name = "mpip-lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Where scenarios run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Place {
    /// Network namespaces of this kernel.
    Kernel,
    /// The simulator.
    Sim,
}

/// The program that makes the links of a run on this kernel.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Links {
    /// The lab's own emulator, which every kernel supports.
    Emulator,
    /// The kernel's netem and tbf.
    Netem,
}

/// How runs on kernels share the machine.
#[derive(Args)]
struct Machine {
    /// How many runs to make at once where their links are slow: up to a goodput of 400 Mbit/s
    /// together. It is stored with the results.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    jobs: u32,
    /// Counts runs even if the processors were busy.
    #[arg(long)]
    allow_busy: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Shows what mpip does: TCP, MPTCP and mpip on two links, and a link that is pulled.
    Demo(demo::Options),
    /// A process of the demonstration.
    #[command(subcommand, hide = true)]
    DemoPart(demo::Part),
    /// Lists the scenarios that come with the lab.
    List,
    /// Runs scenarios, by name or file.
    Run {
        /// Names as `list` shows them, or files.
        #[arg(required = true)]
        scenarios: Vec<String>,
        /// Measures only these systems, separated by commas.
        #[arg(long, value_delimiter = ',')]
        systems: Option<Vec<String>>,
        /// Number of repetitions, instead of the scenario's.
        #[arg(long)]
        repetitions: Option<u32>,
        /// Shortens runs of scenarios without events to this many seconds.
        #[arg(long)]
        seconds: Option<u64>,
        /// Where to run: `kernel`, or `sim` (the simulator, in virtual time).
        #[arg(long = "in", default_value = "kernel")]
        place: Place,
        /// Congestion control of the hosts' TCP, instead of the scenario's. The simulator has
        /// those of its `TcpControl`.
        #[arg(long)]
        congestion_control: Option<String>,
        /// Repeats each scenario with these senders in place of its bulk flows, separated by
        /// commas: tcp-cubic, tcp-reno, tcp-bbr, quinn-cubic, quinn-reno, quinn-bbr, quic-go.
        #[arg(long, value_delimiter = ',', conflicts_with = "congestion_control")]
        senders: Vec<sender::Sender>,
        /// Links by the lab's `emulator`, or by the kernel's `netem`.
        #[arg(long, default_value = "emulator")]
        links: Links,
        /// Directory of the results. Runs with a result there are not repeated.
        #[arg(long, default_value = "results")]
        out: PathBuf,
        /// Writes the summary as JSON.
        #[arg(long)]
        json: Option<PathBuf>,
        /// Writes packet traces of every link into this directory.
        #[arg(long)]
        pcap: Option<String>,
        /// Repeats runs that have a result.
        #[arg(long)]
        again: bool,
        #[command(flatten)]
        machine: Machine,
    },
    /// Calibrates the emulator, runs the scenarios of a set and writes the report. The full set
    /// includes the simulator's scenarios and factorial. Can be interrupted and resumed.
    Reproduce {
        /// The quick set (under 10 minutes) instead of the full set.
        #[arg(long)]
        quick: bool,
        /// Another set, as `list` shows them.
        #[arg(long, conflicts_with = "quick")]
        set: Option<String>,
        /// Measures only these systems, separated by commas.
        #[arg(long, value_delimiter = ',')]
        systems: Option<Vec<String>>,
        /// Links by the lab's `emulator`, or by the kernel's `netem`.
        #[arg(long, default_value = "emulator")]
        links: Links,
        /// Directory of the results.
        #[arg(long, default_value = "results")]
        out: PathBuf,
        #[command(flatten)]
        machine: Machine,
    },
    /// Measures mpip and prints the figures beside their targets. Can be interrupted and resumed.
    Figures {
        /// Groups (mhip, mpip, extra-bytes, delay, loss, factorial, ping, cut, fairness, udp) or
        /// beginnings of names of scenarios (default: all).
        cases: Vec<String>,
        /// Repetitions of each run.
        #[arg(long, default_value_t = 5)]
        repetitions: u32,
        /// Shortens runs of scenarios without events to this many seconds (default: 20 s or more).
        #[arg(long)]
        seconds: Option<u64>,
        /// Measures only these systems, separated by commas.
        #[arg(long, value_delimiter = ',')]
        systems: Option<Vec<String>>,
        /// Directory of the results. Runs with a result there are not repeated.
        #[arg(long, default_value = "results")]
        out: PathBuf,
        /// Takes results of TCP and MPTCP from this directory too, and measures only mpip.
        #[arg(long)]
        baseline: Option<PathBuf>,
        /// Congestion control of the hosts' TCP, instead of cubic.
        #[arg(long)]
        congestion_control: Option<String>,
        /// Number of cells of the factorial to run in the simulator, of 325.
        #[arg(long, default_value_t = 65)]
        cells: usize,
        /// Prints stored results and measures nothing.
        #[arg(long)]
        show: bool,
        /// Repeats runs that have a result.
        #[arg(long, conflicts_with = "show")]
        again: bool,
        /// Prints a table in Markdown.
        #[arg(long)]
        markdown: bool,
        #[command(flatten)]
        machine: Machine,
    },
    /// Runs the factorial of loss-aware MPTCP (seed 003) in the simulator; `report` shows it. A run
    /// lasts until 20 losses are expected. Can be interrupted and resumed.
    Factorial {
        /// Repetitions of each cell.
        #[arg(long, default_value_t = 1)]
        repetitions: usize,
        /// Longest duration of a run in seconds of virtual time, after 3 s of start. The seed's
        /// longest is 12000.
        #[arg(
            long, value_name = "SECONDS", default_value_t = factorial::LONGEST,
            value_parser = clap::value_parser!(u64).range(1..=factorial::PUBLISHED_LONGEST)
        )]
        longest: u64,
        /// Runs only the cells with these losses, in percent, separated by commas; 0 is no loss.
        #[arg(long, value_name = "PERCENT", value_delimiter = ',')]
        loss: Vec<f64>,
        /// Runs balia instead, with and without the seed's loss-aware rule, in the 300 cells with
        /// loss, and prints what the rule gains.
        #[arg(long)]
        balia: bool,
        /// Directory of the results.
        #[arg(long, default_value = "results")]
        out: PathBuf,
    },
    /// Measures in the simulator what thinning acknowledgements gains, for each kind of TCP sender.
    Thinning(thinning::Options),
    /// Switches each mechanism off, one at a time, over the simulator's scenarios and random links,
    /// and prints what it brings.
    Ablate(ablate::Options),
    /// Measures mpip over random link sets, with each kind of inner sender, in the simulator, and
    /// prints distributions and the worst sets. Can be interrupted and resumed.
    Sweep(sweep::Options),
    /// Prints every published figure of the seeds beside ours, and whether it is reached.
    Papers(papers::Options),
    /// Shows what tunes the engine's mechanisms.
    Parameters(parameters::Options),
    /// Kills every proper subset of two to four paths in every way during a transfer, and prints
    /// the outcomes. Can be interrupted and resumed.
    KillMatrix(kill_matrix::Options),
    /// Measures mpip by UDP and TCP segments beside plain IP, MPTCP and wireguard-go, over 1, 2 and
    /// 4 paths without a limit.
    BenchPath(bench::Options),
    /// Measures what one node's sending and receiving sides carry with one thread, two, and so on.
    BenchCores(cores::Options),
    /// Measures the daemon of this workspace beside that of a git revision, which it builds.
    BenchCompare {
        /// The revision.
        revision: String,
        #[command(flatten)]
        options: bench::Options,
    },
    /// Measures the accuracy of the emulator on this machine.
    Calibrate {
        /// Seconds of each of the three measurements.
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        /// Rate of each of the four links, Mbit/s.
        #[arg(long, default_value_t = 100.0)]
        rate: f64,
        /// Writes the result as JSON.
        #[arg(long)]
        json: Option<String>,
    },
    /// Writes the report of a directory with results: `report.html` and `plots/*.svg` in it.
    Report {
        /// The directory.
        directory: PathBuf,
        /// Prints the tables of `docs/results.md` instead.
        #[arg(long)]
        markdown: bool,
    },
    /// Builds the topology of a scenario and starts a shell in a host; prints how to enter the
    /// others. The topology is removed when the shell ends.
    Shell {
        /// Name or file.
        scenario: String,
        /// The host.
        #[arg(long, default_value = "client")]
        host: String,
        /// Starts this system first.
        #[arg(long)]
        system: Option<String>,
        /// Runs this `sh` command instead of a shell.
        #[arg(long)]
        exec: Option<String>,
    },
    /// Builds the programs in Go that senders and systems need, as `run` does when it needs them.
    BuildGo,
    /// Removes what earlier runs left behind.
    Clean,
    #[command(flatten)]
    Worker(worker::Worker),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("mpip-lab: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> std::io::Result<ExitCode> {
    match command {
        Command::Demo(options) => return demo::run(&options),
        Command::DemoPart(part) => demo::part(part)?,
        Command::Thinning(options) => thinning::run(&options)?,
        Command::Ablate(options) => return ablate::run(&options),
        Command::Sweep(options) => return sweep::run(&options),
        Command::Papers(options) => papers::run(&options)?,
        Command::Parameters(options) => parameters::run(&options)?,
        Command::KillMatrix(options) => return kill_matrix::run(&options),
        Command::Calibrate { seconds, rate, json } => return calibrate(seconds, rate, json),
        Command::List => list()?,
        Command::Run {
            scenarios,
            systems,
            repetitions,
            seconds,
            place,
            congestion_control,
            senders,
            links,
            out,
            json,
            pcap,
            again,
            machine,
        } => {
            let scenarios: Vec<_> =
                scenarios.iter().map(|name| scenarios::find(name)).collect::<Result<_, _>>()?;
            let options = run::Options {
                systems,
                repetitions,
                directory: out,
                pcap,
                again,
                allow_busy: machine.allow_busy,
                congestion_control,
                senders,
                longest: seconds.map(Duration::from_secs),
                simulated: place == Place::Sim,
                jobs: NonZeroU32::new(machine.jobs),
                netem: links == Links::Netem,
                ..run::Options::default()
            };
            return run_scenarios(&options.adapt(scenarios), &options, json.as_deref());
        }
        Command::Reproduce { quick, set, systems, links, out, machine } => {
            let set =
                set.unwrap_or_else(|| if quick { "quick" } else { reproduce::FULL }.to_owned());
            let options = run::Options {
                systems,
                repetitions: quick.then_some(1),
                longest: quick.then_some(Duration::from_secs(8)),
                directory: out,
                jobs: NonZeroU32::new(machine.jobs),
                allow_busy: machine.allow_busy,
                netem: links == Links::Netem,
                ..run::Options::default()
            };
            print_table(&reproduce::run(&set, &options)?)?;
            println!("{}", options.directory.join("report.html").display());
        }
        Command::Report { directory, markdown: true } => {
            print!("{}", report::markdown::tables(&directory)?);
        }
        Command::Report { directory, markdown: false } => {
            report::write(&directory)?;
            println!("{}", directory.join("report.html").display());
        }
        Command::Factorial { repetitions, longest, loss, balia, out } => {
            let plan =
                factorial::Plan { numbers: factorial::numbers(repetitions, &loss)?, longest };
            if balia {
                factorial::balia::run(&out, &plan)?;
                print!("{}", factorial::balia::table(&factorial::balia::read(&out)?));
            } else {
                plan.run(&out)?;
                report::write(&out)?;
                println!("{}", out.join("report.html").display());
            }
        }
        Command::Figures {
            cases,
            repetitions,
            seconds,
            systems,
            out,
            baseline,
            congestion_control,
            cells,
            show,
            again,
            markdown,
            machine,
        } => {
            let options = run::Options {
                systems,
                repetitions: Some(repetitions),
                longest: seconds.map(Duration::from_secs),
                directory: out,
                baseline,
                congestion_control,
                again,
                allow_busy: machine.allow_busy,
                jobs: NonZeroU32::new(machine.jobs),
                ..run::Options::default()
            };
            figures::run(&figures::Wanted { cases, show, cells, markdown }, &options)?;
        }
        Command::BenchCores(options) => cores::run(&options)?,
        Command::BenchPath(options) => return Ok(exit_code(bench::paths(&options)?)),
        Command::BenchCompare { revision, options } => {
            return Ok(exit_code(bench::compare(&revision, &options)?));
        }
        Command::Shell { scenario, host, system, exec } => {
            let loaded = scenarios::find(&scenario)?;
            netns::clean_stale()?;
            let _guard = netns::Guard::start()?;
            return shell::run(&loaded, &host, system.as_deref(), exec.as_deref());
        }
        Command::BuildGo => {
            for path in go::build_all()? {
                println!("{}", path.display());
            }
        }
        Command::Clean => {
            for name in netns::clean_stale()? {
                println!("removed {name}");
            }
        }
        Command::Worker(worker) => worker::run(worker)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn calibrate(seconds: f64, rate: f64, json: Option<String>) -> std::io::Result<ExitCode> {
    netns::clean_stale()?;
    let _guard = netns::Guard::start()?;
    let calibration = calibrate::calibrate(rate * 1e6, Duration::from_secs_f64(seconds))?;
    println!("{calibration}");
    if let Some(file) = json {
        std::fs::write(file, serde_json::to_string_pretty(&calibration)?)?;
    }
    let failures = calibration.failures(1.0);
    for failure in &failures {
        println!("  outside its bound: {failure}");
    }
    Ok(exit_code(failures.is_empty()))
}

fn run_scenarios(
    scenarios: &[scenarios::Loaded],
    options: &run::Options,
    json: Option<&Path>,
) -> std::io::Result<ExitCode> {
    let done = run::in_namespaces(scenarios, options)?;
    let summaries = summary::summarise(&done.results);
    print_table(&summaries)?;
    if let Some(file) = json {
        std::fs::write(file, serde_json::to_string_pretty(&summaries)?)?;
    }
    Ok(exit_code(done.missing == 0))
}

fn exit_code(complete: bool) -> ExitCode {
    if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn list() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for loaded in scenarios::all()? {
        let scenario = &loaded.scenario;
        let systems: Vec<&str> = scenario.systems.iter().map(|s| s.name.as_str()).collect();
        writeln!(out, "{:28} {}", loaded.name, scenario.title)?;
        writeln!(
            out,
            "{:28} {}; {} s x {}; sets: {}",
            "",
            systems.join(", "),
            scenario.duration.as_secs(),
            scenario.repetitions,
            scenario.sets.join(", ")
        )?;
    }
    Ok(())
}

fn print_table(summaries: &[summary::Summary]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{:28} {:18} {:>9} {:>7} {:>9} {:>6} {:>9} {:>10}  counting",
        "scenario", "system", "Mbit/s", "sd", "limit", "ratio", "stall ms", "CPU s/Gbit"
    )?;
    for s in summaries {
        let limit = s.limit_bps.map_or("-".to_owned(), |limit| format!("{:.2}", limit / 1e6));
        let ratio = s.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
        // Of the whole machine: the hosts' kernels, the traffic's programs and the links included.
        let cost = s.cpu_seconds_per_gbit.map_or("-".to_owned(), |cost| format!("{cost:.2}"));
        writeln!(
            out,
            "{:28} {:18} {:>9.2} {:>7.2} {:>9} {:>6} {:>9.0} {:>10}  {} of {}",
            s.scenario,
            s.system,
            s.median_bps / 1e6,
            s.deviation_bps / 1e6,
            limit,
            ratio,
            s.longest_stall_ms,
            cost,
            s.counting,
            s.repetitions
        )?;
        for (name, rate) in &s.per_second {
            writeln!(out, "{:28} {:18} {name}: {rate:.0} answers per second", "", "")?;
        }
        for (name, rtt) in &s.rtt_ms {
            writeln!(
                out,
                "{:28} {:18} {name}: round trip mean {:.2} ms, median {:.2} ms, 99th percentile {:.2} ms",
                "", "", rtt.mean, rtt.median, rtt.p99
            )?;
        }
    }
    Ok(())
}
