//! Paths and validation.

use std::collections::{BTreeMap, BTreeSet};

use mpip_wire::{AddressList, Frame, PathId, PathStatus};

use super::super::harness::{Pair, SECOND, Tapped, address, locals, sequences, tcp};
use super::super::*;
use crate::config::{Policy, SchedulerKind};
use mpip_transport::PathState;
use mpip_types::Encapsulation;
use mpip_types::Offload;

/// All packets in round-robin order over all paths.
fn in_turn() -> Pair {
    let mut pair = Pair::new(|peer| peer.scheduler = SchedulerKind::RoundRobin);
    pair.tap = Some(Vec::new());
    pair
}

/// Sends a packet every 5 ms in both directions, if there are keys.
fn talk(pair: &mut Pair, packets: u32) {
    for n in 0..packets {
        for host in 0..2 {
            if pair.association(host).epochs() > 0 && !pair.states(host).is_empty() {
                pair.send(host, &tcp(host, n, 100), Offload::default());
            }
        }
        pair.run_for(SECOND / 200);
    }
}

fn challenge(datagram: &Tapped) -> Option<[u8; 8]> {
    datagram.frames().find_map(|frame| match frame {
        Frame::PathChallenge(data) => Some(data),
        _ => None,
    })
}

fn response(datagram: &Tapped) -> Option<[u8; 8]> {
    datagram.frames().find_map(|frame| match frame {
        Frame::PathResponse(data) => Some(data),
        _ => None,
    })
}

fn with_third_link(host: usize) -> Vec<LocalAddress> {
    let mut list = locals(host);
    let third = LocalAddress {
        id: LocalId(2),
        interface: "eth2".to_owned(),
        address: address(host, 2),
        mtu: 1_500,
        encapsulation: Encapsulation::Udp,
    };
    list.push(third);
    list
}

/// [P-1]
#[test]
fn the_first_initiator_opens_all_paths_whichever_node_renews_the_keys() {
    let mut pair = in_turn();
    pair.run_for(SECOND);
    // Host 1 has to renew the keys.
    pair.pass = |host, _, bytes| host == 1 || bytes[0] != 1;
    pair.run_for(SECOND * 155);
    let age = pair.engines[1].status(pair.now, false).peers[0].handshake_age;
    assert!(age.is_some_and(|age| age < SECOND * 10), "{age:?}");
    for host in 0..2 {
        pair.engines[host].handle_command(pair.now, Command::LocalAddresses(with_third_link(host)));
        pair.run_for(SECOND * 2);
    }
    assert!(pair.association(0).is_opener() && !pair.association(1).is_opener());
    assert_eq!(pair.states(0), [PathState::Active; 9]);
    assert_eq!(pair.states(1), [PathState::Active; 9]);
    let mut opened = BTreeMap::new();
    for datagram in pair.tapped() {
        if let Some(path) = datagram.path() {
            opened.entry(path).or_insert(datagram.host);
        }
    }
    assert!(opened.len() == 9 && opened.values().all(|host| *host == 0), "{opened:?}");
    let other = pair.association(1).seal(99, 0, &[Frame::Heartbeat]).expect("keys").0;
    let from = PathAddress { local: LocalId(0), remote: address(1, 0) };
    assert_eq!(pair.deliver(0, from, &other), Err(DropReason::UnknownPath));
}

/// [P-2]
#[test]
fn a_path_identifier_is_never_reused_under_the_same_keys() {
    let mut pair = in_turn();
    pair.run_for(SECOND);
    for _ in 0..5 {
        for count in [1, 2] {
            let some = locals(0)[..count].to_vec();
            pair.engines[0].handle_command(pair.now, Command::LocalAddresses(some));
            pair.run_for(SECOND * 4);
        }
    }
    let mut ends: BTreeMap<u16, BTreeSet<PathAddress>> = BTreeMap::new();
    for datagram in pair.tapped().iter().filter(|datagram| datagram.host == 0) {
        if let Some(path) = datagram.path() {
            ends.entry(path).or_default().insert(datagram.to);
        }
    }
    assert_eq!(ends.len(), 4 + 5 * 2);
    assert!(ends.values().all(|ends| ends.len() == 1), "{ends:?}");
    // Reopens a removed path.
    let gone = (0..14).find(|path| pair.association(1).address_of(*path).is_none());
    let late = pair.association(0).seal(gone.expect("a path"), 1 << 20, &[Frame::Heartbeat]);
    let from = PathAddress { local: LocalId(1), remote: address(0, 1) };
    assert_eq!(pair.deliver(1, from, &late.expect("keys").0), Err(DropReason::UnknownPath));
}

/// Host 0 loses its second address and gets it back; returns the identifiers of the paths from
/// there.
fn renumbered(pair: &mut Pair) -> BTreeSet<u16> {
    let now = pair.now;
    pair.engines[0].handle_command(now, Command::LocalAddresses(locals(0)[..1].to_vec()));
    pair.run_for(SECOND * 4);
    pair.engines[0].handle_command(pair.now, Command::LocalAddresses(locals(0)));
    pair.run_for(SECOND);
    let status = pair.engines[0].status(pair.now, false);
    let paths = status.peers[0].paths.iter();
    paths.filter(|path| path.local == address(0, 1)).map(|path| path.id).collect()
}

fn assert_all_work(pair: &mut Pair, sequence: u32) {
    for host in 0..2 {
        assert_eq!(pair.states(host), [PathState::Active; 4], "host {host}");
        pair.out[1 - host].packets.clear();
        for n in 0..8 {
            pair.send(host, &tcp(host, sequence + n, 100), Offload::default());
        }
        pair.run_for(SECOND);
        let arrived = sequences(&pair.out[1 - host].packets);
        assert_eq!(arrived, (sequence..sequence + 8).collect::<Vec<_>>(), "from host {host}");
    }
}

/// [P-2]
#[test]
fn after_the_last_identifier_the_first_free_ones_are_used() {
    let mut pair = in_turn();
    pair.run_for(SECOND);
    pair.association(0).number_paths_from(65_533);
    let mut given = BTreeSet::new();
    for round in 0..8 {
        given.extend(renumbered(&mut pair));
        assert_all_work(&mut pair, round * 8);
    }
    // The first paths had 0 to 3.
    let expected = (65_533..=65_535).chain(4..=16);
    assert_eq!(given, expected.collect());
}

/// [P-2] [H-13]
#[test]
fn an_identifier_is_reused_once_its_keys_are_erased() {
    let mut pair = in_turn();
    pair.run_for(SECOND);
    let first = renumbered(&mut pair);
    assert_eq!(first, BTreeSet::from([4, 5]));
    pair.association(0).number_paths_from(4);
    let second = renumbered(&mut pair);
    assert_eq!(second, BTreeSet::from([6, 7]), "the keys are the same");
    pair.run_for(SECOND * 120);
    pair.association(0).number_paths_from(4);
    assert_eq!(renumbered(&mut pair), BTreeSet::from([8, 9]), "the former keys still open");
    pair.run_for(SECOND * 120);
    pair.association(0).number_paths_from(4);
    assert_eq!(renumbered(&mut pair), first);
    assert_all_work(&mut pair, 0);
    let mut nonces = BTreeSet::new();
    for datagram in pair.tapped() {
        if let Some(opened) = &datagram.opened {
            let nonce = (datagram.host, opened.index, opened.path, opened.number);
            assert!(nonces.insert(nonce), "{datagram:?}");
        }
    }
}

/// [P-3] [P-4] [P-5]
#[test]
fn packets_follow_the_response_to_a_challenge() {
    let mut pair = in_turn();
    talk(&mut pair, 200);
    let datagrams = pair.tapped();
    let mut challenges = BTreeSet::new();
    for path in 1..4 {
        let on_path: Vec<_> = datagrams.iter().filter(|d| d.path() == Some(path)).collect();
        for host in 0..2 {
            // The opener challenges an advertised address twice, the second time with full size.
            let asks = |d: &&&Tapped| d.host == host && challenge(d).is_some();
            let asked = on_path.iter().rfind(asks).expect("each side challenges");
            let data = challenge(asked).expect("found by it");
            assert!(challenges.insert(data), "challenges differ");
            let answered = on_path.iter().find(|d| d.host != host && response(d) == Some(data));
            let answered = answered.expect("an answer on the same path");
            assert_eq!(answered.to, pair.source(host, asked.to), "to where the question came from");
            let first = on_path.iter().find(|d| d.host == host && d.carries());
            let first = first.expect("packets in turn");
            assert!(first.at >= answered.at + SECOND / 1_000, "{first:?} {answered:?}");
            if host == 0 {
                assert_eq!(asked.bytes.len(), 1_200);
            } else {
                assert!((40..=1_200).contains(&asked.bytes.len()));
            }
        }
    }
}

/// [P-3]
#[test]
fn only_a_response_with_the_bytes_of_the_challenge_validates() {
    let mut pair = Pair::new(|_| {});
    // Host 0's second address receives nothing.
    pair.pass = |host, to, _| host == 0 || to.remote != address(0, 1);
    pair.run_for(SECOND * 2);
    let waiting =
        |pair: &Pair| pair.states(0).iter().filter(|s| **s == PathState::Validating).count();
    assert_eq!(waiting(&pair), 2);
    let path = (0..4).find(|path| {
        pair.association(0).address_of(*path).is_some_and(|ends| ends.local == LocalId(1))
    });
    let path = path.expect("a path from there");
    let frames = [Frame::PathResponse([7; 8])];
    let (to, bytes) = pair.association(1).forge(Instant::ZERO, path, &frames).expect("keys");
    let from = pair.source(1, to);
    assert_eq!(pair.deliver(0, from, &bytes), Ok(()));
    assert_eq!(waiting(&pair), 2);
}

/// [P-6] [P-7]
#[test]
fn an_address_that_does_not_answer_is_sent_no_more_bytes_than_it_sent() {
    let mut pair = in_turn();
    pair.run_for(SECOND);
    let elsewhere = SocketAddr::new(IpAddr::from([198, 18, 200, 1]), 999);
    pair.translated = Some((0, elsewhere));
    pair.pass = |_, to, _| to.remote.port() != 999;
    pair.tapped();
    talk(&mut pair, 1_000);
    let datagrams = pair.tapped();
    let (mut came, mut went) = (0, 0);
    for datagram in &datagrams {
        if datagram.host == 0 && datagram.to.local == LocalId(0) {
            came += datagram.bytes.len();
        } else if datagram.to.remote == elsewhere {
            went += datagram.bytes.len();
            assert!(!datagram.carries());
            assert!(went <= came, "{went} for {came}");
        }
    }
    assert!(went > 1_200, "challenges went there");
    let old = |d: &&Tapped| d.host == 1 && d.to.remote == address(0, 0) && d.carries();
    assert!(datagrams.iter().filter(old).count() > 100, "the old address serves");
}

/// [P-6]
#[test]
fn a_path_opened_from_an_address_that_does_not_answer_is_not_an_amplifier() {
    let mut pair = in_turn();
    pair.pass = |host, to, _| host == 0 || to.remote != address(0, 1);
    talk(&mut pair, 2_000);
    // Small datagrams too, which leave no room for challenges.
    let mut opened = |path: &u16| {
        pair.association(0).address_of(*path).is_some_and(|ends| ends.local == LocalId(1))
    };
    let path = (0..4).find(|path| opened(path)).expect("a path from there");
    let since = pair.now;
    let small = |bytes: &[u8]| bytes.len() < 1_000;
    pair.pass = |host, to, bytes| match host {
        0 => bytes.len() < 1_000,
        _ => to.remote != address(0, 1),
    };
    for _ in 0..3_000 {
        pair.inject(0, path, &[Frame::PathChallenge([1; 8])]);
        pair.run_for(SECOND / 100);
    }
    let (mut came, mut went) = (0, 0);
    for datagram in pair.tapped() {
        if datagram.host == 0 && datagram.to.local == LocalId(1) && datagram.opened.is_some() {
            let arrives = datagram.at < since || small(&datagram.bytes);
            came += if arrives { datagram.bytes.len() } else { 0 };
        } else if datagram.host == 1 && datagram.to.remote == address(0, 1) {
            went += datagram.bytes.len();
            assert!(went <= came && !datagram.carries(), "{went} for {came}: {datagram:?}");
        }
    }
    assert!(went > 1_200, "challenges and answers went there");
}

/// [P-7]
#[test]
fn a_new_address_carries_packets_once_it_has_answered() {
    let mut pair = in_turn();
    pair.run_for(SECOND);
    let elsewhere = SocketAddr::new(IpAddr::from([198, 18, 200, 1]), 999);
    pair.translated = Some((0, elsewhere));
    pair.tapped();
    talk(&mut pair, 200);
    let datagrams = pair.tapped();
    let first = datagrams.iter().find(|d| d.to.remote == elsewhere).expect("a challenge");
    let data = challenge(first).expect("the first thing that goes there");
    let answer = datagrams.iter().find(|d| d.host == 0 && response(d) == Some(data));
    let answer = answer.expect("an answer");
    let moved = datagrams.iter().find(|d| d.to.remote == elsewhere && d.carries());
    assert!(moved.expect("packets").at >= answer.at + SECOND / 1_000);
    let path = answer.path().expect("a transport message");
    assert_eq!(pair.association(1).address_of(path).map(|ends| ends.remote), Some(elsewhere));
    assert_eq!(pair.states(1), [PathState::Active; 4]);
}

/// [P-8]
#[test]
fn an_older_list_of_addresses_is_ignored() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    for (generation, link) in [(50, 2), (49, 3), (50, 3)] {
        let list = [address(1, link)];
        let list = AddressList::new(&list).expect("one address");
        pair.inject(1, 0, &[Frame::Addresses { generation, list }]);
        pair.run_for(SECOND / 10);
    }
    let status = pair.engines[0].status(pair.now, false);
    let leads = |link| status.peers[0].paths.iter().any(|path| path.remote == address(1, link));
    assert!(leads(2) && !leads(3));
}

/// [P-9]
#[test]
fn an_abandoned_path_carries_nothing_and_does_not_come_back() {
    let mut pair = in_turn();
    pair.run_for(SECOND);
    for (sequence, status) in
        [(5, PathStatus::Abandoned), (6, PathStatus::Available), (7, PathStatus::Standby)]
    {
        pair.inject(
            1,
            0,
            &[Frame::PathStatus { path: PathId(1), sequence, status, cost: 0, limit: None }],
        );
        pair.run_for(SECOND / 10);
        pair.tapped();
        talk(&mut pair, 100);
        let used = pair.tapped().iter().any(|d| d.host == 0 && d.path() == Some(1));
        assert!(!used, "after {status:?}");
    }
    pair.run_for(SECOND * 5);
    assert!(pair.association(0).address_of(1).is_none());
}

/// [P-9]
#[test]
fn an_abandoned_path_neither_probes_nor_answers() {
    let mut pair = Pair::new(|_| {});
    pair.tap = Some(Vec::new());
    // Nothing arrives from there: its paths get no response.
    pair.pass = |host, to, _| host == 1 || to.local.0 != 1;
    pair.run_for(SECOND);
    let asks =
        |pair: &mut Pair| pair.tapped().iter().filter(|d| d.host == 0 && d.to.local.0 == 1).count();
    assert_ne!(asks(&mut pair), 0);
    let now = pair.now;
    pair.engines[0].handle_command(now, Command::LocalAddresses(locals(0)[..1].to_vec()));
    pair.run_for(SECOND * 10);
    assert_eq!(asks(&mut pair), 0);

    let mut pair = in_turn();
    pair.run_for(SECOND);
    pair.inject(
        1,
        0,
        &[Frame::PathStatus {
            path: PathId(1),
            sequence: 5,
            status: PathStatus::Abandoned,
            cost: 0,
            limit: None,
        }],
    );
    pair.run_for(SECOND / 10);
    pair.tapped();
    pair.inject(1, 1, &[Frame::PathChallenge([9; 8])]);
    pair.run_for(SECOND / 10);
    assert!(!pair.tapped().iter().any(|d| d.host == 0 && d.path() == Some(1)));
}

/// [P-9]
#[test]
fn the_opener_reports_every_path_that_it_does_not_have_as_abandoned() {
    let mut pair = in_turn();
    pair.run_for(SECOND);
    let unknown = pair.association(1).seal(99, 0, &[Frame::Heartbeat]).expect("keys").0;
    let from = PathAddress { local: LocalId(0), remote: address(1, 0) };
    assert_eq!(pair.deliver(0, from, &unknown), Err(DropReason::UnknownPath));
    pair.tapped();
    pair.collect(0);
    assert!(pair.tapped().iter().any(|datagram| says_abandoned(datagram, 99)));
}

/// [P-10]
#[test]
fn an_observed_address_moves_nothing() {
    let mut pair = in_turn();
    pair.run_for(SECOND);
    let ends = |pair: &mut Pair| (0..4).map(|path| pair.association(0).address_of(path)).collect();
    let before: Vec<_> = ends(&mut pair);
    let elsewhere = SocketAddr::new(IpAddr::from([198, 18, 200, 1]), 999);
    for path in 0..4 {
        let frame = Frame::AddressObserved { path: PathId(path), address: elsewhere, taken: false };
        pair.inject(1, path, &[frame]);
    }
    talk(&mut pair, 100);
    assert_eq!(before, ends(&mut pair));
    assert!(pair.tapped().iter().all(|datagram| datagram.to.remote != elsewhere));
}

/// [P-10]
#[test]
fn a_node_behind_a_nat_learns_its_observed_address_after_changes_and_despite_loss() {
    let observed = |pair: &Pair, host: usize| -> Vec<Option<SocketAddr>> {
        let status = pair.engines[host].status(pair.now, false);
        status.peers[0].paths.iter().map(|path| path.observed).collect()
    };
    let mut pair = in_turn();
    let elsewhere: SocketAddr = "203.0.113.7:40000".parse().expect("valid");
    pair.translated = Some((0, elsewhere));
    pair.run_for(SECOND);
    let seen = observed(&pair, 0);
    assert_eq!(seen.iter().filter(|seen| **seen == Some(elsewhere)).count(), 2, "{seen:?}");
    assert_eq!(seen.iter().flatten().count(), 2, "the others are as it says itself: {seen:?}");
    assert_eq!(observed(&pair, 1), [None; 4]);

    let moved: SocketAddr = "203.0.113.8:40001".parse().expect("valid");
    pair.translated = Some((0, moved));
    // Datagrams that host 1 sends at the moment of the change are lost.
    pair.run_for(Duration::from_millis(300));
    pair.dead = vec![0];
    pair.run_for(Duration::from_millis(200));
    pair.dead = vec![];
    pair.run_for(SECOND * 5);
    let seen = observed(&pair, 0);
    assert_eq!(seen.iter().filter(|seen| **seen == Some(moved)).count(), 2, "{seen:?}");
}

/// [P-20]
#[test]
fn behind_a_nat_ordinary_addresses_are_captured_only_where_they_are_translated() {
    let captured = |translated, connections| {
        let mut pair = Pair::with(|_, config| {
            config.peers[0].host_mode = true;
            config.peers[0].policy = Policy::Prefer;
            config.limits.translated = connections;
        });
        pair.translated = translated;
        pair.run_for(SECOND * 2);
        let mut captures = BTreeMap::new();
        for host in 0..2 {
            captures.extend(pair.engines[host].poll_capture().map(|capture| (host, capture)));
        }
        let lists = |host: usize| {
            let capture: &Capture = &captures[&host];
            let names = |list: Vec<String>| list.join(" ");
            let own = |list: &[IpAddr]| names(list.iter().map(ToString::to_string).collect());
            [
                names(capture.prefixes.iter().map(ToString::to_string).collect()),
                own(&capture.translated),
                own(&capture.nats),
            ]
        };
        [lists(0), lists(1)]
    };
    let own = "198.18.0.2/32 198.18.1.2/32 198.19.0.2/32";
    let theirs = "198.18.0.1/32 198.18.1.1/32 198.19.0.1/32";
    assert_eq!(captured(None, 8), [[own, "", ""], [theirs, "", ""]]);
    let elsewhere = Some((0, "203.0.113.7:40000".parse().expect("valid")));
    let told = "198.18.1.1/32 198.19.0.1/32";
    let behind = ["198.19.0.2/32", "198.18.0.2 198.18.1.2", ""];
    assert_eq!(captured(elsewhere, 8), [behind, [told, "", "203.0.113.7"]]);
    // Connections that cannot be translated stay plain.
    assert_eq!(captured(elsewhere, 0), [["198.19.0.2/32", "", ""], [told, "", ""]]);
}

/// [P-11]
#[test]
fn an_idle_path_sends_a_heartbeat_every_300_ms() {
    let mut pair = in_turn();
    pair.run_for(SECOND);
    pair.tapped();
    let begin = pair.now;
    pair.run_for(SECOND * 5);
    let datagrams = pair.tapped();
    for (host, path) in (0..2).flat_map(|host| (0..4).map(move |path| (host, path))) {
        let asks = datagrams.iter().filter(|d| d.host == host && d.path() == Some(path));
        let asks = asks.filter(|d| d.frames().any(|frame| frame.is_ack_eliciting()));
        let mut last = begin;
        for datagram in asks {
            let pause = datagram.at.since(last);
            assert!(pause <= Duration::from_millis(301), "{pause:?} on path {path}");
            last = datagram.at;
        }
        assert!(pair.now.since(last) <= Duration::from_millis(301));
    }
}

#[test]
fn every_other_heartbeat_of_a_new_path_is_long_until_its_capacity_is_known() {
    let mut pair = in_turn();
    pair.run_for(SECOND * 6);
    let datagrams = pair.tapped();
    for (host, path) in (0..2).flat_map(|host| (0..4).map(move |path| (host, path))) {
        let own = datagrams.iter().filter(|d| d.host == host && d.path() == Some(path));
        let long =
            own.filter(|d| d.bytes.len() > 1_300 && d.frames().any(|f| f == Frame::Heartbeat));
        let at: Vec<Instant> = long.map(|datagram| datagram.at).collect();
        // The first is the MTU probe. Small ones lie between the others.
        assert!((3..=4).contains(&at.len()), "path {path} of {host}: {at:?}");
        let apart = at[1..].windows(2).map(|two| two[1].since(two[0]));
        assert!(apart.min() >= Some(Duration::from_millis(599)), "{at:?}");
        assert!(at[at.len() - 1] < Instant::from_millis(3_000), "{at:?}");
    }
}

/// [P-7] [P-11]
#[test]
fn the_first_heartbeat_from_a_new_address_is_answered_with_a_challenge() {
    let mut pair = in_turn();
    pair.translated = Some((0, "203.0.113.7:1".parse().expect("valid")));
    pair.run_for(SECOND);
    pair.tapped();
    while pair.engines[1].poll_event().is_some() {}
    let elsewhere = "203.0.113.7:40000".parse().expect("valid");
    pair.translated = Some((0, elsewhere));
    // The heartbeat interval and a round trip; the path over the diagonals takes 3 ms each way.
    pair.run_for(Duration::from_millis(301 + 6));
    let there = pair.tapped().into_iter().filter(|d| d.host == 1 && d.to.remote == elsewhere);
    let challenges = there.flat_map(|datagram| {
        datagram
            .frames()
            .filter(|frame| matches!(frame, Frame::PathChallenge(_)))
            .count()
            .checked_sub(1)
    });
    assert_eq!(challenges.count(), 2, "both paths of that address");
    let moved = |event: Event| matches!(event, Event::Rebound { to, .. } if to == elsewhere);
    let events = core::iter::from_fn(|| pair.engines[1].poll_event());
    assert_eq!(events.filter(|event| moved(event.clone())).count(), 2);
}

/// [P-12]
#[test]
fn no_state_is_left_after_a_close() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    let (_, late) = pair.association(0).forge(Instant::ZERO, 0, &[Frame::Heartbeat]).expect("keys");
    pair.inject(0, 0, &[Frame::Close { reason: 0, message: "" }]);
    pair.pass = |_, _, _| false;
    pair.run_for(Duration::from_millis(10));
    assert_eq!(pair.association(1).epochs(), 0);
    assert!(pair.states(1).is_empty());
    let from = PathAddress { local: LocalId(0), remote: address(0, 0) };
    assert_eq!(pair.deliver(1, from, &late), Err(DropReason::UnknownIndex));
}

/// [P-14]
#[test]
fn at_the_limit_the_path_that_has_not_worked_for_longest_is_abandoned() {
    let mut pair = Pair::with(|host, config| {
        if host == 1 {
            config.limits.paths = 3;
        }
    });
    let one = |link: usize| Command::LocalAddresses(vec![with_third_link(0)[link].clone()]);
    pair.engines[0].handle_command(pair.now, one(0));
    pair.run_for(SECOND);
    // Host 0 has one address at a time, and none in between: it cannot tell which paths it
    // abandoned.
    for round in 1..9 {
        pair.engines[0].handle_command(pair.now, Command::LocalAddresses(vec![]));
        pair.run_for(SECOND * 5);
        pair.engines[0].handle_command(pair.now, one(round % 3));
        pair.run_for(SECOND * 5);
        pair.out[1].packets.clear();
        pair.send(0, &tcp(0, round as u32, 100), Offload::default());
        pair.run_for(SECOND);
        assert_eq!(sequences(&pair.out[1].packets), [round as u32]);
        assert!(pair.states(1).len() <= 3);
    }
    // When all work, none is abandoned.
    let all = Command::LocalAddresses(with_third_link(0));
    pair.engines[0].handle_command(pair.now, all);
    pair.run_for(SECOND * 10);
    assert_eq!(pair.states(1), [PathState::Active; 3]);
    assert_ne!(pair.drops(1, DropReason::TooManyPaths), 0);
}

/// Whether a datagram says that path `id` is abandoned.
fn says_abandoned(datagram: &Tapped, id: u16) -> bool {
    datagram.frames().any(|frame| match frame {
        Frame::PathStatus { path, status, .. } => {
            (path, status) == (PathId(id), PathStatus::Abandoned)
        }
        _ => false,
    })
}

/// [P-9] [P-14]
#[test]
fn the_opener_is_told_which_path_made_room_also_if_that_is_lost_once() {
    for first_is_lost in [false, true] {
        let mut pair = Pair::with(|host, config| {
            if host == 1 {
                config.limits.paths = 2;
            }
        });
        pair.tap = Some(Vec::new());
        pair.engines[1]
            .handle_command(pair.now, Command::LocalAddresses(vec![locals(1)[0].clone()]));
        pair.run_for(SECOND);
        assert_eq!(pair.states(0), [PathState::Active; 2]);
        pair.dead = vec![1];
        pair.run_for(SECOND * 5);
        let ends = |pair: &mut Pair, id| pair.association(0).address_of(id).map(|ends| ends.local);
        let failed = (0..2).find(|id| ends(&mut pair, *id) == Some(LocalId(1)));
        let failed = failed.expect("the path from there");
        pair.tapped();
        if first_is_lost {
            pair.pass = |host, _, _| host == 0;
        }
        pair.engines[0].handle_command(pair.now, Command::LocalAddresses(with_third_link(0)));
        let told = |pair: &mut Pair| {
            pair.tapped().iter().any(|sent| sent.host == 1 && says_abandoned(sent, failed))
        };
        let step = Duration::from_millis(1);
        let soon = (0..50).any(|_| {
            pair.run_for(step);
            told(&mut pair)
        });
        assert!(soon, "with the next message on another path");
        pair.pass = |_, _, _| true;
        pair.run_for(SECOND);
        let states = pair.engines[0].status(pair.now, true).peers.remove(0).paths;
        let there = states.iter().find(|path| path.id == failed).map(|path| path.state);
        assert!(there.is_none_or(|state| state == PathState::Abandoned), "{there:?}");
    }
}

/// The paths that `host` uses for `packets` packets.
fn used(pair: &mut Pair, host: usize, packets: u32) -> BTreeSet<u16> {
    pair.tapped();
    talk(pair, packets);
    let sent = pair.tapped();
    sent.iter().filter(|d| d.host == host && d.carries()).filter_map(Tapped::path).collect()
}

/// [P-18]
#[test]
fn a_path_on_standby_for_the_peer_is_used_when_no_other_works() {
    let mut pair = Pair::with(|host, config| {
        config.peers[0].scheduler = SchedulerKind::RoundRobin;
        config.peers[0].max_paths = (host == 0).then_some(2);
    });
    pair.tap = Some(Vec::new());
    pair.run_for(SECOND * 2);
    let chosen = used(&mut pair, 0, 100);
    assert_eq!(chosen.len(), 2);
    assert_eq!(used(&mut pair, 1, 100), chosen);
    let standby = pair.states(1).iter().filter(|state| **state == PathState::Standby).count();
    assert_eq!(standby, 2);
    // All paths fail but the slowest, which neither node has used.
    pair.dead = vec![0];
    pair.run_for(SECOND);
    for host in 0..2 {
        let left = used(&mut pair, host, 100);
        assert_eq!(left.len(), 1);
        assert!(left.is_disjoint(&chosen));
    }
    pair.dead.clear();
    pair.run_for(SECOND * 5);
    assert_eq!(used(&mut pair, 0, 100), chosen);
    assert_eq!(used(&mut pair, 1, 100), chosen);
}

/// [P-18]
#[test]
fn when_both_nodes_use_standby_they_agree() {
    for limits in [[2, 1], [1, 3], [3, 3]] {
        let mut pair = Pair::with(|host, config| {
            config.peers[0].scheduler = SchedulerKind::RoundRobin;
            config.peers[0].max_paths = Some(limits[host]);
        });
        pair.tap = Some(Vec::new());
        pair.run_for(SECOND * 3);
        for engine in &mut pair.engines {
            while engine.poll_event().is_some() {}
        }
        let chosen = used(&mut pair, 0, 300);
        assert_eq!(chosen.len(), limits[0]);
        assert!(used(&mut pair, 1, 300).is_subset(&chosen));
        for engine in &mut pair.engines {
            assert_eq!(engine.poll_event(), None, "nothing changes any more");
        }
    }
}

/// [P-19]
#[test]
fn an_older_status_of_a_path_is_ignored() {
    let mut pair = in_turn();
    pair.run_for(SECOND);
    for (sequence, status, in_use) in [
        (5, PathStatus::Standby, false),
        (4, PathStatus::Available, false),
        (5, PathStatus::Available, false),
        (6, PathStatus::Available, true),
        (2, PathStatus::Standby, true),
    ] {
        pair.inject(
            1,
            0,
            &[Frame::PathStatus { path: PathId(2), sequence, status, cost: 0, limit: None }],
        );
        pair.run_for(SECOND / 10);
        assert_eq!(used(&mut pair, 0, 100).contains(&2), in_use, "{sequence}: {status:?}");
    }
}
