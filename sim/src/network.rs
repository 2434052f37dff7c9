//! The network between the hosts: interfaces, routes over links, address translation.
//!
//! A route from one interface to another is a list of links, so that disjoint links, a switch
//! (each interface's own link up and down) and a shared bottleneck are all the same thing.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use mpip_core::Ecn;
use mpip_link::{Change, Counters, Link, LinkConfig, flip_bit};
use mpip_segments::segment;

use crate::clock::{NEVER, Nanos};
use crate::nat::{Nat, NatSpec};
use crate::packet;

/// The kind of an outer IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// A UDP datagram; its bytes are the payload.
    Datagram,
    /// A TCP segment, with its header.
    Segment,
    /// A plain packet, not of mpip; its bytes are the whole packet.
    Packet,
}

impl Carries {
    /// Bytes of the headers that are not part of `bytes`, for the destination `address`.
    pub fn header(self, address: IpAddr) -> usize {
        match self {
            Self::Datagram => packet::ip_header_len(address) + 8,
            Self::Segment => packet::ip_header_len(address),
            Self::Packet => 0,
        }
    }
}

/// An outer packet in flight.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// Its kind.
    pub carries: Carries,
    /// Source as the network sees it.
    pub source: SocketAddr,
    /// Destination as the network sees it.
    pub destination: SocketAddr,
    /// ECN field of the outer IP header.
    pub ecn: Ecn,
    /// Its bytes; see [`carries`](Self::carries).
    pub bytes: Vec<u8>,
    /// False for packets of an attacker.
    pub genuine: bool,
}

impl Datagram {
    /// Bytes of the IP packet.
    pub fn packet_len(&self) -> usize {
        self.bytes.len() + self.carries.header(self.destination.ip())
    }

    /// A NAT replaces its source or destination.
    fn translate(&mut self, to: SocketAddr, is_source: bool) {
        let (from, port_at) = match is_source {
            true => (core::mem::replace(&mut self.source, to), 0),
            false => (core::mem::replace(&mut self.destination, to), 2),
        };
        let other = if is_source { self.destination } else { self.source };
        if self.carries == Carries::Segment
            && self.bytes.len() >= 20
            && segment::is_intact(from, other, &self.bytes)
        {
            self.bytes[port_at..port_at + 2].copy_from_slice(&to.port().to_be_bytes());
            segment::seal(to, other, &mut self.bytes);
        }
    }
}

/// A datagram with its route.
#[derive(Clone, Debug)]
struct Transit {
    datagram: Datagram,
    from: usize,
    to: usize,
    hop: usize,
}

/// An interface of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct InterfaceSpec {
    /// Index of the host.
    pub host: usize,
    /// Its name, as `eth0`.
    pub name: String,
    /// Its addresses when the world begins.
    pub addresses: Vec<IpAddr>,
    /// Largest IP packet, in bytes.
    pub mtu: u16,
    /// The NAT in front of this interface, if there is one.
    pub nat: Option<NatSpec>,
}

/// A datagram that reached its destination.
#[derive(Debug)]
pub struct Arrival {
    /// Index of the interface.
    pub interface: usize,
    /// The datagram as the host sees it, translated back.
    pub datagram: Datagram,
}

/// Why a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The source is no address of the host.
    NoSuchSource,
    /// The destination does not exist, or there is no route to it.
    Unreachable,
    /// The first link dropped it.
    Dropped,
}

/// All interfaces, links and routes.
pub struct Network {
    interfaces: Vec<Interface>,
    links: Vec<Link<Transit>>,
    wakes: Vec<Nanos>,
    routes: BTreeMap<(usize, usize), Vec<usize>>,
    owners: BTreeMap<IpAddr, usize>,
    /// Interfaces in front of which a firewall drops UDP.
    without_udp: BTreeSet<usize>,
    spare: Vec<Vec<u8>>,
}

struct Interface {
    spec: InterfaceSpec,
    nat: Option<Nat>,
}

/// Buffers of delivered datagrams kept for reuse.
const SPARE_BUFFERS: usize = 256;

impl Network {
    /// An idle network. `seed` decides the random behaviour of the links.
    pub fn new(
        interfaces: &[InterfaceSpec],
        links: &[LinkConfig],
        routes: &BTreeMap<(usize, usize), Vec<usize>>,
        seed: u64,
    ) -> Self {
        let mut network = Self {
            interfaces: interfaces
                .iter()
                .map(|spec| Interface { spec: spec.clone(), nat: spec.nat.clone().map(Nat::new) })
                .collect(),
            links: links
                .iter()
                .zip(0u64..)
                .map(|(config, index)| {
                    Link::new(config.clone(), seed.wrapping_add(index.wrapping_mul(0x9e37_79b9)))
                })
                .collect(),
            wakes: vec![NEVER; links.len()],
            routes: routes.clone(),
            owners: BTreeMap::new(),
            without_udp: BTreeSet::new(),
            spare: Vec::new(),
        };
        network.update_owners();
        network
    }

    fn update_owners(&mut self) {
        self.owners.clear();
        for (index, interface) in self.interfaces.iter().enumerate() {
            match &interface.nat {
                Some(nat) => {
                    self.owners.insert(nat.external(), index);
                }
                None => {
                    for address in &interface.spec.addresses {
                        self.owners.insert(*address, index);
                    }
                }
            }
        }
    }

    /// The current state of an interface.
    pub fn interface(&self, index: usize) -> &InterfaceSpec {
        &self.interfaces[index].spec
    }

    /// All interfaces, in order.
    pub fn interfaces(&self) -> impl Iterator<Item = &InterfaceSpec> {
        self.interfaces.iter().map(|interface| &interface.spec)
    }

    /// The interface with the address `address`, and its host.
    pub fn owner(&self, address: IpAddr) -> Option<(usize, usize)> {
        let index = *self.owners.get(&address)?;
        Some((index, self.interfaces[index].spec.host))
    }

    /// The address at which the rest of the network sees an interface's `address`.
    pub fn seen_as(&self, index: usize, address: IpAddr) -> IpAddr {
        self.interfaces[index].nat.as_ref().map_or(address, Nat::external)
    }

    /// Whether a route leads from one interface to another.
    pub fn has_route(&self, from: usize, to: usize) -> bool {
        self.routes.contains_key(&(from, to))
    }

    /// Whether an interface is behind a NAT, so that others cannot open paths to it.
    pub fn is_behind_nat(&self, index: usize) -> bool {
        self.interfaces[index].nat.is_some()
    }

    /// Gives an interface an address.
    pub fn add_address(&mut self, index: usize, address: IpAddr) {
        let addresses = &mut self.interfaces[index].spec.addresses;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
        self.update_owners();
    }

    /// Takes an address from an interface; datagrams to it are lost from now on.
    pub fn remove_address(&mut self, index: usize, address: IpAddr) {
        self.interfaces[index].spec.addresses.retain(|held| *held != address);
        self.update_owners();
    }

    /// Clears the mappings of an interface's NAT. With `external` it also gets another external
    /// address.
    pub fn rebind(&mut self, index: usize, external: Option<IpAddr>) {
        if let Some(nat) = &mut self.interfaces[index].nat {
            nat.rebind(external);
        }
        self.update_owners();
    }

    /// A firewall in front of an interface drops UDP, in both directions, or lets it pass.
    pub fn block_udp(&mut self, index: usize, blocked: bool) {
        match blocked {
            true => self.without_udp.insert(index),
            false => self.without_udp.remove(&index),
        };
    }

    /// Whether UDP is dropped in front of an interface.
    pub fn blocks_udp(&self, index: usize) -> bool {
        self.without_udp.contains(&index)
    }

    /// Number of links.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// The settings of a link.
    pub fn link_config(&self, link: usize) -> &LinkConfig {
        self.links[link].config()
    }

    /// Counters of a link.
    pub fn link_counters(&self, link: usize) -> &Counters {
        self.links[link].counters()
    }

    /// Bytes in the queue of a link, link overhead included.
    pub fn queued_bytes(&self, link: usize) -> u64 {
        self.links[link].queued_bytes()
    }

    /// Changes a link.
    pub fn change_link(&mut self, now: Nanos, link: usize, change: &Change) {
        self.links[link].apply(Duration::from_nanos(now), change);
        self.update_wake(link);
    }

    /// Replaces the settings of a link.
    pub fn set_link(&mut self, now: Nanos, link: usize, config: LinkConfig) {
        self.links[link].set_config(Duration::from_nanos(now), config);
        self.update_wake(link);
    }

    fn update_wake(&mut self, link: usize) {
        self.wakes[link] = self.links[link]
            .poll_at()
            .map_or(NEVER, |at| u64::try_from(at.as_nanos()).unwrap_or(NEVER));
    }

    /// When the next link has something to deliver.
    pub fn next_wake(&self) -> Nanos {
        self.wakes.iter().copied().min().unwrap_or(NEVER)
    }

    /// An empty buffer for a datagram.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Sends a datagram from an interface. Passes it to `watch` as the network sees it, before the
    /// first link processes it.
    ///
    /// # Errors
    /// Why it went nowhere.
    pub fn send(
        &mut self,
        now: Nanos,
        from: usize,
        mut datagram: Datagram,
    ) -> Result<(), SendError> {
        let interface = &mut self.interfaces[from];
        if !interface.spec.addresses.contains(&datagram.source.ip()) {
            return Err(SendError::NoSuchSource);
        }
        if let Some(nat) = &mut interface.nat {
            let source = nat.outbound(now, datagram.source, datagram.destination);
            datagram.translate(source, true);
        }
        self.route(now, from, datagram)
    }

    /// Sends a datagram with any source, as an attacker beside the interface `from` would.
    ///
    /// # Errors
    /// Why it went nowhere.
    pub fn inject(&mut self, now: Nanos, from: usize, datagram: Datagram) -> Result<(), SendError> {
        self.route(now, from, datagram)
    }

    fn route(&mut self, now: Nanos, from: usize, datagram: Datagram) -> Result<(), SendError> {
        let Some(&to) = self.owners.get(&datagram.destination.ip()) else {
            return Err(SendError::Unreachable);
        };
        if !self.routes.contains_key(&(from, to)) {
            return Err(SendError::Unreachable);
        }
        if datagram.carries == Carries::Datagram && self.without_udp.contains(&from) {
            return Err(SendError::Dropped);
        }
        let len = datagram.packet_len();
        let transit = Transit { datagram, from, to, hop: 0 };
        self.enter(now, transit, len)
    }

    fn enter(&mut self, now: Nanos, transit: Transit, len: usize) -> Result<(), SendError> {
        let link = self.routes[&(transit.from, transit.to)][transit.hop];
        let entered = self.links[link].enqueue(Duration::from_nanos(now), len, transit);
        self.update_wake(link);
        entered.map_err(|_| SendError::Dropped)
    }

    /// Advances the network to `now`; datagrams at their destination are added to `arrivals`.
    pub fn advance(&mut self, now: Nanos, arrivals: &mut Vec<Arrival>) {
        for link in 0..self.links.len() {
            if self.wakes[link] > now {
                continue;
            }
            while let Some(delivery) = self.links[link].poll(Duration::from_nanos(now)) {
                let mut transit = delivery.packet;
                if let Some(word) = delivery.corrupt {
                    flip_bit(&mut transit.datagram.bytes, word);
                }
                transit.hop += 1;
                if transit.hop < self.routes[&(transit.from, transit.to)].len() {
                    // A drop is counted by the link itself.
                    let _ = self.enter(now, transit, delivery.len);
                } else if let Some(arrival) = self.arrive(now, transit) {
                    arrivals.push(arrival);
                }
            }
            self.update_wake(link);
        }
    }

    fn arrive(&mut self, now: Nanos, transit: Transit) -> Option<Arrival> {
        let mut datagram = transit.datagram;
        if datagram.carries == Carries::Datagram && self.without_udp.contains(&transit.to) {
            return None;
        }
        let interface = &mut self.interfaces[transit.to];
        if let Some(nat) = &mut interface.nat {
            let destination = nat.inbound(now, datagram.source, datagram.destination)?;
            datagram.translate(destination, false);
        }
        if !interface.spec.addresses.contains(&datagram.destination.ip()) {
            return None;
        }
        Some(Arrival { interface: transit.to, datagram })
    }

    /// Number of packets in all links.
    pub fn in_flight(&self) -> usize {
        self.links.iter().map(|link| link.in_flight() + link.queued_packets()).sum()
    }
}
