//! Connections of peers behind translators (NAT), in host mode.
//!
//! # The model
//!
//! Such a peer sends with its own address, which means nothing here: another peer may have the
//! same. So in each of its connections that address and the port, its *private* end, are replaced
//! by the address at which the network shows the peer and a port of our choice, the *public* end.
//! The host sees the public end, and answers to it are led to the peer by it alone. The peer sees
//! its private end only and has nothing to do.
//!
//! ```text
//!  peer            its translator          this node                this host
//!  10.0.0.2:5000 → (outer datagrams)     → 203.0.113.7:20000     →  198.51.100.1:80
//!  10.0.0.2:5000 ← (outer datagrams)     ← 203.0.113.7:20000     ←  198.51.100.1:80
//! ```
//!
//! [`Translations`] are those of a whole node, because peers behind one translator share its
//! address. [`PathConnections`] is what the peer itself keeps: which of its connections go this
//! way.
//!
//! The same is done for a peer at an address of its own that others may share: it is not known
//! which ports there are the peer's. A peer is not trusted, so a public end must not be that of
//! somebody else's connection to this host. The port is drawn, and a connection of TCP has it only
//! once the host has answered the peer's SYN: if its socket with that end is somebody else's, it
//! does not.

mod aging;
mod begun;
mod fragments;
pub(crate) mod rewrite;

use core::net::IpAddr;
use core::ops::RangeInclusive;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use rand_chacha::ChaCha8Rng;
use rand_core::RngCore as _;

use self::aging::Aging;
pub(crate) use self::begun::{Admission, Egress, PATIENCE, PathConnections};
pub(crate) use self::fragments::Fragments;
use self::rewrite::{End, State, Subject, rewrite};
use mpip_types::Instant;
use mpip_types::packet::{Endpoint, Header, SessionKey, protocol};
use mpip_types::{PacketBuf, PacketPool};

/// Ports of public ends: translators rarely give them out, because hosts begin connections from
/// higher ones (32,768 and up on Linux, 49,152 elsewhere; RFC 6335, section 6), and few services
/// have them.
pub const TRANSLATED_PORTS: RangeInclusive<u16> = 16_384..=32_767;
/// Ports that are drawn for a connection until one is free.
const TRIES: usize = 64;

/// A connection that carried nothing for so long is forgotten: an open one of TCP, one that begins
/// or ends (RFC 5382, requirement 5), UDP (RFC 4787, requirement 5), an ICMP echo.
const TCP_OPEN: Duration = Duration::from_secs(7_440);
const TCP_TRANSITORY: Duration = Duration::from_secs(240);
const UDP: Duration = Duration::from_secs(300);
const ECHO: Duration = Duration::from_secs(180);

/// Packets of the host toward such peers that are under way: as many as the host's pool has.
const LARGE_BUFFERS: usize = 1_024;
const SMALL_BUFFERS: usize = 4_096;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Begins,
    Open,
    Ends,
}

/// What answers the first packet of a connection of TCP: acknowledgment numbers from `next` on, so
/// many as there were `bytes` with it (RFC 7413).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Syn {
    next: u32,
    bytes: u32,
}

/// What a packet does to its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// It may be the first one.
    Begin(Syn),
    Use,
    End,
    /// It shows that the connection is in use, and no more.
    Touch,
}

impl Act {
    /// That of a packet that has its ports.
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

    /// That of a TCP segment of `len` bytes, of which at least the header is given.
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

/// What of a TCP header says how far a connection has come.
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

    /// How long it may carry nothing.
    fn idle(self, protocol: u8) -> Duration {
        match (protocol, self) {
            (protocol::TCP, Self::Open) => TCP_OPEN,
            (protocol::TCP, _) => TCP_TRANSITORY,
            (protocol::UDP, _) => UDP,
            _ => ECHO,
        }
    }
}

/// What becomes of a packet of the host.
#[derive(Debug)]
pub(crate) enum Outbound {
    /// It is not for a public end.
    Other(PacketBuf),
    /// It belongs to a connection of this peer, and has its private end now.
    Peer(usize, PacketBuf),
    /// It is for the address of a translator, and not for a peer of ours.
    Unrelated(PacketBuf),
    /// There is no buffer for it.
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
    /// Takes note of what a packet of the peer begins.
    fn on_begin(&mut self, act: Act) {
        if let Act::Begin(syn) = act
            && syn != self.syn
        {
            // One that is repeated without its data may be answered as it was at first.
            let repeated = syn.next == self.syn.next;
            self.syn =
                Syn { bytes: syn.bytes.max(if repeated { self.syn.bytes } else { 0 }), ..syn };
            self.answered &= repeated;
        }
    }

    /// Whether a segment of the host can be of this connection of TCP. The host has one connection
    /// with these ends: until it has accepted the peer's SYN it may be somebody else's.
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

/// The connections of all peers behind translators.
#[derive(Debug)]
pub(crate) struct Translations {
    limit: usize,
    /// By the ends of what the host sends.
    flows: Aging<SessionKey, Flow>,
    /// The public end, by peer and the ends of what the peer sends.
    public: BTreeMap<(usize, SessionKey), Endpoint>,
    /// How many connections have an address as their public end, by peer.
    uses: BTreeMap<(usize, IpAddr), u32>,
    /// Addresses to which the host's packets are captured, and for which peers.
    captured: BTreeMap<IpAddr, BTreeSet<usize>>,
    fragments: Fragments<(usize, Endpoint)>,
    pool: PacketPool,
    /// Ports that were looked at, until that was asked for.
    steps: u64,
}

impl Translations {
    /// At most `limit` connections; none of a peer behind a translator is taken when that is 0.
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

    /// Passes of loops since this was last asked.
    pub(crate) fn take_steps(&mut self) -> u64 {
        core::mem::take(&mut self.steps)
    }

    /// Whether peers behind translators are served, and the like is asked of peers.
    pub(crate) fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// Whether no packet of the host can concern it.
    pub(crate) fn is_idle(&self) -> bool {
        self.captured.is_empty()
    }

    /// Connections of `peer`.
    pub(crate) fn count(&self, peer: usize) -> usize {
        let all = (peer, IpAddr::from([0, 0, 0, 0]))..(peer + 1, IpAddr::from([0, 0, 0, 0]));
        self.uses.range(all).map(|(_, count)| *count as usize).sum()
    }

    /// Whether `peer` has any.
    pub(crate) fn has(&self, peer: usize) -> bool {
        let first = (peer, IpAddr::from([0, 0, 0, 0]));
        self.uses.range(first..).next().is_some_and(|((owner, _), _)| *owner == peer)
    }

    /// The addresses of its public ends.
    pub(crate) fn addresses(&self, peer: usize) -> impl Iterator<Item = IpAddr> {
        let first = (peer, IpAddr::from([0, 0, 0, 0]));
        let own = self.uses.range(first..).take_while(move |((owner, _), _)| *owner == peer);
        own.map(|((_, ip), _)| *ip)
    }

    /// Whether a connection's end on this host is `address`.
    pub(crate) fn uses_address(&self, address: IpAddr) -> bool {
        self.flows.iter().any(|(key, _)| key.source.address == address)
    }

    /// From now on the host's packets to these addresses, and no others of `peer`, come here.
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

    /// The public end of the connection of `peer` whose packets from there have the ends `key`.
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

    /// Begins a connection of `peer` whose packets have the ends `key`, with a packet that does
    /// `act`; its public end is at `address`. `None` when no port is free there.
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

    /// Forgets what carried nothing for long.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some((key, flow)) = self.flows.expire(now) {
            self.forget(&key, &flow);
        }
    }

    /// Forgets all of `peer`.
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

    /// Takes note of a packet of the connection in which the host answers with the ends `key`.
    fn touch(&mut self, now: Instant, key: &SessionKey, act: Act) -> Option<(usize, Endpoint)> {
        let flow = self.flows.touch(now, key)?;
        flow.on_begin(act);
        flow.life = flow.life.after(act, key.protocol);
        let (peer, private, life) = (flow.peer, flow.private, flow.life);
        self.flows.set_idle(key, life.idle(key.protocol));
        Some((peer, private))
    }

    /// A segment of the host shows that its connection with the ends `key` is not the peer's.
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

    /// Drops what belongs to a connection that is gone.
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

    /// What becomes of a packet of the host with these headers.
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
                // The peer opens a connection, by what follows its SYN; both may end it.
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

/// The ends of what the host answers to packets with the ends `key`, of which the source is shown
/// as `public`.
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
