//! Messages that were received together, and what became of their datagrams.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use mpip_types::{Ecn, Opened};

use super::keys::Keys;
use crate::socket::ReceiveBuffers;
use crate::socket::receive::{Message, receive};
use crate::udp::UdpSocket;

/// Most messages in a batch.
const MESSAGES: usize = 16;

/// Bytes that a batch is to have, if its messages are like those before: they stay in the
/// processor's cache until they are opened.
pub(super) const BYTES: usize = 256 << 10;

/// Messages in one piece of memory.
#[derive(Debug)]
pub(super) struct Batch {
    buffers: ReceiveBuffers,
    /// What became of each datagram, in order.
    opened: Vec<Opened>,
}

impl Batch {
    pub(super) fn new() -> Self {
        Self { buffers: ReceiveBuffers::new(MESSAGES), opened: Vec::new() }
    }

    /// Receives messages that have arrived.
    pub(super) fn receive(&mut self, socket: &UdpSocket) -> io::Result<()> {
        let limit = self.buffers.messages_of(BYTES);
        receive(socket.as_fd(), &mut self.buffers, limit).map(drop)
    }

    /// Bytes of all messages.
    pub(super) fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Messages dropped so far because they were too long or not from an IP address.
    pub(super) fn truncated(&self) -> u64 {
        self.buffers.truncated()
    }

    /// Opens the datagrams for which there are keys.
    pub(super) fn open(&mut self, keys: &Keys) {
        let mut opener = keys.opener();
        let Self { buffers, opened, .. } = self;
        let datagrams = buffers.messages().flat_map(Message::datagrams);
        opened.clear();
        opened.extend(datagrams.map(|datagram| opener.open(datagram)));
    }

    /// Calls `take` for each datagram in the order of arrival.
    pub(super) fn each(&mut self, mut take: impl FnMut(SocketAddr, Ecn, &mut [u8], Opened)) {
        let mut opened = self.opened.iter();
        for message in self.buffers.messages() {
            let (remote, ecn) = (message.remote, message.ecn);
            for datagram in message.datagrams() {
                let opened = opened.next().copied().unwrap_or_default();
                take(remote, ecn, datagram, opened);
            }
        }
    }
}
