//! The round trips of a sender, and whether it is still in slow start.

use mpip_types::Instant;
use mpip_types::packet::MAX_WINDOW;

/// An acknowledgement passes when it covers this part of the round's peak flight (divisor). Less
/// would let the data in flight shrink with bursty arrivals.
const PASS_DIVISOR: u32 = 6;
/// Round trips without growth after which slow start is over. Round trips in which the sender had
/// too little to send do not count.
const FLAT_ROUNDS: u8 = 3;

/// The current round trip of one sender.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    /// Start of the round, and the end of the stream at that time.
    began: Instant,
    end: u32,
    /// Most bytes in flight as the sender sees it, in this round and in any earlier one.
    peak: u32,
    earlier_peak: u32,
    /// Rounds without a new peak, less the others, plus retransmissions. From [`FLAT_ROUNDS`] on,
    /// slow start is over for good.
    flat: u8,
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
        self.flat < FLAT_ROUNDS
    }

    /// Whether slow start is to go on. `waits`: since when the paths are full and data is queued.
    pub(super) fn needs_growth(&self, waits: Option<Instant>) -> bool {
        // A younger backlog comes from a burst, and the paths may drain it before the next burst.
        let full = waits.is_some_and(|since| since <= self.began);
        self.in_slow_start() && !full
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
        let ends = ack.wrapping_sub(self.end) < MAX_WINDOW;
        if ends {
            self.end_round(now, end);
            self.ran_out = all;
        }
        ends
    }

    fn end_round(&mut self, now: Instant, end: u32) {
        (self.began, self.end) = (now, end);
        let peak = core::mem::take(&mut self.peak);
        if peak > self.earlier_peak + self.earlier_peak / 8 {
            self.earlier_peak = peak;
            if self.in_slow_start() {
                self.flat = self.flat.saturating_sub(1);
            }
        } else if !self.ran_out {
            self.flat = self.flat.saturating_add(1);
        }
    }

    /// The sender retransmits.
    pub(super) fn on_repeated(&mut self) {
        self.flat = self.flat.saturating_add(1);
    }
}
