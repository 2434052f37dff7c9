//! Summaries of results: medians over the repetitions of one system in one scenario.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::environment::Environment;
use crate::flow::by_name;
use crate::results::RunResult;
use crate::statistics::{Statistics, median};

/// File name of the summaries of a set.
pub(crate) const FILE: &str = "summary.json";

/// All repetitions of one system in one scenario.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Summary {
    pub(crate) scenario: String,
    pub(crate) system: String,
    /// Goodput of each repetition, in bit/s.
    pub(crate) goodput_bps: Vec<f64>,
    pub(crate) median_bps: f64,
    /// Standard deviation over the repetitions.
    pub(crate) deviation_bps: f64,
    pub(crate) limit_bps: Option<f64>,
    /// Median divided by the limit.
    pub(crate) ratio: Option<f64>,
    /// Processor time of the whole machine per Gbit of payload, emulator and generators included;
    /// median.
    pub(crate) cpu_seconds_per_gbit: Option<f64>,
    /// Goodput by name of flow, in bit/s, median; includes flows beside the system under test.
    pub(crate) flows_bps: BTreeMap<String, f64>,
    /// Loss and jitter by name of flow, for flows of datagrams, median.
    pub(crate) datagrams: BTreeMap<String, Datagrams>,
    /// Bytes of IP packets delivered by each direction of each link, mean of the repetitions.
    pub(crate) per_path_bytes: BTreeMap<String, f64>,
    /// Longest stall of all repetitions.
    pub(crate) longest_stall_ms: f64,
    /// Round-trip times by name of flow: the median over the repetitions of each statistic.
    pub(crate) rtt_ms: BTreeMap<String, Statistics>,
    /// Answers per second by name of flow, for flows of requests, median.
    pub(crate) per_second: BTreeMap<String, f64>,
    /// Drops on all links by cause, mean of the repetitions.
    pub(crate) drops: BTreeMap<String, f64>,
    /// Number of repetitions.
    pub(crate) repetitions: usize,
    /// Of these, how many count. The figures above are of them alone, if there are any.
    pub(crate) counting: usize,
    /// Whether at least one repetition counts.
    pub(crate) counts: bool,
    /// Why runs did not count.
    pub(crate) invalid: Vec<String>,
    pub(crate) environment: Environment,
}

/// Loss and jitter of a flow of datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Datagrams {
    /// Share of datagrams that were lost, or of round trips that did not complete.
    pub(crate) loss: f64,
    /// Mean difference of the transit or round-trip times of neighbouring datagrams, in ms.
    pub(crate) jitter_ms: f64,
}

/// A summary for each scenario and system, in the order of first appearance. If no repetition
/// counts, the figures are those of all repetitions, and `counts` is false.
pub(crate) fn summarise(results: &[RunResult]) -> Vec<Summary> {
    let mut order: Vec<(String, String)> = Vec::new();
    let mut groups: BTreeMap<(String, String), Vec<&RunResult>> = BTreeMap::new();
    for result in results {
        let key = (result.scenario.clone(), result.system.clone());
        if !groups.contains_key(&key) {
            order.push(key.clone());
        }
        groups.entry(key).or_default().push(result);
    }
    order.iter().map(|key| summary(&groups[key])).collect()
}

fn summary(all: &[&RunResult]) -> Summary {
    let counting: Vec<&RunResult> = all.iter().filter(|r| r.counts()).copied().collect();
    let used = if counting.is_empty() { all } else { counting.as_slice() };
    let goodput: Vec<f64> = used.iter().map(|run| run.goodput_bps).collect();
    let statistics = Statistics::of(&mut goodput.clone());
    let limit = Some(used[0].limit_bps).filter(|limit| *limit > 0.0);
    let cost: Vec<f64> = used
        .iter()
        .filter(|run| run.goodput_bps > 0.0)
        .map(|run| (1.0 - run.cpu_idle) * run.environment.cpus as f64 / (run.goodput_bps / 1e9))
        .collect();
    let mut flows: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut round_trips: BTreeMap<String, Vec<Statistics>> = BTreeMap::new();
    let mut datagrams: BTreeMap<String, Vec<Datagrams>> = BTreeMap::new();
    let mut rates: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut bytes: BTreeMap<String, f64> = BTreeMap::new();
    let mut drops: BTreeMap<String, f64> = BTreeMap::new();
    let share = 1.0 / used.len() as f64;
    for run in used {
        for (name, goodput) in by_name(&run.flows) {
            flows.entry(name).or_default().push(goodput);
        }
        for flow in &run.flows {
            if let (Some(loss), Some(jitter_ms)) = (flow.loss, flow.jitter_ms) {
                let one = Datagrams { loss, jitter_ms };
                datagrams.entry(flow.name.clone()).or_default().push(one);
            }
            if let Some(rate) = flow.per_second {
                rates.entry(flow.name.clone()).or_default().push(rate);
            }
            if let Some(rtt) = flow.rtt_ms {
                round_trips.entry(flow.name.clone()).or_default().push(rtt);
            }
        }
        for direction in &run.emulator.directions {
            let arrow = if direction.forward { "forward" } else { "reverse" };
            *bytes.entry(format!("{} {arrow}", direction.link)).or_default() +=
                direction.counters.delivered_bytes as f64 * share;
            let c = &direction.counters;
            for (cause, count) in [
                ("queue", c.dropped_queue),
                ("codel", c.dropped_codel),
                ("loss", c.dropped_loss),
                ("down", c.dropped_down),
                ("blackhole", c.dropped_blackhole),
                ("too_big", c.dropped_too_big),
            ] {
                *drops.entry(cause.to_owned()).or_default() += count as f64 * share;
            }
        }
    }
    let mut invalid: Vec<String> = all.iter().flat_map(|run| run.invalid.clone()).collect();
    invalid.sort_unstable();
    invalid.dedup();
    Summary {
        scenario: used[0].scenario.clone(),
        system: used[0].system.clone(),
        median_bps: statistics.median,
        deviation_bps: statistics.deviation,
        limit_bps: limit,
        ratio: limit.map(|limit| statistics.median / limit),
        goodput_bps: goodput,
        cpu_seconds_per_gbit: (!cost.is_empty()).then(|| median(&cost)),
        flows_bps: medians(flows),
        per_second: medians(rates),
        datagrams: datagrams
            .into_iter()
            .map(|(name, all)| {
                let of = |figure: fn(&Datagrams) -> f64| {
                    median(&all.iter().map(figure).collect::<Vec<_>>())
                };
                (name, Datagrams { loss: of(|d| d.loss), jitter_ms: of(|d| d.jitter_ms) })
            })
            .collect(),
        per_path_bytes: bytes,
        longest_stall_ms: used.iter().map(|run| run.longest_stall_ms).fold(0.0, f64::max),
        rtt_ms: round_trips.into_iter().map(|(name, all)| (name, middle(&all))).collect(),
        drops,
        repetitions: all.len(),
        counting: counting.len(),
        counts: !counting.is_empty(),
        invalid,
        environment: used[0].environment.clone(),
    }
}

fn medians(values: BTreeMap<String, Vec<f64>>) -> BTreeMap<String, f64> {
    values.into_iter().map(|(name, values)| (name, median(&values))).collect()
}

/// The median of each figure.
fn middle(all: &[Statistics]) -> Statistics {
    let of = |figure: fn(&Statistics) -> f64| median(&all.iter().map(figure).collect::<Vec<_>>());
    Statistics {
        count: of(|s| s.count as f64) as u64,
        mean: of(|s| s.mean),
        deviation: of(|s| s.deviation),
        minimum: of(|s| s.minimum),
        median: of(|s| s.median),
        p95: of(|s| s.p95),
        p99: of(|s| s.p99),
        maximum: of(|s| s.maximum),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::run;

    #[test]
    fn runs_that_do_not_count_are_left_out_of_the_median() {
        let mut bad = run("s", "mptcp", 3, 1.0);
        bad.invalid.push("late".to_owned());
        let runs = [
            run("s", "mptcp", 0, 10.0),
            run("s", "mptcp", 1, 12.0),
            run("s", "mptcp", 2, 11.0),
            bad.clone(),
            run("s", "tcp a", 0, 5.0),
        ];
        let summaries = summarise(&runs);
        assert_eq!(summaries.len(), 2);
        let mptcp = &summaries[0];
        assert_eq!((mptcp.median_bps, mptcp.ratio), (11e6, Some(0.55)));
        assert_eq!((mptcp.repetitions, mptcp.counting, mptcp.counts), (4, 3, true));
        assert_eq!(mptcp.longest_stall_ms, 200.0);
        // Half of two processors at 11 Mbit/s.
        assert!(mptcp.cpu_seconds_per_gbit.is_some_and(|cost| (cost - 1e3 / 11.0).abs() < 1e-9));
        assert!(!summarise(&[bad])[0].counts);
    }
}
