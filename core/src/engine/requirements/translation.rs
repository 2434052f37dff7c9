//! NAT (section 13 of the protocol): connections of peers behind NATs.
//!
//! Host 0 is behind a NAT on its first link and has another link without.

use std::collections::BTreeSet;

use super::super::harness::{Packets, Pair, SECOND};
use super::super::*;
use crate::config::Policy;
use crate::translation::rewrite::tests::{Kind, error, is_right, packet};
use mpip_types::Offload;
use mpip_types::Prefix;
use mpip_types::packet::{Endpoint, Header};

pub(super) const SYN: u8 = 0x02;
pub(super) const ACK: u8 = 0x10;
const FIN: u8 = 0x01;

/// The public address of host 0.
pub(super) const SHOWN: [u8; 4] = [203, 0, 113, 7];

pub(super) fn end(address: [u8; 4], port: u16) -> Endpoint {
    Endpoint { address: address.into(), port }
}

pub(super) fn client(port: u16) -> Endpoint {
    end([198, 18, 0, 1], port)
}

pub(super) fn server() -> Endpoint {
    end([198, 18, 0, 2], 80)
}

/// Two hosts in host mode, configured for each other.
pub(super) fn behind(adjust: impl Fn(usize, &mut Config)) -> Pair {
    let mut pair = Pair::with(|host, config| {
        config.peers[0].host_mode = true;
        config.peers[0].policy = Policy::Prefer;
        config.peers[0].allowed_prefixes.clear();
        adjust(host, config);
    });
    pair.translated = Some((0, (SHOWN, 40_000).into()));
    pair.run_for(SECOND * 2);
    pair
}

/// The source and the destination of a packet.
pub(super) fn ends(packet: &[u8]) -> (Endpoint, Endpoint) {
    let key = Header::parse(packet).expect("a packet").session();
    (key.source, key.destination)
}

/// Sends a packet of host 0 and returns what host 1 gets.
fn up(pair: &mut Pair, bytes: &[u8]) -> Vec<Vec<u8>> {
    across(pair, 0, bytes)
}

pub(super) fn across(pair: &mut Pair, host: usize, bytes: &[u8]) -> Vec<Vec<u8>> {
    pair.out[1 - host].packets.clear();
    pair.send(host, bytes, Offload::default());
    pair.run_for(Duration::from_millis(20));
    core::mem::take(&mut pair.out[1 - host].packets)
}

/// Opens a connection from `port` of host 0; returns its public endpoint.
pub(super) fn open(pair: &mut Pair, port: u16) -> Endpoint {
    let got = up(pair, &packet(Kind::Tcp(SYN), client(port), server(), &[]));
    assert_eq!(
        got.len(),
        1,
        "from port {port}: {:?} {:?}",
        pair.engines[1].shared.drops,
        pair.engines[0].shared.drops
    );
    let public = ends(&got[0]).0;
    let answer = packet(Kind::Tcp(SYN | ACK), server(), public, &[]);
    assert_eq!(across(pair, 1, &answer).len(), 1);
    public
}

pub(super) fn plain(pair: &mut Pair, host: usize) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    pair.engines[host].take_plain(&mut Packets(&mut packets));
    packets
}

/// [P-20] [T-1] [T-2] [T-3] [T-5]
#[test]
fn a_connection_has_the_public_source_at_the_host_and_its_answers_the_private_destination() {
    let mut pair = behind(|_, _| {});
    let public = open(&mut pair, 5_000);
    assert_eq!(public.address, IpAddr::from(SHOWN));
    assert!(crate::TRANSLATED_PORTS.contains(&public.port), "{public}");
    for round in 0..40u8 {
        let payload = [round; 100];
        let sent = packet(Kind::Tcp(ACK), client(5_000), server(), &payload);
        let got = up(&mut pair, &sent);
        // First as full packets, later as compact ones, in both directions.
        assert_eq!(got.len(), 1);
        assert_eq!(ends(&got[0]), (public, server()));
        assert_eq!(got[0][40..], payload);
        let answer = packet(Kind::Tcp(ACK), server(), public, &payload);
        let got = across(&mut pair, 1, &answer);
        assert_eq!(got.len(), 1);
        assert_eq!(ends(&got[0]), (server(), client(5_000)));
        assert_eq!(got[0][40..], payload);
    }
    assert!(pair.tapped().is_empty() && plain(&mut pair, 0).is_empty());
    let status = |host: usize| pair.engines[host].status(pair.now, false).peers[0].clone();
    assert_eq!([status(0).translated, status(1).translated], [1, 1]);
    assert_eq!(status(1).nats, [Prefix::host(SHOWN.into())]);
    assert_eq!(status(1).traffic, Some(crate::Traffic::Multipath));
}

/// [T-5]
#[test]
fn full_packets_delivered_to_host_1_have_right_checksums() {
    let mut pair = behind(|_, _| {});
    let echo = Endpoint { port: 77, ..client(0) };
    let to = Endpoint { port: 77, ..server() };
    for sent in [
        packet(Kind::Tcp(SYN), client(6_000), server(), &[]),
        packet(Kind::EchoRequest, echo, to, &[1; 60]),
    ] {
        let got = up(&mut pair, &sent);
        assert!(is_right(&got[0]));
    }
}

/// [T-3]
#[test]
fn no_two_connections_share_a_public_end() {
    let mut pair = behind(|_, _| {});
    let mut seen = BTreeSet::new();
    let mut chosen = 0;
    for port in 0..200 {
        let own = 20_000 + port;
        let public = open(&mut pair, own);
        chosen += u32::from(public.port == own);
        assert!(seen.insert(public), "{public} twice");
    }
    assert!(chosen < 3, "the peer does not choose: {chosen} have the port that it has");
}

/// [T-4] [T-7]
#[test]
fn a_connection_that_began_as_plain_ip_stays_plain() {
    let mut pair = behind(|_, _| {});
    let running = packet(Kind::Tcp(ACK), client(5_000), server(), &[1; 10]);
    let datagram = packet(Kind::Udp, client(5_000), server(), &[1; 10]);
    let reply = packet(Kind::EchoReply, client(5), Endpoint { port: 5, ..server() }, &[]);
    let message = error(client(0).address, server().address, &running, 100);
    for sent in [running, datagram, reply, message] {
        assert_eq!(up(&mut pair, &sent), Vec::<Vec<u8>>::new());
        assert_eq!(plain(&mut pair, 0), [sent]);
    }
    assert_eq!(pair.engines[1].status(pair.now, false).peers[0].translated, 0);
}

/// [T-1] [T-4] Whatever the sender does.
#[test]
fn only_translatable_packets_are_accepted() {
    let mut pair = behind(|_, _| {});
    let before = pair.drops(1, DropReason::ForeignSource);
    let elsewhere = end([198, 18, 0, 200], 80);
    let nobody = end([10, 0, 0, 1], 5_000);
    let to_another = packet(Kind::Tcp(SYN), client(5_000), elsewhere, &[]);
    let header = mpip_wire::PacketFrameHeader {
        session: mpip_wire::SessionId(999),
        sequence: 0,
        ordered: false,
    };
    pair.inject(0, 0, &[mpip_wire::Frame::Packet { header, packet: &to_another }]);
    pair.run_for(Duration::from_millis(20));
    assert_eq!(pair.drops(1, DropReason::ForeignDestination), 1);
    let refused = [
        // An unknown connection.
        packet(Kind::Tcp(ACK), client(5_000), server(), &[]),
        // From an address that the peer does not advertise.
        packet(Kind::Tcp(SYN), nobody, server(), &[]),
    ];
    for (number, sent) in refused.iter().enumerate() {
        let header = mpip_wire::PacketFrameHeader {
            session: mpip_wire::SessionId(1_000 + number as u32),
            sequence: 0,
            ordered: false,
        };
        pair.inject(0, 0, &[mpip_wire::Frame::Packet { header, packet: sent }]);
        pair.run_for(Duration::from_millis(20));
        assert_eq!(pair.drops(1, DropReason::ForeignSource), before + 1 + number as u64);
    }
    assert!(pair.out[1].packets.is_empty());
}

/// [T-6]
#[test]
fn errors_find_their_connection_in_both_directions() {
    let mut pair = behind(|_, _| {});
    let public = open(&mut pair, 5_000);
    let got = packet(Kind::Tcp(ACK), public, server(), &[]);
    let message = error(server().address, public.address, &got, 28);
    let shown = across(&mut pair, 1, &message);
    let sent = packet(Kind::Tcp(ACK), client(5_000), server(), &[]);
    assert_eq!(shown, [error(server().address, client(0).address, &sent, 28)]);

    let answer = packet(Kind::Tcp(ACK), server(), client(5_000), &[]);
    let message = error(client(0).address, server().address, &answer, 28);
    let shown = up(&mut pair, &message);
    let answer = packet(Kind::Tcp(ACK), server(), public, &[]);
    assert_eq!(shown, [error(public.address, server().address, &answer, 28)]);
}

/// [T-9]
#[test]
fn packets_to_a_nat_of_no_connection_leave_unchanged() {
    let mut pair = behind(|_, _| {});
    let public = open(&mut pair, 5_000);
    let unrelated = Endpoint { port: public.port ^ 1, ..public };
    let other_service = Endpoint { port: 443, ..server() };
    for sent in [
        packet(Kind::Tcp(ACK), server(), unrelated, &[2; 9]),
        packet(Kind::Tcp(ACK), other_service, public, &[2; 9]),
        packet(Kind::Udp, server(), public, &[2; 9]),
        packet(Kind::EchoRequest, server(), public, &[2; 9]),
    ] {
        assert_eq!(across(&mut pair, 1, &sent), Vec::<Vec<u8>>::new());
        assert_eq!(plain(&mut pair, 1), [sent]);
    }
}

/// [T-7] Connections that began on the paths wait for them; new ones do not.
#[test]
fn without_a_path_old_connections_wait_and_new_ones_are_plain() {
    let mut pair = behind(|_, _| {});
    let public = open(&mut pair, 5_000);
    pair.dead = vec![0, 1];
    pair.run_for(SECOND * 2);
    let status = pair.engines[0].status(pair.now, false).peers.swap_remove(0);
    assert_eq!(status.traffic, Some(crate::Traffic::Plain));
    assert_eq!(status.captured, [Prefix::host(server().address)], "where something waits");
    let old = packet(Kind::Tcp(ACK), client(5_000), server(), &[3; 10]);
    assert!(up(&mut pair, &old).is_empty() && plain(&mut pair, 0).is_empty());
    let answer = packet(Kind::Tcp(ACK), server(), public, &[3; 10]);
    assert!(across(&mut pair, 1, &answer).is_empty() && plain(&mut pair, 1).is_empty());
    let new = packet(Kind::Tcp(SYN), client(5_001), server(), &[]);
    assert!(up(&mut pair, &new).is_empty());
    assert_eq!(plain(&mut pair, 0), [new]);

    pair.dead.clear();
    pair.run_for(SECOND * 5);
    pair.out[1].packets.clear();
    let got = up(&mut pair, &old);
    assert_eq!(got.iter().map(|packet| ends(packet)).collect::<Vec<_>>(), [(public, server())]);
    let new = packet(Kind::Tcp(ACK), client(5_001), server(), &[4; 10]);
    assert!(up(&mut pair, &new).is_empty());
    assert_eq!(plain(&mut pair, 0), [new], "it began as plain IP");
}

/// [T-2] The NAT changes the public address during a connection.
#[test]
fn a_connection_keeps_its_public_end_when_the_path_moves() {
    let mut pair = behind(|_, _| {});
    let public = open(&mut pair, 5_000);
    pair.translated = Some((0, "203.0.113.99:7".parse().expect("valid")));
    pair.run_for(SECOND * 5);
    let got = up(&mut pair, &packet(Kind::Tcp(ACK), client(5_000), server(), &[5; 10]));
    assert_eq!(ends(&got[0]), (public, server()));
    let answer = packet(Kind::Tcp(ACK), server(), public, &[6; 10]);
    assert_eq!(ends(&across(&mut pair, 1, &answer)[0]).1, client(5_000));
    let second = open(&mut pair, 5_001);
    assert_eq!(second.address.to_string(), "203.0.113.99", "new ones come from there");
    let nats = pair.engines[1].status(pair.now, false).peers[0].nats.clone();
    assert_eq!(nats.len(), 2, "{nats:?}");
}

/// [T-8]
#[test]
fn connections_are_forgotten_in_time_and_at_the_bound() {
    let mut pair = behind(|host, config| {
        if host == 1 {
            config.limits.translated = 8;
        }
    });
    let count =
        |pair: &Pair, host: usize| pair.engines[host].status(pair.now, false).peers[0].translated;
    for port in 0..10 {
        open(&mut pair, 5_000 + port);
    }
    assert_eq!([count(&pair, 0), count(&pair, 1)], [10, 8]);
    let last = packet(Kind::Tcp(ACK), client(5_009), server(), &[]);
    assert_eq!(up(&mut pair, &last).len(), 1);
    // Half-open connections are removed first.
    pair.run_for(SECOND * 300);
    assert_eq!([count(&pair, 0), count(&pair, 1)], [1, 1]);
    let last = packet(Kind::Tcp(ACK | FIN), client(5_009), server(), &[]);
    assert_eq!(up(&mut pair, &last).len(), 1);
    pair.run_for(SECOND * 250);
    assert_eq!([count(&pair, 0), count(&pair, 1)], [0, 0]);
}

/// [T-8] Another run of the peer's daemon has none of the connections.
#[test]
fn a_close_ends_them() {
    let mut pair = behind(|_, _| {});
    open(&mut pair, 5_000);
    pair.inject(0, 0, &[mpip_wire::Frame::Close { reason: 0, message: "" }]);
    pair.run_for(Duration::from_millis(20));
    assert_eq!(pair.engines[1].status(pair.now, false).peers[0].translated, 0);
}

/// [T-7] The other node refuses the packets: its daemon does not translate.
#[test]
fn when_the_peer_does_not_translate_connections_are_plain_for_a_while() {
    let mut pair = behind(|host, config| {
        if host == 1 {
            config.limits.translated = 0;
        }
    });
    let syn = packet(Kind::Tcp(SYN), client(5_000), server(), &[]);
    assert!(up(&mut pair, &syn).is_empty() && plain(&mut pair, 0).is_empty());
    pair.run_for(SECOND);
    for again in [syn.clone(), packet(Kind::Tcp(SYN), client(5_001), server(), &[])] {
        assert!(up(&mut pair, &again).is_empty());
        assert_eq!(plain(&mut pair, 0), [again], "as TCP repeats it");
    }
    let follows = packet(Kind::Tcp(ACK), client(5_000), server(), &[]);
    assert!(up(&mut pair, &follows).is_empty());
    assert_eq!(plain(&mut pair, 0), [follows]);
    pair.run_for(SECOND * 60);
    let syn = packet(Kind::Tcp(SYN), client(5_002), server(), &[]);
    assert!(up(&mut pair, &syn).is_empty() && plain(&mut pair, 0).is_empty(), "tried again");
}

/// [T-7] With `require` nothing is plain: packets of connections that did not begin on the paths
/// are dropped.
#[test]
fn with_require_packets_of_unknown_connections_are_dropped() {
    let mut pair = behind(|host, config| {
        if host == 0 {
            config.peers[0].policy = Policy::Require;
        }
    });
    let running = packet(Kind::Tcp(ACK), client(5_000), server(), &[]);
    let running = pair.pool_packet(&running, Offload::default());
    let now = pair.now;
    let refused = pair.engines[0].handle_tun(now, running);
    assert_eq!(refused, Err(DropReason::NotBegun));
    assert!(plain(&mut pair, 0).is_empty());
    // A UDP packet cannot belong to a plain connection.
    let datagram = packet(Kind::Udp, client(5_000), server(), &[7; 30]);
    assert_eq!(ends(&up(&mut pair, &datagram)[0]).0.address, IpAddr::from(SHOWN));
}

/// [T-1] The other link of host 0 has no NAT: nothing changes there.
#[test]
fn an_address_without_nat_is_not_translated() {
    let mut pair = behind(|_, _| {});
    open(&mut pair, 5_000);
    let direct = end([198, 18, 1, 1], 5_000);
    let sent = packet(Kind::Tcp(ACK), direct, server(), &[8; 10]);
    assert_eq!(up(&mut pair, &sent), [sent]);
}

/// A connection through a NAT that the other host does not answer, because its daemon has no port
/// for it, is tried again as plain IP. One that is open cannot leave the paths.
#[test]
fn a_connection_through_a_nat_that_is_not_answered_opens_as_plain_ip() {
    let mut pair = behind(|_, _| {});
    open(&mut pair, 5_000);
    assert_eq!(up(&mut pair, &packet(Kind::Tcp(ACK), client(5_000), server(), &[1; 9])).len(), 1);
    let syn = packet(Kind::Tcp(SYN), client(5_001), server(), &[]);
    let mut left = Vec::new();
    for pause in [0, 1_000, 2_000, 4_000] {
        pair.run_for(Duration::from_millis(pause));
        up(&mut pair, &syn);
        left.push(plain(&mut pair, 0).len());
    }
    assert_eq!(left, [0, 0, 1, 1]);
    let ack = packet(Kind::Tcp(ACK), client(5_001), server(), &[2; 9]);
    assert!(up(&mut pair, &ack).is_empty());
    assert_eq!(plain(&mut pair, 0), [ack], "all of the connection is plain");

    let stuck = packet(Kind::Tcp(ACK), client(5_000), server(), &[1; 9]);
    for pause in [400, 800, 1_600, 3_200] {
        pair.run_for(Duration::from_millis(pause));
        assert_eq!(up(&mut pair, &stuck).len(), 1);
    }
    assert_eq!(plain(&mut pair, 0), [[0; 0]; 0]);
}
