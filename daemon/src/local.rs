//! The local addresses of paths and their sockets, and how they change with the host.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use mpip_core::rules::AttachedNetwork;
use mpip_core::{
    Encapsulation, EncapsulationPolicy, Instant, LocalAddress, LocalId, PATH_LINGER, Prefix,
};
use mpip_net::netlink::{HostAddress, Link};
use mpip_net::udp::{BindError, SocketConfig};
use mpip_net::{TcpSocket, UdpSocket};

use crate::config::{Changeable, Settings};
use crate::sockets::Socket;

/// Kernel buffer of a socket in each direction, in bytes: 100 ms at 500 Mbit/s.
pub(crate) const SOCKET_BUFFER: usize = 6 << 20;

/// Kinds of interfaces that are tunnels themselves. They are used only if a `[[path]]` names them.
const TUNNELS: [&str; 2] = ["tun", "wireguard"];

/// An address of the host that paths can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Usable {
    /// Index of the interface. A new interface of the same name has another index.
    pub(crate) link: u32,
    pub(crate) interface: String,
    pub(crate) ip: IpAddr,
    mtu: u16,
}

/// An address in use.
#[derive(Clone, Debug)]
struct Open {
    link: u32,
    address: LocalAddress,
}

/// An address that the host has, but paths must not use any more. Peers send there until they know.
#[derive(Debug)]
struct Retired {
    open: Open,
    /// When its socket is closed.
    until: Instant,
}

/// A socket to open at each address.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Port {
    encapsulation: Encapsulation,
    number: u16,
    /// Whether it is an error if the port is taken.
    required: bool,
}

/// What changed.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// New addresses with their sockets.
    pub(crate) added: Vec<(LocalAddress, Socket)>,
    /// Addresses that are no longer usable.
    pub(crate) removed: Vec<LocalAddress>,
    /// Addresses that were removed and are usable again. Their sockets are still open.
    pub(crate) revived: Vec<LocalAddress>,
    /// Removed addresses to which nobody sends any more: their sockets are to be closed.
    pub(crate) closed: Vec<LocalId>,
    /// Sockets that could not be opened. Try again later.
    pub(crate) failed: Vec<BindError>,
    /// Whether an interface's MTU or name changed.
    pub(crate) altered: bool,
}

impl Changes {
    /// Whether the engine needs the new list.
    pub(crate) fn any(&self) -> bool {
        let [added, removed] = [self.added.is_empty(), self.removed.is_empty()];
        self.altered || !added || !removed || !self.revived.is_empty()
    }
}

/// What the settings say of the addresses that paths may use.
#[derive(Debug, Default, PartialEq)]
struct Permitted {
    ports: Vec<Port>,
    /// The only interfaces; `None` for all.
    interfaces: Option<Vec<String>>,
    /// Interfaces without paths.
    off: Vec<String>,
    encapsulations: BTreeMap<String, EncapsulationPolicy>,
    /// Inner addresses of the peers.
    prefixes: Vec<Prefix>,
    /// Addresses of our own device.
    own: Vec<IpAddr>,
}

/// The networks that are attached to the host with these `links` and `addresses`. Of its own
/// address on our device, `tun`, there is no network: who has its packets is behind no interface.
pub(crate) fn networks(
    links: &[Link],
    addresses: &[HostAddress],
    tun: u32,
) -> Vec<AttachedNetwork> {
    let network = |host: &HostAddress| {
        let link = links.iter().find(|link| link.index == host.link)?;
        let prefix = match host.link == tun {
            true => Prefix::host(host.address),
            false => Prefix::new(host.address, host.prefix_len)?,
        };
        Some(AttachedNetwork { interface: link.name.clone(), address: host.address, prefix })
    };
    addresses.iter().filter_map(network).collect()
}

/// The addresses in use.
#[derive(Debug, Default)]
pub(crate) struct LocalAddresses {
    /// The configured ports of UDP and TCP.
    numbers: [u16; 2],
    mark: u32,
    permitted: Permitted,
    open: Vec<Open>,
    retired: Vec<Retired>,
    next_id: u16,
    /// Ports of other programs that were logged already.
    taken: Vec<SocketAddr>,
}

impl LocalAddresses {
    /// No addresses yet. `settings` says which may be used.
    pub(crate) fn new(settings: &Settings) -> Self {
        let mut local = Self {
            numbers: [settings.listen_port, settings.tcp_port],
            mark: settings.host_mode.mark,
            ..Self::default()
        };
        local.reconfigure(&settings.changeable());
        local
    }

    /// Which addresses may be used from the next [`refresh`](Self::refresh) on. Returns whether
    /// that has changed.
    pub(crate) fn reconfigure(&mut self, settings: &Changeable) -> bool {
        let peers = settings.peers.iter();
        let rules = Permitted {
            ports: ports(settings, self.numbers),
            interfaces: settings.path_interfaces.clone(),
            off: settings.off(),
            encapsulations: settings.path_encapsulations.clone(),
            prefixes: peers.flat_map(|peer| peer.allowed_prefixes.iter().copied()).collect(),
            own: settings.addresses.iter().map(|own| own.address).collect(),
        };
        let changed = rules != self.permitted;
        self.permitted = rules;
        changed
    }

    /// Interfaces without paths, because their state is `off`.
    pub(crate) fn off(&self) -> Vec<String> {
        self.permitted.off.clone()
    }

    /// The complete list.
    pub(crate) fn list(&self) -> Vec<LocalAddress> {
        self.open.iter().map(|open| open.address.clone()).collect()
    }

    /// When to [`refresh`](Self::refresh) although nothing has changed: a socket is to be closed.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.retired.iter().map(|retired| retired.until).min()
    }

    /// Opens and closes sockets so that they match the host's `links` and `addresses`. `tun` is the
    /// index of our own device.
    pub(crate) fn refresh(
        &mut self,
        now: Instant,
        links: &[Link],
        addresses: &[HostAddress],
        tun: u32,
    ) -> Changes {
        let usable = self.usable(links, addresses, tun);
        let mut changes = Changes::default();
        let mut opened = std::mem::take(&mut self.open);
        opened.retain_mut(|open| {
            let kind = open.address.encapsulation;
            let wanted = |port: &Port| port.encapsulation == kind;
            let found = usable.iter().find(|usable| open.is(usable));
            let found = found.filter(|usable| self.ports_on(&usable.interface).iter().any(wanted));
            match found {
                Some(usable) => changes.altered |= open.follow(usable),
                None => {
                    changes.removed.push(open.address.clone());
                    let open = open.clone();
                    match kind == Encapsulation::Udp && open.is_of(addresses) {
                        true => self.retired.push(Retired { open, until: now + PATH_LINGER }),
                        false => changes.closed.push(open.address.id),
                    }
                }
            }
            found.is_some()
        });
        self.open = opened;
        self.retired.retain(|retired| {
            let closes = retired.until <= now || !retired.open.is_of(addresses);
            if closes {
                changes.closed.push(retired.open.address.id);
            }
            !closes
        });
        for usable in usable {
            for port in self.ports_on(&usable.interface) {
                let same = |open: &Open| {
                    open.is(&usable) && open.address.encapsulation == port.encapsulation
                };
                if self.open.iter().any(same) {
                    continue;
                }
                if let Some(index) = self.retired.iter().position(|retired| same(&retired.open)) {
                    let mut open = self.retired.swap_remove(index).open;
                    open.follow(&usable);
                    changes.revived.push(open.address.clone());
                    self.open.push(open);
                    continue;
                }
                match self.bind(&usable, port) {
                    Ok(added) => changes.added.push(added),
                    Err(error) if port.required => changes.failed.push(error),
                    Err(error) => self.go_without(SocketAddr::new(usable.ip, port.number), &error),
                }
            }
        }
        changes
    }

    /// The sockets to open at the addresses of `interface`.
    fn ports_on(&self, interface: &str) -> Vec<Port> {
        let policy = self.permitted.encapsulations.get(interface).copied().unwrap_or_default();
        let ports = self.permitted.ports.iter().filter(|port| policy.permits(port.encapsulation));
        // A policy that names an encapsulation permits no other.
        let by_name = policy != EncapsulationPolicy::Auto;
        ports.map(|port| Port { required: port.required || by_name, ..*port }).collect()
    }

    /// Opens a socket.
    fn bind(&mut self, usable: &Usable, port: Port) -> Result<(LocalAddress, Socket), BindError> {
        let id = self.free_id();
        let config = SocketConfig {
            id,
            interface: Some(usable.interface.clone()),
            address: SocketAddr::new(usable.ip, port.number),
            mark: self.mark,
            buffer: SOCKET_BUFFER,
        };
        let (socket, bound) = match port.encapsulation {
            Encapsulation::Udp => {
                let socket = UdpSocket::bind(&config)?;
                let bound = socket.address();
                (Socket::Udp(Arc::new(socket)), bound)
            }
            Encapsulation::Tcp => {
                (Socket::Tcp(Arc::new(TcpSocket::bind(&config)?)), config.address)
            }
        };
        self.next_id = id.0.wrapping_add(1);
        let address = LocalAddress {
            id,
            interface: usable.interface.clone(),
            address: bound,
            mtu: usable.mtu,
            encapsulation: port.encapsulation,
        };
        self.open.push(Open { link: usable.link, address: address.clone() });
        Ok((address, socket))
    }

    /// The id of a new socket. Those of closed ones are used again after all others. No process has
    /// as many sockets as there are ids.
    fn free_id(&self) -> LocalId {
        let retired = self.retired.iter().map(|retired| &retired.open);
        let used: BTreeSet<u16> =
            self.open.iter().chain(retired).map(|open| open.address.id.0).collect();
        let mut id = self.next_id;
        while used.contains(&id) {
            id = id.wrapping_add(1);
        }
        LocalId(id)
    }

    /// Logs, once for each address, that it has no paths by TCP.
    fn go_without(&mut self, address: SocketAddr, error: &BindError) {
        if !self.taken.contains(&address) {
            log::warn!("{error}; paths from there go by UDP alone");
            self.taken.push(address);
        }
    }

    /// The addresses that paths may use. `tun` is the index of our own device.
    pub(crate) fn usable(
        &self,
        links: &[Link],
        addresses: &[HostAddress],
        tun: u32,
    ) -> Vec<Usable> {
        let mut usable: Vec<Usable> = Vec::new();
        for host in addresses {
            let Some(link) = links.iter().find(|link| link.index == host.link) else { continue };
            let known =
                usable.iter().any(|other| other.link == link.index && other.ip == host.address);
            if known || link.index == tun || !self.permits_link(link) || !self.permits(host) {
                continue;
            }
            usable.push(Usable {
                link: link.index,
                interface: link.name.clone(),
                ip: host.address,
                mtu: u16::try_from(link.mtu).unwrap_or(u16::MAX),
            });
        }
        usable
    }

    fn permits_link(&self, link: &Link) -> bool {
        if self.permitted.off.contains(&link.name) {
            return false;
        }
        let wanted = match &self.permitted.interfaces {
            Some(names) => names.contains(&link.name),
            None => !link.kind.as_deref().is_some_and(|kind| TUNNELS.contains(&kind)),
        };
        wanted && link.is_running() && !link.loopback
    }

    /// Whether paths may start from the address: not if it is deprecated, on our own device, or in
    /// a network that is a peer's. Packets between such a network and the peer would be routed into
    /// the tunnel that they carry. A wider prefix of a peer (a default route) is no obstacle,
    /// because the on-link prefix is more specific.
    fn permits(&self, host: &HostAddress) -> bool {
        let theirs = |prefix: &Prefix| {
            prefix.contains(host.address) && prefix.prefix_len() >= host.prefix_len
        };
        !host.deprecated
            && !self.permitted.own.contains(&host.address)
            && !self.permitted.prefixes.iter().any(theirs)
    }
}

/// The sockets that the peers' settings ask for.
fn ports(settings: &Changeable, [udp, tcp]: [u16; 2]) -> Vec<Port> {
    let mut ports = Vec::new();
    // UDP is always opened: peers get its address, and nobody else can take the port.
    for (encapsulation, number) in [(Encapsulation::Udp, udp), (Encapsulation::Tcp, tcp)] {
        let required = encapsulation == Encapsulation::Udp || settings.requires(encapsulation);
        if required || settings.permits(encapsulation) {
            ports.push(Port { encapsulation, number, required });
        }
    }
    ports
}

impl Open {
    /// Whether it is open at `usable`. The kernel binds sockets to interfaces, whatever these are
    /// called.
    fn is(&self, usable: &Usable) -> bool {
        self.link == usable.link && self.address.address.ip() == usable.ip
    }

    /// Follows the interface's name and MTU. Returns whether they changed.
    fn follow(&mut self, usable: &Usable) -> bool {
        let Usable { interface, mtu, .. } = usable;
        let LocalAddress { interface: name, mtu: former, .. } = &mut self.address;
        if name != interface {
            log::info!("interface {name} is called {interface} now");
        }
        let changed = (&*name, &*former) != (interface, mtu);
        name.clone_from(interface);
        *former = *mtu;
        changed
    }

    /// Whether the host has it, usable or not, as one of `addresses`.
    fn is_of(&self, addresses: &[HostAddress]) -> bool {
        let ip = self.address.address.ip();
        addresses.iter().any(|host| host.link == self.link && host.address == ip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests_support::link;

    const UDP: Port = Port { encapsulation: Encapsulation::Udp, number: 0, required: true };

    fn address(link: u32, text: &str) -> HostAddress {
        let (address, prefix_len) = text.split_once('/').expect("a prefix");
        HostAddress {
            link,
            address: address.parse().expect("valid"),
            prefix_len: prefix_len.parse().expect("valid"),
            deprecated: false,
        }
    }

    fn local(interfaces: Option<&[&str]>, prefixes: &[&str]) -> LocalAddresses {
        LocalAddresses {
            permitted: Permitted {
                ports: vec![UDP],
                interfaces: interfaces.map(|names| names.iter().map(ToString::to_string).collect()),
                prefixes: prefixes.iter().map(|text| text.parse().expect("valid")).collect(),
                own: vec!["10.77.0.1".parse().expect("valid")],
                ..Permitted::default()
            },
            ..LocalAddresses::default()
        }
    }

    fn names(local: &LocalAddresses, links: &[Link], addresses: &[HostAddress]) -> Vec<String> {
        let usable = local.usable(links, addresses, 9);
        usable.iter().map(|usable| format!("{} {}", usable.interface, usable.ip)).collect()
    }

    #[test]
    fn addresses_of_running_interfaces_are_used() {
        let mut down = link(2, "eth1");
        down.carrier = false;
        let mut tunnel = link(3, "wg0");
        tunnel.kind = Some("wireguard".to_owned());
        let mut loopback = link(1, "lo");
        loopback.loopback = true;
        let links = [loopback, link(4, "eth0"), down, tunnel, link(9, "mpip0")];
        let addresses = [
            address(1, "198.18.9.9/32"),
            address(4, "198.18.0.1/24"),
            address(4, "2001:db8::1/64"),
            address(2, "198.18.1.1/24"),
            address(3, "198.18.2.1/24"),
            address(9, "198.18.3.1/24"),
            address(77, "198.18.4.1/24"),
            HostAddress { deprecated: true, ..address(4, "2001:db8::9/64") },
        ];
        assert_eq!(
            names(&local(None, &[]), &links, &addresses),
            ["eth0 198.18.0.1", "eth0 2001:db8::1"]
        );
        assert_eq!(
            names(&local(Some(&["wg0", "mpip0", "eth1"]), &[]), &links, &addresses),
            ["wg0 198.18.2.1"]
        );
    }

    #[test]
    fn attached_networks_are_those_of_the_hosts_addresses_but_not_of_our_device() {
        let links = [link(3, "eth0"), link(5, "mpip0")];
        let addresses = [
            address(3, "198.18.0.7/24"),
            address(3, "2001:db8::7/64"),
            address(5, "198.19.0.1/16"),
        ];
        let found = networks(&links, &addresses, 5);
        let shown: Vec<String> = found
            .iter()
            .map(|it| format!("{} {} {}", it.interface, it.address, it.prefix))
            .collect();
        assert_eq!(
            shown,
            [
                "eth0 198.18.0.7 198.18.0.0/24",
                "eth0 2001:db8::7 2001:db8::/64",
                "mpip0 198.19.0.1 198.19.0.1/32",
            ]
        );
    }

    #[test]
    fn addresses_that_belong_into_the_tunnel_are_not_used() {
        let links = [link(4, "eth0")];
        let addresses =
            [address(4, "10.77.0.1/24"), address(4, "198.18.0.1/24"), address(4, "198.18.1.1/24")];
        assert_eq!(
            names(&local(None, &["0.0.0.0/0", "198.18.0.0/15"]), &links, &addresses),
            ["eth0 198.18.0.1", "eth0 198.18.1.1"]
        );
        assert_eq!(
            names(&local(None, &["198.18.1.0/24", "198.18.0.1/32"]), &links, &addresses),
            Vec::<String>::new()
        );
    }

    #[test]
    fn an_interface_that_is_off_has_no_addresses_and_the_others_keep_theirs() {
        let mut local = local(None, &[]);
        let links = [link(1, "lo"), link(2, "eth1")];
        // Loopback addresses can be bound everywhere, and `lo` exists.
        let addresses = [address(1, "127.0.0.1/8"), address(2, "198.18.77.1/24")];
        let changes = local.refresh(Instant::ZERO, &links, &addresses, 9);
        assert_eq!((changes.added.len(), changes.failed.len()), (1, 1), "it has no eth1");
        local.permitted.off = vec!["eth1".to_owned()];
        let before = local.list();
        let changes = local.refresh(Instant::ZERO, &links, &addresses, 9);
        assert!(!changes.any() && changes.failed.is_empty(), "{changes:?}");
        assert_eq!(local.list(), before, "the same socket");
        local.permitted.off = vec!["lo".to_owned()];
        assert_eq!(local.refresh(Instant::ZERO, &links, &addresses, 9).removed, before);
        assert!(local.list().is_empty());
    }

    #[test]
    fn a_socket_outlives_its_address_until_peers_know_and_may_be_used_again() {
        let mut local = local(None, &[]);
        let (links, addresses) = ([link(1, "lo")], [address(1, "127.0.0.1/8")]);
        let turn = |local: &mut LocalAddresses, off: bool, now: Instant, addresses: &[_]| {
            local.permitted.off = if off { vec!["lo".to_owned()] } else { Vec::new() };
            local.refresh(now, &links, addresses, 9)
        };
        let start = Instant::ZERO;
        let (address, _) = turn(&mut local, false, start, &addresses).added.remove(0);
        let off = turn(&mut local, true, start, &addresses);
        assert_eq!((off.removed.len(), off.closed), (1, vec![]));
        assert_eq!(local.next_timeout(), Some(start + PATH_LINGER));
        let on = turn(&mut local, false, start + PATH_LINGER / 2, &addresses);
        assert_eq!((on.added.len(), &on.revived), (0, &vec![address.clone()]));
        assert!(on.any() && local.next_timeout().is_none());
        assert_eq!(local.list(), on.revived);

        turn(&mut local, true, start, &addresses);
        assert!(!turn(&mut local, true, start + PATH_LINGER / 2, &addresses).any());
        let late = turn(&mut local, true, start + PATH_LINGER, &addresses);
        assert_eq!((late.any(), late.closed), (false, vec![address.id]));
        assert!(local.next_timeout().is_none());

        let (second, _) = turn(&mut local, false, start, &addresses).added.remove(0);
        turn(&mut local, true, start, &addresses);
        let gone = turn(&mut local, true, start, &[]);
        assert_eq!(gone.closed, [second.id], "the host does not have it any more");
    }

    #[test]
    fn a_port_that_nobody_needs_any_more_is_closed() {
        let mut local = local(None, &[]);
        let addresses = [address(1, "127.0.0.1/8")];
        local.refresh(Instant::ZERO, &[link(1, "lo")], &addresses, 9);
        local.permitted.encapsulations = [("lo".to_owned(), EncapsulationPolicy::Tcp)].into();
        let changes = local.refresh(Instant::ZERO, &[link(1, "lo")], &addresses, 9);
        assert_eq!(changes.removed.len(), 1);
        let later = Instant::ZERO + PATH_LINGER;
        let changes = local.refresh(later, &[link(1, "lo")], &addresses, 9);
        assert_eq!(changes.closed.len(), 1, "when peers have had time to notice");
        local.permitted.encapsulations.clear();
        assert_eq!(local.refresh(Instant::ZERO, &[link(1, "lo")], &addresses, 9).added.len(), 1);
    }

    #[test]
    fn an_interface_that_is_made_anew_gets_a_new_socket() {
        let mut local = local(None, &[]);
        // Loopback addresses can be bound everywhere, and `lo` exists.
        let addresses = [address(1, "127.0.0.1/8")];
        let first = local.refresh(Instant::ZERO, &[link(1, "lo")], &addresses, 9);
        assert_eq!((first.added.len(), first.failed.len()), (1, 0), "{first:?}");
        assert!(!local.refresh(Instant::ZERO, &[link(1, "lo")], &addresses, 9).any());

        let mut smaller = link(1, "lo");
        smaller.mtu = 1_400;
        let changes = local.refresh(Instant::ZERO, &[smaller], &addresses, 9);
        assert!(changes.altered && changes.added.is_empty() && changes.removed.is_empty());
        assert_eq!(local.list()[0].mtu, 1_400);

        let again = local.refresh(Instant::ZERO, &[link(5, "lo")], &[address(5, "127.0.0.1/8")], 9);
        assert_eq!((again.added.len(), again.removed.len()), (1, 1), "{again:?}");
        assert_ne!(again.added[0].0.id, again.removed[0].id, "numbers are not used again");

        let gone = local.refresh(Instant::ZERO, &[], &[], 9);
        assert_eq!((gone.removed.len(), local.list().len()), (1, 0));
    }

    #[test]
    fn an_interface_that_is_renamed_keeps_its_sockets() {
        let mut local = local(None, &[]);
        let addresses = [address(1, "127.0.0.1/8")];
        let named = |name: &str| [link(1, name)];
        local.refresh(Instant::ZERO, &named("lo"), &addresses, 9);
        let before = local.list();
        let changes = local.refresh(Instant::ZERO, &named("wan0"), &addresses, 9);
        assert!(changes.any() && changes.failed.is_empty(), "{changes:?}");
        assert_eq!((changes.added.len(), changes.removed.len()), (0, 0));
        let expected = LocalAddress { interface: "wan0".to_owned(), ..before[0].clone() };
        assert_eq!(local.list(), [expected]);

        // Another name may be turned off, and one that it gets later is not.
        local.permitted.off = vec!["eth0".to_owned()];
        let changes = local.refresh(Instant::ZERO, &named("eth0"), &addresses, 9);
        assert_eq!((changes.removed.len(), changes.closed.len()), (1, 0));
        let changes = local.refresh(Instant::ZERO, &named("lo"), &addresses, 9);
        assert_eq!((&changes.revived, changes.failed.len()), (&before, 0));

        // The name says by what encapsulation paths may go.
        local.permitted.encapsulations = [("wan0".to_owned(), EncapsulationPolicy::Tcp)].into();
        let changes = local.refresh(Instant::ZERO, &named("wan0"), &addresses, 9);
        assert_eq!((changes.removed, local.list().len()), (before, 0));
    }

    #[test]
    fn ids_are_used_again_after_all_others_and_never_twice_at_once() {
        let mut local = local(None, &[]);
        let addresses = [address(1, "127.0.0.1/8"), address(1, "127.0.0.2/8")];
        let links = [link(1, "lo")];
        local.next_id = u16::MAX;
        let first = local.refresh(Instant::ZERO, &links, &addresses[..1], 9);
        assert_eq!(first.added[0].0.id, LocalId(u16::MAX));
        local.next_id = u16::MAX;
        let second = local.refresh(Instant::ZERO, &links, &addresses, 9);
        assert_eq!((second.added.len(), second.added[0].0.id), (1, LocalId(0)));
    }

    #[test]
    fn an_address_that_cannot_be_bound_is_reported_and_tried_again() {
        let mut local = local(None, &[]);
        let addresses = [address(1, "198.18.77.77/24")];
        for _ in 0..2 {
            let changes = local.refresh(Instant::ZERO, &[link(1, "lo")], &addresses, 9);
            assert_eq!(changes.failed.len(), 1);
            assert!(!changes.any());
        }
    }
}
