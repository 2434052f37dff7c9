//! Pacing: spreads the datagrams of a path over time.

use core::time::Duration;

use mpip_types::Instant;

/// Smallest burst, bytes: two packets.
const MIN_BURST: u64 = 3_000;
/// In the smallest burst, a packet of fewer bytes counts as one of this size: a queue that counts
/// packets holds no more small ones than large ones.
const SMALL: u64 = MIN_BURST / 5;
/// Largest burst, bytes: one batch for the network device.
pub(crate) const MAX_BURST: u64 = 65_536;

/// When a path may send next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pacer {
    /// When everything sent so far would have left at the pacing rate.
    drained: Instant,
    /// A whole burst has left: nothing more may leave before `drained`.
    blocked: bool,
    /// How much delay of the call that ends this is made up for, beside a burst.
    late: Duration,
}

impl Pacer {
    /// When the next packet may leave; an instant not after `now` means at once.
    pub(crate) fn ready_at(&self) -> Instant {
        if self.blocked { self.drained } else { Instant::ZERO }
    }

    /// Records `size` bytes that leave at `now`; `rate` is the pacing rate, bytes/s, and `quantum`
    /// the longest burst at that rate. Returns whether they are in the rear half of a burst.
    #[inline]
    pub(crate) fn on_sent(
        &mut self,
        now: Instant,
        size: u64,
        rate: Option<u64>,
        quantum: Duration,
    ) -> bool {
        let Some(rate) = rate.filter(|rate| *rate > 0) else {
            self.blocked = false;
            return false;
        };
        let longest = burst(rate, quantum);
        if size < SMALL && longest > quantum {
            return self.take_small(now, size, rate, (longest, quantum));
        }
        self.take(now, time_for(size, rate), Duration::ZERO, (longest, longest))
    }

    /// Records `size` bytes, fewer than [`SMALL`], where the smallest burst takes `longest`, more
    /// than `quantum`.
    #[inline(never)]
    fn take_small(
        &mut self,
        now: Instant,
        size: u64,
        rate: u64,
        (longest, quantum): (Duration, Duration),
    ) -> bool {
        let burst = quantum.max(longest * size as u32 / SMALL as u32);
        self.take(now, time_for(size, rate), time_for(SMALL, rate), (burst, longest))
    }

    /// Records packets that take a time of `takes`, and at least `least` of the credit of a pause,
    /// which is at most `credit`. Nothing more leaves once `burst` is ahead.
    #[inline(always)]
    fn take(
        &mut self,
        now: Instant,
        takes: Duration,
        least: Duration,
        (burst, credit): (Duration, Duration),
    ) -> bool {
        let rear = self.drained > now + burst / 2;
        if self.drained <= now {
            // A late timer or a short pause does not reduce the rate.
            let paused = now - credit;
            let since = self.drained.max(paused - self.late);
            let least = if since < paused { takes } else { least };
            self.drained = (since + takes).max(now.min(since + least));
            self.blocked = false;
        } else {
            self.drained += takes;
        }
        if self.drained >= now + burst {
            self.blocked = true;
        }
        rear
    }

    /// How long everything sent so far still needs at the pacing rate.
    pub(crate) fn ahead(&self, now: Instant) -> Duration {
        self.drained.since(now)
    }

    /// Unblocks the pacer once the time of [`ready_at`](Self::ready_at) has come.
    pub(crate) fn refresh(&mut self, now: Instant) {
        if self.drained <= now {
            self.blocked = false;
        }
    }

    /// Tells whether packets are left that did not leave now. If the pacer holds them, up to `late`
    /// of the next call's delay is made up for.
    pub(crate) fn set_waiting(&mut self, waiting: bool, late: impl FnOnce() -> Duration) {
        self.late = if waiting && self.blocked { late() } else { Duration::ZERO };
    }
}

/// How long the largest burst takes at `rate` bytes per second: `quantum`, which is less than a
/// second, within the bounds of a burst.
pub(crate) fn burst(rate: u64, quantum: Duration) -> Duration {
    let bytes = rate.saturating_mul(quantum.subsec_nanos().into()) / 1_000_000_000;
    time_for(bytes.clamp(MIN_BURST, MAX_BURST), rate)
}

/// How long `bytes` take at `rate` bytes per second.
pub(crate) fn time_for(bytes: u64, rate: u64) -> Duration {
    let rate = rate.max(1);
    // 18 GB fit 64 bits, which divide several times as fast as 128.
    let nanos = bytes.checked_mul(1_000_000_000).map(|nanos| nanos / rate);
    let nanos = nanos.unwrap_or_else(|| {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    });
    Duration::from_nanos(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::burst::QUANTUM;

    /// The delay that is made up for.
    const LATE: Duration = Duration::from_millis(8);

    fn sent_in_a_second(rate: u64, size: u64) -> u64 {
        let mut pacer = Pacer::default();
        let mut now = Instant::from_millis(5);
        let end = now + Duration::from_secs(1);
        let mut sent = 0;
        while now < end {
            pacer.refresh(now);
            if pacer.ready_at() <= now {
                pacer.on_sent(now, size, Some(rate), QUANTUM);
                sent += size;
            } else {
                now = pacer.ready_at();
            }
        }
        sent
    }

    #[test]
    fn the_rate_is_kept_from_slow_to_fast() {
        for rate in [30_000, 1_250_000, 125_000_000, 1_250_000_000] {
            let sent = sent_in_a_second(rate, 1_500);
            let error = sent.abs_diff(rate);
            assert!(error <= (rate / 100).max(MAX_BURST), "{rate} bytes/s: sent {sent}");
        }
    }

    /// Bytes of a second at 12.5 MB/s whose calls are late by `delay`; packets wait for them, or
    /// not.
    fn sent_by_late_calls(delay: Duration, waiting: bool) -> u64 {
        let (rate, mut now, mut sent) = (12_500_000, Instant::from_millis(5), 0);
        let mut pacer = Pacer::default();
        let end = now + Duration::from_secs(1);
        while now < end {
            pacer.refresh(now);
            if pacer.ready_at() <= now {
                pacer.on_sent(now, 1_500, Some(rate), QUANTUM);
                sent += 1_500;
            } else {
                pacer.set_waiting(waiting, || LATE);
                now = pacer.ready_at() + delay;
            }
        }
        sent
    }

    #[test]
    fn a_call_that_comes_late_costs_no_rate_if_packets_wait() {
        for delay in [300, 3_000, 8_000].map(Duration::from_micros) {
            let sent = sent_by_late_calls(delay, true);
            assert!(sent.abs_diff(12_500_000) < 250_000, "{sent} bytes with calls {delay:?} late");
        }
        let sent = sent_by_late_calls(Duration::from_millis(72), true);
        assert!(sent < 12_500_000 / 6, "{sent} bytes: what is made up for is bounded");
    }

    #[test]
    fn after_a_pause_without_packets_a_burst_is_as_short_as_any() {
        let pause = Duration::from_millis(8);
        let sent = sent_by_late_calls(pause, false);
        let most = 2 * 12_500 * 1_000 / 9;
        assert!(sent < most + most / 10, "{sent} bytes, {most} in two bursts each 9 ms");
    }

    #[test]
    fn the_rear_half_of_a_burst_is_told_from_the_front() {
        let mut pacer = Pacer::default();
        let (early, rate) = (Instant::from_millis(5), Some(12_500_000));
        (0..20).for_each(|_| _ = pacer.on_sent(early, 1_250, rate, QUANTUM));
        let now = pacer.ready_at();
        pacer.refresh(now);
        let mut rear = Vec::new();
        while pacer.ready_at() <= now {
            rear.push(pacer.on_sent(now, 1_250, rate, QUANTUM));
        }
        let front = rear.iter().filter(|rear| !**rear).count();
        assert_eq!((front, rear.len()), (6, 10));
        assert!(rear[..front].iter().all(|rear| !rear));
    }

    #[test]
    fn after_a_pause_as_many_small_packets_leave_at_once_as_large_ones() {
        let at_once = |size| {
            let mut pacer = Pacer::default();
            let now = Instant::from_millis(500);
            let mut packets = 0_u64;
            while pacer.ready_at() <= now {
                pacer.on_sent(now, size, Some(100_000), QUANTUM);
                packets += 1;
            }
            packets
        };
        let full = at_once(600);
        assert!((9..=12).contains(&full), "{full}");
        for size in [40, 80, 200] {
            assert!(at_once(size).abs_diff(full) <= 1, "{} of {size} bytes", at_once(size));
        }
    }

    #[test]
    fn few_packets_in_a_burst_do_not_reduce_the_rate() {
        for size in [40, 300] {
            let sent = sent_in_a_second(100_000, size);
            assert!((99_000..=106_000).contains(&sent), "{sent} of {size} bytes");
        }
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pacer = Pacer::default();
        for _ in 0..1_000 {
            pacer.on_sent(Instant::ZERO, 1_500, None, QUANTUM);
            assert_eq!(pacer.ready_at(), Instant::ZERO);
        }
    }
}
