//! Resolved settings of an engine. Every value here was checked by whoever read it.

use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;
use core::time::Duration;

use mpip_crypto::{PresharedKey, PrivateKey, PublicKey};

use crate::parameters::Parameters;
use mpip_transport::cc::CongestionControlKind;
use mpip_types::named;
use mpip_types::{Encapsulation, Prefix};

/// The default UDP port.
pub const DEFAULT_PORT: u16 = 6182;

/// Settings of one engine.
#[derive(Debug)]
pub struct Config {
    /// This node's static key.
    pub private_key: PrivateKey,
    /// Whether this CPU seals AES-256-GCM in hardware; decides which AEAD is preferred.
    pub aes_in_hardware: bool,
    /// The nodes to be associated with.
    pub peers: Vec<PeerConfig>,
    /// First match decides; without one a packet has [`Priority::Throughput`].
    pub rules: Vec<Rule>,
    /// Bounds of every table.
    pub limits: Limits,
    /// What tunes its mechanisms.
    pub parameters: Parameters,
    /// How to deal with nodes that `peers` does not name; `None` leaves them alone.
    pub opportunistic: Option<Opportunistic>,
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

/// Settings for nodes that the configuration does not name.
#[derive(Clone, Debug, Default)]
pub struct Opportunistic {
    /// Nodes at these addresses are asked for when the host talks to them, are answered when they
    /// ask, and may begin an association for their own address.
    pub prefixes: Vec<Prefix>,
    /// Addresses that no two hosts share: one of them is a node's as a whole once the node proved
    /// to receive there. Of others only connections that began on the paths are led to the
    /// node.
    pub exclusive: Vec<Prefix>,
    /// The UDP port at which they are asked.
    pub port: u16,
    /// Keys of addresses that were seen before, one for an address. Another key at one of them is
    /// refused.
    pub pins: Vec<Pin>,
    /// Days without a meeting after which a pin expires; `None`: none does.
    pub pin_expiry: Option<u32>,
    /// How a path is chosen for each packet.
    pub scheduler: SchedulerKind,
    /// How much may be in flight on a path.
    pub congestion_control: CongestionControlKind,
}

impl Opportunistic {
    /// Whether unknown nodes at `address` are dealt with.
    pub(crate) fn concerns(&self, address: IpAddr) -> bool {
        self.prefixes.iter().any(|prefix| prefix.contains(address))
    }

    /// Whether no two hosts share `address`.
    pub(crate) fn is_exclusive(&self, address: IpAddr) -> bool {
        self.exclusive.iter().any(|prefix| prefix.contains(address))
    }
}

/// Settings of one peer.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// The name in status output and logs; unique in the configuration.
    pub name: String,
    /// The peer's static key.
    pub public_key: PublicKey,
    /// Mixed into the handshake; all zero when there is none.
    pub preshared_key: PresharedKey,
    /// Where the peer can be reached. Empty for a peer that always calls first.
    pub endpoints: Vec<SocketAddr>,
    /// Inner addresses that belong to the peer.
    pub allowed_prefixes: Vec<Prefix>,
    /// Whether the peer's ordinary addresses are inner addresses of it too.
    pub host_mode: bool,
    /// In host mode, addresses that the peer does not share with others: one of them that it tells
    /// is its own as a whole once a path there was validated. Of others only connections that
    /// began on the paths are led there.
    pub exclusive: Vec<Prefix>,
    /// Where packets of the peer may go beside the addresses of this host.
    pub reaches: Vec<Prefix>,
    /// What becomes of packets to the peer when no path works. [`Policy::Require`] outside of host
    /// mode.
    pub policy: Policy,
    /// How a path is chosen for each packet.
    pub scheduler: SchedulerKind,
    /// Weights for [`SchedulerKind::Weighted`] that are never adjusted, by local interface name;
    /// empty for the seeds' Algorithm 1.
    pub fixed_weights: Vec<(String, u16)>,
    /// How much may be in flight on a path.
    pub congestion_control: CongestionControlKind,
    /// At most so many paths carry packets, the fastest ones.
    pub max_paths: Option<usize>,
    /// Whether packets of TCP sessions are put back in order at the receiver.
    pub resequencing: bool,
    /// Whether acknowledgements that later ones repeat are left out while an inner TCP is in slow
    /// start.
    pub ack_thinning: bool,
    /// What paths look like from outside.
    pub encapsulation: EncapsulationPolicy,
    /// TCP port of the peer's addresses; `None` if it is that of UDP.
    pub tcp_port: Option<u16>,
}

impl PeerConfig {
    /// The weight of paths from `interface` that is never adjusted, if there is one.
    pub(crate) fn fixed_weight(&self, interface: &str) -> Option<u16> {
        let mut weights = self.fixed_weights.iter();
        weights.find(|(name, _)| name == interface).map(|(_, weight)| *weight)
    }
}

/// Bounds of the engine's tables. What happens at a bound is said at each.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Sessions per association and direction; beyond it the oldest idle one is forgotten. A node
    /// that the configuration does not name has a sixteenth.
    pub sessions: usize,
    /// Paths per association; further ones are not opened.
    pub paths: usize,
    /// Bytes that wait for a path, per association; beyond it the fattest session's oldest goes.
    pub send_queue: usize,
    /// Bytes that wait for what is missing, per association; beyond it the oldest gap is given up.
    pub resequencing: usize,
    /// The same of all associations together. One may hold at most as much as is left, so that
    /// none takes it all; those with nodes that the configuration does not name share a
    /// quarter of it.
    pub resequencing_all: usize,
    /// A session that carried nothing for so long is forgotten (seed 000, section 3.7.1).
    pub session_idle: Duration,
    /// Associations with nodes that the configuration does not name; beyond it further ones are
    /// left to plain IP.
    pub unknown_nodes: usize,
    /// Pinned keys; beyond it nodes that are not pinned are left to plain IP.
    pub pins: usize,
    /// Connections of peers in host mode behind translators; beyond it one goes that carried
    /// nothing for long. With 0 ordinary traffic through translators stays plain: then the
    /// caller need not take what [`Engine::take_plain`](crate::Engine::take_plain) gives.
    pub translated: usize,
    /// A resting path is silent for so long at most; `None`: for as long as is found to do no
    /// harm.
    pub keepalive: Option<Duration>,
}

/// A node that the configuration does not name may have one in so many sessions and translated
/// connections: there may be many such nodes.
pub(crate) const UNKNOWN_PART: usize = 16;

impl Limits {
    /// Those of an association with a node that the configuration does not name.
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
    /// UDP, and TCP where UDP does not get through.
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

/// What becomes of packets to a peer when no path works (seed 000, section 3.2).
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
named!(Policy { Require = "require", Prefer = "prefer", Off = "off" });
named!(Priority { Throughput = "throughput", Response = "response" });

/// What a rule asks of path selection (seed 000, section 3.6.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// The scheduler's choice.
    #[default]
    Throughput,
    /// The path with the lowest current delay, ahead of the rest.
    Response,
}

/// One line of the rule table (seed 000, table 6). A field that is `None` matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The packet's destination address, as sent by this host.
    pub remote_prefix: Option<Prefix>,
    /// Its destination port; protocols without ports never match.
    pub remote_port: Option<u16>,
    /// Its IP protocol number.
    pub protocol: Option<u8>,
    /// Bytes of the IP packet.
    pub length: Option<RangeInclusive<u16>>,
    /// What matching packets get.
    pub priority: Priority,
    /// Whether what is lost of their sessions is sent again, as that of TCP is, though the
    /// receiver delivers it as it comes.
    pub repair: bool,
}
