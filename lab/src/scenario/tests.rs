use core::time::Duration;

use super::file::ScenarioError;
use super::*;
use mpip_link::{Loss, QueueLimit};

const VALID: &str = r#"
title = "Two links"
duration = "20 s"
seed = 4
systems = ["tcp", "slow mpip"]

[system."slow mpip"]
kind = "mpip"
scheduler = "weighted"

[[interface]]
host = "client"
name = "a"
address = "198.18.1.1"
[[interface]]
host = "server"
name = "a"
address = "198.18.1.2"
[[interface]]
host = "client"
name = "b"
address = "198.18.2.1"
[[interface]]
host = "server"
name = "b"
address = "198.18.2.2"

[[link]]
name = "one"
ends = ["client.a", "server.a"]
rate = "9.3 Mbit/s"
queue = "100 packets"
delay = "5 ms"
jitter = "3 ms"
[link.reverse]
loss = "0.1 %"

[[link]]
name = "two"
ends = ["client.b", "server.b"]
trace = "lte.trace"
burst_loss = { good_to_bad = "1 %", bad_to_good = "25 %" }

[[event]]
at = "10 s"
link = "one"
up = false
announced = true
[[event]]
at = "5 s"
link = "two"
direction = "forward"
delay = "90 ms"

[[traffic]]
kind = "tcp"
from = "client"
to = "server"
start = "1 s"
"#;

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse("two.toml", text, &mut |name| {
        if name == "lte.trace" { Ok("1\n2\n".to_owned()) } else { Err("not found".to_owned()) }
    })
}

#[test]
fn a_file_is_read_with_all_its_settings() {
    let scenario = parse(VALID).expect("valid");
    assert_eq!(scenario.repetitions, 3);
    assert_eq!(scenario.congestion_control, "cubic");
    assert_eq!(scenario.hosts(), ["client", "server"]);
    assert_eq!(scenario.systems[1].kind, "mpip");
    assert_eq!(scenario.systems[1].settings["scheduler"].as_str(), Some("weighted"));
    let one = &scenario.links[0];
    assert_eq!(one.forward.rate, Some(9_300_000));
    assert_eq!(one.forward.queue, QueueLimit::Packets(100));
    assert_eq!(one.forward.loss, Loss::None);
    assert_eq!(one.reverse.loss, Loss::Random(0.001));
    assert_eq!(one.reverse.delay, Duration::from_millis(5));
    assert!((scenario.links[1].forward.loss.mean() - 0.01 / 0.26).abs() < 1e-12);
    assert!(scenario.links[1].forward.trace.is_some());
    assert_eq!(scenario.traffic[0].duration, Duration::from_secs(19));
    assert_eq!(scenario.paths("client", "server").len(), 2);
}

#[test]
fn events_are_in_order_and_apply_to_their_direction() {
    let scenario = parse(VALID).expect("valid");
    assert_eq!(scenario.events[0].at, Duration::from_secs(5));
    let links = scenario.links_at(Duration::from_secs(5));
    assert_eq!(links[1].0.delay, Duration::from_millis(90));
    assert_eq!(links[1].1.delay, Duration::ZERO);
    assert!(links[0].0.up);
    assert!(!scenario.links_at(Duration::from_secs(10))[0].1.up);
}

#[test]
fn paths_cross_switches_but_not_interfaces() {
    let links = r#"
[[link]]
ends = ["client.a", "west"]
[[link]]
ends = ["client.b", "west"]
[[link]]
ends = ["west", "east"]
[[link]]
ends = ["server.a", "east"]
[[link]]
ends = ["server.b", "east"]
[[pair]]
name = "p"
ends = ["server.b", "client.a"]
rate = "1 Mbit/s"
"#;
    let head = &VALID[..VALID.find("[[link]]").expect("a link")];
    let tail = &VALID[VALID.find("[[traffic]]").expect("traffic")..];
    let scenario = parse(&format!("{head}{links}{tail}")).expect("valid");
    let paths = scenario.paths("client", "server");
    assert_eq!(paths.len(), 4);
    let hops = |path: &Path| -> Vec<(usize, bool)> {
        path.hops.iter().map(|hop| (hop.link, hop.forward)).collect()
    };
    let forward: Vec<_> = paths.iter().map(hops).collect();
    assert!(forward.contains(&vec![(0, true), (5, false), (2, true), (4, false)]));
    assert!(forward.contains(&vec![(1, true), (2, true), (3, false)]));
}

#[test]
fn paths_lead_through_routers_and_name_the_next_interface() {
    let links = r#"
[[interface]]
host = "nat"
name = "in"
address = "198.18.9.1"
[[interface]]
host = "nat"
name = "out"
address = "198.18.9.2"
[[router]]
host = "nat"
setup = "true"
[[command]]
at = "3 s"
host = "nat"
run = "false"
[[link]]
ends = ["client.a", "nat.in"]
[[link]]
ends = ["nat.out", "server.a"]
[[link]]
ends = ["client.b", "server.b"]
"#;
    let head = &VALID[..VALID.find("[[link]]").expect("a link")];
    let tail = &VALID[VALID.find("[[traffic]]").expect("traffic")..];
    let scenario = parse(&format!("{head}{links}{tail}")).expect("valid");
    let index = |name: &str| {
        scenario.interfaces.iter().position(|i| i.full_name() == name).expect("an interface")
    };
    let paths = scenario.paths("client", "server");
    assert_eq!(paths.len(), 2);
    assert_eq!(paths[0].next, index("nat.in"));
    assert_eq!(paths[0].hops.iter().map(|hop| hop.link).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(paths[1].next, index("server.b"));
    let back = scenario.path(index("server.a"), index("client.a")).expect("a path");
    assert_eq!(back.next, index("nat.out"));
    assert_eq!(back.hops, [Hop { link: 1, forward: false }, Hop { link: 0, forward: false }]);
    // From the router itself only its own links lead on.
    assert!(scenario.path(index("nat.in"), index("server.a")).is_none());
    assert_eq!(scenario.commands[0].host, "nat");
    let wrong = format!("{head}{links}{tail}")
        .replace("[[router]]\nhost = \"nat\"", "[[router]]\nhost = \"nta\"");
    assert!(parse(&wrong).expect_err("no such host").message.contains("nta"));
}

#[test]
fn errors_name_file_and_line() {
    let cases = [
        ("rate = \"9.3 Mbit/s\"", "rate = \"9.3 Mbps\"", "Mbit/s"),
        ("jitter = \"3 ms\"", "jiter = \"3 ms\"", "jiter"),
        ("ends = [\"client.b\", \"server.b\"]", "ends = [\"client.c\", \"server.b\"]", "client.c"),
        ("link = \"one\"", "link = \"three\"", "three"),
        ("to = \"server\"", "to = \"nobody\"", "nobody"),
        ("kind = \"tcp\"", "kind = \"pigeon\"", "pigeon"),
        ("trace = \"lte.trace\"", "trace = \"no.trace\"", "no.trace"),
        ("address = \"198.18.2.2\"", "address = \"198.18.1.1\"", "198.18.1.1"),
        ("systems = [\"tcp\", \"slow mpip\"]", "systems = [\"tpc\"]", "tpc"),
    ];
    for (from, to, expected) in cases {
        assert_eq!(VALID.matches(from).count(), 1, "{from}");
        let text = VALID.replace(from, to);
        let error = parse(&text).expect_err(to);
        let line = VALID[..VALID.find(from).expect("it is there")].lines().count() + 1;
        assert_eq!(error.line, line, "{error}");
        assert!(error.message.contains(expected), "{error}");
        assert!(error.to_string().starts_with(&format!("two.toml:{line}: ")), "{error}");
    }
}

#[test]
fn quic_traffic_names_implementation_and_congestion_control() {
    let with =
        |keys: &str| parse(&VALID.replace("kind = \"tcp\"", &format!("kind = \"quic\"{keys}")));
    let kind = |keys| with(keys).expect("valid").traffic[0].kind.clone();
    let quic = |implementation, congestion_control: Option<&str>, download| TrafficKind::Quic {
        implementation,
        congestion_control: congestion_control.map(str::to_owned),
        download,
    };
    assert_eq!(kind(""), quic(QuicImplementation::Quinn, None, false));
    let all = "\nimplementation = \"quinn\"\ncongestion_control = \"bbr\"\ndownload = true";
    assert_eq!(kind(all), quic(QuicImplementation::Quinn, Some("bbr"), true));
    assert_eq!(
        kind("\nimplementation = \"quic-go\""),
        quic(QuicImplementation::QuicGo, None, false)
    );
    for (keys, expected) in [
        ("\nimplementation = \"mvfst\"", "mvfst"),
        ("\ncongestion_control = \"vegas\"", "vegas"),
        ("\nimplementation = \"quic-go\"\ncongestion_control = \"bbr\"", "[\"reno\"]"),
    ] {
        let error = with(keys).expect_err(keys);
        assert!(error.message.contains(expected), "{error}");
    }
}

#[test]
fn every_link_direction_and_repetition_has_its_own_seed() {
    let scenario = parse(VALID).expect("valid");
    let mut seeds: Vec<u64> = (0..8)
        .flat_map(|link| [true, false].map(|forward| (link, forward)))
        .flat_map(|(link, forward)| (0..10).map(move |repetition| (link, forward, repetition)))
        .map(|(link, forward, repetition)| scenario.link_seed(link, forward, repetition))
        .collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), 160);
}

#[test]
fn a_translated_address_is_reached_at_its_public_one() {
    let text = VALID
        .replace("address = \"198.18.1.2\"", "address = \"198.18.1.2\"\npublic = \"198.18.9.9\"");
    let scenario = parse(&text).expect("valid");
    let [translated, other] = [&scenario.interfaces[1], &scenario.interfaces[0]];
    assert!(translated.private && !other.private);
    assert_eq!(translated.reached_at().to_string(), "198.18.9.9");
    assert_eq!(other.reached_at(), other.address);
}
