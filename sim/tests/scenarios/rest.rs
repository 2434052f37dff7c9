//! An association that carries nothing rests: few datagrams, and the way in stays open.
//!
//! ```text
//!  alice ── NAT ══ 10 Mbit/s ══ bob        both NATs forget mappings without packets for
//!        ── NAT ══ 10 Mbit/s ══            20 s or 60 s; after ten minutes bob begins a transfer
//! ```

use crate::common::{assert_sound, both, client_and_gateway, link, observed};
use mpip_core::PathState;
use mpip_link::Change;
use mpip_sim::clock::{MILLI, Nanos, SECOND};
use mpip_sim::nat::NatSpec;
use mpip_sim::packet::protocol;
use mpip_sim::spec::{Action, FlowSpec, Traffic, WorldSpec};
use mpip_sim::world::World;

/// When nothing is sent any more, and when the other side begins.
const QUIET: Nanos = 5 * SECOND;
const CALL: Nanos = 15 * 60 * SECOND;

fn transfer(from: usize, start: Nanos, stop: Nanos) -> FlowSpec {
    let traffic = Traffic::Tcp { bytes: Some(500_000), window: 256 << 10 };
    FlowSpec { from, to: 1 - from, start, stop, v6: false, traffic }
}

/// Two paths that carry something for 5 s and then nothing until [`CALL`].
fn idle_world(seed: u64, nat: Option<(Nanos, bool, bool)>) -> WorldSpec {
    let paths = [both(link(10, 10, 100)), both(link(10, 20, 100))];
    let mut spec = client_and_gateway(seed, &paths).lasting(CALL + 20 * SECOND);
    for (interface, external) in [(0, "198.18.201.1"), (1, "198.18.202.1")] {
        spec.interfaces[interface].nat = nat.map(|(lifetime, dependent, preserves)| {
            let external = external.parse().expect("valid");
            NatSpec { external, first_port: 30_000, dependent, lifetime, preserves }
        });
    }
    spec.add_flow(transfer(0, SECOND, QUIET));
    spec
}

/// Datagrams of both hosts between two times.
fn datagrams(world: &World, from: Nanos, to: Nanos) -> usize {
    world.choices().iter().filter(|choice| (from..to).contains(&choice.at)).count()
}

fn pauses(world: &World) -> Vec<u64> {
    let status = world.status(0).expect("an engine");
    let paths = status.peers[0].paths.iter().filter(|path| path.state == PathState::Active);
    paths.map(|path| path.keepalive.as_millis() as u64).collect()
}

fn failures(world: &World) -> usize {
    let told = (0..2).flat_map(|host| world.events(host));
    told.filter(|(_, event)| event.to_string().contains("-> failed")).count()
}

#[test]
fn the_pause_that_nats_allow_is_found_and_the_other_side_can_call() {
    for (seconds, dependent, preserves) in [
        (20, false, false),
        (20, true, true),
        (60, true, false),
        (60, false, true),
        (300, true, true),
    ] {
        let case = format!("{seconds} s, dependent {dependent}, preserves {preserves}");
        let mut spec = idle_world(3, Some((seconds * SECOND, dependent, preserves)));
        spec.add_flow(transfer(1, CALL, CALL + 10 * SECOND));
        let mut world = observed(spec);
        world.run_until(CALL);
        let found = pauses(&world);
        let (least, most) = (seconds * 1_000 / 2, (seconds * 1_000).min(120_001));
        let fits = |pause: &u64| (least.min(30_000)..most).contains(pause);
        assert!(found.len() == 2 && found.iter().all(fits), "{case}: {found:?} ms");
        // A keepalive and its answer on each path, five renewals of keys, and ten challenges of
        // paths that lead nowhere.
        let (from, to) = (CALL - 600 * SECOND, CALL);
        let keepalives = 600_000 / found[0] + 1;
        let sent = datagrams(&world, from, to) as u64;
        assert!(sent <= keepalives * 2 * 2 + 90, "{case}: {sent} in ten minutes, {found:?} ms");
        assert_eq!(failures(&world), 0, "{case}");
        world.finish();
        assert_sound(&world);
        assert!(world.flow(1).finished, "{case}");
        let began = world.choices().iter().find(|choice| choice.at >= CALL && choice.len > 1_000);
        assert!(began.is_some_and(|choice| choice.at < CALL + 200 * MILLI), "{case}: at once");
    }
}

#[test]
fn without_nats_a_resting_path_sends_little() {
    let mut world = observed(idle_world(4, None));
    world.run_until(CALL);
    let status = world.status(1).expect("an engine");
    assert!(status.peers[0].paths.iter().all(|path| path.resting));
    let sent = datagrams(&world, CALL - 600 * SECOND, CALL);
    assert!(sent <= 600 / 25 * 2 * 2 + 70, "{sent} datagrams in ten minutes");
    assert!(sent >= 600 / 30 * 2 * 2, "{sent} datagrams in ten minutes");
    assert_eq!(failures(&world), 0);
}

/// Packets of an idle hour, as a cellular path would have to pay for them: keepalives and their
/// answers. The faster path carries the renewals of the keys as well. Pairs of addresses that lead
/// nowhere are challenged so rarely that the pause between keepalives grows as far as it may.
#[test]
fn an_idle_hour_costs_each_path_few_packets() {
    const HOUR: Nanos = 3_600 * SECOND;
    let mut spec = idle_world(7, Some((300 * SECOND, true, true)));
    spec.duration = CALL + HOUR;
    let mut world = observed(spec);
    world.run_until(CALL);
    let packets = |world: &World| {
        let of = |link| world.network().link_counters(link).offered_packets;
        [of(0) + of(1), of(2) + of(3)]
    };
    let before = packets(&world);
    world.run_until(CALL + HOUR);
    let after = packets(&world);
    let sent = [after[0] - before[0], after[1] - before[1]];
    assert_eq!(pauses(&world), [120_000, 120_000]);
    // A keepalive and its answer in two minutes.
    assert!((50..=70).contains(&sent[1]), "{sent:?} packets in an hour");
    // And 30 renewals of the keys.
    assert!((200..=260).contains(&sent[0]), "{sent:?} packets in an hour");
    assert_eq!(failures(&world), 0);
    assert_sound(&world);
}

/// What comes after the rest is repaired as fast as if the path had died just now.
#[test]
fn a_path_that_died_at_rest_does_not_hold_up_what_comes_then() {
    for (seed, from) in [(5, 0), (6, 1)] {
        let mut spec = idle_world(seed, None);
        let blackhole = Change { blackhole: Some(true), ..Change::default() };
        for link in 0..2 {
            // The better path; nobody has asked for it since.
            spec = spec.at(CALL - SECOND, Action::Link { link, change: blackhole.clone() });
        }
        spec.add_flow(FlowSpec {
            from,
            to: 1 - from,
            start: CALL,
            stop: CALL + 2 * SECOND,
            v6: false,
            traffic: Traffic::Packets {
                protocol: protocol::TCP,
                size: (200, 200),
                interval: 10 * MILLI,
                ecn: 0,
                segments: 1,
            },
        });
        let mut world = observed(spec);
        world.run_until(CALL);
        world.run_until(CALL + 250 * MILLI);
        let report = world.flow(1);
        assert!(report.delivered >= 15, "from {from}: {report:?} after 250 ms");
        world.run_until(CALL + 3 * SECOND);
        let report = world.flow(1);
        assert_eq!(report.delivered, report.sent, "from {from}: all are repaired");
    }
}
