//! Setting up the TUN device, its addresses, routes and rules.

use core::fmt;
use core::net::IpAddr;

use mpip_types::Prefix;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{Link, Netlink, NetlinkError, Question, family};

/// The protocol number of our routes and rules (`ip route show proto 109`): what a killed daemon
/// left behind can be told from everybody else's by it.
pub const ROUTE_PROTOCOL: u8 = 0x6d;

/// The interface that packets seem to come from while they are routed for the first time.
const LOOPBACK: &str = "lo";

pub(super) const PROTOCOL: RouteProtocol = RouteProtocol::Other(ROUTE_PROTOCOL);

/// A route that leads to an interface, or to nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destinations.
    pub prefix: Prefix,
    /// The number of the interface; 0 for a route that refuses packets (`unreachable`).
    pub link: u32,
    /// The source address that sockets without one get.
    pub source: Option<IpAddr>,
    /// Packets by this route have at most so many bytes, whatever the interface carries. TCP keeps
    /// to it in its segment size; what the kernel has learnt of the path MTU of its destinations is
    /// forgotten when the route is replaced.
    pub mtu: Option<u32>,
    /// The routing table; 254 is the main one.
    pub table: u32,
    /// Among routes to the same prefix the smallest number counts; 0 lets the kernel choose.
    pub metric: u32,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.link {
            0 => write!(f, "{} by nothing in table {}", self.prefix, self.table),
            link => write!(f, "{} by interface {link} in table {}", self.prefix, self.table),
        }
    }
}

/// A rule that says which table routes which packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutingRule {
    /// For IPv6, otherwise for IPv4.
    pub ipv6: bool,
    /// Smaller numbers are asked first.
    pub priority: u32,
    /// Matches packets of this host that have none of these bits in their mark.
    pub without_mark: u32,
    /// And that have this IP protocol; `None` for all.
    pub protocol: Option<u8>,
    /// And a destination port from the first to the last of these; `None` for all.
    pub ports: Option<(u16, u16)>,
    /// The table that routes them.
    pub table: u32,
}

impl fmt::Display for RoutingRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = if self.ipv6 { "IPv6" } else { "IPv4" };
        write!(f, "{version} priority {}: this host's packets", self.priority)?;
        if let Some(protocol) = self.protocol {
            write!(f, " of protocol {protocol}")?;
        }
        if let Some((first, last)) = self.ports {
            write!(f, " to ports {first} to {last}")?;
        }
        write!(f, " without mark {:#x} use table {}", self.without_mark, self.table)
    }
}

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
    /// router solicitations and group reports by it. To be called before the interface is set up.
    pub fn without_link_local(&mut self, link: &Link) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        message.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])]));
        let operation = format!("switch off IPv6 autoconfiguration of {}", link.name);
        self.change(&operation, RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Notes something of the interface, for people and programs to read: at most 255 bytes.
    pub fn set_alias(&mut self, link: &Link, alias: &str) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        message.attributes.push(LinkAttribute::IfAlias(alias.to_owned()));
        let operation = format!("set the alias of {}", link.name);
        self.change(&operation, RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Deletes the interface, and all that is routed by it with it. It is no error when there is none
    /// such.
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

    /// Gives the interface an address, whose prefix of `prefix_len` bits is routed to it. It is no
    /// error when it has it already.
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
            // There is no neighbour on a TUN device to have the same address.
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        let operation = format!("add the address {address}/{prefix_len} to {}", link.name);
        let message = RouteNetlinkMessage::NewAddress(message);
        self.change(&operation, message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Takes an address from the interface. It is no error when it has none such.
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

    /// Adds a route beside those that there are, whoever has them. It is no error when it exists.
    pub fn add_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        unless(self.new_route(route, NLM_F_CREATE), &[libc::EEXIST])
    }

    /// Adds a route, or replaces the one with the same prefix, table and metric, whoever has it.
    pub fn replace_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        self.new_route(route, NLM_F_CREATE | NLM_F_REPLACE)
    }

    fn new_route(&mut self, route: &Route, flags: u16) -> Result<(), NetlinkError> {
        let operation = format!("add the route to {route}");
        let mut message = route_message(route);
        if let Some(mtu) = route.mtu {
            message.attributes.push(RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)]));
        }
        self.change(&operation, RouteNetlinkMessage::NewRoute(message), flags)
    }

    /// Deletes a route. It is no error when there is none such.
    pub fn delete_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        let operation = format!("delete the route to {route}");
        let result =
            self.change(&operation, RouteNetlinkMessage::DelRoute(route_message(route)), 0);
        unless(result, &[libc::ESRCH])
    }

    /// The source address that a packet with `mark` to `destination` gets from the routes as they
    /// are; `None` when there is no way there.
    pub fn source_toward(
        &mut self,
        destination: IpAddr,
        mark: u32,
    ) -> Result<Option<IpAddr>, NetlinkError> {
        let way = self.way(Question { destination, source: None, mark, bound_to: None })?;
        Ok(way.and_then(|way| way.source))
    }

    /// Our routes in every table, whoever left them. The kernel goes through all that it has.
    pub fn own_routes(&mut self) -> Result<Vec<Route>, NetlinkError> {
        let mut routes = self.list_own_routes(false, None)?;
        routes.extend(self.list_own_routes(true, None)?);
        Ok(routes)
    }

    /// Our routes of one IP version in one table, whoever left them.
    pub fn own_routes_in(&mut self, table: u32, ipv6: bool) -> Result<Vec<Route>, NetlinkError> {
        match self.list_own_routes(ipv6, Some(table)) {
            // A table exists as long as it has routes.
            Err(error) if error.is(libc::ENOENT) => Ok(Vec::new()),
            other => other,
        }
    }

    fn list_own_routes(
        &mut self,
        ipv6: bool,
        table: Option<u32>,
    ) -> Result<Vec<Route>, NetlinkError> {
        let mut routes = Vec::new();
        let mut request = RouteMessage::default();
        request.header.address_family =
            if ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
        // The kernel sends those of others not at all (since Linux 5.0), or they are sorted out here.
        request.header.protocol = PROTOCOL;
        request.attributes.extend(table.map(RouteAttribute::Table));
        self.dump("list the routes", RouteNetlinkMessage::GetRoute(request), |answer| {
            if let RouteNetlinkMessage::NewRoute(message) = answer
                && message.header.protocol == PROTOCOL
            {
                routes.extend(read_route(&message));
            }
        })?;
        routes.retain(|route| table.is_none_or(|table| route.table == table));
        Ok(routes)
    }

    /// Adds a routing rule. It is no error when it exists.
    pub fn add_rule(&mut self, rule: &RoutingRule) -> Result<(), NetlinkError> {
        let operation = format!("add the routing rule {rule}");
        let message = RouteNetlinkMessage::NewRule(rule_message(rule));
        let result = self.change(&operation, message, NLM_F_CREATE | NLM_F_EXCL);
        unless(result, &[libc::EEXIST])
    }

    /// Deletes a routing rule. It is no error when there is none such.
    pub fn delete_rule(&mut self, rule: &RoutingRule) -> Result<(), NetlinkError> {
        let operation = format!("delete the routing rule {rule}");
        let result = self.change(&operation, RouteNetlinkMessage::DelRule(rule_message(rule)), 0);
        unless(result, &[libc::ENOENT])
    }

    /// Our routing rules, whoever left them.
    pub fn own_rules(&mut self) -> Result<Vec<RoutingRule>, NetlinkError> {
        let mut rules = Vec::new();
        let request = RouteNetlinkMessage::GetRule(RuleMessage::default());
        self.dump("list the routing rules", request, |answer| {
            if let RouteNetlinkMessage::NewRule(message) = answer
                && message.attributes.contains(&RuleAttribute::Protocol(PROTOCOL))
            {
                rules.push(read_rule(&message));
            }
        })?;
        Ok(rules)
    }
}

pub(super) fn is_no_route(error: &std::io::Error) -> bool {
    let unreachable = [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EACCES, libc::EINVAL];
    error.raw_os_error().is_some_and(|errno| unreachable.contains(&errno))
}

/// Success also with one of these error numbers.
fn unless(result: Result<(), NetlinkError>, harmless: &[i32]) -> Result<(), NetlinkError> {
    match result {
        Err(error) if harmless.iter().any(|errno| error.is(*errno)) => Ok(()),
        other => other,
    }
}

fn route_message(route: &Route) -> RouteMessage {
    let address = route.prefix.address();
    let mut message = RouteMessage::default();
    message.header.address_family = family(address);
    message.header.destination_prefix_length = route.prefix.prefix_len();
    // The attribute has the number; the header's field is too small for it.
    message.header.table = 0;
    message.header.protocol = PROTOCOL;
    message.header.scope = if address.is_ipv4() { RouteScope::Link } else { RouteScope::Universe };
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![RouteAttribute::Table(route.table)];
    if route.link != 0 {
        message.attributes.push(RouteAttribute::Oif(route.link));
    } else {
        message.header.kind = RouteType::Unreachable;
        message.header.scope = RouteScope::Universe;
    }
    if let Some(source) = route.source {
        message.attributes.push(RouteAttribute::PrefSource(source.into()));
    }
    if route.metric != 0 {
        message.attributes.push(RouteAttribute::Priority(route.metric));
    }
    if route.prefix.prefix_len() > 0 {
        message.attributes.push(RouteAttribute::Destination(address.into()));
    }
    message
}

pub(super) fn read_route(message: &RouteMessage) -> Option<Route> {
    let mut address: IpAddr = match message.header.address_family {
        AddressFamily::Inet => core::net::Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => core::net::Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let (mut link, mut table, mut metric) = (0, message.header.table.into(), 0);
    let (mut source, mut mtu) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(v4)) => address = (*v4).into(),
            RouteAttribute::Destination(RouteAddress::Inet6(v6)) => address = (*v6).into(),
            RouteAttribute::Oif(value) if message.header.kind == RouteType::Unicast => {
                link = *value;
            }
            RouteAttribute::PrefSource(value) => source = ip_address(value),
            RouteAttribute::Metrics(metrics) => {
                mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) => Some(*mtu),
                    _ => None,
                });
            }
            RouteAttribute::Table(value) => table = *value,
            RouteAttribute::Priority(value) => metric = *value,
            _ => {}
        }
    }
    let prefix = Prefix::new(address, message.header.destination_prefix_length)?;
    Some(Route { prefix, link, source, mtu, table, metric })
}

pub(super) fn ip_address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

fn rule_message(rule: &RoutingRule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = if rule.ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::Priority(rule.priority),
        // What this host sends itself seems to come from there.
        RuleAttribute::Iifname(LOOPBACK.to_owned()),
        RuleAttribute::FwMark(0),
        RuleAttribute::FwMask(rule.without_mark),
        RuleAttribute::Table(rule.table),
        RuleAttribute::Protocol(PROTOCOL),
    ];
    let protocol = rule.protocol.map(|protocol| RuleAttribute::IpProtocol(protocol.into()));
    message.attributes.extend(protocol);
    let ports = rule.ports.map(|(start, end)| RulePortRange { start, end });
    message.attributes.extend(ports.map(RuleAttribute::DestinationPortRange));
    message
}

pub(super) fn read_rule(message: &RuleMessage) -> RoutingRule {
    let mut rule = RoutingRule {
        ipv6: message.header.family == AddressFamily::Inet6,
        priority: 0,
        without_mark: 0,
        protocol: None,
        ports: None,
        table: message.header.table.into(),
    };
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(value) => rule.priority = *value,
            RuleAttribute::FwMask(value) => rule.without_mark = *value,
            RuleAttribute::IpProtocol(value) => rule.protocol = Some((*value).into()),
            RuleAttribute::DestinationPortRange(range) => {
                rule.ports = Some((range.start, range.end));
            }
            RuleAttribute::Table(value) => rule.table = *value,
            _ => {}
        }
    }
    rule
}
