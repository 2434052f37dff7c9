use crate::bytes::{Reader, Writer};
use crate::error::exact_len;
use crate::{Error, MAC_LEN, MessageType, ReceiverIndex, VERSION};

const RESERVED: &str = "reserved bytes";

/// View of a handshake initiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitiationPacket<'a> {
    bytes: &'a [u8; InitiationPacket::LEN],
    repr: InitiationRepr<'a>,
}

impl<'a> InitiationPacket<'a> {
    /// Bytes of the Noise message inside: ephemeral key 32, sealed static key 48, sealed payload
    /// 24 + 16.
    pub const NOISE_LEN: usize = 32 + 48 + InitiationPayload::LEN + 16;
    /// Where the Noise message begins.
    pub const NOISE_OFFSET: usize = 8;
    /// Where the first message authentication code begins: it covers all bytes before.
    pub const MAC1_OFFSET: usize = Self::NOISE_OFFSET + Self::NOISE_LEN;
    /// Where the second message authentication code begins: it covers all bytes before.
    pub const MAC2_OFFSET: usize = Self::MAC1_OFFSET + MAC_LEN;
    /// Bytes of the message.
    pub const LEN: usize = Self::MAC2_OFFSET + MAC_LEN;

    /// Checks type, length, and that reserved bytes are zero.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] or [`Error::Value`].
    pub fn new_checked(datagram: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(datagram);
        reader.exactly("message type", MessageType::INITIATION, "0x01 (handshake initiation)")?;
        exact_len("handshake initiation", datagram, Self::LEN)?;
        reader.zeros(RESERVED, 3)?;
        let repr = InitiationRepr {
            sender: ReceiverIndex(reader.u32("sender index")?),
            noise: reader.array_ref("noise message")?,
            mac1: reader.array("mac1")?,
            mac2: reader.array("mac2")?,
        };
        Ok(Self { bytes: Reader::new(datagram).array_ref("handshake initiation")?, repr })
    }

    /// The index that the initiator chose for itself.
    pub const fn sender(&self) -> ReceiverIndex {
        self.repr.sender
    }

    /// The Noise message.
    pub const fn noise(&self) -> &'a [u8; InitiationPacket::NOISE_LEN] {
        self.repr.noise
    }

    /// The first message authentication code.
    pub const fn mac1(&self) -> &[u8; MAC_LEN] {
        &self.repr.mac1
    }

    /// The second message authentication code; all zero without a cookie.
    pub const fn mac2(&self) -> &[u8; MAC_LEN] {
        &self.repr.mac2
    }

    /// The bytes that mac1 covers.
    pub fn mac1_input(&self) -> &'a [u8] {
        &self.bytes[..Self::MAC1_OFFSET]
    }

    /// The bytes that mac2 covers.
    pub fn mac2_input(&self) -> &'a [u8] {
        &self.bytes[..Self::MAC2_OFFSET]
    }

    /// The message as a value.
    pub const fn repr(&self) -> InitiationRepr<'a> {
        self.repr
    }
}

/// A handshake initiation as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitiationRepr<'a> {
    /// The index that the initiator chose for itself.
    pub sender: ReceiverIndex,
    /// The Noise message.
    pub noise: &'a [u8; InitiationPacket::NOISE_LEN],
    /// The first message authentication code, over all bytes before it.
    pub mac1: [u8; MAC_LEN],
    /// The second message authentication code, over all bytes before it; zero without a cookie.
    pub mac2: [u8; MAC_LEN],
}

impl InitiationRepr<'_> {
    /// Bytes of the message.
    pub const fn encoded_len(&self) -> usize {
        InitiationPacket::LEN
    }

    /// Writes the message to the start of `buffer` and returns its length.
    ///
    /// A sender who does not know the codes yet emits zeros, computes them over the buffer and puts
    /// them at [`InitiationPacket::MAC1_OFFSET`] and [`InitiationPacket::MAC2_OFFSET`].
    ///
    /// # Errors
    ///
    /// [`Error::NoRoom`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut writer = Writer::new(buffer, InitiationPacket::LEN)?;
        writer.put(&[MessageType::INITIATION, 0, 0, 0])?;
        writer.put(&self.sender.0.to_be_bytes())?;
        writer.put(self.noise)?;
        writer.put(&self.mac1)?;
        writer.put(&self.mac2)?;
        Ok(writer.offset())
    }
}

/// View of a handshake response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponsePacket<'a> {
    bytes: &'a [u8; ResponsePacket::LEN],
    repr: ResponseRepr<'a>,
}

impl<'a> ResponsePacket<'a> {
    /// Bytes of the Noise message inside: ephemeral key 32, sealed payload 12 + 16.
    pub const NOISE_LEN: usize = 32 + ResponsePayload::LEN + 16;
    /// Where the Noise message begins.
    pub const NOISE_OFFSET: usize = 12;
    /// Where the first message authentication code begins: it covers all bytes before.
    pub const MAC1_OFFSET: usize = Self::NOISE_OFFSET + Self::NOISE_LEN;
    /// Where the second message authentication code begins: it covers all bytes before.
    pub const MAC2_OFFSET: usize = Self::MAC1_OFFSET + MAC_LEN;
    /// Bytes of the message.
    pub const LEN: usize = Self::MAC2_OFFSET + MAC_LEN;

    /// Checks type, length, and that reserved bytes are zero.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] or [`Error::Value`].
    pub fn new_checked(datagram: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(datagram);
        reader.exactly("message type", MessageType::RESPONSE, "0x02 (handshake response)")?;
        exact_len("handshake response", datagram, Self::LEN)?;
        reader.zeros(RESERVED, 3)?;
        let repr = ResponseRepr {
            sender: ReceiverIndex(reader.u32("sender index")?),
            receiver: ReceiverIndex(reader.u32("receiver index")?),
            noise: reader.array_ref("noise message")?,
            mac1: reader.array("mac1")?,
            mac2: reader.array("mac2")?,
        };
        Ok(Self { bytes: Reader::new(datagram).array_ref("handshake response")?, repr })
    }

    /// The index that the responder chose for itself.
    pub const fn sender(&self) -> ReceiverIndex {
        self.repr.sender
    }

    /// The sender index of the initiation that this answers.
    pub const fn receiver(&self) -> ReceiverIndex {
        self.repr.receiver
    }

    /// The Noise message.
    pub const fn noise(&self) -> &'a [u8; ResponsePacket::NOISE_LEN] {
        self.repr.noise
    }

    /// The first message authentication code.
    pub const fn mac1(&self) -> &[u8; MAC_LEN] {
        &self.repr.mac1
    }

    /// The second message authentication code; all zero without a cookie.
    pub const fn mac2(&self) -> &[u8; MAC_LEN] {
        &self.repr.mac2
    }

    /// The bytes that mac1 covers.
    pub fn mac1_input(&self) -> &'a [u8] {
        &self.bytes[..Self::MAC1_OFFSET]
    }

    /// The bytes that mac2 covers.
    pub fn mac2_input(&self) -> &'a [u8] {
        &self.bytes[..Self::MAC2_OFFSET]
    }

    /// The message as a value.
    pub const fn repr(&self) -> ResponseRepr<'a> {
        self.repr
    }
}

/// A handshake response as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseRepr<'a> {
    /// The index that the responder chose for itself.
    pub sender: ReceiverIndex,
    /// The sender index of the initiation that this answers.
    pub receiver: ReceiverIndex,
    /// The Noise message.
    pub noise: &'a [u8; ResponsePacket::NOISE_LEN],
    /// The first message authentication code, over all bytes before it.
    pub mac1: [u8; MAC_LEN],
    /// The second message authentication code, over all bytes before it; zero without a cookie.
    pub mac2: [u8; MAC_LEN],
}

impl ResponseRepr<'_> {
    /// Bytes of the message.
    pub const fn encoded_len(&self) -> usize {
        ResponsePacket::LEN
    }

    /// Writes the message to the start of `buffer` and returns its length. For the codes see
    /// [`InitiationRepr::emit`].
    ///
    /// # Errors
    ///
    /// [`Error::NoRoom`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut writer = Writer::new(buffer, ResponsePacket::LEN)?;
        writer.put(&[MessageType::RESPONSE, 0, 0, 0])?;
        writer.put(&self.sender.0.to_be_bytes())?;
        writer.put(&self.receiver.0.to_be_bytes())?;
        writer.put(self.noise)?;
        writer.put(&self.mac1)?;
        writer.put(&self.mac2)?;
        Ok(writer.offset())
    }
}

/// View of a cookie reply: the answer of a node under load to a handshake message without a valid
/// mac2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieReplyPacket<'a> {
    repr: CookieReplyRepr<'a>,
}

impl<'a> CookieReplyPacket<'a> {
    /// Bytes of the nonce.
    pub const NONCE_LEN: usize = 12;
    /// Bytes of the sealed cookie: 16 and the tag of 16.
    pub const SEALED_LEN: usize = 32;
    /// Bytes of the message.
    pub const LEN: usize = 8 + Self::NONCE_LEN + Self::SEALED_LEN;

    /// Checks type, length, and that reserved bytes are zero.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] or [`Error::Value`].
    pub fn new_checked(datagram: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(datagram);
        reader.exactly("message type", MessageType::COOKIE_REPLY, "0x03 (cookie reply)")?;
        exact_len("cookie reply", datagram, Self::LEN)?;
        reader.zeros(RESERVED, 3)?;
        let repr = CookieReplyRepr {
            receiver: ReceiverIndex(reader.u32("receiver index")?),
            nonce: reader.array("nonce")?,
            sealed: reader.array_ref("sealed cookie")?,
        };
        Ok(Self { repr })
    }

    /// The sender index of the handshake message that was refused.
    pub const fn receiver(&self) -> ReceiverIndex {
        self.repr.receiver
    }

    /// The nonce under which the cookie is sealed.
    pub const fn nonce(&self) -> &[u8; CookieReplyPacket::NONCE_LEN] {
        &self.repr.nonce
    }

    /// The sealed cookie: ciphertext 16, tag 16.
    pub const fn sealed(&self) -> &'a [u8; CookieReplyPacket::SEALED_LEN] {
        self.repr.sealed
    }

    /// The message as a value.
    pub const fn repr(&self) -> CookieReplyRepr<'a> {
        self.repr
    }
}

/// A cookie reply as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieReplyRepr<'a> {
    /// The sender index of the handshake message that was refused.
    pub receiver: ReceiverIndex,
    /// The nonce under which the cookie is sealed.
    pub nonce: [u8; CookieReplyPacket::NONCE_LEN],
    /// The sealed cookie: ciphertext 16, tag 16.
    pub sealed: &'a [u8; CookieReplyPacket::SEALED_LEN],
}

impl CookieReplyRepr<'_> {
    /// Bytes of the message.
    pub const fn encoded_len(&self) -> usize {
        CookieReplyPacket::LEN
    }

    /// Writes the message to the start of `buffer` and returns its length.
    ///
    /// # Errors
    ///
    /// [`Error::NoRoom`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut writer = Writer::new(buffer, CookieReplyPacket::LEN)?;
        writer.put(&[MessageType::COOKIE_REPLY, 0, 0, 0])?;
        writer.put(&self.receiver.0.to_be_bytes())?;
        writer.put(&self.nonce)?;
        writer.put(self.sealed)?;
        Ok(writer.offset())
    }
}

/// Time of the initiator's clock, which only has to move forward from one initiation to the next.
///
/// Laid out as TAI64N: 8 bytes of seconds, 4 bytes of nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since an epoch of the initiator's choice.
    pub seconds: u64,
    /// Nanoseconds within the second, below 10^9.
    pub nanoseconds: u32,
}

/// An AEAD that protects transport messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aead {
    /// 1: AES-256-GCM.
    Aes256Gcm,
    /// 2: ChaCha20-Poly1305.
    ChaCha20Poly1305,
}

impl Aead {
    /// The number of the AEAD on the wire, which is also its bit in an [`AeadSet`].
    pub const fn code(self) -> u8 {
        match self {
            Self::Aes256Gcm => 1,
            Self::ChaCha20Poly1305 => 2,
        }
    }
}

/// A set of AEADs, as the initiator offers it. Unknown bits are kept and mean nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AeadSet(pub u8);

impl AeadSet {
    /// No AEAD.
    pub const EMPTY: Self = Self(0);
    /// Every AEAD that this version knows.
    pub const ALL: Self = Self::EMPTY.with(Aead::Aes256Gcm).with(Aead::ChaCha20Poly1305);

    /// The set with `aead` in it.
    #[must_use]
    pub const fn with(self, aead: Aead) -> Self {
        Self(self.0 | aead.code())
    }

    /// Whether `aead` is in the set.
    pub const fn contains(self, aead: Aead) -> bool {
        self.0 & aead.code() != 0
    }
}

/// What the initiator says inside the Noise message of its initiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitiationPayload {
    /// Must be later than that of every initiation accepted before from the same key.
    pub timestamp: Timestamp,
    /// Random number of this run of the daemon: when it changes, the peer forgets paths and
    /// sessions.
    pub instance: u64,
    /// The AEADs that the initiator can use.
    pub aeads: AeadSet,
    /// The association that the initiator has with the responder: its number in 15 bits, and in the
    /// highest one whether the initiator opens its paths. 0 if there is none.
    pub association: u16,
}

impl InitiationPayload {
    /// Bytes of the payload.
    pub const LEN: usize = 24;

    /// Reads the decrypted payload.
    ///
    /// # Errors
    ///
    /// [`Error::Length`], or [`Error::Value`] for nanoseconds of a second or more, or another
    /// version.
    pub fn parse(payload: &[u8]) -> Result<Self, Error> {
        exact_len("payload of the handshake initiation", payload, Self::LEN)?;
        let mut reader = Reader::new(payload);
        let seconds = reader.u64("timestamp, seconds")?;
        let nanoseconds = reader.u32("timestamp, nanoseconds")?;
        check_nanoseconds(nanoseconds)?;
        let instance = reader.u64("instance")?;
        let aeads = AeadSet(reader.u8("offered AEADs")?);
        reader.exactly("version", VERSION, "1")?;
        let association = u16::from_be_bytes(reader.array("association")?);
        Ok(Self { timestamp: Timestamp { seconds, nanoseconds }, instance, aeads, association })
    }

    /// Bytes of the payload.
    pub const fn encoded_len(&self) -> usize {
        Self::LEN
    }

    /// Writes the payload to the start of `buffer` and returns its length.
    ///
    /// # Errors
    ///
    /// [`Error::NoRoom`]; [`Error::Value`] when the nanoseconds are a second or more.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        check_nanoseconds(self.timestamp.nanoseconds)?;
        let mut writer = Writer::new(buffer, Self::LEN)?;
        writer.put(&self.timestamp.seconds.to_be_bytes())?;
        writer.put(&self.timestamp.nanoseconds.to_be_bytes())?;
        writer.put(&self.instance.to_be_bytes())?;
        writer.put(&[self.aeads.0, VERSION])?;
        writer.put(&self.association.to_be_bytes())?;
        Ok(writer.offset())
    }
}

fn check_nanoseconds(nanoseconds: u32) -> Result<(), Error> {
    if nanoseconds >= 1_000_000_000 {
        return Err(Error::Value {
            field: "timestamp, nanoseconds",
            offset: 8,
            expected: "below 1000000000",
            got: u64::from(nanoseconds),
        });
    }
    Ok(())
}

/// What the responder says inside the Noise message of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponsePayload {
    /// Random number of this run of the daemon: when it changes, the peer forgets paths and
    /// sessions.
    pub instance: u64,
    /// The AEAD of this association, one of those offered.
    pub aead: Aead,
    /// The association that the responder has with the initiator, as in the initiation.
    pub association: u16,
}

impl ResponsePayload {
    /// Bytes of the payload.
    pub const LEN: usize = 12;

    /// Reads the decrypted payload.
    ///
    /// # Errors
    ///
    /// [`Error::Length`], or [`Error::Value`] for an unknown AEAD, or another version.
    pub fn parse(payload: &[u8]) -> Result<Self, Error> {
        exact_len("payload of the handshake response", payload, Self::LEN)?;
        let mut reader = Reader::new(payload);
        let instance = reader.u64("instance")?;
        let aead = match reader.u8("chosen AEAD")? {
            1 => Aead::Aes256Gcm,
            2 => Aead::ChaCha20Poly1305,
            other => {
                return Err(Error::Value {
                    field: "chosen AEAD",
                    offset: 8,
                    expected: "1 (AES-256-GCM) or 2 (ChaCha20-Poly1305)",
                    got: u64::from(other),
                });
            }
        };
        reader.exactly("version", VERSION, "1")?;
        let association = u16::from_be_bytes(reader.array("association")?);
        Ok(Self { instance, aead, association })
    }

    /// Bytes of the payload.
    pub const fn encoded_len(&self) -> usize {
        Self::LEN
    }

    /// Writes the payload to the start of `buffer` and returns its length.
    ///
    /// # Errors
    ///
    /// [`Error::NoRoom`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut writer = Writer::new(buffer, Self::LEN)?;
        writer.put(&self.instance.to_be_bytes())?;
        writer.put(&[self.aead.code(), VERSION])?;
        writer.put(&self.association.to_be_bytes())?;
        Ok(writer.offset())
    }
}
