//! Resequencing: restores the order of the packets of one session, bounded in time and memory.
//!
//! A packet in sequence is delivered without a copy. A packet ahead of the sequence is held in the
//! engine's [`HoldPool`] until each packet before it has been delivered, has been declared lost by
//! the peer ([`Resequencer::skip`]), or has been given up after the resequencing timeout. A packet
//! that arrives after it was given up is delivered at once, since a TCP receiver can use it.
//! Nothing is delivered twice.
//!
//! A packet may carry a playout time before which it is not delivered ([`HoldLimits::not_before`]);
//! this removes the jitter of a path. A packet that needs no order ([`Resequencer::pass_by`]) is
//! delivered at once, and only its number is recorded.
//!
//! The peer chooses the sequence numbers, so memory and work depend on what has arrived, not on the
//! distance of the numbers: numbers ahead are kept as runs (`disorder`), all memory beyond a fixed
//! size comes from the pool, and each call takes logarithmic time in addition to the packets that
//! it delivers or gives up.

use core::time::Duration;

use crate::window::{DuplicateWindow, Seen, WINDOW};
use mpip_types::InnerPacket;
use mpip_types::Instant;

mod bursts;
mod disorder;
mod held;
mod pool;
mod stats;

use bursts::Bursts;
use disorder::{Disorder, ENTRIES, Next};
use held::NONE;
pub use pool::{Hold, HoldPool, Share};
pub use stats::{ResequencerStats, WAIT_BUCKETS};

/// Largest distance of a held packet from the next expected sequence number. The peer assigns
/// numbers in sequence, so at most this many packets are in flight: 45 MB at 1,400 bytes each.
pub const SPAN: u32 = 32_768;

/// A first packet of a session with at least this sequence number means that its beginning was
/// missed (because this node restarted), not that packets were reordered.
pub const FRESH: u32 = 4_096;

/// Limits of what a session may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLimits {
    /// Resequencing timeout: no packet is held longer.
    pub max_wait: Duration,
    /// Memory of the held packets, bytes; beyond it the oldest gap is given up.
    pub max_bytes: usize,
    /// Playout time: this packet is not delivered earlier, unless the other limits require it.
    pub not_before: Instant,
    /// Packets are delivered in bursts of limited size ([`ReleaseParameters`]).
    ///
    /// [`ReleaseParameters`]: crate::parameters::ReleaseParameters
    pub in_bursts: bool,
}

/// The result for a packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It was delivered, with the held packets that waited for it.
    Delivered,
    /// It is held, because earlier packets are missing.
    Held,
    /// It was delivered after it had been given up.
    Late,
    /// It had arrived before, or is too old to tell, and was refused.
    Duplicate,
}

/// The receiving side of an ordered session.
///
/// Every call needs the [`Hold`] of the same association. Before it is dropped,
/// [`Resequencer::discard`] must return its memory.
#[derive(Debug)]
pub struct Resequencer {
    /// The next number to be delivered; sequence numbers are the lower 32 bits of such numbers.
    next: u64,
    /// The highest sequence number that arrived, once one did.
    highest: Option<u32>,
    /// Numbers from `next` on that have arrived or were declared lost, if any. Between calls,
    /// `next` itself has not arrived, or its packet is held for its playout time.
    disorder: Option<Box<Disorder>>,
    /// Numbers given up that may still arrive late, if any.
    late: Option<Box<LateWindow>>,
    max_wait: Duration,
    bursts: Bursts,
    stats: ResequencerStats,
}

/// The numbers before `next`: which of them were delivered.
#[derive(Debug)]
struct LateWindow {
    delivered: DuplicateWindow,
    /// The newest number given up.
    given_up: u32,
}

impl Default for Resequencer {
    fn default() -> Self {
        Self::new()
    }
}

impl Resequencer {
    /// A resequencer of a session without packets so far.
    pub fn new() -> Self {
        Self {
            next: 0,
            highest: None,
            disorder: None,
            late: None,
            max_wait: Duration::ZERO,
            bursts: Bursts::default(),
            stats: ResequencerStats::default(),
        }
    }

    /// A resequencer of a session whose packets were delivered unordered so far. `delivered` knows
    /// them; ordering starts after the newest of them, because packets that need order may overtake
    /// the first one that does.
    pub(crate) fn continuing(delivered: DuplicateWindow) -> Self {
        let Some(newest) = delivered.newest() else { return Self::new() };
        Self {
            next: u64::from(newest) + 1,
            highest: Some(newest),
            late: Some(Box::new(LateWindow { delivered, given_up: newest })),
            ..Self::new()
        }
    }

    /// Processes the packet `sequence`; passes what is ready to `deliver`.
    pub fn receive(
        &mut self,
        now: Instant,
        sequence: u32,
        packet: InnerPacket<'_>,
        limits: HoldLimits,
        hold: &mut Hold<'_>,
        mut deliver: impl FnMut(InnerPacket<'_>),
    ) -> Received {
        self.note(now, sequence, limits, hold);
        let next = sequence == self.expected();
        let early = limits.not_before > now && !limits.max_wait.is_zero();
        let early = early || next && !self.bursts.take(now, &hold.pool.release);
        if next && self.disorder.is_none() && !early {
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
        // It is in sequence or cannot be held: gives up what is missing before it.
        self.advance(now, number, hold, &mut deliver);
        self.pass();
        deliver(packet);
        self.release_ready(now, hold, &mut deliver);
        Received::Delivered
    }

    /// Processes the packet `sequence`, which needs no order: delivers it at once unless it is a
    /// duplicate. Held packets that waited only for its number are passed to `deliver` as well.
    pub fn pass_by(
        &mut self,
        now: Instant,
        sequence: u32,
        packet: InnerPacket<'_>,
        limits: HoldLimits,
        hold: &mut Hold<'_>,
        mut deliver: impl FnMut(InnerPacket<'_>),
    ) -> Received {
        self.note(now, sequence, limits, hold);
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
            // It cannot be recorded, so gaps before it are given up.
            self.advance(now, number, hold, &mut deliver);
            self.pass();
        }
        self.release_ready(now, hold, &mut deliver);
        Received::Delivered
    }

    /// The peer declares the `count` packets from `first` on lost. Numbers [`SPAN`] or more ahead
    /// are ignored, as are those without memory to record them. A record is dropped after 2 s
    /// without use.
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

    /// When [`Resequencer::expire`] is due; `None` while nothing is held.
    pub fn deadline(&self, pool: &HoldPool) -> Option<Instant> {
        let disorder = self.disorder.as_ref()?;
        if let Some(front) = disorder.front(self.next).and_then(|slot| pool.slots.get(slot)) {
            return Some(front.not_before).max(self.bursts.next());
        }
        let since = match pool.slots.get(disorder.oldest) {
            Some(held) => Some(held.arrived),
            None => disorder.passed_since,
        };
        since.map(|since| since + self.max_wait).or_else(|| disorder.forgets_at(self.next))
    }

    /// Gives up the gaps before every packet that has been held for `max_wait`.
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
            // Up to the packet held longest, or up to what was delivered without order.
            let to = match self.oldest(hold) {
                Some(number) => number,
                None => self.end(),
            };
            self.advance(now, to, hold, &mut deliver);
            self.release_ready(now, hold, &mut deliver);
        }
    }

    /// Delivers all held packets, in order.
    pub fn flush(
        &mut self,
        now: Instant,
        hold: &mut Hold<'_>,
        mut deliver: impl FnMut(InnerPacket<'_>),
    ) {
        while let Some(number) = self.oldest(hold) {
            // Regardless of its playout time.
            self.advance(now, number + 1, hold, &mut deliver);
        }
        self.release_ready(now, hold, &mut deliver);
    }

    /// Drops all held packets.
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

    /// Whether packets are held.
    pub fn is_waiting(&self) -> bool {
        self.disorder.as_ref().is_some_and(|disorder| disorder.oldest != NONE)
    }

    /// Memory of the held packets, bytes.
    pub fn bytes(&self) -> usize {
        self.disorder.as_ref().map_or(0, |disorder| disorder.bytes)
    }

    /// The next sequence number that is to be delivered.
    pub fn expected(&self) -> u32 {
        self.next as u32
    }

    /// Statistics.
    pub fn stats(&self) -> &ResequencerStats {
        &self.stats
    }

    /// Records the arrival of `sequence` and the current limits; the first packet may move the
    /// start.
    fn note(&mut self, now: Instant, sequence: u32, limits: HoldLimits, hold: &mut Hold<'_>) {
        self.max_wait = limits.max_wait;
        self.bursts.on_arrival(now, limits.in_bursts, &hold.pool.release);
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

    /// Whether a packet of `len` bytes can be held without giving up a gap. If so, there is room
    /// for its number, too.
    fn fits(&mut self, len: usize, limits: HoldLimits, hold: &mut Hold<'_>) -> bool {
        let bytes = self.bytes();
        bytes + HoldPool::cost(len) <= limits.max_bytes
            && self.has_room(true, hold)
            && hold.admits(bytes, len)
    }

    /// Reserves memory for one more run (`runs`) or skipped interval. `false` if there is none.
    fn has_room(&mut self, runs: bool, hold: &mut Hold<'_>) -> bool {
        if self.disorder.is_none() {
            self.disorder = hold.begin();
        }
        let Some(disorder) = &mut self.disorder else { return false };
        disorder.extent(runs).0 < ENTRIES && hold.grow(disorder, runs)
    }

    /// The number of the packet that has been held longest.
    fn oldest(&self, hold: &Hold<'_>) -> Option<u64> {
        let held = hold.pool.slots.get(self.disorder.as_ref()?.oldest)?;
        Some(self.next + u64::from(held.sequence.wrapping_sub(self.expected())))
    }

    /// One more than the highest recorded number.
    fn end(&self) -> u64 {
        self.disorder.as_ref().map_or(self.next, |disorder| disorder.end(self.next))
    }

    /// The distance of `sequence` from the expected number. Late and duplicate packets have none:
    /// they are counted here, and the error is their result.
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

    /// Gives up gaps, oldest first, until the packet `number` of `len` bytes can be held. `false`
    /// if it cannot; it is in sequence then.
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
            // The oldest gap ends at the first held packet, or at this one. A packet held only for
            // its playout time is delivered first.
            let first = self.disorder.as_ref().and_then(|disorder| disorder.first_run(self.next));
            let gap = first.map_or(ahead, |gap| ahead.min(u64::from(gap.max(1))));
            self.advance(now, self.next + gap, hold, deliver);
            if gap < ahead {
                // Not beyond: a packet that was declared lost may still be held.
                self.release_up_to(now, number, hold, deliver);
            }
        }
        false
    }

    /// Holds a packet that [fits](Self::fits). `false` if there is no memory after all.
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

    /// The next step among the numbers before `to`.
    fn upcoming(&mut self, to: u64) -> Next {
        match &mut self.disorder {
            Some(disorder) => disorder.upcoming(self.next, to),
            None => Next::Missing(to - self.next),
        }
    }

    /// Advances to `to`: delivers held packets before it and gives up missing ones.
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

    /// Delivers all packets in sequence.
    fn release_ready(
        &mut self,
        now: Instant,
        hold: &mut Hold<'_>,
        deliver: &mut impl FnMut(InnerPacket<'_>),
    ) {
        self.release_up_to(now, u64::MAX, hold, deliver);
    }

    /// Delivers the packets in sequence before `to`.
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
                    if hold.pool.slots.get(index).is_none_or(|held| held.not_before > now)
                        || !self.bursts.take(now, &hold.pool.release)
                    {
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

    /// Delivers the held packet in slot `index`, which is next in sequence.
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

    /// Skips the next number, whose packet was delivered without order.
    fn pop_passed(&mut self, hold: &Hold<'_>) {
        if let Some(disorder) = &mut self.disorder {
            disorder.pop(&hold.pool.slots);
        }
        self.pass();
    }

    /// Advances past the next number, whose packet was delivered.
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

    /// Advances past the next `count` numbers, which the peer declared lost.
    fn skip_next(&mut self, count: u64) {
        self.miss(count);
        self.stats.skipped += count;
    }

    /// Gives up the next `count` numbers.
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
