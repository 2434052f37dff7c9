//! Encapsulation: when UDP is used and when TCP.

use core::time::Duration;

use super::super::harness::{Pair, SECOND, TCP_LOCAL, TCP_PORT, address, locals_with_tcp};
use crate::config::{Config, EncapsulationPolicy};
use crate::engine::Command;
use mpip_transport::PathState;
use mpip_types::Encapsulation;
use mpip_types::Instant;

fn pair(policy: EncapsulationPolicy) -> Pair {
    let mut pair = Pair::with(|_, config: &mut Config| {
        config.peers[0].encapsulation = policy;
        config.peers[0].tcp_port = Some(TCP_PORT);
    });
    for host in 0..2 {
        let list = locals_with_tcp(host);
        pair.engines[host].handle_command(Instant::ZERO, Command::LocalAddresses(list));
    }
    pair.tap = Some(Vec::new());
    pair
}

/// Working paths of `host` by UDP and by TCP.
fn working(pair: &Pair, host: usize) -> (usize, usize) {
    let status = pair.engines[host].status(pair.now, false);
    let count = |kind: Encapsulation| {
        let paths = status.peers[0].paths.iter();
        paths.filter(|path| path.encapsulation == kind && path.state == PathState::Active).count()
    };
    (count(Encapsulation::Udp), count(Encapsulation::Tcp))
}

fn by_tcp(pair: &mut Pair) -> usize {
    pair.tapped().iter().filter(|sent| sent.to.local.0 >= TCP_LOCAL).count()
}

/// [E-6]
#[test]
fn no_path_uses_tcp_while_udp_works() {
    let mut pair = pair(EncapsulationPolicy::Auto);
    pair.run_for(SECOND * 20);
    assert_eq!((working(&pair, 0), working(&pair, 1)), ((4, 0), (4, 0)));
    assert_eq!(by_tcp(&mut pair), 0);
}

/// [E-6] [E-7]
#[test]
fn tcp_replaces_failed_udp_and_is_abandoned_when_udp_works_again() {
    let mut pair = pair(EncapsulationPolicy::Auto);
    pair.run_for(SECOND * 5);
    pair.tapped();
    // Link 1 of host 0 blocks UDP: two of the four address pairs.
    pair.pass = |host, to, _| (host, to.local.0) != (0, 1) && to.remote != address(0, 1);
    pair.run_for(SECOND);
    assert_eq!(by_tcp(&mut pair), 0, "not yet");
    pair.run_for(SECOND);
    assert_eq!((working(&pair, 0), working(&pair, 1)), ((2, 2), (2, 2)));

    pair.pass = |_, _, _| true;
    pair.run_for(SECOND * 4);
    assert_eq!(working(&pair, 0), (4, 2), "UDP has to prove itself");
    pair.run_for(SECOND * 4);
    assert_eq!((working(&pair, 0), working(&pair, 1)), ((4, 0), (4, 0)));
    pair.run_for(SECOND * 4);
    pair.tapped();
    pair.run_for(SECOND * 10);
    assert_eq!(by_tcp(&mut pair), 0, "they are abandoned");
}

/// [E-8]
#[test]
fn the_second_attempt_at_a_handshake_goes_by_tcp_too() {
    let mut pair = pair(EncapsulationPolicy::Auto);
    pair.pass = |_, to, _| to.local.0 >= TCP_LOCAL;
    pair.run_for(SECOND * 2);
    let initiations: Vec<u16> = pair
        .tapped()
        .iter()
        .filter(|sent| sent.bytes[0] == 1 && sent.host == 0)
        .map(|sent| sent.to.local.0)
        .collect();
    assert_eq!(initiations, [0, 1, 0, 1, TCP_LOCAL, TCP_LOCAL + 1]);
    pair.run_for(SECOND * 3);
    assert_eq!((working(&pair, 0), working(&pair, 1)), ((0, 4), (0, 4)));
    // The keys are renewed on a path that works.
    pair.run_for(SECOND * 130);
    let age = pair.engines[0].status(pair.now, false).peers[0].handshake_age;
    assert!(age.is_some_and(|age| age < SECOND * 30), "{age:?}");
}

/// [E-6] [E-8]
#[test]
fn each_local_address_may_have_its_own_encapsulation() {
    for host in 0..2 {
        let mut pair = pair(EncapsulationPolicy::Auto);
        // Datagrams of an encapsulation that the receiver does not listen for are lost.
        pair.pass = |_, to, _| (to.local.0 >= TCP_LOCAL) == (to.remote.port() == TCP_PORT);
        // UDP on the first link, TCP on the second.
        let mut mixed = locals_with_tcp(host);
        mixed.retain(|local| matches!(local.id.0, 0 | 11));
        pair.engines[host].handle_command(pair.now, Command::LocalAddresses(mixed));
        pair.run_for(SECOND * 5);
        assert_eq!((working(&pair, 0), working(&pair, 1)), ((2, 2), (2, 2)), "host {host}");
        pair.run_for(SECOND * 20);
        assert_eq!((working(&pair, 0), working(&pair, 1)), ((2, 2), (2, 2)), "host {host}");
    }
    // Without UDP, TCP is tried at once.
    let mut pair = pair(EncapsulationPolicy::Auto);
    let mut tcp = locals_with_tcp(0);
    tcp.retain(|local| local.id.0 >= TCP_LOCAL);
    pair.engines[0].handle_command(pair.now, Command::LocalAddresses(tcp));
    pair.run_for(Duration::from_millis(200));
    assert_eq!(working(&pair, 0), (0, 4));
}

#[test]
fn an_encapsulation_policy_may_forbid_udp_or_tcp() {
    let mut tcp = pair(EncapsulationPolicy::Tcp);
    tcp.run_for(SECOND * 3);
    assert_eq!(working(&tcp, 0), (0, 4));
    assert!(tcp.tapped().iter().all(|sent| sent.to.local.0 >= TCP_LOCAL));

    let mut udp = pair(EncapsulationPolicy::Udp);
    udp.pass = |_, to, _| to.local.0 >= TCP_LOCAL;
    udp.run_for(SECOND * 30);
    assert_eq!(by_tcp(&mut udp), 0);
}

#[test]
fn a_path_by_tcp_has_room_for_longer_headers() {
    let mut tcp = pair(EncapsulationPolicy::Tcp);
    tcp.run_for(SECOND * 3);
    let inner = |pair: &Pair| pair.engines[0].status(pair.now, false).peers[0].inner_mtu;
    let mut udp = pair(EncapsulationPolicy::Udp);
    udp.run_for(SECOND * 3);
    assert_eq!(inner(&udp) - inner(&tcp), 20 + 12 + 2 - 8);
}
