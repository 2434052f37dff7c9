//! Paths: local address, remote address, and what is known of the way between them.
//!
//! A path is also a lane: it has its own packet numbers in each direction ([`flight`] sends,
//! [`arrivals`] receives). It is owned by its association, which decides what travels on it.

pub(crate) mod arrivals;
mod challenge;
pub(crate) mod delay;
pub(crate) mod ecn;
pub(crate) mod flight;
mod mtu;
mod pacer;
mod playout;
mod rate;
pub(crate) mod rest;
pub(crate) mod rtt;

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;

use mpip_crypto::ReplayWindow;
use mpip_wire::{CHALLENGE_DATAGRAM_LEN, PathId};

use self::arrivals::Arrivals;
pub(crate) use self::challenge::Challenge;
use self::delay::DelayEstimator;
use self::flight::{Flight, Losses, Progress};
use self::mtu::Search;
use self::pacer::{Pacer, time_for};
use self::playout::Playout;
use self::rest::{REST_PATIENCE, REST_PROBE, REST_RETRY, Rest};
use crate::bottleneck::DelaySeries;
use crate::cc::{self, CongestionControl, CongestionEvent, Subflow};
use crate::config::{CongestionControlKind, Encapsulation, LocalAddress};
use crate::guard::Part;
use crate::scheduler::Candidate;
use crate::sink::PathAddress;
use crate::status::PathStatus;
use crate::time::Instant;
use crate::trace::Metrics;

/// A path that carries nothing is asked for a sign of life so often (seed 000, section 3.5).
const HEARTBEAT: Duration = Duration::from_millis(300);
/// A path that does not answer is asked with doubling pauses up to this one.
const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// Silence is never called failure before this: schedulers of busy hosts pause that long.
const MIN_SILENCE: Duration = Duration::from_millis(60);
/// Shares of lost packets from which on one probe, or two, say too little.
const SOME_LOSS: f64 = 0.02;
const HIGH_LOSS: f64 = 0.06;
/// A path of which an unauthenticated message says that it is dead has at least so long to prove
/// that it lives.
const MIN_DOUBT: Duration = Duration::from_millis(20);

/// Where a path is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathState {
    /// A challenge is on its way; nothing else is sent.
    Validating,
    /// The peer's address has answered our challenge; the path carries packets.
    Active,
    /// It works, but the association has enough faster ones.
    Standby,
    /// It does not answer; probes go on, packets do not.
    Failed,
    /// Given up; its number is never used again.
    Abandoned,
}

impl PathState {
    /// The name in status output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Validating => "validating",
            Self::Active => "active",
            Self::Standby => "standby",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
        }
    }
}

impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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

/// Share of packets lost over the last seconds, in two half-windows.
#[derive(Clone, Copy, Debug, Default)]
struct LossMeter {
    halves: [(u64, u64); 2],
    started: Instant,
}

impl LossMeter {
    const WINDOW: Duration = Duration::from_secs(4);

    fn age(&mut self, now: Instant) {
        if now.since(self.started) >= Self::WINDOW {
            *self = Self { started: now, ..Self::default() };
        } else if now.since(self.started) >= Self::WINDOW / 2 {
            self.halves = [(0, 0), self.halves[0]];
            self.started = now;
        }
    }

    fn share(&self) -> f64 {
        let sent = self.halves[0].0 + self.halves[1].0;
        let lost = self.halves[0].1 + self.halves[1].1;
        if sent == 0 { 0.0 } else { (lost as f64 / sent as f64).min(1.0) }
    }
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
    pub(crate) cc: Box<dyn CongestionControl>,
    pacer: Pacer,
    /// Our challenge on the way, if any; for a path in use, to an address it may move to.
    pub(crate) challenge: Option<Challenge>,
    /// The peer's challenge that we owe an answer, and where it came from.
    pub(crate) response_owed: Option<([u8; 8], PathAddress)>,
    /// Our end as the peer sees it, once it has told: another address than ours behind a translator.
    pub(crate) observed: Option<SocketAddr>,
    /// The peer has to be told how we see it; and whether it ever was.
    pub(crate) observed_owed: bool,
    pub(crate) observed_told: bool,
    /// Bytes that may still go to an address that has not answered.
    pub(crate) credit: usize,
    /// The socket refused a datagram; cleared when it can take some again.
    pub(crate) blocked: bool,
    /// When something that asks for feedback was last sent.
    asked_at: Instant,
    playout: Playout,
    /// Ask for a sign of life at the next opportunity.
    pub(crate) ping: bool,
    /// Unanswered probes in a row.
    probes: u32,
    probe_at: Option<Instant>,
    recovery_started: Option<Instant>,
    unreported_loss: u64,
    /// Packets lost since the congestion control last reacted, and how many of them have arrived
    /// after all.
    event_lost: u64,
    event_spurious: u64,
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
    /// Whether the peer has acknowledged anything on it: then it has validated our address.
    pub(crate) confirmed: bool,
    /// Longest pause between probes while it does not answer.
    pub(crate) longest_pause: Duration,
    /// When something unauthenticated said that it is dead.
    doubted_at: Option<Instant>,
    /// What keeps it open while the association carries nothing.
    pub(crate) rest: Rest,
}

/// What a due timer of a path asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// Answers come, or none are owed.
    None,
    /// Ask for a sign of life.
    Probe,
    /// It is dead: what is in flight there has been given up.
    Dead,
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
            cc: cc::new(kind, now, u64::from(local.mtu)),
            pacer: Pacer::default(),
            challenge: None,
            response_owed: None,
            observed: None,
            observed_owed: false,
            observed_told: false,
            credit: 0,
            blocked: false,
            asked_at: now,
            playout: Playout::default(),
            ping: false,
            probes: 0,
            probe_at: None,
            recovery_started: None,
            unreported_loss: 0,
            event_lost: 0,
            event_spurious: 0,
            loss: LossMeter { started: now, ..LossMeter::default() },
            counters: Counters::default(),
            changed: now,
            status_sequence: 0,
            status_owed: false,
            standby_told: false,
            peer_standby: false,
            peer_sequence: None,
            opened: now,
            confirmed: false,
            longest_pause: MAX_PROBE_INTERVAL,
            doubted_at: None,
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
        self.probes = 0;
        self.probe_at = None;
        self.doubted_at = None;
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
        self.state == PathState::Active && self.probes == 0
    }

    /// Whether control frames may go to its address.
    pub(crate) fn is_validated(&self) -> bool {
        matches!(self.state, PathState::Active | PathState::Standby | PathState::Failed)
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
        let works = matches!(self.state, PathState::Active | PathState::Standby);
        let works = works && !self.rest.is_resting();
        let size = (works && self.probes == 0).then(|| self.mtu.poll(now)).flatten()?;
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
            self.cc = cc::new(kind, now, u64::from(local.mtu));
            self.pacer = Pacer::default();
            self.delay = DelayEstimator::default();
            self.delays = DelaySeries::default();
            self.playout = Playout::default();
            self.flight.on_moved();
            self.observed = None;
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
            rate: self.rate(),
            fixed_weight: self.fixed_weight,
        }
    }

    /// Notes a datagram that left.
    pub(crate) fn on_sent(&mut self, now: Instant, size: usize, asks: bool, paced: bool) {
        self.rest.on_travelled(now);
        self.counters.bytes_sent += size as u64;
        self.counters.packets_sent += 1;
        if asks {
            self.asked_at = now;
            self.loss.age(now);
            self.loss.halves[0].0 += 1;
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
        self.event_spurious += progress.spurious;
        if self.event_lost > 0 && self.event_spurious >= self.event_lost {
            self.event_lost = 0;
            self.cc.on_spurious(now);
        }
        self.on_losses(now, losses, subflows, own);
        if progress.longest > 0 {
            self.mtu.on_arrived(now, self.size_of(progress.longest));
        }
        if let Some(mut sample) = progress.sample {
            sample.lost = core::mem::take(&mut self.unreported_loss);
            self.probes = 0;
            self.probe_at = None;
            self.doubted_at = None;
            if sample.ecn_ce > 0 {
                // What was marked left before what is acknowledged now at the latest.
                let sent = now - sample.rtt.unwrap_or(sample.smoothed_rtt);
                self.congested(now, sent, 0, true, false, subflows, own);
            }
            self.cc.on_feedback(&sample, subflows, own);
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
        self.loss.halves[0].1 += losses.packets;
        self.unreported_loss += losses.bytes;
        self.event_lost += losses.packets;
        self.congested(now, losses.newest, losses.bytes, false, false, subflows, own);
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one event")]
    fn congested(
        &mut self,
        now: Instant,
        sent: Instant,
        lost: u64,
        ecn: bool,
        persistent: bool,
        subflows: &[Subflow],
        own: usize,
    ) {
        // RFC 9002, section 7.3.2: what left before the last reaction belongs to it.
        if !persistent && self.recovery_started.is_some_and(|started| sent <= started) {
            return;
        }
        self.recovery_started = Some(now);
        self.event_spurious = 0;
        self.cc.on_congestion(&CongestionEvent { now, sent, lost, persistent, ecn }, subflows, own);
    }

    /// How long an answer may take.
    pub(crate) fn probe_timeout(&self) -> Duration {
        self.flight.rtt().probe_timeout(arrivals::MAX_DELAY)
    }

    /// When silence will have lasted too long.
    pub(crate) fn silence_deadline(&self) -> Option<Instant> {
        match self.state {
            PathState::Abandoned | PathState::Validating => None,
            PathState::Failed => self.probe_at,
            PathState::Active | PathState::Standby => {
                let silence = self.flight.silent_since().map(|since| {
                    if self.rest.is_resting() {
                        let doubled = self.probe_timeout() * 2_u32.pow(self.probes.min(16));
                        let next = self.asked_at + doubled.min(REST_RETRY);
                        return next.min(since + REST_PATIENCE);
                    }
                    let next = since + self.probe_timeout() * (self.probes + 1);
                    let last = self.probes >= self.probes_before_death();
                    if last { next.max(since + MIN_SILENCE) } else { next }
                });
                silence.into_iter().chain(self.doubt_deadline()).min()
            }
        }
    }

    /// Probes that have to stay unanswered until the path counts as dead. Of a path that loses a tenth of
    /// what it carries each way, one packet and one probe are lost together several times a minute.
    fn probes_before_death(&self) -> u32 {
        match self.loss.share() {
            loss if loss >= HIGH_LOSS => 3,
            loss if loss >= SOME_LOSS => 2,
            _ => 1,
        }
    }

    /// Judges the silence at `now`. After [`Silence::Dead`] the state is failed and what was in
    /// flight is in `losses`.
    pub(crate) fn check_silence(&mut self, now: Instant, losses: &mut Losses) -> Silence {
        if self.silence_deadline().is_none_or(|deadline| now < deadline) {
            return Silence::None;
        }
        let failed = self.state == PathState::Failed;
        let doubted = !failed && self.doubt_deadline().is_some_and(|deadline| now >= deadline);
        let resting = self.rest.is_resting();
        let patient = match resting {
            true => self.flight.silent_since().is_some_and(|at| now.since(at) < REST_PATIENCE),
            false => self.probes < self.probes_before_death(),
        };
        if (patient && !doubted) || failed {
            self.probes = self.probes.saturating_add(1);
            if failed {
                let pause = HEARTBEAT * 2_u32.saturating_pow(self.probes.min(8));
                let longest = if resting { REST_PROBE } else { self.longest_pause };
                self.probe_at = Some(now + pause.min(longest));
            }
            return Silence::Probe;
        }
        self.flight.abandon(losses);
        Silence::Dead
    }

    /// Something that is not authentic says that the path is dead: asks for a sign of life, for
    /// which it has less time than silence has. Returns whether that changed anything.
    pub(crate) fn doubt(&mut self, now: Instant) -> bool {
        let works = matches!(self.state, PathState::Active | PathState::Standby);
        // At rest a translator that has forgotten the path says so; the peer is about to call.
        let news = works && self.doubted_at.is_none() && !self.rest.is_resting();
        if news {
            self.doubted_at = Some(now);
            self.ping = true;
        }
        news
    }

    /// What had no answer may be reached now. Returns whether something is asked sooner for that.
    pub(crate) fn ask_again(&mut self, now: Instant) -> bool {
        let before = self.next_timeout(false);
        if let Some(challenge) = &mut self.challenge {
            challenge.repeat(now);
        }
        self.probe_at = self.probe_at.map(|at| at.min(now));
        self.next_timeout(false) != before
    }

    fn doubt_deadline(&self) -> Option<Instant> {
        self.doubted_at.map(|at| at + (self.probe_timeout() * 2).max(MIN_DOUBT))
    }

    /// The path is known to be dead: from now on it is only asked whether it lives again.
    pub(crate) fn on_dead(&mut self, now: Instant) {
        self.probes = 1;
        self.probe_at = Some(now + HEARTBEAT.min(self.longest_pause));
        self.mtu.on_interruption();
        self.congested(now, now, 0, false, true, &[], 0);
    }

    /// When a heartbeat is due.
    pub(crate) fn heartbeat_at(&self) -> Option<Instant> {
        let soonest = self.asked_at + HEARTBEAT;
        matches!(self.state, PathState::Active | PathState::Standby).then(|| {
            let resting = self.rest.is_resting();
            if resting { self.rest.keepalive_at().max(soonest) } else { soonest }
        })
    }

    /// The probe that was due could not leave; the next attempt is due after a pause.
    pub(crate) fn on_asked(&mut self, now: Instant) {
        self.asked_at = now;
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
            self.probes = 1;
            self.probe_at = Some(now + HEARTBEAT.min(self.longest_pause));
        }
    }

    /// Something authentic came in, and was read.
    pub(crate) fn on_received(&mut self, now: Instant) {
        let resting = self.rest.is_resting();
        self.rest.on_travelled(now);
        if resting && self.probes > 0 {
            // The way is open again, at least from there: what was asked was not heard.
            match self.state {
                PathState::Active | PathState::Standby => self.ping = true,
                _ => self.probe_at = self.probe_at.map(|at| at.min(self.asked_at + HEARTBEAT)),
            }
        }
    }

    /// When anything is due on this path. `waiting`: inner packets wait for pacing.
    pub(crate) fn next_timeout(&self, waiting: bool) -> Option<Instant> {
        let challenge = self.challenge.as_ref().map(|challenge| challenge.next);
        let pacing = (waiting && self.is_usable()).then(|| self.paced_until()).flatten();
        [
            challenge,
            pacing,
            self.arrivals.due(),
            self.flight.loss_timer(),
            self.silence_deadline(),
            self.heartbeat_at(),
            self.mtu
                .next_timeout()
                .filter(|_| self.heartbeat_at().is_some() && !self.rest.is_resting()),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Summary for coupled congestion control.
    pub(crate) fn subflow(&self) -> Subflow {
        Subflow {
            window: self.cc.window(),
            rtt: self.flight.rtt().smoothed(),
            between_losses: self.cc.between_losses(),
            reduced: self.cc.reduced(),
            drains: self.cc.drains(),
        }
    }

    /// What is known of the path, for a trace.
    pub(crate) fn metrics(&self) -> Metrics {
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

    /// Statistics. `fastest` is the lowest delay of the association's paths, `carried` what all of
    /// them have carried, `part` what the guard does with this one.
    pub(crate) fn status(
        &self,
        fastest: Option<i64>,
        carried: u64,
        weight: u16,
        part: Part,
    ) -> PathStatus {
        let rtt = self.flight.rtt();
        let relative = match (self.delay.average(), fastest) {
            (Some(delay), Some(fastest)) => {
                Some(Duration::from_micros(delay.saturating_sub(fastest).unsigned_abs()))
            }
            _ => None,
        };
        let share = self.counters.carried as f64 / carried.max(1) as f64;
        PathStatus {
            id: self.id.0,
            interface: self.interface.clone(),
            local: self.local,
            remote: self.address.remote,
            observed: self.observed,
            encapsulation: self.encapsulation,
            state: self.state,
            resting: self.rest.is_resting(),
            keepalive: self.rest.interval(),
            rtt: rtt.is_known().then(|| rtt.smoothed()),
            min_rtt: rtt.is_known().then(|| rtt.minimum()),
            relative_delay: relative,
            queuing_delay: self.delay.queuing(),
            jitter: self.delay.jitter(),
            loss: self.loss.share(),
            delivery_rate: self.flight.delivery_rate().saturating_mul(8),
            pacing_rate: self.cc.pacing_rate().map(|rate| rate.saturating_mul(8)),
            window: self.cc.window(),
            in_flight: self.flight.in_flight(),
            congestion_state: self.cc.state(),
            bottleneck: self.bottleneck,
            ecn: self.flight.ecn.name(),
            weight,
            bytes_sent: self.counters.bytes_sent,
            bytes_received: self.counters.bytes_received,
            packets_sent: self.counters.packets_sent,
            packets_received: self.counters.packets_received,
            packets_lost: self.counters.packets_lost,
            spurious_losses: self.counters.spurious,
            reordering_window: self.flight.reordering_window(),
            reordering_extent: self.flight.reordering_extent(),
            share,
            guard: part.name(),
            times_left_out: self.counters.left_out,
            mtu: self.mtu.hoped(),
        }
    }
}

/// The MTU of a path toward `remote` that carries datagrams with path challenges.
fn base_mtu(encapsulation: Encapsulation, remote: SocketAddr) -> u16 {
    (CHALLENGE_DATAGRAM_LEN + encapsulation.headers(remote)) as u16
}
