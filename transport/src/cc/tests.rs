//! The controllers over a bottleneck link in virtual time, and their reactions one by one.

mod link;

use core::time::Duration;

use self::link::{Link, Measured, PACKET, World, jain};
use super::{CongestionControl, CongestionEvent, RateSample};
use crate::cc::CongestionControlKind::{self, Balia, Bbr, Cubic, Lia, Olia, Reno};
use crate::parameters::BbrParameters;
use mpip_types::Instant;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// One flow of `kind` on `link`: measured for `time` after `warm_up`, both in ms.
fn alone(kind: CongestionControlKind, link: Link, warm_up: u64, time: u64) -> Measured {
    World::new(link, &[kind]).measure_after(ms(warm_up), ms(time))
}

/// Share of what the link can carry that arrives.
fn utilisation(measured: &Measured, link: &Link) -> f64 {
    measured.total() / (link.rate * (1.0 - link.loss))
}

#[track_caller]
fn assert_fills(measured: &Measured, link: &Link, share: f64) {
    let used = utilisation(measured, link);
    assert!(used >= share, "{used:.3} of {link:?}");
}

/// Mean queue at most `share` of the bandwidth-delay product.
#[track_caller]
fn assert_short_queue(measured: &Measured, link: &Link, share: f64) {
    let queue = measured.queue / link.bdp();
    assert!(queue <= share, "{queue:.2} BDP in the queue of {link:?}");
}

#[test]
fn loss_based_controllers_fill_a_clean_link() {
    let link = Link::new(20.0, ms(40), 1.0);
    for kind in [Reno, Cubic, Lia, Olia, Balia] {
        let measured = alone(kind, link, 3_000, 12_000);
        assert_fills(&measured, &link, 0.95);
    }
}

#[test]
fn bbr_fills_a_clean_link_without_a_queue_whatever_the_buffer() {
    for buffer in [1.0, 20.0] {
        let link = Link::new(20.0, ms(40), buffer);
        let measured = alone(Bbr, link, 3_000, 12_000);
        assert_fills(&measured, &link, 0.98);
        assert_short_queue(&measured, &link, 0.3);
        assert_eq!(measured.loss, 0.0);
    }
}

#[test]
fn bbr_lives_with_a_buffer_of_a_few_packets() {
    let link = Link { buffer: 8.0 * PACKET as f64, ..Link::new(20.0, ms(40), 1.0) };
    let measured = alone(Bbr, link, 3_000, 12_000);
    assert_fills(&measured, &link, 0.9);
    assert!(measured.loss < 0.1, "{}", measured.loss);
}

#[test]
fn bbr_holds_its_rate_under_random_loss() {
    for loss in [0.01, 0.05, 0.2] {
        let link = Link { loss, ..Link::new(20.0, ms(40), 1.5) };
        let measured = alone(Bbr, link, 2_000, 10_000);
        assert_fills(&measured, &link, 0.95);
        assert_short_queue(&measured, &link, 0.5);
    }
}

#[test]
fn bbr_holds_its_rate_under_jitter_with_reordering() {
    for mbps in [1.0, 5.0, 20.0] {
        for loss in [0.0, 0.05] {
            let link = Link { jitter: ms(50), loss, ..Link::new(mbps, ms(100), 1.5) };
            let measured = alone(Bbr, link, 3_000, 15_000);
            assert_fills(&measured, &link, 0.9);
            assert_short_queue(&measured, &link, 0.7);
        }
    }
}

#[test]
fn bbr_is_not_starved_by_jitter_larger_than_the_base_delay() {
    let link = Link { jitter: ms(50), loss: 0.05, ..Link::new(10.0, ms(1), 200.0) };
    let measured = alone(Bbr, link, 3_000, 10_000);
    assert_fills(&measured, &link, 0.95);
    // The mean jitter is 13 ms: the queue is to be short compared with that, not with the base
    // delay.
    assert!(measured.queue / link.rate < 0.03, "{} s", measured.queue / link.rate);
}

#[test]
fn bbr_is_not_starved_by_rare_feedback() {
    let link = Link { feedback: ms(20), ..Link::new(50.0, ms(5), 10.0) };
    assert_fills(&alone(Bbr, link, 1_000, 4_000), &link, 0.95);
}

#[test]
fn bbr_fills_a_lan_with_bursts() {
    let lan = Link::new(2_000.0, Duration::from_micros(100), 40.0);
    for burst in [1, 45] {
        let link = Link { burst, ..lan };
        assert_fills(&alone(Bbr, link, 50, 100), &link, 0.95);
    }
    let fast = Link { burst: 45, ..Link::new(10_000.0, Duration::from_micros(50), 40.0) };
    assert_fills(&alone(Bbr, fast, 20, 20), &fast, 0.95);
}

#[test]
fn bbr_fills_long_and_slow_links() {
    let long = Link::new(20.0, ms(600), 1.0);
    let measured = alone(Bbr, long, 8_000, 20_000);
    assert_fills(&measured, &long, 0.95);
    assert_short_queue(&measured, &long, 0.5);

    let slow = Link::new(1.0, ms(20), 20.0);
    let measured = alone(Bbr, slow, 2_000, 20_000);
    assert_fills(&measured, &slow, 0.95);
    // A window of less than two packets cannot fill it.
    assert!(measured.queue < 4.0 * PACKET as f64, "{}", measured.queue);
}

#[test]
fn bbr_starts_within_seconds() {
    let link = Link::new(100.0, ms(100), 1.5);
    assert_fills(&alone(Bbr, link, 1_000, 1_000), &link, 0.9);
    let longer = Link::new(100.0, ms(500), 1.0);
    assert_fills(&alone(Bbr, longer, 6_000, 3_000), &longer, 0.9);
}

#[test]
fn bbr_follows_the_rate_of_its_link() {
    let link = Link::new(10.0, ms(50), 20.0);
    let mut world = World::new(link, &[Bbr]);
    world.set_rate_at(Instant::from_millis(3_000), 60);
    world.set_rate_at(Instant::from_millis(9_000), 10);
    let wider = world.measure_after(ms(5_000), ms(3_000));
    assert!(wider.total() / (6.0 * link.rate) > 0.95, "{}", wider.total() / link.rate);
    let narrower = world.measure_after(ms(5_000), ms(3_000));
    assert_fills(&narrower, &link, 0.95);
    assert_short_queue(&narrower, &link, 1.5);
}

/// Its packets are never late, so what it loses looks like random loss.
#[test]
fn bbr_follows_a_link_with_a_queue_of_a_few_packets_that_becomes_slower() {
    for mbps in [20, 40] {
        let link = Link { buffer: 12.0 * PACKET as f64, ..Link::new(80.0, ms(200), 1.0) };
        let mut world = World::new(link, &[Bbr]);
        world.set_rate_at(Instant::from_millis(6_000), mbps);
        let slower = world.measure_after(ms(8_000), ms(6_000));
        let share = slower.total() / (mbps as f64 * 1e6 / 8.0);
        assert!(share > 0.9 && slower.loss < 0.2, "{share} with a loss of {}", slower.loss);
    }
}

#[test]
fn bbr_starts_on_a_long_path_that_jitters() {
    for (mbps, jitter, loss) in [(10.0, 20, 0.25), (10.0, 50, 0.15), (100.0, 20, 0.15)] {
        let link = Link { jitter: ms(jitter), ..Link::new(mbps, ms(200), 0.65) };
        let mut world = World::new(link, &[Bbr]);
        let started = world.measure_after(ms(0), ms(2_000));
        assert!(started.loss < loss, "{} of {link:?}", started.loss);
        assert_fills(&world.measure_after(ms(0), ms(2_000)), &link, 0.95);
    }
}

#[test]
fn bbr_flows_share_a_link() {
    for buffer in [0.5, 2.0] {
        let link = Link::new(20.0, ms(40), buffer);
        let measured = World::new(link, &[Bbr, Bbr]).measure_after(ms(10_000), ms(20_000));
        assert!(jain(&measured.rates) >= 0.9, "{:?}", measured.rates);
        assert_fills(&measured, &link, 0.95);
        assert_short_queue(&measured, &link, 1.5);
    }
}

#[test]
fn bbr_and_loss_based_flows_leave_each_other_room() {
    for other in [Reno, Cubic] {
        let link = Link::new(20.0, ms(40), 2.0);
        let measured = World::new(link, &[Bbr, other]).measure_after(ms(10_000), ms(25_000));
        let share = measured.rates[0] / measured.total();
        assert!((0.3..0.75).contains(&share), "{other:?}: {share:.2}");
    }
}

/// What `count` flows of BBR that share a bottleneck take of it beside `rivals` of Cubic.
fn bbr_beside_cubic(link: Link, count: usize, rivals: usize) -> f64 {
    let mut world = World::new(link, &[]);
    for index in 0..rivals {
        world.add(Cubic, index, Instant::from_millis(1_000 + 130 * index as u64));
    }
    for index in 0..count {
        world.add(Bbr, 100, Instant::from_millis(170 * index as u64));
    }
    let measured = world.measure_after(ms(20_000), ms(60_000));
    assert_fills(&measured, &link, 0.98);
    measured.rates[rivals..].iter().sum::<f64>() / measured.total()
}

#[test]
fn bbr_paths_of_one_bottleneck_take_the_share_of_one_loss_based_flow() {
    for (mbps, rtt, buffer) in [(100.0, 14, 3.6), (20.0, 40, 2.0), (50.0, 20, 8.0)] {
        let link = Link::new(mbps, ms(rtt), buffer);
        for count in [1, 2, 4] {
            for rivals in [1, 3] {
                let times_fair = bbr_beside_cubic(link, count, rivals) * (rivals + 1) as f64;
                let case = format!("{count} beside {rivals} at {mbps} Mbit/s: {times_fair:.2}");
                assert!((0.5..=1.5).contains(&times_fair), "{case}");
            }
        }
    }
}

/// Share of the time in which paths compete that share a bottleneck unknown to their association.
fn competes(link: Link, associated: bool) -> f64 {
    let mut world = World::new(link, &[]);
    (0..4).for_each(|group| world.add(Bbr, group, Instant::from_millis(700 * group as u64)));
    if associated {
        world.associate();
    }
    let mut found = 0;
    for second in 5..65 {
        world.run_until(Instant::from_millis(second * 1_000));
        found += u32::from((0..4).any(|flow| world.state(flow) == "compete"));
    }
    f64::from(found) / 60.0
}

#[test]
fn bbr_paths_that_are_not_known_to_share_do_not_take_each_other_for_a_rival() {
    for (mbps, rtt, buffer) in [(100.0, 2, 20.0), (100.0, 14, 3.6), (20.0, 40, 2.0)] {
        let link = Link::new(mbps, ms(rtt), buffer);
        let [asked, apart] = [true, false].map(|associated| competes(link, associated));
        assert!(asked <= 0.1, "{asked} of the time at {mbps} Mbit/s, {rtt} ms");
        // Flows that cannot coordinate are rivals.
        assert!(apart >= 0.5, "{apart} of the time at {mbps} Mbit/s, {rtt} ms");
    }
}

#[test]
fn bbr_takes_the_link_back_when_its_rival_has_gone() {
    let link = Link::new(20.0, ms(40), 3.0);
    let mut world = World::new(link, &[Bbr, Cubic]);
    world.run_until(Instant::from_millis(20_000));
    assert_eq!(world.state(0), "compete");
    world.offer(1, 1_000.0, true);
    let alone = world.measure_after(ms(20_000), ms(5_000));
    assert_fills(&alone, &link, 0.95);
    assert_short_queue(&alone, &link, 0.5);
}

#[test]
fn bbr_that_competes_begins_anew_on_a_path_that_begins_to_jitter() {
    let mut world = World::new(Link::new(20.0, ms(40), 3.0), &[Bbr, Cubic]);
    world.run_until(Instant::from_millis(20_000));
    assert_eq!(world.state(0), "compete");
    world.set_jitter(ms(10));
    world.run_until(Instant::from_millis(20_200));
    assert_ne!(world.state(0), "compete");
    let measured = world.measure_after(ms(30_000), ms(10_000));
    assert!(measured.total() > 15e6 / 8.0, "{:?}", measured.rates);
}

#[test]
fn bbr_does_not_take_a_longer_path_for_a_rival() {
    let link = Link::new(20.0, ms(20), 10.0);
    let mut world = World::new(link, &[Bbr]);
    world.run_until(Instant::from_millis(10_000));
    world.set_rtt(ms(80));
    let longer = Link { rtt: ms(80), ..link };
    let measured = world.measure_after(ms(45_000), ms(10_000));
    assert_fills(&measured, &longer, 0.95);
    assert_short_queue(&measured, &longer, 0.3);
}

#[test]
fn loss_based_flows_share_a_link() {
    for kind in [Reno, Cubic] {
        let link = Link::new(10.0, ms(40), 1.0);
        let measured = World::new(link, &[kind, kind]).measure_after(ms(15_000), ms(40_000));
        assert!(jain(&measured.rates) >= 0.9, "{kind:?} {:?}", measured.rates);
    }
}

/// A flow of Reno beside `count` coupled ones; the rates of both sides.
fn beside_reno(kind: CongestionControlKind, count: usize) -> [f64; 2] {
    let mut world = World::new(Link::new(20.0, ms(40), 1.0), &[Reno]);
    for index in 0..count {
        world.add(kind, 1, Instant::from_millis(170 * (index as u64 + 1)));
    }
    let rates = world.measure_after(ms(15_000), ms(45_000)).rates;
    [rates[0], rates[1..].iter().sum()]
}

#[test]
fn coupled_flows_take_one_share_of_a_common_bottleneck() {
    for kind in [Lia, Olia, Balia] {
        for count in [2, 4] {
            let sides = beside_reno(kind, count);
            assert!(jain(&sides) >= 0.9, "{count} {kind:?}: {sides:?}");
        }
    }
    // What the coupling is for: without it four flows take four shares.
    let uncoupled = beside_reno(Reno, 4);
    assert!(jain(&uncoupled) < 0.9, "{uncoupled:?}");
}

#[test]
fn window_does_not_grow_while_it_is_not_used() {
    for kind in [Reno, Cubic, Lia, Olia, Balia] {
        let link = Link::new(100.0, ms(40), 1.0);
        let mut world = World::new(link, &[kind]);
        world.offer(0, link.rate / 10.0, true);
        world.run_until(Instant::from_millis(20_000));
        let window = world.window(0) as f64;
        // Slow start drains the initial backlog; the link would hold two bandwidth-delay products.
        assert!(window < 0.5 * link.bdp(), "{kind:?}: {window} of {}", link.bdp());
    }
}

#[test]
fn bbr_keeps_its_rate_while_little_is_offered() {
    for admits in [true, false] {
        let link = Link::new(20.0, ms(40), 1.5);
        let mut world = World::new(link, &[Bbr]);
        world.run_until(Instant::from_millis(3_000));
        world.offer(0, link.rate / 10.0, admits);
        world.run_until(Instant::from_millis(9_000));
        world.offer(0, f64::INFINITY, true);
        let measured = world.measure_after(ms(100), ms(1_000));
        assert_fills(&measured, &link, 0.95);
    }
}

#[test]
fn bbr_does_not_fall_behind_a_sender_that_wakes_late() {
    // Bursts of about 1 ms, each 0.15 ms late: at most 0.87 of any pacing rate can leave.
    let link =
        Link { burst: 9, lateness: Duration::from_micros(150), ..Link::new(100.0, ms(20), 1.0) };
    assert_fills(&alone(Bbr, link, 2_000, 5_000), &link, 0.85);
}

/// A controller whose window is in full use; each step is one round trip of 100 ms.
struct Steady {
    control: Box<dyn CongestionControl>,
    packet: u64,
    now: Instant,
    delivered: u64,
}

impl Steady {
    fn new(kind: CongestionControlKind) -> Self {
        Self::with_packets(kind, PACKET)
    }

    fn with_packets(kind: CongestionControlKind, packet: u64) -> Self {
        let now = Instant::from_millis(1_000);
        Self {
            control: super::new(kind, now, packet, &BbrParameters::default()),
            packet,
            now,
            delivered: 0,
        }
    }

    /// Sends a window. Returns its bytes.
    fn send(&mut self) -> u64 {
        let (window, packet) = (self.control.window(), self.packet);
        let mut sent = 0;
        while sent + packet <= window {
            self.control.on_sent(self.now, packet, sent);
            sent += packet;
        }
        sent
    }

    /// Feedback on a packet, and `lost` bytes before it, of the `sent` of a window. `left` bytes
    /// stay in flight.
    fn feedback(&self, rtt: Duration, lost: u64, sent: u64, left: u64) -> RateSample {
        RateSample {
            acked: self.packet,
            lost,
            lost_ranges: u64::from(lost > 0),
            prior_in_flight: left + self.packet + lost,
            in_flight: left,
            delivery_rate: Some(sent * 10),
            delivered: self.delivered,
            min_rtt: ms(100),
            ..RateSample::of_rtt(self.now, rtt)
        }
    }

    fn round(&mut self) -> u64 {
        let prior_delivered = self.delivered;
        let sent = self.send();
        self.now += ms(100);
        let mut left = sent;
        while left > 0 {
            left -= self.packet;
            self.delivered += self.packet;
            let sample = self.feedback(ms(100), 0, sent, left);
            self.control.on_feedback(&RateSample { prior_delivered, ..sample }, &[], 0);
        }
        self.control.window()
    }

    /// A round trip of `sent` bytes, whose sample is limited by the application and has what
    /// `change` makes of it. Returns whether Startup is over.
    fn ends_startup(
        &mut self,
        rtt: Duration,
        sent: u64,
        change: impl FnOnce(&mut RateSample),
    ) -> bool {
        let prior_delivered = self.delivered;
        self.now += rtt;
        self.delivered += sent;
        let sample = self.feedback(rtt, 0, sent, 0);
        let mut sample = RateSample { acked: sent, app_limited: true, prior_delivered, ..sample };
        change(&mut sample);
        self.control.on_feedback(&sample, &[], 0);
        self.control.state() != "startup"
    }

    fn lose(&mut self, ago: u64, persistent: bool, ecn: bool) -> u64 {
        let event = CongestionEvent {
            now: self.now,
            sent: self.now - ms(ago),
            lost: PACKET,
            persistent,
            ecn,
        };
        self.control.on_congestion(&event, &[], 0);
        self.control.window()
    }
}

/// With a minimum RTT that is too low, all that is in flight looks like a queue, and never drains.
#[test]
fn bbr_does_not_take_its_own_draining_for_a_slower_path() {
    let mut path = Steady::new(Bbr);
    let mut round = |rate: u64, rtt: u64| {
        let prior_delivered = path.delivered;
        let (sent, acked) = (path.send(), rate * rtt / 1_000);
        path.now += ms(rtt);
        path.delivered += acked;
        let sample = path.feedback(ms(rtt), 0, sent, 500_000);
        let delivery_rate = Some(rate);
        let sample = RateSample { prior_delivered, delivery_rate, acked, ..sample };
        path.control.on_feedback(&sample, &[], 0);
        path.control.state()
    };
    let mut rate = 100_000;
    while round(rate, 100) == "startup" {
        rate = (2 * rate).min(1_000_000);
    }
    let drains = (0..8).take_while(|_| {
        rate = rate * 9 / 10;
        round(rate, 300) == "drain"
    });
    assert_eq!(drains.count(), 8);
    assert_eq!(path.control.bandwidth(), Some(1_000_000));
}

#[test]
fn all_controllers_start_with_ten_packets_and_double() {
    for kind in [Bbr, Cubic, Reno, Lia, Olia, Balia] {
        let mut steady = Steady::new(kind);
        assert_eq!(steady.control.window(), 10 * PACKET, "{kind:?}");
        steady.round();
        assert_eq!(steady.round(), 40 * PACKET, "{kind:?}");
        assert!(["slow-start", "startup"].contains(&steady.control.state()));
        // At least twice what was last delivered, 20 packets per 100 ms.
        assert!(steady.control.pacing_rate().unwrap() >= 2 * 200 * PACKET, "{kind:?}");
    }
    let none =
        super::new(CongestionControlKind::None, Instant::ZERO, PACKET, &BbrParameters::default());
    assert_eq!((none.window(), none.pacing_rate()), (u64::MAX, None));
}

/// An interface may have an MTU of 65,535 bytes: a bridge of containers, or IP over InfiniBand.
#[test]
fn datagrams_may_be_as_long_as_ip_permits() {
    for kind in [Bbr, Cubic, Reno, Lia, Olia, Balia] {
        let mut steady = Steady::with_packets(kind, 65_535);
        let windows: Vec<u64> = (0..6).map(|_| steady.round()).collect();
        assert!(windows.is_sorted() && windows[0] >= 10 * 65_535, "{kind:?}: {windows:?}");
    }
}

/// A sender that does not use the whole window, over a path whose queue is empty now and then: no
/// round is late as a whole.
#[test]
fn packets_that_arrive_slower_than_they_left_end_startup() {
    let ends = |arrived_in: Duration| {
        let mut steady = Steady::new(Bbr);
        let times = Some((ms(100), arrived_in));
        let sent = 30 * steady.packet;
        (0..20).any(|_| {
            steady.ends_startup(ms(100), sent, |sample| sample.left_and_arrived_in = times)
        })
    };
    assert!(ends(ms(130)));
    assert!(!ends(ms(120)));
}

/// A sender with a rate of its own, which is a little above the path's: other paths carry the rest,
/// so that the window often has room.
#[test]
fn a_queue_that_stands_while_the_window_is_full_ends_startup() {
    let ends = |rtt: Duration, full: bool| {
        let mut steady = Steady::new(Bbr);
        steady.round();
        let rate = Some(5 * steady.packet);
        (0..20).any(|_| {
            let sent = if full { steady.send() } else { steady.control.window() / 2 };
            steady.ends_startup(rtt, sent, |sample| sample.delivery_rate = rate)
        })
    };
    assert!(ends(ms(200), true));
    assert!(!ends(ms(200), false), "the sender does not fill the window");
    assert!(!ends(ms(100), true), "nothing waits in a queue");
}

/// A queue of a few packets delays none, and drops the rear of every burst.
#[test]
fn a_round_of_many_short_losses_ends_startup_and_a_burst_of_loss_does_not() {
    let ends = |lost_ranges: u64| {
        let mut steady = Steady::new(Bbr);
        let (sent, lost) = (100 * steady.packet, 40 * steady.packet);
        let loses =
            |sample: &mut RateSample| (sample.lost, sample.lost_ranges) = (lost, lost_ranges);
        (0..2).any(|_| steady.ends_startup(ms(100), sent, loses))
    };
    assert!(ends(20));
    assert!(!ends(2));
}

#[test]
fn a_queue_that_overflows_ends_startup_before_the_round_is_over() {
    let ends = |lost: u64, rtt: Duration| {
        let mut steady = Steady::new(Bbr);
        for _ in 0..4 {
            steady.round();
        }
        assert_eq!(steady.control.state(), "startup");
        let prior_delivered = steady.delivered;
        let sent = steady.send();
        steady.now += rtt;
        let mut left = sent;
        // Half of the window, in less than a round trip.
        while left > sent / 2 {
            left -= steady.packet + lost;
            steady.delivered += steady.packet;
            steady.now += Duration::from_micros(200);
            let sample = steady.feedback(rtt, lost, sent, left);
            steady.control.on_feedback(&RateSample { prior_delivered, ..sample }, &[], 0);
        }
        steady.control.state() != "startup"
    };
    assert!(ends(PACKET, ms(180)));
    assert!(!ends(0, ms(180)), "it only grows");
    assert!(!ends(PACKET, ms(100)), "without a queue, loss is random");
}

#[test]
fn loss_reduces_the_window_once_per_round_trip() {
    for (kind, factor) in [(Reno, 0.5), (Lia, 0.5), (Olia, 0.5), (Balia, 0.5), (Cubic, 0.7)] {
        let mut steady = Steady::new(kind);
        steady.round();
        let window = steady.round() as f64;
        let reduced = steady.lose(50, false, false);
        assert_eq!(reduced, (window * factor) as u64, "{kind:?}");
        assert_eq!(steady.control.state(), "recovery");
        assert_eq!(steady.lose(20, false, false), reduced, "{kind:?}: same episode");
        // What left in the episode ends it; then congestion avoidance adds about one packet.
        steady.round();
        let grown = steady.round();
        assert!(grown > reduced && grown < reduced + 3 * PACKET, "{kind:?} {grown} {reduced}");
        assert_eq!(steady.control.state(), "congestion-avoidance");
        assert!(steady.lose(0, false, true) < grown, "{kind:?}: a mark is a loss");
    }
}

#[test]
fn reno_adds_one_packet_per_round_trip() {
    let mut steady = Steady::new(Reno);
    steady.round();
    steady.lose(0, false, false);
    steady.round();
    let before = steady.round();
    let after = steady.round();
    assert!((after - before).abs_diff(PACKET) < PACKET / 4, "{before} {after}");
}

#[test]
fn spurious_loss_gives_the_window_back() {
    for kind in [Reno, Cubic, Lia, Olia, Balia] {
        let mut steady = Steady::new(kind);
        let window = steady.round();
        assert!(steady.lose(0, false, false) < window);
        steady.control.on_spurious(steady.now);
        assert_eq!(steady.control.window(), window, "{kind:?}");
        assert_eq!(steady.control.state(), "slow-start");
        steady.control.on_spurious(steady.now);
        assert_eq!(steady.control.window(), window, "{kind:?}: only once");
    }
}

#[test]
fn persistent_congestion_leaves_the_minimum() {
    for (kind, packets) in [(Reno, 2), (Cubic, 2), (Lia, 2), (Olia, 2), (Balia, 2), (Bbr, 4)] {
        let mut steady = Steady::new(kind);
        for _ in 0..4 {
            steady.round();
        }
        assert_eq!(steady.lose(0, true, false), packets * PACKET, "{kind:?}");
        assert!(["slow-start", "startup"].contains(&steady.control.state()), "{kind:?}");
        assert!(steady.round() > packets * PACKET, "{kind:?}");
    }
}

#[test]
fn bbr_begins_with_what_an_idle_path_has_shown_to_hold() {
    let begins = |packets: u64, failed: bool| {
        let mut path = Steady::new(Bbr);
        if failed {
            path.lose(0, true, false);
        }
        let capacity = Some(packets * PACKET * 50);
        let sample = RateSample { capacity, ..RateSample::of_rtt(path.now, ms(20)) };
        path.control.on_feedback(&sample, &[], 0);
        let pacing = path.control.pacing_rate().expect("it paces");
        (path.control.window() / PACKET, pacing / (PACKET * 50))
    };
    assert_eq!(begins(5, false), (10, 27), "never less than ten packets");
    assert_eq!(begins(20, false), (20, 27));
    assert_eq!(begins(30, false), (30, 30), "as fast as the link at most");
    assert_eq!(begins(1_000, false), (32, 88), "as fast as with ten packets, in proportion");
    assert_eq!(begins(1_000, true), (4, 27), "persistent congestion");
}

#[test]
fn bbr_reacts_to_ecn_and_undoes_spurious_reactions() {
    let mut steady = Steady::new(Bbr);
    while steady.round() < 100 * PACKET {}
    steady.lose(0, false, true);
    let bounded = steady.round();
    assert_eq!(steady.control.state(), "probe-bw-cruise");
    assert!(bounded < 2 * 100 * PACKET, "{bounded}");
    steady.control.on_spurious(steady.now);
    assert!(steady.round() > bounded);
}

#[test]
fn bbr_takes_back_its_last_answer_only() {
    let mut steady = Steady::new(Bbr);
    while steady.round() < 100 * PACKET {}
    steady.lose(0, false, true);
    steady.round();
    steady.lose(0, false, false);
    steady.control.on_spurious(steady.now);
    steady.round();
    assert_ne!(steady.control.state(), "startup", "of the mark nothing was spurious");
}
