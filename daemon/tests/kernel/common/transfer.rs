//! Transfers by TCP between two hosts.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{HANG, Host, wait_for};

/// Where a transfer comes from, as one of its ends sees it, and how many bytes that end has seen.
type End = (SocketAddr, u64);

/// A transfer by TCP from one host to another, which checks every byte.
pub(crate) struct Transfer {
    sender: JoinHandle<End>,
    receiver: JoinHandle<End>,
    progress: Arc<AtomicU64>,
    stop: Stop,
    /// Ends when it is told to.
    endless: bool,
    /// The receiver was called.
    called: bool,
}

/// Tells the sender to end, at the latest when dropped.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a sender sends.
struct Load {
    bytes: u64,
    /// Bytes per second.
    rate: u64,
    stop: Arc<AtomicBool>,
}

/// Bytes of a load that ends when it is told to.
const ENDLESS: u64 = u64::MAX;

impl Transfer {
    /// Sends `bytes` from `from` to `address` on `to`, as fast as they go.
    pub(crate) fn whole(from: &Host, to: &Host, address: IpAddr, bytes: u64) -> Self {
        Self::between((from, call), (to, move || listen(address)), address, (bytes, u64::MAX))
    }

    /// Sends from `from` to `address` on `to` until [`finish`](Self::finish), at most `rate` bytes
    /// per second.
    pub(crate) fn start(from: &Host, to: &Host, address: IpAddr, rate: u64) -> Self {
        Self::start_translated(from, to, (address, address), rate)
    }

    /// As [`start`](Self::start), with a NAT on the way that translates the second address to the
    /// first.
    pub(crate) fn start_translated(
        from: &Host,
        to: &Host,
        (address, called): (IpAddr, IpAddr),
        rate: u64,
    ) -> Self {
        Self::between((from, call), (to, move || listen(address)), called, (ENDLESS, rate))
    }

    /// As [`start`](Self::start), by Multipath TCP (RFC 8684).
    pub(crate) fn start_mptcp(from: &Host, to: &Host, address: IpAddr, rate: u64) -> Self {
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
        Self::between((from, connected), (to, listening), address, (ENDLESS, rate))
    }

    fn between(
        (from, connect): (&Host, impl FnOnce(SocketAddr) -> TcpStream + Send + 'static),
        (to, listen): (&Host, impl FnOnce() -> TcpListener + Send + 'static),
        address: IpAddr,
        (bytes, rate): (u64, u64),
    ) -> Self {
        let listener = to.spawn(listen).join().expect("no panic");
        let port = listener.local_addr().expect("bound").port();
        let address = SocketAddr::new(address, port);
        let (progress, stop) = (Arc::default(), Arc::default());
        let counter = Arc::clone(&progress);
        let receiver = to.spawn(move || {
            let (stream, caller) = listener.accept().expect("a connection");
            (caller, receive(stream, &counter))
        });
        let load = Load { bytes, rate, stop: Arc::clone(&stop) };
        let sender = from.spawn(move || {
            let stream = connect(address);
            (stream.local_addr().expect("connected"), send(stream, &load))
        });
        let endless = bytes == ENDLESS;
        Self { sender, receiver, progress, stop: Stop(stop), endless, called: true }
    }

    /// As [`start`](Self::start), but `to` calls `from`, which has `address`.
    pub(crate) fn fetch(from: &Host, to: &Host, address: IpAddr, rate: u64) -> Self {
        let listener = from.spawn(move || listen(address)).join().expect("no panic");
        let address = listener.local_addr().expect("bound");
        let (progress, stop) = (Arc::default(), Arc::default());
        let counter = Arc::clone(&progress);
        let load = Load { bytes: ENDLESS, rate, stop: Arc::clone(&stop) };
        let sender = from.spawn(move || {
            let (stream, caller) = listener.accept().expect("a connection");
            (caller, send(stream, &load))
        });
        let receiver = to.spawn(move || {
            let stream = call(address);
            (stream.local_addr().expect("connected"), receive(stream, &counter))
        });
        Self { sender, receiver, progress, stop: Stop(stop), endless: true, called: false }
    }

    /// Bytes received so far.
    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// Waits until so many more bytes have arrived.
    pub(crate) fn advance(&self, bytes: u64) {
        let before = self.progress();
        let what = format!("{bytes} bytes of a transfer after {before}");
        let advanced = || self.progress() >= before + bytes;
        wait_for(&what, || advanced() || self.receiver.is_finished());
        assert!(advanced(), "{what}: it ended before");
    }

    /// Waits until everything has arrived; where nothing limits what is sent, until something more
    /// has. Returns the source of the connection as its listener sees it.
    pub(crate) fn finish(self) -> SocketAddr {
        if self.endless {
            self.advance(CHUNK as u64);
        }
        let Self { sender, receiver, stop, endless, called, .. } = self;
        if endless {
            drop(stop);
        }
        let (from, sent) = sender.join().expect("the sender sent everything");
        let (seen, received) = receiver.join().expect("every byte was right");
        assert_eq!(received, sent);
        if called { seen } else { from }
    }
}

/// Most bytes of a call of read(2) or write(2).
const CHUNK: usize = 64 << 10;

fn listen(address: IpAddr) -> TcpListener {
    TcpListener::bind((address, 0)).expect("the host has the address")
}

fn call(address: SocketAddr) -> TcpStream {
    TcpStream::connect_timeout(&address, HANG).expect("connect")
}

/// Sends a load; returns how many bytes that were.
fn send(mut stream: TcpStream, load: &Load) -> u64 {
    stream.set_write_timeout(Some(HANG)).expect("a time-out");
    let start = Instant::now();
    let mut sent = 0;
    while sent < load.bytes && !load.stop.load(Ordering::Relaxed) {
        let len = usize::try_from(load.bytes - sent).unwrap_or(usize::MAX).min(CHUNK);
        stream.write_all(pattern(sent, len)).expect("the transfer goes on");
        sent += len as u64;
        let due = Duration::from_secs_f64(sent as f64 / load.rate as f64);
        thread::sleep(due.saturating_sub(start.elapsed()));
    }
    sent
}

/// Receives until the end; returns how many bytes came.
fn receive(mut stream: TcpStream, progress: &AtomicU64) -> u64 {
    stream.set_read_timeout(Some(HANG)).expect("a time-out");
    let mut bytes = 0;
    let mut buffer = vec![0; CHUNK];
    loop {
        let len = match stream.read(&mut buffer) {
            Ok(0) => return bytes,
            Ok(len) => len,
            // A read with a time limit is interrupted when the process is frozen and thawed.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => panic!("the transfer goes on: {error}"),
        };
        assert!(buffer[..len] == *pattern(bytes, len), "at byte {bytes} or soon after");
        bytes += len as u64;
        progress.store(bytes, Ordering::Relaxed);
    }
}

/// What a transfer carries: `len` bytes, [`CHUNK`] at most, from `position` on.
pub(super) fn pattern(position: u64, len: usize) -> &'static [u8] {
    static BYTES: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..PERIOD + CHUNK as u64).map(byte).collect());
    &BYTES[(position % PERIOD) as usize..][..len]
}

/// Not a power of two, so that a piece in a wrong place differs.
const PERIOD: u64 = 251 * 241;

fn byte(position: u64) -> u8 {
    (position % 251) as u8 ^ (position / 251 % 241) as u8
}
