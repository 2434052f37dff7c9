//! The message that a router sends back for a packet that is too big (RFC 792 with RFC 1191;
//! RFC 4443, section 3.2).

use core::net::IpAddr;

use super::{Header, Version, checksum, protocol};

/// Largest message about an IPv4 packet (RFC 1812, section 4.3.2.3), and about an IPv6 packet
/// (RFC 4443, section 2.4).
const MAX_LEN_V4: usize = 576;
const MAX_LEN_V6: usize = 1_280;
/// Minimum MTU of IPv6 links (RFC 8200, section 5); senders ignore smaller values.
pub const MIN_MTU_V6: u16 = 1_280;
const ICMP_HEADER: usize = 8;
const TIME_TO_LIVE: u8 = 64;

/// The message that tells the sender of `packet`, which has `header`, to send at most `mtu` bytes.
/// Its source is the packet's destination: the host accepts packets from this address on the device
/// that it is written to.
///
/// `None` if no message may be sent: about an ICMP error, a later fragment, a packet that may be
/// fragmented, or one whose source or destination is not a single host (RFC 1812, section 4.3.2.7;
/// RFC 4443, section 2.4).
pub fn too_big(packet: &[u8], header: &Header, mtu: u16) -> Option<Vec<u8>> {
    let later_fragment = header.fragment && header.ports.is_none();
    let may_answer = header.dont_fragment
        && !later_fragment
        && !is_error(packet, header)
        && is_single_host(header.source)
        && is_single_host(header.destination);
    if !may_answer {
        return None;
    }
    Some(match (header.source, header.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let quoted = &packet[..packet.len().min(MAX_LEN_V4 - super::IPV4_HEADER - ICMP_HEADER)];
            let total = super::IPV4_HEADER + ICMP_HEADER + quoted.len();
            let mut message = Vec::with_capacity(total);
            // Precedence of internetwork control (RFC 1812, section 4.3.2.5).
            message.extend([0x45, 0xc0]);
            message.extend((total as u16).to_be_bytes());
            message.extend([0, 0, 0, 0, TIME_TO_LIVE, protocol::ICMP, 0, 0]);
            message.extend(destination.octets());
            message.extend(source.octets());
            put_checksum(&mut message, 0, 10, 0);
            // Destination unreachable, fragmentation needed.
            message.extend([3, 4, 0, 0, 0, 0]);
            message.extend(mtu.to_be_bytes());
            message.extend(quoted);
            put_checksum(&mut message, super::IPV4_HEADER, super::IPV4_HEADER + 2, 0);
            message
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let quoted = &packet[..packet.len().min(MAX_LEN_V6 - super::IPV6_HEADER - ICMP_HEADER)];
            let len = ICMP_HEADER + quoted.len();
            let mut message = Vec::with_capacity(super::IPV6_HEADER + len);
            message.extend([0x60, 0, 0, 0]);
            message.extend((len as u16).to_be_bytes());
            message.extend([protocol::ICMPV6, TIME_TO_LIVE]);
            message.extend(destination.octets());
            message.extend(source.octets());
            message.extend([2, 0, 0, 0, 0, 0]);
            message.extend(mtu.max(MIN_MTU_V6).to_be_bytes());
            message.extend(quoted);
            let pseudo_header = checksum::sum(&message[8..super::IPV6_HEADER])
                + u64::from((len as u16).to_be())
                + u64::from(u16::from(protocol::ICMPV6).to_be());
            let at = super::IPV6_HEADER;
            put_checksum(&mut message, at, at + 2, pseudo_header);
            message
        }
        _ => return None,
    })
}

/// Whether the packet is, or may be, an ICMP error.
fn is_error(packet: &[u8], header: &Header) -> bool {
    let kind = packet.get(header.header_len);
    match (header.version, header.protocol) {
        // Echo, timestamp and similar are queries and replies (RFC 1122, section 3.2.2).
        (Version::V4, protocol::ICMP) => !matches!(kind, Some(0 | 8 | 9 | 10 | 13..=18)),
        (Version::V6, protocol::ICMPV6) => !matches!(kind, Some(128..)),
        _ => false,
    }
}

fn is_single_host(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !address.is_loopback() && !broadcast
}

/// Writes the checksum of `message` from `start` on and of the sum `more` to `field`, which is
/// zero.
fn put_checksum(message: &mut [u8], start: usize, field: usize, more: u64) {
    let value = !checksum::fold(checksum::sum(&message[start..]) + more);
    message[field..field + 2].copy_from_slice(&value.to_ne_bytes());
}

#[cfg(test)]
mod tests;
