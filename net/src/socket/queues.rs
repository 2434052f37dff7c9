//! A send queue for each socket, and the one slot that is lent to the engine.

use std::collections::VecDeque;

use mpip_types::{LocalId, Sealings, Slot};

use super::counters::{SendCounters, SendError};

/// Most unread send errors. When more occur, the oldest is dropped.
const MAX_ERRORS: usize = 64;

/// The datagrams of one socket that have not left yet.
pub(crate) trait SendQueue {
    /// The local address of the socket.
    fn id(&self) -> LocalId;

    /// Whether the kernel takes no more for now.
    fn is_blocked(&self) -> bool;

    /// Takes back the slot that was lent out: keeps its datagram if `committed`, else drops it.
    fn settle(&mut self, committed: bool);

    /// Drops all datagrams; returns their number.
    fn clear(&mut self) -> u64;
}

/// Room for a datagram.
pub(crate) struct Room<'a> {
    pub(crate) bytes: &'a mut [u8],
    /// Where it is noted how the datagram is sealed, if that is done later, and where `bytes`
    /// begin in the buffer.
    pub(crate) later: Option<(&'a mut Sealings, usize)>,
}

/// What became of datagrams, for the caller.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) counters: SendCounters,
    pub(crate) errors: VecDeque<SendError>,
}

impl Report {
    pub(crate) fn error(&mut self, error: SendError) {
        log::trace!("{error}");
        self.counters.count_error(&error);
        self.keep(error);
    }

    fn keep(&mut self, error: SendError) {
        if self.errors.len() == MAX_ERRORS {
            self.errors.pop_front();
        }
        self.errors.push_back(error);
    }

    /// Adds what `other` has, and empties it.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.counters += core::mem::take(&mut other.counters);
        other.errors.drain(..).for_each(|error| self.keep(error));
    }
}

/// The queues of all sockets.
#[derive(Debug)]
pub(crate) struct Queues<Q> {
    queues: Vec<Q>,
    /// The queue that lent out the last slot.
    lender: Option<usize>,
    committed: bool,
    pub(crate) report: Report,
}

impl<Q> Default for Queues<Q> {
    fn default() -> Self {
        Self { queues: Vec::new(), lender: None, committed: false, report: Report::default() }
    }
}

impl<Q: SendQueue> Queues<Q> {
    /// Adds a queue. It replaces one of the same local address, whose datagrams are dropped.
    pub(crate) fn insert(&mut self, queue: Q) {
        self.remove(queue.id());
        self.queues.push(queue);
    }

    /// Removes the queue of `local` and drops its datagrams.
    pub(crate) fn remove(&mut self, local: LocalId) {
        self.settle();
        if let Some(index) = self.find(local) {
            let mut queue = self.queues.remove(index);
            self.report.counters.dropped_removed += queue.clear();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Q> {
        self.queues.iter()
    }

    /// The queue of `local`.
    pub(crate) fn get(&self, local: LocalId) -> Option<&Q> {
        self.find(local).map(|index| &self.queues[index])
    }

    /// The queues and the report, after the slot that was lent out is taken back.
    pub(crate) fn settled(&mut self) -> (&mut [Q], &mut Report) {
        self.settle();
        (&mut self.queues, &mut self.report)
    }

    /// As [`settled`](Self::settled), for the queue of `local` only.
    pub(crate) fn settled_at(&mut self, local: LocalId) -> Option<(&mut Q, &mut Report)> {
        self.settle();
        let index = self.find(local)?;
        Some((&mut self.queues[index], &mut self.report))
    }

    /// Whether the socket of `local` has a backlog and waits to be writable.
    pub(crate) fn is_blocked(&self, local: LocalId) -> bool {
        self.get(local).is_some_and(Q::is_blocked)
    }

    /// Lends out the slot that `reserve` gets from the queue of `local`.
    pub(crate) fn lend(
        &mut self,
        local: LocalId,
        reserve: impl for<'a> FnOnce(&'a mut Q, &mut Report) -> Option<Room<'a>>,
    ) -> Option<Slot<'_>> {
        self.settle();
        let Some(index) = self.find(local) else {
            self.report.counters.no_socket += 1;
            return None;
        };
        let room = reserve(&mut self.queues[index], &mut self.report)?;
        self.lender = Some(index);
        let committed = &mut self.committed;
        Some(match room.later {
            None => Slot::new(room.bytes, committed),
            Some((later, at)) => Slot::sealed_later(room.bytes, committed, later, at),
        })
    }

    fn find(&self, local: LocalId) -> Option<usize> {
        self.queues.iter().position(|queue| queue.id() == local)
    }

    fn settle(&mut self) {
        if let Some(index) = self.lender.take() {
            self.queues[index].settle(self.committed);
        }
    }
}
