//! Counters and errors of sending.

use core::fmt;
use core::ops::AddAssign;
use std::io;
use std::net::SocketAddr;

use mpip_types::LocalId;

use super::batch::is_dropped;

/// What a [`UdpSender`](crate::UdpSender) or [`TcpSender`](crate::TcpSender) did since it was
/// created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounters {
    /// Datagrams that the kernel took.
    pub datagrams: u64,
    /// Their bytes, without outer headers.
    pub bytes: u64,
    /// Messages, each of which is a run of datagrams.
    pub messages: u64,
    /// System calls, the unsuccessful ones included.
    pub calls: u64,
    /// How often the kernel took no more for the moment.
    pub blocked: u64,
    /// Slots refused because of the backlog.
    pub refused: u64,
    /// Slots refused because there is no socket for the local address.
    pub no_socket: u64,
    /// Datagrams dropped: no route, or the network or interface is down.
    pub dropped_unreachable: u64,
    /// Datagrams dropped: longer than the interface's MTU.
    pub dropped_too_long: u64,
    /// Datagrams dropped: the queue of the interface was full, or the other end of a virtual
    /// interface accepts no packets of that size.
    pub dropped_full: u64,
    /// Datagrams dropped: forbidden by a firewall or policy.
    pub dropped_not_permitted: u64,
    /// Datagrams dropped for other reasons.
    pub dropped_other: u64,
    /// Datagrams dropped from the backlog of a socket that was removed.
    pub dropped_removed: u64,
}

impl AddAssign for SendCounters {
    fn add_assign(&mut self, other: Self) {
        self.datagrams += other.datagrams;
        self.bytes += other.bytes;
        self.messages += other.messages;
        self.calls += other.calls;
        self.blocked += other.blocked;
        self.refused += other.refused;
        self.no_socket += other.no_socket;
        self.dropped_unreachable += other.dropped_unreachable;
        self.dropped_too_long += other.dropped_too_long;
        self.dropped_full += other.dropped_full;
        self.dropped_not_permitted += other.dropped_not_permitted;
        self.dropped_other += other.dropped_other;
        self.dropped_removed += other.dropped_removed;
    }
}

impl SendCounters {
    pub(super) fn count_error(&mut self, error: &SendError) {
        let counter = match error.errno {
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN => {
                &mut self.dropped_unreachable
            }
            libc::EMSGSIZE => &mut self.dropped_too_long,
            errno if is_dropped(errno) => &mut self.dropped_full,
            libc::EPERM | libc::EACCES => &mut self.dropped_not_permitted,
            _ => &mut self.dropped_other,
        };
        *counter += error.datagrams;
    }
}

/// Datagrams that were dropped because the kernel refused them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendError {
    /// The local address.
    pub local: LocalId,
    /// Their destination.
    pub remote: SocketAddr,
    /// Their number.
    pub datagrams: u64,
    /// Bytes of the first of them, without outer headers.
    pub len: usize,
    /// The reason, as an error number (`EMSGSIZE`, `ENETUNREACH` …).
    pub errno: i32,
}

impl SendError {
    /// Whether the datagrams were longer than the interface's MTU.
    pub fn is_too_long(&self) -> bool {
        self.errno == libc::EMSGSIZE
    }

    /// Whether there is currently no route to the remote address.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self.errno,
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN
        )
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot send {} datagrams of {} bytes from local address {} to {}: {}",
            self.datagrams,
            self.len,
            self.local.0,
            self.remote,
            io::Error::from_raw_os_error(self.errno)
        )
    }
}
