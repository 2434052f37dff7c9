//! Round-trip time of a path (RFC 9002, section 5), with a minimum that ages.

use core::time::Duration;

use crate::time::Instant;

/// Before the first sample (RFC 9002, section 6.2.2).
const INITIAL: Duration = Duration::from_millis(333);
/// How long a minimum counts, as in BBR.
const MINIMUM_WINDOW: Duration = Duration::from_secs(10);
/// Smallest deviation that a probe time-out allows for.
const GRANULARITY: Duration = Duration::from_millis(1);

/// Smoothed round-trip time, its variation and its windowed minimum.
#[derive(Clone, Debug, Default)]
pub(crate) struct RttEstimator {
    smoothed: Option<Duration>,
    variation: Duration,
    /// Minimum of the current and of the former half of the window.
    minima: [Option<Duration>; 2],
    half_started: Instant,
}

impl RttEstimator {
    /// Takes a sample: from sending to feedback, less the feedback's delay.
    pub(crate) fn on_sample(&mut self, now: Instant, sample: Duration) {
        match self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.variation = sample / 2;
                self.half_started = now;
            }
            Some(smoothed) => {
                let deviation = smoothed.abs_diff(sample);
                self.variation = (self.variation * 3 + deviation) / 4;
                self.smoothed = Some((smoothed * 7 + sample) / 8);
            }
        }
        if now.since(self.half_started) >= MINIMUM_WINDOW {
            self.minima = [None; 2];
            self.half_started = now;
        } else if now.since(self.half_started) >= MINIMUM_WINDOW / 2 {
            self.minima = [None, self.minima[0]];
            self.half_started = now;
        }
        self.minima[0] = Some(self.minima[0].map_or(sample, |minimum| minimum.min(sample)));
    }

    /// Whether there was a sample.
    pub(crate) fn is_known(&self) -> bool {
        self.smoothed.is_some()
    }

    /// The moving average, or a careful guess before the first sample.
    pub(crate) fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or(INITIAL)
    }

    /// The lowest sample of the last 5 to 10 s.
    pub(crate) fn minimum(&self) -> Duration {
        self.minima.iter().flatten().min().copied().unwrap_or(self.smoothed())
    }

    /// How long an answer may take before something is wrong (RFC 9002, section 6.2.1), when the
    /// peer delays its feedback by up to `feedback_delay`.
    pub(crate) fn probe_timeout(&self, feedback_delay: Duration) -> Duration {
        match self.smoothed {
            Some(smoothed) => smoothed + (self.variation * 4).max(GRANULARITY) + feedback_delay,
            None => INITIAL * 2,
        }
    }
}

/// How long packets take until they are acknowledged, of those that were overtaken and those that
/// overtook alike.
///
/// RTT samples are taken of the newest packet of a feedback. Where a path reorders, that is one
/// which was faster than the others, and their mean lies below the path's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turnaround {
    mean: Option<Duration>,
    deviation: Duration,
}

impl Turnaround {
    /// Weight of a sample, as a divisor: there are many in a round trip (RFC 7323, appendix G).
    const WEIGHT: u32 = 32;

    /// A packet was acknowledged after `took`.
    pub(crate) fn on_sample(&mut self, took: Duration) {
        let mean = *self.mean.get_or_insert(took);
        let weigh = |old: Duration, new| (old * (Self::WEIGHT - 1) + new) / Self::WEIGHT;
        self.deviation = weigh(self.deviation, mean.abs_diff(took));
        self.mean = Some(weigh(mean, took));
    }

    /// The moving average; zero before the first sample.
    pub(crate) fn mean(&self) -> Duration {
        self.mean.unwrap_or_default()
    }

    /// Mean deviation from the average.
    pub(crate) fn deviation(&self) -> Duration {
        self.deviation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_samples_give_the_values_of_rfc_9002() {
        let mut rtt = RttEstimator::default();
        let ms = Duration::from_millis;
        assert_eq!(rtt.probe_timeout(ms(5)), ms(666));
        rtt.on_sample(Instant::ZERO, ms(100));
        assert_eq!((rtt.smoothed(), rtt.variation), (ms(100), ms(50)));
        rtt.on_sample(Instant::ZERO, ms(60));
        assert_eq!((rtt.smoothed(), rtt.variation), (ms(95), Duration::from_micros(47_500)));
        assert_eq!(rtt.probe_timeout(ms(5)), ms(290));
        assert_eq!(rtt.minimum(), ms(60));
    }

    #[test]
    fn a_minimum_is_forgotten() {
        let mut rtt = RttEstimator::default();
        rtt.on_sample(Instant::ZERO, Duration::from_millis(1));
        for second in 1..=11 {
            rtt.on_sample(Instant::from_millis(second * 1_000), Duration::from_millis(9));
        }
        assert_eq!(rtt.minimum(), Duration::from_millis(9));
    }

    #[test]
    fn the_turnaround_is_the_mean_of_all_packets() {
        let mut turnaround = Turnaround::default();
        assert_eq!(turnaround.mean(), Duration::ZERO);
        for n in 0..2_000 {
            turnaround.on_sample(Duration::from_millis(if n % 2 == 0 { 100 } else { 300 }));
        }
        assert!(turnaround.mean().abs_diff(Duration::from_millis(200)) < Duration::from_millis(5));
        let deviation = turnaround.deviation();
        assert!(deviation.abs_diff(Duration::from_millis(100)) < Duration::from_millis(5));
    }
}
