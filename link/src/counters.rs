//! Counters of a link.

use serde::{Deserialize, Serialize};

/// Why a link dropped a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropCause {
    /// The queue was full.
    Queue,
    /// CoDel dropped it at the head of the queue.
    Codel,
    /// The loss model lost it on the link.
    Loss,
    /// The link was down, or went down while it held the packet.
    Down,
    /// The link was a blackhole.
    Blackhole,
    /// Larger than the MTU.
    TooBig,
}

/// Counts since the link was created.
///
/// `offered_packets + duplicated = delivered_packets + dropped() + held`, where `held` are the
/// packets in the queue, on the wire and in propagation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Packets that entered.
    pub offered_packets: u64,
    /// Their bytes, without the link's overhead.
    pub offered_bytes: u64,
    /// Packets that left at the other end, copies included.
    pub delivered_packets: u64,
    /// Their bytes, without the link's overhead.
    pub delivered_bytes: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
    /// Packets that left before one that had entered earlier.
    pub reordered: u64,
    /// Dropped because the queue was full.
    pub dropped_queue: u64,
    /// Dropped by CoDel.
    pub dropped_codel: u64,
    /// Lost on the link.
    pub dropped_loss: u64,
    /// Lost because the link was down.
    pub dropped_down: u64,
    /// Lost in the blackhole.
    pub dropped_blackhole: u64,
    /// Dropped because of the MTU.
    pub dropped_too_big: u64,
    /// Longest queue in bytes, overhead included.
    pub max_queued_bytes: u64,
    /// Longest queue in packets.
    pub max_queued_packets: u64,
}

impl Counters {
    /// All drops together, in packets.
    pub fn dropped(&self) -> u64 {
        self.dropped_queue
            + self.dropped_codel
            + self.dropped_loss
            + self.dropped_down
            + self.dropped_blackhole
            + self.dropped_too_big
    }

    pub(crate) fn count_drop(&mut self, cause: DropCause, packets: u64) {
        let counter = match cause {
            DropCause::Queue => &mut self.dropped_queue,
            DropCause::Codel => &mut self.dropped_codel,
            DropCause::Loss => &mut self.dropped_loss,
            DropCause::Down => &mut self.dropped_down,
            DropCause::Blackhole => &mut self.dropped_blackhole,
            DropCause::TooBig => &mut self.dropped_too_big,
        };
        *counter += packets;
    }
}
