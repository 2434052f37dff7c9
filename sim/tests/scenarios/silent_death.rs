//! A path dies silently with data in flight: it leaves the choice, and TCP goes on.
//!
//! ```text
//!  alice ══ 10 Mbit/s, 10 ms ══ bob        at 5 s the first link swallows everything,
//!        ══ 10 Mbit/s, 10 ms ══            both ways, and nobody is told
//! ```

use core::ops::Range;

use crate::common::{assert_sound, both, client_and_gateway, link, observed, rates, stream};
use mpip_link::{Change, Loss};
use mpip_sim::clock::{MILLI, Nanos, SECOND};
use mpip_sim::spec::{Action, System, WorldSpec, outer_address};
use mpip_sim::world::World;

const DEATH: Nanos = 5 * SECOND;

/// 3 probe time-outs or 300 ms, whatever is longer: a probe time-out over 20 ms and a queue of up
/// to 60 ms stays below 100 ms.
const LIMIT: Nanos = 300 * MILLI;

/// `links` swallow everything in `time`.
fn dead(time: Range<Nanos>, links: Range<usize>, spec: WorldSpec) -> WorldSpec {
    let blackhole = |value| Change { blackhole: Some(value), ..Change::default() };
    links.fold(spec, |spec, link| {
        spec.at(time.start, Action::Link { link, change: blackhole(true) })
            .at(time.end, Action::Link { link, change: blackhole(false) })
    })
}

/// How often paths of `host` failed after `since`.
fn failures(world: &World, host: usize, since: Nanos) -> usize {
    let known = world.events(host).iter().filter(|(at, _)| *at > since);
    known.filter(|(_, event)| event.to_string().contains("-> failed")).count()
}

#[test]
fn a_path_that_dies_leaves_the_choice_and_tcp_goes_on() {
    let path = || both(link(10, 10, 50));
    let spec = client_and_gateway(11, &[path(), path()]).lasting(12 * SECOND);
    let spec = dead(DEATH..9 * SECOND, 0..2, spec);
    let mut world = observed(spec.with_bulk(SECOND, 1 << 20));
    world.run_until(DEATH);
    let before = world.flow(0).bytes;
    assert!(before as f64 * 8.0 / 4.0 > 14e6, "both paths carry: {before} bytes in 4 s");
    let (mut pause, mut bytes, mut since) = (0, before, DEATH);
    for now in (DEATH..=9 * SECOND).step_by(10 * MILLI as usize) {
        world.run_until(now);
        if world.flow_bytes(0) > bytes {
            (bytes, since) = (world.flow_bytes(0), now);
        }
        pause = pause.max(now - since);
    }

    // Probes of the dead path are small; packets are not, nor are challenges to the other address.
    let [dead, there] = [0, 1].map(|host| outer_address(host, 0, 0, false));
    let on_dead = world.choices().iter().filter(|choice| {
        let path = choice.local.ip() == dead && choice.remote.ip() == there;
        path && choice.len > 600 && choice.at > DEATH + LIMIT
    });
    assert_eq!(on_dead.count(), 0, "packets on the dead path");
    assert!(pause < LIMIT, "nothing arrived for {} ms", pause / MILLI);
    let alone = (world.flow(0).bytes - before) as f64 * 8.0 / 4.0;
    assert!(alone > 8e6, "the other path goes on at {alone} bit/s");

    world.finish();
    assert_sound(&world);
    let again = world
        .choices()
        .iter()
        .filter(|choice| choice.local.ip() == dead && choice.len > 600 && choice.at > 9 * SECOND);
    assert!(again.count() > 100, "the path is used again when it has healed");
}

/// The second path swallows everything from the start until `end`.
fn second_works_from(end: Nanos, seed: u64) -> WorldSpec {
    let path = || both(link(10, 10, 50));
    dead(0..end, 2..4, client_and_gateway(seed, &[path(), path()]).lasting(12 * SECOND))
}

/// Its address has never answered. Traffic pays for more frequent challenges; otherwise the next
/// one would come after 9.3 s.
#[test]
fn a_path_that_begins_to_work_is_used_soon() {
    const WORKS: Nanos = 7 * SECOND + 400 * MILLI;
    for (seed, from) in [(3, 0), (4, 1)] {
        let mut spec = second_works_from(WORKS, seed);
        spec.add_flow(stream(from, 30, (2 * SECOND, 12 * SECOND)));
        let mut world = observed(spec);
        let [_, before] = rates(&mut world, from, 6 * SECOND, WORKS);
        let [_, after] = rates(&mut world, from, WORKS + 1_500 * MILLI, 12 * SECOND);
        assert!(before < 0.1 && after > 8.5, "from {from}: {before:.2}, {after:.2} Mbit/s");
    }
}

#[test]
fn an_address_that_never_answers_costs_little_and_nothing_where_data_are_paid_for() {
    for (cost, expected) in [(0, 4..=8), (1, 0..=1)] {
        let mut spec = second_works_from(12 * SECOND, 3);
        if let System::Mpip(alice) = &mut spec.hosts[0].system {
            alice.interfaces.costs = [("eth1".to_owned(), cost)].into();
        }
        spec.add_flow(stream(0, 8, (2 * SECOND, 12 * SECOND)));
        let mut world = observed(spec);
        world.run_until(12 * SECOND);
        let [dead, there] = [0, 1].map(|host| outer_address(host, 1, 0, false));
        let challenges = world.choices().iter().filter(|choice| {
            choice.local.ip() == dead && choice.remote.ip() == there && choice.at > 5 * SECOND
        });
        let count = challenges.count();
        assert!(expected.contains(&count), "{count} challenges in 7 s at a cost of {cost}");
    }
}

/// Now and then the queue is empty, and the last packets in flight, their feedback or the probe are
/// lost. Until the loss rate of a path is known, one lost probe is enough to call it failed.
#[test]
fn a_path_that_loses_a_tenth_each_way_is_not_dead() {
    let mut deaths = 0;
    for seed in 11..17 {
        let mut lossy = link(20, 10, 100);
        lossy.loss = Loss::Random(0.1);
        let paths = [both(lossy), both(link(20, 75, 100))];
        let spec = client_and_gateway(seed, &paths).lasting(20 * SECOND);
        let mut world = observed(spec.with_bulk(SECOND, 4 << 20));
        world.run_until(20 * SECOND);
        deaths += failures(&world, 0, 2 * SECOND);
    }
    assert!(deaths < 2, "{deaths} deaths in two minutes");
}

/// The peer is a virtual machine that had no processor, or somebody swallows everything: that is no
/// failure of the last path until it lasts.
#[test]
fn the_last_path_is_given_time_to_answer() {
    for (silence, none_is_left) in [(300 * MILLI, false), (900 * MILLI, true)] {
        let path = || both(link(10, 10, 50));
        let spec = client_and_gateway(11, &[path(), path()]).lasting(10 * SECOND);
        let spec = dead(DEATH..DEATH + silence, 0..4, spec);
        let mut world = observed(spec.with_bulk(SECOND, 1 << 20));
        world.run_until(DEATH + SECOND);
        let dead = [0, 1].map(|host| failures(&world, host, 0) == 2);
        assert_eq!(dead, [none_is_left; 2], "silent for {} ms", silence / MILLI);
        let before = world.flow_bytes(0);
        world.run_until(10 * SECOND);
        let rate = (world.flow_bytes(0) - before) as f64 * 8.0 / 4.0;
        assert!(rate > 12e6, "both paths carry again: {rate} bit/s");
    }
}
