//! What has arrived of a stream.

use std::collections::BTreeMap;

/// Number of ranges that an acknowledgement reports: what fits beside timestamps, which the hosts'
/// kernels send (RFC 2018, section 3).
const REPORTED: usize = 3;

/// Which bytes of a stream have arrived, by their offsets.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    /// Number of bytes before the first gap.
    pub(super) in_order: u64,
    /// The ranges beyond it, by their starts; between any two of them is a gap.
    beyond: BTreeMap<u64, u64>,
    /// The starts of the ranges that grew last, the last one first.
    recent: Vec<u64>,
}

impl Arrived {
    /// Whether something arrived beyond a gap.
    pub(super) fn has_gap(&self) -> bool {
        !self.beyond.is_empty()
    }

    /// Whether all bytes from `start` to `end` have arrived.
    pub(super) fn has(&self, start: u64, end: u64) -> bool {
        let beyond = self.beyond.range(..=start).next_back();
        end <= self.in_order || beyond.is_some_and(|(_, to)| end <= *to)
    }

    /// The bytes from `start` to `end` arrived.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        let touching = |(_, to): &(&u64, &u64)| **to >= start;
        let first = self.beyond.range(..=start).next_back().filter(touching);
        start = first.map_or(start, |(from, _)| *from);
        while let Some((&from, &to)) = self.beyond.range(start..=end).next() {
            self.beyond.remove(&from);
            end = end.max(to);
        }
        let Self { in_order, beyond, recent } = self;
        recent.retain(|from| *from != start && beyond.contains_key(from));
        if start <= *in_order {
            *in_order = end.max(*in_order);
            return;
        }
        beyond.insert(start, end);
        recent.insert(0, start);
        recent.truncate(REPORTED);
    }

    /// The end of what has arrived.
    pub(super) fn highest(&self) -> u64 {
        self.beyond.values().next_back().copied().unwrap_or(self.in_order)
    }

    /// The ranges beyond the first gap that grew last, the last one first.
    pub(super) fn ranges(&self) -> [Option<(u64, u64)>; REPORTED] {
        core::array::from_fn(|index| {
            let start = self.recent.get(index)?;
            Some((*start, *self.beyond.get(start)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ranges_that_grew_last_are_reported_first() {
        let mut arrived = Arrived::default();
        for start in [10, 30, 50, 70] {
            arrived.add(start, start + 10);
        }
        assert_eq!(arrived.ranges(), [Some((70, 80)), Some((50, 60)), Some((30, 40))]);
        arrived.add(40, 45);
        assert_eq!(arrived.ranges(), [Some((30, 45)), Some((70, 80)), Some((50, 60))]);
        arrived.add(60, 70);
        assert_eq!(arrived.ranges(), [Some((50, 80)), Some((30, 45)), None]);
        arrived.add(0, 20);
        assert_eq!((arrived.in_order, arrived.has_gap()), (20, true));
        arrived.add(20, 50);
        assert_eq!((arrived.in_order, arrived.has_gap()), (80, false));
        assert_eq!(arrived.ranges(), [None; 3]);
    }

    proptest! {
        #[test]
        fn it_knows_what_has_arrived(segments in prop::collection::vec((0u64..60, 1u64..9), 1..60)) {
            let mut arrived = Arrived::default();
            let mut bytes = [false; 70];
            for (start, len) in segments {
                let has = arrived.has(start, start + len);
                arrived.add(start, start + len);
                let range = start as usize..(start + len) as usize;
                let had = !bytes[range.clone()].contains(&false);
                bytes[range].fill(true);
                prop_assert_eq!(has, had);
                let gap = bytes.iter().position(|has| !has).expect("the last ones never arrive");
                prop_assert_eq!(arrived.in_order, gap as u64);
                prop_assert_eq!(arrived.has_gap(), bytes[gap..].contains(&true));
                if start > gap as u64 {
                    let (from, to) = arrived.ranges()[0].expect("it has just grown");
                    prop_assert!(from <= start && start + len <= to);
                }
                for (from, to) in arrived.ranges().into_iter().flatten() {
                    let (from, to) = (from as usize, to as usize);
                    prop_assert!(bytes[from..to].iter().all(|has| *has));
                    prop_assert!(!bytes[from - 1] && !bytes[to]);
                }
            }
        }
    }
}
