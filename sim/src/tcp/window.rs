//! The congestion window of a sender: cubic (RFC 9438) or reno (RFC 5681), with the ways of
//! counting acknowledgements that are in use (RFC 3465).

use super::hystart::HyStart;
use crate::clock::{Nanos, SECOND};
use crate::spec::{AckCounting, TcpAlgorithm, TcpControl};

/// RFC 9438, sections 4.1 and 4.6.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// RFC 5681, section 3.1.
const RENO_BETA: f64 = 0.5;
/// Initial window in segments (RFC 6928).
const INITIAL_SEGMENTS: f64 = 10.0;
/// Smallest window after a loss, in segments.
const MIN_SEGMENTS: f64 = 2.0;

/// The congestion window, in segments.
#[derive(Debug)]
pub(super) struct Window {
    kind: TcpControl,
    segments: f64,
    threshold: f64,
    /// W_max: the window before the last reduction.
    w_max: f64,
    /// K: seconds from the start of growth until the window is W_max again.
    k: f64,
    /// Start of growth after the last reduction.
    since: Option<Nanos>,
    /// W_est: the window that Reno would have (section 4.3).
    w_est: f64,
    /// Growth of W_est per acknowledged window.
    w_est_growth: f64,
    hystart: HyStart,
    /// Slow start follows a timeout; then one segment counts per acknowledgement (RFC 3465,
    /// section 2.3).
    after_timeout: bool,
    /// Window, threshold and `after_timeout` before the last recovery (`prior_cwnd`,
    /// `prior_ssthresh`).
    before: (f64, f64, bool),
}

impl Window {
    pub(super) fn new(kind: TcpControl) -> Self {
        Self {
            kind,
            segments: INITIAL_SEGMENTS,
            threshold: f64::INFINITY,
            w_max: 0.0,
            k: 0.0,
            since: None,
            w_est: 0.0,
            w_est_growth: 1.0,
            hystart: HyStart::default(),
            after_timeout: false,
            before: (INITIAL_SEGMENTS, f64::INFINITY, false),
        }
    }

    /// All bytes before the first of `bytes` are acknowledged, the newest segment after a
    /// round-trip time of `rtt`. No byte from the second on has been sent.
    pub(super) fn on_sample(&mut self, now: Nanos, rtt: Nanos, bytes: (u64, u64)) {
        if !self.kind.hystart {
            return;
        }
        let starts = self.segments < self.threshold;
        if self.hystart.on_ack(now, rtt, bytes, self.segments) && starts {
            self.threshold = self.segments;
        }
    }

    pub(super) fn bytes(&self, mss: usize) -> u64 {
        (self.segments * mss as f64) as u64
    }

    /// `acked` segments were acknowledged while the window limited the sender.
    pub(super) fn on_ack(&mut self, now: Nanos, acked: f64, rtt: Nanos) {
        let counting = self.kind.counting;
        if self.segments < self.threshold {
            let counted = match counting {
                AckCounting::Covered => acked,
                AckCounting::TwoSegments if !self.after_timeout => acked.min(2.0),
                AckCounting::TwoSegments | AckCounting::OneSegment => acked.min(1.0),
            };
            self.segments = (self.segments + counted).min(self.threshold);
            return;
        }
        self.after_timeout = false;
        let acked = if counting == AckCounting::OneSegment { acked.min(1.0) } else { acked };
        if self.kind.algorithm == TcpAlgorithm::Reno {
            self.segments += acked / self.segments;
            return;
        }
        let since = match self.since {
            Some(since) => since,
            None => {
                self.w_max = self.w_max.max(self.segments);
                self.k = ((self.w_max - self.segments) / C).cbrt();
                self.w_est = self.segments;
                *self.since.insert(now)
            }
        };
        let curve = |nanos: Nanos| {
            let seconds = nanos as f64 / SECOND as f64 - self.k;
            C * seconds.powi(3) + self.w_max
        };
        let passed = now.saturating_sub(since);
        let growth = if self.w_est >= self.w_max { 1.0 } else { self.w_est_growth };
        self.w_est += growth * acked / self.segments;
        if curve(passed) < self.w_est {
            self.segments = self.segments.max(self.w_est);
        } else {
            let target = curve(passed + rtt).clamp(self.segments, 1.5 * self.segments);
            self.segments += (target - self.segments) * acked / self.segments;
        }
    }

    /// Recovery begins.
    pub(super) fn on_loss(&mut self) {
        self.before = (self.segments, self.threshold, self.after_timeout);
        self.reduce();
    }

    /// Something was lost.
    pub(super) fn reduce(&mut self) {
        // Fast convergence (section 4.7).
        self.w_max = match self.segments < self.w_max {
            true => self.segments * (1.0 + BETA) / 2.0,
            false => self.segments,
        };
        let beta = if self.kind.algorithm == TcpAlgorithm::Reno { RENO_BETA } else { BETA };
        self.segments = (self.segments * beta).max(MIN_SEGMENTS);
        self.threshold = self.segments;
        self.w_est_growth = 3.0 * (1.0 - BETA) / (1.0 + BETA);
        self.since = None;
    }

    /// The retransmission timer expired, for the `first` time in this recovery. Growth is as if the
    /// window had never been larger (RFC 9438, section 4.8).
    pub(super) fn on_timeout(&mut self, first: bool) {
        if first {
            self.on_loss();
        }
        self.w_max = 0.0;
        self.segments = 1.0;
        self.after_timeout = true;
    }

    /// The losses of the last recovery were none (`tcp_undo_cwnd_reduction`).
    pub(super) fn on_undo(&mut self) {
        let (segments, threshold, after_timeout) = self.before;
        self.segments = self.segments.max(segments);
        self.threshold = self.threshold.max(threshold);
        self.after_timeout = after_timeout;
        self.since = None;
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
            assert_eq!(after_a_round_trip("cubic", bundle), 20_000);
        }
    }

    /// The window after the first 10 segments, acknowledged in bundles.
    fn after_a_round_trip(name: &str, bundle: f64) -> u64 {
        let mut window = Window::new(TcpControl::from_name(name).expect("a name"));
        for _ in 0..(10.0 / bundle) as u32 {
            window.on_ack(0, bundle, RTT);
        }
        window.bytes(1_000)
    }

    #[test]
    fn what_counts_of_a_bundle_is_limited_where_it_is() {
        let after = |name| [1.0, 2.0, 5.0].map(|bundle| after_a_round_trip(name, bundle));
        assert_eq!(after("reno"), [20_000; 3]);
        assert_eq!(after("reno-l2"), [20_000, 20_000, 14_000]);
        assert_eq!(after("cubic-l1"), [20_000, 15_000, 12_000]);
    }

    #[test]
    fn reno_halves_and_grows_by_a_segment_in_a_round_trip() {
        let mut window = Window::new(TcpControl::RENO);
        window.segments = 100.0;
        window.on_loss();
        assert_eq!(window.bytes(1_000), 50_000);
        for _ in 0..25 {
            window.on_ack(0, 2.0, RTT);
        }
        assert!((window.segments - 51.0).abs() < 0.02, "{}", window.segments);
    }

    /// RFC 9438, section 4.2: K = cbrt(W_max * (1 - beta) / C).
    #[test]
    fn the_window_before_the_loss_is_regained_after_k() {
        let mut window = Window::new(TcpControl::CUBIC);
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
        let mut window = Window::new(TcpControl::CUBIC);
        window.on_timeout(true);
        assert_eq!(window.bytes(1_000), 1_000);
        window.on_ack(0, 6.0, RTT);
        assert_eq!(window.bytes(1_000), 7_000);
        let mut window = Window::new(TcpControl::from_name("reno-l2").expect("a name"));
        window.on_timeout(true);
        window.on_ack(0, 2.0, RTT);
        assert_eq!(window.bytes(1_000), 2_000);
    }
}
