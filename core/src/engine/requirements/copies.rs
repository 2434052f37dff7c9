//! Packets of priority `redundant`: copies on several paths.

use super::super::harness::{Pair, SECOND, Tapped, locals, sequences, tcp, udp};
use super::super::*;
use crate::config::{Copies, Priority, Rule};
use mpip_transport::cc::CongestionControlKind;
use mpip_types::Offload;

/// How many packets a test sends.
const PACKETS: u32 = 50;

/// Both hosts send everything as `redundant`.
fn redundant(copies: Copies) -> Pair {
    redundant_under(CongestionControlKind::None, copies)
}

fn redundant_under(control: CongestionControlKind, copies: Copies) -> Pair {
    let rule = Rule { priority: Some(Priority::Redundant), copies, ..Rule::default() };
    let mut pair = Pair::with(|_, config| {
        config.peers[0].congestion_control = control;
        config.rules = vec![rule.clone()];
    });
    pair.run_for(SECOND);
    pair
}

/// A packet of UDP, which has no order.
fn datagram(number: u32) -> Vec<u8> {
    udp(number, 100)
}

/// Sends packets, one each 5 ms; returns those of its datagrams that carry one.
fn sent(pair: &mut Pair, packets: &[Vec<u8>]) -> Vec<Tapped> {
    pair.tap = Some(Vec::new());
    for packet in packets {
        pair.send(0, packet, Offload::default());
        pair.run_for(Duration::from_millis(5));
    }
    pair.run_for(SECOND);
    pair.tapped().into_iter().filter(|d| d.host == 0 && d.carries()).collect()
}

#[test]
fn copies_leave_at_the_same_time_on_the_fastest_paths_and_one_is_delivered() {
    let make: [fn(u32) -> Vec<u8>; 2] = [datagram, |number| tcp(0, number, 100)];
    for (make, (copies, paths)) in
        make.into_iter().flat_map(|make| [(2, 2), (3, 3), (8, 4)].map(|counts| (make, counts)))
    {
        let mut pair = redundant(Copies::Fixed(copies));
        let packets: Vec<Vec<u8>> = (0..PACKETS).map(make).collect();
        let datagrams = sent(&mut pair, &packets);
        assert_eq!(pair.out[1].packets, packets);
        assert_eq!(datagrams.len(), packets.len() * paths);
        for each in datagrams.chunks(paths) {
            assert!(each.iter().all(|copy| copy.at == each[0].at));
            let on: BTreeSet<Option<u16>> = each.iter().map(Tapped::path).collect();
            assert_eq!(on.len(), paths, "each copy takes another path");
        }
        let others = (paths - 1) as u64 * u64::from(PACKETS);
        assert_eq!(pair.drops(1, DropReason::Duplicate), others);

        let status = pair.engines[0].status(pair.now, true);
        let peer = &status.peers[0];
        let bytes = packets.iter().map(|packet| packet.len() as u64).sum::<u64>();
        assert_eq!((peer.bytes_sent, peer.copied), (bytes, bytes * (paths as u64 - 1)));
        assert_eq!(peer.paths.iter().map(|path| path.copied).sum::<u64>(), peer.copied);
        let mut used = peer.paths.iter().filter(|path| path.carried + path.copied > 0);
        let slowest = peer.paths.iter().max_by_key(|path| path.relative_delay).expect("paths").id;
        assert_eq!(used.any(|path| path.id == slowest), paths == 4, "the slowest path is the last");
        let status = pair.engines[1].status(pair.now, true);
        let session = status.peers[0].sessions.iter().find(|session| !session.outgoing);
        assert_eq!(session.expect("a session").packets, u64::from(PACKETS));
    }
}

#[test]
fn of_the_copies_of_an_ordered_session_only_the_first_is_sent_again() {
    let mut pair = redundant_under(CongestionControlKind::Cubic, Copies::Fixed(2));
    // Every copy of these packets is lost once.
    pair.pass = |host, _, bytes| host == 1 || bytes.len() < 600;
    pair.tap = Some(Vec::new());
    for number in 0..PACKETS {
        pair.send(0, &tcp(0, number * 600, 600), Offload::default());
        pair.run_for(Duration::from_millis(1));
        if number == 5 {
            pair.pass = |_, _, _| true;
        }
    }
    pair.run_for(SECOND);
    let expected: Vec<u32> = (0..PACKETS).map(|number| number * 600).collect();
    assert_eq!(sequences(&pair.out[1].packets), expected);
    let carried = pair.tapped().iter().filter(|d| d.host == 0 && d.carries()).count();
    let sent_again = carried - PACKETS as usize * 2;
    assert!((6..=7).contains(&sent_again), "{sent_again}, of which one may be a tail loss probe");
}

#[test]
fn a_failed_path_costs_no_packet() {
    let mut pair = redundant(Copies::Fixed(2));
    let packets: Vec<Vec<u8>> = (0..PACKETS).map(datagram).collect();
    let (before, after) = packets.split_at(20);
    sent(&mut pair, before);
    pair.dead = vec![0];
    // One path is left, from the other link of one host to that of the other.
    for packet in after {
        pair.send(0, packet, Offload::default());
        pair.run_for(Duration::from_millis(40));
    }
    pair.run_for(SECOND);
    let lost = packets.len() - pair.out[1].packets.len();
    assert!(lost <= 8, "{lost} lost until the failure was known, in which 3 of 4 paths failed");
    let last = &packets[packets.len() - 10..];
    assert_eq!(&pair.out[1].packets[pair.out[1].packets.len() - 10..], last);
}

/// [P-28] [P-29]
#[test]
fn copies_before_validation_are_delivered_once() {
    let mut pair = redundant(Copies::Fixed(3));
    sent(&mut pair, &[datagram(0), tcp(0, 1, 100)]);
    let now = pair.now;
    pair.engines[0].handle_command(now, Command::LocalAddresses(vec![]));
    pair.run_for(SECOND);
    let packets = [datagram(2), tcp(0, 3, 100), datagram(4)];
    for packet in &packets {
        pair.send(0, packet, Offload::default());
    }
    pair.out[1].packets.clear();
    let copied = pair.engines[0].status(pair.now, false).peers[0].copied;
    let now = pair.now;
    pair.engines[0].handle_command(now, Command::LocalAddresses(locals(0)));
    pair.run_for(SECOND);
    assert_eq!(pair.out[1].packets.len(), packets.len());
    assert!(packets.iter().all(|packet| pair.out[1].packets.contains(packet)));
    let more = pair.engines[0].status(pair.now, false).peers[0].copied - copied;
    assert!(more > 0, "the paths to be validated carried copies");
}
