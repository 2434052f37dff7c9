//! Settings that change while traffic runs.

use core::time::Duration;

use mpip_crypto::PrivateKey;
use mpip_transport::cc::CongestionControlKind;

use super::super::harness::*;
use super::super::*;
use crate::config::{InterfaceProperties, PeerConfig, Policy, Priority, Rule, SchedulerKind};
use mpip_transport::PathState;
use mpip_types::{Offload, Prefix};

const MS: Duration = Duration::from_millis(1);

/// A pair whose host 0 has the peers that `list` makes of the one it began with.
fn reload(
    pair: &mut Pair,
    host: usize,
    list: impl FnOnce(PeerConfig) -> Vec<PeerConfig>,
) -> Reconfigured {
    let config = pair.engines[host].associations[0].config.clone();
    let (now, rules) = (pair.now, pair.engines[host].shared.rules.rules().to_vec());
    let done = pair.engines[host].reconfigure(now, list(config), rules, &mut pair.out[host]);
    pair.collect(host);
    done
}

/// The name of a setting, and how it changes.
type Change = (&'static str, fn(&mut PeerConfig));

fn other_peer(number: u8, template: &PeerConfig) -> PeerConfig {
    PeerConfig {
        name: format!("other {number}"),
        public_key: *PrivateKey::from_bytes([number + 10; 32]).public_key(),
        endpoints: vec![SocketAddr::from(([198, 18, 7, number], 6182))],
        allowed_prefixes: vec![format!("198.19.7.{number}").parse().expect("valid")],
        ..template.clone()
    }
}

/// The paths that a transfer of the first host uses.
fn used(pair: &mut Pair) -> BTreeSet<u16> {
    pair.tap = Some(Vec::new());
    transfer(pair, 0..100, 0, |_| {});
    let sent = pair.tapped();
    sent.iter().filter(|d| d.host == 0 && d.carries()).filter_map(Tapped::path).collect()
}

/// Sends `numbers` from host 0, one each millisecond, and reloads in the middle.
fn transfer(pair: &mut Pair, numbers: core::ops::Range<u32>, at: u32, act: impl FnOnce(&mut Pair)) {
    let mut act = Some(act);
    for number in numbers {
        if number == at {
            act.take().expect("once")(pair);
        }
        pair.send(0, &tcp(0, number, 1_000), Offload::default());
        pair.run_for(MS);
    }
    pair.run_for(SECOND);
}

fn events(pair: &mut Pair, host: usize) -> Vec<Event> {
    std::iter::from_fn(|| pair.engines[host].poll_event()).collect()
}

#[test]
fn a_peer_that_did_not_change_does_not_notice_that_others_come_and_go() {
    let mut pair = Pair::with(|_, _| {});
    pair.run_for(SECOND);
    let before: Vec<_> =
        pair.engines[0].status(pair.now, false).peers[0].paths.iter().map(|p| p.id).collect();
    for host in 0..2 {
        events(&mut pair, host);
    }
    let lost = pair.engines[0].status(pair.now, false).peers[0].handshake_age;
    transfer(&mut pair, 0..400, 100, |pair| {
        let done = reload(pair, 0, |own| {
            let others = (0..200).map(|number| other_peer(number, &own));
            others.collect::<Vec<_>>().into_iter().chain([own.clone()]).collect()
        });
        assert_eq!((done.added.len(), done.removed.len(), done.changed.len()), (200, 0, 0));
        pair.run_for(MS * 50);
        let done = reload(pair, 0, |own| vec![own]);
        assert_eq!((done.added.len(), done.removed.len(), done.changed.len()), (0, 200, 0));
    });
    assert_eq!(sequences(&pair.out[1].packets), (0..400).collect::<Vec<_>>(), "all, in order");
    let status = pair.engines[0].status(pair.now, false);
    assert_eq!(status.peers.len(), 1);
    let after: Vec<_> = status.peers[0].paths.iter().map(|path| path.id).collect();
    assert_eq!(before, after, "the same paths");
    assert!(status.peers[0].handshake_age > lost, "no new handshake");
    assert_eq!(status.peers[0].paths.iter().map(|path| path.packets_lost).sum::<u64>(), 0);
    assert!(events(&mut pair, 1).is_empty(), "the peer has noticed nothing");
}

#[test]
fn a_configuration_that_did_not_change_changes_nothing() {
    let mut pair = Pair::with(|_, _| {});
    pair.run_for(SECOND);
    let (timeout, kept) = (pair.engines[0].poll_timeout(), pair.engines[0].kept());
    let done = reload(&mut pair, 0, |own| vec![own]);
    assert!(done.is_nothing(), "{done:?}");
    assert_eq!(pair.engines[0].poll_timeout(), timeout);
    assert_eq!(pair.engines[0].kept(), kept);
}

#[test]
fn settings_of_a_peer_change_without_a_new_association_or_a_lost_packet() {
    let changes: [Change; 9] = [
        ("scheduler", |peer| peer.scheduler = SchedulerKind::RoundRobin),
        ("weights", |peer| {
            peer.scheduler = SchedulerKind::Weighted;
            peer.fixed_weights = vec![(local(0, 0).interface, 7)];
        }),
        ("weight_step", |peer| peer.weight_adaptation.step = 50),
        ("congestion_control", |peer| peer.congestion_control = CongestionControlKind::Cubic),
        ("max_paths", |peer| peer.max_paths = Some(1)),
        ("resequencing", |peer| peer.resequencing = false),
        ("ack_thinning", |peer| peer.ack_thinning = false),
        ("preshared key", |peer| {
            peer.preshared_key = mpip_crypto::PresharedKey::from_bytes([7; 32]);
        }),
        ("prefixes", |peer| {
            peer.allowed_prefixes.push("198.19.9.0/24".parse().expect("valid"));
        }),
    ];
    for (name, change) in changes {
        let mut pair = Pair::with(|_, config| {
            config.peers[0].congestion_control = CongestionControlKind::Bbr;
        });
        pair.run_for(SECOND);
        events(&mut pair, 0);
        transfer(&mut pair, 0..300, 100, |pair| {
            let done = reload(pair, 0, |mut own| {
                change(&mut own);
                vec![own]
            });
            assert_eq!(done.changed, ["host1"], "{name}");
            assert!(done.added.is_empty() && done.removed.is_empty(), "{name}");
        });
        let mut numbers = sequences(&pair.out[1].packets);
        numbers.sort_unstable();
        assert_eq!(numbers, (0..300).collect::<Vec<_>>(), "{name}");
        let seen = events(&mut pair, 0);
        let anew = |event: &Event| matches!(event, Event::Established { .. } | Event::Lost { .. });
        assert!(!seen.iter().any(anew), "{name}: {seen:?}");
    }
}

#[test]
fn a_changed_scheduler_and_limit_take_effect() {
    let mut pair = Pair::with(|_, _| {});
    pair.run_for(SECOND);
    reload(&mut pair, 0, |own| vec![PeerConfig { max_paths: Some(1), ..own }]);
    pair.run_for(SECOND);
    let standby =
        |pair: &Pair| pair.states(0).iter().filter(|state| **state == PathState::Standby).count();
    assert_eq!(standby(&pair), 3);
    let scheduler = SchedulerKind::RoundRobin;
    reload(&mut pair, 0, |own| vec![PeerConfig { max_paths: None, scheduler, ..own }]);
    pair.run_for(SECOND);
    assert_eq!(standby(&pair), 0);
    assert_eq!(used(&mut pair).len(), 4, "in turn");
}

#[test]
fn prefixes_move_from_one_peer_to_another() {
    let mut pair = Pair::with(|_, _| {});
    pair.run_for(SECOND);
    let to = |address: &str| address.parse::<IpAddr>().expect("valid");
    reload(&mut pair, 0, |own| {
        let mut other = other_peer(1, &own);
        other.allowed_prefixes.clone_from(&own.allowed_prefixes);
        let own = PeerConfig { allowed_prefixes: other_peer(1, &own).allowed_prefixes, ..own };
        vec![other, own]
    });
    let prefixes = &pair.engines[0].shared.prefixes;
    assert_eq!(prefixes.find(to("198.19.7.1")), Some(0));
    assert_eq!(prefixes.find(to("198.19.0.2")), Some(1));
    let names: Vec<_> =
        pair.engines[0].status(pair.now, false).peers.into_iter().map(|peer| peer.name).collect();
    assert_eq!(names, ["other 1", "host1"], "in the configuration's order");
    let packet = pair.pool_packet(&tcp(0, 0, 100), Offload::default());
    let now = pair.now;
    let _ = pair.engines[0].handle_tun(now, packet);
    pair.run_for(SECOND);
    assert!(pair.out[1].packets.is_empty(), "it is for the other peer");
}

#[test]
fn a_removed_peer_is_told_and_one_that_is_added_again_is_reached_again() {
    let mut pair = Pair::with(|_, _| {});
    pair.run_for(SECOND);
    events(&mut pair, 1);
    let mut own = None;
    let done = reload(&mut pair, 0, |config| {
        own = Some(config);
        vec![]
    });
    assert_eq!(done.removed, ["host1"]);
    pair.run_for(MS * 100);
    assert!(events(&mut pair, 1).iter().any(|event| matches!(event, Event::Lost { .. })));
    assert!(pair.engines[0].status(pair.now, false).peers.is_empty());
    let packet = pair.pool_packet(&tcp(0, 0, 100), Offload::default());
    let now = pair.now;
    let refused = pair.engines[0].handle_tun(now, packet);
    assert_eq!(refused, Err(DropReason::NoPeer));
    let datagrams = pair.ledger.clone();
    pair.run_for(SECOND * 10);
    let sent = |ledger: &BTreeMap<(usize, SocketAddr), (u64, u64)>| {
        ledger.iter().filter(|((host, _), _)| *host == 0).map(|(_, (sent, _))| sent).sum::<u64>()
    };
    assert_eq!(sent(&pair.ledger), sent(&datagrams), "nothing is sent to it any more");

    let own = own.expect("set");
    let done = pair.engines[0].reconfigure(pair.now, vec![own], vec![], &mut pair.out[0]);
    assert_eq!(done.added, ["host1"]);
    pair.run_for(SECOND * 3);
    transfer(&mut pair, 0..100, 0, |_| {});
    assert_eq!(sequences(&pair.out[1].packets), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_peer_moves_to_the_endpoint_that_it_is_given() {
    let mut pair = Pair::with(|host, config| {
        config.peers[0].max_paths = (host == 0).then_some(4);
    });
    pair.run_for(SECOND);
    let elsewhere = SocketAddr::from(([198, 18, 7, 7], 6182));
    transfer(&mut pair, 0..300, 100, |pair| {
        reload(pair, 0, |own| vec![PeerConfig { endpoints: vec![elsewhere], ..own }]);
    });
    // The peer tells its address, so that paths there go on.
    assert_eq!(sequences(&pair.out[1].packets), (0..300).collect::<Vec<_>>());
    assert!(pair.ledger.contains_key(&(0, elsewhere)), "the new endpoint is tried");
    assert!(pair.states(0).contains(&PathState::Active));
}

#[test]
fn without_an_association_a_new_endpoint_is_tried_at_once() {
    let nowhere = SocketAddr::from(([198, 18, 9, 9], 6182));
    let mut pair = Pair::with(|host, config| {
        if host == 0 {
            config.peers[0].endpoints = vec![nowhere];
        }
    });
    pair.run_for(SECOND * 20);
    assert!(pair.states(0).is_empty());
    reload(&mut pair, 0, |own| vec![PeerConfig { endpoints: vec![address(1, 0)], ..own }]);
    pair.run_for(MS * 50);
    assert!(pair.states(0).contains(&PathState::Active));
}

#[test]
fn rules_change_for_the_next_packet() {
    let mut pair = Pair::with(|_, _| {});
    pair.run_for(SECOND);
    let rule = Rule { protocol: Some(6), priority: Some(Priority::Response), ..Rule::default() };
    let peers = vec![pair.engines[0].associations[0].config.clone()];
    let now = pair.now;
    let done =
        pair.engines[0].reconfigure(now, peers.clone(), vec![rule.clone()], &mut pair.out[0]);
    assert!(done.rules && done.changed.is_empty());
    assert_eq!(used(&mut pair).len(), 1, "the path with the lowest delay");
    let done = pair.engines[0].reconfigure(pair.now, peers, vec![rule], &mut pair.out[0]);
    assert!(done.is_nothing());
}

/// [P-18]
#[test]
fn a_path_that_is_set_on_standby_carries_data_only_while_no_other_path_works() {
    let mut pair = Pair::with(|_, config| {
        config.peers[0].scheduler = SchedulerKind::RoundRobin;
        // Both know each other's addresses, so the paths are 0-0, 0-1, 1-0 and 1-1.
    });
    pair.run_for(SECOND * 2);
    pair.tap = Some(Vec::new());
    let used = |pair: &mut Pair, host: usize| -> BTreeSet<u16> {
        pair.tapped();
        for number in 0..100 {
            pair.send(host, &tcp(host, number, 1_000), Offload::default());
            pair.run_for(MS * 2);
        }
        pair.run_for(MS * 100);
        let sent = pair.tapped();
        let sent = sent.iter().filter(|d| d.host == host && d.carries());
        // The interface of host 0 that the path uses.
        sent.filter_map(|d| match host {
            0 => Some(d.to.local.0),
            _ => (0..2).find(|link| address(0, *link) == d.to.remote),
        })
        .collect()
    };
    let standby = |pair: &mut Pair, links: &[u16]| {
        let standby = links.iter().map(|link| local(0, *link).interface).collect();
        let properties = InterfaceProperties { standby, ..InterfaceProperties::default() };
        let now = pair.now;
        pair.engines[0].handle_command(now, Command::Interfaces(properties));
        pair.run_for(MS * 100);
    };
    assert_eq!(used(&mut pair, 0), BTreeSet::from([0, 1]));
    standby(&mut pair, &[1]);
    for host in 0..2 {
        assert_eq!(used(&mut pair, host), BTreeSet::from([0]), "host {host}: also the peer's");
    }
    pair.dead = vec![0];
    pair.run_for(SECOND * 2);
    // Paths between link 1 of host 0 and link 1 of host 1 remain.
    for host in 0..2 {
        assert_eq!(used(&mut pair, host), BTreeSet::from([1]), "host {host}: nothing else works");
    }
    pair.dead.clear();
    pair.run_for(SECOND * 5);
    for host in 0..2 {
        assert_eq!(used(&mut pair, host), BTreeSet::from([0]), "host {host}: it works again");
    }
    standby(&mut pair, &[]);
    for host in 0..2 {
        assert_eq!(used(&mut pair, host), BTreeSet::from([0, 1]), "host {host}: in use again");
    }
    // If all are on standby, all are used.
    standby(&mut pair, &[0, 1]);
    assert_eq!(used(&mut pair, 0), BTreeSet::from([0, 1]));
}

#[test]
fn places_of_removed_peers_are_used_again() {
    let mut pair = Pair::with(|_, _| {});
    pair.run_for(SECOND);
    for round in 0..20 {
        reload(&mut pair, 0, |own| {
            let others = (0..50).map(|number| other_peer(number + round, &own));
            [own.clone()].into_iter().chain(others).collect()
        });
        pair.run_for(MS * 100);
    }
    let engine = &pair.engines[0];
    assert_eq!(engine.configured.len(), 51);
    assert!(engine.associations.len() <= 102, "{}", engine.associations.len());
    for (name, size, bound) in engine.kept() {
        assert!(size <= bound, "{name}: {size} of {bound}");
    }
}

fn host_mode() -> Pair {
    let mut pair = Pair::with(|_, config| {
        config.peers[0].host_mode = true;
        config.peers[0].policy = Policy::Prefer;
    });
    pair.run_for(SECOND * 2);
    pair
}

fn captures(pair: &mut Pair) -> Vec<Capture> {
    std::iter::from_fn(|| pair.engines[0].poll_capture()).collect()
}

#[test]
fn the_host_is_told_of_a_changed_policy_although_the_addresses_stay() {
    let mut pair = host_mode();
    let before = captures(&mut pair).pop().expect("captured");
    assert!(!before.fail_closed && !before.prefixes.is_empty());
    reload(&mut pair, 0, |own| vec![PeerConfig { policy: Policy::Require, ..own }]);
    pair.run_for(SECOND);
    let closed = captures(&mut pair).pop().expect("told");
    assert!(closed.fail_closed);
    assert!(before.prefixes.iter().all(|prefix| closed.prefixes.contains(prefix)));
    reload(&mut pair, 0, |own| vec![PeerConfig { policy: Policy::Off, ..own }]);
    pair.run_for(SECOND);
    let off = captures(&mut pair).pop().expect("told");
    assert!(!off.fail_closed && off.prefixes.is_empty(), "{off:?}");
    reload(&mut pair, 0, |own| vec![PeerConfig { policy: Policy::Prefer, ..own }]);
    pair.run_for(SECOND);
    assert_eq!(captures(&mut pair).pop(), Some(before));
}

#[test]
fn nothing_is_captured_for_a_peer_that_was_removed() {
    let mut pair = host_mode();
    let before = captures(&mut pair).pop().expect("captured");
    reload(&mut pair, 0, |_| vec![]);
    let after = captures(&mut pair).pop().expect("told at once");
    assert_eq!(after.peer, before.peer);
    assert!(after.prefixes.is_empty() && after.nats.is_empty());
    for prefix in before.prefixes {
        assert_eq!(pair.engines[0].shared.prefixes.find(prefix.address()), None);
    }
}

#[test]
fn an_address_that_is_not_exclusive_any_more_is_not_the_peers() {
    let mut pair = host_mode();
    captures(&mut pair);
    reload(&mut pair, 0, |own| vec![PeerConfig { exclusive: vec![], ..own }]);
    pair.run_for(SECOND);
    let after = captures(&mut pair).pop().expect("told");
    let inner: Prefix = "198.19.0.2".parse().expect("valid");
    assert_eq!(after.prefixes, [inner], "what the configuration gives it");
    assert_eq!(pair.engines[0].shared.prefixes.find(address(1, 0).ip()), None);
}

/// [H-2]
#[test]
fn a_recorded_initiation_of_a_peer_that_was_removed_and_added_again_is_refused() {
    let mut pair = Pair::with(|_, _| {});
    pair.tap = Some(Vec::new());
    pair.run_for(SECOND);
    let sent = pair.tapped();
    let recorded = sent.iter().find(|sent| sent.host == 0 && sent.bytes[0] == 1).expect("asked");
    let from = PathAddress { local: LocalId(0), remote: address(0, 0) };
    let own = pair.engines[1].associations[0].config.clone();
    pair.pass = |_, _, _| false;
    reload(&mut pair, 1, |_| vec![]);
    reload(&mut pair, 1, |_| vec![own.clone()]);
    reload(&mut pair, 1, |_| vec![PeerConfig { name: "renamed".to_owned(), ..own }]);
    let refused = pair.deliver(1, from, &recorded.bytes);
    assert_eq!((refused, pair.out[1].datagrams.len()), (Err(DropReason::Handshake), 0));
    pair.pass = |_, _, _| true;
    pair.run_for(SECOND * 10);
    assert_eq!(pair.states(1), [PathState::Active; 4], "the peer itself is answered");
}
