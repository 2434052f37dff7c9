//! Valid configurations, and every error of one with the line that it names.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use mpip_core::rules::Origin;
use mpip_core::{
    CongestionControlKind, Encapsulation, EncapsulationPolicy, LossPolicy, PeerConfig, Policy,
    Priority, RateLimit, Rule, SchedulerKind,
};
use mpip_testing::Directory;

use super::*;
use crate::rules;

/// A directory with key files, removed when dropped.
pub(crate) struct Keys(Directory);

impl Keys {
    pub(crate) fn new() -> Self {
        let directory = Self(Directory::new());
        directory.key("node.key", OWN_KEY, 0o600);
        directory.key("psk.key", PEER_KEY, 0o600);
        directory
    }

    pub(super) fn key(&self, name: &str, text: &str, mode: u32) {
        let path = self.0.join(name);
        fs::write(&path, text).expect("writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("owner");
    }

    pub(crate) fn parse(&self, text: &str) -> Result<Settings, ConfigError> {
        parse(&self.0.join("mpip.toml"), text)
    }

    /// The problems of `text`, as `line: message`.
    fn problems(&self, text: &str) -> Vec<String> {
        let error = self.parse(text).expect_err(text);
        let line = |problem: &Problem| problem.line.map_or("-".to_owned(), |l| l.to_string());
        error.problems().iter().map(|p| format!("{}: {}", line(p), p.message)).collect()
    }
}

/// RFC 7748 section 6.1: Alice's private key, and Bob's public key.
const OWN_KEY: &str = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=\n";
pub(crate) const PEER_KEY: &str = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=";
/// Alice's public key.
const OWN_PUBLIC: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";

/// A configuration with a valid peer in lines 3 to 5, and `lines` from line 6 on.
fn with_peer(lines: &str) -> String {
    format!(
        "[node]\nprivate_key_file = 'node.key'\n[[peer]]\nname = 'b'\npublic_key = '{PEER_KEY}'\n\
         {lines}\n"
    )
}

fn with_rule(lines: &str) -> String {
    format!("[node]\nprivate_key_file = 'node.key'\n[[rule]]\n{lines}\n")
}

#[test]
fn a_full_configuration_is_read() {
    let directory = Keys::new();
    let settings = directory
        .parse(&format!(
            "[node]\nprivate_key_file = 'node.key'\nlisten_port = 7000\nkeepalive = 20\n\
             threads = 3\nbusy_poll = 200\ncontrol_socket = '/tmp/x.sock'\n\
             [interface]\nname = 'mpip7'\naddresses = ['10.77.0.1/24', '2001:db8:77::1/64']\n\
             [[path]]\ninterface = 'eth0'\nencapsulation = 'tcp'\n[[path]]\ninterface = 'wwan0'\n\
             [[peer]]\nname = 'b'\npublic_key = '{PEER_KEY}'\npreshared_key_file = 'psk.key'\n\
             endpoints = ['198.18.0.2:6182', '[2001:db8::2]:6182']\n\
             allowed_prefixes = ['10.77.0.2', '2001:db8:77::/64']\n\
             reaches = ['198.19.0.0/24']\n\
             host_mode = false\npolicy = 'require'\nscheduler = 'weighted'\n\
             weights = {{ eth0 = 1000, wwan0 = 1 }}\ncongestion_control = 'cubic'\n\
             max_paths = 3\nloss_policy = 'off'\nresequencing = false\nack_thinning = false\n\
             [[rule]]\nprotocol = 'tcp'\nremote_port = 23\nlength = '0-200'\n\
             priority = 'response'\n\
             [[rule]]\nprotocol = 132\nlength = '1000-'\nremote_prefix = '10.0.0.0/8'\n\
             priority = 'throughput'\nrepair = true\n\
             [[rule]]\nname = 'calls'\nlocal_prefix = '2001:db8:77::/64'\n\
             local_port = '5000-5100'\nremote_port = '1024-'\ndscp = 'ef'\npriority = 'response'\n\
             [[rule]]\nlocal_port = 53\ndscp = 8\nprotocol = 'udp'\nordered = false\n"
        ))
        .expect("valid");
    assert_eq!(settings.listen_port, 7000);
    assert_eq!((settings.keepalive, settings.threads), (Some(Duration::from_secs(20)), 3));
    assert_eq!(settings.busy_poll, Duration::from_micros(200));
    assert_eq!(settings.control_socket, PathBuf::from("/tmp/x.sock"));
    assert_eq!(settings.interface, "mpip7");
    assert_eq!(settings.addresses[1].to_string(), "2001:db8:77::1/64");
    assert_eq!(settings.addresses[0].prefix().to_string(), "10.77.0.0/24");
    assert_eq!(
        settings.path_interfaces.as_deref(),
        Some(&["eth0".to_owned(), "wwan0".to_owned()][..])
    );
    let tcp = ("eth0".to_owned(), EncapsulationPolicy::Tcp);
    assert_eq!(settings.path_encapsulations.into_iter().collect::<Vec<_>>(), [tcp]);
    let peer = &settings.peers[0];
    assert_eq!(peer.public_key.to_string(), PEER_KEY);
    assert_ne!(peer.preshared_key.secret_bytes(), &[0; 32]);
    assert_eq!(peer.endpoints.len(), 2);
    assert_eq!(peer.allowed_prefixes[0].to_string(), "10.77.0.2/32");
    assert_eq!(peer.reaches[0].to_string(), "198.19.0.0/24");
    assert_eq!(peer.scheduler, SchedulerKind::Weighted);
    assert_eq!(peer.fixed_weights, [("eth0".to_owned(), 1000), ("wwan0".to_owned(), 1)]);
    assert_eq!(peer.congestion_control, CongestionControlKind::Cubic);
    assert_eq!((peer.max_paths, peer.resequencing), (Some(3), false));
    assert_eq!(peer.loss_policy, LossPolicy::Off);
    assert!(!peer.ack_thinning);
    let [telnet, bulk, calls, names] = &settings.rules[..] else { panic!("four rules") };
    assert_eq!((telnet.protocol, telnet.remote_port.clone()), (Some(6), Some(23..=23)));
    assert_eq!((telnet.length.clone(), telnet.priority), (Some(0..=200), Some(Priority::Response)));
    assert_eq!((bulk.protocol, bulk.length.clone()), (Some(132), Some(1000..=65_535)));
    assert_eq!((telnet.repair, bulk.repair), (false, true));
    assert_eq!((telnet.name.as_deref(), calls.name.as_deref()), (None, Some("calls")));
    assert_eq!(calls.local_prefix, "2001:db8:77::/64".parse().ok());
    assert_eq!(calls.local_port, Some(5_000..=5_100));
    assert_eq!((calls.remote_port.clone(), calls.dscp), (Some(1_024..=65_535), Some(46)));
    assert_eq!((names.local_port.clone(), names.dscp), (Some(53..=53), Some(8)));
    assert_eq!((names.priority, names.ordered), (None, Some(false)));
}

#[test]
fn defaults_are_as_documented() {
    let settings = Keys::new().parse(&with_peer("")).expect("valid");
    assert_eq!(settings.listen_port, 6182);
    assert_eq!((settings.keepalive, settings.threads), (None, 1));
    assert_eq!(settings.busy_poll, Duration::ZERO);
    assert_eq!(settings.interface, "mpip0");
    assert_eq!(settings.control_socket, PathBuf::from("/run/mpip/mpip0.sock"));
    assert_eq!(settings.path_interfaces, None);
    assert!(settings.path_encapsulations.is_empty());
    let peer = &settings.peers[0];
    assert_eq!(peer.scheduler, SchedulerKind::Earliest);
    assert_eq!(peer.congestion_control, CongestionControlKind::Bbr);
    assert_eq!((peer.max_paths, peer.resequencing), (None, true));
    assert_eq!(peer.loss_policy, LossPolicy::Measured);
    assert!(peer.ack_thinning);
    assert_eq!(peer.preshared_key.secret_bytes(), &[0; 32]);
    assert_eq!((peer.host_mode, peer.policy), (false, Policy::Require));
    let host_mode =
        HostMode { table: 6182, priority: 61, mark: 0x1000_0000, loosen_rp_filter: true };
    assert_eq!(settings.host_mode, host_mode);
    let settings = Keys::new().parse(&with_peer("host_mode = true")).expect("valid");
    assert_eq!((settings.peers[0].host_mode, settings.peers[0].policy), (true, Policy::Prefer));
    assert_eq!(settings.peers[0].reaches, []);
    let lines = "host_mode = true\nendpoints = ['198.18.0.2:6182']";
    for (more, expected) in
        [("", "198.18.0.2/32"), ("exclusive = ['198.18.0.0/15']", "198.18.0.0/15")]
    {
        let text = with_peer(&format!("{lines}\n{more}"));
        let settings = Keys::new().parse(&text).expect("valid");
        let exclusive: Vec<_> =
            settings.peers[0].exclusive.iter().map(ToString::to_string).collect();
        assert_eq!(exclusive, [expected]);
    }
}

/// Asserts that each text has exactly one problem and that it begins as expected.
fn assert_problems(cases: &[(String, &str)]) {
    let directory = Keys::new();
    for (text, expected) in cases {
        let problems = directory.problems(text);
        assert!(
            problems.len() == 1 && problems[0].starts_with(expected),
            "{text}\nexpected: {expected}\nfound:    {problems:?}"
        );
    }
}

#[test]
fn structure_errors_name_the_line() {
    assert_problems(&[
        (String::new(), "1: missing key `node`"),
        ("[node]\n".to_owned(), "1: missing key `private_key_file`"),
        (with_peer("endpoint = []"), "6: unknown key `endpoint`: did you mean `endpoints`?"),
        (with_peer("mtu = 3"), "6: unknown key `mtu`, expected one of `name`,"),
        (with_peer("[[files]]"), "6: unknown key `files`, expected one of `node`,"),
        (with_peer("[node]"), "6: duplicate key"),
        (with_peer("name = 'c'"), "6: duplicate key"),
        (with_peer("max_paths = = 3"), "6: "),
        (with_peer("endpoints = 'x'"), "6: endpoints: expected a list, found string \"x\""),
        (with_peer("max_paths = 'x'"), "6: max_paths: expected a whole number, found string \"x\""),
        (
            with_peer("resequencing = 1"),
            "6: resequencing: expected `true` or `false`, found integer `1`",
        ),
        (
            "[node]\nprivate_key_file = 3\n".to_owned(),
            "2: private_key_file: expected a string, found integer `3`",
        ),
        (
            "[node]\nprivate_key_file = 'node.key'\n[[peer]]\nname = 'b'\n".to_owned(),
            "3: missing key `public_key`",
        ),
    ]);
}

#[test]
fn node_and_interface_errors_name_the_line() {
    let node = |lines: &str| format!("[node]\nprivate_key_file = 'node.key'\n{lines}\n");
    assert_problems(&[
        (node("listen_port = 0"), "3: listen_port: expected a number from 1 to 65535, found 0"),
        (
            node("listen_port = 65536"),
            "3: listen_port: expected a number from 1 to 65535, found 65536",
        ),
        (node("keepalive = 1"), "3: keepalive: expected a number from 2 to 600, found 1"),
        (node("threads = 0"), "3: threads: expected a number from 1 to 64, found 0"),
        (node("busy_poll = -1"), "3: busy_poll: expected a number from 0 to 1000000, found -1"),
        (
            node("control_socket = 'x.sock'"),
            "3: control_socket: expected an absolute path of at most 103 bytes, found `x.sock`",
        ),
        (
            node("control_group = 'no such group'"),
            "3: control_group: expected the name of a group in /etc/group, found `no such",
        ),
        (node("[interface]\nname = ''"), "4: name: expected 1 to 15 visible ASCII"),
        (node("[interface]\nname = 'a/b'"), "4: name: expected 1 to 15 visible ASCII"),
        (node("[interface]\nname = 'sixteen-letters-'"), "4: name: expected 1 to 15 visible ASCII"),
        (
            node("[interface]\naddresses = [\n'10.77.0.1/24',\n'10.77.0.1']"),
            "6: addresses: expected an address with its prefix length like 10.77.0.1/24, \
                 found `10.77.0.1`",
        ),
        (
            node("[interface]\naddresses = ['10.77.0.1/33']"),
            "4: addresses: expected an address with its prefix length",
        ),
        (
            node("[[path]]\ninterface = 'mpip0'"),
            "4: interface: expected an interface other than mpip's own, found `mpip0`",
        ),
        (
            node("[[path]]\ninterface = 'eth0'\n[[path]]\ninterface = 'eth0'"),
            "6: interface: expected each interface once, found `eth0` again",
        ),
    ]);
}

#[test]
fn peer_errors_name_the_line() {
    let second = |lines: &str| with_peer(&format!("[[peer]]\n{lines}"));
    assert_problems(&[
        (
            second(&format!("name = 'b'\npublic_key = '{}'", &OWN_KEY.trim())),
            "7: name: expected a different one for each peer, `b` is used in line 4",
        ),
        (
            second(&format!("name = 'c'\npublic_key = '{PEER_KEY}'")),
            "8: public_key: expected a different one for each peer, this one is used in line 5",
        ),
        (
            second(&format!("name = 'c'\npublic_key = '{OWN_PUBLIC}'")),
            "8: public_key: expected the peer's key, found this node's own",
        ),
        (
            second("name = 'c'\npublic_key = 'AAAA'"),
            "8: public_key: expected a key of 32 bytes as 44 characters of base64, received 3",
        ),
        (
            second(&format!("name = ''\npublic_key = '{}'", &OWN_KEY.trim())),
            "7: name: expected 1 to 64 visible characters, found \"\"",
        ),
        (
            with_peer("endpoints = ['198.18.0.2']"),
            "6: endpoints: expected an address with a port like 198.51.100.2:6182 or \
                 [2001:db8::2]:6182, found `198.18.0.2`",
        ),
        (
            with_peer("endpoints = ['198.18.0.2:0']"),
            "6: endpoints: expected a port from 1 to 65535, found `198.18.0.2:0`",
        ),
        (
            with_peer("endpoints = ['[ff02::1]:6182']"),
            "6: endpoints: expected the address of one other host, found `[ff02::1]:6182`",
        ),
        (
            with_peer("endpoints = ['198.18.0.2:1',\n'198.18.0.2:1']"),
            "7: endpoints: expected each endpoint once, found `198.18.0.2:1`",
        ),
        (
            with_peer("allowed_prefixes = ['10.0.0.0/33']"),
            "6: allowed_prefixes: expected an address prefix like 10.77.0.0/24 or \
                 2001:db8::/32, found `10.0.0.0/33`",
        ),
        (
            with_peer("allowed_prefixes = ['127.1.0.0/16']"),
            "6: allowed_prefixes: expected addresses of other hosts, found `127.1.0.0/16`",
        ),
        (
            with_peer("reaches = ['198.19.0.1', 'lan']"),
            "6: reaches: expected an address prefix like 10.77.0.0/24 or 2001:db8::/32, found \
                 `lan`",
        ),
        (
            with_peer("exclusive = ['198.18.0.0/15']"),
            "6: exclusive: expected only for peers with `host_mode = true`",
        ),
        (
            with_peer(
                "host_mode = true\npolicy = 'require'\nendpoints = ['198.18.0.2:6182']\n\
                     exclusive = ['198.18.1.0/24']",
            ),
            "9: exclusive: expected the addresses of `endpoints` with policy `require`, found \
                 none for 198.18.0.2",
        ),
        (
            with_peer("host_mode = true\nallowed_prefixes = ['224.0.0.0/24']"),
            "7: allowed_prefixes: expected addresses of other hosts, found `224.0.0.0/24`",
        ),
        (
            with_peer("host_mode = true\nallowed_prefixes = ['fe80::1']"),
            "7: allowed_prefixes: expected addresses of other hosts, found `fe80::1/128`",
        ),
        (
            with_peer("allowed_prefixes = ['10.0.0.0/24', '10.0.0.7/24']"),
            "6: allowed_prefixes: expected each prefix once, `10.0.0.0/24` belongs to peer \
                 `b` in line 6",
        ),
        (
            format!(
                "[interface]\naddresses = ['10.77.0.1/24']\n{}",
                with_peer("allowed_prefixes = ['10.77.0.1']")
            ),
            "8: allowed_prefixes: expected addresses of the peer, `10.77.0.1/32` is this \
                 node's own 10.77.0.1/24",
        ),
        (
            with_peer("scheduler = 'random'"),
            "6: scheduler: expected one of `earliest`, `weighted`, `fastest-first`, \
                 `round-robin`, found `random`",
        ),
        (
            with_peer("congestion_control = 'vegas'"),
            "6: congestion_control: expected one of `bbr`, `cubic`, `reno`, `lia`, `olia`, \
                 `balia`, `none`, found `vegas`",
        ),
        (with_peer("max_paths = 0"), "6: max_paths: expected a number from 1 to 64, found 0"),
        (
            with_peer("scheduler = 'weighted'\nweights = { eth0 = 1001 }"),
            "7: weights.eth0: expected a number from 1 to 1000, found 1001",
        ),
        (
            with_peer("scheduler = 'weighted'\nweight_step = 0"),
            "7: weight_step: expected a number from 1 to 1000, found 0",
        ),
        (
            with_peer("scheduler = 'weighted'\nweight_period_ms = 250"),
            "7: weight_period_ms: expected a multiple of 100, found 250",
        ),
        (
            with_peer("scheduler = 'weighted'\nweights = { eth0 = 10 }\nweight_step = 5"),
            "8: weight_step: expected only with scheduler `weighted` and without `weights`, \
                 because nothing else adapts weights",
        ),
        (
            with_peer("weights = { eth0 = 10 }"),
            "6: weights: expected only with scheduler `weighted`, found `earliest`",
        ),
        (
            with_peer(
                "scheduler = 'weighted'\nweights = { eth1 = 10 }\n\
                     [[path]]\ninterface = 'eth0'",
            ),
            "7: weights: expected interfaces that a [[path]] names (`eth0`), found `eth1`",
        ),
        (
            with_peer("policy = 'prefer'"),
            "6: policy: expected `require`, because `prefer` is for peers with `host_mode",
        ),
        (
            with_peer("[host_mode]\ntable = 254"),
            "7: table: expected a number outside of 251 to 255, because neither this table nor \
                 the two after it may be one of the kernel's (253 to 255), found 254",
        ),
        (
            with_peer("[host_mode]\npriority = 32766"),
            "7: priority: expected a number from 1 to 32765, found 32766",
        ),
        (
            with_peer("[host_mode]\nmark = 3"),
            "7: mark: expected a number with one bit like 0x10000000, found 0x3",
        ),
        (
            with_peer("policy = 'maybe'"),
            "6: policy: expected one of `require`, `prefer`, `off`, found `maybe`",
        ),
    ]);
}

const NODE: &str = "[node]\nprivate_key_file = 'node.key'\n";

/// A configuration in which nodes are found that have `lines`, from line 6 on.
fn with_found(lines: &str) -> String {
    format!("{NODE}[opportunistic]\nprefixes = ['198.18.0.0/15']\n[opportunistic.peer]\n{lines}")
}

#[test]
fn nodes_that_are_found_have_settings_as_a_configured_peer_has_them() {
    let directory = Keys::new();
    let lines = "scheduler = 'weighted'\nweights = { eth0 = 1000 }\n\
                 congestion_control = 'cubic'\nmax_paths = 3\nloss_policy = 'off'\n\
                 resequencing = false\nack_thinning = false\nencapsulation = 'tcp'\ntcp_port = 443";
    let settings = directory.parse(&with_found(lines)).expect("valid");
    assert!(settings.requires(Encapsulation::Tcp), "there is no other peer");
    let found = settings.changeable().found.expect("the section is there");
    let configured = directory.parse(&with_peer(lines)).expect("valid").peers.remove(0);
    let apart = PeerConfig::unnamed();
    let expected = PeerConfig {
        name: apart.name,
        public_key: apart.public_key,
        preshared_key: apart.preshared_key,
        endpoints: vec![],
        allowed_prefixes: vec![],
        exclusive: vec![],
        reaches: vec![],
        host_mode: true,
        policy: Policy::Prefer,
        ..configured
    };
    assert_eq!(found, expected);

    let text = format!("{NODE}[opportunistic]\nprefixes = ['198.18.0.0/15']\n");
    let settings = directory.parse(&text).expect("valid");
    assert_eq!(settings.changeable().found, Some(PeerConfig::unnamed()));
    assert!(settings.permits(Encapsulation::Tcp) && !settings.requires(Encapsulation::Tcp));
    assert_eq!(directory.parse(NODE).expect("valid").changeable().found, None);
}

#[test]
fn what_nobody_is_given_who_is_only_found_is_refused_with_the_reason() {
    let only = "expected in a [[peer]] only, found in [opportunistic.peer]: ";
    let cases = [
        ("name = 'x'", "name", "a node that is found has its address"),
        ("public_key = 'x'", "public_key", "`pins` has keys"),
        (
            "preshared_key_file = 'x'",
            "preshared_key_file",
            "a node that is found has no secret of ours",
        ),
        (
            "endpoints = ['198.18.0.2:1']",
            "endpoints",
            "a node that is found has the addresses at which it proved to receive",
        ),
        (
            "allowed_prefixes = ['198.18.0.2/32']",
            "allowed_prefixes",
            "a node that is found has the addresses at which it proved to receive",
        ),
        ("reaches = ['::/0']", "reaches", "a node that is found reaches this host alone"),
        ("host_mode = false", "host_mode", "a node that is found is always in host mode"),
        ("exclusive = []", "exclusive", "it belongs to the section [opportunistic] itself"),
        (
            "policy = 'require'",
            "policy",
            "packets to a node are plain IP until it is found, so it is always `prefer`",
        ),
    ];
    let directory = Keys::new();
    for (line, key, why) in cases {
        let expected = format!("6: {key}: {only}{why}");
        assert_eq!(directory.problems(&with_found(line)), [expected], "{line}");
    }
    // As a whole, because this key has no place of its own.
    let expected =
        format!("5: default_route: {only}a node that is found gets none but its own packets");
    assert_eq!(directory.problems(&with_found("default_route = true")), [expected]);
    let cases = [
        ("max_paths = 65", "6: max_paths: expected a number from 1 to 64, found 65"),
        ("schedular = 'earliest'", "6: unknown key `schedular`: did you mean `scheduler`?"),
        (
            "weights = { eth0 = 1 }",
            "6: weights: expected only with scheduler `weighted`, found `earliest`",
        ),
    ];
    let cases = cases.map(|(line, expected)| (with_found(line), expected));
    assert_problems(&cases);
}

#[test]
fn rule_errors_name_the_line_and_the_reason() {
    let length = "4: rule: length: expected bytes of the IP packet like \"0-200\" or \"1000-\", \
                  at most 65535, found ";
    assert_problems(&[
        (with_rule("protocol = 'tcp'"), "3: missing key `priority`"),
        (
            with_rule("scheduler = 'weighted'\npriority = 'auto'"),
            "4: rule: scheduler: expected priority `throughput` with it, found `auto`",
        ),
        (
            with_rule("copies = 3"),
            "4: rule: copies: expected priority `redundant` with it, found `auto`",
        ),
        (
            with_rule("priority = 'fast'"),
            "4: rule: priority: expected one of `auto`, `throughput`, `response`, \
                 `redundant`, found `fast`",
        ),
        (with_rule("length = '200'\npriority = 'response'"), length),
        (with_rule("length = 'a-b'\npriority = 'response'"), length),
        (with_rule("length = '0-65536'\npriority = 'response'"), length),
        (
            with_rule("length = '9-8'\npriority = 'response'"),
            "4: rule: length: expected the lower end first, found `9-8`",
        ),
        (
            with_rule("protocol = 'tpc'\npriority = 'response'"),
            "4: rule: protocol: expected one of `icmp`, `tcp`,",
        ),
        (
            with_rule("protocol = 256\npriority = 'response'"),
            "4: rule: protocol: expected one of `icmp`, `tcp`,",
        ),
        (
            with_rule("protocol = true\npriority = 'response'"),
            "4: protocol: expected a number, or a name or range in quotes",
        ),
        (
            with_rule("remote_port = 0\npriority = 'response'"),
            "4: rule: remote_port: expected a port from 1 to 65535 or a range like \"5000-5100\" \
                 or \"5000-\", found `0`",
        ),
        (
            with_rule("protocol = 'icmp'\nremote_port = 7\npriority = 'response'"),
            "3: rule: remote_port: expected a protocol that has ports (tcp, udp, sctp, \
                 udplite), or none, so this rule would never match",
        ),
        (
            with_rule("protocol = 47\nlocal_port = 7\npriority = 'response'"),
            "3: rule: local_port: expected a protocol that has ports",
        ),
        (
            with_rule("local_port = '5100-5000'\npriority = 'response'"),
            "4: rule: local_port: expected the lower end first, found `5100-5000`",
        ),
        (
            with_rule("local_prefix = '10.0.0.0/33'\npriority = 'response'"),
            "4: rule: local_prefix: expected an address prefix like 10.77.0.0/24",
        ),
        (
            with_rule("local_prefix = '10.0.0.0/8'\nremote_prefix = '::/0'\npriority = 'response'"),
            "3: rule: local_prefix: expected the IP version of the remote_prefix ::/0, found \
                 10.0.0.0/8, so this rule would never match",
        ),
        (
            with_rule("dscp = 64\npriority = 'response'"),
            "4: rule: dscp: expected a code point from 0 to 63, or its name like `ef`",
        ),
        (
            with_rule("dscp = 1.5\npriority = 'response'"),
            "4: dscp: expected a number, or a name or range in quotes",
        ),
        (
            with_rule("name = ''\npriority = 'response'"),
            "4: name: expected 1 to 64 visible characters, found \"\"",
        ),
        (
            with_rule("name = '12'\npriority = 'response'"),
            "4: name: expected not only digits, because rules have numbers too, found `12`",
        ),
        (
            with_rule(
                "name = 'a'\npriority = 'response'\n[[rule]]\nname = 'a'\n\
                     priority = 'response'",
            ),
            "7: name: expected a different one for each rule, `a` is used in line 4",
        ),
        (
            with_rule("remote_prefix = 'all'\npriority = 'response'"),
            "4: rule: remote_prefix: expected an address prefix like 10.77.0.0/24",
        ),
        (with_rule("port = 3\npriority = 'response'"), "4: unknown key `port`, expected one of"),
    ]);
}

#[test]
fn a_key_file_that_is_missing_open_or_no_key_is_refused() {
    let directory = Keys::new();
    directory.key("open.key", OWN_KEY, 0o640);
    directory.key("short.key", "AAAA", 0o600);
    let with = |file: &str| directory.problems(&format!("[node]\nprivate_key_file = '{file}'\n"));
    let path = |file: &str| directory.0.join(file).display().to_string();

    let missing = with("none.key");
    assert!(missing[0].starts_with("2: expected a key file, `"), "{missing:?}");
    assert!(missing[0].contains(&path("none.key")), "{missing:?}");
    let open = with("open.key");
    assert_eq!(
        open,
        [format!(
            "2: expected a key file that only its owner can use, `{0}` has mode 0640; mend it \
             with `chmod 600 {0}`",
            path("open.key")
        )]
    );
    let short = with("short.key");
    assert!(short[0].contains("expected a key of 32 bytes"), "{short:?}");
    assert!(!short[0].contains("AAAA"), "a key's text is never shown");
    assert!(with("/")[0].contains("is none"));
}

#[test]
fn a_key_file_of_another_user_is_refused() {
    let directory = Keys::new();
    let text = "[node]\nprivate_key_file = 'node.key'\n";
    let file = directory.0.join("node.key");
    let shown = file.display();
    let metadata = fs::metadata(&file).expect("written");
    let owner = metadata.uid();
    // Whoever runs the tests, the file is of another user than this one.
    let checked = keys::check(&file, &metadata, owner + 1);
    if owner == 0 {
        assert_eq!(checked, Ok(()), "root may read and write everything anyway");
        std::os::unix::fs::chown(&file, Some(65_534), None).expect("by root");
        assert_eq!(
            directory.problems(text),
            [format!(
                "2: expected a key file of the user who runs mpipd (0) or of root, `{shown}` is of \
                 user 65534, who can read and change it; mend it with `chown 0 {shown}`"
            )]
        );
        let metadata = fs::metadata(&file).expect("written");
        assert_eq!(keys::check(&file, &metadata, 65_534), Ok(()), "its owner's daemon");
    } else {
        assert!(checked.expect_err("of another user").contains("chown"));
        assert!(directory.parse(text).is_ok());
    }
}

/// As the package has /etc/mpip: of root and the group of the daemon's user.
#[test]
fn a_group_may_read_a_key_file_only_in_a_directory_that_root_shares_with_it() {
    let directory = Keys::new();
    let file = directory.0.join("node.key");
    let allowed = |file_mode, directory_mode| {
        let mode = fs::Permissions::from_mode;
        fs::set_permissions(directory.0.path(), mode(directory_mode)).expect("ours");
        fs::set_permissions(&file, mode(file_mode)).expect("ours");
        let metadata = fs::metadata(&file).expect("written");
        keys::check(&file, &metadata, metadata.uid()).is_ok()
    };
    let by_root = fs::metadata(&file).expect("written").uid() == 0;
    assert_eq!(allowed(0o640, 0o3770), by_root);
    assert!(!allowed(0o640, 0o770), "not shared on purpose");
    assert!(!allowed(0o660, 0o3770), "the group could write it");
    assert!(!allowed(0o644, 0o3770), "others could read it");
    if by_root {
        std::os::unix::fs::chown(directory.0.path(), None, Some(65_534)).expect("by root");
        assert!(!allowed(0o640, 0o3770), "another group");
    }
}

#[test]
fn a_key_file_that_is_a_pipe_or_much_too_long_ends_in_words() {
    let directory = Keys::new();
    let with = |file: &str| directory.problems(&format!("[node]\nprivate_key_file = '{file}'\n"));
    let pipe = directory.0.join("pipe");
    let made = std::process::Command::new("mkfifo").arg("-m600").arg(&pipe).status();
    assert!(made.expect("mkfifo is there").success());
    assert!(with("pipe")[0].contains("is none"));
    directory.key("long.key", &OWN_KEY.repeat(1_000), 0o600);
    assert!(with("long.key")[0].contains("expected a key of 32 bytes"));
    directory.key("text.key", "", 0o600);
    fs::write(directory.0.join("text.key"), [0xff; 44]).expect("writable");
    assert!(with("text.key")[0].contains("is no text of a key"));
}

#[test]
fn everything_that_is_wrong_is_reported_in_the_files_order() {
    let directory = Keys::new();
    let text = with_peer("max_paths = 0\nscheduler = 'x'\n[interface]\nname = ''");
    let error = directory.parse(&text).expect_err("three problems");
    let lines: Vec<_> = error.problems().iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [Some(6), Some(7), Some(9)]);
    let shown = error.to_string();
    assert_eq!(shown.lines().count(), 3);
    let file = directory.0.join("mpip.toml");
    assert!(shown.starts_with(&format!("{}:6: max_paths: ", file.display())), "{shown}");
}

#[test]
fn every_mistake_is_shown_at_once_with_what_was_probably_meant() {
    let directory = Keys::new();
    let text = format!(
        "[nod]\nprivate_key_file = 'node.key'\nlisten_prot = 70000\n\
         [interface]\nadresses = ['10.77.0.1']\n\
         [[peers]]\nname = 'a'\nschedular = 'earliset'\nendpoints = ['198.18.0.1:1', 7]\n\
         max_paths = 'all'\npublic_key = '{PEER_KEY}'\n\
         [[peer]]\nname = 'b'\nallowed_ips = ['10.0.0.0/33']\nmtu = 1400\n\
         [[path]]\nencapsulation = 'upd'\n[[rule]]\nprotocol = 'tcp'\npriority = 3\n"
    );
    assert_eq!(
        directory.problems(&text),
        [
            "1: unknown key `nod`: did you mean `node`?",
            "3: unknown key `listen_prot`: did you mean `listen_port`?",
            "3: listen_port: expected a number from 1 to 65535, found 70000",
            "5: unknown key `adresses`: did you mean `addresses`?",
            "5: addresses: expected an address with its prefix length like 10.77.0.1/24, found \
             `10.77.0.1`",
            "6: unknown key `peers`: did you mean `peer`?",
            "8: unknown key `schedular`: did you mean `scheduler`?",
            "8: scheduler: expected one of `earliest`, `weighted`, `fastest-first`, `round-robin`, \
             found `earliset`: did you mean `earliest`?",
            "9: endpoints: expected a string, found integer `7`",
            "10: max_paths: expected a whole number, found string \"all\"",
            "12: missing key `public_key`",
            "14: unknown key `allowed_ips`: did you mean `allowed_prefixes`?",
            "14: allowed_prefixes: expected an address prefix like 10.77.0.0/24 or 2001:db8::/32, \
             found `10.0.0.0/33`",
            "15: unknown key `mtu`, expected one of `name`, `public_key`, `preshared_key_file`, \
             `endpoints`, `allowed_prefixes`, `reaches`, `host_mode`, `exclusive`, \
             `default_route`, `policy`, `scheduler`, `weights`, `weight_step`, \
             `weight_period_ms`, `congestion_control`, `max_paths`, `loss_policy`, \
             `resequencing`, `ack_thinning`, `encapsulation`, `tcp_port`",
            "16: missing key `interface`",
            "17: encapsulation: expected one of `auto`, `udp`, `tcp`, found `upd`: did you mean \
             `udp`?",
            "20: priority: expected a string, found integer `3`",
        ]
    );
}

#[test]
fn a_broken_line_hides_no_mistake_in_other_lines() {
    let directory = Keys::new();
    let text = with_peer("max_paths = = 3\nschedular = 'earliest'\npolicy = 'maybe'");
    let problems = directory.problems(&text);
    let lines: Vec<_> = problems.iter().map(|problem| &problem[..2]).collect();
    assert_eq!(lines, ["6:", "7:", "8:"], "{problems:?}");
    // What the broken line swallowed is not said to be missing.
    let text = "[node\nprivate_key_file = 'node.key'\n[[peer]]\nname = 'b\n";
    let problems = directory.problems(text);
    assert!(problems.iter().all(|problem| !problem.contains("missing")), "{problems:?}");
}

#[test]
fn a_file_of_nothing_but_mistakes_ends() {
    let directory = Keys::new();
    let keys: String = (0..500).map(|key| format!("zzz{key} = 1\n")).collect();
    let problems = directory.problems(&format!("[node]\nprivate_key_file = 'node.key'\n{keys}"));
    assert_eq!(problems.len(), 100);
    for text in ["= = =", "[[[[", "\0", "node = 3", "peer = [1, 2]", "node = []"] {
        assert!(!directory.problems(text).is_empty(), "{text}");
    }
}

#[test]
fn the_control_socket_is_known_without_keys_and_peers() {
    let directory = Keys::new();
    let file = directory.0.join("mpip.toml");
    for (text, expected) in [
        ("[node]\nprivate_key_file = 'gone'", "/run/mpip/mpip0.sock"),
        ("[interface]\nname = 'mpip4'\nmistake = 1", "/run/mpip/mpip4.sock"),
        ("[node]\ncontrol_socket = '/tmp/a.sock'", "/tmp/a.sock"),
    ] {
        fs::write(&file, text).expect("writable");
        assert_eq!(control_socket(&file), Ok(PathBuf::from(expected)), "{text}");
    }
    fs::write(&file, "[node").expect("writable");
    assert!(control_socket(&file).expect_err("no TOML").problems()[0].line == Some(1));
}

#[test]
fn a_missing_configuration_file_is_named() {
    let error = load(Path::new("/nonexistent/mpip.toml")).expect_err("missing");
    assert!(
        error.to_string().starts_with(
            "/nonexistent/mpip.toml: expected a configuration file that can be read: "
        ),
        "{error}"
    );
}

#[test]
fn a_tunnel_may_carry_multicast_and_link_local_addresses() {
    let directory = Keys::new();
    let text = with_peer("allowed_prefixes = ['224.0.0.5/32', 'fe80::/64', '0.0.0.0/0', '::/0']");
    assert_eq!(directory.parse(&text).expect("valid").peers[0].allowed_prefixes.len(), 4);
}

#[test]
fn gateway_and_router_errors_name_the_line() {
    let section = |lines: &str| with_peer(lines);
    assert_problems(&[
        (section("[gateway]\nmasquerade = true"), "7: masquerade: expected `forward = true`"),
        (section("[gateway]\npool = ['10.0.0.0/33']"), "7: pool: expected an address prefix"),
        (
            section("[gateway]\nendpoints = ['gateway']"),
            "7: endpoints: expected an address with a port like",
        ),
        (section("[gateway]\nname = ''"), "7: name: expected 1 to 64 visible characters"),
        (section("[gateway]\npeers_file = '/'"), "6: peers_file: expected the file of peers"),
        (section("[router]\n"), "6: interfaces: expected the interfaces of the networks"),
        (
            section("[router]\ninterfaces = ['mpip0']"),
            "7: interfaces: expected interfaces other than mpip's own",
        ),
    ]);
}

#[test]
fn one_peer_may_have_the_default_route() {
    let other = |lines: &str| {
        with_peer(&format!(
            "allowed_prefixes = ['0.0.0.0/0']\n[[peer]]\nname = 'c'\npublic_key = '{}'\n{lines}",
            "A".repeat(43) + "="
        ))
    };
    let directory = Keys::new();
    let problems = directory.problems(&other("default_route = true"));
    let expected =
        "7: default_route: expected one peer with it, `b` in line 6 has 0.0.0.0/0 already";
    assert_eq!(problems, [expected]);
    let problems = directory.problems(&with_peer("default_route = true\nhost_mode = true"));
    assert_eq!(problems.len(), 1, "{problems:?}");
    let settings = directory.parse(&with_peer("default_route = true")).expect("valid");
    let prefixes: Vec<String> =
        settings.peers[0].allowed_prefixes.iter().map(ToString::to_string).collect();
    assert_eq!(prefixes, ["0.0.0.0/0", "::/0"]);
    assert!(settings.default_route);
}

#[test]
fn path_properties_are_read_and_errors_name_the_line() {
    let directory = Keys::new();
    let path = |lines: &str| with_peer(&format!("[[path]]\ninterface = 'wwan0'\n{lines}"));
    let valid = "label = 'LTE büro'\ncost = 15\nmetered = true\nbudget = '2 GB/day'\n\
                 loss_threshold = '0.01 %'\nrate_up = '20 Mbit/s'\nrate_down = '0.5 Gbit/s'";
    let settings = directory.parse(&path(valid)).expect("valid");
    let budget = Some(Budget { bytes: 2_000_000_000, period: Period::Day });
    let expected = PathProperties {
        label: Some("LTE büro".to_owned()),
        cost: 15,
        metered: true,
        budget,
        loss_threshold: Some(100),
        rate_up: RateLimit::new(20_000),
        rate_down: RateLimit::new(500_000),
    };
    assert_eq!(settings.path_properties["wwan0"], expected);
    let interfaces = settings.changeable().interfaces();
    assert_eq!((interfaces.cost("wwan0"), interfaces.cost("eth0")), (15, 0));
    assert!(interfaces.metered.contains("wwan0"));
    assert_eq!(interfaces.loss_thresholds.get("wwan0"), Some(&100));
    let rates = [&interfaces.rates_up, &interfaces.rates_down];
    let rates = rates.map(|rates| rates["wwan0"].kbps());
    assert_eq!(rates, [20_000, 500_000]);
    let settings = directory.parse(&path("")).expect("valid");
    assert_eq!(settings.path_properties["wwan0"], PathProperties::default());

    let long = format!("label = '{}'", "x".repeat(33));
    for (lines, expected) in [
        ("cost = 16", "8: cost: expected a number from 0 to 15, found 16"),
        ("cost = -1", "8: cost: expected a number from 0 to 15, found -1"),
        ("label = ''", "8: label: expected 1 to 32 visible characters"),
        ("label = ' a'", "8: label: expected 1 to 32 visible characters"),
        (&long, "8: label: expected 1 to 32 visible characters"),
        ("\nbudget = '2 GB/day'", "9: budget: expected `metered = true` beside it"),
        ("metered = true\nbudget = '2 GB'", "9: budget: expected an amount (kB, MB, GB or TB)"),
        ("metered = 1", "8: metered: "),
        ("loss_threshold = '1'", "8: loss_threshold: expected a percentage from 0.0001 % to 99 %"),
        ("loss_threshold = 1", "8: loss_threshold: expected a string, found integer `1`"),
        ("rate_up = '20'", "8: rate_up: expected a rate in kbit/s, Mbit/s or Gbit/s"),
        ("rate_down = '1 kbit/s'", "8: rate_down: expected 64 kbit/s to 1000 Gbit/s"),
        ("rate_up = 20", "8: rate_up: expected a string, found integer `20`"),
        ("lable = 'a'", "8: "),
    ] {
        let problems = directory.problems(&path(lines));
        assert_eq!(problems.len(), 1, "{lines}: {problems:?}");
        assert!(problems[0].starts_with(expected), "{lines}: {problems:?}");
    }
}

/// Seed 000, table 6: the rows of the MPIP routing table.
const TABLE_6: &str = r#"[[rule]]                       # any host, TCP, port 23, up to 200 bytes: P_Res
protocol = "tcp"
remote_port = 23
length = "0-200"
priority = "response"

[[rule]]                       # 192.168.1.2, TCP, port 80, 200 bytes and more: P_Tp
remote_prefix = "192.168.1.2"
protocol = "tcp"
remote_port = 80
length = "200-"
priority = "throughput"

[[rule]]                       # 192.168.1.3, UDP, port 5221, up to 500 bytes: P_Res
remote_prefix = "192.168.1.3"
protocol = "udp"
remote_port = 5221
length = "0-500"
priority = "response"
"#;

#[test]
fn a_rule_names_a_peer_of_the_file_or_one_that_may_join() {
    let directory = Keys::new();
    let text = |rule: &str| with_peer(&format!("[[rule]]\npriority = 'throughput'\n{rule}\n"));
    let settings = directory.parse(&text("peer = 'b'")).expect("valid");
    assert_eq!(settings.rules[0].peer.as_deref(), Some("b"));
    let error = directory.parse(&text("peer = 'bb'")).expect_err("unknown").to_string();
    let expected = "rule: peer: no peer is named `bb`; there are: `b`";
    assert!(error.contains(expected), "{error}");
    let gateway = "[gateway]\n[interface]\naddresses = ['10.77.0.1/24']\n";
    let settings = directory.parse(&text(&format!("peer = 'bb'\n{gateway}"))).expect("valid");
    assert_eq!(settings.rules[0].peer.as_deref(), Some("bb"));
}

#[test]
fn a_label_in_a_rule_stands_for_all_interfaces_that_have_it() {
    let directory = Keys::new();
    let path = |interface: &str, label: &str| {
        format!("[[path]]\ninterface = '{interface}'\nlabel = '{label}'\n")
    };
    let text = |paths: &[(&str, &str)]| {
        let paths: String = paths.iter().map(|(name, label)| path(name, label)).collect();
        format!(
            "[node]\nprivate_key_file = 'node.key'\n{paths}[[rule]]\npriority = 'throughput'\npaths = \
             {{ avoid = ['LTE at the office', 'eth7'] }}\n"
        )
    };
    let labels =
        [("wwan1", "LTE at the office"), ("eth0", "fibre"), ("wwan0", "LTE at the office")];
    let settings = directory.parse(&text(&labels)).expect("valid");
    let of = |rules: &[Rule]| rules[0].paths.clone().expect("a list").interfaces;
    assert_eq!(of(&settings.rules), ["LTE at the office", "eth7"], "as it is written");
    let by_interface = settings.changeable().rules_by_interface();
    assert_eq!(of(&by_interface), ["wwan0", "wwan1", "LTE at the office", "eth7"]);
    // Another interface has it after a reload.
    let other = directory.parse(&text(&[("usb0", "LTE at the office")])).expect("valid");
    let by_interface = other.changeable().rules_by_interface();
    assert_eq!(of(&by_interface), ["usb0", "LTE at the office", "eth7"]);
    let error = directory.parse(&text(&[("usb0", "LTE at home")])).expect_err("no label");
    let expected = "rule: paths.avoid: expected the label of a [[path]] (`LTE at home`), or the name \
                    of an interface";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn the_routing_table_of_the_seed_decides_as_it_says() {
    let document = include_str!("../../../docs/configuration.md");
    assert!(document.contains(TABLE_6), "the example is in the document");
    let text = format!("[node]\nprivate_key_file = 'node.key'\n{TABLE_6}");
    let settings = Keys::new().parse(&text).expect("valid");
    let list = RuleList::of_file(&settings.rules);
    for (packet, row, priority) in [
        ("tcp 198.18.7.7:23 length 200", Some(1), "response"),
        ("tcp 198.18.7.7:23 length 201", None, "auto"),
        ("tcp 192.168.1.2:80 length 200", Some(2), "throughput"),
        ("tcp 192.168.1.2:80 length 199", None, "auto"),
        ("tcp 192.168.1.3:80 length 1400", None, "auto"),
        ("udp 192.168.1.3:5221 length 500", Some(3), "response"),
        ("udp 192.168.1.3:5221 length 501", None, "auto"),
        ("tcp 192.168.1.3:5221 length 60", None, "auto"),
    ] {
        let tested =
            rules::test(&list, &rules::Packet::parse(packet).expect(packet), Origin::default());
        let number = tested.rule.map(|rule| rule.number);
        assert_eq!((number, tested.treatment.priority.as_str()), (row, priority), "{packet}");
    }
}
