//! The packets that are sent next.

use core::time::Duration;

use mpip_types::Instant;
use mpip_types::packet::Segments;
use mpip_wire::{PathId, SessionId};

use crate::content::SentPacket;
use crate::rules::{PathLimit, Treatment};

/// The next packet to send.
pub(crate) struct NextPacket {
    pub(crate) segments: Segments,
    pub(crate) segment: usize,
    /// Bytes of it.
    pub(crate) len: usize,
    pub(crate) slot: u32,
    pub(crate) session: SessionId,
    pub(crate) sequence: u32,
    pub(crate) ordered: bool,
    pub(crate) repair: bool,
    pub(crate) mark: bool,
    /// What the rules want for it.
    pub(crate) treatment: Treatment,
    /// When it was first sent; `None` if it is new.
    pub(crate) first_sent: Option<Instant>,
    /// The paths that it may take.
    pub(crate) allowed: Allowed,
    /// How much longer than by the nearest path it is to take at least; `None` if it is not held.
    pub(crate) hold: Option<Duration>,
}

impl NextPacket {
    /// What is kept of it while it is in flight on `path` as the packet `number`.
    pub(crate) fn sent_on(&self, now: Instant, path: PathId, number: u64) -> SentPacket {
        SentPacket {
            ordered: self.ordered,
            segments: self.segments.clone(),
            segment: self.segment as u16,
            slot: self.slot,
            session: self.session,
            sequence: self.sequence,
            marked: self.mark,
            paths: self.treatment.paths,
            first_sent: self.first_sent.unwrap_or(now),
            path,
            number,
        }
    }
}

/// Packets that leave one after the other, as long as paths take them: a retransmission, or
/// segments of one length of a super-packet.
pub(crate) struct Run {
    /// The first of those that have not left; the one behind them when all have.
    pub(crate) next: NextPacket,
    /// How many they are.
    count: usize,
    /// How many have left.
    pub(super) sent: usize,
}

impl Run {
    pub(super) fn of(next: NextPacket, count: usize) -> Self {
        Self { next, count, sent: 0 }
    }

    /// Whether all have left.
    pub(crate) fn is_over(&self) -> bool {
        self.sent >= self.count
    }

    /// The next packet was sent: goes on to the one behind it.
    pub(crate) fn advance(&mut self) {
        self.sent += 1;
        self.next.segment += 1;
        self.next.sequence = self.next.sequence.wrapping_add(1);
    }
}

/// Which paths a packet may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// Those that its rule permits.
    ByRule(PathLimit),
    /// This one, as long as it works.
    Confined(PathId),
}
