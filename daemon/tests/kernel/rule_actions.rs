//! What rules do to packets of real sockets: copies, paths by interface, code points.
//!
//! ```text
//!   host a, which has the rules   host b
//!   eth0 198.18.0.1/24 ---------- eth0 198.18.0.2/24
//!   eth1 198.18.1.1/24 ---------- eth1 198.18.1.2/24     veth
//!   mpip0 10.77.0.1               mpip0 10.77.0.2
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

use crate::common::{
    Configuration, Daemon, Directory, Family, HANG, Host, add_link, two_hosts, wait_for,
};
use mpip_api::{Request, Response, RuleTest};
use mpip_testing::can_run;

const RULES: &str = "
[[rule]]
name = 'calls'
protocol = 'udp'
remote_port = 9001
priority = 'redundant'
set_dscp = 'ef'

[[rule]]
name = 'camera'
protocol = 'udp'
remote_port = 9002
priority = 'throughput'
ordered = true
paths = { only = ['eth1'] }
";
const A: Configuration<'static> = Configuration {
    number: 1,
    keys: (1, 2),
    endpoints: &["198.18.0.2:6182", "198.18.1.2:6182"],
    peer: RULES,
};
const B: Configuration<'static> =
    Configuration { number: 2, keys: (2, 1), endpoints: &[], peer: "" };

/// How many datagrams a test sends to a port.
const DATAGRAMS: u32 = 200;

/// Sends numbered datagrams from `a` to `port` of `b`; returns those that arrived within some time,
/// in order of arrival, if `count` did not arrive before.
fn stream(a: &Host, b: &Host, port: u16, count: u32, within: Duration) -> Vec<u32> {
    let receiver = b.spawn(move || UdpSocket::bind(("10.77.0.2", port))).join().expect("no panic");
    let receiver = receiver.expect("its address");
    receiver.set_read_timeout(Some(within)).expect("a time-out");
    let sender = a.spawn(move || {
        let socket = UdpSocket::bind("10.77.0.1:0").expect("its address");
        for number in 0..DATAGRAMS {
            socket.send_to(&number.to_be_bytes(), ("10.77.0.2", port)).expect("room");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let (mut came, mut buffer) = (Vec::new(), [0; 64]);
    while came.len() < count as usize {
        match receiver.recv(&mut buffer) {
            Ok(4) => came.push(u32::from_be_bytes(buffer[..4].try_into().expect("4"))),
            Ok(other) => panic!("{other} bytes"),
            Err(_) => break,
        }
    }
    sender.join().expect("no panic");
    // More than were sent would be copies that were delivered.
    receiver.set_read_timeout(Some(Duration::from_millis(200))).expect("a time-out");
    assert!(receiver.recv(&mut buffer).is_err(), "a datagram more");
    came
}

/// Bytes carried and copied by the paths of `daemon`, by interface.
fn by_interface(daemon: &Daemon) -> BTreeMap<String, (u64, u64)> {
    let mut sums = BTreeMap::<String, (u64, u64)>::new();
    for path in daemon.status().peers.remove(0).paths {
        let sum = sums.entry(path.interface).or_default();
        *sum = (sum.0 + path.carried_bytes, sum.1 + path.copied_bytes);
    }
    sums
}

fn test_rule(daemon: &Daemon, packet: &str) -> RuleTest {
    match daemon.ask(&Request::TestRule { packet: packet.to_owned() }) {
        Ok(Response::RuleTest { test }) => *test,
        other => panic!("{other:?}"),
    }
}

fn dropped(daemon: &Daemon) -> u64 {
    let drops = daemon.status().drops;
    drops.iter().find(|drop| drop.name == "no_rule_path").map_or(0, |drop| drop.count)
}

#[test]
fn rules_copy_packets_keep_them_to_their_paths_and_change_their_code_point() {
    if !can_run(&["nft"]) {
        return;
    }
    let (a, b) = two_hosts("rules", 2, &[Family::V4]);
    let directory = Directory::new();
    let daemon_b = Daemon::start(&b, &directory, &B);
    let daemon_a = Daemon::start(&a, &directory, &A);
    daemon_a.wait_for_paths(2);
    daemon_b.wait_for_paths(2);
    b.nft(
        "table inet marks { chain input { type filter hook input priority 0; policy accept;\n\
         udp dport 9001 ip dscp ef counter comment \"marked\"\n\
         udp dport 9001 ip dscp != ef counter comment \"others\"\n }\n}\n",
    );

    let calls = test_rule(&daemon_a, "udp 10.77.0.2:9001 length 60");
    let roles = |test: &RuleTest| {
        let way = test.way.as_ref().expect("a peer");
        let mut roles: Vec<_> = way.paths.iter().map(|path| path.role.clone()).collect();
        roles.sort_unstable();
        roles
    };
    assert_eq!(calls.rule.as_ref().and_then(|rule| rule.name.as_deref()), Some("calls"));
    assert_eq!(roles(&calls), ["copy", "takes"]);

    let mut came = stream(&a, &b, 9001, DATAGRAMS, HANG);
    came.sort_unstable();
    assert_eq!(came, (0..DATAGRAMS).collect::<Vec<_>>());
    let peer = daemon_a.status().peers.remove(0);
    // IP, UDP and the number.
    let bytes = u64::from(DATAGRAMS) * 32;
    assert!(peer.copied_bytes >= bytes * 9 / 10, "{} bytes", peer.copied_bytes);
    assert_eq!(peer.copied_bytes, peer.paths.iter().map(|path| path.copied_bytes).sum::<u64>());
    let counters = b.nft_output(&["list", "table", "inet", "marks"]);
    let none = |name: &str| format!("counter packets 0 bytes 0 comment \"{name}\"");
    // The kernel may see several as one.
    assert!(!counters.contains(&none("marked")), "{counters}");
    assert!(counters.contains(&none("others")), "{counters}");

    let before = by_interface(&daemon_a);
    let came = stream(&a, &b, 9002, DATAGRAMS, HANG);
    assert_eq!(came, (0..DATAGRAMS).collect::<Vec<_>>(), "in order");
    let after = by_interface(&daemon_a);
    assert!(after["eth1"].0 >= before["eth1"].0 + bytes, "{before:?} {after:?}");
    assert!(after["eth0"].0 < before["eth0"].0 + bytes, "{before:?} {after:?}");

    a.ip(&["link", "set", "eth1", "down"]);
    wait_for("the path is known to have failed", || {
        daemon_a.active_paths().iter().all(|path| path.interface != "eth1")
    });
    let camera = test_rule(&daemon_a, "udp 10.77.0.2:9002");
    assert!(roles(&camera).iter().all(|role| role == "none"), "{camera:?}");
    let before = dropped(&daemon_a);
    let came = stream(&a, &b, 9002, DATAGRAMS, Duration::from_secs(1));
    assert_eq!(came, Vec::<u32>::new());
    assert_eq!(dropped(&daemon_a), before + u64::from(DATAGRAMS));
    assert_eq!(stream(&a, &b, 9001, DATAGRAMS, HANG).len(), DATAGRAMS as usize, "others go on");
}

/// What `a` has besides: the labels of its links, and rules by peer and interface.
fn forwarding_rules(eth0: &str, eth1: &str) -> String {
    format!(
        "reaches = ['198.18.9.0/24']\n\
         [[path]]\ninterface = 'eth0'\nlabel = '{eth0}'\n\
         [[path]]\ninterface = 'eth1'\nlabel = '{eth1}'\n\
         [[rule]]\nname = 'guests'\ninterface = 'eth9'\npriority = 'throughput'\n\
         scheduler = 'round-robin'\npaths = {{ only = ['mobile network'] }}\n\
         [[rule]]\nname = 'others'\npeer = 'host2'\npriority = 'throughput'\n\
         paths = {{ only = ['fibre'] }}\n"
    )
}

/// ```text
///   host c, a guest                host a                         host b
///   eth9 198.18.9.2/24 ----------- eth9 198.18.9.1/24
///                                  eth0, eth1 ------------------- eth0, eth1
/// ```
#[test]
fn rules_match_the_peer_and_the_interface_of_the_sender_and_take_labels() {
    if !can_run(&[]) {
        return;
    }
    let (a, b) = two_hosts("rules-from", 2, &[Family::V4]);
    let c = Host::new("rules-from", "c");
    add_link(&a, &c, 9, &[Family::V4]);
    a.sysctl("net/ipv4/ip_forward", "1");
    c.ip(&["route", "add", "10.77.0.2", "via", "198.18.9.1"]);
    let directory = Directory::new();
    let file = B.write(&directory, "");
    let text = fs::read_to_string(&file).expect("written");
    let text = text.replace("'10.77.0.1/32'", "'10.77.0.1/32', '198.18.9.2/32'");
    fs::write(&file, text).expect("writable");
    let _daemon_b = Daemon::spawn_file(&b, &directory, B.number, &file).ready();
    let more = forwarding_rules("fibre", "mobile network");
    let daemon_a = Daemon::start(&a, &directory, &Configuration { peer: &more, ..A });
    daemon_a.wait_for_paths(2);

    let decides = |packet: &str| {
        let test = test_rule(&daemon_a, packet);
        (test.rule.and_then(|rule| rule.name), test.depends.into_iter().flat_map(|it| it.on))
    };
    let named = |packet: &str| decides(packet).0.expect("a rule");
    assert_eq!(named("udp 10.77.0.2 from 198.18.9.2"), "guests");
    assert_eq!(named("udp 10.77.0.2 from 198.18.9.1"), "others", "this host itself");
    assert_eq!(named("udp 10.77.0.2 from 10.77.0.1"), "others");
    let (rule, on) = decides("udp 10.77.0.2");
    assert_eq!(
        (rule.as_deref(), on.collect::<Vec<_>>()),
        (Some("others"), vec!["interface".into()])
    );

    // How much of what `from` sends goes by eth0 and by eth1, in packets of this size.
    let ping = |from: &Host| {
        let before = by_interface(&daemon_a);
        assert!(from.ping_with("10.77.0.2", 20, 1_000), "it is answered");
        let after = by_interface(&daemon_a);
        ["eth0", "eth1"].map(|name| (after[name].0 - before[name].0) / 1_028)
    };
    assert_eq!(ping(&c), [0, 20]);
    assert_eq!(ping(&a), [20, 0]);

    // The labels change places.
    let more = forwarding_rules("mobile network", "fibre");
    Configuration { peer: &more, ..A }.write(&directory, "");
    assert!(matches!(daemon_a.ask(&Request::Reload), Ok(Response::Reloaded { .. })));
    assert_eq!(ping(&c), [20, 0]);
    assert_eq!(ping(&a), [0, 20]);

    let add = |key: &str, value: &str| {
        let settings = [("priority", "response"), (key, value)];
        let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        daemon_a.ask(&Request::AddRule { at: Some(1), settings })
    };
    let error = add("peer", "host3").expect_err("no such peer").to_string();
    assert!(error.contains("no peer is named `host3`"), "{error}");
    add("paths.avoid", "mobile network").expect("a label");
    daemon_a.ask(&Request::RemoveRule { rule: "1".to_owned() }).expect("there");

    // The guest's network is not attached any more.
    a.ip(&["addr", "del", "198.18.9.1/24", "dev", "eth9"]);
    wait_for("its addresses are others'", || named("udp 10.77.0.2 from 198.18.9.2") == "others");
}
