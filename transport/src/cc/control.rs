//! The interface of congestion controls.

use core::fmt;
use core::time::Duration;

use mpip_types::Instant;

/// Initial window, packets (RFC 6928).
pub const INITIAL_WINDOW_PACKETS: u64 = 10;

/// The sum of many round-trip times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RttSum {
    /// Their sum.
    pub sum: Duration,
    /// How many they are.
    pub packets: u64,
}

impl RttSum {
    pub(crate) fn add(&mut self, rtt: Duration) {
        self.sum += rtt;
        self.packets += 1;
    }

    /// The mean since `before`; `None` if fewer than `least` have been added, or if the sum began
    /// anew meanwhile, at another address.
    pub(crate) fn mean_since(self, before: Self, least: u64) -> Option<Duration> {
        let packets = self.packets.checked_sub(before.packets)?;
        let sum = self.sum.checked_sub(before.sum)?;
        (packets >= least.max(1)).then(|| sum.div_f64(packets as f64))
    }
}

/// A rate sample: what one feedback frame says about delivery on a path
/// (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug)]
pub struct RateSample {
    /// When the feedback was processed.
    pub now: Instant,
    /// Bytes newly acknowledged.
    pub acked: u64,
    /// Bytes newly declared lost since the last sample.
    pub lost: u64,
    /// Ranges of consecutive lost packets that begin among them.
    pub lost_ranges: u64,
    /// Bytes in flight before this feedback.
    pub prior_in_flight: u64,
    /// Bytes in flight after it.
    pub in_flight: u64,
    /// Delivery rate over the sample's interval, bytes/s; `None` if the interval was too short.
    pub delivery_rate: Option<u64>,
    /// Whether the sender had too little to send when the sampled packet left.
    pub app_limited: bool,
    /// Time in which the packets of the sample left, and in which they arrived by the receiver's
    /// clock; `None` if nothing was in flight before them.
    pub left_and_arrived_in: Option<(Duration, Duration)>,
    /// Total bytes delivered on the path so far.
    pub delivered: u64,
    /// Value of `delivered` when the sampled packet left: a round trip has passed when it reaches
    /// the `delivered` of the last round's start.
    pub prior_delivered: u64,
    /// RTT of the newest acknowledged packet, without the feedback delay; on a path that reorders,
    /// the mean over many packets.
    pub rtt: Option<Duration>,
    /// RTTs of all packets of the path so far, those that others overtook included.
    pub round_trips: RttSum,
    /// The path's smoothed round-trip time.
    pub smoothed_rtt: Duration,
    /// Mean deviation from it.
    pub rtt_deviation: Duration,
    /// The same on a path that reorders, where it is not due to a queue; otherwise zero.
    pub jitter: Duration,
    /// The path's lowest round-trip time of the last 10 s.
    pub min_rtt: Duration,
    /// Packets newly reported with congestion experienced.
    pub ecn_ce: u64,
    /// What the path has shown while it was idle to carry, bytes/s; `None` if it has not.
    pub capacity: Option<u64>,
}

#[cfg(test)]
impl RateSample {
    /// Feedback at `now` that acknowledges nothing, after a round trip of `rtt`.
    pub(crate) fn of_rtt(now: Instant, rtt: Duration) -> Self {
        Self {
            now,
            acked: 0,
            lost: 0,
            lost_ranges: 0,
            prior_in_flight: 0,
            in_flight: 0,
            delivery_rate: None,
            app_limited: false,
            left_and_arrived_in: None,
            delivered: 0,
            prior_delivered: 0,
            rtt: Some(rtt),
            round_trips: RttSum::default(),
            smoothed_rtt: rtt,
            rtt_deviation: Duration::ZERO,
            jitter: Duration::ZERO,
            min_rtt: rtt,
            ecn_ce: 0,
            capacity: None,
        }
    }
}

/// A congestion event: packets were lost or marked.
#[derive(Clone, Copy, Debug)]
pub struct CongestionEvent {
    /// When the loss was detected.
    pub now: Instant,
    /// Send time of the newest lost or marked packet.
    pub sent: Instant,
    /// Bytes lost.
    pub lost: u64,
    /// Persistent congestion: nothing got through for several probe timeouts (RFC 9002, section
    /// 7.6).
    pub persistent: bool,
    /// An ECN mark, not a loss.
    pub ecn: bool,
}

/// Summary of one path for coupled controllers.
#[derive(Clone, Copy, Debug)]
pub struct Subflow {
    /// Congestion window, bytes.
    pub window: u64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Bytes acknowledged between the last two losses, and since the last one (OLIA).
    pub between_losses: u64,
    /// When the window was last reduced beside a rival (BBR).
    pub reduced: Option<Instant>,
    /// It is in BBR's ProbeRTT.
    pub drains: bool,
    /// Delivery rate in the last round trip, and its windowed maximum, bytes/s (BBR).
    pub delivered: (u64, u64),
}

/// All paths of `subflows` except the one with index `own`.
pub(super) fn others(subflows: &[Subflow], own: usize) -> impl Iterator<Item = &Subflow> + Clone {
    subflows.iter().enumerate().filter(move |(index, _)| *index != own).map(|(_, flow)| flow)
}

/// A congestion control.
pub trait CongestionControl: fmt::Debug + Send {
    /// A packet of `bytes` left while `in_flight` bytes (this one not counted) were in flight.
    fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64);

    /// Feedback arrived. `subflows` are all paths that share the coupling, `own` is this one's
    /// index in it.
    fn on_feedback(&mut self, sample: &RateSample, subflows: &[Subflow], own: usize);

    /// Packets were lost or marked.
    fn on_congestion(&mut self, event: &CongestionEvent, subflows: &[Subflow], own: usize);

    /// All losses of the last congestion event were spurious: undoes the reduction.
    fn on_spurious(&mut self, now: Instant);

    /// Congestion window, bytes.
    fn window(&self) -> u64;

    /// Pacing rate, bytes/s; `None`: no pacing.
    fn pacing_rate(&self) -> Option<u64>;

    /// The RTT that its samples have at most where no packet waits in a queue; `None` if the
    /// control does not know it.
    fn empty_rtt(&self) -> Option<Duration> {
        None
    }

    /// The window with which Startup begins, bytes, on a path that has shown while it was idle to
    /// carry `capacity` bytes/s, if that is known, and has this minimum RTT; 0 without a Startup.
    fn first_window(&self, _capacity: Option<u64>, _min_rtt: Duration) -> u64 {
        0
    }

    /// Estimated bandwidth, bytes/s, if the controller has an estimate.
    fn bandwidth(&self) -> Option<u64> {
        None
    }

    /// Bytes acknowledged between losses, for [`Subflow::between_losses`].
    fn between_losses(&self) -> u64 {
        0
    }

    /// For [`Subflow::reduced`].
    fn reduced(&self) -> Option<Instant> {
        None
    }

    /// For [`Subflow::drains`].
    fn drains(&self) -> bool {
        false
    }

    /// It drains its path to find out whether another flow fills the queue. This shows only when
    /// all paths of the association send little, also those not known to share a queue with this
    /// one.
    fn asks_all_to_drain(&self) -> bool {
        false
    }

    /// Another path asks all paths to drain. No effect if it drains already.
    fn drain(&mut self, _now: Instant) {}

    /// For [`Subflow::delivered`].
    fn delivered(&self) -> (u64, u64) {
        (0, 0)
    }

    /// It is in BBR's Startup: it sends more in every round trip.
    fn searches(&self) -> bool {
        false
    }

    /// One word for the state, as in the controller's specification.
    fn state(&self) -> &'static str;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_since_needs_packets_since() {
        let ms = Duration::from_millis;
        let before = RttSum { sum: ms(100), packets: 10 };
        let now = RttSum { sum: ms(160), packets: 12 };
        assert_eq!(now.mean_since(before, 2), Some(ms(30)));
        assert_eq!(now.mean_since(before, 3), None);
        assert_eq!(now.mean_since(now, 0), None);
        assert_eq!(before.mean_since(now, 0), None, "it began anew");
    }
}
