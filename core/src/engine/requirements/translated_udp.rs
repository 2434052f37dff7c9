//! UDP through a NAT (section 13 of the protocol). Host 0 is behind one on its first link.

use super::super::harness::{Pair, SECOND};
use super::super::*;
use super::shared::unknown_peers;
use super::translation::{SYN, across, behind, client, ends, open, plain, server};
use crate::config::Policy;
use crate::translation::rewrite::tests::{Kind, error, is_right, packet};
use mpip_types::packet::Endpoint;
use mpip_types::{Offload, PartialChecksum, Segmentation, SegmentationKind};

const MS: Duration = Duration::from_millis(1);

/// Host 0 has listed these ports if its engine asks for them. Returns whether it did.
fn list(pair: &mut Pair, ports: &[u16]) -> bool {
    let mut asked = false;
    while let Some(capture) = pair.engines[0].poll_capture() {
        asked = capture.asks_udp_ports;
    }
    if asked {
        let mut plain = PortSet::empty();
        plain.extend(ports.iter().copied());
        pair.engines[0].handle_plain_udp_ports("host1", plain);
    }
    asked
}

/// Both hosts, once host 0 has listed these ports as in use.
fn listed(ports: &[u16], adjust: impl Fn(usize, &mut Config)) -> Pair {
    let mut pair = behind(adjust);
    assert!(list(&mut pair, ports));
    pair
}

fn datagram(port: u16, payload: &[u8]) -> Vec<u8> {
    packet(Kind::Udp, client(port), server(), payload)
}

/// Begins a flow from `port` of host 0, which the other host answers; returns its public end.
fn begin(pair: &mut Pair, port: u16) -> Endpoint {
    let got = across(pair, 0, &datagram(port, &[1; 30]));
    assert_eq!(got.len(), 1, "from port {port}");
    let public = ends(&got[0]).0;
    let answer = packet(Kind::Udp, server(), public, &[2; 30]);
    assert_eq!(across(pair, 1, &answer).len(), 1);
    public
}

/// Sends from `port` of host 0: whether that takes the paths, else it is plain.
fn takes_paths(pair: &mut Pair, port: u16) -> bool {
    let sent = datagram(port, &[9; 9]);
    let got = across(pair, 0, &sent);
    let left = plain(pair, 0);
    assert_eq!(got.len() + left.len(), 1, "port {port}");
    assert!(left.is_empty() || left == [sent]);
    !got.is_empty()
}

/// [T-1] [T-3] [T-5] [T-11]
#[test]
fn a_flow_from_a_new_port_takes_the_paths_in_both_directions() {
    let mut pair = listed(&[], |_, _| {});
    // Full packets have all of their checksum; that of others is completed later.
    let first = across(&mut pair, 0, &datagram(40_000, &[1; 9]));
    assert!(is_right(&first[0]));
    let public = begin(&mut pair, 40_000);
    assert!(crate::TRANSLATED_PORTS.contains(&public.port), "{public}");
    for round in 0..40_u8 {
        for kind in [Kind::Udp, Kind::UdpUnchecked] {
            let payload = [round; 200];
            let got = across(&mut pair, 0, &packet(kind, client(40_000), server(), &payload));
            assert_eq!(ends(&got[0]), (public, server()));
            assert_eq!(got[0][28..], payload);
            assert_eq!(got[0][26..28] == [0, 0], kind == Kind::UdpUnchecked, "its checksum");
            let answer = packet(kind, server(), public, &payload);
            let got = across(&mut pair, 1, &answer);
            assert_eq!(ends(&got[0]), (server(), client(40_000)));
            assert_eq!(got[0][28..], payload);
        }
    }
    assert!(plain(&mut pair, 0).is_empty() && plain(&mut pair, 1).is_empty());
    let translated = |host: usize| pair.engines[host].status(pair.now, false).peers[0].translated;
    assert_eq!([translated(0), translated(1)], [1, 1]);
}

/// [T-11]
#[test]
fn flows_from_ports_that_were_in_use_stay_plain() {
    let mut pair = behind(|_, _| {});
    assert!(!takes_paths(&mut pair, 40_001), "it is not known what is in use");
    assert!(list(&mut pair, &[40_000, 40_001]));
    let expected = [(40_000, false), (40_001, false), (40_002, true)];
    for (port, paths) in expected {
        assert_eq!(takes_paths(&mut pair, port), paths, "{port}");
    }
    assert!(!list(&mut pair, &[]), "nothing has changed");
}

/// [T-11]
#[test]
fn without_a_path_udp_is_plain_and_returns_with_the_same_public_end() {
    let mut pair = listed(&[], |_, _| {});
    let public = begin(&mut pair, 40_000);
    // A connection waits for the paths, so its destination stays captured, also for UDP.
    open(&mut pair, 5_000);
    pair.dead = vec![0, 1];
    pair.run_for(SECOND * 2);
    for port in [40_000, 40_001] {
        assert!(!takes_paths(&mut pair, port), "{port}");
    }
    pair.dead.clear();
    pair.run_for(SECOND * 5);
    assert!(list(&mut pair, &[40_000, 40_001]), "the capture is the same, but not the ports");
    assert!(!takes_paths(&mut pair, 40_001), "it began as plain IP");
    let got = across(&mut pair, 0, &datagram(40_000, &[3; 9]));
    assert_eq!(ends(&got[0]), (public, server()));
    let answer = packet(Kind::Udp, server(), public, &[4; 9]);
    assert_eq!(ends(&across(&mut pair, 1, &answer)[0]).1, client(40_000));
}

/// [T-11] The other host refuses UDP, and nothing else.
#[test]
fn when_udp_is_not_answered_it_is_plain_for_a_while_and_tcp_is_not() {
    let mut pair = listed(&[], |_, _| {});
    assert!(takes_paths(&mut pair, 40_000));
    pair.run_for(SECOND);
    for port in [40_001, 40_000] {
        assert!(!takes_paths(&mut pair, port), "{port}");
    }
    open(&mut pair, 5_000);
    assert!(!list(&mut pair, &[]));
    pair.run_for(SECOND * 60);
    assert!(!takes_paths(&mut pair, 40_002));
    pair.run_for(SECOND);
    assert!(list(&mut pair, &[40_000, 40_002]));
    assert!(!takes_paths(&mut pair, 40_000));
    begin(&mut pair, 40_001);
    pair.run_for(SECOND * 5);
    assert!(takes_paths(&mut pair, 40_003), "an answer has come");
}

/// [T-8] RFC 4787, requirements 5 and 6.
#[test]
fn packets_of_either_direction_keep_a_flow_and_five_minutes_without_one_end_it() {
    let mut pair = listed(&[], |_, _| {});
    let public = begin(&mut pair, 40_000);
    for round in 0..6 {
        pair.run_for(SECOND * 290);
        let answer = packet(Kind::Udp, server(), public, &[6; 9]);
        match round % 2 {
            0 => assert_eq!(ends(&across(&mut pair, 0, &datagram(40_000, &[6; 9]))[0]).0, public),
            _ => assert_eq!(across(&mut pair, 1, &answer).len(), 1),
        }
    }
    let count =
        |pair: &Pair, host: usize| pair.engines[host].status(pair.now, false).peers[0].translated;
    assert_eq!(count(&pair, 1), 1);
    pair.run_for(SECOND * 310);
    assert_eq!([count(&pair, 0), count(&pair, 1)], [0, 0]);
    let late = packet(Kind::Udp, server(), public, &[6; 9]);
    assert!(across(&mut pair, 1, &late).is_empty());
}

/// [T-6]
#[test]
fn errors_about_udp_find_their_flow_in_both_directions() {
    let mut pair = listed(&[], |_, _| {});
    let public = begin(&mut pair, 40_000);
    let got = packet(Kind::Udp, public, server(), &[1; 30]);
    let message = error(server().address, public.address, &got, 28);
    let sent = packet(Kind::Udp, client(40_000), server(), &[1; 30]);
    let shown = across(&mut pair, 1, &message);
    assert_eq!(shown, [error(server().address, client(0).address, &sent, 28)]);

    let answer = packet(Kind::Udp, server(), client(40_000), &[2; 30]);
    let message = error(client(0).address, server().address, &answer, 28);
    let shown = across(&mut pair, 0, &message);
    let answer = packet(Kind::Udp, server(), public, &[2; 30]);
    assert_eq!(shown, [error(public.address, server().address, &answer, 28)]);
}

/// The fragments of an IPv4 packet: the first with `head` bytes of its payload, then the rest.
fn fragments(whole: &[u8], head: usize) -> [Vec<u8>; 2] {
    let cut = |payload: &[u8], field: u16| {
        let mut bytes = whole[..20].to_vec();
        bytes[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
        bytes[6..8].copy_from_slice(&field.to_be_bytes());
        bytes[10..12].fill(0);
        let value = !mpip_types::packet::fold(mpip_types::packet::sum(&bytes));
        bytes[10..12].copy_from_slice(&value.to_ne_bytes());
        bytes.extend(payload);
        bytes
    };
    let (first, rest) = whole[20..].split_at(head);
    [cut(first, 0x2000), cut(rest, head as u16 / 8)]
}

/// [T-5]
#[test]
fn fragments_of_udp_are_translated_like_their_first() {
    let mut pair = listed(&[], |_, _| {});
    let public = begin(&mut pair, 40_000);
    let check = |pair: &mut Pair, host: usize, sent: Vec<u8>, expected: Vec<u8>| {
        let mut got: Vec<Vec<u8>> = Vec::new();
        for fragment in fragments(&sent, 496) {
            got.extend(across(pair, host, &fragment));
        }
        assert_eq!(got, fragments(&expected, 496));
    };
    let whole = |from, to| packet(Kind::Udp, from, to, &[7; 700]);
    check(&mut pair, 0, whole(client(40_000), server()), whole(public, server()));
    check(&mut pair, 1, whole(server(), public), whole(server(), client(40_000)));
}

/// [T-5]
#[test]
fn each_datagram_of_a_super_packet_is_translated() {
    const SIZE: usize = 300;
    let mut pair = listed(&[], |_, _| {});
    let public = begin(&mut pair, 40_000);
    let payload: Vec<u8> = (0..SIZE * 3 + 100).map(|n| n as u8).collect();
    let check = |pair: &mut Pair, host: usize, (from, to), shown: (Endpoint, Endpoint)| {
        let mut sent = packet(Kind::Udp, from, to, &payload);
        // The kernel leaves the checksum to the device: the field has the pseudo-header's sum.
        let pseudo = mpip_types::packet::sum(&sent[12..20])
            + u64::from(17_u16.to_be())
            + u64::from((sent.len() as u16 - 20).to_be());
        sent[26..28].copy_from_slice(&mpip_types::packet::fold(pseudo).to_ne_bytes());
        let offload = Offload {
            partial_checksum: Some(PartialChecksum { start: 20, offset: 6 }),
            segmentation: Some(Segmentation { kind: SegmentationKind::Udp, size: SIZE as u16 }),
        };
        pair.out[1 - host].packets.clear();
        pair.send(host, &sent, offload);
        pair.run_for(MS * 20);
        let got = core::mem::take(&mut pair.out[1 - host].packets);
        let parts: Vec<&[u8]> = got.iter().map(|packet| &packet[28..]).collect();
        assert_eq!(parts.concat(), payload);
        assert_eq!(got.len(), 4);
        assert!(got.iter().all(|packet| ends(packet) == shown));
    };
    check(&mut pair, 0, (client(40_000), server()), (public, server()));
    check(&mut pair, 1, (server(), public), (server(), client(40_000)));
}

/// [T-10] An unknown peer knows this node as little, and would refuse its UDP.
#[test]
fn no_udp_is_led_to_an_unknown_peer_that_shares_addresses() {
    let mut pair = unknown_peers();
    open(&mut pair, 5_000);
    assert!(!list(&mut pair, &[]));
    assert!(!takes_paths(&mut pair, 40_000));
}

/// [T-7] The peer has not told yet that it sees another address.
#[test]
fn connections_that_begin_before_the_nat_is_known_are_known_later() {
    for policy in [Policy::Prefer, Policy::Require] {
        let mut pair = behind(|host, config| {
            if host == 0 {
                config.peers[0].policy = policy;
            }
        });
        let observed = forget_observed(&mut pair);
        pair.run_for(SECOND);
        let public = open(&mut pair, 5_000);
        let running = packet(Kind::Tcp(0x10), client(6_000), server(), &[1; 9]);
        if policy == Policy::Prefer {
            assert!(across(&mut pair, 0, &running).is_empty());
            assert_eq!(plain(&mut pair, 0), [running]);
            assert!(!takes_paths(&mut pair, 40_000));
        }
        tell(&mut pair, &observed, false);
        pair.run_for(SECOND);
        let follows = packet(Kind::Tcp(0x10), client(5_000), server(), &[2; 9]);
        let got = across(&mut pair, 0, &follows);
        assert_eq!(ends(&got[0]), (public, server()), "{policy:?}");
    }
}

/// [T-7]
#[test]
fn connections_that_begin_before_an_address_proves_to_be_ours_are_as_any_others() {
    let mut pair = Pair::with(|_, config| {
        config.peers[0].host_mode = true;
        config.peers[0].policy = Policy::Prefer;
        config.peers[0].allowed_prefixes.clear();
    });
    pair.run_for(SECOND);
    let observed = forget_observed(&mut pair);
    pair.run_for(MS * 500);
    let syn = packet(Kind::Tcp(SYN), client(5_000), server(), &[]);
    assert_eq!(across(&mut pair, 0, &syn), [syn]);
    let count = |pair: &Pair| pair.engines[0].status(pair.now, false).peers[0].translated;
    assert_eq!(count(&pair), 1);
    tell(&mut pair, &observed, true);
    pair.run_for(SECOND);
    assert_eq!(count(&pair), 0);
    for sent in [packet(Kind::Tcp(0x10), client(6_000), server(), &[1; 9]), datagram(53, &[1; 9])] {
        assert_eq!(across(&mut pair, 0, &sent), [sent]);
    }
}

/// Host 0 knows no more how the peer sees its paths. Returns the paths and what it knew.
fn forget_observed(pair: &mut Pair) -> Vec<(u16, SocketAddr)> {
    let now = pair.now;
    pair.association(0).forget_observed(now)
}

/// The peer tells how it sees these paths of host 0.
fn tell(pair: &mut Pair, observed: &[(u16, SocketAddr)], taken: bool) {
    for (path, address) in observed {
        // The other link of host 0 has no NAT.
        let taken = taken || address.ip().to_string().starts_with("198.18.1.");
        let path_id = PathId(*path);
        let frame = mpip_wire::Frame::AddressObserved { path: path_id, address: *address, taken };
        pair.inject(1, *path, &[frame]);
        pair.run_for(MS * 10);
    }
}
/// [T-11]
#[test]
fn udp_that_waits_when_the_paths_fail_leaves_as_plain_ip_and_tcp_does_not() {
    let mut pair = listed(&[], |_, _| {});
    begin(&mut pair, 40_000);
    open(&mut pair, 5_000);
    pair.dead = vec![0, 1];
    // Heartbeats of both paths are unanswered by then, and neither has failed yet.
    pair.run_for(MS * 500);
    pair.out[0].full = true;
    let sent = datagram(40_000, &[5; 50]);
    let segment = packet(Kind::Tcp(0x10), client(5_000), server(), &[5; 50]);
    for bytes in [&sent, &segment] {
        pair.send(0, bytes, Offload::default());
    }
    pair.run_for(SECOND);
    assert_eq!(plain(&mut pair, 0), [sent]);
}
