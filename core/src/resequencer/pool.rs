//! Memory for held packets: one pool for all associations of an engine.

use super::disorder::Disorder;
use super::disorder::RUN_BYTES;
use super::held::{GRAIN, Held, NONE, Slots};
use crate::parameters::ReleaseParameters;
use core::time::Duration;
use mpip_types::InnerPacket;
use mpip_types::Instant;
use mpip_types::Intervals;

/// Associations with unconfigured nodes share this part of the pool (divisor).
const UNKNOWN_PART: usize = 4;
/// Time after which free buffers beyond the recent peak are released.
const KEEP: Duration = Duration::from_secs(1);
/// Buffers released at a time; takes about 50 µs.
const GIVE_BACK: usize = 512;
/// Most unused `Disorder`s kept for reuse; at most 0.6 MiB.
const SPARES: usize = 256;

/// Lists of free slots: with a buffer of one [`GRAIN`], with a longer one, without a buffer.
const ONE_GRAIN: usize = 0;
const LONGER: usize = 1;
const BARE: usize = 2;

/// Memory for held packets, bounded in bytes over all associations of an engine, bookkeeping
/// included. Buffers are reused, and released when they were not needed for a second.
///
/// An association may hold at most as many bytes as are free (the dynamic threshold of Choudhury
/// and Hahne, 1998, with factor 1): a single one gets half, n of them get 1 / (n + 1) each, and
/// there is always room for one more. Associations with unconfigured nodes share a quarter of the
/// pool in the same way, and so do the sessions of an association its share.
#[derive(Debug)]
pub struct HoldPool {
    pub(super) slots: Slots,
    /// First of each list of free slots.
    free: [u32; 3],
    /// Number of slots with a buffer, and the bytes of these buffers.
    buffered: usize,
    buffers: usize,
    /// Bytes of all `Disorder`s, in use or not.
    indices: usize,
    #[expect(clippy::vec_box, reason = "a box goes to a session as it is, without an allocation")]
    spares: Vec<Box<Disorder>>,
    limit: usize,
    /// How fast held packets are delivered.
    pub(super) release: ReleaseParameters,
    /// Bytes in use by all associations, and by those with unconfigured nodes.
    held: usize,
    held_unknown: usize,
    refused: u64,
    /// Peak of the bytes in use since `since`, and the bytes to keep until the next check.
    peak: usize,
    since: Instant,
    target: usize,
    /// Loop passes whose number the peer controls, since the last call of `take_steps`.
    steps: u64,
}

/// The share of one association in a [`HoldPool`].
#[derive(Clone, Debug)]
pub struct Share {
    limit: usize,
    unknown: bool,
    held: usize,
    waiting: usize,
}

impl Share {
    /// A share of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, unknown: false, held: 0, waiting: 0 }
    }

    /// Makes it the share of an unconfigured node. Nothing may be held yet.
    pub(crate) fn of_unknown(&mut self) {
        self.unknown = true;
    }

    /// Bytes of memory in use, bookkeeping included.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Memory of the held packets, bytes.
    pub fn waiting(&self) -> usize {
        self.waiting
    }
}

impl HoldPool {
    /// A pool of at most `limit` bytes; memory is taken when it is first needed.
    pub fn new(limit: usize, release: ReleaseParameters) -> Self {
        Self {
            release,
            slots: Slots::default(),
            free: [NONE; 3],
            buffered: 0,
            buffers: 0,
            indices: 0,
            spares: Vec::new(),
            limit,
            held: 0,
            held_unknown: 0,
            refused: 0,
            peak: 0,
            since: Instant::ZERO,
            target: 0,
            steps: 0,
        }
    }

    /// Bytes of memory, in use or not; never above the limit.
    pub fn memory(&self) -> usize {
        self.buffers + self.indices + (self.slots.0.capacity() - self.buffered) * size_of::<Held>()
    }

    /// Bytes of memory in use now.
    pub fn held(&self) -> usize {
        self.held
    }

    /// How many packets could not be held for lack of memory.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Releases all unused memory.
    pub fn trim(&mut self) {
        while self.give_back_one() {}
        self.drop_slots();
    }

    /// Releases memory that was not needed lately, in small steps. To be called periodically.
    pub(crate) fn settle(&mut self, now: Instant) {
        if now.since(self.since) >= KEEP {
            self.target = core::mem::replace(&mut self.peak, self.held);
            self.since = now;
        }
        for _ in 0..GIVE_BACK {
            if self.memory() <= self.target.max(self.peak) || !self.give_back_one() {
                break;
            }
        }
        if self.target == 0 && self.peak == 0 {
            self.drop_slots();
        }
    }

    /// Loop passes whose number peers control, since the last call.
    pub(crate) fn take_steps(&mut self) -> u64 {
        core::mem::take(&mut self.steps)
    }

    /// Bytes of memory that a packet of `len` bytes takes.
    pub(super) fn cost(len: usize) -> usize {
        (len + size_of::<Held>()).next_multiple_of(GRAIN)
    }

    /// Releases one buffer or one unused `Disorder`. `false` if there is none left.
    fn give_back_one(&mut self) -> bool {
        if let Some(spare) = self.spares.pop() {
            self.indices -= spare.memory();
            return true;
        }
        let index = [LONGER, ONE_GRAIN].into_iter().find_map(|list| self.pop(list));
        let Some(index) = index else { return false };
        self.strip(index);
        self.push(index);
        true
    }

    /// Releases the slots once none has a buffer.
    fn drop_slots(&mut self) {
        if self.buffered == 0 {
            self.slots = Slots::default();
            self.free = [NONE; 3];
        }
    }

    /// Releases the buffer of the free slot `index`.
    fn strip(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index)
            && slot.buffer.capacity() > 0
        {
            self.buffers -= slot.memory();
            self.buffered -= 1;
            slot.buffer = Vec::new();
        }
    }

    fn pop(&mut self, list: usize) -> Option<u32> {
        let index = self.free[list];
        self.free[list] = self.slots.get(index)?.next;
        Some(index)
    }

    /// Adds a slot to its free list.
    fn push(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index) {
            let list = list_of(slot);
            slot.next = self.free[list];
            self.free[list] = index;
        }
    }

    /// A slot with a buffer for a packet that costs `cost`; releases free buffers if the limit
    /// requires it. `None` when there is no memory.
    fn slot(&mut self, cost: usize) -> Option<u32> {
        let list = if cost == GRAIN { ONE_GRAIN } else { LONGER };
        let former = self.pop(list);
        if let Some(index) = former {
            if self.slots.get(index)?.memory() == cost {
                return Some(index);
            }
            // A buffer longer than needed would be charged in full.
            self.strip(index);
        }
        let index = former.or_else(|| self.pop(BARE));
        let grown = match index {
            None if self.slots.0.len() == self.slots.0.capacity() => 16.max(self.slots.0.len() / 8),
            _ => 0,
        };
        let slot = size_of::<Held>();
        // An existing slot is already counted.
        if !self.has_memory(cost - slot + grown * slot) {
            if let Some(index) = index {
                self.push(index);
            }
            return None;
        }
        self.slots.0.reserve_exact(grown);
        let index = index.unwrap_or_else(|| {
            self.slots.0.push(Held::BARE);
            self.slots.0.len() as u32 - 1
        });
        let buffer = Vec::with_capacity(cost - slot);
        self.slots.0[index as usize].buffer = buffer;
        self.buffered += 1;
        self.buffers += self.slots.0[index as usize].memory();
        Some(index)
    }

    /// Whether `bytes` more fit the limit, after unused memory was released if necessary.
    fn has_memory(&mut self, bytes: usize) -> bool {
        while self.memory() + bytes > self.limit {
            if !self.give_back_one() {
                return false;
            }
        }
        true
    }

    fn take(&mut self, share: &mut Share, bytes: usize) {
        share.held += bytes;
        self.held += bytes;
        self.held_unknown += if share.unknown { bytes } else { 0 };
        self.peak = self.peak.max(self.held);
    }

    fn put_back(&mut self, share: &mut Share, bytes: usize) {
        share.held -= bytes;
        self.held -= bytes;
        self.held_unknown -= if share.unknown { bytes } else { 0 };
    }
}

/// The free list of `slot`.
fn list_of(slot: &Held) -> usize {
    match slot.memory() {
        GRAIN => ONE_GRAIN,
        _ if slot.buffer.capacity() == 0 => BARE,
        _ => LONGER,
    }
}

/// The pool and the share of one association.
#[derive(Debug)]
pub struct Hold<'a> {
    pub(crate) pool: &'a mut HoldPool,
    share: &'a mut Share,
}

impl<'a> Hold<'a> {
    /// Access of the association with `share` to `pool`, which must always be the same one.
    pub fn new(pool: &'a mut HoldPool, share: &'a mut Share) -> Self {
        Self { pool, share }
    }

    /// Whether a session that holds `waiting` bytes may hold another packet of `len` bytes.
    pub(super) fn admits(&self, waiting: usize, len: usize) -> bool {
        let cost = HoldPool::cost(len);
        waiting + cost <= self.share.limit.saturating_sub(self.share.held) && self.has_room(cost)
    }

    /// Whether the association's share permits `bytes` more.
    fn has_room(&self, bytes: usize) -> bool {
        let HoldPool { limit, held, held_unknown, .. } = *self.pool;
        let free = limit.saturating_sub(held);
        let free = match self.share.unknown {
            true => free.min((limit / UNKNOWN_PART).saturating_sub(held_unknown)),
            false => free,
        };
        self.share.held + bytes <= free
    }

    /// Copies `packet` into a buffer. Without memory, counts a refusal and returns `None`.
    pub(super) fn store(
        &mut self,
        packet: &InnerPacket<'_>,
        sequence: u32,
        arrived: Instant,
        not_before: Instant,
    ) -> Option<u32> {
        let Some(index) = self.pool.slot(HoldPool::cost(packet.len())) else {
            self.refuse();
            return None;
        };
        let slot = self.pool.slots.get_mut(index)?;
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
        slot.next = NONE;
        let memory = slot.memory();
        self.pool.take(self.share, memory);
        self.share.waiting += memory;
        Some(index)
    }

    /// Frees the slot `index`, whose packet was delivered or dropped.
    pub(super) fn release(&mut self, index: u32) {
        let Some(memory) = self.pool.slots.get(index).map(Held::memory) else { return };
        self.pool.put_back(self.share, memory);
        self.share.waiting -= memory;
        self.pool.push(index);
    }

    /// Counts a packet that could not be held.
    pub(super) fn refuse(&mut self) {
        self.pool.refused += 1;
    }

    /// An empty `Disorder` for a session. `None` when there is no memory.
    pub(super) fn begin(&mut self) -> Option<Box<Disorder>> {
        let Some(spare) = self.pool.spares.pop() else {
            let disorder = Box::<Disorder>::default();
            return self.charge(disorder.memory()).then_some(disorder);
        };
        let memory = spare.memory();
        if !(self.share.held + memory <= self.share.limit && self.has_room(memory)) {
            self.pool.spares.push(spare);
            return None;
        }
        self.pool.take(self.share, memory);
        Some(spare)
    }

    /// Takes the `Disorder` of a session that is in order again.
    pub(super) fn end(&mut self, mut disorder: Box<Disorder>) {
        let memory = disorder.memory();
        self.pool.put_back(self.share, memory);
        disorder.clear();
        if disorder.is_modest() && self.pool.spares.len() < SPARES {
            self.pool.spares.push(disorder);
        } else {
            self.pool.indices -= memory;
        }
    }

    /// Grows `disorder` by room for one more run (`runs`) or skipped interval. `false` when there
    /// is no memory.
    pub(super) fn grow(&mut self, disorder: &mut Disorder, runs: bool) -> bool {
        let (len, capacity) = disorder.extent(runs);
        if len < capacity {
            return true;
        }
        let (before, wanted) = (disorder.memory(), capacity.max(4) * 2);
        let each = if runs { RUN_BYTES } else { Intervals::bytes_of(1) };
        // While the contents move, old and new memory exist; the old one is not counted.
        if !self.charge((wanted - capacity) * each) {
            return false;
        }
        disorder.reserve(runs, wanted);
        // The allocator may have given more than was charged.
        let excess = disorder.memory() - before - (wanted - capacity) * each;
        self.pool.take(self.share, excess);
        self.pool.indices += excess;
        true
    }

    /// Shrinks a `disorder` that was larger before.
    pub(super) fn shrink(&mut self, disorder: &mut Disorder) {
        let before = disorder.memory();
        disorder.shrink();
        let freed = before - disorder.memory();
        self.pool.put_back(self.share, freed);
        self.pool.indices -= freed;
    }

    fn charge(&mut self, bytes: usize) -> bool {
        let admitted = self.share.held + bytes <= self.share.limit
            && self.has_room(bytes)
            && self.pool.has_memory(bytes);
        if admitted {
            self.pool.take(self.share, bytes);
            self.pool.indices += bytes;
        }
        admitted
    }

    /// Counts passes of a loop.
    pub(super) fn step(&mut self, count: u64) {
        self.pool.steps += count;
    }
}

#[cfg(test)]
impl HoldPool {
    /// Recounts everything, with the memory of the sessions `in_use`.
    pub(super) fn audit(&self, in_use: usize) {
        let with_buffers = self.slots.0.iter().filter(|slot| slot.buffer.capacity() > 0);
        assert_eq!(self.buffered, with_buffers.clone().count());
        assert_eq!(self.buffers, with_buffers.map(Held::memory).sum::<usize>());
        let spares: usize = self.spares.iter().map(|spare| spare.memory()).sum();
        assert_eq!(self.indices, in_use + spares);
        let mut free = 0;
        for (list, first) in self.free.iter().enumerate() {
            let mut at = *first;
            while let Some(slot) = self.slots.get(at) {
                assert_eq!(list_of(slot), list);
                free += if list == BARE { 0 } else { slot.memory() };
                at = slot.next;
            }
        }
        assert_eq!(self.held, self.buffers - free + in_use);
        assert!(self.memory() <= self.limit && self.held <= self.memory());
    }
}
