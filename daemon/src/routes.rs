//! The routes and rules that this daemon has on the host.
//!
//! Claimants say what they want ([`Routes::claim`]); only what differs from what the kernel has is
//! asked of it ([`Routes::apply`]), and what it refuses is tried again ([`Faults`]).
//!
//! # What refuses
//!
//! A route to the TUN device vanishes with it. Where the policy is `require`, a second one of a
//! worse metric refuses the packets then, and outlives the process:
//!
//! - In a table of our own it is `unreachable`. Our own sockets do not ask that table.
//! - In the main table it leads to a *sink*, a device that drops everything
//!   ([`Kernel::make_sink`]). Ours and others' sockets that are bound to an interface have to get
//!   past it. In IPv4 they would not get past `unreachable`: the kernel refuses at once, whatever
//!   the interface, and then takes the destination for a neighbour.
//!
//! Whose they are, others can tell: by the sink, whose alias names the interface, and by the metric
//! of those that are `unreachable` ([`refusing_metric`]).
//!
//! # What stays
//!
//! Whatever ends the process, the routes that refuse stay, unless it was told to end
//! ([`Routes::open`]). A start that fails leaves what it found.

mod ending;
mod key;
mod release;
mod rules;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use mpip_api::FaultStatus;
use mpip_core::{Instant, Prefix};
use mpip_net::netlink::{Link, Route, RoutingRule};

use crate::config::HostMode;
use crate::error::Error;
use crate::faults::Faults;
use crate::kernel::{Kernel, sink_alias, sink_owner};
use ending::Ending;
pub(crate) use key::{Claimant, Key, MAIN_TABLE};
pub(crate) use tables::{NATS, TRANSLATED, Tables};

/// Metric of our routes: not 0, so that a route which the host already has to the same prefix is
/// left alone instead of replaced, and less than any that DHCP clients and network managers give.
pub(crate) const METRIC: u32 = 1;

/// Metric of routes to the sink: right behind the one to the device, so that no route of the host
/// to the same prefix comes between.
const SINK_METRIC: u32 = 2;

/// Metric of the `unreachable` routes of releases that did not say whose they are.
pub(crate) const UNNAMED_METRIC: u32 = 4096;

/// Metric of `unreachable` routes of the daemon with this interface: 20 bits of FNV-1a tell it from
/// others'.
pub(crate) fn refusing_metric(interface: &str) -> u32 {
    let hash = interface
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    UNNAMED_METRIC + 1 + (hash >> 12)
}

/// Routes that are changed at a time before packets have their turn. One takes 10 µs, but all
/// changes of devices and routes wait for one lock of the whole machine: up to 0.6 ms each was seen
/// where others change many.
const AT_ONCE: usize = 32;

/// What packets by a route get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way {
    /// The source address of those that have none.
    pub(crate) source: Option<IpAddr>,
    /// Their longest.
    pub(crate) mtu: Option<u32>,
}

/// What something that could not be done is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Sink,
    Rules,
    Route(Key),
}

/// The routes and rules of one daemon.
#[derive(Debug)]
pub(crate) struct Routes<K: Kernel> {
    kernel: K,
    settings: HostMode,
    /// Whether there are peers in host mode, so that the tables are ours.
    active: bool,
    /// The first and the last local port that the host chooses by itself.
    chosen_ports: (u16, u16),
    /// The TUN device, and whether routes can lead there.
    link: Link,
    up: bool,
    metric: u32,
    sink: Option<Link>,
    /// How many claimed routes need the sink.
    sinking: usize,
    claims: BTreeMap<Key, BTreeMap<Claimant, Way>>,
    claimed: BTreeMap<Claimant, BTreeSet<Key>>,
    /// What the kernel has.
    present: BTreeMap<Key, Route>,
    /// Where that may differ from what is wanted.
    dirty: BTreeSet<Key>,
    has_more: bool,
    /// Rules that the kernel has, and whether they may differ from those that are wanted.
    rules: Vec<RoutingRule>,
    rules_dirty: bool,
    /// A new route of IPv6 leads to the device, which running connections have not seen.
    renewed_ipv6: bool,
    faults: Faults<Subject>,
    ending: Ending,
    recorded: Tables,
}

impl<K: Kernel> Routes<K> {
    /// Takes over what a former daemon with this device left, to whose tables rules led that are
    /// `recorded`. `link` is the TUN device, which is down; `links` are the host's. `active` says
    /// whether there are peers in host mode.
    pub(crate) fn take_over(
        mut kernel: K,
        settings: HostMode,
        active: bool,
        recorded: Tables,
        link: Link,
        links: &[Link],
    ) -> Result<Self, Error> {
        let sink = links.iter().find(|other| sink_owner(other) == Some(&link.name)).cloned();
        let routes = kernel.routes()?;
        let chosen_ports = kernel.chosen_ports();
        let mut all = Self {
            kernel,
            settings,
            active,
            chosen_ports,
            metric: refusing_metric(&link.name),
            link,
            up: false,
            ending: Ending::new(sink.is_some()),
            sink,
            sinking: 0,
            claims: BTreeMap::new(),
            claimed: BTreeMap::new(),
            present: BTreeMap::new(),
            dirty: BTreeSet::new(),
            has_more: false,
            rules: Vec::new(),
            rules_dirty: true,
            renewed_ipv6: false,
            faults: Faults::default(),
            recorded,
        };
        all.adopt(routes, links)?;
        Ok(all)
    }

    /// Sorts out what `routes` a former daemon left: those that refuse stay until this one ends in
    /// order.
    fn adopt(&mut self, routes: Vec<Route>, links: &[Link]) -> Result<(), Error> {
        let mut found = BTreeMap::new();
        for route in routes {
            let gone = route.link != 0 && !links.iter().any(|link| link.index == route.link);
            match (self.key_of(&route), self.key_of_outdated(&route)) {
                (Some(key), _) if key.refuses => {
                    found.insert(key, Way::default());
                    self.ending.found(key);
                    self.present.insert(key, route);
                }
                (None, Some(key)) => {
                    found.insert(key, Way::default());
                    self.ending.outdated(route);
                }
                (key, _) if key.is_some() || gone => {
                    log::info!("removing what a former daemon left: the route to {route}");
                    self.kernel.delete_route(&route)?;
                }
                _ => {}
            }
        }
        if let Some(sink) = self.sink.as_ref().filter(|sink| !sink.up) {
            self.kernel.set_up(sink)?;
        }
        let in_tables = found.keys().any(|key| key.table != MAIN_TABLE);
        if self.active || in_tables || self.recorded.had(self.settings.table) {
            self.list_rules()?;
        }
        self.list_outdated_rules()?;
        self.claim(&Claimant::Former, found);
        Ok(())
    }

    /// The daemon works from here on. What was left of a former one is given up unless some peer's
    /// policy is `require`.
    pub(crate) fn started(&mut self, now: Instant, requires: bool) {
        self.ending.started();
        self.requires(requires);
        self.apply(now);
        self.ending.delete_outdated(&mut self.kernel);
        if !self.ending.has_outdated() {
            self.recorded.keep(self.settings.table);
        }
    }

    /// Our tables: the one of the configuration and the two behind it.
    fn tables(&self) -> RangeInclusive<u32> {
        self.settings.table..=self.settings.table + NATS
    }

    /// Which of ours the route is, if it is one.
    pub(crate) fn key_of(&self, route: &Route) -> Option<Key> {
        let Route { table, prefix, link, metric, .. } = *route;
        let main = table == MAIN_TABLE;
        if !main && !self.tables().contains(&table) {
            return None;
        }
        let sink = self.sink.as_ref().is_some_and(|sink| sink.index == link);
        let refuses = match main {
            true => sink,
            false => link == 0 && metric == self.metric,
        };
        (refuses || link == self.link.index).then_some(Key { table, prefix, refuses })
    }

    /// Which of ours takes the place of a route that refuses packets, if this is outdated: by a
    /// release that did not say whose they were, or in a table of a former configuration.
    fn key_of_outdated(&self, route: &Route) -> Option<Key> {
        let Route { table, prefix, link, metric, .. } = *route;
        let own = self.tables().contains(&table);
        let table = match metric {
            _ if link != 0 || table == MAIN_TABLE => return None,
            UNNAMED_METRIC if self.active && own => table,
            _ if metric == self.metric && !own => {
                self.settings.table + self.recorded.offset_of(table).unwrap_or(0)
            }
            _ => return None,
        };
        Some(Key { table, prefix, refuses: true })
    }

    /// The routes that `claimant` wants, in place of those that it wanted.
    pub(crate) fn claim(&mut self, claimant: &Claimant, routes: BTreeMap<Key, Way>) {
        self.rules_dirty = true;
        let keys: BTreeSet<Key> = routes.keys().copied().collect();
        let former = match keys.is_empty() {
            true => self.claimed.remove(claimant),
            false => self.claimed.insert(claimant.clone(), keys.clone()),
        };
        for key in former.unwrap_or_default().difference(&keys) {
            if let Some(claims) = self.claims.get_mut(key) {
                claims.remove(claimant);
                if claims.is_empty() {
                    self.claims.remove(key);
                    self.sinking -= usize::from(key.sinks());
                }
            }
            self.dirty.insert(*key);
        }
        for (key, way) in routes {
            let claims = self.claims.entry(key).or_insert_with(|| {
                self.sinking += usize::from(key.sinks());
                BTreeMap::new()
            });
            if claims.get(claimant) != Some(&way) {
                claims.insert(claimant.clone(), way);
                self.dirty.insert(key);
            }
        }
    }

    /// Whether there are peers in host mode.
    pub(crate) fn set_active(&mut self, active: bool) -> Result<(), Error> {
        if active && !self.active {
            self.list_rules()?;
        }
        self.rules_dirty |= active != self.active;
        self.active = active;
        Ok(())
    }

    /// Whether some peer's policy is `require`. Without one, what was left of a former daemon is
    /// given up.
    pub(crate) fn requires(&mut self, requires: bool) {
        if !requires {
            self.claim(&Claimant::Former, BTreeMap::new());
        }
    }

    /// Whether something waits for [`apply`](Self::apply).
    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || self.rules_dirty
    }

    /// When [`retry`](Self::retry) is to be called.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.faults.next_timeout()
    }

    /// Tries again what is due of what failed.
    pub(crate) fn retry(&mut self, now: Instant) {
        for subject in self.faults.due(now) {
            match subject {
                Subject::Sink => self.tend_sink(now),
                Subject::Rules => self.settle_rules(now),
                Subject::Route(key) => self.settle(now, key),
            }
        }
        self.apply(now);
    }

    /// Makes the host's routes and rules those that are wanted, where they may differ.
    pub(crate) fn apply(&mut self, now: Instant) {
        self.apply_some(now);
        while self.has_more {
            self.apply_some(now);
        }
    }

    /// As [`apply`](Self::apply), but only some of them if there are many. The rest
    /// [waits](Self::has_more) for the next call.
    pub(crate) fn apply_some(&mut self, now: Instant) {
        if !self.faults.contains(&Subject::Sink) {
            self.tend_sink(now);
        }
        for _ in 0..AT_ONCE {
            let Some(key) = self.dirty.pop_first() else { break };
            self.settle(now, key);
        }
        self.has_more = !self.dirty.is_empty();
        if self.has_more {
            return;
        }
        // Rules lead to routes: before those they would do nothing.
        if std::mem::take(&mut self.rules_dirty) {
            self.settle_rules(now);
        }
        if std::mem::take(&mut self.renewed_ipv6) {
            self.ask_again();
        }
    }

    /// Whether [`apply_some`](Self::apply_some) has left something for its next call, which may
    /// come at once.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// As [`apply`](Self::apply); what cannot be done is an error.
    pub(crate) fn apply_all(&mut self, now: Instant) -> Result<(), Error> {
        self.apply(now);
        self.faults.first().map_or(Ok(()), |error| Err(Error::Routes(error.to_owned())))
    }

    /// Makes the sink if something needs it, and deletes it if nothing does.
    fn tend_sink(&mut self, now: Instant) {
        let result = match (&self.sink, self.sinking > 0) {
            (None, true) => {
                let alias = sink_alias(&self.link.name);
                self.kernel.make_sink(&alias).map(|link| {
                    let keys = self.claims.keys().filter(|key| key.sinks());
                    self.dirty.extend(keys);
                    self.sink = Some(link);
                })
            }
            (Some(sink), false) if self.ending.may_open() => {
                self.kernel.delete_link(sink).map(|()| {
                    self.present.retain(|key, _| !key.sinks());
                    self.sink = None;
                })
            }
            _ => Ok(()),
        };
        self.note(now, Subject::Sink, result);
    }

    /// Makes the kernel's route for `key` the one that is wanted.
    fn settle(&mut self, now: Instant, key: Key) {
        let wanted = match self.wanted(key) {
            Ok(wanted) => wanted,
            // It comes back to this when there is what it leads to.
            Err(Unavailable) => return self.faults.forget(&Subject::Route(key)),
        };
        let Self { kernel, present, .. } = self;
        let result = match (&wanted, present.get(&key)) {
            (Some(route), Some(has)) if route == has => Ok(()),
            // Routes of the host like ours stay beside it, and those that lead to the device are
            // one.
            (Some(route), None) if key.refuses => kernel.add_route(route),
            (Some(route), _) => kernel.replace_route(route),
            (None, Some(has)) => kernel.delete_route(has),
            (None, None) => Ok(()),
        };
        if result.is_ok() {
            let renewed = wanted.as_ref().is_some_and(|route| present.get(&key) != Some(route));
            self.renewed_ipv6 |= renewed && !key.refuses && key.prefix.address().is_ipv6();
            match wanted {
                Some(route) => present.insert(key, route),
                None => present.remove(&key),
            };
        }
        self.note(now, Subject::Route(key), result);
    }

    fn note(&mut self, now: Instant, subject: Subject, result: Result<(), Error>) {
        match result {
            Ok(()) => drop(self.faults.mended(&subject)),
            Err(error) => self.faults.failed(now, subject, error.to_string()),
        }
    }

    /// The route that is wanted for `key`.
    fn wanted(&self, key: Key) -> Result<Option<Route>, Unavailable> {
        let Some(claims) = self.claims.get(&key) else { return Ok(None) };
        let Key { table, prefix, refuses } = key;
        let (link, metric) = match (refuses, key.sinks()) {
            (true, true) => (self.sink.as_ref().ok_or(Unavailable)?.index, SINK_METRIC),
            (true, false) => (0, self.metric),
            (false, _) if !self.up => return Err(Unavailable),
            (false, _) => (self.link.index, METRIC),
        };
        // Several peers may be behind one NAT.
        let mtu = claims.values().filter_map(|way| way.mtu).min();
        let source = claims.values().find_map(|way| way.source);
        Ok(Some(Route { prefix, link, source, mtu, table, metric }))
    }

    /// Follows what became of our devices, which `links` has.
    pub(crate) fn follow(&mut self, now: Instant, links: &[Link]) {
        let state = |index| links.iter().find(|link| link.index == index).map(|link| link.up);
        self.device_is(state(self.link.index) == Some(true));
        if let Some(sink) = self.sink.clone() {
            match state(sink.index) {
                Some(true) => {}
                Some(false) => {
                    log::warn!("{} was set down, and is set up again", sink.name);
                    self.lost(sink.index);
                    let result = self.kernel.set_up(&sink);
                    self.note(now, Subject::Sink, result);
                }
                None => {
                    log::warn!("{} was deleted, and is made again", sink.name);
                    self.lost(sink.index);
                    self.sink = None;
                }
            }
        }
        self.faults.retry_all(now);
    }

    /// Whether routes can lead to the device.
    pub(crate) fn device_is(&mut self, up: bool) {
        if !up {
            self.lost(self.link.index);
        } else if !self.up {
            self.dirty.extend(self.claims.keys().filter(|key| !key.refuses));
        }
        self.up = up;
    }

    /// The interface went down or is gone, and its routes with it.
    pub(crate) fn lost(&mut self, index: u32) {
        let lost = |route: &Route| route.link == index;
        self.dirty.extend(self.present.iter().filter(|(_, route)| lost(route)).map(|(key, _)| key));
        self.present.retain(|_, route| !lost(route));
    }

    /// Our devices, each of which takes its routes with it when it goes down.
    pub(crate) fn is_ours(&self, index: u32) -> bool {
        index == self.link.index || self.sink.as_ref().is_some_and(|sink| sink.index == index)
    }

    /// The kernel has told that one of our routes is gone, by whomever.
    pub(crate) fn route_gone(&mut self, key: Key) {
        if self.present.remove(&key).is_some() {
            self.dirty.insert(key);
        }
    }

    /// Looks what the kernel has in our own tables, where routes vanish untold with their source
    /// addresses; with `everything` also in the main one, whose length is the host's.
    pub(crate) fn look(&mut self, everything: bool) -> Result<(), Error> {
        let mut listed = Vec::new();
        if everything {
            listed = self.kernel.routes()?;
            self.list_rules()?;
        } else {
            for (table, ipv6) in self.tables_in_use() {
                listed.extend(self.kernel.routes_in(table, ipv6)?);
            }
        }
        let listed: BTreeMap<Key, Route> =
            listed.into_iter().filter_map(|route| Some((self.key_of(&route)?, route))).collect();
        let looked_at = |key: &Key| everything || key.table != MAIN_TABLE;
        let former: Vec<Key> = self.present.keys().filter(|key| looked_at(key)).copied().collect();
        for key in former.iter().chain(listed.keys()) {
            if self.present.get(key) != listed.get(key) {
                self.dirty.insert(*key);
            }
        }
        self.present.retain(|key, _| !looked_at(key));
        self.present.extend(listed);
        Ok(())
    }

    /// Our own tables with routes, and whether these are of IPv6.
    fn tables_in_use(&self) -> Vec<(u32, bool)> {
        let all = self.tables().flat_map(|table| [(table, false), (table, true)]);
        all.filter(|(table, ipv6)| self.uses(*table, *ipv6)).collect()
    }

    /// Whether routes of this IP version are wanted in `table`.
    fn uses(&self, table: u32, ipv6: bool) -> bool {
        // Keys are in the order of tables, then of addresses, and IPv4 comes first.
        let least = Prefix::host(Ipv4Addr::UNSPECIFIED.into());
        let least = Prefix::new(least.address(), 0).unwrap_or(least);
        let most = Prefix::host(Ipv6Addr::from(u128::MAX).into());
        let from = Key { table, prefix: least, refuses: false };
        let mut keys = self.claims.range(from..=Key { table, prefix: most, refuses: true });
        let end = if ipv6 { keys.next_back() } else { keys.next() };
        end.is_some_and(|(key, _)| key.prefix.address().is_ipv6() == ipv6)
    }

    /// The TUN device.
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Whether the host has anything that a former daemon left.
    pub(crate) fn has_left(&self) -> bool {
        let rules = !self.rules.is_empty() || self.ending.has_outdated();
        self.sink.is_some() || !self.claims.is_empty() || rules
    }

    /// The kernel, for other questions.
    pub(crate) fn kernel(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// What refuses packets when this process is gone.
    pub(crate) fn refusing(&self) -> Vec<Prefix> {
        let mut all: Vec<Prefix> =
            self.claims.keys().filter(|key| key.refuses).map(|key| key.prefix).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether some of it leads to the sink by IPv4.
    pub(crate) fn sinks_ipv4(&self) -> bool {
        self.claims.keys().any(|key| key.sinks() && key.prefix.address().is_ipv4())
    }

    /// How much is not as it is wanted.
    pub(crate) fn fault_count(&self) -> usize {
        self.faults.len()
    }

    /// What is not as it is wanted.
    pub(crate) fn faults(&self, now: Instant) -> Vec<FaultStatus> {
        self.faults.status(now, |subject| self.follows_from(subject))
    }

    /// What follows from it that something could not be done.
    fn follows_from(&self, subject: &Subject) -> String {
        let device = &self.link.name;
        let key = match subject {
            Subject::Sink => {
                return "when mpipd ends by an error, packets to peers leave as plain IP although \
                        the policy is `require`"
                    .to_owned();
            }
            Subject::Rules => return "packets are not led where host mode needs them".to_owned(),
            Subject::Route(key) => key,
        };
        let Key { prefix, refuses, .. } = key;
        match (self.claims.contains_key(key), refuses) {
            (true, true) => format!(
                "when {device} is down, or mpipd ends by an error, packets to {prefix} leave as \
                 plain IP although the policy is `require`"
            ),
            (true, false) => format!("packets to {prefix} do not enter {device}"),
            (false, true) => format!("packets to {prefix} are refused, and should not be"),
            (false, false) => format!("packets to {prefix} enter {device}, and should not"),
        }
    }
}

/// There is no device for a route.
struct Unavailable;

#[cfg(test)]
mod tests;
