//! One of two links carries packets of 1,300 bytes only, and says so to nobody.
//!
//! ```text
//!  alice ══ 10 Mbit/s, 10 ms, MTU 1,300 ══ bob      both have interfaces with an MTU of 1,500
//!        ══ 10 Mbit/s, 10 ms ═════════════
//! ```

use crate::common::{assert_sound, both, client_and_gateway, link, observed, share_of_limit};
use mpip_link::{Change, LinkConfig};
use mpip_sim::clock::SECOND;
use mpip_sim::measure::Scenario;
use mpip_sim::spec::{Action, TcpControl, Traffic};

fn narrow() -> LinkConfig {
    LinkConfig { mtu: 1_300, ..link(10, 10, 100) }
}

#[test]
fn the_narrow_link_carries_its_share() {
    let paths = vec![both(narrow()), both(link(10, 10, 100))];
    let (share, found) = share_of_limit(&Scenario {
        paths,
        sender: TcpControl::CUBIC.into(),
        duration: 20 * SECOND,
        from: 3 * SECOND,
        seed: 1,
    });
    assert!(share >= 0.88, "{share}: {found:?}");
}

#[test]
fn a_link_that_becomes_narrow_in_mid_transfer_harms_nobody() {
    let change = Change { mtu: Some(1_300), ..Change::default() };
    let mut spec = client_and_gateway(3, &[both(link(10, 10, 100)), both(link(10, 10, 100))])
        .lasting(20 * SECOND)
        .at(3 * SECOND, Action::Link { link: 0, change: change.clone() })
        .at(3 * SECOND, Action::Link { link: 1, change })
        .with_bulk(SECOND, 256 << 10);
    spec.flows[0].traffic = Traffic::Tcp { bytes: Some(15_000_000), window: 256 << 10 };
    let mut world = observed(spec);
    world.finish();
    assert_sound(&world);
    assert!(world.flow(0).finished);
    assert!(world.flow(0).longest_pause < SECOND, "{}", world.flow(0).longest_pause);
    let status = world.status(0).expect("an engine");
    let mut sizes: Vec<_> = status.peers[0].paths.iter().map(|path| path.mtu).collect();
    sizes.sort_unstable();
    sizes.dedup();
    assert_eq!(sizes, [1_300, 1_500]);
}
