//! Timestamps (RFC 7323), by which a receiver knows the round-trip time, and a sender which
//! transmission of a segment arrived.

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

    /// A segment arrives. If it is `early`, it begins no later than the last acknowledgement, and
    /// its timestamp may be echoed: later ones wait behind a gap (section 4.3). Returns the time
    /// since its own echo left, in whole milliseconds; `None` if it has no timestamps, or an
    /// earlier one had the same echo.
    pub(super) fn on_segment(
        &mut self,
        now: Nanos,
        repr: &TcpRepr<'_>,
        early: bool,
    ) -> Option<Nanos> {
        let TcpTimestampRepr { tsval, tsecr } = repr.timestamp?;
        if early && tsval.wrapping_sub(self.newest) <= i32::MAX as u32 {
            self.newest = tsval;
        }
        let before = core::mem::replace(&mut self.echoed, tsecr);
        let passed = clock(now).wrapping_sub(tsecr);
        (tsecr != before && tsecr != 0).then(|| Nanos::from(passed) * MILLI)
    }

    /// Whether what the other end echoed last left before `stamp`.
    pub(super) fn echo_is_before(&self, stamp: u32) -> bool {
        self.echoed != 0 && self.echoed.wrapping_sub(stamp) > i32::MAX as u32
    }
}

/// The clock of timestamps: milliseconds, never 0.
pub(super) fn clock(now: Nanos) -> u32 {
    (now / MILLI) as u32 + 1
}
