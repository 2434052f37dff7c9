//! NAT (see [`crate::translation`]): which packets of the peer get another source before the host
//! sees them, and which of the host's packets use the paths although the peer sees this host at
//! another address.

use core::net::IpAddr;
use core::time::Duration;

use mpip_wire::{NetworkFields, PathId, SessionFields};

use super::Association;
use crate::config::{Policy, UNKNOWN_PART};
use crate::drops::DropReason;
use crate::session::SourceRewrite;
use crate::shared::Context;
use crate::translation::rewrite::{End, HEAD, State, Subject, rewrite};
use crate::translation::{Act, Admission, Egress, Syn, UdpAdmission};
use mpip_types::Instant;
use mpip_types::packet::{Endpoint, Header, SessionKey, protocol};
use mpip_types::{Checksum, InnerPacket};

/// The source address that the host sees in a packet of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketSource {
    /// The original source.
    Unchanged,
    /// Another source; [`State`] says whether the packet has a transport header.
    Rewritten(Endpoint, State),
}

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
/// Age of a path from which the peer is taken to see our own address there if it has not told:
/// releases before `[P-10]` asked for it do not tell.
const UNTOLD: Duration = Duration::from_secs(3);
/// Interval at which a connection is marked as in use.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// The rewritten head of a packet whose source was replaced.
pub(super) struct RewrittenPacket {
    head: [u8; HEAD],
    len: usize,
}

impl RewrittenPacket {
    /// Replaces the source of `packet`. `None` if the packet is too short for it.
    pub(super) fn new(
        packet: &[u8],
        header: &Header,
        source: Endpoint,
        state: State,
    ) -> Option<Self> {
        let mut head = [0; HEAD];
        let len = packet.len().min(HEAD);
        let changed = head.get_mut(..len)?;
        changed.copy_from_slice(packet.get(..len)?);
        rewrite(changed, header, End::Source, source, state)?;
        Some(Self { head, len })
    }

    /// The rewritten packet; `whole` is the original.
    pub(super) fn packet<'a>(&'a self, whole: &'a [u8]) -> InnerPacket<'a> {
        let (_, tail) = whole.split_at_checked(self.len).unwrap_or_default();
        let (head, _) = self.head.split_at(self.len);
        InnerPacket { head, tail, checksum: Checksum::Complete }
    }
}

impl Association {
    /// The source with which the host sees a packet of the peer.
    pub(super) fn source_for_host(
        &mut self,
        now: Instant,
        header: &Header,
        packet: &[u8],
        cx: &mut Context<'_>,
    ) -> Result<PacketSource, DropReason> {
        let own = cx.shared.prefixes.find_source(header.source) == Some(cx.me);
        if own && !cx.shared.translations.has(cx.me) {
            return Ok(PacketSource::Unchanged);
        }
        let shown = match Subject::of(header, packet) {
            Some(Subject::Own(key)) => {
                let act = Act::of(header, packet);
                let end = self.public_end(now, &key, act, !own, cx);
                if let Some(end) = end {
                    self.host.fragments.on_first(header, packet, end);
                }
                end.map(|end| (end, State::Complete))
            }
            Some(Subject::Quoted(key)) => {
                let end = cx.shared.translations.find(now, cx.me, &key.reversed(), Act::Touch);
                end.map(|end| (end, State::Complete))
            }
            Some(Subject::Fragment) => {
                let known = self.host.fragments.find(header, packet);
                // A fragment that arrives before the first one is useless without it, because only
                // the first names the port.
                let address = || self.public_address_of(header.source, cx);
                let guess = || address().map(|address| Endpoint { address, port: 0 });
                let may = !own && self.is_translated(header.source, header.destination, cx);
                let end = known.or_else(|| may.then(guess).flatten());
                end.map(|end| (end, State::WithoutTransport))
            }
            None => None,
        };
        match shown {
            Some((end, state)) => Ok(PacketSource::Rewritten(end, state)),
            None if own => Ok(PacketSource::Unchanged),
            None => Err(DropReason::ForeignSource),
        }
    }

    /// The source with which the host sees compact packets of a session.
    pub(super) fn session_source_rewrite(
        &mut self,
        now: Instant,
        key: &SessionKey,
        cx: &mut Context<'_>,
    ) -> Result<SourceRewrite, DropReason> {
        let own = cx.shared.prefixes.find_source(key.source.address) == Some(cx.me);
        if own && !cx.shared.translations.has(cx.me) {
            return Ok(SourceRewrite::None);
        }
        let end = match key.protocol {
            // The session's fields are not announced by the first packet of the connection.
            protocol::TCP => self.public_end(now, key, Act::Use, !own, cx),
            protocol::UDP => self.public_end(now, key, Act::Begin(Syn::default()), !own, cx),
            protocol::ICMP | protocol::ICMPV6 => return Ok(SourceRewrite::PerPacket),
            _ => None,
        };
        match end {
            Some(end) => Ok(SourceRewrite::To(Box::new((end, now)))),
            None if own => Ok(SourceRewrite::None),
            None => Err(DropReason::ForeignSource),
        }
    }

    /// Marks the connection of a session as in use. `packet` is a packet of it as the host sees it.
    ///
    /// # Errors
    ///
    /// When the connection is no longer known. The peer then has to announce the session's fields
    /// again.
    pub(super) fn refresh_connection(
        &mut self,
        now: Instant,
        slot: u32,
        (end, used): (Endpoint, Instant),
        packet: InnerPacket<'_>,
        cx: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let Some(id) = self.receiving.sessions().key(slot).copied() else { return Ok(()) };
        let Some(session) = self.receiving.get_mut(slot) else { return Ok(()) };
        // Restored headers have no IP options or extension headers.
        let network = if end.address.is_ipv4() { IPV4_HEADER } else { IPV6_HEADER };
        let act = match session.key.protocol {
            protocol::TCP => {
                let tcp = packet.head.get(network..).ok_or(DropReason::MalformedPacket)?;
                Act::of_tcp(tcp, tcp.len() + packet.tail.len())
            }
            _ => Act::Use,
        };
        if act == Act::Use && now.since(used) < REFRESH_INTERVAL {
            return Ok(());
        }
        if cx.shared.translations.find(now, cx.me, &session.key, act) == Some(end) {
            if let SourceRewrite::To(known) = &mut session.source_rewrite {
                **known = (end, now);
            }
            return Ok(());
        }
        session.header = None;
        self.outbox.owe_unknown(now, id);
        Err(DropReason::UnknownSession)
    }

    /// The public endpoint of the connection with the endpoints `key`. An unknown connection may
    /// begin with this packet.
    pub(super) fn public_end(
        &mut self,
        now: Instant,
        key: &SessionKey,
        act: Act,
        may_begin: bool,
        cx: &mut Context<'_>,
    ) -> Option<Endpoint> {
        if let Some(end) = cx.shared.translations.find(now, cx.me, key, act) {
            return Some(end);
        }
        // Unlike in TCP, nothing that follows a UDP datagram proves which host it belongs to.
        let unknown = self.host.is_unknown_peer();
        let begins = may_begin
            && cx.shared.translations.is_on()
            && matches!(act, Act::Begin(_))
            && !(unknown && key.protocol == protocol::UDP)
            && self.is_translated(key.source.address, key.destination.address, cx);
        let address = begins.then(|| self.public_address_of(key.source.address, cx)).flatten()?;
        let full =
            unknown && cx.shared.translations.count(cx.me) >= self.limits.translated / UNKNOWN_PART;
        let end = match full {
            false => {
                cx.shared.translations.begin(now, cx.me, key, act, address, &mut cx.shared.draws)
            }
            true => None,
        };
        if !self.host.nats.contains(&address) {
            self.review_capture();
        }
        if end.is_none() {
            cx.shared.drops.count(DropReason::NoPort);
        }
        end
    }

    /// Whether packets from `source`, which is not known as the peer's, to `destination` are
    /// translated: the peer advertises `source`, and `destination` is this host.
    fn is_translated(&self, source: IpAddr, destination: IpAddr, cx: &Context<'_>) -> bool {
        self.peer.has_ip(source) && !self.takes(source, cx) && cx.shared.is_ours(destination)
    }

    /// The public address of connections that the peer begins from `source`: `source` itself if the
    /// peer is there but may share it, otherwise the peer's address in front of its NAT.
    fn public_address_of(&self, source: IpAddr, cx: &Context<'_>) -> Option<IpAddr> {
        let v4 = source.is_ipv4();
        let same = self.public_remotes(v4, cx).find(|(_, ip)| *ip == source);
        same.map(|(_, ip)| ip).or_else(|| self.public_address(v4, cx))
    }

    /// The peer's address in front of its NAT. Of several the first path decides, so that all
    /// connections come from one address.
    fn public_address(&self, v4: bool, cx: &Context<'_>) -> Option<IpAddr> {
        self.public_remotes(v4, cx).min().map(|(_, ip)| ip)
    }

    /// The remote addresses of validated paths that are not accepted as the peer's own.
    fn public_remotes(&self, v4: bool, cx: &Context<'_>) -> impl Iterator<Item = (PathId, IpAddr)> {
        let validated = self.paths.iter().filter(|path| path.is_validated() && self.translates());
        validated.filter_map(move |path| {
            let ip = path.address.remote.ip();
            let may = ip.is_ipv4() == v4
                && self.host.deals_at(ip)
                && !self.may_take(ip, cx)
                && cx.shared.is_another_host(ip);
            may.then_some((path.id, ip))
        })
    }

    fn translates(&self) -> bool {
        self.config.host_mode && self.config.policy != Policy::Off && self.peer.has_list()
    }

    /// The addresses at which the host may answer the peer.
    pub(super) fn public_addresses(&self, cx: &Context<'_>) -> Vec<IpAddr> {
        if !cx.shared.translations.is_on() {
            return Vec::new();
        }
        let mut all: Vec<_> = cx.shared.translations.addresses(cx.me).collect();
        if !self.host.is_unknown_peer() {
            all.extend([true, false].into_iter().filter_map(|v4| self.public_address(v4, cx)));
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Our addresses that the peer does not accept as ours.
    pub(super) fn own_translated(&self) -> Vec<IpAddr> {
        let elsewhere = self.paths.iter().filter(|path| path.is_elsewhere());
        let mut all: Vec<_> = elsewhere.map(|path| path.local.ip()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Updates which of our addresses the peer has yet to tell how it sees them. Connections that
    /// began meanwhile from an address that turned out to be ours alone are as any others.
    pub(super) fn follow_untold(&mut self, now: Instant) {
        let told = |ip| {
            let mut own = self.paths.iter().filter(|path| path.local.ip() == ip);
            own.any(|path| path.seen.ours.is_some())
        };
        let young = self.paths.iter().filter(|path| {
            path.is_validated() && now < path.opened + UNTOLD && !told(path.local.ip())
        });
        let until = young.clone().map(|path| path.opened + UNTOLD).min();
        let mut untold: Vec<_> = young.map(|path| path.local.ip()).collect();
        untold.sort_unstable();
        untold.dedup();
        let former = core::mem::replace(&mut self.host.untold, untold.into());
        for ip in former {
            let is_ours = self.paths.validated().any(|path| path.local.ip() == ip);
            if is_ours && !self.host.may_be_elsewhere(ip) {
                self.host.path_connections.forget_source(ip);
            }
        }
        if let Some(until) = until {
            self.host.review_by(until);
        }
    }

    /// Whether packets with these endpoints would be useless as plain IP: one of them is the
    /// private endpoint of a connection through a NAT, which the other host knows by its public
    /// endpoint.
    pub(super) fn needs_paths(&self, key: &SessionKey, cx: &Context<'_>) -> bool {
        // UDP is plain meanwhile: its applications cannot be expected to wait.
        (key.protocol != protocol::UDP && self.host.path_connections.contains(key))
            || cx.shared.prefixes.find(key.destination.address) != Some(cx.me)
    }

    /// How a packet of the host leaves: by the paths, or as plain IP.
    ///
    /// # Errors
    ///
    /// When it could only leave as plain IP, and the policy forbids that.
    pub(crate) fn egress(
        &mut self,
        now: Instant,
        header: &Header,
        packet: &[u8],
    ) -> Result<Egress, DropReason> {
        let way = self.way_out(now, header, packet);
        self.host.plain_packets += u64::from(way == Ok(Egress::Plain));
        if self.host.path_connections.has_stale_udp_ports() {
            self.review_capture();
        }
        way
    }

    fn way_out(
        &mut self,
        now: Instant,
        header: &Header,
        packet: &[u8],
    ) -> Result<Egress, DropReason> {
        let host = &mut self.host;
        if let Some(plain) = &mut host.plain_sessions
            && plain.takes(now, &header.session())
            && self.config.policy == Policy::Prefer
        {
            return Ok(Egress::Plain);
        }
        let elsewhere = host.own_translated.contains(&header.source);
        let untold = host.untold.contains(&header.source);
        if host.unknown_sources.contains(&header.source)
            && host.addresses.contains_key(&header.destination)
        {
            return Ok(Egress::Plain);
        }
        if (!elsewhere && !untold && host.path_connections.is_empty())
            || !host.addresses.contains_key(&header.destination)
        {
            return Ok(Egress::Paths);
        }
        let require = self.config.policy == Policy::Require;
        let open = (elsewhere || untold) && (require || host.returned_at.is_some());
        let udp = match (require, elsewhere && !host.is_unknown_peer()) {
            (true, _) => UdpAdmission::All,
            // An unknown peer knows us as little, and translates no UDP (`[T-10]`).
            (false, true) => UdpAdmission::New,
            (false, false) => UdpAdmission::None,
        };
        match host.path_connections.egress(now, header, packet, Admission { open, udp }) {
            // If the peer turns out to see our own address, either way is right.
            Egress::Plain if untold && !elsewhere && !require => Ok(Egress::Plain),
            Egress::Plain if !elsewhere => Ok(Egress::Paths),
            Egress::Plain if require => Err(DropReason::NotBegun),
            way => Ok(way),
        }
    }

    /// Forgets the connections through NATs, unless the peer's daemon is still the run `instance`.
    pub(super) fn forget_translated(&mut self, instance: Option<u64>, cx: &mut Context<'_>) {
        if instance.is_some() && self.host.instance == instance {
            return;
        }
        self.host.instance = instance;
        self.host.path_connections.clear();
        // Another run may carry them.
        self.host.plain_sessions = None;
        cx.shared.translations.forget_peer(cx.me);
    }

    /// Rewrites an ICMP message about a packet of the host to the peer, so that it quotes the
    /// endpoint that the host knows.
    pub(super) fn for_the_host(
        &mut self,
        now: Instant,
        mut message: Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Vec<u8> {
        if cx.shared.translations.has(cx.me)
            && let Ok(header) = Header::parse(&message)
            && let Ok(PacketSource::Rewritten(end, state)) =
                self.source_for_host(now, &header, &message, cx)
        {
            // A message that cannot be rewritten quotes a connection that the host does not have.
            let _ = rewrite(&mut message, &header, End::Source, end, state);
        }
        message
    }
}

/// The fields of a TCP or UDP session with another source of the same family.
pub(super) fn with_source(fields: &SessionFields, end: Endpoint) -> Option<SessionFields> {
    let mut fields = *fields;
    fields.source_port = end.port;
    match (&mut fields.network, end.address) {
        (NetworkFields::V4 { source, .. }, IpAddr::V4(ip)) => *source = ip,
        (NetworkFields::V6 { source, .. }, IpAddr::V6(ip)) => *source = ip,
        _ => return None,
    }
    Some(fields)
}
