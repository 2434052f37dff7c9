use core::net::{Ipv4Addr, Ipv6Addr};

use crate::bytes::{Reader, Writer};
use crate::{Error, SessionId};

/// Most sequence numbers that one skip frame covers: half the number space less one, so that
/// "before" and "after" stay distinct.
pub const SKIP_MAX: u32 = (1 << 31) - 1;

/// Largest flow label of IPv6 (RFC 8200, section 3).
pub const FLOW_LABEL_MAX: u32 = (1 << 20) - 1;

const VERSION_4: u8 = 4;
const VERSION_6: u8 = 6;

/// What the IP headers of the packets of a session have in common, by IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NetworkFields {
    /// IPv4.
    V4 {
        /// Source address.
        source: Ipv4Addr,
        /// Destination address.
        destination: Ipv4Addr,
        /// Identification of the packet at [`SessionFields::sequence`]; it grows by one with each
        /// sequence number.
        identification: u16,
        /// The flag of that name.
        dont_fragment: bool,
    },
    /// IPv6.
    V6 {
        /// Source address.
        source: Ipv6Addr,
        /// Destination address.
        destination: Ipv6Addr,
        /// Flow label, at most [`FLOW_LABEL_MAX`].
        flow_label: u32,
    },
}

/// The header fields that all or most packets of a session have in common, as the opener sends
/// them. Compact packets tell only in what they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionFields {
    /// Sequence number of a packet of the session, from which the receiver restores those that
    /// come truncated as long as it has received none.
    pub sequence: u32,
    /// Protocol (IPv4) or next header (IPv6).
    pub protocol: u8,
    /// Traffic class with the ECN bits (IPv4: type of service).
    pub traffic_class: u8,
    /// Hop limit (IPv4: time to live).
    pub hop_limit: u8,
    /// Addresses, and with them the IP version, and what only one version has.
    pub network: NetworkFields,
    /// Source port; the identifier for ICMP echo; 0 for protocols without ports.
    pub source_port: u16,
    /// Destination port; 0 for protocols without ports.
    pub destination_port: u16,
}

impl SessionFields {
    /// The same fields, told by the packet at `sequence`: an IPv4 identification moves with it. For
    /// a session open frame that is sent long after the fields were taken from a packet.
    #[must_use]
    pub const fn at(mut self, sequence: u32) -> Self {
        if let NetworkFields::V4 { ref mut identification, .. } = self.network {
            *identification =
                identification.wrapping_add(sequence.wrapping_sub(self.sequence) as u16);
        }
        self.sequence = sequence;
        self
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let sequence = reader.u32("session sequence")?;
        let offset = reader.offset();
        let version = reader.u8("IP version")?;
        let protocol = reader.u8("protocol")?;
        let traffic_class = reader.u8("traffic class")?;
        let hop_limit = reader.u8("hop limit")?;
        let network = match version {
            VERSION_4 => Self::read_v4(reader)?,
            VERSION_6 => Self::read_v6(reader)?,
            other => {
                return Err(Error::Value {
                    field: "IP version",
                    offset,
                    expected: "4 or 6",
                    got: u64::from(other),
                });
            }
        };
        let source_port = reader.u16("source port")?;
        let destination_port = reader.u16("destination port")?;
        Ok(Self {
            sequence,
            protocol,
            traffic_class,
            hop_limit,
            network,
            source_port,
            destination_port,
        })
    }

    fn read_v4(reader: &mut Reader<'_>) -> Result<NetworkFields, Error> {
        let source = reader.array::<4>("source address")?.into();
        let destination = reader.array::<4>("destination address")?.into();
        let identification = reader.u16("identification")?;
        let dont_fragment = reader.flag("don't fragment")?;
        Ok(NetworkFields::V4 { source, destination, identification, dont_fragment })
    }

    fn read_v6(reader: &mut Reader<'_>) -> Result<NetworkFields, Error> {
        let source = reader.array::<16>("source address")?.into();
        let destination = reader.array::<16>("destination address")?.into();
        let offset = reader.offset();
        let [high, middle, low] = reader.array("flow label")?;
        let flow_label = check_flow_label(u32::from_be_bytes([0, high, middle, low]), offset)?;
        Ok(NetworkFields::V6 { source, destination, flow_label })
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        let version = match self.network {
            NetworkFields::V4 { .. } => VERSION_4,
            NetworkFields::V6 { .. } => VERSION_6,
        };
        writer.put(&self.sequence.to_be_bytes())?;
        writer.put(&[version, self.protocol, self.traffic_class, self.hop_limit])?;
        match self.network {
            NetworkFields::V4 { source, destination, identification, dont_fragment } => {
                writer.put(&source.octets())?;
                writer.put(&destination.octets())?;
                writer.put(&identification.to_be_bytes())?;
                writer.put(&[u8::from(dont_fragment)])?;
            }
            NetworkFields::V6 { source, destination, flow_label } => {
                writer.put(&source.octets())?;
                writer.put(&destination.octets())?;
                writer.put(&check_flow_label(flow_label, 0)?.to_be_bytes()[1..])?;
            }
        }
        writer.put(&self.source_port.to_be_bytes())?;
        writer.put(&self.destination_port.to_be_bytes())
    }

    pub(crate) const fn encoded_len(&self) -> usize {
        let network = match self.network {
            NetworkFields::V4 { .. } => 2 * 4 + 3,
            NetworkFields::V6 { .. } => 2 * 16 + 3,
        };
        4 + 4 + network + 4
    }
}

fn check_flow_label(flow_label: u32, offset: usize) -> Result<u32, Error> {
    match flow_label {
        0..=FLOW_LABEL_MAX => Ok(flow_label),
        _ => Err(Error::Value {
            field: "flow label",
            offset,
            expected: "at most 2^20 - 1",
            got: u64::from(flow_label),
        }),
    }
}

/// What stands before the IP packet in a packet frame.
///
/// For the sender's hot path: emit this, then put the IP packet behind it up to the end of the
/// plaintext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFrameHeader {
    /// The session, in the sender's number space.
    pub session: SessionId,
    /// Position of the packet in the session, modulo 2^32.
    pub sequence: u32,
    /// Whether the receiver delivers the session in order of `sequence`.
    pub ordered: bool,
}

impl PacketFrameHeader {
    pub(crate) const UNORDERED: u8 = 0x20;
    pub(crate) const ORDERED: u8 = 0x21;

    /// Bytes of the longest header.
    pub const MAX_LEN: usize = 1 + 8 + 4;

    /// Bytes of this header, 6..=[`Self::MAX_LEN`].
    #[inline]
    pub const fn encoded_len(&self) -> usize {
        1 + self.session.varint_len() + 4
    }

    /// Writes the header to the start of `buffer` and returns its length.
    ///
    /// # Errors
    ///
    /// [`Error::NoRoom`].
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut writer = Writer::new(buffer, self.encoded_len())?;
        self.write(&mut writer)?;
        Ok(writer.offset())
    }

    #[inline]
    pub(crate) fn write(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        writer.put(&[if self.ordered { Self::ORDERED } else { Self::UNORDERED }])?;
        writer.varint("session", u64::from(self.session.0))?;
        writer.put(&self.sequence.to_be_bytes())
    }

    /// Reads what follows the type byte.
    #[inline]
    pub(crate) fn read(reader: &mut Reader<'_>, ordered: bool) -> Result<Self, Error> {
        let session = SessionId::read(reader)?;
        let sequence = reader.u32("session sequence")?;
        Ok(Self { session, sequence, ordered })
    }
}

/// The low 24 bits of a session sequence, as a compact packet frame carries them.
///
/// A receiver restores the number when the packet arrives less than 2^23 packets of its session
/// before or after the newest. At 10 Gbit/s in packets of 1,500 bytes that is 10 s, far more than a
/// packet is under way or worth to be sent again; 16 bits would be 39 ms there and 0.4 s at
/// 1 Gbit/s, which repairs exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruncatedSequence(u32);

impl TruncatedSequence {
    const BITS: u32 = 24;

    /// Truncates `sequence`.
    #[inline]
    pub const fn new(sequence: u32) -> Self {
        Self(sequence & ((1 << Self::BITS) - 1))
    }

    /// The low 24 bits.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The whole sequence number: the one nearest to `newest`, by serial number arithmetic
    /// (RFC 1982); of two equally near the earlier.
    #[inline]
    pub const fn expand(self, newest: u32) -> u32 {
        let unused = u32::BITS - Self::BITS;
        let ahead = (self.0.wrapping_sub(newest) << unused) as i32 >> unused;
        newest.wrapping_add_signed(ahead)
    }
}

/// What stands before the compact form of an IP packet in a compact packet frame.
///
/// For the sender's hot path: emit this, then put the compact header and the payload behind it up
/// to the end of the plaintext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactFrameHeader {
    /// The session, in the sender's number space.
    pub session: SessionId,
    /// Position of the packet in the session.
    pub sequence: TruncatedSequence,
    /// Whether the receiver delivers the session in order of `sequence`.
    pub ordered: bool,
}

impl CompactFrameHeader {
    pub(crate) const UNORDERED: u8 = 0x28;
    pub(crate) const ORDERED: u8 = 0x29;

    /// Bytes of the longest header.
    pub const MAX_LEN: usize = 1 + 8 + 3;

    /// Bytes of this header, 5..=[`Self::MAX_LEN`].
    #[inline]
    pub const fn encoded_len(&self) -> usize {
        1 + self.session.varint_len() + 3
    }

    /// Writes the header to the start of `buffer` and returns its length.
    ///
    /// # Errors
    ///
    /// [`Error::NoRoom`].
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut writer = Writer::new(buffer, self.encoded_len())?;
        self.write(&mut writer)?;
        Ok(writer.offset())
    }

    #[inline]
    pub(crate) fn write(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        writer.put(&[if self.ordered { Self::ORDERED } else { Self::UNORDERED }])?;
        writer.varint("session", u64::from(self.session.0))?;
        writer.put(&self.sequence.value().to_be_bytes()[1..])
    }

    /// Reads what follows the type byte.
    #[inline]
    pub(crate) fn read(reader: &mut Reader<'_>, ordered: bool) -> Result<Self, Error> {
        let session = SessionId::read(reader)?;
        let [high, middle, low] = reader.array("session sequence")?;
        let sequence = TruncatedSequence(u32::from_be_bytes([0, high, middle, low]));
        Ok(Self { session, sequence, ordered })
    }
}
