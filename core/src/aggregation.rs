//! Aggregation of acknowledgements, for BBR senders whose minimum RTT is that of a nearer path.
//!
//! BBR lets twice its rate times its minimum RTT be in flight, and keeps the minimum for 10 s
//! (draft-cardwell-iccrg-bbr-congestion-control-00, sections 4.2.3.2 and 4.3.5.1). If the handshake
//! took a near path and the transfer takes a far one, that is too little: the rate falls from round
//! to round. But BBR adds the bytes that were acknowledged at once beyond its rate, and keeps the
//! largest such number for at least five rounds (`bbr_ack_aggregation_cwnd` in Linux). So
//! acknowledgements are dropped for a moment, once in a few rounds: the next one covers them all.
//!
//! It is tried only where a path is that much farther than the sender's minimum RTT: otherwise the
//! RTT is a queue's. Whether a sender is such a BBR is seen by its reaction. If it does not become
//! faster, it is left alone for a while. An acknowledgement is dropped only while data beyond it is
//! in flight, so another one follows. None is delayed.
//!
//! That is all that can be done while the sender knows the near path's RTT. A transfer that lasts
//! longer than BBR keeps it gets a far path's: see [`raise`]. So does one that the near path alone
//! carries: BBR builds up no queue there, so it would never get to the far one.

use core::time::Duration;

use mpip_types::Instant;
use mpip_types::packet::MAX_WINDOW;

use self::raise::{MIN_RTT_WINDOW, Progress, Raise};
pub(crate) use self::reach::{PathReach, Reach};
use crate::parameters::{AggregationParameters, Parameters, RaiseParameters};
use crate::rtt_sample::RttSample;

mod raise;
mod reach;

/// Time in which a sender that does not pace answers an acknowledgement.
const BURST: Duration = Duration::from_millis(2);

/// A sender that has had nothing in flight for so long is not in the middle of a transfer.
const IDLE: Duration = Duration::from_secs(1);

/// The paths on which a sender's data leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead<'a> {
    /// More data is queued than they carry.
    pub(crate) waits: bool,
    pub(crate) reach: &'a Reach,
}

/// State of one direction of a TCP connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aggregation {
    /// An acknowledgement has been seen.
    begun: bool,
    /// The last acknowledgement that passed.
    acked: u32,
    /// End of the stream at the start of this round.
    round_end: u32,
    sample: RttSample,
    /// The minimum RTT as BBR keeps it, and when it was measured.
    lowest: Option<(Duration, Instant)>,
    period: Period,
    /// Rate in the last period, and its moving average, bytes/s.
    rate: f64,
    average: f64,
    /// When the transfer began, and since when nothing is in flight.
    busy_since: Instant,
    idle_since: Option<Instant>,
    /// Since when near paths have been full and nothing has waited for them.
    steady_since: Option<Instant>,
    /// Bytes in flight when acknowledgements began to be dropped.
    in_flight: u32,
    /// Time by which aggregates extend the sender's window at its rate.
    extended: Duration,
    trial: Option<Trial>,
    raise: Option<Box<Raise>>,
    aggregate: Option<Aggregate>,
    /// Aggregates in a row that the sender answered with a burst, as one does that does not pace.
    bursts: u32,
    /// It has answered so many that it is known to pace, unless the last ones were bursts.
    answered: bool,
    /// Acknowledgements are dropped until then.
    until: Instant,
    /// No trial before then, because so many were in vain.
    again: Instant,
    in_vain: u32,
}

/// The rounds between two aggregates.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    began: Instant,
    /// Everything before it was acknowledged at the start.
    from: u32,
    rounds: u32,
    lowest_rtt: Option<Duration>,
    /// Data waited for the paths: the sender's window is not the limit.
    waited: bool,
    /// The sender had no more to send.
    idle: bool,
}

/// What a period was like.
#[derive(Clone, Copy, Debug)]
struct Ended {
    began: Instant,
    /// Rates in it and in the one before, bytes/s.
    rate: f64,
    former_rate: f64,
    /// The minimum RTT that the sender knows, the least one in the period, and how much of that
    /// exceeds twice the minimum because of a far path.
    lowest: Duration,
    rtt: Duration,
    missing: Duration,
    /// See [`Period`].
    waited: bool,
    idle: bool,
}

/// Acknowledgements are aggregated.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Rate before it, bytes/s.
    before: f64,
    aggregates: u32,
    /// The window is not what limits the sender: while acknowledgements were dropped, it sent on.
    has_room: bool,
}

impl Trial {
    fn new(before: f64) -> Self {
        Self { before, aggregates: 0, has_room: false }
    }

    fn one_more(self) -> Self {
        Self { aggregates: self.aggregates.saturating_add(1), ..self }
    }
}

/// An acknowledgement that covers what was dropped before it, and the sender's reaction.
#[derive(Clone, Copy, Debug)]
struct Aggregate {
    passed: Instant,
    covered: u32,
    /// End of the sender's stream before and after the reaction.
    before: u32,
    after: u32,
}

impl Aggregation {
    /// The sender sends up to `end`.
    pub(crate) fn on_segment(&mut self, now: Instant, end: u32) {
        self.sample.on_segment(now, end);
        if self.idle_since.take().is_some_and(|since| now.since(since) >= IDLE) {
            // What follows may be a short exchange, and is not to wait.
            self.begin_transfer(now);
        }
        if let Some(aggregate) = &mut self.aggregate {
            if now <= aggregate.passed + BURST {
                aggregate.after = end;
            } else {
                let sent = aggregate.after.wrapping_sub(aggregate.before);
                let bursts = sent > aggregate.covered / 2;
                self.bursts = if bursts { self.bursts + 1 } else { 0 };
                self.aggregate = None;
            }
        }
    }

    /// How much longer than by the nearest path the sender's packets are to take.
    pub(crate) fn hold(&self) -> Option<Duration> {
        self.raise.as_ref()?.hold()
    }

    /// The sender retransmits, perhaps all that is in flight.
    pub(crate) fn on_repeated(&mut self) {
        self.until = Instant::ZERO;
    }

    fn begin_transfer(&mut self, now: Instant) {
        (self.busy_since, self.steady_since, self.raise) = (now, None, None);
    }

    /// The peer acknowledges the sender's SYN.
    pub(crate) fn on_syn_ack(&mut self, now: Instant) {
        self.begin_transfer(now);
        if let Some(rtt) = self.sample.take(now) {
            self.on_rtt(now, rtt);
        }
    }

    /// Whether the acknowledgement `ack` passes. `end` is the end of the sender's stream, `ahead`
    /// are the paths that carry it.
    pub(crate) fn passes(
        &mut self,
        now: Instant,
        ack: u32,
        end: u32,
        ahead: Ahead<'_>,
        parameters: &Parameters,
    ) -> bool {
        let Parameters { aggregation, .. } = parameters;
        let (flight, news) = (end.wrapping_sub(ack), ack.wrapping_sub(self.acked));
        if !self.begun || flight >= MAX_WINDOW {
            // Also another connection between the same ports.
            let begun = flight < MAX_WINDOW;
            let period = Period { began: now, from: ack, ..Period::default() };
            (self.begun, self.acked, self.round_end) = (begun, ack, end);
            (self.period, self.busy_since) = (period, now);
            return true;
        }
        if news == 0 || news >= MAX_WINDOW {
            return true;
        }
        if let Some(rtt) = self.sample.on_ack(now, ack) {
            self.on_rtt(now, rtt);
        }
        self.period.waited |= ahead.waits;
        let drops = aggregation.enabled && now < self.until;
        if drops && flight > 0 {
            return false;
        }
        if self.until > Instant::ZERO {
            self.until = Instant::ZERO;
            let more = end.wrapping_sub(self.acked).saturating_sub(self.in_flight);
            if let Some(trial) = &mut self.trial {
                trial.has_room |= f64::from(more) >= f64::from(news) * parameters.raise.room;
            }
            // A small one is no more than what a sender that paces sends meanwhile.
            let paced = self.rate * BURST.as_secs_f64();
            let aggregate = Aggregate { passed: now, covered: news, before: end, after: end };
            let tells = f64::from(news) > paced * aggregation.telling;
            self.aggregate = tells.then_some(aggregate);
        }
        self.acked = ack;
        if flight == 0 {
            self.period.idle |= !drops;
            self.idle_since = Some(now);
        }
        if ack.wrapping_sub(self.round_end) < MAX_WINDOW {
            self.round_end = end;
            self.period.rounds += 1;
            if self.period.rounds >= aggregation.rounds {
                self.end_period(now, ahead.reach, parameters);
            }
        }
        true
    }

    fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        let in_period = self.period.lowest_rtt.map_or(rtt, |lowest| lowest.min(rtt));
        self.period.lowest_rtt = Some(in_period);
        let keeps =
            |(lowest, at): &(Duration, Instant)| *lowest < rtt && now.since(*at) <= MIN_RTT_WINDOW;
        if !self.lowest.as_ref().is_some_and(keeps) {
            self.lowest = Some((rtt, now));
        }
    }

    fn end_period(&mut self, now: Instant, reach: &Reach, all: &Parameters) {
        let Some(ended) = self.begin_period(now, reach, all.raise.weight) else { return };
        let parameters = &all.aggregation;
        let keeps_near = self.keeps_near(now, &ended, reach, &all.raise);
        let raises = self.hold().is_some();
        let length = self.aggregate_length(&ended, keeps_near || raises, parameters);
        let grows = ended.rate >= ended.former_rate * parameters.gain;
        self.trial = match self.trial {
            _ if self.bursts >= parameters.bursts => None,
            // Without aggregates, the sender's window would not suffice for the raised RTT.
            trial if raises => Some(trial.unwrap_or(Trial::new(ended.rate)).one_more()),
            _ if ended.waited || length.is_zero() => None,
            // A window that grows needs no help.
            None if ended.idle || grows || now < self.again => None,
            None => Some(Trial::new(ended.rate)),
            Some(trial) => self.go_on(now, trial, ended.rate, parameters),
        };
        self.update_raise(now, &ended, keeps_near, &reach.steps, all);
        self.extended = Duration::ZERO;
        if self.trial.is_some() {
            self.until = now + length;
            self.extended = length;
            self.in_flight = self.round_end.wrapping_sub(self.acked);
        }
    }

    /// Begins a period. Returns what the last one was like; `None` if the RTT is not known yet.
    /// `weight`: that of a period in the average of the rate.
    fn begin_period(&mut self, now: Instant, reach: &Reach, weight: f64) -> Option<Ended> {
        let period = Period { began: now, from: self.acked, ..Period::default() };
        let Period { began, from, lowest_rtt, waited, idle, .. } =
            core::mem::replace(&mut self.period, period);
        let seconds = now.since(began).as_secs_f64().max(1e-6);
        let rate = f64::from(self.acked.wrapping_sub(from)) / seconds;
        let former_rate = core::mem::replace(&mut self.rate, rate);
        let before = if former_rate > 0.0 { self.average } else { rate };
        self.average = before + (rate - before) * weight;
        let (lowest, _) = self.lowest?;
        let rtt = lowest_rtt.unwrap_or(lowest);
        // Twice the minimum may be in flight.
        let missing = match reach.farthest >= lowest * 2 {
            true => rtt.saturating_sub(lowest * 2),
            false => Duration::ZERO,
        };
        Some(Ended { began, rate, former_rate, lowest, rtt, missing, waited, idle })
    }

    /// For how long acknowledgements are to be dropped next. `extends`: the sender's window is to
    /// become longer, although it suffices.
    fn aggregate_length(
        &self,
        ended: &Ended,
        extends: bool,
        parameters: &AggregationParameters,
    ) -> Duration {
        let mut length = ended.missing * parameters.excess;
        if extends {
            // What is in flight, but no longer than the sender's window lasts.
            length = length.max(ended.rtt).min(self.extended + ended.lowest * 2);
        }
        length.min(parameters.longest)
    }

    /// Whether the sender is content with near paths although a farther one could carry more: they
    /// have been full for some time, but neither is the RTT much longer than its minimum nor has
    /// anything waited.
    fn keeps_near(
        &mut self,
        now: Instant,
        ended: &Ended,
        reach: &Reach,
        parameters: &RaiseParameters,
    ) -> bool {
        let is_farther = reach.beyond_full > ended.lowest.mul_f64(parameters.farther);
        if !parameters.enabled || ended.idle {
            self.steady_since = None;
        } else if !ended.waited && ended.missing.is_zero() {
            let since = self.steady_since.unwrap_or(ended.began);
            self.steady_since = is_farther.then_some(since);
        }
        self.steady_since.is_some_and(|since| now.since(since) >= parameters.after)
    }

    /// Raises the minimum RTT that the sender knows, once its answers to aggregates have shown that
    /// it is a BBR.
    fn update_raise(
        &mut self,
        now: Instant,
        ended: &Ended,
        keeps_near: bool,
        steps: &[Duration],
        all: &Parameters,
    ) {
        let &Ended { lowest, missing, .. } = ended;
        let (rate, extended, bursts) = (self.average, self.extended, all.aggregation.bursts);
        let paces = self.bursts < bursts;
        let answered = self.trial.filter(|trial| trial.aggregates >= bursts);
        self.answered |= answered.is_some();
        // On the near path alone others are limited by their windows, and a longer RTT would slow
        // them down. Otherwise too, a transfer that has just begun may soon be over.
        let begins = match keeps_near {
            true => answered.is_some_and(|trial| trial.has_room),
            false => {
                let lasts = now.since(self.busy_since) >= all.raise.after;
                self.answered && paces && !missing.is_zero() && lasts
            }
        };
        if all.raise.enabled && begins && self.raise.is_none() {
            self.raise = Some(Box::new(Raise::new(now, lowest, rate)));
        }
        if let Some(raise) = &mut self.raise {
            let progress = Progress { rate, lowest, steps, extended, paces };
            raise.end_period(now, progress, &all.raise);
            if raise.is_over(now) {
                self.raise = None;
            }
        }
    }

    /// The trial after one more aggregate, unless it is in vain.
    fn go_on(
        &mut self,
        now: Instant,
        trial: Trial,
        rate: f64,
        parameters: &AggregationParameters,
    ) -> Option<Trial> {
        let trial = trial.one_more();
        if trial.aggregates >= parameters.trial && rate < trial.before * parameters.gain {
            let pause = parameters.pause.saturating_mul(1 << self.in_vain.min(16));
            self.again = now + pause.min(parameters.pause_most);
            self.in_vain = self.in_vain.saturating_add(1);
            return None;
        }
        Some(trial)
    }
}

#[cfg(test)]
mod tests;
