//! Sends datagrams in batches: consecutive datagrams of one size to one address are one message.

mod queue;

use std::sync::Arc;

use mpip_types::{DatagramSink, Ecn, LocalId, PathAddress, Slot};

use super::UdpSocket;
use crate::socket::queues::{Queues, SendQueue};
use crate::socket::{SendCounters, SendError};
use queue::Queue;

/// Takes datagrams from the engine and sends each by the socket of its local address.
///
/// Call [`flush`](Self::flush) after each batch; datagrams leave then, or earlier if many have
/// gathered. While the kernel takes no more from a socket, it [is blocked](Self::is_blocked) and
/// has a bounded backlog. Once it is writable again, call [`writable`](Self::writable) and then the
/// engine's `handle_writable`.
#[derive(Debug, Default)]
pub struct UdpSender {
    queues: Queues<Queue>,
}

impl UdpSender {
    /// A sender without sockets.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a socket. It replaces one with the same id, whose backlog is dropped.
    pub fn insert(&mut self, socket: Arc<UdpSocket>) {
        self.queues.insert(Queue::new(socket));
    }

    /// Removes the socket of `local` and drops its backlog. The socket closes once nobody else
    /// refers to it.
    pub fn remove(&mut self, local: LocalId) {
        self.queues.remove(local);
    }

    /// The sockets.
    pub fn sockets(&self) -> impl Iterator<Item = &Arc<UdpSocket>> {
        self.queues.iter().map(Queue::socket)
    }

    /// The socket of `local`.
    pub fn socket(&self, local: LocalId) -> Option<&Arc<UdpSocket>> {
        self.queues.get(local).map(Queue::socket)
    }

    /// Sends as much as the kernel takes.
    pub fn flush(&mut self) {
        let (queues, report) = self.queues.settled();
        for queue in queues.iter_mut().filter(|queue| !queue.is_blocked()) {
            queue.send(report);
        }
    }

    /// Sends the backlog of `local`, whose socket has become writable. Returns whether it is no
    /// longer blocked.
    pub fn writable(&mut self, local: LocalId) -> bool {
        let Some((queue, report)) = self.queues.settled_at(local) else { return false };
        queue.send(report);
        !queue.is_blocked()
    }

    /// Whether the socket of `local` has a backlog and waits to be writable.
    pub fn is_blocked(&self, local: LocalId) -> bool {
        self.queues.is_blocked(local)
    }

    /// The local addresses whose sockets have a backlog.
    pub fn blocked(&self) -> impl Iterator<Item = LocalId> {
        self.queues.iter().filter(|queue| queue.is_blocked()).map(SendQueue::id)
    }

    /// The next error, oldest first.
    pub fn poll_error(&mut self) -> Option<SendError> {
        self.queues.report.errors.pop_front()
    }

    /// Counts so far.
    pub fn counters(&self) -> SendCounters {
        self.queues.report.counters
    }
}

impl DatagramSink for UdpSender {
    fn reserve(&mut self, to: PathAddress, ecn: Ecn, len: usize) -> Option<Slot<'_>> {
        self.queues.lend(to.local, |queue, report| queue.reserve(to.remote, ecn, len, report))
    }
}
