//! What tunes the mechanisms of a path: names, units, ranges, defaults and where they come from.

use core::time::Duration;

use mpip_types::{mechanisms, parameters};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

mechanisms! {
    /// The parameters of paths.
    pub struct Parameters {
        /// Congestion control of a path by rate and round-trip time.
        bbr: BbrParameters,
        /// When full packets of a path that jitters are delivered.
        playout: PlayoutParameters,
        /// Which paths share a bottleneck.
        bottleneck: BottleneckParameters,
    }
}

parameters! {
    /// Parameters of BBR (draft-ietf-ccwg-bbr, called the draft).
    pub struct BbrParameters {
        /// Gain in Startup: the lowest that lets the rate double in each round trip.
        startup_gain: f64 = 2.77, "times", 1.0..=10.0, "the draft: 4 ln 2";
        /// Pacing gain in Drain.
        drain_gain: f64 = 0.5, "times", 0.1..=1.0, "the draft";
        /// Pacing gain of a probe.
        up_gain: f64 = 1.25, "times", 1.0..=10.0, "the draft";
        /// Pacing gain after a probe, until its queue is gone.
        down_gain: f64 = 0.75, "times", 0.1..=1.0, "BBRv1";
        /// Pacing gain from then until the round ends.
        drained_gain: f64 = 0.95, "times", 0.1..=1.0, "measured";
        /// Share of the highest rate at which packets leave.
        pacing_margin: f64 = 0.99, "share", 0.1..=1.0, "the draft";
        /// Window in bandwidth-delay products.
        window_gain: f64 = 2.0, "times", 1.0..=10.0, "the draft";
        /// The same in a probe.
        up_window_gain: f64 = 2.25, "times", 1.0..=10.0, "the draft";
        /// The same in ProbeRTT.
        probe_rtt_window_gain: f64 = 0.5, "times", 0.1..=10.0, "the draft";
        /// Share of the safe window that is used between probes.
        headroom: f64 = 0.85, "share", 0.1..=1.0, "the draft";
        /// What at least is left of a rate that overflowed the queue.
        overflow_factor: f64 = 0.7, "share", 0.1..=1.0, "the draft";
        /// After an overflow on a path that jitters, a window of `enough` bandwidth-delay products
        /// is not raised for this long.
        overflow_pause: Duration = ms(10_000), "ms", 0.0..=1e6, "measured";
        /// See `overflow_pause`.
        enough: f64 = 1.4, "times", 0.0..=10.0, "measured";
        /// Jitter from which on that holds.
        long_jitter: Duration = ms(10), "ms", 0.0..=1e6, "measured";
        /// Share of the random loss that is sent in addition.
        random_loss_share: f64 = 0.9, "share", 0.0..=1.0, "below 1, so that loss by overload fades";
        /// Rounds without growth that end Startup.
        full_rounds: u32 = 3, "rounds", 1.0..=100.0, "the draft";
        /// Growth that goes on.
        full_growth: f64 = 1.25, "times", 1.0..=10.0, "the draft";
        /// Packets that have to be lost in a round to end Startup.
        startup_losses: u64 = 6, "packets", 1.0..=1e6, "the draft: BBRStartupFullLossCnt";
        /// Ends Startup within a round on long paths when all its packets are late.
        overshoot: bool = true, "", 0.0..=1.0, "measured";
        /// Flight time from which on that is so.
        long_flight: Duration = ms(100), "ms", 0.0..=1e6, "measured";
        /// Packets that have to be late for it.
        late_packets: u64 = 16, "packets", 1.0..=1e6, "measured";
        /// Time that the round has to have taken.
        late_after: Duration = ms(50), "ms", 0.0..=1e6, "measured";
        /// Counts a queue in Startup as full use although the sender did not use all of the window.
        stalls: bool = true, "", 0.0..=1.0, "measured";
        /// Growth in a probe that begins Startup again, twice in a row.
        wider_growth: f64 = 1.12, "times", 1.0..=1e6, "measured";
        /// Rounds between two probes, about.
        cruise_rounds: u32 = 5, "rounds", 2.0..=1_000.0, "BBRv1: 6";
        /// A queue does not stretch a round beyond this many flight times.
        max_round: f64 = 2.0, "times", 1.0..=1e6, "measured";
        /// A path that queues and delivers less than this share of the rate has become slower.
        slower: f64 = 0.5, "share", 0.0..=1.0, "measured";
        /// Rounds that have to show it.
        slower_rounds: u32 = 2, "rounds", 1.0..=1e6, "measured";
        /// Paths of one bottleneck count as one flow.
        groups: bool = true, "", 0.0..=1.0, "seed 002";
        /// Follows CUBIC beside a flow that keeps the queue full.
        competes: bool = true, "", 0.0..=1.0, "Copa; seed 002";
        /// Loss from which on no loss-based flow fills the queue.
        rival_max_loss: f64 = 0.004, "share", 0.0..=1.0, "RFC 8312, section 5.2: 20 packets";
        /// A flow that delivers less than this share of what it did has lost it to a rival.
        displaced: f64 = 0.7, "share", 0.0..=1.0, "measured";
    }
}

parameters! {
    /// Parameters of the delivery time on paths that jitter.
    pub struct PlayoutParameters {
        /// Mean deviation of the delay from which on a path jitters.
        jitters_from: Duration = Duration::from_micros(2_500), "ms", 0.0..=1e6, "RFC 9406, section 4.3: 4 ms";
        /// Mean deviation below which it does not any more.
        jitters_until: Duration = Duration::from_micros(1_500), "ms", 0.0..=1e6, "measured";
        /// Weight of what a period shows, as a divisor.
        average: u32 = 8, "", 1.0..=1_000.0, "measured";
        /// Deviations beyond the mean after which packets are delivered.
        deviations: f64 = 1.25, "deviations", 0.0..=10.0, "one standard deviation";
    }
}

parameters! {
    /// Parameters of finding shared bottlenecks.
    pub struct BottleneckParameters {
        /// Delay that varies by less says nothing.
        least_deviation: Duration = ms(2), "ms", 0.0..=1e6, "a host's own pauses";
        /// Variance of the difference by the sum of variances below which paths share a queue.
        same: f64 = 0.2, "share", 0.0..=2.0, "measured";
        /// The same above which they do not.
        different: f64 = 0.5, "share", 0.0..=2.0, "measured";
    }
}
