//! What has left: each datagram, what it carried, and what of that is lost.

use mpip_wire::{CHALLENGE_DATAGRAM_LEN, PathId, SessionId};

use crate::packet::Segments;
use crate::time::Instant;

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

/// What a datagram carried beside an inner packet, to be said again if it is lost.
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
    /// It probes the path's MTU: its loss is no sign of congestion, nor its silence one of failure.
    pub(crate) mtu_probe: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    InFlight,
    Acked,
    Lost,
    /// Not tracked: it asks for no feedback.
    Untracked,
}

#[derive(Debug)]
pub(super) struct Sent {
    pub(super) at: Instant,
    pub(super) size: u16,
    pub(super) fate: Fate,
    pub(super) app_limited: bool,
    /// It left as ECN-capable.
    pub(super) ect: bool,
    pub(super) delivered: u64,
    pub(super) delivered_at: Instant,
    pub(super) first_sent_at: Instant,
    pub(super) control: Control,
    pub(super) cargo: Option<Cargo>,
}

impl Sent {
    /// Whether the path owes an answer to it.
    pub(super) fn is_awaited(&self) -> bool {
        self.fate == Fate::InFlight && !self.control.mtu_probe
    }
}

/// Memory of one packet in flight, without the buffer of its super-packet.
#[cfg(test)]
pub(crate) const BYTES_PER_PACKET: usize = size_of::<Sent>();

/// What became of packets, collected in vectors that the caller uses again.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Inner packets to be sent again, oldest first.
    pub(crate) cargo: Vec<Cargo>,
    /// What else they carried.
    pub(crate) control: Control,
    /// Sessions whose header fields were lost.
    pub(crate) unopened: Vec<(u32, SessionId)>,
    /// Sessions whose header fields have arrived.
    pub(crate) opened: Vec<(u32, SessionId)>,
    /// Bytes of them all.
    pub(crate) bytes: u64,
    /// How many datagrams.
    pub(crate) packets: u64,
    /// When the newest of them had left.
    pub(crate) newest: Instant,
    /// How many of them were longer than what every path carries, and the shortest of those.
    pub(crate) large: u32,
    pub(crate) smallest_large: u16,
    /// Length of an MTU probe, which is in none of the other counts; 0 without one.
    pub(crate) probe: u16,
    /// Passes of loops to find all that.
    pub(crate) steps: u64,
}

impl Losses {
    pub(crate) fn clear(&mut self) {
        self.cargo.clear();
        self.unopened.clear();
        self.opened.clear();
        self.control = Control::default();
        self.bytes = 0;
        self.packets = 0;
        self.newest = Instant::ZERO;
        self.large = 0;
        self.smallest_large = 0;
        self.probe = 0;
        self.steps = 0;
    }

    pub(super) fn add(&mut self, sent: &mut Sent) {
        sent.fate = Fate::Lost;
        if sent.control.mtu_probe {
            self.probe = sent.size;
            return;
        }
        if usize::from(sent.size) > CHALLENGE_DATAGRAM_LEN {
            let smallest = if self.large == 0 { u16::MAX } else { self.smallest_large };
            self.smallest_large = smallest.min(sent.size);
            self.large += 1;
        }
        self.bytes += u64::from(sent.size);
        self.packets += 1;
        self.newest = self.newest.max(sent.at);
        self.control.observed |= sent.control.observed;
        self.control.keepalive |= sent.control.keepalive;
        self.control.addresses |= sent.control.addresses;
        self.control.resequencing |= sent.control.resequencing;
        self.control.path_status |= sent.control.path_status;
        self.unopened.extend(sent.control.open);
        self.cargo.extend(sent.cargo.take());
    }
}
