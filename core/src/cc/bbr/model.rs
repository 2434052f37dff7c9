//! What BBR believes of its path: delivery rate, time in flight, loss that is not of its making,
//! bursts of acknowledgements.

use core::time::Duration;

use crate::cc::RateSample;
use crate::time::Instant;

/// Round trips for which the highest delivery rate holds.
const FILTER_ROUNDS: usize = 10;
/// Departures that make a mean worth taking.
const MIN_DEPARTURES: u64 = 8;
/// Loss beyond this is not offset by sending more.
const MAX_RANDOM_LOSS: f64 = 0.3;
/// Share of the older knowledge that a new measurement of loss leaves.
const LOSS_MEMORY: f64 = 0.95;

/// The highest value of the last [`FILTER_ROUNDS`] round trips.
#[derive(Debug, Default)]
pub(super) struct MaxFilter {
    rounds: [f64; FILTER_ROUNDS],
    at: usize,
}

impl MaxFilter {
    pub(super) fn update(&mut self, value: f64) {
        self.rounds[self.at] = self.rounds[self.at].max(value);
    }

    pub(super) fn advance(&mut self) {
        self.at = (self.at + 1) % FILTER_ROUNDS;
        self.rounds[self.at] = 0.0;
    }

    pub(super) fn max(&self) -> f64 {
        self.rounds.iter().copied().fold(0.0, f64::max)
    }
}

/// How much longer than the lowest RTT a packet counts as in flight on an empty path, on average:
/// jitter, reordering, the feedback's delay and batching, the time until a loss is noticed.
///
/// RTT samples do not say it (the newest packet of a feedback is one that overtook the others), but
/// Little's law does: mean bytes in flight / rate = mean time in flight. The standing queue, by
/// which even the round's fastest packet was late, is taken off.
#[derive(Debug, Default)]
pub(super) struct FlightExcess {
    /// Integral of bytes in flight over time, byte seconds, since `start`.
    area: f64,
    start: Option<Instant>,
    arrived: u64,
    departed: u64,
    fastest: Option<Duration>,
    last: Option<Instant>,
    seconds: Option<f64>,
}

impl FlightExcess {
    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64) {
        self.advance(now, in_flight);
        self.arrived += bytes;
    }

    pub(super) fn on_feedback(&mut self, sample: &RateSample) {
        self.advance(sample.now, sample.prior_in_flight);
        self.departed += sample.acked + sample.lost;
        if let Some(rtt) = sample.rtt {
            self.fastest = Some(self.fastest.map_or(rtt, |fastest| fastest.min(rtt)));
        }
    }

    /// Takes a new value if enough has been seen.
    pub(super) fn update(&mut self, now: Instant, packet: u64) {
        let (Some(start), Some(fastest)) = (self.start, self.fastest) else { return };
        if self.departed < MIN_DEPARTURES * packet {
            return;
        }
        // The law holds for a steady flight. Of one that grows or shrinks the greater rate is taken,
        // so that growth does not pass for jitter, and of a queue that builds up nothing can be said
        // before its packets have come through.
        let mean = self.area / self.arrived.max(self.departed) as f64;
        if now.since(start).as_secs_f64() < mean {
            return;
        }
        let fastest = fastest.as_secs_f64();
        let excess = (mean - fastest).max(0.0);
        self.seconds = Some(match self.seconds {
            None => excess,
            // An outage must not pass for jitter: no more than twice what was believed.
            Some(old) if excess > old => {
                old + (excess.min(2.0 * old + fastest / 2.0 + 0.001) - old) / 8.0
            }
            // Its own probing makes a queue within the round, so the lower values count more.
            Some(old) => old + (excess - old) / 4.0,
        });
        let (last, seconds) = (self.last, self.seconds);
        *self = Self { start: Some(now), last, seconds, ..Self::default() };
    }

    /// Seconds; 0 while nothing is known.
    pub(super) fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(0.0)
    }

    /// Whether a value was taken.
    pub(super) fn is_known(&self) -> bool {
        self.seconds.is_some()
    }

    fn advance(&mut self, now: Instant, in_flight: u64) {
        self.start.get_or_insert(now);
        if let Some(last) = self.last {
            self.area += in_flight as f64 * now.since(last).as_secs_f64();
        }
        self.last = Some(now);
    }
}

/// The share of packets that is lost although no more is sent than the path delivers and no queue
/// stands.
#[derive(Debug, Default)]
pub(super) struct RandomLoss {
    lost: f64,
    total: f64,
}

impl RandomLoss {
    pub(super) fn add(&mut self, lost: u64, acked: u64) {
        self.lost = self.lost * LOSS_MEMORY + lost as f64;
        self.total = self.total * LOSS_MEMORY + (lost + acked) as f64;
    }

    pub(super) fn ratio(&self) -> f64 {
        if self.total > 0.0 { (self.lost / self.total).min(MAX_RANDOM_LOSS) } else { 0.0 }
    }
}

/// By how many bytes acknowledgements run ahead of the delivery rate
/// (draft-ietf-ccwg-bbr, `BBRUpdateACKAggregation`).
#[derive(Debug, Default)]
pub(super) struct Aggregation {
    start: Option<Instant>,
    acked: f64,
    extra: MaxFilter,
}

impl Aggregation {
    pub(super) fn on_feedback(&mut self, now: Instant, acked: u64, rate: f64, window: f64) {
        let start = *self.start.get_or_insert(now);
        let expected = rate * now.since(start).as_secs_f64();
        if self.acked <= expected {
            self.start = Some(now);
            self.acked = acked as f64;
            self.extra.update(self.acked.min(window));
        } else {
            self.acked += acked as f64;
            self.extra.update((self.acked - expected).min(window));
        }
    }

    pub(super) fn end_round(&mut self) {
        self.extra.advance();
    }

    pub(super) fn bytes(&self) -> f64 {
        self.extra.max()
    }
}
