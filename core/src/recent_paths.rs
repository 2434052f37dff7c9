//! Which paths a session used lately.

use core::time::Duration;

use mpip_types::Instant;
use mpip_wire::PathId;

/// How long a use counts: between one and two of these. Long enough that a session that sends a
/// packet now and then keeps its path, short enough to see a path change.
const PERIOD: Duration = Duration::from_secs(2);

/// The paths on which a session's packets travelled in this period and the one before.
///
/// A path is a bit, that of its identifier modulo 64. An association has at most 64 paths, whose
/// identifiers are nearly always consecutive; where two of them share a bit, both are named.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentPaths {
    now: u64,
    before: u64,
    /// The period of `now`, counted from the start of time.
    period: u32,
}

fn bit(path: PathId) -> u64 {
    1 << (path.0 % 64)
}

/// The number of the period that `now` is in. It wraps after 272 years.
fn period(now: Instant) -> u32 {
    (now.as_micros() / PERIOD.as_micros() as u64) as u32
}

impl RecentPaths {
    /// A packet travelled on `path`.
    pub(crate) fn add(&mut self, now: Instant, path: PathId) {
        let period = period(now);
        if period != self.period {
            self.before = if period.wrapping_sub(self.period) == 1 { self.now } else { 0 };
            (self.now, self.period) = (0, period);
        }
        self.now |= bit(path);
    }

    /// Those of `paths` that were used lately.
    pub(crate) fn among(&self, now: Instant, paths: impl Iterator<Item = PathId>) -> Vec<u16> {
        let used = match period(now).wrapping_sub(self.period) {
            0 => self.now | self.before,
            1 => self.now,
            _ => 0,
        };
        paths.filter(|path| used & bit(*path) != 0).map(|path| path.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_counts_as_used_for_two_to_four_seconds() {
        let at = Instant::from_millis;
        let all = || (0..4).map(PathId);
        let mut recent = RecentPaths::default();
        assert!(recent.among(at(0), all()).is_empty());
        recent.add(at(500), PathId(1));
        recent.add(at(1_999), PathId(3));
        recent.add(at(2_000), PathId(0));
        assert_eq!(recent.among(at(2_100), all()), [0, 1, 3]);
        assert_eq!(recent.among(at(4_500), all()), [0]);
        assert!(recent.among(at(6_000), all()).is_empty());
        recent.add(at(60_000), PathId(2));
        assert_eq!(recent.among(at(60_001), all()), [2], "old ones are forgotten");
    }
}
