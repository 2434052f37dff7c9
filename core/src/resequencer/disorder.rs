//! Which numbers of a session ahead of the next one have arrived or were declared lost.
//!
//! Numbers that follow each other are one entry, a run, however many they are. To find one takes
//! logarithmic time; to add one takes that, and the move of at most half of the entries.

use core::time::Duration;
use std::collections::VecDeque;

use super::held::{NONE, Slots};
use mpip_types::Instant;
use mpip_types::Intervals;

/// Runs, and intervals of skipped numbers, that a session may have: as many as packets of an
/// ordinary MTU in half of an association's memory (`Limits::resequencing`), each with a gap before
/// it. To add one in the middle moves 64 KiB, some 3 µs.
pub(super) const ENTRIES: usize = 8_192;

/// So long what was declared lost is kept in mind: as long as anything waits for it.
const SKIPS_KEPT: Duration = Duration::from_secs(2);

/// What has memory for so many entries is used again for another session.
const MODEST: usize = 64;

/// Bytes of a run.
pub(super) const RUN_BYTES: usize = size_of::<Run>();

/// Numbers that arrived, one after the other.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u32,
    last: u32,
    /// The slots of the first and the last packet, which wait; [`NONE`] if they were delivered
    /// without regard to order.
    head: u32,
    tail: u32,
}

impl Run {
    fn is_held(&self) -> bool {
        self.head != NONE
    }
}

/// What comes next in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A packet that waits in this slot.
    Held(u32),
    /// A packet that was delivered without regard to order.
    Passed,
    /// So many numbers that the peer declared lost.
    Skipped(u64),
    /// So many numbers that are missing.
    Missing(u64),
}

/// See the module. Functions that take it get the next number of the session, `next`; the lower 32
/// bits of such numbers are the sequence numbers.
#[derive(Debug)]
pub(super) struct Disorder {
    /// Ascending from the next number on.
    runs: VecDeque<Run>,
    /// What the peer declared lost. Some of it may have arrived nevertheless.
    skipped: Intervals,
    /// When the first of that was told.
    skipped_since: Instant,
    /// Since when numbers are missing before one that was delivered without regard to order.
    pub(super) passed_since: Option<Instant>,
    /// The packets that wait, in the order of arrival.
    pub(super) oldest: u32,
    pub(super) newest: u32,
    /// Bytes of memory of the packets that wait.
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
    /// Whether nothing is known of any number ahead.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.skipped.is_empty()
    }

    /// Makes it as new; memory is kept.
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

    /// Numbers from `first` to `last` were declared lost; there is memory for them.
    pub(super) fn skip(&mut self, now: Instant, next: u64, (first, last): (u64, u64)) {
        if self.forgets_at(next).is_none() {
            self.skipped_since = now;
        }
        self.skipped.insert(first, last);
    }

    /// When what was declared lost is forgotten, if anything was.
    pub(super) fn forgets_at(&self, next: u64) -> Option<Instant> {
        let ahead = self.skipped.highest().is_some_and(|highest| highest >= next);
        ahead.then(|| self.skipped_since + SKIPS_KEPT)
    }

    pub(super) fn forget_skips(&mut self) {
        self.skipped.clear();
    }

    /// Whether it has little memory.
    pub(super) fn is_modest(&self) -> bool {
        self.runs.capacity() + self.skipped.capacity() <= MODEST
    }

    /// How many runs, or skipped intervals, there are, and there is memory for.
    pub(super) fn extent(&self, runs: bool) -> (usize, usize) {
        match runs {
            true => (self.runs.len(), self.runs.capacity()),
            false => (self.skipped.len(), self.skipped.capacity()),
        }
    }

    /// Takes memory for `count` runs, or skipped intervals, in all.
    pub(super) fn reserve(&mut self, runs: bool, count: usize) {
        match runs {
            true => self.runs.reserve_exact(count.saturating_sub(self.runs.len())),
            false => self.skipped.reserve_exact(count),
        }
    }

    /// Whether it has far more memory than it needs.
    pub(super) fn is_wasteful(&self) -> bool {
        let wastes = |(len, capacity): (usize, usize)| capacity > MODEST && len < capacity / 4;
        wastes(self.extent(true)) || wastes(self.extent(false))
    }

    /// Gives back what [is too much](Self::is_wasteful).
    pub(super) fn shrink(&mut self) {
        self.runs.shrink_to((self.runs.len() * 2).max(MODEST / 2));
        self.skipped.shrink_to((self.skipped.len() * 2).max(MODEST / 2));
    }

    /// Where among the runs the number belongs that is `ahead` of the next one: behind all that
    /// begin at it or before.
    fn place(&self, next: u64, ahead: u32) -> usize {
        let begins = |run: &Run| run.first.wrapping_sub(next as u32) <= ahead;
        match self.runs.back() {
            // Most come in at the end.
            Some(last) if !begins(last) => self.runs.partition_point(begins),
            _ => self.runs.len(),
        }
    }

    /// Whether the packet has arrived that is `ahead` of the next one.
    pub(super) fn has(&self, next: u64, ahead: u32) -> bool {
        let is_behind = |last: &Run| last.last.wrapping_sub(next as u32) < ahead;
        if self.runs.back().is_none_or(is_behind) {
            return false;
        }
        let before = self.place(next, ahead).checked_sub(1).and_then(|at| self.runs.get(at));
        before.is_some_and(|run| run.last.wrapping_sub(next as u32) >= ahead)
    }

    /// How far ahead the first run begins.
    pub(super) fn first_run(&self, next: u64) -> Option<u32> {
        self.runs.front().map(|run| run.first.wrapping_sub(next as u32))
    }

    /// The packet with the next number, if it waits.
    pub(super) fn front(&self, next: u64) -> Option<u32> {
        let front = self.runs.front().filter(|run| run.is_held() && run.first == next as u32);
        front.map(|run| run.head)
    }

    /// The number behind all of which something is known.
    pub(super) fn end(&self, next: u64) -> u64 {
        let last = |run: &Run| next + u64::from(run.last.wrapping_sub(next as u32));
        let highest = self.runs.back().map(last).max(self.skipped.highest());
        highest.map_or(next, |highest| (highest + 1).max(next))
    }

    /// What comes next, of the numbers before `to`.
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

    /// The first number that arrived is dealt with.
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

    /// Adds the number `sequence`, which has not arrived and for which there is memory: of the
    /// packet in `slot`, or [`NONE`].
    pub(super) fn insert(&mut self, next: u64, sequence: u32, slot: u32, slots: &mut Slots) {
        let held = slot != NONE;
        // Most follow the one before.
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
