//! BALIA: balanced linked adaptation (seed 003, section II.C;
//! draft-walid-mptcp-congestion-control).
//!
//! The increase as seed 003 prints it lacks a division by the path's RTT, without which one path
//! alone would not be Reno; and its loss formula gives the decrease, not what is left. Here both
//! are as in the draft.

use super::window::{Growth, LossWindow, coupled};
use super::{CongestionControl, CongestionEvent, RateSample, Subflow};
use mpip_types::Instant;

/// A loss takes at most this many halves of the window.
const MAX_DECREASE: f64 = 1.5;

#[derive(Debug)]
pub(super) struct Balia {
    base: LossWindow,
}

impl Balia {
    pub(super) fn new(max_datagram: u64) -> Self {
        Self { base: LossWindow::new(max_datagram) }
    }
}

/// The fastest path's rate over `own`'s, at least 1, and the sum of all rates in bytes/s.
fn rates(flows: impl Iterator<Item = Subflow>, own: Subflow) -> (f64, f64) {
    let (mut best, mut sum) = (0.0_f64, 0.0);
    for flow in flows {
        let rate = rate(flow);
        best = best.max(rate);
        sum += rate;
    }
    (best / rate(own), sum)
}

fn rate(flow: Subflow) -> f64 {
    flow.window as f64 / flow.rtt.as_secs_f64()
}

/// What one acknowledged byte adds, in bytes.
fn increase(own: Subflow, alpha: f64, sum: f64, packet: f64) -> f64 {
    let pull = rate(own) / own.rtt.as_secs_f64() / (sum * sum);
    packet * pull * (1.0 + alpha) / 2.0 * (4.0 + alpha) / 5.0
}

/// What a loss leaves of the window.
fn factor(alpha: f64) -> f64 {
    1.0 - alpha.min(MAX_DECREASE) / 2.0
}

impl CongestionControl for Balia {
    fn on_sent(&mut self, _now: Instant, bytes: u64, in_flight: u64) {
        self.base.on_sent(bytes, in_flight);
    }

    fn on_feedback(&mut self, sample: &RateSample, subflows: &[Subflow], own: usize) {
        if let Growth::Avoidance(acked) = self.base.on_feedback(sample, 1.0)
            && !sample.smoothed_rtt.is_zero()
        {
            let fresh = self.base.subflow(0);
            let (alpha, sum) = rates(coupled(subflows, own, fresh), fresh);
            self.base.grow(acked * increase(fresh, alpha, sum, self.base.max_datagram()));
        }
    }

    fn on_congestion(&mut self, event: &CongestionEvent, subflows: &[Subflow], own: usize) {
        let fresh = self.base.subflow(0);
        let alpha =
            if fresh.rtt.is_zero() { 1.0 } else { rates(coupled(subflows, own, fresh), fresh).0 };
        self.base.reduce(event, factor(alpha));
    }

    fn on_spurious(&mut self, _now: Instant) {
        self.base.undo();
    }

    fn window(&self) -> u64 {
        self.base.window() as u64
    }

    fn pacing_rate(&self) -> Option<u64> {
        self.base.pacing_rate()
    }

    fn state(&self) -> &'static str {
        self.base.state()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn flow(window: u64, millis: u64) -> Subflow {
        Subflow {
            window,
            rtt: Duration::from_millis(millis),
            between_losses: 0,
            reduced: None,
            drains: false,
            delivered: (0, 0),
        }
    }

    #[test]
    fn one_path_is_reno() {
        let own = flow(100_000, 40);
        let (alpha, sum) = rates([own].into_iter(), own);
        assert!((alpha - 1.0).abs() < 1e-12);
        // A whole window acknowledged adds one packet.
        assert!((increase(own, alpha, sum, 1000.0) * 100_000.0 - 1000.0).abs() < 1e-6);
        assert_eq!(factor(alpha), 0.5);
    }

    #[test]
    fn slower_path_grows_by_the_formula() {
        // Rates 200 kB/s and 100 kB/s: alpha of the second is 2.
        let own = flow(10_000, 100);
        let (alpha, sum) = rates([flow(20_000, 100), own].into_iter(), own);
        assert!((alpha - 2.0).abs() < 1e-12);
        assert!((sum - 300_000.0).abs() < 1e-6);
        // 1000 * (1e5 / 0.1 / 9e10) * 3/2 * 6/5 = 0.02 bytes per byte.
        assert!((increase(own, alpha, sum, 1000.0) - 0.02).abs() < 1e-12);
        assert_eq!(factor(alpha), 0.25, "1 - 1.5 / 2");
        assert!((factor(1.2) - 0.4).abs() < 1e-12);
    }
}
