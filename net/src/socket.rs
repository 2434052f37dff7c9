//! What sockets of every kind have in common: settings, options, batches of messages, send queues.
//!
//! `udp`, `tcp` and `plain` build on it; nothing here uses them.
//!
//! - This file: [`SocketConfig`] opens and binds sockets, [`BindError`] says why one could not be.
//! - `options`, `address`: socket options and addresses as the kernel takes them.
//! - `cmsg`, `batch`, `receive`: many messages per system call, with their control messages.
//! - `queues`: a send queue per socket, and the slot that is lent to the engine. `counters` has
//!   what became of the datagrams.

pub(crate) mod address;
pub(crate) mod batch;
pub(crate) mod cmsg;
pub(crate) mod counters;
pub(crate) mod options;
pub(crate) mod queues;
pub(crate) mod receive;

use core::ffi::c_int;
use core::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use mpip_types::LocalId;

use address::RawAddress;
pub use counters::{SendCounters, SendError};
use options::{set_mark, set_option_bytes};
pub use receive::ReceiveBuffers;

/// Settings of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketConfig {
    /// How the engine names the local address.
    pub id: LocalId,
    /// Interface by which packets leave and arrive; `None` leaves it to the routes.
    pub interface: Option<String>,
    /// The local address and port. 0 is a free port.
    pub address: SocketAddr,
    /// Mark of packets sent, for routing rules; 0 for none.
    pub mark: u32,
    /// Kernel buffer for each direction, in bytes. 4 to 8 MiB hold about 100 ms at 500 Mbit/s.
    pub buffer: usize,
}

impl SocketConfig {
    /// Converts an error of the operating system.
    pub(crate) fn error(
        &self,
        kind: SocketKind,
        operation: &'static str,
    ) -> impl FnOnce(io::Error) -> BindError {
        let Self { address, interface, .. } = self.clone();
        move |source| BindError { operation, kind, address, interface, source }
    }

    /// Opens a socket of the type and protocol of socket(2), with the interface and mark.
    pub(crate) fn open(
        &self,
        kind: SocketKind,
        socket_type: c_int,
        protocol: c_int,
    ) -> Result<OwnedFd, BindError> {
        let family = if self.address.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
        let fd = open(family, socket_type | libc::SOCK_NONBLOCK, protocol)
            .map_err(self.error(kind, "open"))?;
        if let Some(interface) = &self.interface {
            let option = libc::SO_BINDTODEVICE;
            set_option_bytes(fd.as_fd(), libc::SOL_SOCKET, option, interface.as_bytes())
                .map_err(self.error(kind, "bind to the interface"))?;
        }
        set_mark(fd.as_fd(), self.mark).map_err(self.error(kind, "mark the packets of"))?;
        Ok(fd)
    }

    /// Binds the socket to `address`.
    pub(crate) fn bind(
        &self,
        kind: SocketKind,
        fd: BorrowedFd<'_>,
        address: SocketAddr,
    ) -> Result<(), BindError> {
        let raw = RawAddress::from(address);
        // SAFETY: the pointer is valid for the length that is given.
        let status = unsafe { libc::bind(fd.as_raw_fd(), raw.as_ptr(), raw.len()) };
        if status < 0 {
            return Err(self.error(kind, "bind")(io::Error::last_os_error()));
        }
        Ok(())
    }
}

/// Opens a socket of the family, type and protocol of socket(2). No program that is run has it.
pub(crate) fn open(family: c_int, socket_type: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes three numbers.
    let fd = unsafe { libc::socket(family, socket_type | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The kind of a socket, for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketKind {
    Udp,
    Tcp,
    RawIp,
}

impl fmt::Display for SocketKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::RawIp => "raw IP",
        })
    }
}

/// Why a socket could not be opened.
#[derive(Debug)]
pub struct BindError {
    operation: &'static str,
    kind: SocketKind,
    address: SocketAddr,
    interface: Option<String>,
    source: io::Error,
}

impl BindError {
    /// Whether it was a socket for TCP.
    pub fn is_tcp(&self) -> bool {
        self.kind == SocketKind::Tcp
    }

    /// The operating system's error.
    pub fn io(&self) -> &io::Error {
        &self.source
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} a {} socket at {}", self.operation, self.kind, self.address)?;
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
