//! A challenge to an address, and when it is sent again.

use core::time::Duration;

use mpip_types::Instant;
use mpip_types::PathAddress;

/// First and longest pause between challenges on a path that does not answer them.
const CHALLENGE_RETRY: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(20));
/// The longest while the association rests: nobody waits, and a challenge is a full-size datagram.
const REST_RETRY: Duration = Duration::from_secs(120);
/// When routes change, a challenge is repeated so often at most, and after this at the soonest.
const MAX_REPEATS: u8 = 3;
const MIN_REPEAT: Duration = Duration::from_millis(5);

/// What is known of an address that is challenged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The peer says that it is there. The challenge is short, and there are only so many: it may
    /// be anybody's address.
    Told,
    /// The configuration says so, or something authentic came from there.
    Known,
    /// It has answered before, on a path that worked until lately: some packets may go there along
    /// with the challenge.
    Trusted,
}

/// A challenge of ours that has no answer yet.
#[derive(Clone, Debug)]
pub struct Challenge {
    /// What the answer must repeat.
    pub data: [u8; 8],
    /// The address that is challenged.
    pub to: PathAddress,
    /// When it is to be sent (again).
    pub next: Instant,
    /// How often it was sent.
    pub attempts: u32,
    /// We chose the address: from the configuration, or from what the peer has told. To others no
    /// more may be sent than came from there.
    pub ours: bool,
    /// What is known of the address.
    pub standing: Standing,
    /// How often it was repeated because routes had changed.
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
            repeats: 0,
            sent: now,
        }
    }

    /// A challenge to an address that we chose.
    pub fn ours(data: [u8; 8], to: PathAddress, standing: Standing, now: Instant) -> Self {
        Self { ours: true, standing, ..Self::new(data, to, now) }
    }

    pub(crate) fn is_trusted(&self) -> bool {
        self.standing == Standing::Trusted
    }

    /// It left, for an association that rests or not.
    pub fn on_sent(&mut self, now: Instant, resting: bool) {
        let (first, longest) = CHALLENGE_RETRY;
        let longest = if resting { REST_RETRY } else { longest };
        self.next = now + (first * 2_u32.saturating_pow(self.attempts.min(10))).min(longest);
        self.attempts += 1;
        self.sent = now;
    }

    /// It may not be sent yet: too little has come from the address. What comes makes it hurry.
    pub fn wait(&mut self, now: Instant) {
        self.next = now + CHALLENGE_RETRY.1;
    }

    /// Something came from the address that is challenged: the way is open, at least from there,
    /// and the long pauses of a dead one need not be kept.
    pub fn hurry(&mut self) {
        let pause = if self.attempts == 0 { Duration::ZERO } else { CHALLENGE_RETRY.0 };
        self.next = self.next.min(self.sent + pause);
    }

    /// The association carries something again.
    pub(crate) fn wake(&mut self) {
        self.next = self.next.min(self.sent + CHALLENGE_RETRY.1);
    }

    /// It may not have reached the network. Not more than a few times: routes may change for ever.
    pub(crate) fn repeat(&mut self, now: Instant) {
        let soonest = now.max(self.sent + MIN_REPEAT);
        if self.attempts > 0 && self.repeats < MAX_REPEATS && soonest < self.next {
            self.next = soonest;
            self.repeats += 1;
            self.attempts -= 1;
        }
    }
}
