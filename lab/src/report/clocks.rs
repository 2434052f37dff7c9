//! The effect of clocks on estimates of delay.

use std::fmt::Write;

use super::plot::escape;
use crate::results::{RunResult, known};
use crate::statistics;

/// Mean of a part of the values. `from` and `to` are its ends as shares of the whole.
fn mean(values: &[Option<f64>], from: f64, to: f64) -> f64 {
    let at = |share: f64| (share * values.len() as f64) as usize;
    let part = &values[at(from)..at(to).max(at(from) + 1).min(values.len())];
    statistics::mean(&known(part))
}

/// A table of the long runs with estimates.
pub(super) fn section(html: &mut String, runs: &[&RunResult]) {
    let runs: Vec<&&RunResult> = runs.iter().filter(|run| shown(run)).collect();
    if runs.is_empty() {
        return;
    }
    *html += "<div class=\"wide\"><table><tr><th>what the sender holds of a path</th>\
              <th>clock gained, ms</th><th>queuing delay, first 24th, ms</th><th>last 24th</th>\
              <th>more than the fastest, first 24th, ms</th><th>last 24th</th></tr>";
    for run in runs {
        for estimate in run.estimates.iter().filter(|e| !e.queuing_ms.is_empty()) {
            let (first, last) = ((0.0, 1.0 / 24.0), (23.0 / 24.0, 1.0));
            let _ = write!(
                html,
                "<tr><td>{}, {}</td><td>{:.1}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}</td>\
                 <td>{:.2}</td></tr>",
                escape(&run.system),
                escape(&estimate.path),
                estimate.clock_gained_ms,
                mean(&estimate.queuing_ms, first.0, first.1),
                mean(&estimate.queuing_ms, last.0, last.1),
                mean(&estimate.relative_ms, first.0, first.1),
                mean(&estimate.relative_ms, last.0, last.1),
            );
        }
    }
    *html += "</table></div>";
}

/// Long runs, in which clocks are the question.
fn shown(run: &RunResult) -> bool {
    run.emulator.sample_ms > 100.0 && run.estimates.iter().any(|e| !e.queuing_ms.is_empty())
}
