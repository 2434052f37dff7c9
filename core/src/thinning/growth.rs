//! How a sender's window grows with an acknowledgement that covers many segments.
//!
//! Linux grows by all bytes covered, so its window doubles in a round trip however few
//! acknowledgements there are. Others count at most two segments per acknowledgement (RFC 3465,
//! section 2.2), eight (RFC 9406, section 4.3) or one (RFC 5681, section 3.1). The data in flight
//! before and after an acknowledgement tells them apart. So an acknowledgement may cover twice as
//! much as one whose growth was seen. Once the window has grown by less, it may cover no more than
//! that.

use core::time::Duration;

/// Acknowledgements judged together: a sender with segmentation offload may wait for the next one
/// before it sends (Linux, `tcp_tso_should_defer`).
const JUDGED: u8 = 2;

/// Judgements in a row that say that the window grows by less, before it is believed. Segmentation
/// offload and jitter make single ones wrong.
const LIMITED: u8 = 2;
/// Shortest time that a sender gets to respond to an acknowledgement. Those that follow sooner, as
/// after a gap has closed, are judged as one.
pub(super) const RESPONSE: Duration = Duration::from_millis(1);

/// The growth of one sender, as observed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Growth {
    /// Payload of a full segment, bytes; 0 before the first.
    segment: u32,
    /// Segments that one acknowledgement may cover as far as proven, and the limit once it is
    /// known.
    proven: u16,
    ceiling: u16,
    /// Bytes in flight before the newest acknowledgements that passed together, bytes that they
    /// covered (0 if the sender had no more to send), and their number.
    before: u32,
    covered: u32,
    acks: u8,
    /// Sums over the acknowledgements that are judged together.
    sum_covered: u32,
    sum_grown: i32,
    count: u8,
    /// The receive window was used up since these passed.
    filled: bool,
    /// Judgements in a row that the window grows by less, and the most segments among these.
    limited: u8,
    grown: u16,
}

impl Growth {
    /// Segments of `len` bytes were sent.
    pub(super) fn on_segment(&mut self, len: u32) {
        self.segment = self.segment.max(len);
    }

    /// Whether the sender grows by less than an acknowledgement covers.
    pub(super) fn is_limited(&self) -> bool {
        self.ceiling > 0
    }

    /// Bytes of so many full segments.
    pub(super) fn full_segments(&self, count: u32) -> u32 {
        self.segment.saturating_mul(count)
    }

    /// Bytes that the next acknowledgement may cover.
    pub(super) fn permitted(&self) -> u32 {
        let segments = self.proven.max(1).saturating_mul(2);
        let ceiling = if self.ceiling == 0 { u16::MAX } else { self.ceiling };
        self.segment.saturating_mul(segments.min(ceiling).into())
    }

    /// An acknowledgement passes that covers `covered` bytes. `flight`, the bytes in flight before
    /// it, is the sender's response to the previous ones, unless it passes too `soon` after them.
    pub(super) fn on_passed(&mut self, flight: u32, covered: u32, soon: bool) {
        if soon && self.covered > 0 {
            self.covered = self.covered.saturating_add(covered);
            self.acks = self.acks.saturating_add(1);
            return;
        }
        if self.covered > self.segment && self.segment > 0 {
            self.sum_covered = self.sum_covered.saturating_add(self.covered);
            let grown = flight.wrapping_sub(self.before) as i32;
            self.sum_grown = self.sum_grown.saturating_add(grown);
            self.count = self.count.saturating_add(self.acks);
            if self.count >= JUDGED {
                self.judge();
            }
        }
        self.before = flight;
        self.acks = 1;
        // A sender with nothing in flight was not limited by its window.
        self.covered = if flight > covered { covered } else { 0 };
    }

    /// The sender has used the receive window up: it may not send all that its own window allows.
    pub(super) fn on_filled(&mut self) {
        self.filled = true;
    }

    fn judge(&mut self) {
        let (covered, grown, count) = (self.sum_covered, self.sum_grown, self.count);
        let filled = core::mem::take(&mut self.filled);
        (self.sum_covered, self.sum_grown, self.count) = (0, 0, 0);
        let each = (covered / u32::from(count) / self.segment).min(u16::MAX.into()) as u16;
        // Rounds the mean to full segments.
        let grown = i64::from(grown) + i64::from(self.segment) / 2;
        if grown * 4 >= i64::from(covered) * 3 {
            self.proven = self.proven.max(each);
            (self.limited, self.grown) = (0, 0);
            if each > self.ceiling {
                self.ceiling = 0;
            }
        } else if grown * 2 > i64::from(self.segment) && !filled {
            // A window without growth proves nothing: the sender has too little to send, or slow
            // start is over.
            let segments = grown / i64::from(count) / i64::from(self.segment);
            self.grown = self.grown.max(u16::try_from(segments).unwrap_or(1).max(1));
            self.limited += 1;
            if self.limited == LIMITED {
                self.ceiling =
                    if self.ceiling == 0 { self.grown } else { self.ceiling.min(self.grown) };
                (self.limited, self.grown) = (0, 0);
            }
        }
    }

    /// What follows is no response to the last acknowledgement.
    pub(super) fn forget(&mut self) {
        (self.covered, self.sum_covered, self.sum_grown, self.count) = (0, 0, 0, 0);
        self.filled = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u32 = 1_400;

    /// The result for a sender that counts `limit` segments per acknowledgement and sends after
    /// every `every`th one, if each acknowledgement covers all that is permitted.
    fn judged(limit: u32, every: u32) -> Growth {
        let mut growth = Growth::default();
        growth.on_segment(SEGMENT);
        let (mut flight, mut window) = (10, 10);
        for ack in 1..=24 {
            let covered = (growth.permitted() / SEGMENT).min(flight - 1);
            growth.on_passed(flight * SEGMENT, covered * SEGMENT, false);
            flight -= covered;
            window += covered.min(limit);
            if ack % every == 0 {
                flight = window;
            }
        }
        growth
    }

    #[test]
    fn a_sender_that_grows_by_all_covered_bytes_sees_ever_fewer_acknowledgements() {
        for every in [1, 2] {
            let growth = judged(u32::MAX, every);
            assert!(growth.permitted() >= 64 * SEGMENT && !growth.is_limited(), "{growth:?}");
        }
    }

    #[test]
    fn a_sender_that_counts_few_segments_sees_each_of_these() {
        for limit in [1, 2, 8] {
            let growth = judged(limit, 1);
            assert_eq!(growth.permitted(), limit * SEGMENT, "{growth:?}");
            let growth = judged(limit, 2);
            assert!(growth.is_limited() && growth.permitted() <= limit * SEGMENT, "{growth:?}");
        }
    }

    #[test]
    fn acknowledgements_that_arrive_together_are_judged_together() {
        let mut growth = Growth::default();
        growth.on_segment(SEGMENT);
        let mut window = 40;
        for _ in 0..20 {
            // The sender has answered none of the three when the next one passes.
            for (soon, left) in [(false, window), (true, window - 2), (true, window - 4)] {
                growth.on_passed(left * SEGMENT, 2 * SEGMENT, soon);
            }
            window += 6;
        }
        assert!(!growth.is_limited(), "{growth:?}");
        assert_eq!(growth.permitted(), 4 * SEGMENT, "two segments each are proven");
    }

    #[test]
    fn a_sender_that_the_receive_window_limits_may_still_grow_by_all() {
        let judged = |filled: bool| {
            let mut growth = Growth::default();
            growth.on_segment(SEGMENT);
            let mut flight = 40;
            for _ in 0..20 {
                growth.on_passed(flight * SEGMENT, 8 * SEGMENT, false);
                flight += 3;
                if filled {
                    growth.on_filled();
                }
            }
            growth.is_limited()
        };
        assert!(judged(false) && !judged(true));
    }

    #[test]
    fn a_window_that_does_not_grow_says_nothing() {
        let mut growth = Growth::default();
        growth.on_segment(SEGMENT);
        for _ in 0..20 {
            growth.on_passed(40 * SEGMENT, 4 * SEGMENT, false);
        }
        assert!(!growth.is_limited() && growth.permitted() == 2 * SEGMENT);
    }
}
