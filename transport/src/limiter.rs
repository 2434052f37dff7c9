//! The upper rate of a path: holds back what would exceed it.
//!
//! It is a second pacer, beside that of congestion control: a path may send when both permit it. So
//! congestion control learns nothing wrong: to it, a sender at the upper rate has no more to send.

use core::time::Duration;

use mpip_types::Instant;
use mpip_wire::RateLimit;

use crate::burst::QUANTUM;
use crate::pacer::{Pacer, burst};

/// Longest time at the upper rate that counts against a path. Feedback and probes are never held
/// back; what they take beyond this is forgiven.
const MOST: Duration = Duration::from_secs(1);

/// Keeps what a path sends below an upper rate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limiter {
    pacer: Pacer,
}

impl Limiter {
    /// When the next packet may leave; an instant not after `now` means at once.
    pub(crate) fn ready_at(&self) -> Instant {
        self.pacer.ready_at()
    }

    /// Whether a packet may leave now that needs a fast answer: such packets may be `ahead` of the
    /// upper rate, beside a burst. Other packets wait meanwhile, so that the rate holds over a few
    /// times as long.
    pub(crate) fn permits_urgent(&self, now: Instant, limit: RateLimit, ahead: Duration) -> bool {
        self.pacer.ahead(now) < burst(limit.bytes_per_second(), QUANTUM) + ahead
    }

    /// Records an IP packet of `size` bytes that leaves at `now`.
    pub(crate) fn on_sent(&mut self, now: Instant, size: u64, limit: RateLimit) {
        if self.pacer.ahead(now) < MOST {
            self.pacer.on_sent(now, size, Some(limit.bytes_per_second()), QUANTUM);
        }
    }

    /// Tells the current time.
    pub(crate) fn refresh(&mut self, now: Instant) {
        self.pacer.refresh(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AHEAD: Duration = Duration::from_millis(50);

    fn limit(kbps: u32) -> RateLimit {
        RateLimit::new(kbps).expect("in range")
    }

    /// Bytes that leave in two seconds after the first burst, when a packet of 1,500 bytes always
    /// waits; `urgent`: one that needs a fast answer.
    fn sent(kbps: u32, urgent: bool) -> u64 {
        let (mut limiter, limit) = (Limiter::default(), limit(kbps));
        let (mut now, mut sent) = (Instant::from_millis(5), 0);
        let start = now + Duration::from_secs(1);
        let end = start + Duration::from_secs(2);
        while now < end {
            limiter.refresh(now);
            let may = match urgent {
                true => limiter.permits_urgent(now, limit, AHEAD),
                false => limiter.ready_at() <= now,
            };
            if may {
                limiter.on_sent(now, 1_500, limit);
                sent += if now >= start { 1_500 } else { 0 };
            } else {
                now += Duration::from_micros(100);
            }
        }
        sent
    }

    #[test]
    fn neither_bulk_nor_urgent_packets_exceed_the_rate() {
        for kbps in [64, 1_000, 20_000, 400_000] {
            let most = limit(kbps).bytes_per_second() * 2;
            for urgent in [false, true] {
                let sent = sent(kbps, urgent);
                let error = sent.abs_diff(most);
                assert!(error <= (most / 50).max(4_500), "{kbps} kbit/s, {urgent}: {sent} bytes");
            }
        }
    }

    #[test]
    fn urgent_packets_pass_where_bulk_has_used_the_rate() {
        let (mut limiter, limit) = (Limiter::default(), limit(2_000));
        let now = Instant::from_millis(5);
        while limiter.ready_at() <= now {
            limiter.on_sent(now, 1_500, limit);
        }
        assert!(limiter.permits_urgent(now, limit, AHEAD));
        (0..100).for_each(|_| limiter.on_sent(now, 200, limit));
        assert!(!limiter.permits_urgent(now, limit, AHEAD));
    }

    #[test]
    fn what_is_never_held_back_counts_for_a_second_at_most() {
        let (mut limiter, limit) = (Limiter::default(), limit(64));
        let now = Instant::from_millis(5);
        (0..1_000).for_each(|_| limiter.on_sent(now, 1_500, limit));
        let wait = limiter.ready_at().since(now);
        assert!(wait >= MOST && wait < MOST * 2, "{wait:?}");
    }
}
