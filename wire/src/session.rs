use core::net::{Ipv4Addr, Ipv6Addr};

use crate::bytes::{Reader, Writer};
use crate::{Error, SessionId};

/// Most sequence numbers that one skip frame covers: half the number space less one, so that
/// "before" and "after" stay distinct.
pub const SKIP_MAX: u32 = (1 << 31) - 1;

const VERSION_4: u8 = 4;
const VERSION_6: u8 = 6;

/// Source and destination of the packets of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressPair {
    /// IPv4.
    V4 {
        /// Source address.
        source: Ipv4Addr,
        /// Destination address.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Source address.
        source: Ipv6Addr,
        /// Destination address.
        destination: Ipv6Addr,
    },
}

/// The header fields that all packets of a session have in common, as the opener sends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionFields {
    /// Addresses, and with them the IP version.
    pub addresses: AddressPair,
    /// Protocol (IPv4) or final next header (IPv6).
    pub protocol: u8,
    /// Source port; the identifier for ICMP echo; 0 for protocols without ports.
    pub source_port: u16,
    /// Destination port; 0 for protocols without ports.
    pub destination_port: u16,
}

impl SessionFields {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let offset = reader.offset();
        let version = reader.u8("IP version")?;
        let protocol = reader.u8("protocol")?;
        let addresses = match version {
            VERSION_4 => AddressPair::V4 {
                source: reader.array::<4>("source address")?.into(),
                destination: reader.array::<4>("destination address")?.into(),
            },
            VERSION_6 => AddressPair::V6 {
                source: reader.array::<16>("source address")?.into(),
                destination: reader.array::<16>("destination address")?.into(),
            },
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
        Ok(Self { addresses, protocol, source_port, destination_port })
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        match self.addresses {
            AddressPair::V4 { source, destination } => {
                writer.put(&[VERSION_4, self.protocol])?;
                writer.put(&source.octets())?;
                writer.put(&destination.octets())?;
            }
            AddressPair::V6 { source, destination } => {
                writer.put(&[VERSION_6, self.protocol])?;
                writer.put(&source.octets())?;
                writer.put(&destination.octets())?;
            }
        }
        writer.put(&self.source_port.to_be_bytes())?;
        writer.put(&self.destination_port.to_be_bytes())
    }

    pub(crate) const fn encoded_len(&self) -> usize {
        let addresses = match self.addresses {
            AddressPair::V4 { .. } => 2 * 4,
            AddressPair::V6 { .. } => 2 * 16,
        };
        2 + addresses + 4
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
