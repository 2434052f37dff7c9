//! What is refused, and why.

use std::collections::BTreeMap;

/// Why a packet or datagram was refused. It is counted; one bad packet never ends a batch.
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
    /// No path worked for so long that what waited was stale.
    NoPath,
    /// Larger than any path carries.
    TooBig,
    /// The inner TCP sends again what still waits for a path.
    Waits,
    /// Not a message of this protocol, or a frame of it is broken.
    Malformed,
    /// The frames of a datagram make more work than one may.
    TooMuchWork,
    /// No association has this receiver index.
    UnknownIndex,
    /// Not sealed under our keys.
    Authentication,
    /// The packet number was seen before, or is too old to tell.
    Replay,
    /// A path that was given up, or that the peer has no right to open.
    UnknownPath,
    /// The peer opens more paths than the limit.
    TooManyPaths,
    /// The inner source address is not one of the peer's.
    ForeignSource,
    /// The inner destination is neither an address of this host nor one that the peer may reach
    /// through it.
    ForeignDestination,
    /// A packet, or header fields, of another connection than the session that they name.
    OtherSession,
    /// A packet without header fields of a session whose fields we do not have.
    UnknownSession,
    /// The inner packet had arrived before.
    Duplicate,
    /// An acknowledgement of the peer's TCP that later ones repeat.
    Thinned,
    /// A handshake message that is not authentic, or replayed.
    Handshake,
    /// Too many handshakes at once, or the first of an unknown node: the sender was given a cookie.
    UnderLoad,
    /// More handshakes of one source than are read, or more than can be read.
    TooManyHandshakes,
    /// A list of addresses from a peer that tells them too often: the latest is followed later.
    TooManyAddresses,
    /// A query from an address that gets no answer, or an answer to no query.
    Availability,
    /// No port is free for a connection of a peer behind a translator.
    NoPort,
    /// A packet of a connection that did not begin on the paths, behind a translator, and the
    /// policy lets no packet leave in another way.
    NotBegun,
    /// A packet to a peer behind a translator finds no buffer.
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

/// Refusals by cause.
#[derive(Debug, Default)]
pub(crate) struct Drops(BTreeMap<DropReason, u64>);

impl Drops {
    /// Each cause by its name.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(reason, count)| (reason.name(), *count))
    }

    pub(crate) fn count(&mut self, reason: DropReason) {
        self.add(reason, 1);
    }

    pub(crate) fn add(&mut self, reason: DropReason, count: u64) {
        if count > 0 {
            *self.0.entry(reason).or_default() += count;
        }
    }

    /// How many there were.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of(&self, reason: DropReason) -> u64 {
        self.0.get(&reason).copied().unwrap_or_default()
    }
}
