//! Timestamps (RFC 7323), by which a receiver knows the round-trip time.

use smoltcp::wire::{TcpRepr, TcpTimestampRepr};

use crate::clock::{MILLI, Nanos};

/// The timestamps of one end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timestamps {
    /// The newest one of the other end, which is echoed.
    newest: u32,
    /// The last own one that the other end echoed.
    echoed: u32,
}

impl Timestamps {
    /// The option of a segment that leaves now.
    pub(super) fn option(&self, now: Nanos) -> TcpTimestampRepr {
        TcpTimestampRepr::new(clock(now), self.newest)
    }

    /// A segment arrives. Returns the time since its echo left, in whole milliseconds; `None` if it
    /// has no timestamps, or an earlier one had the same echo.
    pub(super) fn on_segment(&mut self, now: Nanos, repr: &TcpRepr<'_>) -> Option<Nanos> {
        let TcpTimestampRepr { tsval, tsecr } = repr.timestamp?;
        if tsval.wrapping_sub(self.newest) <= i32::MAX as u32 {
            self.newest = tsval;
        }
        let before = core::mem::replace(&mut self.echoed, tsecr);
        let passed = clock(now).wrapping_sub(tsecr);
        (tsecr != before && tsecr != 0).then(|| Nanos::from(passed) * MILLI)
    }
}

/// The clock of timestamps: milliseconds, never 0.
fn clock(now: Nanos) -> u32 {
    (now / MILLI) as u32 + 1
}
