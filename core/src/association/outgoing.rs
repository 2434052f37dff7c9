//! The send path: session, queue, scheduler, frame.

use core::time::Duration;
use std::collections::BTreeSet;

use mpip_wire::{Frame, PathId};

use super::departure::SendInfo;
use super::{Association, range_room};
use crate::config::Priority;
use crate::content::{Content, Path};
use crate::drops::DropReason;
use crate::event::Event;
use crate::omission::{SessionHeader, fields};
use crate::parts::outbox::Notice;
use crate::parts::path_set::PathIndex;
use crate::parts::playout;
use crate::parts::selection::is_in;
use crate::parts::sending::form::{Compressor, Form};
use crate::parts::sending::{Allowed, LossCause, NextPacket, Run};
use crate::parts::sizes::{CONTROL_ROOM, datagram_overhead};
use crate::rules::{PathLimit, Treatment};
use crate::scheduler::Demand;
use crate::session::{HeaderFields, HeaderState};
use crate::shared::Context;
use crate::trace::What;
use mpip_transport::PathState;
use mpip_transport::cc::CongestionControlKind;
use mpip_types::DatagramSink;
use mpip_types::Instant;
use mpip_types::packet::{Header, Segments, SessionKey};

/// Which of the copies of a packet that leave at the same time, each on another path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    /// The first one, on the path chosen for the packet.
    First,
    /// A further one.
    Further,
}

impl Association {
    /// Queues a packet or super-packet from the host.
    pub(crate) fn enqueue(
        &mut self,
        now: Instant,
        header: &Header,
        segments: Segments,
        cx: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        if self.has_fallen_back() && !self.needs_paths(&header.session(), cx) {
            // It entered the TUN device before the host stopped the capture.
            for segment in 0..segments.count() {
                cx.shared.plain.push(segments.clone(), segment);
            }
            return Ok(());
        }
        if self.keys.current().is_none() {
            return Err(cx.shared.refuse(DropReason::NotEstablished));
        }
        self.check_length(now, header, &segments, cx)?;
        self.on_traffic(now);
        let stuck = self
            .sending
            .push(now, header, segments, &cx.shared.rules, &self.config.name)
            .map_err(|reason| cx.shared.refuse(reason))?;
        if stuck {
            self.fall_back_alone(now, header.session(), cx);
        }
        Ok(())
    }

    /// The session `key` is plain from now on, if that is permitted and possible, because nothing
    /// of it arrives while paths work (seed 000, section 3.7.2). What waits of it goes back to the
    /// host.
    fn fall_back_alone(&mut self, now: Instant, key: SessionKey, cx: &mut Context<'_>) {
        // Without a caller that takes plain packets they would be lost.
        let may = self.can_fall_back() && cx.shared.translations.is_on();
        let plain = cx.shared.prefixes.find(key.destination.address) == Some(cx.me)
            && self.host.addresses.contains_key(&key.destination.address);
        if !may || !plain || !self.host.path_connections.give_up(&key) {
            return;
        }
        let sessions = self.host.plain_sessions.get_or_insert_with(Box::default);
        sessions.add(now, key, self.limits.session_idle);
        let packets = &mut self.host.plain_packets;
        self.sending.end_session(&key, |segments, segment| {
            *packets += 1;
            if !cx.shared.plain.push(segments, segment) {
                cx.shared.drops.count(DropReason::NoPath);
            }
        });
        cx.shared.events.push_back(Event::PlainSession {
            peer: self.config.name.clone(),
            protocol: key.protocol,
            source: key.source.into(),
            destination: key.destination.into(),
        });
    }

    /// See [`Engine::confine`](crate::Engine::confine).
    pub(crate) fn confine(&mut self, session: SessionKey, path: Option<PathId>) {
        self.sending.confine(session, path);
    }

    /// Removes idle sessions.
    pub(super) fn expire_sessions(&mut self, now: Instant, cx: &mut Context<'_>) {
        let idle = self.limits.session_idle;
        self.sending.expire(now, idle);
        if let Some(plain) = &mut self.host.plain_sessions {
            plain.expire(now);
        }
        // The receiver keeps sessions longer than the sender, so that it never drops one in use.
        self.receiving.expire(now, idle * 3 / 2, &mut cx.shared.hold);
    }

    /// Returns queued packets, and packets that no path is known to have delivered, to the host,
    /// which sends them as plain IP. Sessions with packets in flight start anew, so that the peer
    /// does not wait for these packets when the session returns to the paths.
    pub(super) fn return_to_host(&mut self, now: Instant, cx: &mut Context<'_>) {
        self.requeue_all_early();
        let bound: BTreeSet<u32> = self
            .sending
            .sessions()
            .iter()
            .filter(|(_, key, _)| self.needs_paths(key, cx))
            .map(|(slot, ..)| slot)
            .collect();
        self.sending.take_all(now, &self.paths, |slot, segments, segment| {
            if bound.contains(&slot) || !cx.shared.plain.push(segments, segment) {
                cx.shared.drops.count(DropReason::NoPath);
            }
        });
    }

    /// Sends everything that may leave now.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        out: &mut impl DatagramSink,
    ) {
        self.follow_capture(now, cx);
        self.send_handshakes(now, out);
        if self.keys.current().is_none() {
            return;
        }
        // First, because the peer's packets wait for these.
        self.send_challenges(now, cx, out);
        self.send_packets(now, cx, out);
        self.send_control(now, cx, out);
    }

    fn send_packets(&mut self, now: Instant, cx: &mut Context<'_>, out: &mut impl DatagramSink) {
        let works = self.paths.iter().any(|path| path.state() == PathState::Active);
        if !works && !self.has_early_path() {
            self.sending.begin_outage(now);
            return;
        }
        self.sending.end_outage(now);
        self.selection.look(&self.paths);
        self.follow_rules(cx);
        self.sending.begin_round();
        let mut compressor = Compressor::new();
        let mut full = None;
        while let Some(run) = &mut self.next_run(now).or_else(|| self.overtaking_run(now, cx)) {
            let next = &run.next;
            let group = (next.allowed, next.treatment.scheduler);
            if full == Some(group) && self.sending.pass_over(next) {
                continue;
            }
            let (len, priority, allowed) = (next.len, next.treatment.priority, next.allowed);
            let any = match works {
                true => self.selection.gather(now, &self.paths, len, priority, allowed),
                false => self.selection.gather_early(now, &self.paths, len, allowed),
            };
            if !any && !works && self.permits_any(allowed) {
                break;
            }
            if !any {
                self.drop_uncarried(now, next, cx);
                continue;
            }
            let is_repair = next.first_sent.is_some();
            // What comes after a retransmission is no reason to send it by a slower path: the
            // receiver waits for it first.
            let (backlog, busy_since) = match is_repair {
                true => (self.sending.repairs_passed() * len, now),
                false => (self.sending.queue().bytes(), self.sending.busy_since()),
            };
            let held = next.hold.map(|hold| self.held_until(hold));
            let demand = Demand { len, ordered: next.ordered, backlog, held, busy_since };
            if priority != Priority::Throughput {
                self.selection.on_interactive(now);
            }
            if self.send_run(now, run, demand, &mut compressor, cx, out) {
                continue;
            }
            let any = allowed == Allowed::ByRule(PathLimit::Any);
            let bulk = works && any && priority == Priority::Throughput;
            if bulk && self.selection.tiers.spill(now, &self.paths, demand.backlog) {
                self.selection.forget();
                continue;
            }
            if is_repair && any {
                self.sending.pass_over_repairs();
                continue;
            }
            // Packets that may take other paths, or by another scheduler would, do not wait for
            // this one.
            let alike = any && !self.selection.has_several();
            let by_rule = matches!(allowed, Allowed::ByRule(_));
            if !alike && by_rule && self.sending.pass_over(&run.next) {
                full = Some(group);
                continue;
            }
            break;
        }
        if !works {
            self.sending.begin_outage(now);
        }
        self.sending.settle(now);
        self.tell_paths_what_waits(now);
    }

    /// Sends packets of `run` by the gathered paths, as long as these take them. Returns `false` if
    /// the first one waits.
    fn send_run(
        &mut self,
        now: Instant,
        run: &mut Run,
        mut demand: Demand,
        compressor: &mut Compressor,
        cx: &mut Context<'_>,
        out: &mut impl DatagramSink,
    ) -> bool {
        let Treatment { priority, scheduler, .. } = run.next.treatment;
        compressor.begin();
        let mut goes = false;
        let mut more = true;
        while more {
            let draws = &mut cx.shared.draws;
            let choice =
                self.selection.choose(now, &self.paths, priority, scheduler, &demand, draws);
            let Some(index) = choice else { break };
            goes = true;
            if !self.send_packet(now, index, &run.next, Copy::First, compressor, out) {
                self.paths[index].blocked = true;
                self.selection.forget();
                break;
            }
            if priority == Priority::Redundant {
                self.send_copies(now, index, &run.next, compressor, out);
                self.selection.forget();
            }
            self.sending.on_packet_sent(now, self.paths[index].id, &run.next);
            run.advance();
            demand.backlog = demand.backlog.saturating_sub(demand.len);
            more = self.selection.on_sent(now, &self.paths, index) && !run.is_over();
        }
        self.sending.on_run_sent(now, run);
        goes
    }

    /// Drops a packet that no path carries: by its rule, or at its length.
    fn drop_uncarried(&mut self, now: Instant, next: &NextPacket, cx: &mut Context<'_>) {
        let reason = if self.permits_any(next.allowed) {
            if let Ok(header) = Header::parse(next.segments.packet().bytes()) {
                self.tell_too_big(now, &header, &next.segments, cx);
            }
            DropReason::TooBig
        } else {
            DropReason::NoRulePath
        };
        self.sending.drop_packet(next, &mut self.outbox);
        cx.shared.drops.count(reason);
    }

    /// Tells each path whether packets wait, and whether that path is application-limited. It is if
    /// it still has room: it was not used for lack of packets, or because others are faster. So is
    /// one at its upper rate: congestion control would permit more.
    fn tell_paths_what_waits(&mut self, now: Instant) {
        let waiting = self.has_waiting();
        for path in self.paths.iter_mut().filter(|path| path.state() == PathState::Active) {
            path.set_waiting(waiting);
            let has_room = path.ready_at(now, CONTROL_ROOM) <= now;
            if has_room || path.is_held_by_limit(now, CONTROL_ROOM) {
                path.flight.on_app_limited(now);
            }
        }
    }

    /// Looks up which of the rules' lists of interfaces each path is in, and which schedulers they
    /// ask for, where that may have changed.
    pub(super) fn follow_rules(&mut self, cx: &Context<'_>) {
        let rules = &cx.shared.rules;
        let other = core::mem::replace(&mut self.rules_followed, rules.generation());
        if other != rules.generation() {
            let parameters = &self.parameters.earliest;
            self.selection.set_schedulers(rules.schedulers(), &self.config, parameters);
        }
        for path in &mut self.paths {
            if path.lists.is_none() || other != rules.generation() {
                path.lists = Some(rules.lists_with(&path.interface));
            }
        }
    }

    /// Whether a path that carries packets, or may before it is validated, is among the only ones
    /// that a packet may take.
    fn permits_any(&self, allowed: Allowed) -> bool {
        let Allowed::ByRule(PathLimit::Only(list)) = allowed else { return true };
        let carries = |path: &Path| path.state() == PathState::Active || path.early_room() > 0;
        self.paths.iter().any(|path| carries(path) && is_in(path, list))
    }

    fn next_run(&mut self, now: Instant) -> Option<Run> {
        self.sending.next_run(now, &self.paths, &mut self.outbox)
    }

    /// The first of the packets that an idle path is to send again, if nothing waits.
    fn overtaking_run(&mut self, now: Instant, cx: &mut Context<'_>) -> Option<Run> {
        if self.overtake(now, &mut cx.shared.draws) { self.next_run(now) } else { None }
    }

    /// Sends copies of `next`, which has left on path `first`, on others that have room now.
    fn send_copies(
        &mut self,
        now: Instant,
        first: PathIndex,
        next: &NextPacket,
        compressor: &mut Compressor,
        out: &mut impl DatagramSink,
    ) {
        let (copies, parameters) = (next.treatment.copies, &self.parameters.copies);
        let planned = self.selection.plan_copies(now, &self.paths, first, copies, parameters);
        for copy in 0..planned {
            let Some(index) = self.selection.copy(copy) else { break };
            if !self.send_packet(now, index, next, Copy::Further, compressor, out) {
                self.paths[index].blocked = true;
            }
        }
    }

    /// Frames, writes and seals one packet. Returns `false` if the path's socket accepts no more
    /// now.
    fn send_packet(
        &mut self,
        now: Instant,
        index: PathIndex,
        next: &NextPacket,
        copy: Copy,
        compressor: &mut Compressor,
        out: &mut impl DatagramSink,
    ) -> bool {
        let len = next.len;
        let session =
            self.sending.sessions().get(next.slot).filter(|known| known.id == next.session);
        let (header, tell, tell_again) = match session.map(|session| &session.header_state) {
            Some(HeaderState::Confirmed(told)) => (Some(&told.header), false, false),
            Some(HeaderState::Unsent) => (None, true, false),
            Some(HeaderState::Lost(_)) => (None, false, true),
            Some(HeaderState::Sent(_)) | None => (None, false, false),
        };
        let form = Form::of(next, header, compressor);
        let path = &mut self.paths[index];
        let to = path.leads_to();
        let most = path.max_datagram().min(path.sendable());
        let overhead = datagram_overhead(path.id);
        let fits =
            |frame: &Frame<'_>, plain_len| overhead + plain_len + frame.encoded_len() <= most;
        let mut plain_len = form.encoded_len(len);
        let mut room;
        let mut feedback = None;
        if path.arrivals.has_news() {
            room = range_room();
            feedback = path.arrivals.feedback(now, path.id, &mut room).map(Frame::Feedback);
            feedback = feedback.filter(|frame| fits(frame, plain_len));
        }
        plain_len += feedback.as_ref().map_or(0, Frame::encoded_len);
        let playout = self.playout(now, index, next);
        let playout = playout.filter(|frame| fits(frame, plain_len));
        plain_len += playout.as_ref().map_or(0, Frame::encoded_len);
        let path = &self.paths[index];
        // What is lost of the copies is not sent again.
        let repair = next.repair && copy == Copy::First;
        let packet = repair.then(|| next.sent_on(now, path.id, path.flight.next_number()));
        let info = SendInfo {
            asks: true,
            paced: true,
            probe: false,
            content: packet.map(Content::Packet),
        };
        let body = form.body();
        let sent = self.send_datagram(now, index, to, plain_len, body, info, out, |plain| {
            let mut at = 0;
            for frame in feedback.iter().chain(&playout) {
                at += frame.emit(&mut plain[at..]).expect("room was reserved");
            }
            form.write(next, &mut plain[at..]);
            let first = tell && copy == Copy::First && next.first_sent.is_none();
            first.then(|| fields(next.sequence, &plain[plain_len - len..])).flatten()
        });
        let Some(told) = sent else { return false };
        let path = &mut self.paths[index];
        path.spend(overhead + plain_len);
        if feedback.is_some() {
            path.arrivals.on_feedback_sent();
        }
        match copy {
            Copy::First => path.counters.carried += len as u64,
            Copy::Further => {
                path.counters.copied += len as u64;
                self.sending.on_copy_sent(len);
                return true;
            }
        }
        if let Some(fields) = told
            && let Some(header) = SessionHeader::new(&fields)
        {
            let told = HeaderFields { fields, header };
            self.sending.send_header_fields(next.slot, next.session, told, &mut self.outbox);
        } else if tell_again {
            self.sending.resend_header_fields(next.slot, next.session, &mut self.outbox);
        }
        true
    }

    /// The earliest delivery of `next` for the receiver, if it is a full packet of a session that
    /// is put in order: these are to take the same time on this path.
    fn playout(&self, now: Instant, index: PathIndex, next: &NextPacket) -> Option<Frame<'static>> {
        if next.len < self.parameters.even_delay.bulk as usize || !next.ordered {
            return None;
        }
        let from = playout::counts_from(now, next.first_sent, next.hold)?;
        let delay = next.hold.map(|hold| self.held_until(hold));
        let at = self.paths[index].playout(from, self.delay_reference, delay)?;
        Some(Frame::Playout { at: playout::encode(at) })
    }

    /// The delay of a packet that takes longer than by the nearest path, µs as in the delay
    /// samples.
    fn held_until(&self, hold: Duration) -> i64 {
        self.reach.nearest + hold.as_micros() as i64
    }

    /// Handles losses found outside of a feedback frame: congestion control and repair.
    pub(super) fn apply_losses(&mut self, now: Instant, index: PathIndex) {
        let (packets, bytes) = (self.losses.summary.packets, self.losses.summary.bytes);
        if packets > 0 {
            let path = self.paths[index].id.0;
            self.trace.record(now, path, || What::Lost { packets, bytes });
        }
        let own = self.gather_subflows(index);
        let Self { paths, losses, subflows, .. } = self;
        paths[index].on_losses(now, &losses.summary, subflows, own);
        self.repair_losses(LossCause::Congestion);
    }

    /// Sends lost packets again, or tells the receiver that they will not come.
    pub(super) fn repair_losses(&mut self, loss: LossCause) {
        while let Some(content) = self.losses.arrived.pop() {
            if let Content::Control(notices) = content {
                notices.into_iter().for_each(|notice| self.on_notice(notice, true));
            }
        }
        // Without congestion control, losses are the only signal that slows the inner TCP down.
        let none = self.config.congestion_control == CongestionControlKind::None;
        let repairs = loss == LossCause::PathFailed || !none;
        let mut lost = core::mem::take(&mut self.losses.lost);
        let any = lost.iter().any(mpip_transport::Content::is_packet);
        for content in lost.drain(..) {
            match content {
                Content::Packet(packet) if repairs => self.sending.repair(packet, &mut self.outbox),
                Content::Packet(packet) => self.sending.give_up(&packet, &mut self.outbox),
                Content::Control(notices) => {
                    notices.into_iter().for_each(|notice| self.on_notice(notice, false));
                }
            }
        }
        self.losses.lost = lost;
        if loss != LossCause::Congestion && any {
            self.sending.sort_repairs();
        }
    }

    /// A notice was acknowledged (`arrived`) or lost.
    fn on_notice(&mut self, notice: Notice, arrived: bool) {
        match notice {
            Notice::SessionOpen(slot, id) => {
                self.sending.on_header_fields_result(slot, id, arrived);
            }
            _ if arrived => {}
            _ => {
                self.outbox.owe(notice);
            }
        }
    }

    /// Tail loss probe: the path has fallen silent, and its newest packet may be the last of a
    /// transfer, whose loss no later packet would reveal. Sends it again on a path that answers.
    pub(super) fn probe_tail(&mut self, now: Instant, index: PathIndex) {
        let others = self.paths.enumerate();
        let mut others = others.filter(|(other, path)| *other != index && path.is_usable());
        if self.parameters.repair.probes_tail
            && others.next().is_some()
            && let Some(Content::Packet(packet)) = self.paths[index].flight.newest()
        {
            self.sending.repeat(now, packet);
        }
    }
}
