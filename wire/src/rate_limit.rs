//! The upper rate of a path.

use core::fmt;
use core::num::NonZeroU32;
use core::ops::RangeInclusive;

/// The most that may be sent on a path, in kbit/s of 1,000 bit/s, IP headers included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RateLimit(NonZeroU32);

impl RateLimit {
    /// Permitted rates, kbit/s: 64 kbit/s, at which a full packet takes 0.2 s, to 1 Tbit/s.
    pub const RANGE: RangeInclusive<u32> = 64..=1_000_000_000;

    /// A limit of `kbps` kbit/s; `None` outside of [`RANGE`](Self::RANGE).
    pub fn new(kbps: u32) -> Option<Self> {
        NonZeroU32::new(kbps).filter(|_| Self::RANGE.contains(&kbps)).map(Self)
    }

    /// In kbit/s.
    #[inline]
    pub const fn kbps(self) -> u32 {
        self.0.get()
    }

    /// In bytes/s.
    #[inline]
    pub const fn bytes_per_second(self) -> u64 {
        // Widening.
        self.0.get() as u64 * 125
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} kbit/s", self.0)
    }
}
