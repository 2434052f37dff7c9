//! The sending half of a path: datagrams in flight, feedback, and loss detection.
//!
//! Loss is detected as in RACK (RFC 8985), with packet numbers instead of sequence numbers (RFC
//! 9002, section 6): a packet is lost when one that left later has arrived and it is itself overdue
//! by more than the reordering window. The window adapts: a packet that arrives late, or after it
//! was declared lost, widens it, so that jitter does not count as loss. What a late packet carries
//! is sent again before that: a copy too many costs less than a receiver that waits.

mod pending;
mod sent;

use core::time::Duration;
use std::collections::VecDeque;

use mpip_types::{Ecn, Instant, Intervals};
use mpip_wire::Feedback;

use self::pending::Pending;
use self::sent::{Departure, Fate, InFlight, Sent};
pub use self::sent::{LossSummary, Losses, bytes_per_datagram};
use crate::cc::RateSample;
use crate::content::Content;
use crate::ecn::EcnValidation;
use crate::rate::{DeliveryHistory, Reordering, told_after};
use crate::rtt::{MeanRtt, RttEstimator};

/// Packets that may be tracked. The receiver's replay window has 16,384 numbers; it would refuse a
/// packet that is overtaken by more.
const CAPACITY: usize = 16_000;
/// Packet threshold, used while no reordering has been seen (RFC 9002, section 6.1.1).
const PACKET_THRESHOLD: u64 = 3;
/// Smallest reordering window: shorter delays come from timers and batches.
const MIN_WINDOW: Duration = Duration::from_millis(1);
/// Smallest RTT sample: shorter ones are an artefact, since clocks are read once per batch.
const MIN_RTT: Duration = Duration::from_micros(10);
/// Time for which a late packet keeps the reordering window wide.
const LEARNED_FOR: Duration = Duration::from_secs(10);

/// Ranges of packet numbers kept as acknowledged on another path. Beyond this, those of the highest
/// numbers are dropped; these packets may be retransmitted needlessly.
const ELSEWHERE: usize = 64;

/// What a feedback frame has acknowledged.
#[derive(Debug)]
pub struct Progress {
    /// For the congestion control; `None` when nothing new was acknowledged.
    pub sample: Option<RateSample>,
    /// The largest packet, if it is newly acknowledged.
    pub newest: Option<Newest>,
    /// Packets declared lost that have arrived (spurious losses).
    pub spurious: u64,
    /// Bytes acknowledged for the first time.
    pub acked: u64,
    /// The longest datagram newly acknowledged, MTU probes included; 0 if there is none.
    pub longest: u16,
}

/// The largest packet that a feedback frame acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newest {
    /// Its number.
    pub number: u64,
    /// When it left, µs of the local clock modulo 2^32.
    pub left_at: u32,
    /// When it arrived, µs of the peer's clock modulo 2^32.
    pub received_at: u32,
}

/// The packets that a feedback frame acknowledges for the first time.
#[derive(Default)]
struct Acknowledged {
    bytes: u64,
    /// How many of them left as ECN-capable.
    capable: u64,
    /// How many of them had been declared lost.
    spurious: u64,
    /// Length of the longest, bytes.
    longest: u16,
    /// The one that left last.
    newest: Option<(u64, Departure)>,
}

/// The error of a feedback frame that acknowledges a packet never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeverSent;

/// The sending half of a path, with its packet number space.
#[derive(Debug)]
pub struct Flight<C> {
    sent: VecDeque<Sent<C>>,
    /// Packet number of the first entry of `sent`.
    base: u64,
    /// Which entries of `sent` are tracked and not acknowledged.
    pending: Pending,
    /// No packet with a lower number is in flight.
    in_flight_from: u64,
    /// Packets acknowledged on another path.
    elsewhere: Intervals,
    in_flight: InFlight,
    largest_acked: Option<u64>,
    /// Send time of the newest packet known to have arrived.
    newest_arrived: Instant,
    rtt: RttEstimator,
    mean_rtt: MeanRtt,
    /// Largest lateness, in the current and the previous half of its window.
    lateness: [Duration; 2],
    /// Largest reordering extent in packets, in the same halves.
    extent: [u64; 2],
    lateness_started: Instant,
    reordered: bool,
    loss_timer: Option<Instant>,
    /// Mean deviations of the RTT by which a packet is late that is repaired before it counts as
    /// lost; `None` if none is.
    early: Option<f64>,
    /// Packets with a lower number are not repaired early any more.
    early_from: u64,
    last_progress: Instant,
    /// Bytes that have arrived.
    delivered: u64,
    /// When the newest feedback left, in µs of the receiver's clock modulo 2^32; `None` if nothing
    /// has been in flight since then.
    delivered_told: Option<u32>,
    first_sent_at: Instant,
    /// `delivered` when nothing was in flight last.
    delivered_before: u64,
    app_limited_until: u64,
    history: DeliveryHistory,
    ecn: EcnValidation,
    /// Newest delivery rate, bytes/s.
    rate: u64,
}

impl<C: Content> Flight<C> {
    /// A path on which nothing has been sent. Packets that are late by `early` mean deviations of
    /// the RTT are repaired before they count as lost.
    pub fn new(now: Instant, early: Option<f64>) -> Self {
        Self {
            sent: VecDeque::new(),
            base: 0,
            pending: Pending::default(),
            in_flight_from: 0,
            elsewhere: Intervals::default(),
            in_flight: InFlight::default(),
            largest_acked: None,
            newest_arrived: Instant::ZERO,
            rtt: RttEstimator::default(),
            mean_rtt: MeanRtt::default(),
            lateness: [Duration::ZERO; 2],
            extent: [0; 2],
            lateness_started: now,
            reordered: false,
            loss_timer: None,
            early,
            early_from: 0,
            last_progress: now,
            delivered: 0,
            delivered_told: None,
            first_sent_at: now,
            delivered_before: 0,
            app_limited_until: 0,
            history: DeliveryHistory::default(),
            ecn: EcnValidation::default(),
            rate: 0,
        }
    }

    /// The latest delivery rate sample, bytes/s.
    pub fn delivery_rate(&self) -> u64 {
        self.rate
    }

    /// The number of the next packet.
    pub fn next_number(&self) -> u64 {
        self.base + self.sent.len() as u64
    }

    /// How many datagrams are tracked.
    pub fn tracked(&self) -> usize {
        self.sent.len()
    }

    /// Bytes that have arrived.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Bytes that have arrived since nothing was in flight.
    pub fn delivered_since_idle(&self) -> u64 {
        self.delivered - self.delivered_before
    }

    /// Bytes in flight.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.bytes()
    }

    /// Whether another packet can be tracked.
    pub fn has_room(&self) -> bool {
        self.sent.len() < CAPACITY
    }

    /// The path has migrated: the RTT estimate starts anew.
    pub fn on_moved(&mut self) {
        self.rtt = RttEstimator::default();
        self.mean_rtt = MeanRtt::default();
    }

    /// The round-trip time.
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Records a datagram of `size` bytes that left with [`next_number`](Self::next_number). Only
    /// an ack-eliciting one (`asks`) is tracked.
    pub fn on_sent(
        &mut self,
        now: Instant,
        size: u16,
        asks: bool,
        probe: bool,
        content: Option<C>,
    ) {
        if asks && self.in_flight.is_empty() {
            self.first_sent_at = now;
            self.delivered_before = self.delivered;
            self.delivered_told = None;
        }
        let fate = if asks { Fate::InFlight } else { Fate::Untracked };
        self.pending.push(self.next_number(), asks);
        if asks && !probe {
            self.in_flight.add(size);
        }
        self.sent.push_back(Sent {
            at: now,
            size,
            fate,
            app_limited: self.app_limited_until > self.delivered,
            ect: false,
            rear: false,
            delivered: self.delivered,
            delivered_told: self.delivered_told,
            first_sent_at: self.first_sent_at,
            probe,
            content,
        });
        self.trim(now);
    }

    /// The ECN field of the next datagram.
    pub fn ecn(&self) -> Ecn {
        self.ecn.next()
    }

    /// The state of ECN validation, in a word.
    pub fn ecn_name(&self) -> &'static str {
        self.ecn.name()
    }

    /// The datagram of the last [`on_sent`](Self::on_sent) left as ECN-capable.
    pub fn on_sent_capable(&mut self) {
        self.ecn.on_sent();
        if let Some(sent) = self.sent.back_mut() {
            sent.ect = true;
        }
    }

    /// The datagram of the last [`on_sent`](Self::on_sent) left in the rear half of a burst.
    pub fn on_sent_in_rear(&mut self) {
        if let Some(sent) = self.sent.back_mut() {
            sent.rear = true;
        }
    }

    /// There was nothing more to send: delivery rate samples of what is in flight are limited by
    /// the application.
    pub fn on_app_limited(&mut self, now: Instant) {
        self.history.on_app_limited(now);
        self.app_limited_until = self.delivered + self.in_flight.bytes().max(1);
    }

    /// Processes a feedback frame and detects losses.
    pub fn on_feedback(
        &mut self,
        now: Instant,
        feedback: &Feedback<'_>,
        losses: &mut Losses<C>,
    ) -> Result<Progress, NeverSent> {
        if feedback.largest() >= self.next_number() {
            return Err(NeverSent);
        }
        let prior_in_flight = self.in_flight.bytes();
        let former_largest = self.largest_acked;
        let acked = self.acknowledge(now, feedback, losses);
        self.largest_acked = Some(former_largest.unwrap_or(0).max(feedback.largest()));
        let newest = acked.newest.filter(|&(number, _)| number == feedback.largest());
        let rtt = newest.map(|(_, departure)| self.measure_rtt(now, departure.at, feedback.delay));
        let newest = newest.map(|(number, departure)| Newest {
            number,
            left_at: departure.at.as_micros() as u32,
            received_at: feedback.received_at,
        });
        // Reordered feedback has old counts (RFC 9000, section 13.4.2.1).
        let overtaken = former_largest.is_some_and(|largest| largest >= feedback.largest());
        let ecn_ce = match overtaken {
            true => 0,
            false => self.ecn.on_feedback(acked.capable, feedback.ecn),
        };

        let before = (losses.summary.bytes, losses.summary.ranges);
        self.detect(now, losses);
        let sample = acked.newest.map(|(_, departure)| {
            self.delivered += acked.bytes;
            // Not back to when an overtaken packet left: later intervals would be too long.
            self.first_sent_at = self.first_sent_at.max(departure.at);
            self.last_progress = now;
            let known = self.mean_rtt.long_mean_is_known();
            let mean_rtt = self.mean_rtt.long_mean();
            let reordering = self.reordering().filter(|_| known);
            let reordering = reordering.map(|(_, deviation)| Reordering { deviation, mean_rtt });
            let told = feedback.received_at.wrapping_add(feedback.delay as u32);
            // Overtaken feedback left before the last arrivals.
            let later = self.delivered_told.filter(|&before| told_after(before, told).is_zero());
            let told = later.unwrap_or(told);
            self.history.on_delivered(now, told, self.delivered, reordering);
            self.delivered_told = Some(told);
            let times = departure.left_and_arrived_in(now, told);
            let interval = times.0.max(times.1);
            let long_enough = interval >= self.rtt.minimum() && !interval.is_zero();
            let since = (interval, departure.delivered);
            let rate =
                long_enough.then(|| self.history.rate(self.delivered, since, reordering)).flatten();
            self.rate = rate.map_or(self.rate, |(rate, _)| rate);
            RateSample {
                now,
                acked: acked.bytes,
                lost: losses.summary.bytes - before.0,
                lost_ranges: losses.summary.ranges - before.1,
                prior_in_flight,
                in_flight: self.in_flight.bytes(),
                delivery_rate: rate.map(|(rate, _)| rate),
                app_limited: departure.app_limited || rate.is_some_and(|(_, limited)| limited),
                left_and_arrived_in: departure.told.map(|_| times),
                delivered: self.delivered,
                prior_delivered: departure.delivered,
                // On a path that reorders, a single packet is no sample of the path's RTT.
                rtt: if reordering.is_some() { rtt.map(|_| mean_rtt) } else { rtt },
                round_trips: self.mean_rtt.all(),
                smoothed_rtt: self.typical(),
                rtt_deviation: self.mean_rtt.deviation(),
                jitter: reordering.map_or(Duration::ZERO, |reordering| reordering.deviation),
                min_rtt: self.rtt.minimum(),
                ecn_ce,
                capacity: None,
            }
        });
        self.trim(now);
        let Acknowledged { bytes, spurious, longest, .. } = acked;
        Ok(Progress { sample, newest, spurious, acked: bytes, longest })
    }

    /// Marks the packets of `feedback` as arrived, and measures by how much others overtook them.
    fn acknowledge(
        &mut self,
        now: Instant,
        feedback: &Feedback<'_>,
        losses: &mut Losses<C>,
    ) -> Acknowledged {
        let mut acked = Acknowledged::default();
        for range in feedback.ranges.iter() {
            let mut from = range.first;
            while let Some(number) = self.next_pending(&mut from, range.last, &mut losses.steps) {
                let Some(sent) = self.sent.get_mut((number - self.base) as usize) else { break };
                acked.spurious += u64::from(sent.fate == Fate::Lost && !sent.probe);
                self.in_flight.remove(sent);
                acked.bytes += u64::from(sent.size);
                acked.capable += u64::from(sent.ect);
                acked.longest = acked.longest.max(sent.size);
                sent.fate = Fate::Acked;
                if let Some(content) = &sent.content
                    && content.reports_arrival()
                {
                    losses.arrived.extend(sent.content.take());
                }
                sent.content = None;
                self.newest_arrived = self.newest_arrived.max(sent.at);
                if acked.newest.is_none_or(|(largest, _)| number > largest) {
                    acked.newest = Some((number, sent.departure()));
                }
                if let Some(overtaken) = self.largest_acked.and_then(|by| by.checked_sub(number)) {
                    self.reordered = true;
                    self.extent[0] = self.extent[0].max(overtaken);
                    let took = now.since(sent.at);
                    let late = took.saturating_sub(self.typical());
                    self.lateness[0] = self.lateness[0].max(late);
                    self.mean_rtt.on_sample(took);
                }
            }
        }
        acked
    }

    /// The RTT of a packet that left at `sent` and whose feedback the peer held back for `held` µs.
    fn measure_rtt(&mut self, now: Instant, sent: Instant, held: u64) -> Duration {
        let held = Duration::from_micros(held.min(1 << 30));
        let rtt = now.since(sent).saturating_sub(held).max(MIN_RTT);
        self.rtt.on_sample(now, rtt);
        self.mean_rtt.on_sample(rtt);
        rtt
    }

    /// Processes feedback that arrived on another path and gives no RTT sample: what has arrived is
    /// not retransmitted. Keeps the ranges if retransmissions are queued (`waits`).
    pub fn on_arrivals(
        &mut self,
        feedback: &Feedback<'_>,
        waits: bool,
        steps: &mut u64,
    ) -> Result<(), NeverSent> {
        if feedback.largest() >= self.next_number() {
            return Err(NeverSent);
        }
        for range in feedback.ranges.iter() {
            let mut from = range.first;
            while let Some(number) = self.next_pending(&mut from, range.last, steps) {
                let Some(sent) = self.sent.get_mut((number - self.base) as usize) else { break };
                self.in_flight.remove(sent);
                sent.fate = Fate::Acked;
                sent.content = None;
            }
            self.elsewhere.insert(range.first, range.last);
            self.elsewhere.keep_lowest(ELSEWHERE);
        }
        if !waits {
            self.elsewhere.clear();
        }
        Ok(())
    }

    /// Removes the next pending number from `from` to `to`; `from` moves behind it. Adds the loop
    /// passes to `steps`.
    fn next_pending(&mut self, from: &mut u64, to: u64, steps: &mut u64) -> Option<u64> {
        let (number, looked) = self.pending.take((*from).max(self.base), to);
        *steps += looked + 1;
        let number = number?;
        *from = number + 1;
        Some(number)
    }

    /// Whether the packet `number` was acknowledged on another path.
    pub fn arrived_elsewhere(&self, number: u64) -> bool {
        self.elsewhere.contains(number)
    }

    /// Whether any packet was acknowledged on another path.
    pub fn knows_of_elsewhere(&self) -> bool {
        !self.elsewhere.is_empty()
    }

    /// Reordering window: time beyond the usual RTT after which an overtaken packet counts as lost.
    pub fn reordering_window(&self) -> Duration {
        let learned = self.lateness[0].max(self.lateness[1]);
        let least = self.least_window();
        // One outlier in thousands, or an outage, must not set the window.
        let bound = least * 2 + self.mean_rtt.deviation() * 4;
        least.max((learned + learned / 4).min(bound))
    }

    /// The reordering window of a path that does not reorder (RFC 8985, section 6.2).
    fn least_window(&self) -> Duration {
        (self.typical() / 4).max(MIN_WINDOW)
    }

    /// The usual RTT of all packets, also of reordered ones.
    fn typical(&self) -> Duration {
        self.rtt.smoothed().max(self.mean_rtt.mean())
    }

    /// Largest reordering extent of the last 5 to 10 s, packets.
    pub fn reordering_extent(&self) -> u64 {
        self.extent[0].max(self.extent[1])
    }

    /// On a path that has reordered lately: by how much the mean RTT of all packets exceeds the
    /// smoothed RTT, and the mean deviation, which is not zero. A varying queue does not count.
    pub fn reordering(&self) -> Option<(Duration, Duration)> {
        let late = self.lateness[0].max(self.lateness[1]);
        let deviation = self.mean_rtt.deviation();
        let reorders = !deviation.is_zero() && late >= deviation;
        reorders.then(|| (self.typical() - self.rtt.smoothed(), deviation))
    }

    /// Detects losses among packets that left before the newest arrival; sets the loss timer for
    /// those that are not overdue yet.
    fn detect(&mut self, now: Instant, losses: &mut Losses<C>) {
        if now.since(self.lateness_started) >= LEARNED_FOR / 2 {
            self.lateness = [Duration::ZERO, self.lateness[0]];
            self.extent = [0, self.extent[0]];
            self.lateness_started = now;
            self.reordered = self.lateness[1] > Duration::ZERO;
        }
        self.loss_timer = None;
        let Some(largest) = self.largest_acked else { return };
        let patience = self.typical() + self.reordering_window();
        let by_count = if self.reordered { u64::MAX } else { PACKET_THRESHOLD };
        let end = ((largest + 1).saturating_sub(self.base) as usize).min(self.sent.len());
        let from = self.first_in_flight().min(end);
        let mut after_lost = self.is_after_lost(from);
        for (number, sent) in (self.base + from as u64..).zip(self.sent.range_mut(from..end)) {
            losses.steps += 1;
            if sent.at > self.newest_arrived {
                // All later packets left after it, too.
                break;
            }
            if sent.fate == Fate::InFlight {
                let overdue_at = sent.at + patience;
                if now < overdue_at && largest - number < by_count {
                    self.loss_timer = Some(overdue_at);
                    // Later packets are due later.
                    break;
                }
                self.in_flight.remove(sent);
                losses.add(sent, after_lost);
            }
            after_lost = sent.fate == Fate::Lost;
        }
        // Elsewhere three later packets decide.
        if let Some(deviations) = self.early.filter(|_| self.reordered) {
            self.repair_early(now, end, deviations, losses);
        }
    }

    /// Whether the packet before that with this index is lost.
    fn is_after_lost(&self, index: usize) -> bool {
        index.checked_sub(1).is_some_and(|before| self.sent[before].fate == Fate::Lost)
    }

    /// Takes the contents of late packets with an index below `end`, to be sent again, because what
    /// follows waits for them. These packets stay in flight: whether they are lost is not known.
    fn repair_early(&mut self, now: Instant, end: usize, deviations: f64, losses: &mut Losses<C>) {
        let late = self.least_window().max(self.mean_rtt.deviation().mul_f64(deviations));
        let patience = self.typical() + late;
        let from = (self.early_from.saturating_sub(self.base) as usize).max(self.first_in_flight());
        let from = from.min(end);
        for (number, sent) in (self.base + from as u64..).zip(self.sent.range_mut(from..end)) {
            losses.steps += 1;
            if sent.at > self.newest_arrived {
                break;
            }
            if sent.fate == Fate::InFlight {
                let due = sent.at + patience;
                if now < due {
                    self.loss_timer = Some(self.loss_timer.map_or(due, |timer| timer.min(due)));
                    break;
                }
                let content = sent.content.take_if(|content| content.is_packet());
                losses.lost.extend(content);
            }
            self.early_from = number + 1;
        }
    }

    /// Detects losses when the loss timer fires.
    pub fn on_loss_timer(&mut self, now: Instant, losses: &mut Losses<C>) {
        self.detect(now, losses);
    }

    /// When the loss timer fires.
    pub fn loss_timer(&self) -> Option<Instant> {
        self.loss_timer
    }

    /// Since when feedback is outstanding: the later of the last progress and the send time of the
    /// oldest packet in flight. `None` when nothing is in flight.
    pub fn silent_since(&self) -> Option<Instant> {
        if self.in_flight.is_empty() {
            return None;
        }
        let oldest = self.sent.range(self.first_in_flight()..).find(|sent| sent.is_awaited())?;
        Some(oldest.at.max(self.last_progress))
    }

    /// Content of the newest datagram in flight, for a tail loss probe.
    pub fn newest(&self) -> Option<&C> {
        let sent = self.sent.iter().rev().find(|sent| sent.is_awaited())?;
        sent.content.as_ref()
    }

    /// Takes the contents of packets in flight, from the newest on, to send them on another path as
    /// well, as long as `may` permits it, which gets one and the bytes that left after it. These
    /// packets stay in flight. Those before one without content, as after the last call, are left.
    pub fn take_newest(&mut self, mut may: impl FnMut(&C, u64) -> bool, losses: &mut Losses<C>) {
        let from = self.first_in_flight();
        let mut behind = 0;
        for sent in self.sent.range_mut(from..).rev().filter(|sent| sent.is_awaited()) {
            losses.steps += 1;
            let Some(content) = &sent.content else { break };
            if content.is_packet() {
                if !may(content, behind) {
                    break;
                }
                losses.lost.extend(sent.content.take());
            }
            behind += u64::from(sent.size);
        }
    }

    /// Repairs from now on what is late by `deviations` mean deviations of the RTT, or nothing.
    pub fn set_early_repair(&mut self, deviations: Option<f64>) {
        self.early = deviations;
    }

    /// Declares everything in flight lost, because the path has failed.
    pub fn abandon(&mut self, losses: &mut Losses<C>) {
        let from = self.first_in_flight();
        let mut after_lost = self.is_after_lost(from);
        for sent in self.sent.range_mut(from..) {
            if sent.fate == Fate::InFlight {
                losses.add(sent, after_lost);
            }
            after_lost = sent.fate == Fate::Lost;
        }
        self.in_flight = InFlight::default();
        self.loss_timer = None;
    }

    /// Declares lost what carries no inner packet.
    pub fn abandon_control(&mut self, losses: &mut Losses<C>) {
        let mut after_lost = false;
        for sent in self.sent.iter_mut() {
            if sent.fate == Fate::InFlight && !sent.content.as_ref().is_some_and(Content::is_packet)
            {
                self.in_flight.remove(sent);
                losses.add(sent, after_lost);
            }
            after_lost = sent.fate == Fate::Lost;
        }
    }

    /// The peer has answered other than by feedback: nothing is outstanding before `now`.
    pub fn on_answered(&mut self, now: Instant) {
        self.last_progress = now;
    }

    /// Drops entries from the front: acknowledged packets, and packets lost so long ago that a late
    /// acknowledgement is not expected. Of more than fit, as probes of a path that was dead for
    /// hours, the oldest are forgotten.
    fn trim(&mut self, now: Instant) {
        let mut done = 0;
        while let Some(sent) = self.sent.get(done) {
            let left = self.sent.len() - done;
            let keeps = match sent.fate {
                Fate::InFlight if left <= CAPACITY => true,
                Fate::InFlight => sent.content.as_ref().is_some_and(Content::is_packet),
                Fate::Acked | Fate::Untracked => false,
                Fate::Lost => left < CAPACITY && now.since(sent.at) <= self.remembers_lost(),
            };
            if keeps {
                break;
            }
            if sent.fate == Fate::InFlight {
                self.in_flight.remove(sent);
            }
            done += 1;
        }
        // Entries are dropped from the front only, so `base` and the length give the next number.
        if done > 0 {
            self.sent.drain(..done);
            self.base += done as u64;
        }
        self.pending.drop_below(self.base);
        self.in_flight_from = self.in_flight_from.max(self.base);
        let passed = |sent: &Sent<C>| sent.fate != Fate::InFlight;
        while self.sent.get(self.first_in_flight()).is_some_and(passed) {
            self.in_flight_from += 1;
        }
    }

    /// Time after which the acknowledgement of a lost packet is not expected any more.
    #[cold]
    fn remembers_lost(&self) -> Duration {
        self.typical() * 2 + self.reordering_window()
    }

    /// Index in `sent` before which nothing is in flight.
    fn first_in_flight(&self) -> usize {
        (self.in_flight_from.saturating_sub(self.base) as usize).min(self.sent.len())
    }
}

#[cfg(test)]
mod tests;
