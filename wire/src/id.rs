use core::fmt;

use crate::bytes::Reader;
use crate::{Error, varint_len};

/// A path within an association, and with it a lane's packet-number space.
///
/// Numbered by the node that opens paths; 0 is the path of the handshake. The number of an
/// abandoned path comes again only after the keys have been renewed twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u16);

/// A session within an association, in the number space of the side that sends its packets.
///
/// Both sides count on their own, so the same number in the two directions means two different
/// sessions and never collides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

/// Names an association (or a handshake under way) at the node that chose it and that receives
/// messages which carry it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiverIndex(pub u32);

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ReceiverIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl PathId {
    #[inline]
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let value = reader.varint_max("path identifier", u64::from(u16::MAX), "at most 65535")?;
        Ok(Self(value as u16))
    }

    #[inline]
    pub(crate) const fn varint_len(self) -> usize {
        varint_len(self.0 as u64)
    }
}

impl SessionId {
    #[inline]
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let value = reader.varint_max("session", u64::from(u32::MAX), "at most 2^32 - 1")?;
        Ok(Self(value as u32))
    }

    #[inline]
    pub(crate) const fn varint_len(self) -> usize {
        varint_len(self.0 as u64)
    }
}
