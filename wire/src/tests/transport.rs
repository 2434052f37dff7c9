use super::*;

fn header() -> impl Strategy<Value = TransportHeader> {
    let path = prop_oneof![0..31_u16, 31..300_u16, any::<u16>()];
    (path, any::<u32>(), any::<u64>(), 1..=4_usize).prop_map(|(path, receiver, number, len)| {
        TransportHeader {
            path: PathId(path),
            receiver: ReceiverIndex(receiver),
            number: TruncatedNumber::new(number, len),
        }
    })
}

#[test]
fn header_has_the_specified_layout() {
    for (path, number, len, expected) in [
        (0, 0x11_2233_4455, 1, "80 01020304 55"),
        (30, 0x11_2233_4455, 2, "be 01020304 4455"),
        (31, 0x11_2233_4455, 3, "df 001f 01020304 334455"),
        (0xabcd, 0x11_2233_4455, 4, "ff abcd 01020304 22334455"),
    ] {
        let header = TransportHeader {
            path: PathId(path),
            receiver: ReceiverIndex(0x0102_0304),
            number: TruncatedNumber::new(number, len),
        };
        let mut bytes = emitted(header.encoded_len(), |buffer| header.emit(buffer));
        assert_eq!(bytes, hex(expected));
        assert!(bytes.len() <= TransportHeader::MAX_LEN);
        bytes.extend([0x77; 17]);
        assert_eq!(TransportPacket::new_checked(&bytes).unwrap().header(), header);
        with_every_byte_corrupted(&bytes, check::transport);
    }
}

/// [W-12]
#[test]
fn short_path_identifiers_in_the_long_form_are_refused() {
    for path in 0..31 {
        let mut bytes = std::vec![0; 40];
        bytes[..3].copy_from_slice(&[0x9f, 0, path]);
        assert!(TransportPacket::new_checked(&bytes).is_err());
    }
}

/// [W-11]
#[test]
fn messages_without_a_frame_are_refused() {
    let mut bytes = std::vec![0; 6 + TAG_LEN];
    bytes[0] = 0x80;
    assert!(TransportPacket::new_checked(&bytes).is_err());
    bytes.push(0);
    assert_eq!(TransportPacket::new_checked(&bytes).unwrap().sealed().len(), TAG_LEN + 1);
}

/// [W-23]
#[test]
fn full_packet_over_ipv4_costs_at_most_62_bytes() {
    let header = TransportHeader {
        path: PathId(30),
        receiver: ReceiverIndex(u32::MAX),
        number: TruncatedNumber::new(u64::MAX, 4),
    };
    let frame = |session| PacketFrameHeader {
        session: SessionId(session),
        sequence: u32::MAX,
        ordered: true,
    };
    let overhead = |session| 20 + 8 + header.encoded_len() + frame(session).encoded_len() + TAG_LEN;
    assert_eq!(overhead(63), 59);
    assert_eq!(overhead((1 << 30) - 1), 62);
}

proptest! {
    #![proptest_config(config())]

    /// [W-4]
    #[test]
    fn headers_round_trip_and_no_truncation_or_corruption_is_misread(
        header in header(), sealed in prop::collection::vec(any::<u8>(), 17..40),
        mask in 1..=255_u8,
    ) {
        let mut bytes = emitted(header.encoded_len(), |buffer| header.emit(buffer));
        bytes.extend(&sealed);
        let packet = TransportPacket::new_checked(&bytes).unwrap();
        prop_assert_eq!(packet.header(), header);
        prop_assert_eq!(packet.header_len(), header.encoded_len());
        prop_assert_eq!(packet.associated_data(), &bytes[..header.encoded_len()]);
        prop_assert_eq!(packet.sealed(), &sealed[..]);
        for len in 0..bytes.len() {
            // What lost only ciphertext is a shorter message, which does not authenticate.
            let shorter = TransportPacket::new_checked(&bytes[..len]);
            let expected = (len > header.encoded_len() + TAG_LEN).then_some(header);
            prop_assert_eq!(shorter.map(|packet| packet.header()).ok(), expected);
        }
        with_every_bit_corrupted(&bytes, mask, check::transport);
    }
}
