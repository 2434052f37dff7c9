//! One node's sending side, as in the daemon: engine, sealing, and sending by UDP. Super-packets
//! are copied into the engine's buffers where the daemon reads them from a TUN device, and the peer
//! is not there ([`Peer`]).

use core::net::SocketAddr;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mpip_core::{DatagramSink, Ecn, Engine, InnerPacket, Instant, PacketSink, PathAddress, Slot};
use mpip_net::udp::SocketConfig;
use mpip_net::{Interest, Poller, UdpSender, UdpSocket, Waker, clock};

use super::common::{
    ID, INTERFACE, LOCAL, Measured, REMOTE, SOCKET_BUFFER, Source, Who, address, engine, key, times,
};
use super::peer::Peer;

/// As in the daemon: super-packets in a batch, and how many before the engine sends.
const BATCH: usize = 16;
/// Milliseconds in which the association is made, as the engine sees it.
const SET_UP: u32 = 2_000;

const SENT: u64 = 0;
const SOCKET: u64 = 1;

/// What the engine sends while the association is made.
#[derive(Default)]
struct Collected(Vec<Vec<u8>>, bool);

impl DatagramSink for Collected {
    fn reserve(&mut self, _: PathAddress, _: Ecn, len: usize) -> Option<Slot<'_>> {
        self.0.push(vec![0; len]);
        Some(Slot::new(self.0.last_mut()?, &mut self.1))
    }
}

impl PacketSink for Collected {
    fn packet(&mut self, _: InnerPacket<'_>) {}
}

/// Counts what it passes on: each datagram has the next packet number.
struct Counted<'a> {
    sender: &'a mut UdpSender,
    last: &'a mut u64,
}

impl DatagramSink for Counted<'_> {
    fn reserve(&mut self, to: PathAddress, ecn: Ecn, len: usize) -> Option<Slot<'_>> {
        let slot = self.sender.reserve(to, ecn, len)?;
        *self.last += 1;
        Some(slot)
    }
}

/// The node.
pub(super) struct Node {
    engine: Engine,
    peer: Peer,
    from_peer: PathAddress,
    /// The packet number that the engine used last.
    last: u64,
    acknowledged: u64,
    sender: UdpSender,
    poller: Poller,
    sent: Arc<Waker>,
    socket: Arc<UdpSocket>,
    source: Source,
}

impl Node {
    /// A node with `threads` for packets whose association is made.
    pub(super) fn new(threads: usize) -> io::Result<Self> {
        let config = SocketConfig {
            id: ID,
            interface: Some(INTERFACE.to_owned()),
            address: SocketAddr::new(address(LOCAL), 0),
            mark: 0,
            buffer: SOCKET_BUFFER,
        };
        let socket = Arc::new(UdpSocket::bind(&config).map_err(io::Error::other)?);
        let sent = Arc::new(Waker::new()?);
        let poller = Poller::new()?;
        poller.add(&*sent, SENT, Interest::Readable)?;
        poller.add(&*socket, SOCKET, Interest::Readable)?;
        let mut sender = UdpSender::with_threads(threads, &sent)?;
        sender.insert(Arc::clone(&socket));
        let remote = SocketAddr::new(address(REMOTE), 6182);
        let now = clock::now();
        let mut node = Self {
            engine: engine(now, Who::Sender, socket.address(), remote),
            peer: Peer::new(key(Who::Receiver)),
            from_peer: PathAddress { local: ID, remote },
            last: 0,
            acknowledged: 0,
            sender,
            poller,
            sent,
            socket,
            source: Source::new(),
        };
        node.set_up(now)?;
        Ok(node)
    }

    /// Makes the association and tells the session's headers, faster than time passes.
    fn set_up(&mut self, start: Instant) -> io::Result<()> {
        let mut out = Collected::default();
        for step in 0..SET_UP {
            let now = start + Duration::from_millis(1) * step;
            let mut none = Collected::default();
            if step > SET_UP / 2 {
                let _ = self.source.push(now, &mut self.engine);
            }
            self.engine.handle_timeout(now, &mut out, &mut none);
            let _ = self.engine.run_jobs(now);
            self.engine.flush(now, &mut out);
            for mut datagram in out.0.drain(..) {
                let mut answer = self.peer.take(now, &mut datagram)?;
                let from = self.from_peer;
                let _ = self.engine.handle_datagram(now, from, Ecn::NotEct, &mut answer, &mut none);
            }
        }
        self.last = self.peer.largest().ok_or_else(|| io::Error::other("no association"))?;
        self.acknowledged = self.last;
        // The engine's clock has run ahead.
        std::thread::sleep((start + Duration::from_millis(1) * SET_UP).since(clock::now()));
        Ok(())
    }

    /// Sends for `time`, as fast as it can.
    pub(super) fn run(&mut self, time: Duration) -> io::Result<Measured> {
        let before = (self.sender.counters().bytes, times());
        let start = clock::now();
        let mut now = start;
        while now.since(start) < time {
            for _ in 0..BATCH {
                if !self.source.push(now, &mut self.engine) {
                    break;
                }
                self.flush(now);
            }
            now = clock::now();
            self.finish_batch(now);
            // What waits in the engine could not leave.
            while self.engine.status(now, false).peers[0].queued > 0 {
                self.wait()?;
                now = clock::now();
                self.finish_batch(now);
            }
        }
        let seconds = now.since(start).as_secs_f64();
        let (bytes, (engine, all)) = (self.sender.counters().bytes, times());
        let engine = engine - before.1.0;
        Ok(Measured {
            bits: (bytes - before.0) as f64 * 8.0,
            seconds,
            engine,
            crew: all - before.1.1 - engine,
        })
    }

    fn flush(&mut self, now: Instant) {
        let Self { engine, sender, last, .. } = self;
        engine.flush(now, &mut Counted { sender, last });
    }

    /// Sends what is left, and takes the feedback for what has left before.
    fn finish_batch(&mut self, now: Instant) {
        let acknowledged = std::mem::replace(&mut self.acknowledged, self.last);
        let mut feedback = self.peer.acknowledge(now, acknowledged);
        let Self { engine, sender, last, from_peer, .. } = self;
        let mut none = Collected::default();
        let _ = engine.handle_datagram(now, *from_peer, Ecn::NotEct, &mut feedback, &mut none);
        let mut out = Counted { sender, last };
        engine.flush(now, &mut out);
        if engine.poll_timeout().is_some_and(|due| due <= now) {
            engine.handle_timeout(now, &mut out, &mut none);
        }
        while engine.poll_event().is_some() {}
        sender.flush();
    }

    /// Waits until the socket or the crew takes more, or the engine has something to do.
    fn wait(&mut self) -> io::Result<()> {
        let Self { engine, sender, last, poller, sent, socket, .. } = self;
        let blocked = sender.is_blocked(ID);
        let interest = if blocked { Interest::ReadableWritable } else { Interest::Nothing };
        poller.modify(&**socket, SOCKET, interest)?;
        let timeout = engine.poll_timeout().map(|at| at.since(clock::now()));
        poller.wait(&mut Vec::new(), timeout)?;
        sent.reset();
        let room = sender.poll_room().is_some();
        if (blocked && sender.writable(ID)) || room {
            let mut out = Counted { sender, last };
            engine.handle_writable(clock::now(), ID, &mut out);
        }
        Ok(())
    }
}
