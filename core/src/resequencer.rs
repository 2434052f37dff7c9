//! Putting the packets of one session back in order, bounded in time and in bytes.
//!
//! A packet that arrives in sequence passes through without a copy. One that arrives ahead waits in
//! the association's [`HoldPool`] until everything before it was delivered, was declared lost by
//! the peer ([`Resequencer::skip`]), or was given up because the packet has waited for as long as
//! its session allows. A packet that arrives after it was given up is delivered at once, since a
//! TCP receiver can use it. Nothing is ever delivered twice.
//!
//! A packet may carry a time before which it is not to be delivered, whatever is missing
//! ([`HoldLimits::not_before`]): so a path of uneven delay becomes one of even delay. A packet that
//! needs no order ([`Resequencer::pass_by`]) waits for nothing, and only its number counts.

use core::time::Duration;
use std::collections::VecDeque;

use crate::window::{DuplicateWindow, Seen, WINDOW};
use mpip_types::InnerPacket;
use mpip_types::Instant;

mod pool;

pub use pool::HoldPool;
use pool::NONE;

/// How far ahead of the next expected sequence number a packet can wait. The peer assigns numbers
/// in sequence, so this many packets are on their way at most; at 1,400 bytes each that is 45 MB.
pub const SPAN: u32 = 32_768;

/// The first packet of a session with this sequence number or a higher one shows that its beginning
/// was missed (by a restart of this node), rather than that packets were overtaken.
pub const FRESH: u32 = 4_096;

/// Buckets of [`ResequencerStats::waits`]: the last one begins at 2^18 microseconds.
pub const WAIT_BUCKETS: usize = 20;

/// A session keeps the memory of so many places when it has nothing waiting.
const PLACES_KEPT: usize = 1_024;

/// Marks a place whose packet the peer declared lost.
const SKIPPED: u32 = u32::MAX - 1;

/// Marks a place whose packet was delivered without regard to order.
const PASSED: u32 = u32::MAX - 2;

/// How long and how much a session may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLimits {
    /// No packet waits longer.
    pub max_wait: Duration,
    /// Bytes of memory of the packets that wait; beyond it the oldest gap is given up.
    pub max_bytes: usize,
    /// This packet is not delivered before, as far as the other limits allow.
    pub not_before: Instant,
}

/// What became of a packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Was delivered, and what waited for it too.
    Delivered,
    /// Waits for earlier packets.
    Held,
    /// Was delivered after it had been given up.
    Late,
    /// Had arrived before, or is too old to tell; refused.
    Duplicate,
}

/// What a resequencer has seen and done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResequencerStats {
    /// Packets delivered, late ones included.
    pub delivered: u64,
    /// Packets that waited.
    pub held: u64,
    /// Packets refused because they had arrived before.
    pub duplicates: u64,
    /// Packets delivered after they had been given up.
    pub late: u64,
    /// Gaps given up, by time or for want of memory.
    pub gaps_given_up: u64,
    /// Sequence numbers in these gaps.
    pub packets_given_up: u64,
    /// Sequence numbers that the peer declared lost.
    pub skipped: u64,
    /// The longest wait of a packet.
    pub longest_wait: Duration,
    /// Waits of the packets that waited: bucket 0 below 1 microsecond, bucket n from 2^(n - 1) to
    /// 2^n, the last one without an end.
    pub waits: [u32; WAIT_BUCKETS],
    /// The farthest that a packet arrived behind the highest sequence number before it.
    pub reordering_extent: u32,
}

impl ResequencerStats {
    fn waited(&mut self, wait: Duration) {
        self.longest_wait = self.longest_wait.max(wait);
        let micros = wait.as_micros().min(u128::from(u32::MAX)) as u32;
        let bucket = (u32::BITS - micros.leading_zeros()) as usize;
        self.waits[bucket.min(WAIT_BUCKETS - 1)] += 1;
    }
}

/// The receiving side of an ordered session.
///
/// Before it is dropped, [`Resequencer::flush`] or [`Resequencer::discard`] has to give its
/// buffers back to the pool.
#[derive(Debug)]
pub struct Resequencer {
    /// The next sequence number to be delivered.
    expected: u32,
    /// The highest sequence number that arrived, once one did.
    highest: Option<u32>,
    /// The places from `expected` on: a slot of the pool, [`NONE`], [`SKIPPED`] or [`PASSED`].
    /// Whenever the caller can look, the first is [`NONE`] or the slot of a packet whose time has
    /// not come, and the last is not [`NONE`].
    places: VecDeque<u32>,
    /// Since when numbers are missing before a place that is [`PASSED`].
    passed_since: Option<Instant>,
    /// What was given up and may still come late, while there is such a thing.
    late: Option<Box<LateWindow>>,
    /// The packets that wait, in the order of arrival.
    first: u32,
    last: u32,
    /// Bytes of memory of the packets that wait.
    bytes: usize,
    max_wait: Duration,
    stats: ResequencerStats,
}

/// The numbers before `expected`: which of them were delivered.
#[derive(Debug)]
struct LateWindow {
    delivered: DuplicateWindow,
    /// The newest number that was given up.
    given_up: u32,
}

impl Default for Resequencer {
    fn default() -> Self {
        Self::new()
    }
}

impl Resequencer {
    /// The resequencer of a session of which nothing has arrived.
    pub fn new() -> Self {
        Self {
            expected: 0,
            highest: None,
            places: VecDeque::new(),
            passed_since: None,
            late: None,
            first: NONE,
            last: NONE,
            bytes: 0,
            max_wait: Duration::ZERO,
            stats: ResequencerStats::default(),
        }
    }

    /// The resequencer of a session whose packets were delivered as they came, those that
    /// `delivered` knows, from the packet `sequence` on.
    pub(crate) fn continuing(mut delivered: DuplicateWindow, sequence: u32) -> Self {
        let given_up = sequence.wrapping_sub(1);
        delivered.advance(given_up);
        Self {
            expected: sequence,
            highest: Some(given_up),
            late: Some(Box::new(LateWindow { delivered, given_up })),
            ..Self::new()
        }
    }

    /// The packet `sequence` has arrived; hands what is ready to `deliver`.
    pub fn receive(
        &mut self,
        now: Instant,
        sequence: u32,
        packet: InnerPacket<'_>,
        limits: HoldLimits,
        pool: &mut HoldPool,
        mut deliver: impl FnMut(InnerPacket<'_>),
    ) -> Received {
        self.note(sequence, limits);
        let early = limits.not_before > now && !limits.max_wait.is_zero();
        if sequence == self.expected && self.places.is_empty() && !early {
            self.pass();
            deliver(packet);
            return Received::Delivered;
        }
        let ahead = match self.place_ahead(sequence, packet, &mut deliver) {
            Ok(ahead) => ahead,
            Err(received) => return received,
        };
        if ahead == 0 && early && self.fits(packet.len(), limits, pool) {
            self.hold(now, sequence, &packet, limits, pool);
            return Received::Held;
        }
        // A packet that the peer had declared lost is as welcome as any other.
        if let Some(place) = self.places.get_mut(ahead as usize) {
            *place = NONE;
        }
        if ahead > 0 && self.make_room(now, sequence, packet.len(), limits, pool, &mut deliver) {
            self.hold(now, sequence, &packet, limits, pool);
            return Received::Held;
        }
        // In sequence, or nowhere to wait: whatever is still missing before it was given up.
        self.places.pop_front();
        self.pass();
        deliver(packet);
        self.release_ready(now, pool, &mut deliver);
        Received::Delivered
    }

    /// The packet `sequence`, which needs no order, has arrived: it is delivered at once, unless it
    /// is a duplicate. What waits for its number alone is handed to `deliver` as well.
    pub fn pass_by(
        &mut self,
        now: Instant,
        sequence: u32,
        packet: InnerPacket<'_>,
        limits: HoldLimits,
        pool: &mut HoldPool,
        mut deliver: impl FnMut(InnerPacket<'_>),
    ) -> Received {
        self.note(sequence, limits);
        let ahead = match self.place_ahead(sequence, packet, &mut deliver) {
            Ok(ahead) => ahead,
            Err(received) => return received,
        };
        deliver(packet);
        if ahead >= SPAN {
            self.advance(now, sequence.wrapping_sub(SPAN - 1), pool, &mut deliver);
        }
        let place = sequence.wrapping_sub(self.expected) as usize;
        if self.places.len() <= place {
            self.places.resize(place + 1, NONE);
        }
        self.places[place] = PASSED;
        self.passed_since.get_or_insert(now);
        self.release_ready(now, pool, &mut deliver);
        Received::Delivered
    }

    /// The peer says that the `count` packets from `first` on will not come again. What lies
    /// [`SPAN`] or more ahead is not taken note of.
    pub fn skip(
        &mut self,
        now: Instant,
        first: u32,
        count: u32,
        pool: &mut HoldPool,
        mut deliver: impl FnMut(InnerPacket<'_>),
    ) {
        let ahead = first.wrapping_sub(self.expected);
        let (from, count) = if ahead > i32::MAX as u32 {
            (0, count.saturating_sub(self.expected.wrapping_sub(first)))
        } else {
            (ahead, count)
        };
        let to = from.saturating_add(count).min(SPAN);
        for place in from..to {
            let place = place as usize;
            if self.places.len() <= place {
                self.places.resize(place + 1, NONE);
            }
            if self.places[place] == NONE {
                self.places[place] = SKIPPED;
            }
        }
        self.release_ready(now, pool, &mut deliver);
    }

    /// When [`Resequencer::expire`] has something to do; `None` while nothing waits.
    pub fn deadline(&self, pool: &HoldPool) -> Option<Instant> {
        if let Some(front) = self.places.front().and_then(|place| pool.get(*place)) {
            return Some(front.not_before);
        }
        let since = match pool.get(self.first) {
            Some(held) => Some(held.arrived),
            None => self.passed_since,
        };
        since.map(|since| since + self.max_wait)
    }

    /// Gives up the gaps before every packet that has waited for `max_wait`.
    pub fn expire(
        &mut self,
        now: Instant,
        max_wait: Duration,
        pool: &mut HoldPool,
        mut deliver: impl FnMut(InnerPacket<'_>),
    ) {
        self.max_wait = max_wait;
        self.release_ready(now, pool, &mut deliver);
        while self.deadline(pool).is_some_and(|deadline| now >= deadline) {
            if self.is_waiting() {
                self.release_first(now, pool, &mut deliver);
            } else {
                let end = self.expected.wrapping_add(self.places.len() as u32);
                self.advance(now, end, pool, &mut deliver);
                self.passed_since = None;
            }
        }
    }

    /// Delivers everything that waits, in order.
    pub fn flush(
        &mut self,
        now: Instant,
        pool: &mut HoldPool,
        mut deliver: impl FnMut(InnerPacket<'_>),
    ) {
        while self.is_waiting() {
            self.release_first(now, pool, &mut deliver);
        }
    }

    /// Drops everything that waits.
    pub fn discard(&mut self, pool: &mut HoldPool) {
        while let Some(held) = pool.get(self.first) {
            let (index, next) = (self.first, held.later);
            pool.release(index);
            self.first = next;
        }
        self.last = NONE;
        self.bytes = 0;
        self.places = VecDeque::new();
        self.passed_since = None;
    }

    /// Whether packets wait.
    pub fn is_waiting(&self) -> bool {
        self.first != NONE
    }

    /// Bytes of memory of the packets that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The next sequence number that is to be delivered.
    pub fn expected(&self) -> u32 {
        self.expected
    }

    /// What was seen and done so far.
    pub fn stats(&self) -> &ResequencerStats {
        &self.stats
    }

    /// Takes note of the arrival of `sequence`, and of the limits from now on; the first one may move
    /// the start.
    fn note(&mut self, sequence: u32, limits: HoldLimits) {
        self.max_wait = limits.max_wait;
        let Some(highest) = self.highest else {
            self.highest = Some(sequence);
            if self.expected == 0 && sequence >= FRESH {
                self.expected = sequence;
                self.places.clear();
                let before = sequence.wrapping_sub(1);
                let delivered = DuplicateWindow::at(before, false);
                self.late = Some(Box::new(LateWindow { delivered, given_up: before }));
            }
            return;
        };
        let behind = highest.wrapping_sub(sequence);
        if behind > i32::MAX as u32 {
            self.highest = Some(sequence);
        } else {
            self.stats.reordering_extent = self.stats.reordering_extent.max(behind.min(SPAN));
        }
    }

    fn is_held(&self, ahead: u32) -> bool {
        self.places.get(ahead as usize).is_some_and(|place| *place != NONE && *place != SKIPPED)
    }

    /// Whether a packet of `len` bytes may wait without anything being given up.
    fn fits(&self, len: usize, limits: HoldLimits, pool: &HoldPool) -> bool {
        self.bytes + HoldPool::cost(len) <= limits.max_bytes && pool.admits(self.bytes, len)
    }

    /// How many places after the expected packet `sequence` belongs. A packet whose place is left
    /// behind or taken has none: it is dealt with here, and the error says how.
    fn place_ahead(
        &mut self,
        sequence: u32,
        packet: InnerPacket<'_>,
        deliver: impl FnMut(InnerPacket<'_>),
    ) -> Result<u32, Received> {
        let ahead = sequence.wrapping_sub(self.expected);
        if ahead > i32::MAX as u32 {
            return Err(self.receive_late(sequence, packet, deliver));
        }
        if self.is_held(ahead) {
            self.stats.duplicates += 1;
            return Err(Received::Duplicate);
        }
        Ok(ahead)
    }

    fn receive_late(
        &mut self,
        sequence: u32,
        packet: InnerPacket<'_>,
        mut deliver: impl FnMut(InnerPacket<'_>),
    ) -> Received {
        let seen = self.late.as_mut().map(|late| late.delivered.accept(sequence));
        if seen == Some(Seen::New) {
            self.stats.late += 1;
            self.stats.delivered += 1;
            deliver(packet);
            Received::Late
        } else {
            self.stats.duplicates += 1;
            Received::Duplicate
        }
    }

    /// Gives up gaps from the oldest on until the packet `sequence` of `len` bytes may wait.
    /// `false` when it may not, and is in sequence now since everything before it is gone.
    fn make_room(
        &mut self,
        now: Instant,
        sequence: u32,
        len: usize,
        limits: HoldLimits,
        pool: &mut HoldPool,
        deliver: &mut impl FnMut(InnerPacket<'_>),
    ) -> bool {
        if limits.max_wait.is_zero() {
            self.advance(now, sequence, pool, deliver);
            return false;
        }
        loop {
            let ahead = sequence.wrapping_sub(self.expected);
            let fits = self.fits(len, limits, pool);
            if ahead == 0 {
                return false;
            }
            if fits && ahead < SPAN {
                return true;
            }
            if !fits {
                pool.refuse();
            }
            // The oldest gap ends at the first packet that waits, or at this one. One that waits for
            // its time alone goes first.
            let gap = self.places.iter().position(|place| *place != NONE && *place != SKIPPED);
            let gap = gap.map_or(ahead, |gap| ahead.min((gap as u32).max(1)));
            self.advance(now, self.expected.wrapping_add(gap), pool, deliver);
            if gap < ahead {
                self.release_ready(now, pool, deliver);
            }
        }
    }

    fn hold(
        &mut self,
        now: Instant,
        sequence: u32,
        packet: &InnerPacket<'_>,
        limits: HoldLimits,
        pool: &mut HoldPool,
    ) {
        let not_before = limits.not_before.min(now + limits.max_wait);
        let index = pool.store(packet, sequence, now, not_before);
        let index = index.expect("the pool has admitted the packet");
        let ahead = sequence.wrapping_sub(self.expected) as usize;
        if self.places.len() <= ahead {
            self.places.resize(ahead + 1, NONE);
        }
        self.places[ahead] = index;
        match pool.get_mut(self.last) {
            Some(last) => last.later = index,
            None => self.first = index,
        }
        if let Some(held) = pool.get_mut(index) {
            held.earlier = self.last;
            self.bytes += held.memory();
        }
        self.last = index;
        self.stats.held += 1;
    }

    /// Moves `expected` up to `sequence`: delivers what waits before it, gives up what is missing.
    fn advance(
        &mut self,
        now: Instant,
        sequence: u32,
        pool: &mut HoldPool,
        deliver: &mut impl FnMut(InnerPacket<'_>),
    ) {
        let mut gap = 0;
        while self.expected != sequence {
            let missing = match self.places.pop_front() {
                None => sequence.wrapping_sub(self.expected),
                Some(NONE) => 1,
                Some(SKIPPED) => {
                    self.close_gap(&mut gap);
                    self.miss(1);
                    self.stats.skipped += 1;
                    continue;
                }
                Some(PASSED) => {
                    self.close_gap(&mut gap);
                    self.pass();
                    continue;
                }
                Some(index) => {
                    self.close_gap(&mut gap);
                    self.release(now, index, pool, deliver);
                    continue;
                }
            };
            self.miss(missing);
            gap += missing;
        }
        self.close_gap(&mut gap);
    }

    fn close_gap(&mut self, gap: &mut u32) {
        if *gap > 0 {
            self.stats.gaps_given_up += 1;
            self.stats.packets_given_up += u64::from(*gap);
            *gap = 0;
        }
    }

    /// Gives up what is missing before the packet that has waited for longest, and delivers it.
    fn release_first(
        &mut self,
        now: Instant,
        pool: &mut HoldPool,
        deliver: &mut impl FnMut(InnerPacket<'_>),
    ) {
        let Some(held) = pool.get(self.first) else { return };
        let sequence = held.sequence;
        self.advance(now, sequence, pool, deliver);
        self.release_ready(now, pool, deliver);
    }

    /// Delivers what is in sequence, as far as it goes.
    fn release_ready(
        &mut self,
        now: Instant,
        pool: &mut HoldPool,
        deliver: &mut impl FnMut(InnerPacket<'_>),
    ) {
        while let Some(&place) = self.places.front() {
            if place == NONE || pool.get(place).is_some_and(|held| held.not_before > now) {
                break;
            }
            self.places.pop_front();
            match place {
                SKIPPED => {
                    self.miss(1);
                    self.stats.skipped += 1;
                }
                PASSED => self.pass(),
                _ => self.release(now, place, pool, deliver),
            }
        }
        if self.places.is_empty() {
            self.passed_since = None;
        }
        if self.places.is_empty() && self.places.capacity() > PLACES_KEPT {
            self.places.shrink_to(PLACES_KEPT);
        }
    }

    /// Delivers the packet in slot `index`, which is the next in sequence.
    fn release(
        &mut self,
        now: Instant,
        index: u32,
        pool: &mut HoldPool,
        deliver: &mut impl FnMut(InnerPacket<'_>),
    ) {
        let Some(held) = pool.get(index) else { return };
        let (earlier, later) = (held.earlier, held.later);
        self.stats.waited(now.since(held.arrived));
        self.bytes -= held.memory();
        deliver(held.packet());
        match pool.get_mut(earlier) {
            Some(held) => held.later = later,
            None => self.first = later,
        }
        match pool.get_mut(later) {
            Some(held) => held.earlier = earlier,
            None => self.last = earlier,
        }
        pool.release(index);
        self.pass();
    }

    /// The next packet in sequence was delivered.
    fn pass(&mut self) {
        self.stats.delivered += 1;
        if let Some(late) = &mut self.late {
            late.delivered.accept(self.expected);
            if self.expected.wrapping_sub(late.given_up) > WINDOW {
                self.late = None;
            }
        }
        self.expected = self.expected.wrapping_add(1);
    }

    /// The next `count` packets in sequence are not waited for any longer.
    fn miss(&mut self, count: u32) {
        let before = self.expected.wrapping_sub(1);
        self.expected = self.expected.wrapping_add(count);
        let given_up = self.expected.wrapping_sub(1);
        let late = self.late.get_or_insert_with(|| {
            Box::new(LateWindow { delivered: DuplicateWindow::at(before, true), given_up })
        });
        late.delivered.advance(given_up);
        late.given_up = given_up;
    }
}

#[cfg(test)]
mod tests;
