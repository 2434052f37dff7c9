//! What an inner TCP sends again and again, because nothing of it is acknowledged.

use core::time::Duration;

use mpip_types::Instant;

/// A TCP segment that the host sends again and again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RepeatedSegment {
    /// When it was repeated for the first time.
    since: Instant,
    /// The sequence number at which it ends.
    end: u32,
    count: u8,
}

impl RepeatedSegment {
    /// The host sends a segment that ends at `end`; `again`: it was sent before. Returns how often
    /// the same segment was repeated without anything else in between, and for how long.
    pub(crate) fn on_segment(&mut self, now: Instant, end: u32, again: bool) -> (u8, Duration) {
        if !again {
            *self = Self::default();
        } else if self.count > 0 && self.end == end {
            self.count = self.count.saturating_add(1);
        } else {
            *self = Self { since: now, end, count: 1 };
        }
        let time = if self.count > 0 { now.since(self.since) } else { Duration::ZERO };
        (self.count, time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn only_the_same_segment_again_and_again_counts() {
        let mut repeats = RepeatedSegment::default();
        let none = (0, Duration::ZERO);
        assert_eq!(repeats.on_segment(at(0), 100, false), none);
        assert_eq!(repeats.on_segment(at(200), 100, true), (1, Duration::ZERO));
        assert_eq!(repeats.on_segment(at(600), 100, true), (2, Duration::from_millis(400)));
        // The next hole of the same window: something has arrived.
        assert_eq!(repeats.on_segment(at(700), 200, true), (1, Duration::ZERO));
        assert_eq!(repeats.on_segment(at(1_900), 200, true), (2, Duration::from_millis(1_200)));
        assert_eq!(repeats.on_segment(at(2_000), 300, false), none);
        for _ in 0..300 {
            repeats.on_segment(at(3_000), 300, true);
        }
        assert_eq!(repeats.on_segment(at(4_000), 300, true), (255, Duration::from_millis(1_000)));
    }
}
