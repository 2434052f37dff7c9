//! Round-trip time of a path (RFC 9002, section 5), with a windowed minimum.

use core::time::Duration;

use crate::cc::RttSum;
use mpip_types::Instant;

/// RTT before the first sample (RFC 9002, section 6.2.2).
const INITIAL: Duration = Duration::from_millis(333);
/// Window of the minimum, as in BBR.
const MINIMUM_WINDOW: Duration = Duration::from_secs(10);
/// Timer granularity: smallest RTT variation in the probe timeout (RFC 9002, section 6.1.2).
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
    /// Takes a sample: from sending to feedback, less the feedback delay.
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

    /// The smoothed RTT, or 333 ms before the first sample.
    pub fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or(INITIAL)
    }

    /// The lowest sample of the last 5 to 10 s.
    pub fn minimum(&self) -> Duration {
        self.minima.iter().flatten().min().copied().unwrap_or(self.smoothed())
    }

    /// The probe timeout (RFC 9002, section 6.2.1), if the peer delays its feedback by up to
    /// `feedback_delay`.
    pub fn probe_timeout(&self, feedback_delay: Duration) -> Duration {
        match self.smoothed {
            Some(smoothed) => smoothed + (self.variation * 4).max(GRANULARITY) + feedback_delay,
            None => INITIAL * 2,
        }
    }
}

/// Mean RTT of all packets, also of reordered ones.
///
/// RTT samples are taken from the newest packet of a feedback frame. On a path that reorders, this
/// is a fast packet, so their mean lies below that of the path.
#[derive(Clone, Debug, Default)]
pub(crate) struct MeanRtt {
    /// Samples so far, at most `LONG_WEIGHT`.
    samples: u32,
    mean: Duration,
    deviation: Duration,
    /// The mean over more samples.
    long_mean: Duration,
    /// All samples.
    all: RttSum,
}

impl MeanRtt {
    /// Weight of a sample, as a divisor: there are many samples in a round trip (RFC 7323, appendix
    /// G).
    const WEIGHT: u32 = 32;
    /// The same for the long mean.
    const LONG_WEIGHT: u32 = 128;

    /// Takes a sample: a packet was acknowledged after `took`.
    pub(crate) fn on_sample(&mut self, took: Duration) {
        let mean = if self.samples == 0 { took } else { self.mean };
        let weigh = |old: Duration, new, weight: u32| (old * (weight - 1) + new) / weight;
        self.all.add(took);
        self.deviation = weigh(self.deviation, mean.abs_diff(took), Self::WEIGHT);
        self.mean = weigh(mean, took, Self::WEIGHT);
        // The first samples have equal weights.
        self.samples = (self.samples + 1).min(Self::LONG_WEIGHT);
        self.long_mean = weigh(self.long_mean, took, self.samples);
    }

    /// All samples so far.
    pub(crate) fn all(&self) -> RttSum {
        self.all
    }

    /// The mean over so many packets that jitter has little effect; zero before the first sample.
    pub(crate) fn long_mean(&self) -> Duration {
        self.long_mean
    }

    /// Whether there are enough samples for the long mean.
    pub(crate) fn long_mean_is_known(&self) -> bool {
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
    fn the_mean_rtt_counts_all_packets() {
        let mut mean_rtt = MeanRtt::default();
        assert_eq!(mean_rtt.mean(), Duration::ZERO);
        for n in 0..2_000 {
            mean_rtt.on_sample(Duration::from_millis(if n % 2 == 0 { 100 } else { 300 }));
        }
        assert!(mean_rtt.mean().abs_diff(Duration::from_millis(200)) < Duration::from_millis(5));
        let deviation = mean_rtt.deviation();
        assert!(deviation.abs_diff(Duration::from_millis(100)) < Duration::from_millis(5));
    }

    #[test]
    fn the_long_mean_hardly_moves_with_jitter() {
        let mut mean_rtt = MeanRtt::default();
        let took = |n: u64| Duration::from_millis(100 + n * 7_919 % 200);
        (0..128).for_each(|n| mean_rtt.on_sample(took(n)));
        assert!(mean_rtt.long_mean_is_known());
        for n in 128..1_000 {
            mean_rtt.on_sample(took(n));
            let off = mean_rtt.long_mean().abs_diff(Duration::from_micros(199_500));
            assert!(off < Duration::from_millis(12), "{:?}", mean_rtt.long_mean());
        }
    }
}
