//! What a scenario consists of.

use core::time::Duration;
use std::collections::BTreeMap;

use mpip_link::{Change, LinkConfig};

/// A validated scenario.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scenario {
    /// Title, one line.
    pub(crate) title: String,
    /// What it shows and how it was set up; may be empty.
    pub(crate) description: String,
    /// The published experiment that it repeats; may be empty.
    pub(crate) source: String,
    /// The sets of `mpip-lab reproduce` it belongs to.
    pub(crate) sets: Vec<String>,
    /// Duration of the traffic.
    pub(crate) duration: Duration,
    /// Number of runs.
    pub(crate) repetitions: u32,
    /// Seed of all random choices.
    pub(crate) seed: u64,
    /// Congestion control of the hosts' TCP.
    pub(crate) congestion_control: String,
    /// The systems to compare.
    pub(crate) systems: Vec<System>,
    /// Every interface of every host.
    pub(crate) interfaces: Vec<Interface>,
    /// Every link, and the limits for pairs of interfaces.
    pub(crate) links: Vec<LinkSpec>,
    /// Hosts that forward packets.
    pub(crate) routers: Vec<Router>,
    /// Changes during the run, in order of time.
    pub(crate) events: Vec<Event>,
    /// Commands during the run, in order of time.
    pub(crate) commands: Vec<HostCommand>,
    /// What is sent.
    pub(crate) traffic: Vec<Traffic>,
}

/// A system under test.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct System {
    /// The name in tables.
    pub(crate) name: String,
    /// `tcp`, `mptcp`, `mpip`, `mpip+mptcp`, `floor`, or the name of an adapter file.
    pub(crate) kind: String,
    /// Further settings, as the system understands them.
    pub(crate) settings: BTreeMap<String, toml::Value>,
}

/// An interface of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    /// The host that has it.
    pub(crate) host: String,
    /// Its name in that host, at most 15 bytes.
    pub(crate) name: String,
    /// Its address.
    pub(crate) address: core::net::IpAddr,
    /// Its MTU in bytes.
    pub(crate) mtu: u32,
    /// Whether hosts beyond a router have no route to it, as to an address behind a NAT.
    pub(crate) private: bool,
    /// Its public address, where a NAT is in front of it.
    pub(crate) public: Option<core::net::IpAddr>,
}

impl Interface {
    /// The address at which other hosts reach it.
    pub(crate) fn reached_at(&self) -> core::net::IpAddr {
        self.public.unwrap_or(self.address)
    }

    /// `host.name`, as links refer to it.
    pub(crate) fn full_name(&self) -> String {
        format!("{}.{}", self.host, self.name)
    }
}

/// A link, or an additional link for one pair of interfaces.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LinkSpec {
    /// Its name.
    pub(crate) name: String,
    /// Its ends: `host.interface`, or the name of a switch.
    pub(crate) ends: [String; 2],
    /// Whether it is a `[[pair]]`: an additional link for traffic between these two interfaces.
    pub(crate) is_pair: bool,
    /// From the first end to the second.
    pub(crate) forward: LinkConfig,
    /// From the second end to the first.
    pub(crate) reverse: LinkConfig,
}

impl LinkSpec {
    /// The settings of one direction.
    pub(crate) fn direction(&self, forward: bool) -> &LinkConfig {
        if forward { &self.forward } else { &self.reverse }
    }
}

/// A host that forwards packets between its interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Router {
    /// Its name.
    pub(crate) host: String,
    /// A script of `sh` that sets it up, for instance its packet filter.
    pub(crate) setup: String,
}

/// A command that a host runs during the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostCommand {
    /// Time from the start of the traffic.
    pub(crate) at: Duration,
    /// The host.
    pub(crate) host: String,
    /// A script of `sh`.
    pub(crate) run: String,
}

/// A change during the run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    /// Time from the start of the traffic.
    pub(crate) at: Duration,
    /// Index of the link.
    pub(crate) link: usize,
    /// Changes the direction from the first end to the second.
    pub(crate) forward: bool,
    /// Changes the direction from the second end to the first.
    pub(crate) reverse: bool,
    /// What changes.
    pub(crate) change: Change,
    /// Whether the hosts notice: with `up`, the interfaces at the link's ends go up or down, too.
    pub(crate) announced: bool,
}

impl Event {
    /// Whether the interfaces at the ends go down first, and the link because of them.
    pub(crate) fn follows_interfaces(&self) -> bool {
        self.announced && self.change.up == Some(false)
    }
}

/// One flow, or a group of equal flows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Traffic {
    /// The name in tables.
    pub(crate) name: String,
    /// The sending host.
    pub(crate) from: String,
    /// The receiving host.
    pub(crate) to: String,
    /// Time from the start of the run.
    pub(crate) start: Duration,
    /// Duration; by default until the end of the scenario.
    pub(crate) duration: Duration,
    /// Interface of the sender over which it goes as plain IP, whatever the system under test.
    pub(crate) plain: Option<String>,
    /// What is sent.
    pub(crate) kind: TrafficKind,
}

/// Kinds of traffic.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TrafficKind {
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
pub(crate) enum QuicImplementation {
    /// quinn: cubic, NewReno, BBR.
    Quinn,
    /// quic-go: NewReno.
    QuicGo,
}

impl Scenario {
    /// The interfaces of `host`, as indices.
    pub(crate) fn interfaces_of<'a>(&'a self, host: &'a str) -> impl Iterator<Item = usize> + 'a {
        (0..self.interfaces.len()).filter(move |index| self.interfaces[*index].host == host)
    }

    /// Whether the system under test carries TCP.
    pub(crate) fn has_tcp(&self) -> bool {
        let over_udp = |kind: &TrafficKind| {
            matches!(
                kind,
                TrafficKind::Udp { .. } | TrafficKind::Voip { .. } | TrafficKind::Quic { .. }
            )
        };
        self.traffic.iter().any(|traffic| traffic.plain.is_none() && !over_udp(&traffic.kind))
    }

    /// The hosts, in the order of their first interface.
    pub(crate) fn hosts(&self) -> Vec<&str> {
        let mut hosts: Vec<&str> = Vec::new();
        for interface in &self.interfaces {
            if !hosts.contains(&interface.host.as_str()) {
                hosts.push(&interface.host);
            }
        }
        hosts
    }

    /// The seed of one direction of a link in one repetition.
    pub(crate) fn link_seed(&self, link: usize, forward: bool, repetition: u32) -> u64 {
        // SplitMix64's finaliser spreads neighbouring inputs.
        let mut z =
            self.seed ^ (u64::from(repetition) << 32) ^ ((link as u64) << 1) ^ u64::from(forward);
        z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The settings of every link at time `at` of the run: (forward, reverse).
    pub(crate) fn links_at(&self, at: Duration) -> Vec<(LinkConfig, LinkConfig)> {
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
