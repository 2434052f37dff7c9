//! Failure detection: when a path is probed, and when it has failed.

use core::time::Duration;

use crate::rest::{REST_PATIENCE, REST_PROBE, REST_RETRY};
use crate::state::PathState;
use mpip_types::Instant;

/// Heartbeat interval of a path that carries nothing (seed 000, section 3.5).
const HEARTBEAT: Duration = Duration::from_millis(300);
/// Shortest interval between probes of a failed path. The first interval is the probe timeout, and
/// it doubles (RFC 9002, section 6.2.1): many failures are short, or bursts of a few lost packets.
const MIN_PROBE_INTERVAL: Duration = Duration::from_millis(20);
/// Longest interval between probes of a failed path; the interval doubles up to this.
pub const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// Shortest silence that counts as failure: schedulers of busy hosts pause that long.
const MIN_SILENCE: Duration = Duration::from_millis(60);
/// Shortest silence after which a path has failed while no path answers. Then there is no other
/// path to use, and probably the peer is paused: hypervisors stop busy virtual machines for a third
/// of a second.
const LAST_PATIENCE: Duration = Duration::from_millis(350);
/// Longest interval between probes meanwhile, but for paths whose probe timeout is more than four
/// times that: a probe soon after the pause leaves time for its answer.
const LAST_RETRY: Duration = Duration::from_millis(25);
/// Loss ratio from which one unanswered probe, or two, are too little evidence of failure.
const SOME_LOSS: f64 = 0.02;
const HIGH_LOSS: f64 = 0.06;
/// Probe timeouts for which a path on which something arrives is not called failed: then the answer
/// waits on a slow link behind what else the peer sends. A way that fails in one direction only is
/// noticed that much later.
const HEARD_PATIENCE: u32 = 4;
/// Shortest time for an answer after an unauthenticated message (ICMP) that says the path has
/// failed.
const MIN_DOUBT: Duration = Duration::from_millis(20);

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Nothing to do.
    None,
    /// Send a probe.
    Probe,
    /// The path has failed.
    Dead,
}

/// Input of failure detection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LivenessInput {
    pub(crate) state: PathState,
    /// Since when feedback is outstanding, if it is.
    pub(crate) silent_since: Option<Instant>,
    /// The probe timeout.
    pub(crate) timeout: Duration,
    /// The path is at rest: no traffic depends on it.
    pub(crate) resting: bool,
    /// No path answers.
    pub(crate) alone: bool,
    /// Share of packets lost, 0 to 1.
    pub(crate) loss: f64,
    /// Longest interval between probes of a failed path.
    pub(crate) longest_pause: Duration,
}

impl LivenessInput {
    /// Unanswered probes after which the path has failed. A path with 10 % loss each way would
    /// otherwise fail falsely several times a minute.
    fn probes_before_death(&self) -> u32 {
        match self.loss {
            loss if loss >= HIGH_LOSS => 3,
            loss if loss >= SOME_LOSS => 2,
            _ => 1,
        }
    }

    /// Shortest silence that counts as failure, and the longest interval between probes until then;
    /// `None` if probes are counted instead.
    fn patience(&self) -> Option<(Duration, Duration)> {
        match (self.resting, self.alone) {
            (true, _) => Some((REST_PATIENCE, REST_RETRY)),
            (false, true) => {
                let answer = self.timeout * (self.probes_before_death() + 1);
                Some((LAST_PATIENCE.max(answer), LAST_RETRY.max(self.timeout / 4)))
            }
            (false, false) => None,
        }
    }

    /// Pause before the next probe of a failed path, after `probes` probes.
    fn pause(&self, probes: u32) -> Duration {
        let (first, longest) = match self.resting {
            true => (HEARTBEAT, REST_PROBE),
            false => (self.timeout.clamp(MIN_PROBE_INTERVAL, HEARTBEAT), self.longest_pause),
        };
        (first * 2_u32.saturating_pow(probes.min(8))).min(longest)
    }
}

/// State of failure detection of one path.
#[derive(Clone, Debug)]
pub(crate) struct Liveness {
    /// When an ack-eliciting datagram was last sent.
    ack_eliciting_at: Instant,
    /// Unanswered probes in a row.
    probes: u32,
    /// Something has arrived since the last one.
    heard: bool,
    /// When the next probe of a failed path is due.
    probe_at: Option<Instant>,
    /// When an unauthenticated message said that the path has failed.
    doubted_at: Option<Instant>,
    /// Ignore silence before this instant.
    ignore_before: Instant,
}

impl Liveness {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            ack_eliciting_at: now,
            probes: 0,
            heard: false,
            probe_at: None,
            doubted_at: None,
            ignore_before: now,
        }
    }

    /// Whether a probe is unanswered.
    pub(crate) fn owes_answer(&self) -> bool {
        self.probes > 0
    }

    /// Whether a probe is unanswered, and nothing else has arrived since it was sent.
    pub(crate) fn is_silent(&self) -> bool {
        self.owes_answer() && !self.heard
    }

    /// Something authentic arrived, an answer or not.
    pub(crate) fn on_heard(&mut self) {
        self.heard = true;
    }

    /// An ack-eliciting datagram was sent, or the attempt failed.
    pub(crate) fn on_ack_eliciting_sent(&mut self, now: Instant) {
        self.ack_eliciting_at = now;
    }

    /// The path has answered or changed its state: starts anew.
    pub(crate) fn clear(&mut self) {
        self.probes = 0;
        self.heard = false;
        self.probe_at = None;
        self.doubted_at = None;
    }

    /// The path has failed, or was at rest and is probed as if it had failed.
    pub(crate) fn on_dead(&mut self, now: Instant, input: &LivenessInput) {
        self.probes = 1;
        self.probe_at = Some(now + input.pause(0));
    }

    /// No path answered, and another one does now: starts anew with a probe.
    pub(crate) fn excuse(&mut self, now: Instant) {
        self.probes = 1;
        self.heard = false;
        self.ignore_before = now;
    }

    /// An unauthenticated message says that the path has failed. Returns whether it is the first
    /// one.
    pub(crate) fn doubt(&mut self, now: Instant) -> bool {
        let news = self.doubted_at.is_none();
        self.doubted_at.get_or_insert(now);
        news
    }

    /// Moves the next probe of a failed path to `at`, if it is due later.
    pub(crate) fn probe_by(&mut self, at: Instant) {
        self.probe_at = self.probe_at.map(|probe_at| probe_at.min(at));
    }

    /// When something was sent last that has to be answered.
    pub(crate) fn asked_at(&self) -> Instant {
        self.ack_eliciting_at
    }

    /// When the heartbeat of a path that is awake is due.
    pub(crate) fn heartbeat_at(&self) -> Instant {
        self.ack_eliciting_at + HEARTBEAT
    }

    /// When the next check has a result other than [`Silence::None`].
    pub(crate) fn deadline(&self, input: &LivenessInput) -> Option<Instant> {
        match input.state {
            PathState::Abandoned | PathState::Validating => None,
            PathState::Failed => self.probe_at,
            PathState::Active | PathState::Standby => {
                let silence = self.silent_since(input);
                let silence = silence.map(|since| self.silence_deadline(input, since));
                silence.into_iter().chain(self.doubt_deadline(input)).min()
            }
        }
    }

    fn silent_since(&self, input: &LivenessInput) -> Option<Instant> {
        input.silent_since.map(|since| since.max(self.ignore_before))
    }

    fn silence_deadline(&self, input: &LivenessInput, since: Instant) -> Instant {
        if let Some((patience, longest_pause)) = input.patience() {
            let doubled = input.timeout * 2_u32.pow(self.probes.min(16));
            let next = self.ack_eliciting_at + doubled.min(longest_pause);
            return next.min(since + patience);
        }
        let next = since + input.timeout * (self.probes + 1);
        let last = self.probes >= input.probes_before_death();
        if last { next.max(since + MIN_SILENCE) } else { next }
    }

    fn doubt_deadline(&self, input: &LivenessInput) -> Option<Instant> {
        self.doubted_at.map(|at| at + (input.timeout * 2).max(MIN_DOUBT))
    }

    /// Checks the path at `now`. A probe that it asks for counts as sent.
    pub(crate) fn check(&mut self, now: Instant, input: &LivenessInput) -> Silence {
        if self.deadline(input).is_none_or(|deadline| now < deadline) {
            return Silence::None;
        }
        let failed = input.state == PathState::Failed;
        let doubted = self.doubt_deadline(input).is_some_and(|deadline| now >= deadline);
        let silent_for = self.silent_since(input).map_or(Duration::MAX, |since| now.since(since));
        let patient = match input.patience() {
            Some((patience, _)) => silent_for < patience,
            None => {
                let waits = self.heard && silent_for < input.timeout * HEARD_PATIENCE;
                waits || self.probes < input.probes_before_death()
            }
        };
        if !failed && (doubted || !patient) {
            return Silence::Dead;
        }
        if failed {
            self.probe_at = Some(now + input.pause(self.probes));
        }
        self.probes = self.probes.saturating_add(1);
        self.heard = false;
        Silence::Probe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(50);

    fn ms(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// An active path with outstanding feedback since 1,000 ms and a loss ratio of `loss`.
    fn silent(loss: f64) -> LivenessInput {
        let silent_since = Some(ms(1_000));
        LivenessInput {
            state: PathState::Active,
            silent_since,
            timeout: TIMEOUT,
            resting: false,
            alone: false,
            loss,
            longest_pause: MAX_PROBE_INTERVAL,
        }
    }

    /// The times of probes, ms, up to the first other result.
    fn probes(liveness: &mut Liveness, input: &LivenessInput) -> (Vec<u64>, Silence) {
        let mut asked = Vec::new();
        while let Some(at) = liveness.deadline(input) {
            match liveness.check(at, input) {
                Silence::Probe if asked.len() < 20 => {
                    liveness.on_ack_eliciting_sent(at);
                    asked.push(at.since(Instant::ZERO).as_millis() as u64);
                }
                silence => return (asked, silence),
            }
        }
        (asked, Silence::None)
    }

    #[test]
    fn the_more_a_path_loses_the_more_probes_it_has() {
        for (loss, expected) in
            [(0.0, vec![1_050]), (0.02, vec![1_050, 1_100]), (0.06, vec![1_050, 1_100, 1_150])]
        {
            let input = silent(loss);
            let mut liveness = Liveness::new(ms(1_000));
            assert_eq!(liveness.check(ms(1_049), &input), Silence::None);
            assert_eq!(probes(&mut liveness, &input), (expected, Silence::Dead), "{loss}");
        }
    }

    #[test]
    fn a_short_silence_is_never_a_failure() {
        let input = LivenessInput { timeout: Duration::from_millis(1), ..silent(0.0) };
        let mut liveness = Liveness::new(ms(1_000));
        assert_eq!(liveness.check(ms(1_001), &input), Silence::Probe);
        assert_eq!(liveness.deadline(&input), Some(ms(1_000) + MIN_SILENCE));
    }

    #[test]
    fn while_no_path_answers_it_is_probed_repeatedly_before_it_fails() {
        let input =
            LivenessInput { timeout: Duration::from_millis(10), alone: true, ..silent(0.0) };
        let mut liveness = Liveness::new(ms(1_000));
        let expected = [1_010].into_iter().chain((1_030..1_350).step_by(25)).collect();
        assert_eq!(probes(&mut liveness, &input), (expected, Silence::Dead));
        assert_eq!(liveness.deadline(&input), Some(ms(1_000) + LAST_PATIENCE));
        // Another path answers, so this one will, too.
        let one_of_many = LivenessInput { alone: false, ..input };
        assert_eq!(liveness.deadline(&one_of_many), Some(ms(1_150)));
        liveness.excuse(ms(1_260));
        assert_eq!(liveness.deadline(&one_of_many), Some(ms(1_260) + MIN_SILENCE));
    }

    #[test]
    fn a_far_path_has_time_for_an_answer_while_no_path_answers() {
        let timeout = Duration::from_millis(600);
        for loss in [0.0, HIGH_LOSS] {
            let one_of_many = LivenessInput { timeout, ..silent(loss) };
            let alone = LivenessInput { alone: true, ..one_of_many };
            let end = |input| {
                let mut liveness = Liveness::new(ms(1_000));
                let (sent, Silence::Dead) = probes(&mut liveness, input) else { unreachable!() };
                (sent.len(), liveness.deadline(input))
            };
            let (few, many) = (end(&one_of_many), end(&alone));
            assert!(many.0 > few.0 && many.1 == few.1, "{many:?}, {few:?}");
        }
    }

    #[test]
    fn a_path_on_which_something_arrives_is_used_and_fails_later() {
        let input = silent(0.0);
        let mut liveness = Liveness::new(ms(1_000));
        for at in [1_050, 1_100, 1_150] {
            assert_eq!(liveness.check(ms(at), &input), Silence::Probe);
            assert!(liveness.is_silent(), "{at}");
            liveness.on_heard();
            assert!(!liveness.is_silent(), "{at}");
        }
        assert_eq!(liveness.check(ms(1_200), &input), Silence::Dead, "it never answers");
        liveness.clear();
        assert_eq!(liveness.check(ms(1_050), &input), Silence::Probe);
        assert_eq!(liveness.check(ms(1_100), &input), Silence::Dead, "nothing arrives");
    }

    #[test]
    fn an_answer_clears_the_path() {
        let input = silent(0.0);
        let mut liveness = Liveness::new(ms(1_000));
        assert_eq!(liveness.check(ms(1_050), &input), Silence::Probe);
        assert!(liveness.is_silent());
        liveness.clear();
        assert!(!liveness.is_silent());
        let answered = LivenessInput { silent_since: None, ..input };
        assert_eq!(liveness.deadline(&answered), None);
    }

    #[test]
    fn doubt_shortens_the_time_to_answer_once() {
        let input = LivenessInput { silent_since: None, ..silent(0.06) };
        let mut liveness = Liveness::new(ms(1_000));
        assert!(liveness.doubt(ms(1_000)));
        assert!(!liveness.doubt(ms(1_030)), "nothing new");
        assert_eq!(liveness.deadline(&input), Some(ms(1_100)));
        assert_eq!(liveness.check(ms(1_099), &input), Silence::None);
        assert_eq!(liveness.check(ms(1_100), &input), Silence::Dead);
    }

    #[test]
    fn a_failed_path_is_probed_at_growing_intervals() {
        let input = LivenessInput { state: PathState::Failed, ..silent(0.0) };
        let mut liveness = Liveness::new(ms(0));
        liveness.on_dead(ms(1_000), &input);
        let (asked, _) = probes(&mut liveness, &input);
        assert_eq!(asked[..8], [1_050, 1_150, 1_350, 1_750, 2_550, 4_150, 6_150, 8_150]);
        for (timeout, first) in [(1, 20), (2_000, 300)] {
            let input = LivenessInput { timeout: Duration::from_millis(timeout), ..input };
            liveness.on_dead(ms(1_000), &input);
            assert_eq!(liveness.deadline(&input), Some(ms(1_000 + first)), "{timeout}");
        }
        // At rest no traffic depends on it.
        let resting = LivenessInput { resting: true, ..input };
        let (asked, _) = probes(&mut liveness, &resting);
        assert_eq!(asked[10] - asked[9], REST_PROBE.as_millis() as u64);
        liveness.probe_by(ms(1));
        assert_eq!(liveness.deadline(&resting), Some(ms(1)));
    }

    #[test]
    fn a_path_at_rest_has_seconds_to_answer() {
        let input = LivenessInput { resting: true, ..silent(0.0) };
        let mut liveness = Liveness::new(ms(1_000));
        let (asked, silence) = probes(&mut liveness, &input);
        assert_eq!(silence, Silence::Dead);
        assert_eq!(asked[..6], [1_050, 1_150, 1_350, 1_750, 2_550, 3_550]);
        assert_eq!(liveness.deadline(&input), Some(ms(1_000) + REST_PATIENCE));
    }

    #[test]
    fn abandoned_and_unvalidated_paths_never_fail() {
        for state in [PathState::Validating, PathState::Abandoned] {
            let input = LivenessInput { state, ..silent(0.0) };
            assert_eq!(Liveness::new(ms(0)).check(ms(60_000), &input), Silence::None);
        }
    }
}
