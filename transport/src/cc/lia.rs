//! LIA: linked increases over the association's paths (RFC 6356; seed 002, section 2).
//!
//! All paths together take at a shared bottleneck what one TCP on the best of them would.

use super::window::{Growth, LossWindow, coupled};
use super::{CongestionControl, CongestionEvent, RateSample, Subflow};
use mpip_types::Instant;

#[derive(Debug)]
pub(super) struct Lia {
    base: LossWindow,
}

impl Lia {
    pub(super) fn new(max_datagram: u64) -> Self {
        Self { base: LossWindow::new(max_datagram) }
    }
}

/// Aggressiveness of the whole association and the sum of its windows in bytes
/// (RFC 6356, section 3, equation 2).
fn alpha(flows: impl Iterator<Item = Subflow>) -> (f64, f64) {
    let (mut total, mut best, mut sum) = (0.0, 0.0_f64, 0.0);
    for flow in flows {
        let (window, rtt) = (flow.window as f64, flow.rtt.as_secs_f64());
        total += window;
        best = best.max(window / (rtt * rtt));
        sum += window / rtt;
    }
    (total * best / (sum * sum), total)
}

impl CongestionControl for Lia {
    fn on_sent(&mut self, _now: Instant, bytes: u64, in_flight: u64) {
        self.base.on_sent(bytes, in_flight);
    }

    fn on_feedback(&mut self, sample: &RateSample, subflows: &[Subflow], own: usize) {
        if let Growth::Avoidance(acked) = self.base.on_feedback(sample, 1.0)
            && !sample.smoothed_rtt.is_zero()
        {
            let (alpha, total) = alpha(coupled(subflows, own, self.base.subflow(0)));
            // Equation 1: never more than a TCP of its own on this path.
            let per_byte = (alpha / total).min(1.0 / self.base.window());
            self.base.grow(acked * self.base.max_datagram() * per_byte);
        }
    }

    fn on_congestion(&mut self, event: &CongestionEvent, _subflows: &[Subflow], _own: usize) {
        self.base.reduce(event, 0.5);
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
    fn alpha_has_the_values_of_the_rfc() {
        // One path: alpha is 1, a TCP.
        let (one, total) = alpha([flow(10_000, 50)].into_iter());
        assert!((one - 1.0).abs() < 1e-12);
        assert_eq!(total, 10_000.0);
        // n equal paths: n w * (w / rtt^2) / (n w / rtt)^2 = 1 / n.
        let (two, _) = alpha([flow(10_000, 50); 2].into_iter());
        assert!((two - 0.5).abs() < 1e-12);
        // 20 kB at 100 ms and 10 kB at 50 ms: 30k * (10k / 0.0025) / (400k)^2.
        let (mixed, _) = alpha([flow(20_000, 100), flow(10_000, 50)].into_iter());
        assert!((mixed - 0.75).abs() < 1e-12);
    }
}
