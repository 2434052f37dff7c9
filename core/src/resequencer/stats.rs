//! Statistics of a resequencer.

use core::time::Duration;

/// Buckets of [`ResequencerStats::waits`]: the last one begins at 2^18 microseconds.
pub const WAIT_BUCKETS: usize = 20;

/// Statistics of a resequencer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResequencerStats {
    /// Packets delivered, late ones included.
    pub delivered: u64,
    /// Packets held.
    pub held: u64,
    /// Packets refused because they had arrived before.
    pub duplicates: u64,
    /// Packets delivered after they had been given up.
    pub late: u64,
    /// Gaps given up, because of the timeout or for lack of memory.
    pub gaps_given_up: u64,
    /// Sequence numbers in these gaps.
    pub packets_given_up: u64,
    /// Sequence numbers that the peer declared lost.
    pub skipped: u64,
    /// Longest time that a packet was held.
    pub longest_wait: Duration,
    /// Histogram of the times that packets were held: bucket 0 is below 1 µs, bucket n is from
    /// 2^(n
    /// - 1) to 2^n µs, the last one is unbounded.
    pub waits: [u32; WAIT_BUCKETS],
    /// Reordering extent: largest distance of a packet behind the highest sequence number before
    /// it.
    pub reordering_extent: u32,
}

impl ResequencerStats {
    pub(super) fn waited(&mut self, wait: Duration) {
        self.longest_wait = self.longest_wait.max(wait);
        let micros = wait.as_micros().min(u128::from(u32::MAX)) as u32;
        let bucket = (u32::BITS - micros.leading_zeros()) as usize;
        self.waits[bucket.min(WAIT_BUCKETS - 1)] += 1;
    }
}
