//! Which acknowledgements an inner TCP sender gets to see while it is in slow start.
//!
//! On paths of different delay the round-trip time that the inner TCP sees rises as soon as the
//! shortest path is full and the longer ones are used. HyStart (RFC 9406, section 4.2) takes that for
//! the queue of a full path and ends slow start, at a tenth of what all paths together carry. It needs
//! eight samples of a round trip to say so. With at most seven acknowledgements in each it does not
//! judge, and slow start goes on; once the paths are full all acknowledgements pass again, and it ends
//! there. To leave out acknowledgements that later ones repeat is common practice where the way back is narrow
//! (RFC 3449, section 5.2.2).
//!
//! An acknowledgement is left out only while data that it does not cover is on its way, so that
//! another one follows. Nothing waits for that.

use core::time::Duration;

use crate::session::WINDOW;
use mpip_types::Instant;

/// An acknowledgement passes when it covers this part of the most that was on its way in the round: what
/// arrives in a burst is acknowledged before the sender can send more, and ever less is on its way.
const PART: u32 = 6;
/// Acknowledgements that follow each other more closely are a train: what HyStart ends slow start by
/// when it takes half the least round trip, however few they are (RFC 9406 leaves it out, Linux does not).
const TRAIN: Duration = Duration::from_millis(3);
/// After so many round trips without growth slow start is over; some are spent waiting for a packet. Those
/// in which the sender had too little to send do not count.
const FLAT: u8 = 3;

/// What is known of one direction of a TCP connection: its present round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Thinning {
    /// When the round began, and where the stream ended then.
    began: Instant,
    end: u32,
    /// When the last one passed.
    last: Instant,
    /// The most that the sender took for being on its way in this round, and in any before.
    peak: u32,
    most: u32,
    /// The last acknowledgement that passed, and the furthest that came.
    passed: u32,
    seen: u32,
    /// Rounds in which no more was on its way than ever before, less the others, and segments that were
    /// sent again. From [`FLAT`] on slow start is over for good.
    flat: u8,
    /// Something was acknowledged.
    begun: bool,
    /// Everything was acknowledged in this round or before it: the sender had less to send than it may.
    ran_out: bool,
    /// Acknowledgements that pass whatever they cover.
    owed: u8,
}

impl Thinning {
    /// Whether the acknowledgement of everything before `ack` is to pass, when the sender's stream
    /// ends at `end`. `waits`: since when the paths carry all they can, and the rest of it waits.
    pub(crate) fn passes(
        &mut self,
        now: Instant,
        ack: u32,
        end: u32,
        waits: Option<Instant>,
    ) -> bool {
        let flight = end.wrapping_sub(ack);
        let covered = ack.wrapping_sub(self.passed);
        let strange = flight >= WINDOW || covered >= WINDOW;
        let behind = |than: u32| {
            let news = ack.wrapping_sub(than);
            news == 0 || news >= WINDOW.wrapping_neg()
        };
        // Repeated, because something is missing, or known already. One that was overtaken by one that was
        // left out is news to the sender.
        let old = ack == self.seen || behind(self.passed);
        if !self.begun || strange && !old {
            // The second is of another connection between the same ports.
            let peak = if flight < WINDOW { flight } else { 0 };
            let began = now;
            *self = Self {
                began,
                end,
                peak,
                last: now,
                passed: ack,
                seen: ack,
                begun: true,
                ..Self::default()
            };
            return true;
        }
        if old {
            return true;
        }
        if !behind(self.seen) {
            self.seen = ack;
        }
        self.peak = self.peak.max(flight + covered);
        // What waits for shorter came in a burst, and the paths may run out of it before the next one.
        let full = waits.is_some_and(|since| since <= self.began);
        let thins = self.flat < FLAT && self.owed == 0 && !full;
        let close = now < self.last + TRAIN;
        if thins && flight > 0 && (close || covered < self.peak / PART) {
            return false;
        }
        self.last = now;
        self.owed = self.owed.saturating_sub(1);
        self.ran_out |= flight == 0;
        if ack.wrapping_sub(self.end) < WINDOW {
            self.end_round(now, end);
            self.ran_out = flight == 0;
        }
        self.passed = ack;
        true
    }

    fn end_round(&mut self, now: Instant, end: u32) {
        (self.began, self.end) = (now, end);
        let peak = core::mem::take(&mut self.peak);
        if peak > self.most + self.most / 8 {
            self.most = peak;
            if self.flat < FLAT {
                self.flat = self.flat.saturating_sub(1);
            }
        } else if !self.ran_out {
            self.flat = self.flat.saturating_add(1);
        }
    }

    /// The sender sends a segment again: it may be all that is on its way.
    pub(crate) fn on_repeated(&mut self) {
        self.owed = self.owed.saturating_add(1);
        self.flat = self.flat.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEGMENT: u32 = 1_400;
    const NOW: Instant = Instant::from_millis(1_000);

    /// A sender whose window is `window` segments when the stream begins at `start`, and grows by
    /// `growth` for each segment acknowledged. Returns how many acknowledgements passed in each of its
    /// round trips: the receiver acknowledges every other segment.
    fn passed(start: u32, mut window: f64, growth: f64, rounds: usize, full: bool) -> Vec<u32> {
        let mut thinning = Thinning::default();
        let waits = full.then_some(Instant::ZERO);
        let at = |segments: u32| start.wrapping_add(segments * SEGMENT);
        let (mut known, mut arrived, mut next) = (0, 0, window as u32);
        let (mut end, mut count, mut counts) = (next, 0, Vec::new());
        let mut now = NOW;
        while counts.len() < rounds {
            arrived = (arrived + 2).min(next);
            now += TRAIN;
            if !thinning.passes(now, at(arrived), at(next), waits) {
                assert!(arrived < next, "the last one is left out");
                continue;
            }
            if known > end {
                end = next;
                counts.push(core::mem::take(&mut count));
            }
            count += 1;
            window += f64::from(arrived - known) * growth;
            known = arrived;
            next = next.max(known + window as u32);
        }
        counts
    }

    #[test]
    fn slow_start_sees_too_few_to_judge() {
        for start in [0, u32::MAX - 20_000] {
            let counts = passed(start, 10.0, 1.0, 9, false);
            assert!(counts[1..].iter().all(|count| (4..=8).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn all_pass_when_the_paths_are_full() {
        let counts = passed(0, 10.0, 1.0, 6, true);
        assert!(counts[5] > 100, "{counts:?}");
    }

    #[test]
    fn all_pass_once_slow_start_is_over() {
        let counts = passed(0, 100.0, 0.01, 8, false);
        assert!(counts[1] <= 8 && counts[5..].iter().all(|count| *count > 45), "{counts:?}");
    }

    #[test]
    fn exchanges_are_no_end_of_slow_start() {
        let mut thinning = Thinning::default();
        let at = |exchange: u32, segment: u32| (exchange * 20 + segment) * SEGMENT;
        for exchange in 0..10 {
            let now = NOW + Duration::from_millis(u64::from(exchange) * 100);
            let mut passes =
                |segment| thinning.passes(now, at(exchange, segment), at(exchange, 20), None);
            passes(4);
            assert!(passes(20), "the last one");
        }
        let mut passed = 0;
        for segment in 1..=60 {
            let now = NOW + Duration::from_secs(10) + TRAIN * segment;
            passed += u32::from(thinning.passes(now, at(10, segment), at(10, 60), None));
        }
        assert!((2..=8).contains(&passed), "{passed}");
    }

    #[test]
    fn what_waits_for_a_part_of_the_round_is_a_burst() {
        let mut thinning = Thinning::default();
        let at = |millis| NOW + Duration::from_millis(millis);
        assert!(thinning.passes(at(0), 1_000, 100_000, None));
        assert!(
            !thinning.passes(at(10), 2_000, 100_000, Some(at(5))),
            "it came after the round began"
        );
        assert!(
            thinning.passes(at(20), 100_000, 200_000, Some(at(5))),
            "this begins another round"
        );
        assert!(thinning.passes(at(30), 101_000, 200_000, Some(at(5))));
    }

    #[test]
    fn what_arrives_in_a_burst_is_acknowledged_by_few() {
        let mut thinning = Thinning::default();
        assert!(thinning.passes(NOW, 0, 60 * SEGMENT, None));
        let mut passed = |apart: Duration| {
            let acks = (1..=60).filter(|segment| {
                let now = NOW + apart * *segment;
                thinning.passes(now, segment * SEGMENT, 60 * SEGMENT, None)
            });
            acks.count()
        };
        assert!((2..=7).contains(&passed(TRAIN)));
    }

    #[test]
    fn a_train_has_one_wagon() {
        let mut thinning = Thinning::default();
        assert!(thinning.passes(NOW, 0, 10 * SEGMENT, None));
        let mut passes = |micros, ack| {
            let now = NOW + Duration::from_micros(micros);
            thinning.passes(now, ack * SEGMENT, 10 * SEGMENT, None)
        };
        assert!(!passes(500, 4) && !passes(2_900, 6) && passes(3_100, 8));
        assert!(passes(3_200, 10), "after the last one none follows");
    }

    #[test]
    fn what_is_repeated_or_overtaken_passes() {
        let mut thinning = Thinning::default();
        assert!(thinning.passes(Instant::ZERO, 1_000, 100_000, None));
        assert!(thinning.passes(NOW, 50_000, 150_000, None));
        assert!(!thinning.passes(NOW, 51_000, 150_000, None));
        assert!(!thinning.passes(NOW, 50_500, 150_000, None), "overtaken by one that was left out");
        assert!(
            thinning.passes(NOW, 50_000, 150_000, None)
                && thinning.passes(NOW, 49_000, 150_000, None)
        );
        assert!(
            thinning.passes(NOW, 51_000, 150_000, None),
            "the second tells that something is missing"
        );
    }

    #[test]
    fn what_is_sent_again_is_acknowledged() {
        let mut thinning = Thinning::default();
        assert!(thinning.passes(NOW, 1_000, 100_000, None));
        assert!(!thinning.passes(NOW, 2_000, 100_000, None));
        thinning.on_repeated();
        thinning.on_repeated();
        let passes = [3_000, 4_000, 5_000].map(|ack| thinning.passes(NOW, ack, 100_000, None));
        assert_eq!(passes, [true, true, false]);
    }

    proptest! {
        /// What is left out is followed by another, because data is on its way that it does not cover.
        #[test]
        fn the_last_one_always_passes(
            start in any::<u32>(),
            steps in proptest::collection::vec((0_u32..200_000, 0_u32..200_000, any::<bool>()), 1..200),
        ) {
            let mut thinning = Thinning::default();
            let (mut ack, mut end) = (0, 0);
            for (sent, covered, full) in steps {
                let waits = full.then_some(NOW);
                end += sent;
                ack = (ack + covered).min(end);
                let passes = thinning.passes(NOW, start.wrapping_add(ack), start.wrapping_add(end), waits);
                prop_assert!(passes || ack < end && !full);
            }
            prop_assert!(thinning.passes(NOW, start.wrapping_add(end), start.wrapping_add(end), None));
        }

        #[test]
        fn nothing_is_taken_amiss(numbers in proptest::collection::vec(any::<(u32, u32, bool)>(), 1..100)) {
            let mut thinning = Thinning::default();
            for (ack, end, full) in numbers {
                let passes = thinning.passes(NOW, ack, end, full.then_some(NOW));
                prop_assert!(passes || ack != end);
            }
        }
    }
}
