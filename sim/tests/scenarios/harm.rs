//! Never slower than the best single path: a path that does harm is left out, and used again once
//! it is good.

use core::time::Duration;
use std::sync::LazyLock;

use crate::common::{both, link};
use mpip_core::Event;
use mpip_link::{Change, LinkConfig, Loss};
use mpip_sim::clock::{MILLI, Nanos, SECOND};
use mpip_sim::measure::{Scenario, Subject, WARM_UP, world};
use mpip_sim::spec::{Action, TcpControl, WorldSpec};
use mpip_sim::world::{Observe, World};

/// Association, challenges and the transfer's start are done with; what follows counts.
const FROM: Nanos = 8 * SECOND;
const TO: Nanos = 48 * SECOND;

/// 20 Mbit/s, a round trip of 20 ms.
fn good() -> (LinkConfig, LinkConfig) {
    both(link(20, 10, 100))
}

fn spec(paths: Vec<(LinkConfig, LinkConfig)>) -> WorldSpec {
    let scenario = Scenario {
        paths,
        sender: TcpControl::CUBIC.into(),
        duration: TO - 2 * SECOND,
        from: 0,
        seed: 1,
    };
    world(&scenario, Subject::MPIP)
}

/// Bit/s of the transfer from [`FROM`] to [`TO`].
fn goodput(world: &mut World) -> f64 {
    world.run_until(FROM);
    let before = world.flow(0).bytes;
    world.run_until(TO);
    let found: Vec<_> = world.violations().iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{found:#?}");
    (world.flow(0).bytes - before) as f64 * 8.0 / ((TO - FROM) as f64 / 1e9)
}

fn carried(spec: WorldSpec) -> f64 {
    goodput(&mut World::new(spec, Observe::default()))
}

/// What the good path and the given one carry together as a share of what the good one carries.
fn share(bad: LinkConfig, change: impl Fn(WorldSpec) -> WorldSpec) -> f64 {
    static ALONE: LazyLock<f64> = LazyLock::new(|| carried(spec(vec![good()])));
    assert!(*ALONE > 18e6, "{}", *ALONE);
    carried(change(spec(vec![good(), both(bad)]))) / *ALONE
}

/// No less than what the good path carries alone, but for the time that it takes to find out.
const LEAST: f64 = 0.95;

fn assert_harmless(bad: LinkConfig) {
    let share = share(bad, |spec| spec);
    assert!(share >= LEAST, "{share} of what the good path carries alone");
}

/// 0.3 Mbit/s, late and lossy.
fn trickle() -> LinkConfig {
    let jitter = Duration::from_millis(50);
    let rate = Some(300_000);
    LinkConfig { rate, jitter, loss: Loss::Random(0.1), ..link(1, 200, 20) }
}

#[test]
fn beside_a_path_that_loses_a_third() {
    assert_harmless(LinkConfig { loss: Loss::Random(0.3), ..link(5, 50, 100) });
}

#[test]
fn beside_a_far_path_that_loses() {
    assert_harmless(LinkConfig { loss: Loss::Random(0.1), ..link(10, 300, 200) });
}

/// What TCP's start loses there depends on the last millisecond of delay: 0.94 to 1.01.
#[test]
fn beside_a_slow_and_far_path() {
    let shares = [480, 500, 520].map(|delay| share(link(2, delay, 100), |spec| spec));
    let mean = shares.iter().sum::<f64>() / 3.0;
    assert!(mean >= LEAST, "{shares:?} of what the good path carries alone");
}

#[test]
fn beside_a_path_with_heavy_jitter() {
    let jitter = Duration::from_millis(100);
    assert_harmless(LinkConfig { jitter, loss: Loss::Random(0.05), ..link(5, 150, 100) });
}

#[test]
fn beside_a_trickle() {
    assert_harmless(trickle());
}

/// The second path's links, there and back, are numbers 2 and 3.
fn with_second(spec: WorldSpec, at: Nanos, change: &Change) -> WorldSpec {
    let spec = spec.at(at, Action::Link { link: 2, change: change.clone() });
    spec.at(at, Action::Link { link: 3, change: change.clone() })
}

#[test]
fn beside_a_path_that_is_cut_for_50_ms_twice_a_second() {
    let blackhole = |value| Change { blackhole: Some(value), ..Change::default() };
    let share = share(link(5, 20, 100), |mut spec| {
        for at in (3 * SECOND..TO).step_by((SECOND / 2) as usize) {
            spec = with_second(spec, at, &blackhole(true));
            spec = with_second(spec, at + 50 * MILLI, &blackhole(false));
        }
        spec
    });
    assert!(share >= LEAST, "{share} of what the good path carries alone");
}

#[test]
fn a_path_that_becomes_good_is_used_again() {
    const HEALED: Nanos = 18 * SECOND;
    let healed = Change {
        rate: Some(Some(10_000_000)),
        delay: Some(Duration::from_millis(10)),
        jitter: Some(Duration::ZERO),
        loss: Some(Loss::None),
        ..Change::default()
    };
    let spec = with_second(spec(vec![good(), both(link(2, 500, 100))]), HEALED, &healed);
    let mut world = World::new(spec, Observe::default());
    let decisions = |world: &World| -> Vec<(u64, bool)> {
        let events = world.events(0).iter();
        let decided = events.filter_map(|(at, event)| match event {
            Event::LeftOut { left_out, .. } => Some((at / SECOND, *left_out)),
            _ => None,
        });
        decided.collect()
    };
    world.run_until(HEALED);
    assert!(matches!(decisions(&world)[..], [(_, true)]), "{:?}", decisions(&world));
    world.run_until(TO - 7 * SECOND);
    // Ten seconds without a loss are what tells it, and a trial follows.
    let again = decisions(&world).last().copied();
    assert!(matches!(again, Some((at, false)) if at <= 40), "{:?}", decisions(&world));
    let before = world.flow(0).bytes;
    world.run_until(TO);
    let goodput = (world.flow(0).bytes - before) as f64 / 7.0 * 8.0;
    assert!(goodput > 25e6, "{goodput} of 30 Mbit/s");
}

/// What a transfer over a near path of 5 Mbit/s and a far one of 40 Mbit/s carries from its third
/// second on, in bit/s, with what `beside` adds from long before it starts.
fn near_and_far(beside: impl Fn(WorldSpec) -> WorldSpec) -> f64 {
    let scenario = Scenario {
        paths: vec![both(link(5, 2, 30)), both(link(40, 37, 400))],
        sender: TcpControl::CUBIC.into(),
        duration: 10 * SECOND,
        from: 2 * SECOND,
        seed: 1,
    };
    let mut world = World::new(beside(world(&scenario, Subject::MPIP)), Observe::default());
    world.run_until(WARM_UP + scenario.from);
    let before = world.flow(0).bytes;
    world.run_until(WARM_UP + scenario.duration);
    let seconds = (scenario.duration - scenario.from) as f64 / SECOND as f64;
    (world.flow(0).bytes - before) as f64 * 8.0 / seconds
}

#[test]
fn a_transfer_that_begins_after_light_traffic_uses_all_paths_at_once() {
    const BEFORE: Nanos = SECOND / 5;
    let pings = near_and_far(|spec| spec.with_ping(BEFORE, 100 * MILLI));
    assert!(pings > 30e6, "{pings} beside pings");
    let video = near_and_far(|spec| spec.with_udp(BEFORE, 1_200, 1_000_000));
    assert!(video > 30e6, "{video} beside a stream of 1 Mbit/s");
}
