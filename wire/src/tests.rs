//! `[W-n]` names the requirement of `docs/protocol.md` that a test proves.
#![allow(clippy::unwrap_used)]

mod availability;
mod frames;
mod handshake;
mod number;
mod transport;

use std::string::ToString;
use std::vec::Vec;

use proptest::prelude::*;

use crate::*;

/// Few cases, many mutations in each: a crate's tests stay within seconds.
fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) }
}

/// A variable-length integer; all four lengths are equally likely.
fn varint() -> impl Strategy<Value = u64> {
    prop_oneof![0..0x40_u64, 0x40..0x4000_u64, 0x4000..0x4000_0000_u64, 0x4000_0000..=VARINT_MAX]
}

/// The number of frames in `bytes`, if all are valid.
fn check(bytes: &[u8]) -> Result<usize, Error> {
    Frames::checked(bytes).map(Iterator::count)
}

fn emitted(len: usize, emit: impl Fn(&mut [u8]) -> Result<usize, Error>) -> Vec<u8> {
    let mut buffer = std::vec![0xa5; len];
    assert_eq!(emit(&mut buffer), Ok(len));
    buffer
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    assert_eq!(digits.len() % 2, 0);
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Runs `check` on `bytes` with each byte replaced by each other value. The functions of
/// [`check`](crate::check) assert that what still parses emits exactly the corrupted bytes.
fn with_every_byte_corrupted(bytes: &[u8], check: fn(&[u8]) -> bool) {
    let mut corrupted = bytes.to_vec();
    for index in 0..bytes.len() {
        for mask in 1..=255 {
            corrupted[index] = bytes[index] ^ mask;
            check(&corrupted);
        }
        corrupted[index] = bytes[index];
    }
}

/// As [`with_every_byte_corrupted`] but with the eight single-bit errors and `mask` only.
fn with_every_bit_corrupted(bytes: &[u8], mask: u8, check: fn(&[u8]) -> bool) {
    let mut corrupted = bytes.to_vec();
    for index in 0..bytes.len() {
        for mask in (0..8).map(|bit| 1 << bit).chain([mask]) {
            corrupted[index] = bytes[index] ^ mask;
            check(&corrupted);
        }
        corrupted[index] = bytes[index];
    }
}

/// [W-1]
#[test]
fn first_byte_tells_the_message_and_unknown_types_are_refused() {
    for first in 0..=255 {
        let expected = match first {
            0x01 => Some(MessageType::Initiation),
            0x02 => Some(MessageType::Response),
            0x03 => Some(MessageType::CookieReply),
            0x05 => Some(MessageType::Query),
            0x06 => Some(MessageType::Answer),
            0x80.. => Some(MessageType::Transport),
            _ => None,
        };
        assert_eq!(MessageType::of(&[first, 7]).ok(), expected, "{first:#x}");
    }
    assert!(MessageType::of(&[]).is_err());
}

/// [W-1]
#[test]
fn each_view_refuses_the_bytes_of_another_message() {
    for len in [44, 52, 104, 160] {
        for first in 0..=255 {
            let mut bytes = std::vec![0; len];
            bytes[0] = first;
            let is = |expected| MessageType::of(&bytes) == Ok(expected);
            if InitiationPacket::new_checked(&bytes).is_ok() {
                assert!(is(MessageType::Initiation));
            }
            if ResponsePacket::new_checked(&bytes).is_ok() {
                assert!(is(MessageType::Response));
            }
            if CookieReplyPacket::new_checked(&bytes).is_ok() {
                assert!(is(MessageType::CookieReply));
            }
            if QueryPacket::new_checked(&bytes).is_ok() {
                assert!(is(MessageType::Query));
            }
            if AnswerPacket::new_checked(&bytes).is_ok() {
                assert!(is(MessageType::Answer));
            }
            if TransportPacket::new_checked(&bytes).is_ok() {
                assert!(is(MessageType::Transport));
            }
        }
    }
}

#[test]
fn errors_say_what_was_expected_what_came_and_where() {
    let error = MessageType::of(&[0x40]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "message type at byte 0: expected 0x01, 0x02, 0x03, 0x05, 0x06 or bit 7 set, got 64 (0x40)"
    );
    let error = AnswerPacket::new_checked(&[6, 1, 0]).unwrap_err();
    assert_eq!(error.to_string(), "availability answer: expected 44 bytes, got 3");
    let error = check(&[0x01, 0x04, 1, 2]).unwrap_err();
    assert_eq!(error.to_string(), "path challenge at byte 2: expected 8 bytes, got 2");
    let error = Frame::Heartbeat.emit(&mut []).unwrap_err();
    assert_eq!(error.to_string(), "buffer: expected room for 1 bytes, got 0");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..config() })]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = MessageType::of(&bytes);
        check::handshake(&bytes);
        check::transport(&bytes);
        check::frames(&bytes);
        check::availability(&bytes);
        check::packet_number(&bytes);
    }

    #[test]
    fn arbitrary_bytes_after_a_valid_type_never_panic(
        first in prop::sample::select(&[1_u8, 2, 3, 5, 6, 0x80, 0x9f, 0xff][..]),
        kind in 0..0x2a_u8,
        len in prop::sample::select(&[12_usize, 24, 44, 52, 104, 160][..]),
        mut bytes in prop::collection::vec(any::<u8>(), 160),
    ) {
        bytes.truncate(len);
        bytes[0] = kind;
        check::frames(&bytes);
        bytes[0] = first;
        check::handshake(&bytes);
        check::transport(&bytes);
        check::availability(&bytes);
    }
}
