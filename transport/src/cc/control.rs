//! What a congestion control is told and asked.

use core::fmt;
use core::time::Duration;

use mpip_types::Instant;

/// Window of a path of which nothing is known yet, in packets (RFC 6928).
pub const INITIAL_WINDOW_PACKETS: u64 = 10;

/// What one feedback frame says about the delivery on a path
/// (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug)]
pub struct RateSample {
    /// When the feedback was handled.
    pub now: Instant,
    /// Bytes newly acknowledged.
    pub acked: u64,
    /// Bytes newly declared lost since the last sample.
    pub lost: u64,
    /// Bytes in flight before this feedback.
    pub prior_in_flight: u64,
    /// Bytes in flight after it.
    pub in_flight: u64,
    /// Delivery rate over the sample's interval, bytes/s; `None` when the interval was too short
    /// to mean anything.
    pub delivery_rate: Option<u64>,
    /// Whether the sender had too little to send when the sampled packet left.
    pub app_limited: bool,
    /// Total bytes delivered on the path so far.
    pub delivered: u64,
    /// Value of `delivered` when the sampled packet left: a round trip has passed when it reaches
    /// the `delivered` of the last round's start.
    pub prior_delivered: u64,
    /// Round-trip time of the newest acknowledged packet, without the feedback's delay; where
    /// packets overtake each other the mean of many, since one says nothing there.
    pub rtt: Option<Duration>,
    /// The path's smoothed round-trip time.
    pub smoothed_rtt: Duration,
    /// Mean deviation from it.
    pub rtt_deviation: Duration,
    /// The same where packets overtake each other, so that no queue makes it; else zero.
    pub jitter: Duration,
    /// The path's lowest round-trip time of the last 10 s.
    pub min_rtt: Duration,
    /// Packets newly reported with congestion experienced.
    pub ecn_ce: u64,
}

/// Packets were lost or marked. May be reported for each feedback that finds any: the controllers
/// react once per round trip.
#[derive(Clone, Copy, Debug)]
pub struct CongestionEvent {
    /// When the loss was detected.
    pub now: Instant,
    /// When the newest of the lost (or marked) packets had left.
    pub sent: Instant,
    /// Bytes lost.
    pub lost: u64,
    /// Nothing got through for a whole probe time-out series (RFC 9002, section 7.6).
    pub persistent: bool,
    /// An ECN mark, not a loss.
    pub ecn: bool,
}

/// What a coupled controller has to know of one path of the association, itself included.
#[derive(Clone, Copy, Debug)]
pub struct Subflow {
    /// Congestion window, bytes.
    pub window: u64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Bytes acknowledged between the last two losses, and since the last one (OLIA).
    pub between_losses: u64,
    /// When what others filled last reduced its window (BBR beside a rival).
    pub reduced: Option<Instant>,
    /// It keeps little in flight, to see the path empty (BBR's ProbeRTT).
    pub drains: bool,
    /// Bytes/s that it delivered in the last round trip, and the most of late (BBR).
    pub delivered: (u64, u64),
}

/// The paths of `subflows` but the one with the index `own`.
pub(super) fn others(subflows: &[Subflow], own: usize) -> impl Iterator<Item = &Subflow> + Clone {
    subflows.iter().enumerate().filter(move |(index, _)| *index != own).map(|(_, flow)| flow)
}

/// The rules of one congestion control.
pub trait CongestionControl: fmt::Debug + Send {
    /// A packet of `bytes` left while `in_flight` bytes (this one not counted) were in flight.
    fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64);

    /// Feedback arrived. `subflows` are all paths that share the coupling, `own` is this one's
    /// index in it.
    fn on_feedback(&mut self, sample: &RateSample, subflows: &[Subflow], own: usize);

    /// Packets were lost or marked.
    fn on_congestion(&mut self, event: &CongestionEvent, subflows: &[Subflow], own: usize);

    /// All that was lost in the last congestion event arrived after all: what that took is given
    /// back.
    fn on_spurious(&mut self, now: Instant);

    /// Bytes that may be in flight.
    fn window(&self) -> u64;

    /// Bytes per second at which packets leave; `None`: as fast as the window permits.
    fn pacing_rate(&self) -> Option<u64>;

    /// Bytes per second that the path was seen to deliver, where the controller knows.
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

    /// It drains its path to see whether another flow fills the queue, which only shows when no
    /// path of the association sends much, whether it is known to share a queue with this one
    /// or not.
    fn asks_all_to_drain(&self) -> bool {
        false
    }

    /// A path asks all to drain theirs. One that does so already goes on.
    fn drain(&mut self, _now: Instant) {}

    /// For [`Subflow::delivered`].
    fn delivered(&self) -> (u64, u64) {
        (0, 0)
    }

    /// It still looks for what the path carries, and sends more in every round trip (BBR's
    /// Startup).
    fn searches(&self) -> bool {
        false
    }

    /// One word for the state, as in the controller's specification.
    fn state(&self) -> &'static str;
}
