//! The links and addresses of the host.

use core::net::IpAddr;

use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{Netlink, NetlinkError};

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// The name.
    pub name: String,
    /// Whether it was set up.
    pub up: bool,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// Whether it is a loopback interface.
    pub loopback: bool,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Its hardware address if it is of Ethernet.
    pub ethernet: Option<[u8; 6]>,
    /// The kind of its driver (`veth`, `tun`, `bridge` …), if it has one.
    pub kind: Option<String>,
    /// What somebody noted of it (`ip link set … alias`).
    pub alias: Option<String>,
}

impl Link {
    /// Whether it can send packets.
    pub fn is_running(&self) -> bool {
        self.up && self.carrier
    }
}

/// An address of the host that others can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// Index of the interface that has it.
    pub link: u32,
    /// The address.
    pub address: IpAddr,
    /// Length of the on-link prefix, in bits.
    pub prefix_len: u8,
    /// Whether new connections should not use it (RFC 4862, section 5.5.4).
    pub deprecated: bool,
}

impl Netlink {
    /// All interfaces, by number.
    pub fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let mut links = Vec::new();
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        self.dump("list the network interfaces", request, |answer| {
            if let RouteNetlinkMessage::NewLink(message) = answer {
                links.extend(link(&message));
            }
        })?;
        links.sort_by_key(|link| link.index);
        Ok(links)
    }

    /// The interface with this name.
    pub fn link(&mut self, name: &str) -> Result<Link, NetlinkError> {
        self.links()?.into_iter().find(|link| link.name == name).ok_or_else(|| {
            NetlinkError::new(
                format!("find the network interface {name}"),
                std::io::Error::from_raw_os_error(libc::ENODEV),
            )
        })
    }

    /// The addresses that other hosts can reach, in the kernel's order: none of loopback, host or
    /// link scope, and no IPv6 addresses that are tentative or duplicate.
    pub fn addresses(&mut self) -> Result<Vec<HostAddress>, NetlinkError> {
        let mut addresses = Vec::new();
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        self.dump("list the addresses", request, |answer| {
            if let RouteNetlinkMessage::NewAddress(message) = answer {
                addresses.extend(address(&message));
            }
        })?;
        Ok(addresses)
    }
}

fn link(message: &LinkMessage) -> Option<Link> {
    let flags = message.header.flags;
    let (mut name, mut mtu, mut ethernet, mut kind, mut alias) = (None, None, None, None, None);
    let is_ethernet = message.header.link_layer_type == LinkLayerType::Ether;
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(value) => name = Some(value.clone()),
            LinkAttribute::Mtu(value) => mtu = Some(*value),
            LinkAttribute::Address(value) if is_ethernet => ethernet = value[..].try_into().ok(),
            LinkAttribute::IfAlias(value) => alias = Some(value.clone()),
            LinkAttribute::LinkInfo(infos) => {
                kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(InfoKind::Other(kind)) => Some(kind.clone()),
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Some(Link {
        index: message.header.index,
        name: name?,
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        loopback: flags.contains(LinkFlags::Loopback),
        mtu: mtu?,
        ethernet,
        kind,
        alias,
    })
}

fn address(message: &AddressMessage) -> Option<HostAddress> {
    let (mut local, mut remote) = (None, None);
    let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(value) => local = Some(*value),
            AddressAttribute::Address(value) => remote = Some(*value),
            AddressAttribute::Flags(value) => flags = *value,
            _ => {}
        }
    }
    // On a point-to-point link, `Address` is that of the other end.
    let address = local.or(remote)?;
    let unusable = AddressFlags::Tentative | AddressFlags::Dadfailed;
    // While duplicate address detection runs, an optimistic address may be used (RFC 4429).
    let optimistic = flags.contains(AddressFlags::Optimistic);
    let v6 = message.header.family == AddressFamily::Inet6;
    if v6 && flags.intersects(unusable) && !optimistic {
        return None;
    }
    let scope = message.header.scope;
    if !matches!(scope, AddressScope::Universe | AddressScope::Site | AddressScope::Other(_)) {
        return None;
    }
    is_reachable(address).then_some(HostAddress {
        link: message.header.index,
        address,
        prefix_len: message.header.prefix_len,
        deprecated: v6 && flags.contains(AddressFlags::Deprecated),
    })
}

/// Whether another host can have a route to the address, by its kind alone.
fn is_reachable(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !link_local && !address.is_loopback() && !address.is_unspecified() && !address.is_multicast()
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::address::AddressHeaderFlags;

    use super::*;

    fn message(text: &str, scope: AddressScope, flags: AddressFlags) -> AddressMessage {
        let address: IpAddr = text.parse().expect("valid");
        let mut message = AddressMessage::default();
        message.header.family = super::super::family(address);
        message.header.scope = scope;
        message.header.index = 3;
        message.header.prefix_len = 24;
        message.header.flags = AddressHeaderFlags::from_bits_retain(flags.bits() as u8);
        message.attributes =
            vec![AddressAttribute::Address(address), AddressAttribute::Flags(flags)];
        message
    }

    #[test]
    fn only_addresses_that_others_can_reach_are_taken() {
        use AddressFlags as Flags;
        use AddressScope as Scope;
        let cases = [
            ("198.18.0.1", Scope::Universe, Flags::Permanent, true),
            ("2001:db8::1", Scope::Universe, Flags::Permanent, true),
            ("2001:db8::1", Scope::Universe, Flags::Tentative, false),
            ("2001:db8::1", Scope::Universe, Flags::Tentative | Flags::Optimistic, true),
            ("2001:db8::1", Scope::Universe, Flags::Dadfailed, false),
            ("2001:db8::1", Scope::Universe, Flags::Deprecated, true),
            ("fe80::1", Scope::Link, Flags::Permanent, false),
            ("127.0.0.1", Scope::Host, Flags::Permanent, false),
            ("169.254.1.1", Scope::Link, Flags::Permanent, false),
            ("198.18.0.1", Scope::Link, Flags::Permanent, false),
            ("::1", Scope::Host, Flags::Permanent, false),
        ];
        for (text, scope, flags, expected) in cases {
            let found = address(&message(text, scope, flags));
            assert_eq!(found.is_some(), expected, "{text} {scope} {flags:?}");
        }
    }

    #[test]
    fn the_local_end_of_a_point_to_point_link_is_ours() {
        let mut pair = message("198.18.0.2", AddressScope::Universe, AddressFlags::Permanent);
        let ours: IpAddr = "198.18.0.1".parse().expect("valid");
        pair.attributes.push(AddressAttribute::Local(ours));
        let expected = HostAddress { link: 3, address: ours, prefix_len: 24, deprecated: false };
        assert_eq!(address(&pair), Some(expected));
    }

    #[test]
    fn an_address_that_is_deprecated_is_said_to_be() {
        for (flags, deprecated) in
            [(AddressFlags::Deprecated, true), (AddressFlags::Permanent, false)]
        {
            let found = address(&message("2001:db8::1", AddressScope::Universe, flags));
            assert_eq!(found.map(|found| found.deprecated), Some(deprecated));
        }
    }
}
