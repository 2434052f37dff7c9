//! Paths that cost nothing are filled first; what is more spills to those that cost something.
//!
//! ```text
//!  alice ══ 20 Mbit/s, 10 ms ═══════════ bob      alice pays for the second one; bob is told
//!        ── 40 Mbit/s, 5 or 30 ms, cost 3 ──
//! ```

use crate::common::{assert_sound, both, client_and_gateway, link, observed, rates, stream};
use mpip_core::{CongestionControlKind, InterfaceProperties, SchedulerKind};
use mpip_link::Change;
use mpip_sim::clock::{MILLI, Nanos, SECOND};
use mpip_sim::spec::{Action, FlowSpec, System, TcpControl, Traffic, WorldSpec};

const START: Nanos = 3 * SECOND;
const END: Nanos = 15 * SECOND;

/// `late`: the one-way delay of the path that costs, ms.
fn priced(seed: u64, late: u64) -> WorldSpec {
    let paths = [both(link(20, 10, 100)), both(link(40, late, 200))];
    let mut spec = client_and_gateway(seed, &paths).lasting(END + 3 * SECOND);
    if let System::Mpip(alice) = &mut spec.hosts[0].system {
        let costs = [("eth1".to_owned(), 3)].into();
        alice.interfaces = InterfaceProperties { costs, ..InterfaceProperties::default() };
    }
    spec
}

fn bulk(from: usize, bytes: Option<u64>) -> FlowSpec {
    let traffic = Traffic::Tcp { bytes, window: 1 << 20 };
    FlowSpec { from, to: 1 - from, start: START, stop: END, v6: false, traffic }
}

#[test]
fn a_transfer_that_wants_more_gets_all_paths_in_both_directions() {
    for (seed, from, late) in [(1, 0, 30), (2, 1, 30), (3, 0, 5), (4, 1, 5)] {
        let mut spec = priced(seed, late);
        spec.add_flow(bulk(from, None));
        let mut world = observed(spec);
        let [cheap, dear] = rates(&mut world, from, START + 4 * SECOND, END);
        assert!(cheap > 17.0 && dear > 30.0, "from {from}, {late} ms: {cheap:.1} and {dear:.1}");
        world.finish();
        assert_sound(&world);
    }
}

/// HyStart takes a queue for the end of its slow start, and this one has to grow before the dear
/// path is used. BBR keeps the queue short, and takes what the cheap path carries for all there is.
#[test]
fn every_inner_tcp_soon_uses_the_dear_path() {
    let controls = [
        ("cubic", TcpControl::CUBIC, SECOND),
        ("reno", TcpControl::RENO, SECOND),
        ("bbr", TcpControl::BBR, 4 * SECOND),
    ];
    for (name, control, after) in controls {
        for (seed, from, late) in [(1, 0, 30), (2, 1, 30), (3, 0, 10)] {
            let mut spec = priced(seed, late);
            spec.tcp = control;
            spec.add_flow(bulk(from, None));
            let mut world = observed(spec);
            let [cheap, dear] = rates(&mut world, from, START + after, START + after + 3 * SECOND);
            let told = format!("{name} from {from}, {late} ms: {cheap:.1} and {dear:.1}");
            assert!(cheap > 15.0 && dear > 20.0, "{told}");
        }
    }
}

#[test]
fn what_the_cheap_path_carries_leaves_the_dear_one_alone_in_both_directions() {
    for (seed, from, late) in [(1, 0, 30), (2, 1, 30), (3, 0, 5), (4, 1, 5)] {
        let mut spec = priced(seed, late);
        spec.add_flow(stream(from, 12, (START, END)));
        let mut world = observed(spec);
        let [cheap, dear] = rates(&mut world, from, START, END);
        assert!(cheap > 12.0, "from {from}, {late} ms: {cheap:.1}");
        assert!(
            dear < 0.2,
            "from {from}, {late} ms: {dear:.2} Mbit/s where the cheap one has room"
        );
        world.run_until(END + SECOND);
        assert_eq!(world.flow(0).delivered, world.flow(0).sent);
    }
}

#[test]
fn the_dear_path_carries_what_is_more_than_the_cheap_one_can() {
    for (seed, from) in [(1, 0), (2, 1)] {
        let mut spec = priced(seed, 30);
        spec.add_flow(stream(from, 30, (START, END)));
        let mut world = observed(spec);
        let [cheap, dear] = rates(&mut world, from, START + SECOND, END);
        assert!(cheap > 17.0, "from {from}: the cheap one is full: {cheap:.1} and {dear:.1}");
        assert!((8.0..16.0).contains(&dear), "from {from}: {cheap:.1} and {dear:.1}");
    }
}

#[test]
fn a_short_transfer_begins_at_once_and_stays_on_the_cheap_path() {
    for (seed, from) in [(1, 0), (2, 1)] {
        let mut spec = priced(seed, 5);
        spec.add_flow(bulk(from, Some(100_000)));
        let mut world = observed(spec);
        world.run_until(START);
        let before = world.interface_bytes(from, from * 2 + 1);
        world.run_until(START + 2 * SECOND);
        assert!(world.flow(0).finished);
        let dear = world.interface_bytes(from, from * 2 + 1) - before;
        assert!(dear < 5_000, "from {from}: {dear} bytes, heartbeats included");
        let first = world.choices().iter().find(|choice| choice.at >= START && choice.host == from);
        assert!(first.is_some_and(|choice| choice.at < START + 5 * MILLI), "at once");
    }
}

#[test]
fn the_dear_path_carries_everything_while_the_cheap_one_is_dead() {
    for (seed, from) in [(1, 0), (2, 1)] {
        let mut spec = priced(seed, 30);
        spec.add_flow(stream(from, 10, (START, END)));
        for link in 0..2 {
            let dead = |on| Change { blackhole: Some(on), ..Change::default() };
            spec = spec.at(6 * SECOND, Action::Link { link, change: dead(true) });
            spec = spec.at(9 * SECOND, Action::Link { link, change: dead(false) });
        }
        let mut world = observed(spec);
        let [_, before] = rates(&mut world, from, START, 6 * SECOND);
        let [_, meanwhile] = rates(&mut world, from, 7 * SECOND, 9 * SECOND);
        let [cheap, after] = rates(&mut world, from, 12 * SECOND, END);
        assert!(before < 0.2 && meanwhile > 9.5, "from {from}: {before:.1}, {meanwhile:.1}");
        assert!(cheap > 9.5 && after < 0.2, "from {from}: back again: {cheap:.1}, {after:.1}");
    }
}

#[test]
fn every_scheduler_and_congestion_control_fills_the_cheap_path_first() {
    let schedulers = SchedulerKind::NAMES.iter().map(|(name, _)| (*name, "bbr"));
    let controls = CongestionControlKind::NAMES.iter().map(|(name, _)| ("earliest", *name));
    for (scheduler, control) in schedulers.chain(controls) {
        if control == "none" {
            // Without a window nothing is ever full.
            continue;
        }
        let mut spec = priced(7, 30).with_engines(|engine| {
            engine.set_scheduler(scheduler).expect("known");
            engine.set_congestion_control(control).expect("known");
        });
        spec.add_flow(stream(0, 8, (START, END)));
        let mut world = observed(spec);
        let [cheap, dear] = rates(&mut world, 0, START, END);
        assert!(cheap > 8.0 && dear < 0.4, "{scheduler}, {control}: {cheap:.1} and {dear:.2}");
    }
}
