//! Which paths a session used lately.

use core::time::Duration;

use mpip_types::Instant;
use mpip_wire::PathId;

/// How long a use counts: between one and two of these. Long enough that a session that sends a
/// packet now and then keeps its path, short enough to see a path change.
const PERIOD: Duration = Duration::from_secs(2);

/// Most paths that are counted. The least used one makes room for another.
const COUNTED: usize = 8;

/// Packets of a session on each path, in this period and the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentPaths {
    uses: [Use; COUNTED],
    /// The period of `Use::now`, counted from the start of time.
    period: u32,
}

/// Packets on a path. Without any, the place is free.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    path: u16,
    now: u32,
    before: u32,
}

impl Use {
    fn packets(&self) -> u64 {
        u64::from(self.now) + u64::from(self.before)
    }
}

/// The number of the period that `now` is in. It wraps after 272 years.
fn period(now: Instant) -> u32 {
    (now.as_nanos() / PERIOD.as_nanos() as u64) as u32
}

impl RecentPaths {
    /// A packet travelled on `path`.
    pub(crate) fn add(&mut self, now: Instant, path: PathId) {
        let period = period(now);
        if period != self.period {
            let next = period.wrapping_sub(self.period) == 1;
            for one in &mut self.uses {
                one.before = if next { one.now } else { 0 };
                one.now = 0;
            }
            self.period = period;
        }
        let known = self.uses.iter_mut().find(|one| one.path == path.0 && one.packets() > 0);
        if let Some(known) = known {
            known.now = known.now.saturating_add(1);
        } else if let Some(least) = self.uses.iter_mut().min_by_key(|one| one.packets()) {
            *least = Use { path: path.0, now: 1, before: 0 };
        }
    }

    /// Those of `paths` that were used lately, and the share of the packets that each carried.
    pub(crate) fn among(
        &self,
        now: Instant,
        paths: impl Iterator<Item = PathId>,
    ) -> Vec<(u16, f64)> {
        let age = period(now).wrapping_sub(self.period);
        let packets = |one: &Use| match age {
            0 => one.packets(),
            1 => one.now.into(),
            _ => 0,
        };
        let total: u64 = self.uses.iter().map(packets).sum();
        let used = paths.filter_map(|path| {
            let own: u64 = self.uses.iter().filter(|one| one.path == path.0).map(packets).sum();
            (own > 0).then(|| (path.0, own as f64 / total as f64))
        });
        used.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(recent: &RecentPaths, now: Instant) -> Vec<u16> {
        let among = recent.among(now, (0..20).map(PathId));
        among.into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn a_path_counts_as_used_for_two_to_four_seconds() {
        let at = Instant::from_millis;
        let mut recent = RecentPaths::default();
        assert!(used(&recent, at(0)).is_empty());
        recent.add(at(500), PathId(1));
        recent.add(at(1_999), PathId(3));
        recent.add(at(2_000), PathId(0));
        assert_eq!(used(&recent, at(2_100)), [0, 1, 3]);
        assert_eq!(used(&recent, at(4_500)), [0]);
        assert!(used(&recent, at(6_000)).is_empty());
        recent.add(at(60_000), PathId(2));
        assert_eq!(used(&recent, at(60_001)), [2], "old ones are forgotten");
    }

    #[test]
    fn shares_are_those_of_the_packets() {
        let now = Instant::from_millis(500);
        let mut recent = RecentPaths::default();
        for path in [4, 4, 4, 70] {
            recent.add(now, PathId(path));
        }
        let paths = [PathId(70), PathId(6), PathId(4)];
        let shares = recent.among(now, paths.into_iter());
        assert_eq!(shares, [(70, 0.25), (4, 0.75)]);
    }

    #[test]
    fn the_least_used_path_makes_room() {
        let now = Instant::from_millis(500);
        let mut recent = RecentPaths::default();
        for path in (0..8).chain((1..8).chain([9])) {
            recent.add(now, PathId(path));
        }
        assert_eq!(used(&recent, now), [1, 2, 3, 4, 5, 6, 7, 9]);
    }
}
