//! UDP sockets between two namespaces, `here` and `there`. Pairs of interfaces connect them, with
//! the same name at both ends: v0 (and v1).

mod errors;

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::HANG;
use crate::common::Namespace;
use mpip_net::udp::{ReceiveBuffers, SocketConfig};
use mpip_net::{Interest, Poller, UdpSender, UdpSocket, Waker};
use mpip_testing::can_run;
use mpip_types::DatagramSink;
use mpip_types::Ecn;
use mpip_types::LocalId;
use mpip_types::PathAddress;
use mpip_types::Seal;
use mpip_types::Sealing;

const LOCAL: LocalId = LocalId(3);

struct Pair {
    here: Namespace,
    there: Namespace,
}

impl Pair {
    fn new() -> Self {
        let (here, there) = (Namespace::new(), Namespace::new());
        here.connect(&there, "v0");
        for (namespace, host) in [(&here, 1), (&there, 2)] {
            namespace.ip(&format!("addr add 198.18.0.{host}/24 dev v0"));
            namespace.ip(&format!("addr add 2001:db8::{host}/64 dev v0 nodad"));
        }
        Self { here, there }
    }
}

fn config(address: &str) -> SocketConfig {
    SocketConfig {
        id: LOCAL,
        interface: Some("v0".into()),
        address: address.parse().expect("valid"),
        mark: 0x6d70,
        buffer: 8 << 20,
    }
}

fn bind(namespace: &Namespace, address: &str) -> Arc<UdpSocket> {
    let bind = || UdpSocket::bind(&config(address)).unwrap_or_else(|error| panic!("{error}"));
    Arc::new(namespace.run(bind))
}

fn to(socket: &UdpSocket) -> PathAddress {
    PathAddress { local: LOCAL, remote: socket.address() }
}

fn send(sender: &mut UdpSender, to: PathAddress, ecn: Ecn, bytes: &[u8]) -> bool {
    let Some(mut slot) = sender.reserve(to, ecn, bytes.len()) else { return false };
    slot.bytes().copy_from_slice(bytes);
    slot.commit();
    true
}

/// A datagram of `len` bytes that is told from others by `number`.
fn datagram(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 7 + at * 3) as u8).collect()
}

/// All datagrams, of which `count` are expected; more are waited for for a while.
fn receive(socket: &UdpSocket, count: usize) -> Vec<(SocketAddr, Ecn, Vec<u8>)> {
    let mut buffers = ReceiveBuffers::new(8);
    let poller = Poller::new().expect("epoll");
    poller.add(socket, 0, Interest::Readable).expect("add");
    let (mut all, mut ready) = (Vec::new(), Vec::new());
    loop {
        let wait = if all.len() < count { HANG } else { SHORT };
        poller.wait(&mut ready, Some(wait)).expect("wait");
        if ready.is_empty() {
            assert_eq!(buffers.truncated(), 0);
            return all;
        }
        socket
            .recv_batch(&mut buffers, |from, ecn, bytes| all.push((from, ecn, bytes.to_vec())))
            .expect("received");
    }
}

const SHORT: Duration = Duration::from_millis(200);

#[test]
fn batches_arrive_whole_and_in_order_with_their_ecn_field() {
    if !can_run(&[]) {
        return;
    }
    let pair = Pair::new();
    for (ours, theirs) in [("198.18.0.1:0", "198.18.0.2:0"), ("[2001:db8::1]:0", "[2001:db8::2]:0")]
    {
        let (local, remotes) = (bind(&pair.here, ours), [0, 1].map(|_| bind(&pair.there, theirs)));
        let mut sender = UdpSender::new();
        sender.insert(Arc::clone(&local));
        // Equal runs, shorter and longer ones, of one byte, up to the MTU, to two remotes.
        let lengths = [1_400, 1_400, 1_400, 900, 1_400, 1, 1, 2, 1_452, 1_452, 100];
        let datagrams: Vec<_> = (0..400)
            .map(|number| {
                let ecn = if number % 100 < 50 { Ecn::Ect0 } else { Ecn::NotEct };
                (number % 3 == 0, ecn, datagram(number, lengths[number / 3 % lengths.len()]))
            })
            .collect();
        for (number, (second, ecn, bytes)) in datagrams.iter().enumerate() {
            let remote = to(&remotes[usize::from(*second)]);
            if number % 5 == 0 {
                // Not committed: it must leave no trace.
                assert!(sender.reserve(remote, *ecn, 1_400).is_some());
            }
            assert!(send(&mut sender, remote, *ecn, bytes), "{:?}", sender.counters());
            if number % 64 == 63 {
                sender.flush();
            }
        }
        sender.flush();
        for (index, remote) in remotes.iter().enumerate() {
            let expected: Vec<_> = datagrams
                .iter()
                .filter(|(second, ..)| usize::from(*second) == index)
                .map(|(_, ecn, bytes)| (local.address(), *ecn, bytes.clone()))
                .collect();
            assert_eq!(receive(remote, expected.len()), expected, "{theirs}");
        }
        let counters = sender.counters();
        assert_eq!(counters.datagrams, 400);
        assert!(counters.messages < 250 && counters.calls < 20, "{counters:?}");
        assert_eq!(sender.poll_error(), None);
        assert!(local.segmentation());
    }
}

#[test]
fn a_run_of_equal_datagrams_is_one_message() {
    if !can_run(&[]) {
        return;
    }
    let pair = Pair::new();
    let (local, remote) = (bind(&pair.here, "198.18.0.1:0"), bind(&pair.there, "198.18.0.2:0"));
    let mut sender = UdpSender::new();
    sender.insert(local);
    for number in 0..45 {
        assert!(send(&mut sender, to(&remote), Ecn::Ect0, &datagram(number, 1_450)));
    }
    assert_eq!(sender.counters().calls, 0);
    sender.flush();
    let counters = sender.counters();
    assert_eq!((counters.calls, counters.messages, counters.datagrams), (1, 1, 45));
    let poller = Poller::new().expect("epoll");
    poller.add(&*remote, 0, Interest::Readable).expect("add");
    let mut ready = Vec::new();
    poller.wait(&mut ready, Some(HANG)).expect("wait");
    let mut count = 0;
    // One message of the kernel holds them all.
    let mut buffers = ReceiveBuffers::new(1);
    let received = remote.recv_batch(&mut buffers, |_, _, bytes| {
        assert_eq!(bytes, datagram(count, 1_450));
        count += 1;
    });
    assert_eq!((received.expect("received"), count), (45, 45));
}

#[test]
fn without_segmentation_the_same_datagrams_arrive() {
    if !can_run(&[]) {
        return;
    }
    let pair = Pair::new();
    let (local, remote) = (bind(&pair.here, "198.18.0.1:0"), bind(&pair.there, "198.18.0.2:0"));
    // The kernel cuts nothing for a socket that sends no checksums.
    let on: libc::c_int = 1;
    // SAFETY: the pointer is valid for the length that is given.
    let status = unsafe {
        libc::setsockopt(
            local.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NO_CHECK,
            (&raw const on).cast(),
            4,
        )
    };
    assert_eq!(status, 0);
    let mut sender = UdpSender::new();
    sender.insert(Arc::clone(&local));
    for number in 0..100 {
        assert!(send(&mut sender, to(&remote), Ecn::NotEct, &datagram(number, 1_400)));
    }
    sender.flush();
    assert!(!local.segmentation());
    let received = receive(&remote, 100);
    assert_eq!(received.len(), 100);
    assert!(received.iter().enumerate().all(|(n, (_, _, bytes))| *bytes == datagram(n, 1_400)));
    assert_eq!(sender.counters().datagrams, 100);
    assert_eq!(sender.poll_error(), None);
}

#[test]
fn what_cannot_be_sent_is_dropped_and_reported() {
    if !can_run(&[]) {
        return;
    }
    let pair = Pair::new();
    let (local, remote) = (bind(&pair.here, "198.18.0.1:0"), bind(&pair.there, "198.18.0.2:0"));
    let mut sender = UdpSender::new();
    sender.insert(Arc::clone(&local));
    // Too long, alone and as a run; what follows is sent nevertheless.
    for (count, len) in [(1, 1_473), (5, 1_600)] {
        for number in 0..count {
            assert!(send(&mut sender, to(&remote), Ecn::NotEct, &datagram(number, len)));
        }
        assert!(send(&mut sender, to(&remote), Ecn::NotEct, &datagram(0, len + 1)));
        sender.flush();
        for (datagrams, len) in [(count as u64, len), (1, len + 1)] {
            let error = sender.poll_error().expect("an error");
            assert!(error.is_too_long(), "{error}");
            assert_eq!((error.local, error.remote), (LOCAL, remote.address()));
            assert_eq!((error.datagrams, error.len), (datagrams, len));
        }
    }
    assert!(local.segmentation());
    assert!(send(&mut sender, to(&remote), Ecn::NotEct, b"after"));
    sender.flush();
    assert_eq!(receive(&remote, 1).len(), 1);
    // No such family, no such socket, no such size.
    let ipv6 = PathAddress { local: LOCAL, remote: "[2001:db8::2]:9".parse().expect("valid") };
    assert!(!send(&mut sender, ipv6, Ecn::NotEct, b"x"));
    assert!(sender.poll_error().is_some());
    let unknown = PathAddress { local: LocalId(9), ..to(&remote) };
    assert!(!send(&mut sender, unknown, Ecn::NotEct, b"x"));
    assert_eq!(sender.counters().no_socket, 1);
    // No route: the socket is bound to v0.
    let far = PathAddress { local: LOCAL, remote: "203.0.113.1:9".parse().expect("valid") };
    pair.here.ip("link set v0 down");
    assert!(send(&mut sender, far, Ecn::NotEct, b"x"));
    assert!(send(&mut sender, to(&remote), Ecn::NotEct, b"x"));
    sender.flush();
    for remote in [far.remote, remote.address()] {
        let error = sender.poll_error().expect("an error");
        assert!(error.is_unreachable() && error.remote == remote, "{error}");
    }
    let counters = sender.counters();
    assert_eq!((counters.dropped_unreachable, counters.dropped_too_long), (2, 8));
}

/// The far end of a virtual interface drops packets longer than its own MTU. The sender only gets
/// the error "no buffer space", each time.
#[test]
fn a_datagram_that_the_interface_drops_holds_nothing_back() {
    if !can_run(&[]) {
        return;
    }
    let pair = Pair::new();
    pair.there.ip("link set v0 mtu 1400");
    let (local, remote) = (bind(&pair.here, "198.18.0.1:0"), bind(&pair.there, "198.18.0.2:0"));
    let mut sender = UdpSender::new();
    sender.insert(Arc::clone(&local));
    for (number, len) in [(0, 1_300), (1, 1_400), (2, 1_300), (3, 1_400)] {
        assert!(send(&mut sender, to(&remote), Ecn::NotEct, &datagram(number, len)));
        sender.flush();
        assert!(!sender.is_blocked(LOCAL), "{:?}", sender.counters());
        // The first waits for the neighbour's address.
        if number == 0 {
            assert_eq!(receive(&remote, 1).len(), 1);
        }
    }
    let received = receive(&remote, 1);
    let arrived: Vec<_> = received.iter().map(|(_, _, bytes)| bytes.clone()).collect();
    assert_eq!(arrived, [datagram(2, 1_300)]);
    let counters = sender.counters();
    assert_eq!((counters.dropped_full, counters.calls), (2, 4));
    let error = sender.poll_error().expect("an error");
    assert_eq!((error.errno, error.datagrams, error.len), (libc::ENOBUFS, 1, 1_400));
    assert!(!error.is_too_long() && !error.is_unreachable());
}

#[test]
fn a_full_socket_keeps_a_bounded_backlog_and_loses_nothing() {
    if !can_run(&["tc"]) {
        return;
    }
    let pair = Pair::new();
    // The queue of the interface holds packets, which the socket is charged for, until they leave.
    pair.here.command("tc", "qdisc add dev v0 root tbf rate 200mbit burst 100k limit 50m");
    let config = SocketConfig {
        id: LOCAL,
        interface: Some("v0".into()),
        address: "198.18.0.1:0".parse().expect("valid"),
        mark: 0,
        buffer: 256 << 10,
    };
    let local = pair.here.run(|| Arc::new(UdpSocket::bind(&config).expect("bound")));
    let remote = bind(&pair.there, "198.18.0.2:0");
    let mut sender = UdpSender::new();
    sender.insert(Arc::clone(&local));
    let poller = Poller::new().expect("epoll");
    poller.add(&*local, 0, Interest::ReadableWritable).expect("add");
    let (mut ready, mut refused, mut number) = (Vec::new(), 0, 0);
    let deadline = Instant::now() + HANG;
    while number < 2_000 {
        assert!(Instant::now() < deadline, "{:?}", sender.counters());
        if send(&mut sender, to(&remote), Ecn::NotEct, &datagram(number, 1_400)) {
            number += 1;
            continue;
        }
        refused += 1;
        assert!(sender.is_blocked(LOCAL));
        assert_eq!(sender.blocked().collect::<Vec<_>>(), [LOCAL]);
        poller.wait(&mut ready, Some(Duration::from_secs(1))).expect("wait");
        assert!(ready.iter().any(|ready| ready.writable), "{ready:?}");
        sender.writable(LOCAL);
    }
    sender.flush();
    while sender.is_blocked(LOCAL) {
        assert!(Instant::now() < deadline, "{:?}", sender.counters());
        poller.wait(&mut ready, Some(Duration::from_secs(1))).expect("wait");
        sender.writable(LOCAL);
    }
    assert!(refused > 0);
    let received = receive(&remote, 2_000);
    assert_eq!(received.len(), 2_000, "{:?}", sender.counters());
    assert!(received.iter().enumerate().all(|(n, (_, _, bytes))| *bytes == datagram(n, 1_400)));
}

/// Seals by adding the number to each byte of the plaintext, which is all in the slot.
#[derive(Debug)]
struct Adds;

impl Seal for Adds {
    fn seal(&self, _: u16, number: u64, _: &[u8], _: &[u8], out: &mut [u8]) {
        out.iter_mut().for_each(|byte| *byte = byte.wrapping_add(number as u8));
    }
}

/// A sender with `threads` that seal and send, and what wakes its owner.
fn sender_with_crew(threads: usize) -> (UdpSender, Arc<Waker>) {
    let waker = Arc::new(Waker::new().expect("eventfd"));
    // And the caller's.
    (UdpSender::with_threads(threads + 1, &waker).expect("threads"), waker)
}

#[test]
fn what_several_threads_seal_and_send_arrives_in_order() {
    const COUNT: usize = 6_000;
    if !can_run(&[]) {
        return;
    }
    let pair = Pair::new();
    let key: Arc<dyn Seal> = Arc::new(Adds);
    for threads in 1..=3 {
        let (local, remote) = (bind(&pair.here, "198.18.0.1:0"), bind(&pair.there, "198.18.0.2:0"));
        let (mut sender, waker) = sender_with_crew(threads);
        sender.insert(Arc::clone(&local));
        let poller = Poller::new().expect("epoll");
        poller.add(&*waker, 0, Interest::Readable).expect("add");
        let arrived = std::thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(&remote, COUNT));
            let (mut number, mut ready) = (0, Vec::new());
            while number < COUNT {
                // Bursts of every length: few leave at once, many are handed over.
                let burst = number + 1 + number * 7 % 300;
                while number < burst.min(COUNT) {
                    let Some(mut slot) = sender.reserve(to(&remote), Ecn::NotEct, 1_000) else {
                        // Too many wait; the sender tells when there is room.
                        poller.wait(&mut ready, Some(HANG)).expect("wait");
                        assert!(!ready.is_empty(), "{:?}", sender.counters());
                        waker.reset();
                        sender.poll_room();
                        continue;
                    };
                    slot.bytes().copy_from_slice(&datagram(number, 1_000));
                    let (key, number_sealed) = (&key, number as u64);
                    slot.seal(&Sealing {
                        key,
                        path: 0,
                        number: number_sealed,
                        clear_len: 8,
                        body: None,
                    });
                    number += 1;
                }
                sender.flush();
                std::thread::sleep(Duration::from_micros(300));
            }
            receiver.join().expect("no panic")
        });
        // A receiver that gets no processor loses some, but nothing changes its place.
        let mut last = None;
        for (_, _, bytes) in &arrived {
            let number = (last.map_or(0, |last| last + 1)..COUNT).find(|number| {
                let mut expected = datagram(*number, 1_000);
                expected[8..].iter_mut().for_each(|byte| *byte = byte.wrapping_add(*number as u8));
                *bytes == expected
            });
            assert!(number.is_some(), "after {last:?}, with {threads} threads");
            last = number;
        }
        assert!(arrived.len() > COUNT / 2, "{} of {COUNT}", arrived.len());
        assert_eq!(sender.poll_error(), None);
        drop(sender);
    }
}

#[test]
fn a_full_socket_blocks_the_crew_and_loses_nothing() {
    if !can_run(&["tc"]) {
        return;
    }
    let pair = Pair::new();
    pair.here.command("tc", "qdisc add dev v0 root tbf rate 50mbit burst 100k limit 50m");
    let config = SocketConfig { buffer: 256 << 10, ..config("198.18.0.1:0") };
    let local = pair.here.run(|| Arc::new(UdpSocket::bind(&config).expect("bound")));
    let remote = bind(&pair.there, "198.18.0.2:0");
    let (mut sender, waker) = sender_with_crew(2);
    sender.insert(Arc::clone(&local));
    let poller = Poller::new().expect("epoll");
    poller.add(&*waker, 0, Interest::Readable).expect("add");
    poller.add(&*local, 1, Interest::Nothing).expect("add");
    let mut ready = Vec::new();
    let mut number = 0;
    let mut wait = |sender: &mut UdpSender, told: bool| {
        let blocked = sender.is_blocked(LOCAL);
        let interest = if blocked { Interest::ReadableWritable } else { Interest::Nothing };
        poller.modify(&*local, 1, interest).expect("modify");
        poller.wait(&mut ready, Some(if told { HANG } else { SHORT })).expect("wait");
        assert!(!told || !ready.is_empty(), "nobody tells: {:?}", sender.counters());
        waker.reset();
        sender.poll_room();
        if ready.iter().any(|ready| ready.writable) {
            sender.writable(LOCAL);
        }
    };
    while number < 2_000 {
        if send(&mut sender, to(&remote), Ecn::NotEct, &datagram(number, 1_400)) {
            number += 1;
        } else {
            wait(&mut sender, true);
        }
    }
    sender.flush();
    let deadline = Instant::now() + HANG;
    while sender.counters().datagrams < 2_000 {
        assert!(Instant::now() < deadline, "{:?}", sender.counters());
        // Nobody tells when all have left.
        wait(&mut sender, false);
    }
    assert!(sender.counters().blocked > 0, "{:?}", sender.counters());
    let received = receive(&remote, 2_000);
    assert_eq!(received.len(), 2_000, "{:?}", sender.counters());
    assert!(received.iter().enumerate().all(|(n, (_, _, bytes))| *bytes == datagram(n, 1_400)));
}

#[test]
fn errors_of_the_crew_reach_the_caller() {
    if !can_run(&[]) {
        return;
    }
    let pair = Pair::new();
    let local = bind(&pair.here, "198.18.0.1:0");
    let (mut sender, waker) = sender_with_crew(1);
    sender.insert(local);
    let poller = Poller::new().expect("epoll");
    poller.add(&*waker, 0, Interest::Readable).expect("add");
    let nowhere = PathAddress { local: LOCAL, remote: "198.19.0.1:1".parse().expect("valid") };
    pair.here.ip("link set v0 down");
    for number in 0..40 {
        assert!(send(&mut sender, nowhere, Ecn::NotEct, &datagram(number, 1_000)));
    }
    sender.flush();
    let mut ready = Vec::new();
    poller.wait(&mut ready, Some(HANG)).expect("wait");
    assert!(!ready.is_empty(), "it is woken");
    let error = sender.poll_error().expect("an error");
    assert!(error.is_unreachable(), "{error}");
    assert_eq!((error.datagrams, error.len), (40, 1_000));
    assert_eq!(sender.poll_error(), None);
    assert_eq!(sender.counters().dropped_unreachable, 40);
}

#[test]
fn removing_a_socket_closes_it_and_counts_what_it_held() {
    if !can_run(&[]) {
        return;
    }
    let pair = Pair::new();
    let (local, remote) = (bind(&pair.here, "198.18.0.1:6182"), bind(&pair.there, "198.18.0.2:0"));
    let mut sender = UdpSender::new();
    sender.insert(local);
    assert!(send(&mut sender, to(&remote), Ecn::NotEct, b"one"));
    assert!(send(&mut sender, to(&remote), Ecn::NotEct, b"two"));
    sender.remove(LOCAL);
    assert_eq!(sender.counters().dropped_removed, 2);
    assert_eq!(sender.sockets().count(), 0);
    // The port is free again, as soon as children of other tests have passed their execve(2).
    let deadline = Instant::now() + HANG;
    while let Err(error) = pair.here.run(|| UdpSocket::bind(&config("198.18.0.1:6182"))) {
        assert!(Instant::now() < deadline, "{error}");
    }
}

#[test]
fn a_socket_that_cannot_be_is_refused_with_address_and_reason() {
    if !can_run(&[]) {
        return;
    }
    let namespace = Namespace::new();
    let config = |interface: &str, address: &str| SocketConfig {
        id: LOCAL,
        interface: Some(interface.into()),
        address: address.parse().expect("valid"),
        mark: 0,
        buffer: 1 << 20,
    };
    namespace.run(|| {
        let _first = UdpSocket::bind(&config("lo", "127.0.0.1:6182")).expect("bound");
        for (config, reason) in [
            (config("lo", "127.0.0.1:6182"), "127.0.0.1:6182 on lo: the port is in use"),
            (config("lo", "198.18.0.1:1"), "198.18.0.1:1 on lo: the host does not have"),
            (config("v7", "127.0.0.1:1"), "127.0.0.1:1 on v7: there is no such interface"),
        ] {
            let error = UdpSocket::bind(&config).expect_err("refused");
            assert!(error.to_string().contains(reason), "{error}");
        }
    });
}
