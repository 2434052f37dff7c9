//! Rest: what keeps a path open that carries nothing, and how seldom that has to be done.
//!
//! A path that is awake sends a heartbeat every 300 ms. One at rest sends a keepalive (the same
//! frame) when nothing has travelled on it for long. How long depends on who keeps state of the
//! path:
//!
//! - Where no translator is seen, the opener sends one after 25 s, the other node after 30 s.
//! - A node behind a translator tells the peer how long to wait ([`Frame::Keepalive`]), and lets
//!   the *peer* send the keepalive: a translator that has forgotten the path lets nothing in, while
//!   what goes out would make it a new entry, often with the same port, and nobody would notice.
//!   When the keepalive does not come the node sends one itself, and once that is answered it knows
//!   that the pause was too long ([`Lifetime`]).
//!
//! [`Frame::Keepalive`]: mpip_wire::Frame::Keepalive

use core::time::Duration;

use mpip_types::Instant;

/// An association without inner packets for so long lets its paths rest.
pub const REST_AFTER: Duration = Duration::from_secs(10);
/// An answer may take so long at rest: nobody waits for it, and a radio that sleeps takes seconds
/// to wake up (TS 36.331: idle to connected).
pub const REST_PATIENCE: Duration = Duration::from_secs(4);
/// Longest pause between keepalives that have no answer.
pub const REST_RETRY: Duration = Duration::from_secs(1);
/// Longest pause between signs of life that a failed path is asked for, while others work at rest.
pub const REST_PROBE: Duration = Duration::from_secs(25);
/// What a resting association looks after by itself is looked after so often.
pub const REST_PERIOD: Duration = Duration::from_secs(1);
/// Pause where no translator is known to be: below the 30 s of the shortest firewalls, as
/// WireGuard's.
pub const USUAL: Duration = Duration::from_secs(25);
/// That of the node that does not open paths: it finds the other's keepalive in time.
const USUAL_OTHER: Duration = Duration::from_secs(30);
/// A keepalive of the peer that is overdue by this does not come: repeated, it would have.
const GRACE: Duration = Duration::from_secs(2);
/// What a peer may ask for.
const ASKED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));

/// How long a translator remembers paths from an address, as far as was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The pause to be made now.
    pause: Duration,
    /// The longest pause that was survived; zero before any.
    survived: Duration,
    /// The shortest that was not, and when that was.
    lapsed: Option<(Duration, Instant)>,
}

impl Default for Lifetime {
    fn default() -> Self {
        Self { pause: Self::FIRST, survived: Duration::ZERO, lapsed: None }
    }
}

impl Lifetime {
    /// Few translators forget a UDP flow sooner (RFC 4787 demands 2 minutes; 20 and 30 s are seen).
    const FIRST: Duration = Duration::from_secs(15);
    const SHORTEST: Duration = Duration::from_secs(2);
    /// The keys are renewed about as often, so that longer pauses would gain nothing.
    const LONGEST: Duration = Duration::from_secs(120);
    /// A pause that was too long is not tried again before this: while it lasts, the peer cannot
    /// reach this node.
    const RETRY: Duration = Duration::from_secs(12 * 3_600);

    /// The pause to be made now.
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// Something came in on a path after `pause` without a datagram there, and `silence` without
    /// one from or to the address.
    pub fn on_survived(&mut self, now: Instant, pause: Duration, silence: Duration) {
        // The paths from the address are asked at about the same time.
        if silence < self.pause / 8 * 7 {
            // What another path sent may have kept this one alive: nothing is known of this pause.
            if pause >= self.pause / 8 * 7 && !self.survived.is_zero() {
                self.pause = self.pause.min(self.survived.max(Self::FIRST));
            }
            return;
        }
        self.survived = self.survived.max(silence);
        let next = (self.pause * 3 / 2).min(Self::LONGEST);
        match self.lapsed {
            Some((lapsed, at)) if next >= lapsed && now.since(at) < Self::RETRY => {}
            _ => self.pause = next,
        }
    }

    /// After `pause` nothing came in any more until this node sent something.
    pub fn on_lapsed(&mut self, now: Instant, pause: Duration) {
        if self.survived >= pause {
            // It is another translator, or remembers less than it did.
            self.survived = Duration::ZERO;
        }
        let part = pause * 7 / 10;
        self.lapsed = Some((pause, now));
        self.pause = if self.survived.is_zero() { part } else { self.survived.min(self.pause) };
        self.pause = self.pause.clamp(Self::SHORTEST, Self::LONGEST);
    }
}

/// A path's rest.
#[derive(Clone, Debug)]
pub struct Rest {
    resting: bool,
    /// When a datagram last travelled on the path, in either direction.
    travelled: Instant,
    /// What the peer asked for, and in which packet.
    asked: Option<(u64, Option<Duration>)>,
    /// The configuration's pause, in the place of one that is learnt.
    fixed: Option<Duration>,
    /// Pause where neither end asks for another.
    usual: Duration,
    /// What a translator on the way allows.
    allowed: Option<Duration>,
    /// What the peer was told last.
    told: Option<Duration>,
    /// The peer's keepalive did not come after this pause, and ours was sent.
    overdue: Option<Duration>,
}

impl Rest {
    /// Of a path that is awake. `fixed`: the configuration's pause.
    pub fn new(now: Instant, fixed: Option<Duration>) -> Self {
        Self {
            resting: false,
            travelled: now,
            asked: None,
            fixed,
            usual: USUAL,
            allowed: None,
            told: None,
            overdue: None,
        }
    }

    /// Whether the path rests.
    pub fn is_resting(&self) -> bool {
        self.resting
    }

    /// When a datagram last travelled on the path.
    pub fn travelled(&self) -> Instant {
        self.travelled
    }

    /// Whether the path's silence tells how long a translator remembers it.
    pub fn learns(&self) -> bool {
        self.resting && self.allowed.is_some() && self.fixed.is_none()
    }

    /// The path rests from now on.
    pub fn begin(&mut self, opener: bool) {
        self.resting = true;
        self.usual = if opener { USUAL } else { USUAL_OTHER };
    }

    /// What a translator on the way allows is `pause`, if there is one.
    pub fn allow(&mut self, pause: Option<Duration>) {
        self.allowed = pause;
    }

    /// The path is awake from now on. Returns whether it rested.
    pub fn end(&mut self) -> bool {
        self.overdue = None;
        core::mem::take(&mut self.resting)
    }

    /// A datagram left, or one came in that authenticated.
    pub fn on_travelled(&mut self, now: Instant) {
        self.travelled = now;
    }

    /// The peer asks, in packet `number`, to be heard of after `interval` ms without a datagram.
    pub fn on_asked(&mut self, number: u64, interval: u64) {
        if self.asked.is_none_or(|(newest, _)| number > newest) {
            let (least, most) = ASKED;
            let pause = Duration::from_millis(interval).clamp(least, most);
            self.asked = Some((number, (interval > 0).then_some(pause)));
        }
    }

    /// Whether the peer asks to be heard of.
    pub fn is_asked(&self) -> bool {
        self.asked.is_some_and(|(_, pause)| pause.is_some())
    }

    /// When a keepalive is due.
    pub fn keepalive_at(&self) -> Instant {
        let own = self.wanted().map(|pause| pause + GRACE);
        let asked = self.asked.and_then(|(_, pause)| pause);
        self.travelled + own.into_iter().chain(asked).min().unwrap_or(self.usual)
    }

    /// A keepalive is about to be sent.
    pub fn on_keepalive(&mut self, now: Instant) {
        let overdue = |pause: &Duration| now.since(self.travelled) >= *pause + GRACE;
        if self.learns()
            && let Some(pause) = self.allowed.filter(overdue)
        {
            self.overdue = Some(pause);
        }
    }

    /// The peer has answered something: the pause that was too long, if one was.
    pub fn take_lapsed(&mut self) -> Option<Duration> {
        self.overdue.take()
    }

    /// Whether the path rests with a pause that the peer was not told.
    pub fn differs_from_told(&self) -> bool {
        self.resting && self.wanted() != self.told
    }

    /// The pause that the peer is told, in ms; 0 if it is to do as it likes.
    pub fn keepalive_interval(&self) -> u64 {
        self.wanted().unwrap_or_default().as_millis() as u64
    }

    /// It was told.
    pub fn on_told(&mut self) {
        self.told = self.wanted();
    }

    /// The longest pause that the path makes at rest, as far as this end knows.
    pub fn interval(&self) -> Duration {
        let asked = self.asked.and_then(|(_, pause)| pause);
        self.wanted().into_iter().chain(asked).min().unwrap_or(self.usual)
    }

    /// What the peer is to do, if it is not to do as it likes.
    fn wanted(&self) -> Option<Duration> {
        self.fixed.or(self.allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1_000)
    }

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// What a translator that forgets after `lifetime` teaches, pause by pause.
    fn learn(lifetime: Duration, rounds: usize) -> (Lifetime, Vec<Duration>) {
        let mut known = Lifetime::default();
        let mut pauses = Vec::new();
        let mut now = at(0);
        for _ in 0..rounds {
            let pause = known.pause;
            pauses.push(pause);
            now += pause;
            if pause < lifetime {
                known.on_survived(now, pause, pause);
            } else {
                known.on_lapsed(now, pause);
            }
        }
        (known, pauses)
    }

    #[test]
    fn the_pause_grows_until_a_mapping_does_not_survive_it_and_stays_below() {
        for (lifetime, found) in
            [(3, 2), (10, 7), (20, 15), (30, 22), (60, 50), (120, 113), (300, 120)]
        {
            let (known, pauses) = learn(secs(lifetime), 60);
            assert_eq!(known.pause.as_secs(), found, "{lifetime} s: {pauses:?}");
            let lapsed = pauses.iter().filter(|pause| **pause >= secs(lifetime)).count();
            assert!(lapsed <= 6, "{lifetime} s: {lapsed} times too long");
        }
    }

    #[test]
    fn a_pause_that_was_too_long_is_tried_again_after_half_a_day() {
        let (mut known, _) = learn(secs(20), 60);
        let (_, lapsed) = known.lapsed.expect("it was");
        known.on_survived(lapsed + secs(11 * 3_600), secs(15), secs(15));
        assert_eq!(known.pause, secs(15));
        known.on_survived(lapsed + secs(13 * 3_600), secs(15), secs(15));
        assert_eq!(known.pause, Duration::from_millis(22_500));
    }

    #[test]
    fn a_translator_that_remembers_less_than_before_is_followed() {
        let (mut known, _) = learn(secs(300), 60);
        known.on_lapsed(at(10_000), known.pause);
        assert_eq!(known.pause, secs(84));
        known.on_lapsed(at(10_100), known.pause);
        assert!(known.pause < secs(60), "{:?}", known.pause);
    }

    #[test]
    fn a_short_pause_says_nothing() {
        let mut known = Lifetime::default();
        known.on_survived(at(1), secs(10), secs(10));
        assert_eq!(known.pause, Lifetime::FIRST);
        // Nor does one that another path has broken, and a longer one is not kept for it.
        known.on_survived(at(20), secs(15), secs(15));
        known.on_survived(at(40), secs(22), secs(5));
        assert_eq!(known.pause, secs(15));
    }
}
