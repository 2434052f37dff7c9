//! What a daemon works with: every value checked.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use mpip_core::{
    Encapsulation, EncapsulationPolicy, Opportunistic, PeerConfig, Policy, Prefix, Rule,
};
use mpip_crypto::PrivateKey;

/// The settings of one daemon.
#[derive(Debug)]
pub struct Settings {
    /// The configuration file.
    pub file: PathBuf,
    /// This node's static key.
    pub private_key: PrivateKey,
    /// UDP port of every path's socket.
    pub listen_port: u16,
    /// Where the file says so.
    pub listen_port_place: Place,
    /// TCP port of paths that look like TCP.
    pub tcp_port: u16,
    /// Where the file says so.
    pub tcp_port_place: Place,
    /// The control socket.
    pub control_socket: PathBuf,
    /// The group that may use the control socket; `None` for the daemon's own.
    pub control_group: Option<u32>,
    /// Longest silence on paths at rest; `None` for as long as is found to do no harm.
    pub keepalive: Option<Duration>,
    /// Name of the TUN device.
    pub interface: String,
    /// Where the file says so.
    pub interface_place: Place,
    /// Addresses of the TUN device.
    pub addresses: Vec<InterfaceAddress>,
    /// The interfaces that paths may use; `None` for every one with a usable address.
    pub path_interfaces: Option<Vec<String>>,
    /// What paths from an interface look like; those that are not here leave it to the peers.
    pub path_encapsulations: BTreeMap<String, EncapsulationPolicy>,
    /// What host mode uses on the host.
    pub host_mode: HostMode,
    /// The nodes to be associated with.
    pub peers: Vec<PeerConfig>,
    /// First match decides.
    pub rules: Vec<Rule>,
    /// How to deal with nodes that `peers` does not name; `None` leaves them alone.
    pub opportunistic: Option<OpportunisticSettings>,
}

/// How to deal with nodes that the configuration does not name.
#[derive(Clone, Debug)]
pub struct OpportunisticSettings {
    /// What the engine is told, the pinned keys with it.
    pub engine: Opportunistic,
    /// Where keys are pinned.
    pub pins_file: PathBuf,
}

impl Settings {
    /// Whether paths of any peer may use `encapsulation`.
    pub(crate) fn permits(&self, encapsulation: Encapsulation) -> bool {
        self.peers.iter().any(|peer| peer.encapsulation.permits(encapsulation))
    }

    /// Whether packets of this host may be captured that are to leave as plain IP after all.
    pub(crate) fn gives_back(&self) -> bool {
        let captures = |peer: &PeerConfig| peer.host_mode && peer.policy != Policy::Off;
        self.opportunistic.is_some() || self.peers.iter().any(captures)
    }

    /// Whether a peer has no paths without `encapsulation`.
    pub(crate) fn requires(&self, encapsulation: Encapsulation) -> bool {
        let other = match encapsulation {
            Encapsulation::Udp => Encapsulation::Tcp,
            Encapsulation::Tcp => Encapsulation::Udp,
        };
        self.peers.iter().any(|peer| !peer.encapsulation.permits(other))
    }
}

/// What host mode uses on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMode {
    /// The routing table with the routes to the peers' addresses.
    pub table: u32,
    /// Priority of the rule that leads to it.
    pub priority: u32,
    /// One bit, which the marks of our own packets have.
    pub mark: u32,
    /// Whether strict reverse path filters are made loose.
    pub loosen_rp_filter: bool,
}

impl Default for HostMode {
    fn default() -> Self {
        Self { table: 6182, priority: 61, mark: 0x1000_0000, loosen_rp_filter: true }
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The configuration file.
    pub file: PathBuf,
    /// The line, counted from 1; `None` for a default.
    pub line: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        self.line.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}

/// An address of an interface, with the prefix that is reached through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of the prefix.
    pub prefix_len: u8,
}

impl InterfaceAddress {
    /// The prefix that is reached through the address.
    pub fn prefix(&self) -> Prefix {
        Prefix::new(self.address, self.prefix_len).expect("the length was checked when it was read")
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}
