//! Host mode: the peer's inner addresses are its ordinary addresses.
//!
//! An address belongs to the peer as a whole if the configuration says that no other host shares
//! it, the peer has advertised it in an authenticated list, and a path to that address was
//! validated. Validation alone only proves that the peer has one port there. So at other addresses
//! only connections that began on the paths are carried, as behind NATs
//! ([`translated`](super::translated)). An address that the peer has lost stays its own as long as
//! the peer sends from it, so that sessions survive a change of address. The capture (which packets
//! the host hands to the engine) follows from these addresses, the policy, and whether any path
//! works.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeSet;

use super::Association;
use crate::capture::Traffic;
use crate::config::Policy;
use crate::content::Path;
use crate::event::Event;
use crate::parts::host_mode::all_captured;
use crate::shared::Context;
use crate::translation::PATIENCE;
use mpip_types::Instant;
use mpip_types::packet::protocol;
use mpip_types::{LocalAddress, PortSet, Prefix};

/// Age of a path below which the peer may not have validated our address or told how it sees it
/// yet. It would refuse packets from there.
const SETTLING: Duration = Duration::from_millis(500);
/// Most addresses that belong to one peer as a whole, including lost ones that are still in use.
const ADDRESSES: usize = 64;
/// Interval between checks whether sessions still use an address that the peer has lost.
const HELD_CHECK: Duration = Duration::from_secs(1);

impl Association {
    /// The capture has to be recomputed.
    pub(crate) fn review_capture(&mut self) {
        self.host.review();
    }

    /// Marks the peer as unknown: it has only the addresses that are [admitted](Self::admit).
    pub(crate) fn mark_as_unknown_peer(&mut self) {
        self.host.scope = Some(Vec::new());
        self.receiving.of_unknown();
    }

    /// Admits an unknown peer at these addresses, where it proved to receive. It may own those
    /// marked as exclusive. Returns whether anything changed.
    pub(crate) fn admit(
        &mut self,
        now: Instant,
        addresses: &[(IpAddr, bool)],
        cx: &Context<'_>,
    ) -> bool {
        let scope = addresses.iter().map(|(address, _)| *address).collect();
        let exclusive = addresses.iter().filter(|(_, exclusive)| *exclusive);
        let exclusive = exclusive.map(|(address, _)| Prefix::host(*address)).collect();
        let former = self.host.scope.replace(scope);
        let same = former == self.host.scope && self.config.exclusive == exclusive;
        self.config.exclusive = exclusive;
        if !same {
            self.report_observed_addresses(now, cx);
            self.review_capture();
        }
        !same
    }

    /// Whether `ip` may belong to the peer as a whole: the peer advertises it, and the
    /// configuration permits it. It does once a path there is validated.
    pub(super) fn may_take(&self, ip: IpAddr, cx: &Context<'_>) -> bool {
        let prefixes = &self.config.allowed_prefixes;
        let mut permitted = self.config.exclusive.iter().chain(prefixes);
        self.peer.has_ip(ip)
            && permitted.any(|prefix| prefix.contains(ip))
            && cx.shared.is_another_host(ip)
    }

    /// Recomputes the capture without rate limit, for the last time.
    pub(super) fn review_at_last(&mut self) {
        self.host.review_at_last();
    }

    /// Whether this is an unknown peer.
    pub(super) fn is_unknown_peer(&self) -> bool {
        self.host.is_unknown_peer()
    }

    /// Updates the peer's addresses and the capture.
    pub(crate) fn follow_capture(&mut self, now: Instant, cx: &mut Context<'_>) {
        if !self.config.host_mode || !self.host.start_review(now) {
            return;
        }
        cx.shared.work +=
            1 + (self.receiving.sessions().len() + self.sending.sessions().len()) as u64;
        self.claim_addresses(cx);
        self.release_addresses(now, cx);
        let nats = self.follow_translated(now, cx);
        self.host.unknown_sources = self.unknown_sources(&cx.shared.locals).into();
        let works = self.identity.is_established() && self.paths.any_works();
        let traffic = self.host.follow(now, works, self.config.policy);
        let (prefixes, translated) = self.list_captures(now, traffic, cx);
        // Traffic stays plain until there is something to capture.
        let nothing = prefixes.is_empty() && translated.is_empty() && nats.is_empty();
        let traffic = match traffic {
            Traffic::Multipath if nothing => Traffic::Plain,
            traffic => traffic,
        };
        let asks = self.ask_udp_ports(traffic, &translated);
        let host = &mut self.host;
        let same = prefixes == host.captured && translated == host.translated && nats == host.nats;
        if traffic == host.traffic && same {
            if asks {
                cx.shared.captures.insert(self.config.name.clone(), host.capture(&self.config));
            }
            return;
        }
        if traffic == Traffic::Plain && self.host.traffic == Traffic::Multipath {
            self.return_to_host(now, cx);
            self.host.release_at = Some(now);
            self.host.path_connections.on_fall_back();
        }
        let reason = match (traffic, self.identity.is_established()) {
            (Traffic::Multipath, _) => "paths work",
            (_, true) => "no path answers",
            (_, false) => "there is no association",
        };
        cx.shared.events.push_back(Event::Traffic {
            peer: self.config.name.clone(),
            from: self.host.traffic,
            to: traffic,
            captured: all_captured(&prefixes, &translated),
            nats: nats.clone(),
            reason,
        });
        let host = &mut self.host;
        host.traffic = traffic;
        if !same || asks {
            (host.captured, host.translated, host.nats) = (prefixes, translated, nats);
            cx.shared.translations.set_captured(cx.me, &host.nats);
            let peer = self.config.name.clone();
            cx.shared.captures.insert(peer, self.host.capture(&self.config));
        }
    }

    /// Asks the host for the ports whose UDP stays plain, if `translated`, the destinations of
    /// captured UDP, is to have flows that the host may have begun as plain IP. Returns whether it
    /// did.
    fn ask_udp_ports(&mut self, traffic: Traffic, translated: &[IpAddr]) -> bool {
        let host = &mut self.host;
        // An unknown peer knows us as little, and translates no UDP (`[T-10]`).
        let carries = traffic == Traffic::Multipath
            && self.config.policy == Policy::Prefer
            && !translated.is_empty()
            && !host.is_unknown_peer();
        let begins = host.traffic != Traffic::Multipath
            || translated.iter().any(|ip| !host.translated.contains(ip))
            || host.path_connections.has_stale_udp_ports();
        if carries && begins {
            host.path_connections.ask_udp_ports();
        }
        carries && begins
    }

    /// The host has listed the ports whose UDP stays plain.
    pub(crate) fn on_plain_udp_ports(&mut self, ports: PortSet) {
        self.host.path_connections.on_plain_udp_ports(ports);
    }

    /// Whether packets that no path delivers can fall back to plain IP: the policy allows it, and
    /// they were using the paths.
    pub(super) fn can_fall_back(&self) -> bool {
        self.config.host_mode
            && self.config.policy == Policy::Prefer
            && self.host.traffic == Traffic::Multipath
    }

    /// Whether traffic has fallen back to plain IP, so that the host hands over no more packets.
    pub(super) fn has_fallen_back(&self) -> bool {
        self.config.host_mode
            && self.config.policy == Policy::Prefer
            && self.host.traffic == Traffic::Plain
    }

    /// Updates the NAT state of this node and of the peer. Returns the addresses of the NATs in
    /// front of the peer.
    fn follow_translated(&mut self, now: Instant, cx: &mut Context<'_>) -> Vec<IpAddr> {
        cx.shared.translations.expire(now);
        self.host.path_connections.expire(now);
        let works = self.paths.any_works();
        let left_at = self.host.left_since(now, works);
        if left_at.is_some_and(|at| now.since(at) >= PATIENCE) {
            self.host.path_connections.clear();
        }
        if cx.shared.translations.is_on() {
            self.host.own_translated = self.own_translated().into();
            self.follow_untold(now);
        }
        if cx.shared.translations.has(cx.me) || !self.host.path_connections.is_empty() {
            self.host.review_by(now + HELD_CHECK);
        }
        self.public_addresses(cx)
    }

    /// Whether sessions use `address` as their end on this host.
    pub(crate) fn uses_address(&self, address: IpAddr) -> bool {
        self.config.host_mode
            && (self.host.path_connections.iter().any(|key| key.source.address == address)
                || self.sending.sessions().iter().any(|(_, key, _)| key.source.address == address)
                || self
                    .receiving
                    .sessions()
                    .iter()
                    .any(|(_, _, session)| session.key.destination.address == address))
    }

    /// Whether `ip` belongs to the peer as a whole, or is about to.
    pub(super) fn takes(&self, ip: IpAddr, cx: &Context<'_>) -> bool {
        let mut validated = self.paths.validated();
        validated.any(|path| path.address.remote.ip() == ip) && self.may_take(ip, cx)
    }

    /// Claims addresses that belong to the peer since a path there was validated.
    fn claim_addresses(&mut self, cx: &mut Context<'_>) {
        for path in self.paths.validated() {
            let ip = path.address.remote.ip();
            let known = self.host.addresses.contains_key(&ip)
                || self.config.allowed_prefixes.contains(&Prefix::host(ip));
            if known || !self.may_take(ip, cx) {
                continue;
            }
            if self.host.addresses.len() >= ADDRESSES {
                log::debug!("peer `{}`: too many addresses, {ip} is ignored", self.config.name);
                continue;
            }
            if cx.shared.prefixes.claim(Prefix::host(ip), cx.me, true) {
                self.host.addresses.insert(ip, false);
            } else {
                log::debug!("peer `{}`: {ip} belongs to another peer", self.config.name);
            }
        }
    }

    /// Releases addresses that the peer has lost, once it no longer sends from them.
    fn release_addresses(&mut self, now: Instant, cx: &mut Context<'_>) {
        let mut addresses = core::mem::take(&mut self.host.addresses);
        for (ip, held) in &mut addresses {
            *held = !self.peer.has_ip(*ip);
        }
        let mut used = BTreeSet::new();
        if addresses.values().any(|held| *held) {
            let sources =
                self.receiving.sessions().iter().map(|(_, _, session)| session.key.source.address);
            used.extend(sources.filter(|ip| addresses.contains_key(ip)));
        }
        addresses.retain(|ip, held| {
            if !*held {
                return true;
            }
            if used.contains(ip) {
                self.host.review_by(now + HELD_CHECK);
                return true;
            }
            cx.shared.prefixes.release(Prefix::host(*ip), cx.me);
            if self.always_captures(*ip) {
                cx.shared.prefixes.claim(Prefix::host(*ip), cx.me, false);
            }
            false
        });
        self.host.addresses = addresses;
    }

    /// Whether packets to `ip` are captured even before the address is known to be the peer's.
    fn always_captures(&self, ip: IpAddr) -> bool {
        self.config.policy == Policy::Require
            && self.config.endpoints.iter().any(|endpoint| endpoint.ip() == ip)
    }

    /// The prefixes to capture in the state `traffic`, and the addresses to which only translatable
    /// connections are captured. Both are sorted.
    fn list_captures(
        &mut self,
        now: Instant,
        traffic: Traffic,
        cx: &Context<'_>,
    ) -> (Vec<Prefix>, Vec<IpAddr>) {
        let mut translated = Vec::new();
        if traffic == Traffic::Plain {
            // Connections that began on the paths wait for them.
            let waiting = self.host.path_connections.iter();
            let waiting = waiting.filter(|key| key.protocol != protocol::UDP);
            let destinations = waiting.map(|key| key.destination.address);
            translated.extend(destinations);
            translated.sort_unstable();
            translated.dedup();
            return (Vec::new(), translated);
        }
        let fail_closed = self.config.policy == Policy::Require;
        let mut prefixes = Vec::new();
        let addresses = self.host.addresses.keys().map(|ip| Prefix::host(*ip));
        let all = addresses.chain(self.config.allowed_prefixes.iter().copied());
        let all: Vec<_> = all.collect();
        let kept = self.kept_for(&cx.shared.locals);
        for prefix in all {
            let ip = prefix.address();
            let as_it_is = fail_closed || self.takes_plain_addresses(ip, &kept);
            let in_part = cx.shared.translations.is_on() && self.host.addresses.contains_key(&ip);
            if !as_it_is && !in_part {
                continue;
            }
            let known = match as_it_is {
                true => fail_closed || self.host.captured.contains(&prefix),
                false => self.host.translated.contains(&ip),
            };
            match self.unsettled(now, prefix.address(), &cx.shared.locals) {
                Some(at) if !known => {
                    self.host.review_by(at);
                }
                _ if as_it_is => prefixes.push(prefix),
                _ => translated.push(ip),
            }
        }
        if fail_closed {
            let endpoints = self.config.endpoints.iter().map(core::net::SocketAddr::ip);
            prefixes.extend(endpoints.map(Prefix::host));
        }
        prefixes.sort_unstable();
        prefixes.dedup();
        (prefixes, translated)
    }

    /// Whether packets between our ordinary addresses and `ip` mean the same to both ends. They do
    /// not if the peer does not accept our address as ours: it may know us by another address, or
    /// others by this one. Configured prefixes are never ordinary addresses.
    fn takes_plain_addresses(&self, ip: IpAddr, kept: &BTreeSet<IpAddr>) -> bool {
        if !self.host.addresses.contains_key(&ip) {
            return true;
        }
        let elsewhere = |path: &Path| path.is_elsewhere() && path.local.is_ipv4() == ip.is_ipv4();
        !self.paths.iter().any(elsewhere) || kept.contains(&ip)
    }

    /// Addresses of the peer with sessions from a local address that is gone but kept for them.
    /// These sessions continue, whatever address the peer knows us by.
    fn kept_for(&self, locals: &[LocalAddress]) -> BTreeSet<IpAddr> {
        if self.host.addresses.is_empty() || !self.paths.iter().any(Path::is_elsewhere) {
            return BTreeSet::new();
        }
        let is_ours = |own: IpAddr| locals.iter().any(|local| local.address.ip() == own);
        let kept =
            self.sending.sessions().iter().filter(|(_, key, _)| !is_ours(key.source.address));
        let kept = kept.map(|(_, key, _)| key.destination.address);
        kept.filter(|ip| self.host.addresses.contains_key(ip)).collect()
    }

    /// Our addresses that no path has proved to the peer yet. Their packets may leave as plain IP.
    fn unknown_sources(&self, locals: &[LocalAddress]) -> Vec<IpAddr> {
        if self.config.policy != Policy::Prefer {
            return Vec::new();
        }
        let shown = |ip: IpAddr| {
            self.paths.iter().any(|path| path.peer.confirmed() && path.local.ip() == ip)
        };
        let mut unknown: Vec<_> = locals.iter().map(|local| local.address.ip()).collect();
        unknown.retain(|ip| !shown(*ip));
        unknown.dedup();
        unknown
    }

    /// When the peer may still be validating some of our addresses that packets to `ip` can use:
    /// when to check again. An address is validated if the peer acknowledges on a path from there,
    /// whatever the address looks like on the way.
    fn unsettled(&self, now: Instant, ip: IpAddr, locals: &[LocalAddress]) -> Option<Instant> {
        let same_family = |local: &&LocalAddress| local.address.is_ipv4() == ip.is_ipv4();
        let waits = locals.iter().filter(same_family).filter_map(|local| {
            let ip = local.address.ip();
            let mut own = self.paths.iter().filter(|path| path.local.ip() == ip);
            let told = own.clone().any(|path| path.seen.ours.is_some());
            if told && own.clone().any(|path| path.peer.confirmed()) {
                return None;
            }
            let young = |at: &Instant| now < *at;
            own.find(|path| young(&(path.opened + SETTLING))).map(|path| path.opened + SETTLING)
        });
        waits.min()
    }
}
