//! Routes: ours, and the default routes of the host.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mpip_types::Prefix;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{Netlink, NetlinkError, family, unless};

/// The protocol number of our routes and rules (`ip route show proto 109`). By it those of a killed
/// daemon are told from everybody else's.
pub const ROUTE_PROTOCOL: u8 = 0x6d;

pub(super) const PROTOCOL: RouteProtocol = RouteProtocol::Other(ROUTE_PROTOCOL);

/// A route to an interface, or one that refuses packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destinations.
    pub prefix: Prefix,
    /// Index of the interface; 0 for a route that refuses packets (`unreachable`).
    pub link: u32,
    /// Source address for sockets that have none.
    pub source: Option<IpAddr>,
    /// MTU of this route in bytes, in place of that of the interface. TCP takes its segment size
    /// from it. When the route is replaced, the kernel forgets the path MTUs that it has learnt.
    pub mtu: Option<u32>,
    /// The routing table; 254 is the main one.
    pub table: u32,
    /// Of routes to the same prefix, the one with the lowest metric counts; 0 lets the kernel
    /// choose.
    pub metric: u32,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.link {
            0 => write!(f, "{} (unreachable) in table {}", self.prefix, self.table),
            link => write!(f, "{} by interface {link} in table {}", self.prefix, self.table),
        }
    }
}

/// A default route in any table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultRoute {
    /// Whether it is for IPv6, else for IPv4.
    pub ipv6: bool,
    /// Index of the interface.
    pub link: u32,
    /// The router, if there is one.
    pub gateway: Option<IpAddr>,
    /// The route with the lowest metric is preferred.
    pub metric: u32,
    /// The routing table; 254 is the main one.
    pub table: u32,
}

impl Netlink {
    /// Adds a route beside those that exist, whoever made them. It is no error if it exists.
    pub fn add_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        unless(self.new_route(route, NLM_F_CREATE), &[libc::EEXIST])
    }

    /// Adds a route, or replaces the one with the same prefix, table and metric, whoever made it.
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

    /// Deletes a route. It is no error if there is none.
    pub fn delete_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        let operation = format!("delete the route to {route}");
        let result =
            self.change(&operation, RouteNetlinkMessage::DelRoute(route_message(route)), 0);
        unless(result, &[libc::ESRCH])
    }

    /// The routes of all mpip daemons in all tables, also of dead ones. The kernel goes through all
    /// routes that it has.
    pub fn own_routes(&mut self) -> Result<Vec<Route>, NetlinkError> {
        let mut routes = self.list_own_routes(false, None)?;
        routes.extend(self.list_own_routes(true, None)?);
        Ok(routes)
    }

    /// The same of one IP version and one table.
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
        // The kernel sends only routes of this protocol (since Linux 5.0); older ones send all.
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
}

fn route_message(route: &Route) -> RouteMessage {
    let address = route.prefix.address();
    let mut message = RouteMessage::default();
    message.header.address_family = family(address);
    message.header.destination_prefix_length = route.prefix.prefix_len();
    // The attribute has the number, for which the header's field is too small.
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
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
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
