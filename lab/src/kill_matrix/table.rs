//! The matrix as tables in Markdown.

use std::fmt::Write as _;

use clap::ValueEnum;

use super::cell::{Kill, Outcome, Via};

/// The longest stall of every cell in a row and column, and below it what was wrong.
pub(super) fn markdown(outcomes: &[Outcome]) -> String {
    let kills: Vec<Kill> = Kill::value_variants()
        .iter()
        .copied()
        .filter(|kill| outcomes.iter().any(|outcome| outcome.cell.kill == *kill))
        .collect();
    let mut text = "| paths |".to_owned();
    for kill in &kills {
        let _ = write!(text, " {} |", kill.title());
    }
    text += "\n|---|";
    text += &"---|".repeat(kills.len());
    text.push('\n');
    for via in Via::value_variants() {
        for paths in 2..=4 {
            let row = |outcome: &&Outcome| (outcome.cell.via, outcome.cell.paths) == (*via, paths);
            if !outcomes.iter().any(|outcome| row(&outcome)) {
                continue;
            }
            let _ = write!(text, "| {paths}, {} |", via.title());
            for kill in &kills {
                let cells = outcomes.iter().filter(row).filter(|o| o.cell.kill == *kill);
                let _ = write!(text, " {} |", entry(&cells.collect::<Vec<_>>()));
            }
            text.push('\n');
        }
    }
    text + "\n" + &summary(outcomes)
}

/// Median and maximum of the longest stalls.
fn entry(cells: &[&Outcome]) -> String {
    let mut stalls: Vec<f64> = cells.iter().map(|cell| cell.longest_stall_ms).collect();
    stalls.sort_by(f64::total_cmp);
    let Some(longest) = stalls.last() else { return "–".to_owned() };
    let faulty = cells.iter().filter(|cell| !cell.faults().is_empty()).count();
    let mut text = format!("{:.0}, {longest:.0}", stalls[stalls.len() / 2]);
    if faulty > 0 {
        let _ = write!(text, " ({faulty} of {} FAULTY)", cells.len());
    }
    text
}

fn summary(outcomes: &[Outcome]) -> String {
    let count = |wanted: fn(&Outcome) -> bool| outcomes.iter().filter(|o| wanted(o)).count();
    let mut text = format!(
        "{} cells: {} with a reset, {} with a corrupted transfer, {} with another fault.\n",
        outcomes.len(),
        count(|outcome| outcome.resets > 0),
        count(|outcome| outcome.corrupted),
        count(|outcome| {
            outcome.resets == 0 && !outcome.corrupted && !outcome.faults().is_empty()
        }),
    );
    for outcome in outcomes.iter().filter(|outcome| !outcome.faults().is_empty()) {
        let _ = writeln!(text, "- {}: {}", name(outcome), outcome.faults().join("; "));
    }
    text
}

/// A cell in words.
pub(super) fn name(outcome: &Outcome) -> String {
    let cell = outcome.cell;
    let killed: Vec<String> = cell.killed_paths().map(|path| format!("p{path}")).collect();
    format!(
        "{}, {} of {} paths ({}), {}",
        cell.via.title(),
        killed.len(),
        cell.paths,
        killed.join(" "),
        cell.kill.title()
    )
}

#[cfg(test)]
mod tests {
    use super::super::cell::Cell;
    use super::*;

    fn outcome(killed: u8, longest_stall_ms: f64) -> Outcome {
        let cell = Cell { via: Via::Tcp, paths: 3, kill: Kill::Loss, killed };
        let recovery_ms = Some(1.0);
        Outcome { longest_stall_ms, recovery_ms, ..Outcome::new(cell, "") }
    }

    #[test]
    fn rows_have_the_longest_stalls() {
        let outcomes = [outcome(1, 20.0), outcome(2, 80.0), outcome(3, 30.0)];
        let text = markdown(&outcomes);
        assert!(text.contains("| paths | 50 % loss |\n|---|---|\n"), "{text}");
        assert!(text.contains("| 3, TCP segments | 30, 80 |\n"), "{text}");
        assert!(text.contains("3 cells: 0 with a reset, 0 with a corrupted"), "{text}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let mut outcomes = [outcome(1, 20.0), outcome(6, 80.0)];
        outcomes[1].resets = 1;
        outcomes[1].dropped = Some(0);
        let text = markdown(&outcomes);
        assert!(text.contains("(1 of 2 FAULTY)"), "{text}");
        assert!(text.contains("2 cells: 1 with a reset, 0 with"), "{text}");
        let line = "- TCP segments, 2 of 3 paths (p1 p2), 50 % loss: reset; the kill met no packet";
        assert!(text.contains(line), "{text}");
    }
}
