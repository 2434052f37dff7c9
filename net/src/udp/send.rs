//! Sending batches: runs of datagrams of one size toward one address are one message each.

mod counters;
mod queue;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use mpip_core::{DatagramSink, Ecn, LocalId, PathAddress, Slot};

use super::UdpSocket;
pub use counters::{SendCounters, SendError};
use queue::Queue;

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
    queues: Vec<Queue>,
    /// The queue that lent out the last slot.
    reserved: Option<usize>,
    committed: bool,
    report: Report,
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
        self.remove(socket.id());
        self.queues.push(Queue::new(socket));
    }

    /// Removes the socket of `local` and drops its backlog; the socket closes once nobody else
    /// refers to it.
    pub fn remove(&mut self, local: LocalId) {
        self.settle();
        if let Some(index) = self.find(local) {
            let mut queue = self.queues.remove(index);
            self.report.counters.dropped_removed += queue.clear();
        }
    }

    /// The sockets.
    pub fn sockets(&self) -> impl Iterator<Item = &Arc<UdpSocket>> {
        self.queues.iter().map(Queue::socket)
    }

    /// The socket of `local`.
    pub fn socket(&self, local: LocalId) -> Option<&Arc<UdpSocket>> {
        self.find(local).map(|index| self.queues[index].socket())
    }

    /// Sends everything that the kernel takes.
    pub fn flush(&mut self) {
        self.settle();
        for queue in &mut self.queues {
            if !queue.is_blocked() {
                queue.send(&mut self.report);
            }
        }
    }

    /// Tries to send the backlog of `local`, whose socket has become writable. Returns whether it
    /// is no longer blocked.
    pub fn writable(&mut self, local: LocalId) -> bool {
        self.settle();
        let Some(index) = self.find(local) else { return false };
        let queue = &mut self.queues[index];
        queue.send(&mut self.report);
        !queue.is_blocked()
    }

    /// Whether the socket of `local` has a backlog that waits until it is writable.
    pub fn is_blocked(&self, local: LocalId) -> bool {
        self.find(local).is_some_and(|index| self.queues[index].is_blocked())
    }

    /// The local addresses whose sockets have a backlog.
    pub fn blocked(&self) -> impl Iterator<Item = LocalId> {
        self.queues.iter().filter(|queue| queue.is_blocked()).map(|queue| queue.socket().id())
    }

    /// The next error, oldest first.
    pub fn poll_error(&mut self) -> Option<SendError> {
        self.report.errors.pop_front()
    }

    /// What was done so far.
    pub fn counters(&self) -> SendCounters {
        self.report.counters
    }

    fn find(&self, local: LocalId) -> Option<usize> {
        self.queues.iter().position(|queue| queue.socket().id() == local)
    }

    /// Counts the last slot in, or rolls it back.
    fn settle(&mut self) {
        if let Some(index) = self.reserved.take() {
            self.queues[index].settle(self.committed);
        }
    }
}

impl DatagramSink for UdpSender {
    fn reserve(&mut self, to: PathAddress, ecn: Ecn, len: usize) -> Option<Slot<'_>> {
        self.settle();
        let Some(index) = self.find(to.local) else {
            self.report.counters.no_socket += 1;
            return None;
        };
        let queue = &mut self.queues[index];
        let room = queue.reserve(to.remote, ecn, len, &mut self.report)?;
        self.reserved = Some(index);
        Some(Slot::new(room, &mut self.committed))
    }
}

/// Whether `remote` can be reached from `socket` at all.
fn same_family(socket: &UdpSocket, remote: SocketAddr) -> bool {
    socket.address().is_ipv4() == remote.is_ipv4()
}
