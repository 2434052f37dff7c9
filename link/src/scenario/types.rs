//! What a scenario consists of.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::config::{Change, LinkConfig};

/// A validated scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Title, one line.
    pub title: String,
    /// What it shows and how it was set up; may be empty.
    pub description: String,
    /// The published experiment that it repeats; may be empty.
    pub source: String,
    /// The sets of `mpip-lab reproduce` it belongs to.
    pub sets: Vec<String>,
    /// Duration of the traffic.
    pub duration: Duration,
    /// Number of runs.
    pub repetitions: u32,
    /// Seed of all random choices.
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
    /// `tcp`, `mptcp`, `mpip`, `mpip+mptcp`, `floor`, or the name of an adapter file.
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
    /// Whether hosts beyond a router have no route to it, as to an address behind a NAT.
    pub private: bool,
    /// Its public address, where a NAT is in front of it.
    pub public: Option<core::net::IpAddr>,
}

impl Interface {
    /// The address at which other hosts reach it.
    pub fn reached_at(&self) -> core::net::IpAddr {
        self.public.unwrap_or(self.address)
    }

    /// `host.name`, as links refer to it.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.host, self.name)
    }
}

/// A link, or an additional link for one pair of interfaces.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkSpec {
    /// Its name.
    pub name: String,
    /// Its ends: `host.interface`, or the name of a switch.
    pub ends: [String; 2],
    /// Whether it is a `[[pair]]`: an additional link for traffic between these two interfaces.
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
    /// Whether the hosts notice: with `up`, the interfaces at the link's ends go up or down, too.
    pub announced: bool,
}

impl Event {
    /// Whether the interfaces at the ends go down first, and the link because of them.
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
    /// Duration; by default until the end of the scenario.
    pub duration: Duration,
    /// Interface of the sender over which it goes as plain IP, whatever the system under test.
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
        /// Whether `to` sends and `from` receives.
        download: bool,
    },
    /// UDP at a constant rate.
    Udp {
        /// Payload bits per second.
        rate: u64,
        /// Payload bytes of each datagram.
        length: u32,
    },
    /// Small UDP datagrams that the receiver echoes; each round-trip time is measured.
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
    /// Bulk TCP by the lab's own programs, which measure pauses at the receiver to the millisecond.
    Stream,
    /// Bulk QUIC for the whole duration.
    Quic {
        /// The program that sends and receives.
        implementation: QuicImplementation,
        /// Its congestion control (`cubic`, `reno`, `bbr`); by default that of the scenario.
        congestion_control: Option<String>,
        /// Whether `to` sends and `from` receives.
        download: bool,
    },
    /// A file over TCP whose checksum is verified.
    File {
        /// Bytes.
        size: u64,
    },
    /// TCP transfers one after the other, each on a new connection; the time of each from the
    /// beginning of the handshake to the last byte is measured.
    Short {
        /// Bytes of a transfer.
        size: u64,
        /// Time between the starts of two transfers. Transfers that last longer delay the next.
        interval: Duration,
        /// Whether `to` sends and `from` receives.
        download: bool,
    },
    /// Small answers of a web server at `to` to many clients at `from` (nginx, wrk); the time of
    /// each is measured.
    Web {
        /// Connections at the same time, each with one request at a time.
        connections: u32,
        /// Bytes of an answer.
        size: u64,
        /// Whether a connection is used for more than one request.
        keep: bool,
    },
    /// A download from `to` by `curl` over HTTP.
    Http {
        /// Bytes.
        size: u64,
    },
}

/// Implementations of QUIC, which differ in loss detection, pacing and congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuicImplementation {
    /// quinn: cubic, NewReno, BBR.
    Quinn,
    /// quic-go: NewReno.
    QuicGo,
}

impl Scenario {
    /// The interfaces of `host`, as indices.
    pub fn interfaces_of<'a>(&'a self, host: &'a str) -> impl Iterator<Item = usize> + 'a {
        (0..self.interfaces.len()).filter(move |index| self.interfaces[*index].host == host)
    }

    /// Whether the system under test carries TCP.
    pub fn has_tcp(&self) -> bool {
        let over_udp = |kind: &TrafficKind| {
            matches!(
                kind,
                TrafficKind::Udp { .. } | TrafficKind::Voip { .. } | TrafficKind::Quic { .. }
            )
        };
        self.traffic.iter().any(|traffic| traffic.plain.is_none() && !over_udp(&traffic.kind))
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

    /// The settings of every link at time `at` of the run: (forward, reverse).
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
