//! One node's sending side, as in the daemon: engine, sealing, and sending by UDP. Super-packets
//! are copied into the engine's buffers where the daemon reads them from a TUN device, and the peer
//! is not there ([`Peer`]).

use core::net::{IpAddr, SocketAddr};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mpip_core::{
    Command, Config, CongestionControlKind, DatagramSink, Ecn, Encapsulation, Engine, InnerPacket,
    Instant, Limits, LocalAddress, LocalId, Offload, PacketPool, PacketSink, Parameters,
    PartialChecksum, PathAddress, PeerConfig, Policy, Segmentation, SegmentationKind, Slot,
};
use mpip_crypto::PrivateKey;
use mpip_net::udp::SocketConfig;
use mpip_net::{Interest, Poller, UdpSender, UdpSocket, Waker, clock};
use rustix::time::{ClockId, clock_gettime};

use super::peer::Peer;

/// Names of the interface that packets leave by and of its other end.
pub(super) const INTERFACE: &str = "mpip-b0";
pub(super) const FAR_END: &str = "mpip-b1";
pub(super) const LOCAL: &str = "198.18.0.1";
pub(super) const REMOTE: &str = "198.18.0.2";

/// Segments of a super-packet, and payload bytes of each.
const SEGMENTS: u32 = 46;
const PAYLOAD: u16 = 1_386;
/// Bytes of the headers of IPv4 and TCP with timestamps.
const HEADERS: usize = 52;
/// As in the daemon: super-packets in a batch, and how many before the engine sends.
const BATCH: usize = 16;
/// Milliseconds in which the association is made, as the engine sees it.
const SET_UP: u32 = 2_000;

const ID: LocalId = LocalId(0);
const SENT: u64 = 0;
const SOCKET: u64 = 1;

/// What a run took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// Bits of all datagrams.
    pub(super) bits: f64,
    pub(super) seconds: f64,
    /// Processor time of the engine's thread, and of the others.
    pub(super) engine: f64,
    pub(super) crew: f64,
}

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
    pool: PacketPool,
    sender: UdpSender,
    poller: Poller,
    sent: Arc<Waker>,
    socket: Arc<UdpSocket>,
    template: Vec<u8>,
    sequence: u32,
}

impl Node {
    /// A node with `threads` for packets whose association is made.
    pub(super) fn new(threads: usize) -> io::Result<Self> {
        let config = SocketConfig {
            id: ID,
            interface: Some(INTERFACE.to_owned()),
            address: SocketAddr::new(address(LOCAL), 0),
            mark: 0,
            buffer: 8 << 20,
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
            engine: engine(now, socket.address(), remote),
            peer: Peer::new(PrivateKey::from_bytes([2; 32])),
            from_peer: PathAddress { local: ID, remote },
            last: 0,
            acknowledged: 0,
            pool: PacketPool::new(1_024, 64),
            sender,
            poller,
            sent,
            socket,
            template: template(),
            sequence: 0,
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
                let _ = self.push(now);
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

    /// Gives the engine a super-packet; `false` if it takes none now.
    fn push(&mut self, now: Instant) -> bool {
        let Self { pool, template, sequence, engine, .. } = self;
        let segmentation = Some(Segmentation { kind: SegmentationKind::Tcp, size: PAYLOAD });
        let partial_checksum = Some(PartialChecksum { start: 20, offset: 16 });
        let filled = pool.fill(|room| {
            room[..template.len()].copy_from_slice(template);
            room[24..28].copy_from_slice(&sequence.to_be_bytes());
            Ok::<_, ()>((template.len(), Offload { partial_checksum, segmentation }))
        });
        let Some(Ok(packet)) = filled else { return false };
        *sequence = sequence.wrapping_add(SEGMENTS * u32::from(PAYLOAD));
        engine.handle_tun(now, packet).is_ok()
    }

    /// Sends for `time`, as fast as it can.
    pub(super) fn run(&mut self, time: Duration) -> io::Result<Measured> {
        let before = (self.sender.counters().bytes, times());
        let start = clock::now();
        let mut now = start;
        while now.since(start) < time {
            for _ in 0..BATCH {
                if !self.push(now) {
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

/// An engine that calls the node at `remote` from its address `local`.
fn engine(now: Instant, local: SocketAddr, remote: SocketAddr) -> Engine {
    let peer = PeerConfig {
        name: "peer".to_owned(),
        public_key: *PrivateKey::from_bytes([2; 32]).public_key(),
        endpoints: vec![remote],
        allowed_prefixes: vec!["198.19.0.2".parse().expect("valid")],
        host_mode: false,
        policy: Policy::Require,
        // What there is to send leaves at once.
        congestion_control: CongestionControlKind::None,
        ..PeerConfig::unnamed()
    };
    let config = Config {
        private_key: PrivateKey::from_bytes([1; 32]),
        aes_in_hardware: mpip_crypto::cpu_has_aes(),
        peers: vec![peer],
        rules: vec![],
        limits: Limits::default(),
        parameters: Parameters::default(),
        opportunistic: None,
    };
    let mut engine = Engine::new(config, [1; 32], now, clock::unix_time());
    let local = LocalAddress {
        id: ID,
        interface: INTERFACE.to_owned(),
        address: local,
        mtu: 1_500,
        encapsulation: Encapsulation::Udp,
    };
    engine.handle_command(now, Command::OwnAddresses(vec![IpAddr::from([198, 19, 0, 1])]));
    engine.handle_command(now, Command::LocalAddresses(vec![local]));
    engine
}

/// A super-packet of TCP from 198.19.0.1 to 198.19.0.2, without its sequence number.
fn template() -> Vec<u8> {
    let len = HEADERS + usize::from(PAYLOAD) * SEGMENTS as usize;
    let mut packet = vec![0; len];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[6] = 0x40;
    packet[8..10].copy_from_slice(&[64, 6]);
    packet[12..20].copy_from_slice(&[198, 19, 0, 1, 198, 19, 0, 2]);
    packet[20..24].copy_from_slice(&[0xc0, 0, 0x14, 0x51]);
    packet[32..34].copy_from_slice(&[0x80, 0x10]);
    packet[40..44].copy_from_slice(&[1, 1, 8, 10]);
    packet
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("a constant")
}

/// Processor time of this thread, and of the process, in seconds.
fn times() -> (f64, f64) {
    let [thread, process] = [ClockId::ThreadCPUTime, ClockId::ProcessCPUTime].map(|clock| {
        let time = clock_gettime(clock);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    });
    (thread, process)
}
