use super::*;

#[test]
fn query_and_answer_have_the_specified_layout() {
    let query = QueryRepr { nonce: 0x0102_0304_0506_0708, len: 44 };
    let mut expected = hex("05 01 0000 0102030405060708");
    expected.resize(44, 0);
    assert_eq!(emitted(44, |buffer| query.emit(buffer)), expected);
    with_every_byte_corrupted(&expected, check::availability);

    let answer = AnswerRepr { flags: 0x80, nonce: 0x0102_0304_0506_0708, public_key: [0xbb; 32] };
    let mut expected = hex("06 01 80 00 0102030405060708");
    expected.extend([0xbb; 32]);
    assert_eq!(emitted(44, |buffer| answer.emit(buffer)), expected);
    with_every_byte_corrupted(&expected, check::availability);
}

/// [W-7]
#[test]
fn queries_shorter_than_the_answer_are_refused() {
    let bytes = emitted(44, |buffer| QueryRepr { nonce: 1, len: 44 }.emit(buffer));
    for len in 0..44 {
        assert!(QueryPacket::new_checked(&bytes[..len]).is_err());
        assert!(QueryRepr { nonce: 1, len }.emit(&mut [0; 100]).is_err());
    }
}

/// [W-2]
#[test]
fn queries_and_answers_with_reserved_bytes_or_padding_set_are_refused() {
    let query = emitted(60, |buffer| QueryRepr { nonce: 1, len: 60 }.emit(buffer));
    for index in [2, 3].into_iter().chain(12..60) {
        let mut bytes = query.clone();
        bytes[index] = 1;
        assert!(QueryPacket::new_checked(&bytes).is_err(), "byte {index}");
    }
    let answer = AnswerRepr { flags: 0, nonce: 1, public_key: [0; 32] };
    let mut bytes = emitted(44, |buffer| answer.emit(buffer));
    bytes[3] = 1;
    assert!(AnswerPacket::new_checked(&bytes).is_err());
}

/// [W-8]
#[test]
fn queries_and_answers_of_another_version_are_refused() {
    for version in [0, 2, 255] {
        for kind in [5, 6] {
            let mut bytes = [0; 44];
            bytes[..2].copy_from_slice(&[kind, 1]);
            assert!(check::availability(&bytes));
            bytes[1] = version;
            assert!(!check::availability(&bytes));
        }
    }
}

#[test]
fn queries_longer_than_a_datagram_are_refused() {
    let mut bytes = std::vec![0; DATAGRAM_MAX + 1];
    bytes[..2].copy_from_slice(&[5, 1]);
    assert!(QueryPacket::new_checked(&bytes).is_err());
    assert!(QueryPacket::new_checked(&bytes[..DATAGRAM_MAX]).is_ok());
}

proptest! {
    #![proptest_config(config())]

    /// [W-4]
    #[test]
    fn queries_round_trip_and_no_truncation_or_corruption_is_misread(
        nonce: u64, len in 44..200_usize, mask in 1..=255_u8,
    ) {
        let repr = QueryRepr { nonce, len };
        let bytes = emitted(repr.encoded_len(), |buffer| repr.emit(buffer));
        let packet = QueryPacket::new_checked(&bytes).unwrap();
        prop_assert_eq!((packet.repr(), packet.nonce()), (repr, nonce));
        for len in 0..bytes.len() {
            // A query of which only padding is lost is a shorter query.
            let shorter = QueryPacket::new_checked(&bytes[..len]).map(|packet| packet.repr());
            prop_assert_eq!(shorter.ok(), (len >= 44).then_some(QueryRepr { nonce, len }));
        }
        with_every_bit_corrupted(&bytes, mask, check::availability);
    }

    /// [W-4], [W-5]
    #[test]
    fn answers_round_trip_and_no_truncation_or_corruption_is_misread(
        flags: u8, nonce: u64, public_key: [u8; 32], mask in 1..=255_u8,
    ) {
        let repr = AnswerRepr { flags, nonce, public_key };
        let mut bytes = emitted(repr.encoded_len(), |buffer| repr.emit(buffer));
        let packet = AnswerPacket::new_checked(&bytes).unwrap();
        prop_assert_eq!(packet.repr(), repr);
        prop_assert_eq!((packet.flags(), packet.nonce()), (flags, nonce));
        prop_assert_eq!(packet.public_key(), &public_key);
        for len in 0..bytes.len() {
            prop_assert!(AnswerPacket::new_checked(&bytes[..len]).is_err());
        }
        with_every_bit_corrupted(&bytes, mask, check::availability);
        bytes.push(0);
        prop_assert!(AnswerPacket::new_checked(&bytes).is_err());
    }
}
