use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const HUGE: usize = 1 << 30;

/// A burst of equal segments.
#[derive(Clone, Debug)]
struct Train {
    id: u32,
    segments: usize,
    len: usize,
    ecn: bool,
}

impl Train {
    fn single(len: usize) -> Self {
        Self { id: 0, segments: 1, len, ecn: false }
    }
}

impl Burst for Train {
    fn count(&self) -> usize {
        self.segments
    }

    fn segment_len(&self, index: usize) -> usize {
        assert!(index < self.segments);
        self.len
    }

    fn remaining_len(&self, index: usize) -> usize {
        (self.segments - index) * self.len
    }

    fn ecn_capable(&self) -> bool {
        self.ecn
    }
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Takes the next segment and says whose it was.
fn take(queue: &mut SendQueue<Train>, now: Instant) -> Option<(u32, usize, bool)> {
    let candidate = queue.next(now)?;
    let taken = (candidate.flow, candidate.len, candidate.mark);
    assert!(queue.take());
    Some(taken)
}

#[test]
fn a_session_set_aside_lets_others_go_first_and_loses_nothing() {
    let mut queue = SendQueue::new(1 << 20, 3);
    queue.push(at(0), 0, Priority::Throughput, Train { segments: 3, ..Train::single(100) });
    queue.push(at(0), 1, Priority::Throughput, Train { segments: 2, ..Train::single(100) });
    queue.push(at(0), 2, Priority::Response, Train::single(100));
    let next = |queue: &mut SendQueue<Train>| queue.next(at(0)).map(|next| next.flow);
    assert_eq!(next(&mut queue), Some(2));
    assert!(queue.set_aside());
    assert_eq!(next(&mut queue), Some(0));
    assert!(queue.set_aside() && !queue.set_aside(), "it was set aside already");
    assert_eq!(next(&mut queue), Some(1));
    assert!(queue.take());
    // More of it waits with the rest.
    queue.push(at(0), 0, Priority::Throughput, Train::single(100));
    assert_eq!(next(&mut queue), Some(1));
    assert!(queue.take());
    assert_eq!((next(&mut queue), queue.is_empty()), (None, false));
    queue.bring_back();
    let mut left = Vec::new();
    while let Some(flow) = next(&mut queue) {
        left.push(flow);
        queue.take();
    }
    assert_eq!(left, [2, 0, 0, 0, 0]);
    assert!(queue.is_empty() && queue.bytes() == 0);
}

#[test]
fn what_is_set_aside_is_dropped_at_the_limit_and_drained_as_the_rest() {
    let mut queue = SendQueue::new(1_000, 2);
    queue.push(at(0), 0, Priority::Throughput, Train { segments: 9, ..Train::single(100) });
    queue.next(at(0));
    queue.set_aside();
    queue.push(at(0), 1, Priority::Throughput, Train { segments: 5, ..Train::single(100) });
    assert_eq!((queue.flow_bytes(0), queue.flow_bytes(1)), (400, 500));
    queue.next(at(0));
    queue.set_aside();
    queue.discard(1);
    let mut left = Vec::new();
    queue.drain(|flow, _, segment| left.push((flow, segment)));
    assert_eq!(left, [(0, 5), (0, 6), (0, 7), (0, 8)]);
    assert!(queue.is_empty());
}

#[test]
fn a_session_is_behind_since_its_queue_was_empty_last() {
    let mut queue = SendQueue::new(HUGE, 4);
    let late = 5 + 2 * 5 + RAMP.as_millis() as u64 + 1;
    assert_eq!(queue.behind_since(at(late), 2), None);
    for millis in [5, 6, late] {
        queue.push(at(millis), 2, Priority::Throughput, Train::single(1_400));
    }
    queue.push(at(5), 3, Priority::Response, Train::single(1_400));
    assert_eq!(
        (queue.behind_since(at(late - 1), 2), queue.behind_since(at(late), 3)),
        (None, None)
    );
    for left in (0..3).rev() {
        assert_eq!(queue.behind_since(at(late), 2), Some(at(5)), "{left} more wait");
        while take(&mut queue, at(late)).is_some_and(|(flow, ..)| flow != 2) {}
    }
    assert_eq!(queue.behind_since(at(late), 2), None);
    queue.push(at(late), 2, Priority::Throughput, Train::single(1_400));
    assert_eq!(queue.behind_since(at(late + 1), 2), None);
}

#[test]
fn a_session_has_waited_as_long_as_its_oldest_item() {
    let mut queue = SendQueue::new(1 << 20, 3);
    assert_eq!(queue.waited(at(5), 1), Duration::ZERO);
    queue.push(at(5), 1, Priority::Throughput, Train::single(100));
    queue.push(at(20), 1, Priority::Throughput, Train::single(100));
    assert_eq!(queue.waited(at(30), 1), Duration::from_millis(25));
    assert!(take(&mut queue, at(30)).is_some());
    assert_eq!(queue.waited(at(30), 1), Duration::from_millis(10));
    assert!(take(&mut queue, at(30)).is_some());
    assert_eq!(queue.waited(at(30), 1), Duration::ZERO);
}

#[test]
fn segments_of_a_super_packet_leave_in_order() {
    let mut queue = SendQueue::new(HUGE, 4);
    queue.push(at(0), 2, Priority::Throughput, Train { segments: 3, ..Train::single(1_400) });
    queue.push(at(1), 2, Priority::Throughput, Train { id: 1, ..Train::single(60) });
    let mut seen = Vec::new();
    while let Some(candidate) = queue.next(at(2)) {
        seen.push((candidate.item.id, candidate.segment, candidate.len, candidate.sojourn));
        assert!(queue.take());
    }
    let ms = Duration::from_millis;
    let expected =
        [(0, 0, 1_400, ms(2)), (0, 1, 1_400, ms(2)), (0, 2, 1_400, ms(2)), (1, 0, 60, ms(1))];
    assert_eq!(seen, expected);
    assert!(queue.is_empty() && queue.bytes() == 0 && !queue.take());
}

#[test]
fn looking_without_taking_changes_nothing() {
    let mut queue = SendQueue::new(HUGE, 4);
    for id in 0..400 {
        queue.push(at(0), id % 3, Priority::Throughput, Train { id, ..Train::single(1_400) });
    }
    assert!(take(&mut queue, at(10)).is_some());
    let look = |queue: &mut SendQueue<Train>, millis| {
        let candidate = queue.next(at(millis)).expect("something waits");
        (candidate.item.id, candidate.len, candidate.mark)
    };
    let first = look(&mut queue, 200);
    let counters = queue.counters();
    for millis in 201..3_000 {
        assert_eq!(look(&mut queue, millis), first, "at {millis} ms");
    }
    assert_eq!(queue.counters(), counters);
}

#[test]
fn taking_needs_a_fresh_look_after_a_push() {
    let mut queue = SendQueue::new(HUGE, 4);
    queue.push(at(0), 0, Priority::Throughput, Train::single(100));
    assert!(queue.next(at(0)).is_some());
    queue.push(at(0), 1, Priority::Throughput, Train::single(100));
    assert!(!queue.take());
    assert_eq!(take(&mut queue, at(0)), Some((0, 100, false)));
}

#[test]
fn a_new_session_goes_before_bulk_that_waits() {
    let mut queue = SendQueue::new(HUGE, 4);
    queue.push(at(0), 0, Priority::Throughput, Train { segments: 40, ..Train::single(1_500) });
    for _ in 0..4 {
        assert_eq!(take(&mut queue, at(0)).map(|taken| taken.0), Some(0));
    }
    queue.push(at(0), 1, Priority::Throughput, Train::single(80));
    // At most what is left of the turn that the bulk is in.
    let order: Vec<_> = (0..3).filter_map(|_| take(&mut queue, at(0))).map(|t| t.0).collect();
    assert!(order.contains(&1), "{order:?}");
}

#[test]
fn a_sparse_session_cannot_stay_new() {
    let mut queue = SendQueue::new(HUGE, 4);
    queue.push(at(0), 0, Priority::Throughput, Train { segments: 100, ..Train::single(1_500) });
    assert!(take(&mut queue, at(0)).is_some());
    assert!(take(&mut queue, at(0)).is_some());
    let mut served = [0; 2];
    for _ in 0..40 {
        queue.push(at(0), 1, Priority::Throughput, Train::single(1_500));
        served[take(&mut queue, at(0)).expect("both wait").0 as usize] += 1;
    }
    assert!(served[0] >= 15, "{served:?}");
}

#[test]
fn response_goes_ahead_of_throughput() {
    let mut queue = SendQueue::new(HUGE, 4);
    queue.push(at(0), 0, Priority::Throughput, Train { segments: 40, ..Train::single(1_500) });
    assert_eq!(take(&mut queue, at(0)).map(|taken| taken.0), Some(0));
    queue.push(at(0), 1, Priority::Response, Train { segments: 3, ..Train::single(500) });
    queue.push(at(0), 0, Priority::Response, Train::single(60));
    let next = queue.next(at(0)).expect("something waits");
    assert_eq!((next.flow, next.priority), (1, Priority::Response));
    let order: Vec<_> = (0..5).filter_map(|_| take(&mut queue, at(0))).collect();
    let lens: Vec<_> = order.iter().map(|(_, len, _)| *len).collect();
    assert_eq!(lens, [500, 500, 500, 60, 1_500]);
}

#[test]
fn response_leaves_the_others_their_share() {
    let mut queue = SendQueue::new(HUGE, 4);
    queue.set_codel(CodelParameters {
        target: Duration::MAX,
        interval: Duration::MAX,
        ..CodelParameters::default()
    });
    queue.push(at(0), 0, Priority::Throughput, Train { segments: 500, ..Train::single(1_500) });
    queue.push(at(0), 1, Priority::Response, Train { segments: 4_000, ..Train::single(1_000) });
    let mut bytes = [0usize; 2];
    let mut since = [0usize; 2];
    let mut longest_wait = 0;
    for _ in 0..2_000 {
        let (flow, len, _) = take(&mut queue, at(0)).expect("both wait");
        bytes[flow as usize] += len;
        since[0] += len;
        if flow == 0 {
            longest_wait = longest_wait.max(since[0]);
            since[0] = 0;
        }
    }
    assert!(longest_wait <= RESPONSE_BURST + 4_000, "{longest_wait}");
    let share = bytes[0] as f64 / (bytes[0] + bytes[1]) as f64;
    assert!((0.11..0.14).contains(&share), "throughput got {share}");
}

#[test]
fn sessions_get_equal_bytes_whatever_their_packets() {
    for quantum in [0, 20_000] {
        let mut queue = SendQueue::new(HUGE, 4);
        queue.set_codel(CodelParameters {
            target: Duration::MAX,
            interval: Duration::MAX,
            ..CodelParameters::default()
        });
        queue.set_quantum(quantum);
        for (flow, len) in [(0, 1_500), (1, 300), (2, 9_000)] {
            for _ in 0..4_000_000 / len {
                queue.push(at(0), flow, Priority::Throughput, Train::single(len));
            }
        }
        let mut bytes = [0usize; 3];
        while bytes.iter().sum::<usize>() < 6_000_000 {
            let (flow, len, _) = take(&mut queue, at(0)).expect("all wait");
            bytes[flow as usize] += len;
        }
        let (min, max) = (bytes.iter().min(), bytes.iter().max());
        let spread = max.zip(min).map(|(max, min)| max - min).expect("three");
        assert!(spread <= 9_000 + quantum.max(LEAST_QUANTUM), "{bytes:?}");
    }
}

#[test]
fn a_session_sends_its_whole_turn_before_the_next_one() {
    let mut queue = SendQueue::new(HUGE, 4);
    queue.set_quantum(15_000);
    for flow in [0, 1] {
        for _ in 0..100 {
            queue.push(at(0), flow, Priority::Throughput, Train::single(1_000));
        }
    }
    let turn: Vec<u32> = (0..60).map(|_| take(&mut queue, at(0)).expect("all wait").0).collect();
    assert_eq!(turn.chunk_by(|a, b| a == b).map(<[u32]>::len).collect::<Vec<_>>(), [15; 4]);
}

#[test]
fn at_the_bound_the_greedy_session_pays() {
    let mut queue = SendQueue::new(100_000, 4);
    queue.push(at(0), 1, Priority::Throughput, Train::single(1_000));
    for _ in 0..10 {
        queue.push(at(0), 0, Priority::Throughput, Train { segments: 40, ..Train::single(1_000) });
        assert!(queue.bytes() <= 100_000);
    }
    queue.push(at(0), 2, Priority::Throughput, Train::single(1_000));
    assert_eq!((queue.flow_bytes(1), queue.flow_bytes(2)), (1_000, 1_000));
    assert!(queue.flow_bytes(0) > 40_000);
    let counters = queue.counters();
    assert!(counters.dropped_overflow > 300);
    assert_eq!(counters.pushed, 402);
}

#[test]
fn room_is_made_by_the_session_that_has_most() {
    let mut queue = SendQueue::new(1 << 20, 2);
    queue.push(at(0), 0, Priority::Throughput, Train::single(100));
    (0..100).for_each(|_| queue.push(at(0), 1, Priority::Throughput, Train::single(100)));
    assert!(queue.next(at(0)).is_some());
    assert!(queue.make_room());
    assert_eq!((queue.len(), queue.flow_bytes(0), queue.flow_bytes(1)), (51, 100, 5_000));
    assert!(!queue.take(), "what was looked at may be gone");
    while !queue.is_empty() {
        assert!(queue.make_room());
    }
    assert!(!queue.make_room());
}

#[test]
fn tiny_packets_are_bounded_by_their_number() {
    let mut queue = SendQueue::new(256 * 100, 4);
    for id in 0..1_000 {
        queue.push(at(0), 0, Priority::Throughput, Train { id, ..Train::single(28) });
        assert!(queue.items <= 100 && queue.nodes.len() <= 101);
    }
    assert_eq!(queue.counters().pushed - queue.counters().dropped_overflow, queue.items as u64);
    let oldest = queue.next(at(0)).expect("some are left").item.id;
    assert!(oldest > 800, "dropped from the tail: {oldest}");
}

#[test]
fn a_session_that_is_forgotten_leaves_nothing_behind() {
    let mut queue = SendQueue::new(HUGE, 4);
    queue.push(at(0), 0, Priority::Throughput, Train { segments: 3, ..Train::single(100) });
    queue.push(at(0), 0, Priority::Response, Train::single(10));
    queue.push(at(0), 1, Priority::Throughput, Train::single(100));
    assert!(take(&mut queue, at(0)).is_some());
    queue.discard(0);
    queue.discard(3);
    assert_eq!((queue.flow_bytes(0), queue.counters().discarded), (0, 3));
    assert_eq!(take(&mut queue, at(0)), Some((1, 100, false)));
    queue.push(at(0), 0, Priority::Throughput, Train::single(70));
    assert_eq!(take(&mut queue, at(0)), Some((0, 70, false)));
    assert_eq!(take(&mut queue, at(0)), None);
}

#[test]
fn drain_returns_everything_whatever_its_sojourn_time() {
    // CoDel has been dropping from both sessions.
    let mut queue = SendQueue::new(HUGE, 4);
    for now in 0..500 {
        queue.push(at(now), 0, Priority::Throughput, Train { segments: 2, ..Train::single(700) });
        queue.push(at(now), 1, Priority::Throughput, Train { segments: 2, ..Train::single(700) });
        queue.push(at(now), 1, Priority::Response, Train::single(60));
        assert!(take(&mut queue, at(now)).is_some() && take(&mut queue, at(now)).is_some());
    }
    let (before, items) = (queue.counters(), queue.items);
    assert!(before.dropped_codel > 2, "{before:?}");
    let (bytes, mut drained) = (queue.bytes(), Vec::new());
    queue.drain(|flow, item, segment| drained.push((flow, item.segment_len(segment))));
    assert_eq!(drained.iter().map(|(_, len)| len).sum::<usize>(), bytes);
    assert!(drained.len() > items, "of two segments");
    // Both sessions within the first turns, so that a bound on what leaves is shared.
    let first = drained.iter().take(10).filter(|(flow, _)| *flow == 0).count();
    assert!((3..=7).contains(&first), "{:?}", &drained[..10]);
    assert_eq!(queue.counters().dropped_codel, before.dropped_codel);
    // As new.
    assert_eq!(take(&mut queue, at(500)), None);
    queue.push(at(500), 0, Priority::Throughput, Train::single(70));
    assert_eq!(take(&mut queue, at(500)), Some((0, 70, false)));
}

#[test]
fn a_slot_that_the_queue_was_not_made_for_is_refused() {
    let mut queue = SendQueue::new(HUGE, 4);
    queue.push(at(0), 4, Priority::Throughput, Train { segments: 2, ..Train::single(100) });
    assert!(queue.is_empty());
    assert_eq!(queue.counters().dropped_overflow, 2);
}

/// Feeds one session at `per_push` segments a millisecond and serves one a millisecond.
fn overload(ecn: bool, per_push: usize, millis: u64) -> (SendQueue<Train>, Vec<Duration>) {
    let mut queue = SendQueue::new(HUGE, 1);
    let mut sojourns = Vec::new();
    for now in 0..millis {
        // A sender that halves its rate for good when it is signalled would need a model of its
        // own; this one stops while more than 40 ms are queued, as a window does.
        if queue.bytes() < 40 * 1_500 {
            let train = Train { segments: per_push, ecn, ..Train::single(1_500) };
            queue.push(at(now), 0, Priority::Throughput, train);
        }
        if let Some(candidate) = queue.next(at(now)) {
            sojourns.push(candidate.sojourn);
            queue.take();
        }
    }
    (queue, sojourns)
}

#[test]
fn a_standing_queue_is_signalled_by_drops_or_by_marks() {
    let (queue, _) = overload(false, 2, 2_000);
    assert!(queue.counters().dropped_codel > 20, "{:?}", queue.counters());
    assert_eq!(queue.counters().marked, 0);
    let (queue, _) = overload(true, 2, 2_000);
    assert!(queue.counters().marked > 20, "{:?}", queue.counters());
    assert_eq!(queue.counters().dropped_codel, 0);
}

#[test]
fn a_queue_that_empties_is_left_alone() {
    let (queue, sojourns) = overload(false, 1, 2_000);
    assert!(sojourns.iter().all(Duration::is_zero));
    assert_eq!(queue.counters().dropped_codel, 0);
}

#[test]
fn the_target_can_be_changed_while_packets_wait() {
    let mut queue = SendQueue::new(HUGE, 1);
    let wide = Duration::from_millis(50);
    queue.set_codel(CodelParameters {
        target: wide,
        interval: Duration::from_millis(100),
        ..CodelParameters::default()
    });
    let serve = |queue: &mut SendQueue<Train>, from: u64, to: u64| {
        for now in from..to {
            queue.push(at(now), 0, Priority::Throughput, Train::single(1_500));
            if now >= 20 {
                assert!(take(queue, at(now)).is_some());
            }
        }
        queue.counters().dropped_codel
    };
    assert_eq!(serve(&mut queue, 0, 1_000), 0);
    queue.set_codel(CodelParameters::default());
    assert!(serve(&mut queue, 1_000, 2_000) > 0);
}

#[derive(Clone, Debug)]
enum Step {
    Push { flow: u32, response: bool, segments: usize, len: usize, ecn: bool },
    Look,
    SetAside,
    Take,
    Wait(u64),
    Discard(u32),
    Drain,
}

fn step() -> impl Strategy<Value = Step> {
    let push = (0u32..5, any::<bool>(), 1usize..50, 40usize..3_000, any::<bool>());
    prop_oneof![
        4 => push.prop_map(|(flow, response, segments, len, ecn)| Step::Push {
            flow, response, segments, len, ecn
        }),
        2 => Just(Step::Look),
        2 => Just(Step::SetAside),
        20 => Just(Step::Take),
        6 => (0u64..30_000).prop_map(Step::Wait),
        1 => (0u32..5).prop_map(Step::Discard),
        1 => Just(Step::Drain),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_goes_in_comes_out_or_is_counted(steps in proptest::collection::vec(step(), 1..300)) {
        const LIMIT: usize = 200_000;
        let mut queue = SendQueue::new(LIMIT, 4);
        let mut now = Instant::ZERO;
        // Bytes by item of what was pushed, less what came out.
        let mut inside: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        let mut last: BTreeMap<(u32, bool), (u32, usize)> = BTreeMap::new();
        let mut taken = 0u64;
        let (mut pushed, mut items) = (0u64, 0);
        let mut responses = BTreeSet::new();
        for step in steps {
            match step {
                Step::Push { flow, response, segments, len, ecn } => {
                    let priority =
                        if response { Priority::Response } else { Priority::Throughput };
                    items += 1;
                    responses.extend(response.then_some(items));
                    inside.insert(items, (segments, len));
                    pushed += segments as u64;
                    queue.push(now, flow, priority, Train { id: items, segments, len, ecn });
                }
                Step::Look => {
                    let _ = queue.next(now);
                }
                Step::SetAside => {
                    let any = queue.next(now).is_some();
                    prop_assert_eq!(queue.set_aside(), any);
                }
                Step::Take => {
                    queue.bring_back();
                    if let Some(next) = queue.next(now) {
                        let entry = inside.get_mut(&next.item.id).expect("was pushed");
                        prop_assert_eq!(next.len, entry.1);
                        prop_assert!(!next.mark || next.item.ecn);
                        let key = (next.flow, next.priority == Priority::Response);
                        let order = (next.item.id, next.segment);
                        prop_assert!(last.get(&key).is_none_or(|before| *before < order));
                        last.insert(key, order);
                        taken += 1;
                        prop_assert!(queue.take());
                    } else {
                        prop_assert!(queue.is_empty());
                    }
                }
                Step::Wait(micros) => now += Duration::from_micros(micros),
                Step::Discard(flow) => queue.discard(flow),
                Step::Drain => {
                    let before = queue.counters();
                    let (bytes, mut drained) = (queue.bytes(), Vec::new());
                    queue.drain(|flow, item, segment| {
                        drained.push((flow, item.id, segment, item.len));
                    });
                    prop_assert_eq!(drained.iter().map(|left| left.3).sum::<usize>(), bytes);
                    // Of each session and band in order, and nothing twice.
                    for (flow, id, segment, _) in &drained {
                        let key = (*flow, responses.contains(id));
                        let order = (*id, *segment);
                        prop_assert!(last.get(&key).is_none_or(|before| *before < order));
                        last.insert(key, order);
                    }
                    let count = drained.len() as u64;
                    let drained = before.drained + count;
                    prop_assert_eq!(queue.counters(), QueueCounters { drained, ..before });
                    prop_assert!(queue.is_empty() && !queue.take());
                }
            }
            prop_assert!(queue.bytes() <= LIMIT);
            let left: u64 = queue
                .nodes
                .iter()
                .filter_map(|node| Some((node.item.as_ref()?.segments - node.segment) as u64))
                .sum();
            let counters = queue.counters();
            let dropped =
                counters.dropped_codel + counters.dropped_overflow + counters.discarded
                    + counters.drained;
            prop_assert_eq!(counters.pushed, pushed);
            prop_assert_eq!(counters.taken, taken);
            prop_assert_eq!(pushed, taken + dropped + left);
            prop_assert_eq!(queue.is_empty(), left == 0);
        }
        queue.bring_back();
        while queue.next(now).is_some() {
            queue.take();
        }
        prop_assert_eq!((queue.bytes(), queue.items), (0, 0));
    }

    #[test]
    fn runs_are_what_leaves_one_by_one(
        quantum in prop_oneof![Just(0), Just(20_000)],
        steps in proptest::collection::vec((step(), 0usize..60), 1..300),
    ) {
        let [mut runs, mut single] = [(); 2].map(|()| {
            let mut queue = SendQueue::new(200_000, 4);
            queue.set_quantum(quantum);
            queue
        });
        let (mut now, mut items) = (Instant::ZERO, 0);
        for (step, most) in steps {
            match step {
                Step::Push { flow, response, segments, len, ecn } => {
                    let priority =
                        if response { Priority::Response } else { Priority::Throughput };
                    items += 1;
                    let train = Train { id: items, segments, len, ecn };
                    runs.push(now, flow, priority, train.clone());
                    single.push(now, flow, priority, train);
                }
                Step::Look => {}
                Step::SetAside => {
                    for queue in [&mut runs, &mut single] {
                        queue.next(now);
                        queue.set_aside();
                    }
                }
                Step::Take => {
                    let Some(run) = runs.next(now) else { continue };
                    let Candidate { flow, count, len, mark, .. } = run;
                    let (id, first, count) = (run.item.id, run.segment, count.min(most));
                    for segment in first..first + count {
                        let next = single.next(now).expect("as in the run");
                        let found = (next.flow, next.item.id, next.segment, next.len, next.mark);
                        prop_assert_eq!(found, (flow, id, segment, len, mark));
                        prop_assert!(single.take());
                    }
                    prop_assert!(count == 0 || runs.take_run(count));
                }
                Step::Wait(micros) => now += Duration::from_micros(micros),
                Step::Discard(_) => {
                    runs.bring_back();
                    single.bring_back();
                }
                Step::Drain => {
                    let until = now + Duration::from_millis(20);
                    runs.pardon(until);
                    single.pardon(until);
                }
            }
            let next = |queue: &mut SendQueue<Train>| {
                queue.next(now).map(|next| (next.flow, next.item.id, next.segment, next.mark))
            };
            prop_assert_eq!(next(&mut runs), next(&mut single));
            prop_assert_eq!(runs.counters(), single.counters());
            for (one, other) in runs.bands.iter().zip(&single.bands) {
                prop_assert_eq!(format!("{one:?}"), format!("{other:?}"));
            }
        }
        prop_assert_eq!(runs.ahead, single.ahead);
    }

    /// RFC 8289, section 4: no drop unless the delay stood above the target for an interval.
    #[test]
    fn codel_drops_nothing_before_an_interval_above_the_target(
        pace in proptest::collection::vec((1usize..4, 200u64..3_000), 50..400),
    ) {
        let mut queue = SendQueue::new(HUGE, 1);
        let mut now = Instant::ZERO;
        let mut below = Instant::ZERO;
        let mut dropped = 0;
        for (segments, micros) in pace {
            queue.push(now, 0, Priority::Throughput, Train { segments, ..Train::single(1_000) });
            now += Duration::from_micros(micros);
            // What the head waited for before CoDel looked at it.
            let head = queue.bands[0].flows[0].head;
            let sojourn = queue.nodes.get(head as usize).map(|node| now.since(node.enqueued));
            let target = CodelParameters::default().target;
            if sojourn.is_none_or(|sojourn| sojourn < target) || queue.bytes() <= LEAST_QUANTUM {
                below = now;
            }
            let sent = take(&mut queue, now).is_some();
            let counters = queue.counters();
            if counters.dropped_codel > dropped {
                dropped = counters.dropped_codel;
                prop_assert!(now.since(below) >= CodelParameters::default().interval);
            }
            prop_assert!(sent || queue.is_empty());
        }
    }
}
