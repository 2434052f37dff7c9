//! Two hosts, two links, a daemon on each: what crosses IP passes, over IPv4 and IPv6, inside and
//! outside.
//!
//! ```text
//!   host a                                  host b
//!   eth0 198.18.0.1/24  ------------------  eth0 198.18.0.2/24       veth
//!        2001:db8:0::1/64                        2001:db8:0::2/64
//!   eth1 198.18.1.1/24  ------------------  eth1 198.18.1.2/24       veth
//!        2001:db8:1::1/64                        2001:db8:1::2/64
//!   mpip0 10.77.0.1, fd77::1                mpip0 10.77.0.2, fd77::2
//! ```

use crate::common::world::World;
use crate::common::{Configuration, Daemon, Directory, Family, wait_for};
use mpip_testing::can_run;

const V4: &[&str] = &["198.18.0.2:6182", "198.18.1.2:6182"];
const V6: &[&str] = &["[2001:db8:0::2]:6182", "[2001:db8:1::2]:6182"];

#[test]
fn ping_and_tcp_pass_over_ipv4_paths() {
    if !can_run(&[]) {
        return;
    }
    let world = World::new("v4", &[Family::V4], V4, "");
    world.daemon_a.wait_for_paths(2);
    assert!(world.a.ping("10.77.0.2", 5));
    assert!(world.b.ping("10.77.0.1", 5));
    assert!(world.a.ping("fd77::2", 5));
    world.transfer("10.77.0.2", 8 << 20);
    world.transfer("fd77::2", 8 << 20);

    let peer = world.daemon_a.peer();
    assert!(peer.established && peer.aead.is_some(), "{peer:#?}");
    assert!(peer.sent_bytes > 16 << 20, "{peer:#?}");
    assert!(peer.sessions.iter().any(|session| session.protocol == 6), "{peer:#?}");
    let other = world.daemon_b.peer();
    assert!(other.received_bytes > 16 << 20, "{other:#?}");
    let shares: f64 = peer.paths.iter().map(|path| path.share).sum();
    assert!((0.99..=1.01).contains(&shares), "shares add up to one: {peer:#?}");
}

#[test]
fn ping_and_tcp_pass_over_ipv6_paths() {
    if !can_run(&[]) {
        return;
    }
    let world = World::new("v6", &[Family::V6], V6, "");
    world.daemon_a.wait_for_paths(2);
    assert!(world.a.ping("10.77.0.2", 5));
    assert!(world.b.ping("fd77::1", 5));
    world.transfer("10.77.0.2", 4 << 20);
    world.transfer("fd77::2", 4 << 20);
    assert!(world.daemon_a.peer().paths.iter().all(|path| path.remote.is_ipv6()));
}

#[test]
fn every_scheduler_uses_both_links_or_the_faster_one() {
    if !can_run(&[]) {
        return;
    }
    for (scheduler, both) in
        [("weighted", true), ("round-robin", true), ("fastest-first", false), ("earliest", false)]
    {
        let test = &scheduler[..4];
        let world = World::new(test, &[Family::V4], V4, &format!("scheduler = '{scheduler}'"));
        world.daemon_a.wait_for_paths(2);
        // How much each carries is a matter of what the processors do meanwhile: no link limits
        // them.
        wait_for(&format!("{scheduler} uses the links"), || {
            world.transfer("10.77.0.2", 2 << 20);
            let paths = world.daemon_a.peer().paths;
            let used = paths.iter().filter(|path| path.share > 0.02).count();
            used >= if both { 2 } else { 1 }
        });
    }
}

#[test]
fn the_largest_packet_passes_and_a_larger_one_in_fragments() {
    if !can_run(&[]) {
        return;
    }
    let world = World::new("mtu", &[Family::V4], V4, "");
    world.daemon_a.wait_for_paths(2);
    let mtu = || world.daemon_a.status().interface.mtu_bytes;
    wait_for("it follows the paths", || (1_400..1_500).contains(&mtu()));
    let mtu = mtu();
    // IP and ICMP headers have 28 bytes.
    let largest = mtu as usize - 28;
    assert!(world.a.ping_with("10.77.0.2", 3, largest));
    // One byte more goes as two fragments, many bytes as many.
    assert!(world.a.ping_with("10.77.0.2", 3, largest + 1));
    assert!(world.a.ping_with("10.77.0.2", 3, 20_000));
    assert!(world.a.ping_with("fd77::2", 3, 20_000));
}

#[test]
fn either_side_may_start_anew() {
    if !can_run(&[]) {
        return;
    }
    let mut world = World::new("anew", &[Family::V4], V4, "");
    world.daemon_a.wait_for_paths(2);
    assert!(world.a.ping("10.77.0.2", 3));
    let directory = Directory::new();
    let two = Configuration { number: 2, keys: (2, 1), endpoints: &[], peer: "" };
    world.daemon_b.kill();
    world.daemon_b = Daemon::start(&world.b, &directory, &two);
    wait_for("answers after a restart of b", || world.a.ping_once("10.77.0.2"));
    let one = Configuration { number: 1, keys: (1, 2), endpoints: V4, peer: "" };
    world.daemon_a.kill();
    world.daemon_a = Daemon::start(&world.a, &directory, &one);
    wait_for("answers after a restart of a", || world.a.ping_once("10.77.0.2"));
}
