//! Host mode: connections between the ordinary addresses of two hosts move onto all paths while
//! they run, and back. How soon is asserted in virtual time
//! (`core/src/engine/requirements/pauses.rs`).
//!
//! ```text
//!   host a                                  host b
//!   eth0 198.18.0.1/24  ------------------  eth0 198.18.0.2/24       veth
//!   eth1 198.18.1.1/24  ------------------  eth1 198.18.1.2/24       veth
//! ```

use crate::common::host_mode::{HostConfiguration, PlainCounter, assert_nothing_is_plain, ip};
use crate::common::{Daemon, Directory, Family, Host, Transfer, for_each, two_hosts, wait_for};
use mpip_testing::can_run;

const ENDPOINTS: &[&str] = &["198.18.0.2:6182", "198.18.1.2:6182"];
const A: HostConfiguration<'static> = HostConfiguration {
    number: 1,
    endpoints: ENDPOINTS,
    // One of these paths could carry everything, and then would.
    peer: "scheduler = 'round-robin'",
    more: "",
};
const B: HostConfiguration<'static> =
    HostConfiguration { number: 2, endpoints: &[], peer: "", more: "" };

/// 100 Mbit/s, in bytes per second.
const RATE: u64 = 12_500_000;

#[test]
fn a_running_connection_moves_onto_the_paths_and_back() {
    if !can_run(&["nft"]) {
        return;
    }
    let (a, b) = two_hosts("move", 2, &[Family::V4]);
    let directory = Directory::new();
    let before = (a.state(), b.state());
    let transfer = Transfer::start(&a, &b, ip("198.18.0.2"), RATE);
    transfer.advance(4 << 20);

    let mut daemon_b = B.start(&b, &directory);
    let mut daemon_a = A.start(&a, &directory);
    daemon_a.wait_for_capture(2);
    daemon_b.wait_for_capture(2);
    let plain = PlainCounter::new(&a);
    transfer.advance(10 << 20);
    assert_nothing_is_plain([&daemon_a, &daemon_b], &plain, || {
        transfer.advance(5 << 20);
    });
    daemon_a.wait_for_shares(0.05);

    daemon_a.signal("TERM");
    assert!(daemon_a.wait());
    plain.take();
    transfer.advance(10 << 20);
    assert!(plain.take() > 100, "plain again, in super-packets");
    daemon_b.signal("TERM");
    assert!(daemon_b.wait());
    transfer.finish();
    a.exec("nft", &["delete", "table", "inet", "mpip_test"]);
    assert_eq!((a.state(), b.state()), before);
}

/// A transfer during which `act` does something to the hosts.
fn transfer_while(name: &str, act: impl FnOnce(&Host, &Host, &Directory, &Transfer)) {
    let (a, b) = two_hosts(name, 2, &[Family::V4]);
    let directory = Directory::new();
    let transfer = Transfer::start(&a, &b, ip("198.18.0.2"), RATE);
    transfer.advance(4 << 20);
    act(&a, &b, &directory, &transfer);
    transfer.finish();
}

fn both(a: &Host, b: &Host, directory: &Directory) -> (Daemon, Daemon) {
    let daemon_b = B.start(b, directory);
    let daemon_a = A.start(a, directory);
    daemon_a.wait_for_capture(2);
    daemon_b.wait_for_capture(2);
    (daemon_a, daemon_b)
}

#[test]
fn a_killed_daemon_stops_nothing_on_either_side() {
    if !can_run(&[]) {
        return;
    }
    for_each([("killa", true), ("killb", false)], |(name, sender)| {
        transfer_while(name, |a, b, directory, transfer| {
            let (mut daemon_a, mut daemon_b) = both(a, b, directory);
            transfer.advance(4 << 20);
            let killed = if sender { &mut daemon_a } else { &mut daemon_b };
            killed.kill();
            let other = if sender { &daemon_b } else { &daemon_a };
            wait_for("plain", || other.traffic() == "plain");
            transfer.advance(4 << 20);
            // It starts again, and everything is as before.
            let (configuration, host) = if sender { (A, a) } else { (B, b) };
            let again = configuration.start(host, directory);
            again.wait_for_capture(2);
            other.wait_for_capture(2);
            transfer.advance(4 << 20);
        });
    });
}

#[test]
fn a_daemon_that_is_stopped_and_started_stops_nothing() {
    if !can_run(&[]) {
        return;
    }
    transfer_while("restart", |a, b, directory, transfer| {
        let (_daemon_a, mut daemon_b) = both(a, b, directory);
        for _ in 0..2 {
            transfer.advance(4 << 20);
            daemon_b.signal("TERM");
            assert!(daemon_b.wait());
            transfer.advance(4 << 20);
            daemon_b = B.start(b, directory);
            daemon_b.wait_for_capture(2);
        }
    });
}

/// Drops what arrives of mpip's paths at `host`, as a middlebox does, until it is lifted.
fn block(host: &Host) {
    host.exec("nft", &["add table inet mpip_block"]);
    host.exec(
        "nft",
        &["add chain inet mpip_block in { type filter hook prerouting priority -300; }"],
    );
    for protocol in ["udp", "tcp"] {
        let rule = format!("add rule inet mpip_block in {protocol} dport 6182 drop");
        host.exec("nft", &[&rule]);
    }
}

fn lift(host: &Host) {
    host.exec("nft", &["delete table inet mpip_block"]);
}

#[test]
fn prefer_falls_back_to_plain_ip_and_returns() {
    if !can_run(&["nft"]) {
        return;
    }
    let (a, b) = two_hosts("prefer", 2, &[Family::V4]);
    let directory = Directory::new();
    let transfer = Transfer::start(&a, &b, ip("198.18.0.2"), RATE);
    let (daemon_a, daemon_b) = both(&a, &b, &directory);
    transfer.advance(4 << 20);
    block(&b);
    wait_for("plain", || daemon_a.traffic() == "plain" && daemon_b.traffic() == "plain");
    transfer.advance(4 << 20);
    lift(&b);
    wait_for("multipath", || daemon_a.traffic() == "multipath");
    transfer.finish();
    let status = daemon_a.status();
    let refused = status.drops.iter().find(|drop| drop.name == "plain_refused");
    assert_eq!(refused.map(|drop| drop.count), Some(0), "what was on its way went on");
    let events = status.events;
    let count = events.iter().find(|event| event.name == "traffic").map(|event| event.count);
    // Onto the paths, off and on again. A machine that stands still for half a second makes more.
    assert!(count.is_some_and(|count| count >= 3), "{events:?}");
}

#[test]
fn require_lets_no_plain_packet_out() {
    if !can_run(&["nft"]) {
        return;
    }
    let (a, b) = two_hosts("require", 2, &[Family::V4]);
    let directory = Directory::new();
    let require = |configuration: HostConfiguration<'static>| HostConfiguration {
        peer: "policy = 'require'",
        ..configuration
    };
    let before = a.state();
    let plain = PlainCounter::new(&a);
    let mut daemon_a = require(A).start(&a, &directory);
    wait_for("blocked", || daemon_a.traffic() == "blocked");
    plain.take();
    // Nobody answers yet.
    assert!(!a.ping_once("198.18.0.2") && !a.ping_once("198.18.1.2"));
    assert_eq!(plain.take(), 0);
    let daemon_b = require(B).start(&b, &directory);
    daemon_b.wait_for_capture(2);
    wait_for("multipath", || daemon_a.traffic() == "multipath");
    assert!(a.ping("198.18.0.2", 3) && a.ping("198.18.1.2", 3));

    block(&b);
    wait_for("blocked", || daemon_a.traffic() == "blocked");
    assert!(!a.ping_once("198.18.0.2"));
    lift(&b);
    wait_for("multipath", || daemon_a.traffic() == "multipath");
    assert!(a.ping("198.18.0.2", 1));
    assert_eq!(plain.take(), 0);

    daemon_a.kill();
    let refused = a.ip(&["route", "show", "table", "6182"]);
    assert_eq!(refused.matches("unreachable 198.18.").count(), 2, "{refused}");
    assert!(!a.ping_once("198.18.0.2"));
    assert_eq!(plain.take(), 0, "also while the daemon is dead");

    let mut daemon_a = require(A).start(&a, &directory);
    wait_for("multipath", || daemon_a.traffic() == "multipath");
    assert!(a.ping("198.18.0.2", 1));
    assert_eq!(plain.take(), 0);
    daemon_a.signal("TERM");
    assert!(daemon_a.wait());
    drop(daemon_b);
    a.exec("nft", &["delete", "table", "inet", "mpip_test"]);
    assert_eq!(a.state(), before);
}

#[test]
fn strict_reverse_path_filters_are_no_obstacle_and_are_put_back() {
    if !can_run(&["sysctl"]) {
        return;
    }
    let (a, b) = two_hosts("rp", 2, &[Family::V4]);
    let directory = Directory::new();
    for host in [&a, &b] {
        for interface in ["all", "default", "eth0", "eth1"] {
            host.set_rp_filter(interface, 1);
        }
    }
    let transfer = Transfer::start(&a, &b, ip("198.18.0.2"), RATE);
    let (mut daemon_a, daemon_b) = both(&a, &b, &directory);
    for host in [&a, &b] {
        host.ip(&["neigh", "flush", "all"]);
    }
    transfer.advance(4 << 20);
    daemon_a.wait_for_paths(2);
    daemon_a.kill();
    assert_eq!(a.rp_filter("eth0"), "2");
    let mut daemon_a = A.start(&a, &directory);
    daemon_a.wait_for_capture(2);
    assert_eq!(a.rp_filter("eth0"), "2");
    daemon_a.signal("TERM");
    assert!(daemon_a.wait());
    assert_eq!((a.rp_filter("eth0"), a.rp_filter("eth1")), ("1".to_owned(), "1".to_owned()));
    transfer.finish();
    drop(daemon_b);
}

#[test]
fn what_a_killed_daemon_left_in_its_tables_goes_when_the_configuration_names_others() {
    if !can_run(&[]) {
        return;
    }
    let (a, _b) = two_hosts("tables", 1, &[Family::V4, Family::V6]);
    let directory = Directory::new();
    let before = a.state();
    let lookups = |table: &str| {
        let shown = [a.ip(&["rule", "show"]), a.ip(&["-6", "rule", "show"])];
        shown.map(|rules| rules.contains(&format!("lookup {table}")))
    };
    for policy in ["prefer", "require"] {
        let peer = format!("policy = '{policy}'");
        let first = HostConfiguration { peer: &peer, ..A };
        first.start(&a, &directory).kill();
        assert_eq!(lookups("6182"), [true; 2], "{policy}");
        let second = HostConfiguration { more: "[host_mode]\ntable = 7000\n", ..first };
        let mut daemon = second.start(&a, &directory);
        assert_eq!((lookups("6182"), lookups("7000")), ([false; 2], [true; 2]), "{policy}");
        assert!(!a.ip(&["route", "show", "table", "all"]).contains("table 6182"));
        daemon.kill();
        let third = HostConfiguration { more: "[host_mode]\ntable = 7100\n", ..first };
        let file = third.write(&directory).display().to_string();
        let said = a.exec(env!("CARGO_BIN_EXE_mpipd"), &["--config", &file, "--clean-up"]);
        assert!(said.starts_with("mpip0: "), "{said}");
        assert_eq!(a.state(), before, "{policy}");
    }
}

#[test]
fn an_interface_that_is_renamed_keeps_its_paths_and_gets_its_filter_back() {
    if !can_run(&["sysctl"]) {
        return;
    }
    let (a, b) = two_hosts("name", 2, &[Family::V4]);
    let directory = Directory::new();
    for interface in ["all", "eth0", "eth1"] {
        a.set_rp_filter(interface, 1);
    }
    let (mut daemon_a, _daemon_b) = both(&a, &b, &directory);
    daemon_a.wait_for_capture(2);
    let transfer = Transfer::start(&a, &b, ip("198.18.0.2"), RATE);
    let of = |daemon: &Daemon, name: &str| -> Vec<u16> {
        let paths = daemon.peer().paths.into_iter();
        paths.filter(|path| path.interface == name).map(|path| path.id).collect()
    };
    let before = of(&daemon_a, "eth0");
    assert!(!before.is_empty());
    assert_eq!(a.rp_filter("eth0"), "2");
    if !a.rename("eth0", "wan0") {
        return;
    }
    wait_for("the new name", || of(&daemon_a, "eth0").is_empty());
    assert_eq!(of(&daemon_a, "wan0"), before, "the same paths");
    let events = daemon_a.status().events;
    assert!(events.iter().all(|event| event.name != "address-removed"), "{events:?}");
    transfer.advance(4 << 20);

    daemon_a.kill();
    assert!(a.rename("wan0", "lan0") && a.rename("eth1", "eth0"));
    assert_eq!(["lan0", "eth0"].map(|name| a.rp_filter(name)), ["2", "2"]);
    let mut daemon_a = A.start(&a, &directory);
    daemon_a.wait_for_capture(2);
    assert_eq!(a.rp_filter("lan0"), "2");
    daemon_a.signal("TERM");
    assert!(daemon_a.wait());
    assert_eq!(["lan0", "eth0"].map(|name| a.rp_filter(name)), ["1", "1"]);
    transfer.finish();
}

/// Host b's firewall refuses TCP that comes from the TUN device. The paths work all the time, so
/// the transfers fall back alone: one that ran before, and one that begins meanwhile.
#[test]
fn what_a_firewall_refuses_on_the_device_is_plain_alone() {
    if !can_run(&["nft"]) {
        return;
    }
    let (a, b) = two_hosts("alone", 2, &[Family::V4]);
    let directory = Directory::new();
    let running = Transfer::start(&a, &b, ip("198.18.0.2"), RATE);
    running.advance(4 << 20);
    b.nft(
        "table inet suspicious {
             chain input {
                 type filter hook input priority 0;
                 iifname \"mpip0\" meta l4proto tcp drop
             }
         }",
    );
    let (daemon_a, daemon_b) = both(&a, &b, &directory);
    let plain = || daemon_a.peer().plain_session_count;
    wait_for("the running transfer falls back", || plain() == 1);
    running.advance(4 << 20);
    let new = Transfer::start(&a, &b, ip("198.18.1.2"), RATE);
    wait_for("the new transfer falls back", || plain() == 2);
    new.advance(4 << 20);

    assert_eq!(daemon_a.traffic(), "multipath", "{}", daemon_a.log());
    assert!(a.ping("198.18.0.2", 3), "{}", daemon_a.log());
    let status = mpip_api::status(&daemon_a.socket, true).expect("it answers");
    let peer = &status.peers[0];
    let mut to: Vec<_> = peer.plain_sessions.iter().map(|it| it.destination.ip()).collect();
    to.sort_unstable();
    assert_eq!(to, [ip("198.18.0.2"), ip("198.18.1.2")]);
    assert!(peer.plain_packets > 1_000, "{}", peer.plain_packets);
    let told = status.events.iter().find(|event| event.name == "plain-session");
    assert_eq!(told.map(|event| event.count), Some(2));
    running.finish();
    new.finish();

    // Without the firewall a new one uses the paths.
    b.exec("nft", &["delete", "table", "inet", "suspicious"]);
    let before = daemon_b.peer().received_bytes;
    Transfer::whole(&a, &b, ip("198.18.0.2"), 8 << 20).finish();
    assert!(daemon_b.peer().received_bytes - before > 8 << 20, "{}", daemon_a.log());
    assert_eq!(plain(), 2, "the others are not idle for long enough yet");
}
