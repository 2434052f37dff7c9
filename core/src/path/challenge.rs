//! A challenge to an address, and when it is sent again.

use core::time::Duration;

use super::{Path, PathState};
use mpip_types::Instant;
use mpip_types::PathAddress;

/// First and longest pause between challenges on a path that does not answer them.
const CHALLENGE_RETRY: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(20));
/// The longest while the association rests: nobody waits, and a challenge is a full-size datagram.
const REST_RETRY: Duration = Duration::from_secs(120);
/// When routes change, a challenge is repeated so often at most, and after this at the soonest.
const MAX_REPEATS: u8 = 3;
const MIN_REPEAT: Duration = Duration::from_millis(5);
/// Bytes that may leave along with the first challenge to an address that has answered before: ten
/// datagrams (RFC 9002, section 7.2).
const FIRST_FLIGHT: usize = 14_720;
/// Of these so many are sent in any case: an answer with a challenge is as long as one, and two packets
/// fit the rest.
const LENT: usize = 3_600;
/// Bytes of an answer and another challenge to an address that has not answered, for which enough is left
/// when packets are sent there.
const ANSWER: usize = 128;

/// What is known of an address that is challenged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The peer says that it is there. The challenge is short, and there are only so many: it may be
    /// anybody's address.
    Told,
    /// The configuration says so, or something authentic came from there.
    Known,
    /// It has answered before, on a path that worked until lately: some packets may go there along
    /// with the challenge.
    Trusted,
}

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
    pub(crate) standing: Standing,
    /// How often it was repeated because routes had changed.
    repeats: u8,
    /// When it was sent last.
    sent: Instant,
}

impl Challenge {
    /// A challenge to an address from which something authentic came.
    pub(crate) fn new(data: [u8; 8], to: PathAddress, now: Instant) -> Self {
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
    pub(crate) fn ours(data: [u8; 8], to: PathAddress, standing: Standing, now: Instant) -> Self {
        Self { ours: true, standing, ..Self::new(data, to, now) }
    }

    fn is_trusted(&self) -> bool {
        self.standing == Standing::Trusted
    }

    /// It left, for an association that rests or not.
    pub(crate) fn on_sent(&mut self, now: Instant, resting: bool) {
        let (first, longest) = CHALLENGE_RETRY;
        let longest = if resting { REST_RETRY } else { longest };
        self.next = now + (first * 2_u32.saturating_pow(self.attempts.min(10))).min(longest);
        self.attempts += 1;
        self.sent = now;
    }

    /// It may not be sent yet: too little has come from the address. What comes makes it hurry.
    pub(crate) fn wait(&mut self, now: Instant) {
        self.next = now + CHALLENGE_RETRY.1;
    }

    /// Something came from the address that is challenged: the way is open, at least from there,
    /// and the long pauses of a dead one need not be kept.
    pub(crate) fn hurry(&mut self) {
        let pause = if self.attempts == 0 { Duration::ZERO } else { CHALLENGE_RETRY.0 };
        self.next = self.next.min(self.sent + pause);
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

impl Path {
    /// The first challenge leaves for an address that has answered before.
    pub(crate) fn grant_first_flight(&mut self) {
        let first = |challenge: &Challenge| challenge.is_trusted() && challenge.attempts == 0;
        if self.challenge.as_ref().is_some_and(first) {
            self.credit = FIRST_FLIGHT;
        }
    }

    /// Bytes of packets that may leave before the path works; 0 once it does.
    pub(crate) fn early_room(&self) -> usize {
        if self.calls().is_some() { self.credit.saturating_sub(ANSWER) } else { 0 }
    }

    /// Bytes of another challenge that is to follow the first one, until enough has left for an answer
    /// with packets.
    pub(crate) fn lends(&self) -> Option<usize> {
        let lends = self.calls().is_some_and(Challenge::is_trusted);
        (lends && self.credit > FIRST_FLIGHT - LENT).then(|| self.challenge_len())
    }

    /// When it is to be said what has arrived before the path works. Packets that are `waiting` need the
    /// credit more, and say it, too.
    pub(crate) fn early_feedback_at(&self, waiting: bool) -> Option<Instant> {
        self.arrivals.due().filter(|_| !waiting && self.early_room() > 0)
    }

    /// The challenge on which it depends whether the path works.
    pub(crate) fn calls(&self) -> Option<&Challenge> {
        let waits = matches!(self.state, PathState::Validating | PathState::Failed);
        self.challenge.as_ref().filter(|_| waits)
    }

    /// Bytes that may leave now as far as the other end's address is concerned.
    pub(crate) fn sendable(&self) -> usize {
        if self.works() { usize::MAX } else { self.early_room() }
    }

    /// `len` bytes have left.
    pub(crate) fn spend(&mut self, len: usize) {
        if !self.works() {
            self.credit = self.credit.saturating_sub(len);
        }
    }

    /// Where what leaves on it goes: while it does not work, to the address that is challenged.
    pub(crate) fn leads_to(&self) -> PathAddress {
        self.calls().map_or(self.address, |challenge| challenge.to)
    }
}
