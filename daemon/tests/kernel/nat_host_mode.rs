//! Host mode through NATs: connections that a client behind one begins go on the paths, and
//! the server's applications see the client's public address.
//!
//! ```text
//!   client                   router                         server
//!   eth0 198.19.0.2 -------- lan 198.19.0.1
//!                            wan 198.18.N.1 --- masquerade - wanN 198.18.N.9
//! ```

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::common::host_mode::{HostConfiguration, PlainCounter, changes, ip};
use crate::common::nat::{Site, add_private_network};
use crate::common::{Daemon, Directory, Host, Transfer, for_each, key, wait_for};
use mpip_testing::can_run;

/// Kinds of NAT: keeps ports that are free; chooses random ports; chooses random ports for each
/// destination; maps to a fixed address.
const KINDS: [&str; 4] =
    ["masquerade", "masquerade random", "masquerade fully-random", "snat to 198.18.0.1"];

/// 50 Mbit/s.
const RATE: u64 = 50_000_000 / 8;

const SERVER: &str = "198.18.0.9";

/// Starts both daemons; `peer` are lines for the client's peer.
fn connect(site: &Site, server: &Host, directory: &Directory, peer: &str) -> [Daemon; 2] {
    let endpoints = &["198.18.0.9:6182"];
    let one = HostConfiguration { number: 1, endpoints, peer, more: "" };
    let two = HostConfiguration { number: 2, endpoints: &[], peer: "", more: "" };
    let there = two.start(server, directory);
    let here = one.start(&site.client, directory);
    here.wait_for_capture(1);
    wait_for("the NAT", || there.peer().nats.len() == 1);
    [here, there]
}

/// Both directions, while the router forgets its mappings.
fn assert_goes_on_the_paths(kind: &str) {
    let test = format!("nh{}", kind.len());
    let server = Host::new(&test, "s");
    let site = Site::new(&test, &server, 0, kind);
    let directory = Directory::new();
    let state = (site.client.state(), server.state());
    let [mut daemon_a, mut daemon_b] = connect(&site, &server, &directory, "");

    let plain = [PlainCounter::new(&site.client), PlainCounter::new(&server)];
    let before = changes([&daemon_a, &daemon_b]);
    for fetch in [false, true] {
        let transfer = daemon_a.begin(|| match fetch {
            false => Transfer::start(&site.client, &server, ip(SERVER), RATE),
            true => Transfer::fetch(&server, &site.client, ip(SERVER), RATE),
        });
        for _ in 0..2 {
            transfer.advance(RATE / 4);
            site.forget();
        }
        let from = transfer.finish();
        assert_eq!(from.ip(), IpAddr::from([198, 18, 0, 1]), "as without mpip");
        assert!((16_384..32_768).contains(&from.port()), "{from}");
    }
    assert!(site.client.ping(SERVER, 3));
    let plain = plain.map(|counter| counter.take());
    let fell_back = changes([&daemon_a, &daemon_b]) != before;
    assert!(plain == [0, 0] || fell_back, "{kind}: everything went on the paths, but {plain:?}");
    let translated = |daemon: &Daemon| daemon.peer().translated;
    // Each ping is one; one that was answered late was repeated.
    let [at_a, at_b] = [translated(&daemon_a), translated(&daemon_b)];
    assert!(at_a == at_b && (at_a >= 5 || fell_back), "{at_a} and {at_b}");

    for (daemon, host) in [(&mut daemon_a, &site.client), (&mut daemon_b, &server)] {
        daemon.signal("TERM");
        assert!(daemon.wait());
        host.exec("nft", &["delete", "table", "inet", "mpip_test"]);
    }
    assert_eq!((site.client.state(), server.state()), state);
}

#[test]
fn behind_each_kind_of_nat_connections_go_on_the_paths() {
    if !can_run(&["nft", "conntrack"]) {
        return;
    }
    for_each(KINDS, assert_goes_on_the_paths);
}

/// A connection that began before stays as it is, all through the life of the daemons.
#[test]
fn a_running_connection_stays_plain_and_is_not_harmed() {
    if !can_run(&["nft"]) {
        return;
    }
    let server = Host::new("nhrun", "s");
    let site = Site::new("nhrun", &server, 0, KINDS[0]);
    let directory = Directory::new();
    let up = Transfer::start(&site.client, &server, ip(SERVER), RATE);
    let down = Transfer::fetch(&server, &site.client, ip(SERVER), RATE);
    up.advance(RATE / 4);
    let [mut daemon_a, mut daemon_b] = connect(&site, &server, &directory, "");
    for transfer in [&up, &down] {
        transfer.advance(RATE / 4);
    }
    assert_eq!(daemon_a.peer().translated, 0);
    for daemon in [&mut daemon_a, &mut daemon_b] {
        daemon.signal("TERM");
        assert!(daemon.wait());
    }
    for from in [up.finish(), down.finish()] {
        assert!(from.port() >= 32_768, "the port that the NAT gave");
    }
}

/// Other hosts behind the NAT are not touched: one beside the client talks to the server.
#[test]
fn what_is_not_a_peers_goes_by_beside_it() {
    if !can_run(&["nft"]) {
        return;
    }
    let server = Host::new("nhby", "s");
    let site = Site::new("nhby", &server, 0, KINDS[0]);
    let directory = Directory::new();
    let [_daemon_a, daemon_b] = connect(&site, &server, &directory, "");
    // The router itself has the public address, and takes ports where peers' connections have them.
    site.router.sysctl("net/ipv4/ip_local_port_range", "16384 32767");
    assert!(site.router.ping(SERVER, 3));
    assert!(server.ping("198.18.0.1", 3));
    for fetch in [false, true] {
        let transfer = match fetch {
            false => Transfer::start(&site.router, &server, ip(SERVER), RATE),
            true => Transfer::fetch(&server, &site.router, ip(SERVER), RATE),
        };
        let from = transfer.finish();
        assert!((16_384..32_768).contains(&from.port()), "{from}");
    }
    assert_eq!(daemon_b.peer().translated, 0);
}

/// An address that the server tells and that is somebody else's where the client is.
#[test]
fn an_address_of_the_server_that_cannot_be_reached_is_left_alone() {
    if !can_run(&["nft"]) {
        return;
    }
    let server = Host::new("nhpriv", "s");
    let site = Site::new("nhpriv", &server, 0, KINDS[0]);
    add_private_network(&server);
    // The client has a neighbour there, who is no peer.
    site.router.ip(&["addr", "add", "198.19.0.3/24", "dev", "lan"]);
    let directory = Directory::new();
    let [daemon_a, _daemon_b] = connect(&site, &server, &directory, "");
    daemon_a.wait_for_captured(&["198.18.0.9/32"]);
    let neighbour = Transfer::start(&site.client, &site.router, ip("198.19.0.3"), RATE).finish();
    assert_eq!(neighbour.ip(), ip("198.19.0.2"));
    let transfer = daemon_a.begin(|| Transfer::start(&site.client, &server, ip(SERVER), RATE));
    assert_eq!(transfer.finish().ip(), ip("198.18.0.1"));
}

/// Both clients have 198.19.0.2 and call from the same port.
#[test]
fn two_clients_with_the_same_address_are_told_apart() {
    if !can_run(&["nft"]) {
        return;
    }
    let server = Host::new("nhtwo", "s");
    let sites = [0, 1].map(|number| Site::new("nhtwo", &server, number, KINDS[0]));
    let directories = [Directory::new(), Directory::new()];
    let second = format!(
        "[[peer]]\nname = 'second'\npublic_key = '{}'\nhost_mode = true",
        key(3).public_key()
    );
    let two = HostConfiguration { number: 2, endpoints: &[], peer: "", more: &second };
    let there = two.start(&server, &directories[0]);
    let endpoints = &["198.18.0.9:6182"];
    let one = HostConfiguration { number: 1, endpoints, peer: "policy = 'require'", more: "" };
    let first = one.start(&sites[0].client, &directories[0]);
    // The second client is a copy of the first with another key and another address of the server.
    let endpoints = &["198.18.1.9:6182"];
    let one = HostConfiguration { number: 1, endpoints, peer: "policy = 'require'", more: "" };
    let file = one.write(&directories[1]);
    let key_file = directories[1].join("1.key");
    fs::write(&key_file, key(3).secret_base64().as_str()).expect("writable");
    fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600)).expect("ours");
    let other = Daemon::spawn_file(&sites[1].client, &directories[1], 1, &file).ready();
    for daemon in [&first, &other] {
        daemon.wait_for_capture(1);
    }
    wait_for("both NATs", || there.status().peers.iter().all(|peer| peer.nats.len() == 1));
    // A connection that begins before its host knows of the NAT is not recognised as one later.
    let knows = |daemon: &Daemon| daemon.peer().paths.iter().any(|path| path.observed.is_some());
    wait_for("both know of their NAT", || knows(&first) && knows(&other));
    for site in &sites {
        site.client.sysctl("net/ipv4/ip_local_port_range", "40000 40001");
    }
    let transfers = [0u8, 1].map(|number| {
        let address = IpAddr::from([198, 18, number, 9]);
        Transfer::start(&sites[usize::from(number)].client, &server, address, RATE)
    });
    for (number, transfer) in (0u8..).zip(transfers) {
        assert_eq!(transfer.finish().ip(), IpAddr::from([198, 18, number, 1]));
    }
    assert!(there.status().peers.iter().all(|peer| peer.translated == 1));
}

/// What began on the paths waits while there is none; new connections are plain meanwhile.
#[test]
fn without_a_path_a_connection_waits_for_one() {
    if !can_run(&["nft"]) {
        return;
    }
    let server = Host::new("nhwait", "s");
    let site = Site::new("nhwait", &server, 0, KINDS[0]);
    let directory = Directory::new();
    let [daemon_a, _daemon_b] = connect(&site, &server, &directory, "encapsulation = 'udp'");
    let transfer = daemon_a.begin(|| Transfer::start(&site.client, &server, ip(SERVER), RATE));
    transfer.advance(RATE / 4);
    // The router lets no UDP through any more.
    site.router.nft(
        "table ip cut {\n chain f {\n type filter hook forward priority 0;\n \
         meta l4proto udp drop;\n }\n}\n",
    );
    wait_for("plain", || daemon_a.traffic() == "plain");
    let meanwhile = Transfer::start(&site.client, &server, ip(SERVER), RATE).finish();
    assert!(meanwhile.port() >= 32_768, "{meanwhile}");
    std::thread::sleep(Duration::from_millis(500));
    site.router.exec("nft", &["delete", "table", "ip", "cut"]);
    let from = transfer.finish();
    assert!((16_384..32_768).contains(&from.port()), "{from}");
}
