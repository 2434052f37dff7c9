//! IP, TCP and UDP headers as far as segments are compared by them.

use mpip_types::{InnerPacket, PartialChecksum, SegmentationKind};

use crate::checksum::Sum;

const TCP: u8 = 6;
const UDP: u8 = 17;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;

/// Longest IPv6 extension header chain that is followed.
const MAX_EXTENSIONS: usize = 8;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;

/// Protocol, ports and addresses. Ports differ more often than addresses, and are compared first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    protocol: u8,
    ipv6: bool,
    ports: [u8; 4],
    addresses: [u8; 32],
}

/// How a packet is to be treated.
#[derive(Debug)]
pub(super) enum Shape {
    /// No TCP or UDP: its order against other packets does not matter.
    Other,
    /// Belongs to an unknown flow: passes nothing and is passed by nothing.
    Fragment,
    /// Belongs to a flow, but cannot be joined.
    Single(Flow),
    /// Can be joined with others.
    Segment(Flow, Segment),
}

/// A TCP or UDP packet with payload, whose lengths have been checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    protocol: u8,
    ipv6: bool,
    /// Bytes of the IP header.
    transport: usize,
    header_len: usize,
    payload: usize,
    /// It has PSH or FIN.
    last: bool,
}

/// The transport protocol and where its header begins.
fn transport(head: &[u8]) -> Option<(u8, usize)> {
    match head.first()? >> 4 {
        4 => {
            let len = usize::from(head[0] & 15) * 4;
            (len >= IPV4_HEADER && head.len() >= len).then(|| (head[9], len))
        }
        6 => {
            let mut next = *head.get(6)?;
            let mut offset = IPV6_HEADER;
            for _ in 0..MAX_EXTENSIONS {
                match next {
                    // Hop-by-hop options, routing, destination options (RFC 8200, section 4).
                    0 | 43 | 60 => {
                        next = *head.get(offset)?;
                        offset += (usize::from(*head.get(offset + 1)?) + 1) * 8;
                    }
                    _ => return Some((next, offset)),
                }
            }
            None
        }
        _ => None,
    }
}

/// Where the transport checksum of a TCP or UDP packet is.
pub(super) fn checksum_place(head: &[u8]) -> Option<PartialChecksum> {
    let (protocol, start) = transport(head)?;
    let offset = match protocol {
        TCP => 16,
        UDP => 6,
        _ => return None,
    };
    let inside = start + usize::from(offset) + 2 <= head.len();
    inside.then_some(PartialChecksum { start: u16::try_from(start).ok()?, offset })
}

/// Reads the headers in `head` of a packet of `len` bytes.
pub(super) fn shape(head: &[u8], len: usize) -> Shape {
    let Some((protocol, transport)) = transport(head) else { return Shape::Fragment };
    let ipv6 = head[0] >> 4 == 6;
    const IPV6_FRAGMENT: u8 = 44;
    let fragment = if ipv6 {
        protocol == IPV6_FRAGMENT
    } else {
        // More fragments, or an offset.
        head[6] & 0x3f != 0 || head[7] != 0
    };
    if fragment {
        return Shape::Fragment;
    }
    if protocol != TCP && protocol != UDP {
        return Shape::Other;
    }
    let Some(ports) = head.get(transport..).and_then(|header| header.first_chunk::<4>()) else {
        return Shape::Fragment;
    };
    let mut addresses = [0; 32];
    if ipv6 {
        addresses.copy_from_slice(&head[8..40]);
    } else {
        addresses[..8].copy_from_slice(&head[12..20]);
    }
    let flow = Flow { protocol, ipv6, addresses, ports: *ports };
    match segment(head, len, protocol, transport) {
        Some(segment) => Shape::Segment(flow, segment),
        None => Shape::Single(flow),
    }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The packet as a segment, if it may be joined with others.
fn segment(head: &[u8], len: usize, protocol: u8, transport: usize) -> Option<Segment> {
    let ipv6 = head[0] >> 4 == 6;
    let (plain, total) = if ipv6 {
        (IPV6_HEADER, IPV6_HEADER + usize::from(word(head, 4)))
    } else {
        (IPV4_HEADER, usize::from(word(head, 2)))
    };
    if transport != plain || total != len {
        return None;
    }
    if !ipv6 {
        let mut sum = Sum::default();
        sum.add(&head[..IPV4_HEADER]);
        if !sum.is_valid() {
            return None;
        }
    }
    let (header, last) = if protocol == TCP {
        let header = head.get(transport..).filter(|header| header.len() >= TCP_HEADER)?;
        let flags = header[13];
        // The four bits beside the length are reserved or accurate ECN's.
        if header[12] & 15 != 0 || flags & ACK == 0 || flags & !(ACK | PSH | FIN | ECE) != 0 {
            return None;
        }
        (usize::from(header[12] >> 4) * 4, flags & (PSH | FIN) != 0)
    } else {
        let header = head.get(transport..).filter(|header| header.len() >= UDP_HEADER)?;
        // Without a checksum there is none to verify, nor would it be absent afterwards.
        if usize::from(word(header, 4)) != len - transport || word(header, 6) == 0 {
            return None;
        }
        (UDP_HEADER, false)
    };
    let header_len = transport + header;
    let payload = len.checked_sub(header_len).filter(|payload| *payload > 0)?;
    let minimum = if protocol == TCP { TCP_HEADER } else { UDP_HEADER };
    (header >= minimum && header_len <= head.len()).then_some(Segment {
        protocol,
        ipv6,
        transport,
        header_len,
        payload,
        last,
    })
}

impl Segment {
    pub(super) fn is_tcp(&self) -> bool {
        self.protocol == TCP
    }

    pub(super) fn is_ipv6(&self) -> bool {
        self.ipv6
    }

    /// Whether nothing may follow it in a super-packet.
    pub(super) fn is_last(&self) -> bool {
        self.last
    }

    /// Bytes of all headers.
    pub(super) fn header_len(&self) -> usize {
        self.header_len
    }

    /// Bytes of payload, at least 1.
    pub(super) fn payload(&self) -> usize {
        self.payload
    }

    pub(super) fn kind(&self) -> SegmentationKind {
        if self.is_tcp() { SegmentationKind::Tcp } else { SegmentationKind::Udp }
    }

    pub(super) fn checksum_place(&self) -> PartialChecksum {
        let start = u16::try_from(self.transport).expect("20 or 40");
        PartialChecksum { start, offset: if self.is_tcp() { 16 } else { 6 } }
    }

    /// Whether the transport checksum of `packet`, which is this segment, is right.
    pub(super) fn checksum_is_valid(&self, packet: InnerPacket<'_>) -> bool {
        let mut sum = self.pseudo_header(packet.head, packet.len());
        sum.add(&packet.head[self.transport..]);
        sum.add(packet.tail);
        sum.is_valid()
    }

    fn pseudo_header(&self, head: &[u8], len: usize) -> Sum {
        let addresses = if self.ipv6 { &head[8..40] } else { &head[12..20] };
        Sum::pseudo_header(addresses, self.protocol, len - self.transport)
    }

    /// Whether `next`, with the headers `next_head`, is what cutting a super-packet with this
    /// segment's headers (in `head`) would yield after `count` segments. Both have the same flow
    /// and header length.
    pub(super) fn precedes(
        &self,
        head: &[u8],
        next: &Self,
        next_head: &[u8],
        count: usize,
    ) -> bool {
        let ip = if self.ipv6 {
            // Version, class and label; next header and hop limit.
            head[..4] == next_head[..4] && head[6..8] == next_head[6..8]
        } else {
            let index = u16::try_from(count).expect("a super-packet has fewer segments");
            let consecutive = word(head, 4).wrapping_add(index) == word(next_head, 4);
            // With DF the identification means nothing (RFC 6864, section 4.1).
            let atomic = head[6] & 0x40 != 0;
            head[..2] == next_head[..2]
                && head[6..8] == next_head[6..8]
                && head[8..10] == next_head[8..10]
                && (atomic || consecutive)
        };
        if !ip || !self.is_tcp() {
            return ip;
        }
        let (first, second) =
            (&head[self.transport..self.header_len], &next_head[next.transport..next.header_len]);
        let sequence =
            |header: &[u8]| u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let sent = u32::try_from(count * self.payload).expect("shorter than a packet");
        let end = PSH | FIN;
        sequence(first).wrapping_add(sent) == sequence(second)
            // Acknowledgement and header length.
            && first[8..13] == second[8..13]
            && first[13] & !end == second[13] & !end
            && first[14..16] == second[14..16]
            // Urgent pointer and options.
            && first[18..] == second[18..]
    }

    /// Sets in `buffer` what the flags of the last segment, with the headers `head`, add.
    pub(super) fn take_last_flags(&self, buffer: &mut [u8], head: &[u8]) {
        if self.is_tcp() {
            buffer[self.transport + 13] |= head[self.transport + 13] & (PSH | FIN);
        }
    }

    /// Makes the headers in `packet` those of a super-packet of its length: length fields, the
    /// checksum of IPv4 and the pseudo-header's sum.
    pub(super) fn set_length(&self, packet: &mut [u8]) {
        let len = packet.len();
        let field = |value: usize| {
            u16::try_from(value).expect("a super-packet is not longer than a packet").to_be_bytes()
        };
        if self.ipv6 {
            packet[4..6].copy_from_slice(&field(len - IPV6_HEADER));
        } else {
            packet[2..4].copy_from_slice(&field(len));
            packet[10..12].fill(0);
            let mut sum = Sum::default();
            sum.add(&packet[..IPV4_HEADER]);
            packet[10..12].copy_from_slice(&sum.checksum());
        }
        if !self.is_tcp() {
            packet[self.transport + 4..self.transport + 6]
                .copy_from_slice(&field(len - self.transport));
        }
        let place = self.checksum_place();
        let at = usize::from(place.start) + usize::from(place.offset);
        let sum = self.pseudo_header(packet, len).sum();
        packet[at..at + 2].copy_from_slice(&sum);
    }
}
