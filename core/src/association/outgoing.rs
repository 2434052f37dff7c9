//! The way of a packet out: session, queue, scheduler, frame.

mod form;
mod header_fields;

use core::time::Duration;
use std::collections::BTreeSet;

use mpip_wire::{Frame, SessionId};

use self::form::Form;
use super::control::CONTROL_ROOM;
use super::departure::{Manifest, datagram_overhead};
use super::outbox::{Notice, Skip};
use super::path_set::PathIndex;
use super::paths::INNER_OVERHEAD;
use super::{Association, Context, playout, range_room, refuse};
use crate::config::Priority;
use crate::content::{Cargo, Content};
use crate::drops::DropReason;
use crate::omission::{SessionHeader, fields};
use crate::scheduler::{Candidate, Demand, lowest_delay};
use crate::session::{Known, Outgoing, Told};
use crate::trace::What;
use mpip_transport::PathState;
use mpip_transport::cc::CongestionControlKind;
use mpip_types::DatagramSink;
use mpip_types::Instant;
use mpip_types::packet::{Header, Segments, SessionKey, protocol};

/// A packet that left for the first time longer ago than this is of no use to its receiver: a
/// TCP sender has sent it again itself (RFC 6298, section 2.4). Time without any path does not count: of
/// what is missing then a TCP sender repeats the first packet only.
const REPAIR_FOR: Duration = Duration::from_secs(1);
/// So long after a time without any path, what waits in the queue waits for that reason, and the inner
/// TCP has stopped by itself: a signal would only take away what is to go first.
const OUTAGE_PARDON: Duration = Duration::from_millis(500);
/// Packets that wait to be sent again; beyond it the oldest is given up.
const REPAIRS: usize = 16_384;
/// Packets of so many bytes are taken for part of a transfer, which an even delay helps more than a
/// short one.
const BULK: usize = 1_000;
/// As are the first so many of a session, which show the inner TCP how long the paths are: were one of
/// them faster than the packets of a transfer that follows, they would look as if they waited in a queue.
const FIRST: u32 = 32;
/// Something to send after a pause shorter than this counts as if there had been no pause.
const PAUSE: Duration = Duration::from_millis(20);

/// Why packets were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// One by one, on a path that works.
    Congestion,
    /// All that was in flight on a path.
    PathDied,
}

/// What leaves next.
struct Load {
    segments: Segments,
    segment: usize,
    slot: u32,
    session: SessionId,
    sequence: u32,
    ordered: bool,
    repair: bool,
    mark: bool,
    priority: Priority,
    /// When it left before; `None` for the first time.
    first_sent: Option<Instant>,
}

/// Whether the packets of a session are segments of a TCP stream. Fragments have no ports, and most
/// of them no TCP header.
fn is_stream(key: &SessionKey) -> bool {
    key.protocol == protocol::TCP && key.source.port != 0
}

/// The order in which packets left for the first time.
fn oldest_first(cargo: &Cargo) -> (Instant, u32, u32) {
    (cargo.first_sent, cargo.slot, cargo.sequence)
}

impl Association {
    /// Takes a packet or super-packet from the host into the queue.
    pub(crate) fn enqueue(
        &mut self,
        now: Instant,
        header: &Header,
        segments: Segments,
        cx: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        if self.is_plain() && !self.is_bound(&header.session(), cx) {
            // It entered the TUN device before the host heard of that.
            for segment in 0..segments.count() {
                cx.plain.push(segments.clone(), segment);
            }
            return Ok(());
        }
        if self.keys.current().is_none() {
            return Err(refuse(cx, DropReason::NotEstablished));
        }
        self.check_length(now, header, &segments, cx)?;
        self.on_traffic(now);
        let key = header.session();
        let slot = match self.outgoing.find(&key) {
            Some(slot) => slot,
            None => self.open_session(now, key),
        };
        self.outgoing.touch(slot, now);
        let rule = cx.rules.find(header, segments.segment_len(0));
        let priority = rule.map(|rule| rule.priority).unwrap_or_default();
        if let Some(session) = self.outgoing.get_mut(slot) {
            session.repair = rule.is_some_and(|rule| rule.repair);
            if is_stream(&key)
                && let Some((len, end)) = segments.whole_stream()
            {
                let news = session.queues(len as u32, end);
                if !news && self.queue.flow_bytes(slot) > 0 {
                    return Err(refuse(cx, DropReason::Waits));
                }
            }
        }
        if let Some(idle) = self.idle_since.take()
            && now.since(idle) > PAUSE
        {
            self.busy_since = now;
        }
        self.queue.push(now, slot, priority, segments);
        Ok(())
    }

    fn open_session(&mut self, now: Instant, key: SessionKey) -> u32 {
        let id = SessionId(self.next_session);
        self.next_session = self.next_session.wrapping_add(1);
        let session = Outgoing::new(id, &key, self.config.resequencing);
        let inserted = self.outgoing.insert(now, key, session);
        if let Some(removed) = inserted.removed {
            self.queue.discard(removed.index);
        }
        inserted.index
    }

    /// Forgets sessions that carried nothing for long.
    pub(super) fn expire_sessions(&mut self, now: Instant, cx: &mut Context<'_>) {
        let idle = self.limits.session_idle;
        while let Some(removed) = self.outgoing.expire(now, idle) {
            self.queue.discard(removed.index);
        }
        // The receiver remembers for longer, so that it never forgets a session in use.
        self.receiving.expire(now, idle * 3 / 2, cx.hold);
    }

    /// Drops what waits for a path. What had left before, and was lost, the peer need not wait for.
    pub(super) fn drop_queued(&mut self, cx: &mut Context<'_>) {
        self.queue.drain(|_, _, _| cx.drops.count(DropReason::NoPath));
        for cargo in core::mem::take(&mut self.repairs) {
            self.skip(cargo.ordered, cargo.session, cargo.sequence);
        }
    }

    /// Gives what waits, and what no path is known to have delivered, back to the host, which sends
    /// it as plain IP. Sessions of which something was on its way begin anew, so that the peer does
    /// not wait for it when they return to the paths.
    pub(super) fn give_back(&mut self, now: Instant, cx: &mut Context<'_>) {
        self.retrieve_all_early();
        let mut repairs = Vec::from(core::mem::take(&mut self.repairs));
        repairs.retain(|cargo| !self.has_arrived(cargo));
        repairs.sort_by_key(oldest_first);
        // Some left more than once.
        repairs.dedup_by_key(|cargo| (cargo.slot, cargo.session, cargo.sequence));
        let bound: BTreeSet<u32> = self
            .outgoing
            .iter()
            .filter(|(_, key, _)| self.is_bound(key, cx))
            .map(|(slot, ..)| slot)
            .collect();
        let mut left = |slot, segments, segment| {
            if bound.contains(&slot) || !cx.plain.push(segments, segment) {
                cx.drops.count(DropReason::NoPath);
            }
        };
        let mut begun = Vec::new();
        for cargo in repairs {
            begun.push((cargo.slot, cargo.session));
            if now.since(cargo.first_sent) <= REPAIR_FOR {
                left(cargo.slot, cargo.segments, cargo.segment.into());
            }
        }
        self.queue.drain(|flow, segments, segment| left(flow, segments.clone(), segment));
        for (slot, id) in begun {
            if self.outgoing.get(slot).is_some_and(|session| session.id == id) {
                self.outgoing.remove(slot);
                self.queue.discard(slot);
            }
        }
    }

    /// Sends all that may leave now.
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
        // The peer's packets wait for these.
        self.send_challenges(now, cx, out);
        self.send_packets(now, cx, out);
        self.send_control(now, cx, out);
    }

    fn send_packets(&mut self, now: Instant, cx: &mut Context<'_>, out: &mut impl DatagramSink) {
        let works = self.paths.iter().any(|path| path.state() == PathState::Active);
        if !works && !self.has_early_path() {
            self.outage_since.get_or_insert(now);
            return;
        }
        if let Some(since) = self.outage_since.take() {
            self.queue.pardon(now + OUTAGE_PARDON);
            let outage = now.since(since);
            let ordered = self.repairs.iter_mut().filter(|cargo| cargo.ordered);
            ordered.for_each(|cargo| cargo.first_sent += outage);
        }
        while let Some(load) = self.next_load(now) {
            let len = load.segments.segment_len(load.segment);
            match works {
                true => self.gather_candidates(now, len, load.priority),
                false => self.gather_early(now, len + INNER_OVERHEAD),
            }
            if self.candidates.is_empty() {
                if works {
                    // No path takes a packet of this length any more.
                    if let Ok(header) = Header::parse(load.segments.packet().bytes()) {
                        self.tell_too_big(now, &header, &load.segments, cx);
                    }
                    self.drop_load(&load);
                    cx.drops.count(DropReason::TooBig);
                    continue;
                }
                break;
            }
            let choice = match load.priority {
                Priority::Response => {
                    lowest_delay(&self.candidates, |path| path.ready_at != Instant::FAR_FUTURE)
                }
                Priority::Throughput => {
                    let backlog = self.queue.bytes();
                    let busy_since = self.busy_since;
                    let demand = Demand { len, ordered: load.ordered, backlog, busy_since };
                    self.scheduler.choose(now, &self.candidates, &demand, cx.draws)
                }
            };
            let Some(choice) = choice else { break };
            let index = self.candidate_paths[choice];
            if self.send_load(now, index, &load, len, out) {
                self.load_left(now, &load);
            } else {
                self.paths[index].blocked = true;
            }
        }
        if !works {
            self.outage_since = Some(now);
        }
        if !self.has_waiting() {
            self.idle_since.get_or_insert(now);
        }
        // What has room now was not used for want of packets, or because others are faster.
        for path in self.paths.iter_mut().filter(|path| path.state() == PathState::Active) {
            if path.ready_at(now, CONTROL_ROOM) <= now {
                path.flight.on_app_limited(now);
            }
        }
    }

    /// The next packet to leave: repairs before what is new.
    fn next_load(&mut self, now: Instant) -> Option<Load> {
        self.drop_arrived_repairs();
        while let Some(cargo) = self.repairs.front() {
            if now.since(cargo.first_sent) <= REPAIR_FOR {
                return Some(Load {
                    segments: cargo.segments.clone(),
                    segment: usize::from(cargo.segment),
                    slot: cargo.slot,
                    session: cargo.session,
                    sequence: cargo.sequence,
                    ordered: cargo.ordered,
                    repair: true,
                    mark: cargo.marked,
                    priority: Priority::Throughput,
                    first_sent: Some(cargo.first_sent),
                });
            }
            let (ordered, session, sequence) = (cargo.ordered, cargo.session, cargo.sequence);
            self.repairs.pop_front();
            self.skip(ordered, session, sequence);
            self.drop_arrived_repairs();
        }
        loop {
            let candidate = self.queue.next(now)?;
            let Some(session) = self.outgoing.get(candidate.flow) else {
                let flow = candidate.flow;
                self.queue.discard(flow);
                continue;
            };
            return Some(Load {
                segments: candidate.item.clone(),
                segment: candidate.segment,
                slot: candidate.flow,
                session: session.id,
                sequence: session.next_sequence,
                ordered: session.ordered && !(self.uneven && candidate.item.is_pure_ack()),
                repair: session.ordered || session.repair,
                mark: candidate.mark,
                priority: candidate.priority,
                first_sent: None,
            });
        }
    }

    /// The paths that can take `len` bytes: those that answer, or if none does, those that did; and
    /// those that are known to carry so much, or if none is, new ones that may. Bulk takes those that
    /// the guard leaves out only if there are no others.
    fn gather_candidates(&mut self, now: Instant, len: usize, priority: Priority) {
        let narrow = priority == Priority::Throughput && self.guard.is_narrow();
        let choices = [(true, true), (true, false), (false, true), (false, false)];
        let choices = choices.map(|(answering, known)| (answering, known, false));
        for (answering, known, narrow) in
            [(true, true, true)].into_iter().chain(choices).skip(usize::from(!narrow))
        {
            self.candidates.clear();
            self.candidate_paths.clear();
            for (index, path) in self.paths.enumerate() {
                let usable = match answering {
                    true => path.is_usable(),
                    false => path.state() == PathState::Active,
                };
                let most = if known { path.max_datagram() } else { path.hoped_datagram() };
                let left_out = narrow && self.guard.leaves_out(path.id.0);
                if usable && !left_out && len + INNER_OVERHEAD <= most {
                    self.candidates.push(Candidate::of(path, now, len + INNER_OVERHEAD));
                    self.candidate_paths.push(index);
                }
            }
            if !self.candidates.is_empty() {
                return;
            }
        }
    }

    fn drop_load(&mut self, load: &Load) {
        if load.first_sent.is_some() {
            self.repairs.pop_front();
            self.skip(load.ordered, load.session, load.sequence);
        } else {
            self.queue.take();
        }
    }

    /// Takes note that `load` has left.
    fn load_left(&mut self, now: Instant, load: &Load) {
        let session = self.outgoing.get_key_value_mut(load.slot);
        let session = session.filter(|(_, known)| known.id == load.session);
        if load.first_sent.is_some() {
            self.repairs.pop_front();
            if let Some((_, session)) = session {
                session.repaired += 1;
            }
            return;
        }
        self.queue.take();
        let len = load.segments.segment_len(load.segment);
        self.bytes_sent += len as u64;
        if let Some((key, session)) = session {
            let stream = is_stream(key).then(|| load.segments.stream(load.segment)).flatten();
            let (left, new) = match stream {
                Some((payload, end)) => (payload as u64, session.on_segment(end)),
                None => (len as u64, len as u64),
            };
            self.benefit.left += left;
            self.benefit.new += new;
            session.next_sequence = session.next_sequence.wrapping_add(1);
            session.counters.add(len);
        }
        self.outgoing.touch(load.slot, now);
    }

    /// Frames, writes and seals one packet. `false` if the path's socket takes no more now.
    fn send_load(
        &mut self,
        now: Instant,
        index: PathIndex,
        load: &Load,
        len: usize,
        out: &mut impl DatagramSink,
    ) -> bool {
        let session = self.outgoing.get(load.slot).filter(|known| known.id == load.session);
        let header = match session.map(|session| &session.known) {
            Some(Known::Header(told)) => Some(&told.header),
            _ => None,
        };
        let form = Form::of(load, len, header);
        let tell = matches!(session, Some(Outgoing { known: Known::Nothing, .. }));
        let tell_again = matches!(session, Some(Outgoing { known: Known::Lapsed(_), .. }));
        let path = &mut self.paths[index];
        let to = path.leads_to();
        let most = path.max_datagram().min(path.sendable());
        let mut plain_len = form.encoded_len(len);
        let mut room = range_room();
        let mut feedback = None;
        if path.arrivals.has_news() {
            let used = datagram_overhead(path.id) + plain_len;
            let free = most.saturating_sub(used);
            feedback = path
                .arrivals
                .feedback(now, path.id, &mut room)
                .map(Frame::Feedback)
                .filter(|frame| frame.encoded_len() <= free);
        }
        plain_len += feedback.as_ref().map_or(0, Frame::encoded_len);
        let even = len >= BULK || load.sequence < FIRST;
        let even = even && load.ordered && load.first_sent.is_none();
        let playout = path.playout(now, self.delay_reference).filter(|_| even);
        let playout =
            playout.map(|at| Frame::Playout { at: playout::encode(at) }).filter(|frame| {
                let used = datagram_overhead(path.id) + plain_len;
                used + frame.encoded_len() <= most
            });
        plain_len += playout.as_ref().map_or(0, Frame::encoded_len);
        let cargo = load.repair.then(|| Cargo {
            ordered: load.ordered,
            segments: load.segments.clone(),
            segment: load.segment as u16,
            slot: load.slot,
            session: load.session,
            sequence: load.sequence,
            marked: load.mark,
            first_sent: load.first_sent.unwrap_or(now),
            path: path.id,
            number: path.flight.next_number(),
        });
        let manifest =
            Manifest { asks: true, paced: true, probe: false, content: cargo.map(Content::Packet) };
        let sent = self.send_datagram(now, index, to, plain_len, manifest, out, |plain| {
            let mut at = 0;
            for frame in [&feedback, &playout].into_iter().flatten() {
                at += frame.emit(&mut plain[at..]).expect("room was reserved");
            }
            form.write(load, &mut plain[at..]);
            let first = tell && load.first_sent.is_none();
            first.then(|| fields(load.sequence, &plain[plain_len - len..])).flatten()
        });
        let Some(told) = sent else { return false };
        let path = &mut self.paths[index];
        path.spend(datagram_overhead(path.id) + plain_len);
        if feedback.is_some() {
            path.arrivals.on_feedback_sent();
        }
        path.counters.carried += len as u64;
        if let Some(fields) = told
            && let Some(header) = SessionHeader::new(&fields)
        {
            self.tell(load.slot, load.session, Told { fields, header });
        } else if tell_again {
            self.tell_again(load.slot, load.session);
        }
        true
    }

    /// The peer need not wait for `sequence` any longer, if it does: in a session put in order.
    fn skip(&mut self, ordered: bool, session: SessionId, sequence: u32) {
        if !ordered {
            return;
        }
        self.outbox.owe(Notice::Skip(Skip { session, first: sequence, count: 1 }));
    }

    /// Losses found outside of a feedback frame: congestion control and repair.
    pub(super) fn apply_losses(&mut self, now: Instant, index: PathIndex) {
        let (packets, bytes) = (self.losses.summary.packets, self.losses.summary.bytes);
        if packets > 0 {
            let path = self.paths[index].id.0;
            self.trace.record(now, path, || What::Lost { packets, bytes });
        }
        let own = self.gather_subflows(index);
        let Self { paths, losses, subflows, .. } = self;
        paths[index].on_losses(now, &losses.summary, subflows, own);
        self.repair_losses(Loss::Congestion);
    }

    /// What was lost goes out again, or its receiver is told that it will not.
    pub(super) fn repair_losses(&mut self, loss: Loss) {
        while let Some(content) = self.losses.arrived.pop() {
            if let Content::Control(notices) = content {
                notices.into_iter().for_each(|notice| self.on_notice(notice, true));
            }
        }
        let mut lost = core::mem::take(&mut self.losses.lost);
        let any = lost.iter().any(mpip_transport::Content::is_packet);
        for content in lost.drain(..) {
            match content {
                Content::Packet(cargo) => self.repair(loss, cargo),
                Content::Control(notices) => {
                    notices.into_iter().for_each(|notice| self.on_notice(notice, false));
                }
            }
        }
        self.losses.lost = lost;
        if loss == Loss::PathDied && any {
            // What was on its way for the second time is what the receiver waits for.
            self.repairs.make_contiguous().sort_by_key(oldest_first);
        }
    }

    /// An inner packet was lost.
    fn repair(&mut self, loss: Loss, cargo: Cargo) {
        // Where nothing else holds the inner TCP back, its losses do.
        let repair =
            loss == Loss::PathDied || self.config.congestion_control != CongestionControlKind::None;
        if !repair {
            return self.skip(cargo.ordered, cargo.session, cargo.sequence);
        }
        if self.repairs.len() >= REPAIRS
            && let Some(oldest) = self.repairs.pop_front()
        {
            self.skip(oldest.ordered, oldest.session, oldest.sequence);
        }
        self.repairs.push_back(cargo);
    }

    /// A notice has arrived, or was lost.
    fn on_notice(&mut self, notice: Notice, arrived: bool) {
        match notice {
            Notice::SessionOpen(slot, id) => self.settle_open(slot, id, arrived),
            _ if arrived => {}
            _ => {
                self.outbox.owe(notice);
            }
        }
    }

    /// Whether another path has said that a packet which was given up has arrived.
    pub(super) fn has_arrived(&self, cargo: &Cargo) -> bool {
        let path = self.paths.get(cargo.path);
        path.is_some_and(|path| path.flight.arrived_elsewhere(cargo.number))
    }

    /// Forgets what would be sent again next and has arrived. What is behind it has its turn later, so
    /// that feedback costs no more when much is to be sent again.
    pub(super) fn drop_arrived_repairs(&mut self) {
        while self.repairs.front().is_some_and(|cargo| self.has_arrived(cargo)) {
            self.repairs.pop_front();
        }
    }

    /// The path has fallen silent: the newest packet on it may have been the last of a transfer,
    /// whose loss nothing later would show. It goes out again on a path that answers.
    pub(super) fn probe_tail(&mut self, now: Instant, index: PathIndex) {
        let others = self.paths.enumerate();
        let mut others = others.filter(|(other, path)| *other != index && path.is_usable());
        if others.next().is_some()
            && let Some(Content::Packet(cargo)) = self.paths[index].flight.newest()
            && now.since(cargo.first_sent) <= REPAIR_FOR
        {
            self.repairs.push_back(cargo.clone());
        }
    }
}
