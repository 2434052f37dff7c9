//! `[[peer]]`: the nodes to associate with.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use mpip_core::{
    CongestionControlKind, EncapsulationPolicy, LossPolicy, PeerConfig, Policy, Prefix,
    SchedulerKind, WeightAdaptation,
};
use mpip_crypto::{PresharedKey, PublicKey};
use toml::Spanned;

use super::problems::Problems;
use super::raw;
use super::settings::InterfaceAddress;
use super::values::{
    ENDPOINT, MAX_PATHS, check_visible_name, everywhere, integer, key_file, named, names, prefixes,
};

/// What earlier peers have, with the line that says so.
#[derive(Default)]
struct Seen {
    names: BTreeMap<String, usize>,
    keys: BTreeMap<PublicKey, usize>,
    prefixes: Vec<(Prefix, String, usize)>,
}

/// Resolves peers one after the other. Each is checked against the node and the earlier peers.
pub(super) struct Peers<'a> {
    own_key: Option<PublicKey>,
    /// Key files are relative to it.
    directory: &'a Path,
    /// Addresses of the TUN device.
    addresses: &'a [InterfaceAddress],
    path_interfaces: Option<&'a [String]>,
    seen: Seen,
}

impl<'a> Peers<'a> {
    pub(super) fn new(
        own_key: Option<PublicKey>,
        directory: &'a Path,
        addresses: &'a [InterfaceAddress],
        path_interfaces: Option<&'a [String]>,
    ) -> Self {
        Self { own_key, directory, addresses, path_interfaces, seen: Seen::default() }
    }

    /// The peer, if nothing is wrong with it.
    pub(super) fn resolve(
        &mut self,
        peer: &Spanned<raw::Peer>,
        problems: &mut Problems<'_>,
    ) -> Option<PeerConfig> {
        let before = problems.count();
        let raw = peer.get_ref();
        let name = match &raw.name {
            Some(name) => self.name(name, problems),
            None => problems.missing(&peer.span(), "name"),
        };
        let public_key = match &raw.public_key {
            Some(key) => self.public_key(key, problems),
            None => problems.missing(&peer.span(), "public_key"),
        };
        let preshared_key = match &raw.preshared_key_file {
            Some(file) => key_file(self.directory, file, problems),
            None => Some(PresharedKey::default()),
        };
        let (host_mode, policy) = host_mode(raw, problems);
        let endpoints = self.endpoints(&raw.endpoints, problems);
        let mut allowed_prefixes = self.allowed_prefixes(raw, problems);
        if raw.default_route {
            self.default_route(peer, &mut allowed_prefixes, problems);
        }
        let exclusive = exclusive(raw, policy, &endpoints, problems);
        let reaches = prefixes(&raw.reaches, "reaches", problems);
        let carriage = carriage(raw, self.path_interfaces, problems);
        if problems.count() > before {
            return None;
        }
        Some(PeerConfig {
            name: name?,
            public_key: public_key?,
            preshared_key: preshared_key?,
            endpoints,
            allowed_prefixes,
            host_mode,
            exclusive,
            reaches,
            policy,
            ..carriage
        })
    }

    fn name(&mut self, name: &Spanned<String>, problems: &mut Problems<'_>) -> Option<String> {
        let text = name.get_ref();
        check_visible_name(name, problems);
        let line = problems.line_of(&name.span());
        if let Some(other) = self.seen.names.insert(text.clone(), line) {
            let message = format!(
                "name: expected a different one for each peer, `{text}` is used in line {other}"
            );
            problems.add(&name.span(), message);
        }
        Some(text.clone())
    }

    fn public_key(
        &mut self,
        text: &Spanned<String>,
        problems: &mut Problems<'_>,
    ) -> Option<PublicKey> {
        let key: PublicKey = match text.get_ref().parse() {
            Ok(key) => key,
            Err(error) => return problems.none(&text.span(), format!("public_key: {error}")),
        };
        if self.own_key == Some(key) {
            let message = "public_key: expected the peer's key, found this node's own".to_owned();
            problems.add(&text.span(), message);
        }
        let line = problems.line_of(&text.span());
        if let Some(other) = self.seen.keys.insert(key, line) {
            let message = format!(
                "public_key: expected a different one for each peer, this one is used in line {other}"
            );
            problems.add(&text.span(), message);
        }
        Some(key)
    }

    fn endpoints(&self, texts: &[Spanned<String>], problems: &mut Problems<'_>) -> Vec<SocketAddr> {
        let mut endpoints = Vec::new();
        let mut seen = BTreeSet::new();
        for text in texts {
            let found = text.get_ref();
            let mut refuse = |reason: &dyn Display| {
                problems.add(&text.span(), format!("endpoints: {reason}, found `{found}`"));
            };
            match found.parse::<SocketAddr>() {
                Err(_) => refuse(&ENDPOINT),
                Ok(endpoint) if endpoint.port() == 0 => refuse(&"expected a port from 1 to 65535"),
                Ok(endpoint) if is_nobody(&endpoint) => {
                    refuse(&"expected the address of one other host");
                }
                Ok(endpoint) if !seen.insert(endpoint) => refuse(&"expected each endpoint once"),
                Ok(endpoint) => endpoints.push(endpoint),
            }
        }
        endpoints
    }

    fn allowed_prefixes(&mut self, peer: &raw::Peer, problems: &mut Problems<'_>) -> Vec<Prefix> {
        let mut prefixes = Vec::new();
        for text in &peer.allowed_prefixes {
            let prefix: Prefix = match text.get_ref().parse() {
                Ok(prefix) => prefix,
                Err(error) => {
                    problems.add(&text.span(), format!("allowed_prefixes: {error}"));
                    continue;
                }
            };
            let host_mode = peer.host_mode.as_ref().is_some_and(|host_mode| *host_mode.get_ref());
            if is_no_other_host(prefix, host_mode) {
                let message = format!(
                    "allowed_prefixes: expected addresses of other hosts, found `{prefix}`"
                );
                problems.add(&text.span(), message);
            }
            let single = prefix.prefix_len() == if prefix.address().is_ipv4() { 32 } else { 128 };
            let own = self.addresses.iter().find(|own| own.address == prefix.address());
            if let Some(own) = own.filter(|_| single) {
                let message = format!(
                    "allowed_prefixes: expected addresses of the peer, `{prefix}` is this node's \
                     own {own}"
                );
                problems.add(&text.span(), message);
            }
            let overlap = self.seen.prefixes.iter().find(|(other, _, _)| *other == prefix);
            if let Some((_, name, line)) = overlap {
                let message = format!(
                    "allowed_prefixes: expected each prefix once, `{prefix}` belongs to peer \
                     `{name}` in line {line}"
                );
                problems.add(&text.span(), message);
            }
            let line = problems.line_of(&text.span());
            let name = peer.name.as_ref().map(|name| name.get_ref().clone()).unwrap_or_default();
            self.seen.prefixes.push((prefix, name, line));
            prefixes.push(prefix);
        }
        prefixes
    }

    /// Adds what has no other way to the peer's prefixes.
    fn default_route(
        &mut self,
        peer: &Spanned<raw::Peer>,
        allowed: &mut Vec<Prefix>,
        problems: &mut Problems<'_>,
    ) {
        let raw = peer.get_ref();
        let name = raw.name.as_ref().map(|name| name.get_ref().clone()).unwrap_or_default();
        if let Some(on) = raw.host_mode.as_ref().filter(|on| *on.get_ref()) {
            let message =
                "host_mode: expected no `default_route = true` beside it, which is for tunnels";
            problems.add(&on.span(), message.to_owned());
        }
        for all in everywhere() {
            let mut others = self.seen.prefixes.iter().filter(|(prefix, _, _)| *prefix == all);
            match others.find(|(_, other, _)| *other != name) {
                Some((_, other, line)) => {
                    let message = format!(
                        "default_route: expected one peer with it, `{other}` in line {line} has \
                         {all} already"
                    );
                    problems.add(&peer.span(), message);
                }
                None if !allowed.contains(&all) => {
                    let line = problems.line_of(&peer.span());
                    self.seen.prefixes.push((all, name.clone(), line));
                    allowed.push(all);
                }
                None => {}
            }
        }
    }
}

/// How packets to peers are carried, in a configuration without name, key and addresses: the keys
/// that configured peers and those that are found have alike.
fn carriage(
    raw: &raw::Peer,
    path_interfaces: Option<&[String]>,
    problems: &mut Problems<'_>,
) -> PeerConfig {
    let scheduler = named(raw.scheduler.as_ref(), "scheduler", SchedulerKind::NAMES, problems)
        .unwrap_or_default();
    let fixed_weights = fixed_weights(raw, path_interfaces, scheduler, problems);
    let weight_adaptation = weight_adaptation(raw, scheduler, problems);
    let congestion_control = named(
        raw.congestion_control.as_ref(),
        "congestion_control",
        CongestionControlKind::NAMES,
        problems,
    )
    .unwrap_or_default();
    let encapsulation =
        named(raw.encapsulation.as_ref(), "encapsulation", EncapsulationPolicy::NAMES, problems)
            .unwrap_or_default();
    let tcp_port =
        raw.tcp_port.as_ref().and_then(|port| integer(port, "tcp_port", 1..=65_535, problems));
    let max_paths =
        raw.max_paths.as_ref().and_then(|paths| integer(paths, "max_paths", MAX_PATHS, problems));
    let loss_policy = named(raw.loss_policy.as_ref(), "loss_policy", LossPolicy::NAMES, problems)
        .unwrap_or_default();
    PeerConfig {
        scheduler,
        fixed_weights,
        weight_adaptation,
        congestion_control,
        max_paths,
        loss_policy,
        resequencing: raw.resequencing.unwrap_or(true),
        ack_thinning: raw.ack_thinning.unwrap_or(true),
        encapsulation,
        tcp_port,
        ..PeerConfig::unnamed()
    }
}

/// The settings of peers that are found, from a section with the keys of a `[[peer]]`. Keys that
/// say who a peer is, and what nobody may be trusted with, are refused.
pub(super) fn found(
    section: &Spanned<raw::Peer>,
    path_interfaces: Option<&[String]>,
    problems: &mut Problems<'_>,
) -> PeerConfig {
    let raw = section.get_ref();
    let span = |value: Option<Range<usize>>| value.unwrap_or_else(|| section.span());
    let first = |list: &[Spanned<String>]| list.first().map(Spanned::span);
    let exclusive = raw.exclusive.as_ref().map(Spanned::span);
    let host_mode = raw.host_mode.as_ref().map(Spanned::span);
    let theirs = "a node that is found has the addresses at which it proved to receive";
    let refused = [
        ("name", raw.name.as_ref().map(Spanned::span), "a node that is found has its address"),
        ("public_key", raw.public_key.as_ref().map(Spanned::span), "`pins` has keys"),
        (
            "preshared_key_file",
            raw.preshared_key_file.as_ref().map(Spanned::span),
            "a node that is found has no secret of ours",
        ),
        ("endpoints", first(&raw.endpoints), theirs),
        ("allowed_prefixes", first(&raw.allowed_prefixes), theirs),
        ("reaches", first(&raw.reaches), "a node that is found reaches this host alone"),
        ("host_mode", host_mode, "a node that is found is always in host mode"),
        ("exclusive", exclusive, "it belongs to the section [opportunistic] itself"),
        (
            "default_route",
            raw.default_route.then(|| section.span()),
            "a node that is found gets none but its own packets",
        ),
        (
            "policy",
            raw.policy.as_ref().map(Spanned::span),
            "packets to a node are plain IP until it is found, so it is always `prefer`",
        ),
    ];
    for (key, at, why) in refused {
        if at.is_some() {
            let message = format!(
                "{key}: expected in a [[peer]] only, found in \
                [opportunistic.peer]: {why}"
            );
            problems.add(&span(at), message);
        }
    }
    carriage(raw, path_interfaces, problems)
}

fn fixed_weights(
    peer: &raw::Peer,
    path_interfaces: Option<&[String]>,
    scheduler: SchedulerKind,
    problems: &mut Problems<'_>,
) -> Vec<(String, u16)> {
    let Some(weights) = &peer.weights else {
        return Vec::new();
    };
    if scheduler != SchedulerKind::Weighted {
        let message =
            format!("weights: expected only with scheduler `weighted`, found `{scheduler}`");
        problems.add(&weights.span(), message);
    }
    let mut resolved = Vec::new();
    for (interface, weight) in weights.get_ref() {
        let unknown = path_interfaces.filter(|known| !known.contains(interface));
        if let Some(known) = unknown {
            let expected = names(known.iter().map(String::as_str));
            let message = format!(
                "weights: expected interfaces that a [[path]] names ({expected}), found \
                 `{interface}`"
            );
            problems.add(&weight.span(), message);
        }
        let key = format!("weights.{interface}");
        if let Some(weight) = integer(weight, &key, 1..=1000, problems) {
            resolved.push((interface.clone(), weight));
        }
    }
    resolved
}

/// The settings of the seeds' Algorithm 1, which only adapting weights have.
fn weight_adaptation(
    peer: &raw::Peer,
    scheduler: SchedulerKind,
    problems: &mut Problems<'_>,
) -> WeightAdaptation {
    let mut adaptation = WeightAdaptation::default();
    let settings = [
        ("weight_step", &peer.weight_step, 1..=1_000),
        ("weight_period_ms", &peer.weight_period_ms, 100..=60_000),
    ];
    for (key, value, range) in settings {
        let Some(value) = value else { continue };
        if scheduler != SchedulerKind::Weighted || peer.weights.is_some() {
            let message = format!(
                "{key}: expected only with scheduler `weighted` and without `weights`, because \
                 nothing else adapts weights"
            );
            problems.add(&value.span(), message);
            continue;
        }
        let Some(number) = integer::<u16>(value, key, range, problems) else { continue };
        if key == "weight_step" {
            adaptation.step = number;
        } else if number % 100 == 0 {
            adaptation.period = Duration::from_millis(number.into());
        } else {
            let message = format!("{key}: expected a multiple of 100, found {number}");
            problems.add(&value.span(), message);
        }
    }
    adaptation
}

/// The addresses that a peer in host mode shares with nobody. By default those of its endpoints.
fn exclusive(
    raw: &raw::Peer,
    policy: Policy,
    endpoints: &[SocketAddr],
    problems: &mut Problems<'_>,
) -> Vec<Prefix> {
    let host_mode = raw.host_mode.as_ref().is_some_and(|host_mode| *host_mode.get_ref());
    match &raw.exclusive {
        Some(texts) if !host_mode => {
            let message = "exclusive: expected only for peers with `host_mode = true`".to_owned();
            problems.add(&texts.span(), message);
            Vec::new()
        }
        Some(texts) => {
            let exclusive = prefixes(texts.get_ref(), "exclusive", problems);
            let within = |ip| exclusive.iter().any(|prefix| prefix.contains(ip));
            let outside = endpoints.iter().find(|endpoint| !within(endpoint.ip()));
            // With `require`, all packets to an endpoint go to the peer from the start.
            if let Some(outside) = outside.filter(|_| policy == Policy::Require) {
                let message = format!(
                    "exclusive: expected the addresses of `endpoints` with policy `require`, found \
                     none for {}",
                    outside.ip()
                );
                problems.add(&texts.span(), message);
            }
            exclusive
        }
        None => endpoints.iter().map(|endpoint| Prefix::host(endpoint.ip())).collect(),
    }
}

/// Whether the address cannot be that of one other host.
fn is_nobody(endpoint: &SocketAddr) -> bool {
    let ip = endpoint.ip();
    let broadcast = matches!(ip, std::net::IpAddr::V4(v4) if v4.is_broadcast());
    ip.is_unspecified() || ip.is_multicast() || broadcast
}

/// Addresses that mean the host itself.
const LOCAL: [&str; 4] = ["127.0.0.0/8", "::1/128", "0.0.0.0/32", "::/128"];
/// Addresses that are valid on one link only, or mean many hosts. A tunnel may carry them.
const OF_A_LINK: [&str; 5] =
    ["169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32", "fe80::/10", "ff00::/8"];

/// Whether no address in `prefix` can be an address of another host: an ordinary one with
/// `host_mode`, an inner one without.
fn is_no_other_host(prefix: Prefix, host_mode: bool) -> bool {
    let within = |text: &&str| {
        let outer: Prefix = text.parse().expect("a constant");
        outer.prefix_len() <= prefix.prefix_len() && outer.contains(prefix.address())
    };
    LOCAL.iter().any(within) || (host_mode && OF_A_LINK.iter().any(within))
}

/// Whether the peer is in host mode, and its policy, whose default depends on that.
fn host_mode(raw: &raw::Peer, problems: &mut Problems<'_>) -> (bool, Policy) {
    let host_mode = raw.host_mode.as_ref().is_some_and(|host_mode| *host_mode.get_ref());
    let default = if host_mode { Policy::Prefer } else { Policy::Require };
    let policy = named(raw.policy.as_ref(), "policy", Policy::NAMES, problems);
    if let (Some(text), Some(policy @ (Policy::Prefer | Policy::Off)), false) =
        (&raw.policy, policy, host_mode)
    {
        let message = format!(
            "policy: expected `require`, because `{policy}` is for peers with `host_mode = true`"
        );
        problems.add(&text.span(), message);
    }
    (host_mode, policy.unwrap_or(default))
}
