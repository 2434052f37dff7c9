//! Why a path is used or not.

use mpip_api::{BudgetStatus, LossFigures, PathStatus, PeerStatus, rfc3339};
use serde::Serialize;

use crate::rates::Rate;
use crate::units::{bytes, duration, percent, rate};
use crate::words::{AT_ITS_RATE, Condition, DEAR};

/// Loss, as a share of the packets, from which it is mentioned.
const LOSS: f64 = 0.005;
/// Extra one-way delay, or delay in queues, from which it is mentioned, ms.
const DELAY_MS: f64 = 1.0;
/// Rate from which it is mentioned what a path receives, bit/s: above keepalives and
/// acknowledgements.
const RECEIVED_BPS: u64 = 100_000;
/// Bits of a full Ethernet frame.
const FULL_BITS: f64 = 12_000.0;
/// The daemon's reason for standby that is set on this host.
const OWN_STANDBY: &str = "its interface is on standby";
/// The daemon's reason for standby because of loss.
const LOSES: &str = "its loss reaches its threshold";
/// Share of the data below which a path counts as not needed: what a path gets that is only
/// measured.
const LITTLE: f64 = 0.01;

/// What is known of a path that works.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Smoothed round-trip time.
    pub(crate) rtt_ms: Option<f64>,
    /// One-way delay beyond that of the fastest path.
    pub(crate) later_ms: Option<f64>,
    /// Delay in queues.
    pub(crate) queuing_delay_ms: f64,
    /// Share of packets lost over the last seconds, 0 to 1.
    pub(crate) loss: f64,
    /// What it receives, with all overhead.
    pub(crate) received_bps: u64,
    /// The lowest other path that shares its bottleneck.
    pub(crate) shares_bottleneck_with: Option<u16>,
    /// Whether its data is paid for by amount.
    pub(crate) metered: bool,
    /// What is used of its interface's budget.
    pub(crate) budget: Option<Budget>,
}

/// A budget, and what is used of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Budget {
    pub(crate) used_bytes: u64,
    pub(crate) budget_bytes: u64,
    /// `day` or `month`.
    pub(crate) period: String,
    /// When the period ends, s since the Unix epoch.
    pub(crate) period_ends_unix_s: u64,
}

impl Budget {
    fn of(status: &BudgetStatus) -> Self {
        let BudgetStatus { used_bytes, budget_bytes, period_ends_unix_s, .. } = *status;
        Self { used_bytes, budget_bytes, period: status.period.clone(), period_ends_unix_s }
    }

    fn words(&self) -> String {
        format!("{} of {}/{}", bytes(self.used_bytes), bytes(self.budget_bytes), self.period)
    }

    /// When the period ends.
    fn ends(&self) -> String {
        let time = rfc3339(self.period_ends_unix_s as f64 * 1e3);
        let (date, _) = time.split_once('T').unwrap_or((time.as_str(), ""));
        format!("{date} 00:00 UTC")
    }
}

/// What limits a path that carries data.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "limit", rename_all = "kebab-case")]
pub(crate) enum Limit {
    /// Nothing: it has room.
    Room,
    /// As much as the congestion window permits is in flight.
    Window {
        /// The congestion window.
        window_bytes: u64,
    },
    /// Its upper rate, as configured at either end.
    Rate {
        /// The rate.
        rate_bps: Option<u64>,
        /// Whether the peer's configuration is what limits.
        by_peer: bool,
    },
    /// It is paced.
    Pace {
        /// Rate at which packets may leave.
        pacing_rate_bps: Option<u64>,
    },
}

/// Why a path is used or not. The first cause that applies counts, in this order.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
pub(crate) enum Cause {
    /// It was never answered.
    Unanswered { for_ms: f64, asks_in_ms: Option<f64> },
    /// The state of its interface is `off`.
    Off { for_ms: f64 },
    /// It worked, and does not any more.
    Failed { for_ms: f64, reason: String, asks_in_ms: Option<f64> },
    /// It was given up.
    GivenUp { for_ms: f64, reason: String },
    /// It is on standby because the budget of its interface is used up.
    BudgetUsedUp { for_ms: f64, budget: Budget },
    /// It is on standby for its loss.
    Loses {
        for_ms: f64,
        rtt_ms: Option<f64>,
        #[serde(flatten)]
        figures: LossFigures,
    },
    /// It is on standby.
    Standby { for_ms: f64, reason: String, rtt_ms: Option<f64> },
    /// A state of a newer daemon.
    Other { state: String, reason: String },
    /// The answer to a probe is overdue.
    Overdue { overdue_ms: f64, rtt_ms: Option<f64> },
    /// It harms: the others carry more without it.
    LeftOut { since_ms: f64, with_bps: u64, without_bps: u64, again_in_ms: f64 },
    /// It is measured what the others carry without it.
    TrialWithout { since_ms: f64, with_bps: u64 },
    /// It was left out, and it is measured what all carry with it.
    TrialWith { since_ms: f64, without_bps: u64 },
    /// It is slow, and kept clear for interactive flows.
    KeptClear { delivery_rate_bps: u64 },
    /// Full packets do not fit.
    TooSmall { mtu_bytes: u16, inner_mtu_bytes: u16 },
    /// It is not known yet whether full packets fit.
    MtuUnknown { mtu_bytes: u16, inner_mtu_bytes: u16 },
    /// The host's socket takes no more.
    SocketFull { in_flight_bytes: u64 },
    /// It may not carry full packets, for a reason of a newer daemon.
    Held { reason: String },
    /// Nobody sends anything, and it is silent between keepalives.
    Rests { keepalive_ms: f64 },
    /// It costs more than others, which carry everything.
    Dear { cost: u8, figures: Figures },
    /// There is nothing to send.
    Idle { figures: Figures },
    /// There is, and the scheduler prefers other paths.
    NotChosen { scheduler: String, weight: u16, figures: Figures },
    /// It carries data.
    Carries {
        /// Share of the peer's data that it carries now, 0 to 1.
        share: f64,
        /// Inner data that it carries.
        carried_bps: u64,
        #[serde(flatten)]
        limit: Limit,
        figures: Figures,
    },
}

impl Cause {
    /// Why `path` of `peer` is used or not. `now`: its rates; `all_bps`: the inner data that all
    /// paths of the peer carry. `off`: the state of its interface is `off`; `budget`: that of its
    /// interface.
    pub(crate) fn of(
        peer: &PeerStatus,
        path: &PathStatus,
        now: Rate,
        all_bps: u64,
        off: bool,
        budget: Option<&BudgetStatus>,
    ) -> Self {
        let PathStatus { in_state_ms: for_ms, asks_in_ms, rtt_ms, .. } = *path;
        let reason = || path.reason.clone();
        match path.state.as_str() {
            "failed" | "abandoned" if off => return Self::Off { for_ms },
            "validating" => return Self::Unanswered { for_ms, asks_in_ms },
            "failed" => return Self::Failed { for_ms, reason: reason(), asks_in_ms },
            "abandoned" => return Self::GivenUp { for_ms, reason: reason() },
            "standby"
                if path.reason == OWN_STANDBY
                    && let Some(budget) = budget.filter(|budget| budget.used_up) =>
            {
                return Self::BudgetUsedUp { for_ms, budget: Budget::of(budget) };
            }
            "standby" => {
                let reason = reason();
                return match path.loss_figures.filter(|_| reason == LOSES) {
                    Some(figures) => Self::Loses { for_ms, rtt_ms, figures },
                    None => Self::Standby { for_ms, reason, rtt_ms },
                };
            }
            "active" => {}
            other => return Self::Other { state: other.to_owned(), reason: reason() },
        }
        if let Some(overdue_ms) = path.overdue_ms {
            return Self::Overdue { overdue_ms, rtt_ms };
        }
        held(peer, path).unwrap_or_else(|| working(peer, path, now, all_bps, budget))
    }

    /// How good that is.
    pub(crate) fn condition(&self) -> Condition {
        match self {
            Self::Failed { .. } => Condition::Wrong,
            Self::Rests { .. }
            | Self::Dear { .. }
            | Self::Idle { .. }
            | Self::NotChosen { .. }
            | Self::SocketFull { .. }
            | Self::TrialWith { .. } => Condition::Good,
            Self::Carries { figures, .. } if figures.loss >= 0.05 => Condition::Spare,
            Self::Carries { .. } => Condition::Good,
            _ => Condition::Spare,
        }
    }

    /// Whether the path carries data now.
    pub(crate) fn is_used(&self) -> bool {
        matches!(self, Self::Carries { .. } | Self::TrialWith { .. } | Self::SocketFull { .. })
    }

    /// What follows the name of `path` in the sentence.
    pub(crate) fn why(&self, path: &PathStatus) -> String {
        let time = |ms: &f64| duration(Some(*ms));
        match self {
            Self::Unanswered { for_ms, .. } => {
                let (to, since) = (path.remote.ip(), time(for_ms));
                format!("is not used yet: {to} has not answered for {since}")
            }
            Self::Failed { for_ms, reason, .. } => {
                format!("failed {} ago: {}", time(for_ms), or_unknown(reason))
            }
            Self::Off { for_ms } => {
                format!("is not used for {}: the state of its interface is off", time(for_ms))
            }
            Self::GivenUp { for_ms, reason } => {
                format!("was given up {} ago: {}", time(for_ms), or_unknown(reason))
            }
            Self::Standby { for_ms, reason, rtt_ms } => format!(
                "is on standby for {}: {}{}",
                time(for_ms),
                or_unknown(reason),
                at(*rtt_ms, " (it answers within ", ")")
            ),
            Self::Loses { for_ms, rtt_ms, figures } => format!(
                "is on standby for {}: its loss of {} reaches its threshold of {}{}",
                time(for_ms),
                percent(figures.loss),
                percent(figures.threshold),
                at(*rtt_ms, " (it answers within ", ")")
            ),
            Self::BudgetUsedUp { for_ms, budget } => format!(
                "is on standby for {}: the budget of {} is used up, {}",
                time(for_ms),
                path.interface_name(),
                budget.words()
            ),
            Self::Other { state, reason } => format!("is {state}: {}", or_unknown(reason)),
            Self::Overdue { overdue_ms, rtt_ms } => format!(
                "is not used now: an answer is outstanding for {}{}",
                time(overdue_ms),
                at(*rtt_ms, " where answers come within ", "")
            ),
            Self::LeftOut { since_ms, with_bps, without_bps, .. } => format!(
                "is left out by the guard for {}: with it all paths carried {}, without it {}",
                time(since_ms),
                rate(*with_bps),
                rate(*without_bps)
            ),
            Self::TrialWithout { since_ms, with_bps } => format!(
                "is left out for a trial of {} so far: with it all paths carried {}, and now it is \
                 measured what the others carry without it",
                time(since_ms),
                rate(*with_bps)
            ),
            Self::TrialWith { since_ms, without_bps } => format!(
                "is used for a trial of {} so far: without it the others carried {}, and now it is \
                 measured what all carry with it",
                time(since_ms),
                rate(*without_bps)
            ),
            Self::KeptClear { delivery_rate_bps } => format!(
                "is kept clear for calls and other interactive traffic: at {} a full packet would \
                 hold that up for {}",
                rate(*delivery_rate_bps),
                duration(Some(FULL_BITS / (*delivery_rate_bps).max(1) as f64 * 1e3))
            ),
            Self::TooSmall { mtu_bytes, inner_mtu_bytes } => format!(
                "carries small packets only: a packet of {inner_mtu_bytes} bytes and its headers do \
                 not fit its MTU of {mtu_bytes} bytes"
            ),
            Self::MtuUnknown { inner_mtu_bytes, .. } => format!(
                "carries small packets only: it is not known yet whether packets of \
                 {inner_mtu_bytes} bytes get through"
            ),
            Self::SocketFull { in_flight_bytes } => format!(
                "waits for the host: the socket at {} takes no more, {} are in flight",
                path.interface,
                bytes(*in_flight_bytes)
            ),
            Self::Held { reason } => format!("carries no full packets now: {reason}"),
            Self::Rests { keepalive_ms } => format!(
                "works and rests: there is no traffic, and a keepalive leaves every {}",
                time(keepalive_ms)
            ),
            Self::Dear { cost, figures } => format!(
                "works ({}) and is kept for more than the cheaper paths carry: its cost is {cost}",
                about(figures)
            ),
            Self::Idle { figures } => {
                format!("works ({}) and is idle: there is nothing to send", about(figures))
            }
            Self::NotChosen { scheduler, weight, figures } => format!(
                "works ({}) and is not needed: {}",
                about(figures),
                preferred(scheduler, *weight)
            ),
            Self::Carries { share, carried_bps, limit, figures } => format!(
                "carries {:.0} %: {} ({}) {}",
                share * 100.0,
                rate(*carried_bps),
                about(figures),
                limited(limit)
            ),
        }
    }

    /// What would change it, for `path`.
    pub(crate) fn change(&self, path: &PathStatus) -> String {
        let soon = |ms: &Option<f64>| match ms {
            Some(ms) if *ms > 0.0 => format!("it is asked again in {}", duration(Some(*ms))),
            Some(_) => "it is being asked".to_owned(),
            None => "it is asked again when an address or a route changes".to_owned(),
        };
        match self {
            Self::Unanswered { asks_in_ms, .. } | Self::Failed { asks_in_ms, .. } => {
                format!("{}, and used when it answers", soon(asks_in_ms))
            }
            Self::Off { .. } => {
                format!("`mpip path set {} active` permits paths from there", path.interface)
            }
            Self::GivenUp { reason, .. } if reason == "its local address is gone" => {
                format!("a path begins when {} is up and has an address", path.interface)
            }
            Self::GivenUp { .. } => "a path begins when both addresses are there".to_owned(),
            Self::Standby { reason, .. } => standby_ends(reason, &path.interface),
            Self::Loses { figures, .. } => format!(
                "it is used while no other path works, or when less than {} of the last {} packets \
                 that measure it were lost (so far {} of {}), or with a higher loss_threshold or \
                 another loss_policy",
                percent(figures.returns_below),
                figures.needed,
                percent(figures.recent),
                figures.packets
            ),
            Self::BudgetUsedUp { budget, .. } => format!(
                "it is used while no other path works, again from {}, or with a larger budget and \
                 `mpip reload`",
                budget.ends()
            ),
            Self::Other { .. } | Self::Held { .. } => {
                "this release of mpip does not know when that ends".to_owned()
            }
            Self::Overdue { .. } => "with an answer it is used again, without one it soon counts \
                                     as failed"
                .to_owned(),
            Self::LeftOut { again_in_ms, .. } => format!(
                "it is tried again {}, or when it becomes better or the others worse; packets that \
                 need a fast answer may use it",
                match *again_in_ms > 0.0 {
                    true => format!("in {}", duration(Some(*again_in_ms))),
                    false => "with the next transfer".to_owned(),
                }
            ),
            Self::KeptClear { .. } => {
                "it carries other traffic again a second after the last such packet, or when no \
                 other path works"
                    .to_owned()
            }
            Self::TrialWithout { .. } | Self::TrialWith { .. } => {
                "after some seconds under load the set of paths that carries more is kept"
                    .to_owned()
            }
            Self::TooSmall { .. } | Self::MtuUnknown { .. } => {
                "when MTU discovery ends, packets are made as small as the path needs".to_owned()
            }
            Self::SocketFull { .. } => {
                "it goes on when the interface has sent what is queued there".to_owned()
            }
            Self::Rests { .. } => "the first packet wakes it".to_owned(),
            Self::Dear { .. } => "it is used when the cheaper paths need too long for what is \
                                  queued, or when none of them works"
                .to_owned(),
            Self::Idle { .. } => "it is used when there is traffic".to_owned(),
            Self::NotChosen { scheduler, .. } => match scheduler.as_str() {
                "weighted" => "its weight rises when its delay falls",
                _ => "it is used when the others are full, or fail",
            }
            .to_owned(),
            Self::Carries { limit, .. } => match limit {
                Limit::Room => "more would go there if there were more to send",
                Limit::Window { .. } => "the window grows while what it sends arrives in time",
                Limit::Pace { .. } => "the pace follows the rate at which it delivers",
                Limit::Rate { by_peer: true, .. } => "it carries more when the peer permits more",
                Limit::Rate { by_peer: false, .. } => {
                    return format!(
                        "`mpip path set {} rate_up=` takes the limit away",
                        path.interface
                    );
                }
            }
            .to_owned(),
        }
    }
}

/// Why an active path may carry no full packets of a transfer.
fn held(peer: &PeerStatus, path: &PathStatus) -> Option<Cause> {
    let PathStatus { mtu_bytes, in_flight_bytes, .. } = *path;
    let inner_mtu_bytes = peer.inner_mtu_bytes;
    if let Some(figures) = &path.guard_figures {
        let (since_ms, with_bps, without_bps) =
            (figures.since_ms, figures.with_bps, figures.without_bps);
        return Some(match (figures.carries, figures.again_in_ms) {
            (true, _) => Cause::TrialWith { since_ms, without_bps },
            (false, Some(again_in_ms)) => {
                Cause::LeftOut { since_ms, with_bps, without_bps, again_in_ms }
            }
            (false, None) => Cause::TrialWithout { since_ms, with_bps },
        });
    }
    match path.hold.as_deref()? {
        "congestion window full" | "paced" | DEAR | AT_ITS_RATE => None,
        "packet exceeds the MTU" => Some(Cause::TooSmall { mtu_bytes, inner_mtu_bytes }),
        "MTU not confirmed" => Some(Cause::MtuUnknown { mtu_bytes, inner_mtu_bytes }),
        "kept clear for interactive flows" => {
            Some(Cause::KeptClear { delivery_rate_bps: path.delivery_rate_bps })
        }
        "socket full" => Some(Cause::SocketFull { in_flight_bytes }),
        other => Some(Cause::Held { reason: other.to_owned() }),
    }
}

/// What a path does that may carry everything.
fn working(
    peer: &PeerStatus,
    path: &PathStatus,
    now: Rate,
    all_bps: u64,
    budget: Option<&BudgetStatus>,
) -> Cause {
    if path.resting {
        return Cause::Rests { keepalive_ms: path.keepalive_ms };
    }
    let mut others = peer.paths.iter().filter(|other| other.id != path.id);
    let figures = Figures {
        rtt_ms: path.rtt_ms,
        later_ms: path.relative_delay_ms,
        queuing_delay_ms: path.queuing_delay_ms,
        loss: path.loss,
        received_bps: now.received_bps,
        shares_bottleneck_with: others
            .find(|other| other.bottleneck == path.bottleneck)
            .map(|other| other.id),
        metered: path.metered,
        budget: budget.map(Budget::of),
    };
    if path.hold.as_deref() == Some(DEAR) {
        return Cause::Dear { cost: path.cost, figures };
    }
    let share = now.carried_bps as f64 / all_bps.max(1) as f64;
    if all_bps == 0 {
        return Cause::Idle { figures };
    }
    if share < LITTLE {
        let (scheduler, weight) = (peer.scheduler.clone(), path.weight);
        return Cause::NotChosen { scheduler, weight, figures };
    }
    let limit = match path.hold.as_deref() {
        Some("congestion window full") => Limit::Window { window_bytes: path.window_bytes },
        Some("paced") => Limit::Pace { pacing_rate_bps: path.pacing_rate_bps },
        Some(AT_ITS_RATE) => Limit::Rate {
            rate_bps: path.rate_limit_bps(),
            by_peer: path.rate_limit_bps() != path.rate_up_bps,
        },
        _ => Limit::Room,
    };
    Cause::Carries { share, carried_bps: now.carried_bps, limit, figures }
}

/// Why the scheduler takes other paths.
fn preferred(scheduler: &str, weight: u16) -> String {
    match scheduler {
        "earliest" => "packets arrive earlier by other paths".to_owned(),
        "fastest-first" => "faster paths have room".to_owned(),
        "weighted" => format!("its weight is {weight} of 1000"),
        other => format!("the scheduler `{other}` takes others"),
    }
}

/// Delay, loss and what is received, as far as they say something.
fn about(figures: &Figures) -> String {
    let Figures { rtt_ms, later_ms, queuing_delay_ms, loss, .. } = *figures;
    let long = |ms: &f64| *ms >= DELAY_MS;
    let time = |ms| duration(Some(ms));
    let parts = [
        Some(
            rtt_ms.map_or("no round trip yet".to_owned(), |ms| format!("{} round trip", time(ms))),
        ),
        later_ms.filter(long).map(|ms| format!("{} later than the fastest path", time(ms))),
        Some(queuing_delay_ms).filter(long).map(|ms| format!("{} in queues", time(ms))),
        Some(loss).filter(|loss| *loss >= LOSS).map(|loss| format!("{:.1} % lost", loss * 100.0)),
        figures.shares_bottleneck_with.map(|other| format!("one bottleneck with path {other}")),
        Some(figures.received_bps)
            .filter(|bps| *bps >= RECEIVED_BPS)
            .map(|bps| format!("receives {}", rate(bps))),
        match &figures.budget {
            Some(budget) => Some(format!("metered, {} used", budget.words())),
            None => figures.metered.then(|| "metered".to_owned()),
        },
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn limited(limit: &Limit) -> String {
    match limit {
        Limit::Room => "and has room".to_owned(),
        Limit::Window { window_bytes } => {
            format!("and its window of {} is full", bytes(*window_bytes))
        }
        Limit::Pace { pacing_rate_bps: Some(pace) } => format!("and is paced at {}", rate(*pace)),
        Limit::Pace { pacing_rate_bps: None } => "and is paced".to_owned(),
        Limit::Rate { rate_bps, by_peer } => {
            let most = rate_bps.map_or_else(|| "its rate".to_owned(), rate);
            match by_peer {
                false => format!("and is limited to {most} by configuration (rate_up)"),
                true => format!("and is limited to {most} by the peer's configuration (rate_down)"),
            }
        }
    }
}

/// When a path on standby is used.
fn standby_ends(reason: &str, interface: &str) -> String {
    let else_used = "it is used while no other path works";
    match reason {
        OWN_STANDBY => {
            format!("{else_used}, or after `mpip path set {interface} active`")
        }
        "the peer wants it on standby" => format!("{else_used}, or when the peer takes it back"),
        "others are cheaper" => format!("{else_used}, or with a lower cost or a higher max_paths"),
        "others are faster" => {
            format!("{else_used}, or when it becomes faster, or with a higher max_paths")
        }
        _ => else_used.to_owned(),
    }
}

/// A duration between two texts; empty without one.
fn at(ms: Option<f64>, before: &str, after: &str) -> String {
    ms.map_or(String::new(), |ms| format!("{before}{}{after}", duration(Some(ms))))
}

/// The daemon's reason. An older daemon tells none.
fn or_unknown(reason: &str) -> &str {
    if reason.is_empty() { "the daemon does not say why" } else { reason }
}
