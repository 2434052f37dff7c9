//! The frame of an inner packet: full or compact.

use mpip_wire::{CompactFrameHeader, PacketFrameHeader, TruncatedSequence};

use crate::omission::{CompactHeader, SessionHeader};
use crate::parts::sending::NextPacket;
use mpip_types::PacketPart;
use mpip_types::packet::{HEAD_ROOM, mark_ce};

/// The encoding of an inner packet.
pub(crate) enum Form<'a> {
    /// The full packet.
    Full(PacketFrameHeader),
    /// Without the fields that the receiver knows.
    Compact(CompactFrameHeader, Compressed<'a>),
}

/// A packet whose headers are compressed.
pub(crate) struct Compressed<'a> {
    header: &'a CompactHeader,
    /// The payload, in two parts.
    start: &'a [u8],
    rest: PacketPart<'a>,
}

impl<'a> Form<'a> {
    /// The shortest form of `next`, if the receiver knows `header`.
    pub(crate) fn of(
        next: &'a NextPacket,
        header: Option<&SessionHeader>,
        compressor: &'a mut Compressor,
    ) -> Self {
        let NextPacket { session, sequence, ordered, .. } = *next;
        match header.and_then(|header| compressor.compress(next, header)) {
            None => Self::Full(PacketFrameHeader { session, sequence, ordered }),
            Some(compressed) => {
                let sequence = TruncatedSequence::new(sequence);
                Self::Compact(CompactFrameHeader { session, sequence, ordered }, compressed)
            }
        }
    }

    /// Bytes of the frame for a packet of `len` bytes.
    pub(crate) fn encoded_len(&self, len: usize) -> usize {
        match self {
            Self::Full(frame) => frame.encoded_len() + len,
            Self::Compact(frame, Compressed { header, .. }) => {
                frame.encoded_len() + header.bytes().len() + len - header.payload()
            }
        }
    }

    /// The end of the frame, where it lies in the packet's buffer. [`write`](Self::write) leaves it
    /// out.
    pub(crate) fn body(&self) -> Option<PacketPart<'a>> {
        match self {
            Self::Full(_) => None,
            Self::Compact(_, Compressed { rest, .. }) => Some(rest.clone()),
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
            Self::Compact(frame, Compressed { header, start, .. }) => {
                let at = frame.emit(out).expect("room was reserved");
                let (to, payload) = out[at..].split_at_mut(header.bytes().len());
                to.copy_from_slice(header.bytes());
                payload.copy_from_slice(start);
            }
        }
    }
}

/// Compresses the headers of a run of packets. Those of a super-packet's segments follow from each
/// other: nothing has to be read and checked again.
pub(crate) struct Compressor {
    /// The start of the packet that was compressed last.
    head: [u8; HEAD_ROOM],
    compact: CompactHeader,
    /// The segment that `compact` is of, if another one may follow from it.
    last: Option<usize>,
}

/// Whether `next` is neither the first nor the last segment of a super-packet, whose flags differ,
/// and not marked.
fn is_inner(next: &NextPacket) -> bool {
    next.segment > 0 && next.segment + 1 < next.segments.count() && !next.mark
}

impl Compressor {
    pub(crate) fn new() -> Self {
        Self { head: [0; HEAD_ROOM], compact: CompactHeader::EMPTY, last: None }
    }

    /// Another run begins.
    pub(crate) fn begin(&mut self) {
        self.last = None;
    }

    fn compress<'a>(
        &'a mut self,
        next: &'a NextPacket,
        header: &SessionHeader,
    ) -> Option<Compressed<'a>> {
        if is_inner(next) && self.last.is_some_and(|last| last + 1 == next.segment) {
            let payload = (next.len - self.compact.payload()) as u32;
            if header.advance(next.sequence, payload, &mut self.compact) {
                self.last = Some(next.segment);
                let rest = next.segments.segment_payload(next.segment);
                return Some(Compressed { header: &self.compact, start: &[], rest });
            }
        }
        self.last = None;
        let (head_len, rest) = next.segments.write_head(next.segment, &mut self.head);
        let head = &mut self.head[..head_len];
        if next.mark {
            mark_ce(head);
        }
        // A checksum of another host may be wrong, and must stay so.
        let compact = if next.segments.has_foreign_checksum() {
            match next.mark {
                true => None,
                false => {
                    let before = &next.segments.packet().bytes()[..next.len];
                    header.compress_changed(next.sequence, head, before)
                }
            }
        } else {
            header.compress_valid(next.sequence, head, next.len)
        };
        self.compact = compact?;
        let may_follow = is_inner(next) && !next.segments.has_foreign_checksum();
        self.last = may_follow.then_some(next.segment);
        let start = &head[self.compact.payload()..];
        Some(Compressed { header: &self.compact, start, rest })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::omission::fields;
    use crate::parts::sending::Allowed;
    use crate::rules::{PathLimit, Treatment};
    use mpip_types::packet::{Header, Segments, protocol};
    use mpip_types::{Offload, PacketPool, PartialChecksum, Segmentation, SegmentationKind};
    use mpip_wire::SessionId;

    /// A super-packet of TCP or UDP with headers of 20 or 40 bytes, and 12 bytes of TCP options.
    fn super_packet(
        v6: bool,
        udp: bool,
        identification: u16,
        flags: u8,
        payload: usize,
    ) -> Vec<u8> {
        let transport = if udp { 8 } else { 32 };
        let (mut packet, at) = match v6 {
            true => (vec![0x60, 0x20, 0, 9, 0, 0, if udp { 17 } else { 6 }, 64], 4),
            false => (vec![0x45, 2, 0, 0, 0, 0, 0x40, 0, 64, if udp { 17 } else { 6 }, 3, 4], 2),
        };
        let network = if v6 { 40 } else { 20 };
        packet.resize(network, 7);
        let len = if v6 { transport + payload } else { network + transport + payload } as u16;
        packet[at..at + 2].copy_from_slice(&len.to_be_bytes());
        if !v6 {
            packet[4..6].copy_from_slice(&identification.to_be_bytes());
        }
        packet.extend([0x14, 0x51, 0xc0, 0]);
        if udp {
            packet.extend([(payload as u16 + 8).to_be_bytes(), [3, 3]].concat());
        } else {
            packet.extend([0xff, 0xff, 0xff, 0xf9, 0, 0, 0, 8, 0x80, flags & !2, 1, 1, 5, 6, 0, 0]);
            packet.extend([1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
        }
        packet.extend((0..payload).map(|n| n as u8));
        packet
    }

    fn frame(next: &NextPacket, header: &SessionHeader, compressor: &mut Compressor) -> Vec<u8> {
        let form = Form::of(next, Some(header), compressor);
        let body = form.body();
        let body = body.as_ref().map_or(&[][..], PacketPart::bytes);
        let mut out = vec![0; form.encoded_len(next.len) - body.len()];
        form.write(next, &mut out);
        [&out, body].concat()
    }

    proptest! {
        #[test]
        fn headers_that_follow_from_others_are_those_that_compression_gives(
            (v6, udp, flags) in any::<(bool, bool, u8)>(),
            (first, told) in (prop_oneof![0xfff0_u16..=0xffff, any::<u16>()], any::<u16>()),
            ahead in prop_oneof![Just(0), 0_u16..600],
            sequence in prop_oneof![0xffff_fffa_u32..=0xffff_ffff, any::<u32>()],
            size in 1_u16..60,
            segments in prop::collection::vec((0_u8..30, 0_u8..20), 1..24),
        ) {
            let payload = usize::from(size) * segments.len() - usize::from(size) / 2;
            // What the peer was told has the identification that predicts `first`, less `ahead`.
            let before = u32::from(told);
            let told = first.wrapping_sub(ahead).wrapping_sub(told);
            let told = fields(sequence.wrapping_sub(before), &super_packet(v6, udp, told, 16, 9));
            let header = SessionHeader::new(&told.expect("usual")).expect("usual");

            let bytes = super_packet(v6, udp, first, flags, payload);
            let kind = if udp { SegmentationKind::Udp } else { SegmentationKind::Tcp };
            let start = if v6 { 40 } else { 20 };
            let offset = if udp { 6 } else { 16 };
            let offload = Offload {
                partial_checksum: Some(PartialChecksum { start, offset }),
                segmentation: Some(Segmentation { kind, size }),
            };
            let packet = PacketPool::new(1, 1).fill(|room| {
                room[..bytes.len()].copy_from_slice(&bytes);
                Ok::<_, ()>((bytes.len(), offload))
            });
            let packet = packet.expect("a free buffer").expect("filled");
            let parsed = Header::parse(packet.bytes()).expect("valid");
            prop_assert_eq!(parsed.protocol, if udp { protocol::UDP } else { protocol::TCP });
            let cut = Segments::new(packet, &parsed).expect("valid");
            prop_assert_eq!(cut.count(), segments.len());

            let mut compressor = Compressor::new();
            let mut sequence = sequence;
            for (segment, (dropped, marked)) in segments.into_iter().enumerate() {
                let next = NextPacket {
                    segments: cut.clone(),
                    segment,
                    len: cut.segment_len(segment),
                    slot: 0,
                    session: SessionId(5),
                    sequence,
                    ordered: true,
                    repair: true,
                    mark: marked == 0,
                    treatment: Treatment::default(),
                    first_sent: None,
                    allowed: Allowed::ByRule(PathLimit::Any),
                    hold: None,
                };
                if dropped > 0 {
                    let followed = frame(&next, &header, &mut compressor);
                    prop_assert_eq!(followed, frame(&next, &header, &mut Compressor::new()));
                    sequence = sequence.wrapping_add(1);
                }
            }
        }
    }
}
