//! Extreme values in frames of an authenticated peer. Tests are built with overflow checks, so an
//! unintended overflow fails them; so do impossible times and numbers.

use mpip_wire::{
    AckRange, AddressList, CompactFrameHeader, EcnCounts, Feedback, Frame, NetworkFields,
    PACKET_NUMBER_MAX, PacketFrameHeader, PathId, PathStatus, Ranges, RateLimit, SKIP_MAX,
    SessionFields, SessionId, TruncatedSequence, VARINT_MAX,
};
use proptest::prelude::*;

use super::super::harness::{Pair, SECOND, address, locals, tcp};
use super::super::*;
use crate::config::SchedulerKind;
use mpip_transport::cc::CongestionControlKind;
use mpip_types::Offload;

/// Values of a variable-length integer.
fn varint() -> impl Strategy<Value = u64> {
    prop_oneof![
        0_u64..3,
        (0_u32..62, 0_u64..3).prop_map(|(bits, less)| (1_u64 << bits).saturating_sub(less)),
        VARINT_MAX - 2..=VARINT_MAX,
        0_u64..=VARINT_MAX,
    ]
}

fn word() -> impl Strategy<Value = u32> {
    prop_oneof![
        0_u32..3,
        (0_u32..32, 0_u32..3).prop_map(|(bits, less)| (1_u32 << bits).wrapping_sub(less)),
        any::<u32>(),
    ]
}

/// A packet number relative to those that were sent.
#[derive(Clone, Copy, Debug)]
enum Number {
    /// This many before the next one to be sent.
    Before(u64),
    Any(u64),
}

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![
        6 => (0_u64..40).prop_map(Number::Before),
        1 => varint().prop_map(Number::Any),
    ]
}

#[derive(Clone, Debug)]
enum Lie {
    /// Distances between the ends of ranges, from the largest number down.
    Feedback {
        path: u16,
        largest: Number,
        at: u32,
        delay: u64,
        ranges: Vec<u64>,
        ecn: Option<[u64; 3]>,
    },
    Packet {
        session: u32,
        sequence: u32,
        ordered: bool,
    },
    Compact {
        session: u32,
        sequence: u32,
        ordered: bool,
    },
    Open {
        session: u32,
        sequence: u32,
    },
    Skip {
        session: u32,
        first: u32,
        count: u32,
    },
    Resequencing {
        sequence: u64,
        max_wait: u64,
    },
    Playout(u16),
    Keepalive(u64),
    Status {
        path: u16,
        sequence: u64,
        standby: bool,
    },
    Addresses {
        generation: u64,
    },
    Observed {
        path: u16,
    },
}

fn lie() -> impl Strategy<Value = Lie> {
    let path = || 0_u16..5;
    let session = || 0_u32..4;
    let ecn = proptest::option::of([varint(), varint(), varint()]);
    let ranges = proptest::collection::vec(prop_oneof![0_u64..4, varint()], 1..9);
    let feedback = (path(), number(), word(), varint(), ranges, ecn);
    prop_oneof![
        8 => feedback.prop_map(|(path, largest, at, delay, ranges, ecn)| Lie::Feedback {
            path, largest, at, delay, ranges, ecn
        }),
        3 => (session(), word(), any::<bool>()).prop_map(|(session, sequence, ordered)| {
            Lie::Packet { session, sequence, ordered }
        }),
        2 => (session(), word(), any::<bool>()).prop_map(|(session, sequence, ordered)| {
            Lie::Compact { session, sequence, ordered }
        }),
        1 => (session(), word()).prop_map(|(session, sequence)| Lie::Open { session, sequence }),
        3 => (session(), word(), 1..=SKIP_MAX).prop_map(|(session, first, count)| {
            Lie::Skip { session, first, count }
        }),
        1 => (varint(), varint()).prop_map(|(sequence, max_wait)| {
            Lie::Resequencing { sequence, max_wait }
        }),
        1 => any::<u16>().prop_map(Lie::Playout),
        1 => varint().prop_map(Lie::Keepalive),
        1 => (path(), varint(), any::<bool>()).prop_map(|(path, sequence, standby)| {
            Lie::Status { path, sequence, standby }
        }),
        1 => varint().prop_map(|generation| Lie::Addresses { generation }),
        1 => path().prop_map(|path| Lie::Observed { path }),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    /// Host 0 sends a false frame on one of its paths.
    Lie(u16, Lie),
    /// The other sends packets.
    Send(u32),
    Wait(Duration),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0_u16..4, lie()).prop_map(|(path, lie)| Step::Lie(path, lie)),
        4 => (1_u32..30).prop_map(Step::Send),
        4 => (0_u64..30_000).prop_map(|micros| Step::Wait(Duration::from_micros(micros))),
        1 => (1_u64..400).prop_map(|seconds| Step::Wait(Duration::from_secs(seconds))),
    ]
}

impl Lie {
    fn send(&self, pair: &mut Pair, by: u16) {
        let packet = tcp(0, 1, 30);
        let told = [address(0, 7), address(0, 8)];
        let mut ranges = Vec::new();
        let frame = match self {
            Self::Feedback { path, largest, at, delay, ranges: ends, ecn } => {
                let next = pair.association(1).next_number(*path).unwrap_or(0);
                let mut last = match largest {
                    Number::Before(less) => next.saturating_sub(*less),
                    Number::Any(number) => (*number).min(PACKET_NUMBER_MAX),
                };
                for pair in ends.chunks(2) {
                    let first = last.saturating_sub(pair[0]);
                    ranges.push(AckRange { first, last });
                    let gap = pair.get(1).copied().unwrap_or(0).saturating_add(2);
                    let Some(below) = first.checked_sub(gap) else { break };
                    last = below;
                }
                let ecn = ecn.map(|[ect0, ect1, ce]| EcnCounts { ect0, ect1, ce });
                let ranges = Ranges::new(&ranges).expect("ranges in order");
                let (path, received_at, delay) = (PathId(*path), *at, *delay);
                Frame::Feedback(Feedback { path, received_at, delay, ranges, ecn })
            }
            &Self::Packet { session, sequence, ordered } => {
                let header = PacketFrameHeader { session: SessionId(session), sequence, ordered };
                Frame::Packet { header, packet: &packet }
            }
            &Self::Compact { session, sequence, ordered } => {
                let sequence = TruncatedSequence::new(sequence);
                let header = CompactFrameHeader { session: SessionId(session), sequence, ordered };
                Frame::CompactPacket { header, compact: &[0, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, 7, 7] }
            }
            &Self::Open { session, sequence } => Frame::SessionOpen {
                session: SessionId(session),
                fields: SessionFields {
                    sequence,
                    protocol: 6,
                    traffic_class: 0,
                    hop_limit: 64,
                    network: NetworkFields::V4 {
                        source: [198, 19, 0, 1].into(),
                        destination: [198, 19, 0, 2].into(),
                        identification: u16::MAX,
                        dont_fragment: true,
                    },
                    source_port: 0x1234,
                    destination_port: 0x5678,
                },
            },
            &Self::Skip { session, first, count } => {
                Frame::Skip { session: SessionId(session), first, count }
            }
            &Self::Resequencing { sequence, max_wait } => {
                Frame::Resequencing { sequence, max_wait }
            }
            &Self::Playout(at) => Frame::Playout { at },
            &Self::Keepalive(interval) => Frame::Keepalive { interval },
            &Self::Status { path, sequence, standby } => {
                let status = if standby { PathStatus::Standby } else { PathStatus::Available };
                let (least, most) = RateLimit::RANGE.into_inner();
                let limit = RateLimit::new(if standby { most } else { least });
                Frame::PathStatus { path: PathId(path), sequence, status, cost: 0, limit }
            }
            &Self::Addresses { generation } => {
                Frame::Addresses { generation, list: AddressList::new(&told).expect("two") }
            }
            &Self::Observed { path } => {
                Frame::AddressObserved { path: PathId(path), address: told[0], taken: true }
            }
        };
        let now = pair.now;
        // Only an existing path can carry it.
        if let Some(datagram) = pair.association(0).forge(now, by, &[frame]) {
            pair.out[0].datagrams.push(datagram);
            pair.collect(0);
        }
    }
}

/// Asserts that the path statistics of both nodes are plausible.
fn assert_sound(pair: &Pair) {
    let longest = pair.now.since(Instant::ZERO) + SECOND;
    for host in 0..2 {
        let status = pair.engines[host].status(pair.now, true);
        for path in status.peers.iter().flat_map(|peer| &peer.paths) {
            assert!((0.0..=1.0).contains(&path.loss), "{path:?}");
            assert!((0.0..=1.0).contains(&path.share), "{path:?}");
            let times = [path.rtt, path.min_rtt, Some(path.reordering_window)];
            assert!(times.iter().flatten().all(|time| *time <= longest * 8), "{path:?}");
            assert!(path.in_flight <= path.bytes_sent, "{path:?}");
        }
    }
}

fn lied_to(kind: CongestionControlKind, scheduler: SchedulerKind, mtu: u16, steps: &[Step]) {
    let mut pair = Pair::with(|host, config| {
        let peer = &mut config.peers[0];
        (peer.congestion_control, peer.scheduler) = (kind, scheduler);
        let mut locals = locals(host);
        locals.iter_mut().for_each(|local| local.mtu = mtu);
    });
    for host in 0..2 {
        let mut locals = locals(host);
        locals.iter_mut().for_each(|local| local.mtu = mtu);
        pair.engines[host].handle_command(pair.now, Command::LocalAddresses(locals));
    }
    pair.run_for(SECOND * 2);
    let mut sequence = 0;
    for step in steps {
        match step {
            Step::Lie(by, lie) => lie.send(&mut pair, *by),
            Step::Wait(time) => pair.run_for(*time),
            Step::Send(count) => {
                for _ in 0..*count {
                    sequence += 1_000;
                    let packet = pair.pool_packet(&tcp(1, sequence, 1_000), Offload::default());
                    // The false frames may have ended its paths.
                    let now = pair.now;
                    let _ = pair.engines[1].handle_tun(now, packet);
                    pair.engines[1].flush(now, &mut pair.out[1]);
                }
                pair.collect(1);
            }
        }
    }
    pair.run_for(SECOND);
    assert_sound(&pair);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_value_from_a_peer_overflows(
        kind in 0..CongestionControlKind::NAMES.len(),
        scheduler in 0..SchedulerKind::NAMES.len(),
        mtu in prop_oneof![Just(1_500_u16), Just(1_280), Just(9_000), Just(u16::MAX)],
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let kind = CongestionControlKind::NAMES[kind].1;
        let scheduler = SchedulerKind::NAMES[scheduler].1;
        lied_to(kind, scheduler, mtu, &steps);
    }
}
