//! Everything that the daemon changes on the host: device, addresses, routes, rules and filters.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use mpip_api::FaultStatus;
use mpip_core::{Capture, Instant, PeerConfig, Policy, Prefix};
use mpip_net::clock;
use mpip_net::netlink::{HostAddress, Link, Netlink, Notice};

use crate::capture::Captures;
use crate::config::{Changeable, Settings};
use crate::error::Error;
use crate::host::{Host, route_mtu, routed};
use crate::kernel::{IGNORED, ignores_sinks};
use crate::reverse_path::ReversePath;
use crate::routes::{Claimant, Key, MAIN_TABLE, Routes, Tables, Way};

/// How often at most is set again what others have removed: somebody who removes it each time is
/// not to take a processor.
const REPAIR_INTERVAL: Duration = Duration::from_millis(20);

/// A peer's prefixes outside of host mode.
#[derive(Debug, PartialEq)]
struct Tunnel {
    prefixes: Vec<Prefix>,
    /// No packet to them may leave in another way.
    fail_closed: bool,
    mtu: Option<u16>,
}

impl Tunnel {
    fn of(peer: &PeerConfig) -> Self {
        Self {
            prefixes: peer.allowed_prefixes.iter().flat_map(|prefix| routed(*prefix)).collect(),
            fail_closed: peer.policy == Policy::Require,
            mtu: None,
        }
    }

    fn routes(&self) -> BTreeMap<Key, Way> {
        let mut routes = BTreeMap::new();
        for prefix in &self.prefixes {
            let mtu = self.mtu.map(|mtu| route_mtu(*prefix, mtu));
            let key = Key { table: MAIN_TABLE, prefix: *prefix, refuses: false };
            routes.insert(key, Way { source: None, mtu });
            if self.fail_closed {
                routes.insert(Key { refuses: true, ..key }, Way::default());
            }
        }
        routes
    }
}

/// The host's side of the daemon. What it set up goes when this is dropped, but for what refuses
/// packets of policy `require`, which goes after an orderly end only.
#[derive(Debug)]
pub(crate) struct Network {
    // Dropped first: nothing is led to the device any more.
    routes: Routes<Netlink>,
    captures: Captures,
    reverse_path: ReversePath,
    host: Host,
    /// By the peer's name.
    tunnels: BTreeMap<String, Tunnel>,
    /// Whether packets are captured, and whether they are in any case.
    active: bool,
    opportunistic: bool,
    /// Whether routes to everything lead to the device: also those to where peers are.
    default_route: bool,
    /// Whether some peer's policy is `require`.
    requires: bool,
    repaired: Instant,
}

impl Network {
    /// Sets up what `settings` ask for; their TUN device exists and is down. Removes or takes over
    /// what a former daemon left. What refuses packets comes first.
    pub(crate) fn set_up(settings: &Settings) -> Result<Self, Error> {
        let now = clock::now();
        let opportunistic = settings.opportunistic.is_some();
        let active = settings.gives_back();
        let mut reverse_path = ReversePath::new(settings);
        reverse_path.restore();
        let mut routes = take_over(settings, active)?;
        let link = routes.link().clone();
        let tunnels: BTreeMap<String, Tunnel> = settings
            .peers
            .iter()
            .filter(|peer| !peer.host_mode)
            .map(|peer| (peer.name.clone(), Tunnel::of(peer)))
            .collect();
        // While the device is down this sets those that refuse.
        for (peer, tunnel) in &tunnels {
            routes.claim(&Claimant::Tunnel(peer.clone()), tunnel.routes());
        }
        routes.apply_all(now)?;
        let host = Host::set_up(Netlink::new()?, link, settings)?;
        routes.device_is(true);
        routes.apply_all(now)?;
        let network = Self {
            routes,
            captures: Captures::new(settings.host_mode.clone()),
            reverse_path,
            host,
            tunnels,
            active,
            opportunistic,
            default_route: settings.default_route,
            requires: settings.peers.iter().any(|peer| peer.policy == Policy::Require),
            repaired: now,
        };
        if network.sinks_are_ignored() {
            log::warn!("{}: {}", IGNORED.0, IGNORED.1);
        }
        Ok(network)
    }

    /// The daemon works from here on: however it ends, what refuses packets stays.
    pub(crate) fn started(&mut self, now: Instant) {
        self.routes.started(now, self.requires);
    }

    /// Follows changed settings. The engine knows them already, so that packets that are led to the
    /// device find their peer. What the host does not take is tried again.
    pub(crate) fn reconfigure(&mut self, now: Instant, settings: &Changeable) {
        let active = self.opportunistic || settings.captures();
        self.reverse_path.set_interfaces(settings.path_interfaces.clone());
        if active != self.active {
            if let Err(error) = self.routes.set_active(active) {
                log::warn!("{error}");
            }
            if !active && !self.default_route {
                self.reverse_path.restore();
            }
            self.active = active;
        }
        self.host.set_addresses(now, &settings.addresses);
        let mut wanted: BTreeMap<&str, &PeerConfig> =
            settings.peers.iter().map(|peer| (peer.name.as_str(), peer)).collect();
        wanted.retain(|_, peer| !peer.host_mode);
        let gone = self.tunnels.keys().filter(|name| !wanted.contains_key(name.as_str()));
        for name in gone.cloned().collect::<Vec<_>>() {
            self.tunnels.remove(&name);
            self.routes.claim(&Claimant::Tunnel(name), BTreeMap::new());
        }
        let mut new = Vec::new();
        for (name, peer) in wanted {
            let former = self.tunnels.get(name);
            let mtu = former.and_then(|former| former.mtu);
            let tunnel = Tunnel { mtu, ..Tunnel::of(peer) };
            if former == Some(&tunnel) {
                continue;
            }
            self.routes.claim(&Claimant::Tunnel(name.to_owned()), tunnel.routes());
            self.tunnels.insert(name.to_owned(), tunnel);
            new.push(peer.clone());
        }
        self.requires = settings.peers.iter().any(|peer| peer.policy == Policy::Require);
        self.routes.requires(self.requires);
        self.routes.apply_some(now);
        if !new.is_empty()
            && let Err(error) = self.host.warn_of_conflicts(&new)
        {
            log::warn!("{error}");
        }
    }

    /// Forgets the longest packet to `peer`, whose association has ended.
    pub(crate) fn forget_peer(&mut self, peer: &str) {
        self.host.forget_peer(peer);
        self.captures.forget_peer(peer);
        if let Some(tunnel) = self.tunnels.get_mut(peer) {
            tunnel.mtu = None;
        }
    }

    /// Whether packets are captured.
    pub(crate) fn is_active(&self) -> bool {
        self.active
    }

    /// The device's side.
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// As [`host`](Self::host), to be changed.
    pub(crate) fn host_mut(&mut self) -> &mut Host {
        &mut self.host
    }

    /// Follows what the engine says of a peer in host mode.
    pub(crate) fn apply(&mut self, now: Instant, capture: Capture) {
        self.captures.apply(now, capture, &mut self.routes);
    }

    /// Packets to `peer` have `mtu` bytes at most.
    pub(crate) fn set_inner_mtu(&mut self, now: Instant, peer: &str, mtu: u16) {
        let Self { host, routes, captures, tunnels, .. } = self;
        let result = host.set_inner_mtu(peer, mtu, || {
            if let Some(tunnel) = tunnels.get_mut(peer) {
                tunnel.mtu = Some(mtu);
                routes.claim(&Claimant::Tunnel(peer.to_owned()), tunnel.routes());
            }
            captures.set_inner_mtu(peer, mtu, routes);
            routes.apply_some(now);
        });
        if let Err(error) = result {
            log::warn!("{error}");
        }
    }

    /// The kernel tells of a change.
    pub(crate) fn notice(&mut self, now: Instant, notice: Notice) {
        match notice {
            Notice::Link { index, up: false } if self.routes.is_ours(index) => {
                self.routes.lost(index);
                if index == self.host.link_index() {
                    self.host.went_down(now);
                }
            }
            Notice::Link { .. } => {}
            Notice::Route { route, own, gone } => match self.routes.key_of(&route) {
                Some(key) if own && gone => self.routes.route_gone(key),
                Some(_) if own => {}
                _ => self.captures.route_changed(route.prefix),
            },
            Notice::Rule { own: Some(rule), gone } if self.routes.is_own_rule(&rule) => {
                if gone {
                    self.routes.rule_gone(&rule);
                }
            }
            Notice::Rule { .. } => self.captures.anything_changed(),
        }
    }

    /// Follows a change of the host's links or addresses; `own` are the addresses that paths start
    /// from. With `lost` anything else may have changed, too.
    pub(crate) fn follow(&mut self, now: Instant, links: &[Link], own: Vec<IpAddr>, lost: bool) {
        self.host.follow(now, links);
        self.routes.follow(now, links);
        if self.active || self.default_route {
            self.reverse_path.loosen(links, self.host.link_index());
        }
        if self.active {
            self.captures.set_own(own, &mut self.routes);
            self.captures.anything_changed();
        }
        if (self.active || lost)
            && let Err(error) = self.routes.look(lost)
        {
            log::warn!("{error}");
        }
        self.captures.ask_again(now, &mut self.routes);
        self.repair(now);
    }

    /// Keeps `address`, which no interface has any more, so that sockets that use it live on.
    pub(crate) fn pin(&mut self, address: IpAddr) {
        self.host.pin(address);
    }

    /// Gives up the kept addresses that an interface has again, or that are not `used` any more.
    pub(crate) fn unpin(&mut self, addresses: &[HostAddress], used: impl Fn(IpAddr) -> bool) {
        self.host.unpin(addresses, used);
    }

    /// When [`work`](Self::work) is to be called.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let repair = self.repair_at();
        let others = [self.routes.next_timeout(), self.captures.next_timeout()];
        others.into_iter().chain([self.host.next_timeout(), repair]).flatten().min()
    }

    /// Does what is due: repairs, asks again, tries again.
    pub(crate) fn work(&mut self, now: Instant) {
        if self.next_timeout().is_none_or(|due| now < due) {
            return;
        }
        self.captures.ask_again(now, &mut self.routes);
        if self.repair_at().is_some_and(|due| due <= now) {
            self.repair(now);
        }
        if self.routes.next_timeout().is_some_and(|due| due <= now) {
            self.routes.retry(now);
        }
        if self.host.next_timeout().is_some_and(|due| due <= now) {
            self.host.retry(now);
        }
    }

    /// When routes are to be set. What is left of many does not wait.
    fn repair_at(&self) -> Option<Instant> {
        match self.routes.has_more() {
            true => Some(self.repaired),
            false => self.routes.is_dirty().then_some(self.repaired + REPAIR_INTERVAL),
        }
    }

    /// Whether a change is still on its way to the kernel.
    pub(crate) fn is_busy(&self) -> bool {
        self.routes.has_more()
    }

    fn repair(&mut self, now: Instant) {
        self.repaired = now;
        self.routes.apply_some(now);
    }

    /// Packets of peers in host mode leave as plain IP from here on, except where the policy is
    /// `require` and the daemon was not told to end.
    pub(crate) fn release(&mut self, now: Instant, orderly: bool) {
        if orderly {
            self.routes.open();
        }
        let captures = &self.captures;
        self.routes.release(now, |claimant| match claimant {
            Claimant::Tunnel(_) => true,
            Claimant::Host(peer) => !orderly && captures.fails_closed(peer),
            Claimant::Former => !orderly,
        });
    }

    /// What refuses packets when the process is gone.
    pub(crate) fn refusing(&self) -> Vec<Prefix> {
        self.routes.refusing()
    }

    fn sinks_are_ignored(&self) -> bool {
        self.routes.sinks_ipv4() && ignores_sinks()
    }

    /// What on the host is not as it should be, a number of examples, and how many there are.
    pub(crate) fn faults(&self, now: Instant) -> (Vec<FaultStatus>, u64) {
        let mut faults = self.host.faults(now);
        if self.sinks_are_ignored() {
            let (what, why) = (IGNORED.0.to_owned(), IGNORED.1.to_owned());
            faults.push(FaultStatus { what, why, since_ms: 0.0, attempts: 0 });
        }
        let count = faults.len() + self.routes.fault_count();
        faults.extend(self.routes.faults(now));
        (faults, count as u64)
    }
}

/// What a former daemon with the device of `settings` left.
fn take_over(settings: &Settings, active: bool) -> Result<Routes<Netlink>, Error> {
    let mut netlink = Netlink::new()?;
    let links = netlink.links()?;
    let link = netlink.link(&settings.interface)?;
    let recorded = Tables::open(&settings.control_socket);
    Routes::take_over(netlink, settings.host_mode.clone(), active, recorded, link, &links)
}

/// Removes what a daemon with these settings left that was killed or ended by an error, if it left
/// anything; returns to where packets were refused. Nobody may use the device.
pub(crate) fn clean_up(settings: &Settings) -> Result<Option<Vec<Prefix>>, Error> {
    let filters = ReversePath::new(settings).restore();
    let mut routes = take_over(settings, settings.gives_back())?;
    let refusing = routes.refusing();
    let left = filters || routes.has_left();
    routes.open();
    routes.release(clock::now(), |_| false);
    Ok(left.then_some(refusing))
}

/// Prefixes for people to read, however many there are.
pub fn listed(prefixes: &[Prefix]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = prefixes.iter().take(SHOWN).map(ToString::to_string).collect();
    match prefixes.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
