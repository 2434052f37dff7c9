//! Sessions: inner connections, one entry per direction.
//!
//! Each side numbers the sessions in which it sends; the number says nothing in the other
//! direction. So both ends can begin a session at once and nothing collides.

use core::time::Duration;

use mpip_wire::{SessionFields, SessionId};

use crate::omission::SessionHeader;
use crate::resequencer::{Resequencer, WAIT_BUCKETS};
use crate::thinning::Thinning;
use crate::window::DuplicateWindow;
use mpip_types::Instant;
use mpip_types::packet::{Endpoint, MAX_WINDOW, SessionKey, protocol};

/// A session in which this host sends.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Its number.
    pub(crate) id: SessionId,
    /// Whether the receiver puts it in order, and losses are repaired.
    pub(crate) ordered: bool,
    /// A rule wants losses to be repaired though the receiver delivers what comes.
    pub(crate) repair: bool,
    /// Sequence of the next packet.
    pub(crate) next_sequence: u32,
    pub(crate) header_state: HeaderState,
    pub(crate) counters: Counters,
    /// Packets that were sent again.
    pub(crate) repaired: u64,
    /// Where in its TCP stream what has left ends, and what was put into the queue.
    stream_end: Option<u32>,
    queue_end: Option<u32>,
    /// Which of the peer's acknowledgements pass.
    thinning: Thinning,
}

impl Outgoing {
    pub(crate) fn new(id: SessionId, key: &SessionKey, resequencing: bool) -> Self {
        Self {
            id,
            ordered: resequencing && key.protocol == protocol::TCP,
            repair: false,
            next_sequence: 0,
            header_state: HeaderState::Unsent,
            counters: Counters::default(),
            repaired: 0,
            stream_end: None,
            queue_end: None,
            thinning: Thinning::default(),
        }
    }

    /// Segments of `len` bytes come, the last of which ends at sequence number `end`.
    pub(crate) fn on_segments(&mut self, now: Instant, len: u32, end: u32) {
        self.thinning.on_segment(now, len, end);
    }

    /// A segment of `len` bytes that ends at sequence number `end` is to be put into the queue.
    /// `false` if all of it was put there before, and what was behind it then has not left:
    /// unless it was dropped it waits there still, and the inner TCP takes it for lost because
    /// it waits.
    pub(crate) fn queues(&mut self, len: u32, end: u32) -> bool {
        let Some(left) = self.stream_end else { return true };
        let queued = *self.queue_end.get_or_insert(left);
        let ahead = end.wrapping_sub(queued);
        if ahead == 0 || ahead >= MAX_WINDOW.wrapping_neg() {
            if len > 0 {
                self.thinning.on_repeated();
            }
            let beyond = end.wrapping_sub(len).wrapping_sub(left);
            return len == 0 || beyond >= MAX_WINDOW;
        }
        self.queue_end = Some(end);
        true
    }

    /// Whether the peer's acknowledgement of everything before `ack` is to pass. `waits`: since
    /// when more comes than the paths carry.
    pub(crate) fn passes(&mut self, now: Instant, ack: u32, waits: Option<Instant>) -> bool {
        let end = self.queue_end.or(self.stream_end);
        end.is_none_or(|end| self.thinning.passes(now, ack, end, waits))
    }

    /// A segment leaves that ends at sequence number `end` of the TCP stream. Returns how many
    /// bytes leave for the first time.
    pub(crate) fn on_segment(&mut self, end: u32) -> u64 {
        let former = *self.stream_end.get_or_insert(end);
        let new = end.wrapping_sub(former);
        // Others are sent again, and those of another connection between the same ports far off.
        if new >= MAX_WINDOW {
            if new < MAX_WINDOW.wrapping_neg() {
                self.stream_end = Some(end);
            }
            return 0;
        }
        self.stream_end = Some(end);
        u64::from(new)
    }
}

/// What the receiver knows of the headers of a session's packets.
#[derive(Debug)]
pub(crate) enum HeaderState {
    /// Nothing yet.
    Unsent,
    /// It was told, and has not confirmed it.
    Sent(Box<HeaderFields>),
    /// It was told in vain, or has forgotten it.
    Lost(Box<HeaderFields>),
    /// All that the packets have in common: it is left out from now on.
    Confirmed(Box<HeaderFields>),
}

/// What a session's packets have in common, as it was told first; nothing else is ever told.
#[derive(Debug)]
pub(crate) struct HeaderFields {
    pub(crate) fields: SessionFields,
    pub(crate) header: SessionHeader,
}

/// A session in which the peer sends.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// Protocol and addresses, from its first packet.
    pub(crate) key: SessionKey,
    /// How they are delivered; the first packet says it.
    pub(crate) order: Option<Order>,
    /// What the peer's packets have in common, if it has said so.
    pub(crate) header: Option<Box<SessionHeader>>,
    /// What becomes of the source of packets that come without their headers.
    pub(crate) source_rewrite: SourceRewrite,
    /// The newest sequence number, from which truncated ones are restored.
    pub(crate) newest: u32,
    pub(crate) counters: Counters,
}

/// How the host is to see the source of the packets that are restored from a session's fields.
#[derive(Debug)]
pub(crate) enum SourceRewrite {
    /// As the fields say.
    None,
    /// With this end, which is in what they are restored from, and since when the connection is
    /// known to be in use.
    To(Box<(Endpoint, Instant)>),
    /// The fields do not say what connection a packet belongs to, only the packet does.
    PerPacket,
}

/// How packets of a session reach the host.
#[derive(Debug)]
pub(crate) enum Order {
    /// In the order in which they were sent.
    Sequenced(Box<Resequencer>),
    /// As they come, each once.
    AsTheyCome(Box<DuplicateWindow>),
}

impl Order {
    /// How packets that claim to be `ordered` are delivered.
    pub(crate) fn new(ordered: bool) -> Self {
        match ordered {
            true => Self::Sequenced(Box::default()),
            false => Self::AsTheyCome(Box::default()),
        }
    }

    /// How long packets have waited, see
    /// [`ResequencerStats`](crate::resequencer::ResequencerStats).
    pub(crate) fn waits(&self) -> [u32; WAIT_BUCKETS] {
        match self {
            Self::Sequenced(resequencer) => resequencer.stats().waits,
            Self::AsTheyCome(_) => [0; WAIT_BUCKETS],
        }
    }

    /// A packet that needs order has come: from `sequence` on the session has it.
    pub(crate) fn require(&mut self, sequence: u32) {
        if let Self::AsTheyCome(window) = self {
            let window = DuplicateWindow::clone(window);
            *self = Self::Sequenced(Box::new(Resequencer::continuing(window, sequence)));
        }
    }

    /// The longest that a packet has waited for an earlier one.
    pub(crate) fn longest_wait(&self) -> Duration {
        match self {
            Self::Sequenced(resequencer) => resequencer.stats().longest_wait,
            Self::AsTheyCome(_) => Duration::ZERO,
        }
    }
}

/// Inner packets and bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Counters {
    pub(crate) fn add(&mut self, len: usize) {
        self.packets += 1;
        self.bytes += len as u64;
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;
    use mpip_types::packet::Endpoint;

    #[test]
    fn what_leaves_again_does_not_count() {
        let end = Endpoint { address: Ipv4Addr::LOCALHOST.into(), port: 1 };
        let key = SessionKey { protocol: protocol::TCP, source: end, destination: end };
        let mut session = Outgoing::new(SessionId(0), &key, true);
        let ends =
            [u32::MAX - 999, u32::MAX - 499, u32::MAX - 999, 500, 500, 1 << 31, (1 << 31) + 7];
        let counted = ends.map(|end| session.on_segment(end));
        // The last but one is of another connection, between the same ports.
        assert_eq!(counted, [0, 500, 0, 1_000, 0, 0, 7]);
    }

    #[test]
    fn what_waits_is_not_queued_again() {
        let end = Endpoint { address: Ipv4Addr::LOCALHOST.into(), port: 1 };
        let key = SessionKey { protocol: protocol::TCP, source: end, destination: end };
        let mut session = Outgoing::new(SessionId(0), &key, true);
        let start = u32::MAX - 1_500;
        let at = |bytes: u32| start.wrapping_add(bytes);
        assert!(session.queues(1_000, at(1_000)), "of a stream that is not known yet");
        session.on_segment(at(1_000));
        assert!(session.queues(1_000, at(2_000)) && session.queues(1_000, at(3_000)));
        assert!(!session.queues(1_000, at(2_000)) && !session.queues(2_000, at(3_000)));
        assert!(session.queues(0, at(3_000)), "acknowledges");
        assert!(session.queues(1_000, at(1_500)), "part of it has left");
        assert!(session.queues(1_000, at(3_500)), "part of it is new");
        session.on_segment(at(2_000));
        assert!(session.queues(1_000, at(2_000)), "it has left");
        assert!(session.queues(1_000, at(1 << 31)), "of another connection between the same ports");
    }
}
