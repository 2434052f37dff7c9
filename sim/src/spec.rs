//! A world as data: hosts, network, traffic and events.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;

use mpip_core::{
    CongestionControlKind, DEFAULT_PORT, EncapsulationPolicy, InterfaceProperties, Limits,
    LossPolicy, Parameters, Policy, Rule, SchedulerKind,
};
use mpip_link::{Change, LinkConfig};

use crate::clock::{HostClock, Nanos, SECOND};
use crate::hostile::spec::HostileSpec;
use crate::network::InterfaceSpec;
use crate::packet::protocol;

mod tcp;

pub use crate::quic::QuicControl;
pub use tcp::{AckCounting, TcpAlgorithm, TcpControl};

/// The port of the flow numbered 0; the others follow.
pub const FIRST_PORT: u16 = 10_000;

/// A host.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// Its name in traces.
    pub name: String,
    /// Its clock.
    pub clock: HostClock,
    /// How it transports packets.
    pub system: System,
}

/// How a host transports packets.
#[derive(Clone, Debug)]
pub enum System {
    /// mpip with these settings.
    Mpip(Box<EngineSpec>),
    /// Plain IP from the host's interface with this index to the peer's.
    Plain {
        /// Index of the own interface in the world.
        local: usize,
        /// Index of the other host's interface.
        remote: usize,
    },
    /// A hostile node.
    Hostile(Box<HostileSpec>),
}

/// Which packets use the paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Those of inner addresses, which the hosts have in addition to their ordinary ones (tunnel).
    #[default]
    Tunnel,
    /// Those of the hosts' ordinary addresses (host mode), with the policy for packets without a
    /// path.
    Host(Policy),
    /// As in host mode, with nodes that are not configured but discovered by queries.
    Opportunistic,
}

impl Mode {
    /// Whether flows are between the hosts' ordinary addresses.
    pub fn is_ordinary(self) -> bool {
        self != Self::Tunnel
    }
}

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineSpec {
    /// The scheduler.
    pub scheduler: SchedulerKind,
    /// Fixed weights by interface name, for the `weighted` scheduler.
    pub fixed_weights: Vec<(String, u16)>,
    /// Standby and cost by interface name.
    pub interfaces: InterfaceProperties,
    /// The congestion control of paths.
    pub congestion_control: CongestionControlKind,
    /// Most paths that carry packets.
    pub max_paths: Option<usize>,
    /// What becomes of paths that lose packets.
    pub loss_policy: LossPolicy,
    /// Whether the receiver resequences TCP sessions.
    pub resequencing: bool,
    /// Limits of the tables.
    pub limits: Limits,
    /// The parameters of its mechanisms.
    pub parameters: Parameters,
    /// The rule table.
    pub rules: Vec<Rule>,
    /// Which packets use the paths.
    pub mode: Mode,
    /// In the host modes, whether others may share the peers' addresses. Then only connections
    /// opened on the paths use them, with translated ports.
    pub shares: bool,
    /// Permitted encapsulations; without TCP the host has no endpoints for it.
    pub encapsulation: EncapsulationPolicy,
    /// Whether acknowledgements of TCP in slow start are thinned.
    pub ack_thinning: bool,
    /// Whether the peer's addresses are configured; otherwise this host waits for the peer's
    /// handshake.
    pub knows_peer: bool,
}

impl Default for EngineSpec {
    fn default() -> Self {
        Self {
            scheduler: SchedulerKind::default(),
            fixed_weights: Vec::new(),
            interfaces: InterfaceProperties::default(),
            congestion_control: CongestionControlKind::default(),
            max_paths: None,
            loss_policy: LossPolicy::Measured,
            resequencing: true,
            limits: Limits::default(),
            parameters: Parameters::default(),
            rules: Vec::new(),
            mode: Mode::default(),
            shares: false,
            encapsulation: EncapsulationPolicy::Udp,
            ack_thinning: true,
            knows_peer: true,
        }
    }
}

impl EngineSpec {
    /// Sets the scheduler by its name in the configuration.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn set_scheduler(&mut self, name: &str) -> Result<(), String> {
        self.scheduler = SchedulerKind::from_name(name).ok_or_else(|| {
            let names = SchedulerKind::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>();
            format!("expected one of the schedulers {names:?}, found {name:?}")
        })?;
        Ok(())
    }

    /// Sets the loss policy by its name in the configuration.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn set_loss_policy(&mut self, name: &str) -> Result<(), String> {
        self.loss_policy = LossPolicy::from_name(name).ok_or_else(|| {
            let names = LossPolicy::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>();
            format!("expected one of the loss policies {names:?}, found {name:?}")
        })?;
        Ok(())
    }

    /// Sets the congestion control by its name in the configuration.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn set_congestion_control(&mut self, name: &str) -> Result<(), String> {
        self.congestion_control = CongestionControlKind::from_name(name).ok_or_else(|| {
            let names =
                CongestionControlKind::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>();
            format!("expected one of the congestion controls {names:?}, found {name:?}")
        })?;
        Ok(())
    }
}

/// What a flow sends.
#[derive(Clone, Debug)]
pub enum Traffic {
    /// One TCP transfer, from the flow's source to its destination.
    Tcp {
        /// Bytes to transfer; `None`: until the flow stops.
        bytes: Option<u64>,
        /// Socket buffers, bytes: the largest window.
        window: usize,
    },
    /// One QUIC stream, from the flow's source to its destination.
    Quic {
        /// Bytes to transfer; `None`: until the flow stops.
        bytes: Option<u64>,
        /// The sender's congestion control.
        control: QuicControl,
    },
    /// Packets at a constant rate. ICMP echo is answered, so round trips are measured.
    Packets {
        /// IP protocol number.
        protocol: u8,
        /// Smallest and largest IP packet, bytes.
        size: (usize, usize),
        /// Time between two packets.
        interval: Nanos,
        /// ECN field.
        ecn: u8,
        /// Segments per super-packet if above 1 (TCP and UDP only), with a partial checksum.
        segments: usize,
    },
}

impl Traffic {
    /// Whether it is a transfer by TCP or QUIC.
    pub fn is_transfer(&self) -> bool {
        matches!(self, Self::Tcp { .. } | Self::Quic { .. })
    }
}

/// A flow.
#[derive(Clone, Debug)]
pub struct FlowSpec {
    /// Index of the sending host.
    pub from: usize,
    /// Index of the receiving host.
    pub to: usize,
    /// When it starts.
    pub start: Nanos,
    /// When it stops at the latest.
    pub stop: Nanos,
    /// Whether its inner packets are IPv6.
    pub v6: bool,
    /// What it sends.
    pub traffic: Traffic,
}

/// An event at a given time.
#[derive(Clone, Debug)]
pub enum Action {
    /// A link changes.
    Link {
        /// Index of the link.
        link: usize,
        /// What changes.
        change: Change,
    },
    /// An interface gets an address; its host is told.
    AddAddress {
        /// Index of the interface.
        interface: usize,
        /// The address.
        address: IpAddr,
    },
    /// An interface loses an address; its host is told.
    RemoveAddress {
        /// Index of the interface.
        interface: usize,
        /// The address.
        address: IpAddr,
    },
    /// A NAT loses its mappings, and gets another external address if one is given. The hosts are
    /// not told.
    Rebind {
        /// Index of the interface behind the NAT.
        interface: usize,
        /// The new external address.
        external: Option<IpAddr>,
    },
    /// A host's sockets become full (true) or writable again (false).
    SocketsFull {
        /// Index of the host.
        host: usize,
        /// Whether they are full.
        full: bool,
    },
    /// An attacker replays recorded datagrams to their destination.
    Replay {
        /// How many.
        count: usize,
        /// With this source address instead of the true one.
        spoofed: Option<SocketAddr>,
        /// With one bit flipped.
        corrupt: bool,
    },
    /// An attacker sends random bytes to every address of a host.
    Garbage {
        /// Index of the host.
        host: usize,
        /// Datagrams.
        count: usize,
    },
    /// A firewall in front of an interface drops UDP (true) or lets it pass again (false).
    BlockUdp {
        /// Index of the interface.
        interface: usize,
        /// Whether it drops UDP.
        blocked: bool,
    },
    /// A host's configuration says something else of its interfaces.
    Configure {
        /// Index of the host.
        host: usize,
        /// What it says.
        interfaces: InterfaceProperties,
    },
    /// A host restarts with an empty engine.
    Restart {
        /// Index of the host.
        host: usize,
    },
}

/// A world.
#[derive(Clone, Debug)]
pub struct WorldSpec {
    /// The seed of all random choices.
    pub seed: u64,
    /// The hosts.
    pub hosts: Vec<HostSpec>,
    /// The interfaces of all hosts.
    pub interfaces: Vec<InterfaceSpec>,
    /// The links, one direction each.
    pub links: Vec<LinkConfig>,
    /// The links that lead from one interface to another.
    pub routes: BTreeMap<(usize, usize), Vec<usize>>,
    /// The traffic.
    pub flows: Vec<FlowSpec>,
    /// The congestion control of the hosts' TCP.
    pub tcp: TcpControl,
    /// The events, in any order.
    pub script: Vec<(Nanos, Action)>,
    /// When the world heals; then only packets in flight complete.
    pub duration: Nanos,
}

/// The inner address of a host.
pub fn inner_address(host: usize, v6: bool) -> IpAddr {
    let number = host as u16 + 1;
    if v6 {
        Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0, 0, 0, number).into()
    } else {
        Ipv4Addr::new(198, 19, 0, number as u8).into()
    }
}

/// The first outer address of the interface numbered `index` on its host. Further ones have
/// another `generation`.
pub fn outer_address(host: usize, index: usize, generation: usize, v6: bool) -> IpAddr {
    let (host, index, generation) = (host as u16 + 1, index as u16 + 1, generation as u16 + 1);
    if v6 {
        Ipv6Addr::new(0x2001, 0xdb8, host, index, 0, 0, 0, generation).into()
    } else {
        Ipv4Addr::new(198, 18, (host * 16 + index) as u8, generation as u8).into()
    }
}

impl WorldSpec {
    /// Two hosts with `interfaces` interfaces each, no links yet.
    pub fn two_hosts(seed: u64, interfaces: usize) -> Self {
        let host = |name: &str| HostSpec {
            name: name.to_owned(),
            clock: HostClock { offset: Duration::from_secs(1_000), drift: 0 },
            system: System::Mpip(Box::default()),
        };
        let mut spec = Self {
            seed,
            hosts: vec![host("alice"), host("bob")],
            interfaces: Vec::new(),
            links: Vec::new(),
            routes: BTreeMap::new(),
            flows: Vec::new(),
            tcp: TcpControl::default(),
            script: Vec::new(),
            duration: 10 * SECOND,
        };
        for host in 0..2 {
            for index in 0..interfaces {
                spec.add_interface(host, vec![outer_address(host, index, 0, false)]);
            }
        }
        spec
    }

    /// Adds an interface with `addresses` to `host` and returns its index.
    pub fn add_interface(&mut self, host: usize, addresses: Vec<IpAddr>) -> usize {
        let number = self.interfaces.iter().filter(|known| known.host == host).count();
        self.interfaces.push(InterfaceSpec {
            host,
            name: format!("eth{number}"),
            addresses,
            mtu: 1500,
            nat: None,
        });
        self.interfaces.len() - 1
    }

    /// Adds a link and returns its index.
    pub fn add_link(&mut self, config: LinkConfig) -> usize {
        self.links.push(config);
        self.links.len() - 1
    }

    /// The index of the interface numbered `number` of `host`.
    pub fn interface(&self, host: usize, number: usize) -> usize {
        let mut own = self.interfaces.iter().enumerate().filter(|(_, known)| known.host == host);
        own.nth(number).map(|(index, _)| index).expect("the interface exists")
    }

    /// Two hosts whose interfaces are connected pairwise by disjoint links, each with a pair of
    /// settings (forward, back). Link `2n` leads from the first host's interface `n`, `2n + 1`
    /// back.
    pub fn disjoint(seed: u64, links: &[(LinkConfig, LinkConfig)]) -> Self {
        let mut spec = Self::two_hosts(seed, links.len());
        for (number, (forward, back)) in links.iter().enumerate() {
            let (a, b) = (spec.interface(0, number), spec.interface(1, number));
            let forward = spec.add_link(forward.clone());
            let back = spec.add_link(back.clone());
            spec.routes.insert((a, b), vec![forward]);
            spec.routes.insert((b, a), vec![back]);
        }
        spec
    }

    /// Two hosts on one switch: `up` and `down` are the settings of each interface's own link.
    /// Every interface reaches every other host's interfaces. The links of interface `n` (counted
    /// over both hosts) are `2n` up and `2n + 1` down.
    pub fn switched(seed: u64, counts: [usize; 2], links: &[(LinkConfig, LinkConfig)]) -> Self {
        let mut spec = Self::two_hosts(seed, 0);
        for (host, count) in counts.into_iter().enumerate() {
            for index in 0..count {
                spec.add_interface(host, vec![outer_address(host, index, 0, false)]);
            }
        }
        assert_eq!(links.len(), spec.interfaces.len(), "one pair of links for each interface");
        for (up, down) in links {
            spec.add_link(up.clone());
            spec.add_link(down.clone());
        }
        for from in 0..spec.interfaces.len() {
            for to in 0..spec.interfaces.len() {
                if spec.interfaces[from].host != spec.interfaces[to].host {
                    spec.routes.insert((from, to), vec![2 * from, 2 * to + 1]);
                }
            }
        }
        spec
    }

    /// Changes the engine's settings on both hosts.
    pub fn with_engines(mut self, change: impl Fn(&mut EngineSpec)) -> Self {
        for host in &mut self.hosts {
            if let System::Mpip(engine) = &mut host.system {
                change(engine);
            }
        }
        self
    }

    /// Replaces mpip by plain IP over the route between the hosts' interfaces numbered `path`.
    pub fn plain(mut self, path: usize) -> Self {
        let ends = [self.interface(0, path), self.interface(1, path)];
        self.hosts[0].system = System::Plain { local: ends[0], remote: ends[1] };
        self.hosts[1].system = System::Plain { local: ends[1], remote: ends[0] };
        self
    }

    /// Adds a flow and returns its number.
    pub fn add_flow(&mut self, flow: FlowSpec) -> usize {
        self.flows.push(flow);
        self.flows.len() - 1
    }

    /// Adds a QUIC transfer from the first to the second host that goes on until the world's end.
    pub fn with_quic(mut self, start: Nanos, control: QuicControl) -> Self {
        let stop = self.duration;
        let traffic = Traffic::Quic { bytes: None, control };
        self.flows.push(FlowSpec { from: 0, to: 1, start, stop, v6: false, traffic });
        self
    }

    /// Adds a TCP transfer from the first to the second host that goes on until the world's end.
    pub fn with_bulk(mut self, start: Nanos, window: usize) -> Self {
        let stop = self.duration;
        let traffic = Traffic::Tcp { bytes: None, window };
        self.flows.push(FlowSpec { from: 0, to: 1, start, stop, v6: false, traffic });
        self
    }

    /// Adds pings from the first to the second host every `interval`.
    pub fn with_ping(mut self, start: Nanos, interval: Nanos) -> Self {
        let stop = self.duration;
        let traffic = Traffic::Packets {
            protocol: protocol::ICMP,
            size: (84, 84),
            interval,
            ecn: 0,
            segments: 1,
        };
        self.flows.push(FlowSpec { from: 0, to: 1, start, stop, v6: false, traffic });
        self
    }

    /// Adds UDP packets of `size` bytes from the first to the second host at `rate` bit/s.
    pub fn with_udp(mut self, start: Nanos, size: usize, rate: u64) -> Self {
        let stop = self.duration;
        let interval = size as u64 * 8 * SECOND / rate;
        let traffic = Traffic::Packets {
            protocol: protocol::UDP,
            size: (size, size),
            interval,
            ecn: 0,
            segments: 1,
        };
        self.flows.push(FlowSpec { from: 0, to: 1, start, stop, v6: false, traffic });
        self
    }

    /// Sets when traffic ends; call it before flows are added.
    pub fn lasting(mut self, duration: Nanos) -> Self {
        self.duration = duration;
        self
    }

    /// Adds an event.
    pub fn at(mut self, when: Nanos, action: Action) -> Self {
        self.script.push((when, action));
        self
    }

    /// Whether the flows of `host` are between ordinary addresses.
    pub(crate) fn is_ordinary(&self, host: usize) -> bool {
        match &self.hosts[host].system {
            System::Mpip(engine) => engine.mode.is_ordinary(),
            System::Plain { .. } => false,
            System::Hostile(hostile) => self.is_ordinary(hostile.target),
        }
    }

    /// The same world with silent hostile nodes. `None` if there are none.
    pub(crate) fn silenced(mut self) -> Option<Self> {
        if !self.has_hostile() {
            return None;
        }
        for host in &mut self.hosts {
            if let System::Hostile(hostile) = &mut host.system {
                hostile.most = 0;
            }
        }
        Some(self)
    }

    /// Whether there is a hostile node.
    pub(crate) fn has_hostile(&self) -> bool {
        self.hosts.iter().any(|host| matches!(host.system, System::Hostile(_)))
    }

    /// The addresses of the flow numbered `number`. Ordinary addresses are those of interfaces that
    /// reach each other, in turn.
    pub(crate) fn flow_ends(&self, number: usize, flow: &FlowSpec) -> (IpAddr, IpAddr) {
        let inner = (inner_address(flow.from, flow.v6), inner_address(flow.to, flow.v6));
        if !self.is_ordinary(flow.from) {
            return inner;
        }
        let ends = |v6: bool| -> Vec<(IpAddr, IpAddr)> {
            let addresses = |interface: usize, host: usize| {
                let spec = &self.interfaces[interface];
                let family = spec.addresses.iter().filter(move |ip| ip.is_ipv6() == v6);
                family.filter(move |_| spec.host == host).copied()
            };
            let both = |&(from, to): &(usize, usize)| self.routes.contains_key(&(to, from));
            let pairs = self.routes.keys().filter(|pair| both(pair));
            pairs
                .flat_map(|&(from, to)| {
                    addresses(from, flow.from)
                        .flat_map(move |a| addresses(to, flow.to).map(move |b| (a, b)))
                })
                .collect()
        };
        let family = [flow.v6, !flow.v6].map(ends).into_iter().find(|pairs| !pairs.is_empty());
        family.map_or(inner, |pairs| pairs[number % pairs.len()])
    }

    /// Where the peers of `host` can be reached when the world begins.
    pub(crate) fn endpoints(&self, peer: usize) -> Vec<SocketAddr> {
        let own = self.interfaces.iter().filter(|known| known.host == peer);
        let reachable = own.filter(|known| known.nat.is_none());
        reachable
            .flat_map(|known| known.addresses.iter())
            .map(|address| SocketAddr::new(*address, DEFAULT_PORT))
            .collect()
    }
}
