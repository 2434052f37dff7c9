//! The frame of an inner packet: full or compact.

use mpip_wire::{CompactFrameHeader, PacketFrameHeader, TruncatedSequence};

use crate::omission::{CompactHeader, SessionHeader};
use crate::parts::sending::NextPacket;
use mpip_types::PacketPart;
use mpip_types::packet::{HEAD_ROOM, mark_ce};

/// The encoding of an inner packet.
#[expect(clippy::large_enum_variant, reason = "lives on the stack for one packet")]
pub(crate) enum Form<'a> {
    /// The full packet.
    Full(PacketFrameHeader),
    /// Without the fields that the receiver knows: the remaining header bytes, and the payload in
    /// two parts.
    Compact(CompactFrameHeader, CompactHeader, [u8; HEAD_ROOM], usize, PacketPart<'a>),
}

impl<'a> Form<'a> {
    /// The shortest form of `next`, if the receiver knows `header`.
    pub(crate) fn of(next: &'a NextPacket, len: usize, header: Option<&SessionHeader>) -> Self {
        let full = PacketFrameHeader {
            session: next.session,
            sequence: next.sequence,
            ordered: next.ordered,
        };
        let Some(header) = header else { return Self::Full(full) };
        let mut head = [0; HEAD_ROOM];
        let (head_len, rest) = next.segments.write_head(next.segment, &mut head);
        if next.mark {
            mark_ce(&mut head[..head_len]);
        }
        // A checksum of another host may be wrong, and must stay so.
        let compact = if next.segments.has_foreign_checksum() {
            match next.mark {
                true => None,
                false => {
                    let before = &next.segments.packet().bytes()[..len];
                    header.compress_changed(next.sequence, &head[..head_len], before)
                }
            }
        } else {
            header.compress_valid(next.sequence, &head[..head_len], len)
        };
        let Some(compact) = compact else { return Self::Full(full) };
        let frame = CompactFrameHeader {
            session: next.session,
            sequence: TruncatedSequence::new(next.sequence),
            ordered: next.ordered,
        };
        Self::Compact(frame, compact, head, head_len, rest)
    }

    /// Bytes of the frame for a packet of `len` bytes.
    pub(crate) fn encoded_len(&self, len: usize) -> usize {
        match self {
            Self::Full(frame) => frame.encoded_len() + len,
            Self::Compact(frame, compact, ..) => {
                frame.encoded_len() + compact.bytes().len() + len - compact.payload()
            }
        }
    }

    /// The end of the frame, where it lies in the packet's buffer. [`write`](Self::write) leaves it
    /// out.
    pub(crate) fn body(&self) -> Option<PacketPart<'a>> {
        match self {
            Self::Full(_) => None,
            Self::Compact(.., rest) => Some(rest.clone()),
        }
    }

    /// Writes the frame without its [`body`](Self::body); it fills `out`.
    pub(crate) fn write(&self, next: &NextPacket, out: &mut [u8]) {
        match self {
            Self::Full(frame) => {
                let at = frame.emit(out).expect("room was reserved");
                next.segments.write(next.segment, &mut out[at..]);
                if next.mark {
                    mark_ce(&mut out[at..]);
                }
            }
            Self::Compact(frame, compact, head, head_len, _) => {
                let at = frame.emit(out).expect("room was reserved");
                let (header, payload) = out[at..].split_at_mut(compact.bytes().len());
                header.copy_from_slice(compact.bytes());
                payload.copy_from_slice(&head[compact.payload()..*head_len]);
            }
        }
    }
}
