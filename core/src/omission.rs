//! Header compression: the compact form of a packet (`docs/protocol.md`, section 4.14), without the
//! header fields that both ends know.
//!
//! # The model
//!
//! The sender takes the constant [`fields()`] from a packet of an established session and sends
//! them to the peer once, in a session open frame. When this is acknowledged, both ends have the
//! same [`SessionHeader`]. From then on [`compress`](SessionHeader::compress) turns the headers of
//! a packet into a [`CompactHeader`] with the differences only, and
//! [`restore`](SessionHeader::restore) rebuilds them. A packet that the compact form cannot express
//! is sent in full.
//!
//! Both depend only on the session's fields, the packet's sequence number and the packet. There is
//! no state that a lost or reordered packet could corrupt.
//!
//! The payload is neither changed nor copied: the sender puts it behind the compact header, and the
//! receiver finds it at the end of the datagram.

use core::fmt;

use mpip_wire::SessionFields;

use mpip_types::Checksum;
use mpip_types::packet::{fold, protocol, sum};

#[doc(hidden)]
pub mod check;
mod fields;
mod restore;

pub use fields::fields;

/// Largest size of a [`CompactHeader`], bytes: control, network, traffic class, hop limit and flow
/// label 7, TCP's fixed fields 10, flags 2, urgent pointer 2, timestamps 8, other options 1 + 40.
pub const COMPACT_MAX: usize = 72;

/// Largest size of restored headers, bytes: IPv6 and TCP with all options.
pub const HEAD_MAX: usize = IPV6_HEADER + TCP_HEADER_MAX;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
const TCP_HEADER_MAX: usize = 60;
const UDP_HEADER: usize = 8;

/// Version 4, header length 5 words.
const IPV4_WITHOUT_OPTIONS: u8 = 0x45;
/// The DF bit in the word with the fragment offset.
const DONT_FRAGMENT: u16 = 0x4000;

/// Offsets of fields in the IPv4, IPv6, TCP and UDP headers.
mod at {
    pub(super) const V4_LEN: usize = 2;
    pub(super) const V4_IDENTIFICATION: usize = 4;
    pub(super) const V4_FRAGMENT: usize = 6;
    pub(super) const V4_CHECKSUM: usize = 10;
    pub(super) const V4_ADDRESSES: usize = 12;
    pub(super) const V6_LEN: usize = 4;
    pub(super) const V6_ADDRESSES: usize = 8;
    pub(super) const TCP_SEQUENCE: usize = 4;
    pub(super) const TCP_FLAGS: usize = 12;
    pub(super) const TCP_WINDOW: usize = 14;
    pub(super) const TCP_CHECKSUM: usize = 16;
    pub(super) const TCP_URGENT: usize = 18;
    pub(super) const UDP_LEN: usize = 4;
    pub(super) const UDP_CHECKSUM: usize = 6;
}

/// Bits of the control byte.
mod control {
    pub(super) const NETWORK: u8 = 0x01;
    pub(super) const IDENTIFICATION: u8 = 0x06;
    pub(super) const IDENTIFICATION_NEAR: u8 = 0x02;
    pub(super) const IDENTIFICATION_FULL: u8 = 0x04;
    pub(super) const IDENTIFICATION_ZERO: u8 = 0x06;
    pub(super) const TIMESTAMPS: u8 = 0x08;
    pub(super) const NO_CHECKSUM: u8 = 0x08;
    pub(super) const PUSH: u8 = 0x10;
    pub(super) const FLAGS: u8 = 0x20;
    pub(super) const URGENT: u8 = 0x40;
    pub(super) const OPTIONS: u8 = 0x80;
}

/// Bits of the network byte.
mod network {
    pub(super) const CLASS: u8 = 0x01;
    pub(super) const HOPS: u8 = 0x02;
    pub(super) const FRAGMENT: u8 = 0x04;
    pub(super) const FLOW: u8 = 0x08;
}

/// Flags of TCP in the 16-bit word that begins with the data offset.
const TCP_ACK: u16 = 0x010;
const TCP_PUSH: u16 = 0x008;
const TCP_FLAGS: u16 = 0xfff;

/// The usual layout of timestamps: no-operation, no-operation, timestamps of ten bytes (RFC 7323,
/// appendix A).
const TIMESTAMPS: [u8; 4] = [1, 1, 8, 10];
const TIMESTAMPS_OPTION: usize = 12;

/// Why a compact packet cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// It ends before its header does.
    Truncated {
        /// Bytes that the header has at least.
        needed: usize,
        /// Bytes of the compact packet.
        found: usize,
    },
    /// A bit is set that has no meaning for this version and protocol.
    Bits {
        /// The control byte, or the network byte.
        found: u8,
        /// The bits that may be set in it.
        allowed: u8,
    },
    /// The TCP header would have more than 60 bytes.
    Options {
        /// Bytes that it would have.
        found: usize,
    },
    /// The packet would be longer than its length field can say.
    Length {
        /// Bytes that it would have.
        found: usize,
    },
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { needed, found } => {
                write!(f, "expected a compact header of at least {needed} bytes, found {found}")
            }
            Self::Bits { found, allowed } => {
                write!(f, "expected no bits but {allowed:#04x}, found {found:#04x}")
            }
            Self::Options { found } => {
                write!(f, "expected a TCP header of at most {TCP_HEADER_MAX} bytes, found {found}")
            }
            Self::Length { found } => {
                write!(f, "expected a packet that its length field can tell, found {found} bytes")
            }
        }
    }
}

impl core::error::Error for RestoreError {}

/// Restored headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Bytes of the headers, including the transport header, at the start of the buffer.
    pub head_len: usize,
    /// Offset of the payload in the compact packet; it extends to the end.
    pub payload: usize,
    /// The state of the transport checksum.
    pub checksum: Checksum,
}

/// The compressed headers of a packet.
#[derive(Clone, Debug)]
pub struct CompactHeader {
    bytes: [u8; COMPACT_MAX],
    len: usize,
    /// Where the fields of the transport header begin.
    transport: usize,
    payload: usize,
}

impl CompactHeader {
    pub(crate) const EMPTY: Self =
        Self { bytes: [0; COMPACT_MAX], len: 1, transport: 1, payload: 0 };

    /// The compact header, 1..=[`COMPACT_MAX`] bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Offset of the payload in the packet; nothing before it is sent.
    #[inline]
    pub fn payload(&self) -> usize {
        self.payload
    }

    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.len..][..N].copy_from_slice(&bytes);
        self.len += N;
    }

    fn put_slice(&mut self, bytes: &[u8]) {
        self.bytes[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// The transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
    /// Any other protocol; sent unchanged.
    Opaque,
}

impl Transport {
    fn of(protocol: u8) -> Self {
        match protocol {
            protocol::TCP => Self::Tcp,
            protocol::UDP => Self::Udp,
            _ => Self::Opaque,
        }
    }
}

/// The constant header fields of a session, known to both ends.
#[derive(Clone, Debug)]
pub struct SessionHeader {
    /// IP header and ports; lengths, identification and checksums are zero.
    image: [u8; IPV6_HEADER + 4],
    /// Bytes of the IP header.
    network_len: usize,
    transport: Transport,
    /// IPv4 identification of the packet with sequence number 0.
    identification: u16,
    /// The folded sum of the pseudo-header without the length, in the machine's byte order.
    pseudo: u16,
}

/// Every session has one per direction.
const _: () = assert!(size_of::<SessionHeader>() <= 64);

impl SessionHeader {
    fn is_v4(&self) -> bool {
        self.network_len == IPV4_HEADER
    }

    fn predicted(&self, sequence: u32) -> u16 {
        self.identification.wrapping_add(sequence as u16)
    }

    fn ports(&self) -> &[u8] {
        &self.image[self.network_len..][..4]
    }

    /// The compact header of `packet`, a whole IP packet, at `sequence` of the session. Verifies
    /// its checksums.
    ///
    /// `None` if it has to be sent in full: its fields are not those of the session, a checksum is
    /// wrong, or the compact form cannot express it.
    pub fn compress(&self, sequence: u32, packet: &[u8]) -> Option<CompactHeader> {
        let compact = self.compress_valid(sequence, packet, packet.len())?;
        self.has_valid_checksums(packet).then_some(compact)
    }

    /// As [`compress`](Self::compress), of a packet that was `before` until fields of its IP header
    /// were changed that no transport checksum covers, the IPv4 checksum as well; `headers` are the
    /// new ones.
    pub fn compress_changed(
        &self,
        sequence: u32,
        headers: &[u8],
        before: &[u8],
    ) -> Option<CompactHeader> {
        let compact = self.compress_valid(sequence, headers, before.len())?;
        self.has_valid_checksums(before).then_some(compact)
    }

    /// As [`compress`](Self::compress), for a packet of `total_len` bytes whose checksums are known
    /// to be valid, or are still to be completed: they are not computed. `headers` has at least the
    /// headers; the payload need not be there.
    ///
    /// The receiver computes valid checksums in any case. It restores a UDP datagram without a
    /// checksum as such.
    #[inline]
    pub fn compress_valid(
        &self,
        sequence: u32,
        headers: &[u8],
        total_len: usize,
    ) -> Option<CompactHeader> {
        let mut compact = CompactHeader::EMPTY;
        let mut control = match self.is_v4() {
            true => self.compress_v4(sequence, headers, total_len, &mut compact)?,
            false => self.compress_v6(headers, total_len, &mut compact)?,
        };
        compact.transport = compact.len;
        let transport = headers.get(self.network_len..)?;
        control |= match self.transport {
            Transport::Tcp => self.compress_tcp(transport, total_len, &mut compact)?,
            Transport::Udp => self.compress_udp(transport, total_len, &mut compact)?,
            Transport::Opaque => {
                compact.payload = self.network_len;
                0
            }
        };
        compact.bytes[0] = control;
        Some(compact)
    }

    #[inline]
    fn compress_v4(
        &self,
        sequence: u32,
        headers: &[u8],
        total_len: usize,
        compact: &mut CompactHeader,
    ) -> Option<u8> {
        let fixed = headers.first_chunk::<IPV4_HEADER>()?;
        let fragment = word(fixed, at::V4_FRAGMENT);
        let same = fixed[0] == IPV4_WITHOUT_OPTIONS
            && fixed[9] == self.image[9]
            && fixed[at::V4_ADDRESSES..] == self.image[at::V4_ADDRESSES..IPV4_HEADER]
            && usize::from(word(fixed, at::V4_LEN)) == total_len
            && fragment & !DONT_FRAGMENT == 0
            && word(fixed, at::V4_CHECKSUM) != 0xffff;
        if !same {
            return None;
        }
        let other_fragment = fragment != word(&self.image, at::V4_FRAGMENT);
        let bits = if other_fragment { network::FRAGMENT } else { 0 };
        let mut control =
            compact_network(compact, bits, [fixed[1], self.image[1]], [fixed[8], self.image[8]]);
        let identification = word(fixed, at::V4_IDENTIFICATION);
        control |= match identification.wrapping_sub(self.predicted(sequence)) {
            0 => 0,
            _ if identification == 0 => control::IDENTIFICATION_ZERO,
            ahead @ 1..=0xff => {
                compact.put([ahead as u8]);
                control::IDENTIFICATION_NEAR
            }
            _ => {
                compact.put(identification.to_be_bytes());
                control::IDENTIFICATION_FULL
            }
        };
        Some(control)
    }

    #[inline]
    fn compress_v6(
        &self,
        headers: &[u8],
        total_len: usize,
        compact: &mut CompactHeader,
    ) -> Option<u8> {
        let fixed = headers.first_chunk::<IPV6_HEADER>()?;
        let same = fixed[0] >> 4 == 6
            && fixed[6] == self.image[6]
            && fixed[at::V6_ADDRESSES..] == self.image[at::V6_ADDRESSES..IPV6_HEADER]
            && usize::from(word(fixed, at::V6_LEN)) + IPV6_HEADER == total_len;
        if !same {
            return None;
        }
        let other_flow = flow_label(fixed) != flow_label(&self.image);
        let bits = if other_flow { network::FLOW } else { 0 };
        let classes = [traffic_class(fixed), traffic_class(&self.image)];
        let control = compact_network(compact, bits, classes, [fixed[7], self.image[7]]);
        if other_flow {
            compact.put(flow_label(fixed));
        }
        Some(control)
    }

    #[inline]
    fn compress_tcp(
        &self,
        transport: &[u8],
        total_len: usize,
        compact: &mut CompactHeader,
    ) -> Option<u8> {
        let fixed = transport.first_chunk::<TCP_HEADER>()?;
        let flags = word(fixed, at::TCP_FLAGS);
        let len = usize::from(flags >> 12) * 4;
        if len < TCP_HEADER
            || self.network_len + len > total_len
            || fixed[..4] != *self.ports()
            || word(fixed, at::TCP_CHECKSUM) == 0xffff
        {
            return None;
        }
        let mut options = transport.get(TCP_HEADER..len)?;
        compact.put(field::<8>(fixed, at::TCP_SEQUENCE));
        compact.put(field::<2>(fixed, at::TCP_WINDOW));
        let mut control = match flags & TCP_FLAGS {
            TCP_ACK => 0,
            flags if flags == TCP_ACK | TCP_PUSH => control::PUSH,
            flags => {
                compact.put(flags.to_be_bytes());
                control::FLAGS
            }
        };
        let urgent = field::<2>(fixed, at::TCP_URGENT);
        if urgent != [0, 0] {
            control |= control::URGENT;
            compact.put(urgent);
        }
        if let Some((first, rest)) = options.split_first_chunk::<TIMESTAMPS_OPTION>()
            && first[..4] == TIMESTAMPS
        {
            control |= control::TIMESTAMPS;
            compact.put(field::<8>(first, 4));
            options = rest;
        }
        if !options.is_empty() {
            control |= control::OPTIONS;
            compact.put([(options.len() / 4) as u8]);
            compact.put_slice(options);
        }
        compact.payload = self.network_len + len;
        Some(control)
    }

    #[inline]
    fn compress_udp(
        &self,
        transport: &[u8],
        total_len: usize,
        compact: &mut CompactHeader,
    ) -> Option<u8> {
        let fixed = transport.first_chunk::<UDP_HEADER>()?;
        let len = usize::from(word(fixed, at::UDP_LEN));
        if fixed[..4] != *self.ports() || self.network_len + len != total_len {
            return None;
        }
        compact.payload = self.network_len + UDP_HEADER;
        Some(if word(fixed, at::UDP_CHECKSUM) == 0 { control::NO_CHECKSUM } else { 0 })
    }

    /// Changes `compact`, the header of a super-packet's segment with `payload` bytes, to that of
    /// the next segment, which has the same length and flags. The next one is at `sequence` of the
    /// session, and the other one before it. Returns `false` and changes nothing if the next one
    /// has to be [compressed](Self::compress_valid) itself.
    #[inline]
    pub(crate) fn advance(&self, sequence: u32, payload: u32, compact: &mut CompactHeader) -> bool {
        let CompactHeader { bytes, transport, .. } = compact;
        // An identification of zero has a form of its own.
        match bytes[0] & control::IDENTIFICATION {
            0 => {}
            control::IDENTIFICATION_NEAR => {
                let ahead = bytes[*transport - 1];
                if self.predicted(sequence).wrapping_add(ahead.into()) == 0 {
                    return false;
                }
            }
            control::IDENTIFICATION_FULL => match word(bytes, *transport - 2).wrapping_add(1) {
                0 => return false,
                identification => put(bytes, *transport - 2, identification),
            },
            _ => return false,
        }
        if self.transport == Transport::Tcp {
            let number = u32::from_be_bytes(field(bytes, *transport)).wrapping_add(payload);
            bytes[*transport..][..4].copy_from_slice(&number.to_be_bytes());
        }
        true
    }

    /// Whether the checksums of `packet`, whose headers can be compressed, are valid. The
    /// compression has already excluded the other representation of zero.
    fn has_valid_checksums(&self, packet: &[u8]) -> bool {
        let (network, transport) = packet.split_at(self.network_len);
        let whole = |sum: u64| fold(sum) == 0xffff;
        let transport_sum = || self.pseudo_sum(transport.len()) + sum(transport);
        (!self.is_v4() || whole(sum(network)))
            && match self.transport {
                Transport::Tcp => whole(transport_sum()),
                Transport::Udp => word(transport, at::UDP_CHECKSUM) == 0 || whole(transport_sum()),
                Transport::Opaque => true,
            }
    }

    /// The sum of the pseudo-header of a transport of `len` bytes.
    fn pseudo_sum(&self, len: usize) -> u64 {
        u64::from(self.pseudo) + u64::from((len as u16).to_be())
    }
}

/// Writes the network byte, if needed, and a traffic class and hop limit that differ; each argument
/// is a pair of the packet's and the session's value. Returns the bits to add to the control byte.
#[inline]
fn compact_network(
    compact: &mut CompactHeader,
    mut bits: u8,
    [class, usual_class]: [u8; 2],
    [hops, usual_hops]: [u8; 2],
) -> u8 {
    if class != usual_class {
        bits |= network::CLASS;
    }
    if hops != usual_hops {
        bits |= network::HOPS;
    }
    if bits == 0 {
        return 0;
    }
    compact.put([bits]);
    if bits & network::CLASS != 0 {
        compact.put([class]);
    }
    if bits & network::HOPS != 0 {
        compact.put([hops]);
    }
    control::NETWORK
}

#[inline]
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the header was taken whole")
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(field(bytes, at))
}

#[inline]
fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[inline]
fn traffic_class(fixed: &[u8]) -> u8 {
    fixed[0] << 4 | fixed[1] >> 4
}

#[inline]
fn flow_label(fixed: &[u8]) -> [u8; 3] {
    [fixed[1] & 0x0f, fixed[2], fixed[3]]
}

#[cfg(test)]
mod tests;
