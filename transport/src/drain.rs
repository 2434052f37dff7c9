//! When what was sent has left the queue of a path.

use mpip_types::Instant;

use crate::pacer::time_for;

/// The queue of a path as the sender expects it. Packets that leave at the same instant count
/// together.
#[derive(Clone, Debug)]
pub(crate) struct Drain {
    /// When all before the newest burst has left it.
    before: Instant,
    /// When the newest burst was sent, its bytes, and the rate at which they leave, bytes/s.
    sent_at: Instant,
    bytes: u64,
    rate: u64,
}

impl Drain {
    /// An empty queue.
    pub(crate) fn new(now: Instant) -> Self {
        Self { before: now, sent_at: now, bytes: 0, rate: 0 }
    }

    /// When the newest burst was sent.
    pub(crate) fn sent_at(&self) -> Instant {
        self.sent_at
    }

    /// A new burst begins, which leaves at `rate`, bytes/s.
    pub(crate) fn begin_burst(&mut self, now: Instant, rate: u64) {
        *self = Self { before: self.empty_at(), sent_at: now, bytes: 0, rate };
    }

    /// `bytes` are sent in the newest burst.
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// When the queue is empty.
    pub(crate) fn empty_at(&self) -> Instant {
        self.before.max(self.sent_at) + time_for(self.bytes, self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_leaves_one_after_the_other_each_burst_at_its_rate() {
        let ms = Instant::from_millis;
        let mut drain = Drain::new(ms(5));
        assert_eq!(drain.empty_at(), ms(5));
        drain.begin_burst(ms(10), 1_000);
        drain.on_sent(2);
        drain.on_sent(3);
        assert_eq!(drain.empty_at(), ms(15));
        drain.begin_burst(ms(12), 2_000);
        drain.on_sent(8);
        assert_eq!(drain.empty_at(), ms(19));
        drain.begin_burst(ms(40), 1_000);
        drain.on_sent(1);
        assert_eq!(drain.empty_at(), ms(41), "it was empty meanwhile");
    }
}
