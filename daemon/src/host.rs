//! What the daemon changes on the host: the TUN device, its addresses, MTU and routes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use mpip_core::Prefix;
use mpip_net::netlink::{HostAddress, Link, Netlink, NetlinkError, Route};

use crate::config::{InterfaceAddress, Settings};

/// The main routing table (rtnetlink(7)).
pub(crate) const MAIN_TABLE: u32 = 254;

/// Metric of our routes: not 0, so that a route which the host already has to the same prefix is
/// left alone instead of replaced, and less than any that DHCP clients and network managers give.
pub(crate) const METRIC: u32 = 1;

/// The MTU until the engine knows better: what the smallest interface carries, less the headers
/// over IPv6 (40 IP, 8 UDP, 32 of ours).
const OVERHEAD: u32 = 80;

/// Every IPv6 link carries so much (RFC 8200 section 5).
const MIN_MTU: u32 = 1280;

/// What an Ethernet carries, assumed when there is no interface yet.
const ETHERNET_MTU: u32 = 1500;

/// A route to one of a peer's prefixes.
#[derive(Debug)]
struct PeerRoute {
    peer: String,
    route: Route,
}

/// The TUN device's side of the host, set up for as long as this lives.
#[derive(Debug)]
pub(crate) struct Host {
    netlink: Netlink,
    link: Link,
    routes: Vec<PeerRoute>,
    addresses: Vec<InterfaceAddress>,
    /// The device's MTU.
    mtu: u32,
    /// The inner MTU toward each peer, as far as it is known.
    inner_mtu: BTreeMap<String, u16>,
    up: bool,
}

impl Host {
    /// Gives the TUN device `settings.interface`, which exists, its MTU, addresses and routes.
    /// What a daemon that was killed left on it is removed first.
    pub(crate) fn set_up(mut netlink: Netlink, settings: &Settings) -> Result<Self, NetlinkError> {
        let link = netlink.link(&settings.interface)?;
        remove_leftovers(&mut netlink, link.index)?;
        let mtu = initial_mtu(&mut netlink, link.index)?;
        let addresses = settings.addresses.clone();
        let route = |prefix| Route {
            prefix,
            link: link.index,
            source: None,
            mtu: None,
            table: MAIN_TABLE,
            metric: METRIC,
        };
        let mut routes = Vec::new();
        // Those of peers in host mode come and go, see `Captures`.
        for peer in settings.peers.iter().filter(|peer| !peer.host_mode) {
            let prefixes = peer.allowed_prefixes.iter().flat_map(|prefix| routed(*prefix));
            let of_peer = |prefix| PeerRoute { peer: peer.name.clone(), route: route(prefix) };
            routes.extend(prefixes.map(of_peer));
        }
        let inner_mtu = BTreeMap::new();
        let mut host = Self { netlink, link, routes, addresses, mtu: 0, inner_mtu, up: true };
        host.set_mtu(mtu)?;
        if let Err(error) = host.netlink.without_link_local(&host.link) {
            // Where IPv6 is off there is nothing to switch off.
            log::debug!("{error}");
        }
        host.netlink.set_up(&host.link)?;
        host.warn_of_conflicts(settings)?;
        host.add_addresses_and_routes()?;
        Ok(host)
    }

    fn add_addresses_and_routes(&mut self) -> Result<(), NetlinkError> {
        for InterfaceAddress { address, prefix_len } in &self.addresses {
            self.netlink.add_address(&self.link, *address, *prefix_len)?;
        }
        for PeerRoute { route, .. } in &self.routes {
            self.netlink.replace_route(route)?;
        }
        Ok(())
    }

    /// Packets to `peer` have `mtu` bytes at most: its routes say so. The device, which all peers
    /// share, carries the largest of them.
    pub(crate) fn set_inner_mtu(&mut self, peer: &str, mtu: u16) -> Result<(), NetlinkError> {
        self.inner_mtu.insert(peer.to_owned(), mtu);
        let largest = self.inner_mtu.values().max().copied().unwrap_or(0);
        let device = u32::from(largest).max(MIN_MTU);
        if device > self.mtu {
            self.set_mtu(device)?;
        }
        for PeerRoute { route, .. } in self.routes.iter_mut().filter(|route| route.peer == peer) {
            route.mtu = Some(route_mtu(route.prefix, mtu));
        }
        if self.up {
            for PeerRoute { route, .. } in self.routes.iter().filter(|route| route.peer == peer) {
                self.netlink.replace_route(route)?;
            }
        }
        self.set_mtu(device)
    }

    /// Follows what others do to the device: while it is down the kernel forgets its routes and
    /// IPv6 addresses, so they are added again when it is set up.
    pub(crate) fn follow(&mut self, links: &[Link]) -> Result<(), NetlinkError> {
        let Some(link) = links.iter().find(|link| link.index == self.link.index) else {
            return Ok(());
        };
        let was_up = std::mem::replace(&mut self.up, link.up);
        match (was_up, link.up) {
            (true, false) => log::warn!("{} was set down: nothing passes it", link.name),
            (false, true) => {
                log::info!("{} was set up again", link.name);
                self.add_addresses_and_routes()?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The device's MTU, in bytes.
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu
    }

    /// The device.
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// The kernel's number of the device.
    pub(crate) fn link_index(&self) -> u32 {
        self.link.index
    }

    /// Changes the device's MTU.
    fn set_mtu(&mut self, mtu: u32) -> Result<(), NetlinkError> {
        if mtu != self.mtu {
            self.netlink.set_mtu(&self.link, mtu)?;
            self.mtu = mtu;
        }
        Ok(())
    }

    /// The host's interfaces and addresses at this moment.
    pub(crate) fn inventory(&mut self) -> Result<(Vec<Link>, Vec<HostAddress>), NetlinkError> {
        Ok((self.netlink.links()?, self.netlink.addresses()?))
    }

    /// Says which prefixes the host reaches without us: its own route to the same prefix wins.
    fn warn_of_conflicts(&mut self, settings: &Settings) -> Result<(), NetlinkError> {
        let links = self.netlink.links()?;
        let addresses = self.netlink.addresses()?;
        for peer in &settings.peers {
            for on_link in addresses.iter().filter(|on_link| on_link.link != self.link.index) {
                if peer.allowed_prefixes.contains(&Prefix::host(on_link.address)) {
                    log::warn!(
                        "peer `{}`: packets to {} do not use mpip, because that is this host's own \
                         address",
                        peer.name,
                        on_link.address
                    );
                    continue;
                }
                let prefix = Prefix::new(on_link.address, on_link.prefix_len);
                if let Some(prefix) = prefix.filter(|own| peer.allowed_prefixes.contains(own)) {
                    let name = links.iter().find(|link| link.index == on_link.link);
                    log::warn!(
                        "peer `{}`: packets to {prefix} do not use mpip, because that is the \
                         network on interface {}",
                        peer.name,
                        name.map_or("?", |link| &link.name)
                    );
                }
            }
        }
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // They would vanish with the device, but an operator may have made it persistent.
        for PeerRoute { route, .. } in &self.routes {
            if let Err(error) = self.netlink.delete_route(route) {
                log::debug!("{error}");
            }
        }
        for InterfaceAddress { address, prefix_len } in &self.addresses {
            if let Err(error) = self.netlink.remove_address(&self.link, *address, *prefix_len) {
                log::debug!("{error}");
            }
        }
    }
}

/// Removes our routes that lead to the device `index` or to one that is gone. Those of other
/// daemons that live stay.
fn remove_leftovers(netlink: &mut Netlink, index: u32) -> Result<(), NetlinkError> {
    let links = netlink.links()?;
    for route in netlink.own_routes()? {
        // What refuses packets for policy `require` is the concern of `Captures`.
        let gone = route.link != 0 && !links.iter().any(|link| link.index == route.link);
        if route.link == index || gone {
            log::info!("removing what a former daemon left: the route to {route}");
            netlink.delete_route(&route)?;
        }
    }
    Ok(())
}

/// The MTU of a route to a peer. IPv6 does not work with less than every link of its carries.
pub(crate) fn route_mtu(prefix: Prefix, inner_mtu: u16) -> u32 {
    let least = if prefix.address().is_ipv4() { 0 } else { MIN_MTU };
    u32::from(inner_mtu).max(least)
}

fn initial_mtu(netlink: &mut Netlink, index: u32) -> Result<u32, NetlinkError> {
    let links = netlink.links()?;
    let others = links.iter().filter(|link| link.index != index && !link.loopback);
    let smallest = others.filter(|link| link.is_running()).map(|link| link.mtu).min();
    Ok(smallest.unwrap_or(ETHERNET_MTU).saturating_sub(OVERHEAD).clamp(MIN_MTU, ETHERNET_MTU))
}

/// The routes that lead to `prefix`: two halves instead of a default route, so that the host's own
/// default routes stay as they are and lose nevertheless.
pub(crate) fn routed(prefix: Prefix) -> Vec<Prefix> {
    if prefix.prefix_len() > 0 {
        return vec![prefix];
    }
    let halves = if prefix.address().is_ipv4() {
        [Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(128, 0, 0, 0).into()]
    } else {
        [Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0).into()]
    };
    halves.into_iter().filter_map(|half| Prefix::new(half, 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_route_becomes_two_halves() {
        let shown = |text: &str| {
            let prefixes = routed(text.parse().expect("valid"));
            prefixes.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(shown("0.0.0.0/0"), ["0.0.0.0/1", "128.0.0.0/1"]);
        assert_eq!(shown("::/0"), ["::/1", "8000::/1"]);
        assert_eq!(shown("198.18.0.0/15"), ["198.18.0.0/15"]);
    }
}
