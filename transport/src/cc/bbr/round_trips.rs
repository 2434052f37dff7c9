//! How long a path takes, and when that shows a queue.

use core::time::Duration;

use super::model::FlightExcess;
use crate::cc::RateSample;
use mpip_types::Instant;

/// A packet is late by an eighth of the lowest RTT or by this, seconds: queues are no longer
/// because a path is.
const LATE: f64 = 0.01;
/// Where packets overtake each other the mean of some is what is seen, see [`RateSample::rtt`]. It
/// lies above the lowest of such means by this part of the jitter without any queue.
const MEAN_JITTER: f64 = 0.5;
/// A packet later than twice the lowest RTT and this has waited in a queue, whatever the host's own
/// pauses add.
const QUEUED: f64 = 0.003;
/// The path is drained so often, to see its lowest RTT.
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(10);
/// Sooner when every round's fastest packet is much later than the lowest RTT: a queue that does
/// not go away, or another route.
const PROBE_RTT_INTERVAL_INFLATED: Duration = Duration::from_secs(2);
/// Times the lowest RTT from which on a packet is so late; more where no rival is looked for.
const INFLATED: f64 = 1.25;
const INFLATED_LOSSY: f64 = 1.5;

/// The round trips of a path: the lowest, the usual, and what jitter makes of them.
#[derive(Debug)]
pub(super) struct RoundTrips {
    lowest: Option<Duration>,
    /// Seconds that a packet takes to be acknowledged, and the mean deviation.
    smoothed: f64,
    deviation: f64,
    /// Seconds of jitter, and by how much it makes a mean of round trips uncertain; zero on a path
    /// that keeps the order of its packets.
    jitter: f64,
    /// When a packet last was about as fast as `lowest`, and when a round was not much slower.
    lowest_at: Instant,
    not_inflated_at: Instant,
}

impl RoundTrips {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            lowest: None,
            smoothed: 0.0,
            deviation: 0.0,
            jitter: 0.0,
            lowest_at: now,
            not_inflated_at: now,
        }
    }

    /// The lowest since the path was last drained.
    pub(super) fn lowest(&self) -> Option<Duration> {
        self.lowest
    }

    /// What ProbeRTT has shown the lowest to be, if it has shown anything.
    pub(super) fn set_lowest(&mut self, lowest: Option<Duration>) {
        self.lowest = lowest;
    }

    /// Mean deviation where packets overtake each other, seconds; else zero.
    pub(super) fn jitter(&self) -> f64 {
        self.jitter
    }

    /// Packets overtake each other: a sample is the mean of many.
    pub(super) fn jitters(&self) -> bool {
        self.jitter > 0.0
    }

    /// Takes the deviations from `sample`. `true` if what was one packet's round trip is a mean
    /// from now on, or the other way round: nothing that was known of round trips holds any
    /// more.
    pub(super) fn on_feedback(&mut self, sample: &RateSample) -> bool {
        self.smoothed = sample.smoothed_rtt.as_secs_f64();
        self.deviation = sample.rtt_deviation.as_secs_f64();
        if sample.rtt.is_none() {
            return false;
        }
        let before = self.jitters();
        self.jitter = sample.jitter.as_secs_f64();
        let turned = self.jitters() != before;
        if turned {
            self.lowest = None;
        }
        turned
    }

    /// A packet took `rtt`.
    pub(super) fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        match self.lowest {
            Some(lowest) if rtt > lowest + lowest / 16 => {}
            Some(lowest) => {
                self.lowest = Some(lowest.min(rtt));
                self.lowest_at = now;
            }
            None => {
                self.lowest = Some(rtt);
                self.lowest_at = now;
                self.not_inflated_at = now;
            }
        }
    }

    /// A round has ended whose fastest packet took `fastest`. `lossy`: no rival is looked for.
    pub(super) fn end_round(
        &mut self,
        now: Instant,
        fastest: Option<Duration>,
        excess: &FlightExcess,
        lossy: bool,
    ) {
        let inflated = if lossy { INFLATED_LOSSY } else { INFLATED };
        let most = inflated * self.lowest.unwrap_or_default().as_secs_f64() + excess.seconds();
        if fastest.is_some_and(|fastest| fastest.as_secs_f64() <= most) {
            self.not_inflated_at = now;
        }
    }

    /// The path has been drained, and was seen empty.
    pub(super) fn on_drained(&mut self, now: Instant) {
        self.lowest_at = now;
        self.not_inflated_at = now;
    }

    /// Whether the path is to be drained, to see it empty.
    pub(super) fn is_probe_due(&self, now: Instant) -> bool {
        now.since(self.lowest_at) >= PROBE_RTT_INTERVAL
            || now.since(self.not_inflated_at) >= PROBE_RTT_INTERVAL_INFLATED
    }

    /// Seconds that a packet counts as in flight when no queue stands.
    pub(super) fn flight_time(&self, excess: &FlightExcess) -> f64 {
        let lowest = self.lowest.map_or(0.0, |rtt| rtt.as_secs_f64());
        match excess.is_known() {
            true => lowest + excess.seconds(),
            // The first packets back are those that overtook the others.
            false => lowest.max(self.smoothed),
        }
    }

    /// Whether a packet that took `rtt` clearly has waited in a queue. `filled`: the path has been
    /// full once.
    pub(super) fn is_late(
        &self,
        rtt: Option<Duration>,
        excess: &FlightExcess,
        filled: bool,
    ) -> bool {
        let (Some(rtt), Some(lowest)) = (rtt, self.lowest) else { return false };
        let lowest = lowest.as_secs_f64();
        // In Startup the excess is not known well yet.
        let jitter = match (self.jitter, filled) {
            (0.0, true) => 0.0,
            (0.0, false) => 2.0 * self.deviation,
            (jitter, _) => jitter * MEAN_JITTER,
        };
        let usual = excess.seconds().max(jitter);
        rtt.as_secs_f64() > lowest + usual.max((lowest / 8.0).min(LATE))
    }

    /// Whether a round's `fastest` packet took much longer than the lowest, as it does behind a
    /// queue.
    pub(super) fn is_far_behind(&self, fastest: Option<Duration>) -> bool {
        let (Some(fastest), Some(lowest)) = (fastest, self.lowest) else { return false };
        fastest.as_secs_f64() > INFLATED * lowest.as_secs_f64()
    }

    /// Whether a round's `fastest` packet has waited in a queue that neither jitter nor the host
    /// explains.
    pub(super) fn is_stuck(&self, fastest: Option<Duration>) -> bool {
        let (Some(fastest), Some(lowest)) = (fastest, self.lowest) else { return false };
        fastest.as_secs_f64() > 2.0 * (lowest.as_secs_f64() + self.jitter) + QUEUED
    }

    /// Whether a round's `fastest` packet has waited so long that the path, not the sender, was
    /// what held it back.
    pub(super) fn is_queued(&self, fastest: Option<Duration>, excess: &FlightExcess) -> bool {
        let (Some(fastest), Some(lowest)) = (fastest, self.lowest) else { return false };
        let most = 2.0 * (lowest.as_secs_f64() + self.deviation) + excess.seconds() + QUEUED;
        fastest.as_secs_f64() > most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_packet_is_late_by_an_eighth_or_ten_milliseconds() {
        let excess = FlightExcess::default();
        for (lowest, late) in [(40, 45), (80, 90), (400, 410)] {
            let mut trips = RoundTrips::new(at(0));
            trips.on_rtt(at(0), ms(lowest));
            assert!(!trips.is_late(Some(ms(late)), &excess, true), "{lowest}");
            assert!(trips.is_late(Some(ms(late + 1)), &excess, true), "{lowest}");
        }
        assert!(!RoundTrips::new(at(0)).is_late(Some(ms(500)), &excess, true), "nothing is known");
    }

    #[test]
    fn a_round_is_far_behind_when_its_fastest_packet_is() {
        let mut trips = RoundTrips::new(at(0));
        assert!(!trips.is_far_behind(Some(ms(500))), "nothing is known");
        trips.on_rtt(at(0), ms(100));
        assert!(!trips.is_far_behind(None) && !trips.is_far_behind(Some(ms(125))));
        assert!(trips.is_far_behind(Some(ms(126))));
    }

    #[test]
    fn the_path_is_drained_after_a_while_and_sooner_when_every_packet_is_late() {
        let excess = FlightExcess::default();
        let mut trips = RoundTrips::new(at(0));
        trips.on_rtt(at(0), ms(100));
        for second in 1..10 {
            trips.end_round(at(second * 1_000), Some(ms(125)), &excess, false);
        }
        assert!(!trips.is_probe_due(at(9_999)) && trips.is_probe_due(at(10_000)));
        trips.on_rtt(at(10_000), ms(106));
        trips.end_round(at(10_000), Some(ms(106)), &excess, false);
        assert!(!trips.is_probe_due(at(11_999)), "one was as fast");
        assert!(trips.is_probe_due(at(12_000)));
        trips.end_round(at(12_000), Some(ms(126)), &excess, false);
        assert!(trips.is_probe_due(at(12_000)));
        trips.end_round(at(12_000), Some(ms(126)), &excess, true);
        assert!(!trips.is_probe_due(at(12_000)), "more is usual where packets are lost");
    }
}
