//! The end of slow start where a queue begins: HyStart as Linux has it in its cubic ("Taming the
//! elephants", Ha and Rhee, 2011; RFC 9406 says the same of the delay).

use crate::clock::{MILLI, Nanos};

/// Smaller windows are not judged, segments.
const LEAST_WINDOW: f64 = 16.0;
/// So many samples of a round trip are taken before it is judged by their least.
const SAMPLES: u32 = 8;
/// A queue is an eighth of the round trip, within these bounds.
const THRESHOLD: (Nanos, Nanos) = (4 * MILLI, 16 * MILLI);
/// Acknowledgements so close to each other are a train.
const SPACING: Nanos = 2 * MILLI;

/// What is known of the present round trip.
#[derive(Clone, Debug, Default)]
pub(super) struct HyStart {
    /// The least round-trip time of all.
    lowest: Option<Nanos>,
    /// What ends the round: a byte above this one is acknowledged.
    end: u64,
    began: Nanos,
    /// The last acknowledgement of the train.
    train: Nanos,
    samples: u32,
    least: Nanos,
}

impl HyStart {
    /// Everything before `acked` is acknowledged, a segment after a time of `took`; `next` is the first byte
    /// that was never sent, `window` in segments. Returns whether slow start is to end.
    pub(super) fn on_ack(
        &mut self,
        now: Nanos,
        took: Nanos,
        (acked, next): (u64, u64),
        window: f64,
    ) -> bool {
        let lowest = self.lowest.map_or(took, |lowest| lowest.min(took));
        self.lowest = Some(lowest);
        if acked > self.end {
            *self = Self {
                lowest: self.lowest,
                end: next,
                began: now,
                train: now,
                samples: 0,
                least: Nanos::MAX,
            };
        }
        if window < LEAST_WINDOW {
            return false;
        }
        if now.saturating_sub(self.train) <= SPACING {
            self.train = now;
            if now.saturating_sub(self.began) > lowest / 2 {
                return true;
            }
        }
        self.least = self.least.min(took);
        if self.samples < SAMPLES {
            self.samples += 1;
            return false;
        }
        self.least > lowest + (lowest / 8).clamp(THRESHOLD.0, THRESHOLD.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of `acks` acknowledgements, `apart` from each other, in which a round trip takes `took`.
    fn round(hystart: &mut HyStart, start: u64, acks: u64, apart: Nanos, took: Nanos) -> bool {
        let now = start * 1_000 * MILLI;
        let acked = |ack: u64| start * 1_000 + 1 + ack;
        (0..acks).any(|ack| {
            hystart.on_ack(now + ack * apart, took, (acked(ack), (start + 1) * 1_000), 20.0)
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
