use super::*;

fn aead() -> impl Strategy<Value = Aead> {
    prop_oneof![Just(Aead::Aes256Gcm), Just(Aead::ChaCha20Poly1305)]
}

fn timestamp() -> impl Strategy<Value = Timestamp> {
    (any::<u64>(), 0..1_000_000_000_u32)
        .prop_map(|(seconds, nanoseconds)| Timestamp { seconds, nanoseconds })
}

#[test]
fn initiation_has_the_specified_layout() {
    let noise = [0xee; 120];
    let repr = InitiationRepr {
        sender: ReceiverIndex(0x0102_0304),
        noise: &noise,
        mac1: [0xa1; 16],
        mac2: [0xa2; 16],
    };
    let mut expected = hex("01 000000 01020304");
    expected.extend([0xee; 120]);
    expected.extend([0xa1; 16]);
    expected.extend([0xa2; 16]);
    assert_eq!(expected.len(), 160);
    assert_eq!(emitted(repr.encoded_len(), |buffer| repr.emit(buffer)), expected);
    with_every_byte_corrupted(&expected, check::handshake);
}

#[test]
fn response_has_the_specified_layout() {
    let noise = [0xee; 60];
    let repr = ResponseRepr {
        sender: ReceiverIndex(0x0102_0304),
        receiver: ReceiverIndex(0x0506_0708),
        noise: &noise,
        mac1: [0xa1; 16],
        mac2: [0xa2; 16],
    };
    let mut expected = hex("02 000000 01020304 05060708");
    expected.extend([0xee; 60]);
    expected.extend([0xa1; 16]);
    expected.extend([0xa2; 16]);
    assert_eq!(expected.len(), 104);
    assert_eq!(emitted(repr.encoded_len(), |buffer| repr.emit(buffer)), expected);
    with_every_byte_corrupted(&expected, check::handshake);
}

#[test]
fn cookie_reply_has_the_specified_layout() {
    let sealed = [0xcc; 32];
    let repr = CookieReplyRepr {
        receiver: ReceiverIndex(0x0506_0708),
        nonce: [0x99; 12],
        sealed: &sealed,
    };
    let mut expected = hex("03 000000 05060708");
    expected.extend([0x99; 12]);
    expected.extend([0xcc; 32]);
    assert_eq!(expected.len(), 52);
    assert_eq!(emitted(repr.encoded_len(), |buffer| repr.emit(buffer)), expected);
    with_every_byte_corrupted(&expected, check::handshake);
}

#[test]
fn payloads_have_the_specified_layout() {
    let initiation = InitiationPayload {
        timestamp: Timestamp { seconds: 0x0102_0304_0506_0708, nanoseconds: 0x090a_0b0c },
        instance: 0x1112_1314_1516_1718,
        aeads: AeadSet::ALL,
        association: 0x8192,
    };
    let expected = hex("0102030405060708 090a0b0c 1112131415161718 03 01 8192");
    assert_eq!(emitted(24, |buffer| initiation.emit(buffer)), expected);
    with_every_byte_corrupted(&expected, check::handshake);

    let response = ResponsePayload {
        instance: 0x1112_1314_1516_1718,
        aead: Aead::ChaCha20Poly1305,
        association: 0x0192,
    };
    let expected = hex("1112131415161718 02 01 0192");
    assert_eq!(emitted(12, |buffer| response.emit(buffer)), expected);
    with_every_byte_corrupted(&expected, check::handshake);
}

/// [W-6]
#[test]
fn no_answer_to_a_handshake_message_is_larger_than_the_message() {
    const {
        assert!(ResponsePacket::LEN < InitiationPacket::LEN);
        assert!(CookieReplyPacket::LEN < ResponsePacket::LEN);
    }
}

/// [W-2]
#[test]
fn reserved_bytes_that_are_not_zero_are_refused() {
    for (kind, len) in [(1, 160), (2, 104), (3, 52)] {
        for reserved in 1..4 {
            let mut bytes = std::vec![0; len];
            bytes[0] = kind;
            assert!(check::handshake(&bytes));
            bytes[reserved] = 1;
            assert!(!check::handshake(&bytes), "type {kind}, byte {reserved}");
        }
    }
}

/// [W-8]
#[test]
fn payloads_of_another_version_are_refused() {
    for version in [0, 2, 255] {
        let mut initiation = hex("0000000000000000 00000000 0000000000000000 03 01 0000");
        assert!(InitiationPayload::parse(&initiation).is_ok());
        initiation[21] = version;
        assert!(matches!(
            InitiationPayload::parse(&initiation),
            Err(Error::Value { field: "version", offset: 21, .. })
        ));
        let mut response = hex("0000000000000000 01 01 0000");
        assert!(ResponsePayload::parse(&response).is_ok());
        response[9] = version;
        assert!(matches!(
            ResponsePayload::parse(&response),
            Err(Error::Value { field: "version", offset: 9, .. })
        ));
    }
}

/// [W-9]
#[test]
fn timestamps_with_a_second_of_nanoseconds_are_refused() {
    let payload = |nanoseconds| InitiationPayload {
        timestamp: Timestamp { seconds: 1, nanoseconds },
        instance: 2,
        aeads: AeadSet::ALL,
        association: 0,
    };
    let mut bytes = emitted(24, |buffer| payload(999_999_999).emit(buffer));
    assert!(InitiationPayload::parse(&bytes).is_ok());
    bytes[8..12].copy_from_slice(&1_000_000_000_u32.to_be_bytes());
    assert!(InitiationPayload::parse(&bytes).is_err());
    assert!(payload(1_000_000_000).emit(&mut [0; 24]).is_err());
}

/// [W-10]
#[test]
fn unknown_offered_aeads_are_ignored_and_unknown_chosen_ones_refused() {
    let bytes = hex("0000000000000000 00000000 0000000000000000 fd 01 0000");
    let aeads = InitiationPayload::parse(&bytes).unwrap().aeads;
    assert!(aeads.contains(Aead::Aes256Gcm) && !aeads.contains(Aead::ChaCha20Poly1305));
    for code in (0..=255).filter(|code| ![1, 2].contains(code)) {
        let mut bytes = hex("0000000000000000 01 01 0000");
        bytes[8] = code;
        assert!(ResponsePayload::parse(&bytes).is_err(), "{code}");
    }
}

/// [W-5]
#[test]
fn handshake_messages_of_another_length_are_refused() {
    for (kind, len) in [(1, 160), (2, 104), (3, 52)] {
        let mut bytes = std::vec![0; len + 40];
        bytes[0] = kind;
        for other in (0..len + 40).filter(|&other| other != len) {
            assert!(InitiationPacket::new_checked(&bytes[..other]).is_err());
            assert!(ResponsePacket::new_checked(&bytes[..other]).is_err());
            assert!(CookieReplyPacket::new_checked(&bytes[..other]).is_err());
        }
        assert!(check::handshake(&bytes[..len]));
    }
}

proptest! {
    #![proptest_config(config())]

    /// [W-4], [W-5]
    #[test]
    fn initiations_round_trip_and_no_truncation_or_corruption_is_misread(
        sender: u32, noise: [u8; 32], mac1: [u8; 16], mac2: [u8; 16], mask in 1..=255_u8,
    ) {
        let mut long = [0; 120];
        long[..32].copy_from_slice(&noise);
        long[88..].copy_from_slice(&noise);
        let repr = InitiationRepr { sender: ReceiverIndex(sender), noise: &long, mac1, mac2 };
        let bytes = emitted(repr.encoded_len(), |buffer| repr.emit(buffer));
        let packet = InitiationPacket::new_checked(&bytes).unwrap();
        prop_assert_eq!(packet.repr(), repr);
        prop_assert_eq!(packet.mac1_input(), &bytes[..128]);
        prop_assert_eq!(packet.mac2_input(), &bytes[..144]);
        prop_assert_eq!((packet.sender().0, packet.noise()), (sender, &long));
        prop_assert_eq!((packet.mac1(), packet.mac2()), (&mac1, &mac2));
        for len in 0..bytes.len() {
            prop_assert!(InitiationPacket::new_checked(&bytes[..len]).is_err());
        }
        with_every_bit_corrupted(&bytes, mask, check::handshake);
    }

    /// [W-4], [W-5]
    #[test]
    fn responses_round_trip_and_no_truncation_or_corruption_is_misread(
        sender: u32, receiver: u32, noise: [u8; 30], mac1: [u8; 16], mac2: [u8; 16],
        mask in 1..=255_u8,
    ) {
        let mut long = [0; 60];
        long[..30].copy_from_slice(&noise);
        long[30..].copy_from_slice(&noise);
        let (sender, receiver) = (ReceiverIndex(sender), ReceiverIndex(receiver));
        let repr = ResponseRepr { sender, receiver, noise: &long, mac1, mac2 };
        let bytes = emitted(repr.encoded_len(), |buffer| repr.emit(buffer));
        let packet = ResponsePacket::new_checked(&bytes).unwrap();
        prop_assert_eq!(packet.repr(), repr);
        prop_assert_eq!(packet.mac1_input(), &bytes[..72]);
        prop_assert_eq!(packet.mac2_input(), &bytes[..88]);
        prop_assert_eq!((packet.sender(), packet.receiver()), (sender, receiver));
        prop_assert_eq!(packet.noise(), &long);
        prop_assert_eq!((packet.mac1(), packet.mac2()), (&mac1, &mac2));
        for len in 0..bytes.len() {
            prop_assert!(ResponsePacket::new_checked(&bytes[..len]).is_err());
        }
        with_every_bit_corrupted(&bytes, mask, check::handshake);
    }

    /// [W-4], [W-5]
    #[test]
    fn cookie_replies_round_trip_and_no_truncation_or_corruption_is_misread(
        receiver: u32, nonce: [u8; 12], sealed: [u8; 32], mask in 1..=255_u8,
    ) {
        let repr = CookieReplyRepr { receiver: ReceiverIndex(receiver), nonce, sealed: &sealed };
        let bytes = emitted(repr.encoded_len(), |buffer| repr.emit(buffer));
        let packet = CookieReplyPacket::new_checked(&bytes).unwrap();
        prop_assert_eq!(packet.repr(), repr);
        prop_assert_eq!((packet.receiver().0, packet.nonce()), (receiver, &nonce));
        prop_assert_eq!(packet.sealed(), &sealed);
        for len in 0..bytes.len() {
            prop_assert!(CookieReplyPacket::new_checked(&bytes[..len]).is_err());
        }
        with_every_bit_corrupted(&bytes, mask, check::handshake);
    }

    /// [W-4], [W-5]
    #[test]
    fn payloads_round_trip_and_no_truncation_or_corruption_is_misread(
        timestamp in timestamp(), instance: u64, offers: u8, aead in aead(), association: u16,
        mask in 1..=255_u8,
    ) {
        let payload =
            InitiationPayload { timestamp, instance, aeads: AeadSet(offers), association };
        let bytes = emitted(payload.encoded_len(), |buffer| payload.emit(buffer));
        prop_assert_eq!(InitiationPayload::parse(&bytes), Ok(payload));
        for len in 0..bytes.len() {
            prop_assert!(InitiationPayload::parse(&bytes[..len]).is_err());
        }
        with_every_bit_corrupted(&bytes, mask, check::handshake);

        let payload = ResponsePayload { instance, aead, association };
        let bytes = emitted(payload.encoded_len(), |buffer| payload.emit(buffer));
        prop_assert_eq!(ResponsePayload::parse(&bytes), Ok(payload));
        for len in 0..bytes.len() {
            prop_assert!(ResponsePayload::parse(&bytes[..len]).is_err());
        }
        with_every_bit_corrupted(&bytes, mask, check::handshake);
    }

    #[test]
    fn timestamps_are_ordered_as_their_bytes(a in timestamp(), b in timestamp()) {
        let bytes = |timestamp| {
            let aeads = AeadSet::EMPTY;
            let payload = InitiationPayload { timestamp, instance: 0, aeads, association: 0 };
            emitted(24, |buffer| payload.emit(buffer))
        };
        prop_assert_eq!(a.cmp(&b), bytes(a).cmp(&bytes(b)));
    }
}
