//! Two daemons ask each other through the tunnel, and measure their paths.
//!
//! ```text
//!   host a                                  host b
//!   eth0 198.18.0.1/24  ---- 40 Mbit/s ---  eth0 198.18.0.2/24       veth, tbf
//!   eth1 198.18.1.1/24  ----  4 Mbit/s ---  eth1 198.18.1.2/24
//!   mpip0 10.77.0.1                         mpip0 10.77.0.2
//! ```

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::common::world::World;
use crate::common::{Configuration, Daemon, Directory, Family, two_hosts, wait_for};
use mpip_api::{BenchReport, Client, ClientError, DIAGNOSIS_PORT, Direction, Request};
use mpip_testing::can_run;

const ENDPOINTS: &[&str] = &["198.18.0.2:6182", "198.18.1.2:6182"];

fn client(daemon: &Daemon) -> Client {
    let mut client = Client::connect(&daemon.socket).expect("it answers");
    client.wait_up_to(Duration::from_secs(30)).expect("a time");
    client
}

fn bench(duration_ms: u64, max_bytes: u64, directions: &[Direction]) -> Request {
    let directions = directions.to_vec();
    Request::Bench { peer: None, address: None, duration_ms, max_bytes, directions }
}

/// `[D-1]`
#[test]
fn the_daemon_of_a_peer_tells_what_it_sees_and_nobody_else_is_answered() {
    if !can_run(&[]) {
        return;
    }
    let world = World::new("view", &[Family::V4], ENDPOINTS, "");
    world.daemon_a.wait_for_paths(2);
    world.daemon_b.wait_for_paths(2);
    for (asking, asked) in [(&world.daemon_a, &world.daemon_b), (&world.daemon_b, &world.daemon_a)]
    {
        let answer = client(asking).ask_peer(None, None).expect("an answer");
        assert_eq!(answer.view.association.node, asked.peer().node);
        let ids = |paths: &[mpip_api::PathStatus]| {
            let active = paths.iter().filter(|path| path.state == "active");
            let mut ids: Vec<u16> = active.map(|path| path.id).collect();
            ids.sort_unstable();
            ids
        };
        assert_eq!(ids(&answer.own.paths), ids(&answer.view.association.paths));
        assert_eq!(answer.view.local_addresses, asked.status().local_addresses);
    }
    let refused = client(&world.daemon_a).ask_peer(Some("nobody".to_owned()), None);
    assert!(matches!(refused, Err(ClientError::Refused(reason)) if reason.contains("`nobody`")));
    // Neither beside the tunnel, nor on the host itself.
    let to = |address: &str| SocketAddr::new(address.parse().expect("valid"), DIAGNOSIS_PORT);
    for (host, address) in [(&world.a, "198.18.0.2"), (&world.b, "127.0.0.1")] {
        let to = to(address);
        let connect = move || TcpStream::connect_timeout(&to, Duration::from_secs(5)).is_ok();
        assert!(!host.spawn(connect).join().expect("no panic"), "{address}");
    }
    let own = to("10.77.0.2");
    let ask = move || {
        let mut stream = TcpStream::connect(own)?;
        stream.write_all(b"{\"version\":1,\"request\":\"view\"}\n")?;
        std::io::read_to_string(&stream)
    };
    let answer = world.b.spawn(ask).join().expect("no panic").expect("an answer");
    assert!(answer.contains("10.77.0.2 belongs to no peer"), "{answer}");
}

#[test]
fn each_path_is_measured_alone_and_all_of_them_together() {
    if !can_run(&["tc"]) {
        return;
    }
    let world = World::new("bench", &[Family::V4], ENDPOINTS, "");
    for host in [&world.a, &world.b] {
        host.shape("eth0", "40mbit");
        host.shape("eth1", "4mbit");
    }
    world.daemon_a.wait_for_paths(2);
    wait_for("the peer's answer", || client(&world.daemon_a).ask_peer(None, None).is_ok());
    let mut looks = Vec::new();
    let request = bench(700, 100_000_000, &[Direction::Send, Direction::Receive]);
    let report = client(&world.daemon_a).bench(&request, |look| looks.push(look.clone()));
    let report = report.expect("measurements");
    assert_eq!(report.together.len(), 2, "{report:#?}");
    assert!(looks.iter().any(|look| look.step == 1 && look.steps == 6 && look.path.is_none()));
    assert!(looks.iter().any(|look| look.step == 6 && look.path.is_some()), "{looks:#?}");
    let measured = |report: &BenchReport, interface: &str| {
        let mut paths = report.paths.iter().filter(|path| path.skipped.is_none());
        paths.find(|path| path.interface == interface).expect(interface).results.clone()
    };
    for results in [&measured(&report, "eth0"), &measured(&report, "eth1"), &report.together] {
        let directions: Vec<_> = results.iter().map(|result| result.direction).collect();
        assert_eq!(directions, [Direction::Send, Direction::Receive], "{report:#?}");
        assert!(results.iter().all(|result| result.bytes > 0), "{report:#?}");
        assert!(results.iter().all(|result| result.cpu.is_some()), "{report:#?}");
    }

    // Enough is enough, and a path that is measured alone carries all of it, however slow it is.
    let carried = || {
        let peer = world.daemon_b.peer();
        let path =
            peer.paths.iter().find(|path| path.interface == "eth1" && path.state == "active");
        path.expect("it works").sent_bytes
    };
    let before = carried();
    let request = bench(10_000, 1_000_000, &[Direction::Send]);
    let report = client(&world.daemon_b).bench(&request, |_| {}).expect("measurements");
    let results = [measured(&report, "eth0"), measured(&report, "eth1"), report.together.clone()];
    for result in results.iter().flatten() {
        assert!((1..=1_000_000).contains(&result.bytes), "{report:#?}");
        assert_eq!(result.capped, result.bytes == 1_000_000, "{report:#?}");
    }
    let (alone, sent) = (results[1][0].bytes, carried() - before);
    assert!(sent >= alone / 10 * 9, "{sent} of {alone} bytes: {report:#?}");
}

#[test]
fn a_measurement_that_is_interrupted_or_not_permitted_leaves_nothing() {
    if !can_run(&[]) {
        return;
    }
    let (a, b) = two_hosts("quiet", 2, &[Family::V4]);
    let directory = Directory::new();
    let (endpoints, peer) = (&[][..], "[diagnosis]\nbench = false");
    let daemon_b =
        Daemon::start(&b, &directory, &Configuration { number: 2, keys: (2, 1), endpoints, peer });
    let (endpoints, peer) = (ENDPOINTS, "");
    let daemon_a =
        Daemon::start(&a, &directory, &Configuration { number: 1, keys: (1, 2), endpoints, peer });
    wait_for("the peer's answer", || client(&daemon_b).ask_peer(None, None).is_ok());
    let refused = client(&daemon_a).bench(&bench(500, 1_000_000, &[Direction::Send]), |_| {});
    let reason = refused.expect_err("not permitted").to_string();
    assert!(reason.contains("`bench` is off in its section [diagnosis]"), "{reason}");
    let too_long = client(&daemon_a).bench(&bench(60_000, 1_000_000, &[Direction::Send]), |_| {});
    assert!(too_long.expect_err("too long").to_string().contains("found 60000 ms"));

    // b may measure. Its client goes away in the middle.
    let mut gone = UnixStream::connect(&daemon_b.socket).expect("it answers");
    let request = bench(10_000, 4_000_000_000, &[Direction::Send, Direction::Receive]);
    gone.write_all(request.to_line().as_bytes()).expect("sent");
    wait_for("data", || daemon_a.peer().received_bytes > 1_000_000);
    drop(gone);
    wait_for("the connection's end", || {
        let list = a.exec("ss", &["-Htn", "state", "established"]);
        !list.contains(&format!(":{DIAGNOSIS_PORT}"))
    });
    // The next one is not told that another is under way.
    let request = bench(500, 1_000_000, &[Direction::Receive]);
    client(&daemon_b).bench(&request, |_| {}).expect("measurements");
}
