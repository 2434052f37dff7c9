//! UDP in host mode through a NAT: flows that the client begins go on the paths, and the server's
//! applications see the client's public address and a port that the server's daemon chose.
//!
//! ```text
//!   client                   router                         server
//!   eth0 198.19.0.2 -------- lan 198.19.0.1
//!                            wan 198.18.N.1 --- masquerade - wanN 198.18.N.9
//! ```

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::host_mode::{HostConfiguration, PlainCounter, changes};
use crate::common::nat::Site;
use crate::common::{Daemon, Directory, Host, soon, wait_for};
use mpip_testing::can_run;

/// Ports that the server's daemon chooses, and ports that the NAT gives.
const OURS: Range<u16> = 16_384..32_768;
const NATS: Range<u16> = 32_768..61_000;

/// Answers every datagram to a port of the server with the address that it came from and the
/// datagram.
struct Server {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(host: &Host) -> Self {
        let bind = || UdpSocket::bind("198.18.0.9:0").expect("an address of the server");
        let socket = host.spawn(bind).join().expect("no panic");
        let address = socket.local_addr().expect("bound");
        let ends = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ends);
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a time-out");
        let answer = move || {
            let mut buffer = vec![0; 2_048];
            while !stop.load(Ordering::Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
                let mut text = from.to_string().into_bytes();
                text.push(b' ');
                text.extend(&buffer[..len]);
                let _ = socket.send_to(&text, from);
            }
        };
        Self { address, ends, thread: Some(host.spawn(answer)) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A socket of the client from `port` (0: any) that is connected to the server.
fn socket(client: &Host, server: &Server, port: u16) -> UdpSocket {
    let to = server.address;
    let open = move || {
        let socket = UdpSocket::bind(("0.0.0.0", port)).expect("a free port");
        socket.connect(to).expect("UDP");
        socket.set_read_timeout(Some(Duration::from_millis(300))).expect("a time-out");
        socket
    };
    client.spawn(open).join().expect("no panic")
}

/// Sends `payload` and waits for its answer: the port that the server sees.
fn exchange(socket: &UdpSocket, payload: &[u8]) -> Option<u16> {
    socket.send(payload).ok()?;
    let until = Instant::now() + Duration::from_millis(300);
    let mut buffer = vec![0; 2_048];
    while Instant::now() < until {
        let len = socket.recv(&mut buffer).ok()?;
        let at = buffer[..len].iter().position(|byte| *byte == b' ')?;
        // Others are late answers.
        if buffer[at + 1..len] == *payload {
            let text = std::str::from_utf8(&buffer[..at]).expect("an address");
            let seen: SocketAddr = text.parse().expect("an address");
            assert_eq!(seen.ip().to_string(), "198.18.0.1", "the public address");
            return Some(seen.port());
        }
    }
    None
}

/// The port that the server sees, asked until there is an answer.
fn seen(socket: &UdpSocket) -> u16 {
    let mut port = None;
    let mut number = 0_u32;
    let asked = soon(|| {
        number += 1;
        port = exchange(socket, &number.to_be_bytes());
        port.is_some()
    });
    assert!(asked, "no answer");
    port.expect("it was asked")
}

/// A socket of a new flow on the paths. On a machine that stands still paths fail for a moment, and
/// what begins then stays plain.
fn on_the_paths(client: &Host, server: &Server) -> (UdpSocket, u16) {
    let mut found = None;
    wait_for("UDP on the paths", || {
        let socket = socket(client, server, 0);
        let port = seen(&socket);
        found = OURS.contains(&port).then_some((socket, port));
        found.is_some()
    });
    found.expect("it was waited for")
}

fn connect(site: &Site, host: &Host, directory: &Directory) -> [Daemon; 2] {
    let two = HostConfiguration { number: 2, endpoints: &[], peer: "", more: "" };
    let there = two.start(host, directory);
    let here = start_client(site, directory);
    wait_for("the NAT", || there.peer().nats.len() == 1);
    [here, there]
}

fn start_client(site: &Site, directory: &Directory) -> Daemon {
    let (endpoints, peer) = (&["198.18.0.9:6182"][..], "encapsulation = 'udp'");
    let one = HostConfiguration { number: 1, endpoints, peer, more: "" };
    let here = one.start(&site.client, directory);
    here.wait_for_capture(1);
    here
}

#[test]
fn flows_that_begin_take_the_paths_and_others_stay_as_they_are() {
    if !can_run(&["nft", "conntrack"]) {
        return;
    }
    let host = Host::new("nu", "s");
    let site = Site::new("nu", &host, 0, "masquerade");
    let directory = Directory::new();
    let server = Server::start(&host);
    let state = (site.client.state(), host.state());
    let old = socket(&site.client, &server, 0);
    let before = seen(&old);
    assert!(NATS.contains(&before), "{before}");
    let [mut here, mut there] = connect(&site, &host, &directory);
    // A service of the client, which begins after its daemon, too.
    let service = socket(&site.client, &server, 7_777);
    for _ in 0..3 {
        assert_eq!(seen(&service), 7_777);
        assert_eq!(seen(&old), before, "it began as plain IP");
    }
    assert!(site.client.ip(&["rule"]).contains("ipproto udp sport 32768-60999 lookup 6183"));

    // As much as QUIC would, both ways, while the router forgets its mappings.
    let (flow, port) = on_the_paths(&site.client, &server);
    let plain = PlainCounter::new(&site.client);
    let changed = changes([&here, &there]);
    let (mut ports, mut answered) = (BTreeSet::new(), 0);
    for number in 0..1_500_u32 {
        let payload = [&number.to_be_bytes()[..], &[7; 1_100]].concat();
        if let Some(port) = exchange(&flow, &payload) {
            answered += 1;
            ports.insert(port);
        }
        if number % 700 == 500 {
            site.forget();
        }
    }
    let steady = changes([&here, &there]) == changed;
    assert!(answered >= 1_400 || !steady, "{answered} of 1500");
    assert!(ports == BTreeSet::from([port]) || !steady, "{ports:?}, not {port}");
    let plain = plain.take();
    assert!(plain == 0 || !steady, "{plain} packets were plain");
    assert!(here.peer().translated >= 1 && there.peer().translated >= 1);

    for (daemon, host) in [(&mut here, &site.client), (&mut there, &host)] {
        daemon.signal("TERM");
        assert!(daemon.wait());
        let _ = host;
    }
    site.client.exec("nft", &["delete", "table", "inet", "mpip_test"]);
    assert_eq!((site.client.state(), host.state()), state);
    assert!(NATS.contains(&seen(&socket(&site.client, &server, 0))));
}

/// No path works, as when a firewall drops what is mpip's: the server sees the NAT's port until one
/// works again.
#[test]
fn without_a_path_a_flow_is_plain_and_returns_to_its_port() {
    if !can_run(&["nft"]) {
        return;
    }
    let host = Host::new("nuf", "s");
    let site = Site::new("nuf", &host, 0, "masquerade");
    let directory = Directory::new();
    let server = Server::start(&host);
    let [here, _there] = connect(&site, &host, &directory);
    let (flow, port) = on_the_paths(&site.client, &server);
    site.router.nft(
        "table ip cut {\n chain f {\n type filter hook forward priority 0;\n \
         udp dport 6182 drop;\n udp sport 6182 drop;\n }\n}\n",
    );
    wait_for("plain", || here.traffic() == "plain");
    assert!(NATS.contains(&seen(&flow)));
    let meanwhile = socket(&site.client, &server, 0);
    let nats = seen(&meanwhile);
    assert!(NATS.contains(&nats), "{nats}");
    site.router.exec("nft", &["delete", "table", "ip", "cut"]);
    wait_for("the same port as before", || seen(&flow) == port);
    assert_eq!(seen(&meanwhile), nats, "it began as plain IP");
}

/// After SIGKILL the rules lead nowhere, the next daemon takes them over, and nothing is left.
#[test]
fn rules_of_a_killed_daemon_harm_nothing_and_go() {
    if !can_run(&["nft"]) {
        return;
    }
    let host = Host::new("nuk", "s");
    let site = Site::new("nuk", &host, 0, "masquerade");
    let directory = Directory::new();
    let server = Server::start(&host);
    let state = site.client.state();
    let rules = |site: &Site| site.client.ip(&["rule"]).matches("sport").count();
    let [mut here, _there] = connect(&site, &host, &directory);
    drop(on_the_paths(&site.client, &server));
    here.kill();
    assert!(NATS.contains(&seen(&socket(&site.client, &server, 0))));
    let mut here = start_client(&site, &directory);
    drop(on_the_paths(&site.client, &server));
    assert_eq!(rules(&site), 1);
    here.kill();
    // `mpip down` with the configuration file.
    let file = directory.join("1.toml");
    let mpipd = env!("CARGO_BIN_EXE_mpipd");
    site.client.exec(mpipd, &["--config", file.to_str().expect("ASCII"), "--clean-up"]);
    assert_eq!(site.client.state(), state);
}
