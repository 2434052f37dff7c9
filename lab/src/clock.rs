//! The monotonic clock, which all processes of the machine share, and the time of day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::thread::{ClockId, NanosleepRelativeResult};
use rustix::time::{Timespec, clock_gettime};

/// Time since boot.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned() as u32)
}

/// Seconds since 1970-01-01 UTC.
pub(crate) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Sleeps until `at`. Returns at once if it has passed.
pub(crate) fn sleep_until(at: Duration) {
    let Some(left) = at.checked_sub(now()) else { return };
    let request =
        Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
    let _: NanosleepRelativeResult =
        rustix::thread::clock_nanosleep_relative(ClockId::Monotonic, &request);
}

/// Sets the timer slack of this process to a minimum (the kernel's default is 50 µs).
pub(crate) fn sharpen_timers() {
    let _ = std::fs::write("/proc/self/timerslack_ns", "1");
}
