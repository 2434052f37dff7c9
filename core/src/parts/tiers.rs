//! Which paths carry packets by what they cost: the cheapest first, and dearer ones only while
//! those cannot carry what is queued.
//!
//! Paths of one cost are a tier. Open tiers carry packets, and the cheapest one is always open. The
//! next one opens when the open ones take no more packets and would need longer than `spill_after`
//! for the queue. It also opens when they were full for a while: an inner TCP with BBR keeps
//! queues short, so that it would never ask for more. It closes when the cheaper ones could have
//! carried everything for some time. Which of the open tiers a packet takes is decided in
//! `selection`: the cheapest that has room.

use core::time::Duration;

use mpip_types::Instant;

use super::path_set::PathSet;
use crate::content::Path;
use crate::parameters::SpillParameters;

/// The tiers of an association's paths.
#[derive(Debug)]
pub(crate) struct Tiers {
    parameters: SpillParameters,
    /// Lowest and highest cost of the usable paths.
    floor: u8,
    top: u8,
    /// Highest cost of the open tiers.
    limit: u8,
    /// Since when the open tiers would need longer than `spill_after` for the queue.
    long_since: Option<Instant>,
    /// When a tier was opened last.
    opened_at: Instant,
    /// When the dearest open tier was needed last.
    needed_at: Instant,
    /// When the last period ended, and bytes sent on all paths until then.
    period: (Instant, u64),
    /// The same of the time in which it is measured whether the open tiers are full.
    trial: (Instant, u64),
}

impl Tiers {
    /// With one tier, that of cost 0.
    pub(crate) fn new(parameters: SpillParameters) -> Self {
        Self {
            parameters,
            floor: 0,
            top: 0,
            limit: 0,
            long_since: None,
            opened_at: Instant::ZERO,
            needed_at: Instant::ZERO,
            period: (Instant::ZERO, 0),
            trial: (Instant::ZERO, 0),
        }
    }

    /// Looks which tiers there are now. Without a usable path everything stays as it was.
    pub(crate) fn look(&mut self, paths: &PathSet) {
        let costs = || usable(paths).map(|path| path.reserve.cost());
        if let (Some(floor), Some(top)) = (costs().min(), costs().max()) {
            (self.floor, self.top) = (floor, top);
            self.limit = self.limit.clamp(floor, top);
        }
    }

    /// Whether paths differ in cost.
    pub(crate) fn differ(&self) -> bool {
        self.floor < self.top
    }

    /// The lowest cost of the usable paths.
    pub(crate) fn floor(&self) -> u8 {
        self.floor
    }

    /// Highest cost of the open tiers.
    pub(crate) fn limit(&self) -> u8 {
        self.limit
    }

    /// The queue delay from which on a closed tier opens; `None` if all are open.
    pub(crate) fn opens_after(&self) -> Option<Duration> {
        (self.limit < self.top).then_some(self.parameters.spill_after)
    }

    /// The open tiers take no more packets now, and `backlog` bytes are queued. Opens the next tier
    /// if they need too long for that. Returns whether it did.
    pub(crate) fn spill(&mut self, now: Instant, paths: &PathSet, backlog: usize) -> bool {
        if self.limit >= self.top {
            return false;
        }
        let open = || usable(paths).filter(|path| path.reserve.cost() <= self.limit);
        let rate = open().map(Path::delivers).sum();
        // Nobody knows when a socket takes something again.
        let stuck = open().all(|path| path.blocked);
        if !stuck && takes(backlog, rate) <= self.parameters.spill_after {
            self.long_since = None;
            return false;
        }
        let long_since = *self.long_since.get_or_insert(now);
        let round_trip = longest_round_trip(open());
        // A path in slow start does not show yet what it carries, and is about to carry more. A
        // tier that was just opened has carried nothing yet.
        let patience = match open().any(Path::is_searching) {
            _ if stuck => self.parameters.spill_after,
            true => round_trip * self.parameters.search_patience,
            false => Duration::ZERO,
        };
        if now.since(long_since) < patience
            || now.since(self.opened_at) < round_trip * self.parameters.settle
        {
            return false;
        }
        self.open_next(now, paths)
    }

    /// Opens the next tier. Returns whether there is one.
    fn open_next(&mut self, now: Instant, paths: &PathSet) -> bool {
        let dearer = usable(paths).map(|path| path.reserve.cost());
        let Some(next) = dearer.filter(|cost| *cost > self.limit).min() else { return false };
        self.limit = next;
        self.long_since = None;
        (self.opened_at, self.needed_at) = (now, now);
        true
    }

    /// The end of a period, with `backlog` bytes in the queue. Opens the next tier if the open ones
    /// were full, and closes the dearest open one if the others have been able to carry everything
    /// for some time.
    pub(crate) fn on_period(&mut self, now: Instant, paths: &PathSet, backlog: usize) {
        self.look(paths);
        let sent = paths.iter().map(|path| path.counters.bytes_sent).sum();
        let (since, before) = core::mem::replace(&mut self.period, (now, sent));
        if now.since(self.trial.0) >= self.parameters.full_for {
            let (since, before) = core::mem::replace(&mut self.trial, (now, sent));
            let open = || usable(paths).filter(|path| path.reserve.cost() <= self.limit);
            let rate = open().map(Path::delivers).sum();
            let share = used(rate, now.since(since), sent.saturating_sub(before));
            // What a path in slow start can carry is not known.
            let known = self.opened_at <= since && !open().any(Path::is_searching);
            if self.limit < self.top && known && share >= self.parameters.full {
                self.open_next(now, paths);
            }
        }
        if self.limit == self.floor {
            return;
        }
        let cheaper = || usable(paths).filter(|path| path.reserve.cost() < self.limit);
        let rate = cheaper().map(Path::delivers).sum();
        let share = used(rate, now.since(since), sent.saturating_sub(before));
        let needed =
            share > self.parameters.spare || takes(backlog, rate) * 2 > self.parameters.spill_after;
        let keep = self.parameters.keep.max(longest_round_trip(cheaper()) * 2);
        if needed {
            self.needed_at = now;
        } else if now.since(self.needed_at) >= keep {
            let costs = cheaper().map(|path| path.reserve.cost());
            self.limit = costs.max().unwrap_or(self.floor);
            self.needed_at = now;
        }
    }
}

/// The paths that can carry packets now, whatever they cost.
fn usable(paths: &PathSet) -> impl Iterator<Item = &Path> {
    paths.iter().filter(|path| path.is_usable())
}

/// How long `rate` bytes/s need for `backlog` bytes.
fn takes(backlog: usize, rate: u64) -> Duration {
    Duration::from_micros((backlog as u64).saturating_mul(1_000_000) / rate.max(1))
}

/// Share of `rate` bytes/s that `sent` bytes in `time` are.
fn used(rate: u64, time: Duration, sent: u64) -> f64 {
    sent as f64 / (rate as f64 * time.as_secs_f64()).max(1.0)
}

fn longest_round_trip<'a>(paths: impl Iterator<Item = &'a Path>) -> Duration {
    paths.map(|path| path.flight.rtt().smoothed()).max().unwrap_or_default()
}
