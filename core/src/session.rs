//! Sessions: inner connections, one entry per direction.
//!
//! Each side numbers the sessions in which it sends; the number says nothing in the other
//! direction. So both ends can begin a session at once and nothing collides.

use core::time::Duration;

use mpip_wire::SessionId;

use crate::packet::SessionKey;
use crate::resequencer::Resequencer;
use crate::window::DuplicateWindow;

/// Sessions of this protocol are delivered in order.
const TCP: u8 = 6;

/// A session in which this host sends.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Its number.
    pub(crate) id: SessionId,
    /// Whether the receiver puts it in order, and losses are repaired.
    pub(crate) ordered: bool,
    /// Sequence of the next packet.
    pub(crate) next_sequence: u32,
    pub(crate) counters: Counters,
    /// Packets that were sent again.
    pub(crate) repaired: u64,
}

impl Outgoing {
    pub(crate) fn new(id: SessionId, key: &SessionKey, resequencing: bool) -> Self {
        Self {
            id,
            ordered: resequencing && key.protocol == TCP,
            next_sequence: 0,
            counters: Counters::default(),
            repaired: 0,
        }
    }
}

/// A session in which the peer sends.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// Protocol and addresses, from its first packet.
    pub(crate) key: SessionKey,
    pub(crate) order: Order,
    pub(crate) counters: Counters,
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
