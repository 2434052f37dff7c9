//! Scenario files: which hosts, links, traffic and systems an experiment has.
//!
//! A scenario is one TOML file. Quantities are written with units, see [`crate::units`]. Hosts
//! are those that `[[interface]]` entries name; every end of a link that is no interface
//! (`host.interface`) is a switch. Traffic goes from host to host over the *paths* of the
//! topology: for each pair of interfaces that links connect, the links on the shortest way. Hosts
//! that `[[router]]` entries name forward packets between their interfaces.
//!
//! ```toml
//! title = "Two equal links"
//! source = "seed 004, setup 2"        # where the experiment comes from
//! sets = ["quick"]                     # sets of `mpip-lab reproduce` it belongs to
//! duration = "20 s"
//! repetitions = 3
//! seed = 1
//! systems = ["tcp", "mptcp", "mpip"]   # or names of [system.NAME] tables
//!
//! [[interface]]
//! host = "client"
//! name = "a"
//! address = "198.18.1.1"
//!
//! [[interface]]
//! host = "server"
//! name = "a"
//! address = "198.18.1.2"
//!
//! [[link]]                             # both directions …
//! name = "a"
//! ends = ["client.a", "server.a"]
//! rate = "9.3 Mbit/s"
//! queue = "100 packets"
//! delay = "5 ms"
//! jitter = "3 ms"
//! [link.reverse]                       # … and what differs from the second end to the first
//! loss = "0.1 %"
//!
//! [[event]]
//! at = "10 s"
//! link = "a"
//! up = false
//!
//! [[traffic]]
//! kind = "tcp"
//! from = "client"
//! to = "server"
//! ```
//!
//! `docs/experiments.md` documents every key.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

use serde::Deserialize;

use crate::config::{Change, LinkConfig};

mod file;
mod topology;

pub use topology::{Hop, Path};

/// A validated scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// One line.
    pub title: String,
    /// What it shows and how it was set up; may be empty.
    pub description: String,
    /// The published experiment that it repeats; may be empty.
    pub source: String,
    /// The sets of `mpip-lab reproduce` it belongs to.
    pub sets: Vec<String>,
    /// How long the traffic lasts.
    pub duration: Duration,
    /// How often it is run.
    pub repetitions: u32,
    /// All random choices follow from it.
    pub seed: u64,
    /// Congestion control of the hosts' TCP.
    pub congestion_control: String,
    /// The systems to compare.
    pub systems: Vec<System>,
    /// Every interface of every host.
    pub interfaces: Vec<Interface>,
    /// Every link, and the limits for pairs of interfaces.
    pub links: Vec<LinkSpec>,
    /// Hosts that forward packets.
    pub routers: Vec<Router>,
    /// Changes during the run, in order of time.
    pub events: Vec<Event>,
    /// Commands during the run, in order of time.
    pub commands: Vec<HostCommand>,
    /// What is sent.
    pub traffic: Vec<Traffic>,
}

/// A system under test.
#[derive(Debug, Clone, PartialEq)]
pub struct System {
    /// The name in tables.
    pub name: String,
    /// `tcp`, `mptcp`, `mpip`, `mpip+mptcp`, or the name of an adapter file.
    pub kind: String,
    /// Further settings, as the system understands them.
    pub settings: BTreeMap<String, toml::Value>,
}

/// An interface of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The host that has it.
    pub host: String,
    /// Its name in that host, at most 15 bytes.
    pub name: String,
    /// Its address.
    pub address: core::net::IpAddr,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// No host beyond a router has a route to it, as to an address behind a NAT.
    pub private: bool,
    /// The address, of a router that translates, at which others reach it.
    pub public: Option<core::net::IpAddr>,
}

impl Interface {
    /// The address that others are given.
    pub fn reached_at(&self) -> core::net::IpAddr {
        self.public.unwrap_or(self.address)
    }

    /// `host.name`, as links refer to it.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.host, self.name)
    }
}

/// A link, or a limit that holds for the traffic of one pair of interfaces.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkSpec {
    /// Its name.
    pub name: String,
    /// Its ends: `host.interface`, or the name of a switch.
    pub ends: [String; 2],
    /// Whether it is a `[[pair]]`: passed by what goes from one end to the other, in addition to
    /// the links between them.
    pub is_pair: bool,
    /// From the first end to the second.
    pub forward: LinkConfig,
    /// From the second end to the first.
    pub reverse: LinkConfig,
}

impl LinkSpec {
    /// The settings of one direction.
    pub fn direction(&self, forward: bool) -> &LinkConfig {
        if forward { &self.forward } else { &self.reverse }
    }
}

/// A host that forwards packets between its interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Router {
    /// Its name.
    pub host: String,
    /// A script of `sh` that sets it up, for instance its packet filter.
    pub setup: String,
}

/// A command that a host runs during the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCommand {
    /// Time from the start of the traffic.
    pub at: Duration,
    /// The host.
    pub host: String,
    /// A script of `sh`.
    pub run: String,
}

/// A change during the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Time from the start of the traffic.
    pub at: Duration,
    /// Index of the link.
    pub link: usize,
    /// Changes the direction from the first end to the second.
    pub forward: bool,
    /// Changes the direction from the second end to the first.
    pub reverse: bool,
    /// What changes.
    pub change: Change,
    /// The hosts see it: with `up`, the interfaces at the link's ends go up or down as well.
    pub announced: bool,
}

impl Event {
    /// The link goes down because its interfaces do, and not before them.
    pub fn follows_interfaces(&self) -> bool {
        self.announced && self.change.up == Some(false)
    }
}

/// One flow, or a group of equal flows.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// The name in tables.
    pub name: String,
    /// The sending host.
    pub from: String,
    /// The receiving host.
    pub to: String,
    /// Time from the start of the run.
    pub start: Duration,
    /// How long it lasts; until the end of the scenario where the file does not say.
    pub duration: Duration,
    /// Goes by plain IP over this interface of the sender, whatever system is tested.
    pub plain: Option<String>,
    /// What is sent.
    pub kind: TrafficKind,
}

/// Kinds of traffic.
#[derive(Debug, Clone, PartialEq)]
pub enum TrafficKind {
    /// Bulk TCP.
    Tcp {
        /// Parallel connections.
        streams: u32,
        /// From `to` to `from` instead.
        download: bool,
    },
    /// UDP at a constant rate.
    Udp {
        /// Payload bits per second.
        rate: u64,
        /// Payload bytes of each datagram.
        length: u32,
    },
    /// Small UDP datagrams that the far end sends back; each round trip is measured.
    Voip {
        /// Time between two datagrams.
        interval: Duration,
        /// Payload bytes.
        length: u32,
    },
    /// TCP requests one after the other on one connection.
    RequestResponse {
        /// Bytes of a request.
        request: u32,
        /// Bytes of a response.
        response: u32,
    },
    /// Bulk TCP by the lab's own programs: pauses at the receiver to the millisecond.
    Stream,
    /// A file over TCP, its checksum verified.
    File {
        /// Bytes.
        size: u64,
    },
    /// A download from `to` by `curl` over HTTP.
    Http {
        /// Bytes.
        size: u64,
    },
}

/// Why a text is not a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError {
    /// The file, as the caller named it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// What was expected and what came.
    pub message: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

impl core::error::Error for ScenarioError {}

impl Scenario {
    /// Parses and validates the text of a scenario file. `file` is its name for errors; `load`
    /// gives the text of another file (a trace) that it names.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(
        file: &str,
        text: &str,
        load: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<Self, ScenarioError> {
        file::parse(file, text, load)
    }

    /// The interfaces of `host`, as indices.
    pub fn interfaces_of<'a>(&'a self, host: &'a str) -> impl Iterator<Item = usize> + 'a {
        (0..self.interfaces.len()).filter(move |index| self.interfaces[*index].host == host)
    }

    /// The hosts, in the order of their first interface.
    pub fn hosts(&self) -> Vec<&str> {
        let mut hosts: Vec<&str> = Vec::new();
        for interface in &self.interfaces {
            if !hosts.contains(&interface.host.as_str()) {
                hosts.push(&interface.host);
            }
        }
        hosts
    }

    /// The paths from `from` to `to`, in the order of their interfaces.
    pub fn paths(&self, from: &str, to: &str) -> Vec<Path> {
        topology::paths(self, from, to)
    }

    /// The way from one interface to another, both as indices; `None` where no links join them.
    pub fn path(&self, from: usize, to: usize) -> Option<Path> {
        topology::path(self, from, to)
    }

    /// The seed of one direction of a link in one repetition.
    pub fn link_seed(&self, link: usize, forward: bool, repetition: u32) -> u64 {
        // SplitMix64's finaliser spreads neighbouring inputs.
        let mut z =
            self.seed ^ (u64::from(repetition) << 32) ^ ((link as u64) << 1) ^ u64::from(forward);
        z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The settings of every link at time `at` of the run: forward, reverse.
    pub fn links_at(&self, at: Duration) -> Vec<(LinkConfig, LinkConfig)> {
        let mut links: Vec<_> =
            self.links.iter().map(|link| (link.forward.clone(), link.reverse.clone())).collect();
        for event in self.events.iter().take_while(|event| event.at <= at) {
            let (forward, reverse) = &mut links[event.link];
            if event.forward {
                event.change.apply(forward);
            }
            if event.reverse {
                event.change.apply(reverse);
            }
        }
        links
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    #[default]
    Both,
    Forward,
    Reverse,
}

#[cfg(test)]
mod tests;
