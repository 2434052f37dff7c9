//! BBR's model of its path: bandwidth, time in flight, random loss, acknowledgement aggregation.

use core::time::Duration;

use crate::cc::{RateSample, RttSum};
use mpip_types::Instant;

/// Window of the maximum filter, round trips.
const FILTER_ROUNDS: usize = 10;
/// Packets that must have left the path before a mean is taken.
const MIN_DEPARTURES: u64 = 8;
/// Upper bound of the random loss that the sender makes up for.
const MAX_RANDOM_LOSS: f64 = 0.3;
/// Packets in flight with which a path counts as idle.
const IDLE_PACKETS: u64 = 2;
/// RTT samples over which the mean of the idle path is taken.
const IDLE_SAMPLES: f64 = 8.0;
/// Mean deviations by which the lowest of a thousand normally distributed samples is below their
/// mean.
const JITTER_DEVIATIONS: f64 = 4.0;
/// Weight of the previous measurements of loss when a new one is added.
const LOSS_MEMORY: f64 = 0.95;
/// Difference of loss ratios that is no noise.
const LOSS_NOISE: f64 = 0.02;

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
        // One instruction for each, where `f64::max` looks for NaN.
        self.rounds.iter().fold(0.0, |max, &rate| if rate > max { rate } else { max })
    }
}

/// Mean time that a packet counts as in flight on an empty path beyond the minimum RTT: jitter,
/// reordering, feedback delay and batching, and the time until a loss is detected.
///
/// RTT samples do not show it, since the newest packet of a feedback frame is one that overtook
/// others. Little's law does: mean bytes in flight / rate = mean time in flight. The standing
/// queue, which delayed even the fastest packet of the round, is subtracted.
///
/// On a path that delivers in bursts or jitters in order, the queue is not the only delay of a
/// round's fastest packet. The rest is measured while there is no queue: on the idle path, and in
/// ProbeRTT.
#[derive(Debug, Default)]
pub(super) struct FlightExcess {
    flight: Flight,
    fastest: Option<Duration>,
    /// On a path that reorders: the RTTs of all packets.
    all: Option<RttSum>,
    /// The same at the last update.
    before: RttSum,
    last: Option<Instant>,
    seconds: Option<f64>,
    /// Data in flight since ProbeRTT has drained the path, and the excess that the last ProbeRTT
    /// has measured, seconds.
    drained: Option<Flight>,
    drained_excess: f64,
    idle: IdleRtt,
}

/// RTT of packets that were alone in flight, seconds; 0 before the first one.
#[derive(Clone, Copy, Debug, Default)]
struct IdleRtt {
    mean: f64,
    /// Mean deviation from the mean.
    deviation: f64,
    lowest: f64,
}

impl IdleRtt {
    fn add(&mut self, rtt: f64) {
        if self.lowest == 0.0 {
            *self = Self { mean: rtt, deviation: 0.0, lowest: rtt };
        }
        self.deviation += ((rtt - self.mean).abs() - self.deviation) / IDLE_SAMPLES;
        self.mean += (rtt - self.mean) / IDLE_SAMPLES;
        self.lowest = self.lowest.min(rtt);
    }

    /// By how much the mean exceeds the minimum, at most by the minimum itself or by what jitter
    /// explains: a queue of others can be longer.
    fn excess(self) -> f64 {
        (self.mean - self.lowest).min(self.lowest.max(JITTER_DEVIATIONS * self.deviation))
    }
}

/// Data in flight since `start`.
#[derive(Debug, Default)]
struct Flight {
    /// Integral of bytes in flight over time, byte seconds.
    area: f64,
    start: Option<Instant>,
    arrived: u64,
    departed: u64,
}

impl Flight {
    /// Mean time in flight, seconds, once enough packets have left. Little's law needs a steady
    /// state. When the data in flight grows or shrinks, the higher rate is used, so that growth is
    /// not taken for jitter. A growing queue shows only after its packets have arrived.
    fn mean(&self, now: Instant, packet: u64) -> Option<f64> {
        let elapsed = now.since(self.start?).as_secs_f64();
        let mean = self.area / self.arrived.max(self.departed) as f64;
        (self.departed >= MIN_DEPARTURES * packet && elapsed >= mean).then_some(mean)
    }
}

impl FlightExcess {
    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64) {
        self.advance(now, in_flight);
        for flight in self.flights() {
            flight.arrived += bytes;
        }
    }

    pub(super) fn on_feedback(&mut self, sample: &RateSample, packet: u64) {
        self.advance(sample.now, sample.prior_in_flight);
        for flight in self.flights() {
            flight.departed += sample.acked + sample.lost;
        }
        if let Some(rtt) = sample.rtt {
            if sample.prior_in_flight <= IDLE_PACKETS * packet {
                self.idle.add(rtt.as_secs_f64());
            }
            self.fastest = Some(self.fastest.map_or(rtt, |fastest| fastest.min(rtt)));
            self.all = (!sample.jitter.is_zero()).then_some(sample.round_trips);
        }
    }

    /// ProbeRTT has drained the path.
    pub(super) fn on_drained(&mut self, now: Instant) {
        self.drained = Some(Flight { start: Some(now), ..Flight::default() });
    }

    /// ProbeRTT is over; it has measured `lowest` as the minimum RTT.
    pub(super) fn on_filled(&mut self, now: Instant, lowest: Duration, packet: u64) {
        if let Some(mean) = self.drained.take().and_then(|flight| flight.mean(now, packet)) {
            self.drained_excess = (mean - lowest.as_secs_f64()).max(0.0);
        }
    }

    /// Updates the estimate if enough packets have been measured.
    pub(super) fn update(&mut self, now: Instant, packet: u64) {
        let (Some(mean), Some(fastest)) = (self.flight.mean(now, packet), self.fastest) else {
            return;
        };
        // A sample is the mean of longer than this round: a queue that grows would count as jitter.
        let all = self.all.and_then(|all| all.mean_since(self.before, 1));
        self.before = self.all.unwrap_or(self.before);
        let fastest = all.unwrap_or(fastest).as_secs_f64();
        let excess = (mean - fastest).max(0.0);
        self.seconds = Some(match self.seconds {
            None => excess,
            // An outage is not jitter: at most about twice the previous estimate.
            Some(old) if excess > old => {
                old + (excess.min(2.0 * old + fastest / 2.0 + 0.001) - old) / 8.0
            }
            // Probing builds a queue within the round, so lower values have more weight.
            Some(old) => old + (excess - old) / 4.0,
        });
        self.flight = Flight { start: Some(now), ..Flight::default() };
        self.fastest = None;
    }

    /// The estimate, seconds; 0 before the first one.
    pub(super) fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(0.0).max(self.drained_excess).max(self.idle.excess())
    }

    /// Whether there is an estimate.
    pub(super) fn is_known(&self) -> bool {
        self.seconds.is_some()
    }

    fn advance(&mut self, now: Instant, in_flight: u64) {
        // Most packets leave at the same time as another one.
        if self.last == Some(now) {
            return;
        }
        let elapsed = self.last.map_or(0.0, |last| now.since(last).as_secs_f64());
        for flight in self.flights() {
            flight.start.get_or_insert(now);
            flight.area += in_flight as f64 * elapsed;
        }
        self.last = Some(now);
    }

    fn flights(&mut self) -> impl Iterator<Item = &mut Flight> {
        core::iter::once(&mut self.flight).chain(&mut self.drained)
    }
}

/// Random loss: the share of packets lost without a queue.
///
/// It does not depend on the rate. The losses of a queue that overflows do, even if the queue is so
/// short that no delay shows it. If these counted as random loss, the sender would send even more.
/// So what is lost of the packets sent below the estimated bandwidth, after a probe, bounds it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RandomLoss {
    all: Losses,
    low: Losses,
}

impl RandomLoss {
    /// Bytes lost and acknowledged in a round at the estimated bandwidth.
    pub(super) fn add(&mut self, lost: u64, acked: u64, packet: u64) {
        self.all.add(lost, acked, packet);
    }

    /// The same of a round below it.
    pub(super) fn add_low(&mut self, lost: u64, acked: u64, packet: u64) {
        self.low.add(lost, acked, packet);
    }

    pub(super) fn ratio(&self) -> f64 {
        self.all.ratio().min(self.low.bound()).min(MAX_RANDOM_LOSS)
    }

    /// Whether more is lost than below the bandwidth: the rate is too high for the queue.
    pub(super) fn depends_on_rate(&self) -> bool {
        self.all.ratio() > self.low.bound() + LOSS_NOISE
    }
}

/// Packets lost, and packets lost or acknowledged, in the last rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    lost: f64,
    total: f64,
}

impl Losses {
    fn add(&mut self, lost: u64, acked: u64, packet: u64) {
        let packets = |bytes: u64| bytes as f64 / packet as f64;
        self.lost = self.lost * LOSS_MEMORY + packets(lost);
        self.total = self.total * LOSS_MEMORY + packets(lost + acked);
    }

    fn ratio(&self) -> f64 {
        self.lost / self.total.max(1.0)
    }

    /// Upper bound of the ratio: two standard deviations above it. One more counts as lost, because
    /// few packets without a loss prove little.
    fn bound(&self) -> f64 {
        let (lost, total) = (self.lost + 1.0, self.total + 1.0);
        let ratio = lost / total;
        ratio + 2.0 * (ratio / total).sqrt()
    }
}

/// Extra acknowledged bytes: by how much aggregated acknowledgements exceed the delivery rate
/// (draft-ietf-ccwg-bbr, `BBRUpdateACKAggregation`).
#[derive(Debug, Default)]
pub(super) struct ExtraAcked {
    start: Option<Instant>,
    acked: f64,
    extra: MaxFilter,
}

impl ExtraAcked {
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

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 1_000;

    /// One packet leaves each millisecond and is acknowledged 30 ms later; the fastest takes as
    /// long as the others. 30 are in flight.
    fn steady(excess: &mut FlightExcess, from: u64, millis: u64) {
        for at in (from..from + millis).map(Instant::from_millis) {
            excess.on_sent(at, PACKET, 29 * PACKET);
            let sample = RateSample {
                acked: PACKET,
                prior_in_flight: 30 * PACKET,
                in_flight: 29 * PACKET,
                ..RateSample::of_rtt(at, Duration::from_millis(30))
            };
            excess.on_feedback(&sample, PACKET);
        }
        excess.update(Instant::from_millis(from + millis), PACKET);
    }

    #[test]
    fn a_queue_that_grows_is_no_excess_where_samples_are_means_of_longer_than_a_round() {
        let mut excess = FlightExcess::default();
        let (mut all, mut long_mean) = (RttSum::default(), 30.0);
        for millis in 1_000..2_000 {
            let at = Instant::from_millis(millis);
            let rtt = 30.0 + (millis - 1_000) as f64 / 10.0;
            long_mean += (rtt - long_mean) / 128.0;
            let in_flight = rtt as u64 * PACKET;
            excess.on_sent(at, PACKET, in_flight - PACKET);
            all.add(Duration::from_secs_f64(rtt / 1_000.0));
            let sample = RateSample {
                acked: PACKET,
                prior_in_flight: in_flight,
                in_flight: in_flight - PACKET,
                round_trips: all,
                jitter: Duration::from_millis(1),
                ..RateSample::of_rtt(at, Duration::from_secs_f64(long_mean / 1_000.0))
            };
            excess.on_feedback(&sample, PACKET);
            if millis % 100 == 99 {
                excess.update(at, PACKET);
            }
        }
        // The samples are 13 ms behind.
        assert!(excess.seconds() < 0.003, "{}", excess.seconds());
    }

    #[test]
    fn what_all_packets_take_longer_is_a_queue_unless_the_path_is_drained() {
        let lowest = Duration::from_millis(2);
        let mut excess = FlightExcess::default();
        steady(&mut excess, 1_000, 200);
        assert!(excess.seconds() < 0.002, "{}", excess.seconds());
        excess.on_drained(Instant::from_millis(1_200));
        steady(&mut excess, 1_200, 200);
        excess.on_filled(Instant::from_millis(1_400), lowest, PACKET);
        steady(&mut excess, 1_400, 200);
        assert!((excess.seconds() - 0.028).abs() < 0.002, "{}", excess.seconds());
    }

    /// After 100 rounds of 200 packets at the bandwidth and as many below it, of which `at` and
    /// `below` are lost in each.
    fn random_loss(at: u64, below: u64) -> RandomLoss {
        let mut loss = RandomLoss::default();
        for _ in 0..100 {
            loss.add(at * PACKET, (200 - at) * PACKET, PACKET);
            loss.add_low(below * PACKET, (200 - below) * PACKET, PACKET);
        }
        loss
    }

    #[test]
    fn loss_is_random_that_does_not_depend_on_the_rate() {
        let loss = random_loss(10, 10);
        assert!((loss.ratio() - 0.05).abs() < 0.001 && !loss.depends_on_rate(), "{loss:?}");
        let loss = random_loss(20, 0);
        assert!(loss.ratio() < 0.01 && loss.depends_on_rate(), "a short queue: {loss:?}");
        let loss = random_loss(30, 10);
        assert!(loss.ratio() < 0.07 && loss.depends_on_rate(), "both: {loss:?}");
        assert_eq!(RandomLoss::default().ratio(), 0.0);
    }

    #[test]
    fn few_packets_below_the_bandwidth_prove_nothing() {
        let mut loss = RandomLoss::default();
        loss.add(20 * PACKET, 180 * PACKET, PACKET);
        assert!((loss.ratio() - 0.1).abs() < 0.001 && !loss.depends_on_rate(), "{loss:?}");
        loss.add_low(0, 8 * PACKET, PACKET);
        assert!(!loss.depends_on_rate(), "{loss:?}");
    }

    #[test]
    fn one_fast_packet_leaves_the_rest_of_the_jitter_excess() {
        let mut idle = IdleRtt::default();
        (0..100).for_each(|at| idle.add([0.022, 0.028, 0.034, 0.028, 0.021, 0.035][at % 6]));
        idle.add(0.001);
        assert!(idle.excess() > 0.018, "{idle:?}");
        // A queue of others comes and goes more slowly, and is longer than jitter explains.
        let mut idle = IdleRtt::default();
        idle.add(0.001);
        (0..100).for_each(|_| idle.add(0.030));
        assert!(idle.excess() < 0.002, "{idle:?}");
    }

    #[test]
    fn jitter_of_the_idle_path_is_excess() {
        let mut idle = IdleRtt::default();
        (0..100).for_each(|at| idle.add([0.006, 0.004, 0.007, 0.005][at % 4]));
        assert!((idle.excess() - 0.0015).abs() < 0.000_3, "{idle:?}");
        (0..100).for_each(|_| idle.add(0.5));
        assert_eq!(idle.excess(), 0.004, "at most the minimum");
        assert_eq!(IdleRtt::default().excess(), 0.0);
    }

    #[test]
    fn a_drained_path_that_carried_hardly_anything_says_nothing() {
        let mut excess = FlightExcess::default();
        excess.on_drained(Instant::from_millis(1_000));
        steady(&mut excess, 1_000, 7);
        excess.on_filled(Instant::from_millis(1_200), Duration::from_millis(2), PACKET);
        assert_eq!(excess.seconds(), 0.0);
    }
}
