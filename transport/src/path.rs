//! A path: local address, remote address, and what is known of the way between them.

use core::net::SocketAddr;
use core::time::Duration;

use mpip_crypto::ReplayWindow;
use mpip_types::{Encapsulation, Instant, LocalAddress, PathAddress};
use mpip_wire::{CHALLENGE_DATAGRAM_LEN, PathId};

use crate::arrivals::{Arrivals, MAX_DELAY};
use crate::bottleneck::DelaySeries;
use crate::cc::{self, CongestionControlKind, Subflow};
use crate::challenge::Challenge;
use crate::congestion::Congestion;
use crate::content::Content;
use crate::delay::DelayEstimator;
use crate::flight::{Flight, LossSummary, Losses, Progress};
use crate::liveness::{Liveness, MAX_PROBE_INTERVAL, Signs, Silence};
use crate::loss::LossMeter;
use crate::metrics::Metrics;
use crate::mtu::Search;
use crate::pacer::{Pacer, time_for};
use crate::parameters::{Parameters, PlayoutParameters};
use crate::playout::Playout;
use crate::rest::Rest;
use crate::seen::{Reserve, Seen};
use crate::state::PathState;
use crate::validation::Validation;

/// Rates above this, bytes/s, are taken for this: no path has 9 Pbit/s, and the rates of all paths
/// of an association together stay within 64 bits.
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
    /// Datagrams declared lost.
    pub packets_lost: u64,
    /// Of these, datagrams that arrived after all.
    pub spurious: u64,
    /// Inner bytes sent on it.
    pub carried: u64,
    /// How often it was left out because it did harm.
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
    /// What it looks like from outside.
    pub encapsulation: Encapsulation,
    /// The weight that the configuration gives it, for schedulers that have weights.
    pub fixed_weight: Option<u16>,
    /// The sending half.
    pub flight: Flight<C>,
    /// The receiving half.
    pub arrivals: Arrivals,
    /// Packet numbers that were received.
    pub replay: ReplayWindow,
    /// One-way delay.
    pub delay: DelayEstimator,
    /// Its delays of late, to be compared with those of other paths.
    pub delays: DelaySeries,
    /// The first path that shares its bottleneck; itself if none does.
    pub bottleneck: u16,
    /// Congestion control.
    pub cc: Congestion,
    /// Validation of its remote address, or of one that it may move to.
    pub validation: Validation,
    /// How both ends see each other's address.
    pub seen: Seen,
    /// Whether it is kept in reserve.
    pub reserve: Reserve,
    /// The socket refused a datagram; cleared when it can take some again.
    pub blocked: bool,
    /// Ask for an answer at the next opportunity.
    pub ping: bool,
    /// Longest pause between probes while it does not answer.
    pub longest_pause: Duration,
    /// Counters.
    pub counters: Counters,
    /// When the state last changed.
    pub changed: Instant,
    /// When it came into being.
    pub opened: Instant,
    /// Whether the peer has acknowledged anything on it that left since its own address was
    /// validated: then it has validated ours.
    pub confirmed: bool,
    /// Number of the first packet that left since then, or since the host had no way there.
    pub counts_from: u64,
    /// What keeps it open while the association carries nothing.
    pub rest: Rest,
    state: PathState,
    mtu: Search,
    pacer: Pacer,
    playout: Playout,
    liveness: Liveness,
    loss: LossMeter,
}

impl<C: Content> Path<C> {
    /// A path that is not validated yet, at `address`, whose local end is `local`.
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
            state: PathState::Validating,
            flight: Flight::new(now),
            arrivals: Arrivals::new(),
            replay: ReplayWindow::new(),
            delay: DelayEstimator::default(),
            delays: DelaySeries::default(),
            bottleneck: id.0,
            cc: Congestion::new(cc::new(kind, now, u64::from(local.mtu), &parameters.bbr)),
            pacer: Pacer::default(),
            validation: Validation::default(),
            seen: Seen::default(),
            reserve: Reserve::default(),
            blocked: false,
            playout: Playout::default(),
            ping: false,
            liveness: Liveness::new(now),
            longest_pause: MAX_PROBE_INTERVAL,
            loss: LossMeter::new(now),
            counters: Counters::default(),
            changed: now,
            opened: now,
            confirmed: false,
            counts_from: 0,
            rest: Rest::new(now, None),
        }
    }

    /// The state.
    pub fn state(&self) -> PathState {
        self.state
    }

    /// Changes the state; returns the former one if it is another.
    pub fn set_state(&mut self, now: Instant, state: PathState) -> Option<PathState> {
        let former = core::mem::replace(&mut self.state, state);
        if former == state {
            return None;
        }
        self.changed = now;
        self.liveness.clear();
        if former == PathState::Validating {
            self.counts_from = self.flight.next_number();
        }
        if former == PathState::Failed {
            self.mtu.on_path_change();
        }
        if state == PathState::Active && former != PathState::Standby {
            // It has something to find out.
            self.rest.end();
        }
        Some(former)
    }

    /// Whether the path may be chosen for inner packets: it works and has not fallen silent.
    pub fn is_usable(&self) -> bool {
        self.state == PathState::Active && !self.liveness.is_silent()
    }

    /// Whether it carries packets, or is ready to: it is not known to be dead.
    pub fn works(&self) -> bool {
        matches!(self.state, PathState::Active | PathState::Standby)
    }

    /// Whether control frames may go to its address.
    pub fn is_validated(&self) -> bool {
        self.works() || self.state == PathState::Failed
    }

    /// Whether the peer does not take our address here for ours alone: it is a translator's, or
    /// others may share it.
    pub fn is_elsewhere(&self) -> bool {
        self.is_validated() && !self.seen.is_ours
    }

    /// Whether a translator is on the way: the peer sees us elsewhere than we are.
    pub fn is_translated(&self) -> bool {
        self.seen.ours.is_some_and(|seen| seen != self.local)
    }

    /// Largest datagram payload that the path is known to carry, bytes.
    pub fn max_datagram(&self) -> usize {
        self.payload_of(self.mtu.confirmed())
    }

    /// Largest datagram payload that the path may be hoped to carry, bytes; more than
    /// [`max_datagram`](Self::max_datagram) only while it is new.
    pub fn hoped_datagram(&self) -> usize {
        self.payload_of(self.mtu.hoped())
    }

    /// Largest datagram payload that the path carries for longer, bytes; `None` while that is
    /// being found out.
    pub fn lasting_datagram(&self) -> Option<usize> {
        self.mtu.lasting().map(|size| self.payload_of(size))
    }

    /// Bytes of a datagram with a path challenge: what the smallest path carries that is used.
    pub fn challenge_len(&self) -> usize {
        CHALLENGE_DATAGRAM_LEN.min(self.payload_of(self.mtu.limit()))
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

    /// The interface's MTU is `mtu` now.
    pub fn on_interface_mtu(&mut self, mtu: u16) {
        self.mtu.on_limit(mtu);
    }

    /// Bytes of the datagram that is to probe the path's MTU now, if it can say anything.
    pub fn poll_mtu_probe(&mut self, now: Instant) -> Option<usize> {
        let works = self.works() && !self.rest.is_resting();
        let size = (works && !self.liveness.is_silent()).then(|| self.mtu.poll(now)).flatten()?;
        Some(self.payload_of(size))
    }

    /// The probe has left. A sign of life that follows it tells whether the path works at all.
    pub fn on_mtu_probe_sent(&mut self) {
        self.mtu.on_probe_sent();
        self.ping = true;
    }

    /// It leads from `local` to another address from now on. Unless that is only another port, as
    /// translators give it, what was learnt of the way does not hold any more (RFC 9000, section
    /// 9.4).
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
            self.mtu.on_path_change();
        } else {
            self.interface.clone_from(&local.interface);
            self.local = local.address;
            self.encapsulation = local.encapsulation;
            self.mtu = Search::new(base_mtu(local.encapsulation, address.remote), local.mtu);
        }
        if !same_local || former.remote.ip() != address.remote.ip() {
            self.cc.replace(cc::new(kind, now, u64::from(local.mtu), &parameters.bbr));
            self.pacer = Pacer::default();
            self.delay = DelayEstimator::default();
            self.delays = DelaySeries::default();
            self.playout = Playout::default();
            self.flight.on_moved();
            self.seen.ours = None;
            self.seen.is_ours = true;
        }
    }

    /// When `len` more bytes may leave.
    pub fn ready_at(&self, now: Instant, len: usize) -> Instant {
        if self.blocked || !self.flight.has_room() {
            return Instant::FAR_FUTURE;
        }
        let excess = (self.flight.in_flight() + len as u64).saturating_sub(self.cc.window());
        if excess > 0 && self.flight.in_flight() > 0 {
            return now + time_for(excess, self.rate()).max(Duration::from_micros(1));
        }
        self.pacer.ready_at()
    }

    /// When pacing permits the next packet, if pacing is what holds it back.
    pub fn paced_until(&self) -> Option<Instant> {
        let at = self.pacer.ready_at();
        (at > Instant::ZERO).then_some(at)
    }

    /// Whether it will soon take more than it does now: what it carries is not known yet, and it is
    /// being found out.
    pub fn is_growing(&self) -> bool {
        self.is_usable() && self.cc.searches() && self.flight.in_flight() * 2 >= self.cc.window()
    }

    /// Bytes per second that the path delivers, as far as is known.
    pub fn rate(&self) -> u64 {
        let rtt = self.flight.rtt().smoothed().as_nanos().max(1_000);
        let rate = self.cc.pacing_rate().unwrap_or_else(|| {
            let window = self.cc.window().min(1 << 40);
            u64::try_from(u128::from(window) * 1_000_000_000 / rtt).unwrap_or(u64::MAX)
        });
        rate.min(MAX_RATE)
    }

    /// Bytes per second that were seen to arrive; a careful guess before any did.
    pub fn delivers(&self) -> u64 {
        let guess = || (self.rate() as f64 * (1.0 - self.loss.share())) as u64;
        self.cc.bandwidth().unwrap_or_else(guess).min(MAX_RATE)
    }

    /// What a packet waits on the average for repairs of those before it, µs, where the receiver
    /// puts them in order: half of what a repair takes, as far as something is lost in that
    /// time.
    pub fn mean_repair(&self) -> i64 {
        let rtt = self.flight.rtt().smoothed().saturating_sub(self.delay.queuing());
        let takes = (rtt + self.flight.reordering_window()).as_secs_f64();
        let packets = self.delivers() as f64 / self.max_datagram().max(1) as f64 * takes;
        (takes / 2.0 * (self.loss.share() * packets).min(1.0) * 1e6) as i64
    }

    /// Notes a datagram that left.
    pub fn on_sent(&mut self, now: Instant, size: usize, asks: bool, paced: bool) {
        self.rest.on_travelled(now);
        self.counters.bytes_sent += size as u64;
        self.counters.packets_sent += 1;
        if asks {
            self.liveness.on_asked(now);
            self.loss.on_sent(now);
        }
        if paced {
            let rate = self.cc.pacing_rate();
            self.cc.on_sent(now, size as u64, self.flight.in_flight());
            self.pacer.on_sent(now, size as u64, rate);
        }
    }

    /// Time has passed: pacing catches up with it.
    pub fn refresh_pacing(&mut self, now: Instant) {
        self.pacer.refresh(now);
    }

    /// Lets loss detection's findings and an acknowledged sample reach the congestion control.
    /// `subflows` are the association's paths for coupled control, `own` this one's index.
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
        self.on_losses(now, losses, subflows, own);
        if progress.longest > 0 {
            self.mtu.on_arrived(now, self.size_of(progress.longest));
        }
        if let Some(sample) = progress.sample {
            self.liveness.clear();
            self.cc.on_feedback(now, sample, subflows, own);
        }
    }

    /// Lets losses reach the congestion control, once per round trip.
    pub fn on_losses(
        &mut self,
        now: Instant,
        losses: &LossSummary,
        subflows: &[Subflow],
        own: usize,
    ) {
        if losses.probe > 0 {
            self.mtu.on_probe_lost(now, self.size_of(losses.probe));
        }
        self.mtu.on_lost(losses.large, self.size_of(losses.smallest_large));
        if losses.packets == 0 {
            return;
        }
        self.counters.packets_lost += losses.packets;
        self.loss.on_lost(losses.packets);
        self.cc.on_losses(now, losses, subflows, own);
    }

    /// How long an answer may take.
    pub fn probe_timeout(&self) -> Duration {
        self.flight.rtt().probe_timeout(MAX_DELAY)
    }

    /// What its silence is judged by. `alone`: no path answers.
    fn signs(&self, alone: bool) -> Signs {
        Signs {
            state: self.state,
            silent_since: self.flight.silent_since(),
            timeout: self.probe_timeout(),
            resting: self.rest.is_resting(),
            alone,
            loss: self.loss.cautious_share(),
            longest_pause: self.longest_pause,
        }
    }

    /// Judges the silence at `now`; `alone`: no path answers. After [`Silence::Dead`] what was in
    /// flight is in `losses`.
    pub fn check_silence(&mut self, now: Instant, alone: bool, losses: &mut Losses<C>) -> Silence {
        let signs = self.signs(alone);
        let silence = self.liveness.check(now, &signs);
        if silence == Silence::Dead {
            self.flight.abandon(losses);
        }
        silence
    }

    /// Something that is not authentic says that the path is dead: asks for a sign of life, for
    /// which it has less time than silence has. Returns whether that changed anything.
    pub fn doubt(&mut self, now: Instant) -> bool {
        // At rest a translator that has forgotten the path says so; the peer is about to call.
        let news = self.works() && !self.rest.is_resting() && self.liveness.doubt(now);
        self.ping |= news;
        news
    }

    /// What had no answer may be reached now. Returns whether something is asked sooner for that.
    pub fn ask_again(&mut self, now: Instant) -> bool {
        let before = self.next_timeout(false, false);
        if let Some(challenge) = &mut self.validation.challenge {
            challenge.repeat(now);
        }
        self.liveness.ask_by(now);
        self.next_timeout(false, false) != before
    }

    /// The path is known to be dead: from now on it is only asked whether it lives again.
    pub fn on_dead(&mut self, now: Instant) {
        self.liveness.on_dead(now, self.longest_pause);
        self.mtu.on_interruption();
        self.cc.on_dead(now);
    }

    /// When a heartbeat is due.
    pub fn heartbeat_at(&self) -> Option<Instant> {
        let soonest = self.liveness.heartbeat_at();
        self.works().then(|| {
            let resting = self.rest.is_resting();
            if resting { self.rest.keepalive_at().max(soonest) } else { soonest }
        })
    }

    /// It is about to be asked for a sign of life. Should that not leave, the next attempt is due
    /// after a pause.
    pub fn on_asked(&mut self, now: Instant) {
        self.liveness.on_asked(now);
        self.rest.on_keepalive(now);
    }

    /// The association carries something again: what is not known to answer is asked at once.
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
                self.liveness.ask_by(self.liveness.heartbeat_at());
            }
        }
    }

    /// No path had answered, and another one does now: asks this one for a sign of life, if it is
    /// silent, and gives it time.
    pub fn excuse(&mut self, now: Instant) {
        if self.is_silent() {
            self.ping = true;
            self.liveness.excuse(now);
        }
    }

    /// Whether it works, but does not answer.
    pub fn is_silent(&self) -> bool {
        self.works() && self.liveness.is_silent()
    }

    /// Takes a sample of the one-way delay, µs against the association's reference.
    pub fn on_delay(&mut self, now: Instant, sample: i64) {
        self.delay.on_sample(now, sample);
        self.delays.add(sample);
        self.playout.on_delay(now, sample, self.flight.in_flight());
    }

    /// Finds out whether the path jitters; called every 100 ms.
    pub fn update_playout(&mut self, parameters: &PlayoutParameters) {
        let Self { playout, flight, delay, .. } = self;
        playout.update(flight.in_flight(), flight.reordering(), delay, parameters);
    }

    /// Whether the path jitters so much that full packets are told when to be delivered.
    pub fn is_uneven(&self) -> bool {
        self.state == PathState::Active && self.playout.target().is_some()
    }

    /// When a packet that leaves now is to be delivered at the earliest: microseconds of the peer's
    /// clock, modulo 2^32. `reference` is that of the association's delay samples. `None` on a path
    /// without much jitter.
    pub fn playout(&self, now: Instant, reference: Option<u32>) -> Option<u32> {
        let at = (now.as_micros() as u32).wrapping_add(reference?);
        Some(at.wrapping_add_signed(self.playout.target()? as i32))
    }

    /// The challenge on which it depends whether the path works.
    pub fn calls(&self) -> Option<&Challenge> {
        let waits = matches!(self.state, PathState::Validating | PathState::Failed);
        self.validation.challenge.as_ref().filter(|_| waits)
    }

    /// Bytes of packets that may leave before the path works; 0 once it does.
    pub fn early_room(&self) -> usize {
        if self.calls().is_some() { self.validation.early_room() } else { 0 }
    }

    /// Bytes of another challenge that is to follow the first one, until enough has left for an
    /// answer with packets.
    pub fn lends(&self) -> Option<usize> {
        let lends = self.calls().is_some() && self.validation.lends();
        lends.then(|| self.challenge_len())
    }

    /// When it is to be said what has arrived before the path works. Packets that are `waiting`
    /// need the credit more, and say it, too.
    pub fn early_feedback_at(&self, waiting: bool) -> Option<Instant> {
        self.arrivals.due().filter(|_| !waiting && self.early_room() > 0)
    }

    /// Bytes that may leave now as far as the other end's address is concerned.
    pub fn sendable(&self) -> usize {
        if self.works() { usize::MAX } else { self.early_room() }
    }

    /// `len` bytes have left.
    pub fn spend(&mut self, len: usize) {
        if !self.works() {
            self.validation.spend(len);
        }
    }

    /// Where what leaves on it goes: while it does not work, to the address that is challenged.
    pub fn leads_to(&self) -> PathAddress {
        self.calls().map_or(self.address, |challenge| challenge.to)
    }

    /// Share of its packets that was lost in the last seconds, 0 to 1.
    pub fn loss(&self) -> f64 {
        self.loss.share()
    }

    /// Largest IP packet that the path may be hoped to carry, bytes.
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

    /// What is known of the path, for a trace.
    pub fn metrics(&self) -> Metrics {
        let rtt = self.flight.rtt();
        Metrics {
            smoothed_rtt: rtt.smoothed(),
            min_rtt: rtt.minimum(),
            queuing_delay: self.delay.queuing(),
            window: self.cc.window(),
            in_flight: self.flight.in_flight(),
            pacing_rate: self.cc.pacing_rate(),
            delivery_rate: self.flight.delivery_rate(),
            reordering_window: self.flight.reordering_window(),
        }
    }

    /// When anything is due on this path. `waiting`: inner packets wait for pacing; `alone`: no
    /// path answers.
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
            self.liveness.deadline(&self.signs(alone)),
            self.heartbeat_at(),
            self.mtu
                .next_timeout()
                .filter(|_| self.heartbeat_at().is_some() && !self.rest.is_resting()),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

/// The MTU of a path toward `remote` that carries datagrams with path challenges.
fn base_mtu(encapsulation: Encapsulation, remote: SocketAddr) -> u16 {
    (CHALLENGE_DATAGRAM_LEN + encapsulation.headers(remote)) as u16
}
