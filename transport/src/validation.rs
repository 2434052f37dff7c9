//! Path validation: our challenge, the peer's challenge, and the anti-amplification limit.
//!
//! To an address that is not validated, no more bytes are sent than were received from it (the
//! credit), except where the address is known to be the peer's.

use mpip_types::{Instant, PathAddress};

use crate::challenge::Challenge;

/// Bytes that may leave with the first challenge to an address that was validated before: ten
/// datagrams (RFC 9002, section 7.2).
const FIRST_FLIGHT: usize = 14_720;
/// The part of these that is always sent: the peer may then answer with its own challenge and two
/// packets.
const LENT: usize = 3_600;
/// Credit kept for a path response and another challenge when packets are sent to an address that
/// is not validated, bytes.
const ANSWER: usize = 128;

/// What the peer's acknowledgements prove about a path.
///
/// Those of packets that left before a certain one prove nothing: before we validated the peer's
/// address, or before the host lost its route.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerAnswers {
    counts_from: u64,
    confirmed: bool,
}

impl PeerAnswers {
    /// Acknowledgements of packets before `number` prove nothing.
    pub fn count_from(&mut self, number: u64) {
        self.counts_from = number;
    }

    /// Whether an acknowledgement whose largest packet number is `largest` is an answer.
    pub fn counts(&self, largest: u64) -> bool {
        largest >= self.counts_from
    }

    /// Takes note of an answer. Whether it is the first one, so that the peer has validated our
    /// address.
    pub fn confirm(&mut self) -> bool {
        !core::mem::replace(&mut self.confirmed, true)
    }

    /// Whether the peer has validated our address.
    pub fn confirmed(&self) -> bool {
        self.confirmed
    }
}

/// State of path validation.
#[derive(Clone, Debug, Default)]
pub struct Validation {
    /// Our unanswered challenge, if any; on a path in use, to the address that it may migrate to.
    pub challenge: Option<Challenge>,
    /// The peer's challenge that is to be answered, and the address that it came from.
    pub response_owed: Option<([u8; 8], PathAddress)>,
    /// Bytes that may still be sent to an address that is not validated.
    pub credit: usize,
}

impl Validation {
    /// Grants credit for packets that leave with the first challenge to an address that was
    /// validated before.
    pub fn grant_first_flight(&mut self) {
        let first = |challenge: &Challenge| challenge.is_trusted() && challenge.attempts == 0;
        if self.challenge.as_ref().is_some_and(first) {
            self.credit = FIRST_FLIGHT;
        }
    }

    /// Bytes of packets that may leave before validation.
    pub(crate) fn early_room(&self) -> usize {
        self.credit.saturating_sub(ANSWER)
    }

    /// Whether another challenge is to follow the first one, so that the peer may answer with
    /// packets.
    pub(crate) fn lends(&self) -> bool {
        let trusted = self.challenge.as_ref().is_some_and(Challenge::is_trusted);
        trusted && self.credit > FIRST_FLIGHT - LENT
    }

    /// `len` bytes have left for an address that is not validated.
    pub(crate) fn spend(&mut self, len: usize) {
        self.credit = self.credit.saturating_sub(len);
    }

    /// When the challenge is to be sent (again).
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.challenge.as_ref().map(|challenge| challenge.next)
    }
}
