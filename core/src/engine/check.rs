//! Invariants under any input of an authenticated peer, shared by the fuzz target `peer` and by
//! tests that run it on the fuzzer's corpus and on random input. No program contains it.
//!
//! Two engines have paths and open sessions in both directions. One host is the forger: besides
//! what its engine sends, it seals frames that the fuzzer generates and sends them on any path,
//! with any packet number, from any address.

mod bytes;
mod forged;

use core::net::SocketAddr;
use core::time::Duration;

use mpip_wire::Frame;

use self::bytes::Bytes;
use super::harness::{Pair, SECOND, address, locals, locals_with_tcp, own};
use super::*;
use crate::config::{Opportunistic, Policy, SchedulerKind};
use mpip_transport::cc::CongestionControlKind;
use mpip_types::packet::{Header, fold, protocol, sum};
use mpip_types::{InnerPacket, Offload, PartialChecksum, Segmentation, SegmentationKind};

/// Maximum virtual time of one input after setup: enough for a renewal of the keys and for their
/// expiry.
const TIME: Duration = Duration::from_secs(200);

/// Addresses at which the forger receives, besides its links.
const ELSEWHERE: [([u8; 4], u16); 2] = [([203, 0, 113, 8], 6_182), ([203, 0, 113, 8], 7_000)];
/// Third parties: the forger does not receive there.
const OTHERS: [([u8; 4], u16); 3] =
    [([203, 0, 113, 99], 53), ([192, 168, 7, 7], 6_182), ([198, 18, 0, 77], 6_182)];
/// The public address of a host's link behind a NAT.
const SHOWN: ([u8; 4], u16) = ([203, 0, 113, 7], 40_000);

/// Bytes of a challenge to an address that was only advertised, and the rate limit: burst and per
/// second (`[P-31]`).
const SHORT_CHALLENGE: u64 = 50;
const CHALLENGES: (u64, u64) = (32, 8);

/// How the two nodes are configured for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// With inner addresses.
    Tunnel,
    /// In host mode, with exclusive addresses.
    Host,
    /// In host mode; host 0 is behind a NAT on one link, and others may share the addresses.
    Translated,
    /// As [`Mode::Host`], as unknown peers.
    UnknownPeers,
}

/// Interprets `bytes` as events for two engines. Returns the number of packets that the forger
/// delivered to the other host.
///
/// The first two bytes select the setup, see [`World::new`]. Each event is one byte for its kind,
/// the number of bytes that follow, and these bytes:
///
/// | low bits | |
/// |---|---|
/// | 0 to 7 | frames made from the bytes are sealed and sent, see [`forged`] |
/// | 8 and 9 | the bytes are the plaintext |
/// | 10 and 11 | the other host sends packets |
/// | 12 | the forger's host sends packets |
/// | 13 | time passes: the next byte in milliseconds |
/// | 14 | time passes: the next byte times 200 ms |
/// | 15 | something changes on the network or on the other host |
///
/// # Panics
///
/// When an invariant is violated.
pub fn peer(bytes: &[u8]) -> usize {
    let mut bytes = Bytes::new(bytes);
    let mut world = World::new(bytes.byte(), bytes.byte());
    while !bytes.is_empty() {
        let (what, len) = (bytes.byte(), bytes.byte());
        world.happens(what, &mut bytes.split(len));
    }
    world.brought
}

struct World {
    pair: Pair,
    mode: Mode,
    forger: usize,
    time_left: Duration,
    /// Challenges that the forger has received, the latest last.
    challenges: Vec<[u8; 8]>,
    /// Bytes that the other host received from each of [`OTHERS`].
    in_their_name: [u64; OTHERS.len()],
    /// Packet numbers on paths that the forger's engine does not have.
    lanes: BTreeMap<u16, u64>,
    generation: u64,
    status_sequence: u64,
    brought: usize,
    /// Packets that the other host was given to send.
    given: u64,
    /// Its links.
    links: Vec<LocalAddress>,
}

impl World {
    /// | bits of `first` | |
    /// |---|---|
    /// | 0 | the number of the host that forges; 0 opens the paths |
    /// | 1 and 2 | the mode |
    /// | 3 to 5 | congestion control |
    /// | 6 and 7 | scheduler |
    ///
    /// | bits of `second` | |
    /// |---|---|
    /// | 0 | packets of TCP are not put in order |
    /// | 1 | two paths at most |
    /// | 2 | TCP beside UDP |
    /// | 3 | tables are as large as they are by default |
    fn new(first: u8, second: u8) -> Self {
        let mode = [Mode::Tunnel, Mode::Host, Mode::Translated, Mode::UnknownPeers]
            [usize::from(first >> 1 & 3)];
        let kind = usize::from(first >> 3 & 7) % CongestionControlKind::NAMES.len();
        let scheduler = SchedulerKind::NAMES[usize::from(first >> 6)].1;
        let mut pair = Pair::with(|_, config| {
            let congestion_control = CongestionControlKind::NAMES[kind].1;
            let peer = &mut config.peers[0];
            peer.congestion_control = congestion_control;
            peer.scheduler = scheduler;
            peer.resequencing = second & 1 == 0;
            peer.max_paths = (second & 2 != 0).then_some(2);
            if mode != Mode::Tunnel {
                peer.host_mode = true;
                peer.policy = Policy::Prefer;
                peer.allowed_prefixes.clear();
            }
            if mode == Mode::Translated {
                peer.exclusive.clear();
            }
            if mode == Mode::UnknownPeers {
                let peer = config.peers.remove(0);
                let prefixes = vec!["198.18.0.0/15".parse().expect("valid")];
                config.opportunistic = Some(Opportunistic {
                    exclusive: prefixes.clone(),
                    prefixes,
                    port: 6_182,
                    peer,
                    ..Opportunistic::default()
                });
            }
            if second & 8 == 0 {
                config.limits.sessions = 8;
                config.limits.paths = 6;
                config.limits.send_queue = 64 << 10;
                config.limits.resequencing = 64 << 10;
                config.limits.unknown_nodes = 2;
                config.limits.translated = 8;
            }
        });
        if second & 4 != 0 {
            for host in 0..2 {
                let list = Command::LocalAddresses(locals_with_tcp(host));
                pair.engines[host].handle_command(Instant::ZERO, list);
            }
        }
        if mode == Mode::Translated {
            pair.translated = Some((0, SHOWN.into()));
        }
        if mode == Mode::UnknownPeers {
            let ends = (address(0, 0).ip(), address(1, 0).ip());
            pair.engines[0].handle_destination(Instant::ZERO, ends.0, ends.1);
        }
        pair.tap = Some(Vec::new());
        let forger = usize::from(first & 1);
        let links = if second & 4 != 0 { locals_with_tcp(1 - forger) } else { locals(1 - forger) };
        let mut world = Self {
            pair,
            mode,
            forger,
            time_left: TIME,
            challenges: Vec::new(),
            in_their_name: [0; OTHERS.len()],
            lanes: BTreeMap::new(),
            generation: 1_000,
            status_sequence: 1_000,
            brought: 0,
            given: 0,
            links,
        };
        world.open();
        world
    }

    /// Runs until paths work, then opens a session in each direction that uses compact packets.
    fn open(&mut self) {
        self.pair.run_for(SECOND + SECOND / 2);
        for round in 0..4 {
            for host in 0..2 {
                self.host_sends(host, &mut Bytes::new(&[0, 0, 40, round]));
                self.pair.run_for(SECOND / 50);
            }
        }
        self.hold();
        self.pair.out.iter_mut().for_each(|out| out.packets.clear());
    }

    fn other(&self) -> usize {
        1 - self.forger
    }

    fn happens(&mut self, what: u8, bytes: &mut Bytes<'_>) {
        let before = self.output();
        let time = self.time_left;
        let other = self.other();
        match what & 0x0f {
            0..=7 => self.forge(bytes, false),
            8 | 9 => self.forge(bytes, true),
            10 | 11 => self.host_sends(other, bytes),
            12 => self.host_sends(self.forger, bytes),
            13 => self.pass(Duration::from_millis(bytes.byte().into())),
            14 => self.pass(Duration::from_millis(200) * u32::from(bytes.byte())),
            _ => self.changes(bytes),
        }
        self.hold();
        self.is_bounded(before, time - self.time_left);
    }

    fn pass(&mut self, time: Duration) {
        let time = time.min(self.time_left);
        self.time_left -= time;
        self.pair.run_for(time);
    }

    /// Delivers a datagram of the forger to the other host.
    fn deliver(&mut self, from: PathAddress, datagram: &[u8]) {
        let other = self.other();
        if let Some(at) = OTHERS.iter().position(|end| SocketAddr::from(*end) == from.remote) {
            self.in_their_name[at] += datagram.len() as u64;
        }
        self.pair.arrived[other] += 1;
        let before = self.pair.out[other].packets.len();
        let _ = self.pair.deliver(other, from, datagram);
        self.brought += self.pair.out[other].packets.len() - before;
        self.pair.collect(other);
    }

    /// Gives packets of `host` to its engine. The bytes select protocol, ports, length and number.
    fn host_sends(&mut self, host: usize, bytes: &mut Bytes<'_>) {
        let (kind, ports, len, more) = (bytes.byte(), bytes.byte(), bytes.byte(), bytes.byte());
        let protocol = [protocol::TCP, protocol::UDP, protocol::ICMP, 47][usize::from(kind & 3)];
        let ends = [host, 1 - host].map(|host| self.inner(host, ports >> 7));
        let payload = usize::from(len) * if kind & 4 == 0 { 1 } else { 5 };
        for round in 0..u32::from(more & 0x1f) + 1 {
            let (packet, offload) = sent(protocol, ends, ports & 0x7f, payload, (kind, round));
            self.given += 1;
            let engine = &mut self.pair.engines[host];
            let Some(Ok(buffer)) = self.pair.pool.fill(|room| {
                room[..packet.len()].copy_from_slice(&packet);
                Ok::<_, ()>((packet.len(), offload))
            }) else {
                continue;
            };
            let _ = engine.handle_tun(self.pair.now, buffer);
            engine.flush(self.pair.now, &mut self.pair.out[host]);
            self.pair.collect(host);
        }
    }

    /// The inner address of `host`; in host mode the address of `link`.
    fn inner(&self, host: usize, link: u8) -> [u8; 4] {
        match self.mode {
            Mode::Tunnel => [198, 19, 0, host as u8 + 1],
            Mode::Translated if host == 0 && link == 0 && self.forger == 0 => SHOWN.0,
            _ => [198, 18, link, host as u8 + 1],
        }
    }

    /// A change: a link fails, a socket is full, the other host's addresses change, or an ICMP
    /// error says that the forger is unreachable.
    fn changes(&mut self, bytes: &mut Bytes<'_>) {
        let (what, which) = (bytes.byte(), bytes.byte());
        let (now, other) = (self.pair.now, self.other());
        let pair = &mut self.pair;
        let some = |list: &[LocalAddress]| -> Vec<LocalAddress> {
            let kept = list.iter().enumerate().filter(|(at, _)| which >> at & 1 != 0);
            kept.map(|(_, local)| local.clone()).collect()
        };
        match what & 7 {
            0 => pair.dead = (0..2).filter(|link| which >> link & 1 != 0).collect(),
            1 => pair.lose = (which > 1).then_some(which.into()),
            2 => {
                pair.out[other].full = which & 1 != 0;
                for local in self.links.iter().filter(|_| which & 1 == 0) {
                    let out = &mut pair.out[other];
                    pair.engines[other].handle_writable(now, local.id, out);
                }
            }
            3 => {
                let list = Command::LocalAddresses(some(&self.links));
                pair.engines[other].handle_command(now, list);
            }
            4 => pair.engines[other].handle_command(now, Command::RoutesChanged),
            5 => {
                let mut list = own(other);
                list.truncate(usize::from(which & 3));
                pair.engines[other].handle_command(now, Command::OwnAddresses(list));
            }
            6 => {
                let remote = address(self.forger, u16::from(which >> 1 & 1));
                let local = LocalId(u16::from(which & 1));
                pair.engines[other].handle_unreachable(now, local, remote);
                pair.engines[other].flush(now, &mut pair.out[other]);
            }
            _ => {
                let remote = address(self.forger, u16::from(which >> 1 & 1));
                pair.engines[other].handle_refused(now, LocalId(u16::from(which & 1)), remote);
                pair.engines[other].flush(now, &mut pair.out[other]);
            }
        }
        pair.collect(other);
    }

    /// Datagrams and bytes that the other host has sent and received.
    fn output(&self) -> (u64, u64, u64) {
        let of_other = self.pair.ledger.iter().filter(|((host, _), _)| *host == self.other());
        let sent = of_other.map(|(_, (datagrams, _))| datagrams).sum();
        (sent, self.pair.arrived[self.other()], self.pair.steps)
    }

    /// Asserts that what the other host has sent since `before` is bounded by what it received and
    /// by the time that has passed.
    fn is_bounded(&self, before: (u64, u64, u64), time: Duration) {
        let after = self.output();
        let (sent, arrived, steps) = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
        let tenths = time.as_millis() as u64 / 100 + 1;
        let bound = 64 + 16 * arrived + 8 * self.given + 200 * tenths;
        assert!(sent <= bound, "{sent} datagrams for {arrived} in {time:?}, {} given", self.given);
        assert!(steps <= 200 + 1_500 * tenths, "{steps} steps in {time:?}");
    }

    /// Asserts the invariants.
    fn hold(&mut self) {
        self.listen();
        let Pair { engines, .. } = &self.pair;
        for engine in engines {
            for (name, count, bound) in engine.kept() {
                assert!(count <= bound, "{count} {name}, of {bound}");
            }
        }
        let other = self.other();
        for end in OTHERS {
            let status = engines[other].status(self.pair.now, false);
            let mut captured = status.peers.iter().flat_map(|peer| &peer.captured);
            assert!(!captured.any(|prefix| prefix.contains(end.0.into())), "{end:?} is captured");
        }
        let passed = self.pair.now.since(Instant::ZERO).as_secs() + 1;
        let challenges = (CHALLENGES.0 + CHALLENGES.1 * passed) * SHORT_CHALLENGE;
        for (end, brought) in OTHERS.into_iter().zip(self.in_their_name) {
            let sent = self.pair.ledger.get(&(other, end.into())).map_or(0, |(_, bytes)| *bytes);
            assert!(sent <= brought + challenges, "{sent} bytes to {end:?} for {brought}");
        }
        let packets = core::mem::take(&mut self.pair.out[other].packets);
        packets.iter().for_each(|packet| self.may_reach_the_host(packet));
        self.pair.out[self.forger].packets.clear();
        let engine = &mut self.pair.engines[other];
        engine.take_plain(&mut Nowhere);
    }

    /// The forger reads what the other host has sent.
    fn listen(&mut self) {
        for tapped in self.pair.tapped() {
            let others = |end: &([u8; 4], u16)| SocketAddr::from(*end) == tapped.to.remote;
            if tapped.host == self.forger || OTHERS.iter().any(others) {
                continue;
            }
            for frame in tapped.frames() {
                if let Frame::PathChallenge(data) = frame {
                    self.challenges.push(data);
                }
            }
        }
        let old = self.challenges.len().saturating_sub(16);
        self.challenges.drain(..old);
    }

    /// Asserts that a packet that reached the other host is addressed to it and comes from an
    /// address that the forger may use.
    fn may_reach_the_host(&self, packet: &[u8]) {
        let header = Header::parse(packet).expect("a packet");
        let (from, to) = (header.source, header.destination);
        let other = self.other();
        assert!(own(other).contains(&to), "to {to}");
        let tunnel = IpAddr::from([198, 19, 0, self.forger as u8 + 1]);
        let links = [0, 1].map(|link| address(self.forger, link).ip());
        let elsewhere = [ELSEWHERE[0].0, SHOWN.0].map(IpAddr::from);
        let may = match self.mode {
            Mode::Tunnel => from == tunnel,
            _ => links.contains(&from) || elsewhere.contains(&from) || own(other).contains(&from),
        };
        assert!(may, "from {from}");
    }
}

/// A packet as a host would send it, TCP sometimes as a super-packet.
fn sent(
    protocol: u8,
    [from, to]: [[u8; 4]; 2],
    port: u8,
    payload: usize,
    (kind, round): (u8, u32),
) -> (Vec<u8>, Offload) {
    let mut transport = match protocol {
        protocol::TCP => {
            let mut tcp = vec![0; 20];
            tcp[..4].copy_from_slice(&[0x20, port, 0, 80]);
            tcp[4..8].copy_from_slice(&(round * payload as u32).to_be_bytes());
            tcp[12] = 0x50;
            tcp[13] = if kind & 8 == 0 { 0x10 } else { kind >> 4 };
            tcp
        }
        protocol::UDP => {
            [&[0x20, port, 0, 53][..], &(8 + payload as u16).to_be_bytes(), &[0, 0]].concat()
        }
        protocol::ICMP => vec![8, 0, 0, 0, 0x20, port, 0, round as u8],
        _ => vec![0; 4],
    };
    let header = transport.len();
    transport.resize(header + payload, 7);
    let len = (20 + transport.len() as u16).to_be_bytes();
    let mut packet = vec![0x45, 0, len[0], len[1], 0, round as u8, 0x40, 0, 64, protocol, 0, 0];
    packet.extend([from, to].concat());
    let value = !fold(sum(&packet));
    packet[10..12].copy_from_slice(&value.to_ne_bytes());
    packet.extend(&transport);
    let at = match protocol {
        protocol::TCP => 16,
        protocol::UDP => 6,
        protocol::ICMP => 2,
        _ => return (packet, Offload::default()),
    };
    let pseudo = match protocol {
        protocol::ICMP => 0,
        _ => {
            sum(&packet[12..20])
                + u64::from(u16::from(protocol).to_be())
                + u64::from((transport.len() as u16).to_be())
        }
    };
    if protocol == protocol::TCP && payload > 1_000 {
        packet[20 + at..22 + at].copy_from_slice(&fold(pseudo).to_ne_bytes());
        let partial_checksum = Some(PartialChecksum { start: 20, offset: at as u16 });
        let segmentation = Some(Segmentation { kind: SegmentationKind::Tcp, size: 500 });
        return (packet, Offload { partial_checksum, segmentation });
    }
    let value = !fold(pseudo + sum(&packet[20..]));
    packet[20 + at..22 + at].copy_from_slice(&value.to_ne_bytes());
    (packet, Offload::default())
}

struct Nowhere;

impl PacketSink for Nowhere {
    fn packet(&mut self, _: InnerPacket<'_>) {}
}

#[cfg(test)]
mod tests;
