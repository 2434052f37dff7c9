//! When a path may send, and how much: its congestion control, pacing, and upper rate.

use core::time::Duration;

use mpip_types::Instant;
use mpip_wire::RateLimit;

use super::Path;
use crate::content::Content;
use crate::flight::Losses;
use crate::pacer::time_for;

/// Upper bound of a rate, bytes/s (9 Pbit/s), so that the sum of the rates of all paths fits 64
/// bits.
const MAX_RATE: u64 = 1 << 50;

impl<C: Content> Path<C> {
    /// When `len` more bytes may leave.
    pub fn ready_at(&self, now: Instant, len: usize) -> Instant {
        if self.blocked || !self.flight.has_room() {
            return Instant::FAR_FUTURE;
        }
        self.congestion_permits_at(now, len).max(self.limited_until())
    }

    /// When congestion control permits `len` more bytes.
    fn congestion_permits_at(&self, now: Instant, len: usize) -> Instant {
        let excess = (self.flight.in_flight() + len as u64).saturating_sub(self.cc.window());
        if excess > 0 && self.flight.in_flight() > 0 {
            return now + time_for(excess, self.rate()).max(Duration::from_micros(1));
        }
        self.pacer.ready_at()
    }

    /// When the upper rate permits the next packet; an instant not after now means at once.
    fn limited_until(&self) -> Instant {
        self.rate_limit().map_or(Instant::ZERO, |_| self.limiter.ready_at())
    }

    /// Whether the upper rate holds back `len` more bytes, which congestion control would permit
    /// no later.
    pub fn is_held_by_limit(&self, now: Instant, len: usize) -> bool {
        let until = self.limited_until();
        until > now
            && !self.blocked
            && self.flight.has_room()
            && self.congestion_permits_at(now, len) <= until
    }

    /// Whether the upper rate permits a packet now that needs a fast answer. Such packets may be
    /// `ahead` of it, beside a burst.
    pub fn permits_urgent(&self, now: Instant, ahead: Duration) -> bool {
        self.rate_limit().is_none_or(|limit| self.limiter.permits_urgent(now, limit, ahead))
    }

    /// The upper rate of what is sent on it, IP headers included: the lower one of both ends'
    /// wishes.
    pub fn rate_limit(&self) -> Option<RateLimit> {
        self.rate_up.into_iter().chain(self.reserve.peer_limit()).min()
    }

    /// The upper rate of what is sent on it, bytes of datagrams/s; [`MAX_RATE`] without one.
    fn rate_max(&self) -> u64 {
        self.rate_limit().map_or(MAX_RATE, |limit| {
            let (datagram, headers) = (self.max_datagram() as u64, self.outer_headers() as u64);
            limit.bytes_per_second() * datagram / (datagram + headers).max(1)
        })
    }

    /// When pacing or the upper rate permits the next packet, if one of them holds it back.
    pub fn paced_until(&self) -> Option<Instant> {
        let at = self.pacer.ready_at().max(self.limited_until());
        (at > Instant::ZERO).then_some(at)
    }

    /// Whether its window will soon grow: it is in BBR's Startup and uses its window.
    pub fn is_growing(&self) -> bool {
        self.is_searching() && self.flight.in_flight() * 2 >= self.cc.window()
    }

    /// Whether it may carry packets and is in BBR's Startup.
    pub fn is_searching(&self) -> bool {
        self.is_usable() && self.searches()
    }

    /// Whether it is in BBR's Startup, and does not know yet how much it can carry. At its upper
    /// rate it knows.
    pub fn searches(&self) -> bool {
        self.cc.searches() && self.cc.pacing_rate().is_none_or(|rate| rate < self.rate_max())
    }

    /// Rate at which the path may send, bytes/s: the pacing rate, or window / RTT without pacing,
    /// at most its upper rate.
    pub fn rate(&self) -> u64 {
        let rtt = self.flight.rtt().smoothed().as_nanos().max(1_000);
        let rate = self.cc.pacing_rate().unwrap_or_else(|| {
            let window = self.cc.window().min(1 << 40);
            u64::try_from(u128::from(window) * 1_000_000_000 / rtt).unwrap_or(u64::MAX)
        });
        rate.min(self.rate_max()).min(MAX_RATE)
    }

    /// While congestion control searches, the [shown rate](Self::shown_rate), bytes/s, if there is
    /// one.
    pub fn expected_rate(&self) -> Option<u64> {
        if !self.searched {
            return None;
        }
        self.shown_rate()
    }

    /// The capacity that the path's idle times have shown, bytes/s, or its estimated bandwidth if
    /// that is more; `None` if they have shown nothing.
    pub fn shown_rate(&self) -> Option<u64> {
        self.idle_capacity().map(|capacity| self.with_bandwidth(capacity))
    }

    /// `capacity`, or the estimated bandwidth if that is more, bytes/s.
    fn with_bandwidth(&self, capacity: u64) -> u64 {
        capacity.max(self.cc.bandwidth().unwrap_or(0)).max(1)
    }

    /// The capacity that the path's idle times have shown, bytes/s.
    pub(super) fn idle_capacity(&self) -> Option<u64> {
        self.capacity.rate()
    }

    /// What the path carries as far as is known, bytes/s: what its idle times have shown, or what
    /// it delivers. While it searches, the latter is known only after two packets of a transfer:
    /// before, it is what heartbeats took, and the sending rate stands for it.
    fn known_rate(&self) -> u64 {
        let few = 2 * self.max_datagram() as u64;
        match self.shown_rate() {
            Some(rate) => rate,
            None if self.searches() && self.flight.delivered_since_idle() < few => self.rate(),
            None => self.delivers(),
        }
    }

    /// When what was sent has left the queue of the path, by the [expected
    /// rate](Self::expected_rate). Where there is none, pacing sees to that, and it is not after
    /// now.
    pub fn clears_at(&self) -> Instant {
        if self.searched { self.expected_drain.empty_at() } else { Instant::ZERO }
    }

    /// Rate at which packets may leave, bytes/s: the pacing rate, at most the upper rate; `None`
    /// without both.
    pub fn pacing_rate(&self) -> Option<u64> {
        let limit = self.rate_limit().map(|_| self.rate_max());
        self.cc.pacing_rate().into_iter().chain(limit).min()
    }

    /// Estimated bandwidth, bytes/s, at most the upper rate; without an estimate, the sending rate
    /// less the lost share.
    pub fn delivers(&self) -> u64 {
        let guess = || (self.rate() as f64 * (1.0 - self.loss.share())) as u64;
        self.cc.bandwidth().unwrap_or_else(guess).min(self.rate_max()).min(MAX_RATE)
    }

    /// Time until what was sent has left the queue of the path: by the times at which it was sent,
    /// or by what is in flight beyond the bandwidth-delay product as far as it is known, whichever
    /// is less.
    pub fn backlog(&self, now: Instant) -> Duration {
        let takes = time_for(self.flight.in_flight(), self.known_rate());
        let queued = takes.saturating_sub(self.flight.rtt().minimum());
        self.drain.empty_at().since(now).min(queued)
    }

    /// Takes the contents of packets in flight, from the newest on, to send them on another path as
    /// well, as long as `may` permits it, which gets one and the time until it has left the path's
    /// queue. See [`Flight::take_newest`](crate::Flight::take_newest).
    pub fn take_newest(
        &mut self,
        mut may: impl FnMut(&C, Duration) -> bool,
        losses: &mut Losses<C>,
    ) {
        let (in_flight, rate) = (self.flight.in_flight(), self.known_rate());
        let minimum = self.flight.rtt().minimum();
        let queued =
            |behind| time_for(in_flight.saturating_sub(behind), rate).saturating_sub(minimum);
        self.flight.take_newest(|content, behind| may(content, queued(behind)), losses);
    }

    /// Mean time that a packet waits in resequencing for retransmissions of earlier packets, µs:
    /// half the time of a retransmission, times the probability of a loss in that time.
    pub fn mean_repair(&self) -> i64 {
        let rtt = self.flight.rtt().smoothed().saturating_sub(self.delay.queuing());
        let takes = (rtt + self.flight.reordering_window()).as_secs_f64();
        let packets = self.delivers() as f64 / self.max_datagram().max(1) as f64 * takes;
        (takes / 2.0 * (self.loss.share() * packets).min(1.0) * 1e6) as i64
    }

    /// Records a datagram that has left. Returns whether it was in the rear half of a burst.
    pub fn on_sent(&mut self, now: Instant, size: usize, asks: bool, paced: bool) -> bool {
        self.rest.on_travelled(now);
        self.counters.bytes_sent += size as u64;
        self.counters.packets_sent += 1;
        if asks {
            self.liveness.on_ack_eliciting_sent(now);
            self.loss.on_sent(now);
            self.counters.packets_asking += 1;
            let (number, in_flight) = (self.flight.next_number(), self.flight.in_flight());
            self.capacity.on_sent(now, number, size, in_flight == 0);
        }
        if self.drain.sent_at() != now {
            self.drain.begin_burst(now, self.delivers());
        }
        self.drain.on_sent(size as u64);
        if self.searched
            && let Some(capacity) = self.idle_capacity()
        {
            if self.expected_drain.sent_at() != now {
                self.expected_drain.begin_burst(now, self.with_bandwidth(capacity));
            }
            self.expected_drain.on_sent(size as u64);
        }
        if let Some(limit) = self.rate_limit() {
            self.limiter.on_sent(now, (size + self.outer_headers()) as u64, limit);
        }
        if !paced {
            return false;
        }
        let rate = self.cc.pacing_rate();
        self.cc.on_sent(now, size as u64, self.flight.in_flight());
        self.pacer.on_sent(now, size as u64, rate, self.bursts.quantum())
    }

    /// Tells the pacer the current time.
    pub fn refresh_pacing(&mut self, now: Instant) {
        self.pacer.refresh(now);
        self.limiter.refresh(now);
    }

    /// Tells whether packets are left, now that what may leave has left.
    pub fn set_waiting(&mut self, waiting: bool) {
        let rate = self.cc.pacing_rate().unwrap_or(u64::MAX);
        self.pacer.set_waiting(waiting, || self.bursts.late(self.flight.rtt().minimum(), rate));
    }
}
