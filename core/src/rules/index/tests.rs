use proptest::prelude::*;

use super::super::{AttachedNetwork, RuleTable, matches};
use super::*;
use crate::config::Priority;
use mpip_types::Ecn;
use mpip_types::packet::{Version, protocol};

/// An address out of few, at the ends of prefixes and of all addresses.
fn address() -> impl Strategy<Value = IpAddr> {
    let v4 = |bits: u32| IpAddr::from(Ipv4Addr::from(bits));
    let v6 = |bits: u128| IpAddr::from(Ipv6Addr::from(bits));
    prop_oneof![
        prop_oneof![
            Just(0),
            Just(1),
            Just(u32::MAX),
            Just(u32::MAX - 1),
            0xc612_0000..0xc612_0100_u32
        ]
        .prop_map(v4),
        prop_oneof![
            Just(0),
            Just(u128::MAX),
            Just(u128::MAX - 1),
            (0..256_u128).prop_map(|host| (0x2001_0db8 << 96) + host),
        ]
        .prop_map(v6),
    ]
}

fn prefix() -> impl Strategy<Value = Prefix> {
    (address(), 0..=128_u8).prop_map(|(address, len)| {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        // Most of them so long that some addresses are outside.
        let len = if len % 8 == 0 { 0 } else { bits - len % 10 };
        Prefix::new(address, len).expect("no longer than the address")
    })
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0), Just(1), Just(u16::MAX), 20..30_u16]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![Just("a".to_owned()), Just("b".to_owned()), Just("c".to_owned())]
}

prop_compose! {
    /// A rule about few of its fields, so that several match.
    fn rule()(
        protocol in of(prop_oneof![Just(protocol::TCP), Just(protocol::UDP), Just(255)]),
        remote_port in of((port(), port())),
        local_port in of((port(), port())),
        remote_prefix in of(prefix()),
        local_prefix in of(prefix()),
        (peer, interface) in (of(name()), of(name())),
        length in of(0..3_u16),
    ) -> Rule {
        let range = |(one, other): (u16, u16)| one.min(other)..=one.max(other);
        Rule {
            protocol,
            remote_port: remote_port.map(range),
            local_port: local_port.map(range),
            remote_prefix,
            local_prefix,
            peer,
            interface,
            length: length.map(|end| 0..=end),
            ..Rule::default()
        }
    }
}

/// Mostly nothing.
fn of<S: Strategy>(some: S) -> impl Strategy<Value = Option<S::Value>>
where
    S::Value: Clone,
{
    proptest::option::weighted(0.3, some)
}

prop_compose! {
    fn packet()(
        protocol in prop_oneof![Just(protocol::TCP), Just(protocol::UDP), Just(protocol::ICMP), Just(255)],
        (source, destination) in (address(), address()),
        ports in proptest::option::of((port(), port())),
        peer in name(),
        length in 0..4_usize,
    ) -> (Header, String, usize) {
        let header = Header {
            version: Version::V4,
            header_len: 20,
            total_len: 60,
            protocol,
            source,
            destination,
            ports,
            fragment: false,
            ecn: Ecn::NotEct,
            dscp: 0,
            dont_fragment: true,
        };
        (header, peer, length)
    }
}

/// The networks of interfaces `a` and `b`.
fn networks() -> [AttachedNetwork; 3] {
    [("a", "198.18.0.1", 26), ("b", "198.18.0.129", 25), ("b", "2001:db8::1", 121)].map(
        |(interface, address, len)| {
            let address = address.parse().expect("an address");
            let prefix = Prefix::new(address, len).expect("a length");
            AttachedNetwork { interface: interface.to_owned(), address, prefix }
        },
    )
}

proptest! {
    #[test]
    fn the_index_finds_what_comparing_every_rule_finds(
        rules in proptest::collection::vec(rule(), 0..40),
        packets in proptest::collection::vec(packet(), 1..20),
        from in 0..50_usize,
        // Rules before them that match nothing, so that several blocks take part.
        before in prop_oneof![9 => Just(0), 1 => 0..60_usize],
    ) {
        let nothing = Rule { protocol: Some(254), ..Rule::default() };
        let unmatched = core::iter::repeat_n(nothing, before * BLOCK / 20);
        let rules: Vec<Rule> = unmatched.chain(rules).collect();
        let mut table = RuleTable::new(rules.clone());
        table.set_networks(&networks());
        for (header, peer, length) in &packets {
            let origin = table.origin(peer, header);
            let matching: Vec<usize> = table.index.matching(header, origin, from).collect();
            let compared = rules.iter().enumerate().skip(from);
            let session = |rule: &Rule| super::super::matches_session(rule, origin, header);
            let expected: Vec<usize> =
                compared.filter(|(_, rule)| session(rule)).map(|(index, _)| index).collect();
            prop_assert_eq!(matching, expected);
            let first = rules.iter().position(|rule| matches(rule, origin, header, *length));
            prop_assert_eq!(table.find(peer, header, *length, 0), first);
        }
    }
}

#[test]
fn rules_beyond_a_block_are_found_in_order() {
    let count = 2 * BLOCK + 3;
    let rule = |number: usize| Rule {
        remote_port: Some(number as u16..=number as u16),
        priority: Some(Priority::Response),
        ..Rule::default()
    };
    let all = (1..count).map(rule).chain([Rule::default()]).collect::<Vec<_>>();
    let index = Index::new(&all);
    assert_eq!(index.blocks.len(), 3);
    let mut header = Header {
        version: Version::V4,
        header_len: 20,
        total_len: 60,
        protocol: protocol::UDP,
        source: Ipv4Addr::LOCALHOST.into(),
        destination: Ipv4Addr::LOCALHOST.into(),
        ports: None,
        fragment: false,
        ecn: Ecn::NotEct,
        dscp: 0,
        dont_fragment: true,
    };
    for port in 1..count {
        header.ports = Some((9, port as u16));
        let found: Vec<usize> = index.matching(&header, Origin::default(), 0).collect();
        assert_eq!(found, [port - 1, count - 1]);
        let later: Vec<usize> = index.matching(&header, Origin::default(), port).collect();
        assert_eq!(later, [count - 1]);
    }
}
