//! An association: everything between this node and one peer.
//!
//! Its parts own their state ([`parts`](crate::parts)). The modules here combine the parts:
//! `handshake` negotiates keys; `paths`, `moving` and `early` manage the paths; `outgoing` and
//! `incoming` carry packets; `control` sends control frames; `too_big` answers packets that exceed
//! the MTU; `reload` changes settings; `advertised` decides which addresses that the peer
//! advertises are used; `rest` lets idle paths rest; `host` and `translated` implement host mode
//! and NAT. Only `departure` assigns packet numbers, and with them nonces.

mod advertised;
mod answers;
mod benefit;
mod control;
mod departure;
mod early;
mod encapsulation;
pub(crate) mod handshake;
pub(crate) mod host;
mod incoming;
#[cfg(any(test, fuzzing))]
pub(crate) mod inspect;
mod kept;
mod loss;
mod moving;
mod outgoing;
mod overtaking;
mod paths;
mod reload;
mod rest;
mod too_big;
mod translated;
mod way;

pub use paths::PATH_LINGER;

use core::net::IpAddr;
use core::time::Duration;
use std::sync::Arc;

use mpip_crypto::{NodeId, Rng};
use mpip_wire::{AckRange, Ranges};

use crate::aggregation::Reach;
use crate::config::{Limits, PeerConfig, Priority};
use crate::content::Content;
use crate::content::Path;
use crate::loss_standby::LossStandby;
use crate::parameters::Parameters;
use crate::parts::challenge_budget::ChallengeBudget;
use crate::parts::handshakes::Handshakes;
use crate::parts::host_mode::HostMode;
use crate::parts::identity::Identity;
use crate::parts::keys::KeyRing;
use crate::parts::outbox::{Notice, Outbox};
use crate::parts::path_set::{PathIndex, PathSet};
use crate::parts::peer_addresses::PeerAddresses;
use crate::parts::receiving::Receiving;
use crate::parts::resting::Resting;
use crate::parts::selection::Selection;
use crate::parts::sending::{Allowed, Sending};
use crate::path_status;
use crate::resequencer::WAIT_BUCKETS;
use crate::rules::PathLimit;
use crate::session::{Counters, Order};
use crate::shared::Context;
use crate::status::{PeerStatus, SessionStatus};
use crate::trace::Trace;
use mpip_transport::Losses;
use mpip_transport::PathState;
use mpip_transport::cc::Subflow;
use mpip_types::Bucket;
use mpip_types::Instant;
use mpip_types::Prefix;
use mpip_types::{DatagramSink, LocalId, PacketSink};

/// The timers of an association. Timers that are due at the same time run in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// Keys expire.
    Keys,
    /// The next handshake attempt.
    Handshake,
    /// An address list that exceeded the rate limit is applied.
    Addresses,
    /// Loss detection, probes, challenges and feedback of the paths.
    Paths,
    /// The end of a scheduler period.
    Period,
    /// After a fall-back to plain IP, packets held for resequencing are delivered at once.
    Release,
    /// The resequencing timeout of a gap.
    Gap,
    /// The capture is recomputed.
    Capture,
}

impl Timer {
    const ALL: [Self; 8] = [
        Self::Keys,
        Self::Handshake,
        Self::Addresses,
        Self::Paths,
        Self::Period,
        Self::Release,
        Self::Gap,
        Self::Capture,
    ];
}

/// The resequencing timeout advertised to the peer, and how often it has changed.
#[derive(Clone, Copy, Debug, Default)]
struct ResequencingTimeout {
    advertised: Duration,
    sequence: u64,
}

/// Everything between this node and one peer.
#[derive(Debug)]
pub(crate) struct Association {
    pub(crate) config: PeerConfig,
    pub(crate) node: NodeId,
    limits: Limits,
    parameters: Arc<Parameters>,
    keys: KeyRing,
    handshakes: Handshakes,
    identity: Identity,

    paths: PathSet,
    peer: PeerAddresses,
    /// Generation of this node's address list.
    generation: u64,
    /// Number of path state changes.
    pub(crate) path_changes: u64,
    outbox: Outbox,
    /// A status frame in the current datagram changed which paths the peer wants as standby.
    standby_changed: bool,
    delay_reference: Option<u32>,
    /// The delays of the paths differ so much that inner senders mistake the longer ones for
    /// queuing.
    thins: bool,
    reach: Reach,
    /// Bytes that paths in slow start will soon take from the queue.
    awaited: u64,
    /// The generation of the rules that the paths know.
    rules_followed: u32,
    period_at: Instant,
    periods: u32,
    inner_mtu: u16,
    /// Rate limit for "packet too big" messages to senders.
    messages: Bucket,

    selection: Selection,
    loss_standby: LossStandby,
    subflows: Vec<Subflow>,
    losses: Losses<Content>,

    sending: Sending,
    rest: Resting,
    challenge_budget: ChallengeBudget,
    resequencing_timeout: ResequencingTimeout,

    receiving: Receiving,

    pub(crate) trace: Trace,
    host: HostMode,
}

impl Association {
    pub(crate) fn new(
        config: PeerConfig,
        limits: &Limits,
        parameters: &Arc<Parameters>,
        rng: &mut Rng,
        now: Instant,
    ) -> Self {
        Self {
            node: config.public_key.node_id(),
            limits: limits.clone(),
            parameters: Arc::clone(parameters),
            keys: KeyRing::default(),
            handshakes: Handshakes::new(&config, now),
            identity: Identity::default(),
            paths: PathSet::new(limits.paths),
            peer: PeerAddresses::default(),
            generation: 1,
            path_changes: 0,
            outbox: Outbox::new(now),
            standby_changed: false,
            delay_reference: None,
            thins: false,
            reach: Reach::default(),
            awaited: 0,
            rules_followed: 0,
            period_at: now,
            periods: 0,
            inner_mtu: 0,
            messages: Bucket::new(),
            selection: Selection::new(&config, parameters),
            loss_standby: LossStandby::default(),
            subflows: Vec::new(),
            losses: Losses::default(),
            sending: Sending::new(now, limits, parameters, &config, rng.bytes()),
            rest: Resting::new(now),
            challenge_budget: ChallengeBudget::default(),
            resequencing_timeout: ResequencingTimeout::default(),
            receiving: Receiving::new(limits.sessions, limits.resequencing, rng.bytes()),
            trace: Trace::default(),
            host: HostMode::of(&config),
            config,
        }
    }

    /// The host's addresses changed.
    pub(crate) fn on_local_addresses(&mut self, now: Instant, cx: &mut Context<'_>) {
        self.generation += 1;
        self.outbox.owe(Notice::Addresses);
        self.drop_handshakes_without_local_address(&cx.shared.locals);
        self.follow_local_addresses(now, cx);
        if self.keys.current().is_some() {
            self.open_paths(now, cx);
        } else if !self.config.endpoints.is_empty() && !self.handshakes.is_planned() {
            self.handshakes.plan(Some(now));
        }
        self.period_at = now;
    }

    /// The socket of `local` accepts datagrams again. Returns whether a path or a handshake was
    /// waiting for it.
    pub(crate) fn unblock(&mut self, local: LocalId) -> bool {
        let mut any = self.has_handshake_to_send();
        for path in self.paths.iter_mut().filter(|path| path.address.local == local) {
            any |= core::mem::take(&mut path.blocked);
        }
        any
    }

    /// Sends a close frame at the next opportunity.
    pub(crate) fn shut_down(&mut self) {
        if self.keys.current().is_some() {
            self.outbox.owe(Notice::Close);
        }
    }

    /// Sends the first handshake from this local address only; `None`: from every one.
    pub(crate) fn begin_from(&mut self, address: Option<IpAddr>) {
        self.handshakes.first_from = address;
    }

    /// Whether there are keys that the peer has confirmed.
    pub(crate) fn is_established(&self) -> bool {
        self.identity.is_established()
    }

    /// The remote addresses of the peer's validated paths, each with whether the peer advertises it
    /// as its own. Behind a NAT it does not.
    pub(crate) fn proven_addresses(&self) -> impl Iterator<Item = (IpAddr, bool)> {
        let validated = self.paths.validated();
        validated.map(|path| {
            let ip = path.address.remote.ip();
            (ip, self.peer.has_ip(ip))
        })
    }

    /// Whether no session is known.
    pub(crate) fn is_idle(&self) -> bool {
        self.sending.sessions().is_empty() && self.receiving.sessions().is_empty()
    }

    /// Whether nothing waits to be sent, and nothing is unacknowledged on a path that works.
    pub(crate) fn is_quiet(&self) -> bool {
        let busy = |path: &Path| path.is_usable() && path.flight.in_flight() > 0;
        !self.has_waiting() && !self.paths.iter().any(busy)
    }

    /// Whether packets wait to be sent.
    fn has_waiting(&self) -> bool {
        self.sending.has_waiting()
    }

    /// Runs the timers that are due.
    pub(crate) fn on_timeout(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        out: &mut impl DatagramSink,
        packets: &mut impl PacketSink,
    ) {
        for timer in Timer::ALL {
            if timer != Timer::Paths && self.timeout(timer).is_none_or(|at| now < at) {
                continue;
            }
            match timer {
                Timer::Keys => self.expire_keys(now, cx),
                Timer::Handshake => self.run_handshake(now, cx),
                Timer::Addresses => self.take_deferred_addresses(now, cx),
                // Always runs: paths may also wait for other paths.
                Timer::Paths => self.check_paths(now, cx),
                Timer::Period => self.run_period(now, cx),
                Timer::Release => {
                    self.host.release_at = None;
                    let (receiving, context) = self.delivery(now, cx, packets);
                    receiving.release_all(now, context);
                }
                Timer::Gap => {
                    let (receiving, context) = self.delivery(now, cx, packets);
                    receiving.release_overdue(now, context);
                }
                // `transmit` updates the capture before it sends.
                Timer::Capture => {}
            }
        }
        self.transmit(now, cx, out);
    }

    /// When [`on_timeout`](Self::on_timeout) is to be called next.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        Timer::ALL.into_iter().filter_map(|timer| self.timeout(timer)).min()
    }

    /// When `timer` is due.
    fn timeout(&self, timer: Timer) -> Option<Instant> {
        match timer {
            Timer::Keys => self.keys.expires_at(),
            Timer::Handshake => self.handshakes.due(&self.keys),
            Timer::Addresses => self.peer.deferred_at(),
            Timer::Paths => {
                let (waiting, alone) = (self.has_waiting(), self.paths.none_answers());
                self.paths.iter().filter_map(|path| path.next_timeout(waiting, alone)).min()
            }
            Timer::Period => self.keys.current().map(|_| self.period_at),
            Timer::Release => self.host.release_at,
            Timer::Gap => self.receiving.next_timeout(),
            Timer::Capture => self.host.check_at(),
        }
    }

    /// Forgets paths and sessions: the peer no longer has them.
    fn reset(&mut self, now: Instant, cx: &mut Context<'_>) {
        for index in self.paths.indices() {
            self.change_state(now, cx, index, PathState::Abandoned, "the association ended");
        }
        if self.can_fall_back() {
            self.return_to_host(now, cx);
        }
        self.paths = PathSet::new(self.limits.paths);
        self.peer.reset();
        self.outbox.reset();
        self.delay_reference = None;
        self.selection.reset(&self.parameters);
        self.loss_standby = LossStandby::default();
        self.sending.reset(&self.limits, cx.shared.rng.bytes());
        self.receiving.reset(self.limits.sessions, cx.shared.rng.bytes(), &mut cx.shared.hold);
        self.resequencing_timeout = ResequencingTimeout::default();
        self.rest.end();
        self.identity.end();
        self.review_capture();
    }

    /// Fills `subflows` for coupled congestion control; returns the index of path `own` in it.
    /// Coupled algorithms couple all paths (RFC 6356), the others only paths that share a
    /// bottleneck.
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

    /// Every path.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter()
    }

    /// Packets of the host that wait to be sent.
    pub(crate) fn waiting(&self) -> usize {
        self.sending.queue().len()
    }

    /// Drops a part of the longest queue. Returns `false` if nothing waits.
    pub(crate) fn make_room(&mut self) -> bool {
        self.sending.queue_mut().make_room()
    }

    /// Statistics.
    pub(crate) fn status(&self, now: Instant, sessions: bool) -> PeerStatus {
        let fastest = self.paths.validated();
        let fastest = fastest.filter_map(|path| path.delay.average()).min();
        let carried = self.paths.iter().map(|path| path.counters.carried).sum();
        let counters = self.sending.queue().counters();
        let path = |path: &Path| {
            let weight = self.selection.weight(path.id.0).unwrap_or(0);
            let guard = &self.selection.guard;
            let (part, figures) = (guard.part(path.id.0), guard.figures(now, path.id.0));
            let (len, any) = (self.inner_mtu.into(), Allowed::ByRule(PathLimit::Any));
            let hold = self.selection.hold(path, &self.paths, now, len, Priority::Throughput, any);
            let mut status =
                path_status::of(path, now, fastest, carried, weight, (part, figures, hold));
            status.loss_figures = self.loss_standby.of_held(path.id.0);
            status
        };
        PeerStatus {
            name: self.config.name.clone(),
            node: self.node,
            established: self.identity.is_established(),
            opener: self.identity.opens(),
            handshake_age: self.handshakes.completed_at().map(|at| now.since(at)),
            attempts: self.handshakes.attempts(),
            unanswered: self.handshakes.unanswered_since().map(|at| now.since(at)),
            attempt_in: self.handshakes.next_attempt().map(|at| at.since(now)),
            aead: self.keys.current().map(|epoch| epoch.keys.receive.aead().name()),
            scheduler: self.config.scheduler.name(),
            congestion_control: self.config.congestion_control.name(),
            inner_mtu: self.inner_mtu,
            host_mode: self.config.host_mode,
            policy: self.config.policy,
            traffic: self.config.host_mode.then_some(self.host.traffic),
            returns_in: self.host.held_down(now),
            captured: self.host.captured(),
            nats: self.host.nats.iter().copied().map(Prefix::host).collect(),
            translated: self.host.path_connections.len(),
            plain_packets: self.host.plain_packets,
            plain_count: self.host.plain_sessions.as_ref().map_or(0, |plain| plain.len()),
            plain_sessions: match &self.host.plain_sessions {
                Some(plain) if sessions => plain.status(now).collect(),
                _ => Vec::new(),
            },
            bytes_sent: self.sending.bytes(),
            copied: self.sending.copied(),
            bytes_received: self.receiving.bytes(),
            queued: self.sending.queue().bytes(),
            queue_drops: counters.dropped_codel + counters.dropped_overflow,
            queue_marks: counters.marked,
            resequencing: self.receiving.share().waiting(),
            paths: self.paths.iter().map(path).collect(),
            sessions: if sessions { self.session_status(now) } else { Vec::new() },
        }
    }

    fn session_status(&self, now: Instant) -> Vec<SessionStatus> {
        let address = |end: mpip_types::packet::Endpoint| (end.address, end.port).into();
        let recent =
            |counters: &Counters| counters.paths.among(now, self.paths.iter().map(|path| path.id));
        let idle = |used: Option<Instant>| used.map_or(Duration::ZERO, |used| now.since(used));
        let outgoing = self.sending.sessions().iter().map(|(slot, key, session)| SessionStatus {
            id: session.id.0,
            outgoing: true,
            protocol: key.protocol,
            source: address(key.source),
            destination: address(key.destination),
            packets: session.counters.packets,
            bytes: session.counters.bytes,
            paths: recent(&session.counters),
            repaired: session.repaired,
            held: session.hold(),
            longest_wait: Duration::ZERO,
            waits: [0; WAIT_BUCKETS],
            idle: idle(self.sending.sessions().used(slot)),
        });
        let incoming = self.receiving.sessions().iter().map(|(slot, id, session)| SessionStatus {
            id: id.0,
            outgoing: false,
            protocol: session.key.protocol,
            source: address(session.key.source),
            destination: address(session.key.destination),
            packets: session.counters.packets,
            bytes: session.counters.bytes,
            paths: recent(&session.counters),
            repaired: 0,
            held: None,
            longest_wait: session.order.as_ref().map_or(Duration::ZERO, Order::longest_wait),
            waits: session.order.as_ref().map_or([0; WAIT_BUCKETS], Order::waits),
            idle: idle(self.receiving.sessions().used(slot)),
        });
        outgoing.chain(incoming).collect()
    }
}

/// A buffer for the ranges of one feedback frame.
fn range_room() -> [AckRange; Ranges::MAX] {
    [AckRange { first: 0, last: 0 }; Ranges::MAX]
}
