//! Packets that wait, and their places in memory.

use mpip_types::{Checksum, InnerPacket, Instant};

/// Memory of a packet is counted in multiples of this, so that one buffer serves any packet of an
/// ordinary MTU.
pub(super) const GRAIN: usize = 2_048;
/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// A packet that waits.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) buffer: Vec<u8>,
    pub(super) head_len: usize,
    pub(super) checksum: Checksum,
    pub(super) sequence: u32,
    pub(super) arrived: Instant,
    /// Not to be delivered before.
    pub(super) not_before: Instant,
    /// Neighbours of the same session in the order of arrival.
    pub(super) earlier: u32,
    pub(super) later: u32,
    /// The packet with the next number, if it waits too; of a free slot, the next free one.
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

    /// Bytes of memory with its slot, which is what counts against every bound.
    pub(super) fn memory(&self) -> usize {
        self.buffer.capacity() + size_of::<Self>()
    }
}

/// The slots of a pool, whether a packet waits in them or not.
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
