//! What the scenarios share.

use core::ops::Range;
use core::time::Duration;

use mpip_link::{LinkConfig, QueueLimit};
use mpip_sim::clock::{Nanos, SECOND};
use mpip_sim::measure::{Measurement, Scenario, Subject, limit, measure};
use mpip_sim::packet::protocol;
use mpip_sim::spec::{FlowSpec, System, TcpControl, Traffic, WorldSpec};
use mpip_sim::world::{Observe, World};

/// A link of `rate` Mbit/s and `delay` ms with a queue of `queue` packets.
pub(crate) fn link(rate: u64, delay: u64, queue: u32) -> LinkConfig {
    LinkConfig {
        rate: Some(rate * 1_000_000),
        delay: Duration::from_millis(delay),
        queue: QueueLimit::Packets(queue),
        ..LinkConfig::default()
    }
}

/// The same link in both directions.
pub(crate) fn both(config: LinkConfig) -> (LinkConfig, LinkConfig) {
    (config.clone(), config)
}

/// Two hosts over `paths`, the first of which calls the second.
pub(crate) fn client_and_gateway(seed: u64, paths: &[(LinkConfig, LinkConfig)]) -> WorldSpec {
    let mut spec = WorldSpec::disjoint(seed, paths);
    if let System::Mpip(engine) = &mut spec.hosts[1].system {
        engine.knows_peer = false;
    }
    spec
}

/// UDP of `rate` Mbit/s from a host to the other, between two times.
pub(crate) fn stream(from: usize, rate: u64, (start, stop): (Nanos, Nanos)) -> FlowSpec {
    let size = 1_200;
    let traffic = Traffic::Packets {
        protocol: protocol::UDP,
        size: (size, size),
        interval: size as u64 * 8 * SECOND / (rate * 1_000_000),
        ecn: 0,
        segments: 1,
    };
    FlowSpec { from, to: 1 - from, start, stop, v6: false, traffic }
}

/// Mbit/s that `host` sends on each of its interfaces, IP headers included, between two times. The
/// world has not passed the first.
pub(crate) fn rates(world: &mut World, host: usize, from: Nanos, to: Nanos) -> [f64; 2] {
    // The interfaces of the second host follow those of the first.
    let sent = |world: &World| [0, 1].map(|path| world.interface_bytes(host, host * 2 + path));
    world.run_until(from);
    let before = sent(world);
    world.run_until(to);
    let after = sent(world);
    let seconds = (to - from) as f64 / SECOND as f64;
    [0, 1].map(|path| (after[path] - before[path]) as f64 * 8.0 / 1e6 / seconds)
}

/// A world in which every packet is checked and every choice of a path noted.
pub(crate) fn observed(spec: WorldSpec) -> World {
    World::new(spec, Observe { packets: true, choices: true, trace: false })
}

/// Nothing was wrong in `world`.
pub(crate) fn assert_sound(world: &World) {
    let found: Vec<_> = world.violations().iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// Share of the physical limit that a transfer through mpip reaches, and all that was measured.
/// Nothing was wrong meanwhile.
pub(crate) fn share_of_limit(scenario: &Scenario) -> (f64, Measurement) {
    let found = measure(scenario, Subject::MPIP);
    assert!(found.violations.is_empty(), "{scenario:?}: {:?}", found.violations);
    (found.goodput / limit(&scenario.paths).expect("the links have a rate"), found)
}

/// That share of CUBIC over paths of these `rates` (Mbit/s), all with a round trip of 40 ms and
/// queues of as many `packets`, within these `seconds` of the transfer.
pub(crate) fn share_of_equal_paths(rates: &[u64], packets: u32, seconds: Range<u64>) -> f64 {
    let scenario = Scenario {
        paths: rates.iter().map(|rate| both(link(*rate, 20, packets))).collect(),
        sender: TcpControl::CUBIC.into(),
        duration: seconds.end * SECOND,
        from: seconds.start * SECOND,
        seed: 1,
    };
    share_of_limit(&scenario).0
}

/// The median of that share over three seeds, in place of the scenario's own.
pub(crate) fn median_share(scenario: &Scenario, seeds: [u64; 3]) -> f64 {
    let mut shares = seeds.map(|seed| share_of_limit(&Scenario { seed, ..scenario.clone() }).0);
    shares.sort_by(f64::total_cmp);
    shares[1]
}
