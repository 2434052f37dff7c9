//! Handshakes under way: what is kept of them while somebody else does their public-key work.

use std::collections::VecDeque;

use mpip_crypto::{Aead, INITIATION_LEN, Initiator, RESPONSE_LEN};

use super::Context;
use super::keys::Origin;
use crate::handshake::Work;
use mpip_types::PathAddress;

/// A handshake of ours that awaits its response.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(super) index: u32,
    pub(super) state: State,
    /// The association that it names.
    pub(super) claim: u16,
    /// Where it goes: a response counts only from there, or it would validate an address that has
    /// answered nothing.
    pub(super) sent_to: Vec<PathAddress>,
    /// Where it still has to be sent, once it is made.
    pub(super) unsent: Vec<PathAddress>,
    pub(super) datagram: [u8; INITIATION_LEN],
    /// Responses that came while another was being read.
    pub(super) responses: VecDeque<(PathAddress, [u8; RESPONSE_LEN])>,
    /// A cookie came for it.
    pub(super) has_cookie: bool,
    /// A cookie came for the one before it.
    pub(super) hurried: bool,
}

/// How far a handshake of ours is.
#[derive(Debug)]
pub(super) enum State {
    /// The initiation is being made.
    Making,
    /// A response is awaited.
    Waiting(Box<Initiator>),
    /// A response is being read, or was of no use although authentic.
    Reading,
}

/// An answer to the peer's initiation that is being made.
#[derive(Debug)]
pub(crate) struct Answering {
    pub(super) local_index: u32,
    pub(super) peer_index: u32,
    pub(super) from: PathAddress,
    pub(super) aead: Aead,
    pub(super) origin: Origin,
}

/// An answer that is made, and where it goes.
#[derive(Debug)]
pub(crate) struct Response {
    pub(super) to: PathAddress,
    pub(super) datagram: [u8; RESPONSE_LEN],
}

#[cfg(test)]
impl Pending {
    pub(crate) fn index(&self) -> u32 {
        self.index
    }
}

impl Pending {
    /// Reads the next response, if one has come and none is being read.
    pub(super) fn read_response(&mut self, cx: &mut Context<'_>) {
        if let State::Waiting(_) = self.state
            && let Some((from, datagram)) = self.responses.pop_front()
            && let State::Waiting(initiator) = core::mem::replace(&mut self.state, State::Reading)
        {
            let initiator = *initiator;
            cx.jobs.push(Work::Finish { index: self.index, from, initiator, datagram });
        }
    }
}
