//! The fuzzer's bytes, read as numbers. After the end all numbers are 0.

/// Edge cases: numbers at which something may overflow or wrap.
const EDGES: [u64; 16] = [
    0,
    0x7f,
    0x3fff,
    0x7fff,
    0x8000,
    0xffff,
    0x7f_ffff,
    0xff_ffff,
    0x3fff_ffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
    1 << 32,
    1 << 61,
    (1 << 62) - 1,
];

pub(super) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// The next `len` bytes, or fewer at the end.
    pub(super) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(super) fn split(&mut self, len: u8) -> Self {
        Self(self.take(len.into()))
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }

    fn wide<const N: usize>(&mut self) -> u64 {
        (0..N).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// A number below 2^62; below 192 it takes one byte.
    pub(super) fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=0xbf => small.into(),
            0xc0..=0xcf => self.wide::<2>(),
            0xd0..=0xdf => self.wide::<4>(),
            0xe0..=0xef => self.wide::<8>() >> 2,
            edge => EDGES[usize::from(edge & 15)],
        }
    }

    pub(super) fn number32(&mut self) -> u32 {
        self.number() as u32
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }
}
