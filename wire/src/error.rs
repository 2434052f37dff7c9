use core::fmt;

/// Why bytes are not a message of mpip, or why a value cannot be written.
///
/// Offsets count bytes from the start of what was parsed: the datagram for messages, the plaintext
/// for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A message of fixed length has another length.
    Length {
        /// Which message.
        message: &'static str,
        /// Bytes it must have.
        expected: usize,
        /// Bytes it has.
        got: usize,
    },
    /// The bytes end inside a field.
    Truncated {
        /// Which field.
        field: &'static str,
        /// Where the field begins.
        offset: usize,
        /// Bytes the field needs at least.
        needed: usize,
        /// Bytes that are left for it.
        left: usize,
    },
    /// A field has a value that the protocol does not allow.
    Value {
        /// Which field.
        field: &'static str,
        /// Where the field begins; when writing, where it would.
        offset: usize,
        /// What is allowed.
        expected: &'static str,
        /// What came.
        got: u64,
    },
    /// The frames of a datagram would make more work than one may.
    Work {
        /// Units that are permitted.
        max: u32,
        /// Units up to the frame that is too much.
        got: u32,
    },
    /// The buffer to write into is too short. Nothing of the value was written.
    NoRoom {
        /// Bytes needed.
        needed: usize,
        /// Bytes available.
        available: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { message, expected, got } => {
                write!(f, "{message}: expected {expected} bytes, got {got}")
            }
            Self::Truncated { field, offset, needed, left } => {
                write!(f, "{field} at byte {offset}: expected {needed} bytes, got {left}")
            }
            Self::Value { field, offset, expected, got } => {
                write!(f, "{field} at byte {offset}: expected {expected}, got {got} ({got:#x})")
            }
            Self::Work { max, got } => {
                write!(f, "frames: expected work of at most {max} units, got {got}")
            }
            Self::NoRoom { needed, available } => {
                write!(f, "buffer: expected room for {needed} bytes, got {available}")
            }
        }
    }
}

impl core::error::Error for Error {}

/// Checks that the message in `datagram` has its one length.
pub(crate) fn exact_len(
    message: &'static str,
    datagram: &[u8],
    expected: usize,
) -> Result<(), Error> {
    if datagram.len() != expected {
        return Err(Error::Length { message, expected, got: datagram.len() });
    }
    Ok(())
}
