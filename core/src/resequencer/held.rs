//! Held packets and their slots in memory.

use mpip_types::{Checksum, InnerPacket, Instant};

/// Allocation unit of packets, bytes: one buffer of this size fits any packet of ordinary MTU.
pub(super) const GRAIN: usize = 2_048;
/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// A held packet.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) buffer: Vec<u8>,
    pub(super) head_len: usize,
    pub(super) checksum: Checksum,
    pub(super) sequence: u32,
    pub(super) arrived: Instant,
    /// Playout time: not to be delivered earlier.
    pub(super) not_before: Instant,
    /// Neighbours in the session's order of arrival.
    pub(super) earlier: u32,
    pub(super) later: u32,
    /// The slot of the packet with the next number, if it is held, too; in a free slot, the next
    /// free one.
    pub(super) next: u32,
}

impl Held {
    /// A slot without a buffer.
    pub(super) const BARE: Self = Self {
        buffer: Vec::new(),
        head_len: 0,
        checksum: Checksum::Complete,
        sequence: 0,
        arrived: Instant::ZERO,
        not_before: Instant::ZERO,
        earlier: NONE,
        later: NONE,
        next: NONE,
    };

    pub(super) fn packet(&self) -> InnerPacket<'_> {
        let (head, tail) = self.buffer.split_at(self.head_len);
        InnerPacket { head, tail, checksum: self.checksum }
    }

    /// Bytes of memory, slot included; this counts against every limit.
    pub(super) fn memory(&self) -> usize {
        self.buffer.capacity() + size_of::<Self>()
    }
}

/// The slots of a pool, in use or free.
#[derive(Debug, Default)]
pub(super) struct Slots(pub(super) Vec<Held>);

impl Slots {
    /// The slot `index`; there is none for [`NONE`].
    pub(super) fn get(&self, index: u32) -> Option<&Held> {
        self.0.get(index as usize)
    }

    /// The slot `index`; there is none for [`NONE`].
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Held> {
        self.0.get_mut(index as usize)
    }
}
