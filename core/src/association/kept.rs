//! How full the tables of an association are.

use mpip_wire::AddressList;

use super::Association;

impl Association {
    /// What grows with what the peer sends: its name, how much there is, and the most there may be, as
    /// `docs/architecture.md` has it.
    pub(crate) fn kept(&self) -> Vec<(&'static str, usize, usize)> {
        let limits = &self.limits;
        let mut kept = vec![
            ("sessions that send", self.outgoing.len(), limits.sessions),
            ("sessions that receive", self.incoming.len(), limits.sessions),
            ("paths", self.paths.len(), limits.paths),
            ("bytes in the send queue", self.queue.bytes(), limits.send_queue),
            ("bytes that wait in order", self.share.held(), limits.resequencing),
            ("sessions that wait", self.waiting.len(), self.incoming.len()),
            ("repairs", self.repairs.len(), 16_384),
            ("told addresses", self.peer_addresses.len(), AddressList::MAX),
            ("networks", self.networks.len(), 16),
            ("keys", self.keys.len(), 3),
        ];
        kept.extend(self.outbox.kept());
        for path in &self.paths {
            kept.push(("packets of a path", path.flight.tracked(), 16_000));
            kept.push(("ranges of a lane", path.arrivals.ranges(), 256));
        }
        kept
    }
}
