use core::net::SocketAddr;

use crate::bytes::{Reader, Writer};
use crate::{
    AddressList, CompactFrameHeader, Error, Feedback, PacketFrameHeader, PathId, RateLimit,
    SKIP_MAX, SessionFields, SessionId, address, varint_len,
};

/// Most bytes of the text of a close frame.
pub const CLOSE_MESSAGE_MAX: usize = 128;

/// Most [work](Frame::work) that the frames of one datagram may make, in units. A heartbeat, packet
/// or answer is one, and no path needs as many as this in a datagram: what feedback on 16 paths
/// makes is half of it. All of it takes a receiver some 50 µs at the worst.
pub const WORK_MAX: u32 = 128;

mod kind {
    pub(super) const PADDING: u8 = 0x00;
    pub(super) const HEARTBEAT: u8 = 0x01;
    pub(super) const FEEDBACK: u8 = 0x02;
    pub(super) const FEEDBACK_ECN: u8 = 0x03;
    pub(super) const PATH_CHALLENGE: u8 = 0x04;
    pub(super) const PATH_RESPONSE: u8 = 0x05;
    pub(super) const ADDRESSES: u8 = 0x06;
    pub(super) const PATH_STATUS: u8 = 0x07;
    pub(super) const SESSION_OPEN: u8 = 0x08;
    pub(super) const SESSION_CLOSE: u8 = 0x09;
    pub(super) const SKIP: u8 = 0x0a;
    pub(super) const RESEQUENCING: u8 = 0x0b;
    pub(super) const CLOSE: u8 = 0x0c;
    pub(super) const ADDRESS_OBSERVED: u8 = 0x0d;
    pub(super) const SESSION_UNKNOWN: u8 = 0x0e;
    pub(super) const PLAYOUT: u8 = 0x0f;
    pub(super) const KEEPALIVE: u8 = 0x10;
}

/// Highest cost of a path.
pub const PATH_COST_MAX: u8 = 15;

/// What a node wants of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathStatus {
    /// 0: may carry session packets.
    Available,
    /// 1: carries session packets only when no available path does.
    Standby,
    /// 2: carries nothing any more. Its identifier is not used again before the keys have been
    /// renewed twice.
    Abandoned,
}

impl PathStatus {
    /// The number of the status on the wire: the lower three bits of the byte.
    pub const fn code(self) -> u8 {
        match self {
            Self::Available => 0,
            Self::Standby => 1,
            Self::Abandoned => 2,
        }
    }

    /// The status, the cost and the limit: one byte with the number of the status, a flag for the
    /// limit and the cost, then the limit if there is one.
    fn read(reader: &mut Reader<'_>) -> Result<(Self, u8, Option<RateLimit>), Error> {
        let offset = reader.offset();
        let byte = reader.u8("path status")?;
        let cost = byte >> 4;
        let status = match byte & 0x07 {
            0 => Self::Available,
            1 => Self::Standby,
            2 if byte == Self::Abandoned.code() => Self::Abandoned,
            _ => {
                return Err(Error::Value {
                    field: "path status",
                    offset,
                    expected: "0 (available) or 1 (standby), 8 more with a rate limit, and a cost \
                               in the upper four bits; or 2 (abandoned)",
                    got: u64::from(byte),
                });
            }
        };
        let limit = match byte & LIMITED {
            0 => None,
            _ => Some(read_limit(reader)?),
        };
        Ok((status, cost, limit))
    }

    /// The bytes that [`read`](Self::read) reads.
    fn write(
        self,
        cost: u8,
        limit: Option<RateLimit>,
        writer: &mut Writer<'_>,
    ) -> Result<(), Error> {
        let most = if self == Self::Abandoned { 0 } else { PATH_COST_MAX };
        check("path cost", cost.into(), cost <= most, "at most 15, 0 of an abandoned path")?;
        let kbps = limit.map_or(0, RateLimit::kbps);
        let possible = limit.is_none() || self != Self::Abandoned;
        check("rate limit", kbps.into(), possible, "none of an abandoned path")?;
        writer.put(&[cost << 4 | if limit.is_some() { LIMITED } else { 0 } | self.code()])?;
        limit.map_or(Ok(()), |limit| writer.varint("rate limit", limit.kbps().into()))
    }
}

/// The bit of the status that says that a rate limit follows.
const LIMITED: u8 = 0x08;

fn read_limit(reader: &mut Reader<'_>) -> Result<RateLimit, Error> {
    let offset = reader.offset();
    let kbps = reader.varint("rate limit")?;
    u32::try_from(kbps).ok().and_then(RateLimit::new).ok_or(Error::Value {
        field: "rate limit",
        offset,
        expected: "64..=1000000000 kbit/s",
        got: kbps,
    })
}

/// A frame: one typed item of the plaintext of a transport message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// 0x00: this many padding bytes in a row, at least one.
    Padding(usize),
    /// 0x01: asks for feedback and says nothing else.
    Heartbeat,
    /// 0x02, or 0x03 with ECN counts.
    Feedback(Feedback<'a>),
    /// 0x04: random bytes to be returned on the same path.
    PathChallenge([u8; 8]),
    /// 0x05: the bytes of a challenge.
    PathResponse([u8; 8]),
    /// 0x06: where the sender can be reached.
    Addresses {
        /// Grows with every new list; an older list is ignored. At most
        /// [`VARINT_MAX`](crate::VARINT_MAX).
        generation: u64,
        /// The whole list.
        list: AddressList<'a>,
    },
    /// 0x07.
    PathStatus {
        /// The path.
        path: PathId,
        /// Grows with every change of that path's status; an older one is ignored. At most
        /// [`VARINT_MAX`](crate::VARINT_MAX).
        sequence: u64,
        /// What the sender wants of it.
        status: PathStatus,
        /// What it costs the sender, 0..=[`PATH_COST_MAX`]; 0 of an abandoned path.
        cost: u8,
        /// What the receiver may send on it at most; none of an abandoned path.
        limit: Option<RateLimit>,
    },
    /// 0x08: the header fields that the packets of a session have in common.
    SessionOpen {
        /// The session, in the sender's number space.
        session: SessionId,
        /// The fields.
        fields: SessionFields,
    },
    /// 0x09: no packet of the session follows.
    SessionClose {
        /// The session, in the sender's number space.
        session: SessionId,
    },
    /// 0x0a: sequence numbers of a session that will never come.
    Skip {
        /// The session, in the sender's number space.
        session: SessionId,
        /// The first such number.
        first: u32,
        /// How many there are from `first` on (modulo 2^32), 1..=[`SKIP_MAX`].
        count: u32,
    },
    /// 0x0b: how long the receiver waits for a gap in a session to close.
    Resequencing {
        /// Grows with every new time; an older one is ignored. At most
        /// [`VARINT_MAX`](crate::VARINT_MAX).
        sequence: u64,
        /// Microseconds, at most [`VARINT_MAX`](crate::VARINT_MAX).
        max_wait: u64,
    },
    /// 0x0c: the association ends.
    Close {
        /// Why, for programs.
        reason: u8,
        /// Why, for people; at most [`CLOSE_MESSAGE_MAX`] bytes.
        message: &'a str,
    },
    /// 0x0d: the address and port at which the sender sees the receiver on a path.
    AddressObserved {
        /// The path.
        path: PathId,
        /// The address and port. Flow label and scope of an IPv6 address are not carried.
        address: SocketAddr,
        /// Whether the sender accepts packets from this address as the receiver's own,
        /// untranslated.
        taken: bool,
    },
    /// 0x0e: the sender of this frame does not have the fields of a session whose compact packets
    /// it received.
    SessionUnknown {
        /// The session, in the number space of the receiver of this frame.
        session: SessionId,
    },
    /// 0x0f: the packet in this datagram is not to be delivered before this time.
    Playout {
        /// Units of 256 microseconds of the receiver's clock, modulo 2^16.
        at: u16,
    },
    /// 0x10: longest time that the receiver of this frame may leave this path silent.
    Keepalive {
        /// Milliseconds; 0 leaves it to the receiver.
        interval: u64,
    },
    /// 0x20, or 0x21 when ordered: an IP packet, up to the end of the plaintext.
    Packet {
        /// Session and sequence.
        header: PacketFrameHeader,
        /// The IP packet, at least one byte. Nothing in it has been checked.
        packet: &'a [u8],
    },
    /// 0x28, or 0x29 when ordered: an IP packet without the header fields in the session's open
    /// frame, up to the end of the plaintext.
    CompactPacket {
        /// Session and sequence.
        header: CompactFrameHeader,
        /// The compact form, at least one byte. Nothing in it has been checked.
        compact: &'a [u8],
    },
}

impl<'a> Frame<'a> {
    /// Whether a datagram with this frame asks for feedback. Padding and feedback alone do not.
    #[inline]
    pub const fn is_ack_eliciting(&self) -> bool {
        !matches!(self, Self::Padding(_) | Self::Feedback(_))
    }

    /// What the frame may cost its receiver beside its bytes, in units of some 100 ns; see
    /// [`WORK_MAX`].
    #[inline]
    pub const fn work(&self) -> u32 {
        match self {
            Self::Padding(_) => 0,
            Self::Skip { .. } | Self::SessionClose { .. } | Self::PathStatus { .. } => 2,
            Self::Feedback(_) => 4,
            Self::SessionOpen { .. } | Self::Addresses { .. } => 8,
            Self::Heartbeat
            | Self::PathChallenge(_)
            | Self::PathResponse(_)
            | Self::Resequencing { .. }
            | Self::Close { .. }
            | Self::AddressObserved { .. }
            | Self::SessionUnknown { .. }
            | Self::Playout { .. }
            | Self::Keepalive { .. }
            | Self::Packet { .. }
            | Self::CompactPacket { .. } => 1,
        }
    }

    /// Bytes of the frame.
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::Padding(len) => *len,
            Self::Heartbeat => 1,
            Self::Feedback(feedback) => 1 + feedback.encoded_len(),
            Self::PathChallenge(_) | Self::PathResponse(_) => 1 + 8,
            Self::Addresses { generation, list } => {
                1 + varint_len(*generation) + list.encoded_len()
            }
            Self::PathStatus { path, sequence, limit, .. } => {
                let limit = limit.map_or(0, |limit| varint_len(limit.kbps().into()));
                1 + path.varint_len() + varint_len(*sequence) + 1 + limit
            }
            Self::SessionOpen { session, fields } => {
                1 + session.varint_len() + fields.encoded_len()
            }
            Self::SessionClose { session } | Self::SessionUnknown { session } => {
                1 + session.varint_len()
            }
            Self::Skip { session, count, .. } => {
                1 + session.varint_len() + 4 + varint_len(u64::from(*count))
            }
            Self::Resequencing { sequence, max_wait } => {
                1 + varint_len(*sequence) + varint_len(*max_wait)
            }
            Self::Close { message, .. } => 1 + 1 + varint_len(message.len() as u64) + message.len(),
            Self::AddressObserved { path, address, .. } => {
                1 + path.varint_len() + address::encoded_len(address) + 1
            }
            Self::Playout { .. } => 1 + 2,
            Self::Keepalive { interval } => 1 + varint_len(*interval),
            Self::Packet { header, packet } => header.encoded_len() + packet.len(),
            Self::CompactPacket { header, compact } => header.encoded_len() + compact.len(),
        }
    }

    /// Writes the frame to the start of `buffer` and returns its length.
    ///
    /// # Errors
    ///
    /// [`Error::NoRoom`]; [`Error::Value`] when a field is outside the range that its documentation
    /// gives. Then the content of `buffer` is unspecified.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut writer = Writer::new(buffer, self.encoded_len())?;
        let writer = &mut writer;
        match self {
            Self::Padding(len) => {
                check("length of padding", *len as u64, *len > 0, "at least 1")?;
                writer.zeros(*len)?;
            }
            Self::Heartbeat => writer.put(&[kind::HEARTBEAT])?,
            Self::Feedback(feedback) => {
                let ecn = feedback.ecn.is_some();
                writer.put(&[if ecn { kind::FEEDBACK_ECN } else { kind::FEEDBACK }])?;
                feedback.write(writer)?;
            }
            Self::PathChallenge(bytes) => {
                writer.put(&[kind::PATH_CHALLENGE])?;
                writer.put(bytes)?;
            }
            Self::PathResponse(bytes) => {
                writer.put(&[kind::PATH_RESPONSE])?;
                writer.put(bytes)?;
            }
            Self::Addresses { generation, list } => {
                writer.put(&[kind::ADDRESSES])?;
                writer.varint("generation", *generation)?;
                list.write(writer)?;
            }
            Self::PathStatus { path, sequence, status, cost, limit } => {
                writer.put(&[kind::PATH_STATUS])?;
                writer.varint("path identifier", u64::from(path.0))?;
                writer.varint("sequence", *sequence)?;
                status.write(*cost, *limit, writer)?;
            }
            Self::SessionOpen { session, fields } => {
                writer.put(&[kind::SESSION_OPEN])?;
                writer.varint("session", u64::from(session.0))?;
                fields.write(writer)?;
            }
            Self::SessionClose { session } => {
                writer.put(&[kind::SESSION_CLOSE])?;
                writer.varint("session", u64::from(session.0))?;
            }
            Self::Skip { session, first, count } => {
                check_skip(u64::from(*count), 0)?;
                writer.put(&[kind::SKIP])?;
                writer.varint("session", u64::from(session.0))?;
                writer.put(&first.to_be_bytes())?;
                writer.varint("count", u64::from(*count))?;
            }
            Self::Resequencing { sequence, max_wait } => {
                writer.put(&[kind::RESEQUENCING])?;
                writer.varint("sequence", *sequence)?;
                writer.varint("maximum wait", *max_wait)?;
            }
            Self::Close { reason, message } => {
                let len = message.len();
                check("length of the message", len as u64, len <= CLOSE_MESSAGE_MAX, CLOSE_RANGE)?;
                writer.put(&[kind::CLOSE, *reason])?;
                writer.varint("length of the message", len as u64)?;
                writer.put(message.as_bytes())?;
            }
            Self::AddressObserved { path, address, taken } => {
                writer.put(&[kind::ADDRESS_OBSERVED])?;
                writer.varint("path identifier", u64::from(path.0))?;
                address::write(writer, address)?;
                writer.put(&[u8::from(*taken)])?;
            }
            Self::SessionUnknown { session } => {
                writer.put(&[kind::SESSION_UNKNOWN])?;
                writer.varint("session", u64::from(session.0))?;
            }
            Self::Playout { at } => {
                writer.put(&[kind::PLAYOUT])?;
                writer.put(&at.to_be_bytes())?;
            }
            Self::Keepalive { interval } => {
                writer.put(&[kind::KEEPALIVE])?;
                writer.varint("interval", *interval)?;
            }
            Self::Packet { header, packet } => {
                check("length of the packet", 0, !packet.is_empty(), "at least 1")?;
                header.write(writer)?;
                writer.put(packet)?;
            }
            Self::CompactPacket { header, compact } => {
                check("length of the packet", 0, !compact.is_empty(), "at least 1")?;
                header.write(writer)?;
                writer.put(compact)?;
            }
        }
        Ok(writer.offset())
    }

    #[inline]
    fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
        match reader.u8("frame type")? {
            PacketFrameHeader::UNORDERED => Self::read_packet(reader, false),
            PacketFrameHeader::ORDERED => Self::read_packet(reader, true),
            CompactFrameHeader::UNORDERED => Self::read_compact(reader, false),
            CompactFrameHeader::ORDERED => Self::read_compact(reader, true),
            other => Self::read_control(reader, other),
        }
    }

    #[inline]
    fn read_packet(reader: &mut Reader<'a>, ordered: bool) -> Result<Self, Error> {
        let header = PacketFrameHeader::read(reader, ordered)?;
        let packet = reader.take("packet", reader.rest().len().max(1))?;
        Ok(Self::Packet { header, packet })
    }

    #[inline]
    fn read_compact(reader: &mut Reader<'a>, ordered: bool) -> Result<Self, Error> {
        let header = CompactFrameHeader::read(reader, ordered)?;
        let compact = reader.take("packet", reader.rest().len().max(1))?;
        Ok(Self::CompactPacket { header, compact })
    }

    fn read_control(reader: &mut Reader<'a>, kind: u8) -> Result<Self, Error> {
        let offset = reader.offset() - 1;
        match kind {
            kind::PADDING => {
                let more = reader.rest().iter().take_while(|&&byte| byte == kind::PADDING).count();
                reader.take("padding", more)?;
                Ok(Self::Padding(1 + more))
            }
            kind::HEARTBEAT => Ok(Self::Heartbeat),
            kind::FEEDBACK => Feedback::read(reader, false).map(Self::Feedback),
            kind::FEEDBACK_ECN => Feedback::read(reader, true).map(Self::Feedback),
            kind::PATH_CHALLENGE => reader.array("path challenge").map(Self::PathChallenge),
            kind::PATH_RESPONSE => reader.array("path response").map(Self::PathResponse),
            kind::ADDRESSES => {
                let generation = reader.varint("generation")?;
                Ok(Self::Addresses { generation, list: AddressList::read(reader)? })
            }
            kind::PATH_STATUS => {
                let path = PathId::read(reader)?;
                let sequence = reader.varint("sequence")?;
                let (status, cost, limit) = PathStatus::read(reader)?;
                Ok(Self::PathStatus { path, sequence, status, cost, limit })
            }
            kind::SESSION_OPEN => {
                let session = SessionId::read(reader)?;
                Ok(Self::SessionOpen { session, fields: SessionFields::read(reader)? })
            }
            kind::SESSION_CLOSE => Ok(Self::SessionClose { session: SessionId::read(reader)? }),
            kind::SKIP => {
                let session = SessionId::read(reader)?;
                let first = reader.u32("first sequence")?;
                let offset = reader.offset();
                let count = check_skip(reader.varint("count")?, offset)?;
                Ok(Self::Skip { session, first, count })
            }
            kind::RESEQUENCING => {
                let sequence = reader.varint("sequence")?;
                Ok(Self::Resequencing { sequence, max_wait: reader.varint("maximum wait")? })
            }
            kind::CLOSE => Self::read_close(reader),
            kind::ADDRESS_OBSERVED => {
                let path = PathId::read(reader)?;
                let address = address::read(reader)?;
                Ok(Self::AddressObserved { path, address, taken: reader.flag("taken")? })
            }
            kind::SESSION_UNKNOWN => Ok(Self::SessionUnknown { session: SessionId::read(reader)? }),
            kind::PLAYOUT => Ok(Self::Playout { at: u16::from_be_bytes(reader.array("time")?) }),
            kind::KEEPALIVE => Ok(Self::Keepalive { interval: reader.varint("interval")? }),
            other => Err(Error::Value {
                field: "frame type",
                offset,
                expected: "0x00..=0x10, 0x20, 0x21, 0x28 or 0x29",
                got: u64::from(other),
            }),
        }
    }

    fn read_close(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let reason = reader.u8("reason")?;
        let max = CLOSE_MESSAGE_MAX as u64;
        let len = reader.varint_max("length of the message", max, CLOSE_RANGE)?;
        let offset = reader.offset();
        let text = reader.take("message", len as usize)?;
        let message = core::str::from_utf8(text).map_err(|error| Error::Value {
            field: "message",
            offset: offset + error.valid_up_to(),
            expected: "UTF-8",
            got: text.get(error.valid_up_to()).copied().map_or(0, u64::from),
        })?;
        Ok(Self::Close { reason, message })
    }
}

const CLOSE_RANGE: &str = "at most 128";

fn check_skip(count: u64, offset: usize) -> Result<u32, Error> {
    match count {
        1..=0x7fff_ffff => Ok(count as u32),
        _ => Err(Error::Value { field: "count", offset, expected: "1..=2^31 - 1", got: count }),
    }
}

const _: () = assert!(SKIP_MAX == 0x7fff_ffff);

fn check(field: &'static str, got: u64, ok: bool, expected: &'static str) -> Result<(), Error> {
    if ok { Ok(()) } else { Err(Error::Value { field, offset: 0, expected, got }) }
}

/// Iterator over the frames of a plaintext. After an error it ends.
///
/// One malformed frame makes the whole datagram invalid, so a receiver must not act on half of it:
/// see [`Frames::checked`].
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    reader: Reader<'a>,
    failed: bool,
}

impl<'a> Frames<'a> {
    /// The frames of `plaintext`.
    #[inline]
    pub const fn new(plaintext: &'a [u8]) -> Self {
        Self { reader: Reader::new(plaintext), failed: false }
    }

    /// Reads all frames of `plaintext`, at least one, before the first is returned.
    ///
    /// # Errors
    ///
    /// The first error in it; [`Error::Truncated`] when it is empty; [`Error::Work`] when its
    /// frames make more than [`WORK_MAX`].
    #[inline]
    pub fn checked(plaintext: &'a [u8]) -> Result<CheckedFrames<'a>, Error> {
        let mut rest = Frames::new(plaintext);
        let first = Frame::read(&mut rest.reader)?;
        let work = add_work(0, &first)?;
        if !rest.reader.rest().is_empty() {
            rest.clone().try_fold(work, |work, frame| add_work(work, &frame?))?;
        }
        Ok(CheckedFrames { first: Some(first), rest })
    }

    /// Where the next frame begins.
    #[inline]
    pub const fn offset(&self) -> usize {
        self.reader.offset()
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.reader.rest().is_empty() {
            return None;
        }
        let frame = Frame::read(&mut self.reader);
        self.failed = frame.is_err();
        Some(frame)
    }
}

impl core::iter::FusedIterator for Frames<'_> {}

/// Iterator over the frames of a plaintext without errors. Most have one frame, which is not read
/// again.
#[derive(Clone, Debug)]
pub struct CheckedFrames<'a> {
    first: Option<Frame<'a>>,
    rest: Frames<'a>,
}

impl<'a> Iterator for CheckedFrames<'a> {
    type Item = Frame<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.first.take().or_else(|| self.rest.next()?.ok())
    }
}

impl core::iter::FusedIterator for CheckedFrames<'_> {}

/// The work of frames that make `work`, and one more.
fn add_work(work: u32, frame: &Frame<'_>) -> Result<u32, Error> {
    match work + frame.work() {
        sum @ 0..=WORK_MAX => Ok(sum),
        sum => Err(Error::Work { max: WORK_MAX, got: sum }),
    }
}

/// Writes frames one after the other into a buffer.
#[derive(Debug)]
pub struct FrameWriter<'a> {
    buffer: &'a mut [u8],
    len: usize,
    work: u32,
    /// Whether a packet frame was written, after which nothing may follow.
    finished: bool,
}

impl<'a> FrameWriter<'a> {
    /// Writes to the start of `buffer`, which is also the limit.
    #[inline]
    pub const fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0, work: 0, finished: false }
    }

    /// Appends `frame`. An error leaves the frames before it as they were.
    ///
    /// # Errors
    ///
    /// As [`Frame::emit`]; [`Error::NoRoom`] also after a packet frame, which is always the last;
    /// [`Error::Work`] when the frames would make more than [`WORK_MAX`].
    pub fn push(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        if self.finished {
            return Err(Error::NoRoom { needed: frame.encoded_len(), available: 0 });
        }
        let work = add_work(self.work, frame)?;
        self.len += frame.emit(&mut self.buffer[self.len..])?;
        self.work = work;
        self.finished = matches!(frame, Frame::Packet { .. } | Frame::CompactPacket { .. });
        Ok(())
    }

    /// Appends padding until the plaintext has `len` bytes; does nothing when it has them.
    ///
    /// # Errors
    ///
    /// As [`Self::push`].
    pub fn pad_to(&mut self, len: usize) -> Result<(), Error> {
        match len.checked_sub(self.len) {
            None | Some(0) => Ok(()),
            Some(missing) => self.push(&Frame::Padding(missing)),
        }
    }

    /// Bytes written.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that can still be written.
    #[inline]
    pub const fn remaining(&self) -> usize {
        if self.finished { 0 } else { self.buffer.len() - self.len }
    }
}
