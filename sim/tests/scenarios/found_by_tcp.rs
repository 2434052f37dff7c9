//! Nodes that are not configured find each other where UDP is blocked, by segments that look like
//! TCP, and have the settings of their configuration.
//!
//! ```text
//!  alice ══ 10 Mbit/s, 10 ms ══ bob        alice's interface drops our UDP until 15 s
//! ```

use crate::common::{assert_sound, both, link, observed};
use mpip_core::{CongestionControlKind, Encapsulation, EncapsulationPolicy, PathState};
use mpip_sim::clock::{Nanos, SECOND};
use mpip_sim::spec::{Action, Mode, WorldSpec};
use mpip_sim::world::World;

const UNBLOCKED: Nanos = 15 * SECOND;

fn world(policy: EncapsulationPolicy) -> World {
    let spec = WorldSpec::disjoint(23, &[both(link(10, 10, 50))]).with_engines(|engine| {
        engine.mode = Mode::Opportunistic;
        engine.encapsulation = policy;
        engine.congestion_control = CongestionControlKind::Cubic;
    });
    let interface = spec.interface(0, 0);
    let spec = spec
        .lasting(30 * SECOND)
        .at(0, Action::BlockUdp { interface, blocked: true })
        .at(UNBLOCKED, Action::BlockUdp { interface, blocked: false });
    observed(spec.with_bulk(SECOND, 1 << 20))
}

/// The encapsulations of working paths of `host`, and the congestion control.
fn found(world: &World, host: usize) -> Option<(Vec<Encapsulation>, &'static str)> {
    let status = world.status(host)?;
    let peer = status.peers.iter().find(|peer| peer.established)?;
    let works = peer.paths.iter().filter(|path| path.state == PathState::Active);
    Some((works.map(|path| path.encapsulation).collect(), peer.congestion_control))
}

#[test]
fn nodes_find_each_other_by_tcp_and_return_to_udp() {
    let mut world = world(EncapsulationPolicy::Auto);
    world.run_until(10 * SECOND);
    for host in 0..2 {
        let expected = (vec![Encapsulation::Tcp], "cubic");
        assert_eq!(found(&world, host), Some(expected), "host {host}");
    }
    let before = world.flow_bytes(0);
    world.run_until(UNBLOCKED);
    let rate = (world.flow_bytes(0) - before) as f64 * 8.0 / 5.0;
    assert!(rate > 7e6, "the path carries the transfer: {rate} bit/s");

    world.run_until(28 * SECOND);
    let expected = vec![Encapsulation::Udp];
    assert_eq!(found(&world, 0).map(|(kinds, _)| kinds), Some(expected));
    world.finish();
    assert_sound(&world);
}

#[test]
fn where_the_configuration_permits_udp_alone_they_stay_plain_until_it_passes() {
    let mut world = world(EncapsulationPolicy::Udp);
    world.run_until(UNBLOCKED);
    assert_eq!((found(&world, 0), found(&world, 1)), (None, None));
    assert!(world.flow_bytes(0) > 1 << 20, "plain IP carries the transfer");
    world.finish();
    assert_sound(&world);
}
