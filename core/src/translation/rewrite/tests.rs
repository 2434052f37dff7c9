use core::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use mpip_types::packet::Segments;

/// The protocol of a test packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Flags.
    Tcp(u8),
    Udp,
    /// A UDP datagram without checksum.
    UdpUnchecked,
    EchoRequest,
    EchoReply,
}

impl Kind {
    fn protocol(self, v6: bool) -> u8 {
        match self {
            Self::Tcp(_) => protocol::TCP,
            Self::Udp | Self::UdpUnchecked => protocol::UDP,
            _ if v6 => protocol::ICMPV6,
            _ => protocol::ICMP,
        }
    }
}

/// A packet with right checksums.
pub(crate) fn packet(kind: Kind, from: Endpoint, to: Endpoint, payload: &[u8]) -> Vec<u8> {
    let v6 = from.address.is_ipv6();
    let mut transport = match kind {
        Kind::Tcp(flags) => {
            let mut tcp = vec![0; 20];
            tcp[..2].copy_from_slice(&from.port.to_be_bytes());
            tcp[2..4].copy_from_slice(&to.port.to_be_bytes());
            // All test packets have the same acknowledgment number.
            tcp[4..12].copy_from_slice(&[1, 2, 3, 4, 1, 2, 3, 5]);
            tcp[12] = 0x50;
            tcp[13] = flags;
            tcp
        }
        Kind::Udp | Kind::UdpUnchecked => {
            let mut udp = vec![0; 8];
            udp[..2].copy_from_slice(&from.port.to_be_bytes());
            udp[2..4].copy_from_slice(&to.port.to_be_bytes());
            udp[4..6].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
            udp
        }
        Kind::EchoRequest | Kind::EchoReply => {
            let types = if v6 { [128, 129] } else { [8, 0] };
            let [high, low] = from.port.to_be_bytes();
            let kind = types[usize::from(kind == Kind::EchoReply)];
            vec![kind, 0, 0, 0, high, low, 0, 1]
        }
    };
    transport.extend(payload);
    let mut packet = ip(kind.protocol(v6), from.address, to.address, &transport);
    if kind != Kind::UdpUnchecked {
        complete(&mut packet);
    }
    packet
}

/// An ICMP error of `from` to `to` that quotes the beginning of `about`.
pub(crate) fn error(from: IpAddr, to: IpAddr, about: &[u8], quoted: usize) -> Vec<u8> {
    let v6 = from.is_ipv6();
    let mut icmp = if v6 { vec![1, 4, 0, 0, 0, 0, 0, 0] } else { vec![3, 3, 0, 0, 0, 0, 0, 0] };
    icmp.extend(&about[..about.len().min(quoted)]);
    let protocol = if v6 { protocol::ICMPV6 } else { protocol::ICMP };
    let mut packet = ip(protocol, from, to, &icmp);
    complete(&mut packet);
    packet
}

fn ip(protocol: u8, from: IpAddr, to: IpAddr, transport: &[u8]) -> Vec<u8> {
    let mut packet = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let len = (20 + transport.len() as u16).to_be_bytes();
            let mut fixed = vec![0x45, 0, len[0], len[1], 1, 2, 0x40, 0, 64, protocol, 0, 0];
            fixed.extend(from.octets());
            fixed.extend(to.octets());
            let value = !fold(sum(&fixed));
            fixed[10..12].copy_from_slice(&value.to_ne_bytes());
            fixed
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let len = (transport.len() as u16).to_be_bytes();
            let mut fixed = vec![0x60, 0, 0, 7, len[0], len[1], protocol, 64];
            fixed.extend(from.octets());
            fixed.extend(to.octets());
            fixed
        }
        _ => panic!("one family"),
    };
    packet.extend(transport);
    packet
}

/// Offset of the transport checksum, and the sum that it covers, including itself.
fn transport_sum(packet: &[u8]) -> (usize, u64) {
    let header = Header::parse(packet).expect("a packet");
    let transport = &packet[header.header_len..];
    let (addresses, pseudo) = match header.version {
        Version::V4 => (&packet[12..20], header.protocol != protocol::ICMP),
        Version::V6 => (&packet[8..40], true),
    };
    let mut total = sum(transport);
    if pseudo {
        total += sum(addresses)
            + u64::from(u16::from(header.protocol).to_be())
            + u64::from((transport.len() as u16).to_be());
    }
    let offset = match header.protocol {
        protocol::TCP => 16,
        protocol::UDP => 6,
        _ => 2,
    };
    (header.header_len + offset, total)
}

fn complete(packet: &mut [u8]) {
    let (field, total) = transport_sum(packet);
    let value = !fold(total);
    let udp = packet.get(if packet[0] >> 4 == 4 { 9 } else { 6 }) == Some(&protocol::UDP);
    let value = if value == 0 && udp { !0 } else { value };
    packet[field..field + 2].copy_from_slice(&value.to_ne_bytes());
}

/// Whether all checksums of a packet are right.
pub(crate) fn is_right(packet: &[u8]) -> bool {
    let header = packet[0] >> 4 == 6 || fold(sum(&packet[..20])) == 0xffff;
    let (field, total) = transport_sum(packet);
    let udp = Header::parse(packet).expect("a packet").protocol == protocol::UDP;
    header && (fold(total) == 0xffff || (udp && packet[field..field + 2] == [0, 0]))
}

fn endpoint(v6: bool) -> impl Strategy<Value = Endpoint> {
    (any::<u128>(), any::<u16>()).prop_map(move |(bits, port)| {
        let address: IpAddr = match v6 {
            true => Ipv6Addr::from_bits(bits).into(),
            false => Ipv4Addr::from_bits(bits as u32).into(),
        };
        Endpoint { address, port }
    })
}

fn kind() -> impl Strategy<Value = Kind> {
    let tcp = any::<u8>().prop_map(Kind::Tcp);
    let others = [Kind::Udp, Kind::UdpUnchecked, Kind::EchoRequest, Kind::EchoReply];
    prop_oneof![tcp, proptest::sample::select(others.to_vec())]
}

#[derive(Clone, Debug)]
struct Case {
    kind: Kind,
    from: Endpoint,
    to: Endpoint,
    public: Endpoint,
    payload: Vec<u8>,
}

fn case() -> impl Strategy<Value = Case> {
    any::<bool>().prop_flat_map(|v6| {
        let payload = proptest::collection::vec(any::<u8>(), 0..400);
        (kind(), endpoint(v6), endpoint(v6), endpoint(v6), payload).prop_map(
            |(kind, from, to, public, payload)| {
                // A UDP checksum of IPv6 is not left out.
                let v6 = from.address.is_ipv6();
                let kind = if v6 && kind == Kind::UdpUnchecked { Kind::Udp } else { kind };
                Case { kind, from, to, public, payload }
            },
        )
    })
}

fn is_echo(kind: Kind) -> bool {
    matches!(kind, Kind::EchoRequest | Kind::EchoReply)
}

/// [`rewrite`] with only the first bytes given, as for whole packets.
fn changed(packet: &[u8], end: End, to: Endpoint) -> Vec<u8> {
    let header = Header::parse(packet).expect("a packet");
    let mut packet = packet.to_vec();
    let head = packet.len().min(HEAD);
    rewrite(&mut packet[..head], &header, end, to, State::Complete).expect("can be changed");
    packet
}

proptest! {
    /// [T-5] The same packet with another source, as its sender would have made it there, and back.
    #[test]
    fn a_source_is_replaced_as_if_the_sender_had_it(case in case()) {
        let Case { kind, from, to, public, payload } = case;
        let original = packet(kind, from, to, &payload);
        let expected = packet(kind, public, to, &payload);
        let shown = changed(&original, End::Source, public);
        prop_assert_eq!(&shown, &expected);
        prop_assert!(is_right(&shown));
        prop_assert_eq!(changed(&shown, End::Source, from), original);
    }

    /// [T-5]
    #[test]
    fn a_destination_is_replaced_as_if_the_sender_knew_it(case in case()) {
        let Case { kind, from, mut to, mut public, payload } = case;
        if is_echo(kind) {
            // An echo has one identifier.
            to.port = from.port;
            public.port = from.port;
        }
        let original = packet(kind, from, to, &payload);
        let shown = changed(&original, End::Destination, public);
        prop_assert_eq!(shown, packet(kind, from, public, &payload));
    }

    /// [T-5]
    #[test]
    fn a_wrong_checksum_stays_wrong(case in case(), at in 0usize..2, flip in 1u8..=255) {
        let Case { kind, from, to, public, payload } = case;
        let mut original = packet(kind, from, to, &payload);
        let (field, _) = transport_sum(&original);
        original[field + at] ^= flip;
        // UDP would take 0 for none, and all ones are zero.
        let value = [original[field], original[field + 1]];
        prop_assume!(value != [0, 0] && value != [0xff, 0xff]);
        prop_assume!(kind != Kind::UdpUnchecked && !is_right(&original));
        let shown = changed(&original, End::Source, public);
        prop_assert!(!is_right(&shown));
        prop_assert_eq!(changed(&shown, End::Source, from), original);
    }

    /// [T-6] An error of the peer about a packet of the host, and one of the host about a packet of
    /// the peer.
    #[test]
    fn an_error_quotes_the_packet_as_its_receiver_sent_it(
        case in case().prop_filter("an echo is not quoted", |case| !is_echo(case.kind)),
        // With 57 bytes the checksum of TCP over IPv6 is cut in half, and stays as it is.
        quoted in prop_oneof![48usize..57, 58usize..576],
    ) {
        let Case { kind, from, mut to, mut public, payload } = case;
        to.port = to.port.max(1);
        public.port = public.port.max(1);
        // The host (`to`) sent it to the public end, the peer (`from`) got it at its own.
        let sent = packet(kind, to, public, &payload);
        let got = changed(&sent, End::Destination, from);
        let reply = error(from.address, to.address, &got, quoted);
        let shown = changed(&reply, End::Source, public);
        prop_assert!(is_right(&shown));
        prop_assert_eq!(&shown, &error(public.address, to.address, &sent, quoted));
        // And the other way round.
        let got = changed(&packet(kind, from, to, &payload), End::Source, public);
        let reply = error(to.address, public.address, &got, quoted);
        let shown = changed(&reply, End::Destination, from);
        let sent = packet(kind, from, to, &payload);
        prop_assert_eq!(shown, error(to.address, from.address, &sent, quoted));
    }

    /// [T-5] A super-packet of the host, whose checksums are still to be made.
    #[test]
    fn a_partial_checksum_is_completed_rightly(case in case(), size in 1u16..300) {
        use mpip_types::{Offload, PacketPool, PartialChecksum, Segmentation, SegmentationKind};
        let Case { kind, from, to, public, payload } = case;
        prop_assume!(!is_echo(kind) && kind != Kind::UdpUnchecked);
        let mut original = packet(kind, from, to, &payload);
        let header = Header::parse(&original).expect("a packet");
        let (field, total) = transport_sum(&original);
        let transport = sum(&original[header.header_len..]);
        let partial = fold(total + u64::from(!fold(transport)));
        original[field..field + 2].copy_from_slice(&partial.to_ne_bytes());
        let start = header.header_len as u16;
        let offset = (field - header.header_len) as u16;
        let udp = kind == Kind::Udp;
        let kind_of = if udp { SegmentationKind::Udp } else { SegmentationKind::Tcp };
        let offload = Offload {
            partial_checksum: Some(PartialChecksum { start, offset }),
            segmentation: Some(Segmentation { kind: kind_of, size }),
        };
        rewrite(&mut original, &header, End::Destination, public, State::Partial).expect("fits");
        let mut pool = PacketPool::new(1, 1);
        let buf = pool.fill(|room| {
            room[..original.len()].copy_from_slice(&original);
            Ok::<_, ()>((original.len(), offload))
        });
        let buf = buf.expect("a buffer").expect("filled");
        let header = Header::parse(&original).expect("a packet");
        let segments = Segments::new(buf, &header).expect("sound");
        let mut out = vec![0; 1_000];
        for segment in 0..segments.count() {
            let len = segments.write(segment, &mut out);
            prop_assert!(is_right(&out[..len]));
            let header = Header::parse(&out[..len]).expect("a packet");
            prop_assert_eq!(header.destination, public.address);
        }
    }

    /// Nothing that arrives makes it panic.
    #[test]
    fn any_bytes_are_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), v6: bool) {
        if let Some(first) = bytes.first_mut() {
            *first = if v6 { 0x60 } else { 0x45 };
        }
        if bytes.len() >= 40 {
            let len = if v6 { bytes.len() - 40 } else { bytes.len() } as u16;
            let at = if v6 { 4 } else { 2 };
            bytes[at..at + 2].copy_from_slice(&len.to_be_bytes());
        }
        if let Ok(header) = Header::parse(&bytes) {
            let _ = Subject::of(&header, &bytes);
            let address = header.source;
            for state in [State::Complete, State::Partial, State::WithoutTransport] {
                let end = Endpoint { address, port: 1 };
                let _ = rewrite(&mut bytes, &header, End::Source, end, state);
            }
        }
    }
}

#[test]
fn a_later_fragment_has_its_address_changed_and_nothing_else() {
    let end = |last, port| Endpoint { address: IpAddr::from([198, 18, 0, last]), port };
    let mut fragment = packet(Kind::Udp, end(1, 5), end(2, 6), &[7; 40]);
    fragment[6..8].copy_from_slice(&[0, 9]);
    let checksum = !fold(sum(&fragment[..10]) + sum(&fragment[12..20]));
    fragment[10..12].copy_from_slice(&checksum.to_ne_bytes());
    let header = Header::parse(&fragment).expect("a packet");
    assert_eq!(Subject::of(&header, &fragment), Some(Subject::Fragment));
    assert_eq!(fragment_id(&fragment), Some(0x0102));
    let mut shown = fragment.clone();
    let done = rewrite(&mut shown, &header, End::Source, end(9, 99), State::WithoutTransport);
    assert_eq!(done, Some(()));
    assert_eq!(fold(sum(&shown[..20])), 0xffff);
    assert_eq!(shown[12..16], [198, 18, 0, 9]);
    assert_eq!(shown[16..], fragment[16..]);
}
