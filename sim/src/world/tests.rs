//! Tests of the world itself on hosts without mpip: it detects violations of guarantees that plain
//! IP does not give.

use core::time::Duration;

use mpip_core::{Offload, Policy};
use mpip_link::{LinkConfig, Loss};

use super::*;
use crate::clock::{HostClock, SECOND};
use crate::packet::protocol;
use crate::spec::{FlowSpec, HostSpec, Mode, inner_address};

fn plain(forward: LinkConfig, flows: &[Traffic]) -> World {
    let back = LinkConfig { delay: forward.delay, rate: forward.rate, ..LinkConfig::default() };
    let mut spec = WorldSpec::disjoint(1, &[(forward, back)]).plain(0).lasting(5 * SECOND);
    for traffic in flows {
        let traffic = traffic.clone();
        spec.add_flow(FlowSpec { from: 0, to: 1, start: 0, stop: 4 * SECOND, v6: false, traffic });
    }
    let mut world = World::new(spec, Observe { packets: true, trace: true, choices: true });
    world.ledger = Ledger::new(SECOND);
    world
}

fn udp() -> Traffic {
    Traffic::Packets {
        protocol: protocol::UDP,
        size: (100, 1_000),
        interval: MILLI,
        ecn: 2,
        segments: 1,
    }
}

fn broken(world: &World) -> Vec<Invariant> {
    let mut found: Vec<_> = world.violations().iter().map(|found| found.invariant).collect();
    found.sort();
    found.dedup();
    found
}

fn link() -> LinkConfig {
    LinkConfig { rate: Some(10_000_000), delay: Duration::from_millis(5), ..LinkConfig::default() }
}

#[test]
fn a_clean_link_breaks_nothing() {
    let tcp = Traffic::Tcp { bytes: Some(500_000), window: 65_536 };
    let mut world = plain(link(), &[tcp, udp()]);
    world.finish();
    assert_eq!(broken(&world), []);
    assert!(world.flow(0).finished && world.flow(0).bytes == 500_000);
    assert_eq!(world.flow(1).sent, world.flow(1).delivered);
    assert_eq!(world.flow(1).delivered, 4_000);
}

#[test]
fn loss_is_repaired_by_tcp_alone() {
    let tcp = Traffic::Tcp { bytes: Some(500_000), window: 65_536 };
    let mut world = plain(LinkConfig { loss: Loss::Random(0.02), ..link() }, &[tcp, udp()]);
    world.finish();
    assert_eq!(broken(&world), []);
    assert!(world.flow(0).finished);
    assert!(world.flow(1).delivered < world.flow(1).sent);
}

#[test]
fn duplicates_on_plain_ip_are_seen() {
    let mut world = plain(LinkConfig { duplicate: 0.1, ..link() }, &[udp()]);
    world.finish();
    assert_eq!(broken(&world), [Invariant::NoDuplicate]);
}

#[test]
fn flipped_bits_on_plain_ip_are_seen() {
    let mut world = plain(LinkConfig { corrupt: 0.1, ..link() }, &[udp()]);
    world.finish();
    assert_eq!(broken(&world), [Invariant::Unaltered]);
}

#[test]
fn reordering_on_plain_ip_is_seen() {
    let segments = Traffic::Packets {
        protocol: protocol::TCP,
        size: (500, 500),
        interval: MILLI,
        ecn: 0,
        segments: 1,
    };
    let mut world =
        plain(LinkConfig { jitter: Duration::from_millis(3), ..link() }, &[segments, udp()]);
    world.finish();
    assert_eq!(broken(&world), [Invariant::InOrder]);
}

#[test]
fn a_transfer_without_a_way_does_not_complete() {
    let tcp = Traffic::Tcp { bytes: Some(500_000), window: 65_536 };
    let mut world = plain(link(), &[tcp]);
    world.network.remove_address(1, crate::spec::outer_address(1, 0, 0, false));
    world.finish();
    assert_eq!(broken(&world), [Invariant::Completion]);
}

#[test]
fn a_ping_takes_both_ways() {
    let spec = WorldSpec::disjoint(1, &[(link(), link())]).plain(0).with_ping(0, 100 * MILLI);
    let mut world = World::new(spec, Observe::default());
    world.finish();
    let report = world.flow(0);
    assert_eq!((report.sent, report.delivered), (100, 100));
    let serialisation = (84 + 14) * 8 * SECOND / 10_000_000;
    assert!(report.delays.iter().all(|delay| *delay == 10 * MILLI + 2 * serialisation));
}

#[test]
fn a_world_repeats_to_the_last_line_of_its_trace() {
    let run = || {
        let tcp = Traffic::Tcp { bytes: Some(100_000), window: 65_536 };
        let config = LinkConfig {
            loss: Loss::Random(0.05),
            jitter: Duration::from_millis(2),
            duplicate: 0.05,
            ..link()
        };
        let mut world = plain(config, &[tcp, udp()]);
        world.run_until(3 * SECOND);
        (world.trace().to_vec(), world.choices().to_vec())
    };
    let (trace, choices) = run();
    assert!(trace.len() > 3_000 && choices.len() > 3_000);
    assert_eq!((trace, choices), run());
}

/// A packet between two addresses.
fn packet(source: core::net::IpAddr, destination: core::net::IpAddr) -> Vec<u8> {
    let shape = crate::packet::Shape {
        protocol: protocol::UDP,
        source: SocketAddr::new(source, 4_000),
        destination: SocketAddr::new(destination, 5_000),
        ecn: 0,
    };
    let mut bytes = Vec::new();
    crate::packet::build(&shape, 1, 1, 100, &mut bytes);
    bytes
}

#[test]
fn a_plain_packet_that_the_policy_holds_back_is_noticed() {
    for (policy, expected) in
        [(Policy::Prefer, vec![]), (Policy::Require, vec![Invariant::NoPlain])]
    {
        let spec = WorldSpec::disjoint(1, &[(link(), link())])
            .with_engines(|engine| engine.mode = Mode::Host(policy));
        let ends = [0, 1].map(|host| spec.endpoints(host)[0].ip());
        let mut world = World::new(spec, Observe::default());
        world.send_plain(0, &packet(ends[0], ends[1]), Offload::default());
        assert_eq!(broken(&world), expected);
    }
}

#[test]
fn a_packet_that_a_peer_may_not_send_to_the_host_is_noticed() {
    let mut spec = WorldSpec::disjoint(1, &[(link(), link())]);
    spec.hosts.push(HostSpec {
        name: "mallory".to_owned(),
        clock: HostClock { offset: Duration::ZERO, drift: 0 },
        system: System::Hostile(Box::default()),
    });
    let world = World::new(spec, Observe::default());
    let inner = |host| inner_address(host, false);
    let reach = |source, destination| world.check_reach(0, &packet(source, destination));
    assert_eq!(reach(inner(2), inner(0)), Ok(()));
    let foreign = "198.18.250.1".parse().unwrap();
    for (source, destination) in
        [(inner(2), inner(1)), (inner(2), foreign), (foreign, inner(0)), (inner(0), inner(0))]
    {
        let found = reach(source, destination).map_err(|(invariant, _)| invariant);
        assert_eq!(found, Err(Invariant::Reach), "{source} to {destination}");
    }
}
