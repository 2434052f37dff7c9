//! Links go and come while a transfer runs: it goes on, every byte is right.
//!
//! ```text
//!   host a                                  host b
//!   eth0 198.18.0.1/24  ------------------  eth0 198.18.0.2/24       veth, removed and made anew
//!   eth1 198.18.1.1/24  ------------------  eth1 198.18.1.2/24       veth
//!   mpip0 10.77.0.1                         mpip0 10.77.0.2
//! ```

use crate::common::world::World;
use crate::common::{Family, Transfer, add_link, wait_for};
use mpip_testing::can_run;

const ENDPOINTS: &[&str] = &["198.18.0.2:6182", "198.18.1.2:6182"];

/// Bytes per second, so that a transfer lasts for what happens in it.
const RATE: u64 = 10 << 20;

#[test]
fn a_transfer_survives_a_link_that_is_removed_and_made_anew() {
    if !can_run(&[]) {
        return;
    }
    let world = World::new("links", &[Family::V4], ENDPOINTS, "scheduler = 'round-robin'");
    let World { a, b, daemon_a, daemon_b, .. } = &world;
    daemon_a.wait_for_paths(2);

    let address = "10.77.0.2".parse().expect("valid");
    let transfer = Transfer::start(a, b, address, RATE);
    transfer.advance(2 << 20);
    a.ip(&["link", "del", "eth0"]);
    wait_for("the other link alone", || {
        let paths = daemon_a.active_paths();
        !paths.is_empty() && paths.iter().all(|path| path.interface == "eth1")
    });
    transfer.advance(1 << 20);

    add_link(a, b, 0, &[Family::V4]);
    wait_for("a path by the new link", || {
        daemon_a.active_paths().iter().any(|path| path.interface == "eth0")
    });
    a.ip(&["link", "set", "eth1", "down"]);
    transfer.finish();
    let events = daemon_b.status().events;
    assert!(events.iter().any(|event| event.name == "address-removed"), "{events:?}");
}
