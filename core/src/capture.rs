//! The capture: which packets the host hands to the engine in host mode.

use core::fmt;
use core::net::IpAddr;

use mpip_types::Prefix;

/// How packets between this host and a peer in host mode travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Traffic {
    /// As plain IP, as without mpip.
    #[default]
    Plain,
    /// On all paths.
    Multipath,
    /// Not at all: no path works, and the policy forbids plain packets.
    Blocked,
}

impl Traffic {
    /// The name in status output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Multipath => "multipath",
            Self::Blocked => "blocked",
        }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which packets of the host go to a peer in host mode; replaces the former capture of that peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The peer's name.
    pub peer: String,
    /// Destinations whose packets the host has to hand to the engine.
    pub prefixes: Vec<Prefix>,
    /// Addresses of the peer to which only TCP, ICMP, and UDP from ports that the host chooses are
    /// handed to the engine: the peer sees this host at another address, and everything else stays
    /// plain.
    pub translated: Vec<IpAddr>,
    /// Once these packets are handed to the engine, it has to be told the ports whose UDP stays
    /// plain ([`Engine::handle_plain_udp_ports`](crate::Engine::handle_plain_udp_ports)). Until
    /// then all UDP to `translated` does.
    pub asks_udp_ports: bool,
    /// Addresses of NATs in front of the peer: packets to
    /// [`TRANSLATED_PORTS`](crate::TRANSLATED_PORTS) there and ICMP are handed to the engine, which
    /// returns those that belong to no connection of the peer.
    pub nats: Vec<IpAddr>,
    /// Packets to these destinations must never leave in another way, even if this process ends.
    pub fail_closed: bool,
}
