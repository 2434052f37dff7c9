//! Handshake messages: the cheap checks, then jobs, then their results.

use core::time::Duration;

use mpip_crypto::{INITIATION_LEN, RESPONSE_LEN, Responder};
use mpip_wire::{CookieReplyPacket, InitiationPacket, ResponsePacket};

use super::{DropReason, Engine};
use crate::event::Event;
use crate::handshake::{HandshakeDone, HandshakeJob, Outcome, ReceivedInitiation, Source};
use mpip_types::Instant;
use mpip_types::PathAddress;

impl Engine {
    /// The next public-key job. Run it on any thread and pass its result to
    /// [`handle_job`](Self::handle_job). Poll after every batch of calls, and after every result.
    /// There are at most a few jobs for each association and 128 for other senders.
    pub fn poll_job(&mut self) -> Option<HandshakeJob> {
        self.shared.jobs.poll()
    }

    /// Handles the result of a job. Datagrams in reply wait for the next [`flush`](Self::flush). If
    /// the job found that a handshake message is authentic and no replay, returns the message's
    /// source.
    ///
    /// # Errors
    ///
    /// Why the handshake message was refused. The refusal is counted and has no other effect.
    pub fn handle_job(
        &mut self,
        now: Instant,
        done: HandshakeDone,
    ) -> Result<Option<PathAddress>, DropReason> {
        let handled = match *done.0 {
            Outcome::Read(initiation, read) => {
                self.shared.jobs.on_read(&initiation);
                let read = read.map_err(|_| DropReason::Handshake);
                read.and_then(|responder| self.on_initiation_read(now, &initiation, responder))
                    .map(|()| Some(initiation.from))
            }
            Outcome::Started(index, started) => {
                if let Some(peer) = self.shared.indices.get(&index).copied() {
                    self.associations[peer].on_started(now, index, started);
                    self.touched.insert(peer);
                }
                Ok(None)
            }
            Outcome::Responded(index, responded) => {
                let Some(peer) = self.shared.indices.get(&index).copied() else { return Ok(None) };
                let (association, mut cx) = self.association(peer);
                let answered = association.on_responded(now, index, responded, &mut cx);
                self.touched.insert(peer);
                match answered {
                    Ok(from) => {
                        self.note_proof(now, peer, from);
                        Ok(None)
                    }
                    Err(reason) => {
                        log::debug!("response to an initiation: {reason}");
                        Err(DropReason::Handshake)
                    }
                }
            }
            Outcome::Finished(index, from, initiator, finished) => {
                let Some(peer) = self.shared.indices.get(&index).copied() else { return Ok(None) };
                let (association, mut cx) = self.association(peer);
                let finished =
                    association.on_finished(now, from, (index, initiator), finished, &mut cx);
                self.touched.insert(peer);
                match finished {
                    Ok(()) => {
                        self.note_proof(now, peer, Some(from));
                        Ok(Some(from))
                    }
                    Err(reason) => Err(self.refuse_handshake(from.remote, reason)),
                }
            }
        };
        handled.map_err(|reason| self.refuse(reason))
    }

    /// Runs all jobs at once, for callers that can wait.
    ///
    /// # Errors
    ///
    /// The first error of [`handle_job`](Self::handle_job); all jobs run nevertheless.
    pub fn run_jobs(&mut self, now: Instant) -> Result<(), DropReason> {
        let mut handled = Ok(());
        while let Some(job) = self.poll_job() {
            handled = handled.and(self.handle_job(now, job.run()).map(drop));
        }
        handled
    }

    /// The peer of association `peer` has proved that it is at `from`.
    fn note_proof(&mut self, now: Instant, peer: usize, from: Option<PathAddress>) {
        if let Some(from) = from.filter(|_| !self.is_node(peer)) {
            self.handshake_sources.note(now, Source::of(from.remote.ip()));
        }
    }

    pub(super) fn on_initiation(
        &mut self,
        now: Instant,
        from: PathAddress,
        datagram: &[u8],
    ) -> Result<(), DropReason> {
        InitiationPacket::new_checked(datagram).map_err(|_| DropReason::Malformed)?;
        let datagram: &[u8; INITIATION_LEN] =
            datagram.try_into().map_err(|_| DropReason::Malformed)?;
        self.mac1_key.verify(datagram).map_err(|_| DropReason::Handshake)?;
        let time = now.since(Instant::ZERO);
        let source = Source::of(from.remote.ip());
        let has_cookie = self.cookies.verify(time, from.remote, datagram).is_ok();
        if self.handshake_sources.is_under_load(now) && !has_cookie {
            return Err(self.give_cookie(time, from, datagram));
        }
        if has_cookie && !self.handshake_sources.take(now, source) {
            return Err(DropReason::TooManyHandshakes);
        }
        let initiation = ReceivedInitiation {
            from,
            class: self.handshake_sources.class(source),
            datagram: *datagram,
        };
        match self.shared.jobs.push_initiation(
            initiation,
            &self.shared.private_key,
            &mut self.shared.rng,
        ) {
            true => Ok(()),
            false => Err(DropReason::TooManyHandshakes),
        }
    }

    /// A job found that an initiation is authentic.
    fn on_initiation_read(
        &mut self,
        now: Instant,
        initiation: &ReceivedInitiation,
        responder: Responder,
    ) -> Result<(), DropReason> {
        let (from, datagram) = (initiation.from, &initiation.datagram);
        let peer = match self.by_key.get(responder.remote()).copied() {
            Some(peer) => {
                self.admit_elsewhere(now, from, datagram, peer)?;
                peer
            }
            None => self.accept_unknown(now, from, datagram, &responder)?,
        };
        let (association, mut cx) = self.association(peer);
        let handled = association.on_initiation(now, from, responder, &mut cx);
        self.touched.insert(peer);
        handled.map_err(|reason| {
            log::debug!("initiation from {}: {reason}", initiation.from.remote);
            DropReason::Handshake
        })
    }

    /// Answers a handshake message with a cookie, which the sender must include in its next one.
    pub(super) fn give_cookie(
        &mut self,
        time: Duration,
        from: PathAddress,
        datagram: &[u8],
    ) -> DropReason {
        if let Ok(reply) = self.cookies.reply(time, from.remote, datagram) {
            self.replies.push(from, reply.to_vec());
        }
        DropReason::UnderLoad
    }

    pub(super) fn refuse_handshake(
        &mut self,
        from: core::net::SocketAddr,
        reason: String,
    ) -> DropReason {
        self.shared.events.push_back(Event::HandshakeRefused { from, reason });
        DropReason::Handshake
    }

    pub(super) fn on_response(
        &mut self,
        now: Instant,
        from: PathAddress,
        datagram: &[u8],
    ) -> Result<(), DropReason> {
        let response = ResponsePacket::new_checked(datagram).map_err(|_| DropReason::Malformed)?;
        let index = response.receiver().0;
        let datagram: &[u8; RESPONSE_LEN] =
            datagram.try_into().map_err(|_| DropReason::Malformed)?;
        let peer = *self.shared.indices.get(&index).ok_or(DropReason::UnknownIndex)?;
        self.mac1_key.verify(datagram).map_err(|_| DropReason::Handshake)?;
        let (association, mut cx) = self.association(peer);
        let handled = association.on_response(now, from, index, datagram, &mut cx);
        handled.map_err(|reason| self.refuse_handshake(from.remote, reason))
    }

    pub(super) fn on_cookie_reply(
        &mut self,
        now: Instant,
        datagram: &[u8],
    ) -> Result<(), DropReason> {
        let reply = CookieReplyPacket::new_checked(datagram);
        let index = reply.map_err(|_| DropReason::Malformed)?.receiver().0;
        let peer = *self.shared.indices.get(&index).ok_or(DropReason::UnknownIndex)?;
        let handled = self.associations[peer].on_cookie_reply(now, datagram);
        self.touched.insert(peer);
        handled.map_err(|_| DropReason::Handshake)
    }
}
