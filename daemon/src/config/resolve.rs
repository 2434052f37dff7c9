//! From what the user wrote to settings, collecting everything that is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs;
use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mpip_core::{
    CongestionControlKind, DEFAULT_PORT, EncapsulationPolicy, PeerConfig, Policy, Prefix,
    SchedulerKind,
};
use mpip_crypto::{PresharedKey, PrivateKey, PublicKey};
use toml::Spanned;

use super::error::Problem;
use super::settings::{HostMode, InterfaceAddress, Place, Settings};
use super::{keys, opportunistic, raw, rule};

/// Longest name of a Linux interface: `IFNAMSIZ` less the final zero.
const INTERFACE_NAME_MAX: usize = 15;

/// The kernel's tables `default`, `main` and `local` (rtnetlink(7)).
const RESERVED_TABLES: RangeInclusive<u32> = 251..=255;

/// The interface that a configuration without a name gets.
pub(super) const DEFAULT_INTERFACE: &str = "mpip0";

/// Longest path of a Unix socket, `sun_path` less the final zero (unix(7)), less the suffix that
/// the socket has while it is made.
const SOCKET_PATH_MAX: usize = 107 - crate::control::NEW_SUFFIX.len();

/// What is wrong so far.
pub(super) struct Problems<'a> {
    text: &'a str,
    list: Vec<Problem>,
}

impl Problems<'_> {
    pub(super) fn add(&mut self, span: &Range<usize>, message: String) {
        self.list.push(Problem::at(self.text, span, message));
    }

    /// As [`add`](Self::add), in the place of a value.
    pub(super) fn none<T>(&mut self, span: &Range<usize>, message: String) -> Option<T> {
        self.add(span, message);
        None
    }

    pub(super) fn count(&self) -> usize {
        self.list.len()
    }

    fn line_of(&self, span: &Range<usize>) -> usize {
        Problem::at(self.text, span, String::new()).line.unwrap_or(0)
    }
}

/// Pauses between keepalives, s.
const KEEPALIVE: RangeInclusive<i64> = 2..=600;

/// The names in quotes, with commas between them.
pub(super) fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The value of `key`, if it is within `range`.
pub(super) fn integer<T: TryFrom<i64>>(
    value: &Spanned<i64>,
    key: &str,
    range: RangeInclusive<i64>,
    problems: &mut Problems<'_>,
) -> Option<T> {
    let found = *value.get_ref();
    if range.contains(&found)
        && let Ok(value) = T::try_from(found)
    {
        return Some(value);
    }
    let (from, to) = (range.start(), range.end());
    problems
        .none(&value.span(), format!("{key}: expected a number from {from} to {to}, found {found}"))
}

/// The value of `key` with the name `text` out of `known`.
fn named<T: Copy>(
    text: Option<&Spanned<String>>,
    key: &str,
    known: &[(&str, T)],
    problems: &mut Problems<'_>,
) -> Option<T> {
    let text = text?;
    let found = known.iter().find(|(name, _)| name == text.get_ref()).map(|(_, value)| *value);
    found.or_else(|| {
        let expected = names(known.iter().map(|(name, _)| *name));
        let found = text.get_ref();
        problems.none(&text.span(), format!("{key}: expected one of {expected}, found `{found}`"))
    })
}

/// The settings, or everything that is wrong with them, in the file's order.
pub(super) fn resolve(
    file: &Path,
    text: &str,
    raw: &raw::Config,
) -> Result<Settings, Vec<Problem>> {
    let directory = file.parent().unwrap_or(Path::new(""));
    let mut problems = Problems { text, list: Vec::new() };
    let private_key = key_file::<PrivateKey>(directory, &raw.node.private_key_file, &mut problems);
    let listen_port = match &raw.node.listen_port {
        Some(port) => integer(port, "listen_port", 1..=65_535, &mut problems),
        None => Some(DEFAULT_PORT),
    };
    let tcp_port = match &raw.node.tcp_port {
        Some(port) => integer(port, "tcp_port", 1..=65_535, &mut problems),
        None => listen_port,
    };
    let keepalive = raw.node.keepalive.as_ref();
    let keepalive =
        keepalive.and_then(|value| integer(value, "keepalive", KEEPALIVE, &mut problems));
    let interface = interface_name(&raw.interface, &mut problems);
    let control_socket = control_socket(&raw.node, &interface, &mut problems);
    let control_group = raw.node.control_group.as_ref().and_then(|name| group(name, &mut problems));
    let addresses: Vec<_> = raw
        .interface
        .addresses
        .iter()
        .filter_map(|text| interface_address(text, &mut problems))
        .collect();
    let path_interfaces = path_interfaces(&raw.path, &interface, &mut problems);
    let path_encapsulations = path_encapsulations(&raw.path, &mut problems);
    let host_mode = host_mode_settings(&raw.host_mode, &mut problems);
    let mut peers = Peers {
        own_key: private_key.as_ref().map(|key| *key.public_key()),
        directory,
        addresses: &addresses,
        path_interfaces: path_interfaces.as_deref(),
        seen: Seen::default(),
    };
    let peers = raw.peer.iter().filter_map(|peer| peers.resolve(peer, &mut problems)).collect();
    let rules = raw.rule.iter().filter_map(|raw| rule::resolve(raw, &mut problems)).collect();
    let opportunistic = raw.opportunistic.as_ref();
    let opportunistic =
        opportunistic.and_then(|raw| opportunistic::resolve(raw, directory, &mut problems));
    if !problems.list.is_empty() {
        problems.list.sort_by_key(|problem| problem.line);
        return Err(problems.list);
    }
    let place = |span: Option<Range<usize>>| Place {
        file: file.to_owned(),
        line: span.map(|span| problems.line_of(&span)),
    };
    let unresolved = "a value that is missing here has been reported above";
    Ok(Settings {
        file: file.to_owned(),
        private_key: private_key.expect(unresolved),
        listen_port: listen_port.expect(unresolved),
        listen_port_place: place(raw.node.listen_port.as_ref().map(Spanned::span)),
        tcp_port: tcp_port.unwrap_or(DEFAULT_PORT),
        tcp_port_place: place(raw.node.tcp_port.as_ref().map(Spanned::span)),
        control_socket,
        control_group,
        keepalive: keepalive.map(Duration::from_secs),
        interface,
        interface_place: place(raw.interface.name.as_ref().map(Spanned::span)),
        addresses,
        path_interfaces,
        path_encapsulations,
        host_mode,
        peers,
        rules,
        opportunistic,
    })
}

fn key_file<K>(directory: &Path, file: &Spanned<String>, problems: &mut Problems<'_>) -> Option<K>
where
    K: std::str::FromStr<Err = mpip_crypto::KeyParseError>,
{
    match keys::read(&directory.join(file.get_ref())) {
        Ok(key) => Some(key),
        Err(message) => problems.none(&file.span(), message),
    }
}

/// The control socket of the daemon of `interface`, unless its configuration names another.
pub(super) fn default_socket(interface: &str) -> PathBuf {
    Path::new(mpip_api::SOCKET_DIRECTORY).join(format!("{interface}.sock"))
}

fn control_socket(node: &raw::Node, interface: &str, problems: &mut Problems<'_>) -> PathBuf {
    let Some(text) = &node.control_socket else {
        return default_socket(interface);
    };
    let path = PathBuf::from(text.get_ref());
    if !path.is_absolute() || path.as_os_str().len() > SOCKET_PATH_MAX {
        let message = format!(
            "control_socket: expected an absolute path of at most {SOCKET_PATH_MAX} bytes, \
             found `{}`",
            path.display()
        );
        problems.add(&text.span(), message);
    }
    path
}

/// The number of the group with this name in /etc/group (group(5)).
fn group(name: &Spanned<String>, problems: &mut Problems<'_>) -> Option<u32> {
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let number = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name.get_ref())).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    number.or_else(|| {
        let message = format!(
            "control_group: expected the name of a group in /etc/group, found `{}`",
            name.get_ref()
        );
        problems.none(&name.span(), message)
    })
}

fn is_interface_name(name: &str) -> bool {
    (1..=INTERFACE_NAME_MAX).contains(&name.len())
        && !matches!(name, "." | "..")
        && name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'%'))
}

fn check_interface_name(name: &Spanned<String>, key: &str, problems: &mut Problems<'_>) {
    if !is_interface_name(name.get_ref()) {
        let message = format!(
            "{key}: expected 1 to {INTERFACE_NAME_MAX} visible ASCII characters without `/`, \
             `:` and `%`, found `{}`",
            name.get_ref()
        );
        problems.add(&name.span(), message);
    }
}

fn interface_name(interface: &raw::Interface, problems: &mut Problems<'_>) -> String {
    let Some(name) = &interface.name else {
        return DEFAULT_INTERFACE.to_owned();
    };
    check_interface_name(name, "name", problems);
    name.get_ref().clone()
}

fn interface_address(
    text: &Spanned<String>,
    problems: &mut Problems<'_>,
) -> Option<InterfaceAddress> {
    let parsed = text.get_ref().split_once('/').and_then(|(address, prefix_len)| {
        let address = address.parse().ok()?;
        let prefix_len = prefix_len.parse().ok()?;
        Prefix::new(address, prefix_len)?;
        Some(InterfaceAddress { address, prefix_len })
    });
    parsed.or_else(|| {
        let message = format!(
            "addresses: expected an address with its prefix length like 10.77.0.1/24, found `{}`",
            text.get_ref()
        );
        problems.none(&text.span(), message)
    })
}

fn path_interfaces(
    paths: &[raw::Path],
    tun: &str,
    problems: &mut Problems<'_>,
) -> Option<Vec<String>> {
    let mut interfaces = Vec::new();
    for raw::Path { interface, .. } in paths {
        check_interface_name(interface, "interface", problems);
        let name = interface.get_ref();
        if name == tun {
            let message =
                format!("interface: expected another one than mpip's own, found `{name}`");
            problems.add(&interface.span(), message);
        } else if interfaces.contains(name) {
            let message = format!("interface: expected each once, found `{name}` again");
            problems.add(&interface.span(), message);
        }
        interfaces.push(name.clone());
    }
    (!interfaces.is_empty()).then_some(interfaces)
}

/// What paths from an interface look like, where its section says so.
fn path_encapsulations(
    paths: &[raw::Path],
    problems: &mut Problems<'_>,
) -> BTreeMap<String, EncapsulationPolicy> {
    let mut found = BTreeMap::new();
    for raw::Path { interface, encapsulation } in paths {
        let policy =
            named(encapsulation.as_ref(), "encapsulation", EncapsulationPolicy::NAMES, problems);
        found.extend(policy.map(|policy| (interface.get_ref().clone(), policy)));
    }
    found
}

/// What peers have claimed already, with the line of the claim.
#[derive(Default)]
struct Seen {
    names: BTreeMap<String, usize>,
    keys: BTreeMap<PublicKey, usize>,
    prefixes: Vec<(Prefix, String, usize)>,
}

/// Resolves one peer after the other.
struct Peers<'a> {
    own_key: Option<PublicKey>,
    directory: &'a Path,
    addresses: &'a [InterfaceAddress],
    path_interfaces: Option<&'a [String]>,
    seen: Seen,
}

impl Peers<'_> {
    fn resolve(
        &mut self,
        peer: &Spanned<raw::Peer>,
        problems: &mut Problems<'_>,
    ) -> Option<PeerConfig> {
        let before = problems.count();
        let raw = peer.get_ref();
        self.name(&raw.name, problems);
        let public_key = self.public_key(&raw.public_key, problems);
        let preshared_key = match &raw.preshared_key_file {
            Some(file) => key_file(self.directory, file, problems),
            None => Some(PresharedKey::default()),
        };
        let (host_mode, policy) = host_mode(raw, problems);
        let endpoints = self.endpoints(&raw.endpoints, problems);
        let allowed_prefixes = self.allowed_prefixes(raw, problems);
        let exclusive = exclusive(raw, policy, &endpoints, problems);
        let reaches = prefixes(&raw.reaches, "reaches", problems);
        let scheduler = named(raw.scheduler.as_ref(), "scheduler", SchedulerKind::NAMES, problems)
            .unwrap_or_default();
        let fixed_weights = self.fixed_weights(raw, scheduler, problems);
        let congestion_control = named(
            raw.congestion_control.as_ref(),
            "congestion_control",
            CongestionControlKind::NAMES,
            problems,
        )
        .unwrap_or_default();
        let encapsulation = named(
            raw.encapsulation.as_ref(),
            "encapsulation",
            EncapsulationPolicy::NAMES,
            problems,
        )
        .unwrap_or_default();
        let tcp_port =
            raw.tcp_port.as_ref().and_then(|port| integer(port, "tcp_port", 1..=65_535, problems));
        let max_paths =
            raw.max_paths.as_ref().and_then(|paths| integer(paths, "max_paths", 1..=64, problems));
        if problems.count() > before {
            return None;
        }
        Some(PeerConfig {
            name: raw.name.get_ref().clone(),
            public_key: public_key?,
            preshared_key: preshared_key?,
            endpoints,
            allowed_prefixes,
            host_mode,
            exclusive,
            reaches,
            policy,
            scheduler,
            fixed_weights,
            congestion_control,
            max_paths,
            resequencing: raw.resequencing.unwrap_or(true),
            ack_thinning: raw.ack_thinning.unwrap_or(true),
            encapsulation,
            tcp_port,
        })
    }

    fn name(&mut self, name: &Spanned<String>, problems: &mut Problems<'_>) {
        let text = name.get_ref();
        if !(1..=64).contains(&text.chars().count()) || text.chars().any(char::is_control) {
            let message = format!("name: expected 1 to 64 visible characters, found {text:?}");
            problems.add(&name.span(), message);
        }
        let line = problems.line_of(&name.span());
        if let Some(other) = self.seen.names.insert(text.clone(), line) {
            let message = format!(
                "name: expected another one for each peer, `{text}` is used in line {other}"
            );
            problems.add(&name.span(), message);
        }
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
                "public_key: expected another one for each peer, this one is used in line {other}"
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
                Err(_) => refuse(
                    &"expected an address with a port like 198.51.100.2:6182 or \
                      [2001:db8::2]:6182",
                ),
                Ok(endpoint) if endpoint.port() == 0 => refuse(&"expected a port from 1 to 65535"),
                Ok(endpoint) if is_nobody(&endpoint) => {
                    refuse(&"expected the address of one other host");
                }
                Ok(endpoint) if !seen.insert(endpoint) => refuse(&"expected each once"),
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
            self.seen.prefixes.push((prefix, peer.name.get_ref().clone(), line));
            prefixes.push(prefix);
        }
        prefixes
    }

    fn fixed_weights(
        &self,
        peer: &raw::Peer,
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
            let unknown = self.path_interfaces.filter(|known| !known.contains(interface));
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
}

/// The addresses that a peer in host mode shares with nobody: where the configuration says that it is
/// reached, unless it says more.
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
            // Everything to these goes to the peer, from the start on.
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

/// The prefixes that `key` lists.
pub(super) fn prefixes(
    texts: &[Spanned<String>],
    key: &str,
    problems: &mut Problems<'_>,
) -> Vec<Prefix> {
    let mut prefixes = Vec::new();
    for text in texts {
        match text.get_ref().parse::<Prefix>() {
            Ok(prefix) => prefixes.push(prefix),
            Err(error) => problems.add(&text.span(), format!("{key}: {error}")),
        }
    }
    prefixes
}

/// Whether no single other host can have the address.
fn is_nobody(endpoint: &SocketAddr) -> bool {
    let ip = endpoint.ip();
    let broadcast = matches!(ip, std::net::IpAddr::V4(v4) if v4.is_broadcast());
    ip.is_unspecified() || ip.is_multicast() || broadcast
}

/// Addresses that a host has for itself alone.
const LOCAL: [&str; 4] = ["127.0.0.0/8", "::1/128", "0.0.0.0/32", "::/128"];
/// Addresses that mean another host on every link, or many. A tunnel may carry them.
const OF_A_LINK: [&str; 5] =
    ["169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32", "fe80::/10", "ff00::/8"];

/// Whether no address in `prefix` can be another host's ordinary one, or inner one without
/// `host_mode`.
fn is_no_other_host(prefix: Prefix, host_mode: bool) -> bool {
    let within = |text: &&str| {
        let outer: Prefix = text.parse().expect("a constant");
        outer.prefix_len() <= prefix.prefix_len() && outer.contains(prefix.address())
    };
    LOCAL.iter().any(within) || (host_mode && OF_A_LINK.iter().any(within))
}

/// Host mode's settings of a peer, and what follows from one for the other.
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

/// What host mode uses on the host.
fn host_mode_settings(raw: &raw::HostMode, problems: &mut Problems<'_>) -> HostMode {
    let mut settings = HostMode::default();
    if let Some(table) = &raw.table {
        // Two further tables follow it.
        let range = 1..=i64::from(u32::MAX) - 2;
        settings.table = integer(table, "table", range, problems).unwrap_or(settings.table);
        if RESERVED_TABLES.contains(&settings.table) {
            let message = format!(
                "table: expected none of 251 to 255, of which the kernel uses some and the two tables \
                 behind this one would be others, found {}",
                settings.table
            );
            problems.add(&table.span(), message);
        }
    }
    if let Some(priority) = &raw.priority {
        let range = 1..=32_765;
        settings.priority =
            integer(priority, "priority", range, problems).unwrap_or(settings.priority);
    }
    if let Some(mark) = &raw.mark {
        settings.mark =
            integer(mark, "mark", 1..=u32::MAX.into(), problems).unwrap_or(settings.mark);
        if !settings.mark.is_power_of_two() {
            let message = format!(
                "mark: expected a number with one bit like 0x10000000, found {:#x}",
                settings.mark
            );
            problems.add(&mark.span(), message);
        }
    }
    settings.loosen_rp_filter = raw.loosen_rp_filter.unwrap_or(settings.loosen_rp_filter);
    settings
}
