//! Who records, repeats, corrupts and forges datagrams changes nothing.

use crate::common::{assert_sound, both, client_and_gateway, link, observed};
use mpip_core::Event;
use mpip_sim::clock::{MILLI, SECOND};
use mpip_sim::spec::{Action, Traffic};
use mpip_sim::world::World;

fn run(attack: impl Fn(u64) -> Vec<Action>) -> World {
    let paths = [both(link(10, 10, 200)), both(link(10, 20, 200))];
    let mut spec = client_and_gateway(8, &paths).lasting(8 * SECOND);
    for moment in 0..60 {
        for action in attack(moment) {
            spec = spec.at(SECOND + moment * 100 * MILLI, action);
        }
    }
    spec = spec.with_udp(SECOND / 2, 800, 2_000_000).with_bulk(SECOND / 2, 256 << 10);
    spec.flows[1].traffic = Traffic::Tcp { bytes: Some(2_000_000), window: 256 << 10 };
    let mut world = observed(spec);
    world.finish();
    assert_sound(&world);
    assert!(world.flow(1).finished);
    assert_eq!(world.flow(0).delivered, world.flow(0).sent, "no packet of the user is lost");
    world
}

/// Changes of the association that an observer sees.
fn changes(world: &World, host: usize) -> Vec<String> {
    let events = world.events(host).iter();
    let changes = events.filter(|(_, event)| !matches!(event, Event::HandshakeRefused { .. }));
    changes.map(|(_, event)| event.to_string()).collect()
}

#[test]
fn replayed_corrupted_and_forged_datagrams_are_harmless() {
    let quiet = run(|_| Vec::new());
    let spoofed = Some("198.18.255.7:4444".parse().unwrap());
    let attacked = run(|moment| {
        vec![
            Action::Replay { count: 10, spoofed: None, corrupt: false },
            Action::Replay { count: 10, spoofed, corrupt: false },
            Action::Replay { count: 10, spoofed: None, corrupt: true },
            Action::Garbage { host: (moment % 2) as usize, count: 5 },
        ]
    });
    for host in 0..2 {
        assert_eq!(changes(&attacked, host), changes(&quiet, host), "host {host}");
    }
}
