//! `mpip-lab bench-path` and `bench-compare`: throughput, small packets, processor time and round
//! trips over paths without a limit, so that the processors are the limit.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::environment::{self, Environment};
use crate::scenarios::Loaded;
use crate::subject::subjects;
use crate::summary::summarise;
use crate::{go, run, web};
use cases::{Load, System, case};
use table::{Pair, Row};

mod cases;
mod revision;
mod table;

/// Why a system is not measured.
type Skipped = (&'static str, String);

/// How long and where.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Repetitions of each run.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Seconds of each run under load.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Directory of the results.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

/// The outcome of `bench-path`, as JSON.
#[derive(Debug, Serialize)]
struct Paths {
    environment: Environment,
    seconds: u64,
    rows: Vec<Row>,
    skipped: Vec<Skipped>,
    missing: BTreeSet<String>,
}

/// The outcome of `bench-compare`, as JSON.
#[derive(Debug, Serialize)]
struct Compared {
    environment: Environment,
    seconds: u64,
    /// Commit of the old daemon.
    old: String,
    rows: Vec<Row>,
    pairs: Vec<Pair>,
    missing: BTreeSet<String>,
}

/// Those of the systems that are not always there.
struct Available {
    mptcp: Result<(), String>,
    wireguard: Result<(), String>,
    /// nginx and wrk.
    web: Result<(), String>,
}

impl Available {
    fn here() -> Self {
        let mptcp =
            environment::has_mptcp().then_some(()).ok_or("the kernel has no MPTCP".to_owned());
        let wireguard = go::program("wireguard-go").map(drop).map_err(|error| error.to_string());
        Self { mptcp, wireguard, web: web::programs() }
    }

    fn skipped(&self) -> Vec<Skipped> {
        [("mptcp", &self.mptcp), ("wireguard-go", &self.wireguard), ("answers", &self.web)]
            .into_iter()
            .filter_map(|(name, there)| Some((name, there.clone().err()?)))
            .collect()
    }

    /// All cases. Plain IP, the floor and wireguard-go have one path; MPTCP carries TCP only.
    fn cases(&self, seconds: u64) -> io::Result<Vec<Loaded>> {
        let mut all = Vec::new();
        for paths in [1, 2, 4, 8] {
            for load in [Load::Idle, Load::Streams(1), Load::Streams(8), Load::Packets] {
                let mut systems = Vec::new();
                if paths == 1 {
                    systems.push(System::of_kind("plain", "tcp"));
                }
                if self.mptcp.is_ok() && matches!(load, Load::Streams(_)) {
                    systems.push(System::of_kind("mptcp", "mptcp"));
                }
                systems.push(System::mpip("mpip udp", "udp", None));
                systems.push(System::mpip("mpip tcp", "tcp", None));
                if paths == 1 && self.wireguard.is_ok() {
                    systems.push(System::of_kind("wireguard-go", "wireguard-go"));
                }
                all.push(case(paths, load, &systems, seconds)?);
            }
        }
        if self.web.is_ok() {
            let mpip = System::mpip("mpip udp", "udp", None);
            let mut systems = vec![System::of_kind("plain", "tcp"), System::floor(), mpip];
            if self.wireguard.is_ok() {
                systems.push(System::of_kind("wireguard-go", "wireguard-go"));
            }
            for load in [Load::Answers, Load::Connections] {
                all.push(case(1, load, &systems, seconds)?);
            }
        }
        Ok(all)
    }
}

/// Measures the cases, all anew and in alternation. Returns a row for each case and system, and
/// which of them have none.
fn measure(cases: &[Loaded], options: &Options) -> io::Result<(Vec<Row>, BTreeSet<String>)> {
    let options = run::Options {
        repetitions: Some(options.repetitions),
        directory: options.out.clone(),
        again: true,
        allow_busy: true,
        netem: true,
        ..run::Options::default()
    };
    run::announce(cases, &options)?;
    let done = run::in_namespaces(cases, &options)?;
    let summaries = summarise(&done.results);
    let (mut rows, mut missing) = (Vec::new(), BTreeSet::new());
    for loaded in cases {
        for subject in subjects(&loaded.scenario) {
            let (name, system) = (subject.name + run::NETEM, &subject.system.name);
            match summaries.iter().find(|s| s.scenario == loaded.name && s.system == name) {
                Some(summary) => rows.push(Row::of(summary, system)),
                None => drop(missing.insert(format!("{}, {system}", loaded.name))),
            }
        }
    }
    Ok((rows, missing))
}

fn write(file: &Path, outcome: &impl Serialize) -> io::Result<()> {
    std::fs::write(file, serde_json::to_string_pretty(outcome)?)?;
    println!("{}", file.display());
    Ok(())
}

/// Lines about what was not measured.
fn not_measured(skipped: &[Skipped], missing: &BTreeSet<String>) -> String {
    let skipped = skipped.iter().map(|(name, reason)| format!("skipped: {name}: {reason}\n"));
    skipped.chain(missing.iter().map(|name| format!("no result: {name}\n"))).collect()
}

/// Measures mpip beside other systems and prints the table; returns whether every run had a result.
///
/// # Errors
/// Namespaces cannot be made, or results cannot be written.
pub(crate) fn paths(options: &Options) -> io::Result<bool> {
    let available = Available::here();
    let skipped = available.skipped();
    let (rows, missing) = measure(&available.cases(options.seconds)?, options)?;
    print!("{}{}", table::rows(&rows), not_measured(&skipped, &missing));
    let complete = missing.is_empty();
    let (environment, seconds) = (Environment::here(), options.seconds);
    let outcome = Paths { environment, seconds, rows, skipped, missing };
    write(&options.out.join("path.json"), &outcome)?;
    Ok(complete)
}

/// Measures the daemon of this workspace beside that of a revision and prints medians and ratios;
/// returns whether every run had a result.
///
/// # Errors
/// As [`paths`]; there is no such revision, or it does not build.
pub(crate) fn compare(revision: &str, options: &Options) -> io::Result<bool> {
    let repository = environment::repository();
    let directory = repository.join("target/bench-compare");
    let (program, old) = revision::daemon(repository, revision, &directory)?;
    let systems = [
        System::mpip("old udp", "udp", Some(&program)),
        System::mpip("new udp", "udp", None),
        System::mpip("old tcp", "tcp", Some(&program)),
        System::mpip("new tcp", "tcp", None),
    ];
    let cases = [(1, Load::Streams(1)), (1, Load::Packets), (2, Load::Streams(8))]
        .into_iter()
        .map(|(paths, load)| case(paths, load, &systems, options.seconds))
        .collect::<io::Result<Vec<_>>>()?;
    let (rows, missing) = measure(&cases, options)?;
    let pairs = table::pairs(&rows);
    print!("{}{}", table::compared(&pairs, revision), not_measured(&[], &missing));
    let complete = missing.is_empty();
    let (environment, seconds) = (Environment::here(), options.seconds);
    let outcome = Compared { environment, seconds, old, rows, pairs, missing };
    write(&options.out.join("compare.json"), &outcome)?;
    Ok(complete)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_that_are_not_there_are_skipped_with_the_reason() {
        let (wireguard, web) = (Err("no Go".to_owned()), Err("no wrk".to_owned()));
        let without = Available { mptcp: Ok(()), wireguard, web };
        let cases = without.cases(3).expect("valid");
        assert_eq!(cases.len(), 16);
        let has = |name: &str| {
            cases.iter().any(|c| c.scenario.systems.iter().any(|system| system.name == name))
        };
        assert!(has("mptcp") && has("plain") && !has("wireguard-go"));
        let missing = BTreeSet::from(["1 path, idle, mpip tcp".to_owned()]);
        assert_eq!(
            not_measured(&without.skipped(), &missing),
            "skipped: wireguard-go: no Go\nskipped: answers: no wrk\nno result: 1 path, idle, mpip tcp\n"
        );
    }

    #[test]
    fn plain_ip_is_one_row_of_the_cases_with_one_path() {
        let all = Available { mptcp: Err("none".to_owned()), wireguard: Ok(()), web: Ok(()) };
        for loaded in all.cases(3).expect("valid") {
            let plain = subjects(&loaded.scenario);
            let plain = plain.iter().filter(|subject| subject.system.name == "plain").count();
            assert_eq!(plain, usize::from(loaded.scenario.links.len() == 1), "{}", loaded.name);
        }
    }
}
