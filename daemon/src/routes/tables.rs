//! The tables to which rules lead that a daemon has made.
//!
//! A rule does not say whose it is. So the first of the three tables is [recorded](Record) as long
//! as rules may lead there, and the next daemon knows those of one that was killed although its
//! configuration names other tables.

use std::collections::BTreeSet;
use std::path::Path;

use crate::record::Record;

/// The tables behind the one of the configuration: routes to peers that see this host elsewhere
/// than it is, and to the NATs behind which peers are.
pub(crate) const TRANSLATED: u32 = 1;
pub(crate) const NATS: u32 = 2;

/// What the record is called.
const RECORD: &str = "tables";

/// The record, and what it says.
#[derive(Debug)]
pub(crate) struct Tables {
    record: Record,
    first: BTreeSet<u32>,
    /// What it said at the start.
    found: BTreeSet<u32>,
}

impl Tables {
    /// What daemons with this control socket have recorded. What is no number says nothing.
    pub(crate) fn open(control_socket: &Path) -> Self {
        let record = Record::beside(control_socket, RECORD);
        let text = record.read().unwrap_or_default();
        let first: BTreeSet<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        Self { record, found: first.clone(), first }
    }

    /// Whether a former daemon had `table` and the two behind it.
    pub(super) fn had(&self, table: u32) -> bool {
        self.found.contains(&table)
    }

    /// Whether a former daemon had others than `table` and the two behind it.
    pub(super) fn had_other_than(&self, table: u32) -> bool {
        self.found.iter().any(|first| *first != table)
    }

    /// How far behind the first of three tables of a former daemon `table` is, if it is one.
    pub(super) fn offset_of(&self, table: u32) -> Option<u32> {
        let offset = |first: &u32| table.checked_sub(*first).filter(|offset| *offset <= NATS);
        self.found.iter().find_map(offset)
    }

    /// Rules to `table` and the two behind it are to be made.
    pub(super) fn add(&mut self, table: u32) {
        let mut all = self.first.clone();
        all.insert(table);
        self.set(all);
    }

    /// Rules lead at most to `table` and the two behind it.
    pub(super) fn keep(&mut self, table: u32) {
        let all = self.first.iter().copied().filter(|first| *first == table).collect();
        self.set(all);
    }

    /// As it was at the start.
    pub(super) fn restore(&mut self) {
        self.set(self.found.clone());
    }

    /// No rule is left.
    pub(super) fn clear(&mut self) {
        self.set(BTreeSet::new());
    }

    fn set(&mut self, all: BTreeSet<u32>) {
        if all == self.first {
            return;
        }
        self.first = all;
        if self.first.is_empty() {
            return self.record.remove();
        }
        let text: String = self.first.iter().map(|table| format!("{table}\n")).collect();
        if let Err(error) = self.record.write(&text) {
            log::warn!(
                "cannot write {}: {error}; rules are left if mpipd is killed and `table` is changed",
                self.record.file().display()
            );
        }
    }
}
