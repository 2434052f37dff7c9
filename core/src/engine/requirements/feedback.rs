//! Feedback.

use std::collections::BTreeMap;

use mpip_wire::{AckRange, Feedback, Frame, PathId, Ranges};

use super::super::harness::{Pair, SECOND, Tapped, address, tcp};
use super::super::*;
use crate::buffer::Offload;
use crate::config::SchedulerKind;

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
fn what_asks_is_acknowledged_on_its_path_and_nothing_else_is() {
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
fn feedback_and_padding_alone_are_not_answered() {
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
fn feedback_that_cannot_be_true_is_ignored_and_counted() {
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
    for (path, last) in [(0, 1 << 40), (1, 1 << 40), (2, 1 << 40), (3, 1 << 40), (77, 3)] {
        let room = [AckRange { first: 0, last }];
        let ranges = Ranges::new(&room).expect("one range");
        let told = Feedback { path: PathId(path), received_at: 0, delay: 0, ranges, ecn: None };
        let frames = [Frame::Feedback(told)];
        let (to, bytes) = pair.association(1).forge(Instant::ZERO, 0, &frames).expect("keys");
        let from = pair.source(1, to);
        assert_eq!(pair.deliver(0, from, &bytes), Ok(()));
    }
    assert_eq!(in_flight(&pair), before);
    assert_eq!(pair.drops(0, DropReason::Malformed), counted + 4);
}
