//! Transfers by TCP between two hosts.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{HANG, Host, pattern, wait_for};

/// A transfer by TCP from one host to another, which checks every byte.
pub(crate) struct Transfer {
    /// Bytes to come.
    bytes: u64,
    /// Where the connection comes from, as the sender sees it.
    sender: JoinHandle<SocketAddr>,
    receiver: JoinHandle<Received>,
    progress: Arc<AtomicU64>,
    /// The receiver was called.
    called: bool,
}

/// What came.
#[derive(Clone, Copy, Debug)]
struct Received {
    /// Where the connection comes from, as the one who was called sees it.
    from: SocketAddr,
    bytes: u64,
    /// The longest time without any.
    longest_pause: Duration,
}

impl Transfer {
    /// Sends `bytes` from `from` to `address` on `to`, at most `rate` bytes per second.
    pub(crate) fn start(from: &Host, to: &Host, address: IpAddr, bytes: u64, rate: u64) -> Self {
        Self::start_translated(from, to, (address, address), bytes, rate)
    }

    /// As [`start`](Self::start), with a NAT on the way that translates the second address to the
    /// first.
    pub(crate) fn start_translated(
        from: &Host,
        to: &Host,
        (address, called): (IpAddr, IpAddr),
        bytes: u64,
        rate: u64,
    ) -> Self {
        Self::between((from, call), (to, move || listen(address)), called, bytes, rate)
    }

    /// As [`start`](Self::start), by Multipath TCP (RFC 8684).
    pub(crate) fn start_mptcp(
        from: &Host,
        to: &Host,
        address: IpAddr,
        bytes: u64,
        rate: u64,
    ) -> Self {
        use rustix::net::{AddressFamily, SocketType, bind, connect, ipproto, listen, socket};
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let open = move || {
            socket(family, SocketType::STREAM, Some(ipproto::MPTCP)).expect("the kernel has it")
        };
        // Subflows to the host's other addresses arrive at the same listener.
        let any: SocketAddr =
            if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().expect("valid");
        let listening = move || {
            let socket = open();
            bind(&socket, &any).expect("a free port");
            listen(&socket, 1).expect("bound");
            TcpListener::from(socket)
        };
        let connected = move |address: SocketAddr| {
            let socket = open();
            connect(&socket, &address).expect("connect");
            TcpStream::from(socket)
        };
        Self::between((from, connected), (to, listening), address, bytes, rate)
    }

    fn between(
        (from, connect): (&Host, impl FnOnce(SocketAddr) -> TcpStream + Send + 'static),
        (to, listen): (&Host, impl FnOnce() -> TcpListener + Send + 'static),
        address: IpAddr,
        bytes: u64,
        rate: u64,
    ) -> Self {
        let listener = to.spawn(listen).join().expect("no panic");
        let port = listener.local_addr().expect("bound").port();
        let address = SocketAddr::new(address, port);
        let progress = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&progress);
        let receiver = to.spawn(move || {
            let (stream, caller) = listener.accept().expect("a connection");
            Received { from: caller, ..receive(stream, &counter) }
        });
        let sender = from.spawn(move || {
            let stream = connect(address);
            let own = stream.local_addr().expect("connected");
            send(stream, bytes, rate);
            own
        });
        Self { bytes, sender, receiver, progress, called: true }
    }

    /// As [`start`](Self::start), but `to` calls `from`, which has `address`.
    pub(crate) fn fetch(from: &Host, to: &Host, address: IpAddr, bytes: u64, rate: u64) -> Self {
        let listener = from.spawn(move || listen(address)).join().expect("no panic");
        let address = listener.local_addr().expect("bound");
        let progress = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&progress);
        let sender = from.spawn(move || {
            let (stream, caller) = listener.accept().expect("a connection");
            send(stream, bytes, rate);
            caller
        });
        let receiver = to.spawn(move || receive(call(address), &counter));
        Self { bytes, sender, receiver, progress, called: false }
    }

    /// Bytes received so far.
    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// Waits until this much has arrived.
    pub(crate) fn wait_for(&self, bytes: u64) {
        wait_for("progress of a transfer", Duration::from_secs(30), || self.progress() >= bytes);
    }

    /// Waits until everything has arrived. Returns the source of the connection as its listener
    /// sees it.
    pub(crate) fn finish(self) -> SocketAddr {
        let from = self.sender.join().expect("the sender sent everything");
        let received = self.receiver.join().expect("every byte was right");
        assert_eq!(received.bytes, self.bytes);
        assert!(received.longest_pause < HANG, "{received:?}");
        if self.called { received.from } else { from }
    }
}

fn listen(address: IpAddr) -> TcpListener {
    TcpListener::bind((address, 0)).expect("the host has the address")
}

fn call(address: SocketAddr) -> TcpStream {
    TcpStream::connect_timeout(&address, Duration::from_secs(5)).expect("connect")
}

fn send(mut stream: TcpStream, bytes: u64, rate: u64) {
    stream.set_write_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    let start = Instant::now();
    let mut buffer = vec![0; 64 << 10];
    let mut sent = 0;
    while sent < bytes {
        let len = usize::try_from(bytes - sent).unwrap_or(usize::MAX).min(buffer.len());
        for (byte, position) in buffer[..len].iter_mut().zip(sent..) {
            *byte = pattern(position);
        }
        stream.write_all(&buffer[..len]).expect("the transfer goes on");
        sent += len as u64;
        let due = Duration::from_secs_f64(sent as f64 / rate as f64);
        thread::sleep(due.saturating_sub(start.elapsed()));
    }
}

fn receive(mut stream: TcpStream, progress: &AtomicU64) -> Received {
    let from = stream.local_addr().expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    let start = Instant::now();
    let (mut bytes, mut last, mut longest_pause) = (0, start, Duration::ZERO);
    let mut buffer = vec![0; 256 << 10];
    loop {
        let len = stream.read(&mut buffer).expect("the transfer goes on");
        let now = Instant::now();
        longest_pause = longest_pause.max(now - last);
        last = now;
        if len == 0 {
            return Received { from, bytes, longest_pause };
        }
        for (byte, position) in buffer[..len].iter().zip(bytes..) {
            assert_eq!(*byte, pattern(position), "at byte {position}");
        }
        bytes += len as u64;
        progress.store(bytes, Ordering::Relaxed);
    }
}
