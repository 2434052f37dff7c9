//! Replaces the address and port of one end of a packet (RFC 3022, section 4; ICMP: RFC 5508).
//!
//! Checksums are updated incrementally (RFC 1624), so that a valid one stays valid and a wrong one
//! wrong.

use core::net::IpAddr;

use mpip_types::packet::{Endpoint, Header, SessionKey, Version, fold, protocol, sum};

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
/// ICMP header before the quoted packet of an error: type, code, checksum and four bytes.
const ICMP_HEADER: usize = 8;
/// IPv6 fragment header.
const FRAGMENT: u8 = 44;

/// Bytes at the start of a packet that translation may change: two IP headers with the ICMP header,
/// extensions and the transport header up to the checksum. Packets with longer headers are not
/// translated.
pub(crate) const HEAD: usize = 256;

/// One of the two ends of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Source,
    Destination,
}

impl End {
    fn other(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }
}

/// The connection that a packet refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// It belongs to this one.
    Own(SessionKey),
    /// It is an ICMP error about a packet with these ends.
    Quoted(SessionKey),
    /// It is a fragment without ports.
    Fragment,
}

impl Subject {
    /// The connection of `packet`; `None` if it cannot be translated. `header` is that of the
    /// packet, of which only the first [`HEAD`] bytes are needed.
    pub(crate) fn of(header: &Header, packet: &[u8]) -> Option<Self> {
        match header.protocol {
            protocol::TCP | protocol::UDP | protocol::ICMP | protocol::ICMPV6 => {}
            _ => return None,
        }
        if header.ports.is_some() {
            return Some(Self::Own(header.session()));
        }
        if header.fragment {
            return Some(Self::Fragment);
        }
        let quoted = Span::quoted(header, packet)?;
        Some(Self::Quoted(quoted.key(packet)?))
    }
}

/// Offsets of the headers of a packet, or of the packet quoted in it.
#[derive(Clone, Copy, Debug)]
struct Span {
    version: Version,
    network: usize,
    transport: usize,
    protocol: u8,
}

impl Span {
    fn outer(header: &Header) -> Self {
        let Header { version, header_len, protocol, .. } = *header;
        Self { version, network: 0, transport: header_len, protocol }
    }

    /// The packet that an ICMP error quotes.
    fn quoted(header: &Header, packet: &[u8]) -> Option<Self> {
        let kind = *packet.get(header.header_len)?;
        let network = header.header_len + ICMP_HEADER;
        match (header.version, header.protocol, kind) {
            (Version::V4, protocol::ICMP, 3 | 4 | 11 | 12) => {
                let fixed = packet.get(network..network + IPV4_HEADER)?;
                let later = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x1fff != 0;
                let transport = network + usize::from(fixed[0] & 15) * 4;
                let whole = fixed[0] >> 4 == 4 && transport >= network + IPV4_HEADER && !later;
                whole.then_some(Self {
                    version: Version::V4,
                    network,
                    transport,
                    protocol: fixed[9],
                })
            }
            (Version::V6, protocol::ICMPV6, 1..=4) => {
                let fixed = packet.get(network..network + IPV6_HEADER)?;
                let transport = network + IPV6_HEADER;
                let version = Version::V6;
                (fixed[0] >> 4 == 6).then_some(Self {
                    version,
                    network,
                    transport,
                    protocol: fixed[6],
                })
            }
            _ => None,
        }
    }

    fn address_at(&self, end: End) -> (usize, usize) {
        match (self.version, end) {
            (Version::V4, End::Source) => (self.network + 12, 4),
            (Version::V4, End::Destination) => (self.network + 16, 4),
            (Version::V6, End::Source) => (self.network + 8, 16),
            (Version::V6, End::Destination) => (self.network + 24, 16),
        }
    }

    /// Offset of the port of `end`, or of the identifier of an echo.
    fn port_at(&self, end: End, packet: &[u8]) -> Option<usize> {
        let at = match (self.protocol, end) {
            (protocol::TCP | protocol::UDP, End::Source) => self.transport,
            (protocol::TCP | protocol::UDP, End::Destination) => self.transport + 2,
            (protocol::ICMP, _) if matches!(packet.get(self.transport), Some(0 | 8)) => {
                self.transport + 4
            }
            (protocol::ICMPV6, _) if matches!(packet.get(self.transport), Some(128 | 129)) => {
                self.transport + 4
            }
            _ => return None,
        };
        (at + 2 <= packet.len()).then_some(at)
    }

    fn checksum_at(&self) -> Option<usize> {
        Some(self.transport + self.checksum_offset()?)
    }

    fn checksum_offset(&self) -> Option<usize> {
        match self.protocol {
            protocol::TCP => Some(16),
            protocol::UDP => Some(6),
            protocol::ICMP | protocol::ICMPV6 => Some(2),
            _ => None,
        }
    }

    /// The ends of the packet, if it has ports.
    fn key(&self, packet: &[u8]) -> Option<SessionKey> {
        let end = |end| {
            let (at, len) = self.address_at(end);
            let bytes = packet.get(at..at + len)?;
            let address = match bytes.first_chunk::<16>() {
                Some(octets) => IpAddr::from(*octets),
                None => IpAddr::from(*bytes.first_chunk::<4>()?),
            };
            let at = self.port_at(end, packet)?;
            let port = u16::from_be_bytes(*packet.get(at..)?.first_chunk()?);
            Some(Endpoint { address, port })
        };
        let (source, destination) = (end(End::Source)?, end(End::Destination)?);
        Some(SessionKey { protocol: self.protocol, source, destination })
    }

    /// Replaces `end` by `to`. `None` if that is impossible; then nothing has changed.
    fn replace(&self, packet: &mut [u8], end: End, to: Endpoint, state: State) -> Option<()> {
        let (at, len) = self.address_at(end);
        let mut octets = [0; 16];
        match to.address {
            IpAddr::V4(ip) if len == 4 => octets[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) if len == 16 => octets = ip.octets(),
            _ => return None,
        }
        let address = exchange(packet.get_mut(at..at + len)?, &octets[..len]);
        if self.version == Version::V4 {
            adjust(packet, self.network + 10, address, false)?;
        }
        if state == State::WithoutTransport {
            return Some(());
        }
        let port = self.port_at(end, packet);
        let port = port.and_then(|at| packet.get_mut(at..at + 2));
        let port = port.map_or(0, |port| exchange(port, &to.port.to_be_bytes()));
        let Some(field) = self.checksum_at().filter(|field| field + 2 <= packet.len()) else {
            return Some(());
        };
        // ICMP of IPv4 has no pseudo-header.
        let address = if self.protocol == protocol::ICMP { 0 } else { address };
        match state {
            State::Partial => adjust_partial(packet, field, address),
            _ => adjust(packet, field, address + port, self.protocol == protocol::UDP),
        }
    }
}

/// State of a packet's transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Complete, with its checksum.
    Complete,
    /// The checksum holds the pseudo-header sum only, to be completed later.
    Partial,
    /// No transport header: a fragment other than the first.
    WithoutTransport,
}

/// Replaces `end` of `packet` by `to`; in an ICMP error, also the opposite end of the quoted
/// packet. `header` is that of the packet, of which only the first [`HEAD`] bytes are needed.
/// `None` if that is impossible; the packet must then be dropped.
pub(crate) fn rewrite(
    packet: &mut [u8],
    header: &Header,
    end: End,
    to: Endpoint,
    state: State,
) -> Option<()> {
    if header.header_len + ICMP_HEADER > HEAD {
        return None;
    }
    let outer = Span::outer(header);
    let quoted = Span::quoted(header, packet).filter(|_| header.ports.is_none());
    let Some(quoted) = quoted else { return outer.replace(packet, end, to, state) };
    let before = sum(packet.get(outer.transport..)?);
    quoted.replace(packet, end.other(), to, State::Complete)?;
    let after = sum(packet.get(outer.transport..)?);
    let difference = after + u64::from(!fold(before));
    adjust(packet, outer.checksum_at()?, difference, false)?;
    outer.replace(packet, end, to, State::Complete)
}

/// The identification that the fragments of a packet share.
pub(crate) fn fragment_id(packet: &[u8]) -> Option<u32> {
    match packet.first()? >> 4 {
        4 => Some(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]).into()),
        _ if *packet.get(6)? == FRAGMENT => {
            packet.get(IPV6_HEADER + 4..)?.first_chunk().map(|id| u32::from_be_bytes(*id))
        }
        _ => None,
    }
}

/// Overwrites `old` by `new`; returns the change of the one's complement sum.
fn exchange(old: &mut [u8], new: &[u8]) -> u64 {
    let before = sum(old);
    old.copy_from_slice(new);
    sum(new) + u64::from(!fold(before))
}

/// Updates the checksum at `field` by `difference`. In UDP, 0 means no checksum.
fn adjust(packet: &mut [u8], field: usize, difference: u64, udp: bool) -> Option<()> {
    let bytes = packet.get_mut(field..)?.first_chunk_mut()?;
    let value = u16::from_ne_bytes(*bytes);
    if udp && value == 0 {
        return Some(());
    }
    let value = !fold(u64::from(!value) + difference);
    let value = if udp && value == 0 { !0 } else { value };
    *bytes = value.to_ne_bytes();
    Some(())
}

/// The same for a partial checksum, which is not complemented yet.
fn adjust_partial(packet: &mut [u8], field: usize, difference: u64) -> Option<()> {
    let bytes = packet.get_mut(field..)?.first_chunk_mut()?;
    *bytes = fold(u64::from(u16::from_ne_bytes(*bytes)) + difference).to_ne_bytes();
    Some(())
}

#[cfg(test)]
pub(crate) mod tests;
