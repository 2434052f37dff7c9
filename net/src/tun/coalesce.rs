//! Joining consecutive segments of a flow into super-packets, by the rules of the kernel's GRO:
//! cutting the super-packet again gives the same packets.

mod headers;

use mpip_types::{Checksum, InnerPacket, MAX_PACKET, Segmentation};

use super::vnet::VnetHeader;
use headers::{Flow, Segment, Shape};

/// Flows that can wait at the same time; with more, the oldest goes first. A batch of a server's
/// 64 connections holds about so many (the kernel's GRO keeps 8 for each of 8 hash buckets).
const MAX_FLOWS: usize = 32;

/// Most segments in a super-packet of UDP (`UDP_MAX_SEGMENTS` until Linux 6.9).
const MAX_UDP_SEGMENTS: usize = 64;

/// Takes finished frames.
pub(super) trait FrameSink {
    /// Takes the packet that `head` and `tail` form.
    fn frame(&mut self, header: VnetHeader, head: &[u8], tail: &[u8]);
}

/// Holds back segments until the next of their flow has come, or [`flush`](Self::flush).
///
/// The order within a flow is kept. Fragments and what cannot be read keep their place among all
/// packets; other protocols than TCP and UDP are passed at once.
#[derive(Debug)]
pub(super) struct Coalescer {
    /// The oldest is first.
    groups: Vec<Group>,
    /// Buffers of groups to come; those of `groups` and these are [`MAX_FLOWS`].
    spare: Vec<Box<[u8]>>,
    udp: bool,
}

/// Segments of one flow, joined in `buffer`: the headers of the first and all payloads.
#[derive(Debug)]
struct Group {
    buffer: Box<[u8]>,
    len: usize,
    flow: Flow,
    first: Segment,
    /// Whether the first segment's checksum is known to be right.
    verified: bool,
    checksum: Checksum,
    segments: usize,
}

/// What became of a segment that was offered to its flow's group.
enum Joined {
    /// It is in the group, which can take more.
    Open,
    /// It is in the group, which is complete.
    Closed,
    /// It does not follow the group.
    No,
    /// Its checksum is wrong, and it has to stay so.
    Corrupt,
}

impl Coalescer {
    /// A coalescer of TCP, and with `udp` of UDP.
    pub(super) fn new(udp: bool) -> Self {
        let spare = (0..MAX_FLOWS).map(|_| vec![0; MAX_PACKET].into()).collect();
        Self { groups: Vec::with_capacity(MAX_FLOWS), spare, udp }
    }

    /// Takes a packet; it, or others before it, may be passed to `out`.
    pub(super) fn push(&mut self, packet: InnerPacket<'_>, out: &mut impl FrameSink) {
        match headers::shape(packet.head, packet.len()) {
            Shape::Other => alone(packet, out),
            Shape::Fragment => {
                self.flush(out);
                alone(packet, out);
            }
            Shape::Single(flow) => {
                if let Some(index) = self.find(&flow) {
                    self.emit(index, out);
                }
                alone(packet, out);
            }
            Shape::Segment(flow, segment) if self.udp || segment.is_tcp() => {
                self.segment(packet, flow, segment, out);
            }
            Shape::Segment(..) => alone(packet, out),
        }
    }

    /// Passes everything on.
    pub(super) fn flush(&mut self, out: &mut impl FrameSink) {
        let Self { groups, spare, .. } = self;
        spare.extend(groups.drain(..).map(|group| group.emit(out)));
    }

    fn find(&self, flow: &Flow) -> Option<usize> {
        // The segments of a flow mostly come one after the other.
        self.groups.iter().rposition(|group| group.flow == *flow)
    }

    fn segment(
        &mut self,
        packet: InnerPacket<'_>,
        flow: Flow,
        segment: Segment,
        out: &mut impl FrameSink,
    ) {
        if let Some(index) = self.find(&flow) {
            match self.groups[index].join(packet, &segment) {
                Joined::Open => return,
                Joined::Closed => return self.emit(index, out),
                Joined::Corrupt => {
                    self.emit(index, out);
                    return alone(packet, out);
                }
                Joined::No => self.emit(index, out),
            }
        }
        if segment.is_last() {
            return alone(packet, out);
        }
        if self.spare.is_empty() {
            self.emit(0, out);
        }
        let buffer = self.spare.pop().expect("a group gave its buffer back");
        self.groups.push(Group::new(buffer, packet, flow, segment));
    }

    fn emit(&mut self, index: usize, out: &mut impl FrameSink) {
        let group = self.groups.remove(index);
        self.spare.push(group.emit(out));
    }
}

/// Passes a packet on as it is.
fn alone(packet: InnerPacket<'_>, out: &mut impl FrameSink) {
    let header = match (packet.checksum, headers::checksum_place(packet.head)) {
        (Checksum::Partial, Some(place)) => VnetHeader::partial(place),
        _ => VnetHeader::COMPLETE,
    };
    out.frame(header, packet.head, packet.tail);
}

impl Group {
    fn new(mut buffer: Box<[u8]>, packet: InnerPacket<'_>, flow: Flow, first: Segment) -> Self {
        let (head, len) = (packet.head.len(), packet.len());
        buffer[..head].copy_from_slice(packet.head);
        buffer[head..len].copy_from_slice(packet.tail);
        let verified = packet.checksum == Checksum::Partial;
        Self { buffer, len, flow, first, verified, checksum: packet.checksum, segments: 1 }
    }

    fn join(&mut self, packet: InnerPacket<'_>, segment: &Segment) -> Joined {
        let payload = packet.len() - segment.header_len();
        if !self.is_followed_by(packet.head, segment) || self.len + payload > MAX_PACKET {
            return Joined::No;
        }
        if !self.verified {
            let first = InnerPacket {
                head: &self.buffer[..self.len],
                tail: &[],
                checksum: Checksum::Complete,
            };
            if !self.first.checksum_is_valid(first) {
                return Joined::No;
            }
            self.verified = true;
        }
        if packet.checksum == Checksum::Complete && !segment.checksum_is_valid(packet) {
            return Joined::Corrupt;
        }
        let mut end = self.len;
        for part in [&packet.head[segment.header_len()..], packet.tail] {
            self.buffer[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        self.len = end;
        self.segments += 1;
        self.first.take_last_flags(&mut self.buffer, packet.head);
        let full = self.len + self.first.payload() > MAX_PACKET
            || (!segment.is_tcp() && self.segments == MAX_UDP_SEGMENTS);
        if full || segment.is_last() || payload < self.first.payload() {
            Joined::Closed
        } else {
            Joined::Open
        }
    }

    fn is_followed_by(&self, head: &[u8], segment: &Segment) -> bool {
        segment.payload() <= self.first.payload()
            && segment.header_len() == self.first.header_len()
            && self.first.precedes(&self.buffer, segment, head, self.segments)
    }

    /// Passes it on. Returns its buffer.
    fn emit(mut self, out: &mut impl FrameSink) -> Box<[u8]> {
        let header = self.finish();
        out.frame(header, &self.buffer[..self.len], &[]);
        self.buffer
    }

    /// Makes the headers those of the super-packet.
    fn finish(&mut self) -> VnetHeader {
        let place = self.first.checksum_place();
        if self.segments == 1 {
            return match self.checksum {
                Checksum::Complete => VnetHeader::COMPLETE,
                Checksum::Partial => VnetHeader::partial(place),
            };
        }
        self.first.set_length(&mut self.buffer[..self.len]);
        let size = u16::try_from(self.first.payload()).expect("shorter than a packet");
        let header_len = u16::try_from(self.first.header_len()).expect("shorter than a packet");
        let segmentation = Segmentation { kind: self.first.kind(), size };
        VnetHeader::super_packet(self.first.is_ipv6(), segmentation, header_len, place)
    }
}

#[cfg(test)]
mod tests;
