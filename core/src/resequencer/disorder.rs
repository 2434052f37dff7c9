//! The numbers of a session ahead of the next one that have arrived or were declared lost.
//!
//! Consecutive numbers are one entry, a run. Finding a number takes logarithmic time; adding one
//! may also move up to half of the entries.

use core::time::Duration;
use std::collections::VecDeque;

use super::held::{NONE, Slots};
use mpip_types::Instant;
use mpip_types::Intervals;

/// Most runs, and most skipped intervals, of a session: the number of packets of ordinary MTU in
/// half of an association's memory (`Limits::resequencing`), each with a gap before it. Adding one
/// in the middle moves 64 KiB, which takes about 3 µs.
pub(super) const ENTRIES: usize = 8_192;

/// Time for which numbers declared lost are kept: as long as a packet may be held.
const SKIPS_KEPT: Duration = Duration::from_secs(2);

/// Largest capacity that is kept for reuse by another session, entries.
const MODEST: usize = 64;

/// Bytes of a run.
pub(super) const RUN_BYTES: usize = size_of::<Run>();

/// Consecutive numbers that have arrived.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u32,
    last: u32,
    /// Slots of the first and the last packet, which are held; [`NONE`] if they were delivered
    /// without order.
    head: u32,
    tail: u32,
}

impl Run {
    fn is_held(&self) -> bool {
        self.head != NONE
    }
}

/// The next step of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A packet held in this slot.
    Held(u32),
    /// A packet that was delivered without order.
    Passed,
    /// This many numbers that the peer declared lost.
    Skipped(u64),
    /// This many missing numbers.
    Missing(u64),
}

/// See the module. `next` is the next number of the session; the lower 32 bits of such numbers are
/// the sequence numbers.
#[derive(Debug)]
pub(super) struct Disorder {
    /// Ascending from the next number on.
    runs: VecDeque<Run>,
    /// Numbers that the peer declared lost. Some of them may have arrived nevertheless.
    skipped: Intervals,
    /// When the first of them was declared lost.
    skipped_since: Instant,
    /// Since when numbers are missing before one that was delivered without order.
    pub(super) passed_since: Option<Instant>,
    /// Held packets, in the order of arrival.
    pub(super) oldest: u32,
    pub(super) newest: u32,
    /// Memory of the held packets, bytes.
    pub(super) bytes: usize,
}

impl Default for Disorder {
    fn default() -> Self {
        Self {
            runs: VecDeque::new(),
            skipped: Intervals::default(),
            skipped_since: Instant::ZERO,
            passed_since: None,
            oldest: NONE,
            newest: NONE,
            bytes: 0,
        }
    }
}

impl Disorder {
    /// Whether no number is recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.skipped.is_empty()
    }

    /// Clears everything; memory is kept.
    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.skipped.clear();
        self.passed_since = None;
        (self.oldest, self.newest, self.bytes) = (NONE, NONE, 0);
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        let skipped = Intervals::bytes_of(self.skipped.capacity());
        size_of::<Self>() + self.runs.capacity() * RUN_BYTES + skipped
    }

    /// Records numbers from `first` to `last` as declared lost; there must be memory for them.
    pub(super) fn skip(&mut self, now: Instant, next: u64, (first, last): (u64, u64)) {
        if self.forgets_at(next).is_none() {
            self.skipped_since = now;
        }
        self.skipped.insert(first, last);
    }

    /// When the numbers declared lost are dropped, if there are any.
    pub(super) fn forgets_at(&self, next: u64) -> Option<Instant> {
        let ahead = self.skipped.highest().is_some_and(|highest| highest >= next);
        ahead.then(|| self.skipped_since + SKIPS_KEPT)
    }

    pub(super) fn forget_skips(&mut self) {
        self.skipped.clear();
    }

    /// Whether its memory is small enough for reuse.
    pub(super) fn is_modest(&self) -> bool {
        self.runs.capacity() + self.skipped.capacity() <= MODEST
    }

    /// Number of runs (`runs`) or skipped intervals, and their capacity.
    pub(super) fn extent(&self, runs: bool) -> (usize, usize) {
        match runs {
            true => (self.runs.len(), self.runs.capacity()),
            false => (self.skipped.len(), self.skipped.capacity()),
        }
    }

    /// Reserves memory for `count` runs (`runs`) or skipped intervals in all.
    pub(super) fn reserve(&mut self, runs: bool, count: usize) {
        match runs {
            true => self.runs.reserve_exact(count.saturating_sub(self.runs.len())),
            false => self.skipped.reserve_exact(count),
        }
    }

    /// Whether its capacity is far larger than needed.
    pub(super) fn is_wasteful(&self) -> bool {
        let wastes = |(len, capacity): (usize, usize)| capacity > MODEST && len < capacity / 4;
        wastes(self.extent(true)) || wastes(self.extent(false))
    }

    /// Releases [excess](Self::is_wasteful) memory.
    pub(super) fn shrink(&mut self) {
        self.runs.shrink_to((self.runs.len() * 2).max(MODEST / 2));
        self.skipped.shrink_to((self.skipped.len() * 2).max(MODEST / 2));
    }

    /// Index after the last run that begins at or before the number `ahead` of the next one.
    fn place(&self, next: u64, ahead: u32) -> usize {
        let begins = |run: &Run| run.first.wrapping_sub(next as u32) <= ahead;
        match self.runs.back() {
            // Most numbers belong at the end.
            Some(last) if !begins(last) => self.runs.partition_point(begins),
            _ => self.runs.len(),
        }
    }

    /// Whether the packet `ahead` of the next one has arrived.
    pub(super) fn has(&self, next: u64, ahead: u32) -> bool {
        let is_behind = |last: &Run| last.last.wrapping_sub(next as u32) < ahead;
        if self.runs.back().is_none_or(is_behind) {
            return false;
        }
        let before = self.place(next, ahead).checked_sub(1).and_then(|at| self.runs.get(at));
        before.is_some_and(|run| run.last.wrapping_sub(next as u32) >= ahead)
    }

    /// Distance of the first run from the next number.
    pub(super) fn first_run(&self, next: u64) -> Option<u32> {
        self.runs.front().map(|run| run.first.wrapping_sub(next as u32))
    }

    /// The slot of the packet with the next number, if it is held.
    pub(super) fn front(&self, next: u64) -> Option<u32> {
        let front = self.runs.front().filter(|run| run.is_held() && run.first == next as u32);
        front.map(|run| run.head)
    }

    /// One more than the highest recorded number.
    pub(super) fn end(&self, next: u64) -> u64 {
        let last = |run: &Run| next + u64::from(run.last.wrapping_sub(next as u32));
        let highest = self.runs.back().map(last).max(self.skipped.highest());
        highest.map_or(next, |highest| (highest + 1).max(next))
    }

    /// The next step among the numbers before `to`.
    pub(super) fn upcoming(&mut self, next: u64, to: u64) -> Next {
        let mut most = to - next;
        if let Some(run) = self.runs.front() {
            match run.first.wrapping_sub(next as u32) {
                0 if run.is_held() => return Next::Held(run.head),
                0 => return Next::Passed,
                ahead => most = most.min(u64::from(ahead)),
            }
        }
        self.skipped.drop_below(next);
        match self.skipped.first() {
            Some((first, last)) if first <= next => Next::Skipped(most.min(last + 1 - next)),
            Some((first, _)) => Next::Missing(most.min(first - next)),
            None => Next::Missing(most),
        }
    }

    /// Removes the first number of the first run.
    pub(super) fn pop(&mut self, slots: &Slots) {
        let Some(run) = self.runs.front_mut() else { return };
        if run.first == run.last {
            self.runs.pop_front();
            return;
        }
        run.first = run.first.wrapping_add(1);
        if let Some(held) = slots.get(run.head) {
            run.head = held.next;
        }
    }

    /// Adds `sequence`, which has not arrived and for which there is memory; its packet is in
    /// `slot`, or [`NONE`].
    pub(super) fn insert(&mut self, next: u64, sequence: u32, slot: u32, slots: &mut Slots) {
        let held = slot != NONE;
        // Most numbers extend the last run.
        if let Some(last) = self.runs.back_mut()
            && last.last.wrapping_add(1) == sequence
            && last.is_held() == held
        {
            if let Some(tail) = slots.get_mut(last.tail) {
                tail.next = slot;
            }
            (last.last, last.tail) = (sequence, slot);
            return;
        }
        let at = self.place(next, sequence.wrapping_sub(next as u32));
        let run = |at: Option<usize>| {
            at.and_then(|at| self.runs.get(at).copied()).filter(|run| run.is_held() == held)
        };
        let left = run(at.checked_sub(1)).filter(|run| run.last.wrapping_add(1) == sequence);
        let right = run(Some(at)).filter(|run| run.first == sequence.wrapping_add(1));
        if let Some(last) = left.and_then(|left| slots.get_mut(left.tail)) {
            last.next = slot;
        }
        if let Some(right) = right
            && let Some(held) = slots.get_mut(slot)
        {
            held.next = right.head;
        }
        let new = Run {
            first: left.map_or(sequence, |left| left.first),
            last: right.map_or(sequence, |right| right.last),
            head: left.map_or(slot, |left| left.head),
            tail: right.map_or(slot, |right| right.tail),
        };
        match (left, right) {
            (None, None) => self.runs.insert(at, new),
            (None, Some(_)) => self.runs[at] = new,
            (Some(_), None) => self.runs[at - 1] = new,
            (Some(_), Some(_)) => {
                self.runs[at - 1] = new;
                self.runs.remove(at);
            }
        }
    }
}
