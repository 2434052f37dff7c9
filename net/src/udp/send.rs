//! Sending batches: runs of datagrams of one size toward one address are one message each.

mod counters;
mod queue;
mod queues;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use mpip_types::{DatagramSink, Ecn, LocalId, PathAddress, Slot};

use super::UdpSocket;
pub use counters::{SendCounters, SendError};
use queue::Queue;
pub(crate) use queues::{Queues, SendQueue};

/// Send errors that wait to be read; beyond it the oldest is forgotten.
const MAX_ERRORS: usize = 64;

/// Takes datagrams from the engine and sends them by the socket of their local address.
///
/// Datagrams leave with [`flush`](Self::flush), to be called after each batch, or earlier when much
/// has gathered. While the kernel takes no more from a socket, a bounded backlog is kept and
/// [`is_blocked`](Self::is_blocked) says so; once the socket is writable again, call
/// [`writable`](Self::writable) and then the engine's `handle_writable`.
#[derive(Debug, Default)]
pub struct UdpSender {
    queues: Queues<Queue>,
}

/// What the caller learns.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) counters: SendCounters,
    pub(crate) errors: VecDeque<SendError>,
}

impl Report {
    pub(crate) fn error(&mut self, error: SendError) {
        log::trace!("{error}");
        self.counters.count_error(&error);
        if self.errors.len() == MAX_ERRORS {
            self.errors.pop_front();
        }
        self.errors.push_back(error);
    }
}

impl UdpSender {
    /// A sender without sockets.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a socket; one with the same id is replaced, its backlog dropped.
    pub fn insert(&mut self, socket: Arc<UdpSocket>) {
        self.queues.insert(Queue::new(socket));
    }

    /// Removes the socket of `local` and drops its backlog; the socket closes once nobody else
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

    /// Sends everything that the kernel takes.
    pub fn flush(&mut self) {
        let (queues, report) = self.queues.settled();
        for queue in queues.iter_mut().filter(|queue| !queue.is_blocked()) {
            queue.send(report);
        }
    }

    /// Tries to send the backlog of `local`, whose socket has become writable. Returns whether it
    /// is no longer blocked.
    pub fn writable(&mut self, local: LocalId) -> bool {
        let Some((queue, report)) = self.queues.settled_at(local) else { return false };
        queue.send(report);
        !queue.is_blocked()
    }

    /// Whether the socket of `local` has a backlog that waits until it is writable.
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

    /// What was done so far.
    pub fn counters(&self) -> SendCounters {
        self.queues.report.counters
    }
}

impl DatagramSink for UdpSender {
    fn reserve(&mut self, to: PathAddress, ecn: Ecn, len: usize) -> Option<Slot<'_>> {
        self.queues.lend(to.local, |queue, report| queue.reserve(to.remote, ecn, len, report))
    }
}

/// Whether `remote` can be reached from `socket` at all.
fn same_family(socket: &UdpSocket, remote: SocketAddr) -> bool {
    socket.address().is_ipv4() == remote.is_ipv4()
}
