//! The send queue: FQ-CoDel over sessions (RFC 8290).
//!
//! Every session has its own queue in each of two bands. Within a band the queues are served by
//! deficit round robin, new ones first, and each is kept short by CoDel, which marks or drops at
//! the head. The unit of service is the segment: a super-packet stays one item while its segments
//! leave one by one, possibly with those of other sessions in between.
//!
//! Items of [`Priority::Response`] and [`Priority::Redundant`] are sent before all others. Beyond a
//! burst of [`RESPONSE_BURST`] bytes they get at most [`RESPONSE_SHARE`] parts of
//! [`RESPONSE_SHARE`] + 1 while others wait, so that too wide a rule does not starve the rest.
//!
//! At the limit, in bytes or items, packets are dropped from the head of the longest queue (RFC
//! 8290, section 4.1.2): a small session never loses packets because of a large one.

use core::time::Duration;

use crate::config::Priority;
use mpip_types::Ecn;
use mpip_types::Instant;
use mpip_types::packet::Segments;

mod band;
mod codel;

use band::{Band, Flow, Listed, NONE};
pub use codel::CodelParameters;
use codel::{Codel, Verdict};

/// Least bytes that a session may send in its turn: one full Ethernet frame (RFC 8290, section
/// 5.2.4).
pub const LEAST_QUANTUM: usize = 1_514;

/// Most bytes that a session may send in its turn: one super-packet.
pub const MOST_QUANTUM: usize = 65_536;

/// Bytes of [`Priority::Response`] that may always be sent before others.
pub const RESPONSE_BURST: usize = 32_768;

/// Beyond the burst, bytes of [`Priority::Response`] for each byte of the others.
pub const RESPONSE_SHARE: usize = 7;

/// The limit in items is the limit in bytes divided by this, so that bookkeeping of tiny packets
/// does not take more memory than the packets.
const ITEM_BYTES: usize = 256;

/// Most segments dropped at the limit before the longest queue is determined again (as in Linux,
/// `sch_fq_codel.c`).
const DROP_BATCH: usize = 64;

/// Time that a path needs to reach its full rate, in addition to CoDel's target.
const RAMP: Duration = Duration::from_millis(50);

/// Something that leaves the queue in one or more segments.
pub trait Burst {
    /// How many segments, at least 1; always the same.
    fn count(&self) -> usize;

    /// Bytes of segment `index`, below [`Burst::count`]; always the same.
    fn segment_len(&self, index: usize) -> usize;

    /// Bytes of all segments from `index` on.
    fn remaining_len(&self, index: usize) -> usize;

    /// Whether congestion can be signalled by a mark instead of a drop.
    fn ecn_capable(&self) -> bool;
}

impl Burst for Segments {
    fn count(&self) -> usize {
        Self::count(self)
    }

    fn segment_len(&self, index: usize) -> usize {
        Self::segment_len(self, index)
    }

    fn remaining_len(&self, index: usize) -> usize {
        Self::remaining_len(self, index)
    }

    fn ecn_capable(&self) -> bool {
        self.ecn() != Ecn::NotEct
    }
}

/// Counts of segments since the queue was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Segments queued.
    pub pushed: u64,
    /// Segments taken to be sent.
    pub taken: u64,
    /// Segments taken that CoDel marked (ECN).
    pub marked: u64,
    /// Segments dropped by CoDel.
    pub dropped_codel: u64,
    /// Segments dropped at the limit.
    pub dropped_overflow: u64,
    /// Segments dropped because their session ended.
    pub discarded: u64,
    /// Segments removed by [`SendQueue::drain`].
    pub drained: u64,
}

/// The next segment to be sent.
#[derive(Debug)]
pub struct Candidate<'a, T> {
    /// The session's slot, as in [`SendQueue::push`].
    pub flow: u32,
    /// Its band: [`Priority::Response`] or [`Priority::Throughput`].
    pub priority: Priority,
    /// The item that it is a segment of.
    pub item: &'a T,
    /// Which segment of the item.
    pub segment: usize,
    /// How many segments, this one included, leave one after the other unless something is pushed:
    /// no other session has its turn before, and CoDel would judge them alike.
    pub count: usize,
    /// Bytes of each of them.
    pub len: usize,
    /// The segment is to be marked "congestion experienced" (CE).
    pub mark: bool,
    /// Sojourn time of the item.
    pub sojourn: Duration,
}

/// An item in a session's queue.
#[derive(Debug)]
struct Node<T> {
    /// `None` while the node is free.
    item: Option<T>,
    enqueued: Instant,
    /// The next segment.
    segment: usize,
    /// The next item of the session, or the next free node.
    next: u32,
}

/// The send queue of an association. Memory grows with its peak length and is kept.
#[derive(Debug)]
pub struct SendQueue<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    items: usize,
    bands: [Band; 2],
    /// The band and session of the last [`SendQueue::next`].
    selected: Option<(usize, u32)>,
    /// Bytes of the response band sent before others, less the share of the others.
    ahead: usize,
    limit: usize,
    flows: u32,
    /// Bytes that a session may send in its turn.
    quantum: usize,
    codel: CodelParameters,
    /// CoDel gives no signal before this instant.
    pardoned_until: Instant,
    counters: QueueCounters,
}

const THROUGHPUT: usize = 0;
const RESPONSE: usize = 1;

#[cfg(test)]
impl<T> SendQueue<T> {
    /// Bytes of memory of a session in both bands, and of a queued item.
    pub(crate) const BYTES: (usize, usize) = (2 * size_of::<Flow>(), size_of::<Node<T>>());
}

impl<T: Burst> SendQueue<T> {
    /// An empty queue of at most `limit` bytes, for sessions in slots below `flows`.
    pub fn new(limit: usize, flows: usize) -> Self {
        Self {
            nodes: Vec::new(),
            free: NONE,
            items: 0,
            bands: [Band::new(), Band::new()],
            selected: None,
            ahead: 0,
            limit,
            flows: u32::try_from(flows).unwrap_or(NONE).min(NONE - 1),
            quantum: LEAST_QUANTUM,
            codel: CodelParameters::default(),
            pardoned_until: Instant::ZERO,
            counters: QueueCounters::default(),
        }
    }

    /// Changes CoDel's settings from the next verdict on.
    pub fn set_codel(&mut self, parameters: CodelParameters) {
        self.codel = parameters;
    }

    /// Lets a session send about `bytes` in its turn, between [`LEAST_QUANTUM`] and
    /// [`MOST_QUANTUM`].
    pub fn set_quantum(&mut self, bytes: usize) {
        self.quantum = bytes.clamp(LEAST_QUANTUM, MOST_QUANTUM);
    }

    /// Bytes in the queue.
    pub fn bytes(&self) -> usize {
        self.bands.iter().map(|band| band.bytes).sum()
    }

    /// Bytes of one session in the queue.
    pub fn flow_bytes(&self, flow: u32) -> usize {
        let of = |band: &Band| band.flows.get(flow as usize).map_or(0, |flow| flow.bytes);
        self.bands.iter().map(of).sum()
    }

    /// Whether items of the session in slot `flow` wait in the throughput band. Later ones in the
    /// response band would overtake them.
    pub fn has_throughput(&self, flow: u32) -> bool {
        let entry = self.bands[THROUGHPUT].flows.get(flow as usize);
        entry.is_some_and(|entry| entry.head != NONE)
    }

    /// Since when the session in slot `flow` has had a backlog in the throughput band. `None`
    /// unless it has lasted for longer than twice CoDel's target plus the time in which new paths
    /// reach their full rate.
    pub fn behind_since(&self, now: Instant, flow: u32) -> Option<Instant> {
        let entry = self.bands[THROUGHPUT].flows.get(flow as usize)?;
        let behind = now.since(entry.since) > self.codel.target * 2 + RAMP;
        (entry.head != NONE && behind).then_some(entry.since)
    }

    /// For how long the oldest item of the session in slot `flow` has waited in the throughput
    /// band; zero if none waits there.
    pub fn waited(&self, now: Instant, flow: u32) -> Duration {
        let entry = self.bands[THROUGHPUT].flows.get(flow as usize);
        let head = entry.and_then(|entry| self.nodes.get(entry.head as usize));
        head.map_or(Duration::ZERO, |head| now.since(head.enqueued))
    }

    /// Items in the queue.
    pub fn len(&self) -> usize {
        self.items
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Counts so far.
    pub fn counters(&self) -> QueueCounters {
        self.counters
    }

    /// Queues `item` behind the others of its session (in slot `flow`) and priority.
    ///
    /// At the limit, segments of the longest queue are dropped, possibly of this item. An item of a
    /// slot beyond the number of sessions is dropped.
    pub fn push(&mut self, now: Instant, flow: u32, priority: Priority, item: T) {
        self.selected = None;
        self.counters.pushed += item.count() as u64;
        if flow >= self.flows {
            self.counters.dropped_overflow += item.count() as u64;
            return;
        }
        let bytes = item.remaining_len(0);
        let node = self.store(Node { item: Some(item), enqueued: now, segment: 0, next: NONE });
        let band = &mut self.bands[match priority {
            Priority::Throughput => THROUGHPUT,
            Priority::Response | Priority::Redundant => RESPONSE,
        }];
        if band.flows.len() <= flow as usize {
            band.flows.resize(flow as usize + 1, Flow::EMPTY);
        }
        band.bytes += bytes;
        let entry = &mut band.flows[flow as usize];
        entry.bytes += bytes;
        match self.nodes.get_mut(entry.tail as usize) {
            Some(last) => last.next = node,
            None => (entry.head, entry.since) = (node, now),
        }
        entry.tail = node;
        if entry.listed == Listed::No {
            entry.deficit = self.quantum as isize;
            band.append(Listed::New, flow);
        }
        while self.bytes() > self.limit || self.items > (self.limit / ITEM_BYTES).max(1) {
            if !self.drop_from_longest() {
                break;
            }
        }
    }

    /// Drops a part of the longest queue, because the memory of its packets is needed. Returns
    /// `false` if the queue is empty.
    pub fn make_room(&mut self) -> bool {
        self.selected = None;
        self.drop_from_longest()
    }

    /// Suppresses CoDel's signals until `until`, because we caused the backlog ourselves (an
    /// outage).
    pub fn pardon(&mut self, until: Instant) {
        self.pardoned_until = self.pardoned_until.max(until);
    }

    /// The next segment to be sent. It stays in the queue until it is [taken](Self::take). Another
    /// call returns the same, unless a new session goes first.
    ///
    /// CoDel may drop segments before it. CoDel judges each segment once.
    #[inline]
    pub fn next(&mut self, now: Instant) -> Option<Candidate<'_, T>> {
        let order = if self.ahead < RESPONSE_BURST {
            [RESPONSE, THROUGHPUT]
        } else {
            [THROUGHPUT, RESPONSE]
        };
        self.selected = order
            .into_iter()
            .find_map(|band| self.select(band, Some(now)).map(|flow| (band, flow)));
        let (band, flow) = self.selected?;
        let entry = &self.bands[band].flows[flow as usize];
        let node = &self.nodes[entry.head as usize];
        let item = node.item.as_ref().expect("a node in a queue has an item");
        let last = node.segment + 1 == item.count();
        Some(Candidate {
            flow,
            priority: if band == RESPONSE { Priority::Response } else { Priority::Throughput },
            item,
            segment: node.segment,
            count: if last { 1 } else { self.run(now, band, flow) },
            len: item.segment_len(node.segment),
            mark: entry.verdict == Some(true),
            sojourn: now.since(node.enqueued),
        })
    }

    /// Removes the segment that the last [`SendQueue::next`] returned. Returns `false` and does
    /// nothing if there was none or the queue has changed since.
    pub fn take(&mut self) -> bool {
        self.take_run(1)
    }

    /// Removes the first `count` of the segments that the last [`SendQueue::next`] returned, from 1
    /// to as many as it said. Returns `false` and does nothing if there were none or the queue has
    /// changed since.
    pub fn take_run(&mut self, count: usize) -> bool {
        let Some((band, flow)) = self.selected.take() else { return false };
        let marked = self.bands[band].flows[flow as usize].verdict == Some(true);
        let len = self.advance(band, flow, count);
        self.bands[band].spend(flow, len, count, self.quantum);
        self.counters.taken += count as u64;
        self.counters.marked += u64::from(marked);
        if self.bands[THROUGHPUT].bytes == 0 {
            self.ahead = 0;
        } else if band == RESPONSE {
            self.ahead += len;
        } else {
            self.ahead = self.ahead.saturating_sub(RESPONSE_SHARE * len);
        }
        true
    }

    /// The session whose segment the last [`SendQueue::next`] returned waits until
    /// [`SendQueue::bring_back`]: what it may use is full. Returns `false` and does nothing if
    /// there was none or the queue has changed since.
    pub fn set_aside(&mut self) -> bool {
        let Some((band, flow)) = self.selected.take() else { return false };
        let band = &mut self.bands[band];
        // The selected session is the first of its list.
        band.pop(band.flows[flow as usize].listed);
        band.append(Listed::Aside, flow);
        true
    }

    /// Sessions that were [set aside](Self::set_aside) have their turn again.
    pub fn bring_back(&mut self) {
        for band in &mut self.bands {
            while band.aside.head != NONE {
                let flow = band.aside.head;
                band.pop(Listed::Aside);
                band.append(Listed::Old, flow);
                self.selected = None;
            }
        }
    }

    /// Drops all items of the session in slot `flow`, which ends.
    pub fn discard(&mut self, flow: u32) {
        self.selected = None;
        for band in [THROUGHPUT, RESPONSE] {
            while self.bands[band].flows.get(flow as usize).is_some_and(|flow| flow.head != NONE) {
                self.advance(band, flow, 1);
                self.counters.discarded += 1;
            }
            if let Some(entry) = self.bands[band].flows.get_mut(flow as usize) {
                entry.codel = Codel::NEW;
            }
        }
    }

    /// Takes what waits of `flow` out of the queue, and passes it to `leaves`, in order. CoDel is
    /// bypassed.
    pub fn take_flow(&mut self, flow: u32, mut leaves: impl FnMut(&T, usize)) {
        self.selected = None;
        for band in [RESPONSE, THROUGHPUT] {
            while let Some(entry) = self.bands[band].flows.get(flow as usize)
                && entry.head != NONE
            {
                if let Some(node) = self.nodes.get(entry.head as usize)
                    && let Some(item) = &node.item
                {
                    leaves(item, node.segment);
                }
                self.advance(band, flow, 1);
                self.counters.drained += 1;
            }
        }
        self.discard(flow);
    }

    /// Empties the queue: passes all segments with their session's slot to `leaves`, in the order
    /// in which they would be sent. CoDel is bypassed, so none is dropped because of its sojourn
    /// time.
    pub fn drain(&mut self, mut leaves: impl FnMut(u32, &T, usize)) {
        self.bring_back();
        self.selected = None;
        for band in [RESPONSE, THROUGHPUT] {
            while let Some(flow) = self.select(band, None) {
                let entry = &self.bands[band].flows[flow as usize];
                if let Some(node) = self.nodes.get(entry.head as usize)
                    && let Some(item) = &node.item
                {
                    leaves(flow, item, node.segment);
                }
                let len = self.advance(band, flow, 1);
                self.bands[band].flows[flow as usize].deficit -= len as isize;
                self.counters.drained += 1;
            }
        }
        self.ahead = 0;
    }

    /// The session of `band` whose head segment is next. CoDel has judged that segment, unless
    /// `now` is `None`.
    fn select(&mut self, band: usize, now: Option<Instant>) -> Option<u32> {
        loop {
            let lists = &mut self.bands[band];
            let (listed, flow) = lists.first()?;
            let entry = &mut lists.flows[flow as usize];
            if entry.deficit <= 0 {
                entry.deficit += self.quantum as isize;
                lists.pop(listed);
                lists.append(Listed::Old, flow);
            } else if match now {
                Some(now) => self.judge(band, flow, now),
                None => entry.head != NONE,
            } {
                return Some(flow);
            } else {
                let lists = &mut self.bands[band];
                lists.flows[flow as usize].codel.idle();
                lists.pop(listed);
                // RFC 8290, section 4.2: a session cannot stay new by sending one packet at a time.
                if listed == Listed::New && lists.old.head != NONE {
                    lists.append(Listed::Old, flow);
                }
            }
        }
    }

    /// Whether the queue is so short, or was lengthened by ourselves, that CoDel gives no signal.
    fn is_short(&self, now: Instant) -> bool {
        self.bytes() <= LEAST_QUANTUM || now < self.pardoned_until
    }

    /// How many segments from the head of the session's queue on leave one after the other: those
    /// of one item and one length for which CoDel has the same verdict, until it is the turn of
    /// another session.
    fn run(&self, now: Instant, band: usize, flow: u32) -> usize {
        let [throughput, response] = &self.bands;
        let entry = &self.bands[band].flows[flow as usize];
        let node = &self.nodes[entry.head as usize];
        let Some(item) = &node.item else { return 1 };
        let sojourn = now.since(node.enqueued);
        // While both bands wait, each segment counts for the share of its band.
        if throughput.bytes > 0 && response.bytes > 0
            || !entry.codel.passes_all(&self.codel, sojourn, self.is_short(now))
        {
            return 1;
        }
        let len = item.segment_len(node.segment).max(1);
        let full = item.remaining_len(node.segment) / len;
        match self.bands[band].is_alone(flow) {
            true => full,
            false => full.min(entry.deficit.unsigned_abs().div_ceil(len)),
        }
    }

    /// Lets CoDel judge the session's head segments until one may be sent; `false` if none is left.
    fn judge(&mut self, band: usize, flow: u32, now: Instant) -> bool {
        loop {
            let short = self.is_short(now);
            let entry = &mut self.bands[band].flows[flow as usize];
            let Some(node) = self.nodes.get(entry.head as usize) else { return false };
            if entry.verdict.is_some() {
                return true;
            }
            let sojourn = now.since(node.enqueued);
            let capable = node.item.as_ref().is_some_and(Burst::ecn_capable);
            // A mark costs no packet, and tells that the sender reacts to signals.
            let runaway = if capable { self.codel.runaway } else { Duration::MAX };
            let parameters = CodelParameters { runaway, ..self.codel };
            let mark = match entry.codel.judge(now, &parameters, sojourn, short) {
                Verdict::Send => false,
                Verdict::Signal if capable => true,
                Verdict::Signal => {
                    self.advance(band, flow, 1);
                    self.counters.dropped_codel += 1;
                    continue;
                }
            };
            entry.verdict = Some(mark);
            return true;
        }
    }

    /// Drops half of the longest queue from its head, at most a batch. `false` if there is nothing
    /// to drop.
    fn drop_from_longest(&mut self) -> bool {
        let longest = [THROUGHPUT, RESPONSE]
            .into_iter()
            .filter_map(|band| self.bands[band].longest().map(|(bytes, flow)| (bytes, band, flow)))
            .max();
        let Some((bytes, band, flow)) = longest else { return false };
        let mut dropped = 0;
        let mut segments = 0;
        while dropped * 2 < bytes && segments < DROP_BATCH {
            dropped += self.advance(band, flow, 1);
            segments += 1;
        }
        self.bands[band].flows[flow as usize].codel.overflowed(segments as u32);
        self.counters.dropped_overflow += segments as u64;
        true
    }

    /// Removes `count` segments of one length from the head of the session's queue, all of one
    /// item; returns their bytes.
    fn advance(&mut self, band: usize, flow: u32, count: usize) -> usize {
        let band = &mut self.bands[band];
        let entry = &mut band.flows[flow as usize];
        let index = entry.head;
        let node = &mut self.nodes[index as usize];
        let item = node.item.as_ref().expect("a node in a queue has an item");
        let len = item.segment_len(node.segment) * count;
        node.segment += count;
        let last = node.segment >= item.count();
        entry.verdict = None;
        entry.bytes -= len;
        band.bytes -= len;
        if last {
            node.item = None;
            entry.head = node.next;
            if entry.head == NONE {
                entry.tail = NONE;
            }
            node.next = self.free;
            self.free = index;
            self.items -= 1;
        }
        len
    }

    fn store(&mut self, node: Node<T>) -> u32 {
        self.items += 1;
        match self.nodes.get_mut(self.free as usize) {
            Some(vacant) => {
                let index = self.free;
                self.free = vacant.next;
                *vacant = node;
                index
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        }
    }
}

#[cfg(test)]
mod tests;
