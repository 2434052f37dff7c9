//! Host mode: packets that leave and arrive as plain IP.

use core::net::{IpAddr, SocketAddr};

use mpip_core::{Checksum, Ecn, Offload, Policy};

use super::World;
use super::packets::Delivered;
use crate::clock::{NEVER, SECOND};
use crate::invariant::Invariant;
use crate::network::{Carries, Datagram};
use crate::packet;
use crate::spec::{Mode, System};

/// Interval at which the host's connections are reported (as in `mpipd`).
const LOOK: u64 = SECOND;

impl World {
    /// Sends a packet that no route leads to the node as plain IP.
    pub(super) fn send_plain(&mut self, index: usize, bytes: &[u8], offload: Offload) {
        match offload.segmentation {
            Some(segmentation) => {
                for segment in packet::cut(bytes, usize::from(segmentation.size)) {
                    self.transmit_plain(index, &segment);
                }
            }
            None if offload.partial_checksum.is_some() => {
                let mut whole = bytes.to_vec();
                packet::write_checksums(&mut whole);
                self.transmit_plain(index, &whole);
            }
            None => self.transmit_plain(index, bytes),
        }
    }

    /// Sends packets that the node returns as plain IP.
    pub(super) fn settle_plain(&mut self, index: usize) {
        if !self.spec.is_ordinary(index) {
            return;
        }
        let mut plain = core::mem::take(&mut self.given_back);
        self.hosts[index].node.take_plain(&mut plain);
        plain.drain(|bytes, checksum| {
            debug_assert_eq!(checksum, Checksum::Complete);
            self.transmit_plain(index, bytes);
        });
        self.given_back = plain;
    }

    fn transmit_plain(&mut self, index: usize, bytes: &[u8]) {
        let Some(tuple) = packet::tuple(bytes) else { return };
        let (source, destination) = (tuple.source.ip(), tuple.destination.ip());
        if self.must_not_be_plain(index, destination) {
            let detail = format!("{source} to {destination}, {} bytes", bytes.len());
            self.violate(index, (Invariant::NoPlain, detail));
        }
        self.note(|| format!("host {index} plain {source} > {destination} {} bytes", bytes.len()));
        // An address kept on the TUN device has no interface.
        let local = self.hosts[index].locals.iter().find(|local| local.address.ip() == source);
        let Some(interface) = local.map(|local| local.interface) else { return };
        let end = |ip: IpAddr| SocketAddr::new(ip, 0);
        let datagram = Datagram {
            carries: Carries::Packet,
            source: end(source),
            destination: end(destination),
            ecn: Ecn::NotEct,
            bytes: bytes.to_vec(),
            genuine: true,
        };
        // A plain packet may be lost.
        let _ = self.network.send(self.now, interface, datagram);
    }

    /// Whether the policy forbids plain packets to `destination`.
    fn must_not_be_plain(&self, index: usize, destination: IpAddr) -> bool {
        let System::Mpip(engine) = &self.hosts[index].spec.system else { return false };
        // The configuration has the peer's addresses at the start of the world.
        engine.mode == Mode::Host(Policy::Require)
            && engine.knows_peer
            && (0..self.hosts.len())
                .filter(|peer| *peer != index)
                .any(|peer| self.spec.endpoints(peer).iter().any(|end| end.ip() == destination))
    }

    /// A plain packet has arrived at an interface.
    pub(super) fn arrive_plain(&mut self, index: usize, datagram: &Datagram) {
        if !self.spec.is_ordinary(index) {
            return;
        }
        match self.deliver(index, &datagram.bytes, false) {
            Delivered::Reply(reply) => {
                self.send_inner(index, &reply, Offload::default());
                self.settle(index);
            }
            Delivered::Stack => self.run_stack(index),
            Delivered::Done => {}
        }
    }

    /// Reports to opportunistic nodes the destinations of their hosts.
    pub(super) fn look_at_connections(&mut self) {
        if self.next_look > self.now {
            return;
        }
        self.next_look = NEVER;
        for index in 0..self.hosts.len() {
            let System::Mpip(engine) = &self.hosts[index].spec.system else { continue };
            if engine.mode != Mode::Opportunistic {
                continue;
            }
            self.next_look = self.now + LOOK;
            let host = &mut self.hosts[index];
            let now = host.spec.clock.at(self.now);
            for flow in &self.flows {
                let (source, destination) = (flow.shape.source.ip(), flow.shape.destination.ip());
                let runs = flow.spec.start <= self.now && self.now < flow.spec.stop;
                if runs && flow.spec.from == index {
                    host.node.handle_destination(now, source, destination);
                } else if runs && flow.spec.to == index {
                    host.node.handle_destination(now, destination, source);
                }
            }
            self.settle(index);
        }
    }
}
