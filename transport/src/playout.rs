//! The delay after which full packets of a path that jitters are to be delivered.

use core::time::Duration;

use mpip_types::Instant;

use crate::delay::DelayEstimator;
use crate::parameters::PlayoutParameters;

/// A path with no more bytes in flight is idle, and so long after it was in use its own queue is
/// gone.
const IDLE: u64 = 600;
const QUEUE: Duration = Duration::from_secs(1);
/// Samples of an idle path from which on its jitter is known, and of how many it is the mean.
const IDLE_SAMPLES: (i64, i64) = (8, 32);
/// With so much less jitter of late it is another path.
const EVEN: i64 = 6;

/// When full packets of a path are to be delivered, and what an idle path shows of its jitter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Playout {
    /// Delay after which they are, µs as in the delay samples; `None` where there is little
    /// jitter.
    target: Option<i64>,
    /// When it was last in use.
    used_at: Instant,
    /// Samples of the idle path, up to those that count, their mean and its mean deviation, µs.
    samples: i64,
    mean: i64,
    deviation: i64,
}

impl Playout {
    fn on_idle_sample(&mut self, sample: i64) {
        if self.samples == 0 {
            self.mean = sample;
        }
        self.samples = (self.samples + 1).min(IDLE_SAMPLES.1);
        let step = sample - self.mean;
        self.deviation += (step.abs() - self.deviation) / self.samples;
        self.mean += step / self.samples;
    }

    /// Mean and mean deviation of the idle path's delay, once they are known.
    fn idle(&self) -> Option<(i64, i64)> {
        (self.samples >= IDLE_SAMPLES.0).then_some((self.mean, self.deviation))
    }
}

impl Playout {
    /// Takes a sample of the one-way delay, µs as in the delay samples, of a path with `in_flight`
    /// bytes in flight.
    pub(crate) fn on_delay(&mut self, now: Instant, sample: i64, in_flight: u64) {
        if in_flight > IDLE {
            self.used_at = now;
        } else if now.since(self.used_at) >= QUEUE {
            self.on_idle_sample(sample);
        }
    }

    /// Finds the usual delay of the path and a deviation, if it jitters; called every 100 ms.
    /// `reordering` is what [`Flight::reordering`](crate::Flight::reordering) says.
    ///
    /// Of an idle path all packets show it. Samples of one that is in use are of packets that
    /// overtook others, so what all packets take longer counts to it, and half of the
    /// deviation's square is the way back's.
    pub(crate) fn update(
        &mut self,
        in_flight: u64,
        reordering: Option<(Duration, Duration)>,
        delay: &DelayEstimator,
        parameters: &PlayoutParameters,
    ) {
        if delay.jitter().as_micros() as i64 * EVEN < self.deviation {
            // It has become even.
            self.samples = 0;
            self.deviation = 0;
        }
        let idle = self.idle();
        let used = reordering.zip(delay.average()).map(|((longer, deviation), average)| {
            let deviation =
                (deviation.as_micros() as i64 * 7 / 10).max(delay.jitter().as_micros() as i64);
            (average + longer.as_micros() as i64, deviation)
        });
        let seen = match in_flight <= IDLE {
            true => idle,
            // Until enough was overtaken.
            false => {
                used.or(idle.zip(delay.average()).map(|((_, deviation), mean)| (mean, deviation)))
            }
        };
        let from = match self.target {
            Some(_) => parameters.jitters_until,
            None => parameters.jitters_from,
        };
        let from = from.as_micros() as i64;
        self.target = seen.filter(|(_, deviation)| *deviation >= from).map(|(mean, deviation)| {
            let target = mean + (deviation as f64 * parameters.deviations) as i64;
            let former = self.target.unwrap_or(target);
            former + (target - former) / i64::from(parameters.average)
        });
    }

    /// The delay after which full packets are to be delivered, µs as in the delay samples; `None`
    /// where there is little jitter.
    pub(crate) fn target(&self) -> Option<i64> {
        self.target
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_show_the_jitter_of_an_idle_path() {
        let mut playout = Playout::default();
        for n in 0..7 {
            playout.on_idle_sample(if n % 2 == 0 { 60_000 } else { 140_000 });
        }
        assert_eq!(playout.idle(), None, "too few to say");
        for n in 7..40 {
            playout.on_idle_sample(if n % 2 == 0 { 60_000 } else { 140_000 });
        }
        let (mean, deviation) = playout.idle().expect("known");
        assert!(mean.abs_diff(100_000) < 5_000, "{mean}");
        assert!(deviation.abs_diff(40_000) < 5_000, "{deviation}");
    }

    #[test]
    fn an_even_path_shows_none() {
        let mut playout = Playout::default();
        for n in 0..40 {
            playout.on_idle_sample(100_000 + n % 3 * 200);
        }
        let even = PlayoutParameters::default().jitters_until.as_micros() as i64;
        assert!(playout.idle().expect("known").1 < even);
    }
}
