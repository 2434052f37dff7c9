//! Validation of a remote address: our challenge, the peer's, and how much may be sent before.
//!
//! Toward an address that has not answered, no more bytes leave than came from there (the credit),
//! except where the address is known to be the peer's.

use mpip_types::{Instant, PathAddress};

use crate::challenge::Challenge;

/// Bytes that may leave along with the first challenge to an address that has answered before: ten
/// datagrams (RFC 9002, section 7.2).
const FIRST_FLIGHT: usize = 14_720;
/// Of these so many are sent in any case: an answer with a challenge is as long as one, and two
/// packets fit the rest.
const LENT: usize = 3_600;
/// Bytes of an answer and another challenge to an address that has not answered, for which enough
/// is left when packets are sent there.
const ANSWER: usize = 128;

/// What is asked and owed until an address is known to be the peer's.
#[derive(Clone, Debug, Default)]
pub struct Validation {
    /// Our challenge on the way, if any; for a path in use, to an address that it may move to.
    pub challenge: Option<Challenge>,
    /// The peer's challenge that we owe an answer, and where it came from.
    pub response_owed: Option<([u8; 8], PathAddress)>,
    /// Bytes that may still go to an address that has not answered.
    pub credit: usize,
}

impl Validation {
    /// The first challenge leaves for an address that has answered before: some packets may go
    /// along.
    pub fn grant_first_flight(&mut self) {
        let first = |challenge: &Challenge| challenge.is_trusted() && challenge.attempts == 0;
        if self.challenge.as_ref().is_some_and(first) {
            self.credit = FIRST_FLIGHT;
        }
    }

    /// Bytes of packets that may leave before the address has answered.
    pub(crate) fn early_room(&self) -> usize {
        self.credit.saturating_sub(ANSWER)
    }

    /// Whether another challenge is to follow the first one: too little has left for an answer with
    /// packets.
    pub(crate) fn lends(&self) -> bool {
        let trusted = self.challenge.as_ref().is_some_and(Challenge::is_trusted);
        trusted && self.credit > FIRST_FLIGHT - LENT
    }

    /// `len` bytes have left for an address that has not answered.
    pub(crate) fn spend(&mut self, len: usize) {
        self.credit = self.credit.saturating_sub(len);
    }

    /// When the challenge is to be sent (again).
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.challenge.as_ref().map(|challenge| challenge.next)
    }
}
