//! Packets in words, and which rule decides about them.

use mpip_core::Rule;

use super::*;
use crate::config::Known;

fn list() -> RuleList {
    RuleList::of_file(&[
        Rule {
            name: Some("telnet".to_owned()),
            protocol: Some(6),
            remote_port: Some(23..=23),
            length: Some(0..=200),
            priority: Some(Priority::Response),
            ..Rule::default()
        },
        Rule {
            local_prefix: "198.18.0.0/24".parse().ok(),
            local_port: Some(5_000..=5_100),
            dscp: Some(46),
            repair: true,
            ..Rule::default()
        },
        Rule {
            remote_prefix: "2001:db8::/32".parse().ok(),
            priority: Some(Priority::Response),
            ..Rule::default()
        },
    ])
}

/// The rule that decides about `text`, and what others depend on.
fn decides(text: &str) -> (Option<u64>, Vec<(u64, Vec<String>)>) {
    let packet = Packet::parse(text).expect(text);
    let RuleTest { rule, treatment, depends, .. } = test(&list(), &packet, Origin::default());
    let number = rule.map(|rule| {
        assert_eq!(rule.treatment, treatment);
        rule.number
    });
    (number, depends.into_iter().map(|it| (it.rule.number, it.on)).collect())
}

#[test]
fn the_table_is_shown_in_the_words_of_the_configuration() {
    let table = table(&list());
    let words = |rule: &RuleStatus| {
        let words: Vec<_> =
            rule.matches.iter().map(|(key, value)| format!("{key}={value}")).collect();
        words.join(" ")
    };
    assert_eq!(
        table.rules.iter().map(words).collect::<Vec<_>>(),
        [
            "length=0-200 protocol=tcp remote_port=23",
            "dscp=ef local_port=5000-5100 local_prefix=198.18.0.0/24",
            "remote_prefix=2001:db8::/32",
        ]
    );
    let [telnet, calls, _] = &table.rules[..] else { panic!("three") };
    assert_eq!((telnet.number, telnet.file_number), (1, Some(1)));
    assert_eq!((telnet.name.as_deref(), calls.name.as_deref()), (Some("telnet"), None));
    assert_eq!((telnet.treatment.priority.as_str(), telnet.treatment.repair), ("response", false));
    assert_eq!((calls.treatment.priority.as_str(), calls.treatment.repair), ("auto", true));
    assert_eq!((table.default.priority.as_str(), table.default.repair), ("auto", false));
}

#[test]
fn the_first_rule_that_matches_the_described_packet_decides() {
    for (text, number) in [
        ("tcp 198.18.0.2:23 from 198.18.0.1:4000 length 180 dscp 0", Some(1)),
        ("tcp 198.18.0.2:23 from 198.18.0.1:4000 length 201 dscp 0", None),
        ("6 198.18.0.2:23 dscp cs0 length 40", Some(1)),
        ("udp 198.18.0.2:23 dscp ef from 198.18.0.1:5100", Some(2)),
        ("icmpv6 2001:db8::2", Some(3)),
        ("tcp [2001:db8::2]:22", Some(3)),
        ("icmp 198.18.0.2 length 84", None),
    ] {
        assert_eq!(decides(text), (number, vec![]), "{text}");
    }
}

#[test]
fn what_is_left_out_makes_rules_depend_on_it_and_only_those() {
    let on = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    for (text, number, depends) in [
        ("tcp 198.18.0.2:23 dscp 0", None, vec![(1, on(&["length"]))]),
        ("tcp 198.18.0.2 dscp 0 length 60", None, vec![(1, on(&["remote_port"]))]),
        (
            "tcp 198.18.0.2",
            None,
            vec![
                (1, on(&["remote_port", "length"])),
                (2, on(&["local_prefix", "local_port", "dscp"])),
            ],
        ),
        // The other IP version never comes from there, and GRE has no ports.
        ("udp [2001:db8::2]:7", Some(3), vec![]),
        ("gre 198.18.0.2", None, vec![]),
        ("udp 198.18.0.2:7 from 198.18.0.1", None, vec![(2, on(&["local_port", "dscp"]))]),
        ("udp 198.18.0.2:7 from 198.18.1.1", None, vec![]),
    ] {
        assert_eq!(decides(text), (number, depends), "{text}");
    }
}

#[test]
fn a_packet_that_is_none_is_refused_with_the_word_and_what_was_expected() {
    for (text, expected) in [
        ("", "expected a packet like `udp 192.168.1.3:5221 length 180`, found nothing"),
        ("upd 198.18.0.2", "word 1: expected one of `icmp`, `tcp`, `udp`,"),
        ("udp", "expected the address that the packet goes to, found the end behind `udp`"),
        (
            "udp 198.18.0",
            "word 2: expected the address that the packet goes to, like 198.51.100.2,",
        ),
        ("udp 198.18.0.2:0", "word 2: expected the address that the packet goes to, like"),
        ("udp 198.18.0.2:65536", "word 2: expected the address that the packet goes to, like"),
        ("udp 198.18.0.0/24", "word 2: expected the address that the packet goes to, like"),
        (
            "icmp 198.18.0.2:7",
            "word 2: expected an address without a port, because icmp has none, found \
             `198.18.0.2:7`",
        ),
        (
            "udp 198.18.0.2 lenght 180",
            "word 3: expected `from`, `length` or `dscp`, found `lenght`: did you mean `length`?",
        ),
        ("udp 198.18.0.2 180", "word 3: expected `from`, `length` or `dscp`, found `180`"),
        (
            "udp 198.18.0.2 length",
            "expected a number of bytes after `length`, found the end behind `length`",
        ),
        (
            "udp 198.18.0.2 length 19",
            "word 4: expected bytes of the IP packet, 20 to 65535, found `19`",
        ),
        (
            "udp 2001:db8::2 length 39",
            "word 4: expected bytes of the IP packet, 40 to 65535, found `39`",
        ),
        ("udp 198.18.0.2 dscp 64", "word 4: expected a code point from 0 to 63, or its name"),
        ("udp 198.18.0.2 dscp", "expected a code point after `dscp`, found the end behind"),
        (
            "udp 198.18.0.2 from 2001:db8::1",
            "word 4: expected an address of the IP version of 198.18.0.2, found `2001:db8::1`",
        ),
        ("udp 198.18.0.2 from here", "word 4: expected the address that the packet comes from,"),
        ("udp 198.18.0.2 length 60 length 61", "word 6: expected `length` once, found it again"),
    ] {
        let reason = Packet::parse(text).expect_err(text);
        assert!(reason.starts_with(expected), "{text}: {reason}");
    }
}

#[test]
fn a_table_is_an_override_as_long_as_it_differs_from_the_file() {
    let mut list = list();
    assert_eq!(overrides(&list), None);
    let settings = [("priority".to_owned(), "response".to_owned())].into();
    list.add(Some(2), &settings, &Known::default()).expect("valid");
    list.remove("telnet").expect("there");
    let changed = overrides(&list).expect("it differs");
    let numbers = |rule: &RuleStatus| (rule.number, rule.file_number);
    let numbers: Vec<_> = changed.table.iter().map(numbers).collect();
    assert_eq!((changed.in_file, numbers), (3, vec![(1, None), (2, Some(2)), (3, Some(3))]));
    assert_eq!((changed.count(), list.changes()), (2, 2));
}

#[test]
fn a_rule_for_a_peer_or_an_interface_decides_about_what_goes_there_or_comes_from_there() {
    let named = |peer: Option<&str>, interface: Option<&str>| Rule {
        peer: peer.map(str::to_owned),
        interface: interface.map(str::to_owned),
        ..Rule::default()
    };
    let list =
        RuleList::of_file(&[named(Some("gateway"), Some("lan")), named(Some("laptop"), None)]);
    let decides = |text: &str, peer: Option<&str>, interface: Option<&str>| {
        let packet = Packet::parse(text).expect(text);
        let tested = test(&list, &packet, Origin { peer, interface });
        assert_eq!(tested.peer.as_deref(), peer);
        let on = tested.depends.into_iter().flat_map(|it| it.on).collect::<Vec<_>>().join(" ");
        (tested.rule.map(|rule| rule.number), on)
    };
    let from = "udp 198.18.0.2 from 198.19.0.7";
    assert_eq!(decides(from, Some("gateway"), Some("lan")), (Some(1), String::new()));
    assert_eq!(decides(from, Some("gateway"), Some("dmz")), (None, String::new()));
    assert_eq!(decides(from, Some("gateway"), None), (None, String::new()));
    assert_eq!(decides(from, Some("laptop"), Some("lan")), (Some(2), String::new()));
    assert_eq!(decides(from, None, Some("lan")), (None, String::new()));
    let anywhere = "udp 198.18.0.2";
    assert_eq!(decides(anywhere, Some("gateway"), None), (None, "interface".to_owned()));
    let shown = table(&list).rules;
    let words =
        |at: usize| shown[at].matches.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>();
    assert_eq!(words(0), ["interface=lan", "peer=gateway"]);
}
