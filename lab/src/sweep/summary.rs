//! Distributions of a sweep's results, and the worst seeds.

use std::fmt::Write as _;

use super::measured::{Measured, SIZES, Short};
use crate::statistics::mean;

/// A figure of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Goodput of bulk by the limit.
    OfLimit,
    /// Goodput of bulk by that of the best path alone.
    OfBest,
    /// Goodput of bulk by that of kernel MPTCP, on kernels.
    OfMptcp,
    /// Latency that bulk adds to a ping, ms.
    Latency,
    /// Time of the short transfer with this index by that on the best path alone.
    Short(usize),
    /// The same of the best path's second measurement: what chance does to the figure above.
    Again(usize),
    /// The same through mpip with no other path: what the tunnel costs.
    Tunnel(usize),
}

impl Measure {
    /// All figures, in the order of the table.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let short = (0..SIZES.len())
            .flat_map(|index| [Self::Short(index), Self::Tunnel(index), Self::Again(index)]);
        [Self::OfLimit, Self::OfBest, Self::OfMptcp, Self::Latency].into_iter().chain(short)
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::OfLimit => "bulk / limit".to_owned(),
            Self::OfBest => "bulk / best path".to_owned(),
            Self::OfMptcp => "bulk / MPTCP".to_owned(),
            Self::Latency => "added latency, ms".to_owned(),
            Self::Short(index) => format!("{} kB, time / best path", SIZES[index] / 1_000),
            Self::Tunnel(index) => format!("{} kB, mpip on best path", SIZES[index] / 1_000),
            Self::Again(index) => format!("{} kB, best path again", SIZES[index] / 1_000),
        }
    }

    /// Whether it only explains another figure.
    pub(crate) fn explains(self) -> bool {
        matches!(self, Self::Again(_) | Self::Tunnel(_))
    }

    /// Whether a larger value is better.
    fn is_better_larger(self) -> bool {
        matches!(self, Self::OfLimit | Self::OfBest | Self::OfMptcp)
    }

    /// Its value; `None` if the result has none.
    fn of(self, result: &Measured) -> Option<f64> {
        let bulk = &result.bulk;
        let of_best = |index: usize, time: fn(&Short) -> Option<f64>| {
            let short = result.short.get(index)?;
            Some(time(short)? / short.best().max(1e-9))
        };
        match self {
            Self::OfLimit => (bulk.limit > 0.0).then(|| bulk.mpip / bulk.limit),
            Self::OfBest => Some(bulk.mpip / bulk.best()),
            Self::OfMptcp => Some(bulk.mpip / bulk.mptcp?.max(1.0)),
            Self::Latency => Some(bulk.ping - bulk.ping_alone),
            Self::Short(index) => of_best(index, |short| Some(short.mpip)),
            Self::Again(index) => of_best(index, |short| short.again),
            Self::Tunnel(index) => of_best(index, |short| short.tunnel),
        }
    }
}

/// The value at `share` (0 to 1) of sorted values, the nearest rank.
pub(crate) fn rank(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((share * last as f64).round() as usize).copied().unwrap_or(f64::NAN)
}

/// The values of a figure for `sender`, sorted, with their seeds.
pub(crate) fn values(results: &[Measured], sender: &str, measure: Measure) -> Vec<(f64, u64)> {
    let of_sender = results.iter().filter(|result| result.sender == sender);
    let mut values: Vec<(f64, u64)> =
        of_sender.filter_map(|result| Some((measure.of(result)?, result.seed))).collect();
    values.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    values
}

/// Shares of the sets in the tables.
pub(crate) const COLUMNS: [(&str, f64); 5] =
    [("least", 0.0), ("5 %", 0.05), ("median", 0.5), ("95 %", 0.95), ("most", 1.0)];
/// Worst seeds to name.
const WORST: usize = 10;

/// The table, then the worst seeds of each sender and how to see why.
pub(super) fn text(results: &[Measured], senders: &[String], markdown: bool) -> String {
    let mut text = table(results, senders, markdown);
    if !markdown {
        text.push_str(&worst(results, senders));
    }
    for result in results.iter().filter(|result| !result.violations.is_empty()) {
        let _ = writeln!(
            text,
            "seed {} {}: {} violated invariants, first: {}",
            result.seed,
            result.sender,
            result.violations.len(),
            result.violations[0]
        );
    }
    text
}

/// The distribution of each figure for each sender.
pub(crate) fn table(results: &[Measured], senders: &[String], markdown: bool) -> String {
    let mut text = String::new();
    let mut heads = COLUMNS.map(|(name, _)| name).to_vec();
    heads.push("mean");
    if markdown {
        let _ = writeln!(text, "| figure | sender | sets | {} |", heads.join(" | "));
        let _ = writeln!(text, "|---|---|{}", "--:|".repeat(heads.len() + 1));
    } else {
        let _ = write!(text, "{:25} {:11} {:>5}", "", "sender", "sets");
        heads.iter().for_each(|head| text.push_str(&format!(" {head:>8}")));
        text.push('\n');
    }
    for measure in Measure::all() {
        for sender in senders {
            let values = values(results, sender, measure);
            let sorted: Vec<f64> = values.iter().map(|(value, _)| *value).collect();
            if sorted.is_empty() {
                continue;
            }
            let digits = if measure == Measure::Latency { 1 } else { 3 };
            let mut figures = COLUMNS.map(|(_, share)| rank(&sorted, share)).to_vec();
            figures.push(mean(&sorted));
            let ranks: Vec<String> =
                figures.iter().map(|figure| format!("{figure:.digits$}")).collect();
            if markdown {
                let (name, ranks) = (measure.name(), ranks.join(" | "));
                let _ = writeln!(text, "| {name} | {sender} | {} | {ranks} |", sorted.len());
            } else {
                let _ = write!(text, "{:25} {sender:11} {:5}", measure.name(), sorted.len());
                ranks.iter().for_each(|rank| text.push_str(&format!(" {rank:>8}")));
                text.push('\n');
            }
        }
    }
    text
}

/// The simulator's name of a sender that is like this one on kernels.
fn simulated(sender: &str) -> String {
    match sender.strip_prefix("tcp-") {
        Some(name) => name.to_owned(),
        None => sender.replace("quinn-", "quic-").replace("quic-go", "quic-hybrid"),
    }
}

fn worst(results: &[Measured], senders: &[String]) -> String {
    let mut text = String::new();
    for measure in Measure::all().filter(|measure| !measure.explains()) {
        for sender in senders {
            let mut values = values(results, sender, measure);
            if !measure.is_better_larger() {
                values.reverse();
            }
            if values.is_empty() {
                continue;
            }
            let _ = writeln!(text, "\nworst of {:?} with {sender}:", measure.name());
            let bytes = match measure {
                Measure::Short(index) => format!(" --bytes {}", SIZES[index]),
                _ => String::new(),
            };
            for (value, seed) in values.iter().take(WORST) {
                let _ = writeln!(
                    text,
                    "  {value:8.3}  mpip-lab sweep --seed {seed} --sender {} --explain{bytes}",
                    simulated(sender)
                );
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::measured::Bulk;
    use super::*;

    fn result(seed: u64, mpip: f64) -> Measured {
        let bulk = Bulk {
            limit: 10.0,
            alone: vec![4.0, 5.0],
            mpip,
            mptcp: None,
            ping_alone: 20.0,
            ping: 25.0,
            ping_lost: 0.0,
        };
        let (again, tunnel) = (Some(1.1), Some(1.3));
        let short = vec![Short { alone: vec![2.0, 1.0], mpip: 1.5, again, tunnel }];
        Measured { seed, sender: "cubic".to_owned(), bulk, short, violations: vec![] }
    }

    #[test]
    fn the_table_has_the_ranks_of_each_figure_and_the_worst_seeds_come_first() {
        let results: Vec<Measured> =
            (0..=20).map(|seed| result(seed, (20 - seed) as f64 / 2.0)).collect();
        let senders = ["cubic".to_owned(), "bbr".to_owned()];
        let table = table(&results, &senders, true);
        assert!(table.contains(
            "| bulk / limit | cubic | 21 | 0.000 | 0.050 | 0.500 | 0.950 | 1.000 | 0.500 |"
        ));
        assert!(
            table.contains("| bulk / best path | cubic | 21 | 0.000 | 0.100 | 1.000 | 1.900 |")
        );
        assert!(table.contains("| added latency, ms | cubic | 21 | 5.0 |"));
        assert!(table.contains("| 20 kB, time / best path | cubic | 21 | 1.500 |"));
        assert!(table.contains("| 20 kB, best path again | cubic | 21 | 1.100 |"));
        assert!(table.contains("| 20 kB, mpip on best path | cubic | 21 | 1.300 |"));
        assert!(!table.contains("bbr") && !table.contains("200 kB"));
        let worst = worst(&results, &senders);
        let first = worst.lines().find(|line| line.contains("--seed")).expect("there is one");
        assert!(first.ends_with("0.000  mpip-lab sweep --seed 20 --sender cubic --explain"));
        let last = worst.lines().last().expect("there is one");
        assert!(last.ends_with(" --sender cubic --explain --bytes 20000"), "{last}");
    }
}
