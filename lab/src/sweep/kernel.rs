//! The sets of the sweep on real kernels: `run` measures and stores their scenarios, so it can be
//! interrupted and resumed.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::path::Path;
use std::str::FromStr;

use mpip_sim::clock::SECOND;

use super::distribution::{END, FROM, Set};
use super::measured::{Bulk, LONGEST, Measured, QUIC_PAYLOAD, SIZES, Short};
use super::scenario::{self, BEFORE, BESIDE, BULK, NAMES, short_name};
use crate::flow::FlowResult;
use crate::results::RunResult;
use crate::run;
use crate::scenarios::Loaded;
use crate::sender::Sender;
use crate::statistics::Statistics;

/// Sets whose links carry more than this together, bit/s, are left out: emulator, senders and
/// daemons share the processors of one machine, and above it the emulator is late.
const MOST: f64 = 250e6;
/// Payload of full TCP segments, which have timestamps here, beside that of the simulator's limit.
const TCP_PAYLOAD: f64 = 1_448.0 / 1_460.0;
/// The time of a short transfer that did not end, seconds.
const GIVEN_UP: f64 = LONGEST as f64 / SECOND as f64;

/// The senders that are measured by default.
pub(super) const SENDERS: [&str; 5] =
    ["tcp-cubic", "tcp-bbr", "quinn-cubic", "quinn-bbr", "quic-go"];

/// What to run, and how.
pub(super) struct Plan {
    pub(super) run: run::Options,
    /// Whether to use only what is stored.
    pub(super) show: bool,
    /// Whether to measure short transfers, too. They are TCP's.
    pub(super) short: bool,
}

/// A sender over a set.
struct Case<'a> {
    set: &'a Set,
    sender: Sender,
    bulk: Loaded,
    short: Option<Loaded>,
}

/// Runs what has no result yet, and returns all results of `seeds`.
pub(super) fn measure(
    seeds: impl Iterator<Item = u64>,
    senders: &[String],
    plan: &Plan,
) -> io::Result<Vec<Measured>> {
    let senders = senders
        .iter()
        .map(|name| Sender::from_str(name).map_err(io::Error::other))
        .collect::<io::Result<Vec<_>>>()?;
    let (sets, large): (Vec<Set>, Vec<Set>) =
        seeds.map(Set::draw).partition(|set| rate(set) <= MOST);
    if !large.is_empty() {
        let (count, most) = (large.len(), MOST / 1e6);
        eprintln!("{count} sets of more than {most:.0} Mbit/s are left out on kernels");
    }
    let mut cases = Vec::new();
    for set in &sets {
        let (bulk, short) = (scenario::bulk(set)?, scenario::short(&set.quiet())?);
        for sender in &senders {
            let short = (plan.short && !sender.is_quic()).then(|| sender.replace(short.clone()));
            cases.push(Case { set, sender: *sender, bulk: sender.replace(bulk.clone()), short });
        }
    }
    let both = |case: &Case<'_>| [Some(case.bulk.clone()), case.short.clone()];
    let scenarios: Vec<Loaded> = cases.iter().flat_map(both).flatten().collect();
    let results = if plan.show {
        run::stored(&scenarios, &plan.run)?
    } else {
        run::announce(&scenarios, &plan.run)?;
        run::in_namespaces(&scenarios, &plan.run)?.results
    };
    let mut of: BTreeMap<&str, Vec<&RunResult>> = BTreeMap::new();
    for result in results.iter().filter(|result| result.counts()) {
        of.entry(&result.scenario).or_default().push(result);
    }
    let runs = |loaded: &Loaded| of.get(loaded.name.as_str()).map_or(&[][..], Vec::as_slice);
    let measured = cases.iter().filter_map(|case| {
        let short = case.short.as_ref().and_then(|short| shorts(case.set.paths.len(), runs(short)));
        let bulk = measured(case.set, case.sender, runs(&case.bulk))?;
        Some(Measured { short: short.unwrap_or_default(), ..bulk })
    });
    Ok(measured.collect())
}

/// The rate of all links forward, at most, bit/s.
fn rate(set: &Set) -> f64 {
    set.widest().iter().filter_map(|(forward, _)| forward.mean_rate()).sum()
}

/// The result of a set, if every system that it needs has one that counts.
fn measured(set: &Set, sender: Sender, runs: &[&RunResult]) -> Option<Measured> {
    let payload = if sender.is_quic() { QUIC_PAYLOAD } else { TCP_PAYLOAD };
    let alone = alone(set.paths.len(), runs)?;
    let mpip = of("mpip", runs)?;
    let least =
        |name| alone.iter().filter_map(|run| round_trip(run, name)).fold(f64::MAX, f64::min);
    let ping_alone = least(BEFORE);
    Some(Measured {
        seed: set.seed,
        sender: sender.to_string(),
        bulk: Bulk {
            limit: set.bulk_limit() * payload,
            alone: alone.iter().map(|run| goodput(run)).collect(),
            mpip: goodput(mpip),
            // A connection that fails because its first path is not there yet says nothing.
            mptcp: of("mptcp", runs).filter(|run| !has_failed(run)).map(goodput),
            ping_alone: if ping_alone == f64::MAX { 0.0 } else { ping_alone },
            ping: round_trip(mpip, BESIDE).unwrap_or(END as f64 / 1e6),
            ping_lost: flow(mpip, BESIDE).and_then(|flow| flow.loss).unwrap_or(1.0),
        },
        short: Vec::new(),
        violations: Vec::new(),
    })
}

fn of<'a>(system: &str, runs: &[&'a RunResult]) -> Option<&'a RunResult> {
    runs.iter().find(|run| run.system == system).copied()
}

/// The runs of plain IP over each path.
fn alone<'a>(paths: usize, runs: &[&'a RunResult]) -> Option<Vec<&'a RunResult>> {
    NAMES.iter().take(paths).map(|name| of(&format!("tcp {name}"), runs)).collect()
}

/// The median time of the transfers of each of [`SIZES`], if every system has runs that count.
fn shorts(paths: usize, runs: &[&RunResult]) -> Option<Vec<Short>> {
    let (alone, mpip) = (alone(paths, runs)?, of("mpip", runs)?);
    let time = |run: &RunResult, size: u64| {
        let times: Option<Statistics> = flow(run, &short_name(size)).and_then(|flow| flow.rtt_ms);
        times.filter(|times| times.count > 0).map_or(GIVEN_UP, |times| times.median / 1e3)
    };
    let each = |size| Short {
        alone: alone.iter().map(|run| time(run, size)).collect(),
        mpip: time(mpip, size),
        again: None,
        tunnel: None,
    };
    Some(SIZES.map(each).to_vec())
}

fn flow<'a>(run: &'a RunResult, name: &str) -> Option<&'a FlowResult> {
    run.flows.iter().find(|flow| flow.name == name)
}

/// The 95th percentile of the round trips of a flow, ms; `None` if most were not answered.
fn round_trip(run: &RunResult, name: &str) -> Option<f64> {
    let flow = flow(run, name)?;
    flow.rtt_ms.filter(|_| flow.loss.is_some_and(|loss| loss < 0.5)).map(|rtt| rtt.p95)
}

fn has_failed(run: &RunResult) -> bool {
    flow(run, BULK).is_none_or(|flow| flow.error.is_some())
}

/// Of bulk, from [`FROM`] to [`END`], bit/s.
fn goodput(run: &RunResult) -> f64 {
    let interval = SECOND / 10;
    let (from, until) = ((FROM / interval) as usize, (END / interval) as usize);
    let rates = flow(run, BULK).map_or(&[][..], |flow| &flow.intervals_bps);
    let counted = rates.iter().take(until).skip(from);
    counted.sum::<f64>() / (until - from) as f64
}

/// For [`Plan`]. The runs of a sweep have a directory of their own in `directory`.
pub(super) fn options(
    directory: &Path,
    jobs: Option<NonZeroU32>,
    allow_busy: bool,
) -> run::Options {
    run::Options {
        directory: directory.join("sweep-kernel"),
        jobs,
        allow_busy,
        ..run::Options::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::run;

    #[test]
    fn short_transfers_have_the_median_time_of_those_that_ended() {
        let median = |median: f64| {
            let rtt_ms = Statistics::of(&mut [median - 1.0, median, median + 1.0]);
            let name = short_name(SIZES[0]);
            FlowResult { name, rtt_ms: Some(rtt_ms), ..FlowResult::default() }
        };
        let runs = [("tcp a", 200.0), ("tcp b", 90.0), ("mpip", 80.0)].map(|(system, time)| {
            RunResult { flows: vec![median(time)], ..run("sweep", system, 0, 0.0) }
        });
        let result = shorts(2, &runs.each_ref()).expect("complete");
        assert_eq!((result[0].best(), result[0].mpip), (0.09, 0.08));
        assert_eq!((result[2].best(), result[2].mpip), (GIVEN_UP, GIVEN_UP));
        assert_eq!(shorts(3, &runs.each_ref()), None);
    }

    #[test]
    fn a_set_counts_when_all_its_runs_do() {
        let set = (0..).map(Set::draw).find(|set| set.paths.len() == 2).expect("most have two");
        let mut runs: Vec<RunResult> = ["tcp a", "tcp b", "mpip"]
            .into_iter()
            .map(|system| {
                let mut run = run("sweep", system, 0, 0.0);
                let bulk = FlowResult { intervals_bps: vec![7e6; 120], ..FlowResult::default() };
                run.flows = vec![FlowResult { name: "bulk".to_owned(), ..bulk }];
                run
            })
            .collect();
        runs[2].flows[0].intervals_bps[..40].fill(0.0);
        let sender: Sender = "quic-go".parse().expect("known");
        let all: Vec<&RunResult> = runs.iter().collect();
        let result = measured(&set, sender, &all).expect("complete");
        assert_eq!((result.bulk.alone, result.bulk.mptcp), (vec![7e6, 7e6], None));
        assert!((result.bulk.mpip - 7e6).abs() < 1.0, "the first 4 s do not count");
        assert_eq!(measured(&set, sender, &all[1..]), None);
    }
}
