//! The rule table (seed 000, table 6): how packets are treated.

use crate::config::{Priority, Rule};
use mpip_types::packet::Header;

/// How a packet is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Treatment {
    /// Its priority in path selection.
    pub priority: Priority,
    /// Whether it is retransmitted although its session is not resequenced.
    pub repair: bool,
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
        self.find(header, length).map_or_else(Treatment::default, |rule| Treatment {
            priority: rule.priority,
            repair: rule.repair,
        })
    }

    /// The first rule that matches such a packet.
    pub fn find(&self, header: &Header, length: usize) -> Option<&Rule> {
        self.rules.iter().find(|rule| matches(rule, header, length))
    }
}

fn matches(rule: &Rule, header: &Header, length: usize) -> bool {
    let length = u16::try_from(length).unwrap_or(u16::MAX);
    rule.protocol.is_none_or(|protocol| protocol == header.protocol)
        && rule.remote_port.is_none_or(|port| header.destination_port() == Some(port))
        && rule.length.as_ref().is_none_or(|range| range.contains(&length))
        && rule.remote_prefix.is_none_or(|prefix| prefix.contains(header.destination))
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
            remote_port: Some(23),
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
    fn an_echo_identifier_is_no_port() {
        let table =
            RuleTable::new(vec![response(Rule { remote_port: Some(23), ..Rule::default() })]);
        let echo = header(protocol::ICMP, "198.18.0.2", Some((23, 23)));
        assert_eq!(table.priority(&echo, 60), Priority::Throughput);
    }

    #[test]
    fn the_first_match_decides() {
        let table = RuleTable::new(vec![
            Rule { remote_port: Some(22), ..Rule::default() },
            response(Rule { protocol: Some(protocol::TCP), ..Rule::default() }),
        ]);
        let ssh = header(protocol::TCP, "198.18.0.2", Some((1, 22)));
        let web = header(protocol::TCP, "198.18.0.2", Some((1, 443)));
        assert_eq!(table.priority(&ssh, 60), Priority::Throughput);
        assert_eq!(table.priority(&web, 60), Priority::Response);
    }
}
