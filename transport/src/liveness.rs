//! Whether a path lives: how long it may be silent, and when it is asked for a sign of life.

use core::time::Duration;

use crate::rest::{REST_PATIENCE, REST_PROBE, REST_RETRY};
use crate::state::PathState;
use mpip_types::Instant;

/// A path that carries nothing is asked for a sign of life so often (seed 000, section 3.5).
const HEARTBEAT: Duration = Duration::from_millis(300);
/// A path that does not answer is asked with doubling pauses up to this one.
pub(crate) const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// Silence is never called failure before this: schedulers of busy hosts pause that long.
const MIN_SILENCE: Duration = Duration::from_millis(60);
/// Where no path answers there is none to go to, and it is rather the peer that pauses: hypervisors
/// take the processors of busy virtual machines away for a third of a second.
const LAST_PATIENCE: Duration = Duration::from_millis(350);
/// Longest pause between probes meanwhile.
const LAST_RETRY: Duration = Duration::from_millis(100);
/// Shares of lost packets from which on one probe, or two, say too little.
const SOME_LOSS: f64 = 0.02;
const HIGH_LOSS: f64 = 0.06;
/// A path of which an unauthenticated message says that it is dead has at least so long to prove
/// that it lives.
const MIN_DOUBT: Duration = Duration::from_millis(20);

/// What a due timer of a path asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Answers come, or none are owed.
    None,
    /// Ask for a sign of life.
    Probe,
    /// It is dead.
    Dead,
}

/// What a path's silence is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signs {
    pub(crate) state: PathState,
    /// Since when an answer is owed, if one is.
    pub(crate) silent_since: Option<Instant>,
    /// How long an answer may take.
    pub(crate) timeout: Duration,
    /// It rests, and nobody waits for it.
    pub(crate) resting: bool,
    /// No path answers.
    pub(crate) alone: bool,
    /// Share of its packets that are lost, 0 to 1.
    pub(crate) loss: f64,
    /// Longest pause between probes while it does not answer.
    pub(crate) longest_pause: Duration,
}

impl Signs {
    /// Probes that have to stay unanswered until the path counts as dead. Of a path that loses a
    /// tenth of what it carries each way, one packet and one probe are lost together several times
    /// a minute.
    fn probes_before_death(&self) -> u32 {
        match self.loss {
            loss if loss >= HIGH_LOSS => 3,
            loss if loss >= SOME_LOSS => 2,
            _ => 1,
        }
    }

    /// For how long nobody is in a hurry to call it dead, and the longest pause between probes
    /// until then.
    fn patience(&self) -> Option<(Duration, Duration)> {
        match (self.resting, self.alone) {
            (true, _) => Some((REST_PATIENCE, REST_RETRY)),
            (false, true) => Some((LAST_PATIENCE, LAST_RETRY)),
            (false, false) => None,
        }
    }
}

/// What has been asked of a path, and what it has not answered.
#[derive(Clone, Debug)]
pub(crate) struct Liveness {
    /// When something that asks for feedback was last sent.
    asked_at: Instant,
    /// Unanswered probes in a row.
    probes: u32,
    /// When the next one is due, of a path that has failed.
    probe_at: Option<Instant>,
    /// When something unauthenticated said that it is dead.
    doubted_at: Option<Instant>,
    /// Silence before this is not held against it.
    excused_until: Instant,
}

impl Liveness {
    pub(crate) fn new(now: Instant) -> Self {
        Self { asked_at: now, probes: 0, probe_at: None, doubted_at: None, excused_until: now }
    }

    /// Whether a probe has had no answer so far.
    pub(crate) fn is_silent(&self) -> bool {
        self.probes > 0
    }

    /// Something that asks for feedback was sent, or tried to be.
    pub(crate) fn on_asked(&mut self, now: Instant) {
        self.asked_at = now;
    }

    /// It has answered, or is in another state: nothing is held against it.
    pub(crate) fn clear(&mut self) {
        self.probes = 0;
        self.probe_at = None;
        self.doubted_at = None;
    }

    /// It is dead, or has been at rest and is asked as if it had just died.
    pub(crate) fn on_dead(&mut self, now: Instant, longest_pause: Duration) {
        self.probes = 1;
        self.probe_at = Some(now + HEARTBEAT.min(longest_pause));
    }

    /// The peer has answered to nothing, and answers on another path now: this one is asked anew.
    pub(crate) fn excuse(&mut self, now: Instant) {
        self.probes = 1;
        self.excused_until = now;
    }

    /// Something that is not authentic says that it is dead. Returns whether that is news.
    pub(crate) fn doubt(&mut self, now: Instant) -> bool {
        let news = self.doubted_at.is_none();
        self.doubted_at.get_or_insert(now);
        news
    }

    /// A path that has failed is asked at `at`, if it is not sooner.
    pub(crate) fn ask_by(&mut self, at: Instant) {
        self.probe_at = self.probe_at.map(|probe_at| probe_at.min(at));
    }

    /// When a path that carries nothing is asked for a sign of life, if it is awake.
    pub(crate) fn heartbeat_at(&self) -> Instant {
        self.asked_at + HEARTBEAT
    }

    /// When silence will have lasted too long.
    pub(crate) fn deadline(&self, signs: &Signs) -> Option<Instant> {
        match signs.state {
            PathState::Abandoned | PathState::Validating => None,
            PathState::Failed => self.probe_at,
            PathState::Active | PathState::Standby => {
                let silence = self.silent_since(signs);
                let silence = silence.map(|since| self.silence_deadline(signs, since));
                silence.into_iter().chain(self.doubt_deadline(signs)).min()
            }
        }
    }

    fn silent_since(&self, signs: &Signs) -> Option<Instant> {
        signs.silent_since.map(|since| since.max(self.excused_until))
    }

    fn silence_deadline(&self, signs: &Signs, since: Instant) -> Instant {
        if let Some((patience, longest_pause)) = signs.patience() {
            let doubled = signs.timeout * 2_u32.pow(self.probes.min(16));
            let next = self.asked_at + doubled.min(longest_pause);
            return next.min(since + patience);
        }
        let next = since + signs.timeout * (self.probes + 1);
        let last = self.probes >= signs.probes_before_death();
        if last { next.max(since + MIN_SILENCE) } else { next }
    }

    fn doubt_deadline(&self, signs: &Signs) -> Option<Instant> {
        self.doubted_at.map(|at| at + (signs.timeout * 2).max(MIN_DOUBT))
    }

    /// Judges the silence at `now`. A probe that it asks for counts as sent.
    pub(crate) fn check(&mut self, now: Instant, signs: &Signs) -> Silence {
        if self.deadline(signs).is_none_or(|deadline| now < deadline) {
            return Silence::None;
        }
        let failed = signs.state == PathState::Failed;
        let doubted = self.doubt_deadline(signs).is_some_and(|deadline| now >= deadline);
        let patient = match signs.patience() {
            Some((patience, _)) => {
                self.silent_since(signs).is_some_and(|at| now.since(at) < patience)
            }
            None => self.probes < signs.probes_before_death(),
        };
        if !failed && (doubted || !patient) {
            return Silence::Dead;
        }
        self.probes = self.probes.saturating_add(1);
        if failed {
            let pause = HEARTBEAT * 2_u32.saturating_pow(self.probes.min(8));
            let longest = if signs.resting { REST_PROBE } else { signs.longest_pause };
            self.probe_at = Some(now + pause.min(longest));
        }
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

    /// An active path that owes an answer since 1,000 ms, and loses `loss` of its packets.
    fn silent(loss: f64) -> Signs {
        let silent_since = Some(ms(1_000));
        Signs {
            state: PathState::Active,
            silent_since,
            timeout: TIMEOUT,
            resting: false,
            alone: false,
            loss,
            longest_pause: MAX_PROBE_INTERVAL,
        }
    }

    /// At which times, in ms, a path is asked, up to the first that brings something else.
    fn probes(liveness: &mut Liveness, signs: &Signs) -> (Vec<u64>, Silence) {
        let mut asked = Vec::new();
        while let Some(at) = liveness.deadline(signs) {
            match liveness.check(at, signs) {
                Silence::Probe if asked.len() < 20 => {
                    liveness.on_asked(at);
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
            let signs = silent(loss);
            let mut liveness = Liveness::new(ms(1_000));
            assert_eq!(liveness.check(ms(1_049), &signs), Silence::None);
            assert_eq!(probes(&mut liveness, &signs), (expected, Silence::Dead), "{loss}");
        }
    }

    #[test]
    fn a_short_silence_is_never_death() {
        let signs = Signs { timeout: Duration::from_millis(1), ..silent(0.0) };
        let mut liveness = Liveness::new(ms(1_000));
        assert_eq!(liveness.check(ms(1_001), &signs), Silence::Probe);
        assert_eq!(liveness.deadline(&signs), Some(ms(1_000) + MIN_SILENCE));
    }

    #[test]
    fn where_no_path_answers_it_is_asked_again_and_again_before_it_is_dead() {
        let signs = Signs { timeout: Duration::from_millis(10), alone: true, ..silent(0.0) };
        let mut liveness = Liveness::new(ms(1_000));
        let expected = vec![1_010, 1_030, 1_070, 1_150, 1_250];
        assert_eq!(probes(&mut liveness, &signs), (expected, Silence::Dead));
        assert_eq!(liveness.deadline(&signs), Some(ms(1_000) + LAST_PATIENCE));
        // Another one answers: this one is about to.
        let one_of_many = Signs { alone: false, ..signs };
        assert_eq!(liveness.deadline(&one_of_many), Some(ms(1_060)));
        liveness.excuse(ms(1_260));
        assert_eq!(liveness.deadline(&one_of_many), Some(ms(1_260) + MIN_SILENCE));
    }

    #[test]
    fn an_answer_clears_the_path() {
        let signs = silent(0.0);
        let mut liveness = Liveness::new(ms(1_000));
        assert_eq!(liveness.check(ms(1_050), &signs), Silence::Probe);
        assert!(liveness.is_silent());
        liveness.clear();
        assert!(!liveness.is_silent());
        let answered = Signs { silent_since: None, ..signs };
        assert_eq!(liveness.deadline(&answered), None);
    }

    #[test]
    fn doubt_shortens_the_time_to_answer_once() {
        let signs = Signs { silent_since: None, ..silent(0.06) };
        let mut liveness = Liveness::new(ms(1_000));
        assert!(liveness.doubt(ms(1_000)));
        assert!(!liveness.doubt(ms(1_030)), "nothing new");
        assert_eq!(liveness.deadline(&signs), Some(ms(1_100)));
        assert_eq!(liveness.check(ms(1_099), &signs), Silence::None);
        assert_eq!(liveness.check(ms(1_100), &signs), Silence::Dead);
    }

    #[test]
    fn a_failed_path_is_asked_with_growing_pauses() {
        let signs = Signs { state: PathState::Failed, ..silent(0.0) };
        let mut liveness = Liveness::new(ms(0));
        liveness.on_dead(ms(1_000), MAX_PROBE_INTERVAL);
        let (asked, _) = probes(&mut liveness, &signs);
        assert_eq!(asked[..5], [1_300, 2_500, 4_500, 6_500, 8_500]);
        // At rest nobody waits for it.
        let resting = Signs { resting: true, ..signs };
        let (asked, _) = probes(&mut liveness, &resting);
        assert_eq!(asked[10] - asked[9], REST_PROBE.as_millis() as u64);
        liveness.ask_by(ms(1));
        assert_eq!(liveness.deadline(&resting), Some(ms(1)));
    }

    #[test]
    fn a_path_at_rest_has_seconds_to_answer() {
        let signs = Signs { resting: true, ..silent(0.0) };
        let mut liveness = Liveness::new(ms(1_000));
        let (asked, silence) = probes(&mut liveness, &signs);
        assert_eq!(silence, Silence::Dead);
        assert_eq!(asked[..6], [1_050, 1_150, 1_350, 1_750, 2_550, 3_550]);
        assert_eq!(liveness.deadline(&signs), Some(ms(1_000) + REST_PATIENCE));
    }

    #[test]
    fn what_was_given_up_or_is_not_validated_is_not_judged() {
        for state in [PathState::Validating, PathState::Abandoned] {
            let signs = Signs { state, ..silent(0.0) };
            assert_eq!(Liveness::new(ms(0)).check(ms(60_000), &signs), Silence::None);
        }
    }
}
