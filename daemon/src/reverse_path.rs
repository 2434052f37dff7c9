//! The reverse path filter of the interfaces that paths use.
//!
//! A strict filter (`rp_filter` 1) refuses a packet that arrives by another interface than the one
//! by which the host would answer it. For a peer in host mode that is the TUN device. So the filter
//! refuses plain packets of the peer while only one side has captured the traffic, and even its ARP
//! requests, which breaks the link. A default route through a tunnel does the same to the datagrams
//! of the tunnel itself. So strict filters are made loose (2) while either is there.
//! Their values are [recorded](crate::parameters).

use std::io;
use std::path::Path;

use mpip_net::netlink::Link;

use crate::config::Settings;
use crate::parameters::{Change, Changes, read};
use crate::record::Record;

const LOOSE: &str = "2";

/// Makes filters loose and puts them back.
#[derive(Debug)]
pub(crate) struct ReversePath {
    changes: Changes,
    enabled: bool,
    interfaces: Option<Vec<String>>,
    /// Interfaces whose filter cannot be changed, as was logged.
    refused: Vec<String>,
}

impl ReversePath {
    /// Nothing is changed yet.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            changes: Changes::new(record(&settings.control_socket)),
            enabled: settings.host_mode.loosen_rp_filter,
            interfaces: settings.path_interfaces.clone(),
            refused: Vec::new(),
        }
    }

    /// The interfaces that paths may use; `None` for all.
    pub(crate) fn set_interfaces(&mut self, interfaces: Option<Vec<String>>) {
        self.interfaces = interfaces;
    }

    /// Makes the strict filters of `links` loose, except that of our own device `tun`, which
    /// vanishes with the device.
    pub(crate) fn loosen(&mut self, links: &[Link], tun: u32) {
        for link in links.iter().filter(|link| !link.loopback) {
            let ours = link.index == tun;
            let wanted = self.interfaces.as_ref().is_none_or(|names| names.contains(&link.name));
            if !(ours || (wanted && self.enabled)) || effective(&link.name) != 1 {
                continue;
            }
            if let Err(error) = self.loosen_one(link, ours)
                && !self.refused.contains(&link.name)
            {
                log::warn!(
                    "the strict reverse path filter of {} refuses packets from peers in host \
                     mode, and it cannot be made loose: {error}",
                    link.name
                );
                self.refused.push(link.name.clone());
            }
        }
    }

    fn loosen_one(&mut self, link: &Link, ours: bool) -> io::Result<()> {
        let former = read(&parameter(&link.name))?;
        let change = Change::of_link(link, ("ipv4", "rp_filter"), &former, LOOSE);
        if !ours {
            // What it was at first is put back.
            if !self.changes.has_link(link.index) {
                self.changes.add([change.clone()])?;
            }
            log::info!("reverse path filter of {}: loose instead of strict", link.name);
        }
        change.make()
    }

    /// Restores the former values, also those recorded by a daemon that was killed. Returns whether
    /// there were any.
    pub(crate) fn restore(&mut self) -> bool {
        self.changes.put_back()
    }
}

impl Drop for ReversePath {
    fn drop(&mut self) {
        self.restore();
    }
}

/// The record of the daemon with this control socket.
pub(crate) fn record(control_socket: &Path) -> Record {
    Record::beside(control_socket, "rp_filter")
}

fn parameter(interface: &str) -> String {
    format!("ipv4/conf/{interface}/rp_filter")
}

/// The filter in effect: the larger value of the interface's and that of `all`.
pub(crate) fn effective(interface: &str) -> u8 {
    let value = |name: &str| read(&parameter(name)).unwrap_or_default().parse().unwrap_or(0);
    value("all").max(value(interface))
}
