//! ICMP errors about datagrams that were sent (ip(7), `IP_RECVERR`).

use core::ffi::c_int;
use core::mem::{offset_of, size_of, zeroed};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::MutexGuard;

use super::UdpSocket;
use crate::crew::lock;
use crate::socket::address::RawAddress;
use crate::socket::options::option;

/// Room for the control messages of one error, in bytes: the error with its sender's address, and
/// those that the socket gets with every datagram.
const CONTROL_LEN: usize = 256;
/// Most errors read at a time.
const MAX_ERRORS: usize = 64;

/// Aligned for the kernel's structures.
#[repr(C, align(8))]
struct ControlBytes([u8; CONTROL_LEN]);

impl UdpSocket {
    /// Reads the errors that have arrived. Calls `take` with the destination of each datagram whose
    /// error says that nobody is there. Anybody can forge such an error.
    pub fn recv_errors(&self, mut take: impl FnMut(SocketAddr)) {
        for _ in 0..MAX_ERRORS {
            let mut address = RawAddress::default();
            let mut control = ControlBytes([0; CONTROL_LEN]);
            // SAFETY: plain data, for which zero is valid.
            let mut header: libc::msghdr = unsafe { zeroed() };
            header.msg_name = address.as_mut_ptr().cast();
            header.msg_namelen = RawAddress::CAPACITY;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_LEN as _;
            let reading = self.hold_errors();
            // SAFETY: the header points at buffers that are valid for the lengths given, are not
            // moved before the call returns, and are used by nobody else.
            let received = unsafe {
                libc::recvmsg(
                    self.fd.as_raw_fd(),
                    &raw mut header,
                    libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
                )
            };
            drop(reading);
            if received < 0 {
                return;
            }
            let len = header.msg_controllen as usize;
            let errno = errno(&control.0[..len.min(CONTROL_LEN)]);
            if let (Some(remote), true) =
                (address.to_socket_address(), errno.is_some_and(is_absence))
            {
                take(remote);
            }
        }
    }

    /// Keeps others from reading errors: whenever one is read, the next call on the socket fails
    /// with the one behind it (`sock_dequeue_err_skb` in the kernel).
    pub(super) fn hold_errors(&self) -> MutexGuard<'_, ()> {
        lock(&self.errors)
    }

    /// Forgets the error with which the next call would fail, whatever it is about. It can still be
    /// [read](Self::recv_errors).
    pub(super) fn clear_error(&self) {
        // The kernel forgets it when it tells it (socket(7)).
        let _ = option(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR);
    }
}

fn is_absence(errno: c_int) -> bool {
    matches!(errno, libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH)
}

/// The error number in the control messages, if it came by ICMP.
fn errno(mut control: &[u8]) -> Option<c_int> {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    while control.len() >= HEADER {
        let number = |at: usize| -> Option<c_int> {
            Some(c_int::from_ne_bytes(*control.get(at..)?.first_chunk()?))
        };
        let len = usize::from_ne_bytes(*control.first_chunk()?);
        let level = number(offset_of!(libc::cmsghdr, cmsg_level))?;
        let kind = number(offset_of!(libc::cmsghdr, cmsg_type))?;
        let data = control.get(HEADER..len)?;
        let ours = matches!(
            (level, kind),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        );
        if ours {
            let origin = *data.get(offset_of!(libc::sock_extended_err, ee_origin))?;
            let by_icmp = matches!(origin, libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6);
            let errno = c_int::from_ne_bytes(*data.first_chunk()?);
            return by_icmp.then_some(errno);
        }
        control = control.get(len.next_multiple_of(size_of::<usize>())..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nothing_that_is_received_can_break_the_reader(
            bytes in proptest::collection::vec(any::<u8>(), 0..CONTROL_LEN),
        ) {
            let _ = errno(&bytes);
        }
    }
}
