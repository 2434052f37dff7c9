//! Who does not hold the right keys is not let in, and learns nothing.
//!
//! ```text
//!   host a                        host b
//!   eth0 198.18.0.1/24 ---------- eth0 198.18.0.2/24     veth
//!   mpip0 10.77.0.1               mpip0 10.77.0.2
//! ```

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::{Configuration, Daemon, Directory, Family, key, two_hosts, wait_for};
use mpip_testing::can_run;

/// Asserts that a and b, with these keys and lines for their peers' sections, never connect.
fn assert_strangers(test: &str, a: ((u8, u8), &str), b: ((u8, u8), &str)) {
    let (host_a, host_b) = two_hosts(test, 1, &[Family::V4]);
    let directory = Directory::new();
    for (name, number) in [("right.psk", 8), ("wrong.psk", 9)] {
        let text = key(number).secret_base64();
        fs::write(directory.join(name), text.as_str()).expect("writable");
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(directory.join(name), mode).expect("ours");
    }
    let endpoints = &["198.18.0.2:6182"];
    let one = Configuration { number: 1, keys: a.0, endpoints, peer: a.1 };
    let two = Configuration { number: 2, keys: b.0, endpoints: &[], peer: b.1 };
    let daemon_b = Daemon::start(&host_b, &directory, &two);
    let daemon_a = Daemon::start(&host_a, &directory, &one);
    wait_for("several attempts", || {
        let events = daemon_a.status().events;
        events.iter().any(|event| event.name == "handshake-timeout" && event.count > 1)
    });
    assert!(!host_a.ping_once("10.77.0.2"));
    for daemon in [&daemon_a, &daemon_b] {
        let peer = daemon.peer();
        assert!(!peer.established, "{peer:#?}");
        assert_eq!((peer.received_bytes, peer.sent_bytes), (0, 0), "{peer:#?}");
    }
}

#[test]
fn a_caller_with_another_key_never_connects() {
    if can_run(&[]) {
        assert_strangers("caller", ((3, 2), ""), ((2, 1), ""));
    }
}

#[test]
fn an_answerer_with_another_key_never_connects() {
    if can_run(&[]) {
        assert_strangers("answer", ((1, 2), ""), ((3, 1), ""));
    }
}

#[test]
fn another_preshared_key_never_connects() {
    if can_run(&[]) {
        let (right, wrong) =
            ("preshared_key_file = 'right.psk'", "preshared_key_file = 'wrong.psk'");
        assert_strangers("psk", ((1, 2), right), ((2, 1), wrong));
    }
}
