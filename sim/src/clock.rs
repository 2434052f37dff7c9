//! Virtual time and the clocks of hosts.

use core::time::Duration;

use mpip_core::Instant;

/// A point in virtual time: nanoseconds since the world began.
pub type Nanos = u64;

/// Nanoseconds of a millisecond.
pub const MILLI: Nanos = 1_000_000;

/// Nanoseconds of a second.
pub const SECOND: Nanos = 1_000_000_000;

/// Later than every event of a world.
pub const NEVER: Nanos = Nanos::MAX;

/// The wall clock of a host without offset when the world begins, as Unix time.
const UNIX_ORIGIN: Duration = Duration::from_secs(1_800_000_000);

/// A host's clock: `offset + (1 + drift) * virtual time`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostClock {
    /// What the clock shows when the world begins. Hosts that booted hours apart differ by hours.
    pub offset: Duration,
    /// Nanoseconds that the clock gains in a second; negative when it loses. The seeds measured
    /// 1 ms in 4 minutes: 4167. Within 100,000,000 either way (a tenth).
    pub drift: i64,
}

impl HostClock {
    /// What the clock shows at `now`.
    pub fn at(&self, now: Nanos) -> Instant {
        let gained = i128::from(now) * i128::from(self.drift) / i128::from(SECOND);
        let shown = self.offset.as_nanos() as i128 + i128::from(now) + gained;
        Instant::from_nanos(u64::try_from(shown.max(0)).unwrap_or(u64::MAX))
    }

    /// The first moment at which the clock shows `shown` or later.
    pub fn when(&self, shown: Instant) -> Nanos {
        if shown == Instant::FAR_FUTURE {
            return NEVER;
        }
        let passed = i128::from(shown.as_nanos()) - self.offset.as_nanos() as i128;
        if passed <= 0 {
            return 0;
        }
        let rate = i128::from(SECOND) + i128::from(self.drift);
        let guess = passed * i128::from(SECOND) / rate;
        let mut at = u64::try_from(guess).unwrap_or(NEVER).saturating_sub(2);
        while self.at(at) < shown && at < NEVER {
            at += 1;
        }
        at
    }

    /// The wall clock at `now`.
    pub fn unix_time(&self, now: Nanos) -> Duration {
        UNIX_ORIGIN + Duration::from_nanos(self.at(now).as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inverse_is_the_first_moment_that_shows_the_time() {
        for drift in [0, 4_167, -4_167, 500_000, -500_000, 100_000_000, -100_000_000] {
            let clock = HostClock { offset: Duration::from_secs(5 * 3600), drift };
            for now in [0, 1, 999, 1_000_000_007, 240 * SECOND + 3] {
                let shown = clock.at(now);
                let when = clock.when(shown);
                assert!(when <= now && clock.at(when) == shown, "{drift} {now} {when}");
                assert!(when == 0 || clock.at(when - 1) < shown);
            }
        }
    }

    #[test]
    fn the_seeds_drift_is_a_millisecond_in_four_minutes() {
        let clock = HostClock { offset: Duration::ZERO, drift: 4_167 };
        let gained = clock.at(240 * SECOND).as_nanos() - 240 * SECOND;
        assert!(gained.abs_diff(1_000_000) < 1_000, "{gained}");
    }

    #[test]
    fn what_is_never_due_is_never() {
        let clock = HostClock { offset: Duration::from_secs(1), drift: -4_167 };
        assert_eq!(clock.when(Instant::FAR_FUTURE), NEVER);
    }
}
