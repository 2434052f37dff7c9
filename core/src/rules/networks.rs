//! Which networks are attached to this host, and through which interface each is reached.

use core::net::IpAddr;

use mpip_types::Prefix;

use crate::prefixes::PrefixTable;

/// A network that is attached to this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedNetwork {
    /// The interface.
    pub interface: String,
    /// The address that this host has there.
    pub address: IpAddr,
    /// The addresses that are reached there without a router.
    pub prefix: Prefix,
}

/// The attached networks, to be searched for addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct Networks {
    /// The place of each network's interface in `interfaces`; this host's own addresses have one
    /// behind them all.
    prefixes: PrefixTable,
    interfaces: Vec<String>,
}

impl Networks {
    /// Of several with the same prefix the first counts.
    pub(super) fn new(networks: &[AttachedNetwork]) -> Self {
        let mut prefixes = PrefixTable::default();
        for network in networks {
            prefixes.claim(Prefix::host(network.address), networks.len(), false);
        }
        for (network, place) in networks.iter().zip(0..) {
            prefixes.claim(network.prefix, place, false);
        }
        let interfaces = networks.iter().map(|network| network.interface.clone()).collect();
        Self { prefixes, interfaces }
    }

    /// The interface through which `address` is reached without a router; `None` for other
    /// addresses and those of this host.
    pub(super) fn interface_of(&self, address: IpAddr) -> Option<&str> {
        let place = self.prefixes.find(address)?;
        self.interfaces.get(place).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_behind_the_interface_with_the_longest_prefix_and_this_host_behind_none() {
        let network = |interface: &str, address: &str, len| {
            let address = address.parse().expect("an address");
            let prefix = Prefix::new(address, len).expect("a length");
            AttachedNetwork { interface: interface.to_owned(), address, prefix }
        };
        let networks = Networks::new(&[
            network("lan", "198.18.0.1", 16),
            network("iot", "198.18.5.1", 24),
            network("lan", "2001:db8::1", 64),
            network("again", "198.18.5.9", 24),
            network("dsl", "198.19.0.1", 32),
        ]);
        for (address, expected) in [
            ("198.18.0.2", Some("lan")),
            ("198.18.5.2", Some("iot")),
            ("2001:db8::2", Some("lan")),
            ("2001:db8:0:1::2", None),
            ("198.19.0.2", None),
            ("198.18.0.1", None),
            ("198.18.5.1", None),
            ("198.18.5.9", None),
            ("2001:db8::1", None),
            ("198.19.0.1", None),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(networks.interface_of(address), expected, "{address}");
        }
    }
}
