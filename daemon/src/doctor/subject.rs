//! What `mpipd` has to do on this host: the parts of its settings that the checks need.

use std::net::{IpAddr, SocketAddr};

use mpip_core::{DEFAULT_PORT, Encapsulation, PeerConfig, Policy, Prefix};

use crate::config::{HostMode, Settings};

/// What `mpipd` has to do on this host. Without a configuration, the defaults.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) listen_port: u16,
    /// The port of paths with encapsulation `tcp`, if there are any.
    pub(super) tcp_port: Option<TcpPort>,
    pub(super) interface: String,
    pub(super) host_mode: HostMode,
    /// Whether packets are captured.
    pub(super) captures: bool,
    /// Interfaces that a `[[path]]` names.
    pub(super) path_interfaces: Vec<String>,
    /// Endpoints of all peers.
    pub(super) endpoints: Vec<SocketAddr>,
    /// Whether some peers have no endpoints, so that they have to open the paths.
    pub(super) is_called: bool,
    pub(super) public_key: Option<String>,
    /// Whether packets by IPv4 outside of host mode are to be refused when it is dead.
    pub(super) sinks_ipv4: bool,
    /// Our table of nftables, if there is to be one.
    pub(super) table: Option<String>,
    /// Whether everything without another way goes through a peer.
    pub(super) default_route: bool,
    /// Whether packets are forwarded for peers or for networks behind this host.
    pub(super) forwards: bool,
    /// Command that starts it, and the one that ends it.
    pub(super) up: String,
    pub(super) down: String,
}

/// The TCP port of paths, and how much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TcpPort {
    pub(super) number: u16,
    /// Whether a peer has no other paths.
    pub(super) required: bool,
    /// Whether the configuration sets it.
    pub(super) named: bool,
}

impl Default for Subject {
    fn default() -> Self {
        Self {
            listen_port: DEFAULT_PORT,
            tcp_port: None,
            interface: "mpip0".to_owned(),
            host_mode: HostMode::default(),
            captures: false,
            path_interfaces: Vec::new(),
            endpoints: Vec::new(),
            is_called: true,
            public_key: None,
            sinks_ipv4: false,
            table: None,
            default_route: false,
            forwards: false,
            up: "mpip up FILE".to_owned(),
            down: "mpip down FILE".to_owned(),
        }
    }
}

impl Subject {
    pub(super) fn of(settings: &Settings) -> Self {
        let peers = &settings.peers;
        let opportunistic = settings.opportunistic.is_some();
        let tcp_port = settings.permits(Encapsulation::Tcp).then(|| TcpPort {
            number: settings.tcp_port,
            required: settings.requires(Encapsulation::Tcp),
            named: settings.tcp_port_place.line.is_some(),
        });
        Self {
            listen_port: settings.listen_port,
            tcp_port,
            interface: settings.interface.clone(),
            host_mode: settings.host_mode.clone(),
            captures: opportunistic
                || peers.iter().any(|peer| peer.host_mode && peer.policy != Policy::Off),
            path_interfaces: settings.path_interfaces.clone().unwrap_or_default(),
            endpoints: peers.iter().flat_map(|peer| peer.endpoints.clone()).collect(),
            is_called: opportunistic || peers.iter().any(|peer| peer.endpoints.is_empty()),
            public_key: Some(settings.private_key.public_key().to_string()),
            sinks_ipv4: peers.iter().any(sinks_ipv4),
            table: crate::firewall::table_of(settings),
            default_route: settings.default_route,
            forwards: settings.router.is_some()
                || settings.gateway.as_ref().is_some_and(|gateway| gateway.forward),
            up: format!("mpip up {}", settings.file.display()),
            down: format!("mpip down {}", settings.file.display()),
        }
    }

    /// Addresses of peers.
    pub(super) fn peer_addresses(&self) -> Vec<IpAddr> {
        let mut addresses: Vec<_> = self.endpoints.iter().map(SocketAddr::ip).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

/// Whether packets by IPv4 to prefixes of the peer are refused outside of host mode's table.
fn sinks_ipv4(peer: &PeerConfig) -> bool {
    let own_table = |prefix: &Prefix| peer.host_mode && *prefix == Prefix::host(prefix.address());
    let mut prefixes = peer.allowed_prefixes.iter().filter(|prefix| !own_table(prefix));
    peer.policy == Policy::Require && prefixes.any(|prefix| prefix.address().is_ipv4())
}
