//! Tail loss probes (RFC 8985, section 7), as Linux sends them.
//!
//! Where nothing is acknowledged for about two round trips, one segment is sent: the next one, or
//! the last one again. Its acknowledgement shows losses that a timeout would show much later.

use crate::clock::{MILLI, NEVER, Nanos, SECOND};

/// Time after which a probe is sent where there is no sample of the round-trip time
/// (`TCP_TIMEOUT_INIT`).
const INITIAL: Nanos = SECOND;
/// How long a delayed acknowledgement of a single segment is waited for (`TCP_RTO_MIN`).
const DELAYED_ACK: Nanos = 200 * MILLI;
/// Margin where several segments are in flight (`TCP_TIMEOUT_MIN_US`).
const MARGIN: Nanos = 2 * MILLI;

/// A probe that is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probe {
    /// End of what had been sent with it (`tlp_high_seq`).
    end: u64,
    /// Whether it was a retransmission (`tlp_retrans`).
    again: bool,
}

/// What an acknowledgement says about a probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    /// Number of bytes acknowledged in order.
    pub(super) ack: u64,
    /// End of the segment that it reports as a duplicate (RFC 2883).
    pub(super) duplicate: Option<u64>,
    /// Whether it acknowledges anything that no earlier one did.
    pub(super) news: bool,
}

/// The probes of a sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probes {
    /// Time of the next one; [`NEVER`] if none is due.
    pub(super) at: Nanos,
    outstanding: Option<Probe>,
}

impl Probes {
    pub(super) fn new() -> Self {
        Self { at: NEVER, outstanding: None }
    }

    /// Sets the time of the next probe. `segments` are not acknowledged, the smoothed round-trip
    /// time is `smoothed` (0 if there is no sample), and the retransmission timer expires at
    /// `timeout_at`.
    pub(super) fn arm(&mut self, now: Nanos, segments: usize, smoothed: Nanos, timeout_at: Nanos) {
        let margin = if segments == 1 { DELAYED_ACK } else { MARGIN };
        let after = if smoothed == 0 { INITIAL } else { 2 * smoothed + margin };
        self.at = (now + after).min(timeout_at);
    }

    /// No probe is due: nothing is in flight, or losses are known.
    pub(super) fn disarm(&mut self) {
        self.at = NEVER;
    }

    /// Losses were found in another way, so the outstanding probe has nothing to show.
    pub(super) fn forget(&mut self) {
        *self = Self::new();
    }

    /// The timer expired. Returns whether to send a probe: at most one is outstanding.
    pub(super) fn expire(&mut self) -> bool {
        self.at = NEVER;
        self.outstanding.is_none()
    }

    /// A probe was sent, `again` if it was a retransmission. All bytes sent end at `end`.
    pub(super) fn on_sent(&mut self, end: u64, again: bool) {
        self.outstanding = Some(Probe { end, again });
    }

    /// Whether a segment reported as a duplicate, which ends at `end`, was a probe.
    pub(super) fn is_answer(&self, end: u64) -> bool {
        self.outstanding.is_some_and(|probe| probe.end == end)
    }

    /// An acknowledgement came. Returns whether it shows that the probe repaired a loss, which
    /// reduces the window (`tcp_process_tlp_ack`).
    pub(super) fn on_ack(&mut self, answer: Answer) -> bool {
        let Some(probe) = self.outstanding.filter(|probe| answer.ack >= probe.end) else {
            return false;
        };
        let harmless = !probe.again || answer.duplicate == Some(probe.end) || !answer.news;
        let repaired = !harmless && answer.ack > probe.end;
        if harmless || repaired {
            self.outstanding = None;
        }
        repaired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(ack: u64, duplicate: Option<u64>, news: bool) -> Answer {
        Answer { ack, duplicate, news }
    }

    fn sent(again: bool) -> Probes {
        let mut probes = Probes::new();
        probes.on_sent(5_000, again);
        probes
    }

    #[test]
    fn it_waits_for_two_round_trips_and_longer_for_the_answer_to_a_single_segment() {
        let mut probes = Probes::new();
        let rtt = 50 * MILLI;
        probes.arm(SECOND, 2, rtt, NEVER);
        assert_eq!(probes.at, SECOND + 102 * MILLI);
        probes.arm(SECOND, 1, rtt, NEVER);
        assert_eq!(probes.at, SECOND + 300 * MILLI);
        probes.arm(SECOND, 1, rtt, SECOND + 250 * MILLI);
        assert_eq!(probes.at, SECOND + 250 * MILLI);
    }

    #[test]
    fn one_is_outstanding_at_most() {
        let mut probes = sent(true);
        assert!(!probes.expire());
        probes.forget();
        assert!(probes.expire());
    }

    #[test]
    fn a_reported_duplicate_shows_that_nothing_was_lost() {
        let mut probes = sent(true);
        assert!(!probes.on_ack(answer(5_000, None, true)));
        assert!(!probes.on_ack(answer(5_000, Some(5_000), false)));
        assert!(!probes.on_ack(answer(6_000, None, true)));
    }

    #[test]
    fn without_a_report_the_probe_repaired_a_loss() {
        let mut probes = sent(true);
        assert!(!probes.on_ack(answer(4_000, None, true)), "it covers the probe only in part");
        assert!(!probes.on_ack(answer(5_000, None, true)));
        assert!(probes.on_ack(answer(6_000, None, true)));
        assert!(!probes.on_ack(answer(7_000, None, true)));
    }

    #[test]
    fn new_data_repairs_nothing() {
        let mut probes = sent(false);
        assert!(!probes.on_ack(answer(5_000, None, true)));
        assert!(!probes.on_ack(answer(6_000, None, true)));
    }
}
