//! Relations between addresses.

use core::net::{IpAddr, SocketAddr};

use mpip_types::{Encapsulation, LocalAddress, PathAddress};
use mpip_wire::AddressList;

/// The local address of a path with `address`, if it still exists.
pub(crate) fn local(address: PathAddress, locals: &[LocalAddress]) -> Option<&LocalAddress> {
    locals.iter().find(|local| local.id == address.local)
}

/// Whether two addresses are in one /24 (IPv4) or /64 (IPv6).
pub(crate) fn are_neighbours(one: IpAddr, other: IpAddr) -> bool {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => one.octets()[..3] == other.octets()[..3],
        (IpAddr::V6(one), IpAddr::V6(other)) => one.segments()[..4] == other.segments()[..4],
        _ => false,
    }
}

/// The local UDP address with the same IP address and interface as `local`.
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

/// The addresses that this node advertises: those for UDP, and others where there is no UDP.
pub(crate) fn advertised_addresses(locals: &[LocalAddress]) -> Vec<SocketAddr> {
    let told = |local: &&LocalAddress| {
        local.encapsulation == Encapsulation::Udp || udp_beside(locals, local).is_none()
    };
    locals.iter().filter(told).map(|local| local.address).take(AddressList::MAX).collect()
}

/// Whether other hosts can reach a single host at this address.
pub(crate) fn is_one_host(ip: IpAddr) -> bool {
    let special = match ip {
        IpAddr::V4(ip) => ip.is_broadcast() || ip.is_link_local() || ip.octets()[0] == 0,
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !special && !ip.is_unspecified() && !ip.is_multicast() && !ip.is_loopback()
}

/// The scope of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Everywhere,
    /// Site-local (RFC 1918, RFC 4193): many sites use the same addresses.
    Site,
    /// Carrier-grade NAT (RFC 6598).
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
