//! A path challenge, and when it is retransmitted.

use core::time::Duration;

use mpip_types::Instant;
use mpip_types::PathAddress;

/// First and longest interval between challenges without an answer.
const CHALLENGE_RETRY: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(20));
/// Shortest interval between challenges while traffic pays for them.
const BUSY_RETRY: Duration = Duration::from_secs(1);
/// The longest interval while the association rests: no traffic depends on it, and a challenge is a
/// full-size datagram. It may also keep the mapping of a NAT alive, so that longer pauses of the
/// paths beside it cannot be proven.
const REST_RETRY: Duration = Duration::from_secs(600);
/// Most retransmissions of a challenge because of changed routes, and their shortest interval.
const MAX_REPEATS: u8 = 3;
const MIN_REPEAT: Duration = Duration::from_millis(5);

/// What is known about an address that is challenged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The peer has advertised it. It may be anybody's address, so the challenge is short and their
    /// number is limited.
    Advertised,
    /// It is configured, or something authentic came from there.
    Known,
    /// It was validated before, on a path that worked until lately: some packets may leave with the
    /// challenge.
    Trusted,
}

/// Our challenge that has no answer yet.
#[derive(Clone, Debug)]
pub struct Challenge {
    /// Data that the response must repeat.
    pub data: [u8; 8],
    /// The address that is challenged.
    pub to: PathAddress,
    /// When it is to be sent or retransmitted.
    pub next: Instant,
    /// How often it was sent.
    pub attempts: u32,
    /// We chose the address, from the configuration or from what the peer has advertised.
    /// Otherwise the anti-amplification limit holds.
    pub ours: bool,
    /// What is known about the address.
    pub standing: Standing,
    /// Attempts that traffic paid for. The pauses do not grow with them: when the traffic ends, the
    /// address has been asked for as short a time as without it.
    paid: u32,
    /// Whether the next attempt is such a one.
    hastened: bool,
    /// Retransmissions because of changed routes.
    repeats: u8,
    /// When it was sent last.
    sent: Instant,
}

impl Challenge {
    /// A challenge to an address from which something authentic came.
    pub fn new(data: [u8; 8], to: PathAddress, now: Instant) -> Self {
        Self {
            data,
            to,
            next: now,
            attempts: 0,
            ours: false,
            standing: Standing::Known,
            paid: 0,
            hastened: false,
            repeats: 0,
            sent: now,
        }
    }

    /// A challenge to an address that we chose.
    pub fn ours(data: [u8; 8], to: PathAddress, standing: Standing, now: Instant) -> Self {
        Self { ours: true, standing, ..Self::new(data, to, now) }
    }

    /// Counts on from `former`, which this challenge replaces.
    pub fn counting_from(self, former: &Self) -> Self {
        Self { attempts: former.attempts, paid: former.paid, ..self }
    }

    pub(crate) fn is_trusted(&self) -> bool {
        self.standing == Standing::Trusted
    }

    /// It has left; `resting`: the association is at rest.
    pub fn on_sent(&mut self, now: Instant, resting: bool) {
        let (first, longest) = CHALLENGE_RETRY;
        let longest = if resting { REST_RETRY } else { longest };
        self.paid += u32::from(core::mem::take(&mut self.hastened));
        let doublings = self.attempts.saturating_sub(self.paid).min(11);
        self.next = now + (first * 2_u32.saturating_pow(doublings)).min(longest);
        self.attempts += 1;
        self.sent = now;
    }

    /// The anti-amplification limit forbids to send it now. What arrives from the address makes it
    /// [hurry](Self::hurry).
    pub fn wait(&mut self, now: Instant) {
        self.next = now + CHALLENGE_RETRY.1;
        self.hastened = false;
    }

    /// Something has arrived from the address: the path works, at least in that direction, so the
    /// retransmission need not back off.
    pub fn hurry(&mut self) {
        let pause = if self.attempts == 0 { Duration::ZERO } else { CHALLENGE_RETRY.0 };
        self.next = self.next.min(self.sent + pause);
    }

    /// When it was sent last, if it may be [hastened](Self::hasten): a second later, and only for
    /// addresses that we chose and that are known to be the peer's.
    pub fn waits_since(&self, now: Instant) -> Option<Instant> {
        let known = self.ours && self.standing != Standing::Advertised;
        let waits = self.attempts > 0 && now >= self.sent + BUSY_RETRY && now < self.next;
        (known && waits).then_some(self.sent)
    }

    /// Traffic would use another path: is sent again now.
    pub fn hasten(&mut self, now: Instant) {
        self.next = now;
        self.hastened = true;
    }

    /// The association is no longer at rest.
    pub(crate) fn wake(&mut self) {
        self.next = self.next.min(self.sent + CHALLENGE_RETRY.1);
    }

    /// Routes have changed, so it may not have reached the network: retransmits it soon, but only a
    /// few times.
    pub(crate) fn repeat(&mut self, now: Instant) {
        let soonest = now.max(self.sent + MIN_REPEAT);
        if self.attempts > 0 && self.repeats < MAX_REPEATS && soonest < self.next {
            self.next = soonest;
            self.repeats += 1;
            self.attempts -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;

    use mpip_types::LocalId;

    use super::*;

    fn challenge() -> Challenge {
        let remote = SocketAddr::from(([198, 18, 0, 2], 6182));
        let to = PathAddress { local: LocalId(0), remote };
        Challenge::ours([1; 8], to, Standing::Known, Instant::ZERO)
    }

    /// Sends it whenever it is due until `end`, also sooner if `busy`. Returns the times in ms.
    fn sent(challenge: &mut Challenge, busy: bool, end: Duration) -> Vec<u128> {
        let mut times = Vec::new();
        let mut now = challenge.sent;
        while now < Instant::ZERO + end {
            if busy && challenge.waits_since(now).is_some() {
                challenge.hasten(now);
            }
            if now >= challenge.next {
                challenge.on_sent(now, false);
                times.push(now.since(Instant::ZERO).as_millis());
            }
            now += Duration::from_millis(100);
        }
        times
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut challenge = challenge();
        let times = sent(&mut challenge, false, Duration::from_secs(80));
        assert_eq!(times, [0, 300, 900, 2_100, 4_500, 9_300, 18_900, 38_100, 58_100, 78_100]);
    }

    #[test]
    fn attempts_that_traffic_paid_for_make_later_pauses_no_longer() {
        let mut challenge = challenge();
        let busy = sent(&mut challenge, true, Duration::from_secs(30));
        assert!(busy.windows(2).all(|pair| pair[1] - pair[0] <= 1_000), "{busy:?}");
        let last = *busy.last().expect("sent");
        let idle = sent(&mut challenge, false, Duration::from_secs(50));
        let pauses: Vec<_> =
            [&[last], &idle[..]].concat().windows(2).map(|p| p[1] - p[0]).collect();
        assert_eq!(pauses[..4], [1_200, 2_400, 4_800, 9_600]);
    }
}
