//! Upper rates of paths: what is sent stays below, and the other path carries the rest.
//!
//! ```text
//!  alice ══ 40 Mbit/s, 10 ms ══ bob      the second one may carry 10 Mbit/s: alice's end says so,
//!        ══ 40 Mbit/s, 15 ms ══          for what it sends, or for what it receives
//! ```

use crate::common::{assert_sound, both, client_and_gateway, link, observed, rates, stream};
use mpip_core::{CongestionControlKind, InterfaceProperties, RateLimit, SchedulerKind};
use mpip_sim::clock::{Nanos, SECOND};
use mpip_sim::spec::{Action, FlowSpec, System, TcpControl, Traffic, WorldSpec};

const START: Nanos = 3 * SECOND;
const END: Nanos = 10 * SECOND;
/// The upper rate, Mbit/s.
const LIMIT: f64 = 10.0;

/// Alice's configuration limits what `from` sends on the second path.
fn limited(seed: u64, from: usize) -> WorldSpec {
    let paths = [both(link(40, 10, 100)), both(link(40, 15, 200))];
    let mut spec = client_and_gateway(seed, &paths).lasting(END + 3 * SECOND);
    if let System::Mpip(alice) = &mut spec.hosts[0].system {
        alice.interfaces = limiting(from);
    }
    spec
}

/// What limits in the configuration of alice what `from` sends on the second path.
fn limiting(from: usize) -> InterfaceProperties {
    let limit = RateLimit::new(LIMIT as u32 * 1_000).expect("in range");
    let rates = [("eth1".to_owned(), limit)].into();
    match from {
        0 => InterfaceProperties { rates_up: rates, ..InterfaceProperties::default() },
        _ => InterfaceProperties { rates_down: rates, ..InterfaceProperties::default() },
    }
}

fn bulk(from: usize) -> FlowSpec {
    let traffic = Traffic::Tcp { bytes: None, window: 1 << 21 };
    FlowSpec { from, to: 1 - from, start: START, stop: END, v6: false, traffic }
}

/// Whether `rate` is what may be sent on the limited path, and is used.
fn keeps_to_limit(rate: f64) -> bool {
    (LIMIT * 0.9..=LIMIT * 1.01).contains(&rate)
}

#[test]
fn a_transfer_fills_both_paths_and_stays_below_the_rate_in_both_directions() {
    let controls =
        [("cubic", TcpControl::CUBIC), ("reno", TcpControl::RENO), ("bbr", TcpControl::BBR)];
    for (seed, from) in [(1, 0), (2, 1)] {
        for (name, control) in controls {
            let mut spec = limited(seed, from);
            spec.tcp = control;
            spec.add_flow(bulk(from));
            let mut world = observed(spec);
            let [free, capped] = rates(&mut world, from, START + 3 * SECOND, END);
            let told = format!("{name} from {from}: {free:.1} and {capped:.2} Mbit/s");
            assert!(keeps_to_limit(capped) && free > 34.0, "{told}");
            world.finish();
            assert_sound(&world);
        }
    }
}

#[test]
fn no_second_exceeds_the_rate_from_the_start_on() {
    for (seed, from) in [(3, 0), (4, 1)] {
        let mut spec = limited(seed, from);
        spec.add_flow(bulk(from));
        let mut world = observed(spec);
        for second in START / SECOND..END / SECOND {
            let [_, capped] = rates(&mut world, from, second * SECOND, (second + 1) * SECOND);
            assert!(capped <= LIMIT * 1.02, "from {from}, second {second}: {capped:.2} Mbit/s");
        }
    }
}

/// Congestion control neither forgets what the path carries while the rate holds it back, nor takes
/// the rate for it.
#[test]
fn a_rate_set_during_a_transfer_holds_at_once_and_without_it_the_path_is_full_again() {
    const END: Nanos = 13 * SECOND;
    let controls = ["bbr", "cubic", "reno", "lia", "olia", "balia"];
    for (control, seed) in controls.into_iter().zip(8..) {
        let from = seed as usize % 2;
        let spec = limited(seed, from).lasting(END + 3 * SECOND);
        let mut spec = spec.with_engines(|engine| {
            engine.set_congestion_control(control).expect("known");
            engine.interfaces = InterfaceProperties::default();
        });
        let interfaces = limiting(from);
        spec = spec.at(7 * SECOND, Action::Configure { host: 0, interfaces });
        let interfaces = InterfaceProperties::default();
        spec = spec.at(10 * SECOND, Action::Configure { host: 0, interfaces });
        spec.add_flow(stream(from, 70, (START, END)));
        let mut world = observed(spec);
        let [_, before] = rates(&mut world, from, 5 * SECOND, 7 * SECOND);
        // A peer has to be told.
        let [free, meanwhile] = rates(&mut world, from, 7 * SECOND + SECOND / 5, 10 * SECOND);
        let [_, after] = rates(&mut world, from, 11 * SECOND, END);
        let told = format!("{control} from {from}: {before:.1}, {meanwhile:.2}, {after:.1}");
        assert!(keeps_to_limit(meanwhile) && free > 20.0, "{told}; {free:.1} Mbit/s");
        assert!(after > before * 0.9 && before > 25.0, "{told} Mbit/s");
    }
}

/// The path has room for four times the rate: nothing waits in it.
#[test]
fn no_queue_builds_in_the_path_and_nothing_is_lost_there() {
    for (seed, from) in [(5, 0), (6, 1)] {
        let mut spec = limited(seed, from);
        spec.add_flow(stream(from, 44, (START, END)));
        let mut world = observed(spec);
        let [free, capped] = rates(&mut world, from, START + SECOND, END);
        assert!(capped <= LIMIT * 1.01 && free > 30.0, "from {from}: {free:.1}, {capped:.2}");
        let host = world.status(from).expect("an engine runs there");
        let path = host.peers[0].paths.iter().find(|path| path.rate_limit.is_some());
        let path = path.expect("one is limited");
        assert_eq!((path.packets_lost, path.loss), (0, 0.0), "from {from}");
        let queue = path.queuing_delay.as_millis();
        assert!(queue <= 2, "from {from}: {queue} ms in the queue of the path");
    }
}

#[test]
fn every_scheduler_and_congestion_control_keeps_to_the_rate() {
    let schedulers = SchedulerKind::NAMES.iter().map(|(name, _)| (*name, "bbr"));
    let controls = CongestionControlKind::NAMES.iter().map(|(name, _)| ("earliest", *name));
    for ((scheduler, control), seed) in schedulers.chain(controls).zip(20..) {
        let from = seed as usize % 2;
        let mut spec = limited(seed, from).with_engines(|engine| {
            engine.set_scheduler(scheduler).expect("known");
            engine.set_congestion_control(control).expect("known");
        });
        spec.add_flow(bulk(from));
        let mut world = observed(spec);
        let [free, capped] = rates(&mut world, from, START + 3 * SECOND, END);
        let told = format!("{scheduler}, {control} from {from}: {free:.1} and {capped:.2}");
        assert!(capped <= LIMIT * 1.01, "{told} Mbit/s");
        // Without congestion control an inner TCP sees every loss.
        assert!(control == "none" || free + capped > 30.0, "{told} Mbit/s");
    }
}
