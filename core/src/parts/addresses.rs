//! What addresses are to each other.

use core::net::{IpAddr, SocketAddr};

use mpip_types::{Encapsulation, LocalAddress, PathAddress};
use mpip_wire::AddressList;

/// The address of ours at which a path with `address` starts, if there still is one.
pub(crate) fn local(address: PathAddress, locals: &[LocalAddress]) -> Option<&LocalAddress> {
    locals.iter().find(|local| local.id == address.local)
}

/// Whether two addresses are in one network, as networks usually are.
pub(crate) fn are_neighbours(one: IpAddr, other: IpAddr) -> bool {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => one.octets()[..3] == other.octets()[..3],
        (IpAddr::V6(one), IpAddr::V6(other)) => one.segments()[..4] == other.segments()[..4],
        _ => false,
    }
}

/// The address for UDP that is the same as `local`'s.
pub(crate) fn udp_beside<'a>(
    locals: &'a [LocalAddress],
    local: &LocalAddress,
) -> Option<&'a LocalAddress> {
    locals.iter().find(|other| {
        other.encapsulation == Encapsulation::Udp
            && other.interface == local.interface
            && other.address.ip() == local.address.ip()
    })
}

/// The addresses of this node that the peer is told: those for UDP, others where there are none.
pub(crate) fn told_addresses(locals: &[LocalAddress]) -> Vec<SocketAddr> {
    let told = |local: &&LocalAddress| {
        local.encapsulation == Encapsulation::Udp || udp_beside(locals, local).is_none()
    };
    locals.iter().filter(told).map(|local| local.address).take(AddressList::MAX).collect()
}

/// Whether an address can be that of one host, for others.
pub(crate) fn is_one_host(ip: IpAddr) -> bool {
    let special = match ip {
        IpAddr::V4(ip) => ip.is_broadcast() || ip.is_link_local() || ip.octets()[0] == 0,
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !special && !ip.is_unspecified() && !ip.is_multicast() && !ip.is_loopback()
}

/// How far an address reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Everywhere,
    /// A site's own (RFC 1918, RFC 4193): many have the same.
    Site,
    /// Between a provider's translators and its customers (RFC 6598).
    Provider,
}

impl Scope {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(ip) if ip.is_private() => Self::Site,
            IpAddr::V4(ip) if ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64 => {
                Self::Provider
            }
            IpAddr::V6(ip) if ip.is_unique_local() => Self::Site,
            _ => Self::Everywhere,
        }
    }
}
