//! Addresses that the peer advertises, which may belong to third parties.

use std::collections::BTreeSet;

use mpip_wire::{AddressList, Frame};

use super::super::harness::*;
use super::super::*;
use mpip_transport::PathState;
use mpip_types::Rate;

/// An address that host 1 advertises and at which nobody is.
fn third_party(number: u16) -> SocketAddr {
    let [high, low] = number.to_be_bytes();
    SocketAddr::new(IpAddr::from([203, 0, high, low]), 53)
}

fn is_third_party(address: SocketAddr) -> bool {
    address.port() == 53
}

/// Host 1 sends an address list to the opener, on the path of the handshake.
fn tell(pair: &mut Pair, generation: u64, list: &[SocketAddr]) {
    let list = AddressList::new(list).expect("16 at most");
    pair.inject(1, 0, &[Frame::Addresses { generation, list }]);
}

fn challenge(datagram: &Tapped) -> Option<[u8; 8]> {
    datagram.frames().find_map(|frame| match frame {
        Frame::PathChallenge(data) => Some(data),
        _ => None,
    })
}

fn answers(datagram: &Tapped, data: [u8; 8]) -> bool {
    datagram.frames().any(|frame| frame == Frame::PathResponse(data))
}

/// An established pair with tapped links.
fn established() -> Pair {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND * 2);
    assert_eq!(pair.states(0), [PathState::Active; 4]);
    pair.tap = Some(Vec::new());
    pair
}

/// [P-30] [P-5]
#[test]
fn an_advertised_address_gets_a_short_challenge_and_then_one_of_full_size() {
    let mut pair = Pair::new(|_| {});
    pair.tap = Some(Vec::new());
    pair.run_for(SECOND);
    let sent = pair.tapped();
    // The first address of host 1 is configured, the other was advertised.
    for path in 0..4 {
        let Some(to) = pair.association(0).address_of(path) else { panic!("path {path}") };
        let asked: Vec<_> = sent
            .iter()
            .filter(|d| d.host == 0 && d.path() == Some(path) && challenge(d).is_some())
            .collect();
        let lens: Vec<_> = asked.iter().map(|d| d.bytes.len()).collect();
        match (to.local.0, to.remote == address(1, 0)) {
            (0, true) => assert_eq!(lens, [] as [usize; 0], "of the handshake"),
            (_, true) => assert_eq!(lens, [1_200]),
            (_, false) => {
                assert_eq!(lens, [34, 1_200]);
                let data = challenge(asked[0]).expect("found by it");
                let answer = sent.iter().find(|d| d.host == 1 && answers(d, data));
                assert!(asked[1].at > answer.expect("an answer").at);
                assert!(asked[1].at.since(asked[0].at) < SECOND / 50, "one round trip later");
                assert!(!answers(asked[1], data));
            }
        }
    }
    // A path that carries no full-size datagrams is not used.
    let mut pair = Pair::new(|_| {});
    pair.pass = |host, to, bytes| {
        bytes.len() < 1_200 || (host == 0 && to.remote == address(1, 0)) || host == 1
    };
    pair.run_for(SECOND * 5);
    let states = pair.states(0);
    assert_eq!(states.iter().filter(|state| **state == PathState::Active).count(), 2);
    assert_eq!(states.iter().filter(|state| **state == PathState::Validating).count(), 2);
}

/// [P-30]
#[test]
fn only_short_challenges_and_no_handshakes_go_to_an_advertised_address() {
    let mut pair = established();
    tell(&mut pair, 100, &[third_party(1), third_party(2)]);
    pair.run_for(SECOND * 5);
    // The peer is gone, and is searched at all its addresses.
    pair.pass = |_, _, _| false;
    for n in 0..10 {
        let packet = tcp(0, n, 1_000);
        pair.send(0, &packet, mpip_types::Offload::default());
        pair.run_for(SECOND);
    }
    let sent = pair.tapped();
    assert!(sent.iter().any(|d| d.bytes[0] == 1), "handshakes are tried");
    let there: Vec<_> = sent.iter().filter(|d| is_third_party(d.to.remote)).collect();
    assert!(!there.is_empty());
    assert!(there.iter().all(|d| challenge(d).is_some() && d.bytes.len() < 50), "{there:?}");
}

/// [P-31] [P-30]
#[test]
fn challenges_to_new_advertised_addresses_of_one_peer_are_rate_limited() {
    let mut pair = established();
    let seconds = 60;
    for n in 0..seconds * 10 {
        let list: Vec<_> = (0..16).map(|of| third_party(n as u16 * 16 + of)).collect();
        tell(&mut pair, 100 + n, &list);
        pair.run_for(SECOND / 10);
    }
    let sent = pair.tapped();
    let there = sent.iter().filter(|d| is_third_party(d.to.remote));
    let (count, bytes) = there.fold((0, 0), |(count, bytes), d| (count + 1, bytes + d.bytes.len()));
    assert!(count > 100, "{count}");
    assert!(count <= 32 + 8 * seconds as usize, "{count} challenges");
    assert!(bytes <= count * 50, "{bytes} bytes");
    assert!(pair.drops(0, DropReason::TooManyAddresses) > 500);
    assert!(pair.states(0).iter().filter(|s| **s == PathState::Active).count() >= 2);
}

/// [P-31]
#[test]
fn challenges_to_advertised_addresses_of_all_peers_are_rate_limited() {
    let mut pair = established();
    let rate = Rate { burst: 512, per_second: 256 };
    while pair.engines[0].shared.challenges.take(pair.now, rate) {}
    let list: Vec<_> = (0..16).map(third_party).collect();
    tell(&mut pair, 100, &list);
    let there =
        |pair: &mut Pair| pair.tapped().iter().filter(|d| is_third_party(d.to.remote)).count();
    pair.run_for(Duration::from_millis(3));
    assert_eq!(there(&mut pair), 0);
    pair.run_for(Duration::from_millis(20));
    let sent = there(&mut pair);
    assert!((1..=6).contains(&sent), "{sent}");
}

/// [P-31]
#[test]
fn addresses_that_answer_do_not_count_against_the_rate_limit() {
    let mut pair = Pair::new(|_| {});
    pair.engines[1].handle_command(pair.now, Command::LocalAddresses(locals(1)[..1].to_vec()));
    pair.run_for(SECOND * 5);
    pair.tap = Some(Vec::new());
    pair.engines[1].handle_command(pair.now, Command::LocalAddresses(locals(1)));
    pair.run_for(Duration::from_millis(25));
    let short = |d: &&Tapped| d.host == 0 && challenge(d).is_some() && d.bytes.len() < 50;
    assert_eq!(pair.tapped().iter().filter(short).count(), 2);
    let now = pair.now;
    assert_eq!(pair.association(0).challenges_left(now), 32);
}

/// [P-32] [P-8]
#[test]
fn of_address_lists_above_the_rate_limit_the_latest_is_applied_later() {
    let mut pair = established();
    for n in 1..=100 {
        tell(&mut pair, 100 + u64::from(n), &[address(1, 0), address(1, 1), third_party(n)]);
        pair.run_for(SECOND / 1_000);
    }
    // A list that is older than the deferred one.
    tell(&mut pair, 150, &[third_party(1_000)]);
    let asked = |pair: &mut Pair| -> BTreeSet<SocketAddr> {
        let sent = pair.tapped();
        let asked = sent.iter().filter(|d| is_third_party(d.to.remote)).map(|d| d.to.remote);
        asked.collect()
    };
    assert_eq!(asked(&mut pair), (1..=8).map(third_party).collect());
    pair.run_for(SECOND);
    assert_eq!(asked(&mut pair), [third_party(8), third_party(100)].into());
    pair.run_for(SECOND * 5);
    assert_eq!(asked(&mut pair), [third_party(100)].into());
    assert_eq!(pair.drops(0, DropReason::TooManyAddresses), 92);
}

/// The addresses advertised by host 1 that host 0 challenges, if `endpoint` is configured too.
fn challenged(endpoint: Option<&str>, told: &[&str]) -> Vec<String> {
    let at = |text: &str| SocketAddr::new(text.parse().expect("an address"), 6182);
    let mut pair = Pair::with(|host, config| {
        if host == 0 {
            config.peers[0].endpoints.extend(endpoint.map(at));
        }
    });
    let mut both = locals(0);
    both.push(LocalAddress { id: LocalId(9), address: at("2001:db8::1"), ..both[0].clone() });
    pair.engines[0].handle_command(pair.now, Command::LocalAddresses(both));
    pair.run_for(SECOND * 2);
    pair.tap = Some(Vec::new());
    let list: Vec<_> = told.iter().map(|text| at(text)).collect();
    tell(&mut pair, 100, &list);
    pair.run_for(SECOND);
    let sent = pair.tapped();
    let asked = |to: &&SocketAddr| sent.iter().any(|d| d.host == 0 && d.to.remote == **to);
    list.iter().filter(asked).map(|to| to.ip().to_string()).collect()
}

/// [P-33]
#[test]
fn site_local_addresses_are_challenged_only_if_the_peer_is_known_at_one() {
    let site = ["10.0.0.5", "172.16.3.4", "192.168.1.1", "fd00::5"];
    let provider = ["100.64.7.7", "100.127.255.1"];
    let public = ["203.0.113.9", "100.63.0.1", "100.128.0.1", "172.32.0.1", "2001:db8:7::1"];
    let all: Vec<_> = site.into_iter().chain(provider).chain(public).collect();
    assert_eq!(challenged(None, &all), public);
    let expected: Vec<_> = site.into_iter().chain(public).collect();
    assert_eq!(challenged(Some("192.168.77.1"), &all), expected);
    let expected: Vec<_> = provider.into_iter().chain(public).collect();
    assert_eq!(challenged(Some("100.70.0.1"), &all), expected);
}

#[test]
fn address_lists_do_not_flood_the_log() {
    let nobody = ["224.0.0.1:53", "255.255.255.255:53", "[ff02::1]:53"];
    let nobody = nobody.map(|text| text.parse().expect("an address"));
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    for list in 0..3 {
        tell(&mut pair, 100 + list, &nobody[..1]);
        pair.run_for(SECOND * 2);
    }
    let now = pair.now;
    assert_eq!(pair.association(0).notes_left(now), 5, "three lines");
    for list in 0..20 {
        tell(&mut pair, 200 + list, &nobody);
        pair.run_for(SECOND * 2);
        let now = pair.now;
        assert_eq!(pair.association(0).notes_left(now), 0);
    }
}

/// [P-33]
#[test]
fn an_unknown_peer_is_challenged_only_where_it_was_found() {
    let mut pair = Pair::with(|_, config| {
        config.peers.clear();
        let prefixes = vec!["0.0.0.0/0".parse().expect("valid")];
        config.opportunistic =
            Some(crate::config::Opportunistic { prefixes, port: 6182, ..Default::default() });
    });
    let (own, other) = (address(0, 0).ip(), address(1, 0).ip());
    let now = pair.now;
    pair.engines[0].handle_destination(now, own, other);
    pair.run_for(SECOND);
    assert_eq!(pair.states(0), [PathState::Active; 2]);
    pair.tap = Some(Vec::new());
    tell(&mut pair, 100, &[address(1, 1), third_party(1)]);
    pair.run_for(SECOND * 5);
    let sent = pair.tapped();
    assert!(sent.iter().filter(|d| d.host == 0).all(|d| d.to.remote == address(1, 0)), "{sent:?}");
}
