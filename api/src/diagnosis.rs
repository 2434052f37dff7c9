//! What a peer's daemon sees, and measurements of paths.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::status::{LocalAddressStatus, PeerStatus};

/// The TCP port on which a daemon answers its peers, through its TUN device.
pub const DIAGNOSIS_PORT: u16 = 6184;

/// What a peer's daemon sees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerView {
    /// Release of the peer's daemon.
    pub daemon_version: String,
    /// The peer's clock, in milliseconds since the Unix epoch.
    pub unix_time_ms: f64,
    /// Processor time of the thread that carries the packets, since it started.
    #[serde(default)]
    pub cpu_ms: Option<f64>,
    /// The association with this node, as the peer sees it.
    pub association: PeerStatus,
    /// The addresses that the peer's paths start from.
    pub local_addresses: Vec<LocalAddressStatus>,
    /// How much is not as it should be on the peer's host.
    #[serde(default)]
    pub fault_count: u64,
}

/// What both ends of an association see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerAnswer {
    /// The peer's inner end.
    pub address: SocketAddr,
    /// The association as this node sees it.
    pub own: PeerStatus,
    /// What the peer sees.
    pub view: PeerView,
    /// Release of the daemon that asked.
    pub daemon_version: String,
    /// Time from the question to the answer.
    pub took_ms: f64,
    /// This node's clock when the answer came, in milliseconds since the Unix epoch.
    pub unix_time_ms: f64,
}

/// Which way a measurement's data go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From this node to the peer.
    Send,
    /// From the peer to this node.
    Receive,
}

/// How far a measurement is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchProgress {
    /// The measurement under way, from 1.
    pub step: u32,
    /// How many there are.
    pub steps: u32,
    /// The path that is measured alone; `None` for all together.
    pub path: Option<u16>,
    /// Which way the data go.
    pub direction: Direction,
    /// Time since the measurement began.
    pub elapsed_ms: f64,
    /// Time that it takes.
    pub duration_ms: f64,
    /// Inner data, on average so far.
    pub rate_bps: u64,
}

/// One measurement: a TCP connection through the tunnel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchResult {
    /// Which way the data went.
    pub direction: Direction,
    /// Goodput after the start.
    pub rate_bps: u64,
    /// Data received.
    pub bytes: u64,
    /// From the first byte to the last.
    pub duration_ms: f64,
    /// Largest smoothed round-trip time of a path meanwhile.
    pub rtt_ms: Option<f64>,
    /// Share of datagrams lost on the paths, 0 to 1.
    pub loss: Option<f64>,
    /// Share of a processor core that the thread of packets used here, and at the peer.
    pub cpu: Option<f64>,
    /// See `cpu`.
    pub peer_cpu: Option<f64>,
    /// Whether it ended because enough data were sent.
    pub capped: bool,
}

/// A path and what it carries alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchPath {
    /// Its number.
    pub id: u16,
    /// The local interface.
    pub interface: String,
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// Round-trip time before anything was measured.
    pub idle_rtt_ms: Option<f64>,
    /// Lowest number among the paths that share its bottleneck, as found meanwhile.
    pub bottleneck: u16,
    /// Why it was not measured; `None` if it was.
    pub skipped: Option<String>,
    /// One measurement for each direction.
    pub results: Vec<BenchResult>,
}

/// All measurements with a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// The peer's name.
    pub peer: String,
    /// The peer's inner end.
    pub address: SocketAddr,
    /// Release of the peer's daemon.
    pub peer_version: String,
    /// Every path.
    pub paths: Vec<BenchPath>,
    /// All paths together, one measurement for each direction.
    pub together: Vec<BenchResult>,
}
