//! A path: local address, remote address, and the state of the path between them.

use core::net::SocketAddr;
use core::time::Duration;

use mpip_crypto::ReplayWindow;
use mpip_types::{Encapsulation, Instant, LocalAddress, PathAddress};
use mpip_wire::{CHALLENGE_DATAGRAM_LEN, PathId, RateLimit};

use crate::arrivals::{Arrivals, MAX_DELAY};
use crate::bottleneck::DelaySeries;
use crate::burst::BurstLimit;
use crate::cc::{self, CongestionControlKind, Subflow};
use crate::challenge::Challenge;
use crate::congestion::Congestion;
use crate::content::Content;
use crate::delay::DelayEstimator;
use crate::flight::{Flight, LossSummary, Losses, Progress};
use crate::limiter::Limiter;
use crate::liveness::{Liveness, LivenessInput, MAX_PROBE_INTERVAL, Silence};
use crate::loss::LossMeter;
use crate::metrics::Metrics;
use crate::mtu::Search;
use crate::pacer::{Pacer, time_for};
use crate::parameters::{Parameters, PlayoutParameters};
use crate::playout::Playout;
use crate::rest::Rest;
use crate::seen::{Reserve, Seen};
use crate::state::PathState;
use crate::validation::{PeerAnswers, Validation};

/// Upper bound of a rate, bytes/s (9 Pbit/s), so that the sum of the rates of all paths fits 64
/// bits.
const MAX_RATE: u64 = 1 << 50;

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
    /// When what was sent has left the queue of the path, at the estimated bandwidth.
    idle_at: Instant,
    /// Whether the peer answers here.
    pub peer: PeerAnswers,
    /// Keepalives while the association is idle.
    pub rest: Rest,
    state: PathState,
    mtu: Search,
    pacer: Pacer,
    bursts: BurstLimit,
    limiter: Limiter,
    playout: Playout,
    liveness: Liveness,
    loss: LossMeter,
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
            flight: Flight::new(now),
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
            playout: Playout::default(),
            ping: false,
            liveness: Liveness::new(now),
            measured_every: None,
            longest_pause: MAX_PROBE_INTERVAL,
            loss: LossMeter::new(now),
            counters: Counters::default(),
            changed: now,
            idle_at: now,
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

    /// Whether the scheduler may choose the path: it is active and owes no answer to a probe.
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
            self.cc.replace(cc::new(kind, now, u64::from(local.mtu), &parameters.bbr));
            self.pacer = Pacer::default();
            self.bursts = BurstLimit::new(&parameters.burst);
            self.delay = DelayEstimator::default();
            self.delays = DelaySeries::default();
            self.playout = Playout::default();
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
        self.cc.replace(cc::new(kind, now, largest, &parameters.bbr));
        self.pacer = Pacer::default();
    }

    /// When `len` more bytes may leave.
    pub fn ready_at(&self, now: Instant, len: usize) -> Instant {
        if self.blocked || !self.flight.has_room() {
            return Instant::FAR_FUTURE;
        }
        self.congestion_permits_at(now, len).max(self.limited_until())
    }

    /// When congestion control permits `len` more bytes.
    fn congestion_permits_at(&self, now: Instant, len: usize) -> Instant {
        let excess = (self.flight.in_flight() + len as u64).saturating_sub(self.cc.window());
        if excess > 0 && self.flight.in_flight() > 0 {
            return now + time_for(excess, self.rate()).max(Duration::from_micros(1));
        }
        self.pacer.ready_at()
    }

    /// When the upper rate permits the next packet; an instant not after now means at once.
    fn limited_until(&self) -> Instant {
        self.rate_limit().map_or(Instant::ZERO, |_| self.limiter.ready_at())
    }

    /// Whether the upper rate holds back `len` more bytes, which congestion control would permit
    /// no later.
    pub fn is_held_by_limit(&self, now: Instant, len: usize) -> bool {
        let until = self.limited_until();
        until > now
            && !self.blocked
            && self.flight.has_room()
            && self.congestion_permits_at(now, len) <= until
    }

    /// Whether the upper rate permits a packet now that needs a fast answer. Such packets may be
    /// `ahead` of it, beside a burst.
    pub fn permits_urgent(&self, now: Instant, ahead: Duration) -> bool {
        self.rate_limit().is_none_or(|limit| self.limiter.permits_urgent(now, limit, ahead))
    }

    /// The upper rate of what is sent on it, IP headers included: the lower one of both ends'
    /// wishes.
    pub fn rate_limit(&self) -> Option<RateLimit> {
        self.rate_up.into_iter().chain(self.reserve.peer_limit()).min()
    }

    /// The upper rate of what is sent on it, bytes of datagrams/s; [`MAX_RATE`] without one.
    fn rate_max(&self) -> u64 {
        self.rate_limit().map_or(MAX_RATE, |limit| {
            let (datagram, headers) = (self.max_datagram() as u64, self.outer_headers() as u64);
            limit.bytes_per_second() * datagram / (datagram + headers).max(1)
        })
    }

    /// When pacing or the upper rate permits the next packet, if one of them holds it back.
    pub fn paced_until(&self) -> Option<Instant> {
        let at = self.pacer.ready_at().max(self.limited_until());
        (at > Instant::ZERO).then_some(at)
    }

    /// Whether its window will soon grow: it is in BBR's Startup and uses its window.
    pub fn is_growing(&self) -> bool {
        self.is_searching() && self.flight.in_flight() * 2 >= self.cc.window()
    }

    /// Whether it may carry packets and is in BBR's Startup.
    pub fn is_searching(&self) -> bool {
        self.is_usable() && self.searches()
    }

    /// Whether it is in BBR's Startup, and does not know yet how much it can carry. At its upper
    /// rate it knows.
    pub fn searches(&self) -> bool {
        self.cc.searches() && self.cc.pacing_rate().is_none_or(|rate| rate < self.rate_max())
    }

    /// Rate at which the path may send, bytes/s: the pacing rate, or window / RTT without pacing,
    /// at most its upper rate.
    pub fn rate(&self) -> u64 {
        let rtt = self.flight.rtt().smoothed().as_nanos().max(1_000);
        let rate = self.cc.pacing_rate().unwrap_or_else(|| {
            let window = self.cc.window().min(1 << 40);
            u64::try_from(u128::from(window) * 1_000_000_000 / rtt).unwrap_or(u64::MAX)
        });
        rate.min(self.rate_max()).min(MAX_RATE)
    }

    /// Rate at which packets may leave, bytes/s: the pacing rate, at most the upper rate; `None`
    /// without both.
    pub fn pacing_rate(&self) -> Option<u64> {
        let limit = self.rate_limit().map(|_| self.rate_max());
        self.cc.pacing_rate().into_iter().chain(limit).min()
    }

    /// Estimated bandwidth, bytes/s, at most the upper rate; without an estimate, the sending rate
    /// less the lost share.
    pub fn delivers(&self) -> u64 {
        let guess = || (self.rate() as f64 * (1.0 - self.loss.share())) as u64;
        self.cc.bandwidth().unwrap_or_else(guess).min(self.rate_max()).min(MAX_RATE)
    }

    /// Time until what was sent has left the queue of the path: by the times at which it was sent,
    /// or by what is in flight beyond the bandwidth-delay product, whichever is less.
    pub fn backlog(&self, now: Instant) -> Duration {
        let takes = time_for(self.flight.in_flight(), self.delivers());
        let queued = takes.saturating_sub(self.flight.rtt().minimum());
        self.idle_at.since(now).min(queued)
    }

    /// Mean time that a packet waits in resequencing for retransmissions of earlier packets, µs:
    /// half the time of a retransmission, times the probability of a loss in that time.
    pub fn mean_repair(&self) -> i64 {
        let rtt = self.flight.rtt().smoothed().saturating_sub(self.delay.queuing());
        let takes = (rtt + self.flight.reordering_window()).as_secs_f64();
        let packets = self.delivers() as f64 / self.max_datagram().max(1) as f64 * takes;
        (takes / 2.0 * (self.loss.share() * packets).min(1.0) * 1e6) as i64
    }

    /// Records a datagram that has left. Returns whether it was in the rear half of a burst.
    pub fn on_sent(&mut self, now: Instant, size: usize, asks: bool, paced: bool) -> bool {
        self.rest.on_travelled(now);
        self.counters.bytes_sent += size as u64;
        self.counters.packets_sent += 1;
        if asks {
            self.liveness.on_ack_eliciting_sent(now);
            self.loss.on_sent(now);
            self.counters.packets_asking += 1;
        }
        self.idle_at = self.idle_at.max(now) + time_for(size as u64, self.delivers());
        if let Some(limit) = self.rate_limit() {
            self.limiter.on_sent(now, (size + self.outer_headers()) as u64, limit);
        }
        if !paced {
            return false;
        }
        let rate = self.cc.pacing_rate();
        self.cc.on_sent(now, size as u64, self.flight.in_flight());
        self.pacer.on_sent(now, size as u64, rate, self.bursts.quantum(), || self.bursts.late())
    }

    /// Tells the pacer the current time.
    pub fn refresh_pacing(&mut self, now: Instant) {
        self.pacer.refresh(now);
        self.limiter.refresh(now);
    }

    /// Tells whether packets are left, now that what may leave has left.
    pub fn set_waiting(&mut self, waiting: bool) {
        self.pacer.set_waiting(waiting);
    }

    /// Passes losses and the rate sample of a feedback frame to the congestion control. `subflows`
    /// are the association's paths for coupled control, `own` is this one's index.
    pub fn on_progress(
        &mut self,
        now: Instant,
        progress: &Progress,
        losses: &LossSummary,
        subflows: &[Subflow],
        own: usize,
    ) {
        self.counters.spurious += progress.spurious;
        self.cc.on_spurious(now, progress.spurious);
        if losses.packets > 0
            && let Some(rtt) = progress.sample.and_then(|sample| sample.rtt)
        {
            let waited = rtt.saturating_sub(self.flight.rtt().minimum());
            self.bursts.on_losses(now, (losses.packets, losses.rear), waited);
        }
        self.on_losses(now, losses, subflows, own);
        if progress.longest > 0 {
            self.mtu.on_arrived(now, self.size_of(progress.longest));
        }
        if let Some(sample) = progress.sample {
            self.liveness.clear();
            self.cc.on_feedback(now, sample, subflows, own);
        }
    }

    /// Passes losses to MTU discovery and to the congestion control, which reacts once per round
    /// trip.
    pub fn on_losses(
        &mut self,
        now: Instant,
        losses: &LossSummary,
        subflows: &[Subflow],
        own: usize,
    ) {
        if losses.probe > 0 {
            self.mtu.on_probe_lost(now, self.size_of(losses.probe), self.loss.share());
        }
        self.mtu.on_lost(now, losses.large, self.size_of(losses.smallest_large));
        if losses.packets == 0 {
            return;
        }
        self.counters.packets_lost += losses.packets;
        self.loss.on_lost(losses.packets);
        self.cc.on_losses(now, losses, subflows, own);
    }

    /// The probe timeout (RFC 9002, section 6.2.1).
    pub fn probe_timeout(&self) -> Duration {
        self.flight.rtt().probe_timeout(MAX_DELAY)
    }

    /// The input of failure detection. `alone`: no path answers.
    fn input(&self, alone: bool) -> LivenessInput {
        LivenessInput {
            state: self.state,
            silent_since: self.flight.silent_since(),
            timeout: self.probe_timeout(),
            resting: self.rest.is_resting(),
            alone,
            loss: self.loss.cautious_share(),
            longest_pause: self.longest_pause,
        }
    }

    /// Checks at `now` whether the path needs a probe or has failed. `alone`: no path answers. With
    /// [`Silence::Dead`], everything in flight is added to `losses`.
    pub fn check_silence(&mut self, now: Instant, alone: bool, losses: &mut Losses<C>) -> Silence {
        let input = self.input(alone);
        let silence = self.liveness.check(now, &input);
        if silence == Silence::Dead {
            self.flight.abandon(losses);
        }
        silence
    }

    /// An unauthenticated message (ICMP) says that the path has failed: sends a probe, with a
    /// shorter timeout than usual. Returns whether that changed anything.
    pub fn doubt(&mut self, now: Instant) -> bool {
        // At rest, such a message comes from a NAT whose mapping has expired; the peer will send a
        // keepalive.
        let news = self.works() && !self.rest.is_resting() && self.liveness.doubt(now);
        self.ping |= news;
        news
    }

    /// Routes have changed: repeats the challenge or probe that has no answer. Returns whether one
    /// is sent sooner.
    pub fn ask_again(&mut self, now: Instant) -> bool {
        let before = self.next_timeout(false, false);
        if let Some(challenge) = &mut self.validation.challenge {
            challenge.repeat(now);
        }
        self.liveness.probe_by(now);
        self.next_timeout(false, false) != before
    }

    /// The path has failed. From now on it is only probed.
    pub fn on_dead(&mut self, now: Instant) {
        self.liveness.on_dead(now, self.longest_pause);
        self.mtu.on_interruption();
        self.cc.on_dead(now);
    }

    /// When a heartbeat is due.
    pub fn heartbeat_at(&self) -> Option<Instant> {
        let soonest = self.liveness.heartbeat_at();
        self.works().then(|| match self.measured_every {
            _ if self.rest.is_resting() => self.rest.keepalive_at().max(soonest),
            Some(interval) => soonest.min(self.liveness.asked_at() + interval),
            None => soonest,
        })
    }

    /// A probe is about to be sent. If it cannot leave, the next attempt is due after an interval.
    pub fn on_asked(&mut self, now: Instant) {
        self.liveness.on_ack_eliciting_sent(now);
        self.rest.on_keepalive(now);
    }

    /// The association is no longer idle: a path that may not answer is probed at once.
    pub fn wake(&mut self, now: Instant) {
        if !self.rest.end() {
            return;
        }
        if let Some(challenge) = &mut self.validation.challenge {
            challenge.wake();
        }
        self.ping = self.is_validated();
        if self.state == PathState::Failed {
            self.liveness.on_dead(now, self.longest_pause);
        }
    }

    /// Something authentic came in, and was read.
    pub fn on_received(&mut self, now: Instant) {
        let resting = self.rest.is_resting();
        self.rest.on_travelled(now);
        if resting && self.liveness.is_silent() {
            // The way is open again, at least from there: what was asked was not heard.
            if self.works() {
                self.ping = true;
            } else {
                self.liveness.probe_by(self.liveness.heartbeat_at());
            }
        }
    }

    /// No path had answered, and another one does now: restarts failure detection of this one and
    /// probes it, if it is silent.
    pub fn excuse(&mut self, now: Instant) {
        if self.is_silent() {
            self.ping = true;
            self.liveness.excuse(now);
        }
    }

    /// When the peer is asked again on a path that it has not answered: by the challenge before
    /// validation, by the probe of a path that has failed. `None` in other states.
    pub fn asks_at(&self) -> Option<Instant> {
        let probe = match self.state {
            PathState::Validating => None,
            PathState::Failed => self.liveness.deadline(&self.input(false)),
            _ => return None,
        };
        self.validation.next_timeout().into_iter().chain(probe).min()
    }

    /// Whether it has not failed, but owes the answer to a probe.
    pub fn is_silent(&self) -> bool {
        self.works() && self.liveness.is_silent()
    }

    /// Takes a one-way delay sample, µs against the association's reference.
    pub fn on_delay(&mut self, now: Instant, sample: i64) {
        self.delay.on_sample(now, sample);
        self.delays.add(sample);
        self.playout.on_delay(now, sample, self.flight.in_flight());
    }

    /// Updates the jitter and the playout delay; called every 100 ms.
    pub fn update_playout(&mut self, parameters: &PlayoutParameters) {
        let Self { playout, flight, delay, .. } = self;
        playout.update(flight.in_flight(), flight.reordering(), delay, parameters);
    }

    /// Whether the path has so much jitter that full packets carry a playout time.
    pub fn is_uneven(&self) -> bool {
        self.state == PathState::Active && self.playout.target().is_some()
    }

    /// Playout time of a packet that leaves now: the earliest delivery, µs of the peer's clock
    /// modulo 2^32. `reference` is that of the association's delay samples. The packet takes at
    /// least `delay`, µs as in the samples. `None` without it on a path without much jitter.
    pub fn playout(&self, now: Instant, reference: Option<u32>, delay: Option<i64>) -> Option<u32> {
        let at = (now.as_micros() as u32).wrapping_add(reference?);
        let delay = self.playout.target().into_iter().chain(delay).max()?;
        Some(at.wrapping_add_signed(delay as i32))
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
