//! A peer has keys but is not trusted: not with packets that this host forwards, and not with
//! connections of others at its address.

use std::io::Read as _;
use std::net::{IpAddr, TcpListener, TcpStream};

use crate::common::host_mode::{HostConfiguration, PlainCounter, changes, ip};
use crate::common::nat::Site;
use crate::common::{
    Configuration, Daemon, Directory, Family, HANG, Host, Transfer, add_link, two_hosts, wait_for,
};
use mpip_testing::can_run;

/// 50 Mbit/s.
const RATE: u64 = 50_000_000 / 8;

fn refused(daemon: &Daemon, reason: &str) -> u64 {
    let drops = daemon.status().drops;
    drops.iter().find(|drop| drop.name == reason).map_or(0, |drop| drop.count)
}

/// Host b forwards for host c, which is behind it, at 198.18.2.2.
fn behind(test: &str, b: &Host) -> Host {
    let c = Host::new(test, "c");
    add_link(b, &c, 2, &[Family::V4]);
    b.sysctl("net/ipv4/ip_forward", "1");
    c.ip(&["route", "add", "default", "via", "198.18.2.1"]);
    c
}

/// Host a leads packets to c onto its paths to b, and c would answer.
const LEADS_TO_C: HostConfiguration<'static> = HostConfiguration {
    number: 1,
    endpoints: &["198.18.0.2:6182"],
    peer: "allowed_prefixes = ['198.18.2.0/24']",
    more: "",
};

const C: &str = "198.18.2.2";

/// Sends pings to c, and says whether one got there.
fn reaches_c(a: &Host, c: &Host) -> bool {
    let before = c.snmp("Icmp", "InEchos");
    let answered = a.ping_once(C) || a.ping_once(C);
    let arrived = c.snmp("Icmp", "InEchos") > before;
    assert_eq!(answered, arrived);
    arrived
}

#[test]
fn a_peers_packets_are_forwarded_to_nobody_whom_it_may_not_reach() {
    if !can_run(&[]) {
        return;
    }
    let (a, b) = two_hosts("reach", 1, &[Family::V4]);
    let c = behind("reach", &b);
    let directory = Directory::new();
    let daemon_a = LEADS_TO_C.start(&a, &directory);
    for (lines, expected) in [("", false), ("reaches = ['198.18.2.0/24']", true)] {
        let two = HostConfiguration { number: 2, endpoints: &[], peer: lines, more: "" };
        let mut daemon_b = two.start(&b, &directory);
        daemon_b.wait_for_capture(1);
        wait_for("the paths", || daemon_a.traffic() == "multipath");
        assert!(a.ping("198.18.0.2", 1), "its own addresses may be reached");
        let before = refused(&daemon_b, "foreign_destination");
        assert_eq!(reaches_c(&a, &c), expected, "{lines}");
        assert_eq!(refused(&daemon_b, "foreign_destination") == before, expected);
        daemon_b.signal("TERM");
        assert!(daemon_b.wait());
    }
}

#[test]
fn a_strangers_packets_are_forwarded_to_nobody() {
    if !can_run(&[]) {
        return;
    }
    let (a, b) = two_hosts("lan", 1, &[Family::V4]);
    let c = behind("lan", &b);
    let directory = Directory::new();
    // Host b has another peer configured, and deals with strangers; host a has b configured.
    let lines = "[opportunistic]\nprefixes = ['198.18.0.0/15']\n\
                 exclusive = ['198.18.0.0/15']\npins = 'known'";
    let two = Configuration { number: 2, keys: (2, 9), endpoints: &[], peer: lines };
    let daemon_b = Daemon::start(&b, &directory, &two);
    let daemon_a = LEADS_TO_C.start(&a, &directory);
    wait_for("an association", || {
        daemon_b.status().peers.iter().any(|peer| peer.established && !peer.captured.is_empty())
            && daemon_a.traffic() == "multipath"
    });
    assert!(a.ping("198.18.0.2", 1));
    assert!(!reaches_c(&a, &c));
    assert!(refused(&daemon_b, "foreign_destination") > 0);
}

/// Says its name to whoever connects, for as long as the test runs.
fn serve(host: &Host, address: &str, name: u8) {
    let address: IpAddr = address.parse().expect("valid");
    let listen = move || TcpListener::bind((address, 8_080)).expect("the host has the address");
    let listener = host.spawn(listen).join().expect("no panic");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = std::io::Write::write_all(&mut stream.expect("a connection"), &[name]);
        }
    });
}

/// Who answers at port 8080 of 198.18.0.1.
fn who_answers(from: &Host) -> u8 {
    let connect = || {
        let address = "198.18.0.1:8080".parse().expect("valid");
        let mut stream = TcpStream::connect_timeout(&address, HANG).expect("somebody listens");
        stream.set_read_timeout(Some(HANG)).expect("a time-out");
        let mut name = [0];
        stream.read_exact(&mut name).expect("a name");
        name[0]
    };
    from.spawn(connect).join().expect("no panic")
}

/// The peer runs on the router, whose public address forwards a port to another host. The peer
/// rightly says that it has this address, and has a service of its own at the same port.
#[test]
fn a_peer_that_shares_its_address_does_not_get_what_is_for_its_neighbours() {
    if !can_run(&["nft"]) {
        return;
    }
    let server = Host::new("share", "s");
    let site = Site::new("share", &server, 0, "masquerade");
    site.router.nft(
        "table ip nat { chain pre { type nat hook prerouting priority dstnat;
            iifname wan tcp dport 8080 dnat to 198.19.0.2
        }\n}\n",
    );
    serve(&site.client, "198.19.0.2", b'n');
    serve(&site.router, "198.18.0.1", b'p');
    assert_eq!(who_answers(&server), b'n');
    let running = Transfer::start(&site.router, &server, ip("198.18.0.9"), RATE);
    running.advance(RATE / 4);

    let directory = Directory::new();
    let two = HostConfiguration { number: 2, endpoints: &[], peer: "exclusive = []", more: "" };
    let daemon_s = two.start(&server, &directory);
    let endpoints = &["198.18.0.9:6182"];
    let one = HostConfiguration { number: 1, endpoints, peer: "", more: "" };
    let daemon_p = one.start(&site.router, &directory);
    daemon_p.wait_for_capture(1);
    daemon_s.wait_for_paths(1);
    assert_eq!(who_answers(&server), b'n', "not the peer");
    assert_eq!(daemon_s.peer().captured, Vec::<String>::new());

    // What begins on the paths takes them, in both directions.
    let plain = [PlainCounter::new(&site.router), PlainCounter::new(&server)];
    running.finish();
    assert!(plain.iter().all(|counter| counter.take() > 0), "what ran before goes on as it did");
    let before = changes([&daemon_p, &daemon_s]);
    for fetch in [false, true] {
        let transfer = daemon_p.begin(|| match fetch {
            false => Transfer::start(&site.router, &server, ip("198.18.0.9"), RATE),
            true => Transfer::fetch(&server, &site.router, ip("198.18.0.9"), RATE),
        });
        let from = transfer.finish();
        assert_eq!(from.ip(), ip("198.18.0.1"));
        assert!((16_384..32_768).contains(&from.port()), "{from}");
    }
    let plain = plain.map(|counter| counter.take());
    assert!(plain == [0, 0] || changes([&daemon_p, &daemon_s]) != before, "{plain:?}");
    let translated = daemon_s.peer().translated;
    assert!(translated >= 2, "{translated}");
    assert_eq!(who_answers(&server), b'n');
    // A neighbour's connections to the server have ports of all kinds.
    site.client.sysctl("net/ipv4/ip_local_port_range", "16384 32767");
    let neighbour = Transfer::start(&site.client, &server, ip("198.18.0.9"), RATE);
    assert_eq!(neighbour.finish().ip(), ip("198.18.0.1"));
    assert_eq!(daemon_s.peer().translated, translated, "it is no concern of the peer");
}
