//! Paths with encapsulation `tcp`, where UDP does not get through.
//!
//! ```text
//!   host a                    router                          host b
//!   eth0 198.18.0.1/24  ----  eth0 198.18.0.254
//!                             eth1 198.18.1.254  -----------  eth0 198.18.1.2/24
//!        2001:db8::1/64       2001:db8::fe, 2001:db8:1::fe         2001:db8:1::2/64
//!   mpip0 10.77.0.1                                           mpip0 10.77.0.2
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::common::{
    Configuration, Daemon, Directory, Family, Host, Transfer, for_each, run, two_hosts, wait_for,
};
use mpip_api::PathStatus;
use mpip_testing::can_run;

const V4: &[&str] = &["198.18.1.2:6182"];
const V6: &[&str] = &["[2001:db8:1::2]:6182"];

/// Conntrack in strict mode: what it has not seen the start of, and what is out of its window, is
/// dropped.
const STRICT: &str = "
    table inet strict {
        chain forward {
            type filter hook forward priority 0;
            ct state invalid counter drop
            tcp flags & (syn | ack) == ack ct state new counter drop
        }
    }";
/// UDP is dropped.
const NO_UDP: &str = "
    table inet no-udp {
        chain forward {
            type filter hook forward priority 0;
            meta l4proto udp drop
        }
    }";
/// A host behind the router is not seen.
const MASQUERADE: &str = "
    table ip nat {
        chain postrouting {
            type nat hook postrouting priority srcnat;
            oifname \"eth1\" masquerade fully-random
        }
    }";

struct World {
    a: Host,
    router: Host,
    b: Host,
    directory: Directory,
}

impl World {
    fn new(test: &str) -> Self {
        let (a, router, b) = (Host::new(test, "a"), Host::new(test, "r"), Host::new(test, "b"));
        for (host, number) in [(&a, 0), (&b, 1)] {
            let link = format!("eth{number}");
            run(
                "ip",
                &[
                    "link",
                    "add",
                    "eth0",
                    "netns",
                    &host.name,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    &link,
                    "netns",
                    &router.name,
                ],
            );
            let net = ["2001:db8:", "2001:db8:1:"][number];
            let last = number + 1;
            for (end, device, v4, v6) in
                [(host, "eth0", last, last.to_string()), (&router, &*link, 254, "fe".to_owned())]
            {
                end.ip(&["addr", "add", &format!("198.18.{number}.{v4}/24"), "dev", device]);
                let address = format!("{net}:{v6}/64");
                end.ip(&["addr", "add", &address, "dev", device, "nodad"]);
                end.ip(&["link", "set", device, "up"]);
            }
            let gateway = format!("198.18.{number}.254");
            host.ip(&["route", "add", "198.18.0.0/15", "via", &gateway]);
            host.ip(&["-6", "route", "add", "2001:db8::/32", "via", &format!("{net}:fe")]);
        }
        for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            let enable = move || fs::write(format!("/proc/sys/net/{setting}"), "1");
            router.spawn(enable).join().expect("no panic").expect("our own namespace");
        }
        let loose = || fs::write("/proc/sys/net/netfilter/nf_conntrack_tcp_loose", "0");
        let world = Self { a, router, b, directory: Directory::new() };
        world.firewall(STRICT);
        world.router.spawn(loose).join().expect("no panic").expect("conntrack is in the kernel");
        world
    }

    /// Runs `nft` on the router.
    fn firewall(&self, rules: &str) {
        nft(&self.router, rules);
    }

    /// Starts the daemon of host a (1) or b (2); `node` and `peer` are lines of its sections.
    fn daemon(&self, number: u8, endpoints: &[&str], node: &str, peer: &str) -> Daemon {
        let host = if number == 1 { &self.a } else { &self.b };
        let keys = (number, 3 - number);
        let configuration = Configuration { number, keys, endpoints, peer };
        Daemon::start_with(host, &self.directory, &configuration, node)
    }
}

fn nft(host: &Host, rules: &str) {
    run("ip", &["netns", "exec", &host.name, "nft", rules]);
}

/// The encapsulations of the active paths, each once.
fn kinds(daemon: &Daemon) -> Vec<String> {
    let paths = daemon.active_paths().into_iter();
    paths.map(|path| path.encapsulation).collect::<BTreeSet<_>>().into_iter().collect()
}

fn wait_for_kinds(daemon: &Daemon, expected: &[&str]) {
    wait_for(&format!("{expected:?}"), || kinds(daemon) == expected);
}

/// Waits until the first path of all works.
fn assert_first_serves(daemon: &Daemon) {
    wait_for("the first path", || daemon.active_paths().iter().any(|path| path.id == 0));
}

#[test]
fn traffic_goes_by_tcp_when_udp_is_dropped_and_returns_when_it_is_not() {
    if !can_run(&["nft"]) {
        return;
    }
    for_each([("v4", V4), ("v6", V6)], |(test, endpoints)| {
        let world = World::new(&format!("tcp-{test}"));
        let b = world.daemon(2, &[], "", "");
        let a = world.daemon(1, endpoints, "", "");
        wait_for_kinds(&a, &["udp"]);
        let transfer =
            Transfer::start(&world.a, &world.b, "10.77.0.2".parse().expect("valid"), 4 << 20);
        transfer.advance(1 << 20);

        world.firewall(NO_UDP);
        wait_for_kinds(&a, &["tcp"]);
        wait_for_kinds(&b, &["tcp"]);
        assert!(world.a.ping("10.77.0.2", 3), "{}", a.log());
        transfer.advance(1 << 20);

        world.firewall("delete table inet no-udp");
        wait_for_kinds(&a, &["udp"]);
        wait_for_kinds(&b, &["udp"]);
        transfer.finish();
    });
}

#[test]
fn the_handshake_goes_by_tcp_and_a_masquerading_router_is_no_obstacle() {
    if !can_run(&["nft"]) {
        return;
    }
    let world = World::new("tcp-nat");
    world.firewall(NO_UDP);
    world.firewall(MASQUERADE);
    let node = "tcp_port = 443\n";
    let b = world.daemon(2, &[], node, "");
    let a = world.daemon(1, V4, "", "tcp_port = 443");
    wait_for_kinds(&a, &["tcp"]);
    wait_for_kinds(&b, &["tcp"]);
    assert_eq!(a.path().remote.to_string(), "198.18.1.2:443");
    assert_eq!(b.path().local.to_string(), "198.18.1.2:443");
    assert_eq!(b.path().remote.ip().to_string(), "198.18.1.254");
    assert!(world.a.ping("10.77.0.2", 3) && world.b.ping("10.77.0.1", 3), "{}", a.log());
    let address = "10.77.0.2".parse().expect("valid");
    let transfer = Transfer::whole(&world.a, &world.b, address, 32 << 20);
    transfer.finish();
    // The firewall has seen nothing that it took for invalid but perhaps the end of the old path.
    let rules = run("ip", &["netns", "exec", &world.router.name, "nft", "list", "ruleset"]);
    assert!(rules.contains("ct state invalid counter packets 0 "), "{rules}");
}

#[test]
fn tcp_alone_survives_forged_resets() {
    if !can_run(&["nft"]) {
        return;
    }
    let world = World::new("tcp-rst");
    // The router answers every fortieth packet to host b with a reset in its name. The kernel
    // decides how many segments make one packet there.
    let _b = world.daemon(2, &[], "", "encapsulation = 'tcp'");
    let a = world.daemon(1, V4, "", "encapsulation = 'tcp'");
    wait_for_kinds(&a, &["tcp"]);
    world.firewall(
        "table inet resets {
             chain forward {
                 type filter hook forward priority -10;
                 tcp dport 6182 numgen inc mod 40 0 counter reject with tcp reset
             }
         }",
    );
    let address = "10.77.0.2".parse().expect("valid");
    let transfer = Transfer::start(&world.a, &world.b, address, 4 << 20);
    let resets = |daemon: &Daemon| {
        let drops = daemon.status().drops;
        drops.iter().find(|drop| drop.name == "tcp_reset_ignored").map_or(0, |drop| drop.count)
    };
    wait_for("resets", || resets(&a) > 2);
    transfer.finish();
    wait_for_kinds(&a, &["tcp"]);
    assert_first_serves(&a);
}

/// A host behind the router that forges segments of a and b. It knows their addresses and ports,
/// but not their sequence numbers.
struct Forger {
    _host: Host,
    stop: Arc<AtomicBool>,
}

impl Forger {
    /// `flags` are those of its segments, in turn.
    fn start(world: &World, test: &str, flags: &'static [u8]) -> Self {
        let host = Host::new(test, "c");
        let router = &world.router;
        let link = ["link", "add", "eth0", "netns", &host.name, "type", "veth", "peer", "name"];
        run("ip", &[&link[..], &["eth2", "netns", &router.name]].concat());
        for (end, device, last) in [(&host, "eth0", 3), (router, "eth2", 254)] {
            end.ip(&["addr", "add", &format!("198.18.2.{last}/24"), "dev", device]);
            end.ip(&["link", "set", device, "up"]);
        }
        host.ip(&["route", "add", "198.18.0.0/15", "via", "198.18.2.254"]);
        for name in ["all", "eth2"] {
            router.sysctl(&format!("net/ipv4/conf/{name}/rp_filter"), "0");
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        host.spawn(move || forge(flags, &stopped));
        Self { _host: host, stop }
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn forge(flags: &[u8], stop: &AtomicBool) {
    use rustix::net::{AddressFamily, SocketType, ipproto, socket};
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW));
    let raw = UdpSocket::from(raw.expect("CAP_NET_RAW"));
    let ends = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 1, 2)];
    let (mut state, mut count) = (7_u64, 0_u64);
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 32) as u32
    };
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..50 {
            let end = count as usize / flags.len() % 2;
            let flags = flags[count as usize % flags.len()];
            let (from, to) = (ends[end], ends[1 - end]);
            let mut numbers = || [random(), random(), random(), random()];
            let packet = segment(from, to, flags, numbers());
            // A full queue is no matter.
            let _ = raw.send_to(&packet, SocketAddrV4::new(to, 0));
            count += 1;
        }
        sleep(Duration::from_millis(5));
    }
}

/// A segment of the connection between `from` and `to` with the given sequence number,
/// acknowledgement and timestamps. A PSH segment has a datagram of 6 bytes.
fn segment(from: Ipv4Addr, to: Ipv4Addr, flags: u8, numbers: [u32; 4]) -> Vec<u8> {
    let data: &[u8] = if flags & 0x08 == 0 { &[] } else { b"\0\x06forged" };
    let mut segment = vec![24, 38, 24, 38];
    let [sequence, acknowledgement, clock, echo] = numbers.map(u32::to_be_bytes);
    segment.extend([sequence, acknowledgement].concat());
    segment.extend([0x80, flags, 0xfa, 0xf0, 0, 0, 0, 0, 1, 1, 8, 10]);
    segment.extend([clock, echo].concat());
    segment.extend(data);
    let mut sum = 6 + segment.len() as u32;
    for pair in [&from.octets()[..], &to.octets(), &segment].concat().chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair[1]);
    }
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    // The kernel fills in length and checksum (raw(7)).
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0];
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(segment);
    packet
}

#[test]
fn who_knows_no_numbers_does_no_harm_to_a_transfer() {
    if !can_run(&["nft"]) {
        return;
    }
    // SYN, FIN, SYN and ACK, reset, data and data.
    let all = &[0x02, 0x11, 0x12, 0x14, 0x18, 0x18][..];
    // A firewall between the forger and the hosts lets a SYN pass. If it were answered, the
    // firewall would follow its numbers. (A reset would make it forget the connection, but only
    // with a number in the window.)
    for_each([("tcp-forge", all), ("tcp-forge-fw", &[0x02])], |(test, flags)| {
        let world = World::new(test);
        world.firewall(
            "table ip opened {
                 chain forward {
                     type filter hook forward priority -20;
                     iifname \"eth0\" tcp flags & (syn | ack) == syn counter
                 }
             }",
        );
        if flags == all {
            world.firewall("delete table inet strict");
        }
        let b = world.daemon(2, &[], "", "encapsulation = 'tcp'");
        let a = world.daemon(1, V4, "", "encapsulation = 'tcp'");
        wait_for_kinds(&a, &["tcp"]);
        let opened = || world.router.nft_output(&["list", "table", "ip", "opened"]);
        let before = opened();
        let forger = Forger::start(&world, test, flags);
        let address = "10.77.0.2".parse().expect("valid");
        let transfer = Transfer::start(&world.a, &world.b, address, 4 << 20);
        let unknown = |daemon: &Daemon| {
            let drops = daemon.status().drops;
            drops.iter().find(|drop| drop.name == "tcp_unknown").map_or(0, |drop| drop.count)
        };
        wait_for("many are refused", || unknown(&a) + unknown(&b) > 5_000);
        transfer.finish();
        drop(forger);
        assert_eq!(opened(), before, "the connection is another one");
        for daemon in [&a, &b] {
            assert_first_serves(daemon);
        }
    });
}

/// A restarted host uses the same port; the other end and the firewall still know its old
/// connection.
#[test]
fn a_daemon_that_was_killed_gets_another_connection() {
    if !can_run(&["nft"]) {
        return;
    }
    let world = World::new("tcp-killed");
    let b = world.daemon(2, &[], "", "encapsulation = 'tcp'");
    for _ in 0..3 {
        let mut a = world.daemon(1, V4, "", "encapsulation = 'tcp'");
        wait_for_kinds(&a, &["tcp"]);
        assert!(world.a.ping("10.77.0.2", 3), "{}{}", a.log(), b.log());
        a.kill();
    }
}

#[test]
fn a_port_that_another_program_has_costs_tcp_only() {
    if !can_run(&["nft"]) {
        return;
    }
    let world = World::new("tcp-port");
    let _taken = world.a.take(|| TcpListener::bind("198.18.0.1:6182"));
    let _b = world.daemon(2, &[], "", "");
    let a = world.daemon(1, V4, "", "");
    wait_for_kinds(&a, &["udp"]);
    let expected = "cannot bind a TCP socket at 198.18.0.1:6182 on eth0: the port is in use; \
                    paths from there go by UDP alone";
    assert!(a.log().contains(expected), "{}", a.log());
    drop(a);

    let mut a = Daemon::spawn(
        &world.a,
        &world.directory,
        &Configuration { number: 1, keys: (1, 2), endpoints: V4, peer: "encapsulation = 'tcp'" },
    );
    assert!(!a.wait(), "{}", a.log());
    assert!(a.log().contains("TCP socket at 198.18.0.1:6182"), "{}", a.log());
}

/// Two links, of which one is told to look like TCP at one end alone.
#[test]
fn each_path_may_have_its_own_encapsulation() {
    if !can_run(&[]) {
        return;
    }
    let paths = "scheduler = 'round-robin'
        [[path]]
        interface = 'eth0'
        [[path]]
        interface = 'eth1'
        encapsulation = 'tcp'";
    for_each([1, 2], |caller| {
        let (a, b) = two_hosts(&format!("tcp-mixed{caller}"), 2, &[Family::V4]);
        let directory = Directory::new();
        let configuration = |number, peer| {
            let address = format!("198.18.0.{}:6182", 3 - number);
            let endpoints = if number == caller { vec![address] } else { vec![] };
            let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
            let host = if number == 1 { &a } else { &b };
            let keys = (number, 3 - number);
            let configuration = Configuration { number, keys, endpoints: &endpoints, peer };
            Daemon::start(host, &directory, &configuration)
        };
        let daemon_b = configuration(2, "scheduler = 'round-robin'");
        let daemon_a = configuration(1, paths);
        wait_for_kinds(&daemon_a, &["tcp", "udp"]);
        wait_for_kinds(&daemon_b, &["tcp", "udp"]);
        let address = "10.77.0.2".parse().expect("valid");
        // How the two share is a matter of what the processors do meanwhile: no link limits them.
        wait_for("both carry something", || {
            Transfer::whole(&a, &b, address, 4 << 20).finish();
            ["eth0", "eth1"].iter().all(|link| a.transmitted(link, "tx_bytes") > 1 << 20)
        });
        // Where a machine stands still for seconds, TCP is tried beside UDP until that has proved
        // itself.
        let has_its_own = |path: &PathStatus| {
            path.encapsulation == if path.interface == "eth0" { "udp" } else { "tcp" }
        };
        wait_for("the encapsulation of each", || {
            let paths = daemon_a.active_paths();
            paths.len() >= 2 && paths.iter().all(has_its_own)
        });
    });
}
