//! Policy `require`: however the daemon ends, packets to its peers do not leave as plain IP, unless it
//! was told to end. What is not the peers' stays as it is, and nothing is left once it was told.
//!
//! ```text
//!   host a                                  host b
//!   eth0 198.18.0.1/24  ------------------  eth0 198.18.0.2/24       veth, host mode
//!   eth1 198.18.1.1/24  ------------------  eth1 198.18.1.2/24       veth, the tunnel's path
//!        default route  ----------------->  lo   10.77.0.2, fd77::2, 198.19.0.2
//! ```
//!
//! Host b answers plain packets to all of these addresses: an answer shows that the way is open.

mod common;

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use common::host_mode::PlainCounter;
use common::{Daemon, Directory, Family, HANG, Host, key, privileged, run, two_hosts, wait_for};
use mpip_api::{Request, Response};

/// Addresses of peers whose policy is `require`: of tunnels, a network behind one, and in host mode.
const PEERS: [&str; 5] = ["10.77.0.2", "fd77::2", "198.19.0.2", "198.18.0.2", "2001:db8::2"];

/// Host b is no peer at these.
const OTHERS: [&str; 2] = ["198.18.1.2", "2001:db8:1::2"];

/// A daemon's configuration on host a.
struct Configuration {
    /// Of its files.
    number: u8,
    interface: &'static str,
    port: u16,
    peers: String,
}

/// A peer in tunnel mode.
fn tunnel(key_number: u8, endpoint: &str, prefixes: &[&str]) -> String {
    format!(
        "[[peer]]\nname = 'tunnel{key_number}'\npublic_key = '{}'\nendpoints = ['{endpoint}']\n\
         allowed_prefixes = {prefixes:?}\n",
        key(key_number).public_key()
    )
}

/// A peer in host mode.
fn host(key_number: u8, endpoints: &[&str], more: &str) -> String {
    format!(
        "[[peer]]\nname = 'host{key_number}'\npublic_key = '{}'\nendpoints = {endpoints:?}\n\
         host_mode = true\npolicy = 'require'\n{more}\n",
        key(key_number).public_key()
    )
}

impl Configuration {
    fn of(peers: String) -> Self {
        Self { number: 1, interface: "mpip0", port: 6182, peers }
    }

    /// Peers at all of [`PEERS`].
    fn with_all() -> Self {
        let tunnels =
            tunnel(11, "198.18.1.2:6182", &["10.77.0.2/32", "fd77::2/128", "198.19.0.0/24"]);
        let endpoints = ["198.18.0.2:6182", "[2001:db8::2]:6182"];
        Self::of(tunnels + &host(12, &endpoints, ""))
    }

    fn write(&self, directory: &Directory) -> PathBuf {
        let Self { number, interface, port, peers } = self;
        let key_file = directory.0.join(format!("{number}.key"));
        fs::write(&key_file, key(*number).secret_base64().as_str()).expect("writable");
        fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600)).expect("ours");
        let text = format!(
            "[node]\nprivate_key_file = '{number}.key'\nlisten_port = {port}\n\
             control_socket = '{}'\n[interface]\nname = '{interface}'\n{peers}",
            directory.0.join(format!("{number}.sock")).display(),
        );
        let file = directory.0.join(format!("{number}.toml"));
        fs::write(&file, text).expect("writable");
        file
    }

    fn start(&self, host: &Host, directory: &Directory) -> Daemon {
        let file = self.write(directory);
        Daemon::spawn_file(host, directory, self.number, &file).ready()
    }
}

/// The two hosts of the picture.
fn hosts(test: &str) -> (Host, Host) {
    let (a, b) = two_hosts(test, 2, &[Family::V4, Family::V6]);
    for address in ["10.77.0.2/32", "198.19.0.2/32"] {
        b.ip(&["addr", "add", address, "dev", "lo"]);
    }
    b.ip(&["addr", "add", "fd77::2/128", "dev", "lo", "nodad"]);
    a.ip(&["route", "add", "default", "via", "198.18.1.2"]);
    a.ip(&["-6", "route", "add", "default", "via", "2001:db8:1::2"]);
    (a, b)
}

/// Which of `addresses` answer host a.
fn answering<'a>(a: &Host, addresses: &[&'a str]) -> Vec<&'a str> {
    let answers: Vec<bool> = thread::scope(|scope| {
        let pings: Vec<_> =
            addresses.iter().map(|address| scope.spawn(|| a.ping(address, 1))).collect();
        pings.into_iter().map(|ping| ping.join().expect("no panic")).collect()
    });
    addresses.iter().zip(answers).filter(|(_, answer)| *answer).map(|(name, _)| *name).collect()
}

/// Nothing leaves toward the peers, and all else does.
fn assert_closed(a: &Host, plain: &PlainCounter<'_>, when: &str) {
    plain.take();
    assert_eq!(answering(a, &PEERS), [""; 0], "{when}: peers answer plain packets");
    assert_eq!(plain.take(), 0, "{when}: plain packets left");
    assert_eq!(answering(a, &OTHERS), OTHERS, "{when}: who is no peer is out of reach");
}

fn assert_open(a: &Host, when: &str) {
    // Neighbours are not found at once on links that came up just now.
    wait_for(&format!("{when}: all answer"), HANG, || answering(a, &PEERS) == PEERS);
}

/// A way in which a daemon ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Down,
    Signal(&'static str),
    /// Somebody deletes its device, which is an error of the loop.
    DeviceDeleted,
}

impl End {
    const ALL: [Self; 6] = [
        Self::Down,
        Self::Signal("TERM"),
        Self::Signal("INT"),
        Self::Signal("KILL"),
        // As a panic of a release build ends it.
        Self::Signal("ABRT"),
        Self::DeviceDeleted,
    ];

    fn is_orderly(self) -> bool {
        matches!(self, Self::Down | Self::Signal("TERM" | "INT"))
    }

    /// Ends `daemon`, which runs on `a`.
    fn act(self, a: &Host, daemon: &mut Daemon) {
        match self {
            Self::Down => {
                let answer = mpip_api::request(&daemon.socket, &Request::Down).expect("answered");
                assert_eq!(answer, Response::Done);
            }
            Self::Signal(name) => daemon.signal(name),
            Self::DeviceDeleted => drop(a.ip(&["link", "delete", "mpip0"])),
        }
        assert_eq!(daemon.wait(), self.is_orderly(), "{self:?}: {}", daemon.log());
    }
}

#[test]
fn only_an_orderly_end_opens_require() {
    if !privileged() {
        return;
    }
    let (a, _b) = hosts("ends");
    let directory = Directory::new("ends");
    let configuration = Configuration::with_all();
    let before = a.state();
    let plain = PlainCounter::new(&a);
    assert_open(&a, "before");
    for end in End::ALL {
        let mut daemon = configuration.start(&a, &directory);
        assert_closed(&a, &plain, "while it runs");
        end.act(&a, &mut daemon);
        if end.is_orderly() {
            assert_open(&a, &format!("after {end:?}"));
        } else {
            assert_closed(&a, &plain, &format!("after {end:?}"));
            // The next one takes over, and its orderly end opens the way.
            let mut next = configuration.start(&a, &directory);
            assert_closed(&a, &plain, &format!("after {end:?} and a start"));
            next.signal("TERM");
            assert!(next.wait());
            assert_open(&a, &format!("after {end:?}, a start and an orderly end"));
        }
        wait_for("the host as it was", Duration::from_secs(5), || a.state() == before);
    }
    a.exec("nft", &["delete", "table", "inet", "mpip_test"]);
}

/// Lets `daemon` have no more memory than it has, and sends what waits until it asks for more.
fn exhaust(a: &Host, daemon: &mut Daemon) {
    run("prlimit", &["--pid", &daemon.child.id().to_string(), "--as=4096"]);
    let socket = a.spawn(|| UdpSocket::bind("0.0.0.0:0").expect("free")).join().expect("no panic");
    let start = Instant::now();
    while daemon.child.try_wait().expect("our child").is_none() {
        assert!(start.elapsed() < Duration::from_secs(30), "it lives on");
        for _ in 0..1_000 {
            // Once the daemon is gone the kernel may refuse them.
            let _ = socket.send_to(&[0; 1_200], "10.77.0.2:9");
        }
    }
}

#[test]
fn a_daemon_that_gets_no_memory_leaves_require_closed() {
    if !privileged() {
        return;
    }
    let (a, b) = hosts("memory");
    let directory = Directory::new("memory");
    let plain = PlainCounter::new(&a);
    let mut daemon = Configuration::with_all().start(&a, &directory);
    let other = Configuration { number: 11, ..Configuration::of(tunnel(1, "198.18.1.1:6182", &[])) };
    let _other = other.start(&b, &directory);
    wait_for("a path", HANG, || daemon.status().peers[0].paths.iter().any(|p| p.state == "active"));
    // Packets wait for a path that returns.
    b.nft("table ip block { chain in { type filter hook prerouting priority -300; udp dport 6182 drop; }\n}\n");
    exhaust(&a, &mut daemon);
    assert!(!daemon.wait());
    assert!(daemon.log().contains("memory allocation of"), "{}", daemon.log());
    assert_closed(&a, &plain, "without memory");
}
