//! One round trip of BBR's packet-timed rounds.

use core::time::Duration;

use crate::cc::RttSum;
use mpip_types::Instant;

/// Loss ratio of a round that is tolerated, beyond the random loss (the draft's `BBRLossThresh`).
const LOSS_THRESHOLD: f64 = 0.02;
/// Packets lost, and loss ratio, from which the late packets of a round show an overflow. The ratio
/// is half of what a probe sends in excess.
const LATE_LOSSES: u64 = 6;
const LATE_THRESHOLD: f64 = 0.1;
/// Duration of a round, in flight times, from which its rate may be measured as a whole. A shorter
/// one may be a burst of delayed feedback.
const LONG_ROUND: f64 = 4.0;
/// Share of the pacing rate from which it counts as fully used.
const USED_SHARE: f64 = 0.9;

/// What was sent, acknowledged and lost in the current round trip.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) start: Instant,
    /// Value of `delivered` when it began.
    pub(super) delivered: u64,
    pub(super) acked: u64,
    pub(super) lost: u64,
    /// Ranges of consecutive packets that were lost.
    pub(super) lost_ranges: u64,
    /// The part of both that was reported together with packets that had waited in a queue.
    pub(super) late_acked: u64,
    pub(super) late_lost: u64,
    pub(super) ecn: bool,
    /// Whether packets arrived slower than they left.
    pub(super) stretched: bool,
    pub(super) fastest: Option<Duration>,
    /// RTTs of all packets before the round.
    pub(super) before: RttSum,
    pub(super) peak_flight: u64,
    /// Bytes sent, and bytes that pacing permitted.
    pub(super) sent: u64,
    pub(super) allowance: f64,
    /// Whether the window was full at some time.
    pub(super) window_full: bool,
    /// Sum of rate x weight, and of weights.
    pub(super) rate_sum: f64,
    pub(super) rate_weight: f64,
}

impl Round {
    pub(super) fn new(start: Instant, delivered: u64, in_flight: u64) -> Self {
        Self {
            start,
            delivered,
            acked: 0,
            lost: 0,
            lost_ranges: 0,
            late_acked: 0,
            late_lost: 0,
            ecn: false,
            stretched: false,
            fastest: None,
            before: RttSum::default(),
            peak_flight: in_flight,
            sent: 0,
            allowance: 0.0,
            window_full: false,
            rate_sum: 0.0,
            rate_weight: 0.0,
        }
    }

    /// Delivery rate of the round: the mean of its samples, or the rate over the whole round if it
    /// lasted for many flight times (samples then cover single bursts of the sender).
    pub(super) fn rate(&self, now: Instant, flight_time: f64) -> Option<f64> {
        if self.rate_weight == 0.0 {
            return None;
        }
        let mean = self.rate_sum / self.rate_weight;
        let seconds = now.since(self.start).as_secs_f64();
        let whole =
            if seconds >= LONG_ROUND * flight_time { self.acked as f64 / seconds } else { 0.0 };
        Some(mean.max(whole))
    }

    /// What the path lets through of `rate`.
    pub(super) fn passed(&self, rate: f64) -> f64 {
        rate * self.acked as f64 / (self.acked + self.lost).max(1) as f64
    }

    /// Whether the sender used the window or the pacing rate fully. Otherwise the round does not
    /// measure the path: the scheduler preferred other paths, or the sender woke late.
    pub(super) fn used(&self) -> bool {
        self.window_full || self.sent as f64 >= USED_SHARE * self.allowance
    }

    /// Whether a queue overflowed, or marked packets (ECN).
    ///
    /// A queue that overflows is full. It delays every packet of the round; if it filled within the
    /// round, it delays those that left together with the lost ones. Random loss on a radio link
    /// does not depend on the queue. So loss counts only among packets that were clearly late, and
    /// only beyond the random loss (by two standard deviations, as a round has few packets).
    pub(super) fn overflowed(&self, late: bool, random_loss: f64, packet: u64) -> bool {
        let whole = (self.acked, self.lost);
        let behind = (self.late_acked, self.late_lost);
        self.ecn
            || (late && exceeds(whole, random_loss, LOSS_THRESHOLD, packet))
            || (self.late_lost >= LATE_LOSSES * packet
                && exceeds(behind, random_loss, LATE_THRESHOLD, packet))
    }

    /// Bytes lost and bytes acknowledged without a queue.
    pub(super) fn on_time(&self) -> (u64, u64) {
        (self.lost - self.late_lost, self.acked - self.late_acked)
    }

    /// Whether more than the random loss was lost, or packets were marked (ECN).
    pub(super) fn lost_more(&self, random_loss: f64, packet: u64) -> bool {
        self.ecn || exceeds((self.acked, self.lost), random_loss, 0.0, packet)
    }
}

fn exceeds((acked, lost): (u64, u64), random_loss: f64, threshold: f64, packet: u64) -> bool {
    let total = (acked + lost) as f64;
    let noise = 2.0 * (random_loss * packet as f64 / total.max(1.0)).sqrt();
    lost as f64 > total * (random_loss + threshold + noise)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 1_500;

    /// A round of 200 packets, 100 of them late. `lost_late` and `lost_on_time` of each half are
    /// lost.
    fn round(lost_late: u64, lost_on_time: u64) -> Round {
        Round {
            acked: (200 - lost_late - lost_on_time) * PACKET,
            lost: (lost_late + lost_on_time) * PACKET,
            late_acked: (100 - lost_late) * PACKET,
            late_lost: lost_late * PACKET,
            ..Round::new(Instant::ZERO, 0, 0)
        }
    }

    #[test]
    fn a_queue_that_overflows_in_the_middle_of_a_round_is_noticed() {
        assert!(round(30, 0).overflowed(false, 0.0, PACKET));
        assert!(!round(0, 30).overflowed(false, 0.0, PACKET));
        assert_eq!(round(30, 2).on_time(), (2 * PACKET, 98 * PACKET));
    }

    #[test]
    fn random_loss_of_late_packets_is_no_overflow() {
        assert!(!round(12, 12).overflowed(false, 0.1, PACKET));
        assert!(round(40, 12).overflowed(false, 0.1, PACKET));
    }

    #[test]
    fn a_handful_of_losses_says_nothing() {
        assert!(!round(5, 0).overflowed(false, 0.0, PACKET));
    }
}
