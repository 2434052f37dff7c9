//! What is asked of the kernel to keep routes: a trait, so that tests have a kernel that refuses
//! and counts.

use std::fs;
use std::net::IpAddr;

use mpip_net::netlink::{Link, Netlink, Route, RoutingRule};
use mpip_net::tun::Sink;

use crate::error::Error;
use crate::local_ports;

/// What the names of devices begin with to which refused packets are routed; a number follows.
pub(crate) const SINK_PREFIX: &str = "mpip-refuse";

/// The most that a TUN device takes, so that a sink's never is the smallest MTU of the host.
const SINK_MTU: u32 = 65_535;

/// The kernel's side of routing.
pub(crate) trait Kernel {
    /// Our routes in every table, whoever left them.
    fn routes(&mut self) -> Result<Vec<Route>, Error>;
    /// Those of one IP version in one table.
    fn routes_in(&mut self, table: u32, ipv6: bool) -> Result<Vec<Route>, Error>;
    /// Adds a route beside those of others; it may exist.
    fn add_route(&mut self, route: &Route) -> Result<(), Error>;
    /// Takes the place of the route with the same prefix, table and metric.
    fn replace_route(&mut self, route: &Route) -> Result<(), Error>;
    /// Deletes a route, if it exists.
    fn delete_route(&mut self, route: &Route) -> Result<(), Error>;
    /// Our rules, whoever left them.
    fn rules(&mut self) -> Result<Vec<RoutingRule>, Error>;
    /// Adds a rule, unless it exists.
    fn add_rule(&mut self, rule: &RoutingRule) -> Result<(), Error>;
    /// Deletes a rule, if it exists.
    fn delete_rule(&mut self, rule: &RoutingRule) -> Result<(), Error>;
    /// The source address that a packet with `mark` to `destination` gets.
    fn source_toward(&mut self, destination: IpAddr, mark: u32) -> Result<Option<IpAddr>, Error>;
    /// The first and the last local port that the host chooses by itself.
    fn chosen_ports(&mut self) -> (u16, u16);
    /// Makes a device that drops what is routed to it and outlives this process, with this alias.
    fn make_sink(&mut self, alias: &str) -> Result<Link, Error>;
    /// Sets an interface up.
    fn set_up(&mut self, link: &Link) -> Result<(), Error>;
    /// Deletes an interface, if it exists.
    fn delete_link(&mut self, link: &Link) -> Result<(), Error>;
}

impl Kernel for Netlink {
    fn routes(&mut self) -> Result<Vec<Route>, Error> {
        Ok(self.own_routes()?)
    }

    fn routes_in(&mut self, table: u32, ipv6: bool) -> Result<Vec<Route>, Error> {
        Ok(self.own_routes_in(table, ipv6)?)
    }

    fn add_route(&mut self, route: &Route) -> Result<(), Error> {
        Ok(self.add_route(route)?)
    }

    fn replace_route(&mut self, route: &Route) -> Result<(), Error> {
        Ok(self.replace_route(route)?)
    }

    fn delete_route(&mut self, route: &Route) -> Result<(), Error> {
        Ok(self.delete_route(route)?)
    }

    fn rules(&mut self) -> Result<Vec<RoutingRule>, Error> {
        Ok(self.own_rules()?)
    }

    fn add_rule(&mut self, rule: &RoutingRule) -> Result<(), Error> {
        Ok(self.add_rule(rule)?)
    }

    fn delete_rule(&mut self, rule: &RoutingRule) -> Result<(), Error> {
        Ok(self.delete_rule(rule)?)
    }

    fn source_toward(&mut self, destination: IpAddr, mark: u32) -> Result<Option<IpAddr>, Error> {
        Ok(self.source_toward(destination, mark)?)
    }

    fn chosen_ports(&mut self) -> (u16, u16) {
        local_ports::chosen().into_inner()
    }

    fn make_sink(&mut self, alias: &str) -> Result<Link, Error> {
        let sink = Sink::create(SINK_PREFIX).map_err(Error::Tun)?;
        let link = self.link(sink.name())?;
        self.set_alias(&link, alias)?;
        if let Err(error) = self.without_link_local(&link) {
            // Where IPv6 is off there is nothing to switch off.
            log::debug!("{error}");
        }
        use_without_carrier(&link.name);
        self.set_mtu(&link, SINK_MTU)?;
        self.set_up(&link)?;
        // Last: what is not finished vanishes with the process.
        sink.keep().map_err(Error::Tun)?;
        Ok(link)
    }

    fn set_up(&mut self, link: &Link) -> Result<(), Error> {
        Ok(self.set_up(link)?)
    }

    fn delete_link(&mut self, link: &Link) -> Result<(), Error> {
        Ok(self.delete_link(link)?)
    }
}

/// The parameter by which Linux passes over routes to interfaces without a carrier, as a sink is
/// one. `all` decides for every interface by IPv4.
pub(crate) const IGNORES_SINKS: &str = "net/ipv4/conf/all/ignore_routes_with_linkdown";

/// What it is that takes from sinks what they are for, and what follows.
pub(crate) const IGNORED: (&str, &str) = (
    "net.ipv4.conf.all.ignore_routes_with_linkdown is 1",
    "when mpipd ends by an error, packets by IPv4 to peers outside of host mode leave as plain IP \
     although the policy is `require`",
);

/// Keeps the kernel from passing over routes to the interface, as far as that can be said of one
/// alone.
fn use_without_carrier(interface: &str) {
    for family in ["ipv4", "ipv6"] {
        let file = format!("/proc/sys/net/{family}/conf/{interface}/ignore_routes_with_linkdown");
        if let Err(error) = fs::write(&file, "0") {
            log::debug!("cannot write {file}: {error}");
        }
    }
}

/// Whether the kernel passes over routes to sinks, so that they refuse nothing.
pub(crate) fn ignores_sinks() -> bool {
    let value = fs::read_to_string(format!("/proc/sys/{IGNORES_SINKS}"));
    value.is_ok_and(|value| value.trim() == "1")
}

/// What a sink's alias says before the name of the interface whose daemon has made it.
const ALIAS: &str = "mpipd: policy require of ";

/// The alias of the sink of the daemon with this interface.
pub(crate) fn sink_alias(interface: &str) -> String {
    format!("{ALIAS}{interface}")
}

/// The interface of the daemon that has made this one, if it is a sink.
pub(crate) fn sink_owner(link: &Link) -> Option<&str> {
    link.alias.as_deref()?.strip_prefix(ALIAS)
}

#[cfg(test)]
pub(crate) mod fake;
