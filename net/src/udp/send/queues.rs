//! What senders of every kind have in common: a queue for each socket, and one slot that is lent out.

use mpip_types::{LocalId, Slot};

use super::Report;

/// What has not left by one socket yet.
pub(crate) trait SendQueue {
    /// The local address of the socket.
    fn id(&self) -> LocalId;

    /// Whether the kernel takes no more for now.
    fn is_blocked(&self) -> bool;

    /// Counts the slot in that was lent out, or rolls it back.
    fn settle(&mut self, committed: bool);

    /// Drops everything; returns how many datagrams that were.
    fn clear(&mut self) -> u64;
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
    /// Adds a queue; one of the same local address is replaced, what waits there dropped.
    pub(crate) fn insert(&mut self, queue: Q) {
        self.remove(queue.id());
        self.queues.push(queue);
    }

    /// Removes the queue of `local` and drops what waits there.
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

    /// The queues, and where to tell what becomes of datagrams. What was lent out is settled.
    pub(crate) fn settled(&mut self) -> (&mut [Q], &mut Report) {
        self.settle();
        (&mut self.queues, &mut self.report)
    }

    /// As [`settled`](Self::settled), of the queue of `local`.
    pub(crate) fn settled_at(&mut self, local: LocalId) -> Option<(&mut Q, &mut Report)> {
        self.settle();
        let index = self.find(local)?;
        Some((&mut self.queues[index], &mut self.report))
    }

    /// Whether the socket of `local` has a backlog that waits until it is writable.
    pub(crate) fn is_blocked(&self, local: LocalId) -> bool {
        self.get(local).is_some_and(Q::is_blocked)
    }

    /// Lends out the room that `reserve` finds in the queue of `local`.
    pub(crate) fn lend(
        &mut self,
        local: LocalId,
        reserve: impl for<'a> FnOnce(&'a mut Q, &mut Report) -> Option<&'a mut [u8]>,
    ) -> Option<Slot<'_>> {
        self.settle();
        let Some(index) = self.find(local) else {
            self.report.counters.no_socket += 1;
            return None;
        };
        let room = reserve(&mut self.queues[index], &mut self.report)?;
        self.lender = Some(index);
        Some(Slot::new(room, &mut self.committed))
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
