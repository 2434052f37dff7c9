//! Outgoing sessions: the send queue, the repair of lost packets, and the header fields that the
//! peer knows.

pub(crate) mod form;
mod header_fields;
mod run;

use core::time::Duration;
use std::collections::VecDeque;

use mpip_types::Instant;
use mpip_types::packet::{Header, Segments, SessionKey, protocol};
use mpip_wire::{PathId, SessionId};

pub(crate) use run::{Allowed, NextPacket, Run};

use super::outbox::{Notice, Outbox, Skip};
use super::path_set::PathSet;
use crate::config::{Limits, PeerConfig, Priority, SchedulerKind};
use crate::content::SentPacket;
use crate::drops::DropReason;
use crate::guard::Period;
use crate::outgoing_sessions::OutgoingSessions;
use crate::parameters::{
    FallBackParameters, InteractiveParameters, Parameters, RepairParameters, UdpTransportParameters,
};
use crate::queue::{Burst, SendQueue};
use crate::rules::{PathLimit, RuleTable, Treatment};
use crate::session::Outgoing;

/// Most packets that wait for retransmission; beyond this the oldest is dropped.
const REPAIRS: usize = 16_384;

/// Most sessions that are confined to a path; beyond this the oldest is free again.
const CONFINED: usize = 16;

/// Most flows of UDP that the peer has begun and this host has not answered yet, of which that is
/// known; beyond this the oldest is forgotten. More than begin in the few ms that a host takes to
/// answer.
const UNANSWERED: usize = 64;

/// Most retransmissions that are passed over because the paths that they may take are full.
const REPAIRS_PASSED: usize = 64;

/// Why packets were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossCause {
    /// Single packets, on a path that works.
    Congestion,
    /// Everything in flight on a path that failed or was abandoned.
    PathFailed,
    /// They are not lost: an idle path delivers them sooner.
    Overtaken,
}

/// Whether the packets of a session are whole ones of `protocol`. Fragments have no ports, and most
/// of them no header of the protocol.
fn is_whole(key: &SessionKey, protocol: u8) -> bool {
    key.protocol == protocol && key.source.port != 0
}

/// Whether interactive flows are recognised: not with the schedulers of the seeds, so that these do
/// what the publications say.
fn recognises(config: &PeerConfig) -> bool {
    config.scheduler == SchedulerKind::Earliest
}

/// The paths for a packet of the session in `slot`: the one that `confined` names, or those that
/// its rule permits.
fn allowed(
    confined: &[(SessionKey, PathId)],
    sessions: &OutgoingSessions,
    slot: u32,
    by_rule: PathLimit,
) -> Allowed {
    // Hardly ever is there any.
    let key = confined.first().and_then(|_| sessions.key(slot));
    let path = key.and_then(|key| confined.iter().find(|(other, _)| other == key));
    path.map_or(Allowed::ByRule(by_rule), |(_, path)| Allowed::Confined(*path))
}

/// Sort key: the order in which packets were first sent.
fn oldest_first(packet: &SentPacket) -> (Instant, u32, u32) {
    (packet.first_sent, packet.slot, packet.sequence)
}

/// The sending half of an association.
#[derive(Debug)]
pub(crate) struct Sending {
    parameters: RepairParameters,
    udp_transport: UdpTransportParameters,
    interactive: InteractiveParameters,
    fall_back: FallBackParameters,
    /// Whether interactive flows are recognised.
    recognises: bool,
    sessions: OutgoingSessions,
    next_session: u32,
    /// Whether the receiver resequences TCP sessions.
    resequencing: bool,
    queue: SendQueue<Queued>,
    repairs: VecDeque<SentPacket>,
    /// How many of them were passed over in this round; 0 between rounds.
    repairs_passed: usize,
    /// Sessions that may take one path only, for measurements.
    confined: Vec<(SessionKey, PathId)>,
    /// Flows of UDP that the peer has begun and this host has not answered yet, as this host will
    /// send them.
    unanswered: VecDeque<SessionKey>,
    /// Since when there has been something to send, ignoring short idle gaps, and since when the
    /// queue is empty.
    busy_since: Instant,
    idle_since: Option<Instant>,
    /// Since when no path works, although there are keys.
    outage_since: Option<Instant>,
    /// Bytes sent in this period.
    period: Period,
    /// Bytes of inner packets sent, without retransmissions and copies.
    bytes: u64,
    /// Bytes of their copies.
    copied: u64,
}

/// A packet or super-packet that waits to be sent.
#[derive(Debug)]
pub(crate) struct Queued {
    segments: Segments,
    treatment: Treatment,
}

impl Burst for Queued {
    fn count(&self) -> usize {
        self.segments.count()
    }

    fn segment_len(&self, index: usize) -> usize {
        self.segments.segment_len(index)
    }

    fn remaining_len(&self, index: usize) -> usize {
        self.segments.remaining_len(index)
    }

    fn ecn_capable(&self) -> bool {
        self.segments.ecn_capable()
    }
}

impl Sending {
    /// Without sessions.
    pub(crate) fn new(
        now: Instant,
        limits: &Limits,
        parameters: &Parameters,
        config: &PeerConfig,
        seed: [u8; 16],
    ) -> Self {
        Self {
            parameters: parameters.repair,
            udp_transport: parameters.udp_transport,
            interactive: parameters.interactive,
            fall_back: parameters.fall_back,
            recognises: recognises(config),
            sessions: OutgoingSessions::new(limits.sessions, seed),
            next_session: 0,
            resequencing: config.resequencing,
            queue: SendQueue::new(limits.send_queue, limits.sessions),
            repairs: VecDeque::new(),
            repairs_passed: 0,
            confined: Vec::new(),
            unanswered: VecDeque::new(),
            busy_since: now,
            idle_since: Some(now),
            outage_since: None,
            period: Period::default(),
            bytes: 0,
            copied: 0,
        }
    }

    /// Removes the sessions and all waiting packets: the peer does not know them.
    pub(crate) fn reset(&mut self, limits: &Limits, seed: [u8; 16]) {
        self.sessions = OutgoingSessions::new(limits.sessions, seed);
        self.next_session = 0;
        self.queue = SendQueue::new(limits.send_queue, limits.sessions);
        self.repairs.clear();
        self.confined.clear();
        self.unanswered.clear();
    }

    /// Packets of the session `key` take `path` only, as long as it works; with `None`, any path
    /// again.
    pub(crate) fn confine(&mut self, key: SessionKey, path: Option<PathId>) {
        self.confined.retain(|(other, _)| *other != key);
        if let Some(path) = path {
            if self.confined.len() >= CONFINED {
                self.confined.remove(0);
            }
            self.confined.push((key, path));
        }
    }

    /// Follows a changed configuration.
    pub(crate) fn configure(&mut self, config: &PeerConfig) {
        self.resequencing = config.resequencing;
        self.recognises = recognises(config);
    }

    /// The sessions.
    pub(crate) fn sessions(&self) -> &OutgoingSessions {
        &self.sessions
    }

    /// The session in `slot`.
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Outgoing> {
        self.sessions.get_mut(slot)
    }

    /// The send queue.
    pub(crate) fn queue(&self) -> &SendQueue<Queued> {
        &self.queue
    }

    /// The send queue.
    pub(crate) fn queue_mut(&mut self) -> &mut SendQueue<Queued> {
        &mut self.queue
    }

    /// Packets that wait for retransmission.
    pub(crate) fn repairs(&self) -> &VecDeque<SentPacket> {
        &self.repairs
    }

    /// Bytes of inner packets sent, without retransmissions and copies.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of copies sent on further paths.
    pub(crate) fn copied(&self) -> u64 {
        self.copied
    }

    /// A copy of `len` bytes was sent on a further path.
    pub(crate) fn on_copy_sent(&mut self, len: usize) {
        self.copied += len as u64;
    }

    /// Bytes sent since the last call.
    pub(crate) fn take_period(&mut self) -> Period {
        core::mem::take(&mut self.period)
    }

    /// Since when there has been something to send, ignoring short idle gaps.
    pub(crate) fn busy_since(&self) -> Instant {
        self.busy_since
    }

    /// Whether packets wait to be sent.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.queue.is_empty() || !self.repairs.is_empty()
    }

    /// Queues a packet or super-packet from the host to `peer`, which is treated as `rules` say.
    /// Returns whether its session is [stuck](Outgoing::is_stuck).
    ///
    /// # Errors
    ///
    /// When the same segments of a TCP stream are already queued.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        header: &Header,
        mut segments: Segments,
        rules: &RuleTable,
        peer: &str,
    ) -> Result<bool, DropReason> {
        let key = header.session();
        let slot = match self.sessions.find(&key) {
            Some(slot) => slot,
            None => self.open_session(now, key),
        };
        self.sessions.touch(slot, now);
        let overtakes = self.queue.has_throughput(slot);
        let stream = is_whole(&key, protocol::TCP).then(|| segments.whole_stream()).flatten();
        let mut treatment = Treatment::default();
        let mut stuck = false;
        if let Some(session) = self.sessions.get_mut(slot) {
            let (count, len) = (segments.count(), segments.segment_len(0));
            treatment = rules.treatment_in(&mut session.known_rules, peer, header, len);
            let interactive = session.credit.spend(now, count, len, &self.interactive);
            // A handshake and acknowledgements tell an inner TCP what the paths are like: they go
            // by the paths of the data.
            let speaks = match key.protocol {
                protocol::TCP => stream.is_some_and(|(len, _)| len > 0),
                _ => session.speaks(),
            };
            if self.recognises && interactive && speaks && !treatment.by_rule {
                treatment.priority = Priority::Response;
            }
            // Packets are numbered when they leave: one that overtook others of its session would
            // be delivered before them.
            if overtakes && treatment.ordered.unwrap_or(session.ordered) {
                treatment.priority = Priority::Throughput;
            }
            if let Some(dscp) = treatment.set_dscp {
                segments.set_dscp(dscp);
            }
            session.repair = treatment.repair;
            if self.resequencing && is_whole(&key, protocol::UDP) {
                session.on_datagrams(len, &self.udp_transport);
            }
            if let Some((len, end)) = stream {
                let segment = segments.stream(0).map_or(len, |(first, _)| first);
                session.on_segments(now, segment as u32, end);
                let news = session.queues(len as u32, end);
                let waits = self.queue.flow_bytes(slot) > 0;
                if self.parameters.drops_waiting && !news && waits {
                    return Err(DropReason::Waits);
                }
                if !waits && (len > 0 || header.has_syn(segments.packet().bytes())) {
                    stuck = session.is_stuck(now, end, &self.fall_back);
                }
            }
        }
        if let Some(idle) = self.idle_since.take()
            && now.since(idle) > self.parameters.pause
        {
            self.busy_since = now;
        }
        self.queue.push(now, slot, treatment.priority, Queued { segments, treatment });
        Ok(stuck)
    }

    /// Ends the session `key`, and hands what waits of it in the queue to `take`. Packets in flight
    /// are not sent again.
    pub(crate) fn end_session(&mut self, key: &SessionKey, mut take: impl FnMut(Segments, usize)) {
        let Some(slot) = self.sessions.find(key) else { return };
        self.queue.take_flow(slot, |item, segment| take(item.segments.clone(), segment));
        self.sessions.remove(slot);
    }

    /// The peer sends to the flow of UDP `key`, in which this host has not sent anything yet: when
    /// it does, the flow is an answered one from its first packet on.
    pub(crate) fn await_answered(&mut self, key: SessionKey) {
        if self.unanswered.len() >= UNANSWERED {
            self.unanswered.pop_front();
        }
        self.unanswered.push_back(key);
    }

    fn open_session(&mut self, now: Instant, key: SessionKey) -> u32 {
        let id = SessionId(self.next_session);
        self.next_session = self.next_session.wrapping_add(1);
        let mut session = Outgoing::new(id, &key, self.resequencing);
        if let Some(index) = self.unanswered.iter().position(|other| *other == key) {
            self.unanswered.remove(index);
            session.on_answer(false);
        }
        let inserted = self.sessions.insert(now, key, session);
        if let Some(removed) = inserted.removed {
            self.queue.discard(removed.index);
        }
        inserted.index
    }

    /// Removes sessions that were idle for `idle`.
    pub(crate) fn expire(&mut self, now: Instant, idle: Duration) {
        while let Some(removed) = self.sessions.expire(now, idle) {
            self.queue.discard(removed.index);
        }
    }

    /// Drops all waiting packets; returns how many were in the queue. The peer is told not to wait
    /// for lost packets.
    pub(crate) fn drop_queued(&mut self, outbox: &mut Outbox) -> u64 {
        let mut dropped = 0;
        self.queue.drain(|_, _, _| dropped += 1);
        for packet in core::mem::take(&mut self.repairs) {
            skip(outbox, packet.ordered, packet.session, packet.sequence);
        }
        dropped
    }

    /// Takes out all waiting packets with the slots of their sessions: first lost packets that are
    /// still useful, in the order in which they were first sent, then the queue. Sessions of which
    /// something was already sent start anew.
    pub(crate) fn take_all(
        &mut self,
        now: Instant,
        paths: &PathSet,
        mut take: impl FnMut(u32, Segments, usize),
    ) {
        let mut repairs = Vec::from(core::mem::take(&mut self.repairs));
        repairs.retain(|packet| !has_arrived(paths, packet));
        repairs.sort_by_key(oldest_first);
        // Some were sent more than once.
        repairs.dedup_by_key(|packet| (packet.slot, packet.session, packet.sequence));
        let mut begun = Vec::new();
        for packet in repairs {
            begun.push((packet.slot, packet.session));
            if now.since(packet.first_sent) <= self.parameters.longest {
                take(packet.slot, packet.segments, packet.segment.into());
            }
        }
        self.queue.drain(|flow, item, segment| take(flow, item.segments.clone(), segment));
        for (slot, id) in begun {
            if self.sessions.get(slot).is_some_and(|session| session.id == id) {
                self.sessions.remove(slot);
                self.queue.discard(slot);
            }
        }
    }

    /// An outage begins: no path works.
    pub(crate) fn begin_outage(&mut self, now: Instant) {
        self.outage_since.get_or_insert(now);
    }

    /// The outage ends: a path works, or accepts packets before it is validated. The time of the
    /// outage does not count as queuing delay.
    pub(crate) fn end_outage(&mut self, now: Instant) {
        if let Some(since) = self.outage_since.take() {
            self.queue.pardon(now + self.parameters.outage_pardon);
            let outage = now.since(since);
            let ordered = self.repairs.iter_mut().filter(|packet| packet.ordered);
            ordered.for_each(|packet| packet.first_sent += outage);
        }
    }

    /// Everything that may be sent now was sent.
    pub(crate) fn settle(&mut self, now: Instant) {
        self.repairs_passed = 0;
        if !self.has_waiting() {
            self.idle_since.get_or_insert(now);
        }
    }

    /// The next packets to send: retransmissions before new packets.
    pub(crate) fn next_run(
        &mut self,
        now: Instant,
        paths: &PathSet,
        outbox: &mut Outbox,
    ) -> Option<Run> {
        loop {
            self.drop_arrived(paths);
            let Some(packet) = self.repairs.get(self.repairs_passed) else { break };
            if now.since(packet.first_sent) <= self.parameters.longest {
                let session = self.sessions.get(packet.slot);
                let session = session.filter(|known| known.id == packet.session);
                let next = NextPacket {
                    segments: packet.segments.clone(),
                    segment: usize::from(packet.segment),
                    len: packet.segments.segment_len(packet.segment.into()),
                    slot: packet.slot,
                    session: packet.session,
                    sequence: packet.sequence,
                    ordered: packet.ordered,
                    repair: true,
                    mark: packet.marked,
                    treatment: Treatment { paths: packet.paths, ..Treatment::default() },
                    first_sent: Some(packet.first_sent),
                    allowed: allowed(&self.confined, &self.sessions, packet.slot, packet.paths),
                    hold: session.and_then(Outgoing::hold),
                };
                return Some(Run::of(next, 1));
            }
            let (ordered, session, sequence) = (packet.ordered, packet.session, packet.sequence);
            self.take_repair();
            skip(outbox, ordered, session, sequence);
        }
        loop {
            let candidate = self.queue.next(now)?;
            let Some(session) = self.sessions.get(candidate.flow) else {
                let flow = candidate.flow;
                self.queue.discard(flow);
                continue;
            };
            let treatment = candidate.item.treatment;
            let ordered = treatment.ordered.unwrap_or(session.ordered);
            // A later acknowledgement says more, and would wait for the repair of one that was
            // lost.
            let is_pure_ack = candidate.item.segments.is_pure_ack();
            let next = NextPacket {
                segments: candidate.item.segments.clone(),
                segment: candidate.segment,
                len: candidate.len,
                slot: candidate.flow,
                session: session.id,
                sequence: session.next_sequence,
                ordered: ordered && !is_pure_ack,
                // The receiver would wait for lost packets of those that it puts in order.
                repair: ordered || session.ordered || session.repair,
                mark: candidate.mark,
                treatment,
                first_sent: None,
                allowed: allowed(&self.confined, &self.sessions, candidate.flow, treatment.paths),
                hold: session.hold().filter(|_| !is_pure_ack),
            };
            return Some(Run::of(next, candidate.count));
        }
    }

    /// Drops `next`: no path carries it.
    pub(crate) fn drop_packet(&mut self, next: &NextPacket, outbox: &mut Outbox) {
        if next.first_sent.is_some() {
            self.take_repair();
            skip(outbox, next.ordered, next.session, next.sequence);
        } else {
            self.queue.take();
        }
    }

    /// Records that `next` was sent on `path`.
    pub(crate) fn on_packet_sent(&mut self, now: Instant, path: PathId, next: &NextPacket) {
        let session = self.sessions.get_mut(next.slot);
        if let Some(session) = session.filter(|known| known.id == next.session) {
            session.counters.paths.add(now, path);
        }
    }

    /// Takes out what was sent of `run`.
    pub(crate) fn on_run_sent(&mut self, now: Instant, run: &Run) {
        let &Run { ref next, sent, .. } = run;
        if sent == 0 {
            return;
        }
        let session = self.sessions.get_key_value_mut(next.slot);
        let session = session.filter(|(_, known)| known.id == next.session);
        if next.first_sent.is_some() {
            self.repairs.remove(self.repairs_passed);
            if let Some((_, session)) = session {
                session.repaired += 1;
            }
            return;
        }
        self.queue.take_run(sent);
        let bytes = (sent * next.len) as u64;
        self.bytes += bytes;
        if let Some((key, session)) = session {
            let first = || next.segments.stream(next.segment - sent);
            let (left, new) = match is_whole(key, protocol::TCP).then(first).flatten() {
                Some((payload, end)) => {
                    let behind = (sent - 1) * payload;
                    let last = end.wrapping_add(behind as u32);
                    let new = session.on_segment(end) + session.on_segment(last);
                    ((payload + behind) as u64, new)
                }
                None => (bytes, bytes),
            };
            if next.treatment.priority == Priority::Throughput {
                self.period.left += left;
                self.period.new += new;
                self.period.held |= next.hold.is_some();
            }
            session.next_sequence = next.sequence;
            session.counters.count(sent, next.len);
        }
        self.sessions.touch(next.slot, now);
    }

    /// Queues a lost packet for retransmission.
    pub(crate) fn repair(&mut self, packet: SentPacket, outbox: &mut Outbox) {
        if self.repairs.len() >= REPAIRS
            && let Some(oldest) = self.repairs.pop_front()
        {
            skip(outbox, oldest.ordered, oldest.session, oldest.sequence);
        }
        self.repairs.push_back(packet);
    }

    /// A lost packet is not sent again: tells the receiver.
    pub(crate) fn give_up(&mut self, packet: &SentPacket, outbox: &mut Outbox) {
        skip(outbox, packet.ordered, packet.session, packet.sequence);
    }

    /// Sorts retransmissions by the time of first sending: the receiver waits for packets that were
    /// already retransmissions when they were lost.
    pub(crate) fn sort_repairs(&mut self) {
        self.repairs.make_contiguous().sort_by_key(oldest_first);
    }

    /// Sends `packet` again if it is still useful: it may have been lost.
    pub(crate) fn repeat(&mut self, now: Instant, packet: &SentPacket) {
        if now.since(packet.first_sent) <= self.parameters.longest {
            self.repairs.push_back(packet.clone());
        }
    }

    /// Drops the next packets of the retransmission queue if they have arrived. Later ones are
    /// checked when it is their turn, so that the cost of feedback does not grow with the queue.
    pub(crate) fn drop_arrived(&mut self, paths: &PathSet) {
        let arrived = |packet: &SentPacket| has_arrived(paths, packet);
        while self.repairs.get(self.repairs_passed).is_some_and(arrived) {
            self.take_repair();
        }
    }

    /// Removes the next packet of the retransmission queue.
    fn take_repair(&mut self) {
        self.repairs.remove(self.repairs_passed);
    }

    /// Sessions that were passed over have their turn again.
    pub(crate) fn begin_round(&mut self) {
        self.queue.bring_back();
    }

    /// The paths that `next` may take are full: others go first until the next round. `false` if
    /// too many had to wait already.
    pub(crate) fn pass_over(&mut self, next: &NextPacket) -> bool {
        if next.first_sent.is_none() {
            return self.queue.set_aside();
        }
        let passed = self.repairs_passed + 1 < REPAIRS_PASSED;
        self.repairs_passed += usize::from(passed);
        passed
    }

    /// How many retransmissions go ahead of the next packet, by paths that have no room yet.
    pub(crate) fn repairs_passed(&self) -> usize {
        self.repairs_passed
    }

    /// The next packet is a retransmission that waits for a faster path. So do as many after it as
    /// there are ahead of it; then it is asked again, because those further behind may be sooner
    /// by a slower path.
    pub(crate) fn pass_over_repairs(&mut self) {
        self.repairs_passed = (2 * self.repairs_passed + 1).min(self.repairs.len());
    }

    /// Drops all packets in the retransmission queue that have arrived.
    pub(crate) fn retain_missing(&mut self, paths: &PathSet) {
        self.repairs.retain(|packet| !has_arrived(paths, packet));
    }
}

/// In an ordered session, tells the peer not to wait for `sequence`.
fn skip(outbox: &mut Outbox, ordered: bool, session: SessionId, sequence: u32) {
    if ordered {
        outbox.owe(Notice::Skip(Skip { session, first: sequence, count: 1 }));
    }
}

/// Whether feedback on another path says that a packet of an abandoned or failed path has arrived.
fn has_arrived(paths: &PathSet, packet: &SentPacket) -> bool {
    paths.get(packet.path).is_some_and(|path| path.flight.arrived_elsewhere(packet.number))
}
