use super::*;

const UDP: Packet<'static> = Packet {
    ipv6: false,
    source: None,
    protocol: "udp",
    destination_port: Some(6182),
    interface: "eth0",
    state: State::New,
};

/// A ruleset with these rules of the chain `input`, whose policy is drop, and a chain `other`.
fn ruleset(input: &[&str], other: &[&str]) -> Ruleset {
    let rule = |chain: &str, expr: &str| {
        format!(
            r#"{{"rule": {{"family": "inet", "table": "f", "chain": "{chain}", "expr": [{expr}]}}}}"#
        )
    };
    let mut objects = vec![
        r#"{"chain": {"family": "inet", "table": "f", "name": "input", "type": "filter",
            "hook": "input", "prio": 0, "policy": "drop"}}"#
            .to_owned(),
        r#"{"set": {"family": "inet", "table": "f", "name": "ports", "elem": [22, 6182]}}"#
            .to_owned(),
    ];
    objects.extend(input.iter().map(|expr| rule("input", expr)));
    objects.extend(other.iter().map(|expr| rule("other", expr)));
    Ruleset::parse(&format!(r#"{{"nftables": [{}]}}"#, objects.join(","))).expect("valid")
}

fn test(left: &str, op: &str, right: &str) -> String {
    format!(r#"{{"match": {{"op": "{op}", "left": {left}, "right": {right}}}}}"#)
}

const ACCEPT: &str = r#"{"accept": null}"#;
const DPORT: &str = r#"{"payload": {"protocol": "udp", "field": "dport"}}"#;
const SADDR: &str = r#"{"payload": {"protocol": "ip", "field": "saddr"}}"#;

/// Whether a chain accepts the packet whose only rule is to accept if the condition holds; `None`
/// if that is unknown.
fn accepted(packet: Packet<'_>, left: &str, op: &str, right: &str) -> Option<bool> {
    let rule = format!("{}, {ACCEPT}", test(left, op, right));
    match walk(&ruleset(&[&rule], &[]), &packet) {
        None => Some(true),
        Some(drop) => drop.certain.then_some(false),
    }
}

#[test]
fn conditions_are_judged_as_far_as_the_packet_is_known() {
    let meta = |key: &str| format!(r#"{{"meta": {{"key": "{key}"}}}}"#);
    let th = r#"{"payload": {"protocol": "th", "field": "dport"}}"#;
    let tcp = r#"{"payload": {"protocol": "tcp", "field": "dport"}}"#;
    let ct = r#"{"ct": {"key": "state"}}"#;
    let (yes, no, perhaps) = (Some(true), Some(false), None);
    let cases = [
        (DPORT, "==", "6182", yes),
        (DPORT, "==", "6183", no),
        (DPORT, "!=", "6183", yes),
        (DPORT, "==", r#"{"set": [22, {"range": [6000, 6200]}]}"#, yes),
        (DPORT, "==", r#""@ports""#, yes),
        (DPORT, "==", r#""@unknown""#, perhaps),
        (DPORT, "==", r#""domain""#, perhaps),
        (DPORT, "<", "7000", perhaps),
        (th, "==", "6182", yes),
        (tcp, "==", "6182", no),
        (tcp, "!=", "22", no),
        (ct, "in", r#"["established", "related"]"#, no),
        (ct, "in", r#""new""#, yes),
        (&meta("iifname"), "==", r#""eth*""#, yes),
        (&meta("iifname"), "!=", r#""eth1""#, yes),
        (&meta("iif"), "==", r#""lo""#, no),
        (&meta("l4proto"), "==", r#"{"set": ["tcp", "udp"]}"#, yes),
        (&meta("l4proto"), "==", "17", yes),
        (&meta("nfproto"), "==", r#""ipv6""#, no),
        (&meta("skuid"), "==", "0", perhaps),
        (SADDR, "==", r#""198.18.0.2""#, perhaps),
    ];
    for (left, op, right, expected) in cases {
        assert_eq!(accepted(UDP, left, op, right), expected, "{left} {op} {right}");
    }
}

#[test]
fn a_known_source_is_compared_and_a_field_of_the_other_family_never_matches() {
    let from = Packet { source: "198.18.0.2".parse().ok(), ..UDP };
    let prefix = r#"{"prefix": {"addr": "198.18.0.0", "len": 15}}"#;
    assert_eq!(accepted(from, SADDR, "==", prefix), Some(true));
    assert_eq!(accepted(from, SADDR, "==", r#""198.18.0.3""#), Some(false));
    let range = r#"{"range": ["198.18.0.1", "198.18.0.9"]}"#;
    assert_eq!(accepted(from, SADDR, "==", range), Some(true));
    assert_eq!(accepted(Packet { ipv6: true, ..UDP }, SADDR, "!=", prefix), Some(false));
}

#[test]
fn jumps_maps_and_returns_are_followed() {
    let jump = r#"{"jump": {"target": "other"}}"#;
    let goto = r#"{"goto": {"target": "other"}}"#;
    let wanted = format!("{}, {ACCEPT}", test(DPORT, "==", "6182"));
    let returns = r#"{"return": null}"#;
    assert_eq!(walk(&ruleset(&[jump], &[&wanted]), &UDP), None);
    assert!(walk(&ruleset(&[jump], &[returns, &wanted]), &UDP).is_some());
    assert_eq!(walk(&ruleset(&[jump, ACCEPT], &[returns]), &UDP), None);
    assert!(walk(&ruleset(&[goto, ACCEPT], &[]), &UDP).is_some(), "goto does not come back");
    let map = |key: &str| {
        format!(
            r#"{{"vmap": {{"key": {key}, "data": {{"set": [[53, {{"drop": null}}],
            [{{"range": [6000, 7000]}}, {jump}]]}}}}}}"#
        )
    };
    assert_eq!(walk(&ruleset(&[&map(DPORT)], &[ACCEPT]), &UDP), None);
    let unknown = walk(&ruleset(&[&map(r#"{"meta": {"key": "skuid"}}"#)], &[ACCEPT]), &UDP);
    assert!(!unknown.expect("dropped").certain);
    let endless = walk(&ruleset(&[jump], &[jump]), &UDP);
    assert!(!endless.expect("dropped").certain);
}

#[test]
fn the_drop_is_named_by_rule_or_policy() {
    let reject = format!("{}, {}", test(DPORT, "==", "6182"), r#"{"reject": null}"#);
    let drop = walk(&ruleset(&[&reject, ACCEPT], &[]), &UDP).expect("dropped");
    assert_eq!(drop.reason, "a rule of the chain inet f input");
    let drop = walk(&ruleset(&[], &[]), &UDP).expect("dropped");
    assert_eq!((drop.reason.as_str(), drop.certain), ("policy of the chain inet f input", true));
    assert_eq!(walk(&Ruleset::default(), &UDP), None);
}

#[test]
fn what_may_accept_makes_the_drop_uncertain_and_what_may_drop_nothing() {
    let limited = format!("{}, {}", r#"{"limit": {"rate": 10, "per": "second"}}"#, ACCEPT);
    assert!(!walk(&ruleset(&[&limited], &[]), &UDP).expect("dropped").certain);
    let xt = format!("{}, {}", r#"{"xt": {"type": "match", "name": "udp"}}"#, ACCEPT);
    assert!(!walk(&ruleset(&[&xt], &[]), &UDP).expect("dropped").certain);
    let banned = format!("{}, {}", test(SADDR, "==", r#""@banned""#), r#"{"drop": null}"#);
    assert_eq!(walk(&ruleset(&[&banned, ACCEPT], &[]), &UDP), None);
}

#[test]
fn a_chain_before_routing_drops_too_and_every_chain_has_to_accept() {
    let chain = |name: &str, hook: &str, policy: &str| {
        format!(
            r#"{{"chain": {{"family": "ip", "table": "t", "name": "{name}", "type": "filter",
            "hook": "{hook}", "prio": -300, "policy": "{policy}"}}}}"#
        )
    };
    let parse = |objects: &[String]| {
        Ruleset::parse(&format!(r#"{{"nftables": [{}]}}"#, objects.join(","))).expect("valid")
    };
    let raw = parse(&[chain("raw", "prerouting", "drop")]);
    assert_eq!(walk(&raw, &UDP).expect("dropped").chain, "ip t raw");
    assert_eq!(walk(&raw, &Packet { ipv6: true, ..UDP }), None, "for IPv4 alone");
    let both = parse(&[chain("a", "input", "accept"), chain("b", "input", "drop")]);
    assert_eq!(walk(&both, &UDP).expect("dropped").chain, "ip t b");
    assert_eq!(walk(&parse(&[chain("o", "output", "drop")]), &UDP), None);
}
