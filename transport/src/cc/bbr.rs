//! BBR: sends at the rate that the path delivers and keeps in flight what the path holds
//! (draft-ietf-ccwg-bbr; the delivery rate of draft-cheng-iccrg-delivery-rate-estimation).
//!
//! States, gains and filters are the draft's. It departs from it where radio links would starve it:
//!
//! - The path's volume is rate x (lowest RTT + [`FlightExcess`]), so that jitter larger than the
//!   base delay does not close the window. Where packets overtake each other, RTT is the mean of
//!   many.
//! - Out of Startup a round counts with the mean of its rate samples, not their maximum: jitter
//!   scatters samples, and the maximum of ten rounds would lie above the link's rate for ever and
//!   hold a queue of a whole window.
//! - Loss alone says nothing: see [`Round::overflowed`]. What is lost in any case is sent in
//!   addition, see [`RandomLoss`].
//! - The path is probed every seven to ten round trips as in the first BBR, not every 2 to 3 s: a
//!   radio link's rate changes faster than that.
//! - Paths of one bottleneck are one flow together: see [`Group`], and [`Rival`] beside another's
//!   queue.

mod group;
mod model;
mod rival;
mod round;
mod round_trips;

use core::time::Duration;

use self::group::Group;
use self::model::{Aggregation, FlightExcess, MaxFilter, RandomLoss};
use self::rival::Rival;
use self::round::Round;
use self::round_trips::RoundTrips;
use super::control::others;
use super::{CongestionControl, CongestionEvent, INITIAL_WINDOW_PACKETS, RateSample, Subflow};
use crate::parameters::BbrParameters;
use mpip_types::Instant;

const MIN_WINDOW_PACKETS: u64 = 4;
/// A round trip counts at least so long: on a LAN the sender's 64 KiB bursts take longer than the
/// RTT, and fewer than a few of them give no rate.
const MIN_ROUND: f64 = 0.002;
/// Bursts that the sender may hold back in one piece, as the draft's `send_quantum`: 1 ms.
const QUANTUM_SECONDS: f64 = 0.001;
const MAX_QUANTUM: f64 = 65_536.0;
/// A path does not follow others into ProbeRTT so soon after its own.
const PROBE_RTT_JOIN: Duration = Duration::from_secs(1);
/// Nor again so soon when one asks all to drain.
const PROBE_RTT_ASKED: Duration = Duration::from_millis(500);
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Startup,
    Drain,
    /// Sends less than the path delivers, to drain what the probe has queued.
    Down,
    Cruise,
    /// Sends more than the path delivered so far, to see whether it delivers more.
    Up,
    /// Sends little, to see the RTT of the empty path; until when, once the flight is small.
    ProbeRtt(Option<Instant>),
    /// Another flow fills the queue: the window follows its rule, see [`Rival`].
    Compete,
}

#[derive(Debug)]
pub(super) struct Bbr {
    parameters: BbrParameters,
    max_datagram: u64,
    state: State,
    /// Rounds that ended in this state, and how many it lasts (Cruise).
    rounds: u32,
    cruise_rounds: u32,
    round: Round,
    rate: MaxFilter,
    group: Group,
    excess: FlightExcess,
    random_loss: RandomLoss,
    startup_loss: RandomLoss,
    aggregation: Aggregation,
    rival: Rival,
    /// The most that was in flight before ProbeRTT.
    flight_before: u64,
    round_trips: RoundTrips,
    /// When ProbeRTT last ended.
    drained_at: Instant,
    /// It has been in ProbeRTT.
    seen_empty: bool,
    /// The drained path looked as if a rival filled its queue. Before that is believed all paths
    /// of the association drain at once: the queue may be that of others which share a link
    /// with this one.
    suspects: bool,
    /// Whether the last round was [used](Round::used): this one's feedback is for its packets.
    last_used: bool,
    last_feedback: Instant,
    /// The path has been full once; the rate to beat in Startup and rounds that did not.
    filled: bool,
    full_rate: f64,
    full_rounds: u32,
    /// Loss ended Startup, and nothing has shown it to be spurious yet.
    startup_lost: bool,
    /// Rate before the probe, and how often in succession it found more.
    rate_before: f64,
    wider: u32,
    /// Rounds in succession that showed the path slower than believed.
    slower: u32,
    /// Volume that overflowed a queue lately, and the rate until the next probe.
    volume_high: Option<f64>,
    overflowed_at: Instant,
    rate_low: Option<f64>,
    /// The two before the last reduction.
    prior: Option<(Option<f64>, Option<f64>)>,
    /// Value of `delivered` until which samples are of packets that ProbeRTT held back.
    limited_until: u64,
    window: f64,
    pacing: Option<f64>,
}

impl Bbr {
    pub(super) fn new(now: Instant, max_datagram: u64, parameters: &BbrParameters) -> Self {
        Self {
            parameters: *parameters,
            max_datagram,
            state: State::Startup,
            rounds: 0,
            cruise_rounds: parameters.cruise_rounds,
            round: Round::new(now, 0, 0),
            rate: MaxFilter::default(),
            group: Group::default(),
            excess: FlightExcess::default(),
            random_loss: RandomLoss::default(),
            startup_loss: RandomLoss::default(),
            aggregation: Aggregation::default(),
            rival: Rival::default(),
            flight_before: 0,
            round_trips: RoundTrips::new(now),
            drained_at: now,
            seen_empty: false,
            suspects: false,
            last_used: true,
            last_feedback: now,
            filled: false,
            full_rate: 0.0,
            full_rounds: 0,
            startup_lost: false,
            rate_before: 0.0,
            wider: 0,
            slower: 0,
            volume_high: None,
            overflowed_at: now,
            rate_low: None,
            prior: None,
            limited_until: 0,
            window: (INITIAL_WINDOW_PACKETS * max_datagram) as f64,
            pacing: None,
        }
    }

    /// Bytes/s at which to send so that the path is just full: what it delivers, and what it loses
    /// on the way.
    fn send_rate(&self) -> f64 {
        let rate = self.rate.max() * self.group.part();
        rate.min(self.rate_low.unwrap_or(f64::INFINITY))
            / (1.0 - self.parameters.random_loss_share * self.random_loss.ratio())
    }

    /// Seconds that a packet counts as in flight when no queue stands.
    fn flight_time(&self) -> f64 {
        self.round_trips.flight_time(&self.excess)
    }

    /// What the path holds without a queue, bytes.
    fn volume(&self) -> f64 {
        self.send_rate() * self.flight_time()
    }

    /// Whether the sender had so much in flight that it could have made a queue. With less, a late
    /// packet shows jitter, or somebody else's queue.
    fn fills_queues(&self) -> bool {
        self.round.peak_flight as f64 >= self.min_window()
    }

    /// Whether a packet that took `rtt` clearly has waited in a queue.
    fn late(&self, rtt: Option<Duration>) -> bool {
        self.fills_queues() && self.round_trips.is_late(rtt, &self.excess, self.filled)
    }

    /// Whether even the fastest packet of the round has waited so long that the path, not the
    /// sender, was what held it back. In Startup too little is known of the path's jitter to say.
    fn queued(&self) -> bool {
        self.filled
            && self.fills_queues()
            && self.round_trips.is_queued(self.round.fastest, &self.excess)
    }

    /// Whether a queue stands in Startup. Then the path is what limits, also where the sender does
    /// not use all that it may: an inner BBR keeps to what it has in flight, however much the
    /// window is.
    fn stalls(&self) -> bool {
        self.parameters.stalls
            && self.state == State::Startup
            && self.round.acked >= self.parameters.late_packets * self.max_datagram
            && self.round_trips.is_stuck(self.round.fastest)
    }

    fn min_window(&self) -> f64 {
        (MIN_WINDOW_PACKETS * self.max_datagram) as f64
    }

    fn quantum(&self) -> f64 {
        let pacing = self.pacing.unwrap_or(0.0);
        (pacing * QUANTUM_SECONDS).min(MAX_QUANTUM).max(2.0 * self.max_datagram as f64)
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.rounds = 0;
        match state {
            State::Cruise => {
                // Spread over three lengths, so that flows do not probe in step for ever.
                // By what was delivered, not by the clock, which must decide nothing.
                let spread = self.round.delivered.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
                self.cruise_rounds = self.parameters.cruise_rounds - 1 + (spread % 3) as u32;
            }
            State::Up => {
                self.rate_before = self.rate.max();
                self.wider = 0;
                self.rate_low = None;
            }
            State::Startup => {
                self.filled = false;
                self.startup_loss = RandomLoss::default();
                self.full_rate = 0.0;
                self.full_rounds = 0;
                self.volume_high = None;
                self.rate_low = None;
            }
            State::ProbeRtt(_) => self.flight_before = self.round.peak_flight,
            // While the flight grows, those packets are seen first that were fast.
            State::Drain if self.round_trips.jitters() && self.round.fastest.is_some() => {
                self.round_trips.set_lowest(self.round.fastest);
            }
            State::Drain | State::Down | State::Compete => {}
        }
    }

    fn update_round_trips(&mut self, sample: &RateSample) {
        if self.round_trips.on_feedback(sample) {
            self.round.fastest = None;
            self.excess = FlightExcess::default();
            self.rival = Rival::default();
            if self.state == State::Compete {
                self.enter(State::Cruise);
            }
        }
        if let Some(rtt) = sample.rtt {
            self.rival.on_rtt(rtt);
            self.round_trips.on_rtt(sample.now, rtt);
        }
    }

    fn update_round(&mut self, sample: &RateSample) {
        let round = &mut self.round;
        let elapsed = sample.now.since(core::mem::replace(&mut self.last_feedback, sample.now));
        round.allowance += self.pacing.unwrap_or(0.0) * elapsed.as_secs_f64();
        round.acked += sample.acked;
        round.lost += sample.lost;
        round.ecn |= sample.ecn_ce > 0;
        round.peak_flight = round.peak_flight.max(sample.prior_in_flight);
        if let Some(rtt) = sample.rtt {
            round.fastest = Some(round.fastest.map_or(rtt, |fastest| fastest.min(rtt)));
        }
        let (queued, late) = (self.queued() || self.stalls(), self.late(sample.rtt));
        let round = &mut self.round;
        if late {
            round.late_acked += sample.acked;
            round.late_lost += sample.lost;
        }
        if let Some(rate) = sample.delivery_rate {
            let rate = rate as f64;
            // What a sender with too little to send got through is a lower bound.
            let limited =
                (sample.app_limited && !queued) || sample.prior_delivered < self.limited_until;
            if !limited || rate > self.rate.max() {
                // A sample covers the round trip before it; late ones are of this round.
                let weight = sample.acked as f64 * (round.acked as f64).powi(2);
                round.rate_sum += rate * weight;
                round.rate_weight += weight;
                if self.state == State::Startup {
                    self.rate.update(rate);
                }
            }
        }
    }

    /// `others` are the paths with which this one shares its bottleneck.
    fn end_round<'a>(&mut self, sample: &RateSample, others: impl Iterator<Item = &'a Subflow>) {
        let now = sample.now;
        let late = self.late(self.round.fastest);
        let mut loss = self.random_loss.ratio();
        if self.state == State::Startup {
            // What is lost while no queue stands is lost anyway, as far as is known: a queue of a
            // few packets does not show, so that this ends with Startup.
            let (lost, acked) = self.round.on_time();
            self.startup_loss.add(lost, acked);
            loss = loss.max(self.startup_loss.ratio());
        }
        let overflowed = self.round.overflowed(late, loss, self.max_datagram);
        let lossy = self.is_lossy();
        self.round_trips.end_round(now, self.round.fastest, &self.excess, lossy);
        self.excess.update(now, self.max_datagram);
        self.aggregation.end_round();

        let measured = self.round.rate(now, self.flight_time());
        let before = self.rate.max();
        let last_used = core::mem::replace(&mut self.last_used, self.round.used());
        let queued = self.queued();
        // A queue that stands on a path of which the sender did not use all is the path's own, and
        // in Startup what a burst has left of it.
        let own = self.round_trips.jitters() || self.state == State::Startup;
        let stands = (late && own) || self.stalls();
        let used = queued || stands || (last_used && self.last_used);
        if let Some(rate) = measured {
            self.slower =
                if queued && rate < self.parameters.slower * before { self.slower + 1 } else { 0 };
            if self.slower >= self.parameters.slower_rounds {
                self.slower = 0;
                self.rate = MaxFilter::default();
                self.rate.update(rate);
            }
            if self.state != State::Startup {
                self.rate.update(rate);
            }
            let groups = self.parameters.groups;
            let others = others.filter(|_| groups).map(|flow| flow.delivered);
            self.group.on_round(rate, self.rate.max(), others);
            if self.state == State::Cruise {
                self.group.on_queue(late);
            }
            if used {
                self.rate.advance();
                self.group.advance();
            }
        }
        self.rounds += 1;
        match self.state {
            State::Startup => {
                self.end_startup_round(measured.is_some() && used, late, overflowed);
            }
            State::Drain | State::ProbeRtt(_) | State::Down => {}
            State::Compete => {
                if self.round.lost_more(loss, self.max_datagram) {
                    self.rival.on_overflow(now);
                }
            }
            State::Cruise => {
                // The first one still sees what the probe lost.
                if self.rounds > 1 && !late {
                    self.random_loss.add(self.round.lost, self.round.acked);
                }
                if self.rounds >= self.cruise_rounds {
                    self.enter(State::Up);
                }
            }
            State::Up => {
                self.raise_volume_high(now);
                if self.rounds >= 2 {
                    self.judge_probe(measured.unwrap_or(0.0));
                }
            }
        }
        let bound = matches!(self.state, State::ProbeRtt(_) | State::Startup | State::Compete);
        if overflowed && !bound {
            self.reduce(now, measured.unwrap_or(before));
        }
        self.round = Round::new(now, sample.delivered, sample.in_flight);
    }

    fn end_startup_round(&mut self, measured: bool, late: bool, overflowed: bool) {
        if measured {
            let rate = self.rate.max();
            if rate >= self.full_rate * self.parameters.full_growth {
                self.full_rate = rate;
                self.full_rounds = 0;
            } else {
                self.full_rounds += if late { self.parameters.full_rounds.div_ceil(2) } else { 1 };
            }
        }
        let overflowed = overflowed
            && (self.round.ecn
                || self.round.lost >= self.parameters.startup_losses * self.max_datagram);
        if self.full_rounds >= self.parameters.full_rounds || overflowed {
            self.startup_lost = overflowed;
            self.filled = true;
            self.enter(State::Drain);
        }
    }

    /// A probe's second round shows what the path did with the first.
    fn judge_probe(&mut self, rate: f64) {
        if rate < self.rate_before * self.parameters.wider_growth {
            self.enter(State::Down);
            return;
        }
        self.rate_before = rate;
        self.rounds = 0;
        self.wider += 1;
        if self.wider >= 2 {
            self.enter(State::Startup);
        }
    }

    /// A probe that used the bound without overflow shows that it is too low. Where the path
    /// jitters much, what overflowed is found out late, and costs more than a little more would
    /// bring.
    fn raise_volume_high(&mut self, now: Instant) {
        let recent = now.since(self.overflowed_at) < self.parameters.overflow_pause;
        if let Some(high) = self.volume_high
            && !(recent
                && self.round_trips.jitter() > self.parameters.long_jitter.as_secs_f64()
                && high >= self.parameters.enough * self.volume())
            && self.round.peak_flight as f64 + 2.0 * self.max_datagram as f64 >= high
        {
            let raised = high * self.parameters.up_gain;
            let enough = self.parameters.up_window_gain * self.volume() + self.aggregation.bytes();
            self.volume_high = (raised < enough).then_some(raised);
        }
    }

    fn reduce(&mut self, now: Instant, rate: f64) {
        self.overflowed_at = now;
        self.prior = Some((self.volume_high, self.rate_low));
        let volume = self.volume();
        let flight = self.round.peak_flight as f64;
        let high = flight.min(self.volume_high.unwrap_or(flight)) * self.parameters.headroom;
        self.volume_high = Some(high.max(volume).max(self.min_window()));
        let low = self.parameters.overflow_factor * self.rate_low.unwrap_or(self.rate.max());
        self.rate_low = Some(low.max(rate));
        if self.state == State::Up {
            self.enter(State::Down);
        }
    }

    /// Whether what Startup has sent already is more than queues hold.
    fn overshoots(&self, now: Instant) -> bool {
        let Round { start, acked, fastest, .. } = self.round;
        self.parameters.overshoot
            && self.flight_time() > self.parameters.long_flight.as_secs_f64()
            && acked >= self.parameters.late_packets * self.max_datagram
            && now.since(start) >= self.parameters.late_after
            && self.round_trips.is_far_behind(fastest)
    }

    /// State changes that do not wait for the end of a round.
    fn update_state(&mut self, sample: &RateSample, others_drain: bool) {
        let now = sample.now;
        let in_flight = sample.in_flight as f64;
        if matches!(self.state, State::ProbeRtt(_)) {
            self.limited_until = sample.delivered + sample.in_flight;
        }
        let volume = self.volume().max(self.min_window());
        match self.state {
            State::Drain if in_flight <= volume => self.enter(State::Cruise),
            State::Startup if self.overshoots(now) => {
                self.filled = true;
                self.enter(State::Drain);
            }
            // A queue that does not drain is not this path's own.
            State::Down if self.rounds >= 2 || (self.rounds >= 1 && in_flight <= volume) => {
                self.enter(State::Cruise);
            }
            // What more was sent only made a queue. The flight must have grown by it: another
            // flow's queue makes packets late as well, and would else end every probe.
            State::Up if self.rounds >= 1 && self.late(sample.rtt) => {
                let bound = self.volume_high.unwrap_or(f64::INFINITY);
                let probed = (self.round.peak_flight + self.max_datagram) as f64;
                if probed >= (self.group.probe_gain(self.parameters.up_gain) * volume).min(bound) {
                    self.enter(State::Down);
                }
            }
            State::ProbeRtt(None) if in_flight <= self.probe_rtt_window() => {
                // Beside a rival one round trip shows what there is to see.
                let hold = match self.rival.window() {
                    Some(_) => sample.smoothed_rtt * 5 / 4,
                    None => {
                        let flight_time = Duration::try_from_secs_f64(self.flight_time());
                        flight_time.map_or(PROBE_RTT_TIME, |time| time.max(PROBE_RTT_TIME))
                    }
                };
                self.round_trips.set_lowest(self.round.fastest.or(sample.rtt));
                self.excess.on_drained(now);
                self.state = State::ProbeRtt(Some(now + hold));
            }
            State::ProbeRtt(Some(end)) if now >= end => self.end_probe_rtt(now),
            _ => {}
        }
        let due = match self.state {
            State::Compete => self.rival.test_due(now),
            _ => self.round_trips.is_probe_due(now) || self.is_unknown(),
        };
        // Paths of one bottleneck drain it together, or none sees it empty.
        let asked = others_drain || self.suspects;
        let again = asked && now.since(self.drained_at) >= PROBE_RTT_JOIN;
        if (due || again) && self.filled && !matches!(self.state, State::ProbeRtt(_)) {
            self.enter(State::ProbeRtt(None));
        }
    }

    /// The path delivers in long bursts and has never been seen empty: what it holds is known
    /// badly.
    fn is_unknown(&self) -> bool {
        let bursts = self.aggregation.bytes();
        let known = self.seen_empty || self.state != State::Cruise || self.rounds == 0;
        !known
            && bursts
                > self.volume().max(self.parameters.long_jitter.as_secs_f64() * self.rate.max())
    }

    /// The path loses so much by itself that no loss-based flow fills its queue.
    fn is_lossy(&self) -> bool {
        self.random_loss.ratio() > self.parameters.rival_max_loss
    }

    /// The path has been drained.
    fn end_probe_rtt(&mut self, now: Instant) {
        self.round_trips.on_drained(now);
        if let Some(lowest) = self.round_trips.lowest() {
            self.excess.on_filled(now, lowest, self.max_datagram);
        }
        self.drained_at = now;
        self.seen_empty = true;
        let shows = self.parameters.competes && !self.is_lossy() && !self.round_trips.jitters();
        let lowest = self.round_trips.lowest();
        let doubts = !self.suspects && self.rival.window().is_none();
        self.suspects = shows && doubts && lowest.is_some_and(|rtt| self.rival.shows(rtt));
        if self.suspects {
            self.round_trips.set_lowest(self.rival.base());
        } else if let Some(rtt) = lowest.filter(|_| shows) {
            let displaced = self.rate.max() < self.parameters.displaced * self.full_rate;
            let flight = (self.flight_before, displaced);
            let base = self.rival.on_drained(now, rtt, flight, self.max_datagram);
            self.round_trips.set_lowest(Some(base));
        }
        self.enter(match (self.filled, self.rival.window()) {
            (false, _) => State::Startup,
            (true, None) => State::Cruise,
            (true, Some(_)) => State::Compete,
        });
    }

    /// A path that delivers in bursts starves without what acknowledgements run ahead; for others
    /// that is the beginning of a queue.
    fn probe_rtt_window(&self) -> f64 {
        let (volume, bursts) = (self.volume(), self.aggregation.bytes());
        let holds = if bursts > volume { volume + bursts } else { volume };
        (self.parameters.probe_rtt_window_gain * holds).max(self.min_window())
    }

    fn update_window(&mut self, sample: &RateSample) {
        let gain = match self.state {
            State::Startup => self.parameters.startup_gain,
            State::Up => self.parameters.up_window_gain,
            State::Drain | State::Down | State::Cruise => self.parameters.window_gain,
            State::ProbeRtt(_) => {
                self.window = self.window.min(self.probe_rtt_window());
                return;
            }
            State::Compete => {
                let (window, _) = self.rival.window().expect("it competes with a window");
                self.window = window.max(self.min_window());
                return;
            }
        };
        let gain = if self.filled { self.group.window_gain(gain) } else { gain };
        let bursts = self.group.burst(self.aggregation.bytes());
        let target =
            (gain * self.volume() + bursts).max(3.0 * self.quantum()).max(self.min_window());
        let grown = self.window + sample.acked as f64;
        if self.filled {
            self.window = grown.min(target);
        } else if self.window < target {
            self.window = grown;
        }
        if let Some(high) = self.volume_high {
            let share = if self.state == State::Up { 1.0 } else { self.parameters.headroom };
            self.window = self.window.min(high * share);
        }
        self.window = self.window.max(self.min_window());
    }

    fn update_pacing(&mut self, sample: &RateSample) {
        let gain = match self.state {
            State::Startup => self.parameters.startup_gain,
            State::Drain => self.parameters.drain_gain,
            State::Down if sample.in_flight as f64 > self.volume() => self.parameters.down_gain,
            State::Down => self.parameters.drained_gain,
            State::Cruise | State::ProbeRtt(_) => 1.0,
            State::Up => self.group.probe_gain(self.parameters.up_gain),
            State::Compete => {
                self.pacing = self.rival.window().and_then(|(_, pacing)| pacing).or(self.pacing);
                return;
            }
        };
        let rate = gain * self.parameters.pacing_margin * self.send_rate();
        let rtt = sample.smoothed_rtt.as_secs_f64();
        if self.filled {
            // Two packets per RTT at least: the way out of an estimate near zero.
            let least = if rtt > 0.0 { 2.0 * self.max_datagram as f64 / rtt } else { 0.0 };
            self.pacing = Some(rate.max(least));
        } else {
            let initial =
                self.parameters.startup_gain * (INITIAL_WINDOW_PACKETS * self.max_datagram) as f64;
            let initial = if rtt > 0.0 { initial / rtt } else { 0.0 };
            let rate = rate.max(initial).max(self.pacing.unwrap_or(0.0));
            self.pacing = (rate > 0.0).then_some(rate);
        }
    }
}

impl CongestionControl for Bbr {
    fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64) {
        self.excess.on_sent(now, bytes, in_flight);
        self.rival.on_sent(now, bytes, in_flight);
        let round = &mut self.round;
        round.sent += bytes;
        round.peak_flight = round.peak_flight.max(in_flight + bytes);
        round.window_full |= (in_flight + bytes + self.max_datagram) as f64 > self.window;
    }

    fn on_feedback(&mut self, sample: &RateSample, subflows: &[Subflow], own: usize) {
        let others_drain = others(subflows, own).any(|flow| flow.drains);
        self.excess.on_feedback(sample);
        self.update_round_trips(sample);
        self.update_round(sample);
        if self.filled {
            let (rate, window) = (self.rate.max(), self.window);
            self.aggregation.on_feedback(sample.now, sample.acked, rate, window);
        }
        let flight_time = self.flight_time();
        let elapsed = sample.now.since(self.round.start).as_secs_f64();
        let acknowledged = sample.prior_delivered >= self.round.delivered;
        if elapsed >= flight_time.max(MIN_ROUND)
            && (acknowledged || elapsed >= self.parameters.max_round * flight_time)
        {
            self.end_round(sample, others(subflows, own));
        }
        if self.state == State::Compete {
            self.rival.on_feedback(sample, subflows, own);
        }
        self.update_state(sample, others_drain);
        self.update_window(sample);
        self.update_pacing(sample);
    }

    fn on_congestion(&mut self, event: &CongestionEvent, _subflows: &[Subflow], _own: usize) {
        if event.persistent {
            // What was known of the path no longer holds.
            let anew = Self::new(event.now, self.max_datagram, &self.parameters);
            *self = Self { window: self.min_window(), ..anew };
        }
        self.round.ecn |= event.ecn;
        // What was taken for the last event stays, also if this one proves to be none.
        self.startup_lost = false;
        self.prior = None;
    }

    fn on_spurious(&mut self, now: Instant) {
        self.rival.on_spurious(now);
        if core::mem::take(&mut self.startup_lost) {
            self.enter(State::Startup);
        }
        if let Some((high, low)) = self.prior.take() {
            self.volume_high = high;
            self.rate_low = low;
        }
    }

    fn window(&self) -> u64 {
        self.window as u64
    }

    fn pacing_rate(&self) -> Option<u64> {
        self.pacing.map(|rate| rate as u64)
    }

    fn bandwidth(&self) -> Option<u64> {
        Some(self.rate.max() as u64)
    }

    fn state(&self) -> &'static str {
        match self.state {
            State::Startup => "startup",
            State::Drain => "drain",
            State::Down => "probe-bw-down",
            State::Cruise => "probe-bw-cruise",
            State::Up => "probe-bw-up",
            State::ProbeRtt(_) => "probe-rtt",
            State::Compete => "compete",
        }
    }

    fn reduced(&self) -> Option<Instant> {
        self.rival.reduced()
    }

    fn drains(&self) -> bool {
        matches!(self.state, State::ProbeRtt(_))
    }

    fn asks_all_to_drain(&self) -> bool {
        self.drains() && (self.suspects || self.rival.window().is_some())
    }

    fn drain(&mut self, now: Instant) {
        if self.filled && !self.drains() && now.since(self.drained_at) >= PROBE_RTT_ASKED {
            self.enter(State::ProbeRtt(None));
        }
    }

    fn delivered(&self) -> (u64, u64) {
        (self.group.last() as u64, self.rate.max() as u64)
    }

    fn searches(&self) -> bool {
        self.state == State::Startup
    }
}
