//! The receive window, for an application that reads at once. It follows what arrives in a round
//! trip, as in Linux 6.18 (`tcp_rcv_space_adjust`, `tcp_rcvbuf_grow`).

use crate::clock::{MILLI, Nanos};

/// The first window: half of `tcp_rmem`'s default, in bytes.
const FIRST: u64 = 65_536;
/// What arrives in the first round trip at most: an initial window of this many full segments
/// (`TCP_INIT_CWND`).
const FIRST_SEGMENTS: u64 = 10;
/// Part of a round-trip time with which it counts if it is longer than the mean; a shorter one
/// counts in full (`tcp_rcv_rtt_update`).
const GAIN: Nanos = 8;

/// A receive window.
#[derive(Debug)]
pub(super) struct ReceiveWindow {
    /// Bytes that are taken beyond those in order, now and at most.
    bytes: u64,
    most: u64,
    rtt: Option<Nanos>,
    /// Most bytes that arrived in a round trip.
    space: u64,
    /// Start of the round trip, and the number of bytes read until then.
    began: Nanos,
    from: u64,
}

impl ReceiveWindow {
    /// A window that becomes `most` bytes at most.
    pub(super) fn new(most: usize) -> Self {
        let most = most as u64;
        Self { bytes: FIRST.min(most), most, rtt: None, space: 0, began: 0, from: 0 }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// By how many bits it is shifted in segments (RFC 7323, section 2).
    pub(super) fn shift(&self) -> u8 {
        (u64::BITS - self.most.leading_zeros()).saturating_sub(u16::BITS) as u8
    }

    /// A round trip took `rtt`.
    pub(super) fn on_rtt(&mut self, rtt: Nanos) {
        let rtt = rtt.max(MILLI);
        self.rtt = Some(match self.rtt {
            Some(mean) if rtt > mean => mean + (rtt - mean) / GAIN,
            _ => rtt,
        });
    }

    /// The stream was read up to the byte `read`. Full segments have `segment` bytes. Beyond a gap
    /// `beyond` bytes have arrived, counted from there.
    pub(super) fn on_read(&mut self, now: Nanos, read: u64, segment: u64, beyond: u64) {
        let Some(rtt) = self.rtt else { return };
        if now - self.began < rtt {
            return;
        }
        let space = self.space.max(FIRST_SEGMENTS * segment);
        let arrived = read - self.from;
        if arrived > space {
            // Twice as much, because the sender may double its rate, and once more what it has
            // grown by: the window is a round trip late.
            let twice = arrived * 2;
            let growth = twice * (arrived - space) / space * 2;
            self.bytes = (twice + growth + beyond).clamp(self.bytes, self.most);
            self.space = arrived;
        }
        (self.began, self.from) = (now, read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Nanos = 50 * MILLI;
    const SEGMENT: u64 = 1_000;

    /// The windows after round trips in which so many bytes arrive.
    fn windows(most: usize, arrivals: &[u64]) -> Vec<u64> {
        let mut window = ReceiveWindow::new(most);
        window.on_rtt(RTT);
        let mut read = 0;
        let each = arrivals.iter().zip(1..).map(|(bytes, round)| {
            read += bytes;
            window.on_read(round * RTT, read, SEGMENT, 0);
            window.bytes()
        });
        each.collect()
    }

    #[test]
    fn it_stays_ahead_of_a_flight_that_doubles() {
        let arrivals = [10_000, 20_000, 40_000, 80_000, 160_000];
        let windows = windows(1 << 22, &arrivals);
        let ahead = arrivals[1..].iter().zip(&windows).all(|(next, window)| window >= next);
        assert!(ahead, "{windows:?}");
    }

    #[test]
    fn it_neither_shrinks_nor_exceeds_its_bound_and_waits_for_a_round_trip() {
        assert_eq!(windows(1 << 22, &[5_000, 5_000, 5_000]), [65_536; 3]);
        let after = windows(300_000, &[80_000, 10_000, 200_000, 10_000]);
        assert_eq!(after[1], after[0]);
        assert_eq!(after[2..], [300_000; 2]);
        let mut window = ReceiveWindow::new(1 << 22);
        window.on_read(RTT, 60_000, SEGMENT, 0);
        assert_eq!(window.bytes(), 65_536, "the round-trip time is not known");
        window.on_rtt(RTT);
        window.on_read(RTT - 1, 60_000, SEGMENT, 0);
        assert_eq!(window.bytes(), 65_536, "no round trip has passed");
        window.on_read(RTT, 60_000, SEGMENT, 7);
        assert!(window.bytes() > 120_000);
    }

    #[test]
    fn a_shorter_round_trip_counts_in_full_and_a_longer_one_in_part() {
        let mut window = ReceiveWindow::new(1 << 22);
        for (rtt, mean) in [(40, 40), (80, 45), (20, 20), (28, 21)] {
            window.on_rtt(rtt * MILLI);
            assert_eq!(window.rtt, Some(mean * MILLI), "after {rtt} ms");
        }
    }
}
