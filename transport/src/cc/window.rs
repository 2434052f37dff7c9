//! What loss-based controllers have in common: slow start, one reduction per recovery period,
//! undoing it, and pacing (RFC 9002, section 7; RFC 5681). Each has its own growth in congestion
//! avoidance.

use core::time::Duration;

use super::control::others;
use super::{CongestionEvent, INITIAL_WINDOW_PACKETS, RateSample, Subflow};
use mpip_types::Instant;

/// RFC 9002, section 7.2: two packets, so that one loss still leaves a packet to detect it by.
const MIN_WINDOW_PACKETS: u64 = 2;
/// Pacing as a multiple of window / RTT: enough to fill the window in spite of RTT variation
/// (RFC 9002, section 7.7), and to let it double in slow start.
const AVOIDANCE_PACING_GAIN: f64 = 1.25;
const SLOW_START_PACING_GAIN: f64 = 2.0;

/// What an acknowledgement did to the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Growth {
    /// No growth: the window was not used (RFC 9002, section 7.8).
    Unused,
    /// No growth: the packet had left before the last reduction.
    Recovery,
    /// It grew in slow start.
    SlowStart,
    /// Congestion avoidance: it may grow by the controller's rule for this many acknowledged bytes.
    Avoidance(f64),
}

/// A congestion window, in bytes (fractions are kept: in congestion avoidance a packet adds less
/// than a byte to a large window).
#[derive(Debug)]
pub(super) struct LossWindow {
    max_datagram: f64,
    window: f64,
    /// Slow start threshold.
    threshold: f64,
    /// Start of the recovery period: packets that left before belong to it.
    recovery_start: Option<Instant>,
    /// Whether the last feedback was for a packet sent before `recovery_start`.
    in_recovery: bool,
    smoothed_rtt: Duration,
    peak: FlightPeak,
    /// Window and threshold before the last reduction.
    prior: Option<(f64, f64)>,
}

impl LossWindow {
    pub(super) fn new(max_datagram: u64) -> Self {
        Self {
            max_datagram: max_datagram as f64,
            window: (INITIAL_WINDOW_PACKETS * max_datagram) as f64,
            threshold: f64::INFINITY,
            recovery_start: None,
            in_recovery: false,
            smoothed_rtt: Duration::ZERO,
            peak: FlightPeak::default(),
            prior: None,
        }
    }

    pub(super) fn on_sent(&mut self, bytes: u64, in_flight: u64) {
        self.peak.on_sent(in_flight + bytes);
    }

    /// Processes an acknowledgement; in slow start the window grows by the acknowledged bytes
    /// divided by `slow_start_divisor`.
    pub(super) fn on_feedback(&mut self, sample: &RateSample, slow_start_divisor: f64) -> Growth {
        self.smoothed_rtt = sample.smoothed_rtt;
        let peak = self.peak.on_feedback(sample) as f64;
        let sent = sample.now - sample.rtt.unwrap_or(sample.smoothed_rtt);
        self.in_recovery = self.recovery_start.is_some_and(|start| sent <= start);
        if self.in_recovery {
            return Growth::Recovery;
        }
        let slow_start = self.in_slow_start();
        let used = if slow_start {
            // In slow start, the data sent in the last round is half of the window.
            2.0 * peak >= self.window
        } else {
            peak + (3.0 * self.max_datagram).max(self.window / 8.0) >= self.window
        };
        if !used {
            return Growth::Unused;
        }
        let acked = sample.acked as f64;
        if !slow_start {
            return Growth::Avoidance(acked);
        }
        self.window = (self.window + acked / slow_start_divisor).min(self.threshold);
        Growth::SlowStart
    }

    /// Reduces the window to `factor` of itself, once per recovery period. Returns whether it did.
    pub(super) fn reduce(&mut self, event: &CongestionEvent, factor: f64) -> bool {
        let new_episode = self.recovery_start.is_none_or(|start| event.sent > start);
        if new_episode {
            self.prior = Some((self.window, self.threshold));
            self.threshold = (self.window * factor).max(self.min_window());
            self.window = self.threshold;
            self.recovery_start = Some(event.now);
            self.in_recovery = true;
        }
        if event.persistent {
            self.window = self.min_window();
            self.recovery_start = None;
            self.in_recovery = false;
        }
        new_episode
    }

    /// Undoes the last reduction (RFC 4015; RFC 9438, section 4.9; RFC 9002 leaves it open).
    /// Returns whether there was one.
    pub(super) fn undo(&mut self) -> bool {
        let Some((window, threshold)) = self.prior.take() else { return false };
        self.window = self.window.max(window);
        self.threshold = threshold;
        self.recovery_start = None;
        self.in_recovery = false;
        true
    }

    /// Adds `bytes`, which may be negative.
    pub(super) fn grow(&mut self, bytes: f64) {
        self.window = (self.window + bytes).max(self.min_window());
    }

    /// Sets the window to `bytes`, in slow start or congestion avoidance.
    pub(super) fn set(&mut self, bytes: u64, slow_start: bool) {
        self.window = (bytes as f64).max(self.min_window());
        self.threshold = if slow_start { f64::INFINITY } else { self.window };
    }

    /// Ends slow start.
    pub(super) fn end_slow_start(&mut self) {
        self.threshold = self.threshold.min(self.window);
    }

    pub(super) fn in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    pub(super) fn window(&self) -> f64 {
        self.window
    }

    pub(super) fn max_datagram(&self) -> f64 {
        self.max_datagram
    }

    /// This path's summary for a coupled controller.
    pub(super) fn subflow(&self, between_losses: u64) -> Subflow {
        Subflow {
            window: self.window as u64,
            rtt: self.smoothed_rtt,
            between_losses,
            reduced: None,
            drains: false,
            delivered: (0, 0),
        }
    }

    pub(super) fn pacing_rate(&self) -> Option<u64> {
        if self.smoothed_rtt.is_zero() {
            return None;
        }
        let gain =
            if self.in_slow_start() { SLOW_START_PACING_GAIN } else { AVOIDANCE_PACING_GAIN };
        Some((gain * self.window / self.smoothed_rtt.as_secs_f64()) as u64)
    }

    pub(super) fn state(&self) -> &'static str {
        if self.in_recovery {
            "recovery"
        } else if self.in_slow_start() {
            "slow-start"
        } else {
            "congestion-avoidance"
        }
    }

    fn min_window(&self) -> f64 {
        MIN_WINDOW_PACKETS as f64 * self.max_datagram
    }
}

/// Most bytes in flight in this round trip and the one before.
#[derive(Debug, Default)]
struct FlightPeak {
    current: u64,
    last: u64,
    /// `delivered` at which the round trip ends.
    round_end: u64,
}

impl FlightPeak {
    fn on_sent(&mut self, in_flight: u64) {
        self.current = self.current.max(in_flight);
    }

    fn on_feedback(&mut self, sample: &RateSample) -> u64 {
        self.current = self.current.max(sample.prior_in_flight);
        let peak = self.current.max(self.last);
        if sample.prior_delivered >= self.round_end {
            self.round_end = sample.delivered;
            self.last = self.current;
            self.current = sample.in_flight;
        }
        peak
    }
}

/// The coupled paths, with `fresh` in place of this path's list entry.
///
/// Paths without an RTT are left out: nothing has been delivered on them yet.
pub(super) fn coupled(
    subflows: &[Subflow],
    own: usize,
    fresh: Subflow,
) -> impl Iterator<Item = Subflow> + Clone + '_ {
    others(subflows, own)
        .filter(|flow| !flow.rtt.is_zero() && flow.window > 0)
        .copied()
        .chain(core::iter::once(fresh))
}
