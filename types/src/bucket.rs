//! Token buckets: rate limits.

use core::time::Duration;

use crate::time::Instant;

/// A rate limit.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Burst size in events, at least 1.
    pub burst: u32,
    /// Long-term rate, events per second, at least 1.
    pub per_second: u32,
}

impl Rate {
    const fn pause(self) -> Duration {
        Duration::from_nanos(1_000_000_000 / self.per_second as u64)
    }
}

/// A token bucket for a [`Rate`]. Each call must pass the same rate.
///
/// Its state is the time at which the bucket is full again (the generic cell rate algorithm, ITU-T
/// I.371, annex A).
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    full_at: Instant,
}

impl Bucket {
    /// A full bucket.
    pub const fn new() -> Self {
        Self { full_at: Instant::ZERO }
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Instant, rate: Rate) -> bool {
        if now < self.ready_at(rate) {
            return false;
        }
        self.full_at = self.full_at.max(now) + rate.pause();
        true
    }

    /// When the next token is available.
    pub fn ready_at(&self, rate: Rate) -> Instant {
        self.full_at - rate.pause() * (rate.burst - 1)
    }

    /// Returns `count` tokens.
    pub fn give_back(&mut self, count: u32, rate: Rate) {
        self.full_at = self.full_at - rate.pause() * count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { burst: 3, per_second: 10 };

    fn at(millis: u64) -> Instant {
        Instant::from_millis(1_000_000 + millis)
    }

    fn taken(bucket: &mut Bucket, now: Instant) -> usize {
        (0..10).filter(|_| bucket.take(now, RATE)).count()
    }

    #[test]
    fn a_burst_may_happen_at_once_and_the_rate_in_the_long_run() {
        let mut bucket = Bucket::new();
        assert_eq!(taken(&mut bucket, at(0)), 3);
        assert_eq!(bucket.ready_at(RATE), at(100));
        assert_eq!(taken(&mut bucket, at(99)), 0);
        assert_eq!(taken(&mut bucket, at(100)), 1);
        assert_eq!(taken(&mut bucket, at(350)), 2);
        assert_eq!(taken(&mut bucket, at(60_000)), 3, "no more than a burst is saved up");
    }

    #[test]
    fn what_is_given_back_may_be_taken_again() {
        let mut bucket = Bucket::new();
        assert_eq!(taken(&mut bucket, at(0)), 3);
        bucket.give_back(2, RATE);
        assert_eq!(taken(&mut bucket, at(0)), 2);
        bucket.give_back(100, RATE);
        assert_eq!(taken(&mut bucket, at(0)), 3, "no more than a burst");
    }
}
