//! Heavy jitter reorders within a path; it is not loss, and TCP sees none of it.

mod common;

use core::time::Duration;

use common::{assert_sound, client_and_gateway, link, observed};
use mpip_link::LinkConfig;
use mpip_sim::clock::SECOND;

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
    for path in &status.peers[0].paths {
        let lost = path.packets_lost as f64 / path.packets_sent as f64;
        assert!(lost < 0.02, "path {} declared {lost} lost", path.id);
    }
}
