use proptest::prelude::*;

use super::*;

const SEGMENT: u32 = 1_400;
const NOW: Instant = Instant::from_millis(1_000);

/// The state for a sender known to grow by all bytes covered.
fn proven() -> Thinning {
    let mut growth = Growth::default();
    growth.on_segment(SEGMENT);
    let mut flight = 1_000 * SEGMENT;
    for exponent in 1..9 {
        for _ in 0..3 {
            growth.on_passed(flight, SEGMENT << exponent, false);
            flight += SEGMENT << exponent;
        }
    }
    assert!(growth.permitted() > 200 * SEGMENT && !growth.is_limited());
    Thinning { growth, ..Thinning::default() }
}

/// A sender in slow start up to a window of `most` segments. Its stream begins at `start`; it
/// counts `limit` segments for each acknowledgement at most. The receiver acknowledges every other
/// segment.
struct Sender {
    start: u32,
    most: f64,
    limit: u32,
    full: bool,
}

impl Sender {
    const LINUX: Self = Self { start: 0, most: f64::INFINITY, limit: u32::MAX, full: false };

    /// How many acknowledgements pass in each of its first round trips, and its window then.
    fn run(&self, rounds: usize) -> (Vec<u32>, f64) {
        let mut thinning = Thinning::default();
        let waits = self.full.then_some(Instant::ZERO);
        let at = |segments: u32| self.start.wrapping_add(segments * SEGMENT);
        let (mut known, mut arrived, mut next, mut window) = (0, 0, 10, 10.0);
        let (mut end, mut count, mut counts) = (next, 0, Vec::new());
        let mut now = NOW;
        while counts.len() < rounds {
            thinning.on_segment(now, SEGMENT, at(next));
            arrived = (arrived + 2).min(next);
            now += TRAIN_GAP;
            if !thinning.passes(now, at(arrived), at(next), waits) {
                assert!(arrived < next, "the last one is left out");
                continue;
            }
            if known > end {
                end = next;
                counts.push(core::mem::take(&mut count));
            }
            count += 1;
            let counted = f64::from((arrived - known).min(self.limit));
            window += if window < self.most { counted } else { counted / window };
            known = arrived;
            next = next.max(known + window as u32);
        }
        (counts, window)
    }
}

#[test]
fn slow_start_sees_too_few_to_judge() {
    for start in [0, u32::MAX - 20_000] {
        let (counts, _) = Sender { start, ..Sender::LINUX }.run(9);
        assert!(counts[1] <= 9 && counts[2..].iter().all(|n| (4..=8).contains(n)), "{counts:?}");
    }
}

#[test]
fn a_sender_that_counts_few_segments_is_hardly_slower() {
    for limit in [1, 2, 8] {
        let sender = |full| Sender { limit, full, ..Sender::LINUX };
        let (alone, thinned) = (sender(true).run(9).1, sender(false).run(9).1);
        // Eight round trips at less than a tenth.
        let lag = (alone / thinned).ln() / (alone / 10.0).ln() * 9.0;
        assert!(lag < 0.8, "{limit}: {thinned} instead of {alone}, {lag} round trips");
    }
}

#[test]
fn all_pass_when_the_paths_are_full() {
    let (counts, _) = Sender { full: true, ..Sender::LINUX }.run(6);
    assert!(counts[5] > 100, "{counts:?}");
}

#[test]
fn all_pass_once_slow_start_is_over() {
    let (counts, window) = Sender { most: 300.0, ..Sender::LINUX }.run(12);
    assert!(counts[4] <= 8 && counts[9..].iter().all(|count| *count > 140), "{counts:?}, {window}");
}

#[test]
fn exchanges_are_no_end_of_slow_start() {
    let mut thinning = proven();
    let at = |exchange: u32, segment: u32| (exchange * 20 + segment) * SEGMENT;
    for exchange in 0..10 {
        let now = NOW + Duration::from_millis(u64::from(exchange) * 100);
        let mut passes =
            |segment| thinning.passes(now, at(exchange, segment), at(exchange, 20), None);
        passes(4);
        assert!(passes(20), "the last one");
    }
    let mut passed = 0;
    for segment in 1..=60 {
        let now = NOW + Duration::from_secs(10) + TRAIN_GAP * segment;
        passed += u32::from(thinning.passes(now, at(10, segment), at(10, 60), None));
    }
    assert!((2..=8).contains(&passed), "{passed}");
}

#[test]
fn what_waits_for_a_part_of_the_round_is_a_burst() {
    let mut thinning = proven();
    let at = |millis| NOW + Duration::from_millis(millis);
    assert!(thinning.passes(at(0), 1_000, 100_000, None));
    assert!(!thinning.passes(at(10), 2_000, 100_000, Some(at(5))), "it came after the round began");
    assert!(thinning.passes(at(20), 101_000, 200_000, Some(at(5))), "this begins another round");
    assert!(thinning.passes(at(30), 102_000, 200_000, Some(at(5))));
}

#[test]
fn what_arrives_in_a_burst_is_acknowledged_by_few() {
    let mut thinning = proven();
    assert!(thinning.passes(NOW, 0, 60 * SEGMENT, None));
    let mut passed = |apart: Duration| {
        let acks = (1..=60).filter(|segment| {
            let now = NOW + apart * *segment;
            thinning.passes(now, segment * SEGMENT, 60 * SEGMENT, None)
        });
        acks.count()
    };
    assert!((2..=7).contains(&passed(TRAIN_GAP)));
}

#[test]
fn beside_a_near_peer_a_train_has_one_wagon_before_anything_is_known() {
    let at = |micros| NOW + Duration::from_micros(micros);
    let run = |rtt: u64| {
        let mut thinning = Thinning::default();
        thinning.on_segment(NOW, SEGMENT, 2 * SEGMENT);
        assert!(thinning.passes(at(rtt), 2 * SEGMENT, 20 * SEGMENT, None));
        let passes = [4, 6, 8, 10].map(|ack| {
            let now = at(rtt + u64::from(ack) * 100);
            thinning.passes(now, ack * SEGMENT, 20 * SEGMENT, None)
        });
        passes.into_iter().filter(|passes| *passes).count()
    };
    assert_eq!(run(500), 0);
    // At a longer RTT it would cost a sender that counts few segments a round trip.
    assert!(run(20_000) >= 2);
}

#[test]
fn a_train_has_one_wagon_and_what_follows_a_gap_is_none() {
    let mut thinning = proven();
    assert!(thinning.passes(NOW, 0, 30 * SEGMENT, None));
    let mut passes = |micros, ack| {
        let now = NOW + Duration::from_micros(micros);
        thinning.passes(now, ack * SEGMENT, 30 * SEGMENT, None)
    };
    assert!(!passes(500, 6) && !passes(2_900, 8) && passes(3_100, 10));
    assert!(!passes(3_200, 12), "it covers little");
    assert!(passes(3_300, 16) && passes(3_400, 22));
    assert!(passes(3_500, 30), "after the last one none follows");
}

#[test]
fn a_train_that_is_short_ends_nothing() {
    let at = |micros| NOW + Duration::from_micros(micros);
    let mut thinning = proven();
    thinning.on_segment(at(0), SEGMENT, 2 * SEGMENT);
    let mut passes =
        |micros, ack, end| thinning.passes(at(micros), ack * SEGMENT, end * SEGMENT, None);
    assert!(passes(6_000, 2, 32), "it begins a round, and shows the RTT");
    assert!(passes(6_500, 10, 40) && passes(7_900, 18, 52));
    assert!(!passes(8_200, 24, 60), "a third of the RTT has passed");
    assert!(!passes(9_000, 32, 60) && passes(9_100, 34, 60), "it begins another round");
}

#[test]
fn windows_too_small_for_hystart_grow_by_all_acknowledgements() {
    let run = |window: u32| {
        let mut thinning = proven();
        assert!(thinning.passes(NOW, 0, window * SEGMENT, None));
        let acks = (2..window).step_by(2);
        acks.filter(|ack| thinning.passes(NOW, ack * SEGMENT, window * SEGMENT, None)).count()
    };
    assert_eq!(run(MIN_WINDOW - 2), 6);
    assert_eq!(run(MIN_WINDOW), 3);
}

/// The window of a sender that fills the receive window, which becomes wider by three segments with
/// each acknowledgement that covers eight.
#[test]
fn a_sender_that_fills_the_receive_window_is_not_taken_for_one_that_grows_by_less() {
    let is_limited = |told: bool| {
        let mut thinning = Thinning::default();
        let at = |segments: u32| segments * SEGMENT;
        let (mut now, mut acked, mut edge) = (NOW, 0, 60);
        for _ in 0..12 {
            thinning.on_segment(now, SEGMENT, at(edge));
            now += TRAIN_GAP;
            acked += 8;
            assert!(thinning.passes(now, at(acked), at(edge), Some(Instant::ZERO)));
            edge += 8 + 3;
            if told {
                thinning.on_window(at(edge));
                // Overtaken by that one.
                thinning.on_window(at(edge - 2));
            }
        }
        thinning.growth.is_limited()
    };
    assert!(is_limited(false) && !is_limited(true));
}

#[test]
fn more_than_a_tail_loss_probe_is_acknowledged_after_the_report_on_it() {
    let patience = Duration::from_millis(10);
    let awaits = |thinning: &mut Thinning, millis, ack: u32, end: u32| {
        let now = NOW + Duration::from_millis(millis);
        thinning.awaits_report(now, ack * SEGMENT, end * SEGMENT, patience)
    };
    let mut thinning = Thinning::default();
    assert!(!awaits(&mut thinning, 0, 1, 60));
    assert!(thinning.on_probe(60 * SEGMENT));
    assert!(!thinning.on_probe(60 * SEGMENT), "one for each end");
    assert!(!awaits(&mut thinning, 10, 60, 70), "no more than the probe");
    assert!(awaits(&mut thinning, 11, 62, 70) && awaits(&mut thinning, 20, 64, 70));
    assert!(!awaits(&mut thinning, 21, 66, 70), "there is no report");
    assert!(!awaits(&mut thinning, 22, 68, 70));
    assert!(thinning.on_probe(70 * SEGMENT));
    assert!(awaits(&mut thinning, 30, 72, 80));
    thinning.on_report();
    assert!(!awaits(&mut thinning, 31, 74, 80));
    assert!(thinning.on_probe(80 * SEGMENT));
    assert!(!awaits(&mut thinning, 40, 82, 82), "none follows that one");
}

#[test]
fn what_is_repeated_or_overtaken_passes() {
    let mut thinning = proven();
    assert!(thinning.passes(Instant::ZERO, 1_000, 100_000, None));
    assert!(thinning.passes(NOW, 50_000, 150_000, None));
    assert!(!thinning.passes(NOW, 51_000, 150_000, None));
    assert!(!thinning.passes(NOW, 50_500, 150_000, None), "overtaken by one that was left out");
    assert!(
        thinning.passes(NOW, 50_000, 150_000, None) && thinning.passes(NOW, 49_000, 150_000, None)
    );
    assert!(
        thinning.passes(NOW, 51_000, 150_000, None),
        "the second tells that something is missing"
    );
}

#[test]
fn what_is_sent_again_is_acknowledged() {
    let mut thinning = proven();
    assert!(thinning.passes(NOW, 1_000, 100_000, None));
    assert!(!thinning.passes(NOW, 2_000, 100_000, None));
    thinning.on_repeated();
    thinning.on_repeated();
    let passes = [3_000, 4_000, 5_000].map(|ack| thinning.passes(NOW, ack, 100_000, None));
    assert_eq!(passes, [true, true, false]);
}

proptest! {
    /// A dropped acknowledgement is followed by another one, because data beyond it is in flight.
    #[test]
    fn the_last_one_always_passes(
        start in any::<u32>(),
        steps in proptest::collection::vec((0_u32..200_000, 0_u32..200_000, any::<bool>()), 1..200),
    ) {
        let mut thinning = Thinning::default();
        let (mut ack, mut end) = (0, 0);
        for (sent, covered, full) in steps {
            let waits = full.then_some(NOW);
            end += sent;
            ack = (ack + covered).min(end);
            let passes = thinning.passes(NOW, start.wrapping_add(ack), start.wrapping_add(end), waits);
            prop_assert!(passes || ack < end && !full);
        }
        prop_assert!(thinning.passes(NOW, start.wrapping_add(end), start.wrapping_add(end), None));
    }

    #[test]
    fn nothing_is_taken_amiss(numbers in proptest::collection::vec(any::<(u32, u32, bool)>(), 1..100)) {
        let mut thinning = Thinning::default();
        for (ack, end, full) in numbers {
            let passes = thinning.passes(NOW, ack, end, full.then_some(NOW));
            prop_assert!(passes || ack != end);
        }
    }
}
