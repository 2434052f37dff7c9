//! UDP sockets, one per local address, that send and receive many datagrams per system call.

pub(crate) mod address;
pub(crate) mod batch;
pub(crate) mod cmsg;
mod errors;
mod probe;
pub(crate) mod receive;
pub(crate) mod send;

use core::ffi::{c_int, c_void};
use core::fmt;
use core::mem::size_of_val;
use core::sync::atomic::{AtomicBool, Ordering};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use mpip_types::LocalId;

use address::RawAddress;
pub use probe::Granted;
pub use receive::ReceiveBuffers;
pub use send::{SendCounters, SendError, UdpSender};

/// Settings of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketConfig {
    /// How the engine names the local address.
    pub id: LocalId,
    /// The interface that packets leave by and arrive at; `None` leaves it to the routes.
    pub interface: Option<String>,
    /// The local address and port. Port 0 takes a free one.
    pub address: SocketAddr,
    /// The mark of packets sent, for routing rules; 0 is no mark.
    pub mark: u32,
    /// Bytes that may wait in the kernel in each direction; 4 to 8 MiB hold 100 ms at some 500
    /// Mbit/s.
    pub buffer: usize,
}

impl SocketConfig {
    /// What makes an error of an operating system's one.
    pub(crate) fn error(
        &self,
        protocol: &'static str,
        operation: &'static str,
    ) -> impl FnOnce(io::Error) -> BindError {
        let Self { address, interface, .. } = self.clone();
        move |source| BindError { operation, protocol, address, interface, source }
    }

    /// A socket on the interface that has the mark.
    pub(crate) fn open(
        &self,
        name: &'static str,
        kind: c_int,
        protocol: c_int,
    ) -> Result<OwnedFd, BindError> {
        let family = if self.address.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
        let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: takes three numbers.
        let fd = unsafe { libc::socket(family, kind, protocol) };
        if fd < 0 {
            return Err(self.error(name, "open")(io::Error::last_os_error()));
        }
        // SAFETY: the descriptor is new and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        if let Some(interface) = &self.interface {
            let option = libc::SO_BINDTODEVICE;
            set_option_bytes(fd.as_fd(), libc::SOL_SOCKET, option, interface.as_bytes())
                .map_err(self.error(name, "bind to the interface"))?;
        }
        if self.mark != 0 {
            set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, self.mark.cast_signed())
                .map_err(self.error(name, "mark the packets of"))?;
        }
        Ok(fd)
    }

    /// Gives the socket an address.
    pub(crate) fn bind(
        &self,
        name: &'static str,
        fd: BorrowedFd<'_>,
        address: SocketAddr,
    ) -> Result<(), BindError> {
        let raw = RawAddress::from(address);
        // SAFETY: the pointer is valid for the length that is given.
        let status = unsafe { libc::bind(fd.as_raw_fd(), raw.as_ptr(), raw.len()) };
        if status < 0 {
            return Err(self.error(name, "bind")(io::Error::last_os_error()));
        }
        Ok(())
    }
}

/// Why there is no socket.
#[derive(Debug)]
pub struct BindError {
    operation: &'static str,
    /// `UDP` or `TCP`.
    protocol: &'static str,
    address: SocketAddr,
    interface: Option<String>,
    source: io::Error,
}

impl BindError {
    /// Whether a socket for TCP was meant.
    pub fn is_tcp(&self) -> bool {
        self.protocol == crate::tcp::NAME
    }

    /// The operating system's reason.
    pub fn io(&self) -> &io::Error {
        &self.source
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} a {} socket at {}", self.operation, self.protocol, self.address)?;
        if let Some(interface) = &self.interface {
            write!(f, " on {interface}")?;
        }
        match self.source.raw_os_error() {
            Some(libc::EADDRINUSE) => write!(f, ": the port is in use"),
            Some(libc::EPERM) => write!(f, ": the process lacks a capability for it"),
            Some(libc::EADDRNOTAVAIL) => write!(f, ": the host does not have this address"),
            Some(libc::ENODEV) => write!(f, ": there is no such interface"),
            _ => write!(f, ": {}", self.source),
        }
    }
}

impl core::error::Error for BindError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// A non-blocking socket at one local address.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    id: LocalId,
    address: SocketAddr,
    segmentation: AtomicBool,
}

impl UdpSocket {
    /// Opens and binds a socket. Packets are never fragmented, neither here (the kernel's idea of
    /// the path MTU is not used) nor on the way (DF).
    pub fn bind(config: &SocketConfig) -> Result<Self, BindError> {
        let error = |operation| config.error("UDP", operation);
        let fd = config.open("UDP", libc::SOCK_DGRAM, 0)?;
        set_buffers(fd.as_fd(), config.buffer).map_err(error("set the buffers of"))?;
        set_ip_options(fd.as_fd(), config).map_err(error("set the IP options of"))?;
        // Without it each datagram arrives alone, which is slower and nothing else.
        if let Err(refused) = set_option(fd.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1) {
            log::warn!("datagrams to {} arrive one by one: UDP_GRO: {refused}", config.address);
        }
        config.bind("UDP", fd.as_fd(), config.address)?;
        let address = local_address(fd.as_fd()).map_err(error("read the address of"))?;
        Ok(Self { fd, id: config.id, address, segmentation: AtomicBool::new(true) })
    }

    /// How the engine names the local address.
    pub fn id(&self) -> LocalId {
        self.id
    }

    /// The local address and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the kernel cuts datagrams (`UDP_SEGMENT`) for this socket; assumed until it refuses.
    pub fn segmentation(&self) -> bool {
        self.segmentation.load(Ordering::Relaxed)
    }

    fn without_segmentation(&self) {
        self.segmentation.store(false, Ordering::Relaxed);
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(crate) fn set_option(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    set_option_bytes(fd, level, name, &value.to_ne_bytes())
}

pub(crate) fn set_option_bytes(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &[u8],
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of_val(value)).expect("options are short");
    // SAFETY: the pointer is valid for the length that is given.
    let status = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast::<c_void>(), len)
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Beyond the system's limits if we may, else up to them.
pub(crate) fn set_buffers(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    // The kernel doubles the value for its own bookkeeping, as does the limit of the number.
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX).min(c_int::MAX / 2);
    for (force, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        if set_option(fd, libc::SOL_SOCKET, force, bytes).is_err() {
            set_option(fd, libc::SOL_SOCKET, plain, bytes)?;
        }
    }
    Ok(())
}

fn set_ip_options(fd: BorrowedFd<'_>, config: &SocketConfig) -> io::Result<()> {
    if config.address.is_ipv6() {
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
    } else {
        set_option(fd, libc::IPPROTO_IP, libc::IP_RECVERR, 1)?;
    }
    set_packet_options(fd, config)
}

/// No fragments, and ECN fields with what is received.
pub(crate) fn set_packet_options(fd: BorrowedFd<'_>, config: &SocketConfig) -> io::Result<()> {
    if config.address.is_ipv6() {
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)
    } else {
        set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
        set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)
    }
}

pub(crate) fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let mut raw = RawAddress::default();
    let mut len = RawAddress::CAPACITY;
    // SAFETY: the pointers are valid, and `len` says for how many bytes the first is.
    let status = unsafe { libc::getsockname(fd.as_raw_fd(), raw.as_mut_ptr(), &raw mut len) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    raw.to_socket_address().ok_or_else(|| io::Error::other("the socket's address is of no IP"))
}
