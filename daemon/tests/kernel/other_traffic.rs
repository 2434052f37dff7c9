//! What crosses IP besides TCP and UDP connections, in host mode: every protocol, fragments,
//! options; and what is none of mpip's concern.
//!
//! ```text
//!   host a                                  host b
//!   eth0 198.18.0.1/24  ------------------  eth0 198.18.0.2/24       veth
//!        2001:db8:0::1/64                        2001:db8:0::2/64
//!   eth1 198.18.1.1/24  ------------------  eth1 198.18.1.2/24       veth
//!        2001:db8:1::1/64                        2001:db8:1::2/64
//! ```

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use crate::common::host_mode::{HostConfiguration, PlainCounter, ip};
use crate::common::world::World;
use crate::common::{
    Configuration, Daemon, Directory, Family, HANG, Host, Transfer, add_link, set_hops, two_hosts,
    wait_for,
};
use mpip_testing::can_run;
use rustix::net::{AddressFamily, Protocol, SocketType, ipproto, socket, sockopt};

const ENDPOINTS: &[&str] = &["198.18.0.2:6182", "[2001:db8:0::2]:6182"];
const BOTH: &[Family] = &[Family::V4, Family::V6];
/// Two addresses of each family.
const CAPTURED: usize = 4;

/// Everything takes both paths, also where one would do, and nothing else on a machine that stands
/// still.
fn world(test: &str) -> World {
    let peer = "scheduler = 'round-robin'\npolicy = 'require'";
    let world = World::in_host_mode(test, BOTH, ENDPOINTS, peer);
    world.daemon_a.wait_for_capture(CAPTURED);
    world.daemon_b.wait_for_capture(CAPTURED);
    world
}

/// A socket of `kind` and `protocol` for the family of `address`.
fn open(address: IpAddr, kind: SocketType, protocol: Option<Protocol>) -> UdpSocket {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = UdpSocket::from(socket(family, kind, protocol).expect("we are privileged"));
    socket.set_read_timeout(Some(HANG)).expect("a time-out");
    socket
}

/// A socket for UDP at a free port of `address` on `host`.
fn udp(host: &Host, address: IpAddr) -> UdpSocket {
    let bind = move || {
        let socket = UdpSocket::bind((address, 0)).expect("the host has the address");
        socket.set_read_timeout(Some(HANG)).expect("a time-out");
        socket
    };
    host.spawn(bind).join().expect("no panic")
}

/// `len` bytes that differ from those of other numbers.
fn payload(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|position| (position % 253 + number) as u8).collect()
}

/// Sends `bytes` as protocol number `protocol` from a to `address` on b; whether they arrive as
/// they are.
fn passes(world: &World, protocol: Protocol, address: IpAddr, bytes: &[u8]) -> bool {
    let raw = move || open(address, SocketType::RAW, Some(protocol));
    let receiver = world.b.spawn(raw).join().expect("no panic");
    let sender = world.a.spawn(raw).join().expect("no panic");
    sender.send_to(bytes, (address, 0)).expect("it leaves");
    let mut buffer = vec![0; 65_536];
    let Ok((len, _)) = receiver.recv_from(&mut buffer) else { return false };
    // A raw socket of IPv4 sees the IP header (raw(7)).
    let header = if address.is_ipv4() { usize::from(buffer[0] & 15) * 4 } else { 0 };
    buffer[header..len] == *bytes
}

#[test]
fn every_protocol_passes_and_so_do_fragments() {
    if !can_run(&["nft"]) {
        return;
    }
    let world = world("other-protocols");
    let plain = PlainCounter::new(&world.a);
    for address in ["198.18.0.2", "198.18.1.2", "2001:db8:0::2", "2001:db8:1::2"] {
        // A large echo is one of fragments, in both directions.
        for len in [0, 56, 1_400, 20_000, 65_000] {
            assert!(world.a.ping_with(address, 3, len), "{address}, {len} bytes");
        }
        let address = ip(address);
        for protocol in [ipproto::SCTP, ipproto::ESP, ipproto::AH, ipproto::GRE, ipproto::UDPLITE] {
            for len in [4, 100, 1_300, 9_000] {
                let bytes = payload(len, len);
                assert!(passes(&world, protocol, address, &bytes), "{protocol:?} {address} {len}");
            }
        }
        let (from, to) = (udp(&world.a, unspecified(address)), udp(&world.b, address));
        let remote = to.local_addr().expect("bound");
        let mut buffer = vec![0; 65_536];
        for number in 0..20 {
            let bytes = payload(number, 65_000 - 3_000 * number);
            from.send_to(&bytes, remote).expect("it leaves");
            let len = to.recv(&mut buffer).expect("it arrives");
            assert!(buffer[..len] == bytes, "{remote}: datagram {number}, {len} bytes");
        }
    }
    assert_eq!(plain.take(), 0, "everything takes the paths");
    world.daemon_a.wait_for_shares(0.05);
    drop(world.daemon_b);
}

fn unspecified(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// An IPv4 packet of UDP with options; the kernel completes the header (raw(7)).
fn v4_with_options(from: [u8; 4], to: [u8; 4], port: u16, data: &[u8]) -> Vec<u8> {
    // Record route with room for two addresses, RFC 791; no operation.
    let options = [7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mut packet = vec![0x48, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend(from);
    packet.extend(to);
    packet.extend(options);
    // Without a checksum, as UDP over IPv4 may be.
    packet.extend(udp_header(port, data.len(), 0));
    packet.extend(data);
    packet
}

fn udp_header(port: u16, len: usize, checksum: u16) -> Vec<u8> {
    [port, port, 8 + len as u16, checksum].into_iter().flat_map(u16::to_be_bytes).collect()
}

/// An IPv6 packet of UDP with hop-by-hop options and destination options. With `fragment` it also
/// has the fragment header of an atomic fragment (RFC 6946).
fn v6_with_extensions(
    from: Ipv6Addr,
    to: Ipv6Addr,
    port: u16,
    data: &[u8],
    fragment: bool,
) -> Vec<u8> {
    // Each ends with padding of four bytes (RFC 8200, section 4.2).
    let padding = [1, 4, 0, 0, 0, 0];
    let mut chain = vec![60, 0];
    chain.extend(padding);
    chain.extend([if fragment { 44 } else { 17 }, 0]);
    chain.extend(padding);
    if fragment {
        chain.extend([17, 0, 0, 0, 0, 0, 0, 7]);
    }
    let len = 8 + data.len();
    let mut pseudo: Vec<u8> = [from.octets(), to.octets()].concat();
    pseudo.extend((len as u32).to_be_bytes());
    pseudo.extend([0, 0, 0, 17]);
    pseudo.extend(udp_header(port, data.len(), 0));
    pseudo.extend(data);
    let checksum = !mpip_core::packet::fold(mpip_core::packet::sum(&pseudo)).to_be();
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(((chain.len() + len) as u16).to_be_bytes());
    packet.extend([0, 64]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(chain);
    packet.extend(udp_header(port, data.len(), checksum));
    packet.extend(data);
    packet
}

#[test]
fn options_and_extension_headers_pass() {
    if !can_run(&["nft"]) {
        return;
    }
    let world = world("other-options");
    let plain = PlainCounter::new(&world.a);
    // What arrives without them is not counted.
    world.b.nft(
        "table inet mpip_seen {
             chain in {
                 type filter hook input priority 0;
                 iifname != \"mpip0\" accept
                 ip option rr exists counter
                 exthdr hbh exists exthdr dst exists counter
                 exthdr frag exists counter
             }
         }",
    );
    let (from, to) = ("198.18.0.1", "198.18.0.2");
    let octets = |text: &str| text.parse::<Ipv4Addr>().expect("valid").octets();
    let receiver = udp(&world.b, ip(to));
    let port = receiver.local_addr().expect("bound").port();
    let mut buffer = [0; 2_000];
    let mut arrives = |receiver: &UdpSocket, packet: Vec<u8>, to: IpAddr, data: &[u8]| {
        let raw = move || open(to, SocketType::RAW, Some(ipproto::RAW));
        let sender = world.a.spawn(raw).join().expect("no panic");
        sender.send_to(&packet, (to, 0)).expect("it leaves");
        let len = receiver.recv(&mut buffer).expect("it arrives");
        assert!(buffer[..len] == *data, "{to}: {len} bytes");
    };
    for number in 0..5 {
        let data = payload(number, 200 * number + 1);
        let packet = v4_with_options(octets(from), octets(to), port, &data);
        arrives(&receiver, packet, ip(to), &data);
    }
    let [from, to] = ["2001:db8:0::1", "2001:db8:0::2"].map(|text| text.parse().expect("valid"));
    let receiver = udp(&world.b, IpAddr::V6(to));
    let port = receiver.local_addr().expect("bound").port();
    for number in 0..10 {
        let data = payload(number, 100 * number + 1);
        let packet = v6_with_extensions(from, to, port, &data, number % 2 == 1);
        arrives(&receiver, packet, IpAddr::V6(to), &data);
    }
    let seen = world.b.nft_output(&["list", "table", "inet", "mpip_seen"]);
    assert_eq!(seen.matches("counter packets 5 ").count(), 2, "{seen}");
    assert_eq!(seen.matches("counter packets 10 ").count(), 1, "{seen}");
    assert_eq!(plain.take(), 0, "everything takes the paths");
}

/// Sends a datagram that passes no more than `hops` routers, as traceroute(8) does, to a port of
/// `address` where nobody listens; whether `address` itself answers that.
fn is_refused(host: &Host, address: &str, hops: u8) -> bool {
    let address = ip(address);
    let send = move || {
        let socket = open(address, SocketType::DGRAM, None);
        set_hops(&socket, address, hops);
        socket.connect((address, 33_434)).expect("there is a route");
        socket.send(b"how far").expect("it leaves");
        let answer = socket.recv(&mut [0; 16]);
        answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    host.spawn(send).join().expect("no panic")
}

#[test]
fn the_paths_are_one_hop_and_a_gateway_is_another() {
    if !can_run(&["nft"]) {
        return;
    }
    let world = world("other-hops");
    for address in ["198.18.0.2", "2001:db8:1::2"] {
        assert!(world.a.ping_within(address, 1), "{address}");
        assert!(is_refused(&world.a, address, 1), "{address}");
    }
    // The limit arrives as it was sent.
    let address = ip("198.18.0.2");
    let raw = move || open(address, SocketType::RAW, Some(ipproto::ESP));
    let to = world.b.spawn(raw).join().expect("no panic");
    let from = world.a.spawn(raw).join().expect("no panic");
    let mut buffer = [0; 100];
    for hops in [1, 7, 64, 255] {
        set_hops(&from, address, hops);
        from.send_to(&payload(0, 40), (address, 0)).expect("it leaves");
        to.recv(&mut buffer).expect("it arrives");
        assert_eq!(buffer[8], hops);
    }
    drop(world);

    // Host c behind host a, which forwards.
    let (a, b) = two_hosts("other-gateway", 1, &[Family::V4]);
    let c = Host::new("other-gateway", "c");
    let directory = Directory::new();
    let configuration = |number, endpoints| {
        let keys = (number, 3 - number);
        Configuration { number, keys, endpoints, peer: "" }
    };
    let daemon_b = Daemon::start(&b, &directory, &configuration(2, &[]));
    let daemon_a = Daemon::start(&a, &directory, &configuration(1, &["198.18.0.2:6182"]));
    daemon_a.wait_for_paths(1);
    add_link(&a, &c, 2, &[Family::V4]);
    a.sysctl("net/ipv4/ip_forward", "1");
    a.nft(
        "table ip nat {
             chain out {
                 type nat hook postrouting priority srcnat;
                 oifname \"mpip0\" masquerade
             }
         }",
    );
    c.ip(&["route", "add", "10.77.0.2/32", "via", "198.18.2.1"]);
    assert!(!c.ping_within("10.77.0.2", 1));
    assert_eq!(c.snmp("Icmp", "InTimeExcds"), 1, "the gateway says that it is one");
    assert!(c.ping_within("10.77.0.2", 2) && is_refused(&c, "10.77.0.2", 2));
    drop(daemon_b);
}

/// Packets that have entered the TUN device of `host`.
fn captured(host: &Host) -> u64 {
    host.transmitted("mpip0", "tx_packets")
}

#[test]
fn multicast_broadcast_and_own_addresses_are_left_alone() {
    if !can_run(&[]) {
        return;
    }
    let world = world("other-group");
    let groups = [
        (ip("224.0.0.251"), ip("198.18.0.1")),
        (ip("239.1.2.3"), ip("198.18.0.1")),
        (ip("198.18.0.255"), ip("198.18.0.1")),
        (ip("255.255.255.255"), ip("198.18.0.1")),
        (ip("ff02::fb"), ip("2001:db8:0::1")),
        (ip("ff05::1:3"), ip("2001:db8:0::1")),
    ];
    let index = world.a.exec("cat", &["/sys/class/net/eth0/ifindex"]);
    let index: u32 = index.trim().parse().expect("a number");
    let before = captured(&world.a);
    for (group, source) in groups {
        let receiver = world.b.spawn(move || {
            let socket = UdpSocket::bind((unspecified(group), 0)).expect("a free port");
            socket.set_read_timeout(Some(HANG)).expect("a time-out");
            let eth0 = Ipv4Addr::new(198, 18, 0, 2);
            let joined = match group {
                IpAddr::V4(group) if group.is_multicast() => {
                    socket.join_multicast_v4(&group, &eth0)
                }
                IpAddr::V4(_) => Ok(()),
                IpAddr::V6(group) => {
                    let file = std::fs::read_to_string("/proc/thread-self/net/if_inet6");
                    let file = file.expect("addresses");
                    let eth0 = file.lines().find(|line| line.ends_with("eth0"));
                    let index = eth0.and_then(|line| line.split(' ').nth(1));
                    let index = u32::from_str_radix(index.expect("an index"), 16);
                    socket.join_multicast_v6(&group, index.expect("a number"))
                }
            };
            joined.expect("a group");
            socket
        });
        let receiver = receiver.join().expect("no panic");
        let port = receiver.local_addr().expect("bound").port();
        let send = move || {
            let socket = UdpSocket::bind((source, 0)).expect("the host has the address");
            socket.set_broadcast(true).expect("allowed");
            if group.is_ipv6() {
                sockopt::set_ipv6_multicast_if(&socket, index).expect("an interface");
            } else if group.is_multicast() {
                let eth0 = Ipv4Addr::new(198, 18, 0, 1);
                sockopt::set_ip_multicast_if(&socket, &eth0).expect("an interface");
            }
            socket.send_to(b"everybody", (group, port)).expect("it leaves");
        };
        world.a.spawn(send).join().expect("no panic");
        let (len, from) = receiver.recv_from(&mut [0; 100]).expect("it arrives");
        assert_eq!((len, from.ip()), (9, source), "{group}");
    }
    for own in ["127.0.0.1", "198.18.0.1", "198.18.1.1", "::1", "2001:db8:0::1", "2001:db8:1::1"] {
        assert!(world.a.ping(own, 2), "{own}");
    }
    assert_eq!(captured(&world.a), before, "nothing of this enters the device");
    assert!(world.a.ping("198.18.0.2", 1));
    assert!(captured(&world.a) > before);
}

/// Host b says that it has an address of host a, one of a third host, and some that are nobody's.
#[test]
fn absurd_addresses_of_a_peer_capture_nothing() {
    if !can_run(&[]) {
        return;
    }
    let (a, b) = two_hosts("other-absurd", 2, BOTH);
    let c = Host::new("other-absurd", "c");
    add_link(&a, &c, 2, BOTH);
    let directory = Directory::new();
    b.ip(&["link", "add", "lan0", "type", "veth", "peer", "name", "lan1"]);
    b.ip(&["link", "set", "lan1", "up"]);
    b.ip(&["link", "set", "lan0", "up"]);
    let absurd =
        ["198.18.1.1", "198.18.2.1", "198.18.2.2", "198.18.0.255", "240.0.0.1", "2001:db8:2::1"];
    for address in absurd {
        b.ip(&["addr", "add", address, "dev", "lan0", "nodad"]);
    }
    let two = HostConfiguration { number: 2, endpoints: &[], peer: "", more: "" };
    let one = HostConfiguration { number: 1, endpoints: ENDPOINTS, peer: "", more: "" };
    let daemon_b = two.start(&b, &directory);
    let daemon_a = one.start(&a, &directory);
    let genuine = ["198.18.0.2", "198.18.1.2", "2001:db8::2", "2001:db8:1::2"];
    wait_for("the genuine addresses", || {
        daemon_a.peer().captured.len() >= 3 && daemon_b.peer().captured.len() >= 3
    });
    // As long as an address whose paths are young may take.
    std::thread::sleep(Duration::from_secs(1));
    let routes = a.ip(&["route", "show", "table", "6182"])
        + &a.ip(&["-6", "route", "show", "table", "6182"]);
    for line in routes.lines() {
        let address = line.split(' ').next().expect("a destination");
        assert!(genuine.contains(&address), "{routes}");
    }
    let before = captured(&a);
    for address in ["198.18.1.1", "198.18.2.1", "198.18.2.2", "2001:db8:2::1", "2001:db8:2::2"] {
        assert!(a.ping(address, 2), "{address}");
    }
    assert_eq!(captured(&a), before);
    assert!(a.ping("198.18.0.2", 3) && a.ping("2001:db8:1::2", 3));
    // What goes round and round would show as packets that nobody sends.
    let before = captured(&a);
    std::thread::sleep(Duration::from_secs(1));
    assert!(captured(&a) < before + 10, "no loop");
}

/// Subflows of Multipath TCP are sessions like others: each uses all paths, whatever address it has
/// (seed 000, section 3.8.4).
#[test]
fn every_subflow_of_multipath_tcp_uses_all_paths() {
    if !can_run(&["nft"]) {
        return;
    }
    let world = world("other-mptcp");
    for host in [&world.a, &world.b] {
        host.ip(&["mptcp", "limits", "set", "subflow", "8", "add_addr_accepted", "8"]);
    }
    world.a.ip(&["mptcp", "endpoint", "add", "198.18.1.1", "subflow"]);
    world.b.ip(&["mptcp", "endpoint", "add", "198.18.1.2", "signal"]);
    let plain = PlainCounter::new(&world.a);
    let address = ip("198.18.0.2");
    let transfer = Transfer::start_mptcp(&world.a, &world.b, address, 12_500_000);
    transfer.advance(4 << 20);
    let subflows = || {
        let sessions = world.daemon_a.peer().sessions.into_iter();
        let tcp = sessions.filter(|session| session.outgoing && session.protocol == 6);
        tcp.map(|session| ((session.source, session.destination), session.inner_bytes))
            .collect::<std::collections::BTreeMap<_, _>>()
    };
    wait_for("three subflows", || subflows().len() >= 3);
    world.daemon_a.wait_for_shares(0.1);
    assert_eq!(plain.take(), 0, "everything takes the paths");
    // With one link left subflows of both go on: none of them is tied to a link. Which of the three
    // carry most is the kernel's choice.
    world.b.ip(&["link", "set", "eth1", "down"]);
    wait_for("two paths", || world.daemon_a.active_paths().len() == 2);
    let before = subflows();
    wait_for("two busy subflows", || {
        let after = subflows();
        // Whatever begins anew counts from zero.
        let goes_on = |(key, bytes): &(_, _)| after.get(*key).is_some_and(|now| now != *bytes);
        before.iter().filter(goes_on).count() >= 2
    });
    transfer.finish();
}
