//! Pending handshakes: their state while jobs do public-key work, when the next is due, and
//! datagrams that wait for a socket.

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

/// Pause after the first attempt. It doubles with each further one.
pub(crate) const RETRY_MIN: Duration = Duration::from_secs(1);
/// The same after the peer was lost. A peer that is restarted, for an upgrade, is back after 0.1 to
/// 0.3 s, and a TCP connection sends again after 0.2, 0.6 and 1.4 s (RFC 6298 with the minimum of
/// Linux). The next attempts are after 0.13, 0.25, 0.5, 1, 2, 4 and 8 s.
pub(crate) const RETRY_LOST: Duration = Duration::from_millis(125);
/// Maximum pause between attempts.
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(5);
/// Responses that wait while another one is read; beyond this the newest are dropped. An attacker
/// that sees the initiation can forge responses that only public-key work reveals as forged.
const RESPONSES: usize = 4;
/// Rate limit of responses to one peer. A peer makes one attempt a second at most, or two after a
/// cookie.
const ANSWERS: Rate = Rate { burst: 8, per_second: 2 };

/// A handshake that this node initiated and that awaits its response.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) index: u32,
    pub(crate) state: PendingState,
    /// The association claim in its payload.
    pub(crate) claim: u16,
    /// Destinations. Only a response from one of them counts; otherwise it would validate an
    /// address that has answered nothing.
    sent_to: Vec<PathAddress>,
    /// Destinations to which the initiation has not been sent yet.
    unsent: Vec<PathAddress>,
    datagram: [u8; INITIATION_LEN],
    /// Responses that arrived while another was being read.
    responses: VecDeque<(PathAddress, [u8; RESPONSE_LEN])>,
    /// A cookie reply arrived for it.
    has_cookie: bool,
    /// It was sent early because a cookie reply arrived for the previous one.
    hurried: bool,
}

impl Pending {
    /// A pending initiation with `index` to `pairs`, still to be made by a job.
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

    /// Starts a job for the next response, if there is one and none is being read.
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

/// The progress of a handshake that this node initiated.
#[derive(Debug)]
pub(crate) enum PendingState {
    /// The initiation is being made.
    Making,
    /// A response is awaited.
    Waiting(Box<Initiator>),
    /// A response is being read, or was authentic but unusable.
    Reading,
}

/// A response to the peer's initiation that a job is making.
#[derive(Debug)]
pub(crate) struct PendingResponse {
    pub(crate) local_index: u32,
    pub(crate) peer_index: u32,
    pub(crate) from: PathAddress,
    pub(crate) aead: Aead,
    pub(crate) origin: Origin,
}

/// A finished response and its destination.
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
    /// The response that offers the newest keys, until it is sent.
    response: Option<Box<Response>>,
    answers: Bucket,
    attempts: u32,
    /// When the first of these was made.
    asking_since: Option<Instant>,
    /// The pause after the first attempt.
    first_pause: Duration,
    /// The only local address from which the first handshake leaves; `None` for every one.
    pub(crate) first_from: Option<IpAddr>,
    next_attempt: Option<Instant>,
    cookies: CookieMemory,
    pub(crate) replay_guard: ReplayGuard,
    /// The index of the keys offered last, and the source of the initiation that they answer.
    answered_to: Option<(u32, PathAddress)>,
    completed_at: Option<Instant>,
}

impl Handshakes {
    /// No handshake yet. The first is due at once if the peer has a configured address.
    pub(crate) fn new(config: &PeerConfig, now: Instant) -> Self {
        Self {
            pending: None,
            answering: None,
            response: None,
            answers: Bucket::new(),
            attempts: 0,
            asking_since: None,
            first_pause: RETRY_MIN,
            first_from: None,
            next_attempt: (!config.endpoints.is_empty()).then_some(now),
            cookies: CookieMemory::new(&config.public_key),
            replay_guard: ReplayGuard::new(),
            answered_to: None,
            completed_at: None,
        }
    }

    /// When the next attempt is due, if one is planned.
    pub(crate) fn due(&self, keys: &KeyRing) -> Option<Instant> {
        self.next_attempt.or_else(|| keys.rekey_at())
    }

    /// Plans the next attempt at `at`, or none.
    pub(crate) fn plan(&mut self, at: Option<Instant>) {
        self.next_attempt = at;
    }

    /// Whether an attempt is planned or pending.
    pub(crate) fn is_planned(&self) -> bool {
        self.next_attempt.is_some()
    }

    /// Consecutive attempts without an answer.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// When the first of these was made.
    pub(crate) fn unanswered_since(&self) -> Option<Instant> {
        self.asking_since
    }

    /// When the next attempt is due, if one is planned.
    pub(crate) fn next_attempt(&self) -> Option<Instant> {
        self.next_attempt
    }

    /// When the newest keys were agreed.
    pub(crate) fn completed_at(&self) -> Option<Instant> {
        self.completed_at
    }

    /// Keys are in use, so the peer answers.
    pub(crate) fn complete(&mut self, now: Instant) {
        self.completed_at = Some(now);
        self.asking_since = None;
        self.first_pause = RETRY_MIN;
    }

    /// The pending handshake.
    pub(crate) fn pending(&self) -> Option<&Pending> {
        self.pending.as_deref()
    }

    /// The pending handshake, if it has `index`.
    pub(crate) fn pending_mut(&mut self, index: u32) -> Option<&mut Pending> {
        self.pending.as_deref_mut().filter(|pending| pending.index == index)
    }

    /// Whether an initiation is being made.
    pub(crate) fn is_making(&self) -> bool {
        self.pending().is_some_and(|pending| matches!(pending.state, PendingState::Making))
    }

    /// Starts an attempt in place of a former one and plans the next. Returns the time until then
    /// and the number of attempts without an answer.
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        (index, claim): (u32, u16),
        pairs: Vec<PathAddress>,
        rng: &mut Rng,
    ) -> (Duration, u32) {
        let hurried = self.pending().is_some_and(|pending| pending.has_cookie);
        self.pending = Some(Box::new(Pending::new(index, claim, pairs, hurried)));

        let retry_in = self.first_pause * 2_u32.saturating_pow(self.attempts.min(8));
        let retry_in = retry_in.min(RETRY_MAX);
        // Up to a quarter more, so that two nodes that started together do not stay in step.
        let spread = u32::from_be_bytes(rng.bytes());
        let retry_in = retry_in + retry_in / 4 * (spread >> 16) / 65_536;
        self.next_attempt = Some(now + retry_in);
        let attempts = self.attempts;
        self.asking_since.get_or_insert(now);
        self.attempts = self.attempts.saturating_add(1);
        (retry_in, attempts)
    }

    /// The job that makes the initiation with `index` has finished.
    ///
    /// # Errors
    ///
    /// When no initiation can be made.
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

    /// A response to the initiation with `index` arrived. A job reads it.
    ///
    /// # Errors
    ///
    /// Why it is not read.
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
            return Err("its source is no address to which the initiation was sent".to_owned());
        }
        if matches!(pending.state, PendingState::Making) || pending.responses.len() >= RESPONSES {
            return Err("too many responses, or the initiation was not sent yet".to_owned());
        }
        pending.responses.push_back((from, *datagram));
        pending.read_response(jobs);
        Ok(())
    }

    /// The peer has answered, or has initiated a handshake: cancels further attempts.
    pub(crate) fn succeed(&mut self) {
        self.attempts = 0;
        self.next_attempt = None;
    }

    /// The peer is under load and asks this node to prove its address.
    ///
    /// # Errors
    ///
    /// When it answers nothing.
    pub(crate) fn on_cookie_reply(&mut self, now: Instant, datagram: &[u8]) -> Result<(), String> {
        self.cookies
            .receive(now.since(Instant::ZERO), datagram)
            .map_err(|error| error.to_string())?;
        if let Some(pending) = &mut self.pending {
            pending.has_cookie = true;
            // Only once in a row: an attacker that sees the initiations can forge cookie replies.
            if !pending.hurried {
                self.next_attempt = Some(now);
            }
        }
        Ok(())
    }

    /// Consumes one response from the rate limit. Returns `false` if the peer initiates too often.
    pub(crate) fn may_answer(&mut self, now: Instant) -> bool {
        self.answers.take(now, ANSWERS)
    }

    /// Whether a response is being made.
    pub(crate) fn is_answering(&self) -> bool {
        self.answering.is_some()
    }

    /// A job starts to make a response.
    pub(crate) fn answer(&mut self, answering: PendingResponse) {
        self.answering = Some(Box::new(answering));
    }

    /// The response with `index` is finished.
    pub(crate) fn take_answering(&mut self, index: u32) -> Option<PendingResponse> {
        self.answering.take_if(|answering| answering.local_index == index).map(|it| *it)
    }

    /// Queues the response with the keys `index` for `to`, the source of the initiation.
    pub(crate) fn respond(&mut self, index: u32, to: PathAddress, datagram: [u8; RESPONSE_LEN]) {
        self.answered_to = Some((index, to));
        self.response = Some(Box::new(Response { to, datagram }));
    }

    /// The first message under the keys `index` came. Returns the source of the initiation that
    /// they answer.
    pub(crate) fn take_answered_to(&mut self, index: u32) -> Option<PathAddress> {
        self.answered_to.take_if(|(answer, _)| *answer == index).map(|(_, to)| to)
    }

    /// Whether a datagram waits for a socket to accept it.
    pub(crate) fn has_to_send(&self) -> bool {
        self.pending().is_some_and(|pending| !pending.unsent.is_empty()) || self.response.is_some()
    }

    /// Sends what the sockets accept; calls `left` for each destination that was sent to.
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

    /// Drops datagrams whose local address is gone.
    pub(crate) fn retain(&mut self, has_home: impl Fn(&PathAddress) -> bool) {
        if let Some(pending) = &mut self.pending {
            pending.unsent.retain(&has_home);
        }
        self.response.take_if(|response| !has_home(&response.to));
    }

    /// Drops the pending initiation: its claim about the association is no longer true.
    pub(crate) fn drop_initiation(&mut self, indices: &mut BTreeMap<u32, usize>) {
        if let Some(pending) = self.pending.take() {
            indices.remove(&pending.index);
        }
    }

    /// Drops a response that is being made or was not sent, for the same reason.
    pub(crate) fn drop_answer(&mut self, indices: &mut BTreeMap<u32, usize>) {
        if let Some(answering) = self.answering.take() {
            indices.remove(&answering.local_index);
        }
        self.response = None;
    }

    /// The pending handshake has succeeded.
    pub(crate) fn finish(&mut self) {
        self.pending = None;
        self.succeed();
    }

    /// The peer is lost: the back-off begins anew, with shorter pauses. The next attempt is after
    /// the first of them.
    pub(crate) fn seek_again(&mut self, now: Instant) {
        self.first_pause = RETRY_LOST;
        self.restart(Some(now + RETRY_LOST));
    }

    /// Resets the back-off. The next attempt is at `at`.
    pub(crate) fn restart(&mut self, at: Option<Instant>) {
        self.attempts = 0;
        self.next_attempt = at;
    }
}
