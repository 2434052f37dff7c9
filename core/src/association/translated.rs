//! Behind translators (see [`crate::translation`]): whose packets get another end before the host
//! sees them, and which of the host's own go on the paths although the peer sees it elsewhere.

use core::net::IpAddr;
use core::time::Duration;

use mpip_wire::{NetworkFields, SessionFields};

use super::{Association, Context};
use crate::config::{LocalAddress, Policy};
use crate::engine::DropReason;
use crate::packet::{Endpoint, Header, SessionKey, protocol};
use crate::path::Path;
use crate::sink::{Checksum, InnerPacket};
use crate::time::Instant;
use crate::translation::rewrite::{End, HEAD, State, Subject, rewrite};
use crate::translation::{Act, Doors, Way};

use super::host::is_capturable;

/// The end of a packet of the peer as the host is to see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// As it is.
    AsItIs,
    /// With another source, and without a transport if that is so.
    As(Endpoint, State),
}

/// How often is noted that a connection is in use.
const NOTED: Duration = Duration::from_secs(1);

/// A packet with another end: its first bytes, changed.
pub(super) struct Changed {
    head: [u8; HEAD],
    len: usize,
}

impl Changed {
    /// `parts`, of which the first has the headers of IP, with `source` in the place of its source.
    pub(super) fn new(
        [first, second]: [&[u8]; 2],
        header: &Header,
        (source, state): (Endpoint, State),
    ) -> Option<Self> {
        let mut head = [0; HEAD];
        let len = (first.len() + second.len()).min(HEAD);
        let from_first = first.len().min(HEAD);
        head[..from_first].copy_from_slice(&first[..from_first]);
        head[from_first..len].copy_from_slice(&second[..len - from_first]);
        rewrite(&mut head[..len], header, End::Source, source, state)?;
        Some(Self { head, len })
    }

    /// The packet, of which `rest` is what begins behind the changed bytes.
    pub(super) fn packet<'a>(&'a self, whole: &'a [u8]) -> InnerPacket<'a> {
        let tail = &whole[self.len..];
        InnerPacket { head: &self.head[..self.len], tail, checksum: Checksum::Complete }
    }
}

impl Association {
    /// How the host is to see the source of a packet of the peer.
    pub(super) fn show(
        &mut self,
        now: Instant,
        header: &Header,
        packet: &[u8],
        cx: &mut Context<'_>,
    ) -> Result<Shown, DropReason> {
        let own = cx.prefixes.find_source(header.source) == Some(cx.me);
        if own && !cx.translations.has(cx.me) {
            return Ok(Shown::AsItIs);
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
                let end = cx.translations.find(now, cx.me, &key.reversed(), Act::Touch);
                end.map(|end| (end, State::Complete))
            }
            Some(Subject::Fragment) => {
                let known = self.host.fragments.find(header, packet);
                let port = 0;
                let first = || self.public_address(header.source.is_ipv4(), cx);
                let guess = || first().map(|address| Endpoint { address, port });
                let may = !own && self.is_translated(header.source, header.destination, cx.locals);
                let end = known.or_else(|| may.then(guess).flatten());
                end.map(|end| (end, State::WithoutTransport))
            }
            None => None,
        };
        match shown {
            Some((end, state)) => Ok(Shown::As(end, state)),
            None if own => Ok(Shown::AsItIs),
            None => Err(DropReason::ForeignSource),
        }
    }

    /// How the host is to see the source of the packets of a session; `None` for as it is.
    pub(super) fn show_session(
        &mut self,
        now: Instant,
        key: &SessionKey,
        cx: &mut Context<'_>,
    ) -> Result<Option<Endpoint>, DropReason> {
        let own = cx.prefixes.find_source(key.source.address) == Some(cx.me);
        if own && !cx.translations.has(cx.me) {
            return Ok(None);
        }
        // The fields of a session of TCP are not told by its first packet.
        let act = if key.protocol == protocol::TCP { Act::Use } else { Act::Begin };
        match self.public_end(now, key, act, !own, cx) {
            None if !own => Err(DropReason::ForeignSource),
            end => Ok(end),
        }
    }

    /// Takes note that the connection of a session is in use; `head` are the headers of a packet.
    ///
    /// # Errors
    ///
    /// When the connection is not known any more. Then the session's fields are to be told again.
    pub(super) fn keep_shown(
        &mut self,
        now: Instant,
        slot: u32,
        (end, used): (Endpoint, Instant),
        head: &[u8],
        cx: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let Some(id) = self.incoming.key(slot).copied() else { return Ok(()) };
        let Some(session) = self.incoming.get_mut(slot) else { return Ok(()) };
        let act = match session.key.protocol {
            // Restored headers have no options of IP.
            protocol::TCP if end.address.is_ipv4() => Act::of_tcp(head[20 + 13]),
            protocol::TCP => Act::of_tcp(head[40 + 13]),
            _ => Act::Use,
        };
        if act == Act::Use && now.since(used) < NOTED {
            return Ok(());
        }
        if cx.translations.find(now, cx.me, &session.key, act) == Some(end) {
            session.shown = Some(Box::new((end, now)));
            return Ok(());
        }
        session.shown = None;
        session.header = None;
        self.report_unknown(now, id);
        Err(DropReason::UnknownSession)
    }

    /// A packet of a session whose ends are not in the headers that were restored, with another
    /// source; `None` for TCP and UDP.
    pub(super) fn show_opaque(
        &self,
        slot: u32,
        end: Endpoint,
        packet: InnerPacket<'_>,
    ) -> Option<Result<(Vec<u8>, Changed), DropReason>> {
        let session = self.incoming.get(slot)?;
        if matches!(session.key.protocol, protocol::TCP | protocol::UDP) {
            return None;
        }
        let whole = [packet.head, packet.tail].concat();
        let changed = Header::parse(&whole).ok().and_then(|header| {
            let shown = (end, State::Complete);
            Changed::new([&whole, &[]], &header, shown)
        });
        Some(changed.map(|changed| (whole, changed)).ok_or(DropReason::ForeignSource))
    }

    /// The public end of the connection with the ends `key`, which may begin with this packet if it
    /// is not known.
    pub(super) fn public_end(
        &mut self,
        now: Instant,
        key: &SessionKey,
        act: Act,
        may_begin: bool,
        cx: &mut Context<'_>,
    ) -> Option<Endpoint> {
        if let Some(end) = cx.translations.find(now, cx.me, key, act) {
            return Some(end);
        }
        let begins = may_begin
            && cx.translations.is_on()
            && act == Act::Begin
            && self.is_translated(key.source.address, key.destination.address, cx.locals);
        let address = self.public_address(key.source.address.is_ipv4(), cx);
        let address = address.filter(|_| begins)?;
        let end = cx.translations.begin(now, cx.me, key, address, cx.draws);
        if !self.host.translators.contains(&address) {
            self.review_capture();
        }
        if end.is_none() {
            cx.drops.count(DropReason::NoPort);
        }
        end
    }

    /// Whether packets from `source`, which is not known as the peer's, to `destination` are
    /// translated: the peer says that it has that address, and the packets are for this host.
    fn is_translated(&self, source: IpAddr, destination: IpAddr, locals: &[LocalAddress]) -> bool {
        self.peer_addresses.iter().any(|told| told.ip() == source)
            && locals.iter().any(|local| local.address.ip() == destination)
    }

    /// Where the network shows the peer, if that is not where it is: the first of its paths decides,
    /// so that all connections come from one address.
    pub(super) fn public_address(&self, v4: bool, cx: &Context<'_>) -> Option<IpAddr> {
        if !self.translates() {
            return None;
        }
        let shown = self.paths.iter().filter(|path| path.is_validated()).filter_map(|path| {
            let ip = path.address.remote.ip();
            let told = self.peer_addresses.iter().any(|told| told.ip() == ip);
            (ip.is_ipv4() == v4 && !told && is_capturable(ip, cx)).then_some((path.id, ip))
        });
        shown.min().map(|(_, ip)| ip)
    }

    fn translates(&self) -> bool {
        self.config.host_mode
            && self.config.policy != Policy::Off
            && self.host.claims
            && self.peer_generation > 0
    }

    /// The addresses to which the host's packets may be answers to the peer.
    pub(super) fn public_addresses(&self, cx: &Context<'_>) -> Vec<IpAddr> {
        if !cx.translations.is_on() {
            return Vec::new();
        }
        let shown = [true, false].map(|v4| self.public_address(v4, cx));
        let mut all: Vec<_> = shown.into_iter().flatten().collect();
        all.extend(cx.translations.addresses(cx.me));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Our addresses that the peer sees elsewhere.
    pub(super) fn own_translated(&self) -> Vec<IpAddr> {
        let elsewhere = |path: &&Path| {
            path.is_validated()
                && path.observed.is_some_and(|observed| observed.ip() != path.local.ip())
        };
        let mut all: Vec<_> =
            self.paths.iter().filter(elsewhere).map(|path| path.local.ip()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether packets with these ends mean nothing as plain IP: one of them is the private end of a
    /// connection through a translator, which the other host knows by its public end.
    pub(super) fn is_bound(&self, key: &SessionKey, cx: &Context<'_>) -> bool {
        self.host.begun.contains(key) || cx.prefixes.find(key.destination.address) != Some(cx.me)
    }

    /// How a packet of the host leaves.
    ///
    /// # Errors
    ///
    /// When it could only leave as it would without us, and the policy forbids that.
    pub(crate) fn way(
        &mut self,
        now: Instant,
        header: &Header,
        packet: &[u8],
    ) -> Result<Way, DropReason> {
        let host = &mut self.host;
        let elsewhere = host.own_translated.contains(&header.source);
        if (!elsewhere && host.begun.is_empty())
            || !host.addresses.contains_key(&header.destination)
        {
            return Ok(Way::Paths);
        }
        let require = self.config.policy == Policy::Require;
        let open = elsewhere && (require || host.returned_at.is_some());
        let doors = Doors { open, nothing_is_plain: require };
        match host.begun.way(now, header, packet, doors) {
            Way::Plain if !elsewhere => Ok(Way::Paths),
            Way::Plain if require => Err(DropReason::NotBegun),
            way => Ok(way),
        }
    }

    /// Forgets the connections through translators, unless the peer's daemon is still the one of run
    /// `instance`.
    pub(super) fn forget_translated(&mut self, instance: Option<u64>, cx: &mut Context<'_>) {
        if instance.is_some() && self.host.instance == instance {
            return;
        }
        self.host.instance = instance;
        self.host.begun.clear();
        cx.translations.forget_peer(cx.me);
    }

    /// A message about a packet of the host to the peer, with the end that the host knows.
    pub(super) fn for_the_host(
        &mut self,
        now: Instant,
        mut message: Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Vec<u8> {
        if cx.translations.has(cx.me)
            && let Ok(header) = Header::parse(&message)
            && let Ok(Shown::As(end, state)) = self.show(now, &header, &message, cx)
        {
            // A message that cannot be changed names a connection that the host does not have.
            let _ = rewrite(&mut message, &header, End::Source, end, state);
        }
        message
    }
}

/// The fields of a session of TCP or UDP with another source; other fields as they are.
pub(super) fn shown_as(fields: &SessionFields, end: Endpoint) -> SessionFields {
    let mut fields = *fields;
    if !matches!(fields.protocol, protocol::TCP | protocol::UDP) {
        return fields;
    }
    fields.source_port = end.port;
    match (&mut fields.network, end.address) {
        (NetworkFields::V4 { source, .. }, IpAddr::V4(ip)) => *source = ip,
        (NetworkFields::V6 { source, .. }, IpAddr::V6(ip)) => *source = ip,
        _ => debug_assert!(false, "a public end is of the family of the private one"),
    }
    fields
}
