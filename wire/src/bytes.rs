use crate::Error;

/// Cursor over received bytes. Every read is checked.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, offset: 0 }
    }

    #[inline]
    pub(crate) const fn offset(&self) -> usize {
        self.offset
    }

    #[inline]
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) fn take(&mut self, field: &'static str, len: usize) -> Result<&'a [u8], Error> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            return Err(self.truncated(field, len));
        };
        self.rest = rest;
        self.offset += len;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Error> {
        self.array_ref(field).copied()
    }

    #[inline]
    pub(crate) fn array_ref<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<&'a [u8; N], Error> {
        let Some((taken, rest)) = self.rest.split_first_chunk() else {
            return Err(self.truncated(field, N));
        };
        self.rest = rest;
        self.offset += N;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, Error> {
        self.array(field).map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, Error> {
        self.array(field).map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, Error> {
        self.array(field).map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, Error> {
        self.array(field).map(u64::from_be_bytes)
    }

    /// Reads one byte that must be 0 or 1.
    pub(crate) fn flag(&mut self, field: &'static str) -> Result<bool, Error> {
        let offset = self.offset;
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Error::Value { field, offset, expected: "0 or 1", got: u64::from(other) }),
        }
    }

    /// Reads one byte that must be `value`, which `expected` describes.
    pub(crate) fn exactly(
        &mut self,
        field: &'static str,
        value: u8,
        expected: &'static str,
    ) -> Result<(), Error> {
        let offset = self.offset;
        let got = self.u8(field)?;
        if got != value {
            return Err(Error::Value { field, offset, expected, got: u64::from(got) });
        }
        Ok(())
    }

    /// Reads `len` bytes that must all be zero.
    pub(crate) fn zeros(&mut self, field: &'static str, len: usize) -> Result<(), Error> {
        let offset = self.offset;
        let bytes = self.take(field, len)?;
        match bytes.iter().enumerate().find(|&(_, &byte)| byte != 0) {
            None => Ok(()),
            Some((at, &byte)) => Err(Error::Value {
                field,
                offset: offset + at,
                expected: "zero",
                got: u64::from(byte),
            }),
        }
    }

    #[cold]
    fn truncated(&self, field: &'static str, needed: usize) -> Error {
        Error::Truncated { field, offset: self.offset, needed, left: self.rest.len() }
    }
}

/// Cursor over a buffer to fill. Every write is checked.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    bytes: &'a mut [u8],
    offset: usize,
}

impl<'a> Writer<'a> {
    /// A writer over `bytes`, which must have room for `needed` bytes.
    #[inline]
    pub(crate) fn new(bytes: &'a mut [u8], needed: usize) -> Result<Self, Error> {
        if bytes.len() < needed {
            return Err(Error::NoRoom { needed, available: bytes.len() });
        }
        Ok(Self { bytes, offset: 0 })
    }

    #[inline]
    pub(crate) const fn offset(&self) -> usize {
        self.offset
    }

    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let available = self.bytes.len().saturating_sub(self.offset);
        let Some(target) =
            self.bytes.get_mut(self.offset..).and_then(|rest| rest.get_mut(..bytes.len()))
        else {
            return Err(Error::NoRoom { needed: bytes.len(), available });
        };
        target.copy_from_slice(bytes);
        self.offset += bytes.len();
        Ok(())
    }

    #[inline]
    pub(crate) fn zeros(&mut self, len: usize) -> Result<(), Error> {
        let available = self.bytes.len().saturating_sub(self.offset);
        let Some(target) = self.bytes.get_mut(self.offset..).and_then(|rest| rest.get_mut(..len))
        else {
            return Err(Error::NoRoom { needed: len, available });
        };
        target.fill(0);
        self.offset += len;
        Ok(())
    }
}
