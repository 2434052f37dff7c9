//! An association: everything between this node and one peer.
//!
//! The files are its sides: [`keys`] and [`handshake`] make it, [`paths`] keeps its paths,
//! [`outgoing`] and [`incoming`] carry packets, [`control`] says everything else to the peer,
//! [`too_big`] to the senders of packets that do not fit, [`host`] whose addresses are whose in host
//! mode, [`told`] which of the peer's are believed, [`translated`] what translators on the way make of them, [`rest`] when the paths rest, [`early`]
//! what may leave before a path works. Nonces are assigned in sequence, in [`departure`] alone.

mod benefit;
mod control;
mod departure;
mod early;
mod encapsulation;
pub(crate) mod handshake;
mod handshakes;
pub(crate) mod host;
mod identity;
mod incoming;
#[cfg(any(test, fuzzing))]
pub(crate) mod inspect;
mod keys;
mod moving;
pub(crate) mod outbox;
mod outgoing;
mod path_ids;
mod path_set;
mod paths;
mod playout;
mod receiving;
mod rest;
mod told;
mod too_big;
mod translated;

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mpip_crypto::{NodeId, PrivateKey, Rng, TimestampSource};
use mpip_wire::{AckRange, Ranges};
use rand_chacha::ChaCha8Rng;

use self::early::Proven;
use self::handshakes::Handshakes;
use self::host::HostMode;
use self::identity::Identity;
use self::keys::KeyRing;
use self::outbox::{Notice, Outbox};
use self::path_set::{PathIndex, PathSet};
use self::receiving::Receiving;
use self::rest::Network;
use self::told::Told;
use self::too_big::Allowance;
use crate::capture::Capture;
use crate::config::{Limits, PeerConfig};
use crate::content::Path;
use crate::content::{Cargo, Content};
use crate::drops::{DropReason, Drops};
use crate::event::Event;
use crate::guard::{Guard, Period};
use crate::handshake::Jobs;
use crate::host_packets::{Plain, Returns};
use crate::path_status;
use crate::prefixes::PrefixTable;
use crate::queue::SendQueue;
use crate::resequencer::{HoldPool, WAIT_BUCKETS};
use crate::rules::RuleTable;
use crate::scheduler::{self, Candidate, Scheduler};
use crate::sending::Sending;
use crate::session::Order;
use crate::status::{PeerStatus, SessionStatus};
use crate::trace::Trace;
use crate::translation::Translations;
use mpip_transport::Losses;
use mpip_transport::PathState;
use mpip_transport::cc::Subflow;
use mpip_types::Bucket;
use mpip_types::Instant;
use mpip_types::packet::Segments;
use mpip_types::{DatagramSink, LocalId, PacketSink};
use mpip_types::{LocalAddress, Prefix};

/// What an association may use of its engine.
pub(crate) struct Context<'a> {
    /// Index of the association at hand.
    pub(crate) me: usize,
    pub(crate) private_key: &'a Arc<PrivateKey>,
    pub(crate) aes_in_hardware: bool,
    /// Random number of this run.
    pub(crate) instance: u64,
    /// Wall clock at the engine's origin of time.
    pub(crate) unix_origin: Duration,
    pub(crate) timestamps: &'a mut TimestampSource,
    pub(crate) rng: &'a mut Rng,
    pub(crate) draws: &'a mut ChaCha8Rng,
    pub(crate) locals: &'a [LocalAddress],
    /// All addresses of this host, in order.
    pub(crate) own: &'a [IpAddr],
    pub(crate) rules: &'a RuleTable,
    /// Whose an inner address is.
    pub(crate) prefixes: &'a mut PrefixTable,
    /// What the host is to capture from now on, by peer.
    pub(crate) captures: &'a mut BTreeMap<String, Capture>,
    /// Connections of peers behind translators.
    pub(crate) translations: &'a mut Translations,
    /// Which association a receiver index belongs to.
    pub(crate) indices: &'a mut BTreeMap<u32, usize>,
    pub(crate) events: &'a mut VecDeque<Event>,
    pub(crate) drops: &'a mut Drops,
    /// Challenges to addresses that peers told, of all associations.
    pub(crate) challenges: &'a mut Bucket,
    /// Memory of what waits for earlier packets, of all associations.
    pub(crate) hold: &'a mut HoldPool,
    /// Public-key work that waits to be done.
    pub(crate) jobs: &'a mut Jobs,
    /// Packets of our own for the host.
    pub(crate) returns: &'a mut Returns,
    /// Packets that the host is to send itself.
    pub(crate) plain: &'a mut Plain,
    /// Passes of loops whose number peers decide, see [`Engine::most_work`](crate::Engine::most_work).
    pub(crate) work: &'a mut u64,
}

impl Context<'_> {
    /// Whether this host has the address `ip`.
    pub(crate) fn is_ours(&self, ip: IpAddr) -> bool {
        self.own.binary_search(&ip).is_ok()
            || self.locals.iter().any(|local| local.address.ip() == ip)
    }

    /// The wall clock, as time since 1970-01-01 00:00 UTC.
    pub(crate) fn unix_time(&self, now: Instant) -> Duration {
        self.unix_origin + now.since(Instant::ZERO)
    }
}

/// Everything between this node and one peer.
#[derive(Debug)]
pub(crate) struct Association {
    pub(crate) config: PeerConfig,
    pub(crate) node: NodeId,
    limits: Limits,
    keys: KeyRing,
    handshakes: Handshakes,
    identity: Identity,

    paths: PathSet,
    proven: Proven,
    peer_addresses: Vec<core::net::SocketAddr>,
    peer_generation: u64,
    told: Told,
    /// Generation of our own address list.
    generation: u64,
    /// How often a path changed its state.
    pub(crate) path_changes: u64,
    outbox: Outbox,
    /// A status frame of the datagram at hand has changed which paths the peer keeps ready only.
    standby_changed: bool,
    delay_reference: Option<u32>,
    /// A path jitters: what only acknowledges does not wait for its turn.
    uneven: bool,
    /// The paths' delays differ so much that the inner TCP takes the longer ones for a queue.
    thins: bool,
    period_at: Instant,
    periods: u32,
    inner_mtu: u16,
    /// How many senders may be told of the inner MTU.
    allowance: Allowance,

    /// Which paths are left out because the others carry more without them, and what left in
    /// this period.
    guard: Guard,
    benefit: Period,
    scheduler: Box<dyn Scheduler>,
    candidates: Vec<Candidate>,
    candidate_paths: Vec<PathIndex>,
    subflows: Vec<Subflow>,
    losses: Losses<Content>,

    outgoing: Sending,
    next_session: u32,
    queue: SendQueue<Segments>,
    repairs: VecDeque<Cargo>,
    busy_since: Instant,
    idle_since: Option<Instant>,
    /// Since when no path works, although there are keys.
    outage_since: Option<Instant>,
    /// When an inner packet last travelled, in either direction, and whether that is so long ago that
    /// the paths rest.
    traffic_at: Instant,
    resting: bool,
    networks: Vec<Network>,
    /// How long the peer is to wait for gaps, as last computed, and how often that has changed.
    wait_told: Duration,
    wait_sequence: u64,

    receiving: Receiving,

    pub(crate) trace: Trace,
    bytes_sent: u64,
    host: HostMode,
}

impl Association {
    pub(crate) fn new(config: PeerConfig, limits: &Limits, rng: &mut Rng, now: Instant) -> Self {
        Self {
            node: config.public_key.node_id(),
            limits: limits.clone(),
            keys: KeyRing::default(),
            handshakes: Handshakes::new(&config, now),
            identity: Identity::default(),
            paths: PathSet::new(limits.paths),
            proven: Proven::default(),
            peer_addresses: Vec::new(),
            peer_generation: 0,
            told: Told::default(),
            generation: 1,
            path_changes: 0,
            outbox: Outbox::new(now),
            standby_changed: false,
            delay_reference: None,
            uneven: false,
            thins: false,
            period_at: now,
            periods: 0,
            inner_mtu: 0,
            allowance: Allowance::new(now),
            guard: Guard::default(),
            benefit: Period::default(),
            scheduler: scheduler::new(&config),
            candidates: Vec::new(),
            candidate_paths: Vec::new(),
            subflows: Vec::new(),
            losses: Losses::default(),
            outgoing: Sending::new(limits.sessions, rng.bytes()),
            next_session: 0,
            queue: SendQueue::new(limits.send_queue, limits.sessions),
            repairs: VecDeque::new(),
            busy_since: now,
            idle_since: Some(now),
            outage_since: None,
            traffic_at: now,
            resting: false,
            networks: Vec::new(),
            wait_told: Duration::ZERO,
            wait_sequence: 0,
            receiving: Receiving::new(limits.sessions, limits.resequencing, rng.bytes()),
            trace: Trace::default(),
            bytes_sent: 0,
            host: HostMode::of(&config),
            config,
        }
    }

    /// The host's addresses changed.
    pub(crate) fn on_local_addresses(&mut self, now: Instant, cx: &mut Context<'_>) {
        self.generation += 1;
        self.outbox.owe(Notice::Addresses);
        self.drop_homeless_handshakes(cx.locals);
        self.follow_local_addresses(now, cx);
        if self.keys.current().is_some() {
            self.open_paths(now, cx);
        } else if !self.config.endpoints.is_empty() && !self.handshakes.is_planned() {
            self.handshakes.plan(Some(now));
        }
        self.period_at = now;
    }

    /// The socket of `local` takes datagrams again. Returns whether a path or a handshake waited for it.
    pub(crate) fn unblock(&mut self, local: LocalId) -> bool {
        let mut any = self.has_handshake_to_send();
        for path in self.paths.iter_mut().filter(|path| path.address.local == local) {
            any |= core::mem::take(&mut path.blocked);
        }
        any
    }

    /// Says goodbye at the next opportunity.
    pub(crate) fn shut_down(&mut self) {
        if self.keys.current().is_some() {
            self.outbox.owe(Notice::Close);
        }
    }

    /// The first handshake leaves from this address of ours only; from every one if it is `None`.
    pub(crate) fn begin_from(&mut self, address: Option<IpAddr>) {
        self.handshakes.first_from = address;
    }

    /// Whether there are keys that the peer has confirmed.
    pub(crate) fn is_established(&self) -> bool {
        self.identity.is_established()
    }

    /// Where the peer receives: the remote addresses of its validated paths, and whether it says
    /// that they are its own. Behind a translator they are not.
    pub(crate) fn proven_addresses(&self) -> impl Iterator<Item = (IpAddr, bool)> {
        let validated = self.paths.validated();
        validated.map(|path| {
            let ip = path.address.remote.ip();
            (ip, self.peer_addresses.iter().any(|told| told.ip() == ip))
        })
    }

    /// Whether no session is known.
    pub(crate) fn is_idle(&self) -> bool {
        self.outgoing.is_empty() && self.receiving.sessions().is_empty()
    }

    /// Whether nothing waits to be sent or to be acknowledged on a path that works.
    pub(crate) fn is_quiet(&self) -> bool {
        let busy = |path: &Path| path.is_usable() && path.flight.in_flight() > 0;
        !self.has_waiting() && !self.paths.iter().any(busy)
    }

    /// Whether packets wait to be sent.
    fn has_waiting(&self) -> bool {
        !self.queue.is_empty() || !self.repairs.is_empty()
    }

    /// Does what is due.
    pub(crate) fn on_timeout(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        out: &mut impl DatagramSink,
        packets: &mut impl PacketSink,
    ) {
        self.expire_keys(now, cx);
        self.run_handshake(now, cx);
        self.take_deferred_addresses(now, cx);
        self.check_paths(now, cx);
        if now >= self.period_at {
            self.run_period(now, cx);
        }
        if self.host.release_at.take().is_some() {
            self.receiving.release_all(now, cx.hold, packets);
        }
        self.receiving.release_overdue(now, cx.hold, packets);
        self.transmit(now, cx, out);
    }

    /// When [`on_timeout`](Self::on_timeout) is to be called next.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let waiting = self.has_waiting();
        let keys =
            [self.keys.expires_at(), self.handshakes.due(&self.keys), self.deferred_addresses_at()];
        let period = self.keys.current().is_some().then_some(self.period_at);
        let gap = self.receiving.next_timeout();
        let alone = self.paths.none_answers();
        let paths = self.paths.iter().filter_map(|path| path.next_timeout(waiting, alone)).min();
        keys.into_iter().chain([period, gap, paths, self.capture_timeout()]).flatten().min()
    }

    /// Forgets paths and sessions: the peer has none of them any more.
    fn reset(&mut self, now: Instant, cx: &mut Context<'_>) {
        for index in self.paths.indices() {
            self.change_state(now, cx, index, PathState::Abandoned, "the association ended");
        }
        if self.goes_on_plain() {
            self.give_back(now, cx);
        }
        self.paths = PathSet::new(self.limits.paths);
        self.proven = Proven::default();
        self.peer_addresses.clear();
        self.peer_generation = 0;
        self.told.reset();
        self.outbox.reset();
        self.delay_reference = None;
        self.guard = Guard::default();
        self.outgoing = Sending::new(self.limits.sessions, cx.rng.bytes());
        self.next_session = 0;
        self.queue = SendQueue::new(self.limits.send_queue, self.limits.sessions);
        self.repairs.clear();
        self.receiving.reset(self.limits.sessions, cx.rng.bytes(), cx.hold);
        self.wait_told = Duration::ZERO;
        self.wait_sequence = 0;
        self.resting = false;
        self.identity.end();
        self.review_capture();
    }

    /// Fills `subflows` for coupled congestion control; returns the index of path `own` in it. The
    /// coupled controls are so on all paths (RFC 6356), the others on those that share a bottleneck.
    fn gather_subflows(&mut self, own: PathIndex) -> usize {
        self.subflows.clear();
        let couples_all = self.config.congestion_control.couples_all();
        let bottleneck = self.paths[own].bottleneck;
        let mut position = 0;
        for (index, path) in self.paths.enumerate() {
            if index == own {
                position = self.subflows.len();
            } else if path.state() != PathState::Active
                || !couples_all && path.bottleneck != bottleneck
            {
                continue;
            }
            self.subflows.push(path.subflow());
        }
        position
    }

    /// Statistics.
    pub(crate) fn status(&self, now: Instant, sessions: bool) -> PeerStatus {
        let fastest = self.paths.validated();
        let fastest = fastest.filter_map(|path| path.delay.average()).min();
        let carried = self.paths.iter().map(|path| path.counters.carried).sum();
        let counters = self.queue.counters();
        let path = |path: &Path| {
            let weight = self.scheduler.weight(path.id.0).unwrap_or(0);
            let part = self.guard.part(path.id.0);
            path_status::of(path, fastest, carried, weight, part)
        };
        PeerStatus {
            name: self.config.name.clone(),
            node: self.node,
            established: self.identity.is_established(),
            opener: self.identity.opens(),
            handshake_age: self.handshakes.completed_at().map(|at| now.since(at)),
            aead: self.keys.current().map(|epoch| handshake::aead_name(epoch.keys.send.aead())),
            scheduler: self.config.scheduler.name(),
            congestion_control: self.config.congestion_control.name(),
            inner_mtu: self.inner_mtu,
            host_mode: self.config.host_mode,
            policy: self.config.policy,
            traffic: self.config.host_mode.then_some(self.host.traffic),
            captured: self.host.captured(),
            translators: self.host.translators.iter().copied().map(Prefix::host).collect(),
            translated: self.host.begun.len(),
            bytes_sent: self.bytes_sent,
            bytes_received: self.receiving.bytes(),
            queued: self.queue.bytes(),
            queue_drops: counters.dropped_codel + counters.dropped_overflow,
            queue_marks: counters.marked,
            resequencing: self.receiving.share().waiting(),
            paths: self.paths.iter().map(path).collect(),
            sessions: if sessions { self.session_status(now) } else { Vec::new() },
        }
    }

    fn session_status(&self, now: Instant) -> Vec<SessionStatus> {
        let address = |end: mpip_types::packet::Endpoint| (end.address, end.port).into();
        let idle = |used: Option<Instant>| used.map_or(Duration::ZERO, |used| now.since(used));
        let outgoing = self.outgoing.iter().map(|(slot, key, session)| SessionStatus {
            id: session.id.0,
            outgoing: true,
            protocol: key.protocol,
            source: address(key.source),
            destination: address(key.destination),
            packets: session.counters.packets,
            bytes: session.counters.bytes,
            repaired: session.repaired,
            longest_wait: Duration::ZERO,
            waits: [0; WAIT_BUCKETS],
            idle: idle(self.outgoing.used(slot)),
        });
        let incoming = self.receiving.sessions().iter().map(|(slot, id, session)| SessionStatus {
            id: id.0,
            outgoing: false,
            protocol: session.key.protocol,
            source: address(session.key.source),
            destination: address(session.key.destination),
            packets: session.counters.packets,
            bytes: session.counters.bytes,
            repaired: 0,
            longest_wait: session.order.as_ref().map_or(Duration::ZERO, Order::longest_wait),
            waits: session.order.as_ref().map_or([0; WAIT_BUCKETS], Order::waits),
            idle: idle(self.receiving.sessions().used(slot)),
        });
        outgoing.chain(incoming).collect()
    }
}

/// Room for the ranges of one feedback frame.
fn range_room() -> [AckRange; Ranges::MAX] {
    [AckRange { first: 0, last: 0 }; Ranges::MAX]
}

/// Counts a refusal and passes it on.
fn refuse(cx: &mut Context<'_>, reason: DropReason) -> DropReason {
    cx.drops.count(reason);
    reason
}
