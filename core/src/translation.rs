//! Connections of peers behind NATs, in host mode.
//!
//! # The model
//!
//! Such a peer sends with its private address, which is not unique: another peer may have the same.
//! So in each of its connections, this address and port, the *private* end, are replaced by the
//! peer's external address and a port that we choose, the *public* end. The host sees only the
//! public end, and its packets to it are mapped back to the peer. The peer sees only its private
//! end and does no translation.
//!
//! ```text
//!  peer            its NAT                 this node                this host
//!  10.0.0.2:5000 → (outer datagrams)     → 203.0.113.7:20000     →  198.51.100.1:80
//!  10.0.0.2:5000 ← (outer datagrams)     ← 203.0.113.7:20000     ←  198.51.100.1:80
//! ```
//!
//! [`Translations`] holds the connections of all peers of a node, because peers behind one NAT
//! share its address. [`PathConnections`] is kept by the peer itself: which of its connections use
//! the paths.
//!
//! The same is done for a peer whose own address may be shared with others: it is not known which
//! ports belong to the peer. A peer is not trusted, so a public end must not collide with a
//! connection of another remote host to this host. The port is random, and a TCP connection owns it
//! only once the host has answered the peer's SYN: if the host already has a connection of another
//! remote host with that end, it does not answer.

pub(crate) mod aging;
mod fragments;
mod path_connections;
pub(crate) mod rewrite;

use core::net::IpAddr;
use core::ops::RangeInclusive;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use rand_chacha::ChaCha8Rng;
use rand_core::RngCore as _;

use self::aging::Aging;
pub(crate) use self::fragments::Fragments;
pub(crate) use self::path_connections::{
    Admission, Egress, PATIENCE, PathConnections, UdpAdmission,
};
use self::rewrite::{End, State, Subject, rewrite};
use mpip_types::Instant;
use mpip_types::packet::{Endpoint, Header, SessionKey, protocol};
use mpip_types::{PacketBuf, PacketPool};

/// Ports of public ends. NATs rarely assign them, because hosts open connections from higher ports
/// (32,768 and up on Linux, 49,152 elsewhere; RFC 6335, section 6), and few services use them.
pub const TRANSLATED_PORTS: RangeInclusive<u16> = 16_384..=32_767;
/// Random ports tried for a connection until one is free.
const TRIES: usize = 64;

/// Idle times after which a connection is dropped: open TCP, opening or closing TCP (RFC 5382,
/// requirement 5), UDP (RFC 4787, requirement 5), ICMP echo.
const TCP_OPEN: Duration = Duration::from_secs(7_440);
const TCP_TRANSITORY: Duration = Duration::from_secs(240);
const UDP: Duration = Duration::from_secs(300);
const ECHO: Duration = Duration::from_secs(180);

/// Buffers for the host's packets to such peers: as many as the host's pool has.
const LARGE_BUFFERS: usize = 1_024;
const SMALL_BUFFERS: usize = 4_096;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Begins,
    Open,
    Ends,
}

/// Acknowledgment numbers that answer the SYN of a TCP connection: from `next` on, up to the
/// `bytes` of data with it (RFC 7413).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Syn {
    next: u32,
    bytes: u32,
}

/// Effect of a packet on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// It may open the connection.
    Begin(Syn),
    Use,
    End,
    /// It shows only that the connection is in use.
    Touch,
}

impl Act {
    /// The effect of a packet with ports.
    pub(crate) fn of(header: &Header, packet: &[u8]) -> Self {
        let transport = packet.get(header.header_len..).unwrap_or_default();
        let kind = transport.first();
        match header.protocol {
            protocol::TCP => Self::of_tcp(transport, header.total_len - header.header_len),
            protocol::ICMP if kind != Some(&8) => Self::Use,
            protocol::ICMPV6 if kind != Some(&128) => Self::Use,
            _ => Self::Begin(Syn::default()),
        }
    }

    /// The effect of a TCP segment of `len` bytes, of which at least the header is given.
    pub(crate) fn of_tcp(segment: &[u8], len: usize) -> Self {
        let Some(tcp) = Tcp::of(segment) else { return Self::Use };
        match tcp.flags {
            flags if flags & (SYN | ACK | RST) == SYN => {
                let bytes = len.saturating_sub(tcp.header_len) as u32;
                Self::Begin(Syn { next: tcp.sequence.wrapping_add(1), bytes })
            }
            flags if flags & (FIN | RST) != 0 => Self::End,
            _ => Self::Use,
        }
    }
}

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// The fields of a TCP header that determine the state of a connection.
#[derive(Clone, Copy, Debug)]
struct Tcp {
    sequence: u32,
    acknowledgment: u32,
    header_len: usize,
    flags: u8,
}

impl Tcp {
    fn of(segment: &[u8]) -> Option<Self> {
        let [_, _, _, _, a, b, c, d, e, f, g, h, offset, flags] = *segment.first_chunk()?;
        Some(Self {
            sequence: u32::from_be_bytes([a, b, c, d]),
            acknowledgment: u32::from_be_bytes([e, f, g, h]),
            header_len: usize::from(offset >> 4) * 4,
            flags,
        })
    }
}

impl Life {
    fn after(self, act: Act, protocol: u8) -> Self {
        match (act, self) {
            (Act::Begin(_), _) if protocol == protocol::TCP => Self::Begins,
            (Act::End, _) | (_, Self::Ends) => Self::Ends,
            (Act::Touch, same) => same,
            _ => Self::Open,
        }
    }

    /// Idle time after which a connection in this state is dropped.
    fn idle(self, protocol: u8) -> Duration {
        match (protocol, self) {
            (protocol::TCP, Self::Open) => TCP_OPEN,
            (protocol::TCP, _) => TCP_TRANSITORY,
            (protocol::UDP, _) => UDP,
            _ => ECHO,
        }
    }
}

/// Where a packet of the host goes.
#[derive(Debug)]
pub(crate) enum Outbound {
    /// It is not sent to a public end.
    Other(PacketBuf),
    /// It belongs to a connection of this peer, and now has the private end as destination.
    Peer(usize, PacketBuf),
    /// It is sent to the address of a NAT, but not to a peer of ours.
    Unrelated(PacketBuf),
    /// There is no free buffer for it.
    NoBuffer,
}

#[derive(Debug)]
struct Flow {
    peer: usize,
    private: Endpoint,
    life: Life,
    /// The peer's latest SYN, and whether the host has answered it.
    syn: Syn,
    answered: bool,
}

impl Flow {
    /// Records a packet of the peer that may open the connection.
    fn on_begin(&mut self, act: Act) {
        if let Act::Begin(syn) = act
            && syn != self.syn
        {
            // The answer to a retransmitted SYN without data may acknowledge the data of the first
            // one.
            let repeated = syn.next == self.syn.next;
            self.syn =
                Syn { bytes: syn.bytes.max(if repeated { self.syn.bytes } else { 0 }), ..syn };
            self.answered &= repeated;
        }
    }

    /// Whether a segment of the host can belong to this TCP connection. The host has one connection
    /// with these ends: until it has accepted the peer's SYN, it may be that of another remote
    /// host.
    fn is_answered_by(&mut self, segment: &[u8]) -> bool {
        let Some(tcp) = Tcp::of(segment) else { return false };
        if self.answered && tcp.flags & SYN == 0 {
            return true;
        }
        let after = tcp.acknowledgment.wrapping_sub(self.syn.next);
        let answers =
            tcp.flags & ACK != 0 && tcp.flags & (SYN | RST) != 0 && after <= self.syn.bytes;
        self.answered |= answers && tcp.flags & SYN != 0;
        answers
    }
}

/// The connections of all peers behind NATs.
#[derive(Debug)]
pub(crate) struct Translations {
    limit: usize,
    /// Keyed by the ends of the host's packets.
    flows: Aging<SessionKey, Flow>,
    /// The public end, by peer and the ends of the peer's packets.
    public: BTreeMap<(usize, SessionKey), Endpoint>,
    /// Number of connections with an address as their public end, by peer.
    uses: BTreeMap<(usize, IpAddr), u32>,
    /// Addresses to which the host's packets are captured, with the peers they are captured for.
    captured: BTreeMap<IpAddr, BTreeSet<usize>>,
    fragments: Fragments<(usize, Endpoint)>,
    pool: PacketPool,
    /// Ports tried since the last call of `take_steps`.
    steps: u64,
}

impl Translations {
    /// At most `limit` connections; 0 disables translation.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            flows: Aging::new(limit),
            public: BTreeMap::new(),
            uses: BTreeMap::new(),
            captured: BTreeMap::new(),
            fragments: Fragments::new(),
            pool: PacketPool::new(LARGE_BUFFERS, SMALL_BUFFERS),
            steps: 0,
        }
    }

    /// Loop passes since the last call.
    pub(crate) fn take_steps(&mut self) -> u64 {
        core::mem::take(&mut self.steps)
    }

    /// Whether translation is enabled, for peers behind NATs and for this node at its peers.
    pub(crate) fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// Whether no packet of the host needs translation.
    pub(crate) fn is_idle(&self) -> bool {
        self.captured.is_empty()
    }

    /// Number of connections of `peer`.
    pub(crate) fn count(&self, peer: usize) -> usize {
        let all = (peer, IpAddr::from([0, 0, 0, 0]))..(peer + 1, IpAddr::from([0, 0, 0, 0]));
        self.uses.range(all).map(|(_, count)| *count as usize).sum()
    }

    /// Whether `peer` has any connections.
    pub(crate) fn has(&self, peer: usize) -> bool {
        let first = (peer, IpAddr::from([0, 0, 0, 0]));
        self.uses.range(first..).next().is_some_and(|((owner, _), _)| *owner == peer)
    }

    /// The addresses of the public ends of `peer`.
    pub(crate) fn addresses(&self, peer: usize) -> impl Iterator<Item = IpAddr> {
        let first = (peer, IpAddr::from([0, 0, 0, 0]));
        let own = self.uses.range(first..).take_while(move |((owner, _), _)| *owner == peer);
        own.map(|((_, ip), _)| *ip)
    }

    /// Whether a connection uses `address` as its end on this host.
    pub(crate) fn uses_address(&self, address: IpAddr) -> bool {
        self.flows.iter().any(|(key, _)| key.source.address == address)
    }

    /// Sets the addresses to which the host's packets are captured because of `peer`.
    pub(crate) fn set_captured(&mut self, peer: usize, addresses: &[IpAddr]) {
        self.captured.retain(|ip, peers| {
            if !addresses.contains(ip) {
                peers.remove(&peer);
            }
            !peers.is_empty()
        });
        for ip in addresses {
            self.captured.entry(*ip).or_default().insert(peer);
        }
    }

    /// The public end of the connection of `peer` whose packets from the peer have the ends `key`.
    pub(crate) fn find(
        &mut self,
        now: Instant,
        peer: usize,
        key: &SessionKey,
        act: Act,
    ) -> Option<Endpoint> {
        let public = *self.public.get(&(peer, *key))?;
        self.touch(now, &answer(key, public), act);
        Some(public)
    }

    /// Opens a connection of `peer` whose packets have the ends `key`, with a packet whose effect
    /// is `act`; its public end is at `address`. `None` if no port is free there.
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        peer: usize,
        key: &SessionKey,
        act: Act,
        address: IpAddr,
        draws: &mut ChaCha8Rng,
    ) -> Option<Endpoint> {
        let first = u32::from(*TRANSLATED_PORTS.start());
        let ports = TRANSLATED_PORTS.len() as u32;
        let drawn = (0..TRIES).map(|_| (first + draws.next_u32() % ports) as u16);
        let drawn = drawn.inspect(|_| self.steps += 1);
        let mut ends = drawn.map(|port| Endpoint { address, port });
        let public = ends.find(|public| !self.flows.contains(&answer(key, *public)))?;
        let life = Life::Begins;
        let syn = Syn::default();
        let mut flow = Flow { peer, private: key.source, life, syn, answered: false };
        flow.on_begin(act);
        let idle = life.idle(key.protocol);
        if let Some((gone, flow)) = self.flows.insert(now, answer(key, public), flow, idle) {
            self.forget(&gone, &flow);
        }
        self.public.insert((peer, *key), public);
        *self.uses.entry((peer, address)).or_default() += 1;
        Some(public)
    }

    /// Drops idle connections.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some((key, flow)) = self.flows.expire(now) {
            self.forget(&key, &flow);
        }
    }

    /// Drops all connections of `peer`.
    pub(crate) fn forget_peer(&mut self, peer: usize) {
        let none = Endpoint { address: IpAddr::from([0, 0, 0, 0]), port: 0 };
        let first = SessionKey { protocol: 0, source: none, destination: none };
        let own = self.public.range((peer, first)..);
        let own = own.take_while(|((owner, _), _)| *owner == peer);
        let all: Vec<_> = own.map(|((_, key), public)| answer(key, *public)).collect();
        for key in all {
            if let Some(flow) = self.flows.remove(&key) {
                self.forget(&key, &flow);
            }
        }
    }

    /// Records a packet of the connection in which the host's packets have the ends `key`.
    fn touch(&mut self, now: Instant, key: &SessionKey, act: Act) -> Option<(usize, Endpoint)> {
        let flow = self.flows.touch(now, key)?;
        flow.on_begin(act);
        flow.life = flow.life.after(act, key.protocol);
        let (peer, private, life) = (flow.peer, flow.private, flow.life);
        self.flows.set_idle(key, life.idle(key.protocol));
        Some((peer, private))
    }

    /// Drops the connection if a segment of the host shows that the one with the ends `key` is not
    /// the peer's.
    fn forget_if_foreign(&mut self, now: Instant, key: &SessionKey, segment: Option<&[u8]>) {
        if key.protocol != protocol::TCP {
            return;
        }
        let flow = self.flows.touch(now, key);
        let foreign = flow.is_some_and(|flow| !flow.is_answered_by(segment.unwrap_or_default()));
        if foreign && let Some(flow) = self.flows.remove(key) {
            self.forget(key, &flow);
        }
    }

    /// Removes all entries of a connection that was dropped.
    fn forget(&mut self, key: &SessionKey, flow: &Flow) {
        let Flow { peer, private, .. } = *flow;
        let mut source = key.source;
        if is_echo(key.protocol) {
            source.port = private.port;
        }
        let sent = SessionKey { protocol: key.protocol, source: private, destination: source };
        self.public.remove(&(peer, sent));
        let used = (peer, key.destination.address);
        if let Some(count) = self.uses.get_mut(&used) {
            *count -= 1;
            if *count == 0 {
                self.uses.remove(&used);
            }
        }
    }

    /// Translates a packet of the host with these headers, if it is sent to a public end.
    pub(crate) fn outbound(
        &mut self,
        now: Instant,
        header: &Header,
        packet: PacketBuf,
    ) -> Outbound {
        if !self.captured.contains_key(&header.destination) {
            return Outbound::Other(packet);
        }
        let bytes = packet.bytes();
        let found = match Subject::of(header, bytes) {
            Some(Subject::Own(key)) => {
                // Only the peer opens a connection, with the segment after its SYN; both ends may
                // close it.
                let act = match Act::of(header, bytes) {
                    Act::End => Act::End,
                    _ => Act::Touch,
                };
                self.forget_if_foreign(now, &key, bytes.get(header.header_len..));
                let found = self.touch(now, &key, act);
                if let Some(found) = found.filter(|_| header.fragment) {
                    self.fragments.on_first(header, bytes, found);
                }
                found
            }
            Some(Subject::Quoted(key)) => self.touch(now, &key.reversed(), Act::Touch),
            Some(Subject::Fragment) => self.fragments.find(header, bytes),
            None => None,
        };
        let Some((peer, private)) = found else { return Outbound::Unrelated(packet) };
        let later = header.fragment && header.ports.is_none();
        let state = match packet.offload().partial_checksum {
            _ if later => State::WithoutTransport,
            Some(_) => State::Partial,
            None => State::Complete,
        };
        let filled = self.pool.fill(|room| {
            let bytes = packet.bytes();
            room[..bytes.len()].copy_from_slice(bytes);
            let len = bytes.len();
            rewrite(&mut room[..len], header, End::Destination, private, state).ok_or(())?;
            Ok::<_, ()>((len, packet.offload()))
        });
        match filled {
            Some(Ok(translated)) => Outbound::Peer(peer, translated),
            Some(Err(())) => Outbound::Unrelated(packet),
            None => Outbound::NoBuffer,
        }
    }
}

/// The ends of the host's answers to packets with the ends `key`, whose source is translated to
/// `public`.
fn answer(key: &SessionKey, public: Endpoint) -> SessionKey {
    let mut source = key.destination;
    if is_echo(key.protocol) {
        // An echo has one identifier, which stands for both ports.
        source.port = public.port;
    }
    SessionKey { protocol: key.protocol, source, destination: public }
}

fn is_echo(protocol: u8) -> bool {
    matches!(protocol, protocol::ICMP | protocol::ICMPV6)
}
