//! The table of an ablation.

use std::fmt::Write as _;
use std::io;

use super::cases::Case;
use super::outcome::Outcome;
use crate::columns;

/// A change of goodput by less of the limit is none.
const CHANGE: f64 = 0.01;
/// Below this share of what the best path carries alone a transfer is harmed.
const HARMED: f64 = 0.95;

/// A row: the cases with a mechanism switched off.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    name: String,
    median: f64,
    tenth: f64,
    worst: f64,
    /// Cases below the best single path.
    harmed: usize,
    /// Cases with less, and with more, goodput than with everything on.
    less: usize,
    more: usize,
    /// Mean change as a share of the limit, and its standard error. The ratio of two goodputs would
    /// weigh those most that are near zero.
    mean: (f64, f64),
    /// The largest loss and gain by switching it off, with the case.
    loss: (f64, usize),
    gain: (f64, usize),
}

impl Row {
    /// The row of `outcomes` beside those with everything on; neither is empty.
    pub(super) fn of(name: &str, on: &[Outcome], outcomes: &[Outcome]) -> Self {
        let mut shares: Vec<f64> = outcomes.iter().map(|outcome| outcome.share).collect();
        let changes: Vec<f64> =
            on.iter().zip(outcomes).map(|(on, off)| off.share - on.share).collect();
        let count = changes.len().max(1) as f64;
        let mean = changes.iter().sum::<f64>() / count;
        let squares: f64 = changes.iter().map(|change| (change - mean).powi(2)).sum();
        let indexed = || changes.iter().copied().zip(0..);
        shares.sort_by(f64::total_cmp);
        let rank = |share: f64| {
            let at = (share * shares.len() as f64) as usize;
            shares.get(at).copied().unwrap_or(0.0)
        };
        Self {
            name: name.to_owned(),
            median: rank(0.5),
            tenth: rank(0.1),
            worst: rank(0.0),
            harmed: outcomes.iter().filter(|outcome| outcome.of_best < HARMED).count(),
            less: changes.iter().filter(|change| **change < -CHANGE).count(),
            more: changes.iter().filter(|change| **change > CHANGE).count(),
            mean: (mean, (squares / count).sqrt() / count.sqrt()),
            loss: indexed().min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, 0)),
            gain: indexed().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, 0)),
        }
    }
}

const HEAD: [&str; 10] = [
    "switched off",
    "median",
    "10 %",
    "worst",
    "below best path",
    "less",
    "more",
    "mean change",
    "largest loss",
    "largest gain",
];

fn cells(row: &Row, cases: &[Case]) -> [String; 10] {
    let at = |(change, case): (f64, usize)| match cases.get(case) {
        Some(case) if change.abs() > CHANGE => format!("{change:+.3} ({})", case.name),
        _ => "-".to_owned(),
    };
    [
        row.name.clone(),
        format!("{:.3}", row.median),
        format!("{:.3}", row.tenth),
        format!("{:.3}", row.worst),
        row.harmed.to_string(),
        row.less.to_string(),
        row.more.to_string(),
        format!("{:+.4} ± {:.4}", row.mean.0, row.mean.1),
        at(row.loss),
        at(row.gain),
    ]
}

/// The table for a terminal, or in Markdown.
pub(super) fn text(rows: &[Row], cases: &[Case], markdown: bool) -> String {
    let head = HEAD.map(str::to_owned);
    let lines: Vec<[String; 10]> =
        std::iter::once(head).chain(rows.iter().map(|row| cells(row, cases))).collect();
    let mut text = match markdown {
        false => columns::aligned(&lines),
        true => {
            let ruled = |(number, line): (usize, &[String; 10])| {
                let rule = format!("|---|{}\n", "--:|".repeat(7) + "---|---|");
                let below = if number == 0 { rule } else { String::new() };
                format!("| {} |\n{below}", line.join(" | "))
            };
            lines.iter().enumerate().map(ruled).collect()
        }
    };
    let _ = writeln!(text, "\n{} cases", cases.len());
    text
}

/// Goodput by limit of every case in every row.
pub(super) fn json(
    names: &[&str],
    cases: &[Case],
    outcomes: &[Vec<Outcome>],
) -> io::Result<String> {
    let cases: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    let rows = names.iter().zip(outcomes).map(|(name, outcomes)| {
        let shares: Vec<f64> = outcomes.iter().map(|outcome| outcome.share).collect();
        ((*name).to_owned(), serde_json::json!(shares))
    });
    let rows: serde_json::Map<String, serde_json::Value> = rows.collect();
    let all = serde_json::json!({ "cases": cases, "shares": rows });
    Ok(serde_json::to_string_pretty(&all)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(shares: &[f64]) -> Vec<Outcome> {
        let outcome = |share: &f64| Outcome { share: *share, of_best: *share, violations: 0 };
        shares.iter().map(outcome).collect()
    }

    #[test]
    fn a_row_says_what_changed() {
        let on = outcomes(&[0.8, 0.5, 0.96, 1.0]);
        let row = Row::of("it", &on, &outcomes(&[0.4, 0.55, 0.96, 1.001]));
        assert_eq!((row.less, row.more, row.harmed), (1, 1, 2));
        assert!((row.loss.0 + 0.4).abs() < 1e-9 && row.loss.1 == 0);
        assert!((row.gain.0 - 0.05).abs() < 1e-9 && row.gain.1 == 1);
        assert!((row.mean.0 + 0.08725).abs() < 1e-9 && row.mean.1 > 0.0);
        assert_eq!((row.worst, row.tenth, row.median), (0.4, 0.4, 0.96));
    }

    #[test]
    fn nothing_changes_beside_itself() {
        let on = outcomes(&[0.8, 0.5]);
        let row = Row::of("it", &on, &on);
        assert_eq!((row.less, row.more, row.mean), (0, 0, (0.0, 0.0)));
    }
}
