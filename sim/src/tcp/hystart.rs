//! HyStart, which ends slow start when a queue builds up, as in the cubic of Linux ("Taming the
//! elephants", Ha and Rhee, 2011). The condition on the delay is that of RFC 9406.

use crate::clock::{MILLI, Nanos};

/// Window below which slow start does not end, in segments.
const MIN_WINDOW: f64 = 16.0;
/// RTT samples of a round before their minimum is compared.
const SAMPLES: u32 = 8;
/// Bounds of the delay increase that ends slow start, which is 1/8 of the minimum RTT.
const THRESHOLD: (Nanos, Nanos) = (4 * MILLI, 16 * MILLI);
/// Largest gap between the acknowledgements of a train.
const SPACING: Nanos = 2 * MILLI;

/// State of the current round.
#[derive(Debug, Default)]
pub(super) struct HyStart {
    /// Minimum RTT of the connection.
    min_rtt: Option<Nanos>,
    /// The round ends when a byte above this one is acknowledged.
    end: u64,
    began: Nanos,
    /// Time of the last acknowledgement of the train.
    train: Nanos,
    samples: u32,
    /// Minimum RTT of the round.
    round_min_rtt: Nanos,
}

impl HyStart {
    /// All bytes before `acked` are acknowledged, the newest segment after a round-trip time of
    /// `rtt`. No byte from `next` on has been sent. `window` is in segments. Returns whether slow
    /// start should end.
    pub(super) fn on_ack(
        &mut self,
        now: Nanos,
        rtt: Nanos,
        (acked, next): (u64, u64),
        window: f64,
    ) -> bool {
        let min_rtt = self.min_rtt.map_or(rtt, |min_rtt| min_rtt.min(rtt));
        self.min_rtt = Some(min_rtt);
        if acked > self.end {
            *self = Self {
                min_rtt: self.min_rtt,
                end: next,
                began: now,
                train: now,
                samples: 0,
                round_min_rtt: Nanos::MAX,
            };
        }
        if window < MIN_WINDOW {
            return false;
        }
        if now.saturating_sub(self.train) <= SPACING {
            self.train = now;
            if now.saturating_sub(self.began) > min_rtt / 2 {
                return true;
            }
        }
        self.round_min_rtt = self.round_min_rtt.min(rtt);
        if self.samples < SAMPLES {
            self.samples += 1;
            return false;
        }
        self.round_min_rtt > min_rtt + (min_rtt / 8).clamp(THRESHOLD.0, THRESHOLD.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of `acks` acknowledgements, `apart` from each other, in which a round trip takes
    /// `rtt`.
    fn round(hystart: &mut HyStart, start: u64, acks: u64, apart: Nanos, rtt: Nanos) -> bool {
        let now = start * 1_000 * MILLI;
        let acked = |ack: u64| start * 1_000 + 1 + ack;
        (0..acks).any(|ack| {
            hystart.on_ack(now + ack * apart, rtt, (acked(ack), (start + 1) * 1_000), 20.0)
        })
    }

    #[test]
    fn a_longer_round_trip_ends_slow_start_after_eight_samples() {
        let mut hystart = HyStart::default();
        assert!(!round(&mut hystart, 0, 20, 5 * MILLI, 50 * MILLI));
        assert!(!round(&mut hystart, 1, 20, 5 * MILLI, 56 * MILLI));
        assert!(!round(&mut hystart, 2, 8, 5 * MILLI, 90 * MILLI));
        assert!(!round(&mut hystart, 3, 8, 5 * MILLI, 90 * MILLI));
        assert!(round(&mut hystart, 4, 9, 5 * MILLI, 57 * MILLI));
    }

    #[test]
    fn a_train_of_half_a_round_trip_ends_slow_start() {
        let mut hystart = HyStart::default();
        assert!(!round(&mut hystart, 0, 20, MILLI, 50 * MILLI));
        assert!(round(&mut hystart, 1, 30, MILLI, 50 * MILLI));
    }
}
