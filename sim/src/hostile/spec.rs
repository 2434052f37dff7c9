//! A hostile node, as data.

use crate::clock::{MILLI, Nanos, SECOND};

/// A hostile node.
#[derive(Clone, Debug, PartialEq)]
pub struct HostileSpec {
    /// Index of the host that it deals with.
    pub target: usize,
    /// Whether that host's configuration names it; else it is a stranger.
    pub configured: bool,
    /// Whether it begins handshakes. It answers them in any case.
    pub calls: bool,
    /// What it does.
    pub lies: Vec<Lie>,
    /// Mean time between two things that it does.
    pub pause: Nanos,
    /// When it begins, and when it falls silent for good.
    pub from: Nanos,
    /// See [`from`](Self::from).
    pub until: Nanos,
    /// Datagrams that it sends at most.
    pub most: u64,
    /// How many keys it has. A stranger may show another one with each handshake.
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

/// A kind of thing that a hostile node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lie {
    /// Feedback that claims anything.
    Feedback,
    /// Challenges, and answers to none.
    Challenge,
    /// Lists of addresses of others.
    Addresses,
    /// Changes of paths, those that do not exist included.
    PathStatus,
    /// Fields of sessions, which change.
    SessionOpen,
    /// Ends of sessions.
    SessionClose,
    /// Sessions of the peer that are said to be unknown.
    SessionUnknown,
    /// Numbers that will never come, up to half of all.
    Skip,
    /// How long the peer is to wait.
    Resequencing,
    /// How the peer is seen.
    Observed,
    /// When packets are to be delivered.
    Playout,
    /// How often the peer is to send.
    Keepalive,
    /// Packets in full: with gaps, from others, to others, malformed.
    Packet,
    /// Packets without headers.
    Compact,
    /// Padding and heartbeats.
    Padding,
    /// The end of the association.
    Close,
    /// Sealed bytes that are no frames.
    Malformed,
    /// Handshakes without need, with claims that are not true.
    Handshake,
    /// Repetitions, and what does not authenticate.
    Raw,
    /// Paths that nobody opened.
    NewPath,
    /// Sources of others.
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
