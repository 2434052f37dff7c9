//! Acknowledgement thinning: drops inner TCP acknowledgements while the sender is in slow start.
//!
//! With paths of different delay, the RTT of the inner TCP rises as soon as the shortest path is
//! full and longer ones are used. HyStart (RFC 9406, section 4.2) takes this for a queue and ends
//! slow start at a tenth of the capacity of all paths. It needs eight RTT samples per round. With
//! at most seven acknowledgements per round, slow start goes on. Once the paths are full, all
//! acknowledgements pass again, and slow start ends there. Dropping acknowledgements that later
//! ones supersede is common practice on narrow return paths (RFC 3449, section 5.2.2).
//!
//! Some senders grow by all bytes that an acknowledgement covers, others by at most two segments
//! per acknowledgement; thinning would slow those down. [`growth`] detects which kind it is.
//!
//! An acknowledgement is dropped only while data beyond it is in flight, so another one follows.
//! None is delayed.

use core::time::Duration;

use mpip_types::Instant;
use mpip_types::packet::MAX_WINDOW;

mod growth;
mod hidden;
mod rounds;

use crate::rtt_sample::RttSample;
use growth::{Growth, RESPONSE};
pub(crate) use hidden::{HiddenThinning, Progress};
use rounds::Rounds;

/// Smallest window, in segments, with which HyStart ends slow start (`hystart_low_window` in
/// Linux). Below it all acknowledgements pass: a short transfer has no other round trips.
const MIN_WINDOW: u32 = 16;
/// Largest gap within an acknowledgement train. Linux's HyStart also ends slow start when a train
/// that began with the round lasts for half the minimum RTT, however few acknowledgements it has
/// (RFC 9406 omits this). After one longer gap, it looks for a train only in the next round.
const TRAIN_GAP: Duration = Duration::from_millis(3);
/// Part of the minimum RTT (divisor) for which a train may last: Linux permits a half.
const TRAIN_DIVISOR: u32 = 3;
/// RTT up to which a sender whose kind of growth is not known yet counts as one that grows by all
/// bytes, µs. The kind is known a few short round trips later; the train of a nearby link would
/// have ended slow start by then.
const SHORT_RTT: u32 = 30_000;
/// Segments that a sender leaves of the receive window: it waits until it may send as many at once
/// (Linux, `tcp_tso_should_defer`).
const LEFT: u32 = 2;

/// What is known of the receiver's report on a tail loss probe.
#[derive(Clone, Copy, Debug, Default)]
enum Report {
    /// None is awaited.
    #[default]
    None,
    Awaited,
    /// An acknowledgement of more has come before it; others of more may pass from then on.
    Overtaken(Instant),
}

/// State of one direction of a TCP connection, for the current round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Thinning {
    rounds: Rounds,
    /// When the last acknowledgement passed.
    last: Instant,
    /// There was a gap in this round, so what follows is no train.
    gapped: bool,
    /// The last acknowledgement that passed, and the highest one seen.
    passed: u32,
    seen: u32,
    /// An acknowledgement has been seen.
    begun: bool,
    /// Acknowledgements that pass regardless of what they cover.
    must_pass: u8,
    growth: Growth,
    /// Where the receive window ends as far as the sender knows, if that is known.
    edge: Option<u32>,
    /// End of the last tail loss probe, and what is known of the receiver's report on it.
    probe: u32,
    report: Report,
    sample: RttSample,
    /// Minimum RTT, µs; 0 before the first sample.
    lowest_rtt: u32,
}

impl Thinning {
    /// Whether the acknowledgement `ack` passes. `end` is the end of the sender's stream. `waits`:
    /// since when the paths are full and data is queued.
    pub(crate) fn passes(
        &mut self,
        now: Instant,
        ack: u32,
        end: u32,
        waits: Option<Instant>,
    ) -> bool {
        let flight = end.wrapping_sub(ack);
        let covered = ack.wrapping_sub(self.passed);
        let strange = flight >= MAX_WINDOW || covered >= MAX_WINDOW;
        let behind = |than: u32| {
            let news = ack.wrapping_sub(than);
            news == 0 || news >= MAX_WINDOW.wrapping_neg()
        };
        // A duplicate or old acknowledgement. One that was overtaken by a dropped one is new to the
        // sender.
        let old = ack == self.seen || behind(self.passed);
        self.measure(now, ack);
        if !self.begun || strange && !old {
            // Otherwise it is another connection between the same ports.
            *self = Self {
                rounds: Rounds::new(now, end, flight),
                last: now,
                passed: ack,
                seen: ack,
                begun: true,
                growth: if self.begun { Growth::default() } else { self.growth },
                lowest_rtt: if self.begun { 0 } else { self.lowest_rtt },
                ..Self::default()
            };
            return true;
        }
        if old {
            return true;
        }
        if !behind(self.seen) {
            self.seen = ack;
        }
        self.rounds.on_flight(flight + covered);
        let small = self.rounds.peak() < self.growth.full_segments(MIN_WINDOW);
        let thins = self.rounds.needs_growth(waits) && self.must_pass == 0 && !small;
        let gap = now >= self.last + TRAIN_GAP;
        let close = !gap && !self.gapped && self.lengthens_train(now, ack);
        let near = (1..=SHORT_RTT).contains(&self.lowest_rtt);
        let unknown = near && !self.growth.is_limited();
        let few = (close || self.rounds.is_few(covered))
            && (unknown || covered < self.growth.permitted());
        if thins && flight > 0 && few {
            return false;
        }
        let soon = now < self.last + RESPONSE;
        self.growth.on_passed(flight + covered, covered, soon);
        self.last = now;
        self.must_pass = self.must_pass.saturating_sub(1);
        self.gapped |= gap;
        if self.rounds.on_ack(now, ack, end) {
            self.gapped = false;
        }
        self.passed = ack;
        true
    }

    /// Whether the sender would find that an acknowledgement train lasts for long.
    fn lengthens_train(&self, now: Instant, ack: u32) -> bool {
        let long = now.since(self.rounds.began()).as_micros() * u128::from(TRAIN_DIVISOR);
        long > u128::from(self.lowest_rtt) && !self.rounds.is_past(ack)
    }

    /// Whether the acknowledgement `ack` has to wait for the receiver's report that a tail loss
    /// probe was needless: an inner TCP to which more than the probe is acknowledged before that
    /// reduces its window (RFC 8985, section 7.4.2). `end` is the end of the sender's stream, and
    /// `patience` how long the report may be overtaken.
    pub(crate) fn awaits_report(
        &mut self,
        now: Instant,
        ack: u32,
        end: u32,
        patience: Duration,
    ) -> bool {
        let more = ack.wrapping_sub(self.probe);
        if ack == end || more == 0 || more >= MAX_WINDOW {
            return false;
        }
        let until = match self.report {
            Report::None => return false,
            Report::Awaited => now + patience,
            Report::Overtaken(until) => until,
        };
        self.report = if now < until { Report::Overtaken(until) } else { Report::None };
        now < until
    }

    /// An acknowledgement has passed that says more than a number: what arrived twice, or beyond a
    /// gap.
    pub(crate) fn on_report(&mut self) {
        self.report = Report::None;
    }

    /// An acknowledgement has passed that opens the receive window up to `edge`.
    pub(crate) fn on_window(&mut self, edge: u32) {
        // One that was overtaken may tell less.
        if self.edge.is_none_or(|known| edge.wrapping_sub(known) < MAX_WINDOW) {
            self.edge = Some(edge);
        }
    }

    /// The sender sends segments of `len` bytes; the last one ends at `end`.
    pub(crate) fn on_segment(&mut self, now: Instant, len: u32, end: u32) {
        self.growth.on_segment(len);
        self.sample.on_segment(now, end);
        // Beyond the edge is what an acknowledgement with SACK blocks allowed, which is not read.
        if self.edge.is_some_and(|edge| edge.wrapping_sub(end) < LEFT * len) {
            self.rounds.on_filled();
            self.growth.on_filled();
        }
    }

    /// The peer acknowledges the sender's SYN.
    pub(crate) fn on_syn_ack(&mut self, now: Instant) {
        if let Some(took) = self.sample.take(now) {
            self.on_rtt(took);
        }
    }

    fn measure(&mut self, now: Instant, ack: u32) {
        if let Some(took) = self.sample.on_ack(now, ack) {
            self.on_rtt(took);
        }
    }

    fn on_rtt(&mut self, took: Duration) {
        let took = took.as_micros().clamp(1, u32::MAX.into()) as u32;
        let lowest = if self.lowest_rtt == 0 { took } else { self.lowest_rtt };
        self.lowest_rtt = lowest.min(took);
    }

    /// The sender retransmits a segment, which may be all that is in flight.
    pub(crate) fn on_repeated(&mut self) {
        self.answer();
        self.rounds.on_repeated();
    }

    /// The sender sends the last segment again, which ends at `end`. Returns whether that is a tail
    /// loss probe: then nothing is known to be lost. There is one for each end.
    pub(crate) fn on_probe(&mut self, end: u32) -> bool {
        let probes = self.probe != end;
        if probes {
            self.answer();
            (self.probe, self.report) = (end, Report::Awaited);
        }
        probes
    }

    /// The next acknowledgement answers a retransmission.
    fn answer(&mut self) {
        self.growth.forget();
        self.must_pass = self.must_pass.saturating_add(1);
    }
}

#[cfg(test)]
mod tests;
