use core::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::config::Codel;
use crate::trace::Trace;

const MBIT: u64 = 1_000_000;

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Offers `count` packets of `len` bytes, one each `every`, and takes all that arrives.
fn run(link: &mut Link<u64>, count: u64, len: usize, every: Duration) -> Vec<Delivery<u64>> {
    let mut out = Vec::new();
    for number in 0..count {
        let now = every * number as u32;
        while let Some(delivery) = link.poll(now) {
            out.push(delivery);
        }
        let _ = link.enqueue(now, len, number);
    }
    while let Some(at) = link.poll_at() {
        while let Some(delivery) = link.poll(at) {
            out.push(delivery);
        }
    }
    out
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
    (mean, variance.sqrt())
}

fn conserved(link: &Link<u64>) -> bool {
    let c = link.counters();
    let held = (link.queued_packets() + link.in_flight()) as u64;
    c.offered_packets + c.duplicated == c.delivered_packets + c.dropped() + held
}

#[test]
fn rate_is_exact_over_a_long_transfer() {
    for (rate, len) in [(9_300_000, 1500), (100 * MBIT, 1500), (7_777_777, 41), (3, 1)] {
        let config = LinkConfig { rate: Some(rate), ..LinkConfig::default() };
        let mut link = Link::new(config, 1);
        let count = 900;
        let out = run(&mut link, count, len, Duration::ZERO);
        assert_eq!(out.len() as u64, count);
        let bits = count as f64 * (len as f64 + 14.0) * 8.0;
        let expected = bits / rate as f64;
        let took = out.last().expect("packets arrived").at.as_secs_f64();
        assert!((took - expected).abs() < 2e-9, "{rate} bit/s: {took} s, expected {expected} s");
    }
}

#[test]
fn late_polls_do_not_slow_the_link() {
    let config = LinkConfig { rate: Some(100 * MBIT), overhead: 0, ..LinkConfig::default() };
    let mut link = Link::new(config, 1);
    for number in 0..100 {
        link.enqueue(Duration::ZERO, 1250, number).expect("fits");
    }
    let mut last = Duration::ZERO;
    let mut polled = us(0);
    while link.poll_at().is_some() {
        polled += us(777);
        while let Some(delivery) = link.poll(polled) {
            last = delivery.at;
        }
    }
    assert_eq!(last, us(100 * 100));
}

#[test]
fn queue_of_packets_drops_the_newest() {
    let config =
        LinkConfig { rate: Some(MBIT), queue: QueueLimit::Packets(3), ..LinkConfig::default() };
    let mut link = Link::new(config, 1);
    let results: Vec<_> = (0..6).map(|number| link.enqueue(Duration::ZERO, 1000, number)).collect();
    assert_eq!(results[..4], [Ok(()), Ok(()), Ok(()), Ok(())]);
    assert_eq!(results[4..], [Err(DropCause::Queue), Err(DropCause::Queue)]);
    assert_eq!(link.queued_packets(), 3);
    assert_eq!(link.counters().max_queued_packets, 3);
    assert_eq!(link.counters().dropped_queue, 2);
}

#[test]
fn queue_of_bytes_counts_the_overhead() {
    let config = LinkConfig {
        rate: Some(MBIT),
        queue: QueueLimit::Bytes(2 * 1014),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1);
    let accepted =
        (0..6).filter(|number| link.enqueue(Duration::ZERO, 1000, *number).is_ok()).count();
    assert_eq!(accepted, 3);
    assert_eq!(link.queued_bytes(), 2 * 1014);
}

#[test]
fn a_queue_without_room_still_passes_what_finds_the_link_idle() {
    let config =
        LinkConfig { rate: Some(MBIT), queue: QueueLimit::Packets(0), ..LinkConfig::default() };
    let mut link = Link::new(config, 1);
    assert_eq!(link.enqueue(Duration::ZERO, 1000, 0), Ok(()));
    assert_eq!(link.enqueue(Duration::ZERO, 1000, 1), Err(DropCause::Queue));
    assert_eq!(link.enqueue(Duration::from_millis(9), 1000, 2), Ok(()));
}

#[test]
fn random_loss_is_within_its_confidence_interval() {
    for loss in [0.001, 0.01, 0.05, 0.3] {
        let config = LinkConfig { loss: Loss::Random(loss), ..LinkConfig::default() };
        let mut link = Link::new(config, 7);
        let count = 100_000;
        let arrived = run(&mut link, count, 100, us(1)).len() as f64;
        let measured = 1.0 - arrived / count as f64;
        let bound = 3.0 * (loss * (1.0 - loss) / count as f64).sqrt();
        assert!((measured - loss).abs() < bound, "{measured} instead of {loss} +- {bound}");
        assert_eq!(link.counters().dropped_loss as f64, count as f64 - arrived);
    }
}

#[test]
fn gilbert_elliott_loses_in_bursts_of_the_right_length() {
    let loss = Loss::GilbertElliott {
        good_to_bad: 0.01,
        bad_to_good: 0.25,
        good_loss: 0.0,
        bad_loss: 1.0,
    };
    let mut link = Link::new(LinkConfig { loss, ..LinkConfig::default() }, 3);
    let count = 200_000u64;
    let arrived: Vec<u64> =
        run(&mut link, count, 100, us(1)).iter().map(|delivery| delivery.packet).collect();
    let lost = count as f64 - arrived.len() as f64;
    let expected = loss.mean() * count as f64;
    assert!((expected / count as f64 - 0.01 / 0.26).abs() < 1e-12);
    assert!((lost / expected - 1.0).abs() < 0.06, "{lost} lost, expected {expected}");
    let bursts = arrived.windows(2).filter(|pair| pair[1] - pair[0] > 1).count() as f64;
    assert!((lost / bursts - 4.0).abs() < 0.2, "mean burst {}", lost / bursts);
}

#[test]
fn jitter_has_the_mean_and_deviation_asked_for_and_reorders() {
    let config = LinkConfig {
        delay: Duration::from_millis(50),
        jitter: Duration::from_millis(10),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 11);
    let every = us(100);
    let out = run(&mut link, 50_000, 100, every);
    let delays: Vec<f64> =
        out.iter().map(|d| (d.at - every * d.packet as u32).as_secs_f64() * 1e3).collect();
    let (mean, deviation) = mean_and_deviation(&delays);
    assert!((mean - 50.0).abs() < 0.15, "mean {mean} ms");
    assert!((deviation - 10.0).abs() < 0.1, "deviation {deviation} ms");
    assert!(link.counters().reordered > 10_000);
    assert!(out.windows(2).all(|pair| pair[0].at <= pair[1].at));
}

#[test]
fn in_order_links_keep_the_order_under_jitter() {
    let config = LinkConfig {
        delay: Duration::from_millis(5),
        jitter: Duration::from_millis(3),
        in_order: true,
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 11);
    let out = run(&mut link, 5_000, 100, us(100));
    assert!(out.windows(2).all(|pair| pair[0].packet < pair[1].packet));
    assert_eq!(link.counters().reordered, 0);
}

#[test]
fn duplicates_and_corruption_come_as_often_as_asked() {
    let config = LinkConfig { duplicate: 0.1, corrupt: 0.05, ..LinkConfig::default() };
    let mut link = Link::new(config, 5);
    let out = run(&mut link, 20_000, 100, us(1));
    let duplicates = out.len() as f64 - 20_000.0;
    assert!((duplicates / 20_000.0 - 0.1).abs() < 0.007, "{duplicates} duplicates");
    let corrupted = out.iter().filter(|d| d.corrupt.is_some()).count() as f64;
    assert!((corrupted / out.len() as f64 - 0.05).abs() < 0.005, "{corrupted} corrupted");
}

#[test]
fn flip_bit_changes_exactly_one_bit() {
    for word in [0, 7, 8, 12_345, u64::MAX] {
        let mut bytes = [0u8; 20];
        flip_bit(&mut bytes, word);
        assert_eq!(bytes.iter().map(|b| b.count_ones()).sum::<u32>(), 1);
    }
    flip_bit(&mut [], 3);
}

#[test]
fn blackhole_loses_newcomers_only_and_down_loses_all() {
    let config = LinkConfig { delay: Duration::from_millis(10), ..LinkConfig::default() };
    let mut link = Link::new(config, 1);
    link.enqueue(us(0), 100, 1).expect("up");
    link.apply(us(1), &Change { blackhole: Some(true), ..Change::default() });
    assert_eq!(link.enqueue(us(2), 100, 2), Err(DropCause::Blackhole));
    assert_eq!(link.poll(us(10_000)).map(|d| d.packet), Some(1));
    link.apply(us(10_001), &Change { blackhole: Some(false), ..Change::default() });
    link.enqueue(us(10_001), 100, 3).expect("no blackhole any more");
    link.apply(us(10_002), &Change { up: Some(false), ..Change::default() });
    assert_eq!(link.poll(us(90_000)), None);
    assert_eq!(link.enqueue(us(90_000), 100, 4), Err(DropCause::Down));
    assert_eq!(link.counters().dropped_down, 2);
    link.apply(us(90_001), &Change { up: Some(true), ..Change::default() });
    link.enqueue(us(90_001), 100, 5).expect("up again");
    assert_eq!(link.poll(us(100_001)).map(|d| d.packet), Some(5));
    assert!(conserved(&link));
}

#[test]
fn packets_larger_than_the_mtu_are_dropped() {
    let mut link = Link::new(LinkConfig { mtu: 1280, ..LinkConfig::default() }, 1);
    assert_eq!(link.enqueue(us(0), 1281, 0), Err(DropCause::TooBig));
    assert_eq!(link.enqueue(us(0), 1280, 1), Ok(()));
}

#[test]
fn a_new_rate_counts_from_the_next_packet() {
    let config = LinkConfig { rate: Some(8 * MBIT), overhead: 0, ..LinkConfig::default() };
    let mut link = Link::new(config, 1);
    link.enqueue(us(0), 1000, 0).expect("fits");
    link.enqueue(us(0), 1000, 1).expect("fits");
    link.apply(us(500), &Change { rate: Some(Some(80 * MBIT)), ..Change::default() });
    assert_eq!(link.poll(us(5000)).map(|d| d.at), Some(us(1000)));
    assert_eq!(link.poll(us(5000)).map(|d| d.at), Some(us(1100)));
}

#[test]
fn a_shorter_delay_is_not_kept_waiting_by_a_longer_one_before_it() {
    let config =
        LinkConfig { rate: Some(8 * MBIT), overhead: 0, delay: us(90_000), ..Default::default() };
    let mut link = Link::new(config, 1);
    link.enqueue(us(0), 1000, 0).expect("fits");
    link.enqueue(us(0), 1000, 1).expect("fits");
    link.apply(us(500), &Change { delay: Some(us(1000)), ..Change::default() });
    let mut arrived = Vec::new();
    while let Some(at) = link.poll_at() {
        while let Some(delivery) = link.poll(at) {
            arrived.push((delivery.packet, delivery.at));
        }
    }
    assert_eq!(arrived, [(1, us(3000)), (0, us(91_000))]);
}

#[test]
fn codel_keeps_the_standing_queue_near_its_target() {
    let config = LinkConfig {
        rate: Some(10 * MBIT),
        discipline: Discipline::Codel(Codel::default()),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1);
    // 20 % more than the link carries, for 10 s.
    let out = run(&mut link, 10_000, 1236, us(833));
    let late: Vec<f64> = out
        .iter()
        .filter(|d| d.packet > 8_000)
        .map(|d| (d.at - us(833) * d.packet as u32).as_secs_f64() * 1e3)
        .collect();
    let (mean, _) = mean_and_deviation(&late);
    assert!(link.counters().dropped_codel > 100);
    assert!(mean < 100.0, "mean queue {mean} ms, 1000 packets would be 1000 ms");
    assert!(conserved(&link));
}

#[test]
fn a_trace_delivers_at_its_opportunities_and_repeats() {
    let trace = Trace::parse("1\n1\n3\n10\n").expect("a valid trace");
    assert!((trace.mean_rate() - 4.0 * 12_000.0 / 0.010).abs() < 1e-6);
    let config = LinkConfig { trace: Some(trace), overhead: 0, ..LinkConfig::default() };
    let mut link = Link::new(config, 1);
    for number in 0..6 {
        link.enqueue(us(0), 1500, number).expect("fits");
    }
    let times: Vec<u128> = run(&mut link, 0, 0, us(0)).iter().map(|d| d.at.as_millis()).collect();
    assert_eq!(times, [1, 1, 3, 10, 11, 11]);
}

#[test]
fn small_packets_share_an_opportunity_and_large_ones_need_two() {
    let trace = Trace::parse("2\n4\n6\n").expect("a valid trace");
    let config = LinkConfig { trace: Some(trace), overhead: 0, mtu: 9000, ..LinkConfig::default() };
    let mut link = Link::new(config, 1);
    for (number, len) in [700, 700, 3000].into_iter().enumerate() {
        link.enqueue(us(0), len, number as u64).expect("fits");
    }
    let times: Vec<u128> = run(&mut link, 0, 0, us(0)).iter().map(|d| d.at.as_millis()).collect();
    assert_eq!(times, [2, 2, 6]);
    // What was not used in its millisecond is gone.
    link.enqueue(us(6_500), 100, 9).expect("fits");
    assert_eq!(link.poll(us(20_000)).map(|d| d.at), Some(us(8_000)));
}

#[test]
fn bad_traces_are_refused_with_their_line() {
    assert_eq!(Trace::parse("1\nx\n").expect_err("no number").line, 2);
    assert_eq!(Trace::parse("5\n4\n").expect_err("decreases").line, 2);
    assert!(Trace::parse("").is_err());
    assert!(Trace::parse("0\n").is_err());
}

fn any_config() -> impl Strategy<Value = LinkConfig> {
    (
        (prop::option::of(1_000u64..1_000_000_000), 0u64..50_000, 0u64..20_000, any::<bool>()),
        (0.0..0.5f64, 0.0..0.5f64, 0.0..0.2f64, 0u32..30, any::<bool>(), any::<bool>()),
    )
        .prop_map(
            |((rate, delay, jitter, in_order), (loss, duplicate, corrupt, limit, bytes, codel))| {
                LinkConfig {
                    rate,
                    delay: us(delay),
                    jitter: us(jitter),
                    in_order,
                    loss: Loss::Random(loss),
                    duplicate,
                    corrupt,
                    queue: if bytes {
                        QueueLimit::Bytes(limit * 1514)
                    } else {
                        QueueLimit::Packets(limit)
                    },
                    discipline: if codel {
                        Discipline::Codel(Codel::default())
                    } else {
                        Discipline::TailDrop
                    },
                    ..LinkConfig::default()
                }
            },
        )
}

/// Random packets, polls and changes; everything that leaves, in order.
fn replay(config: &LinkConfig, seed: u64, steps: &[(u8, u16, u16)]) -> Vec<(Duration, u64)> {
    let mut link = Link::new(config.clone(), seed);
    let mut now = Duration::ZERO;
    let mut out = Vec::new();
    for (number, (kind, wait, len)) in steps.iter().enumerate() {
        now += us(u64::from(*wait));
        match kind % 16 {
            0 => link.apply(now, &Change { up: Some(len % 2 == 0), ..Change::default() }),
            1 => link.apply(now, &Change { blackhole: Some(len % 2 == 0), ..Change::default() }),
            2 => link.apply(
                now,
                &Change { rate: Some(Some(1000 * u64::from(*len) + 1)), ..Change::default() },
            ),
            3..8 => {
                while let Some(delivery) = link.poll(now) {
                    assert!(delivery.at <= now);
                    out.push((delivery.at, delivery.packet));
                }
            }
            _ => drop(link.enqueue(now, usize::from(*len % 1600), number as u64)),
        }
        assert!(conserved(&link));
        assert!(link.poll_at().is_some() == (link.queued_packets() + link.in_flight() > 0));
    }
    let mut rounds = 0;
    while let Some(at) = link.poll_at() {
        while let Some(delivery) = link.poll(at) {
            out.push((delivery.at, delivery.packet));
        }
        rounds += 1;
        assert!(rounds < 100_000, "poll_at makes no progress");
    }
    assert!(conserved(&link));
    assert_eq!(link.queued_bytes(), 0);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn nothing_is_lost_without_a_cause_and_a_seed_repeats(
        config in any_config(),
        seed: u64,
        steps in prop::collection::vec((any::<u8>(), any::<u16>(), any::<u16>()), 0..200),
    ) {
        prop_assert_eq!(replay(&config, seed, &steps), replay(&config, seed, &steps));
    }
}
