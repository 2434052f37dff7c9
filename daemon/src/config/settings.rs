//! What a daemon works with: every value checked.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use mpip_core::{
    Encapsulation, EncapsulationPolicy, Opportunistic, PeerConfig, Policy, Prefix, RateLimit, Rule,
    named,
};
use mpip_crypto::PrivateKey;

use crate::diagnosis::Permits;
use crate::joined::Terms;

/// The settings of one daemon.
#[derive(Debug)]
pub struct Settings {
    /// The configuration file.
    pub file: PathBuf,
    /// This node's static key.
    pub private_key: PrivateKey,
    /// UDP port of every path's socket.
    pub listen_port: u16,
    /// Where it is set.
    pub listen_port_place: Place,
    /// TCP port of paths with encapsulation `tcp`.
    pub tcp_port: u16,
    /// Where it is set.
    pub tcp_port_place: Place,
    /// The control socket.
    pub control_socket: PathBuf,
    /// Number of the group that may use the control socket; `None` for the daemon's own group.
    pub control_group: Option<u32>,
    /// Keepalive interval of paths at rest; `None` to use the longest that is found to work.
    pub keepalive: Option<Duration>,
    /// Threads for packets, the engine's included.
    pub threads: usize,
    /// For how long after the last packet the engine's thread does not sleep.
    pub busy_poll: Duration,
    /// Name of the TUN device.
    pub interface: String,
    /// Where it is set.
    pub interface_place: Place,
    /// Addresses of the TUN device.
    pub addresses: Vec<InterfaceAddress>,
    /// Interfaces that paths may use; `None` for all with a usable address.
    pub path_interfaces: Option<Vec<String>>,
    /// The states of interfaces that are not [active](InterfaceState::Active).
    pub path_states: BTreeMap<String, InterfaceState>,
    /// Encapsulation of paths, by interface. For others the peer's setting counts.
    pub path_encapsulations: BTreeMap<String, EncapsulationPolicy>,
    /// Label, cost, budget and the like, by interface.
    pub path_properties: BTreeMap<String, PathProperties>,
    /// What host mode uses of the host.
    pub host_mode: HostMode,
    /// The nodes to associate with.
    pub peers: Vec<PeerConfig>,
    /// Rules; the first that matches a packet decides.
    pub rules: Vec<Rule>,
    /// Associations with nodes that `peers` does not name; `None` for none.
    pub opportunistic: Option<OpportunisticSettings>,
    /// Nodes that are invited, and the way to the Internet for peers; `None` for neither.
    pub gateway: Option<GatewaySettings>,
    /// The networks behind this node; `None` for none.
    pub router: Option<RouterSettings>,
    /// Whether a peer is the way to everything that has no other.
    pub default_route: bool,
    /// What peers may ask through the tunnel.
    pub diagnosis: Permits,
}

/// What a gateway does for its peers.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// What invitations say.
    pub(crate) terms: Terms,
    /// The file of peers that joined, and of invitations.
    pub peers_file: PathBuf,
    /// Whether peers reach other hosts through this one.
    pub forward: bool,
    /// Whether they do so with an address of this host.
    pub masquerade: bool,
}

/// The networks behind this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterSettings {
    /// Their interfaces.
    pub interfaces: Vec<String>,
    /// Whether their hosts reach peers with an inner address of this node.
    pub masquerade: bool,
}

/// Associations with nodes that the configuration does not name.
#[derive(Clone, Debug)]
pub struct OpportunisticSettings {
    /// The engine's settings, pinned keys included.
    pub engine: Opportunistic,
    /// The file of pinned keys.
    pub pins_file: PathBuf,
}

impl Settings {
    /// Whether paths of any peer may use `encapsulation`.
    pub(crate) fn permits(&self, encapsulation: Encapsulation) -> bool {
        permit(&self.peers, self.found(), encapsulation)
    }

    /// Whether a peer permits no other encapsulation than `encapsulation`.
    pub(crate) fn requires(&self, encapsulation: Encapsulation) -> bool {
        require(&self.peers, self.found(), encapsulation)
    }

    /// Whether the daemon keeps the permission to open raw sockets, for paths by TCP. Without any
    /// peer, and as a gateway, it does: peers come while it runs.
    pub(crate) fn needs_raw_sockets(&self) -> bool {
        self.peers.is_empty() || self.gateway.is_some() || self.permits(Encapsulation::Tcp)
    }

    /// The settings of peers that are found, if any are.
    pub(crate) fn found(&self) -> Option<&PeerConfig> {
        self.opportunistic.as_ref().map(|settings| &settings.engine.peer)
    }

    /// Whether captured packets of this host may have to leave as plain IP.
    pub(crate) fn gives_back(&self) -> bool {
        self.opportunistic.is_some() || capture(&self.peers)
    }
}

/// Whether paths of any of `peers`, or of those that are `found`, may use `encapsulation`.
pub(super) fn permit(
    peers: &[PeerConfig],
    found: Option<&PeerConfig>,
    encapsulation: Encapsulation,
) -> bool {
    peers.iter().chain(found).any(|peer| peer.encapsulation.permits(encapsulation))
}

/// Whether one of `peers`, or those that are `found`, permit no other encapsulation than
/// `encapsulation`.
pub(super) fn require(
    peers: &[PeerConfig],
    found: Option<&PeerConfig>,
    encapsulation: Encapsulation,
) -> bool {
    let other = match encapsulation {
        Encapsulation::Udp => Encapsulation::Tcp,
        Encapsulation::Tcp => Encapsulation::Udp,
    };
    peers.iter().chain(found).any(|peer| !peer.encapsulation.permits(other))
}

/// Whether packets of any of `peers` are captured.
pub(super) fn capture(peers: &[PeerConfig]) -> bool {
    peers.iter().any(|peer| peer.host_mode && peer.policy != Policy::Off)
}

/// Whether paths start from an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceState {
    /// Its paths carry packets.
    Active,
    /// They carry packets only while no other path works.
    Standby,
    /// It has no paths.
    Off,
}

named!(InterfaceState { Active = "active", Standby = "standby", Off = "off" });

/// What paths from an interface are called and cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathProperties {
    /// What users call the interface.
    pub label: Option<String>,
    /// Rank in the order in which paths are filled, 0 to 15; the lowest comes first.
    pub cost: u8,
    /// Whether its data is paid for by amount.
    pub metered: bool,
    /// Most data of a period.
    pub budget: Option<Budget>,
    /// Loss at which its paths go on standby with `loss_policy = "threshold"`, parts per million.
    pub loss_threshold: Option<u32>,
    /// The most that this host sends on each path from the interface.
    pub rate_up: Option<RateLimit>,
    /// The most that peers are to send on each path to the interface.
    pub rate_down: Option<RateLimit>,
}

/// Units of rates, kbit/s, from the smallest on.
pub(crate) const RATE_UNITS: [(&str, u64); 3] =
    [("kbit/s", 1), ("Mbit/s", 1_000), ("Gbit/s", 1_000_000)];

/// Units of amounts of data, bytes, from the smallest on.
pub(crate) const AMOUNT_UNITS: [(&str, u64); 4] =
    [("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000), ("TB", 1_000_000_000_000)];

/// Most data of a period, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of IP packets.
    pub bytes: u64,
    /// The period.
    pub period: Period,
}

/// The period of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Period {
    /// A day of UTC.
    Day,
    /// A calendar month of UTC.
    Month,
}

named!(Period { Day = "day", Month = "month" });

/// What host mode uses of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMode {
    /// Routing table with the routes to the peers' addresses. The next two numbers are used too.
    pub table: u32,
    /// Priority of the rules that lead to the tables.
    pub priority: u32,
    /// Mark of our own packets, one bit.
    pub mark: u32,
    /// Whether to make strict reverse path filters loose.
    pub loosen_rp_filter: bool,
}

impl Default for HostMode {
    fn default() -> Self {
        Self { table: 6182, priority: 61, mark: 0x1000_0000, loosen_rp_filter: true }
    }
}

/// Where a value is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The configuration file.
    pub file: PathBuf,
    /// The line, counted from 1; `None` for a default value.
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
