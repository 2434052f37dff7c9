//! Parameters of the engine's mechanisms, with units, ranges, defaults and sources.
//!
//! Nodes use the defaults. Other values are for measurements: `mpip-lab ablate` switches mechanisms
//! off one at a time. `docs/engine.md` has the table.

use core::time::Duration;

use mpip_types::{mechanisms, parameters};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

mechanisms! {
    /// The parameters of an engine.
    pub struct Parameters {
        /// The scheduler `earliest`.
        earliest: EarliestParameters,
        /// Fills cheaper paths first.
        spill: SpillParameters,
        /// Leaves out paths that cost more than they carry (scheduler `earliest`).
        guard: GuardParameters,
        /// Puts paths on standby whose loss reaches a threshold (`loss_policy = "threshold"`).
        loss_standby: LossStandbyParameters,
        /// CoDel on the send queue.
        codel: QueueParameters,
        /// Adaptation of CoDel's target and interval to the paths.
        codel_tuning: CodelTuningParameters,
        /// Thins acknowledgements while an inner TCP is in slow start on paths of unequal delay.
        thinning: ThinningParameters,
        /// Aggregates acknowledgements for BBR senders that know the RTT of a near path only.
        aggregation: AggregationParameters,
        /// Raises the minimum RTT that such senders know.
        raise: RaiseParameters,
        /// Which packets carry a playout time on a path with jitter.
        even_delay: EvenDelayParameters,
        /// Recognition of transport protocols inside UDP.
        udp_transport: UdpTransportParameters,
        /// Recognition of interactive flows.
        interactive: InteractiveParameters,
        /// How many copies of a packet are sent by `copies = "adaptive"`.
        copies: CopyParameters,
        /// Retransmission by mpip.
        repair: RepairParameters,
        /// Copies by a path that has nothing to send.
        overtaking: OvertakingParameters,
        /// When a single session falls back to plain IP.
        fall_back: FallBackParameters,
        /// Resequencing timeout advertised to the peer.
        resequencing: ResequencingParameters,
        /// Delivery in order of what is not TCP.
        release: ReleaseParameters,
        nested:
        /// Parameters of paths.
        transport: mpip_transport::Parameters,
    }
}

parameters! {
    /// Parameters of the scheduler `earliest`.
    pub struct EarliestParameters {
        /// Waits for a faster path with a full window, instead of sending on a slower one, if the
        /// packet then arrives earlier.
        waits: bool = true, "", 0.0..=1.0, "BLEST, ECF";
        /// Adds the mean wait for retransmissions to the delay of a lossy path.
        counts_repair: bool = true, "", 0.0..=1.0, "measured";
        /// Mean deviations added to the one-way delay.
        jitter_weight: f64 = 1.0, "deviations", 0.0..=10.0, "measured";
        /// Extra one-way delay from which on a path counts as far.
        far: Duration = ms(100), "ms", 0.0..=10_000.0, "measured";
        /// Uses a slower path for a backlog only while a faster one is in BBR's Startup, however
        /// long the busy period is.
        awaits_growth: bool = true, "", 0.0..=1.0, "measured";
        /// Leaves a slower path unused while what it carries in a time as long as the busy period
        /// is less than what the faster ones carry while its packets are waited for.
        weighs: bool = true, "", 0.0..=1.0, "measured";
        /// A far path whose rate is not known yet is used only in busy periods this many times as
        /// long as those that a known one needs.
        search_patience: u32 = 4, "times", 1.0..=100.0, "measured";
    }
}

parameters! {
    /// When paths of a higher cost are used beside cheaper ones.
    pub struct SpillParameters {
        /// Time that the cheaper paths need for what is queued from which on the next dearer ones
        /// are used as well.
        spill_after: Duration = ms(50), "ms", 1.0..=10_000.0, "longer than a burst of an inner TCP, shorter than people notice";
        /// While a cheaper path is in slow start, that must hold for so many of its round trips.
        search_patience: u32 = 4, "round trips", 0.0..=100.0, "its rate doubles in each";
        /// Round trips from one opening of a tier to the next.
        settle: u32 = 2, "round trips", 0.0..=100.0, "feedback on the first packets, and on what followed";
        /// Share of what the cheaper paths deliver from which on they are full.
        full: f64 = 0.9, "share", 0.0..=1.0, "an inner BBR leaves a few percent free, and probes";
        /// Time for which they are full from which on the next dearer ones are used as well.
        full_for: Duration = ms(1_000), "ms", 100.0..=100_000.0, "several cycles of an inner BBR";
        /// Share of what the cheaper paths deliver up to which they can carry everything.
        spare: f64 = 0.8, "share", 0.0..=1.0, "less than `full`, so that one does not undo the other";
        /// Dearer paths are given up after the cheaper ones could have carried everything for so
        /// long, and for two round trips.
        keep: Duration = ms(500), "ms", 0.0..=100_000.0, "five periods, so that a gap between two bursts ends nothing";
    }
}

parameters! {
    /// Parameters of the guard.
    pub struct GuardParameters {
        /// Enables the guard.
        enabled: bool = true, "", 0.0..=1.0, "measured";
        /// Periods ignored at the start of a busy period, while the inner TCP still grows. One that
        /// carries more in as many periods than in the time before grows as well.
        start: u32 = 5, "periods", 0.0..=100.0, "measured";
        /// Periods of evidence before a trial without a path that carries next to nothing.
        evidence_least: u32 = 10, "periods", 1.0..=1_000.0, "measured";
        /// The same without paths that deliver half of the total.
        evidence_most: u32 = 80, "periods", 1.0..=1_000.0, "measured";
        /// Longest idle time within a busy period.
        stall: u32 = 10, "periods", 0.0..=1_000.0, "the longest resequencing timeout";
        /// Periods for which nothing is tried while the minimum RTT of a sender is being raised.
        held_most: u32 = 600, "periods", 0.0..=1e6, "knowing it takes 10 s, growing takes longer";
        /// Extra delay beyond the earliest path below which a path does no harm.
        suspect: Duration = ms(30), "ms", 0.0..=10_000.0, "measured";
        /// A path in BBR's Startup is no suspect until it has carried something for this long and
        /// delivered hardly more: what it can carry is not known.
        search: Duration = ms(3_000), "ms", 0.0..=100_000.0, "three round trips of 1 s";
        /// Mean inner bytes per period below which a path counts as unused.
        unused: u64 = 300, "bytes", 0.0..=1e6, "two heartbeats";
        /// Harm is suspected if all paths carry less than this share of what the remaining ones
        /// deliver.
        harm: f64 = 0.9, "share", 0.0..=1.0, "headers take 4 %, and rates vary by as much";
        /// Below this share, the transfer is limited by the application.
        least: f64 = 0.05, "share", 0.0..=1.0, "measured";
        /// Gain from which a set of paths is better.
        better: f64 = 1.04, "times", 1.0..=10.0, "headers take 4 %";
        /// Share below which a trial ends early.
        hopeless: f64 = 0.75, "share", 0.0..=1.0, "measured";
        /// Periods after which a trial may end early.
        hopeless_after: u32 = 10, "periods", 1.0..=1_000.0, "measured";
        /// Periods measured in a trial.
        trial: u32 = 16, "periods", 1.0..=1_000.0, "measured";
        /// Factor of the trial's length for a returning path that does neither good nor harm.
        return_patience: u32 = 4, "times", 1.0..=100.0, "measured";
        /// Share below which a returning path does harm.
        harmless: f64 = 0.97, "share", 0.0..=1.0, "measured";
        /// Leaves out one more suspect after each trial in vain.
        escalates: bool = true, "", 0.0..=1.0, "the slowest path is not always the harmful one";
        /// Shortest time before the measurement of a trial, in which data in flight arrives.
        settle_least: Duration = ms(500), "ms", 0.0..=10_000.0, "measured";
        /// Longest such time.
        settle_most: Duration = ms(1_500), "ms", 0.0..=10_000.0, "measured";
        /// First pause after a trial in vain; it doubles.
        again: Duration = ms(5_000), "ms", 0.0..=1e6, "measured";
        /// First pause before a path that was left out is tried again; it doubles.
        pause: Duration = ms(20_000), "ms", 0.0..=1e6, "measured";
        /// Longest pause.
        pause_most: Duration = ms(300_000), "ms", 0.0..=1e7, "measured";
        /// A path that delivers less than this share of the others' is a trickle.
        trickle: f64 = 0.04, "share", 0.0..=1.0, "cannot add what `better` asks";
        /// The first pause of a trickle is this many times as long.
        trickle_pause: u32 = 4, "times", 1.0..=100.0, "measured";
        /// Idle time after which measurements of a path are those of the empty path.
        quiet: Duration = ms(10_000), "ms", 0.0..=1e6, "30 heartbeats";
        /// Periods for which a path must have improved before it returns.
        steady: u32 = 20, "periods", 0.0..=1_000.0, "measured";
        /// Share of their former rate below which the remaining paths have become slower.
        worse: f64 = 0.7, "share", 0.0..=1.0, "measured";
    }
}

parameters! {
    /// When a path is on standby for its loss, and when it returns (`loss_policy = "threshold"`).
    pub struct LossStandbyParameters {
        /// Time in which packets and losses count.
        window: Duration = ms(4_000), "ms", 100.0..=1e6, "as for the loss in the status";
        /// The longest, for a threshold of less than one packet in that time.
        longest: Duration = ms(60_000), "ms", 100.0..=1e6, "10,000 packets for 0.01 %, at 2 Mbit/s";
        /// Packets from which on their loss counts.
        enough: u32 = 100, "packets", 1.0..=1e6, "one lost of fewer is no share of 1 %";
        /// A loss is not the link's while the queuing delay exceeds this and four mean deviations
        /// of the delay.
        queued: Duration = ms(10), "ms", 0.0..=10_000.0, "TCP Veno: 3 packets in the queue; here 8 at 10 Mbit/s";
        /// Nothing counts for so long after a path came, went on standby or returned.
        settle: Duration = ms(1_000), "ms", 0.0..=100_000.0, "windows of coupled controls settle";
        /// Interval of probes on standby, unless the path is metered or at rest.
        probe: Duration = ms(25), "ms", 5.0..=300.0, "`clean` in 2 s; 25 kbit/s";
        /// Packets on standby whose loss decides about the way back.
        clean: u32 = 80, "packets", 1.0..=1e6, "without a loss by chance once in 4,000 times at 10 %";
        /// A path returns when it loses less than this part of its threshold.
        back: f64 = 0.5, "share", 0.0..=1.0, "hysteresis; the seed has no way back";
        /// A path that is on standby again within this time needs twice as many packets.
        relapse: Duration = ms(10_000), "ms", 0.0..=1e6, "shorter than the changes that are worth following";
        /// At most so many.
        clean_most: u32 = 4_096, "packets", 1.0..=1e6, "two minutes of probes";
    }
}

parameters! {
    /// Parameters of CoDel (RFC 8289).
    pub struct QueueParameters {
        /// Acceptable standing queue delay.
        target: Duration = ms(5), "ms", 0.0..=10_000.0, "RFC 8289, section 4.3";
        /// Time above the target before a signal.
        interval: Duration = ms(100), "ms", 1.0..=10_000.0, "RFC 8289, section 4.4";
        /// Adds the sojourn time to the interval between signals where paths are left out or have
        /// unequal delay.
        patient: bool = true, "", 0.0..=1.0, "measured";
        /// A session's turn is what the paths deliver in this time, at least a full frame.
        turn: Duration = Duration::from_micros(100), "ms", 0.0..=1_000.0, "a turn of 12 kB at 1 Gbit/s: segments of a session leave in few messages and stay together";
    }
}

parameters! {
    /// Adaptation of CoDel to the paths. Each session has its own queue.
    pub struct CodelTuningParameters {
        /// Longest target while paths are in slow start: two RTTs, at most this. Least target while
        /// the guard tries to do without some of the paths.
        growth: Duration = ms(300), "ms", 0.0..=10_000.0, "measured";
        /// Longest target for unequal path delays, for jitter, for long round trips, and for what
        /// paths in slow start will take.
        spread_most: Duration = ms(1_000), "ms", 0.0..=10_000.0, "the longest resequencing timeout";
        /// Target in minimum RTTs of the farthest path, so that paths stay full when CUBIC has
        /// reduced its window after a signal.
        reserve: f64 = 0.43, "RTTs", 0.0..=10.0, "RFC 9438, section 4.6: 1 / 0.7 - 1";
        /// Jitter that a path's own traffic causes.
        own_jitter: Duration = ms(2), "ms", 0.0..=1_000.0, "measured";
        /// Mean deviations of the delay by which packets count as late.
        late: f64 = 4.0, "deviations", 0.0..=100.0, "RFC 9002, section 6.2.1";
        /// Difference of path delays that an inner TCP takes for a queue.
        misleading: Duration = ms(4), "ms", 0.0..=100_000.0, "RFC 9406, section 4.3";
        /// Longest interval: twice the inner TCP's reaction time, at most this.
        interval_most: Duration = ms(2_000), "ms", 0.0..=10_000.0, "measured";
        /// Where delays are unequal, a delay longer than the target by this part of the interval
        /// gets its first signal at once, if that is a mark (ECN).
        runaway: f64 = 0.25, "intervals", 0.0..=1_000.0, "half of a reaction time";
    }
}

parameters! {
    /// Parameters of acknowledgement thinning.
    pub struct ThinningParameters {
        /// Enables acknowledgement thinning.
        enabled: bool = true, "", 0.0..=1.0, "measured";
        /// Difference of path delays above which it is active also when no path is in Startup.
        uneven: Duration = ms(1), "ms", 0.0..=10_000.0, "measured";
        /// Share of packets that a far path (`earliest.far`) in slow start loses from which on it
        /// is not active.
        lossy: f64 = 0.05, "share", 0.0..=1.0, "measured";
        /// Data that may wait for paths in slow start, in windows of these.
        ahead: f64 = 14.0, "windows", 0.0..=1_000.0, "three round trips, in each of which they double";
        /// The same in round trips at the rate that a path has shown while it was idle, if that is
        /// less.
        round_trips: f64 = 3.0, "round trips", 0.0..=1_000.0, "as `ahead`";
        /// Part of a round trip for which an acknowledgement of QUIC or a VPN is withheld at most.
        patience: u32 = 4, "parts", 1.0..=1_000.0, "measured";
        /// The same when nothing more is in flight, and none will follow.
        tail: u32 = 16, "parts", 1.0..=1_000.0, "those of one flight arrive together";
        /// Longest time for which acknowledgements of what follows a tail loss probe wait for the
        /// receiver's report on it, which they may overtake.
        report: Duration = ms(10), "ms", 0.0..=1_000.0, "more than the jitter of most paths";
        /// So little in flight belongs to probes and heartbeats.
        rest: u32 = 1_000, "bytes", 0.0..=100_000.0, "less than a full packet";
    }
}

parameters! {
    /// Parameters of the aggregation of acknowledgements.
    pub struct AggregationParameters {
        /// Enables it.
        enabled: bool = true, "", 0.0..=1.0, "measured";
        /// Rounds between two aggregates.
        rounds: u32 = 4, "rounds", 1.0..=100.0, "BBR keeps the largest one for five";
        /// Acknowledgements are dropped for this many times the part of the RTT that exceeds twice
        /// the minimum RTT.
        excess: u32 = 4, "times", 1.0..=100.0, "measured";
        /// Longest time in which acknowledgements are dropped.
        longest: Duration = ms(100), "ms", 0.0..=1_000.0, "`bbr_extra_acked_max_us`";
        /// Aggregates after which the sender must have become faster.
        trial: u32 = 8, "aggregates", 1.0..=100.0, "BBR probes for a higher rate every 8 rounds";
        /// Growth of the rate that counts as faster.
        gain: f64 = 1.2, "times", 1.0..=10.0, "BBR probes with 1.25 times its rate";
        /// Aggregates in a row after which a sender that answers with bursts is left alone.
        bursts: u32 = 2, "aggregates", 1.0..=100.0, "measured";
        /// An aggregate shows whether a sender paces if it covers this many times what the sender
        /// sends in the 2 ms in which bursts are answered.
        telling: f64 = 4.0, "times", 0.0..=100.0, "a burst is more than half of the aggregate";
        /// First pause after a trial in vain; it doubles.
        pause: Duration = ms(5_000), "ms", 0.0..=1e6, "measured";
        /// Longest pause.
        pause_most: Duration = ms(60_000), "ms", 0.0..=1e7, "measured";
    }
}

parameters! {
    /// Parameters of raising the minimum RTT that a BBR sender knows.
    pub struct RaiseParameters {
        /// Enables it.
        enabled: bool = true, "", 0.0..=1.0, "measured";
        /// The RTT may exceed twice the minimum RTT by what aggregates make up for, and by so much
        /// at most.
        margin: Duration = ms(80), "ms", 0.0..=1_000.0, "`bbr_extra_acked_max_us`";
        /// Near paths are full if they carry this share of what they deliver.
        full: f64 = 0.7, "share", 0.0..=1.0, "BBR delivers 0.75 of its rate after a probe";
        /// Share of an aggregate by which the bytes in flight grow meanwhile if the window does not
        /// limit the sender. BBR's window has room for as much as is in flight.
        room: f64 = 0.125, "share", 0.0..=1.0, "measured";
        /// Weight of a period in the average of the rate.
        weight: f64 = 0.125, "share", 0.001..=1.0, "BBR's probes of a higher rate last 8 rounds";
        /// A path counts that takes longer than the nearest by this share of the minimum RTT.
        farther: f64 = 0.5, "share", 0.0..=1e6, "measured";
        /// A path counts that delivers this share of what the nearer ones do.
        worth: f64 = 0.1, "share", 0.0..=1.0, "measured";
        /// Time after which it begins: since near paths are full and nothing waits for them, or,
        /// where a far path's RTT is seen, since the transfer began.
        after: Duration = ms(2_000), "ms", 0.0..=1e6, "a short transfer is over";
        /// Growth of the rate in so many periods that shows that the current path is not full yet.
        growth: f64 = 1.05, "times", 1.0..=10.0, "measured";
        /// See `growth`.
        patience: u32 = 8, "periods", 1.0..=1_000.0, "BBR probes for a higher rate every 8 rounds";
        /// Longest time for which packets are held.
        longest: Duration = ms(400), "ms", 0.0..=500.0, "a receiver holds none for more than 500 ms";
        /// A minimum RTT counts as raised from this many times that before on.
        raised: f64 = 1.5, "times", 1.0..=100.0, "a near path's minimum varies less";
        /// A rate below this share of that before counts as slower, until the minimum RTT is raised
        /// and for 10 s at most.
        least: f64 = 0.8, "share", 0.0..=1.0, "BBR delivers 0.75 of its rate after a probe";
        /// Periods in a row with a slower rate that end it.
        periods: u32 = 2, "periods", 1.0..=100.0, "one may be BBR's probe of the RTT";
        /// Time after which the sender must have become faster.
        trial: Duration = ms(30_000), "ms", 0.0..=1e6, "BBR keeps a minimum RTT for 10 s";
        /// Growth of the rate that counts as faster.
        gain: f64 = 1.1, "times", 1.0..=10.0, "measured";
        /// Pause after it was ended.
        pause: Duration = ms(60_000), "ms", 0.0..=1e7, "measured";
    }
}

parameters! {
    /// Which packets carry a playout time on a path with jitter.
    pub struct EvenDelayParameters {
        /// Shortest packet with a playout time.
        bulk: u32 = 1_000, "bytes", 0.0..=100_000.0, "part of a transfer, not of an exchange";
    }
}

parameters! {
    /// Recognition of transport protocols inside UDP.
    pub struct UdpTransportParameters {
        /// Puts their packets in order, and repairs them.
        enabled: bool = true, "", 0.0..=1.0, "RFC 9002, section 6.1";
        /// Shortest IP packet that counts as full.
        full: u32 = 1_000, "bytes", 0.0..=100_000.0, "RFC 9000, section 14: 1,200 of UDP payload";
    }
}

parameters! {
    /// Recognition of interactive flows: they send little, in small packets.
    pub struct InteractiveParameters {
        /// Gives them the priority `response` where no rule says which.
        enabled: bool = true, "", 0.0..=1.0, "measured";
        /// Longest interactive packet, an IP packet.
        small: u32 = 300, "bytes", 0.0..=100_000.0, "voice has at most 200 (seed 000, section 4.3)";
        /// Rate that a flow may have.
        rate: u32 = 20_000, "bytes/s", 1.0..=1e9, "voice of 64 kbit/s in packets of 20 ms has 10,000";
        /// Bytes that it may send at once.
        burst: u32 = 4_000, "bytes", 0.0..=1e9, "a fifth of a second at that rate";
        /// A path on which a full packet takes longer than this is kept clear of bulk traffic while
        /// there are interactive flows, unless it is all there is.
        slow: Duration = ms(20), "ms", 1.0..=10_000.0, "the interval of voice packets";
        /// It must deliver less than this share of what all paths do.
        clear_share: f64 = 0.2, "share", 0.0..=1.0, "what bulk traffic loses by it";
        /// Time for which it is kept clear after an interactive packet.
        keeps_clear: Duration = ms(1_000), "ms", 0.0..=1e6, "measured";
        /// After this time it carries bulk traffic for as long as `keeps_clear`, to see what it
        /// delivers.
        looks_again: Duration = ms(20_000), "ms", 1.0..=1e6, "measured";
        /// Time by which packets of priority `response` may be ahead of the upper rate of a path,
        /// beside a burst. Then they take another path, or wait.
        ahead: Duration = ms(50), "ms", 0.0..=1_000.0, "more than a round of voice, keystrokes and DNS; a rate is measured over seconds";
    }
}

parameters! {
    /// How many copies of a packet are sent by `copies = "adaptive"`.
    pub struct CopyParameters {
        /// The product of the losses of the paths that are used falls below this.
        loss: f64 = 0.001, "share", 0.0..=1.0, "speech: losses below it are not heard";
        /// Jitter of the fastest path from which on there is at least one copy.
        jitter: Duration = ms(10), "ms", 0.0..=10_000.0, "half of what a packet of speech holds";
        /// Most paths.
        most: u32 = 4, "paths", 1.0..=8.0, "each one more costs the whole rate once more";
    }
}

parameters! {
    /// Parameters of retransmission.
    pub struct RepairParameters {
        /// Age from which a lost packet is not retransmitted: a TCP sender has done so itself.
        longest: Duration = ms(1_000), "ms", 0.0..=100_000.0, "RFC 6298, section 2.4";
        /// Tail loss probe: retransmits the newest packet of a path that does not answer on another
        /// path.
        probes_tail: bool = true, "", 0.0..=1.0, "RFC 9002, section 6.2.4";
        /// Time after an outage in which CoDel gives no signal.
        outage_pardon: Duration = ms(500), "ms", 0.0..=10_000.0, "measured";
        /// Drops a TCP retransmission while packets of its session are queued.
        drops_waiting: bool = true, "", 0.0..=1.0, "measured";
        /// Idle gaps shorter than this do not end a busy period.
        pause: Duration = ms(20), "ms", 0.0..=10_000.0, "measured";
    }
}

parameters! {
    /// Copies by an idle path of what other paths would deliver later.
    pub struct OvertakingParameters {
        /// Sends them when nothing waits.
        enabled: bool = true, "", 0.0..=1.0, "random links";
        /// Bytes in flight up to which a path is idle.
        idle: u32 = 3_000, "bytes", 0.0..=1e9, "two packets: acknowledgements of the other direction";
        /// Time that a copy has to save, as a share of the idle path's RTT.
        saves: f64 = 0.5, "times", 0.0..=100.0, "random links";
    }
}

parameters! {
    /// When a single TCP session of a peer in host mode falls back to plain IP (seed 000, section
    /// 3.7.2).
    pub struct FallBackParameters {
        /// Enables it.
        enabled: bool = true, "", 0.0..=1.0, "seed 000, section 3.7.2";
        /// How often the inner TCP repeats the same segment before.
        repeats: u32 = 2, "repeats", 1.0..=100.0, "one is a loss that mpip did not repair, or a slow answer";
        /// Time from the first repeat to the one with which the session falls back, at least.
        after: Duration = ms(1_000), "ms", 100.0..=100_000.0, "longer than a path takes to fail (500 ms) and repairs take";
    }
}

parameters! {
    /// Parameters of the resequencing timeout.
    pub struct ResequencingParameters {
        /// Shortest timeout: it covers the failure of a path.
        least: Duration = ms(100), "ms", 0.0..=10_000.0, "measured";
        /// Longest timeout.
        most: Duration = ms(1_000), "ms", 0.0..=10_000.0, "RFC 6298, section 2.4";
        /// Successive retransmissions that the timeout covers.
        repairs: u32 = 3, "repairs", 0.0..=100.0, "measured";
    }
}

parameters! {
    /// How fast packets are delivered in order where the receiver is not TCP: an application reads
    /// datagrams one by one, and what its socket buffer does not hold is lost.
    pub struct ReleaseParameters {
        /// Packets of a burst.
        burst: u32 = 64, "packets", 1.0..=1e6, "Linux's default socket buffer holds 92 full packets, quic-go's queue 256";
        /// Time from one burst to the next.
        interval: Duration = ms(1), "ms", 0.0..=1_000.0, "an application reads 100 in it";
        /// A burst has this many times as many packets as arrived in each of the last two
        /// intervals, if that is more than `burst`.
        gain: u32 = 2, "times", 1.0..=100.0, "the backlog of a flow that is faster than the bursts becomes less";
    }
}
