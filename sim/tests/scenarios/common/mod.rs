//! What the scenarios share.

use core::time::Duration;

use mpip_link::{LinkConfig, QueueLimit};
use mpip_sim::spec::{System, WorldSpec};
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

/// A world in which every packet is checked and every choice of a path noted.
pub(crate) fn observed(spec: WorldSpec) -> World {
    World::new(spec, Observe { packets: true, choices: true, trace: false })
}

/// Nothing was wrong in `world`.
pub(crate) fn assert_sound(world: &World) {
    let found: Vec<_> = world.violations().iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{found:#?}");
}
