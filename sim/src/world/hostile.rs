//! Actions of hostile nodes, and checks of what they must not reach.

use core::net::IpAddr;

use super::World;
use crate::invariant::{Invariant, Standing};
use crate::network::{Carries, Datagram};
use crate::node::Node;
use crate::packet;
use crate::spec::{Mode, System};

impl World {
    /// Sends the datagrams of a hostile node.
    pub(super) fn settle_hostile(&mut self, index: usize) {
        let Node::Hostile(hostile) = &mut self.hosts[index].node else { return };
        for forged in hostile.take() {
            let Some(local) = self.hosts[index].local(forged.to.local).copied() else { continue };
            let Some(source) = forged.source else {
                let ecn = mpip_core::Ecn::NotEct;
                self.transmit(index, forged.to, Carries::Datagram, ecn, &forged.bytes);
                continue;
            };
            let datagram = Datagram {
                carries: Carries::Datagram,
                source,
                destination: forged.to.remote,
                ecn: mpip_core::Ecn::NotEct,
                bytes: forged.bytes,
                genuine: false,
            };
            let _ = self.network.inject(self.now, local.interface, datagram);
        }
    }

    pub(super) fn is_hostile(&self, host: usize) -> bool {
        matches!(self.hosts[host].spec.system, System::Hostile(_))
    }

    /// What host `index` may know about an address.
    pub(super) fn knowledge(&self, index: usize, ip: IpAddr) -> Standing {
        if self.known_addresses.get(&ip).is_some_and(|host| *host != index) {
            return Standing::Known;
        }
        let tells = |system: &System| match system {
            System::Hostile(hostile) => hostile.configured && hostile.target == index,
            System::Mpip(_) | System::Plain { .. } => false,
        };
        let peers = self.hosts.iter().filter(|host| tells(&host.spec.system)).count();
        Standing::Told(peers as u64)
    }

    /// Whether a packet claims to be from a hostile node.
    pub(super) fn is_of_hostile(&self, bytes: &[u8]) -> bool {
        let source = packet::tuple(bytes).and_then(|tuple| self.owner_of(tuple.source.ip()));
        source.is_some_and(|host| self.is_hostile(host))
    }

    /// The host that has an address, inner or outer.
    fn owner_of(&self, ip: IpAddr) -> Option<usize> {
        self.inner_host(ip).or_else(|| self.known_addresses.get(&ip).copied())
    }

    /// Checks that a delivered packet comes from an address that the peer may use and is sent to
    /// this host.
    pub(super) fn check_reach(
        &self,
        index: usize,
        bytes: &[u8],
    ) -> Result<(), (Invariant, String)> {
        let System::Mpip(engine) = &self.hosts[index].spec.system else { return Ok(()) };
        if !self.has_hostile {
            return Ok(());
        }
        // A truncated packet or a fragment has no ports: only its addresses count.
        let ends = packet::tuple(bytes).map(|tuple| (tuple.source.ip(), tuple.destination.ip()));
        let Some((source, destination)) = ends else {
            return Err((Invariant::Reach, "what was delivered is no IP packet".to_owned()));
        };
        let from = match engine.mode {
            Mode::Tunnel => self.inner_host(source),
            Mode::Host(_) | Mode::Opportunistic => self.known_addresses.get(&source).copied(),
        };
        // The packet may have been queued before the host lost the address.
        let own = self.hosts[index].own_addresses(index).contains(&destination)
            || self.held_addresses.contains(&(index, destination));
        if own && from.is_some_and(|host| host != index) {
            return Ok(());
        }
        Err((Invariant::Reach, format!("a packet from {source} to {destination} was delivered")))
    }
}
