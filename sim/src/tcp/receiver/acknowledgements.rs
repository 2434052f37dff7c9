//! When a receiver acknowledges: as Linux 6.18 does it, whose names of its values are given.

use super::arrived::Arrived;
use crate::clock::{MILLI, NEVER, Nanos};

/// Acknowledgements at the start of a connection, and after a segment that had arrived before, that
/// do not wait for a second segment (`TCP_MAX_QUICKACKS`).
const QUICK: u32 = 16;
/// Longest time for which other ones wait for a second segment (`TCP_ATO_MIN`).
const DELAY: Nanos = 40 * MILLI;
/// Duplicate acknowledgements that are sent at once (`TCP_FASTRETRANS_THRESH`).
const DUPLICATES: u32 = 3;
/// Most segments for which a later one waits (`tcp_comp_sack_nr`).
const COMPRESSED: u32 = 44;
/// Longest time for which it waits (`tcp_comp_sack_delay_ns`).
const COMPRESSION: Nanos = MILLI;
/// The part of the round-trip time that it waits at most (`tcp_comp_sack_rtt_percent`).
const COMPRESSION_PART: Nanos = 3;

/// The acknowledgements of a receiver.
#[derive(Debug)]
pub(super) struct Acknowledgements {
    /// Time of the next one; [`NEVER`] if none is due.
    pub(super) at: Nanos,
    /// How many are left that wait for nothing.
    quick: u32,
    /// Number of bytes acknowledged.
    pub(super) acknowledged: u64,
    /// Number of duplicates sent at once, and the number of bytes that they acknowledge.
    duplicates: (u32, u64),
    /// How long further ones wait, and the number of segments that wait.
    compression: Nanos,
    compressed: u32,
    /// Payload of the largest segment in bytes.
    largest: u64,
}

impl Acknowledgements {
    pub(super) fn new() -> Self {
        Self {
            at: NEVER,
            quick: QUICK,
            acknowledged: 0,
            duplicates: (0, 0),
            compression: COMPRESSION,
            compressed: 0,
            largest: 0,
        }
    }

    /// The round-trip time is `rtt`.
    pub(super) fn set_rtt(&mut self, rtt: Nanos) {
        self.compression = COMPRESSION.min(rtt / COMPRESSION_PART);
    }

    /// A segment arrived that had arrived before.
    pub(super) fn on_old(&mut self, now: Nanos) {
        self.quick = QUICK;
        self.at = now;
    }

    /// A segment of `len` bytes arrived. `gap`: whether one was missing until then.
    pub(super) fn on_new(&mut self, now: Nanos, len: u64, gap: bool, arrived: &Arrived) {
        self.largest = self.largest.max(len);
        let filled = gap && !arrived.has_gap();
        let second = arrived.in_order - self.acknowledged > self.largest;
        let delay = if filled || second || self.quick > 0 {
            0
        } else if arrived.has_gap() {
            self.delay_beyond_gap(arrived.in_order)
        } else {
            DELAY
        };
        self.at = self.at.min(now + delay);
    }

    /// How long the acknowledgement of a segment waits while there is a gap after `in_order` bytes.
    fn delay_beyond_gap(&mut self, in_order: u64) -> Nanos {
        if self.compressed >= COMPRESSED {
            return 0;
        }
        if self.duplicates.1 != in_order {
            self.duplicates = (0, in_order);
        }
        if self.duplicates.0 < DUPLICATES {
            self.duplicates.0 += 1;
            return 0;
        }
        self.compressed += 1;
        self.compression
    }

    /// One of `in_order` bytes was sent.
    pub(super) fn on_sent(&mut self, in_order: u64) {
        self.at = NEVER;
        self.quick = self.quick.saturating_sub(1);
        self.acknowledged = in_order;
        self.compressed = 0;
    }
}
