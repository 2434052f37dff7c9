//! Two hosts and two links between them, a daemon on each.

use std::net::IpAddr;

use super::host_mode::HostConfiguration;
use super::{Configuration, Daemon, Directory, Family, Host, Transfer, two_hosts};

/// Both hosts with their daemons. Host a calls host b.
pub(crate) struct World {
    pub(crate) a: Host,
    pub(crate) b: Host,
    pub(crate) daemon_a: Daemon,
    pub(crate) daemon_b: Daemon,
    _directory: Directory,
}

impl World {
    /// With inner addresses. `endpoints` are host b's, `peer` are lines for both sides'
    /// configurations.
    pub(crate) fn new(test: &str, families: &[Family], endpoints: &[&str], peer: &str) -> Self {
        let (a, b) = two_hosts(test, 2, families);
        let directory = Directory::new();
        let one = Configuration { number: 1, keys: (1, 2), endpoints, peer };
        let two = Configuration { number: 2, keys: (2, 1), endpoints: &[], peer };
        let daemon_b = Daemon::start(&b, &directory, &two);
        let daemon_a = Daemon::start(&a, &directory, &one);
        Self { a, b, daemon_a, daemon_b, _directory: directory }
    }

    /// As [`new`](Self::new), in host mode.
    pub(crate) fn in_host_mode(
        test: &str,
        families: &[Family],
        endpoints: &[&str],
        peer: &str,
    ) -> Self {
        let (a, b) = two_hosts(test, 2, families);
        let directory = Directory::new();
        let one = HostConfiguration { number: 1, endpoints, peer, more: "" };
        let two = HostConfiguration { number: 2, endpoints: &[], peer, more: "" };
        let daemon_b = two.start(&b, &directory);
        let daemon_a = one.start(&a, &directory);
        Self { a, b, daemon_a, daemon_b, _directory: directory }
    }

    /// Sends `bytes` from a to `address` on b, as fast as they go.
    pub(crate) fn transfer(&self, address: &str, bytes: u64) {
        let address: IpAddr = address.parse().expect("valid");
        Transfer::whole(&self.a, &self.b, address, bytes).finish();
    }
}
