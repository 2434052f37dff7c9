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
//! longer than BBR keeps it gets the far path's: see [`raise`].

use core::time::Duration;

use mpip_types::Instant;
use mpip_types::packet::MAX_WINDOW;

use self::raise::{MIN_RTT_WINDOW, Progress, Raise};
use crate::parameters::{AggregationParameters, Parameters};
use crate::rtt_sample::RttSample;

mod raise;

/// Time in which a sender that does not pace answers an acknowledgement.
const BURST: Duration = Duration::from_millis(2);

/// How far the paths in use reach.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reach {
    /// Minimum RTT of the farthest of them.
    pub(crate) farthest: Duration,
    /// Least one-way delay, µs against the association's reference.
    pub(crate) nearest: i64,
    /// How much longer the longest one is.
    pub(crate) spread: Duration,
}

/// The paths on which a sender's data leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    /// More data is queued than they carry.
    pub(crate) waits: bool,
    pub(crate) reach: Reach,
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
    /// Rate in the last period, bytes/s.
    rate: f64,
    trial: Option<Trial>,
    raise: Option<Box<Raise>>,
    aggregate: Option<Aggregate>,
    /// Aggregates in a row that the sender answered with a burst, as one does that does not pace.
    bursts: u32,
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

/// Acknowledgements are aggregated.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Rate before it, bytes/s.
    before: f64,
    aggregates: u32,
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
        if self.raise.as_mut().is_some_and(|raise| raise.on_segment(now)) {
            self.raise = None;
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

    /// The peer acknowledges the sender's SYN.
    pub(crate) fn on_syn_ack(&mut self, now: Instant) {
        self.raise = None;
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
        ahead: Ahead,
        parameters: &Parameters,
    ) -> bool {
        let Parameters { aggregation, .. } = parameters;
        let (flight, news) = (end.wrapping_sub(ack), ack.wrapping_sub(self.acked));
        if !self.begun || flight >= MAX_WINDOW {
            // Also another connection between the same ports.
            let begun = flight < MAX_WINDOW;
            let period = Period { began: now, from: ack, ..Period::default() };
            (self.begun, self.acked, self.round_end) = (begun, ack, end);
            self.period = period;
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
            self.aggregate =
                Some(Aggregate { passed: now, covered: news, before: end, after: end });
        }
        self.acked = ack;
        if flight == 0 {
            self.period.idle |= !drops;
            if let Some(raise) = &mut self.raise {
                raise.on_idle(now);
            }
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

    fn end_period(&mut self, now: Instant, reach: Reach, all: &Parameters) {
        let parameters = &all.aggregation;
        let period = Period { began: now, from: self.acked, ..Period::default() };
        let ended = core::mem::replace(&mut self.period, period);
        let seconds = now.since(ended.began).as_secs_f64().max(1e-6);
        let rate = f64::from(self.acked.wrapping_sub(ended.from)) / seconds;
        let former = core::mem::replace(&mut self.rate, rate);
        // Twice the minimum may be in flight; what exceeds it is missing.
        let missing = match (ended.lowest_rtt, self.lowest) {
            (Some(rtt), Some((lowest, _))) if reach.farthest >= lowest * 2 => {
                rtt.saturating_sub(lowest * 2)
            }
            _ => Duration::ZERO,
        };
        let grows = rate >= former * parameters.gain;
        self.trial = match self.trial {
            _ if self.bursts >= parameters.bursts || ended.waited || missing.is_zero() => None,
            // A window that grows needs no help.
            None if ended.idle || grows || now < self.again => None,
            None => Some(Trial { before: rate, aggregates: 0 }),
            Some(trial) => self.go_on(now, trial, rate, parameters),
        };
        self.raise(now, rate, reach.spread, all);
        if self.trial.is_some() {
            self.until = now + (missing * parameters.excess).min(parameters.longest);
        }
    }

    /// Raises the minimum RTT that the sender knows, once its answers to aggregates have shown that
    /// it paces.
    fn raise(&mut self, now: Instant, rate: f64, spread: Duration, parameters: &Parameters) {
        let Some((lowest, _)) = self.lowest else { return };
        let bursts = parameters.aggregation.bursts;
        // A trial ends when so many answers in a row were bursts.
        let answered = self.trial.is_some_and(|trial| trial.aggregates >= bursts);
        if parameters.raise.enabled && answered && self.raise.is_none() {
            self.raise = Some(Box::new(Raise::new(now, lowest, rate)));
        }
        let paces = self.bursts < bursts;
        if let Some(raise) = &mut self.raise {
            raise.end_period(now, Progress { rate, lowest, spread, paces }, &parameters.raise);
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
        let aggregates = trial.aggregates.saturating_add(1);
        if aggregates >= parameters.trial && rate < trial.before * parameters.gain {
            let pause = parameters.pause.saturating_mul(1 << self.in_vain.min(16));
            self.again = now + pause.min(parameters.pause_most);
            self.in_vain = self.in_vain.saturating_add(1);
            return None;
        }
        Some(Trial { aggregates, ..trial })
    }
}

#[cfg(test)]
mod tests;
