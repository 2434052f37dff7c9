//! What the two sides that are measured have in common: an engine as in the daemon, traffic for it,
//! and the time that a run takes.

use core::net::{IpAddr, SocketAddr};

use mpip_core::{
    Command, Config, CongestionControlKind, Encapsulation, Engine, Instant, LocalAddress, LocalId,
    Offload, PacketPool, PartialChecksum, PeerConfig, Policy, Segmentation, SegmentationKind,
};
use mpip_crypto::PrivateKey;
use mpip_net::clock;
use rustix::time::{ClockId, clock_gettime};

/// Names of the interface that packets leave by and of its other end.
pub(super) const INTERFACE: &str = "mpip-b0";
pub(super) const FAR_END: &str = "mpip-b1";
pub(super) const LOCAL: &str = "198.18.0.1";
pub(super) const REMOTE: &str = "198.18.0.2";

/// The inner addresses of the node that sends, and of the one that receives.
pub(super) const INNER: [[u8; 4]; 2] = [[198, 19, 0, 1], [198, 19, 0, 2]];

pub(super) const ID: LocalId = LocalId(0);
/// Bytes of the kernel's buffers of a socket, as in the daemon.
pub(super) const SOCKET_BUFFER: usize = 8 << 20;

/// Segments of a super-packet, and payload bytes of each.
const SEGMENTS: u32 = 46;
const PAYLOAD: u16 = 1_386;
/// Bytes of the headers of IPv4 and TCP with timestamps.
const HEADERS: usize = 52;

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

/// Which of two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// The one that sends, and begins the handshake.
    Sender,
    /// The other one.
    Receiver,
}

/// The private key of a node.
pub(super) fn key(who: Who) -> PrivateKey {
    PrivateKey::from_bytes([who as u8 + 1; 32])
}

/// The engine of a node at `local`, whose peer is at `remote`.
pub(super) fn engine(now: Instant, who: Who, local: SocketAddr, remote: SocketAddr) -> Engine {
    let (other, endpoints) = match who {
        Who::Sender => (Who::Receiver, vec![remote]),
        Who::Receiver => (Who::Sender, vec![]),
    };
    let [own, theirs] = [who, other].map(|who| IpAddr::from(INNER[who as usize]));
    let peer = PeerConfig {
        name: "peer".to_owned(),
        public_key: *key(other).public_key(),
        endpoints,
        allowed_prefixes: vec![theirs.to_string().parse().expect("an address is a prefix")],
        host_mode: false,
        policy: Policy::Require,
        // What there is to send leaves at once.
        congestion_control: CongestionControlKind::None,
        ..PeerConfig::unnamed()
    };
    let config = Config::new(key(who), mpip_crypto::cpu_has_aes(), vec![peer]);
    let mut engine = Engine::new(config, [who as u8 + 1; 32], now, clock::unix_time());
    let local = LocalAddress {
        id: ID,
        interface: INTERFACE.to_owned(),
        address: local,
        mtu: 1_500,
        encapsulation: Encapsulation::Udp,
    };
    engine.handle_command(now, Command::OwnAddresses(vec![own]));
    engine.handle_command(now, Command::LocalAddresses(vec![local]));
    engine
}

/// Super-packets of one TCP session, in buffers as the daemon reads the TUN device into.
pub(super) struct Source {
    pool: PacketPool,
    template: Vec<u8>,
    sequence: u32,
}

impl Source {
    pub(super) fn new() -> Self {
        Self { pool: PacketPool::new(1_024, 64), template: template(), sequence: 0 }
    }

    /// Gives `engine` a super-packet; `false` if it takes none now.
    pub(super) fn push(&mut self, now: Instant, engine: &mut Engine) -> bool {
        let Self { pool, template, sequence } = self;
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
}

/// A super-packet of TCP from the sender to the receiver, without its sequence number.
fn template() -> Vec<u8> {
    let len = HEADERS + usize::from(PAYLOAD) * SEGMENTS as usize;
    let mut packet = vec![0; len];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[6] = 0x40;
    packet[8..10].copy_from_slice(&[64, 6]);
    packet[12..16].copy_from_slice(&INNER[0]);
    packet[16..20].copy_from_slice(&INNER[1]);
    packet[20..24].copy_from_slice(&[0xc0, 0, 0x14, 0x51]);
    packet[32..34].copy_from_slice(&[0x80, 0x10]);
    packet[40..44].copy_from_slice(&[1, 1, 8, 10]);
    packet
}

pub(super) fn address(text: &str) -> IpAddr {
    text.parse().expect("a constant")
}

/// Processor time of this thread, and of the process, in seconds.
pub(super) fn times() -> (f64, f64) {
    let [thread, process] = [ClockId::ThreadCPUTime, ClockId::ProcessCPUTime].map(|clock| {
        let time = clock_gettime(clock);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    });
    (thread, process)
}
