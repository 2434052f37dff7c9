//! TUN devices of two hosts, joined in the test:
//!
//! ```text
//!   A: 198.18.1.1, 2001:db8:1::1             B: 198.18.1.2, 2001:db8:1::2
//!      socket ── mpip0 ── read, cut ── joined, written ── mpip0 ── socket
//! ```

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::HANG;
use crate::common::Namespace;
use crate::common::packets::cut;
use crate::common::wait_until_arrives;
use crate::common::wait_until_gone;
use mpip_net::netlink::Netlink;
use mpip_net::tun::{OpenError, TunCounters};
use mpip_net::{Interest, Poller, Tun, TunWriter};
use mpip_testing::can_run;
use mpip_testing::skip;
use mpip_types::Checksum;
use mpip_types::InnerPacket;
use mpip_types::PacketPool;
use mpip_types::PacketSink;
use mpip_types::SegmentationKind;

struct Host {
    namespace: Namespace,
    tun: Arc<Tun>,
}

impl Host {
    fn new(number: u8) -> Self {
        let namespace = Namespace::new();
        let tun = namespace.run(|| {
            let tun = Tun::open("mpip0").unwrap_or_else(|error| panic!("{error}"));
            let mut netlink = Netlink::new().expect("netlink");
            let link = netlink.link("mpip0").expect("the device");
            for (address, len) in addresses(number) {
                netlink.add_address(&link, address, len).expect("an address");
            }
            netlink.set_up(&link).expect("up");
            for (address, _) in addresses(number) {
                if let IpAddr::V6(address) = address {
                    wait_until_arrives(address);
                }
            }
            Arc::new(tun)
        });
        Self { namespace, tun }
    }
}

fn addresses(number: u8) -> [(IpAddr, u8); 2] {
    [
        ([198, 18, 1, number].into(), 24),
        ([0x2001, 0xdb8, 1, 0, 0, 0, 0, u16::from(number)].into(), 64),
    ]
}

/// What one direction did.
#[derive(Debug, Default)]
struct Carried {
    longest: usize,
    udp_super_packets: usize,
    reads: usize,
    segments: usize,
    written: TunCounters,
}

/// Carries packets from one device to the other until told to stop. Every `corrupt`th segment is
/// damaged on its way.
fn carry(from: &Tun, to: &Arc<Tun>, corrupt: Option<usize>, stop: &AtomicBool) -> Carried {
    let mut carried = Carried::default();
    let mut pool = PacketPool::new(4, 4);
    let mut writer = TunWriter::new(Arc::clone(to));
    let poller = Poller::new().expect("epoll");
    poller.add(from, 0, Interest::Readable).expect("add");
    let mut ready = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        poller.wait(&mut ready, Some(Duration::from_millis(20))).expect("wait");
        while let Some(packet) = from.read(&mut pool).expect("a good frame") {
            carried.reads += 1;
            carried.longest = carried.longest.max(packet.bytes().len());
            let kind = packet.offload().segmentation.map(|segmentation| segmentation.kind);
            carried.udp_super_packets += usize::from(kind == Some(SegmentationKind::Udp));
            let whole = packet.offload().partial_checksum.is_none();
            for mut segment in if whole {
                vec![packet.bytes().to_vec()]
            } else {
                cut(packet.bytes(), packet.offload())
            } {
                carried.segments += 1;
                if segment.len() > 1_000
                    && corrupt.is_some_and(|corrupt| carried.segments.is_multiple_of(corrupt))
                {
                    *segment.last_mut().expect("a payload") ^= 1;
                }
                let (head, tail) = segment.split_at(segment.len().min(100));
                writer.packet(InnerPacket { head, tail, checksum: Checksum::Complete });
            }
        }
        writer.flush();
    }
    carried.written = writer.counters();
    carried
}

/// Joins two hosts while `body` runs; returns what was carried from A to B and from B to A.
fn joined(a: &Host, b: &Host, corrupt: Option<usize>, body: impl FnOnce()) -> [Carried; 2] {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let there = scope.spawn(|| carry(&a.tun, &b.tun, corrupt, &stop));
        let back = scope.spawn(|| carry(&b.tun, &a.tun, None, &stop));
        // Whatever happens in `body`, the two have to end.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        stop.store(true, Ordering::Relaxed);
        let carried = [there.join().expect("carried"), back.join().expect("carried")];
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        carried
    })
}

/// Sends `data` from A to B over TCP and returns what arrived.
fn transfer(a: &Host, b: &Host, address: IpAddr, data: &[u8]) -> Vec<u8> {
    let timeout = Some(HANG);
    let listener = b.namespace.run(|| TcpListener::bind((address, 0)).expect("bound"));
    let remote = listener.local_addr().expect("an address");
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.set_read_timeout(timeout).expect("a time-out");
            let mut received = Vec::new();
            stream.read_to_end(&mut received).expect("the data");
            received
        });
        let mut stream = a.namespace.run(|| TcpStream::connect(remote).expect("connected"));
        stream.set_write_timeout(timeout).expect("a time-out");
        stream.write_all(data).expect("sent");
        drop(stream);
        server.join().expect("received")
    })
}

fn data(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 251 + at * 7) as u8).collect()
}

#[test]
fn tcp_travels_in_super_packets_both_out_and_in() {
    if !can_run(&[]) {
        return;
    }
    let (a, b) = (Host::new(1), Host::new(2));
    let data = data(8 << 20);
    for (address, _) in addresses(2) {
        let in_super_packets = || {
            let [there, back] = joined(&a, &b, None, || {
                assert!(transfer(&a, &b, address, &data) == data, "the data differ");
            });
            let written = there.written;
            assert_eq!(written.packets as usize, there.segments);
            for direction in [there.written, back.written] {
                assert_eq!((direction.no_room, direction.refused), (0, 0), "{direction:?}");
            }
            eprintln!("{there:?}");
            there.longest > 60_000
                && there.segments > 5 * there.reads
                && written.packets > 5 * written.frames
        };
        // The kernel makes super-packets as large as its pacing allows, which is small with the
        // long round trips of a busy machine.
        assert!((0..10).any(|_| in_super_packets()), "{address}");
    }
}

#[test]
fn segments_that_are_damaged_before_they_are_joined_are_noticed_by_the_receiver() {
    if !can_run(&[]) {
        return;
    }
    let (a, b) = (Host::new(1), Host::new(2));
    let data = data(2 << 20);
    for (address, _) in addresses(2) {
        let [there, _] = joined(&a, &b, Some(150), || {
            assert!(transfer(&a, &b, address, &data) == data, "the data differ");
        });
        assert_eq!(there.written.refused, 0, "{there:?}");
    }
    let statistics = b.namespace.command("cat", "/proc/thread-self/net/snmp");
    let tcp: Vec<&str> = statistics.lines().filter(|line| line.starts_with("Tcp:")).collect();
    let field = tcp[0].split(' ').position(|name| name == "InCsumErrors").expect("the counter");
    let errors: u64 = tcp[1].split(' ').nth(field).expect("its value").parse().expect("a number");
    assert!(errors >= 10, "{errors} checksum errors seen by the receiver");
}

#[test]
fn udp_super_packets_are_taken_and_given_where_the_kernel_can() {
    if !can_run(&[]) {
        return;
    }
    let (a, b) = (Host::new(1), Host::new(2));
    if !a.tun.udp_segmentation() {
        return skip("this kernel's TUN has no segmentation of UDP (needs Linux 6.2)");
    }
    for ((ours, _), (theirs, _)) in addresses(1).into_iter().zip(addresses(2)) {
        let bind = |host: &Host, address: IpAddr| {
            let bind = || std::net::UdpSocket::bind((address, 0)).expect("bound");
            let socket = host.namespace.run(bind);
            socket.set_read_timeout(Some(HANG)).expect("a time-out");
            socket
        };
        let (sender, receiver) = (bind(&a, ours), bind(&b, theirs));
        let size: libc::c_int = 1_000;
        // SAFETY: the pointer is valid for the length that is given.
        let status = unsafe {
            libc::setsockopt(
                sender.as_raw_fd(),
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                (&raw const size).cast(),
                4,
            )
        };
        assert_eq!(status, 0);
        let data = data(29_500);
        let remote: SocketAddr = receiver.local_addr().expect("an address");
        let [there, _] = joined(&a, &b, None, || {
            assert_eq!(sender.send_to(&data, remote).expect("sent"), data.len());
            let mut buffer = [0; 2_000];
            for expected in data.chunks(1_000) {
                let (len, from) = receiver.recv_from(&mut buffer).expect("a datagram");
                assert_eq!(&buffer[..len], expected);
                assert_eq!(from, sender.local_addr().expect("an address"));
            }
        });
        assert_eq!(there.udp_super_packets, 1, "{there:?}");
        assert_eq!(there.longest, if ours.is_ipv4() { 29_528 } else { 29_548 });
        let written = there.written;
        assert!(written.packets >= 30 && written.packets - written.frames == 29, "{written:?}");
        assert_eq!(written.refused, 0);
    }
}

#[test]
fn a_device_belongs_to_one_process_and_vanishes_with_it() {
    if !can_run(&[]) {
        return;
    }
    let (namespace, other) = (Namespace::new(), Namespace::new());
    namespace.connect(&other, "v0");
    namespace.run(|| {
        let first = Tun::open("mpip0").expect("a device");
        assert_eq!(first.name(), "mpip0");
        let error = Tun::open("mpip0").expect_err("in use");
        assert!(matches!(error, OpenError::Busy { .. }), "{error}");
        assert!(error.to_string().contains("mpip0 is in use"), "{error}");
        let error = Tun::open("v0").expect_err("another kind");
        assert!(matches!(error, OpenError::OtherInterface { .. }), "{error}");
        assert!(error.to_string().contains("expected v0 to be free"), "{error}");
        let mut netlink = Netlink::new().expect("netlink");
        assert!(netlink.link("mpip0").is_ok());
        drop(first);
        wait_until_gone(&mut netlink, "mpip0");
        assert!(Tun::open("mpip0").is_ok());
    });
}

#[test]
fn what_the_kernel_refuses_is_counted() {
    if !can_run(&[]) {
        return;
    }
    let host = Host::new(1);
    let mut writer = TunWriter::new(Arc::clone(&host.tun));
    // No IP version.
    writer.packet(InnerPacket { head: &[0; 40], tail: &[], checksum: Checksum::Complete });
    writer.flush();
    let counters = writer.counters();
    assert_eq!((counters.packets, counters.frames, counters.refused), (1, 0, 1));
}
