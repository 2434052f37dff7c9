//! Statistics: the single source for the control socket, the metrics, the simulator and the logs.

use core::net::SocketAddr;
use core::time::Duration;

use mpip_crypto::NodeId;

use crate::capture::Traffic;
use crate::config::Policy;
use crate::guard::GuardFigures;
use crate::loss_standby::LossFigures;
use crate::parts::selection::Hold;
use crate::resequencer::WAIT_BUCKETS;
use mpip_transport::PathState;
use mpip_types::{Encapsulation, Instant, Prefix};
use mpip_wire::RateLimit;

/// The status of an engine.
#[derive(Clone, Debug)]
pub struct Status {
    /// This node.
    pub node: NodeId,
    /// One entry per configured peer, in the configuration's order.
    pub peers: Vec<PeerStatus>,
    /// Datagrams and packets that were refused, by reason.
    pub drops: Vec<(&'static str, u64)>,
}

/// An association as its statistics show it.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// The peer's configured name.
    pub name: String,
    /// The peer.
    pub node: NodeId,
    /// Whether there are keys that the peer has confirmed.
    pub established: bool,
    /// Whether this node opens the paths.
    pub opener: bool,
    /// Time since the last completed handshake.
    pub handshake_age: Option<Duration>,
    /// Handshakes in a row that were not answered.
    pub attempts: u32,
    /// Time since the first of them.
    pub unanswered: Option<Duration>,
    /// Time until the next one; `None` if none is planned.
    pub attempt_in: Option<Duration>,
    /// The AEAD in use.
    pub aead: Option<&'static str>,
    /// Name of the scheduler.
    pub scheduler: &'static str,
    /// Name of the congestion control.
    pub congestion_control: &'static str,
    /// Largest inner packet that every path carries, bytes.
    pub inner_mtu: u16,
    /// Whether the inner addresses are the peer's ordinary ones.
    pub host_mode: bool,
    /// What happens to packets when no path works.
    pub policy: Policy,
    /// How packets travel at present; `None` outside of host mode.
    pub traffic: Option<Traffic>,
    /// Time until packets return to the paths, if they are held down because paths came and went.
    pub returns_in: Option<Duration>,
    /// Destinations whose packets are captured in host mode.
    pub captured: Vec<Prefix>,
    /// Inner bytes sent, without retransmissions and copies.
    pub bytes_sent: u64,
    /// Bytes of copies of inner packets, on further paths.
    pub copied: u64,
    /// Inner bytes delivered to the host.
    pub bytes_received: u64,
    /// Bytes in the send queue.
    pub queued: usize,
    /// Inner packets dropped or marked by the send queue's CoDel.
    pub queue_drops: u64,
    /// Inner packets marked with congestion experienced by the send queue.
    pub queue_marks: u64,
    /// NATs in front of the peer: packets to its connections there use the paths.
    pub nats: Vec<Prefix>,
    /// Connections through NATs that use the paths, on either side.
    pub translated: usize,
    /// Packets of this host that left as plain IP although paths work: of sessions that are plain
    /// alone, of connections that may not use the paths, and from addresses that the peer does not
    /// know yet.
    pub plain_packets: u64,
    /// How many sessions are plain although paths work, because nothing of them arrived.
    pub plain_count: usize,
    /// These sessions, if sessions were asked for.
    pub plain_sessions: Vec<PlainSessionStatus>,
    /// Bytes held for resequencing.
    pub resequencing: usize,
    /// Every path.
    pub paths: Vec<PathStatus>,
    /// Sessions in both directions.
    pub sessions: Vec<SessionStatus>,
}

/// A path as its statistics show it.
#[derive(Clone, Debug)]
pub struct PathStatus {
    /// The number both ends use.
    pub id: u16,
    /// The local interface.
    pub interface: String,
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// Our address as the peer observes it, if it has reported it.
    pub observed: Option<SocketAddr>,
    /// Its encapsulation.
    pub encapsulation: Encapsulation,
    /// What it costs: the larger one of both ends' costs.
    pub cost: u8,
    /// Upper rate of what is sent on it: the lower one of `rate_up` and `rate_told`.
    pub rate_limit: Option<RateLimit>,
    /// What this end is configured to send at most.
    pub rate_up: Option<RateLimit>,
    /// What the peer was told to send at most.
    pub rate_down: Option<RateLimit>,
    /// What the peer has told this end to send at most.
    pub rate_told: Option<RateLimit>,
    /// Whether it carries packets.
    pub state: PathState,
    /// Time in this state.
    pub since: Duration,
    /// Why it is in this state.
    pub reason: &'static str,
    /// For how long the answer to a probe has been overdue, while the path works; `None` if none
    /// is.
    pub overdue: Option<Duration>,
    /// Time until the peer is asked again on a path that it has not answered.
    pub asks_in: Option<Duration>,
    /// Whether it rests: it only sends keepalives, because the association is idle.
    pub resting: bool,
    /// Keepalive interval at rest, as learnt.
    pub keepalive: Duration,
    /// Smoothed round-trip time; `None` before the first sample.
    pub rtt: Option<Duration>,
    /// Lowest round-trip time of the last 10 s.
    pub min_rtt: Option<Duration>,
    /// One-way delay toward the peer relative to the association's fastest path.
    pub relative_delay: Option<Duration>,
    /// One-way delay above the windowed minimum: queuing delay.
    pub queuing_delay: Duration,
    /// Mean deviation of the one-way delay.
    pub jitter: Duration,
    /// Share of packets lost, of the last few seconds, 0 to 1.
    pub loss: f64,
    /// Delivery rate measured from feedback, bit/s.
    pub delivery_rate: u64,
    /// Rate at which packets may leave, bit/s; `None` without pacing.
    pub pacing_rate: Option<u64>,
    /// Congestion window, bytes.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// State of the congestion control algorithm.
    pub congestion_state: &'static str,
    /// The lowest number of the paths that share its bottleneck; its own number without known
    /// sharing.
    pub bottleneck: u16,
    /// Whether it passes ECN marks: `testing`, `unknown`, `capable` or `failed`.
    pub ecn: &'static str,
    /// Weight of the `weighted` scheduler, 1 to 1000.
    pub weight: u16,
    /// Outer bytes sent.
    pub bytes_sent: u64,
    /// Outer bytes received.
    pub bytes_received: u64,
    /// Datagrams sent.
    pub packets_sent: u64,
    /// Datagrams received.
    pub packets_received: u64,
    /// Datagrams declared lost.
    pub packets_lost: u64,
    /// Datagrams declared lost that arrived after all.
    pub spurious_losses: u64,
    /// Reordering window: how much later than its successors a datagram may arrive before it counts
    /// as lost.
    pub reordering_window: Duration,
    /// Reordering extent: the largest number of datagrams that overtook one, in the last seconds.
    pub reordering_extent: u64,
    /// Inner bytes sent on it, without copies.
    pub carried: u64,
    /// Bytes of copies of inner packets that were sent on another path at the same time.
    pub copied: u64,
    /// Share of the association's inner bytes sent on this path, 0 to 1.
    pub share: f64,
    /// Why it may not carry a bulk packet of the inner MTU now; `None` if it may.
    pub hold: Option<Hold>,
    /// What the guard decided: `used`, `left-out` because the others carry more without it, or
    /// `trial` while that is being measured.
    pub guard: &'static str,
    /// What the guard has measured, unless the path is used.
    pub guard_figures: Option<GuardFigures>,
    /// Its loss and the threshold, while it is on standby for its loss.
    pub loss_figures: Option<LossFigures>,
    /// How often it was left out.
    pub times_left_out: u64,
    /// Path MTU: largest IP packet sent on it, bytes.
    pub mtu: u16,
}

/// What a path has carried.
#[derive(Clone, Copy, Debug)]
pub struct PathTraffic<'a> {
    /// The place of its association. Together with the next two it identifies the path.
    pub place: usize,
    /// Its number in the association.
    pub id: u16,
    /// When it was opened.
    pub opened: Instant,
    /// The local interface.
    pub interface: &'a str,
    /// Bytes sent and received, outer headers included.
    pub bytes: u64,
}

/// A session as its statistics show it.
#[derive(Clone, Debug)]
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
    /// Inner bytes.
    pub bytes: u64,
    /// The paths on which its packets travelled in the last two to four seconds, and the share of
    /// them on each, 0 to 1.
    pub paths: Vec<(u16, f64)>,
    /// Packets sent again.
    pub repaired: u64,
    /// How much longer than by the nearest path its full packets are made to take, because its
    /// sender is a BBR; `None` if they are not.
    pub held: Option<Duration>,
    /// Longest time that a packet was held for resequencing.
    pub longest_wait: Duration,
    /// Histogram of resequencing delays of held packets: entry 0 counts those below 1 µs, entry n
    /// those from 2^(n - 1) to 2^n µs, the last one all longer ones. All zero in a session that is
    /// not resequenced here.
    pub waits: [u32; WAIT_BUCKETS],
    /// Time since the last packet.
    pub idle: Duration,
}

/// A session that leaves as plain IP alone although paths work, because nothing of it arrived by
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainSessionStatus {
    /// IP protocol number.
    pub protocol: u8,
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// How long it has been plain.
    pub since: Duration,
}

/// Which paths a packet would take now.
#[derive(Clone, Debug)]
pub struct Way {
    /// Name of the scheduler, which decides about packets of priority `throughput`.
    pub scheduler: &'static str,
    /// Every path that was validated and not given up.
    pub paths: Vec<WayPath>,
}

/// A path, as a packet would find it now.
#[derive(Clone, Debug)]
pub struct WayPath {
    /// The number both ends use.
    pub id: u16,
    /// The local interface.
    pub interface: String,
    /// What it would do for the packet.
    pub role: PathRole,
    /// One-way delay toward the peer relative to the association's fastest path.
    pub relative_delay: Option<Duration>,
    /// Smoothed round-trip time; `None` before the first sample.
    pub rtt: Option<Duration>,
    /// Share of packets lost, of the last few seconds, 0 to 1.
    pub loss: f64,
    /// Share of the association's inner bytes sent on this path so far, 0 to 1.
    pub share: f64,
    /// Why it may not carry the packet now; `None` if it may.
    pub hold: Option<Hold>,
    /// Whether the packet's rule wants it before others: it is in the list of `only` or `prefer`,
    /// or not in that of `avoid`.
    pub preferred: bool,
}

/// What a path would do for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathRole {
    /// It carries the packet: it has the lowest delay.
    Takes,
    /// It carries a copy.
    Copy,
    /// The scheduler may choose it.
    Candidate,
    /// Nothing.
    None,
}

mpip_types::named!(PathRole {
    Takes = "takes",
    Copy = "copy",
    Candidate = "candidate",
    None = "none",
});
