use core::convert::Infallible;

use proptest::prelude::*;

use super::*;
use crate::buffer::{
    Offload, PacketBuf, PacketPool, PartialChecksum, Segmentation, SegmentationKind,
};

/// The sum that the checksum rules ask for, word by word (RFC 1071).
fn slow_sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).fold(0, |sum, word| {
        let sum = sum + (u32::from(word[0]) << 8) + u32::from(*word.get(1).unwrap_or(&0));
        (sum & 0xffff) + (sum >> 16)
    })
}

fn add(a: u32, b: u32) -> u32 {
    ((a + b) & 0xffff) + ((a + b) >> 16)
}

fn word(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

fn set_word(bytes: &mut [u8], at: usize, value: usize) {
    bytes[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
}

fn packet_buf(bytes: &[u8], offload: Offload) -> PacketBuf {
    let filled = PacketPool::new(1, 1).fill(|buffer| {
        buffer[..bytes.len()].copy_from_slice(bytes);
        Ok::<_, Infallible>((bytes.len(), offload))
    });
    filled.expect("a buffer").expect("no error")
}

/// A test packet to build.
#[derive(Clone, Debug)]
struct Plan {
    v6: bool,
    udp: bool,
    /// IPv4 options, or IPv6 destination options, in multiples of 8 bytes.
    options: usize,
    tcp_options: usize,
    flags: u8,
    traffic_class: u8,
    identification: usize,
    sequence: u32,
    payload: Vec<u8>,
    size: u16,
}

impl Plan {
    const SMALL: Self = Self {
        v6: false,
        udp: false,
        options: 0,
        tcp_options: 0,
        flags: 0x18,
        traffic_class: 0,
        identification: 1,
        sequence: 1,
        payload: Vec::new(),
        size: 1_400,
    };

    fn network_len(&self) -> usize {
        (if self.v6 { 40 } else { 20 }) + self.options
    }

    fn checksum_offset(&self) -> usize {
        if self.udp { 6 } else { 16 }
    }

    fn pseudo_sum(&self, packet: &[u8]) -> u32 {
        let addresses = if self.v6 { &packet[8..40] } else { &packet[12..20] };
        let transport = packet.len() - self.network_len();
        let protocol = if self.udp { 17 } else { 6 };
        add(add(slow_sum(addresses), transport as u32), protocol)
    }

    /// The bytes, with the pseudo-header's sum in the transport checksum, as from the kernel.
    fn build(&self) -> Vec<u8> {
        let protocol = if self.udp { 17 } else { 6 };
        let mut packet = if self.v6 {
            let mut header = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
            header.extend((1..=32).map(|n| n * 7));
            if self.options > 0 {
                header[6] = 60;
                header.extend([protocol, (self.options / 8 - 1) as u8, 1, 4]);
                header.resize(40 + self.options, 0);
            }
            header[0] |= self.traffic_class >> 4;
            header[1] |= self.traffic_class << 4;
            header
        } else {
            let mut header = vec![0x45 + (self.options / 4) as u8, self.traffic_class];
            header.extend([0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0, 198, 18, 3, 4, 198, 19, 5, 6]);
            set_word(&mut header, 4, self.identification);
            header.resize(20 + self.options, 1);
            header
        };
        let network = packet.len();
        packet.extend([0x9c, 0x40, 0x14, 0x51]);
        if self.udp {
            packet.extend([0; 4]);
        } else {
            packet.extend(self.sequence.to_be_bytes());
            packet.extend([9, 9, 9, 9, (5 + self.tcp_options as u8) << 4, self.flags]);
            packet.extend([1, 2, 0, 0, 0, 0]);
            packet.resize(packet.len() + self.tcp_options * 4, 1);
        }
        packet.extend(&self.payload);
        let len = packet.len();
        if self.udp {
            set_word(&mut packet, network + 4, len - network);
        }
        if self.v6 {
            set_word(&mut packet, 4, len - 40);
        } else {
            set_word(&mut packet, 2, len);
            let sum = slow_sum(&packet[..network]);
            set_word(&mut packet, 10, !sum as usize & 0xffff);
        }
        let pseudo = self.pseudo_sum(&packet);
        set_word(&mut packet, network + self.checksum_offset(), pseudo as usize);
        packet
    }

    fn offload(&self, partial: bool) -> Offload {
        let start = self.network_len() as u16;
        let offset = self.checksum_offset() as u16;
        let kind = if self.udp { SegmentationKind::Udp } else { SegmentationKind::Tcp };
        Offload {
            partial_checksum: partial.then_some(PartialChecksum { start, offset }),
            segmentation: Some(Segmentation { kind, size: self.size }),
        }
    }

    /// Every segment built from scratch out of its own part of the payload.
    fn expected_segments(&self) -> Vec<Vec<u8>> {
        let mut parts: Vec<_> = self.payload.chunks(self.size.into()).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        let last = parts.len() - 1;
        let cut = |(index, part): (usize, &&[u8])| {
            let mut flags = self.flags;
            if index != last {
                flags &= !0x09;
            }
            if index != 0 {
                flags &= !0x80;
            }
            let segment = Self {
                flags,
                identification: (self.identification + index) & 0xffff,
                sequence: self.sequence.wrapping_add((index * usize::from(self.size)) as u32),
                payload: part.to_vec(),
                ..self.clone()
            };
            let mut bytes = segment.build();
            let network = self.network_len();
            let mut checksum = !slow_sum(&bytes[network..]) as usize & 0xffff;
            if self.udp && checksum == 0 {
                checksum = 0xffff;
            }
            set_word(&mut bytes, network + self.checksum_offset(), checksum);
            bytes
        };
        parts.iter().enumerate().map(cut).collect()
    }
}

fn plan() -> impl Strategy<Value = Plan> {
    let shape = (any::<bool>(), any::<bool>(), 0usize..4, 0usize..11);
    let fields = (any::<u8>(), any::<u8>(), 0usize..65_536, any::<u32>());
    let sizes = prop_oneof![
        (0usize..200, 1u16..64),
        (0usize..12_000, 1_000u16..1_461),
        (60_000usize..65_000, 1_400u16..9_000),
    ];
    (shape, fields, sizes, any::<u64>()).prop_map(
        |(
            (v6, udp, options, tcp_options),
            (flags, class, identification, sequence),
            sizes,
            seed,
        )| {
            let mut state = seed | 1;
            let payload = (0..sizes.0)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            Plan {
                v6,
                udp,
                options: options * 8,
                tcp_options,
                flags,
                traffic_class: class,
                identification,
                sequence,
                payload,
                size: sizes.1,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn segments_equal_those_that_are_built_one_by_one(plan in plan(), partial in any::<bool>()) {
        let bytes = plan.build();
        let header = Header::parse(&bytes).expect("a valid packet");
        let packet = packet_buf(&bytes, plan.offload(partial));
        let segments = Segments::new(packet, &header).expect("a valid super-packet");
        let expected = plan.expected_segments();
        prop_assert_eq!(segments.count(), expected.len());
        let mut out = vec![0xaa; 65_536];
        let mut total = 0;
        let mut carried = Vec::new();
        for (index, expected) in expected.iter().enumerate().rev() {
            prop_assert_eq!(segments.segment_len(index), expected.len());
            let len = segments.write(index, &mut out);
            prop_assert_eq!(&out[..len], &expected[..], "segment {}", index);
            total += len;
            prop_assert_eq!(segments.remaining_len(index), total);
            if !plan.udp {
                let payload = plan.payload.chunks(plan.size.into()).nth(index).map_or(0, <[u8]>::len);
                let end = index * usize::from(plan.size) + payload;
                let end = plan.sequence.wrapping_add(end as u32);
                prop_assert_eq!(segments.stream(index), Some((payload, end)));
                let all = plan.sequence.wrapping_add(plan.payload.len() as u32);
                prop_assert_eq!(segments.whole_stream(), Some((plan.payload.len(), all)));

                let whole = Segments::new(packet_buf(expected, Offload::default()), &Header::parse(expected).expect("valid")).expect("valid");
                prop_assert_eq!(whole.stream(0), Some((payload, end)));
            }
            let transport = plan.network_len();
            let read = Header::parse(&out[..len]).expect("a valid segment");
            prop_assert_eq!(read.header_len, transport);
            let sum = add(slow_sum(&out[transport..len]), plan.pseudo_sum(&out[..len]));
            prop_assert_eq!(sum, 0xffff);
            let header = transport + if plan.udp { 8 } else { 20 + plan.tcp_options * 4 };
            carried.push(out[header..len].to_vec());
        }
        carried.reverse();
        prop_assert_eq!(carried.concat(), plan.payload);
        prop_assert_eq!(segments.remaining_len(segments.count()), 0);
    }

    #[test]
    fn no_bytes_make_the_parser_panic(
        first in prop_oneof![Just(0x45u8), Just(0x46), Just(0x60), any::<u8>()],
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        next in prop_oneof![Just(0u8), Just(43), Just(44), Just(60), Just(6), any::<u8>()],
        offload in (any::<bool>(), any::<bool>(), 0u16..200, 0u16..40, 0u16..100),
    ) {
        if let Some(start) = bytes.first_mut() {
            *start = first;
        }
        let len = bytes.len();
        if len >= 42 && len % 4 != 0 {
            let payload = if first >> 4 == 6 { len - 40 } else { len };
            set_word(&mut bytes, if first >> 4 == 6 { 4 } else { 2 }, payload);
            bytes[6] = next;
            bytes[41] %= 4;
        }
        if let Ok(header) = Header::parse(&bytes) {
            prop_assert!(header.header_len <= header.total_len && header.total_len <= len);
            prop_assert_eq!(header.session().reversed().reversed(), header.session());
            let (cut, partial, start, offset, size) = offload;
            let kind = match header.protocol {
                17 => SegmentationKind::Udp,
                _ => SegmentationKind::Tcp,
            };
            let offload = Offload {
                partial_checksum: partial.then_some(PartialChecksum { start, offset }),
                segmentation: cut.then_some(Segmentation { kind, size }),
            };
            if let Ok(segments) = Segments::new(packet_buf(&bytes, offload), &header) {
                let mut out = [0; 256];
                for index in 0..segments.count() {
                    let len = segments.write(index, &mut out);
                    prop_assert_eq!(len, segments.segment_len(index));
                }
            }
        }
        mark_ce(&mut bytes);
    }

    #[test]
    fn a_truncated_packet_is_an_error(plan in plan(), cut in any::<proptest::sample::Index>()) {
        let bytes = plan.build();
        let cut = cut.index(bytes.len());
        prop_assert!(Header::parse(&bytes[..cut]).is_err());
    }

    #[test]
    fn marking_changes_the_mark_and_keeps_the_checksum(plan in plan()) {
        let before = Plan { payload: vec![1; 9], ..plan }.build();
        let mut after = before.clone();
        let capable = plan.traffic_class & 3 != 0;
        prop_assert_eq!(mark_ce(&mut after), capable);
        let header = Header::parse(&after).expect("still a packet");
        prop_assert_eq!(header.dscp, plan.traffic_class >> 2);
        if capable {
            prop_assert_eq!(header.ecn, Ecn::Ce);
        } else {
            prop_assert_eq!(&after, &before);
        }
        if !plan.v6 {
            prop_assert_eq!(slow_sum(&after[..header.header_len]), 0xffff);
        }
        let changed = before.iter().zip(&after).enumerate().filter(|(_, (a, b))| a != b);
        prop_assert!(changed.map(|(at, _)| at).all(|at| matches!(at, 1 | 10 | 11)));
    }
}

proptest! {
    #[test]
    fn a_code_point_is_set_and_the_rest_stays(plan in plan(), dscp in 0u8..64) {
        let before = Plan { payload: vec![1; 9], ..plan }.build();
        let mut after = before.clone();
        set_dscp(&mut after, dscp);
        let header = Header::parse(&after).expect("still a packet");
        let expected = Header { dscp, ..Header::parse(&before).expect("a packet") };
        prop_assert_eq!(header, expected);
        if !plan.v6 {
            prop_assert_eq!(slow_sum(&after[..header.header_len]), 0xffff);
        }
        let changed = before.iter().zip(&after).enumerate().filter(|(_, (a, b))| a != b);
        prop_assert!(changed.map(|(at, _)| at).all(|at| matches!(at, 0 | 1 | 10 | 11)));
    }

    #[test]
    fn segments_with_a_code_point_are_those_without_in_all_else(plan in plan(), dscp in 0u8..64) {
        let bytes = Plan { payload: vec![1; 300], ..plan }.build();
        let header = Header::parse(&bytes).expect("a packet");
        let plain = Segments::new(packet_buf(&bytes, Offload::default()), &header);
        let plain = plain.expect("no offload");
        let mut changed = plain.clone();
        changed.set_dscp(dscp);
        let (mut expected, mut found) = ([0; 1_024], [0; 1_024]);
        let len = plain.write(0, &mut expected);
        set_dscp(&mut expected[..len], dscp);
        prop_assert_eq!(changed.write(0, &mut found), len);
        prop_assert_eq!(&found[..len], &expected[..len]);
        let mut head = [0; HEAD_ROOM];
        let (written, rest) = changed.write_head(0, &mut head);
        prop_assert_eq!(&head[..written], &expected[..written]);
        prop_assert_eq!(rest.bytes(), &expected[written..len]);
    }
}

#[test]
fn the_fields_of_a_v4_packet() {
    let plan = Plan { traffic_class: 0xb9, options: 8, payload: vec![5; 30], ..Plan::SMALL };
    let header = Header::parse(&plan.build()).expect("a valid packet");
    let expected = Header {
        version: Version::V4,
        header_len: 28,
        total_len: 78,
        protocol: protocol::TCP,
        source: Ipv4Addr::new(198, 18, 3, 4).into(),
        destination: Ipv4Addr::new(198, 19, 5, 6).into(),
        ports: Some((40_000, 5_201)),
        fragment: false,
        ecn: Ecn::Ect1,
        dscp: 46,
        dont_fragment: true,
    };
    assert_eq!(header, expected);
    let key = header.session();
    assert_eq!(key.source.to_string(), "198.18.3.4:40000");
    assert_eq!(key.reversed().source, key.destination);
}

#[test]
fn bytes_beyond_the_length_field_are_not_the_packets() {
    let mut bytes = Plan::SMALL.build();
    let len = bytes.len();
    bytes.extend([0xee; 6]);
    let header = Header::parse(&bytes).expect("a valid packet");
    assert_eq!(header.total_len, len);
    let segments =
        Segments::new(packet_buf(&bytes, Offload::default()), &header).expect("a plain packet");
    assert_eq!(segments.segment_len(0), len);
}

#[test]
fn malformed_headers_are_named() {
    assert_eq!(Header::parse(&[]), Err(HeaderError::Truncated { needed: 20, found: 0 }));
    assert_eq!(Header::parse(&[0x50; 40]), Err(HeaderError::Version { found: 5 }));
    let mut short = Plan::SMALL.build();
    short[0] = 0x44;
    assert_eq!(Header::parse(&short), Err(HeaderError::HeaderLength { found: 16, total: 40 }));
    short[0] = 0x4b;
    assert_eq!(Header::parse(&short), Err(HeaderError::HeaderLength { found: 44, total: 40 }));
    let found = Header::parse(&short).expect_err("too long").to_string();
    assert!(found.contains("44") && found.contains("40"), "{found}");
}

/// An IPv6 packet with the given chain after its fixed header.
fn v6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0, 0, rest.len() as u8, next, 64];
    bytes.extend([1; 32]);
    bytes.extend(rest);
    bytes
}

#[test]
fn extension_headers_are_walked_to_the_transport() {
    let mut rest = vec![43, 0, 1, 4, 0, 0, 0, 0];
    rest.extend([60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    rest.extend([44, 0, 1, 4, 0, 0, 0, 0]);
    rest.extend([17, 0, 0, 1, 0, 0, 0, 7]);
    rest.extend([0, 53, 0, 99, 0, 8, 0, 0]);
    let header = Header::parse(&v6(0, &rest)).expect("a valid packet");
    assert_eq!((header.protocol, header.header_len), (protocol::UDP, 80));
    assert_eq!(header.ports, Some((53, 99)));
    assert!(header.fragment);
}

#[test]
fn a_chain_that_leaves_the_packet_is_an_error() {
    let long = v6(0, &[6, 9, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Header::parse(&long), Err(HeaderError::HeaderLength { found: 120, total: 48 }));
    let cut = v6(60, &[6, 0, 0]);
    assert_eq!(Header::parse(&cut), Err(HeaderError::HeaderLength { found: 48, total: 43 }));
    let endless = v6(60, &[60, 0, 0, 0, 0, 0, 0, 0].repeat(30));
    assert_eq!(Header::parse(&endless), Err(HeaderError::Extensions));
}

#[test]
fn only_the_first_fragment_has_ports() {
    let mut bytes = Plan { udp: true, payload: vec![1; 16], ..Plan::SMALL }.build();
    set_word(&mut bytes, 6, 0x2000);
    let first = Header::parse(&bytes).expect("a valid packet");
    assert_eq!((first.fragment, first.ports), (true, Some((40_000, 5_201))));
    set_word(&mut bytes, 6, 0x0002);
    let last = Header::parse(&bytes).expect("a valid packet");
    assert_eq!((last.fragment, last.ports, last.dont_fragment), (true, None, false));
    assert_eq!(last.session().source.port, 0);

    let later = v6(44, &[17, 0, 0, 8, 0, 0, 0, 7, 0, 53, 0, 99]);
    let later = Header::parse(&later).expect("a valid packet");
    assert_eq!((later.protocol, later.ports, later.fragment), (protocol::UDP, None, true));
}

#[test]
fn an_echo_has_its_identifier_as_both_ports() {
    let echo = Header::parse(&v6(58, &[128, 0, 0, 0, 0x12, 0x34, 0, 1])).expect("valid");
    assert_eq!(echo.ports, Some((0x1234, 0x1234)));
    assert_eq!(echo.destination_port(), None);
    let unreachable = Header::parse(&v6(58, &[1, 0, 0, 0, 0x12, 0x34, 0, 1])).expect("valid");
    assert_eq!(unreachable.ports, None);
    let mut v4 = Plan::SMALL.build();
    v4[9] = protocol::ICMP;
    v4[20] = 8;
    v4[24..26].copy_from_slice(&[7, 9]);
    assert_eq!(Header::parse(&v4).expect("valid").ports, Some((0x0709, 0x0709)));
}

#[test]
fn protocols_without_ports_are_known_by_their_addresses() {
    let mut esp = Plan::SMALL.build();
    esp[9] = 50;
    assert_eq!(Header::parse(&esp).expect("valid").ports, None);
    for with_ports in [protocol::SCTP, protocol::DCCP, protocol::UDP_LITE] {
        esp[9] = with_ports;
        assert_eq!(Header::parse(&esp).expect("valid").ports, Some((40_000, 5_201)));
    }
}

#[test]
fn a_partial_checksum_of_a_plain_packet_is_completed() {
    for (v6, udp) in [(false, false), (false, true), (true, false), (true, true)] {
        let plan = Plan { v6, udp, payload: vec![0x5a; 333], ..Plan::SMALL };
        let bytes = plan.build();
        let header = Header::parse(&bytes).expect("valid");
        let offload = Offload { segmentation: None, ..plan.offload(true) };
        let segments = Segments::new(packet_buf(&bytes, offload), &header).expect("valid");
        let mut out = vec![0; bytes.len()];
        assert_eq!(segments.write(0, &mut out), bytes.len());
        let transport = header.header_len;
        assert_eq!(add(slow_sum(&out[transport..]), plan.pseudo_sum(&out)), 0xffff);
        let field = transport + plan.checksum_offset();
        out[field..field + 2].copy_from_slice(&bytes[field..field + 2]);
        assert_eq!(out, bytes);
    }
}

/// RFC 768: a computed checksum of zero is transmitted as all ones.
#[test]
fn a_udp_checksum_of_zero_is_sent_as_all_ones() {
    let mut plan = Plan { udp: true, payload: vec![0, 0], ..Plan::SMALL };
    let rest = !slow_sum(&plan.build()[20..]) as usize & 0xffff;
    set_word(&mut plan.payload, 0, rest);
    let bytes = plan.build();
    let header = Header::parse(&bytes).expect("valid");
    for segmentation in [None, plan.offload(true).segmentation] {
        let offload = Offload { segmentation, ..plan.offload(true) };
        let segments = Segments::new(packet_buf(&bytes, offload), &header).expect("valid");
        let mut out = [0; 64];
        let len = segments.write(0, &mut out);
        assert_eq!(word(&out[..len], 26), 0xffff);
    }
}

#[test]
fn a_udp_super_packet_without_checksum_stays_so() {
    let plan = Plan { udp: true, payload: vec![3; 30], size: 10, ..Plan::SMALL };
    let mut bytes = plan.build();
    set_word(&mut bytes, 26, 0);
    let header = Header::parse(&bytes).expect("valid");
    let segments = Segments::new(packet_buf(&bytes, plan.offload(false)), &header).expect("valid");
    let mut out = [0; 64];
    for index in 0..segments.count() {
        segments.write(index, &mut out);
        assert_eq!(word(&out, 26), 0);
    }
}

#[test]
fn offload_state_that_contradicts_the_packet_is_refused() {
    let plan = Plan { payload: vec![1; 100], size: 10, ..Plan::SMALL };
    let bytes = plan.build();
    let header = Header::parse(&bytes).expect("valid");
    let attempt = |bytes: &[u8], offload| {
        Segments::new(packet_buf(bytes, offload), &header).map(|segments| segments.count())
    };
    let good = plan.offload(true);
    assert_eq!(attempt(&bytes, good), Ok(10));

    let kind = SegmentationKind::Tcp;
    let empty = Offload { segmentation: Some(Segmentation { kind, size: 0 }), ..good };
    assert_eq!(attempt(&bytes, empty), Err(SegmentError::Size));

    let udp = Segmentation { kind: SegmentationKind::Udp, size: 10 };
    let wrong = Offload { segmentation: Some(udp), ..good };
    let error = SegmentError::Protocol { kind: SegmentationKind::Udp, found: protocol::TCP };
    assert_eq!(attempt(&bytes, wrong), Err(error));

    let found = PartialChecksum { start: 20, offset: 6 };
    let misplaced = Offload { partial_checksum: Some(found), ..good };
    assert_eq!(attempt(&bytes, misplaced), Err(SegmentError::Checksum { found }));

    for (start, offset) in [(20, 119), (0, 16), (u16::MAX, u16::MAX)] {
        let found = PartialChecksum { start, offset };
        let outside = Offload { partial_checksum: Some(found), segmentation: None };
        assert_eq!(attempt(&bytes, outside), Err(SegmentError::Checksum { found }));
    }

    for words in [4u8, 15] {
        let mut beyond = bytes[..60].to_vec();
        set_word(&mut beyond, 2, 60);
        beyond[32] = words << 4;
        let header = Header::parse(&beyond).expect("valid");
        let error = Segments::new(packet_buf(&beyond, good), &header).map(|_| ());
        let found = 20 + usize::from(words) * 4;
        assert_eq!(error, Err(SegmentError::HeaderLength { found, total: 60 }));
    }

    let mut fragment = bytes.clone();
    set_word(&mut fragment, 6, 0x2000);
    let header = Header::parse(&fragment).expect("valid");
    let error = Segments::new(packet_buf(&fragment, good), &header).map(|_| ());
    assert_eq!(error, Err(SegmentError::Fragment));
}

/// A segment is a pure acknowledgement only if a later one supersedes it.
#[test]
fn an_acknowledgement_that_says_more_is_not_a_plain_one() {
    let plain = |plan: &Plan, stamps: bool| {
        let mut packet = plan.build();
        if stamps {
            let options = plan.network_len() + 20;
            packet[options..options + 4].copy_from_slice(&TIME_STAMPS);
        }
        Header::parse(&packet).expect("valid").plain_ack(&packet).map(|ack| ack.number)
    };
    for v6 in [false, true] {
        let ack = Plan { v6, flags: 0x10, ..Plan::SMALL };
        assert_eq!(plain(&ack, false), Some(0x0909_0909));
        assert_eq!(plain(&Plan { tcp_options: 3, ..ack.clone() }, true), Some(0x0909_0909));
        let gaps = Plan { tcp_options: 3, ..ack.clone() };
        assert_eq!(plain(&gaps, false), None, "other options");
        assert_eq!(plain(&Plan { tcp_options: 6, ..ack.clone() }, true), None, "more options");
        assert_eq!(plain(&Plan { payload: vec![1], ..ack.clone() }, false), None, "data");
        assert_eq!(plain(&Plan { udp: true, ..ack.clone() }, false), None, "UDP");
        for flag in [0x01, 0x02, 0x04, 0x20, 0x40, 0x80] {
            assert_eq!(
                plain(&Plan { flags: 0x10 | flag, ..ack.clone() }, false),
                None,
                "{flag:#x}"
            );
        }
    }
}

#[test]
fn the_first_two_segments_of_a_connection_have_a_syn() {
    let has = |plan: &Plan| {
        let packet = plan.build();
        Header::parse(&packet).expect("valid").has_syn(&packet)
    };
    for v6 in [false, true] {
        for (flags, expected) in [(0x02, true), (0x12, true), (0x10, false), (0x11, false)] {
            assert_eq!(has(&Plan { v6, flags, ..Plan::SMALL }), expected, "{flags:#x}");
        }
        assert!(!has(&Plan { v6, udp: true, flags: 0x02, ..Plan::SMALL }), "UDP");
    }
}

#[test]
fn a_syn_says_how_windows_are_shifted() {
    let shift = |flags: u8, options: &[u8]| {
        let tcp_options = options.len() / 4;
        let plan = Plan { flags, tcp_options, ..Plan::SMALL };
        let mut packet = plan.build();
        let start = plan.network_len() + 20;
        packet[start..start + options.len()].copy_from_slice(options);
        Header::parse(&packet).expect("valid").window_shift(&packet)
    };
    // As Linux has them: MSS, SACK permitted, timestamps, window scale.
    let linux = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
    assert_eq!(shift(0x02, &linux), Some(7));
    assert_eq!(shift(0x12, &linux), Some(7));
    assert_eq!(shift(0x10, &linux), None, "only a SYN says it");
    assert_eq!(shift(0x02, &[]), Some(0));
    assert_eq!(shift(0x02, &[2, 4, 5, 180]), Some(0));
    assert_eq!(shift(0x02, &[3, 3, 200, 0]), Some(14), "more is not allowed");
    assert_eq!(shift(0x02, &[0, 3, 3, 7]), Some(0), "after the end of the options");
    for broken in [[2, 40, 3, 3], [1, 1, 3, 3], [8, 0, 3, 3], [1, 1, 1, 3]] {
        assert_eq!(shift(0x02, &broken), Some(0), "{broken:?}");
    }
}
