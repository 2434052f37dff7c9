//! Datagrams that were opened before the engine got them are handled as if the engine had opened
//! them: the same packets, refusals and state.

use super::super::harness::{Packets, Pair, SECOND, locals, tcp};
use super::super::*;
use crate::config::SchedulerKind;
use mpip_transport::PathState;
use mpip_types::Offload;
use mpip_wire::{Frame, PacketFrameHeader, SessionId};

/// What came of a run: packets of both hosts, refusals, and the whole state.
fn outcome(pair: &Pair) -> (Vec<Vec<u8>>, Vec<Vec<u8>>, String) {
    let status = pair.engines.iter().map(|engine| format!("{:#?}", engine.status(pair.now, true)));
    let [first, second] = [0, 1].map(|host: usize| pair.out[host].packets.clone());
    (first, second, status.collect())
}

/// Sends `count` packets each way, one in a millisecond.
fn transfer(pair: &mut Pair, count: u32) {
    for number in 0..count {
        for host in 0..2 {
            pair.send(host, &tcp(host, number, 1_000), Offload::default());
        }
        pair.run_for(Duration::from_millis(1));
    }
    pair.run_for(SECOND);
}

fn same_either_way(run: impl Fn(&mut Pair)) {
    let outcomes = [false, true].map(|ahead| {
        let mut pair = Pair::new(|peer| peer.scheduler = SchedulerKind::RoundRobin);
        if ahead {
            pair.share_keys();
        }
        run(&mut pair);
        outcome(&pair)
    });
    let [engine, ahead] = outcomes;
    assert!(!engine.1.is_empty(), "packets arrive");
    assert_eq!(engine.0, ahead.0);
    assert_eq!(engine.1, ahead.1);
    assert_eq!(engine.2, ahead.2);
}

#[test]
fn with_losses_on_paths_of_different_delay() {
    same_either_way(|pair| {
        pair.run_for(SECOND);
        pair.lose = Some(7);
        transfer(pair, 500);
    });
}

#[test]
fn while_keys_are_renewed() {
    same_either_way(|pair| {
        pair.run_for(SECOND);
        for _ in 0..200 {
            transfer(pair, 3);
        }
    });
}

#[test]
fn while_paths_come_and_go() {
    same_either_way(|pair| {
        pair.run_for(SECOND);
        for round in 0..12 {
            let list = locals(0).into_iter().skip(round % 2).collect();
            pair.engines[0].handle_command(pair.now, Command::LocalAddresses(list));
            transfer(pair, 300);
        }
    });
}

#[test]
fn after_a_restart_of_the_peer() {
    for restarted in 0..2 {
        same_either_way(|pair| {
            pair.run_for(SECOND);
            transfer(pair, 600);
            let Pair { engines: [zero, one], .. } = Pair::new(|_| {});
            pair.engines[restarted] = [zero, one].into_iter().nth(restarted).expect("two");
            pair.engines[restarted].shared.instance = 77;
            pair.engines[restarted].shared.unix_origin += SECOND * 10;
            if let Some(keys) = &mut pair.ahead {
                keys[restarted].clear();
                pair.engines[restarted].share_keys();
            }
            // The other host calls again when nobody answers.
            pair.engines[1 - restarted].handle_command(pair.now, Command::RoutesChanged);
            pair.run_for(SECOND * 200);
            if pair.states(0).contains(&PathState::Active) {
                transfer(pair, 300);
            }
        });
    }
}

/// An authentic datagram to host 1 that has not arrived, and where it comes from.
fn captured(pair: &mut Pair) -> (PathAddress, Vec<u8>) {
    pair.tap = Some(Vec::new());
    pair.pass = |_, _, _| false;
    pair.send(0, &tcp(0, 1, 1_000), Offload::default());
    pair.pass = |_, _, _| true;
    let sent = pair.tapped().pop().expect("a datagram");
    (pair.source(0, sent.to), sent.bytes)
}

/// A message from host 0 on path 0 with a byte of its number, or more.
fn numbered(pair: &mut Pair, number: u64, len: usize) -> Vec<u8> {
    let header = PacketFrameHeader { session: SessionId(9), sequence: 0, ordered: false };
    let frame = Frame::Packet { header, packet: &tcp(0, 9, 100) };
    let (_, plain) = pair.association(0).seal(0, number, &[frame]).expect("keys");
    pair.association(0).seal_numbered(0, (number, len), &plain).expect("keys")
}

/// Opens `bytes` for host 1 and gives them to it.
fn deliver(pair: &mut Pair, from: PathAddress, bytes: &[u8]) -> (Opened, Result<(), DropReason>) {
    let mut bytes = bytes.to_vec();
    let opened = pair.open_ahead(1, &mut bytes);
    let mut packets = Vec::new();
    let mut packets = Packets(&mut packets);
    let (now, datagram) = (pair.now, (&mut bytes[..], opened));
    let handled = pair.engines[1].handle_opened(now, from, Ecn::NotEct, datagram, &mut packets);
    (opened, handled.map(drop))
}

#[test]
fn forged_and_repeated_datagrams_are_refused_for_the_same_reason() {
    for ahead in [false, true] {
        let mut pair = Pair::new(|_| {});
        if ahead {
            pair.share_keys();
        }
        pair.run_for(SECOND);
        let (from, genuine) = captured(&mut pair);
        let mut forged = genuine.clone();
        *forged.last_mut().expect("bytes") ^= 1;
        let mut unknown = genuine.clone();
        unknown[1] ^= 1;
        let as_opened = |opened| if ahead { opened } else { Opened::NotYet };
        let (opened, handled) = deliver(&mut pair, from, &forged);
        assert_eq!((opened, handled), (as_opened(Opened::Forged), Err(DropReason::Authentication)));
        let (opened, handled) = deliver(&mut pair, from, &unknown);
        assert_eq!((opened, handled), (Opened::NotYet, Err(DropReason::UnknownIndex)));
        let (opened, handled) = deliver(&mut pair, from, &genuine);
        assert_eq!(handled, Ok(()));
        assert_eq!(matches!(opened, Opened::Authentic { .. }), ahead);
        // Its number was received.
        for again in [&genuine, &forged] {
            assert_eq!(deliver(&mut pair, from, again).1, Err(DropReason::Replay));
        }
        let reasons = [DropReason::Authentication, DropReason::UnknownIndex, DropReason::Replay];
        assert_eq!(reasons.map(|reason| pair.drops(1, reason)), [1, 1, 2]);
    }
}

/// [W-13]
#[test]
fn numbers_are_restored_from_what_feedback_has_told() {
    for by_timeout in [false, true] {
        let mut pair = Pair::new(|_| {});
        pair.share_keys();
        pair.run_for(SECOND);
        let (from, _) = captured(&mut pair);
        for (number, len) in [(1_000, 4), (1_100, 1), (1_200, 1), (1_150, 1), (33_900, 2)] {
            let bytes = numbered(&mut pair, number, len);
            let (opened, handled) = deliver(&mut pair, from, &bytes);
            assert!(matches!(opened, Opened::Authentic { number: it, .. } if it == number));
            assert_eq!(handled, Ok(()));
            let Pair { engines: [_, engine], out: [_, out], now, .. } = &mut pair;
            if by_timeout {
                *now = engine.poll_timeout().expect("an association");
                engine.handle_timeout(*now, out, &mut Packets(&mut Vec::new()));
            } else {
                engine.flush(*now, out);
            }
        }
    }
}

#[test]
fn a_new_association_has_no_numbers_of_the_former_one() {
    let mut pair = Pair::new(|_| {});
    pair.share_keys();
    pair.run_for(SECOND);
    let (from, _) = captured(&mut pair);
    let bytes = numbered(&mut pair, 1_000, 4);
    assert_eq!(deliver(&mut pair, from, &bytes).1, Ok(()));
    // Host 0 restarts, and of what it sends only its handshake arrives.
    let Pair { engines: [restarted, _], .. } = Pair::new(|_| {});
    pair.engines[0] = restarted;
    pair.engines[0].shared.instance = 77;
    pair.engines[0].shared.unix_origin += SECOND * 10;
    pair.pass = |_, _, bytes| MessageType::of(bytes) != Ok(MessageType::Transport);
    pair.run_for(SECOND * 2);
    assert_eq!(pair.association(1).epochs(), 2);
    let bytes = numbered(&mut pair, 90, 1);
    let (opened, handled) = deliver(&mut pair, from, &bytes);
    assert!(matches!(opened, Opened::Authentic { number: 90, .. }), "{opened:?}");
    assert_eq!(handled, Ok(()));
}

#[test]
fn what_another_key_opened_is_refused() {
    let mut pair = Pair::new(|_| {});
    pair.share_keys();
    pair.run_for(SECOND);
    let (from, mut datagram) = captured(&mut pair);
    let Opened::Authentic { number, key } = pair.open_ahead(1, &mut datagram) else {
        panic!("the key is there");
    };
    let mut packets = Vec::new();
    let mut packets = Packets(&mut packets);
    for (key, expected) in [(key + 1, Err(DropReason::UnknownIndex)), (key, Ok(()))] {
        let datagram = (&mut datagram[..], Opened::Authentic { number, key });
        let now = pair.now;
        let handled = pair.engines[1].handle_opened(now, from, Ecn::NotEct, datagram, &mut packets);
        assert_eq!(handled.map(drop), expected);
    }
}

#[test]
fn a_key_is_taken_back_when_the_engine_erases_it() {
    let mut pair = Pair::new(|_| {});
    pair.share_keys();
    pair.run_for(SECOND);
    let (_, mut datagram) = captured(&mut pair);
    assert!(matches!(pair.open_ahead(1, &mut datagram), Opened::Authentic { .. }));
    let keys = |pair: &Pair| pair.ahead.as_ref().expect("shared")[1].clone();
    let shared = keys(&pair);
    assert!(!shared.is_empty());
    // Nothing is sent any more, so the keys expire.
    pair.dead = vec![0, 1];
    pair.run_for(SECOND * 400);
    assert!(keys(&pair).is_empty(), "{:?}", keys(&pair));
    // Who opens still is the last who has one.
    assert!(shared.values().all(|key| Arc::strong_count(key) == 1));
}

#[test]
fn keys_are_told_only_to_who_asked() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    assert!(pair.engines.iter_mut().all(|engine| engine.poll_key().is_none()));
}
