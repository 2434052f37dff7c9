//! The worlds of the matrix: two hosts with two to four links, each of which is a path.
//!
//! ```text
//!   client (opener)                                              server (the other)
//!   p0 198.18.0.1  ──────────── 20 Mbit/s, 5 ms ────────────  p0 198.18.0.2
//!   p1 198.18.1.1  ──────────── 20 Mbit/s, 5 ms ────────────  p1 198.18.1.2
//!
//!   p0 198.19.0.1  ── in0 198.19.0.254  middle  out0 198.18.0.1 ──  p0 198.18.0.2     (NAT)
//! ```
//!
//! Over IPv6 the addresses are `2001:db8:0:N::1` and `::2`. Only the client knows the other's
//! addresses, so it is always the opener.

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mpip_api::PathStatus;

use super::cell::{Cell, Kill, Via};
use super::transfer::Transfer;
use crate::links::Setup;
use crate::netns::Namespace;
use crate::scenario::Scenario;
use crate::scenarios;
use crate::subject::subjects;
use crate::systems::{self, Running};
use crate::testbed::Testbed;

const CLIENT: &str = "client";
const SERVER: &str = "server";
const FILE: &str = "kill-matrix";
/// Time within which all paths must work before the first kill.
const READY: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);
/// Time after which the daemons have noticed that an address is gone.
const NOTICED: Duration = Duration::from_millis(300);
/// Longest packet that passes an MTU hole, in bytes.
const HOLE: u16 = 1300;

/// The scenario of a world.
fn text(via: Via, paths: u8) -> String {
    let mut text = String::from(
        "title = \"A world of the kill matrix\"\nduration = \"1 h\"\nsystems = [\"mpip\"]\n\
         [[traffic]]\nkind = \"stream\"\nfrom = \"client\"\nto = \"server\"\n",
    );
    let mut interface = |host: &str, name: &str, address: String, more: &str| {
        let _ = write!(
            text,
            "[[interface]]\nhost = \"{host}\"\nname = \"{name}\"\naddress = \"{address}\"\n{more}"
        );
    };
    // Only the client is told the other's addresses.
    let private = "private = true\n";
    for path in 0..paths {
        let name = format!("p{path}");
        let (client, server) = match via {
            Via::V6 => (format!("2001:db8:0:{path}::1"), format!("2001:db8:0:{path}::2")),
            Via::V4 | Via::Tcp | Via::HostMode => {
                (format!("198.18.{path}.1"), format!("198.18.{path}.2"))
            }
            Via::Nat => (format!("198.19.{path}.1"), format!("198.18.{path}.2")),
        };
        interface(CLIENT, &name, client, private);
        interface(SERVER, &name, server, "");
        if via == Via::Nat {
            interface("middle", &format!("in{path}"), format!("198.19.{path}.254"), "");
            interface("middle", &format!("out{path}"), format!("198.18.{path}.1"), "");
        }
    }
    let mut link = |name: &str, near: String, far: String, delay: &str| {
        let _ = write!(
            text,
            "[[link]]\nname = \"{name}\"\nends = [\"{near}\", \"{far}\"]\n\
             rate = \"20 Mbit/s\"\nqueue = \"50 packets\"\ndelay = \"{delay}\"\n"
        );
    };
    for path in 0..paths {
        let (near, far) = (format!("{CLIENT}.p{path}"), format!("{SERVER}.p{path}"));
        if via == Via::Nat {
            link(&format!("access{path}"), near, format!("middle.in{path}"), "1 ms");
            link(&format!("core{path}"), format!("middle.out{path}"), far, "4 ms");
        } else {
            link(&format!("link{path}"), near, far, "5 ms");
        }
    }
    match via {
        Via::Nat => {
            text += "[[router]]\nhost = \"middle\"\nsetup = \"\"\"\nnft add table ip nat\n\
                     nft 'add chain ip nat post { type nat hook postrouting priority 100; }'\n\
                     nft 'add rule ip nat post oifname \"out*\" masquerade'\n\"\"\"\n";
        }
        Via::Tcp => text += "[system.mpip]\nkind = \"mpip\"\nencapsulation = \"tcp\"\n",
        Via::HostMode => {
            text += "[system.mpip]\nkind = \"mpip\"\nhost_mode = true\npolicy = \"prefer\"\n";
        }
        Via::V4 | Via::V6 => {}
    }
    text
}

/// A running world. Dropping it removes everything.
pub(super) struct World {
    // Declared first: the daemons have to end before their hosts are removed.
    _system: Box<dyn Running>,
    testbed: Testbed,
    sockets: [PathBuf; 2],
    target: IpAddr,
    paths: usize,
}

impl World {
    /// Builds a world whose daemons have all paths. `directory` is for their files.
    pub(super) fn build(via: Via, paths: u8, directory: &Path) -> io::Result<Self> {
        let text = text(via, paths);
        let scenario = scenarios::parse(FILE, &text)?;
        let setup = Setup { file: FILE.to_owned(), text, repetition: 0, pcap: None, netem: false };
        let mut testbed = Testbed::build(&scenario, &setup)?;
        let subjects = subjects(&scenario);
        let subject = subjects.first().ok_or_else(|| io::Error::other("no system"))?;
        let system = systems::start(subject, &testbed, directory)?;
        testbed.start()?;
        let target = system.endpoint(&testbed, &scenario.traffic[0])?.remote;
        let sockets = [CLIENT, SERVER].map(|host| directory.join(format!("{host}.sock")));
        let world = Self { _system: system, testbed, sockets, target, paths: usize::from(paths) };
        if world.recovery(READY).is_none() {
            let paths = world.describe();
            return Err(io::Error::other(format!("not all paths within {READY:?}: {paths}")));
        }
        Ok(world)
    }

    /// The paths of both daemons as text, for a cell that failed.
    pub(super) fn describe(&self) -> String {
        let paths = |path: &PathStatus| {
            format!(
                "{} {} {} {} {}",
                path.id, path.interface, path.remote, path.state, path.mtu_bytes
            )
        };
        let of = |socket: &PathBuf| match mpip_api::status(socket, false) {
            Ok(status) => status
                .peers
                .iter()
                .flat_map(|peer| peer.paths.iter().map(paths))
                .collect::<Vec<_>>()
                .join(", "),
            Err(error) => error.to_string(),
        };
        format!("{CLIENT}: {}; {SERVER}: {}", of(&self.sockets[0]), of(&self.sockets[1]))
    }

    /// A transfer between the hosts, over mpip.
    pub(super) fn transfer(&self) -> io::Result<Transfer> {
        Transfer::start(self.host(CLIENT)?, self.host(SERVER)?, self.target)
    }

    fn host(&self, name: &str) -> io::Result<&Namespace> {
        self.testbed.host(name)
    }

    fn port(&self, host: &str, path: usize) -> io::Result<usize> {
        let name = format!("p{path}");
        let scenario: &Scenario = self.testbed.scenario();
        scenario
            .interfaces_of(host)
            .find(|port| scenario.interfaces[*port].name == name)
            .ok_or_else(|| io::Error::other(format!("{host} has no interface {name}")))
    }

    /// Kills what the cell names.
    pub(super) fn kill(&self, cell: Cell) -> io::Result<()> {
        let Some(hosts) = filtering(cell.kill) else { return self.interfaces(cell, false) };
        let matching = match cell.kill {
            Kill::Loss => "numgen random mod 100 < 50".to_owned(),
            Kill::MtuHole => format!("meta length > {HOLE}"),
            _ => String::new(),
        };
        hosts.iter().try_for_each(|host| self.filter(host, cell, &matching))
    }

    /// Undoes [`kill`](Self::kill). Returns how many packets it dropped, if that is counted.
    pub(super) fn heal(&self, cell: Cell) -> io::Result<Option<u64>> {
        let Some(hosts) = filtering(cell.kill) else {
            self.interfaces(cell, true)?;
            return Ok(None);
        };
        let dropped = self.dropped(cell)?;
        for host in hosts {
            self.host(host)?.run(&["nft", "delete", "table", "inet", "kill"])?;
        }
        Ok(dropped)
    }

    /// Number of packets that a kill has dropped so far, if that is counted.
    pub(super) fn dropped(&self, cell: Cell) -> io::Result<Option<u64>> {
        let Some(hosts) = filtering(cell.kill) else { return Ok(None) };
        let mut dropped = 0;
        for host in hosts {
            let table = self.host(host)?.run(&["nft", "list", "table", "inet", "kill"])?;
            dropped += counted(&table);
        }
        Ok(Some(dropped))
    }

    /// Removes the interfaces or addresses of a cell, or restores them.
    fn interfaces(&self, cell: Cell, back: bool) -> io::Result<()> {
        let host = match cell.kill {
            Kill::LinkOther | Kill::AddressOther => SERVER,
            _ => CLIENT,
        };
        let address = matches!(cell.kill, Kill::AddressOpener | Kill::AddressOther);
        for path in cell.killed_paths() {
            let port = self.port(host, path)?;
            if address {
                self.testbed.set_address(port, back)?;
            } else {
                self.testbed.set_interface(port, back)?;
            }
        }
        Ok(())
    }

    /// Drops packets that arrive at a host by the cell's paths and match.
    fn filter(&self, host: &str, cell: Cell, matching: &str) -> io::Result<()> {
        let names: Vec<String> = cell.killed_paths().map(|path| format!("\"p{path}\"")).collect();
        let rules = format!(
            "table inet kill {{ chain in {{ type filter hook prerouting priority -400; \
             iifname {{ {} }} {matching} counter drop; }}; }}",
            names.join(", ")
        );
        self.host(host)?.run(&["nft", &rules]).map(drop)
    }

    /// Replaces the paths of a cell. Paths that found an MTU hole, or mistook heavy loss for one,
    /// would remember it for ten minutes.
    pub(super) fn renew(&self, cell: Cell) -> io::Result<()> {
        if !matches!(cell.kill, Kill::Loss | Kill::MtuHole) {
            return Ok(());
        }
        let renewed = Cell { kill: Kill::AddressOpener, ..cell };
        self.interfaces(renewed, false)?;
        std::thread::sleep(NOTICED);
        self.interfaces(renewed, true)
    }

    /// Waits until all paths work at both ends, with packets too long for an MTU hole. Returns the
    /// time that this took; `None` if it exceeds `limit`.
    pub(super) fn recovery(&self, limit: Duration) -> Option<Duration> {
        let start = Instant::now();
        while start.elapsed() < limit {
            if self.sockets.iter().all(|socket| self.is_whole(socket)) {
                return Some(start.elapsed());
            }
            std::thread::sleep(POLL);
        }
        None
    }

    fn is_whole(&self, socket: &Path) -> bool {
        let Ok(status) = mpip_api::status(socket, false) else { return false };
        // In host mode the connection would start as plain IP and move.
        if status.peers.iter().any(|peer| peer.traffic.as_deref() == Some("plain")) {
            return false;
        }
        let paths = status.peers.iter().flat_map(|peer| &peer.paths);
        let whole = |path: &&PathStatus| path.state == "active" && path.mtu_bytes > HOLE;
        paths.filter(whole).count() >= self.paths
    }
}

/// The hosts whose packet filters drop packets; `None` if interfaces or addresses are removed.
fn filtering(kill: Kill) -> Option<&'static [&'static str]> {
    match kill {
        Kill::LinkOpener | Kill::LinkOther | Kill::AddressOpener | Kill::AddressOther => None,
        Kill::OneWayToOther => Some(&[SERVER]),
        Kill::OneWayToOpener => Some(&[CLIENT]),
        Kill::Blackhole | Kill::Loss | Kill::MtuHole => Some(&[SERVER, CLIENT]),
    }
}

/// The packets that the rules of a table dropped, as `nft` lists it.
fn counted(table: &str) -> u64 {
    let counters = table.split("counter packets ").skip(1);
    counters.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_world_is_a_scenario_with_so_many_paths() {
        for via in Via::value_variants() {
            for paths in 2..=4 {
                let scenario = scenarios::parse(FILE, &text(*via, paths)).expect("valid");
                let found = scenario.paths(CLIENT, SERVER);
                let direct = found.iter().filter(|path| {
                    scenario.interfaces[path.from].name == scenario.interfaces[path.to].name
                });
                assert_eq!(direct.count(), usize::from(paths), "{via:?}");
                assert_eq!(subjects(&scenario).len(), 1);
            }
        }
    }

    #[test]
    fn dropped_packets_are_counted_over_all_rules() {
        let table = "table inet kill {\n chain in {\n iifname \"p0\" counter packets 12 bytes 900 \
                     drop\n iifname \"p1\" counter packets 30 bytes 1 drop\n }\n}";
        assert_eq!(counted(table), 42);
        assert_eq!(counted("table inet kill { }"), 0);
    }
}
