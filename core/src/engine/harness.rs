//! Two engines on a simulated network that a test can tap, cut and redirect.
//!
//! ```text
//!   host 0                      host 1
//!   198.18.0.1  ── 1 ms ──  198.18.0.2
//!   198.18.1.1  ── 5 ms ──  198.18.1.2      (and both diagonals, 3 ms)
//!   2001:db8::1 ── 3 ms ──  2001:db8::2     (where a test adds them)
//!   inner 198.19.0.1            inner 198.19.0.2
//! ```

#![cfg_attr(not(test), allow(dead_code, reason = "the fuzzer uses a part"))]

use super::*;
use crate::association::inspect::Peeked;
use crate::config::{PeerConfig, Policy, SchedulerKind};
use crate::handshake::HandshakeDone;
use mpip_crypto::PrivateKey;
use mpip_transport::PathState;
use mpip_transport::cc::CongestionControlKind;
use mpip_types::Encapsulation;
use mpip_types::{InnerPacket, Open, Slot};
use mpip_types::{Offload, PacketBuf, PacketPool};

/// Datagrams and packets that an engine produced.
#[derive(Default)]
pub(crate) struct Out {
    pub(crate) datagrams: Vec<(PathAddress, Vec<u8>)>,
    pending: Option<(PathAddress, Vec<u8>)>,
    /// The ECN field of the pending datagram, and of those that are not Not-ECT.
    field: Ecn,
    fields: BTreeMap<Vec<u8>, Ecn>,
    committed: bool,
    /// All sockets are full.
    pub(crate) full: bool,
    /// The socket of this local address is.
    pub(crate) full_link: Option<u16>,
    pub(crate) packets: Vec<Vec<u8>>,
}

impl Out {
    pub(crate) fn settle(&mut self) {
        if let Some(datagram) = self.pending.take()
            && core::mem::take(&mut self.committed)
        {
            if self.field != Ecn::NotEct {
                self.fields.insert(datagram.1.clone(), self.field);
            }
            self.datagrams.push(datagram);
        }
    }
}

impl DatagramSink for Out {
    fn reserve(&mut self, to: PathAddress, ecn: Ecn, len: usize) -> Option<Slot<'_>> {
        self.settle();
        if self.full || self.full_link == Some(to.local.0) {
            return None;
        }
        self.field = ecn;
        let (_, bytes) = self.pending.insert((to, vec![0; len]));
        Some(Slot::new(bytes, &mut self.committed))
    }
}

pub(crate) struct Packets<'a>(pub(crate) &'a mut Vec<Vec<u8>>);

impl PacketSink for Packets<'_> {
    fn packet(&mut self, packet: InnerPacket<'_>) {
        self.0.push([packet.head, packet.tail].concat());
    }
}

pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) engines: [Engine; 2],
    pub(crate) out: [Out; 2],
    /// In order of arrival.
    wire: BTreeMap<(Instant, u64), OnWire>,
    sent: u64,
    pub(crate) pool: PacketPool,
    /// Links (the receiver's or the sender's interface) that drop everything.
    pub(crate) dead: Vec<u16>,
    /// Every nth datagram with a packet is lost.
    pub(crate) lose: Option<u64>,
    /// Datagrams for which this returns `false` are lost. Arguments: sender, destination, bytes.
    pub(crate) pass: fn(usize, PathAddress, &[u8]) -> bool,
    /// How the network changes a datagram's ECN field. Arguments: sender, its interface, the field.
    pub(crate) network: fn(usize, u16, Ecn) -> Ecn,
    /// Every datagram sent, opened, while this is not `None`.
    pub(crate) tap: Option<Vec<Tapped>>,
    /// Duration of public-key work. `None`: it is done in the call that asks for it.
    pub(crate) work: Duration,
    /// Job results that have not been delivered yet, by host.
    results: BTreeMap<(Instant, u64), (usize, HandshakeDone)>,
    /// A NAT: the public address of host 0's address on a link.
    pub(crate) translated: Option<(u16, SocketAddr)>,
    /// What the latest accepted datagram of each type proved about its sender.
    pub(crate) proved: BTreeMap<u8, Sender>,
    /// Datagrams and bytes that each host has sent to each address.
    pub(crate) ledger: BTreeMap<(usize, SocketAddr), (u64, u64)>,
    /// Datagrams delivered to each host.
    pub(crate) arrived: [u64; 2],
    /// Number of timeouts handled.
    pub(crate) steps: u64,
    /// The keys with which each host opens datagrams as soon as they are sent to it, if it does.
    pub(crate) ahead: Option<[BTreeMap<u32, Arc<dyn Open>>; 2]>,
}

/// Receiver, source as the receiver sees it, ECN field, bytes, and what became of them already.
type OnWire = (usize, PathAddress, Ecn, Vec<u8>, Opened);

/// A tapped datagram.
#[derive(Clone)]
pub(crate) struct Tapped {
    pub(crate) at: Instant,
    pub(crate) host: usize,
    pub(crate) to: PathAddress,
    pub(crate) ecn: Ecn,
    pub(crate) bytes: Vec<u8>,
    /// The plaintext of a transport message, if the receiver has the keys.
    pub(crate) opened: Option<Peeked>,
}

impl core::fmt::Debug for Tapped {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { at, host, to, bytes, opened, .. } = self;
        write!(f, "{at:?}: host {host} to {} from {}", to.remote, to.local.0)?;
        let lane = opened.as_ref().map(|opened| (opened.path, opened.number));
        write!(f, ", {} bytes of type {:#x}, lane {lane:?}", bytes.len(), bytes[0])
    }
}

impl Tapped {
    /// The frames of a transport message; no frames of other messages.
    pub(crate) fn frames(&self) -> impl Iterator<Item = mpip_wire::Frame<'_>> {
        let plain = self.opened.as_ref().map_or(&[][..], |opened| &opened.plain);
        mpip_wire::Frames::new(plain).flatten()
    }

    pub(crate) fn path(&self) -> Option<u16> {
        self.opened.as_ref().map(|opened| opened.path)
    }

    /// Whether it carries an inner packet.
    pub(crate) fn carries(&self) -> bool {
        use mpip_wire::Frame::{CompactPacket, Packet};
        self.frames().any(|frame| matches!(frame, Packet { .. } | CompactPacket { .. }))
    }
}

/// The link with IPv6.
pub(crate) const V6_LINK: u16 = 4;

pub(crate) fn address(host: usize, link: u16) -> SocketAddr {
    let ip = match link {
        V6_LINK => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host as u16 + 1]),
        _ => IpAddr::from([198, 18, link as u8, host as u8 + 1]),
    };
    SocketAddr::new(ip, 6182)
}

/// The local UDP address on this link.
pub(crate) fn local(host: usize, link: u16) -> LocalAddress {
    LocalAddress {
        id: LocalId(link),
        interface: format!("eth{link}"),
        address: address(host, link),
        mtu: 1_500,
        encapsulation: Encapsulation::Udp,
    }
}

pub(crate) fn locals(host: usize) -> Vec<LocalAddress> {
    (0..2).map(|link| local(host, link)).collect()
}

/// All addresses of a host: the inner one and those of its links.
pub(crate) fn own(host: usize) -> Vec<IpAddr> {
    let inner = IpAddr::from([198, 19, 0, host as u8 + 1]);
    let links = locals(host).into_iter().map(|local| local.address.ip());
    links.chain([inner]).collect()
}

/// First identifier of local TCP addresses.
pub(crate) const TCP_LOCAL: u16 = 10;
/// Port of local TCP addresses.
pub(crate) const TCP_PORT: u16 = 443;

/// As [`locals`], with a TCP address beside each UDP address.
pub(crate) fn locals_with_tcp(host: usize) -> Vec<LocalAddress> {
    let mut list = locals(host);
    for mut local in locals(host) {
        local.id.0 += TCP_LOCAL;
        local.address.set_port(TCP_PORT);
        local.encapsulation = Encapsulation::Tcp;
        list.push(local);
    }
    list
}

/// The identifier of the local address `end` of `host`.
fn local_at(host: usize, end: SocketAddr) -> Option<u16> {
    (0..=V6_LINK).find_map(|link| {
        let udp = address(host, link);
        let tcp = SocketAddr::new(udp.ip(), TCP_PORT);
        (end == udp).then_some(link).or_else(|| (end == tcp).then_some(link + TCP_LOCAL))
    })
}

/// The local address of `host` with this identifier.
fn end_of(host: usize, local: u16) -> SocketAddr {
    match local.checked_sub(TCP_LOCAL) {
        Some(link) => SocketAddr::new(address(host, link).ip(), TCP_PORT),
        None => address(host, local),
    }
}

impl Pair {
    pub(crate) fn new(adjust: impl Fn(&mut PeerConfig)) -> Self {
        Self::with(|_, config| adjust(&mut config.peers[0]))
    }

    /// `adjust` gets the number of each host and its configuration.
    pub(crate) fn with(adjust: impl Fn(usize, &mut Config)) -> Self {
        let keys: Vec<PrivateKey> =
            (1..=2).map(|byte| PrivateKey::from_bytes([byte; 32])).collect();
        let publics: Vec<PublicKey> = keys.iter().map(|key| *key.public_key()).collect();
        let mut engines = keys.into_iter().enumerate().map(|(host, private_key)| {
            let peer = PeerConfig {
                name: format!("host{}", 1 - host),
                public_key: publics[1 - host],
                endpoints: if host == 0 { vec![address(1, 0)] } else { vec![] },
                allowed_prefixes: vec![format!("198.19.0.{}", 2 - host).parse().expect("valid")],
                host_mode: false,
                exclusive: ["0.0.0.0/0", "::/0"].map(|all| all.parse().expect("valid")).to_vec(),
                policy: Policy::Require,
                scheduler: SchedulerKind::Earliest,
                congestion_control: CongestionControlKind::None,
                ..PeerConfig::unnamed()
            };
            let mut config = Config::new(private_key, true, vec![peer]);
            adjust(host, &mut config);
            let seed = [host as u8; 32];
            let mut engine = Engine::new(config, seed, Instant::ZERO, Duration::from_secs(1 << 30));
            engine.handle_command(Instant::ZERO, Command::OwnAddresses(own(host)));
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
            pass: |_, _, _| true,
            network: |_, _, field| field,
            tap: None,
            work: Duration::ZERO,
            results: BTreeMap::new(),
            translated: None,
            proved: BTreeMap::new(),
            ledger: BTreeMap::new(),
            arrived: [0; 2],
            steps: 0,
            ahead: None,
        }
    }

    /// Runs the jobs of `host`, or starts them.
    fn do_work(&mut self, host: usize) -> Result<(), DropReason> {
        let mut handled = Ok(());
        while let Some(job) = self.engines[host].poll_job() {
            let done = job.run();
            if self.work.is_zero() {
                handled = handled.and(self.engines[host].handle_job(self.now, done).map(drop));
            } else {
                self.sent += 1;
                self.results.insert((self.now + self.work, self.sent), (host, done));
            }
        }
        self.engines[host].flush(self.now, &mut self.out[host]);
        handled
    }

    /// The association of `host`.
    pub(crate) fn association(&mut self, host: usize) -> &mut Association {
        &mut self.engines[host].associations[0]
    }

    /// Sends `frames` as `host` on one of its paths, bypassing its engine.
    pub(crate) fn inject(&mut self, host: usize, path: u16, frames: &[mpip_wire::Frame<'_>]) {
        let now = self.now;
        let datagram = self.association(host).forge(now, path, frames).expect("a path with keys");
        self.out[host].datagrams.push(datagram);
        self.collect(host);
    }

    /// Delivers a datagram to `host` now; returns the result and the replies.
    pub(crate) fn deliver(
        &mut self,
        host: usize,
        from: PathAddress,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let mut bytes = bytes.to_vec();
        let mut packets = Vec::new();
        let engine = &mut self.engines[host];
        let handled = engine.handle_datagram(
            self.now,
            from,
            Ecn::NotEct,
            &mut bytes,
            &mut Packets(&mut packets),
        );
        let worked = self.do_work(host);
        self.out[host].settle();
        self.out[host].packets.extend(packets);
        handled.map(drop).and(worked)
    }

    /// How often `host` dropped something for `reason`.
    pub(crate) fn drops(&self, host: usize, reason: DropReason) -> u64 {
        self.engines[host].shared.drops.of(reason)
    }

    /// The datagrams tapped since the last call.
    pub(crate) fn tapped(&mut self) -> Vec<Tapped> {
        self.tap.replace(Vec::new()).unwrap_or_default()
    }

    /// The source of datagrams from `host` to `to`, as the other host sees it.
    pub(crate) fn source(&self, host: usize, to: PathAddress) -> PathAddress {
        let link = local_at(1 - host, to.remote).unwrap_or(0);
        let seen = self.translated.filter(|(link, _)| host == 0 && *link == to.local.0);
        let remote = seen.map_or(end_of(host, to.local.0), |(_, remote)| remote);
        PathAddress { local: LocalId(link), remote }
    }

    /// Both hosts open datagrams before their engines get them, from now on.
    pub(crate) fn share_keys(&mut self) {
        self.engines.iter_mut().for_each(Engine::share_keys);
        self.ahead = Some(Default::default());
    }

    /// Takes the keys with which `host` opens datagrams before its engine does.
    pub(crate) fn follow_keys(&mut self, host: usize) {
        let Some(keys) = &mut self.ahead else { return };
        while let Some(KeyChange { index, key }) = self.engines[host].poll_key() {
            match key {
                Some(key) => keys[host].insert(index, key),
                None => keys[host].remove(&index),
            };
        }
    }

    /// Opens a datagram for `host`, if it has keys for that already.
    pub(crate) fn open_ahead(&self, host: usize, datagram: &mut [u8]) -> Opened {
        let Some(keys) = &self.ahead else { return Opened::NotYet };
        let index = crate::receiver_index(datagram);
        let key = index.and_then(|index| keys[host].get(&index));
        key.map_or(Opened::NotYet, |key| key.open(datagram))
    }

    pub(crate) fn collect(&mut self, host: usize) {
        self.out[host].settle();
        for (to, bytes) in core::mem::take(&mut self.out[host].datagrams) {
            self.sent += 1;
            let sent = self.ledger.entry((host, to.remote)).or_default();
            *sent = (sent.0 + 1, sent.1 + bytes.len() as u64);
            let ecn = self.out[host].fields.remove(&bytes).unwrap_or(Ecn::NotEct);
            if let Some(tap) = &mut self.tap {
                let receiver = self.engines[1 - host].associations.first();
                let opened = receiver.and_then(|association| association.peek(&bytes));
                tap.push(Tapped { at: self.now, host, to, ecn, bytes: bytes.clone(), opened });
            }
            if !(self.pass)(host, to, &bytes) {
                continue;
            }
            let translated = self.translated.filter(|(_, seen)| host == 1 && *seen == to.remote);
            let remote_link = local_at(1 - host, to.remote);
            let remote_link = translated.map(|(link, _)| link).or(remote_link);
            let Some(remote_link) = remote_link else { continue };
            let full = bytes.len() > 500;
            let lost = full && self.lose.is_some_and(|nth| self.sent.is_multiple_of(nth));
            if lost || self.dead.contains(&to.local.0) || self.dead.contains(&remote_link) {
                continue;
            }
            let delay = match (to.local.0 % TCP_LOCAL, remote_link % TCP_LOCAL) {
                (0, 0) => 1,
                (1, 1) => 5,
                _ => 3,
            };
            let at = self.now + Duration::from_millis(delay);
            let from = PathAddress { local: LocalId(remote_link), ..self.source(host, to) };
            let ecn = (self.network)(host, to.local.0, ecn);
            let (mut bytes, to) = (bytes, 1 - host);
            let opened = self.open_ahead(to, &mut bytes);
            self.wire.insert((at, self.sent), (to, from, ecn, bytes, opened));
        }
    }

    pub(crate) fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let timeouts = self.engines.iter().filter_map(Engine::poll_timeout);
            let arrival = self.wire.first_key_value().map(|((at, _), _)| *at);
            let result = self.results.first_key_value().map(|((at, _), _)| *at);
            let next = timeouts.chain(arrival).chain(result).min().filter(|at| *at <= end);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            self.steps += 1;
            while let Some(entry) = self.wire.first_entry()
                && entry.key().0 <= self.now
            {
                let (host, from, ecn, mut bytes, opened) = entry.remove();
                self.arrived[host] += 1;
                let Out { packets, .. } = &mut self.out[host];
                let mut packets = Packets(packets);
                let engine = &mut self.engines[host];
                let message = bytes[0];
                let datagram = (&mut bytes[..], opened);
                let handled = engine.handle_opened(self.now, from, ecn, datagram, &mut packets);
                self.proved.extend(handled.ok().map(|sender| (message, sender)));
                let _ = self.do_work(host);
                self.collect(host);
            }
            while let Some(entry) = self.results.first_entry()
                && entry.key().0 <= self.now
            {
                let (host, done) = entry.remove();
                let _ = self.engines[host].handle_job(self.now, done);
                let _ = self.do_work(host);
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
                self.follow_keys(host);
                let _ = self.do_work(host);
                self.collect(host);
            }
        }
        self.now = end;
    }

    pub(crate) fn send(&mut self, host: usize, packet: &[u8], offload: Offload) {
        let packet = self.pool_packet(packet, offload);
        let sent = self.engines[host].handle_tun(self.now, packet);
        self.engines[host].flush(self.now, &mut self.out[host]);
        sent.expect("a packet for the peer");
        self.collect(host);
    }

    /// A packet in a pool buffer.
    pub(crate) fn pool_packet(&mut self, packet: &[u8], offload: Offload) -> PacketBuf {
        let filled = self.pool.fill(|room| {
            room[..packet.len()].copy_from_slice(packet);
            Ok::<_, ()>((packet.len(), offload))
        });
        filled.expect("a free buffer").expect("filled")
    }

    pub(crate) fn states(&self, host: usize) -> Vec<PathState> {
        let status = self.engines[host].status(self.now, true);
        status.peers[0].paths.iter().map(|path| path.state).collect()
    }
}

/// A TCP packet (or super-packet) from `host` to the other, its sequence number in `sequence`.
pub(crate) fn tcp(host: usize, sequence: u32, payload: usize) -> Vec<u8> {
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

/// A UDP packet from host 0, as long as that of [`tcp`]. The first bytes of its payload are the
/// number.
pub(crate) fn udp(number: u32, payload: usize) -> Vec<u8> {
    let mut packet = tcp(0, number, payload);
    packet[9] = 17;
    let len = (packet.len() - 20) as u16;
    packet[24..26].copy_from_slice(&len.to_be_bytes());
    packet[26..28].copy_from_slice(&[0, 0]);
    packet[28..32].copy_from_slice(&number.to_be_bytes());
    packet
}

pub(crate) fn sequences(packets: &[Vec<u8>]) -> Vec<u32> {
    let sequence = |packet: &Vec<u8>| u32::from_be_bytes(packet[24..28].try_into().expect("4"));
    packets.iter().map(sequence).collect()
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);
