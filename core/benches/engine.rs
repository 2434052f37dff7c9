//! Two engines, established, on one path without delay: what a full-size packet costs on its way
//! out of one and into the other. `aead` is the part of it that seals and opens; the rest is the
//! engine's own.

use core::hint::black_box;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::VecDeque;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use mpip_core::{
    Command, Config, CongestionControlKind, DatagramSink, Ecn, Encapsulation, EncapsulationPolicy,
    Engine, InnerPacket, Instant, Limits, LocalAddress, LocalId, LossPolicy, Offload, PacketPool,
    PacketSink, Parameters, PathAddress, PeerConfig, Policy, SchedulerKind, Segmentation,
    SegmentationKind, Slot, WeightAdaptation,
};
use mpip_crypto::{Aead, OpenKey, PrivateKey, SealKey};

/// Segments of the super-packet that is sent again and again: 64 KiB, as the kernel makes them.
const SEGMENTS: u32 = 46;
const PAYLOAD: u16 = 1_386;
const HEADERS: usize = 52;

/// Datagrams in one reused piece of memory.
struct Wire {
    bytes: Vec<u8>,
    lens: VecDeque<usize>,
    used: usize,
    committed: bool,
    pending: usize,
}

impl Wire {
    fn new() -> Self {
        Self {
            bytes: vec![0; 1 << 20],
            lens: VecDeque::new(),
            used: 0,
            committed: false,
            pending: 0,
        }
    }

    fn settle(&mut self) {
        if core::mem::take(&mut self.committed) {
            self.used += self.pending;
            self.lens.push_back(self.pending);
        }
    }
}

impl DatagramSink for Wire {
    fn reserve(&mut self, _to: PathAddress, _ecn: Ecn, len: usize) -> Option<Slot<'_>> {
        self.settle();
        self.pending = len;
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

struct Bench {
    now: Instant,
    engines: [Engine; 2],
    wires: [Wire; 2],
    hosts: [Host; 2],
    pool: PacketPool,
    packet: Vec<u8>,
}

fn address(host: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::from([198, 18, 0, host as u8 + 1]), 6182)
}

impl Bench {
    fn new() -> Self {
        let keys = [1, 2].map(|byte| PrivateKey::from_bytes([byte; 32]));
        let publics = [0, 1].map(|host: usize| *keys[host].public_key());
        let mut host = 0;
        let engines = keys.map(|private_key| {
            let peer = PeerConfig {
                name: "peer".to_owned(),
                public_key: publics[1 - host],
                preshared_key: Default::default(),
                endpoints: if host == 0 { vec![address(1)] } else { vec![] },
                allowed_prefixes: vec![format!("198.19.0.{}", 2 - host).parse().expect("valid")],
                host_mode: false,
                exclusive: vec![],
                reaches: vec![],
                policy: Policy::Require,
                scheduler: SchedulerKind::Earliest,
                fixed_weights: vec![],
                weight_adaptation: WeightAdaptation::default(),
                congestion_control: CongestionControlKind::None,
                max_paths: None,
                loss_policy: LossPolicy::Measured,
                resequencing: true,
                ack_thinning: true,
                encapsulation: EncapsulationPolicy::Auto,
                tcp_port: None,
            };
            let config = Config {
                private_key,
                aes_in_hardware: mpip_crypto::cpu_has_aes(),
                peers: vec![peer],
                rules: vec![],
                limits: Limits::default(),
                parameters: Parameters::default(),
                opportunistic: None,
            };
            let mut engine =
                Engine::new(config, [host as u8; 32], Instant::ZERO, Duration::from_secs(1 << 30));
            let local = LocalAddress {
                id: LocalId(0),
                interface: "eth0".to_owned(),
                address: address(host),
                mtu: 1_500,
                encapsulation: Encapsulation::Udp,
            };
            let own = IpAddr::from([198, 19, 0, host as u8 + 1]);
            engine.handle_command(Instant::ZERO, Command::OwnAddresses(vec![own]));
            engine.handle_command(Instant::ZERO, Command::LocalAddresses(vec![local]));
            host += 1;
            engine
        });
        let mut bench = Self {
            now: Instant::ZERO,
            engines,
            wires: [Wire::new(), Wire::new()],
            hosts: Default::default(),
            pool: PacketPool::new(256, 256),
            packet: super_packet(),
        };
        for _ in 0..1_000 {
            bench.step(Duration::from_millis(1));
        }
        // The session's header fields are told and confirmed.
        for _ in 0..10 {
            bench.burst();
        }
        bench
    }

    /// Carries what is on the wires, both ways, until they are silent.
    fn settle(&mut self) {
        loop {
            let mut carried = false;
            for host in 0..2 {
                let wire = &mut self.wires[host];
                wire.settle();
                let mut at = 0;
                while let Some(len) = wire.lens.pop_front() {
                    let from = PathAddress { local: LocalId(0), remote: address(host) };
                    let datagram = &mut wire.bytes[at..at + len];
                    let _ = self.engines[1 - host].handle_datagram(
                        self.now,
                        from,
                        Ecn::NotEct,
                        datagram,
                        &mut self.hosts[1 - host],
                    );
                    at += len;
                    carried = true;
                }
                wire.used = 0;
                let _ = self.engines[1 - host].run_jobs(self.now);
                self.engines[1 - host].flush(self.now, &mut self.wires[1 - host]);
            }
            if !carried {
                return;
            }
        }
    }

    fn step(&mut self, time: Duration) {
        self.now += time;
        for host in 0..2 {
            self.engines[host].handle_timeout(
                self.now,
                &mut self.wires[host],
                &mut self.hosts[host],
            );
            let _ = self.engines[host].run_jobs(self.now);
            self.engines[host].flush(self.now, &mut self.wires[host]);
        }
        self.settle();
    }

    /// One super-packet from host 0 to host 1, and the feedback for it.
    fn burst(&mut self) {
        self.now += Duration::from_micros(100);
        let Self { pool, packet, .. } = self;
        let segmentation = Segmentation { kind: SegmentationKind::Tcp, size: PAYLOAD };
        let offload = Offload {
            partial_checksum: Some(mpip_core::PartialChecksum { start: 20, offset: 16 }),
            segmentation: Some(segmentation),
        };
        let filled = pool.fill(|room| {
            room[..packet.len()].copy_from_slice(packet);
            Ok::<_, ()>((packet.len(), offload))
        });
        let packet = filled.expect("a free buffer").expect("filled");
        let sent = self.engines[0].handle_tun(self.now, packet, &mut self.wires[0]);
        sent.expect("the association is established");
        self.settle();
    }
}

fn super_packet() -> Vec<u8> {
    let len = HEADERS + usize::from(PAYLOAD) * SEGMENTS as usize;
    let mut packet = vec![0xa5; len];
    packet[..HEADERS].fill(0);
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[6] = 0x40;
    packet[8] = 64;
    packet[9] = 6;
    packet[12..16].copy_from_slice(&[198, 19, 0, 1]);
    packet[16..20].copy_from_slice(&[198, 19, 0, 2]);
    packet[20..24].copy_from_slice(&[0xc0, 0, 0x14, 0x51]);
    packet[32] = 0x80;
    packet[33] = 0x10;
    packet[40..44].copy_from_slice(&[1, 1, 8, 10]);
    packet
}

fn engine(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine");
    group.throughput(Throughput::Elements(u64::from(SEGMENTS)));
    let mut bench = Bench::new();
    let before = bench.hosts[1].packets;
    bench.burst();
    assert_eq!(bench.hosts[1].packets - before, u64::from(SEGMENTS), "every segment arrives");
    group.bench_function("out_and_in", |bencher| bencher.iter(|| bench.burst()));

    let aead = Aead::preferred(mpip_crypto::cpu_has_aes());
    let (seal, open) = (SealKey::new(aead, &[7; 32]), OpenKey::new(aead, &[7; 32]));
    let mut datagram = vec![0; usize::from(PAYLOAD) + 30];
    let mut number = 0;
    group.bench_function("aead", |bencher| {
        bencher.iter(|| {
            for _ in 0..SEGMENTS {
                let len = datagram.len() - 16;
                let (plain, tag) = datagram.split_at_mut(len);
                tag.copy_from_slice(&seal.seal_in_place(0, number, &[0; 9], plain));
                open.open_in_place(0, number, &[0; 9], &mut datagram).expect("sealed above");
                number += 1;
            }
        });
    });
    group.finish();
}

criterion_group!(benches, engine);
criterion_main!(benches);
