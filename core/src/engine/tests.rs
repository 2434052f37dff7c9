//! Two engines joined by perfect wires.
//!
//! ```text
//!   host 0                      host 1
//!   198.18.0.1  ── 1 ms ──  198.18.0.2
//!   198.18.1.1  ── 5 ms ──  198.18.1.2      (and both diagonals, 3 ms)
//!   inner 198.19.0.1            inner 198.19.0.2
//! ```

use super::*;
use crate::buffer::{Offload, PacketPool, Segmentation, SegmentationKind};
use crate::config::{CongestionControlKind, Limits, PeerConfig, SchedulerKind};
use crate::path::PathState;
use crate::sink::{InnerPacket, Slot};

/// Datagrams and packets that an engine produced.
#[derive(Default)]
struct Out {
    datagrams: Vec<(PathAddress, Vec<u8>)>,
    pending: Option<(PathAddress, Vec<u8>)>,
    committed: bool,
    packets: Vec<Vec<u8>>,
}

impl Out {
    fn settle(&mut self) {
        if let Some(datagram) = self.pending.take()
            && core::mem::take(&mut self.committed)
        {
            self.datagrams.push(datagram);
        }
    }
}

impl DatagramSink for Out {
    fn reserve(&mut self, to: PathAddress, _ecn: Ecn, len: usize) -> Option<Slot<'_>> {
        self.settle();
        let (_, bytes) = self.pending.insert((to, vec![0; len]));
        Some(Slot::new(bytes, &mut self.committed))
    }
}

struct Packets<'a>(&'a mut Vec<Vec<u8>>);

impl PacketSink for Packets<'_> {
    fn packet(&mut self, packet: InnerPacket<'_>) {
        self.0.push([packet.head, packet.tail].concat());
    }
}

struct Pair {
    now: Instant,
    engines: [Engine; 2],
    out: [Out; 2],
    /// Arrival, receiver, where it comes from as the receiver sees it, bytes.
    wire: BTreeMap<(Instant, u64), (usize, PathAddress, Vec<u8>)>,
    sent: u64,
    pool: PacketPool,
    /// Links (the receiver's or the sender's interface) that carry nothing.
    dead: Vec<u16>,
    /// Every nth datagram is lost if it carries a packet.
    lose: Option<u64>,
    carried: [u64; 2],
}

fn address(host: usize, link: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::from([198, 18, link as u8, host as u8 + 1]), 6182)
}

fn locals(host: usize) -> Vec<LocalAddress> {
    (0..2)
        .map(|link| LocalAddress {
            id: LocalId(link),
            interface: format!("eth{link}"),
            address: address(host, link),
            mtu: 1_500,
        })
        .collect()
}

impl Pair {
    fn new(adjust: impl Fn(&mut PeerConfig)) -> Self {
        let keys: Vec<PrivateKey> =
            (1..=2).map(|byte| PrivateKey::from_bytes([byte; 32])).collect();
        let publics: Vec<PublicKey> = keys.iter().map(|key| *key.public_key()).collect();
        let mut engines = keys.into_iter().enumerate().map(|(host, private_key)| {
            let mut peer = PeerConfig {
                name: format!("host{}", 1 - host),
                public_key: publics[1 - host],
                preshared_key: Default::default(),
                endpoints: if host == 0 { vec![address(1, 0)] } else { vec![] },
                allowed_prefixes: vec![format!("198.19.0.{}", 2 - host).parse().expect("valid")],
                scheduler: SchedulerKind::Earliest,
                fixed_weights: vec![],
                congestion_control: CongestionControlKind::None,
                max_paths: None,
                resequencing: true,
            };
            adjust(&mut peer);
            let config = Config {
                private_key,
                aes_in_hardware: true,
                peers: vec![peer],
                rules: vec![],
                limits: Limits::default(),
            };
            let seed = [host as u8; 32];
            let mut engine = Engine::new(config, seed, Instant::ZERO, Duration::from_secs(1 << 30));
            engine.handle_command(Instant::ZERO, Command::LocalAddresses(locals(host)));
            engine
        });
        Self {
            now: Instant::ZERO,
            engines: [engines.next().expect("two"), engines.next().expect("two")],
            out: Default::default(),
            wire: BTreeMap::new(),
            sent: 0,
            pool: PacketPool::new(64, 4_096),
            dead: vec![],
            lose: None,
            carried: [0; 2],
        }
    }

    fn collect(&mut self, host: usize) {
        self.out[host].settle();
        for (to, bytes) in core::mem::take(&mut self.out[host].datagrams) {
            self.sent += 1;
            let remote_link = (0..2).find(|link| address(1 - host, *link) == to.remote);
            let Some(remote_link) = remote_link else { continue };
            let full = bytes.len() > 500;
            let lost = full && self.lose.is_some_and(|nth| self.sent.is_multiple_of(nth));
            if lost || self.dead.contains(&to.local.0) || self.dead.contains(&remote_link) {
                continue;
            }
            let delay = match (to.local.0, remote_link) {
                (0, 0) => 1,
                (1, 1) => 5,
                _ => 3,
            };
            self.carried[usize::from(to.local.0)] += bytes.len() as u64;
            let at = self.now + Duration::from_millis(delay);
            let from =
                PathAddress { local: LocalId(remote_link), remote: address(host, to.local.0) };
            self.wire.insert((at, self.sent), (1 - host, from, bytes));
        }
    }

    fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let timeouts = self.engines.iter().filter_map(Engine::poll_timeout);
            let arrival = self.wire.first_key_value().map(|((at, _), _)| *at);
            let next = timeouts.chain(arrival).min().filter(|at| *at <= end);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            while let Some(entry) = self.wire.first_entry()
                && entry.key().0 <= self.now
            {
                let (host, from, mut bytes) = entry.remove();
                let Out { packets, .. } = &mut self.out[host];
                let mut packets = Packets(packets);
                let engine = &mut self.engines[host];
                let _ =
                    engine.handle_datagram(self.now, from, Ecn::NotEct, &mut bytes, &mut packets);
                engine.flush(self.now, &mut self.out[host]);
                self.collect(host);
            }
            for host in 0..2 {
                let mut packets = Vec::new();
                self.engines[host].handle_timeout(
                    self.now,
                    &mut self.out[host],
                    &mut Packets(&mut packets),
                );
                self.out[host].packets.extend(packets);
                self.collect(host);
            }
        }
        self.now = end;
    }

    fn send(&mut self, host: usize, packet: &[u8], offload: Offload) {
        let filled = self.pool.fill(|room| {
            room[..packet.len()].copy_from_slice(packet);
            Ok::<_, ()>((packet.len(), offload))
        });
        let packet = filled.expect("a free buffer").expect("filled");
        let sent = self.engines[host].handle_tun(self.now, packet, &mut self.out[host]);
        sent.expect("a packet for the peer");
        self.collect(host);
    }

    fn states(&self, host: usize) -> Vec<PathState> {
        let status = self.engines[host].status(self.now, true);
        status.peers[0].paths.iter().map(|path| path.state).collect()
    }
}

/// A TCP packet (or super-packet) from `host` to the other, its sequence number in `sequence`.
fn tcp(host: usize, sequence: u32, payload: usize) -> Vec<u8> {
    let mut packet = vec![0; 40 + payload];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&((40 + payload) as u16).to_be_bytes());
    packet[6] = 0x40;
    packet[8] = 64;
    packet[9] = 6;
    packet[12..16].copy_from_slice(&[198, 19, 0, host as u8 + 1]);
    packet[16..20].copy_from_slice(&[198, 19, 0, 2 - host as u8]);
    packet[20..24].copy_from_slice(&[0x12, 0x34, 0x56, 0x78]);
    packet[24..28].copy_from_slice(&sequence.to_be_bytes());
    packet[32] = 0x50;
    packet[33] = 0x10;
    packet
}

fn sequences(packets: &[Vec<u8>]) -> Vec<u32> {
    let sequence = |packet: &Vec<u8>| u32::from_be_bytes(packet[24..28].try_into().expect("4"));
    packets.iter().map(sequence).collect()
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn all_four_paths_come_up() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    assert_eq!(pair.states(0), [PathState::Active; 4]);
    assert_eq!(pair.states(1), [PathState::Active; 4]);
}

#[test]
fn packets_arrive_unchanged_and_in_order_over_several_paths() {
    let mut pair = Pair::new(|peer| peer.scheduler = SchedulerKind::RoundRobin);
    pair.run_for(SECOND);
    let sent: Vec<_> = (0..200).map(|n| tcp(0, n, 1_000)).collect();
    for packet in &sent {
        pair.send(0, packet, Offload::default());
    }
    pair.run_for(SECOND);
    assert_eq!(pair.out[1].packets, sent);
    let status = pair.engines[0].status(pair.now, true);
    assert!(status.peers[0].paths.iter().all(|path| (path.share - 0.25).abs() < 0.01));
}

#[test]
fn a_super_packet_arrives_as_its_segments() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    let segmentation = Some(Segmentation { kind: SegmentationKind::Tcp, size: 1_300 });
    let offload = Offload { segmentation, partial_checksum: None };
    pair.send(0, &tcp(0, 1_000, 13_000), offload);
    pair.run_for(SECOND);
    let expected: Vec<u32> = (0..10).map(|n| 1_000 + n * 1_300).collect();
    assert_eq!(sequences(&pair.out[1].packets), expected);
}

#[test]
fn losses_of_tcp_sessions_are_repaired_in_order() {
    for congestion_control in [CongestionControlKind::Cubic, CongestionControlKind::Bbr] {
        let mut pair = Pair::new(|peer| {
            peer.scheduler = SchedulerKind::RoundRobin;
            peer.congestion_control = congestion_control;
        });
        pair.run_for(SECOND);
        pair.lose = Some(7);
        for n in 0..500 {
            pair.send(0, &tcp(0, n, 1_000), Offload::default());
            pair.run_for(Duration::from_millis(1));
        }
        pair.run_for(SECOND);
        assert_eq!(sequences(&pair.out[1].packets), (0..500).collect::<Vec<_>>());
    }
}

#[test]
fn without_congestion_control_the_inner_tcp_sees_its_losses_and_waits_for_none() {
    let mut pair = Pair::new(|peer| peer.scheduler = SchedulerKind::RoundRobin);
    pair.run_for(SECOND);
    pair.lose = Some(7);
    for n in 0..500 {
        pair.send(0, &tcp(0, n, 1_000), Offload::default());
        pair.run_for(Duration::from_millis(1));
    }
    pair.run_for(SECOND);
    let arrived = sequences(&pair.out[1].packets);
    assert!(arrived.len() < 470 && arrived.is_sorted(), "{arrived:?}");
    let status = pair.engines[1].status(pair.now, true);
    let longest = status.peers[0].sessions.iter().map(|session| session.longest_wait).max();
    assert!(longest < Some(Duration::from_millis(60)), "{longest:?}");
}

#[test]
fn a_path_that_dies_silently_leaves_the_choice_and_its_packets_move() {
    let mut pair = Pair::new(|peer| peer.scheduler = SchedulerKind::RoundRobin);
    pair.run_for(SECOND);
    for n in 0..300 {
        if n == 100 {
            pair.dead = vec![0];
        }
        pair.send(0, &tcp(0, n, 1_000), Offload::default());
        pair.run_for(Duration::from_millis(1));
    }
    pair.run_for(Duration::from_millis(300));
    assert_eq!(sequences(&pair.out[1].packets), (0..300).collect::<Vec<_>>());
    let failed = pair.states(0).iter().filter(|state| **state == PathState::Failed).count();
    assert_eq!(failed, 3, "{:?}", pair.states(0));
    pair.dead = vec![];
    pair.run_for(SECOND * 4);
    assert_eq!(pair.states(0), [PathState::Active; 4]);
}

#[test]
fn a_lost_address_moves_everything_at_once_and_its_return_brings_the_paths_back() {
    let mut pair = Pair::new(|peer| peer.scheduler = SchedulerKind::RoundRobin);
    pair.run_for(SECOND);
    for n in 0..20 {
        pair.send(0, &tcp(0, n, 1_000), Offload::default());
    }
    pair.dead = vec![1];
    let one = vec![locals(0)[0].clone()];
    pair.engines[0].handle_command(pair.now, Command::LocalAddresses(one));
    pair.run_for(Duration::from_millis(20));
    assert_eq!(sequences(&pair.out[1].packets), (0..20).collect::<Vec<_>>());
    pair.run_for(SECOND * 4);
    pair.dead = vec![];
    pair.engines[0].handle_command(pair.now, Command::LocalAddresses(locals(0)));
    pair.run_for(SECOND * 4);
    assert_eq!(pair.states(0), [PathState::Active; 4]);
    assert_eq!(pair.states(1), [PathState::Active; 4]);
}

#[test]
fn keys_are_replaced_without_losing_a_packet() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    for n in 0..4_000 {
        pair.send(0, &tcp(0, n, 100), Offload::default());
        pair.run_for(Duration::from_millis(70));
    }
    pair.run_for(SECOND);
    assert_eq!(sequences(&pair.out[1].packets), (0..4_000).collect::<Vec<_>>());
    let status = pair.engines[0].status(pair.now, false);
    assert!(status.peers[0].handshake_age.is_some_and(|age| age < SECOND * 121));
    assert!(status.peers[0].paths.iter().all(|path| path.packets_lost == 0));
}

#[test]
fn a_peer_that_restarts_is_recognised_and_everything_begins_anew() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    let fresh = Pair::new(|_| {});
    let [_, mut restarted] = fresh.engines;
    restarted.handle_command(pair.now, Command::LocalAddresses(locals(1)));
    restarted.instance = 77;
    pair.engines[1] = restarted;
    pair.run_for(SECOND * 10);
    assert_eq!(pair.states(0), [PathState::Active; 4]);
    pair.send(0, &tcp(0, 5, 100), Offload::default());
    pair.run_for(SECOND);
    assert_eq!(sequences(&pair.out[1].packets), [5]);
}

#[test]
fn the_fastest_paths_are_kept_within_the_limit() {
    let mut pair = Pair::new(|peer| peer.max_paths = Some(2));
    pair.run_for(SECOND * 2);
    let status = pair.engines[0].status(pair.now, false);
    let active = status.peers[0].paths.iter().filter(|path| path.state == PathState::Active);
    assert_eq!(active.count(), 2);
    let fastest = status.peers[0]
        .paths
        .iter()
        .find(|path| path.relative_delay.is_some_and(|delay| delay.is_zero()));
    assert_eq!(fastest.map(|path| path.state), Some(PathState::Active));
}

#[test]
fn nothing_is_accepted_from_a_source_that_is_not_the_peers() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    let mut packet = tcp(0, 1, 10);
    packet[15] = 99;
    pair.send(0, &packet, Offload::default());
    pair.run_for(SECOND);
    assert!(pair.out[1].packets.is_empty());
    let status = pair.engines[1].status(pair.now, false);
    assert!(status.drops.contains(&("foreign_source", 1)), "{:?}", status.drops);
}

#[test]
fn a_goodbye_ends_the_association_on_both_sides() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    pair.engines[0].handle_command(pair.now, Command::Shutdown);
    pair.run_for(Duration::from_millis(10));
    let mut events = core::iter::from_fn(|| pair.engines[1].poll_event());
    assert!(events.any(|event| matches!(event, Event::Lost { .. })));
}

#[test]
fn the_longest_prefix_decides_who_gets_a_packet() {
    let mut table = PrefixTable::default();
    for (text, peer) in [("0.0.0.0/0", 1), ("198.18.0.0/15", 2), ("198.19.7.0/24", 3)] {
        table.insert(text.parse().expect("valid"), peer);
    }
    let find = |text: &str| table.find(text.parse().expect("valid"));
    assert_eq!(find("198.19.7.9"), Some(3));
    assert_eq!(find("198.19.8.9"), Some(2));
    assert_eq!(find("203.0.113.1"), Some(1));
    assert_eq!(find("2001:db8::1"), None);
}
