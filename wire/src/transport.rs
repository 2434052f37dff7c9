use crate::bytes::{Reader, Writer};
use crate::{Error, PathId, ReceiverIndex, TAG_LEN, TruncatedNumber};

const TYPE_BIT: u8 = 0x80;
/// Value of the five path bits that says: a 16-bit path identifier follows.
const LONG_PATH: u8 = 31;
/// The smallest frame.
const PLAINTEXT_MIN: usize = 1;

/// The clear header of a transport message. All of it is associated data of the AEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportHeader {
    /// The path, which also names the lane.
    pub path: PathId,
    /// The association, as the receiver of this message numbered it.
    pub receiver: ReceiverIndex,
    /// The packet number within the lane.
    pub number: TruncatedNumber,
}

impl TransportHeader {
    /// Bytes of the longest header.
    pub const MAX_LEN: usize = 11;

    /// Bytes of this header, 6..=[`Self::MAX_LEN`].
    #[inline]
    pub const fn encoded_len(&self) -> usize {
        let path = if self.path.0 < LONG_PATH as u16 { 0 } else { 2 };
        1 + path + 4 + self.number.len()
    }

    /// Writes the header to the start of `buffer` and returns its length.
    ///
    /// # Errors
    ///
    /// [`Error::NoRoom`].
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut writer = Writer::new(buffer, self.encoded_len())?;
        let length_bits = (self.number.len() as u8 - 1) << 5;
        if self.path.0 < u16::from(LONG_PATH) {
            writer.put(&[TYPE_BIT | length_bits | self.path.0 as u8])?;
        } else {
            writer.put(&[TYPE_BIT | length_bits | LONG_PATH])?;
            writer.put(&self.path.0.to_be_bytes())?;
        }
        writer.put(&self.receiver.0.to_be_bytes())?;
        match (self.number.len(), self.number.value().to_be_bytes()) {
            (1, [.., d]) => writer.put(&[d])?,
            (2, [.., c, d]) => writer.put(&[c, d])?,
            (3, [_, b, c, d]) => writer.put(&[b, c, d])?,
            (_, all) => writer.put(&all)?,
        }
        Ok(writer.offset())
    }

    #[inline]
    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let first = reader.u8("message type")?;
        if first & TYPE_BIT == 0 {
            return Err(Error::Value {
                field: "message type",
                offset: 0,
                expected: "bit 7 set",
                got: u64::from(first),
            });
        }
        let path = match first & 0x1f {
            LONG_PATH => {
                let path = reader.u16("path identifier")?;
                if path < u16::from(LONG_PATH) {
                    return Err(Error::Value {
                        field: "path identifier",
                        offset: 1,
                        expected: "at least 31 in the long form",
                        got: u64::from(path),
                    });
                }
                path
            }
            short => u16::from(short),
        };
        let receiver = ReceiverIndex(reader.u32("receiver index")?);
        let number = TruncatedNumber::read(reader, usize::from(first >> 5 & 3) + 1)?;
        Ok(Self { path: PathId(path), receiver, number })
    }
}

/// View of a transport message: clear header, ciphertext of frames, tag.
///
/// To open it in place, take [`header`](Self::header) and [`header_len`](Self::header_len), let go
/// of the view and split the datagram there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportPacket<'a> {
    header: TransportHeader,
    associated: &'a [u8],
    sealed: &'a [u8],
}

impl<'a> TransportPacket<'a> {
    /// Checks that `datagram` is a transport message with at least one byte of frames.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`], or [`Error::Value`] for another message type or a path identifier in
    /// the long form that has a short one.
    #[inline]
    pub fn new_checked(datagram: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(datagram);
        let header = TransportHeader::read(&mut reader)?;
        let sealed = reader.rest();
        if sealed.len() < PLAINTEXT_MIN + TAG_LEN {
            return Err(Error::Truncated {
                field: "frames and tag",
                offset: reader.offset(),
                needed: PLAINTEXT_MIN + TAG_LEN,
                left: sealed.len(),
            });
        }
        Ok(Self { header, associated: &datagram[..reader.offset()], sealed })
    }

    /// The clear header.
    #[inline]
    pub const fn header(&self) -> TransportHeader {
        self.header
    }

    /// Bytes of the clear header.
    #[inline]
    pub const fn header_len(&self) -> usize {
        self.associated.len()
    }

    /// The bytes of the clear header: the associated data.
    #[inline]
    pub const fn associated_data(&self) -> &'a [u8] {
        self.associated
    }

    /// Ciphertext and tag, at least 17 bytes.
    #[inline]
    pub const fn sealed(&self) -> &'a [u8] {
        self.sealed
    }
}
