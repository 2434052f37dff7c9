//! Raises the minimum RTT that a BBR sender knows to that of a far path.
//!
//! BBR keeps its minimum RTT for 10 s, and then takes the current one. On a near path that is soon
//! the old one again: every 10 s BBR lets four packets be in flight, and they take the near path.
//! So the packets of such a session are held at the receiver as if they came by a far path, and
//! after 10 s the sender has that RTT. With it, both paths fit into its window. The scheduler knows
//! that they are held, so the far path has its share although no queue builds up on the near one.
//!
//! Until then the sender's window is what it was, and a longer RTT would lower its rate. What
//! [aggregates](super) add to the window, up to 100 ms at its rate, makes up for that. So the RTT
//! is raised as far as that allows, and path by path: to that of the next farther one when the rate
//! no longer grows. A sender that becomes slower, or in the end not faster, is left alone for a
//! while. A sender that pauses begins anew: what follows may be a short exchange, and is not to
//! wait.

use core::time::Duration;

use mpip_types::Instant;

use crate::parameters::RaiseParameters;

/// Time for which BBR keeps its minimum RTT (`bbr_min_rtt_win_sec`).
pub(super) const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);

/// A period of a sender has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress<'a> {
    /// Its mean rate of late, bytes/s.
    pub(super) rate: f64,
    /// The minimum RTT that the sender knows.
    pub(super) lowest: Duration,
    /// How much longer than by the nearest path packets take by the others, in ascending order.
    pub(super) steps: &'a [Duration],
    /// Time by which aggregates extend the sender's window at its rate.
    pub(super) extended: Duration,
    /// The sender does not answer acknowledgements with bursts.
    pub(super) paces: bool,
}

/// A minimum RTT that is being raised, or kept high.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raise {
    began: Instant,
    /// The minimum RTT and the rate (bytes/s) when it began.
    lowest: Duration,
    before: f64,
    /// The highest rate since then.
    best: f64,
    /// Periods in a row with a lower rate than before.
    slow: u32,
    hold: Duration,
    /// Index of the path whose delay all packets get.
    step: usize,
    /// The rate when it last grew, bytes/s, and periods since then.
    grown: f64,
    flat: u32,
    /// It did not help, and is not tried again before then.
    rests_until: Option<Instant>,
}

impl Raise {
    pub(super) fn new(now: Instant, lowest: Duration, rate: f64) -> Self {
        Self {
            began: now,
            lowest,
            before: rate,
            best: 0.0,
            slow: 0,
            hold: Duration::ZERO,
            step: 0,
            grown: 0.0,
            flat: 0,
            rests_until: None,
        }
    }

    /// How much longer than by the nearest path the packets are to take.
    pub(super) fn hold(&self) -> Option<Duration> {
        self.rests_until.is_none().then_some(self.hold)
    }

    /// Whether another one may begin.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.rests_until.is_some_and(|until| until <= now)
    }

    pub(super) fn end_period(
        &mut self,
        now: Instant,
        progress: Progress<'_>,
        parameters: &RaiseParameters,
    ) {
        let Progress { rate, lowest, steps, extended, paces } = progress;
        self.follow_growth(rate, steps.len(), parameters);
        let step = steps.get(self.step).or(steps.last()).copied().unwrap_or_default();
        let allowed = lowest * 2 + extended.min(parameters.margin);
        self.hold = step.min(allowed.saturating_sub(self.lowest)).min(parameters.longest);
        self.best = self.best.max(rate);
        let time = now.since(self.began);
        // Until the sender knows the longer RTT, it cannot become faster.
        let waits = time < MIN_RTT_WINDOW && lowest < self.lowest.mul_f64(parameters.raised);
        let is_slow = waits && rate < self.before * parameters.least;
        self.slow = if is_slow { self.slow + 1 } else { 0 };
        let in_vain = time >= parameters.trial && self.best < self.before * parameters.gain;
        if self.rests_until.is_none() && (!paces || in_vain || self.slow >= parameters.periods) {
            self.rests_until = Some(now + parameters.pause);
        }
    }

    /// Goes on to the next of `steps` paths once the rate no longer grows.
    fn follow_growth(&mut self, rate: f64, steps: usize, parameters: &RaiseParameters) {
        if rate >= self.grown * parameters.growth {
            (self.grown, self.flat) = (rate, 0);
            return;
        }
        self.flat = self.flat.saturating_add(1);
        if self.flat >= parameters.patience && self.step + 1 < steps {
            self.step += 1;
            (self.grown, self.flat) = (rate, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: Instant = Instant::from_millis(100_000);
    const NEAR: Duration = Duration::from_millis(5);
    const RATE: f64 = 500_000.0;

    fn at(seconds: u64) -> Instant {
        BEGAN + Duration::from_secs(seconds)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Whether it goes on after a period with this rate and minimum RTT beside a path that is
    /// farther by `step` ms.
    fn goes_on(raise: &mut Raise, second: u64, rate: f64, lowest: Duration, step: u64) -> bool {
        let parameters = RaiseParameters::default();
        let (steps, extended) = ([millis(step)], parameters.margin);
        let progress = Progress { rate, lowest, steps: &steps, extended, paces: true };
        raise.end_period(at(second), progress, &parameters);
        raise.hold().is_some()
    }

    #[test]
    fn packets_take_as_long_as_by_the_far_path() {
        let mut raise = Raise::new(BEGAN, NEAR, RATE);
        assert_eq!(raise.hold(), Some(Duration::ZERO));
        assert!(goes_on(&mut raise, 1, RATE, NEAR, 60));
        assert_eq!(raise.hold(), Some(millis(60)));
    }

    #[test]
    fn a_very_far_path_is_reached_in_steps() {
        let parameters = RaiseParameters::default();
        let mut raise = Raise::new(BEGAN, NEAR, RATE);
        assert!(goes_on(&mut raise, 1, RATE, NEAR, 250));
        let first = NEAR + parameters.margin;
        assert_eq!(raise.hold(), Some(first));
        assert!(goes_on(&mut raise, 11, RATE * 2.0, NEAR + first, 250));
        assert_eq!(raise.hold(), Some(millis(250)));
        assert!(goes_on(&mut raise, 21, RATE * 4.0, millis(255), 900));
        assert_eq!(raise.hold(), Some(parameters.longest));
    }

    #[test]
    fn a_sender_that_becomes_slower_is_left_alone() {
        let mut raise = Raise::new(BEGAN, NEAR, RATE);
        assert!(goes_on(&mut raise, 1, RATE * 0.7, NEAR, 60));
        assert!(goes_on(&mut raise, 2, RATE, NEAR, 60));
        assert!(goes_on(&mut raise, 3, RATE * 0.7, NEAR, 60));
        assert!(!goes_on(&mut raise, 4, RATE * 0.7, NEAR, 60));
        assert!(!goes_on(&mut raise, 5, RATE * 2.0, NEAR, 60), "it rests");
        assert!(!raise.is_over(at(5)));
        assert!(raise.is_over(at(4) + RaiseParameters::default().pause));
    }

    #[test]
    fn a_sender_that_does_not_pace_is_left_alone() {
        let mut raise = Raise::new(BEGAN, NEAR, RATE);
        let parameters = RaiseParameters::default();
        let (steps, extended) = ([millis(60)], parameters.margin);
        let progress = Progress { rate: RATE, lowest: NEAR, steps: &steps, extended, paces: false };
        raise.end_period(at(1), progress, &parameters);
        assert_eq!(raise.hold(), None);
    }

    #[test]
    fn a_sender_that_is_not_faster_with_the_longer_rtt_is_left_alone() {
        let run = |rate| {
            let mut raise = Raise::new(BEGAN, NEAR, RATE);
            (1..=35).all(|second| {
                let rate = if second == 13 { rate } else { RATE };
                goes_on(&mut raise, second, rate, NEAR, 60)
            })
        };
        assert!(!run(RATE * 1.05));
        assert!(run(RATE * 1.5));
    }

    #[test]
    fn it_goes_no_further_than_aggregates_have_extended_the_window() {
        let mut raise = Raise::new(BEGAN, NEAR, RATE);
        for (second, extended) in [(1, 0), (2, 10), (3, 30)] {
            let (steps, extended) = ([millis(60)], millis(extended));
            let progress =
                Progress { rate: RATE, lowest: NEAR, steps: &steps, extended, paces: true };
            raise.end_period(at(second), progress, &RaiseParameters::default());
            assert_eq!(raise.hold(), Some(NEAR + extended));
        }
    }

    #[test]
    fn the_next_path_has_its_turn_when_the_rate_no_longer_grows() {
        let parameters = RaiseParameters::default();
        let mut raise = Raise::new(BEGAN, NEAR, RATE);
        let steps = [millis(20), millis(50)];
        let mut period = |rate| {
            let extended = parameters.margin;
            let progress = Progress { rate, lowest: NEAR, steps: &steps, extended, paces: true };
            raise.end_period(at(1), progress, &parameters);
            raise.hold().expect("it goes on")
        };
        let mut rate = RATE;
        for _ in 0..parameters.patience * 3 {
            rate *= parameters.growth;
            assert_eq!(period(rate), steps[0]);
        }
        for _ in 1..parameters.patience {
            assert_eq!(period(rate), steps[0]);
        }
        for _ in 0..parameters.patience * 2 {
            assert_eq!(period(rate), steps[1], "there is no farther one");
        }
    }

    #[test]
    fn a_sender_that_knows_the_longer_rtt_may_be_slow_for_a_while() {
        let mut raise = Raise::new(BEGAN, NEAR, RATE);
        for second in 1..=9 {
            assert!(goes_on(&mut raise, second, RATE * 0.5, NEAR * 3, 60));
        }
    }
}
