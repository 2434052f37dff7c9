//! Whether the retransmissions of a recovery were needless. If they were, the window comes back, as
//! in Linux, whose names of its values are given.
//!
//! Either of two signs is enough: an acknowledgement echoes a timestamp from before the first
//! retransmission, so the original has arrived (RFC 3522), or each retransmission is reported as a
//! duplicate (RFC 3708).

use super::super::timestamps::Timestamps;

/// What is known of the retransmissions since recovery began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undo {
    /// First byte that was not acknowledged then (`undo_marker`).
    marker: u64,
    /// Retransmissions not reported as duplicates; `None` before the first one (`undo_retrans`).
    outstanding: Option<u32>,
    /// Timestamp of the first retransmission (`retrans_stamp`).
    stamp: Option<u32>,
}

impl Undo {
    /// Recovery begins, with `repeated` retransmissions still in flight.
    pub(super) fn new(marker: u64, repeated: u32) -> Self {
        let outstanding = (repeated > 0).then_some(repeated);
        Self { marker, outstanding, stamp: None }
    }

    /// A lost segment was sent again, with the timestamp `stamp`.
    pub(super) fn on_repeated(&mut self, stamp: u32) {
        *self.outstanding.get_or_insert(0) += 1;
        self.stamp.get_or_insert(stamp);
    }

    /// A segment that ends at `end` was reported as a duplicate.
    pub(super) fn on_duplicate(&mut self, end: u64) {
        if let Some(outstanding) = self.outstanding.as_mut().filter(|_| end > self.marker) {
            *outstanding = outstanding.saturating_sub(1);
        }
    }

    /// Whether the other end got an original before the first retransmission arrived
    /// (`tcp_packet_delayed`).
    pub(super) fn was_delayed(&self, timestamps: &Timestamps) -> bool {
        self.stamp.is_some_and(|stamp| timestamps.echo_is_before(stamp))
    }

    /// Whether each retransmission was reported as a duplicate.
    pub(super) fn repeated_in_vain(&self) -> bool {
        self.outstanding == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmissions_were_in_vain_once_each_is_reported_as_a_duplicate() {
        let mut undo = Undo::new(5_000, 1);
        undo.on_repeated(7);
        undo.on_duplicate(6_000);
        undo.on_duplicate(5_000);
        assert!(!undo.repeated_in_vain(), "the second report is for an earlier recovery");
        undo.on_duplicate(7_000);
        assert!(undo.repeated_in_vain());
    }

    #[test]
    fn without_a_retransmission_none_was_in_vain() {
        let mut undo = Undo::new(5_000, 0);
        undo.on_duplicate(6_000);
        assert!(!undo.repeated_in_vain() && !undo.was_delayed(&Timestamps::default()));
    }
}
