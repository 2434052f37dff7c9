//! Upper rates of paths: the end that is told one keeps to it, and to its own if that is lower.

use mpip_wire::{Frame, PathId, PathStatus, RateLimit};

use super::super::harness::*;
use super::super::*;
use crate::config::{PathPreference, Priority, Rule, RulePaths};
use crate::parts::selection::Hold;
use crate::status::PathStatus as Shown;
use mpip_transport::PathState;
use mpip_types::Offload;

fn limit(kbps: u32) -> RateLimit {
    RateLimit::new(kbps).expect("in range")
}

/// `host` has these upper rates for paths from its link 1, in kbit/s.
fn set_limits(pair: &mut Pair, host: usize, up: Option<u32>, down: Option<u32>) {
    let of = |kbps: Option<u32>| {
        kbps.map(|kbps| (local(host, 1).interface, limit(kbps))).into_iter().collect()
    };
    let properties = InterfaceProperties {
        rates_up: of(up),
        rates_down: of(down),
        ..InterfaceProperties::default()
    };
    let now = pair.now;
    pair.engines[host].handle_command(now, Command::Interfaces(properties));
    pair.run_for(SECOND / 10);
}

/// The active paths of `host` over its link `link`.
fn paths(pair: &Pair, host: usize, link: u16) -> Vec<Shown> {
    let mut paths = pair.engines[host].status(pair.now, false).peers.remove(0).paths;
    paths.retain(|path| path.state == PathState::Active && path.local == address(host, link));
    paths
}

/// The upper rate of what `host` sends on each path from its link 1, and on its others, kbit/s.
fn limits(pair: &Pair, host: usize) -> [Vec<Option<u32>>; 2] {
    let of = |link| {
        let paths = paths(pair, host, link).into_iter();
        paths.map(|path| path.rate_limit.map(RateLimit::kbps)).collect()
    };
    [of(1), of(0)]
}

/// [P-35]
#[test]
fn the_lower_one_of_both_ends_rates_holds() {
    let mut pair = Pair::with(|_, _| {});
    pair.run_for(SECOND * 2);
    set_limits(&mut pair, 0, Some(3_000), Some(2_000));
    assert_eq!(limits(&pair, 0), [vec![Some(3_000); 2], vec![None; 2]]);
    // Host 1 has one path from each of its links to link 1 of host 0.
    assert_eq!(limits(&pair, 1), [vec![None, Some(2_000)], vec![None, Some(2_000)]]);
    for (down, holds) in [(Some(1_000), 1_000), (Some(9_000), 3_000), (None, 3_000)] {
        set_limits(&mut pair, 1, None, down);
        let mut found = limits(&pair, 0)[0].clone();
        found.sort_unstable();
        assert_eq!(found, [Some(holds), Some(3_000)], "{down:?}");
        let told = paths(&pair, 0, 1).into_iter().filter_map(|path| path.rate_told).next();
        assert_eq!(told.map(RateLimit::kbps), down);
    }
    set_limits(&mut pair, 0, None, None);
    for host in 0..2 {
        assert_eq!(limits(&pair, host), [vec![None; 2], vec![None; 2]], "host {host}");
    }
}

/// [P-35]
#[test]
fn a_rate_that_is_lost_is_told_again_and_paths_that_open_later_tell_theirs() {
    let mut pair = Pair::with(|_, _| {});
    pair.run_for(SECOND * 2);
    pair.dead = vec![0, 1];
    set_limits(&mut pair, 0, None, Some(500));
    assert_eq!(limits(&pair, 1), [vec![None; 2], vec![None; 2]], "nothing has arrived");
    pair.dead.clear();
    pair.run_for(SECOND * 3);
    let expected = [vec![None, Some(500)], vec![None, Some(500)]];
    assert_eq!(limits(&pair, 1), expected);
    pair.dead = vec![0, 1];
    pair.run_for(SECOND * 200);
    pair.dead.clear();
    pair.run_for(SECOND * 20);
    let mut found = limits(&pair, 1);
    found.iter_mut().for_each(|list| list.sort_unstable());
    assert_eq!(found, expected);
}

/// [P-19] [P-35]
#[test]
fn an_older_rate_is_ignored() {
    let mut pair = Pair::with(|_, _| {});
    pair.run_for(SECOND);
    for (sequence, kbps, holds) in [
        (5, Some(800), Some(800)),
        (4, Some(100), Some(800)),
        (5, None, Some(800)),
        (6, None, None),
    ] {
        let (status, limit) = (PathStatus::Available, kbps.map(limit));
        pair.inject(
            1,
            0,
            &[Frame::PathStatus { path: PathId(2), sequence, status, cost: 0, limit }],
        );
        pair.run_for(SECOND / 100);
        let paths = pair.engines[0].status(pair.now, false).peers.remove(0).paths;
        let path = paths.iter().find(|path| path.id == 2).expect("it is there");
        assert_eq!(path.rate_told.map(RateLimit::kbps), holds, "{sequence}");
    }
}

/// Bytes, outer headers included, that `host` sends from its link 1 in `seconds`, when it has a
/// packet of `len` bytes every `every`, which leaves only there and with `priority`.
fn sent(priority: Priority, len: usize, every: Duration, seconds: u32) -> usize {
    let paths =
        RulePaths { preference: PathPreference::Only, interfaces: vec![local(0, 1).interface] };
    let rule = Rule { priority: Some(priority), paths: Some(paths), ..Rule::default() };
    let mut pair = Pair::with(|_, config| config.rules = vec![rule.clone()]);
    pair.run_for(SECOND * 2);
    set_limits(&mut pair, 0, Some(1_000), None);
    // One path leads from there.
    pair.dead = vec![0];
    pair.run_for(SECOND * 2);
    pair.tap = Some(Vec::new());
    let end = pair.now + SECOND * seconds;
    let mut number = 0;
    let mut bytes = 0;
    while pair.now < end {
        pair.send(0, &udp(number, len), Offload::default());
        number += 1;
        pair.run_for(every);
        let tapped = pair.tapped();
        let from = tapped.iter().filter(|sent| sent.host == 0 && sent.to.local.0 == 1);
        bytes += from.map(|sent| sent.bytes.len() + 28).sum::<usize>();
    }
    bytes
}

/// [P-35]
#[test]
fn neither_transfers_nor_packets_that_need_a_fast_answer_exceed_the_rate() {
    let every = Duration::from_millis(1);
    for (priority, len) in [
        (Priority::Throughput, 1_200),
        (Priority::Response, 1_200),
        (Priority::Response, 200),
        (Priority::Redundant, 600),
    ] {
        let bytes = sent(priority, len, every, 4);
        // Two paths lead from there, of which one has failed and is only probed.
        let permitted = 500_000 + 20_000;
        assert!(bytes <= permitted, "{priority:?} of {len}: {bytes} bytes in 4 s at 1 Mbit/s");
        assert!(bytes >= 440_000, "{priority:?} of {len}: {bytes} bytes in 4 s at 1 Mbit/s");
    }
}

#[test]
fn what_holds_a_full_packet_back_is_the_upper_rate() {
    let mut pair = Pair::with(|_, _| {});
    pair.run_for(SECOND * 2);
    set_limits(&mut pair, 0, Some(1_000), None);
    pair.dead = vec![0];
    pair.run_for(SECOND * 2);
    let holds = |pair: &Pair| paths(pair, 0, 1).iter().map(|path| path.hold).collect::<Vec<_>>();
    assert_eq!(holds(&pair), [None]);
    for number in 0..1_000 {
        pair.send(0, &udp(number, 1_200), Offload::default());
        pair.run_for(Duration::from_millis(1));
    }
    assert_eq!(holds(&pair), [Some(Hold::Limited)]);
}
