//! Segmentation of a super-packet, one segment at a time, into the caller's buffer.
//!
//! Segments are the same as those of the kernel's software segmentation (Linux
//! `net/ipv4/tcp_offload.c`, `udp_offload.c`, `af_inet.c`, `net/ipv6/ip6_offload.c`), so the peer's
//! host sees what a network card without offloads would have sent.

use core::fmt;

use super::checksum::{fold, sum};
use super::{Header, Version, protocol, set_dscp};
use crate::buffer::{
    Offload, PacketBuf, PacketPart, PartialChecksum, Segmentation, SegmentationKind,
};
use crate::ecn::Ecn;

const TCP_HEADER: usize = 20;
const TCP_SEQUENCE: usize = 4;
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

const UDP_HEADER: usize = 8;
const UDP_LENGTH: usize = 4;
const UDP_CHECKSUM: usize = 6;

/// Buffer size for the headers of a super-packet: IPv6 with up to 68 bytes of extension headers,
/// and TCP with all options; also enough for the headers of other packets of a session.
pub const HEAD_ROOM: usize = 168;

/// Error: the offload state of a packet contradicts its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentError {
    /// The segment size is 0.
    Size,
    /// The super-packet is a fragment.
    Fragment,
    /// The super-packet has another transport protocol than its offload state says.
    Protocol {
        /// The protocol of the offload state.
        kind: SegmentationKind,
        /// The protocol number in the packet.
        found: u8,
    },
    /// The headers up to and with the transport's end beyond the packet, or the transport header
    /// is shorter than its fixed part.
    HeaderLength {
        /// Bytes of all headers by their length fields.
        found: usize,
        /// Bytes of the packet.
        total: usize,
    },
    /// The checksum to be completed lies outside the packet, or is not the transport's.
    Checksum {
        /// Where the offload state has it.
        found: PartialChecksum,
    },
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Size => write!(f, "expected a segment size of at least 1 byte, found 0"),
            Self::Fragment => write!(f, "expected a whole packet to cut, found a fragment"),
            Self::Protocol { kind, found } => {
                write!(f, "expected a {kind:?} super-packet, found IP protocol {found}")
            }
            Self::HeaderLength { found, total } => {
                write!(f, "headers of {found} bytes do not fit a packet of {total} bytes")
            }
            Self::Checksum { found } => write!(
                f,
                "the partial checksum at {} + {} is not the packet's",
                found.start, found.offset
            ),
        }
    }
}

impl core::error::Error for SegmentError {}

/// How the transport checksum of each segment is made.
#[derive(Clone, Copy, Debug)]
enum Checksum {
    /// It is complete already, or the packet has none.
    AsIs,
    /// The sum of the bytes from `start`, the field at `field` included.
    Completed { start: u16, field: u16 },
    /// Computed for the segment; `pseudo` is the folded sum of the pseudo-header without the
    /// length, in the machine's byte order.
    PerSegment { pseudo: u16 },
}

/// A packet or super-packet, prepared for writing any of its segments. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct Segments {
    packet: PacketBuf,
    plan: Plan,
}

/// How the segments of a packet are made.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Bytes of the packet by its length field.
    total_len: u16,
    /// Bytes before the transport header.
    network_len: u16,
    /// Bytes of the headers that every segment repeats; the whole packet if it is not segmented.
    header_len: u16,
    /// Transport payload of every segment but the last.
    size: u16,
    count: u16,
    version: Version,
    kind: Option<SegmentationKind>,
    checksum: Checksum,
    ecn: Ecn,
    /// The code point that every segment is given.
    dscp: Option<u8>,
    pure_ack: bool,
}

impl Segments {
    /// The segments of `packet`, whose headers are `header`.
    ///
    /// # Errors
    ///
    /// When the packet's offload state contradicts its bytes.
    pub fn new(packet: PacketBuf, header: &Header) -> Result<Self, SegmentError> {
        let total_len = header.total_len.min(packet.bytes().len());
        let mut plan = Plan {
            total_len: total_len as u16,
            network_len: header.header_len.min(total_len) as u16,
            header_len: total_len as u16,
            size: 0,
            count: 1,
            version: header.version,
            kind: None,
            checksum: Checksum::AsIs,
            ecn: header.ecn,
            dscp: None,
            pure_ack: header.is_pure_ack(packet.bytes()),
        };
        match packet.offload().segmentation {
            Some(segmentation) => plan.cut(&packet, header, segmentation)?,
            None => plan.complete(packet.offload())?,
        }
        Ok(Self { packet, plan })
    }

    /// Whether it is a pure TCP acknowledgement.
    pub fn is_pure_ack(&self) -> bool {
        self.plan.pure_ack
    }

    /// Number of segments, at least 1.
    pub fn count(&self) -> usize {
        self.plan.count.into()
    }

    /// Bytes of segment `index` from its IP header on.
    ///
    /// # Panics
    ///
    /// If there is no such segment.
    pub fn segment_len(&self, index: usize) -> usize {
        let payload = self.payload(index);
        usize::from(self.plan.header_len) + payload.1 - payload.0
    }

    /// Bytes of TCP's payload in segment `index`, and the sequence number after it; `None` if it
    /// has no TCP header. The transport protocol has to be TCP.
    ///
    /// # Panics
    ///
    /// If there is no such segment.
    pub fn stream(&self, index: usize) -> Option<(usize, u32)> {
        let network = usize::from(self.plan.network_len);
        let (from, to) = self.payload(index);
        let fixed = self.packet.bytes()[..to].get(network..)?.first_chunk::<20>()?;
        let header = network + usize::from(fixed[12] >> 4) * 4;
        let number = u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
        // A packet that is not segmented has no separate payload.
        let from = if self.plan.kind.is_some() { from } else { header };
        let end = number.wrapping_add(to.saturating_sub(header) as u32);
        Some((to.saturating_sub(from), end))
    }

    /// The same for all segments together ([`stream`](Self::stream)).
    pub fn whole_stream(&self) -> Option<(usize, u32)> {
        let (first, start) = self.stream(0)?;
        let (_, end) = self.stream(self.count() - 1)?;
        Some((first + end.wrapping_sub(start) as usize, end))
    }

    /// Bytes of all segments from `index` on.
    pub fn remaining_len(&self, index: usize) -> usize {
        if index >= self.count() {
            return 0;
        }
        let payload = usize::from(self.plan.total_len) - self.payload(index).0;
        payload + (self.count() - index) * usize::from(self.plan.header_len)
    }

    /// Explicit congestion notification of every segment.
    pub fn ecn(&self) -> Ecn {
        self.plan.ecn
    }

    /// Gives every segment the differentiated services code point `dscp` (RFC 2474), 0 to 63. The
    /// packet stays as it is.
    pub fn set_dscp(&mut self, dscp: u8) {
        self.plan.dscp = Some(dscp);
    }

    /// The packet or super-packet, as it came.
    pub fn packet(&self) -> &PacketBuf {
        &self.packet
    }

    /// Writes segment `index`, complete in every field, to the start of `out`; returns its length.
    ///
    /// # Panics
    ///
    /// If there is no such segment, or `out` is shorter than [`segment_len`](Self::segment_len).
    pub fn write(&self, index: usize, out: &mut [u8]) -> usize {
        let (from, to) = self.payload(index);
        let header = usize::from(self.plan.header_len);
        let len = header + to - from;
        let out = &mut out[..len];
        let bytes = self.packet.bytes();
        out[..header].copy_from_slice(&bytes[..header]);
        out[header..].copy_from_slice(&bytes[from..to]);
        self.patch(index, len, out);
        match self.plan.checksum {
            Checksum::AsIs => {}
            Checksum::Completed { start, field } => {
                let value = !fold(sum(&out[start.into()..]));
                put_native(out, field.into(), if value == 0 { !0 } else { value });
            }
            Checksum::PerSegment { pseudo } => self.sum_transport(pseudo, out),
        }
        len
    }

    /// Writes the start of segment `index`, with all its headers, to `head`. The fields are as in
    /// [`write`](Self::write), except the transport checksum, which is not computed. Returns the
    /// number of bytes written, and the rest of the segment; both empty if the headers of a
    /// super-packet do not fit.
    ///
    /// # Panics
    ///
    /// If there is no such segment.
    pub fn write_head(&self, index: usize, head: &mut [u8; HEAD_ROOM]) -> (usize, PacketPart<'_>) {
        let (from, to) = self.payload(index);
        let header = usize::from(self.plan.header_len);
        let bytes = self.packet.bytes();
        if self.plan.kind.is_some() && header > HEAD_ROOM {
            return (0, self.packet.part(0..0));
        }
        let written = header.min(HEAD_ROOM);
        head[..written].copy_from_slice(&bytes[..written]);
        self.patch(index, header + to - from, &mut head[..written]);
        // A packet that is not segmented has no separate payload.
        (written, self.packet.part(if header > written { written..header } else { from..to }))
    }

    /// The payload of segment `index` of a super-packet, where it lies.
    ///
    /// # Panics
    ///
    /// If there is no such segment.
    pub fn segment_payload(&self, index: usize) -> PacketPart<'_> {
        let (from, to) = self.payload(index);
        self.packet.part(from..to)
    }

    /// Whether the transport checksum was made by the packet's origin, so that it may be wrong.
    pub fn has_foreign_checksum(&self) -> bool {
        matches!(self.plan.checksum, Checksum::AsIs)
    }

    /// Start and end of the payload of segment `index` in the packet.
    fn payload(&self, index: usize) -> (usize, usize) {
        assert!(index < self.count(), "segment {index} of {}", self.plan.count);
        let total = usize::from(self.plan.total_len);
        let from = usize::from(self.plan.header_len) + index * usize::from(self.plan.size);
        let to = if index + 1 == self.count() { total } else { from + usize::from(self.plan.size) };
        (from, to)
    }

    /// Changes the headers at the start of `out` to those of segment `index`, which has `len`
    /// bytes.
    fn patch(&self, index: usize, len: usize, out: &mut [u8]) {
        if let Some(dscp) = self.plan.dscp {
            set_dscp(out, dscp);
        }
        if let Some(kind) = self.plan.kind {
            self.patch_network(index, len as u16, out);
            self.patch_transport(kind, index, len as u16, out);
        }
    }

    fn patch_network(&self, index: usize, len: u16, out: &mut [u8]) {
        match self.plan.version {
            Version::V4 => {
                put(out, 2, len);
                let id = u16::from_be_bytes([out[4], out[5]]);
                put(out, 4, id.wrapping_add(index as u16));
                put(out, 10, 0);
                let header = usize::from(out[0] & 15) * 4;
                let checksum = !fold(sum(&out[..header]));
                put_native(out, 10, checksum);
            }
            Version::V6 => put(out, 4, len - 40),
        }
    }

    fn patch_transport(&self, kind: SegmentationKind, index: usize, len: u16, out: &mut [u8]) {
        let transport = &mut out[self.plan.network_len.into()..];
        match kind {
            SegmentationKind::Tcp => {
                let sequence = transport[TCP_SEQUENCE..].first_chunk().expect("checked at the cut");
                let sequence = u32::from_be_bytes(*sequence);
                let sequence = sequence.wrapping_add(index as u32 * u32::from(self.plan.size));
                transport[TCP_SEQUENCE..][..4].copy_from_slice(&sequence.to_be_bytes());
                if index + 1 < self.count() {
                    transport[TCP_FLAGS] &= !(TCP_FIN | TCP_PSH);
                }
                if index > 0 {
                    transport[TCP_FLAGS] &= !TCP_CWR;
                }
            }
            SegmentationKind::Udp => put(transport, UDP_LENGTH, len - self.plan.network_len),
        }
    }

    fn sum_transport(&self, pseudo: u16, out: &mut [u8]) {
        let transport = &mut out[self.plan.network_len.into()..];
        let udp = self.plan.kind == Some(SegmentationKind::Udp);
        let field = if udp { UDP_CHECKSUM } else { TCP_CHECKSUM };
        put(transport, field, 0);
        let len = native(transport.len() as u16);
        let value = !fold(u64::from(pseudo) + u64::from(len) + sum(transport));
        // RFC 768: a sum of zero is sent as all ones.
        put_native(transport, field, if udp && value == 0 { !0 } else { value });
    }
}

impl Plan {
    /// Prepares a packet that stays whole.
    fn complete(&mut self, offload: Offload) -> Result<(), SegmentError> {
        if let Some(partial) = offload.partial_checksum {
            let field = usize::from(partial.start) + usize::from(partial.offset);
            let covered = partial.start >= self.network_len && field + 2 <= self.total_len.into();
            if !covered {
                return Err(SegmentError::Checksum { found: partial });
            }
            self.checksum = Checksum::Completed { start: partial.start, field: field as u16 };
        }
        Ok(())
    }

    /// Prepares a super-packet.
    fn cut(
        &mut self,
        packet: &PacketBuf,
        header: &Header,
        to: Segmentation,
    ) -> Result<(), SegmentError> {
        if to.size == 0 {
            return Err(SegmentError::Size);
        }
        if header.fragment {
            return Err(SegmentError::Fragment);
        }
        let expected = match to.kind {
            SegmentationKind::Tcp => protocol::TCP,
            SegmentationKind::Udp => protocol::UDP,
        };
        if header.protocol != expected {
            return Err(SegmentError::Protocol { kind: to.kind, found: header.protocol });
        }
        let total = usize::from(self.total_len);
        let network = usize::from(self.network_len);
        let transport = &packet.bytes()[network..total];
        let (fixed, transport_len, field) = match to.kind {
            SegmentationKind::Tcp => {
                let words = transport.get(12).map_or(0, |byte| byte >> 4);
                (TCP_HEADER, usize::from(words) * 4, TCP_CHECKSUM)
            }
            SegmentationKind::Udp => (UDP_HEADER, UDP_HEADER, UDP_CHECKSUM),
        };
        if transport.len() < fixed || transport_len < fixed || transport_len > transport.len() {
            return Err(SegmentError::HeaderLength { found: network + transport_len, total });
        }
        let partial = packet.offload().partial_checksum;
        if let Some(found) = partial
            && (usize::from(found.start), usize::from(found.offset)) != (network, field)
        {
            return Err(SegmentError::Checksum { found });
        }
        let filled = u16::from_ne_bytes([transport[field], transport[field + 1]]);
        self.checksum = if to.kind == SegmentationKind::Udp && filled == 0 {
            // RFC 768: the sender made no checksum.
            Checksum::AsIs
        } else if partial.is_some() {
            // The field is correct even if a routing header hides the final destination.
            let len = !native(transport.len() as u16);
            Checksum::PerSegment { pseudo: fold(u64::from(filled) + u64::from(len)) }
        } else {
            Checksum::PerSegment { pseudo: pseudo_header(packet.bytes(), header) }
        };
        self.header_len = (network + transport_len) as u16;
        let payload = self.total_len - self.header_len;
        self.size = to.size;
        self.count = payload.div_ceil(to.size).max(1);
        self.kind = Some(to.kind);
        Ok(())
    }
}

/// The folded sum of the pseudo-header without the length (RFC 9293, section 3.1; RFC 8200,
/// section 8.1).
fn pseudo_header(packet: &[u8], header: &Header) -> u16 {
    let addresses = match header.version {
        Version::V4 => &packet[12..20],
        Version::V6 => &packet[8..40],
    };
    fold(sum(addresses) + u64::from(native(header.protocol.into())))
}

/// A 16-bit number in network byte order, as a native word.
fn native(value: u16) -> u16 {
    value.to_be()
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn put_native(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_ne_bytes());
}
