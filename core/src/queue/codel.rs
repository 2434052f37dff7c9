//! Controlled delay (RFC 8289): signals a standing queue.

use core::time::Duration;

use crate::parameters::QueueParameters;
use mpip_types::Instant;

/// Settings of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelParameters {
    /// Acceptable standing queue delay.
    pub target: Duration,
    /// Time that the delay has to stay above the target before a signal; about the round-trip time
    /// in which the sender reacts.
    pub interval: Duration,
    /// Delay beyond the target from which the first signal does not wait for the interval: the
    /// queue grows faster than that, as that of a sender in slow start which does not look at
    /// round-trip times. Only for packets that can be marked.
    pub runaway: Duration,
    /// Adds the sojourn time to the interval between signals, because the packets that answer a
    /// signal pass the queue as well.
    pub patient: bool,
}

impl Default for CodelParameters {
    /// 5 ms and 100 ms (RFC 8289, section 4.3 and 4.4).
    fn default() -> Self {
        let QueueParameters { target, interval, .. } = QueueParameters::default();
        Self { target, interval, runaway: Duration::MAX, patient: false }
    }
}

/// What to do with the packet at the head of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Send it as it is.
    Send,
    /// Signal congestion: mark it if it is ECN-capable, otherwise drop it.
    Signal,
}

/// CoDel's state for one queue (RFC 8289, section 5.2).
#[derive(Clone, Copy, Debug)]
pub(super) struct Codel {
    /// When the delay will have been above the target for an interval.
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
    /// The state of a queue without signals so far.
    pub(super) const NEW: Self =
        Self { first_above: None, next: Instant::ZERO, count: 0, last_count: 0, dropping: false };

    /// Judges the packet at the head, with sojourn time `sojourn`. `short`: the queue holds at most
    /// one full packet. After a drop, the next head is to be judged at the same `now`.
    #[inline]
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
        if parameters.patient {
            if now < self.next + sojourn {
                return Verdict::Send;
            }
            (self.count, self.last_count, self.dropping) = (1, 1, true);
            self.next = now + parameters.interval;
            return Verdict::Signal;
        }
        if self.dropping {
            if now < self.next {
                return Verdict::Send;
            }
            self.count = self.count.saturating_add(1);
            self.next = (self.next + self.spacing(parameters)).max(now);
            return Verdict::Signal;
        }
        self.dropping = true;
        // RFC 8289, section 5.4: after a recent dropping state, signals resume near the rate that
        // controlled the queue.
        let delta = self.count.wrapping_sub(self.last_count);
        let recent = now.since(self.next) < 16 * parameters.interval;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.last_count = self.count;
        self.next = now + self.spacing(parameters);
        Verdict::Signal
    }

    /// Whether it sends all packets with this sojourn time and its state stays as it is, as long as
    /// the queue does not grow.
    pub(super) fn passes_all(
        &self,
        parameters: &CodelParameters,
        sojourn: Duration,
        short: bool,
    ) -> bool {
        (sojourn < parameters.target || short) && self.first_above.is_none() && !self.dropping
    }

    /// The queue ran empty.
    pub(super) fn idle(&mut self) {
        self.first_above = None;
        self.dropping = false;
    }

    /// `count` packets were dropped at the queue's limit, which signals congestion, too.
    pub(super) fn overflowed(&mut self, count: u32) {
        self.count = self.count.saturating_add(count);
    }

    /// Whether the delay has been above the target for an interval, or is far above it.
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
        now >= due || sojourn - parameters.target >= parameters.runaway
    }

    /// Time between signals: the interval divided by the square root of their count.
    fn spacing(&self, parameters: &CodelParameters) -> Duration {
        let root = (u64::from(self.count.max(1)) << 32).isqrt();
        let interval = u64::try_from(parameters.interval.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(interval.saturating_mul(1 << 16) / root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: CodelParameters = CodelParameters {
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
        runaway: Duration::MAX,
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
    fn the_first_signal_to_a_queue_that_runs_away_comes_at_once_and_the_next_one_is_awaited() {
        let runaway = Duration::from_millis(40);
        let parameters = CodelParameters { runaway, patient: true, ..PARAMETERS };
        let mut codel = Codel::NEW;
        let mut judge = |millis, sojourn| {
            codel.judge(Instant::from_millis(millis), &parameters, sojourn, false)
        };
        let ms = Duration::from_millis;
        assert_eq!(judge(1_000, ms(44)), Verdict::Send);
        assert_eq!(judge(1_001, ms(45)), Verdict::Signal);
        for millis in 1_002..1_301 {
            assert_eq!(judge(millis, ms(200)), Verdict::Send, "at {millis} ms");
        }
        assert_eq!(judge(1_301, ms(200)), Verdict::Signal);
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
    fn a_patient_one_waits_for_the_answer_to_each_signal() {
        let patient = CodelParameters { patient: true, ..PARAMETERS };
        let mut codel = Codel::NEW;
        let mut signals = Vec::new();
        let mut sojourn = 700;
        for millis in 0..40_000 {
            let now = Instant::from_millis(10_000 + millis);
            let waited = Duration::from_millis(sojourn);
            if codel.judge(now, &patient, waited, false) == Verdict::Signal {
                signals.push(millis);
                sojourn = sojourn * 7 / 10;
            }
        }
        // 490 and 100 ms after the first, 343 and 100 ms after the second.
        assert_eq!(signals[..4], [100, 690, 1_133, 1_473]);
        assert!(signals.len() > 10 && signals.windows(2).all(|pair| pair[1] - pair[0] >= 100));
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
