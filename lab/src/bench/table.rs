//! Tables of the benchmarks.

use std::collections::BTreeSet;

use serde::Serialize;

use super::cases::PAYLOAD;
use crate::columns;
use crate::summary::Summary;

/// The figures of a system in a case: medians of the repetitions. Those that the case does not
/// measure are `None`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) case: String,
    pub(super) system: String,
    /// Payload of TCP connections, Mbit/s.
    pub(super) mbit_per_second: Option<f64>,
    /// Small datagrams that arrive, per second.
    pub(super) packets_per_second: Option<f64>,
    /// Answers of a web server that arrive, per second.
    pub(super) answers_per_second: Option<f64>,
    /// Processor time of the whole machine, seconds per Gbit of payload.
    pub(super) cpu_seconds_per_gbit: Option<f64>,
    /// Round trip, or the time of an answer, ms: median.
    pub(super) round_trip_ms: Option<f64>,
    /// The same: 99th percentile.
    pub(super) round_trip_p99_ms: Option<f64>,
    /// Repetitions that count.
    pub(super) repetitions: usize,
}

impl Row {
    /// The figures of `system`, whose results are `summary`.
    pub(super) fn of(summary: &Summary, system: &str) -> Self {
        let flow = |name: &str| summary.flows_bps.get(name).copied();
        let tcp = flow("tcp");
        let datagrams = flow("udp");
        let answers = summary.per_second.get("web").copied();
        let cost = summary.cpu_seconds_per_gbit;
        let round_trip = summary.rtt_ms.get("voip").or(summary.rtt_ms.get("web"));
        Self {
            case: summary.scenario.clone(),
            system: system.to_owned(),
            mbit_per_second: tcp.map(|bps| bps / 1e6),
            packets_per_second: datagrams.map(|bps| bps / (8.0 * f64::from(PAYLOAD))),
            answers_per_second: answers,
            cpu_seconds_per_gbit: cost.filter(|_| tcp.or(datagrams).or(answers).is_some()),
            round_trip_ms: round_trip.map(|rtt| rtt.median),
            round_trip_p99_ms: round_trip.map(|rtt| rtt.p99),
            repetitions: summary.counting,
        }
    }

    /// The figures with their names and number of decimals.
    fn figures(&self) -> [(&'static str, usize, Option<f64>); 6] {
        [
            ("Mbit/s", 0, self.mbit_per_second),
            ("packets/s", 0, self.packets_per_second),
            ("answers/s", 0, self.answers_per_second),
            ("CPU s/Gbit", 2, self.cpu_seconds_per_gbit),
            ("RTT ms", 2, self.round_trip_ms),
            ("RTT p99 ms", 2, self.round_trip_p99_ms),
        ]
    }
}

fn cell(decimals: usize, figure: Option<f64>) -> String {
    figure.map_or("-".to_owned(), |figure| format!("{figure:.decimals$}"))
}

/// A line for each row.
pub(super) fn rows(rows: &[Row]) -> String {
    let head = [
        "case",
        "system",
        "Mbit/s",
        "packets/s",
        "answers/s",
        "CPU s/Gbit",
        "RTT ms",
        "RTT p99",
        "runs",
    ];
    let mut lines = vec![head.map(str::to_owned)];
    for row in rows {
        let [tcp, packets, answers, cost, median, p99] =
            row.figures().map(|(_, decimals, figure)| cell(decimals, figure));
        let (case, system, runs) =
            (row.case.clone(), row.system.clone(), row.repetitions.to_string());
        lines.push([case, system, tcp, packets, answers, cost, median, p99, runs]);
    }
    columns::aligned(&lines)
}

/// A figure of two daemons in the same case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Pair {
    pub(super) case: String,
    pub(super) encapsulation: String,
    pub(super) figure: &'static str,
    #[serde(skip)]
    decimals: usize,
    pub(super) old: Option<f64>,
    pub(super) new: Option<f64>,
    /// New divided by old.
    pub(super) ratio: Option<f64>,
}

/// Every figure of the systems `old ENCAPSULATION` beside that of `new ENCAPSULATION`.
pub(super) fn pairs(rows: &[Row]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let mut seen = BTreeSet::new();
    for row in rows {
        let Some((_, encapsulation)) = row.system.split_once(' ') else { continue };
        if !seen.insert((&row.case, encapsulation)) {
            continue;
        }
        let of = |age: &str| {
            let system = format!("{age} {encapsulation}");
            rows.iter().find(|other| other.case == row.case && other.system == system)
        };
        let (old, new) = (of("old").map(Row::figures), of("new").map(Row::figures));
        for (index, (figure, decimals, _)) in row.figures().into_iter().enumerate() {
            let old = old.and_then(|figures| figures[index].2);
            let new = new.and_then(|figures| figures[index].2);
            if old.or(new).is_none() {
                continue;
            }
            let ratio = old.zip(new).filter(|(old, _)| *old > 0.0).map(|(old, new)| new / old);
            let (case, encapsulation) = (row.case.clone(), encapsulation.to_owned());
            pairs.push(Pair { case, encapsulation, figure, decimals, old, new, ratio });
        }
    }
    pairs
}

/// A line for each pair.
pub(super) fn compared(pairs: &[Pair], revision: &str) -> String {
    let head = ["case", "by", "figure", revision, "working tree", "ratio"];
    let mut lines = vec![head.map(str::to_owned)];
    for pair in pairs {
        lines.push([
            pair.case.clone(),
            pair.encapsulation.clone(),
            pair.figure.to_owned(),
            cell(pair.decimals, pair.old),
            cell(pair.decimals, pair.new),
            cell(3, pair.ratio),
        ]);
    }
    columns::aligned(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::FlowResult;
    use crate::results::tests::run;
    use crate::statistics::Statistics;
    use crate::summary::summarise;

    fn row(system: &str, kind: &str, mbps: f64) -> Row {
        let mut result = run("1 path", system, 0, mbps);
        let rtt = Statistics { median: 0.25, p99: 1.5, ..Statistics::default() };
        result.flows = vec![
            FlowResult { name: kind.into(), goodput_bps: mbps * 1e6, ..FlowResult::default() },
            FlowResult { name: "voip".into(), rtt_ms: Some(rtt), ..FlowResult::default() },
        ];
        Row::of(&summarise(&[result])[0], system)
    }

    #[test]
    fn a_row_has_the_figures_that_its_case_measures() {
        let tcp = row("plain", "tcp", 100.0);
        // Half of two processors at 0.1 Gbit/s.
        let text = "case    system  Mbit/s  packets/s  answers/s  CPU s/Gbit  RTT ms  RTT p99  runs\n\
                    1 path  plain   100     -          -          10.00       0.25    1.50     1\n";
        assert_eq!(rows(&[tcp]), text);
        let packets = row("mpip udp", "udp", 51.2);
        assert_eq!((packets.mbit_per_second, packets.packets_per_second), (None, Some(100_000.0)));
        let idle = row("mpip udp", "none", 0.0);
        assert_eq!((idle.cpu_seconds_per_gbit, idle.round_trip_p99_ms), (None, Some(1.5)));
    }

    #[test]
    fn a_ratio_is_that_of_the_new_daemon_to_the_old_with_the_same_encapsulation() {
        let all = [
            row("old udp", "tcp", 100.0),
            row("new udp", "tcp", 150.0),
            row("new tcp", "tcp", 50.0),
        ];
        let pairs = pairs(&all);
        let find = |by: &str| pairs.iter().find(|p| p.encapsulation == by && p.figure == "Mbit/s");
        let udp = find("udp").expect("there");
        assert_eq!((udp.old, udp.new, udp.ratio), (Some(100.0), Some(150.0), Some(1.5)));
        let tcp = find("tcp").expect("there");
        assert_eq!((tcp.old, tcp.new, tcp.ratio), (None, Some(50.0), None));
        let text = compared(&pairs, "v1");
        assert!(text.contains("1 path  udp  Mbit/s      100    150           1.500"), "{text}");
        assert!(text.contains("1 path  tcp  Mbit/s      -      50            -"), "{text}");
    }

    #[test]
    fn a_figure_of_zero_has_no_ratio() {
        let pairs = pairs(&[row("old udp", "udp", 0.0), row("new udp", "udp", 50.0)]);
        assert!(pairs.iter().any(|p| p.figure == "packets/s" && p.ratio.is_none()));
    }
}
