//! The end of a transfer does not wait for what a slow path holds.

use core::time::Duration;

use crate::common::{assert_sound, both, client_and_gateway, link, observed};
use mpip_link::LinkConfig;
use mpip_sim::clock::{MILLI, Nanos, SECOND};
use mpip_sim::spec::{FlowSpec, Traffic};

/// When the transfers begin: the paths know their delays.
const START: Nanos = 4 * SECOND;

/// Mean time of 200 kB from idle over a path of 1 Mbit/s and 1 ms and one of 100 Mbit/s and 3 ms,
/// and the bytes of both, IP headers included; of three worlds.
fn transfer(overtaking: bool) -> (Duration, u64) {
    let slow = LinkConfig { rate: Some(1_000_000), ..link(1, 1, 40) };
    let run = |seed| {
        let mut spec = client_and_gateway(seed, &[both(slow.clone()), both(link(100, 3, 400))])
            .with_engines(|engine| engine.parameters.overtaking.enabled = overtaking)
            .lasting(START + 10 * SECOND);
        let traffic = Traffic::Tcp { bytes: Some(200_000), window: 4_000_000 };
        let stop = spec.duration;
        spec.add_flow(FlowSpec { from: 0, to: 1, start: START, stop, v6: false, traffic });
        let mut world = observed(spec);
        world.run_until(START);
        let sent = |world: &mpip_sim::world::World| {
            [0, 1].map(|path| world.interface_bytes(0, path)).iter().sum::<u64>()
        };
        let before = sent(&world);
        world.run_until(START + 2 * SECOND);
        assert_sound(&world);
        assert_eq!(world.flow_bytes(0), 200_000);
        (world.last_delivery(0).expect("delivered") - START, sent(&world) - before)
    };
    let runs = [1, 2, 3].map(run);
    let took = runs.iter().map(|run| run.0).sum::<Nanos>() / 3;
    (Duration::from_nanos(took), runs.iter().map(|run| run.1).sum::<u64>() / 3)
}

#[test]
fn an_idle_path_delivers_what_a_slow_one_holds() {
    let (with, bytes) = transfer(true);
    let (without, fewer) = transfer(false);
    assert!(with + Duration::from_nanos(15 * MILLI) < without, "{with:?}, {without:?}");
    // Copies are few.
    assert!(bytes < fewer + fewer / 5, "{bytes} and {fewer} bytes");
}
