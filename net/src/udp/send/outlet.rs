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

/// Most further attempts to send what was refused. Each ICMP error about a datagram that left
/// earlier, to any address, makes one call fail (`IP_RECVERR`); so many in a row are no accident.
const RETRIES: usize = 8;

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
        while let Some(first) = self.messages.front() {
            let refusal = first.refusal;
            let result = if self.socket.segmentation() && refusal.is_none() {
                self.insist(Self::send_messages)
            } else {
                self.insist(Self::send_datagrams)
            };
            match result {
                Ok(()) => {
                    if let Some(errno) = refusal.filter(|errno| is_lasting(*errno)) {
                        self.stop_splitting(errno);
                    }
                }
                Err(libc::EINTR) => {}
                Err(errno) if is_temporary(errno) => {
                    self.report.counters.blocked += 1;
                    return true;
                }
                Err(errno) => self.refused(errno),
            }
        }
        false
    }

    /// Calls `send`, and again if its error may be about another datagram.
    fn insist(&mut self, send: fn(&mut Self) -> Result<(), c_int>) -> Result<(), c_int> {
        let mut result = send(self);
        if result.is_err_and(may_be_about_another) {
            let socket = Arc::clone(&self.socket);
            let _held = socket.hold_errors();
            for _ in 0..RETRIES {
                socket.clear_error();
                result = send(self);
                if !result.is_err_and(may_be_about_another) {
                    break;
                }
            }
        }
        result
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

    /// The kernel refused the first message: to split it, which single datagrams tell, or for good.
    fn refused(&mut self, errno: c_int) {
        let splits = self.socket.segmentation();
        let message = &mut self.messages[0];
        let split = splits && message.refusal.is_none() && message.datagrams() > 1;
        if split && (is_lasting(errno) || matches!(errno, libc::EMSGSIZE | libc::EOPNOTSUPP)) {
            message.refusal = Some(errno);
        } else {
            self.drop_first(errno);
        }
    }

    /// The kernel refused to split a message whose datagrams have left one by one.
    fn stop_splitting(&self, errno: c_int) {
        if self.socket.segmentation() {
            log::info!(
                "datagrams from {} leave one by one: the kernel refused to split messages: {}",
                self.socket.address(),
                io::Error::from_raw_os_error(errno)
            );
            self.socket.without_segmentation();
        }
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

/// Whether the error may come from ICMP, about a datagram that left earlier.
fn may_be_about_another(errno: c_int) -> bool {
    !is_temporary(errno) && !is_dropped(errno)
}

/// Whether the error says that the socket's messages cannot be split, if their datagrams leave one
/// by one (`udp_send_skb` in the kernel). EIO: the interface computes no checksums, or IPsec takes
/// the packets. EINVAL: they have no checksum; in older kernels also that segments are longer than
/// the MTU, and such do not leave one by one either. ICMP causes neither, but may cause EMSGSIZE
/// and EOPNOTSUPP (`icmp_err_convert`), so these say nothing for good.
fn is_lasting(errno: c_int) -> bool {
    matches!(errno, libc::EIO | libc::EINVAL)
}

#[cfg(test)]
mod tests {
    use mpip_types::{Ecn, LocalId};

    use super::*;
    use crate::socket::SocketConfig;

    fn outlet() -> Outlet {
        let config = SocketConfig {
            id: LocalId(3),
            interface: None,
            address: "127.0.0.1:0".parse().expect("valid"),
            mark: 0,
            buffer: 64 << 10,
        };
        Outlet::new(Arc::new(UdpSocket::bind(&config).expect("bound")))
    }

    /// Adds a message of three datagrams, from the socket to itself.
    fn push(outlet: &mut Outlet) {
        let mut message = Message::new(outlet.socket.address(), Ecn::NotEct, 100, None);
        (0..3).for_each(|_| message.commit(100));
        outlet.messages.push_back(message);
    }

    /// Counts the call, and fails with `errno` until the last attempt.
    fn fail_at_first(outlet: &mut Outlet, errno: c_int) -> Result<(), c_int> {
        outlet.report.counters.calls += 1;
        if outlet.report.counters.calls > RETRIES as u64 { Ok(()) } else { Err(errno) }
    }

    #[test]
    fn errors_about_others_are_outlasted() {
        let mut outlet = outlet();
        let sent = outlet.insist(|outlet| fail_at_first(outlet, libc::ECONNREFUSED));
        assert_eq!((sent, outlet.report.counters.calls), (Ok(()), 1 + RETRIES as u64));
    }

    #[test]
    fn an_error_that_lasts_is_given_back() {
        let mut outlet = outlet();
        let sent = outlet.insist(|outlet| {
            outlet.report.counters.calls += 1;
            Err(libc::EPERM)
        });
        assert_eq!((sent, outlet.report.counters.calls), (Err(libc::EPERM), 1 + RETRIES as u64));
    }

    #[test]
    fn a_full_queue_is_not_tried_again() {
        let mut outlet = outlet();
        let sent = outlet.insist(|outlet| fail_at_first(outlet, libc::ENOBUFS));
        assert_eq!((sent, outlet.report.counters.calls), (Err(libc::ENOBUFS), 1));
    }

    #[test]
    fn only_what_icmp_cannot_say_ends_segmentation() {
        for (errno, lasting) in [
            (libc::EMSGSIZE, false),
            (libc::EOPNOTSUPP, false),
            (libc::EIO, true),
            (libc::EINVAL, true),
        ] {
            let mut outlet = outlet();
            push(&mut outlet);
            outlet.refused(errno);
            push(&mut outlet);
            assert!(!outlet.send());
            assert_eq!(outlet.socket.segmentation(), !lasting, "{errno}");
            let counters = outlet.report.counters;
            let messages = if lasting { 6 } else { 4 };
            assert_eq!((counters.messages, counters.datagrams), (messages, 6), "{errno}");
            assert!(outlet.report.errors.is_empty(), "{errno}");
        }
    }
}
