//! Starting and ending: nothing is left on the host, and what is in the way is named.
//!
//! ```text
//!   host a                        host b
//!   eth0 198.18.0.1/24 ---------- eth0 198.18.0.2/24     veth
//!   mpip0 10.77.0.1               (no daemon)
//! ```

use std::net::UdpSocket;
use std::time::Duration;

use crate::common::{Configuration, Daemon, Directory, Family, Host, two_hosts, wait_for};
use mpip_api::{Request, Response};
use mpip_testing::can_run;

const CONFIGURATION: Configuration<'static> =
    Configuration { number: 1, keys: (1, 2), endpoints: &["198.18.0.2:6182"], peer: "" };

/// Everything that a daemon could leave on `host`.
fn leftovers(host: &Host) -> String {
    let routes = host.ip(&["route", "show", "table", "all", "proto", "109"]);
    let routes_v6 = host.ip(&["-6", "route", "show", "table", "all", "proto", "109"]);
    let links = host.ip(&["-o", "link", "show", "type", "tun"]);
    let rules = host.ip(&["rule", "show"]);
    let own_rules: Vec<&str> = rules.lines().filter(|rule| rule.contains("proto 109")).collect();
    format!("{routes}{routes_v6}{links}{}", own_rules.join("\n"))
}

#[test]
fn down_removes_device_routes_and_socket_before_it_answers() {
    if !can_run(&[]) {
        return;
    }
    let (a, _b) = two_hosts("down", 1, &[Family::V4]);
    let directory = Directory::new();
    let mut daemon = Daemon::start(&a, &directory, &CONFIGURATION);
    let routes = a.ip(&["route", "show", "dev", "mpip0"]);
    assert!(routes.contains("10.77.0.2 proto 109"), "{routes}");
    assert!(leftovers(&a).contains("mpip0"));

    let answer = mpip_api::request(&daemon.socket, &Request::Down).expect("answered");
    assert_eq!(answer, Response::Done);
    assert_eq!(leftovers(&a), "");
    assert!(!daemon.socket.exists());
    assert!(daemon.wait(), "it ends with success");
}

#[test]
fn a_signal_ends_it_in_the_same_way() {
    if !can_run(&[]) {
        return;
    }
    let (a, _b) = two_hosts("term", 1, &[Family::V4]);
    let directory = Directory::new();
    for signal in ["TERM", "INT"] {
        let mut daemon = Daemon::start(&a, &directory, &CONFIGURATION);
        daemon.signal("HUP");
        assert_eq!(daemon.status().interface.name, "mpip0", "SIGHUP does not end it");
        daemon.signal(signal);
        assert!(daemon.wait(), "it ends with success");
        assert_eq!(leftovers(&a), "");
        assert!(!daemon.socket.exists());
    }
}

#[test]
fn a_killed_one_leaves_only_what_refuses_and_the_next_one_starts() {
    if !can_run(&[]) {
        return;
    }
    let (a, _b) = two_hosts("kill", 1, &[Family::V4]);
    let directory = Directory::new();
    let mut daemon = Daemon::start(&a, &directory, &CONFIGURATION);
    daemon.kill();
    let left = leftovers(&a);
    assert_eq!(left.lines().count(), left.matches("mpip-refuse0").count(), "{left}");
    assert!(daemon.socket.exists(), "nobody could remove the socket's file");
    // What it would leave on a device that somebody made persistent, and a route that is not ours.
    a.ip(&["tuntap", "add", "dev", "mpip0", "mode", "tun", "vnet_hdr"]);
    a.ip(&["link", "set", "mpip0", "up"]);
    a.ip(&["route", "add", "198.18.200.0/24", "dev", "mpip0", "proto", "109"]);
    a.ip(&["route", "add", "198.18.201.0/24", "dev", "mpip0", "proto", "110"]);

    let mut again = Daemon::start(&a, &directory, &CONFIGURATION);
    let routes = a.ip(&["route", "show", "dev", "mpip0"]);
    assert!(!routes.contains("198.18.200.0") && routes.contains("198.18.201.0"), "{routes}");
    mpip_api::request(&again.socket, &Request::Down).expect("answered");
    assert!(again.wait());
    assert!(!leftovers(&a).contains("proto 109") && !leftovers(&a).contains("mpip-refuse0"));
    let (routes, addresses) =
        (a.ip(&["route", "show", "dev", "mpip0"]), a.ip(&["addr", "show", "dev", "mpip0"]));
    assert!(!routes.contains("10.77.0") && !addresses.contains("10.77.0"), "{routes}{addresses}");
}

#[test]
fn a_port_or_device_in_use_is_named_with_file_and_line() {
    if !can_run(&[]) {
        return;
    }
    let (a, _b) = two_hosts("busy", 1, &[Family::V4]);
    let directory = Directory::new();
    let file = directory.join("1.toml");

    let holder = a.take(|| UdpSocket::bind("198.18.0.1:6182"));
    let mut daemon = Daemon::spawn(&a, &directory, &CONFIGURATION);
    assert!(!daemon.wait());
    let expected =
        format!("mpipd: {}:3: listen_port: expected a free UDP port, found 6182: ", file.display());
    assert!(daemon.log().contains(&expected), "{}", daemon.log());
    assert_eq!(leftovers(&a), "", "a failed start leaves nothing either");
    holder.release();

    a.ip(&["link", "add", "mpip0", "type", "veth", "peer", "name", "other"]);
    let mut daemon = Daemon::spawn(&a, &directory, &CONFIGURATION);
    assert!(!daemon.wait());
    let expected = format!(
        "mpipd: {}:6: name: expected an unused interface name, found `mpip0`: ",
        file.display()
    );
    assert!(daemon.log().contains(&expected), "{}", daemon.log());
    a.ip(&["link", "del", "mpip0"]);

    let running = Daemon::start(&a, &directory, &CONFIGURATION);
    let mut second = Daemon::spawn(&a, &directory, &CONFIGURATION);
    assert!(!second.wait());
    assert!(second.log().contains("already running: "), "{}", second.log());
    assert_eq!(running.status().pid, running.child.id(), "the first one goes on");
}

#[test]
fn it_keeps_the_capabilities_that_it_needs() {
    if !can_run(&[]) {
        return;
    }
    let (a, _b) = two_hosts("caps", 1, &[Family::V4]);
    let directory = Directory::new();
    // CAP_NET_ADMIN is number 12, CAP_NET_RAW 13, CAP_NET_BIND_SERVICE 10 (capabilities(7)).
    for (node, peer, kept) in [
        ("", "encapsulation = 'udp'", "1000"),
        ("", "encapsulation = 'auto'", "3000"),
        ("tcp_port = 443\n", "encapsulation = 'tcp'", "3400"),
    ] {
        let configuration = Configuration { peer, ..CONFIGURATION };
        let daemon = Daemon::start_with(&a, &directory, &configuration, node);
        assert_capabilities(&daemon, kept);
    }
}

fn assert_capabilities(daemon: &Daemon, kept: &str) {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.child.id())).expect("alive");
    let mut threads = 0;
    for task in tasks {
        let path = task.expect("a thread").path().join("status");
        // The thread of a client that has just gone may end between the two.
        let Ok(status) = std::fs::read_to_string(path) else { continue };
        for set in ["CapPrm", "CapEff"] {
            assert!(status.contains(&format!("{set}:\t000000000000{kept}")), "{status}");
        }
        for set in ["CapInh", "CapBnd", "CapAmb"] {
            assert!(status.contains(&format!("{set}:\t0000000000000000")), "{status}");
        }
        threads += 1;
    }
    assert!(threads >= 2, "the control socket's thread too");
}

#[test]
fn a_device_that_is_set_down_and_up_has_its_addresses_and_routes_again() {
    if !can_run(&[]) {
        return;
    }
    let (a, _b) = two_hosts("updown", 1, &[Family::V4]);
    let directory = Directory::new();
    let _daemon = Daemon::start(&a, &directory, &CONFIGURATION);
    let state = || {
        let routes = a.ip(&["route", "show", "dev", "mpip0", "proto", "109"]);
        let routes_v6 = a.ip(&["-6", "route", "show", "dev", "mpip0", "proto", "109"]);
        let addresses = a.ip(&["-o", "addr", "show", "dev", "mpip0"]);
        assert!(!addresses.contains("fe80"), "no link-local address: {addresses}");
        (routes.lines().count(), routes_v6.lines().count(), addresses.lines().count())
    };
    assert_eq!(state(), (1, 1, 2));
    a.ip(&["link", "set", "mpip0", "down"]);
    wait_for("routes gone", || state().0 == 0);
    std::thread::sleep(Duration::from_millis(100));
    a.ip(&["link", "set", "mpip0", "up"]);
    wait_for("routes again", || state() == (1, 1, 2));
}

#[test]
fn addresses_that_come_and_go_are_followed() {
    if !can_run(&[]) {
        return;
    }
    let (a, _b) = two_hosts("follow", 1, &[Family::V4, Family::V6]);
    let directory = Directory::new();
    let daemon = Daemon::start(&a, &directory, &CONFIGURATION);
    let addresses = || {
        let local = daemon.status().local_addresses.into_iter();
        local.map(|local| local.address.to_string()).collect::<Vec<_>>()
    };
    let becomes = |expected: &[&str]| {
        wait_for(&format!("{expected:?}"), || addresses() == expected);
    };
    becomes(&["198.18.0.1", "2001:db8::1"]);
    a.ip(&["addr", "add", "198.18.7.1/24", "dev", "eth0"]);
    becomes(&["198.18.0.1", "2001:db8::1", "198.18.7.1"]);
    a.ip(&["addr", "del", "198.18.0.1/24", "dev", "eth0"]);
    becomes(&["2001:db8::1", "198.18.7.1"]);
    a.ip(&["link", "set", "eth0", "down"]);
    becomes(&[]);
    a.ip(&["link", "set", "eth0", "up"]);
    // The kernel forgets IPv6 addresses of an interface that is set down.
    becomes(&["198.18.7.1"]);
    a.ip(&["link", "set", "eth0", "mtu", "1400"]);
    wait_for("the MTU", || daemon.status().local_addresses[0].mtu_bytes == 1_400);
}
