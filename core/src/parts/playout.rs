//! When a packet is to be delivered at the earliest, as its sender sees it and as it is told.
//!
//! The delay of a path that jitters has an even part and an uneven one. To the inner TCP the uneven
//! one looks like a queue that begins and ends: slow start stops long before the paths are full
//! (HyStart, RFC 9406), time-outs grow, and each late packet bunches up those behind it. So a full
//! packet on such a path says when the receiver's clock will show its usual delay and a deviation,
//! and is not handed on before. Five in six are in time; the path looks like one without jitter.

use core::time::Duration;

use mpip_types::Instant;

/// Units of the time in the frame.
const UNIT_SHIFT: u32 = 8;
/// Longest that a receiver is asked to wait.
pub(crate) const LONGEST: Duration = Duration::from_millis(500);

/// The time in the frame for the receiver's clock `micros`, modulo 2^32.
pub(crate) fn encode(micros: u32) -> u16 {
    (micros >> UNIT_SHIFT) as u16
}

/// The time that the frame's `at` means at `now`; `now` if it has passed or is too far away to be
/// meant.
pub(crate) fn time(now: Instant, at: u16) -> Instant {
    let units = at.wrapping_sub(encode(now.as_micros() as u32)) as i16;
    let wait = Duration::from_micros(u64::from(units.max(0).unsigned_abs()) << UNIT_SHIFT);
    if wait > LONGEST { now } else { now + wait }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_understood_wherever_the_clocks_stand() {
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
    fn what_has_passed_or_is_far_away_is_now() {
        let now = Instant::from_micros(5_000_000);
        for micros in [4_000_000, 5_000_000, 5_600_000, 12_000_000] {
            assert_eq!(time(now, encode(micros)), now);
        }
    }
}
