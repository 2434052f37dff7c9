//! A host loses its only address and gets another while transfers run in both directions: they go
//! on, every byte is right. Host a opens the paths. How soon is asserted in virtual time
//! (`core/src/engine/requirements/pauses.rs`, and with longer links in
//! `sim/tests/scenarios/address_change.rs`).
//!
//! ```text
//!   host a                                  host b
//!   eth0 198.18.0.1/24  ------------------  eth0 198.18.0.2/24       veth
//!   eth1 198.18.1.1/24  ------------------  eth1 198.18.1.2/24       veth
//!   mpip0 10.77.0.1                         mpip0 10.77.0.2
//! ```
//!
//! Who is to change has no address on eth1 before.

use std::thread;
use std::time::Duration;

use crate::common::host_mode::HostConfiguration;
use crate::common::{
    Configuration, Daemon, Directory, Family, Host, Transfer, for_each, run, two_hosts, wait_for,
};
use mpip_testing::can_run;

/// Bytes per second of each transfer.
const RATE: u64 = 4 << 20;

/// Who changes its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Opener,
    Other,
}

impl Side {
    /// The last part of its addresses.
    fn last(self) -> u8 {
        if self == Self::Opener { 1 } else { 2 }
    }
}

/// Transfers from each host to the other.
struct Transfers([Transfer; 2]);

impl Transfers {
    fn start(a: &Host, b: &Host, [to_a, to_b]: [&str; 2]) -> Self {
        let [to_a, to_b] = [to_a, to_b].map(|address| address.parse().expect("valid"));
        let transfers = [Transfer::start(a, b, to_b, RATE), Transfer::start(b, a, to_a, RATE)];
        for transfer in &transfers {
            transfer.advance(RATE / 4);
        }
        Self(transfers)
    }

    fn progress(&self) -> [u64; 2] {
        [self.0[0].progress(), self.0[1].progress()]
    }

    /// Waits until something has arrived in both directions.
    fn resume(&self, before: [u64; 2]) {
        wait_for("something in both directions", || {
            self.progress().into_iter().zip(before).all(|(now, before)| now > before)
        });
    }

    fn finish(self) {
        for transfer in self.0 {
            transfer.finish();
        }
    }
}

fn daemons(a: &Host, b: &Host, directory: &Directory, endpoint: &str) -> (Daemon, Daemon) {
    let one = Configuration { number: 1, keys: (1, 2), endpoints: &[endpoint], peer: "" };
    let two = Configuration { number: 2, keys: (2, 1), endpoints: &[], peer: "" };
    let daemon_b = Daemon::start(b, directory, &two);
    let daemon_a = Daemon::start(a, directory, &one);
    daemon_a.wait_for_paths(1);
    daemon_b.wait_for_paths(1);
    (daemon_a, daemon_b)
}

const TUNNEL: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

/// `change` gets the host and the last part of its addresses.
fn assert_goes_on(
    name: &str,
    side: Side,
    families: &[Family],
    change: impl Fn(&Host, u8, &Transfers),
) {
    let test = format!("{name}{}", side.last());
    let (a, b) = two_hosts(&test, 2, families);
    let mover = if side == Side::Opener { &a } else { &b };
    mover.ip(&["addr", "flush", "dev", "eth1"]);
    if families.contains(&Family::V6) {
        mover.ip(&["-6", "addr", "flush", "dev", "eth0"]);
    }
    let directory = Directory::new();
    let (_daemon_a, _daemon_b) = daemons(&a, &b, &directory, "198.18.0.2:6182");
    let transfers = Transfers::start(&a, &b, TUNNEL);
    change(mover, side.last(), &transfers);
    transfers.finish();
}

/// Nothing arrives any more from before; what has.
fn silence(transfers: &Transfers) -> [u64; 2] {
    thread::sleep(Duration::from_millis(300));
    transfers.progress()
}

#[test]
fn a_new_lease_on_the_same_interface_is_followed() {
    if !can_run(&[]) {
        return;
    }
    for_each([Side::Opener, Side::Other], |side| {
        assert_goes_on("lease", side, &[Family::V4], |host, last, _| {
            host.ip(&["addr", "del", &format!("198.18.0.{last}/24"), "dev", "eth0"]);
            host.ip(&["addr", "add", &format!("198.18.0.7{last}/24"), "dev", "eth0"]);
        });
    });
}

#[test]
fn another_interface_takes_the_place_of_one_that_went_down() {
    if !can_run(&[]) {
        return;
    }
    for_each([Side::Opener, Side::Other], |side| {
        assert_goes_on("roam", side, &[Family::V4], |host, last, transfers| {
            host.ip(&["link", "set", "eth0", "down"]);
            let before = silence(transfers);
            host.ip(&["addr", "add", &format!("198.18.1.{last}/24"), "dev", "eth1"]);
            transfers.resume(before);
        });
    });
}

#[test]
fn ipv6_takes_the_place_of_ipv4() {
    if !can_run(&[]) {
        return;
    }
    for_each([Side::Opener, Side::Other], |side| {
        assert_goes_on("six", side, &[Family::V4, Family::V6], |host, last, transfers| {
            host.ip(&["addr", "flush", "dev", "eth0"]);
            let before = silence(transfers);
            let address = format!("2001:db8:0::{last}/64");
            host.ip(&["addr", "add", &address, "dev", "eth0", "nodad"]);
            transfers.resume(before);
        });
    });
}

/// As a DHCP client does it: the address first, the default route after it.
#[test]
fn a_route_that_follows_its_address_is_used_at_once() {
    if !can_run(&[]) {
        return;
    }
    for_each([Side::Opener, Side::Other], |side| {
        let test = format!("gate{}", side.last());
        let [a, router, b] = ["a", "r", "b"].map(|letter| Host::new(&test, letter));
        for (host, number) in [(&a, 1), (&b, 2)] {
            let far = format!("eth{number}");
            let pair = ["link", "add", "eth0", "netns", &host.name, "type", "veth", "peer"];
            run("ip", &[&pair[..], &["name", &far, "netns", &router.name]].concat());
            router.ip(&["addr", "add", &format!("198.18.{number}.254/24"), "dev", &far]);
            router.ip(&["link", "set", &far, "up"]);
            host.ip(&["addr", "add", &format!("198.18.{number}.1/24"), "dev", "eth0"]);
            host.ip(&["link", "set", "eth0", "up"]);
            host.ip(&["route", "add", "default", "via", &format!("198.18.{number}.254")]);
        }
        router.sysctl("net/ipv4/ip_forward", "1");
        let directory = Directory::new();
        let (daemon_a, _daemon_b) = daemons(&a, &b, &directory, "198.18.2.1:6182");
        let transfers = Transfers::start(&a, &b, TUNNEL);
        let (host, number) = if side == Side::Opener { (&a, 1) } else { (&b, 2) };
        host.ip(&["addr", "flush", "dev", "eth0"]);
        let before = silence(&transfers);
        host.ip(&["addr", "add", &format!("198.18.{number}.7/24"), "dev", "eth0"]);
        thread::sleep(Duration::from_millis(20));
        host.ip(&["route", "replace", "default", "via", &format!("198.18.{number}.254")]);
        transfers.resume(before);
        transfers.finish();

        // The address has been tried by then.
        host.ip(&["addr", "flush", "dev", "eth0"]);
        host.ip(&["addr", "add", &format!("198.18.{number}.8/24"), "dev", "eth0"]);
        wait_for("no path", || daemon_a.active_paths().is_empty());
        thread::sleep(Duration::from_millis(500));
        host.ip(&["route", "replace", "default", "via", &format!("198.18.{number}.254")]);
        wait_for("a path", || !daemon_a.active_paths().is_empty());
        assert!(a.ping("10.77.0.2", 3));
    });
}

/// The sessions keep the address that the application sees, although the host has it no more.
#[test]
fn connections_between_ordinary_addresses_keep_the_one_that_is_lost() {
    if !can_run(&[]) {
        return;
    }
    for_each([Side::Opener, Side::Other], |side| {
        let test = format!("keep{}", side.last());
        let (a, b) = two_hosts(&test, 2, &[Family::V4]);
        let mover = if side == Side::Opener { &a } else { &b };
        mover.ip(&["addr", "flush", "dev", "eth1"]);
        let directory = Directory::new();
        let configuration = |number, endpoints| HostConfiguration {
            number,
            endpoints,
            peer: "policy = 'require'",
            more: "",
        };
        let daemon_b = configuration(2, &[]).start(&b, &directory);
        let daemon_a = configuration(1, &["198.18.0.2:6182"]).start(&a, &directory);
        for daemon in [&daemon_a, &daemon_b] {
            wait_for("multipath", || daemon.traffic() == "multipath");
        }
        let transfers = Transfers::start(&a, &b, ["198.18.0.1", "198.18.0.2"]);
        let last = side.last();
        mover.ip(&["link", "set", "eth0", "down"]);
        mover.ip(&["addr", "flush", "dev", "eth0"]);
        let before = silence(&transfers);
        mover.ip(&["addr", "add", &format!("198.18.1.{last}/24"), "dev", "eth1"]);
        transfers.resume(before);
        let pinned = mover.ip(&["-o", "addr", "show", "dev", "mpip0"]);
        assert!(pinned.contains(&format!("198.18.0.{last}/32")), "{pinned}");
        transfers.finish();
    });
}

/// The other side does not take the address for the host's own: those connections that began on the
/// paths survive it all the same.
#[test]
fn connections_from_an_address_that_others_may_share_survive_its_loss() {
    if !can_run(&[]) {
        return;
    }
    let (a, b) = two_hosts("lent", 2, &[Family::V4]);
    a.ip(&["addr", "flush", "dev", "eth1"]);
    let directory = Directory::new();
    let configuration =
        |number, endpoints, peer| HostConfiguration { number, endpoints, peer, more: "" };
    let daemon_b = configuration(2, &[], "exclusive = []").start(&b, &directory);
    let daemon_a = configuration(1, &["198.18.0.2:6182"], "").start(&a, &directory);
    wait_for("multipath", || daemon_a.traffic() == "multipath");
    let address = "198.18.0.2".parse().expect("valid");
    let transfers = Transfers([
        daemon_b.begin(|| Transfer::start(&a, &b, address, RATE)),
        daemon_b.begin(|| Transfer::fetch(&b, &a, address, RATE)),
    ]);
    for transfer in &transfers.0 {
        transfer.advance(RATE / 4);
    }
    a.ip(&["link", "set", "eth0", "down"]);
    a.ip(&["addr", "flush", "dev", "eth0"]);
    let before = silence(&transfers);
    a.ip(&["addr", "add", "198.18.1.1/24", "dev", "eth1"]);
    transfers.resume(before);
    for transfer in transfers.0 {
        assert_eq!(transfer.finish().ip().to_string(), "198.18.0.1");
    }
}
