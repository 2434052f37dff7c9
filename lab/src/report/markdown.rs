//! The tables of `docs/results.md`, from a directory with results.

use std::fmt::Write;
use std::io;
use std::path::Path;

use super::SYSTEMS;
use super::benefit::{GROUP_COLUMNS, NETWORKS, group_row, groups, whole};
use super::plot::label;
use crate::factorial;
use crate::published::{Measure, Published, published};
use crate::results::Store;
use crate::summary::{Summary, summarise};

/// All tables.
///
/// # Errors
/// The results cannot be read.
pub(crate) fn tables(directory: &Path) -> io::Result<String> {
    let store = Store::open(directory)?;
    let summaries = summarise(store.results());
    let mut text = goodput(&summaries, &published());
    text += &others(&summaries);
    text += &stalls(&summaries);
    text += &round_trips(&summaries);
    text += &cells(&factorial::read(directory)?);
    Ok(text)
}

fn names(summaries: &[Summary]) -> Vec<&str> {
    let mut names: Vec<&str> = summaries.iter().map(|s| s.scenario.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn find<'a>(summaries: &'a [Summary], scenario: &str, system: &str) -> Option<&'a Summary> {
    summaries.iter().find(|s| s.scenario == scenario && s.system == system)
}

/// A figure of a run; in parentheses where no run counts.
fn cell(summary: Option<&Summary>, figure: impl Fn(&Summary) -> Option<String>) -> String {
    match summary.and_then(|s| Some((s, figure(s)?))) {
        Some((s, text)) if s.counts => text,
        Some((_, text)) => format!("({text})"),
        None => "–".to_owned(),
    }
}

fn mbps(summary: Option<&Summary>) -> String {
    cell(summary, |s| (s.median_bps > 0.0).then(|| format!("{:.1}", s.median_bps / 1e6)))
}

fn ratio(summary: Option<&Summary>) -> String {
    cell(summary, |s| s.ratio.map(|ratio| format!("{ratio:.2}")))
}

/// Goodput of each scenario, with the published figures in the order of the columns.
fn goodput(summaries: &[Summary], published: &[Published]) -> String {
    let mut text = format!(
        "| scenario | {} | limit | ratio mptcp | ratio mpip | published: {} |\n|{}\n",
        SYSTEMS.join(" | "),
        SYSTEMS.join(", "),
        "---|".repeat(SYSTEMS.len() + 5)
    );
    for name in names(summaries) {
        let of = SYSTEMS.map(|system| find(summaries, name, system));
        let Some(limit) = of.iter().flatten().filter_map(|s| s.limit_bps).reduce(f64::max) else {
            continue;
        };
        let figures = SYSTEMS.map(|system| {
            let own = published.iter().find_map(|p| {
                let of_it = p.scenario == name && p.system == system;
                let of_it = of_it && matches!(p.measure, Measure::Goodput | Measure::Gain);
                p.value.filter(|_| of_it).map(|value| (value, p.measure))
            });
            own.map_or("–".to_owned(), |(value, measure)| match measure {
                Measure::Goodput => label(value),
                other => format!("{} {}", label(value), other.name()),
            })
        });
        let none = figures.iter().all(|figure| figure == "–");
        let _ = writeln!(
            text,
            "| `{name}` | {} | {:.1} | {} | {} | {} |",
            of.map(mbps).join(" | "),
            limit / 1e6,
            ratio(of[2]),
            ratio(of[3]),
            if none { String::new() } else { figures.join(", ") }
        );
    }
    text
}

/// Variants of systems.
fn others(summaries: &[Summary]) -> String {
    let mut text = String::from("\n| scenario | system | Mbit/s | ratio |\n|---|---|---|---|\n");
    for name in names(summaries) {
        let rest = |s: &&Summary| {
            s.scenario == name && !SYSTEMS.contains(&s.system.as_str()) && s.median_bps > 0.0
        };
        for summary in summaries.iter().filter(rest) {
            let (mbps, ratio) = (mbps(Some(summary)), ratio(Some(summary)));
            let _ = writeln!(text, "| `{name}` | {} | {mbps} | {ratio} |", summary.system);
        }
    }
    text
}

/// Longest stalls, where links change or middleboxes forget.
fn stalls(summaries: &[Summary]) -> String {
    let mut text = String::from(
        "\n| longest stall, ms | mptcp | mpip | mpip host | mpip+mptcp |\n|---|---|---|---|---|\n",
    );
    for name in names(summaries) {
        if !["cut-", "dynamic-", "nat-"].iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let of = ["mptcp", "mpip", "mpip host", "mpip+mptcp"].map(|system| {
            let stall = |s: &Summary| Some(format!("{:.0}", s.longest_stall_ms));
            cell(find(summaries, name, system), stall)
        });
        let _ = writeln!(text, "| `{name}` | {} |", of.join(" | "));
    }
    text
}

fn round_trips(summaries: &[Summary]) -> String {
    let mut text = String::from(
        "\n| round trips | system | flow | mean, ms | median | 99th percentile | lost, % |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for s in summaries {
        for (flow, rtt) in &s.rtt_ms {
            let lost = s
                .datagrams
                .get(flow)
                .map_or("–".to_owned(), |datagrams| format!("{:.2}", datagrams.loss * 100.0));
            let _ = writeln!(
                text,
                "| `{}` | {} | {flow} | {:.2} | {:.2} | {:.2} | {lost} |",
                s.scenario, s.system, rtt.mean, rtt.median, rtt.p99
            );
        }
    }
    text
}

fn cells(results: &[factorial::CellResult]) -> String {
    if results.is_empty() {
        return String::new();
    }
    let mut rows: Vec<Vec<String>> = vec![GROUP_COLUMNS.map(str::to_owned).into()];
    for (lossy, network) in NETWORKS {
        rows.extend(groups(results, lossy).iter().map(|group| group_row(network, group).into()));
    }
    table(&rows) + &table(&whole(results))
}

/// Rows as a table, the first of them its head.
fn table(rows: &[Vec<String>]) -> String {
    let mut text = String::from("\n");
    for (number, row) in rows.iter().enumerate() {
        let _ = writeln!(text, "| {} |", row.join(" | "));
        if number == 0 {
            let _ = writeln!(text, "|{}", "---|".repeat(row.len()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::run;

    #[test]
    fn a_scenario_has_a_row_with_what_was_published() {
        let runs = [
            run("mhip-05", "tcp a", 0, 7.3),
            run("mhip-05", "mpip", 0, 12.74),
            run("x", "v", 0, 1.0),
        ];
        let summaries = summarise(&runs);
        let text = goodput(&summaries, &published());
        let row =
            "| `mhip-05` | 7.3 | – | – | 12.7 | – | – | 20.0 | – | 0.64 | 7, 7, 4.5, 9.2, –, – |";
        assert!(text.lines().any(|line| line == row), "{text}");
        assert!(others(&summaries).ends_with("| `x` | v | 1.0 | 0.05 |\n"));
    }
}
