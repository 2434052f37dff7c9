//! Rest and keepalives.

use mpip_wire::Frame;

use super::super::harness::{Pair, SECOND, Tapped, address, sequences, tcp};
use super::super::*;
use mpip_transport::PathState;
use mpip_types::Offload;

/// A pair that was active and then idle for 15 s, with tapped links.
fn resting() -> Pair {
    rest(Pair::new(|_| {}))
}

fn rest(mut pair: Pair) -> Pair {
    pair.tap = Some(Vec::new());
    pair.run_for(SECOND);
    pair.send(0, &tcp(0, 0, 100), Offload::default());
    pair.run_for(SECOND * 15);
    pair.tapped();
    pair
}

fn from(host: usize) -> PathAddress {
    PathAddress { local: LocalId(0), remote: address(host, 0) }
}

fn asks(datagram: &Tapped) -> bool {
    datagram.frames().any(|frame| frame.is_ack_eliciting())
}

/// When `host` sent ack-eliciting datagrams on `path`.
fn asked(sent: &[Tapped], host: usize, path: u16) -> Vec<Instant> {
    let own = sent.iter().filter(|d| d.host == host && d.path() == Some(path) && asks(d));
    own.map(|datagram| datagram.at).collect()
}

fn is_resting(pair: &Pair, host: usize) -> Vec<bool> {
    let status = pair.engines[host].status(pair.now, false);
    status.peers[0].paths.iter().map(|path| path.resting).collect()
}

/// The keepalive intervals that host 0 advertised on its path 0 in `sent`, ms.
fn told(sent: &[Tapped]) -> Vec<u64> {
    let own = sent.iter().filter(|d| d.host == 0 && d.path() == Some(0));
    own.flat_map(Tapped::frames)
        .filter_map(|frame| match frame {
            Frame::Keepalive { interval } => Some(interval),
            _ => None,
        })
        .collect()
}

/// [P-24]
#[test]
fn without_inner_packets_only_keepalives_leave_and_the_first_packet_wakes_all_paths() {
    let mut pair = resting();
    assert_eq!(is_resting(&pair, 0), [true; 4]);
    assert_eq!(is_resting(&pair, 1), [true; 4]);
    pair.run_for(SECOND * 90);
    let sent = pair.tapped();
    for path in 0..4 {
        let keepalives = asked(&sent, 0, path);
        assert!((3..=4).contains(&keepalives.len()), "path {path}: {keepalives:?}");
        assert_eq!(asked(&sent, 1, path), [], "the opener's keepalives do for both");
    }
    assert_eq!(pair.states(1), [PathState::Active; 4]);

    for host in 0..2 {
        let began = pair.now;
        pair.out[1 - host].packets.clear();
        pair.send(host, &tcp(host, 7, 100), Offload::default());
        pair.run_for(Duration::from_millis(10));
        let sent = pair.tapped();
        let first = sent.first().expect("a packet");
        assert!(first.carries() && first.at == began, "the packet goes first: {first:?}");
        assert_eq!(sequences(&pair.out[1 - host].packets), [7]);
        for path in 0..4 {
            assert_eq!(asked(&sent, host, path)[0], began, "path {path} is asked at once");
            let answer = began + Duration::from_millis(if path == 0 { 1 } else { 5 });
            assert!(asked(&sent, 1 - host, path)[0] <= answer, "so does the other");
        }
        pair.run_for(SECOND * 9);
        let sent = pair.tapped();
        for (host, path) in (0..2).flat_map(|host| (0..4).map(move |path| (host, path))) {
            assert!(asked(&sent, host, path).len() >= 29, "heartbeats on path {path} of {host}");
        }
        pair.run_for(SECOND * 10);
        assert_eq!(is_resting(&pair, host), [true; 4]);
        pair.tapped();
    }
}

/// [P-25]
#[test]
fn at_rest_an_answer_may_take_seconds_and_after_waking_no_longer_than_before() {
    let mut pair = resting();
    let failed = |pair: &Pair| pair.states(0).contains(&PathState::Failed);
    // All datagrams are lost for 3 s after a keepalive.
    pair.dead = vec![0, 1];
    pair.tapped();
    while asked(&pair.tapped(), 0, 0).is_empty() {
        pair.run_for(Duration::from_millis(10));
    }
    pair.run_for(SECOND * 3);
    assert!(!failed(&pair));
    pair.dead = vec![];
    pair.run_for(SECOND * 2);
    assert_eq!(pair.states(0), [PathState::Active; 4]);
    assert!(is_resting(&pair, 0)[0], "it never failed");

    // The peer is gone: this is noticed soon after the next packet is sent.
    pair.dead = vec![0, 1];
    pair.run_for(SECOND * 10);
    assert_eq!(pair.states(0), [PathState::Active; 4]);
    pair.send(0, &tcp(0, 8, 100), Offload::default());
    pair.run_for(Duration::from_millis(400));
    assert_eq!(pair.states(0), [PathState::Failed; 4]);

    // Without packets, the unanswered keepalive reveals it.
    let mut pair = resting();
    pair.dead = vec![0, 1];
    pair.run_for(SECOND * 30);
    assert_eq!(pair.states(0), [PathState::Failed; 4]);
}

/// [P-25]
#[test]
fn a_failed_path_is_probed_rarely_while_others_rest_and_at_once_when_they_wake() {
    let mut pair = resting();
    pair.dead = vec![1];
    pair.run_for(SECOND * 200);
    let dead: Vec<_> = (0..4).filter(|path| pair.states(0)[*path] != PathState::Active).collect();
    assert_eq!(dead.len(), 3);
    pair.tapped();
    pair.run_for(SECOND * 100);
    let sent = pair.tapped();
    for path in &dead {
        let count = asked(&sent, 0, *path as u16).len();
        assert!((3..=10).contains(&count), "{count} on path {path}");
    }
    pair.dead = vec![];
    pair.send(0, &tcp(0, 9, 100), Offload::default());
    pair.run_for(Duration::from_millis(50));
    assert_eq!(pair.states(0), [PathState::Active; 4]);
}

/// [P-26]
#[test]
fn a_node_sends_keepalives_at_the_requested_interval() {
    let mut pair = resting();
    // Count in 100 s, and the longest pause. A renewal of the keys adds one.
    let keepalives = |pair: &mut Pair| {
        pair.tapped();
        pair.run_for(SECOND * 100);
        let times = asked(&pair.tapped(), 1, 0);
        let pauses = times.windows(2).map(|pair| pair[1].since(pair[0]).as_millis());
        (times.len(), pauses.max().unwrap_or(0))
    };
    let frame = Frame::Keepalive { interval: 9_000 };
    let now = pair.now;
    let (_, older) = pair.association(0).forge(now, 0, &[frame]).expect("keys");
    pair.inject(0, 0, &[Frame::Keepalive { interval: 5_000 }]);
    let (count, longest) = keepalives(&mut pair);
    assert!((19..=21).contains(&count) && (5_000..5_020).contains(&longest), "{count} {longest}");
    // An older frame does not change the interval.
    assert_eq!(pair.deliver(1, from(0), &older), Ok(()));
    let (count, longest) = keepalives(&mut pair);
    assert!((19..=21).contains(&count) && (5_000..5_020).contains(&longest), "{count} {longest}");
    pair.inject(0, 0, &[Frame::Keepalive { interval: 0 }]);
    let (count, _) = keepalives(&mut pair);
    assert!(count <= 2, "the opener's are enough: {count}");
    // At most one keepalive a second, whatever is requested.
    pair.inject(0, 0, &[Frame::Keepalive { interval: 1 }]);
    let (count, longest) = keepalives(&mut pair);
    assert!((97..=102).contains(&count) && (1_000..1_020).contains(&longest), "{count} {longest}");
}

/// [P-27]
#[test]
fn behind_a_nat_the_keepalive_interval_is_advertised_and_grows_while_bindings_survive() {
    let mut pair = Pair::new(|_| {});
    pair.translated = Some((0, "203.0.113.7:40000".parse().expect("valid")));
    let mut pair = rest(pair);
    pair.run_for(SECOND * 120);
    let sent = pair.tapped();
    // The first interval was advertised when the rest began.
    assert_eq!(told(&sent)[..2], [22_500, 33_750]);
    let heartbeat = |d: &&Tapped| d.host == 0 && d.frames().any(|f| matches!(f, Frame::Heartbeat));
    let heartbeats = sent.iter().filter(heartbeat).filter(|d| d.path() == Some(0)).count();
    assert!(heartbeats <= 2, "told beside feedback: {heartbeats}");
    pair.run_for(SECOND * 600);
    // Renewals of the keys interrupt the silence, so the longest pauses are never tested.
    let longest = told(&pair.tapped()).into_iter().max().expect("it was told again");
    assert!((50_000..=120_000).contains(&longest), "{longest}");

    // After a renewal, incoming datagrams are lost: host 0 has to send first, and learns why.
    while !pair.tapped().iter().any(|datagram| datagram.bytes[0] == 1) {
        pair.run_for(SECOND / 10);
    }
    pair.run_for(SECOND);
    pair.tapped();
    let pause = |pair: &Pair| pair.engines[0].status(pair.now, false).peers[0].paths[0].keepalive;
    let too_long = pause(&pair);
    pair.pass = |host, _, bytes| host == 0 || bytes[0] < 0x80;
    let before = pair.now;
    while asked(&pair.tapped(), 0, 0).is_empty() {
        pair.run_for(SECOND / 10);
    }
    let waited = pair.now.since(before);
    assert!((too_long..=too_long + SECOND * 3).contains(&waited), "{waited:?} {too_long:?}");
    pair.pass = |_, _, _| true;
    pair.run_for(SECOND * 3);
    assert_eq!(pair.states(1)[0], PathState::Active);
    assert!(pause(&pair) < too_long, "{:?}", pause(&pair));
    let limit = too_long.as_millis() as u64;
    for _ in 0..10 {
        pair.run_for(SECOND * 100);
        let told = told(&pair.tapped());
        assert!(told.iter().all(|pause| *pause < limit), "not again for 12 hours: {told:?}");
    }
}

/// [P-27]
#[test]
fn a_configured_keepalive_interval_is_advertised_and_kept() {
    let mut pair = rest(Pair::with(|host, config| {
        config.limits.keepalive = (host == 0).then_some(SECOND * 7);
    }));
    pair.run_for(SECOND * 100);
    let sent = pair.tapped();
    assert!((13..=15).contains(&asked(&sent, 1, 0).len()), "{:?}", asked(&sent, 1, 0));
    assert_eq!(told(&sent), []);
}
