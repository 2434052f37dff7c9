//! Every metric with one value for the node, a peer or a path: name, unit, meaning, and where its
//! value comes from.

use mpip_api::{BudgetStatus, PathStatus, PeerStatus, Status};

use super::exposition::Kind::{self, Counter, Gauge};

/// A metric, and its value in what it is about; none if that is not known.
pub(super) struct Family<T> {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    pub(super) value: fn(&T) -> Option<f64>,
}

const fn family<T>(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&T) -> Option<f64>,
) -> Family<T> {
    Family { name, kind, help, value }
}

/// The states of a path.
pub(super) const PATH_STATES: [&str; 5] =
    ["validating", "active", "standby", "failed", "abandoned"];

/// The ways of packets to a peer in host mode.
pub(super) const TRAFFIC: [&str; 3] = ["multipath", "plain", "blocked"];

fn seconds(ms: f64) -> Option<f64> {
    Some(ms / 1e3)
}

fn count(count: u64) -> Option<f64> {
    Some(count as f64)
}

fn flag(flag: bool) -> Option<f64> {
    Some(f64::from(u8::from(flag)))
}

pub(super) const NODE: [Family<Status>; 4] = [
    family("mpip_uptime_seconds", Gauge, "Time since mpipd started.", |status| {
        seconds(status.uptime_ms)
    }),
    family(
        "mpip_interface_mtu_bytes",
        Gauge,
        "Largest packet that the TUN device takes.",
        |status| count(status.interface.mtu_bytes.into()),
    ),
    family("mpip_local_addresses", Gauge, "Addresses that paths start from.", |status| {
        count(status.local_addresses.len() as u64)
    }),
    family(
        "mpip_faults",
        Gauge,
        "Things on the host that are not as they should be (`wrong` in mpip status).",
        |status| count(status.fault_count),
    ),
];

pub(super) const BUDGET: [Family<BudgetStatus>; 2] = [
    family(
        "mpip_budget_bytes",
        Gauge,
        "Most data of an interface in a day or month of UTC, in both directions.",
        |budget| count(budget.budget_bytes),
    ),
    family("mpip_budget_used_bytes", Gauge, "What is used of it in this period.", |budget| {
        count(budget.used_bytes)
    }),
];

pub(super) const PEER: [Family<PeerStatus>; 13] = [
    family(
        "mpip_peer_established",
        Gauge,
        "Whether there are keys that the peer has confirmed.",
        |peer| flag(peer.established),
    ),
    family(
        "mpip_peer_handshake_age_seconds",
        Gauge,
        "Time since the last completed handshake.",
        |peer| peer.handshake_age_ms.and_then(seconds),
    ),
    family("mpip_peer_sent_bytes_total", Counter, "Inner data sent to the peer.", |peer| {
        count(peer.sent_bytes)
    }),
    family(
        "mpip_peer_copied_bytes_total",
        Counter,
        "Copies of inner data on further paths (priority redundant).",
        |peer| count(peer.copied_bytes),
    ),
    family(
        "mpip_peer_received_bytes_total",
        Counter,
        "Inner data of the peer delivered to this host.",
        |peer| count(peer.received_bytes),
    ),
    family("mpip_peer_queued_bytes", Gauge, "Data in the send queue.", |peer| {
        count(peer.queued_bytes)
    }),
    family(
        "mpip_peer_queue_dropped_packets_total",
        Counter,
        "Inner packets dropped by the send queue.",
        |peer| count(peer.queue_drops),
    ),
    family(
        "mpip_peer_queue_marked_packets_total",
        Counter,
        "Inner packets marked with congestion experienced by the send queue.",
        |peer| count(peer.queue_marks),
    ),
    family(
        "mpip_peer_resequencing_bytes",
        Gauge,
        "Data held until earlier packets arrive.",
        |peer| count(peer.resequencing_bytes),
    ),
    family(
        "mpip_peer_inner_mtu_bytes",
        Gauge,
        "Largest inner packet that every path carries.",
        |peer| count(peer.inner_mtu_bytes.into()),
    ),
    family(
        "mpip_peer_translated_connections",
        Gauge,
        "Connections of a peer behind a NAT that use the paths.",
        |peer| count(peer.translated),
    ),
    family(
        "mpip_peer_plain_sessions",
        Gauge,
        "Sessions that are plain IP although paths work.",
        |peer| count(peer.plain_session_count),
    ),
    family(
        "mpip_peer_plain_packets_total",
        Counter,
        "Packets that left as plain IP although paths work.",
        |peer| count(peer.plain_packets),
    ),
];

pub(super) const PATH: [Family<PathStatus>; 26] = [
    family("mpip_path_rtt_seconds", Gauge, "Smoothed round-trip time.", |path| {
        path.rtt_ms.and_then(seconds)
    }),
    family(
        "mpip_path_min_rtt_seconds",
        Gauge,
        "Lowest round-trip time of the last 10 s.",
        |path| path.min_rtt_ms.and_then(seconds),
    ),
    family(
        "mpip_path_relative_delay_seconds",
        Gauge,
        "One-way delay to the peer beyond that of the fastest path.",
        |path| path.relative_delay_ms.and_then(seconds),
    ),
    family(
        "mpip_path_queuing_delay_seconds",
        Gauge,
        "One-way delay beyond its minimum: the delay in queues.",
        |path| seconds(path.queuing_delay_ms),
    ),
    family("mpip_path_jitter_seconds", Gauge, "Mean deviation of the one-way delay.", |path| {
        seconds(path.jitter_ms)
    }),
    family(
        "mpip_path_loss_ratio",
        Gauge,
        "Share of packets lost in the last seconds, 0 to 1.",
        |path| Some(path.loss),
    ),
    family(
        "mpip_path_delivery_rate_bytes_per_second",
        Gauge,
        "Rate at which the path last delivered, from feedback.",
        |path| Some(path.delivery_rate_bps as f64 / 8.0),
    ),
    family(
        "mpip_path_pacing_rate_bytes_per_second",
        Gauge,
        "Rate at which packets may leave.",
        |path| path.pacing_rate_bps.map(|bps| bps as f64 / 8.0),
    ),
    family(
        "mpip_path_rate_limit_bytes_per_second",
        Gauge,
        "Upper rate of what is sent, as configured at either end; absent without one.",
        |path| path.rate_limit_bps().map(|bps| bps as f64 / 8.0),
    ),
    family("mpip_path_window_bytes", Gauge, "Congestion window.", |path| count(path.window_bytes)),
    family("mpip_path_in_flight_bytes", Gauge, "Data in flight.", |path| {
        count(path.in_flight_bytes)
    }),
    family(
        "mpip_path_share_ratio",
        Gauge,
        "Share of the association's inner data that was sent on the path, 0 to 1.",
        |path| Some(path.share),
    ),
    family(
        "mpip_path_copied_bytes_total",
        Counter,
        "Copies of inner data that was sent on another path at the same time.",
        |path| count(path.copied_bytes),
    ),
    family("mpip_path_sent_bytes_total", Counter, "Outer data sent.", |path| {
        count(path.sent_bytes)
    }),
    family("mpip_path_received_bytes_total", Counter, "Outer data received.", |path| {
        count(path.received_bytes)
    }),
    family("mpip_path_sent_packets_total", Counter, "Datagrams sent.", |path| {
        count(path.sent_packets)
    }),
    family("mpip_path_received_packets_total", Counter, "Datagrams received.", |path| {
        count(path.received_packets)
    }),
    family("mpip_path_lost_packets_total", Counter, "Datagrams declared lost.", |path| {
        count(path.lost_packets)
    }),
    family(
        "mpip_path_spurious_losses_total",
        Counter,
        "Datagrams declared lost that arrived after all.",
        |path| count(path.spurious_losses),
    ),
    family(
        "mpip_path_reordering_window_seconds",
        Gauge,
        "A datagram counts as lost this long after later ones were acknowledged.",
        |path| seconds(path.reordering_window_ms),
    ),
    family("mpip_path_mtu_bytes", Gauge, "Largest IP packet sent on the path.", |path| {
        count(path.mtu_bytes.into())
    }),
    family("mpip_path_resting", Gauge, "Whether nothing is sent but keepalives.", |path| {
        flag(path.resting)
    }),
    family(
        "mpip_path_cost",
        Gauge,
        "What the path costs, 0 to 15: it is used for what cheaper ones cannot carry.",
        |path| count(path.cost.into()),
    ),
    family("mpip_path_keepalive_seconds", Gauge, "Interval of the keepalives at rest.", |path| {
        seconds(path.keepalive_ms)
    }),
    family(
        "mpip_path_left_out",
        Gauge,
        "Whether bulk traffic avoids the path because the others carry more without it.",
        |path| flag(path.guard == "left-out"),
    ),
    family("mpip_path_exclusions_total", Counter, "How often the path was left out.", |path| {
        count(path.times_left_out)
    }),
];
