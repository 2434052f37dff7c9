//! The congestion window of a sender: cubic (RFC 9438), counted in bytes (RFC 3465).

use super::hystart::HyStart;
use crate::clock::{Nanos, SECOND};

/// RFC 9438, sections 4.1 and 4.6.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// RFC 6928.
const INITIAL_SEGMENTS: f64 = 10.0;
const LEAST_SEGMENTS: f64 = 2.0;

/// How much a sender may have in flight, in segments.
#[derive(Clone, Debug)]
pub(super) struct Window {
    segments: f64,
    threshold: f64,
    /// What it was when something was lost last, and seconds until it is that again.
    highest: f64,
    plateau: f64,
    /// When it began to grow from the last reduction.
    since: Option<Nanos>,
    /// What Reno would have now (section 4.3).
    reno: f64,
    /// Reno's growth for each window that is acknowledged.
    reno_growth: f64,
    hystart: HyStart,
}

impl Window {
    pub(super) fn new() -> Self {
        Self {
            segments: INITIAL_SEGMENTS,
            threshold: f64::INFINITY,
            highest: 0.0,
            plateau: 0.0,
            since: None,
            reno: 0.0,
            reno_growth: 1.0,
            hystart: HyStart::default(),
        }
    }

    /// Everything before the first of `bytes` is acknowledged, a segment after a time of `took`; the
    /// second was never sent.
    pub(super) fn on_sample(&mut self, now: Nanos, took: Nanos, bytes: (u64, u64)) {
        let starts = self.segments < self.threshold;
        if self.hystart.on_ack(now, took, bytes, self.segments) && starts {
            self.threshold = self.segments;
        }
    }

    pub(super) fn bytes(&self, mss: usize) -> u64 {
        (self.segments * mss as f64) as u64
    }

    /// `acked` segments arrived of a flight that filled the window.
    pub(super) fn on_ack(&mut self, now: Nanos, acked: f64, rtt: Nanos) {
        if self.segments < self.threshold {
            self.segments = (self.segments + acked).min(self.threshold);
            return;
        }
        let since = match self.since {
            Some(since) => since,
            None => {
                self.highest = self.highest.max(self.segments);
                self.plateau = ((self.highest - self.segments) / C).cbrt();
                self.reno = self.segments;
                *self.since.insert(now)
            }
        };
        let curve = |nanos: Nanos| {
            let seconds = nanos as f64 / SECOND as f64 - self.plateau;
            C * seconds.powi(3) + self.highest
        };
        let passed = now.saturating_sub(since);
        let growth = if self.reno >= self.highest { 1.0 } else { self.reno_growth };
        self.reno += growth * acked / self.segments;
        if curve(passed) < self.reno {
            self.segments = self.segments.max(self.reno);
        } else {
            let target = curve(passed + rtt).clamp(self.segments, 1.5 * self.segments);
            self.segments += (target - self.segments) * acked / self.segments;
        }
    }

    /// Something was lost, for the first time in a round trip.
    pub(super) fn on_loss(&mut self) {
        // Section 4.7: who has less than before makes room for another.
        self.highest = match self.segments < self.highest {
            true => self.segments * (1.0 + BETA) / 2.0,
            false => self.segments,
        };
        self.segments = (self.segments * BETA).max(LEAST_SEGMENTS);
        self.threshold = self.segments;
        self.reno_growth = 3.0 * (1.0 - BETA) / (1.0 + BETA);
        self.since = None;
    }

    /// Nothing was acknowledged for a whole time-out.
    pub(super) fn on_timeout(&mut self) {
        self.on_loss();
        self.segments = 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MILLI;

    const RTT: Nanos = 100 * MILLI;

    #[test]
    fn slow_start_doubles_in_a_round_trip_however_acknowledgements_are_bundled() {
        for bundle in [1.0, 2.0, 10.0] {
            let mut window = Window::new();
            for _ in 0..(10.0 / bundle) as u32 {
                window.on_ack(0, bundle, RTT);
            }
            assert_eq!(window.bytes(1_000), 20_000);
        }
    }

    /// RFC 9438, section 4.2: K = cbrt(W_max * (1 - beta) / C).
    #[test]
    fn what_was_lost_is_regained_after_k() {
        let mut window = Window::new();
        window.segments = 1_000.0;
        window.on_loss();
        assert!((window.segments - 700.0).abs() < 0.1);
        let k = (1_000.0 * (1.0 - BETA) / C).cbrt();
        let mut now = 0;
        while (now as f64) < k * SECOND as f64 {
            window.on_ack(now, window.segments, RTT);
            now += RTT;
        }
        assert!((window.segments - 1_000.0).abs() < 5.0, "{} after {k} s", window.segments);
    }

    #[test]
    fn a_timeout_starts_from_one_segment() {
        let mut window = Window::new();
        window.on_timeout();
        assert_eq!(window.bytes(1_000), 1_000);
        window.on_ack(0, 6.0, RTT);
        assert_eq!(window.bytes(1_000), 7_000);
    }
}
