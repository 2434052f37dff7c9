//! Two engines over several paths: normal operation and recovery from failures.

use super::harness::{Pair, SECOND, Tapped, locals, sequences, tcp};
use super::*;
use crate::config::{PathPreference, Rule, RulePaths, SchedulerKind};
use mpip_transport::PathState;
use mpip_transport::cc::CongestionControlKind;
use mpip_types::{Offload, Segmentation, SegmentationKind};

#[test]
fn all_four_paths_come_up() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    assert_eq!(pair.states(0), [PathState::Active; 4]);
    assert_eq!(pair.states(1), [PathState::Active; 4]);
}

#[test]
fn packets_arrive_unchanged_and_in_order_over_several_paths() {
    let mut pair = Pair::new(|peer| peer.scheduler = SchedulerKind::RoundRobin);
    pair.run_for(SECOND);
    let sent: Vec<_> = (0..200).map(|n| tcp(0, n, 1_000)).collect();
    for packet in &sent {
        pair.send(0, packet, Offload::default());
    }
    pair.run_for(SECOND);
    assert_eq!(pair.out[1].packets, sent);
    let status = pair.engines[0].status(pair.now, true);
    assert!(status.peers[0].paths.iter().all(|path| (path.share - 0.25).abs() < 0.01));
}

/// The paths on which the transfer of `numbers` travels.
fn paths_of(pair: &mut Pair, numbers: core::ops::Range<u32>) -> BTreeSet<u16> {
    pair.tap = Some(Vec::new());
    for number in numbers {
        pair.send(0, &tcp(0, number, 1_000), Offload::default());
        pair.run_for(Duration::from_millis(1));
    }
    pair.run_for(SECOND);
    let sent = pair.tapped();
    sent.iter().filter(|d| d.host == 0 && d.carries()).filter_map(Tapped::path).collect()
}

#[test]
fn a_confined_session_takes_its_path_alone_while_that_works() {
    let mut pair = Pair::new(|peer| peer.scheduler = SchedulerKind::RoundRobin);
    pair.run_for(SECOND);
    let header = mpip_types::packet::Header::parse(&tcp(0, 0, 0)).expect("a packet");
    let paths: Vec<u16> =
        pair.engines[0].status(pair.now, false).peers[0].paths.iter().map(|path| path.id).collect();
    let last = *paths.last().expect("paths");
    assert!(pair.engines[0].confine(header.session(), Some(last)));
    assert_eq!(paths_of(&mut pair, 0..100), [last].into());
    assert!(pair.engines[0].confine(header.session(), None));
    assert_eq!(paths_of(&mut pair, 100..200), paths.iter().copied().collect());

    // One that does not work, or does not exist, is no reason to lose packets.
    assert!(pair.engines[0].confine(header.session(), Some(999)));
    assert_eq!(paths_of(&mut pair, 200..300), paths.iter().copied().collect());
    assert_eq!(sequences(&pair.out[1].packets), (0..300).collect::<Vec<_>>());
    let mut elsewhere = header.session();
    elsewhere.destination.address = "203.0.113.9".parse().expect("valid");
    assert!(!pair.engines[0].confine(elsewhere, Some(last)), "no peer is there");
}

#[test]
fn the_peer_behind_an_inner_address_is_known() {
    let mut pair = Pair::new(|_| {});
    let name = pair.engines[0].associations[0].config.name.clone();
    let theirs: IpAddr = "198.19.0.2".parse().expect("valid");
    let at = |pair: &Pair, address| pair.engines[0].peer_at(address).map(str::to_owned);
    assert_eq!(at(&pair, theirs), Some(name));
    assert_eq!(at(&pair, "203.0.113.9".parse().expect("valid")), None);
    pair.engines[0].handle_command(pair.now, Command::OwnAddresses(vec![theirs]));
    assert_eq!(at(&pair, theirs), None, "it is this host's own");
}

#[test]
fn a_super_packet_arrives_as_its_segments() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    let segmentation = Some(Segmentation { kind: SegmentationKind::Tcp, size: 1_300 });
    let offload = Offload { segmentation, partial_checksum: None };
    pair.send(0, &tcp(0, 1_000, 13_000), offload);
    pair.run_for(SECOND);
    let expected: Vec<u32> = (0..10).map(|n| 1_000 + n * 1_300).collect();
    assert_eq!(sequences(&pair.out[1].packets), expected);
}

#[test]
fn losses_of_tcp_sessions_are_repaired_in_order() {
    for congestion_control in [CongestionControlKind::Cubic, CongestionControlKind::Bbr] {
        let mut pair = Pair::new(|peer| {
            peer.scheduler = SchedulerKind::RoundRobin;
            peer.congestion_control = congestion_control;
        });
        pair.run_for(SECOND);
        pair.lose = Some(7);
        for n in 0..500 {
            pair.send(0, &tcp(0, n, 1_000), Offload::default());
            pair.run_for(Duration::from_millis(1));
        }
        pair.run_for(SECOND);
        assert_eq!(sequences(&pair.out[1].packets), (0..500).collect::<Vec<_>>());
    }
}

#[test]
fn without_congestion_control_the_inner_tcp_sees_its_losses_and_waits_for_none() {
    let mut pair = Pair::new(|peer| peer.scheduler = SchedulerKind::RoundRobin);
    pair.run_for(SECOND);
    pair.lose = Some(7);
    for n in 0..500 {
        pair.send(0, &tcp(0, n, 1_000), Offload::default());
        pair.run_for(Duration::from_millis(1));
    }
    pair.run_for(SECOND);
    let arrived = sequences(&pair.out[1].packets);
    assert!(arrived.len() < 470 && arrived.is_sorted(), "{arrived:?}");
    let status = pair.engines[1].status(pair.now, true);
    let longest = status.peers[0].sessions.iter().map(|session| session.longest_wait).max();
    assert!(longest < Some(Duration::from_millis(60)), "{longest:?}");
}

#[test]
fn a_path_that_fails_silently_is_no_longer_chosen_and_its_packets_move() {
    let mut pair = Pair::new(|peer| peer.scheduler = SchedulerKind::RoundRobin);
    pair.run_for(SECOND);
    for n in 0..300 {
        if n == 100 {
            pair.dead = vec![0];
        }
        pair.send(0, &tcp(0, n, 1_000), Offload::default());
        pair.run_for(Duration::from_millis(1));
    }
    pair.run_for(Duration::from_millis(300));
    assert_eq!(sequences(&pair.out[1].packets), (0..300).collect::<Vec<_>>());
    let failed = pair.states(0).iter().filter(|state| **state == PathState::Failed).count();
    assert_eq!(failed, 3, "{:?}", pair.states(0));
    pair.dead = vec![];
    pair.run_for(SECOND * 4);
    assert_eq!(pair.states(0), [PathState::Active; 4]);
}

#[test]
fn a_lost_address_moves_everything_at_once_and_its_return_brings_the_paths_back() {
    let mut pair = Pair::new(|peer| peer.scheduler = SchedulerKind::RoundRobin);
    pair.run_for(SECOND);
    for n in 0..20 {
        pair.send(0, &tcp(0, n, 1_000), Offload::default());
    }
    pair.dead = vec![1];
    let one = vec![locals(0)[0].clone()];
    pair.engines[0].handle_command(pair.now, Command::LocalAddresses(one));
    pair.run_for(Duration::from_millis(20));
    assert_eq!(sequences(&pair.out[1].packets), (0..20).collect::<Vec<_>>());
    pair.run_for(SECOND * 4);
    pair.dead = vec![];
    pair.engines[0].handle_command(pair.now, Command::LocalAddresses(locals(0)));
    pair.run_for(SECOND * 4);
    assert_eq!(pair.states(0), [PathState::Active; 4]);
    assert_eq!(pair.states(1), [PathState::Active; 4]);
}

#[test]
fn paths_of_an_interface_that_is_renamed_go_on_by_what_holds_for_its_new_name() {
    let new = "wan0".to_owned();
    let paths = RulePaths { preference: PathPreference::Only, interfaces: vec![new.clone()] };
    let only = Rule { paths: Some(paths), ..Rule::default() };
    let mut pair = Pair::with(|_, config| config.rules = vec![only.clone()]);
    let costs = [(new.clone(), 3)].into();
    let properties = InterfaceProperties { costs, ..InterfaceProperties::default() };
    pair.engines[0].handle_command(pair.now, Command::Interfaces(properties));
    pair.run_for(SECOND);
    let known = |pair: &Pair| -> Vec<_> {
        let status = pair.engines[0].status(pair.now, false);
        let paths = status.peers[0].paths.iter();
        paths.map(|path| (path.id, path.interface.clone(), path.cost)).collect()
    };
    let before = known(&pair);
    assert!(before.iter().all(|(_, _, cost)| *cost == 0));
    assert!(paths_of(&mut pair, 0..10).is_empty(), "there is no such interface");

    let mut list = locals(0);
    let former = std::mem::replace(&mut list[1].interface, new.clone());
    pair.engines[0].handle_command(pair.now, Command::LocalAddresses(list));
    let expected: Vec<_> = before
        .into_iter()
        .map(
            |(id, name, cost)| if name == former { (id, new.clone(), 3) } else { (id, name, cost) },
        )
        .collect();
    assert_eq!(known(&pair), expected);
    assert_eq!(pair.states(0), [PathState::Active; 4], "at once");
    let named = |id: &u16| expected.contains(&(*id, new.clone(), 3));
    let used = paths_of(&mut pair, 10..20);
    assert!(!used.is_empty() && used.iter().all(named), "{used:?}");
    assert_eq!(sequences(&pair.out[1].packets), (10..20).collect::<Vec<_>>());
}

#[test]
fn keys_are_replaced_without_losing_a_packet() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    for n in 0..4_000 {
        pair.send(0, &tcp(0, n, 100), Offload::default());
        pair.run_for(Duration::from_millis(70));
    }
    pair.run_for(SECOND);
    assert_eq!(sequences(&pair.out[1].packets), (0..4_000).collect::<Vec<_>>());
    let status = pair.engines[0].status(pair.now, false);
    assert!(status.peers[0].handshake_age.is_some_and(|age| age < SECOND * 121));
    assert!(status.peers[0].paths.iter().all(|path| path.packets_lost == 0));
}

#[test]
fn a_peer_that_restarts_is_recognised_and_gets_a_new_association() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    let fresh = Pair::new(|_| {});
    let [_, mut restarted] = fresh.engines;
    restarted.handle_command(pair.now, Command::LocalAddresses(locals(1)));
    restarted.shared.instance = 77;
    pair.engines[1] = restarted;
    pair.run_for(SECOND * 10);
    assert_eq!(pair.states(0), [PathState::Active; 4]);
    pair.send(0, &tcp(0, 5, 100), Offload::default());
    pair.run_for(SECOND);
    assert_eq!(sequences(&pair.out[1].packets), [5]);
}

#[test]
fn the_fastest_paths_within_the_limit_are_active() {
    let mut pair = Pair::new(|peer| peer.max_paths = Some(2));
    pair.run_for(SECOND * 2);
    let status = pair.engines[0].status(pair.now, false);
    let active = status.peers[0].paths.iter().filter(|path| path.state == PathState::Active);
    assert_eq!(active.count(), 2);
    let fastest = status.peers[0]
        .paths
        .iter()
        .find(|path| path.relative_delay.is_some_and(|delay| delay.is_zero()));
    assert_eq!(fastest.map(|path| path.state), Some(PathState::Active));
}

#[test]
fn no_packet_is_accepted_from_a_source_that_is_not_the_peers() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    let mut packet = tcp(0, 1, 10);
    packet[15] = 99;
    pair.send(0, &packet, Offload::default());
    pair.run_for(SECOND);
    assert!(pair.out[1].packets.is_empty());
    let status = pair.engines[1].status(pair.now, false);
    assert!(status.drops.iter().any(|(name, _)| *name == "foreign_source"), "{:?}", status.drops);
}

#[test]
fn a_close_ends_the_association_on_both_sides() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    pair.engines[0].handle_command(pair.now, Command::Shutdown);
    pair.run_for(Duration::from_millis(10));
    let mut events = core::iter::from_fn(|| pair.engines[1].poll_event());
    assert!(events.any(|event| matches!(event, Event::Lost { .. })));
}

#[test]
fn the_longest_prefix_decides_which_peer_gets_a_packet() {
    let mut table = PrefixTable::default();
    for (text, peer) in [("0.0.0.0/0", 1), ("198.18.0.0/15", 2), ("198.19.7.0/24", 3)] {
        assert!(table.claim(text.parse().expect("valid"), peer, true));
    }
    let find = |text: &str| table.find(text.parse().expect("valid"));
    assert_eq!(find("198.19.7.9"), Some(3));
    assert_eq!(find("198.19.8.9"), Some(2));
    assert_eq!(find("203.0.113.1"), Some(1));
    assert_eq!(find("2001:db8::1"), None);
}
