//! The datagrams of one socket that have not left yet.

use core::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use mpip_types::{Ecn, LocalId};

use super::super::UdpSocket;
use crate::socket::SendError;
use crate::socket::batch::{Batch, is_dropped, is_temporary};
use crate::socket::queues::{Report, SendQueue};

/// Most datagrams in a message (`UDP_MAX_SEGMENTS` until Linux 6.9).
const MAX_SEGMENTS: usize = 64;

/// Most bytes in a message: together with the headers of IPv6 and UDP it has to fit an IP packet.
const MAX_MESSAGE: usize = 65_535 - 48;

/// Number of messages that are sent without waiting for a flush.
const MAX_MESSAGES: usize = Batch::CAPACITY;

/// Most messages in the backlog of a blocked socket.
const MAX_BACKLOG: usize = 4;

/// Datagrams to one address. All have the length of the first, but the last may be shorter.
#[derive(Debug)]
struct Message {
    remote: SocketAddr,
    ecn: Ecn,
    bytes: Box<[u8]>,
    /// Bytes that have left, if datagrams are sent one by one.
    sent: usize,
    len: usize,
    segment: usize,
    /// Whether no datagram may follow.
    closed: bool,
}

impl Message {
    fn takes(&self, remote: SocketAddr, ecn: Ecn, len: usize) -> bool {
        !self.closed
            && self.remote == remote
            && self.ecn == ecn
            && len <= self.segment
            && self.len + len <= self.bytes.len()
            && self.len < MAX_SEGMENTS * self.segment
    }

    fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..self.len]
    }

    fn datagrams(&self) -> usize {
        self.unsent().len().div_ceil(self.segment)
    }
}

/// The messages of one socket, oldest first.
#[derive(Debug)]
pub(super) struct Queue {
    socket: Arc<UdpSocket>,
    messages: Vec<Message>,
    /// Free buffers.
    spare: Vec<Box<[u8]>>,
    /// Index of the message and length of the slot that is lent out.
    reserved: Option<(usize, usize)>,
    blocked: bool,
}

impl SendQueue for Queue {
    fn id(&self) -> LocalId {
        self.socket.id()
    }

    fn is_blocked(&self) -> bool {
        self.blocked
    }

    fn settle(&mut self, committed: bool) {
        let Some((index, len)) = self.reserved.take() else { return };
        let message = &mut self.messages[index];
        if committed {
            message.len += len;
            message.closed = len < message.segment;
        } else if message.len == 0 {
            let message = self.messages.remove(index);
            self.spare.push(message.bytes);
        }
    }

    fn clear(&mut self) -> u64 {
        self.messages.drain(..).map(|message| message.datagrams() as u64).sum()
    }
}

impl Queue {
    pub(super) fn new(socket: Arc<UdpSocket>) -> Self {
        Self {
            socket,
            messages: Vec::with_capacity(MAX_MESSAGES),
            spare: Vec::with_capacity(MAX_MESSAGES),
            reserved: None,
            blocked: false,
        }
    }

    pub(super) fn socket(&self) -> &Arc<UdpSocket> {
        &self.socket
    }

    /// A slot for a datagram behind those to the same address.
    pub(super) fn reserve(
        &mut self,
        remote: SocketAddr,
        ecn: Ecn,
        len: usize,
        report: &mut Report,
    ) -> Option<&mut [u8]> {
        if len == 0 || len > MAX_MESSAGE || !same_family(&self.socket, remote) {
            let errno = if len > MAX_MESSAGE { libc::EMSGSIZE } else { libc::EINVAL };
            let local = self.socket.id();
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
        let message = &mut self.messages[index];
        Some(&mut message.bytes[message.len..message.len + len])
    }

    /// Begins a message; returns its index.
    fn start(
        &mut self,
        remote: SocketAddr,
        ecn: Ecn,
        len: usize,
        report: &mut Report,
    ) -> Option<usize> {
        if !self.blocked && self.messages.len() == MAX_MESSAGES {
            self.send(report);
        }
        let limit = if self.blocked { MAX_BACKLOG } else { MAX_MESSAGES };
        if self.messages.len() >= limit {
            report.counters.refused += 1;
            return None;
        }
        let bytes = self.spare.pop().unwrap_or_else(|| vec![0; MAX_MESSAGE].into());
        self.messages.push(Message {
            remote,
            ecn,
            bytes,
            sent: 0,
            len: 0,
            segment: len,
            closed: false,
        });
        Some(self.messages.len() - 1)
    }

    /// Sends until nothing is left or the kernel takes no more.
    pub(super) fn send(&mut self, report: &mut Report) {
        self.blocked = false;
        let mut retried = false;
        while !self.messages.is_empty() {
            let result = if self.socket.segmentation() {
                self.send_messages(report)
            } else {
                self.send_datagrams(report)
            };
            let result = match result {
                // It may be an ICMP error about an earlier datagram to another address
                // (`IP_RECVERR`). Such an error is reported once, so a second call tells.
                Err(errno) if !is_temporary(errno) && !is_dropped(errno) && !retried => {
                    retried = true;
                    continue;
                }
                Err(errno) if !is_temporary(errno) => self.refused(errno, report),
                other => other,
            };
            retried = false;
            if result.is_err_and(|errno| errno != libc::EINTR) {
                report.counters.blocked += 1;
                self.blocked = true;
                return;
            }
        }
    }

    /// Sends whole messages and removes them from the queue. An error is about the first that
    /// remains.
    fn send_messages(&mut self, report: &mut Report) -> Result<(), c_int> {
        let count = self.messages.len().min(MAX_MESSAGES);
        let mut batch = Batch::new();
        for message in &self.messages[..count] {
            let segment = (message.unsent().len() > message.segment).then_some(message.segment);
            batch.push(message.remote.into(), message.ecn, message.unsent(), segment);
        }
        report.counters.calls += 1;
        let sent = batch.send(self.socket.as_fd())?;
        for message in self.messages.drain(..sent) {
            report.counters.messages += 1;
            report.counters.datagrams += message.datagrams() as u64;
            report.counters.bytes += message.unsent().len() as u64;
            self.spare.push(message.bytes);
        }
        Ok(())
    }

    /// Sends the datagrams of the first message one by one, in a batch. An error is about the first
    /// that remains.
    fn send_datagrams(&mut self, report: &mut Report) -> Result<(), c_int> {
        let message = &mut self.messages[0];
        let mut batch = Batch::new();
        for datagram in message.unsent().chunks(message.segment).take(Batch::CAPACITY) {
            batch.push(message.remote.into(), message.ecn, datagram, None);
        }
        report.counters.calls += 1;
        let sent = batch.send(self.socket.as_fd())?;
        let bytes = (sent * message.segment).min(message.unsent().len());
        message.sent += bytes;
        report.counters.messages += sent as u64;
        report.counters.datagrams += sent as u64;
        report.counters.bytes += bytes as u64;
        if message.unsent().is_empty() {
            let message = self.messages.remove(0);
            self.spare.push(message.bytes);
        }
        Ok(())
    }

    /// The kernel refused the first message: because it cannot split it, or for good. An error
    /// returned is temporary.
    fn refused(&mut self, mut errno: c_int, report: &mut Report) -> Result<(), c_int> {
        let message = &self.messages[0];
        // EIO: the interface computes no checksums. EINVAL and EMSGSIZE: a segment is longer than
        // the MTU, or the socket cannot split at all. A single datagram tells which.
        let split = self.socket.segmentation() && message.datagrams() > 1;
        if split && matches!(errno, libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP) {
            match self.send_datagrams(report) {
                Ok(()) => {
                    log::info!(
                        "datagrams from {} leave one by one: the kernel refused to split messages: {}",
                        self.socket.address(),
                        io::Error::from_raw_os_error(errno)
                    );
                    self.socket.without_segmentation();
                    return Ok(());
                }
                Err(plain) if is_temporary(plain) => return Err(plain),
                Err(plain) => errno = plain,
            }
        }
        self.drop_first(errno, report);
        Ok(())
    }

    fn drop_first(&mut self, errno: c_int, report: &mut Report) {
        let message = self.messages.remove(0);
        report.error(SendError {
            local: self.socket.id(),
            remote: message.remote,
            datagrams: message.datagrams() as u64,
            len: message.segment.min(message.unsent().len()),
            errno,
        });
        self.spare.push(message.bytes);
    }
}

/// Whether `remote` is of the address family of `socket`.
fn same_family(socket: &UdpSocket, remote: SocketAddr) -> bool {
    socket.address().is_ipv4() == remote.is_ipv4()
}
