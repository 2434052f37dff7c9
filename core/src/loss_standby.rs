//! `loss_policy = "threshold"`: the rule of seed 003 (section III.B). A path whose loss reaches the
//! threshold of its interface is on standby until it is below it again.
//!
//! The seed counts packets sent and packets lost, and switches as soon as `lost / sent >= γ`. It
//! means what the link loses, not what a full queue drops. So nothing counts while the path has a
//! queue, or searches for its rate, and for two round trips after that (Veno and Spike tell the two
//! kinds of loss apart in this way). The same holds for a while after the set of paths has changed:
//! the others get its packets in a burst. It has no rule for the way back, and its counters never
//! forget. Here they cover a window, and a path on standby is probed: it returns once of enough
//! packets a smaller share was lost than the threshold, by a factor. A path that relapses soon
//! needs twice as many each time. The last usable path stays, as in the seed.
//!
//! The peer is told by the path's status, as of every other path on standby.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;

use mpip_types::Instant;

use crate::parameters::LossStandbyParameters;
use crate::scheduler::PERIOD;

/// The unit of thresholds: shares as parts per million.
const MILLION: i64 = 1_000_000;

/// What the policy uses of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossView {
    /// The path's number.
    pub(crate) id: u16,
    /// The threshold of its interface, parts per million; `None` if it has none.
    pub(crate) threshold: Option<u32>,
    /// It carries packets.
    pub(crate) active: bool,
    /// It works, and nobody wants it on standby for another reason than its loss.
    pub(crate) free: bool,
    /// Packets sent so far that are acknowledged if they arrive.
    pub(crate) sent: u64,
    /// Those of them that were lost so far.
    pub(crate) lost: u64,
    /// What is lost now may have been dropped by a full queue.
    pub(crate) queued: bool,
    /// Its round-trip time.
    pub(crate) rtt: Duration,
}

/// The loss for which a path is on standby, or has just returned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossFigures {
    /// Loss of the window by which it was decided, as a share, 0 to 1.
    pub loss: f64,
    /// The threshold of its interface, as a share.
    pub threshold: f64,
    /// Loss since then on standby, of the last `packets`.
    pub recent: f64,
    /// Packets sent on standby that count for the way back.
    pub packets: u64,
    /// As many of them are needed.
    pub needed: u64,
    /// Loss of them below which it returns.
    pub returns_below: f64,
}

/// A share in percent, with two significant digits and without needless zeros: `10 %`, `0.01 %`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Percent(pub(crate) f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        // 0.0001 % is the smallest threshold.
        let places = (1.0 - percent.abs().max(0.000_1).log10().floor()).clamp(0.0, 5.0);
        let text = format!("{percent:.0$}", places as usize);
        let text = match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.'),
            false => &text,
        };
        write!(f, "{text} %")
    }
}

/// Packets of a time, and what was lost of them.
#[derive(Clone, Debug, Default)]
struct Window {
    /// When a period ended, with packets sent and lost in it. A loss that turns out to be none is
    /// counted back, so that a period may have fewer than none.
    periods: VecDeque<(Instant, i64, i64)>,
    sent: i64,
    lost: i64,
}

impl Window {
    fn add(&mut self, now: Instant, sent: i64, lost: i64) {
        self.periods.push_back((now, sent, lost));
        self.sent += sent;
        self.lost += lost;
    }

    /// Drops the oldest periods while `may_go`, by their age and by the packets that are then left.
    fn drop_while(&mut self, now: Instant, may_go: impl Fn(Duration, i64) -> bool) {
        while let Some((at, sent, lost)) = self.periods.front().copied()
            && may_go(now.since(at), self.sent - sent)
        {
            self.periods.pop_front();
            self.sent -= sent;
            self.lost -= lost;
        }
    }

    /// Lost packets; never fewer than none.
    fn lost(&self) -> i64 {
        self.lost.max(0)
    }

    fn share(&self) -> f64 {
        self.lost() as f64 / self.sent.max(1) as f64
    }
}

#[derive(Clone, Debug)]
struct Entry {
    id: u16,
    /// Counters at the end of the last period.
    sent: u64,
    lost: u64,
    window: Window,
    /// Until when losses may be due to its last queue.
    queued_until: Instant,
    /// Loss and threshold of the last decision.
    decided: (f64, u32),
    /// Loss on standby below which it returns, as a share.
    below: f64,
    /// Since when it is on standby.
    held: Option<Instant>,
    /// When it last returned.
    returned: Option<Instant>,
    /// Packets that the way back takes.
    needed: u32,
}

/// Which paths are on standby for their loss.
#[derive(Debug, Default)]
pub(crate) struct LossStandby {
    entries: Vec<Entry>,
    /// Until when nothing counts, because a path came or went.
    settled_at: Instant,
}

impl LossStandby {
    /// Whether path `id` is on standby for its loss.
    pub(crate) fn holds(&self, id: u16) -> bool {
        self.entries.iter().any(|entry| entry.id == id && entry.held.is_some())
    }

    /// Whether any path is.
    pub(crate) fn holds_any(&self) -> bool {
        self.entries.iter().any(|entry| entry.held.is_some())
    }

    /// The figures of path `id`, if it is on standby for its loss or was.
    pub(crate) fn figures(&self, id: u16) -> Option<LossFigures> {
        let entry = self.entries.iter().find(|entry| entry.id == id)?;
        let (loss, threshold) = entry.decided;
        let threshold = f64::from(threshold) / MILLION as f64;
        (entry.held.is_some() || entry.returned.is_some()).then(|| LossFigures {
            loss,
            threshold,
            recent: entry.window.share(),
            packets: entry.window.sent.unsigned_abs(),
            needed: u64::from(entry.needed),
            returns_below: entry.below,
        })
    }

    /// The figures of path `id` while it is on standby for its loss.
    pub(crate) fn of_held(&self, id: u16) -> Option<LossFigures> {
        if self.holds(id) { self.figures(id) } else { None }
    }

    /// The end of a period. Returns whether a path goes on standby or returns.
    pub(crate) fn on_period(
        &mut self,
        now: Instant,
        views: &[LossView],
        parameters: &LossStandbyParameters,
    ) -> bool {
        self.entries.retain(|entry| views.iter().any(|view| view.id == entry.id));
        let mut returns = false;
        for view in views {
            returns |= self.count(now, view, parameters);
        }
        let holds = self.hold_worst(now, views, parameters);
        if returns || holds {
            self.settled_at = now + parameters.settle;
        }
        returns || holds
    }

    /// Counts what a path has sent and lost in the period. Returns whether it returns.
    fn count(&mut self, now: Instant, view: &LossView, parameters: &LossStandbyParameters) -> bool {
        let Self { entries, settled_at } = self;
        let at = entries.iter().position(|entry| entry.id == view.id).unwrap_or_else(|| {
            entries.push(Entry {
                id: view.id,
                sent: view.sent,
                lost: view.lost,
                window: Window::default(),
                queued_until: now + parameters.settle,
                decided: (0.0, 0),
                below: 0.0,
                held: None,
                returned: None,
                needed: parameters.clean,
            });
            entries.len() - 1
        });
        let entry = &mut entries[at];
        let sent = view.sent.wrapping_sub(entry.sent) as i64;
        let lost = view.lost.wrapping_sub(entry.lost) as i64;
        (entry.sent, entry.lost) = (view.sent, view.lost);
        let Some(since) = entry.held else {
            match view.threshold.filter(|_| view.active) {
                Some(threshold) => {
                    if view.queued {
                        // What it drops is known after a round trip of the time of the queue, and
                        // it may drop until the end of the next period.
                        entry.queued_until = now + view.rtt * 2 + PERIOD;
                    }
                    let clear = now > entry.queued_until.max(*settled_at);
                    let (sent, lost) = if clear { (sent, lost) } else { (0, lost.min(0)) };
                    entry.window.add(now, sent, lost);
                    // The window shows a loss as small as the threshold if it has so many packets.
                    let resolves = MILLION / i64::from(threshold.max(1));
                    entry.window.drop_while(now, |age, left| {
                        age >= parameters.longest || age >= parameters.window && left >= resolves
                    });
                }
                None => entry.window = Window::default(),
            }
            return false;
        };
        let Some(threshold) = view.threshold else {
            entry.held = None;
            entry.window = Window::default();
            return true;
        };
        entry.decided.1 = threshold;
        entry.below = f64::from(threshold) / MILLION as f64 * parameters.back;
        // What was lost before is found out for a while.
        if now.since(since) < view.rtt * 2 {
            return false;
        }
        let needed = i64::from(entry.needed);
        entry.window.add(now, sent, lost);
        entry.window.drop_while(now, |_, left| left >= needed);
        let returns = entry.window.sent >= needed && entry.window.share() < entry.below;
        if returns {
            entry.release(now);
        }
        returns
    }

    /// Puts the paths on standby that reach their thresholds, the worst one first, as long as
    /// another one is left. Returns whether there were any.
    fn hold_worst(
        &mut self,
        now: Instant,
        views: &[LossView],
        parameters: &LossStandbyParameters,
    ) -> bool {
        let mut worst: Vec<(f64, u32, usize)> = Vec::new();
        for view in views.iter().filter(|view| view.active && view.free) {
            let at = self.entries.iter().position(|entry| entry.id == view.id);
            let (Some(at), Some(threshold)) = (at, view.threshold) else { continue };
            let entry = &self.entries[at];
            let Window { sent, .. } = entry.window;
            let reaches = entry.window.lost() * MILLION >= sent * i64::from(threshold);
            let counts = sent >= i64::from(parameters.enough) && entry.window.lost() > 0;
            if entry.held.is_none() && counts && reaches {
                worst.push((entry.window.share() / f64::from(threshold.max(1)), threshold, at));
            }
        }
        worst.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut any = false;
        for (_, threshold, at) in worst {
            let id = self.entries[at].id;
            let left = |view: &LossView| view.free && view.id != id && !self.holds(view.id);
            if views.iter().any(left) {
                self.entries[at].hold(now, threshold, parameters);
                any = true;
            }
        }
        any
    }
}

impl Entry {
    fn hold(&mut self, now: Instant, threshold: u32, parameters: &LossStandbyParameters) {
        self.decided = (self.window.share(), threshold);
        self.below = f64::from(threshold) / MILLION as f64 * parameters.back;
        let relapses = self.returned.is_some_and(|at| now.since(at) < parameters.relapse);
        self.needed = match relapses {
            true => (self.needed * 2).min(parameters.clean_most.max(parameters.clean)),
            false => parameters.clean,
        };
        self.held = Some(now);
        self.returned = None;
        self.window = Window::default();
    }

    fn release(&mut self, now: Instant) {
        self.decided.0 = self.window.share();
        self.held = None;
        self.returned = Some(now);
        self.window = Window::default();
    }
}

#[cfg(test)]
mod tests;
