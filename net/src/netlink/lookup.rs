//! Lookups for a packet: by which interface, with which source address and to which neighbour it
//! would leave.

use core::net::IpAddr;
use std::io;

use netlink_packet_core::NLM_F_ACK;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteMessage, RouteType, RouteVia};

use super::routes::ip_address;
use super::{Netlink, NetlinkError, family};

/// A packet whose route is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Its destination.
    pub destination: IpAddr,
    /// Its source address, one of this host's; `None` if the socket has none.
    pub source: Option<IpAddr>,
    /// Its mark.
    pub mark: u32,
    /// Index of the interface to which the socket is bound.
    pub bound_to: Option<u32>,
}

/// The route of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Index of the interface by which it leaves.
    pub link: u32,
    /// The source address that it gets.
    pub source: Option<IpAddr>,
    /// The router to which it goes; `None` if its destination is on the link.
    pub gateway: Option<IpAddr>,
}

impl Netlink {
    /// The route of a packet by the current rules and routes; `None` if there is none.
    pub fn way(&mut self, question: Question) -> Result<Option<Way>, NetlinkError> {
        let Question { destination, source, mark, bound_to } = question;
        let bits = |address: IpAddr| if address.is_ipv4() { 32 } else { 128 };
        let mut message = RouteMessage::default();
        message.header.address_family = family(destination);
        message.header.destination_prefix_length = bits(destination);
        if destination.is_ipv4() {
            // Without it, IPv4 answers with the main table; IPv6 tells the table and knows no flag.
            message.header.flags = RouteFlags::LookupTable;
        }
        message.attributes =
            vec![RouteAttribute::Destination(destination.into()), RouteAttribute::Mark(mark)];
        if let Some(source) = source {
            message.header.source_prefix_length = bits(source);
            message.attributes.push(RouteAttribute::Source(source.into()));
        }
        if let Some(link) = bound_to {
            message.attributes.push(RouteAttribute::Oif(link));
        }
        let mut way = None;
        let result = self.request(RouteNetlinkMessage::GetRoute(message), NLM_F_ACK, |answer| {
            if let RouteNetlinkMessage::NewRoute(message) = answer {
                way = read_way(&message);
            }
        });
        match result {
            Ok(()) => Ok(way),
            Err(error) if is_no_route(&error) => Ok(None),
            Err(error) => {
                Err(NetlinkError::new(format!("ask for the route to {destination}"), error))
            }
        }
    }

    /// The hardware address of the neighbour `address` on the interface with index `link`, if the
    /// kernel has it at present and it has 6 bytes.
    pub fn neighbour(
        &mut self,
        link: u32,
        address: IpAddr,
    ) -> Result<Option<[u8; 6]>, NetlinkError> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = link;
        message.attributes = vec![NeighbourAttribute::Destination(address.into())];
        let mut found = None;
        let request = RouteNetlinkMessage::GetNeighbour(message);
        let result = self.request(request, NLM_F_ACK, |answer| {
            if let RouteNetlinkMessage::NewNeighbour(message) = answer {
                found = read_neighbour(&message);
            }
        });
        match result {
            Ok(()) => Ok(found),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(NetlinkError::new(format!("ask for the neighbour {address}"), error)),
        }
    }

    /// The source address that a packet with `mark` to `destination` gets by the current routes;
    /// `None` if there is no route.
    pub fn source_toward(
        &mut self,
        destination: IpAddr,
        mark: u32,
    ) -> Result<Option<IpAddr>, NetlinkError> {
        let way = self.way(Question { destination, source: None, mark, bound_to: None })?;
        Ok(way.and_then(|way| way.source))
    }
}

/// The route in an answer; `None` if it is no unicast route. For a bound IPv4 socket without a
/// route the kernel answers with one in no table, as if the destination were on the link; that is
/// none.
fn read_way(message: &RouteMessage) -> Option<Way> {
    let (mut link, mut source, mut gateway) = (None, None, None);
    let mut table = u32::from(message.header.table);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(value) => link = Some(*value),
            RouteAttribute::PrefSource(value) => source = ip_address(value),
            RouteAttribute::Gateway(value) => gateway = ip_address(value),
            RouteAttribute::Via(RouteVia::Inet6(value)) => gateway = Some((*value).into()),
            RouteAttribute::Table(value) => table = *value,
            _ => {}
        }
    }
    let unicast = message.header.kind == RouteType::Unicast && table != 0;
    link.filter(|_| unicast).map(|link| Way { link, source, gateway })
}

/// The hardware address in an answer, unless the kernel does not know whether it is right.
fn read_neighbour(message: &NeighbourMessage) -> Option<[u8; 6]> {
    use NeighbourState::{Delay, Noarp, Permanent, Probe, Reachable, Stale};
    let known = [Reachable, Stale, Delay, Probe, Permanent, Noarp];
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(address) => address[..].try_into().ok(),
        _ => None,
    });
    address.filter(|_| known.contains(&message.header.state))
}

pub(super) fn is_no_route(error: &io::Error) -> bool {
    let unreachable = [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EACCES, libc::EINVAL];
    error.raw_os_error().is_some_and(|errno| unreachable.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_this_host_itself_is_no_unicast_route() {
        let mut netlink = Netlink::new().expect("a socket");
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let question = Question { destination: loopback, source: None, mark: 0, bound_to: None };
        assert_eq!(netlink.way(question).expect("an answer"), None);
    }
}
