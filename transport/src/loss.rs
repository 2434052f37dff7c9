//! Loss ratio of a path.

use core::time::Duration;

use mpip_types::Instant;

/// Share of packets lost over the last seconds, in two half-windows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossMeter {
    /// Packets sent and lost, in this half and the one before.
    halves: [(u64, u64); 2],
    /// When this half began.
    started: Instant,
}

impl LossMeter {
    const WINDOW: Duration = Duration::from_secs(4);

    pub(crate) fn new(now: Instant) -> Self {
        Self { halves: [(0, 0); 2], started: now }
    }

    /// Counts a packet sent.
    pub(crate) fn on_sent(&mut self, now: Instant) {
        if now.since(self.started) >= Self::WINDOW {
            *self = Self::new(now);
        } else if now.since(self.started) >= Self::WINDOW / 2 {
            self.halves = [(0, 0), self.halves[0]];
            self.started = now;
        }
        self.halves[0].0 += 1;
    }

    /// Counts `packets` lost.
    pub(crate) fn on_lost(&mut self, packets: u64) {
        self.halves[0].1 += packets;
    }

    /// Share of packets lost, 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        let (sent, lost) = self.counts();
        share(lost, sent)
    }

    /// The same as if one more had been lost: few packets without a loss prove little.
    pub(crate) fn cautious_share(&self) -> f64 {
        let (sent, lost) = self.counts();
        share(lost + 1, sent + 1)
    }

    /// The same as if one less had been lost: a single loss among few packets proves little.
    pub(crate) fn proven_share(&self) -> f64 {
        let (sent, lost) = self.counts();
        share(lost.saturating_sub(1), sent)
    }

    /// Packets sent and packets lost.
    fn counts(&self) -> (u64, u64) {
        let [(sent, lost), (sent_before, lost_before)] = self.halves;
        (sent + sent_before, lost + lost_before)
    }
}

fn share(lost: u64, sent: u64) -> f64 {
    if sent == 0 { 0.0 } else { (lost as f64 / sent as f64).min(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_loss_proves_nothing() {
        let mut meter = LossMeter::new(Instant::ZERO);
        (0..10).for_each(|_| meter.on_sent(Instant::ZERO));
        meter.on_lost(1);
        assert_eq!((meter.share(), meter.proven_share()), (0.1, 0.0));
        meter.on_lost(2);
        assert_eq!(meter.proven_share(), 0.2);
    }

    #[test]
    fn losses_count_for_a_few_seconds() {
        let mut meter = LossMeter::new(Instant::ZERO);
        assert_eq!(meter.share(), 0.0);
        let send = |meter: &mut LossMeter, seconds: u64| {
            for _ in 0..10 {
                meter.on_sent(Instant::from_millis(seconds * 1_000));
            }
        };
        send(&mut meter, 0);
        meter.on_lost(5);
        assert_eq!(meter.share(), 0.5);
        send(&mut meter, 2);
        assert_eq!(meter.share(), 0.25);
        send(&mut meter, 4);
        assert_eq!(meter.share(), 0.0);
    }

    #[test]
    fn of_few_packets_little_is_known() {
        let mut meter = LossMeter::new(Instant::ZERO);
        assert_eq!((meter.share(), meter.cautious_share()), (0.0, 1.0));
        (0..12).for_each(|_| meter.on_sent(Instant::ZERO));
        assert!(meter.cautious_share() > 0.06, "heartbeats alone");
        (0..100).for_each(|_| meter.on_sent(Instant::ZERO));
        assert!(meter.share() < meter.cautious_share() && meter.cautious_share() < 0.01);
    }

    #[test]
    fn after_a_pause_nothing_counts_and_no_share_exceeds_one() {
        let mut meter = LossMeter::new(Instant::ZERO);
        meter.on_sent(Instant::ZERO);
        meter.on_sent(Instant::from_millis(10_000));
        meter.on_lost(2);
        assert_eq!(meter.share(), 1.0);
    }
}
