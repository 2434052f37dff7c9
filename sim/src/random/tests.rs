//! The random worlds cover every kind, and hostile nodes establish associations.

use std::collections::BTreeMap;

use super::*;
use crate::invariant::Invariant;
use crate::world::{Observe, World};

/// The seeds that the tests run.
const WORLDS: u64 = 1_000;

fn hostile_of(spec: &WorldSpec) -> Option<&HostileSpec> {
    spec.hosts.iter().find_map(|host| match &host.system {
        System::Hostile(hostile) => Some(&**hostile),
        System::Mpip(_) | System::Plain { .. } => None,
    })
}

#[test]
fn worlds_of_every_kind_are_run() {
    let mut counts = BTreeMap::<_, u32>::new();
    let mut lies = BTreeMap::<_, u32>::new();
    for seed in 0..WORLDS {
        let spec = random_world(seed);
        let System::Mpip(engine) = &spec.hosts[0].system else { panic!("a node") };
        let mut count = |kind| *counts.entry(kind).or_default() += 1;
        count(match engine.mode {
            Mode::Tunnel => "tunnel",
            Mode::Host(Policy::Require) => "host mode, require",
            Mode::Host(_) => "host mode",
            Mode::Opportunistic => "opportunistic",
        });
        if engine.encapsulation != EncapsulationPolicy::Udp {
            count("TCP");
        }
        if !engine.interfaces.costs.is_empty() {
            count("costs");
        }
        if !engine.interfaces.rates_up.is_empty() {
            count("rates");
        }
        if let Some(hostile) = hostile_of(&spec) {
            count(if hostile.configured { "hostile peer" } else { "hostile stranger" });
            hostile.lies.iter().for_each(|lie| *lies.entry(*lie).or_default() += 1);
        }
    }
    assert_eq!(counts.len(), 9, "{counts:?}");
    assert!(counts.values().all(|count| *count >= 30), "{counts:?}");
    assert!(Lie::ALL.iter().all(|lie| lies[lie] >= 30), "{lies:?}");
}

/// Lies that do not authenticate would test nothing.
#[test]
fn what_hostile_nodes_say_is_authentic() {
    let (mut peers, mut strangers) = ((0, 0), (0, 0));
    for seed in 0..150 {
        let spec = random_world(seed);
        let Some(hostile) = hostile_of(&spec).filter(|hostile| hostile.calls) else { continue };
        let (last, configured) = (spec.hosts.len() - 1, hostile.configured);
        let mut world = World::new(spec, Observe::default());
        let node = crate::keys::public_key(last).node_id();
        // Some associations end soon and start anew.
        let opened = (1..=30).any(|tenth| {
            world.run_until(tenth * SECOND / 10);
            let status = world.status(0).expect("a node");
            let mut found = status.peers.iter().filter(|peer| peer.node == node);
            found.any(|peer| peer.paths.iter().any(|path| path.packets_received >= 20))
        });
        let counted = if configured { &mut peers } else { &mut strangers };
        counted.0 += 1;
        counted.1 += u32::from(opened);
        assert!(world.violations().iter().all(|found| found.invariant != Invariant::NoPanic));
    }
    assert!(peers.0 >= 20 && peers.1 * 10 >= peers.0 * 6, "{peers:?}");
    assert!(strangers.0 >= 3 && strangers.1 >= 1, "{strangers:?}");
}
