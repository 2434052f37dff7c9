//! A host: its node, its addresses, its TCP, its clock.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use mpip_core::packet::protocol;
use mpip_core::{
    Capture, Command, Config, DEFAULT_PORT, Encapsulation, EncapsulationPolicy, Engine, Event,
    InterfaceProperties, LocalAddress, LocalId, Opportunistic, PacketPool, PathAddress, PeerConfig,
    Policy, Prefix, TRANSLATED_PORTS,
};
use mpip_segments::Endpoint;

use crate::clock::{NEVER, Nanos};
use crate::hostile::Hostile;
use crate::invariant::Spin;
use crate::keys::{preshared_key, private_key, public_key};
use crate::network::Network;
use crate::node::{Inbox, Node, Outbox};
use crate::packet::Tuple;
use crate::rng::Rng;
use crate::spec::{EngineSpec, HostSpec, Mode, System, WorldSpec, inner_address};
use crate::stack::Stack;

/// Inner MTU before the engine reports one; fits 1,500 bytes of IPv6 with room to spare.
pub(crate) const FIRST_MTU: usize = 1_400;

/// Numbers of 64 KiB and 2 KiB buffers of a host. The simulated TCP has no super-packets, so its
/// window takes as many small buffers as it has packets.
const POOL: (usize, usize) = (64, 65_536);

/// First random stream for TCP endpoints; one per host.
const SEEDS: u64 = 500;

/// A local address of the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    pub(crate) id: LocalId,
    pub(crate) interface: usize,
    pub(crate) address: SocketAddr,
    pub(crate) encapsulation: Encapsulation,
}

/// Where a packet of the host goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Into the node.
    Node,
    /// As plain IP.
    Plain,
    /// Dropped: a route refuses it.
    Refused,
}

pub(crate) struct Host {
    pub(crate) spec: HostSpec,
    pub(crate) node: Node,
    pub(crate) pool: PacketPool,
    pub(crate) outbox: Outbox,
    pub(crate) inbox: Inbox,
    pub(crate) stack: Stack,
    pub(crate) locals: Vec<Local>,
    next_local: u16,
    /// The TCP endpoint of each local address.
    pub(crate) endpoints: BTreeMap<LocalId, Endpoint>,
    /// In host mode: packets captured for the node, by peer, and packets that must not leave as
    /// plain IP.
    captures: BTreeMap<String, Capture>,
    refusing: Vec<Prefix>,
    /// Addresses removed from interfaces that the host keeps while sessions use them.
    kept: Vec<IpAddr>,
    seeds: Rng,
    /// When the node's timer is due.
    pub(crate) wake: Nanos,
    /// When TCP's timer is due.
    pub(crate) stack_wake: Nanos,
    /// Datagrams have arrived since the last flush.
    pub(crate) unflushed: bool,
    pub(crate) spin: Spin,
    pub(crate) mtu: usize,
    pub(crate) events: Vec<(Nanos, Event)>,
    pub(crate) refused: u64,
    pub(crate) full: bool,
}

/// Prefixes that cover every outer and inner address of a world.
fn everywhere() -> Vec<Prefix> {
    let prefixes = [inner_address(0, false), inner_address(0, true)].into_iter().zip([15, 32]);
    prefixes.filter_map(|(address, len)| Prefix::new(address, len)).collect()
}

fn peer_config(world: &WorldSpec, engine: &EngineSpec, peer: usize) -> PeerConfig {
    let prefix = |v6| {
        let address = inner_address(peer, v6);
        Prefix::new(address, if v6 { 128 } else { 32 }).expect("the length of a whole address")
    };
    let tunnel = engine.mode == Mode::Tunnel;
    PeerConfig {
        name: world.hosts[peer].name.clone(),
        public_key: public_key(peer),
        preshared_key: preshared_key(),
        endpoints: if engine.knows_peer { world.endpoints(peer) } else { Vec::new() },
        allowed_prefixes: if tunnel { vec![prefix(false), prefix(true)] } else { Vec::new() },
        host_mode: !tunnel,
        exclusive: if tunnel || engine.shares { Vec::new() } else { everywhere() },
        policy: match engine.mode {
            Mode::Host(policy) => policy,
            Mode::Tunnel | Mode::Opportunistic => Policy::Require,
        },
        scheduler: engine.scheduler,
        fixed_weights: engine.fixed_weights.clone(),
        congestion_control: engine.congestion_control,
        max_paths: engine.max_paths,
        loss_policy: engine.loss_policy,
        resequencing: engine.resequencing,
        ack_thinning: engine.ack_thinning,
        encapsulation: engine.encapsulation,
        ..PeerConfig::unnamed()
    }
}

/// Settings of the engine of host `index`.
fn config(world: &WorldSpec, engine: &EngineSpec, index: usize) -> Config {
    let configured = |peer: &usize| match &world.hosts[*peer].system {
        System::Hostile(hostile) => hostile.configured && hostile.target == index,
        System::Mpip(_) | System::Plain { .. } => *peer != index,
    };
    let stranger = engine.mode == Mode::Opportunistic;
    let peers = (0..world.hosts.len()).filter(|peer| !stranger && configured(peer));
    Config {
        private_key: private_key(index),
        aes_in_hardware: true,
        peers: peers.map(|peer| peer_config(world, engine, peer)).collect(),
        rules: engine.rules.clone(),
        limits: engine.limits.clone(),
        parameters: engine.parameters,
        opportunistic: stranger.then(|| Opportunistic {
            prefixes: everywhere(),
            exclusive: if engine.shares { Vec::new() } else { everywhere() },
            port: DEFAULT_PORT,
            pins: Vec::new(),
            pin_expiry: None,
            peer: peer_config(world, engine, index),
        }),
    }
}

impl Host {
    pub(crate) fn new(world: &WorldSpec, index: usize, network: &Network, rng: &mut Rng) -> Self {
        let spec = world.hosts[index].clone();
        let inner: Vec<IpAddr> = match world.is_ordinary(index) {
            true => world
                .interfaces
                .iter()
                .filter(|known| known.host == index)
                .flat_map(|known| known.addresses.iter().copied())
                .collect(),
            false => [false, true].map(|v6| inner_address(index, v6)).to_vec(),
        };
        let mut host = Self {
            node: Node::Plain(PathAddress { local: LocalId(0), remote: NOWHERE }),
            pool: PacketPool::new(POOL.0, POOL.1),
            outbox: Outbox::default(),
            inbox: Inbox::default(),
            stack: Stack::new(&inner, FIRST_MTU, rng.word()),
            locals: Vec::new(),
            next_local: 0,
            endpoints: BTreeMap::new(),
            captures: BTreeMap::new(),
            refusing: Vec::new(),
            kept: Vec::new(),
            seeds: Rng::stream(world.seed, SEEDS + index as u64),
            wake: NEVER,
            stack_wake: NEVER,
            unflushed: false,
            spin: Spin::default(),
            mtu: FIRST_MTU,
            events: Vec::new(),
            refused: 0,
            full: false,
            spec,
        };
        host.start(world, index, network, 0, rng);
        host
    }

    /// Starts a new node without previous state.
    pub(crate) fn start(
        &mut self,
        world: &WorldSpec,
        index: usize,
        network: &Network,
        now: Nanos,
        rng: &mut Rng,
    ) {
        self.pool = PacketPool::new(POOL.0, POOL.1);
        self.outbox = Outbox::default();
        self.inbox = Inbox::default();
        self.endpoints.clear();
        // Refusing routes stay.
        let fail_closed = self.captures.values().filter(|capture| capture.fail_closed);
        self.refusing = fail_closed.flat_map(|capture| capture.prefixes.clone()).collect();
        self.captures.clear();
        let clock = self.spec.clock;
        self.node = match &self.spec.system {
            System::Mpip(engine) => {
                let config = config(world, engine, index);
                let engine = Engine::new(config, rng.seed(), clock.at(now), clock.unix_time(now));
                Node::Engine(Box::new(engine))
            }
            System::Plain { remote, .. } => {
                let remote = network.interface(*remote).addresses[0];
                let remote = SocketAddr::new(remote, DEFAULT_PORT);
                self.set_mtu(usize::from(world.interfaces[0].mtu));
                Node::Plain(PathAddress { local: LocalId(0), remote })
            }
            System::Hostile(hostile) => {
                Node::Hostile(Box::new(Hostile::new(hostile, world, index, rng)))
            }
        };
        self.update_addresses(index, network, now);
    }

    pub(crate) fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
        self.stack.set_mtu(mtu);
    }

    /// Tells the node the host's current addresses.
    pub(crate) fn update_addresses(&mut self, index: usize, network: &Network, now: Nanos) {
        if let System::Plain { local, .. } = self.spec.system {
            let address = SocketAddr::new(network.interface(local).addresses[0], DEFAULT_PORT);
            let encapsulation = Encapsulation::Udp;
            self.locals = vec![Local { id: LocalId(0), interface: local, address, encapsulation }];
            return;
        }
        let mut held = Vec::new();
        for (interface, spec) in network.interfaces().enumerate() {
            if spec.host != index {
                continue;
            }
            held.extend(spec.addresses.iter().map(|address| (interface, *address)));
        }
        self.locals.retain(|local| held.contains(&(local.interface, local.address.ip())));
        for (interface, address) in held {
            for encapsulation in self.encapsulations() {
                let known = |local: &Local| {
                    (local.interface, local.address.ip(), local.encapsulation)
                        == (interface, address, encapsulation)
                };
                if self.locals.iter().any(known) {
                    continue;
                }
                let id = LocalId(self.next_local);
                let address = SocketAddr::new(address, DEFAULT_PORT);
                self.locals.push(Local { id, interface, address, encapsulation });
                self.next_local += 1;
            }
        }
        self.update_endpoints(network);
        if let Node::Hostile(hostile) = &mut self.node {
            hostile.set_locals(self.locals.iter().map(|local| (local.id, local.address)).collect());
        }
        let list = self.locals.iter().map(|local| LocalAddress {
            id: local.id,
            interface: network.interface(local.interface).name.clone(),
            address: local.address,
            mtu: network.interface(local.interface).mtu,
            encapsulation: local.encapsulation,
        });
        let list = list.collect();
        let own = self.own_addresses(index);
        if let System::Mpip(engine) = &self.spec.system
            && engine.interfaces != InterfaceProperties::default()
        {
            let command = Command::Interfaces(engine.interfaces.clone());
            self.node.handle_command(self.spec.clock.at(now), command);
        }
        for command in [Command::OwnAddresses(own), Command::LocalAddresses(list)] {
            self.node.handle_command(self.spec.clock.at(now), command);
        }
        self.update_wake();
    }

    /// The encapsulations of local addresses.
    fn encapsulations(&self) -> impl Iterator<Item = Encapsulation> + use<> {
        let policy = match &self.spec.system {
            System::Mpip(engine) => engine.encapsulation,
            System::Plain { .. } | System::Hostile(_) => EncapsulationPolicy::Udp,
        };
        let all = [Encapsulation::Udp, Encapsulation::Tcp].into_iter();
        all.filter(move |kind| policy.permits(*kind))
    }

    fn update_endpoints(&mut self, network: &Network) {
        let Self { endpoints, locals, seeds, .. } = self;
        endpoints.retain(|id, _| locals.iter().any(|local| local.id == *id));
        for local in locals.iter().filter(|local| local.encapsulation == Encapsulation::Tcp) {
            let mtu = network.interface(local.interface).mtu;
            endpoints
                .entry(local.id)
                .or_insert_with(|| Endpoint::new(local.address, mtu, seeds.seed()));
        }
    }

    /// All addresses of this host, whose index is `index`.
    pub(crate) fn own_addresses(&self, index: usize) -> Vec<IpAddr> {
        let inner = [false, true].map(|v6| inner_address(index, v6));
        let locals = self.locals.iter().map(|local| local.address.ip());
        locals.chain(self.kept.iter().copied()).chain(inner).collect()
    }

    /// An interface has lost `address`: keeps it while sessions use it.
    pub(crate) fn keep(&mut self, address: IpAddr) {
        if self.node.uses_address(address) && !self.kept.contains(&address) {
            self.kept.push(address);
        }
    }

    /// An interface has got `address`.
    pub(crate) fn unkeep(&mut self, address: IpAddr) {
        self.kept.retain(|kept| *kept != address);
        self.stack.add_address(address);
    }

    /// Updates the captures from the node.
    pub(crate) fn follow_captures(&mut self) {
        while let Some(capture) = self.node.poll_capture() {
            self.captures.insert(capture.peer.clone(), capture);
        }
    }

    /// Where a packet with these headers goes, by the routes of a host in host mode.
    pub(crate) fn way(&self, packet: &Tuple) -> Way {
        let to = packet.destination.ip();
        let icmp = matches!(packet.protocol, protocol::ICMP | protocol::ICMPV6);
        let (tcp, udp) = (packet.protocol == protocol::TCP, packet.protocol == protocol::UDP);
        let answers = TRANSLATED_PORTS.contains(&packet.destination.port());
        let takes = |capture: &Capture| {
            capture.prefixes.iter().any(|prefix| prefix.contains(to))
                || capture.translated.contains(&to) && (tcp || icmp)
                || capture.nats.contains(&to) && ((tcp || udp) && answers || icmp)
        };
        if self.captures.values().any(takes) {
            Way::Node
        } else if self.refusing.iter().any(|prefix| prefix.contains(to)) {
            Way::Refused
        } else {
            Way::Plain
        }
    }

    pub(crate) fn local(&self, id: LocalId) -> Option<&Local> {
        self.locals.iter().find(|local| local.id == id)
    }

    pub(crate) fn local_at(&self, address: IpAddr, encapsulation: Encapsulation) -> Option<&Local> {
        let mut locals = self.locals.iter();
        locals.find(|local| local.address.ip() == address && local.encapsulation == encapsulation)
    }

    /// Asks the node when its timer is due.
    pub(crate) fn update_wake(&mut self) {
        let own = match &self.node {
            Node::Hostile(hostile) => hostile.poll_timeout(),
            node => node.poll_timeout().map_or(NEVER, |due| self.spec.clock.when(due)),
        };
        let ends = self.endpoints.values().filter_map(Endpoint::next_timeout).min();
        self.wake = ends.map_or(NEVER, |due| self.spec.clock.when(due)).min(own);
    }
}

const NOWHERE: SocketAddr =
    SocketAddr::new(IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED), DEFAULT_PORT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_a_key_of_its_own() {
        let mut keys: Vec<_> = (0..32).map(public_key).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 32);
    }
}
