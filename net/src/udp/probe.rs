//! Finds out what the kernel grants a UDP socket: one that is there, or one that is never bound.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::socket;
use crate::socket::options::{option, set_buffers, set_option};

/// What the kernel grants a UDP socket of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Size of the receive buffer in bytes, in the units of the request.
    pub receive_buffer: usize,
    /// Whether it splits messages into datagrams (`UDP_SEGMENT`, Linux 4.18).
    pub segmentation: bool,
    /// Whether it gathers datagrams into messages (`UDP_GRO`, Linux 5.0).
    pub receive_offload: bool,
}

impl Granted {
    /// Asks for buffers of `buffer` bytes and for every offload.
    pub fn ask(buffer: usize) -> io::Result<Self> {
        let fd = socket::open(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        set_buffers(fd.as_fd(), buffer)?;
        // The kernel doubles the requested value (socket(7)).
        let receive_buffer = option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF)? / 2;
        Ok(Self {
            receive_buffer: usize::try_from(receive_buffer).unwrap_or(0),
            segmentation: segmentation(fd.as_fd()).is_ok(),
            receive_offload: set_option(fd.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).is_ok(),
        })
    }
}

/// Succeeds if the kernel splits messages of such sockets into datagrams.
pub(super) fn segmentation(fd: BorrowedFd<'_>) -> io::Result<()> {
    option(fd, libc::SOL_UDP, libc::UDP_SEGMENT).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_buffer_is_granted_as_it_was_asked_for() {
        let granted = Granted::ask(64 << 10).expect("a socket");
        assert_eq!(granted.receive_buffer, 64 << 10);
    }
}
