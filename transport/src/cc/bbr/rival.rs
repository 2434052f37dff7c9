//! Competing with a loss-based flow that keeps the bottleneck's queue full.
//!
//! A window of two bandwidth-delay products displaces a loss-based flow at a shallow buffer and
//! starves at a deep one (Ware et al., "Modeling BBR's interactions with loss-based congestion
//! control", IMC 2019). If the RTT stays high in ProbeRTT, when this flow's own queue has drained,
//! then the queue belongs to a rival. Beside a rival the window follows CUBIC, as in Copa's
//! competitive mode (Arun and Balakrishnan, NSDI 2018). Paths that share the bottleneck count as
//! one CUBIC flow: together they grow by one share, and a loss on one of them reduces all.

use core::time::Duration;

use crate::cc::control::others;
use crate::cc::cubic::Cubic;
use crate::cc::{CongestionControl, CongestionEvent, RateSample, Subflow};
use mpip_types::Instant;

/// Queuing delay in ProbeRTT from which there is a rival: this part of the minimum RTT, and at
/// least the delay that pauses of a host cause.
const QUEUE_SHARE: u32 = 8;
const LEAST_QUEUE: Duration = Duration::from_millis(2);
/// Allowance for jitter, in mean differences of neighbouring samples. The minimum over all time
/// lies below the minimum of a few packets by about 2 standard deviations if jitter is normal;
/// neighbours differ by 1.1 of these on average.
const JITTERS: u32 = 4;
/// Interval between ProbeRTTs while competing, to find out whether the rival has gone.
const TEST_INTERVAL: Duration = Duration::from_secs(10);
/// Equal results in a row from which on the path itself has become longer: a queue would vary.
const AGREEMENTS: u32 = 3;
/// Results are equal when they differ by no more than this plus this part of the minimum RTT.
const AGREEMENT: Duration = Duration::from_micros(500);
const AGREEMENT_SHARE: u32 = 64;

/// Detects a competing flow and holds the window for competing with it.
#[derive(Debug, Default)]
pub(super) struct Rival {
    /// Minimum RTT, that of the empty path.
    base: Option<Duration>,
    /// Last RTT sample, and moving average of the difference of neighbouring samples. A queue
    /// changes slowly, so this is jitter.
    last: Option<Duration>,
    jitter: Duration,
    /// RTT that the last ProbeRTTs found, and how many in a row found the same.
    found: Option<(Duration, u32)>,
    window: Option<Window>,
}

/// The CUBIC window while there is a rival.
#[derive(Debug)]
struct Window {
    cubic: Cubic,
    /// When ProbeRTT last tested for the rival, and when the window was last reduced.
    tested: Instant,
    reduced: Instant,
}

impl Rival {
    /// Takes an RTT sample.
    pub(super) fn on_rtt(&mut self, rtt: Duration) {
        self.base = Some(self.base.map_or(rtt, |base| base.min(rtt)));
        let step = self.last.replace(rtt).map_or(Duration::ZERO, |last| last.abs_diff(rtt));
        self.jitter = (self.jitter * 15 + step) / 16;
    }

    /// Minimum RTT, that of the empty path; `None` before the first sample.
    pub(super) fn base(&self) -> Option<Duration> {
        self.base
    }

    /// Whether `rtt`, the minimum in ProbeRTT, shows the queue of a rival.
    pub(super) fn shows(&self, rtt: Duration) -> bool {
        let queue = |base: Duration| (base / QUEUE_SHARE).max(LEAST_QUEUE);
        self.base.is_some_and(|base| rtt > base + queue(base) + self.jitter * JITTERS)
    }

    /// ProbeRTT has ended with `rtt` as its minimum. Beside a rival the window starts at `flight`
    /// bytes, in slow start if the rival has already displaced this flow. Returns the estimated RTT
    /// of the empty path.
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
                let cubic = Cubic::beside_rival(max_datagram, flight, slow_start);
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

    /// Whether ProbeRTT is due, to find out whether the rival has gone.
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
