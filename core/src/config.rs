//! Resolved settings of an engine. The caller has validated every value.

use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use mpip_crypto::{PresharedKey, PrivateKey, PublicKey};

use crate::parameters::Parameters;
use mpip_transport::cc::CongestionControlKind;
use mpip_types::named;
use mpip_types::{Encapsulation, Prefix};
use mpip_wire::RateLimit;

/// The default UDP port.
pub const DEFAULT_PORT: u16 = 6182;

/// Settings of one engine.
#[derive(Debug)]
pub struct Config {
    /// This node's static key.
    pub private_key: PrivateKey,
    /// Whether this CPU seals AES-256-GCM in hardware; decides which AEAD is preferred.
    pub aes_in_hardware: bool,
    /// The configured peers.
    pub peers: Vec<PeerConfig>,
    /// The first matching rule decides; without one a packet has [`Priority::Throughput`].
    pub rules: Vec<Rule>,
    /// Bounds of every table.
    pub limits: Limits,
    /// Parameters of its mechanisms.
    pub parameters: Parameters,
    /// Settings for unknown peers, which `peers` does not name; `None` ignores them.
    pub opportunistic: Option<Opportunistic>,
}

impl Config {
    /// Settings with these values, without rules and for no unknown peers. Bounds and parameters
    /// are the defaults.
    pub fn new(private_key: PrivateKey, aes_in_hardware: bool, peers: Vec<PeerConfig>) -> Self {
        Self {
            private_key,
            aes_in_hardware,
            peers,
            rules: Vec::new(),
            limits: Limits::default(),
            parameters: Parameters::default(),
            opportunistic: None,
        }
    }
}

/// What holds for paths by the interface that they start from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceProperties {
    /// Interfaces whose paths are on standby: they carry packets only while no other path works.
    pub standby: BTreeSet<String>,
    /// What paths cost, 1 to [`PATH_COST_MAX`](mpip_wire::PATH_COST_MAX): a path is used for what
    /// cheaper ones cannot carry. Paths from other interfaces cost 0.
    pub costs: BTreeMap<String, u8>,
    /// Interfaces whose data is paid for by amount.
    pub metered: BTreeSet<String>,
    /// Loss at which a path goes on standby with [`LossPolicy::Threshold`], parts per million.
    /// Paths from other interfaces never do.
    pub loss_thresholds: BTreeMap<String, u32>,
    /// The most that this end sends on each path from an interface.
    pub rates_up: BTreeMap<String, RateLimit>,
    /// The most that the peer is to send on each path to an interface. It is told.
    pub rates_down: BTreeMap<String, RateLimit>,
}

impl InterfaceProperties {
    /// What paths from `interface` cost.
    pub fn cost(&self, interface: &str) -> u8 {
        self.costs.get(interface).copied().unwrap_or(0)
    }
}

/// A key that is pinned to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The address.
    pub address: IpAddr,
    /// The key of the node there.
    pub public_key: PublicKey,
    /// The day on which the node was last met, in days since 1970-01-01 UTC. `None`: the operator
    /// has pinned the key, and it does not expire.
    pub met: Option<u32>,
}

/// Settings for unknown peers (opportunistic mode).
#[derive(Clone, Debug)]
pub struct Opportunistic {
    /// Nodes at these addresses are queried when the host talks to them, get answers to their
    /// queries, and may begin an association for their own address.
    pub prefixes: Vec<Prefix>,
    /// Addresses that no two hosts share: such an address belongs to a node as a whole once the
    /// node proved to receive there. At other addresses only connections that began on the paths
    /// are carried.
    pub exclusive: Vec<Prefix>,
    /// The port to which queries are sent: the UDP port, and the TCP port unless `peer` names one.
    pub port: u16,
    /// Pinned keys, one for an address. Another key at such an address is refused.
    pub pins: Vec<Pin>,
    /// Days without a meeting after which a pin expires; `None`: never.
    pub pin_expiry: Option<u32>,
    /// The settings of every unknown peer. What tells peers apart is that of the node that was
    /// found: name, keys, endpoints and inner addresses given here are not used. It is in host mode
    /// with [`Policy::Prefer`]. Its encapsulation is that of queries, too.
    pub peer: PeerConfig,
}

impl Default for Opportunistic {
    fn default() -> Self {
        Self {
            prefixes: Vec::new(),
            exclusive: Vec::new(),
            port: DEFAULT_PORT,
            pins: Vec::new(),
            pin_expiry: None,
            peer: PeerConfig::unnamed(),
        }
    }
}

impl Opportunistic {
    /// Where nodes at `address` listen for `encapsulation`.
    pub(crate) fn remote(&self, address: IpAddr, encapsulation: Encapsulation) -> SocketAddr {
        let port = match encapsulation {
            Encapsulation::Udp => self.port,
            Encapsulation::Tcp => self.peer.tcp_port.unwrap_or(self.port),
        };
        SocketAddr::new(address, port)
    }

    /// Whether these settings apply to unknown peers at `address`.
    pub(crate) fn concerns(&self, address: IpAddr) -> bool {
        self.prefixes.iter().any(|prefix| prefix.contains(address))
    }

    /// Whether no two hosts share `address`.
    pub(crate) fn is_exclusive(&self, address: IpAddr) -> bool {
        self.exclusive.iter().any(|prefix| prefix.contains(address))
    }
}

/// Settings of one peer.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerConfig {
    /// The name in status output and logs; unique in the configuration.
    pub name: String,
    /// The peer's static key.
    pub public_key: PublicKey,
    /// The preshared key of the handshake; all zero without one.
    pub preshared_key: PresharedKey,
    /// Addresses of the peer. Empty for a peer that always initiates.
    pub endpoints: Vec<SocketAddr>,
    /// Inner addresses that belong to the peer.
    pub allowed_prefixes: Vec<Prefix>,
    /// Host mode: whether the peer's ordinary addresses are inner addresses too.
    pub host_mode: bool,
    /// In host mode, addresses that the peer shares with no other host: such an address belongs to
    /// the peer as a whole if the peer advertises it and a path there was validated. At other
    /// addresses only connections that began on the paths are carried.
    pub exclusive: Vec<Prefix>,
    /// Destinations that the peer may reach, besides the addresses of this host.
    pub reaches: Vec<Prefix>,
    /// What happens to packets to the peer when no path works. [`Policy::Require`] outside of host
    /// mode.
    pub policy: Policy,
    /// How a path is chosen for each packet.
    pub scheduler: SchedulerKind,
    /// Weights for [`SchedulerKind::Weighted`] that are never adjusted, by local interface name;
    /// empty for the seeds' Algorithm 1.
    pub fixed_weights: Vec<(String, u16)>,
    /// How weights adapt that are not fixed.
    pub weight_adaptation: WeightAdaptation,
    /// The congestion control of its paths.
    pub congestion_control: CongestionControlKind,
    /// Maximum number of paths that carry packets: the fastest ones. `None`: all.
    pub max_paths: Option<usize>,
    /// What becomes of paths that lose packets.
    pub loss_policy: LossPolicy,
    /// Whether the receiver resequences packets of TCP sessions.
    pub resequencing: bool,
    /// Whether acknowledgements that later ones repeat are dropped while an inner TCP is in slow
    /// start.
    pub ack_thinning: bool,
    /// The encapsulation of paths.
    pub encapsulation: EncapsulationPolicy,
    /// TCP port of the peer's addresses; `None` if it is that of UDP.
    pub tcp_port: Option<u16>,
}

impl PeerConfig {
    /// A peer in host mode with all settings at their defaults, but without name, key and address:
    /// what unknown peers are unless the configuration says otherwise, and what the configuration
    /// of any other peer begins with.
    pub fn unnamed() -> Self {
        Self {
            name: String::new(),
            public_key: PublicKey::from_bytes([0; 32]),
            preshared_key: PresharedKey::default(),
            endpoints: Vec::new(),
            allowed_prefixes: Vec::new(),
            host_mode: true,
            exclusive: Vec::new(),
            reaches: Vec::new(),
            policy: Policy::Prefer,
            scheduler: SchedulerKind::default(),
            fixed_weights: Vec::new(),
            weight_adaptation: WeightAdaptation::default(),
            congestion_control: CongestionControlKind::default(),
            max_paths: None,
            loss_policy: LossPolicy::default(),
            resequencing: true,
            ack_thinning: true,
            encapsulation: EncapsulationPolicy::default(),
            tcp_port: None,
        }
    }

    /// The weight of paths from `interface` that is never adjusted, if there is one.
    pub(crate) fn fixed_weight(&self, interface: &str) -> Option<u16> {
        let mut weights = self.fixed_weights.iter();
        weights.find(|(name, _)| name == interface).map(|(_, weight)| *weight)
    }
}

/// The two settings of the seeds' Algorithm 1 (seed 000, section 3.6.1), which adapts the weights
/// of [`SchedulerKind::Weighted`]. A larger step and a shorter period converge faster and
/// fluctuate more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightAdaptation {
    /// S: how much a weight changes at a time, 1 to 1000.
    pub step: u16,
    /// T: time between changes, in multiples of 100 ms.
    pub period: Duration,
}

impl Default for WeightAdaptation {
    fn default() -> Self {
        Self { step: 10, period: Duration::from_millis(100) }
    }
}

/// Bounds of the engine's tables, each with what happens at the bound.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Sessions per association and direction; beyond this the one that was idle for longest is
    /// removed. An unknown peer has a sixteenth.
    pub sessions: usize,
    /// Paths per association; further ones are not opened.
    pub paths: usize,
    /// Bytes in the send queue of an association; beyond this the oldest packet of the session with
    /// the most bytes is dropped.
    pub send_queue: usize,
    /// Bytes held for resequencing, per association; beyond this the oldest gap is abandoned.
    pub resequencing: usize,
    /// The same for all associations together. One association may hold at most as much as is still
    /// free, so that none takes everything. Associations with unknown peers share a quarter of it.
    pub resequencing_all: usize,
    /// Idle time after which a session is removed (seed 000, section 3.7.1).
    pub session_idle: Duration,
    /// Associations with unknown peers; traffic to further ones stays plain IP.
    pub unknown_nodes: usize,
    /// Pinned keys; beyond this, traffic to nodes without a pin stays plain IP.
    pub pins: usize,
    /// Connections of peers in host mode behind NATs; beyond this an idle one is removed. With 0
    /// ordinary traffic through NATs stays plain: then the caller need not use
    /// [`Engine::take_plain`](crate::Engine::take_plain).
    pub translated: usize,
    /// Maximum keepalive interval of a resting path; `None`: as long as NAT bindings are found to
    /// last.
    pub keepalive: Option<Duration>,
}

/// Divisor of the session and connection limits for unknown peers: there may be many of them.
pub(crate) const UNKNOWN_PART: usize = 16;

impl Limits {
    /// The limits of an association with an unknown peer.
    pub(crate) fn of_unknown(&self) -> Self {
        Self { sessions: (self.sessions / UNKNOWN_PART).max(1), ..self.clone() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 65_536,
            paths: 64,
            send_queue: 16 << 20,
            resequencing: 32 << 20,
            resequencing_all: 128 << 20,
            session_idle: Duration::from_secs(120),
            unknown_nodes: 256,
            pins: 65_536,
            translated: 65_536,
            keepalive: None,
        }
    }
}

/// Which encapsulations a peer's paths use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncapsulationPolicy {
    /// UDP, and TCP where UDP is blocked.
    #[default]
    Auto,
    /// UDP alone.
    Udp,
    /// TCP alone.
    Tcp,
}

impl EncapsulationPolicy {
    /// Whether paths may use `encapsulation` at all.
    pub fn permits(self, encapsulation: Encapsulation) -> bool {
        match self {
            Self::Auto => true,
            Self::Udp => encapsulation == Encapsulation::Udp,
            Self::Tcp => encapsulation == Encapsulation::Tcp,
        }
    }
}

/// What happens to packets to a peer when no path works (seed 000, section 3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// They are dropped: no packet to the peer ever leaves as plain IP.
    #[default]
    Require,
    /// They leave as plain IP until a path works.
    Prefer,
    /// They always leave as plain IP.
    Off,
}

/// What becomes of paths that lose so much that all paths carry less with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossPolicy {
    /// It is measured whether the others carry more without a path (scheduler `earliest`); if so,
    /// it is left out.
    #[default]
    Measured,
    /// A path is on standby while its loss is at the threshold of its interface or above
    /// (seed 003, section III.B).
    Threshold,
    /// They are used as all others.
    Off,
}

/// How packets are spread over paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulerKind {
    /// The path on which this packet arrives first.
    #[default]
    Earliest,
    /// Random by weight (seed 000, Algorithm 1).
    Weighted,
    /// Multipath HIP's fastest path first (seed 004).
    FastestFirst,
    /// One after the other.
    RoundRobin,
}

named!(SchedulerKind {
    Earliest = "earliest",
    Weighted = "weighted",
    FastestFirst = "fastest-first",
    RoundRobin = "round-robin",
});
named!(EncapsulationPolicy { Auto = "auto", Udp = "udp", Tcp = "tcp" });
named!(LossPolicy { Measured = "measured", Threshold = "threshold", Off = "off" });
named!(Policy { Require = "require", Prefer = "prefer", Off = "off" });
named!(Priority { Throughput = "throughput", Response = "response", Redundant = "redundant" });

/// The effect of a rule on path selection (seed 000, section 3.6.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// The scheduler's choice.
    #[default]
    Throughput,
    /// The path with the lowest current delay, ahead of the rest.
    Response,
    /// As [`Response`](Self::Response), and at the same time copies on other paths.
    Redundant,
}

/// On how many paths a packet of [`Priority::Redundant`] is sent, each time on another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// On as many, 2 to 8.
    Fixed(u8),
    /// On as many as bring the probability that all of them are lost below a target
    /// ([`CopyParameters`](crate::parameters::CopyParameters)).
    Adaptive,
}

impl Copies {
    /// Fewest copies of a fixed number.
    pub const FEWEST: u8 = 2;
    /// Most copies of a fixed number.
    pub const MOST: u8 = 8;
}

impl Default for Copies {
    fn default() -> Self {
        Self::Fixed(Self::FEWEST)
    }
}

/// What a rule says about the paths from some interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathPreference {
    /// Packets take these; while none of them works they are dropped.
    Only,
    /// Packets take these while one of them works.
    Prefer,
    /// Packets take others while one of them works.
    Avoid,
}

named!(PathPreference { Only = "only", Prefer = "prefer", Avoid = "avoid" });

/// Which paths packets take, by the local interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulePaths {
    /// What is said about them.
    pub preference: PathPreference,
    /// The interfaces, in any order.
    pub interfaces: Vec<String>,
}

/// One line of the rule table (seed 000, table 6). A field that is `None` matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// What people call it; it matches nothing.
    pub name: Option<String>,
    /// The packet's destination address, as sent by this host.
    pub remote_prefix: Option<Prefix>,
    /// Its destination port; protocols without ports never match.
    pub remote_port: Option<RangeInclusive<u16>>,
    /// Its source address.
    pub local_prefix: Option<Prefix>,
    /// Its source port; protocols without ports never match.
    pub local_port: Option<RangeInclusive<u16>>,
    /// Its IP protocol number.
    pub protocol: Option<u8>,
    /// Bytes of the IP packet.
    pub length: Option<RangeInclusive<u16>>,
    /// Its differentiated services code point (RFC 2474), 0 to 63.
    pub dscp: Option<u8>,
    /// The name of the peer to which it goes.
    pub peer: Option<String>,
    /// The interface behind which the host is that sends it; this host itself is behind none.
    pub interface: Option<String>,
    /// The priority of matching packets; `None`: [`Priority::Throughput`] if the rule names a
    /// scheduler, otherwise as without a rule.
    pub priority: Option<Priority>,
    /// On how many paths they are sent if that is [`Priority::Redundant`].
    pub copies: Copies,
    /// Whether lost packets of their sessions are sent again, as for TCP, although the receiver
    /// does not resequence them.
    pub repair: bool,
    /// Whether the receiver puts them in order, and lost ones are sent again; `None`: those of TCP
    /// and of transport protocols inside UDP.
    pub ordered: Option<bool>,
    /// Which paths they take; `None`: any.
    pub paths: Option<RulePaths>,
    /// The code point that they are given, 0 to 63; `None`: they keep theirs.
    pub set_dscp: Option<u8>,
    /// How a path is chosen for those of [`Priority::Throughput`]; `None`: as the peer's
    /// configuration says. What else belongs to the peer's scheduler stays as it is.
    pub scheduler: Option<SchedulerKind>,
}

impl Rule {
    /// The priority that it gives; `None`: as without a rule, [`Priority::Response`] for packets of
    /// interactive flows and [`Priority::Throughput`] for all others.
    pub fn given_priority(&self) -> Option<Priority> {
        self.priority.or(self.scheduler.map(|_| Priority::Throughput))
    }
}
