//! A flow that keeps the bottleneck's queue full, and how to live beside it.
//!
//! A window of twice the path's volume takes whatever a loss-based flow leaves in a short buffer
//! and starves in a deep one (Ware et al., "Modeling BBR's interactions with loss-based congestion
//! control", IMC 2019). So what is asked is whose queue it is: a flow that has drained its own
//! share (ProbeRTT) and still finds the path as slow as before has a rival, and beside a rival the
//! window follows the rival's own rule, CUBIC, as Copa does in its competitive mode (Arun and
//! Balakrishnan, NSDI 2018). Paths that share the bottleneck count as one CUBIC flow together: they
//! grow by one share in all, and what one of them loses reduces all.

use core::time::Duration;

use crate::cc::control::others;
use crate::cc::cubic::Cubic;
use crate::cc::{CongestionControl, CongestionEvent, RateSample, Subflow};
use mpip_types::Instant;

/// A drained path this much slower than the empty one carries another's queue: a quarter of its
/// round trip, but no less than what a host's own pauses make.
const QUEUE_SHARE: u32 = 8;
const LEAST_QUEUE: Duration = Duration::from_millis(2);
/// The lowest round trip of all is below the lowest of a few packets by jitter: by 2 standard
/// deviations, if it is normal, of which neighbours differ by 1.1 on average.
const JITTERS: u32 = 4;
/// So often a path that competes is drained, to see whether the rival has gone.
const TEST_INTERVAL: Duration = Duration::from_secs(10);
/// A queue breathes. Tests that agree so often show a path that has become longer instead.
const AGREEMENTS: u32 = 3;
/// They agree when they differ by no more than this and this part of the round trip.
const AGREEMENT: Duration = Duration::from_micros(500);
const AGREEMENT_SHARE: u32 = 64;

/// What is known of others at the bottleneck.
#[derive(Debug, Default)]
pub(super) struct Rival {
    /// Lowest round-trip time, that of the empty path.
    base: Option<Duration>,
    /// The last one, and the moving average of how far neighbours differ: a queue changes slowly.
    last: Option<Duration>,
    jitter: Duration,
    /// What the last tests found, and how many in succession found the same.
    found: Option<(Duration, u32)>,
    window: Option<Window>,
}

/// The window while there is a rival.
#[derive(Debug)]
struct Window {
    cubic: Cubic,
    /// When the path was last drained, and when the window was last reduced.
    tested: Instant,
    reduced: Instant,
}

impl Rival {
    /// A round trip took `rtt`.
    pub(super) fn on_rtt(&mut self, rtt: Duration) {
        self.base = Some(self.base.map_or(rtt, |base| base.min(rtt)));
        let step = self.last.replace(rtt).map_or(Duration::ZERO, |last| last.abs_diff(rtt));
        self.jitter = (self.jitter * 15 + step) / 16;
    }

    /// Round-trip time of the empty path, as far as is known.
    pub(super) fn base(&self) -> Option<Duration> {
        self.base
    }

    /// Whether another's queue stands on a drained path whose fastest packet took `rtt`.
    pub(super) fn shows(&self, rtt: Duration) -> bool {
        let queue = |base: Duration| (base / QUEUE_SHARE).max(LEAST_QUEUE);
        self.base.is_some_and(|base| rtt > base + queue(base) + self.jitter * JITTERS)
    }

    /// The path was drained and its fastest packet took `rtt`. Beside a rival the window begins
    /// with `flight` bytes, in slow start if the rival has already taken what this flow had.
    /// Returns the round-trip time that the empty path is believed to have.
    pub(super) fn on_drained(
        &mut self,
        now: Instant,
        rtt: Duration,
        (flight, slow_start): (u64, bool),
        max_datagram: u64,
    ) -> Duration {
        let base = *self.base.get_or_insert(rtt);
        if !self.shows(rtt) {
            self.found = None;
            self.window = None;
            return rtt;
        }
        let agreement = AGREEMENT + base / AGREEMENT_SHARE;
        let (found, count) = match self.found {
            Some((found, count)) if found.abs_diff(rtt) <= agreement => (found, count + 1),
            _ => (rtt, 1),
        };
        self.found = Some((found, count));
        if count >= AGREEMENTS {
            *self = Self { base: Some(rtt), ..Self::default() };
            return rtt;
        }
        match &mut self.window {
            Some(window) => window.tested = now,
            None => {
                let cubic = Cubic::beside_a_rival(max_datagram, flight, slow_start);
                self.window = Some(Window { cubic, tested: now, reduced: now });
            }
        }
        base
    }

    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64) {
        if let Some(window) = &mut self.window {
            window.cubic.on_sent(now, bytes, in_flight);
        }
    }

    /// Feedback came; `subflows` share the bottleneck.
    pub(super) fn on_feedback(&mut self, sample: &RateSample, subflows: &[Subflow], own: usize) {
        let Some(window) = &mut self.window else { return };
        window.cubic.set_flows(subflows.len());
        window.cubic.on_feedback(sample, subflows, own);
        // What has cost another path of the group its window costs this one the same share, once
        // for each round trip.
        let newest = others(subflows, own).filter_map(|flow| flow.reduced).max();
        if newest.is_some_and(|at| at > window.reduced + sample.smoothed_rtt) {
            window.reduce(sample.now);
        }
    }

    /// The queue overflowed.
    pub(super) fn on_overflow(&mut self, now: Instant) {
        if let Some(window) = &mut self.window {
            window.reduce(now);
        }
    }

    pub(super) fn on_spurious(&mut self, now: Instant) {
        if let Some(window) = &mut self.window {
            window.cubic.on_spurious(now);
        }
    }

    /// Whether it is time to see whether the rival has gone.
    pub(super) fn test_due(&self, now: Instant) -> bool {
        self.window.as_ref().is_some_and(|window| now.since(window.tested) >= TEST_INTERVAL)
    }

    /// When the window was last reduced, for the other paths of the group.
    pub(super) fn reduced(&self) -> Option<Instant> {
        self.window.as_ref().map(|window| window.reduced)
    }

    /// The window in bytes and the pacing rate in bytes/s while there is a rival.
    pub(super) fn window(&self) -> Option<(f64, Option<f64>)> {
        let cubic = &self.window.as_ref()?.cubic;
        Some((cubic.window() as f64, cubic.pacing_rate().map(|rate| rate as f64)))
    }
}

impl Window {
    fn reduce(&mut self, now: Instant) {
        self.reduced = now;
        let event = CongestionEvent { now, sent: now, lost: 0, persistent: false, ecn: false };
        self.cubic.on_congestion(&event, &[], 0);
    }
}
