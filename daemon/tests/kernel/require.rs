//! Policy `require`: however the daemon ends, packets to its peers do not leave as plain IP, unless
//! it was told to end. What is not the peers' stays as it is, and nothing is left once it was told.
//!
//! ```text
//!   host a                                  host b
//!   eth0 198.18.0.1/24  ------------------  eth0 198.18.0.2/24       veth, host mode
//!   eth1 198.18.1.1/24  ------------------  eth1 198.18.1.2/24       veth, the tunnel's path
//!        default route  ----------------->  lo   10.77.0.2, fd77::2, 198.19.0.2
//! ```
//!
//! Host b answers plain packets to all of these addresses: an answer shows that the way is open.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::common::{Daemon, Directory, Family, Host, key, run, two_hosts, wait_for};
use mpip_api::{Request, Response};
use mpip_testing::can_run;

/// Addresses of peers whose policy is `require`: of tunnels, a network behind one, and in host
/// mode.
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
        let key_file = directory.join(format!("{number}.key"));
        fs::write(&key_file, key(*number).secret_base64().as_str()).expect("writable");
        fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600)).expect("ours");
        let text = format!(
            "[node]\nprivate_key_file = '{number}.key'\nlisten_port = {port}\n\
             control_socket = '{}'\n[interface]\nname = '{interface}'\n{peers}",
            directory.join(format!("{number}.sock")).display(),
        );
        let file = directory.join(format!("{number}.toml"));
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

/// Counts what leaves host a by its links toward the peers and is neither a path nor neighbour
/// discovery. While the way is closed that is nothing, and what left before is not counted
/// ([`assert_open`]).
const COUNTER: &str = "
table inet mpip_test {
    counter plain {}
    chain out {
        type filter hook postrouting priority 0;
        oifname != \"eth*\" accept
        udp dport 6182-6184 accept
        tcp dport 6182-6184 accept
        icmpv6 type 130-143 accept
        ip daddr { 10.77.0.2, 198.19.0.2, 198.18.0.2 } counter name plain
        ip6 daddr { fd77::2, 2001:db8::2 } counter name plain
    }
}
";

/// Nothing leaves toward the peers, and all else does.
fn assert_closed(a: &Host, when: &str) {
    let pings = PEERS.map(|address| a.send_ping(address));
    // By the time that these answer, plain packets to the peers would have been answered.
    assert_eq!(answering(a, &OTHERS), OTHERS, "{when}: who is no peer is out of reach");
    let answered = pings.iter().flatten().filter(|ping| ping.is_answered()).count();
    assert_eq!(answered, 0, "{when}: peers answer plain packets");
    let plain = a.nft_output(&["list", "counter", "inet", "mpip_test", "plain"]);
    assert!(plain.contains("packets 0 "), "{when}: {plain}");
}

fn assert_open(a: &Host, when: &str) {
    // Neighbours are not found at once on links that came up just now.
    wait_for(&format!("{when}: all answer"), || answering(a, &PEERS) == PEERS);
    a.nft_output(&["reset", "counter", "inet", "mpip_test", "plain"]);
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
    if !can_run(&[]) {
        return;
    }
    let (a, _b) = hosts("ends");
    let directory = Directory::new();
    let configuration = Configuration::with_all();
    let before = a.state();
    a.nft(COUNTER);
    assert_open(&a, "before");
    for end in End::ALL {
        let mut daemon = configuration.start(&a, &directory);
        assert_closed(&a, "while it runs");
        end.act(&a, &mut daemon);
        if end.is_orderly() {
            assert_open(&a, &format!("after {end:?}"));
        } else {
            assert_closed(&a, &format!("after {end:?}"));
            // The next one takes over, and its orderly end opens the way.
            let mut next = configuration.start(&a, &directory);
            assert_closed(&a, &format!("after {end:?} and a start"));
            next.signal("TERM");
            assert!(next.wait());
            assert_open(&a, &format!("after {end:?}, a start and an orderly end"));
        }
        wait_for("the host as it was", || a.state() == before);
    }
}

/// Lets `daemon` have no more memory than it has, and sends what waits until it asks for more.
fn exhaust(a: &Host, daemon: &mut Daemon) {
    run("prlimit", &["--pid", &daemon.child.id().to_string(), "--as=4096"]);
    let socket = a.spawn(|| UdpSocket::bind("0.0.0.0:0").expect("free")).join().expect("no panic");
    wait_for("it ends", || {
        for _ in 0..1_000 {
            // Once the daemon is gone the kernel may refuse them.
            let _ = socket.send_to(&[0; 1_200], "10.77.0.2:9");
        }
        daemon.child.try_wait().expect("our child").is_some()
    });
}

#[test]
fn a_daemon_that_gets_no_memory_leaves_require_closed() {
    if !can_run(&[]) {
        return;
    }
    let (a, b) = hosts("memory");
    let directory = Directory::new();
    a.nft(COUNTER);
    let mut daemon = Configuration::with_all().start(&a, &directory);
    let other =
        Configuration { number: 11, ..Configuration::of(tunnel(1, "198.18.1.1:6182", &[])) };
    let _other = other.start(&b, &directory);
    wait_for("a path", || daemon.status().peers[0].paths.iter().any(|p| p.state == "active"));
    // Packets wait for a path that returns.
    b.nft(
        "table inet block { chain in { type filter hook prerouting priority -300;\n\
         udp dport 6182 drop; tcp dport 6182 drop; }\n}\n",
    );
    exhaust(&a, &mut daemon);
    assert!(!daemon.wait());
    assert!(daemon.log().contains("memory allocation of"), "{}", daemon.log());
    assert_closed(&a, "without memory");
}

/// Runs `mpipd` on `host` with this option and the configuration in `file`: its status and words.
fn mpipd(host: &Host, option: &str, file: &Path) -> (Option<i32>, String) {
    let arguments = ["netns", "exec", &host.name, env!("CARGO_BIN_EXE_mpipd"), option, "--config"];
    let output = Command::new("ip").args(arguments).arg(file).output().expect("ip");
    let words = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&words).into_owned())
}

#[test]
fn a_start_that_fails_leaves_what_it_found() {
    if !can_run(&[]) {
        return;
    }
    let (a, _b) = hosts("failed");
    let directory = Directory::new();
    let configuration = Configuration::with_all();
    let before = a.state();
    a.nft(COUNTER);
    let fails = || {
        let taken = a.take(|| UdpSocket::bind("198.18.0.1:6182"));
        let file = configuration.write(&directory);
        let mut daemon = Daemon::spawn_file(&a, &directory, 1, &file);
        assert!(!daemon.wait());
        assert!(daemon.log().contains("expected a free UDP port"), "{}", daemon.log());
        taken.release();
    };
    fails();
    assert_eq!(a.state(), before, "it was open");
    let mut daemon = configuration.start(&a, &directory);
    End::Signal("KILL").act(&a, &mut daemon);
    fails();
    assert_closed(&a, "after a kill and a start that failed");
    let mut daemon = configuration.start(&a, &directory);
    End::Signal("TERM").act(&a, &mut daemon);
    assert_eq!(a.state(), before);
}

#[test]
fn what_is_left_is_named_and_removed_by_hand() {
    if !can_run(&[]) {
        return;
    }
    let (a, _b) = hosts("byhand");
    let directory = Directory::new();
    let configuration = Configuration::with_all();
    let file = configuration.write(&directory);
    let before = a.state();
    a.nft(COUNTER);
    assert_eq!(mpipd(&a, "--clean-up", &file), (Some(0), String::new()), "nothing is left");
    for by_mpip in [true, false] {
        let mut daemon = configuration.start(&a, &directory);
        let (code, words) = mpipd(&a, "--clean-up", &file);
        assert!(code == Some(1) && words.contains("already running"), "{words}");
        assert_closed(&a, "it goes on");
        daemon.kill();

        let (code, words) = mpipd(&a, "--doctor", &file);
        let line = words.lines().find(|line| line.contains("are refused")).expect("named");
        assert!(code == Some(1) && line.starts_with("wrong: packets to 198.18.0.2/32, "), "{line}");
        for part in ["10.77.0.2/32", "198.19.0.0/24", "fd77::2/128", "2001:db8::2/128"] {
            assert!(line.contains(part), "{line}");
        }
        assert!(line.contains(&format!("`mpip down {}`", file.display())), "{line}");
        if by_mpip {
            let (code, words) = mpipd(&a, "--clean-up", &file);
            assert!(code == Some(0) && words.ends_with("are not refused any more\n"), "{words}");
            assert_eq!(a.state(), before);
            assert!(!daemon.socket.exists());
        } else {
            let command = line.split('`').nth(5).expect("a third command");
            assert!(
                command.starts_with("ip link delete mpip-refuse0 && ip route flush "),
                "{command}"
            );
            a.exec("sh", &["-c", command]);
        }
        assert_open(&a, "after that");
        let (_, words) = mpipd(&a, "--doctor", &file);
        assert!(!words.contains("are refused"), "{words}");
    }
}

#[test]
fn daemons_leave_what_others_refuse_alone() {
    if !can_run(&[]) {
        return;
    }
    let (a, _b) = hosts("several");
    let directory = Directory::new();
    a.nft(COUNTER);
    let first = Configuration::with_all();
    // Others with the same prefixes and with others, in host mode (with a table of its own) and
    // without.
    let second = Configuration {
        number: 3,
        interface: "mpip1",
        port: 6183,
        peers: tunnel(13, "198.18.1.2:6183", &["10.77.0.2/32", "10.78.0.0/16"]),
    };
    let third = Configuration {
        number: 4,
        interface: "mpip-a-long-one",
        port: 6184,
        peers: host(14, &["198.18.0.2:6184"], "[host_mode]\ntable = 7000\npriority = 70"),
    };
    let before = a.state();
    let mut daemons = [&first, &second, &third].map(|one| one.start(&a, &directory));
    for daemon in &mut daemons {
        daemon.kill();
    }
    assert_closed(&a, "all are dead");
    let links = a.ip(&["link", "show", "type", "tun"]);
    assert_eq!(links.matches("mpip-refuse").count(), 2, "{links}");
    let routes = |table: &str| a.ip(&["route", "show", "table", table, "proto", "109"]);
    for one in [&second, &third] {
        let mut again = one.start(&a, &directory);
        again.signal("TERM");
        assert!(again.wait());
        assert_closed(&a, "others ended in order");
    }
    assert_eq!(routes("7000"), "");
    assert!(!routes("main").contains("10.78.0.0"), "{}", routes("main"));
    let mut again = first.start(&a, &directory);
    again.signal("TERM");
    assert!(again.wait());
    assert_open(&a, "all ended in order");
    assert_eq!(a.state(), before);
}

#[test]
fn what_others_take_away_is_set_again_and_shown_while_it_is_missing() {
    if !can_run(&[]) {
        return;
    }
    let (a, _b) = hosts("repair");
    let directory = Directory::new();
    let configuration = Configuration::with_all();
    let file = configuration.write(&directory);
    a.nft(COUNTER);
    let daemon = configuration.start(&a, &directory);
    let table = |family: &str, table: &str| {
        let text = a.ip(&[family, "route", "show", "table", table, "proto", "109"]);
        // What the kernel adds by and by.
        text.replace(" linkdown", "")
    };
    let routes = || ["-4", "-6"].map(|family| ["main", "6182"].map(|name| table(family, name)));
    let rules = || a.ip(&["rule", "show"]) + &a.ip(&["-6", "rule", "show"]);
    let before = (routes(), rules());
    assert_eq!(before.0[0][0].lines().count(), 4, "{before:?}");
    for act in [
        &["route", "flush", "proto", "109"][..],
        &["-6", "route", "flush", "proto", "109"],
        &["route", "flush", "table", "6182"],
        &["-6", "route", "flush", "table", "6182"],
        &["rule", "del", "priority", "61"],
        &["link", "set", "mpip-refuse0", "down"],
        &["link", "delete", "mpip-refuse0"],
        &["link", "set", "mpip0", "down"],
    ] {
        eprintln!("# ip {}", act.join(" "));
        a.ip(act);
        if act.contains(&"mpip0") {
            wait_for("it is shown", || {
                daemon.status().faults.iter().any(|fault| fault.what == "mpip0 is down")
            });
            assert_closed(&a, "the device is down");
            a.ip(&["link", "set", "mpip0", "up"]);
        }
        wait_for("all is set again", || (routes(), rules()) == before);
        wait_for("nothing is wrong", || daemon.status().fault_count == 0);
    }
    // What cannot be set is told, tried again, and set when it can be.
    let faulty = || daemon.status().faults;
    a.sysctl("net/ipv6/conf/mpip-refuse0/disable_ipv6", "1");
    wait_for("it is shown", || !faulty().is_empty());
    let fault = faulty().swap_remove(0);
    assert!(fault.what.contains("fd77::2/128"), "{fault:?}");
    assert!(fault.why.contains("leave as plain IP"), "{fault:?}");
    wait_for("it is tried again", || faulty().iter().any(|fault| fault.attempts >= 3));
    let (code, words) = mpipd(&a, "--doctor", &file);
    assert!(code == Some(1) && words.contains(&format!("wrong: {}: ", fault.what)), "{words}");
    a.sysctl("net/ipv6/conf/mpip-refuse0/disable_ipv6", "0");
    wait_for("it is set", || faulty().is_empty());
    wait_for("all is as it was", || (routes(), rules()) == before);
    // A parameter of the host's that makes the kernel pass over what refuses.
    a.sysctl("net/ipv4/conf/all/ignore_routes_with_linkdown", "1");
    assert!(faulty()[0].what.contains("ignore_routes_with_linkdown"));
    let (_, words) = mpipd(&a, "--doctor", &file);
    let line = words.lines().find(|line| line.contains("linkdown")).expect("named");
    a.exec("sh", &["-c", line.split('`').nth(3).expect("a command")]);
    assert_eq!(faulty(), []);
    drop(daemon);
    assert_closed(&a, "it was killed");
}

/// ```text
///   inside ── lan   host a   eth0 198.18.0.1/24 ── .254  router  .254 ── eth0 198.18.10.2/24
///     198.19.0.2/24                                       host b           lo   198.19.9.2
/// ```
///
/// The tunnel is the default route. The path to the peer leaves by the host's own one, because its
/// socket is bound to the interface.
#[test]
fn a_tunnel_for_everything_harms_neither_its_paths_nor_the_hosts_networks() {
    if !can_run(&[]) {
        return;
    }
    let [a, router, b, inside] = ["a", "r", "b", "i"].map(|letter| Host::new("default", letter));
    for (host, name, other, far, near_address, far_address) in [
        (&a, "eth0", &router, "eth0", "198.18.0.1/24", "198.18.0.254/24"),
        (&b, "eth0", &router, "eth1", "198.18.10.2/24", "198.18.10.254/24"),
        (&inside, "eth0", &a, "lan", "198.19.0.2/24", "198.19.0.1/24"),
    ] {
        let pair = ["link", "add", name, "netns", &host.name, "type", "veth"];
        run("ip", &[&pair[..], &["peer", "name", far, "netns", &other.name]].concat());
        for (host, name, address) in [(host, name, near_address), (other, far, far_address)] {
            host.ip(&["addr", "add", address, "dev", name]);
            host.ip(&["link", "set", name, "up"]);
        }
    }
    a.ip(&["route", "add", "default", "via", "198.18.0.254"]);
    b.ip(&["route", "add", "default", "via", "198.18.10.254"]);
    inside.ip(&["route", "add", "default", "via", "198.19.0.1"]);
    router.ip(&["route", "add", "198.19.9.0/24", "via", "198.18.10.2"]);
    router.ip(&["route", "add", "198.19.0.0/24", "via", "198.18.0.1"]);
    b.ip(&["addr", "add", "198.19.9.2/32", "dev", "lo"]);
    for host in [&a, &router] {
        host.sysctl("net/ipv4/ip_forward", "1");
    }
    let directory = Directory::new();
    let one = Configuration::of(tunnel(2, "198.18.10.2:6182", &["0.0.0.0/0", "::/0"]));
    // Host b would answer what comes plain: nothing of that is its peer's.
    let mut two = Configuration::of(tunnel(1, "198.18.0.1:6182", &["198.19.8.0/24"]));
    two.number = 2;
    let (own, beyond) = (["198.18.0.254", "198.19.0.2"], ["198.19.9.2", "198.18.10.2"]);
    assert!(inside.ping("198.19.9.2", 1) && a.ping("198.19.9.2", 1), "all is plain");
    let before = a.state();

    let _daemon_b = two.start(&b, &directory);
    let mut daemon_a = one.start(&a, &directory);
    daemon_a.wait_for_paths(1);
    assert_eq!(answering(&a, &own), own, "own networks");
    daemon_a.kill();
    assert_eq!(answering(&a, &own), own, "own networks");
    assert!(!beyond.iter().any(|address| a.ping_once(address)), "what the host sends itself");
    assert!(!inside.ping_once("198.19.9.2"), "what it forwards");
    assert!(inside.ping("198.19.0.1", 1), "its own address");

    // With what refuses in place the path is found again.
    let mut daemon_a = one.start(&a, &directory);
    daemon_a.wait_for_paths(1);
    daemon_a.signal("TERM");
    assert!(daemon_a.wait());
    assert!(inside.ping("198.18.10.2", 1), "all is plain again");
    assert_eq!(a.state(), before);
}
