//! Why an interface has no path.

use std::collections::BTreeSet;

use mpip_api::{Event, EventKind, PeerStatus, Status};
use serde::Serialize;

use crate::units::duration;

/// Why an interface has no path.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
pub(crate) enum Cause {
    /// Its state is `off`.
    Off,
    /// It had an address, which is gone.
    AddressGone { address: String, for_ms: f64 },
    /// It has addresses, and no peer has one that they can reach.
    NoPair { addresses: Vec<String> },
}

impl Cause {
    /// What follows the interface's name in the sentence.
    pub(crate) fn why(&self) -> String {
        match self {
            Self::Off => "has no paths: its state is off".to_owned(),
            Self::AddressGone { address, for_ms } => format!(
                "has no paths: its address {address} has been gone for {}, because it is down or lost it",
                duration(Some(*for_ms))
            ),
            Self::NoPair { addresses } => format!(
                "has no paths: no address of a peer goes with its own ({})",
                addresses.join(", ")
            ),
        }
    }

    /// What would change it for `interface`.
    pub(crate) fn change(&self, interface: &str) -> String {
        match self {
            Self::Off => format!("`mpip path set {interface} active` permits them"),
            Self::AddressGone { .. } => {
                format!("paths begin when it is up and has one (`ip address show dev {interface}`)")
            }
            Self::NoPair { .. } => {
                "an address of the same kind (IPv4, IPv6) in `endpoints` would give one".to_owned()
            }
        }
    }
}

/// The interfaces from which no path of `peers` starts, and why. `events` are the latest, the
/// newest first; `unix_ms` is the time.
pub(crate) fn without_paths(
    status: &Status,
    peers: &[&PeerStatus],
    events: &[Event],
    unix_ms: f64,
) -> Vec<(String, Cause)> {
    let paths = peers.iter().flat_map(|peer| &peer.paths);
    let mut done: BTreeSet<&str> = paths.map(|path| path.interface.as_str()).collect();
    let mut found = Vec::new();
    for interface in &status.interfaces_off {
        if done.insert(interface) {
            found.push((interface.clone(), Cause::Off));
        }
    }
    let of = |interface: &str| -> Vec<String> {
        let local = status.local_addresses.iter().filter(|local| local.interface == interface);
        let mut addresses: Vec<String> = local.map(|local| local.address.to_string()).collect();
        addresses.dedup();
        addresses
    };
    if peers.iter().any(|peer| peer.established) {
        for local in &status.local_addresses {
            if done.insert(&local.interface) {
                let addresses = of(&local.interface);
                found.push((local.interface.clone(), Cause::NoPair { addresses }));
            }
        }
    }
    for event in events {
        if let EventKind::AddressRemoved { interface, address } = &event.kind
            && of(interface).is_empty()
            && done.insert(interface)
        {
            let (address, for_ms) =
                (address.ip().to_string(), (unix_ms - event.unix_time_ms).max(0.0));
            found.push((interface.clone(), Cause::AddressGone { address, for_ms }));
        }
    }
    found
}
