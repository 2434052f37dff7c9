use crate::Error;
use crate::bytes::{Reader, Writer};

/// Largest value of a variable-length integer: 2^62 - 1 (RFC 9000 section 16).
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// Bytes that `value` takes as a variable-length integer: 1, 2, 4 or 8.
///
/// Values above [`VARINT_MAX`] cannot be written; for them the answer is 8.
#[inline]
pub const fn varint_len(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

impl<'a> Reader<'a> {
    /// Reads a variable-length integer, which must be in its shortest form.
    #[inline]
    pub(crate) fn varint(&mut self, field: &'static str) -> Result<u64, Error> {
        match self.rest() {
            // Most are small.
            [small @ 0..=0x3f, ..] => {
                self.take(field, 1)?;
                Ok(u64::from(*small))
            }
            _ => self.varint_of_any_len(field),
        }
    }

    fn varint_of_any_len(&mut self, field: &'static str) -> Result<u64, Error> {
        let offset = self.offset();
        let first = self.u8(field)?;
        let low = u64::from(first & 0x3f);
        let (value, len) = match first >> 6 {
            0 => return Ok(low),
            1 => (low << 8 | u64::from(self.u8(field)?), 2),
            2 => {
                let [a, b, c] = self.array(field)?;
                (low << 24 | u64::from(u32::from_be_bytes([0, a, b, c])), 4)
            }
            _ => {
                let [a, b, c, d, e, f, g] = self.array(field)?;
                (low << 56 | u64::from_be_bytes([0, a, b, c, d, e, f, g]), 8)
            }
        };
        if varint_len(value) != len {
            let expected = "a variable-length integer in its shortest form";
            return Err(Error::Value { field, offset, expected, got: value });
        }
        Ok(value)
    }

    /// Reads a variable-length integer of at most `max`, which `expected` describes.
    #[inline]
    pub(crate) fn varint_max(
        &mut self,
        field: &'static str,
        max: u64,
        expected: &'static str,
    ) -> Result<u64, Error> {
        let offset = self.offset();
        let value = self.varint(field)?;
        if value > max {
            return Err(Error::Value { field, offset, expected, got: value });
        }
        Ok(value)
    }
}

impl Writer<'_> {
    #[inline]
    pub(crate) fn varint(&mut self, field: &'static str, value: u64) -> Result<(), Error> {
        match varint_len(value) {
            1 => self.put(&[value as u8]),
            2 => self.put(&(0x4000 | value as u16).to_be_bytes()),
            4 => self.put(&(0x8000_0000 | value as u32).to_be_bytes()),
            _ if value <= VARINT_MAX => self.put(&(0xc000_0000_0000_0000 | value).to_be_bytes()),
            _ => {
                let offset = self.offset();
                Err(Error::Value { field, offset, expected: "at most 2^62 - 1", got: value })
            }
        }
    }
}
