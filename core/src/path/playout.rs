//! The delay after which full packets of a path that jitters are to be delivered.

use super::{Path, PathState};
use crate::time::Instant;

/// Mean deviation of the delay, µs, below which a path is taken as even again, and from which on as
/// uneven: HyStart takes 4 ms for a queue (RFC 9406, section 4.3).
const PLAYOUT_JITTER: (i64, i64) = (1_500, 2_500);
/// Weight of what a period shows of the usual delay, as a divisor.
const PLAYOUT_AVERAGE: i64 = 8;

impl Path {
    /// The usual delay of the path and a deviation, if it jitters; called every 100 ms.
    ///
    /// Samples of the one-way delay are of packets that overtook others, so what all packets take
    /// longer counts to it. Half of the deviation's square is the way back's.
    pub(crate) fn update_playout(&mut self) {
        let from = if self.playout.is_some() { PLAYOUT_JITTER.0 } else { PLAYOUT_JITTER.1 };
        self.playout = self.flight.reordering().and_then(|(longer, deviation)| {
            let deviation =
                (deviation.as_micros() as i64 * 7 / 10).max(self.delay.jitter().as_micros() as i64);
            let average = self.delay.average().filter(|_| deviation >= from)?;
            // A normal distribution's standard deviation is 1.25 times its mean deviation.
            let target = average + longer.as_micros() as i64 + deviation * 5 / 4;
            let former = self.playout.unwrap_or(target);
            Some(former + (target - former) / PLAYOUT_AVERAGE)
        });
    }

    /// Whether the path jitters so much that full packets are told when to be delivered.
    pub(crate) fn is_uneven(&self) -> bool {
        self.state == PathState::Active && self.playout.is_some()
    }

    /// When a packet that leaves now is to be delivered at the earliest: microseconds of the peer's
    /// clock, modulo 2^32. `reference` is that of the association's delay samples. `None` on a path
    /// without much jitter.
    pub(crate) fn playout(&self, now: Instant, reference: Option<u32>) -> Option<u32> {
        let at = (now.as_micros() as u32).wrapping_add(reference?);
        Some(at.wrapping_add_signed(self.playout? as i32))
    }
}
