//! The sending half of a lane: what is in flight, what feedback says of it, and what is lost.
//!
//! Loss is detected as in RACK (RFC 8985), with packet numbers in the place of sequence numbers
//! (RFC 9002, section 6): a packet is lost when one that left later has arrived and it is itself
//! overdue by more than the reordering window. The window learns: a packet that arrives late, or
//! after it was given up, widens it to what was seen, so that jitter within a path is not loss.

use core::time::Duration;
use std::collections::VecDeque;

use mpip_wire::{CHALLENGE_DATAGRAM_LEN, Feedback, PathId, SessionId};

use super::ecn::EcnValidation;
use super::rate::DeliveryHistory;
use super::rtt::{RttEstimator, Turnaround};
use crate::cc::RateSample;
use mpip_types::Instant;
use mpip_types::packet::Segments;

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

/// An inner packet on its way: enough to send it again.
#[derive(Clone, Debug)]
pub(crate) struct Cargo {
    /// The super-packet that holds it.
    pub(crate) segments: Segments,
    /// Which of its segments.
    pub(crate) segment: u16,
    /// The slot of its session, which may belong to another by now.
    pub(crate) slot: u32,
    /// Its session.
    pub(crate) session: SessionId,
    /// Sequence within the session.
    pub(crate) sequence: u32,
    /// The receiver puts its session in order.
    pub(crate) ordered: bool,
    /// The queue marked it with congestion experienced.
    pub(crate) marked: bool,
    /// When it left for the first time.
    pub(crate) first_sent: Instant,
    /// The path on which it left last.
    pub(crate) path: PathId,
    /// Its number there.
    pub(crate) number: u64,
}

/// What a datagram carried beside an inner packet, to be said again if it is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Control {
    /// The list of local addresses.
    pub(crate) addresses: bool,
    /// How long the peer is to wait for gaps.
    pub(crate) resequencing: bool,
    /// The status of a path.
    pub(crate) path_status: bool,
    /// How the peer's end of the path is seen.
    pub(crate) observed: bool,
    /// How long the path may rest.
    pub(crate) keepalive: bool,
    /// The header fields of a session, by slot and number.
    pub(crate) open: Option<(u32, SessionId)>,
    /// It probes the path's MTU: its loss is no sign of congestion, nor its silence one of failure.
    pub(crate) mtu_probe: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    InFlight,
    Acked,
    Lost,
    /// Not tracked: it asks for no feedback.
    Untracked,
}

#[derive(Debug)]
struct Sent {
    at: Instant,
    size: u16,
    fate: Fate,
    app_limited: bool,
    /// It left as ECN-capable.
    ect: bool,
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    control: Control,
    cargo: Option<Cargo>,
}

impl Sent {
    /// Whether the path owes an answer to it.
    fn is_awaited(&self) -> bool {
        self.fate == Fate::InFlight && !self.control.mtu_probe
    }
}

/// Memory of one packet in flight, without the buffer of its super-packet.
#[cfg(test)]
pub(crate) const BYTES_PER_PACKET: usize = size_of::<Sent>();

/// What became of packets, collected in vectors that the caller uses again.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Inner packets to be sent again, oldest first.
    pub(crate) cargo: Vec<Cargo>,
    /// What else they carried.
    pub(crate) control: Control,
    /// Sessions whose header fields were lost.
    pub(crate) unopened: Vec<(u32, SessionId)>,
    /// Sessions whose header fields have arrived.
    pub(crate) opened: Vec<(u32, SessionId)>,
    /// Bytes of them all.
    pub(crate) bytes: u64,
    /// How many datagrams.
    pub(crate) packets: u64,
    /// When the newest of them had left.
    pub(crate) newest: Instant,
    /// How many of them were longer than what every path carries, and the shortest of those.
    pub(crate) large: u32,
    pub(crate) smallest_large: u16,
    /// Length of an MTU probe, which is in none of the other counts; 0 without one.
    pub(crate) probe: u16,
}

impl Losses {
    pub(crate) fn clear(&mut self) {
        self.cargo.clear();
        self.unopened.clear();
        self.opened.clear();
        self.control = Control::default();
        self.bytes = 0;
        self.packets = 0;
        self.newest = Instant::ZERO;
        self.large = 0;
        self.smallest_large = 0;
        self.probe = 0;
    }

    fn add(&mut self, sent: &mut Sent) {
        sent.fate = Fate::Lost;
        if sent.control.mtu_probe {
            self.probe = sent.size;
            return;
        }
        if usize::from(sent.size) > CHALLENGE_DATAGRAM_LEN {
            let smallest = if self.large == 0 { u16::MAX } else { self.smallest_large };
            self.smallest_large = smallest.min(sent.size);
            self.large += 1;
        }
        self.bytes += u64::from(sent.size);
        self.packets += 1;
        self.newest = self.newest.max(sent.at);
        self.control.observed |= sent.control.observed;
        self.control.keepalive |= sent.control.keepalive;
        self.control.addresses |= sent.control.addresses;
        self.control.resequencing |= sent.control.resequencing;
        self.control.path_status |= sent.control.path_status;
        self.unopened.extend(sent.control.open);
        self.cargo.extend(sent.cargo.take());
    }
}

/// What a feedback frame brought.
#[derive(Debug)]
pub(crate) struct Progress {
    /// For the congestion control; `None` when nothing new was acknowledged.
    pub(crate) sample: Option<RateSample>,
    /// When the largest newly acknowledged number had left and had arrived, in both clocks' µs.
    pub(crate) delay: Option<(u32, u32)>,
    /// Packets given up that had arrived after all.
    pub(crate) spurious: u64,
    /// Bytes acknowledged for the first time.
    pub(crate) acked: u64,
    /// The longest datagram among them, MTU probes included; 0 when there is none.
    pub(crate) longest: u16,
}

/// Why a feedback frame cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeverSent;

/// The sending half of a lane.
#[derive(Debug)]
pub(crate) struct Flight {
    sent: VecDeque<Sent>,
    /// Number of the first of `sent`.
    base: u64,
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
    pub(crate) ecn: EcnValidation,
    /// Newest delivery rate, bytes/s.
    rate: u64,
}

impl Flight {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            sent: VecDeque::new(),
            base: 0,
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
    pub(crate) fn delivery_rate(&self) -> u64 {
        self.rate
    }

    /// The number of the next packet.
    pub(crate) fn next_number(&self) -> u64 {
        self.base + self.sent.len() as u64
    }

    /// Bytes in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Whether another packet can be tracked.
    pub(crate) fn has_room(&self) -> bool {
        self.sent.len() < CAPACITY
    }

    /// The way is another: what was learnt of its round trip does not hold any more.
    pub(crate) fn on_moved(&mut self) {
        self.rtt = RttEstimator::default();
        self.turnaround = Turnaround::default();
    }

    pub(crate) fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Takes note of a datagram of `size` bytes that left with [`next_number`](Self::next_number).
    /// One that `asks` for no feedback is not tracked.
    pub(crate) fn on_sent(
        &mut self,
        now: Instant,
        size: u16,
        asks: bool,
        control: Control,
        cargo: Option<Cargo>,
    ) {
        if asks {
            if self.in_flight == 0 {
                self.first_sent_at = now;
                self.delivered_at = now;
            }
            if !control.mtu_probe {
                self.in_flight += u64::from(size);
                self.in_flight_packets += 1;
            }
        }
        let fate = if asks { Fate::InFlight } else { Fate::Untracked };
        self.sent.push_back(Sent {
            at: now,
            size,
            fate,
            app_limited: self.app_limited_until > self.delivered,
            ect: false,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            control,
            cargo,
        });
        self.trim(now);
    }

    /// The datagram of the last [`on_sent`](Self::on_sent) left as ECN-capable.
    pub(crate) fn on_sent_capable(&mut self) {
        self.ecn.on_sent();
        if let Some(sent) = self.sent.back_mut() {
            sent.ect = true;
        }
    }

    /// There was nothing more to send: delivery rates measured from now on are the
    /// application's, not the path's.
    pub(crate) fn on_app_limited(&mut self, now: Instant) {
        self.history.on_app_limited(now);
        self.app_limited_until = self.delivered + self.in_flight.max(1);
    }

    /// Takes in a feedback frame and finds what is lost.
    pub(crate) fn on_feedback(
        &mut self,
        now: Instant,
        feedback: &Feedback<'_>,
        losses: &mut Losses,
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
            let from = range.first.max(self.base);
            for number in from..range.last.saturating_add(1) {
                let Some(sent) = self.sent.get_mut((number - self.base) as usize) else { break };
                match sent.fate {
                    Fate::Acked | Fate::Untracked => continue,
                    _ if sent.control.mtu_probe => {}
                    Fate::Lost => spurious += 1,
                    Fate::InFlight => {
                        self.in_flight -= u64::from(sent.size);
                        self.in_flight_packets -= 1;
                    }
                }
                acked += u64::from(sent.size);
                acked_capable += u64::from(sent.ect);
                longest = longest.max(sent.size);
                sent.fate = Fate::Acked;
                sent.cargo = None;
                losses.opened.extend(sent.control.open);
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

        let lost_before = losses.bytes;
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
                lost: losses.bytes - lost_before,
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

    /// Takes in feedback that says nothing of time, since it came another way: what arrived is not to
    /// be sent again.
    pub(crate) fn on_arrivals(&mut self, feedback: &Feedback<'_>) -> Result<(), NeverSent> {
        if feedback.largest() >= self.next_number() {
            return Err(NeverSent);
        }
        for range in feedback.ranges.iter() {
            for number in range.first.max(self.base)..range.last.saturating_add(1) {
                let Some(sent) = self.sent.get_mut((number - self.base) as usize) else { break };
                if sent.is_awaited() {
                    self.in_flight -= u64::from(sent.size);
                    self.in_flight_packets -= 1;
                }
                if sent.fate != Fate::Untracked {
                    sent.fate = Fate::Acked;
                    sent.cargo = None;
                }
            }
        }
        Ok(())
    }

    /// How far behind its followers a packet may be before it counts as lost.
    pub(crate) fn reordering_window(&self) -> Duration {
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
    pub(crate) fn reordering_extent(&self) -> u64 {
        self.extent[0].max(self.extent[1])
    }

    /// Where packets overtake each other lately: how much longer they take than RTT samples say, and
    /// the mean deviation of that. A queue that grows and shrinks is not meant.
    pub(crate) fn reordering(&self) -> Option<(Duration, Duration)> {
        let late = self.lateness[0].max(self.lateness[1]);
        let deviation = self.turnaround.deviation();
        (late >= deviation).then(|| (self.typical() - self.rtt.smoothed(), deviation))
    }

    /// Finds losses among what left before the newest arrival; sets the timer for those that are
    /// not overdue yet.
    fn detect(&mut self, now: Instant, losses: &mut Losses) {
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
        for (index, sent) in self.sent.iter_mut().enumerate().take(end) {
            if sent.fate != Fate::InFlight || sent.at > self.newest_arrived {
                continue;
            }
            let overdue_at = sent.at + patience;
            if now >= overdue_at || largest - (self.base + index as u64) >= by_count {
                if !sent.control.mtu_probe {
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
    pub(crate) fn on_loss_timer(&mut self, now: Instant, losses: &mut Losses) {
        self.detect(now, losses);
    }

    /// When something in flight becomes overdue.
    pub(crate) fn loss_timer(&self) -> Option<Instant> {
        self.loss_timer
    }

    /// Since when the path owes an answer: the later of the last progress and the departure of the
    /// oldest packet in flight. `None` when nothing is in flight.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        if self.in_flight_packets == 0 {
            return None;
        }
        let oldest = self.sent.iter().find(|sent| sent.is_awaited())?;
        Some(oldest.at.max(self.last_progress))
    }

    /// The newest packet in flight, to be sent again in doubt.
    pub(crate) fn newest_cargo(&self) -> Option<Cargo> {
        let sent = self.sent.iter().rev().find(|sent| sent.is_awaited())?;
        sent.cargo.clone()
    }

    /// Gives up everything in flight, because the path has died.
    pub(crate) fn abandon(&mut self, losses: &mut Losses) {
        for sent in self.sent.iter_mut().filter(|sent| sent.fate == Fate::InFlight) {
            losses.add(sent);
        }
        self.in_flight = 0;
        self.in_flight_packets = 0;
        self.loss_timer = None;
    }

    /// Gives up what carries no packet that could be sent again.
    pub(crate) fn abandon_signs_of_life(&mut self, losses: &mut Losses) {
        for sent in self.sent.iter_mut() {
            if sent.fate == Fate::InFlight && sent.cargo.is_none() {
                if !sent.control.mtu_probe {
                    self.in_flight -= u64::from(sent.size);
                    self.in_flight_packets -= 1;
                }
                losses.add(sent);
            }
        }
    }

    /// The other end has answered otherwise than by feedback: nothing is overdue.
    pub(crate) fn on_answered(&mut self, now: Instant) {
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
    }
}

#[cfg(test)]
mod tests;
