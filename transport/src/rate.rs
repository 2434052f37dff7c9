//! Delivery rate over a sufficiently long interval.
//!
//! A rate sample (draft-cheng-iccrg-delivery-rate-estimation) covers one round trip. Senders, token
//! buckets and receivers work in bursts. If these are longer than the round trip, the sample
//! measures the burst: a token bucket of 32 kB passes at the speed of the machine, at gigabits per
//! second. So the interval is at least [`MIN_INTERVAL`].
//!
//! On a path that reorders, the packet that a sample is about has overtaken others, and its sample
//! may cover a fraction of the round trip. There, rates are of what arrived during a mean round
//! trip: an inner TCP in slow start sends a burst in each, and the rate of the burst is not that of
//! the path.

use core::time::Duration;
use std::collections::VecDeque;

use mpip_types::Instant;

/// Shortest interval: three times a token bucket of 32 kB at 100 Mbit/s.
const MIN_INTERVAL: Duration = Duration::from_millis(8);
/// On a path that reorders, the interval is also this many mean deviations of the delay, at most
/// [`MAX_INTERVAL`], so that packets that left before it but arrived in it matter little.
const DEVIATIONS: u32 = 4;
const MAX_INTERVAL: Duration = Duration::from_millis(400);
/// Number of marks in an interval.
const STEPS: u32 = 16;
/// Time without deliveries after which the history starts anew.
const PAUSE: Duration = Duration::from_millis(100);

/// How much a path reorders.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reordering {
    /// Mean deviation of the delay.
    pub(crate) deviation: Duration,
    /// Mean RTT of all packets.
    pub(crate) mean_rtt: Duration,
}

/// Bytes delivered at a point in time.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// When the feedback arrived.
    at: Instant,
    /// When the feedback left, µs of the receiver's clock modulo 2^32.
    told: u32,
    delivered: u64,
}

/// Recent deliveries of a path.
#[derive(Debug, Default)]
pub(crate) struct DeliveryHistory {
    marks: VecDeque<Mark>,
    /// When the application last had too little to send.
    app_limited_at: Option<Instant>,
}

impl DeliveryHistory {
    /// The application had nothing more to send at `now`.
    pub(crate) fn on_app_limited(&mut self, now: Instant) {
        self.app_limited_at = Some(now);
    }

    /// Records that `delivered` bytes in total have arrived. The feedback arrived at `now` and left
    /// at `told`, µs of the receiver's clock: so jitter of the feedback does not matter.
    /// `reordering` is `None` on a path that does not reorder.
    pub(crate) fn on_delivered(
        &mut self,
        now: Instant,
        told: u32,
        delivered: u64,
        reordering: Option<Reordering>,
    ) {
        let least = min_interval(reordering);
        if let Some(last) = self.marks.back() {
            if now.since(last.at) >= PAUSE.max(least) {
                self.marks.clear();
            } else if told_after(last.told, told) < least / STEPS {
                // Too soon, or reordered feedback.
                return;
            }
        }
        let mark = Mark { at: now, told, delivered };
        self.marks.push_back(mark);
        // One mark older than the interval stays as its start.
        while self.marks.get(1).is_some_and(|first| span(first, &mark) >= least) {
            self.marks.pop_front();
        }
    }

    /// The delivery rate, bytes/s, over the interval of a sample in which `delivered` - `prior`
    /// bytes arrived; over a longer interval if that one is too short or the path reorders. Also
    /// returns whether the longer interval is limited by the application. `None` if the history is
    /// too short.
    pub(crate) fn rate(
        &self,
        delivered: u64,
        (interval, prior): (Duration, u64),
        reordering: Option<Reordering>,
    ) -> Option<(u64, bool)> {
        let least = min_interval(reordering);
        let own = (interval >= least).then(|| (per_second(delivered - prior, interval), false));
        match reordering {
            None => own.or_else(|| self.recent(least)),
            Some(_) => self.recent(least).or(own),
        }
    }

    /// The rate over the recent interval, if it is not shorter than `least`, and whether that
    /// interval is limited by the application.
    fn recent(&self, least: Duration) -> Option<(u64, bool)> {
        let (first, last) = (self.marks.front()?, self.marks.back()?);
        let span = span(first, last);
        let limited = self.app_limited_at.is_some_and(|at| at >= first.at);
        (span >= least).then(|| (per_second(last.delivered - first.delivered, span), limited))
    }
}

/// The shortest interval of a rate.
fn min_interval(reordering: Option<Reordering>) -> Duration {
    reordering.map_or(MIN_INTERVAL, |Reordering { deviation, mean_rtt }| {
        (deviation * DEVIATIONS).clamp(MIN_INTERVAL, MAX_INTERVAL).max(mean_rtt)
    })
}

fn span(from: &Mark, to: &Mark) -> Duration {
    told_after(from.told, to.told)
}

/// How long after `before` a feedback left, both in µs of the receiver's clock modulo 2^32; zero if
/// it left earlier.
pub(crate) fn told_after(before: u32, told: u32) -> Duration {
    let micros = told.wrapping_sub(before) as i32;
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

fn per_second(bytes: u64, interval: Duration) -> u64 {
    let nanos = interval.as_nanos().max(1);
    u64::try_from(u128::from(bytes) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reordering(deviation: u64, mean_rtt: u64) -> Option<Reordering> {
        let ms = Duration::from_millis;
        Some(Reordering { deviation: ms(deviation), mean_rtt: ms(mean_rtt) })
    }

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
                history.on_delivered(now, now.as_micros() as u32, delivered, None);
                let sample = (Duration::from_micros(100), delivered - 1_500);
                if let Some((rate, _)) = history.rate(delivered, sample, None) {
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
        let rate = history.rate(11_000, sample, None);
        assert_eq!(rate, Some((100_000, false)));
    }

    #[test]
    fn a_short_interval_without_history_says_nothing() {
        let mut history = DeliveryHistory::default();
        let now = Instant::from_millis(500);
        history.on_delivered(now, 500_000, 100_000, None);
        assert_eq!(history.rate(100_000, (Duration::from_micros(50), 0), None), None);
    }

    /// Bytes arrive evenly at 1 MB/s; feedback leaves each 10 ms and takes up to 40 ms longer, so
    /// that five arrive at once.
    #[test]
    fn feedback_that_is_late_does_not_look_like_a_burst() {
        let mut history = DeliveryHistory::default();
        let reordering = reordering(20, 60);
        let mut arrivals: Vec<(u64, u64)> =
            (0..200).map(|n| (1_000 + n * 10 + 40 - n % 5 * 10, n)).collect();
        arrivals.sort_unstable();
        let (mut highest, mut lowest) = (0, u64::MAX);
        let mut delivered = 0;
        for (at, n) in arrivals {
            delivered = delivered.max(n * 10_000);
            let now = Instant::from_millis(at);
            history.on_delivered(now, (n * 10_000) as u32, delivered, reordering);
            let sample = (Duration::from_millis(20), delivered.saturating_sub(20_000));
            if let Some((rate, _)) = history.rate(delivered, sample, reordering) {
                highest = highest.max(rate);
                lowest = lowest.min(rate);
            }
        }
        assert_eq!((lowest, highest), (1_000_000, 1_000_000));
    }

    /// An inner TCP in slow start: 100 kB arrive within 20 ms of each round trip of 200 ms. The
    /// packets of samples have overtaken others, and each sample covers 20 ms.
    #[test]
    fn a_burst_in_each_round_trip_does_not_look_like_a_fast_path_that_reorders() {
        let mut history = DeliveryHistory::default();
        let reordering = reordering(8, 200);
        let (mut delivered, mut highest) = (0, 0);
        for at in (0..10).flat_map(|burst| (0..20).map(move |ms| burst * 200 + ms)) {
            let now = Instant::from_millis(1_000 + at);
            delivered += 5_000;
            history.on_delivered(now, now.as_micros() as u32, delivered, reordering);
            let sample = (Duration::from_millis(20), delivered - 5_000 * (at % 200 + 1));
            let rate = history.rate(delivered, sample, reordering).map(|(rate, _)| rate);
            highest = highest.max(rate.unwrap_or(0));
        }
        assert!((500_000..600_000).contains(&highest), "{highest} bytes/s");
    }

    #[test]
    fn a_path_that_was_silent_while_the_clock_wrapped_is_measured_anew() {
        let mut history = DeliveryHistory::default();
        let feedback = |history: &mut DeliveryHistory, ms: u64| {
            let now = Instant::from_millis(ms);
            history.on_delivered(now, (ms * 1_000) as u32, ms * 1_000, None);
        };
        feedback(&mut history, 1);
        let hour = 3_600_000;
        (hour..hour + 20).for_each(|ms| feedback(&mut history, ms));
        let sample = (Duration::from_millis(1), 0);
        let rate = history.rate((hour + 19) * 1_000, sample, None);
        assert_eq!(rate, Some((1_000_000, false)));
    }

    #[test]
    fn a_pause_within_the_longer_interval_is_told() {
        let mut history = DeliveryHistory::default();
        let ms = Instant::from_millis;
        for n in 0..20 {
            let now = ms(1_000 + n);
            history.on_delivered(now, now.as_micros() as u32, n * 10_000, None);
        }
        let sample = (Duration::from_millis(1), 180_000);
        let (rate, limited) = history.rate(190_000, sample, None).expect("known");
        assert!(rate.abs_diff(10_000_000) < 100_000 && !limited, "{rate}");
        history.on_app_limited(ms(1_015));
        let (_, limited) = history.rate(190_000, sample, None).expect("known");
        assert!(limited);
    }
}
