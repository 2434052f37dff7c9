//! The earliest delivery time of a packet, as computed by the sender and encoded in a playout
//! frame.
//!
//! A path's delay has a constant part and jitter. The inner TCP mistakes jitter for a queue that
//! builds up and drains: slow start stops long before the paths are full (HyStart, RFC 9406), its
//! timeouts grow, and each late packet bunches up those behind it. So a full packet on such a path
//! carries the time, in the receiver's clock, of its average delay plus the mean deviation, and is
//! not delivered before. Five in six packets arrive in time; to the inner TCP the path seems free
//! of jitter.

use core::time::Duration;

use mpip_types::Instant;

/// Unit of the time in the frame: 2^8 µs.
const UNIT_SHIFT: u32 = 8;
/// Maximum time that a receiver delays a packet.
pub(crate) const LONGEST: Duration = Duration::from_millis(500);

/// From when the delay of a packet counts that was first sent at `first_sent`; `None` if it is
/// delivered as soon as possible, as what is sent again. But of a session whose packets are all to
/// take the time `hold` longer, that would tell the sender the near path's RTT.
pub(crate) fn counts_from(
    now: Instant,
    first_sent: Option<Instant>,
    hold: Option<Duration>,
) -> Option<Instant> {
    match (first_sent, hold) {
        (None, _) => Some(now),
        (Some(_), None) => None,
        (Some(first), Some(_)) => Some(first),
    }
}

/// Encodes the receiver's clock `micros`, modulo 2^32.
pub(crate) fn encode(micros: u32) -> u16 {
    (micros >> UNIT_SHIFT) as u16
}

/// Decodes `at` at the time `now`. Returns `now` if the time has passed or is implausibly far away.
pub(crate) fn time(now: Instant, at: u16) -> Instant {
    let units = at.wrapping_sub(encode(now.as_micros() as u32)) as i16;
    let wait = Duration::from_micros(u64::from(units.max(0).unsigned_abs()) << UNIT_SHIFT);
    if wait > LONGEST { now } else { now + wait }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_decoded_at_any_clock_value() {
        for start in [0_u64, 0xffff_0000, 0xffff_ffff, 0x1_0000_0000, 0x7f_ffff_ff00] {
            for wait in [0_u64, 300, 20_000, 400_000] {
                let at = encode((start + wait) as u32);
                let meant = time(Instant::from_micros(start), at);
                let meant = meant.since(Instant::from_micros(start)).as_micros() as u64;
                assert!(meant.abs_diff(wait) <= 256, "{start} + {wait}: {meant}");
            }
        }
    }

    #[test]
    fn a_repair_of_a_held_session_is_due_when_the_packet_was() {
        let (first, hold) = (Instant::from_millis(1_000), Duration::from_millis(60));
        let now = first + Duration::from_millis(30);
        assert_eq!(counts_from(now, None, None), Some(now));
        assert_eq!(counts_from(now, None, Some(hold)), Some(now));
        assert_eq!(counts_from(now, Some(first), Some(hold)), Some(first));
        assert_eq!(counts_from(now, Some(first), None), None, "as soon as possible");
    }

    #[test]
    fn a_time_that_has_passed_or_is_implausible_is_now() {
        let now = Instant::from_micros(5_000_000);
        for micros in [4_000_000, 5_000_000, 5_600_000, 12_000_000] {
            assert_eq!(time(now, encode(micros)), now);
        }
    }
}
