//! Bulk TCP over several paths reaches the sum of what they carry.

use core::time::Duration;

use crate::common::{both, link, share_of_limit};
use mpip_link::LinkConfig;
use mpip_sim::clock::SECOND;
use mpip_sim::measure::{Measurement, Scenario};
use mpip_sim::spec::TcpControl;

/// Share of the physical limit that mpip reaches over `paths`.
fn share(paths: &[(LinkConfig, LinkConfig)]) -> (f64, Measurement) {
    share_of_limit(&Scenario {
        paths: paths.to_vec(),
        sender: TcpControl::CUBIC.into(),
        duration: 20 * SECOND,
        from: 3 * SECOND,
        seed: 1,
    })
}

#[test]
fn two_equal_paths() {
    let (share, found) = share(&[both(link(10, 5, 100)), both(link(10, 5, 100))]);
    assert!(share >= 0.9, "{share}: {found:?}");
    assert!(found.longest_pause < Duration::from_millis(300), "{found:?}");
}

#[test]
fn four_equal_paths() {
    let path = || both(link(10, 5, 100));
    let (share, found) = share(&[path(), path(), path(), path()]);
    assert!(share >= 0.9, "{share}: {found:?}");
}

#[test]
fn unequal_rates() {
    let (share, found) = share(&[both(link(40, 10, 100)), both(link(10, 10, 100))]);
    assert!(share >= 0.9, "{share}: {found:?}");
}

#[test]
fn unequal_delay() {
    let (share, found) = share(&[both(link(10, 5, 100)), both(link(10, 50, 100))]);
    assert!(share >= 0.85, "{share}: {found:?}");
}
