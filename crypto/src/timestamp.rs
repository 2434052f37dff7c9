//! Handshake timestamps: what makes a recorded handshake initiation worthless.

use core::fmt;
use core::time::Duration;

/// Bytes of a timestamp on the wire.
pub const TIMESTAMP_LEN: usize = 12;

/// Seconds label of the TAI64 epoch: 2^62, and the 10 s by which TAI led UTC in 1970.
const TAI64_EPOCH: u64 = (1 << 62) + 10;

/// Nanoseconds are cut down to multiples of this (about 17 ms), as in WireGuard, so that a
/// handshake does not show the precise state of the clock.
const GRANULARITY: u32 = 1 << 24;

/// A timestamp that is later than the receiver's clock by more than this is not one of two clocks
/// that are right. Clocks that nobody sets lose or gain minutes in a year.
const AHEAD: Duration = Duration::from_secs(600);

/// A TAI64N label: seconds (64 bits) and nanoseconds (32 bits), big-endian, so that bytes compare
/// as times do. Receivers only compare it with others of the same peer; no clocks need to agree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp([u8; TIMESTAMP_LEN]);

impl Timestamp {
    /// The label with these bytes, which may come from the wire: any value is ordered.
    pub const fn from_bytes(bytes: [u8; TIMESTAMP_LEN]) -> Self {
        Self(bytes)
    }

    /// The label as sent on the wire.
    pub const fn as_bytes(&self) -> &[u8; TIMESTAMP_LEN] {
        &self.0
    }

    /// The label of a moment, with coarse nanoseconds. `unix_time`: since 1970-01-01 00:00 UTC.
    fn at(unix_time: Duration) -> Self {
        let seconds = unix_time.as_secs().saturating_add(TAI64_EPOCH);
        Self::new(seconds, unix_time.subsec_nanos() & !(GRANULARITY - 1))
    }

    fn new(seconds: u64, nanoseconds: u32) -> Self {
        let mut bytes = [0; TIMESTAMP_LEN];
        bytes[..8].copy_from_slice(&seconds.to_be_bytes());
        bytes[8..].copy_from_slice(&nanoseconds.to_be_bytes());
        Self(bytes)
    }

    fn seconds(&self) -> u64 {
        u64::from_be_bytes(*self.0.first_chunk().expect("12 bytes hold 8"))
    }

    fn nanoseconds(&self) -> u32 {
        u32::from_be_bytes(*self.0.last_chunk().expect("12 bytes hold 4"))
    }

    /// The smallest label after this one, saturating at the end of time.
    fn successor(&self) -> Self {
        match self.nanoseconds() {
            nanoseconds if nanoseconds < 999_999_999 => Self::new(self.seconds(), nanoseconds + 1),
            _ => Self::new(self.seconds().saturating_add(1), 0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({self})")
    }
}

impl fmt::Display for Timestamp {
    /// In the external TAI64N form: `@` and 24 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{:016x}{:08x}", self.seconds(), self.nanoseconds())
    }
}

/// Gives a node timestamps that strictly increase, also when its clock stands still or is set back.
///
/// After a restart they increase only if the clock does. What peers make of a clock that was set
/// back in between: see [`ReplayGuard`].
#[derive(Debug, Clone, Default)]
pub struct TimestampSource {
    last: Option<Timestamp>,
}

impl TimestampSource {
    /// A source that has given none yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The timestamp for a handshake at `unix_time`, the time since 1970-01-01 00:00 UTC.
    pub fn next(&mut self, unix_time: Duration) -> Timestamp {
        let clock = Timestamp::at(unix_time);
        let next = match self.last {
            Some(last) if clock <= last => last.successor(),
            _ => clock,
        };
        self.last = Some(next);
        next
    }
}

/// Accepts ever greater timestamps of one peer's handshake initiations, and none twice.
///
/// Timestamps that are far ahead of the receiver's clock are accounted for apart, as one span: a
/// peer whose clock was ahead by years, was set right and restarted, is not refused for years.
/// Whatever the clocks of both show, every timestamp that was accepted is either not later than
/// the latest, or lies in that span.
///
/// It must outlive the association, and the peer's entry in the configuration, else a recorded
/// initiation is accepted anew; what a replay gains even then is an answer that only the true peer
/// can use.
#[derive(Debug, Clone, Default)]
pub struct ReplayGuard {
    /// The greatest one accepted that was not ahead.
    latest: Option<Timestamp>,
    /// The first and the greatest one accepted that were ahead.
    ahead: Option<(Timestamp, Timestamp)>,
}

impl ReplayGuard {
    /// A guard that has accepted none yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Accepts the timestamp of an authentic initiation, and refuses it from now on. `unix_time`:
    /// the receiver's clock, since 1970-01-01 00:00 UTC.
    ///
    /// # Errors
    /// [`StaleTimestamp`] when it may have been accepted before; nothing changes then.
    pub fn accept(
        &mut self,
        received: Timestamp,
        unix_time: Duration,
    ) -> Result<(), StaleTimestamp> {
        if let Some(latest) = self.latest.filter(|latest| received <= *latest) {
            return Err(StaleTimestamp { latest, received });
        }
        let is_ahead = received > Timestamp::at(unix_time.saturating_add(AHEAD));
        match self.ahead {
            Some((first, latest)) if received <= latest && (is_ahead || received >= first) => {
                return Err(StaleTimestamp { latest, received });
            }
            Some((first, _)) if is_ahead => self.ahead = Some((first, received)),
            None if is_ahead => self.ahead = Some((received, received)),
            Some((_, greatest)) => {
                self.ahead.take_if(|_| received > greatest);
                self.latest = Some(received);
            }
            None => self.latest = Some(received),
        }
        Ok(())
    }
}

/// A handshake initiation is a replay, or its sender's clock was set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaleTimestamp {
    /// The greatest timestamp accepted from this peer, among those that it is held against.
    pub latest: Timestamp,
    /// The timestamp that came.
    pub received: Timestamp,
}

impl fmt::Display for StaleTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected a timestamp after {}, received {}", self.latest, self.received)
    }
}

impl core::error::Error for StaleTimestamp {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_label_is_tai64n_with_coarse_nanoseconds() {
        let mut source = TimestampSource::new();
        let label = source.next(Duration::new(1, GRANULARITY + 12_345));
        assert_eq!(*label.as_bytes(), [0x40, 0, 0, 0, 0, 0, 0, 11, 1, 0, 0, 0]);
        assert_eq!(label.to_string(), "@400000000000000b01000000");
    }

    /// [H-2]
    #[test]
    fn timestamps_increase_when_the_clock_stands_still_or_is_set_back() {
        let mut source = TimestampSource::new();
        let mut last = source.next(Duration::new(100, 999_999_999));
        for unix_time in [100, 100, 50, 0, 101, 101] {
            let next = source.next(Duration::from_secs(unix_time));
            assert!(next > last, "{next} after {last}");
            last = next;
        }
    }

    #[test]
    fn the_successor_of_a_full_second_is_the_next_second() {
        let label = Timestamp::new(7, 999_999_999);
        assert_eq!(label.successor(), Timestamp::new(8, 0));
        assert_eq!(Timestamp::new(7, u32::MAX).successor(), Timestamp::new(8, 0));
    }

    /// When the receiver's clock shows this, labels of up to ten minutes later are not ahead.
    const CLOCK: Duration = Duration::from_secs(1_700_000_000);

    /// The label of `seconds` after [`CLOCK`].
    fn label(seconds: i64) -> Timestamp {
        Timestamp::at(Duration::from_secs(CLOCK.as_secs().saturating_add_signed(seconds)))
    }

    /// [H-2]
    #[test]
    fn the_guard_accepts_only_strictly_greater_timestamps() {
        for seconds in [-1_000_000, 0, 599, 601, 1_000_000] {
            let mut guard = ReplayGuard::new();
            let older = label(seconds);
            let newer = older.successor();
            assert_eq!(guard.accept(newer, CLOCK), Ok(()));
            for received in [newer, older] {
                let stale = StaleTimestamp { latest: newer, received };
                assert_eq!(guard.accept(received, CLOCK), Err(stale));
            }
            assert_eq!(guard.accept(newer.successor(), CLOCK), Ok(()));
        }
    }

    /// [H-2]
    #[test]
    fn a_clock_that_was_ahead_and_is_set_right_is_believed_again() {
        let mut guard = ReplayGuard::new();
        assert_eq!(guard.accept(label(0), CLOCK), Ok(()));
        for seconds in [1_000_000, 1_000_001] {
            assert_eq!(guard.accept(label(seconds), CLOCK), Ok(()));
        }
        assert_eq!(guard.accept(label(60), CLOCK), Ok(()), "after a restart with the right clock");
        for replay in [0, 60, 1_000_000, 1_000_001] {
            assert!(guard.accept(label(replay), CLOCK).is_err(), "{replay}");
        }
        assert_eq!(guard.accept(label(1_000_002), CLOCK), Ok(()), "without a restart");
        // When that time has come, what was accepted is still refused.
        let then = CLOCK + Duration::from_secs(1_000_000);
        assert_eq!(guard.accept(label(999_999), then), Ok(()));
        assert!(guard.accept(label(1_000_001), then).is_err());
        assert_eq!(guard.accept(label(1_000_003), then), Ok(()));
    }

    /// [H-2]
    #[test]
    fn a_receiver_whose_clock_is_not_set_yet_accepts_ever_greater_timestamps() {
        let mut guard = ReplayGuard::new();
        let unset = Duration::from_secs(20);
        assert_eq!(guard.accept(label(0), unset), Ok(()));
        assert_eq!(guard.accept(label(1), unset), Ok(()));
        assert!(guard.accept(label(0), unset).is_err());
        assert_eq!(guard.accept(label(2), CLOCK), Ok(()));
        for replay in [0, 1, 2] {
            assert!(guard.accept(label(replay), CLOCK).is_err());
        }
    }

    proptest! {
        /// [H-2]
        #[test]
        fn no_timestamp_is_accepted_twice_whatever_the_clocks_show(
            steps in prop::collection::vec((0_i64..40, 0_i64..40), 1..60),
        ) {
            let mut guard = ReplayGuard::new();
            let mut accepted = std::collections::BTreeSet::new();
            for (sent, shown) in steps {
                let clock = CLOCK + Duration::from_secs(shown as u64 * 120);
                if guard.accept(label(sent * 120), clock).is_ok() {
                    prop_assert!(accepted.insert(sent), "{} again", sent);
                }
            }
        }

        #[test]
        fn bytes_compare_as_times_do(a: (u64, u32), b: (u64, u32)) {
            prop_assert_eq!(Timestamp::new(a.0, a.1).cmp(&Timestamp::new(b.0, b.1)), a.cmp(&b));
        }
    }
}
