//! The end of a transfer does not wait for what a slow path holds.

use core::time::Duration;

use crate::common::{assert_sound, both, client_and_gateway, link, observed};
use mpip_core::Parameters;
use mpip_link::LinkConfig;
use mpip_sim::clock::{Nanos, SECOND};
use mpip_sim::spec::{FlowSpec, Traffic};
use mpip_sim::world::World;

/// When the transfers begin: the paths know their delays.
const START: Nanos = 4 * SECOND;

/// What became of transfers of 200 kB.
struct Transfers {
    /// Mean time.
    took: Duration,
    /// Mean bytes on both paths, IP headers included.
    bytes: u64,
    /// Segments that the inner TCP declared lost.
    lost: u64,
}

/// Three transfers from idle over a path of 1 Mbit/s and 1 ms and one of 100 Mbit/s and 3 ms, with
/// these parameters.
fn transfers(parameters: Parameters) -> Transfers {
    transfers_over(&[both(link(1, 1, 40)), both(link(100, 3, 400))], parameters)
}

/// Three transfers from idle over these paths.
fn transfers_over(paths: &[(LinkConfig, LinkConfig)], parameters: Parameters) -> Transfers {
    let run = |seed| {
        let mut spec = client_and_gateway(seed, paths)
            .with_engines(|engine| engine.parameters = parameters)
            .lasting(START + 10 * SECOND);
        let traffic = Traffic::Tcp { bytes: Some(200_000), window: 4_000_000 };
        let stop = spec.duration;
        spec.add_flow(FlowSpec { from: 0, to: 1, start: START, stop, v6: false, traffic });
        let mut world = observed(spec);
        world.run_until(START);
        let sent = |world: &World| -> u64 {
            (0..paths.len()).map(|path| world.interface_bytes(0, path)).sum()
        };
        let before = sent(&world);
        world.run_until(START + 2 * SECOND);
        assert_sound(&world);
        assert_eq!(world.flow_bytes(0), 200_000);
        let took = world.last_delivery(0).expect("delivered") - START;
        (took, sent(&world) - before, world.tcp_sender(0).expect("TCP").lost)
    };
    let runs = [1, 2, 3].map(run);
    Transfers {
        took: Duration::from_nanos(runs.iter().map(|run| run.0).sum::<Nanos>() / 3),
        bytes: runs.iter().map(|run| run.1).sum::<u64>() / 3,
        lost: runs.iter().map(|run| run.2).sum(),
    }
}

/// The slow path is used for short transfers, too.
fn spread() -> Parameters {
    let mut parameters = Parameters::default();
    parameters.earliest.weighs = false;
    parameters.earliest.awaits_growth = false;
    parameters
}

#[test]
fn a_short_transfer_does_not_wait_for_a_path_that_carries_little() {
    let (weighed, spread) = (transfers(Parameters::default()).took, transfers(spread()).took);
    assert!(weighed + Duration::from_millis(5) < spread, "{weighed:?}, {spread:?}");
}

/// What paths have shown while they were idle counts until they are full.
#[test]
fn a_short_transfer_is_shared_by_what_paths_carry() {
    let paths = [(14, 10, 400), (4, 11, 100), (3, 6, 60), (4, 1, 60)];
    let paths = paths.map(|(rate, delay, queue)| both(link(rate, delay, queue)));
    let known = transfers_over(&paths, Parameters::default()).took;
    let mut parameters = Parameters::default();
    parameters.transport.capacity.enabled = false;
    let unknown = transfers_over(&paths, parameters).took;
    assert!(known + Duration::from_millis(40) < unknown, "{known:?}, {unknown:?}");
}

#[test]
fn an_idle_path_delivers_what_a_slow_one_holds() {
    let with = transfers(spread());
    let mut parameters = spread();
    parameters.overtaking.enabled = false;
    let without = transfers(parameters);
    let (took, longer) = (with.took, without.took);
    assert!(took + Duration::from_millis(15) < longer, "{took:?}, {longer:?}");
    // Copies are few.
    assert!(with.bytes < without.bytes * 6 / 5, "{} and {} bytes", with.bytes, without.bytes);
}

/// What is too old to be sent again is left where it is: the receiver waits for it.
#[test]
fn an_old_packet_is_not_given_up_by_overtaking() {
    let mut parameters = spread();
    parameters.repair.longest = Duration::from_millis(10);
    assert_eq!(transfers(parameters).lost, 0);
}
