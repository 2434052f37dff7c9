//! Parsing of inner IP packets, once per super-packet.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::ecn::Ecn;

mod checksum;
mod icmp;
mod segments;

pub use checksum::{fold, sum};
pub use icmp::{MIN_MTU_V6, too_big};
pub use segments::{HEAD_ROOM, SegmentError, Segments};

/// Largest TCP window (RFC 7323, section 2.3), bytes: the largest distance between two segments in
/// flight.
pub const MAX_WINDOW: u32 = 1 << 30;

/// IP protocol numbers that the engine distinguishes (IANA "Protocol Numbers").
pub mod protocol {
    /// Internet Control Message Protocol for IPv4.
    pub const ICMP: u8 = 1;
    /// Transmission Control Protocol.
    pub const TCP: u8 = 6;
    /// User Datagram Protocol.
    pub const UDP: u8 = 17;
    /// Datagram Congestion Control Protocol.
    pub const DCCP: u8 = 33;
    /// Internet Control Message Protocol for IPv6.
    pub const ICMPV6: u8 = 58;
    /// Stream Control Transmission Protocol.
    pub const SCTP: u8 = 132;
    /// Lightweight User Datagram Protocol.
    pub const UDP_LITE: u8 = 136;
}

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;

/// IPv6 extension headers that lie between the fixed header and the transport (RFC 8200, section
/// 4).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// Most extension headers parsed. RFC 8200, section 4.1, permits five of the four kinds in a
/// packet; twice as many allow for unusual senders and bound the work.
const MAX_EXTENSIONS: usize = 10;

/// The version of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// RFC 791.
    V4,
    /// RFC 8200.
    V6,
}

/// Why bytes are not an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The version field is neither 4 nor 6.
    Version {
        /// The version field.
        found: u8,
    },
    /// The packet ends before `needed` bytes.
    Truncated {
        /// Bytes that the headers, or the length field, call for.
        needed: usize,
        /// Bytes present.
        found: usize,
    },
    /// The header length, in bytes, is below the fixed header's or beyond the total length.
    HeaderLength {
        /// Header length found, bytes.
        found: usize,
        /// Bytes of the packet by its length field.
        total: usize,
    },
    /// More than ten IPv6 extension headers.
    Extensions,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Version { found } => write!(f, "expected IP version 4 or 6, found {found}"),
            Self::Truncated { needed, found } => {
                write!(f, "expected an IP packet of at least {needed} bytes, found {found}")
            }
            Self::HeaderLength { found, total } => {
                write!(f, "IP headers of {found} bytes do not fit a packet of {total} bytes")
            }
            Self::Extensions => {
                write!(f, "expected at most {MAX_EXTENSIONS} IPv6 extension headers, found more")
            }
        }
    }
}

impl core::error::Error for HeaderError {}

const TCP_FIN: u8 = 0x01;
const TCP_SYN: u8 = 0x02;
const TCP_RST: u8 = 0x04;
const TCP_PSH: u8 = 0x08;
const TCP_ACK: u8 = 0x10;
const TCP_URG: u8 = 0x20;

/// Kinds of TCP options.
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
const WINDOW_SCALE: u8 = 3;
/// RFC 7323, section 2.3.
const MAX_WINDOW_SHIFT: u8 = 14;

/// Start of TCP options with only timestamps: two no-operations, kind, length.
const TIME_STAMPS: [u8; 4] = [1, 1, 8, 10];

/// What a [plain acknowledgement](Header::plain_ack) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainAck {
    /// The acknowledgment number.
    pub number: u32,
    /// The window field, not [shifted](Header::window_shift).
    pub window: u16,
}

/// The parsed headers of an inner packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The IP version.
    pub version: Version,
    /// Bytes before the transport header, including IPv4 options and IPv6 extension headers.
    pub header_len: usize,
    /// Bytes of the packet by its length field, at most those given. Bytes beyond are not part of
    /// the packet.
    pub total_len: usize,
    /// The transport protocol.
    pub protocol: u8,
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
    /// Source and destination port, or twice the identifier of an ICMP echo. `None` for other
    /// protocols, later fragments, and packets that end before the ports.
    pub ports: Option<(u16, u16)>,
    /// The packet is a fragment, first or later.
    pub fragment: bool,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: Ecn,
    /// Differentiated services code point, 6 bits (RFC 2474).
    pub dscp: u8,
    /// Routers must not fragment the packet; always so with IPv6.
    pub dont_fragment: bool,
}

impl Header {
    /// Parses the headers of the packet at the start of `bytes`.
    ///
    /// # Errors
    ///
    /// If `bytes` are not a whole IP packet. A truncated transport header is no error: such a
    /// packet has no ports, but it can be carried.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        match bytes.first().map(|first| first >> 4) {
            Some(4) => Self::parse_v4(bytes),
            Some(6) => Self::parse_v6(bytes),
            Some(found) => Err(HeaderError::Version { found }),
            None => Err(HeaderError::Truncated { needed: IPV4_HEADER, found: 0 }),
        }
    }

    fn parse_v4(bytes: &[u8]) -> Result<Self, HeaderError> {
        let Some(fixed) = bytes.first_chunk::<IPV4_HEADER>() else {
            return Err(HeaderError::Truncated { needed: IPV4_HEADER, found: bytes.len() });
        };
        let header_len = usize::from(fixed[0] & 15) * 4;
        let total_len = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        let packet = whole(bytes, total_len)?;
        if header_len < IPV4_HEADER || header_len > total_len {
            return Err(HeaderError::HeaderLength { found: header_len, total: total_len });
        }
        let flags = u16::from_be_bytes([fixed[6], fixed[7]]);
        let offset = flags & 0x1fff;
        let protocol = fixed[9];
        let transport = if offset == 0 { &packet[header_len..] } else { &[] };
        Ok(Self {
            version: Version::V4,
            header_len,
            total_len,
            protocol,
            source: Ipv4Addr::new(fixed[12], fixed[13], fixed[14], fixed[15]).into(),
            destination: Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19]).into(),
            ports: ports(Version::V4, protocol, transport),
            fragment: offset != 0 || flags & 0x2000 != 0,
            ecn: Ecn::from_bits(fixed[1]),
            dscp: fixed[1] >> 2,
            dont_fragment: flags & 0x4000 != 0,
        })
    }

    fn parse_v6(bytes: &[u8]) -> Result<Self, HeaderError> {
        let Some(fixed) = bytes.first_chunk::<IPV6_HEADER>() else {
            return Err(HeaderError::Truncated { needed: IPV6_HEADER, found: bytes.len() });
        };
        let total_len = IPV6_HEADER + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        let packet = whole(bytes, total_len)?;
        let chain = Extensions::walk(packet, fixed[6])?;
        let transport = if chain.later_fragment { &[] } else { &packet[chain.end..] };
        let class = fixed[0] << 4 | fixed[1] >> 4;
        Ok(Self {
            version: Version::V6,
            header_len: chain.end,
            total_len,
            protocol: chain.protocol,
            source: address_v6(bytes, 8),
            destination: address_v6(bytes, 24),
            ports: ports(Version::V6, chain.protocol, transport),
            fragment: chain.fragment,
            ecn: Ecn::from_bits(class),
            dscp: class >> 2,
            dont_fragment: true,
        })
    }

    /// Whether `packet`, which has these headers, is a pure TCP acknowledgement. A later one
    /// supersedes it, so it needs no order.
    pub fn is_pure_ack(&self, packet: &[u8]) -> bool {
        let transport = packet.get(self.header_len..self.total_len).unwrap_or_default();
        let Some(fixed) = transport.first_chunk::<20>() else { return false };
        self.protocol == protocol::TCP
            && !self.fragment
            && transport.len() == usize::from(fixed[12] >> 4) * 4
            && fixed[13] & (TCP_FIN | TCP_SYN | TCP_RST | TCP_URG | TCP_ACK) == TCP_ACK
    }

    /// What `packet`, which has these headers, says if it is a [pure
    /// acknowledgement](Self::is_pure_ack) without SACK blocks or ECN flags (RFC 3168).
    pub fn plain_ack(&self, packet: &[u8]) -> Option<PlainAck> {
        let transport = packet.get(self.header_len..)?;
        let fixed = transport.first_chunk::<20>()?;
        let options = &transport[20..];
        // Without SACK blocks, timestamps are the only option (RFC 7323, appendix A).
        let plain = options.is_empty() || options.len() == 12 && options[..4] == TIME_STAMPS;
        let plain = plain && fixed[13] & !TCP_PSH == TCP_ACK && self.is_pure_ack(packet);
        plain.then(|| PlainAck {
            number: u32::from_be_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]),
            window: u16::from_be_bytes([fixed[14], fixed[15]]),
        })
    }

    /// By how many bits the windows are shifted that the sender of `packet`, which has these
    /// headers, will tell (RFC 7323, section 2). Only the first two segments of a connection say
    /// that; `None` for others.
    pub fn window_shift(&self, packet: &[u8]) -> Option<u8> {
        if !self.has_syn(packet) {
            return None;
        }
        let transport = packet.get(self.header_len..self.total_len)?;
        let len = usize::from(transport.get(12)? >> 4) * 4;
        let mut options = transport.get(20..len)?;
        loop {
            options = match *options {
                [NO_OPERATION, ..] => &options[1..],
                [WINDOW_SCALE, 3, shift, ..] => return Some(shift.min(MAX_WINDOW_SHIFT)),
                [END_OF_OPTIONS, ..] | [] | [_] => return Some(0),
                [_, len, ..] => options.get(usize::from(len.max(2))..).unwrap_or_default(),
            }
        }
    }

    /// Whether `packet`, which has these headers, is the second one of TCP's handshake.
    pub fn is_syn_ack(&self, packet: &[u8]) -> bool {
        let fixed = packet.get(self.header_len..).and_then(|it| it.first_chunk::<20>());
        self.protocol == protocol::TCP
            && fixed.is_some_and(|fixed| {
                fixed[13] & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK) == TCP_SYN | TCP_ACK
            })
    }

    /// Whether `packet`, which has these headers, is one of the first two of TCP's handshake.
    pub fn has_syn(&self, packet: &[u8]) -> bool {
        let flags = packet.get(self.header_len + 13);
        self.protocol == protocol::TCP
            && !self.fragment
            && flags.is_some_and(|flags| flags & TCP_SYN != 0)
    }

    /// The destination port; `None` if [`Header::ports`] is not a pair of ports.
    pub fn destination_port(&self) -> Option<u16> {
        let echo = matches!(self.protocol, protocol::ICMP | protocol::ICMPV6);
        self.ports.filter(|_| !echo).map(|(_, destination)| destination)
    }

    /// The source port; `None` if [`Header::ports`] is not a pair of ports.
    pub fn source_port(&self) -> Option<u16> {
        let echo = matches!(self.protocol, protocol::ICMP | protocol::ICMPV6);
        self.ports.filter(|_| !echo).map(|(source, _)| source)
    }

    /// The session that the packet belongs to.
    pub fn session(&self) -> SessionKey {
        let (source, destination) = self.ports.unwrap_or_default();
        SessionKey {
            protocol: self.protocol,
            source: Endpoint { address: self.source, port: source },
            destination: Endpoint { address: self.destination, port: destination },
        }
    }
}

/// One end of an inner connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The inner address.
    pub address: IpAddr,
    /// The port, or the ICMP echo identifier; 0 without one.
    pub port: u16,
}

impl From<Endpoint> for SocketAddr {
    fn from(end: Endpoint) -> Self {
        Self::new(end.address, end.port)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::from(*self).fmt(f)
    }
}

/// Identifies a session: protocol and 4-tuple (seed 000, section 3.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// The transport protocol.
    pub protocol: u8,
    /// The source of the packets.
    pub source: Endpoint,
    /// The destination of the packets.
    pub destination: Endpoint,
}

impl SessionKey {
    /// The key of the packets in the other direction.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { protocol: self.protocol, source: self.destination, destination: self.source }
    }
}

/// Sets "congestion experienced" (CE) on a complete packet (RFC 3168) and updates the IPv4 header
/// checksum. Returns whether the packet carries the mark now; a packet that is not ECN-capable
/// stays unchanged.
pub fn mark_ce(packet: &mut [u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= IPV4_HEADER => {
            if packet[1] & 3 == 0 {
                return false;
            }
            put_service(packet, packet[1] | 3);
            true
        }
        Some(6) if packet.len() >= IPV6_HEADER => {
            if packet[1] & 0x30 == 0 {
                return false;
            }
            packet[1] |= 0x30;
            true
        }
        _ => false,
    }
}

/// Sets the differentiated services code point of the packet that begins with `packet` (RFC 2474)
/// and updates the IPv4 header checksum. The ECN field stays. Nothing changes unless the fixed IP
/// header is there.
pub fn set_dscp(packet: &mut [u8], dscp: u8) {
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= IPV4_HEADER => put_service(packet, dscp << 2 | packet[1] & 3),
        Some(6) if packet.len() >= IPV6_HEADER => {
            packet[0] = 0x60 | dscp >> 2 & 0xf;
            packet[1] = dscp << 6 | packet[1] & 0x3f;
        }
        _ => {}
    }
}

/// Sets the second byte of an IPv4 header, and updates the checksum (RFC 1624, equation 3).
fn put_service(header: &mut [u8], service: u8) {
    let before = u16::from_be_bytes([header[0], header[1]]);
    header[1] = service;
    let after = u16::from_be_bytes([header[0], header[1]]);
    let checksum = u16::from_be_bytes([header[10], header[11]]);
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// The chain of headers between the fixed IPv6 header and the transport.
struct Extensions {
    protocol: u8,
    end: usize,
    fragment: bool,
    /// A fragment without the transport header.
    later_fragment: bool,
}

impl Extensions {
    fn walk(packet: &[u8], first: u8) -> Result<Self, HeaderError> {
        let mut chain =
            Self { protocol: first, end: IPV6_HEADER, fragment: false, later_fragment: false };
        for _ in 0..=MAX_EXTENSIONS {
            if !matches!(chain.protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS) {
                return Ok(chain);
            }
            let total = packet.len();
            let Some(start) = packet[chain.end..].first_chunk::<8>() else {
                return Err(HeaderError::HeaderLength { found: chain.end + 8, total });
            };
            let len = match chain.protocol {
                FRAGMENT => 8,
                _ => (usize::from(start[1]) + 1) * 8,
            };
            if total - chain.end < len {
                return Err(HeaderError::HeaderLength { found: chain.end + len, total });
            }
            if chain.protocol == FRAGMENT {
                let field = u16::from_be_bytes([start[2], start[3]]);
                chain.later_fragment = field >> 3 != 0;
                chain.fragment = chain.later_fragment || field & 1 != 0;
            }
            chain.protocol = start[0];
            chain.end += len;
            if chain.later_fragment {
                return Ok(chain);
            }
        }
        Err(HeaderError::Extensions)
    }
}

/// The first `total_len` bytes of `bytes`.
fn whole(bytes: &[u8], total_len: usize) -> Result<&[u8], HeaderError> {
    bytes.get(..total_len).ok_or(HeaderError::Truncated { needed: total_len, found: bytes.len() })
}

fn address_v6(bytes: &[u8], offset: usize) -> IpAddr {
    let octets = bytes[offset..].first_chunk::<16>().expect("the fixed header is whole");
    Ipv6Addr::from(*octets).into()
}

fn ports(version: Version, protocol: u8, transport: &[u8]) -> Option<(u16, u16)> {
    let word = |offset: usize| {
        let bytes = transport.get(offset..offset + 2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    match (protocol, version) {
        (
            protocol::TCP | protocol::UDP | protocol::UDP_LITE | protocol::SCTP | protocol::DCCP,
            _,
        ) => Some((word(0)?, word(2)?)),
        (protocol::ICMP, Version::V4) if matches!(transport.first(), Some(0 | 8)) => {
            word(4).map(|identifier| (identifier, identifier))
        }
        (protocol::ICMPV6, Version::V6) if matches!(transport.first(), Some(128 | 129)) => {
            word(4).map(|identifier| (identifier, identifier))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
