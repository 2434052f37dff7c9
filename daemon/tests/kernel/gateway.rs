//! The way to the Internet: everything of a client, and of a network behind it, goes through the
//! gateway by all links, or nowhere.
//!
//! ```text
//!   LAN host d              client a                    gateway b               web server c
//!   eth8 198.18.8.2 ─────── eth8 198.18.8.1
//!                           eth0 198.18.0.1/24 ──────── eth0 198.18.0.2/24
//!                           eth1 198.18.1.1/24 ──────── eth1 198.18.1.2/24
//!                           default routes ───────────> eth9 198.18.9.1 ─────── eth9 198.18.9.2
//! ```
//!
//! The web server knows its own link alone: it can answer an address of the gateway, and no other.
//! The same by IPv6, with 2001:db8:N::.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use mpip_api::Request;
use mpip_testing::can_run;

use crate::common::{
    Daemon, Directory, Family, Host, Transfer, add_link, key, run, two_hosts, wait_for,
};

const BOTH: [Family; 2] = [Family::V4, Family::V6];
/// The web server.
const SERVER: [&str; 2] = ["198.18.9.2", "2001:db8:9::2"];
/// The gateway on the client's link: a local network.
const LOCAL: [&str; 2] = ["198.18.0.2", "2001:db8::2"];
const PROGRAMS: [&str; 4] = ["nft", "sysctl", "ping", "pgrep"];

/// The hosts of the picture, without d.
struct World {
    a: Host,
    b: Host,
    c: Host,
    directory: Directory,
}

impl World {
    fn new(test: &str) -> Self {
        let (a, b) = two_hosts(test, 2, &BOTH);
        let c = Host::new(test, "c");
        add_link(&b, &c, 9, &BOTH);
        for (link, metric) in [(0, "100"), (1, "200")] {
            let device = format!("eth{link}");
            let via = format!("198.18.{link}.2");
            a.ip(&["route", "add", "default", "via", &via, "dev", &device, "metric", metric]);
            let via = format!("2001:db8:{link}::2");
            a.ip(&["-6", "route", "add", "default", "via", &via, "dev", &device, "metric", metric]);
        }
        Self { a, b, c, directory: Directory::new() }
    }

    /// Writes the configuration of host `number`, with lines for its peer's section and further
    /// sections.
    fn write(&self, number: u8, peer: &str, more: &str) -> PathBuf {
        let other = 3 - number;
        let directory = self.directory.path();
        let key_file = directory.join(format!("{number}.key"));
        fs::write(&key_file, key(number).secret_base64().as_str()).expect("writable");
        fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600)).expect("ours");
        let text = format!(
            "[node]\nprivate_key_file = '{number}.key'\ncontrol_socket = '{}'\n\
             [interface]\naddresses = ['10.77.0.{number}/24', 'fd77::{number}/64']\n\
             [[peer]]\nname = 'host{other}'\npublic_key = '{}'\n{peer}\n{more}\n",
            directory.join(format!("{number}.sock")).display(),
            key(other).public_key(),
        );
        let file = directory.join(format!("{number}.toml"));
        fs::write(&file, text).expect("writable");
        file
    }

    fn gateway(&self) -> Daemon {
        let peer = "allowed_prefixes = ['10.77.0.1/32', 'fd77::1/128']";
        let file = self.write(2, peer, "[gateway]\nforward = true\nmasquerade = true\n");
        Daemon::spawn_file(&self.b, &self.directory, 2, &file).ready()
    }

    fn client(&self, more: &str) -> Daemon {
        let peer = "endpoints = ['198.18.0.2:6182', '198.18.1.2:6182']\ndefault_route = true";
        let file = self.write(1, peer, more);
        Daemon::spawn_file(&self.a, &self.directory, 1, &file).ready()
    }

    /// Forwarding, router advertisements, our tables, and what else a daemon could leave on `host`.
    fn state(host: &Host) -> String {
        let settings = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];
        let advertised = ["net.ipv6.conf.all.accept_ra", "net.ipv6.conf.eth0.accept_ra"];
        // The kernel changes these with the first two.
        let with_them = [
            "net.ipv4.conf.all.accept_redirects",
            "net.ipv4.conf.eth1.forwarding",
            "net.ipv6.conf.eth1.forwarding",
        ];
        let all = [&settings[..], &advertised[..], &with_them[..]].concat();
        let settings = host.exec("sysctl", &all);
        host.state() + &settings + &host.nft_output(&["list", "tables"])
    }
}

/// Counts what leaves by the links to the gateway and is neither a path nor neighbour discovery.
const COUNTER: &str = "
table inet mpip_test {
    counter plain {}
    chain out {
        type filter hook postrouting priority 0;
        oifname != { eth0, eth1 } accept
        udp dport 6182 accept
        tcp dport 6182 accept
        meta l4proto ipv6-icmp icmpv6 type 130-143 accept
        counter name plain
    }
}
";

/// Packets that [`COUNTER`] counted since the last call.
fn take_plain(host: &Host) -> u64 {
    let text = host.nft_output(&["reset", "counter", "inet", "mpip_test", "plain"]);
    let packets = text.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
    packets.and_then(|number| number.parse().ok()).expect("a counter")
}

/// Pings the web server from sockets that are bound to `device`, whatever the routes say; whether
/// that is answered.
fn ping_bound(host: &Host, device: &str) -> bool {
    SERVER.iter().any(|server| {
        let arguments = ["netns", "exec", &host.name, "ping", "-I", device, "-c", "1", "-W", "1"];
        let output = Command::new("ip").args(arguments).arg(server).output().expect("ip");
        output.status.success()
    })
}

#[test]
fn a_client_reaches_others_by_all_links_with_an_address_of_the_gateway() {
    if !can_run(&PROGRAMS) || !can_run(&["tc"]) {
        return;
    }
    let world = World::new("gw-way");
    let World { a, b, c, .. } = &world;
    let links = ["eth0", "eth1"];
    links.into_iter().for_each(|link| a.set_rp_filter(link, 1));
    // So slow that a transfer needs both.
    links.into_iter().for_each(|link| a.shape(link, "40mbit"));
    let before = [a, b].map(World::state);
    let mut gateway = world.gateway();
    let mut client = world.client("");
    client.wait_for_paths(2);
    for address in SERVER.into_iter().chain(LOCAL) {
        assert!(a.ping(address, 1), "{address}");
    }
    for address in SERVER {
        let address: IpAddr = address.parse().expect("valid");
        Transfer::whole(a, c, address, 4 << 20).finish();
    }
    for device in links {
        let paths = client.active_paths().into_iter().filter(|path| path.interface == device);
        let share: f64 = paths.map(|path| path.share).sum();
        assert!(share > 0.1, "{device} carried {share} of it");
    }
    // The host did not forward before: it does nothing else now.
    c.ip(&["route", "add", "198.18.0.0/24", "via", "198.18.9.1"]);
    assert!(!c.ping_once("198.18.0.1"), "from elsewhere to the client's plain address");

    mpip_api::request(&client.socket, &Request::Down).expect("answered");
    mpip_api::request(&gateway.socket, &Request::Down).expect("answered");
    assert!(client.wait() && gateway.wait());
    assert_eq!([a, b].map(World::state), before, "nothing is left");
    assert_eq!(links.map(|link| a.rp_filter(link)), ["1", "1"]);
}

#[test]
fn what_a_killed_gateway_left_is_gone_at_once_and_forwarding_with_the_next_end() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let world = World::new("gw-kill");
    world.b.sysctl("net/ipv4/conf/all/accept_redirects", "0");
    for family in ["ipv4", "ipv6"] {
        world.b.sysctl(&format!("net/{family}/conf/eth1/forwarding"), "1");
    }
    let before = World::state(&world.b);
    let mut gateway = world.gateway();
    assert!(world.b.nft_output(&["list", "tables"]).contains("mpip_mpip0"));
    gateway.kill();
    wait_for("the helper removes the table", || {
        !world.b.nft_output(&["list", "tables"]).contains("mpip_mpip0")
    });
    let mut again = world.gateway();
    again.signal("TERM");
    assert!(again.wait());
    assert_eq!(World::state(&world.b), before);

    // Also when the helper was killed with it, and nobody starts again.
    let mut gateway = world.gateway();
    let helpers = run("pgrep", &["-P", &mpipd_of(&gateway).to_string()]);
    let helper = helpers.split_whitespace().next().expect("a helper").to_owned();
    let capabilities = fs::read_to_string(format!("/proc/{helper}/status")).expect("it runs");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let only = format!("{set}:\t0000000000001000");
        assert!(capabilities.contains(&only), "CAP_NET_ADMIN and nothing else: {capabilities}");
    }
    run("kill", &["-s", "KILL", &helper]);
    gateway.kill();
    assert!(world.b.nft_output(&["list", "tables"]).contains("mpip_mpip0"));
    // What depends on interfaces is put back whatever these are called.
    let renamed = [("eth0", "wan0"), ("eth1", "lan1")];
    if !renamed.iter().all(|(former, new)| world.b.rename(former, new)) {
        return;
    }
    let file = world.directory.join("2.toml").display().to_string();
    let arguments = ["--config", &file, "--clean-up"];
    let said = world.b.exec(env!("CARGO_BIN_EXE_mpipd"), &arguments);
    assert!(said.starts_with("mpip0: "), "{said}");
    assert!(renamed.iter().all(|(former, new)| world.b.rename(new, former)));
    assert_eq!(World::state(&world.b), before);
}

#[test]
fn a_start_that_fails_leaves_the_firewall_as_it_was() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let world = World::new("gw-fail");
    let World { a, b, .. } = &world;
    let tables = |host: &Host| host.nft_output(&["list", "ruleset"]);
    let client = world.client("");
    let locked = tables(a);
    assert!(locked.contains("mpip_mpip0"));
    // Another socket, so that it does not find the one that runs; the device is the same.
    let file = world.directory.path().join("1.toml");
    let text = fs::read_to_string(&file).expect("readable");
    let other = text.replace("1.sock", "other.sock").replace("default_route = true", "");
    fs::write(&file, other).expect("writable");
    let mut second = Daemon::spawn_file(a, &world.directory, 3, &file);
    assert!(!second.wait());
    assert!(second.log().contains("unused interface name"), "{}", second.log());
    assert_eq!(tables(a), locked, "the kill switch of the first one");
    drop(client);

    // Forwarding cannot be switched on: the record of its former value has no place.
    let before = World::state(b);
    let file = world.write(2, "default_route = true", "[router]\ninterfaces = ['eth9']\n");
    let record = world.directory.path().join("2.sock.forwarding");
    fs::create_dir(&record).expect("free");
    let mut failing = Daemon::spawn_file(b, &world.directory, 2, &file);
    assert!(!failing.wait());
    assert!(failing.log().contains("cannot switch forwarding on"), "{}", failing.log());
    assert_eq!(World::state(b), before);
}

/// The daemon's process, as it says itself.
fn mpipd_of(daemon: &Daemon) -> u32 {
    daemon.status().pid
}

#[test]
fn no_packet_leaves_as_plain_ip_while_the_gateway_or_the_daemon_is_dead() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let world = World::new("gw-lock");
    let World { a, b, .. } = &world;
    let before = World::state(a);
    let mut gateway = world.gateway();
    let mut client = world.client("");
    assert!(a.ping(SERVER[0], 1));
    // What is a router's, not a gateway's, would answer plain packets.
    for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        b.sysctl(&format!("net/{setting}"), "1");
    }
    a.nft(COUNTER);
    let probe = |when: &str| {
        take_plain(a);
        for address in SERVER {
            assert!(!a.ping_once(address), "{when}: {address} answers");
        }
        for device in ["eth0", "eth1"] {
            assert!(!ping_bound(a, device), "{when}: a socket bound to {device} gets out");
        }
        assert_eq!(take_plain(a), 0, "{when}: packets left as plain IP");
        for address in LOCAL {
            assert!(a.ping(address, 1), "{when}: the local network is there");
        }
    };
    gateway.kill();
    wait_for("no path works", || client.active_paths().is_empty());
    probe("without a gateway");

    // The device's loss, and a new network.
    a.ip(&["addr", "add", "198.18.7.1/24", "dev", "eth1"]);
    b.ip(&["addr", "add", "198.18.7.2/24", "dev", "eth1"]);
    assert!(a.ping("198.18.7.2", 1), "a network that came is local");
    client.kill();
    wait_for("its device is gone", || !a.ip(&["link"]).contains("mpip0:"));
    probe("without a daemon");

    let mut again = world.client("");
    probe("while it looks for a gateway");
    let _gateway = world.gateway();
    again.wait_for_paths(2);
    assert!(a.ping(SERVER[0], 1) && a.ping(SERVER[1], 1), "and back");
    mpip_api::request(&again.socket, &Request::Down).expect("answered");
    assert!(again.wait());
    assert!(!ping_bound(a, "eth0") && take_plain(a) > 0, "then packets leave, and are counted");
    a.ip(&["addr", "del", "198.18.7.1/24", "dev", "eth1"]);
    a.nft("delete table inet mpip_test");
    assert_eq!(World::state(a), before, "an orderly end opens the way");
}

#[test]
fn a_network_behind_the_client_reaches_others_through_the_gateway_or_not_at_all() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let world = World::new("gw-router");
    let World { a, c, .. } = &world;
    let d = Host::new("gw-router", "d");
    add_link(a, &d, 8, &BOTH);
    d.ip(&["route", "add", "default", "via", "198.18.8.1"]);
    d.ip(&["-6", "route", "add", "default", "via", "2001:db8:8::1"]);
    let before = World::state(a);
    let mut gateway = world.gateway();
    let mut client = world.client("[router]\ninterfaces = ['eth8']\n");
    client.wait_for_paths(2);
    for address in SERVER {
        assert!(d.ping(address, 1), "{address}");
        Transfer::whole(&d, c, address.parse().expect("valid"), 4 << 20).finish();
    }
    a.nft(COUNTER);
    gateway.kill();
    wait_for("no path works", || client.active_paths().is_empty());
    take_plain(a);
    // It would forward plain packets, too.
    for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        world.b.sysctl(&format!("net/{setting}"), "1");
    }
    assert!(!d.ping_once(SERVER[0]) && !d.ping_once(SERVER[1]), "answered");
    client.signal("STOP");
    a.ip(&["link", "set", "mpip0", "down"]);
    assert!(!d.ping_once(SERVER[0]) && !d.ping_once(SERVER[1]), "answered without the device");
    assert_eq!(take_plain(a), 0, "packets of the network left as plain IP");
    client.signal("CONT");
    a.nft("delete table inet mpip_test");
    client.signal("TERM");
    assert!(client.wait());
    assert_eq!(World::state(a), before, "nothing is left");
}
