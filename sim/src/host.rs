//! A host: its node, its addresses, its TCP, its clock.

use core::net::{IpAddr, SocketAddr};

use mpip_core::{
    Command, Config, DEFAULT_PORT, Encapsulation, EncapsulationPolicy, Engine, Event, LocalAddress,
    LocalId, PacketPool, PathAddress, PeerConfig, Policy, Prefix,
};
use mpip_crypto::{PresharedKey, PrivateKey, PublicKey};

use crate::clock::{NEVER, Nanos};
use crate::invariant::Spin;
use crate::network::Network;
use crate::node::{Inbox, Node, Outbox};
use crate::rng::Rng;
use crate::spec::{EngineSpec, HostSpec, System, WorldSpec, inner_address};
use crate::tcp::Stack;

/// Inner packet size before the engine says better: what fits 1500 bytes of IPv6 with room to
/// spare.
pub(crate) const FIRST_MTU: usize = 1_400;

/// 64 KiB and 2 KiB buffers of a host.
pub(crate) const POOL: (usize, usize) = (64, 8_192);

/// A local address as the engine knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    pub(crate) id: LocalId,
    pub(crate) interface: usize,
    pub(crate) address: SocketAddr,
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
    /// When the node's timer is due.
    pub(crate) wake: Nanos,
    /// When TCP's timer is due.
    pub(crate) stack_wake: Nanos,
    /// Datagrams came in since the last flush.
    pub(crate) unflushed: bool,
    pub(crate) spin: Spin,
    pub(crate) mtu: usize,
    pub(crate) events: Vec<(Nanos, Event)>,
    pub(crate) refused: u64,
    pub(crate) full: bool,
}

/// The static key of a host, which follows from its index alone.
pub(crate) fn private_key(host: usize) -> PrivateKey {
    let mut bytes = [0x42; 32];
    // Not in the first byte: clamping clears its low bits (RFC 7748, section 5).
    bytes[1] = host as u8;
    PrivateKey::from_bytes(bytes)
}

fn public_key(host: usize) -> PublicKey {
    *private_key(host).public_key()
}

fn peer_config(world: &WorldSpec, engine: &EngineSpec, peer: usize) -> PeerConfig {
    let prefix = |v6| {
        let address = inner_address(peer, v6);
        Prefix::new(address, if v6 { 128 } else { 32 }).expect("the length of a whole address")
    };
    PeerConfig {
        name: world.hosts[peer].name.clone(),
        public_key: public_key(peer),
        preshared_key: PresharedKey::from_bytes([7; 32]),
        endpoints: if engine.knows_peer { world.endpoints(peer) } else { Vec::new() },
        allowed_prefixes: vec![prefix(false), prefix(true)],
        host_mode: false,
        exclusive: Vec::new(),
        reaches: Vec::new(),
        policy: Policy::Require,
        scheduler: engine.scheduler,
        fixed_weights: engine.fixed_weights.clone(),
        congestion_control: engine.congestion_control,
        max_paths: engine.max_paths,
        resequencing: engine.resequencing,
        encapsulation: EncapsulationPolicy::Auto,
        tcp_port: None,
    }
}

impl Host {
    pub(crate) fn new(world: &WorldSpec, index: usize, network: &Network, rng: &mut Rng) -> Self {
        let spec = world.hosts[index].clone();
        let inner = [inner_address(index, false), inner_address(index, true)];
        let mut host = Self {
            node: Node::Plain(PathAddress { local: LocalId(0), remote: NOWHERE }),
            pool: PacketPool::new(POOL.0, POOL.1),
            outbox: Outbox::default(),
            inbox: Inbox::default(),
            stack: Stack::new(&inner, FIRST_MTU, rng.word()),
            locals: Vec::new(),
            next_local: 0,
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

    /// Makes the node anew, with nothing of its past.
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
        self.node = match &self.spec.system {
            System::Mpip(engine) => {
                let peers = (0..world.hosts.len()).filter(|peer| *peer != index);
                let config = Config {
                    private_key: private_key(index),
                    aes_in_hardware: true,
                    peers: peers.map(|peer| peer_config(world, engine, peer)).collect(),
                    rules: engine.rules.clone(),
                    limits: engine.limits.clone(),
                    parameters: engine.parameters,
                    opportunistic: None,
                };
                let clock = self.spec.clock;
                let engine = Engine::new(config, rng.seed(), clock.at(now), clock.unix_time(now));
                Node::Engine(Box::new(engine))
            }
            System::Plain { remote, .. } => {
                let remote = network.interface(*remote).addresses[0];
                let remote = SocketAddr::new(remote, DEFAULT_PORT);
                self.set_mtu(usize::from(world.interfaces[0].mtu));
                Node::Plain(PathAddress { local: LocalId(0), remote })
            }
        };
        self.update_addresses(index, network, now);
    }

    pub(crate) fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
        self.stack.set_mtu(mtu);
    }

    /// Tells the node which addresses the host has now.
    pub(crate) fn update_addresses(&mut self, index: usize, network: &Network, now: Nanos) {
        if let System::Plain { local, .. } = self.spec.system {
            let address = SocketAddr::new(network.interface(local).addresses[0], DEFAULT_PORT);
            self.locals = vec![Local { id: LocalId(0), interface: local, address }];
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
            let known =
                |local: &Local| (local.interface, local.address.ip()) == (interface, address);
            if self.locals.iter().any(known) {
                continue;
            }
            let address = SocketAddr::new(address, DEFAULT_PORT);
            self.locals.push(Local { id: LocalId(self.next_local), interface, address });
            self.next_local += 1;
        }
        let list = self.locals.iter().map(|local| LocalAddress {
            id: local.id,
            interface: network.interface(local.interface).name.clone(),
            address: local.address,
            mtu: network.interface(local.interface).mtu,
            encapsulation: Encapsulation::Udp,
        });
        let inner = [false, true].map(|v6| inner_address(index, v6));
        let own = self.locals.iter().map(|local| local.address.ip()).chain(inner);
        let commands =
            [Command::OwnAddresses(own.collect()), Command::LocalAddresses(list.collect())];
        for command in commands {
            self.node.handle_command(self.spec.clock.at(now), command);
        }
        self.update_wake();
    }

    pub(crate) fn local(&self, id: LocalId) -> Option<&Local> {
        self.locals.iter().find(|local| local.id == id)
    }

    pub(crate) fn local_at(&self, address: IpAddr) -> Option<&Local> {
        self.locals.iter().find(|local| local.address.ip() == address)
    }

    /// Asks the node when its timer is due.
    pub(crate) fn update_wake(&mut self) {
        self.wake = match self.node.poll_timeout() {
            Some(due) => self.spec.clock.when(due),
            None => NEVER,
        };
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
