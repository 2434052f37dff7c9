//! The sessions in which this host sends: what waits in the queue, what was lost and is repaired,
//! and what the peer knows of their headers.

pub(crate) mod form;
mod header_fields;

use core::time::Duration;
use std::collections::VecDeque;

use mpip_types::Instant;
use mpip_types::packet::{Segments, SessionKey, protocol};
use mpip_wire::SessionId;

use super::outbox::{Notice, Outbox, Skip};
use super::path_set::PathSet;
use crate::config::{Limits, Priority};
use crate::content::SentPacket;
use crate::drops::DropReason;
use crate::guard::Period;
use crate::outgoing_sessions::OutgoingSessions;
use crate::parameters::RepairParameters;
use crate::queue::SendQueue;
use crate::rules::Treatment;
use crate::session::Outgoing;

/// Packets that wait to be sent again; beyond it the oldest is given up.
const REPAIRS: usize = 16_384;

/// Why packets were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossCause {
    /// One by one, on a path that works.
    Congestion,
    /// All that was in flight on a path.
    PathFailed,
}

/// What leaves next.
pub(crate) struct NextPacket {
    pub(crate) segments: Segments,
    pub(crate) segment: usize,
    pub(crate) slot: u32,
    pub(crate) session: SessionId,
    pub(crate) sequence: u32,
    pub(crate) ordered: bool,
    pub(crate) repair: bool,
    pub(crate) mark: bool,
    pub(crate) priority: Priority,
    /// When it left before; `None` for the first time.
    pub(crate) first_sent: Option<Instant>,
}

/// Whether the packets of a session are segments of a TCP stream. Fragments have no ports, and most
/// of them no TCP header.
fn is_stream(key: &SessionKey) -> bool {
    key.protocol == protocol::TCP && key.source.port != 0
}

/// The order in which packets left for the first time.
fn oldest_first(packet: &SentPacket) -> (Instant, u32, u32) {
    (packet.first_sent, packet.slot, packet.sequence)
}

/// The sending half of an association.
#[derive(Debug)]
pub(crate) struct Sending {
    parameters: RepairParameters,
    sessions: OutgoingSessions,
    next_session: u32,
    /// Whether the receiver is to put TCP sessions in order.
    resequencing: bool,
    queue: SendQueue<Segments>,
    repairs: VecDeque<SentPacket>,
    /// Since when there has been something to send, but for short pauses, and since when there is
    /// not.
    busy_since: Instant,
    idle_since: Option<Instant>,
    /// Since when no path works, although there are keys.
    outage_since: Option<Instant>,
    /// What left in this period.
    period: Period,
    /// Bytes of inner packets that left for the first time.
    bytes: u64,
}

impl Sending {
    /// Without sessions.
    pub(crate) fn new(
        now: Instant,
        limits: &Limits,
        parameters: &RepairParameters,
        resequencing: bool,
        seed: [u8; 16],
    ) -> Self {
        Self {
            parameters: *parameters,
            sessions: OutgoingSessions::new(limits.sessions, seed),
            next_session: 0,
            resequencing,
            queue: SendQueue::new(limits.send_queue, limits.sessions),
            repairs: VecDeque::new(),
            busy_since: now,
            idle_since: Some(now),
            outage_since: None,
            period: Period::default(),
            bytes: 0,
        }
    }

    /// Forgets the sessions and what waits: the peer knows nothing of them.
    pub(crate) fn reset(&mut self, limits: &Limits, seed: [u8; 16]) {
        self.sessions = OutgoingSessions::new(limits.sessions, seed);
        self.next_session = 0;
        self.queue = SendQueue::new(limits.send_queue, limits.sessions);
        self.repairs.clear();
    }

    /// The sessions.
    pub(crate) fn sessions(&self) -> &OutgoingSessions {
        &self.sessions
    }

    /// The session in `slot`.
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Outgoing> {
        self.sessions.get_mut(slot)
    }

    /// What waits for a path.
    pub(crate) fn queue(&self) -> &SendQueue<Segments> {
        &self.queue
    }

    /// What waits for a path.
    pub(crate) fn queue_mut(&mut self) -> &mut SendQueue<Segments> {
        &mut self.queue
    }

    /// What was lost and waits to be sent again.
    pub(crate) fn repairs(&self) -> &VecDeque<SentPacket> {
        &self.repairs
    }

    /// Bytes of inner packets that left for the first time.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What left since the last call.
    pub(crate) fn take_period(&mut self) -> Period {
        core::mem::take(&mut self.period)
    }

    /// Since when there has been something to send, but for short pauses.
    pub(crate) fn busy_since(&self) -> Instant {
        self.busy_since
    }

    /// Whether packets wait to be sent.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.queue.is_empty() || !self.repairs.is_empty()
    }

    /// Takes a packet or super-packet from the host into the queue.
    ///
    /// # Errors
    ///
    /// When the same segments of a TCP stream wait already.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        key: SessionKey,
        segments: Segments,
        treatment: Treatment,
    ) -> Result<(), DropReason> {
        let slot = match self.sessions.find(&key) {
            Some(slot) => slot,
            None => self.open_session(now, key),
        };
        self.sessions.touch(slot, now);
        if let Some(session) = self.sessions.get_mut(slot) {
            session.repair = treatment.repair;
            if is_stream(&key)
                && let Some((len, end)) = segments.whole_stream()
            {
                let segment = segments.stream(0).map_or(len, |(first, _)| first);
                session.on_segments(now, segment as u32, end);
                let news = session.queues(len as u32, end);
                if self.parameters.drops_waiting && !news && self.queue.flow_bytes(slot) > 0 {
                    return Err(DropReason::Waits);
                }
            }
        }
        if let Some(idle) = self.idle_since.take()
            && now.since(idle) > self.parameters.pause
        {
            self.busy_since = now;
        }
        self.queue.push(now, slot, treatment.priority, segments);
        Ok(())
    }

    fn open_session(&mut self, now: Instant, key: SessionKey) -> u32 {
        let id = SessionId(self.next_session);
        self.next_session = self.next_session.wrapping_add(1);
        let session = Outgoing::new(id, &key, self.resequencing);
        let inserted = self.sessions.insert(now, key, session);
        if let Some(removed) = inserted.removed {
            self.queue.discard(removed.index);
        }
        inserted.index
    }

    /// Forgets sessions that carried nothing for `idle`.
    pub(crate) fn expire(&mut self, now: Instant, idle: Duration) {
        while let Some(removed) = self.sessions.expire(now, idle) {
            self.queue.discard(removed.index);
        }
    }

    /// Drops what waits for a path; returns how many packets of the queue. What had left before,
    /// and was lost, the peer need not wait for.
    pub(crate) fn drop_queued(&mut self, outbox: &mut Outbox) -> u64 {
        let mut dropped = 0;
        self.queue.drain(|_, _, _| dropped += 1);
        for packet in core::mem::take(&mut self.repairs) {
            skip(outbox, packet.ordered, packet.session, packet.sequence);
        }
        dropped
    }

    /// Takes everything out that waits, with the slot of its session: what was lost and may still
    /// be of use, in the order in which it left, then the queue. Sessions of which something
    /// had left begin anew.
    pub(crate) fn take_all(
        &mut self,
        now: Instant,
        paths: &PathSet,
        mut take: impl FnMut(u32, Segments, usize),
    ) {
        let mut repairs = Vec::from(core::mem::take(&mut self.repairs));
        repairs.retain(|packet| !has_arrived(paths, packet));
        repairs.sort_by_key(oldest_first);
        // Some left more than once.
        repairs.dedup_by_key(|packet| (packet.slot, packet.session, packet.sequence));
        let mut begun = Vec::new();
        for packet in repairs {
            begun.push((packet.slot, packet.session));
            if now.since(packet.first_sent) <= self.parameters.longest {
                take(packet.slot, packet.segments, packet.segment.into());
            }
        }
        self.queue.drain(|flow, segments, segment| take(flow, segments.clone(), segment));
        for (slot, id) in begun {
            if self.sessions.get(slot).is_some_and(|session| session.id == id) {
                self.sessions.remove(slot);
                self.queue.discard(slot);
            }
        }
    }

    /// No path works.
    pub(crate) fn begin_outage(&mut self, now: Instant) {
        self.outage_since.get_or_insert(now);
    }

    /// A path works, or takes something before it does: what waited for that is not late.
    pub(crate) fn end_outage(&mut self, now: Instant) {
        if let Some(since) = self.outage_since.take() {
            self.queue.pardon(now + self.parameters.outage_pardon);
            let outage = now.since(since);
            let ordered = self.repairs.iter_mut().filter(|packet| packet.ordered);
            ordered.for_each(|packet| packet.first_sent += outage);
        }
    }

    /// All that may leave now has left.
    pub(crate) fn settle(&mut self, now: Instant) {
        if !self.has_waiting() {
            self.idle_since.get_or_insert(now);
        }
    }

    /// The next packet to leave: repairs before what is new.
    pub(crate) fn next_packet(
        &mut self,
        now: Instant,
        paths: &PathSet,
        uneven: bool,
        outbox: &mut Outbox,
    ) -> Option<NextPacket> {
        self.drop_arrived(paths);
        while let Some(packet) = self.repairs.front() {
            if now.since(packet.first_sent) <= self.parameters.longest {
                return Some(NextPacket {
                    segments: packet.segments.clone(),
                    segment: usize::from(packet.segment),
                    slot: packet.slot,
                    session: packet.session,
                    sequence: packet.sequence,
                    ordered: packet.ordered,
                    repair: true,
                    mark: packet.marked,
                    priority: Priority::Throughput,
                    first_sent: Some(packet.first_sent),
                });
            }
            let (ordered, session, sequence) = (packet.ordered, packet.session, packet.sequence);
            self.repairs.pop_front();
            skip(outbox, ordered, session, sequence);
            self.drop_arrived(paths);
        }
        loop {
            let candidate = self.queue.next(now)?;
            let Some(session) = self.sessions.get(candidate.flow) else {
                let flow = candidate.flow;
                self.queue.discard(flow);
                continue;
            };
            return Some(NextPacket {
                segments: candidate.item.clone(),
                segment: candidate.segment,
                slot: candidate.flow,
                session: session.id,
                sequence: session.next_sequence,
                ordered: session.ordered && !(uneven && candidate.item.is_pure_ack()),
                repair: session.ordered || session.repair,
                mark: candidate.mark,
                priority: candidate.priority,
                first_sent: None,
            });
        }
    }

    /// `next` is not sent: no path takes it.
    pub(crate) fn drop_packet(&mut self, next: &NextPacket, outbox: &mut Outbox) {
        if next.first_sent.is_some() {
            self.repairs.pop_front();
            skip(outbox, next.ordered, next.session, next.sequence);
        } else {
            self.queue.take();
        }
    }

    /// Takes note that `next` has left.
    pub(crate) fn on_packet_sent(&mut self, now: Instant, next: &NextPacket) {
        let session = self.sessions.get_key_value_mut(next.slot);
        let session = session.filter(|(_, known)| known.id == next.session);
        if next.first_sent.is_some() {
            self.repairs.pop_front();
            if let Some((_, session)) = session {
                session.repaired += 1;
            }
            return;
        }
        self.queue.take();
        let len = next.segments.segment_len(next.segment);
        self.bytes += len as u64;
        if let Some((key, session)) = session {
            let stream = is_stream(key).then(|| next.segments.stream(next.segment)).flatten();
            let (left, new) = match stream {
                Some((payload, end)) => (payload as u64, session.on_segment(end)),
                None => (len as u64, len as u64),
            };
            self.period.left += left;
            self.period.new += new;
            session.next_sequence = session.next_sequence.wrapping_add(1);
            session.counters.add(len);
        }
        self.sessions.touch(next.slot, now);
    }

    /// An inner packet was lost, and goes out again.
    pub(crate) fn repair(&mut self, packet: SentPacket, outbox: &mut Outbox) {
        if self.repairs.len() >= REPAIRS
            && let Some(oldest) = self.repairs.pop_front()
        {
            skip(outbox, oldest.ordered, oldest.session, oldest.sequence);
        }
        self.repairs.push_back(packet);
    }

    /// An inner packet was lost, and will not go out again.
    pub(crate) fn give_up(&mut self, packet: &SentPacket, outbox: &mut Outbox) {
        skip(outbox, packet.ordered, packet.session, packet.sequence);
    }

    /// What is to be sent again leaves in the order in which it left first: what was on its way for
    /// the second time is what the receiver waits for.
    pub(crate) fn sort_repairs(&mut self) {
        self.repairs.make_contiguous().sort_by_key(oldest_first);
    }

    /// `packet` may have been lost, and goes out again if it is still of use.
    pub(crate) fn repeat(&mut self, now: Instant, packet: &SentPacket) {
        if now.since(packet.first_sent) <= self.parameters.longest {
            self.repairs.push_back(packet.clone());
        }
    }

    /// Forgets what would be sent again next and has arrived. What is behind it has its turn later,
    /// so that feedback costs no more when much is to be sent again.
    pub(crate) fn drop_arrived(&mut self, paths: &PathSet) {
        while self.repairs.front().is_some_and(|packet| has_arrived(paths, packet)) {
            self.repairs.pop_front();
        }
    }

    /// Forgets all that would be sent again and has arrived.
    pub(crate) fn retain_missing(&mut self, paths: &PathSet) {
        self.repairs.retain(|packet| !has_arrived(paths, packet));
    }
}

/// The peer need not wait for `sequence` any longer, if it does: in a session put in order.
fn skip(outbox: &mut Outbox, ordered: bool, session: SessionId, sequence: u32) {
    if ordered {
        outbox.owe(Notice::Skip(Skip { session, first: sequence, count: 1 }));
    }
}

/// Whether another path has said that a packet which was given up has arrived.
fn has_arrived(paths: &PathSet, packet: &SentPacket) -> bool {
    paths.get(packet.path).is_some_and(|path| path.flight.arrived_elsewhere(packet.number))
}
