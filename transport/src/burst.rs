//! How long bursts may be, so that the queue of a path holds them.
//!
//! A queue of a few packets drops the rear of a longer burst. That shows in where in their bursts
//! the lost packets were: random loss does not depend on it. A longer queue that overflows drops
//! the rear of bursts, too, but delays what comes after them, and shorter bursts would not help.

use core::time::Duration;

use crate::pacer::{MAX_BURST, time_for};
use crate::parameters::BurstParameters;
use mpip_types::Instant;

/// Longest burst as time at the pacing rate: long enough for one timer and one system call to serve
/// many packets, short enough for queues of a few milliseconds.
pub(crate) const QUANTUM: Duration = Duration::from_millis(1);
/// Number of halvings after which nearly every burst has two packets.
const MOST_HALVINGS: u8 = 5;

/// The longest bursts of a path.
#[derive(Clone, Debug)]
pub(crate) struct BurstLimit {
    parameters: BurstParameters,
    /// How often bursts were halved, and when that last changed.
    halvings: u8,
    changed: Instant,
    /// Packets lost without a queue, and how many of them left in the rear half of a burst.
    lost: u64,
    rear: u64,
}

impl BurstLimit {
    pub(crate) fn new(parameters: &BurstParameters) -> Self {
        let parameters = *parameters;
        Self { parameters, halvings: 0, changed: Instant::ZERO, lost: 0, rear: 0 }
    }

    /// The longest burst, as time at the pacing rate.
    pub(crate) fn quantum(&self) -> Duration {
        Duration::from_nanos(QUANTUM.as_nanos() as u64 >> self.halvings)
    }

    /// The delay of a call that is made up for, beside a burst: at most half of `min_rtt`, or one
    /// batch for the network device at `rate`, bytes/s. Where the processors are the limit every
    /// call is late, and what is made up for would stand as a queue.
    pub(crate) fn late(&self, min_rtt: Duration, rate: u64) -> Duration {
        let most = time_for(MAX_BURST, rate).max(min_rtt / 2);
        self.parameters.late.min(most) / (1 << self.halvings)
    }

    /// `lost` packets were found lost, `rear` of them from the rear half of a burst. What arrived
    /// after them had waited in the queue for `waited`.
    pub(crate) fn on_losses(&mut self, now: Instant, (lost, rear): (u64, u64), waited: Duration) {
        let BurstParameters { enabled, losses, share, .. } = self.parameters;
        if !enabled || waited > QUANTUM {
            return;
        }
        self.lost += lost;
        self.rear += rear;
        if self.lost < losses {
            return;
        }
        if self.rear as f64 >= share * self.lost as f64 && self.halvings < MOST_HALVINGS {
            self.set(now, self.halvings + 1);
        }
        (self.lost, self.rear) = (0, 0);
    }

    /// Tries bursts twice as long if it is time.
    pub(crate) fn refresh(&mut self, now: Instant) {
        if self.halvings > 0 && now.since(self.changed) >= self.parameters.again {
            self.set(now, self.halvings - 1);
        }
    }

    fn set(&mut self, now: Instant, halvings: u8) {
        self.halvings = halvings;
        self.changed = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_QUEUE: Duration = Duration::from_micros(300);

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1_000)
    }

    fn limit() -> BurstLimit {
        BurstLimit::new(&BurstParameters::default())
    }

    #[test]
    fn bursts_become_shorter_until_the_queue_holds_them() {
        let mut limit = limit();
        for halvings in 1..=MOST_HALVINGS {
            (0..5).for_each(|_| limit.on_losses(at(1), (5, 5), NO_QUEUE));
            assert_eq!(limit.quantum(), QUANTUM / (1 << halvings));
        }
        (0..5).for_each(|_| limit.on_losses(at(1), (5, 5), NO_QUEUE));
        assert_eq!(limit.quantum(), QUANTUM / (1 << MOST_HALVINGS), "two packets are left");
    }

    #[test]
    fn loss_anywhere_in_a_burst_leaves_them_as_they_are() {
        let mut limit = limit();
        (0..100).for_each(|_| limit.on_losses(at(1), (4, 3), NO_QUEUE));
        assert_eq!(limit.quantum(), QUANTUM);
    }

    #[test]
    fn a_queue_that_overflows_leaves_them_as_they_are() {
        let mut limit = limit();
        (0..100).for_each(|_| limit.on_losses(at(1), (5, 5), Duration::from_millis(2)));
        assert_eq!(limit.quantum(), QUANTUM);
    }

    #[test]
    fn what_is_made_up_for_is_half_an_rtt_or_a_batch_and_shorter_where_bursts_are() {
        let (mut limit, most) = (limit(), BurstParameters::default().late);
        let (far, near) = (Duration::from_millis(40), Duration::from_micros(500));
        let (slow, fast) = (1_000_000, 1_000_000_000);
        assert_eq!((limit.late(far, fast), limit.late(near, slow)), (most, most));
        assert_eq!(limit.late(near, fast), near / 2);
        assert_eq!(limit.late(near, fast / 10), time_for(MAX_BURST, fast / 10));
        limit.on_losses(at(1), (50, 50), NO_QUEUE);
        assert_eq!(limit.late(far, fast), most / 2);
    }

    #[test]
    fn longer_ones_are_tried_again_after_a_while() {
        let mut limit = limit();
        limit.on_losses(at(1), (50, 50), NO_QUEUE);
        limit.refresh(at(60));
        assert_eq!(limit.quantum(), QUANTUM / 2);
        limit.refresh(at(61));
        assert_eq!(limit.quantum(), QUANTUM);
    }
}
