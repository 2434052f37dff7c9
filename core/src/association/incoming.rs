//! The receive path: open the datagram, read its frames, update feedback, session and resequencer.

use core::net::IpAddr;
use core::time::Duration;
use std::sync::Arc;

use mpip_wire::{
    CheckedFrames, CompactFrameHeader, Feedback, Frame, Frames, NetworkFields, PathId,
    SessionFields, SessionId, TAG_LEN, TransportHeader,
};

use super::Association;
use super::moving::has_no_local_address;
use super::translated::{PacketSource, RewrittenPacket, with_source};
use crate::drops::DropReason;
use crate::omission::{HEAD_MAX, SessionHeader};
use crate::parts::addresses::local;
use crate::parts::outbox::Notice;
use crate::parts::path_set::PathIndex;
use crate::parts::playout;
use crate::parts::receiving::{Arrival, Delivery};
use crate::parts::sending::LossCause;
use crate::session::{Answers, Counters, Incoming, Order, SourceRewrite};
use crate::shared::Context;
use crate::trace::What;
use mpip_transport::clock_difference;
use mpip_transport::{Challenge, Newest, PathState};
use mpip_types::Instant;
use mpip_types::packet::{Endpoint, Header, SessionKey, mark_ce, protocol};
use mpip_types::{Checksum, Ecn, InnerPacket, Opened, PacketSink, PathAddress};

/// Time for which CoDel excuses queuing delay after a path was drained to measure its minimum RTT.
/// A signal would cost the inner TCP a third of its window for seconds.
const DRAIN_GRACE: Duration = Duration::from_millis(150);

impl Association {
    /// Handles a transport datagram, given with its checked clear header and the header's length.
    /// The datagram is opened in place, unless it was before.
    pub(crate) fn on_transport(
        &mut self,
        now: Instant,
        (from, ecn): (PathAddress, Ecn),
        (header, header_len): (TransportHeader, usize),
        (datagram, opened): (&mut [u8], Opened),
        cx: &mut Context<'_>,
        packets: &mut impl PacketSink,
    ) -> Result<(), DropReason> {
        let len = datagram.len();
        let epoch = self.keys.by_index(header.receiver.0).ok_or(DropReason::UnknownIndex)?;
        let offered = self.keys.offered(header.receiver.0);
        // A new association has none of the paths that we know.
        let known = if self.begins_anew(offered) { None } else { self.paths.find(header.path) };
        let replay = known.map(|index| &self.paths[index].replay);
        let number = match opened {
            Opened::Authentic { number, .. } => number,
            _ => header.number.expand(replay.and_then(mpip_crypto::ReplayWindow::largest)),
        };
        if replay.is_some_and(|replay| replay.check(number).is_err()) {
            return Err(DropReason::Replay);
        }
        let (clear, sealed) = datagram.split_at_mut(header_len);
        let plain = match opened {
            Opened::NotYet => epoch
                .keys
                .receive
                .open_in_place(header.path, number, clear, sealed)
                .map_err(|_| DropReason::Authentication)?,
            Opened::Authentic { key, .. } if epoch.keys.receive.is_named(key) => {
                let plain_len = sealed.len() - TAG_LEN;
                &mut sealed[..plain_len]
            }
            // The key that opened it was erased meanwhile, and another one has its index.
            Opened::Authentic { .. } => return Err(DropReason::UnknownIndex),
            Opened::Forged => return Err(DropReason::Authentication),
        };
        if ecn == Ecn::Ce {
            mark_full_packet(plain);
        }
        let mut frames = Frames::checked(plain).map_err(|error| match error {
            mpip_wire::Error::Work { .. } => DropReason::TooMuchWork,
            _ => DropReason::Malformed,
        })?;

        let answered =
            offered.and_then(|origin| self.confirm_keys(now, (header.receiver.0, origin), cx));
        let index = match known {
            Some(index) => index,
            // Only the node that received our response can have sealed the first datagram under the
            // keys. No later one says where it did.
            None => self.accept_path(now, cx, header.path, (from, len), answered == Some(from))?,
        };
        let path = &mut self.paths[index];
        let newest = path.replay.largest().is_none_or(|largest| number > largest);
        path.replay.commit(number).map_err(|_| DropReason::Replay)?;
        self.trace.record(now, path.id.0, || What::Received { number, size: len });
        path.counters.packets_received += 1;
        path.counters.bytes_received += len as u64;
        if let Some(challenge) =
            path.validation.challenge.as_mut().filter(|challenge| challenge.to == from)
        {
            challenge.hurry();
        }
        let challenged = path.validation.challenge.as_ref().map(|challenge| challenge.to);
        if from == path.address && path.is_validated() {
            // The peer's address is unchanged.
        } else if from == path.address && challenged.is_none_or(|to| to == from) {
            path.validation.credit += len;
        } else if newest && path.state() == PathState::Abandoned {
            self.open_path_to_moved_peer(now, cx, from, len);
        } else if newest && !self.opens_it(index) {
            self.challenge_new_address(now, cx, index, from, len);
        }
        self.on_frames(now, cx, index, from, &mut frames, (number, ecn), packets);
        Ok(())
    }

    /// Tells those who open datagrams before the engine, if there are any, what has been received.
    /// It has to be done before feedback is sent, and before new keys are handed out.
    pub(crate) fn tell_lanes(&self, cx: &Context<'_>) {
        if cx.shared.shared_keys.is_none() {
            return;
        }
        for epoch in self.keys.epochs() {
            // A new association has none of these paths.
            let none = self.begins_anew(self.keys.offered(epoch.local_index));
            let paths = self.paths.iter().filter(|_| !none);
            let lanes = paths.filter_map(|path| Some((path.id, path.replay.largest()?)));
            epoch.keys.receive.tell(lanes);
        }
    }

    /// Whether this node is opening path `index` and waits for the first response: then only the
    /// challenged address counts.
    fn opens_it(&self, index: PathIndex) -> bool {
        self.identity.opens() && self.paths[index].state() == PathState::Validating
    }

    /// The peer sent on an unknown path. The opener numbers the paths; the other node learns about
    /// them this way. `proven`: the handshake has shown that the peer receives at `from`.
    fn accept_path(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        id: PathId,
        (from, len): (PathAddress, usize),
        proven: bool,
    ) -> Result<PathIndex, DropReason> {
        // The opener knows all paths. It need not know which it abandoned long ago.
        if self.identity.opens() || self.paths.is_retired(id) {
            self.open_path_to_moved_peer(now, cx, from, len);
            self.outbox.owe(Notice::PathRefused(id));
            return Err(DropReason::UnknownPath);
        }
        let locals = Arc::clone(&cx.shared.locals);
        let local = local(from, &locals);
        let local = local.ok_or(DropReason::UnknownPath)?;
        self.make_room_for_path(now, cx);
        let interfaces = &cx.shared.interfaces;
        let index = self.add_path(now, id, from, local, interfaces);
        let index = index.ok_or(DropReason::TooManyPaths)?;
        if proven {
            self.change_state(now, cx, index, PathState::Active, "the handshake was confirmed");
        } else {
            let data = cx.shared.rng.bytes();
            self.paths[index].validation.challenge = Some(Challenge::new(data, from, now));
        }
        Ok(index)
    }

    #[expect(clippy::too_many_arguments, reason = "one datagram's context")]
    fn on_frames(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        index: PathIndex,
        from: PathAddress,
        frames: &mut CheckedFrames<'_>,
        (number, ecn): (u64, Ecn),
        packets: &mut impl PacketSink,
    ) {
        let mut asks = false;
        let mut closed = false;
        let mut arrival = Arrival { not_before: Instant::ZERO, path: self.paths[index].id };
        for frame in frames {
            asks |= frame.is_ack_eliciting();
            cx.shared.work += u64::from(frame.work());
            match frame {
                Frame::Packet { header, packet } => {
                    let (sequence, ordered) = (header.sequence, header.ordered);
                    let delivery = Delivery { sequence, ordered, arrival };
                    let session = header.session;
                    if let Err(reason) = self.on_packet(now, session, delivery, packet, cx, packets)
                    {
                        cx.shared.drops.count(reason);
                    }
                }
                Frame::Feedback(feedback) => {
                    let path = &self.paths[index];
                    if feedback.path == path.id && from == path.address {
                        self.on_feedback(now, cx, &feedback);
                    } else {
                        self.on_feedback_elsewhere(&feedback, index, cx);
                    }
                }
                Frame::Padding(_) | Frame::Heartbeat => {}
                Frame::Playout { at } => arrival.not_before = playout::time(now, at),
                Frame::PathChallenge(data) => {
                    let path = &mut self.paths[index];
                    if path.state() != PathState::Abandoned {
                        path.validation.response_owed = Some((data, from));
                    }
                }
                Frame::PathResponse(data) => self.on_path_response(now, cx, index, from, data),
                Frame::Addresses { generation, list } => {
                    self.on_addresses(now, cx, generation, list.iter());
                }
                Frame::PathStatus { path, sequence, status, cost, limit } => {
                    self.on_path_status(now, cx, path, sequence, (status, cost, limit));
                }
                Frame::Skip { session, first, count } => {
                    let (receiving, context) = self.delivery(now, cx, packets);
                    receiving.skip(now, session, (first, count), context);
                }
                Frame::Resequencing { sequence, max_wait } => {
                    self.receiving.on_resequencing(sequence, Duration::from_micros(max_wait));
                }
                Frame::SessionOpen { session, fields } => {
                    if let Err(reason) = self.on_session_open(now, session, &fields, cx) {
                        cx.shared.drops.count(reason);
                    }
                }
                Frame::SessionUnknown { session } => self.sending.on_session_unknown(session),
                Frame::CompactPacket { header, compact } => {
                    let received =
                        self.on_compact_packet(now, header, arrival, (compact, ecn), cx, packets);
                    if let Err(reason) = received {
                        cx.shared.drops.count(reason);
                    }
                }
                Frame::SessionClose { session } => {
                    self.receiving.close(session, &mut cx.shared.hold);
                }
                Frame::Close { .. } => closed = true,
                Frame::Keepalive { interval } => {
                    self.paths[index].rest.on_asked(number, interval);
                }
                Frame::AddressObserved { path, address, taken } => {
                    if let Some(index) = self.paths.find(path) {
                        let seen = &mut self.paths[index].seen;
                        let known = (seen.ours, seen.is_ours);
                        (seen.ours, seen.is_ours) = (Some(address), taken);
                        if known != (seen.ours, seen.is_ours) {
                            self.review_capture();
                        }
                    }
                }
            }
        }
        self.follow_standby(now, cx);
        if self.paths[index].rest.learns() {
            self.on_nat_binding_survived(now, index);
        }
        let path = &mut self.paths[index];
        let rtt = path.flight.rtt().smoothed();
        path.arrivals.on_packet(now, number, asks, ecn, rtt);
        path.on_received(now);
        if closed {
            self.lose(now, cx);
            self.forget_translated(None, cx);
        }
    }

    fn on_feedback(&mut self, now: Instant, cx: &mut Context<'_>, feedback: &Feedback<'_>) {
        let Some(index) = self.paths.find(feedback.path) else { return };
        self.losses.clear();
        let path = &mut self.paths[index];
        let Ok(progress) = path.flight.on_feedback(now, feedback, &mut self.losses) else {
            cx.shared.drops.count(DropReason::Malformed);
            return;
        };
        cx.shared.work += self.losses.steps;
        if let Some(Newest { left_at: sent, received_at: received, .. }) = progress.newest {
            let reference =
                *self.delay_reference.get_or_insert_with(|| received.wrapping_sub(sent));
            let delay = clock_difference(sent, received, reference);
            path.on_delay(now, delay);
        }
        cx.shared.work += self.paths.len() as u64;
        let own = self.gather_subflows(index);
        let nobody_answered = self.paths.none_answers();
        let Self { paths, losses, subflows, .. } = self;
        let before = paths[index].cc.state();
        paths[index].on_progress(now, &progress, &losses.summary, subflows, own);
        if nobody_answered && !paths[index].owes_answer() {
            paths.iter_mut().for_each(|path| path.excuse(now));
        }
        if paths[index].cc.asks_all_to_drain() {
            let busy = paths.iter_mut().filter(|path| path.flight.in_flight() > 0);
            busy.for_each(|path| path.cc.drain(now));
        }
        if paths[index].cc.drains() {
            self.sending.queue_mut().pardon(now + DRAIN_GRACE);
        }
        if self.trace.is_on() {
            self.trace_feedback(now, index, before, progress.spurious);
        }
        if progress.acked > 0 {
            self.on_nat_binding_lapsed(now, index);
        }
        let answers = progress.acked > 0 && self.paths[index].peer.counts(feedback.largest());
        if answers && self.paths[index].peer.confirm() {
            self.review_capture();
        }
        let path = &self.paths[index];
        if answers
            && path.state() == PathState::Failed
            && !has_no_local_address(path, &cx.shared.locals)
        {
            self.change_state(now, cx, index, PathState::Active, "it answers again");
        }
        self.repair_losses(LossCause::Congestion);
        self.update_inner_mtu(cx);
    }

    /// Feedback about another path than `index`, or from an address to which the peer has moved: it
    /// lists what arrived on a path that may have failed.
    fn on_feedback_elsewhere(
        &mut self,
        feedback: &Feedback<'_>,
        index: PathIndex,
        cx: &mut Context<'_>,
    ) {
        let Some(about) = self.paths.find(feedback.path) else { return };
        // A path that works sends its own feedback.
        if about != index && self.paths[about].works() {
            return;
        }
        let waits = !self.sending.repairs().is_empty();
        if self.paths[about].flight.on_arrivals(feedback, waits, &mut cx.shared.work).is_err() {
            cx.shared.drops.count(DropReason::Malformed);
            return;
        }
        self.sending.drop_arrived(&self.paths);
    }

    /// Traces what feedback changed on path `index`, whose congestion control was in state
    /// `before`.
    fn trace_feedback(
        &mut self,
        now: Instant,
        index: PathIndex,
        before: &'static str,
        spurious: u64,
    ) {
        let (path, trace) = (&self.paths[index], &mut self.trace);
        let (id, state) = (path.id.0, path.cc.state());
        trace.record(now, id, || What::Metrics(path.metrics()));
        if state != before {
            trace.record(now, id, || What::CongestionState { from: before, to: state });
        }
        if spurious > 0 {
            trace.record(now, id, || What::Spurious { packets: spurious });
        }
        let (packets, bytes) = (self.losses.summary.packets, self.losses.summary.bytes);
        if packets > 0 {
            trace.record(now, id, || What::Lost { packets, bytes });
        }
    }

    fn on_packet(
        &mut self,
        now: Instant,
        session: SessionId,
        delivery: Delivery,
        packet: &[u8],
        cx: &mut Context<'_>,
        sink: &mut impl PacketSink,
    ) -> Result<(), DropReason> {
        let header = Header::parse(packet).map_err(|_| DropReason::MalformedPacket)?;
        if header.total_len != packet.len() {
            return Err(DropReason::MalformedPacket);
        }
        let key = header.session();
        let known = self.receiving.find(session, &key)?;
        self.check_destination(header.destination, cx)?;
        let source = self.source_for_host(now, &header, packet, cx)?;
        let slot =
            known.unwrap_or_else(|| self.accept_session(now, session, key, delivery.sequence, cx));
        // A SYN is the first packet of its session, so it comes with all header fields.
        if let Some(shift) = header.window_shift(packet)
            && let Some(session) = self.receiving.get_mut(slot)
        {
            session.window_shift = Some(shift);
        }
        let changed;
        let inner = match source {
            PacketSource::Unchanged => {
                InnerPacket { head: packet, tail: &[], checksum: Checksum::Complete }
            }
            PacketSource::Rewritten(end, state) => {
                changed = RewrittenPacket::new(packet, &header, end, state)
                    .ok_or(DropReason::ForeignSource)?;
                changed.packet(packet)
            }
        };
        self.deliver(now, slot, delivery, inner, cx, sink);
        Ok(())
    }

    /// Refuses a packet that is neither for this host nor for a destination that the peer may reach
    /// through it.
    fn check_destination(&self, destination: IpAddr, cx: &Context<'_>) -> Result<(), DropReason> {
        match self.reaches(destination, cx) {
            true => Ok(()),
            false => Err(DropReason::ForeignDestination),
        }
    }

    fn reaches(&self, destination: IpAddr, cx: &Context<'_>) -> bool {
        cx.shared.is_ours(destination)
            || self.config.reaches.iter().any(|prefix| prefix.contains(destination))
    }

    /// Addresses of this host, prefixes of peers or what they may reach have changed: forgets the
    /// header fields of sessions that are not permitted any more. Their next packet comes with all
    /// fields, which are checked.
    pub(crate) fn review_sessions(&mut self, cx: &Context<'_>) {
        let permitted = |session: &Incoming| {
            let (source, destination) = (session.key.source, session.key.destination);
            let translated = !matches!(session.source_rewrite, SourceRewrite::None);
            let own = translated || cx.shared.prefixes.find_source(source.address) == Some(cx.me);
            own && self.reaches(destination.address, cx)
        };
        let sessions = self.receiving.sessions().iter();
        let lost: Vec<u32> = sessions
            .filter(|(_, _, session)| !permitted(session))
            .map(|(slot, _, _)| slot)
            .collect();
        for slot in lost {
            if let Some(session) = self.receiving.get_mut(slot) {
                session.header = None;
            }
        }
    }

    /// A compact packet: without the header fields that its session has announced.
    fn on_compact_packet(
        &mut self,
        now: Instant,
        frame: CompactFrameHeader,
        arrival: Arrival,
        (compact, ecn): (&[u8], Ecn),
        cx: &mut Context<'_>,
        sink: &mut impl PacketSink,
    ) -> Result<(), DropReason> {
        let slot = self.receiving.sessions().find(&frame.session);
        let session = slot
            .and_then(|slot| self.receiving.sessions().get(slot).map(|session| (slot, session)));
        let Some((slot, Incoming { header: Some(header), source_rewrite, newest, .. })) = session
        else {
            self.outbox.owe_unknown(now, frame.session);
            return Err(DropReason::UnknownSession);
        };
        let sequence = frame.sequence.expand(*newest);
        let mut head = [0; HEAD_MAX];
        let restored = header
            .restore(sequence, compact, Checksum::Partial, &mut head)
            .map_err(|_| DropReason::MalformedPacket)?;
        if ecn == Ecn::Ce {
            mark_ce(&mut head[..restored.head_len]);
        }
        let mut inner = InnerPacket {
            head: &head[..restored.head_len],
            tail: &compact[restored.payload..],
            checksum: restored.checksum,
        };
        let (whole, changed);
        match source_rewrite {
            SourceRewrite::None => {}
            SourceRewrite::To(known) => {
                let known = **known;
                self.refresh_connection(now, slot, known, inner, cx)?;
            }
            SourceRewrite::PerPacket => {
                whole = [inner.head, inner.tail].concat();
                let header = Header::parse(&whole).map_err(|_| DropReason::MalformedPacket)?;
                if let PacketSource::Rewritten(end, state) =
                    self.source_for_host(now, &header, &whole, cx)?
                {
                    changed = RewrittenPacket::new(&whole, &header, end, state)
                        .ok_or(DropReason::ForeignSource)?;
                    inner = changed.packet(&whole);
                }
            }
        }
        let delivery = Delivery { sequence, ordered: frame.ordered, arrival };
        self.deliver(now, slot, delivery, inner, cx, sink);
        Ok(())
    }

    /// Delivers a packet of the session in `slot`, in order if it asks for that.
    fn deliver(
        &mut self,
        now: Instant,
        slot: u32,
        delivery: Delivery,
        inner: InnerPacket<'_>,
        cx: &mut Context<'_>,
        sink: &mut impl PacketSink,
    ) {
        self.on_traffic(now);
        self.note_answer(slot);
        let (receiving, context) = self.delivery(now, cx, sink);
        receiving.deliver(now, slot, delivery, inner, context);
    }

    /// A packet of the session in `slot` arrives. The session of this host that it answers, if it
    /// is one of TCP or UDP, takes note of the first one, also if it begins later.
    fn note_answer(&mut self, slot: u32) {
        let Some(session) = self.receiving.get_mut(slot) else { return };
        if !matches!(session.key.protocol, protocol::TCP | protocol::UDP) {
            return;
        }
        let ordered = matches!(session.order, Some(Order::Sequenced(_)));
        if let Answers::Session(answered, id, known) = session.answers
            && known == ordered
            && self.sending.sessions().get(answered).is_some_and(|to| to.id == id)
        {
            return;
        }
        let key = session.answered();
        let Some(answered) = self.sending.sessions().find(&key) else {
            if key.protocol == protocol::UDP && !matches!(session.answers, Answers::Awaited) {
                self.sending.await_answered(key);
                session.answers = Answers::Awaited;
            }
            return;
        };
        let Some(outgoing) = self.sending.get_mut(answered) else { return };
        outgoing.on_answer(ordered);
        session.answers = Answers::Session(answered, outgoing.id, ordered);
    }

    fn accept_session(
        &mut self,
        now: Instant,
        id: SessionId,
        key: SessionKey,
        sequence: u32,
        cx: &mut Context<'_>,
    ) -> u32 {
        if self.host.may_be_elsewhere(key.destination.address) {
            self.host.path_connections.on_answer(key.protocol);
        }
        let session = Incoming {
            key,
            order: None,
            header: None,
            source_rewrite: SourceRewrite::None,
            answers: Answers::Unknown,
            window_shift: None,
            newest: sequence,
            counters: Counters::default(),
        };
        self.receiving.open(now, id, session, &mut cx.shared.hold)
    }

    /// The peer announces the header fields that the packets of a session share.
    fn on_session_open(
        &mut self,
        now: Instant,
        id: SessionId,
        fields: &SessionFields,
        cx: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let (source, destination) = match fields.network {
            NetworkFields::V4 { source, destination, .. } => {
                (IpAddr::V4(source), IpAddr::V4(destination))
            }
            NetworkFields::V6 { source, destination, .. } => {
                (IpAddr::V6(source), IpAddr::V6(destination))
            }
        };
        // As in full packets, the identifier of an ICMP echo stands for both ports.
        let echo = matches!(fields.protocol, protocol::ICMP | protocol::ICMPV6);
        let port = if echo { fields.source_port } else { fields.destination_port };
        let key = SessionKey {
            protocol: fields.protocol,
            source: Endpoint { address: source, port: fields.source_port },
            destination: Endpoint { address: destination, port },
        };
        // Checked once: every packet restored from these fields has these endpoints.
        let known = self.receiving.find(id, &key)?;
        self.check_destination(destination, cx)?;
        let source_rewrite = self.session_source_rewrite(now, &key, cx)?;
        let header = match &source_rewrite {
            SourceRewrite::To(known) => {
                with_source(fields, known.0).and_then(|it| SessionHeader::new(&it))
            }
            SourceRewrite::None | SourceRewrite::PerPacket => SessionHeader::new(fields),
        };
        let slot = known.unwrap_or_else(|| self.accept_session(now, id, key, fields.sequence, cx));
        if let Some(session) = self.receiving.get_mut(slot) {
            session.source_rewrite = source_rewrite;
            // Another source may answer another session.
            session.answers = Answers::Unknown;
            session.header = header.map(Box::new);
        }
        Ok(())
    }
}

/// Copies a CE mark of the outer header to the packet in a packet frame, if the packet is
/// ECN-capable (RFC 6040, section 4.2). One that is not is not dropped: the sender reacts to the
/// mark on the path, and would send the packet again.
fn mark_full_packet(plain: &mut [u8]) {
    // A packet frame is always the last frame.
    let packet = Frames::new(plain).find_map(|frame| match frame {
        Ok(Frame::Packet { packet, .. }) => Some(packet.len()),
        _ => None,
    });
    if let Some(len) = packet {
        let start = plain.len() - len;
        mark_ce(&mut plain[start..]);
    }
}
