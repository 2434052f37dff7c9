//! New keys every 120 s, without a packet lost, repeated or out of place.

use crate::common::{assert_sound, both, client_and_gateway, link, observed};
use mpip_core::Event;
use mpip_sim::clock::SECOND;

#[test]
fn new_keys_cost_no_packet() {
    let paths = [both(link(10, 10, 100)), both(link(10, 30, 100))];
    let spec = client_and_gateway(5, &paths).lasting(400 * SECOND);
    let spec = spec.with_udp(SECOND, 500, 400_000).with_ping(SECOND, SECOND / 10);
    let mut world = observed(spec);
    world.run_until(380 * SECOND);
    let age = world.status(0).expect("an engine").peers[0].handshake_age.expect("keys");
    assert!(age.as_secs() < 130, "the keys are {age:?} old");
    world.finish();
    assert_sound(&world);
    for flow in 0..2 {
        let report = world.flow(flow);
        assert!(report.sent > 3_900, "{}", report.sent);
        assert_eq!(report.delivered, report.sent, "flow {flow}");
    }
    for host in 0..2 {
        let lost = world
            .events(host)
            .iter()
            .filter(|(_, event)| matches!(event, Event::Lost { .. } | Event::PeerRestarted { .. }));
        assert_eq!(lost.count(), 0, "host {host} noticed more than new keys");
    }
}
