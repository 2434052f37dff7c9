//! How full the tables of an engine are.

use super::{EVENTS, Engine};
use crate::association::Association;

impl Engine {
    /// What grows with what peers send: its name, how much there is, and the most there may be, as
    /// `docs/architecture.md` has it.
    pub fn kept(&self) -> Vec<(&'static str, usize, usize)> {
        let peers = self.associations.len();
        let mut kept = vec![
            // Those of one call beyond the bound go at the next.
            ("events", self.shared.events.len(), EVENTS + 256),
            (
                "packets for the host",
                self.shared.host_messages.len(),
                crate::host_packets::HOST_MESSAGES,
            ),
            ("captures", self.shared.captures.len(), peers),
            ("associations", peers, self.configured + self.limits.unknown_nodes),
            ("timeouts", self.schedule.len(), peers),
            // Three of keys, one of a handshake that waits, one that is being answered.
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
