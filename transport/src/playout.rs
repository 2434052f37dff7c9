//! Playout delay of full packets on a path with jitter.

use core::time::Duration;

use mpip_types::Instant;

use crate::delay::DelayEstimator;
use crate::parameters::PlayoutParameters;

/// Most bytes in flight on an idle path, and the time after use until its own queue has drained.
const IDLE_IN_FLIGHT: u64 = 600;
const QUEUE_DRAINS_AFTER: Duration = Duration::from_secs(1);
/// Samples of an idle path from which its jitter is known, and the most over which it is averaged.
const IDLE_SAMPLES: (i64, i64) = (8, 32);
/// Factor by which jitter must have fallen for the samples to start anew.
const LESS_JITTER: i64 = 6;

/// Playout delay, and jitter of the idle path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Playout {
    /// Playout delay, µs as in the delay samples; `None` with little jitter.
    target: Option<i64>,
    /// When the path was last in use.
    used_at: Instant,
    /// Samples of the idle path (bounded), their mean and mean deviation, µs.
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

    /// Mean and mean deviation of the idle path's delay, µs, once they are known.
    fn idle(&self) -> Option<(i64, i64)> {
        (self.samples >= IDLE_SAMPLES.0).then_some((self.mean, self.deviation))
    }
}

impl Playout {
    /// Takes a one-way delay sample, µs, of a path with `in_flight` bytes in flight.
    pub(crate) fn on_delay(&mut self, now: Instant, sample: i64, in_flight: u64) {
        if in_flight > IDLE_IN_FLIGHT {
            self.used_at = now;
        } else if now.since(self.used_at) >= QUEUE_DRAINS_AFTER {
            self.on_idle_sample(sample);
        }
    }

    /// Updates the playout delay; called every 100 ms. `reordering` is that of
    /// [`Flight::reordering`](crate::Flight::reordering).
    ///
    /// On an idle path every packet is a sample. On a path in use, samples come from packets that
    /// overtook others, so the excess of the mean RTT is added; half of the RTT's variance is that
    /// of the way back.
    pub(crate) fn update(
        &mut self,
        in_flight: u64,
        reordering: Option<(Duration, Duration)>,
        delay: &DelayEstimator,
        parameters: &PlayoutParameters,
    ) {
        if delay.jitter().as_micros() as i64 * LESS_JITTER < self.deviation {
            // The path has far less jitter now.
            self.samples = 0;
            self.deviation = 0;
        }
        let idle = self.idle();
        let used = reordering.zip(delay.average()).map(|((longer, deviation), average)| {
            let deviation =
                (deviation.as_micros() as i64 * 7 / 10).max(delay.jitter().as_micros() as i64);
            (average + longer.as_micros() as i64, deviation)
        });
        let seen = match in_flight <= IDLE_IN_FLIGHT {
            true => idle,
            // Used until enough packets have been reordered.
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

    /// The playout delay, µs as in the delay samples; `None` with little jitter.
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
