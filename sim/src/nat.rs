//! Network address translation in front of an interface (RFC 4787).

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use crate::clock::Nanos;

/// The behaviour of a NAT.
#[derive(Clone, Debug, PartialEq)]
pub struct NatSpec {
    /// The address that the others see.
    pub external: IpAddr,
    /// First external port that it hands out.
    pub first_port: u16,
    /// Whether mapping and filtering depend on the remote address and port (a "symmetric" NAT);
    /// otherwise both are endpoint-independent.
    pub dependent: bool,
    /// Time without an outbound datagram after which a mapping expires.
    pub lifetime: Nanos,
    /// Whether a new mapping gets the port of the expired one, so that peers do not notice.
    pub preserves: bool,
}

/// The remote end, where mappings depend on it.
type Remote = Option<SocketAddr>;

/// The state of a NAT.
#[derive(Clone, Debug)]
pub(crate) struct Nat {
    spec: NatSpec,
    next_port: u16,
    outbound: BTreeMap<(SocketAddr, Remote), (u16, Nanos)>,
    inbound: BTreeMap<(u16, Remote), (SocketAddr, Nanos)>,
}

impl Nat {
    pub(crate) fn new(spec: NatSpec) -> Self {
        let next_port = spec.first_port;
        Self { spec, next_port, outbound: BTreeMap::new(), inbound: BTreeMap::new() }
    }

    pub(crate) fn external(&self) -> IpAddr {
        self.spec.external
    }

    /// Forgets all mappings. New ones get new ports.
    pub(crate) fn rebind(&mut self, external: Option<IpAddr>) {
        self.outbound.clear();
        self.inbound.clear();
        if let Some(external) = external {
            self.spec.external = external;
        }
    }

    /// The external source of a datagram from `source` to `destination`.
    pub(crate) fn outbound(
        &mut self,
        now: Nanos,
        source: SocketAddr,
        destination: SocketAddr,
    ) -> SocketAddr {
        let remote = self.spec.dependent.then_some(destination);
        let known = self.outbound.get(&(source, remote)).copied();
        let port = match known {
            Some((port, expires)) if expires > now || self.spec.preserves => port,
            _ => {
                let port = self.next_port;
                self.next_port = self.next_port.checked_add(1).unwrap_or(self.spec.first_port);
                port
            }
        };
        let expires = now.saturating_add(self.spec.lifetime);
        self.outbound.insert((source, remote), (port, expires));
        self.inbound.insert((port, remote), (source, expires));
        SocketAddr::new(self.spec.external, port)
    }

    /// The internal destination of an inbound datagram, if a mapping permits it.
    pub(crate) fn inbound(
        &mut self,
        now: Nanos,
        source: SocketAddr,
        destination: SocketAddr,
    ) -> Option<SocketAddr> {
        let remote = self.spec.dependent.then_some(source);
        let (internal, expires) = *self.inbound.get(&(destination.port(), remote))?;
        (expires > now && destination.ip() == self.spec.external).then_some(internal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nat(dependent: bool) -> Nat {
        Nat::new(NatSpec {
            external: "198.18.9.9".parse().unwrap(),
            first_port: 40_000,
            dependent,
            lifetime: 100,
            preserves: false,
        })
    }

    #[test]
    fn a_preserved_port_lets_nothing_in_between() {
        let (inside, peer) =
            ("192.168.1.2:6182".parse().unwrap(), "198.18.1.1:6182".parse().unwrap());
        let mut nat = nat(false);
        nat.spec.preserves = true;
        let outside = nat.outbound(0, inside, peer);
        assert_eq!(nat.inbound(100, peer, outside), None);
        assert_eq!(nat.outbound(150, inside, peer), outside);
        assert_eq!(nat.inbound(249, peer, outside), Some(inside));
    }

    #[test]
    fn answers_find_the_way_back_until_the_mapping_expires() {
        let (inside, peer) =
            ("192.168.1.2:6182".parse().unwrap(), "198.18.1.1:6182".parse().unwrap());
        let mut nat = nat(false);
        let outside = nat.outbound(0, inside, peer);
        assert_eq!(outside, "198.18.9.9:40000".parse().unwrap());
        assert_eq!(nat.inbound(99, peer, outside), Some(inside));
        assert_eq!(nat.inbound(100, peer, outside), None);
        assert_ne!(nat.outbound(100, inside, peer), outside);
    }

    #[test]
    fn a_dependent_nat_lets_only_the_called_one_answer() {
        let inside = "192.168.1.2:6182".parse().unwrap();
        let (one, other) = ("198.18.1.1:6182".parse().unwrap(), "198.18.1.2:6182".parse().unwrap());
        let mut dependent = nat(true);
        let outside = dependent.outbound(0, inside, one);
        assert_eq!(dependent.inbound(1, other, outside), None);
        assert_ne!(dependent.outbound(0, inside, other), outside);
        let mut independent = nat(false);
        let outside = independent.outbound(0, inside, one);
        assert_eq!(independent.inbound(1, other, outside), Some(inside));
        assert_eq!(independent.outbound(0, inside, other), outside);
    }

    #[test]
    fn a_rebound_nat_knows_no_old_mapping() {
        let (inside, peer) =
            ("192.168.1.2:6182".parse().unwrap(), "198.18.1.1:6182".parse().unwrap());
        let mut nat = nat(false);
        let before = nat.outbound(0, inside, peer);
        nat.rebind(Some("198.18.9.10".parse().unwrap()));
        assert_eq!(nat.inbound(1, peer, before), None);
        let after = nat.outbound(1, inside, peer);
        assert_eq!(after.ip(), nat.external());
        assert_ne!(after.port(), before.port());
    }
}
