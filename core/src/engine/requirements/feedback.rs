//! Feedback.

use std::collections::BTreeMap;

use mpip_wire::{AckRange, Feedback, Frame, PathId, Ranges};

use super::super::harness::{Pair, SECOND, Tapped, address, tcp};
use super::super::*;
use crate::config::SchedulerKind;
use mpip_transport::cc::CongestionControlKind;
use mpip_types::Offload;

fn running() -> Pair {
    let mut pair = Pair::new(|peer| peer.scheduler = SchedulerKind::RoundRobin);
    pair.tap = Some(Vec::new());
    pair.run_for(SECOND);
    pair.tapped();
    pair
}

fn asks(datagram: &Tapped) -> bool {
    datagram.frames().any(|frame| frame.is_ack_eliciting())
}

/// The path and the ranges of the feedback in a datagram.
fn feedback(datagram: &Tapped) -> Option<(u16, Vec<AckRange>)> {
    datagram.frames().find_map(|frame| match frame {
        Frame::Feedback(feedback) => Some((feedback.path.0, feedback.ranges.iter().collect())),
        _ => None,
    })
}

/// [F-1] [F-7]
#[test]
fn only_ack_eliciting_datagrams_are_acknowledged_on_their_path() {
    let mut pair = running();
    for n in 0..100 {
        pair.send(0, &tcp(0, n, 500), Offload::default());
        pair.run_for(SECOND / 50);
    }
    let end = pair.now;
    pair.run_for(SECOND);
    let datagrams = pair.tapped();
    let mut asked: BTreeMap<(usize, u16), usize> = BTreeMap::new();
    let mut answers: BTreeMap<(usize, u16), usize> = BTreeMap::new();
    for datagram in &datagrams {
        let Some(opened) = &datagram.opened else { continue };
        if asks(datagram) {
            *asked.entry((datagram.host, opened.path)).or_default() += 1;
            let told = datagrams.iter().any(|other| {
                other.host != datagram.host
                    && other.at > datagram.at
                    && feedback(other).is_some_and(|(path, ranges)| {
                        let covers =
                            |r: &AckRange| r.first <= opened.number && opened.number <= r.last;
                        path == opened.path && ranges.iter().any(covers)
                    })
            });
            assert!(told || datagram.at > end, "{datagram:?}");
        }
        if let Some((path, _)) = feedback(datagram) {
            assert_eq!(path, opened.path);
            *answers.entry((1 - datagram.host, path)).or_default() += 1;
        }
    }
    assert_eq!(asked.len(), 8);
    for (lane, count) in answers {
        assert!(count <= asked[&lane], "{count} answers on {lane:?}");
    }
}

/// [F-1]
#[test]
fn feedback_and_padding_alone_are_not_acknowledged() {
    let mut pair = running();
    let room = [AckRange { first: 0, last: 0 }];
    let ranges = Ranges::new(&room).expect("one range");
    for _ in 0..20 {
        let told = Feedback { path: PathId(0), received_at: 0, delay: 0, ranges, ecn: None };
        pair.inject(0, 0, &[Frame::Feedback(told), Frame::Padding(3)]);
    }
    pair.tapped();
    pair.run_for(Duration::from_millis(40));
    let datagrams = pair.tapped();
    let asked = datagrams.iter().filter(|d| d.host == 0 && d.path() == Some(0) && asks(d)).count();
    let answers = datagrams.iter().filter(|d| d.host == 1 && d.path() == Some(0));
    assert!(answers.filter(|d| feedback(d).is_some()).count() <= asked);
}

/// [F-2]
#[test]
fn numbers_of_forgeries_are_not_acknowledged() {
    let mut pair = running();
    let mut forged = pair.association(0).seal(0, 5_000, &[Frame::Heartbeat]).expect("keys").0;
    *forged.last_mut().expect("a tag") ^= 1;
    let from = PathAddress { local: LocalId(0), remote: address(0, 0) };
    assert_eq!(pair.deliver(1, from, &forged), Err(DropReason::Authentication));
    pair.run_for(SECOND);
    let told =
        pair.tapped().iter().filter(|d| d.host == 1).filter_map(feedback).collect::<Vec<_>>();
    assert!(!told.is_empty());
    assert!(told.iter().all(|(_, ranges)| ranges[0].last < 5_000));
}

/// [F-4]
#[test]
fn impossible_feedback_is_ignored_and_counted() {
    let mut pair = running();
    pair.pass = |host, _, _| host == 1;
    pair.send(0, &tcp(0, 0, 500), Offload::default());
    let in_flight = |pair: &Pair| -> u64 {
        pair.engines[0].status(pair.now, false).peers[0].paths.iter().map(|p| p.in_flight).sum()
    };
    let before = in_flight(&pair);
    assert_ne!(before, 0);
    pair.pass = |_, _, _| true;
    let counted = pair.drops(0, DropReason::Malformed);
    for (path, on, last) in
        [(0, 0, 1 << 40), (1, 1, 1 << 40), (2, 2, 1 << 40), (3, 3, 1 << 40), (77, 0, 3)]
    {
        let room = [AckRange { first: 0, last }];
        let ranges = Ranges::new(&room).expect("one range");
        let told = Feedback { path: PathId(path), received_at: 0, delay: 0, ranges, ecn: None };
        let frames = [Frame::Feedback(told)];
        let (to, bytes) = pair.association(1).forge(Instant::ZERO, on, &frames).expect("keys");
        let from = pair.source(1, to);
        assert_eq!(pair.deliver(0, from, &bytes), Ok(()));
    }
    assert_eq!(in_flight(&pair), before);
    assert_eq!(pair.drops(0, DropReason::Malformed), counted + 4);
}

/// [F-11]
#[test]
fn feedback_about_a_working_path_on_another_path_is_ignored() {
    let mut pair = running();
    pair.pass = |host, _, _| host == 1;
    let packets_sent = |pair: &Pair| -> Vec<u64> {
        let status = pair.engines[0].status(pair.now, false);
        status.peers[0].paths.iter().map(|path| path.packets_sent).collect()
    };
    let before = packets_sent(&pair);
    pair.send(0, &tcp(0, 0, 500), Offload::default());
    let after = packets_sent(&pair);
    let used = (0..4).find(|path| after[*path] > before[*path]).expect("it left");
    let in_flight =
        |pair: &Pair| pair.engines[0].status(pair.now, false).peers[0].paths[used].in_flight;
    let waiting = in_flight(&pair);
    assert_ne!(waiting, 0);
    pair.pass = |_, _, _| true;
    let newest = after[used] - 1;
    let room = [AckRange { first: newest, last: newest }];
    let ranges = Ranges::new(&room).expect("one range");
    let path = PathId(used as u16);
    let told = Feedback { path, received_at: 0, delay: 0, ranges, ecn: None };
    let tell = |pair: &mut Pair, on: u16| {
        let frames = [Frame::Feedback(told)];
        let (to, bytes) = pair.association(1).forge(Instant::ZERO, on, &frames).expect("keys");
        let from = pair.source(1, to);
        assert_eq!(pair.deliver(0, from, &bytes), Ok(()));
    };
    tell(&mut pair, (path.0 + 1) % 4);
    assert_eq!(in_flight(&pair), waiting);
    tell(&mut pair, path.0);
    assert!(in_flight(&pair) < waiting);
}

/// A pair with congestion control, one TCP packet each 20 ms from host 0.
fn controlled(network: fn(usize, u16, Ecn) -> Ecn) -> Pair {
    let mut pair = Pair::new(|peer| {
        peer.congestion_control = CongestionControlKind::Cubic;
        peer.scheduler = SchedulerKind::RoundRobin;
    });
    pair.network = network;
    pair.tap = Some(Vec::new());
    for n in 0..200 {
        pair.run_for(SECOND / 50);
        if n >= 50 {
            pair.send(0, &tcp(0, n, 500), Offload::default());
        }
    }
    pair
}

/// [F-8]
#[test]
fn datagrams_are_ecn_capable_on_paths_that_pass_it() {
    let mut pair = controlled(|_, link, field| if link == 1 { Ecn::NotEct } else { field });
    let status = pair.engines[0].status(pair.now, false);
    for path in &status.peers[0].paths {
        let passes = path.local != address(0, 1);
        assert_eq!(path.ecn, if passes { "capable" } else { "failed" }, "{path:?}");
    }
    for datagram in pair.tapped().iter().filter(|datagram| datagram.host == 0 && asks(datagram)) {
        let Some(opened) = &datagram.opened else { continue };
        let trial = opened.number < 40;
        let capable = datagram.ecn == Ecn::Ect0;
        assert!(trial || capable == (datagram.to.local.0 != 1), "{datagram:?}");
    }
}

/// [F-8]
#[test]
fn without_congestion_control_no_datagram_is_ecn_capable() {
    let mut pair = running();
    pair.send(0, &tcp(0, 0, 500), Offload::default());
    pair.run_for(SECOND);
    let datagrams = pair.tapped();
    assert!(!datagrams.is_empty() && datagrams.iter().all(|datagram| datagram.ecn == Ecn::NotEct));
}

/// [F-9]
#[test]
fn marks_reduce_the_window_of_their_path_once_in_a_round_trip() {
    let mark: fn(usize, u16, Ecn) -> Ecn = |host, link, field| match field {
        Ecn::Ect0 if host == 0 && link == 0 => Ecn::Ce,
        field => field,
    };
    let windows = |pair: &Pair| -> Vec<u64> {
        let status = pair.engines[0].status(pair.now, false);
        status.peers[0].paths.iter().map(|path| path.window).collect()
    };
    let mut pair = controlled(|_, _, field| field);
    let before = windows(&pair);
    pair.network = mark;
    // Eight CE marks, reported by two feedback frames within one round trip of each path.
    for n in 0..32 {
        pair.send(0, &tcp(0, 1_000 + n, 500), Offload::default());
    }
    pair.run_for(Duration::from_millis(12));
    let after = windows(&pair);
    let links: Vec<u16> = {
        let status = pair.engines[0].status(pair.now, false);
        status.peers[0].paths.iter().map(|path| u16::from(path.local != address(0, 0))).collect()
    };
    for ((before, after), link) in before.iter().zip(&after).zip(links) {
        match link {
            0 => assert!(*after < *before && *after >= before * 6 / 10, "{before} {after}"),
            _ => assert!(after >= before, "{before} {after}"),
        }
    }
}

/// The Internet checksum of an IPv4 header; 0 of one whose checksum is right.
fn header_checksum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// [F-10]
#[test]
fn marks_reach_inner_packets_that_can_carry_them() {
    let mut pair = controlled(|host, _, field| match field {
        Ecn::Ect0 if host == 0 => Ecn::Ce,
        field => field,
    });
    // Full packets first, compact ones once the receiver knows the session.
    for (field, expected) in [(0_u8, 0_u8), (1, 3), (2, 3), (3, 3)] {
        for n in 0..4 {
            let mut packet = tcp(0, 10_000 + n, 500);
            packet[1] = field;
            packet[23] = field;
            let sum = header_checksum(&packet[..20]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            pair.out[1].packets.clear();
            pair.send(0, &packet, Offload::default());
            pair.run_for(SECOND / 5);
            let got = pair.out[1].packets.last().expect("it is not dropped");
            assert_eq!(got[1] & 3, expected, "packet {n} with field {field}");
            assert_eq!(header_checksum(&got[..20]), 0, "the header's checksum is right");
        }
    }
}
