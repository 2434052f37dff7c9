//! Whether a path passes ECN marks (RFC 9000, section 13.4.2 and appendix A.4).
//!
//! The first datagrams of a path are sent as ECN-capable. If feedback shows that they arrived as
//! such or with a CE mark, all later ones are ECN-capable; if marks are erased or invented, none
//! are. If none of them arrives, the path uses datagrams without ECN.

use mpip_wire::EcnCounts;

use mpip_types::Ecn;

/// ECN-capable datagrams sent to test a path (RFC 9000, section 13.4.2).
const TRIALS: u8 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Test datagrams still to be sent.
    Testing(u8),
    /// All test datagrams have left, and none has been acknowledged.
    Unknown,
    Capable,
    Failed,
}

/// ECN validation of one path.
#[derive(Clone, Debug)]
pub(crate) struct EcnValidation {
    state: State,
    /// Datagrams that left as ECN-capable.
    sent: u64,
    counts: EcnCounts,
}

impl Default for EcnValidation {
    fn default() -> Self {
        Self { state: State::Testing(TRIALS), sent: 0, counts: EcnCounts::default() }
    }
}

impl EcnValidation {
    /// The field of the next datagram.
    pub(crate) fn next(&self) -> Ecn {
        match self.state {
            State::Testing(_) | State::Capable => Ecn::Ect0,
            State::Unknown | State::Failed => Ecn::NotEct,
        }
    }

    /// A datagram has left as ECN-capable.
    pub(crate) fn on_sent(&mut self) {
        self.sent += 1;
        if let State::Testing(left) = self.state {
            self.state = if left > 1 { State::Testing(left - 1) } else { State::Unknown };
        }
    }

    /// Feedback has newly acknowledged `acked` ECN-capable datagrams and reports `counts`. Feedback
    /// must be in order. Returns the number of new CE marks; 0 if the path fails validation.
    pub(crate) fn on_feedback(&mut self, acked: u64, counts: Option<EcnCounts>) -> u64 {
        if self.state == State::Failed || (acked == 0 && counts.is_none()) {
            return 0;
        }
        let Some(counts) = counts else {
            self.state = State::Failed;
            return 0;
        };
        let before = core::mem::replace(&mut self.counts, counts);
        let fell = counts.ect0 < before.ect0 || counts.ce < before.ce;
        let grown = (counts.ect0 + counts.ce).saturating_sub(before.ect0 + before.ce);
        if fell || grown < acked || counts.ect1 > 0 || counts.ect0 + counts.ce > self.sent {
            self.state = State::Failed;
            return 0;
        }
        if acked > 0 {
            self.state = State::Capable;
        }
        counts.ce - before.ce
    }

    /// One word for the status.
    pub(crate) fn name(&self) -> &'static str {
        match self.state {
            State::Testing(_) => "testing",
            State::Unknown => "unknown",
            State::Capable => "capable",
            State::Failed => "failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(ect0: u64, ect1: u64, ce: u64) -> Option<EcnCounts> {
        Some(EcnCounts { ect0, ect1, ce })
    }

    fn tried(sent: u64) -> EcnValidation {
        let mut ecn = EcnValidation::default();
        (0..sent).for_each(|_| ecn.on_sent());
        ecn
    }

    // [F-8]
    #[test]
    fn a_path_that_passes_the_trials_is_capable() {
        let mut ecn = tried(10);
        assert_eq!((ecn.next(), ecn.name()), (Ecn::NotEct, "unknown"));
        assert_eq!(ecn.on_feedback(8, counts(7, 0, 1)), 1);
        assert_eq!((ecn.next(), ecn.name()), (Ecn::Ect0, "capable"));
        // Feedback of one that is not tracked by the sender, and one that says nothing new.
        ecn.on_sent();
        assert_eq!(ecn.on_feedback(0, counts(8, 0, 1)), 0);
        assert_eq!(ecn.on_feedback(2, counts(9, 0, 2)), 1);
        assert_eq!(ecn.name(), "capable");
    }

    // [F-8]
    #[test]
    fn marks_that_are_erased_or_invented_end_it() {
        let cases = [
            (5, None, "erased by who sends no counts"),
            (5, counts(4, 0, 0), "one was erased"),
            (5, counts(0, 5, 0), "turned into another"),
            (5, counts(6, 0, 5), "more than were sent"),
        ];
        for (acked, counts, case) in cases {
            let mut ecn = tried(10);
            assert_eq!(ecn.on_feedback(acked, counts), 0, "{case}");
            assert_eq!((ecn.next(), ecn.name()), (Ecn::NotEct, "failed"), "{case}");
        }
    }

    #[test]
    fn a_path_that_was_capable_may_fail_later() {
        let mut ecn = tried(10);
        ecn.on_feedback(10, counts(10, 0, 0));
        (0..10).for_each(|_| ecn.on_sent());
        assert_eq!(ecn.on_feedback(10, counts(12, 0, 0)), 0);
        assert_eq!(ecn.next(), Ecn::NotEct);
    }

    #[test]
    fn unmarked_datagrams_prove_nothing() {
        let mut ecn = tried(3);
        assert_eq!(ecn.on_feedback(0, None), 0);
        assert_eq!((ecn.next(), ecn.name()), (Ecn::Ect0, "testing"));
    }
}
