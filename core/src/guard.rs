//! The guard leaves out paths without which the others carry more, so that all paths together are
//! never slower than the best one.
//!
//! A path with much more delay, jitter or loss than the others can cost more than it carries:
//! resequencing waits for its packets, the inner TCP window is exhausted, and the fast paths are
//! idle. Seed 003 leaves out a path at a fixed loss ratio. The cost of loss depends on everything
//! else, so here the benefit is measured: new inner bytes per second with and without the path.
//!
//! A trial costs little, because it starts only when the remaining paths are known to carry more
//! than all paths carry now. The better set is kept. The other set is tried again after pauses that
//! double, and at once when a path that was left out has improved, or the remaining paths have
//! become slower or fewer.

use core::time::Duration;
use std::collections::VecDeque;

use crate::parameters::GuardParameters;
use crate::recent_bytes::RecentBytes;
use crate::scheduler::PERIOD;
use mpip_types::Instant;

/// The measurements of a path that the guard uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct View {
    /// The path's number.
    pub(crate) id: u16,
    /// It carries packets unless the guard leaves it out.
    pub(crate) active: bool,
    /// It works, whether it carries packets or is kept for later.
    pub(crate) works: bool,
    /// Delivery rate, bytes/s.
    pub(crate) rate: u64,
    /// Arrival time of its slowest packets, µs against a reference that all paths share.
    pub(crate) late: i64,
    /// Extra delay of a packet that has to be retransmitted, µs.
    pub(crate) repair: i64,
    /// Datagrams lost so far.
    pub(crate) lost: u64,
    /// Inner bytes sent on it so far.
    pub(crate) carried: u64,
    /// It does not know yet how much it can carry.
    pub(crate) searches: bool,
}

/// Inner bytes of transfers sent in a period, without our retransmissions. Voice and keystrokes say
/// nothing about what the paths carry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Period {
    /// All bytes, including retransmissions of the inner TCP: what a set of paths could carry.
    /// There are many of these when packets were late or dropped because the set changed.
    pub(crate) left: u64,
    /// Bytes sent for the first time: what a set of paths really carries.
    pub(crate) new: u64,
    /// Packets were queued or in flight.
    pub(crate) load: bool,
    /// Packets of senders were sent that do not know yet what the paths carry, because their
    /// minimum RTT is being raised.
    pub(crate) held: bool,
}

/// The role that the guard gives a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It carries packets.
    Used,
    /// It is left out for a trial.
    ExcludedForTrial,
    /// It is left out, because the others carry more without it.
    LeftOut,
    /// It was left out, and carries packets for a trial.
    IncludedForTrial,
}

impl Role {
    /// The name in status output.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::ExcludedForTrial | Self::IncludedForTrial => "trial",
            Self::LeftOut => "left-out",
        }
    }
}

/// What the guard knows of a path that is left out or on trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardFigures {
    /// Whether it carries bulk traffic now.
    pub carries: bool,
    /// Time since the decision; on trial, time with load since the trial began.
    pub since: Duration,
    /// Throughput of the association with the path, inner bit/s; 0 while it is being measured.
    pub with: u64,
    /// The same without it.
    pub without: u64,
    /// Time until it is tried again; `None` on trial.
    pub again: Option<Duration>,
}

/// A decision of the guard about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The path's number.
    pub(crate) path: u16,
    /// The path is left out from now on; otherwise it carries packets again.
    pub(crate) left_out: bool,
    /// Inner bytes per second with and without the path; 0 if not measured.
    pub(crate) with: u64,
    /// See `with`.
    pub(crate) without: u64,
    /// Why.
    pub(crate) reason: &'static str,
}

#[derive(Clone, Debug)]
struct Entry {
    view: View,
    role: Role,
    lossless_since: Instant,
    /// Its inner bytes.
    recent: RecentBytes,
    /// The highest delivery rate so far, bytes/s, and for how many periods in which it carried
    /// something it has not grown by more than a quarter.
    highest: u64,
    stagnant: u32,
    /// For a path that is left out: since when, when it is tried again, and the pause after that.
    since: Instant,
    due: Instant,
    pause: Duration,
    /// Extra delay beyond the other paths while it carries nothing, µs.
    excess: Option<i64>,
    /// Number of periods in which the extra delay has been less than half of that.
    less_for: u32,
    /// Delivery rate of the other paths, bytes/s.
    kept: u64,
    /// What all carried with and without it in the last trial, inner bytes/s.
    measured: (u64, u64),
}

impl Entry {
    fn new(now: Instant, view: View, pause: Duration) -> Self {
        Self {
            view,
            role: Role::Used,
            lossless_since: now,
            recent: RecentBytes::new(view.carried),
            highest: 0,
            stagnant: 0,
            since: now,
            due: now,
            pause,
            excess: None,
            less_for: 0,
            kept: 0,
            measured: (0, 0),
        }
    }

    /// Whether it carries bulk.
    fn takes(&self) -> bool {
        self.view.active && matches!(self.role, Role::Used | Role::IncludedForTrial)
    }

    /// Arrival time of its packets including a retransmission, µs. A path without loss for `quiet`
    /// counts as lossless.
    fn certain(&self, now: Instant, quiet: Duration) -> i64 {
        let lossless = now.since(self.lossless_since) >= quiet;
        self.view.late + if lossless { 0 } else { self.view.repair }
    }

    /// Whether it delivers more and more, and how much it can carry is not known. After the time
    /// `search` without growth it is.
    fn grows(&self, search: Duration) -> bool {
        self.view.searches && PERIOD * self.stagnant < search
    }

    /// Whether it carries more than heartbeats.
    fn carries(&self, parameters: &GuardParameters) -> bool {
        self.recent.average() >= parameters.unused
    }

    fn update(&mut self, now: Instant, view: &View, parameters: &GuardParameters) {
        if view.lost != self.view.lost {
            self.lossless_since = now;
        }
        self.recent.end_period(view.carried);
        if view.rate > self.highest + self.highest / 4 {
            (self.highest, self.stagnant) = (view.rate, 0);
        } else if self.carries(parameters) {
            self.stagnant = self.stagnant.saturating_add(1);
        }
        self.view = *view;
    }

    fn leave_out(&mut self, now: Instant, kept: u64, measured: (u64, u64)) {
        self.measured = measured;
        self.since = now;
        self.due = now + self.pause;
        self.kept = kept;
    }
}

/// A trial of a set of paths.
#[derive(Clone, Debug)]
struct Trial {
    /// With fewer paths than before; otherwise with one path more.
    narrow: bool,
    /// What the previous set carried, inner bytes/s.
    reference: u64,
    /// Start of the measurement.
    settled: Instant,
    /// Bytes and periods since the trial began, and since the measurement started.
    begun: (u64, u32),
    counted: (u64, u32),
}

impl Trial {
    fn new(reference: u64) -> Self {
        Self { narrow: true, reference, settled: Instant::ZERO, begun: (0, 0), counted: (0, 0) }
    }

    /// Bytes per second, and their ratio to the reference.
    fn carried(&self, (bytes, periods): (u64, u32)) -> (u64, f64) {
        let carried = per_second(bytes, periods);
        (carried, carried as f64 / self.reference.max(1) as f64)
    }

    /// Counts a period that ended `now`; returns what the set carries once it is known.
    fn count(
        &mut self,
        now: Instant,
        period: Period,
        parameters: &GuardParameters,
    ) -> Option<(u64, f64)> {
        let bytes = if self.narrow { period.left } else { period.new };
        let add = |(sum, periods)| (sum + bytes, periods + 1);
        self.begun = add(self.begun);
        if now > self.settled {
            self.counted = add(self.counted);
        }
        if self.counted.1 >= parameters.trial {
            let (carried, share) = self.carried(self.counted);
            let patience = if self.narrow { 1 } else { parameters.return_patience };
            let harm = share < parameters.harmless;
            if share >= parameters.better || harm || self.begun.1 >= parameters.trial * patience {
                return Some((carried, share));
            }
            self.counted = (0, 0);
        }
        let so_far = self.counted;
        // The longest time until all data in flight has arrived, in periods.
        let settled = (parameters.settle_most.as_micros() / PERIOD.as_micros()) as u32;
        let carried = self.carried(so_far);
        let early =
            so_far.1 >= parameters.hopeless_after && self.begun.1 <= settled + parameters.trial;
        (early && carried.1 < parameters.hopeless).then_some(carried)
    }
}

/// What is remembered of a period with load.
#[derive(Clone, Copy, Debug)]
struct Count {
    /// Inner bytes sent for the first time.
    bytes: u64,
    /// Delivery rate of the paths in use, bytes/s.
    kept: u64,
}

/// The guard: leaves out paths that do harm.
#[derive(Debug)]
pub(crate) struct Guard {
    parameters: GuardParameters,
    entries: Vec<Entry>,
    trial: Option<Trial>,
    /// The last periods with load, the newest last.
    counts: VecDeque<Count>,
    /// Periods with load in this busy period, and periods without load since the last one with
    /// load.
    loaded: u32,
    unloaded: u32,
    /// Periods until senders with a raised minimum RTT count as gone, and since when there have
    /// been any.
    held: u32,
    held_for: u32,
    /// When the next trial without paths may start, the pause after it, and how many were in vain.
    due: Instant,
    pause: Duration,
    failures: usize,
}

impl Guard {
    pub(crate) fn new(parameters: GuardParameters) -> Self {
        Self {
            parameters,
            entries: Vec::new(),
            trial: None,
            counts: VecDeque::new(),
            loaded: 0,
            unloaded: 0,
            held: 0,
            held_for: 0,
            due: Instant::ZERO,
            pause: parameters.again,
            failures: 0,
        }
    }

    /// Whether path `id` carries no bulk data at present.
    pub(crate) fn leaves_out(&self, id: u16) -> bool {
        matches!(self.part(id), Role::ExcludedForTrial | Role::LeftOut)
    }

    /// The role of path `id`.
    pub(crate) fn part(&self, id: u16) -> Role {
        let entry = self.entries.iter().find(|entry| entry.view.id == id);
        entry.map_or(Role::Used, |entry| entry.role)
    }

    /// What is known of path `id`; `None` if it is used.
    pub(crate) fn figures(&self, now: Instant, id: u16) -> Option<GuardFigures> {
        let entry = self.entries.iter().find(|entry| entry.view.id == id)?;
        let trial = || {
            let Trial { reference, begun: (_, periods), .. } = self.trial.as_ref()?;
            Some((*reference, PERIOD * *periods))
        };
        let (since, (with, without), again) = match entry.role {
            Role::Used => return None,
            Role::LeftOut => (now.since(entry.since), entry.measured, Some(entry.due)),
            Role::ExcludedForTrial => trial().map(|(with, since)| (since, (with, 0), None))?,
            Role::IncludedForTrial => {
                trial().map(|(without, since)| (since, (0, without), None))?
            }
        };
        Some(GuardFigures {
            carries: entry.role == Role::IncludedForTrial,
            since,
            with: with.saturating_mul(8),
            without: without.saturating_mul(8),
            again: again.map(|at| at.since(now)),
        })
    }

    /// Whether a trial without some of the paths is going on.
    pub(crate) fn tries_fewer(&self) -> bool {
        self.trial.as_ref().is_some_and(|trial| trial.narrow)
    }

    /// Whether any path is left out.
    pub(crate) fn is_narrow(&self) -> bool {
        self.entries
            .iter()
            .any(|entry| matches!(entry.role, Role::ExcludedForTrial | Role::LeftOut))
    }

    /// Ends a period. `views` are all paths that work or may work again. Appends decisions to
    /// `verdicts`.
    pub(crate) fn on_period(
        &mut self,
        now: Instant,
        period: Period,
        views: &[View],
        verdicts: &mut Vec<Verdict>,
    ) {
        if !self.parameters.enabled || self.entries.is_empty() && views.len() < 2 {
            return;
        }
        self.follow(now, views, verdicts);
        self.held = if period.held { self.parameters.stall } else { self.held.saturating_sub(1) };
        self.held_for = if self.held > 0 { self.held_for.saturating_add(1) } else { 0 };
        if self.awaits_senders() && self.tries_fewer() {
            self.drop_trial();
        }
        if !self.count(period) {
            return;
        }
        match self.trial.take() {
            Some(mut trial) => match trial.count(now, period, &self.parameters) {
                Some((carried, share)) => self.judge(now, &trial, carried, share, verdicts),
                None => self.trial = Some(trial),
            },
            None => self.consider(now),
        }
    }

    /// Whether there are senders that will only use all paths once they know a longer RTT, whatever
    /// they carry now.
    fn awaits_senders(&self) -> bool {
        self.held > 0 && self.held_for <= self.parameters.held_most
    }

    /// Updates the entries from the paths.
    fn follow(&mut self, now: Instant, views: &[View], verdicts: &mut Vec<Verdict>) {
        let kept = self.kept();
        let matters = |entry: &Entry| entry.takes() && entry.view.rate.saturating_mul(4) > kept;
        let mut gone = false;
        self.entries.retain_mut(|entry| {
            let mattered = matters(entry);
            let view = views.iter().find(|view| view.id == entry.view.id);
            gone |= mattered && view.is_none_or(|view| !view.works);
            if let Some(view) = view {
                entry.update(now, view, &self.parameters);
            }
            view.is_some()
        });
        for view in views {
            if !self.entries.iter().any(|entry| entry.view.id == view.id) {
                self.entries.push(Entry::new(now, *view, self.parameters.pause));
            }
        }
        let stays = |entry: &Entry| entry.view.active && entry.role == Role::Used;
        gone |= !self.entries.iter().any(stays);
        if gone && self.entries.iter().any(|entry| entry.role != Role::Used) {
            self.release(verdicts);
        }
    }

    /// Uses all paths again.
    fn release(&mut self, verdicts: &mut Vec<Verdict>) {
        self.trial = None;
        self.counts.clear();
        for entry in &mut self.entries {
            if matches!(entry.role, Role::LeftOut | Role::IncludedForTrial) {
                verdicts.push(Verdict {
                    path: entry.view.id,
                    left_out: false,
                    with: 0,
                    without: 0,
                    reason: "a path that did better does not work any more",
                });
            }
            entry.role = Role::Used;
        }
    }

    /// Counts the bytes of a period. `false` if it is not part of a transfer. One begins with bytes
    /// and goes on while packets wait or are in flight, up to the longest idle time.
    fn count(&mut self, Period { left, new, load, .. }: Period) -> bool {
        let sends = left.max(new) > 0;
        self.unloaded = if sends { 0 } else { self.unloaded.saturating_add(1) };
        if self.unloaded > self.parameters.stall {
            self.loaded = 0;
            self.drop_trial();
            return false;
        }
        if !sends && (self.loaded == 0 || !load) {
            return false;
        }
        self.loaded = self.loaded.saturating_add(1);
        if self.loaded > self.parameters.start {
            if self.counts.len() >= self.parameters.evidence_most as usize {
                self.counts.pop_front();
            }
            self.counts.push_back(Count { bytes: new, kept: self.kept() });
        }
        true
    }

    /// Delivery rate of the paths in use, bytes/s.
    fn kept(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.takes()).map(|entry| entry.view.rate).sum()
    }

    /// Earliest arrival time among the paths in use, µs.
    fn earliest(&self, now: Instant) -> i64 {
        let quiet = self.parameters.quiet;
        let used = self.entries.iter().filter(|entry| entry.takes());
        used.map(|entry| entry.certain(now, quiet)).min().unwrap_or(0)
    }

    /// Starts a trial if there is a reason for one.
    fn consider(&mut self, now: Instant) {
        let GuardParameters { evidence_least, quiet, steady, worse: slower, .. } = self.parameters;
        let Some(carried) = mean(&self.counts, evidence_least) else { return };
        let (earliest, kept) = (self.earliest(now), self.kept());
        for entry in self.entries.iter_mut().filter(|entry| entry.role == Role::LeftOut) {
            let excess = entry.certain(now, quiet) - earliest;
            if entry.excess.is_none() && now.since(entry.since) >= quiet {
                entry.excess = Some(excess);
            }
            let less = entry.excess.is_some_and(|before| excess < before / 2);
            entry.less_for = if less { entry.less_for + 1 } else { 0 };
            let better = entry.less_for > steady;
            let worse = (kept as f64) < entry.kept as f64 * slower;
            if entry.view.active && (now >= entry.due || better || worse) {
                if less {
                    entry.excess = Some(excess);
                }
                entry.less_for = 0;
                entry.role = Role::IncludedForTrial;
                return self.start(now, Trial { narrow: false, ..Trial::new(carried) });
            }
        }
        if now >= self.due && !self.awaits_senders() {
            self.suspect(now, earliest);
        }
    }

    /// Starts a trial without the slowest paths, if the others are known to deliver more than all
    /// carry now.
    fn suspect(&mut self, now: Instant, earliest: i64) {
        let parameters = &self.parameters;
        let quiet = parameters.quiet;
        let late = parameters.suspect.as_micros() as i64;
        let excess = |entry: &Entry| entry.certain(now, quiet) - earliest;
        let suspect = |entry: &&mut Entry| {
            let used = entry.takes() && entry.carries(parameters);
            used && excess(entry) >= late && !entry.grows(parameters.search)
        };
        let kept = self.kept();
        let mut suspects: Vec<&mut Entry> = self.entries.iter_mut().filter(suspect).collect();
        if suspects.is_empty() {
            return;
        }
        suspects.sort_by_key(|entry| core::cmp::Reverse(excess(entry)));
        // Without the slowest path alone, the last trial was in vain: leave out more paths.
        let failures = if parameters.escalates { self.failures } else { 0 };
        suspects.truncate(1 + failures % suspects.len());
        let left: u64 = suspects.iter().map(|entry| entry.view.rate).sum();
        let share = left as f64 / kept.max(1) as f64;
        let (least, most) = (parameters.evidence_least, parameters.evidence_most);
        let stake = f64::from(most.saturating_sub(least)) * (share * 2.0).min(1.0);
        let periods = least + stake as u32;
        let Some(carried) = mean(&self.counts, periods) else { return };
        // A short gap is in one part of the evidence only. BBR makes one every 10 s to measure its
        // RTT.
        let lately = mean(&self.counts, (periods / 4).max(least)).unwrap_or(0);
        let counts = || self.counts.range(self.counts.len() - periods as usize..);
        let first = counts().take(periods as usize / 2).map(|count| count.bytes).sum();
        let first_half = per_second(first, periods / 2);
        let carried = carried.max(lately).max(first_half);
        // The transfer grows, or another one begins: they would carry more in any case.
        let last = mean(&self.counts, parameters.start).unwrap_or(0);
        if last as f64 * parameters.harm > carried as f64 {
            return;
        }
        // What they deliver has to be known for as long: with a transfer that begins beside lighter
        // traffic it has just been found out.
        let known = counts().map(|count| count.kept).min().unwrap_or(kept);
        let rest = known.saturating_sub(left) as f64;
        if (rest * parameters.least..rest * parameters.harm).contains(&(carried as f64)) {
            suspects.into_iter().for_each(|entry| entry.role = Role::ExcludedForTrial);
            self.start(now, Trial::new(carried));
        }
    }

    fn start(&mut self, now: Instant, mut trial: Trial) {
        let GuardParameters { quiet, settle_least, settle_most, .. } = self.parameters;
        let active = self.entries.iter().filter(|entry| entry.view.active);
        let certain = active.map(|entry| entry.certain(now, quiet));
        let (earliest, latest) =
            certain.fold((i64::MAX, i64::MIN), |(min, max), at| (min.min(at), max.max(at)));
        let spread = Duration::from_micros(u64::try_from(latest - earliest).unwrap_or(0));
        trial.settled = now + (spread * 2).clamp(settle_least, settle_most);
        self.trial = Some(trial);
    }

    /// Ends a trial whose set carries `carried` inner bytes per second.
    fn judge(
        &mut self,
        now: Instant,
        trial: &Trial,
        carried: u64,
        share: f64,
        verdicts: &mut Vec<Verdict>,
    ) {
        let parameters = self.parameters;
        let better = share >= parameters.better;
        let (with, without) = match trial.narrow {
            true => (trial.reference, carried),
            false => (carried, trial.reference),
        };
        let verdict = |entry: &Entry, left_out, reason| Verdict {
            path: entry.view.id,
            left_out,
            with,
            without,
            reason,
        };
        let stay = |entry: &&Entry| entry.role == Role::Used && entry.view.active;
        let kept: u64 = self.entries.iter().filter(stay).map(|entry| entry.view.rate).sum();
        for entry in &mut self.entries {
            match (entry.role, better) {
                (Role::ExcludedForTrial, true) => {
                    let trickle = (entry.view.rate as f64) < kept as f64 * parameters.trickle;
                    let times = if trickle { parameters.trickle_pause } else { 1 };
                    entry.pause = parameters.pause * times;
                    entry.excess = None;
                    entry.leave_out(now, kept, (with, without));
                    verdicts.push(verdict(entry, true, "the others carry more without it"));
                }
                (Role::IncludedForTrial, true) => {
                    verdicts.push(verdict(entry, false, "all carry more with it"));
                }
                (Role::IncludedForTrial, false) => {
                    entry.pause = (entry.pause * 2).min(parameters.pause_most);
                    entry.leave_out(now, kept, (with, without));
                }
                _ => {}
            }
        }
        self.end_trial(better);
        self.counts.clear();
        if trial.narrow && !better {
            self.failures += 1;
            self.due = now + self.pause;
            self.pause = (self.pause * 2).min(parameters.pause_most);
        } else {
            self.failures = 0;
            self.pause = parameters.again;
        }
    }

    /// Ends a trial without a result, if there is one, and forgets what was counted.
    fn drop_trial(&mut self) {
        self.counts.clear();
        if self.trial.take().is_some() {
            self.end_trial(false);
        }
    }

    /// Ends the trial: each path gets its final role.
    fn end_trial(&mut self, better: bool) {
        for entry in &mut self.entries {
            entry.role = match (entry.role, better) {
                (Role::ExcludedForTrial, true) | (Role::IncludedForTrial, false) => Role::LeftOut,
                (Role::ExcludedForTrial, false) | (Role::IncludedForTrial, true) => Role::Used,
                (part, _) => part,
            };
        }
    }
}

/// Inner bytes per second over the last `periods`, if there are that many.
fn mean(counts: &VecDeque<Count>, periods: u32) -> Option<u64> {
    let from = counts.len().checked_sub(periods as usize)?;
    Some(per_second(counts.range(from..).map(|count| count.bytes).sum(), periods))
}

/// Bytes in periods, as in one if there is none, as bytes per second.
fn per_second(bytes: u64, periods: u32) -> u64 {
    let nanos = PERIOD.as_nanos() * u128::from(periods.max(1));
    u64::try_from(u128::from(bytes) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
