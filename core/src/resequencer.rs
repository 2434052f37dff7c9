//! Putting the packets of one session back in order, bounded in time and in bytes.
//!
//! A packet that arrives in sequence passes through without a copy. One that arrives ahead waits in
//! the engine's [`HoldPool`] until everything before it was delivered, was declared lost by
//! the peer ([`Resequencer::skip`]), or was given up because the packet has waited for as long as
//! its session allows. A packet that arrives after it was given up is delivered at once, since a
//! TCP receiver can use it. Nothing is ever delivered twice.
//!
//! A packet may carry a time before which it is not to be delivered, whatever is missing
//! ([`HoldLimits::not_before`]): so a path of uneven delay becomes one of even delay. A packet that
//! needs no order ([`Resequencer::pass_by`]) waits for nothing, and only its number counts.
//!
//! The peer chooses the numbers, so memory and work follow what has arrived and not how far apart
//! that is: numbers ahead are kept as runs (`disorder`), all memory beyond a fixed size comes from
//! the pool, and each call takes logarithmic time beside what it delivers or gives up for good.

use core::time::Duration;

use crate::window::{DuplicateWindow, Seen, WINDOW};
use mpip_types::InnerPacket;
use mpip_types::Instant;

mod disorder;
mod held;
mod pool;
mod stats;

use disorder::{Disorder, ENTRIES, Next};
use held::NONE;
pub use pool::{Hold, HoldPool, Share};
pub use stats::{ResequencerStats, WAIT_BUCKETS};

/// How far ahead of the next expected sequence number a packet can wait. The peer assigns numbers
/// in sequence, so this many packets are on their way at most; at 1,400 bytes each that is 45 MB.
pub const SPAN: u32 = 32_768;

/// The first packet of a session with this sequence number or a higher one shows that its beginning
/// was missed (by a restart of this node), rather than that packets were overtaken.
pub const FRESH: u32 = 4_096;

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

/// The receiving side of an ordered session.
///
/// Every call gets the [`Hold`] of the same association. Before it is dropped,
/// [`Resequencer::discard`] has to give its memory back.
#[derive(Debug)]
pub struct Resequencer {
    /// The next number to be delivered; sequence numbers are the lower 32 bits of such numbers.
    next: u64,
    /// The highest sequence number that arrived, once one did.
    highest: Option<u32>,
    /// What is known of numbers from `next` on, while anything is. Whenever the caller can look,
    /// nothing is known of `next` itself, or its packet waits for its time.
    disorder: Option<Box<Disorder>>,
    /// What was given up and may still come late, while there is such a thing.
    late: Option<Box<LateWindow>>,
    max_wait: Duration,
    stats: ResequencerStats,
}

/// The numbers before `next`: which of them were delivered.
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
            next: 0,
            highest: None,
            disorder: None,
            late: None,
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
            next: u64::from(sequence),
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
        hold: &mut Hold<'_>,
        mut deliver: impl FnMut(InnerPacket<'_>),
    ) -> Received {
        self.note(sequence, limits, hold);
        let early = limits.not_before > now && !limits.max_wait.is_zero();
        if sequence == self.expected() && self.disorder.is_none() && !early {
            self.pass();
            deliver(packet);
            return Received::Delivered;
        }
        let ahead = match self.place_ahead(sequence, packet, hold, &mut deliver) {
            Ok(ahead) => ahead,
            Err(received) => return received,
        };
        let number = self.next + u64::from(ahead);
        let waits = match ahead {
            0 => early && self.fits(packet.len(), limits, hold),
            _ => self.make_room(now, number, packet.len(), limits, hold, &mut deliver),
        };
        if waits && self.keep(now, sequence, &packet, limits, hold) {
            return Received::Held;
        }
        // In sequence, or nowhere to wait: whatever is still missing before it is given up.
        self.advance(now, number, hold, &mut deliver);
        self.pass();
        deliver(packet);
        self.release_ready(now, hold, &mut deliver);
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
        hold: &mut Hold<'_>,
        mut deliver: impl FnMut(InnerPacket<'_>),
    ) -> Received {
        self.note(sequence, limits, hold);
        if sequence == self.expected() && self.disorder.is_none() {
            self.pass();
            deliver(packet);
            return Received::Delivered;
        }
        let ahead = match self.place_ahead(sequence, packet, hold, &mut deliver) {
            Ok(ahead) => ahead,
            Err(received) => return received,
        };
        deliver(packet);
        let number = self.next + u64::from(ahead);
        if ahead >= SPAN {
            self.advance(now, number - u64::from(SPAN - 1), hold, &mut deliver);
        }
        if self.has_room(true, hold)
            && let Some(disorder) = &mut self.disorder
        {
            disorder.insert(self.next, sequence, NONE, &mut hold.pool.slots);
            disorder.passed_since.get_or_insert(now);
        } else {
            // It cannot be remembered, so nothing before it is waited for.
            self.advance(now, number, hold, &mut deliver);
            self.pass();
        }
        self.release_ready(now, hold, &mut deliver);
        Received::Delivered
    }

    /// The peer says that the `count` packets from `first` on will not come again. What lies
    /// [`SPAN`] or more ahead is not taken note of, nor is anything for which there is no memory.
    /// The rest is forgotten when it was of no use for 2 s.
    pub fn skip(
        &mut self,
        now: Instant,
        first: u32,
        count: u32,
        hold: &mut Hold<'_>,
        mut deliver: impl FnMut(InnerPacket<'_>),
    ) {
        hold.step(1);
        let ahead = first.wrapping_sub(self.expected());
        let (from, count) = if ahead > i32::MAX as u32 {
            (0, count.saturating_sub(self.expected().wrapping_sub(first)))
        } else {
            (ahead, count)
        };
        let to = from.saturating_add(count).min(SPAN);
        let noted =
            from < to && (from > 0 || self.disorder.is_some()) && self.has_room(false, hold);
        if let Some(disorder) = &mut self.disorder
            && noted
        {
            let last = self.next + u64::from(to) - 1;
            disorder.skip(now, self.next, (self.next + u64::from(from), last));
        } else if from == 0 {
            let first = self.disorder.as_ref().and_then(|disorder| disorder.first_run(self.next));
            self.skip_next(u64::from(first.map_or(to, |first| first.min(to))));
        }
        self.release_ready(now, hold, &mut deliver);
    }

    /// When [`Resequencer::expire`] has something to do; `None` while nothing waits.
    pub fn deadline(&self, pool: &HoldPool) -> Option<Instant> {
        let disorder = self.disorder.as_ref()?;
        if let Some(front) = disorder.front(self.next).and_then(|slot| pool.slots.get(slot)) {
            return Some(front.not_before);
        }
        let since = match pool.slots.get(disorder.oldest) {
            Some(held) => Some(held.arrived),
            None => disorder.passed_since,
        };
        since.map(|since| since + self.max_wait).or_else(|| disorder.forgets_at(self.next))
    }

    /// Gives up the gaps before every packet that has waited for `max_wait`.
    pub fn expire(
        &mut self,
        now: Instant,
        max_wait: Duration,
        hold: &mut Hold<'_>,
        mut deliver: impl FnMut(InnerPacket<'_>),
    ) {
        self.max_wait = max_wait;
        if let Some(disorder) = &mut self.disorder
            && disorder.forgets_at(self.next).is_some_and(|at| now >= at)
        {
            disorder.forget_skips();
        }
        self.release_ready(now, hold, &mut deliver);
        while self.deadline(hold.pool).is_some_and(|deadline| now >= deadline) {
            // The packet that has waited for longest, or else all that was delivered out of order.
            let to = match self.oldest(hold) {
                Some(number) => number,
                None => self.end(),
            };
            self.advance(now, to, hold, &mut deliver);
            self.release_ready(now, hold, &mut deliver);
        }
    }

    /// Delivers everything that waits, in order.
    pub fn flush(
        &mut self,
        now: Instant,
        hold: &mut Hold<'_>,
        mut deliver: impl FnMut(InnerPacket<'_>),
    ) {
        while let Some(number) = self.oldest(hold) {
            // Whether or not its time has come.
            self.advance(now, number + 1, hold, &mut deliver);
        }
        self.release_ready(now, hold, &mut deliver);
    }

    /// Drops everything that waits.
    pub fn discard(&mut self, hold: &mut Hold<'_>) {
        let Some(disorder) = self.disorder.take() else { return };
        let mut at = disorder.oldest;
        while let Some(held) = hold.pool.slots.get(at) {
            let later = held.later;
            hold.release(at);
            at = later;
        }
        hold.end(disorder);
    }

    /// Whether packets wait.
    pub fn is_waiting(&self) -> bool {
        self.disorder.as_ref().is_some_and(|disorder| disorder.oldest != NONE)
    }

    /// Bytes of memory of the packets that wait.
    pub fn bytes(&self) -> usize {
        self.disorder.as_ref().map_or(0, |disorder| disorder.bytes)
    }

    /// The next sequence number that is to be delivered.
    pub fn expected(&self) -> u32 {
        self.next as u32
    }

    /// What was seen and done so far.
    pub fn stats(&self) -> &ResequencerStats {
        &self.stats
    }

    /// Takes note of the arrival of `sequence`, and of the limits from now on; the first one may
    /// move the start.
    fn note(&mut self, sequence: u32, limits: HoldLimits, hold: &mut Hold<'_>) {
        self.max_wait = limits.max_wait;
        let Some(highest) = self.highest else {
            self.highest = Some(sequence);
            if self.next == 0 && sequence >= FRESH {
                self.next = u64::from(sequence);
                self.discard(hold);
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

    /// Whether a packet of `len` bytes may wait without anything being given up. Then there is room
    /// for its number, too.
    fn fits(&mut self, len: usize, limits: HoldLimits, hold: &mut Hold<'_>) -> bool {
        let bytes = self.bytes();
        bytes + HoldPool::cost(len) <= limits.max_bytes
            && self.has_room(true, hold)
            && hold.admits(bytes, len)
    }

    /// Makes room for one more run of numbers, or skipped interval. `false` if there is none.
    fn has_room(&mut self, runs: bool, hold: &mut Hold<'_>) -> bool {
        if self.disorder.is_none() {
            self.disorder = hold.begin();
        }
        let Some(disorder) = &mut self.disorder else { return false };
        disorder.extent(runs).0 < ENTRIES && hold.grow(disorder, runs)
    }

    /// The number of the packet that has waited for longest.
    fn oldest(&self, hold: &Hold<'_>) -> Option<u64> {
        let held = hold.pool.slots.get(self.disorder.as_ref()?.oldest)?;
        Some(self.next + u64::from(held.sequence.wrapping_sub(self.expected())))
    }

    /// The number behind all of which something is known.
    fn end(&self) -> u64 {
        self.disorder.as_ref().map_or(self.next, |disorder| disorder.end(self.next))
    }

    /// How many places after the expected packet `sequence` belongs. A packet whose place is left
    /// behind or taken has none: it is dealt with here, and the error says how.
    fn place_ahead(
        &mut self,
        sequence: u32,
        packet: InnerPacket<'_>,
        hold: &mut Hold<'_>,
        deliver: impl FnMut(InnerPacket<'_>),
    ) -> Result<u32, Received> {
        hold.step(1);
        let ahead = sequence.wrapping_sub(self.expected());
        if ahead > i32::MAX as u32 {
            return Err(self.receive_late(sequence, packet, deliver));
        }
        if self.disorder.as_ref().is_some_and(|disorder| disorder.has(self.next, ahead)) {
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

    /// Gives up gaps from the oldest on until the packet `number` of `len` bytes may wait.
    /// `false` when it may not, and is in sequence now since everything before it is gone.
    fn make_room(
        &mut self,
        now: Instant,
        number: u64,
        len: usize,
        limits: HoldLimits,
        hold: &mut Hold<'_>,
        deliver: &mut impl FnMut(InnerPacket<'_>),
    ) -> bool {
        if limits.max_wait.is_zero() {
            return false;
        }
        while self.next < number {
            let ahead = number - self.next;
            let fits = self.fits(len, limits, hold);
            if fits && ahead < u64::from(SPAN) {
                return true;
            }
            if !fits {
                hold.refuse();
            }
            // The oldest gap ends at the first packet that waits, or at this one. One that waits
            // for its time alone goes first.
            let first = self.disorder.as_ref().and_then(|disorder| disorder.first_run(self.next));
            let gap = first.map_or(ahead, |gap| ahead.min(u64::from(gap.max(1))));
            self.advance(now, self.next + gap, hold, deliver);
            if gap < ahead {
                // Not beyond: a packet that the peer declared lost is as welcome as any other.
                self.release_up_to(now, number, hold, deliver);
            }
        }
        false
    }

    /// Lets a packet wait that [fits](Self::fits). `false` if there is no memory after all.
    fn keep(
        &mut self,
        now: Instant,
        sequence: u32,
        packet: &InnerPacket<'_>,
        limits: HoldLimits,
        hold: &mut Hold<'_>,
    ) -> bool {
        let Some(disorder) = &mut self.disorder else { return false };
        let not_before = limits.not_before.min(now + limits.max_wait);
        let Some(index) = hold.store(packet, sequence, now, not_before) else { return false };
        disorder.insert(self.next, sequence, index, &mut hold.pool.slots);
        match hold.pool.slots.get_mut(disorder.newest) {
            Some(newest) => newest.later = index,
            None => disorder.oldest = index,
        }
        if let Some(held) = hold.pool.slots.get_mut(index) {
            held.earlier = disorder.newest;
            disorder.bytes += held.memory();
        }
        disorder.newest = index;
        self.stats.held += 1;
        true
    }

    /// What comes next, of the numbers before `to`.
    fn upcoming(&mut self, to: u64) -> Next {
        match &mut self.disorder {
            Some(disorder) => disorder.upcoming(self.next, to),
            None => Next::Missing(to - self.next),
        }
    }

    /// Moves on up to `to`: delivers what waits before it, gives up what is missing.
    fn advance(
        &mut self,
        now: Instant,
        to: u64,
        hold: &mut Hold<'_>,
        deliver: &mut impl FnMut(InnerPacket<'_>),
    ) {
        let mut gap = 0;
        while self.next < to {
            hold.step(1);
            let next = self.upcoming(to);
            if let Next::Missing(count) = next {
                self.miss(count);
                gap += count;
                continue;
            }
            self.close_gap(&mut gap);
            match next {
                Next::Held(index) => self.release(now, index, hold, deliver),
                Next::Passed => self.pop_passed(hold),
                Next::Skipped(count) => self.skip_next(count),
                Next::Missing(_) => {}
            }
        }
        self.close_gap(&mut gap);
    }

    fn close_gap(&mut self, gap: &mut u64) {
        if *gap > 0 {
            self.stats.gaps_given_up += 1;
            self.stats.packets_given_up += *gap;
            *gap = 0;
        }
    }

    /// Delivers what is in sequence, as far as it goes.
    fn release_ready(
        &mut self,
        now: Instant,
        hold: &mut Hold<'_>,
        deliver: &mut impl FnMut(InnerPacket<'_>),
    ) {
        self.release_up_to(now, u64::MAX, hold, deliver);
    }

    /// Delivers what is in sequence before `to`.
    fn release_up_to(
        &mut self,
        now: Instant,
        to: u64,
        hold: &mut Hold<'_>,
        deliver: &mut impl FnMut(InnerPacket<'_>),
    ) {
        while self.disorder.is_some() && self.next < to {
            match self.upcoming(to) {
                Next::Held(index) => {
                    if hold.pool.slots.get(index).is_none_or(|held| held.not_before > now) {
                        break;
                    }
                    self.release(now, index, hold, deliver);
                }
                Next::Passed => self.pop_passed(hold),
                Next::Skipped(count) => self.skip_next(count),
                Next::Missing(_) => break,
            }
            hold.step(1);
        }
        if let Some(disorder) = self.disorder.take_if(|disorder| disorder.is_empty()) {
            hold.end(disorder);
        } else if let Some(disorder) = &mut self.disorder
            && disorder.is_wasteful()
        {
            hold.shrink(disorder);
        }
    }

    /// Delivers the packet in slot `index`, which is the next in sequence.
    fn release(
        &mut self,
        now: Instant,
        index: u32,
        hold: &mut Hold<'_>,
        deliver: &mut impl FnMut(InnerPacket<'_>),
    ) {
        if let (Some(disorder), Some(held)) = (&mut self.disorder, hold.pool.slots.get(index)) {
            let (earlier, later) = (held.earlier, held.later);
            self.stats.waited(now.since(held.arrived));
            disorder.bytes -= held.memory();
            deliver(held.packet());
            disorder.pop(&hold.pool.slots);
            match hold.pool.slots.get_mut(earlier) {
                Some(held) => held.later = later,
                None => disorder.oldest = later,
            }
            match hold.pool.slots.get_mut(later) {
                Some(held) => held.earlier = earlier,
                None => disorder.newest = earlier,
            }
            hold.release(index);
        }
        self.pass();
    }

    /// The next packet in sequence was delivered without regard to order.
    fn pop_passed(&mut self, hold: &Hold<'_>) {
        if let Some(disorder) = &mut self.disorder {
            disorder.pop(&hold.pool.slots);
        }
        self.pass();
    }

    /// The next packet in sequence was delivered.
    fn pass(&mut self) {
        self.stats.delivered += 1;
        let sequence = self.expected();
        if let Some(late) = &mut self.late {
            late.delivered.accept(sequence);
            if sequence.wrapping_sub(late.given_up) > WINDOW {
                self.late = None;
            }
        }
        self.next += 1;
    }

    /// The peer has declared the next `count` packets in sequence lost.
    fn skip_next(&mut self, count: u64) {
        self.miss(count);
        self.stats.skipped += count;
    }

    /// The next `count` packets in sequence are not waited for any longer.
    fn miss(&mut self, count: u64) {
        if count == 0 {
            return;
        }
        let before = self.expected().wrapping_sub(1);
        self.next += count;
        let given_up = self.expected().wrapping_sub(1);
        let late = self.late.get_or_insert_with(|| {
            Box::new(LateWindow { delivered: DuplicateWindow::at(before, true), given_up })
        });
        late.delivered.advance(given_up);
        late.given_up = given_up;
    }
}

#[cfg(test)]
mod tests;
