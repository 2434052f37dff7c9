//! Thinning of acknowledgements that cannot be read: those of QUIC and VPNs (decision record 0027).
//!
//! Which bytes an acknowledgement covers is not known. What the paths have delivered by then is,
//! and a packet that arrived is acknowledged soon after. Between two acknowledgements that pass, a
//! part of the flight has to be delivered.
//!
//! Some small packets carry more than an acknowledgement, so none is dropped. They are held, and
//! delivered right behind one that came later and passes. The sender takes an RTT from an
//! acknowledgement only if it covers a newer packet than those before (RFC 9002, section 5.1), so
//! those that are late give it none.
//!
//! The window of QUIC grows by all bytes that an acknowledgement covers (RFC 9002, section 7.3.1).

use core::time::Duration;

use mpip_types::Instant;
use mpip_types::packet::MAX_WINDOW;

use super::rounds::Rounds;
use crate::parameters::ThinningParameters;

/// A round takes at most this many times as long as the last one: windows double in slow start.
const DOUBLE: u32 = 2;
/// The first round takes at most this many RTTs: an initial window may wait for a narrow path.
const FIRST_ROUND: u32 = 8;
/// After this many times as long as a round takes at most, the sender has paused.
const PAUSE: u32 = 2;

/// How far the flow of one session has come, by what is known of the paths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Bytes that the paths have delivered.
    pub(crate) delivered: u32,
    /// Bytes on the way and in the send queue.
    pub(crate) flight: u32,
    /// RTT of the slowest path that carries some, and the wait in the send queue.
    pub(crate) round_trip: Duration,
}

/// State of one session, for the current round trip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HiddenThinning {
    rounds: Rounds,
    /// Length of the last round without a pause; 0 before its end.
    took: Duration,
    /// What was delivered when a small packet passed last.
    passed: u32,
    /// When what is held is delivered at the latest, and what was delivered when the newest of it
    /// arrived.
    held: Option<(Instant, u32)>,
}

impl HiddenThinning {
    /// The first small packet arrives.
    pub(crate) fn new(now: Instant, progress: Progress) -> Self {
        let Progress { delivered, flight, .. } = progress;
        let rounds = Rounds::new(now, delivered.wrapping_add(flight), flight);
        Self { rounds, took: Duration::ZERO, passed: delivered, held: None }
    }

    /// Until when a small packet that arrives is held at most; `None` if it passes at once.
    /// `waits`: since when the paths are full and data is queued.
    pub(crate) fn holds_until(
        &mut self,
        now: Instant,
        progress: Progress,
        waits: Option<Instant>,
        parameters: &ThinningParameters,
    ) -> Option<Instant> {
        let Progress { delivered, flight, round_trip } = progress;
        if let Some((due, newest)) = self.held
            && due <= now
        {
            (self.passed, self.held) = (newest, None);
        }
        let covered = delivered.wrapping_sub(self.passed);
        if covered >= MAX_WINDOW {
            // A path was removed, and what it had delivered.
            *self = Self::new(now, progress);
            return None;
        }
        self.rounds.on_flight(flight.saturating_add(covered));
        let length = self.length(now, round_trip);
        if self.rounds.needs_growth(waits) && self.rounds.is_few(covered) {
            // Nothing follows that would let it pass, but what came together with it.
            let rests = flight <= parameters.rest;
            let part = if rests { parameters.tail } else { parameters.patience };
            let due = now + length / part;
            let due = self.held.map_or(due, |(held, _)| held.min(due));
            self.held = Some((due, delivered));
            return Some(due);
        }
        self.held = None;
        let took = self.elapsed(now, round_trip);
        if self.rounds.on_ack(now, delivered, delivered.wrapping_add(flight)) {
            self.took = took.unwrap_or(self.took);
        }
        self.passed = delivered;
        None
    }

    /// How long this round takes, as far as is known: a round trip, or as long as the last one, or
    /// longer if the window has grown.
    fn length(&self, now: Instant, round_trip: Duration) -> Duration {
        self.elapsed(now, round_trip).unwrap_or_default().max(self.took).max(round_trip)
    }

    /// How long this round has taken, at least a round trip; `None` if the sender has paused.
    fn elapsed(&self, now: Instant, round_trip: Duration) -> Option<Duration> {
        let most = if self.took.is_zero() { FIRST_ROUND } else { DOUBLE };
        let most = self.took.max(round_trip) * most;
        let elapsed = now.since(self.rounds.began());
        (elapsed <= most * PAUSE).then(|| elapsed.min(most).max(round_trip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_millis(100_000);
    const PACKET: u32 = 1_200;

    fn progress(delivered: u32, flight: u32) -> Progress {
        let round_trip = Duration::from_millis(50);
        Progress { delivered: delivered * PACKET, flight: flight * PACKET, round_trip }
    }

    fn at(millis: u64) -> Instant {
        NOW + Duration::from_millis(millis)
    }

    /// A sender with a round trip of 50 ms.
    struct Flow {
        hidden: HiddenThinning,
        now: Instant,
        delivered: u32,
    }

    impl Flow {
        fn new(flight: u32) -> Self {
            Self { hidden: HiddenThinning::new(NOW, progress(0, flight)), now: NOW, delivered: 0 }
        }

        /// How many acknowledgements of `flight` packets in flight pass, one for every two packets.
        /// `sent` packets follow each.
        fn round(&mut self, flight: u32, sent: u32) -> usize {
            let parameters = ThinningParameters::default();
            let acks = flight / 2;
            let passes = (1..=acks).filter(|ack| {
                self.now += Duration::from_millis(50) / acks;
                self.delivered += 2;
                let progress = progress(self.delivered, flight + ack * sent - ack * 2);
                self.hidden.holds_until(self.now, progress, None, &parameters).is_none()
            });
            passes.count()
        }
    }

    #[test]
    fn few_pass_in_each_round_of_slow_start() {
        let mut flow = Flow::new(32);
        for flight in [32, 64, 128, 256] {
            let passed = flow.round(flight, 4);
            assert!((1..=7).contains(&passed), "{passed} of {flight}");
        }
    }

    #[test]
    fn all_pass_after_slow_start_and_while_the_paths_are_full() {
        let mut flow = Flow::new(64);
        (0..6).for_each(|_| _ = flow.round(64, 2));
        assert_eq!(flow.round(64, 2), 32, "it does not grow");

        let parameters = ThinningParameters::default();
        let mut full = HiddenThinning::new(NOW, progress(0, 64));
        assert_eq!(full.holds_until(at(5), progress(2, 64), Some(NOW), &parameters), None);
    }

    #[test]
    fn one_that_was_delivered_late_counts() {
        let parameters = ThinningParameters::default();
        let mut hidden = HiddenThinning::new(NOW, progress(0, 60));
        let due = hidden.holds_until(at(1), progress(9, 60), None, &parameters);
        assert_eq!(due, Some(at(1) + Duration::from_millis(50) / 4));
        let next = hidden.holds_until(at(10), progress(9, 60), None, &parameters);
        assert_eq!(next, due, "they are delivered together");
        let later = hidden.holds_until(at(20), progress(12, 60), None, &parameters);
        assert!(later > due, "12 packets, less the 9 that it showed");
    }

    #[test]
    fn none_is_held_for_long() {
        let parameters = ThinningParameters::default();
        let mut hidden = HiddenThinning::new(NOW, progress(0, 60));
        let hold = |hidden: &mut HiddenThinning, at, flight| {
            let due = hidden.holds_until(at, progress(2, flight), None, &parameters);
            due.expect("it is held").since(at)
        };
        assert_eq!(hold(&mut hidden, at(1), 0), Duration::from_millis(50) / 16, "nothing follows");
        let longest = Duration::from_millis(50) * FIRST_ROUND / 4;
        assert_eq!(hold(&mut hidden.clone(), at(500), 60), longest, "the first round takes long");
        let day = NOW + Duration::from_secs(86_400);
        assert_eq!(hold(&mut hidden, day, 60), Duration::from_millis(50) / 4, "after a pause");
    }

    #[test]
    fn pauses_do_not_make_rounds_longer() {
        let parameters = ThinningParameters::default();
        let mut flow = Flow::new(12);
        for _ in 0..10 {
            flow.round(12, 0);
            flow.now += Duration::from_secs(10);
        }
        let progress = progress(flow.delivered + 1, 60);
        let due = flow.hidden.holds_until(flow.now, progress, None, &parameters);
        let held = due.expect("it is held").since(flow.now);
        assert!(held <= Duration::from_millis(50) * FIRST_ROUND / 4, "{held:?}");
    }

    #[test]
    fn the_count_begins_anew_when_a_path_is_removed() {
        let parameters = ThinningParameters::default();
        let mut hidden = HiddenThinning::new(NOW, progress(100_000, 60));
        assert_eq!(hidden.holds_until(at(1), progress(10, 60), None, &parameters), None);
        assert!(hidden.holds_until(at(2), progress(12, 60), None, &parameters).is_some());
    }
}
