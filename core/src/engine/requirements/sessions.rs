//! Sessions, resequencing and compact packets.

use core::net::Ipv4Addr;

use mpip_wire::{
    AckRange, CompactFrameHeader, Frame, NetworkFields, PacketFrameHeader, SessionFields,
    SessionId, TruncatedSequence,
};

use super::super::harness::{Pair, SECOND, Tapped, sequences, tcp, udp};
use super::super::*;
use mpip_types::Offload;

fn running() -> Pair {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    pair
}

/// Injects a packet of host 0 in `session` at `sequence`; its TCP sequence number is the same.
fn inject(pair: &mut Pair, path: u16, session: u32, sequence: u32, ordered: bool) {
    let packet = tcp(0, sequence, 20);
    let header = PacketFrameHeader { session: SessionId(session), sequence, ordered };
    pair.inject(0, path, &[Frame::Packet { header, packet: &packet }]);
}

const WAY: Duration = Duration::from_millis(1);

/// The path from link 0 to link 0, of 1 ms.
const FAST: u16 = 0;

/// Resequencing frames of the engine under test have lower numbers.
const LATER: u64 = 1_000;

/// [S-1]
#[test]
fn no_packet_is_delivered_twice_on_any_path() {
    for ordered in [true, false] {
        let mut pair = running();
        for path in 0..4 {
            for sequence in 0..3 {
                inject(&mut pair, path, 50, sequence, ordered);
            }
        }
        pair.run_for(SECOND);
        assert_eq!(sequences(&pair.out[1].packets), [0, 1, 2]);
        assert_eq!(pair.drops(1, DropReason::Duplicate), 9);
    }
}

/// Injects packets of `session` without order for 200 ms: 100 numbers each millisecond, of which
/// every other one comes 100 ms late. Returns how many there were.
fn inject_fast(pair: &mut Pair, session: u32) -> u32 {
    let (most, late) = (20_000, 100 * 100);
    for now in (0..most + late).step_by(100) {
        for step in (now..now + 100).step_by(2) {
            if step < most {
                inject(pair, FAST, session, step, false);
            }
            if let Some(before) = step.checked_sub(late) {
                inject(pair, FAST, session, before + 1, false);
            }
        }
        pair.run_for(WAY);
    }
    pair.run_for(WAY);
    most
}

/// [S-1] [S-3]
#[test]
fn of_a_fast_session_without_order_what_is_late_by_thousands_of_packets_is_delivered_once() {
    let mut pair = running();
    let sent = inject_fast(&mut pair, 50);
    let mut arrived = sequences(&pair.out[1].packets);
    arrived.sort_unstable();
    assert_eq!(arrived.len(), sent as usize);
    assert!(arrived.into_iter().eq(0..sent), "each once");
    for sequence in [1, sent - 2] {
        inject(&mut pair, FAST, 50, sequence, false);
        pair.run_for(WAY);
    }
    assert_eq!(pair.drops(1, DropReason::Duplicate), 2);
}

#[test]
fn one_session_in_1024_may_be_so_fast_at_a_time() {
    let mut pair = Pair::with(|_, config| config.limits.sessions = 1_024);
    pair.run_for(SECOND);
    let arrived = |pair: &mut Pair, session| {
        pair.out[1].packets.clear();
        let sent = inject_fast(pair, session);
        (pair.out[1].packets.len() as u32, sent)
    };
    let (first, sent) = arrived(&mut pair, 50);
    assert_eq!(first, sent);
    let (second, _) = arrived(&mut pair, 51);
    assert!((sent / 2..sent).contains(&second), "{second}");
    pair.inject(0, FAST, &[Frame::SessionClose { session: SessionId(50) }]);
    assert_eq!(arrived(&mut pair, 52).0, sent, "the place of the first one is free");
    inject(&mut pair, FAST, 52, sent, true);
    pair.run_for(WAY);
    assert_eq!(arrived(&mut pair, 53).0, sent, "that of one that is put in order, too");
}

#[test]
fn a_session_says_on_which_paths_its_packets_travelled_lately() {
    let mut pair = running();
    inject(&mut pair, 0, 50, 0, true);
    inject(&mut pair, 3, 50, 1, true);
    pair.run_for(WAY * 500);
    let paths = |pair: &mut Pair| {
        let now = pair.now;
        let status = pair.engines[1].status(now, true);
        let session = status.peers[0].sessions.iter().find(|session| session.id == 50);
        let paths = &session.expect("known").paths;
        paths.iter().map(|(path, _)| *path).collect::<Vec<_>>()
    };
    assert_eq!(paths(&mut pair), [0, 3]);
    inject(&mut pair, 2, 50, 2, true);
    pair.run_for(SECOND * 4);
    inject(&mut pair, 1, 50, 3, true);
    pair.run_for(WAY * 500);
    assert_eq!(paths(&mut pair), [1], "those of four seconds ago are forgotten");
}

/// [S-2]
#[test]
fn a_gap_holds_back_its_own_session_only() {
    let mut pair = running();
    for (session, sequence) in [(50, 0), (50, 2), (51, 0), (51, 1)] {
        inject(&mut pair, FAST, session, sequence, true);
    }
    pair.run_for(WAY);
    assert_eq!(sequences(&pair.out[1].packets), [0, 0, 1]);
    inject(&mut pair, FAST, 50, 1, true);
    pair.run_for(WAY);
    assert_eq!(sequences(&pair.out[1].packets), [0, 0, 1, 1, 2]);
}

/// [S-11]
#[test]
fn a_packet_is_delivered_at_its_playout_time_and_not_much_later() {
    let mut pair = running();
    // Both engines of the harness use the same clock.
    let at = |pair: &Pair, millis: u64| ((pair.now.as_micros() + millis * 1_000) >> 8) as u16;
    let send = |pair: &mut Pair, sequence, at| {
        let packet = tcp(0, sequence, 20);
        let header = PacketFrameHeader { session: SessionId(50), sequence, ordered: true };
        let frames = [Frame::Playout { at }, Frame::Packet { header, packet: &packet }];
        pair.inject(0, FAST, &frames);
    };
    let due = at(&pair, 50);
    send(&mut pair, 0, due);
    pair.run_for(Duration::from_millis(40));
    assert!(pair.out[1].packets.is_empty());
    pair.run_for(Duration::from_millis(11));
    assert_eq!(sequences(&pair.out[1].packets), [0]);
    // A time that has passed, and one that is implausibly far away.
    let (passed, far) = (at(&pair, 0).wrapping_sub(50), at(&pair, 3_000));
    send(&mut pair, 1, passed);
    send(&mut pair, 2, far);
    pair.run_for(WAY);
    assert_eq!(sequences(&pair.out[1].packets), [0, 1, 2]);
}

/// [S-3]
#[test]
fn unordered_packets_of_an_ordered_session_are_not_held_back() {
    let mut pair = running();
    for (sequence, ordered) in [(0, true), (2, true), (3, false), (5, false)] {
        inject(&mut pair, FAST, 50, sequence, ordered);
    }
    pair.run_for(WAY);
    assert_eq!(sequences(&pair.out[1].packets), [0, 3, 5]);
    for sequence in [1, 4] {
        inject(&mut pair, FAST, 50, sequence, true);
    }
    pair.run_for(WAY);
    assert_eq!(sequences(&pair.out[1].packets), [0, 3, 5, 1, 2, 4]);
}

/// What arrives within two milliseconds of two segments of `payload` bytes, the first of which is
/// lost.
fn arrives_after_a_lost_one(payload: usize) -> Vec<u32> {
    let mut pair = running();
    pair.send(0, &tcp(0, 0, payload), Offload::default());
    pair.run_for(SECOND / 10);
    pair.out[1].packets.clear();
    pair.pass = |_, _, _| false;
    pair.send(0, &tcp(0, 1, payload), Offload::default());
    pair.run_for(WAY / 10);
    pair.pass = |_, _, _| true;
    pair.send(0, &tcp(0, 2, payload), Offload::default());
    pair.run_for(WAY * 2);
    sequences(&pair.out[1].packets)
}

#[test]
fn an_acknowledgement_does_not_wait_for_one_before_it() {
    assert_eq!(arrives_after_a_lost_one(0), [2]);
    assert_eq!(arrives_after_a_lost_one(20), [] as [u32; 0], "data does");
}

/// [S-3]
#[test]
fn unordered_packets_are_delivered_in_order_of_arrival() {
    let mut pair = running();
    for sequence in [2, 0, 3, 1] {
        inject(&mut pair, FAST, 50, sequence, false);
    }
    pair.run_for(WAY);
    assert_eq!(sequences(&pair.out[1].packets), [2, 0, 3, 1]);
}

/// [S-4]
#[test]
fn the_resequencing_timeout_is_the_advertised_one_within_bounds() {
    for (told, waited) in [(20_000, 20), (300_000, 300), (60_000_000, 2_000)] {
        let mut pair = running();
        pair.inject(0, FAST, &[Frame::Resequencing { sequence: LATER, max_wait: told }]);
        inject(&mut pair, FAST, 50, 0, true);
        inject(&mut pair, FAST, 50, 2, true);
        pair.run_for(WAY);
        pair.run_for(Duration::from_millis(waited - 1));
        assert_eq!(sequences(&pair.out[1].packets), [0], "{told}");
        pair.run_for(Duration::from_millis(1));
        assert_eq!(sequences(&pair.out[1].packets), [0, 2], "{told}");
    }
}

/// [S-12]
#[test]
fn an_older_resequencing_timeout_does_not_replace_a_newer_one() {
    let mut pair = running();
    for (sequence, max_wait) in [(LATER + 1, 300_000), (LATER, 20_000), (LATER + 1, 20_000)] {
        pair.inject(0, FAST, &[Frame::Resequencing { sequence, max_wait }]);
    }
    inject(&mut pair, FAST, 50, 0, true);
    inject(&mut pair, FAST, 50, 2, true);
    pair.run_for(WAY);
    pair.run_for(Duration::from_millis(299));
    assert_eq!(sequences(&pair.out[1].packets), [0]);
    pair.run_for(Duration::from_millis(1));
    assert_eq!(sequences(&pair.out[1].packets), [0, 2]);
}

/// [S-5]
#[test]
fn skipped_packets_are_not_waited_for() {
    let mut pair = running();
    inject(&mut pair, FAST, 50, 0, true);
    inject(&mut pair, FAST, 50, 4, true);
    pair.run_for(WAY);
    assert_eq!(sequences(&pair.out[1].packets), [0]);
    pair.inject(0, FAST, &[Frame::Skip { session: SessionId(50), first: 1, count: 3 }]);
    pair.run_for(WAY);
    assert_eq!(sequences(&pair.out[1].packets), [0, 4]);
}

fn compact(datagram: &Tapped) -> bool {
    datagram.frames().any(|frame| matches!(frame, Frame::CompactPacket { .. }))
}

fn opened(datagram: &Tapped) -> Option<SessionFields> {
    datagram.frames().find_map(|frame| match frame {
        Frame::SessionOpen { fields, .. } => Some(fields),
        _ => None,
    })
}

/// When `datagram` was acknowledged, according to the tap.
fn acknowledged(datagrams: &[Tapped], datagram: &Tapped) -> Option<Instant> {
    let told = datagram.opened.as_ref()?;
    let covers = |frame| match frame {
        Frame::Feedback(feedback) => {
            let covers = |r: AckRange| r.first <= told.number && told.number <= r.last;
            feedback.path.0 == told.path && feedback.ranges.iter().any(covers)
        }
        _ => false,
    };
    let mut back = datagrams.iter().filter(|d| d.host != datagram.host);
    back.find(|d| d.frames().any(covers)).map(|d| d.at)
}

/// Sends packets of one TCP connection, 5 ms apart, whose time to live is `hops`.
fn talk(pair: &mut Pair, from: u32, hops: u8) {
    for n in from..from + 40 {
        let mut packet = tcp(0, n, 100);
        packet[8] = hops;
        complete(&mut packet);
        pair.send(0, &packet, Offload::default());
        pair.run_for(SECOND / 200);
    }
}

/// Completes both checksums of a TCP packet: only such packets have a compact form.
fn complete(packet: &mut [u8]) {
    let sum = |pieces: &[&[u8]]| {
        let words = pieces.iter().flat_map(|piece| piece.chunks(2));
        let mut sum: u32 =
            words.map(|w| u32::from(w[0]) << 8 | w.get(1).map_or(0, |b| u32::from(*b))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    };
    packet[10..12].fill(0);
    let header = sum(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&header.to_be_bytes());
    packet[36..38].fill(0);
    let len = (packet.len() - 20) as u16;
    let transport = sum(&[&packet[12..20], &[0, 6], &len.to_be_bytes(), &packet[20..]]);
    packet[36..38].copy_from_slice(&transport.to_be_bytes());
}

/// Whether host 1 asks for order for its first packets of UDP, after `asked` by host 0.
fn first_flight_is_ordered(asked: bool) -> bool {
    let mut pair = running();
    if asked {
        pair.send(0, &udp(0, 100), Offload::default());
        pair.run_for(SECOND / 10);
    }
    let mut answer = udp(1, 1_200);
    let (source, destination) = answer[12..20].split_at_mut(4);
    source.swap_with_slice(destination);
    let (source, destination) = answer[20..24].split_at_mut(2);
    source.swap_with_slice(destination);
    pair.tap = Some(Vec::new());
    pair.send(1, &answer, Offload::default());
    pair.send(1, &answer, Offload::default());
    pair.run_for(SECOND / 10);
    let datagrams = pair.tapped();
    let frames = datagrams.iter().filter(|datagram| datagram.host == 1).flat_map(Tapped::frames);
    let orders: Vec<bool> = frames
        .filter_map(|frame| match frame {
            Frame::Packet { header, .. } => Some(header.ordered),
            _ => None,
        })
        .collect();
    assert_eq!(orders.len(), 2);
    assert_eq!(orders[0], orders[1]);
    orders[0]
}

#[test]
fn full_packets_that_answer_the_peer_are_put_in_order_from_the_first_on() {
    assert!(first_flight_is_ordered(true), "a server's first flight");
    assert!(!first_flight_is_ordered(false), "nothing answers them");
}

/// [S-6] [S-9]
#[test]
fn compact_packets_follow_an_acknowledged_open_and_its_fields_never_change() {
    let mut pair = running();
    pair.tap = Some(Vec::new());
    talk(&mut pair, 0, 64);
    // The receiver has lost the session, and the TTL has changed meanwhile.
    pair.inject(1, FAST, &[Frame::SessionUnknown { session: SessionId(0) }]);
    let forgotten = pair.now + WAY;
    talk(&mut pair, 40, 60);
    let datagrams = pair.tapped();
    let opens: Vec<_> = datagrams.iter().filter(|d| d.host == 0 && opened(d).is_some()).collect();
    assert_eq!(opens.len(), 2);
    let fields: Vec<_> = opens.iter().filter_map(|d| opened(d)).collect();
    assert_eq!(fields[0].at(fields[1].sequence), fields[1]);
    for (open, (from, to)) in opens.iter().zip([(Instant::ZERO, forgotten), (forgotten, pair.now)])
    {
        let known = acknowledged(&datagrams, open).expect("acknowledged") + WAY;
        let mut sent = datagrams.iter().filter(|d| compact(d) && d.at > from && d.at <= to);
        let first = sent.next().expect("compact packets");
        assert!(first.at >= known, "{:?} before {known:?}", first.at);
    }
    assert_eq!(sequences(&pair.out[1].packets), (0..80).collect::<Vec<_>>());
    assert!(pair.out[1].packets[79][8] == 60 && pair.out[1].packets[0][8] == 64);
}

/// [S-7]
#[test]
fn a_session_number_is_not_reused() {
    let mut pair = running();
    pair.send(0, &tcp(0, 0, 100), Offload::default());
    pair.run_for(SECOND);
    assert_eq!(pair.association(0).sending(), [0]);
    pair.run_for(SECOND * 121);
    assert!(pair.association(0).sending().is_empty(), "forgotten after 120 s");
    pair.send(0, &tcp(0, 1, 100), Offload::default());
    pair.run_for(SECOND);
    assert_eq!(pair.association(0).sending(), [1]);
    assert_eq!(sequences(&pair.out[1].packets), [0, 1]);
}

fn foreign_fields() -> SessionFields {
    let destination = Ipv4Addr::new(198, 19, 0, 2);
    SessionFields {
        sequence: 0,
        protocol: 6,
        traffic_class: 0,
        hop_limit: 64,
        network: NetworkFields::V4 {
            source: Ipv4Addr::new(198, 19, 0, 99),
            destination,
            identification: 0,
            dont_fragment: true,
        },
        source_port: 1,
        destination_port: 2,
    }
}

/// A compact TCP packet: control byte, sequence, acknowledgement, window, payload.
const COMPACT: [u8; 15] = [0, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, b'd', b'a', b't', b'a'];

fn inject_compact(pair: &mut Pair, session: u32, sequence: u32) {
    let sequence = TruncatedSequence::new(sequence);
    let header = CompactFrameHeader { session: SessionId(session), sequence, ordered: false };
    pair.inject(0, FAST, &[Frame::CompactPacket { header, compact: &COMPACT }]);
}

/// [S-8] [S-10]
#[test]
fn sources_that_are_not_the_peers_are_refused_in_every_form() {
    let mut pair = running();
    let mut packet = tcp(0, 1, 10);
    packet[15] = 99;
    let header = PacketFrameHeader { session: SessionId(50), sequence: 0, ordered: false };
    pair.inject(0, FAST, &[Frame::Packet { header, packet: &packet }]);
    let session = SessionId(51);
    pair.inject(0, FAST, &[Frame::SessionOpen { session, fields: foreign_fields() }]);
    pair.run_for(WAY);
    assert_eq!(pair.drops(1, DropReason::ForeignSource), 2);
    inject_compact(&mut pair, 51, 0);
    pair.run_for(WAY);
    assert!(pair.out[1].packets.is_empty());

    let mut fields = foreign_fields();
    if let NetworkFields::V4 { source, .. } = &mut fields.network {
        *source = Ipv4Addr::new(198, 19, 0, 1);
    }
    pair.inject(0, FAST, &[Frame::SessionOpen { session, fields }]);
    inject_compact(&mut pair, 51, 1);
    pair.run_for(WAY);
    assert_eq!(pair.out[1].packets.len(), 1, "with the right source it is restored");
}

/// [S-9]
#[test]
fn compact_packets_without_fields_are_dropped_and_reported_at_a_limited_rate() {
    let mut pair = running();
    pair.tap = Some(Vec::new());
    for sequence in 0..50 {
        inject_compact(&mut pair, 51, sequence);
        pair.run_for(Duration::from_millis(2));
    }
    assert!(pair.out[1].packets.is_empty());
    assert_eq!(pair.drops(1, DropReason::UnknownSession), 50);
    let reports = pair.tapped();
    let reports = reports.iter().flat_map(Tapped::frames);
    let session = SessionId(51);
    let reports = reports.filter(|frame| *frame == Frame::SessionUnknown { session }).count();
    assert!((1..=2).contains(&reports), "{reports} reports in 100 ms");
}
