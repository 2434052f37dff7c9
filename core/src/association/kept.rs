//! Fill levels of an association's tables.

use mpip_wire::AddressList;

use super::Association;

impl Association {
    /// Everything that grows with what the peer sends: name, current size and bound, as in
    /// `docs/architecture.md`.
    pub(crate) fn kept(&self) -> Vec<(&'static str, usize, usize)> {
        let limits = &self.limits;
        let mut kept = vec![
            ("sessions that send", self.sending.sessions().len(), limits.sessions),
            ("sessions that receive", self.receiving.sessions().len(), limits.sessions),
            ("paths", self.paths.len(), limits.paths),
            ("bytes in the send queue", self.sending.queue().bytes(), limits.send_queue),
            ("bytes that wait in order", self.receiving.share().held(), limits.resequencing),
            ("sessions that wait", self.receiving.waiting(), self.receiving.sessions().len()),
            ("repairs", self.sending.repairs().len(), 16_384),
            ("told addresses", self.peer.advertised().len(), AddressList::MAX),
            ("networks", self.rest.networks(), crate::parts::resting::NETWORKS),
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
