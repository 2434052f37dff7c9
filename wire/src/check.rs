//! What must hold for arbitrary bytes, shared by the fuzz targets and the tests that replay their
//! corpora: nothing panics, and whatever parses emits exactly the bytes it was parsed from.
//!
//! Each function returns whether the bytes parsed, and panics when a property is violated.

use crate::*;

/// Any of the three handshake messages and the two payloads inside.
pub fn handshake(bytes: &[u8]) -> bool {
    let initiation = InitiationPacket::new_checked(bytes).map(|packet| {
        assert_eq!(packet.mac1_input().len(), InitiationPacket::MAC1_OFFSET);
        assert_eq!(packet.mac2_input().len(), InitiationPacket::MAC2_OFFSET);
        same(bytes, |buffer| packet.repr().emit(buffer));
    });
    let response = ResponsePacket::new_checked(bytes).map(|packet| {
        assert_eq!(packet.mac1_input().len(), ResponsePacket::MAC1_OFFSET);
        assert_eq!(packet.mac2_input().len(), ResponsePacket::MAC2_OFFSET);
        same(bytes, |buffer| packet.repr().emit(buffer));
    });
    let cookie_reply = CookieReplyPacket::new_checked(bytes)
        .map(|packet| same(bytes, |buffer| packet.repr().emit(buffer)));
    let initiation_payload =
        InitiationPayload::parse(bytes).map(|payload| same(bytes, |buffer| payload.emit(buffer)));
    let response_payload =
        ResponsePayload::parse(bytes).map(|payload| same(bytes, |buffer| payload.emit(buffer)));
    initiation.or(response).or(cookie_reply).or(initiation_payload).or(response_payload).is_ok()
}

/// A transport message.
pub fn transport(bytes: &[u8]) -> bool {
    let Ok(packet) = TransportPacket::new_checked(bytes) else { return false };
    assert_eq!(MessageType::of(bytes), Ok(MessageType::Transport));
    let header = packet.header();
    assert_eq!(packet.header_len(), header.encoded_len());
    assert_eq!(packet.associated_data().len() + packet.sealed().len(), bytes.len());
    assert!(packet.sealed().len() > TAG_LEN);
    same(packet.associated_data(), |buffer| header.emit(buffer));
    true
}

/// The plaintext of a transport message.
pub fn frames(bytes: &[u8]) -> bool {
    let mut frames = Frames::new(bytes);
    let mut count = 0;
    let mut start = 0;
    let mut work = 0;
    while let Some(frame) = frames.next() {
        let Ok(frame) = frame else {
            assert_eq!(frames.next(), None, "iteration goes on after an error");
            assert!(Frames::checked(bytes).is_err());
            return false;
        };
        let end = frames.offset();
        same(&bytes[start..end], |buffer| frame.emit(buffer));
        assert_eq!(frame.encoded_len(), end - start, "{frame:?}");
        if let Frame::Feedback(feedback) = frame {
            assert_eq!(feedback.ranges.iter().count(), feedback.ranges.len());
            assert!(feedback.ranges.iter().all(|range| range.first <= range.last));
        }
        if let Frame::Addresses { list, .. } = frame {
            assert_eq!(list.iter().count(), list.len());
        }
        start = end;
        count += 1;
        work += frame.work();
    }
    assert_eq!(start, bytes.len());
    let valid = count > 0 && work <= WORK_MAX;
    let checked = Frames::checked(bytes);
    assert_eq!(checked.clone().map(Iterator::count).ok(), valid.then_some(count));
    assert!(checked.is_err() || checked.into_iter().flatten().eq(Frames::new(bytes).flatten()));
    valid
}

/// An availability query or answer.
pub fn availability(bytes: &[u8]) -> bool {
    let query = QueryPacket::new_checked(bytes).map(|packet| {
        assert!(bytes.len() >= AnswerPacket::LEN, "an answer would be larger");
        same(bytes, |buffer| packet.repr().emit(buffer));
    });
    let answer = AnswerPacket::new_checked(bytes)
        .map(|packet| same(bytes, |buffer| packet.repr().emit(buffer)));
    query.or(answer).is_ok()
}

/// Truncation and expansion of packet numbers. The bytes are the largest number received, the
/// largest number acknowledged, and a packet number, 8 bytes each.
pub fn packet_number(bytes: &[u8]) -> bool {
    let (chunks, []) = bytes.as_chunks::<8>() else { return false };
    let &[received, acked, number] = chunks else { return false };
    let [received, acked, number] = [received, acked, number].map(u64::from_be_bytes);
    for len in 0..=5 {
        let expanded = expand(Some(received), number as u32, len);
        assert!(expanded <= PACKET_NUMBER_MAX);
        let low = TruncatedNumber::new(number, len);
        assert_eq!(TruncatedNumber::new(expanded, len), low, "other low bytes");
    }
    let len = truncated_len(number, Some(acked));
    assert!((1..=4).contains(&len));
    // Arriving next, after nothing older than what was acknowledged, the number is restored.
    let reachable = number > acked && number - acked < 1 << 31 && number <= PACKET_NUMBER_MAX;
    if reachable {
        let low = TruncatedNumber::new(number, len);
        assert_eq!(low.expand(Some(acked)), number);
        assert_eq!(low.expand(Some(number - 1)), number);
        if (acked..number).contains(&received) {
            assert_eq!(low.expand(Some(received)), number);
        }
    }
    reachable
}

/// Asserts that `emit` writes exactly `bytes`, and refuses a buffer that is one byte shorter.
fn same(bytes: &[u8], emit: impl Fn(&mut [u8]) -> Result<usize, Error>) {
    // The large buffer is slow to clear, and most frames are small.
    match bytes.len() {
        0..256 => same_in(bytes, emit, &mut [0xa5; 256]),
        256..=DATAGRAM_MAX => same_in(bytes, emit, &mut [0xa5; DATAGRAM_MAX + 1]),
        _ => (),
    }
}

fn same_in(bytes: &[u8], emit: impl Fn(&mut [u8]) -> Result<usize, Error>, buffer: &mut [u8]) {
    assert_eq!(emit(buffer), Ok(bytes.len()));
    assert_eq!(&buffer[..bytes.len()], bytes);
    assert_eq!(buffer[bytes.len()], 0xa5, "wrote beyond its length");
    let short = bytes.len() - 1;
    let error = Error::NoRoom { needed: bytes.len(), available: short };
    assert_eq!(emit(&mut buffer[..short]), Err(error));
}
