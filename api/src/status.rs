//! The daemon's statistics, as `mpip status --json` prints them.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// The state of one daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Release of the daemon.
    pub daemon_version: String,
    /// Its process.
    pub pid: u32,
    /// Its configuration file.
    pub config_file: String,
    /// Time since it started.
    pub uptime_ms: f64,
    /// Identifier of this node.
    pub node: String,
    /// Public key of this node.
    pub public_key: String,
    /// UDP port of every path's socket.
    pub listen_port: u16,
    /// TCP port of paths with encapsulation `tcp`; 0 if there are none.
    #[serde(default)]
    pub tcp_port: u16,
    /// The TUN device.
    pub interface: InterfaceStatus,
    /// The addresses that paths start from.
    pub local_addresses: Vec<LocalAddressStatus>,
    /// Interfaces that have no paths, because their state is `off`.
    #[serde(default)]
    pub interfaces_off: Vec<String>,
    /// One entry per configured peer, in the configuration's order.
    pub peers: Vec<PeerStatus>,
    /// Datagrams and packets dropped, by cause.
    pub drops: Vec<Counter>,
    /// Events since the start, by kind.
    pub events: Vec<Counter>,
    /// What is not as it should be on the host, which the daemon tries again; a hundred at most.
    #[serde(default)]
    pub faults: Vec<FaultStatus>,
    /// How many there are.
    #[serde(default)]
    pub fault_count: u64,
    /// The budgets of interfaces that are paid for by amount.
    #[serde(default)]
    pub budgets: Vec<BudgetStatus>,
}

/// The budget of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetStatus {
    /// The interface.
    pub interface: String,
    /// What users call it.
    pub label: Option<String>,
    /// Most data of a period, in both directions, IP headers included.
    pub budget_bytes: u64,
    /// What is used of it.
    pub used_bytes: u64,
    /// The period: `day` or `month`, of UTC.
    pub period: String,
    /// When the period ends, in seconds since the Unix epoch.
    pub period_ends_unix_s: u64,
    /// Whether it is used up: the interface is on standby until the period ends.
    pub used_up: bool,
}

/// Something on the host that is not as it should be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultStatus {
    /// What: what could not be done, and the kernel's reason.
    pub what: String,
    /// What follows from it.
    pub why: String,
    /// For how long.
    pub since_ms: f64,
    /// How often it was tried in vain; 0 for what the daemon cannot mend.
    pub attempts: u32,
}

/// A named count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// What was counted.
    pub name: String,
    /// The count.
    pub count: u64,
}

/// The TUN device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// Its addresses with their prefix lengths.
    pub addresses: Vec<String>,
    /// Largest packet it takes.
    pub mtu_bytes: u32,
}

/// An address that paths start from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalAddressStatus {
    /// The interface that holds it.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
    /// Largest packet that the interface sends.
    pub mtu_bytes: u16,
}

/// The association with one peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// The configured name.
    pub name: String,
    /// The peer's identifier.
    pub node: String,
    /// Whether there are keys that the peer has confirmed.
    pub established: bool,
    /// Time since the last completed handshake.
    pub handshake_age_ms: Option<f64>,
    /// Handshakes in a row that were not answered.
    #[serde(default)]
    pub handshake_attempts: u32,
    /// Time since the first of them.
    #[serde(default)]
    pub unanswered_ms: Option<f64>,
    /// Time until the next one; none if none is planned.
    #[serde(default)]
    pub attempt_in_ms: Option<f64>,
    /// The AEAD in use.
    pub aead: Option<String>,
    /// Name of the scheduler.
    pub scheduler: String,
    /// Name of the congestion control.
    pub congestion_control: String,
    /// Inner addresses that belong to the peer.
    pub allowed_prefixes: Vec<String>,
    /// Whether the inner addresses are the peer's ordinary ones.
    #[serde(default)]
    pub host_mode: bool,
    /// What happens to packets when no path works: `require`, `prefer` or `off`.
    #[serde(default)]
    pub policy: String,
    /// How packets travel at present: `plain`, `multipath` or `blocked`; `None` outside of host
    /// mode.
    #[serde(default)]
    pub traffic: Option<String>,
    /// Time until packets return to the paths, if that is held down because paths came and went.
    #[serde(default)]
    pub returns_in_ms: Option<f64>,
    /// Destinations whose packets are captured in host mode.
    #[serde(default)]
    pub captured: Vec<String>,
    /// Public addresses of NATs in front of the peer. Packets that answer its connections go there
    /// and are captured.
    #[serde(default)]
    pub nats: Vec<String>,
    /// Connections of a peer behind a NAT that use the paths.
    #[serde(default)]
    pub translated: u64,
    /// Packets of this host that left as plain IP although paths work: of sessions that are plain
    /// alone, of connections that may not use the paths, and from addresses that the peer does not
    /// know yet.
    #[serde(default)]
    pub plain_packets: u64,
    /// Sessions that are plain alone, because nothing of them arrived by the paths.
    #[serde(default)]
    pub plain_session_count: u64,
    /// These sessions, if sessions were asked for; not all if there are many.
    #[serde(default)]
    pub plain_sessions: Vec<PlainSessionStatus>,
    /// Largest inner packet that every path carries.
    pub inner_mtu_bytes: u16,
    /// Inner data sent.
    pub sent_bytes: u64,
    /// Bytes of copies of inner packets that were sent on further paths (`priority = "redundant"`).
    #[serde(default)]
    pub copied_bytes: u64,
    /// Inner data delivered to this host.
    pub received_bytes: u64,
    /// Data in the send queue.
    pub queued_bytes: u64,
    /// Inner packets dropped by the send queue.
    pub queue_drops: u64,
    /// Inner packets marked with congestion experienced by the send queue.
    pub queue_marks: u64,
    /// Data held for reordering.
    pub resequencing_bytes: u64,
    /// Every path.
    pub paths: Vec<PathStatus>,
    /// How many sessions there are, in both directions; `None` unless sessions were asked for.
    pub session_count: Option<u64>,
    /// The sessions most recently used, if they were asked for.
    pub sessions: Vec<SessionStatus>,
}

/// One path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathStatus {
    /// The number that both ends use.
    pub id: u16,
    /// The local interface.
    pub interface: String,
    /// What users call the interface.
    #[serde(default)]
    pub label: Option<String>,
    /// What it costs, 0 to 15: the larger one of both ends' costs. It is used for what paths that
    /// cost less cannot carry.
    #[serde(default)]
    pub cost: u8,
    /// Whether this host pays for its data by amount.
    #[serde(default)]
    pub metered: bool,
    /// The most that this end is configured to send on it, IP headers included.
    #[serde(default)]
    pub rate_up_bps: Option<u64>,
    /// The most that the peer was told to send on it.
    #[serde(default)]
    pub rate_down_bps: Option<u64>,
    /// The most that the peer has told this end to send on it.
    #[serde(default)]
    pub rate_told_bps: Option<u64>,
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// Our end as the peer sees it, once it has reported it. It differs from `local` behind a NAT.
    pub observed: Option<SocketAddr>,
    /// Encapsulation: `udp` or `tcp`. Empty from an older daemon.
    #[serde(default)]
    pub encapsulation: String,
    /// `validating`, `active`, `standby`, `failed` or `abandoned`.
    pub state: String,
    /// Time in this state.
    #[serde(default)]
    pub in_state_ms: f64,
    /// Why it is in this state. Empty from an older daemon.
    #[serde(default)]
    pub reason: String,
    /// For how long the answer to a probe has been overdue, while the path works; none if none is.
    #[serde(default)]
    pub overdue_ms: Option<f64>,
    /// Time until the peer is asked again on a path that it has not answered.
    #[serde(default)]
    pub asks_in_ms: Option<f64>,
    /// Whether it is at rest: nothing is sent but keepalives.
    #[serde(default)]
    pub resting: bool,
    /// Interval of the keepalives at rest, as measured for this path.
    #[serde(default)]
    pub keepalive_ms: f64,
    /// Smoothed round-trip time.
    pub rtt_ms: Option<f64>,
    /// Lowest round-trip time of the last 10 s.
    pub min_rtt_ms: Option<f64>,
    /// One-way delay toward the peer relative to the association's fastest path.
    pub relative_delay_ms: Option<f64>,
    /// One-way delay above its windowed minimum: the delay in queues.
    pub queuing_delay_ms: f64,
    /// Mean deviation of the one-way delay.
    pub jitter_ms: f64,
    /// Share of packets lost in the last few seconds, 0 to 1.
    pub loss: f64,
    /// Delivery rate, from feedback.
    pub delivery_rate_bps: u64,
    /// Rate at which packets may leave; `None` without pacing.
    pub pacing_rate_bps: Option<u64>,
    /// Congestion window: the most data that may be in flight.
    pub window_bytes: u64,
    /// Data in flight.
    pub in_flight_bytes: u64,
    /// State of the congestion control; the names depend on the algorithm.
    pub congestion_state: String,
    /// Lowest number among the paths that share its bottleneck; its own number if none does.
    pub bottleneck: u16,
    /// ECN validation: `testing`, `unknown` (no test was answered), `capable` or `failed`.
    pub ecn: String,
    /// Weight of the `weighted` scheduler, 1 to 1000.
    pub weight: u16,
    /// Inner data sent on it.
    #[serde(default)]
    pub carried_bytes: u64,
    /// Bytes of copies of inner packets that were sent on another path at the same time.
    #[serde(default)]
    pub copied_bytes: u64,
    /// Share of the association's inner data sent on this path, 0 to 1.
    pub share: f64,
    /// Outer data sent.
    pub sent_bytes: u64,
    /// Outer data received.
    pub received_bytes: u64,
    /// Datagrams sent.
    pub sent_packets: u64,
    /// Datagrams received.
    pub received_packets: u64,
    /// Datagrams declared lost.
    pub lost_packets: u64,
    /// Datagrams declared lost that arrived after all.
    pub spurious_losses: u64,
    /// Reordering window: a datagram counts as lost this long after later ones were acknowledged.
    pub reordering_window_ms: f64,
    /// Reordering extent: most datagrams that overtook one, over the last seconds.
    pub reordering_extent_packets: u64,
    /// Largest IP packet sent on the path.
    pub mtu_bytes: u16,
    /// Why it takes no full-size packet of a transfer now, in words; none if it does.
    #[serde(default)]
    pub hold: Option<String>,
    /// Whether it carries bulk traffic: `used`, `left-out` (the others carry more without it), or
    /// `trial` while that is measured.
    pub guard: String,
    /// What the guard has measured; none while the path is used.
    #[serde(default)]
    pub guard_figures: Option<GuardFigures>,
    /// Its loss and the threshold, while it is on standby for its loss.
    #[serde(default)]
    pub loss_figures: Option<LossFigures>,
    /// How often it was left out.
    pub times_left_out: u64,
}

impl PathStatus {
    /// The most that this end may send on it: the lower one of what this end and the peer have
    /// configured.
    pub fn rate_limit_bps(&self) -> Option<u64> {
        self.rate_up_bps.into_iter().chain(self.rate_told_bps).min()
    }

    /// Its interface as users see it: with the label, if there is one.
    pub fn interface_name(&self) -> String {
        let Self { interface, label, .. } = self;
        label.as_ref().map_or(interface.clone(), |label| format!("{interface} ({label})"))
    }
}

/// What was measured of a path that is left out, or on trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuardFigures {
    /// Whether it carries bulk traffic now.
    pub carries: bool,
    /// Time since the decision; on trial, time with load since the trial began.
    pub since_ms: f64,
    /// Throughput of the association with the path, inner data; 0 while it is being measured.
    pub with_bps: u64,
    /// The same without it.
    pub without_bps: u64,
    /// Time until it is tried again; none on trial.
    pub again_in_ms: Option<f64>,
}

/// The loss for which a path goes on standby, or returns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossFigures {
    /// Loss by which it was decided, 0 to 1.
    pub loss: f64,
    /// The threshold of its interface, 0 to 1.
    pub threshold: f64,
    /// Loss on standby, of the last `packets`, 0 to 1.
    pub recent: f64,
    /// Packets sent on standby that count.
    pub packets: u64,
    /// It returns once of so many packets
    pub needed: u64,
    /// a smaller share than this was lost, 0 to 1.
    pub returns_below: f64,
}

/// One session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Number of the session in its sender's space.
    pub id: u32,
    /// Whether this host sends in it.
    pub outgoing: bool,
    /// IP protocol number.
    pub protocol: u8,
    /// Source address and port (0 where the protocol has none).
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// Inner packets.
    pub packets: u64,
    /// Inner data.
    pub inner_bytes: u64,
    /// The paths on which its packets travelled in the last two to four seconds.
    #[serde(default)]
    pub paths: Vec<u16>,
    /// Share of these packets on each of `paths`, 0 to 1; empty from a daemon of an earlier
    /// version.
    #[serde(default)]
    pub path_shares: Vec<f64>,
    /// Packets sent a second time on another path.
    pub repaired_packets: u64,
    /// How much longer than by the nearest path its full packets are made to take, because its
    /// sender is a BBR and would otherwise not fill the others; `None` if they are not, if this
    /// host does not send in it, or from a daemon of an earlier version.
    #[serde(default)]
    pub held_ms: Option<f64>,
    /// Longest time that a packet was held for reordering.
    pub longest_wait_ms: f64,
    /// Histogram of the times that packets were held for reordering: bin 0 counts those below 1 µs,
    /// bin n those from 2^(n - 1) to 2^n µs, the last bin all longer ones. Packets that arrive in
    /// order are not counted.
    pub waits: Vec<u32>,
    /// Time since the last packet.
    pub idle_ms: f64,
}

/// A session of a peer in host mode that leaves as plain IP although paths work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlainSessionStatus {
    /// IP protocol number.
    pub protocol: u8,
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// How long it has been plain.
    pub since_ms: f64,
}

/// A destination that the host talks to and that belongs to no peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DestinationStatus {
    /// The destination.
    pub address: IpAddr,
    /// `queried`, `enabled`, `not-enabled` or `key-changed`.
    pub state: String,
    /// Queries sent so far.
    pub queries: u32,
    /// The public key that the node there named, in base64.
    pub public_key: Option<String>,
    /// Time until it may be asked again.
    pub expires_in_ms: f64,
}
