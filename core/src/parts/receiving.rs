//! Incoming sessions: their table, resequencing, and its timeouts.

use core::time::Duration;
use std::collections::BTreeSet;

use mpip_types::packet::{SessionKey, protocol};
use mpip_types::table::{Removed, Table};
use mpip_types::{InnerPacket, Instant, PacketSink};
use mpip_wire::{PathId, SessionId};

use super::withheld::Withheld;
use crate::drops::{DropReason, Drops};
use crate::resequencer::{Hold, HoldLimits, HoldPool, Received, Resequencer, Share};
use crate::session::{Answers, Incoming, Order};
use crate::window::Seen;

/// Resequencing timeout until the peer advertises one.
const INITIAL_MAX_WAIT: Duration = Duration::from_millis(100);
/// The longest resequencing timeout that a peer can ask for.
const LONGEST_MAX_WAIT: Duration = Duration::from_secs(2);

/// One session in so many may have a wide window of numbers (8 KiB).
const WIDE_PART: usize = 1_024;

/// How to deliver a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) sequence: u32,
    pub(crate) ordered: bool,
    pub(crate) arrival: Arrival,
}

/// How a packet came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The earliest delivery time.
    pub(crate) not_before: Instant,
    /// The path on which it came.
    pub(crate) path: PathId,
}

/// What becomes of a packet whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The host gets it, and then what was withheld before it.
    Deliver,
    /// The host gets it together with what was withheld, the newest first. Packets whose turn comes
    /// at the same time belong to that, too.
    Pass,
    /// A later packet repeats what it says.
    Thin,
    /// It is withheld until a later one is delivered, or until then.
    Withhold(Instant),
}

/// Decides what becomes of packets whose turn it is.
pub(crate) trait Judge {
    /// What becomes of `packet`. It belongs to a session that answers `answers`, and the windows
    /// that it tells are shifted by `shift` bits, if that is known.
    fn verdict(&mut self, packet: &InnerPacket<'_>, answers: Answers, shift: Option<u8>)
    -> Verdict;
}

/// What delivery needs: memory for held packets, drop counters, what decides about packets whose
/// turn it is, and the sink.
pub(crate) struct DeliveryContext<'a, S, J> {
    pub(crate) hold: &'a mut HoldPool,
    pub(crate) drops: &'a mut Drops,
    pub(crate) judge: J,
    pub(crate) sink: &'a mut S,
}

/// Gives the host what is due at one time of the session in `slot`.
struct Handover<'a, S, J> {
    slot: u32,
    answers: Answers,
    shift: Option<u8>,
    judge: &'a mut J,
    withheld: &'a mut Withheld,
    /// Bytes of inner packets delivered or withheld.
    bytes: &'a mut u64,
    sink: &'a mut S,
    thinned: u64,
    /// What is withheld of the session is due as well.
    releases: bool,
}

impl<S: PacketSink, J: Judge> Handover<'_, S, J> {
    fn packet(&mut self, packet: InnerPacket<'_>) {
        let withheld_until = match self.judge.verdict(&packet, self.answers, self.shift) {
            Verdict::Thin => {
                self.thinned += 1;
                return;
            }
            Verdict::Deliver => None,
            Verdict::Pass => {
                self.releases = true;
                Some(Instant::ZERO)
            }
            Verdict::Withhold(until) => Some(until),
        };
        *self.bytes += packet.len() as u64;
        if withheld_until.is_some_and(|until| self.withheld.hold(self.slot, until, &packet)) {
            return;
        }
        self.sink.packet(packet);
        self.releases = true;
    }

    /// Returns how many packets were dropped because later ones repeat what they say.
    fn finish(self) -> u64 {
        if self.releases && !self.withheld.is_empty() {
            self.withheld.release(self.slot, self.sink);
        }
        self.thinned
    }
}

/// The receiving half of an association.
#[derive(Debug)]
pub(crate) struct Receiving {
    sessions: Table<SessionId, Incoming>,
    share: Share,
    /// Maximum bytes that one session may hold.
    max_session: usize,
    /// Deadlines of sessions that wait for a gap, with their slots.
    waiting: BTreeSet<(Instant, u32)>,
    /// How many more sessions may have a wide window of numbers.
    wide_left: usize,
    withheld: Withheld,
    /// The resequencing timeout, and the number of the peer's advertisement of it.
    max_wait: Duration,
    wait_heard: u64,
    /// Bytes of inner packets delivered.
    bytes: u64,
}

impl Receiving {
    /// Without sessions. `sessions`: their maximum; `bytes`: the maximum held for resequencing.
    pub(crate) fn new(sessions: usize, bytes: usize, seed: [u8; 16]) -> Self {
        Self {
            sessions: Table::new(sessions, seed),
            share: Share::new(bytes),
            max_session: bytes / 2,
            waiting: BTreeSet::new(),
            wide_left: sessions.div_ceil(WIDE_PART),
            withheld: Withheld::default(),
            max_wait: INITIAL_MAX_WAIT,
            wait_heard: 0,
            bytes: 0,
        }
    }

    /// Removes the sessions and frees the packets that they held.
    pub(crate) fn reset(&mut self, limit: usize, seed: [u8; 16], pool: &mut HoldPool) {
        let hold = &mut Hold::new(pool, &mut self.share);
        for (_, _, session) in self.sessions.iter_mut() {
            if let Some(Order::Sequenced(resequencer)) = &mut session.order {
                resequencer.discard(hold);
            }
        }
        self.waiting.clear();
        self.withheld = Withheld::default();
        if pool.held() == 0 {
            pool.trim();
        }
        self.sessions = Table::new(limit, seed);
        self.wide_left = limit.div_ceil(WIDE_PART);
        self.max_wait = INITIAL_MAX_WAIT;
        self.wait_heard = 0;
    }

    /// The peer is unknown: its share of memory is smaller.
    pub(crate) fn of_unknown(&mut self) {
        self.share.of_unknown();
    }

    /// The sessions.
    pub(crate) fn sessions(&self) -> &Table<SessionId, Incoming> {
        &self.sessions
    }

    /// The session in `slot`.
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Incoming> {
        self.sessions.get_mut(slot)
    }

    /// Bytes of inner packets delivered.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Memory and number of held packets.
    pub(crate) fn share(&self) -> &Share {
        &self.share
    }

    /// Sessions that wait for a gap to close.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// When the next resequencing timeout ends, or a withheld packet is to be delivered.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let gap = self.waiting.first().map(|(deadline, _)| *deadline);
        gap.into_iter().chain(self.withheld.next_timeout()).min()
    }

    /// The peer advertises its resequencing timeout, as its update number `sequence`.
    pub(crate) fn on_resequencing(&mut self, sequence: u64, max_wait: Duration) {
        // An older advertisement may arrive by a slower path, or be repeated.
        if sequence > self.wait_heard {
            self.wait_heard = sequence;
            self.max_wait = max_wait.min(LONGEST_MAX_WAIT);
        }
    }

    /// The slot of session `id`, if it is known.
    ///
    /// # Errors
    ///
    /// When the session belongs to another connection than `key`.
    pub(crate) fn find(&self, id: SessionId, key: &SessionKey) -> Result<Option<u32>, DropReason> {
        let Some(slot) = self.sessions.find(&id) else { return Ok(None) };
        match self.sessions.get(slot) {
            Some(session) if session.key != *key => Err(DropReason::OtherSession),
            _ => Ok(Some(slot)),
        }
    }

    /// Adds a session; at the limit it replaces the session that was idle for longest.
    pub(crate) fn open(
        &mut self,
        now: Instant,
        id: SessionId,
        session: Incoming,
        pool: &mut HoldPool,
    ) -> u32 {
        let inserted = self.sessions.insert(now, id, session);
        if let Some(removed) = inserted.removed {
            self.give_back(removed, pool);
        }
        inserted.index
    }

    /// The peer closes session `id`.
    pub(crate) fn close(&mut self, id: SessionId, pool: &mut HoldPool) {
        if let Some(slot) = self.sessions.find(&id)
            && let Some(removed) = self.sessions.remove(slot)
        {
            self.give_back(removed, pool);
        }
    }

    /// Removes sessions that were idle for `idle`.
    pub(crate) fn expire(&mut self, now: Instant, idle: Duration, pool: &mut HoldPool) {
        while let Some(removed) = self.sessions.expire(now, idle) {
            self.give_back(removed, pool);
        }
        pool.settle(now);
    }

    fn give_back(&mut self, removed: Removed<SessionId, Incoming>, pool: &mut HoldPool) {
        let (slot, mut session) = (removed.index, removed.value);
        self.withheld.forget(slot);
        self.wide_left += usize::from(session.order.as_ref().is_some_and(Order::is_wide));
        if let Some(Order::Sequenced(resequencer)) = &mut session.order {
            let hold = &mut Hold::new(pool, &mut self.share);
            if let Some(at) = resequencer.deadline(hold.pool) {
                self.waiting.remove(&(at, slot));
            }
            resequencer.discard(hold);
        }
    }

    /// Delivers a packet of the session in `slot`, in order if it asks for that.
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        slot: u32,
        Delivery { sequence, ordered, arrival: Arrival { not_before, path } }: Delivery,
        inner: InnerPacket<'_>,
        mut context: DeliveryContext<'_, impl PacketSink, impl Judge>,
    ) {
        self.sessions.touch(slot, now);
        let hold = &mut Hold::new(context.hold, &mut self.share);
        let Some(session) = self.sessions.get_mut(slot) else { return };
        let len = inner.len();
        session.counters.paths.add(now, path);
        if sequence.wrapping_sub(session.newest) <= i32::MAX as u32 {
            session.newest = sequence;
        }
        let order = session.order.get_or_insert_with(|| Order::new(ordered));
        if ordered && order.require() {
            self.wide_left += 1;
        }
        let waiting = &mut self.waiting;
        let mut handover = Handover {
            slot,
            answers: session.answers,
            shift: session.window_shift,
            judge: &mut context.judge,
            withheld: &mut self.withheld,
            bytes: &mut self.bytes,
            sink: context.sink,
            thinned: 0,
            releases: false,
        };
        let duplicate = match order {
            Order::Unordered(window) => {
                let new = window.accept(sequence) == Seen::New;
                // The peer's timeout covers the delay by which its slowest path is later.
                if window.is_short(now, self.max_wait) && self.wide_left > 0 {
                    self.wide_left -= 1;
                    window.widen();
                }
                if new {
                    handover.packet(inner);
                }
                !new
            }
            Order::Sequenced(resequencer) => {
                let before = resequencer.deadline(hold.pool);
                let (max_wait, max_bytes) = (self.max_wait, self.max_session);
                let in_bursts = session.key.protocol != protocol::TCP;
                let limits = HoldLimits { max_wait, max_bytes, not_before, in_bursts };
                let deliver = |packet: InnerPacket<'_>| handover.packet(packet);
                let received = match ordered {
                    true => resequencer.receive(now, sequence, inner, limits, hold, deliver),
                    false => resequencer.pass_by(now, sequence, inner, limits, hold, deliver),
                };
                let after = resequencer.deadline(hold.pool);
                if before != after {
                    before.map(|at| waiting.remove(&(at, slot)));
                    after.map(|at| waiting.insert((at, slot)));
                }
                received == Received::Duplicate
            }
        };
        context.drops.add(DropReason::Thinned, handover.finish());
        match duplicate {
            true => context.drops.count(DropReason::Duplicate),
            false => session.counters.count(1, len),
        }
    }

    /// The peer will not send `count` packets from `first` on again: stops waiting for them.
    pub(crate) fn skip(
        &mut self,
        now: Instant,
        session: SessionId,
        (first, count): (u32, u32),
        mut context: DeliveryContext<'_, impl PacketSink, impl Judge>,
    ) {
        let Some(slot) = self.sessions.find(&session) else { return };
        self.with_resequencer(slot, &mut context, |resequencer, hold, deliver| {
            resequencer.skip(now, first, count, hold, deliver);
        });
    }

    /// Delivers packets whose resequencing timeout has ended, and overdue withheld ones.
    pub(crate) fn release_overdue(
        &mut self,
        now: Instant,
        mut context: DeliveryContext<'_, impl PacketSink, impl Judge>,
    ) {
        self.withheld.release_overdue(now, context.sink);
        while let Some(&(at, slot)) = self.waiting.first()
            && at <= now
        {
            self.waiting.pop_first();
            let max_wait = self.max_wait;
            self.with_resequencer(slot, &mut context, |resequencer, hold, deliver| {
                resequencer.expire(now, max_wait, hold, deliver);
            });
        }
    }

    /// Delivers all packets held for resequencing, and the withheld ones.
    pub(crate) fn release_all(
        &mut self,
        now: Instant,
        mut context: DeliveryContext<'_, impl PacketSink, impl Judge>,
    ) {
        let slots: Vec<u32> = self.waiting.iter().map(|(_, slot)| *slot).collect();
        for slot in slots {
            self.with_resequencer(slot, &mut context, |resequencer, hold, deliver| {
                resequencer.flush(now, hold, deliver);
            });
        }
        self.withheld.release_all(context.sink);
    }

    fn with_resequencer<S: PacketSink>(
        &mut self,
        slot: u32,
        context: &mut DeliveryContext<'_, S, impl Judge>,
        act: impl FnOnce(&mut Resequencer, &mut Hold<'_>, &mut dyn FnMut(InnerPacket<'_>)),
    ) {
        let Self { sessions, share, waiting, bytes, withheld, .. } = self;
        let hold = &mut Hold::new(context.hold, share);
        let Some(Incoming {
            order: Some(Order::Sequenced(resequencer)),
            answers,
            window_shift,
            ..
        }) = sessions.get_mut(slot)
        else {
            return;
        };
        if let Some(at) = resequencer.deadline(hold.pool) {
            waiting.remove(&(at, slot));
        }
        let mut handover = Handover {
            slot,
            answers: *answers,
            shift: *window_shift,
            judge: &mut context.judge,
            withheld,
            bytes,
            sink: context.sink,
            thinned: 0,
            releases: false,
        };
        act(resequencer, hold, &mut |packet| handover.packet(packet));
        context.drops.add(DropReason::Thinned, handover.finish());
        if let Some(at) = resequencer.deadline(hold.pool) {
            waiting.insert((at, slot));
        }
    }
}

#[cfg(test)]
mod tests;
