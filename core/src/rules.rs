//! The rule table (seed 000, table 6): how packets are treated.

use std::ops::RangeInclusive;

use crate::config::{Priority, Rule};
use mpip_types::packet::Header;

/// How a packet is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Treatment {
    /// Its priority in path selection.
    pub priority: Priority,
    /// Whether it is retransmitted although its session is not resequenced.
    pub repair: bool,
    /// Whether a rule says so; if not, interactive flows are treated better.
    pub by_rule: bool,
}

impl Treatment {
    /// What `rule` asks for.
    pub fn of(rule: &Rule) -> Self {
        Self { priority: rule.priority, repair: rule.repair, by_rule: true }
    }
}

/// Rules in the order of the configuration.
#[derive(Clone, Debug, Default)]
pub struct RuleTable {
    rules: Vec<Rule>,
}

impl RuleTable {
    /// A table of `rules`; the first match decides.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self { rules }
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The priority of a packet with `header` and `length` bytes from its IP header on; for a
    /// super-packet, `length` is that of its first segment. [`Priority::Throughput`] without a
    /// matching rule.
    pub fn priority(&self, header: &Header, length: usize) -> Priority {
        self.find(header, length).map(|rule| rule.priority).unwrap_or_default()
    }

    /// The treatment of such a packet.
    pub fn treatment(&self, header: &Header, length: usize) -> Treatment {
        self.find(header, length).map(Treatment::of).unwrap_or_default()
    }

    /// The first rule that matches such a packet.
    pub fn find(&self, header: &Header, length: usize) -> Option<&Rule> {
        self.rules.iter().find(|rule| matches(rule, header, length))
    }
}

/// Whether `rule` matches a packet with `header` and `length` bytes from its IP header on.
pub fn matches(rule: &Rule, header: &Header, length: usize) -> bool {
    let length = u16::try_from(length).unwrap_or(u16::MAX);
    let within = |ports: &Option<RangeInclusive<u16>>, port: Option<u16>| {
        ports.as_ref().is_none_or(|ports| port.is_some_and(|port| ports.contains(&port)))
    };
    rule.protocol.is_none_or(|protocol| protocol == header.protocol)
        && within(&rule.remote_port, header.destination_port())
        && within(&rule.local_port, header.source_port())
        && rule.length.as_ref().is_none_or(|range| range.contains(&length))
        && rule.dscp.is_none_or(|dscp| dscp == header.dscp)
        && rule.remote_prefix.is_none_or(|prefix| prefix.contains(header.destination))
        && rule.local_prefix.is_none_or(|prefix| prefix.contains(header.source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpip_types::Ecn;
    use mpip_types::packet::{Version, protocol};

    fn header(protocol: u8, destination: &str, ports: Option<(u16, u16)>) -> Header {
        Header {
            version: Version::V4,
            header_len: 20,
            total_len: 60,
            protocol,
            source: "198.18.0.1".parse().expect("an address"),
            destination: destination.parse().expect("an address"),
            ports,
            fragment: false,
            ecn: Ecn::NotEct,
            dscp: 0,
            dont_fragment: true,
        }
    }

    fn response(rule: Rule) -> Rule {
        Rule { priority: Priority::Response, ..rule }
    }

    #[test]
    fn without_rules_every_packet_wants_throughput() {
        let header = header(protocol::TCP, "198.18.0.2", Some((1, 23)));
        assert_eq!(RuleTable::default().priority(&header, 60), Priority::Throughput);
    }

    #[test]
    fn every_field_of_a_rule_has_to_match() {
        let table = RuleTable::new(vec![response(Rule {
            remote_prefix: "198.18.0.0/24".parse().ok(),
            remote_port: Some(23..=23),
            protocol: Some(protocol::TCP),
            length: Some(0..=200),
            ..Rule::default()
        })]);
        let telnet = header(protocol::TCP, "198.18.0.2", Some((40_000, 23)));
        assert_eq!(table.priority(&telnet, 200), Priority::Response);
        assert_eq!(table.priority(&telnet, 201), Priority::Throughput);
        assert_eq!(table.priority(&telnet, 70_000), Priority::Throughput);
        for other in [
            header(protocol::UDP, "198.18.0.2", Some((40_000, 23))),
            header(protocol::TCP, "198.18.1.2", Some((40_000, 23))),
            header(protocol::TCP, "2001:db8::2", Some((40_000, 23))),
            header(protocol::TCP, "198.18.0.2", Some((23, 40_000))),
            header(protocol::TCP, "198.18.0.2", None),
        ] {
            assert_eq!(table.priority(&other, 60), Priority::Throughput, "{other:?}");
        }
    }

    #[test]
    fn local_is_the_sender_and_remote_the_receiver() {
        let there = header(protocol::UDP, "198.18.0.2", Some((5_000, 53)));
        let back = Header {
            source: there.destination,
            destination: there.source,
            ports: Some((53, 5_000)),
            ..there
        };
        for rule in [
            Rule { local_prefix: "198.18.0.1".parse().ok(), ..Rule::default() },
            Rule { local_port: Some(5_000..=5_000), ..Rule::default() },
            Rule { remote_prefix: "198.18.0.2".parse().ok(), ..Rule::default() },
            Rule { remote_port: Some(53..=53), ..Rule::default() },
        ] {
            let table = RuleTable::new(vec![response(rule)]);
            assert_eq!(table.priority(&there, 60), Priority::Response, "{table:?}");
            assert_eq!(table.priority(&back, 60), Priority::Throughput, "{table:?}");
        }
    }

    #[test]
    fn both_ends_of_a_port_range_match() {
        let table =
            RuleTable::new(vec![response(Rule { local_port: Some(10..=20), ..Rule::default() })]);
        for (port, expected) in [
            (9, Priority::Throughput),
            (10, Priority::Response),
            (20, Priority::Response),
            (21, Priority::Throughput),
        ] {
            let header = header(protocol::UDP, "198.18.0.2", Some((port, 15)));
            assert_eq!(table.priority(&header, 60), expected, "{port}");
        }
    }

    #[test]
    fn a_code_point_matches_alone() {
        let table = RuleTable::new(vec![response(Rule { dscp: Some(46), ..Rule::default() })]);
        let plain = header(protocol::UDP, "198.18.0.2", Some((1, 2)));
        assert_eq!(table.priority(&plain, 60), Priority::Throughput);
        assert_eq!(table.priority(&Header { dscp: 46, ..plain }, 60), Priority::Response);
    }

    #[test]
    fn an_echo_identifier_is_no_port() {
        let echo = header(protocol::ICMP, "198.18.0.2", Some((23, 23)));
        for rule in [
            Rule { remote_port: Some(23..=23), ..Rule::default() },
            Rule { local_port: Some(23..=23), ..Rule::default() },
        ] {
            let table = RuleTable::new(vec![response(rule)]);
            assert_eq!(table.priority(&echo, 60), Priority::Throughput);
        }
    }

    #[test]
    fn the_first_match_decides() {
        let table = RuleTable::new(vec![
            Rule { remote_port: Some(22..=22), ..Rule::default() },
            response(Rule { protocol: Some(protocol::TCP), ..Rule::default() }),
        ]);
        let ssh = header(protocol::TCP, "198.18.0.2", Some((1, 22)));
        let web = header(protocol::TCP, "198.18.0.2", Some((1, 443)));
        assert_eq!(table.priority(&ssh, 60), Priority::Throughput);
        assert_eq!(table.priority(&web, 60), Priority::Response);
    }
}
