//! Sets of numbers stored as intervals: a range costs as much as a single number.

use std::collections::VecDeque;

/// All numbers from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: u64,
    last: u64,
}

/// A set of numbers as ascending intervals that do not touch.
///
/// Finding a number takes logarithmic time. Adding a range may also remove the intervals that it
/// joins and move up to half of the others.
#[derive(Clone, Debug, Default)]
pub struct Intervals(VecDeque<Span>);

impl Intervals {
    /// How many intervals there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest interval.
    pub fn first(&self) -> Option<(u64, u64)> {
        self.0.front().map(|span| (span.first, span.last))
    }

    /// The highest number.
    pub fn highest(&self) -> Option<u64> {
        self.0.back().map(|span| span.last)
    }

    /// Whether the set contains `number`.
    pub fn contains(&self, number: u64) -> bool {
        let at = self.0.partition_point(|span| span.last < number);
        self.0.get(at).is_some_and(|span| span.first <= number)
    }

    /// Adds the numbers from `first` to `last`, which is not below `first`.
    pub fn insert(&mut self, first: u64, last: u64) {
        // Intervals in `from..to` overlap or touch the new one.
        let from = self.0.partition_point(|span| span.last < first.saturating_sub(1));
        let to = self.0.partition_point(|span| span.first <= last.saturating_add(1));
        if from >= to {
            self.0.insert(from, Span { first, last });
            return;
        }
        let end = self.0[to - 1].last;
        let span = &mut self.0[from];
        span.first = span.first.min(first);
        span.last = end.max(last);
        self.0.drain(from + 1..to);
    }

    /// Removes the intervals that lie wholly below `number`.
    pub fn drop_below(&mut self, number: u64) {
        while self.0.front().is_some_and(|span| span.last < number) {
            self.0.pop_front();
        }
    }

    /// Removes the highest intervals until there are at most `count`.
    pub fn keep_lowest(&mut self, count: usize) {
        self.0.truncate(count);
    }

    /// Bytes of heap memory for `count` intervals.
    pub const fn bytes_of(count: usize) -> usize {
        count * size_of::<Span>()
    }

    /// Capacity in intervals.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Reserves memory for exactly `count` intervals in all.
    pub fn reserve_exact(&mut self, count: usize) {
        self.0.reserve_exact(count.saturating_sub(self.0.len()));
    }

    /// Releases memory beyond that of `count` intervals, or of all intervals in the set.
    pub fn shrink_to(&mut self, count: usize) {
        self.0.shrink_to(count);
    }

    /// Removes all numbers and keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn intervals_agree_with_a_set(
            steps in prop::collection::vec((0u8..12, 0u64..300, 0u64..12), 1..200),
        ) {
            let mut intervals = Intervals::default();
            let mut model = BTreeSet::new();
            for (kind, first, len) in steps {
                match kind {
                    0 => {
                        // Whatever reaches up to the number or beyond stays whole.
                        let end = |from: u64| (from..).find(|n| !model.contains(n));
                        let gone: Vec<u64> = model
                            .iter()
                            .copied()
                            .filter(|n| end(*n).is_some_and(|end| end <= first))
                            .collect();
                        model.retain(|n| !gone.contains(n));
                        intervals.drop_below(first);
                    }
                    1 => {
                        intervals.keep_lowest(5);
                        let starts = model.iter().filter(|n| **n == 0 || !model.contains(&(**n - 1)));
                        if let Some(sixth) = starts.copied().nth(5) {
                            model.split_off(&sixth);
                        }
                    }
                    _ => {
                        intervals.insert(first, first + len);
                        model.extend(first..=first + len);
                    }
                }
                for number in 0..320 {
                    prop_assert_eq!(intervals.contains(number), model.contains(&number), "{}", number);
                }
                let starts = model.iter().filter(|n| **n == 0 || !model.contains(&(**n - 1)));
                prop_assert_eq!(intervals.len(), starts.count());
                prop_assert_eq!(intervals.is_empty(), model.is_empty());
                prop_assert_eq!(intervals.highest(), model.last().copied());
                prop_assert_eq!(intervals.first().map(|(first, _)| first), model.first().copied());
            }
        }
    }

    #[test]
    fn the_whole_range_of_numbers_is_one_interval() {
        let mut intervals = Intervals::default();
        intervals.insert(0, 3);
        intervals.insert(u64::MAX - 1, u64::MAX);
        intervals.insert(0, u64::MAX);
        assert_eq!((intervals.len(), intervals.first()), (1, Some((0, u64::MAX))));
    }
}
