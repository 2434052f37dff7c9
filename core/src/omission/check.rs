//! Properties for arbitrary bytes, shared by the fuzz target and the test that replays its corpus.

use mpip_wire::{Frame, Frames, SessionFields};

use super::{HEAD_MAX, Restored, SessionHeader};
use mpip_types::Checksum;
use mpip_types::packet::Header;

/// Processes the bytes as the plaintext of transport messages: compact packets are restored with
/// the fields of the session open frame before them. Nothing panics, and compressing a restored
/// packet and restoring it again gives the same packet.
///
/// Returns whether the frames parse and at least one packet was restored, and none refused.
///
/// # Panics
///
/// When a property is violated.
pub fn compact_packets(bytes: &[u8]) -> bool {
    let mut session = None;
    let mut restored = false;
    for frame in Frames::new(bytes) {
        match frame {
            Err(_) => return false,
            Ok(Frame::SessionOpen { fields, .. }) => session = Some(fields),
            Ok(Frame::CompactPacket { header, compact }) => {
                let Some(fields) = &session else { return false };
                let sequence = header.sequence.expand(fields.sequence);
                let Some(known) = SessionHeader::new(fields) else { return false };
                if !restores(fields, &known, sequence, compact) {
                    return false;
                }
                restored = true;
            }
            Ok(_) => {}
        }
    }
    restored
}

fn restores(fields: &SessionFields, known: &SessionHeader, sequence: u32, compact: &[u8]) -> bool {
    let mut partial = [0xa5; HEAD_MAX];
    let in_part = known.restore(sequence, compact, Checksum::Partial, &mut partial);
    let Some(packet) = whole(known, sequence, compact) else {
        assert!(in_part.is_err(), "the checksum decides whether it restores");
        return false;
    };
    let Ok(in_part) = in_part else { panic!("the checksum decides whether it restores") };
    let parsed = Header::parse(&packet).expect("what is restored is a packet");
    assert_eq!(parsed.total_len, packet.len());
    assert_eq!(parsed.protocol, fields.protocol);
    let payload = &compact[in_part.payload..];
    assert_eq!(packet[in_part.head_len..], *payload);
    let differing = packet.iter().zip(&partial[..in_part.head_len]).filter(|(a, b)| a != b);
    assert!(differing.count() <= 2, "more than the checksum differs");

    let again = known.compress(sequence, &packet).expect("restored packets have a compact form");
    assert!(again.bytes().len() <= in_part.payload, "there is no shorter form");
    let mut form = again.bytes().to_vec();
    form.extend_from_slice(&packet[again.payload()..]);
    assert_eq!(whole(known, sequence, &form), Some(packet));
    true
}

fn whole(known: &SessionHeader, sequence: u32, compact: &[u8]) -> Option<Vec<u8>> {
    let mut head = [0x5a; HEAD_MAX];
    let restored = known.restore(sequence, compact, Checksum::Complete, &mut head).ok()?;
    let Restored { head_len, payload, checksum } = restored;
    assert_eq!(checksum, Checksum::Complete);
    Some([&head[..head_len], &compact[payload..]].concat())
}
