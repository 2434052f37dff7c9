//! Packet and frame formats of mpip, as `docs/protocol.md` specifies them byte by byte.
//!
//! # The model
//!
//! Each datagram of mpip holds exactly one *message*. Its first byte is the type
//! ([`MessageType::of`]):
//!
//! | message | view | value |
//! |---|---|---|
//! | handshake initiation | [`InitiationPacket`] | [`InitiationRepr`] with [`InitiationPayload`] |
//! | handshake response | [`ResponsePacket`] | [`ResponseRepr`] with [`ResponsePayload`] |
//! | cookie reply | [`CookieReplyPacket`] | [`CookieReplyRepr`] |
//! | availability query | [`QueryPacket`] | [`QueryRepr`] |
//! | availability answer | [`AnswerPacket`] | [`AnswerRepr`] |
//! | transport | [`TransportPacket`] | [`TransportHeader`], then sealed [`Frame`]s |
//!
//! A view (`Packet`) borrows the bytes. Its `new_checked` checks everything once, so accessors
//! cannot panic afterwards. A value (`Repr`, [`TransportHeader`], [`Frame`]) is the meaning of the
//! bytes and can be emitted again. [`Frames`] reads the plaintext of a transport message,
//! [`FrameWriter`] writes it.
//!
//! Every encoding is canonical: a parsed value emits exactly the bytes that it was parsed from. So
//! reserved bytes must be zero, and variable-length integers must be minimal.
//!
//! The crate does no I/O, has no clock, and allocates nothing (`no_std`). It does no cryptography:
//! a parsed message is well-formed, but not authentic.
#![no_std]

#[cfg(test)]
extern crate std;

mod address;
mod availability;
mod bytes;
#[doc(hidden)]
pub mod check;
mod error;
mod feedback;
mod frame;
mod handshake;
mod id;
mod number;
mod rate_limit;
mod session;
mod transport;
mod varint;

pub use address::{AddressIter, AddressList};
pub use availability::{AnswerPacket, AnswerRepr, QueryPacket, QueryRepr};
pub use error::Error;
pub use feedback::{AckRange, EcnCounts, Feedback, RangeIter, Ranges};
pub use frame::{
    CLOSE_MESSAGE_MAX, CheckedFrames, Frame, FrameWriter, Frames, PATH_COST_MAX, PathStatus,
    WORK_MAX,
};
pub use handshake::{
    Aead, AeadSet, CookieReplyPacket, CookieReplyRepr, InitiationPacket, InitiationPayload,
    InitiationRepr, ResponsePacket, ResponsePayload, ResponseRepr, Timestamp,
};
pub use id::{PathId, ReceiverIndex, SessionId};
pub use number::{PACKET_NUMBER_MAX, TruncatedNumber, expand, truncated_len};
pub use rate_limit::RateLimit;
pub use session::{
    CompactFrameHeader, FLOW_LABEL_MAX, NetworkFields, PacketFrameHeader, SKIP_MAX, SessionFields,
    TruncatedSequence,
};
pub use transport::{TransportHeader, TransportPacket};
pub use varint::{VARINT_MAX, varint_len};

/// UDP port that a node listens on unless it is configured otherwise.
pub const DEFAULT_PORT: u16 = 6182;

/// Version of the protocol that this crate speaks.
pub const VERSION: u8 = 1;

/// Bytes of the AEAD tag at the end of every transport message.
pub const TAG_LEN: usize = 16;

/// Bytes of each of the two message authentication codes at the end of a handshake message.
pub const MAC_LEN: usize = 16;

/// Bytes of UDP payload to which a datagram that carries a path challenge is padded.
pub const CHALLENGE_DATAGRAM_LEN: usize = 1200;

/// Bytes of UDP payload that no message exceeds.
pub const DATAGRAM_MAX: usize = 65_527;

/// What a datagram is, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// 0x01, read with [`InitiationPacket`].
    Initiation,
    /// 0x02, read with [`ResponsePacket`].
    Response,
    /// 0x03, read with [`CookieReplyPacket`].
    CookieReply,
    /// 0x05, read with [`QueryPacket`].
    Query,
    /// 0x06, read with [`AnswerPacket`].
    Answer,
    /// Any byte with bit 7 set, read with [`TransportPacket`].
    Transport,
}

impl MessageType {
    pub(crate) const INITIATION: u8 = 0x01;
    pub(crate) const RESPONSE: u8 = 0x02;
    pub(crate) const COOKIE_REPLY: u8 = 0x03;
    pub(crate) const QUERY: u8 = 0x05;
    pub(crate) const ANSWER: u8 = 0x06;

    /// The type of the message in `datagram`. Looks at the first byte only.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] when the datagram is empty, [`Error::Value`] when the type is unknown.
    #[inline]
    pub fn of(datagram: &[u8]) -> Result<Self, Error> {
        match datagram.first() {
            Some(0x80..) => Ok(Self::Transport),
            Some(&Self::INITIATION) => Ok(Self::Initiation),
            Some(&Self::RESPONSE) => Ok(Self::Response),
            Some(&Self::COOKIE_REPLY) => Ok(Self::CookieReply),
            Some(&Self::QUERY) => Ok(Self::Query),
            Some(&Self::ANSWER) => Ok(Self::Answer),
            Some(&other) => Err(Error::Value {
                field: "message type",
                offset: 0,
                expected: "0x01, 0x02, 0x03, 0x05, 0x06 or bit 7 set",
                got: u64::from(other),
            }),
            None => Err(Error::Truncated { field: "message type", offset: 0, needed: 1, left: 0 }),
        }
    }
}

#[cfg(test)]
mod tests;
