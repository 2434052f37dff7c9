//! The reverse path filter of the interfaces that paths use.
//!
//! A strict filter (`rp_filter` 1) refuses a packet that arrives by another interface than the one
//! by which the host would answer it. For a peer in host mode that is the TUN device. So the filter
//! refuses plain packets of the peer while only one side has captured the traffic, and even its ARP
//! requests, which breaks the link. A default route through a tunnel does the same to the datagrams
//! of the tunnel itself. So strict filters are made loose (2) while either is there.
//! Their values are recorded in a file, to restore them even after the daemon was killed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mpip_net::netlink::Link;

use crate::config::Settings;

const SETTINGS: &str = "/proc/sys/net/ipv4/conf";
const LOOSE: &str = "2";

/// Makes filters loose and puts them back.
#[derive(Debug)]
pub(crate) struct ReversePath {
    /// The file with the former values.
    record: PathBuf,
    enabled: bool,
    interfaces: Option<Vec<String>>,
    /// The former values, by interface.
    former: BTreeMap<String, String>,
    /// Interfaces whose filter cannot be changed, as was logged.
    refused: Vec<String>,
}

impl ReversePath {
    /// Nothing is changed yet.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            record: record_beside(&settings.control_socket),
            enabled: settings.host_mode.loosen_rp_filter,
            interfaces: settings.path_interfaces.clone(),
            former: BTreeMap::new(),
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
            if let Err(error) = self.loosen_one(&link.name, ours)
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

    fn loosen_one(&mut self, name: &str, ours: bool) -> io::Result<()> {
        let file = file(name);
        let former = fs::read_to_string(&file)?.trim().to_owned();
        if !ours {
            self.former.entry(name.to_owned()).or_insert(former);
            let lines = self.former.iter().map(|(name, value)| format!("{name} {value}\n"));
            fs::write(&self.record, lines.collect::<String>())?;
            log::info!("reverse path filter of {name}: loose instead of strict");
        }
        fs::write(&file, LOOSE)
    }

    /// Restores the former values, also those recorded by a daemon that was killed. Returns whether
    /// there were any.
    pub(crate) fn restore(&mut self) -> bool {
        let Ok(recorded) = fs::read_to_string(&self.record) else { return false };
        for (name, value) in recorded.lines().filter_map(|line| line.split_once(' ')) {
            let file = file(name);
            // Another program may have changed it since.
            if fs::read_to_string(&file).is_ok_and(|present| present.trim() == LOOSE)
                && let Err(error) = fs::write(&file, value)
            {
                log::warn!("cannot put back {} to {value}: {error}", file.display());
            }
        }
        self.former.clear();
        if let Err(error) = fs::remove_file(&self.record) {
            log::warn!("cannot remove {}: {error}", self.record.display());
        }
        true
    }
}

impl Drop for ReversePath {
    fn drop(&mut self) {
        self.restore();
    }
}

/// The file in which the daemon with this control socket records the former values.
pub(crate) fn record_beside(control_socket: &Path) -> PathBuf {
    let mut record = control_socket.to_owned().into_os_string();
    record.push(".rp_filter");
    record.into()
}

fn file(interface: &str) -> PathBuf {
    PathBuf::from(SETTINGS).join(interface).join("rp_filter")
}

/// The filter in effect: the larger value of the interface's and that of `all`.
pub(crate) fn effective(interface: &str) -> u8 {
    let value = |name: &str| {
        let text = fs::read_to_string(file(name)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    value("all").max(value(interface))
}
