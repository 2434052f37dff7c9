use std::format;
use std::net::{IpAddr, SocketAddr};
use std::string::String;
use std::vec;

use super::*;

/// A frame that owns what [`Frame`] borrows.
#[derive(Clone, Debug)]
enum Owned {
    Plain(Frame<'static>),
    Feedback { template: Feedback<'static>, ranges: Vec<AckRange> },
    Addresses { generation: u64, list: Vec<SocketAddr> },
    Close { reason: u8, message: String },
    Packet { header: PacketFrameHeader, packet: Vec<u8> },
    Compact { header: CompactFrameHeader, compact: Vec<u8> },
}

impl Owned {
    fn frame(&self) -> Frame<'_> {
        match self {
            Self::Plain(frame) => *frame,
            Self::Feedback { template, ranges } => {
                Frame::Feedback(Feedback { ranges: Ranges::new(ranges).unwrap(), ..*template })
            }
            Self::Addresses { generation, list } => {
                Frame::Addresses { generation: *generation, list: AddressList::new(list).unwrap() }
            }
            Self::Close { reason, message } => Frame::Close { reason: *reason, message },
            Self::Packet { header, packet } => Frame::Packet { header: *header, packet },
            Self::Compact { header, compact } => Frame::CompactPacket { header: *header, compact },
        }
    }

    fn bytes(&self) -> Vec<u8> {
        emitted(self.frame().encoded_len(), |buffer| self.frame().emit(buffer))
    }
}

fn path() -> impl Strategy<Value = PathId> {
    prop_oneof![0..64_u16, any::<u16>()].prop_map(PathId)
}

fn session() -> impl Strategy<Value = SessionId> {
    prop_oneof![0..64_u32, 0..20_000_u32, any::<u32>()].prop_map(SessionId)
}

fn socket_address() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

/// From the smallest up by gap and length, then turned round.
fn ranges() -> impl Strategy<Value = Vec<AckRange>> {
    let step = || prop_oneof![0..3_u64, 0..200_u64, 0..(1_u64 << 40)];
    (0..(1_u64 << 60), prop::collection::vec((step(), step()), 1..=Ranges::MAX)).prop_map(
        |(start, steps)| {
            let mut next = start;
            let mut ranges: Vec<_> = steps
                .into_iter()
                .map(|(gap, length)| {
                    let range = AckRange { first: next + gap, last: next + gap + length };
                    next = range.last + 2;
                    range
                })
                .collect();
            ranges.reverse();
            ranges
        },
    )
}

const ONE_RANGE: &[AckRange] = &[AckRange { first: 0, last: 0 }];

fn feedback() -> impl Strategy<Value = Owned> {
    let ecn =
        prop::option::of((varint(), varint(), varint()).prop_map(|(ect0, ect1, ce)| EcnCounts {
            ect0,
            ect1,
            ce,
        }));
    (path(), any::<u32>(), varint(), ranges(), ecn).prop_map(
        |(path, received_at, delay, ranges, ecn)| Owned::Feedback {
            template: Feedback {
                path,
                received_at,
                delay,
                ranges: Ranges::new(ONE_RANGE).unwrap(),
                ecn,
            },
            ranges,
        },
    )
}

fn network() -> impl Strategy<Value = NetworkFields> {
    let v4 = any::<([u8; 4], [u8; 4], u16, bool)>().prop_map(
        |(source, destination, identification, dont_fragment)| NetworkFields::V4 {
            source: source.into(),
            destination: destination.into(),
            identification,
            dont_fragment,
        },
    );
    let v6 = (any::<([u8; 16], [u8; 16])>(), 0..=FLOW_LABEL_MAX).prop_map(
        |((source, destination), flow_label)| NetworkFields::V6 {
            source: source.into(),
            destination: destination.into(),
            flow_label,
        },
    );
    prop_oneof![v4, v6]
}

fn fields() -> impl Strategy<Value = SessionFields> {
    (network(), any::<(u32, u8, u8, u8)>(), any::<(u16, u16)>()).prop_map(
        |(network, (sequence, protocol, traffic_class, hop_limit), ports)| SessionFields {
            sequence,
            protocol,
            traffic_class,
            hop_limit,
            network,
            source_port: ports.0,
            destination_port: ports.1,
        },
    )
}

/// Every frame whose end the frame itself tells.
fn bounded_frame() -> impl Strategy<Value = Owned> {
    let cost = || 0..=PATH_COST_MAX;
    let limit =
        || proptest::option::of(RateLimit::RANGE.prop_filter_map("in range", RateLimit::new));
    let status = prop_oneof![
        (cost(), limit()).prop_map(|(cost, limit)| (PathStatus::Available, cost, limit)),
        (cost(), limit()).prop_map(|(cost, limit)| (PathStatus::Standby, cost, limit)),
        Just((PathStatus::Abandoned, 0, None))
    ];
    let plain = prop_oneof![
        prop_oneof![Just(Frame::Heartbeat), any::<u16>().prop_map(|at| Frame::Playout { at })],
        any::<[u8; 8]>().prop_map(Frame::PathChallenge),
        any::<[u8; 8]>().prop_map(Frame::PathResponse),
        (path(), varint(), status).prop_map(|(path, sequence, (status, cost, limit))| {
            Frame::PathStatus { path, sequence, status, cost, limit }
        }),
        (session(), fields()).prop_map(|(session, fields)| Frame::SessionOpen { session, fields }),
        session().prop_map(|session| Frame::SessionClose { session }),
        session().prop_map(|session| Frame::SessionUnknown { session }),
        (session(), any::<u32>(), 1..=SKIP_MAX).prop_map(|(session, first, count)| Frame::Skip {
            session,
            first,
            count
        }),
        prop_oneof![
            (varint(), varint())
                .prop_map(|(sequence, max_wait)| Frame::Resequencing { sequence, max_wait }),
            varint().prop_map(|interval| Frame::Keepalive { interval }),
        ],
        (path(), socket_address(), any::<bool>())
            .prop_map(|(path, address, taken)| { Frame::AddressObserved { path, address, taken } }),
    ];
    prop_oneof![
        4 => plain.prop_map(Owned::Plain),
        1 => feedback(),
        1 => (varint(), prop::collection::vec(socket_address(), 0..=AddressList::MAX))
            .prop_map(|(generation, list)| Owned::Addresses { generation, list }),
        1 => (any::<u8>(), "\\PC{0,30}").prop_map(|(reason, message)| Owned::Close { reason, message }),
    ]
}

fn packet_frame() -> impl Strategy<Value = Owned> {
    (session(), any::<u32>(), any::<bool>(), prop::collection::vec(any::<u8>(), 1..100)).prop_map(
        |(session, sequence, ordered, packet)| Owned::Packet {
            header: PacketFrameHeader { session, sequence, ordered },
            packet,
        },
    )
}

fn compact_frame() -> impl Strategy<Value = Owned> {
    (session(), any::<u32>(), any::<bool>(), prop::collection::vec(any::<u8>(), 1..100)).prop_map(
        |(session, sequence, ordered, compact)| Owned::Compact {
            header: CompactFrameHeader {
                session,
                sequence: TruncatedSequence::new(sequence),
                ordered,
            },
            compact,
        },
    )
}

fn only(bytes: &[u8]) -> Result<Frame<'_>, Error> {
    let mut frames = Frames::new(bytes);
    let frame = frames.next().unwrap();
    assert_eq!(frames.next(), None);
    frame
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn frames_have_the_specified_layout() {
    let ranges = [AckRange { first: 90, last: 100 }, AckRange { first: 80, last: 80 }];
    let feedback = Feedback {
        path: PathId(3),
        received_at: 0x0102_0304,
        delay: 1000,
        ranges: Ranges::new(&ranges).unwrap(),
        ecn: None,
    };
    let ecn = Some(EcnCounts { ect0: 1, ect1: 0, ce: 70 });
    let list = [address("198.51.100.2:6182"), address("[2001:db8::1]:443")];
    let compact = |ordered| Frame::CompactPacket {
        header: CompactFrameHeader {
            session: SessionId(300),
            sequence: TruncatedSequence::new(0x0a0b_0c0d),
            ordered,
        },
        compact: &[0x10, 0xff],
    };
    let packet = |ordered| Frame::Packet {
        header: PacketFrameHeader { session: SessionId(300), sequence: 0x0a0b_0c0d, ordered },
        packet: &[0x45, 0x00],
    };
    let cases = [
        (Frame::Padding(3), "00 00 00"),
        (Frame::Heartbeat, "01"),
        // Numbers 81..=89 are missing: nine, so the gap is 8.
        (Frame::Feedback(feedback), "02 03 4064 01020304 43e8 01 0a 08 00"),
        (
            Frame::Feedback(Feedback { ecn, ..feedback }),
            "03 03 4064 01020304 43e8 01 0a 08 00 01 00 4046",
        ),
        (Frame::PathChallenge([1, 2, 3, 4, 5, 6, 7, 8]), "04 0102030405060708"),
        (Frame::PathResponse([1, 2, 3, 4, 5, 6, 7, 8]), "05 0102030405060708"),
        (
            Frame::Addresses { generation: 5, list: AddressList::new(&list).unwrap() },
            "06 05 02 04 1826 c6336402 06 01bb 20010db8000000000000000000000001",
        ),
        (
            Frame::PathStatus {
                path: PathId(64),
                sequence: 2,
                status: PathStatus::Abandoned,
                cost: 0,
                limit: None,
            },
            "07 4040 02 02",
        ),
        (
            Frame::PathStatus {
                path: PathId(1),
                sequence: 3,
                status: PathStatus::Standby,
                cost: 2,
                limit: RateLimit::new(20_000),
            },
            "07 01 03 29 80004e20",
        ),
        (
            Frame::SessionOpen {
                session: SessionId(7),
                fields: SessionFields {
                    sequence: 0x0102_0304,
                    protocol: 6,
                    traffic_class: 2,
                    hop_limit: 64,
                    network: NetworkFields::V4 {
                        source: [10, 77, 0, 1].into(),
                        destination: [10, 77, 0, 2].into(),
                        identification: 0xabcd,
                        dont_fragment: true,
                    },
                    source_port: 0x1234,
                    destination_port: 22,
                },
            },
            "08 07 01020304 04 06 02 40 0a4d0001 0a4d0002 abcd 01 1234 0016",
        ),
        (
            Frame::SessionOpen {
                session: SessionId(7),
                fields: SessionFields {
                    sequence: 5,
                    protocol: 17,
                    traffic_class: 0xb8,
                    hop_limit: 63,
                    network: NetworkFields::V6 {
                        source: [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(),
                        destination: [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2].into(),
                        flow_label: 0xf_1234,
                    },
                    source_port: 0x1234,
                    destination_port: 53,
                },
            },
            "08 07 00000005 06 11 b8 3f 20010db8000000000000000000000001 \
             20010db8000000000000000000000002 0f1234 1234 0035",
        ),
        (Frame::SessionClose { session: SessionId(7) }, "09 07"),
        (Frame::Skip { session: SessionId(7), first: u32::MAX, count: 2 }, "0a 07 ffffffff 02"),
        (Frame::Resequencing { sequence: 7, max_wait: 50_000 }, "0b 07 8000c350"),
        (Frame::Close { reason: 1, message: "bye" }, "0c 01 03 627965"),
        (
            Frame::AddressObserved { path: PathId(1), address: list[0], taken: false },
            "0d 01 04 1826 c6336402 00",
        ),
        (Frame::SessionUnknown { session: SessionId(64) }, "0e 4040"),
        (Frame::Playout { at: 0xabcd }, "0f abcd"),
        (Frame::Keepalive { interval: 15_000 }, "10 7a98"),
        (packet(false), "20 412c 0a0b0c0d 4500"),
        (packet(true), "21 412c 0a0b0c0d 4500"),
        (compact(false), "28 412c 0b0c0d 10ff"),
        (compact(true), "29 412c 0b0c0d 10ff"),
    ];
    for (frame, expected) in cases {
        let expected = hex(expected);
        assert_eq!(emitted(frame.encoded_len(), |buffer| frame.emit(buffer)), expected);
        assert_eq!(only(&expected), Ok(frame));
        with_every_byte_corrupted(&expected, check::frames);
    }
}

#[test]
fn packet_frame_header_emits_what_the_packet_frame_begins_with() {
    let header = PacketFrameHeader { session: SessionId(300), sequence: 9, ordered: true };
    let mut bytes = emitted(header.encoded_len(), |buffer| header.emit(buffer));
    bytes.extend([0x45, 0x00, 0x00]);
    assert_eq!(only(&bytes), Ok(Frame::Packet { header, packet: &[0x45, 0, 0] }));
}

#[test]
fn compact_frame_header_emits_what_the_compact_packet_frame_begins_with() {
    let sequence = TruncatedSequence::new(9);
    let header = CompactFrameHeader { session: SessionId(300), sequence, ordered: true };
    let mut bytes = emitted(header.encoded_len(), |buffer| header.emit(buffer));
    assert_eq!(bytes.len(), 6);
    bytes.push(0x08);
    assert_eq!(only(&bytes), Ok(Frame::CompactPacket { header, compact: &[0x08] }));
}

/// [W-14]
#[test]
fn unknown_frame_types_are_refused_also_those_reserved() {
    for kind in 0..=255_u8 {
        let known = kind <= 0x10 || [0x20, 0x21, 0x28, 0x29].contains(&kind);
        let mut bytes = [0; 64];
        bytes[0] = kind;
        let unknown = matches!(check(&bytes), Err(Error::Value { field: "frame type", .. }));
        assert_eq!(unknown, !known, "{kind:#x}");
    }
}

/// [W-14]
#[test]
fn frames_end_at_the_first_error_and_the_whole_plaintext_is_refused() {
    let bytes = hex("01 01 3f 01");
    let mut frames = Frames::new(&bytes);
    assert_eq!(frames.next(), Some(Ok(Frame::Heartbeat)));
    assert_eq!(frames.next(), Some(Ok(Frame::Heartbeat)));
    assert!(matches!(frames.next(), Some(Err(Error::Value { offset: 2, got: 0x3f, .. }))));
    assert_eq!(frames.next(), None);
    assert!(check(&bytes).is_err());
    assert!(check(&[]).is_err());
    assert_eq!(check(&bytes[..2]), Ok(2));
}

/// [W-15]
#[test]
fn packet_frames_take_the_rest_and_are_never_empty() {
    let bytes = hex("01 20 07 00000001 45 01");
    let frames: Vec<_> = Frames::new(&bytes).map(Result::unwrap).collect();
    let header = PacketFrameHeader { session: SessionId(7), sequence: 1, ordered: false };
    assert_eq!(frames, [Frame::Heartbeat, Frame::Packet { header, packet: &[0x45, 0x01] }]);
    assert!(check(&bytes[..7]).is_err());
    assert!(Frame::Packet { header, packet: &[] }.emit(&mut [0; 64]).is_err());
}

/// [W-24]
#[test]
fn compact_packet_frames_take_the_rest_and_are_never_empty() {
    let bytes = hex("01 28 07 000001 18 01");
    let frames: Vec<_> = Frames::new(&bytes).map(Result::unwrap).collect();
    let sequence = TruncatedSequence::new(1);
    let header = CompactFrameHeader { session: SessionId(7), sequence, ordered: false };
    let compact = Frame::CompactPacket { header, compact: &[0x18, 0x01] };
    assert_eq!(frames, [Frame::Heartbeat, compact]);
    assert!(check(&bytes[..6]).is_err());
    assert!(Frame::CompactPacket { header, compact: &[] }.emit(&mut [0; 64]).is_err());
    let mut buffer = [0; 64];
    let mut writer = FrameWriter::new(&mut buffer);
    writer.push(&compact).unwrap();
    assert!(writer.push(&Frame::Heartbeat).is_err());
}

/// [W-25]
#[test]
fn truncated_sequences_expand_to_the_nearest_number() {
    let half = 1_u32 << 23;
    for newest in [0, 5, half - 1, half, 0x00ff_ffff, 0x0100_0000, u32::MAX - 3, u32::MAX] {
        for away in [0, 1, 2, 1000, 32_768, half - 1] {
            for sequence in [newest.wrapping_add(away), newest.wrapping_sub(away)] {
                let truncated = TruncatedSequence::new(sequence);
                assert_eq!(truncated.value(), sequence & 0x00ff_ffff);
                assert_eq!(truncated.expand(newest), sequence, "{sequence} near {newest}");
            }
        }
        let farthest = newest.wrapping_sub(half);
        assert_eq!(TruncatedSequence::new(farthest).expand(newest), farthest);
        let beyond = newest.wrapping_add(half);
        assert_eq!(TruncatedSequence::new(beyond).expand(newest), farthest);
    }
}

/// [W-3]
#[test]
fn variable_length_integers_longer_than_needed_are_refused() {
    for (bytes, minimal) in [
        ("09 3f", true),
        ("09 403f", false),
        ("09 4040", true),
        ("09 80003fff", false),
        ("09 80004000", true),
        ("09 c00000003fffffff", false),
        ("09 c000000040000000", true),
        ("09 c0000000ffffffff", true),
    ] {
        assert_eq!(check(&hex(bytes)).is_ok(), minimal, "{bytes}");
    }
}

/// [W-16]
#[test]
fn feedback_of_more_than_32_ranges_is_refused() {
    let ranges: Vec<_> =
        (0..33).rev().map(|n| AckRange { first: 10 * n, last: 10 * n + 3 }).collect();
    assert!(Ranges::new(&ranges).is_err());
    let most = Ranges::new(&ranges[..32]).unwrap();
    let feedback = Feedback { path: PathId(0), received_at: 0, delay: 0, ranges: most, ecn: None };
    let frame = Frame::Feedback(feedback);
    let mut bytes = emitted(frame.encoded_len(), |buffer| frame.emit(buffer));
    assert_eq!(only(&bytes), Ok(frame));
    let count = bytes.iter().position(|&byte| byte == 31).unwrap();
    bytes[count] = 32;
    bytes.extend([0, 0]);
    let expected = "at most 31";
    assert!(matches!(only(&bytes), Err(Error::Value { expected: e, .. }) if e == expected));
}

/// [W-16]
#[test]
fn feedback_below_number_zero_is_refused() {
    for (ranges, valid) in [
        ("05 00000000 00 00 05", true),
        ("05 00000000 00 00 06", false),
        ("05 00000000 00 01 02 01 00", true),
        ("05 00000000 00 01 02 02 00", false),
        ("05 00000000 00 01 02 01 01", false),
    ] {
        let bytes = hex(&format!("02 00 {ranges}"));
        assert_eq!(check(&bytes).is_ok(), valid, "{ranges}");
    }
}

/// [W-16]
#[test]
fn ranges_to_send_that_are_empty_unordered_or_touching_are_refused() {
    let range = |first, last| AckRange { first, last };
    for ranges in [
        &[][..],
        &[range(5, 4)],
        &[range(5, 9), range(4, 4)],
        &[range(5, 9), range(10, 12)],
        &[range(5, 9), range(5, 9)],
        &[range(0, VARINT_MAX + 1)],
        &[range(0, 3), range(u64::MAX, u64::MAX)],
    ] {
        assert!(Ranges::new(ranges).is_err(), "{ranges:?}");
    }
    assert!(Ranges::new(&[range(5, 9), range(0, 3)]).is_ok());
}

/// [W-17]
#[test]
fn more_than_16_addresses_and_unknown_kinds_are_refused() {
    let list = [address("192.0.2.1:1"); 17];
    assert!(AddressList::new(&list).is_err());
    let frame = Frame::Addresses { generation: 0, list: AddressList::new(&list[..16]).unwrap() };
    let mut bytes = emitted(frame.encoded_len(), |buffer| frame.emit(buffer));
    assert_eq!(only(&bytes), Ok(frame));
    bytes[2] = 17;
    bytes.extend_from_within(3..10);
    assert!(matches!(only(&bytes), Err(Error::Value { field: "number of addresses", .. })));
    let list = hex("06 00 01 05 1826 c6336402");
    assert!(matches!(only(&list), Err(Error::Value { field: "kind of address", .. })));
    assert!(only(&hex("0d 00 05 1826 c6336402")).is_err());
}

#[test]
fn scope_of_an_address_is_not_carried() {
    let scoped = SocketAddr::V6(std::net::SocketAddrV6::new(1.into(), 2, 3, 4));
    let list = [scoped];
    let frame = Frame::Addresses { generation: 0, list: AddressList::new(&list).unwrap() };
    let bytes = emitted(frame.encoded_len(), |buffer| frame.emit(buffer));
    assert_eq!(only(&bytes), Ok(frame));
    let Ok(Frame::Addresses { list, .. }) = only(&bytes) else { panic!() };
    assert_eq!(list.iter().next(), Some(SocketAddr::new(scoped.ip(), 2)));
}

/// [W-18]
#[test]
fn unknown_path_status_is_refused() {
    for status in 0..=255_u8 {
        let valid = status & 0x0f <= 1 || status == 2;
        assert_eq!(check(&[0x07, 0, 0, status]).is_ok(), valid, "{status}");
        // With 64 kbit/s behind it.
        let limited = status & 0x0f == 8 || status & 0x0f == 9;
        let bytes = [0x07, 0, 0, status, 0x40, 64];
        let frames: Result<Vec<_>, _> = Frames::new(&bytes).collect();
        assert_eq!(frames.is_ok_and(|frames| frames.len() == 1), limited, "{status}");
    }
}

/// [W-29]
#[test]
fn rate_limits_out_of_range_are_refused() {
    for (kbps, valid) in
        [("3f", false), ("4040", true), ("bb9aca00", true), ("bb9aca01", false), ("80", false)]
    {
        let bytes = hex(&format!("07 00 00 08 {kbps}"));
        assert_eq!(check(&bytes).is_ok(), valid, "{kbps}");
    }
    let error = check(&hex("07 00 00 08 3f")).unwrap_err();
    assert_eq!(
        error,
        Error::Value {
            field: "rate limit",
            offset: 4,
            expected: "64..=1000000000 kbit/s",
            got: 63
        }
    );
    let bounds = [63, 64, 1_000_000_000, 1_000_000_001].map(|kbps| RateLimit::new(kbps).is_some());
    assert_eq!(bounds, [false, true, true, false]);
}

/// [W-19]
#[test]
fn path_and_session_identifiers_beyond_their_width_are_refused() {
    assert!(check(&hex("07 8000ffff 00 00")).is_ok());
    assert!(check(&hex("07 80010000 00 00")).is_err());
    assert!(check(&hex("09 c0000000ffffffff")).is_ok());
    assert!(check(&hex("09 c000000100000000")).is_err());
}

/// [W-20]
#[test]
fn skips_of_nothing_or_of_half_the_numbers_are_refused() {
    for (count, valid) in
        [("00", false), ("01", true), ("c00000007fffffff", true), ("c000000080000000", false)]
    {
        let bytes = hex(&format!("0a 07 00000000 {count}"));
        assert_eq!(check(&bytes).is_ok(), valid, "{count}");
    }
    for count in [0, SKIP_MAX + 1] {
        let frame = Frame::Skip { session: SessionId(7), first: 0, count };
        assert!(frame.emit(&mut [0; 64]).is_err());
    }
}

/// [W-21]
#[test]
fn close_texts_too_long_or_not_utf_8_are_refused() {
    assert!(check(&hex("0c 00 02 c3a9")).is_ok());
    let error = check(&hex("0c 00 02 61c3")).unwrap_err();
    assert!(matches!(error, Error::Value { field: "message", offset: 4, got: 0xc3, .. }));
    let long = "x".repeat(129);
    assert!(Frame::Close { reason: 0, message: &long }.emit(&mut [0; 200]).is_err());
    let frame = Frame::Close { reason: 0, message: &long[..128] };
    let mut bytes = emitted(frame.encoded_len(), |buffer| frame.emit(buffer));
    assert_eq!(only(&bytes), Ok(frame));
    bytes[3] += 1;
    bytes.push(b'x');
    assert!(matches!(only(&bytes), Err(Error::Value { expected: "at most 128", .. })));
}

/// [W-22]
#[test]
fn sessions_of_another_ip_version_are_refused() {
    for version in 0..=255_u8 {
        let mut bytes = [0; 50];
        bytes[..2].copy_from_slice(&[0x08, 0x07]);
        bytes[6] = version;
        // For version 4 the rest is padding.
        assert_eq!(check(&bytes).is_ok(), [4, 6].contains(&version), "{version}");
    }
}

/// [W-27]
#[test]
fn whether_an_observed_address_is_taken_is_0_or_1() {
    for (taken, valid) in [("00", true), ("01", true), ("02", false), ("ff", false)] {
        let bytes = hex(&format!("0d 01 04 1826 c6336402 {taken}"));
        assert_eq!(check(&bytes).is_ok(), valid, "{taken}");
    }
}

/// [W-26]
#[test]
fn flags_and_flow_labels_of_sessions_beyond_their_width_are_refused() {
    let v4 = "08 07 00000000 04 06 00 40 0a4d0001 0a4d0002 0000";
    let v6 = "08 07 00000000 06 06 00 40 20010db8000000000000000000000001 \
              20010db8000000000000000000000002";
    for (start, value, valid) in [
        (v4, "00", true),
        (v4, "01", true),
        (v4, "02", false),
        (v4, "80", false),
        (v6, "0fffff", true),
        (v6, "100000", false),
        (v6, "f00000", false),
    ] {
        let bytes = hex(&format!("{start} {value} 0000 0000"));
        assert_eq!(check(&bytes).is_ok(), valid, "{value}");
    }
    let fields = SessionFields {
        sequence: 0,
        protocol: 6,
        traffic_class: 0,
        hop_limit: 64,
        network: NetworkFields::V6 {
            source: [0; 8].into(),
            destination: [0; 8].into(),
            flow_label: FLOW_LABEL_MAX + 1,
        },
        source_port: 0,
        destination_port: 0,
    };
    let frame = Frame::SessionOpen { session: SessionId(7), fields };
    assert!(frame.emit(&mut [0; 64]).is_err());
}

#[test]
fn values_out_of_range_are_not_emitted() {
    let mut buffer = [0; 64];
    assert!(Frame::Padding(0).emit(&mut buffer).is_err());
    let beyond = VARINT_MAX + 1;
    for (sequence, max_wait) in [(0, beyond), (beyond, 0)] {
        assert!(Frame::Resequencing { sequence, max_wait }.emit(&mut buffer).is_err());
    }
    let path = PathId(0);
    let limited = RateLimit::new(64);
    for (sequence, status, cost, limit) in [
        (u64::MAX, PathStatus::Standby, 0, None),
        (0, PathStatus::Standby, 16, None),
        (0, PathStatus::Available, 16, limited),
        (0, PathStatus::Abandoned, 1, None),
        (0, PathStatus::Abandoned, 0, limited),
    ] {
        let frame = Frame::PathStatus { path, sequence, status, cost, limit };
        assert!(frame.emit(&mut buffer).is_err(), "{frame:?}");
    }
}

#[test]
fn padding_and_feedback_alone_ask_for_no_feedback() {
    let feedback = Frame::Feedback(Feedback {
        path: PathId(0),
        received_at: 0,
        delay: 0,
        ranges: Ranges::new(ONE_RANGE).unwrap(),
        ecn: None,
    });
    assert!(!Frame::Padding(1).is_ack_eliciting() && !feedback.is_ack_eliciting());
    assert!(Frame::Heartbeat.is_ack_eliciting());
    assert!(Frame::PathChallenge([0; 8]).is_ack_eliciting());
}

#[test]
fn writer_reports_lack_of_room_and_keeps_what_was_written() {
    let mut buffer = [0; 12];
    let mut writer = FrameWriter::new(&mut buffer);
    assert!(writer.is_empty());
    writer.push(&Frame::Heartbeat).unwrap();
    writer.push(&Frame::PathChallenge([7; 8])).unwrap();
    assert_eq!((writer.len(), writer.remaining()), (10, 2));
    let error = writer.push(&Frame::PathResponse([7; 8])).unwrap_err();
    assert_eq!(error, Error::NoRoom { needed: 9, available: 2 });
    assert_eq!(writer.len(), 10);
    writer.pad_to(5).unwrap();
    assert_eq!(writer.len(), 10);
    assert!(writer.pad_to(13).is_err());
    writer.pad_to(12).unwrap();
    assert_eq!(writer.remaining(), 0);
    let frames: Vec<_> = Frames::new(&buffer).map(Result::unwrap).collect();
    assert_eq!(frames, [Frame::Heartbeat, Frame::PathChallenge([7; 8]), Frame::Padding(2)]);
}

/// [W-28] The weights are those of the table in section 4.
#[test]
fn the_work_of_a_datagram_is_bounded() {
    let one = [("01", 1), ("04 0000000000000000", 1), ("05 0000000000000000", 1), ("0e 00", 1)];
    let two = [("07 00 00 00", 2), ("09 00", 2), ("0a 00 00000000 01", 2)];
    let four = [("02 00 00 00000000 00 00 00", 4), ("03 00 00 00000000 00 00 00 00 00 00", 4)];
    let eight =
        [("06 00 00", 8), ("08 00 00000000 04 06 00 40 c6120001 c6120002 0000 00 0001 0002", 8)];
    let rest = [
        ("0b 00 00", 1),
        ("0c 00 00", 1),
        ("0d 00 04 0001 c6120001 00", 1),
        ("0f 0000", 1),
        ("10 00", 1),
    ];
    let all = one.iter().chain(&two).chain(&four).chain(&eight).chain(&rest);
    for (text, work) in all {
        let bytes = hex(text);
        let frame = Frames::new(&bytes).next().unwrap().unwrap();
        assert_eq!(frame.work(), *work, "{frame:?}");
        let most = (WORK_MAX / work) as usize;
        // Padding makes no work, wherever it is.
        let full = [vec![0; 7], bytes.repeat(most), vec![0; 900]].concat();
        assert_eq!(check(&full), Ok(most + 2), "{frame:?}");
        let too_much = [&full[..], &bytes].concat();
        let error = Error::Work { max: WORK_MAX, got: WORK_MAX + work };
        assert_eq!(check(&too_much), Err(error), "{frame:?}");
    }
    // A packet counts, too, and is the last.
    let mut bytes = vec![0x01; WORK_MAX as usize];
    bytes.extend(hex("20 00 00000000 45"));
    assert!(matches!(check(&bytes), Err(Error::Work { .. })));
    assert_eq!(check(&bytes[1..]), Ok(WORK_MAX as usize));
}

/// [W-28]
#[test]
fn writer_stops_at_the_most_work_that_may_be() {
    let mut buffer = [0; 1_200];
    let mut writer = FrameWriter::new(&mut buffer);
    let skip = Frame::Skip { session: SessionId(0), first: 0, count: 1 };
    let pushed = core::iter::repeat_with(|| writer.push(&skip)).take_while(Result::is_ok);
    assert_eq!(pushed.count(), WORK_MAX as usize / 2);
    assert!(writer.push(&Frame::Heartbeat).is_err());
    writer.pad_to(1_000).unwrap();
    assert!(check(&buffer[..1_000]).is_ok());
}

/// [W-15]
#[test]
fn writer_accepts_nothing_after_a_packet() {
    let mut buffer = [0; 64];
    let mut writer = FrameWriter::new(&mut buffer);
    let header = PacketFrameHeader { session: SessionId(1), sequence: 2, ordered: true };
    writer.push(&Frame::Packet { header, packet: &[0x45] }).unwrap();
    assert_eq!(writer.remaining(), 0);
    assert!(writer.push(&Frame::Heartbeat).is_err());
    assert!(writer.pad_to(20).is_err());
    assert_eq!(writer.len(), 7);
}

proptest! {
    #![proptest_config(config())]

    /// [W-4]
    #[test]
    fn frames_round_trip_and_no_truncation_is_misread(owned in bounded_frame()) {
        let bytes = owned.bytes();
        prop_assert_eq!(only(&bytes), Ok(owned.frame()));
        for len in 1..bytes.len() {
            prop_assert!(check(&bytes[..len]).is_err(), "{} of {:?}", len, owned);
        }
    }

    /// [W-4]
    #[test]
    fn no_corruption_of_a_frame_is_misread(owned in bounded_frame(), mask in 1..=255_u8) {
        with_every_bit_corrupted(&owned.bytes(), mask, check::frames);
    }

    /// [W-4], [W-15]
    #[test]
    fn packet_frames_round_trip_and_truncations_are_shorter_packets(
        owned in packet_frame(), mask in 1..=255_u8,
    ) {
        let bytes = owned.bytes();
        prop_assert_eq!(only(&bytes), Ok(owned.frame()));
        let Owned::Packet { header, packet } = &owned else { unreachable!() };
        let start = header.encoded_len();
        for len in 1..bytes.len() {
            // The packet runs to the end of the plaintext, whose length the tag protects.
            let expected = len.checked_sub(start).filter(|&len| len > 0).map(|len| {
                Frame::Packet { header: *header, packet: &packet[..len] }
            });
            prop_assert_eq!(only(&bytes[..len]).ok(), expected);
        }
        with_every_bit_corrupted(&bytes, mask, check::frames);
    }

    /// [W-4], [W-24]
    #[test]
    fn compact_packet_frames_round_trip(owned in compact_frame(), mask in 1..=255_u8) {
        let bytes = owned.bytes();
        prop_assert_eq!(only(&bytes), Ok(owned.frame()));
        with_every_bit_corrupted(&bytes, mask, check::frames);
    }

    #[test]
    fn padding_round_trips_and_truncations_are_shorter_padding(len in 1..1500_usize) {
        let bytes = emitted(len, |buffer| Frame::Padding(len).emit(buffer));
        for len in 1..=len {
            prop_assert_eq!(only(&bytes[..len]), Ok(Frame::Padding(len)));
        }
    }

    /// [W-14], [W-15]
    #[test]
    fn sequences_of_frames_are_read_as_written(
        frames in prop::collection::vec(bounded_frame(), 0..6), padding in 1..9_usize,
        packet in prop_oneof![packet_frame(), compact_frame()],
    ) {
        let mut buffer = [0; 4096];
        let mut writer = FrameWriter::new(&mut buffer);
        for frame in &frames {
            writer.push(&frame.frame()).unwrap();
        }
        writer.push(&Frame::Padding(padding)).unwrap();
        writer.push(&packet.frame()).unwrap();
        let len = writer.len();
        let bytes = &buffer[..len];
        prop_assert_eq!(check(bytes), Ok(frames.len() + 2));
        let expected = frames.iter().map(Owned::frame).chain([Frame::Padding(padding), packet.frame()]);
        prop_assert!(Frames::new(bytes).map(Result::unwrap).eq(expected));
        check::frames(bytes);
    }

    /// [W-16]
    #[test]
    fn ranges_of_parsed_feedback_are_those_that_were_sent(owned in feedback()) {
        let bytes = owned.bytes();
        let Ok(Frame::Feedback(feedback)) = only(&bytes) else { panic!() };
        let Owned::Feedback { ranges, .. } = &owned else { unreachable!() };
        prop_assert_eq!(&feedback.ranges.iter().collect::<Vec<_>>(), ranges);
        prop_assert_eq!(feedback.largest(), ranges[0].last);
        prop_assert_eq!(feedback.ranges.len(), ranges.len());
    }
}
