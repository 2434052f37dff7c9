//! A changed configuration is applied while packets travel.
//!
//! ```text
//!   host a                        host b, whose configuration changes
//!   eth0 198.18.0.1/24 ---------- eth0 198.18.0.2/24
//!   eth1 198.18.1.1/24 ---------- eth1 198.18.1.2/24     veth
//!   mpip0 10.77.0.1               mpip0 10.77.0.2
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::reloadable::World;
use crate::common::{Daemon, key, wait_for};
use mpip_api::{ClientError, PathOverride, PeerOverride, Request, Response};
use mpip_testing::can_run;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

impl World {
    /// The paths to host a that were not given up, by number. One that is opened anew has another
    /// number.
    fn paths(&self) -> BTreeSet<u16> {
        let peer = self.daemon_b.status().peers.into_iter().find(|peer| peer.name == "host1");
        let paths = peer.expect("the peer is there").paths.into_iter();
        paths.filter(|path| path.state != "abandoned").map(|path| path.id).collect()
    }

    /// Those that work.
    fn working_paths(&self) -> BTreeSet<u16> {
        self.daemon_b.active_paths().into_iter().map(|path| path.id).collect()
    }
}

/// Sections of `count` further peers, which do not exist.
fn others(count: usize) -> String {
    let peer = |number: usize| {
        let mut seed = [9; 32];
        seed[..8].copy_from_slice(&(number as u64).to_be_bytes());
        let own = mpip_crypto::PrivateKey::generate(&mut mpip_crypto::Rng::new(seed));
        format!(
            "[[peer]]\nname = 'other{number}'\npublic_key = '{}'\nallowed_prefixes = \
             ['10.78.{}.{}/32']\n",
            own.public_key(),
            number / 250,
            number % 250
        )
    };
    (0..count).map(peer).collect()
}

/// Sends numbered datagrams from host a to host b, one each 2 ms, while `act` runs; returns
/// how many were sent and the numbers that arrived.
fn stream(world: &World, act: impl FnOnce()) -> (u32, BTreeSet<u32>) {
    let receiver = world.b.spawn(|| UdpSocket::bind("10.77.0.2:9999")).join().expect("no panic");
    let receiver = receiver.expect("its address");
    receiver.set_read_timeout(Some(Duration::from_secs(3))).expect("a time-out");
    // Room for all of them while this program has no processor.
    set_socket_recv_buffer_size_force(&receiver, 4 << 20).expect("by root");
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    let sender = world.a.spawn(move || {
        let socket = UdpSocket::bind("10.77.0.1:0").expect("its address");
        let mut number: u32 = 0;
        while !stopped.load(Ordering::Relaxed) || number < 200 {
            socket.send_to(&number.to_be_bytes(), "10.77.0.2:9999").expect("sent");
            number += 1;
            thread::sleep(Duration::from_millis(2));
        }
        number
    });
    let collector = thread::spawn(move || {
        let (mut numbers, mut buffer) = (BTreeSet::new(), [0; 16]);
        while let Ok(len) = receiver.recv(&mut buffer) {
            assert_eq!(len, 4);
            numbers.insert(u32::from_be_bytes(buffer[..4].try_into().expect("4 bytes")));
        }
        numbers
    });
    act();
    stop.store(true, Ordering::Relaxed);
    let sent = sender.join().expect("no panic");
    (sent, collector.join().expect("no panic"))
}

#[test]
fn a_thousand_peers_come_and_go_and_the_one_that_stays_loses_nothing() {
    if !can_run(&[]) {
        return;
    }
    let world = World::new("thousand");
    assert!(world.a.ping("10.77.0.2", 1));
    let before = world.working_paths();
    let (sent, arrived) = stream(&world, || {
        let many = format!("{}{}", world.text, others(1_000));
        let report = world.reload(&many).expect("valid");
        assert_eq!((report.added.len(), report.removed.len(), report.changed.len()), (1_000, 0, 0));
        assert!(report.duration_ms > 0.0);
        assert_eq!(world.daemon_b.status().peers.len(), 1_001);
        let routes = world.b.ip(&["route", "show", "dev", "mpip0"]);
        assert!(routes.contains("10.78.3.249 proto 109"), "{routes}");
        let report = world.reload(&many).expect("valid");
        assert_eq!((report.added.len(), report.removed.len(), report.changed.len()), (0, 0, 0));
        let report = world.reload(&world.text).expect("valid");
        assert_eq!((report.added.len(), report.removed.len(), report.changed.len()), (0, 1_000, 0));
    });
    let missing: Vec<u32> = (0..sent).filter(|number| !arrived.contains(number)).collect();
    assert!(missing.is_empty(), "{missing:?} of {sent}");
    assert!(before.is_subset(&world.paths()), "{before:?}");
    let routes = world.b.ip(&["route", "show", "dev", "mpip0"]);
    assert!(!routes.contains("10.78."), "{routes}");
    let kinds = |daemon: &Daemon| {
        let events = daemon.status().events.into_iter();
        events.filter(|event| event.name == "established").map(|event| event.count).sum::<u64>()
    };
    assert_eq!((kinds(&world.daemon_a), kinds(&world.daemon_b)), (1, 1), "one handshake");
}

#[test]
fn an_invalid_file_changes_nothing_and_every_mistake_is_told() {
    if !can_run(&[]) {
        return;
    }
    let world = World::new("invalid");
    let before = world.working_paths();
    let file = world.file.display();
    let wrong = format!("{}schedular = 'weighted'\nmax_paths = 0\n{}", world.text, others(3));
    let reason = world.reload(&wrong).expect_err("two mistakes");
    let lines: Vec<&str> = reason.lines().collect();
    assert_eq!(lines.len(), 3, "{reason}");
    assert_eq!(lines[0], "nothing is changed:");
    assert!(lines[1].starts_with(&format!("{file}:14: unknown key `schedular`: did you mean")));
    assert!(lines[2].starts_with(&format!("{file}:15: max_paths: expected a number")), "{reason}");
    // A signal's are in the log.
    world.daemon_b.signal("HUP");
    wait_for("the log", || world.daemon_b.log().matches("did you mean `scheduler`?").count() == 2);

    let fixed = world.text.replace("listen_port = 6182", "listen_port = 7000");
    let fixed = format!("{}{}", fixed.replace("'mpip0'", "'mpip9'"), others(3));
    let reason = world.reload(&fixed).expect_err("they cannot change");
    assert!(
        reason.contains("[node] listen_port: `6182`, which the file makes `7000`,"),
        "{reason}"
    );
    assert!(
        reason.contains("[interface] name: `mpip0`, which the file makes `mpip9`,"),
        "{reason}"
    );
    let peers = world.daemon_b.status().peers;
    assert_eq!(peers.len(), 1, "nothing else of the file is applied either");
    assert!(before.is_subset(&world.paths()), "{before:?}");

    fs::remove_file(&world.file).expect("ours");
    let Err(ClientError::Refused(reason)) = world.ask(&Request::Reload) else { panic!("no file") };
    assert!(reason.contains("expected a configuration file that can be read"), "{reason}");
    assert!(world.a.ping("10.77.0.2", 1));
}

#[test]
fn addresses_prefixes_and_interfaces_follow_the_file() {
    if !can_run(&[]) {
        return;
    }
    let world = World::new("follow-file");
    let (sent, arrived) = stream(&world, || {
        let changed = world
            .text
            .replace("'fd77::2/64'", "'fd77::2/64', '10.79.0.2/24'")
            .replace("'10.77.0.1/32'", "'10.77.0.1/32', '10.80.0.0/16'");
        let changed = format!("{changed}scheduler = 'round-robin'\n");
        let changed = format!("{changed}[[path]]\ninterface = 'eth1'\nstate = 'off'\n");
        let report = world.reload(&changed).expect("valid");
        assert_eq!(report.changed, ["host1"]);
        assert!(report.interfaces && report.added.is_empty() && report.removed.is_empty());
        let addresses = world.b.ip(&["-o", "addr", "show", "dev", "mpip0"]);
        assert!(addresses.contains("10.79.0.2/24"), "{addresses}");
        let routes = world.b.ip(&["route", "show", "dev", "mpip0"]);
        assert!(routes.contains("10.80.0.0/16 proto 109"), "{routes}");
        let status = world.daemon_b.status();
        assert_eq!(status.peers[0].scheduler, "round-robin");
        assert!(status.peers[0].allowed_prefixes.contains(&"10.80.0.0/16".to_owned()));
        assert_eq!(status.local_addresses.len(), 1, "eth1 is off");
        let report = world.reload(&world.text).expect("valid");
        assert!(report.interfaces && report.changed == ["host1"]);
        let addresses = world.b.ip(&["-o", "addr", "show", "dev", "mpip0"]);
        assert!(!addresses.contains("10.79.0.2"), "{addresses}");
        let routes = world.b.ip(&["route", "show", "dev", "mpip0"]);
        assert!(!routes.contains("10.80.0.0/16"), "{routes}");
        wait_for("all paths again", || world.daemon_b.active_paths().len() >= 2);
    });
    let missing: Vec<u32> = (0..sent).filter(|number| !arrived.contains(number)).collect();
    assert!(missing.is_empty(), "{missing:?} of {sent}");
}

#[test]
fn what_is_set_for_the_time_being_ends_with_a_reload() {
    if !can_run(&[]) {
        return;
    }
    let world = World::new("set");
    let set = |peer: &str, key: &str, value: &str| {
        let settings = [(key.to_owned(), value.to_owned())].into();
        world.ask(&Request::SetPeer { peer: peer.to_owned(), settings })
    };
    let path = |interface: &str, state: &str| {
        let (interface, state) = (interface.to_owned(), Some(state.to_owned()));
        let settings = BTreeMap::new();
        world.ask(&Request::SetPath { interface, state, settings, for_s: None })
    };
    assert_eq!(set("host1", "scheduler", "round-robin").expect("valid"), Response::Done);
    assert_eq!(world.daemon_b.peer().scheduler, "round-robin");
    let refused = set("host1", "scheduler", "round").expect_err("unknown");
    assert!(refused.to_string().contains("did you mean `round-robin`?"), "{refused}");
    let refused = path("eth1", "idle").expect_err("unknown");
    assert!(refused.to_string().contains("expected one of `active`, `standby`, `off`"));

    let refused = path("eht1", "standby").expect_err("no such interface");
    assert!(refused.to_string().contains("`eht1`: did you mean `eth1`?"), "{refused}");

    // On standby: nothing is sent there, by either side, while another path works.
    assert_eq!(path("eth1", "standby").expect("valid"), Response::Done);
    let on = |daemon: &Daemon, state: &str| {
        let paths = daemon.peer().paths.into_iter().filter(|path| path.state == state);
        paths.map(|path| (path.local.ip().to_string(), path.remote.ip().to_string())).collect()
    };
    let of_eth1 = |pairs: Vec<(String, String)>| {
        pairs.iter().filter(|(a, b)| a == "198.18.1.2" || b == "198.18.1.2").count()
    };
    for daemon in [&world.daemon_b, &world.daemon_a] {
        wait_for("standby", || of_eth1(on(daemon, "standby")) == 1);
        assert_eq!(of_eth1(on(daemon, "active")), 0);
    }
    let carried = || -> u64 {
        let paths = world.daemon_b.peer().paths.into_iter();
        paths
            .filter(|path| path.local.ip().to_string() == "198.18.1.2")
            .map(|path| path.sent_bytes)
            .sum()
    };
    let (sent, arrived) = stream(&world, || thread::sleep(Duration::from_millis(300)));
    assert_eq!(arrived.len(), sent as usize);
    let before = carried();
    assert!(world.b.ping("10.77.0.1", 20));
    assert!(carried() - before < 20 * 80, "heartbeats alone: {}", carried() - before);
    // It is used when nothing else works.
    world.b.ip(&["link", "set", "eth0", "down"]);
    assert!(world.a.ping("10.77.0.2", 3));
    world.b.ip(&["link", "set", "eth0", "up"]);

    assert_eq!(path("eth1", "off").expect("valid"), Response::Done);
    wait_for("off", || world.daemon_b.status().local_addresses.len() == 1);
    let Ok(Response::Overrides { config_file, overrides }) = world.ask(&Request::Overrides) else {
        panic!("overrides")
    };
    assert_eq!(Path::new(&config_file), world.file);
    let (peer, key) = ("host1".to_owned(), "scheduler".to_owned());
    assert_eq!(overrides.peers, [PeerOverride { peer, key, value: "round-robin".to_owned() }]);
    let (interface, state) = ("eth1".to_owned(), "off".to_owned());
    assert_eq!(overrides.paths, [PathOverride { interface, state, left_s: None }]);

    let report = world.reload(&world.text).expect("valid");
    assert_eq!((report.overrides_dropped, report.changed), (2, vec!["host1".to_owned()]));
    assert_eq!(world.daemon_b.peer().scheduler, "earliest");
    wait_for("eth1 again", || world.daemon_b.active_paths().len() >= 2);
}

#[test]
fn rules_come_and_go_under_an_association_until_the_next_reload() {
    if !can_run(&[]) {
        return;
    }
    let world = World::new("rules");
    let with_rule = format!(
        "{}[[rule]]\nname = 'telnet'\nprotocol = 'tcp'\nremote_port = 23\npriority = 'response'\n",
        world.text
    );
    assert!(world.reload(&with_rule).expect("valid").rules);
    let paths = world.paths();
    let table = || match world.ask(&Request::Rules) {
        Ok(Response::Rules { table }) => table,
        other => panic!("{other:?}"),
    };
    let add = |at: Option<u64>, settings: &[(&str, &str)]| {
        let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let settings = settings.iter().map(text).collect();
        world.ask(&Request::AddRule { at, settings })
    };
    let remove = |rule: &str| world.ask(&Request::RemoveRule { rule: rule.to_owned() });
    let decides = |packet: &str| match world.ask(&Request::TestRule { packet: packet.to_owned() }) {
        Ok(Response::RuleTest { test }) => {
            assert_eq!(test.depends, []);
            (test.rule.and_then(|rule| rule.name), test.treatment.priority, test.peer)
        }
        other => panic!("{other:?}"),
    };
    let named = |name: &str| Some(name.to_owned());
    let (response, throughput) = ("response".to_owned(), "throughput".to_owned());
    let auto = "auto".to_owned();

    let telnet = "tcp 10.77.0.1:23 from 10.77.0.2:4000 length 60 dscp 0";
    assert_eq!(decides(telnet), (named("telnet"), response.clone(), named("host1")));
    assert_eq!(decides("udp 10.77.0.1:53"), (None, auto.clone(), named("host1")));
    assert_eq!(decides("udp 198.18.0.1:53").2, None);
    let refused = world.ask(&Request::TestRule { packet: "udp host1".to_owned() });
    assert!(refused.expect_err("no address").to_string().contains("word 2: expected the address"));

    let calls = [("name", "calls"), ("remote_port", "20-30"), ("priority", "throughput")];
    assert_eq!(add(Some(1), &calls).expect("valid"), Response::Done);
    assert_eq!(decides(telnet), (named("calls"), throughput, named("host1")));
    for (at, settings) in [(None, &calls[..]), (Some(9), &calls[1..]), (None, &calls[..2])] {
        let before = table();
        assert!(matches!(add(at, settings), Err(ClientError::Refused(_))), "{settings:?}");
        assert_eq!(table(), before);
    }
    let Ok(Response::Overrides { overrides, .. }) = world.ask(&Request::Overrides) else {
        panic!("overrides")
    };
    let changed = overrides.rules.expect("a rule was added");
    assert_eq!((changed.in_file, changed.table), (1, table().rules));

    let marks = [("name", "marks"), ("remote_port", "53"), ("set_dscp", "ef")];
    assert_eq!(add(None, &marks).expect("valid"), Response::Done);
    assert_eq!(
        decides("udp 10.77.0.1:53 from 10.77.0.2:4000"),
        (named("marks"), auto, named("host1"))
    );
    assert_eq!(remove("marks").expect("there"), Response::Done);

    assert_eq!(remove("telnet").expect("there"), Response::Done);
    assert_eq!(remove("1").expect("there"), Response::Done);
    assert_eq!(table().rules, []);
    assert!(matches!(remove("telnet"), Err(ClientError::Refused(_))));
    assert!(world.a.ping("10.77.0.2", 3));
    let report = world.reload(&with_rule).expect("valid");
    assert_eq!((report.overrides_dropped, report.rules), (1, true));
    assert_eq!(decides(telnet), (named("telnet"), response, named("host1")));
    assert_eq!(world.paths(), paths, "nothing began anew");
}

#[test]
fn a_removed_peer_has_no_way_and_an_added_one_gets_it() {
    if !can_run(&[]) {
        return;
    }
    let world = World::new("peer");
    let (node, _) = world.text.split_once("[[peer]]").expect("one");
    let report = world.reload(node).expect("valid without peers");
    assert_eq!(report.removed, ["host1"]);
    wait_for("the peer is told", || !world.daemon_a.peer().established);
    let routes = world.b.ip(&["route", "show", "dev", "mpip0"]);
    assert!(!routes.contains("10.77.0.1 proto 109"), "{routes}");
    let report = world.reload(&world.text).expect("valid");
    assert_eq!(report.added, ["host1"]);
    assert!(world.a.ping("10.77.0.2", 3));
    // Another key makes another peer.
    let other =
        world.text.replace(&key(1).public_key().to_string(), &key(7).public_key().to_string());
    let report = world.reload(&other).expect("valid");
    assert_eq!(
        (report.added, report.removed),
        (vec!["host1".to_owned()], vec!["host1".to_owned()])
    );
    wait_for("the former key is refused", || !world.daemon_a.peer().established);
}

/// The example in the document of the protocol, against a daemon.
#[test]
fn the_documented_program_reads_the_status_and_reloads() {
    if !can_run(&["python3"]) {
        return;
    }
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/control.md");
    let document = fs::read_to_string(document).expect("the document exists");
    let (_, rest) = document.split_once("```python\n").expect("an example");
    let (program, _) = rest.split_once("```").expect("closed");
    let world = World::new("python");
    fs::write(&world.file, format!("{}{}", world.text, others(1))).expect("writable");
    let socket = world.daemon_b.socket.display().to_string();
    let output = Command::new("python3").args(["-c", program, &socket]).output().expect("python3");
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(words.contains("host1: 2 of "), "{words}");
    assert!(words.contains("added: other0\n"), "{words}");
}
