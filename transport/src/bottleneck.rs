//! Shared bottleneck detection.
//!
//! Packets in one queue have the same queuing delay. So two paths share a bottleneck when their
//! one-way delays rise and fall together by the same amount: when the variance of the difference is
//! small compared with the variance of each. RFC 8382 is more general and slower: it groups flows
//! of different senders by skewness, variability and oscillation of the delay. Here both ends of
//! all paths are the same two nodes with one clock each, so delays can be compared point by point.
//!
//! Without variation of the delay, no common queue is visible, and the groups stay as they are.

use core::ops::Range;

use crate::parameters::BottleneckParameters;

/// Intervals of 100 ms that are compared: 5 s, in which a loss-based flow fills a queue once at 100
/// Mbit/s, and several times on a slower path.
const INTERVALS: usize = 50;
/// Intervals of each half that need samples on both paths.
const LEAST_INTERVALS: usize = 15;
/// Marks an interval without samples.
const NONE: i32 = i32::MIN;

/// Mean one-way delays of a path in the last intervals. 232 bytes; nothing is allocated.
#[derive(Clone, Debug)]
pub struct DelaySeries {
    means: [i32; INTERVALS],
    at: usize,
    sum: i64,
    count: u32,
}

impl Default for DelaySeries {
    fn default() -> Self {
        Self { means: [NONE; INTERVALS], at: 0, sum: 0, count: 0 }
    }
}

/// Whether two paths share a bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They share a queue.
    Same,
    /// They have different queues.
    Different,
    /// Their delays do not tell.
    Unknown,
}

impl DelaySeries {
    /// Takes a one-way delay sample, µs against any reference that the compared paths share.
    pub fn add(&mut self, delay: i64) {
        self.sum += delay;
        self.count += 1;
    }

    /// Ends the interval.
    pub fn close_interval(&mut self) {
        self.means[self.at] = match self.count {
            0 => NONE,
            count => {
                let mean = self.sum / i64::from(count);
                mean.clamp(i64::from(NONE + 1), i64::from(i32::MAX)) as i32
            }
        };
        self.at = (self.at + 1) % INTERVALS;
        (self.sum, self.count) = (0, 0);
    }

    /// Compares two paths whose intervals ended at the same times. Both halves of the window have
    /// to show a shared queue: a burst that leaves on two paths at once builds two queues that look
    /// like one, but not repeatedly.
    pub fn compare(&self, other: &Self, parameters: &BottleneckParameters) -> Verdict {
        let half = |from| self.compare_part(other, from..from + INTERVALS / 2, parameters);
        match (half(0), half(INTERVALS / 2)) {
            (Verdict::Same, Verdict::Same) => Verdict::Same,
            (Verdict::Same, _) | (_, Verdict::Same) => Verdict::Unknown,
            (Verdict::Different, _) | (_, Verdict::Different) => Verdict::Different,
            (Verdict::Unknown, Verdict::Unknown) => Verdict::Unknown,
        }
    }

    /// Compares the intervals of the given `ages`; 0 is the newest.
    fn compare_part(
        &self,
        other: &Self,
        ages: Range<usize>,
        parameters: &BottleneckParameters,
    ) -> Verdict {
        let (mut a, mut b, mut difference) =
            (Moments::default(), Moments::default(), Moments::default());
        for age in ages {
            let at = |series: &Self| series.means[(series.at + INTERVALS - 1 - age) % INTERVALS];
            let (x, y) = (at(self), at(other));
            if x != NONE && y != NONE {
                let (x, y) = (f64::from(x), f64::from(y));
                a.add(x);
                b.add(y);
                difference.add(x - y);
            }
        }
        let (a, b, difference) = (a.variance(), b.variance(), difference.variance());
        let (Some(a), Some(b), Some(difference)) = (a, b, difference) else {
            return Verdict::Unknown;
        };
        let least = parameters.least_deviation.as_secs_f64() * 1e6;
        if a.max(b) < least * least {
            return Verdict::Unknown;
        }
        // The ratio is 1 for independent delays and 0 for equal ones.
        match difference / (a + b) {
            ratio if ratio < parameters.same => Verdict::Same,
            ratio if ratio > parameters.different => Verdict::Different,
            _ => Verdict::Unknown,
        }
    }
}

/// Mean and sum of squared deviations, without cancellation (Welford).
#[derive(Default)]
struct Moments {
    count: usize,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.count += 1;
        let step = value - self.mean;
        self.mean += step / self.count as f64;
        self.squares += step * (value - self.mean);
    }

    /// `None` if there are too few values.
    fn variance(&self) -> Option<f64> {
        (self.count >= LEAST_INTERVALS).then(|| self.squares / self.count as f64)
    }
}

/// Groups paths. `groups` holds the name of each path's group, which is the name of its first
/// member; path `n` is named `name(n)`. Where `compare` cannot tell, paths stay together or apart.
pub fn regroup(
    groups: &mut [u16],
    name: impl Fn(usize) -> u16,
    compare: impl Fn(usize, usize) -> Verdict,
) {
    // Of the former groups, only equality matters; a group that has lost its first member takes the
    // name of its new one.
    let former = groups.to_vec();
    for path in 0..groups.len() {
        let joins = |other: &usize| match compare(*other, path) {
            Verdict::Same => true,
            Verdict::Different => false,
            Verdict::Unknown => former[*other] == former[path],
        };
        let first = (0..path).find(joins);
        groups[path] = first.map_or_else(|| name(path), |first| groups[first]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(one: &DelaySeries, other: &DelaySeries) -> Verdict {
        one.compare(other, &BottleneckParameters::default())
    }

    /// Noise in -1 to 1 that repeats (splitmix64).
    fn noise(seed: u64, n: u64) -> f64 {
        let mut z = (seed << 32 | n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    /// A queue of up to `depth` µs that a loss-based flow fills in `period` intervals and then
    /// drains by a third.
    fn sawtooth(period: u64, phase: u64, depth: f64) -> impl Fn(u64) -> f64 {
        move |n| depth * (0.67 + 0.33 * ((n + phase) % period) as f64 / period as f64)
    }

    /// The series of a path with `base` µs and the queue `queue`, and samples that are off by up to
    /// `jitter` µs, ten in an interval.
    fn series(base: i64, queue: impl Fn(u64) -> f64, jitter: f64, seed: u64) -> DelaySeries {
        let mut series = DelaySeries::default();
        for n in 0..80 {
            for sample in 0..10 {
                let off = jitter * noise(seed, n * 10 + sample);
                series.add(base + (queue(n) + off) as i64);
            }
            series.close_interval();
        }
        series
    }

    #[test]
    fn paths_through_one_queue_are_found_whatever_lies_before_it() {
        let queue = sawtooth(23, 0, 30_000.0);
        let a = series(-400_000, &queue, 300.0, 1);
        let b = series(7_000_000, &queue, 3_000.0, 2);
        assert_eq!(compare(&a, &b), Verdict::Same);
        assert_eq!(compare(&b, &a), Verdict::Same);
    }

    #[test]
    fn paths_through_different_queues_are_told_apart() {
        let a = series(0, sawtooth(23, 0, 30_000.0), 300.0, 1);
        for (period, phase, depth) in [(23, 11, 30_000.0), (17, 0, 30_000.0), (23, 0, 4_000.0)] {
            let b = series(0, sawtooth(period, phase, depth), 300.0, 2);
            assert_ne!(compare(&a, &b), Verdict::Same, "{period} {phase} {depth}");
        }
    }

    #[test]
    fn a_queue_on_one_of_two_paths_is_not_shared() {
        let a = series(0, sawtooth(23, 0, 30_000.0), 300.0, 1);
        let b = series(0, |_| 0.0, 300.0, 2);
        assert_eq!(compare(&a, &b), Verdict::Different);
    }

    #[test]
    fn independent_jitter_is_no_common_queue() {
        let a = series(0, |_| 0.0, 50_000.0, 1);
        let b = series(0, |_| 0.0, 50_000.0, 2);
        assert_eq!(compare(&a, &b), Verdict::Different);
    }

    #[test]
    fn empty_queues_and_missing_samples_say_nothing() {
        let a = series(0, |_| 0.0, 300.0, 1);
        let b = series(9_000, |_| 0.0, 300.0, 2);
        assert_eq!(compare(&a, &b), Verdict::Unknown);
        let queue = series(0, sawtooth(23, 0, 30_000.0), 300.0, 1);
        let mut silent = DelaySeries::default();
        for n in 0..INTERVALS as u64 {
            // A heartbeat in every third interval.
            if n.is_multiple_of(3) {
                silent.add(sawtooth(23, 30, 30_000.0)(n) as i64);
            }
            silent.close_interval();
        }
        assert_eq!(compare(&queue, &silent), Verdict::Unknown);
    }

    #[test]
    fn groups_form_stay_and_fall_apart() {
        let name = |path: usize| 10 + path as u16;
        let mut groups = [10, 11, 12, 13];
        let pairs = |same: &'static [(usize, usize)], rest: Verdict| {
            move |a, b| if same.contains(&(a, b)) { Verdict::Same } else { rest }
        };
        regroup(&mut groups, name, pairs(&[(0, 2), (1, 3)], Verdict::Different));
        assert_eq!(groups, [10, 11, 10, 11]);
        regroup(&mut groups, name, |_, _| Verdict::Unknown);
        assert_eq!(groups, [10, 11, 10, 11]);
        regroup(&mut groups, name, pairs(&[(1, 3)], Verdict::Different));
        assert_eq!(groups, [10, 11, 12, 11]);
    }

    #[test]
    fn a_group_whose_name_changes_stays_together() {
        let name = |path: usize| path as u16;
        // Path 1 is found to share the queue of path 0; of path 2 nothing new is known.
        let mut groups = [0, 1, 1];
        regroup(&mut groups, name, |a, b| match (a, b) {
            (0, 1) => Verdict::Same,
            _ => Verdict::Unknown,
        });
        assert_eq!(groups, [0; 3]);
        // The first member, path 0, is gone.
        let mut groups = [0, 0];
        regroup(&mut groups, |path| path as u16 + 1, |_, _| Verdict::Unknown);
        assert_eq!(groups, [1; 2]);
    }
}
