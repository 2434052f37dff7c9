//! What is used of periods.

use std::collections::BTreeMap;

use crate::config::Period;

/// Periods that are remembered of each interface.
pub(super) const REMEMBERED: usize = 4;

/// What is used of one period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) period: Period,
    /// When it began, s since 1970-01-01 00:00 UTC.
    pub(super) start: u64,
    pub(super) bytes: u64,
}

/// What is used by each interface: the latest period first, at most [`REMEMBERED`].
pub(super) type Ledger = BTreeMap<String, Vec<Used>>;

/// Adds `bytes` to what is used of the period that began at `start`; returns how much that is. The
/// period becomes the first of `list`.
pub(super) fn add(list: &mut Vec<Used>, period: Period, start: u64, bytes: u64) -> u64 {
    let at = list.iter().position(|used| (used.period, used.start) == (period, start));
    let mut used = at.map_or(Used { period, start, bytes: 0 }, |at| list.remove(at));
    used.bytes = used.bytes.saturating_add(bytes);
    list.insert(0, used);
    list.truncate(REMEMBERED);
    used.bytes
}
