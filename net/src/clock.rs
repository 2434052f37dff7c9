//! Clocks and randomness of the operating system.

use core::time::Duration;
use std::io;

use mpip_types::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Now, by `CLOCK_BOOTTIME`.
///
/// Unlike `CLOCK_MONOTONIC` it goes on while the host is suspended, as the peer's clock does: after
/// waking up, keys and paths are as old here as they are there.
pub fn now() -> Instant {
    Instant::from_nanos(nanos(ClockId::Boottime))
}

/// The wall clock: time since 1970-01-01 00:00 UTC.
pub fn unix_time() -> Duration {
    Duration::from_nanos(nanos(ClockId::Realtime))
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// 32 bytes of the operating system's randomness; waits until the kernel has gathered enough after
/// boot.
pub fn random_seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    let mut filled = 0;
    while filled < seed.len() {
        match rustix::rand::getrandom(&mut seed[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_advances_as_the_wall_clock_does() {
        // The wall clock before and after each look, however long that takes.
        let look = || (unix_time(), now(), unix_time());
        let (before, start, after) = look();
        std::thread::sleep(Duration::from_millis(20));
        let (earliest, end, latest) = look();
        let elapsed = end.since(start);
        assert!(elapsed >= Duration::from_millis(20), "{elapsed:?}");
        // It is slewed by a thousandth at most.
        let slew = Duration::from_millis(1) + elapsed / 1_000;
        assert!(elapsed + slew >= earliest - after && elapsed <= latest - before + slew);
        assert!(unix_time() > Duration::from_secs(1_700_000_000));
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(random_seed().expect("entropy"), random_seed().expect("entropy"));
    }
}
