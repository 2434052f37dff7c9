//! Reasons for refusing packets and datagrams, and their counters.

use std::collections::BTreeMap;

/// Why a packet or datagram was refused. Each refusal is counted; a bad packet never ends a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DropReason {
    /// Not a whole IPv4 or IPv6 packet.
    MalformedPacket,
    /// The offload state of a packet contradicts its bytes.
    MalformedOffload,
    /// No peer has a prefix with the packet's destination.
    NoPeer,
    /// There are no keys with the peer yet.
    NotEstablished,
    /// Queued packets became stale because no path worked.
    NoPath,
    /// Its rule permits paths only of which none works.
    NoRulePath,
    /// The packet is larger than any path carries.
    TooBig,
    /// The inner TCP retransmitted a segment that is still in the send queue.
    Waits,
    /// Not a message of this protocol, or with a malformed frame.
    Malformed,
    /// The frames of a datagram exceed its work limit.
    TooMuchWork,
    /// No association has this receiver index.
    UnknownIndex,
    /// Not sealed under our keys.
    Authentication,
    /// The packet number was seen before, or is older than the replay window.
    Replay,
    /// The path was abandoned, or the peer may not open it.
    UnknownPath,
    /// The peer opens more paths than the limit.
    TooManyPaths,
    /// The inner source address does not belong to the peer.
    ForeignSource,
    /// The inner destination is neither an address of this host nor one that the peer may reach
    /// through it.
    ForeignDestination,
    /// A packet, or header fields, of another connection than their session's.
    OtherSession,
    /// A compact packet of a session whose header fields are unknown.
    UnknownSession,
    /// The inner packet had arrived before.
    Duplicate,
    /// An acknowledgement of the inner TCP that later ones repeat.
    Thinned,
    /// A handshake message that is not authentic, or is a replay.
    Handshake,
    /// Too many handshakes at once, or the first one of an unknown peer: the sender was given a
    /// cookie.
    UnderLoad,
    /// The source exceeds its rate limit of handshakes, or too many wait to be read.
    TooManyHandshakes,
    /// An address list of a peer that sends too many: the latest is applied later.
    TooManyAddresses,
    /// A query from an address that gets no answer, or an unsolicited answer.
    Availability,
    /// No port is free for a connection of a peer behind a NAT.
    NoPort,
    /// A packet of a connection through a NAT that did not begin on the paths, while the policy
    /// forbids plain packets.
    NotBegun,
    /// No buffer was free for a packet to a peer behind a NAT.
    NoBuffer,
}

impl DropReason {
    /// The name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::MalformedPacket => "malformed_packet",
            Self::MalformedOffload => "malformed_offload",
            Self::NoPeer => "no_peer",
            Self::NotEstablished => "not_established",
            Self::NoPath => "no_path",
            Self::NoRulePath => "no_rule_path",
            Self::TooBig => "too_big",
            Self::Waits => "waits",
            Self::Malformed => "malformed_datagram",
            Self::TooMuchWork => "too_much_work",
            Self::UnknownIndex => "unknown_index",
            Self::Authentication => "authentication",
            Self::Replay => "replay",
            Self::UnknownPath => "unknown_path",
            Self::TooManyPaths => "too_many_paths",
            Self::ForeignSource => "foreign_source",
            Self::ForeignDestination => "foreign_destination",
            Self::OtherSession => "other_session",
            Self::UnknownSession => "unknown_session",
            Self::Duplicate => "duplicate",
            Self::Thinned => "thinned",
            Self::Handshake => "handshake",
            Self::UnderLoad => "under_load",
            Self::TooManyAddresses => "too_many_addresses",
            Self::TooManyHandshakes => "too_many_handshakes",
            Self::Availability => "availability",
            Self::NoPort => "no_port",
            Self::NotBegun => "not_begun",
            Self::NoBuffer => "no_buffer",
        }
    }
}

/// Refusals by reason.
#[derive(Debug, Default)]
pub(crate) struct Drops(BTreeMap<DropReason, u64>);

impl Drops {
    /// Each reason by its name, with its count.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(reason, count)| (reason.name(), *count))
    }

    pub(crate) fn count(&mut self, reason: DropReason) {
        self.add(reason, 1);
    }

    #[inline]
    pub(crate) fn add(&mut self, reason: DropReason, count: u64) {
        if count > 0 {
            *self.0.entry(reason).or_default() += count;
        }
    }

    /// The count of `reason`.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of(&self, reason: DropReason) -> u64 {
        self.0.get(&reason).copied().unwrap_or_default()
    }
}
