//! Host mode on the host: which packets enter the TUN device although they are for a peer's
//! ordinary addresses.
//!
//! Routes to these addresses live in a table of their own, which a rule asks before every other
//! table but `local`: for what this host sends itself and does not carry our mark. The routes lead
//! to the TUN device and die with it. Where the policy says `require`, a second one of a worse
//! metric refuses packets, and stays when the daemon is killed.
//!
//! Behind translators two further tables, of the next two numbers, have rules that look at the
//! protocol and the port, too. They exist while there is a route for them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use mpip_core::packet::protocol;
use mpip_core::{Capture, Prefix, TRANSLATED_PORTS};
use mpip_net::netlink::{HostAddress, Link, Netlink, NetlinkError, Route, RoutingRule};

use crate::config::{HostMode, Settings};
use crate::host::{MAIN_TABLE, METRIC, route_mtu, routed};
use crate::reverse_path::ReversePath;

/// Metric of the routes that refuse packets once those to the device are gone.
const REFUSING_METRIC: u32 = 4096;

/// The first address that is no single receiver's (RFC 5771).
const MULTICAST: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 0);

/// The tables behind the one of the configuration: routes to peers that see this host elsewhere than
/// it is, and to the translators behind which peers are.
const TRANSLATED: u32 = 1;
const TRANSLATORS: u32 = 2;

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
    /// The rules that the host has.
    rules: Vec<RoutingRule>,
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
            rules: Vec::new(),
        };
        captures.reverse_path.restore();
        captures.adopt_rules()?;
        let left = captures.routes()?;
        if fail_closed {
            // Somebody may still rely on them; they are opened when this daemon ends in order.
            captures.inherited =
                left.iter().filter(|route| route.link == 0).map(|route| route.prefix).collect();
        }
        captures.sync(&[])?;
        Ok(captures)
    }

    /// Follows what the engine says.
    pub(crate) fn apply(&mut self, capture: Capture, own: &[IpAddr]) -> Result<(), NetlinkError> {
        let Capture { prefixes, translated, translators, .. } = &capture;
        if prefixes.is_empty() && translated.is_empty() && translators.is_empty() {
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
            let others = [(&capture.translated, TRANSLATED), (&capture.translators, TRANSLATORS)];
            for (addresses, offset) in others {
                for ip in addresses {
                    let mtu = self.inner_mtu.get(&capture.peer);
                    let mtu = mtu.map(|mtu| route_mtu(Prefix::host(*ip), *mtu));
                    let table = self.settings.table + offset;
                    let route = self.route_to(*ip, mtu, table, own)?;
                    merge(&mut wanted, route);
                }
            }
        }
        for prefix in self.inherited.clone() {
            if !wanted.iter().any(|route| route.prefix == prefix) {
                self.routes_to((prefix, None), true, own, &mut wanted)?;
            }
        }
        // The routes first: a rule without them does nothing.
        let present = self.routes()?;
        let mut ipv6 = false;
        for route in wanted.iter().filter(|route| !present.contains(route)) {
            self.netlink.replace_route(route)?;
            ipv6 |= route.prefix.address().is_ipv6();
        }
        let same =
            |a: &Route, b: &Route| (a.prefix, a.table, a.metric) == (b.prefix, b.table, b.metric);
        for route in present.iter().filter(|route| !wanted.iter().any(|other| same(other, route))) {
            self.netlink.delete_route(route)?;
        }
        self.sync_rules(&wanted)?;
        if ipv6 { self.ask_again() } else { Ok(()) }
    }

    /// Lets running connections by IPv6 find new routes. Linux keeps a connection's route while nothing
    /// changes in the table that it is from, or among the rules. So a rule comes and goes that says no
    /// more than ours.
    fn ask_again(&mut self) -> Result<(), NetlinkError> {
        let HostMode { table, mark, priority, .. } = self.settings;
        let protocol = Some(protocol::TCP);
        let rule =
            RoutingRule { ipv6: true, priority, without_mark: mark, protocol, ports: None, table };
        self.netlink.add_rule(&rule)?;
        self.netlink.delete_rule(&rule)
    }

    /// Makes the rules those that `routes` need.
    fn sync_rules(&mut self, routes: &[Route]) -> Result<(), NetlinkError> {
        let wanted = self.wanted_rules(routes);
        for rule in wanted.iter().filter(|rule| !self.rules.contains(rule)) {
            self.netlink.add_rule(rule)?;
        }
        for rule in self.rules.iter().filter(|rule| !wanted.contains(rule)) {
            self.netlink.delete_rule(rule)?;
        }
        self.rules = wanted;
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
        let table = self.settings.table;
        routes.push(self.route_to(ip, mtu, table, own)?);
        if fail_closed {
            let metric = REFUSING_METRIC;
            routes.push(Route { prefix, link: 0, source: None, mtu: None, table, metric });
        }
        Ok(())
    }

    /// The route that leads packets to `ip` to the device.
    fn route_to(
        &mut self,
        ip: IpAddr,
        mtu: Option<u32>,
        table: u32,
        own: &[IpAddr],
    ) -> Result<Route, NetlinkError> {
        // Connections without an address of their own begin from where they would without us.
        let same_family = |other: &&IpAddr| other.is_ipv4() == ip.is_ipv4();
        let source = self.netlink.source_toward(ip, self.settings.mark)?;
        let source = source.or_else(|| own.iter().find(same_family).copied());
        let prefix = Prefix::host(ip);
        Ok(Route { prefix, link: self.link.index, source, mtu, table, metric: METRIC })
    }

    /// Our routes as the host has them.
    fn routes(&mut self) -> Result<Vec<Route>, NetlinkError> {
        let mut routes = self.netlink.own_routes()?;
        let (tables, link) = (self.tables(), self.link.index);
        routes.retain(|route| {
            tables.contains(&route.table)
                || (route.table == MAIN_TABLE
                    && route.link == link
                    && !self.others.contains(&route.prefix))
        });
        Ok(routes)
    }

    /// Our tables: the one of the configuration and the two behind it.
    fn tables(&self) -> RangeInclusive<u32> {
        self.settings.table..=self.settings.table + TRANSLATORS
    }

    /// The rules for `routes`.
    fn wanted_rules(&self, routes: &[Route]) -> Vec<RoutingRule> {
        let HostMode { table, mark, priority, .. } = self.settings;
        let mut rules = Vec::new();
        for ipv6 in [false, true] {
            let icmp = if ipv6 { protocol::ICMPV6 } else { protocol::ICMP };
            let rule = RoutingRule {
                ipv6,
                priority,
                without_mark: mark,
                protocol: None,
                ports: None,
                table,
            };
            rules.extend(self.active.then_some(rule));
            let used = |table: u32| {
                let family = |route: &Route| route.prefix.address().is_ipv6() == ipv6;
                routes.iter().any(|route| route.table == table && family(route))
            };
            let of = |protocol, ports, offset| RoutingRule {
                protocol: Some(protocol),
                ports,
                table: table + offset,
                ..rule
            };
            if used(table + TRANSLATED) {
                rules.extend([protocol::TCP, icmp].map(|number| of(number, None, TRANSLATED)));
            }
            if used(table + TRANSLATORS) {
                let ports = Some((*TRANSLATED_PORTS.start(), *TRANSLATED_PORTS.end()));
                rules.extend([
                    of(protocol::TCP, ports, TRANSLATORS),
                    of(protocol::UDP, ports, TRANSLATORS),
                    of(icmp, None, TRANSLATORS),
                ]);
            }
        }
        rules
    }

    /// Takes over the rules that a killed daemon left: those that are not wanted go.
    fn adopt_rules(&mut self) -> Result<(), NetlinkError> {
        let tables = self.tables();
        self.rules = self.netlink.own_rules()?;
        self.rules.retain(|rule| tables.contains(&rule.table));
        Ok(())
    }

    /// Removes our rules.
    fn remove_rules(&mut self) -> Result<(), NetlinkError> {
        self.adopt_rules()?;
        for rule in &self.rules {
            self.netlink.delete_rule(rule)?;
        }
        self.rules.clear();
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

    /// The addresses that are kept.
    pub(crate) fn pinned(&self) -> &[IpAddr] {
        &self.pinned
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
        if let Err(error) = self.remove_rules() {
            log::warn!("{error}");
        }
        self.reverse_path.restore();
    }
}

/// Adds `route`, or makes one to the same prefix carry no more than it does: several peers may be
/// behind one translator.
fn merge(routes: &mut Vec<Route>, route: Route) {
    let same = |other: &&mut Route| (other.prefix, other.table) == (route.prefix, route.table);
    match routes.iter_mut().find(same) {
        Some(other) => other.mtu = other.mtu.into_iter().chain(route.mtu).min(),
        None => routes.push(route),
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
