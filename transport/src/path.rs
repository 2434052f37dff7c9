//! A path: local address, remote address, and the state of the path between them.

use core::net::SocketAddr;
use core::time::Duration;

use mpip_crypto::ReplayWindow;
use mpip_types::{Encapsulation, Instant, LocalAddress, PathAddress};
use mpip_wire::{CHALLENGE_DATAGRAM_LEN, PathId, RateLimit};

use crate::arrivals::Arrivals;
use crate::bottleneck::DelaySeries;
use crate::burst::BurstLimit;
use crate::capacity::Capacity;
use crate::cc::{self, CongestionControlKind, Subflow};
use crate::challenge::Challenge;
use crate::congestion::Congestion;
use crate::content::Content;
use crate::delay::DelayEstimator;
use crate::drain::Drain;
use crate::flight::{Flight, Losses};
use crate::limiter::Limiter;
use crate::liveness::{Liveness, MAX_PROBE_INTERVAL};
use crate::loss::LossMeter;
use crate::metrics::Metrics;
use crate::mtu::Search;
use crate::pacer::Pacer;
use crate::parameters::Parameters;
use crate::playout::Playout;
use crate::rest::Rest;
use crate::seen::{Reserve, Seen};
use crate::state::PathState;
use crate::validation::{PeerAnswers, Validation};

mod answers;
mod sending;

/// Counters of a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Bytes of datagrams sent.
    pub bytes_sent: u64,
    /// Bytes of datagrams received that authenticated.
    pub bytes_received: u64,
    /// Datagrams sent.
    pub packets_sent: u64,
    /// Datagrams received that authenticated.
    pub packets_received: u64,
    /// Datagrams sent that are acknowledged if they arrive.
    pub packets_asking: u64,
    /// Datagrams declared lost.
    pub packets_lost: u64,
    /// Datagrams declared lost that arrived later (spurious losses).
    pub spurious: u64,
    /// Bytes of inner packets sent, without copies.
    pub carried: u64,
    /// Bytes of copies of inner packets that were sent on another path at the same time.
    pub copied: u64,
    /// How often the guard left the path out.
    pub left_out: u64,
}

/// A path, whose datagrams carry a `C` each.
#[derive(Debug)]
pub struct Path<C> {
    /// Its identifier.
    pub id: PathId,
    /// Its ends, as sockets see them.
    pub address: PathAddress,
    /// The local interface.
    pub interface: String,
    /// The local address and port.
    pub local: SocketAddr,
    /// How its datagrams are encapsulated.
    pub encapsulation: Encapsulation,
    /// The configured weight, for schedulers that use weights.
    pub fixed_weight: Option<u16>,
    /// Which of the rules' lists of interfaces its interface is in, a bit each; `None` until
    /// somebody has looked it up.
    pub lists: Option<u64>,
    /// Its data are paid for by amount.
    pub metered: bool,
    /// What this end's configuration lets it send on the path at most. The peer may have
    /// [told](Reserve::peer_limit) less.
    pub rate_up: Option<RateLimit>,
    /// The sending half.
    pub flight: Flight<C>,
    /// The receiving half.
    pub arrivals: Arrivals,
    /// Replay protection: packet numbers that were received.
    pub replay: ReplayWindow,
    /// One-way delay.
    pub delay: DelayEstimator,
    /// Recent one-way delays, to be compared with those of other paths.
    pub delays: DelaySeries,
    /// Identifier of the first path that shares its bottleneck; its own if there is none.
    pub bottleneck: u16,
    /// Congestion control.
    pub cc: Congestion,
    /// Validation of its remote address, or of one that it may migrate to.
    pub validation: Validation,
    /// How each end sees the other's address.
    pub seen: Seen,
    /// Whether it is a backup path, what it costs, and the upper rates that the ends have told.
    pub reserve: Reserve,
    /// The socket has refused a datagram; cleared when the socket is writable again.
    pub blocked: bool,
    /// Send a probe (an ack-eliciting datagram) at the next opportunity.
    pub ping: bool,
    /// Interval of probes while the path works and does not rest, if its loss is to be measured.
    pub measured_every: Option<Duration>,
    /// Longest interval between probes while the path does not answer.
    pub longest_pause: Duration,
    /// Counters.
    pub counters: Counters,
    /// When the state last changed.
    pub changed: Instant,
    /// Why it is in its state.
    pub reason: &'static str,
    /// When it was opened.
    pub opened: Instant,
    /// Its queue, at the estimated bandwidth.
    drain: Drain,
    /// Its queue, at the [expected rate](Self::expected_rate), while there is one.
    expected_drain: Drain,
    /// Whether it [searched](Self::searches) at the newest feedback.
    searched: bool,
    /// Whether the peer answers here.
    pub peer: PeerAnswers,
    /// Keepalives while the association is idle.
    pub rest: Rest,
    state: PathState,
    mtu: Search,
    capacity: Capacity,
    pacer: Pacer,
    bursts: BurstLimit,
    limiter: Limiter,
    playout: Playout,
    liveness: Liveness,
    loss: LossMeter,
}

/// Mean deviations of the RTT by which a packet is late that is repaired early. Without congestion
/// control, losses are the only signal that the sender gets.
fn early_repair(kind: CongestionControlKind, parameters: &Parameters) -> Option<f64> {
    (kind != CongestionControlKind::None).then_some(parameters.early_repair.deviations)
}

impl<C: Content> Path<C> {
    /// A path at `address` that is not validated yet; `local` describes its local end.
    pub fn new(
        id: PathId,
        address: PathAddress,
        local: &LocalAddress,
        kind: CongestionControlKind,
        parameters: &Parameters,
        now: Instant,
    ) -> Self {
        Self {
            id,
            address,
            interface: local.interface.clone(),
            local: local.address,
            encapsulation: local.encapsulation,
            mtu: Search::new(base_mtu(local.encapsulation, address.remote), local.mtu),
            fixed_weight: None,
            lists: None,
            metered: false,
            rate_up: None,
            state: PathState::Validating,
            flight: Flight::new(now, early_repair(kind, parameters)),
            arrivals: Arrivals::new(),
            replay: ReplayWindow::new(),
            delay: DelayEstimator::default(),
            delays: DelaySeries::default(),
            bottleneck: id.0,
            cc: Congestion::new(cc::new(kind, now, u64::from(local.mtu), &parameters.bbr)),
            pacer: Pacer::default(),
            bursts: BurstLimit::new(&parameters.burst),
            limiter: Limiter::default(),
            validation: Validation::default(),
            seen: Seen::default(),
            reserve: Reserve::default(),
            blocked: false,
            capacity: Capacity::new(&parameters.capacity),
            playout: Playout::default(),
            ping: false,
            liveness: Liveness::new(now),
            measured_every: None,
            longest_pause: MAX_PROBE_INTERVAL,
            loss: LossMeter::new(now),
            counters: Counters::default(),
            changed: now,
            drain: Drain::new(now),
            expected_drain: Drain::new(now),
            searched: true,
            reason: "it is new",
            opened: now,
            peer: PeerAnswers::default(),
            rest: Rest::new(now, None),
        }
    }

    /// The state.
    pub fn state(&self) -> PathState {
        self.state
    }

    /// Changes the state. Returns the former one if it differs.
    pub fn set_state(&mut self, now: Instant, state: PathState) -> Option<PathState> {
        let former = core::mem::replace(&mut self.state, state);
        if former == state {
            return None;
        }
        self.changed = now;
        self.liveness.clear();
        if former == PathState::Validating {
            self.peer.count_from(self.flight.next_number());
        }
        if former == PathState::Failed {
            self.mtu.on_path_change(now);
        }
        if state == PathState::Active && former != PathState::Standby {
            // An active path measures itself, so it does not rest.
            self.rest.end();
        }
        Some(former)
    }

    /// Whether the scheduler may choose the path: it is active and not [silent](Self::is_silent).
    pub fn is_usable(&self) -> bool {
        self.state == PathState::Active && !self.liveness.is_silent()
    }

    /// Whether it carries packets or is ready to: it is validated and has not failed.
    pub fn works(&self) -> bool {
        matches!(self.state, PathState::Active | PathState::Standby)
    }

    /// Whether its address is validated, so that control frames may go there.
    pub fn is_validated(&self) -> bool {
        self.works() || self.state == PathState::Failed
    }

    /// Whether the peer does not take our address on this path for ours alone: it is a NAT's, or
    /// others may share it.
    pub fn is_elsewhere(&self) -> bool {
        self.is_validated() && !self.seen.is_ours
    }

    /// Whether there is a NAT on the path: the peer sees us at another address than ours.
    pub fn is_translated(&self) -> bool {
        self.seen.ours.is_some_and(|seen| seen != self.local)
    }

    /// Largest datagram payload that the path is known to carry, bytes.
    pub fn max_datagram(&self) -> usize {
        self.payload_of(self.mtu.confirmed())
    }

    /// Largest datagram payload that the path probably carries, bytes; more than
    /// [`max_datagram`](Self::max_datagram) only before the first MTU probe has had a result.
    pub fn hoped_datagram(&self) -> usize {
        self.payload_of(self.mtu.hoped())
    }

    /// Largest datagram payload after MTU discovery, bytes; `None` while discovery goes on.
    pub fn lasting_datagram(&self) -> Option<usize> {
        self.mtu.lasting().map(|size| self.payload_of(size))
    }

    /// Bytes of a datagram with a path challenge: the smallest MTU that a path may have.
    pub fn challenge_len(&self) -> usize {
        CHALLENGE_DATAGRAM_LEN.min(self.payload_of(self.mtu.limit()))
    }

    /// Bytes sent and received, outer headers included.
    pub fn traffic(&self) -> u64 {
        let Counters { bytes_sent, bytes_received, packets_sent, packets_received, .. } =
            self.counters;
        let headers = (packets_sent + packets_received) * self.outer_headers() as u64;
        bytes_sent + bytes_received + headers
    }

    /// Bytes of the headers before a datagram.
    fn outer_headers(&self) -> usize {
        self.encapsulation.headers(self.address.remote)
    }

    fn payload_of(&self, size: u16) -> usize {
        usize::from(size).saturating_sub(self.outer_headers())
    }

    fn size_of(&self, payload: u16) -> u16 {
        payload.saturating_add(self.outer_headers() as u16)
    }

    /// The interface's MTU has changed to `mtu`.
    pub fn on_interface_mtu(&mut self, mtu: u16) {
        self.mtu.on_limit(mtu);
    }

    /// Bytes of the MTU probe that is to be sent now, if one is due.
    pub fn poll_mtu_probe(&mut self, now: Instant) -> Option<usize> {
        let works = self.works() && !self.rest.is_resting();
        let size = (works && !self.liveness.is_silent()).then(|| self.mtu.poll(now)).flatten()?;
        Some(self.payload_of(size))
    }

    /// Bytes of the heartbeat that is about to be sent, if a long one is to show the capacity.
    pub fn take_long_heartbeat(&mut self) -> Option<usize> {
        let settled = self.mtu.lasting().is_some() && !self.rest.is_resting();
        let long = settled && self.capacity.take_long();
        long.then(|| self.payload_of(self.mtu.confirmed()))
    }

    /// The MTU probe has left. A normal probe follows, to tell a small MTU from a failed path.
    pub fn on_mtu_probe_sent(&mut self) {
        self.mtu.on_probe_sent();
        self.ping = true;
    }

    /// Migrates the path to `address`, from `local`. Unless only the port has changed, as after a
    /// NAT rebinding, RTT and congestion state start anew (RFC 9000, section 9.4).
    pub fn move_to(
        &mut self,
        now: Instant,
        address: PathAddress,
        local: &LocalAddress,
        kind: CongestionControlKind,
        parameters: &Parameters,
    ) {
        let former = core::mem::replace(&mut self.address, address);
        let same_local = former.local == address.local;
        if same_local {
            self.mtu.on_path_change(now);
        } else {
            self.interface.clone_from(&local.interface);
            self.lists = None;
            self.local = local.address;
            self.encapsulation = local.encapsulation;
            self.mtu = Search::new(base_mtu(local.encapsulation, address.remote), local.mtu);
        }
        if !same_local || former.remote.ip() != address.remote.ip() {
            self.cc.replace(now, cc::new(kind, now, u64::from(local.mtu), &parameters.bbr));
            self.pacer = Pacer::default();
            self.bursts = BurstLimit::new(&parameters.burst);
            self.delay = DelayEstimator::default();
            self.delays = DelaySeries::default();
            self.playout = Playout::default();
            self.capacity = Capacity::new(&parameters.capacity);
            self.searched = true;
            self.flight.on_moved();
            self.seen.ours = None;
            self.seen.is_ours = true;
        }
    }

    /// Continues with another congestion control, which starts anew.
    pub fn set_congestion_control(
        &mut self,
        now: Instant,
        kind: CongestionControlKind,
        parameters: &Parameters,
    ) {
        let largest = self.max_datagram() as u64;
        self.cc.replace(now, cc::new(kind, now, largest, &parameters.bbr));
        self.pacer = Pacer::default();
        self.flight.set_early_repair(early_repair(kind, parameters));
    }

    /// Declares everything in flight lost, because the path has failed.
    pub fn abandon(&mut self, losses: &mut Losses<C>) {
        let before = losses.summary.packets;
        self.flight.abandon(losses);
        self.counters.packets_lost += losses.summary.packets - before;
    }

    /// The challenge that has to be answered before the path carries packets.
    pub fn calls(&self) -> Option<&Challenge> {
        let waits = matches!(self.state, PathState::Validating | PathState::Failed);
        self.validation.challenge.as_ref().filter(|_| waits)
    }

    /// Bytes of packets that may leave before validation (early data); 0 after it.
    pub fn early_room(&self) -> usize {
        if self.calls().is_some() { self.validation.early_room() } else { 0 }
    }

    /// Bytes of another challenge that is to follow the first one, so that the peer may send enough
    /// in return (anti-amplification limit).
    pub fn lends(&self) -> Option<usize> {
        let lends = self.calls().is_some() && self.validation.lends();
        lends.then(|| self.challenge_len())
    }

    /// When feedback is due before validation. Packets that are `waiting` get the credit instead;
    /// they carry feedback, too.
    pub fn early_feedback_at(&self, waiting: bool) -> Option<Instant> {
        self.arrivals.due().filter(|_| !waiting && self.early_room() > 0)
    }

    /// Bytes that the anti-amplification limit permits now.
    pub fn sendable(&self) -> usize {
        if self.works() { usize::MAX } else { self.early_room() }
    }

    /// `len` bytes have left: counts them against the anti-amplification limit.
    pub fn spend(&mut self, len: usize) {
        if !self.works() {
            self.validation.spend(len);
        }
    }

    /// The address that datagrams go to: before validation, the one that is challenged.
    pub fn leads_to(&self) -> PathAddress {
        self.calls().map_or(self.address, |challenge| challenge.to)
    }

    /// Share of packets lost over the last seconds, 0 to 1.
    pub fn loss(&self) -> f64 {
        self.loss.share()
    }

    /// Share of packets lost over the last seconds as if one less had been lost, 0 to 1.
    pub fn proven_loss(&self) -> f64 {
        self.loss.proven_share()
    }

    /// Largest outer IP packet that the path probably carries, bytes.
    pub fn mtu(&self) -> u16 {
        self.mtu.hoped()
    }

    /// Summary for coupled congestion control.
    pub fn subflow(&self) -> Subflow {
        Subflow {
            window: self.cc.window(),
            rtt: self.flight.rtt().smoothed(),
            between_losses: self.cc.between_losses(),
            reduced: self.cc.reduced(),
            drains: self.cc.drains(),
            delivered: self.cc.delivered(),
        }
    }

    /// Metrics for a trace.
    pub fn metrics(&self) -> Metrics {
        let rtt = self.flight.rtt();
        Metrics {
            smoothed_rtt: rtt.smoothed(),
            min_rtt: rtt.minimum(),
            queuing_delay: self.delay.queuing(),
            window: self.cc.window(),
            in_flight: self.flight.in_flight(),
            pacing_rate: self.pacing_rate(),
            delivery_rate: self.flight.delivery_rate(),
            reordering_window: self.flight.reordering_window(),
        }
    }

    /// The next timeout of this path. `waiting`: inner packets wait for pacing. `alone`: no path
    /// answers.
    pub fn next_timeout(&self, waiting: bool, alone: bool) -> Option<Instant> {
        let challenge = self.validation.next_timeout();
        let pacing = (waiting && self.is_usable()).then(|| self.paced_until()).flatten();
        [
            challenge,
            pacing,
            match self.calls() {
                Some(_) => self.early_feedback_at(waiting),
                None => self.arrivals.due().filter(|_| self.is_validated()),
            },
            self.flight.loss_timer(),
            self.liveness.deadline(&self.input(alone)),
            self.heartbeat_at(),
            self.mtu
                .next_timeout()
                .filter(|_| self.heartbeat_at().is_some() && !self.rest.is_resting())
                .filter(|_| !self.liveness.is_silent() && !self.blocked),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

/// Base MTU of a path toward `remote`: that of datagrams with path challenges.
fn base_mtu(encapsulation: Encapsulation, remote: SocketAddr) -> u16 {
    (CHALLENGE_DATAGRAM_LEN + encapsulation.headers(remote)) as u16
}
