//! Host mode on hosts with several default routes and source routing rules, strict reverse path
//! filters, firewalls that drop by default, bridges with masquerading, and IPv6. Also tests what
//! must never be captured.
//!
//! ```text
//!   host a                                  host b
//!   eth0 198.18.0.1/24  ------------------  eth0 198.18.0.2/24       veth
//!   eth1 198.18.1.1/24  ------------------  eth1 198.18.1.2/24       veth
//! ```

use std::net::UdpSocket;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::common::host_mode::{HostConfiguration, PlainCounter, assert_nothing_is_plain, ip};
use crate::common::{Daemon, Directory, Family, Host, Transfer, run, soon, two_hosts, wait_for};
use mpip_testing::can_run;

const A: HostConfiguration<'static> = HostConfiguration {
    number: 1,
    endpoints: &["198.18.0.2:6182", "198.18.1.2:6182"],
    // One of these paths could carry everything, and then would.
    peer: "scheduler = 'round-robin'",
    more: "",
};
const B: HostConfiguration<'static> =
    HostConfiguration { number: 2, endpoints: &[], peer: "scheduler = 'round-robin'", more: "" };

/// 24 Mbit/s, in bytes per second.
const RATE: u64 = 3_000_000;

/// The daemons of both hosts while a transfer runs: from plain IP onto the paths, and back.
fn there_and_back(
    (a, b): (&Host, &Host),
    configurations: [&HostConfiguration<'_>; 2],
    directory: &Directory,
    transfers: &[&Transfer],
    meanwhile: impl FnOnce(&Daemon, &Daemon),
) {
    let goes_on = || {
        for transfer in transfers {
            transfer.advance(1 << 20);
        }
    };
    goes_on();
    let mut daemon_b = configurations[1].start(b, directory);
    let mut daemon_a = configurations[0].start(a, directory);
    daemon_a.wait_for_capture(2);
    daemon_b.wait_for_capture(2);
    goes_on();
    meanwhile(&daemon_a, &daemon_b);
    daemon_a.signal("TERM");
    assert!(daemon_a.wait());
    goes_on();
    daemon_b.signal("TERM");
    assert!(daemon_b.wait());
}

/// Examines `host` until nothing is wrong: on a machine that stands still a path may fail for a
/// moment.
fn assert_healthy(host: &Host, directory: &Directory, number: u8) {
    let file = directory.join(format!("{number}.toml"));
    let mut said = String::new();
    let healthy = soon(|| {
        let arguments = ["netns", "exec", &host.name, env!("CARGO_BIN_EXE_mpipd"), "--doctor"];
        let output = Command::new("ip").args(arguments).arg("--config").arg(&file).output();
        let output = output.expect("ip");
        said = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success()
    });
    assert!(healthy, "{said}");
}

/// A veth pair between a host and a router, which has the last address but one of the network.
fn uplink(host: &Host, router: &Host, n: u8, network: &str, last: u8) {
    let (eth, far) =
        (format!("eth{n}"), format!("r{}", network.rsplit('.').next().expect("a dot")));
    let pair = ["type", "veth", "peer", "name", &far, "netns", &router.name];
    run("ip", &[&["link", "add", &eth, "netns", &host.name], &pair[..]].concat());
    let (own, gateway) = (format!("{network}.{last}"), format!("{network}.254"));
    for (host, name, address) in [(host, &eth, &own), (router, &far, &gateway)] {
        host.ip(&["addr", "add", &format!("{address}/24"), "dev", name]);
        host.ip(&["link", "set", name, "up"]);
        host.set_rp_filter(name, 1);
    }
    // A default route of its own, and a table for what has its address.
    let (metric, table) = ((100 + n).to_string(), (100 + n).to_string());
    let route = ["route", "add", "default", "via", &gateway, "dev", &eth];
    host.ip(&[&route[..], &["metric", &metric]].concat());
    host.ip(&[&route[..], &["table", &table]].concat());
    host.ip(&["rule", "add", "from", &own, "lookup", &table, "priority", "1000"]);
}

/// Counts what leaves by one interface with the other's address, and all that leaves by the second.
fn watch_sources(host: &Host, first: &str, second: &str) {
    host.nft(&format!(
        "table ip watch {{
            counter wrong {{}}
            counter second {{}}
            chain out {{
                type filter hook postrouting priority 0;
                oifname eth0 ip saddr != {first} counter name wrong
                oifname eth1 ip saddr != {second} counter name wrong
                oifname eth1 counter name second
            }}
        }}\n"
    ));
}

fn counted(host: &Host, table: &str, counter: &str) -> u64 {
    let text = host.nft_output(&["list", "counter", "ip", table, counter]);
    let packets = text.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
    packets.and_then(|number| number.parse().ok()).expect("a counter")
}

/// ```text
///   host a                        router                        host b
///   eth0 198.18.0.1/24 ── .254 r0        r10 .254 ── eth0 198.18.10.2/24
///   eth1 198.18.1.1/24 ── .254 r1        r11 .254 ── eth1 198.18.11.2/24
/// ```
#[test]
fn with_several_default_routes_each_path_leaves_by_its_own_interface() {
    if !can_run(&["nft", "sysctl"]) {
        return;
    }
    let (a, router, b) =
        (Host::new("multi", "a"), Host::new("multi", "r"), Host::new("multi", "b"));
    router.sysctl("net/ipv4/ip_forward", "1");
    for host in [&a, &b, &router] {
        host.set_rp_filter("all", 1);
    }
    for n in 0..2 {
        uplink(&a, &router, n, &format!("198.18.{n}"), 1);
        uplink(&b, &router, n, &format!("198.18.1{n}"), 2);
    }
    watch_sources(&a, "198.18.0.1", "198.18.1.1");
    watch_sources(&b, "198.18.10.2", "198.18.11.2");
    let directory = Directory::new();
    let before = (a.state(), b.state());
    let to_first = Transfer::start(&a, &b, ip("198.18.10.2"), RATE);
    // Its answers come from the address that no default route prefers.
    let to_second = Transfer::start(&b, &a, ip("198.18.1.1"), RATE);
    let one = HostConfiguration { endpoints: &["198.18.10.2:6182"], ..A };
    let meanwhile = |daemon_a: &Daemon, daemon_b: &Daemon| {
        daemon_a.wait_for_paths(4);
        daemon_b.wait_for_paths(4);
        let seconds = || [&a, &b].map(|host| counted(host, "watch", "second"));
        let before = seconds();
        wait_for("the second link of both", || {
            let after = seconds();
            (0..2).all(|host| after[host] > before[host] + 50)
        });
        assert_healthy(&a, &directory, 1);
        assert_healthy(&b, &directory, 2);
    };
    there_and_back((&a, &b), [&one, &B], &directory, &[&to_first, &to_second], meanwhile);
    to_first.finish();
    to_second.finish();
    assert_eq!([&a, &b].map(|host| counted(host, "watch", "wrong")), [0, 0]);
    assert_eq!((a.state(), b.state()), before);
    for host in [&a, &b] {
        assert_eq!(["eth0", "eth1"].map(|name| host.rp_filter(name)), ["1", "1"]);
    }
}

#[test]
fn a_firewall_that_drops_everything_but_our_port_and_known_connections_is_no_obstacle() {
    if !can_run(&["nft"]) {
        return;
    }
    let (a, b) = two_hosts("drop", 2, &[Family::V4]);
    for host in [&a, &b] {
        host.nft(
            "table inet firewall {
                chain in {
                    type filter hook input priority 0;
                    iif lo accept
                    ct state vmap { established : accept, related : accept, invalid : drop }
                    udp dport 6182 accept
                }
                chain forward {
                    type filter hook forward priority 0; policy drop;
                }
            }\n",
        );
    }
    let directory = Directory::new();
    let transfer = Transfer::start(&a, &b, ip("198.18.0.2"), RATE);
    transfer.advance(1 << 20);
    for host in [&a, &b] {
        host.nft("add chain inet firewall in { policy drop; }\n");
    }
    assert!(!a.ping_once("198.18.0.2"), "the firewalls work");
    let meanwhile = |daemon_a: &Daemon, _: &Daemon| {
        daemon_a.wait_for_paths(2);
        assert!(!a.ping_once("198.18.0.2"), "a path opens nothing");
        assert_healthy(&a, &directory, 1);
        assert_healthy(&b, &directory, 2);
    };
    there_and_back((&a, &b), [&A, &B], &directory, &[&transfer], meanwhile);
    transfer.finish();
}

/// A bridge with a container on `host`, as Docker makes them: its packets are masqueraded, and
/// those to `published` are forwarded to it.
fn container(test: &str, host: &Host, letter: &str, published: &str) -> Host {
    let container = Host::new(test, letter);
    host.sysctl("net/ipv4/ip_forward", "1");
    host.ip(&["link", "add", "br0", "type", "bridge"]);
    let pair = ["type", "veth", "peer", "name", "eth0", "netns", &container.name];
    host.ip(&[&["link", "add", "inside"], &pair[..]].concat());
    host.ip(&["link", "set", "inside", "master", "br0"]);
    host.ip(&["addr", "add", "198.18.50.1/24", "dev", "br0"]);
    container.ip(&["addr", "add", "198.18.50.2/24", "dev", "eth0"]);
    for (host, name) in [(host, "br0"), (host, "inside"), (&container, "eth0")] {
        host.ip(&["link", "set", name, "up"]);
    }
    container.ip(&["route", "add", "default", "via", "198.18.50.1"]);
    host.nft(&format!(
        "table ip docker {{
            chain pre {{
                type nat hook prerouting priority -100;
                iifname != br0 ip daddr {published} tcp dport 32768-60999 dnat to 198.18.50.2
            }}
            chain post {{
                type nat hook postrouting priority 100;
                oifname != br0 ip saddr 198.18.50.0/24 masquerade
            }}
            chain forward {{
                type filter hook forward priority 0; policy drop;
                iifname br0 accept
                oifname br0 ct state established,related accept
                oifname br0 ct status dnat accept
            }}
        }}\n"
    ));
    container
}

#[test]
fn containers_behind_a_bridge_are_left_alone() {
    if !can_run(&["nft"]) {
        return;
    }
    let (a, b) = two_hosts("docker", 2, &[Family::V4]);
    let inside_a = container("docker", &a, "ca", "198.18.1.1");
    // The same network on both sides, as is usual.
    let _inside_b = container("docker", &b, "cb", "198.18.1.2");
    let directory = Directory::new();
    let before = (a.state(), b.state());
    let own = Transfer::start(&a, &b, ip("198.18.0.2"), RATE);
    let outward = Transfer::start(&inside_a, &b, ip("198.18.0.2"), RATE);
    let ends = (ip("198.18.50.2"), ip("198.18.1.1"));
    let inward = Transfer::start_translated(&b, &inside_a, ends, RATE);
    let meanwhile = |daemon_a: &Daemon, _: &Daemon| {
        let plain = PlainCounter::new(&a);
        outward.advance(1 << 20);
        assert!(plain.take() > 10, "what is forwarded leaves as plain IP");
        a.exec("nft", &["delete", "table", "inet", "mpip_test"]);
        // Not the bridge's.
        daemon_a.wait_for_captured(&["198.18.0.2/32", "198.18.1.2/32"]);
        assert!(inside_a.ping("198.18.50.1", 1) && a.ping("198.18.50.2", 1));
        // A connection that begins now, out and in.
        let more = Transfer::start(&inside_a, &b, ip("198.18.0.2"), RATE);
        more.finish();
        let more = Transfer::start_translated(&b, &inside_a, ends, RATE);
        more.finish();
    };
    there_and_back((&a, &b), [&A, &B], &directory, &[&own, &outward, &inward], meanwhile);
    for transfer in [own, outward, inward] {
        transfer.finish();
    }
    assert_eq!((a.state(), b.state()), before);
}

#[test]
fn ordinary_addresses_of_ipv6_are_captured() {
    if !can_run(&["nft"]) {
        return;
    }
    let (a, b) = two_hosts("v6", 2, &[Family::V6]);
    let directory = Directory::new();
    let before = (a.state(), b.state());
    let transfer = Transfer::start(&a, &b, ip("2001:db8:0::2"), RATE);
    let one = HostConfiguration { endpoints: &["[2001:db8:0::2]:6182"], ..A };
    let meanwhile = |daemon_a: &Daemon, daemon_b: &Daemon| {
        daemon_a.wait_for_captured(&["2001:db8::2/128", "2001:db8:1::2/128"]);
        let plain = PlainCounter::new(&a);
        transfer.advance(1 << 20);
        assert_nothing_is_plain([daemon_a, daemon_b], &plain, || {
            transfer.advance(1 << 20);
        });
        daemon_a.wait_for_shares(0.05);
        a.exec("nft", &["delete", "table", "inet", "mpip_test"]);
        assert!(a.ping("2001:db8:1::2", 3) && b.ping("2001:db8:0::1", 3));
        // The neighbour caches are asked anew.
        for host in [&a, &b] {
            host.ip(&["-6", "neigh", "flush", "all"]);
        }
        transfer.advance(1 << 20);
        daemon_b.wait_for_paths(2);
        assert_healthy(&a, &directory, 1);
    };
    there_and_back((&a, &b), [&one, &B], &directory, &[&transfer], meanwhile);
    transfer.finish();
    assert_eq!((a.state(), b.state()), before);
}

/// The kernel lets a connection keep its route while nothing changes in the table that it is from.
#[test]
fn a_running_connection_by_ipv6_moves_onto_the_paths_of_a_peer_that_comes_late() {
    if !can_run(&["nft"]) {
        return;
    }
    let (a, b) = two_hosts("late", 2, &[Family::V6]);
    let directory = Directory::new();
    let before = a.state();
    let transfer = Transfer::start(&a, &b, ip("2001:db8:0::2"), RATE);
    let one = HostConfiguration { endpoints: &["[2001:db8:0::2]:6182"], ..A };
    let mut daemon_a = one.start(&a, &directory);
    // The TUN device's own addresses are settled.
    thread::sleep(Duration::from_secs(3));
    let daemon_b = B.start(&b, &directory);
    daemon_a.wait_for_capture(2);
    transfer.advance(1 << 20);
    let plain = PlainCounter::new(&a);
    assert_nothing_is_plain([&daemon_a, &daemon_b], &plain, || {
        transfer.advance(1 << 20);
    });
    daemon_a.signal("TERM");
    assert!(daemon_a.wait());
    plain.take();
    transfer.advance(1 << 20);
    assert!(plain.take() > 10, "plain again");
    a.exec("nft", &["delete", "table", "inet", "mpip_test"]);
    transfer.finish();
    drop(daemon_b);
    assert_eq!(a.state(), before);
}

/// Sends a datagram to `destination`; whether the kernel took it.
fn datagram(host: &Host, destination: &'static str) -> bool {
    let send = move || {
        let socket = UdpSocket::bind(("0.0.0.0", 0)).expect("a port");
        socket.set_broadcast(true).expect("an option");
        socket.send_to(b"x", (destination, 9)).is_ok()
    };
    host.spawn(send).join().expect("no panic")
}

#[test]
fn own_addresses_multicast_and_broadcast_are_never_captured() {
    if !can_run(&["nft"]) {
        return;
    }
    let (a, b) = two_hosts("never", 2, &[Family::V4]);
    a.ip(&["route", "add", "default", "via", "198.18.0.2", "dev", "eth0"]);
    a.ip(&["addr", "add", "198.19.7.7/32", "dev", "lo"]);
    a.nft(
        "table ip watch {
            counter eth0 {}
            counter captured {}
            chain out {
                type filter hook postrouting priority 0;
                udp dport 6182 accept
                ip daddr { 127.0.0.0/8, 198.18.0.1, 198.19.7.7 } oifname != lo counter name captured
                ip daddr { 224.0.0.0/4, 198.18.0.255, 255.255.255.255 } oifname mpip0 counter name captured
                ip daddr { 224.0.0.0/4, 198.18.0.255, 255.255.255.255 } oifname eth0 counter name eth0
            }
        }\n",
    );
    let directory = Directory::new();
    // The peer is the way to everybody else, too; and says that it is where we are.
    let one = HostConfiguration { peer: "allowed_prefixes = ['0.0.0.0/0']", ..A };
    b.ip(&["addr", "add", "198.19.7.7/32", "dev", "eth1"]);
    let daemon_b = B.start(&b, &directory);
    let daemon_a = one.start(&a, &directory);
    daemon_a.wait_for_paths(2);
    wait_for("everything is captured", || a.ip(&["route", "show"]).contains("dev mpip0"));
    let through = || daemon_a.peer().sent_bytes;
    assert!(datagram(&a, "203.0.113.9"));
    wait_for("a packet on the paths", || through() > 0);
    for destination in ["127.0.0.1", "198.18.0.1", "198.19.7.7"] {
        assert!(a.ping(destination, 1), "{destination}");
    }
    for destination in ["224.0.0.251", "239.1.2.3", "198.18.0.255", "255.255.255.255"] {
        assert!(datagram(&a, destination), "{destination}");
    }
    assert_eq!(counted(&a, "watch", "captured"), 0);
    assert!(counted(&a, "watch", "eth0") >= 4, "they leave as without us");
    assert!(!daemon_a.peer().captured.contains(&"198.19.7.7/32".to_owned()));
    drop(daemon_b);
}

/// MTU of the routes to the peer's addresses on `host`.
fn route_mtus(host: &Host) -> Vec<u16> {
    let routes = host.ip(&["route", "show", "table", "6182"]);
    let mtu = |line: &str| line.split("mtu ").nth(1)?.split(' ').next()?.parse().ok();
    routes.lines().filter_map(mtu).collect()
}

#[test]
fn routes_to_the_peer_carry_its_inner_mtu() {
    if !can_run(&["nft", "ss"]) {
        return;
    }
    let (a, b) = two_hosts("mtu", 2, &[Family::V4]);
    let directory = Directory::new();
    let daemon_b = B.start(&b, &directory);
    let daemon_a = A.start(&a, &directory);
    let settled = |(host, daemon): (&Host, &Daemon), least: u16, most: u16| {
        wait_for(&format!("{least} to {most}"), || {
            let inner = daemon.peer().inner_mtu_bytes;
            (least..=most).contains(&inner) && route_mtus(host) == [inner, inner]
        });
    };
    daemon_a.wait_for_capture(2);
    daemon_b.wait_for_capture(2);
    settled((&a, &daemon_a), 1_400, 1_440);
    settled((&b, &daemon_b), 1_400, 1_440);
    // Both directions carry full packets, from before anybody announces a smaller segment size.
    let transfer = Transfer::start(&a, &b, ip("198.18.0.2"), RATE);
    let back = Transfer::start(&b, &a, ip("198.18.0.1"), RATE);
    transfer.advance(1 << 20);
    back.advance(1 << 20);
    // A hole appears: larger packets vanish there, and nobody says so.
    for host in [&a, &b] {
        // Segments cross the link one by one: what counts is the length of each.
        host.exec("ip", &["link", "set", "eth0", "gso_max_segs", "1"]);
        host.nft(
            "table ip hole { chain in { type filter hook prerouting priority -300;
                iifname eth0 meta length > 1328 drop
            }\n}\n",
        );
    }
    // Who sends large packets finds it.
    settled((&a, &daemon_a), 1_200, 1_270);
    settled((&b, &daemon_b), 1_200, 1_270);
    transfer.advance(1 << 20);
    // TCP reduces its segments to fit: 40 bytes of headers, 12 of timestamps. The connection whose
    // data comes from the other side need not.
    wait_for("segments that fit", || {
        let sockets = a.exec("ss", &["-tinH", "dst", "198.18.0.2"]);
        let sizes = sockets.split(" mss:").skip(1).filter_map(|rest| rest.split(' ').next());
        let mss = sizes.filter_map(|mss| mss.parse::<u16>().ok()).min().expect("a connection");
        mss + 52 <= daemon_a.peer().inner_mtu_bytes
    });
    transfer.finish();
    back.finish();
    assert_eq!(a.snmp("Ip", "FragCreates") + b.snmp("Ip", "FragCreates"), 0);
}
