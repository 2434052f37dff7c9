//! The TUN device on the host: its addresses and MTU.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mpip_api::FaultStatus;
use mpip_core::{Instant, PeerConfig, Prefix};
use mpip_net::netlink::{HostAddress, Link, Netlink, NetlinkError};

use crate::config::{InterfaceAddress, Settings};
use crate::faults::Faults;
use crate::snapshot::ms;

/// The MTU until the engine knows better: what the smallest interface carries, less the headers
/// over IPv6 (40 IP, 8 UDP, 32 of ours).
const OVERHEAD: u32 = 80;

/// Every IPv6 link carries so much (RFC 8200 section 5).
const MIN_MTU: u32 = 1280;

/// What an Ethernet carries, assumed when there is no interface yet.
const ETHERNET_MTU: u32 = 1500;

/// Frames that wait in the device for the daemon. What comes beyond is lost, so this is more than
/// 64 connections send at once; the kernel's 500 is not.
const QUEUE_LEN: u32 = 2_048;

/// The TUN device's side of the host, set up for as long as this lives.
#[derive(Debug)]
pub(crate) struct Host {
    netlink: Netlink,
    link: Link,
    addresses: Vec<InterfaceAddress>,
    /// Addresses that their interfaces lost and sessions use, kept on the device.
    pinned: Vec<IpAddr>,
    /// The device's MTU.
    mtu: u32,
    /// The inner MTU toward each peer, as far as it is known.
    inner_mtu: BTreeMap<String, u16>,
    /// Since when it is down, because somebody has set it so.
    down: Option<Instant>,
    /// Why the device has not all of its addresses.
    faults: Faults<()>,
}

impl Host {
    /// Gives the TUN device, which exists, its MTU and addresses, and sets it up.
    pub(crate) fn set_up(
        mut netlink: Netlink,
        link: Link,
        settings: &Settings,
    ) -> Result<Self, NetlinkError> {
        let mtu = initial_mtu(&mut netlink, link.index)?;
        let mut host = Self {
            netlink,
            link,
            addresses: settings.addresses.clone(),
            pinned: Vec::new(),
            mtu: 0,
            inner_mtu: BTreeMap::new(),
            down: None,
            faults: Faults::default(),
        };
        host.set_mtu(mtu)?;
        host.netlink.set_queue_len(&host.link, QUEUE_LEN)?;
        if let Err(error) = host.netlink.without_link_local(&host.link) {
            // Where IPv6 is off there is nothing to switch off.
            log::debug!("{error}");
        }
        host.netlink.set_up(&host.link)?;
        host.warn_of_conflicts(&settings.peers)?;
        host.add_addresses()?;
        Ok(host)
    }

    fn add_addresses(&mut self) -> Result<(), NetlinkError> {
        for InterfaceAddress { address, prefix_len } in &self.addresses {
            self.netlink.add_address(&self.link, *address, *prefix_len)?;
        }
        Ok(())
    }

    /// Gives the device these addresses in place of its former ones. What cannot be done is tried
    /// again.
    pub(crate) fn set_addresses(&mut self, now: Instant, addresses: &[InterfaceAddress]) {
        let former = std::mem::replace(&mut self.addresses, addresses.to_vec());
        if former == self.addresses {
            return;
        }
        for own in former.iter().filter(|own| !addresses.contains(own)) {
            let InterfaceAddress { address, prefix_len } = own;
            if let Err(error) = self.netlink.remove_address(&self.link, *address, *prefix_len) {
                log::warn!("{error}");
            }
        }
        self.retry(now);
    }

    /// Nothing is known of `peer` any more.
    pub(crate) fn forget_peer(&mut self, peer: &str) {
        self.inner_mtu.remove(peer);
    }

    /// Packets to `peer` have `mtu` bytes at most, and `routes` makes its routes say so. The
    /// device, which all peers share, carries the largest of them.
    pub(crate) fn set_inner_mtu(
        &mut self,
        peer: &str,
        mtu: u16,
        routes: impl FnOnce(),
    ) -> Result<(), NetlinkError> {
        self.inner_mtu.insert(peer.to_owned(), mtu);
        let largest = self.inner_mtu.values().max().copied().unwrap_or(0);
        let device = u32::from(largest).max(MIN_MTU);
        // No route says more than the device carries.
        let grown = if device > self.mtu { self.set_mtu(device) } else { Ok(()) };
        routes();
        grown.and_then(|()| self.set_mtu(device))
    }

    /// Follows what others do to the device: while it is down the kernel forgets its IPv6
    /// addresses, so they are added again when it is set up.
    pub(crate) fn follow(&mut self, now: Instant, links: &[Link]) {
        let Some(link) = links.iter().find(|link| link.index == self.link.index) else { return };
        match (self.down, link.up) {
            (None, false) => self.went_down(now),
            (Some(_), true) => {
                log::info!("{} was set up again", link.name);
                self.down = None;
                self.retry(now);
            }
            _ => {}
        }
    }

    /// Somebody has set the device down, if only for a moment.
    pub(crate) fn went_down(&mut self, now: Instant) {
        if self.down.is_none() {
            log::warn!("{} was set down: nothing passes it", self.link.name);
            self.down = Some(now);
        }
    }

    /// Gives the device the addresses that it lacks.
    pub(crate) fn retry(&mut self, now: Instant) {
        match self.add_addresses() {
            Ok(()) => drop(self.faults.mended(&())),
            Err(error) => self.faults.failed(now, (), error.to_string()),
        }
    }

    /// When [`retry`](Self::retry) is to be called.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.faults.next_timeout()
    }

    /// What is not as it is wanted.
    pub(crate) fn faults(&self, now: Instant) -> Vec<FaultStatus> {
        let mut faults = self.faults.status(now, |()| "packets have no address there".to_owned());
        if let Some(since) = self.down {
            faults.push(FaultStatus {
                what: format!("{} is down", self.link.name),
                why: "nothing passes it".to_owned(),
                since_ms: ms(now.since(since)),
                attempts: 0,
            });
        }
        faults
    }

    /// Keeps `address`, which no interface has any more, so that sockets that use it live on.
    pub(crate) fn pin(&mut self, address: IpAddr) {
        let prefix_len = Prefix::host(address).prefix_len();
        match self.netlink.add_address(&self.link, address, prefix_len) {
            Ok(()) => {
                log::info!("{address} is kept on {} while sessions use it", self.link.name);
                self.pinned.push(address);
            }
            Err(error) => log::warn!("{error}"),
        }
    }

    /// Gives up the kept addresses that an interface has again, or that are not `used` any more.
    pub(crate) fn unpin(&mut self, addresses: &[HostAddress], used: impl Fn(IpAddr) -> bool) {
        let Self { netlink, link, pinned, .. } = self;
        pinned.retain(|address| {
            let returned =
                addresses.iter().any(|other| other.address == *address && other.link != link.index);
            if !returned && used(*address) {
                return true;
            }
            let prefix_len = Prefix::host(*address).prefix_len();
            match netlink.remove_address(link, *address, prefix_len) {
                Ok(()) => log::info!("{address} is not kept on {} any more", link.name),
                Err(error) => log::warn!("{error}"),
            }
            false
        });
    }

    /// The addresses that are kept.
    pub(crate) fn pinned(&self) -> &[IpAddr] {
        &self.pinned
    }

    /// The device's MTU, in bytes.
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu
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
    pub(crate) fn warn_of_conflicts(&mut self, peers: &[PeerConfig]) -> Result<(), NetlinkError> {
        let links = self.netlink.links()?;
        let addresses = self.netlink.addresses()?;
        for peer in peers {
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
        self.unpin(&[], |_| false);
        // They would vanish with the device, but an operator may have made it persistent.
        for InterfaceAddress { address, prefix_len } in &self.addresses {
            if let Err(error) = self.netlink.remove_address(&self.link, *address, *prefix_len) {
                log::debug!("{error}");
            }
        }
    }
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
