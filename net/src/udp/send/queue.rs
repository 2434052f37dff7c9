//! The datagrams of one socket that the engine has written: they gather to messages and are handed
//! over.

use std::net::SocketAddr;
use std::sync::Arc;

use mpip_types::{Ecn, LocalId};

use super::super::UdpSocket;
use super::lane::Lane;
use super::message::{MAX_MESSAGE, Message};
use crate::crew::{Desk, Work};
use crate::socket::SendError;
use crate::socket::batch::Batch;
use crate::socket::queues::{Report, Room, SendQueue};

/// Most messages that wait to be sent.
const MAX_MESSAGES: usize = Batch::CAPACITY;

/// Most messages in the backlog of a blocked socket.
const MAX_BACKLOG: usize = 4;

/// Bytes from which on it pays to have another thread seal and send: to wake it takes as long as to
/// seal and send a third of this.
const WORTH_HANDING_OVER: usize = 16 << 10;

/// The messages of one socket, oldest first.
#[derive(Debug)]
pub(super) struct Queue {
    lane: Arc<Lane>,
    /// Where the work of sealing and sending is given; without it the engine's thread does it.
    crew: Option<Desk>,
    messages: Vec<Message>,
    /// Messages that have left, for their memory.
    spare: Vec<Message>,
    /// Index of the message and length of the slot that is lent out.
    reserved: Option<(usize, usize)>,
}

impl SendQueue for Queue {
    fn id(&self) -> LocalId {
        self.lane.id()
    }

    fn is_blocked(&self) -> bool {
        self.lane.is_blocked()
    }

    fn settle(&mut self, committed: bool) {
        let Some((index, len)) = self.reserved.take() else { return };
        let message = &mut self.messages[index];
        if committed {
            message.commit(len);
            // The sooner others begin, the better.
            if self.crew.is_some() && message.is_full() && self.is_worth_handing_over() {
                self.send();
            }
        } else if message.len() == 0 {
            let message = self.messages.remove(index);
            self.spare.push(message);
        }
    }

    fn clear(&mut self) -> u64 {
        let gathered: usize = self.messages.drain(..).map(|message| message.datagrams()).sum();
        gathered as u64 + self.lane.close()
    }
}

impl Queue {
    pub(super) fn new(lane: Lane, crew: Option<Desk>) -> Self {
        Self {
            lane: Arc::new(lane),
            crew,
            messages: Vec::with_capacity(MAX_MESSAGES),
            spare: Vec::with_capacity(MAX_MESSAGES),
            reserved: None,
        }
    }

    pub(super) fn socket(&self) -> &Arc<UdpSocket> {
        self.lane.socket()
    }

    /// Whether there is room again after a slot was refused because too many messages waited for
    /// the crew; once.
    pub(super) fn take_room(&self) -> bool {
        self.lane.take_room()
    }

    /// A slot for a datagram behind those to the same address.
    pub(super) fn reserve(
        &mut self,
        remote: SocketAddr,
        ecn: Ecn,
        len: usize,
        report: &mut Report,
    ) -> Option<Room<'_>> {
        if len == 0 || len > MAX_MESSAGE || !same_family(self.socket(), remote) {
            let errno = if len > MAX_MESSAGE { libc::EMSGSIZE } else { libc::EINVAL };
            let local = self.id();
            report.error(SendError { local, remote, datagrams: 1, len, errno });
            return None;
        }
        // Only the last message to an address may grow, or datagrams would change their order.
        let last = self.messages.iter().rposition(|message| message.remote == remote);
        let index = match last.filter(|index| self.messages[*index].takes(remote, ecn, len)) {
            Some(index) => index,
            None => self.start(remote, ecn, len, report)?,
        };
        self.reserved = Some((index, len));
        let (bytes, sealings, at) = self.messages[index].room(len);
        let later = self.crew.is_some().then_some((sealings, at));
        Some(Room { bytes, later })
    }

    /// Begins a message; returns its index.
    fn start(
        &mut self,
        remote: SocketAddr,
        ecn: Ecn,
        len: usize,
        report: &mut Report,
    ) -> Option<usize> {
        if self.messages.len() == MAX_MESSAGES {
            self.send();
        }
        // Who waits for others had better help.
        while !self.has_room() && self.take_back() {
            self.lane.help();
        }
        if !self.has_room() {
            self.lane.want_room();
            // Unless they have left meanwhile, and nobody would tell.
            if !self.has_room() {
                report.counters.refused += 1;
                return None;
            }
        }
        self.messages.push(Message::new(remote, ecn, len, self.spare.pop()));
        Some(self.messages.len() - 1)
    }

    /// Whether there is a message that the crew has not begun with, which this thread does then.
    fn take_back(&self) -> bool {
        self.crew.as_ref().is_some_and(|crew| crew.take_back(&self.whom()))
    }

    /// For whom the crew works.
    fn whom(&self) -> Arc<dyn Work> {
        Arc::clone(&self.lane) as Arc<dyn Work>
    }

    fn has_room(&self) -> bool {
        let limit = if self.is_blocked() { MAX_BACKLOG } else { MAX_MESSAGES };
        self.messages.len() + self.lane.waiting() < limit
    }

    /// Sends all messages, or hands them over to be sent.
    pub(super) fn send(&mut self) {
        if self.messages.is_empty() || self.is_blocked() {
            return;
        }
        let worth = self.is_worth_handing_over();
        let Self { lane, crew, messages, spare, .. } = self;
        let Some(crew) = crew else {
            lane.send(messages, spare);
            return;
        };
        if !worth && lane.send(messages, spare) {
            return;
        }
        let (crew, count) = (crew.clone(), messages.len());
        lane.hand_over(messages, spare);
        crew.give(&self.whom(), count);
    }

    /// The socket is writable. Returns whether it is no longer blocked.
    pub(super) fn resume(&mut self) -> bool {
        if self.lane.resume() {
            self.send();
        }
        !self.is_blocked()
    }

    fn is_worth_handing_over(&self) -> bool {
        self.messages.iter().map(Message::len).sum::<usize>() >= WORTH_HANDING_OVER
    }
}

/// Whether `remote` is of the address family of `socket`.
fn same_family(socket: &UdpSocket, remote: SocketAddr) -> bool {
    socket.address().is_ipv4() == remote.is_ipv4()
}
