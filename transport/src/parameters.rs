//! Parameters of the mechanisms of a path, with units, ranges, defaults and sources.

use core::time::Duration;

use mpip_types::{mechanisms, parameters};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

mechanisms! {
    /// The parameters of paths.
    pub struct Parameters {
        /// Congestion control by bandwidth and round-trip time.
        bbr: BbrParameters,
        /// Length of bursts.
        burst: BurstParameters,
        /// Repair of late packets before they count as lost.
        early_repair: EarlyRepairParameters,
        /// The capacity of idle paths.
        capacity: CapacityParameters,
        /// Playout delay on paths with jitter.
        playout: PlayoutParameters,
        /// Shared bottleneck detection.
        bottleneck: BottleneckParameters,
    }
}

parameters! {
    /// Parameters of BBR (draft-ietf-ccwg-bbr, called the draft).
    pub struct BbrParameters {
        /// Gain in Startup: the lowest that lets the rate double in each round trip.
        startup_gain: f64 = 2.77, "times", 1.0..=10.0, "the draft: 4 ln 2";
        /// Packets with which a transfer begins at most, where the path has shown while it was idle
        /// that its bandwidth-delay product is as large; 10 elsewhere (RFC 9002, section 7.2).
        first_window: u64 = 32, "packets", 10.0..=1e6, "senders begin with up to 32: quic-go, content delivery networks";
        /// Pacing gain in Drain.
        drain_gain: f64 = 0.5, "times", 0.1..=1.0, "the draft";
        /// Pacing gain of a bandwidth probe (ProbeBW_UP).
        up_gain: f64 = 1.25, "times", 1.0..=10.0, "the draft";
        /// Pacing gain after a probe, until its queue has drained (ProbeBW_DOWN).
        down_gain: f64 = 0.75, "times", 0.1..=1.0, "BBRv1";
        /// Pacing gain after that, until the round ends.
        drained_gain: f64 = 0.95, "times", 0.1..=1.0, "measured";
        /// Share of the estimated bandwidth that is paced.
        pacing_margin: f64 = 0.99, "share", 0.1..=1.0, "the draft";
        /// Window in bandwidth-delay products.
        window_gain: f64 = 2.0, "times", 1.0..=10.0, "the draft";
        /// The same in ProbeBW_UP.
        up_window_gain: f64 = 2.25, "times", 1.0..=10.0, "the draft";
        /// The same in ProbeRTT.
        probe_rtt_window_gain: f64 = 0.5, "times", 0.1..=10.0, "the draft";
        /// Share of `inflight_hi` that is used between probes.
        headroom: f64 = 0.85, "share", 0.1..=1.0, "the draft";
        /// Smallest factor by which an overflow reduces the bandwidth estimate.
        overflow_factor: f64 = 0.7, "share", 0.1..=1.0, "the draft";
        /// Bursts of deliveries above which the bandwidth-delay product counts as uncertain until
        /// a ProbeRTT has shown the path empty.
        long_burst: Duration = ms(10), "ms", 0.0..=1e6, "measured";
        /// Late rounds in a row after which it counts as uncertain, too.
        late_rounds: u32 = 10, "rounds", 1.0..=1e6, "a cycle of ProbeBW and a few more: a queue of its own has drained";
        /// Share of the random loss that the pacing rate makes up for.
        random_loss_share: f64 = 0.9, "share", 0.0..=1.0, "below 1, so that loss by overload fades";
        /// Rounds without growth after which Startup ends.
        full_rounds: u32 = 3, "rounds", 1.0..=100.0, "the draft";
        /// Growth of the bandwidth per round below which it counts as none.
        full_growth: f64 = 1.25, "times", 1.0..=10.0, "the draft";
        /// Packets lost in a round after which Startup may end, before the round is over if they
        /// waited in a queue; ranges of consecutive packets if not.
        startup_losses: u64 = 6, "packets", 1.0..=1e6, "the draft: BBRStartupFullLossCnt";
        /// Share of the packets of a round that are lost, beyond the random loss, from which the
        /// rate is too high although none of them waited in a queue: a queue of a few packets does
        /// not delay them. It drops some of every burst of the sender, while a burst of loss takes
        /// many packets at once. In Startup one round is enough, later `slower_rounds`.
        flood: f64 = 0.2, "share", 0.0..=1.0, "what a probe sends in excess: 1 - 1 / `up_gain`";
        /// The path is the limit in Startup if its packets take this many times as long to arrive
        /// as to leave, and two mean deviations of the RTT.
        stretch: f64 = 1.25, "times", 1.0..=1e6, "as `full_growth`";
        /// Fewest packets from which `stretch` and `flood` judge a round.
        late_packets: u64 = 16, "packets", 1.0..=1e6, "measured";
        /// Growth in two probes in a row after which Startup begins again.
        wider_growth: f64 = 1.12, "times", 1.0..=1e6, "measured";
        /// Approximate number of rounds between two probes.
        cruise_rounds: u32 = 5, "rounds", 2.0..=1_000.0, "BBRv1: 6";
        /// Longest duration of a round, in flight times.
        max_round: f64 = 2.0, "times", 1.0..=1e6, "measured";
        /// A path with a queue that delivers less than this share of the estimated bandwidth has
        /// become slower.
        slower: f64 = 0.5, "share", 0.0..=1.0, "measured";
        /// Rounds in a row after which this is believed.
        slower_rounds: u32 = 2, "rounds", 1.0..=1e6, "measured";
        /// Paths that share a bottleneck act as one flow.
        groups: bool = true, "", 0.0..=1.0, "seed 002";
        /// Follows CUBIC beside a loss-based flow that keeps the queue full.
        competes: bool = true, "", 0.0..=1.0, "Copa; seed 002";
        /// Random loss above which no loss-based flow can fill the queue.
        rival_max_loss: f64 = 0.004, "share", 0.0..=1.0, "RFC 8312, section 5.2: 20 packets";
        /// A flow that delivers less than this share of its former bandwidth has been displaced by
        /// a rival.
        displaced: f64 = 0.7, "share", 0.0..=1.0, "measured";
    }
}

parameters! {
    /// Parameters of the length of bursts.
    pub struct BurstParameters {
        /// Shortens bursts on paths whose queues do not hold them.
        enabled: bool = true, "", 0.0..=1.0, "measured";
        /// Packets lost without a queue by which a length is judged.
        losses: u64 = 24, "packets", 1.0..=1e6, "random loss reaches `share` in 1 of 7,000 cases";
        /// Share of them from the rear halves of bursts, from which bursts become shorter.
        share: f64 = 0.85, "share", 0.5..=1.0, "of random loss, a half is";
        /// Time after which bursts twice as long are tried again.
        again: Duration = ms(60_000), "ms", 1.0..=1e9, "routes seldom change";
        /// Delay of a call up to which a sender that waited for it makes up for it, beside a burst;
        /// at most half of the minimum RTT, or 64 KiB at the pacing rate.
        late: Duration = ms(8), "ms", 0.0..=1_000.0, "two other programs' turns on a processor";
    }
}

parameters! {
    /// Parameters of the repair of late packets.
    pub struct EarlyRepairParameters {
        /// Mean deviations of the RTT by which a packet is late that is sent again, at most the
        /// reordering window.
        deviations: f64 = 3.0, "deviations", 0.0..=1e6, "of normal jitter, 1 packet in 120 is as late";
    }
}

parameters! {
    /// Parameters of how the capacity of idle paths is measured.
    pub struct CapacityParameters {
        /// Measures it.
        enabled: bool = true, "", 0.0..=1.0, "measured";
        /// Large trains that are wanted; every other heartbeat is long until there are so many.
        wanted: u32 = 3, "trains", 0.0..=4.0, "the fastest of three has met little jitter";
        /// Long heartbeats at most.
        long: u32 = 6, "datagrams", 0.0..=1_000.0, "twice what is wanted, as some are lost";
        /// Mean deviations of small trains' delay by which a large one has to be later.
        deviations: f64 = 4.0, "deviations", 0.0..=100.0, "an estimate that jitter made too low costs more than none";
        /// Age up to which trains are compared.
        window: Duration = ms(10_000), "ms", 1.0..=100_000.0, "clocks drift by 1 ms at most (100 ppm)";
        /// Smallest difference of two trains that counts.
        resolution: Duration = Duration::from_micros(100), "ms", 0.001..=1_000.0, "hosts time packets no better";
    }
}

parameters! {
    /// Parameters of the playout delay on paths with jitter.
    pub struct PlayoutParameters {
        /// Mean deviation of the one-way delay from which a path counts as jittery.
        jitters_from: Duration = Duration::from_micros(2_500), "ms", 0.0..=1e6, "RFC 9406, section 4.3: 4 ms";
        /// Mean deviation below which it no longer does.
        jitters_until: Duration = Duration::from_micros(1_500), "ms", 0.0..=1e6, "measured";
        /// Weight of a period in the moving average, as a divisor.
        average: u32 = 8, "", 1.0..=1_000.0, "measured";
        /// Playout delay beyond the mean delay, in mean deviations.
        deviations: f64 = 1.25, "deviations", 0.0..=10.0, "one standard deviation";
    }
}

parameters! {
    /// Parameters of shared bottleneck detection.
    pub struct BottleneckParameters {
        /// Smallest standard deviation of the delay for a decision.
        least_deviation: Duration = ms(2), "ms", 0.0..=1e6, "a host's own pauses";
        /// Variance of the difference divided by the sum of variances, below which paths share a
        /// queue.
        same: f64 = 0.2, "share", 0.0..=2.0, "measured";
        /// The same ratio, above which they do not.
        different: f64 = 0.5, "share", 0.0..=2.0, "measured";
    }
}
