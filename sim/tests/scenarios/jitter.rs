//! Heavy jitter reorders within a path; it is not loss, and TCP sees none of it.

use core::time::Duration;

use crate::common::{assert_sound, both, client_and_gateway, link, observed};
use mpip_core::PathStatus;
use mpip_link::{LinkConfig, QueueLimit};
use mpip_sim::clock::{MILLI, Nanos, SECOND};
use mpip_sim::spec::WorldSpec;
use mpip_sim::traffic::quantile;
use mpip_sim::world::{Observe, World};

#[test]
fn jitter_is_not_loss() {
    let jittery = LinkConfig { jitter: Duration::from_millis(5), ..link(10, 20, 200) };
    let paths = [(jittery.clone(), jittery.clone()), (jittery.clone(), jittery)];
    let spec = client_and_gateway(2, &paths).lasting(20 * SECOND);
    let mut world = observed(spec.with_udp(SECOND, 1_000, 4_000_000));
    world.finish();
    assert_sound(&world);
    assert_eq!(world.flow(0).delivered, world.flow(0).sent);
    let reordered: u64 = (0..2).map(|n| world.network().link_counters(2 * n).reordered).sum();
    assert!(reordered > 500, "the links reordered only {reordered} packets");
    let status = world.status(0).expect("an engine");
    let count = |of: fn(&PathStatus) -> u64| status.peers[0].paths.iter().map(of).sum::<u64>();
    let (lost, sent) = (count(|path| path.packets_lost), count(|path| path.packets_sent));
    assert!(lost as f64 / (sent as f64) < 0.002, "{lost} of {sent} were declared lost");
}

/// Two paths of `rate` bit/s and queues of `packets`: one takes 200 ms, give or take 42 ms, the
/// other is short and jitters little. Sends what both carry; returns the share of it that arrives,
/// the mean over some worlds.
fn carried(rate: u64, packets: u32) -> f64 {
    let path = |delay: u64, jitter: u64| {
        let one_way = LinkConfig {
            rate: Some(rate),
            queue: QueueLimit::Packets(packets),
            delay: Duration::from_millis(delay),
            jitter: Duration::from_millis(jitter),
            ..LinkConfig::default()
        };
        (one_way.clone(), one_way)
    };
    let paths = [path(100, 30), path(5, 2)];
    let share = |seed| {
        let spec = WorldSpec::disjoint(seed, &paths).lasting(22 * SECOND);
        let mut world = World::new(spec.with_udp(2 * SECOND, 1_400, 2 * rate), Observe::default());
        world.run_until(22 * SECOND);
        world.flow(0).delivered as f64 * 1_400.0 * 8.0 / 20.0 / (2 * rate) as f64
    };
    (0..4).map(share).sum::<f64>() / 4.0
}

/// Were one packet's round trip taken for the path's, 0.907 and 0.876 of the paths would be used;
/// were delivery rates taken over one round trip too, 0.897 and 0.746.
#[test]
fn paths_that_jitter_are_filled() {
    for (rate, packets, least) in [(9_300_000, 100, 0.925), (40_000_000, 400, 0.895)] {
        let share = carried(rate, packets);
        assert!(share > least, "{rate} bit/s: {share:.3}");
    }
}

/// The 95th percentile of a ping beside a transfer over 4 Mbit/s with 3 ms and some jitter, whose
/// queue takes 450 ms; the median of some worlds.
fn ping_beside_a_transfer() -> Nanos {
    let path = both(LinkConfig { jitter: Duration::from_millis(1), ..link(4, 3, 150) });
    let ping = |seed| {
        let spec = WorldSpec::disjoint(seed, std::slice::from_ref(&path))
            .lasting(16 * SECOND)
            .with_bulk(SECOND, 16_000_000)
            .with_ping(5 * SECOND, SECOND / 10);
        let mut world = World::new(spec, Observe::default());
        world.run_until(16 * SECOND);
        quantile(&world.flow(1).delays, 0.95).expect("answers arrived")
    };
    let mut pings: Vec<_> = (1..=3).map(ping).collect();
    pings.sort_unstable();
    pings[1]
}

/// A sample is the mean over many packets there, of which most have waited when a queue is drained.
/// If it counted as the empty path, a ping would take 85 ms.
#[test]
fn a_queue_does_not_stay_because_samples_are_means() {
    let ping = ping_beside_a_transfer();
    assert!(ping < 60 * MILLI, "{ping} ns");
}
