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
    /// TCP port of paths that look like TCP; 0 if there are none.
    #[serde(default)]
    pub tcp_port: u16,
    /// The TUN device.
    pub interface: InterfaceStatus,
    /// The addresses that paths start from.
    pub local_addresses: Vec<LocalAddressStatus>,
    /// One entry per configured peer, in the configuration's order.
    pub peers: Vec<PeerStatus>,
    /// Datagrams and packets that were refused, by cause.
    pub drops: Vec<Counter>,
    /// Events since the start, by kind.
    pub events: Vec<Counter>,
    /// What is not as it should be on the host, which the daemon tries again; a hundred at most.
    #[serde(default)]
    pub faults: Vec<FaultStatus>,
    /// How many there are.
    #[serde(default)]
    pub fault_count: u64,
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

/// How often something happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// What.
    pub name: String,
    /// How often.
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
    /// What becomes of packets when no path works: `require`, `prefer` or `off`.
    #[serde(default)]
    pub policy: String,
    /// How packets travel at present: `plain`, `multipath` or `blocked`; `None` outside of host
    /// mode.
    #[serde(default)]
    pub traffic: Option<String>,
    /// Destinations whose packets are captured in host mode.
    #[serde(default)]
    pub captured: Vec<String>,
    /// Translators behind which the peer is: answers to it there are led onto the paths.
    #[serde(default)]
    pub translators: Vec<String>,
    /// Connections through translators that go on the paths.
    #[serde(default)]
    pub translated: u64,
    /// Largest inner packet that every path carries.
    pub inner_mtu_bytes: u16,
    /// Inner data sent.
    pub sent_bytes: u64,
    /// Inner data delivered to this host.
    pub received_bytes: u64,
    /// Data that waits for a path.
    pub queued_bytes: u64,
    /// Inner packets dropped by the send queue.
    pub queue_drops: u64,
    /// Inner packets marked with congestion experienced by the send queue.
    pub queue_marks: u64,
    /// Data that waits for what is missing.
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
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// This host's end as the peer sees it, once it has told: another address behind a translator.
    pub observed: Option<SocketAddr>,
    /// What it looks like from outside: `udp` or `tcp`. Empty from a daemon that does not tell.
    #[serde(default)]
    pub encapsulation: String,
    /// `validating`, `active`, `standby`, `failed` or `abandoned`.
    pub state: String,
    /// Whether it is only kept open, because nothing is sent.
    #[serde(default)]
    pub resting: bool,
    /// Pause between the datagrams that keep it open then, as was found out.
    #[serde(default)]
    pub keepalive_ms: f64,
    /// Smoothed round-trip time.
    pub rtt_ms: Option<f64>,
    /// Lowest round-trip time of the last 10 s.
    pub min_rtt_ms: Option<f64>,
    /// One-way delay toward the peer relative to the association's fastest path.
    pub relative_delay_ms: Option<f64>,
    /// One-way delay above its windowed minimum: what waits in queues.
    pub queuing_delay_ms: f64,
    /// Mean deviation of the one-way delay.
    pub jitter_ms: f64,
    /// Share of packets lost in the last few seconds, 0 to 1.
    pub loss: f64,
    /// Delivery rate that the feedback shows.
    pub delivery_rate_bps: u64,
    /// Rate at which packets may leave; `None` without pacing.
    pub pacing_rate_bps: Option<u64>,
    /// Data that may be in flight.
    pub window_bytes: u64,
    /// Data in flight.
    pub in_flight_bytes: u64,
    /// State of the congestion control, in its own words.
    pub congestion_state: String,
    /// The lowest number of the paths that share its bottleneck; its own if none is known to.
    pub bottleneck: u16,
    /// Whether it passes ECN marks: `testing`, `unknown` (no test was answered), `capable` or
    /// `failed`.
    pub ecn: String,
    /// Weight of the `weighted` scheduler, 1 to 1000.
    pub weight: u16,
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
    /// How far behind its followers a datagram may be before it counts as lost.
    pub reordering_window_ms: f64,
    /// The most datagrams by which one was overtaken, of the last seconds.
    pub reordering_extent_packets: u64,
    /// Largest IP packet sent on the path.
    pub mtu_bytes: u16,
    /// Whether it carries bulk: `used`, `left-out` (the others carry more without it), or `trial`
    /// while that is being measured.
    pub guard: String,
    /// How often it was left out.
    pub times_left_out: u64,
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
    /// Packets sent a second time on another path.
    pub repaired_packets: u64,
    /// Longest that a packet has waited for what was missing.
    pub longest_wait_ms: f64,
    /// How many packets waited for what was missing, and for how long: entry 0 below 1 µs, entry n
    /// from 2^(n - 1) to 2^n µs, the last one without an end. Packets in order do not wait.
    pub waits: Vec<u32>,
    /// Time since the last packet.
    pub idle_ms: f64,
}

/// A destination that the host talks to and that no peer has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DestinationStatus {
    /// The destination.
    pub address: IpAddr,
    /// `queried`, `enabled`, `not-enabled` or `key-changed`.
    pub state: String,
    /// Queries sent so far.
    pub queries: u32,
    /// The key that the node there named, in base64.
    pub public_key: Option<String>,
    /// Time until it may be asked again.
    pub expires_in_ms: f64,
}
