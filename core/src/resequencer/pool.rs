//! Memory for packets that wait for earlier ones: one pool for all associations of an engine.

use super::disorder::Disorder;
use super::disorder::RUN_BYTES;
use super::held::{GRAIN, Held, NONE, Slots};
use core::time::Duration;
use mpip_types::InnerPacket;
use mpip_types::Instant;
use mpip_types::Intervals;

/// Associations with nodes that the configuration does not name have one in so many bytes together.
const UNKNOWN_PART: usize = 4;
/// Free buffers beyond what was in use at once lately are given back after so long.
const KEEP: Duration = Duration::from_secs(1);
/// So many at a time, about 50 µs.
const GIVE_BACK: usize = 512;
/// What sessions in disorder have used and others may use again; 0.6 MiB at most.
const SPARES: usize = 256;

/// Free slots: with a buffer of one [`GRAIN`], with a longer one, without any.
const ONE_GRAIN: usize = 0;
const LONGER: usize = 1;
const BARE: usize = 2;

/// Memory for packets that wait, bounded in bytes over all associations of an engine, bookkeeping
/// included. Buffers are used again, and given back when they were not needed for a second.
///
/// An association may hold at most as many bytes as are free (the dynamic threshold of Choudhury
/// and Hahne, 1998, with factor 1): one alone gets half, n get the n-th part of n / (n + 1), and
/// there is always room for one more. Those with nodes that the configuration does not name share a
/// quarter of the pool in the same way. So does a session share what its association may hold.
#[derive(Debug)]
pub struct HoldPool {
    pub(super) slots: Slots,
    /// First of each list of free slots.
    free: [u32; 3],
    /// Slots with a buffer, and their bytes.
    buffered: usize,
    buffers: usize,
    /// Bytes of what tells which numbers have arrived, in use or not.
    indices: usize,
    #[expect(clippy::vec_box, reason = "a box goes to a session as it is, without an allocation")]
    spares: Vec<Box<Disorder>>,
    limit: usize,
    /// Bytes in use, by whomever, and by associations with unknown nodes.
    held: usize,
    held_unknown: usize,
    refused: u64,
    /// The most in use since `since`, and how much is kept until the next look.
    peak: usize,
    since: Instant,
    target: usize,
    /// Passes of loops whose number the peer decides, until they were asked for.
    steps: u64,
}

/// What one association has of a [`HoldPool`].
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

    /// From now on it is that of a node that the configuration does not name. Nothing is held yet.
    pub(crate) fn of_unknown(&mut self) {
        self.unknown = true;
    }

    /// Bytes of memory in use, bookkeeping included.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Bytes of memory of the packets that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }
}

impl HoldPool {
    /// A pool of at most `limit` bytes; memory is taken when it is first needed.
    pub fn new(limit: usize) -> Self {
        Self {
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

    /// How many times there was no room for a packet that should have waited.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Gives all memory back that is not in use.
    pub fn trim(&mut self) {
        while self.give_back_one() {}
        self.drop_slots();
    }

    /// Gives memory back that was not needed of late, some of it at a time. To be called now and
    /// then.
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

    /// Passes of loops whose number peers decide, since this was last asked.
    pub(crate) fn take_steps(&mut self) -> u64 {
        core::mem::take(&mut self.steps)
    }

    /// Bytes of memory that a packet of `len` bytes takes.
    pub(super) fn cost(len: usize) -> usize {
        (len + size_of::<Held>()).next_multiple_of(GRAIN)
    }

    /// Frees one buffer, or what served the numbers of a session. `false` if there is none left.
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

    /// Frees the slots once none has a buffer.
    fn drop_slots(&mut self) {
        if self.buffered == 0 {
            self.slots = Slots::default();
            self.free = [NONE; 3];
        }
    }

    /// Takes the buffer of the free slot `index` away.
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

    /// Puts a slot on the list of free ones that it belongs to.
    fn push(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index) {
            let list = list_of(slot);
            slot.next = self.free[list];
            self.free[list] = index;
        }
    }

    /// A slot with a buffer for a packet that costs `cost`, at the price of other free ones where
    /// the limit asks for it. `None` when there is no memory.
    fn slot(&mut self, cost: usize) -> Option<u32> {
        let list = if cost == GRAIN { ONE_GRAIN } else { LONGER };
        let former = self.pop(list);
        if let Some(index) = former {
            if self.slots.get(index)?.memory() == cost {
                return Some(index);
            }
            // A longer buffer than is needed would be charged to who needs a short one.
            self.strip(index);
        }
        let index = former.or_else(|| self.pop(BARE));
        let grown = match index {
            None if self.slots.0.len() == self.slots.0.capacity() => 16.max(self.slots.0.len() / 8),
            _ => 0,
        };
        let slot = size_of::<Held>();
        // A slot that exists is counted already.
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

    /// Whether `bytes` more may be taken, after what is not in use was given back if need be.
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

/// The list of free slots that `slot` belongs to.
fn list_of(slot: &Held) -> usize {
    match slot.memory() {
        GRAIN => ONE_GRAIN,
        _ if slot.buffer.capacity() == 0 => BARE,
        _ => LONGER,
    }
}

/// The pool, and what one association has of it.
#[derive(Debug)]
pub struct Hold<'a> {
    pub(crate) pool: &'a mut HoldPool,
    share: &'a mut Share,
}

impl<'a> Hold<'a> {
    /// What the association with `share` may do with `pool`, always the same one.
    pub fn new(pool: &'a mut HoldPool, share: &'a mut Share) -> Self {
        Self { pool, share }
    }

    /// Whether a session whose packets take `waiting` bytes may hold one of `len` bytes more.
    pub(super) fn admits(&self, waiting: usize, len: usize) -> bool {
        let cost = HoldPool::cost(len);
        waiting + cost <= self.share.limit.saturating_sub(self.share.held) && self.has_room(cost)
    }

    /// Whether the association may hold `bytes` more, as far as others are concerned.
    fn has_room(&self, bytes: usize) -> bool {
        let HoldPool { limit, held, held_unknown, .. } = *self.pool;
        let free = limit.saturating_sub(held);
        let free = match self.share.unknown {
            true => free.min((limit / UNKNOWN_PART).saturating_sub(held_unknown)),
            false => free,
        };
        self.share.held + bytes <= free
    }

    /// Copies `packet` into a buffer. `None`, and counted, when there is no memory.
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

    /// The packet in slot `index` has gone.
    pub(super) fn release(&mut self, index: u32) {
        let Some(memory) = self.pool.slots.get(index).map(Held::memory) else { return };
        self.pool.put_back(self.share, memory);
        self.share.waiting -= memory;
        self.pool.push(index);
    }

    /// Takes note that a packet which should have waited was not even tried.
    pub(super) fn refuse(&mut self) {
        self.pool.refused += 1;
    }

    /// What a session in disorder needs, empty. `None` when there is no memory.
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

    /// The session is in order again.
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

    /// Makes room for one more run or skipped interval where `disorder` has none. `false` when
    /// there is no memory.
    pub(super) fn grow(&mut self, disorder: &mut Disorder, runs: bool) -> bool {
        let (len, capacity) = disorder.extent(runs);
        if len < capacity {
            return true;
        }
        let (before, wanted) = (disorder.memory(), capacity.max(4) * 2);
        let each = if runs { RUN_BYTES } else { Intervals::bytes_of(1) };
        // While the contents move there are both, for which nothing is counted.
        if !self.charge((wanted - capacity) * each) {
            return false;
        }
        disorder.reserve(runs, wanted);
        // As much as was charged, unless the allocator was generous.
        let excess = disorder.memory() - before - (wanted - capacity) * each;
        self.pool.take(self.share, excess);
        self.pool.indices += excess;
        true
    }

    /// A session has been in greater disorder before.
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
    /// Counts everything anew, with the memory of the sessions `in_use`.
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
