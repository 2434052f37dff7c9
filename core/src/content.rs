//! The contents of datagrams in flight, kept until they are acknowledged or lost.

use crate::parts::outbox::Notice;
use crate::rules::PathLimit;
use mpip_types::Instant;
use mpip_types::packet::Segments;
use mpip_wire::{PathId, SessionId};

/// A path of an association.
pub(crate) type Path = mpip_transport::Path<Content>;

/// The content of a datagram.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// An inner packet, sent again if lost.
    Packet(SentPacket),
    /// Control frames, sent again if lost.
    Control(Vec<Notice>),
}

impl Content {
    /// The content of a datagram with `notices`; `None` if none of them is repeated after loss.
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

/// An inner packet in flight, with everything needed to send it again.
#[derive(Clone, Debug)]
pub(crate) struct SentPacket {
    /// The super-packet that contains it.
    pub(crate) segments: Segments,
    /// The index of the packet's segment in it.
    pub(crate) segment: u16,
    /// The slot of its session; another session may have reused it.
    pub(crate) slot: u32,
    /// Its session.
    pub(crate) session: SessionId,
    /// Sequence within the session.
    pub(crate) sequence: u32,
    /// The receiver resequences its session.
    pub(crate) ordered: bool,
    /// The send queue marked it CE (congestion experienced).
    pub(crate) marked: bool,
    /// When it was first sent.
    pub(crate) first_sent: Instant,
    /// The paths that it may take.
    pub(crate) paths: PathLimit,
    /// The path on which it was last sent.
    pub(crate) path: PathId,
    /// Its packet number there.
    pub(crate) number: u64,
}
