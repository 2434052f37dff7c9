//! What the datagrams of an association carry, kept until it has arrived or is lost.

use crate::parts::outbox::Notice;
use mpip_types::Instant;
use mpip_types::packet::Segments;
use mpip_wire::{PathId, SessionId};

/// A path of an association.
pub(crate) type Path = mpip_transport::Path<Content>;

/// What a datagram carries.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// An inner packet, to be sent again.
    Packet(SentPacket),
    /// Control frames, to be sent again.
    Control(Vec<Notice>),
}

impl Content {
    /// What has to be remembered of `notices` that leave in one datagram, if anything has.
    pub(crate) fn of(notices: &[Notice]) -> Option<Self> {
        let repeated: Vec<_> = notices.iter().copied().filter(|it| it.is_repeated()).collect();
        (!repeated.is_empty()).then_some(Self::Control(repeated))
    }
}

impl mpip_transport::Content for Content {
    fn is_packet(&self) -> bool {
        matches!(self, Self::Packet(_))
    }

    fn reports_arrival(&self) -> bool {
        match self {
            Self::Packet(_) => false,
            Self::Control(notices) => notices.iter().any(|notice| notice.reports_arrival()),
        }
    }
}

/// An inner packet on its way: enough to send it again.
#[derive(Clone, Debug)]
pub(crate) struct SentPacket {
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
