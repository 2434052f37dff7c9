//! ICMP errors, each of which makes one call on the socket fail, whatever it is about
//! (`IP_RECVERR`). On the loopback interface the kernel sends as many as there are reasons.

use std::net::SocketAddr;
use std::os::fd::{AsFd, FromRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{config, datagram, receive, send, to};
use crate::common::Namespace;
use crate::common::packets::sum;
use mpip_net::udp::SocketConfig;
use mpip_net::{UdpSender, UdpSocket};
use mpip_testing::can_run;
use mpip_types::Ecn;

/// Datagrams that a test sends.
const COUNT: usize = 2_000;

/// Two sockets on the loopback interface, of which one sends to the other.
struct Loopback {
    namespace: Namespace,
    local: Arc<UdpSocket>,
    remote: Arc<UdpSocket>,
    sender: UdpSender,
}

impl Loopback {
    fn new() -> Self {
        let namespace = Namespace::new();
        let config = SocketConfig { interface: Some("lo".into()), ..config("127.0.0.1:0") };
        let bind = || [0, 1].map(|_| Arc::new(UdpSocket::bind(&config).expect("bound")));
        let [local, remote] = namespace.run(bind);
        let mut sender = UdpSender::new();
        sender.insert(Arc::clone(&local));
        Self { namespace, local, remote, sender }
    }

    fn send(&mut self, number: usize, len: usize) -> bool {
        send(&mut self.sender, to(&self.remote), Ecn::NotEct, &datagram(number, len))
    }

    /// Sends [`COUNT`] datagrams by `send`. Meanwhile another thread does `meanwhile` again and
    /// again, for the last time when all are sent.
    fn send_all(
        &mut self,
        mut meanwhile: impl FnMut(&UdpSocket) + Send,
        mut send: impl FnMut(&mut Self, usize),
    ) {
        let (local, done) = (Arc::clone(&self.local), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut last = false;
                while !last {
                    last = done.load(Ordering::Acquire);
                    meanwhile(&local);
                }
            });
            (0..COUNT).for_each(|number| send(self, number));
            done.store(true, Ordering::Release);
        });
    }

    /// All that was sent has arrived, and nothing was reported.
    fn assert_whole(&mut self, len: usize) {
        assert_eq!(self.sender.poll_error(), None);
        assert_eq!(self.sender.counters().datagrams, COUNT as u64);
        let received = receive(&self.remote, COUNT);
        assert_eq!(received.len(), COUNT);
        assert!(received.iter().enumerate().all(|(n, (_, _, bytes))| *bytes == datagram(n, len)));
    }
}

#[test]
fn errors_about_one_address_cost_no_datagram_to_another() {
    const LEN: usize = 100;
    if !can_run(&[]) {
        return;
    }
    let mut loopback = Loopback::new();
    // Nobody listens there.
    let closed: SocketAddr = "127.0.0.1:9".parse().expect("valid");
    let fd = loopback.local.as_fd().try_clone_to_owned().expect("a descriptor");
    let plain = std::net::UdpSocket::from(fd);
    let mut absent = Vec::new();
    // What it reads makes other errors pending.
    let read = |local: &UdpSocket| local.recv_errors(|remote| absent.push(remote));
    loopback.send_all(read, |loopback, number| {
        for _ in 0..number % 20 {
            // Some fail with the errors before them.
            let _ = plain.send_to(b"x", closed);
        }
        loopback.send(number, LEN);
        loopback.sender.flush();
    });
    loopback.assert_whole(LEN);
    assert!(!absent.is_empty() && absent.iter().all(|remote| *remote == closed), "{absent:?}");
}

#[test]
fn forged_errors_do_not_end_segmentation() {
    const LEN: usize = 1_000;
    if !can_run(&[]) {
        return;
    }
    let mut loopback = Loopback::new();
    let forger = loopback.namespace.run(icmp_socket);
    let victim: SocketAddr = "127.0.0.1:0".parse().expect("valid");
    // Fragmentation needed and source route failed: EMSGSIZE and EOPNOTSUPP.
    let [from, to] = [&loopback.local, &loopback.remote].map(|socket| socket.address());
    let forged = [4, 5].map(|code| unreachable(code, from, to));
    let forge = |local: &UdpSocket| {
        for message in &forged {
            let _ = forger.send_to(message, victim);
        }
        // Waits while the sender tries again, so that there are not more than it bears.
        local.recv_errors(|_| {});
    };
    loopback.send_all(forge, |loopback, number| {
        loopback.send(number, LEN);
        if number % 10 == 9 {
            loopback.sender.flush();
        }
    });
    assert!(loopback.local.segmentation());
    loopback.assert_whole(LEN);
    // Ten datagrams are still one message.
    let before = loopback.sender.counters();
    for number in 0..10 {
        assert!(loopback.send(number, LEN));
    }
    loopback.sender.flush();
    assert_eq!(loopback.sender.counters().messages, before.messages + 1);
}

/// A socket that sends ICMP of IPv4 as it is told.
fn icmp_socket() -> std::net::UdpSocket {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes three numbers.
    let fd = unsafe { libc::socket(libc::AF_INET, kind, libc::IPPROTO_ICMP) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is new, and nobody else has it. It is only used for sendto(2).
    unsafe { std::net::UdpSocket::from_raw_fd(fd) }
}

/// A message "destination unreachable" about a datagram from one port of 127.0.0.1 to another.
fn unreachable(code: u8, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let ip = [0x45, 0, 0, 128, 0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1];
    let [from, to] = [from, to].map(|address| address.port().to_be_bytes());
    let udp = [from, to, [0, 108], [0, 0]].concat();
    // With an MTU of 1280.
    let mut message = [&[3, code, 0, 0, 0, 0, 5, 0][..], &ip[..], &udp[..]].concat();
    let checksum = !sum(&[&message]);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}
