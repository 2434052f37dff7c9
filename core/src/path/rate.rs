//! The delivery rate over an interval that is long enough to mean something.
//!
//! A sample by packet (draft-cheng-iccrg-delivery-rate-estimation) covers one round trip. Where
//! that is shorter than the bursts in which senders, token buckets and receivers work, it measures
//! those: a bucket of 32 kB passes at the speed of the machine and looks like gigabits. So a rate
//! is taken over no less than [`MIN_INTERVAL`].

use core::time::Duration;
use std::collections::VecDeque;

use crate::time::Instant;

/// Three times what a bucket of 32 kB holds at 100 Mbit/s.
const MIN_INTERVAL: Duration = Duration::from_millis(8);
/// History is kept in steps of this length.
const STEP: Duration = Duration::from_micros(500);
/// A path that delivered nothing for so long was not in use: what was before does not count.
const PAUSE: Duration = Duration::from_millis(100);

/// What was delivered when.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    delivered: u64,
}

/// Recent deliveries of a path.
#[derive(Debug, Default)]
pub(crate) struct DeliveryHistory {
    marks: VecDeque<Mark>,
    /// When there was last too little to send.
    app_limited_at: Option<Instant>,
}

impl DeliveryHistory {
    /// The application had nothing more to send at `now`.
    pub(crate) fn on_app_limited(&mut self, now: Instant) {
        self.app_limited_at = Some(now);
    }

    /// Notes that `delivered` bytes had arrived in all when feedback came at `now`.
    pub(crate) fn on_delivered(&mut self, now: Instant, delivered: u64) {
        match self.marks.back() {
            Some(last) if now.since(last.at) >= PAUSE => self.marks.clear(),
            Some(last) if now.since(last.at) < STEP => return,
            _ => {}
        }
        self.marks.push_back(Mark { at: now, delivered });
        // One mark older than the interval stays, to measure from.
        while self.marks.get(1).is_some_and(|mark| now.since(mark.at) >= MIN_INTERVAL) {
            self.marks.pop_front();
        }
    }

    /// The rate in bytes per second over the interval of a sample, which began at `from` with
    /// `prior` bytes delivered, made longer if it is too short. With it comes whether the sender
    /// lacked something to send in the part that was added. `None` if too little is known.
    pub(crate) fn rate(
        &self,
        now: Instant,
        delivered: u64,
        (interval, prior): (Duration, u64),
    ) -> Option<(u64, bool)> {
        if interval >= MIN_INTERVAL {
            return Some((per_second(delivered - prior, interval), false));
        }
        let mark = self.marks.front().filter(|mark| now.since(mark.at) >= MIN_INTERVAL)?;
        let limited = self.app_limited_at.is_some_and(|at| at >= mark.at);
        Some((per_second(delivered.saturating_sub(mark.delivered), now.since(mark.at)), limited))
    }
}

fn per_second(bytes: u64, interval: Duration) -> u64 {
    let nanos = interval.as_nanos().max(1);
    u64::try_from(u128::from(bytes) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The highest rate that is seen of a link of 12.5 MB/s behind a token bucket of 32 kB, when
    /// a burst of 21 ms arrives after a pause.
    #[test]
    fn a_token_bucket_does_not_look_like_a_fast_link() {
        let mut history = DeliveryHistory::default();
        let mut delivered = 0;
        let mut highest = 0;
        for burst in 0..10 {
            for packet in 0..200_u64 {
                // The first 22 packets pass at once, the others at the rate of the link.
                let micros = burst * 80_000 + packet.saturating_sub(22) * 120 + packet;
                let now = Instant::from_micros(1_000_000 + micros);
                delivered += 1_500;
                history.on_delivered(now, delivered);
                let sample = (Duration::from_micros(100), delivered - 1_500);
                if let Some((rate, _)) = history.rate(now, delivered, sample) {
                    highest = highest.max(rate);
                }
            }
        }
        assert!(highest < 12_500_000 * 3 / 2, "{highest} bytes/s");
        assert!(highest > 6_000_000, "{highest} bytes/s");
    }

    #[test]
    fn a_long_interval_is_measured_as_it_is() {
        let history = DeliveryHistory::default();
        let sample = (Duration::from_millis(100), 1_000);
        let rate = history.rate(Instant::from_millis(500), 11_000, sample);
        assert_eq!(rate, Some((100_000, false)));
    }

    #[test]
    fn a_short_interval_without_history_says_nothing() {
        let mut history = DeliveryHistory::default();
        let now = Instant::from_millis(500);
        history.on_delivered(now, 100_000);
        assert_eq!(history.rate(now, 100_000, (Duration::from_micros(50), 0)), None);
    }

    #[test]
    fn a_pause_within_the_longer_interval_is_told() {
        let mut history = DeliveryHistory::default();
        let ms = Instant::from_millis;
        for n in 0..20 {
            history.on_delivered(ms(1_000 + n), n * 10_000);
        }
        let sample = (Duration::from_millis(1), 180_000);
        let (rate, limited) = history.rate(ms(1_019), 190_000, sample).expect("known");
        assert!(rate.abs_diff(10_000_000) < 100_000 && !limited, "{rate}");
        history.on_app_limited(ms(1_015));
        let (_, limited) = history.rate(ms(1_019), 190_000, sample).expect("known");
        assert!(limited);
    }
}
