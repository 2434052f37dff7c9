//! The table as text.

use std::fmt::Write;

use super::row::Row;
use crate::columns;

const HEAD: [&str; 4] = ["case", "target", "reached", ""];

fn cells(row: &Row) -> [&str; 4] {
    let verdict = match row.yes {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not measured",
    };
    [&row.case, &row.asked, &row.reached, verdict]
}

/// Columns for a terminal, and a line with the sum.
pub(super) fn aligned(rows: &[Row]) -> String {
    let lines: Vec<[&str; 4]> = core::iter::once(HEAD).chain(rows.iter().map(cells)).collect();
    let mut text = columns::aligned(&lines);
    let count = |yes| rows.iter().filter(|row| row.yes == yes).count();
    let _ = writeln!(
        text,
        "{} reached, {} not reached, {} not measured",
        count(Some(true)),
        count(Some(false)),
        count(None)
    );
    text
}

/// A table for a document.
pub(super) fn markdown(rows: &[Row]) -> String {
    let mut text = format!("| {} |\n|---|---|---|---|\n", HEAD.join(" | "));
    for row in rows {
        let _ = writeln!(text, "| {} |", cells(row).join(" | "));
    }
    text
}
