//! Sends datagrams in batches: consecutive datagrams of one size to one address are one message.

mod lane;
mod message;
mod outlet;
mod queue;

use std::io;
use std::sync::Arc;

use mpip_types::{DatagramSink, Ecn, LocalId, PathAddress, Slot};

use super::UdpSocket;
use crate::Waker;
use crate::crew::Crew;
use crate::socket::queues::{Queues, SendQueue};
use crate::socket::{SendCounters, SendError};
use lane::{Lane, Notices};
use queue::Queue;

/// Takes datagrams from the engine and sends each by the socket of its local address.
///
/// Call [`flush`](Self::flush) after each batch; datagrams leave then, or earlier if many have
/// gathered. While the kernel takes no more from a socket, it [is blocked](Self::is_blocked) and
/// has a bounded backlog. Once it is writable again, call [`writable`](Self::writable) and then the
/// engine's `handle_writable`.
///
/// With [further threads](Self::with_threads) these seal and send what is worth handing over, the
/// messages of each socket in their order. When too many wait for that, slots are refused as if the
/// socket were full; the waker wakes the caller when [there is room](Self::poll_room) or an error.
///
/// ```text
///  engine's thread                         any thread of the crew
///  reserve ─► Queue: gathers messages ─┬─► Lane: seals them ─► in order ─► Outlet ─► kernel
///             flush: or itself, if few ┘
/// ```
#[derive(Debug, Default)]
pub struct UdpSender {
    queues: Queues<Queue>,
    notices: Arc<Notices>,
    crew: Option<Arc<Crew>>,
}

impl UdpSender {
    /// A sender without sockets.
    pub fn new() -> Self {
        Self::default()
    }

    /// A sender without sockets. Of `threads`, at least one, all but the caller's seal and send;
    /// `waker` wakes the caller. With one thread it is [`new`](Self::new).
    pub fn with_threads(threads: usize, waker: &Arc<Waker>) -> io::Result<Self> {
        if threads <= 1 {
            return Ok(Self::new());
        }
        let crew = Some(Arc::new(Crew::start(threads - 1)?));
        let notices = Arc::new(Notices::new(Some(Arc::clone(waker))));
        Ok(Self { notices, crew, ..Self::default() })
    }

    /// The threads, if there are any besides the caller's.
    pub(super) fn crew(&self) -> Option<&Arc<Crew>> {
        self.crew.as_ref()
    }

    /// Adds a socket. It replaces one with the same id, whose backlog is dropped.
    pub fn insert(&mut self, socket: Arc<UdpSocket>) {
        let lane = Lane::new(socket, Arc::clone(&self.notices));
        let desk = self.crew.as_ref().map(|crew| crew.desk().clone());
        self.queues.insert(Queue::new(lane, desk));
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
        self.queues.settled().0.iter_mut().for_each(Queue::send);
    }

    /// Sends the backlog of `local`, whose socket has become writable. Returns whether it is no
    /// longer blocked.
    pub fn writable(&mut self, local: LocalId) -> bool {
        self.queues.settled_at(local).is_some_and(|(queue, _)| queue.resume())
    }

    /// The next local address that takes datagrams again, after too many waited for the crew.
    pub fn poll_room(&mut self) -> Option<LocalId> {
        self.queues.iter().find(|queue| queue.take_room()).map(SendQueue::id)
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
        if let Some(error) = self.queues.report.errors.pop_front() {
            return Some(error);
        }
        let mut report = self.notices.errors()?;
        if report.errors.len() <= 1 {
            self.notices.clear();
        }
        report.errors.pop_front()
    }

    /// Counts so far.
    pub fn counters(&self) -> SendCounters {
        let mut counters = self.queues.report.counters;
        counters += self.notices.report().counters;
        counters
    }
}

impl DatagramSink for UdpSender {
    fn reserve(&mut self, to: PathAddress, ecn: Ecn, len: usize) -> Option<Slot<'_>> {
        self.queues.lend(to.local, |queue, report| queue.reserve(to.remote, ecn, len, report))
    }
}
