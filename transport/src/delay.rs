//! One-way delay of a path from the difference of two clocks with unknown offset and drift.
//!
//! A sample is the receiver's clock at arrival minus the sender's clock at departure. The clock
//! offset is unknown and may be hours, so a single sample has no meaning. Two uses of samples do:
//! differences between paths of one association, which have the same clocks, and changes over the
//! last seconds. Clock drift hardly matters within the window of the minimum: at the seeds' 1 ms in
//! 4 minutes, the error is 42 µs.

use core::time::Duration;

use mpip_types::Instant;

/// Window of the minimum.
const WINDOW: Duration = Duration::from_secs(10);
/// Parts of the window, each with a minimum of its own.
const BUCKETS: usize = 5;
/// Weight of a new sample in the moving average, as a divisor (seed 000, section 3.4).
const AVERAGE: i64 = 8;
/// The same of a deviation in the mean deviation (RFC 6298, section 2.3).
const DEVIATION: i64 = 4;

/// Moving average, jitter and windowed minimum of one-way delay samples, in microseconds against a
/// reference that the association's paths share.
#[derive(Clone, Debug, Default)]
pub struct DelayEstimator {
    average: Option<i64>,
    jitter: i64,
    /// When the last sample was taken. Those older than the window before the next do not count.
    sampled: Instant,
    /// The lowest sample in each part of the window.
    minima: [Option<i64>; BUCKETS],
    /// The part of the window that new samples belong to, and when it began.
    bucket: usize,
    bucket_started: Instant,
}

impl DelayEstimator {
    /// Takes a sample: the clock difference less the association's reference, µs.
    pub fn on_sample(&mut self, now: Instant, sample: i64) {
        let lapsed = now.since(core::mem::replace(&mut self.sampled, now)) >= WINDOW;
        match &mut self.average {
            Some(average) if !lapsed => {
                let step = sample - *average;
                self.jitter += part(step.abs() - self.jitter, DEVIATION);
                *average += part(step, AVERAGE);
            }
            average => {
                *average = Some(sample);
                self.minima = [None; BUCKETS];
                self.bucket_started = now;
            }
        }
        self.age(now);
        let minimum = &mut self.minima[self.bucket];
        *minimum = Some(minimum.map_or(sample, |minimum| minimum.min(sample)));
    }

    fn age(&mut self, now: Instant) {
        let span = WINDOW / BUCKETS as u32;
        if now.since(self.bucket_started) >= WINDOW {
            self.minima = [None; BUCKETS];
            self.bucket_started = now;
        }
        while now.since(self.bucket_started) >= span {
            self.bucket = (self.bucket + 1) % BUCKETS;
            self.minima[self.bucket] = None;
            self.bucket_started += span;
        }
    }

    /// The moving average, µs against the association's reference.
    pub fn average(&self) -> Option<i64> {
        self.average
    }

    /// The lowest sample of the last 8 to 10 s, µs against the association's reference.
    pub fn minimum(&self) -> Option<i64> {
        self.minima.iter().flatten().min().copied()
    }

    /// Queuing delay: the average minus the minimum.
    pub fn queuing(&self) -> Duration {
        match (self.average(), self.minimum()) {
            (Some(average), Some(minimum)) => {
                Duration::from_micros(u64::try_from(average - minimum).unwrap_or(0))
            }
            _ => Duration::ZERO,
        }
    }

    /// Mean deviation of the samples from their average.
    pub fn jitter(&self) -> Duration {
        Duration::from_micros(self.jitter.unsigned_abs())
    }
}

/// One `divisor`th of `step`, rounded away from zero so that an average reaches a steady sample.
fn part(step: i64, divisor: i64) -> i64 {
    (step + step.signum() * (divisor - 1)) / divisor
}

/// The difference of two truncated microsecond clocks against a reference difference.
///
/// Right as long as the clocks have not drifted apart by more than 35 minutes since the reference.
pub fn clock_difference(sent: u32, received: u32, reference: u32) -> i64 {
    i64::from(received.wrapping_sub(sent).wrapping_sub(reference) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_and_wrapping_of_the_clocks_do_not_matter() {
        let reference = 10_u32.wrapping_sub(4_000_000_000);
        assert_eq!(clock_difference(4_000_000_000, 10, reference), 0);
        assert_eq!(clock_difference(u32::MAX, 300_000_000_u32.wrapping_add(5), reference), {
            i64::from(300_000_006_u32.wrapping_sub(reference) as i32)
        });
        assert_eq!(
            clock_difference(5, 5_u32.wrapping_add(reference).wrapping_sub(7), reference),
            -7
        );
    }

    #[test]
    fn the_minimum_is_forgotten_after_the_window() {
        let mut delay = DelayEstimator::default();
        delay.on_sample(Instant::from_millis(0), 100);
        for ms in 1..=12_000 {
            delay.on_sample(Instant::from_millis(ms), 900);
            if ms == 7_900 {
                assert_eq!(delay.minimum(), Some(100));
            }
        }
        assert_eq!(delay.minimum(), Some(900));
        assert_eq!(delay.queuing(), Duration::ZERO);
    }

    #[test]
    fn drift_shows_as_less_than_its_size_over_the_window() {
        let mut delay = DelayEstimator::default();
        for ms in (0..240_000_i64).step_by(10) {
            delay.on_sample(Instant::from_millis(ms as u64), ms / 240);
        }
        assert!(delay.queuing() <= Duration::from_micros(50), "{:?}", delay.queuing());
    }

    #[test]
    fn the_average_reaches_a_steady_sample() {
        let mut delay = DelayEstimator::default();
        delay.on_sample(Instant::ZERO, 0);
        for ms in 1..200 {
            delay.on_sample(Instant::from_millis(ms), -1_000);
        }
        assert_eq!(delay.average(), Some(-1_000));
        assert_eq!(delay.jitter(), Duration::ZERO);
    }
}
