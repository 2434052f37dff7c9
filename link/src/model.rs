//! One direction of a link.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BinaryHeap, VecDeque};

use crate::codel::CodelState;
use crate::config::{Change, Discipline, LinkConfig, Loss, QueueLimit};
use crate::counters::{Counters, DropCause};
use crate::random::Stream;
use crate::trace::TraceCursor;

/// A packet that leaves the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery<T> {
    /// Time of departure, at or before the time given to [`Link::poll`].
    pub at: Duration,
    /// The packet given to [`Link::enqueue`], or a copy of it.
    pub packet: T,
    /// Length as given to [`Link::enqueue`].
    pub len: usize,
    /// If set, the packet is corrupted: pass this word to [`flip_bit`] with the packet's bytes.
    pub corrupt: Option<u64>,
}

/// Flips the bit of `bytes` that `word` chooses. Does nothing to an empty packet.
pub fn flip_bit(bytes: &mut [u8], word: u64) {
    if bytes.is_empty() {
        return;
    }
    let bit = (word % (bytes.len() as u64 * 8)) as usize;
    bytes[bit / 8] ^= 1 << (bit % 8);
}

struct Waiting<T> {
    packet: T,
    len: usize,
    since: Duration,
}

struct Departing<T> {
    at: Duration,
    order: u64,
    entered: u64,
    delivery: Delivery<T>,
}

impl<T> PartialEq for Departing<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl<T> Eq for Departing<T> {}
impl<T> PartialOrd for Departing<T> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Departing<T> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

struct Streams {
    loss: Stream,
    state: Stream,
    jitter: Stream,
    duplicate: Stream,
    corrupt: Stream,
}

/// One direction of a link; see the crate's documentation for the model. `T` is the packet or a
/// handle of it. It is cloned only for duplication.
///
/// Times given to its methods should not decrease. An earlier time counts as the latest one.
pub struct Link<T> {
    config: LinkConfig,
    queue: VecDeque<Waiting<T>>,
    queued_bytes: u64,
    codel: CodelState,
    trace: TraceCursor,
    now: Duration,
    /// Time at which the transmitter is free, and the fraction of a nanosecond beyond it in units
    /// of 1/rate.
    free_at: Duration,
    fraction: u64,
    departing: BinaryHeap<Reverse<Departing<T>>>,
    order: u64,
    entered: u64,
    last_delivered: u64,
    last_departure: Duration,
    in_bad_state: bool,
    random: Streams,
    counters: Counters,
}

impl<T: Clone> Link<T> {
    /// An idle link. All its random choices follow from `seed`.
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        Self {
            config,
            queue: VecDeque::new(),
            queued_bytes: 0,
            codel: CodelState::default(),
            trace: TraceCursor::default(),
            now: Duration::ZERO,
            free_at: Duration::ZERO,
            fraction: 0,
            departing: BinaryHeap::new(),
            order: 0,
            entered: 0,
            last_delivered: 0,
            last_departure: Duration::ZERO,
            in_bad_state: false,
            random: Streams {
                loss: Stream::new(seed, 1),
                state: Stream::new(seed, 2),
                jitter: Stream::new(seed, 3),
                duplicate: Stream::new(seed, 4),
                corrupt: Stream::new(seed, 5),
            },
            counters: Counters::default(),
        }
    }

    /// Offers a packet of `len` bytes (IP header included, link header not).
    ///
    /// # Errors
    /// The cause, if the link drops the packet on entry. Loss and drops by CoDel happen later and
    /// show in [`Link::counters`] only, as on a real link.
    pub fn enqueue(&mut self, now: Duration, len: usize, packet: T) -> Result<(), DropCause> {
        let now = self.advance(now);
        self.counters.offered_packets += 1;
        self.counters.offered_bytes += len as u64;
        if let Err(cause) = self.admits(len) {
            self.counters.count_drop(cause, 1);
            return Err(cause);
        }
        self.queued_bytes += self.wire_bytes(len);
        self.queue.push_back(Waiting { packet, len, since: now });
        self.serve(now);
        self.counters.max_queued_bytes = self.counters.max_queued_bytes.max(self.queued_bytes);
        self.counters.max_queued_packets =
            self.counters.max_queued_packets.max(self.queue.len() as u64);
        Ok(())
    }

    /// The next moment at which [`Link::poll`] may have something; `None` while nothing is held.
    pub fn poll_at(&self) -> Option<Duration> {
        let departure = self.departing.peek().map(|Reverse(d)| d.at);
        let exact = self.config.jitter.is_zero();
        // The packets in the queue depart no earlier than this.
        let service = (!self.queue.is_empty())
            .then(|| self.free_at + if exact { self.config.delay } else { Duration::ZERO });
        match (departure, service) {
            (Some(at), Some(service)) => Some(at.min(service)),
            (at, service) => at.or(service),
        }
    }

    /// The next packet that is due at `now` or earlier, in order of departure.
    pub fn poll(&mut self, now: Duration) -> Option<Delivery<T>> {
        let now = self.advance(now);
        if self.departing.peek().is_none_or(|Reverse(d)| d.at > now) {
            return None;
        }
        let Reverse(departing) = self.departing.pop()?;
        self.counters.delivered_packets += 1;
        self.counters.delivered_bytes += departing.delivery.len as u64;
        if departing.entered < self.last_delivered {
            self.counters.reordered += 1;
        } else {
            self.last_delivered = departing.entered;
        }
        Some(departing.delivery)
    }

    /// Replaces the settings. Packets on the wire keep their departure time; the new rate applies
    /// from the next packet on. A link that goes down loses all packets that it holds. A smaller
    /// queue limit only refuses new packets.
    pub fn set_config(&mut self, now: Duration, config: LinkConfig) {
        let now = self.advance(now);
        if config.trace != self.config.trace {
            self.trace = TraceCursor::default();
        }
        if config.rate != self.config.rate {
            self.fraction = 0;
        }
        self.config = config;
        if !self.config.up {
            let held = self.queue.len() + self.departing.len();
            self.counters.count_drop(DropCause::Down, held as u64);
            self.queue.clear();
            self.queued_bytes = 0;
            self.departing.clear();
            self.free_at = now;
            self.fraction = 0;
        }
    }

    /// Changes some settings, see [`Link::set_config`].
    pub fn apply(&mut self, now: Duration, change: &Change) {
        let mut config = self.config.clone();
        change.apply(&mut config);
        self.set_config(now, config);
    }

    /// The current settings.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Counts so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Packets in the queue, as of the last call that took a time.
    pub fn queued_packets(&self) -> usize {
        self.queue.len()
    }

    /// Bytes in the queue, overhead included.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Packets on the wire and in propagation.
    pub fn in_flight(&self) -> usize {
        self.departing.len()
    }

    fn wire_bytes(&self, len: usize) -> u64 {
        len as u64 + u64::from(self.config.overhead)
    }

    fn admits(&self, len: usize) -> Result<(), DropCause> {
        if !self.config.up {
            return Err(DropCause::Down);
        }
        if self.config.blackhole {
            return Err(DropCause::Blackhole);
        }
        if len > self.config.mtu as usize {
            return Err(DropCause::TooBig);
        }
        let idle = self.queue.is_empty() && self.free_at <= self.now;
        let fits = match self.config.queue {
            QueueLimit::Packets(limit) => self.queue.len() < limit as usize,
            QueueLimit::Bytes(limit) => {
                self.queued_bytes + self.wire_bytes(len) <= u64::from(limit)
            }
        };
        if fits || idle { Ok(()) } else { Err(DropCause::Queue) }
    }

    /// Lets time pass: serves the queue up to `now`. Returns the time, never earlier than before.
    fn advance(&mut self, now: Duration) -> Duration {
        self.now = self.now.max(now);
        self.serve(self.now);
        self.now
    }

    fn serve(&mut self, now: Duration) {
        while self.free_at <= now {
            let Some(waiting) = self.queue.pop_front() else { return };
            let start = if waiting.since > self.free_at {
                self.fraction = 0;
                waiting.since
            } else {
                self.free_at
            };
            self.queued_bytes -= self.wire_bytes(waiting.len);
            if let Discipline::Codel(params) = self.config.discipline {
                let sojourn = start - waiting.since;
                if self.codel.drops(params, start, sojourn, self.queued_bytes) {
                    self.counters.count_drop(DropCause::Codel, 1);
                    continue;
                }
            }
            self.free_at = self.transmit(start, self.wire_bytes(waiting.len));
            self.propagate(waiting);
        }
    }

    /// When a packet of `bytes` that starts at `start` has been sent.
    fn transmit(&mut self, start: Duration, bytes: u64) -> Duration {
        if let Some(trace) = &self.config.trace {
            return self.trace.transmit(trace, start, bytes);
        }
        let Some(rate) = self.config.rate else { return start };
        let rate = rate.max(1);
        let work = u128::from(bytes) * 8 * 1_000_000_000 + u128::from(self.fraction);
        let nanos = work / u128::from(rate);
        self.fraction = (work % u128::from(rate)) as u64;
        start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// What happens between the transmitter and the far end.
    fn propagate(&mut self, waiting: Waiting<T>) {
        self.entered += 1;
        let copies = if self.random.duplicate.chance(self.config.duplicate) {
            self.counters.duplicated += 1;
            2
        } else {
            1
        };
        let mut packet = Some(waiting.packet);
        for copy in (0..copies).rev() {
            if self.loses() {
                self.counters.count_drop(DropCause::Loss, 1);
                continue;
            }
            let corrupt = self.random.corrupt.chance(self.config.corrupt).then(|| {
                self.counters.corrupted += 1;
                self.random.corrupt.word()
            });
            let at = self.departure();
            let packet = if copy == 0 { packet.take() } else { packet.clone() };
            let Some(packet) = packet else { return };
            self.order += 1;
            self.departing.push(Reverse(Departing {
                at,
                order: self.order,
                entered: self.entered,
                delivery: Delivery { at, packet, len: waiting.len, corrupt },
            }));
        }
    }

    fn loses(&mut self) -> bool {
        match self.config.loss {
            Loss::None => false,
            Loss::Random(p) => self.random.loss.chance(p),
            Loss::GilbertElliott { good_to_bad, bad_to_good, good_loss, bad_loss } => {
                let change = if self.in_bad_state { bad_to_good } else { good_to_bad };
                if self.random.state.chance(change) {
                    self.in_bad_state = !self.in_bad_state;
                }
                self.random.loss.chance(if self.in_bad_state { bad_loss } else { good_loss })
            }
        }
    }

    fn departure(&mut self) -> Duration {
        let mut at = self.free_at + self.config.delay;
        if !self.config.jitter.is_zero() {
            let deviation = self.random.jitter.normal() * self.config.jitter.as_secs_f64();
            at = if deviation >= 0.0 {
                at + Duration::from_secs_f64(deviation)
            } else {
                at.saturating_sub(Duration::from_secs_f64(-deviation)).max(self.free_at)
            };
        }
        if self.config.in_order {
            at = at.max(self.last_departure);
            self.last_departure = at;
        }
        at
    }
}

#[cfg(test)]
mod tests;
