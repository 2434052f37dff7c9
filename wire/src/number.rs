use crate::bytes::Reader;
use crate::{Error, VARINT_MAX};

/// Largest packet number: 2^62 - 1, since feedback carries it as a variable-length integer.
pub const PACKET_NUMBER_MAX: u64 = VARINT_MAX;

/// The low bytes of a packet number as a transport message carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruncatedNumber {
    value: u32,
    len: u8,
}

impl TruncatedNumber {
    /// Truncates `number` to `len` bytes; `len` outside 1..=4 counts as the nearer bound.
    #[inline]
    pub const fn new(number: u64, len: usize) -> Self {
        let len = match len {
            0 | 1 => 1,
            2 => 2,
            3 => 3,
            _ => 4,
        };
        Self { value: (number & mask(len)) as u32, len }
    }

    /// The low bytes of the number.
    #[inline]
    pub const fn value(self) -> u32 {
        self.value
    }

    /// How many bytes the number was truncated to, 1..=4.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub const fn len(self) -> usize {
        self.len as usize
    }

    /// The whole packet number; see [`expand`].
    #[inline]
    pub const fn expand(self, largest_received: Option<u64>) -> u64 {
        expand(largest_received, self.value, self.len())
    }

    #[inline]
    pub(crate) fn read(reader: &mut Reader<'_>, len: usize) -> Result<Self, Error> {
        let bytes = reader.take("packet number", len)?;
        let value = bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
        Ok(Self::new(value, len))
    }
}

const fn mask(len: u8) -> u64 {
    (1 << (8 * len as u32)) - 1
}

/// Bytes (1..=4) that `number` needs so that the peer restores it (RFC 9000 appendix A.2).
///
/// `largest_acked` is the largest number of that lane that the peer has acknowledged, `None` before
/// the first. Four bytes reach 2^31 numbers beyond it, 16 times what a lane sends before a rekey;
/// beyond that the answer stays 4 and the peer could not restore the number.
///
/// The result suffices for packets that arrive in about the order they were sent in. On a path that
/// reorders far, a sender takes more bytes than this.
#[inline]
pub const fn truncated_len(number: u64, largest_acked: Option<u64>) -> usize {
    let unacked = match largest_acked {
        Some(acked) => number.saturating_sub(acked),
        None => number.saturating_add(1),
    };
    // The field must span twice the numbers that are outstanding: ceil(log2(unacked)) + 1 bits.
    let bits = u64::BITS - unacked.saturating_sub(1).leading_zeros() + 1;
    match bits.div_ceil(8) {
        0 | 1 => 1,
        2 => 2,
        3 => 3,
        _ => 4,
    }
}

/// Restores a packet number from its low `len` bytes (RFC 9000 appendix A.3).
///
/// `largest_received` is the largest number of that lane that was authenticated, `None` before the
/// first. The answer is the number nearest to the next expected one, at most
/// [`PACKET_NUMBER_MAX`]; `len` outside 1..=4 counts as the nearer bound.
#[inline]
pub const fn expand(largest_received: Option<u64>, truncated: u32, len: usize) -> u64 {
    let TruncatedNumber { value, len } = TruncatedNumber::new(truncated as u64, len);
    let expected = match largest_received {
        Some(PACKET_NUMBER_MAX..) => PACKET_NUMBER_MAX,
        Some(largest) => largest + 1,
        None => 0,
    };
    let window = 1_u64 << (8 * len as u32);
    let half = window / 2;
    let candidate = (expected & !(window - 1)) | value as u64;
    if candidate + half <= expected && candidate + window <= PACKET_NUMBER_MAX {
        candidate + window
    } else if candidate > expected + half && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}
