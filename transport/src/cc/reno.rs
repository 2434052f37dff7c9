//! NewReno: one packet more per round trip, half after a loss (RFC 5681; RFC 9002, section 7).

use super::window::{Growth, LossWindow};
use super::{CongestionControl, CongestionEvent, RateSample, Subflow};
use mpip_types::Instant;

/// RFC 9002, section 7.3.2.
const LOSS_FACTOR: f64 = 0.5;

#[derive(Debug)]
pub(super) struct Reno {
    base: LossWindow,
}

impl Reno {
    pub(super) fn new(max_datagram: u64) -> Self {
        Self { base: LossWindow::new(max_datagram) }
    }
}

impl CongestionControl for Reno {
    fn on_sent(&mut self, _now: Instant, bytes: u64, in_flight: u64) {
        self.base.on_sent(bytes, in_flight);
    }

    fn on_feedback(&mut self, sample: &RateSample, _subflows: &[Subflow], _own: usize) {
        if let Growth::Avoidance(acked) = self.base.on_feedback(sample, 1.0) {
            self.base.grow(acked * self.base.max_datagram() / self.base.window());
        }
    }

    fn on_congestion(&mut self, event: &CongestionEvent, _subflows: &[Subflow], _own: usize) {
        self.base.reduce(event, LOSS_FACTOR);
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
