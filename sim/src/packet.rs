//! Inner packets: generation, segmentation and comparison.

use core::net::{IpAddr, SocketAddr};

use mpip_core::packet::{fold, sum};

/// IP protocol numbers that the simulator knows.
pub mod protocol {
    /// ICMP (RFC 792).
    pub const ICMP: u8 = 1;
    /// TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// ESP (RFC 4303): a protocol without ports.
    pub const ESP: u8 = 50;
    /// ICMPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
}

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;

/// Bytes of an IP header of the family of `address`.
pub fn ip_header_len(address: IpAddr) -> usize {
    if address.is_ipv4() { IPV4_HEADER } else { IPV6_HEADER }
}

/// Protocol and ends of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tuple {
    /// IP protocol number.
    pub protocol: u8,
    /// Source address, and port or ICMP identifier; 0 without one.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
}

/// Reads addresses, protocol and ports. `None` when the packet is not a whole IP packet.
pub fn tuple(packet: &[u8]) -> Option<Tuple> {
    let (protocol, source, destination, header): (u8, IpAddr, IpAddr, usize) =
        match packet.first()? >> 4 {
            4 => {
                let header = usize::from(packet[0] & 15) * 4;
                let source: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
                let destination: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
                (*packet.get(9)?, source.into(), destination.into(), header)
            }
            6 => {
                let source: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
                let destination: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
                (*packet.get(6)?, source.into(), destination.into(), IPV6_HEADER)
            }
            _ => return None,
        };
    if total_len(packet)? != packet.len() || packet.len() < header {
        return None;
    }
    let payload = &packet[header..];
    let port = |at: usize| payload.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    let (from, to) = match protocol {
        protocol::TCP | protocol::UDP => (port(0), port(2)),
        protocol::ICMP | protocol::ICMPV6 => (port(4), port(4)),
        _ => (0, 0),
    };
    Some(Tuple {
        protocol,
        source: SocketAddr::new(source, from),
        destination: SocketAddr::new(destination, to),
    })
}

fn total_len(packet: &[u8]) -> Option<usize> {
    match packet.first()? >> 4 {
        4 => Some(usize::from(u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?))),
        6 => {
            Some(IPV6_HEADER + usize::from(u16::from_be_bytes(packet.get(4..6)?.try_into().ok()?)))
        }
        _ => None,
    }
}

/// The transport part of a packet, after the IP header.
pub fn transport(packet: &[u8]) -> &[u8] {
    let header = match packet.first().map(|b| b >> 4) {
        Some(4) => usize::from(packet[0] & 15) * 4,
        _ => IPV6_HEADER,
    };
    packet.get(header..).unwrap_or(&[])
}

/// One's complement sum of RFC 1071 over `bytes`, added to `before`.
fn add(before: u16, bytes: &[u8]) -> u16 {
    u16::from_be(fold(u64::from(before.to_be()) + sum(bytes)))
}

fn pseudo_header(packet: &[u8], protocol: u8, len: usize) -> u16 {
    let addresses = if packet[0] >> 4 == 4 { &packet[12..20] } else { &packet[8..40] };
    add(fold(u64::from(protocol) + len as u64), addresses)
}

fn checksum_offset(protocol: u8) -> Option<usize> {
    match protocol {
        protocol::TCP => Some(16),
        protocol::UDP => Some(6),
        protocol::ICMP | protocol::ICMPV6 => Some(2),
        _ => None,
    }
}

/// Writes the transport checksum of a packet, and that of an IPv4 header.
pub fn write_checksums(packet: &mut [u8]) {
    let v4 = packet[0] >> 4 == 4;
    let (header, protocol) = if v4 { (IPV4_HEADER, packet[9]) } else { (IPV6_HEADER, packet[6]) };
    if v4 {
        packet[10..12].fill(0);
        let sum = !add(0, &packet[..IPV4_HEADER]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let Some(offset) = checksum_offset(protocol) else { return };
    let at = header + offset;
    if packet.len() < at + 2 {
        return;
    }
    packet[at..at + 2].fill(0);
    let pseudo = match protocol {
        protocol::ICMP => 0,
        _ => pseudo_header(packet, protocol, packet.len() - header),
    };
    let sum = !add(pseudo, &packet[header..]);
    let sum = if sum == 0 && protocol == protocol::UDP { 0xffff } else { sum };
    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Writes the pseudo-header sum to the checksum field, as a kernel does for checksum offload.
/// Returns the start of the sum and the offset of the field from there.
pub fn make_checksum_partial(packet: &mut [u8]) -> Option<(u16, u16)> {
    let Tuple { protocol, source, .. } = tuple(packet)?;
    if protocol != protocol::TCP && protocol != protocol::UDP {
        return None;
    }
    let header = ip_header_len(source.ip());
    let offset = checksum_offset(protocol)?;
    let sum = pseudo_header(packet, protocol, packet.len() - header);
    packet.get_mut(header + offset..header + offset + 2)?.copy_from_slice(&sum.to_be_bytes());
    Some((header as u16, offset as u16))
}

/// Whether the IPv4 header checksum is valid; true for IPv6, which has none.
pub fn header_checksum_is_right(packet: &[u8]) -> bool {
    if packet.first().is_none_or(|b| b >> 4 != 4) {
        return true;
    }
    let header = usize::from(packet[0] & 15) * 4;
    packet.get(..header).is_some_and(|bytes| add(0, bytes) == 0xffff)
}

/// A digest that identifies a packet. Of the ECN field it includes only whether the packet is
/// capable, because a router may mark it. It excludes the IPv4 header checksum: see
/// [`header_checksum_is_right`].
pub fn digest(packet: &[u8]) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut head = [0u8; IPV6_HEADER];
    let len = packet.len().min(IPV6_HEADER);
    head[..len].copy_from_slice(&packet[..len]);
    match head[0] >> 4 {
        4 => {
            if head[1] & 3 != 0 {
                head[1] = head[1] & !3 | 2;
            }
            head[10..12].fill(0);
        }
        6 if head[1] & 0x30 != 0 => head[1] = head[1] & !0x30 | 0x20,
        _ => {}
    }
    let mut state = packet.len() as u64 ^ K;
    let mut mix = |word: u64| {
        state = (state ^ word).wrapping_mul(K);
        state ^= state >> 29;
    };
    let (words, rest) = head[..len].as_chunks::<8>();
    words.iter().for_each(|word| mix(u64::from_le_bytes(*word)));
    rest.iter().for_each(|byte| mix(u64::from(*byte)));
    let (words, rest) = packet[len..].as_chunks::<8>();
    words.iter().for_each(|word| mix(u64::from_le_bytes(*word)));
    rest.iter().for_each(|byte| mix(u64::from(*byte)));
    state
}

/// Headers of a packet to generate.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// IP protocol number.
    pub protocol: u8,
    /// Source address and port (ICMP: the identifier).
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// Low two bits of the traffic class.
    pub ecn: u8,
}

/// Fills `out` with a packet of `len` bytes whose payload derives from `sequence`; `len` is raised
/// to the minimum for the headers and the sequence number. TCP segments get `offset` as their
/// sequence number.
pub fn build(shape: &Shape, sequence: u64, offset: u32, len: usize, out: &mut Vec<u8>) {
    let ip = ip_header_len(shape.source.ip());
    let transport = match shape.protocol {
        protocol::TCP => 20,
        _ => 8,
    };
    let len = len.max(ip + transport + 8);
    out.clear();
    out.resize(len, 0);
    write_ip_header(shape, sequence as u16, out);
    let (from, to) = (shape.source.port().to_be_bytes(), shape.destination.port().to_be_bytes());
    let body = &mut out[ip..];
    match shape.protocol {
        protocol::TCP => {
            body[0..2].copy_from_slice(&from);
            body[2..4].copy_from_slice(&to);
            body[4..8].copy_from_slice(&offset.to_be_bytes());
            body[8..12].copy_from_slice(&1u32.to_be_bytes());
            body[12] = 5 << 4;
            body[13] = 0x10;
            body[14..16].copy_from_slice(&0xffffu16.to_be_bytes());
        }
        protocol::UDP => {
            body[0..2].copy_from_slice(&from);
            body[2..4].copy_from_slice(&to);
            body[4..6].copy_from_slice(&((len - ip) as u16).to_be_bytes());
        }
        protocol::ICMP | protocol::ICMPV6 => {
            body[0] = if shape.protocol == protocol::ICMP { 8 } else { 128 };
            body[4..6].copy_from_slice(&from);
            body[6..8].copy_from_slice(&(sequence as u16).to_be_bytes());
        }
        _ => body[..4].copy_from_slice(&offset.to_be_bytes()),
    }
    let payload = &mut body[transport..];
    payload[..8].copy_from_slice(&sequence.to_be_bytes());
    fill(sequence, 8, &mut payload[8..]);
    write_checksums(out);
}

fn write_ip_header(shape: &Shape, identification: u16, out: &mut [u8]) {
    let len = out.len();
    match (shape.source.ip(), shape.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            out[0] = 0x45;
            out[1] = shape.ecn & 3;
            out[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            out[4..6].copy_from_slice(&identification.to_be_bytes());
            out[8] = 64;
            out[9] = shape.protocol;
            out[12..16].copy_from_slice(&source.octets());
            out[16..20].copy_from_slice(&destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            out[0] = 0x60;
            out[1] = (shape.ecn & 3) << 4;
            out[4..6].copy_from_slice(&((len - IPV6_HEADER) as u16).to_be_bytes());
            out[6] = shape.protocol;
            out[7] = 64;
            out[8..24].copy_from_slice(&source.octets());
            out[24..40].copy_from_slice(&destination.octets());
        }
        _ => unreachable!("both ends of a flow have one address family"),
    }
}

/// A UDP datagram with `payload`.
pub(crate) fn datagram(shape: &Shape, identification: u16, payload: &[u8]) -> Vec<u8> {
    let ip = ip_header_len(shape.source.ip());
    let mut out = vec![0; ip + 8 + payload.len()];
    write_ip_header(shape, identification, &mut out);
    let len = ((8 + payload.len()) as u16).to_be_bytes();
    out[ip..ip + 2].copy_from_slice(&shape.source.port().to_be_bytes());
    out[ip + 2..ip + 4].copy_from_slice(&shape.destination.port().to_be_bytes());
    out[ip + 4..ip + 6].copy_from_slice(&len);
    out[ip + 8..].copy_from_slice(payload);
    write_checksums(&mut out);
    out
}

/// The payload of a UDP datagram, if its checksum is right.
pub(crate) fn udp_payload(packet: &[u8]) -> Option<&[u8]> {
    let Tuple { protocol, source, .. } = tuple(packet)?;
    let datagram = packet.get(ip_header_len(source.ip())..)?;
    let sum = add(pseudo_header(packet, protocol, datagram.len()), datagram);
    if protocol != protocol::UDP || sum != 0xffff {
        return None;
    }
    datagram.get(8..)
}

/// The ECN field of a packet.
pub(crate) fn ecn(packet: &[u8]) -> u8 {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => packet.get(1).map_or(0, |byte| byte & 3),
        _ => packet.get(1).map_or(0, |byte| byte >> 4 & 3),
    }
}

/// Eight bytes of the stream numbered `stream`, from the offset 8 * `index` on.
fn word(stream: u64, index: u64) -> [u8; 8] {
    let word = index.wrapping_add(stream.wrapping_mul(0x1_0000_0001));
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

/// The byte at `offset` of the stream numbered `stream`.
#[cfg(test)]
pub(crate) fn pattern(stream: u64, offset: u64) -> u8 {
    word(stream, offset >> 3)[(offset & 7) as usize]
}

/// Writes the bytes of the stream numbered `stream` from `offset` on.
pub(crate) fn fill(stream: u64, offset: u64, out: &mut [u8]) {
    let skipped = (offset & 7) as usize;
    let mut words = (offset >> 3..).map(|index| word(stream, index));
    let (head, rest) = out.split_at_mut((8 - skipped).min(out.len()));
    if let Some(first) = words.next() {
        head.copy_from_slice(&first[skipped..skipped + head.len()]);
    }
    for (chunk, word) in rest.chunks_mut(8).zip(words) {
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// The offset of the first of `bytes` that is not that of the stream numbered `stream`, where they
/// are to be those from `offset` on.
pub(crate) fn find_wrong(stream: u64, offset: u64, bytes: &[u8]) -> Option<u64> {
    let mut at = offset;
    let mut expected = [0; 512];
    for chunk in bytes.chunks(expected.len()) {
        fill(stream, at, &mut expected[..chunk.len()]);
        if *chunk != expected[..chunk.len()] {
            let same = chunk.iter().zip(&expected).take_while(|(a, b)| a == b).count();
            return Some(at + same as u64);
        }
        at += chunk.len() as u64;
    }
    None
}

/// The reply to an ICMP echo request; `None` if the packet is no request.
pub fn echo_reply(packet: &[u8]) -> Option<Vec<u8>> {
    let Tuple { protocol, source, .. } = tuple(packet)?;
    let header = ip_header_len(source.ip());
    let reply = match (protocol, *packet.get(header)?) {
        (protocol::ICMP, 8) => 0,
        (protocol::ICMPV6, 128) => 129,
        _ => return None,
    };
    let mut answer = packet.to_vec();
    if header == IPV4_HEADER {
        answer[1] = 0;
        answer[12..16].copy_from_slice(&packet[16..20]);
        answer[16..20].copy_from_slice(&packet[12..16]);
    } else {
        answer[8..24].copy_from_slice(&packet[24..40]);
        answer[24..40].copy_from_slice(&packet[8..24]);
    }
    answer[header] = reply;
    write_checksums(&mut answer);
    Some(answer)
}

/// Whether the packet is a valid ICMP "packet too big" message (IPv4: "fragmentation needed").
pub fn is_too_big(packet: &[u8]) -> bool {
    let Some(Tuple { protocol, source, .. }) = tuple(packet) else { return false };
    let kind = packet.get(ip_header_len(source.ip())..).and_then(|message| message.first_chunk());
    let too_big = matches!(
        (protocol, kind),
        (protocol::ICMP, Some([3, 4])) | (protocol::ICMPV6, Some([2, 0]))
    );
    let mut summed = packet.to_vec();
    too_big && {
        write_checksums(&mut summed);
        summed == packet
    }
}

/// Segments a super-packet of TCP or UDP into `size` payload bytes each, as a network card does:
/// identification and sequence number advance, FIN and PSH are set on the last segment only, CWR on
/// the first.
pub fn cut(packet: &[u8], size: usize) -> Vec<Vec<u8>> {
    let Some(Tuple { protocol, source, .. }) = tuple(packet) else { return Vec::new() };
    let ip = ip_header_len(source.ip());
    let headers = match protocol {
        protocol::TCP => ip + usize::from(packet[ip + 12] >> 4) * 4,
        _ => ip + 8,
    };
    let count = packet[headers..].len().div_ceil(size);
    let segments = packet[headers..].chunks(size).enumerate();
    segments
        .map(|(index, payload)| {
            let mut segment = packet[..headers].to_vec();
            segment.extend_from_slice(payload);
            let len = segment.len();
            if ip == IPV4_HEADER {
                segment[2..4].copy_from_slice(&(len as u16).to_be_bytes());
                let id = u16::from_be_bytes([segment[4], segment[5]]).wrapping_add(index as u16);
                segment[4..6].copy_from_slice(&id.to_be_bytes());
            } else {
                segment[4..6].copy_from_slice(&((len - IPV6_HEADER) as u16).to_be_bytes());
            }
            if protocol == protocol::TCP {
                let at = ip + 4;
                let first = u32::from_be_bytes([
                    packet[at],
                    packet[at + 1],
                    packet[at + 2],
                    packet[at + 3],
                ]);
                let sequence = first.wrapping_add((index * size) as u32);
                segment[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
                if index + 1 < count {
                    segment[ip + 13] &= !0x09;
                }
                if index > 0 {
                    segment[ip + 13] &= !0x80;
                }
            } else {
                let udp = ((len - ip) as u16).to_be_bytes();
                segment[ip + 4..ip + 6].copy_from_slice(&udp);
            }
            write_checksums(&mut segment);
            segment
        })
        .collect()
}

#[cfg(test)]
mod tests;
