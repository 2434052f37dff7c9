//! Packets for tests: made, cut and completed in the plainest way, independent of the crate's code.

use mpip_types::{Offload, PartialChecksum, SegmentationKind};

const TCP: u8 = 6;

/// The sum of 16-bit words, folded, not complemented.
pub(crate) fn sum(parts: &[&[u8]]) -> u16 {
    let bytes: Vec<u8> = parts.concat();
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn is_ipv6(packet: &[u8]) -> bool {
    packet[0] >> 4 == 6
}

pub(crate) fn ip_header_len(packet: &[u8]) -> usize {
    if is_ipv6(packet) { 40 } else { usize::from(packet[0] & 15) * 4 }
}

pub(crate) fn protocol(packet: &[u8]) -> u8 {
    if is_ipv6(packet) { packet[6] } else { packet[9] }
}

/// Bytes of IP and transport header of a TCP or UDP packet.
pub(crate) fn header_len(packet: &[u8]) -> usize {
    let ip = ip_header_len(packet);
    ip + if protocol(packet) == TCP { usize::from(packet[ip + 12] >> 4) * 4 } else { 8 }
}

fn pseudo_header(packet: &[u8]) -> Vec<u8> {
    let addresses = if is_ipv6(packet) { &packet[8..40] } else { &packet[12..20] };
    let len = (packet.len() - ip_header_len(packet)) as u32;
    [addresses, &len.to_be_bytes(), &[0, protocol(packet)]].concat()
}

/// Where the transport checksum is.
pub(crate) fn checksum_place(packet: &[u8]) -> PartialChecksum {
    let offset = if protocol(packet) == TCP { 16 } else { 6 };
    PartialChecksum { start: ip_header_len(packet) as u16, offset }
}

/// Sets the transport checksum of a TCP or UDP packet.
pub(crate) fn complete(packet: &mut [u8]) {
    let place = checksum_place(packet);
    let at = usize::from(place.start + place.offset);
    packet[at..at + 2].fill(0);
    let sum = !sum(&[&pseudo_header(packet), &packet[usize::from(place.start)..]]);
    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Sets the transport checksum to the pseudo-header's sum.
pub(crate) fn make_partial(packet: &mut [u8]) {
    let place = checksum_place(packet);
    let at = usize::from(place.start + place.offset);
    let sum = sum(&[&pseudo_header(packet)]);
    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

pub(crate) fn checksum_is_valid(packet: &[u8]) -> bool {
    sum(&[&pseudo_header(packet), &packet[ip_header_len(packet)..]]) == 0xffff
}

/// Sets length fields and the checksum of IPv4.
pub(crate) fn set_lengths(packet: &mut [u8]) {
    let ip = ip_header_len(packet);
    let len = packet.len();
    if is_ipv6(packet) {
        packet[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
    } else {
        packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        packet[10..12].fill(0);
        let sum = !sum(&[&packet[..ip]]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    if protocol(packet) != TCP {
        packet[ip + 4..ip + 6].copy_from_slice(&((len - ip) as u16).to_be_bytes());
    }
}

/// What the kernel would send for a packet with this offload state: whole packets.
pub(crate) fn cut(packet: &[u8], offload: Offload) -> Vec<Vec<u8>> {
    let Some(segmentation) = offload.segmentation else {
        let mut whole = packet.to_vec();
        if let Some(place) = offload.partial_checksum {
            assert_eq!(place, checksum_place(packet));
            let ip = usize::from(place.start);
            let at = ip + usize::from(place.offset);
            // The field holds the pseudo-header's sum, which takes part as it stands.
            let sum = !sum(&[&packet[ip..]]);
            whole[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        return vec![whole];
    };
    assert_eq!(offload.partial_checksum, Some(checksum_place(packet)));
    assert_eq!(segmentation.kind == SegmentationKind::Tcp, protocol(packet) == TCP);
    let (ip, header) = (ip_header_len(packet), header_len(packet));
    let mut segments = Vec::new();
    let payloads: Vec<&[u8]> = packet[header..].chunks(usize::from(segmentation.size)).collect();
    for (index, payload) in payloads.iter().enumerate() {
        let mut segment = [&packet[..header], payload].concat();
        if !is_ipv6(packet) {
            let id = u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(index as u16);
            segment[4..6].copy_from_slice(&id.to_be_bytes());
        }
        if protocol(packet) == TCP {
            let sequence = u32::from_be_bytes(packet[ip + 4..ip + 8].try_into().expect("4 bytes"));
            let sent = (index * usize::from(segmentation.size)) as u32;
            segment[ip + 4..ip + 8].copy_from_slice(&sequence.wrapping_add(sent).to_be_bytes());
            if index + 1 < payloads.len() {
                segment[ip + 13] &= !(0x01 | 0x08);
            }
            if index > 0 {
                segment[ip + 13] &= !0x80;
            }
        }
        set_lengths(&mut segment);
        complete(&mut segment);
        segments.push(segment);
    }
    segments
}
