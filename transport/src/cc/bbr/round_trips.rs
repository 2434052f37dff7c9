//! Round-trip times of a path, and when they show a queue.

use core::time::Duration;

use super::model::FlightExcess;
use crate::cc::RateSample;
use mpip_types::Instant;

/// A packet is late when it exceeds the minimum RTT by an eighth, or by this if less, seconds: a
/// longer path does not have longer queues.
const LATE: f64 = 0.01;
/// On a path that reorders, samples are means (see [`RateSample::rtt`]). Without a queue they
/// exceed the minimum by up to this part of the jitter.
const MEAN_JITTER: f64 = 0.5;
/// A packet that took longer than twice the minimum RTT plus this has waited in a queue, seconds;
/// this allows for pauses of the host.
const QUEUED: f64 = 0.003;
/// Interval between ProbeRTTs, which measure the minimum RTT.
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(10);
/// The same while every round's fastest packet is far above the minimum RTT: a standing queue, or a
/// new route.
const PROBE_RTT_INTERVAL_INFLATED: Duration = Duration::from_secs(2);
/// Multiple of the minimum RTT that counts as far above; higher on a path with random loss, where
/// no rival is expected.
const INFLATED: f64 = 1.25;
const INFLATED_LOSSY: f64 = 1.5;

/// Minimum and smoothed RTT of a path, and its jitter.
#[derive(Debug)]
pub(super) struct RoundTrips {
    min_rtt: Option<Duration>,
    /// The minimum of the other kind of samples, from before the path began or ceased to reorder.
    /// With a jitter as long as the time between two packets both happen every second. If the
    /// minimum were forgotten then, a standing queue would count as the empty path.
    other_min_rtt: Option<Duration>,
    /// Smoothed RTT and its mean deviation, seconds.
    smoothed: f64,
    deviation: f64,
    /// Jitter, seconds; zero on a path that does not reorder.
    jitter: f64,
    /// When a sample was last close to `min_rtt`, and when a round was last not far above it.
    min_rtt_at: Instant,
    not_inflated_at: Instant,
}

impl RoundTrips {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            min_rtt: None,
            other_min_rtt: None,
            smoothed: 0.0,
            deviation: 0.0,
            jitter: 0.0,
            min_rtt_at: now,
            not_inflated_at: now,
        }
    }

    /// The minimum since the last ProbeRTT.
    pub(super) fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    /// What samples have at most without a queue.
    pub(super) fn empty_rtt(&self) -> Option<Duration> {
        self.min_rtt.map(|rtt| rtt + Duration::from_secs_f64(self.jitter * MEAN_JITTER))
    }

    /// Sets the minimum to what ProbeRTT has measured.
    pub(super) fn set_min_rtt(&mut self, lowest: Option<Duration>) {
        self.min_rtt = lowest;
    }

    /// Sets the minimum of samples that are means to what ProbeRTT has measured, also if samples
    /// are no means now: the path begins to reorder again.
    pub(super) fn set_least_mean(&mut self, mean: Duration) {
        match self.jitters() {
            true => self.min_rtt = Some(mean),
            false => self.other_min_rtt = Some(mean),
        }
    }

    /// Whether the path reorders; then a sample is the mean over many packets.
    pub(super) fn jitters(&self) -> bool {
        self.jitter > 0.0
    }

    /// Takes the deviations from `sample`. Returns `true` if samples are means from now on, or no
    /// longer are: earlier values are then not comparable.
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
            core::mem::swap(&mut self.min_rtt, &mut self.other_min_rtt);
        }
        turned
    }

    /// Takes an RTT sample.
    pub(super) fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        match self.min_rtt {
            Some(lowest) if rtt > lowest + lowest / 16 => {}
            Some(lowest) => {
                self.min_rtt = Some(lowest.min(rtt));
                self.min_rtt_at = now;
            }
            None => {
                self.min_rtt = Some(rtt);
                self.min_rtt_at = now;
                self.not_inflated_at = now;
            }
        }
    }

    /// A round has ended whose minimum RTT was `fastest`. `lossy`: the path has random loss, so no
    /// rival is expected.
    pub(super) fn end_round(
        &mut self,
        now: Instant,
        fastest: Option<Duration>,
        excess: &FlightExcess,
        lossy: bool,
    ) {
        let inflated = if lossy { INFLATED_LOSSY } else { INFLATED };
        let most = inflated * self.min_rtt.unwrap_or_default().as_secs_f64() + excess.seconds();
        if fastest.is_some_and(|fastest| fastest.as_secs_f64() <= most) {
            self.not_inflated_at = now;
        }
    }

    /// ProbeRTT is over.
    pub(super) fn on_drained(&mut self, now: Instant) {
        self.min_rtt_at = now;
        self.not_inflated_at = now;
    }

    /// Whether ProbeRTT is due.
    pub(super) fn is_probe_due(&self, now: Instant) -> bool {
        now.since(self.min_rtt_at) >= PROBE_RTT_INTERVAL
            || now.since(self.not_inflated_at) >= PROBE_RTT_INTERVAL_INFLATED
    }

    /// Mean time that a packet counts as in flight without a queue, seconds.
    pub(super) fn flight_time(&self, excess: &FlightExcess) -> f64 {
        let lowest = self.min_rtt.map_or(0.0, |rtt| rtt.as_secs_f64());
        match excess.is_known() {
            true => lowest + excess.seconds(),
            // The first acknowledgements are for packets that overtook others.
            false => lowest.max(self.smoothed),
        }
    }

    /// Whether a packet with round-trip time `rtt` has clearly waited in a queue. `filled`: Startup
    /// is over.
    pub(super) fn is_late(
        &self,
        rtt: Option<Duration>,
        excess: &FlightExcess,
        filled: bool,
    ) -> bool {
        let (Some(rtt), Some(lowest)) = (rtt, self.min_rtt) else { return false };
        let lowest = lowest.as_secs_f64();
        // In Startup the excess is not well known.
        let jitter = match (self.jitter, filled) {
            (0.0, true) => 0.0,
            (0.0, false) => 2.0 * self.deviation,
            (jitter, _) => jitter * MEAN_JITTER,
        };
        let usual = excess.seconds().max(jitter);
        rtt.as_secs_f64() > lowest + usual.max((lowest / 8.0).min(LATE))
    }

    /// Whether a round's `fastest` packet has waited in a queue, so that the path was the limit and
    /// not the sender.
    pub(super) fn is_queued(&self, fastest: Option<Duration>, excess: &FlightExcess) -> bool {
        let (Some(fastest), Some(lowest)) = (fastest, self.min_rtt) else { return false };
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
    fn each_kind_of_samples_has_a_minimum_that_is_kept_while_the_other_is_in_use() {
        let mut trips = RoundTrips::new(at(0));
        let mut turn = |rtt, jitter| {
            let sample = RateSample { jitter: ms(jitter), ..RateSample::of_rtt(at(0), ms(rtt)) };
            let turned = trips.on_feedback(&sample);
            trips.on_rtt(at(0), ms(rtt));
            (turned, trips.min_rtt())
        };
        assert_eq!(turn(10, 0), (false, Some(ms(10))));
        assert_eq!(turn(13, 2), (true, Some(ms(13))));
        assert_eq!(turn(40, 0), (true, Some(ms(10))));
        assert_eq!(turn(40, 2), (true, Some(ms(13))));
        assert_eq!(turn(9, 0), (true, Some(ms(9))));
    }

    #[test]
    fn a_mean_of_the_drained_path_is_the_minimum_of_means_now_and_when_it_reorders_again() {
        let mut trips = RoundTrips::new(at(0));
        let mut turn = |rtt, jitter| {
            let sample = RateSample { jitter: ms(jitter), ..RateSample::of_rtt(at(0), ms(rtt)) };
            trips.on_feedback(&sample);
            trips.on_rtt(at(0), ms(rtt));
        };
        turn(10, 0);
        turn(50, 2);
        trips.set_least_mean(ms(13));
        assert_eq!(trips.min_rtt(), Some(ms(13)));
        trips.set_min_rtt(Some(ms(50)));
        let sample = |jitter| RateSample { jitter, ..RateSample::of_rtt(at(0), ms(60)) };
        trips.on_feedback(&sample(ms(0)));
        trips.set_least_mean(ms(14));
        assert_eq!(trips.min_rtt(), Some(ms(10)));
        trips.on_feedback(&sample(ms(2)));
        assert_eq!(trips.min_rtt(), Some(ms(14)));
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
