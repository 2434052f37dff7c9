//! Bursts in which packets are delivered.
//!
//! An application reads datagrams one by one, and what its socket buffer does not hold is lost. A
//! gap that closes would hand it all that arrived in a round trip at once. What arrives in order
//! then counts, too. TCP has room for its whole window, so its packets need no bursts.

use core::time::Duration;

use mpip_types::{Bucket, Instant, Rate};

use crate::parameters::ReleaseParameters;

/// The bursts of a session, spaced by a token bucket that holds one of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bursts {
    bucket: Bucket,
    /// When the next burst begins, if a packet waits for it.
    begins: Option<Instant>,
    arrivals: Arrivals,
    /// Whether the session is delivered in bursts at all.
    enabled: bool,
}

impl Bursts {
    /// A packet arrives, of a session that is delivered in bursts or not.
    pub(super) fn on_arrival(
        &mut self,
        now: Instant,
        in_bursts: bool,
        parameters: &ReleaseParameters,
    ) {
        self.enabled = in_bursts;
        if in_bursts {
            self.arrivals.count(now, parameters.interval);
        }
    }

    /// Takes a packet into the present burst. `false` if that is over: the packet waits.
    pub(super) fn take(&mut self, now: Instant, parameters: &ReleaseParameters) -> bool {
        if !self.enabled {
            return true;
        }
        if self.begins.is_some_and(|begins| now < begins) {
            return false;
        }
        // More than arrives, so that what is held becomes less. The bucket fills within an
        // interval, however many it holds, so its rate may change.
        let burst = self.arrivals.least.saturating_mul(parameters.gain).max(parameters.burst);
        let takes = self.bucket.take(now, rate(burst, parameters.interval));
        self.begins = (!takes).then(|| now + parameters.interval);
        takes
    }

    /// When the next burst begins, if a packet waits for it.
    pub(super) fn next(&self) -> Option<Instant> {
        self.begins.filter(|_| self.enabled)
    }
}

/// How many packets arrive in an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Arrivals {
    began: Instant,
    count: u32,
    /// As many arrived in the last interval, and in each of the last two. A path that delivers many
    /// at once, and then none for a while, is not faster than others.
    last: u32,
    least: u32,
}

impl Arrivals {
    fn count(&mut self, now: Instant, interval: Duration) {
        let elapsed = now.since(self.began);
        if elapsed >= interval {
            let intervals = elapsed.as_nanos() / interval.as_nanos().max(1);
            let ended = (u128::from(self.count) / intervals.max(1)) as u32;
            (self.least, self.last) = (ended.min(self.last), ended);
            (self.began, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
    }
}

/// One burst of so many packets in each interval.
fn rate(burst: u32, interval: Duration) -> Rate {
    let per_second = u64::from(burst) * 1_000_000_000 / (interval.as_nanos() as u64).max(1);
    Rate { burst, per_second: per_second.clamp(1, u32::MAX.into()) as u32 }
}
