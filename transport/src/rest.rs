//! Rest: keepalives of idle paths, as rare as NATs on the path permit.
//!
//! A path that is awake sends a heartbeat every 300 ms. A path at rest sends a keepalive (the same
//! frame) after a longer idle time. The idle time depends on who keeps state for the path:
//!
//! - Without a NAT, the opener sends one after 25 s, the other node after 30 s.
//! - A node behind a NAT tells the peer the idle time ([`Frame::Keepalive`]) and lets the *peer*
//!   send the keepalive. If the mapping has expired, the NAT lets nothing in; an outgoing packet
//!   would silently create a new mapping, often with the same port. If the keepalive does not
//!   arrive, the node sends one itself. When that is answered, the node knows that the idle time
//!   was too long ([`Lifetime`]).
//!
//! [`Frame::Keepalive`]: mpip_wire::Frame::Keepalive

use core::time::Duration;

use mpip_types::Instant;

/// Time without inner packets after which an association lets its paths rest.
pub const REST_AFTER: Duration = Duration::from_secs(10);
/// Time that a path at rest has to answer. No traffic depends on it, and a sleeping radio needs
/// seconds to wake up (TS 36.331: idle to connected).
pub const REST_PATIENCE: Duration = Duration::from_secs(4);
/// Longest interval between unanswered keepalives.
pub const REST_RETRY: Duration = Duration::from_secs(1);
/// Longest interval between probes of a failed path while other paths rest.
pub const REST_PROBE: Duration = Duration::from_secs(25);
/// Interval of periodic work of a resting association.
pub const REST_PERIOD: Duration = Duration::from_secs(1);
/// Keepalive interval without a known NAT: below the 30 s of the shortest firewall timeouts, as in
/// WireGuard.
pub const USUAL: Duration = Duration::from_secs(25);
/// The same for the node that does not open paths; the opener's keepalive comes first.
const USUAL_OTHER: Duration = Duration::from_secs(30);
/// A keepalive of the peer that is overdue by this is lost for good: a retransmission would have
/// arrived.
const GRACE: Duration = Duration::from_secs(2);
/// Shortest and longest interval that a peer may ask for.
const ASKED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));

/// Mapping lifetime of the NAT in front of an address, as far as it has been measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The idle time to use now.
    pause: Duration,
    /// The longest idle time that the mapping has survived; zero before any.
    survived: Duration,
    /// The idle time after which the mapping had expired, and when that was.
    lapsed: Option<(Duration, Instant)>,
}

impl Default for Lifetime {
    fn default() -> Self {
        Self { pause: Self::FIRST, survived: Duration::ZERO, lapsed: None }
    }
}

impl Lifetime {
    /// Initial idle time. Few NATs expire a UDP mapping sooner (RFC 4787 requires 2 minutes; 20 and
    /// 30 s occur).
    const FIRST: Duration = Duration::from_secs(15);
    const SHORTEST: Duration = Duration::from_secs(2);
    /// Keys are renewed about as often, so longer idle times would gain nothing.
    const LONGEST: Duration = Duration::from_secs(120);
    /// Time before an idle time that was too long is tried again: meanwhile the peer could not
    /// reach this node.
    const RETRY: Duration = Duration::from_secs(12 * 3_600);

    /// The idle time to use now.
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// A datagram arrived on a path after `pause` without any on the path, and `silence` without
    /// any from or to the address.
    pub fn on_survived(&mut self, now: Instant, pause: Duration, silence: Duration) {
        // The paths of an address send keepalives at about the same time.
        if silence < self.pause / 8 * 7 {
            // Traffic of another path may have kept the mapping alive, so this idle time is not
            // proven.
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

    /// After `pause`, nothing arrived until this node sent a datagram: the mapping had expired.
    pub fn on_lapsed(&mut self, now: Instant, pause: Duration) {
        if self.survived >= pause {
            // It is another NAT, or its lifetime has become shorter.
            self.survived = Duration::ZERO;
        }
        let part = pause * 7 / 10;
        self.lapsed = Some((pause, now));
        self.pause = if self.survived.is_zero() { part } else { self.survived.min(self.pause) };
        self.pause = self.pause.clamp(Self::SHORTEST, Self::LONGEST);
    }
}

/// The rest of a path: when keepalives are due.
#[derive(Clone, Debug)]
pub struct Rest {
    resting: bool,
    /// When the path last carried a datagram, in either direction.
    travelled: Instant,
    /// The interval that the peer asked for, and the number of the packet that said so.
    asked: Option<(u64, Option<Duration>)>,
    /// The configured interval, in place of a measured one.
    fixed: Option<Duration>,
    /// Interval if neither end asks for another.
    usual: Duration,
    /// Interval that a NAT on the path allows.
    allowed: Option<Duration>,
    /// The interval that the peer was told last.
    told: Option<Duration>,
    /// The peer's keepalive did not arrive after this idle time, and ours was sent.
    overdue: Option<Duration>,
}

impl Rest {
    /// The rest of a path that is awake. `fixed`: the configured interval.
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

    /// When the path last carried a datagram.
    pub fn travelled(&self) -> Instant {
        self.travelled
    }

    /// Whether the path measures the mapping lifetime of a NAT.
    pub fn learns(&self) -> bool {
        self.resting && self.allowed.is_some() && self.fixed.is_none()
    }

    /// The path rests from now on.
    pub fn begin(&mut self, opener: bool) {
        self.resting = true;
        self.usual = if opener { USUAL } else { USUAL_OTHER };
    }

    /// A NAT on the path allows `pause`, if there is a NAT.
    pub fn allow(&mut self, pause: Option<Duration>) {
        self.allowed = pause;
    }

    /// The path is awake from now on. Returns whether it was at rest.
    pub fn end(&mut self) -> bool {
        self.overdue = None;
        core::mem::take(&mut self.resting)
    }

    /// A datagram left, or an authentic one arrived.
    pub fn on_travelled(&mut self, now: Instant) {
        self.travelled = now;
    }

    /// The peer asks, in packet `number`, for a keepalive after `interval` ms without a datagram.
    pub fn on_asked(&mut self, number: u64, interval: u64) {
        if self.asked.is_none_or(|(newest, _)| number > newest) {
            let (least, most) = ASKED;
            let pause = Duration::from_millis(interval).clamp(least, most);
            self.asked = Some((number, (interval > 0).then_some(pause)));
        }
    }

    /// Whether the peer asks for keepalives.
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

    /// The peer has answered. Returns the idle time that was too long, if there was one.
    pub fn take_lapsed(&mut self) -> Option<Duration> {
        self.overdue.take()
    }

    /// Whether the path rests with an interval that the peer has not been told.
    pub fn differs_from_told(&self) -> bool {
        self.resting && self.wanted() != self.told
    }

    /// The interval for the peer, ms; 0 if it may choose.
    pub fn keepalive_interval(&self) -> u64 {
        self.wanted().unwrap_or_default().as_millis() as u64
    }

    /// The peer has been told the interval.
    pub fn on_told(&mut self) {
        self.told = self.wanted();
    }

    /// The longest idle time of the path at rest, as far as this end knows.
    pub fn interval(&self) -> Duration {
        let asked = self.asked.and_then(|(_, pause)| pause);
        self.wanted().into_iter().chain(asked).min().unwrap_or(self.usual)
    }

    /// The interval for the peer; `None` if it may choose.
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

    /// Measures a NAT whose mappings expire after `lifetime`. Returns all idle times.
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
    fn a_nat_that_remembers_less_than_before_is_followed() {
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
        // Nor does one that another path has interrupted, and a longer one is not kept for it.
        known.on_survived(at(20), secs(15), secs(15));
        known.on_survived(at(40), secs(22), secs(5));
        assert_eq!(known.pause, secs(15));
    }
}
