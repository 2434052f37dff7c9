//! `[interface]` and `[[path]]`: the TUN device, and the interfaces that paths use.

use std::collections::BTreeMap;

use mpip_core::{EncapsulationPolicy, Prefix};
use toml::Spanned;

use super::problems::Problems;
use super::raw;
use super::settings::{InterfaceAddress, InterfaceState};
use super::values::named;

/// Name of the TUN device unless the configuration sets one.
pub(super) const DEFAULT_NAME: &str = "mpip0";

/// Longest name of a Linux interface, in bytes: `IFNAMSIZ` less the terminating zero.
pub(super) const NAME_MAX: usize = 15;

pub(super) fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && !matches!(name, "." | "..")
        && name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'%'))
}

/// Adds a problem if the value of `key` cannot be the name of an interface.
pub(super) fn check_name(name: &Spanned<String>, key: &str, problems: &mut Problems<'_>) {
    if !is_name(name.get_ref()) {
        let message = format!(
            "{key}: expected 1 to {NAME_MAX} visible ASCII characters without `/`, \
             `:` and `%`, found `{}`",
            name.get_ref()
        );
        problems.add(&name.span(), message);
    }
}

/// The name of the TUN device.
pub(super) fn name(interface: &raw::Interface, problems: &mut Problems<'_>) -> String {
    let Some(name) = &interface.name else {
        return DEFAULT_NAME.to_owned();
    };
    check_name(name, "name", problems);
    name.get_ref().clone()
}

/// The addresses of the TUN device, without those that are none.
pub(super) fn addresses(
    interface: &raw::Interface,
    problems: &mut Problems<'_>,
) -> Vec<InterfaceAddress> {
    interface.addresses.iter().filter_map(|text| address(text, problems)).collect()
}

fn address(text: &Spanned<String>, problems: &mut Problems<'_>) -> Option<InterfaceAddress> {
    let parsed = text.get_ref().split_once('/').and_then(|(address, prefix_len)| {
        let address = address.parse().ok()?;
        let prefix_len = prefix_len.parse().ok()?;
        Prefix::new(address, prefix_len)?;
        Some(InterfaceAddress { address, prefix_len })
    });
    let Some(parsed) = parsed else {
        let message = format!(
            "addresses: expected an address with its prefix length like 10.77.0.1/24, found `{}`",
            text.get_ref()
        );
        return problems.none(&text.span(), message);
    };
    let address = parsed.address;
    if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
        let message =
            format!("addresses: expected a unicast address of this node, found {address}");
        return problems.none(&text.span(), message);
    }
    Some(parsed)
}

/// The interfaces that the `[[path]]` sections name, unless they are off; `None` if no section is
/// active, because then all others are used, too.
pub(super) fn path_interfaces(
    paths: &[Spanned<raw::Path>],
    tun: &str,
    problems: &mut Problems<'_>,
) -> Option<Vec<String>> {
    let mut interfaces = Vec::new();
    let mut used = Vec::new();
    let mut limits = false;
    for path in paths {
        let Some(interface) = &path.get_ref().interface else {
            problems.missing::<()>(&path.span(), "interface");
            continue;
        };
        check_name(interface, "interface", problems);
        let name = interface.get_ref();
        if name == tun {
            let message =
                format!("interface: expected an interface other than mpip's own, found `{name}`");
            problems.add(&interface.span(), message);
        } else if interfaces.contains(name) {
            let message = format!("interface: expected each interface once, found `{name}` again");
            problems.add(&interface.span(), message);
        }
        interfaces.push(name.clone());
        let state = path.get_ref().state.as_ref();
        limits |= state.is_none_or(|state| state.get_ref() == InterfaceState::Active.name());
        let state = state.and_then(|state| InterfaceState::from_name(state.get_ref()));
        if state != Some(InterfaceState::Off) {
            used.push(name.clone());
        }
    }
    limits.then_some(used)
}

/// States as sections name them. `auto`: as without the section, which does not keep other
/// interfaces from being used.
const STATES: [(&str, InterfaceState); 4] = [
    ("active", InterfaceState::Active),
    ("auto", InterfaceState::Active),
    ("standby", InterfaceState::Standby),
    ("off", InterfaceState::Off),
];

/// The states of interfaces that are not active.
pub(super) fn path_states(
    paths: &[Spanned<raw::Path>],
    problems: &mut Problems<'_>,
) -> BTreeMap<String, InterfaceState> {
    let mut found = BTreeMap::new();
    for path in paths {
        let raw::Path { interface, state, .. } = path.get_ref();
        let state = named(state.as_ref(), "state", &STATES, problems);
        let state = state.filter(|state| *state != InterfaceState::Active);
        let name = interface.as_ref().map(|name| name.get_ref().clone());
        found.extend(name.zip(state));
    }
    found
}

/// The encapsulation of paths from each interface whose `[[path]]` section sets one.
pub(super) fn path_encapsulations(
    paths: &[Spanned<raw::Path>],
    problems: &mut Problems<'_>,
) -> BTreeMap<String, EncapsulationPolicy> {
    let mut found = BTreeMap::new();
    for path in paths {
        let raw::Path { interface, encapsulation, .. } = path.get_ref();
        let policy =
            named(encapsulation.as_ref(), "encapsulation", EncapsulationPolicy::NAMES, problems);
        let name = interface.as_ref().map(|name| name.get_ref().clone());
        found.extend(name.zip(policy));
    }
    found
}
