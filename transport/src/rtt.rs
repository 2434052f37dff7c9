//! Round-trip time of a path (RFC 9002, section 5), with a minimum that ages.

use core::time::Duration;

use mpip_types::Instant;

/// Before the first sample (RFC 9002, section 6.2.2).
const INITIAL: Duration = Duration::from_millis(333);
/// How long a minimum counts, as in BBR.
const MINIMUM_WINDOW: Duration = Duration::from_secs(10);
/// Smallest deviation that a probe time-out allows for.
const GRANULARITY: Duration = Duration::from_millis(1);

/// Smoothed round-trip time, its variation and its windowed minimum.
#[derive(Clone, Debug, Default)]
pub struct RttEstimator {
    smoothed: Option<Duration>,
    variation: Duration,
    /// Minimum of the current and of the former half of the window.
    minima: [Option<Duration>; 2],
    half_started: Instant,
}

impl RttEstimator {
    /// Takes a sample: from sending to feedback, less the feedback's delay.
    pub fn on_sample(&mut self, now: Instant, sample: Duration) {
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
    pub fn is_known(&self) -> bool {
        self.smoothed.is_some()
    }

    /// The moving average, or a careful guess before the first sample.
    pub fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or(INITIAL)
    }

    /// The lowest sample of the last 5 to 10 s.
    pub fn minimum(&self) -> Duration {
        self.minima.iter().flatten().min().copied().unwrap_or(self.smoothed())
    }

    /// How long an answer may take before something is wrong (RFC 9002, section 6.2.1), when the
    /// peer delays its feedback by up to `feedback_delay`.
    pub fn probe_timeout(&self, feedback_delay: Duration) -> Duration {
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
    /// Samples so far, up to those of the steady mean.
    samples: u32,
    mean: Duration,
    deviation: Duration,
    /// The mean of more samples.
    steady: Duration,
}

impl Turnaround {
    /// Weight of a sample, as a divisor: there are many in a round trip (RFC 7323, appendix G).
    const WEIGHT: u32 = 32;
    /// The same of the steady mean.
    const STEADY: u32 = 128;

    /// A packet was acknowledged after `took`.
    pub(crate) fn on_sample(&mut self, took: Duration) {
        let mean = if self.samples == 0 { took } else { self.mean };
        let weigh = |old: Duration, new, weight: u32| (old * (weight - 1) + new) / weight;
        self.deviation = weigh(self.deviation, mean.abs_diff(took), Self::WEIGHT);
        self.mean = weigh(mean, took, Self::WEIGHT);
        // All samples count the same until there are enough.
        self.samples = (self.samples + 1).min(Self::STEADY);
        self.steady = weigh(self.steady, took, self.samples);
    }

    /// The mean of so many packets that jitter hardly shows; zero before the first sample.
    pub(crate) fn steady(&self) -> Duration {
        self.steady
    }

    /// Whether the steady mean is one of enough packets to say something.
    pub(crate) fn is_steady(&self) -> bool {
        self.samples >= Self::WEIGHT
    }

    /// The moving average; zero before the first sample.
    pub(crate) fn mean(&self) -> Duration {
        self.mean
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

    #[test]
    fn the_steady_mean_hardly_moves_with_jitter() {
        let mut turnaround = Turnaround::default();
        let took = |n: u64| Duration::from_millis(100 + n * 7_919 % 200);
        (0..128).for_each(|n| turnaround.on_sample(took(n)));
        assert!(turnaround.is_steady());
        for n in 128..1_000 {
            turnaround.on_sample(took(n));
            let off = turnaround.steady().abs_diff(Duration::from_micros(199_500));
            assert!(off < Duration::from_millis(12), "{:?}", turnaround.steady());
        }
    }
}
