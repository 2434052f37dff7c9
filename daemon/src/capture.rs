//! Host mode on the host: which packets enter the TUN device although they are for a peer's
//! ordinary addresses.
//!
//! Routes to these addresses live in a table of their own, which a rule asks before every other
//! table but `local`: for what this host sends itself and does not carry our mark. The routes lead
//! to the TUN device. Behind NATs two further tables, of the next two numbers, have rules
//! that look at the protocol and the port, too. They exist while there is a route for them.
//!
//! Connections without an address of their own begin from where they would without us: each route
//! has the source address that the host's own routes would give. It is asked for when the address
//! is captured, and again when routes, rules or addresses of others change from which another may
//! follow.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use mpip_core::{Capture, Instant, Prefix};

use crate::config::HostMode;
use crate::host::{route_mtu, routed};
use crate::kernel::Kernel;
use crate::routes::{Claimant, Key, MAIN_TABLE, NATS, Routes, TRANSLATED, Way};

/// The first address that is no single receiver's (RFC 5771).
const MULTICAST: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 0);

/// Source addresses that are asked for again at a time, and how often: an answer takes some 10 µs,
/// in which packets wait, and others' routes may change all the time.
const ASKED_AT_ONCE: usize = 64;
const ASKING_INTERVAL: Duration = Duration::from_millis(20);

/// What the host has to capture.
#[derive(Debug)]
pub(crate) struct Captures {
    settings: HostMode,
    /// What each peer's packets are, by its name.
    wanted: BTreeMap<String, Capture>,
    /// The inner MTU toward each peer, as far as it is known.
    inner_mtu: BTreeMap<String, u16>,
    /// Where packets to captured addresses would begin without us.
    sources: BTreeMap<IpAddr, Source>,
    /// Those that are to be asked for again, and when some last were.
    stale: BTreeSet<IpAddr>,
    asked: Instant,
    /// The addresses that paths start from.
    own: Vec<IpAddr>,
}

/// Where packets to an address would begin.
#[derive(Debug, Default)]
struct Source {
    /// The answer; `None` when there is no way there.
    found: Option<IpAddr>,
    /// The peers that are captured at the address.
    peers: BTreeSet<String>,
}

impl Captures {
    /// Nothing is captured yet.
    pub(crate) fn new(settings: HostMode) -> Self {
        Self {
            settings,
            wanted: BTreeMap::new(),
            inner_mtu: BTreeMap::new(),
            sources: BTreeMap::new(),
            stale: BTreeSet::new(),
            asked: Instant::ZERO,
            own: Vec::new(),
        }
    }

    /// Nothing is known of `peer` any more.
    pub(crate) fn forget_peer(&mut self, peer: &str) {
        self.inner_mtu.remove(peer);
    }

    /// Follows what the engine says.
    pub(crate) fn apply<K: Kernel>(
        &mut self,
        now: Instant,
        capture: Capture,
        routes: &mut Routes<K>,
    ) {
        let peer = capture.peer.clone();
        let addresses: BTreeSet<IpAddr> = addresses(&capture).collect();
        self.sources.retain(|ip, source| {
            if !addresses.contains(ip) {
                source.peers.remove(&peer);
            }
            !source.peers.is_empty()
        });
        for ip in addresses {
            let known = self.sources.contains_key(&ip);
            self.sources.entry(ip).or_default().peers.insert(peer.clone());
            if !known {
                self.ask(ip, routes);
            }
        }
        if is_nothing(&capture) {
            self.wanted.remove(&peer);
        } else {
            self.wanted.insert(peer.clone(), capture);
        }
        self.claim(&peer, routes);
        routes.apply(now);
    }

    /// Packets to `peer` have `mtu` bytes at most.
    pub(crate) fn set_inner_mtu<K: Kernel>(
        &mut self,
        peer: &str,
        mtu: u16,
        routes: &mut Routes<K>,
    ) {
        self.inner_mtu.insert(peer.to_owned(), mtu);
        if self.wanted.contains_key(peer) {
            self.claim(peer, routes);
        }
    }

    /// The addresses that paths start from.
    pub(crate) fn set_own<K: Kernel>(&mut self, own: Vec<IpAddr>, routes: &mut Routes<K>) {
        if own != self.own {
            self.own = own;
            self.claim_all(routes);
        }
    }

    /// Somebody's route to `prefix` appeared, changed or vanished.
    pub(crate) fn route_changed(&mut self, prefix: Prefix) {
        // Addresses in a prefix follow each other.
        let from = self.sources.range(prefix.address()..);
        let inside = from.map(|(ip, _)| *ip).take_while(|ip| prefix.contains(*ip));
        self.stale.extend(inside);
    }

    /// Anything may have changed from which source addresses follow.
    pub(crate) fn anything_changed(&mut self) {
        self.stale = self.sources.keys().copied().collect();
    }

    /// When [`ask_again`](Self::ask_again) is to be called.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        (!self.stale.is_empty()).then_some(self.asked + ASKING_INTERVAL)
    }

    /// Asks again for some of the source addresses that may have changed.
    pub(crate) fn ask_again<K: Kernel>(&mut self, now: Instant, routes: &mut Routes<K>) {
        if self.next_timeout().is_none_or(|due| now < due) {
            return;
        }
        self.asked = now;
        let mut changed = BTreeSet::new();
        for _ in 0..ASKED_AT_ONCE {
            let Some(ip) = self.stale.pop_first() else { break };
            if self.ask(ip, routes)
                && let Some(source) = self.sources.get(&ip)
            {
                changed.extend(source.peers.iter().cloned());
            }
        }
        for peer in changed {
            self.claim(&peer, routes);
        }
    }

    /// Asks for the source address of packets to `ip`; whether it is another one.
    fn ask<K: Kernel>(&mut self, ip: IpAddr, routes: &mut Routes<K>) -> bool {
        let Some(source) = self.sources.get_mut(&ip) else { return false };
        match routes.kernel().source_toward(ip, self.settings.mark) {
            Ok(found) => std::mem::replace(&mut source.found, found) != found,
            Err(error) => {
                log::warn!("{error}");
                false
            }
        }
    }

    fn claim_all<K: Kernel>(&self, routes: &mut Routes<K>) {
        for peer in self.wanted.keys() {
            self.claim(peer, routes);
        }
    }

    /// Wants the routes that lead packets to `peer` to the device.
    fn claim<K: Kernel>(&self, peer: &str, routes: &mut Routes<K>) {
        let claims = self.wanted.get(peer).map(|capture| self.routes_of(capture));
        routes.claim(&Claimant::Host(peer.to_owned()), claims.unwrap_or_default());
    }

    fn routes_of(&self, capture: &Capture) -> BTreeMap<Key, Way> {
        let inner_mtu = self.inner_mtu.get(&capture.peer);
        let table = self.settings.table;
        let mut routes = BTreeMap::new();
        let mut add = |table, prefix, source, fail_closed| {
            let mtu = inner_mtu.map(|mtu| route_mtu(prefix, *mtu));
            routes.insert(Key { table, prefix, refuses: false }, Way { source, mtu });
            if fail_closed {
                routes.insert(Key { table, prefix, refuses: true }, Way::default());
            }
        };
        for prefix in &capture.prefixes {
            let ip = prefix.address();
            if *prefix == Prefix::host(ip) {
                add(table, *prefix, self.source(ip), capture.fail_closed);
                continue;
            }
            // A network, not an address of the peer: the host's more specific routes go first.
            for part in one_receiver(*prefix) {
                add(MAIN_TABLE, part, None, capture.fail_closed);
            }
        }
        let others = [(&capture.translated, TRANSLATED), (&capture.nats, NATS)];
        for (addresses, offset) in others {
            for ip in addresses {
                add(table + offset, Prefix::host(*ip), self.source(*ip), false);
            }
        }
        routes
    }

    /// Where connections to `ip` begin that have no address of their own.
    fn source(&self, ip: IpAddr) -> Option<IpAddr> {
        let same_family = |other: &&IpAddr| other.is_ipv4() == ip.is_ipv4();
        let found = self.sources.get(&ip).and_then(|source| source.found);
        found.or_else(|| self.own.iter().find(same_family).copied())
    }

    /// Whether packets to `peer` are never to leave as plain IP.
    pub(crate) fn fails_closed(&self, peer: &str) -> bool {
        self.wanted.get(peer).is_some_and(|capture| capture.fail_closed)
    }
}

fn is_nothing(capture: &Capture) -> bool {
    let Capture { prefixes, translated, nats, .. } = capture;
    prefixes.is_empty() && translated.is_empty() && nats.is_empty()
}

/// The addresses to which packets are captured, each of which has a route of its own.
fn addresses(capture: &Capture) -> impl Iterator<Item = IpAddr> {
    let hosts = capture.prefixes.iter().filter(|prefix| **prefix == Prefix::host(prefix.address()));
    let hosts = hosts.map(Prefix::address);
    hosts.chain(capture.translated.iter().copied()).chain(capture.nats.iter().copied())
}

/// The parts of `prefix` with addresses of one receiver each: neither multicast nor what is above
/// it in IPv4. In IPv6 the kernel routes multicast before anything else.
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

#[cfg(test)]
mod tests;
