use core::net::IpAddr;

use mpip_wire::NetworkFields;

use super::*;
use mpip_types::packet::Header;

const TCP_SYN: u16 = 0x002;
/// IPv6 extension headers (RFC 8200, section 4).
const EXTENSIONS: [u8; 4] = [0, 43, 44, 60];

/// The constant header fields of a session, from `packet` at `sequence`.
///
/// `None` if it is not typical: it has IPv4 options or IPv6 extension headers, is a fragment, or
/// begins a TCP connection. The flags, the identification and the traffic class of a SYN differ
/// from those of the packets after it (RFC 3168, section 6.1.1; the ACK of a SYN often has
/// identification 0).
pub fn fields(sequence: u32, packet: &[u8]) -> Option<SessionFields> {
    let header = Header::parse(packet).ok()?;
    if header.fragment || packet.len() != header.total_len {
        return None;
    }
    let (network, traffic_class, hop_limit) = match (header.source, header.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let identification = word(packet, at::V4_IDENTIFICATION);
            let dont_fragment = header.dont_fragment;
            let network = NetworkFields::V4 { source, destination, identification, dont_fragment };
            (header.header_len == IPV4_HEADER).then_some((network, packet[1], packet[8]))?
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let [high, middle, low] = flow_label(packet);
            let flow_label = u32::from_be_bytes([0, high, middle, low]);
            let network = NetworkFields::V6 { source, destination, flow_label };
            let class = traffic_class(packet);
            (header.header_len == IPV6_HEADER).then_some((network, class, packet[7]))?
        }
        _ => return None,
    };
    let transport = &packet[header.header_len..];
    if header.protocol == protocol::TCP
        && (transport.len() < TCP_HEADER || word(transport, at::TCP_FLAGS) & TCP_SYN != 0)
    {
        return None;
    }
    let (source_port, destination_port) = match header.protocol {
        protocol::ICMP | protocol::ICMPV6 => (header.ports.map_or(0, |(echo, _)| echo), 0),
        _ => header.ports.unwrap_or_default(),
    };
    Some(SessionFields {
        sequence,
        protocol: header.protocol,
        traffic_class,
        hop_limit,
        network,
        source_port,
        destination_port,
    })
}

impl SessionHeader {
    /// The headers of a session with these fields.
    ///
    /// `None` when the protocol is an IPv6 extension header.
    pub fn new(fields: &SessionFields) -> Option<Self> {
        let mut image = [0; IPV6_HEADER + 4];
        let (network_len, identification) = match fields.network {
            NetworkFields::V4 { source, destination, identification, dont_fragment } => {
                image[0] = IPV4_WITHOUT_OPTIONS;
                image[1] = fields.traffic_class;
                put(&mut image, at::V4_FRAGMENT, if dont_fragment { DONT_FRAGMENT } else { 0 });
                image[8] = fields.hop_limit;
                image[9] = fields.protocol;
                image[at::V4_ADDRESSES..][..4].copy_from_slice(&source.octets());
                image[at::V4_ADDRESSES + 4..][..4].copy_from_slice(&destination.octets());
                (IPV4_HEADER, identification.wrapping_sub(fields.sequence as u16))
            }
            NetworkFields::V6 { source, destination, flow_label } => {
                if EXTENSIONS.contains(&fields.protocol) {
                    return None;
                }
                let first = 6 << 28 | u32::from(fields.traffic_class) << 20 | flow_label & 0xf_ffff;
                image[..4].copy_from_slice(&first.to_be_bytes());
                image[6] = fields.protocol;
                image[7] = fields.hop_limit;
                image[at::V6_ADDRESSES..][..16].copy_from_slice(&source.octets());
                image[at::V6_ADDRESSES + 16..][..16].copy_from_slice(&destination.octets());
                (IPV6_HEADER, 0)
            }
        };
        put(&mut image, network_len, fields.source_port);
        put(&mut image, network_len + 2, fields.destination_port);
        let addresses = match network_len {
            IPV4_HEADER => &image[at::V4_ADDRESSES..IPV4_HEADER],
            _ => &image[at::V6_ADDRESSES..IPV6_HEADER],
        };
        let pseudo = fold(sum(addresses) + u64::from(u16::from(fields.protocol).to_be()));
        let transport = Transport::of(fields.protocol);
        Some(Self { image, network_len, transport, identification, pseudo })
    }
}
