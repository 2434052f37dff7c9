//! Controlled delay (RFC 8289): when to signal a queue that does not empty.

use core::time::Duration;

use crate::time::Instant;

/// Settings of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelParameters {
    /// The standing delay that is tolerated.
    pub target: Duration,
    /// How long the delay has to stand above the target before a signal; about the round-trip time
    /// within which the sender can react.
    pub interval: Duration,
    /// The first signals in a row are one wait in the queue apart at least: what answers a signal
    /// waits there as well.
    pub patient: bool,
}

impl Default for CodelParameters {
    /// 5 ms and 100 ms (RFC 8289, section 4.3 and 4.4).
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            patient: false,
        }
    }
}

/// So many signals in a row are that far apart.
const PATIENT: u32 = 4;

/// What becomes of the packet at the head of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Goes out as it is.
    Send,
    /// Is to tell its receiver of congestion: by a mark if it can carry one, else by its loss.
    Signal,
}

/// CoDel's memory of one queue (RFC 8289, section 5.2).
#[derive(Clone, Copy, Debug)]
pub(super) struct Codel {
    /// When the delay will have stood above the target for an interval.
    first_above: Option<Instant>,
    /// When the next signal is due.
    next: Instant,
    /// Signals since the dropping state began.
    count: u32,
    /// `count` when it began.
    last_count: u32,
    dropping: bool,
}

impl Codel {
    /// A queue that was never signalled.
    pub(super) const NEW: Self =
        Self { first_above: None, next: Instant::ZERO, count: 0, last_count: 0, dropping: false };

    /// Judges the packet at the head, which waited for `sojourn`; `short` says that no more than
    /// one full packet waits in all, which is no queue. After a drop the next head is to be judged
    /// at the same `now`.
    pub(super) fn judge(
        &mut self,
        now: Instant,
        parameters: &CodelParameters,
        sojourn: Duration,
        short: bool,
    ) -> Verdict {
        if !self.stands(now, parameters, sojourn, short) {
            self.dropping = false;
            return Verdict::Send;
        }
        if self.dropping {
            if now < self.next {
                return Verdict::Send;
            }
            self.count = self.count.saturating_add(1);
            self.next += self.spacing(parameters, sojourn);
            return Verdict::Signal;
        }
        self.dropping = true;
        // RFC 8289, section 5.4: a queue that was signalled recently resumes near the rate that
        // controlled it.
        let delta = self.count.wrapping_sub(self.last_count);
        let recent = now.since(self.next) < 16 * parameters.interval;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.last_count = self.count;
        self.next = now + self.spacing(parameters, sojourn);
        Verdict::Signal
    }

    /// The queue ran empty.
    pub(super) fn idle(&mut self) {
        self.first_above = None;
        self.dropping = false;
    }

    /// `count` packets were lost at the queue's bound, which signals congestion too.
    pub(super) fn overflowed(&mut self, count: u32) {
        self.count = self.count.saturating_add(count);
    }

    /// Whether the delay has stood above the target for an interval.
    fn stands(
        &mut self,
        now: Instant,
        parameters: &CodelParameters,
        sojourn: Duration,
        short: bool,
    ) -> bool {
        if sojourn < parameters.target || short {
            self.first_above = None;
            return false;
        }
        let due = *self.first_above.get_or_insert(now + parameters.interval);
        now >= due
    }

    /// Time between signals: the interval by the square root of their count.
    fn spacing(&self, parameters: &CodelParameters, sojourn: Duration) -> Duration {
        let root = (u64::from(self.count.max(1)) << 32).isqrt();
        let interval = u64::try_from(parameters.interval.as_nanos()).unwrap_or(u64::MAX);
        let spacing = Duration::from_nanos(interval.saturating_mul(1 << 16) / root);
        if parameters.patient && self.count <= PATIENT { spacing.max(sojourn) } else { spacing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: CodelParameters = CodelParameters {
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
        patient: false,
    };

    fn judge(codel: &mut Codel, millis: u64, sojourn: u64) -> Verdict {
        let now = Instant::from_millis(millis);
        codel.judge(now, &PARAMETERS, Duration::from_millis(sojourn), false)
    }

    #[test]
    fn the_first_signal_comes_after_an_interval_above_the_target() {
        let mut codel = Codel::NEW;
        for millis in 0..100 {
            assert_eq!(judge(&mut codel, millis, 6), Verdict::Send, "at {millis} ms");
        }
        assert_eq!(judge(&mut codel, 100, 6), Verdict::Signal);
    }

    #[test]
    fn one_packet_below_the_target_starts_the_interval_again() {
        let mut codel = Codel::NEW;
        for millis in 0..1_000 {
            let sojourn = if millis % 99 == 0 { 4 } else { 50 };
            assert_eq!(judge(&mut codel, millis, sojourn), Verdict::Send, "at {millis} ms");
        }
    }

    #[test]
    fn a_short_queue_is_never_signalled() {
        let mut codel = Codel::NEW;
        for millis in 0..1_000 {
            let now = Instant::from_millis(millis);
            let verdict = codel.judge(now, &PARAMETERS, Duration::from_secs(1), true);
            assert_eq!(verdict, Verdict::Send);
        }
    }

    #[test]
    fn a_patient_one_waits_for_the_answer_to_its_first_signals() {
        let patient = CodelParameters { patient: true, ..PARAMETERS };
        let sojourn = Duration::from_millis(700);
        let mut codel = Codel::NEW;
        let mut signals = Vec::new();
        for millis in 0..5_000 {
            let verdict = codel.judge(Instant::from_millis(millis), &patient, sojourn, false);
            if verdict == Verdict::Signal {
                signals.push(millis);
            }
        }
        assert_eq!(signals[..5], [100, 800, 1_500, 2_200, 2_900]);
        assert!(signals[5] < 3_000, "then it is an ordinary one: {signals:?}");
    }

    /// RFC 8289, section 3.3: the n-th interval between signals is the first by the root of n.
    #[test]
    fn signals_come_closer_by_the_root_of_their_count() {
        let mut codel = Codel::NEW;
        let signals: Vec<u64> = (0..6_000)
            .filter(|tenth| {
                let now = Instant::from_micros(tenth * 100);
                let sojourn = Duration::from_millis(20);
                codel.judge(now, &PARAMETERS, sojourn, false) == Verdict::Signal
            })
            .collect();
        let spacings: Vec<u64> = signals.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mut due = 1_000.0 + 1_000.0;
        for (n, spacing) in spacings.iter().enumerate() {
            let at = signals[n] + spacing;
            assert!((at as f64 - due).abs() <= 1.0, "signal {n} at {at}, expected {due}");
            due += 1_000.0 / ((n + 2) as f64).sqrt();
        }
        assert!(spacings.len() > 5);
    }
}
