//! Behind the kernel's NAT: mappings that differ, move and vanish.
//!
//! ```text
//!   client                   router                         server
//!   eth0 198.19.0.2 -------- lan 198.19.0.1
//!                            wan 198.18.N.1 --- masquerade - wanN 198.18.N.9
//!   mpip0 10.77.0.1                                         mpip0 10.77.0.2
//! ```

use std::net::IpAddr;
use std::time::Duration;

use crate::common::nat::{Site, add_private_network};
use crate::common::{Configuration, Daemon, Directory, Host, Transfer, for_each, key, wait_for};
use mpip_testing::can_run;

/// Ports are kept where they are free; drawn anew by the kernel; drawn anew for each destination.
const KINDS: [&str; 3] = ["masquerade", "masquerade random", "masquerade fully-random"];

/// 50 Mbit/s, so that two cores have nothing to do with the result.
const RATE: u64 = 50_000_000 / 8;

/// The client's configuration and the server's.
fn configurations<'a>(client: u8, endpoints: &'a [&'a str]) -> [Configuration<'a>; 2] {
    let peer = "";
    [
        Configuration { number: 1, keys: (client, 2), endpoints, peer },
        Configuration { number: 2, keys: (2, client), endpoints: &[], peer },
    ]
}

/// Starts the daemons of the client and of `server` and waits for their path.
fn connect(site: &Site, server: &Host, directory: &Directory) -> [Daemon; 2] {
    let [one, two] = configurations(1, &["198.18.0.9:6182"]);
    let there = Daemon::start(server, directory, &two);
    let here = Daemon::start(&site.client, directory, &one);
    here.wait_for_paths(1);
    there.wait_for_paths(1);
    [here, there]
}

fn rebound(daemon: &Daemon) -> u64 {
    let events = daemon.status().events;
    events.iter().find(|counter| counter.name == "rebound").map_or(0, |counter| counter.count)
}

/// The port and address that the server sees are drawn anew in the middle of a transfer.
fn assert_survives_rebinding(kind: &str, from_client: bool) {
    let test = format!("nat{}{}", kind.len(), u8::from(from_client));
    let server = Host::new(&test, "s");
    let site = Site::new(&test, &server, 0, kind);
    let directory = Directory::new();
    let [_daemon_a, daemon_b] = connect(&site, &server, &directory);
    let seen = daemon_b.path().remote;
    assert_eq!(seen.ip(), IpAddr::from([198, 18, 0, 1]), "translated");

    let (from, to, address) = match from_client {
        true => (&site.client, &server, "10.77.0.2"),
        false => (&server, &site.client, "10.77.0.1"),
    };
    let address = address.parse().expect("valid");
    let transfer = Transfer::start(from, to, address, RATE);
    let mut before = seen;
    for _ in 0..3 {
        transfer.advance(RATE / 8);
        site.forget();
        if kind.contains("random") {
            let former = before;
            wait_for("another port", || {
                let paths = daemon_b.active_paths();
                before = paths.first().map_or(former, |path| path.remote);
                before != former
            });
        }
    }
    transfer.finish();
    if kind.contains("random") {
        assert!(rebound(&daemon_b) >= 3, "{}", rebound(&daemon_b));
    }
}

#[test]
fn a_mapping_that_changes_in_mid_transfer_is_followed() {
    if !can_run(&["nft", "conntrack"]) {
        return;
    }
    for_each(KINDS, |kind| {
        for_each([true, false], |from_client| assert_survives_rebinding(kind, from_client));
    });
}

/// The mapping goes after 12 s without packets. At rest that is too long a pause at first, which is
/// noticed; then it is kept, and the server can begin at any time.
fn assert_keeps_its_mapping(kind: &str) {
    let test = format!("natidle{}", kind.len());
    let server = Host::new(&test, "s");
    let site = Site::new(&test, &server, 0, kind);
    site.forget_after(12);
    let directory = Directory::new();
    let [daemon_a, daemon_b] = connect(&site, &server, &directory);
    let learnt = || daemon_a.path().keepalive_ms < 12_000.0;
    wait_for("a pause below 12 s", learnt);
    let path = daemon_a.path();
    assert!(path.resting, "{path:#?}");
    let (before, seen) = (path.sent_packets, daemon_b.path().remote);
    // Longer than the mapping lasts, and than the pause.
    std::thread::sleep(Duration::from_secs(13));
    let sent = daemon_a.path().sent_packets - before;
    assert!(sent <= 6, "{kind}: {sent} datagrams in 13 s at rest");
    assert_eq!(daemon_b.path().remote, seen, "{kind}");
    assert!(server.ping("10.77.0.1", 1), "{kind}: the server reaches the client first");
    let path = daemon_b.path();
    assert!(!path.resting && path.remote == seen, "{kind}: {path:#?}");
}

#[test]
fn an_idle_path_learns_to_keep_its_mapping() {
    if can_run(&["nft"]) {
        assert_keeps_its_mapping(KINDS[0]);
    }
}

#[test]
fn an_idle_path_learns_to_keep_its_mapping_to_random_ports() {
    if can_run(&["nft"]) {
        assert_keeps_its_mapping(KINDS[2]);
    }
}

/// Of two addresses of the server the client reaches one; the other is behind somebody else.
#[test]
fn an_address_of_the_server_that_cannot_be_reached_does_no_harm() {
    if !can_run(&["nft"]) {
        return;
    }
    let server = Host::new("natpriv", "s");
    let site = Site::new("natpriv", &server, 0, KINDS[0]);
    add_private_network(&server);
    let directory = Directory::new();
    let [daemon_a, _daemon_b] = connect(&site, &server, &directory);
    let address = "10.77.0.2".parse().expect("valid");
    Transfer::whole(&site.client, &server, address, 4 << 20).finish();
    let paths = daemon_a.peer().paths;
    let private = paths.iter().find(|path| path.remote.ip() == IpAddr::from([198, 19, 0, 3]));
    assert_eq!(private.map(|path| path.state.as_str()), Some("validating"), "{paths:#?}");
    wait_for("the one path", || daemon_a.active_paths().len() == 1);
}

/// Both clients have 198.19.0.2, each behind a router of its own.
#[test]
fn two_clients_with_the_same_address_reach_the_same_server() {
    if !can_run(&["nft"]) {
        return;
    }
    let server = Host::new("nattwo", "s");
    let sites = [0, 1].map(|number| Site::new("nattwo", &server, number, KINDS[0]));
    let directories = [Directory::new(), Directory::new()];
    let second = format!(
        "[[peer]]\nname = 'second'\npublic_key = '{}'\nallowed_prefixes = ['10.77.0.3/32']",
        key(3).public_key()
    );
    let [one, mut two] = configurations(1, &["198.18.0.9:6182"]);
    two.peer = &second;
    let [three, _] = configurations(3, &["198.18.1.9:6182"]);
    let daemon_b = Daemon::start(&server, &directories[0], &two);
    let daemons = [
        Daemon::start(&sites[0].client, &directories[0], &one),
        Daemon::start(&sites[1].client, &directories[1], &three),
    ];
    sites[1].client.ip(&["addr", "add", "10.77.0.3/32", "dev", "mpip0"]);
    for daemon in &daemons {
        daemon.wait_for_paths(1);
    }
    wait_for("both", || daemon_b.status().peers.iter().all(|peer| peer.established));
    // The second client's daemon hears of the added address a moment later.
    assert!(server.ping("10.77.0.1", 1) && server.ping("10.77.0.3", 1));
    let seen: Vec<_> = daemon_b.status().peers.iter().map(|peer| peer.paths[0].remote).collect();
    assert_ne!(seen[0].ip(), seen[1].ip(), "{seen:?}");
    for (daemon, seen) in daemons.iter().zip(seen) {
        let path = || daemon.peer().paths.swap_remove(0);
        assert_eq!(path().local.ip(), IpAddr::from([198, 19, 0, 2]));
        wait_for("each learns how the server sees it", || path().observed == Some(seen));
    }
}
