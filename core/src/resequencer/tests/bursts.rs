//! Delivery in bursts, of what was held while a gap was open.

use super::*;

/// Packets of a burst, and the time to the next one.
const BURST: usize = 64;
const INTERVAL: Duration = Duration::from_millis(1);

/// A session in bursts that waits for packet 0, with `held` packets after it.
fn behind_a_gap(held: u32) -> Bench {
    let mut bench = Bench::with_pool(1 << 25);
    bench.limits.in_bursts = true;
    for sequence in 1..=held {
        assert_eq!(bench.receive(0, sequence), Received::Held);
    }
    bench
}

/// [S-16]
#[test]
fn what_a_gap_held_is_delivered_a_burst_at_a_time() {
    let mut bench = behind_a_gap(200);
    bench.receive(50, 0);
    assert_eq!(bench.delivered.len(), BURST);
    for (millis, bursts) in [(51, 2), (52, 3)] {
        assert_eq!(bench.deadline(), Some(at(millis)));
        bench.expire(Instant::from_micros(millis * 1_000 - 1));
        assert_eq!(bench.delivered.len(), BURST * (bursts - 1), "not before its time");
        bench.expire(at(millis));
        assert_eq!(bench.delivered.len(), BURST * bursts);
    }
    // What arrives meanwhile keeps its place.
    assert_eq!(bench.receive(52, 201), Received::Held);
    bench.expire(at(53));
    assert_eq!(bench.delivered, Vec::from_iter(0..=201));
    assert_eq!((bench.deadline(), bench.pool.held()), (None, 0));
    assert_eq!(bench.receive(53, 202), Received::Delivered);
    assert_eq!(bench.resequencer.stats().packets_given_up, 0);
}

#[test]
fn a_late_timer_makes_no_burst_longer() {
    let mut bench = behind_a_gap(300);
    bench.receive(50, 0);
    bench.expire(at(80));
    assert_eq!(bench.delivered.len(), 2 * BURST);
    assert_eq!(bench.deadline(), Some(at(81)));
}

#[test]
fn a_burst_does_not_follow_another_at_once() {
    let mut bench = behind_a_gap(1);
    bench.receive(0, 0);
    // The next gap closes just before a whole interval has passed.
    for sequence in 3..300 {
        bench.receive(0, sequence);
    }
    bench.receive_bytes(Instant::from_micros(999), 2, &bytes(2, 100));
    let delivered = bench.delivered.len();
    assert!((BURST..=BURST + 3).contains(&delivered), "{delivered}");
    bench.expire(at(1));
    assert_eq!(bench.delivered.len(), delivered);
    bench.expire(Instant::from_micros(1_999));
    assert_eq!(bench.delivered.len(), delivered + BURST);
}

#[test]
fn a_flow_that_is_faster_than_the_bursts_is_not_slowed_down() {
    const EACH: u32 = 500;
    let mut bench = behind_a_gap(1_000);
    bench.receive(0, 0);
    let mut next = 1_001;
    let mut waiting = Vec::new();
    for millis in 1..40 {
        for _ in 0..EACH {
            bench.receive(millis, next);
            next += 1;
        }
        bench.expire(at(millis));
        waiting.push(next as usize - bench.delivered.len());
    }
    assert!(waiting.iter().all(|count| *count < 2 * 1_000), "{waiting:?}");
    assert_eq!(waiting[10..], [0; 29], "all that arrived was delivered");
}

#[test]
fn what_arrives_during_a_gap_makes_no_burst_longer() {
    let mut bench = behind_a_gap(BURST as u32 - 1);
    // The burst is used up exactly, and the next gap holds many.
    bench.receive(0, 0);
    let from = BURST as u32 + 1;
    for sequence in from..from + 500 {
        assert_eq!(bench.receive(40, sequence), Received::Held);
    }
    let before = bench.delivered.len();
    bench.receive(60, from - 1);
    assert_eq!(bench.delivered.len() - before, BURST);
}

#[test]
fn what_arrives_in_order_belongs_to_the_burst() {
    let mut bench = Bench::with_pool(1 << 25);
    bench.limits.in_bursts = true;
    for sequence in 0..100 {
        bench.receive(0, sequence);
    }
    assert_eq!(bench.delivered.len(), BURST);
    // A gap closes, and what follows arrives at the same time.
    bench.expire(at(1));
    for sequence in (101..150).chain([100]).chain(150..250) {
        bench.receive(40, sequence);
    }
    assert_eq!(bench.delivered, Vec::from_iter(0..100 + BURST as u32));
}

#[test]
fn many_packets_at_once_are_no_faster_flow() {
    let mut bench = Bench::with_pool(1 << 25);
    bench.limits.in_bursts = true;
    let mut next = 0;
    for millis in (0..200).step_by(10) {
        // As a path does whose jitter keeps the order.
        for _ in 0..150 {
            bench.receive(millis, next);
            next += 1;
        }
        for millis in millis..millis + 10 {
            let before = bench.delivered.len();
            bench.expire(at(millis));
            let delivered = bench.delivered.len() - before;
            assert!(delivered <= BURST, "{delivered} after {millis} ms");
        }
        assert_eq!(bench.delivered.len(), next as usize);
    }
}

/// [S-16]
#[test]
fn a_stream_is_delivered_at_once() {
    let mut bench = Bench::new();
    for sequence in (0..=200).rev() {
        bench.receive(0, sequence);
    }
    assert_eq!(bench.delivered, Vec::from_iter(0..=200));
}

#[test]
fn everything_held_can_be_delivered_at_the_end() {
    let mut bench = behind_a_gap(200);
    bench.receive(50, 0);
    bench.flush(at(50));
    assert_eq!(bench.delivered, Vec::from_iter(0..=200));
    assert_eq!(bench.pool.held(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever order packets arrive in: all are delivered, in order, none is given up, and a burst
    /// is no longer than what may arrive in it.
    #[test]
    fn bursts_keep_the_order_and_end(
        delays in prop::collection::vec(0u64..30, 1..600),
        each in 1u64..20,
    ) {
        let mut bench = Bench::with_pool(1 << 25);
        bench.limits.in_bursts = true;
        let sent = delays.iter().enumerate();
        let mut arrivals: Vec<(u64, u32)> =
            sent.map(|(number, delay)| (number as u64 / each + delay, number as u32)).collect();
        arrivals.sort_unstable();
        let mut arrivals = arrivals.into_iter().peekable();
        for millis in 0..2_000 {
            bench.expire(at(millis));
            let before = bench.delivered.len();
            let mut came = 0;
            while let Some((_, sequence)) = arrivals.next_if(|(due, _)| *due <= millis) {
                bench.receive(millis, sequence);
                came += 1;
            }
            let burst = bench.delivered.len() - before;
            prop_assert!(burst <= BURST + came, "{burst} packets at {millis} ms, {came} came");
            prop_assert!(bench.deadline().is_none_or(|due| due > at(millis)));
        }
        prop_assert_eq!(&bench.delivered, &Vec::from_iter(0..delays.len() as u32));
        prop_assert_eq!(bench.resequencer.stats().packets_given_up, 0);
        prop_assert_eq!(bench.deadline(), None);
        bench.check_memory();
    }
}

#[test]
fn the_figures_here_are_those_of_the_parameters() {
    let ReleaseParameters { burst, interval, .. } = ReleaseParameters::default();
    assert_eq!((burst as usize, interval), (BURST, INTERVAL));
}
