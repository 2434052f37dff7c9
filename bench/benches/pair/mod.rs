//! Two engines, established, with one or several paths in memory: what the benchmarks of the engine
//! drive.

use core::hint::black_box;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::VecDeque;

use mpip_core::{
    Command, Config, CongestionControlKind, DatagramSink, Ecn, Encapsulation, Engine, InnerPacket,
    Instant, LocalAddress, LocalId, Offload, PacketPool, PacketSink, PartialChecksum, PathAddress,
    PeerConfig, Policy, SchedulerKind, Segmentation, SegmentationKind, Slot,
};
use mpip_crypto::PrivateKey;

/// Segments of the super-packet that is sent again and again: 64 KiB, as the kernel makes them.
pub(crate) const SEGMENTS: u32 = 46;
/// Payload of each of its segments, in bytes.
pub(crate) const PAYLOAD: u16 = 1_386;
const HEADERS: usize = 52;

/// Packets in a batch of small ones.
pub(crate) const SMALL: u32 = 64;

/// Source and destination port of all packets.
const PORTS: u32 = 0xc000_1451;

/// One-way delay of each path.
const DELAY: Duration = Duration::from_micros(50);

/// Datagrams in one reused piece of memory.
struct Wire {
    bytes: Vec<u8>,
    /// Length and path of each.
    datagrams: VecDeque<(usize, PathAddress)>,
    used: usize,
    committed: bool,
    pending: (usize, PathAddress),
}

impl Wire {
    fn new() -> Self {
        Self {
            bytes: vec![0; 1 << 20],
            datagrams: VecDeque::new(),
            used: 0,
            committed: false,
            pending: (0, PathAddress { local: LocalId(0), remote: address(0, 0) }),
        }
    }

    fn settle(&mut self) {
        if core::mem::take(&mut self.committed) {
            self.used += self.pending.0;
            self.datagrams.push_back(self.pending);
        }
    }
}

impl DatagramSink for Wire {
    fn reserve(&mut self, to: PathAddress, _ecn: Ecn, len: usize) -> Option<Slot<'_>> {
        self.settle();
        self.pending = (len, to);
        let room = self.bytes.get_mut(self.used..self.used + len)?;
        Some(Slot::new(room, &mut self.committed))
    }
}

#[derive(Default)]
struct Host {
    packets: u64,
    bytes: u64,
}

impl PacketSink for Host {
    fn packet(&mut self, packet: InnerPacket<'_>) {
        self.packets += 1;
        self.bytes += black_box(packet).len() as u64;
    }
}

/// Two hosts, each with an engine, its outgoing datagrams and what came in.
pub(crate) struct Pair {
    now: Instant,
    engines: [Engine; 2],
    wires: [Wire; 2],
    hosts: [Host; 2],
    pool: PacketPool,
    /// Bytes that each path has carried to the second host.
    carried: Vec<u64>,
    /// TCP sequence number of the next super-packet, or ports of the last [first](Self::first)
    /// packet.
    sequence: u32,
}

fn address(host: usize, path: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::from([198, 18, path, host as u8 + 1]), 6182)
}

/// The path to `remote`, as in [`address`].
fn path_of(remote: SocketAddr) -> u8 {
    match remote.ip() {
        IpAddr::V4(address) => address.octets()[2],
        IpAddr::V6(_) => unreachable!("the hosts have IPv4 addresses"),
    }
}

impl Pair {
    /// Two hosts with this number of paths that know each other's keys, and have told each other the
    /// bulk session's header.
    pub(crate) fn new(congestion_control: CongestionControlKind, paths: u8) -> Self {
        let keys = [1, 2].map(|byte| PrivateKey::from_bytes([byte; 32]));
        let publics = [0, 1].map(|host: usize| *keys[host].public_key());
        let mut host = 0;
        let engines = keys.map(|private_key| {
            let peer = PeerConfig {
                name: "peer".to_owned(),
                public_key: publics[1 - host],
                endpoints: (0..paths).filter(|_| host == 0).map(|path| address(1, path)).collect(),
                allowed_prefixes: vec![format!("198.19.0.{}", 2 - host).parse().expect("valid")],
                host_mode: false,
                policy: Policy::Require,
                scheduler: SchedulerKind::Earliest,
                congestion_control,
                ..PeerConfig::unnamed()
            };
            let config = Config::new(private_key, mpip_crypto::cpu_has_aes(), vec![peer]);
            let mut engine =
                Engine::new(config, [host as u8; 32], Instant::ZERO, Duration::from_secs(1 << 30));
            let locals = (0..paths).map(|path| LocalAddress {
                id: LocalId(path.into()),
                interface: format!("eth{path}"),
                address: address(host, path),
                mtu: 1_500,
                encapsulation: Encapsulation::Udp,
            });
            let locals = locals.collect();
            let own = IpAddr::from([198, 19, 0, host as u8 + 1]);
            engine.handle_command(Instant::ZERO, Command::OwnAddresses(vec![own]));
            engine.handle_command(Instant::ZERO, Command::LocalAddresses(locals));
            host += 1;
            engine
        });
        let mut pair = Self {
            now: Instant::ZERO,
            engines,
            wires: [Wire::new(), Wire::new()],
            hosts: Default::default(),
            pool: PacketPool::new(256, 256),
            carried: vec![0; paths.into()],
            sequence: 0,
        };
        for _ in 0..1_000 {
            pair.step(Duration::from_millis(1));
        }
        // The session's header fields are told and confirmed, and the congestion window has grown.
        for _ in 0..200 {
            pair.bulk();
        }
        pair
    }

    /// Packets that the second host's engine has delivered.
    pub(crate) fn delivered(&self) -> u64 {
        self.hosts[1].packets
    }

    /// The share of the bytes to the second host that the least used path has carried, times the
    /// number of paths: 1 if all have carried as many.
    #[allow(dead_code, reason = "not every benchmark has several paths")]
    pub(crate) fn evenness(&self) -> f64 {
        let least = self.carried.iter().min().copied().unwrap_or(0);
        let all: u64 = self.carried.iter().sum();
        (least * self.carried.len() as u64) as f64 / all.max(1) as f64
    }

    /// Carries what host `from` has sent to the other, whose answers wait.
    fn carry(&mut self, from: usize) -> bool {
        let to = 1 - from;
        let wire = &mut self.wires[from];
        wire.settle();
        let mut at = 0;
        let carried = !wire.datagrams.is_empty();
        while let Some((len, PathAddress { local, remote })) = wire.datagrams.pop_front() {
            let (number, datagram) = (path_of(remote), &mut wire.bytes[at..at + len]);
            at += len;
            // Each interface reaches only its counterpart.
            if local != LocalId(number.into()) {
                continue;
            }
            self.carried[usize::from(number)] += if to == 1 { len as u64 } else { 0 };
            let (path, host) =
                (PathAddress { local, remote: address(from, number) }, &mut self.hosts[to]);
            let _ = self.engines[to].handle_datagram(self.now, path, Ecn::NotEct, datagram, host);
        }
        wire.used = 0;
        let _ = self.engines[to].run_jobs(self.now);
        self.engines[to].flush(self.now, &mut self.wires[to]);
        carried
    }

    /// Carries everything both ways, with the one-way delay, until the wires are silent.
    fn settle(&mut self) {
        loop {
            let there = self.carry(0);
            self.now += DELAY;
            let back = self.carry(1);
            self.now += DELAY;
            if !there && !back {
                return;
            }
        }
    }

    fn step(&mut self, time: Duration) {
        self.now += time;
        for host in 0..2 {
            let (wire, inner) = (&mut self.wires[host], &mut self.hosts[host]);
            self.engines[host].handle_timeout(self.now, wire, inner);
            let _ = self.engines[host].run_jobs(self.now);
            self.engines[host].flush(self.now, &mut self.wires[host]);
        }
        self.settle();
    }

    /// Sends `packet`, in which `number` stands at byte `at`.
    fn send(&mut self, packet: &[u8], (at, number): (usize, u32), offload: Offload) {
        let filled = self.pool.fill(|room| {
            room[..packet.len()].copy_from_slice(packet);
            room[at..at + 4].copy_from_slice(&number.to_be_bytes());
            Ok::<_, ()>((packet.len(), offload))
        });
        let packet = filled.expect("a free buffer").expect("filled");
        let sent = self.engines[0].handle_tun(self.now, packet);
        sent.expect("the association is established");
    }

    /// A super-packet of TCP for each path from the first host to the second, and the feedback for
    /// them.
    pub(crate) fn bulk(&mut self) {
        for _ in 0..self.carried.len() {
            self.super_packet();
        }
        self.deliver();
    }

    fn super_packet(&mut self) {
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(SEGMENTS * u32::from(PAYLOAD));
        let segmentation = Segmentation { kind: SegmentationKind::Tcp, size: PAYLOAD };
        let partial_checksum = Some(PartialChecksum { start: 20, offset: 16 });
        let offload = Offload { partial_checksum, segmentation: Some(segmentation) };
        self.send(&BULK, (24, sequence), offload);
    }

    /// [`SMALL`] UDP packets of 64 bytes, each the first of a session of its own, from the first host
    /// to the second, and the feedback for them.
    #[allow(dead_code, reason = "not every benchmark counts sessions")]
    pub(crate) fn first(&mut self) {
        for _ in 0..SMALL {
            self.sequence = self.sequence.wrapping_add(1);
            self.datagram(self.sequence);
        }
        self.deliver();
    }

    /// [`SMALL`] UDP packets of 64 bytes from the first host to the second, which the host sends
    /// one by one, and the feedback for them.
    pub(crate) fn small(&mut self) {
        for _ in 0..SMALL {
            self.datagram(PORTS);
        }
        self.deliver();
    }

    fn datagram(&mut self, ports: u32) {
        let partial_checksum = Some(PartialChecksum { start: 20, offset: 6 });
        self.send(&DATAGRAM, (20, ports), Offload { partial_checksum, segmentation: None });
    }

    /// Carries what the first host has sent, and the answers.
    fn deliver(&mut self) {
        self.engines[0].flush(self.now, &mut self.wires[0]);
        self.settle();
    }
}

const fn ip<const LEN: usize>(protocol: u8) -> [u8; LEN] {
    let mut packet = [0; LEN];
    packet[0] = 0x45;
    let length = (LEN as u16).to_be_bytes();
    packet[2] = length[0];
    packet[3] = length[1];
    packet[6] = 0x40;
    packet[8] = 64;
    packet[9] = protocol;
    [packet[12], packet[13], packet[14], packet[15]] = [198, 19, 0, 1];
    [packet[16], packet[17], packet[18], packet[19]] = [198, 19, 0, 2];
    let ports = PORTS.to_be_bytes();
    [packet[20], packet[21], packet[22], packet[23]] = ports;
    packet
}

static BULK: [u8; HEADERS + PAYLOAD as usize * SEGMENTS as usize] = {
    let mut packet = ip(6);
    packet[32] = 0x80;
    packet[33] = 0x10;
    [packet[40], packet[41], packet[42], packet[43]] = [1, 1, 8, 10];
    packet
};

const DATAGRAM: [u8; 64] = {
    let mut packet = ip(17);
    packet[25] = 44;
    packet
};
