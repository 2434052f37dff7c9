//! One node's receiving side, as in the daemon: receiving by UDP, opening, the engine, and writing
//! to a TUN device. What arrives is sent by another engine before: bursts that the socket's buffer
//! holds are sent while nobody measures, and received while nobody sends. So the sender takes
//! nothing of the processors that are measured.
//!
//! ```text
//!   namespace sender              namespace receiver
//!   engine ─► UDP  mpip-b0 ─────► mpip-b1  UDP ─► engine ─► mpip-t0 (TUN) ─► mpip-b2 ─► mpip-b3
//! ```

use core::net::SocketAddr;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mpip_core::{Engine, InnerPacket, Instant, Opened, PacketSink, PathAddress};
use mpip_net::udp::{ReceiveBuffers, SocketConfig, UdpReceiver};
use mpip_net::{Interest, Poller, Tun, TunWriter, UdpSender, UdpSocket, Waker, clock};

use super::common::{
    FAR_END, ID, INTERFACE, LOCAL, Measured, REMOTE, SOCKET_BUFFER, Source, Who, address, engine,
    times,
};
use crate::netns::Namespace;

/// The TUN device of the node that is measured, and the interface by which its packets leave.
pub(super) const TUN: &str = "mpip-t0";

const PORT: u16 = 6182;
/// Super-packets in a burst: about half of the socket's buffer.
const BURST: usize = 64;
/// Super-packets after which the sender sends.
const SEND_BATCH: usize = 16;
/// Messages received at a time, as in the daemon.
const RECEIVE_BATCH: usize = 16;
/// How long the association may take to be made, and what is on its way to arrive.
const SET_UP: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_millis(500);

const THREADS: u64 = 0;
const SOCKET: u64 = 1;

/// Drops packets.
struct Nobody;

impl PacketSink for Nobody {
    fn packet(&mut self, _: InnerPacket<'_>) {}
}

/// One of the two nodes.
struct End {
    engine: Engine,
    socket: Arc<UdpSocket>,
    // Dropped before the sender, with which it shares the threads.
    reader: UdpReceiver,
    sender: UdpSender,
    buffers: ReceiveBuffers,
    remote: SocketAddr,
    /// Datagrams and bytes received, and datagrams of these that other threads opened.
    received: u64,
    bytes: u64,
    opened: u64,
}

impl End {
    fn new(
        who: Who,
        namespace: &Namespace,
        (threads, waker): (usize, &Arc<Waker>),
    ) -> io::Result<Self> {
        let [(interface, local), (_, remote)] = match who {
            Who::Sender => [(INTERFACE, LOCAL), (FAR_END, REMOTE)],
            Who::Receiver => [(FAR_END, REMOTE), (INTERFACE, LOCAL)],
        };
        let config = SocketConfig {
            id: ID,
            interface: Some(interface.to_owned()),
            address: SocketAddr::new(address(local), PORT),
            mark: 0,
            buffer: SOCKET_BUFFER,
        };
        let socket = namespace.enter(|| UdpSocket::bind(&config).map_err(io::Error::other))?;
        let socket = Arc::new(socket);
        let mut sender = UdpSender::with_threads(threads, waker)?;
        sender.insert(Arc::clone(&socket));
        let mut reader = UdpReceiver::beside(&sender, waker, mpip_core::receiver_index);
        reader.insert(Arc::clone(&socket));
        let remote = SocketAddr::new(address(remote), PORT);
        let mut engine = engine(clock::now(), who, socket.address(), remote);
        if reader.opens() {
            engine.share_keys();
        }
        let buffers = ReceiveBuffers::new(RECEIVE_BATCH);
        let (received, bytes, opened) = (0, 0, 0);
        Ok(Self { engine, socket, reader, sender, buffers, remote, received, bytes, opened })
    }

    /// Takes what has arrived.
    fn receive(&mut self, now: Instant, out: &mut impl PacketSink) -> io::Result<()> {
        let from = PathAddress { local: ID, remote: self.remote };
        let Self { engine, buffers, received, bytes, .. } = self;
        self.reader.receive(&self.socket, buffers, |_, ecn, datagram| {
            *received += 1;
            *bytes += datagram.len() as u64;
            let _ = engine.handle_datagram(now, from, ecn, datagram, out);
        })
    }

    /// Takes what threads have received.
    fn take(&mut self, now: Instant, out: &mut impl PacketSink) {
        let from = PathAddress { local: ID, remote: self.remote };
        let Self { engine, received, bytes, opened, .. } = self;
        self.reader.take(|_, _, ecn, (datagram, how)| {
            *received += 1;
            *bytes += datagram.len() as u64;
            *opened += u64::from(matches!(how, Opened::Authentic { .. }));
            let _ = engine.handle_opened(now, from, ecn, (datagram, how), out);
        });
    }

    /// Does what is due, and sends.
    fn finish_batch(&mut self, now: Instant, out: &mut impl PacketSink) {
        let Self { engine, reader, sender, .. } = self;
        engine.flush(now, sender);
        if engine.poll_timeout().is_some_and(|due| due <= now) {
            engine.handle_timeout(now, sender, out);
        }
        while engine.poll_event().is_some() {}
        while let Some(change) = engine.poll_key() {
            reader.set_key(change.index, change.key);
        }
        sender.flush();
    }
}

/// The node that is measured, and the one that sends to it.
pub(super) struct Pair {
    sender: End,
    source: Source,
    receiver: End,
    writer: TunWriter,
    poller: Poller,
    waker: Arc<Waker>,
    /// Whether the poller listens to the socket.
    listens: bool,
}

impl Pair {
    /// Two nodes whose association is made, the one that is measured with `threads` for packets.
    pub(super) fn new(namespaces: [&Namespace; 2], threads: usize) -> io::Result<Self> {
        let tun = namespaces[1].enter(|| Tun::open(TUN).map_err(io::Error::other))?;
        namespaces[1].ip(&["link", "set", TUN, "up"])?;
        let waker = Arc::new(Waker::new()?);
        let receiver = End::new(Who::Receiver, namespaces[1], (threads, &waker))?;
        let poller = Poller::new()?;
        poller.add(&*waker, THREADS, Interest::Readable)?;
        poller.add(&*receiver.socket, SOCKET, Interest::Readable)?;
        let mut pair = Self {
            sender: End::new(Who::Sender, namespaces[0], (1, &waker))?,
            source: Source::new(),
            receiver,
            writer: TunWriter::new(Arc::new(tun)),
            poller,
            waker,
            listens: true,
        };
        pair.set_up()?;
        Ok(pair)
    }

    /// Makes the association and tells the session's headers.
    fn set_up(&mut self) -> io::Result<()> {
        let start = clock::now();
        let mut now = start;
        while now.since(start) < SET_UP {
            now = clock::now();
            if now.since(start) > SET_UP / 2 {
                let _ = self.source.push(now, &mut self.sender.engine);
            }
            for end in [&mut self.sender, &mut self.receiver] {
                end.receive(now, &mut Nobody)?;
                let _ = end.engine.run_jobs(now);
                end.finish_batch(now, &mut Nobody);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        match self.receiver.received > 1_000 {
            true => Ok(()),
            false => Err(io::Error::other("no association was made")),
        }
    }

    /// Receives bursts until that has taken `time`.
    pub(super) fn run(&mut self, time: Duration) -> io::Result<Measured> {
        let mut sum = Measured { bits: 0.0, seconds: 0.0, engine: 0.0, crew: 0.0 };
        while sum.seconds < time.as_secs_f64() {
            let sent = self.send()?;
            let (bytes, before, start) = (self.receiver.bytes, times(), clock::now());
            self.receive(sent)?;
            let (engine, all) = times();
            sum.seconds += clock::now().since(start).as_secs_f64();
            sum.bits += (self.receiver.bytes - bytes) as f64 * 8.0;
            sum.engine += engine - before.0;
            sum.crew += all - before.1 - (engine - before.0);
        }
        match self.receiver.reader.opens() && self.receiver.opened == 0 {
            false => Ok(sum),
            true => Err(io::Error::other("the other threads opened nothing")),
        }
    }

    /// Sends a burst; returns its datagrams.
    fn send(&mut self) -> io::Result<u64> {
        let Self { sender, source, .. } = self;
        let before = sender.sender.counters().datagrams;
        for _ in 0..BURST / SEND_BATCH {
            let now = clock::now();
            sender.receive(now, &mut Nobody)?;
            for _ in 0..SEND_BATCH {
                source.push(now, &mut sender.engine);
            }
            sender.finish_batch(now, &mut Nobody);
        }
        while sender.engine.status(clock::now(), false).peers[0].queued > 0 {
            sender.finish_batch(clock::now(), &mut Nobody);
        }
        Ok(sender.sender.counters().datagrams - before)
    }

    /// Receives `count` datagrams.
    fn receive(&mut self, count: u64) -> io::Result<()> {
        let Self { receiver, writer, poller, waker, listens, .. } = self;
        let (end, mut ready) = (receiver.received + count, Vec::new());
        let mut last = clock::now();
        while receiver.received < end {
            let due = receiver.engine.poll_timeout();
            let timeout = due.map_or(PATIENCE, |due| due.since(clock::now()).min(PATIENCE));
            let idle = receiver.reader.has_work().then_some(Duration::ZERO);
            poller.wait(&mut ready, idle.or(Some(timeout)))?;
            let now = clock::now();
            if !ready.is_empty() {
                last = now;
            } else if idle.is_some() && receiver.reader.help() {
                receiver.take(clock::now(), writer);
            } else if now.since(last) > PATIENCE {
                let missing = end - receiver.received;
                return Err(io::Error::other(format!("{missing} datagrams were lost")));
            }
            for readiness in &ready {
                if readiness.token == THREADS {
                    waker.reset();
                    receiver.take(now, writer);
                } else {
                    receiver.receive(now, writer)?;
                }
            }
            let now = clock::now();
            receiver.finish_batch(now, writer);
            writer.flush();
            let listen = !receiver.reader.is_ahead(ID);
            if listen != *listens {
                let interest = Interest::of(listen, false);
                poller.modify(&*receiver.socket, SOCKET, interest)?;
                *listens = listen;
            }
        }
        Ok(())
    }
}
