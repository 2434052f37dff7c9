//! Host mode on the host: which packets enter the TUN device although they are for a peer's
//! ordinary addresses.
//!
//! Routes to these addresses live in a table of their own, which a rule asks before every other
//! table but `local`: for what this host sends itself and does not carry our mark. The routes lead
//! to the TUN device and die with it. Where the policy says `require`, a second one of a worse
//! metric refuses packets, and stays when the daemon is killed.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use mpip_core::{Capture, Prefix};
use mpip_net::netlink::{HostAddress, Link, Netlink, NetlinkError, Route, RoutingRule};

use crate::config::{HostMode, Settings};
use crate::host::{MAIN_TABLE, METRIC, route_mtu, routed};
use crate::reverse_path::ReversePath;

/// Metric of the routes that refuse packets once those to the device are gone.
const REFUSING_METRIC: u32 = 4096;

/// The first address that is no single receiver's (RFC 5771).
const MULTICAST: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 0);

/// What host mode changes on the host, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Captures {
    netlink: Netlink,
    link: Link,
    settings: HostMode,
    /// What each peer's packets are, by its name.
    wanted: BTreeMap<String, Capture>,
    /// The inner MTU toward each peer, as far as it is known.
    inner_mtu: BTreeMap<String, u16>,
    /// Prefixes of peers outside of host mode, whose routes are no concern of this.
    others: Vec<Prefix>,
    /// Refused by what a killed daemon left, until this one ends.
    inherited: Vec<Prefix>,
    /// Addresses that their interfaces lost and sessions use, kept on the TUN device.
    pinned: Vec<IpAddr>,
    reverse_path: ReversePath,
    active: bool,
}

impl Captures {
    /// Removes or takes over what a killed daemon left, and adds the rules if there is a peer for
    /// them. `link` is the TUN device.
    pub(crate) fn set_up(settings: &Settings, link: Link) -> Result<Self, NetlinkError> {
        let policies = || settings.peers.iter().filter(|peer| peer.host_mode);
        let active = settings.opportunistic.is_some()
            || policies().any(|peer| peer.policy != mpip_core::Policy::Off);
        let fail_closed = policies().any(|peer| peer.policy == mpip_core::Policy::Require);
        let others = settings.peers.iter().filter(|peer| !peer.host_mode);
        let mut captures = Self {
            netlink: Netlink::new()?,
            link,
            settings: settings.host_mode.clone(),
            wanted: BTreeMap::new(),
            inner_mtu: BTreeMap::new(),
            others: others
                .flat_map(|peer| &peer.allowed_prefixes)
                .copied()
                .flat_map(routed)
                .collect(),
            inherited: Vec::new(),
            pinned: Vec::new(),
            reverse_path: ReversePath::new(settings),
            active,
        };
        captures.reverse_path.restore();
        captures.remove_rules(active)?;
        let left = captures.routes()?;
        if fail_closed {
            // Somebody may still rely on them; they are opened when this daemon ends in order.
            captures.inherited =
                left.iter().filter(|route| route.link == 0).map(|route| route.prefix).collect();
        }
        if active {
            for rule in captures.rules() {
                captures.netlink.add_rule(&rule)?;
            }
        }
        captures.sync(&[])?;
        Ok(captures)
    }

    /// Follows what the engine says.
    pub(crate) fn apply(&mut self, capture: Capture, own: &[IpAddr]) -> Result<(), NetlinkError> {
        if capture.prefixes.is_empty() {
            self.wanted.remove(&capture.peer);
        } else {
            self.wanted.insert(capture.peer.clone(), capture);
        }
        self.sync(own)
    }

    /// Packets to `peer` have `mtu` bytes at most.
    pub(crate) fn set_inner_mtu(
        &mut self,
        peer: &str,
        mtu: u16,
        own: &[IpAddr],
    ) -> Result<(), NetlinkError> {
        self.inner_mtu.insert(peer.to_owned(), mtu);
        if self.wanted.contains_key(peer) { self.sync(own) } else { Ok(()) }
    }

    /// Follows a change of the host's links, addresses or routes; `own` are the addresses that
    /// paths start from.
    pub(crate) fn follow(&mut self, links: &[Link], own: &[IpAddr]) -> Result<(), NetlinkError> {
        if !self.active {
            return Ok(());
        }
        self.reverse_path.loosen(links, self.link.index);
        self.sync(own)
    }

    /// Whether changes of the host's routes matter.
    pub(crate) fn is_active(&self) -> bool {
        self.active
    }

    /// Makes the host's routes those that are wanted; no more is changed than has to be.
    fn sync(&mut self, own: &[IpAddr]) -> Result<(), NetlinkError> {
        let mut wanted = Vec::new();
        let captures: Vec<Capture> = self.wanted.values().cloned().collect();
        for capture in &captures {
            for prefix in &capture.prefixes {
                let mtu = self.inner_mtu.get(&capture.peer).map(|mtu| route_mtu(*prefix, *mtu));
                self.routes_to((*prefix, mtu), capture.fail_closed, own, &mut wanted)?;
            }
        }
        for prefix in self.inherited.clone() {
            if !wanted.iter().any(|route| route.prefix == prefix) {
                self.routes_to((prefix, None), true, own, &mut wanted)?;
            }
        }
        let present = self.routes()?;
        for route in wanted.iter().filter(|route| !present.contains(route)) {
            self.netlink.replace_route(route)?;
        }
        let same =
            |a: &Route, b: &Route| (a.prefix, a.table, a.metric) == (b.prefix, b.table, b.metric);
        for route in present.iter().filter(|route| !wanted.iter().any(|other| same(other, route))) {
            self.netlink.delete_route(route)?;
        }
        Ok(())
    }

    fn routes_to(
        &mut self,
        (prefix, mtu): (Prefix, Option<u32>),
        fail_closed: bool,
        own: &[IpAddr],
        routes: &mut Vec<Route>,
    ) -> Result<(), NetlinkError> {
        let ip = prefix.address();
        if prefix != Prefix::host(ip) {
            // A network, not an address of the peer: the host's more specific routes go first.
            routes.extend(one_receiver(prefix).into_iter().map(|prefix| Route {
                prefix,
                link: self.link.index,
                source: None,
                mtu,
                table: MAIN_TABLE,
                metric: METRIC,
            }));
            return Ok(());
        }
        // Connections without an address of their own begin from where they would without us.
        let same_family = |other: &&IpAddr| other.is_ipv4() == ip.is_ipv4();
        let source = self.netlink.source_toward(ip, self.settings.mark)?;
        let source = source.or_else(|| own.iter().find(same_family).copied());
        let table = self.settings.table;
        let route = Route { prefix, link: self.link.index, source, mtu, table, metric: METRIC };
        routes.push(route);
        if fail_closed {
            let metric = REFUSING_METRIC;
            routes.push(Route { prefix, link: 0, source: None, mtu: None, table, metric });
        }
        Ok(())
    }

    /// Our routes as the host has them.
    fn routes(&mut self) -> Result<Vec<Route>, NetlinkError> {
        let mut routes = self.netlink.own_routes()?;
        let (table, link) = (self.settings.table, self.link.index);
        routes.retain(|route| {
            route.table == table
                || (route.table == MAIN_TABLE
                    && route.link == link
                    && !self.others.contains(&route.prefix))
        });
        Ok(routes)
    }

    fn rules(&self) -> [RoutingRule; 2] {
        let HostMode { table, mark, priority, .. } = self.settings;
        [false, true].map(|ipv6| RoutingRule { ipv6, priority, without_mark: mark, table })
    }

    /// Removes our rules, but for those that are `wanted`.
    fn remove_rules(&mut self, wanted: bool) -> Result<(), NetlinkError> {
        let rules = self.rules();
        for rule in self.netlink.own_rules()? {
            if rule.table == self.settings.table && !(wanted && rules.contains(&rule)) {
                self.netlink.delete_rule(&rule)?;
            }
        }
        Ok(())
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

    /// Whether addresses are kept.
    pub(crate) fn has_pinned(&self) -> bool {
        !self.pinned.is_empty()
    }

    /// Captures nothing any more: packets leave as plain IP.
    pub(crate) fn release(&mut self) {
        self.wanted.clear();
        self.inherited.clear();
        if let Err(error) = self.sync(&[]) {
            log::warn!("{error}");
        }
    }
}

/// The parts of `prefix` with addresses of one receiver each: neither multicast nor what is above it
/// in IPv4. In IPv6 the kernel routes multicast before anything else.
fn one_receiver(prefix: Prefix) -> Vec<Prefix> {
    let (mut parts, mut rest) = (Vec::new(), routed(prefix));
    while let Some(part) = rest.pop() {
        let IpAddr::V4(address) = part.address() else {
            parts.push(part);
            continue;
        };
        let last = u32::from(address) | u32::MAX.checked_shr(part.prefix_len().into()).unwrap_or(0);
        let last = Ipv4Addr::from(last);
        if last < MULTICAST {
            parts.push(part);
        } else if address < MULTICAST {
            let half = u32::from(address) | 1 << (31 - part.prefix_len());
            let halves = [address, half.into()];
            let len = part.prefix_len() + 1;
            rest.extend(halves.into_iter().rev().filter_map(|half| Prefix::new(half.into(), len)));
        }
    }
    parts
}

impl Drop for Captures {
    fn drop(&mut self) {
        self.release();
        self.unpin(&[], |_| false);
        if let Err(error) = self.remove_rules(false) {
            log::warn!("{error}");
        }
        self.reverse_path.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multicast_stays_where_it_is() {
        let shown = |text: &str| {
            let parts = one_receiver(text.parse().expect("valid"));
            parts.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(shown("198.18.0.0/15"), ["198.18.0.0/15"]);
        let below = ["128.0.0.0/2", "192.0.0.0/3"];
        assert_eq!(shown("128.0.0.0/1"), below);
        assert_eq!(shown("0.0.0.0/0"), [&below[..], &["0.0.0.0/1"]].concat());
        assert_eq!(shown("224.0.0.0/4"), Vec::<String>::new());
        assert_eq!(shown("240.0.0.0/5"), Vec::<String>::new());
        assert_eq!(shown("::/0"), ["8000::/1", "::/1"]);
    }
}
