//! Routing rules: ours, and those of others.

use core::fmt;

use mpip_types::Prefix;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::rule::{
    RuleAction, RuleAttribute, RuleFlags, RuleMessage, RulePortRange,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::routes::PROTOCOL;
use super::{Netlink, NetlinkError, unless};

/// Input interface of the host's own packets in routing rules (ip-rule(8)).
const LOOPBACK: &str = "lo";

/// A rule of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutingRule {
    /// Whether it is for IPv6, else for IPv4.
    pub ipv6: bool,
    /// Rules with lower numbers come first.
    pub priority: u32,
    /// Matches packets of this host without any of these bits in their mark,
    pub without_mark: u32,
    /// with this IP protocol (`None` for all),
    pub protocol: Option<u8>,
    /// with a source port from the first to the last of these (`None` for all),
    pub source_ports: Option<(u16, u16)>,
    /// and with a destination port from the first to the last of these (`None` for all).
    pub ports: Option<(u16, u16)>,
    /// Routing table for these packets.
    pub table: u32,
}

impl fmt::Display for RoutingRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = if self.ipv6 { "IPv6" } else { "IPv4" };
        write!(f, "{version} priority {}: this host's packets", self.priority)?;
        if let Some(protocol) = self.protocol {
            write!(f, " of protocol {protocol}")?;
        }
        if let Some((first, last)) = self.source_ports {
            write!(f, " from ports {first} to {last}")?;
        }
        if let Some((first, last)) = self.ports {
            write!(f, " to ports {first} to {last}")?;
        }
        write!(f, " without mark {:#x} use table {}", self.without_mark, self.table)
    }
}

/// A routing rule of any program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleEntry {
    /// Whether it is for IPv6, else for IPv4.
    pub ipv6: bool,
    /// Rules with lower numbers come first.
    pub priority: u32,
    /// Source addresses that it matches.
    pub source: Option<Prefix>,
    /// Destinations that it matches.
    pub destination: Option<Prefix>,
    /// Input interface; `lo` for packets of this host.
    pub input: Option<String>,
    /// Interface to which the sending socket is bound.
    pub output: Option<String>,
    /// Mark and mask that it matches.
    pub mark: Option<(u32, u32)>,
    /// Whether it matches packets that do not meet its conditions.
    pub inverted: bool,
    /// Routing table for packets that match; `None` if the rule refuses them or does something
    /// else.
    pub table: Option<u32>,
    /// Whether an mpip daemon made it, perhaps a dead one.
    pub own: bool,
}

impl Netlink {
    /// Adds a routing rule. It is no error if it exists.
    pub fn add_rule(&mut self, rule: &RoutingRule) -> Result<(), NetlinkError> {
        let operation = format!("add the routing rule {rule}");
        let message = RouteNetlinkMessage::NewRule(rule_message(rule));
        let result = self.change(&operation, message, NLM_F_CREATE | NLM_F_EXCL);
        unless(result, &[libc::EEXIST])
    }

    /// Deletes a routing rule. It is no error if there is none.
    pub fn delete_rule(&mut self, rule: &RoutingRule) -> Result<(), NetlinkError> {
        let operation = format!("delete the routing rule {rule}");
        let result = self.change(&operation, RouteNetlinkMessage::DelRule(rule_message(rule)), 0);
        unless(result, &[libc::ENOENT])
    }

    /// The routing rules of all mpip daemons, also of dead ones.
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

    /// All routing rules in the order of evaluation, those for IPv4 first.
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
}

fn rule_message(rule: &RoutingRule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = if rule.ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::Priority(rule.priority),
        RuleAttribute::Iifname(LOOPBACK.to_owned()),
        RuleAttribute::FwMark(0),
        RuleAttribute::FwMask(rule.without_mark),
        RuleAttribute::Table(rule.table),
        RuleAttribute::Protocol(PROTOCOL),
    ];
    let protocol = rule.protocol.map(|protocol| RuleAttribute::IpProtocol(protocol.into()));
    message.attributes.extend(protocol);
    let range = |(start, end)| RulePortRange { start, end };
    let source_ports = rule.source_ports.map(range).map(RuleAttribute::SourcePortRange);
    message.attributes.extend(source_ports);
    let ports = rule.ports.map(range).map(RuleAttribute::DestinationPortRange);
    message.attributes.extend(ports);
    message
}

pub(super) fn read_rule(message: &RuleMessage) -> RoutingRule {
    let mut rule = RoutingRule {
        ipv6: message.header.family == AddressFamily::Inet6,
        priority: 0,
        without_mark: 0,
        protocol: None,
        source_ports: None,
        ports: None,
        table: message.header.table.into(),
    };
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(value) => rule.priority = *value,
            RuleAttribute::FwMask(value) => rule.without_mark = *value,
            RuleAttribute::IpProtocol(value) => rule.protocol = Some((*value).into()),
            RuleAttribute::SourcePortRange(range) => {
                rule.source_ports = Some((range.start, range.end));
            }
            RuleAttribute::DestinationPortRange(range) => {
                rule.ports = Some((range.start, range.end));
            }
            RuleAttribute::Table(value) => rule.table = *value,
            _ => {}
        }
    }
    rule
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
}
