//! Addresses of paths, and their encapsulation.

use core::net::SocketAddr;

/// Identifies a local address: an index that the caller assigned in [`LocalAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalId(pub u16);

/// The two ends of a path as the caller's sockets see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathAddress {
    /// The local end.
    pub local: LocalId,
    /// The peer's address and port.
    pub remote: SocketAddr,
}

/// An address of this host that paths may start from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// Its identifier in a [`PathAddress`]; unique, and not reused for another address while the
    /// engine exists.
    pub id: LocalId,
    /// The interface with the address.
    pub interface: String,
    /// The address, with the port of our socket on it.
    pub address: SocketAddr,
    /// Largest IP packet that the interface sends, in bytes.
    pub mtu: u16,
    /// The encapsulation of paths from here.
    pub encapsulation: Encapsulation,
}

/// The encapsulation of a path's datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Encapsulation {
    /// UDP datagrams.
    #[default]
    Udp,
    /// TCP segments, each with one datagram.
    Tcp,
}

impl Encapsulation {
    /// Bytes before a datagram in a packet to `remote`: the IP header, and the UDP header, or the
    /// TCP header with timestamps and the datagram's length.
    pub fn headers(self, remote: SocketAddr) -> usize {
        let ip = if remote.is_ipv4() { 20 } else { 40 };
        ip + match self {
            Self::Udp => 8,
            Self::Tcp => 20 + 12 + 2,
        }
    }
}

named!(Encapsulation { Udp = "udp", Tcp = "tcp" });
