//! Path MTU.

use mpip_wire::Frame;

use super::super::harness::{Pair, SECOND, Tapped, address, locals, sequences, tcp};
use super::super::*;
use crate::config::SchedulerKind;
use mpip_transport::PathState;
use mpip_transport::cc::CongestionControlKind;
use mpip_types::{Offload, Segmentation, SegmentationKind};

/// Bytes of a datagram on a path with an MTU of 1,300 bytes: less 20 of IPv4 and 8 of UDP.
const HOLE: usize = 1_272;

/// All packets in round-robin order over all paths.
fn in_turn() -> Pair {
    let mut pair = Pair::new(|peer| {
        peer.scheduler = SchedulerKind::RoundRobin;
        peer.congestion_control = CongestionControlKind::Bbr;
    });
    pair.tap = Some(Vec::new());
    pair
}

/// An MTU black hole on every path over link 1.
fn hole_on_link_1(host: usize, to: PathAddress, bytes: &[u8]) -> bool {
    let far = (0..4).find(|link| address(1 - host, *link) == to.remote);
    bytes.len() <= HOLE || (to.local != LocalId(1) && far != Some(1))
}

fn is_probe(datagram: &Tapped) -> bool {
    let only = |frame| matches!(frame, Frame::Heartbeat | Frame::Padding(_));
    datagram.bytes.len() > 1_200 && datagram.opened.is_some() && datagram.frames().all(only)
}

/// MTU and state of every path of `host`, by identifier.
fn paths(pair: &Pair, host: usize) -> Vec<(u16, PathState)> {
    let status = pair.engines[host].status(pair.now, false);
    status.peers[0].paths.iter().map(|path| (path.mtu, path.state)).collect()
}

fn inner_mtu(pair: &Pair, host: usize) -> u16 {
    pair.engines[host].status(pair.now, false).peers[0].inner_mtu
}

/// The MTU in each "fragmentation needed" message that `host` got.
fn told(pair: &mut Pair, host: usize) -> Vec<u16> {
    let packets = core::mem::take(&mut pair.out[host].packets);
    let told = packets.iter().filter(|packet| packet[9] == 1 && packet[20..22] == [3, 4]);
    told.map(|packet| u16::from_be_bytes([packet[26], packet[27]])).collect()
}

/// [P-15] [P-16]
#[test]
fn a_path_with_a_small_mtu_is_used_up_to_it_and_lost_probes_do_no_harm() {
    let mut pair = in_turn();
    pair.pass = hole_on_link_1;
    pair.run_for(SECOND * 5);
    for host in 0..2 {
        let mut sizes: Vec<_> = paths(&pair, host).iter().map(|(mtu, _)| *mtu).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [1_300, 1_300, 1_300, 1_500]);
        assert_eq!(inner_mtu(&pair, host), 1_300 - 28 - 34);
        assert_eq!(pair.states(host), [PathState::Active; 4]);
        let status = pair.engines[host].status(pair.now, false);
        for path in &status.peers[0].paths {
            assert_eq!((path.packets_lost, path.loss), (0, 0.0), "probes are not counted");
        }
    }
    let probes = pair.tapped().into_iter().filter(is_probe).count();
    assert!((8..150).contains(&probes), "{probes}");
    // Packets that fit all paths are spread over them, a larger one uses the only path that carries
    // it.
    for (len, ways) in [(1_238, 4), (1_400, 1)] {
        for n in 0..40 {
            pair.send(0, &tcp(0, n, len - 40), Offload::default());
            pair.run_for(SECOND / 100);
        }
        let sent: Vec<_> = pair.tapped().into_iter().filter(|d| d.host == 0).collect();
        let used = sent.iter().filter(|d| d.bytes.len() > len).map(Tapped::path);
        let used = used.collect::<BTreeSet<_>>();
        assert_eq!(used.len(), ways, "packets of {len} bytes");
        let beyond = sent.iter().filter(|d| !hole_on_link_1(0, d.to, &d.bytes));
        assert_eq!(beyond.count(), 0, "nothing is sent into the hole any more");
    }
}

/// [P-17]
#[test]
fn a_new_mtu_black_hole_is_found_and_no_packet_is_missing() {
    let mut pair = in_turn();
    pair.run_for(SECOND);
    assert_eq!(paths(&pair, 0), [(1_500, PathState::Active); 4]);
    let mut sent = 0;
    for round in 0..400 {
        if round == 50 {
            pair.pass = hole_on_link_1;
        }
        for _ in 0..4 {
            pair.send(0, &tcp(0, sent, 1_360), Offload::default());
            sent += 1;
        }
        pair.run_for(SECOND / 200);
        assert!(pair.states(0).iter().all(|state| *state == PathState::Active), "at {round}");
    }
    pair.run_for(SECOND * 2);
    let mut arrived = sequences(&pair.out[1].packets);
    arrived.sort_unstable();
    assert_eq!(arrived, (0..sent).collect::<Vec<_>>());
    let mut sizes: Vec<_> = paths(&pair, 0).iter().map(|(mtu, _)| *mtu).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1_300, 1_300, 1_300, 1_500]);
}

/// Loses about a third of all long datagrams. Their last byte, of an authentication tag, is random.
fn lossy(_host: usize, _to: PathAddress, bytes: &[u8]) -> bool {
    bytes.len() < 1_000 || bytes.last().is_none_or(|last| *last >= 85)
}

#[test]
fn paths_that_lose_a_third_of_data_shorter_than_their_mtu_keep_it() {
    let mut pair = in_turn();
    pair.run_for(SECOND);
    assert_eq!(paths(&pair, 0), [(1_500, PathState::Active); 4]);
    pair.pass = lossy;
    for sent in 0..6_000 {
        pair.send(0, &tcp(0, sent, 1_300), Offload::default());
        pair.run_for(SECOND / 200);
        assert!(paths(&pair, 0).iter().all(|(mtu, _)| *mtu == 1_500), "after {sent} packets");
    }
}

#[test]
fn the_sender_of_a_packet_that_no_path_carries_is_notified() {
    let mut pair = in_turn();
    pair.pass = |_, _, bytes| bytes.len() <= HOLE;
    pair.run_for(SECOND * 5);
    pair.out[0].packets.clear();
    let big = tcp(0, 0, 1_200);
    let packet = pair.pool_packet(&big, Offload::default());
    let sent = pair.engines[0].handle_tun(pair.now, packet);
    assert_eq!(sent, Err(DropReason::TooBig));
    assert_eq!(pair.engines[0].poll_timeout(), Some(pair.now), "at once");
    pair.run_for(SECOND / 100);
    assert_eq!(told(&mut pair, 0), [1_238]);
    // For a super-packet the length of its segments counts.
    let segmentation = |size| Segmentation { kind: SegmentationKind::Tcp, size };
    for (size, expected) in [(1_198, vec![]), (1_199, vec![1_238])] {
        let offload = Offload { segmentation: Some(segmentation(size)), partial_checksum: None };
        let packet = pair.pool_packet(&tcp(0, 0, 4_000), offload);
        let sent = pair.engines[0].handle_tun(pair.now, packet);
        assert_eq!(sent.is_ok(), expected.is_empty());
        pair.run_for(SECOND / 100);
        assert_eq!(told(&mut pair, 0), expected);
    }
    // The messages are rate limited.
    for _ in 0..1_000 {
        let packet = pair.pool_packet(&big, Offload::default());
        let _ = pair.engines[0].handle_tun(pair.now, packet);
    }
    pair.run_for(SECOND / 100);
    assert!((1..=40).contains(&told(&mut pair, 0).len()));
}

#[test]
fn jumbo_frames_are_used_where_both_ends_have_them() {
    let mut pair = in_turn();
    let large = |host: usize| {
        let mut list = locals(host);
        list.iter_mut().for_each(|local| local.mtu = 9_000);
        list
    };
    pair.run_for(SECOND);
    for host in 0..2 {
        pair.engines[host].handle_command(pair.now, Command::LocalAddresses(large(host)));
    }
    pair.run_for(SECOND);
    assert_eq!((inner_mtu(&pair, 0), inner_mtu(&pair, 1)), (8_938, 8_938));
    pair.send(0, &tcp(0, 7, 4_000), Offload::default());
    pair.run_for(SECOND);
    assert_eq!(sequences(&pair.out[1].packets), [7]);
}
