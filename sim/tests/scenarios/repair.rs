//! What is lost of UDP is sent again where a rule asks for it, and only there.

use core::time::Duration;

use crate::common::{assert_sound, both, client_and_gateway, link, observed};
use mpip_core::{Priority, Rule};
use mpip_link::{Change, LinkConfig, Loss};
use mpip_sim::clock::{MILLI, Nanos, SECOND};
use mpip_sim::spec::Action;

/// Packets sent and delivered of 4 Mbit/s of UDP over two paths that lose 5 %.
fn delivered(repair: bool) -> (u64, u64) {
    let lossy = || LinkConfig { loss: Loss::Random(0.05), ..link(10, 10, 100) };
    let rule = Rule {
        protocol: Some(17),
        priority: Some(Priority::Throughput),
        repair,
        ..Rule::default()
    };
    let spec = client_and_gateway(3, &[(lossy(), link(10, 10, 100)), both(lossy())])
        .with_engines(|engine| engine.rules = vec![rule.clone()])
        .lasting(6 * SECOND)
        .with_udp(SECOND, 1_000, 4_000_000);
    let mut world = observed(spec);
    world.run_until(7 * SECOND + 500 * MILLI);
    assert_sound(&world);
    let flow = world.flow(0);
    (flow.sent, flow.delivered)
}

#[test]
fn udp_is_repaired_by_rule() {
    let (sent, came) = delivered(true);
    assert!(sent > 2_000 && came as f64 >= 0.995 * sent as f64, "{came} of {sent}");
    let (sent, came) = delivered(false);
    let share = came as f64 / sent as f64;
    assert!((0.92..0.97).contains(&share), "{came} of {sent}");
}

/// The delay that 99 of 100 packets stay below, of 4 Mbit/s in order over two paths that take 50
/// ms, jitter and lose 1 %. Mean of four worlds; `deviations` as in the parameter of early repair.
fn delay_in_order(deviations: f64) -> Duration {
    let path = || LinkConfig {
        jitter: Duration::from_millis(15),
        loss: Loss::Random(0.01),
        ..link(10, 50, 100)
    };
    let rule = Rule { protocol: Some(17), ordered: Some(true), repair: true, ..Rule::default() };
    let delay = |seed| -> Nanos {
        let spec = client_and_gateway(seed, &[both(path()), both(path())])
            .with_engines(|engine| {
                engine.rules = vec![rule.clone()];
                engine.parameters.transport.early_repair.deviations = deviations;
            })
            .lasting(20 * SECOND)
            .with_udp(SECOND, 1_000, 4_000_000);
        let mut world = observed(spec);
        world.run_until(22 * SECOND);
        assert_sound(&world);
        let mut delays = world.flow(0).delays.clone();
        delays.sort_unstable();
        delays[delays.len() * 99 / 100]
    };
    Duration::from_nanos((1..=4).map(delay).sum::<Nanos>() / 4)
}

#[test]
fn what_follows_a_lost_packet_waits_less_where_late_packets_are_repaired_early() {
    let (early, never) = (delay_in_order(3.0), delay_in_order(1e6));
    assert!(early + Duration::from_millis(10) < never, "{early:?}, {never:?}");
}

/// The delays of `rate` Mbit/s of UDP in order, sorted, over a path of `near` Mbit/s and 10 ms and
/// one of 20 Mbit/s and 200 ms that loses `loss`. The far path loses everything for `outage` ns.
fn delays_beside_a_near_path(near: u64, rate: u64, loss: Loss, outage: Nanos) -> Vec<Duration> {
    let rule = Rule {
        protocol: Some(17),
        priority: Some(Priority::Throughput),
        ordered: Some(true),
        repair: true,
        ..Rule::default()
    };
    let far = (LinkConfig { loss, ..link(20, 200, 200) }, link(20, 200, 100));
    let lossy = |loss| Change { loss: Some(loss), ..Change::default() };
    let forward = 2;
    let mut world = observed(
        client_and_gateway(5, &[both(link(near, 10, 100)), far])
            .with_engines(|engine| engine.rules = vec![rule.clone()])
            .lasting(30 * SECOND)
            .with_udp(10 * SECOND, 1_000, rate * 1_000_000)
            .at(25 * SECOND, Action::Link { link: forward, change: lossy(Loss::Random(1.0)) })
            .at(25 * SECOND + outage, Action::Link { link: forward, change: lossy(loss) }),
    );
    world.run_until(32 * SECOND);
    assert_sound(&world);
    let delays = &world.flow(0).delays;
    // The first half of the time is for the paths to find their rates.
    let settled = delays[delays.len() / 2..].iter().copied();
    let mut delays: Vec<_> = settled.map(Duration::from_nanos).collect();
    delays.sort_unstable();
    delays
}

#[test]
fn what_a_far_path_loses_is_sent_again_by_a_near_one_however_busy_that_is() {
    let delays = delays_beside_a_near_path(8, 12, Loss::Random(0.02), 0);
    // The far path reports a loss after 400 ms, and would take 200 ms more.
    let late = delays[delays.len() * 95 / 100];
    assert!(late < Duration::from_millis(500), "{late:?}");
}

#[test]
fn many_packets_that_a_far_path_loses_do_not_all_wait_for_a_slow_near_one() {
    // About 340 packets, for which the near path alone takes 2.7 s.
    let delays = delays_beside_a_near_path(1, 10, Loss::None, 300 * MILLI);
    let longest = delays[delays.len() - 1];
    assert!(longest < Duration::from_millis(950), "{longest:?}");
}
