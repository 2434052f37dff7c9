//! What the datagrams of an association carry, kept until it has arrived or is lost.

use mpip_types::Instant;
use mpip_types::packet::Segments;
use mpip_wire::{PathId, SessionId};

/// A path of an association.
pub(crate) type Path = mpip_transport::Path<Content>;

/// What a datagram carries.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// An inner packet, to be sent again.
    Packet(Cargo),
    /// Control frames, to be said again.
    Control(Control),
}

impl mpip_transport::Content for Content {
    fn is_packet(&self) -> bool {
        matches!(self, Self::Packet(_))
    }

    fn reports_arrival(&self) -> bool {
        matches!(self, Self::Control(Control { open: Some(_), .. }))
    }
}

/// An inner packet on its way: enough to send it again.
#[derive(Clone, Debug)]
pub(crate) struct Cargo {
    /// The super-packet that holds it.
    pub(crate) segments: Segments,
    /// Which of its segments.
    pub(crate) segment: u16,
    /// The slot of its session, which may belong to another by now.
    pub(crate) slot: u32,
    /// Its session.
    pub(crate) session: SessionId,
    /// Sequence within the session.
    pub(crate) sequence: u32,
    /// The receiver puts its session in order.
    pub(crate) ordered: bool,
    /// The queue marked it with congestion experienced.
    pub(crate) marked: bool,
    /// When it left for the first time.
    pub(crate) first_sent: Instant,
    /// The path on which it left last.
    pub(crate) path: PathId,
    /// Its number there.
    pub(crate) number: u64,
}

/// Control frames of a datagram that have to be said again if it is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Control {
    /// The list of local addresses.
    pub(crate) addresses: bool,
    /// How long the peer is to wait for gaps.
    pub(crate) resequencing: bool,
    /// The status of a path.
    pub(crate) path_status: bool,
    /// How the peer's end of the path is seen.
    pub(crate) observed: bool,
    /// How long the path may rest.
    pub(crate) keepalive: bool,
    /// The header fields of a session, by slot and number.
    pub(crate) open: Option<(u32, SessionId)>,
}

impl Control {
    /// What has to be remembered of it, if anything has.
    pub(crate) fn content(self) -> Option<Content> {
        (self != Self::default()).then_some(Content::Control(self))
    }
}
