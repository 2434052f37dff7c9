//! Sends many messages of one socket with one system call.

use core::ffi::{c_int, c_uint};
use core::mem::zeroed;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use mpip_types::Ecn;

use super::address::RawAddress;
use super::cmsg::Control;

/// Whether the call may succeed once the socket is writable.
pub(crate) fn is_temporary(errno: c_int) -> bool {
    matches!(errno, libc::EINTR | libc::EAGAIN)
}

/// Whether the message was dropped on the way out: the queue of the interface is full, or the other
/// end of a virtual interface accepts no packets of that size. The socket stays writable, so
/// waiting for that would be a busy loop, and a message that can never leave would block all
/// others.
pub(crate) fn is_dropped(errno: c_int) -> bool {
    matches!(errno, libc::ENOBUFS | libc::ENOMEM)
}

/// The arguments of one `sendmmsg`. The headers, which point at them, are built right before the
/// call.
pub(crate) struct Batch<'a> {
    addresses: [RawAddress; Batch::CAPACITY],
    controls: [Control; Batch::CAPACITY],
    payloads: [&'a [u8]; Batch::CAPACITY],
    count: usize,
}

impl<'a> Batch<'a> {
    /// Most messages.
    pub(crate) const CAPACITY: usize = 16;

    pub(crate) fn new() -> Self {
        Self {
            addresses: [RawAddress::default(); Batch::CAPACITY],
            controls: [Control::EMPTY; Batch::CAPACITY],
            payloads: [&[]; Batch::CAPACITY],
            count: 0,
        }
    }

    /// Adds a message. The kernel splits it into datagrams of `segment` bytes if that is given.
    pub(crate) fn push(
        &mut self,
        remote: RawAddress,
        ecn: Ecn,
        payload: &'a [u8],
        segment: Option<usize>,
    ) {
        let index = self.count;
        self.addresses[index] = remote;
        self.payloads[index] = payload;
        let control = &mut self.controls[index];
        if let Some(segment) = segment {
            control.push_segment_size(u16::try_from(segment).expect("shorter than a packet"));
        }
        if ecn != Ecn::NotEct {
            control.push_ecn(ecn, remote.is_ipv6());
        }
        self.count += 1;
    }

    /// Sends the messages. Returns how many were sent (at least 1), or the error number of the
    /// first.
    pub(crate) fn send(mut self, socket: BorrowedFd<'_>) -> Result<usize, c_int> {
        // SAFETY: both are plain data, for which zero is valid.
        let mut vectors: [libc::iovec; Batch::CAPACITY] = unsafe { zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; Batch::CAPACITY] = unsafe { zeroed() };
        for index in 0..self.count {
            let payload = self.payloads[index];
            vectors[index] = libc::iovec {
                iov_base: payload.as_ptr().cast_mut().cast(),
                iov_len: payload.len(),
            };
            let header = &mut messages[index].msg_hdr;
            header.msg_name = self.addresses[index].as_mut_ptr().cast();
            header.msg_namelen = self.addresses[index].len();
            header.msg_iov = &raw mut vectors[index];
            header.msg_iovlen = 1;
            self.controls[index].attach(header);
        }
        // SAFETY: each of the `count` headers points at data that is valid for the lengths given
        // and is not moved before the call returns; the kernel only reads it.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                c_uint::try_from(self.count).expect("16 at most"),
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        usize::try_from(sent)
            .map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}
