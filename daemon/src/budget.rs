//! Budgets of interfaces that are paid for by amount: what is used of them, and what follows.
//!
//! Every second the daemon looks what the paths of each interface have carried, in both directions.
//! When that reaches the budget, the interface is on standby until the period (a day or a calendar
//! month, of UTC) ends. What is used is written to a `file` beside the configuration, so that a
//! restart does not lose it.
//!
//! A period is known by its start. The wall clock of a host without a battery is wrong until it has
//! asked for the time, so the latest few periods are remembered: what was used of one is still
//! known when the clock comes back to it.

mod file;
mod ledger;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mpip_api::{BudgetState, BudgetStatus, EventKind, FaultStatus};
use mpip_core::{Instant, PathTraffic};

use crate::config::{AMOUNT_UNITS, Budget, PathProperties, Period};
use crate::day;
use crate::handover::Handover;
use crate::snapshot::ms;

use self::ledger::{Ledger, Used, add};

/// How often is looked what paths have carried.
const INTERVAL: Duration = Duration::from_secs(1);
/// Least time between two writes, unless a budget is used up or whole again.
const PAUSE: Duration = Duration::from_secs(60);
/// Share of a budget from which a warning is given, percent.
const WARNING: u64 = 80;
/// Seconds of a day.
const DAY: u64 = 86_400;

/// How far a budget is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    #[default]
    Enough,
    Little,
    Nothing,
}

/// A budget that is in force.
#[derive(Debug)]
struct InForce {
    label: Option<String>,
    budget: Budget,
    level: Level,
    /// Start of the period to which `level` belongs, s since 1970.
    start: u64,
    /// Since when it has that level.
    since: Instant,
}

impl InForce {
    /// What users call the interface.
    fn name<'a>(&'a self, interface: &'a str) -> &'a str {
        self.label.as_deref().unwrap_or(interface)
    }

    fn used(&self, ledger: &Ledger, interface: &str) -> u64 {
        let mut list = ledger.get(interface).into_iter().flatten();
        let now = |used: &&Used| used.period == self.budget.period && used.start == self.start;
        list.find(now).map_or(0, |used| used.bytes)
    }
}

/// The budgets of all interfaces.
#[derive(Debug)]
pub(crate) struct Budgets {
    in_force: BTreeMap<String, InForce>,
    ledger: Ledger,
    /// What each path had carried when it was last looked at: its place, number and beginning.
    seen: BTreeMap<(usize, u16, Instant), u64>,
    /// Whether what paths have carried since they were last looked at counts.
    counts: bool,
    /// Whether settings were changed since paths were looked at.
    news: bool,
    /// When the paths are looked at next.
    next: Instant,
    file: PathBuf,
    writer: Option<Handover<String>>,
    /// Whether `ledger` differs from what was written last, in what must not wait, and when that
    /// was.
    changed: bool,
    urgent: bool,
    written: Option<Instant>,
    /// Why the file could not be read.
    damage: Option<String>,
}

/// What has happened to a budget.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// In words.
    pub(crate) message: String,
    /// As an event.
    pub(crate) kind: EventKind,
}

impl Budgets {
    /// What the file beside `config` says is used. A file that cannot be read is set aside.
    pub(crate) fn open(now: Instant, config: &Path) -> Self {
        let file = std::path::absolute(config).unwrap_or_else(|_| config.to_owned());
        let file = file.with_extension("budgets");
        let (ledger, damage) = match file::load(&file) {
            Ok(ledger) => (ledger, None),
            Err(reason) => {
                log::error!("{reason}");
                (Ledger::new(), Some(reason))
            }
        };
        Self {
            in_force: BTreeMap::new(),
            ledger,
            seen: BTreeMap::new(),
            counts: true,
            news: false,
            next: now,
            file,
            writer: None,
            changed: false,
            urgent: false,
            written: None,
            damage,
        }
    }

    /// Follows the settings of interfaces. What is used stays.
    pub(crate) fn follow(
        &mut self,
        now: Instant,
        unix: Duration,
        settings: &BTreeMap<String, PathProperties>,
    ) {
        let mut former = std::mem::take(&mut self.in_force);
        for (interface, PathProperties { label, budget, .. }) in settings {
            let Some(budget) = *budget else { continue };
            let before = former.remove(interface).filter(|before| before.budget == budget);
            let label = label.clone();
            let known = before.is_some();
            let mut new = InForce {
                label: label.clone(),
                budget,
                level: Level::Enough,
                start: start(budget.period, unix),
                since: now,
            };
            // Whoever starts with a budget that is used up is told by the status, not by an event.
            new.level = level(&budget, new.used(&self.ledger, interface));
            let new = if known { before.map_or(new, |old| InForce { label, ..old }) } else { new };
            self.in_force.insert(interface.clone(), new);
        }
        // What paths carried before there was a budget is not counted.
        self.counts &= !self.in_force.is_empty();
        (self.next, self.news) = (now, true);
    }

    /// Whether [`count`](Self::count) is to be called because settings were changed.
    pub(crate) fn is_news(&self) -> bool {
        self.news
    }

    /// Interfaces whose budget is used up.
    pub(crate) fn used_up(&self) -> BTreeSet<String> {
        let used_up = self.in_force.iter().filter(|(_, it)| it.level == Level::Nothing);
        used_up.map(|(interface, _)| interface.clone()).collect()
    }

    /// When [`count`](Self::count) is to be called; `None` without a budget.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        (!self.in_force.is_empty()).then_some(self.next)
    }

    /// Counts what paths have carried. Returns what follows for budgets.
    pub(crate) fn count<'a>(
        &mut self,
        now: Instant,
        unix: Duration,
        traffic: impl Iterator<Item = PathTraffic<'a>>,
    ) -> Vec<Change> {
        (self.next, self.news) = (now + INTERVAL, false);
        let mut seen = BTreeMap::new();
        let mut carried: BTreeMap<&str, u64> = BTreeMap::new();
        for path in traffic {
            let key = (path.place, path.id, path.opened);
            let before = self.seen.get(&key).copied().unwrap_or(0);
            let more = if self.counts { path.bytes.saturating_sub(before) } else { 0 };
            *carried.entry(path.interface).or_default() += more;
            seen.insert(key, path.bytes);
        }
        (self.seen, self.counts) = (seen, true);
        let mut changes = Vec::new();
        for (interface, it) in &mut self.in_force {
            let begins = start(it.budget.period, unix);
            let bytes = carried.get(interface.as_str()).copied().unwrap_or(0);
            let list = self.ledger.entry(interface.clone()).or_default();
            let used = add(list, it.budget.period, begins, bytes);
            self.changed |= bytes > 0;
            let level = level(&it.budget, used);
            let anew = it.start != begins;
            if (level, anew) == (it.level, false) {
                continue;
            }
            let (before, new_level) = (it.level, level);
            if level != it.level {
                it.since = now;
            }
            (it.level, it.start) = (level, begins);
            self.urgent |= (before == Level::Nothing) != (level == Level::Nothing);
            let state = match new_level {
                Level::Nothing => BudgetState::UsedUp,
                Level::Little => BudgetState::Warning,
                Level::Enough if before == Level::Nothing => BudgetState::Renewed,
                Level::Enough => continue,
            };
            changes.push(it.change(interface, used, state));
        }
        let pause = self.written.is_some_and(|at| now.since(at) < PAUSE);
        if self.changed && (self.urgent || !pause) {
            self.write(now);
        }
        changes
    }

    /// Hands over what is used to the thread that writes.
    fn write(&mut self, now: Instant) {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => match file::start_writer(self.file.clone()) {
                Ok(writer) => self.writer.insert(writer),
                Err(error) => {
                    log::error!("no thread to write what is used of budgets: {error}");
                    return;
                }
            },
        };
        if writer.offer(file::text(&self.ledger)).is_ok() {
            (self.changed, self.urgent, self.written) = (false, false, Some(now));
        }
    }

    /// Nothing is counted any more. What is left is to [finish](Ending::finish) writing.
    pub(crate) fn end(&mut self) -> Ending {
        if self.changed && self.writer.is_none() {
            self.write(self.next);
        }
        let text = self.changed.then(|| file::text(&self.ledger));
        Ending { writer: self.writer.take(), text }
    }

    /// The budgets as the control socket shows them.
    pub(crate) fn status(&self) -> Vec<BudgetStatus> {
        let shown = self.in_force.iter().map(|(interface, it)| BudgetStatus {
            interface: interface.clone(),
            label: it.label.clone(),
            budget_bytes: it.budget.bytes,
            used_bytes: it.used(&self.ledger, interface),
            period: it.budget.period.name().to_owned(),
            period_ends_unix_s: end(it.budget.period, it.start),
            used_up: it.level == Level::Nothing,
        });
        shown.collect()
    }

    /// Budgets that are used up, and a file that could not be read.
    pub(crate) fn faults(&self, now: Instant) -> Vec<FaultStatus> {
        let damage = self.damage.iter().map(|what| FaultStatus {
            what: what.clone(),
            why: "what was used of budgets before the start is not counted".to_owned(),
            since_ms: 0.0,
            attempts: 0,
        });
        let used_up = self.in_force.iter().filter(|(_, it)| it.level == Level::Nothing);
        let used_up = used_up.map(|(interface, it)| FaultStatus {
            what: it.used_up(interface, it.used(&self.ledger, interface)),
            why: format!("{interface} is on standby: for when no other path works"),
            since_ms: ms(now.since(it.since)),
            attempts: 0,
        });
        damage.chain(used_up).collect()
    }
}

/// What is still to be written.
#[derive(Debug)]
pub(crate) struct Ending {
    writer: Option<Handover<String>>,
    text: Option<String>,
}

impl Ending {
    /// Has everything written, and waits until it is, but no longer than `limit`.
    pub(crate) fn finish(self, limit: Duration) {
        if self.writer.is_some_and(|writer| !writer.finish(self.text, limit)) {
            log::error!("what is used of budgets could not be written within {limit:?}");
        }
    }
}

impl InForce {
    fn used_up(&self, interface: &str, used: u64) -> String {
        let (name, budget) = (self.name(interface), self.budget);
        let again = end(budget.period, self.start);
        let date = match budget.period {
            Period::Day => String::new(),
            Period::Month => format!("{} ", show_day(again)),
        };
        let used = Amount(used);
        format!("budget of {name} is used up: {used} of {budget}; again at {date}00:00 UTC")
    }

    fn change(&self, interface: &str, used: u64, state: BudgetState) -> Change {
        let (name, budget) = (self.name(interface), self.budget);
        let message = match state {
            BudgetState::UsedUp => self.used_up(interface, used),
            BudgetState::Warning => format!(
                "{} % of the budget of {name} is used: {} of {budget}",
                used * 100 / budget.bytes.max(1),
                Amount(used)
            ),
            BudgetState::Renewed | BudgetState::Unknown => {
                format!("{name} has its budget again: {budget}")
            }
        };
        let kind = EventKind::Budget {
            interface: interface.to_owned(),
            label: self.label.clone(),
            state,
            budget_bytes: budget.bytes,
            used_bytes: used,
            period_ends_unix_s: end(budget.period, self.start),
        };
        Change { message, kind }
    }
}

fn level(budget: &Budget, used: u64) -> Level {
    let share = u128::from(used) * 100;
    match share {
        _ if used >= budget.bytes => Level::Nothing,
        _ if share >= u128::from(budget.bytes) * u128::from(WARNING) => Level::Little,
        _ => Level::Enough,
    }
}

/// When the period at `unix` began, s since 1970.
fn start(period: Period, unix: Duration) -> u64 {
    let day = unix.as_secs() / DAY;
    match period {
        Period::Day => day * DAY,
        Period::Month => first_of_month(day) * DAY,
    }
}

/// When the period ends that began at `start`, s since 1970.
fn end(period: Period, start: u64) -> u64 {
    match period {
        Period::Day => start + DAY,
        // No month is longer, and the next one is not shorter than three days.
        Period::Month => first_of_month(start / DAY + 31) * DAY,
    }
}

/// The first day of the month of `day`, in days since 1970.
fn first_of_month(day: u64) -> u64 {
    let shown = show_day(day * DAY);
    let first = shown.rsplit_once('-').and_then(|(month, _)| day::parse(&format!("{month}-01")));
    first.map_or(day, u64::from)
}

/// The day of `unix`, s since 1970, as `YYYY-MM-DD`.
fn show_day(unix: u64) -> String {
    day::show(u32::try_from(unix / DAY).unwrap_or(u32::MAX))
}

/// The largest unit that fits `bytes`.
fn unit(bytes: u64) -> (&'static str, u64) {
    AMOUNT_UNITS.into_iter().rev().find(|(_, unit)| bytes >= *unit).unwrap_or(("B", 1))
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = unit(self.bytes);
        write!(f, "{} {name}/{}", self.bytes as f64 / unit as f64, self.period.name())
    }
}

/// An amount of data with one decimal.
struct Amount(u64);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = unit(self.0);
        write!(f, "{:.*} {name}", usize::from(unit > 1), self.0 as f64 / unit as f64)
    }
}

#[cfg(test)]
mod tests;
