//! Addresses of paths, and what a path looks like from outside.

use core::net::SocketAddr;

/// A local address that datagrams leave from and arrive at: an index that the caller gave it in
/// [`LocalAddress`].
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
    /// How the engine names it in a [`PathAddress`]; unique, not used again
    /// for another address while the engine lives.
    pub id: LocalId,
    /// The interface that holds the address.
    pub interface: String,
    /// The address, with the port of our socket on it.
    pub address: SocketAddr,
    /// Largest IP packet that the interface sends, in bytes.
    pub mtu: u16,
    /// What paths from here look like.
    pub encapsulation: Encapsulation,
}

/// What a path looks like to whoever forwards its packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Encapsulation {
    /// Datagrams.
    #[default]
    Udp,
    /// Segments of a connection, each with a datagram.
    Tcp,
}

impl Encapsulation {
    /// Bytes before a datagram in a packet to `remote`: the IP header, and those of UDP, or of TCP
    /// with timestamps and the datagram's length.
    pub fn headers(self, remote: SocketAddr) -> usize {
        let ip = if remote.is_ipv4() { 20 } else { 40 };
        ip + match self {
            Self::Udp => 8,
            Self::Tcp => 20 + 12 + 2,
        }
    }
}

named!(Encapsulation { Udp = "udp", Tcp = "tcp" });
