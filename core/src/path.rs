//! Paths: local address, remote address, and what is known of the way between them.
//!
//! A path is also a lane: it has its own packet numbers in each direction ([`flight`] sends,
//! [`arrivals`] receives). It is owned by its association, which decides what travels on it.

pub(crate) mod arrivals;
mod challenge;
mod congestion;
pub(crate) mod delay;
pub(crate) mod ecn;
pub(crate) mod flight;
pub(crate) mod ids;
mod liveness;
mod loss;
mod mtu;
mod pacer;
mod playout;
mod rate;
pub(crate) mod rest;
pub(crate) mod rtt;
mod state;
mod status;

use core::net::SocketAddr;
use core::time::Duration;

use mpip_crypto::ReplayWindow;
use mpip_wire::{CHALLENGE_DATAGRAM_LEN, PathId};

use self::arrivals::Arrivals;
pub(crate) use self::challenge::{Challenge, Standing};
use self::congestion::Congestion;
use self::delay::DelayEstimator;
use self::flight::{Flight, Losses, Progress};
pub(crate) use self::liveness::Silence;
use self::liveness::{Liveness, MAX_PROBE_INTERVAL, Signs};
use self::loss::LossMeter;
use self::mtu::Search;
use self::pacer::{Pacer, time_for};
use self::playout::Playout;
use self::rest::Rest;
pub use self::state::PathState;
use crate::bottleneck::DelaySeries;
use crate::cc::{self, Subflow};
use crate::config::CongestionControlKind;
use crate::scheduler::Candidate;
use mpip_types::Instant;
use mpip_types::PathAddress;
use mpip_types::{Encapsulation, LocalAddress};

/// Counters of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) packets_sent: u64,
    pub(crate) packets_received: u64,
    pub(crate) packets_lost: u64,
    pub(crate) spurious: u64,
    /// Inner bytes sent on it.
    pub(crate) carried: u64,
    /// How often the guard has left it out.
    pub(crate) left_out: u64,
}

/// A path of an association.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) id: PathId,
    pub(crate) address: PathAddress,
    pub(crate) interface: String,
    pub(crate) local: SocketAddr,
    pub(crate) encapsulation: Encapsulation,
    mtu: Search,
    pub(crate) fixed_weight: Option<u16>,
    state: PathState,
    pub(crate) flight: Flight,
    pub(crate) arrivals: Arrivals,
    pub(crate) replay: ReplayWindow,
    pub(crate) delay: DelayEstimator,
    /// Its delays of late, and the number of the first path that shares its bottleneck.
    pub(crate) delays: DelaySeries,
    pub(crate) bottleneck: u16,
    pub(crate) cc: Congestion,
    pacer: Pacer,
    /// Our challenge on the way, if any; for a path in use, to an address it may move to.
    pub(crate) challenge: Option<Challenge>,
    /// The peer's challenge that we owe an answer, and where it came from.
    pub(crate) response_owed: Option<([u8; 8], PathAddress)>,
    /// Our end as the peer sees it, once it has told: another address than ours behind a translator.
    pub(crate) observed: Option<SocketAddr>,
    /// And whether it takes packets from there for ours as they are; so as long as it has not told.
    pub(crate) taken: bool,
    /// The peer has to be told how we see it; whether it ever was, and whether its address there is
    /// taken for its own.
    pub(crate) observed_owed: bool,
    pub(crate) observed_told: bool,
    pub(crate) takes: bool,
    /// Bytes that may still go to an address that has not answered.
    pub(crate) credit: usize,
    /// The socket refused a datagram; cleared when it can take some again.
    pub(crate) blocked: bool,
    playout: Playout,
    /// Ask for a sign of life at the next opportunity.
    pub(crate) ping: bool,
    liveness: Liveness,
    /// Longest pause between probes while it does not answer.
    pub(crate) longest_pause: Duration,
    loss: LossMeter,
    pub(crate) counters: Counters,
    /// When the state last changed.
    pub(crate) changed: Instant,
    /// Sequence of the status frames about this path.
    pub(crate) status_sequence: u64,
    /// A status frame about this path has to be sent.
    pub(crate) status_owed: bool,
    /// The peer is told to keep the path ready instead of using it.
    pub(crate) standby_told: bool,
    /// The peer wants the path kept ready, and the sequence of the status that said so.
    pub(crate) peer_standby: bool,
    peer_sequence: Option<u64>,
    /// When it came into being.
    pub(crate) opened: Instant,
    /// Whether the peer has acknowledged anything on it that left since its own address was validated:
    /// then it has validated ours.
    pub(crate) confirmed: bool,
    /// Number of the first packet that left since then, or since the host had no way there.
    pub(crate) counts_from: u64,
    /// What keeps it open while the association carries nothing.
    pub(crate) rest: Rest,
}

impl Path {
    pub(crate) fn new(
        id: PathId,
        address: PathAddress,
        local: &LocalAddress,
        kind: CongestionControlKind,
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
            cc: Congestion::new(cc::new(kind, now, u64::from(local.mtu))),
            pacer: Pacer::default(),
            challenge: None,
            response_owed: None,
            observed: None,
            taken: true,
            observed_owed: false,
            observed_told: false,
            takes: true,
            credit: 0,
            blocked: false,
            playout: Playout::default(),
            ping: false,
            liveness: Liveness::new(now),
            longest_pause: MAX_PROBE_INTERVAL,
            loss: LossMeter::new(now),
            counters: Counters::default(),
            changed: now,
            status_sequence: 0,
            status_owed: false,
            standby_told: false,
            peer_standby: false,
            peer_sequence: None,
            opened: now,
            confirmed: false,
            counts_from: 0,
            rest: Rest::new(now, None),
        }
    }

    pub(crate) fn state(&self) -> PathState {
        self.state
    }

    /// Changes the state; returns the former one if it is another.
    pub(crate) fn set_state(&mut self, now: Instant, state: PathState) -> Option<PathState> {
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

    /// Lets the peer know, if it does not, whether it should keep the path ready only.
    pub(crate) fn tell_standby(&mut self, standby: bool) {
        if self.standby_told != standby {
            self.standby_told = standby;
            self.status_sequence += 1;
            self.status_owed = true;
        }
    }

    /// The peer told what it wants of the path. `false` when that is nothing new.
    pub(crate) fn on_peer_status(&mut self, sequence: u64, standby: bool) -> bool {
        if self.peer_sequence.is_some_and(|newest| sequence <= newest) {
            return false;
        }
        self.peer_sequence = Some(sequence);
        core::mem::replace(&mut self.peer_standby, standby) != standby
    }

    /// Whether the path may be chosen for inner packets: it works and has not fallen silent.
    pub(crate) fn is_usable(&self) -> bool {
        self.state == PathState::Active && !self.liveness.is_silent()
    }

    /// Whether it carries packets, or is ready to: it is not known to be dead.
    pub(crate) fn works(&self) -> bool {
        matches!(self.state, PathState::Active | PathState::Standby)
    }

    /// Whether control frames may go to its address.
    pub(crate) fn is_validated(&self) -> bool {
        self.works() || self.state == PathState::Failed
    }

    /// Whether the peer does not take our address here for ours alone: it is a translator's, or others
    /// may share it.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.is_validated() && !self.taken
    }

    /// Whether a translator is on the way: the peer sees us elsewhere than we are.
    pub(crate) fn is_translated(&self) -> bool {
        self.observed.is_some_and(|observed| observed != self.local)
    }

    /// Largest datagram payload that the path is known to carry, bytes.
    pub(crate) fn max_datagram(&self) -> usize {
        self.payload_of(self.mtu.confirmed())
    }

    /// Largest datagram payload that the path may be hoped to carry, bytes; more than
    /// [`max_datagram`](Self::max_datagram) only while it is new.
    pub(crate) fn hoped_datagram(&self) -> usize {
        self.payload_of(self.mtu.hoped())
    }

    /// Largest datagram payload that the path carries for longer, bytes; `None` while that is
    /// being found out.
    pub(crate) fn lasting_datagram(&self) -> Option<usize> {
        self.mtu.lasting().map(|size| self.payload_of(size))
    }

    /// Bytes of a datagram with a path challenge: what the smallest path carries that is used.
    pub(crate) fn challenge_len(&self) -> usize {
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
    pub(crate) fn on_interface_mtu(&mut self, mtu: u16) {
        self.mtu.on_limit(mtu);
    }

    /// Bytes of the datagram that is to probe the path's MTU now, if it can say anything.
    pub(crate) fn poll_mtu_probe(&mut self, now: Instant) -> Option<usize> {
        let works = self.works() && !self.rest.is_resting();
        let size = (works && !self.liveness.is_silent()).then(|| self.mtu.poll(now)).flatten()?;
        Some(self.payload_of(size))
    }

    /// The probe has left. A sign of life that follows it tells whether the path works at all.
    pub(crate) fn on_mtu_probe_sent(&mut self) {
        self.mtu.on_probe_sent();
        self.ping = true;
    }

    /// It leads from `local` to another address from now on. Unless that is only another port, as
    /// translators give it, what was learnt of the way does not hold any more (RFC 9000, section
    /// 9.4).
    pub(crate) fn move_to(
        &mut self,
        now: Instant,
        address: PathAddress,
        local: &LocalAddress,
        kind: CongestionControlKind,
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
            self.cc.replace(cc::new(kind, now, u64::from(local.mtu)));
            self.pacer = Pacer::default();
            self.delay = DelayEstimator::default();
            self.delays = DelaySeries::default();
            self.playout = Playout::default();
            self.flight.on_moved();
            self.observed = None;
            self.taken = true;
        }
    }

    /// When `len` more bytes may leave.
    pub(crate) fn ready_at(&self, now: Instant, len: usize) -> Instant {
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
    pub(crate) fn paced_until(&self) -> Option<Instant> {
        let at = self.pacer.ready_at();
        (at > Instant::ZERO).then_some(at)
    }

    /// Whether it will soon take more than it does now: what it carries is not known yet, and it is
    /// being found out.
    pub(crate) fn is_growing(&self) -> bool {
        self.is_usable() && self.cc.searches() && self.flight.in_flight() * 2 >= self.cc.window()
    }

    /// Bytes per second that the path delivers, as far as is known.
    pub(crate) fn rate(&self) -> u64 {
        let rtt = self.flight.rtt().smoothed().as_nanos().max(1_000);
        self.cc.pacing_rate().unwrap_or_else(|| {
            let window = self.cc.window().min(1 << 40);
            u64::try_from(u128::from(window) * 1_000_000_000 / rtt).unwrap_or(u64::MAX)
        })
    }

    /// Bytes per second that were seen to arrive; a careful guess before any did.
    pub(crate) fn delivers(&self) -> u64 {
        self.cc
            .bandwidth()
            .unwrap_or_else(|| (self.rate() as f64 * (1.0 - self.loss.share())) as u64)
    }

    /// The path as a scheduler sees it, for a packet of `len` bytes.
    pub(crate) fn candidate(&self, now: Instant, len: usize) -> Candidate {
        Candidate {
            id: self.id.0,
            ready_at: self.ready_at(now, len),
            delay: self.delay.average().unwrap_or(0),
            jitter: self.delay.jitter().as_micros() as i64,
            queuing: self.delay.queuing().as_micros() as i64,
            repair: self.mean_repair(),
            rate: self.rate(),
            searches: self.cc.searches(),
            fixed_weight: self.fixed_weight,
        }
    }

    /// What a packet waits on the average for repairs of those before it, µs, where the receiver puts them in
    /// order: half of what a repair takes, as far as something is lost in that time.
    fn mean_repair(&self) -> i64 {
        let rtt = self.flight.rtt().smoothed().saturating_sub(self.delay.queuing());
        let takes = (rtt + self.flight.reordering_window()).as_secs_f64();
        let packets = self.delivers() as f64 / self.max_datagram().max(1) as f64 * takes;
        (takes / 2.0 * (self.loss.share() * packets).min(1.0) * 1e6) as i64
    }

    /// Notes a datagram that left.
    pub(crate) fn on_sent(&mut self, now: Instant, size: usize, asks: bool, paced: bool) {
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

    pub(crate) fn refresh_pacing(&mut self, now: Instant) {
        self.pacer.refresh(now);
    }

    /// Lets loss detection's findings and an acknowledged sample reach the congestion control.
    /// `subflows` are the association's paths for coupled control, `own` this one's index.
    pub(crate) fn on_progress(
        &mut self,
        now: Instant,
        progress: &Progress,
        losses: &Losses,
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
    pub(crate) fn on_losses(
        &mut self,
        now: Instant,
        losses: &Losses,
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
    pub(crate) fn probe_timeout(&self) -> Duration {
        self.flight.rtt().probe_timeout(arrivals::MAX_DELAY)
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
    pub(crate) fn check_silence(
        &mut self,
        now: Instant,
        alone: bool,
        losses: &mut Losses,
    ) -> Silence {
        let signs = self.signs(alone);
        let silence = self.liveness.check(now, &signs);
        if silence == Silence::Dead {
            self.flight.abandon(losses);
        }
        silence
    }

    /// Something that is not authentic says that the path is dead: asks for a sign of life, for
    /// which it has less time than silence has. Returns whether that changed anything.
    pub(crate) fn doubt(&mut self, now: Instant) -> bool {
        // At rest a translator that has forgotten the path says so; the peer is about to call.
        let news = self.works() && !self.rest.is_resting() && self.liveness.doubt(now);
        self.ping |= news;
        news
    }

    /// What had no answer may be reached now. Returns whether something is asked sooner for that.
    pub(crate) fn ask_again(&mut self, now: Instant) -> bool {
        let before = self.next_timeout(false, false);
        if let Some(challenge) = &mut self.challenge {
            challenge.repeat(now);
        }
        self.liveness.ask_by(now);
        self.next_timeout(false, false) != before
    }

    /// The path is known to be dead: from now on it is only asked whether it lives again.
    pub(crate) fn on_dead(&mut self, now: Instant) {
        self.liveness.on_dead(now, self.longest_pause);
        self.mtu.on_interruption();
        self.cc.on_dead(now);
    }

    /// When a heartbeat is due.
    pub(crate) fn heartbeat_at(&self) -> Option<Instant> {
        let soonest = self.liveness.heartbeat_at();
        self.works().then(|| {
            let resting = self.rest.is_resting();
            if resting { self.rest.keepalive_at().max(soonest) } else { soonest }
        })
    }

    /// It is about to be asked for a sign of life. Should that not leave, the next attempt is due
    /// after a pause.
    pub(crate) fn on_asked(&mut self, now: Instant) {
        self.liveness.on_asked(now);
        self.rest.on_keepalive(now);
    }

    /// The association carries something again: what is not known to answer is asked at once.
    pub(crate) fn wake(&mut self, now: Instant) {
        if !self.rest.end() {
            return;
        }
        if let Some(challenge) = &mut self.challenge {
            challenge.wake();
        }
        self.ping = self.is_validated();
        if self.state == PathState::Failed {
            self.liveness.on_dead(now, self.longest_pause);
        }
    }

    /// Something authentic came in, and was read.
    pub(crate) fn on_received(&mut self, now: Instant) {
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
    pub(crate) fn excuse(&mut self, now: Instant) {
        if self.is_silent() {
            self.ping = true;
            self.liveness.excuse(now);
        }
    }

    /// Whether it works, but does not answer.
    pub(crate) fn is_silent(&self) -> bool {
        self.works() && self.liveness.is_silent()
    }

    /// When anything is due on this path. `waiting`: inner packets wait for pacing; `alone`: no path
    /// answers.
    pub(crate) fn next_timeout(&self, waiting: bool, alone: bool) -> Option<Instant> {
        let challenge = self.challenge.as_ref().map(|challenge| challenge.next);
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
