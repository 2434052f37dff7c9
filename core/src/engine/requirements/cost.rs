//! What paths cost: both ends know it, and what need not go by a dear one does not.

use mpip_wire::{Frame, PathId, PathStatus};

use super::super::harness::*;
use super::super::*;
use crate::config::{PathPreference, Priority, Rule, RulePaths, SchedulerKind};
use crate::parts::selection::Hold;
use mpip_transport::PathState;
use mpip_types::Offload;

/// `host` pays these costs for paths from its links.
fn set_costs(pair: &mut Pair, host: usize, costs: &[(u16, u8)]) {
    let costs = costs.iter().map(|(link, cost)| (local(host, *link).interface, *cost)).collect();
    let properties = InterfaceProperties { costs, ..InterfaceProperties::default() };
    let now = pair.now;
    pair.engines[host].handle_command(now, Command::Interfaces(properties));
    pair.run_for(SECOND / 10);
}

/// The cost of each path as `host` sees it, by the links of host 0 and host 1.
fn costs(pair: &Pair, host: usize) -> BTreeMap<(u16, u16), u8> {
    let status = pair.engines[host].status(pair.now, false);
    let link = |host, end| (0..2).find(|link| address(host, *link) == end);
    let known = status.peers[0].paths.iter().filter(|path| path.state == PathState::Active);
    let pairs = known.filter_map(|path| {
        let ends = [path.local, path.remote];
        Some(((link(0, ends[host])?, link(1, ends[1 - host])?), path.cost))
    });
    pairs.collect()
}

/// [P-34]
#[test]
fn what_a_path_costs_is_told_and_the_larger_cost_holds() {
    let mut pair = Pair::with(|_, _| {});
    pair.run_for(SECOND * 2);
    set_costs(&mut pair, 0, &[(1, 2)]);
    let expected = |costs: [u8; 4]| -> BTreeMap<(u16, u16), u8> {
        [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().zip(costs).collect()
    };
    for host in 0..2 {
        assert_eq!(costs(&pair, host), expected([0, 0, 2, 2]), "host {host}");
    }
    set_costs(&mut pair, 1, &[(0, 1), (1, 15)]);
    for host in 0..2 {
        assert_eq!(costs(&pair, host), expected([1, 15, 2, 15]), "host {host}");
    }
    // Those that are opened later have it from the start, and tell it.
    pair.dead = vec![0, 1];
    pair.run_for(SECOND * 200);
    pair.dead.clear();
    pair.run_for(SECOND * 20);
    for host in 0..2 {
        assert_eq!(costs(&pair, host), expected([1, 15, 2, 15]), "host {host}");
    }
    set_costs(&mut pair, 0, &[]);
    set_costs(&mut pair, 1, &[]);
    for host in 0..2 {
        assert_eq!(costs(&pair, host), expected([0; 4]), "host {host}");
    }
}

/// [P-34]
#[test]
fn a_cost_that_is_lost_is_told_again() {
    let mut pair = Pair::with(|_, _| {});
    pair.run_for(SECOND * 2);
    pair.dead = vec![0, 1];
    let (host, link, cost) = (0, 1, 7);
    let costs_of_link =
        |pair: &Pair| costs(pair, 1).into_iter().filter(|((link, _), _)| *link == 1).collect();
    set_costs(&mut pair, host, &[(link, cost)]);
    let before: Vec<_> = costs_of_link(&pair);
    assert!(before.iter().all(|(_, cost)| *cost == 0), "nothing has arrived: {before:?}");
    pair.dead.clear();
    pair.run_for(SECOND * 3);
    let after: Vec<_> = costs_of_link(&pair);
    assert!(after.len() == 2 && after.iter().all(|(_, told)| *told == cost), "{after:?}");
}

/// [P-19] [P-34]
#[test]
fn an_older_cost_is_ignored() {
    let mut pair = Pair::with(|_, _| {});
    pair.run_for(SECOND);
    for (sequence, cost, holds) in [(5, 3, 3), (4, 1, 3), (5, 0, 3), (6, 0, 0), (2, 9, 0)] {
        let status = PathStatus::Available;
        pair.inject(
            1,
            0,
            &[Frame::PathStatus { path: PathId(2), sequence, status, cost, limit: None }],
        );
        pair.run_for(SECOND / 100);
        let paths = pair.engines[0].status(pair.now, false).peers.remove(0).paths;
        let path = paths.iter().find(|path| path.id == 2).expect("it is there");
        assert_eq!(path.cost, holds, "{sequence}: {cost}");
    }
}

/// [P-34]
#[test]
fn what_needs_a_fast_answer_stays_on_the_cheapest_path_that_works() {
    let rule = Rule { priority: Some(Priority::Response), ..Rule::default() };
    for rules in [vec![rule], Vec::new()] {
        let mut pair = Pair::with(|_, config| {
            config.peers[0].scheduler = SchedulerKind::RoundRobin;
            config.rules.clone_from(&rules);
        });
        pair.run_for(SECOND * 2);
        // The fastest one is dear, the slowest one costs nothing.
        set_costs(&mut pair, 0, &[(0, 1)]);
        set_costs(&mut pair, 1, &[(0, 1)]);
        pair.tap = Some(Vec::new());
        let used = |pair: &mut Pair| -> BTreeSet<(usize, u16)> {
            pair.tapped();
            for number in 0..200 {
                for host in 0..2 {
                    pair.send(host, &tcp(host, number, 100), Offload::default());
                }
                pair.run_for(SECOND / 500);
            }
            let sent = pair.tapped();
            sent.iter().filter(|d| d.carries()).map(|d| (d.host, d.to.local.0)).collect()
        };
        assert_eq!(used(&mut pair), BTreeSet::from([(0, 1), (1, 1)]));
        pair.dead = vec![1];
        pair.run_for(SECOND * 2);
        assert_eq!(used(&mut pair), BTreeSet::from([(0, 0), (1, 0)]), "nothing else works");
    }
}

/// [P-34]
#[test]
fn nothing_waits_for_the_full_socket_of_a_cheap_path() {
    let rule = Rule { priority: Some(Priority::Response), ..Rule::default() };
    for rules in [vec![rule], Vec::new()] {
        let mut pair = Pair::with(|_, config| config.rules.clone_from(&rules));
        pair.run_for(SECOND * 2);
        set_costs(&mut pair, 0, &[(0, 1)]);
        pair.out[0].full_link = Some(1);
        pair.out[1].packets.clear();
        for number in 0..100 {
            pair.send(0, &tcp(0, number, 100), Offload::default());
            pair.run_for(SECOND / 100);
        }
        pair.run_for(SECOND / 2);
        assert_eq!(sequences(&pair.out[1].packets), (0..100).collect::<Vec<_>>());
        // Once it takes something again, it is used again.
        pair.out[0].full_link = None;
        let now = pair.now;
        pair.engines[0].handle_writable(now, LocalId(1), &mut pair.out[0]);
        pair.run_for(SECOND * 2);
        pair.tap = Some(Vec::new());
        for number in 100..150 {
            pair.send(0, &tcp(0, number, 100), Offload::default());
            pair.run_for(SECOND / 100);
        }
        let used: BTreeSet<u16> =
            pair.tapped().iter().filter(|d| d.carries()).map(|d| d.to.local.0).collect();
        assert_eq!(used, BTreeSet::from([1]));
    }
}

/// [P-18] [P-34]
#[test]
fn with_a_limit_of_paths_the_cheapest_are_kept_and_of_these_the_fastest() {
    let mut pair = Pair::with(|host, config| {
        config.peers[0].max_paths = (host == 0).then_some(1);
    });
    pair.run_for(SECOND * 2);
    for (host_costs, kept) in [(&[][..], (0, 0)), (&[(0, 1)], (1, 0)), (&[(0, 1), (1, 2)], (0, 0))]
    {
        set_costs(&mut pair, 0, host_costs);
        pair.run_for(SECOND);
        for host in 0..2 {
            let active: Vec<(u16, u16)> = costs(&pair, host).into_keys().collect();
            assert_eq!(active, [kept], "host {host}, {host_costs:?}");
        }
    }
}

#[test]
fn a_dear_path_that_is_open_to_transfers_is_still_kept_from_what_needs_a_fast_answer() {
    let response = Rule { priority: Some(Priority::Response), ..Rule::default() };
    let paths = |preference| {
        let interfaces = vec![local(0, 1).interface];
        Some(RulePaths { preference, interfaces })
    };
    let only = Rule { paths: paths(PathPreference::Only), ..response.clone() };
    let avoid = Rule { paths: paths(PathPreference::Avoid), ..response.clone() };
    let mut pair = Pair::with(|_, config| {
        // They match nothing here: they are asked about.
        let unmatched = |rule: &Rule| Rule { dscp: Some(63), ..rule.clone() };
        config.rules = [&response, &only, &avoid].map(unmatched).to_vec();
    });
    pair.run_for(SECOND);
    set_costs(&mut pair, 0, &[(1, 5)]);
    let to = "198.19.0.2".parse().expect("valid");
    let is_dear = |pair: &mut Pair, rule: Option<usize>, link: u16| {
        let way = pair.engines[0].way(pair.now, to, rule, 100).expect("a peer");
        let mut on_link =
            way.paths.iter().filter(|path| path.interface == local(0, link).interface);
        on_link.all(|path| path.hold == Some(Hold::Dear))
    };
    assert!(is_dear(&mut pair, None, 1));
    // The cheap paths take nothing, so that transfers spill to the dear ones.
    pair.out[0].full_link = Some(0);
    for number in 0..100 {
        pair.send(0, &udp(number, 1_300), Offload::default());
        pair.run_for(Duration::from_millis(1));
    }
    pair.out[0].full_link = None;
    pair.run_for(Duration::from_millis(1));
    assert!(!is_dear(&mut pair, None, 1));
    for (rule, dear) in [(0, true), (1, false), (2, true)] {
        assert_eq!(is_dear(&mut pair, Some(rule), 1), dear, "rule {rule}");
        assert!(!is_dear(&mut pair, Some(rule), 0), "rule {rule}");
    }
}
