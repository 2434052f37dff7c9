//! A packet socket, which takes super-packets (packet(7)).

use core::ffi::c_int;
use core::mem::{size_of, zeroed};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::socket::options::{set_buffers, set_mark, set_option};
use crate::socket::{self, SocketConfig};

/// `PACKET_VNET_HDR`: the header of virtio-net precedes each packet (linux/if_packet.h).
const VNET_HEADER: c_int = 15;

/// Most parts of a packet.
pub(super) const MAX_PARTS: usize = 128;

/// A non-blocking socket that sends packets with their Ethernet header and receives none.
#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens it with the mark and buffer of `config`. Needs `CAP_NET_RAW`.
    pub(super) fn open(config: &SocketConfig) -> io::Result<Self> {
        let fd = socket::open(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)?;
        set_option(fd.as_fd(), libc::SOL_PACKET, VNET_HEADER, 1)?;
        set_mark(fd.as_fd(), config.mark)?;
        set_buffers(fd.as_fd(), config.buffer)?;
        Ok(Self(fd))
    }

    /// Sends one packet by the interface with index `link`: `parts` are the header of virtio-net
    /// with those of the packet, and what follows. Returns the error number if it was not sent.
    ///
    /// # Panics
    ///
    /// When there are more than [`MAX_PARTS`].
    pub(super) fn send<'a>(
        &self,
        link: u32,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), c_int> {
        // SAFETY: plain data, for which zero is valid.
        let mut vectors: [libc::iovec; MAX_PARTS] = unsafe { zeroed() };
        let mut count = 0;
        for part in parts {
            vectors[count] =
                libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
            count += 1;
        }
        // SAFETY: as above. The kernel reads the protocol from the Ethernet header.
        let mut to: libc::sockaddr_ll = unsafe { zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = link.cast_signed();
        // SAFETY: as above.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_name = (&raw mut to).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        message.msg_iov = vectors.as_mut_ptr();
        message.msg_iovlen = count;
        // SAFETY: the header points at `to` and at `count` parts, which are valid for the lengths
        // given until the call returns; the kernel only reads them.
        let sent =
            unsafe { libc::sendmsg(self.0.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        if sent < 0 {
            return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
        }
        Ok(())
    }
}
