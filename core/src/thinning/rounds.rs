//! The round trips of a sender, and whether it is still in slow start.

use mpip_types::Instant;
use mpip_types::packet::MAX_WINDOW;

/// An acknowledgement passes when it covers this part of the round's peak flight (divisor). Less
/// would let the data in flight shrink with bursty arrivals.
const PASS_DIVISOR: u32 = 6;
/// What a round trip without growth counts. One that the receive window limited counts half:
/// receivers widen it a round trip after the flight has grown. One in which the sender had too
/// little to send does not count.
const FLAT: u8 = 2;
const FLAT_BY_WINDOW: u8 = 1;
/// From this sum on slow start is over: three round trips without growth.
const OVER: u8 = 3 * FLAT;

/// The current round trip of one sender.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    /// Start of the round, and the end of the stream at that time.
    began: Instant,
    end: u32,
    /// Most bytes in flight as the sender sees it, in this round and in any earlier one.
    peak: u32,
    earlier_peak: u32,
    /// What rounds without a new peak count, less the others, plus retransmissions. From [`OVER`]
    /// on, slow start is over for good.
    flat: u8,
    /// The sender has used the receive window up in this round.
    filled: bool,
    /// Everything was acknowledged in this round or before it: the application limited the sender.
    ran_out: bool,
}

impl Rounds {
    /// The first round: `flight` bytes are in flight, the last one before `end` of the stream.
    pub(super) fn new(now: Instant, end: u32, flight: u32) -> Self {
        let peak = if flight < MAX_WINDOW { flight } else { 0 };
        Self { began: now, end, peak, ..Self::default() }
    }

    /// Start of the round.
    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// Whether the sender is in slow start, as far as its flight shows.
    fn in_slow_start(&self) -> bool {
        self.flat < OVER
    }

    /// Whether slow start is to go on. `waits`: since when the paths are full and data is queued.
    pub(super) fn needs_growth(&self, waits: Option<Instant>) -> bool {
        // A younger backlog comes from a burst, and the paths may drain it before the next burst.
        let full = waits.is_some_and(|since| since <= self.began);
        self.in_slow_start() && !full
    }

    /// Most bytes in flight in this round as the sender sees it.
    pub(super) fn peak(&self) -> u32 {
        self.peak
    }

    /// Whether the acknowledgement `ack` covers more than what was sent before the round began.
    pub(super) fn is_past(&self, ack: u32) -> bool {
        (1..MAX_WINDOW).contains(&ack.wrapping_sub(self.end))
    }

    /// Whether `covered` bytes are too few for an acknowledgement of this round to pass.
    pub(super) fn is_few(&self, covered: u32) -> bool {
        covered < self.peak / PASS_DIVISOR
    }

    /// So many bytes are in flight.
    pub(super) fn on_flight(&mut self, flight: u32) {
        self.peak = self.peak.max(flight);
    }

    /// The sender sees the acknowledgement `ack` of a stream that ends at `end`. Returns whether
    /// the round has ended.
    pub(super) fn on_ack(&mut self, now: Instant, ack: u32, end: u32) -> bool {
        let all = ack == end;
        self.ran_out |= all;
        let ends = self.is_past(ack);
        if ends {
            self.end_round(now, end);
            self.ran_out = all;
        }
        ends
    }

    fn end_round(&mut self, now: Instant, end: u32) {
        (self.began, self.end) = (now, end);
        let (peak, filled) = (core::mem::take(&mut self.peak), core::mem::take(&mut self.filled));
        if peak > self.earlier_peak + self.earlier_peak / 8 {
            self.earlier_peak = peak;
            if self.in_slow_start() {
                self.flat = self.flat.saturating_sub(FLAT);
            }
        } else if !self.ran_out {
            self.flat = self.flat.saturating_add(if filled { FLAT_BY_WINDOW } else { FLAT });
        }
    }

    /// The sender has used the receive window up.
    pub(super) fn on_filled(&mut self) {
        self.filled = true;
    }

    /// The sender retransmits.
    pub(super) fn on_repeated(&mut self) {
        self.flat = self.flat.saturating_add(FLAT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The round trip after which slow start is over for a sender with a constant flight.
    fn over_after(filled: bool) -> Option<u32> {
        let now = Instant::ZERO;
        let mut rounds = Rounds::new(now, 100_000, 100_000);
        (1..20).find(|round| {
            rounds.on_flight(100_000);
            if filled {
                rounds.on_filled();
            }
            assert!(rounds.on_ack(now, round * 100_000 + 1, (round + 1) * 100_000));
            !rounds.needs_growth(None)
        })
    }

    #[test]
    fn round_trips_that_the_receive_window_limits_count_half() {
        assert_eq!(over_after(false), Some(4));
        assert_eq!(over_after(true), Some(7));
    }
}
