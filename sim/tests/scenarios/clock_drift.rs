//! Clock offset and drift between the hosts change no decision (issue: feedback).
//!
//! ```text
//!  alice ══ 10 Mbit/s,  5 ms ══ bob        bob's clock: hours ahead, gaining or losing
//!        ══ 10 Mbit/s, 15 ms ══
//! ```

use core::time::Duration;

use crate::common::{assert_sound, both, client_and_gateway, link, observed};
use mpip_core::SchedulerKind;
use mpip_sim::clock::{HostClock, SECOND};
use mpip_sim::world::World;

/// 1 ms in 24 s, ten times what the seeds measured (seed 000, section 3.5.2).
const FAST: i64 = 41_670;

/// bit/s that are sent.
const RATE: u64 = 12_000_000;

fn run(scheduler: SchedulerKind, clock: HostClock, rate: u64) -> World {
    let spec = client_and_gateway(3, &[both(link(10, 5, 100)), both(link(10, 15, 100))]);
    let mut spec = spec
        .lasting(12 * SECOND)
        .with_engines(|engine| engine.scheduler = scheduler)
        .with_udp(SECOND, 1_200, rate)
        .with_ping(SECOND, SECOND / 10);
    spec.hosts[1].clock = clock;
    let mut world = observed(spec);
    world.run_until(12 * SECOND);
    assert_sound(&world);
    assert!(world.flow(0).delivered > 10_000, "{}", world.flow(0).delivered);
    world
}

const SCHEDULERS: [SchedulerKind; 4] = [
    SchedulerKind::Earliest,
    SchedulerKind::Weighted,
    SchedulerKind::FastestFirst,
    SchedulerKind::RoundRobin,
];

/// Share of the first host's bytes on its first path, and the standard error. It is the mean of
/// runs with slightly different traffic, because microseconds decide when the congestion control
/// probes.
fn share(scheduler: SchedulerKind, clock: HostClock) -> (f64, f64) {
    const RUNS: u64 = 8;
    let one = |number| {
        let world = run(scheduler, clock, RATE + number * 20_000);
        let bytes = [world.interface_bytes(0, 0), world.interface_bytes(0, 1)];
        bytes[0] as f64 / (bytes[0] + bytes[1]) as f64
    };
    let shares: Vec<f64> = (0..RUNS).map(one).collect();
    let mean = shares.iter().sum::<f64>() / RUNS as f64;
    let squares: f64 = shares.iter().map(|share| (share - mean).powi(2)).sum();
    (mean, (squares / (RUNS * (RUNS - 1)) as f64).sqrt())
}

/// [F-3]
#[test]
fn an_offset_of_hours_changes_not_a_single_choice() {
    let hour = Duration::from_secs(3_600);
    for scheduler in SCHEDULERS {
        let near = run(scheduler, HostClock { offset: Duration::from_secs(1), drift: 0 }, RATE);
        let far = run(scheduler, HostClock { offset: hour * 9, drift: 0 }, RATE);
        assert_eq!(near.choices(), far.choices(), "{scheduler}");
    }
}

/// [F-3]
#[test]
fn drift_leaves_the_shares_of_the_paths_as_they_are() {
    let offset = Duration::from_secs(3_600);
    for scheduler in SCHEDULERS {
        let (steady, error) = share(scheduler, HostClock { offset, drift: 0 });
        for drift in [FAST, -FAST] {
            let (drifting, its_error) = share(scheduler, HostClock { offset, drift });
            let (difference, error) = ((drifting - steady).abs(), error.hypot(its_error));
            let found = format!("{steady} became {drifting}, +- {error}");
            assert!(difference < 3.0 * error.max(0.005), "{scheduler}, {drift} ppb: {found}");
            assert!(error < 0.025, "{scheduler}, {drift} ppb: {found}: that says nothing");
        }
    }
}
