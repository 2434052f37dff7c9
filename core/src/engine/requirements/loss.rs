//! `loss_policy = "threshold"`: a path whose loss reaches a threshold is on standby, at both ends.

use super::super::harness::*;
use super::super::*;
use crate::config::{InterfaceProperties, LossPolicy, PeerConfig, SchedulerKind};
use crate::event::Event;
use crate::status::PathStatus;
use mpip_transport::PathState;
use mpip_types::Offload;

/// Host 0 has a threshold of 1 % for its link 1, over which two paths lead; `metered`: data there
/// are paid for by amount.
fn with_threshold(metered: bool) -> Pair {
    let mut pair = Pair::with(|_, config| {
        config.peers[0].scheduler = SchedulerKind::RoundRobin;
        config.peers[0].loss_policy = LossPolicy::Threshold;
    });
    set_thresholds(&mut pair, &[(1, 10_000)], metered);
    pair.run_for(SECOND * 2);
    pair
}

fn set_thresholds(pair: &mut Pair, thresholds: &[(u16, u32)], metered: bool) {
    let name = |link: u16| local(0, link).interface;
    let properties = InterfaceProperties {
        loss_thresholds: thresholds.iter().map(|(link, share)| (name(*link), *share)).collect(),
        metered: metered.then(|| name(1)).into_iter().collect(),
        ..InterfaceProperties::default()
    };
    let now = pair.now;
    pair.engines[0].handle_command(now, Command::Interfaces(properties));
}

/// A tenth of what host 0 sends from link 1 is lost: which, the last byte of the tag decides.
fn lossy(host: usize, to: PathAddress, bytes: &[u8]) -> bool {
    host != 0 || to.local.0 != 1 || bytes.last().is_some_and(|byte| *byte >= 26)
}

/// Both hosts send for `seconds`, 500 packets/s.
fn talk(pair: &mut Pair, seconds: u32) {
    for number in 0..seconds * 500 {
        for host in 0..2 {
            pair.send(host, &tcp(host, number, 1_000), Offload::default());
        }
        pair.run_for(SECOND / 500);
    }
}

/// The paths over link 1 of host 0, as `host` sees them.
fn paths(pair: &Pair, host: usize) -> Vec<PathStatus> {
    let paths = pair.engines[host].status(pair.now, false).peers.remove(0).paths;
    let ours = |path: &PathStatus| [path.local, path.remote].contains(&address(0, 1));
    paths.into_iter().filter(ours).collect()
}

fn states(pair: &Pair, host: usize) -> Vec<PathState> {
    paths(pair, host).iter().map(|path| path.state).collect()
}

/// Events about paths on standby for their loss, of `host` since the last call.
fn changes(pair: &mut Pair, host: usize) -> Vec<Event> {
    let events = std::iter::from_fn(|| pair.engines[host].poll_event());
    events.filter(|event| matches!(event, Event::Path { loss: Some(_), .. })).collect()
}

#[test]
fn a_path_that_loses_is_on_standby_at_both_ends_until_it_is_good_again() {
    let mut pair = with_threshold(false);
    talk(&mut pair, 4);
    assert_eq!(changes(&mut pair, 0), [], "nothing is lost");
    pair.pass = lossy;
    talk(&mut pair, 4);
    for host in 0..2 {
        assert_eq!(states(&pair, host), [PathState::Standby; 2], "host {host}");
    }
    for path in paths(&pair, 0) {
        assert_eq!(path.reason, "its loss reaches its threshold");
        let figures = path.loss_figures.expect("it is why");
        assert!(figures.loss >= 0.01 && figures.threshold == 0.01, "{figures:?}");
    }
    for path in paths(&pair, 1) {
        assert_eq!((path.reason, path.loss_figures), ("the peer wants it on standby", None));
    }
    let events = changes(&mut pair, 0);
    assert_eq!(events.len(), 2, "{events:?}");
    let text = events[0].to_string();
    assert!(text.contains("active -> standby (its loss reaches its threshold: "), "{text}");
    assert!(text.ends_with(" % lost, threshold 1 %)"), "{text}");
    // Neither end sends packets there, and the loss still shows.
    let carried = |pair: &Pair| -> u64 {
        (0..2).flat_map(|host| paths(pair, host)).map(|path| path.carried).sum()
    };
    let before = carried(&pair);
    talk(&mut pair, 20);
    assert_eq!(carried(&pair), before);
    for path in paths(&pair, 0) {
        let figures = path.loss_figures.expect("it is why");
        assert!(figures.recent > 0.05 && figures.recent < 0.2, "{figures:?}");
    }
    assert_eq!(changes(&mut pair, 0), []);
    pair.pass = |_, _, _| true;
    talk(&mut pair, 3);
    for host in 0..2 {
        assert_eq!(states(&pair, host), [PathState::Active; 2], "host {host}");
    }
    let events = changes(&mut pair, 0);
    assert_eq!(events.len(), 2, "{events:?}");
    let text = events[0].to_string();
    let expected = "standby -> active (its loss is below its threshold again: 0 % lost, \
                    threshold 1 %)";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn a_lossy_path_is_used_while_nothing_else_works() {
    let mut pair = with_threshold(false);
    pair.pass = lossy;
    talk(&mut pair, 4);
    assert_eq!(states(&pair, 0), [PathState::Standby; 2]);
    pair.out[1].packets.clear();
    // Link 0 of host 0 is dead, and from link 1 everything is as before.
    pair.pass = |host, to, bytes| match host {
        0 => to.local.0 != 0 && lossy(host, to, bytes),
        _ => to.remote != address(0, 0),
    };
    talk(&mut pair, 3);
    // One of them may have lost nothing for a while, and then is the good one.
    for host in 0..2 {
        assert!(states(&pair, host).contains(&PathState::Active), "host {host}");
    }
    assert!(pair.out[1].packets.len() > 1_000, "{}", pair.out[1].packets.len());
    pair.pass = lossy;
    talk(&mut pair, 8);
    assert_eq!(states(&pair, 0), [PathState::Standby; 2]);
}

#[test]
fn the_last_path_stays_whatever_it_loses() {
    let mut pair = with_threshold(false);
    set_thresholds(&mut pair, &[(0, 10_000), (1, 10_000)], false);
    pair.pass = |host, _, bytes| host != 0 || bytes.last().is_some_and(|byte| *byte >= 26);
    talk(&mut pair, 10);
    let all = pair.states(0);
    let active = all.iter().filter(|state| **state == PathState::Active).count();
    assert_eq!((all.len(), active), (4, 1), "{all:?}");
}

#[test]
fn probes_are_few_and_none_where_data_are_paid_for() {
    for (metered, most) in [(false, 90), (true, 10)] {
        let mut pair = with_threshold(metered);
        pair.pass = lossy;
        talk(&mut pair, 4);
        assert_eq!(states(&pair, 0), [PathState::Standby; 2]);
        let sent = |pair: &Pair| -> u64 { paths(pair, 0).iter().map(|it| it.packets_sent).sum() };
        let before = sent(&pair);
        talk(&mut pair, 1);
        let (number, paths) = (sent(&pair) - before, 2);
        assert!(number <= most * paths / 2 + 10, "metered: {metered}: {number} in a second");
        // At rest there are keepalives only.
        pair.run_for(SECOND * 30);
        let before = sent(&pair);
        pair.run_for(SECOND * 60);
        assert!(sent(&pair) - before <= 20, "{}", sent(&pair) - before);
    }
}

#[test]
fn another_policy_or_threshold_takes_effect_at_once() {
    let mut pair = with_threshold(false);
    pair.pass = lossy;
    talk(&mut pair, 4);
    set_thresholds(&mut pair, &[(1, 500_000)], false);
    talk(&mut pair, 4);
    assert_eq!(states(&pair, 0), [PathState::Active; 2], "10 % is below the threshold");
    set_thresholds(&mut pair, &[(1, 10_000)], false);
    talk(&mut pair, 4);
    assert_eq!(states(&pair, 0), [PathState::Standby; 2]);
    set_thresholds(&mut pair, &[], false);
    talk(&mut pair, 1);
    assert_eq!(states(&pair, 0), [PathState::Active; 2], "there is no threshold");
    let why = |pair: &Pair| paths(pair, 0)[0].reason;
    assert_ne!(why(&pair), "its loss reaches its threshold");
    set_thresholds(&mut pair, &[(1, 10_000)], false);
    talk(&mut pair, 4);
    assert_eq!(states(&pair, 0), [PathState::Standby; 2]);
    let peer = pair.engines[0].associations[0].config.clone();
    let changed = PeerConfig { loss_policy: LossPolicy::Off, ..peer };
    let Pair { engines, out, now, .. } = &mut pair;
    engines[0].reconfigure(*now, vec![changed], vec![], &mut out[0]);
    talk(&mut pair, 4);
    for host in 0..2 {
        assert_eq!(states(&pair, host), [PathState::Active; 2], "host {host}: no policy");
    }
}
