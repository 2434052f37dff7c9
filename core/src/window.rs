//! Duplicate detection by the sequence numbers of a session.

use core::time::Duration;

use mpip_types::Instant;

/// Size of the window, sequence numbers.
pub const WINDOW: u32 = 4_096;
/// Size of a wide window, sequence numbers: 100 ms of 7 Gbit/s in full packets.
pub const WIDE_WINDOW: u32 = 65_536;

const WORDS: usize = WINDOW as usize / 64;
const WIDE_WORDS: usize = WIDE_WINDOW as usize / 64;

/// The result for a sequence number that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It arrived for the first time.
    New,
    /// It had arrived before.
    Duplicate,
    /// It is behind the newest by the size of the window or more: unknown, so it must be refused.
    TooOld,
}

/// Accepts each number of a wrapping 32-bit sequence once, in any order within the window, which
/// has [`WINDOW`] numbers or, once it was [widened](Self::widen), [`WIDE_WINDOW`].
///
/// 544 bytes, and 8 KiB of its own when it is wide. Nothing else is allocated.
#[derive(Clone, Debug)]
pub struct DuplicateWindow {
    /// Number `n` is bit `n % 64` of word `n / 64 % 64`. Bits are cleared before they are reused.
    bits: [u64; WORDS],
    /// The same of a wide window, in place of `bits`.
    wide: Option<Box<[u64; WIDE_WORDS]>>,
    /// The newest number.
    newest: u32,
    empty: bool,
    /// The newest number when the pace was judged, and when that was.
    judged: u32,
    judged_at: Instant,
}

impl Default for DuplicateWindow {
    fn default() -> Self {
        Self::new()
    }
}

impl DuplicateWindow {
    /// An empty window; the first number may be any.
    pub fn new() -> Self {
        Self { empty: true, ..Self::at(0, false) }
    }

    /// A window whose newest number is `newest`, with this number and all before it seen (`seen`)
    /// or not.
    pub const fn at(newest: u32, seen: bool) -> Self {
        Self {
            bits: [if seen { u64::MAX } else { 0 }; WORDS],
            wide: None,
            newest,
            empty: false,
            judged: newest,
            judged_at: Instant::ZERO,
        }
    }

    /// The newest number, if there was one.
    pub(crate) const fn newest(&self) -> Option<u32> {
        if self.empty { None } else { Some(self.newest) }
    }

    /// Whether it was widened.
    pub const fn is_wide(&self) -> bool {
        self.wide.is_some()
    }

    /// Numbers in the window.
    const fn size(&self) -> u32 {
        if self.is_wide() { WIDE_WINDOW } else { WINDOW }
    }

    fn words(&mut self) -> &mut [u64] {
        match &mut self.wide {
            Some(wide) => &mut wide[..],
            None => &mut self.bits,
        }
    }

    /// Records `sequence`.
    pub fn accept(&mut self, sequence: u32) -> Seen {
        if sequence.wrapping_sub(self.newest) == 1 && !self.empty {
            self.newest = sequence;
            let words = self.words();
            let (word, bit) = position(words, sequence);
            words[word] |= bit;
            return Seen::New;
        }
        self.advance(sequence);
        if self.newest.wrapping_sub(sequence) >= self.size() {
            return Seen::TooOld;
        }
        let words = self.words();
        let (word, bit) = position(words, sequence);
        if words[word] & bit != 0 {
            return Seen::Duplicate;
        }
        words[word] |= bit;
        Seen::New
    }

    /// Moves the window up to `sequence`, if it is newer, without recording it as seen.
    pub fn advance(&mut self, sequence: u32) {
        if self.empty {
            self.empty = false;
            self.newest = sequence;
            return;
        }
        let ahead = sequence.wrapping_sub(self.newest);
        if ahead == 0 || ahead > i32::MAX as u32 {
            return;
        }
        if ahead >= self.size() {
            self.words().fill(0);
        } else {
            self.clear(self.newest.wrapping_add(1), ahead);
        }
        self.newest = sequence;
    }

    /// Clears the bits of `count` numbers from `first` on.
    fn clear(&mut self, first: u32, count: u32) {
        let words = self.words();
        let mut from = first;
        let mut left = count;
        while left > 0 {
            let in_word = (64 - from % 64).min(left);
            let ones = u64::MAX >> (64 - in_word);
            words[position(words, from).0] &= !(ones << (from % 64));
            from = from.wrapping_add(in_word);
            left -= in_word;
        }
    }

    /// Whether the window is too small for packets that are late by `lateness`: half of it went by
    /// in less than half of that time. Judged anew after each half, so that it can be
    /// [widened](Self::widen) before it has forgotten a number that may still come. A wide window
    /// is never too small.
    pub fn is_short(&mut self, now: Instant, lateness: Duration) -> bool {
        if self.newest.wrapping_sub(self.judged) < WINDOW / 2 || self.is_wide() {
            return false;
        }
        let took = now.since(self.judged_at);
        (self.judged, self.judged_at) = (self.newest, now);
        took < lateness / 2
    }

    /// Makes the window wide. Numbers that it does not know count as seen.
    pub fn widen(&mut self) {
        let mut wide = Box::new([u64::MAX; WIDE_WORDS]);
        self.copy_to(&mut wide[..]);
        self.wide = Some(wide);
    }

    /// Makes the window as small as before. Returns whether it was wide.
    pub fn narrow(&mut self) -> bool {
        let was_wide = self.is_wide();
        if was_wide {
            let mut bits = [u64::MAX; WORDS];
            self.copy_to(&mut bits);
            (self.bits, self.wide) = (bits, None);
        }
        was_wide
    }

    /// Copies what is known of the newest [`WINDOW`] numbers to `words`, where all are seen.
    fn copy_to(&mut self, words: &mut [u64]) {
        let newest = self.newest;
        let own = self.words();
        for number in (0..WINDOW).map(|behind| newest.wrapping_sub(behind)) {
            let (word, bit) = position(own, number);
            if own[word] & bit == 0 {
                words[position(words, number).0] &= !bit;
            }
        }
    }
}

/// The word and the bit of number `sequence`. The number of words is a power of two.
const fn position(words: &[u64], sequence: u32) -> (usize, u64) {
    ((sequence / 64) as usize & (words.len() - 1), 1 << (sequence % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_is_new_once() {
        let mut window = DuplicateWindow::new();
        assert_eq!(window.accept(7), Seen::New);
        assert_eq!(window.accept(7), Seen::Duplicate);
        assert_eq!(window.accept(5), Seen::New);
        assert_eq!(window.accept(7 + WINDOW - 1), Seen::New);
        assert_eq!(window.accept(6), Seen::TooOld);
        assert_eq!(window.accept(8), Seen::New);
        assert_eq!(window.accept(7 + WINDOW), Seen::New);
        assert_eq!(window.accept(7), Seen::TooOld);
        assert_eq!(window.accept(8), Seen::Duplicate);
    }

    #[test]
    fn a_window_can_start_with_everything_behind_it_seen_or_not() {
        let mut seen = DuplicateWindow::at(10, true);
        assert_eq!(seen.accept(10), Seen::Duplicate);
        assert_eq!(seen.accept(0xffff_ff00), Seen::Duplicate);
        assert_eq!(seen.accept(11), Seen::New);
        let mut unseen = DuplicateWindow::at(10, false);
        assert_eq!(unseen.accept(0xffff_ff00), Seen::New);
        assert_eq!(unseen.accept(10), Seen::New);
    }

    #[test]
    fn advancing_makes_nothing_seen() {
        let mut window = DuplicateWindow::at(100, true);
        window.advance(200);
        assert_eq!(window.accept(150), Seen::New);
        assert_eq!(window.accept(100), Seen::Duplicate);
        assert_eq!(window.accept(200), Seen::New);
    }

    #[test]
    fn a_window_is_short_if_half_of_it_goes_by_in_half_of_the_lateness() {
        let ms = Duration::from_millis;
        for (pace, short) in [(40, false), (42, true)] {
            let mut window = DuplicateWindow::new();
            let judged = (0..1_000).map(|time| {
                window.accept(time * pace);
                window.is_short(Instant::from_millis(5_000 + u64::from(time)), ms(100))
            });
            let judged: Vec<bool> = judged.collect();
            let first = judged.iter().position(|judged| *judged);
            assert_eq!(first.is_some(), short, "{pace} in a millisecond");
            assert!(first.is_none_or(|first| first as u32 * pace <= WINDOW + pace), "{first:?}");
        }
    }

    #[test]
    fn a_sequence_that_becomes_fast_loses_nothing_that_is_late() {
        let mut window = DuplicateWindow::new();
        let (slow, late) = (3_000, 8_000);
        let (mut time, mut widened) = (Instant::ZERO, false);
        // Of the fast ones, each odd number comes 80 ms after the next even one.
        for number in 0..60_000_u32 {
            let pause = if number < slow { 10_000 } else { 10 };
            time += Duration::from_micros(pause);
            let (now, before) = (number, number.checked_sub(late));
            for number in [Some(now).filter(|n| *n < slow || n % 2 == 0), before] {
                let Some(number) = number.filter(|n| *n == now || *n >= slow && n % 2 == 1) else {
                    continue;
                };
                assert_eq!(window.accept(number), Seen::New, "{number} at {now}");
                if window.is_short(time, Duration::from_millis(100)) {
                    assert!(!widened && number >= slow);
                    window.widen();
                    widened = true;
                }
            }
        }
        assert!(widened);
        assert_eq!(window.accept(40_000), Seen::Duplicate);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_window_agrees_with_a_set(
            start in any::<u32>(),
            steps in proptest::collection::vec((0u8..12, -6_000i64..6_000), 1..400),
        ) {
            let mut window = DuplicateWindow::new();
            let mut seen = BTreeSet::new();
            let mut newest: Option<i64> = None;
            // Of numbers below this nothing is known.
            let mut from = i64::MIN;
            let mut at = 0i64;
            for (kind, jump) in steps {
                if let Some(newest) = newest.filter(|_| kind >= 10) {
                    match kind {
                        10 => window.widen(),
                        _ => {
                            let wide = window.is_wide();
                            prop_assert_eq!(window.narrow(), wide);
                        }
                    }
                    from = from.max(newest - i64::from(WINDOW) + 1);
                    continue;
                }
                at += match kind { 0 => jump, 1..4 => jump % 70, 4 => 0, _ => 1 };
                let highest = newest.map_or(at, |newest| newest.max(at));
                newest = Some(highest);
                let size = if window.is_wide() { WIDE_WINDOW } else { WINDOW };
                let expected = if highest - at >= i64::from(size) {
                    Seen::TooOld
                } else if at >= from && seen.insert(at) {
                    Seen::New
                } else {
                    Seen::Duplicate
                };
                let sequence = start.wrapping_add(at as u32);
                prop_assert_eq!(window.accept(sequence), expected, "at {}", at);
            }
        }
    }
}
