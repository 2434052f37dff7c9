//! Segments in flight.

use super::delivery::Delivery;
use crate::clock::Nanos;

/// State of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    InFlight,
    /// Selectively acknowledged.
    Sacked,
    /// Detected as lost; waits to be retransmitted.
    Lost,
}

/// A segment that is not acknowledged yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// Offset of its first byte in the stream.
    pub(super) start: u64,
    /// Length in bytes.
    pub(super) len: usize,
    /// Whether it ends the stream. The FIN takes one sequence number.
    pub(super) end_of_stream: bool,
    /// Time of the last transmission.
    pub(super) sent_at: Nanos,
    /// Whether it was retransmitted.
    pub(super) retransmitted: bool,
    pub(super) fate: Fate,
    /// The state of delivery when it was sent last.
    pub(super) delivery: Delivery,
}

impl Segment {
    /// Offset of the first sequence number after it.
    pub(super) fn end(&self) -> u64 {
        self.start + self.len as u64 + u64::from(self.end_of_stream)
    }

    /// Whether it was retransmitted and not acknowledged since.
    pub(super) fn is_repeated(&self) -> bool {
        self.retransmitted && self.fate == Fate::InFlight
    }

    /// Orders segments by transmission.
    pub(super) fn departure(&self) -> (Nanos, u64) {
        (self.sent_at, self.start)
    }
}

/// What one acknowledgement shows.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Bytes newly delivered.
    pub(super) delivered: u64,
    /// Number of segments delivered that had been detected as lost.
    pub(super) spurious: u32,
    /// Round-trip time of the last segment delivered that was not retransmitted.
    pub(super) rtt: Option<Nanos>,
    /// The segment sent last of those delivered.
    pub(super) newest: Option<Segment>,
}
