//! Paths that lead through one queue are found, those that do not are left alone.
//!
//! ```text
//! alice.eth0 --\                          /-- bob.eth0
//! alice.eth1 ---+-- one queue, 20 Mbit/s +--- bob.eth1      beside them one plain TCP connection
//! carol.eth0 --/                          \-- dave.eth0
//! ```

use crate::common::{both, link};
use mpip_link::LinkConfig;
use mpip_sim::clock::SECOND;
use mpip_sim::spec::{FlowSpec, HostSpec, System, Traffic, WorldSpec, outer_address};
use mpip_sim::world::{Observe, World};

/// Alice to Bob over two interfaces each, Carol to Dave over one each, all through one link. The
/// links are not random, so `seed` decides when Carol begins.
fn shared_link(seed: u64) -> WorldSpec {
    let mut spec = WorldSpec::two_hosts(seed, 2).lasting(40 * SECOND);
    let clock = spec.hosts[0].clock;
    for (host, name) in [(2, "carol"), (3, "dave")] {
        let (local, remote) = if host == 2 { (4, 5) } else { (5, 4) };
        let system = System::Plain { local, remote };
        spec.hosts.push(HostSpec { name: name.to_owned(), clock, system });
        spec.add_interface(host, vec![outer_address(host, 0, 0, false)]);
    }
    let forward = spec.add_link(link(20, 10, 100));
    let back = spec.add_link(link(20, 10, 100));
    for (from, to) in [(0, 2), (0, 3), (1, 2), (1, 3), (4, 5)] {
        spec.routes.insert((from, to), vec![forward]);
        spec.routes.insert((to, from), vec![back]);
    }
    let traffic = Traffic::Tcp { bytes: None, window: 400_000 };
    let (start, stop) = (3 * SECOND + seed * SECOND / 27, spec.duration);
    spec.add_flow(FlowSpec { from: 2, to: 3, start, stop, v6: false, traffic });
    spec.with_bulk(2 * SECOND, 1 << 20)
}

/// Number of groups among the paths of the first host that carry packets.
fn groups(world: &World) -> (usize, usize) {
    let status = world.status(0).expect("it runs mpip");
    let paths = status.peers[0].paths.iter().filter(|path| path.state.name() == "active");
    let mut groups: Vec<u16> = paths.map(|path| path.bottleneck).collect();
    let count = groups.len();
    groups.sort_unstable();
    groups.dedup();
    (count, groups.len())
}

#[test]
fn paths_through_one_queue_are_one_group() {
    for seed in [1, 2, 3] {
        let mut world = World::new(shared_link(seed), Observe::default());
        world.run_until(38 * SECOND);
        assert_eq!(groups(&world), (4, 1), "seed {seed}");
    }
}

/// On kernels 0.42 to 0.48 in four runs of 30 s.
#[test]
fn paths_through_one_queue_take_one_flows_share() {
    let share = |seed| {
        let mut world = World::new(shared_link(seed), Observe::default());
        let carried = |world: &World| [0, 1].map(|flow| world.flow(flow).bytes as f64);
        world.run_until(3 * SECOND);
        let before = carried(&world);
        world.run_until(33 * SECOND);
        let after = carried(&world);
        let [plain, all] = [0, 1].map(|flow| after[flow] - before[flow]);
        all / (plain + all)
    };
    let shares = [1, 2, 3, 4].map(share);
    let mean = shares.iter().sum::<f64>() / 4.0;
    assert!((0.4..=0.6).contains(&mean), "four paths take {shares:?}");
}

#[test]
fn disjoint_links_are_not_grouped() {
    let noisy =
        || both(LinkConfig { jitter: core::time::Duration::from_millis(5), ..link(20, 10, 100) });
    let unequal = || both(link(8, 30, 100));
    for paths in
        [vec![both(link(20, 10, 100)), both(link(20, 10, 100))], vec![noisy(), noisy(), unequal()]]
    {
        for seed in [1, 2] {
            let mut spec = WorldSpec::disjoint(seed, &paths).lasting(30 * SECOND);
            if let System::Mpip(engine) = &mut spec.hosts[1].system {
                engine.knows_peer = false;
            }
            let mut world = World::new(spec.with_bulk(2 * SECOND, 1 << 20), Observe::default());
            for second in (5..30).step_by(5) {
                world.run_until(second * SECOND);
                assert_eq!(groups(&world), (paths.len(), paths.len()), "{second} s, seed {seed}");
            }
        }
    }
}
