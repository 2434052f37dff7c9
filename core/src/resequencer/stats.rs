//! What a resequencer has seen and done.

use core::time::Duration;

/// Buckets of [`ResequencerStats::waits`]: the last one begins at 2^18 microseconds.
pub const WAIT_BUCKETS: usize = 20;

/// What a resequencer has seen and done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResequencerStats {
    /// Packets delivered, late ones included.
    pub delivered: u64,
    /// Packets that waited.
    pub held: u64,
    /// Packets refused because they had arrived before.
    pub duplicates: u64,
    /// Packets delivered after they had been given up.
    pub late: u64,
    /// Gaps given up, by time or for want of memory.
    pub gaps_given_up: u64,
    /// Sequence numbers in these gaps.
    pub packets_given_up: u64,
    /// Sequence numbers that the peer declared lost.
    pub skipped: u64,
    /// The longest wait of a packet.
    pub longest_wait: Duration,
    /// Waits of the packets that waited: bucket 0 below 1 microsecond, bucket n from 2^(n - 1) to
    /// 2^n, the last one without an end.
    pub waits: [u32; WAIT_BUCKETS],
    /// The farthest that a packet arrived behind the highest sequence number before it.
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
