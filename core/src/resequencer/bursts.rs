//! Bursts of packets that are delivered after they were held.
//!
//! An application reads datagrams one by one, and what its socket buffer does not hold is lost. A
//! gap that closes would hand it all that arrived in a round trip at once. TCP has room for its
//! whole window, so its packets need no bursts.

use mpip_types::{Bucket, Instant, Rate};

use crate::parameters::ReleaseParameters;

/// The bursts of a session, spaced by a token bucket that holds one of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bursts {
    bucket: Bucket,
    /// A packet waits for the next burst.
    waits: bool,
    /// When that burst begins; if none waits, when the last such burst began.
    begins: Instant,
    /// Packets that have been held since one waits, and as many as before the burst before that.
    held: u32,
    held_before: u32,
    /// Packets that the burst has left beyond its usual size.
    extra: u32,
    /// Whether the session is delivered in bursts at all.
    enabled: bool,
}

impl Bursts {
    /// A packet is held, of a session that is delivered in bursts or not.
    pub(super) fn on_held(&mut self, in_bursts: bool) {
        self.enabled = in_bursts;
        self.held = self.held.saturating_add(1);
    }

    /// Takes a packet into the present burst. `false` if that is over: the packet waits.
    pub(super) fn take(&mut self, now: Instant, parameters: &ReleaseParameters) -> bool {
        if !self.enabled {
            return true;
        }
        if self.waits {
            if now < self.begins {
                return false;
            }
            // More than has arrived, so that what is held becomes less. A path that delivers many at
            // once, and then none for a while, is not faster.
            let arrived = self.held.min(self.held_before);
            self.held_before = self.held;
            let wanted = arrived.saturating_mul(parameters.gain);
            self.extra = wanted.saturating_sub(parameters.burst);
            (self.waits, self.begins) = (false, now);
        }
        if self.extra > 0 && self.begins == now {
            self.extra -= 1;
            return true;
        }
        let takes = self.bucket.take(now, rate(parameters));
        if !takes {
            (self.waits, self.begins, self.held) = (true, now + parameters.interval, 0);
        }
        takes
    }

    /// When the next burst begins, if a packet waits for it.
    pub(super) fn next(&self) -> Option<Instant> {
        (self.enabled && self.waits).then_some(self.begins)
    }
}

/// One burst in each interval.
fn rate(&ReleaseParameters { burst, interval, .. }: &ReleaseParameters) -> Rate {
    let per_second = u64::from(burst) * 1_000_000_000 / (interval.as_nanos() as u64).max(1);
    Rate { burst, per_second: per_second.clamp(1, u32::MAX.into()) as u32 }
}
