use crate::bytes::{Reader, Writer};
use crate::{DATAGRAM_MAX, Error, MessageType, VERSION};

const RESERVED: &str = "reserved bytes";
const QUERY_HEADER_LEN: usize = 12;

/// View of an availability query: "do you speak mpip?", asked outside any association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryPacket {
    nonce: u64,
    len: usize,
}

impl QueryPacket {
    /// Bytes of the shortest query: those of the answer, so that answers never amplify.
    pub const MIN_LEN: usize = AnswerPacket::LEN;

    /// Checks type, version, length, and that reserved bytes and padding are zero.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] below [`Self::MIN_LEN`], [`Error::Value`] for the rest.
    pub fn new_checked(datagram: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(datagram);
        reader.exactly("message type", MessageType::QUERY, "0x05 (availability query)")?;
        reader.exactly("version", VERSION, "1")?;
        reader.zeros(RESERVED, 2)?;
        let nonce = reader.u64("nonce")?;
        let padding = reader.rest().len().max(Self::MIN_LEN - QUERY_HEADER_LEN);
        reader.zeros("padding", padding)?;
        check_query_len(datagram.len())?;
        Ok(Self { nonce, len: datagram.len() })
    }

    /// Random number that the answer echoes.
    pub const fn nonce(&self) -> u64 {
        self.nonce
    }

    /// The query as a value.
    pub const fn repr(&self) -> QueryRepr {
        QueryRepr { nonce: self.nonce, len: self.len }
    }
}

/// An availability query as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryRepr {
    /// Random number that the answer echoes.
    pub nonce: u64,
    /// Bytes of the whole message, [`QueryPacket::MIN_LEN`]..=[`DATAGRAM_MAX`].
    pub len: usize,
}

impl QueryRepr {
    /// Bytes of the message.
    pub const fn encoded_len(&self) -> usize {
        self.len
    }

    /// Writes the message to the start of `buffer` and returns its length.
    ///
    /// # Errors
    ///
    /// [`Error::NoRoom`]; [`Error::Value`] when `len` is out of range.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        check_query_len(self.len)?;
        let mut writer = Writer::new(buffer, self.len)?;
        writer.put(&[MessageType::QUERY, VERSION, 0, 0])?;
        writer.put(&self.nonce.to_be_bytes())?;
        writer.zeros(self.len - QUERY_HEADER_LEN)?;
        Ok(writer.offset())
    }
}

fn check_query_len(len: usize) -> Result<(), Error> {
    if !(QueryPacket::MIN_LEN..=DATAGRAM_MAX).contains(&len) {
        return Err(Error::Value {
            field: "length of the query",
            offset: 0,
            expected: "44..=65527",
            got: len as u64,
        });
    }
    Ok(())
}

/// View of an availability answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerPacket<'a> {
    flags: u8,
    nonce: u64,
    public_key: &'a [u8; 32],
}

impl<'a> AnswerPacket<'a> {
    /// Bytes of an answer.
    pub const LEN: usize = 44;

    /// Checks type, version, length, and that the reserved byte is zero.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] or [`Error::Value`].
    pub fn new_checked(datagram: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(datagram);
        reader.exactly("message type", MessageType::ANSWER, "0x06 (availability answer)")?;
        crate::error::exact_len("availability answer", datagram, Self::LEN)?;
        reader.exactly("version", VERSION, "1")?;
        let flags = reader.u8("flags")?;
        reader.zeros(RESERVED, 1)?;
        let nonce = reader.u64("nonce")?;
        let public_key = reader.array_ref("public key")?;
        Ok(Self { flags, nonce, public_key })
    }

    /// Bits that version 1 does not define: sent as zero, ignored when received.
    pub const fn flags(&self) -> u8 {
        self.flags
    }

    /// The nonce of the query.
    pub const fn nonce(&self) -> u64 {
        self.nonce
    }

    /// The answering node's static public key (X25519). A claim until a handshake proved it.
    pub const fn public_key(&self) -> &'a [u8; 32] {
        self.public_key
    }

    /// The answer as a value.
    pub const fn repr(&self) -> AnswerRepr {
        AnswerRepr { flags: self.flags, nonce: self.nonce, public_key: *self.public_key }
    }
}

/// An availability answer as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerRepr {
    /// Bits that version 1 does not define: sent as zero, ignored when received.
    pub flags: u8,
    /// The nonce of the query.
    pub nonce: u64,
    /// The answering node's static public key (X25519).
    pub public_key: [u8; 32],
}

impl AnswerRepr {
    /// Bytes of the message.
    pub const fn encoded_len(&self) -> usize {
        AnswerPacket::LEN
    }

    /// Writes the message to the start of `buffer` and returns its length.
    ///
    /// # Errors
    ///
    /// [`Error::NoRoom`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut writer = Writer::new(buffer, AnswerPacket::LEN)?;
        writer.put(&[MessageType::ANSWER, VERSION, self.flags, 0])?;
        writer.put(&self.nonce.to_be_bytes())?;
        writer.put(&self.public_key)?;
        Ok(writer.offset())
    }
}
