//! Nodes that nobody configured find each other because their hosts talk.
//!
//! ```text
//!   host a                        host b
//!   eth0 198.18.0.1/24 ---------- eth0 198.18.0.2/24     veth
//!   eth1 198.18.1.1/24 ---------- eth1 198.18.1.2/24     veth
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};

use crate::common::Configuration;
use crate::common::Daemon;
use crate::common::Directory;
use crate::common::Family;
use crate::common::Host;
use crate::common::Transfer;
use crate::common::key;
use crate::common::run;
use crate::common::two_hosts;
use crate::common::wait_for;
use mpip_api::{DestinationStatus, PeerStatus, Request, Response};
use mpip_testing::can_run;

fn configuration(number: u8, keys: (u8, u8), lines: &str) -> Configuration<'_> {
    Configuration { number, keys, endpoints: &[], peer: lines }
}

/// A TCP connection from `from` to `address` on `to`, which lives as long as this.
fn connection(from: &Host, to: &Host, address: &str) -> (TcpStream, TcpStream) {
    let address: IpAddr = address.parse().expect("valid");
    let listen = move || TcpListener::bind((address, 0)).expect("the host has the address");
    let listener = to.spawn(listen).join().expect("no panic");
    let address = listener.local_addr().expect("bound");
    let connect = move || TcpStream::connect(address).expect("plain IP works");
    let stream = from.spawn(connect).join().expect("no panic");
    (stream, listener.accept().expect("connected").0)
}

/// A socket of `from` that is connected to `address`, of which only `from` knows.
fn one_sided(from: &Host, address: &str) -> UdpSocket {
    let address: IpAddr = address.parse().expect("valid");
    let connect = move || {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a port is free");
        socket.connect((address, 9)).expect("there is a route");
        socket
    };
    from.spawn(connect).join().expect("no panic")
}

fn destination(daemon: &Daemon, address: &str) -> Option<DestinationStatus> {
    daemon.destinations().into_iter().find(|entry| entry.address.to_string() == address)
}

/// The peer that nobody configured, once there are keys with it.
fn found(daemon: &Daemon) -> Option<PeerStatus> {
    daemon.status().peers.into_iter().skip(1).find(|peer| peer.established)
}

fn count(daemon: &Daemon, event: &str) -> u64 {
    let events = daemon.status().events;
    events.iter().find(|counter| counter.name == event).map_or(0, |counter| counter.count)
}

/// Whether a line of `text` pins the key `number` to host b's address, with a day of this year or
/// the last one.
fn has_pin(text: &str, number: u8) -> bool {
    let start = format!("198.18.0.2 {} ", key(number).public_key());
    let year = run("date", &["-u", "+%Y"]);
    let year: u32 = year.trim().parse().expect("a year");
    text.lines().filter_map(|line| line.strip_prefix(&start)).any(|day| {
        day.len() == "2026-11-24".len()
            && [year - 1, year].iter().any(|year| day.starts_with(&year.to_string()))
    })
}

#[test]
fn a_destination_that_the_host_talks_to_is_found_and_its_key_pinned() {
    if !can_run(&[]) {
        return;
    }
    let (host_a, host_b) = two_hosts("find", 2, &[Family::V4]);
    let directory = Directory::new();
    let lines = "[opportunistic]\nprefixes = ['198.18.0.0/15']\npins = 'deeper/known'";
    let daemon_a = Daemon::start(&host_a, &directory, &configuration(1, (1, 8), lines));
    let lines = "[opportunistic]\nprefixes = ['198.18.0.0/16']\npins = 'other'";
    let daemon_b = Daemon::start(&host_b, &directory, &configuration(2, (2, 9), lines));
    assert!(destination(&daemon_a, "198.18.0.2").is_none(), "nobody talks yet");

    // Host b has no reason to ask by itself.
    let open = one_sided(&host_a, "198.18.0.2");
    wait_for("an association", || {
        found(&daemon_a).is_some_and(|peer| peer.paths.len() >= 2) && found(&daemon_b).is_some()
    });
    let known = destination(&daemon_a, "198.18.0.2").expect("it was asked");
    assert_eq!((known.state.as_str(), known.queries), ("enabled", 5), "{known:?}");
    assert_eq!(known.public_key, Some(key(2).public_key().to_string()));
    let file = directory.join("deeper/known");
    wait_for("the pin", || fs::read_to_string(&file).is_ok_and(|text| has_pin(&text, 2)));
    assert!(!directory.join("other").exists(), "who was asked pins nothing");
    drop(open);
}

#[test]
fn a_changed_key_is_refused_loudly_and_plain_ip_goes_on() {
    if !can_run(&[]) {
        return;
    }
    let (host_a, host_b) = two_hosts("changed", 1, &[Family::V4]);
    let directory = Directory::new();
    fs::write(directory.join("known"), format!("198.18.0.2 {}\n", key(7).public_key()))
        .expect("writable");
    let lines = "[opportunistic]\nprefixes = ['198.18.0.0/15']\npins = 'known'";
    let daemon_a = Daemon::start(&host_a, &directory, &configuration(1, (1, 8), lines));
    let lines = "[opportunistic]\nprefixes = ['198.18.0.0/16']\npins = 'other'";
    let daemon_b = Daemon::start(&host_b, &directory, &configuration(2, (2, 9), lines));
    let asking = one_sided(&host_a, "198.18.0.2");
    wait_for("the refusal", || {
        destination(&daemon_a, "198.18.0.2").is_some_and(|known| known.state == "key-changed")
    });
    // Host b finds host a, too, and calls, which is refused for the same reason.
    let open = connection(&host_a, &host_b, "198.18.0.2");
    wait_for("a call of host b", || count(&daemon_b, "handshake-timeout") > 0);
    assert_eq!(count(&daemon_a, "key-changed"), 1, "{}", daemon_a.log());
    assert!(daemon_a.log().contains("ERROR") && daemon_a.log().contains("ITS KEY HAS CHANGED"));
    assert!(found(&daemon_a).is_none() && found(&daemon_b).is_none());
    assert!(host_a.ping("198.18.0.2", 3));
    drop((asking, open));
}

#[test]
fn a_pin_that_has_expired_gives_way_and_an_orderly_end_loses_none() {
    if !can_run(&[]) {
        return;
    }
    let (host_a, host_b) = two_hosts("expired", 1, &[Family::V4]);
    let directory = Directory::new();
    let known = directory.join("known");
    let others = format!("# mine\n198.18.0.77 {0} # a friend\n", key(7).public_key());
    fs::write(&known, format!("{others}198.18.0.2 {} 2001-01-01\n", key(7).public_key()))
        .expect("writable");
    let lines = "[opportunistic]\nprefixes = ['198.18.0.0/15']\npins = 'known'";
    let mut daemon_a = Daemon::start(&host_a, &directory, &configuration(1, (1, 8), lines));
    let lines = "[opportunistic]\nprefixes = ['198.18.0.0/16']\npins = 'other'";
    let daemon_b = Daemon::start(&host_b, &directory, &configuration(2, (2, 9), lines));
    let open = one_sided(&host_a, "198.18.0.2");
    wait_for("the pin", || count(&daemon_a, "pinned") > 0);
    daemon_a.signal("TERM");
    assert!(daemon_a.wait(), "{}", daemon_a.log());
    let text = fs::read_to_string(&known).expect("readable");
    assert!(text.starts_with(&others) && has_pin(&text, 2), "{text}");
    assert_eq!(text.lines().count(), 3, "{text}");
    assert_eq!(count(&daemon_b, "pinned"), 0);
    let words = format!("in the place of {}, which was not met for long", key(7).public_key());
    assert!(daemon_a.log().contains(&words), "{}", daemon_a.log());
    drop(open);
}

#[test]
fn a_host_without_mpip_is_asked_five_times_and_nothing_else_happens() {
    if !can_run(&[]) {
        return;
    }
    let (host_a, host_b) = two_hosts("silent", 1, &[Family::V4]);
    let directory = Directory::new();
    let lines = "[opportunistic]\nprefixes = ['198.18.0.0/15']\npins = 'known'";
    let daemon_a = Daemon::start(&host_a, &directory, &configuration(1, (1, 8), lines));
    let open = connection(&host_a, &host_b, "198.18.0.2");
    let not_enabled =
        || destination(&daemon_a, "198.18.0.2").is_some_and(|it| it.state == "not-enabled");
    wait_for("the last answer to stay away", not_enabled);
    let known = destination(&daemon_a, "198.18.0.2").expect("it was asked");
    assert_eq!(known.queries, 5, "{known:?}");
    assert!(known.expires_in_ms > 500_000.0, "{known:?}");
    assert!(!directory.join("known").exists());
    assert!(host_a.ping("198.18.0.2", 3));
    drop(open);
}

/// Everything by UDP is dropped at this host.
const NO_UDP: &str = "
    table inet no-udp {
        chain input { type filter hook input priority 0; meta l4proto udp drop; }
        chain output { type filter hook output priority 0; meta l4proto udp drop; }
    }";

/// The encapsulations of the working paths with the peer that was found, each once.
fn kinds(daemon: &Daemon) -> BTreeSet<String> {
    let paths = found(daemon).map(|peer| peer.paths).unwrap_or_default();
    paths.into_iter().filter(|it| it.state == "active").map(|it| it.encapsulation).collect()
}

/// A transfer by plain IP makes the hosts find each other, moves to the paths, and one that begins
/// later uses them too.
#[test]
fn hosts_whose_path_drops_udp_find_each_other_and_carry_tcp() {
    if !can_run(&["nft"]) {
        return;
    }
    let (host_a, host_b) = two_hosts("find-tcp", 2, &[Family::V4]);
    host_a.nft(NO_UDP);
    let directory = Directory::new();
    let lines = |pins: &str| {
        format!(
            "[opportunistic]\nprefixes = ['198.18.0.0/15']\nexclusive = ['198.18.0.0/15']\n\
             pins = '{pins}'\n[opportunistic.peer]\nscheduler = 'round-robin'\n\
             congestion_control = 'cubic'\nmax_paths = 1"
        )
    };
    let (lines_a, lines_b) = (lines("known"), lines("other"));
    let daemon_a = Daemon::start(&host_a, &directory, &configuration(1, (1, 8), &lines_a));
    let daemon_b = Daemon::start(&host_b, &directory, &configuration(2, (2, 9), &lines_b));
    let address: IpAddr = "198.18.0.2".parse().expect("valid");
    let transfer = Transfer::start(&host_a, &host_b, address, 4 << 20);
    let tcp = BTreeSet::from(["tcp".to_owned()]);
    wait_for("paths by TCP", || kinds(&daemon_a) == tcp && kinds(&daemon_b) == tcp);
    let carried = || found(&daemon_b).map_or(0, |peer| peer.received_bytes);
    let before = carried();
    wait_for("the transfer is on the paths", || carried() > before + (1 << 20));
    transfer.finish();
    Transfer::whole(&host_a, &host_b, address, 8 << 20).finish();
    assert!(carried() > before + (8 << 20), "{}", daemon_b.log());

    for daemon in [&daemon_a, &daemon_b] {
        let peer = found(daemon).expect("it is there");
        assert_eq!((&*peer.scheduler, &*peer.congestion_control), ("round-robin", "cubic"));
        assert_eq!(peer.policy, "prefer");
    }
    assert_eq!(found(&daemon_a).map(|peer| used(&peer)), Some(1), "max_paths");

    // Other settings, while the association goes on.
    let age = || found(&daemon_a).and_then(|peer| peer.handshake_age_ms).expect("keys");
    let before = age();
    let changed = lines("known").replace("max_paths = 1", "").replace("'cubic'", "'reno'");
    configuration(1, (1, 8), &changed).write(&directory, "");
    let reply = daemon_a.ask(&Request::Reload).expect("an answer");
    let Response::Reloaded { changes: report } = reply else { panic!("{reply:?}") };
    assert!(report.found && report.changed.is_empty() && !report.interfaces, "{report:?}");
    let peer = found(&daemon_a).expect("it is still there");
    assert_eq!((&*peer.scheduler, &*peer.congestion_control), ("round-robin", "reno"));
    assert!(age() > before, "the same keys");
    assert!(host_a.ping("198.18.0.2", 3));
}

/// Paths that carry packets.
fn used(peer: &PeerStatus) -> usize {
    peer.paths.iter().filter(|path| path.state == "active").count()
}
