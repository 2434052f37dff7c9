//! A challenge to an address, and when it is sent again.

use core::time::Duration;

use crate::sink::PathAddress;
use crate::time::Instant;

/// First and longest pause between challenges on a path that does not answer them.
const CHALLENGE_RETRY: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(20));
/// The longest while the association rests: nobody waits, and a challenge is a full-size datagram.
const REST_RETRY: Duration = Duration::from_secs(120);
/// When routes change, a challenge is repeated so often at most, and after this at the soonest.
const MAX_REPEATS: u8 = 3;
const MIN_REPEAT: Duration = Duration::from_millis(5);

/// A challenge of ours that has no answer yet.
#[derive(Clone, Debug)]
pub(crate) struct Challenge {
    /// What the answer must repeat.
    pub(crate) data: [u8; 8],
    /// The address that is challenged.
    pub(crate) to: PathAddress,
    /// When it is to be sent (again).
    pub(crate) next: Instant,
    /// How often it was sent.
    pub(crate) attempts: u32,
    /// We chose the address: from the configuration, or from what the peer has told. To others no
    /// more may be sent than came from there.
    pub(crate) ours: bool,
    /// How often it was repeated because routes had changed.
    repeats: u8,
    /// When it was sent last.
    sent: Instant,
}

impl Challenge {
    /// A challenge to an address from which something authentic came.
    pub(crate) fn new(data: [u8; 8], to: PathAddress, now: Instant) -> Self {
        Self { data, to, next: now, attempts: 0, ours: false, repeats: 0, sent: now }
    }

    /// A challenge to an address that we chose.
    pub(crate) fn ours(data: [u8; 8], to: PathAddress, now: Instant) -> Self {
        Self { ours: true, ..Self::new(data, to, now) }
    }

    /// It left, for an association that rests or not.
    pub(crate) fn on_sent(&mut self, now: Instant, resting: bool) {
        let (first, longest) = CHALLENGE_RETRY;
        let longest = if resting { REST_RETRY } else { longest };
        self.next = now + (first * 2_u32.saturating_pow(self.attempts.min(10))).min(longest);
        self.attempts += 1;
        self.sent = now;
    }

    /// Something came from the address that is challenged: the way is open, at least from there,
    /// and the long pauses of a dead one need not be kept.
    pub(crate) fn hurry(&mut self) {
        self.next = self.next.min(self.sent + CHALLENGE_RETRY.0);
    }

    /// The association carries something again.
    pub(super) fn wake(&mut self) {
        self.next = self.next.min(self.sent + CHALLENGE_RETRY.1);
    }

    /// It may not have reached the network. Not more than a few times: routes may change for ever.
    pub(super) fn repeat(&mut self, now: Instant) {
        let soonest = now.max(self.sent + MIN_REPEAT);
        if self.attempts > 0 && self.repeats < MAX_REPEATS && soonest < self.next {
            self.next = soonest;
            self.repeats += 1;
            self.attempts -= 1;
        }
    }
}
