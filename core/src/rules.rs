//! The rule table (seed 000, table 6): how packets are treated.

use core::net::IpAddr;
use std::ops::RangeInclusive;

use self::index::Index;
use self::networks::Networks;
use crate::config::{Copies, PathPreference, Priority, Rule, RulePaths, SchedulerKind};
use mpip_types::packet::Header;

mod index;
mod networks;

pub use self::index::Origin;
pub use self::networks::AttachedNetwork;

/// Most different lists of interfaces ([`RulePaths`]) in a table; rules may share one.
pub const PATH_LISTS: usize = u64::BITS as usize;

/// How a packet is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Treatment {
    /// Its priority in path selection.
    pub priority: Priority,
    /// On how many paths it is sent if that is [`Priority::Redundant`].
    pub copies: Copies,
    /// Whether it is retransmitted although its session is not resequenced.
    pub repair: bool,
    /// Whether a rule gives that priority; if not, interactive flows are treated better.
    pub by_rule: bool,
    /// Whether it is resequenced; `None`: as its session.
    pub ordered: Option<bool>,
    /// Which paths it may take.
    pub paths: PathLimit,
    /// The code point that it is given; `None`: it keeps its own.
    pub set_dscp: Option<u8>,
    /// How its path is chosen if its priority is [`Priority::Throughput`]; `None`: by the peer's
    /// scheduler.
    pub scheduler: Option<SchedulerKind>,
}

/// Which paths a packet may take, by the lists of their interfaces in the rule table. A list is a
/// number below [`PATH_LISTS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathLimit {
    /// Any.
    #[default]
    Any,
    /// Those in this list.
    Only(u8),
    /// Those in this list, as long as one of them works.
    Prefer(u8),
    /// Others than those in this list, as long as one of them works.
    Avoid(u8),
}

/// Most rules that a session remembers.
const REMEMBERED: usize = 4;

/// What a session remembers of a table, so that its packets need not be compared with every rule:
/// the first rules that match its protocol, addresses and ports, up to the first one that says
/// nothing about length and code point, in which the packets of a session differ.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownRules {
    /// The generation of the table; 0: nothing is known.
    generation: u32,
    count: u8,
    /// Whether one of the rules after these may decide, too.
    more: bool,
    rules: [u16; REMEMBERED],
}

/// Rules in the order of the configuration.
#[derive(Clone, Debug, Default)]
pub struct RuleTable {
    rules: Vec<Rule>,
    index: Index,
    networks: Networks,
    /// What each of them asks for.
    treatments: Vec<Treatment>,
    /// The lists of interfaces in them, sorted and each once.
    lists: Vec<Vec<String>>,
    /// The schedulers in them, each once.
    schedulers: Vec<SchedulerKind>,
    /// Another number each time the rules were replaced; never 0 once there are any.
    generation: u32,
}

impl RuleTable {
    /// A table of `rules`; the first match decides. They have at most [`PATH_LISTS`] different
    /// [lists](path_lists) of interfaces; further ones limit nothing.
    pub fn new(rules: Vec<Rule>) -> Self {
        let lists = path_lists(&rules);
        let treatments = rules.iter().map(|rule| treatment(rule, &lists)).collect();
        let index = Index::new(&rules);
        let names_it =
            |kind: &SchedulerKind| rules.iter().any(|rule| rule.scheduler == Some(*kind));
        let schedulers =
            SchedulerKind::NAMES.iter().map(|(_, kind)| *kind).filter(names_it).collect();
        let networks = Networks::default();
        Self { rules, index, networks, treatments, lists, schedulers, generation: 1 }
    }

    /// Replaces all rules.
    pub fn replace(&mut self, rules: Vec<Rule>) {
        let generation = self.next_generation();
        let networks = core::mem::take(&mut self.networks);
        *self = Self { generation, networks, ..Self::new(rules) };
    }

    /// Which networks are attached to this host, so that rules can match the interface behind which
    /// a packet's sender is: the one with the longest prefix that contains its address, and of
    /// several the first. This host itself, to which the networks' addresses belong, is behind
    /// none.
    pub fn set_networks(&mut self, networks: &[AttachedNetwork]) {
        self.networks = Networks::new(networks);
        if self.index.names_interfaces() {
            self.generation = self.next_generation();
        }
    }

    fn next_generation(&self) -> u32 {
        self.generation.wrapping_add(1).max(1)
    }

    /// Another number each time the rules were replaced.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The schedulers that rules ask for.
    pub fn schedulers(&self) -> &[SchedulerKind] {
        &self.schedulers
    }

    /// The interface behind which the host with `address` is: see
    /// [`set_networks`](Self::set_networks).
    pub fn interface_of(&self, address: IpAddr) -> Option<&str> {
        self.networks.interface_of(address)
    }

    /// The lists that `interface` is in: bit `n` is list `n` of [`PathLimit`].
    pub fn lists_with(&self, interface: &str) -> u64 {
        let has = |list: &[String]| list.iter().any(|name| name == interface);
        let bits = (0..PATH_LISTS).zip(&self.lists);
        bits.fold(0, |bits, (number, list)| bits | u64::from(has(list)) << number)
    }

    /// The treatment of a packet to `peer` with `header` and `length` bytes from its IP header on,
    /// of a session that knows `known` of its rules; for a super-packet, `length` is that of its
    /// first segment. Packets of a session have the same peer, protocol, addresses and ports.
    pub fn treatment_in(
        &self,
        known: &mut KnownRules,
        peer: &str,
        header: &Header,
        length: usize,
    ) -> Treatment {
        if known.generation != self.generation {
            *known = self.known(peer, header);
        }
        let remembered = &known.rules[..known.count.into()];
        for rule in remembered.iter().map(|rule| usize::from(*rule)) {
            if self.rules.get(rule).is_some_and(|rule| matches_packet(rule, header, length)) {
                return self.treatment_of(Some(rule));
            }
        }
        if !known.more {
            return Treatment::default();
        }
        let from = remembered.last().map_or(0, |last| usize::from(*last) + 1);
        self.treatment_of(self.find(peer, header, length, from))
    }

    /// What a session to `peer` with `header` remembers.
    fn known(&self, peer: &str, header: &Header) -> KnownRules {
        let mut known = KnownRules { generation: self.generation, ..KnownRules::default() };
        for index in self.index.matching(header, self.origin(peer, header), 0) {
            let (Some(next), Ok(number)) =
                (known.rules.get_mut(usize::from(known.count)), u16::try_from(index))
            else {
                known.more = true;
                break;
            };
            *next = number;
            known.count += 1;
            if self.rules[index].length.is_none() && self.rules[index].dscp.is_none() {
                break;
            }
        }
        known
    }

    /// The first rule from number `from` on that matches such a packet.
    fn find(&self, peer: &str, header: &Header, length: usize, from: usize) -> Option<usize> {
        let mut rules = self.index.matching(header, self.origin(peer, header), from);
        rules.find(|index| matches_packet(&self.rules[*index], header, length))
    }

    fn origin<'a>(&'a self, peer: &'a str, header: &Header) -> Origin<'a> {
        let interface = match self.index.names_interfaces() {
            true => self.networks.interface_of(header.source),
            false => None,
        };
        Origin { peer: Some(peer), interface }
    }

    /// The treatment that the rule at `index` asks for; the default without one.
    pub(crate) fn treatment_of(&self, index: Option<usize>) -> Treatment {
        index.and_then(|index| self.treatments.get(index)).copied().unwrap_or_default()
    }

    /// The treatment of a packet to `peer`, without what its session remembers.
    pub fn treatment(&self, peer: &str, header: &Header, length: usize) -> Treatment {
        self.treatment_of(self.find(peer, header, length, 0))
    }
}

/// The different lists of interfaces in `rules`, each sorted.
pub fn path_lists<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> Vec<Vec<String>> {
    let mut lists = Vec::new();
    for paths in rules.into_iter().filter_map(|rule| rule.paths.as_ref()) {
        let list = sorted(paths);
        if !lists.contains(&list) {
            lists.push(list);
        }
    }
    lists
}

fn sorted(paths: &RulePaths) -> Vec<String> {
    let mut list = paths.interfaces.clone();
    list.sort_unstable();
    list.dedup();
    list
}

/// What `rule` asks for; `lists` are those of its table.
fn treatment(rule: &Rule, lists: &[Vec<String>]) -> Treatment {
    let limit = |paths: &RulePaths| {
        let list = lists.iter().position(|list| *list == sorted(paths))?;
        let list = u8::try_from(list).ok().filter(|_| list < PATH_LISTS)?;
        Some(match paths.preference {
            PathPreference::Only => PathLimit::Only(list),
            PathPreference::Prefer => PathLimit::Prefer(list),
            PathPreference::Avoid => PathLimit::Avoid(list),
        })
    };
    let priority = rule.given_priority();
    Treatment {
        priority: priority.unwrap_or_default(),
        copies: rule.copies,
        repair: rule.repair,
        ordered: rule.ordered,
        paths: rule.paths.as_ref().and_then(limit).unwrap_or_default(),
        set_dscp: rule.set_dscp,
        scheduler: rule.scheduler,
        by_rule: priority.is_some(),
    }
}

/// Whether `rule` matches a packet with `header` and `length` bytes from its IP header on, of a
/// session with `origin`.
pub fn matches(rule: &Rule, origin: Origin<'_>, header: &Header, length: usize) -> bool {
    matches_session(rule, origin, header) && matches_packet(rule, header, length)
}

/// Whether `rule` matches what all packets of a session have in common.
fn matches_session(rule: &Rule, origin: Origin<'_>, header: &Header) -> bool {
    let within = |ports: &Option<RangeInclusive<u16>>, port: Option<u16>| {
        ports.as_ref().is_none_or(|ports| port.is_some_and(|port| ports.contains(&port)))
    };
    rule.protocol.is_none_or(|protocol| protocol == header.protocol)
        && within(&rule.remote_port, header.destination_port())
        && within(&rule.local_port, header.source_port())
        && rule.remote_prefix.is_none_or(|prefix| prefix.contains(header.destination))
        && rule.local_prefix.is_none_or(|prefix| prefix.contains(header.source))
        && rule.peer.as_deref().is_none_or(|peer| origin.peer == Some(peer))
        && rule.interface.as_deref().is_none_or(|interface| origin.interface == Some(interface))
}

/// Whether `rule` matches that in which the packets of a session differ.
fn matches_packet(rule: &Rule, header: &Header, length: usize) -> bool {
    let length = u16::try_from(length).unwrap_or(u16::MAX);
    rule.length.as_ref().is_none_or(|range| range.contains(&length))
        && rule.dscp.is_none_or(|dscp| dscp == header.dscp)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    /// The priority of a packet to some peer.
    fn priority(table: &RuleTable, header: &Header, length: usize) -> Priority {
        table.treatment("peer", header, length).priority
    }

    fn response(rule: Rule) -> Rule {
        Rule { priority: Some(Priority::Response), ..rule }
    }

    #[test]
    fn a_rule_without_a_priority_leaves_it_to_the_flow_unless_it_names_a_scheduler() {
        let header = header(protocol::TCP, "198.18.0.2", Some((1, 23)));
        let by_rule = |rule: Rule| {
            let treatment = RuleTable::new(vec![rule]).treatment("peer", &header, 60);
            (treatment.priority, treatment.by_rule)
        };
        let marks = Rule { set_dscp: Some(46), ..Rule::default() };
        assert_eq!(by_rule(marks.clone()), (Priority::Throughput, false));
        assert_eq!(by_rule(response(marks.clone())), (Priority::Response, true));
        let scheduled = Rule { scheduler: Some(SchedulerKind::Weighted), ..marks };
        assert_eq!(by_rule(scheduled), (Priority::Throughput, true));
    }

    #[test]
    fn without_rules_every_packet_wants_throughput() {
        let header = header(protocol::TCP, "198.18.0.2", Some((1, 23)));
        assert_eq!(priority(&RuleTable::default(), &header, 60), Priority::Throughput);
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
        assert_eq!(priority(&table, &telnet, 200), Priority::Response);
        assert_eq!(priority(&table, &telnet, 201), Priority::Throughput);
        assert_eq!(priority(&table, &telnet, 70_000), Priority::Throughput);
        for other in [
            header(protocol::UDP, "198.18.0.2", Some((40_000, 23))),
            header(protocol::TCP, "198.18.1.2", Some((40_000, 23))),
            header(protocol::TCP, "2001:db8::2", Some((40_000, 23))),
            header(protocol::TCP, "198.18.0.2", Some((23, 40_000))),
            header(protocol::TCP, "198.18.0.2", None),
        ] {
            assert_eq!(priority(&table, &other, 60), Priority::Throughput, "{other:?}");
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
            assert_eq!(priority(&table, &there, 60), Priority::Response, "{table:?}");
            assert_eq!(priority(&table, &back, 60), Priority::Throughput, "{table:?}");
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
            assert_eq!(priority(&table, &header, 60), expected, "{port}");
        }
    }

    #[test]
    fn a_code_point_matches_alone() {
        let table = RuleTable::new(vec![response(Rule { dscp: Some(46), ..Rule::default() })]);
        let plain = header(protocol::UDP, "198.18.0.2", Some((1, 2)));
        assert_eq!(priority(&table, &plain, 60), Priority::Throughput);
        assert_eq!(priority(&table, &Header { dscp: 46, ..plain }, 60), Priority::Response);
    }

    #[test]
    fn an_echo_identifier_is_no_port() {
        let echo = header(protocol::ICMP, "198.18.0.2", Some((23, 23)));
        for rule in [
            Rule { remote_port: Some(23..=23), ..Rule::default() },
            Rule { local_port: Some(23..=23), ..Rule::default() },
        ] {
            let table = RuleTable::new(vec![response(rule)]);
            assert_eq!(priority(&table, &echo, 60), Priority::Throughput);
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
        assert_eq!(priority(&table, &ssh, 60), Priority::Throughput);
        assert_eq!(priority(&table, &web, 60), Priority::Response);
    }

    /// A rule out of few different ones, so that several match.
    fn any_rule() -> impl Strategy<Value = Rule> {
        let port = prop_oneof![3 => Just(None), 1 => (1_u16..4).prop_map(|port| Some(port..=port))];
        let length = prop_oneof![2 => Just(None), 1 => (0_u16..4).prop_map(|end| Some(0..=end))];
        let dscp = prop_oneof![3 => Just(None), 1 => (0_u8..3).prop_map(Some)];
        let protocol = prop_oneof![Just(None), Just(Some(protocol::TCP)), Just(Some(1))];
        (port, length, dscp, protocol, 0_u8..64).prop_map(
            |(remote_port, length, dscp, protocol, mark)| Rule {
                remote_port,
                length,
                dscp,
                protocol,
                // Tells the rules apart.
                set_dscp: Some(mark),
                ..Rule::default()
            },
        )
    }

    proptest! {
        #[test]
        fn what_a_session_remembers_decides_as_the_table_does(
            tables in proptest::collection::vec(proptest::collection::vec(any_rule(), 0..30), 1..3),
            packets in proptest::collection::vec((0_usize..5, 0_u8..3), 1..40),
            port in 1_u16..4,
            tcp in any::<bool>(),
        ) {
            let mut table = RuleTable::default();
            let mut known = KnownRules::default();
            let protocol = if tcp { protocol::TCP } else { protocol::UDP };
            let session = header(protocol, "198.18.0.2", Some((7, port)));
            for rules in tables {
                table.replace(rules);
                for &(length, dscp) in &packets {
                    let packet = Header { dscp, ..session };
                    prop_assert_eq!(
                        table.treatment_in(&mut known, "peer", &packet, length),
                        table.treatment("peer", &packet, length)
                    );
                }
            }
        }
    }

    #[test]
    fn lists_of_interfaces_are_shared_and_bounded() {
        let paths = |preference, names: &[&str]| {
            let interfaces = names.iter().map(|name| (*name).to_owned()).collect();
            Rule { paths: Some(RulePaths { preference, interfaces }), ..Rule::default() }
        };
        let mut rules = vec![
            paths(PathPreference::Only, &["a", "b"]),
            Rule::default(),
            paths(PathPreference::Avoid, &["b", "a", "a"]),
            paths(PathPreference::Prefer, &["b"]),
        ];
        let table = RuleTable::new(rules.clone());
        let limits: Vec<PathLimit> = table.treatments.iter().map(|it| it.paths).collect();
        let expected =
            [PathLimit::Only(0), PathLimit::Any, PathLimit::Avoid(0), PathLimit::Prefer(1)];
        assert_eq!(limits, expected);
        let bits = ["a", "b", "c"].map(|name| table.lists_with(name));
        assert_eq!(bits, [0b01, 0b11, 0]);
        rules.extend((0..70).map(|n| paths(PathPreference::Only, &[&format!("eth{n}")])));
        let table = RuleTable::new(rules);
        let last = table.treatments.iter().map(|it| it.paths).rfind(|it| *it != PathLimit::Any);
        assert_eq!(last, Some(PathLimit::Only(63)));
        assert_eq!((table.lists_with("eth61"), table.lists_with("eth62")), (1 << 63, 0));
    }
}
