//! Memory for packets that wait for earlier ones: shared by all sessions of an association.

use mpip_types::Instant;
use mpip_types::{Checksum, InnerPacket};

/// Buffers are made in multiples of this, so that one serves any packet of an ordinary MTU.
const GRAIN: usize = 2_048;

pub(super) const NONE: u32 = u32::MAX;

/// A packet that waits.
#[derive(Debug)]
pub(super) struct Held {
    buffer: Vec<u8>,
    head_len: usize,
    checksum: Checksum,
    pub(super) sequence: u32,
    pub(super) arrived: Instant,
    /// Not to be delivered before.
    pub(super) not_before: Instant,
    /// Neighbours of the same session in the order of arrival; of a free slot, `later` is the next
    /// free one.
    pub(super) earlier: u32,
    pub(super) later: u32,
}

impl Held {
    pub(super) fn packet(&self) -> InnerPacket<'_> {
        let (head, tail) = self.buffer.split_at(self.head_len);
        InnerPacket { head, tail, checksum: self.checksum }
    }

    /// Bytes of memory, which is what counts against every bound.
    pub(super) fn memory(&self) -> usize {
        self.buffer.capacity()
    }
}

/// Buffers for packets that wait, bounded in bytes over all sessions that share the pool.
///
/// A session may hold at most as many bytes as are free (the dynamic threshold of Choudhury and
/// Hahne, 1998, with factor 1): one alone gets half, n get the n-th part of n / (n + 1), and there
/// is always room for one more. Buffers are used again and kept until [`HoldPool::trim`].
#[derive(Debug)]
pub struct HoldPool {
    slots: Vec<Held>,
    free: u32,
    limit: usize,
    /// Bytes of all buffers.
    memory: usize,
    /// Bytes of the buffers that hold a packet.
    held: usize,
    refused: u64,
}

impl HoldPool {
    /// A pool of at most `limit` bytes; memory is taken when it is first needed.
    pub fn new(limit: usize) -> Self {
        Self { slots: Vec::new(), free: NONE, limit, memory: 0, held: 0, refused: 0 }
    }

    /// Bytes of memory in all buffers; never above the limit.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Bytes of memory in the buffers that hold a packet now.
    pub fn held(&self) -> usize {
        self.held
    }

    /// How many times there was no room for a packet that should have waited.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Gives the memory of the buffers that hold nothing back.
    pub fn trim(&mut self) {
        let mut at = self.free;
        while let Some(slot) = self.slots.get_mut(at as usize) {
            self.memory -= slot.buffer.capacity();
            slot.buffer = Vec::new();
            at = slot.later;
        }
    }

    /// Bytes of memory that a packet of `len` bytes takes.
    pub(super) fn cost(len: usize) -> usize {
        len.max(1).next_multiple_of(GRAIN)
    }

    /// Whether a session that holds `held` bytes may hold a packet of `len` more.
    pub(super) fn admits(&self, held: usize, len: usize) -> bool {
        held + Self::cost(len) <= self.limit.saturating_sub(self.held)
    }

    /// Copies `packet` into a buffer. `None`, and counted, when there is no memory.
    pub(super) fn store(
        &mut self,
        packet: &InnerPacket<'_>,
        sequence: u32,
        arrived: Instant,
        not_before: Instant,
    ) -> Option<u32> {
        let index = self.vacant();
        if !self.fit(index, packet.len()) {
            self.refused += 1;
            return None;
        }
        let slot = &mut self.slots[index as usize];
        self.free = slot.later;
        slot.buffer.clear();
        slot.buffer.extend_from_slice(packet.head);
        slot.buffer.extend_from_slice(packet.tail);
        slot.head_len = packet.head.len();
        slot.checksum = packet.checksum;
        slot.sequence = sequence;
        slot.arrived = arrived;
        slot.not_before = not_before;
        slot.earlier = NONE;
        slot.later = NONE;
        self.held += slot.buffer.capacity();
        Some(index)
    }

    /// Takes note that a packet which should have waited was not even tried.
    pub(super) fn refuse(&mut self) {
        self.refused += 1;
    }

    pub(super) fn get(&self, index: u32) -> Option<&Held> {
        self.slots.get(index as usize)
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Held> {
        self.slots.get_mut(index as usize)
    }

    /// The packet in slot `index` has gone.
    pub(super) fn release(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        self.held -= slot.buffer.capacity();
        slot.later = self.free;
        self.free = index;
    }

    /// The first free slot, which stays on the list.
    fn vacant(&mut self) -> u32 {
        if self.free == NONE {
            self.free = self.slots.len() as u32;
            self.slots.push(Held {
                buffer: Vec::new(),
                head_len: 0,
                checksum: Checksum::Complete,
                sequence: 0,
                arrived: Instant::ZERO,
                not_before: Instant::ZERO,
                earlier: NONE,
                later: NONE,
            });
        }
        self.free
    }

    /// Makes the buffer of the free slot `index` large enough, at the cost of other free ones where
    /// the limit asks for it.
    fn fit(&mut self, index: u32, len: usize) -> bool {
        let slot = &mut self.slots[index as usize];
        let capacity = slot.buffer.capacity();
        if capacity >= len && capacity > 0 {
            return true;
        }
        let needed = Self::cost(len);
        self.memory -= capacity;
        slot.buffer = Vec::new();
        if self.held + needed > self.limit {
            return false;
        }
        if self.memory + needed > self.limit {
            self.trim();
        }
        let buffer = Vec::with_capacity(needed);
        self.memory += buffer.capacity();
        self.slots[index as usize].buffer = buffer;
        true
    }
}
