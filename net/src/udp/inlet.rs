//! Receives from UDP sockets and opens what came on other threads, before the engine's thread takes
//! it in the order of arrival.

mod batch;
mod keys;

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};

use mpip_types::{Ecn, LocalId, Open, Opened};

use super::{UdpSender, UdpSocket};
use crate::Waker;
use crate::crew::{Desk, Work, lock};
use crate::in_order::InOrder;
use crate::socket::ReceiveBuffers;
use batch::{BYTES, Batch};
use keys::Keys;

/// Most batches of a socket that are received and not yet taken.
const MAX_BATCHES: usize = 4;

/// Bytes received at once from which on other threads go on: so much has arrived while the engine's
/// thread did something else.
const BACKLOG: usize = 128 << 10;

/// Receives for the engine, with other threads while much arrives.
///
/// Without threads, and while little arrives, the caller [receives](Self::receive) and the engine
/// opens. When a socket has a backlog, the threads go on with it: they receive and open batches
/// ahead of the engine's thread, which [takes](Self::take) them in the order of arrival. Until the
/// socket is empty, nobody else may receive from it, and the poller is to ignore it
/// ([`is_ahead`](Self::is_ahead)).
///
/// ```text
///  any thread of the crew, one at a time     any thread                     engine's thread
///  recvmmsg ─► a batch, with its place ────► opens it ─► in order ─► take ─► handle_opened
///      ▲                                                              │
///      └───────────────────── at most 4 batches of memory ◄───────────┘
/// ```
#[derive(Debug, Default)]
pub struct UdpReceiver {
    threads: Option<Threads>,
    inlets: Vec<Arc<Inlet>>,
}

#[derive(Debug)]
struct Threads {
    desk: Desk,
    shared: Arc<Shared>,
}

/// What all inlets have in common.
#[derive(Debug)]
struct Shared {
    keys: Keys,
    waker: Arc<Waker>,
    /// The engine's thread was woken and has not looked yet.
    told: AtomicBool,
    truncated: AtomicU64,
}

impl Shared {
    /// Has the engine's thread look.
    fn tell(&self) {
        if !self.told.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }
}

impl UdpReceiver {
    /// A receiver without sockets, with the threads of `sender`, if it has any. `waker` wakes the
    /// caller when there is something to [take](Self::take); `index_of` reads the receiver index of
    /// a datagram, which says what [key](Self::set_key) opens it.
    pub fn beside(
        sender: &UdpSender,
        waker: &Arc<Waker>,
        index_of: fn(&[u8]) -> Option<u32>,
    ) -> Self {
        let threads = sender.crew().map(|crew| Threads {
            desk: crew.desk().clone(),
            shared: Arc::new(Shared {
                keys: Keys::new(index_of),
                waker: Arc::clone(waker),
                told: AtomicBool::new(false),
                truncated: AtomicU64::new(0),
            }),
        });
        Self { threads, inlets: Vec::new() }
    }

    /// Whether threads open datagrams, which need keys for that.
    pub fn opens(&self) -> bool {
        self.threads.is_some()
    }

    /// The datagrams with the receiver index `index` are opened by `key` from now on, or not at all
    /// before the engine gets them.
    pub fn set_key(&self, index: u32, key: Option<Arc<dyn Open>>) {
        if let Some(threads) = &self.threads {
            threads.shared.keys.set(index, key);
        }
    }

    /// Adds a socket. It replaces one with the same id, as if that were [removed](Self::remove).
    pub fn insert(&mut self, socket: Arc<UdpSocket>) {
        self.remove(socket.id());
        let Some(Threads { desk, shared }) = &self.threads else { return };
        self.inlets.push(Inlet::new(socket, desk.clone(), Arc::clone(shared)));
    }

    /// Removes the socket of `local`, and drops what was received there and not yet taken.
    pub fn remove(&mut self, local: LocalId) {
        self.inlets.retain(|inlet| {
            let kept = inlet.id() != local;
            if !kept {
                inlet.close();
            }
            kept
        });
    }

    /// Whether threads receive ahead from the socket of `local`.
    pub fn is_ahead(&self, local: LocalId) -> bool {
        self.inlet(local).is_some_and(|inlet| inlet.is_ahead())
    }

    /// Receives from `socket`, unless threads do, and calls `take` for each datagram in the order
    /// of arrival, with its source and ECN field.
    pub fn receive(
        &self,
        socket: &UdpSocket,
        buffers: &mut ReceiveBuffers,
        take: impl FnMut(SocketAddr, Ecn, &mut [u8]),
    ) -> std::io::Result<()> {
        let inlet = self.inlet(socket.id());
        if inlet.is_some_and(|inlet| inlet.is_ahead()) {
            return Ok(());
        }
        // The sooner they begin, the better.
        let limit = inlet.map_or(usize::MAX, |_| buffers.messages_of(BYTES));
        socket.recv_messages(buffers, limit)?;
        // They go on while this thread takes what is here.
        if buffers.len() >= BACKLOG {
            inlet.into_iter().for_each(|inlet| inlet.start());
        }
        super::take_datagrams(buffers, take);
        Ok(())
    }

    /// Takes the next batch of each socket that threads have received, and calls `take` for each
    /// datagram: with the local address, its source, its ECN field, and what became of it. Call it
    /// when the waker woke, and after [`help`](Self::help).
    pub fn take(&self, mut take: impl FnMut(LocalId, SocketAddr, Ecn, (&mut [u8], Opened))) {
        let Some(Threads { shared, .. }) = &self.threads else { return };
        shared.told.swap(false, Ordering::AcqRel);
        let mut more = false;
        for inlet in &self.inlets {
            let Some(mut batch) = inlet.next() else { continue };
            batch.each(|remote, ecn, datagram, opened| {
                take(inlet.id(), remote, ecn, (datagram, opened));
            });
            more |= inlet.give_back(batch);
        }
        if more {
            shared.tell();
        }
    }

    /// Whether there is work for the threads that none has begun with.
    pub fn has_work(&self) -> bool {
        let Some(Threads { desk, .. }) = &self.threads else { return false };
        self.inlets.iter().any(|inlet| inlet.is_ahead() && desk.has(&inlet.whom()))
    }

    /// Does the next piece of the threads' work that none has begun with, for a caller that has
    /// nothing better to do. Returns whether there was any.
    pub fn help(&self) -> bool {
        let Some(Threads { desk, .. }) = &self.threads else { return false };
        let inlet = self.inlets.iter().find(|inlet| desk.take_back(&inlet.whom()));
        inlet.is_some_and(|inlet| {
            inlet.work();
            true
        })
    }

    /// Messages dropped by the threads because they were too long or not from an IP address.
    pub fn truncated(&self) -> u64 {
        let threads = self.threads.as_ref();
        threads.map_or(0, |threads| threads.shared.truncated.load(Ordering::Relaxed))
    }

    fn inlet(&self, local: LocalId) -> Option<&Arc<Inlet>> {
        self.inlets.iter().find(|inlet| inlet.id() == local)
    }
}

impl Drop for UdpReceiver {
    fn drop(&mut self) {
        self.inlets.iter().for_each(|inlet| inlet.close());
    }
}

/// One socket from which threads receive.
#[derive(Debug)]
struct Inlet {
    /// Itself, to be given to the crew.
    me: Weak<Self>,
    socket: Arc<UdpSocket>,
    desk: Desk,
    shared: Arc<Shared>,
    state: Mutex<State>,
    /// Batches that were received and are not yet taken, and one more until the socket is empty.
    ahead: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    line: InOrder<Batch>,
    spare: Vec<Batch>,
    /// Batches made so far.
    count: usize,
    /// The next piece of work was not given for want of a batch.
    starved: bool,
    closed: bool,
}

impl Inlet {
    fn new(socket: Arc<UdpSocket>, desk: Desk, shared: Arc<Shared>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            socket,
            desk,
            shared,
            state: Mutex::default(),
            ahead: AtomicUsize::new(0),
        })
    }

    fn id(&self) -> LocalId {
        self.socket.id()
    }

    fn whom(&self) -> Arc<dyn Work> {
        self.me.upgrade().expect("this exists")
    }

    fn is_ahead(&self) -> bool {
        self.ahead.load(Ordering::Acquire) > 0
    }

    /// Has the crew receive until the socket is empty. One piece of work exists until then, but
    /// while there is no batch.
    fn start(&self) {
        self.ahead.fetch_add(1, Ordering::AcqRel);
        self.desk.give(&self.whom(), 1);
    }

    /// A batch to receive into, if there is one.
    fn batch(&self) -> Option<Batch> {
        let mut state = lock(&self.state);
        if state.closed {
            return None;
        }
        if let Some(batch) = state.spare.pop() {
            return Some(batch);
        }
        if state.count < MAX_BATCHES {
            state.count += 1;
            return Some(Batch::new());
        }
        state.starved = true;
        None
    }

    /// The next batch, if it is opened.
    fn next(&self) -> Option<Batch> {
        lock(&self.state).line.next()
    }

    /// Takes back the memory of a batch. Returns whether the next one is there.
    fn give_back(&self, batch: Batch) -> bool {
        let mut state = lock(&self.state);
        state.spare.push(batch);
        let (starved, more) = (std::mem::take(&mut state.starved), state.line.has_next());
        drop(state);
        self.ahead.fetch_sub(1, Ordering::AcqRel);
        if starved {
            self.desk.give(&self.whom(), 1);
        }
        more
    }

    /// Nothing is received any more, and what was is dropped.
    fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.line.drain().for_each(drop);
    }
}

impl Work for Inlet {
    /// Receives the next batch and opens it.
    fn work(&self) {
        let Some(mut batch) = self.batch() else { return };
        let truncated = batch.truncated();
        if let Err(error) = batch.receive(&self.socket) {
            log::debug!("receiving at local address {}: {error}", self.id().0);
        }
        let truncated = batch.truncated() - truncated;
        self.shared.truncated.fetch_add(truncated, Ordering::Relaxed);
        let mut state = lock(&self.state);
        if batch.len() == 0 {
            state.spare.push(batch);
            drop(state);
            self.ahead.fetch_sub(1, Ordering::AcqRel);
            self.shared.tell();
            return;
        }
        self.ahead.fetch_add(1, Ordering::AcqRel);
        state.line.push(batch);
        let (place, mut batch) = state.line.take().expect("it was just added");
        drop(state);
        // The next one is received meanwhile, by whoever is free.
        self.desk.give(&self.whom(), 1);
        batch.open(&self.shared.keys);
        let mut state = lock(&self.state);
        if !state.closed {
            state.line.put(place, batch);
        }
        drop(state);
        self.shared.tell();
    }
}

#[cfg(test)]
mod tests;
