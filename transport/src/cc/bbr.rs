//! BBR: sends at the rate that the path delivers and keeps in flight what the path holds
//! (draft-ietf-ccwg-bbr; the delivery rate of draft-cheng-iccrg-delivery-rate-estimation).
//!
//! States, gains and filters are the draft's. It departs from it where radio links would starve it:
//!
//! - The bandwidth-delay product is bandwidth x (minimum RTT + [`FlightExcess`]), so that jitter
//!   larger than the base delay does not close the window. On a path that reorders, RTT is the mean
//!   over many packets.
//! - After Startup, a round contributes the mean of its delivery rate samples, not their maximum.
//!   Jitter scatters the samples; the maximum over ten rounds would stay above the link's rate and
//!   keep a standing queue of a whole window.
//! - Loss alone is no sign of congestion: see [`Round::overflowed`]. Only loss that depends on the
//!   rate is, or much more loss than before: see [`Bbr::is_flooded`]. The pacing rate makes up for
//!   random loss: see [`RandomLoss`].
//! - Startup begins with more than ten packets where the path has shown while it was idle that it
//!   holds them.
//! - Bandwidth is probed every seven to ten round trips as in BBRv1, not every 2 to 3 s: the rate
//!   of a radio link changes faster.
//! - Paths that share a bottleneck act as one flow: see [`Group`]. A competing loss-based flow is
//!   handled by [`Rival`].

mod group;
mod limits;
mod model;
mod rival;
mod round;
mod round_trips;

use core::time::Duration;

use self::group::Group;
use self::model::{ExtraAcked, FlightExcess, MaxFilter, RandomLoss};
use self::rival::Rival;
use self::round::Round;
use self::round_trips::RoundTrips;
use super::control::others;
use super::{
    CongestionControl, CongestionEvent, INITIAL_WINDOW_PACKETS, RateSample, RttSum, Subflow,
};
use crate::parameters::BbrParameters;
use mpip_types::Instant;

const MIN_WINDOW_PACKETS: u64 = 4;
/// Minimum duration of a round, seconds. On a LAN the sender's 64 KiB bursts last longer than the
/// RTT, and a rate needs a few of them.
const MIN_ROUND: f64 = 0.002;
/// Time at the pacing rate that may leave as one burst, seconds (the draft's `send_quantum`).
const SEND_QUANTUM_SECONDS: f64 = 0.001;
const MAX_SEND_QUANTUM: f64 = 65_536.0;
/// Minimum time between a path's own ProbeRTT and one that it joins because other paths are in it.
const PROBE_RTT_JOIN: Duration = Duration::from_secs(1);
/// Minimum time between two ProbeRTTs when another path asks all paths to drain.
const PROBE_RTT_ASKED: Duration = Duration::from_millis(500);
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
/// Packets of which the mean RTT is the path's, where packets overtake each other.
const MIN_RTT_PACKETS: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Startup,
    Drain,
    /// Sends below the estimated bandwidth, to drain the queue that the probe has built.
    ProbeBwDown,
    ProbeBwCruise,
    /// Sends above the estimated bandwidth, to find out whether more is available.
    ProbeBwUp,
    /// Keeps little in flight, to measure the RTT of the empty path. Holds the end of the state,
    /// once the data in flight is small enough.
    ProbeRtt(Option<Instant>),
    /// A competing flow fills the queue: the window follows CUBIC, see [`Rival`].
    Compete,
}

/// The end of Startup.
#[derive(Debug, Default)]
struct FullBandwidth {
    /// Startup has found the full bandwidth (`full_bw_reached` in the draft).
    reached: bool,
    /// Loss ended Startup, and has not turned out to be spurious.
    reached_by_loss: bool,
    /// Bandwidth to beat, bytes/s (`full_bw`), and rounds in a row that did not grow beyond it
    /// (`full_bw_count`).
    bw: f64,
    rounds: u32,
}

/// What is kept of ProbeRTT between its turns.
#[derive(Debug)]
struct ProbeRtt {
    /// When it last ended.
    ended: Instant,
    /// It has been completed at least once.
    done: bool,
    /// Most bytes in flight in the round before it.
    flight_before: u64,
    /// Value of `delivered` up to which rate samples are limited by it.
    limited_until: u64,
    /// Value of `delivered` when the path was drained; when the first packet that left later was
    /// acknowledged, and the RTTs up to it.
    drained: (u64, Option<(Instant, RttSum)>),
}

impl ProbeRtt {
    fn new(now: Instant) -> Self {
        Self { ended: now, done: false, flight_before: 0, limited_until: 0, drained: (0, None) }
    }
}

#[derive(Debug)]
pub(super) struct Bbr {
    parameters: BbrParameters,
    max_datagram: u64,
    state: State,
    /// Rounds that ended in this state, and how many ProbeBwCruise lasts.
    rounds_in_state: u32,
    cruise_rounds: u32,
    round: Round,
    max_bw: MaxFilter,
    group: Group,
    excess: FlightExcess,
    random_loss: RandomLoss,
    startup_loss: RandomLoss,
    extra_acked: ExtraAcked,
    rival: Rival,
    round_trips: RoundTrips,
    probe_rtt: ProbeRtt,
    /// ProbeRTT has found a queue that may be a rival's. To confirm it, all paths of the
    /// association drain at the same time: the queue may belong to paths that share a link with
    /// this one.
    suspects_rival: bool,
    /// Whether the sender [used](Round::used) the last round fully: the feedback of this round is
    /// for the packets of that one.
    last_round_used: bool,
    /// It began anew after persistent congestion: what the path showed before does not count.
    failed: bool,
    last_feedback: Instant,
    full_bandwidth: FullBandwidth,
    /// Bandwidth before the probe, and probes in a row that found more.
    bw_before_probe: f64,
    higher_probes: u32,
    /// Rounds in a row that measured less bandwidth than estimated.
    slower_rounds: u32,
    /// Rounds in a row whose fastest packet was late.
    late_rounds: u32,
    /// Bytes in flight that lately overflowed a queue, with headroom, and the bound on the
    /// bandwidth until the next probe (the draft's names).
    inflight_hi: Option<f64>,
    bw_lo: Option<f64>,
    /// `inflight_hi` and `bw_lo` before the last reduction.
    prior: Option<(Option<f64>, Option<f64>)>,
    window: f64,
    pacing: Option<f64>,
}

impl Bbr {
    pub(super) fn new(now: Instant, max_datagram: u64, parameters: &BbrParameters) -> Self {
        Self {
            parameters: *parameters,
            max_datagram,
            state: State::Startup,
            rounds_in_state: 0,
            cruise_rounds: parameters.cruise_rounds,
            round: Round::new(now, 0, 0),
            max_bw: MaxFilter::default(),
            group: Group::default(),
            excess: FlightExcess::default(),
            random_loss: RandomLoss::default(),
            startup_loss: RandomLoss::default(),
            extra_acked: ExtraAcked::default(),
            rival: Rival::default(),
            round_trips: RoundTrips::new(now),
            probe_rtt: ProbeRtt::new(now),
            suspects_rival: false,
            last_round_used: true,
            failed: false,
            last_feedback: now,
            full_bandwidth: FullBandwidth::default(),
            bw_before_probe: 0.0,
            higher_probes: 0,
            slower_rounds: 0,
            late_rounds: 0,
            inflight_hi: None,
            bw_lo: None,
            prior: None,
            window: (INITIAL_WINDOW_PACKETS * max_datagram) as f64,
            pacing: None,
        }
    }

    /// Estimated bandwidth, bytes/s, including the random loss that the sender makes up for.
    fn bw(&self) -> f64 {
        let rate = self.max_bw.max() * self.group.share();
        rate.min(self.bw_lo.unwrap_or(f64::INFINITY))
            / (1.0 - self.parameters.random_loss_share * self.random_loss.ratio())
    }

    /// Mean time that a packet counts as in flight without a queue, seconds.
    fn flight_time(&self) -> f64 {
        self.round_trips.flight_time(&self.excess)
    }

    /// The bandwidth-delay product, bytes.
    fn bdp(&self) -> f64 {
        self.bw() * self.flight_time()
    }

    /// Whether enough was in flight to build a queue. With less, a late packet is due to jitter or
    /// to another flow's queue.
    fn fills_queues(&self) -> bool {
        self.round.peak_flight as f64 >= self.min_window()
    }

    /// Whether a packet with round-trip time `rtt` has clearly waited in a queue.
    fn late(&self, rtt: Option<Duration>) -> bool {
        self.fills_queues()
            && self.round_trips.is_late(rtt, &self.excess, self.full_bandwidth.reached)
    }

    /// Whether even the fastest packet of the round has waited in a queue, so that the path was the
    /// limit and not the sender. Never in Startup, where the path's jitter is not known well
    /// enough.
    fn queued(&self) -> bool {
        self.full_bandwidth.reached
            && self.fills_queues()
            && self.round_trips.is_queued(self.round.fastest, &self.excess)
    }

    /// Whether many packets arrived clearly slower than they left in Startup. Then the path was the
    /// limit, even if the sender does not use the whole window and the queue is empty now and then:
    /// an inner BBR limits its data in flight itself.
    fn is_stretched(&self, sample: &RateSample) -> bool {
        let Some((left_in, arrived_in)) = sample.left_and_arrived_in else { return false };
        let bytes = sample.delivered - sample.prior_delivered;
        let usual = || {
            left_in.as_secs_f64() * self.parameters.stretch
                + 2.0 * sample.rtt_deviation.as_secs_f64()
        };
        self.state == State::Startup
            && bytes >= self.parameters.late_packets * self.max_datagram
            && arrived_in.as_secs_f64() > usual()
    }

    /// Whether a queue has stood in Startup for some rounds, and the sender fills the window. Then
    /// the path is the limit, even if the window has room for a moment whenever feedback arrives:
    /// a sender with a rate of its own uses other paths meanwhile.
    fn is_overloaded(&self) -> bool {
        self.state == State::Startup
            && self.last_round_used
            && self.late_rounds >= self.parameters.full_rounds
            && self.late(self.round.fastest)
    }

    /// Whether a queue has overflowed in Startup. Then every further round loses as much again.
    fn overflows(&self) -> bool {
        if self.round.late_lost < self.parameters.startup_losses * self.max_datagram {
            return false;
        }
        let loss = self.random_loss.ratio().max(self.startup_loss_so_far().ratio());
        self.round.overflowed(false, loss, self.max_datagram)
    }

    /// The random loss of Startup, this round included: loss without a queue is taken for random. A
    /// queue of a few packets does not show, so this holds in Startup only.
    fn startup_loss_so_far(&self) -> RandomLoss {
        let (lost, acked) = self.round.on_time();
        let mut loss = self.startup_loss;
        loss.add(lost, acked, self.max_datagram);
        loss
    }

    fn min_window(&self) -> f64 {
        (MIN_WINDOW_PACKETS * self.max_datagram) as f64
    }

    fn send_quantum(&self) -> f64 {
        let pacing = self.pacing.unwrap_or(0.0);
        (pacing * SEND_QUANTUM_SECONDS).min(MAX_SEND_QUANTUM).max(2.0 * self.max_datagram as f64)
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.rounds_in_state = 0;
        match state {
            State::ProbeBwCruise => {
                // Three different durations, so that flows do not keep probing in step. They derive
                // from the bytes delivered: there is no source of randomness here.
                let spread = self.round.delivered.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
                self.cruise_rounds = self.parameters.cruise_rounds - 1 + (spread % 3) as u32;
            }
            State::ProbeBwUp => {
                self.bw_before_probe = self.max_bw.max();
                self.higher_probes = 0;
                self.bw_lo = None;
            }
            State::Startup => {
                self.full_bandwidth.reached = false;
                self.startup_loss = RandomLoss::default();
                self.full_bandwidth.bw = 0.0;
                self.full_bandwidth.rounds = 0;
                self.inflight_hi = None;
                self.bw_lo = None;
            }
            State::ProbeRtt(_) => self.probe_rtt.flight_before = self.round.peak_flight,
            // While the data in flight grows, the fast packets are acknowledged first.
            State::Drain if self.round_trips.jitters() && self.round.fastest.is_some() => {
                self.round_trips.set_min_rtt(self.round.fastest);
            }
            State::Drain | State::ProbeBwDown | State::Compete => {}
        }
    }

    fn update_round_trips(&mut self, sample: &RateSample) {
        if self.round_trips.on_feedback(sample) {
            self.round.fastest = None;
            self.excess = FlightExcess::default();
            self.rival = Rival::default();
            if self.state == State::Compete {
                self.enter(State::ProbeBwCruise);
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
        round.lost_ranges += sample.lost_ranges;
        round.ecn |= sample.ecn_ce > 0;
        round.peak_flight = round.peak_flight.max(sample.prior_in_flight);
        if let Some(rtt) = sample.rtt {
            round.fastest = Some(round.fastest.map_or(rtt, |fastest| fastest.min(rtt)));
        }
        let (queued, late) = (self.queued(), self.late(sample.rtt));
        let (stretched, overloaded) = (self.is_stretched(sample), self.is_overloaded());
        let round = &mut self.round;
        if late {
            round.late_acked += sample.acked;
            round.late_lost += sample.lost;
        }
        if let Some(rate) = sample.delivery_rate {
            let rate = rate as f64;
            round.stretched |= stretched;
            // A sample limited by the application is a lower bound.
            let limited = (sample.app_limited && !queued && !stretched && !overloaded)
                || sample.prior_delivered < self.probe_rtt.limited_until;
            if !limited || rate > self.max_bw.max() {
                // A sample covers the round trip before it, so later samples say more about this
                // round.
                let weight = sample.acked as f64 * (round.acked as f64).powi(2);
                round.rate_sum += rate * weight;
                round.rate_weight += weight;
                if self.state == State::Startup {
                    self.max_bw.update(rate);
                }
            }
        }
    }

    /// Ends the round. `others` are the paths that share the bottleneck with this one.
    fn end_round<'a>(&mut self, sample: &RateSample, others: impl Iterator<Item = &'a Subflow>) {
        let now = sample.now;
        let late = self.late(self.round.fastest);
        self.late_rounds = if late { self.late_rounds.saturating_add(1) } else { 0 };
        let mut loss = self.random_loss.ratio();
        if self.state == State::Startup {
            self.startup_loss = self.startup_loss_so_far();
            loss = loss.max(self.startup_loss.ratio());
        }
        let overflowed = self.round.overflowed(late, loss, self.max_datagram);
        let lossy = self.is_lossy();
        // A sample that is a mean still shows the queue of earlier rounds.
        let mean = sample.round_trips.mean_since(self.round.before, MIN_RTT_PACKETS);
        let rtt = mean.filter(|_| self.round_trips.jitters()).or(self.round.fastest);
        self.round_trips.end_round(now, rtt, &self.excess, lossy);
        self.excess.update(now, self.max_datagram);
        self.extra_acked.end_round();

        let measured = self.round.rate(now, self.flight_time());
        let before = self.max_bw.max();
        let last_round_used = core::mem::replace(&mut self.last_round_used, self.round.used());
        let queued = self.queued();
        let cruises = matches!(self.state, State::ProbeBwCruise | State::ProbeBwDown);
        let flooded = cruises && self.is_flooded(loss);
        // The sender may have sent in bursts, so that samples are below the link's rate.
        let measured = match flooded {
            true => Some(self.round.passed(self.bw()).max(measured.unwrap_or(0.0))),
            false => measured,
        };
        // A queue although the sender did not use the whole window: the path's own, or in Startup
        // the rest of a burst.
        let own = self.round_trips.jitters() || self.state == State::Startup;
        let stands = (late && own) || self.round.stretched;
        let used = queued || stands || (last_round_used && self.last_round_used);
        if let Some(rate) = measured {
            // In these states the path's own pacing or window limits what it carries.
            let limited = matches!(self.state, State::Drain | State::ProbeRtt(_));
            let slower = (queued && !limited && rate < self.parameters.slower * before)
                || (flooded && rate < before);
            self.slower_rounds = if slower { self.slower_rounds + 1 } else { 0 };
            if self.slower_rounds >= self.parameters.slower_rounds {
                self.slower_rounds = 0;
                self.max_bw = MaxFilter::default();
                self.max_bw.update(rate);
                if flooded {
                    // Some of it was overflow.
                    self.random_loss = RandomLoss::default();
                    self.enter(State::ProbeBwDown);
                }
            }
            if self.state != State::Startup {
                self.max_bw.update(rate);
            }
            let groups = self.parameters.groups;
            let others = others.filter(|_| groups).map(|flow| flow.delivered);
            self.group.on_round(rate, self.max_bw.max(), others);
            if self.state == State::ProbeBwCruise {
                self.group.on_queue(late);
            }
            if used {
                self.max_bw.advance();
                self.group.advance();
            }
        }
        self.rounds_in_state += 1;
        match self.state {
            State::Startup => {
                self.end_startup_round(measured.is_some() && used, late, overflowed);
            }
            State::Drain | State::ProbeRtt(_) | State::ProbeBwDown => {}
            State::Compete => {
                if self.round.lost_more(loss, self.max_datagram) {
                    self.rival.on_overflow(now);
                }
            }
            State::ProbeBwCruise => {
                // The feedback of the first round is for what was sent in ProbeBwDown.
                let (lost, acked) = (self.round.lost, self.round.acked);
                if self.rounds_in_state == 1 {
                    self.random_loss.add_low(lost, acked, self.max_datagram);
                } else if !late && !flooded {
                    self.random_loss.add(lost, acked, self.max_datagram);
                }
                if self.rounds_in_state >= self.cruise_rounds {
                    self.enter(State::ProbeBwUp);
                }
            }
            State::ProbeBwUp => {
                self.raise_inflight_hi();
                if self.rounds_in_state >= 2 {
                    self.end_probe_up(measured.unwrap_or(0.0));
                }
            }
        }
        let bound = matches!(self.state, State::ProbeRtt(_) | State::Startup | State::Compete);
        let shallow = self.state == State::ProbeBwCruise
            && self.random_loss.depends_on_rate()
            && self.round.lost_more(loss, self.max_datagram);
        if (overflowed || shallow) && !bound {
            self.reduce(measured.unwrap_or(before));
        }
        let round = Round::new(now, sample.delivered, sample.in_flight);
        self.round = Round { before: sample.round_trips, ..round };
    }

    fn end_startup_round(&mut self, measured: bool, late: bool, overflowed: bool) {
        if measured {
            let rate = self.max_bw.max();
            if rate >= self.full_bandwidth.bw * self.parameters.full_growth {
                self.full_bandwidth.bw = rate;
                self.full_bandwidth.rounds = 0;
            } else {
                let full = late || self.round.stretched;
                self.full_bandwidth.rounds +=
                    if full { self.parameters.full_rounds.div_ceil(2) } else { 1 };
            }
        }
        let Round { lost, ecn, .. } = self.round;
        let enough = lost >= self.parameters.startup_losses * self.max_datagram;
        let overflowed = self.is_flooded(0.0) || (overflowed && (ecn || enough));
        if self.full_bandwidth.rounds >= self.parameters.full_rounds || overflowed {
            self.end_startup(overflowed);
        }
    }

    /// Whether the round lost so much more than `random_loss`, and in so many places, that the rate
    /// is too high. A queue of a few packets overflows without delaying any.
    fn is_flooded(&self, random_loss: f64) -> bool {
        let Round { acked, lost, lost_ranges, .. } = self.round;
        lost >= self.parameters.late_packets * self.max_datagram
            && lost_ranges >= self.parameters.startup_losses
            && lost as f64 > (self.parameters.flood + random_loss) * (lost + acked) as f64
    }

    /// Startup has found the full bandwidth, perhaps `by_loss`.
    fn end_startup(&mut self, by_loss: bool) {
        self.full_bandwidth.reached_by_loss = by_loss;
        self.full_bandwidth.reached = true;
        self.enter(State::Drain);
    }

    /// Ends ProbeBwUp after its second round, whose feedback is for the packets of the first.
    fn end_probe_up(&mut self, rate: f64) {
        if rate < self.bw_before_probe * self.parameters.wider_growth {
            self.enter(State::ProbeBwDown);
            return;
        }
        self.bw_before_probe = rate;
        self.rounds_in_state = 0;
        self.higher_probes += 1;
        if self.higher_probes >= 2 {
            self.enter(State::Startup);
        }
    }

    /// Raises `inflight_hi` after a probe that reached it without overflow.
    fn raise_inflight_hi(&mut self) {
        if let Some(high) = self.inflight_hi
            && self.round.peak_flight as f64 + 2.0 * self.max_datagram as f64 >= high
        {
            let raised = high * self.parameters.up_gain;
            let enough = self.parameters.up_window_gain * self.bdp() + self.extra_acked.bytes();
            self.inflight_hi = (raised < enough).then_some(raised);
        }
    }

    fn reduce(&mut self, rate: f64) {
        self.prior = Some((self.inflight_hi, self.bw_lo));
        let bdp = self.bdp();
        let flight = self.round.peak_flight as f64;
        let high = flight.min(self.inflight_hi.unwrap_or(flight)) * self.parameters.headroom;
        self.inflight_hi = Some(high.max(bdp).max(self.min_window()));
        let low = self.parameters.overflow_factor * self.bw_lo.unwrap_or(self.max_bw.max());
        self.bw_lo = Some(low.max(rate));
        if self.state == State::ProbeBwUp {
            self.enter(State::ProbeBwDown);
        }
    }

    /// Makes the state changes that do not wait for the end of a round.
    fn update_state(&mut self, sample: &RateSample, others_drain: bool) {
        let now = sample.now;
        let in_flight = sample.in_flight as f64;
        if matches!(self.state, State::ProbeRtt(_)) {
            self.probe_rtt.limited_until = sample.delivered + sample.in_flight;
        }
        let bdp = self.bdp().max(self.min_window());
        match self.state {
            State::Startup if self.overflows() => self.end_startup(true),
            State::Drain if in_flight <= bdp => self.enter(State::ProbeBwCruise),
            // A queue that does not drain belongs to another flow.
            State::ProbeBwDown
                if self.rounds_in_state >= 2 || (self.rounds_in_state >= 1 && in_flight <= bdp) =>
            {
                self.enter(State::ProbeBwCruise);
            }
            // The additional data only built a queue. The data in flight must have grown by it:
            // otherwise the queue of another flow would end every probe.
            State::ProbeBwUp if self.rounds_in_state >= 1 && self.late(sample.rtt) => {
                let bound = self.inflight_hi.unwrap_or(f64::INFINITY);
                let probed = (self.round.peak_flight + self.max_datagram) as f64;
                if probed >= (self.group.probe_gain(self.parameters.up_gain) * bdp).min(bound) {
                    self.enter(State::ProbeBwDown);
                }
            }
            State::ProbeRtt(None) if in_flight <= self.probe_rtt_window() => {
                // Beside a rival, one round trip is enough.
                let hold = match self.rival.window() {
                    Some(_) => sample.smoothed_rtt * 5 / 4,
                    None => {
                        let flight_time = Duration::try_from_secs_f64(self.flight_time());
                        flight_time.map_or(PROBE_RTT_DURATION, |time| time.max(PROBE_RTT_DURATION))
                    }
                };
                self.round_trips.set_min_rtt(self.round.fastest.or(sample.rtt));
                self.excess.on_drained(now);
                self.probe_rtt.drained = (sample.delivered, None);
                self.state = State::ProbeRtt(Some(now + hold));
            }
            State::ProbeRtt(Some(end)) => {
                self.measure_drained(sample);
                if now >= end {
                    self.end_probe_rtt(now);
                }
            }
            _ => {}
        }
        let due = match self.state {
            State::Compete => self.rival.test_due(now),
            _ => self.round_trips.is_probe_due(now) || self.bdp_is_uncertain(),
        };
        // Paths that share a bottleneck drain at the same time; otherwise none of them sees it
        // empty.
        let asked = others_drain || self.suspects_rival;
        let again = asked && now.since(self.probe_rtt.ended) >= PROBE_RTT_JOIN;
        if (due || again)
            && self.full_bandwidth.reached
            && !matches!(self.state, State::ProbeRtt(_))
        {
            self.enter(State::ProbeRtt(None));
        }
    }

    /// Whether the bandwidth-delay product is uncertain: ProbeRTT has never shown the path empty,
    /// and it delivers in long bursts, or all packets are late although ProbeBwDown has drained the
    /// queue meanwhile and there is no [rival](Self::is_lossy).
    fn bdp_is_uncertain(&self) -> bool {
        let known =
            self.probe_rtt.done || self.state != State::ProbeBwCruise || self.rounds_in_state == 0;
        let long = self.parameters.long_burst.as_secs_f64() * self.max_bw.max();
        let bursts = self.extra_acked.bytes() > self.bdp().max(long);
        let late = self.late_rounds >= self.parameters.late_rounds && self.is_lossy();
        !known && (bursts || late)
    }

    /// Whether random loss is so high that no loss-based flow could fill the queue.
    fn is_lossy(&self) -> bool {
        self.random_loss.ratio() > self.parameters.rival_max_loss
    }

    /// Takes the mean RTT of the packets that left after ProbeRTT had drained the path. A sample
    /// that is a mean still has packets from before.
    fn measure_drained(&mut self, sample: &RateSample) {
        let (delivered, first) = &mut self.probe_rtt.drained;
        if sample.prior_delivered < *delivered {
            return;
        }
        let (at, first) = *first.get_or_insert((sample.now, sample.round_trips));
        let mean = sample.round_trips.mean_since(first, MIN_RTT_PACKETS);
        // Over less than a round trip there would be more of the fast packets.
        if let Some(mean) = mean.filter(|&mean| sample.now.since(at) >= mean) {
            self.round_trips.set_least_mean(mean);
        }
    }

    /// ProbeRTT is over.
    fn end_probe_rtt(&mut self, now: Instant) {
        self.round_trips.on_drained(now);
        if let Some(lowest) = self.round_trips.min_rtt() {
            self.excess.on_filled(now, lowest, self.max_datagram);
        }
        self.probe_rtt.ended = now;
        self.probe_rtt.done = true;
        let shows = self.parameters.competes && !self.is_lossy() && !self.round_trips.jitters();
        let lowest = self.round_trips.min_rtt();
        let doubts = !self.suspects_rival && self.rival.window().is_none();
        self.suspects_rival =
            shows && doubts && lowest.is_some_and(|rtt| self.rival.shows_queue(rtt));
        if self.suspects_rival {
            self.round_trips.set_min_rtt(self.rival.base());
        } else if let Some(rtt) = lowest.filter(|_| shows) {
            let displaced = self.max_bw.max() < self.parameters.displaced * self.full_bandwidth.bw;
            let flight = (self.probe_rtt.flight_before, displaced);
            let base = self.rival.on_drained(now, rtt, flight, self.max_datagram);
            self.round_trips.set_min_rtt(Some(base));
        }
        self.enter(match (self.full_bandwidth.reached, self.rival.window()) {
            (false, _) => State::Startup,
            (true, None) => State::ProbeBwCruise,
            (true, Some(_)) => State::Compete,
        });
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
        self.excess.on_feedback(sample, self.max_datagram);
        self.update_round_trips(sample);
        self.update_round(sample);
        if self.full_bandwidth.reached {
            let (rate, window) = (self.max_bw.max(), self.window);
            self.extra_acked.on_feedback(sample.now, sample.acked, rate, window);
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
            // Persistent congestion: the model of the path no longer holds.
            let anew = Self::new(event.now, self.max_datagram, &self.parameters);
            *self = Self { window: self.min_window(), failed: true, ..anew };
        }
        self.round.ecn |= event.ecn;
        // The reduction for the previous event stays, even if this event proves to be spurious.
        self.full_bandwidth.reached_by_loss = false;
        self.prior = None;
    }

    fn on_spurious(&mut self, now: Instant) {
        self.rival.on_spurious(now);
        if core::mem::take(&mut self.full_bandwidth.reached_by_loss) {
            self.enter(State::Startup);
        }
        if let Some((high, low)) = self.prior.take() {
            self.inflight_hi = high;
            self.bw_lo = low;
        }
    }

    fn empty_rtt(&self) -> Option<Duration> {
        self.round_trips.empty_rtt()
    }

    fn window(&self) -> u64 {
        self.window as u64
    }

    fn pacing_rate(&self) -> Option<u64> {
        self.pacing.map(|rate| rate as u64)
    }

    fn first_window(&self, capacity: Option<u64>, min_rtt: Duration) -> u64 {
        let capacity = capacity.filter(|_| !self.failed);
        let holds = capacity.map_or(0.0, |capacity| capacity as f64 * min_rtt.as_secs_f64());
        let most = self.parameters.first_window.max(INITIAL_WINDOW_PACKETS) * self.max_datagram;
        (holds as u64).clamp(INITIAL_WINDOW_PACKETS * self.max_datagram, most)
    }

    fn bandwidth(&self) -> Option<u64> {
        Some(self.max_bw.max() as u64)
    }

    fn state(&self) -> &'static str {
        match self.state {
            State::Startup => "startup",
            State::Drain => "drain",
            State::ProbeBwDown => "probe-bw-down",
            State::ProbeBwCruise => "probe-bw-cruise",
            State::ProbeBwUp => "probe-bw-up",
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
        self.drains() && (self.suspects_rival || self.rival.window().is_some())
    }

    fn drain(&mut self, now: Instant) {
        if self.full_bandwidth.reached
            && !self.drains()
            && now.since(self.probe_rtt.ended) >= PROBE_RTT_ASKED
        {
            self.enter(State::ProbeRtt(None));
        }
    }

    fn delivered(&self) -> (u64, u64) {
        (self.group.last() as u64, self.max_bw.max() as u64)
    }

    fn searches(&self) -> bool {
        self.state == State::Startup
    }
}
