//! No congestion control: the seeds' MPIP leaves it to the inner TCP.

use super::{CongestionControl, CongestionEvent, RateSample, Subflow};
use mpip_types::Instant;

/// Does not limit anything.
#[derive(Debug)]
pub(super) struct None;

impl CongestionControl for None {
    fn on_sent(&mut self, _now: Instant, _bytes: u64, _in_flight: u64) {}

    fn on_feedback(&mut self, _sample: &RateSample, _subflows: &[Subflow], _own: usize) {}

    fn on_congestion(&mut self, _event: &CongestionEvent, _subflows: &[Subflow], _own: usize) {}

    fn on_spurious(&mut self, _now: Instant) {}

    fn window(&self) -> u64 {
        u64::MAX
    }

    fn pacing_rate(&self) -> Option<u64> {
        Option::None
    }

    fn state(&self) -> &'static str {
        "none"
    }
}
