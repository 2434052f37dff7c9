//! What tunes the engine's mechanisms: names, units, ranges, defaults and where they come from.
//!
//! The defaults are what a node runs with. Others are for measurements: `mpip-lab ablate` switches
//! mechanisms off one at a time. `docs/engine.md` has the table.

use core::time::Duration;

use mpip_types::{mechanisms, parameters};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

mechanisms! {
    /// The parameters of an engine.
    pub struct Parameters {
        /// Which path the next packet takes (scheduler `earliest`).
        earliest: EarliestParameters,
        /// Leaves paths out that cost more than they carry (scheduler `earliest`).
        guard: GuardParameters,
        /// CoDel on what waits for a path.
        codel: QueueParameters,
        /// How CoDel's target and interval follow the paths.
        codel_tuning: CodelTuningParameters,
        /// Leaves acknowledgements out while an inner TCP is in slow start on paths of unequal
        /// delay.
        thinning: ThinningParameters,
        /// Which packets of a path that jitters are delivered at a set time.
        even_delay: EvenDelayParameters,
        /// What is sent again, and for how long.
        repair: RepairParameters,
        /// Resequencing timeout that the peer is told.
        resequencing: ResequencingParameters,
        nested:
        /// Of single paths.
        transport: mpip_transport::Parameters,
    }
}

parameters! {
    /// Parameters of the scheduler `earliest`.
    pub struct EarliestParameters {
        /// Waits for a faster path that has no room now, instead of sending on a slower one that
        /// has, if the packet then arrives earlier.
        waits: bool = true, "", 0.0..=1.0, "BLEST, ECF";
        /// Counts the mean wait for repairs to the delay of a path that loses packets.
        counts_repair: bool = true, "", 0.0..=1.0, "measured";
        /// Mean deviations of the one-way delay that are added to it.
        jitter_weight: f64 = 1.0, "deviations", 0.0..=10.0, "measured";
        /// Extra one-way delay from which on a path counts as far.
        far: Duration = ms(100), "ms", 0.0..=10_000.0, "measured";
        /// A far path whose rate is not known yet is used only in busy periods this many times as
        /// long as those that a known one needs.
        search_patience: u32 = 4, "times", 1.0..=100.0, "measured";
    }
}

parameters! {
    /// Parameters of the guard.
    pub struct GuardParameters {
        /// Leaves paths out at all.
        enabled: bool = true, "", 0.0..=1.0, "measured";
        /// Periods of load at its beginning that are ignored: the inner TCP still grows.
        start: u32 = 5, "periods", 0.0..=100.0, "measured";
        /// Periods of load in which a path that still searches for its rate is no suspect.
        search: u32 = 30, "periods", 0.0..=1_000.0, "measured";
        /// For this many times its extra delay a path that searches is a suspect only below
        /// `long_search_share` of what the others deliver.
        long_search: u32 = 40, "times", 0.0..=1_000.0, "measured";
        /// See `long_search`.
        long_search_share: f64 = 0.6, "share", 0.0..=1.0, "measured";
        /// Periods counted before a path that carries next to nothing is left out for a trial.
        evidence_least: u32 = 10, "periods", 1.0..=1_000.0, "measured";
        /// The same where half of what the paths deliver is at stake.
        evidence_most: u32 = 80, "periods", 1.0..=1_000.0, "measured";
        /// Longest pause in the load that belongs to it.
        stall: u32 = 10, "periods", 0.0..=1_000.0, "the longest resequencing timeout";
        /// A path that is later than the earliest one by less does no harm.
        suspect: Duration = ms(30), "ms", 0.0..=10_000.0, "measured";
        /// Mean inner bytes per period below which a path carries nothing that could do harm.
        unused: u64 = 300, "bytes", 0.0..=1e6, "two heartbeats";
        /// Below this share of what the paths that stay deliver, all together do harm.
        harm: f64 = 0.9, "share", 0.0..=1.0, "headers take 4 %, and rates vary by as much";
        /// Below this share the transfer does not ask for all that the paths have.
        least: f64 = 0.05, "share", 0.0..=1.0, "measured";
        /// A transfer that carried this many times more in the last quarter of the evidence still
        /// grows.
        growth: f64 = 1.08, "times", 1.0..=1e6, "measured";
        /// A set of paths is better if it carries this many times more.
        better: f64 = 1.04, "times", 1.0..=10.0, "headers take 4 %";
        /// A trial that carries less than this share ends early.
        hopeless: f64 = 0.75, "share", 0.0..=1.0, "measured";
        /// Periods after which a trial may end early.
        hopeless_after: u32 = 10, "periods", 1.0..=1_000.0, "measured";
        /// Periods that are counted in a trial.
        trial: u32 = 16, "periods", 1.0..=1_000.0, "measured";
        /// A returning path that does neither good nor harm is counted this many times.
        return_patience: u32 = 4, "times", 1.0..=100.0, "measured";
        /// A returning path does harm below this share.
        harmless: f64 = 0.97, "share", 0.0..=1.0, "measured";
        /// After a trial in vain, leaves out one suspect more the next time.
        escalates: bool = true, "", 0.0..=1.0, "measured";
        /// Shortest time until what was on its way when a trial began has arrived.
        settle_least: Duration = ms(500), "ms", 0.0..=10_000.0, "measured";
        /// Longest such time.
        settle_most: Duration = ms(1_500), "ms", 0.0..=10_000.0, "measured";
        /// First pause after a trial without paths that was in vain; it doubles.
        again: Duration = ms(5_000), "ms", 0.0..=1e6, "measured";
        /// First pause until a path that was left out is tried again; it doubles.
        pause: Duration = ms(20_000), "ms", 0.0..=1e6, "measured";
        /// Longest pause.
        pause_most: Duration = ms(300_000), "ms", 0.0..=1e7, "measured";
        /// A path that delivers less than this share of the others' is a trickle.
        trickle: f64 = 0.04, "share", 0.0..=1.0, "cannot add what `better` asks";
        /// The first pause of a trickle is this many times as long.
        trickle_pause: u32 = 4, "times", 1.0..=100.0, "measured";
        /// Time without use after which what is known of a path is of the empty path.
        quiet: Duration = ms(10_000), "ms", 0.0..=1e6, "30 heartbeats";
        /// Periods for which a path has to be better than it was before it returns.
        steady: u32 = 20, "periods", 0.0..=1_000.0, "measured";
        /// Below this share of what they delivered, the paths that stay have become slower.
        worse: f64 = 0.7, "share", 0.0..=1.0, "measured";
    }
}

parameters! {
    /// Parameters of CoDel (RFC 8289).
    pub struct QueueParameters {
        /// Standing delay that is tolerated.
        target: Duration = ms(5), "ms", 0.0..=10_000.0, "RFC 8289, section 4.3";
        /// Time that the delay has to stand above the target before a signal.
        interval: Duration = ms(100), "ms", 1.0..=10_000.0, "RFC 8289, section 4.4";
        /// Spaces signals by the wait in the queue where paths are left out or uneven, as long as
        /// the wait becomes shorter.
        patient: bool = true, "", 0.0..=1.0, "measured";
        /// Signals in a row that shorten the wait by less than an eighth and end the patience.
        patient_signals: u32 = 16, "signals", 1.0..=255.0, "measured";
    }
}

parameters! {
    /// How CoDel is tuned to the paths. Only a session's own packets wait in its queue.
    pub struct CodelTuningParameters {
        /// Target at least this share of the longest round trip: an inner window shrinks by 30 %
        /// after a signal, and the queue has to bridge that.
        rtt_share: f64 = 0.05, "share", 0.0..=1.0, "RFC 9438, section 4.6";
        /// Longest target for paths that are starting: two round trips, but no more.
        growth: Duration = ms(300), "ms", 0.0..=10_000.0, "measured";
        /// Largest target for unequal delay of the paths, and for jitter.
        spread_most: Duration = ms(1_000), "ms", 0.0..=10_000.0, "the longest resequencing timeout";
        /// Jitter that a path's own traffic makes.
        own_jitter: Duration = ms(2), "ms", 0.0..=1_000.0, "measured";
        /// Deviations of the delay by which packets are late.
        late: f64 = 4.0, "deviations", 0.0..=100.0, "RFC 9002, section 6.2.1";
        /// Difference of delays from which on an inner TCP takes them for a queue.
        misleading: Duration = ms(4), "ms", 0.0..=100_000.0, "RFC 9406, section 4.3";
        /// Longest interval: twice the time that the inner TCP takes to answer, but no more.
        interval_most: Duration = ms(2_000), "ms", 0.0..=10_000.0, "measured";
    }
}

parameters! {
    /// Parameters of acknowledgement thinning.
    pub struct ThinningParameters {
        /// Leaves acknowledgements out at all.
        enabled: bool = true, "", 0.0..=1.0, "measured";
        /// Difference of delays from which on it does.
        uneven: Duration = ms(1), "ms", 0.0..=10_000.0, "measured";
        /// Share of packets that a later path loses from which on it does not.
        lossy: f64 = 0.05, "share", 0.0..=1.0, "measured";
    }
}

parameters! {
    /// Which packets leave with a delivery time on a path that jitters.
    pub struct EvenDelayParameters {
        /// Packets of at least this length.
        bulk: u32 = 1_000, "bytes", 0.0..=100_000.0, "part of a transfer, not of an exchange";
        /// The first packets of a session, whatever their length: from them the inner TCP learns
        /// the lowest round trip.
        first: u32 = 32, "packets", 0.0..=1e6, "measured";
        /// Acknowledgements without data do not wait for order while a path jitters.
        acks_pass: bool = true, "", 0.0..=1.0, "measured";
    }
}

parameters! {
    /// Parameters of repair.
    pub struct RepairParameters {
        /// Age from which on a lost packet is not sent again: a TCP sender has sent it itself.
        longest: Duration = ms(1_000), "ms", 0.0..=100_000.0, "RFC 6298, section 2.4";
        /// Sends the newest packet of a path that falls silent again on another.
        probes_tail: bool = true, "", 0.0..=1.0, "RFC 9002, section 6.2.4";
        /// Time after an outage in which CoDel signals nothing.
        outage_pardon: Duration = ms(500), "ms", 0.0..=10_000.0, "measured";
        /// Drops a segment of an inner TCP that waits in the queue already.
        drops_waiting: bool = true, "", 0.0..=1.0, "measured";
        /// Idle gaps shorter than this do not end a busy period.
        pause: Duration = ms(20), "ms", 0.0..=10_000.0, "measured";
    }
}

parameters! {
    /// Parameters of the resequencing timeout.
    pub struct ResequencingParameters {
        /// Shortest timeout: it covers the failure of a path.
        least: Duration = ms(100), "ms", 0.0..=10_000.0, "measured";
        /// Longest timeout.
        most: Duration = ms(1_000), "ms", 0.0..=10_000.0, "RFC 6298, section 2.4";
        /// Repairs, one after the other, for which it is long enough.
        repairs: u32 = 3, "repairs", 0.0..=100.0, "measured";
    }
}
