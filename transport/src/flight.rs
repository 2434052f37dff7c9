//! The sending half of a lane: what is in flight, what feedback says of it, and what is lost.
//!
//! Loss is detected as in RACK (RFC 8985), with packet numbers in the place of sequence numbers
//! (RFC 9002, section 6): a packet is lost when one that left later has arrived and it is itself
//! overdue by more than the reordering window. The window learns: a packet that arrives late, or
//! after it was given up, widens it to what was seen, so that jitter within a path is not loss.

mod pending;
mod sent;

use core::time::Duration;
use std::collections::VecDeque;

use mpip_types::{Ecn, Instant, Intervals};
use mpip_wire::Feedback;

use self::pending::Pending;
use self::sent::{Fate, Sent};
pub use self::sent::{LossSummary, Losses, bytes_per_datagram};
use crate::cc::RateSample;
use crate::content::Content;
use crate::ecn::EcnValidation;
use crate::rate::DeliveryHistory;
use crate::rtt::{RttEstimator, Turnaround};

/// Packets that may be tracked: one that stays out longer than this many followers could not be
/// told from a replay by the receiver (its window has 16,384 numbers).
const CAPACITY: usize = 16_000;
/// Packets after which a hole is a loss while no reordering was seen (RFC 9002, section 6.1.1).
const PACKET_THRESHOLD: u64 = 3;
/// Smallest time threshold: below it, timers and batches are what is measured.
const MIN_WINDOW: Duration = Duration::from_millis(1);
/// Shorter round trips are an artefact of clocks that are read once a batch.
const MIN_RTT: Duration = Duration::from_micros(10);
/// How long a seen lateness keeps the reordering window wide.
const LEARNED_FOR: Duration = Duration::from_secs(10);

/// Ranges of numbers that are remembered as arrived though their path did not say so; beyond it
/// those of the highest numbers are forgotten, and what they name, which goes last, may be sent
/// again.
const ELSEWHERE: usize = 64;

/// What a feedback frame brought.
#[derive(Debug)]
pub struct Progress {
    /// For the congestion control; `None` when nothing new was acknowledged.
    pub sample: Option<RateSample>,
    /// When the largest newly acknowledged number had left and had arrived, in both clocks' µs.
    pub delay: Option<(u32, u32)>,
    /// Packets given up that had arrived after all.
    pub spurious: u64,
    /// Bytes acknowledged for the first time.
    pub acked: u64,
    /// The longest datagram among them, MTU probes included; 0 when there is none.
    pub longest: u16,
}

/// Why a feedback frame cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeverSent;

/// The sending half of a lane.
#[derive(Debug)]
pub struct Flight<C> {
    sent: VecDeque<Sent<C>>,
    /// Number of the first of `sent`.
    base: u64,
    /// Which of `sent` are tracked and not acknowledged.
    pending: Pending,
    /// Nothing below is in flight.
    in_flight_from: u64,
    /// What has arrived as another path said.
    elsewhere: Intervals,
    in_flight: u64,
    in_flight_packets: u32,
    largest_acked: Option<u64>,
    /// When the newest packet known to have arrived had left.
    newest_arrived: Instant,
    rtt: RttEstimator,
    turnaround: Turnaround,
    /// Largest lateness seen, in the current and the former half of its lifetime.
    lateness: [Duration; 2],
    /// Most numbers by which a packet was overtaken, likewise.
    extent: [u64; 2],
    lateness_started: Instant,
    reordered: bool,
    loss_timer: Option<Instant>,
    last_progress: Instant,
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    app_limited_until: u64,
    history: DeliveryHistory,
    ecn: EcnValidation,
    /// Newest delivery rate, bytes/s.
    rate: u64,
}

impl<C: Content> Flight<C> {
    /// Of a lane on which nothing was sent.
    pub fn new(now: Instant) -> Self {
        Self {
            sent: VecDeque::new(),
            base: 0,
            pending: Pending::default(),
            in_flight_from: 0,
            elsewhere: Intervals::default(),
            in_flight: 0,
            in_flight_packets: 0,
            largest_acked: None,
            newest_arrived: Instant::ZERO,
            rtt: RttEstimator::default(),
            turnaround: Turnaround::default(),
            lateness: [Duration::ZERO; 2],
            extent: [0; 2],
            lateness_started: now,
            reordered: false,
            loss_timer: None,
            last_progress: now,
            delivered: 0,
            delivered_at: now,
            first_sent_at: now,
            app_limited_until: 0,
            history: DeliveryHistory::default(),
            ecn: EcnValidation::default(),
            rate: 0,
        }
    }

    /// The delivery rate that the newest feedback shows, bytes/s.
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

    /// Bytes in flight.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Whether another packet can be tracked.
    pub fn has_room(&self) -> bool {
        self.sent.len() < CAPACITY
    }

    /// The way is another: what was learnt of its round trip does not hold any more.
    pub fn on_moved(&mut self) {
        self.rtt = RttEstimator::default();
        self.turnaround = Turnaround::default();
    }

    /// The round-trip time.
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Takes note of a datagram of `size` bytes that left with [`next_number`](Self::next_number).
    /// One that `asks` for no feedback is not tracked.
    pub fn on_sent(
        &mut self,
        now: Instant,
        size: u16,
        asks: bool,
        probe: bool,
        content: Option<C>,
    ) {
        if asks {
            if self.in_flight == 0 {
                self.first_sent_at = now;
                self.delivered_at = now;
            }
            if !probe {
                self.in_flight += u64::from(size);
                self.in_flight_packets += 1;
            }
        }
        let fate = if asks { Fate::InFlight } else { Fate::Untracked };
        self.pending.push(self.next_number(), asks);
        self.sent.push_back(Sent {
            at: now,
            size,
            fate,
            app_limited: self.app_limited_until > self.delivered,
            ect: false,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
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

    /// What is known of whether the path carries ECN marks, in a word.
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

    /// There was nothing more to send: delivery rates measured from now on are the
    /// application's, not the path's.
    pub fn on_app_limited(&mut self, now: Instant) {
        self.history.on_app_limited(now);
        self.app_limited_until = self.delivered + self.in_flight.max(1);
    }

    /// Takes in a feedback frame and finds what is lost.
    pub fn on_feedback(
        &mut self,
        now: Instant,
        feedback: &Feedback<'_>,
        losses: &mut Losses<C>,
    ) -> Result<Progress, NeverSent> {
        if feedback.largest() >= self.next_number() {
            return Err(NeverSent);
        }
        let prior_in_flight = self.in_flight;
        let mut acked = 0;
        let mut acked_capable = 0;
        let mut spurious = 0;
        let mut longest = 0;
        let mut newest: Option<(u64, Instant)> = None;
        let mut sampled: Option<(u64, Instant, Instant, Instant, bool)> = None;
        let former_largest = self.largest_acked;
        for range in feedback.ranges.iter() {
            let mut from = range.first;
            while let Some(number) = self.next_pending(&mut from, range.last, &mut losses.steps) {
                let Some(sent) = self.sent.get_mut((number - self.base) as usize) else { break };
                match sent.fate {
                    _ if sent.probe => {}
                    Fate::InFlight => {
                        self.in_flight -= u64::from(sent.size);
                        self.in_flight_packets -= 1;
                    }
                    _ => spurious += 1,
                }
                acked += u64::from(sent.size);
                acked_capable += u64::from(sent.ect);
                longest = longest.max(sent.size);
                sent.fate = Fate::Acked;
                let arrived = sent.content.take();
                losses.arrived.extend(arrived.filter(Content::reports_arrival));
                self.newest_arrived = self.newest_arrived.max(sent.at);
                if newest.is_none_or(|(largest, _)| number > largest) {
                    newest = Some((number, sent.at));
                }
                if sampled
                    .is_none_or(|(delivered, at, ..)| (sent.delivered, sent.at) >= (delivered, at))
                {
                    sampled = Some((
                        sent.delivered,
                        sent.at,
                        sent.delivered_at,
                        sent.first_sent_at,
                        sent.app_limited,
                    ));
                }
                if former_largest.is_some_and(|largest| number < largest) {
                    self.reordered = true;
                    let overtaken = former_largest.map_or(0, |largest| largest - number);
                    self.extent[0] = self.extent[0].max(overtaken);
                    let took = now.since(sent.at);
                    let late = took.saturating_sub(self.typical());
                    self.lateness[0] = self.lateness[0].max(late);
                    self.turnaround.on_sample(took);
                }
            }
        }
        self.largest_acked = Some(former_largest.unwrap_or(0).max(feedback.largest()));
        let mut rtt = None;
        let mut delay = None;
        if let Some((number, at)) = newest
            && number == feedback.largest()
        {
            let held = Duration::from_micros(feedback.delay.min(1 << 30));
            let sample = now.since(at).saturating_sub(held).max(MIN_RTT);
            self.rtt.on_sample(now, sample);
            self.turnaround.on_sample(sample);
            rtt = Some(sample);
            delay = Some((at.as_micros() as u32, feedback.received_at));
        }
        // Feedback that was overtaken has counts of before (RFC 9000, section 13.4.2.1).
        let overtaken = former_largest.is_some_and(|largest| largest >= feedback.largest());
        let ecn_ce = match overtaken {
            true => 0,
            false => self.ecn.on_feedback(acked_capable, feedback.ecn),
        };

        let lost_before = losses.summary.bytes;
        self.detect(now, losses);
        let sample = sampled.map(|(delivered, at, delivered_at, first_sent_at, app_limited)| {
            self.delivered += acked;
            self.delivered_at = now;
            self.first_sent_at = at;
            self.last_progress = now;
            let jitter = self.reordering().filter(|_| self.turnaround.is_steady());
            let jitter = jitter.map_or(Duration::ZERO, |(_, deviation)| deviation);
            let told = feedback.received_at.wrapping_add(feedback.delay as u32);
            self.history.on_delivered(now, told, self.delivered, jitter);
            let interval = at.since(first_sent_at).max(now.since(delivered_at));
            let long_enough = interval >= self.rtt.minimum() && !interval.is_zero();
            let (rate, limited) = long_enough
                .then(|| self.history.rate(self.delivered, (interval, delivered), jitter))
                .flatten()
                .map_or((None, false), |(rate, limited)| (Some(rate), limited));
            self.rate = rate.unwrap_or(self.rate);
            RateSample {
                now,
                acked,
                lost: losses.summary.bytes - lost_before,
                prior_in_flight,
                in_flight: self.in_flight,
                delivery_rate: rate,
                app_limited: app_limited || limited,
                delivered: self.delivered,
                prior_delivered: delivered,
                // One packet that overtook others says nothing of the path.
                rtt: if jitter.is_zero() { rtt } else { rtt.map(|_| self.turnaround.steady()) },
                smoothed_rtt: self.typical(),
                rtt_deviation: self.turnaround.deviation(),
                jitter,
                min_rtt: self.rtt.minimum(),
                ecn_ce,
            }
        });
        self.trim(now);
        Ok(Progress { sample, delay, spurious, acked, longest })
    }

    /// Takes in feedback that says nothing of time, since it came another way: what arrived is not
    /// to be sent again. It is remembered if anything `waits` to be sent again.
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
                if sent.is_awaited() {
                    self.in_flight -= u64::from(sent.size);
                    self.in_flight_packets -= 1;
                }
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

    /// The next number from `from` to `to` that was not acknowledged, which from now on counts as
    /// acknowledged; `from` moves behind it. Counts the passes that it takes to find it.
    fn next_pending(&mut self, from: &mut u64, to: u64, steps: &mut u64) -> Option<u64> {
        let (number, looked) = self.pending.next((*from).max(self.base), to);
        *steps += looked + 1;
        let number = number?;
        self.pending.remove(number);
        *from = number + 1;
        Some(number)
    }

    /// Whether another path has said that the packet `number` has arrived.
    pub fn arrived_elsewhere(&self, number: u64) -> bool {
        self.elsewhere.contains(number)
    }

    /// Whether another path has said that anything has arrived.
    pub fn knows_of_elsewhere(&self) -> bool {
        !self.elsewhere.is_empty()
    }

    /// How far behind its followers a packet may be before it counts as lost.
    pub fn reordering_window(&self) -> Duration {
        let learned = self.lateness[0].max(self.lateness[1]);
        let least = (self.typical() / 4).max(MIN_WINDOW);
        // The latest of thousands is no measure for all, and an outage is no jitter.
        let bound = least * 2 + self.turnaround.deviation() * 4;
        least.max((learned + learned / 4).min(bound))
    }

    /// How long a packet usually takes to be acknowledged.
    fn typical(&self) -> Duration {
        self.rtt.smoothed().max(self.turnaround.mean())
    }

    /// The most numbers by which a packet was overtaken, of the last 5 to 10 s.
    pub fn reordering_extent(&self) -> u64 {
        self.extent[0].max(self.extent[1])
    }

    /// Where packets overtake each other lately: how much longer they take than RTT samples say,
    /// and the mean deviation of that. A queue that grows and shrinks is not meant.
    pub fn reordering(&self) -> Option<(Duration, Duration)> {
        let late = self.lateness[0].max(self.lateness[1]);
        let deviation = self.turnaround.deviation();
        (late >= deviation).then(|| (self.typical() - self.rtt.smoothed(), deviation))
    }

    /// Finds losses among what left before the newest arrival; sets the timer for those that are
    /// not overdue yet.
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
        for (number, sent) in (self.base + from as u64..).zip(self.sent.range_mut(from..end)) {
            losses.steps += 1;
            if sent.at > self.newest_arrived {
                // So did those that follow.
                break;
            }
            if sent.fate != Fate::InFlight {
                continue;
            }
            let overdue_at = sent.at + patience;
            if now >= overdue_at || largest - number >= by_count {
                if !sent.probe {
                    self.in_flight -= u64::from(sent.size);
                    self.in_flight_packets -= 1;
                }
                losses.add(sent);
            } else {
                self.loss_timer = Some(overdue_at);
                // Those that follow left later, so they are due later.
                break;
            }
        }
    }

    /// Finds what has become overdue since the last feedback.
    pub fn on_loss_timer(&mut self, now: Instant, losses: &mut Losses<C>) {
        self.detect(now, losses);
    }

    /// When something in flight becomes overdue.
    pub fn loss_timer(&self) -> Option<Instant> {
        self.loss_timer
    }

    /// Since when the path owes an answer: the later of the last progress and the departure of the
    /// oldest packet in flight. `None` when nothing is in flight.
    pub fn silent_since(&self) -> Option<Instant> {
        if self.in_flight_packets == 0 {
            return None;
        }
        let oldest = self.sent.range(self.first_in_flight()..).find(|sent| sent.is_awaited())?;
        Some(oldest.at.max(self.last_progress))
    }

    /// What the newest datagram in flight carries, to be sent again in doubt.
    pub fn newest(&self) -> Option<&C> {
        let sent = self.sent.iter().rev().find(|sent| sent.is_awaited())?;
        sent.content.as_ref()
    }

    /// Gives up everything in flight, because the path has died.
    pub fn abandon(&mut self, losses: &mut Losses<C>) {
        let from = self.first_in_flight();
        for sent in self.sent.range_mut(from..).filter(|sent| sent.fate == Fate::InFlight) {
            losses.add(sent);
        }
        self.in_flight = 0;
        self.in_flight_packets = 0;
        self.loss_timer = None;
    }

    /// Gives up what carries no inner packet.
    pub fn abandon_control(&mut self, losses: &mut Losses<C>) {
        for sent in self.sent.iter_mut() {
            if sent.fate == Fate::InFlight && !sent.content.as_ref().is_some_and(Content::is_packet)
            {
                if !sent.probe {
                    self.in_flight -= u64::from(sent.size);
                    self.in_flight_packets -= 1;
                }
                losses.add(sent);
            }
        }
    }

    /// The other end has answered otherwise than by feedback: nothing is overdue.
    pub fn on_answered(&mut self, now: Instant) {
        self.last_progress = now;
    }

    /// Forgets what needs no more watching from the front: what was acknowledged, and what was
    /// lost so long ago that its late arrival would teach nothing.
    fn trim(&mut self, now: Instant) {
        let remember = self.typical() * 2 + self.reordering_window();
        while let Some(front) = self.sent.front() {
            let done = match front.fate {
                Fate::InFlight => false,
                Fate::Acked | Fate::Untracked => true,
                Fate::Lost => now.since(front.at) > remember || self.sent.len() >= CAPACITY,
            };
            // The newest stays, so that the next number follows from the ring alone.
            if !done {
                break;
            }
            self.sent.pop_front();
            self.base += 1;
        }
        self.pending.drop_below(self.base);
        self.in_flight_from = self.in_flight_from.max(self.base);
        let passed = |sent: &Sent<C>| sent.fate != Fate::InFlight;
        while self.sent.get(self.first_in_flight()).is_some_and(passed) {
            self.in_flight_from += 1;
        }
    }

    /// Where in `sent` those in flight begin, at the earliest.
    fn first_in_flight(&self) -> usize {
        (self.in_flight_from.saturating_sub(self.base) as usize).min(self.sent.len())
    }
}

#[cfg(test)]
mod tests;
