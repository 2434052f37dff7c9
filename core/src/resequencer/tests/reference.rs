//! Compares the resequencer with a simple, slow reference that has one place for each number.

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Missing,
    Skipped,
    Passed,
    Held { arrived: Instant, not_before: Instant },
}

/// One place for each number from `expected` on. Memory is no object but for `max_bytes`.
#[derive(Debug, Default)]
struct Reference {
    expected: u32,
    any: bool,
    places: Vec<Place>,
    passed_since: Option<Instant>,
    /// Numbers declared lost ahead, arrived or not, and since when there are any.
    told: BTreeSet<u32>,
    skipped_since: Instant,
    delivered: Vec<u32>,
    gone: BTreeSet<u32>,
    /// Numbers given up or declared lost.
    missed: BTreeSet<u32>,
    skipped: u64,
    gaps: u64,
    given_up: u64,
}

impl Reference {
    fn held(&self) -> impl Iterator<Item = (usize, Instant, Instant)> {
        self.places.iter().enumerate().filter_map(|(at, place)| match *place {
            Place::Held { arrived, not_before } => Some((at, arrived, not_before)),
            _ => None,
        })
    }

    fn begin(&mut self, sequence: u32) {
        if !core::mem::replace(&mut self.any, true) && self.expected == 0 && sequence >= FRESH {
            self.expected = sequence;
            self.places.clear();
            self.told.clear();
            self.missed.extend(sequence - FRESH..sequence);
        }
    }

    fn put(&mut self, ahead: usize, place: Place) {
        if self.places.len() <= ahead {
            self.places.resize(ahead + 1, Place::Missing);
        }
        self.places[ahead] = place;
    }

    /// The first place is dealt with; returns whether it was missing.
    fn pop(&mut self) -> bool {
        let place = if self.places.is_empty() { Place::Missing } else { self.places.remove(0) };
        let number = self.expected;
        self.expected = number.wrapping_add(1);
        match place {
            Place::Missing => {
                self.missed.insert(number);
                return true;
            }
            Place::Skipped => {
                self.missed.insert(number);
                self.skipped += 1;
            }
            Place::Passed => assert!(self.gone.insert(number)),
            Place::Held { .. } => self.deliver(number),
        }
        false
    }

    fn deliver(&mut self, number: u32) {
        assert!(self.gone.insert(number));
        self.delivered.push(number);
    }

    fn advance(&mut self, to: u32) {
        let mut gap = false;
        while self.expected != to {
            let missing = self.pop();
            self.gaps += u64::from(missing && !gap);
            self.given_up += u64::from(missing);
            gap = missing;
        }
    }

    fn release(&mut self, now: Instant) {
        while let Some(&place) = self.places.first() {
            match place {
                Place::Missing => break,
                Place::Held { not_before, .. } if not_before > now => break,
                _ => drop(self.pop()),
            }
        }
        if self.places.is_empty() {
            self.passed_since = None;
        }
    }

    fn arrive(&mut self, now: Instant, sequence: u32, limits: HoldLimits) -> Received {
        self.begin(sequence);
        let early = limits.not_before > now && !limits.max_wait.is_zero();
        let ahead = sequence.wrapping_sub(self.expected);
        if ahead > i32::MAX as u32 {
            return self.late(sequence);
        }
        let place = self.places.get(ahead as usize);
        if place.is_some_and(|place| !matches!(place, Place::Missing | Place::Skipped)) {
            return Received::Duplicate;
        }
        if let Some(place) = self.places.get_mut(ahead as usize) {
            *place = Place::Missing;
        }
        let mut waits = false;
        loop {
            let ahead = sequence.wrapping_sub(self.expected);
            let fits = (self.held().count() + 1) * 2_048 <= limits.max_bytes;
            let span = ahead < SPAN && !limits.max_wait.is_zero();
            if fits && span && (ahead > 0 || early) {
                waits = true;
                break;
            }
            if ahead == 0 || waits {
                break;
            }
            let first = self
                .places
                .iter()
                .position(|place| !matches!(place, Place::Missing | Place::Skipped));
            let step = match first {
                _ if limits.max_wait.is_zero() => ahead,
                Some(first) => ahead.min(first.max(1) as u32),
                None => ahead,
            };
            self.advance(self.expected.wrapping_add(step));
            if step < ahead {
                self.release(now);
            }
            if sequence == self.expected {
                break;
            }
        }
        if waits {
            let not_before = limits.not_before.min(now + limits.max_wait);
            let ahead = sequence.wrapping_sub(self.expected) as usize;
            self.put(ahead, Place::Held { arrived: now, not_before });
            return Received::Held;
        }
        let place = Place::Held { arrived: now, not_before: Instant::ZERO };
        self.put(0, place);
        self.pop();
        self.release(now);
        Received::Delivered
    }

    fn late(&mut self, sequence: u32) -> Received {
        // All numbers of the test stay within the window.
        if !self.missed.contains(&sequence) || !self.gone.insert(sequence) {
            return Received::Duplicate;
        }
        self.delivered.push(sequence);
        Received::Late
    }

    fn pass_by(&mut self, now: Instant, sequence: u32) -> Received {
        self.begin(sequence);
        let ahead = sequence.wrapping_sub(self.expected);
        if ahead > i32::MAX as u32 {
            return self.late(sequence);
        }
        let place = self.places.get(ahead as usize);
        if place.is_some_and(|place| !matches!(place, Place::Missing | Place::Skipped)) {
            return Received::Duplicate;
        }
        self.delivered.push(sequence);
        if ahead >= SPAN {
            self.advance(sequence.wrapping_sub(SPAN - 1));
        }
        self.put(sequence.wrapping_sub(self.expected) as usize, Place::Passed);
        self.passed_since.get_or_insert(now);
        self.release(now);
        Received::Delivered
    }

    fn forgets_at(&self) -> Option<Instant> {
        let ahead = |number: &u32| number.wrapping_sub(self.expected) < SPAN;
        self.told.iter().any(ahead).then(|| self.skipped_since + Duration::from_secs(2))
    }

    fn skip(&mut self, now: Instant, first: u32, count: u32) {
        if self.forgets_at().is_none() {
            self.skipped_since = now;
        }
        for number in (0..count).map(|step| first.wrapping_add(step)) {
            let ahead = number.wrapping_sub(self.expected);
            if ahead >= SPAN {
                continue;
            }
            let place = self.places.get(ahead as usize).copied().unwrap_or(Place::Missing);
            self.told.insert(number);
            let place = if place == Place::Missing { Place::Skipped } else { place };
            self.put(ahead as usize, place);
        }
        self.release(now);
    }

    fn deadline(&self, max_wait: Duration) -> Option<Instant> {
        if let Some(Place::Held { not_before, .. }) = self.places.first() {
            return Some(*not_before);
        }
        let oldest = self.held().map(|(_, arrived, _)| arrived).min().or(self.passed_since);
        oldest.map(|since| since + max_wait).or_else(|| self.forgets_at())
    }

    fn expire(&mut self, now: Instant, max_wait: Duration) {
        if self.forgets_at().is_some_and(|at| now >= at) {
            self.told.clear();
            let skipped = self.places.iter_mut().filter(|place| **place == Place::Skipped);
            skipped.for_each(|place| *place = Place::Missing);
            while self.places.pop_if(|place| *place == Place::Missing).is_some() {}
        }
        self.release(now);
        while self.deadline(max_wait).is_some_and(|deadline| now >= deadline) {
            let oldest = self.held().min_by_key(|(_, arrived, _)| *arrived);
            let ahead = oldest.map_or(self.places.len(), |(at, ..)| at);
            self.advance(self.expected.wrapping_add(ahead as u32));
            if oldest.is_none() {
                self.passed_since = None;
            }
            self.release(now);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { offset: i64, early: u64 },
    Pass { offset: i64 },
    Skip { offset: i64, count: u32 },
    Wait(u64),
    Allow { max_wait: u64, packets: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let offset = || prop_oneof![8 => -3i64..6, 6 => -20i64..40, 1 => -500i64..500];
    let count = prop_oneof![6 => 1u32..6, 2 => 1u32..60, 1 => 1u32..500];
    prop_oneof![
        20 => (offset(), prop_oneof![3 => Just(0), 1 => 0u64..30])
            .prop_map(|(offset, early)| Step::Arrive { offset, early }),
        6 => offset().prop_map(|offset| Step::Pass { offset }),
        5 => (offset(), count).prop_map(|(offset, count)| Step::Skip { offset, count }),
        6 => (0u64..20).prop_map(Step::Wait),
        1 => Just(Step::Wait(1_500)),
        1 => (0u64..60, 0usize..12)
            .prop_map(|(max_wait, packets)| Step::Allow { max_wait, packets }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn runs_of_numbers_do_what_a_place_for_each_number_does(
        start in prop_oneof![Just(0u32), Just(u32::MAX - 40), FRESH..1 << 20],
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let mut bench = Bench::new();
        let mut reference = Reference::default();
        let (mut now, mut front) = (0u64, 0i64);
        for step in steps {
            // So that each packet has its time of arrival.
            now += 1;
            let mut number = |offset: i64| {
                front += offset.clamp(-1, 4);
                start.wrapping_add(front.max(0) as u32).wrapping_add_signed(offset as i32)
            };
            match step {
                Step::Arrive { offset, early } => {
                    let sequence = number(offset);
                    let due = if early > 0 { now + early } else { 0 };
                    let received = bench.receive_at(now, sequence, due);
                    let limits = HoldLimits { not_before: at(due), ..bench.limits };
                    let expected = reference.arrive(at(now), sequence, limits);
                    prop_assert_eq!(received, expected, "{}", sequence);
                }
                Step::Pass { offset } => {
                    let sequence = number(offset);
                    let received = bench.pass_by(now, sequence);
                    prop_assert_eq!(received, reference.pass_by(at(now), sequence));
                }
                Step::Skip { offset, count } => {
                    let first = number(offset);
                    bench.skip(now, first, count);
                    reference.skip(at(now), first, count);
                }
                Step::Wait(millis) => {
                    now += millis;
                    bench.expire(at(now));
                    reference.expire(at(now), bench.limits.max_wait);
                }
                Step::Allow { max_wait, packets } => {
                    let max_wait = Duration::from_millis(max_wait);
                    bench.limits = HoldLimits { max_wait, max_bytes: packets * 2_048, ..LIMITS };
                    bench.expire(at(now));
                    reference.expire(at(now), max_wait);
                }
            }
            prop_assert_eq!(&bench.delivered, &reference.delivered);
            prop_assert_eq!(bench.resequencer.expected(), reference.expected);
            let waiting = reference.held().count();
            prop_assert_eq!(bench.resequencer.bytes(), waiting * 2_048);
            let deadline = reference.deadline(bench.resequencer.max_wait);
            prop_assert_eq!(bench.deadline(), deadline);
            let stats = bench.resequencer.stats();
            let found = (stats.skipped, stats.gaps_given_up, stats.packets_given_up);
            prop_assert_eq!(found, (reference.skipped, reference.gaps, reference.given_up));
            bench.check_memory();
        }
    }
}
