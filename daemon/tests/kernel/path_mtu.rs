//! Paths that carry less or more than an Ethernet: it is found without a single ICMP message, and
//! nothing is fragmented outside.
//!
//! ```text
//!   host a                 router                   host b
//!   eth0 198.18.0.1 ── ae0        be0 ── eth0 198.18.10.2     be0 is the bottleneck
//!   eth1 198.18.1.1 ── ae1        be1 ── eth1 198.18.11.2
//!   mpip0 10.77.0.1                      mpip0 10.77.0.2
//!   lan0 198.18.20.1 ── c eth0 198.18.20.2   (a host behind a)
//! ```
//!
//! The router forwards, sends no ICMP and counts fragments.

use crate::common::{
    Configuration, Daemon, Directory, Family, Host, Transfer, add_link, run, two_hosts, wait_for,
};
use mpip_testing::can_run;

const ENDPOINTS: &[&str] = &["198.18.10.2:6182", "198.18.11.2:6182"];
const INNER: &str = "10.77.0.2";

struct World {
    a: Host,
    router: Host,
    b: Host,
    daemon_a: Daemon,
    daemon_b: Daemon,
    _directory: Directory,
}

/// A veth pair between `a` and `b`.
fn link(a: (&Host, &str, &str), b: (&Host, &str, &str)) {
    let ((one, one_name, one_address), (two, two_name, two_address)) = (a, b);
    let pair = ["type", "veth", "peer", "name", two_name, "netns", &two.name];
    run("ip", &[&["link", "add", one_name, "netns", &one.name][..], &pair].concat());
    for (host, name, address) in [(one, one_name, one_address), (two, two_name, two_address)] {
        host.ip(&["addr", "add", address, "dev", name]);
        host.ip(&["link", "set", name, "up"]);
    }
}

/// The router's first way carries packets of `mtu` bytes, toward both sides.
fn narrow(router: &Host, mtu: u16) {
    for link in ["ae0", "be0"] {
        router.ip(&["link", "set", link, "mtu", &mtu.to_string()]);
    }
}

impl World {
    /// The router's first way carries packets of `mtu` bytes.
    fn new(test: &str, mtu: u16) -> Self {
        let (a, router, b) = (Host::new(test, "a"), Host::new(test, "r"), Host::new(test, "b"));
        for n in 0..2 {
            let eth = format!("eth{n}");
            let (left, right) = (format!("198.18.{n}"), format!("198.18.1{n}"));
            let (near, far) = (format!("{left}.1/24"), format!("{left}.254/24"));
            link((&a, &eth, &near), (&router, &format!("ae{n}"), &far));
            let (near, far) = (format!("{right}.2/24"), format!("{right}.254/24"));
            link((&b, &eth, &near), (&router, &format!("be{n}"), &far));
            // Every path by its own link and straight across.
            let table = (100 + n).to_string();
            for (host, own, gateway) in [(&a, &left, &left), (&b, &right, &right)] {
                let last = if host.name == a.name { 1 } else { 2 };
                let via = format!("{gateway}.254");
                let from = format!("{own}.{last}");
                host.ip(&["route", "add", "198.18.0.0/16", "via", &via, "table", &table]);
                host.ip(&["rule", "add", "from", &from, "lookup", &table]);
            }
        }
        router.sysctl("net/ipv4/ip_forward", "1");
        router.nft(
            "table inet t {
                chain out { type filter hook output priority 0;
                    meta l4proto { icmp, icmpv6 } drop
                }
                chain fragments { type filter hook prerouting priority -500;
                    ip frag-off & 0x3fff != 0 counter
                }
            }",
        );
        narrow(&router, mtu);
        let directory = Directory::new();
        // Every path is used, and every hole fallen into.
        let peer = "scheduler = 'round-robin'";
        let one = Configuration { number: 1, keys: (1, 2), endpoints: ENDPOINTS, peer };
        let two = Configuration { number: 2, keys: (2, 1), endpoints: &[], peer };
        let daemon_b = Daemon::start(&b, &directory, &two);
        let daemon_a = Daemon::start(&a, &directory, &one);
        Self { a, router, b, daemon_a, daemon_b, _directory: directory }
    }

    /// MTU of the paths between the first or second addresses of both, as `daemon` sees it.
    fn mtu(daemon: &Daemon, link: u8) -> Option<u16> {
        let paths = daemon.active_paths();
        let ends = [format!("198.18.{link}.1"), format!("198.18.1{link}.2")];
        let across = |path: &&mpip_api::PathStatus| {
            let own = path.local.ip().to_string();
            let other = path.remote.ip().to_string();
            ends.contains(&own) && ends.contains(&other)
        };
        paths.iter().find(across).map(|path| path.mtu_bytes)
    }

    fn wait_for_mtu(&self, link: u8, mtu: u16) {
        for daemon in [&self.daemon_a, &self.daemon_b] {
            Self::wait_for_mtu_of(daemon, link, mtu);
        }
    }

    fn wait_for_mtu_of(daemon: &Daemon, link: u8, mtu: u16) {
        wait_for("the path's MTU", || Self::mtu(daemon, link) == Some(mtu));
    }

    fn assert_no_outer_fragments(&self) {
        let rules = self.router.nft_output(&["list", "chain", "inet", "t", "fragments"]);
        assert!(rules.contains("counter packets 0"), "{rules}");
    }

    /// Neither outside nor inside.
    fn assert_no_fragments(&self) {
        self.assert_no_outer_fragments();
        for host in [&self.a, &self.b] {
            assert_eq!(host.snmp("Ip", "FragCreates"), 0, "{}", host.name);
        }
    }

    fn transfer(&self, bytes: u64) {
        let address = INNER.parse().expect("valid");
        Transfer::whole(&self.a, &self.b, address, bytes).finish();
    }

    /// Bytes that host a has sent from its address on this link.
    fn sent(&self, link: u8) -> u64 {
        let ends = format!("198.18.{link}.1");
        let paths = self.daemon_a.peer().paths;
        let of_link = paths.iter().filter(|path| path.local.ip().to_string() == ends);
        of_link.map(|path| path.sent_bytes).sum()
    }
}

#[test]
fn a_path_with_a_hole_at_1300_bytes_carries_its_share() {
    if !can_run(&["nft"]) {
        return;
    }
    let world = World::new("hole", 1_300);
    world.daemon_a.wait_for_paths(2);
    world.wait_for_mtu(0, 1_300);
    world.wait_for_mtu(1, 1_500);
    wait_for("the routes' MTU", || {
        world.a.ip(&["route", "show", "10.77.0.2"]).contains("mtu 1238")
    });
    wait_for("the inner MTU", || world.daemon_a.peer().inner_mtu_bytes == 1_238);
    let before = world.sent(0);
    world.transfer(64 << 20);
    assert!(world.sent(0) - before > 2 << 20, "{:#?}", world.daemon_a.peer().paths);
    world.assert_no_fragments();
}

#[test]
fn a_hole_that_appears_in_mid_transfer_stops_nothing() {
    if !can_run(&["nft"]) {
        return;
    }
    let world = World::new("appears", 1_500);
    world.daemon_a.wait_for_paths(2);
    world.wait_for_mtu(0, 1_500);
    let rate = 8 << 20;
    let address = INNER.parse().expect("valid");
    let transfer = Transfer::start(&world.a, &world.b, address, rate);
    transfer.advance(rate / 4);
    narrow(&world.router, 1_300);
    // Who sends nothing large does not notice, and need not.
    World::wait_for_mtu_of(&world.daemon_a, 0, 1_300);
    transfer.advance(rate / 4);
    transfer.finish();
    world.assert_no_fragments();
}

#[test]
fn a_hole_on_the_only_path_is_survived() {
    if !can_run(&["nft"]) {
        return;
    }
    let world = World::new("only", 1_500);
    world.daemon_a.wait_for_paths(2);
    world.a.ip(&["link", "set", "eth1", "down"]);
    world.wait_for_mtu(0, 1_500);
    let rate = 8 << 20;
    let address = INNER.parse().expect("valid");
    let transfer = Transfer::start(&world.a, &world.b, address, rate);
    transfer.advance(rate / 4);
    narrow(&world.router, 1_400);
    transfer.advance(rate / 2);
    transfer.finish();
    world.assert_no_fragments();
}

#[test]
fn jumbo_frames_are_used_where_all_links_have_them() {
    if !can_run(&[]) {
        return;
    }
    let (a, b) = two_hosts("jumbo", 0, &[]);
    add_link(&a, &b, 0, &[Family::V4]);
    for host in [&a, &b] {
        host.ip(&["link", "set", "eth0", "mtu", "9000"]);
    }
    let directory = Directory::new();
    let one = Configuration { number: 1, keys: (1, 2), endpoints: &["198.18.0.2:6182"], peer: "" };
    let two = Configuration { number: 2, keys: (2, 1), endpoints: &[], peer: "" };
    let daemon_b = Daemon::start(&b, &directory, &two);
    let daemon_a = Daemon::start(&a, &directory, &one);
    daemon_a.wait_for_paths(1);
    for daemon in [&daemon_a, &daemon_b] {
        wait_for("the device's MTU", || daemon.status().interface.mtu_bytes == 9_000 - 28 - 34);
    }
    assert!(a.ping_with(INNER, 3, 8_938 - 28));
    let address = INNER.parse().expect("valid");
    Transfer::whole(&a, &b, address, 32 << 20).finish();
    let peer = daemon_a.peer();
    let packets: u64 = peer.paths.iter().map(|path| path.sent_packets).sum();
    let bytes: u64 = peer.paths.iter().map(|path| path.sent_bytes).sum();
    assert!(bytes / packets > 4_000, "{bytes} bytes in {packets} datagrams");
}

/// A host behind a, which forwards: its packets that are too big are answered, over IPv4 and IPv6,
/// also those in super-packets.
#[test]
fn a_host_behind_the_gateway_is_told_what_fits() {
    if !can_run(&["nft"]) {
        return;
    }
    let world = World::new("behind", 1_300);
    let behind = Host::new("behind", "c");
    world.daemon_a.wait_for_paths(2);
    world.wait_for_mtu(0, 1_300);
    link((&world.a, "lan0", "198.18.20.1/24"), (&behind, "eth0", "198.18.20.2/24"));
    world.a.sysctl("net/ipv4/ip_forward", "1");
    world.a.nft(
        "table ip t {
            chain nat { type nat hook postrouting priority 100;
                oifname mpip0 masquerade
            }
        }",
    );
    behind.ip(&["route", "add", "default", "via", "198.18.20.1"]);
    assert!(!behind.ping_once_with(INNER, 1_372), "a packet that is too big");
    wait_for("it is told", || behind.snmp("Icmp", "InDestUnreachs") > 0);
    wait_for("what fits is known", || behind.ip(&["route", "get", INNER]).contains("mtu 1238"));
    assert!(behind.ping_with(INNER, 1, 1_372), "in fragments inside");
    let address = INNER.parse().expect("valid");
    Transfer::whole(&behind, &world.b, address, 8 << 20).finish();
    world.assert_no_outer_fragments();
}

/// The engine's own messages, where no route says what fits.
#[test]
fn who_does_not_know_what_fits_is_told() {
    if !can_run(&["nft"]) {
        return;
    }
    let world = World::new("told", 1_300);
    world.daemon_a.wait_for_paths(2);
    world.wait_for_mtu(0, 1_300);
    world.wait_for_mtu(1, 1_500);
    let route = ["10.77.0.2/32", "dev", "mpip0", "proto", "109", "metric", "1", "scope", "link"];
    world.a.ip(&[&["route", "replace"], &route[..]].concat());
    assert!(!world.a.ip(&["route", "get", INNER]).contains("mtu"));
    // What the device carries, but not every path: the socket gets an error and the next try is
    // cut.
    world.a.ping_once_with(INNER, 1_280 - 28);
    wait_for("it is told", || world.a.snmp("Icmp", "InDestUnreachs") > 0);
    wait_for("what fits is known", || world.a.ip(&["route", "get", INNER]).contains("mtu 1238"));
    assert!(world.a.ping_with(INNER, 3, 1_280 - 28));
    world.assert_no_outer_fragments();
}
