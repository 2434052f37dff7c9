//! The set of packets, in flight or lost, that may still be acknowledged.

use std::collections::VecDeque;

const WORD: u64 = u64::BITS as u64;

/// A bit set of packet numbers that are added in order. Finding the next member reads one word per
/// 64 numbers in between.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The number `n` is bit `n % 64` of the word `n / 64 - first`.
    words: VecDeque<u64>,
    first: u64,
}

impl Pending {
    /// Adds the packet `number`, one more than the last one.
    pub(super) fn push(&mut self, number: u64, pending: bool) {
        if self.words.is_empty() {
            self.first = number / WORD;
        }
        if number / WORD >= self.first + self.words.len() as u64 {
            self.words.push_back(0);
        }
        if pending && let Some(word) = self.words.back_mut() {
            *word |= 1 << (number % WORD);
        }
    }

    /// Removes the first member from `from` to `to`; returns it and the number of words read.
    pub(super) fn take(&mut self, from: u64, to: u64) -> (Option<u64>, u64) {
        let from = from.max(self.first * WORD);
        if from > to {
            return (None, 0);
        }
        let mut sought = u64::MAX << (from % WORD);
        let mut looked = 0;
        for word in from / WORD..=to / WORD {
            let Some(bits) = self.words.get_mut((word - self.first) as usize) else { break };
            looked += 1;
            let found = *bits & sought;
            if found != 0 {
                let number = word * WORD + u64::from(found.trailing_zeros());
                if number > to {
                    break;
                }
                *bits &= !(1 << (number % WORD));
                return (Some(number), looked);
            }
            sought = u64::MAX;
        }
        (None, looked)
    }

    /// Drops all members below `number`.
    pub(super) fn drop_below(&mut self, number: u64) {
        while self.first < number / WORD && self.words.len() > 1 {
            self.words.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_member_of_a_range_is_that_of_a_set(
            start in 0u64..1 << 40,
            steps in prop::collection::vec((0u8..6, 0u64..600, 0u64..600), 1..400),
        ) {
            let mut pending = Pending::default();
            let mut model = BTreeSet::new();
            let (mut low, mut end) = (start, start);
            for (kind, one, other) in steps {
                let number = low + one.min(end - low);
                match kind {
                    0 => {
                        low = low.max(number.saturating_sub(other));
                        pending.drop_below(low);
                        model = model.split_off(&low);
                    }
                    _ => {
                        for _ in 0..=one % 40 {
                            pending.push(end, one % 3 > 0);
                            if one % 3 > 0 {
                                model.insert(end);
                            }
                            end += 1;
                        }
                    }
                }
                let to = number + other;
                let (taken, looked) = pending.take(number, to);
                let first = model.range(number..=to).next().copied();
                prop_assert_eq!(taken, first);
                first.map(|first| model.remove(&first));
                prop_assert!(looked <= other / WORD + 2, "{}", looked);
            }
        }
    }
}
