//! What can be switched off.

/// A mechanism, or a part of one.
#[derive(Debug)]
pub(super) struct Heuristic {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// The parameters without it.
    pub(super) off: &'static [&'static str],
}

const fn heuristic(
    name: &'static str,
    what: &'static str,
    off: &'static [&'static str],
) -> Heuristic {
    Heuristic { name, what, off }
}

/// All of them.
pub(super) const HEURISTICS: &[Heuristic] = &[
    heuristic(
        "aggregation",
        "aggregates of acknowledgements for BBR senders",
        &["aggregation.enabled=0"],
    ),
    heuristic("raise", "... and raising the minimum RTT that they know", &["raise.enabled=0"]),
    heuristic("raise-near", "... and those that keep to a near path", &["raise.farther=1000000"]),
    heuristic("thinning", "acknowledgement thinning in slow start", &["thinning.enabled=0"]),
    heuristic("probe-report", "... and waiting for reports on probes", &["thinning.report=0"]),
    heuristic("codel-patience", "CoDel waits for the answer to a signal", &["codel.patient=0"]),
    heuristic("codel-growth", "... and while paths start", &["codel_tuning.growth=0"]),
    heuristic("codel-spread", "... and with unequal delay", &["codel_tuning.spread_most=0"]),
    heuristic("codel-reserve", "... and with long round trips", &["codel_tuning.reserve=0"]),
    heuristic(
        "codel-runaway",
        "CoDel signals at once to what runs away",
        &["codel_tuning.runaway=1000"],
    ),
    heuristic(
        "codel-interval",
        "CoDel's interval grows with the round trip",
        &["codel_tuning.interval_most=100"],
    ),
    heuristic(
        "codel-tuning",
        "all of CoDel's tuning",
        &[
            "codel.patient=0",
            "codel_tuning.growth=0",
            "codel_tuning.spread_most=0",
            "codel_tuning.reserve=0",
            "codel_tuning.interval_most=100",
            "codel_tuning.runaway=1000",
        ],
    ),
    heuristic(
        "early-repair",
        "late packets are sent again before they count as lost",
        &["early_repair.deviations=1000000"],
    ),
    heuristic("burst", "shorter bursts where a queue does not hold them", &["burst.enabled=0"]),
    heuristic("rival", "BBR competes with a loss-based flow", &["bbr.competes=0"]),
    heuristic("groups", "BBR on paths of one bottleneck is one flow", &["bbr.groups=0"]),
    heuristic(
        "random-loss",
        "BBR sends what is lost at random in addition",
        &["bbr.random_loss_share=0"],
    ),
    heuristic(
        "stretch",
        "BBR counts packets that arrive slower than they leave in Startup as full use",
        &["bbr.stretch=1000000"],
    ),
    heuristic(
        "slower",
        "BBR forgets the rate of a path that became slower",
        &["bbr.slower_rounds=1000000"],
    ),
    heuristic("bbr-flood", "BBR believes that much more loss is overload", &["bbr.flood=1"]),
    heuristic(
        "wider",
        "BBR starts again on a path that became wider",
        &["bbr.wider_growth=1000000"],
    ),
    heuristic("playout", "delivery times on paths that jitter", &["playout.jitters_from=1000000"]),
    heuristic(
        "release",
        "datagrams that were held are delivered in bursts",
        &["release.burst=1000000"],
    ),
    heuristic("waits", "the scheduler waits for a faster path", &["earliest.waits=0"]),
    heuristic(
        "weighs",
        "... and weighs what a slower one carries against the wait for it",
        &["earliest.weighs=0"],
    ),
    heuristic(
        "awaits-growth",
        "... and sends only a backlog on a slower one while it is in Startup",
        &["earliest.awaits_growth=0"],
    ),
    heuristic(
        "counts-repair",
        "the scheduler counts the wait for repairs",
        &["earliest.counts_repair=0"],
    ),
    heuristic("jitter-weight", "the scheduler counts jitter", &["earliest.jitter_weight=0"]),
    heuristic(
        "search-patience",
        "a far path that searches begins later",
        &["earliest.search_patience=1"],
    ),
    heuristic(
        "overtaking",
        "an idle path copies what others would deliver later",
        &["overtaking.enabled=0"],
    ),
    heuristic("first-window", "a larger first window on fast paths", &["bbr.first_window=10"]),
    heuristic("capacity", "the scheduler knows what an idle path carries", &["capacity.enabled=0"]),
    heuristic("guard", "paths that do harm are left out", &["guard.enabled=0"]),
    heuristic(
        "guard-escalates",
        "... one suspect more after a trial in vain",
        &["guard.escalates=0"],
    ),
    heuristic("guard-search", "... not in BBR's Startup while it grows", &["guard.search=0"]),
    heuristic("guard-trickle", "... a longer pause for a trickle", &["guard.trickle_pause=1"]),
    heuristic(
        "tail-probe",
        "the newest packet of a silent path is sent again",
        &["repair.probes_tail=0"],
    ),
    heuristic(
        "drops-waiting",
        "segments that wait already are dropped",
        &["repair.drops_waiting=0"],
    ),
    heuristic("outage-pardon", "CoDel is silent after an outage", &["repair.outage_pardon=0"]),
];
