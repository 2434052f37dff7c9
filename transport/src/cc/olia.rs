//! OLIA: opportunistic linked increases (Khalili et al., CoNEXT 2012;
//! draft-khalili-mptcp-congestion-control).
//!
//! Like LIA, but also shifts window from the paths with the largest windows to the best paths by
//! loss that have smaller windows.

use super::window::{Growth, LossWindow, coupled};
use super::{CongestionControl, CongestionEvent, RateSample, Subflow};
use mpip_types::Instant;

#[derive(Debug)]
pub(super) struct Olia {
    base: LossWindow,
    /// Bytes acknowledged between the last two losses, and since the last.
    between: u64,
    since: u64,
}

impl Olia {
    pub(super) fn new(max_datagram: u64) -> Self {
        Self { base: LossWindow::new(max_datagram), between: 0, since: 0 }
    }
}

/// Quality of a path: the square of the rate of a TCP flow at its loss ratio.
fn quality(flow: Subflow) -> f64 {
    let rtt = flow.rtt.as_secs_f64();
    flow.between_losses as f64 / (rtt * rtt)
}

/// The share of a packet per window that `own` gains from or gives to the other paths.
fn alpha(flows: impl Iterator<Item = Subflow> + Clone, own: Subflow) -> f64 {
    let paths = flows.clone().count() as f64;
    let best = flows.clone().map(quality).fold(0.0, f64::max);
    let widest = flows.clone().map(|flow| flow.window).max().unwrap_or(0);
    let is_widest = |flow: Subflow| flow.window >= widest;
    let is_collected = |flow: Subflow| quality(flow) >= best && !is_widest(flow);
    let collected = flows.clone().filter(|flow| is_collected(*flow)).count() as f64;
    if collected == 0.0 {
        0.0
    } else if is_collected(own) {
        1.0 / (paths * collected)
    } else if is_widest(own) {
        -1.0 / (paths * flows.filter(|flow| is_widest(*flow)).count() as f64)
    } else {
        0.0
    }
}

/// What one acknowledged byte adds, in bytes.
fn increase(flows: impl Iterator<Item = Subflow> + Clone, own: Subflow, packet: f64) -> f64 {
    let (window, rtt) = (own.window as f64, own.rtt.as_secs_f64());
    let sum: f64 = flows.clone().map(|flow| flow.window as f64 / flow.rtt.as_secs_f64()).sum();
    packet * (window / (rtt * rtt) / (sum * sum) + alpha(flows, own) / window)
}

impl CongestionControl for Olia {
    fn on_sent(&mut self, _now: Instant, bytes: u64, in_flight: u64) {
        self.base.on_sent(bytes, in_flight);
    }

    fn on_feedback(&mut self, sample: &RateSample, subflows: &[Subflow], own: usize) {
        self.since = self.since.saturating_add(sample.acked);
        if let Growth::Avoidance(acked) = self.base.on_feedback(sample, 1.0)
            && !sample.smoothed_rtt.is_zero()
        {
            let fresh = self.base.subflow(self.between_losses());
            let flows = coupled(subflows, own, fresh);
            self.base.grow(acked * increase(flows, fresh, self.base.max_datagram()));
        }
    }

    fn on_congestion(&mut self, event: &CongestionEvent, _subflows: &[Subflow], _own: usize) {
        if self.base.reduce(event, 0.5) {
            self.between = self.since;
            self.since = 0;
        }
    }

    fn on_spurious(&mut self, _now: Instant) {
        if self.base.undo() {
            self.since = self.since.saturating_add(self.between);
        }
    }

    fn window(&self) -> u64 {
        self.base.window() as u64
    }

    fn pacing_rate(&self) -> Option<u64> {
        self.base.pacing_rate()
    }

    fn between_losses(&self) -> u64 {
        self.between.max(self.since)
    }

    fn state(&self) -> &'static str {
        self.base.state()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn flow(window: u64, millis: u64, between_losses: u64) -> Subflow {
        Subflow {
            window,
            rtt: Duration::from_millis(millis),
            between_losses,
            reduced: None,
            drains: false,
            delivered: (0, 0),
        }
    }

    #[test]
    fn one_path_is_reno() {
        let own = flow(50_000, 20, 1);
        let gain = increase([own].into_iter(), own, 1000.0);
        assert!((gain * 50_000.0 - 1000.0).abs() < 1e-6);
    }

    #[test]
    fn windows_move_from_the_widest_path_to_the_best() {
        let (best, widest) = (flow(10_000, 100, 9_000_000), flow(30_000, 100, 1_000_000));
        let flows = [best, widest];
        assert_eq!(alpha(flows.into_iter(), best), 0.5);
        assert_eq!(alpha(flows.into_iter(), widest), -0.5);
        // 1000 * (1e6 / 1.6e11 + 0.5 / 1e4) bytes per byte.
        let gain = increase(flows.into_iter(), best, 1000.0);
        assert!((gain - 0.056_25).abs() < 1e-9, "{gain}");
    }

    #[test]
    fn best_path_that_is_widest_takes_from_nobody() {
        let flows = [flow(30_000, 100, 9_000_000), flow(10_000, 100, 1_000_000)];
        assert_eq!(alpha(flows.into_iter(), flows[0]), 0.0);
        assert_eq!(alpha(flows.into_iter(), flows[1]), 0.0);
    }
}
