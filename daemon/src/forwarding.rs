//! Whether the host forwards packets: kernel parameters that are switched on while the daemon runs.
//!
//! Former values are [recorded](crate::parameters). A host that forwards IPv6 ignores router
//! advertisements unless `accept_ra` is 2, so interfaces that follow them (1) are set to that.
//!
//! When the switch goes back, the kernel sets anew what depends on it: interfaces that forwarded on
//! their own do not any more, and redirects of IPv4 are accepted. That is recorded too.

use std::io;
use std::path::Path;

use mpip_net::netlink::{Link, Netlink};

use crate::error::Error;
use crate::parameters::{Change, Changes, read};
use crate::record::Record;

/// By IPv4 and by IPv6.
const FORWARDING: [&str; 2] = ["ipv4/ip_forward", "ipv6/conf/all/forwarding"];

/// Switches forwarding on and back.
#[derive(Debug)]
pub(crate) struct Forwarding(Changes);

impl Forwarding {
    /// Nothing is changed yet by the daemon with this control socket.
    pub(crate) fn new(control_socket: &Path) -> Self {
        Self(Changes::new(record(control_socket)))
    }

    /// Whether the host forwards nothing, by IPv4 and by IPv6.
    pub(crate) fn off(&self) -> [bool; 2] {
        forwards().map(|forwards| forwards == Some(false))
    }

    /// Switches it on. The former values are written down first.
    pub(crate) fn switch_on(&mut self) -> Result<(), Error> {
        let failed = |name: &str, error: io::Error| {
            Error::Firewall(format!("cannot switch forwarding on: `{name}`: {error}"))
        };
        let links = Netlink::new()?.links()?;
        let changes = changes(&links);
        // What is put back last is first.
        self.0
            .add(lost_when_off(&links).into_iter().chain(changes.iter().cloned()))
            .map_err(|error| failed(&self.0.file().display().to_string(), error))?;
        for change in changes {
            let ipv6 = change.name.starts_with("ipv6");
            match change.make() {
                Ok(()) => {}
                // Without IPv6 there is nothing to forward by it.
                Err(error) if ipv6 => log::warn!("`{}` stays as it is: {error}", change.name),
                Err(error) => return Err(failed(&change.name, error)),
            }
        }
        log::info!("this host forwards packets while mpipd runs");
        Ok(())
    }

    /// Restores the former values, also those recorded by a daemon that was killed. Returns whether
    /// there were any.
    pub(crate) fn restore(&mut self) -> bool {
        self.0.put_back()
    }
}

/// What switches forwarding on.
fn changes(links: &[Link]) -> Vec<Change> {
    let off = read(FORWARDING[1]).is_ok_and(|value| value == "0");
    let follow = Change::of_host("ipv6/conf/all/accept_ra", "1", "2");
    let follow = of_links(links, ("ipv6", "accept_ra"), "1", "2").chain([follow]);
    let switches = FORWARDING.map(|name| Change::of_host(name, "0", "1"));
    follow.filter(|_| off).chain(switches).filter(Change::is_due).collect()
}

/// What the kernel sets anew when forwarding is switched off again, as changes that it makes then.
fn lost_when_off(links: &[Link]) -> Vec<Change> {
    let mut lost = Vec::new();
    for (family, switch) in ["ipv4", "ipv6"].into_iter().zip(FORWARDING) {
        if read(switch).is_ok_and(|value| value != "0") {
            continue;
        }
        lost.extend(of_links(links, (family, "forwarding"), "1", "0"));
        if family == "ipv4" {
            lost.push(Change::of_host("ipv4/conf/all/accept_redirects", "0", "1"));
        }
    }
    lost.retain(Change::is_due);
    lost
}

/// Changes of a parameter for every interface, and for those that will come.
fn of_links<'a>(
    links: &'a [Link],
    (family, parameter): (&'a str, &'a str),
    from: &'a str,
    to: &'a str,
) -> impl Iterator<Item = Change> + 'a {
    let coming = format!("{family}/conf/default/{parameter}");
    let links = links.iter().map(move |link| Change::of_link(link, (family, parameter), from, to));
    std::iter::once(Change::of_host(&coming, from, to)).chain(links)
}

/// The record of the daemon with this control socket.
pub(crate) fn record(control_socket: &Path) -> Record {
    Record::beside(control_socket, "forwarding")
}

/// Whether the host forwards, by IPv4 and by IPv6; `None` where it cannot.
pub(crate) fn forwards() -> [Option<bool>; 2] {
    FORWARDING.map(|name| read(name).ok().map(|value| value != "0"))
}
