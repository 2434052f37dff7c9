//! Links go and come while a transfer runs: it goes on, every byte is right.
//!
//! ```text
//!   host a                                  host b
//!   eth0 198.18.0.1/24  ------------------  eth0 198.18.0.2/24       veth, removed and made anew
//!   eth1 198.18.1.1/24  ------------------  eth1 198.18.1.2/24       veth
//!   mpip0 10.77.0.1                         mpip0 10.77.0.2
//! ```

mod common;

use std::thread;
use std::time::Duration;

use common::world::World;
use common::{Family, Transfer, add_link};
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
    let transfer = Transfer::start(a, b, address, 40 << 20, RATE);
    transfer.wait_for(8 << 20);
    a.ip(&["link", "del", "eth0"]);
    let before = transfer.progress();
    thread::sleep(Duration::from_millis(500));
    assert!(transfer.progress() > before, "it goes on over the other link");
    assert!(daemon_a.active_paths().iter().all(|path| path.interface == "eth1"));

    add_link(a, b, 0, &[Family::V4]);
    daemon_a.wait_for_paths(2);
    let again = daemon_a.active_paths();
    assert!(again.iter().any(|path| path.interface == "eth0"), "{again:#?}");
    a.ip(&["link", "set", "eth1", "down"]);
    transfer.finish();
    let events = daemon_b.status().events;
    assert!(events.iter().any(|event| event.name == "address-removed"), "{events:?}");
}
