//! What others have set up on the host: routing rules, default routes and where packets would go.
//! To be judged, not to be changed.

use core::net::IpAddr;

use mpip_types::Prefix;
use netlink_packet_core::NLM_F_ACK;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::configure::{PROTOCOL, ip_address, is_no_route};
use super::{Netlink, NetlinkError, family};

/// A routing rule of anybody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleEntry {
    /// For IPv6, otherwise for IPv4.
    pub ipv6: bool,
    /// Smaller numbers are asked first.
    pub priority: u32,
    /// Source addresses that it is for.
    pub source: Option<Prefix>,
    /// Destinations that it is for.
    pub destination: Option<Prefix>,
    /// The interface that packets come in by; `lo` for what this host sends.
    pub input: Option<String>,
    /// The interface to which the sending socket is bound.
    pub output: Option<String>,
    /// The mark that packets have, and which of its bits count.
    pub mark: Option<(u32, u32)>,
    /// It matches what its conditions do not.
    pub inverted: bool,
    /// The table that routes what matches; `None` when the rule refuses it or leads elsewhere.
    pub table: Option<u32>,
    /// It is one of ours, whoever left it.
    pub own: bool,
}

/// A default route in any table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultRoute {
    /// For IPv6, otherwise for IPv4.
    pub ipv6: bool,
    /// The number of the interface.
    pub link: u32,
    /// The router, if it is not the link itself.
    pub gateway: Option<IpAddr>,
    /// Smaller numbers are preferred.
    pub metric: u32,
    /// The routing table; 254 is the main one.
    pub table: u32,
}

/// A packet whose way is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Where it goes.
    pub destination: IpAddr,
    /// Its source address, which is one of the host's, if the socket has one.
    pub source: Option<IpAddr>,
    /// Its mark.
    pub mark: u32,
    /// The number of the interface to which the socket is bound.
    pub bound_to: Option<u32>,
}

/// The way of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The number of the interface by which it leaves.
    pub link: u32,
    /// The source address that it gets.
    pub source: Option<IpAddr>,
}

impl Netlink {
    /// All routing rules, in the order in which they are asked, those for IPv4 first.
    pub fn rules(&mut self) -> Result<Vec<RuleEntry>, NetlinkError> {
        let mut rules = Vec::new();
        let request = RouteNetlinkMessage::GetRule(RuleMessage::default());
        self.dump("list the routing rules", request, |answer| {
            if let RouteNetlinkMessage::NewRule(message) = answer {
                rules.extend(rule(&message));
            }
        })?;
        rules.sort_by_key(|rule| (rule.ipv6, rule.priority));
        Ok(rules)
    }

    /// The default routes of all tables.
    pub fn default_routes(&mut self) -> Result<Vec<DefaultRoute>, NetlinkError> {
        let mut routes = Vec::new();
        let request = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        self.dump("list the routes", request, |answer| {
            if let RouteNetlinkMessage::NewRoute(message) = answer {
                default_routes(&message, &mut routes);
            }
        })?;
        Ok(routes)
    }

    /// The way of a packet by the rules and routes as they are; `None` when there is none.
    pub fn way(&mut self, question: Question) -> Result<Option<Way>, NetlinkError> {
        let Question { destination, source, mark, bound_to } = question;
        let bits = |address: IpAddr| if address.is_ipv4() { 32 } else { 128 };
        let mut message = RouteMessage::default();
        message.header.address_family = family(destination);
        message.header.destination_prefix_length = bits(destination);
        message.header.flags = RouteFlags::LookupTable;
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
}

/// `None` for what is no unicast route. Neither is what the kernel answers for IPv4 where a bound
/// socket has no route: it names no table and hopes that the destination is on the link.
fn read_way(message: &RouteMessage) -> Option<Way> {
    let (mut link, mut source) = (None, None);
    let mut table = u32::from(message.header.table);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(value) => link = Some(*value),
            RouteAttribute::PrefSource(value) => source = ip_address(value),
            RouteAttribute::Table(value) => table = *value,
            _ => {}
        }
    }
    let unicast = message.header.kind == RouteType::Unicast && table != 0;
    link.filter(|_| unicast).map(|link| Way { link, source })
}

fn rule(message: &RuleMessage) -> Option<RuleEntry> {
    let header = &message.header;
    let ipv6 = match header.family {
        AddressFamily::Inet => false,
        AddressFamily::Inet6 => true,
        _ => return None,
    };
    let mut rule = RuleEntry {
        ipv6,
        inverted: header.flags.contains(RuleFlags::Invert),
        table: Some(header.table.into()),
        ..RuleEntry::default()
    };
    let (mut mark, mut mask) = (None, u32::MAX);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(value) => rule.priority = *value,
            RuleAttribute::Source(value) => rule.source = Prefix::new(*value, header.src_len),
            RuleAttribute::Destination(value) => {
                rule.destination = Prefix::new(*value, header.dst_len);
            }
            RuleAttribute::Iifname(value) => rule.input = Some(value.clone()),
            RuleAttribute::Oifname(value) => rule.output = Some(value.clone()),
            RuleAttribute::FwMark(value) => mark = Some(*value),
            RuleAttribute::FwMask(value) => mask = *value,
            RuleAttribute::Table(value) => rule.table = Some(*value),
            RuleAttribute::Protocol(value) => rule.own = *value == PROTOCOL,
            _ => {}
        }
    }
    rule.mark = mark.map(|mark| (mark, mask));
    rule.table = rule.table.filter(|_| header.action == RuleAction::ToTable);
    Some(rule)
}

fn default_routes(message: &RouteMessage, routes: &mut Vec<DefaultRoute>) {
    let header = &message.header;
    let ipv6 = match header.address_family {
        AddressFamily::Inet => false,
        AddressFamily::Inet6 => true,
        _ => return,
    };
    if header.destination_prefix_length != 0 || header.kind != RouteType::Unicast {
        return;
    }
    let (mut link, mut router, mut metric) = (None, None, 0);
    let mut table = u32::from(header.table);
    let mut hops = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(value) => link = Some(*value),
            RouteAttribute::Priority(value) => metric = *value,
            RouteAttribute::Table(value) => table = *value,
            RouteAttribute::MultiPath(list) => {
                for hop in list {
                    hops.push((hop.interface_index, gateway(&hop.attributes)));
                }
            }
            _ => router = router.or_else(|| gateway(core::slice::from_ref(attribute))),
        }
    }
    hops.extend(link.map(|link| (link, router)));
    routes.extend(hops.into_iter().map(|(link, gateway)| DefaultRoute {
        ipv6,
        link,
        gateway,
        metric,
        table,
    }));
}

fn gateway(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(v4)) => Some((*v4).into()),
        RouteAttribute::Gateway(RouteAddress::Inet6(v6)) => Some((*v6).into()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_rules_are_among_them() {
        let rules = Netlink::new().and_then(|mut netlink| netlink.rules()).expect("a list");
        let local = |rule: &&RuleEntry| !rule.ipv6 && rule.table == Some(255);
        let local = rules.iter().find(local).expect("table local");
        assert_eq!((local.source, local.mark, local.inverted), (None, None, false));
    }

    #[test]
    fn the_way_to_this_host_itself_is_no_unicast_route() {
        let mut netlink = Netlink::new().expect("a socket");
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let question = Question { destination: loopback, source: None, mark: 0, bound_to: None };
        assert_eq!(netlink.way(question).expect("an answer"), None);
    }

    #[test]
    fn every_hop_of_a_default_route_is_one() {
        use netlink_packet_route::route::RouteNextHop;
        let hop = |index, last| {
            let mut hop = RouteNextHop::default();
            hop.interface_index = index;
            let router = RouteAddress::Inet([198, 18, 0, last].into());
            hop.attributes = vec![RouteAttribute::Gateway(router)];
            hop
        };
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.kind = RouteType::Unicast;
        message.header.table = 254;
        message.attributes = vec![RouteAttribute::MultiPath(vec![hop(2, 1), hop(3, 9)])];
        let mut routes = Vec::new();
        default_routes(&message, &mut routes);
        let found: Vec<_> = routes.iter().map(|route| (route.link, route.gateway)).collect();
        let router = |last| Some(IpAddr::from([198, 18, 0, last]));
        assert_eq!(found, [(2, router(1)), (3, router(9))]);
        message.header.destination_prefix_length = 8;
        default_routes(&message, &mut routes);
        assert_eq!(routes.len(), 2);
    }
}
