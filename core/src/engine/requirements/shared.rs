//! Shared addresses: host 1 is not configured to know that host 0 is alone at its addresses.

use super::super::harness::{Pair, SECOND, address, tcp};
use super::super::*;
use super::translation::{ACK, SYN, across, client, end, ends, open, plain, server};
use crate::config::{Opportunistic, Policy};
use crate::translation::rewrite::tests::{Kind, packet};
use mpip_types::Offload;
use mpip_types::Prefix;
use mpip_types::packet::Endpoint;

/// The public address of host 0 at host 1.
const SHARED: [u8; 4] = [198, 18, 0, 1];

/// Both in host mode; the addresses of host 1 are exclusive, others may share those of host 0.
fn shared(adjust: impl Fn(usize, &mut Config)) -> Pair {
    let mut pair = Pair::with(|host, config| {
        config.peers[0].host_mode = true;
        config.peers[0].policy = Policy::Prefer;
        config.peers[0].allowed_prefixes.clear();
        if host == 1 {
            config.peers[0].exclusive.clear();
        }
        adjust(host, config);
    });
    pair.run_for(SECOND * 2);
    pair
}

/// The result of giving a packet of the host to the engine: `None` when the engine does not use it.
fn leaves(pair: &mut Pair, host: usize, bytes: &[u8]) -> Option<DropReason> {
    let (now, buffer) = (pair.now, pair.pool_packet(bytes, Offload::default()));
    let refused = pair.engines[host].handle_tun(now, buffer).err();
    pair.run_for(Duration::from_millis(20));
    refused
}

/// [P-20]
#[test]
fn receiving_at_one_port_of_an_address_does_not_prove_ownership_of_it() {
    let mut pair = shared(|_, _| {});
    let capture = pair.engines[1].poll_capture();
    let prefixes = capture.map(|capture| capture.prefixes).unwrap_or_default();
    assert_eq!(prefixes, [], "what its host sends to others there stays with them");
    for to in [SHARED, [198, 18, 1, 1]] {
        let begins = packet(Kind::Tcp(SYN), server(), end(to, 443), &[]);
        let refused = leaves(&mut pair, 1, &begins);
        assert!(refused == Some(DropReason::NoPeer) || plain(&mut pair, 1) == [begins]);
    }
    assert!(pair.out[0].packets.is_empty());
    // It may not send packets of connections that did not begin on the paths either.
    let before = pair.drops(1, DropReason::ForeignSource);
    inject(&mut pair, 900, &packet(Kind::Tcp(ACK), client(443), server(), &[1; 9]));
    let reply = packet(Kind::EchoReply, client(7), Endpoint { port: 7, ..server() }, &[]);
    inject(&mut pair, 901, &reply);
    assert_eq!(pair.drops(1, DropReason::ForeignSource), before + 2);
    assert!(pair.out[1].packets.is_empty());
}

/// [P-10] [P-20] [T-1] [T-2]
#[test]
fn connections_that_begin_on_the_paths_take_them() {
    let mut pair = shared(|_, _| {});
    let public = open(&mut pair, 5_000);
    assert_eq!(public.address, IpAddr::from(SHARED), "its own address, with a port of ours");
    assert!(crate::TRANSLATED_PORTS.contains(&public.port));
    let sent = packet(Kind::Tcp(ACK), client(5_000), server(), &[7; 50]);
    let got = across(&mut pair, 0, &sent);
    assert_eq!((ends(&got[0]), &got[0][40..]), ((public, server()), &[7; 50][..]));
    let answer = packet(Kind::Tcp(ACK), server(), public, &[8; 50]);
    assert_eq!(ends(&across(&mut pair, 1, &answer)[0]), (server(), client(5_000)));
    // Another of its addresses appears as this one.
    let other = end([198, 18, 1, 1], 5_000);
    let got = across(&mut pair, 0, &packet(Kind::Tcp(SYN), other, server(), &[]));
    assert_eq!(ends(&got[0]).0.address, other.address);

    // Host 0 knows that, and existing connections stay plain.
    let running = packet(Kind::Tcp(ACK), client(6_000), server(), &[1; 10]);
    let datagram = packet(Kind::Udp, client(6_000), server(), &[1; 10]);
    for sent in [running, datagram] {
        assert_eq!(across(&mut pair, 0, &sent), Vec::<Vec<u8>>::new());
        assert_eq!(plain(&mut pair, 0), [sent]);
    }
}

/// [P-10] Ownership of an address depends only on the configuration and on validation.
#[test]
fn a_node_learns_that_its_address_is_accepted_as_its_own() {
    let taken = |pair: &mut Pair, host: usize| {
        let paths = (0..4).filter_map(|path| pair.association(host).is_taken(path));
        paths.collect::<Vec<_>>()
    };
    let mut pair = shared(|_, _| {});
    assert_eq!(taken(&mut pair, 0), [false; 4]);
    assert_eq!(taken(&mut pair, 1), [true; 4]);
    let one: Prefix = "198.18.1.0/24".parse().expect("valid");
    let mut pair = shared(|host, config| {
        if host == 1 {
            config.peers[0].exclusive = vec![one];
        }
    });
    let links: Vec<_> = (0..4).filter_map(|path| pair.association(0).address_of(path)).collect();
    let own: Vec<_> = links.iter().map(|link| link.local == LocalId(1)).collect();
    assert_eq!(taken(&mut pair, 0), own);
    assert!(pair.engines[1].shared.prefixes.find(address(0, 1).ip()).is_some());
    assert_eq!(pair.engines[1].shared.prefixes.find(address(0, 0).ip()), None);
}

/// A segment of the host with these flags and this acknowledgement number.
fn segment(flags: u8, to: Endpoint, acknowledges: u32) -> Vec<u8> {
    let mut bytes = packet(Kind::Tcp(flags), server(), to, &[]);
    bytes[28..32].copy_from_slice(&acknowledges.to_be_bytes());
    bytes
}

/// The sequence number after the SYNs that the tests send.
const NEXT: u32 = 0x0102_0305;

/// [T-10] The host already has a connection with the same endpoints, with another host at that
/// address.
#[test]
fn a_connection_of_another_host_with_the_same_endpoints_is_not_hijacked() {
    let mut pair = shared(|_, _| {});
    let syn = packet(Kind::Tcp(SYN), client(5_000), server(), &[]);
    let begin = |pair: &mut Pair| ends(&across(pair, 0, &syn)[0]).0;
    let public = begin(&mut pair);
    // It answers a SYN within it with a challenge ACK (RFC 5961, section 4), and continues.
    for foreign in [
        segment(ACK, public, 77),
        segment(ACK, public, NEXT),
        segment(SYN | ACK, public, NEXT + 1),
        segment(SYN, public, NEXT),
        packet(Kind::Tcp(ACK), server(), public, &[9; 100]),
    ] {
        assert_eq!(across(&mut pair, 1, &foreign), Vec::<Vec<u8>>::new());
        assert_eq!(plain(&mut pair, 1), [foreign]);
        let status = pair.engines[1].status(pair.now, false);
        assert_eq!(status.peers[0].translated, 0, "it is not the peer's");
        assert_ne!(begin(&mut pair), public, "a SYN that is repeated gets another port");
        pair.inject(0, 0, &[mpip_wire::Frame::Close { reason: 0, message: "" }]);
        pair = shared(|_, _| {});
        assert_eq!(begin(&mut pair), public, "the same again");
    }

    // Once the host has accepted the peer's SYN, there is no other connection.
    assert_eq!(across(&mut pair, 1, &segment(SYN | ACK, public, NEXT)).len(), 1);
    assert_eq!(across(&mut pair, 1, &segment(ACK, public, 99)).len(), 1);
    // Until another host begins one after it has ended.
    let later = segment(SYN | ACK, public, 0x5555_0001);
    assert_eq!(across(&mut pair, 1, &later), Vec::<Vec<u8>>::new());
    assert_eq!(plain(&mut pair, 1), [later]);
    assert!(across(&mut pair, 1, &segment(ACK, public, 99)).is_empty());
}

/// [T-10] Nothing else is refused: a SYN with data, a repeated SYN, and a rejected one.
#[test]
fn answers_to_the_peers_syn_reach_it() {
    let mut pair = shared(|_, _| {});
    let with_data = packet(Kind::Tcp(SYN), client(5_000), server(), &[1; 30]);
    let public = ends(&across(&mut pair, 0, &with_data)[0]).0;
    let without = packet(Kind::Tcp(SYN), client(5_000), server(), &[]);
    assert_eq!(ends(&across(&mut pair, 0, &without)[0]).0, public);
    assert_eq!(across(&mut pair, 1, &segment(SYN | ACK, public, NEXT + 30)).len(), 1);
    // Late, after the answer.
    assert_eq!(ends(&across(&mut pair, 0, &without)[0]).0, public);
    assert_eq!(across(&mut pair, 1, &segment(ACK, public, NEXT + 30)).len(), 1);

    let declined = packet(Kind::Tcp(SYN), client(5_001), server(), &[]);
    let public = ends(&across(&mut pair, 0, &declined)[0]).0;
    const RST: u8 = 0x04;
    assert_eq!(across(&mut pair, 1, &segment(RST | ACK, public, NEXT)).len(), 1);
}

/// Unknown peers; host 0 knows that host 1's address is exclusive, but not the other way round.
pub(super) fn unknown_peers() -> Pair {
    let prefixes: Vec<Prefix> = vec!["198.18.0.0/16".parse().expect("valid")];
    let mut pair = Pair::with(|host, config| {
        config.peers.clear();
        let exclusive = if host == 0 { prefixes.clone() } else { vec![] };
        let prefixes = prefixes.clone();
        let settings = Opportunistic { prefixes, exclusive, port: 6182, ..Default::default() };
        config.opportunistic = Some(settings);
        config.limits.translated = 160;
    });
    let now = pair.now;
    pair.engines[0].handle_destination(now, address(0, 0).ip(), address(1, 0).ip());
    pair.run_for(SECOND * 2);
    pair
}

///
#[test]
fn an_unknown_peer_owns_only_addresses_that_the_configuration_permits() {
    let mut pair = unknown_peers();
    assert!(pair.engines[1].status(pair.now, false).peers[0].established);
    let begins = packet(Kind::Tcp(SYN), server(), end(SHARED, 443), &[]);
    assert_eq!(leaves(&mut pair, 1, &begins), Some(DropReason::NoPeer));
    assert_eq!(pair.engines[1].poll_capture(), None, "nothing is captured before anything begins");
    assert_eq!(pair.engines[1].shared.prefixes.find(address(0, 0).ip()), None);

    let public = open(&mut pair, 5_000);
    assert_eq!(public.address, IpAddr::from(SHARED));
    let capture = pair.engines[1].poll_capture().expect("its answers are");
    assert_eq!((capture.prefixes, capture.nats), (vec![], vec![SHARED.into()]));
    let running = packet(Kind::Tcp(ACK), client(6_000), server(), &[1; 10]);
    assert_eq!(across(&mut pair, 0, &running), Vec::<Vec<u8>>::new());
    assert_eq!(plain(&mut pair, 0), [running]);
}

/// Host 0 sends a packet in a session of its own, bypassing its engine.
fn inject(pair: &mut Pair, session: u32, packet: &[u8]) {
    let session = mpip_wire::SessionId(session);
    let header = mpip_wire::PacketFrameHeader { session, sequence: 0, ordered: false };
    pair.inject(0, 0, &[mpip_wire::Frame::Packet { header, packet }]);
    pair.run_for(Duration::from_millis(20));
}

/// [T-10] With UDP nothing proves who owns a public endpoint.
#[test]
fn udp_of_an_unknown_peer_is_not_translated() {
    let mut pair = unknown_peers();
    inject(&mut pair, 900, &packet(Kind::Udp, client(6_000), server(), &[1; 10]));
    assert_eq!(pair.drops(1, DropReason::ForeignSource), 1);
    assert!(pair.out[1].packets.is_empty());
}

/// [S-14]
#[test]
fn an_unknown_peer_reaches_only_this_host() {
    let mut pair = unknown_peers();
    let another = end([198, 18, 0, 200], 80);
    inject(&mut pair, 900, &packet(Kind::Tcp(SYN), client(6_000), another, &[]));
    assert_eq!(pair.drops(1, DropReason::ForeignDestination), 1);
    assert!(pair.out[1].packets.is_empty());
}

/// [T-8]
#[test]
fn an_unknown_peer_may_use_only_a_share_of_the_ports() {
    let mut pair = unknown_peers();
    for port in 0..12 {
        let sent = packet(Kind::Tcp(SYN), client(5_000 + port), server(), &[]);
        let got = across(&mut pair, 0, &sent);
        assert_eq!(got.len(), usize::from(port < 10), "{port}");
    }
    assert_eq!(pair.drops(1, DropReason::NoPort), 2);
}

/// [T-8] The index of an association with an unknown peer is reused for another one.
#[test]
fn no_state_is_left_of_an_unknown_peer_that_leaves() {
    let mut pair = unknown_peers();
    let public = open(&mut pair, 5_000);
    let follows = packet(Kind::Tcp(ACK), client(5_000), server(), &[]);
    assert_eq!(across(&mut pair, 0, &follows).len(), 1, "it is open, and remembered for long");
    pair.pass = |_, _, _| false;
    pair.run_for(SECOND * 400);
    assert!(pair.engines[1].status(pair.now, false).peers.is_empty());
    let mut last = None;
    while let Some(capture) = pair.engines[1].poll_capture() {
        last = Some(capture);
    }
    assert_eq!(last.map(|capture| capture.nats), Some(vec![]));
    let answer = packet(Kind::Tcp(ACK), server(), public, &[]);
    assert_eq!(leaves(&mut pair, 1, &answer), Some(DropReason::NoPeer));
}

/// Both are configured as exclusive: the system of the papers.
#[test]
fn unknown_peers_with_exclusive_addresses_carry_everything() {
    let prefixes: Vec<Prefix> = vec!["198.18.0.0/16".parse().expect("valid")];
    let mut pair = Pair::with(|_, config| {
        config.peers.clear();
        let (prefixes, exclusive) = (prefixes.clone(), prefixes.clone());
        let settings = Opportunistic { prefixes, exclusive, port: 6182, ..Default::default() };
        config.opportunistic = Some(settings);
    });
    let now = pair.now;
    pair.engines[0].handle_destination(now, address(0, 0).ip(), address(1, 0).ip());
    pair.run_for(SECOND * 2);
    let mut running = tcp(0, 1, 100);
    (running[13], running[17]) = (18, 18);
    for sent in [running, packet(Kind::Udp, client(6_000), server(), &[1; 10])] {
        assert_eq!(across(&mut pair, 0, &sent), [sent]);
    }
    assert_eq!(plain(&mut pair, 0), Vec::<Vec<u8>>::new());
}
