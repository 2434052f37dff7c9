//! A hostile node, as data.

use crate::clock::{MILLI, Nanos, SECOND};

/// A hostile node.
#[derive(Clone, Debug, PartialEq)]
pub struct HostileSpec {
    /// Index of the host that it attacks.
    pub target: usize,
    /// Whether that host's configuration names it.
    pub configured: bool,
    /// Whether it starts handshakes. It always answers them.
    pub calls: bool,
    /// The kinds of its lies.
    pub lies: Vec<Lie>,
    /// Mean time between two actions.
    pub pause: Nanos,
    /// When it starts, and when it stops for good.
    pub from: Nanos,
    /// See [`from`](Self::from).
    pub until: Nanos,
    /// Most datagrams that it sends.
    pub most: u64,
    /// Number of its keys. A node that is not configured may use another one in each handshake.
    pub identities: usize,
}

impl Default for HostileSpec {
    fn default() -> Self {
        Self {
            target: 0,
            configured: true,
            calls: true,
            lies: Lie::ALL.to_vec(),
            pause: 2 * MILLI,
            from: 0,
            until: 4 * SECOND,
            most: 3_000,
            identities: 1,
        }
    }
}

/// A kind of lie of a hostile node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lie {
    /// Feedback with any claims.
    Feedback,
    /// Challenges, and responses without a challenge.
    Challenge,
    /// Address lists with addresses of others.
    Addresses,
    /// Path status, also of nonexistent paths.
    PathStatus,
    /// Session open frames with changing fields.
    SessionOpen,
    /// Session close frames.
    SessionClose,
    /// Session unknown frames for sessions of the peer.
    SessionUnknown,
    /// Skip frames, up to half of the number space.
    Skip,
    /// Resequencing timeouts.
    Resequencing,
    /// Observed addresses.
    Observed,
    /// Playout times.
    Playout,
    /// Keepalive intervals.
    Keepalive,
    /// Full packets: with gaps, from or to other hosts, malformed.
    Packet,
    /// Compact packets.
    Compact,
    /// Padding and heartbeats.
    Padding,
    /// Close frames.
    Close,
    /// Authentic datagrams with malformed frames.
    Malformed,
    /// Needless handshakes, with false claims.
    Handshake,
    /// Replays, and datagrams that do not authenticate.
    Raw,
    /// Paths that were never opened.
    NewPath,
    /// Spoofed source addresses.
    Spoof,
}

impl Lie {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::Feedback,
        Self::Challenge,
        Self::Addresses,
        Self::PathStatus,
        Self::SessionOpen,
        Self::SessionClose,
        Self::SessionUnknown,
        Self::Skip,
        Self::Resequencing,
        Self::Observed,
        Self::Playout,
        Self::Keepalive,
        Self::Packet,
        Self::Compact,
        Self::Padding,
        Self::Close,
        Self::Malformed,
        Self::Handshake,
        Self::Raw,
        Self::NewPath,
        Self::Spoof,
    ];
}
