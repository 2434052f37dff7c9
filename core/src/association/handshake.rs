//! Handshakes with the peer: which node initiates, when, and how new keys affect the association.

use core::net::IpAddr;
use std::sync::Arc;

use mpip_crypto::{
    Aead, Completed, HandshakeError, INITIATION_LEN, Initiator, PublicKey, RESPONSE_LEN,
    ReplayGuard, Responder, Secrets, Timestamp,
};
use mpip_wire::{AeadSet, InitiationPayload, ResponsePayload};

use super::Association;
use crate::event::Event;
use crate::handshake::Work;
use crate::parts::addresses::local;
use crate::parts::handshakes::{PendingResponse, PendingState, RETRY_MAX, RETRY_MIN};
use crate::parts::identity::{agree, fresh_number};
use crate::parts::keys::{Epoch, Origin};
use crate::parts::outbox::Notice;
use crate::shared::Context;
use mpip_types::Instant;
use mpip_types::{DatagramSink, PathAddress};
use mpip_types::{Encapsulation, LocalAddress};

/// Address pairs that one attempt uses at the same time.
const PAIRS_PER_ATTEMPT: usize = 8;
/// While this node has made at most this many attempts, and has the larger key, it does not answer
/// an initiation that crosses its own: the peer is about to answer.
const CROSSING_ATTEMPTS: u32 = 2;

impl Association {
    /// Starts a handshake attempt if one is due.
    pub(super) fn run_handshake(&mut self, now: Instant, cx: &mut Context<'_>) {
        if self.handshakes.due(&self.keys).is_none_or(|at| now < at) {
            return;
        }
        if self.handshakes.is_making() {
            self.handshakes.plan(Some(now + RETRY_MIN));
            return;
        }
        let pairs = self.pair_at_rest().unwrap_or_else(|| self.handshake_pairs(now, cx));
        if pairs.is_empty() {
            // There is no address pair. A change of addresses or an initiation of the peer triggers
            // the next attempt.
            self.handshakes.plan(self.keys.rekey_at().map(|_| now + RETRY_MAX));
            return;
        }
        let payload = InitiationPayload {
            timestamp: wire_timestamp(&cx.shared.timestamps.next(cx.shared.unix_time(now))),
            instance: cx.shared.instance,
            aeads: AeadSet(Aead::offers(cx.shared.aes_in_hardware)),
            association: self.identity.claim(),
        };
        let mut bytes = [0; InitiationPayload::LEN];
        payload.emit(&mut bytes).expect("the buffer has the payload's length");
        let index = cx.shared.fresh_index();
        if let Some(pending) = self.handshakes.pending() {
            cx.shared.indices.remove(&pending.index);
        }
        cx.shared.indices.insert(index, cx.me);
        cx.shared.jobs.push(Work::Start {
            index,
            private_key: Arc::clone(&cx.shared.private_key),
            remote: self.config.public_key,
            psk: self.config.preshared_key.clone(),
            payload: bytes,
            rng: cx.shared.rng.fork(),
        });
        let which = (index, payload.association);
        let (retry_in, attempts) = self.handshakes.begin(now, which, pairs, &mut cx.shared.rng);
        if attempts > 0 {
            let peer = self.config.name.clone();
            cx.shared.events.push_back(Event::HandshakeTimeout { peer, attempts, retry_in });
        }
    }

    /// Address pairs for one attempt: addresses that have worked, then the configured ones. The
    /// list is rotated, so that each attempt starts with other pairs.
    fn handshake_pairs(&self, now: Instant, cx: &Context<'_>) -> Vec<PathAddress> {
        let known = self.paths.iter().map(|path| (path.encapsulation, path.address.remote));
        let known = known.filter(|(kind, remote)| self.is_known_at(now, *remote, *kind));
        let configured = [Encapsulation::Udp, Encapsulation::Tcp].into_iter().flat_map(|kind| {
            self.config.endpoints.iter().map(move |remote| (kind, self.remote(*remote, kind)))
        });
        let mut pairs: Vec<PathAddress> = Vec::new();
        let first_from =
            self.handshakes.first_from.filter(|_| self.identity.peer_instance().is_none());
        let may_begin = |address: IpAddr| first_from.is_none_or(|first| first == address);
        for (encapsulation, remote) in known.chain(configured) {
            for local in cx.shared.locals.iter().filter(|local| {
                local.encapsulation == encapsulation
                    && local.address.is_ipv4() == remote.is_ipv4()
                    && may_begin(local.address.ip())
            }) {
                let pair = PathAddress { local: local.id, remote };
                if self.sends_handshake_from(local, &cx.shared.locals, pair)
                    && !pairs.contains(&pair)
                {
                    pairs.push(pair);
                }
            }
        }
        if !pairs.is_empty() {
            let start = self.handshakes.attempts() as usize * PAIRS_PER_ATTEMPT % pairs.len();
            pairs.rotate_left(start);
            pairs.truncate(PAIRS_PER_ATTEMPT);
        }
        pairs
    }

    /// The job that makes the initiation with `index` has finished.
    pub(crate) fn on_started(
        &mut self,
        now: Instant,
        index: u32,
        started: Result<(Initiator, [u8; INITIATION_LEN]), HandshakeError>,
    ) {
        if let Err(error) = self.handshakes.on_started(now, index, started) {
            log::error!("peer `{}`: cannot start a handshake: {error}", self.config.name);
        }
    }

    /// Which of the peer's initiations are refused as replays.
    pub(crate) fn replay_guard(&self) -> &ReplayGuard {
        &self.handshakes.replay_guard
    }

    /// The peer comes back: refuses what `guard` does.
    pub(crate) fn set_replay_guard(&mut self, guard: ReplayGuard) {
        self.handshakes.replay_guard = guard;
    }

    /// Whether a handshake datagram waits for a socket to accept it.
    pub(crate) fn has_handshake_to_send(&self) -> bool {
        self.handshakes.has_to_send()
    }

    /// Sends the handshake datagrams that the sockets accept.
    pub(super) fn send_handshakes(&mut self, now: Instant, out: &mut impl DatagramSink) {
        let Self { handshakes, paths, .. } = self;
        handshakes.send(out, |to| paths.note_handshake(now, to));
    }

    /// Drops handshake datagrams whose local address is gone.
    pub(super) fn drop_handshakes_without_local_address(&mut self, locals: &[LocalAddress]) {
        self.handshakes.retain(|to| local(*to, locals).is_some());
    }

    /// A response to our initiation with `index` arrived. A job reads it.
    pub(crate) fn on_response(
        &mut self,
        now: Instant,
        from: PathAddress,
        index: u32,
        datagram: &[u8; RESPONSE_LEN],
        cx: &mut Context<'_>,
    ) -> Result<(), String> {
        self.paths.note_handshake(now, from);
        self.handshakes.on_response(from, index, datagram, &mut cx.shared.jobs)
    }

    /// The job that reads the response from `from` has finished.
    pub(crate) fn on_finished(
        &mut self,
        now: Instant,
        from: PathAddress,
        (index, initiator): (u32, Initiator),
        finished: Result<Completed, HandshakeError>,
        cx: &mut Context<'_>,
    ) -> Result<(), String> {
        let Some(pending) = self.handshakes.pending_mut(index) else {
            return Err("no handshake awaits it any more".to_owned());
        };
        let completed = match finished {
            Ok(completed) => completed,
            Err(error) => {
                pending.state = PendingState::Waiting(Box::new(initiator));
                pending.read_response(&mut cx.shared.jobs);
                return Err(error.to_string());
            }
        };
        let payload =
            ResponsePayload::parse(&completed.payload).map_err(|error| error.to_string())?;
        let aead = Aead::from_code(payload.aead.code()).expect("both name the same algorithms");
        if Aead::offers(cx.shared.aes_in_hardware) & aead.offer_bit() == 0 {
            return Err(format!("it chose {}, which was not offered", aead.name()));
        }
        let peer_index = completed.responder_index;
        let origin = Origin {
            initiated: true,
            instance: payload.instance,
            number: fresh_number(index, peer_index),
            goes_on: agree(pending.claim, payload.association),
        };
        self.handshakes.finish();
        self.adopt_association(now, origin, cx);
        let epoch = Epoch {
            local_index: index,
            peer_index,
            keys: cx.shared.epoch_keys(index, completed.secrets.into_keys(aead), &self.limits),
            created: now,
            origin,
            sealed: 0,
        };
        self.handshakes.drop_answer(&mut cx.shared.indices);
        let mut retired = Vec::new();
        self.keys.adopt(epoch, &mut retired);
        cx.shared.forget_indices(retired);
        self.paths.on_renewal();
        self.on_established(now, aead, cx);
        if self.identity.opens() {
            self.open_validated_path(now, from, cx);
            self.open_paths(now, cx);
        }
        self.outbox.owe(Notice::Addresses);
        Ok(())
    }

    /// The peer sent an authentic initiation. A job makes the response.
    pub(crate) fn on_initiation(
        &mut self,
        now: Instant,
        from: PathAddress,
        responder: Responder,
        cx: &mut Context<'_>,
    ) -> Result<(), String> {
        let payload =
            InitiationPayload::parse(responder.payload()).map_err(|error| error.to_string())?;
        if self.handshakes.is_answering() {
            return Err("another initiation is being answered".to_owned());
        }
        let timestamp = crypto_timestamp(responder.payload());
        let fresh = self.handshakes.replay_guard.accept(timestamp, cx.shared.unix_time(now));
        fresh.map_err(|stale| stale.to_string())?;
        if self.handshakes.pending().is_some()
            && self.handshakes.attempts() <= CROSSING_ATTEMPTS
            && self.wins_crossing(cx.shared.private_key.public_key())
        {
            return Ok(());
        }
        let Some(aead) = Aead::choose(payload.aeads.0, cx.shared.aes_in_hardware) else {
            return Err("it offers no AEAD that this node supports".to_owned());
        };
        if !self.handshakes.may_answer(now) {
            return Err("too many initiations".to_owned());
        }
        let wire_aead = match aead {
            Aead::Aes256Gcm => mpip_wire::Aead::Aes256Gcm,
            Aead::ChaCha20Poly1305 => mpip_wire::Aead::ChaCha20Poly1305,
        };
        let mut bytes = [0; ResponsePayload::LEN];
        let claim = self.identity.claim();
        ResponsePayload { instance: cx.shared.instance, aead: wire_aead, association: claim }
            .emit(&mut bytes)
            .expect("the buffer has the payload's length");
        let peer_index = responder.sender_index();
        let local_index = cx.shared.fresh_index();
        cx.shared.indices.insert(local_index, cx.me);
        let psk = self.config.preshared_key.clone();
        cx.shared.jobs.push(Work::Respond { index: local_index, responder, psk, payload: bytes });
        let origin = Origin {
            initiated: false,
            instance: payload.instance,
            number: fresh_number(peer_index, local_index),
            goes_on: agree(claim, payload.association),
        };
        let answering = PendingResponse { local_index, peer_index, from, aead, origin };
        self.handshakes.answer(answering);
        self.handshakes.drop_initiation(&mut cx.shared.indices);
        // The initiation may be a replay from before our restart: without keys keep trying. After
        // an answer that nobody has used, further ones postpone nothing: there may be many replays.
        let alone = self.keys.current().is_none() && !self.config.endpoints.is_empty();
        let patient = now + RETRY_MAX;
        let planned = self.handshakes.next_attempt().filter(|_| self.keys.has_offer());
        let next = planned.map_or(patient, |at| at.min(patient));
        self.handshakes.restart(alone.then_some(next));
        Ok(())
    }

    /// The job that makes the response has finished. Returns the response's destination, unless the
    /// response is obsolete.
    pub(crate) fn on_responded(
        &mut self,
        now: Instant,
        index: u32,
        responded: Result<(Secrets, [u8; RESPONSE_LEN]), HandshakeError>,
        cx: &mut Context<'_>,
    ) -> Result<Option<PathAddress>, String> {
        let Some(answering) = self.handshakes.take_answering(index) else { return Ok(None) };
        let PendingResponse { local_index, peer_index, from, aead, origin } = answering;
        let (secrets, datagram) = responded.map_err(|error| {
            cx.shared.indices.remove(&local_index);
            error.to_string()
        })?;
        let keys = cx.shared.epoch_keys(local_index, secrets.into_keys(aead), &self.limits);
        let epoch = Epoch { local_index, peer_index, keys, created: now, origin, sealed: 0 };
        let mut retired = Vec::new();
        self.keys.offer(epoch, &mut retired);
        cx.shared.forget_indices(retired);
        self.handshakes.respond(local_index, from, datagram);
        Ok(Some(from))
    }

    /// Of two handshakes that cross, the one initiated by the node with the larger key continues.
    fn wins_crossing(&self, own: &PublicKey) -> bool {
        own > &self.config.public_key
    }

    /// The peer is under load and asks this node to prove its address.
    pub(crate) fn on_cookie_reply(&mut self, now: Instant, datagram: &[u8]) -> Result<(), String> {
        self.handshakes.on_cookie_reply(now, datagram)
    }

    /// A packet under the offered keys `index`, of `origin`, was authenticated: they are confirmed.
    /// Returns the source of the initiation that they answer.
    pub(super) fn confirm_keys(
        &mut self,
        now: Instant,
        (index, origin): (u32, Origin),
        cx: &mut Context<'_>,
    ) -> Option<PathAddress> {
        self.adopt_association(now, origin, cx);
        let mut retired = Vec::new();
        self.keys.confirm(index, &mut retired);
        cx.shared.forget_indices(retired);
        self.paths.on_renewal();
        if self.handshakes.pending().is_none() {
            self.handshakes.plan(None);
        }
        let aead = self.keys.current().map(|epoch| epoch.keys.receive.aead());
        self.on_established(now, aead.expect("keys were confirmed"), cx);
        self.outbox.owe(Notice::Addresses);
        self.handshakes.take_answered_to(index)
    }

    fn on_established(&mut self, now: Instant, aead: Aead, cx: &mut Context<'_>) {
        self.handshakes.complete(now);
        self.period_at = now;
        self.ping_renewed();
        self.review_capture();
        if self.identity.establish() {
            let peer = self.config.name.clone();
            cx.shared.events.push_back(Event::Established { peer, aead: aead.name() });
        }
    }

    /// Whether keys, which were `offered` unless they are confirmed, start a new association.
    pub(super) fn begins_anew(&self, offered: Option<Origin>) -> bool {
        offered.is_some_and(|origin| !self.identity.continues(origin))
    }

    /// New keys are in use. If the peer does not have our association, because it restarted or lost
    /// it, a new association starts, and the initiator of this handshake opens its paths. Both ends
    /// learn this from the same handshake. The peer is live: its response answers our ephemeral
    /// key, or it has used keys derived from that.
    fn adopt_association(&mut self, now: Instant, origin: Origin, cx: &mut Context<'_>) {
        if self.identity.continues(origin) {
            return;
        }
        let peer = self.config.name.clone();
        match self.identity.peer_instance() {
            Some(former) if former != origin.instance => {
                cx.shared.events.push_back(Event::PeerRestarted { peer });
            }
            Some(_) => cx.shared.events.push_back(Event::Lost { peer }),
            None => {}
        }
        self.handshakes.drop_initiation(&mut cx.shared.indices);
        self.handshakes.drop_answer(&mut cx.shared.indices);
        let mut retired = Vec::new();
        self.keys.clear_confirmed(&mut retired);
        cx.shared.forget_indices(retired);
        self.reset(now, cx);
        self.forget_translated(Some(origin.instance), cx);
        self.identity.begin(origin);
    }

    /// Drops expired keys. Without any keys the association ends.
    pub(super) fn expire_keys(&mut self, now: Instant, cx: &mut Context<'_>) {
        if self.keys.expires_at().is_none_or(|at| now < at) {
            return;
        }
        let mut retired = Vec::new();
        self.keys.expire(now, &mut retired);
        cx.shared.forget_indices(retired);
        if self.keys.current().is_none() && self.identity.is_established() {
            self.lose(now, cx);
        }
    }

    /// Ends the association for good, in any state: it has no timers and receives nothing any more.
    pub(crate) fn retire(&mut self, now: Instant, cx: &mut Context<'_>) {
        self.handshakes.drop_initiation(&mut cx.shared.indices);
        self.handshakes.drop_answer(&mut cx.shared.indices);
        let mut retired = Vec::new();
        self.keys.clear(&mut retired);
        cx.shared.forget_indices(retired);
        self.reset(now, cx);
        self.forget_translated(None, cx);
        self.review_at_last();
        self.config.endpoints.clear();
        self.handshakes.plan(None);
        self.outbox.settle(Notice::Close);
    }

    /// The peer is lost.
    pub(super) fn lose(&mut self, now: Instant, cx: &mut Context<'_>) {
        self.handshakes.drop_initiation(&mut cx.shared.indices);
        self.handshakes.drop_answer(&mut cx.shared.indices);
        let mut retired = Vec::new();
        self.keys.clear(&mut retired);
        cx.shared.forget_indices(retired);
        self.reset(now, cx);
        self.identity.forget_peer();
        match self.config.endpoints.is_empty() {
            true => self.handshakes.restart(None),
            false => self.handshakes.seek_again(now),
        }
        cx.shared.events.push_back(Event::Lost { peer: self.config.name.clone() });
    }
}

fn wire_timestamp(timestamp: &Timestamp) -> mpip_wire::Timestamp {
    let bytes = timestamp.as_bytes();
    let (seconds, nanoseconds) = bytes.split_at(8);
    mpip_wire::Timestamp {
        seconds: u64::from_be_bytes(seconds.try_into().expect("8 of 12 bytes")),
        nanoseconds: u32::from_be_bytes(nanoseconds.try_into().expect("4 of 12 bytes")),
    }
}

/// The timestamp at the start of an initiation's payload.
fn crypto_timestamp(payload: &[u8; InitiationPayload::LEN]) -> Timestamp {
    Timestamp::from_bytes(*payload.first_chunk().expect("the payload is longer"))
}
