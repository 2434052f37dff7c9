//! The opener: exactly one node opens the paths, whatever happens to handshakes.

use mpip_wire::Frame;

use super::super::harness::{Pair, SECOND, Tapped, address, sequences, tcp};
use super::super::*;
use mpip_transport::PathState;
use mpip_types::Offload;

const RESPONSE: u8 = 2;

/// A pair in which both nodes have the other's address configured.
fn both_call() -> Pair {
    let mut pair = Pair::with(|host, config| {
        config.peers[0].endpoints = vec![address(1 - host, 0)];
    });
    pair.tap = Some(Vec::new());
    pair
}

fn openers(pair: &mut Pair) -> [bool; 2] {
    [0, 1].map(|host| pair.association(host).is_opener())
}

/// Once nothing is lost any more, asserts that both nodes soon use the same keys, one of them opens
/// paths, and packets arrive.
fn assert_agreed(pair: &mut Pair, case: &str) {
    pair.dead = vec![];
    pair.pass = |_, _, _| true;
    pair.run_for(SECOND * 40);
    let opens = openers(pair);
    assert_ne!(opens[0], opens[1], "{case}: one opener");
    let keys = [0, 1].map(|host| pair.association(host).indices().expect("keys"));
    assert_eq!(keys[0], (keys[1].1, keys[1].0), "{case}: the same keys");
    for host in 0..2 {
        let states = pair.states(host);
        assert_eq!(states, [PathState::Active; 4], "{case}: host {host}");
        pair.out[1 - host].packets.clear();
        pair.send(host, &tcp(host, 5, 100), Offload::default());
        pair.run_for(SECOND);
        assert_eq!(sequences(&pair.out[1 - host].packets), [5], "{case}: from host {host}");
    }
}

/// `host` loses the association without telling the other.
fn lose(pair: &mut Pair, host: usize) {
    let close = [Frame::Close { reason: 0, message: "" }];
    let now = pair.now;
    if let Some((to, bytes)) = pair.association(1 - host).forge(now, 0, &close) {
        let from = pair.source(1 - host, to);
        let _ = pair.deliver(host, from, &bytes);
        pair.collect(host);
    }
}

/// Restarts `host`.
fn restart(pair: &mut Pair, host: usize, run: u64) {
    let Pair { engines: [zero, one], .. } = both_call();
    let mut engine = if host == 0 { zero } else { one };
    engine.shared.instance = run;
    engine.shared.rng = Rng::new([run as u8; 32]);
    engine.shared.unix_origin += SECOND * 10 * run as u32;
    pair.engines[host] = engine;
}

/// [H-16]
#[test]
fn a_node_that_lost_the_association_starts_a_new_one_at_both_ends() {
    for host in 0..2 {
        let mut pair = both_call();
        pair.run_for(SECOND * 3);
        pair.send(host, &tcp(host, 0, 100), Offload::default());
        pair.run_for(SECOND);
        lose(&mut pair, host);
        assert!(pair.states(host).is_empty());
        assert_ne!(pair.states(1 - host), []);
        // The other node answers, and sees that its peer does not have its paths.
        assert_agreed(&mut pair, "lost");
        assert!(pair.association(host).is_opener(), "it has called");
    }
}

/// [H-16]
#[test]
fn a_renewal_by_either_end_keeps_the_opener_and_its_paths() {
    let mut pair = both_call();
    pair.run_for(SECOND * 3);
    let before = openers(&mut pair);
    for host in [0, 1, 1, 0] {
        let keys = pair.association(0).indices();
        pair.association(host).wear_out_keys();
        pair.run_for(SECOND * 3);
        assert_ne!(pair.association(0).indices(), keys);
        assert_eq!(openers(&mut pair), before);
        assert_eq!(pair.states(1 - host), [PathState::Active; 4]);
    }
    let restarted =
        |event: Event| matches!(event, Event::Lost { .. } | Event::PeerRestarted { .. });
    for engine in &mut pair.engines {
        assert!(!core::iter::from_fn(|| engine.poll_event()).any(restarted));
    }
}

/// [H-16]
#[test]
fn a_delayed_response_makes_no_second_opener() {
    // Host 0 accepts the response of host 1, but its next datagrams are lost, so host 1 initiates
    // itself.
    let mut pair = both_call();
    pair.pass = |host, _, bytes| host == 1 || bytes[0] < 0x80;
    pair.run_for(SECOND * 8);
    assert_agreed(&mut pair, "one way");
    // The same with the hosts exchanged.
    let mut pair = both_call();
    pair.pass = |host, _, bytes| host == 0 || bytes[0] < 0x80;
    pair.run_for(SECOND * 8);
    assert_agreed(&mut pair, "the other way");
}

/// The datagrams lost in a phase, selected by their bytes, which are as good as random.
fn losses(kind: u64) -> fn(usize, PathAddress, &[u8]) -> bool {
    match kind {
        1 => |_, _, bytes| bytes[0] >= 0x80 || bytes[20] > 100,
        2 => |_, _, bytes| bytes[bytes.len() - 20] > 128,
        3 => |host, _, bytes| host == 0 || bytes[0] >= 0x80,
        4 => |host, _, bytes| host == 1 || bytes[0] >= 0x80,
        5 => |_, _, bytes| bytes[0] != RESPONSE || bytes[20] > 128,
        6 => |_, _, bytes| bytes[0] < 0x80,
        7 => |host, _, bytes| bytes[0] < 0x80 || host == usize::from(bytes[12] > 128),
        _ => |_, _, _| true,
    }
}

/// [H-16]
#[test]
fn after_any_loss_delay_replay_and_restart_there_is_one_opener() {
    for seed in 0..40_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        };
        let mut pair = both_call();
        pair.work = Duration::from_millis([0, 3, 700][seed as usize % 3]);
        let mut recorded: Vec<Tapped> = Vec::new();
        for run in 1..20 {
            pair.pass = losses(draw(8));
            pair.run_for(Duration::from_millis(draw(4_000)));
            recorded.extend(pair.tapped().into_iter().filter(|d| d.bytes[0] < 0x80));
            match draw(8) {
                0 | 1 => lose(&mut pair, draw(2) as usize),
                2 => restart(&mut pair, draw(2) as usize, run),
                3 if !recorded.is_empty() => {
                    // Delayed or duplicated.
                    for _ in 0..5 {
                        let late = recorded[draw(recorded.len() as u64) as usize].clone();
                        let from = pair.source(late.host, late.to);
                        let _ = pair.deliver(1 - late.host, from, &late.bytes);
                        pair.collect(1 - late.host);
                    }
                }
                4 if pair.association(0).epochs() > 0
                    && pair.association(0).indices().is_some() =>
                {
                    pair.association(0).wear_out_keys();
                }
                5 if pair.association(1).epochs() > 0
                    && pair.association(1).indices().is_some() =>
                {
                    pair.association(1).wear_out_keys();
                }
                _ => {}
            }
        }
        assert_agreed(&mut pair, &format!("seed {seed}"));
    }
}
