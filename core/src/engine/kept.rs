//! Fill levels of the engine's tables.

use super::{EVENTS, Engine};
use crate::association::Association;

impl Engine {
    /// Everything that grows with what peers send: name, current size and bound, as in
    /// `docs/architecture.md`.
    pub fn kept(&self) -> Vec<(&'static str, usize, usize)> {
        let peers = self.associations.len();
        let mut kept = vec![
            // The next call drops events beyond the bound.
            ("events", self.shared.events.len(), EVENTS + 256),
            (
                "packets for the host",
                self.shared.host_messages.len(),
                crate::host_packets::HOST_MESSAGES,
            ),
            ("captures", self.shared.captures.len(), peers),
            (
                "associations",
                peers,
                self.configured.len() + self.vacant.len() + self.limits.unknown_nodes,
            ),
            ("timeouts", self.schedule.len(), peers),
            // Three of keys, one of a pending handshake, one of a response being made.
            ("receiver indices", self.shared.indices.len(), 5 * peers),
            (
                "bytes that wait in order, of all",
                self.shared.hold.memory(),
                self.limits.resequencing_all,
            ),
        ];
        kept.extend(self.associations.iter().flat_map(Association::kept));
        kept
    }
}
