//! Raises the minimum RTT that a BBR sender knows to that of a far path.
//!
//! BBR keeps its minimum RTT for 10 s, and then takes the current one. On a near path that is soon
//! the old one again: every 10 s BBR lets four packets be in flight, and they take the near path.
//! So the packets of such a session are held at the receiver as if they came by the far path, and
//! after 10 s the sender has that RTT. With it, all paths fit into its window.
//!
//! Until then its window is what it was, and a longer RTT would lower its rate. What
//! [aggregates](super) add to the window, 100 ms at its rate, makes up for that. So the RTT is
//! raised in steps, each within what the window allows. A sender that becomes slower, or in the end
//! not faster, is left alone for a while. A sender that pauses begins anew: what follows may be a
//! short exchange, and is not to wait.

use core::time::Duration;

use mpip_types::Instant;

use crate::parameters::RaiseParameters;

/// Time for which BBR keeps its minimum RTT (`bbr_min_rtt_win_sec`).
pub(super) const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);

/// A sender that has had nothing in flight for so long is not in the middle of a transfer.
const IDLE: Duration = Duration::from_secs(1);

/// A period of a sender has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Its mean rate, bytes/s.
    pub(super) rate: f64,
    /// The minimum RTT that the sender knows.
    pub(super) lowest: Duration,
    /// Difference of the paths' delays.
    pub(super) spread: Duration,
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
    /// Since when nothing is in flight.
    idle_since: Option<Instant>,
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
            idle_since: None,
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

    /// Everything is acknowledged.
    pub(super) fn on_idle(&mut self, now: Instant) {
        self.idle_since = Some(now);
    }

    /// The sender sends. Returns whether it is over because the sender had paused.
    pub(super) fn on_segment(&mut self, now: Instant) -> bool {
        self.idle_since.take().is_some_and(|since| now.since(since) >= IDLE)
    }

    pub(super) fn end_period(
        &mut self,
        now: Instant,
        progress: Progress,
        parameters: &RaiseParameters,
    ) {
        let Progress { rate, lowest, spread, paces } = progress;
        let allowed = lowest * 2 + parameters.margin;
        self.hold = spread.min(allowed.saturating_sub(self.lowest)).min(parameters.longest);
        self.best = self.best.max(rate);
        let time = now.since(self.began);
        let is_slow = time < MIN_RTT_WINDOW && rate < self.before * parameters.least;
        self.slow = if is_slow { self.slow + 1 } else { 0 };
        let in_vain = time >= parameters.trial && self.best < self.before * parameters.gain;
        if self.rests_until.is_none() && (!paces || in_vain || self.slow >= parameters.periods) {
            self.rests_until = Some(now + parameters.pause);
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

    /// Whether it goes on after a period with this rate, minimum RTT and spread.
    fn goes_on(raise: &mut Raise, second: u64, rate: f64, lowest: Duration, spread: u64) -> bool {
        let progress = Progress { rate, lowest, spread: millis(spread), paces: true };
        raise.end_period(at(second), progress, &RaiseParameters::default());
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
    fn it_ends_when_the_sender_pauses() {
        let mut raise = Raise::new(BEGAN, NEAR, RATE);
        raise.on_idle(at(3));
        assert!(!raise.on_segment(at(3) + millis(100)), "its window was acknowledged at once");
        assert!(!raise.on_segment(at(5)), "it was not idle");
        raise.on_idle(at(6));
        assert!(raise.on_segment(at(7)));
    }

    #[test]
    fn a_sender_that_does_not_pace_is_left_alone() {
        let mut raise = Raise::new(BEGAN, NEAR, RATE);
        let progress = Progress { rate: RATE, lowest: NEAR, spread: millis(60), paces: false };
        raise.end_period(at(1), progress, &RaiseParameters::default());
        assert_eq!(raise.hold(), None);
    }

    #[test]
    fn a_sender_that_is_not_faster_with_the_longer_rtt_is_left_alone() {
        let run = |rate| {
            let mut raise = Raise::new(BEGAN, NEAR, RATE);
            (1..=20).all(|second| {
                let rate = if second == 13 { rate } else { RATE };
                goes_on(&mut raise, second, rate, NEAR, 60)
            })
        };
        assert!(!run(RATE * 1.1));
        assert!(run(RATE * 1.5));
    }
}
