//! The receiving half of a path: what has arrived, and when feedback is due.

use core::time::Duration;

use mpip_wire::{AckRange, EcnCounts, Feedback, PathId, Ranges};

use mpip_types::Ecn;
use mpip_types::Instant;

/// Acknowledgement ranges kept; those of the lowest numbers are dropped first.
const REMEMBERED: usize = 256;
/// Ack-eliciting packets after which feedback is sent at the end of their batch: enough for little
/// load on the way back, few enough that the smallest window (4 packets) does not stall.
const THRESHOLD: u32 = 4;
/// Longest delay of feedback (`max_ack_delay`).
pub const MAX_DELAY: Duration = Duration::from_millis(5);
/// Longest delay of feedback, as a part of the RTT (divisor).
const DELAY_PART: u32 = 4;
/// Shortest delay of feedback. A reply to a packet often leaves within this time and carries the
/// feedback, which saves a datagram and two wake-ups. Reordering within a batch resolves, too.
const MIN_DELAY: Duration = Duration::from_millis(1);

/// Packet numbers that have arrived on a path, and the feedback that is owed.
#[derive(Debug)]
pub struct Arrivals {
    /// Ranges in ascending order, with at least one missing number between neighbours.
    ranges: Vec<AckRange>,
    /// When the largest number arrived.
    largest_at: Instant,
    /// Ack-eliciting packets without feedback so far.
    owed: u32,
    due: Option<Instant>,
    ecn: EcnCounts,
    /// Lowest number that arrived since the last feedback: new ranges go first when not all fit.
    changed_from: u64,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self::new()
    }
}

impl Arrivals {
    /// A path on which nothing has arrived.
    pub fn new() -> Self {
        Self {
            ranges: Vec::with_capacity(REMEMBERED + 1),
            largest_at: Instant::ZERO,
            owed: 0,
            due: None,
            ecn: EcnCounts::default(),
            changed_from: u64::MAX,
        }
    }

    /// The largest number that arrived.
    pub fn largest(&self) -> Option<u64> {
        self.ranges.last().map(|range| range.last)
    }

    /// How many ranges are kept.
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// Records an authentic packet that is no replay; `rtt` is the smoothed RTT of the path.
    pub fn on_packet(&mut self, now: Instant, number: u64, asks: bool, ecn: Ecn, rtt: Duration) {
        match ecn {
            Ecn::NotEct => {}
            Ecn::Ect0 => self.ecn.ect0 += 1,
            Ecn::Ect1 => self.ecn.ect1 += 1,
            Ecn::Ce => self.ecn.ce += 1,
        }
        let largest = self.largest();
        let gap = largest.is_some_and(|largest| number != largest + 1);
        if largest.is_none_or(|largest| number > largest) {
            self.largest_at = now;
        }
        self.insert(number);
        self.changed_from = self.changed_from.min(number);
        if asks {
            self.owed += 1;
            // It cannot become due earlier than it is already.
            if self.due.is_some_and(|due| due <= now) {
                return;
            }
            let wait = match (self.owed >= THRESHOLD || ecn == Ecn::Ce, gap) {
                (true, _) => Duration::ZERO,
                (false, true) => MIN_DELAY,
                (false, false) => (rtt / DELAY_PART).clamp(MIN_DELAY, MAX_DELAY),
            };
            let due = now + wait;
            self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
        }
    }

    fn insert(&mut self, number: u64) {
        if let Some(last) = self.ranges.last_mut()
            && last.last + 1 == number
        {
            last.last = number;
            return;
        }
        // The first range that ends at or beyond the number's left neighbour.
        let at = self.ranges.partition_point(|range| range.last + 1 < number);
        match self.ranges.get_mut(at) {
            Some(range) if range.first <= number && number <= range.last => return,
            Some(range) if range.last + 1 == number => range.last = number,
            Some(range) if number + 1 == range.first => range.first = number,
            _ => self.ranges.insert(at, AckRange { first: number, last: number }),
        }
        if at + 1 < self.ranges.len() && self.ranges[at].last + 1 == self.ranges[at + 1].first {
            self.ranges[at].last = self.ranges[at + 1].last;
            self.ranges.remove(at + 1);
        }
        if self.ranges.len() > REMEMBERED {
            self.ranges.remove(0);
        }
    }

    /// When feedback is due, if no other datagram carries it before.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether the next datagram should carry feedback.
    pub fn has_news(&self) -> bool {
        self.owed > 0
    }

    /// The feedback to send now, from the largest number down; `None` before the first packet.
    pub fn feedback<'a>(
        &self,
        now: Instant,
        path: PathId,
        room: &'a mut [AckRange; Ranges::MAX],
    ) -> Option<Feedback<'a>> {
        // The top range always goes first. If the others do not all fit, ranges that have changed
        // since the last feedback go before older ones.
        let newest = self.ranges.len().checked_sub(1)?;
        room[0] = self.ranges[newest];
        let first_changed = self.ranges.partition_point(|range| range.last < self.changed_from);
        let end = newest.min(first_changed + Ranges::MAX - 1);
        let mut count = 1;
        for range in self.ranges[..end].iter().rev().take(Ranges::MAX - 1) {
            room[count] = *range;
            count += 1;
        }
        let ranges = Ranges::new(&room[..count]).expect("ranges descend with gaps between them");
        let delay = now.since(self.largest_at).as_micros() as u64;
        let ecn = (self.ecn != EcnCounts::default()).then_some(self.ecn);
        Some(Feedback { path, received_at: self.largest_at.as_micros() as u32, delay, ranges, ecn })
    }

    /// The feedback has left.
    pub fn on_feedback_sent(&mut self) {
        self.owed = 0;
        self.due = None;
        self.changed_from = u64::MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const RTT: Duration = Duration::from_millis(100);

    fn reported(arrivals: &Arrivals) -> Vec<u64> {
        let mut room = [AckRange { first: 0, last: 0 }; Ranges::MAX];
        let feedback = arrivals.feedback(Instant::ZERO, PathId(0), &mut room);
        let mut numbers: Vec<u64> = feedback
            .into_iter()
            .flat_map(|feedback| feedback.ranges.iter().collect::<Vec<_>>())
            .flat_map(|range| range.first..=range.last)
            .collect();
        numbers.sort_unstable();
        numbers
    }

    proptest! {
        #[test]
        fn what_arrived_is_what_is_reported(numbers in proptest::collection::vec(0_u64..40, 1..80)) {
            let mut arrivals = Arrivals::new();
            let mut model = BTreeSet::new();
            for number in numbers {
                arrivals.on_packet(Instant::ZERO, number, true, Ecn::NotEct, RTT);
                model.insert(number);
                prop_assert_eq!(reported(&arrivals), model.iter().copied().collect::<Vec<_>>());
            }
        }

        #[test]
        fn any_order_stays_within_bounds(numbers in proptest::collection::vec(0_u64..100_000, 1..800)) {
            let mut arrivals = Arrivals::new();
            let mut model = BTreeSet::new();
            for number in numbers {
                arrivals.on_packet(Instant::ZERO, number, true, Ecn::NotEct, RTT);
                model.insert(number);
                prop_assert!(arrivals.ranges.len() <= REMEMBERED);
            }
            prop_assert!(reported(&arrivals).iter().all(|number| model.contains(number)));
        }
    }

    /// [F-5]
    #[test]
    fn a_hole_filled_late_is_reported_though_there_are_many_ranges() {
        let mut arrivals = Arrivals::new();
        for number in (0..200).step_by(2) {
            arrivals.on_packet(Instant::ZERO, number, true, Ecn::NotEct, RTT);
        }
        arrivals.on_feedback_sent();
        arrivals.on_packet(Instant::ZERO, 21, true, Ecn::NotEct, RTT);
        let numbers = reported(&arrivals);
        assert!(numbers.contains(&21) && numbers.contains(&198), "{numbers:?}");
    }

    /// [F-6]
    #[test]
    fn marks_are_counted_from_the_first_on_and_never_fewer() {
        let mut arrivals = Arrivals::new();
        let mut last = None;
        let marks = [Ecn::NotEct, Ecn::Ce, Ecn::Ect0, Ecn::NotEct, Ecn::Ect1, Ecn::Ce];
        for (number, ecn) in (0..).zip(marks) {
            arrivals.on_packet(Instant::ZERO, number, true, ecn, RTT);
            let mut room = [AckRange { first: 0, last: 0 }; Ranges::MAX];
            let told = arrivals.feedback(Instant::ZERO, PathId(0), &mut room).expect("news").ecn;
            assert_eq!(told.is_some(), number > 0);
            let counts = told.map(|ecn| (ecn.ect0, ecn.ect1, ecn.ce));
            assert!(counts >= last, "{counts:?} after {last:?}");
            last = counts;
            arrivals.on_feedback_sent();
        }
        assert_eq!(last, Some((1, 1, 2)));
    }

    #[test]
    fn feedback_is_due_at_once_after_the_threshold_and_soon_after_a_gap() {
        let mut arrivals = Arrivals::new();
        let now = Instant::from_millis(7);
        arrivals.on_packet(now, 0, true, Ecn::NotEct, RTT);
        assert_eq!(arrivals.due(), Some(now + MAX_DELAY));
        let mut near = Arrivals::new();
        near.on_packet(now, 0, true, Ecn::NotEct, Duration::from_millis(8));
        assert_eq!(near.due(), Some(now + Duration::from_millis(2)));
        arrivals.on_packet(now, 2, true, Ecn::NotEct, RTT);
        assert_eq!(arrivals.due(), Some(now + MIN_DELAY));
        for number in 3..=4 {
            arrivals.on_packet(now, number, true, Ecn::NotEct, RTT);
        }
        assert_eq!(arrivals.due(), Some(now));
        arrivals.on_feedback_sent();
        assert_eq!(arrivals.due(), None);
        arrivals.on_packet(now, 11, false, Ecn::NotEct, RTT);
        assert!(!arrivals.has_news());
    }
}
