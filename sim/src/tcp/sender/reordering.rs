//! How long a segment is waited for after later ones have arrived (RFC 8985, section 6.2), as in
//! Linux, whose names of its values are given.

use super::rtt::Rtt;
use crate::clock::Nanos;

/// Most quarters of the minimum round-trip time that are waited (`reo_wnd_steps`).
const MAX_STEPS: u64 = 255;
/// Recoveries after which a longer wait is forgotten (`TCP_RACK_RECOVERY_THRESH`).
const KEPT: u32 = 16;

/// What is known of reordering on the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reordering {
    /// Whether any was seen (`reord_seen`).
    seen: bool,
    /// Quarters of the minimum round-trip time to wait, and for how many recoveries still.
    steps: u64,
    kept: u32,
    /// A retransmission was reported as a duplicate since the wait was last adjusted.
    in_vain: bool,
    /// Bytes delivered when it was.
    adjusted: u64,
}

impl Reordering {
    pub(super) fn new() -> Self {
        Self { seen: false, steps: 1, kept: 0, in_vain: false, adjusted: 0 }
    }

    /// A segment arrived after later ones, without a retransmission.
    pub(super) fn on_seen(&mut self) {
        self.seen = true;
    }

    /// A retransmission was reported as a duplicate.
    pub(super) fn on_duplicate(&mut self) {
        self.in_vain |= self.seen;
    }

    /// An acknowledgement is for a segment that left when `prior_delivered` bytes had been
    /// delivered, of `delivered` now. The wait becomes longer at most once in a round trip.
    pub(super) fn on_delivered(&mut self, prior_delivered: u64, delivered: u64) {
        self.in_vain &= prior_delivered >= self.adjusted;
        if core::mem::take(&mut self.in_vain) {
            self.steps = (self.steps + 1).min(MAX_STEPS);
            self.adjusted = delivered;
            self.kept = KEPT;
        } else if self.kept == 0 {
            self.steps = 1;
        }
    }

    /// A recovery ended whose retransmissions were needed.
    pub(super) fn on_recovered(&mut self) {
        self.kept = self.kept.saturating_sub(1);
    }

    /// A recovery ended whose retransmissions were all duplicates.
    pub(super) fn on_repeated_in_vain(&mut self) {
        self.kept = (self.kept + 1).min(KEPT);
    }

    /// How long to wait. Where no reordering was seen, there is no wait for losses that are
    /// `evident`.
    pub(super) fn window(&self, evident: bool, rtt: &Rtt) -> Nanos {
        if evident && !self.seen { 0 } else { (rtt.min / 4 * self.steps).min(rtt.smoothed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MILLI;

    fn rtt() -> Rtt {
        let mut rtt = Rtt::new();
        rtt.on_sample(40 * MILLI);
        rtt
    }

    #[test]
    fn evident_losses_are_waited_for_only_once_reordering_was_seen() {
        let mut reordering = Reordering::new();
        assert_eq!(reordering.window(true, &rtt()), 0);
        assert_eq!(reordering.window(false, &rtt()), 10 * MILLI);
        reordering.on_seen();
        assert_eq!(reordering.window(true, &rtt()), 10 * MILLI);
    }

    #[test]
    fn the_wait_becomes_longer_once_in_a_round_trip_of_duplicates_up_to_a_round_trip() {
        let mut reordering = Reordering::new();
        reordering.on_duplicate();
        reordering.on_delivered(0, 1_000);
        assert_eq!(reordering.window(false, &rtt()), 10 * MILLI, "nothing was reordered");
        reordering.on_seen();
        for (prior_delivered, delivered, window) in [
            (0, 1_000, 20),
            (500, 1_500, 20),
            (1_000, 2_000, 30),
            (2_000, 3_000, 40),
            (3_000, 4_000, 40),
        ] {
            reordering.on_duplicate();
            reordering.on_delivered(prior_delivered, delivered);
            assert_eq!(reordering.window(true, &rtt()), window * MILLI);
        }
    }

    #[test]
    fn a_longer_wait_is_forgotten_after_some_recoveries() {
        let mut reordering = Reordering::new();
        reordering.on_seen();
        reordering.on_duplicate();
        reordering.on_delivered(0, 1_000);
        reordering.on_repeated_in_vain();
        for _ in 0..KEPT {
            reordering.on_delivered(2_000, 3_000);
            assert_eq!(reordering.window(true, &rtt()), 20 * MILLI);
            reordering.on_recovered();
        }
        reordering.on_delivered(2_000, 3_000);
        assert_eq!(reordering.window(true, &rtt()), 10 * MILLI);
    }
}
