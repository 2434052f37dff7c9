//! Duplicate detection by the sequence numbers of a session.

/// Size of the window, sequence numbers.
pub const WINDOW: u32 = 4_096;

const WORDS: usize = WINDOW as usize / 64;

/// The result for a sequence number that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It arrived for the first time.
    New,
    /// It had arrived before.
    Duplicate,
    /// It is [`WINDOW`] or more behind the newest: unknown, so it must be refused.
    TooOld,
}

/// Accepts each number of a wrapping 32-bit sequence once, in any order within the window.
///
/// 520 bytes; nothing is allocated.
#[derive(Clone, Debug)]
pub struct DuplicateWindow {
    /// Number `n` is bit `n % 64` of word `n / 64 % 64`. Bits are cleared before they are reused.
    bits: [u64; WORDS],
    /// The newest number.
    newest: u32,
    empty: bool,
}

impl Default for DuplicateWindow {
    fn default() -> Self {
        Self::new()
    }
}

impl DuplicateWindow {
    /// An empty window; the first number may be any.
    pub const fn new() -> Self {
        Self { bits: [0; WORDS], newest: 0, empty: true }
    }

    /// A window whose newest number is `newest`, with this number and all before it seen (`seen`)
    /// or not.
    pub const fn at(newest: u32, seen: bool) -> Self {
        Self { bits: [if seen { u64::MAX } else { 0 }; WORDS], newest, empty: false }
    }

    /// The newest number, if there was one.
    pub(crate) const fn newest(&self) -> Option<u32> {
        if self.empty { None } else { Some(self.newest) }
    }

    /// Records `sequence`.
    pub fn accept(&mut self, sequence: u32) -> Seen {
        self.advance(sequence);
        if self.newest.wrapping_sub(sequence) >= WINDOW {
            return Seen::TooOld;
        }
        let (word, bit) = position(sequence);
        if self.bits[word] & bit != 0 {
            return Seen::Duplicate;
        }
        self.bits[word] |= bit;
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
        if ahead >= WINDOW {
            self.bits = [0; WORDS];
        } else {
            self.clear(self.newest.wrapping_add(1), ahead);
        }
        self.newest = sequence;
    }

    /// Clears the bits of `count` numbers from `first` on.
    fn clear(&mut self, first: u32, count: u32) {
        let mut from = first;
        let mut left = count;
        while left > 0 {
            let in_word = (64 - from % 64).min(left);
            let ones = u64::MAX >> (64 - in_word);
            self.bits[position(from).0] &= !(ones << (from % 64));
            from = from.wrapping_add(in_word);
            left -= in_word;
        }
    }
}

const fn position(sequence: u32) -> (usize, u64) {
    ((sequence / 64) as usize % WORDS, 1 << (sequence % 64))
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_window_agrees_with_a_set(
            start in any::<u32>(),
            steps in proptest::collection::vec((0u8..10, -6_000i64..6_000), 1..400),
        ) {
            let mut window = DuplicateWindow::new();
            let mut seen = BTreeSet::new();
            let mut newest: Option<i64> = None;
            let mut at = 0i64;
            for (kind, jump) in steps {
                at += match kind { 0 => jump, 1..4 => jump % 70, 4 => 0, _ => 1 };
                let highest = newest.map_or(at, |newest| newest.max(at));
                newest = Some(highest);
                let expected = if highest - at >= i64::from(WINDOW) {
                    Seen::TooOld
                } else if seen.insert(at) {
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
