//! Handshakes under way: what is kept of them while public-key work is done elsewhere, when one is
//! due, and what waits for a socket.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use mpip_crypto::{
    Aead, CookieMemory, HandshakeError, INITIATION_LEN, Initiator, RESPONSE_LEN, ReplayGuard, Rng,
};

use super::keys::{KeyRing, Origin};
use crate::config::PeerConfig;
use crate::handshake::{Jobs, Work};
use mpip_types::{Bucket, DatagramSink, Instant, PathAddress, Rate};

/// Pauses between attempts: the first, and the longest that they double to.
pub(crate) const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// Responses that wait for another one to be read; beyond it the newest are dropped. Who saw the
/// initiation can forge some that have to be read to be found out.
const RESPONSES: usize = 4;
/// How often a peer is answered. It begins a handshake a second at most, or two when it was given a
/// cookie.
const ANSWERS: Rate = Rate { burst: 8, per_second: 2 };

/// A handshake of ours that awaits its response.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) index: u32,
    pub(crate) state: PendingState,
    /// The association that it names.
    pub(crate) claim: u16,
    /// Where it goes: a response counts only from there, or it would validate an address that has
    /// answered nothing.
    sent_to: Vec<PathAddress>,
    /// Where it still has to be sent, once it is made.
    unsent: Vec<PathAddress>,
    datagram: [u8; INITIATION_LEN],
    /// Responses that came while another was being read.
    responses: VecDeque<(PathAddress, [u8; RESPONSE_LEN])>,
    /// A cookie came for it.
    has_cookie: bool,
    /// A cookie came for the one before it.
    hurried: bool,
}

impl Pending {
    /// The initiation with `index` to `pairs` is being made.
    fn new(index: u32, claim: u16, pairs: Vec<PathAddress>, hurried: bool) -> Self {
        Self {
            index,
            state: PendingState::Making,
            claim,
            sent_to: pairs,
            unsent: Vec::new(),
            datagram: [0; INITIATION_LEN],
            responses: VecDeque::new(),
            has_cookie: false,
            hurried,
        }
    }

    /// Reads the next response, if one has come and none is being read.
    pub(crate) fn read_response(&mut self, jobs: &mut Jobs) {
        if let PendingState::Waiting(_) = self.state
            && let Some((from, datagram)) = self.responses.pop_front()
            && let PendingState::Waiting(initiator) =
                core::mem::replace(&mut self.state, PendingState::Reading)
        {
            let initiator = *initiator;
            jobs.push(Work::Finish { index: self.index, from, initiator, datagram });
        }
    }
}

/// How far a handshake of ours is.
#[derive(Debug)]
pub(crate) enum PendingState {
    /// The initiation is being made.
    Making,
    /// A response is awaited.
    Waiting(Box<Initiator>),
    /// A response is being read, or was of no use although authentic.
    Reading,
}

/// An answer to the peer's initiation that is being made.
#[derive(Debug)]
pub(crate) struct PendingResponse {
    pub(crate) local_index: u32,
    pub(crate) peer_index: u32,
    pub(crate) from: PathAddress,
    pub(crate) aead: Aead,
    pub(crate) origin: Origin,
}

/// An answer that is made, and where it goes.
#[derive(Debug)]
struct Response {
    to: PathAddress,
    datagram: [u8; RESPONSE_LEN],
}

/// The handshakes with one peer.
#[derive(Debug)]
pub(crate) struct Handshakes {
    pending: Option<Box<Pending>>,
    answering: Option<Box<PendingResponse>>,
    /// The answer to the handshake that offered the newest keys, until it is sent.
    response: Option<Box<Response>>,
    answers: Bucket,
    attempts: u32,
    /// The only address of ours from which the first handshake leaves; `None` for every one.
    pub(crate) first_from: Option<IpAddr>,
    next_attempt: Option<Instant>,
    cookies: CookieMemory,
    pub(crate) replay_guard: ReplayGuard,
    /// Where the initiation came from that the offered keys answer.
    answered_to: Option<PathAddress>,
    completed_at: Option<Instant>,
}

impl Handshakes {
    /// None yet; the first is due at once if it is known where the peer is.
    pub(crate) fn new(config: &PeerConfig, now: Instant) -> Self {
        Self {
            pending: None,
            answering: None,
            response: None,
            answers: Bucket::new(),
            attempts: 0,
            first_from: None,
            next_attempt: (!config.endpoints.is_empty()).then_some(now),
            cookies: CookieMemory::new(&config.public_key),
            replay_guard: ReplayGuard::new(),
            answered_to: None,
            completed_at: None,
        }
    }

    /// When a handshake has to be begun, if one has to.
    pub(crate) fn due(&self, keys: &KeyRing) -> Option<Instant> {
        self.next_attempt.or_else(|| keys.rekey_at())
    }

    /// Begins one at `at`, or none.
    pub(crate) fn plan(&mut self, at: Option<Instant>) {
        self.next_attempt = at;
    }

    /// Whether one is planned, or under way.
    pub(crate) fn is_planned(&self) -> bool {
        self.next_attempt.is_some()
    }

    /// How many had no answer one after the other.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// When the newest keys were agreed on.
    pub(crate) fn completed_at(&self) -> Option<Instant> {
        self.completed_at
    }

    /// Keys are in use.
    pub(crate) fn complete(&mut self, now: Instant) {
        self.completed_at = Some(now);
    }

    /// The one that awaits its response.
    pub(crate) fn pending(&self) -> Option<&Pending> {
        self.pending.as_deref()
    }

    /// The one with `index`, if it awaits its response.
    pub(crate) fn pending_mut(&mut self, index: u32) -> Option<&mut Pending> {
        self.pending.as_deref_mut().filter(|pending| pending.index == index)
    }

    /// Whether an initiation is being made.
    pub(crate) fn is_making(&self) -> bool {
        self.pending().is_some_and(|pending| matches!(pending.state, PendingState::Making))
    }

    /// One begins, in the place of a former one; the next attempt is planned. Returns in what time
    /// that is, and how many had no answer.
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        (index, claim): (u32, u16),
        pairs: Vec<PathAddress>,
        rng: &mut Rng,
    ) -> (Duration, u32) {
        let hurried = self.pending().is_some_and(|pending| pending.has_cookie);
        self.pending = Some(Box::new(Pending::new(index, claim, pairs, hurried)));
        let (first, longest) = RETRY;
        let retry_in = (first * 2_u32.saturating_pow(self.attempts.min(8))).min(longest);
        // Up to a quarter more, so that two nodes that began together do not go on together.
        let spread = u32::from_be_bytes(rng.bytes());
        let retry_in = retry_in + retry_in / 4 * (spread >> 16) / 65_536;
        self.next_attempt = Some(now + retry_in);
        let attempts = self.attempts;
        self.attempts = self.attempts.saturating_add(1);
        (retry_in, attempts)
    }

    /// The initiation with `index` is made.
    ///
    /// # Errors
    ///
    /// When none can be made.
    pub(crate) fn on_started(
        &mut self,
        now: Instant,
        index: u32,
        started: Result<(Initiator, [u8; INITIATION_LEN]), HandshakeError>,
    ) -> Result<(), HandshakeError> {
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.index == index) else {
            return Ok(());
        };
        match started {
            Ok((initiator, datagram)) => {
                pending.state = PendingState::Waiting(Box::new(initiator));
                pending.datagram = datagram;
                self.cookies.stamp(now.since(Instant::ZERO), &mut pending.datagram);
                pending.unsent.clone_from(&pending.sent_to);
                Ok(())
            }
            Err(error) => {
                self.next_attempt = None;
                Err(error)
            }
        }
    }

    /// A response to the initiation with `index` came. It is read elsewhere.
    ///
    /// # Errors
    ///
    /// Why it is not.
    pub(crate) fn on_response(
        &mut self,
        from: PathAddress,
        index: u32,
        datagram: &[u8; RESPONSE_LEN],
        jobs: &mut Jobs,
    ) -> Result<(), String> {
        let Some(pending) = self.pending_mut(index) else {
            return Err("no handshake awaits a response".to_owned());
        };
        if !pending.sent_to.contains(&from) {
            return Err("its source is none of the addresses that were asked".to_owned());
        }
        if matches!(pending.state, PendingState::Making) || pending.responses.len() >= RESPONSES {
            return Err("too many responses, or none was asked for".to_owned());
        }
        pending.responses.push_back((from, *datagram));
        pending.read_response(jobs);
        Ok(())
    }

    /// The peer has answered, or begun one itself: there is no reason to try again.
    pub(crate) fn succeed(&mut self) {
        self.attempts = 0;
        self.next_attempt = None;
    }

    /// The peer is under load and wants to see that we receive at our address.
    ///
    /// # Errors
    ///
    /// When it is not the answer to anything.
    pub(crate) fn on_cookie_reply(&mut self, now: Instant, datagram: &[u8]) -> Result<(), String> {
        self.cookies
            .receive(now.since(Instant::ZERO), datagram)
            .map_err(|error| error.to_string())?;
        if let Some(pending) = &mut self.pending {
            pending.has_cookie = true;
            // Not for one after the other: who sees the initiations can forge them.
            if !pending.hurried {
                self.next_attempt = Some(now);
            }
        }
        Ok(())
    }

    /// Takes an answer to the peer out of what there may be. `false` if it begins too many.
    pub(crate) fn may_answer(&mut self, now: Instant) -> bool {
        self.answers.take(now, ANSWERS)
    }

    /// Whether an answer to the peer is being made.
    pub(crate) fn is_answering(&self) -> bool {
        self.answering.is_some()
    }

    /// An answer to the peer is being made.
    pub(crate) fn answer(&mut self, answering: PendingResponse) {
        self.answering = Some(Box::new(answering));
    }

    /// The answer with `index` is made.
    pub(crate) fn take_answering(&mut self, index: u32) -> Option<PendingResponse> {
        self.answering.take_if(|answering| answering.local_index == index).map(|it| *it)
    }

    /// The answer is to be sent to `to`, where the initiation came from.
    pub(crate) fn respond(&mut self, to: PathAddress, datagram: [u8; RESPONSE_LEN]) {
        self.answered_to = Some(to);
        self.response = Some(Box::new(Response { to, datagram }));
    }

    /// Whether the offered keys answer an initiation from `from`; only once.
    pub(crate) fn take_answered_to(&mut self, from: PathAddress) -> bool {
        self.answered_to.take_if(|address| *address == from).is_some()
    }

    /// Whether a datagram waits for a socket to take it.
    pub(crate) fn has_to_send(&self) -> bool {
        self.pending().is_some_and(|pending| !pending.unsent.is_empty()) || self.response.is_some()
    }

    /// Sends what the sockets take; `left` is told where something went.
    pub(crate) fn send(&mut self, out: &mut impl DatagramSink, mut left: impl FnMut(PathAddress)) {
        let mut sends = |to: PathAddress, datagram: &[u8]| {
            let sent = out.send(to, datagram);
            if sent {
                left(to);
            }
            sent
        };
        if let Some(Pending { unsent, datagram, .. }) = self.pending.as_deref_mut() {
            unsent.retain(|to| !sends(*to, datagram));
        }
        self.response.take_if(|response| sends(response.to, &response.datagram));
    }

    /// Drops datagrams that were to leave from addresses that are gone.
    pub(crate) fn retain(&mut self, has_home: impl Fn(&PathAddress) -> bool) {
        if let Some(pending) = &mut self.pending {
            pending.unsent.retain(&has_home);
        }
        self.response.take_if(|response| !has_home(&response.to));
    }

    /// What an initiation has said of the association is not true any more.
    pub(crate) fn drop_initiation(&mut self, indices: &mut BTreeMap<u32, usize>) {
        if let Some(pending) = self.pending.take() {
            indices.remove(&pending.index);
        }
    }

    /// The same of an answer that is being made, or was not sent.
    pub(crate) fn drop_answer(&mut self, indices: &mut BTreeMap<u32, usize>) {
        if let Some(answering) = self.answering.take() {
            indices.remove(&answering.local_index);
        }
        self.response = None;
    }

    /// The one that awaits its response has it.
    pub(crate) fn finish(&mut self) {
        self.pending = None;
        self.succeed();
    }

    /// The peer is gone: the next attempt begins a series anew.
    pub(crate) fn restart(&mut self, at: Option<Instant>) {
        self.attempts = 0;
        self.next_attempt = at;
    }
}
