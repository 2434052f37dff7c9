//! Settings of interfaces: up, MTU, addresses.

use core::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkMessage,
};

use super::inventory::Link;
use super::{Netlink, NetlinkError, family, unless};

impl Netlink {
    /// Sets the interface up.
    pub fn set_up(&mut self, link: &Link) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        let operation = format!("set {} up", link.name);
        self.change(&operation, RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Keeps the kernel from giving the interface a link-local IPv6 address, and so from sending
    /// router solicitations and group reports. Call it before the interface is set up.
    pub fn without_link_local(&mut self, link: &Link) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        message.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])]));
        let operation = format!("switch off IPv6 autoconfiguration of {}", link.name);
        self.change(&operation, RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Sets a text about the interface for people and programs to read, of at most 255 bytes.
    pub fn set_alias(&mut self, link: &Link, alias: &str) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        message.attributes.push(LinkAttribute::IfAlias(alias.to_owned()));
        let operation = format!("set the alias of {}", link.name);
        self.change(&operation, RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Deletes the interface, and with it all routes by it. It is no error if there is none.
    pub fn delete_link(&mut self, link: &Link) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        let operation = format!("delete {}", link.name);
        let result = self.change(&operation, RouteNetlinkMessage::DelLink(message), 0);
        unless(result, &[libc::ENODEV])
    }

    /// Sets the interface's MTU in bytes.
    pub fn set_mtu(&mut self, link: &Link, mtu: u32) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        message.attributes.push(LinkAttribute::Mtu(mtu));
        let operation = format!("set the MTU of {} to {mtu}", link.name);
        self.change(&operation, RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Sets how many frames the interface's queue holds.
    pub fn set_queue_len(&mut self, link: &Link, frames: u32) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        message.attributes.push(LinkAttribute::TxQueueLen(frames));
        let operation = format!("set the queue length of {} to {frames}", link.name);
        self.change(&operation, RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Gives the interface an address, and a route to its prefix of `prefix_len` bits. It is no
    /// error if the interface has the address.
    pub fn add_address(
        &mut self,
        link: &Link,
        address: IpAddr,
        prefix_len: u8,
    ) -> Result<(), NetlinkError> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix_len;
        message.header.index = link.index;
        message.attributes =
            vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        if address.is_ipv6() {
            use netlink_packet_route::address::AddressFlags;
            // A TUN device has no neighbours that could have the same address.
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        let operation = format!("add the address {address}/{prefix_len} to {}", link.name);
        let message = RouteNetlinkMessage::NewAddress(message);
        self.change(&operation, message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Removes an address from the interface. It is no error if it does not have it.
    pub fn remove_address(
        &mut self,
        link: &Link,
        address: IpAddr,
        prefix_len: u8,
    ) -> Result<(), NetlinkError> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix_len;
        message.header.index = link.index;
        message.attributes = vec![AddressAttribute::Local(address)];
        let operation = format!("remove the address {address}/{prefix_len} from {}", link.name);
        let result = self.change(&operation, RouteNetlinkMessage::DelAddress(message), 0);
        unless(result, &[libc::EADDRNOTAVAIL])
    }
}
