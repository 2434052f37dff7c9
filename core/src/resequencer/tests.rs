use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::parameters::ReleaseParameters;
use mpip_types::Checksum;

mod bounds;
mod bursts;
mod reference;

const LIMITS: HoldLimits = HoldLimits {
    max_wait: Duration::from_millis(100),
    max_bytes: usize::MAX,
    not_before: Instant::ZERO,
    in_bursts: false,
};

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// A resequencer with its pool; packets carry their own sequence number.
struct Bench {
    resequencer: Resequencer,
    pool: HoldPool,
    share: Share,
    limits: HoldLimits,
    delivered: Vec<u32>,
}

fn bytes(sequence: u32, len: usize) -> Vec<u8> {
    let mut bytes = sequence.to_be_bytes().to_vec();
    bytes.resize(len.max(4), sequence as u8);
    bytes
}

fn read(packet: InnerPacket<'_>) -> u32 {
    let all = [packet.head, packet.tail].concat();
    let sequence = u32::from_be_bytes(*all.first_chunk().expect("at least 4 bytes"));
    assert!(all[4..].iter().all(|byte| *byte == sequence as u8), "altered");
    sequence
}

impl Bench {
    fn new() -> Self {
        Self::with_pool(1 << 20)
    }

    fn with_pool(limit: usize) -> Self {
        Self {
            resequencer: Resequencer::new(),
            // One association never gets more than half of the pool.
            pool: HoldPool::new(2 * limit, ReleaseParameters::default()),
            share: Share::new(limit),
            limits: LIMITS,
            delivered: Vec::new(),
        }
    }

    fn receive(&mut self, millis: u64, sequence: u32) -> Received {
        self.receive_bytes(at(millis), sequence, &bytes(sequence, 100))
    }

    fn receive_bytes(&mut self, now: Instant, sequence: u32, bytes: &[u8]) -> Received {
        let (head, tail) = bytes.split_at(bytes.len() / 3);
        let packet = InnerPacket { head, tail, checksum: Checksum::Complete };
        let delivered = &mut self.delivered;
        let hold = &mut Hold::new(&mut self.pool, &mut self.share);
        self.resequencer.receive(now, sequence, packet, self.limits, hold, |packet| {
            delivered.push(read(packet));
        })
    }

    fn skip(&mut self, millis: u64, first: u32, count: u32) {
        self.skip_at(at(millis), first, count);
    }

    fn skip_at(&mut self, now: Instant, first: u32, count: u32) {
        let delivered = &mut self.delivered;
        let hold = &mut Hold::new(&mut self.pool, &mut self.share);
        self.resequencer.skip(now, first, count, hold, |packet| {
            delivered.push(read(packet));
        });
    }

    fn expire(&mut self, now: Instant) {
        let delivered = &mut self.delivered;
        let hold = &mut Hold::new(&mut self.pool, &mut self.share);
        self.resequencer.expire(now, self.limits.max_wait, hold, |packet| {
            delivered.push(read(packet));
        });
    }

    fn flush(&mut self, now: Instant) {
        let delivered = &mut self.delivered;
        let hold = &mut Hold::new(&mut self.pool, &mut self.share);
        self.resequencer.flush(now, hold, |packet| delivered.push(read(packet)));
    }

    fn check_memory(&self) {
        let disorder = self.resequencer.disorder.as_ref();
        self.pool.audit(disorder.map_or(0, |disorder| disorder.memory()));
    }

    fn deadline(&self) -> Option<Instant> {
        self.resequencer.deadline(&self.pool)
    }
}

#[test]
fn packets_in_sequence_pass_through_uncopied() {
    let mut bench = Bench::new();
    for sequence in 0..1_000 {
        assert_eq!(bench.receive(1, sequence), Received::Delivered);
    }
    assert_eq!(bench.delivered, Vec::from_iter(0..1_000));
    assert_eq!((bench.pool.memory(), bench.deadline()), (0, None));
    assert_eq!(bench.resequencer.stats().delivered, 1_000);
}

#[test]
fn a_gap_holds_what_follows_until_it_is_filled() {
    let mut bench = Bench::new();
    bench.receive(0, 0);
    assert_eq!(bench.receive(1, 2), Received::Held);
    assert_eq!(bench.receive(2, 4), Received::Held);
    assert_eq!(bench.deadline(), Some(at(101)));
    assert_eq!(bench.receive(9, 1), Received::Delivered);
    assert_eq!(bench.delivered, [0, 1, 2]);
    assert_eq!(bench.deadline(), Some(at(102)));
    bench.receive(18, 3);
    assert_eq!(bench.delivered, [0, 1, 2, 3, 4]);
    assert_eq!((bench.deadline(), bench.pool.held()), (None, 0));
    let stats = bench.resequencer.stats();
    assert_eq!((stats.longest_wait, stats.held), (Duration::from_millis(16), 2));
    assert_eq!((stats.waits[13], stats.waits[14]), (1, 1), "8 ms and 16 ms");
    assert_eq!(stats.reordering_extent, 3);
}

#[test]
fn the_parts_of_a_packet_and_its_checksum_state_are_kept() {
    let mut bench = Bench::new();
    let packet = InnerPacket { head: &[1, 2, 3], tail: &[4], checksum: Checksum::Partial };
    let mut seen = Vec::new();
    for (sequence, packet) in [(1, packet), (0, InnerPacket { head: &[9], tail: &[], ..packet })] {
        let hold = &mut Hold::new(&mut bench.pool, &mut bench.share);
        bench.resequencer.receive(at(0), sequence, packet, LIMITS, hold, |packet| {
            seen.push((packet.head.to_vec(), packet.tail.to_vec(), packet.checksum));
        });
    }
    let expected =
        [(vec![9], vec![], Checksum::Partial), (vec![1, 2, 3], vec![4], Checksum::Partial)];
    assert_eq!(seen, expected);
}

#[test]
fn a_gap_is_given_up_at_the_deadline_and_what_comes_late_is_delivered_once() {
    let mut bench = Bench::new();
    bench.receive(0, 0);
    bench.receive(5, 3);
    bench.receive(50, 5);
    bench.expire(Instant::from_micros(104_999));
    assert_eq!(bench.delivered, [0]);
    bench.expire(at(105));
    assert_eq!(bench.delivered, [0, 3]);
    assert_eq!(bench.deadline(), Some(at(150)));
    assert_eq!(bench.receive(106, 2), Received::Late);
    assert_eq!(bench.receive(107, 2), Received::Duplicate);
    assert_eq!(bench.receive(107, 3), Received::Duplicate);
    bench.receive(108, 4);
    assert_eq!(bench.delivered, [0, 3, 2, 4, 5]);
    let stats = bench.resequencer.stats();
    assert_eq!((stats.gaps_given_up, stats.packets_given_up), (1, 2));
    assert_eq!((stats.late, stats.duplicates), (1, 2));
}

#[test]
fn what_the_peer_declares_lost_is_not_waited_for() {
    let mut bench = Bench::new();
    bench.receive(0, 0);
    bench.receive(1, 4);
    bench.receive(1, 6);
    bench.skip(2, 2, 2);
    assert_eq!(bench.delivered, [0]);
    bench.receive(3, 1);
    assert_eq!(bench.delivered, [0, 1, 4]);
    bench.skip(4, 0, 6);
    assert_eq!(bench.delivered, [0, 1, 4, 6]);
    let stats = bench.resequencer.stats();
    assert_eq!((stats.skipped, stats.gaps_given_up), (3, 0));
}

#[test]
fn a_skip_of_what_has_not_come_yet_is_remembered() {
    let mut bench = Bench::new();
    bench.skip(0, 0, 2);
    bench.skip(0, 3, 1);
    assert_eq!(bench.deadline(), Some(at(2_000)), "when it is forgotten");
    assert_eq!(bench.receive(1, 2), Received::Delivered);
    assert_eq!(bench.receive(1, 4), Received::Delivered);
    assert_eq!(bench.resequencer.expected(), 5);
    bench.skip(1, 5, u32::MAX);
    assert_eq!(bench.resequencer.expected(), 5 + SPAN);
}

#[test]
fn a_packet_that_was_declared_lost_and_comes_is_delivered() {
    let mut bench = Bench::new();
    bench.receive(0, 0);
    bench.skip(0, 2, 1);
    assert_eq!(bench.receive(1, 2), Received::Held);
    bench.receive(2, 1);
    bench.skip(2, 3, 1);
    assert_eq!(bench.receive(3, 3), Received::Late);
    assert_eq!(bench.receive(3, 3), Received::Duplicate);
    assert_eq!(bench.delivered, [0, 1, 2, 3]);
    bench.limits.max_wait = Duration::ZERO;
    bench.skip(4, 5, 2);
    assert_eq!(bench.receive(4, 6), Received::Delivered);
    assert_eq!(bench.resequencer.expected(), 7);
}

#[test]
fn a_session_whose_beginning_was_missed_starts_where_it_is() {
    let mut bench = Bench::new();
    assert_eq!(bench.receive(0, FRESH), Received::Delivered);
    assert_eq!(bench.receive(0, FRESH - 1), Received::Late);
    assert_eq!(bench.receive(0, FRESH - 1), Received::Duplicate);
    assert_eq!(bench.receive(0, FRESH + 1), Received::Delivered);
    let mut bench = Bench::new();
    assert_eq!(bench.receive(0, FRESH - 1), Received::Held);
}

#[test]
fn sequence_numbers_wrap() {
    let mut bench = Bench::new();
    let start = u32::MAX - 2;
    bench.receive(0, start);
    for ahead in [2, 1, 4, 3, 6, 5] {
        bench.receive(0, start.wrapping_add(ahead));
    }
    let expected: Vec<_> = (0..7).map(|ahead| start.wrapping_add(ahead)).collect();
    assert_eq!(bench.delivered, expected);
}

#[test]
fn a_jump_beyond_the_span_gives_up_the_oldest_gaps_only() {
    let mut bench = Bench::new();
    bench.receive(0, 0);
    bench.receive(0, 10);
    bench.receive(0, 20);
    assert_eq!(bench.receive(0, 11 + SPAN), Received::Held);
    assert_eq!(bench.delivered, [0, 10, 20]);
    assert_eq!(bench.receive(0, 1_000_000), Received::Delivered);
    assert_eq!(bench.delivered, [0, 10, 20, 11 + SPAN, 1_000_000]);
}

#[test]
fn a_session_without_room_gives_up_its_oldest_gap() {
    let mut bench = Bench::new();
    bench.limits.max_bytes = 3 * 2_048;
    bench.receive(0, 0);
    for sequence in [2, 3, 5] {
        assert_eq!(bench.receive(0, sequence), Received::Held);
    }
    assert_eq!(bench.receive(0, 6), Received::Held);
    assert_eq!(bench.delivered, [0, 2, 3]);
    assert_eq!(bench.resequencer.bytes(), 2 * 2_048);
    bench.limits.max_bytes = 0;
    assert_eq!(bench.receive(0, 8), Received::Delivered);
    assert_eq!(bench.delivered, [0, 2, 3, 5, 6, 8]);
    assert_eq!(bench.pool.held(), 0);
}

#[test]
fn one_session_leaves_room_for_another() {
    let mut pool = HoldPool::new(1 << 20, ReleaseParameters::default());
    let mut share = Share::new(64 * 2_048);
    let mut hold = Hold::new(&mut pool, &mut share);
    let mut greedy = Resequencer::new();
    let mut modest = Resequencer::new();
    let packet = InnerPacket { head: &[0; 40], tail: &[0; 1_400], checksum: Checksum::Complete };
    for sequence in 1..1_000 {
        greedy.receive(at(0), 2 * sequence, packet, LIMITS, &mut hold, |_| {});
    }
    assert_eq!(greedy.bytes(), 32 * 2_048);
    for sequence in 1..9 {
        let received = modest.receive(at(0), sequence, packet, LIMITS, &mut hold, |_| {});
        assert_eq!(received, Received::Held);
    }
    assert!(pool.refused() > 0);
}

#[test]
fn buffers_are_used_again_and_can_be_given_back() {
    let mut bench = Bench::new();
    for round in 0..100 {
        for ahead in [3, 2, 1, 0] {
            bench.receive(round, round as u32 * 4 + ahead);
        }
    }
    let memory = bench.pool.memory();
    assert!((3 * 2_048..4 * 2_048).contains(&memory), "{memory}");
    bench.receive(200, 401);
    bench.pool.trim();
    let (memory, held) = (bench.pool.memory(), bench.pool.held());
    assert!(memory < 2 * 2_048 && (2_048..memory).contains(&held), "{memory}, {held}");
    bench.receive(200, 400);
    assert_eq!(bench.delivered, Vec::from_iter(0..402));
}

#[test]
fn a_large_packet_takes_memory_from_free_buffers() {
    let mut bench = Bench::with_pool(8 * 2_048);
    for ahead in [4, 3, 2, 1, 0] {
        bench.receive(0, ahead);
    }
    assert_eq!(bench.pool.memory() / 2_048, 4);
    let large = bytes(6, 8 * 2_048 + 1);
    assert_eq!(bench.receive_bytes(at(1), 6, &large), Received::Delivered);
    bench.pool = HoldPool::new(10 * 2_048, ReleaseParameters::default());
    bench.share = Share::new(20 * 2_048);
    for ahead in [4, 3, 2, 1] {
        bench.receive(0, 7 + ahead);
    }
    bench.receive(0, 7);
    let large = bytes(13, 4 * 2_048);
    assert_eq!(bench.receive_bytes(at(1), 13, &large), Received::Held);
    assert!(bench.pool.memory() <= 10 * 2_048, "{}", bench.pool.memory());
    bench.receive(2, 12);
    assert_eq!(bench.delivered, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13]);
}

#[test]
fn flushing_and_discarding_empty_the_pool() {
    let mut bench = Bench::new();
    for sequence in [9, 4, 7] {
        bench.receive(0, sequence);
    }
    bench.flush(at(0));
    assert_eq!(bench.delivered, [4, 7, 9]);
    bench.receive(0, 12);
    assert!(bench.resequencer.is_waiting());
    bench.resequencer.discard(&mut Hold::new(&mut bench.pool, &mut bench.share));
    assert_eq!((bench.pool.held(), bench.resequencer.bytes()), (0, 0));
    assert!(!bench.resequencer.is_waiting() && bench.deadline().is_none());
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { offset: i64, len: usize },
    Skip { offset: i64, count: u32 },
    Wait(u64),
    Allow { max_wait: u64, max_bytes: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let offset = prop_oneof![8 => -3i64..4, 4 => -20i64..40, 1 => -6_000i64..6_000];
    prop_oneof![
        20 => (offset.clone(), 4usize..3_000).prop_map(|(offset, len)| Step::Arrive { offset, len }),
        2 => (offset, 0u32..10).prop_map(|(offset, count)| Step::Skip { offset, count }),
        6 => (0u64..20_000).prop_map(Step::Wait),
        1 => (0u64..60_000, 0usize..60_000)
            .prop_map(|(max_wait, max_bytes)| Step::Allow { max_wait, max_bytes }),
    ]
}

/// A model of what every resequencer must do.
#[derive(Default)]
struct Model {
    /// Arrival time of each held packet, by sequence number.
    waiting: BTreeMap<u32, Instant>,
    delivered: BTreeSet<u32>,
    /// Lower bound of the next expected number.
    next: u32,
}

impl Model {
    fn deliver(&mut self, sequence: u32, late: bool) -> Result<(), TestCaseError> {
        prop_assert!(self.delivered.insert(sequence), "{} twice", sequence);
        self.waiting.remove(&sequence);
        if late {
            prop_assert!(sequence < self.next);
        } else {
            prop_assert!(sequence >= self.next, "{} after {}", sequence, self.next);
            let passed = self.waiting.range(..sequence).next();
            prop_assert!(passed.is_none(), "{} overtook {:?}", sequence, passed);
            self.next = sequence + 1;
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_resequencer_keeps_its_promises(
        steps in proptest::collection::vec(step(), 1..300),
        pool_limit in prop_oneof![Just(1usize << 20), 4_096usize..40_000],
    ) {
        let mut bench = Bench::with_pool(pool_limit);
        let mut model = Model::default();
        let mut now = Instant::ZERO;
        let mut front = 0i64;
        let mut skipped = BTreeSet::new();
        let mut arrived = BTreeSet::new();
        for step in steps {
            bench.delivered.clear();
            let mut late = None;
            let mut gave_up = false;
            match step {
                Step::Arrive { offset, len } => {
                    front = (front + offset.clamp(-2, 30)).max(0);
                    let sequence = (front + offset.min(3_000)).clamp(0, 4_000) as u32;
                    let again = !arrived.insert(sequence);
                    let refused = bench.pool.refused();
                    let received = bench.receive_bytes(now, sequence, &bytes(sequence, len));
                    // All numbers stay within the window, so that nothing is too old to tell.
                    prop_assert_eq!(again, received == Received::Duplicate);
                    gave_up = bench.pool.refused() > refused || bench.limits.max_wait.is_zero();
                    match received {
                        Received::Held => {
                            model.waiting.insert(sequence, now);
                        }
                        Received::Late => late = Some(sequence),
                        Received::Delivered | Received::Duplicate => {}
                    }
                }
                Step::Skip { offset, count } => {
                    let first = (front + offset).max(0) as u32;
                    bench.skip_at(now, first, count);
                    skipped.extend(first..first + count);
                }
                Step::Wait(micros) => {
                    now += Duration::from_micros(micros);
                    bench.expire(now);
                    gave_up = true;
                }
                Step::Allow { max_wait, max_bytes } => {
                    let max_wait = Duration::from_micros(max_wait);
                    bench.limits = HoldLimits { max_wait, max_bytes, ..LIMITS };
                    bench.expire(now);
                    gave_up = true;
                }
            }
            let before = model.next;
            for sequence in bench.delivered.clone() {
                model.deliver(sequence, late == Some(sequence))?;
            }
            if !gave_up {
                let missing = (before..model.next)
                    .find(|number| !model.delivered.contains(number) && !skipped.contains(number));
                prop_assert_eq!(missing, None, "was given up for no reason");
            }
            prop_assert!(bench.resequencer.expected() >= model.next);
            model.next = bench.resequencer.expected();
            // What is in sequence never waits, and nothing waits beyond its time.
            prop_assert!(!model.waiting.contains_key(&bench.resequencer.expected()));
            let deadline = model.waiting.values().min().map(|first| *first + bench.limits.max_wait);
            prop_assert!(deadline.is_none() || bench.deadline() == deadline);
            if matches!(step, Step::Wait(_) | Step::Allow { .. }) {
                prop_assert!(deadline.is_none_or(|deadline| deadline > now));
            }
            let held = model.waiting.len();
            prop_assert!(bench.pool.memory() <= 2 * pool_limit);
            prop_assert!(bench.pool.held() >= held * 2_048 && bench.pool.held() <= pool_limit);
            prop_assert_eq!(bench.share.held(), bench.pool.held());
            prop_assert_eq!(bench.share.waiting(), bench.resequencer.bytes());
            bench.check_memory();
        }
        bench.delivered.clear();
        bench.flush(now);
        for sequence in core::mem::take(&mut bench.delivered) {
            model.deliver(sequence, false)?;
        }
        prop_assert_eq!(&model.delivered, &arrived);
        prop_assert_eq!(bench.share.waiting(), 0);
        prop_assert_eq!(bench.resequencer.stats().delivered, model.delivered.len() as u64);
    }
}

impl Bench {
    fn receive_at(&mut self, millis: u64, sequence: u32, not_before: u64) -> Received {
        self.limits.not_before = at(not_before);
        let received = self.receive(millis, sequence);
        self.limits.not_before = Instant::ZERO;
        received
    }

    fn pass_by(&mut self, millis: u64, sequence: u32) -> Received {
        let bytes = bytes(sequence, 60);
        let packet = InnerPacket { head: &bytes, tail: &[], checksum: Checksum::Complete };
        let delivered = &mut self.delivered;
        let (now, limits) = (at(millis), self.limits);
        let hold = &mut Hold::new(&mut self.pool, &mut self.share);
        self.resequencer.pass_by(now, sequence, packet, limits, hold, |packet| {
            delivered.push(read(packet));
        })
    }
}

#[test]
fn a_packet_waits_for_its_time() {
    let mut bench = Bench::new();
    assert_eq!(bench.receive_at(0, 0, 30), Received::Held);
    assert_eq!(bench.receive_at(1, 0, 30), Received::Duplicate);
    assert_eq!(bench.receive_at(10, 1, 20), Received::Held);
    assert_eq!(bench.deadline(), Some(at(30)));
    bench.expire(at(29));
    assert!(bench.delivered.is_empty());
    bench.expire(at(30));
    assert_eq!(bench.delivered, [0, 1]);
    // A packet that was missing until its playout time delays nothing any more.
    bench.receive_at(40, 3, 50);
    assert_eq!(bench.receive_at(60, 2, 45), Received::Delivered);
    assert_eq!(bench.delivered, [0, 1, 2, 3]);
    assert_eq!((bench.deadline(), bench.pool.held()), (None, 0));
}

#[test]
fn when_all_is_delivered_no_packet_waits_for_its_time() {
    let mut bench = Bench::new();
    bench.receive_at(0, 0, 50);
    bench.receive_at(0, 2, 50);
    bench.flush(at(1));
    assert_eq!(bench.delivered, [0, 2]);
}

#[test]
fn no_packet_waits_for_its_time_longer_than_for_others() {
    let mut bench = Bench::new();
    bench.receive_at(0, 0, 10_000);
    assert_eq!(bench.deadline(), Some(at(100)));
    bench.expire(at(100));
    assert_eq!(bench.delivered, [0]);
    bench.limits.max_wait = Duration::ZERO;
    assert_eq!(bench.receive_at(101, 1, 500), Received::Delivered);
}

#[test]
fn without_memory_a_packet_does_not_wait_for_its_time() {
    let mut bench = Bench::with_pool(8_192);
    for sequence in 0..10 {
        bench.receive_at(0, sequence, 50);
    }
    assert!(bench.delivered.len() >= 6, "{:?}", bench.delivered);
    assert!(bench.pool.held() <= 8_192);
    bench.expire(at(50));
    assert_eq!(bench.delivered, (0..10).collect::<Vec<_>>());
}

#[test]
fn what_needs_no_order_passes_by_and_holds_nothing_back() {
    let mut bench = Bench::new();
    bench.receive(0, 0);
    assert_eq!(bench.pass_by(1, 2), Received::Delivered);
    assert_eq!(bench.pass_by(1, 2), Received::Duplicate);
    assert_eq!(bench.receive(2, 3), Received::Held);
    assert_eq!(bench.receive(3, 2), Received::Duplicate);
    assert_eq!(bench.receive(4, 1), Received::Delivered);
    assert_eq!(bench.delivered, [0, 2, 1, 3]);
    assert_eq!(bench.deadline(), None);
}

#[test]
fn numbers_that_are_missing_before_what_passed_by_are_given_up() {
    let mut bench = Bench::new();
    bench.pass_by(0, 1);
    bench.pass_by(50, 5);
    assert_eq!(bench.deadline(), Some(at(100)));
    bench.expire(at(100));
    assert_eq!((bench.resequencer.expected(), bench.deadline()), (6, None));
    assert_eq!(bench.receive(101, 0), Received::Late);
    assert_eq!(bench.receive(102, 5), Received::Duplicate);
    // However far ahead, memory is bounded.
    bench.pass_by(103, 6 + 3 * SPAN);
    assert_eq!(bench.resequencer.expected(), 7 + 2 * SPAN);
}

#[test]
fn a_session_that_had_no_order_gets_one() {
    let mut window = DuplicateWindow::new();
    window.accept(0);
    window.accept(2);
    let mut bench = Bench::new();
    bench.resequencer = Resequencer::continuing(window);
    assert_eq!(bench.receive(0, 4), Received::Held, "before the first one that needs order");
    assert_eq!(bench.receive(0, 2), Received::Duplicate);
    assert_eq!(bench.receive(0, 1), Received::Late);
    assert_eq!(bench.receive(0, 3), Received::Delivered);
    assert_eq!(bench.delivered, [1, 3, 4]);
}

proptest! {
    /// Arrivals in any order, some of which need none and some of which are early.
    #[test]
    fn ordered_packets_keep_their_order_and_their_time(
        arrivals in Just((0..60_u32).collect::<Vec<_>>()).prop_shuffle(),
        unordered in proptest::collection::vec(proptest::bool::weighted(0.3), 60),
        early in proptest::collection::vec(0..40_u64, 60),
    ) {
        let mut bench = Bench::new();
        bench.limits.max_wait = Duration::from_millis(1_000);
        let mut checked = 0;
        for millis in 0..200_u64 {
            if let Some(&sequence) = arrivals.get(millis as usize) {
                match unordered[sequence as usize] {
                    true => bench.pass_by(millis, sequence),
                    false => bench.receive_at(millis, sequence, 20 + early[sequence as usize]),
                };
            }
            bench.expire(at(millis));
            for sequence in &bench.delivered[checked..] {
                let due = 20 + early[*sequence as usize];
                prop_assert!(unordered[*sequence as usize] || millis >= due);
            }
            checked = bench.delivered.len();
        }
        let ordered = bench.delivered.iter().filter(|sequence| !unordered[**sequence as usize]);
        prop_assert!(ordered.is_sorted(), "{:?}", bench.delivered);
        let all: BTreeSet<_> = bench.delivered.iter().copied().collect();
        prop_assert_eq!((all.len(), bench.delivered.len()), (60, 60));
        prop_assert_eq!((bench.deadline(), bench.pool.held()), (None, 0));
    }
}
