//! The round-trip time of an inner TCP sender, measured for one segment at a time.

use core::time::Duration;

use mpip_types::Instant;
use mpip_types::packet::MAX_WINDOW;

/// The segment whose acknowledgement is awaited, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RttSample {
    awaits: bool,
    /// Its end in the stream, and when it was sent.
    end: u32,
    sent: Instant,
}

impl RttSample {
    /// A segment is sent that ends at `end`.
    pub(crate) fn on_segment(&mut self, now: Instant, end: u32) {
        if !core::mem::replace(&mut self.awaits, true) {
            (self.end, self.sent) = (end, now);
        }
    }

    /// Everything before `ack` has arrived. Returns the round-trip time if that was awaited.
    pub(crate) fn on_ack(&mut self, now: Instant, ack: u32) -> Option<Duration> {
        match ack.wrapping_sub(self.end) < MAX_WINDOW {
            true => self.take(now),
            false => None,
        }
    }

    /// What was awaited has arrived. Returns the round-trip time, unless nothing was.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Duration> {
        core::mem::take(&mut self.awaits).then(|| now.since(self.sent))
    }
}
