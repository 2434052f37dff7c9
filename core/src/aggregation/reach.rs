//! How far the paths in use reach, for senders that know a near one only.

use core::time::Duration;

use crate::parameters::RaiseParameters;
use crate::recent_bytes::RecentBytes;
use crate::scheduler::PERIOD;

/// A path in use, at the end of a period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathReach {
    pub(crate) id: u16,
    pub(crate) minimum_rtt: Duration,
    /// Least one-way delay, µs against the association's reference.
    pub(crate) least: i64,
    /// The delay that its packets usually have without a queue, µs.
    pub(crate) usual: i64,
    /// What it delivers as far as known, bytes/s.
    pub(crate) delivers: u64,
    /// It may carry more.
    pub(crate) searches: bool,
    /// Bytes carried so far.
    pub(crate) carried: u64,
}

/// How far the paths in use reach.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reach {
    /// Minimum RTT of the farthest of them.
    pub(crate) farthest: Duration,
    /// Least one-way delay of the path whose packets usually take the shortest time, µs against the
    /// association's reference.
    pub(crate) nearest: i64,
    /// How much longer packets take on the others, in ascending order: on those that carry enough
    /// to wait for them.
    pub(crate) steps: Vec<Duration>,
    /// The last of these if nearer paths carry what they deliver, otherwise zero.
    pub(crate) beyond_full: Duration,
    /// The paths by their usual delays.
    paths: Vec<PathReach>,
    /// What they carry, by their numbers.
    loads: Vec<(u16, RecentBytes)>,
}

impl Reach {
    /// Looks at the paths in use, at the end of each [`PERIOD`].
    pub(crate) fn look(
        &mut self,
        paths: impl Iterator<Item = PathReach>,
        parameters: &RaiseParameters,
    ) {
        self.paths.clear();
        self.paths.extend(paths);
        self.paths.sort_unstable_by_key(|path| (path.usual, path.id));
        self.farthest = self.paths.iter().map(|path| path.minimum_rtt).max().unwrap_or_default();
        self.nearest = self.paths.first().map_or(0, |path| path.least);
        self.loads.retain(|(id, _)| self.paths.iter().any(|path| path.id == *id));
        self.steps.clear();
        let (mut delivered, mut carried, mut full) = (0, 0, false);
        for (index, path) in self.paths.iter().enumerate() {
            let nearer = delivered as f64;
            full |= carried as f64 / PERIOD.as_secs_f64() > nearer * parameters.full;
            let enough = path.searches || path.delivers as f64 >= nearer * parameters.worth;
            if enough && index > 0 {
                let longer = path.usual.saturating_sub(self.nearest).unsigned_abs();
                self.steps.push(Duration::from_micros(longer));
            }
            delivered += path.delivers;
            carried += carries(&mut self.loads, path);
        }
        let last = self.steps.last().copied().unwrap_or_default();
        self.beyond_full = if full { last } else { Duration::ZERO };
    }
}

/// Bytes that `path` carries in a period, on average.
fn carries(loads: &mut Vec<(u16, RecentBytes)>, path: &PathReach) -> u64 {
    let Some((_, recent)) = loads.iter_mut().find(|(id, _)| *id == path.id) else {
        loads.push((path.id, RecentBytes::new(path.carried)));
        return 0;
    };
    recent.end_period(path.carried);
    recent.average()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(id: u16, delay_ms: i64, delivers: u64) -> PathReach {
        let delay = delay_ms * 1_000;
        let minimum_rtt = Duration::from_millis(delay_ms.unsigned_abs() * 2);
        let (least, usual) = (delay, delay);
        PathReach { id, minimum_rtt, least, usual, delivers, searches: false, carried: 0 }
    }

    fn steps(paths: &[PathReach]) -> Vec<u128> {
        let mut reach = Reach::default();
        reach.look(paths.iter().copied(), &RaiseParameters::default());
        reach.steps.iter().map(Duration::as_millis).collect()
    }

    #[test]
    fn each_farther_path_is_a_step() {
        let mut paths = [path(0, 70, 500_000), path(1, 10, 500_000), path(2, 30, 500_000)];
        assert_eq!(steps(&paths), [20, 60]);
        paths[2].usual += 25_000;
        assert_eq!(steps(&paths), [45, 60], "with jitter, packets usually take longer");
        paths[2].least = 8_000;
        assert_eq!(steps(&paths), [45, 60], "few of them are faster than by the nearest path");
        assert_eq!(steps(&paths[..1]), [] as [u128; 0]);
        assert_eq!(steps(&[]), [] as [u128; 0]);
    }

    #[test]
    fn a_path_that_delivers_little_is_no_step_unless_it_searches() {
        let mut paths = [path(0, 10, 500_000), path(1, 30, 500_000), path(2, 70, 99_000)];
        assert_eq!(steps(&paths), [20]);
        paths[2].searches = true;
        assert_eq!(steps(&paths), [20, 60]);
    }

    #[test]
    fn a_farther_path_counts_while_nearer_ones_carry_what_they_deliver() {
        let mut reach = Reach::default();
        let mut paths = [path(0, 10, 500_000), path(1, 11, 50_000), path(2, 40, 500_000)];
        let mut look = |bytes: [u64; 3]| {
            for _ in 0..30 {
                paths.iter_mut().zip(bytes).for_each(|(path, bytes)| path.carried += bytes);
                reach.look(paths.iter().copied(), &RaiseParameters::default());
            }
            reach.beyond_full.as_millis()
        };
        assert_eq!(look([0, 0, 0]), 0);
        assert_eq!(look([45_000, 0, 0]), 30);
        assert_eq!(look([25_000, 5_000, 0]), 0);
        assert_eq!(look([0, 0, 50_000]), 0, "it is the farthest");
    }
}
