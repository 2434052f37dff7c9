//! The engine: fed and drained by a handful of verbs.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use mpip_crypto::{CookieJar, Mac1Key, PublicKey, Rng, TimestampSource};
use mpip_wire::{MessageType, PathId, TransportPacket};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use crate::association::Association;
use crate::capture::Capture;
use crate::config::Limits;
use crate::config::{Config, InterfaceProperties, PeerConfig};
use crate::drops::{DropReason, Drops};
use crate::event::Event;
use crate::former_peers::FormerPeers;
use crate::handshake::Jobs;
use crate::handshake_sources::HandshakeSources;
use crate::host_packets::{HostMessages, PlainPackets};
use crate::parameters::Parameters;
use crate::parts::receive_key::KeyChange;
use crate::pins::PinChange;
use crate::prefixes::PrefixTable;
use crate::resequencer::HoldPool;
use crate::rules::{AttachedNetwork, RuleTable};
use crate::shared::{Context, Shared};
use crate::status::{PathTraffic, Status, Way};
use crate::trace::{Trace, TraceSink};
use crate::translation::Translations;
use crate::unknown_peers::UnknownPeers;
use mpip_types::Bucket;
use mpip_types::Instant;
use mpip_types::LocalAddress;
use mpip_types::PortSet;
use mpip_types::Rate;
use mpip_types::packet::SessionKey;
use mpip_types::{DatagramSink, Ecn, LocalId, Opened, PacketSink, PathAddress};

mod from_host;
mod handshake_messages;
mod kept;
mod plain;
mod reload;
mod replies;
mod touched;
mod unknown;

pub use self::reload::Reconfigured;
use self::replies::Replies;
use self::touched::Touched;

/// Most events that wait for [`Engine::poll_event`]; beyond this the oldest are dropped.
const EVENTS: usize = 1_024;
/// Rate limit of ICMP errors that nobody listens at an address. Anybody can forge them, and each is
/// compared with all paths.
const REFUSALS: Rate = Rate { burst: 64, per_second: 100 };

/// What the host tells the engine.
#[derive(Clone, Debug)]
pub enum Command {
    /// The complete list of addresses that paths may start from; replaces the former list.
    LocalAddresses(Vec<LocalAddress>),
    /// Every address of this host, whether or not paths may start from it; replaces the former
    /// list. None of them is ever accepted as a peer's, and every peer may send to them.
    OwnAddresses(Vec<IpAddr>),
    /// All networks that are attached to this host, so that rules can match the interface behind
    /// which a packet's sender is.
    Networks(Vec<AttachedNetwork>),
    /// What holds for paths by the interface that they start from; replaces what held before.
    /// Peers are told of standby and cost.
    Interfaces(InterfaceProperties),
    /// The settings of unknown peers, as [`Opportunistic::peer`](crate::Opportunistic::peer);
    /// replaces the former ones. Associations that exist go on with them. Without
    /// [`Config::opportunistic`] it has no effect.
    UnknownPeers(PeerConfig),
    /// The host's routes changed: destinations without a route may have one now.
    RoutesChanged,
    /// The current wall clock, as time since 1970-01-01 00:00 UTC. Give it before each
    /// [`Engine::handle_timeout`], or at least whenever the clock was set.
    WallClock(Duration),
    /// Send a close frame to every peer at the next [`Engine::handle_timeout`].
    Shutdown,
}

/// What an accepted datagram proves about its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A node with an association sealed it, and it is no replay.
    Authenticated,
    /// Nothing: anybody can make such a datagram.
    Unknown,
}

/// The protocol engine of one node.
#[derive(Debug)]
pub struct Engine {
    shared: Shared,
    mac1_key: Mac1Key,
    limits: Limits,
    parameters: Arc<Parameters>,
    /// Those with configured and with unknown peers, and those that ended.
    associations: Vec<Association>,
    /// The configured peers, in the configuration's order.
    configured: Vec<usize>,
    /// Places of associations that ended.
    vacant: Vec<usize>,
    by_key: BTreeMap<PublicKey, usize>,
    former: FormerPeers,
    /// Associations to be flushed after a batch, and the one that is flushed first.
    touched: Touched,
    turn: usize,
    /// The timeout of each association, and the same ordered by time.
    timeouts: Vec<Option<Instant>>,
    schedule: BTreeSet<(Instant, usize)>,
    replies: Replies,
    refusals: Bucket,
    /// The most work that one datagram has caused, see [`most_work`](Self::most_work).
    most_work: u64,
    handshake_sources: HandshakeSources,
    cookies: CookieJar,
    /// Unknown peers, if the configuration permits them.
    unknown: Option<Box<UnknownPeers>>,
}

impl Engine {
    /// An engine with `config`. `seed` must be 32 bytes of the operating system's randomness (or a
    /// test's fixed value); `unix_time` is the wall clock at `now`, see [`Command::WallClock`].
    pub fn new(config: Config, seed: [u8; 32], now: Instant, unix_time: Duration) -> Self {
        let mut rng = Rng::new(seed);
        let public_key = *config.private_key.public_key();
        let mut prefixes = PrefixTable::default();
        let mut by_key = BTreeMap::new();
        let mut associations = Vec::with_capacity(config.peers.len());
        let mut endpoints = Vec::new();
        let parameters = Arc::new(config.parameters);
        for (index, peer) in config.peers.into_iter().enumerate() {
            by_key.insert(peer.public_key, index);
            for (prefix, source) in peer.claims() {
                prefixes.claim(prefix, index, source);
            }
            endpoints.extend(peer.endpoints.iter().map(SocketAddr::ip));
            associations.push(Association::new(peer, &config.limits, &parameters, &mut rng, now));
        }
        let unknown = config.opportunistic;
        let pins = config.limits.pins;
        let unknown =
            unknown.map(|settings| Box::new(UnknownPeers::new(settings, pins, rng.bytes())));
        let instance = u64::from_be_bytes(rng.bytes());
        let draws = ChaCha8Rng::from_seed(rng.bytes());
        let cookies = CookieJar::new(&mut rng, &public_key);
        let handshake_sources =
            HandshakeSources::new(now, endpoints.into_iter(), [rng.bytes(), rng.bytes()]);
        let shared = Shared {
            private_key: Arc::new(config.private_key),
            aes_in_hardware: config.aes_in_hardware,
            instance,
            unix_origin: unix_time.saturating_sub(now.since(Instant::ZERO)),
            timestamps: TimestampSource::new(),
            rng,
            draws,
            locals: Arc::new([]),
            interfaces: Arc::default(),
            own: Vec::new(),
            rules: RuleTable::new(config.rules),
            prefixes,
            indices: BTreeMap::new(),
            translations: Translations::new(config.limits.translated),
            captures: BTreeMap::new(),
            events: VecDeque::new(),
            drops: Drops::default(),
            challenges: Bucket::new(),
            hold: HoldPool::new(config.limits.resequencing_all, config.parameters.release),
            jobs: Jobs::default(),
            host_messages: HostMessages::default(),
            plain: PlainPackets::default(),
            work: 0,
            shared_keys: None,
        };
        let mut engine = Self {
            shared,
            mac1_key: Mac1Key::of(&public_key),
            timeouts: vec![None; associations.len()],
            schedule: BTreeSet::new(),
            configured: (0..associations.len()).collect(),
            vacant: Vec::new(),
            associations,
            by_key,
            former: FormerPeers::default(),
            touched: Touched::default(),
            turn: 0,
            replies: Replies::default(),
            refusals: Bucket::new(),
            most_work: 0,
            cookies,
            handshake_sources,
            limits: config.limits,
            parameters,
            unknown,
        };
        for peer in 0..engine.associations.len() {
            // Some captures exist whether or not the peer can be reached.
            if engine.associations[peer].config.host_mode {
                engine.schedule_at(peer, Some(now));
            }
        }
        engine
    }

    /// Handles a datagram from the network, which is opened in place. Inner packets that are due go
    /// to `packets`. Datagrams in reply wait for the next [`flush`](Self::flush). Returns what the
    /// datagram proves about its sender.
    ///
    /// # Errors
    ///
    /// Why the datagram was refused. The refusal is counted and has no other effect.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        from: PathAddress,
        ecn: Ecn,
        datagram: &mut [u8],
        packets: &mut impl PacketSink,
    ) -> Result<Sender, DropReason> {
        self.handle_opened(now, from, ecn, (datagram, Opened::NotYet), packets)
    }

    /// As [`handle_datagram`](Self::handle_datagram), for a datagram that may have been opened
    /// before, by a [key](Self::poll_key) of this engine. What that key returned stands beside it.
    ///
    /// # Errors
    ///
    /// The same as without that.
    pub fn handle_opened(
        &mut self,
        now: Instant,
        from: PathAddress,
        ecn: Ecn,
        (datagram, opened): (&mut [u8], Opened),
        packets: &mut impl PacketSink,
    ) -> Result<Sender, DropReason> {
        let message = MessageType::of(datagram);
        let handled = match message {
            Ok(MessageType::Transport) => {
                self.on_transport(now, (from, ecn), (datagram, opened), packets)
            }
            Ok(MessageType::Initiation) => self.on_initiation(now, from, datagram),
            Ok(MessageType::Response) => self.on_response(now, from, datagram),
            Ok(MessageType::CookieReply) => self.on_cookie_reply(now, datagram),
            Ok(MessageType::Query) => self.on_query(now, from, datagram),
            Ok(MessageType::Answer) => self.on_answer(now, from, datagram),
            Err(_) => Err(DropReason::Malformed),
        };
        handled.map_err(|reason| self.refuse(reason))?;
        Ok(match message {
            Ok(MessageType::Transport) => Sender::Authenticated,
            // Jobs read handshake messages later.
            _ => Sender::Unknown,
        })
    }

    /// Sends what a batch of packets or datagrams caused or made room for. Call it once after every
    /// batch of [`handle_tun`](Self::handle_tun) or [`handle_datagram`](Self::handle_datagram).
    pub fn flush(&mut self, now: Instant, out: &mut impl DatagramSink) {
        self.replies.send(out);
        let first = self.turn;
        let mut waits = None;
        while let Some(peer) = self.touched.next(first) {
            let (association, mut cx) = self.association(peer);
            association.tell_lanes(&cx);
            association.transmit(now, &mut cx, out);
            if association.has_handshake_to_send() {
                waits.get_or_insert(peer);
            }
            self.reschedule(peer);
            self.follow_node(now, peer);
        }
        // When sockets are full, the first association that found no room is the first next time.
        self.turn = waits.unwrap_or(first);
    }

    /// Runs what is due at `now`: see [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout(
        &mut self,
        now: Instant,
        datagrams: &mut impl DatagramSink,
        packets: &mut impl PacketSink,
    ) {
        while let Some(&(at, peer)) = self.schedule.first()
            && at <= now
        {
            let (association, mut cx) = self.association(peer);
            association.tell_lanes(&cx);
            association.on_timeout(now, &mut cx, datagrams, packets);
            self.touched.remove(peer);
            self.reschedule_after(peer, now);
            self.follow_node(now, peer);
        }
        self.run_unknown(now, datagrams);
        self.flush(now, datagrams);
        self.shared.host_messages.deliver(packets);
    }

    /// `local` accepts datagrams again after it refused a reservation.
    pub fn handle_writable(&mut self, now: Instant, local: LocalId, out: &mut impl DatagramSink) {
        for peer in 0..self.associations.len() {
            if self.associations[peer].unblock(local) {
                self.touched.insert(peer);
            }
        }
        self.flush(now, out);
    }

    /// The host has no buffer left for a packet: drops a part of the longest queue of the peer for
    /// which most packets wait, so that no session and no peer keeps the others from sending.
    /// Returns `false` if nothing waits.
    pub fn make_room(&mut self) -> bool {
        let longest = self.associations.iter_mut().max_by_key(|association| association.waiting());
        longest.is_some_and(Association::make_room)
    }

    /// The host refused to send from `local` to `remote`: it has no route, or the link is down. A
    /// path there fails at once instead of after missing answers. Packets move to other paths at
    /// the next [`flush`](Self::flush).
    pub fn handle_unreachable(&mut self, now: Instant, local: LocalId, remote: SocketAddr) {
        for peer in 0..self.associations.len() {
            let (association, mut cx) = self.association(peer);
            if association.on_unreachable(now, &mut cx, PathAddress { local, remote }) {
                self.touched.insert(peer);
                self.reschedule(peer);
            }
        }
    }

    /// An ICMP error says that nobody listens at `remote`. Anybody can forge one, so a path there
    /// is only probed, and fails sooner than usual if there is no answer. More than 100 in a second
    /// are ignored.
    pub fn handle_refused(&mut self, now: Instant, local: LocalId, remote: SocketAddr) {
        if !self.refusals.take(now, REFUSALS) {
            return;
        }
        for peer in 0..self.associations.len() {
            if self.associations[peer].on_refused(now, PathAddress { local, remote }) {
                self.touched.insert(peer);
                self.schedule_at(peer, Some(now));
            }
        }
    }

    /// Applies a change of the host. Datagrams that follow from it are sent at the next
    /// [`handle_timeout`](Self::handle_timeout), which is then due at once.
    pub fn handle_command(&mut self, now: Instant, command: Command) {
        let routes = matches!(command, Command::RoutesChanged);
        let shutdown = matches!(command, Command::Shutdown);
        match command {
            Command::LocalAddresses(locals) => self.shared.locals = locals.into(),
            Command::OwnAddresses(own) => return self.follow_own_addresses(own),
            Command::Networks(networks) => return self.shared.rules.set_networks(&networks),
            Command::Interfaces(interfaces) => return self.follow_interfaces(now, interfaces),
            Command::WallClock(unix_time) => {
                self.shared.unix_origin = unix_time.saturating_sub(now.since(Instant::ZERO));
                return;
            }
            Command::UnknownPeers(peer) => return self.change_unknown(now, peer),
            Command::RoutesChanged | Command::Shutdown => {}
        }
        for peer in 0..self.associations.len() {
            let (association, mut cx) = self.association(peer);
            if routes && !association.on_routes(now) {
                continue;
            } else if shutdown {
                association.shut_down();
            } else if !routes {
                association.on_local_addresses(now, &mut cx);
            }
            self.touched.insert(peer);
            self.schedule_at(peer, Some(now));
        }
    }

    fn follow_own_addresses(&mut self, mut own: Vec<IpAddr>) {
        own.sort_unstable();
        let former = core::mem::replace(&mut self.shared.own, own);
        if former.iter().all(|address| self.shared.own.binary_search(address).is_ok()) {
            return;
        }
        self.review_sessions();
    }

    /// Addresses or prefixes have changed.
    fn review_sessions(&mut self) {
        for peer in 0..self.associations.len() {
            let (association, cx) = self.association(peer);
            association.review_sessions(&cx);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) must be called next at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let unknown = self.unknown.as_ref().and_then(|unknown| unknown.next_timeout());
        let first = self.schedule.first().map(|(at, _)| *at);
        [first, unknown, self.shared.host_messages.due()].into_iter().flatten().min()
    }

    /// Has the keys shared that open datagrams: [`poll_key`](Self::poll_key) returns those that are
    /// agreed from now on.
    pub fn share_keys(&mut self) {
        self.shared.shared_keys.get_or_insert_default();
    }

    /// The next change of the keys that open datagrams, if they are [shared](Self::share_keys).
    /// Poll after each [`flush`](Self::flush), and not before: it tells new keys what numbers have
    /// been received. Such a key can open datagrams before they are given to
    /// [`handle_opened`](Self::handle_opened), on any thread, and without order.
    pub fn poll_key(&mut self) -> Option<KeyChange> {
        self.shared.shared_keys.as_mut()?.changes.pop_front()
    }

    /// The next event, oldest first. The number of waiting events is bounded: the oldest are
    /// dropped.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// What the host has to capture for a peer in host mode, if that changed. Unlike events,
    /// changes are never lost.
    pub fn poll_capture(&mut self) -> Option<Capture> {
        self.shared.captures.pop_first().map(|(_, capture)| capture)
    }

    /// The ports whose UDP to `peer` stays plain, when a [`Capture`] asks for them. They are those
    /// in use now that the capture is set up, because flows from there may have begun as plain IP,
    /// and those of services.
    pub fn handle_plain_udp_ports(&mut self, peer: &str, ports: PortSet) {
        let named = |index: &&usize| self.associations[**index].config.name == peer;
        if let Some(index) = self.configured.iter().find(named) {
            self.associations[*index].on_plain_udp_ports(ports);
        }
    }

    /// Whether nothing waits to be sent or to be acknowledged.
    pub fn is_quiet(&self) -> bool {
        self.associations.iter().all(Association::is_quiet)
    }

    /// Whether sessions with peers in host mode use `address` as their end on this host.
    pub fn uses_address(&self, address: IpAddr) -> bool {
        self.shared.translations.uses_address(address)
            || self.associations.iter().any(|association| association.uses_address(address))
    }

    /// The most work that one datagram has caused, in iterations of loops whose length peers
    /// control. For each unit of [work](mpip_wire::WORK_MAX) a datagram costs a small number of
    /// iterations. In addition, each packet in flight that it acknowledges or shows to be lost, and
    /// each held packet that it releases, costs one, once.
    pub fn most_work(&self) -> u64 {
        self.most_work
    }

    /// Statistics. `sessions` adds the list of sessions.
    pub fn status(&self, now: Instant, sessions: bool) -> Status {
        let status = |peer: usize| {
            let mut status = self.associations[peer].status(now, sessions);
            status.translated += self.shared.translations.count(peer);
            status
        };
        let unknown = (0..self.associations.len()).filter(|peer| self.is_node(*peer));
        let peers = self.configured.iter().copied().chain(unknown);
        // Packets that were not held for resequencing because memory was exhausted.
        let refused = self.shared.hold.refused();
        let not_held = (refused > 0).then_some(("not_held", refused));
        Status {
            node: self.shared.private_key.public_key().node_id(),
            peers: peers.map(status).collect(),
            drops: self.shared.drops.named().chain(not_held).collect(),
        }
    }

    /// What each path has carried, of all associations.
    pub fn path_traffic(&self) -> impl Iterator<Item = PathTraffic<'_>> {
        let associations = self.associations.iter().enumerate();
        associations.flat_map(|(place, association)| {
            association.paths().map(move |path| PathTraffic {
                place,
                id: path.id.0,
                opened: path.opened,
                interface: &path.interface,
                bytes: path.traffic(),
            })
        })
    }

    /// Traces the association with `peer` to `sink`, replacing a former sink. Returns `false` if
    /// there is no such peer.
    pub fn trace(&mut self, peer: &str, sink: Box<dyn TraceSink>) -> bool {
        let named = |index: &&usize| self.associations[**index].config.name == peer;
        let Some(index) = self.configured.iter().find(named) else { return false };
        self.associations[*index].trace = Trace::to(sink);
        true
    }

    /// Packets of this host's `session` take the path `path` of their peer only, as long as it
    /// works, or any again with `None`. For measurements: other sessions with that peer wait while
    /// the path is full. Returns `false` if the session's destination belongs to no peer.
    pub fn confine(&mut self, session: SessionKey, path: Option<u16>) -> bool {
        let Some(peer) = self.shared.prefixes.find(session.destination.address) else {
            return false;
        };
        self.associations[peer].confine(session, path.map(PathId));
        true
    }

    /// Which paths a packet of `len` bytes to `address` would take now, if the rule at `rule` (its
    /// index) decides about it; the default without one. `None` if the address is no peer's.
    pub fn way(
        &mut self,
        now: Instant,
        address: IpAddr,
        rule: Option<usize>,
        len: usize,
    ) -> Option<Way> {
        let peer = self.shared.prefixes.find(address)?;
        let treatment = self.shared.rules.treatment_of(rule);
        let (association, cx) = self.association(peer);
        Some(association.way(now, &treatment, len, &cx))
    }

    /// The name of the configured peer whose packets may come from `address`. This host's own
    /// addresses belong to no peer.
    pub fn peer_at(&self, address: IpAddr) -> Option<&str> {
        if self.shared.own.binary_search(&address).is_ok() {
            return None;
        }
        let peer = self.shared.prefixes.find_source(address)?;
        self.configured.contains(&peer).then(|| self.associations[peer].config.name.as_str())
    }

    /// The interface behind which the host with `address` is, as rules match it; `None` for this
    /// host and those of which that is not known.
    pub fn interface_at(&self, address: IpAddr) -> Option<&str> {
        self.shared.rules.interface_of(address)
    }

    fn refuse(&mut self, reason: DropReason) -> DropReason {
        self.shared.drops.count(reason);
        reason
    }

    /// Splits the engine into one association and its context.
    fn association(&mut self, peer: usize) -> (&mut Association, Context<'_>) {
        while self.shared.events.len() > EVENTS {
            self.shared.events.pop_front();
        }
        let cx = Context { me: peer, shared: &mut self.shared };
        (&mut self.associations[peer], cx)
    }

    fn reschedule(&mut self, peer: usize) {
        let at = self.associations[peer].next_timeout();
        self.schedule_at(peer, at);
    }

    /// After a timeout the next one lies in the future, even if the association asks for an earlier
    /// one: a timer that cannot act must not keep the host busy.
    fn reschedule_after(&mut self, peer: usize, now: Instant) {
        let at = self.associations[peer].next_timeout();
        let soonest = now + Duration::from_micros(50);
        self.schedule_at(peer, at.map(|at| at.max(soonest)));
    }

    fn schedule_at(&mut self, peer: usize, at: Option<Instant>) {
        if self.timeouts[peer] == at {
            return;
        }
        if let Some(former) = core::mem::replace(&mut self.timeouts[peer], at) {
            self.schedule.remove(&(former, peer));
        }
        self.schedule.extend(at.map(|at| (at, peer)));
    }

    fn on_transport(
        &mut self,
        now: Instant,
        from: (PathAddress, Ecn),
        (datagram, opened): (&mut [u8], Opened),
        packets: &mut impl PacketSink,
    ) -> Result<(), DropReason> {
        let view = TransportPacket::new_checked(datagram).map_err(|_| DropReason::Malformed)?;
        let clear = (view.header(), view.header_len());
        let index = clear.0.receiver.0;
        let peer = *self.shared.indices.get(&index).ok_or(DropReason::UnknownIndex)?;
        self.shared.work = 0;
        let (association, mut cx) = self.association(peer);
        let datagram = (datagram, opened);
        let handled = association.on_transport(now, from, clear, datagram, &mut cx, packets);
        let work =
            cx.shared.work + cx.shared.hold.take_steps() + cx.shared.translations.take_steps();
        self.most_work = self.most_work.max(work);
        // An authentic datagram may need an answer, even on an abandoned path.
        if matches!(handled, Ok(()) | Err(DropReason::UnknownPath)) {
            self.touched.insert(peer);
        }
        handled
    }
}

#[cfg(any(test, fuzzing))]
pub mod check;
#[cfg(any(test, fuzzing))]
mod harness;
#[cfg(test)]
mod requirements;
#[cfg(test)]
mod tests;
