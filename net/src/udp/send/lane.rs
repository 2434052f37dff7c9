//! The way of one socket's messages from the engine's thread to the kernel: they are sealed on any
//! thread of the crew ([`Work`]), several at the same time, and sent in their order by one thread
//! at a time.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use mpip_types::LocalId;

use super::super::UdpSocket;
use super::message::Message;
use super::outlet::Outlet;
use crate::Waker;
use crate::crew::{Work, lock};
use crate::in_order::InOrder;
use crate::socket::batch::Batch;
use crate::socket::queues::Report;

/// What the engine's thread is told by the threads that send.
#[derive(Debug, Default)]
pub(super) struct Notices {
    report: Mutex<Report>,
    /// There are errors in the report.
    errors: AtomicBool,
    /// Wakes the engine's thread.
    waker: Option<Arc<Waker>>,
}

impl Notices {
    pub(super) fn new(waker: Option<Arc<Waker>>) -> Self {
        Self { waker, ..Self::default() }
    }

    /// The report of all sockets.
    pub(super) fn report(&self) -> MutexGuard<'_, Report> {
        lock(&self.report)
    }

    /// The report, if there are errors in it.
    pub(super) fn errors(&self) -> Option<MutexGuard<'_, Report>> {
        self.errors.load(Ordering::Acquire).then(|| self.report())
    }

    /// All errors were taken.
    pub(super) fn clear(&self) {
        self.errors.store(false, Ordering::Release);
    }

    /// Adds what `report` has, and empties it. Returns whether there are errors.
    fn add(&self, report: &mut Report) -> bool {
        let errors = !report.errors.is_empty();
        self.report().append(report);
        if errors {
            self.errors.store(true, Ordering::Release);
        }
        errors
    }
}

/// The messages of one socket that the engine's thread has handed over.
#[derive(Debug)]
pub(super) struct Lane {
    socket: Arc<UdpSocket>,
    state: Mutex<State>,
    /// Messages that were handed over and have not left.
    waiting: AtomicUsize,
    /// The kernel takes no more for now.
    blocked: AtomicBool,
    /// The engine was refused a slot for want of room; there is room again.
    wanted: AtomicBool,
    room: AtomicBool,
    notices: Arc<Notices>,
}

#[derive(Debug)]
struct State {
    line: InOrder<Message>,
    /// Missing while a thread sends.
    outlet: Option<Box<Outlet>>,
    /// Messages that have left, for their memory.
    spare: Vec<Message>,
    closed: bool,
}

/// Who sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Thread {
    Engine,
    Crew,
}

impl Lane {
    pub(super) fn new(socket: Arc<UdpSocket>, notices: Arc<Notices>) -> Self {
        let state = State {
            line: InOrder::default(),
            outlet: Some(Box::new(Outlet::new(Arc::clone(&socket)))),
            spare: Vec::new(),
            closed: false,
        };
        Self {
            socket,
            state: Mutex::new(state),
            waiting: AtomicUsize::new(0),
            blocked: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            room: AtomicBool::new(false),
            notices,
        }
    }

    pub(super) fn socket(&self) -> &Arc<UdpSocket> {
        &self.socket
    }

    pub(super) fn id(&self) -> LocalId {
        self.socket.id()
    }

    /// Whether the kernel takes no more for now.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Acquire)
    }

    /// Messages that were handed over and have not left.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// The engine was refused a slot. It is told when half of the messages that wait have left.
    pub(super) fn want_room(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// Whether there is room since [`want_room`](Self::want_room); once.
    pub(super) fn take_room(&self) -> bool {
        self.room.load(Ordering::Acquire) && self.room.swap(false, Ordering::AcqRel)
    }

    /// Hands `messages` over, to be sealed and sent by the crew: one piece of work for each. Memory
    /// comes back in `spare`.
    pub(super) fn hand_over(&self, messages: &mut Vec<Message>, spare: &mut Vec<Message>) {
        self.waiting.fetch_add(messages.len(), Ordering::AcqRel);
        let mut state = lock(&self.state);
        messages.drain(..).for_each(|message| state.line.push(message));
        spare.append(&mut state.spare);
    }

    /// Seals and sends `messages` on this thread. Returns `false`, and leaves them, while others
    /// wait to be sent before them.
    pub(super) fn send(&self, messages: &mut Vec<Message>, spare: &mut Vec<Message>) -> bool {
        let mut state = lock(&self.state);
        if self.waiting() > 0 {
            return false;
        }
        let Some(outlet) = &mut state.outlet else { return false };
        self.waiting.fetch_add(messages.len(), Ordering::AcqRel);
        for mut message in messages.drain(..) {
            message.seal();
            outlet.messages.push_back(message);
        }
        let mut state = self.advance(state, Thread::Engine);
        spare.append(&mut state.spare);
        true
    }

    /// Seals the next message that was handed over, and sends what is next, on this thread.
    pub(super) fn help(&self) {
        self.seal_next(Thread::Engine);
    }

    fn seal_next(&self, thread: Thread) {
        let Some((place, mut message)) = lock(&self.state).line.take() else { return };
        message.seal();
        let mut state = lock(&self.state);
        if state.closed {
            self.notices.report().counters.dropped_removed += message.datagrams() as u64;
            return;
        }
        state.line.put(place, message);
        drop(self.advance(state, thread));
    }

    /// The socket is writable again. Returns whether the kernel took all that it had refused.
    pub(super) fn resume(&self) -> bool {
        let state = lock(&self.state);
        if state.outlet.is_some() {
            self.blocked.store(false, Ordering::Release);
            drop(self.advance(state, Thread::Engine));
        }
        !self.is_blocked()
    }

    /// Drops all messages, and those that come. Returns their datagrams.
    pub(super) fn close(&self) -> u64 {
        let mut state = lock(&self.state);
        state.closed = true;
        let State { line, outlet, .. } = &mut *state;
        let ready = outlet.iter_mut().flat_map(|outlet| outlet.messages.drain(..));
        line.drain().chain(ready).map(|message| message.datagrams() as u64).sum()
    }

    /// Sends what is next and sealed, until nothing is or the kernel takes no more; nothing if
    /// another thread does so, which looks again before it stops.
    fn advance<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        thread: Thread,
    ) -> MutexGuard<'a, State> {
        if self.is_blocked() {
            return state;
        }
        let Some(mut outlet) = state.outlet.take() else { return state };
        let mut tell = false;
        loop {
            while outlet.messages.len() < Batch::CAPACITY
                && let Some(message) = state.line.next()
            {
                outlet.messages.push_back(message);
            }
            let left = outlet.messages.len();
            if left == 0 {
                break;
            }
            drop(state);
            let blocked = outlet.send();
            tell |= self.notices.add(&mut outlet.report);
            state = lock(&self.state);
            state.spare.append(&mut outlet.spare);
            tell |= self.on_sent(left - outlet.messages.len());
            if blocked {
                tell = true;
                self.blocked.store(true, Ordering::Release);
                break;
            }
        }
        state.outlet = Some(outlet);
        if tell
            && thread == Thread::Crew
            && let Some(waker) = &self.notices.waker
        {
            waker.wake();
        }
        state
    }

    /// `count` messages have left. Returns whether the engine is to be told that there is room.
    fn on_sent(&self, count: usize) -> bool {
        let left = self.waiting.fetch_sub(count, Ordering::AcqRel) - count;
        let room = left <= Batch::CAPACITY / 2 && self.wanted.swap(false, Ordering::AcqRel);
        if room {
            self.room.store(true, Ordering::Release);
        }
        room
    }
}

impl Work for Lane {
    fn work(&self) {
        self.seal_next(Thread::Crew);
    }
}
