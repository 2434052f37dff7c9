//! TCP segments as bytes (RFC 9293, section 3.1; RFC 7323).

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;

use mpip_types::packet;

use crate::stream::PREFIX;

/// Bytes of a header without options.
const FIXED: usize = 20;
/// Bytes of the header of a segment that carries data, with timestamps.
pub const DATA_HEADER: usize = FIXED + 12;
/// Bytes before a datagram in its segment: the header and the datagram's length.
pub const HEADROOM: usize = DATA_HEADER + PREFIX;
/// Where the sequence number is in a header.
const SEQUENCE: Range<usize> = 4..8;
/// Where the control bits are in a header.
const FLAGS: usize = 13;
/// Where the checksum is in a header.
pub const CHECKSUM: Range<usize> = 16..18;
/// The protocol's number in an IP header.
pub const TCP: u8 = 6;

/// Control bits. ECN's and the reserved ones are ignored and sent as zero.
pub mod flag {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronize sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 0x10;
}

/// What a header says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Sequence number of the first byte, or of the SYN.
    pub sequence: u32,
    /// Next sequence number expected from the other side; counts with [`flag::ACK`].
    pub acknowledgement: u32,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Window, unscaled.
    pub window: u16,
    /// Maximum segment size, bytes; only with SYN.
    pub max_segment: Option<u16>,
    /// Shift of the window; only with SYN.
    pub window_scale: Option<u8>,
    /// Selective acknowledgements are understood; only with SYN.
    pub sack_permitted: bool,
    /// Timestamp value and echo reply, milliseconds of an arbitrary origin.
    pub timestamps: Option<(u32, u32)>,
}

/// Why bytes are no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Header {
    /// Reads the header at the start of `bytes`; returns it with its length in bytes. Unknown
    /// options are skipped.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let fixed: &[u8; FIXED] = bytes.first_chunk().ok_or(Malformed)?;
        let len = usize::from(fixed[12] >> 4) * 4;
        let options = bytes.get(FIXED..len).ok_or(Malformed)?;
        let short = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let long = |at: usize| {
            u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        let mut header = Self {
            source: short(0),
            destination: short(2),
            sequence: long(4),
            acknowledgement: long(8),
            flags: fixed[13] & 0x1f,
            window: short(14),
            ..Self::default()
        };
        header.read_options(options)?;
        Ok((header, len))
    }

    fn read_options(&mut self, mut options: &[u8]) -> Result<(), Malformed> {
        while let [kind, rest @ ..] = options {
            match kind {
                0 => break,
                1 => {
                    options = rest;
                    continue;
                }
                _ => {}
            }
            let len = usize::from(*rest.first().ok_or(Malformed)?);
            let option = options.get(2..len).ok_or(Malformed)?;
            match (kind, option) {
                (2, [high, low]) => self.max_segment = Some(u16::from_be_bytes([*high, *low])),
                (3, [shift]) => self.window_scale = Some(*shift),
                (4, []) => self.sack_permitted = true,
                (8, [a, b, c, d, e, f, g, h]) => {
                    let value = u32::from_be_bytes([*a, *b, *c, *d]);
                    self.timestamps = Some((value, u32::from_be_bytes([*e, *f, *g, *h])));
                }
                _ => {}
            }
            options = &options[len..];
        }
        Ok(())
    }

    /// Bytes that [`write`](Self::write) needs.
    pub fn encoded_len(&self) -> usize {
        let syn = self.flags & flag::SYN != 0;
        let options = match (syn, self.timestamps.is_some()) {
            (true, timestamps) => {
                4 + if timestamps || self.sack_permitted { 12 } else { 0 }
                    + if self.window_scale.is_some() { 4 } else { 0 }
            }
            (false, true) => 12,
            (false, false) => 0,
        };
        FIXED + options
    }

    /// Writes the header without checksum to the start of `bytes`; returns its length. The options
    /// are those of Linux, in its order.
    ///
    /// # Panics
    ///
    /// When `bytes` is shorter than [`encoded_len`](Self::encoded_len).
    pub fn write(&self, bytes: &mut [u8]) -> usize {
        let len = self.encoded_len();
        let (fixed, options) = bytes[..len].split_at_mut(FIXED);
        fixed[0..2].copy_from_slice(&self.source.to_be_bytes());
        fixed[2..4].copy_from_slice(&self.destination.to_be_bytes());
        fixed[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        fixed[8..12].copy_from_slice(&self.acknowledgement.to_be_bytes());
        fixed[12] = u8::try_from(len / 4).expect("60 bytes at most") << 4;
        fixed[13] = self.flags;
        fixed[14..16].copy_from_slice(&self.window.to_be_bytes());
        fixed[16..20].fill(0);
        let mut at = 0;
        let mut put = |option: &[u8]| {
            options[at..at + option.len()].copy_from_slice(option);
            at += option.len();
        };
        let syn = self.flags & flag::SYN != 0;
        if syn {
            let [high, low] = self.max_segment.unwrap_or(536).to_be_bytes();
            put(&[2, 4, high, low]);
        }
        match (syn && self.sack_permitted, self.timestamps) {
            (sack, Some((value, echo))) => {
                put(if sack { &[4, 2] } else { &[1, 1] });
                put(&[8, 10]);
                put(&value.to_be_bytes());
                put(&echo.to_be_bytes());
            }
            (true, None) => put(&[1, 1, 4, 2, 1, 1, 1, 1, 1, 1, 1, 1]),
            (false, None) => {}
        }
        if let Some(shift) = self.window_scale.filter(|_| syn) {
            put(&[1, 3, 3, shift]);
        }
        len
    }
}

/// Writes `header` and the datagram's length before the datagram at the end of `room`, [`HEADROOM`]
/// bytes of which lie before it. Returns where the segment begins. The checksum is left to
/// [`seal`].
///
/// # Panics
///
/// When there are less than [`HEADROOM`] bytes before the datagram, or it has more than 65,535.
pub fn frame(header: &Header, room: &mut [u8]) -> usize {
    let start = DATA_HEADER - header.encoded_len();
    let segment = &mut room[start..];
    let header_len = header.write(segment);
    let len = u16::try_from(segment.len() - header_len - PREFIX).expect("a datagram fits a packet");
    segment[header_len..header_len + PREFIX].copy_from_slice(&len.to_be_bytes());
    start
}

/// Fills in the checksum of `segment`.
pub fn seal(local: SocketAddr, remote: SocketAddr, segment: &mut [u8]) {
    segment[CHECKSUM].fill(0);
    let checksum = !packet::fold(sum(local, remote, segment));
    segment[CHECKSUM].copy_from_slice(&checksum.to_ne_bytes());
}

/// The header of `segment`, and what follows it.
///
/// # Panics
///
/// When the segment is shorter than its header says.
pub fn split(segment: &[u8]) -> (&[u8], &[u8]) {
    segment.split_at(usize::from(segment[12] >> 4) * 4)
}

/// Whether `next` is what a kernel cuts off behind `segment` when it cuts a super-packet: the bytes
/// that follow, no more of them, and the same header but for the numbers and the push flag.
pub fn continues(segment: &[u8], next: &[u8]) -> bool {
    let ((header, payload), (next_header, next_payload)) = (split(segment), split(next));
    let sequence =
        |header: &[u8]| u32::from_be_bytes(header[SEQUENCE].try_into().expect("4 bytes"));
    let follows = u32::try_from(payload.len())
        .is_ok_and(|len| sequence(header).wrapping_add(len) == sequence(next_header));
    let flags = |header: &[u8]| header[FLAGS] & !flag::PSH;
    follows
        && (1..=payload.len()).contains(&next_payload.len())
        && header[..SEQUENCE.start] == next_header[..SEQUENCE.start]
        && header[SEQUENCE.end..FLAGS] == next_header[SEQUENCE.end..FLAGS]
        && flags(header) == flags(next_header)
        && header[FLAGS + 1..CHECKSUM.start] == next_header[FLAGS + 1..CHECKSUM.start]
        && header[CHECKSUM.end..] == next_header[CHECKSUM.end..]
}

/// Fills in the checksum of the `header` of a segment of `len` bytes as far as a kernel expects it
/// that completes it: the sum of the pseudo-header.
pub fn begin_checksum(local: SocketAddr, remote: SocketAddr, header: &mut [u8], len: usize) {
    let sum = packet::fold(pseudo_header(local, remote, len));
    header[CHECKSUM].copy_from_slice(&sum.to_ne_bytes());
}

/// Whether the checksum of `segment`, as received, is right.
pub fn is_intact(local: SocketAddr, remote: SocketAddr, segment: &[u8]) -> bool {
    packet::fold(sum(local, remote, segment)) == u16::MAX
}

/// Whether a kernel has joined `segment` from several (GRO): then its checksum is the sum of the
/// pseudo-header alone.
pub fn is_joined(local: SocketAddr, remote: SocketAddr, segment: &[u8]) -> bool {
    let sum = packet::fold(pseudo_header(local, remote, segment.len()));
    segment.get(CHECKSUM) == Some(&sum.to_ne_bytes())
}

fn sum(one: SocketAddr, other: SocketAddr, segment: &[u8]) -> u64 {
    pseudo_header(one, other, segment.len()) + packet::sum(segment)
}

fn pseudo_header(one: SocketAddr, other: SocketAddr, len: usize) -> u64 {
    let len = u32::try_from(len).expect("a packet is shorter than 4 GiB");
    // The order of the addresses makes no difference.
    let addresses = [one, other].map(|address| match address.ip() {
        IpAddr::V4(v4) => packet::sum(&v4.octets()),
        IpAddr::V6(v6) => packet::sum(&v6.octets()),
    });
    packet::sum(&len.to_be_bytes()) + packet::sum(&[0, TCP]) + addresses.iter().sum::<u64>()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes of the longest header that is written.
    const MAX_HEADER: usize = FIXED + 20;

    fn syn() -> Header {
        Header {
            source: 6_182,
            destination: 443,
            sequence: 0x0102_0304,
            acknowledgement: 0,
            flags: flag::SYN,
            window: 64_240,
            max_segment: Some(1_460),
            window_scale: Some(10),
            sack_permitted: true,
            timestamps: Some((7, 0)),
        }
    }

    #[test]
    fn a_syn_is_as_linux_writes_it() {
        let mut bytes = [0xff; MAX_HEADER];
        assert_eq!(syn().write(&mut bytes), 40);
        let expected = "182601bb0102030400000000a002faf000000000\
                        020405b40402080a00000007000000000103030a";
        let written: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(written, expected);
        assert_eq!(Header::parse(&bytes), Ok((syn(), 40)));
    }

    #[test]
    fn headers_survive_being_written_and_read() {
        let plain = Header { max_segment: None, window_scale: None, ..syn() };
        let data = Header { flags: flag::ACK, sack_permitted: false, ..plain };
        let bare = Header { timestamps: None, ..data };
        let stripped = Header { sack_permitted: false, timestamps: None, ..syn() };
        for (header, len) in [(data, DATA_HEADER), (bare, 20), (stripped, 28)] {
            let mut bytes = [0; MAX_HEADER];
            assert_eq!((header.write(&mut bytes), header.encoded_len()), (len, len));
            assert_eq!(Header::parse(&bytes), Ok((header, len)));
        }
    }

    #[test]
    fn options_that_run_over_are_malformed() {
        let mut bytes = [0; MAX_HEADER];
        syn().write(&mut bytes);
        for len in 0..MAX_HEADER {
            assert_eq!(Header::parse(&bytes[..len]), Err(Malformed), "{len} bytes");
        }
        for (at, value) in [(12, 0x40), (21, 0), (21, 1), (21, 60)] {
            let mut broken = bytes;
            broken[at] = value;
            assert_eq!(Header::parse(&broken), Err(Malformed), "byte {at} is {value}");
        }
    }

    /// A segment of `server` with a datagram of `len` bytes.
    fn segment(sequence: u32, flags: u8, len: usize) -> Vec<u8> {
        let header = Header { sequence, flags, max_segment: None, window_scale: None, ..syn() };
        let mut room = vec![0; HEADROOM + len];
        assert_eq!(frame(&header, &mut room), 0);
        room
    }

    #[test]
    fn a_segment_continues_one_that_differs_in_its_numbers_and_is_as_long_at_least() {
        let first = segment(u32::MAX - 9, flag::ACK, 100);
        let after = 92;
        for (len, expected) in [(100, true), (1, true), (101, false)] {
            assert_eq!(continues(&first, &segment(after, flag::ACK, len)), expected, "{len}");
        }
        let next = segment(after, flag::ACK | flag::PSH, 100);
        assert!(continues(&first, &next));
        assert!(!continues(&first, &segment(after + 1, flag::ACK, 100)));
        assert!(!continues(&next, &first));
        assert!(!continues(&first, &segment(after, flag::ACK | flag::FIN, 100)));
        for byte in (0..DATA_HEADER).filter(|byte| !CHECKSUM.contains(byte) && *byte != 12) {
            let mut other = next.clone();
            other[byte] ^= 0x01;
            assert!(!continues(&first, &other), "byte {byte}");
        }
        let mut sealed = next;
        seal(
            "198.18.0.1:1".parse().expect("valid"),
            "198.18.0.2:2".parse().expect("valid"),
            &mut sealed,
        );
        assert!(continues(&first, &sealed));
    }

    #[test]
    fn a_checksum_that_was_begun_is_that_of_joined_segments() {
        let local: SocketAddr = "198.18.0.1:6182".parse().expect("valid");
        let remote: SocketAddr = "198.18.0.2:443".parse().expect("valid");
        let mut joined = segment(1, flag::ACK, 100);
        joined.extend(segment(103, flag::ACK, 100).split_off(DATA_HEADER));
        let len = joined.len();
        begin_checksum(local, remote, &mut joined, len);
        assert!(is_joined(remote, local, &joined) && !is_intact(remote, local, &joined));
    }

    #[test]
    fn the_checksum_covers_addresses_and_every_byte() {
        for (local, remote) in
            [("198.18.0.1:6182", "198.18.0.2:443"), ("[2001:db8::1]:6182", "[2001:db8::2]:443")]
        {
            let local: SocketAddr = local.parse().expect("valid");
            let remote: SocketAddr = remote.parse().expect("valid");
            let mut bytes = [0x55; MAX_HEADER + 5];
            syn().write(&mut bytes);
            seal(local, remote, &mut bytes);
            assert!(is_intact(remote, local, &bytes));
            let other = "198.18.0.3:1".parse().expect("valid");
            assert!(!is_intact(other, local, &bytes));
            for at in 0..bytes.len() {
                let mut broken = bytes;
                broken[at] ^= 4;
                assert!(!is_intact(local, remote, &broken), "byte {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_received_can_break_the_parser(bytes: Vec<u8>) {
            if let Ok((header, len)) = Header::parse(&bytes) {
                prop_assert!(len <= bytes.len() && header.encoded_len() <= MAX_HEADER);
            }
        }
    }
}
