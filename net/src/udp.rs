//! UDP sockets, one per local address, that send and receive many datagrams per system call.
//!
//! This file has the socket, `send` the [`UdpSender`] with a queue per socket, `inlet` the
//! [`UdpReceiver`], whose threads receive and open.
//! `errors` reads what ICMP reports, `probe` finds out which offloads the kernel has.

mod errors;
mod inlet;
mod probe;
mod send;

use core::sync::atomic::{AtomicBool, Ordering};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use mpip_types::{Ecn, LocalId};

use crate::socket::SocketKind;
use crate::socket::options::{local_address, set_buffers, set_option, set_packet_options};
use crate::socket::receive::receive;
pub use crate::socket::{BindError, ReceiveBuffers, SendCounters, SendError, SocketConfig};
pub use inlet::UdpReceiver;
pub use probe::Granted;
pub use send::UdpSender;

/// A non-blocking socket at one local address.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    id: LocalId,
    address: SocketAddr,
    segmentation: AtomicBool,
    /// Held to read an error, or to keep others from it.
    errors: Mutex<()>,
}

impl UdpSocket {
    /// Opens and binds a socket. Its packets are never fragmented: this host ignores the kernel's
    /// path MTU, and routers see the DF bit.
    pub fn bind(config: &SocketConfig) -> Result<Self, BindError> {
        let error = |operation| config.error(SocketKind::Udp, operation);
        let fd = config.open(SocketKind::Udp, libc::SOCK_DGRAM, 0)?;
        set_buffers(fd.as_fd(), config.buffer).map_err(error("set the buffers of"))?;
        set_ip_options(fd.as_fd(), config.address.is_ipv6())
            .map_err(error("set the IP options of"))?;
        // Without it every datagram arrives in a message of its own, which is slower but works.
        if let Err(refused) = set_option(fd.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1) {
            log::warn!("datagrams to {} arrive one by one: UDP_GRO: {refused}", config.address);
        }
        let segmentation = probe::segmentation(fd.as_fd());
        if let Err(refused) = &segmentation {
            log::warn!(
                "datagrams from {} leave one by one: UDP_SEGMENT: {refused}",
                config.address
            );
        }
        config.bind(SocketKind::Udp, fd.as_fd(), config.address)?;
        let address = local_address(fd.as_fd()).map_err(error("read the address of"))?;
        let segmentation = AtomicBool::new(segmentation.is_ok());
        Ok(Self { fd, id: config.id, address, segmentation, errors: Mutex::new(()) })
    }

    /// How the engine names the local address.
    pub fn id(&self) -> LocalId {
        self.id
    }

    /// The local address and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the kernel splits messages into datagrams (`UDP_SEGMENT`): it can, and has not
    /// refused for good.
    pub fn segmentation(&self) -> bool {
        self.segmentation.load(Ordering::Relaxed)
    }

    fn without_segmentation(&self) {
        self.segmentation.store(false, Ordering::Relaxed);
    }

    /// Receives the messages that have arrived, at most one per buffer, and calls `take` for each
    /// datagram in the order of arrival, with its source and ECN field.
    ///
    /// Returns the number of datagrams. More messages may be waiting; a level-triggered epoll
    /// reports them.
    pub fn recv_batch(
        &self,
        buffers: &mut ReceiveBuffers,
        mut take: impl FnMut(SocketAddr, Ecn, &mut [u8]),
    ) -> io::Result<usize> {
        self.recv_messages(buffers, usize::MAX)?;
        let mut datagrams = 0;
        take_datagrams(buffers, |remote, ecn, datagram| {
            datagrams += 1;
            take(remote, ecn, datagram);
        });
        Ok(datagrams)
    }

    /// Receives the messages that have arrived, at most one per buffer and at most `limit`.
    fn recv_messages(&self, buffers: &mut ReceiveBuffers, limit: usize) -> io::Result<()> {
        receive(self.fd.as_fd(), buffers, limit).map(drop)
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Calls `take` for each datagram that is in `buffers`.
fn take_datagrams(buffers: &mut ReceiveBuffers, mut take: impl FnMut(SocketAddr, Ecn, &mut [u8])) {
    for message in buffers.messages() {
        let (remote, ecn) = (message.remote, message.ecn);
        message.datagrams().for_each(|datagram| take(remote, ecn, datagram));
    }
}

fn set_ip_options(fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    if ipv6 {
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
    } else {
        set_option(fd, libc::IPPROTO_IP, libc::IP_RECVERR, 1)?;
    }
    set_packet_options(fd, ipv6)
}
