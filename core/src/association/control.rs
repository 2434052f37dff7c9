//! Sends control frames: challenges, responses, feedback, heartbeats, and notices that concern the
//! whole association.

use mpip_wire::{AddressList, CHALLENGE_DATAGRAM_LEN, Frame, FrameWriter, Frames, PathStatus};

use super::departure::SendInfo;
use super::{Association, range_room};
use crate::content::Content;
use crate::parts::addresses::advertised_addresses;
use crate::parts::outbox::{Carrier, Notice, Skip};
use crate::parts::path_set::PathIndex;
use crate::parts::sizes::{CONTROL_ROOM, datagram_overhead};
use crate::shared::Context;
use mpip_transport::{PathState, Standing};
use mpip_types::Instant;
use mpip_types::LocalAddress;
use mpip_types::{DatagramSink, PathAddress};

/// Minimum bytes of frames in a heartbeat from behind a NAT: the length of a path response and a
/// path challenge. The NAT may have changed our address, and the peer may send no more to the new
/// address than came from there.
const MIN_HEARTBEAT_FRAMES: usize = 18;

/// What a control datagram carries.
struct Body<'a> {
    frames: &'a [u8],
    /// Those of them that are notices.
    notices: &'a [Notice],
    /// Bytes up to which padding fills them up.
    least: usize,
}

impl<'a> Body<'a> {
    fn of(frames: &'a [u8]) -> Self {
        Self { frames, notices: &[], least: 0 }
    }
}

impl Association {
    /// Sends path challenges and path responses.
    pub(super) fn send_challenges(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        out: &mut impl DatagramSink,
    ) {
        for index in self.paths.indices() {
            self.send_challenge(now, cx, index, out);
            self.send_response(now, index, out);
        }
    }

    /// Sends everything but packets and challenges: feedback, heartbeats, MTU probes and notices.
    pub(super) fn send_control(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        out: &mut impl DatagramSink,
    ) {
        self.join_keepalives(now);
        self.send_notices(now, cx, out);
        for index in self.paths.indices() {
            self.send_mtu_probe(now, index, out);
            self.repeat_challenges_on_credit(now, index, out);
            self.send_probes(now, index, &cx.shared.locals, out);
        }
    }

    /// Sends a path MTU probe. Its loss loses no data.
    fn send_mtu_probe(&mut self, now: Instant, index: PathIndex, out: &mut impl DatagramSink) {
        let path = &mut self.paths[index];
        if path.blocked {
            return;
        }
        let Some(len) = path.poll_mtu_probe(now) else { return };
        let (to, plain_len) = (path.address, len - datagram_overhead(path.id));
        let info = SendInfo { asks: true, paced: false, probe: true, content: None };
        let sent = self.send_datagram(now, index, to, plain_len, None, info, out, |plain| {
            let mut frames = FrameWriter::new(plain);
            frames.push(&Frame::Heartbeat).expect("a probe is longer than the base");
            frames.pad_to(plain_len).expect("its room is that long");
        });
        match sent {
            Some(_) => self.paths[index].on_mtu_probe_sent(),
            None => self.paths[index].blocked = true,
        }
    }

    fn send_challenge(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        index: PathIndex,
        out: &mut impl DatagramSink,
    ) {
        let due = self.paths[index]
            .validation
            .challenge
            .as_ref()
            .filter(|challenge| now >= challenge.next);
        let Some(standing) = due.map(|challenge| challenge.standing) else { return };
        if standing == Standing::Advertised
            && let Err(at) = self.take_challenge(now, cx)
        {
            if let Some(challenge) = &mut self.paths[index].validation.challenge {
                challenge.next = at;
            }
            return;
        }
        self.requeue_early(index);
        let path = &mut self.paths[index];
        path.validation.grant_first_flight();
        let resting = path.rest.is_resting();
        let written = self.write_challenge(now, index, out);
        if let Some(challenge) = &mut self.paths[index].validation.challenge {
            match written {
                true => challenge.on_sent(now, resting),
                false => challenge.wait(now),
            }
        }
    }

    /// Sends the challenge of path `index`. Returns `false` if there is none, or if the
    /// anti-amplification limit does not allow it.
    pub(super) fn write_challenge(
        &mut self,
        now: Instant,
        index: PathIndex,
        out: &mut impl DatagramSink,
    ) -> bool {
        let path = &mut self.paths[index];
        let full = path.challenge_len();
        let Some(challenge) = &path.validation.challenge else { return false };
        let (data, to, unknown) = (challenge.data, challenge.to, !challenge.ours);
        let pads = challenge.standing != Standing::Advertised;
        // The node that opens or moves a path may send a full-size datagram to an address that it
        // knows. The other node sends no more bytes than it received.
        let limit = if unknown { full.min(path.validation.credit) } else { full };
        let mut room = [0; CHALLENGE_DATAGRAM_LEN];
        let mut frames = FrameWriter::new(&mut room);
        let owed = path.validation.response_owed.filter(|(_, from)| *from == to);
        if let Some((owed, _)) = owed {
            frames.push(&Frame::PathResponse(owed)).expect("the first frames fit");
        }
        frames.push(&Frame::PathChallenge(data)).expect("the first frames fit");
        let overhead = datagram_overhead(path.id);
        if frames.len() + overhead > limit {
            return false;
        }
        path.validation.response_owed.take_if(|_| owed.is_some());
        let mut answered = false;
        // Instead of padding, repeat the feedback of all paths: paths that failed may have lost it.
        let free = if pads { limit - overhead } else { frames.len() };
        let own = path.id;
        for path in &self.paths {
            let mut ranges = range_room();
            let last = path.arrivals.feedback(now, path.id, &mut ranges).map(Frame::Feedback);
            if let Some(last) = last.filter(|last| frames.len() + last.encoded_len() <= free)
                && frames.push(&last).is_ok()
            {
                answered |= path.id == own && !path.works();
            }
        }
        let path = &mut self.paths[index];
        if answered {
            path.arrivals.on_feedback_sent();
        }
        frames.pad_to(free).expect("padding fits the limit");
        let len = frames.len();
        if unknown {
            path.validation.credit -= len + overhead;
        }
        self.send_frames_to(now, index, to, &Body::of(&room[..len]), out);
        true
    }

    fn send_response(&mut self, now: Instant, index: PathIndex, out: &mut impl DatagramSink) {
        let path = &mut self.paths[index];
        let Some((data, to)) = path.validation.response_owed.take() else { return };
        let mut room = [0; 16];
        let len = Frame::PathResponse(data).emit(&mut room).expect("a response has 9 bytes");
        if to != path.address || !path.is_validated() {
            let size = len + datagram_overhead(path.id);
            let Some(credit) = path.validation.credit.checked_sub(size) else { return };
            path.validation.credit = credit;
        }
        self.send_frames_to(now, index, to, &Body::of(&room[..len]), out);
    }

    /// Sends notices that concern the association on its best path.
    fn send_notices(&mut self, now: Instant, cx: &mut Context<'_>, out: &mut impl DatagramSink) {
        while !self.outbox.is_empty() {
            let best = self
                .paths
                .indices()
                .filter(|&index| self.paths[index].state() == PathState::Active)
                .min_by_key(|&index| {
                    let path = &self.paths[index];
                    (!path.is_usable(), path.blocked, path.delay.average().unwrap_or(0))
                });
            let Some(index) = best else { return };
            let mut room = [0; CONTROL_ROOM];
            let mut frames = FrameWriter::new(&mut room);
            let notices = self.write_notices(Carrier::Best, &cx.shared.locals, &mut frames);
            let len = frames.len();
            let body = Body { notices: &notices, ..Body::of(&room[..len]) };
            if len > 0 && !self.send_frames(now, index, &body, out) {
                return;
            }
            self.on_told(&notices);
        }
    }

    /// Writes as many notices for `carrier` as fit; returns those written.
    fn write_notices(
        &mut self,
        carrier: Carrier,
        locals: &[LocalAddress],
        frames: &mut FrameWriter<'_>,
    ) -> Vec<Notice> {
        let mut written = Vec::new();
        let mut void = Vec::new();
        for notice in self.outbox.due(carrier) {
            match self.write_notice(notice, locals, frames) {
                Ok(true) => written.push(notice),
                Ok(false) => void.push(notice),
                Err(_) => break,
            }
        }
        void.into_iter().for_each(|notice| self.outbox.settle(notice));
        written
    }

    /// Writes the frame of `notice`. Returns `false` if the notice is obsolete.
    ///
    /// # Errors
    ///
    /// When the frame does not fit.
    fn write_notice(
        &self,
        notice: Notice,
        locals: &[LocalAddress],
        frames: &mut FrameWriter<'_>,
    ) -> Result<bool, mpip_wire::Error> {
        let path = |id| self.paths.get(id);
        let addresses;
        let frame = match notice {
            Notice::Addresses => {
                addresses = advertised_addresses(locals);
                let list = AddressList::new(&addresses).expect("no more than a list holds");
                Some(Frame::Addresses { generation: self.generation, list })
            }
            Notice::Resequencing => {
                (self.resequencing_timeout.sequence > 0).then_some(Frame::Resequencing {
                    sequence: self.resequencing_timeout.sequence,
                    max_wait: self.resequencing_timeout.advertised.as_micros() as u64,
                })
            }
            Notice::PathStatus(id) => path(id).map(|path| Frame::PathStatus {
                path: id,
                sequence: path.reserve.sequence(),
                status: match path.state() {
                    PathState::Abandoned => PathStatus::Abandoned,
                    _ if path.reserve.is_told() => PathStatus::Standby,
                    _ => PathStatus::Available,
                },
                cost: match path.state() {
                    PathState::Abandoned => 0,
                    _ => path.reserve.told_cost(),
                },
                limit: match path.state() {
                    PathState::Abandoned => None,
                    _ => path.reserve.told_limit(),
                },
            }),
            Notice::PathRefused(id) => path(id).is_none().then_some(Frame::PathStatus {
                path: id,
                sequence: 0,
                status: PathStatus::Abandoned,
                cost: 0,
                limit: None,
            }),
            Notice::Skip(Skip { session, first, count }) => {
                Some(Frame::Skip { session, first, count })
            }
            Notice::SessionUnknown(session) => Some(Frame::SessionUnknown { session }),
            Notice::SessionOpen(slot, session) => self
                .sending
                .unconfirmed_fields(slot, session)
                .map(|fields| Frame::SessionOpen { session, fields }),
            Notice::Close => Some(Frame::Close { reason: 0, message: "shutting down" }),
            Notice::AddressObserved(id) => path(id).map(|path| Frame::AddressObserved {
                path: id,
                address: path.address.remote,
                taken: path.seen.is_theirs,
            }),
            Notice::Keepalive(id) => {
                path(id).map(|path| Frame::Keepalive { interval: path.rest.keepalive_interval() })
            }
        };
        frame.map_or(Ok(false), |frame| frames.push(&frame).map(|_| true))
    }

    /// Marks these notices as sent.
    fn on_told(&mut self, notices: &[Notice]) {
        for notice in notices {
            self.outbox.settle(*notice);
            if let Notice::Keepalive(id) = notice
                && let Some(index) = self.paths.find(*id)
            {
                self.paths[index].rest.on_told();
            }
        }
    }

    /// Sends the heartbeat, feedback and notices of path `index` that are due.
    fn send_probes(
        &mut self,
        now: Instant,
        index: PathIndex,
        locals: &[LocalAddress],
        out: &mut impl DatagramSink,
    ) {
        self.send_early_feedback(now, index, out);
        let path = &mut self.paths[index];
        if !path.is_validated() {
            return;
        }
        let calls = path.calls().is_some();
        let heartbeat =
            core::mem::take(&mut path.ping) || path.heartbeat_at().is_some_and(|at| now >= at);
        let due = || self.outbox.due(Carrier::Path(path.id));
        let keepalive = due().any(|notice| matches!(notice, Notice::Keepalive(_)));
        let notices = due().next().is_some();
        let feedback = path.arrivals.due().is_some_and(|at| now >= at)
            || heartbeat && path.arrivals.has_news();
        let feedback = feedback && !calls || keepalive && path.arrivals.has_news();
        if !heartbeat && !feedback && !notices {
            return;
        }
        if heartbeat {
            path.on_asked(now);
        }
        let mut room = [0; CONTROL_ROOM];
        let mut frames = FrameWriter::new(&mut room);
        if feedback {
            let mut ranges = range_room();
            if let Some(feedback) = path.arrivals.feedback(now, path.id, &mut ranges) {
                frames.push(&Frame::Feedback(feedback)).expect("one feedback frame fits");
            }
            // Even if the socket refuses it: the next packet triggers feedback again.
            path.arrivals.on_feedback_sent();
        }
        let (id, translated) = (path.id, path.is_translated());
        let long = heartbeat.then(|| path.take_long_heartbeat()).flatten();
        let notices = self.write_notices(Carrier::Path(id), locals, &mut frames);
        if heartbeat {
            frames.push(&Frame::Heartbeat).expect("one byte is left");
        }
        let least = match long {
            Some(long) => long - datagram_overhead(id),
            None if heartbeat && translated => MIN_HEARTBEAT_FRAMES,
            None => 0,
        };
        let len = frames.len();
        let body = Body { frames: &room[..len], notices: &notices, least };
        if len > 0 && self.send_frames(now, index, &body, out) {
            self.on_told(&notices);
        }
    }

    /// Sends feedback on a path that is not validated yet, unless packets that wait can carry it.
    fn send_early_feedback(&mut self, now: Instant, index: PathIndex, out: &mut impl DatagramSink) {
        let waiting = self.has_waiting();
        let path = &mut self.paths[index];
        if path.early_feedback_at(waiting).is_none_or(|at| now < at) {
            return;
        }
        let mut ranges = range_room();
        let Some(feedback) = path.arrivals.feedback(now, path.id, &mut ranges) else { return };
        path.arrivals.on_feedback_sent();
        let mut room = [0; CONTROL_ROOM];
        let len = Frame::Feedback(feedback).emit(&mut room).expect("one feedback frame fits");
        let size = len + datagram_overhead(path.id);
        if size > path.early_room() {
            return;
        }
        path.spend(size);
        let to = path.leads_to();
        self.send_frames_to(now, index, to, &Body::of(&room[..len]), out);
    }

    /// Sends `body` on path `index`. Returns `false` if the path's socket accepts no more now.
    fn send_frames(
        &mut self,
        now: Instant,
        index: PathIndex,
        body: &Body<'_>,
        out: &mut impl DatagramSink,
    ) -> bool {
        let to = self.paths[index].address;
        self.send_frames_to(now, index, to, body, out)
    }

    /// As [`send_frames`](Self::send_frames), to the address `to`.
    fn send_frames_to(
        &mut self,
        now: Instant,
        index: PathIndex,
        to: PathAddress,
        body: &Body<'_>,
        out: &mut impl DatagramSink,
    ) -> bool {
        let Body { frames, notices, least } = *body;
        let path = &self.paths[index];
        // A datagram to another address than the path's is not part of the path's loss detection.
        let asks = to == path.address
            && path.is_validated()
            && Frames::new(frames).any(|frame| frame.is_ok_and(|frame| frame.is_ack_eliciting()));
        let content = Content::of(notices);
        let info = SendInfo { asks, paced: false, probe: false, content };
        let len = frames.len().max(least);
        let write = |plain: &mut [u8]| {
            let (head, rest) = plain.split_at_mut(frames.len());
            head.copy_from_slice(frames);
            let (missing, mut padding) = (rest.len(), FrameWriter::new(rest));
            padding.pad_to(missing).expect("padding fits the room");
        };
        self.send_datagram(now, index, to, len, None, info, out, write).is_some()
    }
}
