//! What hands the messages of one socket to the kernel.

use core::ffi::c_int;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::super::UdpSocket;
use super::message::Message;
use crate::socket::SendError;
use crate::socket::batch::{Batch, is_dropped, is_temporary};
use crate::socket::queues::Report;

/// The socket, and the messages that are its next, oldest first. All are sealed.
#[derive(Debug)]
pub(super) struct Outlet {
    socket: Arc<UdpSocket>,
    pub(super) messages: VecDeque<Message>,
    /// Messages that have left, for their memory.
    pub(super) spare: Vec<Message>,
    pub(super) report: Report,
}

impl Outlet {
    pub(super) fn new(socket: Arc<UdpSocket>) -> Self {
        Self {
            socket,
            messages: VecDeque::with_capacity(Batch::CAPACITY),
            spare: Vec::with_capacity(Batch::CAPACITY),
            report: Report::default(),
        }
    }

    /// Sends until nothing is left or the kernel takes no more. Returns whether the latter is so.
    pub(super) fn send(&mut self) -> bool {
        let mut retried = false;
        while !self.messages.is_empty() {
            let result = if self.socket.segmentation() {
                self.send_messages()
            } else {
                self.send_datagrams()
            };
            let result = match result {
                // It may be an ICMP error about an earlier datagram to another address
                // (`IP_RECVERR`). Such an error is reported once, so a second call tells.
                Err(errno) if !is_temporary(errno) && !is_dropped(errno) && !retried => {
                    retried = true;
                    continue;
                }
                Err(errno) if !is_temporary(errno) => self.refused(errno),
                other => other,
            };
            retried = false;
            if result.is_err_and(|errno| errno != libc::EINTR) {
                self.report.counters.blocked += 1;
                return true;
            }
        }
        false
    }

    /// Sends whole messages and removes them from the queue. An error is about the first that
    /// remains.
    fn send_messages(&mut self) -> Result<(), c_int> {
        let mut batch = Batch::new();
        for message in self.messages.iter().take(Batch::CAPACITY) {
            let segment = (message.unsent().len() > message.segment).then_some(message.segment);
            batch.push(message.remote.into(), message.ecn, message.unsent(), segment);
        }
        let counters = &mut self.report.counters;
        counters.calls += 1;
        let sent = batch.send(self.socket.as_fd())?;
        for message in self.messages.drain(..sent) {
            counters.messages += 1;
            counters.datagrams += message.datagrams() as u64;
            counters.bytes += message.unsent().len() as u64;
            self.spare.push(message);
        }
        Ok(())
    }

    /// Sends the datagrams of the first message one by one, in a batch. An error is about the first
    /// that remains.
    fn send_datagrams(&mut self) -> Result<(), c_int> {
        let message = &mut self.messages[0];
        let mut batch = Batch::new();
        for datagram in message.unsent().chunks(message.segment).take(Batch::CAPACITY) {
            batch.push(message.remote.into(), message.ecn, datagram, None);
        }
        let counters = &mut self.report.counters;
        counters.calls += 1;
        let sent = batch.send(self.socket.as_fd())?;
        let bytes = (sent * message.segment).min(message.unsent().len());
        message.on_sent(bytes);
        counters.messages += sent as u64;
        counters.datagrams += sent as u64;
        counters.bytes += bytes as u64;
        if message.unsent().is_empty() {
            self.spare.extend(self.messages.pop_front());
        }
        Ok(())
    }

    /// The kernel refused the first message: because it cannot split it, or for good. An error
    /// returned is temporary.
    fn refused(&mut self, mut errno: c_int) -> Result<(), c_int> {
        let message = &self.messages[0];
        // EIO: the interface computes no checksums. EINVAL and EMSGSIZE: a segment is longer than
        // the MTU, or the socket cannot split at all. A single datagram tells which.
        let split = self.socket.segmentation() && message.datagrams() > 1;
        if split && matches!(errno, libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP) {
            match self.send_datagrams() {
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
        self.drop_first(errno);
        Ok(())
    }

    fn drop_first(&mut self, errno: c_int) {
        let Some(message) = self.messages.pop_front() else { return };
        self.report.error(SendError {
            local: self.socket.id(),
            remote: message.remote,
            datagrams: message.datagrams() as u64,
            len: message.segment.min(message.unsent().len()),
            errno,
        });
        self.spare.push(message);
    }
}
