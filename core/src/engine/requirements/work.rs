//! The cost of one datagram of an authenticated peer, counted in steps, not in time: bounded
//! whatever was sent before, except for steps that settle something for good (acknowledged packets
//! in flight, held packets that are released).

use mpip_wire::{
    AckRange, Feedback, Frame, NetworkFields, PacketFrameHeader, PathId, PathStatus, Ranges,
    SessionFields, SessionId, WORK_MAX,
};
use proptest::prelude::*;

use super::super::harness::{Pair, SECOND, address, tcp};
use super::super::*;
use super::translation::{behind, client, server};
use crate::config::SchedulerKind;
use mpip_types::Offload;
use mpip_types::packet::{Endpoint, protocol};

/// Steps for each unit of work of the costliest frames (feedback with 32 ranges across 16,000
/// packets, and standby of 64 paths).
const STEPS_PER_UNIT: u64 = 100;
const STEPS: u64 = WORK_MAX as u64 * STEPS_PER_UNIT;

/// Delivers a datagram with `frames` from `host` to the other at once, bypassing its engine;
/// returns its cost in steps.
fn strike(pair: &mut Pair, host: usize, path: u16, frames: &[Frame<'_>]) -> (u64, bool) {
    let now = pair.now;
    let forged = pair.association(host).forge(now, path, frames).expect("a path with keys");
    let from = pair.source(host, forged.0);
    let engine = &mut pair.engines[1 - host];
    let most = core::mem::take(&mut engine.most_work);
    let taken = pair.deliver(1 - host, from, &forged.1).is_ok();
    let engine = &mut pair.engines[1 - host];
    let work = core::mem::replace(&mut engine.most_work, most);
    engine.most_work = most.max(work);
    (work, taken)
}

fn packet(session: u32, sequence: u32, bytes: &[u8]) -> Frame<'_> {
    let header = PacketFrameHeader { session: SessionId(session), sequence, ordered: true };
    Frame::Packet { header, packet: bytes }
}

fn skip(session: u32, first: u32, count: u32) -> Frame<'static> {
    Frame::Skip { session: SessionId(session), first, count }
}

fn running() -> Pair {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    pair
}

fn held(pair: &Pair) -> usize {
    pair.engines[1].shared.hold.held()
}

/// [W-28]
#[test]
fn a_datagram_of_too_much_work_is_dropped_whole_and_counted() {
    let mut pair = running();
    let bytes = tcp(0, 1, 10);
    let mut frames = vec![Frame::Heartbeat; WORK_MAX as usize];
    frames[0] = Frame::Close { reason: 0, message: "" };
    frames.push(packet(900, 0, &bytes));
    assert_eq!(strike(&mut pair, 0, 0, &frames), (0, false));
    assert_eq!(pair.drops(1, DropReason::TooMuchWork), 1);
    assert_eq!(pair.out[1].packets, Vec::<Vec<u8>>::new());
    frames[0] = Frame::Heartbeat;
    frames.remove(1);
    assert_eq!(strike(&mut pair, 0, 0, &frames), (u64::from(WORK_MAX), true));
    assert_eq!(pair.out[1].packets, [bytes]);
}

/// [W-28] A node owes more notices than the work of one datagram allows.
#[test]
fn notices_that_exceed_one_datagram_leave_in_several() {
    let mut pair = running();
    let bytes = tcp(0, 1, 10);
    // Compact packets of unknown sessions, and datagrams on unknown paths.
    for round in 0..20u32 {
        pair.tap = Some(Vec::new());
        for path in 0..30 {
            let from = PathId(1_000 + path as u16 + round as u16 * 30);
            let sealed = pair.association(1).seal(from.0, 0, &[packet(900, path, &bytes)]);
            let (datagram, _) = sealed.expect("keys");
            let to = pair.association(1).address_of(0).expect("a path");
            let from = pair.source(1, to);
            let _ = pair.deliver(0, from, &datagram);
        }
        pair.run_for(SECOND / 50);
        for sent in pair.tapped() {
            let work: u32 = sent.frames().map(|frame| frame.work()).sum();
            assert!(work <= WORK_MAX, "{work}");
        }
    }
    assert_eq!(pair.drops(1, DropReason::TooMuchWork), 0);
}

/// [S-15] Thousands of gaps, and datagrams full of skips across all of them.
#[test]
fn a_datagram_full_of_skips_costs_little_however_much_is_held() {
    let mut pair = running();
    let bytes = tcp(0, 1, 10);
    for ahead in 1..4_000 {
        strike(&mut pair, 0, 0, &[packet(900, 4 * ahead, &bytes)]);
    }
    let full = held(&pair);
    assert!(full > 3_000 * 2_048, "{full}");
    for round in 0..50u32 {
        let frames: Vec<_> = (0..WORK_MAX / 2)
            .map(|n| match n % 3 {
                0 => skip(900, 1 + n % 4, 32_000),
                1 => skip(900, 4 * (n * 61 + round) + 1, 2),
                _ => skip(900, 32_000 - n, u32::MAX >> 1),
            })
            .collect();
        let (steps, taken) = strike(&mut pair, 0, 0, &frames);
        assert!(taken && steps <= STEPS_PER_UNIT / 20 * u64::from(WORK_MAX), "{steps}");
    }
    assert!(pair.out[1].packets.is_empty() && held(&pair) >= full);
    // Two datagrams release the held packets: each packet and each gap once.
    let (steps, _) = strike(&mut pair, 0, 0, &[skip(900, 0, 32_000)]);
    assert_eq!(pair.out[1].packets.len(), 3_999);
    assert!(steps <= 3 * 4_000, "{steps}");
    assert_eq!(held(&pair), 0);
}

/// [S-15] Two packets of each of thousands of sessions, as far apart as possible.
#[test]
fn a_peer_uses_no_more_memory_than_its_share_and_ended_sessions_free_it() {
    let mut pair = Pair::with(|_, config| config.limits.resequencing = 4 << 20);
    pair.run_for(SECOND);
    for session in 0..6_000u32 {
        for sequence in [0, 32_000, 16_000] {
            let mut bytes = tcp(0, sequence, 10);
            bytes[20..24].copy_from_slice(&session.to_be_bytes());
            strike(&mut pair, 0, 0, &[packet(900 + session, sequence, &bytes)]);
        }
        strike(&mut pair, 0, 0, &[skip(900 + session, 16_001, 10_000)]);
        let memory = pair.engines[1].shared.hold.memory();
        // A hundredth for free slots.
        assert!(held(&pair) <= 4 << 20 && memory <= (4 << 20) * 101 / 100, "{memory}");
        if session == 700 {
            assert!(held(&pair) <= 700 * 2 * 2_400, "{}", held(&pair));
        }
    }
    assert!(held(&pair) > 3 << 20);
    let refused = pair.engines[1].status(pair.now, false).drops;
    assert!(refused.iter().any(|(name, count)| *name == "not_held" && *count > 1_000));
    strike(&mut pair, 0, 0, &[Frame::Close { reason: 0, message: "" }]);
    assert_eq!((held(&pair), pair.engines[1].shared.hold.memory()), (0, 0));
}

/// [S-15]
#[test]
fn an_unknown_peer_has_a_sixteenth_of_the_sessions() {
    let mut pair = Pair::with(|_, config| {
        config.peers.clear();
        let prefixes = vec!["198.18.0.0/16".parse().expect("valid")];
        let settings = crate::config::Opportunistic { prefixes, port: 6182, ..Default::default() };
        config.opportunistic = Some(settings);
        config.limits.sessions = 1_600;
    });
    let (now, [one, other]) = (pair.now, [0, 1].map(|host| address(host, 0).ip()));
    pair.engines[0].handle_destination(now, one, other);
    pair.run_for(SECOND);
    assert_eq!(pair.association(1).most_sessions(), 100);
}

/// The peer reports thousands of sessions as unknown, one after the other.
#[test]
fn a_session_that_the_peer_does_not_know_is_found_at_once() {
    let mut pair = running();
    for port in 0..2_000u32 {
        let mut bytes = tcp(0, 0, 10);
        bytes[20..24].copy_from_slice(&port.to_be_bytes());
        pair.send(0, &bytes, Offload::default());
    }
    let known = pair.association(0).sending();
    assert_eq!(known.len(), 2_000);
    for round in 0..40 {
        let frames: Vec<_> = (0..WORK_MAX)
            .map(|n| SessionId(n * 31 % 2_000 + round * 1_000))
            .map(|session| Frame::SessionUnknown { session })
            .collect();
        let (steps, taken) = strike(&mut pair, 1, 0, &frames);
        assert!(taken && steps <= u64::from(WORK_MAX), "{steps}");
    }
}

fn fields(port: u16) -> SessionFields {
    let [Endpoint { address: IpAddr::V4(source), .. }, Endpoint { address: IpAddr::V4(to), .. }] =
        [client(port), server()]
    else {
        panic!("addresses of IPv4")
    };
    SessionFields {
        sequence: 0,
        protocol: protocol::UDP,
        traffic_class: 0,
        hop_limit: 64,
        network: NetworkFields::V4 {
            source,
            destination: to,
            identification: 0,
            dont_fragment: true,
        },
        source_port: port,
        destination_port: 80,
    }
}

/// Each session is translated, until no port is left.
#[test]
fn a_datagram_full_of_sessions_costs_little_also_when_ports_have_run_out() {
    let mut pair = behind(|_, _| {});
    let mut session = 1_000;
    let mut most = 0;
    for _ in 0..1_400 {
        let frames: Vec<_> = (0..WORK_MAX / 8)
            .map(|n| Frame::SessionOpen {
                session: SessionId(session + n),
                fields: fields((session + n) as u16),
            })
            .collect();
        session += WORK_MAX / 8;
        let (steps, taken) = strike(&mut pair, 0, 0, &frames);
        assert!(taken);
        most = most.max(steps);
    }
    assert!(pair.drops(1, DropReason::NoPort) > 1_000, "ports run out");
    assert!(most > 500 && most <= STEPS / 10, "{most}");
}

/// A sender with many packets in flight, of which the first is never acknowledged.
fn flying(packets: u32) -> Pair {
    let mut pair = Pair::new(|peer| {
        peer.scheduler = SchedulerKind::FastestFirst;
        peer.resequencing = false;
    });
    pair.run_for(SECOND);
    pair.send(0, &tcp(0, 0, 10), Offload::default());
    pair.run_for(SECOND / 10);
    for number in 0..packets {
        pair.send(0, &tcp(0, number, 10), Offload::default());
    }
    pair
}

fn feedback<'a>(path: u16, ranges: &'a [AckRange]) -> Frame<'a> {
    let ranges = Ranges::new(ranges).expect("descending");
    let path = PathId(path);
    Frame::Feedback(Feedback { path, received_at: 0, delay: 0, ranges, ecn: None })
}

#[test]
fn repeated_feedback_costs_little_however_much_is_in_flight() {
    let mut pair = flying(15_000);
    let next = pair.association(0).next_number(0).expect("the fastest path");
    assert!(next > 15_000, "{next}");
    let first = next - 14_990;
    // Every other packet arrives: 32 of them in a frame.
    let frame = |at: u64, step: u64| -> Vec<AckRange> {
        (0..32).rev().map(|n| at + n * step).map(|n| AckRange { first: n, last: n }).collect()
    };
    let all: Vec<Vec<AckRange>> = (0..230).map(|n| frame(first + n * 64, 2)).collect();
    let mut total = 0;
    for some in all.chunks(31) {
        let frames: Vec<_> = some.iter().map(|ranges| feedback(0, ranges)).collect();
        for chunk in frames.chunks(8) {
            let (steps, taken) = strike(&mut pair, 1, 0, chunk);
            assert!(taken, "a valid datagram");
            total += steps;
        }
    }
    assert!(total <= 15_000 * 8, "each packet once: {total}");
    // The rest has been judged by now. Sends wide ranges over it again and again.
    let wide: Vec<AckRange> = (0..32u64)
        .rev()
        .map(|n| AckRange { first: first + n * 460 + 1, last: first + n * 460 + 450 })
        .collect();
    let frames = vec![feedback(0, &wide); 8];
    strike(&mut pair, 1, 0, &frames);
    for _ in 0..20 {
        let (steps, taken) = strike(&mut pair, 1, 0, &frames);
        let units = 8 * 4;
        assert!(taken && steps <= units * STEPS_PER_UNIT, "{steps}");
    }
}

/// Packets in flight on a failed path wait for retransmission, and no path works: feedback on
/// another path acknowledges them step by step.
#[test]
fn feedback_on_a_failed_path_costs_little_however_many_retransmissions_wait() {
    let mut pair = Pair::new(|peer| peer.scheduler = SchedulerKind::FastestFirst);
    pair.run_for(SECOND);
    pair.dead = vec![0, 1];
    for number in 0..3_000 {
        pair.send(0, &tcp(0, number, 10), Offload::default());
    }
    pair.run_for(SECOND * 2);
    let waiting = pair.association(0).repairs();
    let (path, first) = waiting[0];
    let own = waiting.iter().filter(|(other, _)| *other == path).count() as u64;
    assert!(own > 2_500, "{own} of {}", waiting.len());
    let by = (path + 1) % 4;
    for round in 0..30 {
        // From the end, so that the front of the queue does not change.
        let at = first + own - 10 - round * 64;
        let ranges: Vec<_> = (0..32).map(|n| at - 2 * n).collect();
        let ranges: Vec<_> = ranges.iter().map(|n| AckRange { first: *n, last: *n }).collect();
        let frames = vec![feedback(path, &ranges); 12];
        let (steps, taken) = strike(&mut pair, 1, by, &frames);
        assert!(taken && steps <= 12 * 4 * STEPS_PER_UNIT, "{steps}");
    }
    assert!(pair.association(0).repairs() == waiting);
    // The oldest have arrived too: they are removed at once.
    let ranges = [AckRange { first, last: first + 500 }];
    strike(&mut pair, 1, by, &[feedback(path, &ranges)]);
    let left = pair.association(0).repairs();
    assert!(left == waiting[501..], "{} of {} are left", left.len(), waiting.len());
}

#[test]
fn a_datagram_full_of_path_states_decides_once() {
    let mut pair = running();
    for round in 0..50u64 {
        let frames: Vec<_> = (0..u64::from(WORK_MAX) / 2)
            .map(|n| {
                let status = if n % 2 == 0 { PathStatus::Standby } else { PathStatus::Available };
                let sequence = 1_000 + round * 100 + n;
                Frame::PathStatus {
                    path: PathId((n % 4) as u16),
                    sequence,
                    status,
                    cost: 0,
                    limit: None,
                }
            })
            .collect();
        let (steps, taken) = strike(&mut pair, 0, 0, &frames);
        assert!(taken && steps <= 3 * u64::from(WORK_MAX), "{steps}");
    }
    // Repeated abandoned statuses of a path count once.
    let path = pair.association(1).address_of(3).map(|_| PathId(3)).expect("four paths");
    let abandoned = Frame::PathStatus {
        path,
        sequence: 0,
        status: PathStatus::Abandoned,
        cost: 0,
        limit: None,
    };
    let (steps, taken) = strike(&mut pair, 1, 0, &[abandoned; WORK_MAX as usize / 2]);
    assert!(taken && steps <= 3 * u64::from(WORK_MAX), "{steps}");
}

/// Each change of the observed address triggers a new capture, which visits all sessions.
#[test]
fn the_capture_is_recomputed_at_a_limited_rate_whatever_the_peer_sends() {
    let mut pair = behind(|_, _| {});
    let remote = address(1, 0);
    let mut looks = 0;
    for round in 0..2_000u16 {
        let observed = SocketAddr::new(remote.ip(), 1_000 + round);
        let frame =
            Frame::AddressObserved { path: PathId(0), address: observed, taken: round % 2 == 0 };
        strike(&mut pair, 0, 0, &[frame]);
        let work = pair.engines[1].shared.work;
        let (now, engine) = (pair.now, &mut pair.engines[1]);
        engine.flush(now, &mut pair.out[1]);
        looks += pair.engines[1].shared.work - work;
        pair.run_for(SECOND / 1_000);
    }
    assert!(looks <= 60, "{looks} in 2 s");
    // The final state is applied, a little later.
    let traffic = |pair: &Pair| pair.engines[1].status(pair.now, false).peers[0].traffic;
    pair.run_for(SECOND);
    assert_eq!(traffic(&pair), Some(crate::Traffic::Multipath));
}

/// A frame of a hostile peer.
fn some_frame() -> impl Strategy<Value = Said> {
    let number = || prop_oneof![0u32..70_000, any::<u32>()];
    let path = || prop_oneof![6 => 0u16..6, 1 => any::<u16>()];
    prop_oneof![
        6 => (900u32..905, number(), number()).prop_map(|(s, a, b)| Said::Skip(s, a, b)),
        4 => (0u32..30).prop_map(Said::Unknown),
        4 => (900u32..1_000, any::<u16>()).prop_map(|(s, port)| Said::Open(s, port)),
        2 => (900u32..1_000).prop_map(Said::CloseSession),
        4 => (path(), 0u64..20_000, 0u8..4).prop_map(|(p, n, s)| Said::Status(p, n, s)),
        4 => (path(), any::<u16>(), any::<bool>()).prop_map(|(p, a, t)| Said::Observed(p, a, t)),
        4 => (path(), 0u64..3_000, 0u64..40, 0u64..90)
            .prop_map(|(p, at, gap, len)| Said::Feedback(p, at, gap, len)),
        2 => (0u64..1 << 40, 0u64..1 << 40).prop_map(|(n, wait)| Said::Wait(n, wait)),
        1 => any::<[u8; 8]>().prop_map(Said::Challenge),
        1 => any::<[u8; 8]>().prop_map(Said::Response),
        1 => any::<u64>().prop_map(|n| Said::Keepalive(n >> 4)),
        8 => (900u32..905, number(), any::<bool>()).prop_map(|(s, n, o)| Said::Packet(s, n, o)),
    ]
}

#[derive(Clone, Debug)]
enum Said {
    Skip(u32, u32, u32),
    Unknown(u32),
    Open(u32, u16),
    CloseSession(u32),
    Status(u16, u64, u8),
    Observed(u16, u16, bool),
    Feedback(u16, u64, u64, u64),
    Wait(u64, u64),
    Challenge([u8; 8]),
    Response([u8; 8]),
    Keepalive(u64),
    Packet(u32, u32, bool),
}

impl Said {
    /// `ranges` and `bytes` hold the data that the frame borrows.
    fn frame<'a>(&self, ranges: &'a mut Vec<AckRange>, bytes: &'a mut Vec<u8>) -> Frame<'a> {
        match *self {
            Self::Skip(session, first, count) => skip(session, first, (count >> 1).max(1)),
            Self::Unknown(session) => Frame::SessionUnknown { session: SessionId(session) },
            Self::Open(session, port) => {
                Frame::SessionOpen { session: SessionId(session), fields: fields(port) }
            }
            Self::CloseSession(session) => Frame::SessionClose { session: SessionId(session) },
            Self::Status(path, sequence, status) => {
                let status = match status {
                    0 => PathStatus::Abandoned,
                    1 => PathStatus::Available,
                    _ => PathStatus::Standby,
                };
                Frame::PathStatus { path: PathId(path), sequence, status, cost: 0, limit: None }
            }
            Self::Observed(path, port, taken) => {
                let address = SocketAddr::new(address(1, 0).ip(), port);
                Frame::AddressObserved { path: PathId(path), address, taken }
            }
            Self::Feedback(path, at, gap, len) => {
                let step = gap + len + 2;
                let starts = (0..32).rev().map(|n| at + n * step);
                ranges.extend(starts.map(|first| AckRange { first, last: first + len }));
                feedback(path, ranges)
            }
            Self::Wait(sequence, max_wait) => Frame::Resequencing { sequence, max_wait },
            Self::Challenge(data) => Frame::PathChallenge(data),
            Self::Response(data) => Frame::PathResponse(data),
            Self::Keepalive(interval) => Frame::Keepalive { interval },
            Self::Packet(session, sequence, ordered) => {
                *bytes = tcp(0, sequence, 10);
                let header = PacketFrameHeader { session: SessionId(session), sequence, ordered };
                Frame::Packet { header, packet: bytes }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// [S-15] [W-28]
    #[test]
    fn any_datagram_of_a_peer_costs_a_bounded_number_of_steps(
        translated in any::<bool>(),
        said in prop::collection::vec((0u16..4, some_frame(), 1usize..40, 0u64..30), 1..60),
    ) {
        let mut pair = match translated {
            true => behind(|_, _| {}),
            false => running(),
        };
        for number in 0..if translated { 0 } else { 1_000 } {
            pair.send(1, &tcp(1, number, 10), Offload::default());
        }
        for (path, one, times, millis) in said {
            let (mut ranges, mut bytes) = (Vec::new(), Vec::new());
            let frame = one.frame(&mut ranges, &mut bytes);
            let last = matches!(frame, Frame::Packet { .. });
            let times = if last { 1 } else { times.min((WORK_MAX / frame.work()) as usize) };
            let fits = 1_900 / frame.encoded_len();
            let frames = vec![frame; times.min(fits)];
            let in_flight = pair.association(1).next_number(path).unwrap_or(0);
            let waiting = pair.engines[1].shared.hold.held() / 2_048;
            if pair.association(0).address_of(path).is_none() {
                continue;
            }
            let (steps, _) = strike(&mut pair, 0, path, &frames);
            let settled = 4 * (in_flight + 3 * waiting as u64);
            prop_assert!(steps <= STEPS + settled, "{steps}: {one:?}");
            let memory = pair.engines[1].shared.hold.memory();
            prop_assert!(memory <= 32 << 20, "{memory}");
            pair.run_for(Duration::from_millis(millis));
        }
    }
}
