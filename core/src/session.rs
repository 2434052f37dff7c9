//! Sessions: inner connections, one entry per direction.
//!
//! Each side numbers the sessions in which it sends; the number says nothing in the other
//! direction. So both ends can begin a session at once and nothing collides.

use core::time::Duration;

use mpip_wire::{SessionFields, SessionId};

use crate::omission::SessionHeader;
use crate::packet::{Endpoint, SessionKey};
use crate::resequencer::{Resequencer, WAIT_BUCKETS};
use crate::time::Instant;
use crate::window::DuplicateWindow;

/// Sessions of this protocol are delivered in order.
const TCP: u8 = 6;

/// No window of TCP is larger (RFC 7323, section 2.3): bytes that one acknowledgement covers, and by
/// which one can be late.
const MOST_ACKNOWLEDGED: u32 = 1 << 30;

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
    pub(crate) known: Known,
    pub(crate) counters: Counters,
    /// Packets that were sent again.
    pub(crate) repaired: u64,
}

impl Outgoing {
    pub(crate) fn new(id: SessionId, key: &SessionKey, resequencing: bool) -> Self {
        Self {
            id,
            ordered: resequencing && key.protocol == TCP,
            repair: false,
            next_sequence: 0,
            known: Known::Nothing,
            counters: Counters::default(),
            repaired: 0,
        }
    }
}

/// What the receiver knows of the headers of a session's packets.
#[derive(Debug)]
pub(crate) enum Known {
    /// Nothing yet.
    Nothing,
    /// It was told, and has not confirmed it.
    Told(Box<Told>),
    /// It was told in vain, or has forgotten it.
    Lapsed(Box<Told>),
    /// All that the packets have in common: it is left out from now on.
    Header(Box<Told>),
}

/// What a session's packets have in common, as it was told first; nothing else is ever told.
#[derive(Debug)]
pub(crate) struct Told {
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
    /// That the host sees another source, and since when the connection is known to be in use.
    pub(crate) shown: Option<Box<(Endpoint, Instant)>>,
    /// The newest sequence number, from which truncated ones are restored.
    pub(crate) newest: u32,
    /// What the peer's TCP has acknowledged of our side's stream.
    pub(crate) acknowledged: Option<u32>,
    pub(crate) counters: Counters,
}

impl Incoming {
    /// The peer's TCP expects `number` next. Returns how many bytes it has that it had not before.
    pub(crate) fn on_acknowledgement(&mut self, number: u32) -> u64 {
        let former = *self.acknowledged.get_or_insert(number);
        let new = number.wrapping_sub(former);
        // Older ones are overtaken, and those of another connection between the same ports far off.
        if new >= MOST_ACKNOWLEDGED {
            if new < MOST_ACKNOWLEDGED.wrapping_neg() {
                self.acknowledged = Some(number);
            }
            return 0;
        }
        self.acknowledged = Some(number);
        u64::from(new)
    }
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

    /// How long packets have waited, see [`ResequencerStats`](crate::resequencer::ResequencerStats).
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
    use crate::packet::Endpoint;

    #[test]
    fn what_the_peer_acknowledges_counts_once() {
        let end = Endpoint { address: Ipv4Addr::LOCALHOST.into(), port: 1 };
        let mut session = Incoming {
            key: SessionKey { protocol: TCP, source: end, destination: end },
            order: None,
            header: None,
            shown: None,
            newest: 0,
            acknowledged: None,
            counters: Counters::default(),
        };
        let numbers =
            [u32::MAX - 999, u32::MAX - 499, u32::MAX - 999, 500, 500, 1 << 31, (1 << 31) + 7];
        let counted = numbers.map(|number| session.on_acknowledgement(number));
        // The last but one is of another connection, between the same ports.
        assert_eq!(counted, [0, 500, 0, 1_000, 0, 0, 7]);
    }
}
