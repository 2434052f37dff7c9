//! A hostile authenticated peer: nothing that it sends stops the process, and packets reach the
//! host only with permitted sources and destinations.

use mpip_wire::{
    CompactFrameHeader, Frame, NetworkFields, PacketFrameHeader, SessionFields, SessionId,
    TruncatedSequence,
};
use proptest::prelude::*;

use super::super::harness::{Pair, SECOND, address, tcp};
use super::super::*;
use super::translation::{SHOWN, SYN, behind, client, end, ends, open, server};
use crate::TRANSLATED_PORTS;
use crate::config::PeerConfig;
use crate::translation::rewrite::tests::{Kind, error, packet};
use mpip_types::packet::{Endpoint, Header, protocol};

const WAY: Duration = Duration::from_millis(20);

/// A protocol without ports, which is not translated.
const GRE: u8 = 47;

fn fields(protocol: u8, source: Endpoint, destination: Endpoint) -> SessionFields {
    let network = match (source.address, destination.address) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            NetworkFields::V4 { source, destination, identification: 7, dont_fragment: true }
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            NetworkFields::V6 { source, destination, flow_label: 7 }
        }
        _ => panic!("one family"),
    };
    SessionFields {
        sequence: 0,
        protocol,
        traffic_class: 0,
        hop_limit: 64,
        network,
        source_port: source.port,
        destination_port: destination.port,
    }
}

fn session_open(session: u32, fields: SessionFields) -> Frame<'static> {
    Frame::SessionOpen { session: SessionId(session), fields }
}

fn compact(session: u32, sequence: u32, compact: &[u8]) -> Frame<'_> {
    let sequence = TruncatedSequence::new(sequence);
    let header = CompactFrameHeader { session: SessionId(session), sequence, ordered: false };
    Frame::CompactPacket { header, compact }
}

fn full(session: u32, sequence: u32, packet: &[u8]) -> Frame<'_> {
    let header = PacketFrameHeader { session: SessionId(session), sequence, ordered: false };
    Frame::Packet { header, packet }
}

/// Host 0 sends one frame, bypassing its engine; returns the packets that host 1 gets.
fn inject(pair: &mut Pair, frame: &Frame<'_>) -> Vec<Vec<u8>> {
    pair.out[1].packets.clear();
    pair.inject(0, 0, &[*frame]);
    pair.run_for(WAY);
    core::mem::take(&mut pair.out[1].packets)
}

/// A compact packet of TCP: control byte, sequence, acknowledgement, window, payload.
const COMPACT_TCP: [u8; 15] = [0, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, b'd', b'a', b't', b'a'];

/// [S-13] Otherwise TCP flags would be read beyond the headers that the new fields describe.
#[test]
fn a_session_cannot_be_reopened_for_another_connection() {
    let mut pair = behind(|_, _| {});
    open(&mut pair, 5_000);
    inject(&mut pair, &session_open(900, fields(protocol::TCP, client(5_000), server())));
    assert_eq!(inject(&mut pair, &compact(900, 1, &COMPACT_TCP)).len(), 1, "it is known");

    let others = [
        fields(GRE, client(0), end([198, 18, 0, 2], 0)),
        fields(protocol::UDP, client(5_000), server()),
        fields(protocol::TCP, client(5_001), server()),
    ];
    for (count, other) in (1..).zip(others) {
        inject(&mut pair, &session_open(900, other));
        inject(&mut pair, &compact(900, 100 + count as u32, &[0]));
        assert_eq!(pair.drops(1, DropReason::OtherSession), count);
        let got = inject(&mut pair, &compact(900, 1 + count as u32, &COMPACT_TCP));
        assert_eq!(Header::parse(&got[0]).expect("a packet").session().protocol, protocol::TCP);
    }
}

/// [S-13]
#[test]
fn a_full_packet_of_another_connection_than_its_session_is_refused() {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    let first = tcp(0, 1, 10);
    assert_eq!(inject(&mut pair, &full(900, 0, &first)), [first]);
    let mut other = tcp(0, 2, 10);
    other[21] ^= 1;
    assert!(inject(&mut pair, &full(900, 1, &other)).is_empty());
    assert_eq!(pair.drops(1, DropReason::OtherSession), 1);
    assert_eq!(inject(&mut pair, &full(901, 0, &other)), [other], "in a session of its own");
}

/// [T-1] Neither by the fields of a session nor by the packets that follow.
#[test]
fn no_packet_of_a_translated_session_keeps_its_private_source() {
    let mut pair = behind(|_, _| {});
    // An echo may be translated; other packets in its session may not.
    let [from, to] = [client(77), end([198, 18, 0, 2], 77)];
    inject(&mut pair, &session_open(900, fields(protocol::ICMP, client(77), server())));
    let echo = packet(Kind::EchoRequest, from, to, &[1; 8]);
    let got = inject(&mut pair, &compact(900, 0, &[&[0], &echo[20..]].concat()));
    assert_eq!(ends(&got[0]).0.address, IpAddr::from(SHOWN));
    let before = pair.drops(1, DropReason::ForeignSource);
    let unknown = packet(Kind::Tcp(SYN), server(), client(4_444), &[]);
    let message = error(client(0).address, server().address, &unknown, 28);
    let reply = packet(Kind::EchoReply, end([198, 18, 0, 1], 99), to, &[]);
    for (sequence, refused) in (1..).zip([&message, &reply]) {
        let rest = [&[0], &refused[20..]].concat();
        assert_eq!(inject(&mut pair, &compact(900, sequence, &rest)), Vec::<Vec<u8>>::new());
    }
    assert_eq!(pair.drops(1, DropReason::ForeignSource), before + 2);

    let gre = fields(GRE, client(0), end([198, 18, 0, 2], 0));
    inject(&mut pair, &session_open(901, gre));
    assert_eq!(pair.drops(1, DropReason::ForeignSource), before + 3);
    assert!(inject(&mut pair, &compact(901, 0, &[0, 1, 2, 3, 4])).is_empty());
    assert_eq!(pair.engines[1].status(pair.now, false).peers[0].translated, 1);
}

/// A host that forwards has other hosts behind it: 198.18.0.200 is one.
fn to_another(sequence: u32) -> Vec<u8> {
    let mut packet = tcp(0, sequence, 10);
    packet[16..20].copy_from_slice(&[198, 18, 0, 200]);
    packet
}

/// [S-14] As a full packet, by the fields of a session, in fragments, and as an ICMP error about a
/// packet.
#[test]
fn no_packet_is_delivered_to_a_destination_that_the_peer_may_not_reach() {
    let another = end([198, 18, 0, 200], 80);
    let inner = end([198, 19, 0, 1], 5_000);
    let mut fragment = to_another(2);
    fragment[6..8].copy_from_slice(&[0, 9]);
    let message = error(inner.address, another.address, &tcp(1, 1, 10), 28);
    let group = packet(Kind::Udp, inner, end([224, 0, 0, 251], 5_353), &[1]);
    let sent = [to_another(1), fragment, message, group];
    let open = session_open(950, fields(protocol::TCP, inner, another));

    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    for (session, packet) in (900..).zip(&sent) {
        assert_eq!(inject(&mut pair, &full(session, 0, packet)), Vec::<Vec<u8>>::new());
    }
    inject(&mut pair, &open);
    assert_eq!(pair.drops(1, DropReason::ForeignDestination), 5);
    assert!(inject(&mut pair, &compact(950, 0, &COMPACT_TCP)).is_empty());
    assert_eq!(pair.drops(1, DropReason::UnknownSession), 1);

    // Destinations that the configuration permits pass.
    let reaches = ["198.18.0.128/25", "224.0.0.0/4"].map(|text| text.parse().expect("valid"));
    let mut pair = Pair::new(|peer| peer.reaches = reaches.to_vec());
    pair.run_for(SECOND);
    for (session, packet) in (900..).zip(sent) {
        assert_eq!(inject(&mut pair, &full(session, 0, &packet)), [packet]);
    }
    inject(&mut pair, &open);
    assert_eq!(inject(&mut pair, &compact(950, 0, &COMPACT_TCP)).len(), 1);
}

/// Host 1 knows the header fields of session 900, and takes its compact packets.
fn told() -> (Pair, SessionFields) {
    let mut pair = Pair::new(|_| {});
    pair.run_for(SECOND);
    let fields = fields(protocol::TCP, end([198, 19, 0, 1], 5_000), end([198, 19, 0, 2], 80));
    inject(&mut pair, &session_open(900, fields));
    assert_eq!(inject(&mut pair, &compact(900, 0, &COMPACT_TCP)).len(), 1);
    (pair, fields)
}

/// [S-14]
#[test]
fn header_fields_of_a_session_are_dropped_with_its_destination_address() {
    let (mut pair, fields) = told();
    let now = pair.now;
    let addresses =
        |list: &[[u8; 4]]| Command::OwnAddresses(list.iter().copied().map(IpAddr::from).collect());
    pair.engines[1].handle_command(now, addresses(&[[198, 19, 0, 2], [198, 19, 0, 9]]));
    assert_eq!(inject(&mut pair, &compact(900, 1, &COMPACT_TCP)).len(), 1, "more than before");
    pair.engines[1].handle_command(now, addresses(&[[198, 19, 0, 9]]));
    assert!(inject(&mut pair, &compact(900, 2, &COMPACT_TCP)).is_empty());
    inject(&mut pair, &session_open(900, fields));
    assert_eq!(pair.drops(1, DropReason::ForeignDestination), 1);
}

/// [S-8]
#[test]
fn header_fields_of_a_session_are_dropped_when_a_reload_takes_its_source_from_the_peer() {
    let (mut pair, fields) = told();
    let now = pair.now;
    let peer = pair.association(1).config.clone();
    let reload = |pair: &mut Pair, peer: PeerConfig| {
        pair.engines[1].reconfigure(now, vec![peer], vec![], &mut pair.out[1]);
    };
    reload(&mut pair, PeerConfig { ack_thinning: !peer.ack_thinning, ..peer.clone() });
    assert_eq!(inject(&mut pair, &compact(900, 1, &COMPACT_TCP)).len(), 1, "something else");
    let elsewhere = vec!["198.19.7.0/24".parse().expect("valid")];
    reload(&mut pair, PeerConfig { allowed_prefixes: elsewhere, ..peer });
    assert!(inject(&mut pair, &compact(900, 2, &COMPACT_TCP)).is_empty());
    inject(&mut pair, &session_open(900, fields));
    assert_eq!(pair.drops(1, DropReason::ForeignSource), 1);
}

/// One thing that a hostile peer sends.
#[derive(Clone, Debug)]
enum Hostile {
    Open(u32, SessionFields),
    Compact(u32, u32, Vec<u8>),
    Full(u32, u32, Vec<u8>),
    Close(u32),
}

/// Own, private, public and foreign sources; this host, other hosts and multicast.
const SOURCES: [[u8; 4]; 5] =
    [[198, 18, 0, 1], [198, 18, 1, 1], SHOWN, [198, 19, 0, 1], [10, 0, 0, 1]];
const DESTINATIONS: [[u8; 4]; 5] =
    [[198, 18, 0, 2], [198, 18, 1, 2], [198, 19, 0, 2], [198, 18, 0, 200], [224, 0, 0, 1]];

fn some_end(addresses: [[u8; 4]; 5]) -> impl Strategy<Value = Endpoint> {
    let port = prop_oneof![Just(0), Just(77), Just(5_000), Just(20_000)];
    (proptest::sample::select(addresses.to_vec()), port).prop_map(|(ip, port)| end(ip, port))
}

fn some_packet() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop_oneof![
        any::<u8>().prop_map(Kind::Tcp),
        Just(Kind::Tcp(SYN)),
        Just(Kind::Udp),
        Just(Kind::EchoRequest),
        Just(Kind::EchoReply),
    ];
    let ends = (some_end(SOURCES), some_end(DESTINATIONS));
    let rest = proptest::collection::vec(any::<u8>(), 0..40);
    let change = proptest::option::of((any::<prop::sample::Index>(), any::<u8>()));
    (kinds, ends, rest, any::<bool>(), change).prop_map(
        |(kind, (from, to), rest, quoted, change)| {
            let mut bytes = packet(kind, from, to, &rest);
            if quoted {
                bytes = error(from.address, to.address, &bytes, 28 + rest.len() % 20);
            }
            if let Some((at, value)) = change {
                let at = at.index(bytes.len());
                // With a wrong length the packet would be refused at once.
                if !(2..4).contains(&at) {
                    bytes[at] = value;
                }
            }
            bytes
        },
    )
}

fn hostile() -> impl Strategy<Value = Hostile> {
    let protocols = [protocol::ICMP, protocol::TCP, protocol::UDP, 4, 44, GRE, protocol::SCTP];
    let session = 900..904u32;
    let open = (session.clone(), some_end(SOURCES), some_end(DESTINATIONS));
    let open = (open, proptest::sample::select(protocols.to_vec()))
        .prop_map(|((id, from, to), protocol)| Hostile::Open(id, fields(protocol, from, to)));
    let bytes = proptest::collection::vec(any::<u8>(), 1..60);
    let quiet = some_packet().prop_map(|packet| {
        // The control byte of most packets, and the bytes that would follow the IP header.
        [&[0], &packet[20..]].concat()
    });
    let compact = (session.clone(), 0..40u32, prop_oneof![bytes, quiet]);
    prop_oneof![
        3 => open,
        4 => compact.prop_map(|(id, sequence, bytes)| Hostile::Compact(id, sequence, bytes)),
        3 => (session.clone(), 0..40u32, some_packet())
            .prop_map(|(id, sequence, packet)| Hostile::Full(id, sequence, packet)),
        1 => session.prop_map(Hostile::Close),
    ]
}

impl Hostile {
    fn frame(&self) -> Frame<'_> {
        match self {
            Self::Open(session, fields) => session_open(*session, *fields),
            Self::Compact(session, sequence, bytes) => compact(*session, *sequence, bytes),
            Self::Full(session, sequence, packet) => full(*session, *sequence, packet),
            Self::Close(session) => Frame::SessionClose { session: SessionId(*session) },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// [S-8] [S-10] [S-13] [S-14] [T-1]
    #[test]
    fn packets_of_a_hostile_peer_reach_the_host_only_with_permitted_addresses(
        translated in any::<bool>(),
        sent in proptest::collection::vec(hostile(), 1..80),
    ) {
        let mut pair = match translated {
            true => behind(|_, _| {}),
            false => {
                let mut pair = Pair::new(|_| {});
                pair.run_for(SECOND);
                pair
            }
        };
        for hostile in &sent {
            for got in inject(&mut pair, &hostile.frame()) {
                let Ok(header) = Header::parse(&got) else {
                    prop_assert!(false, "{got:?} is no packet");
                    continue;
                };
                let (from, to) = (header.source, header.destination);
                let own = [address(1, 0).ip(), address(1, 1).ip(), IpAddr::from([198, 19, 0, 2])];
                prop_assert!(own.contains(&to), "{hostile:?}: {header:?}");
                if !translated {
                    prop_assert_eq!(from, IpAddr::from([198, 19, 0, 1]));
                } else if from == IpAddr::from(SHOWN) {
                    let port = header.ports.map_or(20_000, |(port, _)| port);
                    prop_assert!(TRANSLATED_PORTS.contains(&port), "{hostile:?}: {header:?}");
                } else {
                    prop_assert_eq!(from, address(0, 1).ip(), "{:?}", hostile);
                }
            }
        }
    }
}
