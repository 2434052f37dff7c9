//! A NAT forgets its mappings or changes its address: paths follow, TCP goes on.
//!
//! ```text
//!  alice ── NAT ══ 10 Mbit/s ══ bob        at 4 s the first NAT changes port and address,
//!        ── NAT ══ 10 Mbit/s ══            at 6 s the second its ports
//! ```

use crate::common::{assert_sound, both, client_and_gateway, link, observed};
use mpip_sim::clock::SECOND;
use mpip_sim::nat::NatSpec;
use mpip_sim::spec::{Action, Traffic};

#[test]
fn paths_survive_new_ports_and_addresses() {
    for dependent in [false, true] {
        let mut spec = client_and_gateway(4, &[both(link(10, 10, 100)), both(link(10, 20, 100))]);
        for (interface, external) in [(0, "198.18.201.1"), (1, "198.18.202.1")] {
            spec.interfaces[interface].nat = Some(NatSpec {
                external: external.parse().unwrap(),
                first_port: 30_000,
                dependent,
                lifetime: 120 * SECOND,
                preserves: false,
            });
        }
        let moved = Some("198.18.201.2".parse().unwrap());
        let mut spec = spec
            .lasting(10 * SECOND)
            .at(4 * SECOND, Action::Rebind { interface: 0, external: moved })
            .at(6 * SECOND, Action::Rebind { interface: 1, external: None })
            .with_bulk(SECOND, 256 << 10);
        spec.flows[0].traffic = Traffic::Tcp { bytes: Some(5_000_000), window: 256 << 10 };
        let mut world = observed(spec);
        world.finish();
        assert_sound(&world);
        assert!(world.flow(0).finished, "dependent: {dependent}");
        let status = world.status(1).expect("an engine");
        let remotes: Vec<_> =
            status.peers[0].paths.iter().map(|path| path.remote.ip().to_string()).collect();
        assert!(remotes.contains(&"198.18.201.2".to_owned()), "{remotes:?}");
    }
}
